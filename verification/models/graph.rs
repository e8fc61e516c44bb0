//! Graphs: what a launch, a drop and an update do beside other threads: C4, C5, O1, O6.
//!
//! The device checks: a launch of a graph is ordered with all that conflicts with any of its uses and with the executable's
//! other launches; what a living executable uses is not released; an executable goes after its last launch.

use super::capture::{buffers, drain, manual, pinned};
use super::checker::spawn;
use super::device::Device;
use super::tenure::driver::{Call, Capabilities, Driver, ErrorKind, Image, LaunchConfig, Priority};
use super::tenure::error::{Error, Misuse};
use super::tenure::sync::Arc;
use super::tenure::{Buffer, Config, Executable, Graph, Kernel, Module, Queue, ReclaimMode, Runtime};
use super::{Model, Reached};

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "c5_replay_beside_writer",
        claim: "A replay on one stream and a write on another of what the graph writes are ordered, whoever comes first.",
        lines: &["C5", "O1", "C8"],
        operations: "1 replay; 1 write and 1 read of the graph's memory",
        bound: Some(3),
        reaches: &["the replay came first", "the write came first"],
        body: replay_beside_writer,
        ..Model::USUAL
    },
    Model {
        name: "c5_replay_of_a_read_beside_reader",
        claim: "A replay that reads memory gets no edge from a read elsewhere; a free waits for both.",
        lines: &["C5", "O1", "O9", "O6"],
        operations: "1 replay of a copy; 1 copy from the same source; then the end of the source",
        bound: Some(3),
        reaches: &["neither read waited"],
        body: replay_beside_reader,
        ..Model::USUAL
    },
    Model {
        name: "c5_two_replays_are_ordered",
        claim: "Two threads that launch one executable on two streams are ordered, though the graph uses no memory.",
        lines: &["C5", "O1"],
        operations: "1 replay each",
        bound: None,
        reaches: &["an edge was inserted"],
        body: two_replays,
        ..Model::USUAL
    },
    Model {
        name: "c4_drop_beside_replay",
        claim: "A buffer dropped beside a replay and the drop of the executable is freed once, after the replay and the executable.",
        lines: &["C4", "C5", "O6", "C3"],
        operations: "1 replay and 1 drop of the executable; 1 drop of the buffer and 1 poll",
        bound: None,
        reaches: &["the buffer went last", "the executable went last"],
        body: drop_beside_replay,
        ..Model::USUAL
    },
    Model {
        name: "c4_three_drops_beside_replay",
        claim: "The same with plain memory and three threads: the replay, the drop of the graph, the drop of the buffer.",
        lines: &["C4", "O6", "C3"],
        threads: 3,
        operations: "1 replay and 1 drop of the executable; 1 drop of the graph and 1 poll; 1 drop of the buffer",
        bound: Some(2),
        reaches: &["something was released before the end"],
        body: three_drops,
        ..Model::USUAL
    },
    Model {
        name: "c4_update_beside_drop",
        claim: "An update keeps what the old graph used until its launches have ended; a refused one keeps it for those to come.",
        lines: &["C4", "C5"],
        operations: "1 replay, 1 update that is refused, 1 replay, 1 update, 1 replay; 1 drop of what the first graph uses and 1 poll",
        bound: None,
        reaches: &["the drop came beside"],
        body: update_beside_drop,
        ..Model::USUAL
    },
    Model {
        name: "c4_update_of_a_write_beside_turns",
        claim: "What a graph wrote from stays while launches made before an update run, beside turns.",
        lines: &["C4", "C10"],
        operations: "1 replay of a write and 1 update; 1 turn",
        bound: Some(2),
        reaches: &["the update came first"],
        body: update_of_a_write,
        ..Model::USUAL
    },
    Model {
        name: "c4_code_beside_launch",
        claim: "Code whose handles go on two threads beside a launch is unloaded once, after it.",
        lines: &["C4"],
        operations: "1 launch, 1 drop of the kernel, 1 end of the lease, 1 poll; 1 drop of the module and 1 poll",
        bound: Some(3),
        reaches: &["the launch came first"],
        body: code_beside_launch,
        ..Model::USUAL
    },
    Model {
        name: "c4_code_beside_replay",
        claim: "A graph keeps the code of its kernel: dropped beside a replay, it is unloaded once, after the executable.",
        lines: &["C4"],
        operations: "1 replay and 1 drop of the executable; 1 drop of kernel and module and 1 poll",
        bound: None,
        reaches: &["the code was let go before the replay"],
        body: code_beside_replay,
        ..Model::USUAL
    },
    Model {
        name: "c4_code_on_an_adopted_stream",
        claim: "Code that runs on an adopted stream is unloaded after it ran, whether the adoption or the code goes first.",
        lines: &["C4", "S9"],
        operations: "1 launch without memory and 1 end of the adoption; 1 drop of kernel and module and 2 polls",
        bound: Some(3),
        reaches: &["the code went first", "the adoption went first"],
        body: code_on_an_adopted_stream,
        ..Model::USUAL
    },
    Model {
        name: "c4_foreign_code",
        claim: "A kernel of another runtime is refused on a stream and in a capture, whatever that runtime does meanwhile.",
        lines: &["C4", "C9"],
        operations: "1 launch and 1 capture with a launch, both refused; 1 drop of kernel and module and 1 poll of their runtime",
        bound: None,
        reaches: &["the launch came first"],
        body: foreign_code,
        ..Model::USUAL
    },
    Model {
        name: "x_graph_of_a_pin_beside_everything",
        claim: "A replay that reads a pin and writes a buffer, beside the end of all handles, a claim, a trim and releases: each goes once, and last.",
        lines: &["C4", "C5", "P3", "P5", "S2", "S3", "S6", "O6"],
        operations: "1 replay, 1 drop of the executable and of its stream; 1 drop of pin and buffer, 1 claim, 1 trim, 1 poll",
        bound: Some(2),
        reaches: &["the stream of the replay was claimed again", "the trim destroyed a stream"],
        body: everything,
        ..Model::USUAL
    },
];

/// A graph that fills `buffer`, made ready.
fn filling(runtime: &Runtime<Device>, buffer: &mut Buffer<u8, Device>) -> (Graph<Device>, Executable<Device>) {
    let graph = runtime.capture(|capture| capture.fill(buffer, 7)).expect("C1: an undisturbed capture failed");
    let executable = graph.instantiate().expect("the driver accepts all");
    (graph, executable)
}

/// What every model of this file ends with: all is gone, once.
fn ends(runtime: &Runtime<Device>, device: &Device) {
    drain(runtime);
    device.ends_clean();
}

/// A kernel without arguments, and its module.
fn code(runtime: &Runtime<Device>) -> (Module<Device>, Arc<Kernel<(), Device>>) {
    let module = runtime.module(Image::Source("")).expect("the driver accepts all");
    // SAFETY: O1. A kernel of this device takes what its name says: nothing.
    let kernel = unsafe { module.kernel("") }.expect("the driver accepts all");
    (module, Arc::new(kernel))
}

fn code_beside_launch(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let stream = runtime.stream().expect("the pool may make streams");
    let (module, kernel) = code(&runtime);
    let config = LaunchConfig::linear(1);
    // threads
    let other = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            drop(module);
            runtime.poll();
            device.count(Call::Launch) == 0
        }
    });
    stream.launch(&kernel, config, ()).expect("the driver accepts all");
    drop(kernel);
    drop(stream);
    runtime.poll();
    // join
    let early = other.join().unwrap();
    // claim: the device, and
    reached.mark_if(!early, "the launch came first");
    ends(&runtime, &device);
    assert_eq!(device.count(Call::ModuleUnload), 1, "C4: code was unloaded not once");
}

fn code_beside_replay(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let stream = runtime.stream().expect("the pool may make streams");
    let (module, kernel) = code(&runtime);
    let config = LaunchConfig::linear(1);
    let graph = runtime.capture(|capture| capture.launch(&kernel, config, ())).expect("C1: a capture failed");
    let executable = graph.instantiate().expect("the driver accepts all");
    drop(graph);
    // threads
    let dropper = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            drop((module, kernel));
            runtime.poll();
            device.count(Call::GraphLaunch) == 0
        }
    });
    executable.launch(&stream).expect("C4: a replay failed");
    drop(executable);
    // join
    let early = dropper.join().unwrap();
    // claim: the device, and
    reached.mark_if(early, "the code was let go before the replay");
    drop(stream);
    ends(&runtime, &device);
    assert_eq!(device.count(Call::ModuleUnload), 1, "C4: code was unloaded not once");
}

fn code_on_an_adopted_stream(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let raw = device.stream_create(Priority::Normal).expect("the driver accepts all");
    // SAFETY: S9. The device never destroys it.
    let stream = unsafe { runtime.adopt(raw) }.expect("the driver accepts all");
    let (module, kernel) = code(&runtime);
    stream.launch(&kernel, LaunchConfig::linear(1), ()).expect("the driver accepts all");
    // threads
    let dropper = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            drop((module, kernel));
            runtime.poll();
            runtime.poll();
            device.count(Call::ModuleUnload) == 1
        }
    });
    drop(stream);
    let first = device.count(Call::ModuleUnload) == 0;
    runtime.poll();
    // join
    let gone = dropper.join().unwrap();
    // claim: the device, and
    reached.mark_if(!first, "the code went first");
    reached.mark_if(first && gone, "the adoption went first");
    drain(&runtime);
    assert_eq!(device.count(Call::ModuleUnload), 1, "C4: code was unloaded not once");
}

fn foreign_code(reached: &Reached) {
    // setup: two runtimes on one device
    let (device, runtime) = manual(Capabilities::default());
    let theirs = Runtime::with(device.clone(), Config::default().reclaim(ReclaimMode::Manual)).expect("a runtime");
    let stream = runtime.stream().expect("the pool may make streams");
    let (module, kernel) = code(&theirs);
    let config = LaunchConfig::linear(1);
    // threads
    let dropper = spawn({
        let (device, kernel) = (device.clone(), kernel.clone());
        move || {
            drop((module, kernel));
            theirs.poll();
            drain(&theirs);
            device.count(Call::CaptureBegin) > 0
        }
    });
    let foreign = Err(Error::Misuse(Misuse::ForeignRuntime));
    assert_eq!(stream.launch(&kernel, config, ()), foreign, "C4: a kernel of another runtime was launched");
    let graph = runtime.capture(|capture| {
        assert_eq!(capture.launch(&kernel, config, ()), foreign, "C4: a kernel of another runtime was recorded");
        Ok(())
    });
    drop(kernel);
    // join
    let first = dropper.join().unwrap();
    // claim: the device, and
    reached.mark_if(first, "the launch came first");
    assert!(graph.is_ok(), "C9: a refused launch ended the capture");
    drop((graph, stream));
    ends(&runtime, &device);
}

fn replay_beside_writer(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (one, [mut buffer, mut scratch]) = buffers(&runtime);
    let other = runtime.stream().expect("the pool may make streams");
    let (graph, executable) = filling(&runtime, &mut buffer);
    // threads
    let writer = spawn({
        let device = device.clone();
        move || {
            other.fill(&mut buffer, 1).expect("the driver accepts all");
            other.copy(&buffer, &mut scratch).expect("the driver accepts all");
            device.count(Call::GraphLaunch) == 0
        }
    });
    executable.launch(&one).expect("the driver accepts all");
    let first = device.count(Call::Fill) == 1;
    // join
    let writer_first = writer.join().unwrap();
    // claim: the device
    reached.mark_if(first, "the replay came first");
    reached.mark_if(writer_first, "the write came first");
    drop((graph, executable, one));
    ends(&runtime, &device);
}

fn replay_beside_reader(reached: &Reached) {
    // setup: copies from one source; nothing is pending
    let (device, runtime) = manual(Capabilities::default());
    let (one, [source, mut to, mut elsewhere]) = buffers(&runtime);
    let other = runtime.stream().expect("the pool may make streams");
    let graph = runtime.capture(|capture| capture.copy(&source, &mut to)).expect("C1: an undisturbed capture failed");
    let executable = graph.instantiate().expect("the driver accepts all");
    one.synchronize().expect("the driver accepts all");
    let waits = device.count(Call::StreamWaitEvent);
    // threads
    let reader = spawn(move || {
        other.copy(&source, &mut elsewhere).expect("the driver accepts all");
        (other, source, elsewhere)
    });
    executable.launch(&one).expect("the driver accepts all");
    // join
    let (other, source, elsewhere) = reader.join().unwrap();
    // claim: the device, and
    let edges = device.count(Call::StreamWaitEvent) - waits;
    assert_eq!(edges, 0, "O1: two reads got an edge");
    reached.mark("neither read waited");
    // The source goes last, with the uses of the graph behind it.
    drop((graph, executable, to, elsewhere, source));
    drop((one, other));
    ends(&runtime, &device);
}

fn two_replays(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (one, other) = (runtime.stream(), runtime.stream());
    let (one, other) = (one.expect("the pool may make streams"), other.expect("the pool may make streams"));
    let graph = runtime.capture(|_| Ok(())).expect("C1: an undisturbed capture failed");
    let executable = Arc::new(graph.instantiate().expect("the driver accepts all"));
    // threads
    let second = spawn({
        let executable = executable.clone();
        move || executable.launch(&other).is_ok()
    });
    executable.launch(&one).expect("the driver accepts all");
    // join
    assert!(second.join().unwrap(), "C5: a replay beside another failed");
    // claim: the device
    reached.mark_if(device.count(Call::StreamWaitEvent) > 0, "an edge was inserted");
    drop((graph, executable, one));
    ends(&runtime, &device);
}

fn drop_beside_replay(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    let (graph, executable) = filling(&runtime, &mut buffer);
    drop(graph);
    // threads
    let dropper = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            drop(buffer);
            runtime.poll();
            device.count(Call::GraphLaunch) > 0
        }
    });
    executable.launch(&stream).expect("C4: a replay failed");
    drop(executable);
    let early = device.count(Call::FreeAsync) == 0;
    // join
    let late = dropper.join().unwrap();
    // claim: the device, and
    reached.mark_if(late, "the buffer went last");
    reached.mark_if(early && !late, "the executable went last");
    drop(stream);
    ends(&runtime, &device);
    assert_eq!(device.count(Call::FreeAsync), 1, "O6: memory was freed not once");
}

fn three_drops(reached: &Reached) {
    // setup
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let (device, runtime) = manual(capabilities);
    let (stream, [mut buffer]) = buffers(&runtime);
    let (graph, executable) = filling(&runtime, &mut buffer);
    // threads
    let dropper = spawn(move || drop(buffer));
    let poller = spawn({
        let runtime = runtime.clone();
        move || {
            drop(graph);
            runtime.poll();
        }
    });
    executable.launch(&stream).expect("C4: a replay failed");
    drop(executable);
    // join
    poller.join().unwrap();
    reached.mark_if(device.count(Call::GraphDestroy) == 1, "something was released before the end");
    dropper.join().unwrap();
    // claim: the device, and
    drop(stream);
    ends(&runtime, &device);
    assert_eq!(device.count(Call::Free), 1, "O6: memory was freed not once");
}

fn update_beside_drop(reached: &Reached) {
    // setup: two graphs of one shape over two buffers
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut first, mut second]) = buffers(&runtime);
    let (graph, mut executable) = filling(&runtime, &mut first);
    let next = runtime.capture(|capture| capture.fill(&mut second, 8)).expect("C1: an undisturbed capture failed");
    device.fail(Call::GraphUpdate, ErrorKind::GraphUpdateRefused, 0);
    drop(graph);
    // threads
    let dropper = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            drop(first);
            runtime.poll();
            device.count(Call::GraphLaunch) > 0 && device.count(Call::GraphUpdate) < 2
        }
    });
    executable.launch(&stream).expect("C4: a replay failed");
    assert!(executable.update(&next).is_err(), "R7: an update that the driver refused did not fail");
    executable.launch(&stream).expect("C4: a replay after a refused update failed");
    executable.update(&next).expect("the driver accepts all");
    executable.launch(&stream).expect("C4: a replay after an update failed");
    // join
    let beside = dropper.join().unwrap();
    // claim: the device
    reached.mark_if(beside, "the drop came beside");
    drop((executable, next, second, stream));
    ends(&runtime, &device);
}

/// Where the memory of the pin is said to lie: never touched.
const PINNED: usize = 0x30_0000;

fn everything(reached: &Reached) {
    // setup: a graph that copies from a pin to a buffer
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    let pin = pinned(&runtime, PINNED);
    let graph = runtime.capture(|capture| capture.copy(&pin, &mut buffer)).expect("C1: an undisturbed capture failed");
    let executable = graph.instantiate().expect("the driver accepts all");
    drop(graph);
    // threads
    let id = stream.id();
    let other = spawn({
        let runtime = runtime.clone();
        move || {
            drop((pin, buffer));
            let claimed = runtime.stream().expect("the pool may make streams").id();
            let trimmed = runtime.trim();
            runtime.poll();
            (claimed, trimmed)
        }
    });
    executable.launch(&stream).expect("C4: a replay failed");
    drop((executable, stream));
    // join
    let (claimed, trimmed) = other.join().unwrap();
    // claim: the device, and
    reached.mark_if(claimed == id, "the stream of the replay was claimed again");
    reached.mark_if(trimmed > 0, "the trim destroyed a stream");
    ends(&runtime, &device);
    assert_eq!(device.count(Call::FreeAsync), 1, "O6: memory was freed not once");
    assert_eq!(device.count(Call::HostUnregister), 1, "P5: a registration was undone not once");
}

fn update_of_a_write(reached: &Reached) {
    // setup: a graph that copies from memory of its own, and one of the same shape that does not
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut first, mut second]) = buffers(&runtime);
    let graph = runtime.capture(|capture| capture.write(&[7_u8; 64], &mut first)).expect("C1: a capture failed");
    let mut executable = graph.instantiate().expect("the driver accepts all");
    let next = runtime.capture(|capture| capture.fill(&mut second, 8)).expect("C1: a capture failed");
    drop(graph);
    // threads
    let poller = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            let updated = device.count(Call::GraphUpdate) > 0;
            runtime.poll();
            updated
        }
    });
    executable.launch(&stream).expect("C4: a replay failed");
    executable.update(&next).expect("the driver accepts all");
    runtime.poll();
    // join
    let updated = poller.join().unwrap();
    runtime.poll();
    // claim: the device, when the memory goes, and
    reached.mark_if(updated, "the update came first");
    drop((executable, next, first, second, stream));
    ends(&runtime, &device);
    assert_eq!(device.count(Call::HostFree), device.count(Call::HostAlloc), "C4: memory of a graph stays");
}
