//! The runtime: what a program makes first and lets go last.

use std::sync::atomic::Ordering;
use std::time::Duration;

pub use crate::config::{Config, ReclaimMode};
use crate::driver::{Call, Driver, HostPointer, Image, Priority};
use crate::error::{Error, Misuse, Result};
use crate::hold::{MayWait, Place, is_within};
use crate::kernel::Module;
use crate::life::Phase;
use crate::pinned::Pinned;
use crate::queue::Stream;
use crate::reclaim::Ask;
use crate::registration::{HostRange, device_address};
pub use crate::shared::ShutdownReport;
use crate::shared::{Anchor, Ending, Shared};
use crate::stream::StreamState;
use crate::sync::Arc;
use crate::sync::clock;

/// Elements of buffers: plain data, any bit pattern valid.
pub trait Element: bytemuck::Pod + Send + Sync {}
impl<T: bytemuck::Pod + Send + Sync> Element for T {}

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
        let shared = Arc::new(Shared::new(driver, config));
        if shared.config.reclaim == ReclaimMode::Worker {
            shared.has_worker(crate::worker::start(shared.clone()));
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
            shared.begin_shutdown();
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
