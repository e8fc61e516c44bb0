//! The steps: each goes through a part of the driver and checks every result.
//!
//! They run on a real library (the example `smoke`) and on the scripted one of the tests.

use std::error::Error;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::ELEMENTS;
use tenure::driver::{
    Argument, CaptureMode, CaptureStatus, DeviceAddress, Driver, DriverError, ErrorKind, HostAccess, HostFunction,
    HostPointer, Image, LaunchConfig, Location, Priority, Progress, Timing,
};
use tenure_hip::driver::{Function, Module, Stream};
use tenure_hip::{CompileOptions, Hip, Hiprtc};

/// A step's result: what it did, or what is wrong.
pub type Outcome<T = String> = Result<T, Box<dyn Error>>;

const SOURCE: &str = r#"
#include <hip/hip_runtime.h>
extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void increment(float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 1.0f;
}
"#;

type Step = fn(&Bench) -> Outcome;

/// In this order: each stands on those before it.
const STEPS: [(&str, Step); 13] = [
    ("streams", streams),
    ("events", events),
    ("stream-ordered memory, fill, copies", copies),
    ("kernel from source", kernel),
    ("plain and page-locked memory", plain_memory),
    ("two streams ordered by an event", ordered),
    ("host function", host_function),
    ("register and unregister", register),
    ("capture and graph launch", graph),
    ("graph update", graph_update),
    ("broken capture", broken_capture),
    ("errors", errors),
    ("threads", threads),
];

/// Opens device `index`, takes every step and closes it again: each step's name and result.
pub fn run(index: usize) -> Vec<(&'static str, Outcome)> {
    let bench = match open(index) {
        Ok(bench) => bench,
        Err(error) => return vec![("open", Err(error))],
    };
    let described = format!("{} as {}, {:?}", bench.hip.version(), bench.hip.profile(), bench.hip.capabilities());
    let mut results = vec![("open", Ok(described))];
    results.extend(STEPS.iter().map(|(name, step)| (*name, step(&bench))));
    results.push(("close", close(bench)));
    results
}

/// What the steps share.
struct Bench {
    hip: Hip,
    stream: Stream,
    module: Module,
    saxpy: Function,
    increment: Function,
}

fn open(index: usize) -> Outcome<Bench> {
    let hip = Hip::open(index)?;
    let module = hip.module_load(Image::Source(SOURCE))?;
    let (saxpy, increment) = (hip.function(&module, "saxpy")?, hip.function(&module, "increment")?);
    let stream = hip.stream_create(Priority::Normal)?;
    Ok(Bench { hip, stream, module, saxpy, increment })
}

fn close(bench: Bench) -> Outcome {
    let Bench { hip, stream, module, .. } = bench;
    hip.stream_synchronize(&stream)?;
    // SAFETY: R4. The stream is idle, and its functions are not launched again.
    unsafe { hip.module_unload(module) }?;
    // SAFETY: R4. The stream is idle, not used again, and no event of it is asked any more.
    unsafe { hip.stream_destroy(&stream) }?;
    Ok("module unloaded, stream destroyed".into())
}

fn check(holds: bool, what: impl Into<String>) -> Outcome<()> {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

fn host_of<T>(slice: &mut [T]) -> HostPointer {
    HostPointer(NonNull::from(slice).cast())
}

fn pointer(address: DeviceAddress) -> Argument {
    Argument::Pointer { address, bytes: (ELEMENTS * 4) as u64 }
}

fn scalar(bits: u32) -> Argument {
    Argument::Scalar { words: [u64::from(bits), 0], bytes: 4 }
}

impl Bench {
    /// Puts a launch of `increment` on `stream`.
    fn increment(&self, stream: &Stream, at: DeviceAddress) -> Outcome<()> {
        let arguments = [pointer(at), scalar(ELEMENTS as u32)];
        // SAFETY: R4. The arguments are the kernel's, and the steps free the memory only after a wait.
        unsafe { self.hip.launch(stream, &self.increment, &LaunchConfig::linear(ELEMENTS), &arguments) }?;
        Ok(())
    }

    fn upload(&self, at: DeviceAddress, values: &mut [f32]) -> Outcome<()> {
        let (to, from) = (Location::Device(at), Location::Host(host_of(values)));
        // SAFETY: P4. Both ranges hold `values`, and the wait below outlasts the copy.
        unsafe { self.hip.copy(&self.stream, to, from, (values.len() * 4) as u64) }?;
        Ok(self.hip.stream_synchronize(&self.stream)?)
    }

    fn download(&self, at: DeviceAddress) -> Outcome<Vec<f32>> {
        let mut values = vec![0.0_f32; ELEMENTS];
        let (to, from) = (Location::Host(host_of(&mut values)), Location::Device(at));
        // SAFETY: P4. Both ranges hold `values`, and the wait below outlasts the copy.
        unsafe { self.hip.copy(&self.stream, to, from, (ELEMENTS * 4) as u64) }?;
        self.hip.stream_synchronize(&self.stream)?;
        Ok(values)
    }

    fn buffer(&self, value: f32) -> Outcome<DeviceAddress> {
        let at = self.hip.malloc((ELEMENTS * 4) as u64)?;
        self.upload(at, &mut vec![value; ELEMENTS])?;
        Ok(at)
    }

    fn release(&self, at: DeviceAddress) -> Outcome<()> {
        self.hip.stream_synchronize(&self.stream)?;
        // SAFETY: O6. The memory is `malloc`'s, and the work on it has completed.
        Ok(unsafe { self.hip.free(at) }?)
    }

    fn expect(&self, at: DeviceAddress, value: f32) -> Outcome<()> {
        let values = self.download(at)?;
        let wrong = values.iter().position(|found| *found != value);
        match wrong {
            None => Ok(()),
            Some(place) => Err(format!("element {place} is {}, expected {value}", values[place]).into()),
        }
    }
}

fn streams(bench: &Bench) -> Outcome {
    let hip = &bench.hip;
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        let stream = hip.stream_create(priority)?;
        check(hip.stream_query(&stream)? == Progress::Complete, "a new stream is not idle")?;
        check(hip.capture_status(&stream)? == CaptureStatus::None, "a new stream captures")?;
        hip.stream_synchronize(&stream)?;
        // SAFETY: R4. The stream is idle and not used again.
        unsafe { hip.stream_destroy(&stream) }?;
    }
    Ok("three priorities made, asked, destroyed".into())
}

fn events(bench: &Bench) -> Outcome {
    let hip = &bench.hip;
    let (start, end) = (hip.event_create(Timing::Enabled)?, hip.event_create(Timing::Enabled)?);
    check(hip.event_query(&start)? == Progress::Complete, "an event never recorded is not complete")?;
    let at = bench.buffer(0.0)?;
    hip.event_record(&start, &bench.stream)?;
    (0..10).try_for_each(|_| bench.increment(&bench.stream, at))?;
    hip.event_record(&end, &bench.stream)?;
    hip.event_synchronize(&end)?;
    check(hip.event_query(&end)? == Progress::Complete, "a waited-for event is not complete")?;
    let milliseconds = hip.event_elapsed(&start, &end)?;
    check(milliseconds >= 0.0, "time ran backwards")?;
    bench.expect(at, 10.0)?;
    bench.release(at)?;
    hip.event_destroy(start)?;
    hip.event_destroy(end)?;
    Ok(format!("10 launches in {milliseconds:.3} ms of device time"))
}

fn copies(bench: &Bench) -> Outcome {
    let (hip, stream) = (&bench.hip, &bench.stream);
    let bytes = (ELEMENTS * 4) as u64;
    let (one, two) = (hip.malloc_async(stream, bytes)?, hip.malloc_async(stream, bytes)?);
    bench.upload(one, &mut (0..ELEMENTS).map(|number| number as f32).collect::<Vec<_>>())?;
    // SAFETY: P4. Both allocations have `bytes` bytes and are freed in the order of the stream.
    unsafe { hip.copy(stream, Location::Device(two), Location::Device(one), bytes) }?;
    // SAFETY: P4. As above.
    unsafe { hip.fill(stream, one, 0, bytes) }?;
    let found = bench.download(two)?;
    check(found.iter().enumerate().all(|(number, found)| *found == number as f32), "the copy differs")?;
    bench.expect(one, 0.0)?;
    for at in [one, two] {
        // SAFETY: O6. The memory is `malloc_async`'s, freed once, after its last use in the order of the stream.
        unsafe { hip.free_async(stream, at) }?;
    }
    hip.stream_synchronize(stream)?;
    Ok("host to device to device to host, filled, freed".into())
}

fn kernel(bench: &Bench) -> Outcome {
    let (x, y) = (bench.buffer(3.0)?, bench.buffer(1.0)?);
    let arguments = [scalar(2.0_f32.to_bits()), pointer(x), pointer(y), scalar(ELEMENTS as u32)];
    // SAFETY: R4. The arguments are the kernel's, and the memory is freed after a wait.
    unsafe { bench.hip.launch(&bench.stream, &bench.saxpy, &LaunchConfig::linear(ELEMENTS), &arguments) }?;
    bench.expect(y, 7.0)?;
    let started = Instant::now();
    let launches = 2000_u32;
    (0..launches).try_for_each(|_| bench.increment(&bench.stream, y))?;
    let nanoseconds = started.elapsed().as_nanos() / u128::from(launches);
    bench.expect(y, 7.0 + launches as f32)?;
    bench.release(x)?;
    bench.release(y)?;
    Ok(format!("saxpy is right; {nanoseconds} ns a launch over {launches}"))
}

fn plain_memory(bench: &Bench) -> Outcome {
    let hip = &bench.hip;
    let bytes = ELEMENTS * 4;
    let (host, at) = (hip.host_alloc(bytes)?, bench.buffer(5.0)?);
    check(hip.host_is_registered(host)?, "page-locked memory is not seen as registered")?;
    // SAFETY: P4. Both ranges have `bytes` bytes, and the wait below outlasts the copy.
    unsafe { hip.copy(&bench.stream, Location::Host(host), Location::Device(at), bytes as u64) }?;
    hip.stream_synchronize(&bench.stream)?;
    // SAFETY: P4. Page-locked memory of this length, filled by the copy that was waited for.
    let values = unsafe { std::slice::from_raw_parts(host.0.as_ptr().cast::<f32>(), ELEMENTS) };
    check(values.iter().all(|value| *value == 5.0), "the copy to page-locked memory differs")?;
    // SAFETY: O6. The memory is `host_alloc`'s, and no work or reference uses it.
    unsafe { hip.host_free(host) }?;
    bench.release(at)?;
    Ok(format!("{bytes} bytes of each"))
}

fn ordered(bench: &Bench) -> Outcome {
    let hip = &bench.hip;
    let (other, event) = (hip.stream_create(Priority::Normal)?, hip.event_create(Timing::Disabled)?);
    let at = bench.buffer(0.0)?;
    for _ in 0..50 {
        bench.increment(&bench.stream, at)?;
        hip.event_record(&event, &bench.stream)?;
        hip.stream_wait_event(&other, &event)?;
        bench.increment(&other, at)?;
        hip.event_record(&event, &other)?;
        hip.stream_wait_event(&bench.stream, &event)?;
    }
    bench.expect(at, 100.0)?;
    hip.event_destroy(event)?;
    // SAFETY: R4. The stream is idle, since the other waited for it; it and its event are not used again.
    unsafe { hip.stream_destroy(&other) }?;
    bench.release(at)?;
    Ok("100 launches back and forth".into())
}

fn counter() -> (Arc<AtomicU32>, HostFunction) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let function = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    (count, Arc::new(function))
}

fn host_function(bench: &Bench) -> Outcome {
    let (hip, (count, function)) = (&bench.hip, counter());
    if !hip.capabilities().host_functions {
        return Ok("this library has none".into());
    }
    for _ in 0..100 {
        hip.launch_host_function(&bench.stream, Arc::clone(&function))?;
    }
    hip.stream_synchronize(&bench.stream)?;
    let called = count.load(Ordering::Relaxed);
    check(called == 100, format!("called {called} times, not 100"))?;
    check(Arc::strong_count(&function) == 1, "the driver still holds the function")?;
    hip.launch_host_function(&bench.stream, Arc::new(|| std::panic::resume_unwind(Box::new("planted"))))?;
    hip.stream_synchronize(&bench.stream)?;
    Ok("called once each, let go; a panic stays inside".into())
}

/// Page-aligned memory of `ELEMENTS` numbers: a larger vector and the place in it.
fn aligned() -> (Vec<f32>, usize) {
    let values = vec![1.0_f32; ELEMENTS + 2048];
    let place = values.as_ptr().align_offset(4096).min(2048);
    (values, place)
}

fn register(bench: &Bench) -> Outcome {
    let hip = &bench.hip;
    let (mut values, place) = aligned();
    let base = host_of(&mut values[place..place + ELEMENTS]);
    check(!hip.host_is_registered(base)?, "plain memory is seen as registered")?;
    for access in [HostAccess::ReadWrite, HostAccess::Read] {
        // SAFETY: P4. The vector outlives the registration, which ends below.
        unsafe { hip.host_register(base, ELEMENTS * 4, access) }?;
        check(hip.host_is_registered(base)?, "registered memory is not seen as such")?;
        let at = hip.host_device_address(base)?;
        if access == HostAccess::ReadWrite {
            bench.increment(&bench.stream, at)?;
        }
        hip.stream_synchronize(&bench.stream)?;
        // SAFETY: P3. The base of the registration above, and the work on it has completed.
        unsafe { hip.host_unregister(base) }?;
        check(!hip.host_is_registered(base)?, "unregistered memory is seen as registered")?;
    }
    check(values[place..place + ELEMENTS].iter().all(|value| *value == 2.0), "the kernel's writes are not there")?;
    Ok("written by a kernel through its device address; also read-only".into())
}

fn graph(bench: &Bench) -> Outcome {
    let (hip, (count, function)) = (&bench.hip, counter());
    let at = bench.buffer(0.0)?;
    hip.capture_begin(&bench.stream, CaptureMode::Relaxed)?;
    check(hip.capture_status(&bench.stream)? == CaptureStatus::Active, "the stream does not capture")?;
    bench.increment(&bench.stream, at)?;
    hip.launch_host_function(&bench.stream, Arc::clone(&function))?;
    bench.increment(&bench.stream, at)?;
    let graph = hip.capture_end(&bench.stream)?;
    bench.expect(at, 0.0)?;
    let description = hip.graph_describe(&graph)?;
    check(
        description.nodes == ["kernel", "host", "kernel"] && description.edges.len() == 2,
        format!("{description:?}"),
    )?;
    let executable = hip.graph_instantiate(&graph)?;
    hip.graph_destroy(graph)?;
    for _ in 0..20 {
        // SAFETY: C4. The buffer is freed after the wait below.
        unsafe { hip.graph_launch(&executable, &bench.stream) }?;
    }
    bench.expect(at, 40.0)?;
    let called = count.load(Ordering::Relaxed);
    check(called == 20, format!("the host function was called {called} times, not 20"))?;
    hip.executable_destroy(executable)?;
    check(Arc::strong_count(&function) == 1, "the driver still holds the function")?;
    bench.release(at)?;
    Ok("20 launches of kernel, host function, kernel".into())
}

fn graph_update(bench: &Bench) -> Outcome {
    let hip = &bench.hip;
    let (one, two) = (bench.buffer(0.0)?, bench.buffer(0.0)?);
    let capture = |addresses: &[DeviceAddress]| {
        hip.capture_begin(&bench.stream, CaptureMode::ThreadLocal)?;
        addresses.iter().try_for_each(|at| bench.increment(&bench.stream, *at))?;
        Outcome::Ok(hip.capture_end(&bench.stream)?)
    };
    let (first, second, third) = (capture(&[one])?, capture(&[two])?, capture(&[one, two])?);
    let executable = hip.graph_instantiate(&first)?;
    hip.graph_update(&executable, &second)?;
    // SAFETY: C4. Both buffers are freed after a wait.
    unsafe { hip.graph_launch(&executable, &bench.stream) }?;
    bench.expect(one, 0.0)?;
    bench.expect(two, 1.0)?;
    let refused = hip.graph_update(&executable, &third).err();
    let kind = refused.as_ref().map(DriverError::kind);
    check(kind == Some(ErrorKind::GraphUpdateRefused), format!("another shape gave {refused:?}"))?;
    // SAFETY: C4. As above.
    unsafe { hip.graph_launch(&executable, &bench.stream) }?;
    bench.expect(two, 2.0)?;
    hip.executable_destroy(executable)?;
    [first, second, third].into_iter().try_for_each(|graph| hip.graph_destroy(graph))?;
    bench.release(one)?;
    bench.release(two)?;
    Ok("same shape replaced, another shape refused".into())
}

fn broken_capture(bench: &Bench) -> Outcome {
    let hip = &bench.hip;
    let at = bench.buffer(0.0)?;
    hip.capture_begin(&bench.stream, CaptureMode::Global)?;
    bench.increment(&bench.stream, at)?;
    let query = hip.stream_query(&bench.stream).map_err(|error| error.kind());
    check(query == Err(ErrorKind::CaptureUnsupported), format!("a query of the capturing stream gave {query:?}"))?;
    check(hip.capture_status(&bench.stream)? == CaptureStatus::Invalidated, "the capture is not broken")?;
    let ended = hip.capture_end(&bench.stream).map(drop).map_err(|error| error.kind());
    check(ended == Err(ErrorKind::CaptureInvalidated), format!("its end gave {ended:?}"))?;
    check(hip.capture_status(&bench.stream)? == CaptureStatus::None, "the stream stays broken")?;
    let before = hip.exchange_capture_mode(CaptureMode::Relaxed)?;
    let after = hip.exchange_capture_mode(before)?;
    check((before, after) == (CaptureMode::Global, CaptureMode::Relaxed), "the thread's mode was not exchanged")?;
    bench.increment(&bench.stream, at)?;
    bench.expect(at, 1.0)?;
    bench.release(at)?;
    Ok("refused, ended with its cause, stream usable".into())
}

fn errors(bench: &Bench) -> Outcome {
    let hip = &bench.hip;
    let missing = hip.function(&bench.module, "no_such_kernel").err().ok_or("a kernel that is not there was found")?;
    check(missing.kind() == ErrorKind::NotFound, missing.to_string())?;
    let garbage = hip.module_load(Image::Code(b"not code")).err().ok_or("garbage was loaded")?;
    check(garbage.kind() == ErrorKind::InvalidValue, garbage.to_string())?;
    let huge = hip.malloc(1 << 60).err().ok_or("an exbibyte was allocated")?;
    check(huge.kind() == ErrorKind::OutOfMemory, huge.to_string())?;
    let broken = hip.compile("extern \"C\" __global__ void broken() { nonsense; }").err().ok_or("nonsense compiled")?;
    check(
        broken.kind() == ErrorKind::InvalidValue && broken.log().contains("nonsense"),
        format!("the log does not name the mistake: {broken}"),
    )?;
    let template = "template <class T> __global__ void scale(T *x) { x[threadIdx.x] *= T(2); }";
    let options = CompileOptions::default().architecture(&hip.info().architecture).expression("scale<float>");
    let code = Hiprtc::open()?.compile(template, &options)?;
    let name = code.lowered("scale<float>").ok_or("no name for the instance")?.to_string();
    let module = hip.module_load(Image::Code(code.bytes()))?;
    hip.function(&module, &name)?;
    // SAFETY: R4. Nothing of it was launched.
    unsafe { hip.module_unload(module) }?;
    Ok(format!("typed and explained; an instance of a template loads as {name}"))
}

fn threads(bench: &Bench) -> Outcome {
    const THREADS: usize = 4;
    const LAUNCHES: usize = 500;
    let started = Instant::now();
    let results: Vec<Result<(), String>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| worker(bench).map_err(|e| e.to_string()))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err("panicked".into()))).collect()
    });
    results.into_iter().collect::<Result<Vec<()>, String>>()?;
    check(started.elapsed() < Duration::from_secs(60), "too slow")?;
    return Ok(format!("{THREADS} threads of {LAUNCHES} launches, each on a stream and buffer of its own"));

    fn worker(bench: &Bench) -> Outcome<()> {
        let hip = &bench.hip;
        let (stream, (count, function)) = (hip.stream_create(Priority::Normal)?, counter());
        let at = hip.malloc_async(&stream, (ELEMENTS * 4) as u64)?;
        // SAFETY: P4. The allocation's own length; it is freed in the order of the stream.
        unsafe { hip.fill(&stream, at, 0, (ELEMENTS * 4) as u64) }?;
        for _ in 0..LAUNCHES {
            bench.increment(&stream, at)?;
        }
        hip.launch_host_function(&stream, function)?;
        hip.stream_synchronize(&stream)?;
        bench.expect_on(&stream, at, LAUNCHES as f32)?;
        // SAFETY: O6. Freed once, in the order of its stream.
        unsafe { hip.free_async(&stream, at) }?;
        hip.stream_synchronize(&stream)?;
        // SAFETY: R4. The stream is idle and not used again.
        unsafe { hip.stream_destroy(&stream) }?;
        check(count.load(Ordering::Relaxed) == 1, "the host function was not called once")
    }
}

impl Bench {
    fn expect_on(&self, stream: &Stream, at: DeviceAddress, value: f32) -> Outcome<()> {
        let mut values = vec![0.0_f32; ELEMENTS];
        let (to, from) = (Location::Host(host_of(&mut values)), Location::Device(at));
        // SAFETY: P4. Both ranges hold `values`, and the wait below outlasts the copy.
        unsafe { self.hip.copy(stream, to, from, (ELEMENTS * 4) as u64) }?;
        self.hip.stream_synchronize(stream)?;
        check(values.iter().all(|found| *found == value), format!("an element differs from {value}"))
    }
}
