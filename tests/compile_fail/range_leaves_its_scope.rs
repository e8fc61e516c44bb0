//! P4: the range of a wrap leaves its scope no more than the wrap does.
use tenure::buffer::Region;
use tenure::{Readable, Runtime};
use tenure_sim::driver::Sim;

fn leak(runtime: &Runtime<Sim>, memory: &mut [u32]) {
    let mut escaped: Option<Region<'_, Sim>> = None;
    let _ = runtime.scope(|scope| {
        let pinned = scope.wrap(memory)?;
        escaped = Some(pinned.region());
        Ok(())
    });
    drop(escaped);
}

fn main() {}
