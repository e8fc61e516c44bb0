//! The concurrency core of a GPU runtime.
pub mod capture;
pub mod context;
pub mod driver;
pub mod error;
mod hold;
pub mod id;
pub mod mutant;
pub mod ownership;
pub mod point;
pub mod reclaim;
pub mod registration;
pub mod stream;
pub mod sync;
pub use driver::{Driver, LaunchConfig, Priority};
