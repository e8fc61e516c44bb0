//! The core's own source over the types of a build for use, with planted defects that can be armed.
#![allow(
    clippy::all,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "the core's own source is linted where it stands"
)]

include!(concat!(env!("OUT_DIR"), "/core/lib.rs"));
