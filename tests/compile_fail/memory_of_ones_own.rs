//! O6: what the device may read and write is for `unsafe` code to say.
use tenure::buffer::Region;
use tenure::{Buffer, Readable, Writable};
use tenure_sim::driver::Sim;

struct Tensor(Buffer<f32, Sim>);

impl Readable<f32, Sim> for Tensor {
    fn region(&self) -> Region<'_, Sim> {
        self.0.region()
    }
}

impl Writable<f32, Sim> for Tensor {}

fn main() {}
