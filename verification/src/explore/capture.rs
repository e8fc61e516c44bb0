//! The capture gate (C1, C3, C6): captures, the driver's windows, guarded calls that are deferred, and guarded calls that wait.
//!
//! The core's `CaptureGate` is this protocol around a lock and a condition; it is written once more here, since a thread that
//! waits is a state. A sleeper wakes only when somebody notifies, so a forgotten notification shows.
//!
//! Fair: everybody who is under way (weakly). Captures and calls may begin without end; that a deferred or waiting call is made
//! is owed only when no more captures begin.

use super::search::{Broken, FREE, Fair, Label, Machine, NONE, Promise, Steps, must};

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A capture begins beside calls in flight.
    BeginsBesideCalls,
    /// A call is entered during a capture.
    EntersInCapture,
    /// A capture is uncounted before the driver has ended it.
    UncountedEarly,
    /// Nobody drains what was deferred.
    NobodyDrains,
    /// The last call leaves without a word.
    LeavesSilently,
    /// The end of a capture wakes no waiter.
    EndsSilently,
}

/// The machine, and how large it is.
#[derive(Debug)]
pub struct Gate {
    /// Threads that capture.
    pub captures: usize,
    /// Threads whose calls are deferred.
    pub deferring: usize,
    /// Threads whose calls wait.
    pub waiting: usize,
    /// What is done wrong.
    pub wrong: Option<Wrong>,
}

/// The gate and everybody around it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    captures: usize,
    calls: usize,
    capturers: Vec<Capturer>,
    callers: Vec<Caller>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Capturer {
    Rests,
    /// Counted; sleeps while calls are in flight.
    Sleeps,
    Counted,
    /// Between the driver's begin and its end.
    Captures,
    Ended,
    /// The driver captures, but the count is gone.
    Uncounted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Caller {
    Rests,
    Wants,
    /// Refused; comes again at a signal.
    Deferred,
    /// Sleeps until captures have ended.
    Sleeps,
    Calls,
}

impl Gate {
    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    fn capture(&self, state: &State, index: usize, steps: &mut Steps<State>) {
        let mut go = |name, fair, act: &dyn Fn(&mut State) -> Capturer| {
            steps.add(state, Label(name, [index as u8, NONE]), fair, |state| {
                state.capturers[index] = act(state);
                Ok(())
            });
        };
        let fair = index as Fair;
        let look = |state: &State| match state.calls > 0 && !self.is(Wrong::BeginsBesideCalls) {
            true => Capturer::Sleeps,
            false => Capturer::Counted,
        };
        match state.capturers[index] {
            Capturer::Rests => go("count", FREE, &|state| {
                state.captures += 1;
                look(state)
            }),
            Capturer::Sleeps => {}
            Capturer::Counted => {
                go("driver begins", fair, &|_| Capturer::Captures);
                go("driver refuses", FREE, &|_| Capturer::Ended);
            }
            Capturer::Captures if self.is(Wrong::UncountedEarly) => go("uncount", fair, &|state| {
                self.end(state);
                Capturer::Uncounted
            }),
            Capturer::Captures => go("driver ends", fair, &|_| Capturer::Ended),
            Capturer::Uncounted => go("driver ends", fair, &|_| Capturer::Rests),
            Capturer::Ended => go("uncount", fair, &|state| {
                self.end(state);
                Capturer::Rests
            }),
        }
    }

    fn end(&self, state: &mut State) {
        state.captures -= 1;
        if !self.is(Wrong::EndsSilently) {
            self.notify(state);
        }
        if state.captures == 0 && !self.is(Wrong::NobodyDrains) {
            let deferred = state.callers.iter_mut().filter(|caller| **caller == Caller::Deferred);
            deferred.for_each(|caller| *caller = Caller::Wants);
        }
    }

    /// Every sleeper wakes and looks again.
    fn notify(&self, state: &mut State) {
        let calls = state.calls;
        let sleepers = state.capturers.iter_mut().filter(|capturer| **capturer == Capturer::Sleeps && calls == 0);
        sleepers.for_each(|capturer| *capturer = Capturer::Counted);
        let sleepers = state.callers.iter_mut().filter(|caller| **caller == Caller::Sleeps);
        sleepers.for_each(|caller| *caller = Caller::Wants);
    }

    fn call(&self, state: &State, index: usize, steps: &mut Steps<State>) {
        let fair = (self.captures + index) as Fair;
        let mut go = |name, fair, act: &dyn Fn(&mut State) -> Caller| {
            steps.add(state, Label(name, [index as u8, NONE]), fair, |state| {
                state.callers[index] = act(state);
                Ok(())
            });
        };
        match state.callers[index] {
            Caller::Rests => go("want", FREE, &|_| Caller::Wants),
            Caller::Wants => go("enter", fair, &|state| {
                if state.captures > 0 && !self.is(Wrong::EntersInCapture) {
                    return if index < self.deferring { Caller::Deferred } else { Caller::Sleeps };
                }
                state.calls += 1;
                Caller::Calls
            }),
            Caller::Deferred | Caller::Sleeps => {}
            Caller::Calls => go("leave", fair, &|state| {
                state.calls -= 1;
                if state.calls == 0 && !self.is(Wrong::LeavesSilently) {
                    self.notify(state);
                }
                Caller::Rests
            }),
        }
    }
}

impl Machine for Gate {
    type State = State;
    type Key = State;

    fn starts(&self) -> Vec<State> {
        vec![State {
            captures: 0,
            calls: 0,
            capturers: vec![Capturer::Rests; self.captures],
            callers: vec![Caller::Rests; self.deferring + self.waiting],
        }]
    }

    fn key(&self, state: &State) -> State {
        state.clone()
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        (0..self.captures).for_each(|index| self.capture(state, index, steps));
        (0..state.callers.len()).for_each(|index| self.call(state, index, steps));
    }

    fn check(&self, state: &State) -> Result<(), Broken> {
        let captures = |capturer: &Capturer| matches!(capturer, Capturer::Captures | Capturer::Uncounted);
        let open = state.capturers.iter().any(captures);
        must(!open || state.captures > 0, "C6", "the driver captures and nobody counts it")?;
        let calls = state.callers.iter().filter(|caller| **caller == Caller::Calls).count();
        must(calls == state.calls, "C6", "the calls in flight are counted wrong")?;
        must(!open || calls == 0, "C1", "a guarded call is made while the driver captures")
    }

    fn may_rest(&self, _: &State) -> bool {
        false
    }

    fn promises(&self) -> Vec<Promise<State>> {
        let begins = Broken { line: "C6", how: "a capture never begins, though calls end" };
        let made = Broken { line: "C3", how: "a deferred or waiting call is never made, though captures end" };
        let capture = |index: usize| Promise {
            broken: begins,
            if_quiet: false,
            open: Box::new(move |state: &State| matches!(state.capturers[index], Capturer::Sleeps | Capturer::Counted)),
        };
        let call = |index: usize| Promise {
            broken: made,
            if_quiet: true,
            open: Box::new(move |state: &State| !matches!(state.callers[index], Caller::Rests | Caller::Calls)),
        };
        (0..self.captures).map(capture).chain((0..self.deferring + self.waiting).map(call)).collect()
    }
}
