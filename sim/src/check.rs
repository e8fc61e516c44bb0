//! Runs a closure under many schedules, in a normal `#[test]`.
//!
//! ```
//! use tenure::driver::{Driver, Location, Priority};
//! use tenure_sim::{Config, check};
//!
//! check(Config::default().schedules(50), |device| {
//!     let memory = device.malloc(64).expect("there is room");
//!     let writer = device.clone();
//!     let thread = device.spawn("writer", move || {
//!         let stream = writer.stream_create(Priority::Normal).expect("streams can be made");
//!         // SAFETY: the memory lives until after the synchronize.
//!         unsafe { writer.fill(&stream, memory, 7, 64) }.expect("the device works");
//!         writer.stream_synchronize(&stream).expect("the device works");
//!         // SAFETY: nobody else knows the stream.
//!         unsafe { writer.stream_destroy(&stream) }.expect("the device works");
//!     });
//!     thread.join();
//!     // SAFETY: the only work on it has completed.
//!     unsafe { device.free(memory) }.expect("nothing uses it");
//! });
//! ```
//!
//! # Threads
//! The closure runs as the host thread `main`; more come by [`Sim::spawn`]. They run one at a time and hand their turns
//! on at every driver call, at [`Join::join`], [`Signal::wait`] and [`Sim::yield_now`], at contended locks of the core,
//! and at the locks of [`crate::sync`], which a program under test takes instead of std's. A runtime of the core belongs
//! into manual reclaim ([`ReclaimMode::Manual`](tenure::ReclaimMode)), since a worker thread of its own is no part of the
//! schedule.
//!
//! A thread that waits for anything else (a lock or channel of std, a parked thread) is seen by a watchdog after some ten
//! milliseconds: others go on without it until it makes a call again. Such a run is right, but slow, and does not replay
//! exactly; what waits so for good is a finding (R6) after a few seconds. With [fibers](Config::fibers) the schedule is
//! run anew with threads, and a lock of std that the given-up fibers hold stays held: one that outlives a schedule, as in
//! a static, must not be held over a driver call there.
//!
//! # Failures
//! A run fails by a violation, a panic, a deadlock, something left alive at its end, or no end. `check` then panics
//! with the findings, the seed and the lanes. `TENURE_SEED` set to what it printed runs that schedule alone.

use crate::code::Code;
use crate::drive::explored::Search;
use crate::drive::schedule::Policy;
use crate::drive::seat::{self, Seats};
use crate::drive::turns::{Condition, Waiting};
use crate::drive::watch::{self, Task, Watch};
use crate::drive::world::Stop;
use crate::driver::{Builder, Report, Sim};
use crate::fault::Fault;
use crate::kernel::{KernelFunction, Library};
use crate::profile::Profile;
use parking_lot::Mutex;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// What [`check`] runs. `Config::default()`: 100 schedules from seed 0, real threads, profile `cuda-13`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Config {
    builder: Builder,
    schedules: u64,
    seed: u64,
    seats: Seats,
    is_exhaustive: bool,
    deny_warnings: bool,
    allow_leaks: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            builder: Sim::builder().steps_max(STEPS_MAX).quiet_max(QUIET_MAX),
            schedules: 100,
            seed: 0,
            seats: Seats::Threads,
            is_exhaustive: false,
            deny_warnings: false,
            allow_leaks: false,
        }
    }
}

impl Config {
    /// How many schedules are run at most. Default: 100.
    pub fn schedules(mut self, schedules: u64) -> Self {
        self.schedules = schedules;
        self
    }

    /// The first seed; each schedule takes the next. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Walks every order instead of drawing some, up to the number of [`schedules`](Self::schedules).
    pub fn exhaustive(mut self) -> Self {
        self.is_exhaustive = true;
        self
    }

    /// Host threads are coroutines: tens of times faster, and thread-locals of the program are shared by them.
    pub fn fibers(mut self) -> Self {
        self.seats = Seats::Fibers;
        self
    }

    /// How each seed picks, instead of by itself.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.builder = self.builder.policy(policy);
        self
    }

    /// Which driver the device behaves as.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.builder = self.builder.profile(profile);
        self
    }

    /// Something to go wrong in each schedule.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.builder = self.builder.fault(fault);
        self
    }

    /// A kernel; see [`crate::kernel`].
    pub fn kernel<S, F: KernelFunction<S>>(mut self, name: &str, function: F) -> Self {
        self.builder = self.builder.kernel(name, function);
        self
    }

    /// All kernels of a library.
    pub fn kernels(mut self, library: &Library) -> Self {
        self.builder = self.builder.kernels(library);
        self
    }

    /// The device has no memory pools; see [`Builder::without_pools`](crate::driver::Builder::without_pools).
    pub fn without_pools(mut self) -> Self {
        self.builder = self.builder.without_pools();
        self
    }

    /// Operations start and finish in one step: fewer orders to walk.
    pub fn whole_steps(mut self) -> Self {
        self.builder = self.builder.whole_steps();
        self
    }

    /// After how many steps a schedule counts as endless. Default: after 100,000 in which nothing was submitted and
    /// nothing completed, or 16 million in all.
    pub fn steps_max(mut self, steps: u64) -> Self {
        self.builder = self.builder.steps_max(steps).quiet_max(u64::MAX);
        self
    }

    /// How many rows of the trace are kept. Default: 4,096.
    pub fn trace_rows(mut self, rows: usize) -> Self {
        self.builder = self.builder.trace_rows(rows);
        self
    }

    /// Warnings fail as well. Kernels that write memory which nothing wrote then run twice, to see whether they read it.
    pub fn deny_warnings(mut self) -> Self {
        self.deny_warnings = true;
        self.builder = self.builder.probe_kernels();
        self
    }

    /// What is left alive at the end is no failure.
    pub fn allow_leaks(mut self) -> Self {
        self.allow_leaks = true;
        self
    }

    /// Runs `body` under the schedules and says what came of it; stops at the first failure.
    pub fn run(&self, body: impl Fn(&Sim) + Send + Sync + 'static) -> Outcome {
        self.run_watched(None, &(Arc::new(body) as Body))
    }

    /// Runs `body` under the one schedule that `seed` names: a number, or `path:` and choices, as failures print it.
    ///
    /// # Errors
    /// `seed` is neither.
    pub fn replay(&self, seed: &str, body: impl Fn(&Sim) + Send + Sync + 'static) -> Result<Outcome, String> {
        let mut start = Start::parse(seed).ok_or_else(|| format!("`{seed}` is no seed: a number, or path:0.2.1"))?;
        start.is_only = true;
        Ok(self.run_watched(Some(start), &(Arc::new(body) as Body)))
    }

    /// As [`run_from`](Self::run_from). Fibers run on a thread of their own, and where that comes to wait for what no
    /// schedule knows it is left where it is: the schedule that it was in is run anew with threads of the system, and
    /// all that come after it.
    fn run_watched(&self, start: Option<Start>, body: &Body) -> Outcome {
        let board = Arc::new(Board::default());
        if self.seats == Seats::Threads {
            return self.run_from(start, body, &board);
        }
        let (config, run_body, run_board, run_start) = (self.clone(), body.clone(), board.clone(), start.clone());
        let (done, is_done) = std::sync::mpsc::channel();
        let run = move || {
            *run_board.task.lock() = Task::current();
            let outcome = catch_unwind(AssertUnwindSafe(|| config.run_from(run_start, &run_body, &run_board)));
            let _ = done.send(outcome);
        };
        let name = std::thread::current().name().unwrap_or("check").to_owned();
        let Ok(thread) = std::thread::Builder::new().name(name).spawn(run) else {
            return self.run_from(start, body, &board);
        };
        let mut watch = Watch::new();
        loop {
            match is_done.recv_timeout(watch::LOOK) {
                Ok(outcome) => {
                    // What it held is let go of.
                    let _ = thread.join();
                    return outcome.unwrap_or_else(|payload| resume_unwind(payload));
                }
                Err(_) if board.is_stuck(&mut watch) => return self.run_rest(start, body, &board),
                Err(_) => {}
            }
        }
    }

    /// Goes on, with threads of the system, where fibers were stuck.
    fn run_rest(&self, start: Option<Start>, body: &Body, board: &Board) -> Outcome {
        board.leave();
        let (seed, schedules, steps, warnings) = match &*board.now.lock() {
            Some(now) if start.is_none() && !self.is_exhaustive => (now.seed, now.schedules, now.steps, now.warnings),
            _ => (self.seed, 0, 0, 0),
        };
        let rest =
            Self { seats: Seats::Threads, seed, schedules: self.schedules.saturating_sub(schedules), ..self.clone() };
        let mut outcome = rest.run_from(start, body, &Board::default());
        outcome.schedules += schedules;
        outcome.steps += steps;
        outcome.warnings += warnings;
        outcome.diverged = true;
        outcome
    }

    fn run_from(&self, start: Option<Start>, body: &Body, board: &Board) -> Outcome {
        let is_only = start.as_ref().is_some_and(|start| start.is_only);
        let start = start.map(|start| start.at);
        let mut outcome = Outcome::default();
        let mut seed = if let Some(At::Seed(seed)) = start { seed } else { self.seed };
        let mut search = match start {
            Some(At::Path(search)) => Some(search),
            Some(At::Seed(_)) => None,
            None => self.is_exhaustive.then(Search::default),
        };
        while outcome.schedules < self.schedules.max(u64::from(is_only)) {
            let sim = match &mut search {
                Some(search) => self.builder.build_with(search.schedule()),
                None => self.builder.clone().seed(seed).build_seeded(),
            };
            board.begins(&sim, seed, &outcome);
            outcome.failure = self.run_one(&sim, body, &mut outcome);
            outcome.schedules += 1;
            seed = seed.wrapping_add(1);
            let more = search.as_mut().is_none_or(|search| search.advance(sim.shared()));
            outcome.diverged |= search.as_ref().is_some_and(Search::diverged);
            outcome.is_exhaustive = !more;
            if outcome.failure.is_some() || is_only || !more || board.is_left.load(Ordering::Relaxed) {
                break;
            }
        }
        outcome
    }

    fn run_one(&self, sim: &Sim, body: &Body, outcome: &mut Outcome) -> Option<Failure> {
        let (inner, body) = (sim.clone(), body.clone());
        let left = seat::run(sim.shared(), self.seats, Box::new(move || body(&inner)));
        let (stop, panics) = {
            let mut world = sim.shared().world.lock();
            (world.stop.take(), std::mem::take(&mut world.panics))
        };
        let is_whole = stop == Some(Stop::Finished) && panics.is_empty();
        let report = match (is_whole, self.allow_leaks) {
            (true, false) => sim.finish(),
            (true, true) => sim.run_out(),
            (false, _) => sim.report(),
        };
        outcome.steps += report.steps;
        let has_failed = !report.is_clean()
            || !panics.is_empty()
            || stop != Some(Stop::Finished)
            || (self.deny_warnings && !report.findings.is_empty());
        if !has_failed {
            outcome.warnings += report.findings.len() as u64;
            return None;
        }
        let lanes = sim.lanes(LANES_ROWS);
        let panics = panics.into_iter().map(|(thread, text)| format!("host thread t{thread} panicked: {text}"));
        Some(Failure { seed: report.seed.clone(), panics: panics.collect(), threads_left: left, lanes, report })
    }
}

type Body = Arc<dyn Fn(&Sim) + Send + Sync>;

/// Which schedule a thread is in, for whoever watches it.
#[derive(Default)]
struct Board {
    task: Mutex<Task>,
    now: Mutex<Option<Now>>,
    /// The thread was left where it is: where it comes to something again, it is to end.
    is_left: AtomicBool,
}

/// A schedule under way, and what came of those before it.
struct Now {
    sim: Sim,
    seed: u64,
    schedules: u64,
    steps: u64,
    warnings: u64,
}

impl Board {
    fn begins(&self, sim: &Sim, seed: u64, before: &Outcome) {
        let Outcome { schedules, steps, warnings, .. } = *before;
        // The one before is let go without the lock.
        let _before = self.now.lock().replace(Now { sim: sim.clone(), seed, schedules, steps, warnings });
    }

    fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
        if let Some(now) = &*self.now.lock()
            && let Some(mut world) = now.sim.shared().world.try_lock()
        {
            world.stop_for(Stop::Deadlock);
        }
    }

    fn is_stuck(&self, watch: &mut Watch) -> bool {
        let seen = self.now.lock().as_ref().and_then(|now| {
            let world = now.sim.shared().world.try_lock()?;
            let (calls, steps, moves, running) = world.seen();
            Some((calls, steps + (now.schedules << 32), moves, running))
        });
        watch.is_stuck(seen, &self.task.lock())
    }
}

#[derive(Clone)]
struct Start {
    at: At,
    is_only: bool,
}

#[derive(Clone)]
enum At {
    Seed(u64),
    Path(Search),
}

impl Start {
    fn parse(text: &str) -> Option<Self> {
        let at = match text.trim().strip_prefix("path:") {
            Some(key) => At::Path(Search::from_key(key)?),
            None => At::Seed(text.trim().parse().ok()?),
        };
        Some(Self { at, is_only: true })
    }
}

/// What came of a [`Config::run`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// Schedules run, the failed one included.
    pub schedules: u64,
    /// Every order was walked.
    pub is_exhaustive: bool,
    /// The program did not do the same at the same choices: it depends on more than the schedule (time, addresses,
    /// threads that are not scheduled), so that a replay may differ.
    pub diverged: bool,
    /// Turns of host threads and steps of the device, over all schedules.
    pub steps: u64,
    /// Warnings, over all schedules.
    pub warnings: u64,
    /// The first failure.
    pub failure: Option<Failure>,
}

/// A schedule that failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// What replays it.
    pub seed: String,
    /// Panics of host threads, with their messages.
    pub panics: Vec<String>,
    /// Host threads that could not even be unwound.
    pub threads_left: usize,
    /// The end of the run as lanes of text.
    pub lanes: String,
    /// What the checkers found.
    pub report: Report,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for panic in &self.panics {
            writeln!(f, "{panic}")?;
        }
        for finding in &self.report.findings {
            writeln!(f, "{finding}")?;
            writeln!(f, "    {} promises: {}", finding.line, finding.line.promise())?;
        }
        let policy = self.report.policy.map_or("", Policy::name);
        writeln!(f, "seed {} {policy}; replay with TENURE_SEED={}", self.seed, self.seed)?;
        f.write_str(&self.lanes)
    }
}

/// Runs `body` under many schedules. See the module.
///
/// # Panics
/// With the first failure, as text; or where `TENURE_SEED` is set to what is no seed.
pub fn check(config: Config, body: impl Fn(&Sim) + Send + Sync + 'static) {
    let outcome = match std::env::var("TENURE_SEED") {
        Ok(seed) => config.replay(&seed, body).unwrap_or_else(|error| panic!("TENURE_SEED: {error}")),
        Err(_) => config.run(body),
    };
    if let Some(failure) = outcome.failure {
        panic!("schedule {} failed\n{failure}", outcome.schedules);
    }
}

impl Sim {
    /// Starts another host thread: scheduled where the caller is, else a thread of the system.
    ///
    /// # Panics
    /// Where the system has no thread or stack for it.
    pub fn spawn<T: Send + 'static>(&self, name: &str, body: impl FnOnce() -> T + Send + 'static) -> Join<T> {
        self.spawn_as(name, false, body)
    }

    /// As [`spawn`](Self::spawn), for a thread that nobody waits for: the run is over without it, and unwinds it.
    ///
    /// # Panics
    /// As [`spawn`](Self::spawn).
    pub fn spawn_daemon<T: Send + 'static>(&self, name: &str, body: impl FnOnce() -> T + Send + 'static) -> Join<T> {
        self.spawn_as(name, true, body)
    }

    fn spawn_as<T: Send + 'static>(
        &self,
        name: &str,
        is_daemon: bool,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Join<T> {
        let result = Arc::new(Mutex::new(None));
        let keep = result.clone();
        let body = move || {
            let value = body();
            *keep.lock() = Some(value);
        };
        let (number, thread) = match seat::of(self.shared()) {
            Some(seat) => (Some(seat::spawn(&seat, name, is_daemon, Box::new(body))), None),
            None => {
                let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
                (None, Some(thread.expect("the system has no thread for a host thread")))
            }
        };
        Join { sim: self.clone(), number, thread, result }
    }

    /// A point where others may run, as every driver call is one.
    pub fn yield_now(&self) {
        match seat::of(self.shared()) {
            Some(seat) => drop(seat.pause()),
            None => std::thread::yield_now(),
        }
    }

    /// Waits, under a schedule, until the condition holds; not at all where it does. `what` completes "waits for".
    pub(crate) fn wait_until(&self, what: &'static str, condition: &Condition) {
        if let Some(seat) = seat::of(self.shared()).filter(|_| !(condition.0)()) {
            drop(seat.wait(Waiting::Condition(condition.clone()), what));
        }
    }

    /// A scheduled thread that has not begun begins no earlier than the condition holds.
    pub(crate) fn hold_back<T>(&self, thread: &Join<T>, what: &'static str, condition: &Condition) {
        if let Some(number) = thread.number {
            self.shared().world.lock().turns.wait(number, Waiting::Condition(condition.clone()), what);
        }
    }

    /// Waits for a future as an executor does. Between two polls the thread sleeps until the future's waker was called,
    /// the device moved, or another thread did something; then `turn` is called once, for a runtime that releases and
    /// wakes in its `poll` alone.
    ///
    /// Works on scheduled threads of a [`check`] and on others. Several threads may each wait for futures of their own.
    ///
    /// # Panics
    /// As the future and `turn` do. A future that nothing can wake is a deadlock, which a check tells.
    ///
    /// # Examples
    /// ```
    /// use tenure::{Config, Queue, ReclaimMode, Runtime};
    /// use tenure_sim::{Config as Check, check};
    ///
    /// check(Check::default().schedules(20), |device| {
    ///     let runtime = Runtime::with(device.clone(), Config::default().reclaim(ReclaimMode::Manual)).unwrap();
    ///     let stream = runtime.stream().unwrap();
    ///     let buffer = stream.upload(&[7_u32; 4]).unwrap();
    ///     let download = stream.download(&buffer).unwrap();
    ///     assert_eq!(device.block_on(download, || _ = runtime.poll()).unwrap(), [7; 4]);
    ///     drop((buffer, stream));
    ///     assert!(runtime.shutdown(std::time::Duration::from_secs(1)).is_clean());
    /// });
    /// ```
    pub fn block_on<F: Future>(&self, future: F, mut turn: impl FnMut()) -> F::Output {
        let woken = Arc::new(Woken { flag: AtomicBool::new(false), thread: std::thread::current() });
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut future = std::pin::pin!(future);
        let changes = self.shared().world.lock().changes.clone();
        loop {
            let seen = changes.load(Ordering::Relaxed);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            turn();
            if woken.flag.swap(false, Ordering::Relaxed) {
                continue;
            }
            if seat::of(self.shared()).is_none() {
                // The device moves by itself, or by the calls of `turn`.
                std::thread::park_timeout(POLL);
                continue;
            }
            let (changes, woken) = (changes.clone(), woken.clone());
            let has_changed = Condition(Arc::new(move || {
                woken.flag.load(Ordering::Relaxed) || changes.load(Ordering::Relaxed) != seen
            }));
            self.wait_until("a future", &has_changed);
        }
    }

    /// A signal between host threads, not yet set.
    pub fn signal(&self, name: &'static str) -> Signal {
        let mut world = self.shared().world.lock();
        world.next_signal += 1;
        Signal { sim: self.clone(), number: world.next_signal, name }
    }
}

/// How long a thread outside of a schedule sleeps between two polls of a future that nobody wakes.
const POLL: std::time::Duration = std::time::Duration::from_micros(200);

/// Wakes a thread that waits for a future.
struct Woken {
    flag: AtomicBool,
    thread: std::thread::Thread,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.flag.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// A host thread that was started. Dropping it does not wait.
#[derive(Debug)]
#[must_use]
pub struct Join<T> {
    sim: Sim,
    number: Option<u32>,
    thread: Option<std::thread::JoinHandle<()>>,
    result: Arc<Mutex<Option<T>>>,
}

impl<T> Join<T> {
    /// Waits for its end; its value.
    ///
    /// # Panics
    /// Where the thread panicked.
    pub fn join(self) -> T {
        if let (Some(number), Some(seat)) = (self.number, seat::of(self.sim.shared())) {
            drop(seat.wait(Waiting::Thread(number), "join"));
        }
        if let Some(thread) = self.thread
            && let Err(payload) = thread.join()
        {
            resume_unwind(payload);
        }
        self.result.lock().take().expect("the thread ended by a panic")
    }
}

/// Something that one host thread (or a host function) sets and others wait for.
#[derive(Clone, Debug)]
pub struct Signal {
    sim: Sim,
    number: u64,
    name: &'static str,
}

impl Signal {
    /// Sets it, for good.
    pub fn set(&self) {
        let shared = self.sim.shared();
        let mut world = shared.world.lock();
        world.signals.insert(self.number);
        world.changed();
        world.turns.moved();
        shared.progress.notify_all();
        drop(world);
        // Whoever it wakes may find the function under way.
        seat::pause_function(shared);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.sim.shared().world.lock().signals.contains(&self.number)
    }

    /// Waits until it is set. From inside a host function that is a violation (R2), and does not wait.
    pub fn wait(&self) {
        let shared = self.sim.shared();
        if seat::in_function(shared) {
            if !self.is_set() {
                seat::blocks_in_function(shared, self.name);
            }
            return;
        }
        if let Some(seat) = seat::of(shared) {
            drop(seat.wait(Waiting::Signal(self.number), self.name));
            return;
        }
        let mut world = shared.world.lock();
        while !world.signals.contains(&self.number) && world.engine.lost() != Some(Code::DRIVER_UNLOADING) {
            shared.progress.wait(&mut world);
        }
    }
}

/// After how many steps without a submission or an end of one a schedule counts as endless.
const QUIET_MAX: u64 = 100_000;
/// After how many steps in all.
const STEPS_MAX: u64 = 1 << 24;
/// How many rows of lanes a failure shows.
const LANES_ROWS: usize = 80;

#[cfg(test)]
mod tests;
