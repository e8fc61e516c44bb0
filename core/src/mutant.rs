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

#[cfg(any(mc_loom, mc_shuttle, mc_broken))]
mod switch {
    use std::sync::RwLock;

    // A std lock on purpose: the checkers must not see it, or it would add edges of its own.
    static ARMED: RwLock<Option<&'static str>> = RwLock::new(None);

    /// Arms one defect for the whole process, or none. One model a process (nextest) keeps runs apart.
    pub fn arm(name: Option<&'static str>) {
        *ARMED.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = name;
    }

    /// Whether `name` is the armed defect.
    pub fn armed(name: &str) -> bool {
        ARMED.read().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some_and(|armed| armed == name)
    }
}
