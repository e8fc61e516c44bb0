//! Captures: who may call while somebody captures, and what becomes of what is let go meanwhile: C1 to C3, C6 to C9, P7, S4, S7.
//!
//! "Lenient" below is a driver on which relaxed mode protects nothing: the device breaks a capture at every guarded call that
//! runs while one is open.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use super::checker::spawn;
use super::device::Device;
use super::tenure::driver::{Call, Capabilities, CaptureMode, Driver, ErrorKind, Image};
use super::tenure::error::{Error, Misuse};
use super::tenure::{Buffer, Config, Freed, Pinned, Queue, ReclaimMode, Runtime, Stream};
use super::{Model, Reached};

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "c6_releases_stay_out_of_captures",
        claim: "A release beside the begin and the end of a capture makes no guarded call inside its window, and happens once.",
        lines: &["C1", "C3", "C6", "R1"],
        operations: "1 capture; 1 drop and 1 poll",
        bound: None,
        reaches: &["the release was put off", "the release came before the capture"],
        body: release_beside_capture,
        ..Model::USUAL
    },
    Model {
        name: "c3_two_captures_and_one_release",
        claim: "A release that captures of two threads put off happens once, after both have ended.",
        lines: &["C1", "C3", "C6"],
        threads: 3,
        operations: "1 capture each; 1 drop and 2 polls",
        bound: Some(2),
        reaches: &["the release was put off"],
        body: two_captures,
        ..Model::USUAL
    },
    Model {
        name: "c3_end_of_a_capture_wakes_the_worker",
        claim: "A worker that sleeps with a release that a capture put off is woken by the end of that capture.",
        lines: &["C3", "C6", "P7"],
        operations: "the worker's own loop; 1 capture; 1 drop",
        bound: Some(2),
        leaves_out: "the tick: only signals wake",
        reaches: &["it was released"],
        body: end_wakes_worker,
        ..Model::USUAL
    },
    Model {
        name: "c6_waiting_call_beside_captures",
        claim: "A guarded call that waits for a capture, and a capture that waits for a guarded call, go on when the other has ended.",
        lines: &["C1", "C6", "C8"],
        operations: "1 capture; 1 wait for a stream",
        bound: None,
        reaches: &["the wait came first", "the capture came first"],
        body: waiting_call,
        ..Model::USUAL
    },
    Model {
        name: "c7_panic_in_the_body",
        claim: "A body that unwinds leaves no capture open, its releases happen, and the next capture works, beside a poll.",
        lines: &["C3", "C7", "R4"],
        operations: "1 capture that uses one buffer, drops another and unwinds; 1 poll",
        bound: None,
        reaches: &["the poll put something off", "the poll came outside the capture"],
        body: panic_in_body,
        ..Model::USUAL
    },
    Model {
        name: "s7_streams_of_a_failed_capture_are_gone",
        claim: "Of two captures, the driver fails one at its end: no stream of it is used again, and the other gives a graph.",
        lines: &["S7", "C7"],
        operations: "1 capture with a fork each, the first end fails",
        reaches: &["one was begun after the other had failed"],
        body: failed_end,
        ..Model::USUAL
    },
    Model {
        name: "c7_forgotten_forks_are_joined",
        claim: "Two captures that share the session's streams, each with a fork left open, both give graphs with all edges.",
        lines: &["C7", "C8", "O1"],
        operations: "1 capture with an open fork each",
        reaches: &["a stream was used by both"],
        body: forgotten_forks,
        ..Model::USUAL
    },
    Model {
        name: "c8_taker_outside_waits_for_no_capture",
        claim: "Work on memory that a capture records a use of, through another wrap, waits for nothing that is only recorded.",
        lines: &["C8", "S3", "P2"],
        operations: "1 capture of 1 write; 1 lease, 1 write there through another wrap, and its end",
        bound: None,
        reaches: &["the capture came first", "the work came first"],
        body: taker_outside,
        ..Model::USUAL
    },
    Model {
        name: "s3_capture_beside_stale_stream",
        claim: "A capture that uses what a lease that has ended used last makes no call on that stream, which a claim gets again; the replay is ordered.",
        lines: &["S3", "C8", "C5"],
        operations: "1 capture and 1 replay; 1 claim and 1 write there",
        reaches: &["the stream was leased again"],
        body: stale_stream,
        ..Model::USUAL
    },
    Model {
        name: "c1_foreign_capture_survives",
        claim: "A capture that other code makes by raw calls, in global mode, survives drops, polls and waits on another thread.",
        lines: &["C1", "C2"],
        operations: "1 raw capture; 1 drop, 1 poll, 1 wait",
        bound: None,
        leaves_out: "the driver protects threads in relaxed mode",
        reaches: &["a release was made beside it"],
        body: foreign_capture,
        ..Model::USUAL
    },
    Model {
        name: "c2_nothing_of_ours_is_recorded",
        claim: "An allocation in a capture, and drops in it and beside it, record nothing; what the graph uses stays until it goes.",
        lines: &["C2", "C3", "C4", "C9"],
        operations: "1 capture that allocates, drops and copies; 1 drop and 1 poll",
        bound: None,
        reaches: &["something was released beside the capture"],
        body: nothing_recorded,
        ..Model::USUAL
    },
    Model {
        name: "p7_free_inside_its_own_capture",
        claim: "Explicit frees in a body are put off, whatever else captures, and happen once afterwards.",
        lines: &["P7", "C3", "C9"],
        operations: "1 capture with 2 frees of memory and 1 of pinned memory; 1 capture and 1 poll",
        bound: Some(2),
        reaches: &["two captures were open at once"],
        body: free_inside,
        ..Model::USUAL
    },
    Model {
        name: "c9_own_capture_is_not_waited_for",
        claim: "A wait in a body is refused where it would wait for the capture itself, beside another capture.",
        lines: &["C9", "R3"],
        operations: "1 capture with a wait; 1 capture",
        reaches: &["the wait was refused"],
        body: wait_inside,
        ..Model::USUAL
    },
    Model {
        name: "p7_deferred_pin_is_released",
        claim: "A pin let go, and one freed, beside a capture are unregistered once, after it.",
        lines: &["P7", "C3", "C1", "P5"],
        operations: "1 capture; 1 drop and 1 free of a pin, 1 poll",
        bound: None,
        reaches: &["the free was put off", "the free was made"],
        body: pins_beside_capture,
        ..Model::USUAL
    },
    Model {
        name: "s4_claim_does_not_wait_for_a_capture",
        claim: "A claim beside a capture of other code gets a stream without waiting for its end.",
        lines: &["S4", "C1"],
        operations: "1 guard of a capture that lasts until the claim is made; 1 claim",
        bound: None,
        reaches: &["another stream was made", "the returned stream was taken"],
        body: claim_beside_guard,
        ..Model::USUAL
    },
    Model {
        name: "c9_call_in_a_hold_beside_a_capture",
        claim: "A guarded call, and a capture, in a closure that holds a gate are refused, beside a capture whose body needs that gate.",
        lines: &["C9", "R3"],
        operations: "1 use_on with 1 load and 1 capture; 1 capture with 1 write on that stream",
        bound: Some(3),
        reaches: &["the hold ran inside of the capture", "the hold ran outside of it"],
        body: call_in_a_hold,
        ..Model::USUAL
    },
    Model {
        name: "c9_wrap_in_a_capture_beside_a_wrap",
        claim: "A wrap in a body is refused, also while a wrap of another thread waits for that capture to end.",
        lines: &["C9", "P6", "R3"],
        operations: "1 capture with 1 wrap; 1 wrap",
        bound: None,
        reaches: &["the other wrap came first", "the capture came first"],
        body: wrap_beside_wrap,
        ..Model::USUAL
    },
    Model {
        name: "c6_waiting_call_beside_captures_in_turn",
        claim: "A guarded call that waits for a capture looks again when that has ended: another may have begun.",
        lines: &["C1", "C6"],
        operations: "2 captures one after the other; 1 wait for a stream",
        bound: Some(3),
        reaches: &["the wait came first", "the wait came between", "the wait came last"],
        body: captures_in_turn,
        ..Model::USUAL
    },
    Model {
        name: "c9_queue_of_another_capture",
        claim: "A queue of one capture is not joined into another, beside a third capture; all of them end well.",
        lines: &["C9", "C7"],
        operations: "1 capture inside of another, each with a fork; 1 capture with a fork",
        bound: Some(2),
        reaches: &["three captures were open at once"],
        body: foreign_queue,
        ..Model::USUAL
    },
    Model {
        name: "c1_event_asked_beside_a_foreign_capture",
        claim: "Where a question about an event breaks captures in every mode, none is put: a capture of other code survives.",
        lines: &["C1", "O2"],
        operations: "1 raw capture; 1 question about an event and 1 wait for it",
        bound: Some(3),
        leaves_out: "the driver protects threads in relaxed mode, but for events",
        reaches: &["the event was waited for beside the capture"],
        body: event_beside_foreign_capture,
        ..Model::USUAL
    },
];

/// A driver on which relaxed mode protects nothing, without stream-ordered memory.
fn lenient() -> (Device, Runtime<Device>) {
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    capabilities.relaxed_protects = false;
    capabilities.relaxed_protects_events = false;
    manual(capabilities)
}

/// A runtime whose releases are made by polling.
pub fn manual(capabilities: Capabilities) -> (Device, Runtime<Device>) {
    let device = Device::new(capabilities);
    let runtime = Runtime::with(device.clone(), Config::default().reclaim(ReclaimMode::Manual));
    (device, runtime.expect("a runtime can be made"))
}

/// `count` buffers, and the stream that they were made on.
pub fn buffers<const N: usize>(runtime: &Runtime<Device>) -> (Stream<Device>, [Buffer<u8, Device>; N]) {
    let stream = runtime.stream().expect("the pool may make a stream");
    let buffers = std::array::from_fn(|_| stream.alloc::<u8>(64).expect("there is memory"));
    (stream, buffers)
}

/// A wrap of memory that the models never touch.
pub fn pinned(runtime: &Runtime<Device>, base: usize) -> Pinned<u8, Device> {
    let start = NonNull::new(std::ptr::without_provenance_mut(base)).expect("the address is not zero");
    // SAFETY: P4. Nobody ever touches the memory: the device of the models has none.
    unsafe { runtime.wrap_raw(start, 64) }.expect("nothing is in the way")
}

/// Polls until nothing is left: every capture must have ended.
pub fn drain(runtime: &Runtime<Device>) {
    while runtime.poll() > 0 {
        super::checker::yield_now();
    }
}

fn release_beside_capture(reached: &Reached) {
    // setup: memory whose free is a guarded call
    let (device, runtime) = lenient();
    let (_stream, [buffer]) = buffers(&runtime);
    // threads
    let releaser = spawn({
        let runtime = runtime.clone();
        let device = device.clone();
        move || {
            device.without_calls("R1: a drop made a driver call", &[], || drop(buffer));
            runtime.poll()
        }
    });
    let graph = runtime.capture(|_| Ok(()));
    // join
    let left: usize = releaser.join().unwrap();
    // claim
    assert!(graph.is_ok(), "C1: an undisturbed capture failed");
    reached.mark_if(left > 0, "the release was put off");
    reached.mark_if(left == 0, "the release came before the capture");
    drop(graph);
    drain(&runtime);
    assert_eq!(device.count(Call::Free), 1, "C3: a release that was put off ran not once");
}

fn two_captures(reached: &Reached) {
    // setup
    let (device, runtime) = lenient();
    let (_stream, [buffer]) = buffers(&runtime);
    // threads
    let capturers = [(), ()].map(|()| {
        let runtime = runtime.clone();
        spawn(move || runtime.capture(|_| Ok(())))
    });
    drop(buffer);
    runtime.poll();
    let deferred = device.count(Call::Free) == 0;
    runtime.poll();
    // join
    let graphs = capturers.map(|capturer| capturer.join().unwrap());
    // claim: the device, and
    reached.mark_if(deferred, "the release was put off");
    assert!(graphs.iter().all(Result::is_ok), "C1: an undisturbed capture failed");
    drain(&runtime);
    assert_eq!(device.count(Call::Free), 1, "C3: a release that was put off ran not once");
    assert_eq!(device.open_captures(), 0, "C7: a capture was never ended");
}

fn end_wakes_worker(reached: &Reached) {
    // setup: nobody polls
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    capabilities.relaxed_protects = false;
    let device = Device::new(capabilities);
    device.await_call(Call::Free);
    let runtime = Runtime::new(device.clone()).expect("a runtime can be made");
    let (stream, [buffer]) = buffers(&runtime);
    // threads: the worker's is the runtime's own
    let capturer = spawn({
        let runtime = runtime.clone();
        // The graph lives on: its drop would wake the worker as well.
        move || runtime.capture(|_| Ok(()))
    });
    drop(buffer);
    device.wait_for(1);
    // join
    let graph = capturer.join().unwrap();
    // claim: the free was not waited for in vain
    assert!(graph.is_ok(), "C1: an undisturbed capture failed");
    assert_eq!(device.count(Call::Free), 1, "C3: a release that was put off ran not once");
    reached.mark("it was released");
    drop((graph, stream, runtime));
}

fn waiting_call(reached: &Reached) {
    // setup: work that a wait must ask the driver about
    let (device, runtime) = lenient();
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    // threads
    let capturer = spawn({
        let runtime = runtime.clone();
        move || runtime.capture(|_| Ok(())).is_ok()
    });
    stream.synchronize().expect("C8: a wait beside a capture failed");
    reached.mark_if(device.count(Call::CaptureEnd) > 0, "the capture came first");
    reached.mark_if(device.count(Call::CaptureBegin) == 0, "the wait came first");
    // join
    let captured = capturer.join().unwrap();
    // claim: the device, and that both ended
    assert!(captured, "C1: an undisturbed capture failed");
}

fn panic_in_body(reached: &Reached) {
    // setup
    let (device, runtime) = lenient();
    let (_stream, [mut used, dropped]) = buffers(&runtime);
    // threads
    let poller = spawn({
        let runtime = runtime.clone();
        move || runtime.poll()
    });
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        runtime.capture(|capture| {
            capture.fill(&mut used, 7)?;
            drop(dropped);
            resume_unwind(Box::new("planned"))
        })
    }));
    // join
    let left: usize = poller.join().unwrap();
    // claim
    assert!(unwound.is_err(), "R4: a panic of the body was swallowed");
    assert_eq!(device.open_captures(), 0, "C7: a capture whose body unwound was never ended");
    reached.mark_if(left > 0, "the poll put something off");
    reached.mark_if(left == 0, "the poll came outside the capture");
    drop(used);
    let again = runtime.capture(|_| Ok(()));
    assert!(again.is_ok(), "C7: nobody can capture after a body has unwound");
    drop(again);
    drain(&runtime);
    assert_eq!(device.count(Call::Free), 2, "C3: a release that a capture put off ran not once");
}

fn failed_end(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    device.fail(Call::CaptureEnd, ErrorKind::CaptureInvalidated, 0);
    // threads
    let capture = |runtime: &Runtime<Device>, device: &Device| {
        let late = device.count(Call::StreamDestroy) > 0;
        let graph = runtime.capture(|capture| capture.fork().map(drop));
        (late, graph.is_ok())
    };
    let other = spawn({
        let (runtime, device) = (runtime.clone(), device.clone());
        move || capture(&runtime, &device)
    });
    let (late, mine) = capture(&runtime, &device);
    // join
    let (other_late, other) = other.join().unwrap();
    // claim: the device knows the streams, and
    assert_ne!(mine, other, "C7: the failed capture gave a graph, or the other did not");
    reached.mark_if(late || other_late, "one was begun after the other had failed");
    drain(&runtime);
}

fn forgotten_forks(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (_stream, [mut one, mut other]) = buffers(&runtime);
    let made = device.count(Call::StreamCreate);
    // threads
    let capture = |runtime: &Runtime<Device>, buffer: &mut Buffer<u8, Device>| {
        runtime.capture(|capture| {
            capture.fill(buffer, 1)?;
            capture.fork()?.fill(buffer, 2)
        })
    };
    let capturer = spawn({
        let runtime = runtime.clone();
        move || capture(&runtime, &mut other)
    });
    let mine = capture(&runtime, &mut one);
    // join
    let other = capturer.join().unwrap();
    // claim: the device, inside each capture, and
    assert!(mine.is_ok() && other.is_ok(), "C7: a capture whose fork was left open failed");
    reached.mark_if(device.count(Call::StreamCreate) - made < 4, "a stream was used by both");
    drop((mine, other, one));
    drain(&runtime);
    device.ends_clean();
}

/// Where the memory of two wraps is said to lie: never touched.
const SHARED: usize = 0x20_0000;

fn taker_outside(reached: &Reached) {
    // setup: one range, wrapped twice, since two threads cannot write one buffer
    let (device, runtime) = manual(Capabilities::default());
    let (mut inside, mut outside) = (pinned(&runtime, SHARED), pinned(&runtime, SHARED));
    // threads
    let worker = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            // A stream that executes: nobody can take it for a fork.
            let (stream, [_scratch]) = buffers(&runtime);
            stream.fill(&mut outside, 1).expect("C8: work beside a capture failed");
            stream.fill(&mut outside, 2).expect("C8: work beside a capture failed");
            drop((stream, outside));
            device.count(Call::CaptureBegin) > 0
        }
    });
    let before = device.count(Call::StreamCreate) == 0;
    let graph = runtime.capture(|capture| {
        capture.fill(&mut inside, 3)?;
        capture.fill(&mut inside, 4)
    });
    // join
    let late = worker.join().unwrap();
    // claim: the device, at each wait
    reached.mark_if(before && late, "the capture came first");
    reached.mark_if(!late, "the work came first");
    let graph = graph.expect("C1: an undisturbed capture failed");
    let stream = runtime.stream().expect("the pool may make a stream");
    graph.instantiate().and_then(|executable| executable.launch(&stream)).expect("the driver accepts all");
    drop((graph, inside, stream));
    drain(&runtime);
    device.ends_clean();
}

fn stale_stream(reached: &Reached) {
    // setup: X was written under a lease that has ended
    let (device, runtime) = manual(Capabilities::default());
    let (old, [mut x, mut y]) = buffers(&runtime);
    let (id, other) = (old.id(), runtime.stream().expect("the pool may make streams"));
    old.fill(&mut x, 1).expect("the driver accepts all");
    drop(old);
    // threads
    let claimer = spawn({
        let runtime = runtime.clone();
        move || {
            let stream = runtime.stream().expect("the pool may make streams");
            stream.fill(&mut y, 2).expect("the driver accepts all");
            stream.id()
        }
    });
    let graph = runtime.capture(|capture| capture.fill(&mut x, 3)).expect("C1: an undisturbed capture failed");
    let executable = graph.instantiate().expect("the driver accepts all");
    executable.launch(&other).expect("the driver accepts all");
    // join
    let claimed = claimer.join().unwrap();
    // claim: the device, at each wait and at the launch
    reached.mark_if(claimed == id, "the stream was leased again");
    drop((graph, executable, x, other));
    drain(&runtime);
    device.ends_clean();
}

fn foreign_capture(reached: &Reached) {
    // setup: a free of this driver is a guarded call
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let (device, runtime) = manual(capabilities);
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    let raw = device.made_stream();
    // threads
    let capturer = spawn({
        let device = device.clone();
        move || {
            device.capture_begin(&raw, CaptureMode::Global).expect("the driver accepts all");
            let graph = device.capture_end(&raw).expect("C1: a capture of other code was broken");
            device.graph_destroy(graph).expect("the driver accepts all");
        }
    });
    drop(buffer);
    stream.synchronize().expect("the driver accepts all");
    runtime.poll();
    reached.mark_if(device.open_captures() > 0 && device.count(Call::Free) == 1, "a release was made beside it");
    // join
    capturer.join().unwrap();
    // claim: the device
    drain(&runtime);
    assert_eq!(device.count(Call::Free), 1, "C3: a release ran not once");
}

fn nothing_recorded(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (_stream, [source, dropped, beside]) = buffers(&runtime);
    // threads
    let releaser = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            drop(beside);
            runtime.poll();
            device.open_captures() > 0 && device.count(Call::FreeAsync) > 0
        }
    });
    let graph = runtime.capture(|capture| {
        let mut made = capture.alloc::<u8>(64)?;
        drop(dropped);
        capture.copy(&source, &mut made)
    });
    // join
    let beside = releaser.join().unwrap();
    // claim: the device, at each call
    reached.mark_if(beside, "something was released beside the capture");
    let graph = graph.expect("C1: an undisturbed capture failed");
    drop(source);
    // What the graph holds is not let go: nothing of it may go.
    runtime.poll();
    let executable = graph.instantiate().expect("C4: what the graph uses went");
    drop((graph, executable));
    drain(&runtime);
    device.ends_clean();
}

fn free_inside(reached: &Reached) {
    // setup: one buffer with work on it, one that the graph uses, one pin
    let (device, runtime) = lenient();
    let (stream, [mut busy, mut used]) = buffers(&runtime);
    stream.fill(&mut busy, 7).expect("the driver accepts all");
    let pin = pinned(&runtime, SHARED);
    // threads
    let other = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            let graph = runtime.capture(|_| Ok(()));
            let both = device.open_captures() > 0;
            runtime.poll();
            (graph.is_ok(), both)
        }
    });
    let graph = runtime.capture(|capture| {
        capture.fill(&mut used, 8)?;
        let freed = [busy.free(), used.free(), pin.free()];
        let deferred = freed.iter().all(|freed| matches!(freed, Ok(Freed::Deferred)));
        assert!(deferred, "P7: a free inside a capture was not put off");
        Ok(())
    });
    // join
    let (captured, both) = other.join().unwrap();
    // claim
    assert!(graph.is_ok() && captured, "C1: an undisturbed capture failed");
    reached.mark_if(both, "two captures were open at once");
    drop((graph, stream));
    drain(&runtime);
    device.ends_clean();
}

fn wait_inside(reached: &Reached) {
    // setup
    let (device, runtime) = lenient();
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    // threads
    let other = spawn({
        let runtime = runtime.clone();
        move || runtime.capture(|_| Ok(())).is_ok()
    });
    let graph = runtime.capture(|_| {
        let refused = matches!(stream.synchronize(), Err(Error::Misuse(Misuse::InsideCapture)));
        assert!(refused, "C9: a wait in a body was not refused");
        reached.mark("the wait was refused");
        Ok(())
    });
    // join
    let captured = other.join().unwrap();
    // claim: the device, and
    assert!(graph.is_ok() && captured, "C9: the capture did not go on after a refusal");
    assert_eq!(device.open_captures(), 0, "C7: a capture was never ended");
}

fn pins_beside_capture(reached: &Reached) {
    // setup
    let (device, runtime) = lenient();
    let (dropped, freed) = (pinned(&runtime, SHARED), pinned(&runtime, 2 * SHARED));
    // threads
    let capturer = spawn({
        let runtime = runtime.clone();
        move || runtime.capture(|_| Ok(())).is_ok()
    });
    drop(dropped);
    let freed = freed.free().expect("P7: a free beside a capture failed");
    runtime.poll();
    // join
    let captured = capturer.join().unwrap();
    // claim
    assert!(captured, "C1: an undisturbed capture failed");
    reached.mark_if(freed == Freed::Deferred, "the free was put off");
    reached.mark_if(freed == Freed::Now, "the free was made");
    drain(&runtime);
    assert_eq!(device.count(Call::HostUnregister), 2, "P7: a release that was put off was lost");
    device.ends_clean();
}

fn claim_beside_guard(reached: &Reached) {
    // setup: a stream that a claim must ask about
    let (device, runtime) = lenient();
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    let id = stream.id();
    drop(stream);
    // threads
    let claimer = spawn({
        let runtime = runtime.clone();
        move || runtime.stream().expect("S4: a claim beside a capture failed").id()
    });
    let guard = runtime.capture_guard();
    // join: the capture lasts until the claim was made
    let claimed = claimer.join().unwrap();
    drop(guard);
    // claim: the join, and
    let asked = device.count(Call::StreamSynchronize);
    assert_eq!(asked, 0, "S4: a claim waited for the device");
    reached.mark_if(claimed != id, "another stream was made");
    reached.mark_if(claimed == id, "the returned stream was taken");
}

fn call_in_a_hold(reached: &Reached) {
    // setup: the held stream covers X
    let (device, runtime) = lenient();
    let (stream, [mut x]) = buffers(&runtime);
    // threads
    let holder = spawn({
        let (device, runtime, stream) = (device.clone(), runtime.clone(), stream.clone());
        let refused = |outcome| matches!(outcome, Err(Error::Misuse(Misuse::InsideHold)));
        move || {
            // SAFETY: O1. The closure enqueues nothing.
            let held = unsafe {
                stream.use_on(&[], |_| {
                    let inside = device.open_captures() > 0;
                    assert!(
                        refused(runtime.module(Image::Code(&[])).map(drop)),
                        "C9: a load in a hold was not refused"
                    );
                    assert!(refused(runtime.capture(|_| Ok(())).map(drop)), "C9: a capture in a hold was not refused");
                    inside
                })
            };
            held.expect("the closure ran")
        }
    });
    let graph = runtime.capture(|_| stream.fill(&mut x, 1));
    // join
    let inside = holder.join().unwrap();
    // claim
    assert!(graph.is_ok(), "C9: the capture did not go on");
    reached.mark_if(inside, "the hold ran inside of the capture");
    reached.mark_if(!inside, "the hold ran outside of it");
    drop((graph, x, stream));
    drain(&runtime);
}

fn wrap_beside_wrap(reached: &Reached) {
    // setup
    let (device, runtime) = lenient();
    // threads
    let wrapper = spawn({
        let runtime = runtime.clone();
        move || drop(pinned(&runtime, SHARED))
    });
    let graph = runtime.capture(|_| {
        let registered = device.count(Call::HostRegister) > 0;
        reached.mark_if(registered, "the other wrap came first");
        reached.mark_if(!registered, "the capture came first");
        let start = NonNull::new(std::ptr::without_provenance_mut::<u8>(2 * SHARED)).expect("the address is not zero");
        // SAFETY: P4. Nobody ever touches the memory: the device of the models has none.
        let wrapped = unsafe { runtime.wrap_raw(start, 64) };
        let refused = matches!(wrapped, Err(Error::Misuse(Misuse::InsideCapture)));
        assert!(refused, "C9: a wrap in a body was not refused");
        Ok(())
    });
    // join
    wrapper.join().unwrap();
    // claim: both ended, and
    assert!(graph.is_ok(), "C9: the capture did not go on after a refusal");
    drop(graph);
    drain(&runtime);
    device.ends_clean();
}

fn captures_in_turn(reached: &Reached) {
    // setup: work that a wait must ask the driver about
    let (device, runtime) = lenient();
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    // threads
    let capturer = spawn({
        let runtime = runtime.clone();
        move || [(); 2].map(|()| runtime.capture(|_| Ok(())).is_ok())
    });
    stream.synchronize().expect("C8: a wait beside captures failed");
    let ended = device.count(Call::CaptureEnd);
    reached.mark_if(ended == 0, "the wait came first");
    reached.mark_if(ended == 1, "the wait came between");
    reached.mark_if(ended == 2, "the wait came last");
    // join
    let captured = capturer.join().unwrap();
    // claim: the device, and
    assert_eq!(captured, [true; 2], "C1: an undisturbed capture failed");
}

fn foreign_queue(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    // threads
    let capturer = spawn({
        let runtime = runtime.clone();
        move || runtime.capture(|capture| capture.fork().map(drop)).is_ok()
    });
    let mut inner = None;
    let outer = runtime.capture(|outer| {
        inner = Some(runtime.capture(|within| {
            reached.mark_if(device.open_captures() == 3, "three captures were open at once");
            let joined = within.fork()?.join(outer);
            let refused = matches!(joined, Err(Error::Misuse(Misuse::ForeignCapture)));
            assert!(refused, "C9: a queue was joined into another capture");
            Ok(())
        }));
        Ok(())
    });
    // join
    let captured = capturer.join().unwrap();
    // claim
    let all = captured && outer.is_ok() && inner.is_some_and(|graph| graph.is_ok());
    assert!(all, "C9: a capture did not go on after a refusal");
}

fn event_beside_foreign_capture(reached: &Reached) {
    // setup: an event with later work behind it
    let mut capabilities = Capabilities::default();
    capabilities.relaxed_protects_events = false;
    let (device, runtime) = manual(capabilities);
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    let event = stream.record().expect("the driver accepts all");
    stream.fill(&mut buffer, 8).expect("the driver accepts all");
    let raw = device.made_stream();
    // threads
    let capturer = spawn({
        let device = device.clone();
        move || {
            device.capture_begin(&raw, CaptureMode::Global).expect("the driver accepts all");
            let graph = device.capture_end(&raw).expect("C1: a capture of other code was broken");
            device.graph_destroy(graph).expect("the driver accepts all");
        }
    });
    event.is_complete().expect("the driver accepts all");
    event.synchronize().expect("the driver accepts all");
    reached.mark_if(device.open_captures() > 0, "the event was waited for beside the capture");
    // join
    capturer.join().unwrap();
    // claim: the device, and
    assert_eq!(event.is_complete(), Ok(true), "O2: what was waited for is over");
    drop((event, buffer, stream));
    drain(&runtime);
}
