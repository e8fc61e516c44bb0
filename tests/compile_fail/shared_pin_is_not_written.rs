//! Shared memory is not written by the device.
use tenure::{Queue, SharedPinned, Stream};
use tenure_sim::driver::Sim;

fn write(stream: &Stream<Sim>, mut shared: SharedPinned<u8, Sim>) {
    let _ = stream.fill(&mut shared, 0);
}

fn main() {}
