//! Who may make guarded calls while somebody captures (C1, C6).
//!
//! On most drivers a thread in relaxed mode breaks no capture but the one of the very stream it names, and nobody here
//! names a capturing stream: this gate then only counts captures, so that deferred releases learn of their end. On the
//! others it keeps guarded calls and captures apart in time.
//!
//! | state | meaning | changes by | keeps |
//! |---|---|---|---|
//! | captures = 0 | guarded calls may be made | `begin` | C1 |
//! | captures > 0, calls > 0 | a capture waits for calls in flight; new ones are refused | last `Entry` drop | C6 |
//! | captures > 0, calls = 0 | the driver's whole begin..end window; guarded calls are deferred | `end` | C1 C6 |
//!
//! `begin` counts *before* the driver's begin call and `end` after its end call, so the decision to defer covers the
//! whole window. Waiters loop; none can be lost, since every change notifies under the lock.

use crate::error::{Misuse, Result};
use crate::hold::{Place, is_within};
use crate::mutant;
use crate::sync::{Condvar, Mutex};

/// Counts captures, and guarded calls of drivers that need it.
#[derive(Debug, Default)]
pub struct CaptureGate {
    // Never held across a driver call (R3).
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    captures: usize,
    calls: usize,
}

/// A guarded call in flight.
#[must_use]
pub struct Entry<'a>(&'a CaptureGate);

impl CaptureGate {
    /// No captures, no calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a capture that is about to begin, and waits for the guarded calls in flight.
    pub fn begin(&self) {
        let mut state = self.state.lock();
        state.captures += 1;
        if mutant!("c6_begin_beside_calls") {
            return;
        }
        while state.calls > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Uncounts a capture that the driver has ended; `true` when it was the last, and deferred work can run.
    pub fn end(&self) -> bool {
        let mut state = self.state.lock();
        state.captures = if mutant!("c6_first_end_opens") { 0 } else { state.captures - 1 };
        if !mutant!("c6_end_silent") {
            self.changed.notify_all();
        }
        state.captures == 0
    }

    /// How many captures are counted.
    pub fn captures(&self) -> usize {
        self.state.lock().captures
    }

    /// Enters a guarded call, unless somebody captures.
    pub fn enter_now(&self) -> Option<Entry<'_>> {
        let mut state = self.state.lock();
        if state.captures > 0 && !mutant!("c1_enter_in_capture") {
            return None;
        }
        state.calls += if mutant!("c6_call_uncounted") { 0 } else { 1 };
        Some(Entry(self))
    }

    /// Enters a guarded call, after all captures have ended.
    ///
    /// # Errors
    /// `InsideCapture` when the calling thread itself captures: it would wait for itself (C9).
    pub fn enter_waiting(&self) -> Result<Entry<'_>> {
        let mut state = self.state.lock();
        while state.captures > 0 {
            if is_within(Place::Capture) && !mutant!("c9_waits_for_itself") {
                return Err(Misuse::InsideCapture.into());
            }
            self.changed.wait(&mut state);
        }
        state.calls += if mutant!("c6_call_uncounted") { 0 } else { 1 };
        Ok(Entry(self))
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if mutant!("c6_call_uncounted") {
            return;
        }
        state.calls -= 1;
        if state.calls == 0 && !mutant!("c6_leave_silent") {
            self.0.changed.notify_all();
        }
    }
}
