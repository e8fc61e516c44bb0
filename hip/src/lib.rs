//! Real HIP behind tenure's [`Driver`](tenure::driver::Driver) trait.
//!
//! A program that ran on the simulator runs on a GPU by taking [`Hip`] for its driver. Nothing of ROCm is needed to
//! build it: `libamdhip64` and `libhiprtc` are opened when the program runs, whatever version the machine has, and
//! where they cannot be used [`doctor`] says why and what to do. The same library interface over the CUDA runtime
//! (`hip/cuda`) runs the same program on an NVIDIA GPU.
//!
//! | module | what it holds |
//! |---|---|
//! | [`sys`] | the table of C functions, bound by hand, each optional |
//! | [`load`] | opens the library once, initializes it once, keeps the verdict |
//! | [`profile`] | how versions differ, by the names that the simulator's profiles have |
//! | [`error`] | codes of HIP and hiprtc as the kinds that all drivers share |
//! | [`driver`] | [`Hip`], one device |
//! | [`kernel`] | source to code with hiprtc, and the cache of what was compiled |
//! | [`diagnosis`] | [`doctor`] |
//!
//! # What the unsafe code rests on
//! Comments in this crate name these lines beside those of the contract.
//!
//! - H1 A library is never closed. A function that was found in it stays callable, and has the prototype of the table.
//! - H2 A handle has one owner: it was made by this driver, and is destroyed by value or through an unsafe call that
//!   ends its use. A handle that can be named is therefore live.
//! - H3 A pointer that a call writes through is that of a local variable, or of a buffer whose length goes with it.
//! - H4 What the caller of an unsafe method has promised.
//! - H5 A string that the library gives ends in a zero byte and is never changed or freed.

pub mod diagnosis;
pub mod driver;
pub mod error;
pub mod kernel;
#[cfg(feature = "hip-sys")]
mod linked;
pub mod load;
pub mod profile;
pub mod sys;

pub use diagnosis::{Doctor, doctor};
pub use driver::{DeviceInfo, Hip, Options};
pub use error::{Error, Origin};
pub use kernel::{Code, CompileOptions, Hiprtc};
pub use load::LoadError;
pub use profile::Profile;
