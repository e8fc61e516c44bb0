//! The models on real threads, over the production build of the core: what a checker's own model of the world hides.

pub use tenure;

#[path = "../models/mod.rs"]
pub mod models;

/// What a model gets from its checker.
pub mod checker {
    pub use crate::overlap::Witness;
    use std::sync::atomic::{AtomicU64, Ordering};
    pub use std::thread::{ThreadId as ThreadKey, spawn, yield_now};

    /// Whether unordered accesses of a [`Witness`] are found even where they do not overlap.
    #[allow(dead_code, reason = "not every checker's models ask")]
    pub const SEES_RACES: bool = false;

    /// The system has what it has.
    pub fn have_barriers(_yes: bool) {}

    /// The running thread.
    pub fn this_thread() -> ThreadKey {
        std::thread::current().id()
    }

    /// Where all driver calls pass; now and then one lets others run first.
    #[derive(Debug)]
    pub struct Touch(AtomicU64);

    impl Touch {
        /// A new one.
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }

        /// Hands the processor on every few calls, in a pattern that no loop of a model is in step with.
        pub fn touch(&self) {
            static CALLS: AtomicU64 = AtomicU64::new(0);
            self.0.fetch_add(1, Ordering::Relaxed);
            let call = CALLS.fetch_add(1, Ordering::Relaxed);
            if call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0 {
                std::thread::yield_now();
            }
        }
    }
}
