//! A driver around a driver: it notes each call in a [`Log`], makes those fail that the [`Rules`] say, and passes the
//! rest on.

use std::cell::Cell;
use std::sync::Arc;

use tenure::driver::{
    Argument, Call, Capabilities, CaptureMode, CaptureStatus, Coverage, DeviceAddress, Driver, GraphDescription,
    HostAccess, HostFunction, HostPointer, Image, LaunchConfig, Location, Priority, Process, Progress, Timing,
};

use crate::counting::Log;
use crate::faulty::{Rules, TapError, When};
use crate::functions::Functions;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the running thread is in a driver call: what it costs there is the driver's, and the tap's.
pub fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// A tapped driver. Clones share log, rules and host functions.
pub struct Tap<D> {
    inner: Arc<D>,
    /// What it has seen.
    pub log: Arc<Log>,
    /// What it makes fail.
    pub rules: Arc<Rules>,
    /// What it does with host functions.
    pub functions: Arc<Functions>,
}

impl<D> std::fmt::Debug for Tap<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl<D> Clone for Tap<D> {
    fn clone(&self) -> Self {
        let (inner, functions) = (self.inner.clone(), self.functions.clone());
        Self { inner, log: self.log.clone(), rules: self.rules.clone(), functions }
    }
}

impl<D: Driver> Tap<D> {
    /// A tap on `inner`, with an empty log and no rules.
    pub fn new(inner: Arc<D>) -> Self {
        Self { inner, log: Arc::default(), rules: Arc::default(), functions: Arc::default() }
    }

    /// The driver inside, for calls that are not to be seen.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn pass<R>(&self, call: Call, body: impl FnOnce(&D) -> Result<R, D::Error>) -> Result<R, TapError<D::Error>> {
        let outside = INSIDE.replace(true);
        self.log.note(call);
        self.rules.wait(call);
        let answer = match self.rules.judge_when(call) {
            Some((kind, when)) => {
                if when == When::After {
                    drop(body(&self.inner));
                }
                Err(TapError::Injected(call, kind))
            }
            None => body(&self.inner).map_err(TapError::Real),
        };
        INSIDE.set(outside);
        self.log.note_return(call, answer.is_err());
        self.functions.call();
        answer
    }
}

// SAFETY: passes each call on once, as it was made, to a driver that promises it.
unsafe impl<D: Driver> Driver for Tap<D> {
    type Stream = D::Stream;
    type Event = D::Event;
    type Module = D::Module;
    type Function = D::Function;
    type Graph = D::Graph;
    type Executable = D::Executable;
    type Error = TapError<D::Error>;

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        if self.rules.protects_nothing() {
            capabilities.relaxed_protects = false;
            capabilities.relaxed_protects_events = false;
        }
        capabilities
    }

    fn last_error(&self) -> Option<i32> {
        self.inner.last_error()
    }

    fn process(&self) -> Process {
        self.inner.process()
    }

    fn stream_create(&self, priority: Priority) -> Result<Self::Stream, Self::Error> {
        self.pass(Call::StreamCreate, |driver| driver.stream_create(priority))
    }

    unsafe fn stream_destroy(&self, stream: &Self::Stream) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::StreamDestroy, |driver| unsafe { driver.stream_destroy(stream) })
    }

    fn stream_query(&self, stream: &Self::Stream) -> Result<Progress, Self::Error> {
        self.pass(Call::StreamQuery, |driver| driver.stream_query(stream))
    }

    fn stream_synchronize(&self, stream: &Self::Stream) -> Result<(), Self::Error> {
        self.pass(Call::StreamSynchronize, |driver| driver.stream_synchronize(stream))
    }

    fn stream_wait_event(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Self::Error> {
        self.pass(Call::StreamWaitEvent, |driver| driver.stream_wait_event(stream, event))
    }

    fn event_create(&self, timing: Timing) -> Result<Self::Event, Self::Error> {
        self.pass(Call::EventCreate, |driver| driver.event_create(timing))
    }

    fn event_destroy(&self, event: Self::Event) -> Result<(), Self::Error> {
        self.pass(Call::EventDestroy, |driver| driver.event_destroy(event))
    }

    fn event_record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<(), Self::Error> {
        self.pass(Call::EventRecord, |driver| driver.event_record(event, stream))
    }

    fn event_query(&self, event: &Self::Event) -> Result<Progress, Self::Error> {
        self.pass(Call::EventQuery, |driver| driver.event_query(event))
    }

    fn event_synchronize(&self, event: &Self::Event) -> Result<(), Self::Error> {
        self.pass(Call::EventSynchronize, |driver| driver.event_synchronize(event))
    }

    fn event_elapsed(&self, start: &Self::Event, end: &Self::Event) -> Result<f32, Self::Error> {
        self.pass(Call::EventElapsed, |driver| driver.event_elapsed(start, end))
    }

    fn launch_host_function(&self, stream: &Self::Stream, function: HostFunction) -> Result<(), Self::Error> {
        let function = self.functions.wrap(function);
        self.pass(Call::LaunchHostFunction, |driver| driver.launch_host_function(stream, function))
    }

    fn malloc(&self, bytes: u64) -> Result<DeviceAddress, Self::Error> {
        if self.rules.gives_nothing() {
            return Ok(DeviceAddress(0));
        }
        self.pass(Call::Malloc, |driver| driver.malloc(bytes))
    }

    unsafe fn free(&self, address: DeviceAddress) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::Free, |driver| unsafe { driver.free(address) })
    }

    fn malloc_async(&self, stream: &Self::Stream, bytes: u64) -> Result<DeviceAddress, Self::Error> {
        if self.rules.gives_nothing() {
            return Ok(DeviceAddress(0));
        }
        self.pass(Call::MallocAsync, |driver| driver.malloc_async(stream, bytes))
    }

    unsafe fn free_async(&self, stream: &Self::Stream, address: DeviceAddress) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::FreeAsync, |driver| unsafe { driver.free_async(stream, address) })
    }

    fn host_alloc(&self, bytes: usize) -> Result<HostPointer, Self::Error> {
        self.pass(Call::HostAlloc, |driver| driver.host_alloc(bytes))
    }

    unsafe fn host_free(&self, pointer: HostPointer) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::HostFree, |driver| unsafe { driver.host_free(pointer) })
    }

    unsafe fn host_register(&self, base: HostPointer, bytes: usize, access: HostAccess) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::HostRegister, |driver| unsafe { driver.host_register(base, bytes, access) })
    }

    unsafe fn host_unregister(&self, base: HostPointer) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::HostUnregister, |driver| unsafe { driver.host_unregister(base) })
    }

    fn host_device_address(&self, pointer: HostPointer) -> Result<DeviceAddress, Self::Error> {
        if self.rules.gives_nothing() {
            self.log.note(Call::HostDeviceAddress);
            return Ok(DeviceAddress(0));
        }
        self.pass(Call::HostDeviceAddress, |driver| driver.host_device_address(pointer))
    }

    fn host_is_registered(&self, pointer: HostPointer) -> Result<bool, Self::Error> {
        self.pass(Call::HostIsRegistered, |driver| driver.host_is_registered(pointer))
    }

    fn host_coverage(&self, base: HostPointer, bytes: usize) -> Result<Coverage, Self::Error> {
        self.pass(Call::HostIsRegistered, |driver| driver.host_coverage(base, bytes))
    }

    unsafe fn copy(&self, stream: &Self::Stream, to: Location, from: Location, bytes: u64) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::Copy, |driver| unsafe { driver.copy(stream, to, from, bytes) })
    }

    unsafe fn fill(&self, stream: &Self::Stream, at: DeviceAddress, value: u8, bytes: u64) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::Fill, |driver| unsafe { driver.fill(stream, at, value, bytes) })
    }

    fn module_load(&self, image: Image<'_>) -> Result<Self::Module, Self::Error> {
        self.pass(Call::ModuleLoad, |driver| driver.module_load(image))
    }

    unsafe fn module_unload(&self, module: Self::Module) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::ModuleUnload, |driver| unsafe { driver.module_unload(module) })
    }

    fn function(&self, module: &Self::Module, name: &str) -> Result<Self::Function, Self::Error> {
        self.pass(Call::Function, |driver| driver.function(module, name))
    }

    unsafe fn launch(
        &self,
        stream: &Self::Stream,
        function: &Self::Function,
        config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::Launch, |driver| unsafe { driver.launch(stream, function, config, arguments) })
    }

    fn capture_begin(&self, stream: &Self::Stream, mode: CaptureMode) -> Result<(), Self::Error> {
        self.pass(Call::CaptureBegin, |driver| driver.capture_begin(stream, mode))
    }

    fn capture_end(&self, stream: &Self::Stream) -> Result<Self::Graph, Self::Error> {
        self.pass(Call::CaptureEnd, |driver| driver.capture_end(stream))
    }

    fn capture_status(&self, stream: &Self::Stream) -> Result<CaptureStatus, Self::Error> {
        self.pass(Call::CaptureStatus, |driver| driver.capture_status(stream))
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, Self::Error> {
        self.pass(Call::ExchangeCaptureMode, |driver| driver.exchange_capture_mode(mode))
    }

    fn graph_instantiate(&self, graph: &Self::Graph) -> Result<Self::Executable, Self::Error> {
        self.pass(Call::GraphInstantiate, |driver| driver.graph_instantiate(graph))
    }

    fn graph_update(&self, executable: &Self::Executable, graph: &Self::Graph) -> Result<(), Self::Error> {
        self.pass(Call::GraphUpdate, |driver| driver.graph_update(executable, graph))
    }

    unsafe fn graph_launch(&self, executable: &Self::Executable, stream: &Self::Stream) -> Result<(), Self::Error> {
        // SAFETY: O6. What the caller vouched for holds for the driver inside: the call is passed on as it is.
        self.pass(Call::GraphLaunch, |driver| unsafe { driver.graph_launch(executable, stream) })
    }

    fn graph_describe(&self, graph: &Self::Graph) -> Result<GraphDescription, Self::Error> {
        self.pass(Call::GraphDescribe, |driver| driver.graph_describe(graph))
    }

    fn graph_destroy(&self, graph: Self::Graph) -> Result<(), Self::Error> {
        self.pass(Call::GraphDestroy, |driver| driver.graph_destroy(graph))
    }

    fn executable_destroy(&self, executable: Self::Executable) -> Result<(), Self::Error> {
        self.pass(Call::ExecutableDestroy, |driver| driver.executable_destroy(executable))
    }
}
