//! Captures and graphs: what drivers do about them, and C1 to C10.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use tenure::driver::{Call, CaptureMode, CaptureStatus, Driver, ErrorKind, HostFunction, Image, Priority, Timing};
use tenure::{Error, Freed, Misuse, Queue, Result};

use super::{list_cases, word};
use crate::bench::{Bench, SOURCE};
use crate::faulty::{INJECTED, OnPurpose};
use crate::rig::{Brake, Lent, Rig, Tapped};

list_cases!("capture": raw [
    asking_the_captured_stream_breaks_the_capture,
    asking_a_captured_event_breaks_the_capture,
    allocating_is_refused_unless_relaxed,
    asking_another_stream_on_the_same_thread,
    asking_another_stream_on_another_thread,
    a_relaxed_thread_breaks_no_capture,
    a_relaxed_thread_asks_events,
    registering_is_refused_unless_relaxed,
    beginning_twice_is_refused,
    beginning_on_a_forked_stream_is_refused,
    a_fork_left_open_is_refused,
    work_after_the_join_is_refused,
    forks_nest_and_join,
    a_stream_captures_again_and_again,
    ending_on_a_fork_is_refused,
    ending_on_another_thread,
    a_broken_capture_leaves_the_stream_usable,
    each_thread_has_its_own_mode,
    a_host_function_is_recorded,
    an_outside_event_is_refused,
    two_captures_do_not_merge,
    an_update_of_another_shape_is_refused,
    captures_on_many_threads,
] contract [
    c1_a_capture_survives_everything_beside_it,
    c1_a_foreign_capture_survives_everything_beside_it,
    c1_the_guard_puts_off_and_then_lets_go,
    c1_an_event_is_not_asked_where_that_would_break,
    c2_a_drop_in_the_body_is_not_recorded,
    c3_what_a_capture_deferred_is_released_once,
    c4_a_graph_keeps_what_it_uses,
    c4_dropped_in_any_order,
    c4_an_update_keeps_both_until_done,
    c5_a_launch_takes_all_like_one_kernel,
    c5_replays_of_one_executable_are_ordered,
    c5_replays_on_two_streams,
    c5_a_graph_that_reads_and_writes_is_a_writer,
    c7_a_body_error_gives_no_graph,
    c7_a_panic_gives_no_graph,
    c7_a_failure_at_every_call,
    c7_a_failed_end_gives_the_streams_up,
    c7_a_failed_capture_leaves_the_runtime_usable,
    c8_who_takes_outside_does_not_wait_for_the_recorded,
    c9_what_cannot_be_held_is_refused,
    c10_host_data_is_snapshotted,
    forks_are_ordered_where_they_conflict,
    forks_are_joined_at_the_end,
    a_join_orders_all_that_comes_later,
    two_captures_at_once,
    an_update_of_another_shape_leaves_the_old,
    a_graph_tells_its_nodes,
    p7_an_explicit_free_inside_says_deferred,
]);

const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

/// Two streams, an event that is complete, and a driver.
struct Raw<B: Bench> {
    driver: Arc<B::Driver>,
    captured: <B::Driver as Driver>::Stream,
    other: <B::Driver as Driver>::Stream,
    done: <B::Driver as Driver>::Event,
    event: <B::Driver as Driver>::Event,
}

impl<B: Bench> Raw<B> {
    fn new(bench: &B) -> Self {
        let driver = bench.driver();
        let stream = || driver.stream_create(Priority::Normal).expect("a stream");
        let event = || driver.event_create(Timing::Disabled).expect("an event");
        let raw = Self { captured: stream(), other: stream(), done: event(), event: event(), driver };
        raw.driver.event_record(&raw.done, &raw.other).expect("a record");
        raw.driver.stream_synchronize(&raw.other).expect("a wait");
        raw
    }

    fn begin(bench: &B, mode: CaptureMode) -> Self {
        let raw = Self::new(bench);
        raw.driver.capture_begin(&raw.captured, mode).expect("a capture begins");
        raw.work(&raw.captured);
        raw
    }

    fn work(&self, stream: &<B::Driver as Driver>::Stream) {
        self.driver.launch_host_function(stream, Arc::new(|| {})).expect("a host function");
    }

    fn fork(&self) {
        self.driver.event_record(&self.event, &self.captured).expect("a record");
        self.driver.stream_wait_event(&self.other, &self.event).expect("a wait");
    }

    fn join(&self) {
        self.driver.event_record(&self.event, &self.other).expect("a record");
        self.driver.stream_wait_event(&self.captured, &self.event).expect("a wait");
    }

    fn end(&self) -> Option<ErrorKind> {
        word(self.driver.capture_end(&self.captured))
    }

    /// The operation gives `expected`, and the capture then ends well, or as a broken one.
    fn gives(self, what: &str, answer: Option<ErrorKind>, expected: Option<ErrorKind>) {
        assert_eq!(answer, expected, "{what}");
        let end = expected.map(|_| ErrorKind::CaptureInvalidated);
        assert_eq!(self.end(), end, "the end of the capture after: {what}");
    }

    /// Runs `body` with the thread relaxed.
    fn relaxed<R>(&self, body: impl FnOnce() -> R) -> R {
        let before = self.driver.exchange_capture_mode(CaptureMode::Relaxed).expect("an exchange");
        let value = body();
        self.driver.exchange_capture_mode(before).expect("an exchange back");
        value
    }
}

const REFUSED: Option<ErrorKind> = Some(ErrorKind::CaptureUnsupported);

fn asking_the_captured_stream_breaks_the_capture<B: Bench>(bench: &B) {
    for mode in MODES {
        let raw = Raw::begin(bench, mode);
        let answer = word(raw.driver.stream_query(&raw.captured));
        raw.gives(&format!("a query in a {mode:?} capture"), answer, REFUSED);
        let raw = Raw::begin(bench, mode);
        let answer = word(raw.driver.stream_synchronize(&raw.captured));
        raw.gives(&format!("a wait in a {mode:?} capture"), answer, REFUSED);
    }
}

fn asking_a_captured_event_breaks_the_capture<B: Bench>(bench: &B) {
    for mode in MODES {
        for waits in [false, true] {
            let raw = Raw::begin(bench, mode);
            raw.driver.event_record(&raw.event, &raw.captured).expect("a record");
            let answer = match waits {
                true => word(raw.driver.event_synchronize(&raw.event)),
                false => word(raw.driver.event_query(&raw.event)),
            };
            raw.gives(&format!("of a captured event, {mode:?}"), answer, Some(ErrorKind::CapturedEvent));
        }
    }
}

fn allocating_is_refused_unless_relaxed<B: Bench>(bench: &B) {
    for mode in MODES {
        let expected = if mode == CaptureMode::Relaxed { None } else { REFUSED };
        let raw = Raw::begin(bench, mode);
        let answer = word(raw.driver.malloc(64));
        raw.gives(&format!("an allocation in a {mode:?} capture"), answer, expected);
    }
}

fn asking_another_stream_on_the_same_thread<B: Bench>(bench: &B) {
    for mode in MODES {
        let expected = if mode == CaptureMode::Relaxed { None } else { REFUSED };
        let raw = Raw::begin(bench, mode);
        let answer = word(raw.driver.stream_query(&raw.other));
        raw.gives(&format!("a query of another stream, {mode:?}"), answer, expected);
        let raw = Raw::begin(bench, mode);
        let answer = word(raw.driver.stream_synchronize(&raw.other));
        raw.gives(&format!("a wait for another stream, {mode:?}"), answer, expected);
    }
}

fn asking_another_stream_on_another_thread<B: Bench>(bench: &B) {
    for mode in MODES {
        let expected = if mode == CaptureMode::Global { REFUSED } else { None };
        let raw = Raw::begin(bench, mode);
        let answer = thread::scope(|scope| {
            let asking = scope.spawn(|| word(raw.driver.stream_synchronize(&raw.other)));
            asking.join().expect("the asking thread ends")
        });
        raw.gives(&format!("a wait of another thread, {mode:?}"), answer, expected);
    }
}

fn a_relaxed_thread_breaks_no_capture<B: Bench>(bench: &B) {
    for mode in MODES {
        for elsewhere in [false, true] {
            let raw = Raw::begin(bench, mode);
            let driver = &*raw.driver;
            let calls = || {
                raw.relaxed(|| {
                    assert_eq!(word(driver.stream_query(&raw.other)), None, "a query");
                    assert_eq!(word(driver.stream_synchronize(&raw.other)), None, "a wait");
                    let memory = driver.malloc(64).expect("an allocation");
                    // SAFETY: O6. Allocated above, used by nothing, freed once.
                    assert_eq!(word(unsafe { driver.free(memory) }), None, "a free");
                    if driver.capabilities().stream_ordered_memory {
                        let memory = driver.malloc_async(&raw.other, 64).expect("an allocation");
                        // SAFETY: O6. As above.
                        assert_eq!(word(unsafe { driver.free_async(&raw.other, memory) }), None, "a free");
                    }
                    let mut host = Lent::from(vec![0_u8; 4096]);
                    let base = host.start();
                    // SAFETY: P4. The vector lives to the end of the block.
                    let registered = unsafe { driver.host_register(base, 4096, tenure::driver::HostAccess::ReadWrite) };
                    assert_eq!(word(registered), None, "a registration");
                    // SAFETY: P3. Registered above, used by nothing.
                    assert_eq!(word(unsafe { driver.host_unregister(base) }), None, "its end");
                });
            };
            match elsewhere {
                true => thread::scope(|scope| scope.spawn(calls).join().expect("the other thread ends")),
                false => calls(),
            }
            assert_eq!(raw.end(), None, "a {mode:?} capture, calls of another thread: {elsewhere}");
        }
    }
}

fn a_relaxed_thread_asks_events<B: Bench>(bench: &B) {
    for mode in MODES {
        let raw = Raw::begin(bench, mode);
        let answer = raw.relaxed(|| word(raw.driver.event_query(&raw.done)));
        raw.gives(&format!("a query of an outside event, {mode:?}"), answer, None);
        let raw = Raw::begin(bench, mode);
        let answer = raw.relaxed(|| word(raw.driver.event_synchronize(&raw.done)));
        raw.gives(&format!("a wait for an outside event, {mode:?}"), answer, None);
    }
}

fn registering_is_refused_unless_relaxed<B: Bench>(bench: &B) {
    let mut host = Lent::from(vec![0_u8; 4096]);
    let base = host.start();
    for mode in MODES {
        let expected = if mode == CaptureMode::Relaxed { None } else { REFUSED };
        let raw = Raw::begin(bench, mode);
        // SAFETY: P4. The vector lives to the end of the case.
        let answer = word(unsafe { raw.driver.host_register(base, 4096, tenure::driver::HostAccess::ReadWrite) });
        if answer.is_none() {
            // SAFETY: P3. Registered above, used by nothing.
            assert_eq!(word(unsafe { raw.driver.host_unregister(base) }), None, "a registration ends");
        }
        raw.gives(&format!("a registration in a {mode:?} capture"), answer, expected);
    }
}

fn beginning_twice_is_refused<B: Bench>(bench: &B) {
    for mode in MODES {
        let raw = Raw::begin(bench, mode);
        let answer = word(raw.driver.capture_begin(&raw.captured, mode));
        assert_eq!(answer, Some(ErrorKind::IllegalState), "a second begin, {mode:?}");
        assert_eq!(raw.end(), None, "and the first goes on");
    }
}

fn beginning_on_a_forked_stream_is_refused<B: Bench>(bench: &B) {
    let raw = Raw::begin(bench, CaptureMode::Relaxed);
    raw.fork();
    let answer = word(raw.driver.capture_begin(&raw.other, CaptureMode::Relaxed));
    assert_eq!(answer, Some(ErrorKind::IllegalState), "it captures already");
    raw.join();
    assert_eq!(raw.end(), None, "and the capture goes on");
}

fn a_fork_left_open_is_refused<B: Bench>(bench: &B) {
    let raw = Raw::begin(bench, CaptureMode::Relaxed);
    raw.fork();
    raw.work(&raw.other);
    assert_eq!(raw.end(), Some(ErrorKind::CaptureUnjoined), "the fork was not joined");
}

fn work_after_the_join_is_refused<B: Bench>(bench: &B) {
    let raw = Raw::begin(bench, CaptureMode::Relaxed);
    raw.fork();
    raw.work(&raw.other);
    raw.join();
    raw.work(&raw.other);
    assert_eq!(raw.end(), Some(ErrorKind::CaptureUnjoined), "the fork has work that was not joined");
}

fn forks_nest_and_join<B: Bench>(bench: &B) {
    let raw = Raw::begin(bench, CaptureMode::Relaxed);
    raw.fork();
    let status = raw.driver.capture_status(&raw.other).expect("a status");
    assert_eq!(status, CaptureStatus::Active, "a fork captures");
    raw.work(&raw.other);
    raw.work(&raw.captured);
    raw.join();
    assert_eq!(raw.end(), None, "joined, it ends");
    let status = raw.driver.capture_status(&raw.other).expect("a status");
    assert_eq!(status, CaptureStatus::None, "and the fork is let go");
    raw.work(&raw.other);
    raw.driver.stream_synchronize(&raw.other).expect("it executes again");
}

fn a_stream_captures_again_and_again<B: Bench>(bench: &B) {
    let raw = Raw::new(bench);
    for round in 0..4 {
        for mode in MODES {
            raw.driver.capture_begin(&raw.captured, mode).expect("a capture begins");
            (0..round).for_each(|_| raw.work(&raw.captured));
            let graph = raw.driver.capture_end(&raw.captured).expect("a capture ends");
            let nodes = raw.driver.graph_describe(&graph).expect("a description").nodes.len();
            assert_eq!(nodes, round, "a graph has its own work and no other's");
            raw.driver.graph_destroy(graph).expect("a graph goes");
        }
    }
    raw.driver.stream_synchronize(&raw.captured).expect("it executes again");
}

fn ending_on_a_fork_is_refused<B: Bench>(bench: &B) {
    let raw = Raw::begin(bench, CaptureMode::Relaxed);
    raw.fork();
    let answer = word(raw.driver.capture_end(&raw.other));
    assert_eq!(answer, Some(ErrorKind::CaptureUnmatched), "it did not begin the capture");
}

fn ending_on_another_thread<B: Bench>(bench: &B) {
    for mode in MODES {
        let raw = Raw::begin(bench, mode);
        let answer = thread::scope(|scope| scope.spawn(|| raw.end()).join().expect("the other thread ends"));
        let expected = if mode == CaptureMode::Relaxed { None } else { Some(ErrorKind::CaptureWrongThread) };
        assert_eq!(answer, expected, "the end of a {mode:?} capture on another thread");
        if answer.is_some() {
            let _ = raw.end();
        }
    }
}

fn a_broken_capture_leaves_the_stream_usable<B: Bench>(bench: &B) {
    let raw = Raw::begin(bench, CaptureMode::Relaxed);
    assert_eq!(word(raw.driver.stream_query(&raw.captured)), REFUSED, "the query breaks it");
    let status = raw.driver.capture_status(&raw.captured).expect("a status");
    assert_eq!(status, CaptureStatus::Invalidated, "the stream says so");
    assert_eq!(raw.end(), Some(ErrorKind::CaptureInvalidated), "and its end does, once");
    let status = raw.driver.capture_status(&raw.captured).expect("a status");
    assert_eq!(status, CaptureStatus::None, "then the stream is as before");
    raw.work(&raw.captured);
    raw.driver.stream_synchronize(&raw.captured).expect("and executes");
}

fn each_thread_has_its_own_mode<B: Bench>(bench: &B) {
    let driver = bench.driver();
    for (first, second) in MODES.iter().flat_map(|first| MODES.iter().map(move |second| (*first, *second))) {
        let before = driver.exchange_capture_mode(first).expect("an exchange");
        let elsewhere = thread::scope(|scope| {
            let asking = scope.spawn(|| driver.exchange_capture_mode(second).expect("an exchange"));
            asking.join().expect("the other thread ends")
        });
        assert_eq!(elsewhere, CaptureMode::Global, "a new thread is global");
        assert_eq!(driver.exchange_capture_mode(before).expect("an exchange"), first, "this one is as it was set");
    }
}

fn a_host_function_is_recorded<B: Bench>(bench: &B) {
    let raw = Raw::new(bench);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    // Relaxed: the stream's order and the wait for it make it visible.
    let function: HostFunction = Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    raw.driver.capture_begin(&raw.captured, CaptureMode::Relaxed).expect("a capture begins");
    raw.driver.launch_host_function(&raw.captured, function).expect("a host function");
    let graph = raw.driver.capture_end(&raw.captured).expect("a capture ends");
    assert_eq!(count.load(Ordering::Relaxed), 0, "recorded, not run");
    let executable = raw.driver.graph_instantiate(&graph).expect("an executable");
    for launches in 1..=3 {
        // SAFETY: C4. The graph names no memory.
        unsafe { raw.driver.graph_launch(&executable, &raw.other) }.expect("a launch");
        raw.driver.stream_synchronize(&raw.other).expect("a wait");
        assert_eq!(count.load(Ordering::Relaxed), launches, "each launch runs it once");
    }
}

fn an_outside_event_is_refused<B: Bench>(bench: &B) {
    let raw = Raw::begin(bench, CaptureMode::Relaxed);
    let answer = word(raw.driver.stream_wait_event(&raw.captured, &raw.done));
    raw.gives("a wait for an event of the outside", answer, Some(ErrorKind::CaptureIsolation));
}

fn two_captures_do_not_merge<B: Bench>(bench: &B) {
    let raw = Raw::begin(bench, CaptureMode::Relaxed);
    raw.driver.capture_begin(&raw.other, CaptureMode::Relaxed).expect("a second capture begins");
    raw.driver.event_record(&raw.event, &raw.other).expect("a record");
    let answer = word(raw.driver.stream_wait_event(&raw.captured, &raw.event));
    assert_eq!(answer, Some(ErrorKind::CaptureMerge), "an event of another capture");
}

fn an_update_of_another_shape_is_refused<B: Bench>(bench: &B) {
    let raw = Raw::new(bench);
    let record = |count: usize| {
        raw.driver.capture_begin(&raw.captured, CaptureMode::Relaxed).expect("a capture begins");
        (0..count).for_each(|_| raw.work(&raw.captured));
        raw.driver.capture_end(&raw.captured).expect("a capture ends")
    };
    let executable = raw.driver.graph_instantiate(&record(2)).expect("an executable");
    assert_eq!(word(raw.driver.graph_update(&executable, &record(2))), None, "the same shape");
    let answer = word(raw.driver.graph_update(&executable, &record(3)));
    assert_eq!(answer, Some(ErrorKind::GraphUpdateRefused), "another shape");
    // SAFETY: C4. The graph names no memory.
    unsafe { raw.driver.graph_launch(&executable, &raw.other) }.expect("the old one still launches");
    raw.driver.stream_synchronize(&raw.other).expect("and runs");
}

fn captures_on_many_threads<B: Bench>(bench: &B) {
    thread::scope(|scope| {
        let raws = MODES.map(|mode| (mode, Raw::new(bench)));
        for (mode, raw) in raws {
            scope.spawn(move || {
                for _ in 0..5 {
                    raw.driver.capture_begin(&raw.captured, mode).expect("a capture begins");
                    raw.work(&raw.captured);
                    assert_eq!(raw.end(), None, "a {mode:?} capture ends");
                }
            });
        }
    });
}

type Graph<B> = tenure::Graph<Tapped<B>>;

/// What is let go during a capture: an executable that has run, and a module.
type Spent<B> = (tenure::Executable<Tapped<B>>, tenure::Module<Tapped<B>>);

fn spent<B: Bench>(rig: &Rig<B::Driver>) -> Spent<B> {
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
    let executable = graph.instantiate().expect("an executable");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    (executable, rig.runtime.module(Image::Source(SOURCE)).expect("the kernels load"))
}

/// Everything that could break a capture: drops, polls, questions, allocations, wraps, claims, reads.
fn busy_work<B: Bench>(rig: &Rig<B::Driver>, spent: Spent<B>) {
    drop(spent);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let mut y = rig.four(&stream, 0);
    rig.sum(&stream, &pinned, &mut y).expect("a launch");
    drop((pinned, y));
    rig.runtime.poll();
    let _ = stream.is_idle().expect("a question");
    let event = stream.record().expect("a record");
    let _ = event.is_complete().expect("a question");
    drop(rig.runtime.stream().expect("a claim"));
    drop((x, event, stream));
    rig.runtime.poll();
    rig.runtime.trim();
}

fn c1_a_capture_survives_everything_beside_it<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let recorded = rig.runtime.capture(|capture| {
        rig.bump(capture, &mut x, 1)?;
        thread::scope(|scope| {
            let (tell, hear) = mpsc::channel();
            let rig = &rig;
            scope.spawn(move || {
                // Work that is released, and asked for, but nowhere waited for: that may have to wait for the capture.
                let stream = rig.stream();
                let _told = tell.send(stream);
            });
            let stream = hear.recv().expect("the other thread has a stream");
            drop(stream);
        });
        let _ = rig.runtime.poll();
        let _ = rig.runtime.trim();
        rig.bump(capture, &mut x, 1)
    });
    let graph: Graph<B> = recorded.expect("C1: the capture was not broken");
    graph.instantiate().expect("an executable").launch(&stream).expect("a launch");
    assert_eq!(stream.read(&x).expect("a read"), [3; 4], "C1: and has both launches");
    drop((graph, x, stream));
    rig.close();
}

fn c1_a_foreign_capture_survives_everything_beside_it<B: Bench>(bench: &B) {
    for mode in MODES {
        let rig = Rig::new(bench);
        let driver = bench.driver();
        let (mine, others) = (spent::<B>(&rig), spent::<B>(&rig));
        let theirs = driver.stream_create(Priority::Normal).expect("a stream");
        let guard = rig.runtime.capture_guard();
        driver.capture_begin(&theirs, mode).expect("a capture begins");
        driver.launch_host_function(&theirs, Arc::new(|| {})).expect("a host function");
        if rig.tap.capabilities().relaxed_protects && rig.tap.capabilities().relaxed_protects_events {
            busy_work::<B>(&rig, mine);
            thread::scope(|scope| scope.spawn(|| busy_work::<B>(&rig, others)).join().expect("the other thread ends"));
        } else {
            // Here calls that would break it wait for its end: only those are made that must not.
            drop((mine, others));
            let _ = rig.runtime.poll();
            let _ = rig.runtime.trim();
            thread::scope(|scope| scope.spawn(|| rig.runtime.poll()).join().expect("the other thread ends"));
        }
        let ended = driver.capture_end(&theirs);
        drop(guard);
        let graph = ended.unwrap_or_else(|error| panic!("C1: a foreign {mode:?} capture was broken: {error}"));
        driver.graph_destroy(graph).expect("a graph goes");
        // SAFETY: S6. A stream of the case's own.
        unsafe { driver.stream_destroy(&theirs) }.expect("a stream goes");
        rig.drain();
        rig.close();
    }
}

fn c1_the_guard_puts_off_and_then_lets_go<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    let stream = rig.stream();
    let x = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    let guard = rig.runtime.capture_guard();
    assert_eq!(rig.runtime.stats().captures, 1, "C6: it counts as a capture");
    drop(x);
    drop(guard);
    assert_eq!(rig.runtime.stats().captures, 0, "C6: until it is dropped");
    super::eventually("C3: what it put off is released", || {
        rig.tap.log.returned(Call::FreeAsync) + rig.tap.log.returned(Call::Free) == 1
    });
    drop(stream);
    rig.close();
}

fn c1_an_event_is_not_asked_where_that_would_break<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let event = stream.record().expect("an event");
    let driver = bench.driver();
    let theirs = driver.stream_create(Priority::Normal).expect("a stream");
    let guard = rig.runtime.capture_guard();
    driver.capture_begin(&theirs, CaptureMode::Global).expect("a capture begins");
    assert_eq!(event.is_complete(), Ok(false), "C1: held, or not to be asked now");
    let ended = word(driver.capture_end(&theirs));
    drop(guard);
    assert_eq!(ended, None, "C1: the question broke no capture");
    brake.release();
    event.synchronize().expect("a wait");
    // SAFETY: S6. Made above, known to nobody else.
    unsafe { driver.stream_destroy(&theirs) }.expect("a stream goes");
    drop((event, stream));
    bench.allow(&["R5"]);
    rig.close();
}

fn c2_a_drop_in_the_body_is_not_recorded<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut x, mut gone) = (rig.four(&stream, 1), rig.four(&stream, 2));
    let graph = rig.runtime.capture(|capture| {
        rig.sum(capture, &gone, &mut x)?;
        drop(std::mem::replace(&mut gone, capture.alloc(0)?));
        let _ = rig.runtime.poll();
        Ok(())
    });
    let graph = graph.expect("a graph");
    let nodes = graph.describe().expect("a description").nodes;
    assert_eq!(nodes, ["kernel"], "C2: the launch and nothing else");
    let mut executable = graph.instantiate().expect("an executable");
    executable.launch(&stream).expect("a launch");
    executable.launch(&stream).expect("a launch");
    assert_eq!(stream.read(&x).expect("a read"), [5; 4], "C4: what was dropped in the body is still there");
    executable.update(&graph).expect("the same graph fits");
    drop((graph, executable, stream, x, gone));
    rig.close();
}

fn c3_what_a_capture_deferred_is_released_once<B: Bench>(bench: &B) {
    for ending in 0..3 {
        let rig = Rig::new(bench);
        let stream = rig.stream();
        let buffers: Vec<_> = (0..3).map(|value| rig.four(&stream, value)).collect();
        let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
        stream.synchronize().expect("a wait");
        rig.drain();
        let mut x = rig.four(&stream, 1);
        let body = |capture: &tenure::Capture<'_, Tapped<B>>| -> Result<()> {
            rig.bump(capture, &mut x, 1)?;
            drop((buffers, pinned));
            rig.runtime.poll();
            match ending {
                0 => Ok(()),
                1 => Err(Error::Closed),
                _ => std::panic::panic_any(OnPurpose),
            }
        };
        let ended = catch_unwind(AssertUnwindSafe(|| rig.runtime.capture(body)));
        assert_eq!(matches!(&ended, Ok(Ok(_))), ending == 0, "it ended as it was to end");
        drop(ended);
        rig.drain();
        let frees = rig.tap.log.count(Call::FreeAsync) + rig.tap.log.count(Call::Free);
        let unregistered = rig.tap.log.count(Call::HostUnregister);
        assert_eq!((frees, unregistered), (3, 1), "C3: each exactly once, after ending {ending}");
        drop((stream, x));
        rig.close();
    }
}

fn c4_a_graph_keeps_what_it_uses<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut x, mut y) = (rig.four(&stream, 3), rig.four(&stream, 0));
    let pinned = rig.runtime.wrap(vec![100_u32; 4]).expect("a wrap");
    let graph = rig.runtime.capture(|capture| {
        rig.bump(capture, &mut x, 1)?;
        rig.sum(capture, &x, &mut y)?;
        rig.sum(capture, &pinned, &mut y)
    });
    let executable = graph.expect("a graph").instantiate().expect("an executable");
    drop((x, pinned));
    rig.runtime.poll();
    for _ in 0..2 {
        executable.launch(&stream).expect("a launch");
    }
    assert_eq!(stream.read(&y).expect("a read"), [4 + 5 + 200; 4], "C4: all that it uses lives");
    rig.runtime.poll();
    assert_eq!(rig.tap.log.count(Call::HostUnregister), 0, "C4: the registration too");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    executable.launch(&stream).expect("a held launch");
    drop(executable);
    rig.runtime.poll();
    assert_eq!(rig.tap.log.count(Call::ExecutableDestroy), 0, "C4: not before its last replay has completed");
    brake.release();
    assert_eq!(stream.read(&y).expect("a read"), [209 + 6 + 100; 4], "C4: which ran");
    drop((stream, y));
    rig.close();
}

fn c4_dropped_in_any_order<B: Bench>(bench: &B) {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let rig = Rig::new(bench);
        let stream = rig.stream();
        let mut x = rig.four(&stream, 1);
        let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
        let executable = graph.instantiate().expect("an executable");
        let brake = Brake::new(bench);
        brake.hold(&stream);
        executable.launch(&stream).expect("a held launch");
        let mut things = [
            Some(Box::new(x) as Box<dyn std::any::Any>),
            Some(Box::new(graph)),
            Some(Box::new(executable)),
            Some(Box::new(stream)),
        ];
        let mark = rig.tap.log.mark();
        for index in order {
            drop(things[index].take());
        }
        assert_eq!(rig.tap.log.since(mark), [], "R1: drops make no driver call, in order {order:?}");
        rig.runtime.poll();
        let frees = rig.tap.log.count(Call::FreeAsync) + rig.tap.log.count(Call::Free);
        assert_eq!(frees, 0, "C4: the held replay still uses it, in order {order:?}");
        brake.release();
        rig.drain();
        rig.close();
    }
}

fn c4_an_update_keeps_both_until_done<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut x, mut y) = (rig.four(&stream, 1), rig.four(&stream, 2));
    let first = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 10)).expect("a graph");
    let second = rig.runtime.capture(|capture| rig.bump(capture, &mut y, 10)).expect("a graph");
    let mut executable = first.instantiate().expect("an executable");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    executable.launch(&stream).expect("a held launch of the first");
    executable.update(&second).expect("the same shape");
    drop((first, x));
    executable.launch(&stream).expect("a launch of the second");
    rig.runtime.poll();
    let frees = rig.tap.log.count(Call::FreeAsync) + rig.tap.log.count(Call::Free);
    assert_eq!(frees, 0, "C4: the held launch uses what the first graph held");
    brake.release();
    assert_eq!(stream.read(&y).expect("a read"), [12; 4], "the second ran on its own buffer");
    drop((second, executable, stream, y));
    rig.drain();
    rig.close();
}

fn c5_a_launch_takes_all_like_one_kernel<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b, c) = (rig.stream(), rig.stream(), rig.stream());
    let (mut x, mut y, mut z) = (rig.four(&a, 1), rig.four(&b, 10), rig.four(&c, 0));
    let graph = rig.runtime.capture(|capture| rig.sum(capture, &x, &mut y)).expect("a graph");
    let executable = graph.instantiate().expect("an executable");
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 5).expect("a write before");
    executable.launch(&b).expect("a launch");
    rig.bump(&a, &mut x, 100).expect("a write after");
    rig.sum(&c, &y, &mut z).expect("a read after");
    assert!(y.is_busy() && x.is_busy(), "C5: both are in use");
    brake.release();
    assert_eq!(c.read(&z).expect("a read"), [16; 4], "C5: after the write before, before the read after");
    assert_eq!(a.read(&x).expect("a read"), [106; 4], "C5: the graph read before the write after");
    drop((a, b, c, x, y, z, graph, executable));
    rig.close();
}

fn c5_replays_of_one_executable_are_ordered<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let mut x = rig.four(&a, 0);
    let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
    let executable = graph.instantiate().expect("an executable");
    thread::scope(|scope| {
        for stream in [&a, &b] {
            let executable = &executable;
            scope.spawn(move || {
                for _ in 0..20 {
                    executable.launch(stream).expect("a launch");
                }
            });
        }
    });
    assert_eq!(a.read(&x).expect("a read"), [40; 4], "C5: each replay came after the one before");
    drop((a, b, x, graph, executable));
    rig.close();
}

fn c5_replays_on_two_streams<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&a, 0));
    let graph = rig.runtime.capture(|capture| rig.sum(capture, &x, &mut y)).expect("a graph");
    let executable = graph.instantiate().expect("an executable");
    for (round, stream) in [&a, &b, &a, &b].into_iter().enumerate() {
        executable.launch(stream).expect("a launch");
        let other = if round % 2 == 0 { &b } else { &a };
        rig.bump(other, &mut x, 1).expect("its input changes between replays");
    }
    assert_eq!(b.read(&y).expect("a read"), [1 + 2 + 3 + 4; 4], "C5: each replay saw its own input");
    drop((a, b, x, y, graph, executable));
    rig.close();
}

fn c5_a_graph_that_reads_and_writes_is_a_writer<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y, mut z) = (rig.four(&a, 1), rig.four(&a, 0), rig.four(&b, 0));
    let graph = rig.runtime.capture(|capture| {
        rig.sum(capture, &x, &mut y)?;
        rig.bump(capture, &mut x, 1)
    });
    let executable = graph.expect("a graph").instantiate().expect("an executable");
    a.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&a);
    executable.launch(&a).expect("a replay");
    rig.sum(&b, &x, &mut z).expect("a read elsewhere is launched");
    assert!(!b.is_idle().expect("a question"), "C5: the read waits for the replay, which writes");
    brake.release();
    assert_eq!(b.read(&z).expect("a read"), [2; 4], "C5: and sees what it wrote");
    drop((a, b, x, y, z, executable));
    rig.close();
}

/// A capture that works, after one that did not.
fn captures_again<B: Bench>(rig: &Rig<B::Driver>) {
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let graph = rig.runtime.capture(|capture| {
        let fork = capture.fork()?;
        rig.bump(&fork, &mut x, 1)?;
        fork.join(capture)
    });
    let graph = graph.expect("C7: the next capture works");
    graph.instantiate().expect("an executable").launch(&stream).expect("a launch");
    assert_eq!(stream.read(&x).expect("a read"), [2; 4], "C7: and replays");
}

fn c7_a_body_error_gives_no_graph<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let mistaken = Error::Misuse(Misuse::SizeOverflow);
    let failed = rig.runtime.capture(|capture| {
        let fork = capture.fork()?;
        rig.bump(&fork, &mut x, 1)?;
        Err(mistaken.clone())
    });
    assert_eq!(failed.map(drop), Err(mistaken), "C7: the body's own error");
    assert_eq!(rig.tap.log.count(Call::CaptureEnd), 1, "C7: the driver's capture was ended");
    assert_eq!(rig.runtime.stats().captures, 0, "C6: and uncounted");
    captures_again::<B>(&rig);
    drop((x, stream));
    rig.close();
}

fn c7_a_panic_gives_no_graph<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        rig.runtime.capture(|capture| {
            let fork = capture.fork()?;
            rig.bump(&fork, &mut x, 1)?;
            std::panic::panic_any(OnPurpose)
        })
    }));
    assert!(panicked.is_err_and(|panic| panic.is::<OnPurpose>()), "C7: the panic goes on to the caller");
    assert_eq!(rig.tap.log.count(Call::CaptureEnd), 1, "C7: the driver's capture was ended");
    assert_eq!(rig.runtime.stats().captures, 0, "C6: and uncounted");
    captures_again::<B>(&rig);
    drop((x, stream));
    rig.close();
}

fn c7_a_failure_at_every_call<B: Bench>(bench: &B) {
    let edges = [Call::EventCreate, Call::EventRecord, Call::StreamWaitEvent];
    for call in [Call::StreamCreate, Call::CaptureBegin, Call::Launch].into_iter().chain(edges) {
        fails_at_each::<B>(bench, call);
    }
}

fn c7_a_failed_end_gives_the_streams_up<B: Bench>(bench: &B) {
    // The injected refusal never reaches the driver, where the capture stays open: destroying its streams ends it.
    bench.allow(&["C1", "C7"]);
    fails_at_each::<B>(bench, Call::CaptureEnd);
}

/// Fails each of the first four calls of this kind in a capture.
fn fails_at_each<B: Bench>(bench: &B, call: Call) {
    let mut reached = 0;
    for nth in 1..=4 {
        let rig = Rig::new(bench);
        let stream = rig.stream();
        let mut x = rig.four(&stream, 1);
        rig.tap.rules.fail(call, nth, ErrorKind::Unknown);
        let outcome = rig.runtime.capture(|capture| {
            let fork = capture.fork()?;
            rig.bump(&fork, &mut x, 1)?;
            rig.bump(capture, &mut x, 1)
        });
        let hit = rig.tap.rules.clear();
        reached += usize::from(hit);
        assert_eq!(outcome.is_err(), hit, "C7: {call} {nth} fails the capture");
        if let Err(error) = &outcome {
            assert_eq!(error.failure().map(|failure| failure.code), Some(INJECTED), "R7: the cause: {error}");
        }
        drop(outcome);
        assert_eq!(rig.runtime.stats().captures, 0, "C6: no capture is counted after {call} {nth}");
        captures_again::<B>(&rig);
        assert_eq!(stream.read(&x).expect("a read"), [1; 4], "C7: nothing of it ran");
        drop((x, stream));
        rig.close();
    }
    assert!(reached > 0, "{call} is made in a capture");
}

fn c7_a_failed_capture_leaves_the_runtime_usable<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    rig.tap.rules.fail(Call::Launch, 1, ErrorKind::InvalidValue);
    let failed = rig.runtime.capture(|capture| {
        let first = rig.bump(capture, &mut x, 1);
        assert!(first.is_err(), "the launch fails");
        Ok(())
    });
    // The body hid the error. Whether the graph lacks the launch or is refused is for the driver to say; it runs right.
    if let Ok(graph) = failed {
        let executable = graph.instantiate().expect("an executable");
        executable.launch(&stream).expect("a launch");
        assert_eq!(stream.read(&x).expect("a read"), [1; 4], "C7: what failed is not in it");
    }
    captures_again::<B>(&rig);
    drop((x, stream));
    rig.close();
}

fn c8_who_takes_outside_does_not_wait_for_the_recorded<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let mut x = rig.four(&a, 1);
    a.synchronize().expect("a wait");
    let graph = rig.runtime.capture(|capture| {
        rig.bump(capture, &mut x, 1)?;
        assert!(!x.is_busy(), "C8: what is recorded is no work");
        let mark = rig.tap.log.mark();
        rig.bump(&b, &mut x, 10)?;
        let calls = rig.tap.log.mine_since(mark);
        assert_eq!(calls, [Call::Launch], "C8: taken outside without an edge to the capture");
        rig.bump(capture, &mut x, 1)
    });
    let graph = graph.expect("a graph");
    assert_eq!(a.read(&x).expect("a read"), [11; 4], "C8: the launch outside ran at once");
    graph.instantiate().expect("an executable").launch(&a).expect("a launch");
    assert_eq!(b.read(&x).expect("a read"), [13; 4], "and the recorded ones when replayed");
    drop((a, b, x, graph));
    rig.close();
}

fn c9_what_cannot_be_held_is_refused<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let mut plain = [1_u32; 4];
    let scoped = rig.runtime.scope(|scope| {
        let pinned = scope.wrap_shared(&plain)?;
        let mut y = rig.four(&stream, 0);
        let refused = rig.runtime.capture(|capture| rig.sum(capture, &pinned, &mut y)).map(drop);
        assert_eq!(refused, Err(Error::Misuse(Misuse::ScopedInCapture)), "C9: a graph would outlive the scope");
        Ok(())
    });
    scoped.expect("the scope ends");
    let graph = rig.runtime.capture(|capture| {
        let inside = rig.runtime.scope(|scope| scope.wrap(&mut plain).map(drop));
        assert_eq!(inside, Err(Error::Misuse(Misuse::InsideCapture)), "C9: the end of a scope would wait");
        rig.bump(capture, &mut x, 1)?;
        match capture.alloc::<u32>(4) {
            Ok(fresh) => rig.sum(capture, &fresh, &mut x),
            Err(refused) => {
                assert!(!rig.tap.capabilities().relaxed_protects, "C9: the driver allows it: {refused}");
                assert_eq!(refused, Error::Misuse(Misuse::InsideCapture), "C9: it would break the capture");
                rig.bump(capture, &mut x, 1)
            }
        }
    });
    let nodes = graph.expect("C9: the capture goes on").describe().expect("a description").nodes;
    assert_eq!(nodes, ["kernel"; 2], "C9: the allocation is not part of it");
    drop((stream, x));
    rig.close();
}

fn c10_host_data_is_snapshotted<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 0);
    let graph = {
        let mut data = vec![7_u32; 4];
        let graph = rig.runtime.capture(|capture| {
            capture.write(&data, &mut x)?;
            data.fill(9);
            rig.bump(capture, &mut x, 1)
        });
        graph.expect("a graph")
    };
    let executable = graph.instantiate().expect("an executable");
    drop(graph);
    for _ in 0..2 {
        executable.launch(&stream).expect("a launch");
        assert_eq!(stream.read(&x).expect("a read"), [8; 4], "C10: the data of the call, at every replay");
    }
    drop((executable, stream, x));
    rig.close();
}

fn forks_are_ordered_where_they_conflict<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut x, mut y, mut z) = (rig.four(&stream, 1), rig.four(&stream, 0), rig.four(&stream, 0));
    let graph = rig.runtime.capture(|capture| {
        rig.bump(capture, &mut x, 1)?;
        let (left, right) = (capture.fork()?, capture.fork()?);
        rig.sum(&left, &x, &mut y)?;
        rig.sum(&right, &y, &mut z)?;
        rig.bump(&left, &mut x, 100)?;
        left.join(capture)?;
        right.join(capture)?;
        rig.sum(capture, &x, &mut z)
    });
    let graph = graph.expect("a graph");
    graph.instantiate().expect("an executable").launch(&stream).expect("a launch");
    assert_eq!(stream.read(&z).expect("a read"), [2 + 102; 4], "O1: inside a graph as outside");
    drop((graph, stream, x, y, z));
    rig.close();
}

fn forks_are_joined_at_the_end<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut buffers: Vec<_> = (0..3).map(|_| rig.four(&stream, 0)).collect();
    let graph = rig.runtime.capture(|capture| {
        for x in &mut buffers {
            let fork = capture.fork()?;
            rig.bump(&fork, x, 1)?;
            let nested = fork.fork()?;
            rig.bump(&nested, x, 1)?;
        }
        Ok(())
    });
    let graph = graph.expect("C7: open forks are joined");
    graph.instantiate().expect("an executable").launch(&stream).expect("a launch");
    for x in &buffers {
        assert_eq!(stream.read(x).expect("a read"), [2; 4], "and are part of the graph");
    }
    let streams = rig.tap.log.count(Call::StreamCreate);
    for _ in 0..3 {
        captures_again::<B>(&rig);
    }
    assert!(rig.tap.log.count(Call::StreamCreate) <= streams + 1, "S5: capture streams are used again");
    drop((graph, stream, buffers));
    rig.close();
}

fn two_captures_at_once<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut x, mut y) = (rig.four(&stream, 1), rig.four(&stream, 2));
    let graph = rig.runtime.capture(|outer| {
        rig.bump(outer, &mut x, 1)?;
        let inner = rig.runtime.capture(|inner| rig.bump(inner, &mut y, 1))?;
        drop(inner);
        thread::scope(|scope| {
            let beside = scope.spawn(|| rig.runtime.capture(|beside| rig.bump(beside, &mut y, 1)).map(drop));
            beside.join().expect("the other thread ends")
        })?;
        rig.bump(outer, &mut x, 1)
    });
    let graph = graph.expect("C1: captures do not disturb each other");
    assert_eq!(graph.describe().expect("a description").nodes.len(), 2, "C1: each has its own work");
    drop((graph, stream, x, y));
    rig.close();
}

fn an_update_of_another_shape_leaves_the_old<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 0);
    let one = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
    let two = rig.runtime.capture(|capture| {
        rig.bump(capture, &mut x, 10)?;
        rig.bump(capture, &mut x, 10)
    });
    let two = two.expect("a graph");
    let mut executable = one.instantiate().expect("an executable");
    let refused = executable.update(&two).expect_err("another shape");
    let kind = refused.failure().map(|failure| failure.kind);
    assert_eq!(kind, Some(ErrorKind::GraphUpdateRefused), "the driver's refusal");
    executable.launch(&stream).expect("a launch");
    assert_eq!(stream.read(&x).expect("a read"), [1; 4], "C7: the old one is as it was");
    drop((one, two, executable, stream, x));
    rig.close();
}

fn a_join_orders_all_that_comes_later<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut x, mut y) = (rig.four(&stream, 0), rig.four(&stream, 0));
    for (joins, edges) in [(true, vec![(0, 1)]), (false, vec![])] {
        let graph = rig.runtime.capture(|capture| {
            let fork = capture.fork()?;
            rig.bump(&fork, &mut x, 1)?;
            if joins {
                fork.join(capture)?;
            }
            rig.bump(capture, &mut y, 1)
        });
        let description = graph.expect("a graph").describe().expect("a description");
        assert_eq!(description.edges, edges, "what has nothing in common is ordered by a join alone: {description}");
    }
    drop((stream, x, y));
    rig.close();
}

fn a_graph_tells_its_nodes<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut x, mut y) = (rig.four(&stream, 0), rig.four(&stream, 0));
    let graph = rig.runtime.capture(|capture| {
        capture.fill(&mut x, 1)?;
        capture.copy(&x, &mut y)?;
        rig.bump(capture, &mut y, 1)
    });
    let description = graph.expect("a graph").describe().expect("a description");
    assert_eq!(description.nodes, ["fill", "copy", "kernel"], "a word a node, in order");
    assert_eq!(description.edges, [(0, 1), (1, 2)], "and their order");
    assert!(description.to_dot().contains("n1 -> n2"), "as a drawing: {}", description.to_dot());
    assert!(description.to_string().contains("2 kernel after 1"), "as text: {description}");
    drop((stream, x, y));
    rig.close();
}

fn p7_an_explicit_free_inside_says_deferred<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut x, spare) = (rig.four(&stream, 1), rig.four(&stream, 2));
    let pinned = rig.runtime.wrap(vec![5_u32; 4]).expect("a wrap");
    stream.synchronize().expect("a wait");
    let graph = rig.runtime.capture(|capture| {
        rig.sum(capture, &pinned, &mut x)?;
        assert_eq!(spare.free(), Ok(Freed::Deferred), "P7: a free inside a capture");
        assert_eq!(pinned.free(), Ok(Freed::Deferred), "P7: an end of a pin that the capture uses");
        Ok(())
    });
    let executable = graph.expect("a graph").instantiate().expect("an executable");
    executable.launch(&stream).expect("a launch");
    assert_eq!(stream.read(&x).expect("a read"), [6; 4], "C4: it is still there");
    drop(executable);
    rig.drain();
    assert_eq!(rig.tap.log.count(Call::HostUnregister), 1, "C3: the deferred end came, once");
    drop((stream, x));
    rig.close();
}
