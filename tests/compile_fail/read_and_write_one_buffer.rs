//! One buffer is not read and written by one launch.
use tenure::{Buffer, Kernel, LaunchConfig, Queue, Read, Stream, Write};
use tenure_sim::driver::Sim;

fn launch(stream: &Stream<Sim>, kernel: &Kernel<(Read<f32>, Write<f32>), Sim>, mut x: Buffer<f32, Sim>) {
    let _ = stream.launch(kernel, LaunchConfig::linear(1), (&x, &mut x));
}

fn main() {}
