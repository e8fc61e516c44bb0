//! Adopted streams: made, used and destroyed by other code, and asked by a mark.
//!
//! Nobody may ask such a stream itself: its owner enqueues what we do not know of, begins captures, and destroys it. So its end is
//! *marked*: after each submission that the driver accepts, be it a launch, a wait or an event, and before its number is taken.
//!
//! | state | meaning | left by | keeps |
//! |---|---|---|---|
//! | adopted | leased; nothing is accepted and not marked | a submission | S8 |
//! | accepted | under the gate: work that has no number | its mark: adopted; a mark that fails: broken | S8 O2 |
//! | broken | given up, before the number was taken; what it used is leaked | nothing | S7 S8 P11 |
//! | ending | no lease: no more submissions; guests ask for what is pending | an idle answer without guests | S9 |
//! | over | what marked it is given back; every number is complete, as on a stream that was trimmed | nothing | S6 S9 |
//!
//! What marks it is an event of ours. Where a driver's events need the stream that they were recorded on
//! ([`events_outlive_streams`](crate::driver::Capabilities::events_outlive_streams)), the owner would have to keep the stream as
//! long as anything may ask; there a *shadow* marks it: a stream of ours that is made to wait for the event, and is asked, waited for and
//! followed in its place; and so where asking an event breaks captures of other code (C1). Either way the last clone of the handle is the last that touches the adopted stream (S9).

use crate::context::Context;
use crate::driver::{Call, Capabilities, Driver, Priority, Timing};
use crate::error::{Error, Result};
use crate::stream_state::adoption::Adoption;
use crate::stream_state::{Kind, Role, StreamState};
use crate::sync::Arc;

impl<D: Driver> StreamState<D> {
    /// Adopts a stream that somebody else made.
    ///
    /// # Errors
    /// The driver's, when it does not make what marks the stream; nothing is left then.
    pub fn adopt(context: &Context<D>, raw: D::Stream) -> Result<Arc<Self>> {
        let mark = context.check(Call::EventCreate, context.driver.event_create(Timing::Disabled))?;
        let Capabilities { events_outlive_streams, relaxed_protects_events, .. } = context.capabilities;
        let state = if events_outlive_streams && relaxed_protects_events {
            Self::new(raw, Kind::Adopted(mark))
        } else {
            match context.check(Call::StreamCreate, context.driver.stream_create(Priority::Normal)) {
                Ok(shadow) => Self::with_role(raw, Role::Adopted(Adoption::new(mark, Some(shadow)))),
                Err(error) => {
                    context.event_destroy(mark);
                    return Err(error);
                }
            }
        };
        context.adoptions.note(&state);
        context.add_witness(&state);
        Ok(state)
    }

    /// Moves the mark to the stream's new end, before the submission gets its number. Should that fail, nobody can tell when
    /// the work ends: the stream is given up, and what it used is never released (S8, P11).
    #[cold]
    pub(crate) fn mark(&self, context: &Context<D>, adoption: &Adoption<D>) {
        let Some(mark) = adoption.mark() else { return };
        let driver = &context.driver;
        let mut answer = context.check(Call::EventRecord, driver.event_record(&mark, &self.raw));
        if let Some(shadow) = &adoption.shadow
            && answer.is_ok()
        {
            answer = context.check(Call::StreamWaitEvent, driver.stream_wait_event(shadow, &mark));
        }
        if let Err(Error::Driver(failure) | Error::Lost(failure)) = answer {
            self.break_with(failure);
        }
    }

    /// Gives back what marks the stream: its lease has ended, and whoever still names it finds every number complete, or the
    /// stream given up. `false`: somebody asks right now, or work is pending.
    ///
    /// # Errors
    /// The driver's.
    pub fn end_adoption(&self, context: &Context<D>) -> Result<bool> {
        let Role::Adopted(adoption) = &self.role else { return Ok(true) };
        if !self.is_let_go(context) {
            return Ok(false);
        }
        if !self.is_broken() {
            context.adoptions.forget(self);
        }
        self.destroy_event(context);
        context.remove_witness(self);
        let mark = adoption.end();
        // Nobody else has it: copies are made and let go inside of visits, or by who asks a witness.
        if let Some(Ok(mark)) = mark.map(Arc::try_unwrap) {
            context.event_destroy(mark);
        }
        // A shadow that was given up may wait for what never comes, and some drivers' destroy with it: it is left.
        let Some(shadow) = adoption.shadow.as_ref().filter(|_| !self.is_broken()) else { return Ok(true) };
        // SAFETY: S6, S9. It is ours, idle and unvisited, and who visits from now on turns round at once.
        let answer = unsafe { context.driver.stream_destroy(shadow) };
        context.check(Call::StreamDestroy, answer).map(|()| true)
    }
}
