//! A device with what the rows need around it: kernels that take time, host memory, a clock.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::driver::{
    Argument, CaptureMode, CaptureStatus, DeviceAddress, Driver, DriverError, HostAccess, HostFunction, HostPointer,
    Image, LaunchConfig, Location, Priority, Progress, Timing,
};
use tenure_hip::Hip;
use tenure_sim::drive::Drive;
use tenure_sim::driver::Sim;
use tenure_sim::facts::SPIN_MS;
use tenure_sim::kernel::Write;
use tenure_sim::profile::Profile;

const SOURCE: &str = r#"
__device__ void wait(long long cycles) {
#if defined(__AMDGCN__) /* no clock compiles for every architecture: 5.7 has none for gfx1100 */
    for (volatile long long turn = 0; turn < cycles; turn = turn + 1) {}
#else
    long long start = clock64();
    while (clock64() - start < cycles) {}
#endif
}
extern "C" __global__ void spin(long long cycles) { wait(cycles); }
extern "C" __global__ void touch(unsigned char *x, long long cycles) { wait(cycles); x[0] = 1; }
"#;
const PAGE: usize = 4096;
/// `hipErrorNotReady`, which the trait says as pending.
const NOT_READY: i32 = 600;
/// How many cycles are tried out before the clock's rate is known.
const CYCLES_TRIED: u64 = 4_000_000;

/// A device to ask.
pub struct Bed<D: Driver> {
    pub driver: D,
    spin: D::Function,
    touch: D::Function,
    _module: D::Module,
    cycles: u64,
    /// Milliseconds that have passed.
    clock: Box<dyn Fn() -> f64 + Send + Sync>,
    /// Waits until all that was enqueued has run.
    settle: Box<dyn Fn() + Send + Sync>,
}

impl Bed<Sim> {
    /// A simulated device that moves only when something waits for it. Its clock counts kernels.
    pub fn on_sim(mut profile: Profile) -> Result<Self, String> {
        profile.costs.kernel_ns = (SPIN_MS * 1e6) as u64;
        let sim = Sim::builder().profile(profile).drive(Drive::Stepped).trace_rows(0).build();
        let runs = Arc::new(AtomicU64::new(0));
        let (of_spin, of_touch) = (runs.clone(), runs.clone());
        // Relaxed: counts alone.
        sim.kernel("spin", move |_: u64| {
            of_spin.fetch_add(1, Ordering::Relaxed);
        });
        sim.kernel("touch", move |mut bytes: Write<'_, u8>, _: u64| {
            bytes[0] = 1;
            of_touch.fetch_add(1, Ordering::Relaxed);
        });
        let idle = sim.clone();
        let clock = move || runs.load(Ordering::Relaxed) as f64 * SPIN_MS;
        let settle = move || {
            idle.run_to_idle();
        };
        Self::new(sim, Box::new(clock), Box::new(settle))
    }
}

impl Bed<Hip> {
    /// A real device.
    pub fn on_hip(hip: Hip) -> Result<Self, String> {
        let start = Instant::now();
        let clock = move || start.elapsed().as_secs_f64() * 1e3;
        let settle = || std::thread::sleep(Duration::from_millis(4 * SPIN_MS as u64));
        let mut bed = Self::new(hip, Box::new(clock), Box::new(settle))?;
        bed.cycles = CYCLES_TRIED;
        let stream = bed.stream()?;
        let time = |bed: &Self| {
            let start = bed.now_ms();
            bed.spin(&stream);
            bed.synchronize(&stream);
            bed.now_ms() - start
        };
        time(&bed);
        let ms = (0..3).map(|_| time(&bed)).fold(f64::INFINITY, f64::min);
        bed.cycles = (CYCLES_TRIED as f64 * SPIN_MS / ms.max(0.01)) as u64;
        bed.destroy(&stream);
        Ok(bed)
    }
}

impl<D: Driver> Bed<D> {
    fn new(
        driver: D,
        clock: Box<dyn Fn() -> f64 + Send + Sync>,
        settle: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, String> {
        let module = driver.module_load(Image::Source(SOURCE)).map_err(|error| error.to_string())?;
        let function = |name| driver.function(&module, name).map_err(|error| error.to_string());
        let (spin, touch) = (function("spin")?, function("touch")?);
        Ok(Self { driver, spin, touch, _module: module, cycles: 0, clock, settle })
    }

    pub fn now_ms(&self) -> f64 {
        (self.clock)()
    }

    pub fn settle(&self) {
        (self.settle)();
    }

    // --- objects

    /// The kernels once more.
    pub fn module(&self) -> Result<D::Module, D::Error> {
        self.driver.module_load(Image::Source(SOURCE))
    }

    pub fn unload(&self, module: D::Module) -> i32 {
        // SAFETY: C4. Nothing was launched from it.
        code(unsafe { self.driver.module_unload(module) })
    }

    pub fn stream(&self) -> Result<D::Stream, String> {
        self.driver.stream_create(Priority::Normal).map_err(|error| error.to_string())
    }

    /// A stream with a kernel that runs.
    pub fn busy_stream(&self) -> Result<D::Stream, String> {
        let stream = self.stream()?;
        self.spin(&stream);
        Ok(stream)
    }

    pub fn event(&self) -> Result<D::Event, String> {
        self.driver.event_create(Timing::Disabled).map_err(|error| error.to_string())
    }

    pub fn recorded(&self, stream: &D::Stream) -> Result<D::Event, String> {
        let event = self.event()?;
        self.record(&event, stream);
        Ok(event)
    }

    // --- calls, with their code

    pub fn spin(&self, stream: &D::Stream) -> i32 {
        let arguments = [Argument::Scalar { words: [self.cycles, 0], bytes: 8 }];
        // SAFETY: O1. The kernel takes this scalar, and no memory.
        code(unsafe { self.driver.launch(stream, &self.spin, &LaunchConfig::linear_blocks(1, 1), &arguments) })
    }

    /// Runs a kernel that writes one byte at `address`.
    pub fn touch(&self, stream: &D::Stream, address: DeviceAddress) -> i32 {
        let arguments =
            [Argument::Pointer { address, bytes: 1 }, Argument::Scalar { words: [self.cycles, 0], bytes: 8 }];
        // SAFETY: P4. The probe's own memory, which lives until the end of the process.
        code(unsafe { self.driver.launch(stream, &self.touch, &LaunchConfig::linear_blocks(1, 1), &arguments) })
    }

    pub fn record(&self, event: &D::Event, stream: &D::Stream) -> i32 {
        code(self.driver.event_record(event, stream))
    }

    pub fn wait_event(&self, stream: &D::Stream, event: &D::Event) -> i32 {
        code(self.driver.stream_wait_event(stream, event))
    }

    pub fn query(&self, stream: &D::Stream) -> i32 {
        progress(self.driver.stream_query(stream))
    }

    pub fn query_event(&self, event: &D::Event) -> i32 {
        progress(self.driver.event_query(event))
    }

    pub fn synchronize(&self, stream: &D::Stream) -> i32 {
        code(self.driver.stream_synchronize(stream))
    }

    pub fn destroy(&self, stream: &D::Stream) -> i32 {
        // SAFETY: S6. The probe's own stream, which its scene uses no more; no event of it is asked after this.
        code(unsafe { self.driver.stream_destroy(stream) })
    }

    pub fn free(&self, address: DeviceAddress) -> i32 {
        // SAFETY: R4. The probe's own memory, which nothing uses.
        code(unsafe { self.driver.free(address) })
    }

    pub fn free_async(&self, stream: &D::Stream, address: DeviceAddress) -> i32 {
        // SAFETY: R4. The same as for `free`.
        code(unsafe { self.driver.free_async(stream, address) })
    }

    pub fn free_host(&self, pointer: HostPointer) -> i32 {
        // SAFETY: R4. The same as for `free`.
        code(unsafe { self.driver.host_free(pointer) })
    }

    pub fn register(&self, base: HostPointer, bytes: usize) -> i32 {
        // SAFETY: P4. The probe's host memory is never given back.
        code(unsafe { self.driver.host_register(base, bytes, HostAccess::ReadWrite) })
    }

    pub fn unregister(&self, base: HostPointer) -> i32 {
        // SAFETY: P3. The probe's own memory; what is no base is refused by the drivers that are asked.
        code(unsafe { self.driver.host_unregister(base) })
    }

    pub fn copy(&self, stream: &D::Stream, to: DeviceAddress, from: HostPointer) -> i32 {
        // SAFETY: O1. Both are the probe's own 64 bytes.
        code(unsafe { self.driver.copy(stream, Location::Device(to), Location::Host(from), 64) })
    }

    pub fn fill(&self, stream: &D::Stream, at: DeviceAddress) -> i32 {
        // SAFETY: O1. The probe's own 64 bytes.
        code(unsafe { self.driver.fill(stream, at, 0, 64) })
    }

    pub fn begin(&self, stream: &D::Stream, mode: CaptureMode) -> i32 {
        code(self.driver.capture_begin(stream, mode))
    }

    pub fn end(&self, stream: &D::Stream) -> i32 {
        code(self.driver.capture_end(stream))
    }

    pub fn launch_graph(&self, executable: &D::Executable, stream: &D::Stream) -> i32 {
        // SAFETY: C4. The graph names no memory but its own.
        code(unsafe { self.driver.graph_launch(executable, stream) })
    }

    /// The number of a stream's capture status.
    pub fn status(&self, stream: &D::Stream) -> u32 {
        match self.driver.capture_status(stream) {
            Ok(CaptureStatus::None) => 0,
            Ok(CaptureStatus::Active) => 1,
            Ok(CaptureStatus::Invalidated) => 2,
            Err(_) => u32::MAX,
        }
    }

    pub fn host_function(&self, stream: &D::Stream, function: HostFunction) -> i32 {
        code(self.driver.launch_host_function(stream, function))
    }
}

/// Host memory from a page's start on, never given back: the driver may keep it registered.
pub fn host_memory(bytes: usize) -> HostPointer {
    let memory = vec![0_u8; bytes + PAGE].leak();
    let skipped = memory.as_ptr().align_offset(PAGE).min(PAGE);
    HostPointer(NonNull::from(&mut memory[skipped]))
}

pub fn code<T, E: DriverError>(answer: Result<T, E>) -> i32 {
    answer.err().map_or(0, |error| error.code())
}

pub fn progress<E: DriverError>(answer: Result<Progress, E>) -> i32 {
    match answer {
        Ok(Progress::Complete) => 0,
        Ok(Progress::Pending) => NOT_READY,
        Err(error) => error.code(),
    }
}
