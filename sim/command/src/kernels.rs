//! The tour's kernels three times over: for HIP in its language, for the simulator as closures, and for the check as
//! plain functions.
//!
//! All arithmetic is on integers, so that all three agree to the last bit.

use tenure_sim::driver::Sim;
use tenure_sim::kernel::{Read, Write};

/// For a real device.
pub const SOURCE: &str = r#"
typedef unsigned char u8;
typedef unsigned int u32;

extern "C" __global__ void widen(const u8 *in, u32 *out, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * 257u;
}

extern "C" __global__ void narrow(const u32 *in, u8 *out, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = (u8)(in[i] / 257u);
}

extern "C" __global__ void histogram(const u8 *in, u32 *bins, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[in[i]], 1u);
}

extern "C" __global__ void blur(const u32 *in, u32 *out, u32 n, u32 radius) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 first = i > radius ? i - radius : 0u;
    u32 last = i + radius < n - 1u ? i + radius : n - 1u;
    u32 sum = 0;
    for (u32 k = first; k <= last; ++k) sum += in[k];
    out[i] = sum / (last - first + 1u);
}

extern "C" __global__ void mix(const u32 *x, u32 *y, u32 n, u32 weight) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (x[i] * weight + y[i] * (256u - weight)) / 256u;
}

extern "C" __global__ void accumulate(const u32 *x, u32 *total, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) total[i] += x[i];
}
"#;

/// For the simulated device.
pub fn register(sim: &Sim) {
    sim.kernel("widen", |x: Read<'_, u8>, mut y: Write<'_, u32>, n: u32| {
        plain::widen(&x[..n as usize], &mut y[..n as usize]);
    });
    sim.kernel("narrow", |x: Read<'_, u32>, mut y: Write<'_, u8>, n: u32| {
        plain::narrow(&x[..n as usize], &mut y[..n as usize]);
    });
    sim.kernel("histogram", |x: Read<'_, u8>, mut bins: Write<'_, u32>, n: u32| {
        plain::histogram(&x[..n as usize], &mut bins);
    });
    sim.kernel("blur", |x: Read<'_, u32>, mut y: Write<'_, u32>, n: u32, radius: u32| {
        plain::blur(&x[..n as usize], &mut y[..n as usize], radius as usize);
    });
    sim.kernel("mix", |x: Read<'_, u32>, mut y: Write<'_, u32>, n: u32, weight: u32| {
        plain::mix(&x[..n as usize], &mut y[..n as usize], weight);
    });
    sim.kernel("accumulate", |x: Read<'_, u32>, mut total: Write<'_, u32>, n: u32| {
        plain::accumulate(&x[..n as usize], &mut total[..n as usize]);
    });
}

/// For the processor.
pub mod plain {
    /// Bytes to the range of 16 bits.
    pub fn widen(x: &[u8], y: &mut [u32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = u32::from(*x) * 257;
        }
    }

    /// And back; what `widen` made comes back unchanged.
    pub fn narrow(x: &[u32], y: &mut [u8]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = (x / 257) as u8;
        }
    }

    /// Adds to one of 256 bins for each byte.
    pub fn histogram(x: &[u8], bins: &mut [u32]) {
        for x in x {
            bins[usize::from(*x)] += 1;
        }
    }

    /// The mean of each element and its neighbours up to `radius` away. The sum slides along, so a wide radius costs
    /// nothing.
    pub fn blur(x: &[u32], y: &mut [u32], radius: usize) {
        let (mut first, mut end, mut sum) = (0, 0, 0_u32);
        for (i, y) in y.iter_mut().enumerate() {
            while end < x.len().min(i + radius + 1) {
                sum += x[end];
                end += 1;
            }
            while first + radius < i {
                sum -= x[first];
                first += 1;
            }
            *y = sum / (end - first) as u32;
        }
    }

    /// `weight` 256ths of `x`, the rest of `y`.
    pub fn mix(x: &[u32], y: &mut [u32], weight: u32) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = (x * weight + *y * (256 - weight)) / 256;
        }
    }

    /// Adds `x` to `total`.
    pub fn accumulate(x: &[u32], total: &mut [u32]) {
        for (total, x) in total.iter_mut().zip(x) {
            *total += x;
        }
    }
}
