//! O1: what a submission uses is not for a program's own type to leave out.
use tenure::queue::{Memory, UseSet};
use tenure_sim::driver::Sim;

#[derive(Clone, Copy)]
struct Silent;

impl<'a> UseSet<Memory<'a, Sim>, Sim> for Silent {
    fn visit(&self, _: &mut impl FnMut(Memory<'a, Sim>)) {}
}

fn main() {}
