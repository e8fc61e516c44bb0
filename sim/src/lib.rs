//! A simulated GPU: every schedule of streams, captures and pinned memory, checked, with no hardware.

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
