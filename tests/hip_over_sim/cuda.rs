//! HIP over a simulated device, which says that it is `hip/cuda`.

mod library;

/// What tells the two apart.
#[unsafe(no_mangle)]
extern "C" fn tenure_hip_cuda_version() -> std::ffi::c_int {
    13_000
}
