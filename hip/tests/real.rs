//! The library of the machine.
fn main() {}
