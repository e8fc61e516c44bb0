//! Captures and graphs.

pub mod gate;
