//! Every place that a call can be made from, and every state that the runtime can be in.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::driver::{Driver, Priority};
use tenure::pinned::HostMemory;
use tenure::{Completion, Queue, Result, Runtime};
use tenure_sim::code::Code;

use crate::bench::Bench;
use crate::rig::{Brake, deadline};

use super::answer::Answer;
use super::call::{self, Call};
use super::watch::words;
use super::world::{D, Objects, World};

/// Where a call can be made from.
pub const PLACES: &[&str] = &[
    "plain thread",
    "use_on of another stream",
    "use_on of the same stream",
    "capture body",
    "fork in a capture",
    "scope body",
    "host function",
    "owner's drop",
    "waker",
    "another runtime's use_on",
    "another runtime's capture",
    "another runtime's fork in a capture",
    "another runtime's scope body",
    "another runtime's owner's drop",
    "another runtime's waker",
    "end of a thread",
    "async task",
];

/// What the runtime can be like when the call comes.
pub const STATES: &[&str] = &[
    "open",
    "device standing still",
    "capture open elsewhere",
    "capture of other code, announced",
    "draining",
    "shut",
    "lost",
    "driver gone",
    super::child::COLUMN,
    "waits fail",
];

/// The call after which handles leak.
const SHUTDOWN: &str = "Runtime::shutdown";

/// Polls once. Pending is fine.
///
/// # Errors
/// What the future gives.
pub fn poll_once<F: Future<Output = Result<T>> + Unpin, T>(future: &mut F) -> Result<()> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome.map(drop),
        Poll::Pending => Ok(()),
    }
}

type Body = Box<dyn FnOnce() + Send>;

/// One call that is carried somewhere to be made: exactly once, wherever that is.
#[derive(Clone)]
pub struct Errand {
    body: Arc<Mutex<Option<Body>>>,
}

impl Errand {
    /// The call on these objects, and where its answer comes. The objects come back as well, to be dropped outside of
    /// the place.
    pub fn new(call: &'static Call, mut objects: Objects) -> (Self, Receiver<(Answer, Option<Objects>)>) {
        let (told, answer) = channel();
        let body = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| Answer::of(&(call.run)(&mut objects))));
            let outcome = outcome.unwrap_or_else(|panic| Answer::Wrong(format!("panic: {}", words(&*panic))));
            let _ = told.send((outcome, Some(objects)));
        };
        (Self { body: Arc::new(Mutex::new(Some(Box::new(body)))) }, answer)
    }

    /// Something else than a call.
    pub fn of(body: impl FnOnce() + Send + 'static) -> Self {
        Self { body: Arc::new(Mutex::new(Some(Box::new(body)))) }
    }

    /// Makes the call, the first time.
    pub fn run(&self) {
        let body = self.body.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(body) = body {
            body();
        }
    }
}

/// Memory whose owner's drop runs an errand.
pub struct Owner {
    memory: Vec<u32>,
    errand: Errand,
}

impl Owner {
    /// Some memory.
    pub fn new(errand: Errand) -> Self {
        Self { memory: vec![0; 4], errand }
    }
}

// SAFETY: P4. The vector owns its heap block, which does not move with this.
unsafe impl HostMemory for Owner {
    type Item = u32;

    fn range(&mut self) -> (NonNull<u32>, usize) {
        (NonNull::from(&mut *self.memory).cast(), self.memory.len())
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.errand.run();
    }
}

/// A waker that runs an errand.
struct Alarm(Errand);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.run();
    }
}

/// A waker that runs an errand.
pub fn waker(errand: Errand) -> Waker {
    Waker::from(Arc::new(Alarm(errand)))
}

/// Runs the call of the row in the place of the column.
pub fn in_place(profile: &'static str, row: &'static str, column: &'static str) -> Answer {
    let mut world = World::new(profile);
    world.leaks_allowed = row == SHUTDOWN;
    let foreign = column.strip_prefix("another runtime's ");
    let second = foreign.map(|_| Runtime::new(world.tap.clone()).expect("a second runtime"));
    let objects = world.objects();
    let same = objects.stream.clone();
    let (errand, answer) = Errand::new(call::named(row), objects);
    let runtime = second.as_ref().unwrap_or(&world.runtime);
    // The future whose waker makes the call: it tells nobody once it is gone.
    let mut waiting = None;
    match foreign.unwrap_or(column) {
        "plain thread" => errand.run(),
        "use_on of another stream" | "use_on" => hold(&runtime.stream().expect("a stream"), &errand),
        "use_on of the same stream" => hold(&same, &errand),
        "capture body" | "capture" => {
            let _graph = runtime.capture(|_| {
                errand.run();
                Ok(())
            });
        }
        "fork in a capture" => {
            let _graph = runtime.capture(|capture| {
                let fork = capture.fork()?;
                errand.run();
                fork.join(capture)
            });
        }
        "scope body" => {
            let _ = runtime.scope(|_| {
                errand.run();
                Ok(())
            });
        }
        "host function" => in_host_function(&world, &errand),
        "owner's drop" => drop(runtime.wrap(Owner::new(errand.clone())).expect("a wrap")),
        "waker" => waiting = Some(in_waker(&world, runtime, &errand)),
        "end of a thread" => at_the_end_of_a_thread(errand.clone()),
        "async task" => block_on(async { errand.run() }),
        other => unreachable!("no place {other}"),
    }
    drop((same, errand));
    let answer = take(&answer);
    drop(waiting);
    if let Some(second) = second {
        drop(second.shutdown(Duration::from_secs(1)));
    }
    match world.end(answer) {
        // The program's mistake, which the simulator tells: nothing may call the driver from there.
        Answer::Wrong(finding) if column == "host function" && finding.starts_with("R2:") => {
            Answer::Refused("R2".to_owned())
        }
        answer => answer,
    }
}

/// Waits for the answer; the objects go here, on a plain thread.
fn take(answer: &Receiver<(Answer, Option<Objects>)>) -> Answer {
    match answer.recv_timeout(deadline() / 3) {
        Ok((answer, objects)) => {
            drop(objects);
            answer
        }
        Err(_) => Answer::Hung("the place was reached never, or the call does not return".to_owned()),
    }
}

fn hold(stream: &tenure::Stream<D>, errand: &Errand) {
    // SAFETY: O1. The body enqueues nothing on the stream itself.
    unsafe { stream.use_on(&[], |_| errand.run()) }.expect("the closure runs");
}

fn in_host_function(world: &World, errand: &Errand) {
    let driver = world.tap.inner();
    let raw = driver.stream_create(Priority::Normal).expect("a stream");
    let errand = errand.clone();
    driver.launch_host_function(&raw, Arc::new(move || errand.run())).expect("a host function");
    driver.stream_synchronize(&raw).expect("a wait");
    // SAFETY: S6. The stream is this function's own, and idle.
    unsafe { driver.stream_destroy(&raw) }.expect("the stream goes");
}

/// A future of work that stands still is polled; then the work goes on, and the runtime wakes the task.
fn in_waker(world: &World, runtime: &Runtime<D>, errand: &Errand) -> Completion<D> {
    let stream = runtime.stream().expect("a stream");
    let mut buffer = stream.alloc::<u32>(4).expect("a buffer");
    let brake = Brake::new(&world.bench);
    brake.hold(&stream);
    stream.fill(&mut buffer, 1).expect("a fill");
    let mut completion = stream.completion();
    let waker = waker(errand.clone());
    let polled = Pin::new(&mut completion).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "the work stands still");
    brake.release();
    stream.synchronize().expect("a wait");
    completion
}

fn at_the_end_of_a_thread(errand: Errand) {
    struct Last(Errand);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.run();
        }
    }
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    let thread = std::thread::spawn(move || LAST.with(|last| *last.borrow_mut() = Some(Last(errand))));
    drop(thread.join());
}

/// Drives a future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(Duration::from_millis(10)),
        }
    }
}

/// Runs the call of the row in the state of the column.
pub fn in_state(profile: &'static str, row: &'static str, column: &'static str) -> Answer {
    let mut world = World::new(profile);
    // A wait that fails leaves what it was for in use, as far as anybody knows.
    // Handles that outlive a shutdown leak.
    world.leaks_allowed = ["waits fail", "shut", "draining"].contains(&column) || row == SHUTDOWN;
    let mut objects = world.objects();
    let call = call::named(row);
    let mut run = |world: &World| {
        let _ = world;
        let outcome = catch_unwind(AssertUnwindSafe(|| Answer::of(&(call.run)(&mut objects))));
        outcome.unwrap_or_else(|panic| Answer::Wrong(format!("panic: {}", words(&*panic))))
    };
    let answer = match column {
        "open" => run(&world),
        "device standing still" => {
            let stopped = world.runtime.stream().expect("a stream");
            let brake = Brake::new(&world.bench);
            brake.hold(&stopped);
            released_after(MOMENT, brake, || run(&world))
        }
        "capture open elsewhere" => beside_a_capture(&world, || run(&world)),
        "capture of other code, announced" => beside_foreign_capture(&world, || run(&world)),
        "draining" => while_draining(&world, || run(&world)),
        "shut" => {
            drop(world.runtime.clone().shutdown(Duration::from_secs(1)));
            run(&world)
        }
        "lost" => {
            world.bench.lose_device();
            run(&world)
        }
        "driver gone" => {
            world.bench.driver().lose_device(Code::DRIVER_UNLOADING);
            run(&world)
        }
        // The driver refuses there too, as real ones do.
        super::child::COLUMN => super::child::run(|| {
            world.bench.driver().lose_device(Code(3));
            run(&world)
        }),
        "waits fail" => {
            use tenure::driver::{Call as DriverCall, ErrorKind};
            world.tap.rules.fail_always(DriverCall::StreamSynchronize, ErrorKind::Unknown);
            // Something to wait for, which fails.
            let answer = run(&world);
            world.tap.rules.clear();
            answer
        }
        other => unreachable!("no state {other}"),
    };
    drop(objects);
    world.end(answer)
}

/// Another thread captures while the call is made, and ends once it has returned, or after a while: a call may wait for
/// that.
fn beside_a_capture(world: &World, run: impl FnOnce() -> Answer) -> Answer {
    let (begun, has_begun) = channel();
    let (ended, end) = channel::<()>();
    let runtime = world.runtime.clone();
    let thread = std::thread::spawn(move || {
        runtime.capture(|_| {
            let _ = begun.send(());
            let _ = end.recv_timeout(MOMENT);
            Ok(())
        })
    });
    let _ = has_begun.recv();
    let answer = run();
    drop(ended);
    let graph = thread.join().expect("the capture does not panic");
    match graph {
        Ok(_) => answer,
        Err(error) => Answer::Wrong(format!("C1: the capture beside it was broken: {error}")),
    }
}

fn beside_foreign_capture(world: &World, run: impl FnOnce() -> Answer) -> Answer {
    let (begun, has_begun) = channel();
    let (ended, end) = channel::<()>();
    let (runtime, sim) = (world.runtime.clone(), world.bench.driver());
    let thread = std::thread::spawn(move || {
        let guard = runtime.capture_guard();
        let raw = sim.stream_create(Priority::Normal).expect("a stream");
        sim.capture_begin(&raw, tenure::driver::CaptureMode::Global).expect("a capture begins");
        let _ = begun.send(());
        let _ = end.recv_timeout(MOMENT);
        let graph = sim.capture_end(&raw).map(|graph| sim.graph_destroy(graph));
        drop(guard);
        // SAFETY: S6. The stream is this function's own, and idle.
        let _ = unsafe { sim.stream_destroy(&raw) };
        graph.is_ok()
    });
    let _ = has_begun.recv();
    let answer = run();
    drop(ended);
    match thread.join().expect("the capture does not panic") {
        true => answer,
        false => Answer::Wrong("C1: the capture of other code was broken".to_owned()),
    }
}

/// The call comes while a shutdown waits for work that stands still.
fn while_draining(world: &World, run: impl FnOnce() -> Answer) -> Answer {
    let stopped = world.runtime.stream().expect("a stream");
    let mut buffer = stopped.alloc::<u32>(4).expect("a buffer");
    let brake = Brake::new(&world.bench);
    brake.hold(&stopped);
    stopped.fill(&mut buffer, 1).expect("a fill");
    drop((buffer, stopped));
    let runtime = world.runtime.clone();
    let shutdown = std::thread::spawn(move || runtime.shutdown(Duration::from_millis(100)));
    // Until it has begun.
    while world.runtime.stream().is_ok() {
        std::thread::yield_now();
    }
    let answer = released_after(MOMENT, brake, run);
    let _ = shutdown.join();
    answer
}

/// How long what stands in the way stays there: longer than any call takes that does not wait for it.
const MOMENT: Duration = Duration::from_millis(50);

/// Runs `call`, and lets the device go on after a while: a call may wait for it.
fn released_after<R>(time: Duration, brake: Brake<'_, crate::bench::SimBench>, call: impl FnOnce() -> R) -> R {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = is_done.recv_timeout(time);
            brake.release();
        });
        let answer = call();
        drop(done);
        answer
    })
}
