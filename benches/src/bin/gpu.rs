//! The launch path on an NVIDIA GPU, beside the raw driver and cudarc, in one run. Needs `TENURE_HIP_LIBRARY` to name
//! what `hip/cuda/build.sh` built: `cargo run --release -p tenure-benches --features gpu --bin gpu`.
//!
//! All entrants launch the same kernels with the same arguments. Each round gives every entrant a burst that fits the
//! driver's queue, and waits for the device, unmeasured, before the next.

use std::error::Error;
use std::ptr::NonNull;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, PushKernelArg};
use serde_json::{Value, json};
use tenure::driver::{Argument, CaptureMode, DeviceAddress, Driver, Image, Priority, Timing};
use tenure::{Buffer, Freed, Kernel, LaunchConfig, Queue, Runtime, Stream, Write};
use tenure_benches::bed::{ThreeAndFour, pointer, scalar};
use tenure_benches::contest::{Contest, Outcome, median};
use tenure_hip::Hip;

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

const BODY: &str = r#"
extern "C" __global__ void empty() {}
extern "C" __global__ void touch(float *x) {}
extern "C" __global__ void three(const float *x, const float *y, float *z, unsigned n, unsigned m, float a, float b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i >= m) z[i] = a * x[i] + b * y[i];
}
"#;
const CONFIG: LaunchConfig = LaunchConfig { grid: [4, 1, 1], block: [256, 1, 1], shared_bytes: 0 };
const ELEMENTS: usize = 1000;
const BURST: u64 = 200;
const ROUNDS: usize = 201;

fn main() -> Fallible {
    let hip = Hip::open(0)?;
    let name = format!("{:?}", hip.info());
    let source = format!("#include <hip/hip_runtime.h>\n{BODY}");
    let runtime = Runtime::new(hip)?;
    let module = runtime.module(Image::Source(&source))?;
    let ours = Ours {
        // SAFETY: the kernels of BODY have these signatures, and stay inside buffers of ELEMENTS elements.
        empty: unsafe { module.kernel("empty") }?,
        // SAFETY: as above.
        touch: unsafe { module.kernel("touch") }?,
        // SAFETY: as above.
        three: unsafe { module.kernel("three") }?,
        stream: runtime.stream()?,
        runtime,
    };
    let raw = Raw::new(ours.runtime.driver(), &source)?;
    let peer = Peer::new()?;
    let launches = launches(&ours, &raw, &peer)?;
    let edges = edges(&ours, &raw)?;
    let memory = memory(&ours, &raw)?;
    let graphs = graphs(&ours, &raw)?;
    let answer = json!({
        "device": name,
        "launch_empty_over_raw": launches.over("ours, empty", "raw, empty"),
        "launch_over_raw": launches.over("ours", "raw"),
        "cudarc_tracked_over_ours": launches.over("cudarc, tracked", "ours"),
        "cudarc_untracked_over_ours": launches.over("cudarc, untracked", "ours"),
        "launch_and_sync_over_raw": launches.over("ours, synchronized", "raw, synchronized"),
        "hand_over_over_record_and_wait": edges.over("ours", "raw"),
        "wrap_and_free_over_raw": memory.over("ours", "raw"),
        "graph_over_raw": graphs.over("ours", "raw"),
        "threads": bursts(&ours, &raw)?,
        "quartiles_ns": [
            quartiles("launch", &launches), quartiles("hand-over", &edges), quartiles("wrap", &memory),
            quartiles("graph of 20 kernels and 30 buffers", &graphs),
        ],
    });
    println!("{answer:#}");
    Ok(())
}

fn quartiles(what: &str, outcome: &Outcome) -> Value {
    let rows = outcome.medians().map(|(name, _)| (name.to_owned(), json!(outcome.quartiles(name))));
    json!({ what: Value::Object(rows.collect()) })
}

/// The driver without the core.
struct Raw<'a> {
    hip: &'a Hip,
    streams: [<Hip as Driver>::Stream; 2],
    empty: <Hip as Driver>::Function,
    touch: <Hip as Driver>::Function,
    three: <Hip as Driver>::Function,
    _module: <Hip as Driver>::Module,
    memory: [DeviceAddress; 3],
}

impl<'a> Raw<'a> {
    fn new(hip: &'a Hip, source: &str) -> Fallible<Self> {
        let module = hip.module_load(Image::Source(source))?;
        let allocate = || hip.malloc((ELEMENTS * 4) as u64);
        Ok(Self {
            hip,
            streams: [hip.stream_create(Priority::Normal)?, hip.stream_create(Priority::Normal)?],
            empty: hip.function(&module, "empty")?,
            touch: hip.function(&module, "touch")?,
            three: hip.function(&module, "three")?,
            _module: module,
            memory: [allocate()?, allocate()?, allocate()?],
        })
    }

    fn launch(&self, stream: &<Hip as Driver>::Stream, function: &<Hip as Driver>::Function, arguments: &[Argument]) {
        // SAFETY: the arguments are those of the kernel, and the memory is never freed.
        done(unsafe { self.hip.launch(stream, function, &CONFIG, arguments) });
    }

    fn three(&self) {
        self.three_on(&self.streams[0]);
    }

    fn three_on(&self, stream: &<Hip as Driver>::Stream) {
        let [x, y, z] = &self.memory;
        let scalars = [scalar(ELEMENTS as u32), scalar(0), scalar(2.0_f32.to_bits()), scalar(3.0_f32.to_bits())];
        let [n, m, a, b] = scalars;
        self.launch(stream, &self.three, &[pointer(x.0), pointer(y.0), pointer(z.0), n, m, a, b]);
    }
}

/// Through the core.
struct Ours {
    runtime: Runtime<Hip>,
    stream: Stream<Hip>,
    empty: Kernel<(), Hip>,
    touch: Kernel<(Write<f32>,), Hip>,
    three: Kernel<ThreeAndFour, Hip>,
}

impl Ours {
    fn three(&self, stream: &Stream<Hip>, [x, y, z]: &mut [Buffer<f32, Hip>; 3]) {
        done(stream.launch(&self.three, CONFIG, (&*x, &*y, z, ELEMENTS as u32, 0, 2.0, 3.0)));
    }

    fn buffers(&self, stream: &Stream<Hip>) -> [Buffer<f32, Hip>; 3] {
        std::array::from_fn(|_| done(stream.alloc(ELEMENTS)))
    }
}

/// cudarc, in its own words.
struct Peer {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    three: CudaFunction,
    buffers: [CudaSlice<f32>; 3],
}

impl Peer {
    fn new() -> Fallible<Self> {
        let context = CudaContext::new(0)?;
        // A second stream is what makes it track.
        let stream = context.new_stream()?;
        let module = context.load_module(cudarc::nvrtc::compile_ptx(BODY)?)?;
        let allocate = || stream.alloc_zeros::<f32>(ELEMENTS);
        let buffers = [allocate()?, allocate()?, allocate()?];
        Ok(Self { three: module.load_function("three")?, buffers, stream: stream.clone(), context })
    }

    fn track(&self, tracking: bool) {
        match tracking {
            // SAFETY: one thread uses this context, and waits for the device between the two.
            true => unsafe { self.context.enable_event_tracking() },
            // SAFETY: as above; one stream runs all launches, in order.
            false => unsafe { self.context.disable_event_tracking() },
        }
    }

    fn three(&mut self) {
        let [x, y, z] = &mut self.buffers;
        let config = cudarc::driver::LaunchConfig { grid_dim: (4, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        let (n, m, a, b) = (ELEMENTS as u32, 0_u32, 2.0_f32, 3.0_f32);
        let mut launch = self.stream.launch_builder(&self.three);
        launch.arg(&*x).arg(&*y).arg(z).arg(&n).arg(&m).arg(&a).arg(&b);
        // SAFETY: the kernel's signature, inside its buffers.
        done(unsafe { launch.launch(config) });
    }
}

/// The value of a call that must not fail while times are taken.
#[track_caller]
fn done<T, E: std::fmt::Debug>(answer: Result<T, E>) -> T {
    answer.expect("the device refused a call of the benchmark")
}

fn repeat(n: u64, mut body: impl FnMut()) {
    (0..n).for_each(|_| body());
}

fn launches(ours: &Ours, raw: &Raw<'_>, peer: &Peer) -> Fallible<Outcome> {
    let stream = &ours.stream;
    let mut buffers = ours.buffers(stream);
    let mut again = ours.buffers(stream);
    let (mut tracked, mut untracked) = (peer.again()?, peer.again()?);
    let raw_wait = || done(raw.hip.stream_synchronize(&raw.streams[0]));
    let wait = || done(stream.synchronize());
    Ok(Contest::new()
        .settled("raw, empty", BURST, |n| repeat(n, || raw.launch(&raw.streams[0], &raw.empty, &[])), raw_wait)
        .settled("ours, empty", BURST, |n| repeat(n, || done(stream.launch(&ours.empty, CONFIG, ()))), wait)
        .settled("raw", BURST, |n| repeat(n, || raw.three()), raw_wait)
        .settled("ours", BURST, |n| repeat(n, || ours.three(stream, &mut buffers)), wait)
        .entrant("cudarc on", 1, |_| peer.track(true))
        .settled("cudarc, tracked", BURST, |n| repeat(n, || tracked.three()), || done(peer.stream.synchronize()))
        .entrant("cudarc off", 1, |_| peer.track(false))
        .settled("cudarc, untracked", BURST, |n| repeat(n, || untracked.three()), || done(peer.stream.synchronize()))
        .entrant("raw, synchronized", 20, |n| {
            repeat(n, || {
                raw.three();
                raw_wait()
            })
        })
        .entrant("ours, synchronized", 20, |n| {
            repeat(n, || {
                ours.three(stream, &mut again);
                wait()
            })
        })
        .run(ROUNDS))
}

impl Peer {
    /// Buffers of its own on the same stream.
    fn again(&self) -> Fallible<Self> {
        let allocate = || self.stream.alloc_zeros::<f32>(ELEMENTS);
        let buffers = [allocate()?, allocate()?, allocate()?];
        Ok(Self { context: self.context.clone(), stream: self.stream.clone(), three: self.three.clone(), buffers })
    }
}

/// One buffer written on two streams by turns.
fn edges(ours: &Ours, raw: &Raw<'_>) -> Fallible<Outcome> {
    let streams = [ours.runtime.stream()?, ours.runtime.stream()?];
    let mut buffer = streams[0].alloc::<f32>(ELEMENTS)?;
    let event = raw.hip.event_create(Timing::Disabled)?;
    let mut turn = 0;
    let mut raw_turn = 0;
    let hand_over = || {
        turn = 1 - turn;
        done(streams[turn].launch(&ours.touch, CONFIG, (&mut buffer,)));
    };
    let raw_hand_over = || {
        done(raw.hip.event_record(&event, &raw.streams[raw_turn]));
        raw_turn = 1 - raw_turn;
        done(raw.hip.stream_wait_event(&raw.streams[raw_turn], &event));
        raw.launch(&raw.streams[raw_turn], &raw.touch, &[pointer(raw.memory[0].0)]);
    };
    let (mut hand_over, mut raw_hand_over) = (hand_over, raw_hand_over);
    let outcome = Contest::new()
        .settled(
            "raw",
            100,
            |n| repeat(n, &mut raw_hand_over),
            || {
                raw.streams.iter().for_each(|stream| done(raw.hip.stream_synchronize(stream)));
            },
        )
        .settled(
            "ours",
            100,
            |n| repeat(n, &mut hand_over),
            || {
                streams.iter().for_each(|stream| done(stream.synchronize()));
            },
        )
        .run(ROUNDS);
    Ok(outcome)
}

/// Registering 4 KiB and giving it back.
fn memory(ours: &Ours, raw: &Raw<'_>) -> Fallible<Outcome> {
    let memory = vec![0_u64; 1024].leak();
    let start = NonNull::from(&mut *memory).cast::<u8>();
    let pointer = tenure::driver::HostPointer(start);
    Ok(Contest::new()
        .entrant("raw", 5, |n| {
            repeat(n, || {
                // SAFETY: the memory is leaked, and nobody else registers it.
                done(unsafe { raw.hip.host_register(pointer, 4096, tenure::driver::HostAccess::ReadWrite) });
                done(raw.hip.host_device_address(pointer));
                // SAFETY: registered just now, and used by nothing.
                done(unsafe { raw.hip.host_unregister(pointer) });
            });
        })
        .entrant("ours", 5, |n| {
            repeat(n, || {
                // SAFETY: as above.
                let pinned = done(unsafe { ours.runtime.wrap_raw(start, 4096) });
                assert_eq!(done(pinned.free()), Freed::Now);
            });
        })
        .run(51))
}

/// Launches of a graph of 20 kernels over 30 buffers.
fn graphs(ours: &Ours, raw: &Raw<'_>) -> Fallible<Outcome> {
    let stream = &ours.stream;
    let mut buffers: Vec<_> = (0..10).map(|_| ours.buffers(stream)).collect();
    let graph = ours.runtime.capture(|capture| {
        (0..20).try_for_each(|index| {
            let [x, y, z] = &mut buffers[index % 10];
            capture.launch(&ours.three, CONFIG, (&*x, &*y, z, ELEMENTS as u32, 0, 2.0, 3.0))
        })
    })?;
    let executable = graph.instantiate()?;
    raw.hip.capture_begin(&raw.streams[0], CaptureMode::Relaxed)?;
    repeat(20, || raw.three());
    let raw_graph = raw.hip.capture_end(&raw.streams[0])?;
    let raw_executable = raw.hip.graph_instantiate(&raw_graph)?;
    Ok(Contest::new()
        .settled(
            "raw",
            20,
            // SAFETY: the graph's memory is never freed.
            |n| repeat(n, || done(unsafe { raw.hip.graph_launch(&raw_executable, &raw.streams[0]) })),
            || done(raw.hip.stream_synchronize(&raw.streams[0])),
        )
        .settled("ours", 20, |n| repeat(n, || done(executable.launch(stream))), || done(stream.synchronize()))
        .run(ROUNDS))
}

/// The nanoseconds of a launch for each of 1 to 16 threads, each on a stream of its own: raw, and over the core.
fn bursts(ours: &Ours, raw: &Raw<'_>) -> Fallible<Value> {
    let mut rows = Vec::new();
    for threads in [1, 2, 4, 8, 16] {
        let (mut raws, mut cores) = (Vec::new(), Vec::new());
        for _ in 0..31 {
            raws.push(burst(threads, || {
                let stream = done(raw.hip.stream_create(Priority::Normal));
                move |barrier: &Barrier| {
                    barrier.wait();
                    let start = Instant::now();
                    repeat(BURST, || raw.three_on(&stream));
                    let time = start.elapsed();
                    done(raw.hip.stream_synchronize(&stream));
                    // SAFETY: this thread alone uses it, and it is idle.
                    done(unsafe { raw.hip.stream_destroy(&stream) });
                    time
                }
            }));
            cores.push(burst(threads, || {
                let stream = done(ours.runtime.stream());
                let mut buffers = ours.buffers(&stream);
                move |barrier: &Barrier| {
                    barrier.wait();
                    let start = Instant::now();
                    repeat(BURST, || ours.three(&stream, &mut buffers));
                    let time = start.elapsed();
                    done(stream.synchronize());
                    time
                }
            }));
        }
        let ratios = cores.iter().zip(&raws).map(|(core, raw)| core / raw).collect();
        let (raw, core) = (median(raws), median(cores));
        rows.push(json!({ "threads": threads, "raw_ns": raw, "ours_ns": core, "ours_over_raw": median(ratios) }));
    }
    Ok(Value::Array(rows))
}

/// The mean over the threads of what a launch takes each.
fn burst<T: FnOnce(&Barrier) -> std::time::Duration + Send>(threads: usize, prepare: impl Fn() -> T) -> f64 {
    let barrier = &Barrier::new(threads);
    let prepared: Vec<T> = (0..threads).map(|_| prepare()).collect();
    let total: u128 = std::thread::scope(|scope| {
        let handles: Vec<_> = prepared.into_iter().map(|body| scope.spawn(move || body(barrier))).collect();
        handles.into_iter().map(|handle| done(handle.join()).as_nanos()).sum()
    });
    total as f64 / (threads as f64 * BURST as f64)
}
