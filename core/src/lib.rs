//! The concurrency core of a GPU runtime.
pub mod driver;
pub mod id;
pub mod mutant;
pub mod sync;
pub use driver::{Driver, LaunchConfig, Priority};
