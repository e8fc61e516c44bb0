//! Marks in a stream that a program keeps: to wait for, to order by, to measure with.

use std::time::Duration;

use crate::call_scope::{CallScope, MayWait, is_within};
use crate::driver::{Call, Driver, Priority, Progress, Timing};
use crate::error::{Error, Misuse, Result};
use crate::ownership::{Point, Points};
use crate::point::Mark;
use crate::queue::Submit;
use crate::reclaim::{Resource, Retired};
use crate::shared::Anchor;
use crate::stream::Stream;
use crate::stream_state::touch::Touch;
use crate::sync::{Arc, Mutex};

/// The end of a stream at the time of the record. Made by [`Stream::record`] and [`Stream::record_timed`].
///
/// The record is a submission of its own: once the event is known to be complete, by whoever asked, its time is there too.
/// Dropping it waits for nothing; the driver's event goes back through the worker.
///
/// Where the driver's own question about an event breaks captures of other code
/// ([`relaxed_protects_events`](crate::driver::Capabilities::relaxed_protects_events)), it is never put (C1): the event's
/// stream is asked, and while that has later work, a leased stream that waits for the event.
#[derive(Debug)]
pub struct Event<D: Driver> {
    raw: Option<D::Event>,
    point: Point<D>,
    /// The place of the record itself: a complete event proves this, and nothing of what came after.
    mark: Mark,
    /// Waits for the event and does nothing else, where the event itself is not to be asked.
    follower: Mutex<Option<Stream<D>>>,
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

impl<D: Driver> Stream<D> {
    /// Marks the present end of the stream.
    ///
    /// # Errors
    /// `Lost`, the driver's.
    pub fn record(&self) -> Result<Event<D>> {
        Event::record(self, Timing::Disabled)
    }

    /// Marks the present end of the stream, with the time at which it is reached.
    ///
    /// # Errors
    /// Those of [`record`](Self::record).
    pub fn record_timed(&self) -> Result<Event<D>> {
        Event::record(self, Timing::Enabled)
    }

    /// Orders all later work of this stream after `event`.
    ///
    /// # Errors
    /// The driver's; `Misuse::ForeignRuntime`.
    pub fn wait_event(&self, event: &Event<D>) -> Result<()> {
        event.order_before(self)
    }
}

impl<D: Driver> Event<D> {
    fn record(stream: &Stream<D>, timing: Timing) -> Result<Self> {
        let anchor = stream.anchor().clone();
        let context = &anchor.context;
        anchor.check_open()?;
        stream.state().check_takes_work(context)?;
        let state = stream.state();
        let gate = state.gate_or(|| is_within(CallScope::UseOn)).ok_or(Misuse::InsideHold)?;
        let raw = context.check(Call::EventCreate, context.driver.event_create(timing))?;
        match state.record(context, &gate, &raw) {
            Ok(number) => {
                let mark = number.mark();
                let (point, follower) = (stream.point(mark.number()), Mutex::new(None));
                Ok(Self { raw: Some(raw), point, mark, follower, anchor: anchor.clone() })
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
        let Some(_guest) = self.point.stream.visit(self.point.number) else { return Ok(true) };
        if self.is_asked_by_streams() {
            return self.ask_by_streams();
        }
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

    fn is_asked_by_streams(&self) -> bool {
        !self.anchor.context.capabilities.relaxed_protects_events
    }

    /// [`is_complete`](Self::is_complete) without a question about the event. The caller is a guest of its stream.
    #[cold]
    fn ask_by_streams(&self) -> Result<bool> {
        match self.point.stream.query(&self.anchor.context) {
            Some(Ok(Progress::Pending)) => {}
            Some(answer) => return answer.map(|_complete| true),
            None => return Ok(false),
        }
        if self.point.is_complete() {
            return Ok(true);
        }
        // Later work may be what is pending.
        let Some(follower) = self.follow()? else { return Ok(false) };
        let is_complete = follower.is_idle()?;
        if is_complete {
            self.tell();
            drop(self.follower.lock().take());
        }
        Ok(is_complete)
    }

    /// The stream that waits for the event and does nothing else; `None` where the pool has none to spare.
    fn follow(&self) -> Result<Option<Stream<D>>> {
        let known = self.follower.lock().clone();
        if known.is_some() {
            return Ok(known);
        }
        let claimed = match self.anchor.pool.claim(&self.anchor.context, Priority::Normal) {
            Err(Error::StreamLimit { .. }) => return Ok(None),
            claimed => Stream::new(self.anchor.clone(), claimed?),
        };
        self.order_before(&claimed)?;
        // Of two who came at once the later one's stays; either will do.
        *self.follower.lock() = Some(claimed.clone());
        Ok(Some(claimed))
    }

    /// [`synchronize`](Self::synchronize) without a wait for the event. The caller is a guest of its stream.
    #[cold]
    fn wait_by_streams(&self, may: &mut MayWait) -> Result<()> {
        let context = &self.anchor.context;
        match self.follow()? {
            Some(follower) => follower.wait(may)?,
            // Longer than need be, if there is later work.
            None => return self.point.wait(context, may),
        }
        self.tell();
        drop(self.follower.lock().take());
        Ok(())
    }

    /// Notes what the event has proved.
    fn tell(&self) {
        self.point.stream.timeline.reach(self.mark);
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
        let Some(_guest) = self.point.stream.visit(self.point.number) else { return Ok(()) };
        if self.is_asked_by_streams() {
            return self.wait_by_streams(&mut may);
        }
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
        context.check_alive()?;
        let milliseconds = context.check(Call::EventElapsed, context.driver.event_elapsed(self.raw(), later.raw()))?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3).unwrap_or(Duration::MAX))
    }

    fn order_before(&self, stream: &Stream<D>) -> Result<()> {
        if !Arc::ptr_eq(&self.anchor, stream.anchor()) {
            return Err(Misuse::ForeignRuntime.into());
        }
        let context = &self.anchor.context;
        context.check_open()?;
        if self.point.is_complete() || self.point.stream.id() == stream.id() {
            return Ok(());
        }
        let mut gate = stream.state().gate_or(|| is_within(CallScope::UseOn)).ok_or(Misuse::InsideHold)?;
        if gate.follows.find(self.point.stream.id(), self.point.number).is_some() {
            return Ok(());
        }
        stream.state().check_takes_work(context)?;
        // As a guest: some drivers follow the event to its stream.
        let Some(_guest) = self.point.stream.visit(self.point.number) else { return Ok(()) };
        let at = stream.state().accept_wait(context, &gate, self.raw())?;
        gate.follows.insert(self.point.stream.id(), self.mark, Touch::at_wait(at));
        Ok(())
    }
}
