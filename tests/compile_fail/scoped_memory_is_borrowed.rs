//! P4: memory that a scope has wrapped is not touched while the scope runs.
use tenure::Runtime;
use tenure_sim::driver::Sim;

fn touch(runtime: &Runtime<Sim>) {
    let mut memory = [0_u32; 4];
    let _ = runtime.scope(|scope| {
        let pinned = scope.wrap(&mut memory)?;
        memory[0] = 1;
        drop(pinned);
        Ok(())
    });
}

fn main() {}
