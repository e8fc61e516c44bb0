//! A reset of the device by other code (R11).
//!
//! A driver tells nobody of it. What was made before names nothing any more, and each call with it is refused like one with a
//! bad handle; what is made afterwards works. So a call of ours that is refused so is no proof: its stream may be an adopted
//! one that its owner has destroyed. A *witness* decides: the oldest stream of ours that still exists, which nobody else can
//! have destroyed. If it is refused as well, all that we have is gone, and the device is lost to this runtime.
//!
//! The oldest, since what was made after a reset is no witness of it.

use crate::context::Context;
use crate::driver::{Call, Driver, DriverError as _, ErrorKind};
use crate::life::Phase;
use crate::stream_state::StreamState;
use crate::stream_state::adoption::End;
use crate::sync::{Arc, Mutex};

/// The streams that a runtime has, oldest first: those that it made, and what marks those that it adopted.
#[derive(Debug)]
pub struct Witnesses<D: Driver> {
    // Held across a question to the driver that waits for nothing, so that nobody destroys what is asked. Whoever has it
    // takes the lock of the capture gate or of a mark, no other.
    streams: Mutex<Vec<Arc<StreamState<D>>>>,
}

impl<D: Driver> Witnesses<D> {
    pub(super) fn new() -> Self {
        Self { streams: Mutex::new(Vec::new()) }
    }
}

/// Whether the refusal of `call` may come from a reset: of a handle, or of an address that the driver gave us.
fn is_suspect(call: Call, kind: ErrorKind) -> bool {
    let gives_back = matches!(call, Call::Free | Call::FreeAsync | Call::HostFree | Call::HostUnregister);
    match kind {
        ErrorKind::InvalidHandle => true,
        ErrorKind::InvalidValue | ErrorKind::NotRegistered => gives_back,
        _ => false,
    }
}

impl<D: Driver> Context<D> {
    /// Lists a stream as a witness: from its making to its end.
    pub fn add_witness(&self, state: &Arc<StreamState<D>>) {
        self.witnesses.streams.lock().push(state.clone());
        // Who notes a loss does so before it closes what is listed.
        if self.lost().is_some() {
            state.close();
        }
    }

    /// Takes a stream, or an adoption, off the list: before its handles are given back. Waits for a question about it.
    pub fn remove_witness(&self, state: &StreamState<D>) {
        self.witnesses.streams.lock().retain(|other| other.id() != state.id());
    }

    /// Whether the refusal of a call shows that other code has reset the device. Asks the oldest witness.
    #[cold]
    pub(super) fn shows_reset(&self, call: Call, kind: ErrorKind) -> bool {
        if !is_suspect(call, kind) || self.life.is_inherited() || self.life.is_past(Phase::Gone) {
            return false;
        }
        // Shown already: nothing is asked with old handles any more.
        if self.lost().is_some() {
            return true;
        }
        let streams = self.witnesses.streams.lock();
        streams.iter().find_map(|state| self.refuses(state)).unwrap_or(false)
    }

    /// Whether the driver knows nothing of a stream of ours; `None` where it cannot be asked.
    fn refuses(&self, state: &StreamState<D>) -> Option<bool> {
        let answer = match state.end() {
            // Nobody asks a stream that captures.
            _ if state.is_for_captures() => return None,
            End::Over => return None,
            End::Stream(stream) => {
                match self.asks_now(Call::StreamQuery, |driver| driver.stream_query(stream).map(drop)) {
                    Some(answer) => answer,
                    // A question that no capture minds.
                    None => self.driver.capture_status(stream).map(drop),
                }
            }
            End::Event(mark) => self.asks_now(Call::EventQuery, |driver| driver.event_query(&mark).map(drop))?,
        };
        Some(answer.is_err_and(|error| error.kind() == ErrorKind::InvalidHandle))
    }

    /// As [`guarded_now`](Self::guarded_now), for who makes an error of what comes back and must not come here again.
    fn asks_now<R>(&self, call: Call, question: impl FnOnce(&D) -> Result<R, D::Error>) -> Option<Result<R, D::Error>> {
        let _entry = if self.protects(call) { None } else { Some(self.captures.enter_now()?) };
        self.exchanged(|| question(&self.driver)).ok().map(|(answer, _)| answer)
    }

    /// Takes the device away: nothing is submitted to any stream of ours any more, covered or not.
    pub(super) fn close_streams(&self) {
        self.witnesses.streams.lock().iter().for_each(|state| state.close());
    }
}
