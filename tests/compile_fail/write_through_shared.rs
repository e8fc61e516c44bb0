//! A kernel writes through exclusive borrows only.
use tenure::{Buffer, Kernel, LaunchConfig, Queue, Stream, Write};
use tenure_sim::driver::Sim;

fn launch(stream: &Stream<Sim>, kernel: &Kernel<(Write<f32>,), Sim>, x: &Buffer<f32, Sim>) {
    let _ = stream.launch(kernel, LaunchConfig::linear(1), (x,));
}

fn main() {}
