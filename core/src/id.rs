//! Identities that are never used again (O7): a raw handle or an address names nothing, since drivers and allocators
//! hand those out anew.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// One stream that the runtime made or adopted. 2^64 of them last longer than any process: at one a nanosecond,
/// 584 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(NonZeroU64);

/// One allocation of device memory, one registration of host memory, or one executable graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(NonZeroU64);

// Process-wide counters, outside the facade on purpose: an id carries no ordering, only uniqueness, and a counter
// that the models could see would only multiply their schedules.
static NEXT_STREAM: AtomicU64 = AtomicU64::new(1);
static NEXT_RESOURCE: AtomicU64 = AtomicU64::new(1);

impl StreamId {
    /// An id that was never given out before.
    pub fn fresh() -> Self {
        Self(fresh(&NEXT_STREAM))
    }

    /// The number, for display and for the cover word.
    pub fn number(self) -> u64 {
        self.0.get()
    }
}

impl ResourceId {
    /// An id that was never given out before.
    pub fn fresh() -> Self {
        Self(fresh(&NEXT_RESOURCE))
    }

    /// The number, for display.
    pub fn number(self) -> u64 {
        self.0.get()
    }
}

fn fresh(counter: &AtomicU64) -> NonZeroU64 {
    // Relaxed: uniqueness only; no other memory hangs on it.
    let number = counter.fetch_add(1, Ordering::Relaxed);
    NonZeroU64::new(number).expect("2^64 identities are never used up")
}
