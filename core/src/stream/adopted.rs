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
use crate::stream::{Kind, Role, StreamState};
use crate::sync::{Arc, Mutex};

/// What marks the end of an adopted stream.
#[derive(Debug)]
pub struct Adoption<D: Driver> {
    // Taken by the end of the adoption. Held for a copy only, never across a driver call.
    mark: Mutex<Option<Arc<D::Event>>>,
    shadow: Option<D::Stream>,
}

/// The adopted streams of a runtime, from their adoption to its end; those that were given up stay, since nobody knows when
/// their work ends (C4, P11).
#[derive(Debug)]
pub struct Adoptions<D: Driver>(Mutex<Vec<Arc<StreamState<D>>>>);

impl<D: Driver> Adoptions<D> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// All of them. Takes a lock that is never held across a driver call (R1).
    pub fn streams(&self) -> Vec<Arc<StreamState<D>>> {
        self.0.lock().clone()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    fn note(&self, state: &Arc<StreamState<D>>) {
        self.0.lock().push(state.clone());
    }

    fn forget(&self, state: &StreamState<D>) {
        self.0.lock().retain(|other| other.id() != state.id());
    }
}

/// Where the end of a stream is asked for.
#[derive(Debug)]
pub enum End<'a, D: Driver> {
    /// On this stream: it is ours.
    Stream(&'a D::Stream),
    /// By this event.
    Event(Arc<D::Event>),
    /// Nowhere: the adoption is over, and all of it complete.
    Over,
}

/// An adoption that was ended by [`Stream::end_adoption`](crate::Stream::end_adoption): the stream is its owner's alone again.
#[derive(Debug)]
pub struct EndedAdoption<D: Driver>(Arc<StreamState<D>>);

impl<D: Driver> EndedAdoption<D> {
    pub(crate) fn new(state: Arc<StreamState<D>>) -> Self {
        Self(state)
    }

    /// The stream that had been adopted.
    pub fn raw(&self) -> &D::Stream {
        &self.0.raw
    }
}

impl<D: Driver> Adoption<D> {
    pub(super) fn new(mark: D::Event, shadow: Option<D::Stream>) -> Self {
        Self { mark: Mutex::new(Some(Arc::new(mark))), shadow }
    }

    fn mark(&self) -> Option<Arc<D::Event>> {
        self.mark.lock().clone()
    }
}

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

    /// Where the end of the stream is asked for.
    pub fn end(&self) -> End<'_, D> {
        let Role::Adopted(adoption) = &self.role else { return End::Stream(&self.raw) };
        match (&adoption.shadow, adoption.mark()) {
            (_, None) => End::Over,
            (Some(shadow), Some(_)) => End::Stream(shadow),
            (None, Some(mark)) => End::Event(mark),
        }
    }

    /// A stream of ours that runs after this one, for what a guest enqueues.
    pub fn guest_stream(&self) -> Option<&D::Stream> {
        match &self.role {
            Role::Pooled(_) => Some(&self.raw),
            Role::Adopted(adoption) => adoption.shadow.as_ref(),
            Role::Capture => None,
        }
    }

    /// The shadow of an adopted stream that has one.
    pub fn shadow(&self) -> Option<&D::Stream> {
        match &self.role {
            Role::Adopted(adoption) => adoption.shadow.as_ref(),
            _ => None,
        }
    }

    /// Moves the mark to the stream's new end, before the submission gets its number. Should that fail, nobody can tell when
    /// the work ends: the stream is given up, and what it used is never released (S8, P11).
    #[cold]
    pub(super) fn mark(&self, context: &Context<D>, adoption: &Adoption<D>) {
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
        let mark = adoption.mark.lock().take();
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
