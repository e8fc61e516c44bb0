//! The runtime: what a program makes first and lets go last.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::call_scope::{CallScope, is_within};
pub use crate::config::{Config, ReclaimMode};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::life::Phase;
pub use crate::memory::Element;
use crate::reclaim::Ask;
pub use crate::shared::ShutdownReport;
use crate::shared::{Anchor, Ending, Shared};
use crate::sync::Arc;
use crate::sync::clock;

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
    /// Those of [`new`](Self::new).
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
            in_capture: is_within(CallScope::Capture),
        };
        if !shared.context.life.is_inherited() {
            shared.close_to_work();
            Shared::wind_up_in_time(&shared, ending);
            shared.context.life.advance(Phase::Gone);
        }
        shared.report(ending)
    }
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
