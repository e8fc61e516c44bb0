//! O3: nobody ends a view but its drop.
use tenure::{Access, Pinned, Readable};
use tenure_sim::driver::Sim;

fn ended(pinned: &Pinned<u8, Sim>) {
    pinned.region().backing.record().end_view(Access::Read);
}

fn main() {}
