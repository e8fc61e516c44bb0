//! Code: how long a module stays loaded, and where its kernels run (C4).

use tenure::driver::{Call, Image, Priority};
use tenure::{Error, Executable, Graph, Kernel, LaunchConfig, Misuse, Module, Queue, Stream, Write};

use super::list_cases;
use super::stream::Foreign;
use crate::bench::{Bench, SOURCE};
use crate::rig::{Brake, Rig, Tapped};

list_cases!("code": raw [] contract [
    c4_code_waits_for_every_stream,
    c4_code_waits_for_adopted_streams,
    c4_a_graph_keeps_its_code,
    c4_an_updated_executable_keeps_both_codes,
    c4_a_failed_capture_keeps_no_code,
    c4_a_kernel_of_another_runtime_is_refused,
]);

type Bump<B> = Kernel<(Write<u32>, u32, u32), Tapped<B>>;

/// A module of the case's own with its one kernel.
fn bump_of<B: Bench>(rig: &Rig<B::Driver>) -> (Module<Tapped<B>>, Bump<B>) {
    let module = rig.runtime.module(Image::Source(SOURCE)).expect("the kernels load");
    // SAFETY: O1. The kernel has this signature, and stays within the elements that it is given the number of.
    let bump = unsafe { module.kernel("bump") }.expect("`bump` is in the module");
    (module, bump)
}

/// How many modules were unloaded.
fn unloaded<B: Bench>(rig: &Rig<B::Driver>) -> usize {
    rig.tap.log.returned(Call::ModuleUnload)
}

fn c4_code_waits_for_every_stream<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (stream, other) = (rig.stream(), rig.stream());
    let mut x = rig.four(&stream, 1);
    let (module, bump) = bump_of::<B>(&rig);
    stream.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    stream.launch(&bump, LaunchConfig::linear(4), (&mut x, 1, 4)).expect("a launch");
    drop((bump, module, stream));
    other.synchronize().expect("a wait");
    rig.runtime.poll();
    assert_eq!(unloaded::<B>(&rig), 0, "C4: the kernel is held, and its stream's lease over");
    brake.release();
    rig.drain();
    assert_eq!(unloaded::<B>(&rig), 1, "C4: unloaded once");
    assert_eq!(other.read(&x).expect("a read"), [2; 4], "the kernel ran");
    drop((x, other));
    rig.close();
}

fn c4_code_waits_for_adopted_streams<B: Bench>(bench: &B) {
    bench.allow(&["R5"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    for lease_ends_first in [false, true] {
        let mut x = rig.four(&stream, 1);
        let (module, bump) = bump_of::<B>(&rig);
        stream.synchronize().expect("a wait");
        // SAFETY: S9. The foreign stream is never destroyed.
        let theirs = unsafe { rig.runtime.adopt(Foreign::new(bench, Priority::Normal).make()) }.expect("a stream");
        let before = unloaded::<B>(&rig);
        let brake = Brake::new(bench);
        brake.hold(&theirs);
        theirs.launch(&bump, LaunchConfig::linear(4), (&mut x, 1, 4)).expect("a launch");
        let theirs = (!lease_ends_first).then_some(theirs);
        drop((bump, module));
        for _ in 0..3 {
            rig.runtime.poll();
        }
        assert_eq!(unloaded::<B>(&rig), before, "C4: the kernel is held on the adopted stream");
        brake.release();
        assert_eq!(stream.read(&x).expect("a read"), [2; 4], "the kernel ran");
        drop((theirs, x));
        rig.drain();
        assert_eq!(unloaded::<B>(&rig), before + 1, "C4: unloaded once");
    }
    drop(stream);
    rig.close();
}

/// A graph of one launch of the kernel, made ready.
fn graph_of<B: Bench>(
    rig: &Rig<B::Driver>,
    bump: &Bump<B>,
    x: &mut tenure::Buffer<u32, Tapped<B>>,
) -> (Graph<Tapped<B>>, Executable<Tapped<B>>) {
    let launch = |capture: &tenure::Capture<'_, _>| capture.launch(bump, LaunchConfig::linear(4), (x, 1, 4));
    let graph = rig.runtime.capture(launch).expect("a graph");
    let executable = graph.instantiate().expect("an executable");
    (graph, executable)
}

/// The last launch of an executable, which is held while the executable goes.
fn last_launch<B: Bench>(
    bench: &B,
    rig: &Rig<B::Driver>,
    (stream, executable): (&Stream<Tapped<B>>, Executable<Tapped<B>>),
    loaded: usize,
) {
    let before = unloaded::<B>(rig);
    stream.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(stream);
    executable.launch(stream).expect("C4: its code is there");
    drop(executable);
    rig.runtime.poll();
    assert_eq!(unloaded::<B>(rig), before, "C4: a launch of the executable is held");
    brake.release();
    rig.drain();
    assert_eq!(unloaded::<B>(rig), before + loaded, "C4: unloaded once, after the last launch");
}

fn c4_a_graph_keeps_its_code<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let (module, bump) = bump_of::<B>(&rig);
    let (graph, executable) = graph_of::<B>(&rig, &bump, &mut x);
    stream.synchronize().expect("a wait");
    drop((bump, module));
    rig.drain();
    assert_eq!(unloaded::<B>(&rig), 0, "C4: the graph has it");
    drop(graph);
    rig.drain();
    assert_eq!(unloaded::<B>(&rig), 0, "C4: the executable has it");
    last_launch(bench, &rig, (&stream, executable), 1);
    assert_eq!(stream.read(&x).expect("a read"), [2; 4], "it ran");
    drop((x, stream));
    rig.close();
}

fn c4_an_updated_executable_keeps_both_codes<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let ((first, bump), (second, next)) = (bump_of::<B>(&rig), bump_of::<B>(&rig));
    let (graph, mut executable) = graph_of::<B>(&rig, &bump, &mut x);
    let (other, _) = graph_of::<B>(&rig, &next, &mut x);
    stream.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    executable.launch(&stream).expect("a launch");
    executable.update(&other).expect("an update");
    drop((graph, other, first, bump, second, next));
    rig.runtime.poll();
    assert_eq!(unloaded::<B>(&rig), 0, "C4: a launch of what was before is held");
    brake.release();
    rig.drain();
    assert_eq!(unloaded::<B>(&rig), 1, "C4: nothing runs what was before");
    last_launch(bench, &rig, (&stream, executable), 1);
    assert_eq!(stream.read(&x).expect("a read"), [3; 4], "both ran");
    drop((x, stream));
    rig.close();
}

fn c4_a_failed_capture_keeps_no_code<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let (module, bump) = bump_of::<B>(&rig);
    let failed = rig.runtime.capture(|capture| {
        capture.launch(&bump, LaunchConfig::linear(4), (&mut x, 1, 4))?;
        Err(Error::Closed)
    });
    assert_eq!(failed.map(drop), Err(Error::Closed), "the body's error");
    drop((bump, module));
    stream.synchronize().expect("a wait");
    rig.drain();
    assert_eq!(unloaded::<B>(&rig), 1, "C4: there is no graph to keep it");
    drop((x, stream));
    rig.close();
}

fn c4_a_kernel_of_another_runtime_is_refused<B: Bench>(bench: &B) {
    let (rig, other) = (Rig::new(bench), Rig::new(bench));
    let stream = rig.stream();
    let (mut x, mut nothing) = (rig.four(&stream, 1), stream.alloc::<u32>(0).expect("nothing"));
    let (module, bump) = bump_of::<B>(&other);
    let foreign = Err(Error::Misuse(Misuse::ForeignRuntime));
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let mark = rig.tap.log.mark();
    let config = LaunchConfig::linear(4);
    assert_eq!(stream.launch(&bump, config, (&mut x, 1, 4)), foreign, "with memory that the stream covers");
    assert_eq!(stream.launch(&bump, config, (&mut nothing, 1, 0)), foreign, "with no memory at all");
    assert_eq!(rig.tap.log.since(mark), [], "C4: before the driver sees it");
    let graph = rig.runtime.capture(|capture| {
        assert_eq!(capture.launch(&bump, config, (&mut x, 1, 4)), foreign, "in a capture");
        assert_eq!(capture.fork()?.launch(&bump, config, (&mut nothing, 1, 0)), foreign, "in a fork");
        rig.bump(capture, &mut x, 1)
    });
    graph.expect("C9: the capture goes on").instantiate().expect("an executable").launch(&stream).expect("a launch");
    drop((module, bump));
    other.drain();
    assert_eq!(unloaded::<B>(&other), 1, "C4: nobody runs it");
    assert_eq!(stream.read(&x).expect("a read"), [3; 4], "what was not refused ran");
    drop((x, nothing, stream));
    rig.drain();
    rig.close();
    other.close();
}
