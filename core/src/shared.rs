//! What the handles of a runtime share, and its end (R5).

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::Base;
use crate::call_scope::MayWait;
use crate::config::Config;
use crate::driver::{Driver, Progress};
use crate::error::{Error, Result};
use crate::life::Phase;
use crate::pool::Pool;
use crate::reclaim::Ask;
use crate::sessions::Sessions;
use crate::staging::Staging;
use crate::stream_state::StreamState;
use crate::sync::clock::{self, Instant};
use crate::sync::{Arc, Mutex, coop, thread};

/// Everything that handles share. The worker holds it as well.
#[derive(Debug)]
pub struct Shared<D: Driver> {
    base: Base<D>,
    pub(crate) pool: Pool<D>,
    pub(crate) staging: Staging<D>,
    pub(crate) captures: Sessions<D>,
    pub(crate) config: Config,
    /// Whether somebody shuts down: the worker then leaves the end to it. A lock, so that who sees the life closed by a
    /// shutdown sees this as well.
    is_shutting_down: Mutex<bool>,
    // std, outside the facade: taken by a shutdown.
    worker: std::sync::Mutex<Option<thread::JoinHandle<()>>>,
}

impl<D: Driver> Deref for Shared<D> {
    type Target = Base<D>;

    #[inline]
    fn deref(&self) -> &Base<D> {
        &self.base
    }
}

/// What every handle holds. When the last is gone, the worker drains and ends.
#[derive(Debug)]
pub struct Anchor<D: Driver> {
    pub(crate) shared: Arc<Shared<D>>,
}

impl<D: Driver> Deref for Anchor<D> {
    type Target = Shared<D>;

    #[inline]
    fn deref(&self) -> &Shared<D> {
        &self.shared
    }
}

impl<D: Driver> Drop for Anchor<D> {
    fn drop(&mut self) {
        // No handle is left that could be given work.
        self.shared.context.life.advance(Phase::Draining);
        self.shared.reclaim.signal.raise();
    }
}

/// How a shutdown goes about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    /// When what is left is leaked.
    pub(crate) end: Instant,
    /// Things that the calling thread is releasing itself: an owner's drop may shut down, and its own thing ends after it.
    pub(crate) in_hand: usize,
    /// Whether the calling thread captures: that capture ends after it too.
    pub(crate) in_capture: bool,
}

/// How many moments of 50 microseconds a call that finds too much retired gives to whoever is on turn.
const MOMENTS_MAX: u32 = 200;

/// What a shutdown may take longer than it was given: for what takes no time on a machine that is not too busy.
const GRACE: Duration = Duration::from_millis(500);
/// What a worker that is not stuck gets of it.
const WORKER_GRACE: Duration = Duration::from_millis(100);

impl<D: Driver> Shared<D> {
    /// Of a runtime over `driver`, without a worker.
    pub(crate) fn new(driver: D, config: Config) -> Self {
        Self {
            base: Base::new(driver),
            pool: Pool::new(config.streams_max),
            staging: Staging::new(config.staging_max),
            captures: Sessions::new(),
            config,
            is_shutting_down: Mutex::new(false),
            worker: std::sync::Mutex::new(None),
        }
    }

    /// Notes the thread that takes the turns.
    pub(crate) fn has_worker(&self, worker: Option<thread::JoinHandle<()>>) {
        *self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = worker;
    }

    /// Notes that somebody shuts down: before the life closes, which the last handle does too.
    pub(crate) fn begin_shutdown(&self) {
        *self.is_shutting_down.lock() = true;
    }

    /// Refuses new work from now on: at every stream, and where things are made.
    pub(crate) fn close_to_work(&self) {
        self.context.life.advance(Phase::Draining);
        self.pool.close();
        self.reclaim.signal.raise();
    }

    /// Whether the last handle is gone, or a shutdown has begun.
    pub(crate) fn is_closed(&self) -> bool {
        self.context.life.is_past(Phase::Draining)
    }

    /// Whether a shutdown will end the runtime, when its own deadline says.
    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.is_shutting_down.lock()
    }

    /// Whether shutdown has taken over from the worker.
    pub(crate) fn is_stopped(&self) -> bool {
        self.context.life.is_past(Phase::Shut)
    }

    /// Sends the worker home; it may be in a driver call that does not return, so it is not waited for without limit.
    fn stop_worker(&self, ending: Ending) {
        self.context.life.advance(Phase::Shut);
        self.reclaim.signal.raise();
        let worker = self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(worker) = worker.filter(|_| ending.in_hand == 0) else { return };
        // A little grace where the deadline has passed: a worker that is not stuck goes at once.
        let end = ending.end.max(clock::after(WORKER_GRACE));
        let mut tries = 0;
        while !worker.is_finished() && clock::now() < end {
            thread::pause_brief(&mut tries);
        }
        if worker.is_finished() {
            drop(worker.join());
        }
    }

    /// Refuses new work after shutdown, and where too much is retired and waits (R12); helps with it before.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.context.life.check_open()?;
        self.check_backlog()?;
        self.context.check_alive()
    }

    /// Helps to release when the retired have become many, and refuses what would add to them when that is not enough
    /// (R12).
    fn check_backlog(&self) -> Result<()> {
        if self.reclaim.pending() > self.config.retired_max {
            return self.relieve(self.config.backlog_max, || self.reclaim.pending());
        }
        Ok(())
    }

    /// Takes a turn, after which less than `max` of `count` must be left.
    #[cold]
    pub(crate) fn relieve(&self, max: usize, count: impl Fn() -> usize) -> Result<()> {
        for moments in 0.. {
            self.reclaim.turn(&self.context, &self.pins, Ask::Query);
            let pending = count();
            if pending < max || self.context.lost().is_some() {
                break;
            }
            // Who is on turn may be about to release it all.
            if moments == MOMENTS_MAX || !self.reclaim.is_on_turn() || MayWait::here().is_err() {
                return Err(Error::Backlog { pending, max });
            }
            thread::pause();
        }
        Ok(())
    }

    /// Destroys the idle streams; whether none is left but those that are leased or in quarantine. What was released in
    /// a stream's order may still run there.
    pub(crate) fn streams_are_gone(&self) -> bool {
        if self.context.lost().is_some() {
            return true;
        }
        self.give_back_staging();
        self.pool.trim(&self.context);
        let streams = self.pool.figures();
        streams.alive <= streams.leased + streams.quarantined
    }

    /// Gives back the staging memory that nothing uses, if all that the pool's streams were given has run: it waits for
    /// the device (R5).
    fn give_back_staging(&self) {
        let is_over = |state: &Arc<StreamState<D>>| {
            if state.is_broken() {
                return true;
            }
            // S6. As a guest: another thread may trim the pool meanwhile.
            let Some(_guest) = state.visit(state.timeline.horizon().number()) else { return true };
            matches!(state.query(&self.context), Some(Ok(Progress::Complete)))
        };
        if self.staging.has_slabs() && self.pool.streams().iter().all(is_over) {
            self.staging.shrink(self);
        }
    }

    /// Releases the runtime's own objects when nothing needs them any more, or time is up: a turn of another thread is waited for
    /// until `end`. What a capture, or whoever has
    /// a gate, keeps from being had now stays.
    pub(crate) fn tear_down(&self, end: Instant) {
        self.context.life.advance(Phase::Shut);
        self.context.captures.close();
        self.reclaim.close_after_turns(&self.context, &self.pins, || clock::now() < end);
        let may_call = || self.context.lost().is_none() && !self.context.life.is_past(Phase::Gone);
        if may_call() {
            self.give_back_staging();
        }
        self.staging.close(self);
        if may_call() {
            self.pool.trim(&self.context);
        }
        if may_call() {
            self.captures.clear(&self.context);
        }
        // Those in quarantine are never destroyed, but their events are nobody's any more.
        for state in self.pool.streams().iter().filter(|state| state.is_broken()) {
            if may_call() {
                state.destroy_event_unless_held(&self.context);
            }
        }
    }

    /// Drains until nothing waits or time is up, and gives back what the runtime owns.
    fn wind_up(&self, ending: Ending) {
        let goes_on = || clock::now() < ending.end && !self.is_stopped();
        let turn = || self.reclaim.turn(&self.context, &self.pins, Ask::Query).total();
        let mut tries = 0;
        while turn() > ending.in_hand && goes_on() {
            thread::pause_brief(&mut tries);
        }
        let mut tries = 0;
        let is_over = || {
            self.streams_are_gone() && (ending.in_capture || self.captures.out() == 0) && self.staging.is_settled(self)
        };
        while !is_over() && goes_on() {
            thread::pause_brief(&mut tries);
        }
        self.stop_worker(ending);
        self.tear_down(ending.end);
    }

    /// [`wind_up`](Self::wind_up) on a thread of its own, which is left behind where a driver call does not return. Under a
    /// scheduler that runs the program's threads one at a time, here.
    pub(crate) fn wind_up_in_time(this: &Arc<Self>, ending: Ending) {
        let aside = || {
            let shared = this.clone();
            thread::aside("tenure-shutdown", move || shared.wind_up(ending))
        };
        let is_scheduled = cfg!(mc_loom) || coop::thread_id().is_some();
        let aside = if is_scheduled { None } else { aside() };
        let Some(aside) = aside else { return this.wind_up(ending) };
        let end = ending.end.max(clock::now()) + GRACE;
        if !aside.has_ended_by(end) {
            this.context.life.advance(Phase::Shut);
            this.context.life.advance(Phase::Gone);
            this.context.captures.close();
            this.reclaim.close(&this.context, &this.pins);
        }
    }

    pub(crate) fn report(&self, ending: Ending) -> ShutdownReport {
        let (pins_live, _, pins_quarantined) = self.pins.census();
        // Relaxed: a figure.
        let own = self.reclaim.figures.streams_left.load(Ordering::Relaxed);
        let own = usize::try_from(own).unwrap_or(usize::MAX).saturating_add(self.captures.out());
        ShutdownReport {
            leaked: self.reclaim.leaked().saturating_sub(ending.in_hand),
            streams_left: self.pool.figures().alive.saturating_add(own),
            pins_left: pins_live + self.pins.ceded(),
            pins_quarantined,
            lost: self.context.lost().map(Error::Lost),
        }
    }
}

/// What a shutdown could not give back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Things leaked in the life of the runtime: their work did not end within the deadline, or will never be known to
    /// have ended, or their release failed.
    pub leaked: usize,
    /// Streams that are leased or busy still.
    pub streams_left: usize,
    /// Registrations that live handles hold still; and those of memory that the caller vouches for
    /// ([`Runtime::wrap_raw`](crate::Runtime::wrap_raw)), given up here, that other runtimes of the process hold.
    pub pins_left: usize,
    /// Registrations in quarantine.
    pub pins_quarantined: usize,
    /// The error that took the device away.
    pub lost: Option<Error>,
}

impl ShutdownReport {
    /// Whether everything was given back.
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}
