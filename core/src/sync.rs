//! The only place where this crate gets its atomics, locks, cells and threads.
//!
//! The shape is parking_lot's. In a production build every name here is parking_lot, std or arc-swap,
//! with one addition: a *contended* lock first asks whether the thread belongs to a cooperative scheduler
//! ([`coop`]), so that a simulator can run this very code deterministically. An uncontended lock pays nothing for it.
//! [`Biased`] is our own, written over these names.
//! Model builds (`cfg(mc_loom)`, `cfg(mc_shuttle)`, set by the build scripts of the path-shared crates in
//! `verification/`) put loom's or shuttle's types behind the same names.
//!
//! # Orderings
//! Each atomic access names its happens-before edge through `ordering!`: `ordering!("E1.w", Release)`. DESIGN.md
//! defines the edges. In the copies that are checked each can be made `Relaxed`, by its name.
//! No access is SeqCst: loom treats those as AcqRel.

#[cfg(mc_loom)]
mod loom;
#[cfg(any(mc_loom, mc_shuttle))]
mod model;
#[cfg(not(any(mc_loom, mc_shuttle)))]
mod native;
#[cfg(any(mc_loom, mc_shuttle))]
pub mod no_coop;
#[cfg(mc_shuttle)]
mod shuttle;

pub mod biased;
pub mod fork;

#[cfg(mc_loom)]
pub use self::loom::*;
#[cfg(not(any(mc_loom, mc_shuttle)))]
pub use self::native::*;
#[cfg(mc_shuttle)]
pub use self::shuttle::*;

pub use self::biased::{Biased, BiasedGuard};

/// A cache line away from the next of its kind: what one thread writes often, beside what others do. By distance, not by
/// alignment, which would make each allocation of what holds it dearer.
#[derive(Debug)]
#[repr(C)]
pub struct CachePadded<T> {
    /// What is padded.
    pub value: T,
    rest: [std::mem::MaybeUninit<u64>; 7],
}

impl<T> CachePadded<T> {
    /// `value`, with the padding behind it.
    pub const fn new(value: T) -> Self {
        Self { value, rest: [std::mem::MaybeUninit::uninit(); 7] }
    }
}

/// Names the happens-before edge of an atomic access and gives its ordering.
///
/// `ordering!("E1.w", Release)` is `Ordering::Release`. In the copies of this crate that are checked (`verification/planted`) it
/// can be made `Relaxed`, and a model must then fail.
macro_rules! ordering {
    ($edge:literal, $ordering:ident) => {
        ::core::sync::atomic::Ordering::$ordering
    };
}
pub(crate) use ordering;
