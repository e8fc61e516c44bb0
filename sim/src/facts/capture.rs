//! One call during a capture: who may make it, what it returns, and what it does to the capture.

use tenure::driver::{CaptureMode, DeviceAddress, HostAccess, Image, Location, Priority, Timing};

use super::bench::{Bench, MAIN, OTHER, code};
use crate::code::Code;
use crate::event::{EventHandle, ExecutableHandle, GraphHandle, HostThread, ModuleHandle, StreamHandle};
use crate::profile::Profile;

const CALLERS: [(CaptureMode, &str, &str); 8] = [
    (CaptureMode::Global, "global", "same-thread"),
    (CaptureMode::Global, "global", "other-thread"),
    (CaptureMode::Global, "global", "relaxed-exchange"),
    (CaptureMode::Global, "global", "other-thread-relaxed-exchange"),
    (CaptureMode::ThreadLocal, "threadlocal", "same-thread"),
    (CaptureMode::ThreadLocal, "threadlocal", "other-thread"),
    (CaptureMode::Relaxed, "relaxed", "same-thread"),
    (CaptureMode::Relaxed, "relaxed", "other-thread"),
];

/// The situation in which an operation runs.
struct Scene<'a> {
    bench: &'a mut Bench,
    thread: HostThread,
    captured: StreamHandle,
    other: StreamHandle,
    busy: StreamHandle,
    /// Recorded before the capture, on the other and on the busy stream.
    done: EventHandle,
    pending: EventHandle,
    /// Recorded in the capture.
    inside: EventHandle,
    memory: DeviceAddress,
    ordered: DeviceAddress,
    pinned: tenure::driver::HostPointer,
    /// Of one kernel; the executable is idle.
    graph: GraphHandle,
    executable: ExecutableHandle,
    module: ModuleHandle,
}

type Operation = (&'static str, fn(&mut Scene<'_>) -> Code);

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    ("none", |_| Code::SUCCESS),
    ("StreamQuery(captured)", |s| s.bench.query(s.thread, s.captured)),
    ("StreamQuery(other idle)", |s| s.bench.query(s.thread, s.other)),
    ("StreamQuery(other busy)", |s| s.bench.query(s.thread, s.busy)),
    ("StreamSynchronize(captured)", |s| s.bench.synchronize(s.thread, s.captured)),
    ("StreamSynchronize(other)", |s| s.bench.synchronize(s.thread, s.other)),
    ("DeviceSynchronize", |s| { let answer = s.bench.engine.device_synchronize(s.thread); s.bench.done(answer) }),
    ("EventQuery(done outside)", |s| s.bench.query_event(s.thread, s.done)),
    ("EventQuery(busy outside)", |s| s.bench.query_event(s.thread, s.pending)),
    ("EventQuery(recorded in capture)", |s| s.bench.query_event(s.thread, s.inside)),
    ("EventSynchronize(done outside)", |s| s.event_synchronize(s.done)),
    ("EventSynchronize(recorded in capture)", |s| s.event_synchronize(s.inside)),
    ("EventRecord(other)", |s| { let answer = s.bench.engine.event_record(s.thread, s.done, s.other); s.bench.done(answer) }),
    ("StreamWaitEvent(captured <- outside event)", |s| s.bench.wait_event(s.thread, s.captured, s.done)),
    ("StreamWaitEvent(other <- captured event)", |s| s.bench.wait_event(s.thread, s.other, s.inside)),
    ("Malloc", |s| code(s.bench.engine.malloc(s.thread, 64))),
    ("Free", |s| { let answer = s.bench.engine.free(s.thread, s.memory); s.bench.done(answer) }),
    ("MallocAsync(other)", |s| s.malloc_async(s.other)),
    ("FreeAsync(other)", |s| s.free_async(s.other)),
    ("MallocAsync(captured)", |s| s.malloc_async(s.captured)),
    ("FreeAsync(captured, outside ptr)", |s| s.free_async(s.captured)),
    ("HostRegister", |s| s.host_register()),
    ("HostUnregister", |s| { let at = s.bench.host(8192); let answer = s.bench.engine.host_unregister(s.thread, Some(at)); s.bench.done(answer) }),
    ("HostGetDevicePointer", |s| { let at = s.bench.host(8192); code(s.bench.engine.host_device_address(s.thread, at)) }),
    ("PointerGetAttributes", |s| { let at = s.bench.host(8192); code(s.bench.engine.host_is_registered(s.thread, at)) }),
    ("MallocHost", |s| code(s.bench.engine.host_alloc(s.thread, 64))),
    ("FreeHost", |s| { let answer = s.bench.engine.host_free(s.thread, s.pinned); s.bench.done(answer) }),
    ("StreamCreate", |s| code(s.bench.engine.stream_create(s.thread, Priority::Normal))),
    ("StreamDestroy(other)", |s| s.bench.destroy(s.thread, s.other)),
    ("EventCreate", |s| code(s.bench.engine.event_create(s.thread, Timing::Disabled))),
    ("EventDestroy(recorded in capture)", |s| code(s.bench.engine.event_destroy(s.thread, s.inside))),
    ("LaunchHostFunc(captured)", |s| s.bench.counting(s.thread, s.captured)),
    ("LaunchHostFunc(other)", |s| s.bench.counting(s.thread, s.other)),
    ("StreamAddCallback(other)", |s| { let function = s.bench.counting_function(); let answer = s.bench.engine.add_callback(s.thread, s.other, function); s.bench.done(answer) }),
    ("Launch(other)", |s| s.bench.launch(s.thread, s.other)),
    ("Launch(legacy default stream)", |s| s.bench.launch(s.thread, StreamHandle::LEGACY)),
    ("MemcpyAsync(other, pinned)", |s| { let from = s.bench.host(8192); s.bench.copy(s.thread, s.other, s.memory, from) }),
    ("MemcpyAsync(other, pageable)", |s| { let from = s.bench.host(0); s.bench.copy(s.thread, s.other, s.memory, from) }),
    ("MemcpyAsync(captured, pageable)", |s| { let from = s.bench.host(0); s.bench.copy(s.thread, s.captured, s.memory, from) }),
    ("Memcpy(sync)", |s| s.copy_and_wait()),
    ("MemsetAsync(other)", |s| { let answer = s.bench.engine.fill(s.thread, s.other, s.memory, 0, 64); s.bench.done(answer) }),
    ("BeginCapture(same stream again)", |s| code(s.bench.engine.capture_begin(s.thread, s.captured, CaptureMode::Relaxed))),
    ("SetDevice", |s| code(s.bench.engine.select_device(s.thread))),
    ("MemGetInfo", |s| code(s.bench.engine.memory_info(s.thread))),
    ("DeviceGetAttribute", |s| code(s.bench.engine.device_attribute(s.thread))),
    ("FuncGetAttributes", |s| s.bench.function_attributes(s.thread)),
    ("GraphInstantiate", |s| code(s.bench.engine.graph_instantiate(s.thread, s.graph))),
    ("GraphExecUpdate", |s| code(s.bench.engine.graph_update(s.thread, s.executable, s.graph))),
    ("GraphLaunch(other)", |s| { let answer = s.bench.engine.graph_launch(s.thread, s.executable, s.other); s.bench.done(answer) }),
    ("GraphExecDestroy", |s| code(s.bench.engine.executable_destroy(s.thread, s.executable))),
    ("GraphDestroy", |s| code(s.bench.engine.graph_destroy(s.thread, s.graph))),
    ("ModuleLoad", |s| code(s.bench.engine.module_load(s.thread, Image::Source("")))),
    ("ModuleGetFunction", |s| code(s.bench.engine.function(s.thread, s.module, "spin"))),
    ("ModuleUnload", |s| code(s.bench.engine.module_unload(s.thread, s.module))),
];

impl Scene<'_> {
    fn event_synchronize(&mut self, event: EventHandle) -> Code {
        let answer = self.bench.engine.event_synchronize(self.thread, event);
        self.bench.done(answer)
    }

    fn malloc_async(&mut self, stream: StreamHandle) -> Code {
        let answer = self.bench.engine.malloc_async(self.thread, stream, 64);
        self.bench.done(answer)
    }

    fn free_async(&mut self, stream: StreamHandle) -> Code {
        let answer = self.bench.engine.free_async(self.thread, stream, self.ordered);
        self.bench.done(answer)
    }

    fn host_register(&mut self) -> Code {
        let at = self.bench.host(0);
        // SAFETY: P4. Inside of memory that the bench keeps, and nobody refers into.
        code(unsafe { self.bench.engine.host_register(self.thread, Some(at), 4096, HostAccess::ReadWrite) })
    }

    fn copy_and_wait(&mut self) -> Code {
        let (to, from) = (Location::Device(self.memory), Location::Host(self.bench.host(0)));
        // SAFETY: P4. Inside of memory that the bench keeps, and nobody refers into.
        let answer = unsafe { self.bench.engine.copy_and_wait(self.thread, to, from, 64) };
        self.bench.done(answer)
    }
}

pub(super) fn lines(profile: &Profile) -> Vec<String> {
    let all = CALLERS.iter().flat_map(|caller| OPERATIONS.iter().map(move |operation| (caller, operation)));
    all.map(|(caller, operation)| line(profile, caller, operation)).collect()
}

fn line(profile: &Profile, (mode, mode_name, caller): &(CaptureMode, &str, &str), operation: &Operation) -> String {
    let mut bench = Bench::new(profile);
    let thread = if caller.starts_with("other-thread") { OTHER } else { MAIN };
    let mut scene = set(&mut bench, thread, *mode);
    let is_relaxed = caller.ends_with("relaxed-exchange");
    let exchange =
        |scene: &mut Scene<'_>, mode| is_relaxed.then(|| scene.bench.engine.exchange_capture_mode(thread, mode));
    let before = exchange(&mut scene, CaptureMode::Relaxed);
    let returned = operation.1(&mut scene);
    exchange(&mut scene, before.and_then(Result::ok).unwrap_or(CaptureMode::Global));
    let captured = scene.captured;
    let status = bench.status(captured);
    let graph = bench.engine.capture_end(MAIN, captured);
    let nodes = graph.and_then(|graph| bench.engine.graph_describe(MAIN, graph)).map_or(0, |graph| graph.nodes.len());
    let (name, returned, end) = (operation.0, returned.0, code(graph).0);
    format!("{mode_name}\t{caller}\t{name}\t{returned}\t{status}\t{end}\t{nodes}")
}

/// A capture of one kernel, with all objects that operations name.
fn set(bench: &mut Bench, thread: HostThread, mode: CaptureMode) -> Scene<'_> {
    let (captured, other) = (bench.stream(), bench.stream());
    let memory = bench.engine.malloc(MAIN, 64).unwrap_or_default();
    let ordered = bench.engine.malloc_async(MAIN, other, 64);
    let ordered = bench.value(ordered).unwrap_or_default();
    let registered = bench.host(8192);
    let pinned = bench.engine.host_alloc(MAIN, 64).unwrap_or(registered);
    // SAFETY: P4. Inside of memory that the bench keeps, and nobody refers into.
    let _ = unsafe { bench.engine.host_register(MAIN, Some(registered), 4096, HostAccess::ReadWrite) };
    let done = bench.recorded(other);
    bench.run();
    let busy = bench.busy_stream();
    let pending = bench.recorded(busy);
    bench.begin(other, CaptureMode::Relaxed);
    bench.spin(other);
    let graph = bench.engine.capture_end(MAIN, other).unwrap_or(GraphHandle(0));
    let executable = bench.engine.graph_instantiate(MAIN, graph).unwrap_or(ExecutableHandle(0));
    let module = bench.engine.module_load(MAIN, Image::Source("")).unwrap_or(ModuleHandle(0));
    bench.begin(captured, mode);
    bench.spin(captured);
    let inside = bench.recorded(captured);
    Scene {
        bench,
        thread,
        captured,
        other,
        busy,
        done,
        pending,
        inside,
        memory,
        ordered,
        pinned,
        graph,
        executable,
        module,
    }
}
