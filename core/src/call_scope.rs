//! Where a call is made, and so what it may wait for.
//!
//! A thread can be inside a `use_on` closure, the body of a capture, or code that a release runs (an owner's drop, a
//! waker). [`within`] marks it: by closures, never by guard values that could be forgotten.
//!
//! A public call that may have to wait begins with [`MayWait::here`]: a value, or a typed refusal. All that waits takes
//! that value, so a new call cannot forget to ask; what must never wait (drops, host functions, claims) has none.
//!
//! # The order of waiting
//! | # | waits for | takes | then holds |
//! |---|---|---|---|
//! | 1 | captures to end, or guarded calls in flight | `&mut MayWait` | [`Entered`](crate::context::Entered), which has the value while it lives |
//! | 2 | the pin driver lock | `&MayWait` | the lock, which borrows the value while it lives |
//! | 3 | the locks of records, in address order | `&MayWait`, or only ever tried | the lock |
//! | 4 | one stream's gate | nothing: its holder waits for nothing above | the gate |
//!
//! Whoever holds something of a line waits only for lines below it. With the pin driver lock held, the value is borrowed
//! and can no longer be borrowed mutably, so to wait there for a capture does not compile; nor does it with a guarded
//! call entered. Waiting for the device takes `&mut MayWait` too, since some drivers make such a call wait for captures.
//! A `use_on` closure runs at the end of the order, with a gate held: in there no value is to be had.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

use crate::error::{Misuse, Result};
use crate::sync::{coop, thread_local};

/// What a thread can be inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallScope {
    /// A closure that holds a stream's gate.
    UseOn,
    /// The body of a capture.
    Capture,
    /// Code that a release runs: an owner's drop, a waker. No lock is held, so it may wait.
    Release,
}

/// Leave to wait, of one call on one thread. See the module for what takes it, and how.
#[derive(Debug)]
pub struct MayWait {
    captures: bool,
    // Of this thread: another may be elsewhere.
    thread: PhantomData<*const ()>,
}

impl MayWait {
    /// Looks where the running thread is.
    ///
    /// # Errors
    /// `InsideHold` in a `use_on` closure: its gate is held, and what is waited for may need it.
    #[inline]
    pub fn here() -> Result<Self> {
        if is_within(CallScope::UseOn) {
            return Err(Misuse::InsideHold.into());
        }
        Ok(Self { captures: is_within(CallScope::Capture), thread: PhantomData })
    }

    /// Whether the call is made in the body of a capture: then it may wait for the device, but for no capture to end.
    pub fn is_in_capture(&self) -> bool {
        self.captures
    }
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "the models' thread_local! takes no const block")]
    // Keyed by the scheduler's thread as well: several of its threads may share this one.
    static SCOPES: RefCell<Vec<(CallScope, u64)>> = RefCell::new(Vec::new());
    // How many there are: mostly none, and then that is all there is to look at.
    #[allow(clippy::missing_const_for_thread_local, reason = "as above")]
    static MARKS: Cell<usize> = Cell::new(0);
}

/// Runs `body` with the thread marked; the mark goes also when it unwinds.
pub fn within<R>(scope: CallScope, body: impl FnOnce() -> R) -> R {
    struct Unmark(CallScope, u64);
    impl Drop for Unmark {
        fn drop(&mut self) {
            SCOPES.with(|scopes| {
                let mut scopes = scopes.borrow_mut();
                if let Some(index) = scopes.iter().rposition(|mark| *mark == (self.0, self.1)) {
                    scopes.swap_remove(index);
                    MARKS.with(|marks| marks.set(scopes.len()));
                }
            });
        }
    }
    let thread = coop::thread_id().unwrap_or(0);
    SCOPES.with(|scopes| {
        let mut scopes = scopes.borrow_mut();
        scopes.push((scope, thread));
        MARKS.with(|marks| marks.set(scopes.len()));
    });
    let _unmark = Unmark(scope, thread);
    body()
}

/// Whether the running thread is in such a scope.
#[inline]
pub fn is_within(scope: CallScope) -> bool {
    MARKS.with(Cell::get) > 0 && is_marked(scope)
}

#[cold]
fn is_marked(scope: CallScope) -> bool {
    SCOPES.with(|scopes| scopes.borrow().contains(&(scope, coop::thread_id().unwrap_or(0))))
}

/// In how many such scopes the running thread is, one inside of the other.
pub fn count_within(scope: CallScope) -> usize {
    if MARKS.with(Cell::get) == 0 {
        return 0;
    }
    let here = (scope, coop::thread_id().unwrap_or(0));
    SCOPES.with(|scopes| scopes.borrow().iter().filter(|mark| **mark == here).count())
}
