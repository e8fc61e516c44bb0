//! Planted defects: each protocol step that the models claim to check can be done wrong on purpose.
//!
//! `mutant!("name")` is the constant `false` in production. In builds made for checking (`cfg(mc_loom)`,
//! `cfg(mc_shuttle)`, `cfg(mc_broken)`) it says whether that defect is armed. A model, scenario or test must then
//! fail, with its own message; `verification/` keeps the matrix.

/// Whether the planted defect of this name is armed; `false`, at compile time, in production builds.
#[macro_export]
#[doc(hidden)]
macro_rules! mutant {
    ($name:literal) => {{
        #[cfg(any(mc_loom, mc_shuttle, mc_broken))]
        let armed = $crate::mutant::armed($name);
        #[cfg(not(any(mc_loom, mc_shuttle, mc_broken)))]
        let armed = false;
        armed
    }};
}

#[cfg(any(mc_loom, mc_shuttle, mc_broken))]
pub use self::switch::{arm, armed};

/// What a defect's name is stored as: FNV-1a. `tests/tidy.rs` holds that no two share one.
pub const fn hash(name: &str) -> u64 {
    let (bytes, mut hash, mut index) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash
}

#[cfg(any(mc_loom, mc_shuttle, mc_broken))]
mod switch {
    use super::hash;
    use std::sync::atomic::{AtomicU64, Ordering};

    // The hash of the armed name, zero for none. A std atomic, and Relaxed, on purpose: an edge here, or a lock, would
    // order the threads under test among themselves, and hide from Miri and ThreadSanitizer what they look for.
    static ARMED: AtomicU64 = AtomicU64::new(0);

    /// Arms one defect for the whole process, or none. Threads that run already may see it late.
    pub fn arm(name: Option<&str>) {
        ARMED.store(name.map_or(0, hash), Ordering::Relaxed);
    }

    /// Whether `name` is the armed defect.
    #[inline]
    pub fn armed(name: &str) -> bool {
        let armed = ARMED.load(Ordering::Relaxed);
        armed != 0 && armed == hash(name)
    }
}
