//! z
fn main() {}
