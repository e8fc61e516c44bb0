//! The end of a runtime beside everything, futures, and code of others that releases run: R2, R5, R7 to R10.

use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use super::capture::{buffers, drain, manual};
use super::checker::{SEES_RACES, spawn, yield_now};
use super::device::Device;
use super::ownership::World;
use super::tenure::call_scope::{CallScope, within};
use super::tenure::driver::{Call, Capabilities, ErrorKind, Image};
use super::tenure::error::Error;
use super::tenure::ownership::Access::Write;
use super::tenure::sync::atomic::{AtomicU64, Ordering};
use super::tenure::sync::{Arc, Condvar, Mutex, thread};
use super::tenure::{Completion, Config, HostMemory, Queue, ReclaimMode, Runtime};
use super::{Model, Reached};
use crate::schedule;

/// What the models of this file have in common.
const MODEL: Model = Model { leaves_out: "time: a deadline of zero has passed, any other never comes", ..Model::USUAL };

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "r8_poll_beside_the_telling",
        claim: "A future that is polled beside the turn that tells it is ready then, or its task is woken once.",
        lines: &["R8", "R4"],
        operations: "1 poll of a future; 1 turn; then turns until nothing waits",
        reaches: &["it was told while it waited", "it was told before its task had said whom to wake"],
        body: telling,
        ..MODEL
    },
    Model {
        name: "r8_two_tasks_poll_one_future",
        claim: "Of two tasks that poll one future beside the turn that tells it, the later one is woken, and only that.",
        lines: &["R8"],
        operations: "2 polls of a future by two tasks; 1 turn; then turns until nothing waits",
        reaches: &["the later task waited"],
        body: two_tasks,
        ..MODEL
    },
    Model {
        name: "r8_first_poll_beside_the_end",
        claim: "A future that is first polled beside a shutdown whose work does not end is told so, then or by a wakeup.",
        lines: &["R8", "R5"],
        operations: "1 poll of a future; 1 shutdown whose deadline has passed; then 1 poll",
        reaches: &["it waited, and the end told it", "it came after the end"],
        body: first_poll,
        ..MODEL
    },
    Model {
        name: "r8_end_beside_a_call_that_hangs",
        claim: "The end tells a task although a turn is in a driver call that does not return.",
        lines: &["R8", "R5"],
        operations: "1 turn whose free does not return; 1 shutdown; then 1 poll of a future",
        bound: Some(2),
        reaches: &["the call was in flight"],
        body: hanging,
        ..MODEL
    },
    Model {
        name: "r5_turn_beside_the_end",
        claim: "What a turn has in hand beside a shutdown is released or leaked by the time that both are over.",
        lines: &["R5", "P11"],
        operations: "1 turn; 1 shutdown whose deadline has passed",
        reaches: &["it was leaked"],
        body: turn_beside,
        ..MODEL
    },
    Model {
        name: "r5_empty_turn_beside_the_end",
        claim: "A shutdown that has time destroys the stream of the runtime's own beside a turn that has nothing to do.",
        lines: &["R5"],
        operations: "1 turn; 1 shutdown whose deadline never comes",
        reaches: &["the turn ended first", "the shutdown ended first"],
        body: empty_turn,
        ..MODEL
    },
    Model {
        name: "r9_launch_beside_shutdown",
        claim: "A launch beside a shutdown is taken or refused; one that comes after it is refused, covered or not.",
        lines: &["R9", "R5"],
        operations: "1 covered launch; 1 shutdown; then 1 covered launch, 1 of nothing",
        reaches: &["the launch was taken", "the launch was refused"],
        body: launch,
        ..MODEL
    },
    Model {
        name: "r8_waiter_for_a_capture_beside_the_end",
        claim: "Who waits for a capture that nobody ends is told by the end of the runtime.",
        lines: &["R8", "C9"],
        operations: "1 guarded call beside an announced capture; 1 shutdown",
        reaches: &["it was refused"],
        body: waiter,
        ..MODEL
    },
    Model {
        name: "r5_shutdown_beside_a_holder",
        claim: "A shutdown returns while a thread is inside a stream that was given up.",
        lines: &["R5", "S7"],
        operations: "1 closure that holds a gate until the shutdown is over; 1 shutdown",
        reaches: &["the gate was held throughout"],
        body: holder,
        ..MODEL
    },
    Model {
        name: "r7_one_first_cause",
        claim: "Two calls that find the loss of the device at once give one cause to all.",
        lines: &["R7", "R6"],
        operations: "1 wait and 1 launch, both on a lost device",
        reaches: &["both found it"],
        body: first_cause,
        ..MODEL
    },
    Model {
        name: "r12_dropped_future_beside_a_turn",
        claim: "Of a future that is dropped beside a turn nothing stays with the runtime, though its work never ends.",
        lines: &["R12", "R1"],
        operations: "1 poll and 1 drop of a future; 1 turn; then 1 turn",
        reaches: &["the turn had filed it", "it was gone before the turn"],
        body: dropped_beside,
        ..MODEL
    },
    Model {
        name: "r12_makers_beside_a_device_that_stands_still",
        claim: "Two threads that make things and let them go have as many wait as may, and are refused beyond.",
        lines: &["R12"],
        operations: "by each of 2 threads: 2 modules, loaded and dropped; the device stands still",
        bound: Some(2),
        reaches: &["one was refused"],
        body: makers,
        ..MODEL
    },
    Model {
        name: "r2_worker_beside_a_waker_that_parks",
        claim: "A waker that parks on the worker's thread, and so eats its wakeups, loses no signal.",
        lines: &["R2", "R10"],
        operations: "the worker's own loop, with a waker that parks; 1 host function, 1 drop",
        bound: Some(1),
        reaches: &["both were heard"],
        body: parking,
        ..MODEL
    },
    Model {
        name: "r10_owner_that_waits_for_a_task",
        claim: "An owner's drop that blocks until another task is woken keeps the worker from nothing.",
        lines: &["R10", "R2"],
        threads: 3,
        operations: "the worker's own loop and its thread for owners; 1 drop of a wrap, 1 host function",
        bound: Some(1),
        reaches: &["the owner ended"],
        body: waiting_owner,
        ..MODEL
    },
    Model {
        name: "r10_two_owners_are_dropped",
        claim: "Of two owners that are let go one after the other, each is dropped, whether or not the thread for owners is about to end.",
        lines: &["R10", "P4"],
        threads: 3,
        operations: "the worker's own loop and its threads for owners; 2 drops of wraps",
        bound: Some(2),
        reaches: &["both ended"],
        body: two_owners,
        ..MODEL
    },
    Model {
        name: "o2_question_in_a_hold_beside_a_mover",
        claim: "A question about a buffer, inside of a closure that holds its stream's gate, does not wait for who moves the buffer.",
        lines: &["O2", "O4", "R3"],
        operations: "1 use_on with 1 question; 1 write elsewhere",
        bound: Some(2),
        leaves_out: "loom, which takes who is about to try a lock for one that waits for it: there the question comes first",
        reaches: &["the question came first"],
        body: question_in_a_hold,
        ..MODEL
    },
];

/// A task that counts how often it is woken.
#[derive(Default)]
pub struct Task(AtomicU64);

impl Task {
    /// One, and what wakes it.
    pub fn new() -> (std::sync::Arc<Self>, Waker) {
        let task = std::sync::Arc::new(Self::default());
        (task.clone(), Waker::from(task))
    }

    /// How often it was woken. All threads were joined.
    pub fn woken(&self) -> u64 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Task {
    fn wake(self: std::sync::Arc<Self>) {
        // Relaxed: a count.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What one thread opens and others wait for.
#[derive(Clone, Default)]
struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    fn open(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let mut is_open = self.0.0.lock();
        while !*is_open {
            self.0.1.wait(&mut is_open);
        }
    }
}

fn poll(completion: &mut Completion<Device>, waker: &Waker) -> Poll<Result<(), Error>> {
    Pin::new(completion).poll(&mut TaskContext::from_waker(waker))
}

/// A device without stream-ordered memory, so that a free waits for its work.
fn plain() -> Capabilities {
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    capabilities
}

fn telling(reached: &Reached) {
    // setup
    let (_device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    let mut completion = stream.completion();
    let (task, waker) = Task::new();
    // threads
    let turn = spawn({
        let runtime = runtime.clone();
        move || runtime.poll()
    });
    let first = poll(&mut completion, &waker);
    // join
    turn.join().unwrap();
    drain(&runtime);
    // claim
    let woken = task.woken();
    match first {
        Poll::Pending => assert_eq!(woken, 1, "R8: a task that waited was woken not once"),
        Poll::Ready(_) => assert_eq!(woken, 0, "R8: a task was woken that did not wait"),
    }
    reached.mark_if(first.is_pending(), "it was told while it waited");
    reached.mark_if(first.is_ready(), "it was told before its task had said whom to wake");
    assert_eq!(poll(&mut completion, &waker), Poll::Ready(Ok(())), "R8: what has happened is not told");
    drop((buffer, stream));
    drain(&runtime);
}

fn two_tasks(reached: &Reached) {
    // setup
    let (_device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    let mut completion = stream.completion();
    let ((early, first), (late, second)) = (Task::new(), Task::new());
    // threads
    let turn = spawn({
        let runtime = runtime.clone();
        move || runtime.poll()
    });
    let waits = [&first, &second].map(|waker| poll(&mut completion, waker).is_pending());
    // join
    turn.join().unwrap();
    drain(&runtime);
    // claim
    if waits[1] {
        assert_eq!([early.woken(), late.woken()], [0, 1], "R8: not the task that polled last was woken");
    }
    reached.mark_if(waits[1], "the later task waited");
    drop((buffer, stream));
    drain(&runtime);
}

fn first_poll(reached: &Reached) {
    // setup: work that does not end
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    device.hold_all();
    let mut completion = stream.completion();
    let (task, waker) = Task::new();
    // threads
    let end = spawn(move || runtime.shutdown(Duration::ZERO));
    let first = poll(&mut completion, &waker);
    // join
    end.join().unwrap();
    // claim
    let closed = Poll::Ready(Err(Error::Closed));
    assert_eq!(poll(&mut completion, &waker), closed, "R8: a future waits though the runtime is gone");
    if first.is_pending() {
        assert_eq!(task.woken(), 1, "R8: the end did not wake a task");
    }
    reached.mark_if(first.is_pending(), "it waited, and the end told it");
    reached.mark_if(first == closed, "it came after the end");
    drop((buffer, stream));
}

fn dropped_beside(reached: &Reached) {
    // setup: work that does not end
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    device.hold_all();
    let mut completion = stream.completion();
    // threads
    let turn = spawn({
        let runtime = runtime.clone();
        move || runtime.poll()
    });
    let (_task, waker) = Task::new();
    assert!(poll(&mut completion, &waker).is_pending(), "the work does not end");
    device.without_calls("R1: a drop made a driver call", &[], || drop(completion));
    // join
    let left: usize = turn.join().unwrap();
    reached.mark_if(left > 0, "the turn had filed it");
    reached.mark_if(left == 0, "it was gone before the turn");
    // claim
    runtime.poll();
    assert_eq!(runtime.retired_pending(), 0, "R12: something of a dropped future stays");
    runtime.shutdown(Duration::ZERO);
    drop((buffer, stream));
}

fn makers(reached: &Reached) {
    // setup: a device that stands still, and room for one thing that waits for it
    let device = Device::new(Capabilities::default());
    let config = Config::default().reclaim(ReclaimMode::Manual).backlog_max(1);
    let runtime = Runtime::with(device.clone(), config).expect("a runtime can be made");
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    device.hold_all();
    let make = |runtime: &Runtime<Device>| match runtime.module(Image::Source("")) {
        Ok(module) => {
            drop(module);
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::Backlog { max: 1, .. }), "R12: refused with {error}");
            false
        }
    };
    // threads
    let other = spawn({
        let runtime = runtime.clone();
        move || [make(&runtime), make(&runtime)]
    });
    let mine = [make(&runtime), make(&runtime)];
    // join
    let others = other.join().unwrap();
    // claim
    let waiting = runtime.retired_pending();
    assert!(waiting <= 2, "R12: {waiting} things wait, where one may, and one for each thread but one");
    assert!(!make(&runtime), "R12: one more is made where too many wait");
    reached.mark_if(mine[0] != others[0], "one was refused");
    runtime.shutdown(Duration::ZERO);
    drop((buffer, stream));
}

fn hanging(reached: &Reached) {
    // setup: a task that waits for work that does not end, and memory whose free will not return
    let (device, runtime) = manual(plain());
    let (stream, [mut buffer, unused]) = buffers(&runtime);
    stream.synchronize().expect("the driver accepts all");
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    device.hold_all();
    let mut completion = stream.completion();
    let (task, waker) = Task::new();
    assert!(poll(&mut completion, &waker).is_pending(), "nobody has told it");
    device.block(Call::Free);
    drop(unused);
    // threads
    let turn = spawn({
        let runtime = runtime.clone();
        move || runtime.poll()
    });
    while device.count(Call::Free) == 0 {
        yield_now();
    }
    runtime.clone().shutdown(Duration::ZERO);
    // claim
    let told = poll(&mut completion, &waker);
    assert_eq!(told, Poll::Ready(Err(Error::Closed)), "R8: the end does not tell a task while a call hangs");
    reached.mark("the call was in flight");
    device.unblock();
    // join
    turn.join().unwrap();
    assert_eq!(task.woken(), 1, "R8: the end did not wake a task");
    drop((buffer, stream, runtime));
}

fn empty_turn(reached: &Reached) {
    // setup: a release has given the runtime a stream of its own, and nothing is left to release
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [buffer]) = buffers(&runtime);
    stream.synchronize().expect("the driver accepts all");
    drop((buffer, stream));
    drain(&runtime);
    // threads
    let has_ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let turn = spawn({
        let (runtime, has_ended) = (runtime.clone(), has_ended.clone());
        move || {
            runtime.poll();
            has_ended.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let report = runtime.shutdown(Duration::from_secs(1));
    let first = has_ended.load(std::sync::atomic::Ordering::Relaxed);
    // join
    turn.join().unwrap();
    // claim
    let streams = (device.count(Call::StreamCreate), device.count(Call::StreamDestroy));
    assert_eq!(report.streams_left, 0, "R5: a shutdown with time left a stream");
    assert_eq!(streams.0, streams.1, "R5: a stream that no report names was never destroyed");
    assert_eq!(streams.0, 2, "the runtime's own and the program's");
    reached.mark_if(first, "the turn ended first");
    reached.mark_if(!first, "the shutdown ended first");
}

fn turn_beside(reached: &Reached) {
    // setup: memory with work that does not end
    let (device, runtime) = manual(plain());
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    device.hold_all();
    drop(buffer);
    // threads
    let turn = spawn({
        let runtime = runtime.clone();
        move || runtime.poll()
    });
    let report = runtime.clone().shutdown(Duration::ZERO);
    // join
    turn.join().unwrap();
    // claim
    assert_eq!(runtime.retired_pending(), 0, "R5: what was let go is neither released nor leaked after the end");
    assert_eq!(report.leaked, 1, "R5: what a shutdown leaked is not in its report");
    reached.mark("it was leaked");
    drop((stream, runtime));
}

fn launch(reached: &Reached) {
    // setup: a buffer that its stream covers
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    let before = device.count(Call::Fill);
    // threads
    let launcher = spawn({
        let stream = stream.clone();
        move || {
            let outcome = stream.fill(&mut buffer, 7);
            (buffer, outcome)
        }
    });
    runtime.shutdown(Duration::ZERO);
    // join
    let (mut buffer, outcome) = launcher.join().unwrap();
    // claim
    assert!(matches!(outcome, Ok(()) | Err(Error::Closed)), "R9: a launch beside a shutdown failed otherwise");
    reached.mark_if(outcome.is_ok(), "the launch was taken");
    reached.mark_if(outcome.is_err(), "the launch was refused");
    let taken = u64::from(outcome.is_ok());
    assert_eq!(stream.fill(&mut buffer, 7), Err(Error::Closed), "R9: work was taken after the end");
    assert_eq!(device.count(Call::Fill) - before, taken, "R9: a launch that was refused was made");
    // SAFETY: O1. The closure enqueues nothing.
    let nothing = unsafe { stream.use_on(&[], |_| ()) };
    assert_eq!(nothing, Err(Error::Closed), "R9: work that names no memory was taken after the end");
    drop((buffer, stream));
}

fn waiter(reached: &Reached) {
    // setup: a driver whose guarded calls wait for captures, and a capture that nobody ends
    let mut capabilities = Capabilities::default();
    capabilities.relaxed_protects = false;
    let (_device, runtime) = manual(capabilities);
    let guard = runtime.capture_guard();
    // threads
    let waiter = spawn({
        let runtime = runtime.clone();
        move || runtime.module(Image::Source("")).map(drop)
    });
    runtime.shutdown(Duration::ZERO);
    // join
    let answer = waiter.join().unwrap();
    // claim
    assert_eq!(answer, Err(Error::Closed), "R8: who waits for a capture is not told of the end");
    reached.mark("it was refused");
    drop(guard);
}

fn holder(reached: &Reached) {
    // setup: a stream that was given up
    let (device, runtime) = manual(Capabilities::default());
    let stream = runtime.stream().expect("the pool may make streams");
    // SAFETY: O1. The closure enqueues nothing.
    unsafe { stream.use_on(&[], |_| ()) }.expect("the driver accepts all");
    device.fail(Call::StreamQuery, ErrorKind::Unknown, 0);
    assert!(stream.is_idle().is_err(), "the driver does not answer");
    let (inside, over) = (Latch::default(), Latch::default());
    // threads
    let holder = spawn({
        let (inside, over) = (inside.clone(), over.clone());
        move || {
            let body = |_: &_| {
                inside.open();
                over.wait();
            };
            // SAFETY: O1. The closure enqueues nothing: it stands for a call that does not return.
            unsafe { stream.use_on(&[], body) }
        }
    });
    inside.wait();
    let report = runtime.shutdown(Duration::ZERO);
    over.open();
    // join
    let held = holder.join().unwrap();
    // claim: it came to this
    assert_eq!((held, report.streams_left), (Ok(()), 1), "R5: the stream is not in the report");
    reached.mark("the gate was held throughout");
}

fn first_cause(reached: &Reached) {
    // setup: the next wait finds that the device is gone, and all later calls do
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    let (other, [mut theirs]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    device.fail(Call::StreamSynchronize, ErrorKind::DeviceLost, 0);
    // threads
    let launcher = spawn(move || {
        let answer = other.fill(&mut theirs, 7);
        drop((other, theirs));
        answer
    });
    let waited = stream.synchronize();
    // join
    let launched = launcher.join().unwrap();
    // claim
    let Err(Error::Lost(cause)) = waited else { panic!("R6: a wait that found the loss did not say so") };
    assert_eq!(runtime.lost(), Some(Error::Lost(cause.clone())), "R7: a later cause took the place of the first");
    if let Err(error) = launched {
        assert_eq!(error, Error::Lost(cause), "R7: two calls name two first causes");
        reached.mark("both found it");
    }
    drop((stream, buffer));
}

/// A task that parks where it is woken, until it may go on.
struct Parks {
    inside: Latch,
    thread: Mutex<Option<thread::Thread>>,
    may_go: AtomicU64,
}

impl Wake for Parks {
    fn wake(self: std::sync::Arc<Self>) {
        *self.thread.lock() = Some(thread::current());
        self.inside.open();
        // Acquire: what it was told of comes before it goes on.
        while self.may_go.load(Ordering::Acquire) == 0 {
            thread::park();
        }
    }
}

fn parking(reached: &Reached) {
    // setup: a worker, and a task that waits for work
    let device = Device::new(plain());
    device.await_call(Call::Free);
    let runtime = Runtime::new(device.clone()).expect("a runtime can be made");
    let (stream, [buffer]) = buffers(&runtime);
    let parks = Parks { inside: Latch::default(), thread: Mutex::new(None), may_go: AtomicU64::new(0) };
    let parks = std::sync::Arc::new(parks);
    let waker = Waker::from(parks.clone());
    // SAFETY: O1. The closure enqueues nothing.
    unsafe { stream.use_on(&[], |_| ()) }.expect("the driver accepts all");
    let mut completion = stream.completion();
    // threads: the worker's is the runtime's own
    if poll(&mut completion, &waker).is_pending() {
        while device.run_host_functions() == 0 {
            yield_now();
        }
        parks.inside.wait();
        // Release: as in `wake`.
        parks.may_go.store(1, Ordering::Release);
        let worker = parks.thread.lock().clone();
        worker.expect("it is inside").unpark();
    }
    drop(buffer);
    // join
    device.wait_for(1);
    // claim: the worker was not left asleep
    reached.mark("both were heard");
    drop((completion, stream, runtime));
}

/// An owner whose drop waits for a task.
struct Waits {
    base: usize,
    task: Latch,
    ended: Latch,
}

// SAFETY: P4. Nobody ever touches the memory: the device of the models has none.
unsafe impl HostMemory for Waits {
    type Item = u8;

    fn range(&mut self) -> (NonNull<u8>, usize) {
        let start = NonNull::new(std::ptr::without_provenance_mut(self.base));
        (start.expect("the address is not zero"), 64)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if !schedule::is_over() {
            self.task.wait();
            self.ended.open();
        }
    }
}

struct Opens(Latch);

impl Wake for Opens {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.open();
    }
}

fn waiting_owner(reached: &Reached) {
    // setup: a worker, a task that waits for work, and an owner that waits for the task
    let device = Device::default();
    let runtime = Runtime::new(device.clone()).expect("a runtime can be made");
    let stream = runtime.stream().expect("the pool may make streams");
    let (task, ended) = (Latch::default(), Latch::default());
    let owner = Waits { base: 0x4000, task: task.clone(), ended: ended.clone() };
    let pinned = runtime.wrap(owner).map_err(|failed| failed.error).expect("nothing is in the way");
    // SAFETY: O1. The closure enqueues nothing.
    unsafe { stream.use_on(&[], |_| ()) }.expect("the driver accepts all");
    let mut completion = stream.completion();
    let waker = Waker::from(std::sync::Arc::new(Opens(task.clone())));
    // threads: the worker's, and its owners', are the runtime's own
    drop(pinned);
    if poll(&mut completion, &waker).is_ready() {
        task.open();
    } else {
        while device.run_host_functions() == 0 {
            yield_now();
        }
    }
    // join
    ended.wait();
    // claim: it came to this
    reached.mark("the owner ended");
    drop((completion, stream, runtime));
}

fn two_owners(reached: &Reached) {
    // setup: a worker, and two owners that say that they ended
    let device = Device::default();
    let runtime = Runtime::new(device.clone()).expect("a runtime can be made");
    let open = Latch::default();
    open.open();
    let ended = [Latch::default(), Latch::default()];
    let pinned = [(0x4000, &ended[0]), (0x5000, &ended[1])].map(|(base, ended)| {
        let owner = Waits { base, task: open.clone(), ended: ended.clone() };
        runtime.wrap(owner).map_err(|failed| failed.error).expect("nothing is in the way")
    });
    // threads: the worker's, and its owners', are the runtime's own
    for (pinned, ended) in pinned.into_iter().zip(&ended) {
        drop(pinned);
        ended.wait();
    }
    // join: they ended
    // claim: it came to this
    reached.mark("both ended");
    drop(runtime);
}

fn question_in_a_hold(reached: &Reached) {
    // setup: the held stream covers the buffer
    let world = Arc::new(World::plain());
    let (stream, other) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&stream, &[(&x, Write)]);
    let question = || {
        let gate = stream.gate();
        let before = world.device.count(Call::Launch);
        let busy = within(CallScope::UseOn, || x.record.is_busy(Write));
        drop(gate);
        (before, busy)
    };
    let early = SEES_RACES.then(question);
    // threads
    let mover = spawn({
        let (world, x) = (world.clone(), x.clone());
        move || world.launch(&other, &[(&x, Write)])
    });
    let (before, busy) = early.unwrap_or_else(question);
    // join
    mover.join().unwrap();
    // claim: both ended, and
    reached.mark_if(before == 1, "the question came first");
    assert!(busy, "O2: work was enqueued, and the buffer looked clean");
}
