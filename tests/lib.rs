//! Checks of the whole: one conformance suite for every driver, and what it is run with.
//!
//! | module | what it is |
//! |---|---|
//! | [`bench`] | what a driver must offer to be tested: [`Bench`](bench::Bench), and the simulator's |
//! | [`hip_bench`] | a real HIP device's |
//! | [`rig`] | a runtime over a tapped driver, with the kernels of the suite |
//! | [`tap`] | a driver around a driver: it counts calls and makes chosen ones fail |
//! | [`counting`] | what a tap has seen |
//! | [`faulty`] | what a tap makes fail |
//! | [`functions`] | what a tap does with host functions |
//! | [`conformance`] | the suite |
//! | [`matrix`] | every call in every place, state and failure: `edges` runs it |
//! | [`expectations`] | which cases a profile fails, as data |
//! | [`storm`] | the stress program |
//! | [`volume`] | a million launches, each accounted for |

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a case tells one story of driver calls, with one reason")]

pub mod bench;
pub mod conformance;
pub mod counting;
pub mod expectations;
pub mod faulty;
pub mod functions;
pub mod hip_bench;
pub mod matrix;
pub mod rig;
pub mod storm;
pub mod tap;
pub mod volume;

/// The programs of the README, which `cargo test` builds and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
