//! O6: a range stays as long as the memory that it came from said.
use tenure::{Buffer, Readable};
use tenure_sim::driver::Sim;

fn longer(buffer: &Buffer<u8, Sim>) {
    let mut region = buffer.region();
    region.bytes = 4096;
}

fn main() {}
