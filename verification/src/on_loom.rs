//! The models over loom: every schedule up to a bound of preemptions, with weak memory.

pub use tenure_loom as tenure;

#[path = "../models/mod.rs"]
pub mod models;

/// What a model gets from its checker.
pub mod checker {
    use crate::schedule;
    pub use loom::thread::{ThreadId as ThreadKey, spawn, yield_now};
    use std::sync::atomic::Ordering;

    /// Whether unordered accesses of a [`Witness`] are found even where they do not overlap.
    #[allow(dead_code, reason = "not every checker's models ask")]
    pub const SEES_RACES: bool = true;

    pub use super::tenure::sync::have_barriers;

    /// The running thread.
    pub fn this_thread() -> ThreadKey {
        loom::thread::current().id()
    }

    /// One atomic that all driver calls of a device touch, so that the reduction takes no two for independent.
    #[derive(Debug)]
    pub struct Touch(loom::sync::atomic::AtomicU64);

    impl Touch {
        /// A new one.
        pub fn new() -> Self {
            Self(loom::sync::atomic::AtomicU64::new(0))
        }

        /// A scheduling point that conflicts with all others of its kind and orders nothing.
        pub fn touch(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A plain datum: an access that is not ordered after a conflicting one is a failure.
    #[derive(Debug)]
    pub struct Witness(loom::cell::UnsafeCell<()>);

    // SAFETY: the cell holds nothing and its pointer is never followed; loom checks the accesses.
    unsafe impl Sync for Witness {}

    impl Witness {
        /// A new one.
        pub fn new() -> Self {
            Self(loom::cell::UnsafeCell::new(()))
        }

        /// Reads it while `inside` runs; `sentence` says what a race would break.
        pub fn read(&self, sentence: &'static str, inside: impl FnOnce()) {
            schedule::promise(Some(sentence));
            self.0.with(|_| inside());
            schedule::promise(None);
        }

        /// Writes it while `inside` runs.
        pub fn write(&self, sentence: &'static str, inside: impl FnOnce()) {
            schedule::promise(Some(sentence));
            self.0.with_mut(|_| inside());
            schedule::promise(None);
        }
    }
}
