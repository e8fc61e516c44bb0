//! A runtime over a tapped driver, with the kernels of the suite: what a case works with.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;

use tenure::driver::{Driver, HostPointer, Image, Priority};
use tenure::{
    Buffer, Config, Kernel, LaunchConfig, Module, Pinned, Queue, Read, Readable, ReclaimMode, Result, Runtime, Stream,
    Writable, Write,
};

use crate::bench::{Bench, SOURCE};
use crate::tap::Tap;

/// The driver that a case's runtime runs over.
pub type Tapped<B> = Tap<<B as Bench>::Driver>;

/// How long what must end may take before a case fails: a minute, which a busy machine keeps to as well, unless
/// `TENURE_TEST_SECONDS` says another number.
pub fn deadline() -> Duration {
    static SECONDS: OnceLock<u64> = OnceLock::new();
    let said = || std::env::var("TENURE_TEST_SECONDS").ok()?.parse().ok();
    Duration::from_secs(*SECONDS.get_or_init(|| said().unwrap_or(60)))
}

/// A runtime with its kernels.
pub struct Rig<D: Driver> {
    /// Below the runtime.
    pub tap: Tap<D>,
    /// The runtime.
    pub runtime: Runtime<Tap<D>>,
    module: Module<Tap<D>>,
    bump: Kernel<(Write<u32>, u32, u32), Tap<D>>,
    sum: Kernel<(Read<u32>, Write<u32>, u32), Tap<D>>,
}

impl<D: Driver> Rig<D> {
    /// A runtime without a worker: releases happen in `poll`, where the case sees them.
    pub fn new(bench: &impl Bench<Driver = D>) -> Self {
        Self::with(bench, Config::default().reclaim(ReclaimMode::Manual))
    }

    /// A runtime with a worker.
    pub fn working(bench: &impl Bench<Driver = D>) -> Self {
        Self::with(bench, Config::default())
    }

    /// A runtime as `config` says.
    pub fn with(bench: &impl Bench<Driver = D>, config: Config) -> Self {
        Self::over(Tap::new(bench.driver()), config)
    }

    /// A runtime without a worker, which is told that relaxed mode protects no capture: guarded calls and captures are
    /// kept apart in time.
    pub fn bare(bench: &impl Bench<Driver = D>) -> Self {
        let tap = Tap::new(bench.driver());
        tap.rules.protect_nothing();
        Self::over(tap, Config::default().reclaim(ReclaimMode::Manual))
    }

    fn over(tap: Tap<D>, config: Config) -> Self {
        let runtime = Runtime::with(tap.clone(), config).expect("a runtime starts");
        let module = runtime.module(Image::Source(SOURCE)).expect("the kernels load");
        // SAFETY: O1. The kernels have these signatures, and stay within `n` elements, which the methods below give.
        let bump = unsafe { module.kernel("bump") }.expect("`bump` is in the module");
        // SAFETY: O1. As above.
        let sum = unsafe { module.kernel("sum") }.expect("`sum` is in the module");
        Self { tap, runtime, module, bump, sum }
    }

    /// The module of the kernels.
    pub fn module(&self) -> &Module<Tap<D>> {
        &self.module
    }

    /// A stream.
    pub fn stream(&self) -> Stream<Tap<D>> {
        self.runtime.stream().expect("a stream is leased")
    }

    /// Adds `by` to every element of `x`.
    pub fn bump(&self, queue: &impl Queue<Tap<D>>, x: &mut impl Writable<u32, Tap<D>>, by: u32) -> Result<()> {
        let n = x.element_count();
        queue.launch(&self.bump, LaunchConfig::linear(n), (x, by, n as u32))
    }

    /// Adds `x` to `y`.
    pub fn sum(
        &self,
        queue: &impl Queue<Tap<D>>,
        x: &impl Readable<u32, Tap<D>>,
        y: &mut impl Writable<u32, Tap<D>>,
    ) -> Result<()> {
        let n = x.element_count().min(y.element_count());
        queue.launch(&self.sum, LaunchConfig::linear(n), (x, y, n as u32))
    }

    /// Four equal elements on the device.
    pub fn four(&self, queue: &impl Queue<Tap<D>>, value: u32) -> Buffer<u32, Tap<D>> {
        queue.upload(&[value; 4]).expect("four elements are uploaded")
    }

    /// Wraps four elements at `start`.
    ///
    /// # Safety
    /// - The same as for [`Runtime::wrap_raw`].
    pub unsafe fn wrap_at(&self, start: HostPointer) -> Result<Pinned<u32, Tap<D>>> {
        // SAFETY: P4. The caller vouches for the memory.
        unsafe { self.runtime.wrap_raw(start.0.cast(), 4) }
    }

    /// Polls until nothing waits.
    pub fn drain(&self) {
        let end = std::time::Instant::now() + deadline();
        while self.runtime.poll() > 0 {
            assert!(std::time::Instant::now() < end, "R5: what is retired is released: {:?}", self.runtime.stats());
            tenure::sync::thread::pause();
        }
    }

    /// Ends the runtime; nothing may be left.
    pub fn close(self) {
        let report = self.shut_down(deadline());
        assert!(report.is_clean(), "R5: all was let go, so all is given back: {report:?}");
    }

    /// Ends the runtime.
    pub fn shut_down(self, deadline: Duration) -> tenure::ShutdownReport {
        let Self { runtime, module, bump, sum, .. } = self;
        drop((module, bump, sum));
        runtime.shutdown(deadline)
    }
}

/// Memory of a case's own that the device may write: freed with this, but kept where the case panics, as then nobody
/// has waited for the device.
#[derive(Debug)]
pub struct Lent<T>(ManuallyDrop<Vec<T>>);

impl<T> Lent<T> {
    /// Where it starts; it does not move with this.
    pub fn start(&mut self) -> HostPointer {
        HostPointer(NonNull::from(&mut **self.0).cast())
    }
}

impl<T> From<Vec<T>> for Lent<T> {
    fn from(memory: Vec<T>) -> Self {
        Self(ManuallyDrop::new(memory))
    }
}

impl<T> Deref for Lent<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: P4. It is dropped here and nowhere else; the case has waited for the device.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// A stream of the case's own that stands still, so that whatever waits for it does too.
pub struct Brake<'b, B: Bench> {
    bench: &'b B,
    stream: Option<<B::Driver as Driver>::Stream>,
    event: Option<<B::Driver as Driver>::Event>,
}

impl<'b, B: Bench> Brake<'b, B> {
    /// A stream that stands still.
    pub fn new(bench: &'b B) -> Self {
        let driver = bench.driver();
        let stream = driver.stream_create(Priority::Normal).expect("a stream is made");
        let event = driver.event_create(tenure::driver::Timing::Disabled).expect("an event is made");
        bench.stall(&stream);
        driver.launch_host_function(&stream, std::sync::Arc::new(|| {})).expect("a host function is enqueued");
        driver.event_record(&event, &stream).expect("an event is recorded");
        Self { bench, stream: Some(stream), event: Some(event) }
    }

    /// Makes what comes on `stream` wait for the release.
    pub fn hold(&self, stream: &Stream<Tapped<B>>) {
        let driver = self.bench.driver();
        // SAFETY: O1. The closure enqueues a wait on the given stream and nothing else.
        let held = unsafe { stream.use_on(&[], |raw| self.hold_raw(&driver, raw)) };
        held.expect("the closure runs");
    }

    /// As [`hold`](Self::hold), for a raw stream.
    pub fn hold_raw(&self, driver: &B::Driver, raw: &<B::Driver as Driver>::Stream) {
        let event = self.event.as_ref().expect("the brake is on");
        driver.stream_wait_event(raw, event).expect("a wait is enqueued");
    }

    /// Lets everything go on.
    pub fn release(self) {}
}

impl<B: Bench> Drop for Brake<'_, B> {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        self.bench.resume(&stream);
        let driver = self.bench.driver();
        let ended = driver.stream_synchronize(&stream);
        let destroyed = self.event.take().map(|event| driver.event_destroy(event));
        // SAFETY: S6. The suite's own stream, used nowhere else; its event is gone.
        let given_back = unsafe { driver.stream_destroy(&stream) };
        if !std::thread::panicking() && ended.is_ok() {
            assert!(destroyed.is_none_or(|gone| gone.is_ok()) && given_back.is_ok(), "the brake comes off");
        }
    }
}
