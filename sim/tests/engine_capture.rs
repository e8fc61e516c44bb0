//! Captures and graphs of the engine, beyond the measured rows.

mod rig;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rig::{ME, Rig, YOU, blocked, done};
use tenure::driver::{CaptureMode, CaptureStatus, DeviceAddress, Progress};
use tenure_sim::code::Code;
use tenure_sim::engine::Settings;
use tenure_sim::event::{Event, ExecutableHandle, GraphHandle, StreamHandle};
use tenure_sim::profile::{Profile, Quirk};

fn begin(rig: &mut Rig, stream: StreamHandle) {
    rig.engine.capture_begin(ME, stream, CaptureMode::Relaxed).expect("it captures nothing");
}

fn end(rig: &mut Rig, stream: StreamHandle) -> GraphHandle {
    rig.engine.capture_end(ME, stream).expect("a graph")
}

fn instantiate(rig: &mut Rig, graph: GraphHandle) -> ExecutableHandle {
    rig.engine.graph_instantiate(ME, graph).expect("an executable")
}

fn launch(rig: &mut Rig, executable: ExecutableHandle, stream: StreamHandle) {
    done(rig.engine.graph_launch(ME, executable, stream)).expect("a launch");
}

fn status(rig: &mut Rig, stream: StreamHandle) -> CaptureStatus {
    rig.engine.capture_status(ME, stream).expect("an answer")
}

/// A graph: `first` fills with zeros; then, if `joined`, the fork adds 1 before the origin copies; else beside it.
fn forked(rig: &mut Rig, from: DeviceAddress, to: DeviceAddress, joined_before_use: bool) -> GraphHandle {
    let (origin, fork) = (rig.stream(), rig.stream());
    let (out, back) = (rig.event(), rig.event());
    begin(rig, origin);
    rig.fill(origin, from, 0, 4);
    rig.record(out, origin);
    rig.wait(fork, out);
    rig.add(fork, 1, from, 4);
    rig.record(back, fork);
    if joined_before_use {
        rig.wait(origin, back);
        rig.copy_kernel(origin, from, to, 4);
    } else {
        rig.copy_kernel(origin, from, to, 4);
        rig.wait(origin, back);
    }
    end(rig, origin)
}

/// All results that some order of the graph's nodes has.
fn outcomes(joined_before_use: bool) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for order in 0..8_usize {
        let mut rig = Rig::cuda();
        let (from, to) = (rig.malloc(4), rig.malloc(4));
        let graph = forked(&mut rig, from, to, joined_before_use);
        let executable = instantiate(&mut rig, graph);
        let stream = rig.stream();
        launch(&mut rig, executable, stream);
        let mut bits = order;
        loop {
            let ready = rig.ready();
            let Some(pick) = ready.get(bits % ready.len().max(1)) else { break };
            bits /= ready.len();
            let choice = pick.choice;
            rig.step(choice);
        }
        assert!(rig.is_idle(stream));
        found.insert(rig.words(to, 1)[0]);
    }
    found
}

#[test]
fn nodes_run_in_any_order_that_the_edges_allow() {
    assert_eq!(outcomes(true), BTreeSet::from([1]), "with an edge there is one order");
    assert_eq!(outcomes(false), BTreeSet::from([0, 1]), "without one both show");
}

#[test]
fn a_graph_is_described_without_the_nodes_that_only_order() {
    let mut rig = Rig::cuda();
    let (from, to) = (rig.malloc(4), rig.malloc(4));
    let graph = forked(&mut rig, from, to, true);
    let described = rig.engine.graph_describe(ME, graph).expect("a description");
    assert_eq!(described.nodes, ["fill", "kernel", "kernel"]);
    assert_eq!(described.edges, [(0, 1), (0, 2), (1, 2)]);
}

#[test]
fn nothing_runs_while_it_is_recorded() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(4);
    begin(&mut rig, stream);
    rig.fill(stream, memory, 1, 4);
    assert_eq!(rig.ready().len(), 0);
    assert_eq!(status(&mut rig, stream), CaptureStatus::Active);
    end(&mut rig, stream);
    assert_eq!(status(&mut rig, stream), CaptureStatus::None);
    assert!(rig.is_idle(stream));
}

#[test]
fn a_launch_inside_a_capture_copies_the_nodes() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let (from, to) = (rig.malloc(4), rig.malloc(4));
    let inner = forked(&mut rig, from, to, true);
    let inner = instantiate(&mut rig, inner);
    begin(&mut rig, stream);
    rig.fill(stream, to, 9, 4);
    launch(&mut rig, inner, stream);
    rig.add(stream, 5, to, 4);
    let outer = end(&mut rig, stream);
    let described = rig.engine.graph_describe(ME, outer).expect("a description");
    assert_eq!(described.nodes, ["fill", "fill", "kernel", "kernel", "kernel"]);
    assert_eq!(described.edges, [(0, 1), (1, 2), (1, 3), (2, 3), (3, 4)]);
    let outer = instantiate(&mut rig, outer);
    launch(&mut rig, outer, stream);
    rig.run();
    assert_eq!(rig.words(to, 1), [6]);
}

fn one_fill(rig: &mut Rig, memory: DeviceAddress, value: u8) -> GraphHandle {
    let stream = rig.stream();
    begin(rig, stream);
    rig.fill(stream, memory, value, 4);
    end(rig, stream)
}

#[test]
fn an_update_concerns_later_launches_and_a_refused_one_none() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(4);
    let (one, two) = (one_fill(&mut rig, memory, 1), one_fill(&mut rig, memory, 2));
    let other = rig.malloc(4);
    let misfit = forked(&mut rig, memory, other, true);
    let executable = instantiate(&mut rig, one);
    launch(&mut rig, executable, stream);
    assert_eq!(rig.engine.graph_update(ME, executable, misfit), Err(Code::GRAPH_UPDATE_REFUSED));
    assert_eq!(rig.engine.graph_update(ME, executable, two), Ok(()));
    rig.run();
    assert_eq!(rig.words(memory, 1), [0x0101_0101], "it was launched before the update");
    launch(&mut rig, executable, stream);
    rig.run();
    assert_eq!(rig.words(memory, 1), [0x0202_0202]);
}

#[test]
fn what_was_launched_survives_graph_and_executable() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(4);
    let graph = one_fill(&mut rig, memory, 1);
    let executable = instantiate(&mut rig, graph);
    launch(&mut rig, executable, stream);
    rig.engine.graph_destroy(ME, graph).expect("it lives");
    rig.engine.executable_destroy(ME, executable).expect("it lives");
    assert!(rig.drain().iter().any(|event| matches!(event, Event::ExecutableDestroyed { pending: true, .. })));
    rig.run();
    assert_eq!(rig.words(memory, 1), [0x0101_0101]);
    assert_eq!((rig.engine.live().graphs, rig.engine.live().executables), (0, 0));
}

#[test]
fn an_empty_graph_is_one_operation() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    begin(&mut rig, stream);
    let graph = end(&mut rig, stream);
    let executable = instantiate(&mut rig, graph);
    launch(&mut rig, executable, stream);
    assert!(!rig.is_idle(stream));
    rig.run();
    assert!(rig.is_idle(stream));
}

#[test]
fn memory_of_a_graph_is_freed_inside_or_outside_before_the_next_launch() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    begin(&mut rig, stream);
    let memory = done(rig.engine.malloc_async(ME, stream, 4)).expect("memory");
    rig.fill(stream, memory, 7, 4);
    let graph = end(&mut rig, stream);
    let executable = instantiate(&mut rig, graph);
    launch(&mut rig, executable, stream);
    rig.run();
    assert_eq!(rig.words(memory, 1), [0x0707_0707], "it lives after the launch");
    assert_eq!(done(rig.engine.graph_launch(ME, executable, stream)), Err(Code::INVALID_VALUE));
    done(rig.engine.free_async(ME, stream, memory)).expect("a free outside of the graph");
    launch(&mut rig, executable, stream);
    rig.run();
    done(rig.engine.free_async(ME, stream, memory)).expect("a free outside of the graph");
    rig.run();
    rig.engine.graph_destroy(ME, graph).expect("it lives");
    rig.engine.executable_destroy(ME, executable).expect("it lives");
    assert_eq!(rig.engine.live().allocations, 0);
    assert_eq!(rig.malloc(4), memory, "the graph is gone, and its memory is everybody's");
}

#[test]
fn memory_freed_by_its_graph_allows_any_number_of_launches() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    begin(&mut rig, stream);
    let memory = done(rig.engine.malloc_async(ME, stream, 4)).expect("memory");
    rig.fill(stream, memory, 7, 4);
    done(rig.engine.free_async(ME, stream, memory)).expect("it belongs to the capture");
    let graph = end(&mut rig, stream);
    let executable = instantiate(&mut rig, graph);
    for _ in 0..3 {
        launch(&mut rig, executable, stream);
    }
    rig.run();
    assert_eq!(rig.engine.lost(), None);
    assert_eq!(rig.engine.live().allocations, 0);
}

#[test]
fn host_nodes_run_at_every_launch_and_hold_up_what_follows() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(4);
    let count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&count);
    begin(&mut rig, stream);
    let function = Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    done(rig.engine.launch_host_function(ME, stream, function)).expect("a node");
    rig.fill(stream, memory, 1, 4);
    let graph = end(&mut rig, stream);
    let executable = instantiate(&mut rig, graph);
    for _ in 0..3 {
        launch(&mut rig, executable, stream);
    }
    rig.run();
    assert_eq!(count.load(Ordering::Relaxed), 3);
    assert_eq!(rig.engine.function_running(), None);
}

#[test]
fn a_broken_stream_is_repaired_by_another_begin_and_end() {
    let mut rig = Rig::new(Profile::hip_7_2());
    let stream = rig.stream();
    begin(&mut rig, stream);
    assert_eq!(rig.engine.stream_query(ME, stream), Err(Code::CAPTURE_UNSUPPORTED));
    assert_eq!(rig.engine.capture_end(ME, stream), Err(Code::CAPTURE_INVALIDATED));
    assert_eq!(status(&mut rig, stream), CaptureStatus::Invalidated, "it stays broken after the end");
    let memory = rig.malloc(4);
    assert_eq!(rig.try_add(stream, 1, memory, 4), Err(Code::CAPTURE_INVALIDATED));
    begin(&mut rig, stream);
    end(&mut rig, stream);
    assert_eq!(status(&mut rig, stream), CaptureStatus::None);
    assert!(rig.is_idle(stream));
}

#[test]
fn a_broken_capture_forbids_until_it_is_ended_where_a_driver_has_it_so() {
    for (profile, forbids) in [(Profile::cuda_13(), false), (Profile::hip_6_4(), true)] {
        let mut rig = Rig::new(profile);
        let stream = rig.stream();
        rig.engine.capture_begin(ME, stream, CaptureMode::Global).expect("it captures nothing");
        assert_eq!(rig.engine.malloc(YOU, 4), Err(Code::CAPTURE_UNSUPPORTED));
        assert_eq!(rig.engine.malloc(YOU, 4).is_err(), forbids);
        assert_eq!(rig.engine.capture_end(ME, stream), Err(Code::CAPTURE_INVALIDATED));
        assert!(rig.engine.malloc(YOU, 4).is_ok());
    }
}

#[test]
fn an_unjoined_capture_may_stay_until_its_streams_are_destroyed() {
    let mut rig = Rig::new(Profile::hip_7_2());
    let (origin, fork) = (rig.stream(), rig.stream());
    let event = rig.event();
    let memory = rig.malloc(4);
    rig.engine.capture_begin(ME, origin, CaptureMode::Global).expect("it captures nothing");
    rig.record(event, origin);
    rig.wait(fork, event);
    rig.add(fork, 1, memory, 4);
    assert_eq!(rig.engine.capture_end(ME, origin), Err(Code::CAPTURE_UNJOINED));
    assert_eq!(rig.engine.capture_end(ME, origin), Err(Code::CAPTURE_WRONG_THREAD), "its thread has forgotten it");
    assert_eq!(status(&mut rig, origin), CaptureStatus::Active);
    assert!(rig.engine.malloc(ME, 4).is_ok(), "it forbids nothing any more");
    done(rig.engine.stream_destroy(ME, origin)).expect("it holds nothing");
    assert_eq!(status(&mut rig, fork), CaptureStatus::None);
    assert_eq!(rig.engine.live().captures, 0);
}

#[test]
fn a_destroyed_fork_breaks_its_capture() {
    let mut rig = Rig::cuda();
    let (origin, fork) = (rig.stream(), rig.stream());
    let event = rig.event();
    begin(&mut rig, origin);
    rig.record(event, origin);
    rig.wait(fork, event);
    done(rig.engine.stream_destroy(ME, fork)).expect("it holds nothing");
    assert_eq!(rig.engine.capture_end(ME, origin), Err(Code::CAPTURE_INVALIDATED));
}

#[test]
fn an_event_follows_its_stream_on_older_hip() {
    let mut rig = Rig::new(Profile::hip_6_4());
    let stream = rig.stream();
    let event = rig.event();
    rig.record(event, stream);
    rig.run();
    assert_eq!(rig.engine.event_query(ME, event), Ok(Progress::Complete));
    begin(&mut rig, stream);
    assert_eq!(rig.engine.event_query(ME, event), Err(Code::CAPTURED_EVENT));
    assert_eq!(status(&mut rig, stream), CaptureStatus::Invalidated);
}

#[test]
fn a_thread_local_query_minds_the_global_captures_of_others_on_older_hip() {
    for (profile, minds) in [(Profile::cuda_13(), false), (Profile::hip_6_4(), true), (Profile::hip_7_2(), false)] {
        let mut rig = Rig::new(profile);
        let (captured, other) = (rig.stream(), rig.stream());
        rig.engine.capture_begin(ME, captured, CaptureMode::Global).expect("it captures nothing");
        rig.engine.exchange_capture_mode(YOU, CaptureMode::ThreadLocal).expect("the mode before");
        assert_eq!(rig.engine.stream_query(YOU, other).is_err(), minds);
    }
}

#[test]
fn a_callback_is_refused_ignored_or_run_by_profile() {
    let captured_callback = |profile| {
        let mut rig = Rig::new(profile);
        let stream = rig.stream();
        begin(&mut rig, stream);
        let answer = done(rig.engine.add_callback(ME, stream, Arc::new(|| {})));
        (answer, status(&mut rig, stream), rig.ready().len())
    };
    let refused = (Err(Code::CAPTURE_UNSUPPORTED), CaptureStatus::Invalidated, 0);
    assert_eq!(captured_callback(Profile::cuda_13()), refused);
    assert_eq!(captured_callback(Profile::hip_7_2()), refused);
    assert_eq!(captured_callback(Profile::hip_6_4()), (Ok(()), CaptureStatus::Active, 1), "it runs beside the capture");
}

#[test]
fn a_lenient_driver_refuses_and_breaks_nothing() {
    let mut rig = Rig::new(Profile::lenient());
    let (captured, other) = (rig.stream(), rig.stream());
    let (outside, inside) = (rig.event(), rig.event());
    rig.record(outside, other);
    rig.run();
    rig.engine.capture_begin(ME, captured, CaptureMode::Global).expect("it captures nothing");
    rig.record(inside, captured);
    assert_eq!(rig.engine.stream_query(ME, captured), Ok(Progress::Complete));
    assert_eq!(rig.engine.event_query(ME, inside), Ok(Progress::Complete));
    assert_eq!(done(rig.engine.stream_wait_event(ME, captured, outside)), Ok(()));
    assert_eq!(done(rig.engine.device_synchronize(ME)), Ok(()));
    assert!(rig.engine.malloc(ME, 4).is_ok());
    assert_eq!(status(&mut rig, captured), CaptureStatus::Active);
    assert!(rig.engine.capture_end(ME, captured).is_ok());
    assert!(rig.violations().is_empty());
}

#[test]
fn launches_of_one_executable_wait_for_each_other_and_say_so() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings::default());
    let (a, b) = (rig.stream(), rig.stream());
    let memory = rig.malloc(4);
    let graph = one_fill(&mut rig, memory, 1);
    let executable = instantiate(&mut rig, graph);
    launch(&mut rig, executable, a);
    launch(&mut rig, executable, b);
    assert_eq!(rig.ready().len(), 1, "the second launch is kept by the first");
    let told = rig.drain().iter().filter(|event| matches!(event, Event::Ordered { .. })).count();
    assert_eq!(told, 1);
    let wait = blocked(rig.engine.stream_synchronize(ME, b));
    rig.run();
    assert!(rig.engine.is_over(&wait));
}

#[test]
fn a_release_that_refuses_host_functions_in_captures_breaks_them() {
    let mut rig = Rig::new(Profile::hip_7_0().with(Quirk::HostFunctionRefusedInCapture));
    let stream = rig.stream();
    begin(&mut rig, stream);
    assert_eq!(done(rig.engine.launch_host_function(ME, stream, Arc::new(|| {}))), Err(Code::CAPTURE_UNSUPPORTED));
    assert_eq!(status(&mut rig, stream), CaptureStatus::Invalidated);
}
