//! A freed buffer is gone.
use tenure::{Buffer, Queue, Stream};
use tenure_sim::driver::Sim;

fn again(stream: &Stream<Sim>, mut x: Buffer<u8, Sim>) {
    let _ = x.free();
    let _ = stream.fill(&mut x, 0);
}

fn main() {}
