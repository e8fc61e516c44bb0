//! The stress program.
