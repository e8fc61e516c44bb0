//! The end of a runtime, and code of others that its releases run: R4, R5, R8 to R10.

use std::future::Future;
use std::pin::{Pin, pin};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tenure::driver::{Call, Driver, ErrorKind, Priority};
use tenure::{Completion, Error, Freed, HostMemory, Misuse, Queue, Result};

use super::{eventually, list_cases};
use crate::bench::Bench;
#[cfg(target_os = "linux")]
use crate::matrix::{answer::Answer, child};
use crate::rig::{Brake, Rig, Tapped, deadline};

list_cases!("life": raw [] contract [
    r9_after_the_end_streams_take_no_work,
    r9_after_the_end_captures_and_graphs_do_nothing_new,
    r9_what_asks_or_lets_go_works_after_the_end,
    r5_a_thread_inside_a_stream_holds_up_no_shutdown,
    r5_announced_captures_hold_up_no_shutdown,
    r5_an_unregister_that_waits_holds_up_no_shutdown,
    r5_a_shutdown_of_any_length_can_be_asked_for,
    r5_a_shutdown_has_its_own_deadline,
    r8_the_end_resolves_what_waits,
    r8_a_future_first_polled_after_the_end_resolves,
    r8_the_latest_waker_is_woken,
    r10_owners_of_one_graph_may_all_panic,
    r10_an_owner_that_panics_takes_nothing_along,
    r10_the_worker_sleeps_by_its_word,
    r10_a_stuck_owner_holds_up_nobody_else,
    r10_an_owner_may_use_the_runtime,
    p7_an_explicit_free_says_what_became_of_it,
    p11_a_scope_asks_again_after_a_failed_wait,
    r7_a_loss_is_the_calls_that_showed_it,
    r5_a_forked_child_is_refused,
]);

type Kept<B> = Completion<Tapped<B>>;

/// A host block whose end does something first.
struct Owner {
    memory: Vec<u32>,
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl Owner {
    fn new(end: impl FnOnce() + Send + 'static) -> Self {
        Self { memory: vec![1; 4], end: Some(Box::new(end)) }
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

// SAFETY: P4. The vector owns its block, which does not move with it.
unsafe impl HostMemory for Owner {
    type Item = u32;

    fn range(&mut self) -> (NonNull<u32>, usize) {
        (NonNull::from(&mut *self.memory).cast(), self.memory.len())
    }
}

/// Without the hook: its report would look like that of a failed case.
fn panic_quietly() {
    std::panic::resume_unwind(Box::new("an owner's"));
}

struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counting() -> (Arc<Counts>, Waker) {
    let counts = Arc::new(Counts(AtomicUsize::new(0)));
    (counts.clone(), Waker::from(counts))
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs `end` on a thread of its own; it must return in time.
fn returns<R: Send + 'static>(what: &str, end: impl FnOnce() -> R + Send + 'static) -> R {
    let (told, done) = channel();
    std::thread::spawn(move || told.send(end()));
    done.recv_timeout(deadline()).unwrap_or_else(|_| panic!("R5: {what} does not return"))
}

fn r9_after_the_end_streams_take_no_work<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::working(bench);
    let (stream, other, runtime, tap) = (rig.stream(), rig.stream(), rig.runtime.clone(), rig.tap.clone());
    let (mut x, mut y) = (rig.four(&stream, 1), rig.four(&other, 1));
    let (from, event) = (rig.four(&stream, 2), stream.record().expect("an event"));
    let theirs = tap.stream_create(Priority::Normal).expect("a stream of somebody else's");
    // SAFETY: S9. The stream is never destroyed.
    let adopted = unsafe { runtime.adopt(theirs) }.expect("an adopted stream");
    stream.synchronize().expect("a wait");
    other.synchronize().expect("a wait");
    drop(rig.shut_down(Duration::from_millis(200)));
    let mark = tap.log.mark();
    let closed = Err(Error::Closed);
    assert_eq!(stream.fill(&mut x, 1), closed, "R9: work that is covered");
    assert_eq!(stream.fill(&mut y, 1), closed, "R9: work that would move the memory");
    assert_eq!(stream.copy(&from, &mut x), closed, "R9: a copy");
    assert_eq!(adopted.fill(&mut y, 1), closed, "R9: work on an adopted stream");
    assert_eq!(stream.download(&x).map(drop), closed, "R9: a download");
    assert_eq!(stream.read(&x).map(drop), closed, "R9: a read");
    assert_eq!(stream.record().map(drop), closed, "R9: an event");
    assert_eq!(other.wait_event(&event), closed, "R9: an edge");
    // SAFETY: O1. The closures enqueue nothing.
    let nothing = unsafe { [stream.use_on(&[], |_| ()), adopted.use_on(&[], |_| ())] };
    assert_eq!(nothing, [closed.clone(), closed], "R9: work that names no memory");
    let taken = (0..100).filter(|_| stream.write(&[2; 4], &mut x).is_ok()).count();
    assert_eq!((taken, runtime.retired_pending()), (0, 0), "R9: no write is taken, and no snapshot kept");
    assert_eq!(tap.log.mine_since(mark), [], "R9: before the driver sees any of it");
}

fn r9_after_the_end_captures_and_graphs_do_nothing_new<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let (stream, runtime) = (rig.stream(), rig.runtime.clone());
    let mut x = rig.four(&stream, 1);
    let graph = runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
    let mut executable = graph.instantiate().expect("an executable");
    stream.synchronize().expect("a wait");
    let rig = Mutex::new(Some(rig));
    let recorded = runtime.capture(|capture| {
        let rig = rig.lock().expect("no panic").take().expect("one rig");
        drop(rig.shut_down(Duration::from_millis(1)));
        assert_eq!(capture.fork().map(drop), Err(Error::Closed), "R9: a fork");
        capture.fill(&mut x, 7)
    });
    assert_eq!(recorded.map(drop), Err(Error::Closed), "R9: what is recorded after the end");
    assert_eq!(graph.instantiate().map(drop), Err(Error::Closed), "R9: an executable");
    assert_eq!(executable.update(&graph), Err(Error::Closed), "R9: an update");
    assert_eq!(executable.launch(&stream), Err(Error::Closed), "R9: a replay");
    let driver = bench.driver();
    driver.stream_synchronize(&driver.stream_create(Priority::Normal).expect("a stream")).expect("the driver goes on");
}

fn r9_what_asks_or_lets_go_works_after_the_end<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let (stream, runtime) = (rig.stream(), rig.runtime.clone());
    let mut x = rig.four(&stream, 1);
    let mut pinned = runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    rig.bump(&stream, &mut x, 1).expect("a launch");
    rig.bump(&stream, &mut pinned, 1).expect("a launch");
    let (event, completion) = (stream.record().expect("an event"), stream.completion());
    let download = stream.download(&x).expect("a download");
    drop(rig.shut_down(Duration::ZERO));
    stream.synchronize().expect("R9: a wait");
    x.synchronize().expect("R9: a wait for a buffer");
    event.synchronize().expect("R9: a wait for an event");
    completion.wait().expect("R9: a wait by a future");
    assert_eq!(download.wait().expect("R9: a wait for elements"), [2; 4], "R9: they are there");
    assert_eq!(stream.is_idle(), Ok(true), "R9: a question");
    assert_eq!(pinned.read().expect("R9: a view")[..], [2; 4], "R9: a view");
    let owner: Vec<u32> = pinned.into_owner().map_err(|(error, _)| error).expect("R9: memory comes back");
    assert_eq!((owner[..].to_vec(), runtime.poll()), (vec![2; 4], 0), "R9: nothing waits");
    drop((x, event, stream));
    assert_eq!(runtime.retired_pending(), 0, "R5: what is let go after the end is leaked at once");
}

fn r5_a_thread_inside_a_stream_holds_up_no_shutdown<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let (stream, other) = (rig.stream(), rig.stream());
    let mut x = rig.four(&other, 1);
    // An event of its waits; then it is given up.
    rig.bump(&stream, &mut x, 1).expect("a launch");
    rig.tap.rules.fail(Call::StreamQuery, 1, ErrorKind::Unknown);
    let _answer = stream.is_idle();
    rig.tap.rules.clear();
    let ((inside, is_inside), (go, goes)) = (channel(), channel::<()>());
    let stuck = std::thread::spawn(move || {
        let body = |_: &_| {
            inside.send(()).expect("the case waits");
            let _ended = goes.recv();
        };
        // SAFETY: O1. The closure enqueues nothing: it stands for a driver call that does not return.
        let _refused = unsafe { stream.use_on(&[], body) };
    });
    let _never = is_inside.recv_timeout(Duration::from_secs(1));
    let report = returns("a shutdown beside a thread in a driver call", move || {
        drop((x, other));
        rig.shut_down(Duration::from_millis(50))
    });
    assert!(!report.is_clean(), "R5: it says what is left: {report:?}");
    drop(go);
    stuck.join().expect("it ends");
}

fn r5_announced_captures_hold_up_no_shutdown<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let x = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    drop(x);
    rig.drain();
    let (runtime, guard) = (rig.runtime.clone(), rig.runtime.capture_guard());
    let waiter = runtime.clone();
    let (told, waited) = channel();
    // Where guarded calls wait for captures, this one does.
    std::thread::spawn(move || told.send(waiter.wrap(vec![1_u32; 4]).map(drop).map_err(Error::from)));
    returns("a shutdown beside an announced capture", move || {
        drop(stream);
        rig.shut_down(Duration::from_millis(50))
    });
    let answer = waited.recv_timeout(deadline()).expect("R8: the end wakes whoever waits for a capture");
    assert!(matches!(answer, Ok(()) | Err(Error::Closed)), "R8: {answer:?}");
    drop((guard, runtime));
}

fn r5_an_unregister_that_waits_holds_up_no_shutdown<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P3", "P4", "P7", "R5"]);
    let rig = Rig::new(bench);
    let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    // A stream that the runtime does not know of: some drivers' unregister waits for the whole device.
    let brake = Brake::new(bench);
    drop(pinned);
    let begun = Instant::now();
    let _report =
        returns("a shutdown beside a device that stands still", move || rig.shut_down(Duration::from_millis(50)));
    assert!(begun.elapsed() < deadline(), "R5: in time");
    brake.release();
}

fn r5_a_shutdown_of_any_length_can_be_asked_for<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    drop(rig.four(&rig.stream(), 1));
    let report = returns("a shutdown that may take as long as it will", move || rig.shut_down(Duration::MAX));
    assert!(report.is_clean(), "R5: {report:?}");
}

fn r8_the_end_resolves_what_waits<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    for rig in [Rig::new(bench), Rig::working(bench)] {
        let stream = rig.stream();
        let mut x = rig.four(&stream, 1);
        stream.synchronize().expect("a wait");
        let brake = Brake::new(bench);
        brake.hold(&stream);
        rig.bump(&stream, &mut x, 1).expect("a launch");
        let (mut one, mut other) = (pin!(stream.completion()), Box::pin(stream.completion()));
        let (counts, waker) = counting();
        assert!(one.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it is held");
        assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it is held");
        // Filed, and asked for.
        rig.runtime.poll();
        drop(rig.shut_down(Duration::ZERO));
        assert_eq!(counts.0.load(Ordering::Relaxed), 2, "R8: the end wakes every task");
        assert_eq!(poll(one.as_mut()), Poll::Ready(Err(Error::Closed)), "R8: it is not known to have happened");
        brake.release();
        stream.synchronize().expect("a wait");
        assert_eq!(poll(other.as_mut()), Poll::Ready(Ok(())), "R8: now it is");
    }
}

fn r8_a_future_first_polled_after_the_end_resolves<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::working(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let futures: Vec<Kept<B>> = (0..2).map(|_| stream.completion()).collect();
    drop(rig.shut_down(Duration::ZERO));
    let [early, late]: [_; 2] = futures.try_into().expect("two");
    assert_eq!(poll(pin!(early)), Poll::Ready(Err(Error::Closed)), "R8: nobody would tell it later");
    brake.release();
    stream.synchronize().expect("a wait");
    assert_eq!(poll(pin!(late)), Poll::Ready(Ok(())), "R8: the true result, where that is known");
}

fn r8_the_latest_waker_is_woken<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let mut completion = pin!(stream.completion());
    let ((first, early), (second, late)) = (counting(), counting());
    for waker in [&early, &late] {
        assert!(completion.as_mut().poll(&mut Context::from_waker(waker)).is_pending(), "it is held");
    }
    rig.runtime.poll();
    brake.release();
    stream.synchronize().expect("a wait");
    rig.drain();
    let woken = [first, second].map(|counts| counts.0.load(Ordering::Relaxed));
    assert_eq!(woken, [0, 1], "R8: the task that polled last, and only that");
    assert_eq!(poll(completion.as_mut()), Poll::Ready(Ok(())), "R8: it has happened");
    drop(stream);
    rig.close();
}

fn r10_owners_of_one_graph_may_all_panic<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let ended = Arc::new(AtomicUsize::new(0));
    let owner = || {
        let ended = ended.clone();
        Owner::new(move || {
            ended.fetch_add(1, Ordering::Relaxed);
            panic_quietly();
        })
    };
    let mut pins = [(); 3].map(|()| rig.runtime.wrap(owner()).expect("a wrap"));
    let graph = rig.runtime.capture(|capture| pins.iter_mut().try_for_each(|pin| rig.bump(capture, pin, 1)));
    let executable = graph.and_then(|graph| graph.instantiate()).expect("an executable");
    drop((pins, executable));
    rig.drain();
    assert_eq!(ended.load(Ordering::Relaxed), 3, "R10: each is dropped");
    let told = rig.runtime.take_release_errors();
    assert!(told.contains(&Error::Misuse(Misuse::PanickedInRelease)), "R10: and it is told: {told:?}");
    rig.close();
}

fn r10_an_owner_that_panics_takes_nothing_along<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let x = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    rig.drain();
    let mut part = rig.runtime.wrap(Owner::new(panic_quietly)).expect("a wrap");
    let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut part, 1)).expect("a graph");
    let executable = graph.instantiate().expect("an executable");
    drop((part, graph));
    let brake = Brake::new(bench);
    brake.hold(&stream);
    drop(executable);
    // Retired after it, and to be written later.
    drop(stream.download(&x));
    let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rig.runtime.poll()));
    assert!(polled.is_ok(), "R10: the panic ends where the owner is dropped");
    brake.release();
    stream.synchronize().expect("a wait");
    drop((x, stream));
    rig.drain();
    rig.close();
}

/// Parks as standard channels do, and so takes the token of a wakeup.
fn wait_for(go: &Receiver<()>) {
    let _gone = go.recv_timeout(deadline());
    std::thread::park_timeout(Duration::from_millis(1));
}

fn r10_the_worker_sleeps_by_its_word<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    let tap = rig.tap.clone();
    let ((told, is_waking), (go, goes)) = (channel::<()>(), channel::<()>());
    struct Waits(Mutex<(Sender<()>, Receiver<()>)>);
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {
            let inside = self.0.lock().expect("one task");
            inside.0.send(()).expect("the case waits");
            wait_for(&inside.1);
        }
    }
    let waker = Waker::from(Arc::new(Waits(Mutex::new((told, goes)))));
    let stream = rig.stream();
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let mut completion = Box::pin(stream.completion());
    assert!(completion.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it is held");
    brake.release();
    is_waking.recv_timeout(deadline()).expect("the worker wakes the task");
    // The wakeup that the worker's own thread is told now is eaten by the task's.
    drop((completion, stream, rig));
    std::thread::sleep(Duration::from_millis(20));
    go.send(()).expect("the task waits");
    eventually("R10: the worker comes to the end", || {
        tap.log.returned(Call::ModuleUnload) == 1 && tap.log.returned(Call::StreamDestroy) > 0
    });
}

fn r10_a_stuck_owner_holds_up_nobody_else<B: Bench>(bench: &B) {
    bench.allow(&["R5", "P7", "O6"]);
    let rig = Rig::working(bench);
    let ((told, is_inside), (go, goes)) = (channel::<()>(), channel::<()>());
    let owner = Owner::new(move || {
        told.send(()).expect("the case waits");
        let _ended = goes.recv();
    });
    drop(rig.runtime.wrap(owner).expect("a wrap"));
    is_inside.recv_timeout(deadline()).expect("the owner is dropped");
    let stream = rig.stream();
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let mut completion = pin!(stream.completion());
    let (counts, waker) = counting();
    assert!(completion.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it is held");
    brake.release();
    eventually("R10: a task is woken beside it", || counts.0.load(Ordering::Relaxed) == 1);
    // A task counts as told when its waker has returned, and code is unloaded by a turn: both before the short deadline.
    let runtime = rig.runtime.clone();
    drop((stream, rig));
    eventually("R10: a poll returns, and says that one thing is left", || runtime.poll() == 1);
    let report =
        returns("a shutdown beside an owner that does not end", move || runtime.shutdown(Duration::from_millis(50)));
    assert_eq!(report.leaked, 1, "R5: the one that has not ended: {report:?}");
    drop(go);
}

fn r10_an_owner_may_use_the_runtime<B: Bench>(bench: &B) {
    for rig in [Rig::new(bench), Rig::working(bench)] {
        let (runtime, stream) = (rig.runtime.clone(), rig.stream());
        let (told, answer) = channel();
        let owner = Owner::new(move || {
            let used = || -> Result<Vec<u32>> {
                let x = stream.upload(&[3; 4])?;
                drop(runtime.wrap(vec![1_u32; 4])?);
                runtime.poll();
                runtime.trim();
                stream.read(&x)
            };
            let _gone = told.send(used());
            drop((stream, runtime));
        });
        drop(rig.runtime.wrap(owner).expect("a wrap"));
        rig.runtime.poll();
        let used = answer.recv_timeout(deadline()).expect("R10: it returns");
        assert_eq!(used, Ok(vec![3; 4]), "R10: and works");
        let runtime = rig.runtime.clone();
        let (told, answer) = channel();
        let last = Owner::new(move || {
            let report = runtime.shutdown(deadline());
            let _gone = told.send(report.leaked);
        });
        drop(rig.runtime.wrap(last).expect("a wrap"));
        rig.runtime.poll();
        assert_eq!(answer.recv_timeout(deadline()), Ok(0), "R10: a shutdown in there returns, and leaks nothing");
        assert_eq!(rig.shut_down(deadline()).streams_left, 0, "R5: the streams are destroyed");
    }
}

fn p7_an_explicit_free_says_what_became_of_it<B: Bench>(bench: &B) {
    // What the driver refuses to take back stays.
    bench.allow(&["O6", "P7"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (x, y, z) = (rig.four(&stream, 1), rig.four(&stream, 1), rig.four(&stream, 1));
    stream.synchronize().expect("a wait");
    rig.drain();
    let freed = || rig.tap.log.returned(Call::Free) + rig.tap.log.returned(Call::FreeAsync);
    assert_eq!((x.free(), freed()), (Ok(Freed::Now), 1), "P7: at once");
    let guard = rig.runtime.capture_guard();
    let (said, made) = (y.free(), freed());
    let is_deferred = made == 1;
    assert_eq!(said, Ok(if is_deferred { Freed::Deferred } else { Freed::Now }), "P7: {made} frees were made");
    drop(guard);
    rig.drain();
    assert_eq!(freed(), 2, "C3: what was put off is done");
    for call in [Call::Free, Call::FreeAsync] {
        rig.tap.rules.fail_always(call, ErrorKind::Unknown);
    }
    let refused = z.free().map_err(|error| error.failure().map(|failure| failure.kind));
    assert_eq!(refused, Err(Some(ErrorKind::Unknown)), "R7: a refusal is the caller's");
    rig.tap.rules.clear();
    let stats = rig.runtime.stats();
    assert_eq!((stats.leaked, stats.retired_pending), (1, 0), "P11: and the memory is counted: {stats:?}");
    drop(stream);
    drop(rig.shut_down(deadline()));
}

fn p11_a_scope_asks_again_after_a_failed_wait<B: Bench>(bench: &B) {
    bench.allow(&["R5", "S7"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = [1_u32; 4];
    rig.tap.rules.fail(Call::StreamSynchronize, 1, ErrorKind::NotPermitted);
    let ended = rig.runtime.scope(|scope| {
        let mut pinned = scope.wrap(&mut memory)?;
        rig.bump(&stream, &mut pinned, 1)
    });
    assert_eq!((ended, memory), (Ok(()), [2; 4]), "P11: the work has ended, and the driver says so when asked again");
    drop(stream);
    drop(rig.shut_down(deadline()));
}

fn r7_a_loss_is_the_calls_that_showed_it<B: Bench>(bench: &B) {
    bench.allow(&["R5", "P7", "O6"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    stream.fill(&mut x, 1).expect("a fill");
    rig.tap.rules.fail(Call::ExchangeCaptureMode, 1, ErrorKind::DeviceLost);
    let answer = stream.synchronize();
    let Err(Error::Lost(cause)) = &answer else { panic!("R6: {answer:?} does not say so") };
    assert_eq!(cause.call, Call::StreamSynchronize, "R7: it is what was asked for");
    assert_eq!(rig.runtime.lost(), Some(Error::Lost(cause.clone())), "R7: one cause for all");
    drop((x, stream));
    drop(rig.shut_down(Duration::from_millis(50)));
}

/// The worker's own time is for the end of the last handle alone.
fn r5_a_shutdown_has_its_own_deadline<B: Bench>(bench: &B) {
    let mut config = tenure::Config::default();
    config.drain = Duration::ZERO;
    let rig = Rig::with(bench, config);
    let stream = rig.stream();
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut pinned, 1).expect("a launch");
    drop((pinned, stream));
    let report = std::thread::scope(|scope| {
        let ending = scope.spawn(|| rig.shut_down(deadline()));
        std::thread::sleep(Duration::from_millis(50));
        brake.release();
        ending.join().expect("a shutdown does not panic")
    });
    assert!(report.is_clean(), "R5: the worker leaked what there was time for: {report:?}");
}

#[cfg(target_os = "linux")]
fn r5_a_forked_child_is_refused<B: Bench>(bench: &B) {
    let forked = Error::from(Misuse::Forked);
    for rig in [Rig::new(bench), Rig::working(bench)] {
        let (stream, other) = (rig.stream(), rig.stream());
        let x = rig.four(&stream, 1);
        let pin = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
        let (event, completion) = (stream.record().expect("an event"), stream.completion());
        // Taken out in the child alone: here they stay.
        let mut handles = Some((rig, stream, other, x, pin, event, completion));
        let mut call = || {
            let (rig, stream, other, mut x, pin, event, completion) =
                handles.take().expect("the child has them as well");
            let refused = [
                rig.runtime.stream().map(drop),
                rig.runtime.module(tenure::driver::Image::Source("")).map(drop),
                rig.runtime.alloc_host::<u32>(4).map(drop),
                rig.runtime.wrap(vec![1_u32; 4]).map(drop).map_err(|refused| refused.error),
                rig.runtime.capture(|_| Ok(())).map(drop),
                stream.alloc::<u32>(4).map(drop),
                stream.upload(&[1_u32; 4]).map(drop),
                stream.read(&x).map(drop),
                stream.download(&x).map(drop),
                stream.synchronize(),
                stream.is_idle().map(drop),
                stream.record().map(drop),
                other.wait_event(&event),
                rig.bump(&other, &mut x, 1),
                event.synchronize(),
                completion.wait(),
            ];
            if let Some(at) = refused.iter().position(|answer| answer.as_ref() != Err(&forked)) {
                return Answer::Wrong(format!("call {at} answers {:?}", refused[at]));
            }
            drop((x, pin, event, stream, other));
            rig.runtime.poll();
            rig.runtime.trim();
            drop(rig.shut_down(Duration::from_millis(10)));
            Answer::Works
        };
        let answer = child::once(&mut call, deadline());
        assert_eq!(answer, Answer::Works, "R5: in a child every call returns at once and is refused");
        let (rig, stream, other, x, pin, event, completion) = handles.expect("the parent's are as they were");
        stream.synchronize().expect("the parent goes on");
        drop((stream, other, x, pin, event, completion));
        rig.close();
    }
}

/// Nothing tells a child elsewhere.
#[cfg(not(target_os = "linux"))]
fn r5_a_forked_child_is_refused<B: Bench>(_bench: &B) {}
