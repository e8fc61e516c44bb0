//! Which planted defect is armed. The build scripts put this file beside the core's modules in the copies that are checked: the core
//! as it ships has no such thing.

use std::sync::atomic::{AtomicU64, Ordering};

// The hash of the armed name, zero for none. A std atomic, and Relaxed, on purpose: an edge here, or a lock, would
// order the threads under test among themselves, and hide from Miri and ThreadSanitizer what they look for.
static ARMED: AtomicU64 = AtomicU64::new(0);

/// Arms one defect for the whole process, or none. Threads that run already may see it late.
pub fn arm(name: Option<&str>) {
    ARMED.store(name.map_or(0, hash), Ordering::Relaxed);
}

/// Whether `name` is the armed defect: a model, scenario or test must then fail, with its own message.
#[inline]
pub fn planted(name: &str) -> bool {
    let armed = ARMED.load(Ordering::Relaxed);
    armed != 0 && armed == hash(name)
}

/// What a defect's name is stored as: FNV-1a. `tests/tidy.rs` holds that no two share one.
pub const fn hash(name: &str) -> u64 {
    let (bytes, mut hash, mut index) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash
}
