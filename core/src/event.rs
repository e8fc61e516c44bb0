//! Marks in a stream that a program keeps: to wait for, to order by, to measure with.

use std::time::Duration;

use crate::driver::{Call, Driver, Progress, Timing};
use crate::error::{Misuse, Result};
use crate::hold::{MayWait, Place, is_within};
use crate::mutant;
use crate::ownership::touch::Touch;
use crate::ownership::{Point, Points};
use crate::point::Mark;
use crate::queue::Stream;
use crate::reclaim::{Resource, Retired};
use crate::runtime::Anchor;
use crate::sync::Arc;

/// The end of a stream at the time of the record. Made by [`Stream::record`] and [`Stream::record_timed`].
///
/// The record is a submission of its own: once the event is known to be complete, by whoever asked, its time is there too.
/// Dropping it waits for nothing; the driver's event goes back through the worker.
#[derive(Debug)]
pub struct Event<D: Driver> {
    raw: Option<D::Event>,
    point: Point<D>,
    /// The place of the record itself: a complete event proves this, and nothing of what came after.
    mark: Mark,
    anchor: Arc<Anchor<D>>,
}

impl<D: Driver> Drop for Event<D> {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            // Destroying an event may wait for streams on some drivers; that it is pending does not matter to any.
            self.anchor.reclaim.retire(Retired { resource: Resource::Event(raw), points: Points::new() });
        }
    }
}

impl<D: Driver> Event<D> {
    pub(crate) fn record(stream: &Stream<D>, timing: Timing) -> Result<Self> {
        use crate::queue::Submit;
        let anchor = stream.anchor().clone();
        let context = &anchor.context;
        context.life.check_open()?;
        context.check_alive()?;
        stream.state().check_takes_work(context)?;
        let state = stream.state();
        let gate = state.gate_or(|| is_within(Place::Hold)).ok_or(Misuse::InsideHold)?;
        let raw = context.check(Call::EventCreate, context.driver.event_create(timing))?;
        let early = mutant!("o2_event_unnumbered").then(|| state.timeline.mark());
        match state.record(context, &gate, &raw) {
            Ok(number) => {
                let mark = early.unwrap_or(number.mark());
                Ok(Self { raw: Some(raw), point: stream.point(mark.number()), mark, anchor: anchor.clone() })
            }
            Err(error) => {
                context.event_destroy(raw);
                Err(error)
            }
        }
    }

    fn raw(&self) -> &D::Event {
        self.raw.as_ref().expect("an event is taken out only by its drop")
    }

    /// Whether the work before the event has completed.
    ///
    /// # Errors
    /// `Lost`, the driver's.
    pub fn is_complete(&self) -> Result<bool> {
        let context = &self.anchor.context;
        if self.point.is_complete() {
            return Ok(true);
        }
        context.life.check_process()?;
        context.check_alive()?;
        // As a guest: some drivers follow the event to its stream.
        let Some(guest) = self.point.stream.visit(self.point.number) else { return Ok(true) };
        let _guest = (!mutant!("s6_event_query_unvisited")).then_some(guest);
        match context.guarded_now(Call::EventQuery, |driver| driver.event_query(self.raw())) {
            Some(progress) => {
                let is_complete = progress? == Progress::Complete;
                if is_complete {
                    self.tell();
                }
                Ok(is_complete)
            }
            None => Ok(false),
        }
    }

    /// Notes what the event has proved.
    fn tell(&self) {
        let timeline = &self.point.stream.timeline;
        timeline.reach(if mutant!("o2_event_raises_to_the_end") { timeline.mark() } else { self.mark });
    }

    /// Waits until the work before the event has completed.
    ///
    /// # Errors
    /// `Lost`, the driver's; `Misuse::InsideHold`; `Misuse::InsideCapture` on drivers where a wait would break the
    /// capture.
    pub fn synchronize(&self) -> Result<()> {
        let mut may = MayWait::here()?;
        if self.point.is_complete() {
            return Ok(());
        }
        let context = &self.anchor.context;
        context.life.check_process()?;
        context.check_alive()?;
        let Some(guest) = self.point.stream.visit(self.point.number) else { return Ok(()) };
        let _guest = (!mutant!("s6_event_wait_unvisited")).then_some(guest);
        context.guarded(&mut may, Call::EventSynchronize, |driver| driver.event_synchronize(self.raw()))?;
        self.tell();
        Ok(())
    }

    /// The device's time from `self` to `later`; both recorded with [`Stream::record_timed`] and complete. On an adopted stream
    /// of a driver whose events do not outlive their streams it is taken a moment later, by a stream that follows it.
    ///
    /// # Errors
    /// The driver's, when one is not complete or has no time; `Misuse::ForeignRuntime`.
    pub fn elapsed(&self, later: &Self) -> Result<Duration> {
        if !Arc::ptr_eq(&self.anchor, &later.anchor) {
            return Err(Misuse::ForeignRuntime.into());
        }
        let context = &self.anchor.context;
        let milliseconds = context.check(Call::EventElapsed, context.driver.event_elapsed(self.raw(), later.raw()))?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3).unwrap_or(Duration::MAX))
    }

    pub(crate) fn order_before(&self, stream: &Stream<D>) -> Result<()> {
        use crate::queue::Submit;
        if !Arc::ptr_eq(&self.anchor, stream.anchor()) {
            return Err(Misuse::ForeignRuntime.into());
        }
        let context = &self.anchor.context;
        context.life.check_open()?;
        if self.point.is_complete() || self.point.stream.id() == stream.id() {
            return Ok(());
        }
        let mut gate = stream.state().gate_or(|| is_within(Place::Hold)).ok_or(Misuse::InsideHold)?;
        if gate.follows.find(self.point.stream.id(), self.point.number).is_some() {
            return Ok(());
        }
        stream.state().check_takes_work(context)?;
        // As a guest: some drivers follow the event to its stream.
        let Some(guest) = self.point.stream.visit(self.point.number) else { return Ok(()) };
        let _guest = (!mutant!("s6_event_order_unvisited")).then_some(guest);
        let at = stream.state().accept_wait(context, &gate, self.raw())?;
        let timeline = &self.point.stream.timeline;
        let reach = if mutant!("o1_event_follows_to_the_end") { timeline.mark() } else { self.mark };
        gate.follows.insert(self.point.stream.id(), reach, Touch::at_wait(at));
        Ok(())
    }
}
