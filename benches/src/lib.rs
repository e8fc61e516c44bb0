//! What the bookkeeping of `tenure` costs, measured without a device.
//!
//! | module | what it holds |
//! |---|---|
//! | [`null`] | a driver that does nothing, so that what is left is the bookkeeping |
//! | [`bed`] | a runtime over it, with buffers and kernels of the shapes that are measured |
//! | [`cases`] | the operations: timed by criterion, counted in instructions |
//! | [`rivals`] | other designs of the same bookkeeping, written fairly |
//! | [`contest`] | rounds that interleave what is compared, and medians |
//! | [`measure`] | the measurements that are compared |
//! | [`counting`] | an allocator that counts |
//!
//! Times of a shared machine drift by more than what is measured here. So nothing is compared across runs: what is
//! compared takes turns within one, and the answer is a ratio.

pub mod bed;
pub mod cases;
pub mod contest;
pub mod counting;
pub mod measure;
pub mod null;
pub mod rivals;
