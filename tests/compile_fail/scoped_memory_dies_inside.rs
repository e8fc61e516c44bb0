//! P4: memory that a scope wraps outlives the scope.
use tenure::Runtime;
use tenure_sim::driver::Sim;

fn dies(runtime: &Runtime<Sim>) {
    let _ = runtime.scope(|scope| {
        let mut memory = [0_u32; 4];
        let pinned = scope.wrap(&mut memory)?;
        std::mem::forget(pinned);
        Ok(())
    });
}

fn main() {}
