//! The models over shuttle: every schedule of the small ones, without any reduction; samples of the large ones.

pub use tenure_shuttle as tenure;

#[path = "../models/mod.rs"]
pub mod models;

/// What a model gets from its checker.
pub mod checker {
    pub use crate::overlap::Witness;
    use shuttle::sync::atomic::{AtomicU64, Ordering};
    pub use shuttle::thread::{ThreadId as ThreadKey, spawn, yield_now};

    /// Whether unordered accesses of a [`Witness`] are found even where they do not overlap.
    #[allow(dead_code, reason = "not every checker's models ask")]
    pub const SEES_RACES: bool = false;

    pub use super::tenure::sync::have_barriers;

    /// The running thread.
    pub fn this_thread() -> ThreadKey {
        shuttle::thread::current().id()
    }

    /// One atomic that all driver calls of a device touch: a scheduling point.
    #[derive(Debug)]
    pub struct Touch(AtomicU64);

    impl Touch {
        /// A new one.
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }

        /// A scheduling point.
        pub fn touch(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
