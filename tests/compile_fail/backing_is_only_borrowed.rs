//! P4: what is behind a handle is not kept past it, and so not past a scope.
use tenure::buffer::Backing;
use tenure::{Readable, Runtime};
use tenure_sim::driver::Sim;

fn kept(runtime: &Runtime<Sim>, memory: &mut [u32]) {
    let _: Backing<Sim> = runtime.scope(|scope| Ok(scope.wrap(memory)?.region().backing.clone())).unwrap();
}

fn main() {}
