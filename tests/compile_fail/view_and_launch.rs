//! O3: the device does not write what the host has a view of.
use tenure::{Pinned, Queue, Stream};
use tenure_sim::driver::Sim;

fn both(stream: &Stream<Sim>, mut pinned: Pinned<u8, Sim>) {
    let view = pinned.read().unwrap();
    let _ = stream.fill(&mut pinned, 0);
    drop(view);
}

fn main() {}
