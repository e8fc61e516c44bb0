//! O1: that an argument has at most 16 bytes is not for its type to say.
use tenure::kernel::Scalar;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct Large([u64; 4]);

impl Scalar for Large {
    const FITS: () = ();
}

fn main() {}
