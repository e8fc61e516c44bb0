//! What a driver must offer to be tested.

use std::sync::{Arc, Mutex};

use tenure::driver::{Driver, LaunchConfig};
use tenure_sim::checker::Severity;
use tenure_sim::code::Code;
use tenure_sim::drive::Drive;
use tenure_sim::driver::Sim;
use tenure_sim::kernel::{Read, Write};
use tenure_sim::profile::Profile;

/// The suite's kernels as HIP source. `n` is the number of elements.
pub const SOURCE: &str = r#"
extern "C" __global__ void bump(unsigned* x, unsigned by, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}
extern "C" __global__ void sum(const unsigned* x, unsigned* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
extern "C" __global__ void blend(const float* a, const float* b, float* y, float p, float q, unsigned n, unsigned add) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = p * a[i] + q * b[i] + (add ? y[i] : 0.0f);
}
"#;

/// One device to be tested, fresh for each case.
pub trait Bench: Send + Sync + 'static {
    /// Its driver.
    type Driver: Driver;

    /// The driver. Each call gives the same one.
    fn driver(&self) -> Arc<Self::Driver>;

    /// Holds the device still on `stream`: what is there and what comes does not run before [`resume`](Self::resume).
    /// Used on one stream at a time, which the suite makes for it.
    fn stall(&self, stream: &<Self::Driver as Driver>::Stream);

    /// Ends [`stall`](Self::stall).
    fn resume(&self, stream: &<Self::Driver as Driver>::Stream);

    /// Takes the device away, as a fault does; `false` where that cannot be done.
    fn lose_device(&self) -> bool;

    /// Resets the device, as other code does; `false` where that cannot be done.
    fn reset_device(&self) -> bool {
        false
    }

    /// Findings that name one of these lines are meant to be: the case breaks something to see what happens.
    fn allow(&self, lines: &[&str]);

    /// What else is known to have gone wrong, at the end of the case.
    fn finish(&self) -> Vec<String>;
}

/// A simulated device as a bench.
#[derive(Debug)]
pub struct SimBench {
    sim: Arc<Sim>,
    allowed: Mutex<Vec<String>>,
}

impl SimBench {
    /// A device of this profile under this drive, with the suite's kernels.
    pub fn new(profile: Profile, drive: Drive, seed: u64) -> Self {
        Self::with(profile, drive, seed, true)
    }

    /// As [`new`](Self::new), of a device that has memory pools, or none.
    pub fn with(profile: Profile, drive: Drive, seed: u64, has_pools: bool) -> Self {
        let device = Sim::builder().profile(profile).drive(drive).seed(seed).patience(crate::rig::deadline());
        Self::over(if has_pools { device.build() } else { device.without_pools().build() })
    }

    /// A device that somebody else made and drives.
    pub fn over(sim: Sim) -> Self {
        add_kernels(&sim);
        Self { sim: Arc::new(sim), allowed: Mutex::default() }
    }
}

/// Adds the suite's kernels as closures.
pub fn add_kernels(sim: &Sim) {
    sim.kernel("bump", |mut x: Write<'_, u32>, by: u32, n: u32| {
        x.iter_mut().take(n as usize).for_each(|x| *x = x.wrapping_add(by));
    });
    sim.kernel("sum", |x: Read<'_, u32>, mut y: Write<'_, u32>, n: u32| {
        y.iter_mut().zip(x.iter()).take(n as usize).for_each(|(y, x)| *y = y.wrapping_add(*x));
    });
    sim.kernel("blend", |a: Read<'_, f32>, b: Read<'_, f32>, y: Write<'_, f32>, p: f32, q: f32, n: u32, add: u32| {
        let mut y = y;
        for i in 0..n as usize {
            y[i] = p * a[i] + q * b[i] + if add == 0 { 0.0 } else { y[i] };
        }
    });
}

impl Bench for SimBench {
    type Driver = Sim;

    fn driver(&self) -> Arc<Sim> {
        self.sim.clone()
    }

    fn stall(&self, stream: &<Sim as Driver>::Stream) {
        self.sim.stall(stream);
    }

    fn resume(&self, stream: &<Sim as Driver>::Stream) {
        self.sim.resume(stream);
    }

    fn lose_device(&self) -> bool {
        self.sim.lose_device(Code::LAUNCH_FAILURE);
        true
    }

    fn reset_device(&self) -> bool {
        self.sim.reset_device().is_ok()
    }

    fn allow(&self, lines: &[&str]) {
        let mut allowed = self.allowed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        allowed.extend(lines.iter().map(|line| (*line).to_owned()));
    }

    fn finish(&self) -> Vec<String> {
        let allowed = self.allowed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let report = self.sim.finish();
        let bad = report.findings.iter().filter(|finding| finding.severity == Severity::Violation);
        let mut bad: Vec<_> = bad
            .filter(|finding| !allowed.iter().any(|line| line == finding.line.name()))
            .map(|finding| format!("{}: {}", finding.line, finding.message))
            .collect();
        if !bad.is_empty() {
            bad.push(report.lanes);
        }
        bad
    }
}

/// A launch of `n` elements.
pub fn linear(n: usize) -> LaunchConfig {
    LaunchConfig::linear(n)
}
