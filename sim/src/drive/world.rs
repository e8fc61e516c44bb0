//! All that one simulation holds: the engine, what watches it, and what decides.
//!
//! Whoever has the [`World`] locked is alone with it. Two things leave it: host functions are called without the lock
//! ([`advance`]), and a host thread that hands its turn on lets go first (`seat`).

use super::footprint::Footprint;
use super::schedule::{Actor, Schedule};
use super::shelf::Shelf;
use super::turns::{Turns, Waiting};
use crate::checker::liveness::{self, Stuck};
use crate::checker::{Checkers, Line};
use crate::clock::Clock;
use crate::driver::Counts;
use crate::engine::{Choice, Engine, FunctionCall, Ready, Step, Wait};
use crate::event::{Event, StreamId};
use crate::trace::Trace;
use parking_lot::MutexGuard;
use rustc_hash::FxHashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure::driver::DeviceAddress;

/// A blocked call's wait, kept where the schedule can ask whether it is over.
#[derive(Debug)]
pub(crate) enum Held {
    /// Of a call without a value.
    Unit(Wait<()>),
    /// Of an allocation.
    Address(Wait<DeviceAddress>),
}

/// A value that a call may have to wait for.
pub(crate) trait Value: Sized {
    fn hold(wait: Wait<Self>) -> Held;
    fn take(held: Held) -> Option<Wait<Self>>;
}

impl Value for () {
    fn hold(wait: Wait<()>) -> Held {
        Held::Unit(wait)
    }

    fn take(held: Held) -> Option<Wait<()>> {
        match held {
            Held::Unit(wait) => Some(wait),
            Held::Address(_) => None,
        }
    }
}

impl Value for DeviceAddress {
    fn hold(wait: Wait<Self>) -> Held {
        Held::Address(wait)
    }

    fn take(held: Held) -> Option<Wait<Self>> {
        match held {
            Held::Address(wait) => Some(wait),
            Held::Unit(_) => None,
        }
    }
}

/// Why a run ends early, or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Every thread that somebody waits for has ended.
    Finished,
    /// Nobody can go on.
    Deadlock,
    /// The limit of steps was reached.
    StepLimit,
    /// Whatever comes has been walked in another order.
    CutOff,
    /// A host thread panicked.
    Panic,
}

/// See the module.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) checkers: Checkers,
    pub(crate) clock: Clock,
    pub(crate) trace: Trace,
    pub(crate) counts: Counts,
    pub(crate) schedule: Schedule,
    pub(crate) turns: Turns,
    /// Whose turn it is, in a run of scheduled threads.
    pub(crate) running: Option<u32>,
    pub(crate) stop: Option<Stop>,
    pub(crate) panics: Vec<(u32, String)>,
    pub(crate) held: Vec<Option<Held>>,
    pub(crate) signals: FxHashSet<u64>,
    pub(crate) next_signal: u64,
    /// Streams that the test holds still.
    pub(crate) stalled: Vec<StreamId>,
    pub(crate) steps: u64,
    /// Calls of threads that no schedule runs.
    pub(crate) calls: u64,
    pub(crate) steps_max: u64,
    /// How many steps may pass while nothing is submitted and nothing completes.
    pub(crate) quiet_max: u64,
    /// The step of the last submission or completion, and how many there were.
    moved_at: (u64, u64),
    /// How long a wait outside of a schedule looks on while nothing moves.
    pub(crate) patience: Duration,
    /// What the step under way has touched; everything, unless the schedule is to know.
    pub(crate) footprint: Footprint,
    pub(crate) tells_footprints: bool,
    /// The device's own thread, or the one that moves it while nobody calls, is to end.
    pub(crate) is_closed: bool,
    /// What host functions hold, to be dropped without the lock.
    pub(crate) shelf: Arc<Shelf>,
    /// Counts what whoever waits for a future looks again after: moves of the device, ends of threads, signals.
    pub(crate) changes: Arc<AtomicU64>,
    ready: Vec<Ready>,
    actors: Vec<Actor>,
}

impl World {
    pub(crate) fn new(engine: Engine, schedule: Schedule, trace: Trace, steps_max: u64) -> Self {
        Self {
            engine,
            checkers: Checkers::new(),
            clock: Clock::new(),
            trace,
            counts: Counts::default(),
            schedule,
            turns: Turns::default(),
            running: None,
            stop: None,
            panics: Vec::new(),
            held: Vec::new(),
            signals: FxHashSet::default(),
            next_signal: 0,
            stalled: Vec::new(),
            steps: 0,
            calls: 0,
            steps_max,
            quiet_max: u64::MAX,
            moved_at: (0, 0),
            patience: Duration::MAX,
            footprint: Footprint::ALL,
            tells_footprints: false,
            is_closed: false,
            shelf: Arc::default(),
            changes: Arc::default(),
            ready: Vec::new(),
            actors: Vec::new(),
        }
    }

    /// Shows the checkers, the clock and the trace all that happened since the last time.
    pub(crate) fn settle(&mut self) {
        let Self { engine, checkers, clock, trace, footprint, tells_footprints, .. } = self;
        if !engine.has_events() {
            return;
        }
        let mut log = trace.lend();
        engine.exchange_events(&mut log);
        for event in &log {
            let before = checkers.findings.all().len();
            checkers.on(event);
            let (span, work) = clock.on(event, engine.profile());
            if let Some((recorded, ns)) = clock.take_recorded() {
                engine.set_event_ns(recorded, ns);
            }
            trace.on(event, span, work, checkers.findings.step);
            if *tells_footprints {
                footprint.event(event);
            }
            for finding in &checkers.findings.all()[before..] {
                trace.found(finding, clock.now_ns());
            }
        }
        trace.give_back(log);
        engine.set_now_ns(clock.now_ns());
    }

    /// Adds an event that only the drive can know.
    pub(crate) fn tell(&mut self, event: Event) {
        self.engine.tell(event);
        self.settle();
    }

    /// What the device may do next, but for streams that are held still.
    pub(crate) fn list_ready(&mut self) -> &[Ready] {
        self.ready.clear();
        self.engine.ready(&mut self.ready);
        if !self.stalled.is_empty() {
            let stalled = &self.stalled;
            self.ready.retain(|ready| !stalled.contains(&ready.stream));
        }
        &self.ready
    }

    /// Lets the schedule pick one of the things that the device may do next.
    pub(crate) fn pick_device(&mut self) -> Option<Choice> {
        self.list_ready();
        self.actors.clear();
        self.actors.extend(self.ready.iter().map(|ready| Actor::Device(ready.stream.0)));
        if self.actors.is_empty() {
            return None;
        }
        let index = self.schedule.choose(&self.actors);
        Some(self.ready[index].choice)
    }

    /// Lets the schedule pick between a host thread that could go on and the device: `None` is the thread.
    pub(crate) fn pick_device_or_host(&mut self, host: u32) -> Option<Choice> {
        self.list_ready();
        if self.ready.is_empty() {
            return None;
        }
        self.actors.clear();
        self.actors.push(Actor::Host(host));
        self.actors.extend(self.ready.iter().map(|ready| Actor::Device(ready.stream.0)));
        let index = self.schedule.choose(&self.actors);
        index.checked_sub(1).map(|index| self.ready[index].choice)
    }

    /// Whoever waits for a future may find it ready now.
    pub(crate) fn changed(&self) {
        // Relaxed: read and written with the world locked, or by the thread that has the turn.
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Does one step of the device; a host function to call, where it came to one.
    pub(crate) fn step(&mut self, choice: Choice) -> Option<FunctionCall> {
        self.steps += 1;
        let call = match self.engine.step(choice) {
            Step::Function(call) => Some(call),
            Step::Done | Step::NotReady => None,
        };
        self.settle();
        self.turns.moved();
        self.changed();
        call
    }

    fn is_over(&self, waiting: &Waiting) -> bool {
        match waiting {
            Waiting::Thread(other) => self.turns.has_ended(*other),
            Waiting::Signal(signal) => self.signals.contains(signal),
            Waiting::Condition(condition) => (condition.0)(),
            Waiting::Lock { lock, alone } => lock.is_free(*alone),
            Waiting::Notice(notice) => notice.is_given(),
            Waiting::Device(token) => match self.held.get(*token as usize).and_then(Option::as_ref) {
                Some(Held::Unit(wait)) => self.engine.is_over(wait),
                Some(Held::Address(wait)) => self.engine.is_over(wait),
                None => true,
            },
        }
    }

    /// Keeps a blocked call's wait; its token.
    pub(crate) fn hold(&mut self, held: Held) -> u64 {
        let free = self.held.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.held[index] = Some(held);
        index as u64
    }

    pub(crate) fn unhold(&mut self, token: u64) -> Option<Held> {
        self.held.get_mut(token as usize)?.take()
    }

    fn list_actors(&mut self) {
        self.list_ready();
        let mut actors = std::mem::take(&mut self.actors);
        actors.clear();
        self.turns.movable(&mut actors, |waiting| self.is_over(waiting));
        actors.extend(self.ready.iter().map(|ready| Actor::Device(ready.stream.0)));
        self.actors = actors;
    }

    /// Whether the run counts as one without an end.
    fn is_endless(&mut self) -> bool {
        let progress = self.engine.progress();
        if self.moved_at.1 != progress {
            self.moved_at = (self.steps, progress);
        }
        self.steps >= self.steps_max || self.steps - self.moved_at.0 >= self.quiet_max
    }

    fn deadlock(&mut self) {
        let stuck = match self.turns.lock_waiters() {
            0 if self.turns.waits_for_own_locks() => Stuck::OwnLocks,
            0 => Stuck::Waits,
            locks if locks == self.turns.waiters() => Stuck::Locks,
            _ => Stuck::LocksAndWaits,
        };
        let device = self.describe_device();
        let who = self.turns.describe();
        liveness::deadlock(stuck, &who, &device, &mut self.checkers.findings);
        self.note_last_finding();
        self.stop_for(Stop::Deadlock);
    }

    /// Nobody can go on but threads outside, and none of them comes back; or one computes and calls nothing.
    pub(crate) fn hang(&mut self, computes: bool) {
        let (who, device) = (self.turns.describe(), self.describe_pending());
        liveness::hang(computes, &who, &device, &mut self.checkers.findings);
        self.note_last_finding();
        self.stop_for(Stop::Deadlock);
    }

    /// What the step that has ended touched.
    fn take_footprint(&mut self) -> Footprint {
        match self.tells_footprints {
            true => std::mem::take(&mut self.footprint),
            false => Footprint::ALL,
        }
    }

    /// The running thread does something that no event tells.
    pub(crate) fn touch_all(&mut self) {
        self.footprint = Footprint::ALL;
    }

    /// Ends the run. The first reason counts; threads get their turns anew, to unwind.
    pub(crate) fn stop_for(&mut self, stop: Stop) {
        self.stop.get_or_insert(stop);
        self.turns.moved();
        self.changed();
    }

    /// What the device has to do, where it may yet do it.
    pub(crate) fn describe_pending(&self) -> String {
        match self.engine.live().operations {
            0 => "the device has nothing to do".into(),
            pending => format!("the device has {pending} operation(s) to do"),
        }
    }

    /// What the device is doing, for the message of a deadlock.
    pub(crate) fn describe_device(&self) -> String {
        let pending = self.engine.live().operations;
        match (pending, self.stalled.is_empty()) {
            (0, _) => "the device has nothing to do".into(),
            (_, false) => format!("the device holds {pending} operation(s) on stalled streams"),
            (_, true) => format!("the device holds {pending} operation(s) that cannot run"),
        }
    }

    /// Records a finding that no event led to.
    pub(crate) fn found(&mut self, line: Line, message: String) {
        self.checkers.findings.violation(line, message);
        self.note_last_finding();
    }

    pub(crate) fn note_last_finding(&mut self) {
        self.note_findings(self.checkers.findings.all().len().saturating_sub(1));
    }

    /// Shows the trace all findings from the `first` on.
    pub(crate) fn note_findings(&mut self, first: usize) {
        let now_ns = self.clock.now_ns();
        for finding in &self.checkers.findings.all()[first..] {
            self.trace.found(finding, now_ns);
        }
    }
}

/// Does one step of the device and calls the host function that it may have come to, without the lock.
pub(crate) fn advance(world: &mut MutexGuard<'_, World>, choice: Choice, enter: impl Fn(bool)) {
    let Some(call) = world.step(choice) else { return };
    let result = MutexGuard::unlocked(world, || {
        enter(true);
        let result = catch_unwind(AssertUnwindSafe(|| (call.function)()));
        enter(false);
        result
    });
    function_ends(world, call, result, enter);
}

/// A host function has returned or unwound.
pub(crate) fn function_ends(
    world: &mut MutexGuard<'_, World>,
    call: FunctionCall,
    result: std::thread::Result<()>,
    enter: impl Fn(bool),
) {
    if let Err(payload) = result
        && !payload.is::<super::seat::Stopped>()
    {
        world.found(Line::R2, format!("the host function {} panicked: {}", call.op, super::seat::text(&*payload)));
    }
    world.engine.function_returned(call.op);
    world.settle();
    drop_function(world, call, enter);
    world.turns.moved();
    world.changed();
}

/// Lets go of a host function that has returned, and of what it held: the driver's thread does that, as it called it.
fn drop_function(world: &mut MutexGuard<'_, World>, call: FunctionCall, enter: impl Fn(bool)) {
    let (op, shelf) = (call.op, world.shelf.clone());
    let result = MutexGuard::unlocked(world, || {
        drop(call);
        if !shelf.has_any() {
            return Ok(());
        }
        enter(true);
        let result = shelf.clear();
        enter(false);
        result
    });
    if let Err(payload) = result {
        world.found(
            Line::R2,
            format!("the host function {op} panicked as it was dropped: {}", super::seat::text(&*payload)),
        );
    }
    world.settle();
}

/// Decides whose turn it is, letting the device move as the schedule has it: a host thread, or nobody when the run is
/// over or nobody can go on.
///
/// A host function that the device comes to is started by `start`, as the host thread of that number, whose turn it is
/// then.
pub(crate) fn decide(world: &mut MutexGuard<'_, World>, start: impl Fn(u32, FunctionCall)) -> Option<u32> {
    loop {
        if world.stop.is_none() && world.turns.are_over() {
            world.stop_for(Stop::Finished);
        }
        if world.stop.is_none() && world.is_endless() {
            let (steps, who, device) = (world.steps, world.turns.describe(), world.describe_pending());
            liveness::livelock(steps, &who, &device, &mut world.checkers.findings);
            world.note_last_finding();
            world.stop_for(Stop::StepLimit);
        }
        if world.stop.is_some() {
            return world.turns.next_alive();
        }
        world.list_actors();
        let done = world.take_footprint();
        if world.actors.is_empty() {
            world.schedule.forced(done);
            let spinner = world.turns.try_spinner();
            // One that is outside may come back; whoever watches says when that takes too long.
            if spinner.is_some() || world.turns.has_outside() {
                return spinner;
            }
            world.deadlock();
            continue;
        }
        let chosen = {
            let World { schedule, actors, .. } = &mut **world;
            schedule.choose_after(actors, done)
        };
        let Some(index) = chosen else {
            world.stop_for(Stop::CutOff);
            continue;
        };
        match world.actors[index] {
            Actor::Host(number) => {
                world.steps += 1;
                return Some(number);
            }
            Actor::Device(_) => {
                let devices = world.actors.len() - world.ready.len();
                let ready = world.ready[index - devices];
                if world.tells_footprints {
                    world.footprint.work(ready.stream, ready.work);
                }
                let choice = ready.choice;
                if let Some(call) = world.step(choice) {
                    let running = world.running;
                    let number = world.turns.add_function(running);
                    start(number, call);
                    return Some(number);
                }
            }
        }
    }
}
