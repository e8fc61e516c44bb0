//! What a wrap owns goes to the worker: it is sent there.
use std::ptr::NonNull;
use std::rc::Rc;
use tenure::{HostMemory, Runtime};
use tenure_sim::driver::Sim;

struct Owner(Vec<u32>, Rc<()>);

// SAFETY: none is needed, since it does not compile.
unsafe impl HostMemory for Owner {
    type Item = u32;
    fn range(&mut self) -> (NonNull<u32>, usize) {
        (NonNull::from(&mut *self.0).cast(), self.0.len())
    }
}

fn wrap(runtime: &Runtime<Sim>, owner: Owner) {
    let _ = runtime.wrap(owner);
}

fn main() {}
