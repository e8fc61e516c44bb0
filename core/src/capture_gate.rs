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

use crate::call_scope::MayWait;
use crate::error::{Error, Misuse, Result};
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
    /// Set at the end of the runtime: nobody waits for captures any more.
    is_closed: bool,
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
    pub fn begin(&self, _may: &mut MayWait) {
        let mut state = self.state.lock();
        state.captures += 1;
        while state.calls > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Counts a capture of other code that is about to begin, from where nothing may be waited for: guarded calls that
    /// are in flight already run on beside it.
    pub fn begin_now(&self) {
        self.state.lock().captures += 1;
    }

    /// Uncounts a capture that the driver has ended; `true` when it was the last, and deferred work can run.
    pub fn end(&self) -> bool {
        let mut state = self.state.lock();
        state.captures -= 1;
        self.changed.notify_all();
        state.captures == 0
    }

    /// Ends all waiting for captures, with `Closed`: at the end of the runtime (R8).
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// How many captures are counted.
    pub fn captures(&self) -> usize {
        self.state.lock().captures
    }

    /// Enters a guarded call, unless somebody captures.
    pub fn enter_now(&self) -> Option<Entry<'_>> {
        let mut state = self.state.lock();
        if state.captures > 0 {
            return None;
        }
        state.calls += 1;
        Some(Entry(self))
    }

    /// Enters a guarded call, after all captures have ended.
    ///
    /// # Errors
    /// `InsideCapture` when the calling thread itself captures: it would wait for itself (C9). `Closed` when the runtime was
    /// shut down meanwhile.
    pub fn enter_waiting(&self, may: &mut MayWait) -> Result<Entry<'_>> {
        let mut state = self.state.lock();
        // Looked at again after each wait: another capture may have begun meanwhile.
        while state.captures > 0 {
            if may.is_in_capture() {
                return Err(Misuse::InsideCapture.into());
            }
            if state.is_closed {
                return Err(Error::Closed);
            }
            self.changed.wait(&mut state);
        }
        state.calls += 1;
        Ok(Entry(self))
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.calls -= 1;
        if state.calls == 0 {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_scope::{CallScope, within};

    fn may() -> MayWait {
        MayWait::here().expect("no hold")
    }

    #[test]
    fn the_last_end_opens() {
        let gate = CaptureGate::new();
        gate.begin(&mut may());
        gate.begin(&mut may());
        assert_eq!((gate.captures(), gate.enter_now().is_some()), (2, false), "C6: deferred while somebody captures");
        assert!(!gate.end(), "one is left");
        assert_eq!((gate.captures(), gate.enter_now().is_some()), (1, false));
        assert!(gate.end(), "that was the last");
        assert_eq!((gate.captures(), gate.enter_now().is_some()), (0, true));
    }

    #[test]
    fn calls_are_counted_in_and_out() {
        let gate = CaptureGate::new();
        let calls = || gate.state.lock().calls;
        let entries = (gate.enter_now(), gate.enter_waiting(&mut may()).ok());
        assert_eq!(calls(), 2);
        drop(entries.0);
        assert_eq!(calls(), 1);
        drop(entries.1);
        assert_eq!(calls(), 0);
        gate.begin(&mut may());
        assert_eq!(gate.captures(), 1, "no call was in flight, so it begins at once");
    }

    #[test]
    fn who_captures_is_refused_and_does_not_wait_for_himself() {
        let gate = CaptureGate::new();
        assert!(within(CallScope::Capture, || gate.enter_waiting(&mut may()).is_ok()), "C9: of another runtime");
        gate.begin(&mut may());
        assert!(within(CallScope::Capture, || gate.enter_waiting(&mut may()).is_err()), "C9");
    }

    /// Whether `waits` goes on waiting until `ends` was done.
    fn waits_for(gate: &CaptureGate, waits: impl FnOnce() + Send, ends: impl FnOnce()) {
        let ended = Mutex::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                waits();
                *ended.lock()
            });
            // It is counted, or blocked, before this ends; were it neither, it would be through early.
            while gate.captures() == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            *ended.lock() = true;
            ends();
            assert!(waiter.join().expect("it does not panic"), "C6: it waited");
        });
    }

    #[test]
    fn a_capture_waits_for_the_last_call_in_flight() {
        let gate = CaptureGate::new();
        let entry = gate.enter_now().expect("nobody captures");
        waits_for(&gate, || gate.begin(&mut may()), || drop(entry));
    }

    #[test]
    fn a_call_waits_for_the_last_capture() {
        let gate = CaptureGate::new();
        gate.begin(&mut may());
        waits_for(
            &gate,
            || drop(gate.enter_waiting(&mut may())),
            || {
                gate.end();
            },
        );
    }
}
