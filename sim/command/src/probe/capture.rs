//! One call during a capture: who may make it, what it returns, and what it does to the capture.

use std::sync::{Arc, Mutex, PoisonError};

use tenure::driver::{CaptureMode, DeviceAddress, Driver, HostPointer, Priority, Timing};

use super::Fresh;
use super::bed::{Bed, code, host_memory};

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
const REGISTERED: usize = 8192;
/// How many kernels a stream has that a row asks about: enough for the slowest build to ask before they have run.
const KERNELS_ASKED_ABOUT: usize = 8;

/// The situation in which a call is made.
struct Scene<D: Driver> {
    bed: Arc<Bed<D>>,
    captured: D::Stream,
    other: D::Stream,
    busy: D::Stream,
    /// Recorded before the capture, on the other and on the busy stream.
    done: D::Event,
    pending: D::Event,
    /// Recorded in the capture.
    inside: Mutex<Option<D::Event>>,
    memory: DeviceAddress,
    ordered: DeviceAddress,
    pinned: HostPointer,
    host: HostPointer,
    /// Of one kernel; the executable is idle.
    graph: Mutex<Option<D::Graph>>,
    executable: Mutex<Option<D::Executable>>,
    module: Mutex<Option<D::Module>>,
}

type Call<D> = fn(&Scene<D>) -> i32;

#[rustfmt::skip]
fn calls<D: Driver>() -> Vec<(&'static str, Call<D>)> {
    vec![
        ("none", |_| 0),
        ("StreamQuery(captured)", |s| s.bed.query(&s.captured)),
        ("StreamQuery(other idle)", |s| s.bed.query(&s.other)),
        ("StreamQuery(other busy)", |s| s.bed.query(&s.busy)),
        ("StreamSynchronize(captured)", |s| s.bed.synchronize(&s.captured)),
        ("StreamSynchronize(other)", |s| s.bed.synchronize(&s.other)),
        ("EventQuery(done outside)", |s| s.bed.query_event(&s.done)),
        ("EventQuery(busy outside)", |s| s.bed.query_event(&s.pending)),
        ("EventQuery(recorded in capture)", |s| of(&s.inside, |event| s.bed.query_event(event))),
        ("EventSynchronize(done outside)", |s| code(s.bed.driver.event_synchronize(&s.done))),
        ("EventSynchronize(recorded in capture)", |s| of(&s.inside, |event| code(s.bed.driver.event_synchronize(event)))),
        ("EventRecord(other)", |s| s.bed.record(&s.done, &s.other)),
        ("StreamWaitEvent(captured <- outside event)", |s| s.bed.wait_event(&s.captured, &s.done)),
        ("StreamWaitEvent(other <- captured event)", |s| of(&s.inside, |event| s.bed.wait_event(&s.other, event))),
        ("Malloc", |s| code(s.bed.driver.malloc(64))),
        ("Free", |s| s.bed.free(s.memory)),
        ("MallocAsync(other)", |s| code(s.bed.driver.malloc_async(&s.other, 64))),
        ("FreeAsync(other)", |s| s.bed.free_async(&s.other, s.ordered)),
        ("MallocAsync(captured)", |s| code(s.bed.driver.malloc_async(&s.captured, 64))),
        ("FreeAsync(captured, outside ptr)", |s| s.bed.free_async(&s.captured, s.ordered)),
        ("HostRegister", |s| s.bed.register(s.host, 4096)),
        ("HostUnregister", |s| s.bed.unregister(s.host.offset(REGISTERED))),
        ("HostGetDevicePointer", |s| code(s.bed.driver.host_device_address(s.host.offset(REGISTERED)))),
        ("PointerGetAttributes", |s| code(s.bed.driver.host_is_registered(s.host.offset(REGISTERED)))),
        ("MallocHost", |s| code(s.bed.driver.host_alloc(64))),
        ("FreeHost", |s| s.bed.free_host(s.pinned)),
        ("StreamCreate", |s| code(s.bed.driver.stream_create(Priority::Normal))),
        ("StreamDestroy(other)", |s| s.bed.destroy(&s.other)),
        ("EventCreate", |s| code(s.bed.driver.event_create(Timing::Disabled))),
        ("EventDestroy(recorded in capture)", |s| taken(&s.inside, |event| code(s.bed.driver.event_destroy(event)))),
        ("LaunchHostFunc(captured)", |s| s.bed.host_function(&s.captured, Arc::new(|| {}))),
        ("LaunchHostFunc(other)", |s| s.bed.host_function(&s.other, Arc::new(|| {}))),
        ("Launch(other)", |s| s.bed.spin(&s.other)),
        ("MemcpyAsync(other, pinned)", |s| s.bed.copy(&s.other, s.memory, s.host.offset(REGISTERED))),
        ("MemcpyAsync(other, pageable)", |s| s.bed.copy(&s.other, s.memory, s.host)),
        ("MemcpyAsync(captured, pageable)", |s| s.bed.copy(&s.captured, s.memory, s.host)),
        ("MemsetAsync(other)", |s| s.bed.fill(&s.other, s.memory)),
        ("BeginCapture(same stream again)", |s| s.bed.begin(&s.captured, CaptureMode::Relaxed)),
        ("GraphInstantiate", |s| of(&s.graph, |graph| code(s.bed.driver.graph_instantiate(graph)))),
        ("GraphExecUpdate", |s| of(&s.graph, |graph| of(&s.executable, |held| code(s.bed.driver.graph_update(held, graph))))),
        ("GraphLaunch(other)", |s| of(&s.executable, |held| s.bed.launch_graph(held, &s.other))),
        ("GraphExecDestroy", |s| taken(&s.executable, |held| code(s.bed.driver.executable_destroy(held)))),
        ("GraphDestroy", |s| taken(&s.graph, |graph| code(s.bed.driver.graph_destroy(graph)))),
        ("ModuleLoad", |s| code(s.bed.module())),
        ("ModuleGetFunction", |s| of(&s.module, |module| code(s.bed.driver.function(module, "spin")))),
        ("ModuleUnload", |s| taken(&s.module, |module| s.bed.unload(module))),
    ]
}

/// All rows.
///
/// # Errors
/// A line on what a scene could not be set up for.
pub fn lines<D: Driver>(fresh: Fresh<'_, D>) -> Result<Vec<String>, String> {
    let calls = calls::<D>();
    let all = CALLERS.iter().flat_map(|caller| calls.iter().map(move |call| (caller, call)));
    all.map(|(caller, call)| line(fresh()?, caller, call)).collect()
}

fn line<D: Driver>(
    bed: Arc<Bed<D>>,
    (mode, mode_name, caller): &(CaptureMode, &str, &str),
    (name, call): &(&'static str, Call<D>),
) -> Result<String, String> {
    let kernels = if name.contains("busy") { KERNELS_ASKED_ABOUT } else { 1 };
    let scene = Scene::set(bed, *mode, kernels).map_err(|error| format!("{mode_name} {caller} {name}: {error}"))?;
    let is_relaxed = caller.ends_with("relaxed-exchange");
    let made = || if is_relaxed { scene.relaxed(*call) } else { call(&scene) };
    let returned = match caller.starts_with("other-thread") {
        false => made(),
        true => std::thread::scope(|scope| scope.spawn(made).join()).map_err(|_| "a call panicked".to_owned())?,
    };
    let status = scene.bed.status(&scene.captured);
    let graph = scene.bed.driver.capture_end(&scene.captured);
    let (end, graph) = match graph {
        Ok(graph) => (0, Some(graph)),
        Err(error) => (code::<(), _>(Err(error)), None),
    };
    let described = graph.as_ref().and_then(|graph| scene.bed.driver.graph_describe(graph).ok());
    let nodes = described.map_or(0, |graph| graph.nodes.len());
    let _ = graph.map(|graph| scene.bed.driver.graph_destroy(graph));
    scene.clear(*name == "StreamDestroy(other)");
    Ok(format!("{mode_name}\t{caller}\t{name}\t{returned}\t{status}\t{end}\t{nodes}"))
}

/// What a call says of a thing that may have been taken.
fn of<T>(thing: &Mutex<Option<T>>, ask: impl FnOnce(&T) -> i32) -> i32 {
    thing.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(-1, ask)
}

/// What a call says that ends the thing.
fn taken<T>(thing: &Mutex<Option<T>>, end: impl FnOnce(T) -> i32) -> i32 {
    let thing = thing.lock().unwrap_or_else(PoisonError::into_inner).take();
    thing.map_or(-1, end)
}

impl<D: Driver> Scene<D> {
    /// A capture of one kernel, with all objects that calls name; the busy stream has so many kernels.
    fn set(bed: Arc<Bed<D>>, mode: CaptureMode, kernels: usize) -> Result<Self, String> {
        let text = |error: D::Error| error.to_string();
        let (captured, other) = (bed.stream()?, bed.stream()?);
        let memory = bed.driver.malloc(64).map_err(text)?;
        let ordered = bed.driver.malloc_async(&other, 64).map_err(text)?;
        let pinned = bed.driver.host_alloc(64).map_err(text)?;
        let host = host_memory(REGISTERED + 4096);
        bed.register(host.offset(REGISTERED), 4096);
        let done = bed.recorded(&other)?;
        bed.synchronize(&other);
        bed.begin(&other, CaptureMode::Relaxed);
        bed.spin(&other);
        let graph = bed.driver.capture_end(&other).map_err(text)?;
        let executable = Mutex::new(Some(bed.driver.graph_instantiate(&graph).map_err(text)?));
        let (graph, module) = (Mutex::new(Some(graph)), Mutex::new(Some(bed.module().map_err(text)?)));
        // Last, since what stands above may take longer than a kernel does.
        let busy = bed.busy_stream()?;
        (1..kernels).for_each(|_| _ = bed.spin(&busy));
        let pending = bed.recorded(&busy)?;
        bed.begin(&captured, mode);
        bed.spin(&captured);
        let inside = Mutex::new(Some(bed.recorded(&captured)?));
        Ok(Self {
            bed,
            captured,
            other,
            busy,
            done,
            pending,
            inside,
            memory,
            ordered,
            pinned,
            host,
            graph,
            executable,
            module,
        })
    }

    fn relaxed(&self, call: Call<D>) -> i32 {
        let before = self.bed.driver.exchange_capture_mode(CaptureMode::Relaxed);
        let returned = call(self);
        let _ = self.bed.driver.exchange_capture_mode(before.unwrap_or(CaptureMode::Global));
        returned
    }

    /// Gives back what can be; what the call has released already stays with it. The process's end takes the rest.
    fn clear(self, is_other_gone: bool) {
        let Self { bed, captured, other, busy, done, pending, inside, graph, executable, module, .. } = self;
        bed.synchronize(&busy);
        bed.synchronize(&captured);
        if !is_other_gone {
            bed.synchronize(&other);
        }
        let inside = inside.into_inner().unwrap_or_else(PoisonError::into_inner);
        for event in [Some(done), Some(pending), inside].into_iter().flatten() {
            let _ = bed.driver.event_destroy(event);
        }
        taken(&executable, |held| code(bed.driver.executable_destroy(held)));
        taken(&graph, |graph| code(bed.driver.graph_destroy(graph)));
        taken(&module, |module| bed.unload(module));
        bed.destroy(&captured);
        bed.destroy(&busy);
        if !is_other_gone {
            bed.destroy(&other);
        }
    }
}
