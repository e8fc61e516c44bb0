//! The core's own source over the types of a build for use, with planted defects that can be armed.

include!(concat!(env!("OUT_DIR"), "/core/lib.rs"));
