//! What may be called where: in a `use_on` closure, in the body of a capture, with handles of another capture.
//!
//! Nothing here may hang, on drivers whose guarded calls and captures must be kept apart (a *bare* rig) either.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use tenure::driver::{Call, CaptureMode, Driver, HostPointer, Image, Priority, Progress, Timing};
use tenure::{Error, Freed, Misuse, Queue, Result, Stream};

use super::{both_end, list_cases, word};
use crate::bench::{Bench, SOURCE};
use crate::rig::{Brake, Rig, Tapped};

list_cases!("places": raw [
    a_refused_call_leaves_no_last_error,
] contract [
    c1_a_capture_that_nobody_announced_survives_questions,
    o2_a_question_in_a_hold_waits_for_no_mover,
    c9_no_call_in_a_hold_waits_for_a_capture,
    c9_a_wrap_in_a_capture_waits_for_no_wrap_outside,
    c9_a_capture_in_a_hold_waits_for_no_call,
    c9_queues_of_two_captures_do_not_meet,
    c9_what_is_refused_leaves_the_capture_as_it_was,
    r3_all_that_waits_is_refused_in_a_hold,
]);

/// How long a thread gets to run into a wait that it should not make. Longer makes a fault more likely to show, and no
/// right run fail.
const MOMENT: Duration = Duration::from_millis(30);

const IN_HOLD: Error = Error::Misuse(Misuse::InsideHold);
const IN_CAPTURE: Error = Error::Misuse(Misuse::InsideCapture);

/// The usual rig, and a bare one.
fn rigs<B: Bench>(bench: &B) -> [Arc<Rig<B::Driver>>; 2] {
    [Arc::new(Rig::new(bench)), Arc::new(Rig::bare(bench))]
}

fn close<D: Driver>(rig: Arc<Rig<D>>) {
    Arc::into_inner(rig).expect("all threads have ended").close();
}

/// Runs `body` with the gate of `stream` held; it enqueues nothing there.
fn hold<B: Bench, R>(stream: &Stream<Tapped<B>>, body: impl FnOnce() -> R) -> Result<R> {
    // SAFETY: O1. The closure enqueues nothing on the given stream.
    unsafe { stream.use_on(&[], |_| body()) }
}

fn pair() -> (Sender<()>, Receiver<()>) {
    channel()
}

fn a_refused_call_leaves_no_last_error<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let stream = driver.stream_create(Priority::Normal).expect("a stream");
    let event = driver.event_create(Timing::Disabled).expect("an event");
    // Before the stream stands still: to load code waits for the device.
    let (module, other) = (driver.module_load(Image::Source(SOURCE)), driver.stream_create(Priority::Normal));
    let (module, other) = (module.expect("a module"), other.expect("a stream"));
    bench.stall(&stream);
    driver.launch_host_function(&stream, Arc::new(|| {})).expect("a host function");
    driver.event_record(&event, &stream).expect("a record");
    let mut plain = [0_u8; 64];
    let refusals = [
        (
            "an address that is not registered",
            word(driver.host_device_address(HostPointer(NonNull::from(&mut plain[0])))),
        ),
        ("a kernel that the module does not have", word(driver.function(&module, "absent"))),
        ("an end of no capture", word(driver.capture_end(&other))),
    ];
    for (what, refused) in refusals {
        assert!(refused.is_some(), "{what} is refused");
        assert!(driver.last_error().is_none_or(|code| code == 0), "{what}: {:?} is left", driver.last_error());
    }
    assert_eq!(driver.event_query(&event).expect("a query"), Progress::Pending, "it is held");
    assert!(driver.last_error().is_none_or(|code| code == 0), "an answer of \"not ready\" is no error");
    bench.resume(&stream);
    driver.stream_synchronize(&stream).expect("a wait");
}

fn o2_a_question_in_a_hold_waits_for_no_mover<B: Bench>(bench: &B) {
    for rig in rigs(bench) {
        let (s, t) = (rig.stream(), rig.stream());
        let x = Arc::new(rig.four(&s, 1));
        let (inside, is_inside) = pair();
        let asks = {
            let x = x.clone();
            move || {
                let asked = hold::<B, _>(&s, || {
                    inside.send(()).expect("the mover listens");
                    // The mover locks `x`, and waits for the gate that is held here.
                    thread::sleep(MOMENT);
                    x.is_busy()
                });
                drop(s);
                asked
            }
        };
        let moves = {
            let (rig, x) = (rig.clone(), x.clone());
            move || {
                let mut y = rig.four(&t, 1);
                is_inside.recv().expect("the other thread is in its hold");
                rig.sum(&t, &*x, &mut y).and_then(|()| t.read(&y))
            }
        };
        let (asked, moved) = both_end("O2: a question in a hold beside a mover", asks, moves);
        asked.expect("the closure ran");
        assert_eq!(moved, Ok(vec![2; 4]), "O1: the move went on");
        drop(x);
        close(rig);
    }
}

/// Questions about work that is pending, and about work that is over, beside a capture of other code of which the runtime
/// knows nothing.
fn c1_a_capture_that_nobody_announced_survives_questions<B: Bench>(bench: &B) {
    let (rig, driver) = (Rig::new(bench), bench.driver());
    let capabilities = rig.tap.capabilities();
    let stream = rig.stream();
    let foreign = || driver.stream_create(Priority::Normal).expect("a stream");
    // SAFETY: S9. The stream lives until the adoption was ended.
    let adopted = unsafe { rig.runtime.adopt(foreign()) }.expect("a stream is adopted");
    let (mut x, mut y) = (rig.four(&stream, 1), Some(rig.four(&adopted, 1)));
    let (theirs, brake) = (foreign(), Brake::new(bench));
    let (early, wait) = (stream.record().expect("an event"), stream.record().expect("an event"));
    brake.hold(&stream);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let late = stream.record().expect("an event");
    rig.bump(&adopted, y.as_mut().expect("it is there"), 1).expect("a launch");
    driver.capture_begin(&theirs, CaptureMode::Global).expect("a capture begins");
    driver.launch_host_function(&theirs, Arc::new(|| {})).expect("a host function");
    if capabilities.relaxed_protects {
        super::eventually("O2: the event before what is held is complete", || early.is_complete() == Ok(true));
        wait.synchronize().expect("a wait for what is over");
        assert_eq!((late.is_complete(), x.is_busy()), (Ok(false), true), "O2: the one after it is not");
        if capabilities.stream_ordered_memory {
            // Elsewhere its release waits for what is held.
            drop(y.take());
        }
        let _ = (adopted.is_idle().expect("a question"), stream.is_idle().expect("a question"), rig.runtime.poll());
        adopted.synchronize().expect("a wait");
    }
    // Else every question breaks a capture that was not announced.
    let ended = driver.capture_end(&theirs);
    let graph = ended.unwrap_or_else(|error| panic!("C1: the capture was broken: {error}"));
    driver.graph_destroy(graph).expect("a graph goes");
    brake.release();
    late.synchronize().expect("a wait");
    assert_eq!(late.is_complete(), Ok(true), "O2: it is over");
    let asked = rig.tap.log.count(Call::EventQuery) + rig.tap.log.count(Call::EventSynchronize);
    assert!(capabilities.relaxed_protects_events || asked == 0, "C1: no event was asked itself");
    let ended = adopted.end_adoption().map_err(|(error, _)| error).expect("it is not shared");
    // SAFETY: S6, S9. Both are the case's own, and the adoption is over.
    let gone = unsafe { (driver.stream_destroy(ended.raw()), driver.stream_destroy(&theirs)) };
    gone.0.and(gone.1).expect("the streams go");
    drop((stream, x, y, early, late, wait, ended));
    rig.drain();
    rig.close();
}

/// Calls that are guarded on some drivers.
fn guarded_calls<D: Driver>(rig: &Rig<D>) -> Vec<(&'static str, Result<()>)> {
    let (wrapped, shared) = (rig.runtime.wrap(vec![1_u32; 64]), rig.runtime.wrap_shared::<u32>(Arc::new([1; 64])));
    vec![
        ("a module", rig.runtime.module(Image::Source(SOURCE)).map(drop)),
        ("page-locked memory", rig.runtime.alloc_host::<u32>(4).map(drop)),
        ("a wrap", wrapped.map(drop).map_err(Error::from)),
        ("a shared wrap", shared.map(drop).map_err(Error::from)),
        ("a scope", rig.runtime.scope(|_| Ok(()))),
    ]
}

fn c9_no_call_in_a_hold_waits_for_a_capture<B: Bench>(bench: &B) {
    for rig in rigs(bench) {
        let stream = rig.stream();
        let mut x = rig.four(&stream, 1);
        let ((inside, is_inside), (begun, is_begun)) = (pair(), pair());
        let holds = {
            let (rig, stream) = (rig.clone(), stream.clone());
            move || {
                hold::<B, _>(&stream, || {
                    inside.send(()).expect("the capture waits for this");
                    is_begun.recv().expect("the capture begins");
                    guarded_calls(&rig)
                })
            }
        };
        let captures = {
            let rig = rig.clone();
            move || {
                is_inside.recv().expect("the other thread is in its hold");
                let graph = rig.runtime.capture(|_| {
                    begun.send(()).expect("the hold waits for this");
                    thread::sleep(MOMENT);
                    // Ordinary work beside the capture, which waits for the gate that is held.
                    rig.bump(&stream, &mut x, 1)
                });
                let outcome = graph.map(drop).and_then(|()| stream.read(&x));
                drop((stream, x));
                outcome
            }
        };
        let (held, captured) = both_end("C9: a guarded call in a hold beside a capture", holds, captures);
        for (what, answer) in held.expect("the closure ran") {
            assert_eq!(answer, Err(IN_HOLD), "C9: {what} would wait, with the gate held");
        }
        assert_eq!(captured, Ok(vec![2; 4]), "C1: the capture ended well, and the work beside it ran");
        close(rig);
    }
}

fn c9_a_wrap_in_a_capture_waits_for_no_wrap_outside<B: Bench>(bench: &B) {
    for rig in rigs(bench) {
        let protects = rig.runtime.driver().capabilities().relaxed_protects;
        let (begun, is_begun) = pair();
        let wraps = {
            let rig = rig.clone();
            move || {
                is_begun.recv().expect("the capture begins");
                rig.runtime.wrap(vec![1_u32; 64]).map(drop).map_err(Error::from)
            }
        };
        let captures = {
            let rig = rig.clone();
            move || {
                let mut inner = None;
                let graph = rig.runtime.capture(|_| {
                    begun.send(()).expect("the wrap waits for this");
                    // The other wrap waits for this capture to end.
                    thread::sleep(MOMENT);
                    inner = Some(rig.runtime.wrap(vec![1_u32; 64]).map(drop).map_err(Error::from));
                    Ok(())
                });
                (graph.map(drop), inner)
            }
        };
        let (wrapped, (graph, inner)) = both_end("C9: two wraps, one in a capture", wraps, captures);
        assert_eq!((wrapped, graph), (Ok(()), Ok(())), "the capture goes on, and the wrap outside after it");
        let expected = if protects { Ok(()) } else { Err(IN_CAPTURE) };
        assert_eq!(inner, Some(expected), "C9: it would wait for its own capture");
        rig.drain();
        close(rig);
    }
}

fn c9_a_capture_in_a_hold_waits_for_no_call<B: Bench>(bench: &B) {
    for rig in rigs(bench) {
        let stream = rig.stream();
        let (inside, is_inside) = pair();
        let holds = {
            let (rig, stream) = (rig.clone(), stream.clone());
            move || {
                hold::<B, _>(&stream, || {
                    inside.send(()).expect("the other thread listens");
                    // The allocation has entered its guarded call, and waits for the gate that is held here.
                    thread::sleep(MOMENT);
                    drop(rig.runtime.capture_guard());
                    rig.runtime.capture(|_| Ok(())).map(drop)
                })
            }
        };
        let allocates = move || {
            is_inside.recv().expect("the other thread is in its hold");
            stream.alloc::<u32>(4).map(drop)
        };
        let (held, allocated) = both_end("C9: a capture in a hold beside an allocation", holds, allocates);
        assert_eq!(held, Ok(Err(IN_HOLD)), "C9: its begin would wait for calls in flight");
        assert_eq!(allocated, Ok(()), "the allocation went on");
        rig.drain();
        close(rig);
    }
}

fn c9_queues_of_two_captures_do_not_meet<B: Bench>(bench: &B) {
    let (rig, other) = (Rig::new(bench), Rig::new(bench));
    let (stream, theirs) = (rig.stream(), other.stream());
    let (mut x, mut y, mut z) = (rig.four(&stream, 1), rig.four(&stream, 1), other.four(&theirs, 1));
    let (mut inner, mut foreign) = (None, None);
    let outer = rig.runtime.capture(|outer| {
        rig.bump(outer, &mut x, 1)?;
        inner = Some(rig.runtime.capture(|within| {
            rig.bump(within, &mut y, 2)?;
            let refused = Err(Error::Misuse(Misuse::ForeignCapture));
            assert_eq!(within.fork()?.join(outer), refused, "C9: into the other capture");
            assert_eq!(outer.fork()?.join(within), refused, "C9: and the other way");
            Ok(())
        }));
        foreign = Some(other.runtime.capture(|within| {
            other.bump(within, &mut z, 3)?;
            let refused = Err(Error::Misuse(Misuse::ForeignRuntime));
            assert_eq!(within.fork()?.join(outer), refused, "C9: of another runtime");
            assert_eq!(rig.bump(within, &mut x, 1), refused, "C9: memory of another runtime");
            Ok(())
        }));
        Ok(())
    });
    let run = |graph: Result<tenure::Graph<_>>, stream: &Stream<_>| {
        let graph = graph.expect("C9: every capture goes on");
        graph.instantiate().and_then(|executable| executable.launch(stream)).expect("C9: and gives a whole graph");
    };
    run(outer, &stream);
    run(inner.expect("it ran"), &stream);
    run(foreign.expect("it ran"), &theirs);
    assert_eq!((stream.read(&x), stream.read(&y)), (Ok(vec![2; 4]), Ok(vec![3; 4])), "C5: each with its own work");
    assert_eq!(theirs.read(&z), Ok(vec![4; 4]), "C5: and that of the other runtime");
    drop((stream, x, y, theirs, z));
    rig.close();
    other.close();
}

fn c9_what_is_refused_leaves_the_capture_as_it_was<B: Bench>(bench: &B) {
    let (rig, other) = (Rig::new(bench), Rig::new(bench));
    let (stream, theirs) = (rig.stream(), other.stream());
    let (x, mut y, mut foreign) = (rig.four(&stream, 1), rig.four(&stream, 2), other.four(&theirs, 3));
    let graph = rig.runtime.capture(|capture| {
        // Its first buffer is ours, its second is not.
        assert_eq!(rig.sum(capture, &x, &mut foreign), Err(Misuse::ForeignRuntime.into()), "C9: refused");
        rig.bump(capture, &mut y, 1)
    });
    let graph = graph.expect("C9: the capture goes on");
    assert_eq!(x.free(), Ok(Freed::Now), "C4: the graph does not use what only a refused launch named");
    assert_eq!(y.free(), Ok(Freed::Deferred), "C4: but what it has");
    drop((graph, stream, theirs, foreign));
    rig.close();
    other.close();
}

fn r3_all_that_waits_is_refused_in_a_hold<B: Bench>(bench: &B) {
    for rig in rigs(bench) {
        let stream = rig.stream();
        let mut x = rig.four(&stream, 1);
        let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
        let mut executable = graph.instantiate().expect("an executable");
        let (wraps, freed) =
            ([1_u32, 2].map(|value| rig.runtime.wrap(vec![value; 4]).expect("a wrap")), rig.four(&stream, 1));
        let [pin, owned] = wraps;
        let waiting = rig.runtime.retired_pending();
        let inside = hold::<B, _>(&stream, || {
            for (what, answer) in guarded_calls(&rig) {
                assert_eq!(answer, Err(IN_HOLD), "R3: {what}");
            }
            assert_eq!(rig.runtime.capture(|_| Ok(())).map(drop), Err(IN_HOLD), "R3: a capture");
            assert_eq!(stream.alloc::<u32>(4).map(drop), Err(IN_HOLD), "R3: memory");
            assert_eq!(graph.instantiate().map(drop), Err(IN_HOLD), "R3: an executable");
            assert_eq!(executable.update(&graph), Err(IN_HOLD), "R3: an update");
            assert_eq!(freed.free(), Err(IN_HOLD), "R3: a free");
            assert_eq!(pin.free(), Err(IN_HOLD), "R3: a free of a pin");
            let back = owned.into_owner::<Vec<u32>>().map_err(|(error, _)| error);
            assert_eq!(back, Err(IN_HOLD), "R3: an owner, which is not let go before the work is known to be over");
            assert!(rig.runtime.poll() > waiting, "R3: what was let go here is released later");
            assert_eq!((rig.runtime.stats().captures, rig.runtime.lost()), (0, None), "a look waits for nobody");
        });
        inside.expect("the closure ran");
        drop((executable, graph, x, stream));
        rig.drain();
        close(rig);
    }
}
