//! P4: a wrap of borrowed memory stays in its scope.
use tenure::Runtime;
use tenure_sim::driver::Sim;

fn leak(runtime: &Runtime<Sim>, memory: &mut [u32]) {
    let _escaped = runtime.scope(|scope| scope.wrap(memory)).unwrap();
}

fn main() {}
