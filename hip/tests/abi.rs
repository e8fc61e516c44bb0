//! The table against hip-sys.
