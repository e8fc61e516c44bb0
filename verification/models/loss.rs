//! A device that is lost, and a shutdown, beside what was in no model: futures, wraps, captures, scopes, adoptions: R5 to R9.
//!
//! One thread's wait finds the loss, and from then on the driver refuses every call. A thread that was refused knows why: what it then asks
//! or releases fails the model (R6).

use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use super::capture::{buffers, manual};
use super::checker::spawn;
use super::device::Device;
use super::life::Task;
use super::tenure::driver::{Call, Capabilities, Driver, ErrorKind, Priority};
use super::tenure::error::Error;
use super::tenure::{Buffer, Completion, Queue, Runtime, Stream};
use super::{Model, Reached};

/// What the models of this file have in common.
const MODEL: Model = Model { bound: Some(2), lines: &["R6"], ..Model::USUAL };

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "r6_loss_beside_a_future",
        claim: "A future beside the loss of the device ends with it, and its task is woken if it waited.",
        lines: &["R6", "R8"],
        operations: "1 wait that finds the loss; 1 poll of a future; then turns",
        reaches: &["it waited", "it was told at once"],
        body: future,
        ..MODEL
    },
    Model {
        name: "r8_told_before_the_loss",
        claim: "What a future was told before the loss of the device it tells after the end as well.",
        lines: &["R8", "R6"],
        operations: "1 turn; 1 wait on another stream that finds the loss; then 1 shutdown",
        reaches: &["it was told that the work ended", "it was told of the loss"],
        body: told_before,
        ..MODEL
    },
    Model {
        name: "r6_loss_beside_a_wrap",
        claim: "A wrap beside the loss of the device succeeds or says so; then nothing is asked, and what was wrapped is let go or kept.",
        lines: &["R6", "P9"],
        operations: "1 wait that finds the loss; 1 wrap and 1 drop; then 1 wrap",
        reaches: &["the wrap came first", "the wrap was refused"],
        body: wrap,
        ..MODEL
    },
    Model {
        name: "r6_loss_beside_a_capture",
        claim: "A capture beside the loss of the device ends with a graph or with the loss, and its streams are left alone then.",
        lines: &["R6", "C7"],
        operations: "1 wait that finds the loss; 1 capture of 1 fill, with a fork",
        reaches: &["there is a graph", "the capture failed"],
        body: capture,
        ..MODEL
    },
    Model {
        name: "r6_loss_beside_a_scope",
        claim: "A scope beside the loss of the device ends, and says so.",
        lines: &["R6", "P4"],
        operations: "1 wait that finds the loss; 1 scope with 1 wrap, and 1 fill elsewhere",
        reaches: &["the scope came first", "the scope met the loss"],
        body: scope,
        ..MODEL
    },
    Model {
        name: "r6_loss_beside_the_end",
        claim: "A shutdown beside the loss of the device ends; who knows of it calls nothing more.",
        lines: &["R6", "R5"],
        operations: "1 wait that finds the loss; 1 shutdown; then a second",
        reaches: &["the report names the loss", "the end came first"],
        body: end,
        ..MODEL
    },
    Model {
        name: "r6_loss_beside_the_worker",
        claim: "The worker beside the loss of the device leaks what it has, and ends with the last handle.",
        lines: &["R6", "P11", "R5"],
        operations: "the worker's own loop; 1 wait that finds the loss; 1 drop of a buffer",
        bound: Some(1),
        reaches: &["the worker ended"],
        body: worker,
        ..MODEL
    },
    Model {
        name: "r5_capture_beside_the_end",
        claim: "A capture with a fork beside a shutdown ends, and its streams are destroyed by whoever is later.",
        lines: &["R5", "C7", "R9"],
        operations: "1 capture with a fork; 1 shutdown",
        reaches: &["the capture came first", "the runtime was closed"],
        body: capture_beside_the_end,
        ..MODEL
    },
    Model {
        name: "r5_adoption_beside_the_end",
        claim: "An adopted stream that is used and let go beside a shutdown is taken or refused, and its mark is given back or leaked.",
        lines: &["R5", "R9", "S9"],
        operations: "1 adoption, 1 fill and 1 drop; 1 shutdown",
        reaches: &["the work was taken", "the work was refused"],
        body: adoption_beside_the_end,
        ..MODEL
    },
];

/// A stream with work behind it, whose next wait finds that the device is gone.
fn doomed(device: &Device, runtime: &Runtime<Device>) -> (Stream<Device>, Buffer<u8, Device>) {
    let (stream, [mut buffer]) = buffers(runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    device.fail(Call::StreamSynchronize, ErrorKind::DeviceLost, 0);
    (stream, buffer)
}

/// The thread that finds the loss: it gives back what it had.
fn finds(stream: Stream<Device>, buffer: Buffer<u8, Device>) {
    let found = stream.synchronize();
    assert!(matches!(found, Err(Error::Lost(_))), "R6: a wait that found the loss did not say so");
    drop((stream, buffer));
}

fn poll(completion: &mut Completion<Device>, waker: &Waker) -> Poll<Result<(), Error>> {
    Pin::new(completion).poll(&mut TaskContext::from_waker(waker))
}

fn is_loss<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Lost(_)))
}

fn future(reached: &Reached) {
    // setup: a task that wants to know of work that does not end
    let (device, runtime) = manual(Capabilities::default());
    let (stream, buffer) = doomed(&device, &runtime);
    device.hold_all();
    let mut completion = stream.completion();
    let (task, waker) = Task::new();
    // threads
    let finder = spawn(move || finds(stream, buffer));
    let first = poll(&mut completion, &waker);
    runtime.poll();
    // join
    finder.join().unwrap();
    runtime.poll();
    // claim
    assert!(
        matches!(poll(&mut completion, &waker), Poll::Ready(Err(Error::Lost(_)))),
        "R6: a future does not tell of the loss"
    );
    assert_eq!(task.woken(), u64::from(first.is_pending()), "R8: the loss did not wake a task that waited");
    reached.mark(if first.is_pending() { "it waited" } else { "it was told at once" });
}

fn told_before(reached: &Reached) {
    // setup: a task that waits for work on one stream; the next wait finds the loss
    let (device, runtime) = manual(Capabilities::default());
    let (other, [mut theirs]) = buffers(&runtime);
    other.fill(&mut theirs, 7).expect("the driver accepts all");
    let mut completion = other.completion();
    let (task, waker) = Task::new();
    assert!(poll(&mut completion, &waker).is_pending(), "nobody has told it");
    let (stream, buffer) = doomed(&device, &runtime);
    // threads
    let turn = spawn({
        let runtime = runtime.clone();
        move || runtime.poll()
    });
    finds(stream, buffer);
    // join
    turn.join().unwrap();
    runtime.poll();
    let before = poll(&mut completion, &waker);
    runtime.shutdown(Duration::ZERO);
    // claim
    assert_eq!(poll(&mut completion, &waker), before, "R8: what a future was told changed with the end");
    assert_eq!(task.woken(), 1, "R8: a task that waited was woken not once");
    reached.mark(if before == Poll::Ready(Ok(())) {
        "it was told that the work ended"
    } else {
        "it was told of the loss"
    });
    drop((other, theirs));
}

/// Where the memory of the models is said to lie.
const BASE: usize = 0x60_0000;

fn wrap_raw(runtime: &Runtime<Device>) -> Result<super::tenure::Pinned<u8, Device>, Error> {
    let start = NonNull::new(std::ptr::without_provenance_mut(BASE)).expect("the address is not zero");
    // SAFETY: P4. Nobody ever touches the memory: the device of the models has none.
    unsafe { runtime.wrap_raw(start, 64) }
}

fn wrap(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (stream, buffer) = doomed(&device, &runtime);
    // threads
    let finder = spawn(move || finds(stream, buffer));
    let wrapped = wrap_raw(&runtime);
    let was_wrapped = wrapped.is_ok();
    assert!(was_wrapped || is_loss(&wrapped), "R6: a wrap beside the loss failed otherwise");
    drop(wrapped);
    // join
    finder.join().unwrap();
    // claim
    reached.mark(if was_wrapped { "the wrap came first" } else { "the wrap was refused" });
    device.without_calls("R6: a call was made though the device is known to be lost", &[], || {
        runtime.poll();
        let start = NonNull::new(std::ptr::without_provenance_mut(2 * BASE)).expect("the address is not zero");
        // SAFETY: P4. Nobody ever touches the memory.
        let again = unsafe { runtime.wrap_raw::<u8>(start, 64) };
        assert!(is_loss(&again), "R6: memory was wrapped though the device is known to be lost");
    });
    assert_eq!(device.count(Call::HostUnregister), 0, "R6: a release was made though the device is known to be lost");
}

fn capture(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (stream, buffer) = doomed(&device, &runtime);
    let (other, [mut theirs]) = buffers(&runtime);
    // threads
    let finder = spawn(move || finds(stream, buffer));
    let graph = runtime.capture(|capture| {
        let fork = capture.fork()?;
        fork.fill(&mut theirs, 7)
    });
    // join
    finder.join().unwrap();
    // claim: the device, and
    assert!(graph.is_ok() || is_loss(&graph), "R6: a capture beside the loss failed otherwise");
    reached.mark(if graph.is_ok() { "there is a graph" } else { "the capture failed" });
    device.without_calls("R6: a call was made though the device is known to be lost", &[], || {
        drop((graph, other, theirs));
        runtime.poll();
    });
}

fn scope(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (stream, buffer) = doomed(&device, &runtime);
    let (other, [mut theirs]) = buffers(&runtime);
    let mut memory = vec![0_u8; 64];
    // threads
    let finder = spawn(move || finds(stream, buffer));
    let ended = runtime.scope(|scope| {
        let _pinned = scope.wrap(&mut memory)?;
        other.fill(&mut theirs, 7)
    });
    // join
    finder.join().unwrap();
    // claim: it came to this, and
    assert!(ended.is_ok() || is_loss(&ended), "R6: a scope beside the loss failed otherwise");
    reached.mark(if ended.is_ok() { "the scope came first" } else { "the scope met the loss" });
    let again = runtime.scope(|_| Ok(()));
    assert!(again.is_ok() || is_loss(&again), "R6: a scope after the loss failed otherwise");
    drop((other, theirs));
}

fn end(reached: &Reached) {
    // setup
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let (device, runtime) = manual(capabilities);
    let (stream, buffer) = doomed(&device, &runtime);
    let second = runtime.clone();
    // threads
    let finder = spawn(move || {
        let found = stream.synchronize();
        drop((stream, buffer));
        is_loss(&found)
    });
    let report = runtime.shutdown(Duration::ZERO);
    // join
    assert!(finder.join().unwrap(), "R6: a wait that found the loss did not say so");
    // claim: the device, and
    reached.mark(if report.lost.is_some() { "the report names the loss" } else { "the end came first" });
    let report = device.without_calls("R6: a call was made though the device is known to be lost", &[], || {
        second.shutdown(Duration::ZERO)
    });
    assert!(report.lost.is_some(), "R6: a report after the loss does not name it");
    assert!(report.leaked >= 1, "R5: what a shutdown leaked is not in its report");
}

fn worker(reached: &Reached) {
    // setup
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let device = Device::new(capabilities);
    let runtime = Runtime::new(device.clone()).expect("a runtime can be made");
    let (stream, buffer) = doomed(&device, &runtime);
    // threads: the worker's is the runtime's own
    let finder = spawn(move || finds(stream, buffer));
    // join
    finder.join().unwrap();
    let report = runtime.shutdown(Duration::from_secs(1));
    // claim: the worker's thread ends, and
    assert!(report.lost.is_some(), "R6: a report after the loss does not name it");
    assert_eq!(
        (report.leaked, device.count(Call::Free)),
        (1, 0),
        "R6: memory of a lost device was released, or forgotten"
    );
    reached.mark("the worker ended");
}

fn capture_beside_the_end(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    // threads
    let capturer = spawn({
        let runtime = runtime.clone();
        move || {
            let graph = runtime.capture(|capture| {
                let fork = capture.fork()?;
                fork.fill(&mut buffer, 7)
            });
            let outcome = graph.map(drop);
            drop((buffer, stream));
            outcome
        }
    });
    runtime.clone().shutdown(Duration::ZERO);
    // join
    let outcome = capturer.join().unwrap();
    // claim
    assert!(
        matches!(outcome, Ok(()) | Err(Error::Closed)),
        "R9: a capture beside a shutdown failed otherwise: {outcome:?}"
    );
    reached.mark(if outcome.is_ok() { "the capture came first" } else { "the runtime was closed" });
    assert_eq!(device.open_captures(), 0, "C7: a capture was never ended");
    let report = runtime.shutdown(Duration::ZERO);
    assert_eq!(device.streams_alive(), report.streams_left, "R5: a stream of a capture that outlived the end stays");
}

fn adoption_beside_the_end(reached: &Reached) {
    // setup: a buffer whose last use is elsewhere
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    let raw = device.stream_create(Priority::Normal).expect("the driver accepts all");
    // SAFETY: S9. The device never destroys it.
    let adopted = unsafe { runtime.adopt(raw) }.expect("the driver accepts all");
    // threads
    let user = spawn(move || {
        let outcome = adopted.fill(&mut buffer, 7);
        drop((adopted, buffer, stream));
        outcome
    });
    runtime.clone().shutdown(Duration::ZERO);
    // join
    let outcome = user.join().unwrap();
    // claim: the device, and
    assert!(matches!(outcome, Ok(()) | Err(Error::Closed)), "R9: work beside a shutdown failed otherwise: {outcome:?}");
    reached.mark(if outcome.is_ok() { "the work was taken" } else { "the work was refused" });
    let marks = device.count(Call::EventDestroy);
    runtime.poll();
    assert_eq!(device.count(Call::EventDestroy), marks, "R5: something was given back after the end");
}
