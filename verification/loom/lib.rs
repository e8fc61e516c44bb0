//! The core's own source over loom's types, with planted defects that can be armed.

include!(concat!(env!("OUT_DIR"), "/core/lib.rs"));
