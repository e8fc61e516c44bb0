//! A kernel for one element type takes no buffer of another.
use tenure::{Buffer, Kernel, LaunchConfig, Queue, Read, Stream};
use tenure_sim::driver::Sim;

fn launch(stream: &Stream<Sim>, kernel: &Kernel<(Read<f32>,), Sim>, x: &Buffer<u32, Sim>) {
    let _ = stream.launch(kernel, LaunchConfig::linear(1), (x,));
}

fn main() {}
