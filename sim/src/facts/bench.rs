//! An engine with what the rows of facts need around it: kernels that take time, host memory, a clock.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::driver::{
    Argument, CaptureMode, DeviceAddress, HostAccess, HostFunction, HostPointer, Image, LaunchConfig, Location,
    Priority, Timing,
};

use super::SPIN_MS;
use crate::code::Code;
use crate::engine::{Answer, Choice, Engine, Ready, Settings, Step};
use crate::event::{EventHandle, FunctionHandle, HostThread, StreamHandle, WorkKind};
use crate::host_memory::{ListedMap, Protection};
use crate::kernel::{Library, Write};
use crate::profile::Profile;

/// The thread that captures.
pub(super) const MAIN: HostThread = HostThread(0);
/// Another one.
pub(super) const OTHER: HostThread = HostThread(1);

const PAGE: usize = 4096;
const HOST_BYTES: usize = 1 << 20;

pub(super) struct Bench {
    pub(super) engine: Engine,
    spin: FunctionHandle,
    touch: FunctionHandle,
    clock_ms: f64,
    host: Vec<u8>,
    /// How often [`Bench::counting_function`]s ran.
    pub(super) count: Arc<AtomicU64>,
}

impl Bench {
    pub(super) fn new(profile: &Profile) -> Self {
        Self::with_host(profile, HOST_BYTES)
    }

    /// With so many bytes of host memory.
    pub(super) fn with_host(profile: &Profile, host_bytes: usize) -> Self {
        let mut library = Library::new();
        library.add("spin", || {});
        library.add("touch", |mut bytes: Write<'_, u8>| bytes.fill(1));
        let settings = Settings { events: false, ..Settings::default() };
        let mut engine = Engine::with_kernels(profile.clone(), settings, Arc::new(library));
        let mut host = vec![0; host_bytes + PAGE];
        let start = host.as_mut_ptr() as usize;
        engine.set_host_map(Box::new(ListedMap { ranges: vec![(start..start + host.len(), Protection::ReadWrite)] }));
        let module = engine.module_load(MAIN, Image::Source("")).unwrap_or(crate::event::ModuleHandle(0));
        let mut function = |name| engine.function(MAIN, module, name).unwrap_or(FunctionHandle(0));
        let (spin, touch) = (function("spin"), function("touch"));
        Self { engine, spin, touch, clock_ms: 0.0, host, count: Arc::default() }
    }

    /// Page-aligned, writable host memory, a mebibyte by default, `offset` bytes in.
    pub(super) fn host(&mut self, offset: usize) -> HostPointer {
        let start = (self.host.as_ptr() as usize).next_multiple_of(PAGE) - self.host.as_ptr() as usize;
        HostPointer(NonNull::from(&mut self.host[start + offset]))
    }

    /// From now on the host memory can be used so.
    pub(super) fn protect(&mut self, protection: Protection) {
        let start = self.host.as_ptr() as usize;
        let ranges = vec![(start..start + self.host.len(), protection)];
        self.engine.set_host_map(Box::new(ListedMap { ranges }));
    }

    // --- objects

    pub(super) fn stream(&mut self) -> StreamHandle {
        self.engine.stream_create(MAIN, Priority::Normal).unwrap_or(StreamHandle(u64::MAX))
    }

    pub(super) fn blocking_stream(&mut self) -> StreamHandle {
        let stream = self.engine.stream_create_with(MAIN, Priority::Normal, true);
        stream.unwrap_or(StreamHandle(u64::MAX))
    }

    /// A stream with a kernel that runs.
    pub(super) fn busy_stream(&mut self) -> StreamHandle {
        let stream = self.stream();
        self.spin(stream);
        stream
    }

    pub(super) fn event(&mut self) -> EventHandle {
        self.engine.event_create(MAIN, Timing::Disabled).unwrap_or(EventHandle(u64::MAX))
    }

    pub(super) fn recorded(&mut self, stream: StreamHandle) -> EventHandle {
        let event = self.event();
        self.record(event, stream);
        event
    }

    // --- calls, with their code

    pub(super) fn spin(&mut self, stream: StreamHandle) -> Code {
        self.launch(MAIN, stream)
    }

    pub(super) fn launch(&mut self, thread: HostThread, stream: StreamHandle) -> Code {
        let answer = self.engine.launch(thread, stream, self.spin, &LaunchConfig::linear(1), &[]);
        self.done(answer)
    }

    pub(super) fn touch(&mut self, stream: StreamHandle, address: DeviceAddress) -> Code {
        let arguments = [Argument::Pointer { address, bytes: 64 }];
        let answer = self.engine.launch(MAIN, stream, self.touch, &LaunchConfig::linear(1), &arguments);
        self.done(answer)
    }

    pub(super) fn function_attributes(&mut self, thread: HostThread) -> Code {
        code(self.engine.function_attributes(thread, self.spin))
    }

    pub(super) fn record(&mut self, event: EventHandle, stream: StreamHandle) -> Code {
        let answer = self.engine.event_record(MAIN, event, stream);
        self.done(answer)
    }

    pub(super) fn wait_event(&mut self, thread: HostThread, stream: StreamHandle, event: EventHandle) -> Code {
        let answer = self.engine.stream_wait_event(thread, stream, event);
        self.done(answer)
    }

    pub(super) fn query(&mut self, thread: HostThread, stream: StreamHandle) -> Code {
        progress(self.engine.stream_query(thread, stream))
    }

    pub(super) fn query_event(&mut self, thread: HostThread, event: EventHandle) -> Code {
        progress(self.engine.event_query(thread, event))
    }

    pub(super) fn synchronize(&mut self, thread: HostThread, stream: StreamHandle) -> Code {
        let answer = self.engine.stream_synchronize(thread, stream);
        self.done(answer)
    }

    pub(super) fn destroy(&mut self, thread: HostThread, stream: StreamHandle) -> Code {
        let answer = self.engine.stream_destroy(thread, stream);
        self.done(answer)
    }

    pub(super) fn copy(
        &mut self,
        thread: HostThread,
        stream: StreamHandle,
        to: DeviceAddress,
        from: HostPointer,
    ) -> Code {
        // SAFETY: P4. Inside of memory that the bench keeps, and nobody refers into.
        let answer = unsafe { self.engine.copy(thread, stream, Location::Device(to), Location::Host(from), 64) };
        self.done(answer)
    }

    /// Device memory.
    pub(super) fn memory(&mut self, bytes: u64) -> DeviceAddress {
        self.engine.malloc(MAIN, bytes).unwrap_or_default()
    }

    pub(super) fn fill(&mut self, stream: StreamHandle, at: DeviceAddress, bytes: u64) -> Code {
        let answer = self.engine.fill(MAIN, stream, at, 0, bytes);
        self.done(answer)
    }

    pub(super) fn copy_of(&mut self, stream: StreamHandle, to: Location, from: Location, bytes: u64) -> Code {
        // SAFETY: P4. Inside of memory that the bench keeps, and nobody refers into.
        let answer = unsafe { self.engine.copy(MAIN, stream, to, from, bytes) };
        self.done(answer)
    }

    pub(super) fn copy_and_wait(&mut self, to: Location, from: Location, bytes: u64) {
        // SAFETY: P4. As above.
        let answer = unsafe { self.engine.copy_and_wait(MAIN, to, from, bytes) };
        self.done(answer);
    }

    pub(super) fn register(&mut self, offset: usize, bytes: usize) -> Code {
        let at = self.host(offset);
        // SAFETY: P4. Inside of memory that the bench keeps, and nobody refers into.
        code(unsafe { self.engine.host_register(MAIN, Some(at), bytes, HostAccess::ReadWrite) })
    }

    pub(super) fn take_last_error(&mut self) -> Code {
        self.engine.take_last_error(MAIN)
    }

    pub(super) fn begin(&mut self, stream: StreamHandle, mode: CaptureMode) -> Code {
        code(self.engine.capture_begin(MAIN, stream, mode))
    }

    pub(super) fn end(&mut self, thread: HostThread, stream: StreamHandle) -> Code {
        code(self.engine.capture_end(thread, stream))
    }

    /// The number of a stream's capture status.
    pub(super) fn status(&mut self, stream: StreamHandle) -> u32 {
        use tenure::driver::CaptureStatus::{Active, Invalidated, None};
        match self.engine.capture_status(MAIN, stream) {
            Ok(None) => 0,
            Ok(Active) => 1,
            Ok(Invalidated) => 2,
            Err(_) => u32::MAX,
        }
    }

    pub(super) fn counting_function(&self) -> HostFunction {
        let count = Arc::clone(&self.count);
        Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })
    }

    pub(super) fn counting(&mut self, thread: HostThread, stream: StreamHandle) -> Code {
        let function = self.counting_function();
        let answer = self.engine.launch_host_function(thread, stream, function);
        self.done(answer)
    }

    pub(super) fn counted(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    // --- time

    /// Ends a call, letting the device run as long as it waits.
    pub(super) fn done<T>(&mut self, answer: Result<Answer<T>, Code>) -> Code {
        self.value(answer).err().unwrap_or(Code::SUCCESS)
    }

    pub(super) fn value<T>(&mut self, mut answer: Result<Answer<T>, Code>) -> Result<T, Code> {
        loop {
            match answer? {
                Answer::Done(value) => return Ok(value),
                Answer::Blocked(wait) => {
                    if !self.engine.is_over(&wait) && !self.advance() {
                        return Err(Code::UNKNOWN);
                    }
                    answer = self.engine.finish(wait);
                }
            }
        }
    }

    /// How many milliseconds the device ran while `body` did.
    pub(super) fn ms(&mut self, body: impl FnOnce(&mut Self)) -> f64 {
        let before = self.clock_ms;
        body(self);
        self.clock_ms - before
    }

    /// Lets all that can run together run: what takes no time first, then kernels, for [`SPIN_MS`]. False: nothing could.
    pub(super) fn advance(&mut self) -> bool {
        let mut any = false;
        while let Some(found) = self.pick(|ready| matches!(ready.choice, Choice::Start(_) | Choice::StartNode(..))) {
            any = true;
            self.step(found);
        }
        let mut running = Vec::new();
        self.engine.ready(&mut running);
        running.retain(|ready| matches!(ready.choice, Choice::Finish(_) | Choice::FinishNode(..)));
        let is_kernel = |ready: &Ready| matches!(ready.work, WorkKind::Kernel(_));
        let takes_time = !running.is_empty() && running.iter().all(is_kernel);
        for ready in running {
            if takes_time || !is_kernel(&ready) {
                any = true;
                self.step(ready);
            }
        }
        self.clock_ms += if takes_time { SPIN_MS } else { 0.0 };
        self.engine.set_now_ns((self.clock_ms * 1e6) as u64);
        any
    }

    /// Lets all run.
    pub(super) fn run(&mut self) {
        while self.advance() {}
    }

    /// Starts one operation or does nothing.
    pub(super) fn pick(&mut self, wanted: impl Fn(&Ready) -> bool) -> Option<Ready> {
        let mut ready = Vec::new();
        self.engine.ready(&mut ready);
        ready.into_iter().find(wanted)
    }

    pub(super) fn step(&mut self, ready: Ready) {
        if let Step::Function(call) = self.engine.step(ready.choice) {
            (call.function)();
            self.engine.function_returned(call.op);
        }
    }
}

pub(super) fn code<T>(result: Result<T, Code>) -> Code {
    result.err().unwrap_or(Code::SUCCESS)
}

pub(super) fn progress(result: Result<tenure::driver::Progress, Code>) -> Code {
    match result {
        Ok(tenure::driver::Progress::Complete) => Code::SUCCESS,
        Ok(tenure::driver::Progress::Pending) => Code::NOT_READY,
        Err(code) => code,
    }
}
