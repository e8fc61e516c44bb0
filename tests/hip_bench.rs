//! A real HIP device as a bench.
//!
//! The device is held still by a kernel that polls a word of page-locked memory, not by a host function that blocks: the
//! library calls all host functions from one thread of its own, so that one that blocks holds up those of every stream.
//! The kernel gives up after some twenty seconds, so that a case which never resumes it fails instead of hanging.
//!
//! The device is taken away by a kernel that traps. On AMD that ends the process, so there it is not done. CUDA loads a
//! kernel at its first launch, and may then wait for all that runs: so that one is launched once before anything is held.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use tenure::driver::{Argument, Driver, DriverError, HostPointer, Image, LaunchConfig, Priority};
use tenure_hip::Hip;

use crate::bench::Bench;

const SOURCE: &str = r#"
extern "C" __global__ void hold(volatile unsigned* word, long long cycles) {
#if defined(__AMDGCN__) /* no clock compiles for every architecture; a look across the bus takes a microsecond */
    for (long long looks = 0; *word == 0 && looks < cycles / 2000; ++looks) {}
#else
    long long start = clock64();
    while (*word == 0 && clock64() - start < cycles) {}
#endif
}
extern "C" __global__ void fault(unsigned go) {
    if (go == 0) return;
#if defined(__AMDGCN__)
    __builtin_trap();
#else
    __trap();
#endif
}
"#;
/// Words to poll. Each hold takes the next one, so that a hold which came to no end keeps its own.
const WORDS: usize = 1024;
/// Twenty seconds at 2 GHz, longer on slower clocks.
const CYCLES_MAX: u64 = 40_000_000_000;

type Failure = tenure_hip::Error;

/// A real HIP device as a bench.
#[derive(Debug)]
pub struct HipBench {
    hip: Arc<Hip>,
    hold: <Hip as Driver>::Function,
    fault: <Hip as Driver>::Function,
    _module: <Hip as Driver>::Module,
    words: HostPointer,
    held: AtomicUsize,
    is_lost: AtomicBool,
}

impl HipBench {
    /// The device, with the kernels that hold it.
    ///
    /// # Errors
    /// The driver's, where they cannot be compiled or loaded.
    pub fn new(hip: Hip) -> Result<Self, Failure> {
        let module = hip.module_load(Image::Source(SOURCE))?;
        let (hold, fault) = (hip.function(&module, "hold")?, hip.function(&module, "fault")?);
        let words = hip.host_alloc(WORDS * size_of::<u32>())?;
        // SAFETY: P4. Memory of the driver, of this size, that nothing uses yet.
        unsafe { words.0.as_ptr().write_bytes(0, WORDS * size_of::<u32>()) };
        let (held, is_lost) = (AtomicUsize::new(0), AtomicBool::new(false));
        let bench = Self { hip: Arc::new(hip), hold, fault, _module: module, words, held, is_lost };
        bench.launch_fault(0)?;
        Ok(bench)
    }

    /// Runs the kernel that traps unless `go` is zero, and waits for it.
    fn launch_fault(&self, go: u32) -> Result<(), Failure> {
        let config = LaunchConfig { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
        let argument = Argument::Scalar { words: [u64::from(go), 0], bytes: 4 };
        let stream = self.hip.stream_create(Priority::Normal)?;
        // SAFETY: R6. The kernel's own argument; it touches no memory.
        unsafe { self.hip.launch(&stream, &self.fault, &config, &[argument]) }?;
        self.hip.stream_synchronize(&stream)?;
        // SAFETY: S6. Made above, and idle.
        unsafe { self.hip.stream_destroy(&stream) }
    }

    /// Whether a device that behaves so can be taken away, and the process live on.
    pub fn can_be_lost(profile: &str) -> bool {
        profile.starts_with("cuda")
    }

    fn word(&self, number: usize) -> HostPointer {
        self.words.offset(number % WORDS * size_of::<u32>())
    }

    fn word_cell(&self, number: usize) -> &AtomicU32 {
        let word: NonNull<AtomicU32> = self.word(number).0.cast();
        // SAFETY: P4. One of the words of `new`, aligned, which live as long as the bench; the device only reads it.
        unsafe { word.as_ref() }
    }

    fn launch_hold(&self, stream: &<Hip as Driver>::Stream, number: usize) -> Result<(), Failure> {
        let address = self.hip.host_device_address(self.word(number))?;
        let arguments =
            [Argument::Pointer { address, bytes: 4 }, Argument::Scalar { words: [CYCLES_MAX, 0], bytes: 8 }];
        let config = LaunchConfig { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
        // SAFETY: P4. The kernel's own arguments; the word lives as long as the process.
        unsafe { self.hip.launch(stream, &self.hold, &config, &arguments) }
    }

    /// Waits for all that the device has: it frees no memory of this kind before.
    fn settle(&self) -> Result<(), Failure> {
        let memory = self.hip.malloc(1)?;
        // SAFETY: O6. Allocated above, and used by nothing.
        unsafe { self.hip.free(memory) }
    }
}

impl Bench for HipBench {
    type Driver = Hip;

    fn driver(&self) -> Arc<Hip> {
        self.hip.clone()
    }

    fn stall(&self, stream: &<Hip as Driver>::Stream) {
        // Relaxed: one thread holds at a time.
        let number = self.held.fetch_add(1, Ordering::Relaxed) + 1;
        self.word_cell(number).store(0, Ordering::SeqCst);
        self.launch_hold(stream, number).expect("the kernel that holds is launched");
    }

    fn resume(&self, _: &<Hip as Driver>::Stream) {
        // Relaxed: as in `stall`. SeqCst: seen by the device once the write has left this processor.
        self.word_cell(self.held.load(Ordering::Relaxed)).store(1, Ordering::SeqCst);
    }

    fn lose_device(&self) -> bool {
        if !Self::can_be_lost(self.hip.profile().name()) {
            return false;
        }
        // Relaxed: read by the same thread, at the end of the case.
        self.is_lost.store(true, Ordering::Relaxed);
        let ended = self.launch_fault(1).expect_err("a trap is an error");
        assert!(ended.kind().is_sticky(), "R6: a trap takes the device away: {ended}");
        true
    }

    fn allow(&self, _: &[&str]) {}

    fn finish(&self) -> Vec<String> {
        // Relaxed: as where it is set.
        match self.settle() {
            Err(error) if !self.is_lost.load(Ordering::Relaxed) => vec![format!("R6: the device is lost: {error}")],
            _ => Vec::new(),
        }
    }
}
