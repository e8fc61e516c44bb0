//! What a [`Tap`](crate::tap::Tap) makes fail: the n-th call of a kind, with an error of a chosen word.
//!
//! A failed call does not reach the driver, so what it would have done has not happened; unless it is made to fail after
//! its effect, as calls of real drivers do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::driver::{Call, DriverError, ErrorKind};

/// An error of a tapped driver.
#[derive(Clone, Debug)]
pub enum TapError<E> {
    /// Made here.
    Injected(Call, ErrorKind),
    /// The driver's own.
    Real(E),
}

/// The value of a panic that a case raises itself.
#[derive(Clone, Copy, Debug)]
pub struct OnPurpose;

/// The code of injected errors; no driver has it.
pub const INJECTED: i32 = -7077;

impl<E: fmt::Display> fmt::Display for TapError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Injected(call, kind) => write!(f, "{call} was made to fail with {kind:?}"),
            Self::Real(error) => error.fmt(f),
        }
    }
}

impl<E: StdError> StdError for TapError<E> {}

impl<E: DriverError> DriverError for TapError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Injected(_, kind) => *kind,
            Self::Real(error) => error.kind(),
        }
    }

    fn code(&self) -> i32 {
        match self {
            Self::Injected(..) => INJECTED,
            Self::Real(error) => error.code(),
        }
    }
}

#[derive(Debug)]
struct Rule {
    call: Call,
    /// How many more calls pass before it applies.
    passes: usize,
    kind: ErrorKind,
    always: bool,
    fired: bool,
    when: When,
}

/// When a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In the place of the driver's call.
    Instead,
    /// After the driver's call, whose effect stays.
    After,
}

/// The rules in force.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Mutex<Vec<Rule>>,
    nothing: AtomicBool,
    bare: AtomicBool,
    delays: Mutex<Vec<(Call, Duration)>>,
}

impl Rules {
    /// The `nth` call of this kind from now, from 1, fails.
    pub fn fail(&self, call: Call, nth: usize, kind: ErrorKind) {
        self.fail_when(call, nth, kind, When::Instead);
    }

    /// The `nth` call of this kind from now, from 1, fails after the driver has carried it out. What the driver gave is
    /// lost to whoever called.
    pub fn fail_after(&self, call: Call, nth: usize, kind: ErrorKind) {
        self.fail_when(call, nth, kind, When::After);
    }

    fn fail_when(&self, call: Call, nth: usize, kind: ErrorKind, when: When) {
        self.lock().push(Rule { call, passes: nth.max(1) - 1, kind, always: false, fired: false, when });
    }

    /// A runtime made from now on is told that relaxed mode protects no capture, as before HIP 7.0.
    pub fn protect_nothing(&self) {
        // Relaxed: told before the runtime is made.
        self.bare.store(true, Ordering::Relaxed);
    }

    /// Whether relaxed mode is said to protect no capture.
    pub fn protects_nothing(&self) -> bool {
        // Relaxed: as above.
        self.bare.load(Ordering::Relaxed)
    }

    /// Every call of this kind takes so much longer from now on.
    pub fn delay(&self, call: Call, time: Duration) {
        self.delays.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((call, time));
    }

    /// Waits as long as a call of this kind is delayed.
    pub fn wait(&self, call: Call) {
        let delays = self.delays.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let time = delays.iter().find(|(delayed, _)| *delayed == call).map(|(_, time)| *time);
        drop(delays);
        if let Some(time) = time {
            std::thread::sleep(time);
        }
    }

    /// From now on memory is given at no address, as some pools that are empty do.
    pub fn give_nothing(&self, nothing: bool) {
        // Relaxed: told on the thread that allocates.
        self.nothing.store(nothing, Ordering::Relaxed);
    }

    /// Whether memory is given at no address.
    pub fn gives_nothing(&self) -> bool {
        // Relaxed: as above.
        self.nothing.load(Ordering::Relaxed)
    }

    /// Every call of this kind fails from now on.
    pub fn fail_always(&self, call: Call, kind: ErrorKind) {
        self.lock().push(Rule { call, passes: 0, kind, always: true, fired: false, when: When::Instead });
    }

    /// No rule is in force any more; whether each had been applied.
    pub fn clear(&self) -> bool {
        self.delays.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
        std::mem::take(&mut *self.lock()).iter().all(|rule| rule.fired)
    }

    /// How a call fails, if it shall: for a driver that knows failures without an effect only.
    pub fn judge(&self, call: Call) -> Option<ErrorKind> {
        self.judge_when(call).map(|(kind, _)| kind)
    }

    /// How a call fails, if it shall, and whether before its effect or after it.
    pub fn judge_when(&self, call: Call) -> Option<(ErrorKind, When)> {
        let mut rules = self.lock();
        for rule in rules.iter_mut().filter(|rule| rule.call == call && (rule.always || !rule.fired)) {
            if rule.passes == 0 {
                rule.fired = true;
                return Some((rule.kind, rule.when));
            }
            rule.passes -= 1;
        }
        None
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
