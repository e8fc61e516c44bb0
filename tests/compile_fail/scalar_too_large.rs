//! O1: an argument that is passed by value has at most 16 bytes, whatever its type says.
use tenure::kernel::Scalar;
use tenure::{Kernel, LaunchConfig, Queue, Stream};
use tenure_sim::driver::Sim;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct Large([u64; 4]);

impl Scalar for Large {}

fn launch(stream: &Stream<Sim>, kernel: &Kernel<(Large,), Sim>) {
    let _ = stream.launch(kernel, LaunchConfig::linear(1), (Large([0; 4]),));
}

fn main() {
    let _: fn(&Stream<Sim>, &Kernel<(Large,), Sim>) = launch;
}
