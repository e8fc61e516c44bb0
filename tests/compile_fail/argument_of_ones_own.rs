//! O1, O6: which argument fits which parameter is for this crate to say.
use tenure::driver::{Argument, DeviceAddress};
use tenure::kernel::KernelArgument;
use tenure::Write;
use tenure_sim::driver::Sim;

struct Anywhere;

impl KernelArgument<'_, Write<u32>, Sim> for Anywhere {
    type Uses = ();

    fn pack(self) -> ((), Argument) {
        ((), Argument::Pointer { address: DeviceAddress(64), bytes: 4 })
    }
}

fn main() {}
