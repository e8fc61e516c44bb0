//! What every part of the core needs for a driver call: the driver, the captures to respect, and whether
//! the device is still there.

use std::sync::Arc;

use crate::call_scope::MayWait;
use crate::capture_gate::{CaptureGate, Entry};
use crate::driver::{Call, Capabilities, CaptureMode, Driver, DriverError as _, Process};
use crate::error::{DriverFailure, Error, Result};
use crate::life::Life;
use crate::stream_state::adoption::Adoptions;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{ArcCell, Mutex};

pub mod reset;

use self::reset::Witnesses;

/// The driver with what surrounds each of its calls.
#[derive(Debug)]
pub struct Context<D: Driver> {
    pub driver: D,
    pub capabilities: Capabilities,
    pub captures: CaptureGate,
    /// The adopted streams on which work may be pending.
    pub adoptions: Adoptions<D>,
    /// Whose registrations the driver's are.
    pub process: Process,
    pub life: Life,
    witnesses: Witnesses<D>,
    // Set once and for all by the first sticky error (R6), or the first that a reset explains (R11). Read before waits and
    // in drops, never on the launch path: whoever sets it closes the streams, as the end does.
    lost: ArcCell<Option<Arc<DriverFailure>>>,
    // Whether `lost` is set: a plain load, where the cell takes two read-modify-writes. It follows the cell, and is
    // only a filter: a thread that reads an old `false` reads from before the loss, as it may in the cell.
    is_lost: AtomicBool,
    // Held from the look for a first cause to its note, so that of two at once one is the first (R7). Nothing is locked
    // under it.
    losing: Mutex<()>,
    // Errors of calls that nobody was there to be told of (R7). Taken last, and never held across a driver call.
    untold: Mutex<Vec<Error>>,
}

/// How many errors are kept that nobody has asked for: the oldest.
const ERRORS_KEPT: usize = 16;

impl<D: Driver> Context<D> {
    /// A context around `driver`.
    pub fn new(driver: D) -> Self {
        let (capabilities, process) = (driver.capabilities(), driver.process());
        Self {
            driver,
            process,
            capabilities,
            captures: CaptureGate::new(),
            life: Life::new(),
            adoptions: Adoptions::new(),
            witnesses: Witnesses::new(),
            lost: ArcCell::new(Arc::new(None)),
            is_lost: AtomicBool::new(false),
            losing: Mutex::new(()),
            untold: Mutex::new(Vec::new()),
        }
    }

    /// The error that took the device away, if it is gone.
    pub fn lost(&self) -> Option<Arc<DriverFailure>> {
        // Relaxed: nothing is read on its word but the cell, which has an order of its own.
        if !self.is_lost.load(Ordering::Relaxed) {
            return None;
        }
        Option::clone(&self.lost.load())
    }

    /// Refuses when the device is gone.
    pub fn check_alive(&self) -> Result<()> {
        match self.lost() {
            Some(cause) => Err(Error::Lost(cause)),
            None => Ok(()),
        }
    }

    /// Refuses when no new work is taken: at the end, and when the device is gone.
    pub fn check_open(&self) -> Result<()> {
        self.life.check_open()?;
        self.check_alive()
    }

    /// Notes a failed driver call: a sticky error takes the device away for all (R6), and so does a refusal that a reset by
    /// other code explains (R11).
    #[cold]
    pub fn fail(&self, call: Call, error: &D::Error) -> Error {
        let failure = DriverFailure::new(call, error);
        let is_lost = failure.kind.is_sticky() || self.shows_reset(call, failure.kind);
        if !is_lost {
            return Error::Driver(failure);
        }
        let cause = self.lose(failure);
        self.close_streams();
        Error::Lost(cause)
    }

    /// Notes the loss, unless it is known; gives its first cause.
    fn lose(&self, failure: Arc<DriverFailure>) -> Arc<DriverFailure> {
        let _first = self.losing.lock();
        self.lost().unwrap_or_else(|| {
            self.lost.store(Arc::new(Some(failure.clone())));
            // Relaxed: as in `lost`.
            self.is_lost.store(true, Ordering::Relaxed);
            failure
        })
    }

    /// Why a stream of ours takes no work: the loss that closed it, or the end.
    #[cold]
    pub fn why_closed(&self) -> Error {
        // The streams are closed after the loss was noted under this lock: who sees one closed for that sees the loss here.
        let _noted = self.losing.lock();
        self.lost().map_or(Error::Closed, Error::Lost)
    }

    /// As [`fail`](Self::fail), for a call that has nobody to return its error to: it is kept (R7).
    #[cold]
    pub fn fail_untold(&self, call: Call, error: &D::Error) {
        self.keep_untold(self.fail(call, error));
    }

    /// Keeps an error that nobody is there to be told of (R7).
    #[cold]
    pub fn keep_untold(&self, error: Error) {
        let mut untold = self.untold.lock();
        if untold.len() < ERRORS_KEPT {
            untold.push(error);
        }
    }

    /// Takes the errors that nobody was told of.
    pub fn take_untold(&self) -> Vec<Error> {
        std::mem::take(&mut *self.untold.lock())
    }

    /// Turns a driver's answer into ours.
    #[inline]
    pub fn check<R>(&self, call: Call, answer: std::result::Result<R, D::Error>) -> Result<R> {
        match answer {
            Ok(value) => Ok(value),
            Err(error) => Err(self.fail(call, &error)),
        }
    }

    /// Makes a guarded call so that it breaks nobody's capture (C1); waits for the end of captures that it would
    /// break in any mode, or refuses when the waiting thread itself captures (C9).
    pub fn guarded<R>(
        &self,
        may: &mut MayWait,
        call: Call,
        body: impl FnOnce(&D) -> std::result::Result<R, D::Error>,
    ) -> Result<R> {
        self.enter(may, call)?.call(call, body)
    }

    /// As [`guarded`](Self::guarded), for a call that is made somewhere inside `body`.
    pub fn guarded_scope<R>(&self, may: &mut MayWait, call: Call, body: impl FnOnce() -> Result<R>) -> Result<R> {
        let _entered = self.enter(may, call)?;
        self.relaxed(call, body)
    }

    /// Gets leave for guarded calls like `call`, as [`guarded`](Self::guarded) does, before a lock is taken that they
    /// are made under.
    ///
    /// # Errors
    /// `InsideCapture` where that would wait for a capture and the calling thread itself captures (C9); `Lost`.
    pub fn enter<'a>(&'a self, may: &'a mut MayWait, call: Call) -> Result<Entered<'a, D>> {
        self.check_alive()?;
        let entry = if self.protects(call) { None } else { Some(self.captures.enter_waiting(may)?) };
        Ok(Entered { context: self, may, _entry: entry })
    }

    /// As [`guarded`](Self::guarded), but where that would wait for a capture it gives `None` at once.
    pub fn guarded_now<R>(
        &self,
        call: Call,
        body: impl FnOnce(&D) -> std::result::Result<R, D::Error>,
    ) -> Option<Result<R>> {
        let _entry = if self.protects(call) { None } else { Some(self.captures.enter_now()?) };
        Some(self.relaxed(call, || self.check(call, body(&self.driver))))
    }

    fn protects(&self, call: Call) -> bool {
        match call {
            Call::EventQuery | Call::EventSynchronize => self.capabilities.relaxed_protects_events,
            _ => self.capabilities.relaxed_protects,
        }
    }

    /// Runs `body`, which makes `call`, with this thread's capture mode exchanged to relaxed. A loss that shows in the
    /// exchange is the call's: it is what was asked for (R7).
    fn relaxed<R>(&self, call: Call, body: impl FnOnce() -> Result<R>) -> Result<R> {
        let failed = |error: D::Error| {
            let is_lost = error.kind().is_sticky();
            self.fail(if is_lost { call } else { Call::ExchangeCaptureMode }, &error)
        };
        let (answer, back) = self.exchanged(body).map_err(failed)?;
        if let Some(error) = back {
            // The call has its own answer; a loss is noted.
            drop(failed(error));
        }
        answer
    }

    /// Runs `body` with this thread's capture mode exchanged to relaxed. Gives what it returned, with the error of the exchange
    /// back.
    fn exchanged<R>(&self, body: impl FnOnce() -> R) -> std::result::Result<(R, Option<D::Error>), D::Error> {
        let before = self.driver.exchange_capture_mode(CaptureMode::Relaxed)?;
        let value = body();
        // A driver that exchanged once exchanges back; should it not, the next call through it tells.
        let is_back = before == CaptureMode::Relaxed;
        let back = if is_back { None } else { self.driver.exchange_capture_mode(before).err() };
        Ok((value, back))
    }
}

/// Leave for guarded calls: no capture begins that they would break, until this is dropped.
///
/// It has the call's [`MayWait`]: to wait for a capture meanwhile would be to wait for what waits for this.
#[must_use]
pub struct Entered<'a, D: Driver> {
    context: &'a Context<D>,
    may: &'a MayWait,
    _entry: Option<Entry<'a>>,
}

impl<D: Driver> Entered<'_, D> {
    /// Makes a guarded call, like the one that leave was got for.
    pub fn call<R>(&self, call: Call, body: impl FnOnce(&D) -> std::result::Result<R, D::Error>) -> Result<R> {
        self.context.relaxed(call, || self.context.check(call, body(&self.context.driver)))
    }

    /// For what comes after captures in the order of waiting.
    pub fn may(&self) -> &MayWait {
        self.may
    }
}

impl<D: Driver> Context<D> {
    /// Destroys an event; a failure is kept (R7), and the event leaked by the driver.
    pub fn event_destroy(&self, event: D::Event) {
        if self.lost().is_some() {
            return;
        }
        if let Err(error) = self.driver.event_destroy(event) {
            self.fail_untold(Call::EventDestroy, &error);
        }
    }
}
