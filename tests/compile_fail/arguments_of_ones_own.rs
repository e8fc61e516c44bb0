//! O1, O6: which addresses a kernel gets is for `unsafe` code to say.
use tenure::driver::{Argument, DeviceAddress};
use tenure::kernel::KernelArguments;
use tenure::Write;
use tenure_sim::driver::Sim;

struct Anywhere;

impl KernelArguments<'_, (Write<u32>,), Sim> for Anywhere {
    type Uses = ();
    type Values = [Argument; 1];

    fn pack(self) -> ((), [Argument; 1]) {
        ((), [Argument::Pointer { address: DeviceAddress(64), bytes: 4 }])
    }
}

fn main() {}
