//! The runtime and the objects that a cell starts with.

use std::sync::Arc;
use std::time::Duration;

use tenure::driver::{Driver, Priority};
use tenure::{
    Buffer, Completion, Config, Download, Event, Executable, Graph, Kernel, LaunchConfig, Module, Pinned, Queue,
    Runtime, SharedPinned, Stream, Write,
};
use tenure_sim::drive::Drive;
use tenure_sim::driver::Sim;
use tenure_sim::profile::Profile;

use crate::bench::{Bench, SOURCE, SimBench};
use crate::tap::Tap;

use super::answer::Answer;

/// The driver of the cells.
pub type D = Tap<Sim>;

/// A device and a runtime over it, with a worker.
pub struct World {
    /// The device.
    pub bench: SimBench,
    /// Below the runtime.
    pub tap: D,
    /// The runtime.
    pub runtime: Runtime<D>,
    /// Something may be left with the driver at the end.
    pub leaks_allowed: bool,
    /// Streams of other code, which nobody destroys.
    adopted: std::cell::Cell<usize>,
}

/// A driver whose guarded calls wait for captures, as one more profile.
pub const GUARDED: &str = "guarded calls wait";

/// How long a cell's runtime has to shut down.
const SHUTDOWN: Duration = Duration::from_millis(500);

impl World {
    /// A device of this profile, and a runtime with a worker.
    pub fn new(profile: &str) -> Self {
        Self::with(profile, Config::default())
    }

    /// As [`new`](Self::new), with a runtime as `config` says.
    pub fn with(profile: &str, config: Config) -> Self {
        let named = if profile == GUARDED { "hip-6.4" } else { profile };
        let bench = SimBench::new(Profile::named(named).expect("a listed profile"), Drive::Threaded, 0);
        let tap = Tap::new(bench.driver());
        if profile == GUARDED {
            tap.rules.protect_nothing();
        }
        let runtime = Runtime::with(tap.clone(), config).expect("a runtime starts");
        let (state, device) = (runtime.clone(), bench.driver());
        super::watch::note(move || format!("{state:?}; {device:?}"));
        Self { bench, tap, runtime, leaks_allowed: false, adopted: std::cell::Cell::new(0) }
    }

    /// A stream of other code.
    pub fn foreign_stream(&self) -> <D as Driver>::Stream {
        self.adopted.set(self.adopted.get() + 1);
        self.tap.inner().stream_create(Priority::Normal).expect("a stream of other code")
    }

    /// The objects that calls use.
    pub fn objects(&self) -> Objects {
        self.objects_of(&self.runtime)
    }

    /// As [`objects`](Self::objects), of another runtime over the same device.
    pub fn objects_of(&self, runtime: &Runtime<D>) -> Objects {
        self.adopted.set(self.adopted.get() + Objects::RAW_STREAMS);
        Objects::new(runtime, &self.tap)
    }

    /// Ends the runtime: `answer`, unless that takes too long or the simulator has a finding.
    pub fn end(self, answer: Answer) -> Answer {
        let Self { bench, runtime, tap, leaks_allowed, adopted } = self;
        if !matches!(answer, Answer::Hung(_)) {
            super::watch::forget();
        }
        let begun = std::time::Instant::now();
        let _report = runtime.shutdown(SHUTDOWN);
        drop(tap);
        // Twice the deadline: a busy machine may be late, but not by a multiple.
        if begun.elapsed() > SHUTDOWN + crate::rig::deadline() / 4 {
            return Answer::Wrong(format!("R5: the shutdown took {:?}", begun.elapsed()));
        }
        let streams = format!("R5: leak: {} stream(s) never destroyed", adopted.get());
        let findings = bench.finish();
        let lanes = findings.len().saturating_sub(1);
        let is_allowed = |finding: &str| finding == streams || leaks_allowed && finding.contains(": leak: ");
        match findings[..lanes].iter().find(|finding| !is_allowed(finding)) {
            Some(finding) => Answer::Wrong(finding.clone()),
            None => answer,
        }
    }
}

/// What calls use: one of each kind, idle. What a call consumes is taken.
pub struct Objects {
    /// The runtime.
    pub runtime: Runtime<D>,
    /// A stream that has worked.
    pub stream: Stream<D>,
    /// Another.
    pub other: Stream<D>,
    /// A stream of other code.
    pub adopted: Option<Stream<D>>,
    /// Another, which nobody has adopted.
    pub raw: Option<<D as Driver>::Stream>,
    /// Written on `stream`.
    pub x: Buffer<u32, D>,
    /// Written on `other`.
    pub y: Buffer<u32, D>,
    /// To be consumed.
    pub spare: Option<Buffer<u32, D>>,
    /// A wrapped vector.
    pub pin: Option<Pinned<u32, D>>,
    /// A wrapped `Arc`.
    pub shared: Option<SharedPinned<u32, D>>,
    /// Page-locked memory of the driver's.
    pub host: Pinned<u32, D>,
    /// Recorded on `stream`.
    pub event: Event<D>,
    /// Recorded on `stream` with time, one after the other.
    pub timed: [Event<D>; 2],
    /// The module of the kernel.
    pub module: Module<D>,
    /// A kernel.
    pub bump: Kernel<(Write<u32>, u32, u32), D>,
    /// A graph that writes a buffer of its own.
    pub graph: Option<Graph<D>>,
    /// An executable of it.
    pub executable: Executable<D>,
    /// Of `stream`.
    pub completion: Option<Completion<D>>,
    /// Of `x`.
    pub download: Option<Download<u32, D>>,
}

impl Objects {
    /// How many of them are streams of other code.
    const RAW_STREAMS: usize = 2;

    /// Makes them and waits until the device is idle.
    ///
    /// # Panics
    /// When something cannot be made: the device and the runtime are new.
    fn new(runtime: &Runtime<D>, tap: &D) -> Self {
        let (stream, other) = (runtime.stream().expect("a stream"), runtime.stream().expect("a stream"));
        let raw = tap.stream_create(Priority::Normal).expect("a stream of other code");
        let another = tap.stream_create(Priority::Normal).expect("a stream of other code");
        // SAFETY: S6. The raw stream is destroyed with the device alone.
        let adopted = unsafe { runtime.adopt(raw) }.expect("an adoption");
        let upload = |stream: &Stream<D>| stream.upload(&[1_u32; 4]).expect("an upload");
        let (mut x, y, spare) = (upload(&stream), upload(&other), upload(&stream));
        let module = runtime.module(tenure::driver::Image::Source(SOURCE)).expect("the kernels load");
        // SAFETY: O1. The kernel has this signature, and stays within `n` elements.
        let bump: Kernel<(Write<u32>, u32, u32), D> = unsafe { module.kernel("bump") }.expect("a kernel");
        let mut recorded = upload(&stream);
        let graph = runtime.capture(|capture| capture.fill(&mut recorded, 3)).expect("a graph");
        let executable = graph.instantiate().expect("an executable");
        stream.launch(&bump, LaunchConfig::linear(4), (&mut x, 1_u32, 4_u32)).expect("a launch");
        let pin = runtime.wrap(vec![1_u32; 4]).expect("a wrap");
        let shared = runtime.wrap_shared(Arc::from(vec![1_u32; 4])).expect("a wrap");
        let host = runtime.alloc_host(4).expect("page-locked memory");
        let event = stream.record().expect("an event");
        let timed = [(); 2].map(|()| stream.record_timed().expect("an event"));
        let (completion, download) = (stream.completion(), stream.download(&x).expect("a download"));
        stream.synchronize().expect("a wait");
        other.synchronize().expect("a wait");
        Self {
            runtime: runtime.clone(),
            stream,
            other,
            adopted: Some(adopted),
            raw: Some(another),
            x,
            y,
            spare: Some(spare),
            pin: Some(pin),
            shared: Some(shared),
            host,
            event,
            timed,
            module,
            bump,
            graph: Some(graph),
            executable,
            completion: Some(completion),
            download: Some(download),
        }
    }
}
