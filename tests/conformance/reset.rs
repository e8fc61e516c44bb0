//! The device is reset by other code: R11.

use tenure::driver::{Call, Driver, ErrorKind, Priority};
use tenure::{Buffer, Error, Event, Executable, Graph, Pinned, Queue, Result, Stream};

use super::{eventually, list_cases};
use crate::bench::Bench;
use crate::rig::{Brake, Rig, Tapped};

list_cases!("reset": raw [] contract [
    r11_whichever_call_is_refused_first_shows_it,
    r11_the_worker_finds_it_out,
    r11_a_release_of_plain_memory_finds_it_out,
    r11_beside_a_capture_it_is_found_out_as_well,
    r11_inside_a_capture_it_ends_the_capture,
    r11_a_runtime_of_adopted_streams_finds_it_out,
    r11_a_wait_ends_with_it,
    r11_one_bad_handle_is_no_reset,
    r11_a_stream_that_its_owner_destroyed_is_no_reset,
]);

/// What a program has when the device is reset.
struct Things<B: Bench> {
    rig: Rig<B::Driver>,
    stream: Stream<Tapped<B>>,
    idle: Option<Stream<Tapped<B>>>,
    x: Option<Buffer<u32, Tapped<B>>>,
    event: Event<Tapped<B>>,
    graph: Graph<Tapped<B>>,
    executable: Executable<Tapped<B>>,
    pinned: Option<Pinned<u32, Tapped<B>>>,
}

impl<B: Bench> Things<B> {
    fn new(bench: &B) -> Self {
        let rig = Rig::new(bench);
        let (stream, idle) = (rig.stream(), rig.stream());
        let mut x = rig.four(&stream, 1);
        let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
        rig.bump(&stream, &mut pinned, 1).expect("a launch");
        let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
        let executable = graph.instantiate().expect("an executable");
        executable.launch(&stream).expect("a launch");
        rig.bump(&stream, &mut x, 1).expect("a launch, after which the stream covers it");
        let event = stream.record().expect("an event");
        rig.bump(&stream, &mut x, 1).expect("a launch behind the event");
        Self { rig, stream, idle: Some(idle), x: Some(x), event, graph, executable, pinned: Some(pinned) }
    }

    fn x(&mut self) -> &mut Buffer<u32, Tapped<B>> {
        self.x.as_mut().expect("it is there")
    }

    /// Uses all of it: whatever takes work or asks is refused as lost, and the rest does nothing.
    fn use_all(mut self) {
        let mark = self.rig.tap.log.mark();
        for (name, first) in FIRSTS::<B>() {
            let answer = first(&mut self);
            assert!(matches!(answer, Ok(()) | Err(Error::Lost(_))), "R11: {name}: {answer:?}");
        }
        let Self { rig, stream, x, event, graph, executable, pinned, .. } = self;
        assert!(matches!(rig.runtime.stream().map(drop), Err(Error::Lost(_))), "R11: new things are refused");
        assert!(
            matches!(rig.runtime.wrap(vec![1_u32; 4]).map(drop), Err(error) if is_lost(&error.error)),
            "R11: a wrap"
        );
        assert!(matches!(rig.runtime.capture(|_| Ok(())).map(drop), Err(Error::Lost(_))), "R11: a capture");
        assert!(matches!(graph.describe().map(drop), Err(Error::Lost(_))), "R11: a description");
        drop((x, event, graph, executable, pinned, stream));
        rig.runtime.poll();
        assert_eq!(rig.tap.log.since(mark), [], "R11: nothing is called with an old handle");
        let (tap, mark) = (rig.tap.clone(), rig.tap.log.mark());
        let report = rig.shut_down(std::time::Duration::ZERO);
        assert!(report.lost.is_some(), "R11: {report:?}");
        assert_eq!(tap.log.since(mark), [], "R11: nor at the end");
    }
}

fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Lost(_))
}

type First<B> = (&'static str, fn(&mut Things<B>) -> Result<()>);

/// Calls that a program can make first after a reset.
#[allow(non_snake_case, reason = "a constant, but for its parameter")]
fn FIRSTS<B: Bench>() -> Vec<First<B>> {
    vec![
        ("a covered launch", |things| {
            let mut x = things.x.take().expect("it is there");
            let answer = things.rig.bump(&things.stream, &mut x, 1);
            things.x = Some(x);
            answer
        }),
        ("a launch that moves its buffer", |things| {
            let Some(other) = things.idle.take() else { return Ok(()) };
            let mut x = things.x.take().expect("it is there");
            let answer = things.rig.bump(&other, &mut x, 1);
            things.x = Some(x);
            answer
        }),
        ("a fill", |things| {
            let stream = things.stream.clone();
            stream.fill(things.x(), 1)
        }),
        ("a write", |things| {
            let stream = things.stream.clone();
            stream.write(&[1; 4], things.x())
        }),
        ("a read", |things| {
            let stream = things.stream.clone();
            stream.read(things.x()).map(drop)
        }),
        ("an allocation", |things| things.stream.alloc::<u32>(4).map(drop)),
        ("a wait", |things| things.stream.synchronize()),
        ("a question", |things| things.stream.is_idle().map(drop)),
        ("an event", |things| things.stream.record().map(drop)),
        ("a question about an event", |things| things.event.is_complete().map(drop)),
        ("a wait for an event", |things| things.event.synchronize()),
        ("an order after an event", |things| match &things.idle {
            Some(idle) => idle.wait_event(&things.event),
            None => Ok(()),
        }),
        ("a graph's launch", |things| things.executable.launch(&things.stream)),
        ("a graph made ready", |things| things.graph.instantiate().map(drop)),
        ("a host view", |things| match &mut things.pinned {
            Some(pinned) => pinned.read().map(drop),
            None => Ok(()),
        }),
        ("a library", |things| {
            // SAFETY: O1. The closure enqueues nothing.
            unsafe { things.stream.use_on(&[], |_| ()) }
        }),
    ]
}

fn r11_whichever_call_is_refused_first_shows_it<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    for (name, first) in FIRSTS::<B>() {
        let mut things = Things::new(bench);
        if !bench.reset_device() {
            drop((things.x.take(), things.idle.take(), things.pinned.take()));
            continue;
        }
        let answer = first(&mut things);
        match &answer {
            // Nothing of the device's was needed.
            Ok(()) => {
                let answer = things.stream.synchronize();
                assert!(matches!(answer, Err(Error::Lost(_))), "R11: {name}, then a wait: {answer:?}");
            }
            Err(Error::Lost(cause)) => {
                assert!(!cause.kind.is_sticky(), "R7: {name}: the refusal is the cause: {cause}")
            }
            Err(error) => panic!("R11: {name}: {error:?} does not say that the device is lost"),
        }
        assert!(things.rig.runtime.lost().is_some(), "R11: {name}: the runtime knows");
        things.use_all();
    }
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let x = rig.four(&stream, 7);
    assert_eq!(stream.read(&x).expect("R11: a runtime that is made afterwards works"), [7; 4]);
    drop((x, stream));
    rig.close();
}

fn r11_the_worker_finds_it_out<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::working(bench);
    let stream = rig.stream();
    let x = rig.four(&stream, 1);
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let mut y = rig.four(&stream, 1);
    rig.bump(&stream, &mut y, 1).expect("a launch");
    if !bench.reset_device() {
        brake.release();
        drop((x, y, stream));
        return rig.close();
    }
    std::mem::forget(brake);
    drop((x, y));
    // Nobody calls: a release is refused, or a question of the slow tick.
    eventually("R11: the runtime knows", || rig.runtime.lost().is_some());
    let failure = rig.runtime.lost().and_then(|error| error.failure().map(|failure| failure.kind));
    assert!(failure.is_some_and(|kind| !kind.is_sticky()), "R7: the refusal is the cause: {failure:?}");
    drop(stream);
    assert!(rig.shut_down(std::time::Duration::ZERO).lost.is_some(), "R11: the report says so");
}

/// Memory that no stream orders the free of is known by its address alone, which the driver does not know any more.
fn r11_a_release_of_plain_memory_finds_it_out<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let x = rig.four(&stream, 1);
    let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    stream.synchronize().expect("a wait");
    let is_reset = bench.reset_device();
    drop((x, pinned));
    rig.runtime.poll();
    assert_eq!(rig.runtime.lost().is_some(), is_reset, "R11: the runtime knows");
    drop(stream);
    drop(rig.shut_down(std::time::Duration::ZERO));
}

fn r11_beside_a_capture_it_is_found_out_as_well<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    for is_bare in [false, true] {
        let rig = if is_bare { Rig::bare(bench) } else { Rig::new(bench) };
        let (stream, other) = (rig.stream(), rig.stream());
        let mut x = rig.four(&stream, 1);
        stream.synchronize().expect("a wait");
        let guard = rig.runtime.capture_guard();
        if bench.reset_device() {
            let answer = rig.bump(&stream, &mut x, 1);
            assert!(matches!(answer, Err(Error::Lost(_))), "R11: while somebody captures: {answer:?}");
        }
        drop((guard, x, stream, other));
        drop(rig.shut_down(std::time::Duration::ZERO));
    }
}

fn r11_inside_a_capture_it_ends_the_capture<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    let (mut is_reset, mut mark) = (false, 0);
    let answer = rig.runtime.capture(|capture| {
        rig.bump(capture, &mut x, 1)?;
        is_reset = bench.reset_device();
        let answer = rig.bump(capture, &mut x, 1);
        mark = rig.tap.log.mark();
        answer
    });
    if is_reset {
        assert!(matches!(answer, Err(Error::Lost(_))), "R11: {answer:?}");
        assert_eq!(rig.tap.log.since(mark), [], "R11: the capture is not ended with an old handle");
    }
    drop((answer, x, stream));
    drop(rig.shut_down(std::time::Duration::ZERO));
}

fn r11_a_runtime_of_adopted_streams_finds_it_out<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let (rig, driver) = (Rig::new(bench), bench.driver());
    let theirs = driver.stream_create(Priority::Normal).expect("a stream");
    // SAFETY: S9. The stream is never destroyed.
    let adopted = unsafe { rig.runtime.adopt(theirs) }.expect("a stream is adopted");
    let mut x = rig.four(&adopted, 1);
    adopted.synchronize().expect("a wait");
    if bench.reset_device() {
        let answer = rig.bump(&adopted, &mut x, 1);
        assert!(matches!(answer, Err(Error::Lost(_))), "R11: what marks the stream is a witness: {answer:?}");
        let mark = rig.tap.log.mark();
        let answer = rig.bump(&adopted, &mut x, 1);
        assert!(matches!(answer, Err(Error::Lost(_))), "R11: {answer:?}");
        drop((x, adopted));
        rig.runtime.poll();
        assert_eq!(rig.tap.log.since(mark), [], "R11: nothing is called with an old handle");
    }
    drop(rig.shut_down(std::time::Duration::ZERO));
}

fn r11_a_wait_ends_with_it<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let begun = std::sync::Barrier::new(2);
    let is_reset = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            begun.wait();
            stream.synchronize()
        });
        begun.wait();
        // Before the wait or in it: either ends.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let is_reset = bench.reset_device();
        if is_reset {
            std::mem::forget(brake)
        } else {
            brake.release()
        }
        let answer = waiter.join().expect("it does not panic");
        assert_eq!(matches!(answer, Err(Error::Lost(_))), is_reset, "R11: {answer:?}");
        is_reset
    });
    assert_eq!(rig.runtime.lost().is_some(), is_reset);
    drop(stream);
    drop(rig.shut_down(std::time::Duration::ZERO));
}

/// Any call may be refused for a handle, once.
fn r11_one_bad_handle_is_no_reset<B: Bench>(bench: &B) {
    // What a stream that was given up may use is leaked.
    bench.allow(&["O6", "R5", "P7"]);
    for call in [Call::Launch, Call::StreamSynchronize, Call::StreamQuery, Call::EventRecord, Call::MallocAsync] {
        let rig = Rig::new(bench);
        let (stream, other) = (rig.stream(), rig.stream());
        let mut x = rig.four(&stream, 1);
        rig.tap.rules.fail(call, 1, ErrorKind::InvalidHandle);
        let launched = rig.bump(&stream, &mut x, 1);
        let (asked, waited) = (stream.is_idle().map(drop), stream.synchronize());
        let (recorded, allocated) = (other.record().map(drop), other.alloc::<u32>(4).map(drop));
        for answer in [launched, asked, waited, recorded, allocated] {
            assert!(!matches!(answer, Err(Error::Lost(_))), "R11: {call}: one handle: {answer:?}");
        }
        rig.tap.rules.clear();
        assert_eq!(rig.runtime.lost(), None, "R11: {call}: a stream of ours still answers");
        let third = rig.stream();
        let y = rig.four(&third, 5);
        assert_eq!(third.read(&y), Ok(vec![5; 4]), "R11: {call}: and all goes on");
        drop((x, y, stream, other, third));
        drop(rig.shut_down(crate::rig::deadline()));
    }
}

/// Against what its owner promised: the handle names nothing, as after a reset.
fn r11_a_stream_that_its_owner_destroyed_is_no_reset<B: Bench>(bench: &B) {
    bench.allow(&["R5"]);
    let (rig, driver) = (Rig::new(bench), bench.driver());
    let theirs = driver.stream_create(Priority::Normal).expect("a stream");
    // SAFETY: S9. The stream is never destroyed; what is said about it comes from the tap.
    let adopted = unsafe { rig.runtime.adopt(theirs) }.expect("a stream is adopted");
    let (own, mut x) = (rig.stream(), rig.four(&adopted, 1));
    adopted.synchronize().expect("a wait");
    for call in [Call::CaptureStatus, Call::Launch] {
        rig.tap.rules.fail_always(call, ErrorKind::InvalidHandle);
        let answer = rig.bump(&adopted, &mut x, 1);
        assert!(matches!(answer, Err(Error::Driver(_))), "R11: {call}: it is the call's own matter: {answer:?}");
        rig.tap.rules.clear();
    }
    assert_eq!(rig.runtime.lost(), None, "R11: only that stream is gone");
    let y = rig.four(&own, 3);
    assert_eq!(own.read(&y), Ok(vec![3; 4]), "R11: the others work");
    drop((x, y, own, adopted));
    rig.close();
}
