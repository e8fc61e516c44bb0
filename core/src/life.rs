//! The life of a runtime, from its making to its end (R5).
//!
//! | phase | meaning | changes by | keeps |
//! |---|---|---|---|
//! | open | takes work, makes things | `shutdown`, the drop of the last handle | R5 |
//! | draining | refuses both with `Closed`; what was let go is released | whoever drains, when nothing waits or time is up | R5 |
//! | shut | nothing more is released: what is let go is leaked at once | the end of `shutdown`, or of the worker | R5 P11 |
//! | gone | the report is made, and nobody makes a call for the runtime any more | nothing | R5 |
//!
//! A lost device (R6) is a state beside these, of [`Context`](crate::context::Context).
//!
//! What takes work or makes a thing begins with [`Life::check_open`]. A covered launch does not: closing takes from every
//! stream the [key](crate::stream_state::StreamState::key) that covers are compared with, so that a launch finds itself
//! uncovered and comes the slow way, which asks. What asks or waits for what was submitted before goes on: its answer is
//! true, whatever the phase.

use crate::error::{Error, Misuse, Result};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::fork;

/// Where in its life a runtime is. Only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Phase {
    /// Takes work.
    Open,
    /// Refuses new work, and releases what was let go.
    Draining,
    /// Leaks what is let go.
    Shut,
    /// Nobody makes a call for it any more.
    Gone,
}

/// The life of one runtime.
#[derive(Debug)]
pub struct Life {
    phase: AtomicU32,
    /// How often this process had been forked off when the runtime was made.
    born: u32,
}

impl Default for Life {
    fn default() -> Self {
        Self::new()
    }
}

impl Life {
    /// An open one.
    pub fn new() -> Self {
        Self { phase: AtomicU32::new(Phase::Open as u32), born: fork::count() }
    }

    /// Goes on to `phase`, unless it is there or further.
    pub fn advance(&self, phase: Phase) {
        // Relaxed: a flag for what comes; who relies on what was done before it comes by a lock (the pool's, the
        // queue's of the retired) or by a signal (E5).
        self.phase.fetch_max(phase as u32, Ordering::Relaxed);
    }

    /// Whether it is in `phase` or further.
    #[inline]
    pub fn is_past(&self, phase: Phase) -> bool {
        // Relaxed: as in `advance`.
        self.phase.load(Ordering::Relaxed) >= phase as u32
    }

    /// Whether this process is a child that inherited the runtime from the one that made it: then its threads are not
    /// here, and any lock may be held by one of them.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        // Since `new`, it is counted.
        self.born != fork::counted()
    }

    /// Refuses in a forked child, where any lock may be held by a thread that is not there.
    ///
    /// # Errors
    /// `Misuse::Forked`.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.is_inherited() { Err(Misuse::Forked.into()) } else { Ok(()) }
    }

    /// Refuses new work after the end has begun.
    ///
    /// # Errors
    /// `Closed`; `Misuse::Forked`.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.is_past(Phase::Draining) { Err(Error::Closed) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r5_a_life_only_goes_forward() {
        let life = Life::new();
        assert_eq!(life.check_open(), Ok(()), "it begins open");
        for phase in [Phase::Draining, Phase::Shut, Phase::Draining, Phase::Gone, Phase::Open] {
            life.advance(phase);
            assert!(life.is_past(phase), "{phase:?}");
            assert_eq!(life.check_open(), Err(Error::Closed), "R5: {phase:?}");
        }
        assert!(life.is_past(Phase::Gone), "none of them led back");
    }
}
