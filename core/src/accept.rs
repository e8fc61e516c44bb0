//! Numbers: the one place where work is accepted, marked and numbered.

use crate::context::Context;
use crate::driver::{Call, Driver};
use crate::error::{Error, Result};
use crate::point::{Accepted, Number};
use crate::stream_state::{Gate, Role, StreamState};

impl<D: Driver> StreamState<D> {
    /// Makes a driver call that enqueues on the stream, under the stream's own gate, and numbers what was accepted. There
    /// is no other way to a number but [`attempt`](Self::attempt).
    ///
    /// # Errors
    /// The driver's: then no number was taken. A mark that fails is no error, since the work was accepted: the stream is
    /// given up.
    #[inline]
    pub fn accept<R>(
        &self,
        context: &Context<D>,
        gate: &Gate<D>,
        call: Call,
        body: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> Result<(R, Number)> {
        let value = context.check(call, body(&context.driver, &self.raw))?;
        Ok((value, self.number(context, gate)))
    }

    /// As [`accept`](Self::accept), where what the call enqueues uses memory: a call that fails may have had its effect, so
    /// that is numbered as well. The number then may stand for nothing, which costs a question.
    ///
    /// # Errors
    /// That the stream takes no work: then no call was made.
    #[inline]
    pub fn attempt<R>(
        &self,
        context: &Context<D>,
        gate: &Gate<D>,
        body: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> Result<(std::result::Result<R, D::Error>, Number)> {
        if self.is_adopted() {
            return self.attempt_on_adopted(context, gate, body);
        }
        Ok(self.attempt_unmarked(context, gate, body))
    }

    /// [`attempt`](Self::attempt) on a stream whose [key](Self::key) is its own: nobody adopted it.
    #[inline]
    pub fn attempt_outright<R>(
        &self,
        context: &Context<D>,
        gate: &Gate<D>,
        body: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> (std::result::Result<R, D::Error>, u64) {
        debug_assert!(!self.is_adopted(), "S8: it has a mark to be moved");
        let (answer, number) = self.attempt_unmarked(context, gate, body);
        (answer, number.get())
    }

    #[inline]
    fn attempt_unmarked<R>(
        &self,
        context: &Context<D>,
        gate: &Gate<D>,
        body: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> (std::result::Result<R, D::Error>, Number) {
        let answer = body(&context.driver, &self.raw);
        (answer, self.timeline.submit(Accepted::under(gate)))
    }

    #[cold]
    #[inline(never)]
    fn attempt_on_adopted<R>(
        &self,
        context: &Context<D>,
        gate: &Gate<D>,
        body: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> Result<(std::result::Result<R, D::Error>, Number)> {
        self.check_takes_work(context)?;
        let answer = body(&context.driver, &self.raw);
        Ok((answer, self.number(context, gate)))
    }

    /// Moves the mark past what was just accepted, and numbers it.
    #[inline]
    fn number(&self, context: &Context<D>, gate: &Gate<D>) -> Number {
        if let Role::Adopted(adoption) = &self.role {
            self.mark(context, adoption);
        }
        self.timeline.submit(Accepted::under(gate))
    }

    /// [`accept`](Self::accept) of a wait for an event: a submission as well, but of nobody's work.
    ///
    /// # Errors
    /// As there.
    pub fn accept_wait(&self, context: &Context<D>, gate: &Gate<D>, event: &D::Event) -> Result<Number> {
        let wait = |driver: &D, raw: &D::Stream| {
            driver.stream_wait_event(raw, event)?;
            self.counters.waits.bump();
            Ok(())
        };
        self.accept(context, gate, Call::StreamWaitEvent, wait).map(|((), number)| number)
    }

    /// [`accept`](Self::accept) of the record of an event of the user's: of a submission that is nobody's work either. An event
    /// of an adopted stream with a shadow is recorded there, behind the mark, and so outlives the adopted stream (S9).
    ///
    /// # Errors
    /// As there; `StreamBroken` where the mark failed that the event was to stand behind.
    pub fn record(&self, context: &Context<D>, gate: &Gate<D>, event: &D::Event) -> Result<Number> {
        let record = |driver: &D, raw: &D::Stream| {
            if self.shadow().is_none() {
                driver.event_record(event, raw)?;
            }
            self.counters.waits.bump();
            Ok(())
        };
        let ((), number) = self.accept(context, gate, Call::EventRecord, record)?;
        if let Some(shadow) = self.shadow() {
            if let Some(cause) = self.broken() {
                return Err(Error::StreamBroken(cause));
            }
            context.check(Call::EventRecord, context.driver.event_record(event, shadow))?;
        }
        Ok(number)
    }
}
