//! A witness for checkers without race detection: it sees accesses that overlap, no more.

use std::sync::atomic::{AtomicI64, Ordering};

/// A plain datum: a write beside any other access at the same time is a failure.
#[derive(Debug)]
pub struct Witness(AtomicI64);

const WRITING: i64 = -1;

impl Witness {
    /// A new one.
    pub fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Reads it while `inside` runs; `sentence` says what an overlap would break.
    pub fn read(&self, sentence: &'static str, inside: impl FnOnce()) {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) >= 0, "{sentence}");
        inside();
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Writes it while `inside` runs.
    pub fn write(&self, sentence: &'static str, inside: impl FnOnce()) {
        let free = self.0.compare_exchange(0, WRITING, Ordering::Relaxed, Ordering::Relaxed);
        assert!(free.is_ok(), "{sentence}");
        inside();
        self.0.store(0, Ordering::Relaxed);
    }
}
