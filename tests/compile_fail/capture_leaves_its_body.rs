//! A capture's queue stays in the body.
use tenure::Runtime;
use tenure_sim::driver::Sim;

fn keep(runtime: &Runtime<Sim>) {
    let mut kept = None;
    let _ = runtime.capture(|capture| {
        kept = Some(capture);
        Ok(())
    });
}

fn main() {}
