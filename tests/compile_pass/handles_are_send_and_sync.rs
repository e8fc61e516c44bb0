//! Handles go to other threads, and are shared by them.
use tenure::{Buffer, Event, Executable, Graph, Kernel, Module, Pinned, Read, Runtime, Stream, Write};
use tenure_sim::driver::Sim;

fn shared<T: Send + Sync + 'static>() {}

fn main() {
    shared::<Runtime<Sim>>();
    shared::<Stream<Sim>>();
    shared::<Buffer<f32, Sim>>();
    shared::<Pinned<f32, Sim>>();
    shared::<Graph<Sim>>();
    shared::<Executable<Sim>>();
    shared::<Event<Sim>>();
    shared::<Module<Sim>>();
    shared::<Kernel<(Read<f32>, Write<f32>, u32), Sim>>();
}
