//! `tenure doctor`: what is there, and what is missing.

use clap::Args;

/// What `tenure doctor` takes: nothing.
#[derive(Debug, Args)]
pub struct Arguments {}

/// Prints what was found. Finding no GPU is no failure: the simulator needs none.
pub fn run(_: &Arguments) -> u8 {
    println!("simulator: ready (needs nothing)");
    print!("{}", tenure_hip::doctor());
    crate::FINE
}
