//! What marks the end of an adopted stream. How it is used: `adopted`.

use super::{Role, StreamState};
use crate::driver::Driver;
use crate::sync::{Arc, Mutex};

/// What marks the end of an adopted stream.
#[derive(Debug)]
pub struct Adoption<D: Driver> {
    // Taken by the end of the adoption. Held for a copy only, never across a driver call.
    mark: Mutex<Option<Arc<D::Event>>>,
    pub(crate) shadow: Option<D::Stream>,
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

    pub(crate) fn note(&self, state: &Arc<StreamState<D>>) {
        self.0.lock().push(state.clone());
    }

    pub(crate) fn forget(&self, state: &StreamState<D>) {
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
    pub(crate) fn new(mark: D::Event, shadow: Option<D::Stream>) -> Self {
        Self { mark: Mutex::new(Some(Arc::new(mark))), shadow }
    }

    /// The event, while the adoption lasts.
    pub(crate) fn mark(&self) -> Option<Arc<D::Event>> {
        self.mark.lock().clone()
    }

    /// Takes the event: the adoption is over.
    pub(crate) fn end(&self) -> Option<Arc<D::Event>> {
        self.mark.lock().take()
    }
}

impl<D: Driver> StreamState<D> {
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
}
