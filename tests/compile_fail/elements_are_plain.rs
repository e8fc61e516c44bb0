//! Elements are plain data.
use tenure::{Queue, Stream};
use tenure_sim::driver::Sim;

fn references(stream: &Stream<Sim>) {
    let _ = stream.upload(&[&1_u32]);
}

fn main() {}
