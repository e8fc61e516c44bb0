//! O6: nobody makes a range but the memory that it lies in.
use tenure::buffer::Region;
use tenure::{Buffer, Readable};
use tenure_sim::driver::Sim;

fn longer(buffer: &Buffer<u8, Sim>) {
    let _ = Region::<Sim> { bytes: 4096, ..buffer.region() };
}

fn main() {}
