//! A driver that does nothing and says yes.
//!
//! Every submission counts as running for as long as [`Null::set_busy`] says so. A call may be given a cost, which is
//! spent spinning, to stand for a real driver's; and calls may be counted.

use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::ErrorKind;
use tenure::driver::{
    Argument, Call, Capabilities, CaptureMode, CaptureStatus, DeviceAddress, Driver, DriverError, GraphDescription,
    HostAccess, HostFunction, HostPointer, Image, LaunchConfig, Location, Priority, Process, Progress, Timing,
};

/// What some calls cost, in nanoseconds. Zero, the default, is no more than the call itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Recording an event.
    pub record: u64,
    /// Waiting for one on a stream.
    pub wait: u64,
}

impl Costs {
    /// Medians measured on one H200 with CUDA 13: a record 175 ns; record and wait together 316 ns.
    pub const MEASURED: Self = Self { record: 175, wait: 141 };
}

/// The driver. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Null {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    busy: AtomicBool,
    next: AtomicU64,
    process: Process,
    costs: Costs,
    counts: Option<parking_lot::Mutex<BTreeMap<Call, u64>>>,
    asked: Option<Asked>,
    host: parking_lot::Mutex<BTreeMap<usize, Box<[Page]>>>,
}

/// Page-locked memory comes in pages.
#[derive(Clone)]
#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "only its place matters")] [u8; 4096]);

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

/// What happens in a stream's query.
struct Asked(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asked")
    }
}

/// A handle of any kind: a number.
#[derive(Debug)]
pub struct Handle(u64);

/// It never fails; the trait wants a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Never {}

impl DriverError for Never {
    fn kind(&self) -> ErrorKind {
        match *self {}
    }

    fn code(&self) -> i32 {
        match *self {}
    }
}

type Answer<T> = Result<T, Never>;

impl Null {
    /// One whose calls cost this much.
    pub fn with_costs(costs: Costs) -> Self {
        Self { state: Arc::new(State { costs, ..State::default() }) }
    }

    /// One that counts its calls.
    pub fn counted() -> Self {
        Self { state: Arc::new(State { counts: Some(parking_lot::Mutex::default()), ..State::default() }) }
    }

    /// One that calls `asked` in each query of a stream.
    pub fn asking(asked: impl Fn() + Send + Sync + 'static) -> Self {
        Self { state: Arc::new(State { asked: Some(Asked(Box::new(asked))), ..State::default() }) }
    }

    /// Whether what was submitted, and will be, is still running.
    pub fn set_busy(&self, busy: bool) {
        // Relaxed: a switch for benchmarks; whoever flips it has no other memory to publish.
        self.state.busy.store(busy, Ordering::Relaxed);
    }

    /// Calls by kind, where they are counted.
    pub fn counts(&self) -> BTreeMap<Call, u64> {
        self.state.counts.as_ref().map(|counts| counts.lock().clone()).unwrap_or_default()
    }

    fn note(&self, call: Call) {
        if let Some(counts) = &self.state.counts {
            *counts.lock().entry(call).or_default() += 1;
        }
    }

    fn handle(&self, call: Call) -> Handle {
        self.note(call);
        // Relaxed: uniqueness only.
        Handle(self.state.next.fetch_add(1, Ordering::Relaxed))
    }

    fn progress(&self) -> Progress {
        // Relaxed: as in `set_busy`.
        if self.state.busy.load(Ordering::Relaxed) { Progress::Pending } else { Progress::Complete }
    }
}

/// Lets `nanoseconds` pass without giving up the core.
pub fn spend(nanoseconds: u64) {
    if nanoseconds > 0 {
        let end = Instant::now() + Duration::from_nanos(nanoseconds);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

// SAFETY: the device of a bench runs nothing: all is complete at once, and host memory comes from the allocator.
unsafe impl Driver for Null {
    type Stream = Handle;
    type Event = Handle;
    type Module = Handle;
    type Function = Handle;
    type Graph = Handle;
    type Executable = Handle;
    type Error = Never;

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn process(&self) -> Process {
        self.state.process.clone()
    }

    fn stream_create(&self, _: Priority) -> Answer<Handle> {
        Ok(self.handle(Call::StreamCreate))
    }

    unsafe fn stream_destroy(&self, _: &Handle) -> Answer<()> {
        self.note(Call::StreamDestroy);
        Ok(())
    }

    #[inline(never)]
    fn stream_query(&self, stream: &Handle) -> Answer<Progress> {
        self.note(Call::StreamQuery);
        black_box(stream.0);
        if let Some(asked) = &self.state.asked {
            (asked.0)();
        }
        Ok(self.progress())
    }

    #[inline(never)]
    fn stream_synchronize(&self, stream: &Handle) -> Answer<()> {
        self.note(Call::StreamSynchronize);
        black_box(stream.0);
        Ok(())
    }

    #[inline(never)]
    fn stream_wait_event(&self, stream: &Handle, event: &Handle) -> Answer<()> {
        self.note(Call::StreamWaitEvent);
        black_box((stream.0, event.0));
        spend(self.state.costs.wait);
        Ok(())
    }

    fn event_create(&self, _: Timing) -> Answer<Handle> {
        Ok(self.handle(Call::EventCreate))
    }

    fn event_destroy(&self, _: Handle) -> Answer<()> {
        self.note(Call::EventDestroy);
        Ok(())
    }

    #[inline(never)]
    fn event_record(&self, event: &Handle, stream: &Handle) -> Answer<()> {
        self.note(Call::EventRecord);
        black_box((stream.0, event.0));
        spend(self.state.costs.record);
        Ok(())
    }

    fn event_query(&self, _: &Handle) -> Answer<Progress> {
        self.note(Call::EventQuery);
        Ok(self.progress())
    }

    fn event_synchronize(&self, _: &Handle) -> Answer<()> {
        self.note(Call::EventSynchronize);
        Ok(())
    }

    fn event_elapsed(&self, _: &Handle, _: &Handle) -> Answer<f32> {
        Ok(0.0)
    }

    fn launch_host_function(&self, _: &Handle, function: HostFunction) -> Answer<()> {
        self.note(Call::LaunchHostFunction);
        // While busy it never gets there; the streams are asked then.
        if self.progress() == Progress::Complete {
            function();
        }
        Ok(())
    }

    fn malloc(&self, bytes: u64) -> Answer<DeviceAddress> {
        self.note(Call::Malloc);
        Ok(DeviceAddress(self.address(bytes)))
    }

    unsafe fn free(&self, _: DeviceAddress) -> Answer<()> {
        self.note(Call::Free);
        Ok(())
    }

    fn malloc_async(&self, _: &Handle, bytes: u64) -> Answer<DeviceAddress> {
        self.note(Call::MallocAsync);
        Ok(DeviceAddress(self.address(bytes)))
    }

    unsafe fn free_async(&self, stream: &Handle, address: DeviceAddress) -> Answer<()> {
        self.note(Call::FreeAsync);
        black_box((stream.0, address));
        Ok(())
    }

    fn host_alloc(&self, bytes: usize) -> Answer<HostPointer> {
        self.note(Call::HostAlloc);
        let mut memory: Box<[Page]> = vec![Page([0; 4096]); bytes.div_ceil(size_of::<Page>())].into();
        let start = HostPointer(NonNull::from(&mut *memory).cast());
        self.state.host.lock().insert(start.address(), memory);
        Ok(start)
    }

    unsafe fn host_free(&self, pointer: HostPointer) -> Answer<()> {
        self.note(Call::HostFree);
        drop(self.state.host.lock().remove(&pointer.address()));
        Ok(())
    }

    unsafe fn host_register(&self, _: HostPointer, _: usize, _: HostAccess) -> Answer<()> {
        self.note(Call::HostRegister);
        Ok(())
    }

    unsafe fn host_unregister(&self, _: HostPointer) -> Answer<()> {
        self.note(Call::HostUnregister);
        Ok(())
    }

    fn host_device_address(&self, pointer: HostPointer) -> Answer<DeviceAddress> {
        self.note(Call::HostDeviceAddress);
        Ok(DeviceAddress(pointer.address() as u64))
    }

    fn host_is_registered(&self, _: HostPointer) -> Answer<bool> {
        Ok(false)
    }

    unsafe fn copy(&self, _: &Handle, _: Location, _: Location, _: u64) -> Answer<()> {
        self.note(Call::Copy);
        Ok(())
    }

    unsafe fn fill(&self, _: &Handle, _: DeviceAddress, _: u8, _: u64) -> Answer<()> {
        self.note(Call::Fill);
        Ok(())
    }

    fn module_load(&self, _: Image<'_>) -> Answer<Handle> {
        Ok(self.handle(Call::ModuleLoad))
    }

    unsafe fn module_unload(&self, _: Handle) -> Answer<()> {
        self.note(Call::ModuleUnload);
        Ok(())
    }

    fn function(&self, _: &Handle, _: &str) -> Answer<Handle> {
        Ok(self.handle(Call::Function))
    }

    #[inline(never)]
    unsafe fn launch(
        &self,
        stream: &Handle,
        function: &Handle,
        config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Answer<()> {
        self.note(Call::Launch);
        black_box((stream.0, function.0, config, arguments));
        Ok(())
    }

    fn capture_begin(&self, _: &Handle, _: CaptureMode) -> Answer<()> {
        self.note(Call::CaptureBegin);
        Ok(())
    }

    fn capture_end(&self, _: &Handle) -> Answer<Handle> {
        Ok(self.handle(Call::CaptureEnd))
    }

    fn capture_status(&self, _: &Handle) -> Answer<CaptureStatus> {
        Ok(CaptureStatus::None)
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Answer<CaptureMode> {
        self.note(Call::ExchangeCaptureMode);
        Ok(black_box(mode))
    }

    fn graph_instantiate(&self, _: &Handle) -> Answer<Handle> {
        Ok(self.handle(Call::GraphInstantiate))
    }

    fn graph_update(&self, _: &Handle, _: &Handle) -> Answer<()> {
        self.note(Call::GraphUpdate);
        Ok(())
    }

    #[inline(never)]
    unsafe fn graph_launch(&self, executable: &Handle, stream: &Handle) -> Answer<()> {
        self.note(Call::GraphLaunch);
        black_box((executable.0, stream.0));
        Ok(())
    }

    fn graph_describe(&self, _: &Handle) -> Answer<GraphDescription> {
        Ok(GraphDescription::default())
    }

    fn graph_destroy(&self, _: Handle) -> Answer<()> {
        self.note(Call::GraphDestroy);
        Ok(())
    }

    fn executable_destroy(&self, _: Handle) -> Answer<()> {
        self.note(Call::ExecutableDestroy);
        Ok(())
    }
}

impl Null {
    fn address(&self, bytes: u64) -> u64 {
        // Relaxed: uniqueness only.
        0x10_0000 + self.state.next.fetch_add(bytes.next_multiple_of(256), Ordering::Relaxed)
    }
}
