//! Does anything grow? Each public call, many times, in each standing situation, over a driver that does nothing.
//!
//! ```text
//! growth [--times N] [--json] [--call NAME]
//! ```
//! Memory is what the process has allocated, counted by its allocator, between the half of the calls and the end; and
//! the gauges of `stats()` with it. A call that is refused with a typed error takes nothing. The exit code is 1 where
//! something grew.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tenure::driver::{Driver, Image, Priority};
use tenure::{
    Access, Buffer, Config, Error, Executable, Graph, Kernel, LaunchConfig, Queue, Read, Readable, ReclaimMode, Result,
    Runtime, Stream, Write,
};
use tenure_benches::null::Null;

/// Counts what is allocated.
struct Counting;

static ALLOCATED: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call is passed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: a figure.
        ALLOCATED.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Relaxed: a figure.
        ALLOCATED.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What is there throughout.
struct Bed {
    driver: Null,
    runtime: Runtime<Null>,
    a: Stream<Null>,
    b: Stream<Null>,
    x: Buffer<u32, Null>,
    y: Buffer<u32, Null>,
    kernel: Kernel<(Read<u32>, Write<u32>), Null>,
    graph: Graph<Null>,
    executable: Executable<Null>,
    memory: Vec<u32>,
}

/// A situation that stands while the calls are made; what holds it is dropped at its end.
type Situation = (&'static str, fn(&Bed) -> Box<dyn std::any::Any>);

const SITUATIONS: &[Situation] = &[
    ("idle", |_| Box::new(())),
    ("device standing still", |bed| {
        bed.driver.set_busy(true);
        Box::new(())
    }),
    ("capture open", |bed| Box::new(bed.runtime.capture_guard())),
    ("pin held", |bed| {
        let pin = bed.runtime.wrap(vec![1_u32; 64]).expect("a wrap");
        bed.a.copy(&pin, &mut bed.a.alloc(64).expect("a buffer")).expect("a copy");
        Box::new(pin)
    }),
    ("adopted stream", |bed| {
        let raw = bed.driver.stream_create(Priority::Normal).expect("a stream");
        // SAFETY: the handle is a number, which names nothing that could end.
        let adopted = unsafe { bed.runtime.adopt(raw) }.expect("an adoption");
        // SAFETY: nothing is enqueued.
        unsafe { adopted.use_on(&[(bed.x.region(), Access::Read)], |_| ()) }.expect("a use");
        Box::new(adopted)
    }),
    ("after shutdown", |bed| {
        drop(bed.runtime.clone().shutdown(Duration::ZERO));
        Box::new(())
    }),
];

/// A call, by its name.
type Call = (&'static str, fn(&mut Bed) -> Result<()>);

const CALLS: &[Call] = &[
    ("Stream::launch, covered", |bed| bed.a.launch(&bed.kernel, LaunchConfig::linear(4), (&bed.x, &mut bed.y))),
    ("Stream::launch, by turns", |bed| {
        std::mem::swap(&mut bed.a, &mut bed.b);
        bed.a.launch(&bed.kernel, LaunchConfig::linear(4), (&bed.x, &mut bed.y))
    }),
    ("Stream::copy", |bed| bed.a.copy(&bed.x, &mut bed.y)),
    ("Stream::fill", |bed| bed.a.fill(&mut bed.x, 1)),
    ("Stream::write", |bed| bed.a.write(&[1_u32; 64], &mut bed.x)),
    ("Stream::upload", |bed| bed.a.upload(&[1_u32; 64]).map(drop)),
    ("Stream::alloc", |bed| bed.a.alloc::<u32>(64).map(drop)),
    ("Stream::download, dropped", |bed| bed.a.download(&bed.x).map(drop)),
    ("Stream::record", |bed| bed.a.record().map(drop)),
    ("Stream::wait_event", |bed| bed.b.wait_event(&bed.a.record()?)),
    ("Stream::completion, polled", |bed| {
        let mut completion = std::pin::pin!(bed.a.completion());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = std::future::Future::poll(completion.as_mut(), &mut context);
        Ok(())
    }),
    // SAFETY: nothing is enqueued.
    ("Stream::use_on", |bed| unsafe { bed.a.use_on(&[(bed.x.region(), Access::Read)], |_| ()) }),
    ("Stream::completion, dropped unpolled", |bed| {
        drop(bed.a.completion());
        Ok(())
    }),
    ("Stream::completion, waited for", |bed| bed.a.completion().wait()),
    ("Stream::read", |bed| bed.a.read(&bed.x).map(drop)),
    ("Stream::synchronize", |bed| bed.a.synchronize()),
    ("Stream::record_timed", |bed| bed.a.record_timed().map(drop)),
    ("Stream::clone and drop", |bed| {
        drop(bed.a.clone());
        Ok(())
    }),
    ("Buffer::synchronize", |bed| bed.x.synchronize()),
    ("Buffer::is_busy", |bed| {
        let _ = bed.x.is_busy();
        Ok(())
    }),
    ("Buffer::view_mut", |bed| bed.x.view_mut(1..3).map(drop)),
    ("Buffer::free", |bed| bed.a.alloc::<u32>(64)?.free().map(drop)),
    ("Stream::alloc, used on two streams", |bed| {
        let mut made = bed.a.alloc::<u32>(64)?;
        bed.a.fill(&mut made, 1)?;
        bed.b.copy(&made, &mut bed.y)
    }),
    ("Stream::is_idle", |bed| bed.a.is_idle().map(drop)),
    ("Runtime::stream", |bed| bed.runtime.stream().map(drop)),
    ("Runtime::stream, that worked", |bed| {
        let stream = bed.runtime.stream()?;
        stream.launch(&bed.kernel, LaunchConfig::linear(4), (&bed.x, &mut bed.y))
    }),
    ("Runtime::adopt", |bed| {
        let raw = bed.driver.stream_create(Priority::Normal).expect("a stream");
        // SAFETY: the handle is a number, which names nothing that could end.
        let adopted = unsafe { bed.runtime.adopt(raw) }?;
        // SAFETY: nothing is enqueued.
        unsafe { adopted.use_on(&[(bed.x.region(), Access::Read)], |_| ()) }
    }),
    ("Runtime::wrap", |bed| bed.runtime.wrap(vec![1_u32; 64]).map(drop).map_err(Error::from)),
    ("Runtime::wrap, used", |bed| {
        let mut pin = bed.runtime.wrap(vec![1_u32; 64])?;
        bed.a.copy(&bed.x, &mut pin)
    }),
    ("Runtime::wrap_shared, used", |bed| {
        let pin = bed.runtime.wrap_shared(std::sync::Arc::from(vec![1_u32; 64]))?;
        bed.a.copy(&*pin, &mut bed.x)
    }),
    ("Runtime::alloc_host, used", |bed| {
        let mut pin = bed.runtime.alloc_host::<u32>(64)?;
        bed.a.copy(&bed.x, &mut pin)
    }),
    ("Pinned::read", |bed| bed.runtime.alloc_host::<u32>(64)?.read().map(drop)),
    ("Pinned::into_owner", |bed| {
        let pin = bed.runtime.wrap(vec![1_u32; 64])?;
        pin.into_owner::<Vec<u32>>().map(drop).map_err(|(error, _)| error)
    }),
    ("Runtime::wrap_raw of one range, used", |bed| {
        let start = std::ptr::NonNull::from(&mut *bed.memory).cast::<u32>();
        // SAFETY: the driver touches no memory.
        let pin = unsafe { bed.runtime.wrap_raw(start, 64) }?;
        bed.a.copy(&pin, &mut bed.x)
    }),
    ("Runtime::alloc_host", |bed| bed.runtime.alloc_host::<u32>(64).map(drop)),
    ("Runtime::scope", |bed| {
        let (runtime, memory) = (bed.runtime.clone(), &mut bed.memory);
        runtime.scope(|scope| scope.wrap(memory).map(drop))
    }),
    ("Runtime::capture", |bed| {
        let (runtime, x) = (bed.runtime.clone(), &mut bed.x);
        runtime.capture(|capture| capture.fill(x, 1)).map(drop)
    }),
    ("Runtime::module", |bed| bed.runtime.module(Image::Source("")).map(drop)),
    ("Runtime::poll", |bed| {
        bed.runtime.poll();
        Ok(())
    }),
    ("Runtime::trim", |bed| {
        bed.runtime.trim();
        Ok(())
    }),
    ("Runtime::stats", |bed| {
        let _ = bed.runtime.stats();
        Ok(())
    }),
    ("Graph::instantiate", |bed| bed.graph.instantiate().map(drop)),
    ("Graph::instantiate, launched", |bed| bed.graph.instantiate()?.launch(&bed.a)),
    ("Graph::describe", |bed| bed.graph.describe().map(drop)),
    ("Capture::fork and join", |bed| bed.runtime.capture(|capture| capture.fork()?.join(capture)).map(drop)),
    ("Capture::write", |bed| {
        let (runtime, x) = (bed.runtime.clone(), &mut bed.x);
        runtime.capture(|capture| capture.write(&[1_u32; 64], x)).map(drop)
    }),
    ("Runtime::capture_guard", |bed| {
        drop(bed.runtime.capture_guard());
        Ok(())
    }),
    ("Runtime::take_release_errors", |bed| {
        let _ = bed.runtime.take_release_errors();
        Ok(())
    }),
    ("Executable::launch", |bed| bed.executable.launch(&bed.a)),
    ("Executable::update", |bed| bed.executable.update(&bed.graph)),
];

impl Bed {
    fn new() -> Result<Self> {
        let driver = Null::default();
        // Small limits, so that what is bounded by them is so long before the half of the calls.
        let config = Config::default().reclaim(ReclaimMode::Manual).staging_max(1 << 18);
        let runtime = Runtime::with(driver.clone(), config.backlog_max(1 << 10).adopted_max(1 << 6))?;
        let (a, b) = (runtime.stream()?, runtime.stream()?);
        let (mut x, y) = (a.alloc(64)?, a.alloc(64)?);
        let module = runtime.module(Image::Source(""))?;
        // SAFETY: the driver runs no kernel.
        let kernel = unsafe { module.kernel("copy") }?;
        let graph = runtime.capture(|capture| capture.fill(&mut x, 1))?;
        let executable = graph.instantiate()?;
        Ok(Self { driver, runtime, a, b, x, y, kernel, graph, executable, memory: vec![1; 64] })
    }

    /// Bytes allocated, and the gauges of the runtime.
    fn figures(&self) -> [i64; 9] {
        let stats = self.runtime.stats();
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        [
            // Relaxed: a figure of this thread's.
            ALLOCATED.load(Ordering::Relaxed),
            gauge(stats.streams.alive),
            gauge(stats.pins_live),
            gauge(stats.pins_pending),
            gauge(stats.pins_quarantined),
            gauge(stats.retired_pending),
            gauge(stats.captures),
            gauge(stats.staging.held),
            gauge(stats.staging.in_graphs),
        ]
    }
}

/// What a cell came to.
struct Outcome {
    bytes: f64,
    gauges: f64,
    refused: Option<Error>,
}

fn cell(call: &Call, situation: &Situation, times: u64) -> Result<Outcome> {
    let mut bed = Bed::new()?;
    let standing = (situation.1)(&bed);
    let mut refused = None;
    let mut middle = bed.figures();
    for turn in 0..times {
        if let Err(error) = (call.1)(&mut bed) {
            refused = Some(error);
        }
        // Somebody releases what is let go, as a worker does.
        if turn % 16 == 0 {
            bed.runtime.poll();
        }
        if turn == times / 2 {
            middle = bed.figures();
        }
    }
    bed.runtime.poll();
    let end = bed.figures();
    let per_call = |index: usize| (end[index] - middle[index]) as f64 / (times / 2) as f64;
    let gauges = (1..end.len()).map(per_call).fold(0.0, f64::max);
    drop(standing);
    bed.driver.set_busy(false);
    Ok(Outcome { bytes: per_call(0), gauges, refused })
}

fn main() -> ExitCode {
    let (mut times, mut json, mut only) = (10_000, false, String::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = true,
            "--times" => times = words.next().and_then(|text| text.parse().ok()).unwrap_or(times),
            "--call" => only = words.next().unwrap_or_default(),
            _ => {
                eprintln!("growth: unknown option {word}");
                return ExitCode::from(2);
            }
        }
    }
    let (mut cells, mut grew) = (0, 0);
    for call in CALLS.iter().filter(|call| call.0.starts_with(&only)) {
        for situation in SITUATIONS {
            let outcome = match cell(call, situation, times) {
                Ok(outcome) => outcome,
                Err(error) => {
                    eprintln!("growth: {} / {}: {error}", call.0, situation.0);
                    return ExitCode::FAILURE;
                }
            };
            let has_grown = outcome.bytes > 1.0 || outcome.gauges > 0.01;
            cells += 1;
            grew += u64::from(has_grown);
            let verdict = if has_grown { "GROWS" } else { "flat" };
            let refused = outcome.refused.map(|error| format!(" ({error})")).unwrap_or_default();
            if !json || has_grown {
                eprintln!(
                    "{verdict}: {} / {}: {:.2} bytes and {:.3} things a call{refused}",
                    call.0, situation.0, outcome.bytes, outcome.gauges
                );
            }
        }
    }
    println!("{{\"cells\":{cells},\"times\":{times},\"grew\":{grew}}}");
    if cells > 0 && grew == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
