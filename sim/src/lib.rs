//! A simulated GPU: every schedule of streams, captures and pinned memory, checked, with no hardware.

pub mod code;
pub mod engine;
pub mod event;
pub mod fault;
pub mod host_memory;
pub mod kernel;
pub mod memory;
pub mod profile;
