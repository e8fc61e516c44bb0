//! A launch has as many arguments as the kernel has parameters.
use tenure::{Buffer, Kernel, LaunchConfig, Queue, Read, Stream};
use tenure_sim::driver::Sim;

fn launch(stream: &Stream<Sim>, kernel: &Kernel<(Read<f32>, u32), Sim>, x: &Buffer<f32, Sim>) {
    let _ = stream.launch(kernel, LaunchConfig::linear(1), (x,));
}

fn main() {}
