//! A simulated GPU: every schedule of streams, captures and pinned memory, checked, with no hardware.
//!
//! | module | what it is |
//! |---|---|
//! | [`check`](mod@check) | runs a test under many schedules |
//! | [`driver`] | the device behind the driver trait: [`Sim`] |
//! | [`profile`], [`fault`] | which driver it behaves as, and what goes wrong |
//! | [`kernel`] | closures as kernels |
//! | [`sync`] | locks that know the schedule |
//! | [`checker`] | what is found, and under which line of the contract |
//! | [`scenario`] | the text language that `tenure replay` runs |
//! | [`engine`], [`drive`], [`clock`], [`memory`], [`host_memory`], [`code`], [`event`] | the device itself, and who decides what it does next |
//! | [`facts`] | tables of what a driver does, held against a profile |

pub mod code;
pub mod engine;
pub mod event;
pub mod facts;
pub mod fault;
pub mod host_memory;
pub mod kernel;
pub mod memory;
pub mod profile;

pub mod check;
pub mod checker;
pub mod clock;
pub mod drive;
pub mod driver;
pub mod scenario;
pub mod sync;
mod trace;

pub use check::{Config, check};
pub use driver::Sim;

/// The program of the README, which `cargo test` builds and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
