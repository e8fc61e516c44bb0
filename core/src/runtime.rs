//! The runtime: what a program makes first and lets go last.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::context::Context;
use crate::driver::{Call, Driver, HostPointer, Image, Priority, Progress};
use crate::error::{Error, Misuse, Result};
use crate::hold::{MayWait, Place, is_within};
use crate::kernel::Module;
use crate::life::Phase;
use crate::pinned::Pinned;
use crate::pool::Pool;
use crate::queue::Stream;
use crate::reclaim::{Ask, Reclaim};
use crate::registration::{HostRange, Pins, device_address};
use crate::staging::Staging;
use crate::stream::StreamState;
use crate::sync::clock::{self, Instant};
use crate::sync::{Arc, Mutex, coop, thread};

/// Elements of buffers: plain data, any bit pattern valid.
pub trait Element: bytemuck::Pod + Send + Sync {}
impl<T: bytemuck::Pod + Send + Sync> Element for T {}

/// Who releases what is let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimMode {
    /// A thread of the runtime's own.
    #[default]
    Worker,
    /// Whoever calls [`Runtime::poll`]; without such calls nothing is released before [`Runtime::shutdown`].
    Manual,
}

/// How a runtime is made. `Config::default()` suits most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Who releases what is let go. Default: [`ReclaimMode::Worker`].
    pub reclaim: ReclaimMode,
    /// The most streams that the pool makes; at least 1. Default: 64.
    pub streams_max: usize,
    /// Things that may lie retired before a call that makes new ones first helps to release; a drop never does.
    /// Default: 65,536.
    pub retired_max: usize,
    /// Things that may lie retired after that. A call that makes new ones, and finds as many although it has helped, is
    /// refused with [`Error::Backlog`]: so what was let go while the device stands still is bounded. Default: 262,144.
    pub backlog_max: usize,
    /// Adopted streams that there may be. Those count whose handles live, those whose work has not ended, and those
    /// that were given up. One more is refused with [`Error::Backlog`]. Default: 4,096.
    pub adopted_max: usize,
    /// The most page-locked memory that copies from and to other host memory are staged in, in bytes; at
    /// least 64 KiB. A copy that finds no room waits for earlier ones. What such memory there is, is in
    /// [`Stats::staging`]; it grows as it is needed. Default: 64 MiB.
    pub staging_max: usize,
    /// How long the end of the last handle lets the worker drain, where nobody called [`Runtime::shutdown`].
    /// Default: 10 seconds.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reclaim: ReclaimMode::Worker,
            streams_max: 64,
            retired_max: 1 << 16,
            backlog_max: 1 << 18,
            adopted_max: 1 << 12,
            staging_max: 64 << 20,
            drain: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// The same with this way of reclaiming.
    #[must_use]
    pub fn reclaim(mut self, mode: ReclaimMode) -> Self {
        self.reclaim = mode;
        self
    }

    /// The same with at most `streams` pooled streams.
    #[must_use]
    pub fn streams_max(mut self, streams: usize) -> Self {
        self.streams_max = streams.max(1);
        self
    }

    /// The same with at most `things` things that lie retired, and a quarter of them before makers help to release.
    #[must_use]
    pub fn backlog_max(mut self, things: usize) -> Self {
        self.backlog_max = things;
        self.retired_max = self.retired_max.min(things / 4);
        self
    }

    /// The same with at most `streams` adopted streams.
    #[must_use]
    pub fn adopted_max(mut self, streams: usize) -> Self {
        self.adopted_max = streams;
        self
    }

    /// The same with at most `bytes` bytes of staging memory.
    #[must_use]
    pub fn staging_max(mut self, bytes: usize) -> Self {
        self.staging_max = bytes;
        self
    }
}

/// Everything that handles share. The worker holds it as well.
#[derive(Debug)]
pub struct Shared<D: Driver> {
    pub(crate) context: Context<D>,
    pub(crate) pool: Pool<D>,
    pub(crate) pins: Pins<D>,
    pub(crate) reclaim: Reclaim<D>,
    pub(crate) staging: Staging<D>,
    pub(crate) captures: crate::capture::Sessions<D>,
    pub(crate) config: Config,
    /// Whether somebody shuts down: the worker then leaves the end to it. A lock, so that who sees the life closed by a
    /// shutdown sees this as well.
    is_shutting_down: Mutex<bool>,
    // std, outside the facade: taken by the one who shuts down.
    worker: std::sync::Mutex<Option<thread::JoinHandle<()>>>,
}

/// What every handle holds. When the last is gone, the worker drains and ends.
#[derive(Debug)]
pub struct Anchor<D: Driver> {
    shared: Arc<Shared<D>>,
}

impl<D: Driver> Deref for Anchor<D> {
    type Target = Shared<D>;

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
struct Ending {
    /// When what is left is leaked.
    end: Instant,
    /// Things that the calling thread is releasing itself: an owner's drop may shut down, and its own thing ends after it.
    in_hand: usize,
    /// Whether the calling thread captures: that capture ends after it too.
    in_capture: bool,
}

/// How many moments of 50 microseconds a call that finds too much retired gives to whoever is on turn.
const MOMENTS_MAX: u32 = 200;

/// What a shutdown may take longer than it was given: for what takes no time on a machine that is not too busy.
const GRACE: Duration = Duration::from_millis(500);
/// What a worker that is not stuck gets of it.
const WORKER_GRACE: Duration = Duration::from_millis(100);

impl<D: Driver> Shared<D> {
    /// Refuses new work from now on: at every stream, and where things are made.
    fn close_to_work(&self) {
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

    /// Sends the worker home; it may be in a driver call that does not return, so not for ever.
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
    fn relieve(&self, max: usize, count: impl Fn() -> usize) -> Result<()> {
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

    /// Releases the runtime's own objects when nothing needs them any more, or time is up. What a capture, or whoever has
    /// a gate, keeps from being had now stays.
    pub(crate) fn tear_down(&self) {
        self.context.life.advance(Phase::Shut);
        self.context.captures.close();
        self.reclaim.close(&self.context, &self.pins);
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
        self.tear_down();
    }

    /// [`wind_up`](Self::wind_up) on a thread of its own, which is left behind where a driver call does not return. Under a
    /// scheduler that runs the program's threads one at a time, here.
    fn wind_up_in_time(this: &Arc<Self>, ending: Ending) {
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

    fn report(&self, ending: Ending) -> ShutdownReport {
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

/// A device with its streams, memory and pins.
///
/// Cheap to clone; all clones and all handles made through them share one state. Threads may use it freely.
///
/// # Examples
/// ```
/// use tenure::{LaunchConfig, Queue, Read, Runtime, Write};
/// use tenure_sim::Sim;
///
/// let sim = Sim::new(tenure_sim::profile::Profile::cuda_13());
/// sim.kernel("double", |x: tenure_sim::kernel::Read<'_, f32>, mut y: tenure_sim::kernel::Write<'_, f32>| {
///     for (y, x) in y.iter_mut().zip(x.iter()) {
///         *y = 2.0 * x;
///     }
/// });
/// let runtime = Runtime::new(sim)?;
/// let module = runtime.module(tenure::driver::Image::Source(""))?;
/// // SAFETY: the kernel has this signature and stays inside its arguments.
/// let double = unsafe { module.kernel::<(Read<f32>, Write<f32>)>("double")? };
///
/// let stream = runtime.stream()?;
/// let x = stream.upload(&[1.0_f32, 2.0])?;
/// let mut y = stream.alloc::<f32>(2)?;
/// stream.launch(&double, LaunchConfig::linear(2), (&x, &mut y))?;
/// assert_eq!(stream.read(&y)?, [2.0, 4.0]);
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Debug)]
pub struct Runtime<D: Driver> {
    pub(crate) anchor: Arc<Anchor<D>>,
}

impl<D: Driver> Clone for Runtime<D> {
    fn clone(&self) -> Self {
        Self { anchor: self.anchor.clone() }
    }
}

impl<D: Driver> Runtime<D> {
    /// A runtime over `driver`, with a worker thread.
    ///
    /// # Errors
    /// None today; a driver may come to refuse.
    pub fn new(driver: D) -> Result<Self> {
        Self::with(driver, Config::default())
    }

    /// A runtime over `driver`, as `config` says.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with(driver: D, config: Config) -> Result<Self> {
        let shared = Arc::new(Shared {
            context: Context::new(driver),
            pool: Pool::new(config.streams_max),
            pins: Pins::new(),
            reclaim: Reclaim::new(),
            staging: Staging::new(config.staging_max),
            captures: crate::capture::Sessions::new(),
            config,
            is_shutting_down: Mutex::new(false),
            worker: std::sync::Mutex::new(None),
        });
        if shared.config.reclaim == ReclaimMode::Worker {
            let worker = crate::worker::start(shared.clone());
            *shared.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = worker;
        }
        Ok(Self { anchor: Arc::new(Anchor { shared }) })
    }

    /// The driver, for what the core does not offer.
    pub fn driver(&self) -> &D {
        &self.anchor.context.driver
    }

    /// Leases a stream of normal priority. The lease ends with the last clone of the handle.
    ///
    /// # Errors
    /// [`Error::StreamLimit`] when all streams that the pool may make are leased or busy; `Lost`, `Closed`, the
    /// driver's. The pool is then as it was (S5).
    pub fn stream(&self) -> Result<Stream<D>> {
        self.stream_with(Priority::Normal)
    }

    /// Leases a stream of this priority; each priority has streams of its own.
    ///
    /// # Errors
    /// As for [`stream`](Self::stream).
    pub fn stream_with(&self, priority: Priority) -> Result<Stream<D>> {
        self.anchor.check_open()?;
        let state = self.anchor.pool.claim(&self.anchor.context, priority)?;
        Ok(Stream::new(self.anchor.clone(), state))
    }

    /// Uses a stream that somebody else made and will destroy. It is never pooled. What marks its end is moved after each
    /// submission, since nobody can ask the stream itself later.
    ///
    /// The adoption ends with the last clone of the handle. From then on the runtime makes no call that names the stream or
    /// follows anything to it, whatever is pending there and whoever still waits for that; so its owner may destroy it, as soon as the driver
    /// allows a stream with work on it to be destroyed. [`Stream::end_adoption`] also waits for that work.
    ///
    /// Where the driver's events do not outlive their streams (AMD's), an adoption costs a stream of the runtime's own, and a
    /// submission one more call: adopt a stream once, and not for each use.
    ///
    /// # Safety
    /// - `raw` is a stream of this driver's device, and lives until the last clone of the handle was dropped or
    ///   [`Stream::end_adoption`] has returned its success.
    /// - Nobody captures on it while a call on the handle is running.
    ///
    /// # Errors
    /// [`Error::Backlog`] where there are too many already ([`Config::adopted_max`]); the driver's, when it makes no event, or
    /// no stream where one is needed.
    pub unsafe fn adopt(&self, raw: D::Stream) -> Result<Stream<D>> {
        self.anchor.check_open()?;
        let (adoptions, max) = (&self.anchor.context.adoptions, self.anchor.config.adopted_max);
        if adoptions.count() >= max {
            self.anchor.relieve(max, || adoptions.count())?;
        }
        let state = StreamState::adopt(&self.anchor.context, raw)?;
        Ok(Stream::new(self.anchor.clone(), state))
    }

    /// Loads code.
    ///
    /// # Errors
    /// The driver's: a compiler's complaints are in its message.
    pub fn module(&self, image: Image<'_>) -> Result<Module<D>> {
        self.anchor.check_open()?;
        let context = &self.anchor.context;
        let raw = context.guarded(&mut MayWait::here()?, Call::ModuleLoad, |driver| driver.module_load(image))?;
        Ok(Module::new(self.anchor.clone(), raw))
    }

    /// Allocates `len` elements of page-locked host memory, zeroed, which the device reaches as well. None of it
    /// touches the driver when `len` is 0.
    ///
    /// # Errors
    /// `Misuse::SizeOverflow`; the driver's.
    pub fn alloc_host<T: Element>(&self, len: usize) -> Result<Pinned<T, D>> {
        self.anchor.check_open()?;
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(Misuse::SizeOverflow)?;
        if bytes == 0 {
            return Ok(Pinned::empty(len));
        }
        let mut may = MayWait::here()?;
        let range = self.alloc_aligned(bytes, align_of::<T>(), &mut may)?;
        let context = &self.anchor.context;
        let device = device_address(context, range.base);
        let pin = device.and_then(|device| Ok(self.anchor.pins.adopt_allocated(context, range, device, &may)?));
        match pin {
            Ok(pin) => {
                let start = range.base.offset(to_alignment(range.base, align_of::<T>()));
                // SAFETY: P4. The driver just gave these bytes to us alone: there is room for the alignment before them.
                unsafe { start.0.as_ptr().write_bytes(0, bytes) };
                Ok(Pinned::new(self.anchor.clone(), pin, None, false, start, len))
            }
            Err(error) => {
                self.free_unused(range, &mut may);
                Err(error)
            }
        }
    }

    /// Page-locked memory with `bytes` bytes from an address on that is a multiple of `align`. A driver aligns for what is
    /// usual; more is asked for where that is not enough.
    fn alloc_aligned(&self, bytes: usize, align: usize, may: &mut MayWait) -> Result<HostRange> {
        let alloc = |bytes: usize, may: &mut MayWait| {
            let base = self.anchor.context.guarded(may, Call::HostAlloc, |driver| driver.host_alloc(bytes));
            base.map(|base| HostRange { base, bytes })
        };
        let range = alloc(bytes, may)?;
        if to_alignment(range.base, align) == 0 {
            return Ok(range);
        }
        self.free_unused(range, may);
        alloc(bytes.checked_add(align).ok_or(Misuse::SizeOverflow)?, may)
    }

    #[cold]
    fn free_unused(&self, range: HostRange, may: &mut MayWait) {
        // SAFETY: P5. From `host_alloc`, used by nothing yet, and freed only here.
        let freed = self.anchor.context.guarded(may, Call::HostFree, |driver| unsafe { driver.host_free(range.base) });
        if freed.is_err() {
            self.anchor.pins.quarantine(&self.anchor.context, range);
        }
    }

    /// Releases what can be released now, asking the streams; returns how many things still wait. Never waits for the
    /// device by itself, but an unregister that is due may (see [`Driver::host_unregister`]).
    pub fn poll(&self) -> usize {
        self.anchor.staging.tidy(&self.anchor);
        self.anchor.reclaim.turn(&self.anchor.context, &self.anchor.pins, Ask::Query).total()
    }

    /// One turn of a worker: [`poll`](Self::poll), which leaves a host function in each stream that something waits for.
    #[doc(hidden)]
    pub fn work(&self) -> usize {
        self.anchor.reclaim.turn(&self.anchor.context, &self.anchor.pins, Ask::Both).total()
    }

    /// Errors that no call was there to return (R7): of releases, and of streams and events that were
    /// destroyed. Oldest first; the oldest 16 are kept.
    pub fn take_release_errors(&self) -> Vec<Error> {
        self.anchor.context.take_untold()
    }

    /// Destroys the idle streams of the pool; returns how many. Leased and busy ones stay (S6). Staging memory that
    /// nothing uses is let go as well; the worker, or `poll`, gives it back.
    pub fn trim(&self) -> usize {
        self.anchor.staging.trim(&self.anchor);
        self.anchor.pool.trim(&self.anchor.context)
    }

    /// Whether the byte at `pointer` lies in host memory that this runtime has registered. Takes no lock.
    pub fn is_pinned<T>(&self, pointer: *const T) -> bool {
        self.anchor.pins.is_registered(pointer.addr())
    }

    /// The error that took the device away, if it is gone (R6).
    pub fn lost(&self) -> Option<Error> {
        self.anchor.context.lost().map(Error::Lost)
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        // Relaxed: figures.
        let load = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        let (pins_live, pins_pending, pins_quarantined) = self.anchor.pins.census();
        let (pins, reclaim) = (&self.anchor.pins.figures, &self.anchor.reclaim.figures);
        Stats {
            streams: self.anchor.pool.figures(),
            pins_made: load(&pins.made),
            pins_shared: load(&pins.shared),
            pins_released: load(&pins.released),
            pins_live,
            pins_pending,
            pins_quarantined,
            retired: load(&reclaim.retired),
            released: load(&reclaim.released),
            leaked: load(&reclaim.leaked),
            retired_pending: self.anchor.reclaim.pending(),
            captures: self.anchor.context.captures.captures(),
            staging: self.anchor.staging.figures(),
        }
    }

    /// [`Stats::retired_pending`] alone. Takes no lock.
    pub fn retired_pending(&self) -> usize {
        self.anchor.reclaim.pending()
    }

    /// Drains what can finish within `deadline`, gives back what the runtime owns, and says what is left (R5). Handles
    /// that live on stay valid to drop, and are leaked; new work is refused.
    pub fn shutdown(self, deadline: Duration) -> ShutdownReport {
        let shared = self.anchor.shared.clone();
        if !shared.context.life.is_inherited() {
            // Before the life closes, which the last handle does too.
            *shared.is_shutting_down.lock() = true;
        }
        drop(self);
        let ending = Ending {
            end: clock::after(deadline),
            in_hand: crate::reclaim::in_hand(),
            in_capture: is_within(Place::Capture),
        };
        if !shared.context.life.is_inherited() {
            shared.close_to_work();
            Shared::wind_up_in_time(&shared, ending);
            shared.context.life.advance(Phase::Gone);
        }
        shared.report(ending)
    }
}

/// How far it is from `base` to the next multiple of `align`.
fn to_alignment(base: HostPointer, align: usize) -> usize {
    base.address().next_multiple_of(align) - base.address()
}

/// Figures of a runtime: nothing in them decides anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each name says what it counts")]
pub struct Stats {
    pub streams: crate::pool::state::Figures,
    pub pins_made: u64,
    pub pins_shared: u64,
    pub pins_released: u64,
    pub pins_live: usize,
    pub pins_pending: usize,
    pub pins_quarantined: usize,
    pub retired: u64,
    pub released: u64,
    pub leaked: u64,
    pub retired_pending: usize,
    pub captures: usize,
    pub staging: crate::staging::Figures,
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
    /// ([`Runtime::wrap_raw`]), given up here, that other runtimes of the process hold.
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
