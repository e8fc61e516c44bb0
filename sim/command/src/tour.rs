//! The tour: a real program on the real core, over any driver.
//!
//! It wraps a file's memory without a copy, cuts it into chunks, and sends each through kernels on two leased streams,
//! from several host threads: with hand-overs, shared reads, temporaries dropped while busy, re-wraps of the same and
//! of a larger range, more tasks than streams. Then it captures one step as a graph, replays it on two streams with
//! other inputs, and drops everything in an odd order. Every result is compared with a plain computation.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tenure::driver::Image;
use tenure::sync::{Mutex, thread};
use tenure::{
    Buffer, Config, Driver, Error, Freed, Kernel, LaunchConfig, Module, Queue, Read, ReclaimMode, Result, Runtime,
    Stats, Stream, Write,
};

use crate::kernels::{SOURCE, plain};

/// Bins of a histogram of bytes.
const BINS: usize = 256;
/// Neighbours that the blur looks at, to each side.
const RADIUS: u32 = 5;
/// Share of the blurred picture in the result, in 256ths.
const WEIGHT: u32 = 160;
/// The most elements of one chunk.
const CHUNK_MAX: usize = 1 << 18;
/// The fewest chunks that a file is cut into, if it is long enough.
const CHUNKS_MIN: usize = 24;
/// Streams that the pool may make: fewer than there are tasks, and than the threads would like.
const STREAMS: usize = 6;
/// Host threads that work.
pub const WORKERS: usize = 4;

/// A thread's work.
pub type Job = Box<dyn FnOnce() + Send>;

/// What the tour did.
#[derive(Debug)]
pub struct Outcome {
    /// Figures of the runtime, at the end.
    pub stats: Stats,
    /// Graph replays.
    pub replays: u64,
    /// One number for all results that came from the device: equal where all results are equal, on any driver.
    pub digest: u64,
    /// The first result that was wrong, or the first error.
    pub fault: Option<String>,
    /// What shutdown could not give back.
    pub leftover: Option<String>,
}

/// How the tour runs.
pub struct Options<'a> {
    /// What it works on.
    pub input: Vec<u8>,
    /// Whether a thread of the runtime's own releases; otherwise one of the tour's.
    pub reclaim: ReclaimMode,
    /// Runs all jobs at the same time, and returns when all have ended.
    pub run: &'a dyn Fn(Vec<Job>),
    /// Called after each finished chunk, with their number and that of all.
    pub progress: Arc<dyn Fn(usize, usize) + Send + Sync>,
}

/// Runs the tour on `driver`.
///
/// # Errors
/// When the runtime or the kernels cannot be made. What goes wrong later is in the outcome.
pub fn run<D: Driver>(driver: D, options: Options<'_>) -> Result<Outcome> {
    let config = Config::default().reclaim(options.reclaim).streams_max(STREAMS);
    let runtime = Runtime::with(driver, config)?;
    let kernels = Kernels::load(&runtime.module(Image::Source(SOURCE))?)?;
    let input: Arc<[u8]> = options.input.into();
    let stream = runtime.stream()?;
    let mut total = stream.alloc(BINS)?;
    stream.fill(&mut total, 0)?;
    drop(stream);
    let tour = Arc::new(Tour {
        runtime,
        kernels,
        chunks: cut(input.len()),
        input,
        total: Mutex::new(total),
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        working: AtomicUsize::new(WORKERS),
        replays: AtomicUsize::new(0),
        digest: AtomicU64::new(0),
        fault: Mutex::new(None),
        progress: options.progress,
    });
    (options.run)(tour.jobs(options.reclaim));
    Ok(Tour::finish(tour))
}

/// The kernels of the tour.
struct Kernels<D: Driver> {
    widen: Kernel<(Read<u8>, Write<u32>, u32), D>,
    narrow: Kernel<(Read<u32>, Write<u8>, u32), D>,
    histogram: Kernel<(Read<u8>, Write<u32>, u32), D>,
    blur: Kernel<(Read<u32>, Write<u32>, u32, u32), D>,
    mix: Kernel<(Read<u32>, Write<u32>, u32, u32), D>,
    accumulate: Kernel<(Read<u32>, Write<u32>, u32), D>,
}

impl<D: Driver> Kernels<D> {
    fn load(module: &Module<D>) -> Result<Self> {
        // SAFETY (each): `kernels.rs` has the kernel with these parameters; it stays within the first `n` elements of
        // each.
        Ok(Self {
            // SAFETY: as above.
            widen: unsafe { module.kernel("widen") }?,
            // SAFETY: as above.
            narrow: unsafe { module.kernel("narrow") }?,
            // SAFETY: as above.
            histogram: unsafe { module.kernel("histogram") }?,
            // SAFETY: as above.
            blur: unsafe { module.kernel("blur") }?,
            // SAFETY: as above.
            mix: unsafe { module.kernel("mix") }?,
            // SAFETY: as above.
            accumulate: unsafe { module.kernel("accumulate") }?,
        })
    }
}

/// What the threads of the tour share.
struct Tour<D: Driver> {
    runtime: Runtime<D>,
    kernels: Kernels<D>,
    chunks: Vec<std::ops::Range<usize>>,
    input: Arc<[u8]>,
    /// The histogram of the whole input: handed from thread to thread, and from stream to stream.
    total: Mutex<Buffer<u32, D>>,
    next: AtomicUsize,
    done: AtomicUsize,
    working: AtomicUsize,
    replays: AtomicUsize,
    digest: AtomicU64,
    fault: Mutex<Option<String>>,
    progress: Arc<dyn Fn(usize, usize) + Send + Sync>,
}

/// Cuts `len` bytes into chunks.
fn cut(len: usize) -> Vec<std::ops::Range<usize>> {
    let size = len.div_ceil(CHUNKS_MIN).clamp(1, CHUNK_MAX);
    (0..len).step_by(size).map(|start| start..len.min(start + size)).collect()
}

fn size(n: u32) -> LaunchConfig {
    LaunchConfig::linear(n as usize)
}

impl<D: Driver> Tour<D> {
    fn jobs(self: &Arc<Self>, reclaim: ReclaimMode) -> Vec<Job> {
        let mut jobs: Vec<Job> = Vec::new();
        for _ in 0..WORKERS {
            let tour = self.clone();
            jobs.push(Box::new(move || tour.work()));
        }
        if reclaim == ReclaimMode::Manual {
            let tour = self.clone();
            jobs.push(Box::new(move || tour.reclaim()));
        }
        jobs
    }

    /// A worker: takes chunks until there are none, then, the last of them, replays a graph.
    fn work(&self) {
        // Relaxed throughout: the counters hand out work; what the work shares is under locks.
        while self.fault.lock().is_none() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = self.chunks.get(index) else { break };
            self.note(&format!("chunk {index}"), self.process(chunk.clone()));
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            (self.progress)(done, self.chunks.len());
        }
        if self.working.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.note("the graph", self.replay());
            self.note("the histogram", self.check_total());
        }
    }

    /// What the runtime's worker would do.
    fn reclaim(&self) {
        while self.working.load(Ordering::Acquire) > 0 {
            self.runtime.poll();
            thread::pause();
        }
    }

    fn note(&self, what: &str, outcome: Result<bool>) {
        let fault = match outcome {
            Ok(true) => return,
            Ok(false) => format!("{what}: the device's result differs from the processor's"),
            Err(error) => format!("{what}: {error}"),
        };
        self.fault.lock().get_or_insert(fault);
    }

    /// Takes what came from the device into the digest, whatever the order in which chunks end.
    fn digest(&self, place: usize, results: &[&[u8]]) {
        // FNV-1a, begun with the place.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let place = (place as u64).to_le_bytes();
        let bytes = place.iter().chain(results.iter().copied().flatten());
        // Relaxed: read once all threads have ended.
        self.digest.fetch_add(bytes.fold(0xcbf2_9ce4_8422_2325, step), Ordering::Relaxed);
    }

    /// A lease; where all streams are taken, waits for one.
    fn stream(&self) -> Result<Stream<D>> {
        loop {
            match self.runtime.stream() {
                Err(Error::StreamLimit { .. }) => thread::pause(),
                answer => return answer,
            }
        }
    }

    /// One chunk through the pipeline; whether all came out right.
    fn process(&self, range: std::ops::Range<usize>) -> Result<bool> {
        let (k, start, data) = (&self.kernels, range.start, &self.input[range.clone()]);
        let (len, n) = (data.len(), data.len() as u32);
        let (a, b) = (self.stream()?, self.stream()?);

        // The whole file, pinned: the first wrap registers it, the others share (P8).
        let file = self.runtime.wrap_shared(self.input.clone())?;
        let mut bytes = a.alloc::<u8>(len)?;
        a.copy(&file.view(range)?, &mut bytes)?;
        drop(file);

        let (mut wide, mut bins) = (a.alloc::<u32>(len)?, a.alloc::<u32>(BINS)?);
        a.launch(&k.widen, size(n), (&bytes, &mut wide, n))?;
        a.fill(&mut bins, 0)?;
        a.launch(&k.histogram, size(n), (&bytes, &mut bins, n))?;

        // Handed over to the second stream, and read by both (O1).
        let (mut soft, mut plain_again) = (b.alloc::<u32>(len)?, a.alloc::<u8>(len)?);
        b.launch(&k.blur, size(n), (&wide, &mut soft, n, RADIUS))?;
        a.launch(&k.narrow, size(n), (&wide, &mut plain_again, n))?;
        // A write after reads on two streams: waits for both (O9).
        b.launch(&k.mix, size(n), (&soft, &mut wide, n, WEIGHT))?;
        // Let go while the device still uses them (P7).
        drop((soft, bytes));

        // Back into host memory of our own, without a copy on the host.
        let mut result = self.runtime.wrap(vec![0_u8; len])?;
        b.launch(&k.narrow, size(n), (&wide, &mut result, n))?;
        drop(wide);
        b.launch(&k.accumulate, size(BINS as u32), (&bins, &mut *self.total.lock(), BINS as u32))?;
        let again = a.download(&plain_again)?;
        drop((bins, plain_again, a));

        let mixed = result.read()?.to_vec() == expected(data);
        let owner: Vec<u8> = result.into_owner().map_err(|(error, _)| error)?;
        let again = again.wait()?;
        self.digest(start, &[&owner, &again]);
        Ok(mixed && owner == expected(data) && again == data && self.rewrap(&b, data)?)
    }

    /// Wraps a half, lets it go while busy, and wraps the whole: which must not reuse the shorter registration (P2).
    fn rewrap(&self, stream: &Stream<D>, data: &[u8]) -> Result<bool> {
        let mut staging = ManuallyDrop::new(data.to_vec());
        let (start, len, half) = (NonNull::from(&mut **staging).cast::<u8>(), data.len(), data.len() / 2);
        let (mut front, mut all) = (stream.alloc::<u8>(half)?, stream.alloc::<u8>(len)?);

        // SAFETY: P4. `staging` is not touched or dropped before its last wrap was freed; on any error it is leaked.
        let pinned = unsafe { self.runtime.wrap_raw(start, half) }?;
        stream.copy(&pinned, &mut front)?;
        drop(pinned);
        // SAFETY: P4. As above.
        let pinned = unsafe { self.runtime.wrap_raw(start, len) }?;
        stream.copy(&pinned, &mut all)?;
        if pinned.free()? == Freed::Now {
            drop(ManuallyDrop::into_inner(staging));
        }
        let equal = stream.read(&front)? == data[..half] && stream.read(&all)? == data;
        // Freed explicitly, and waited for; its twin by a drop.
        Ok(equal && front.free()? == Freed::Now)
    }

    /// Captures a step with two branches, replays it on two streams with other inputs, and drops it all in an odd
    /// order.
    fn replay(&self) -> Result<bool> {
        let (k, n) = (&self.kernels, BINS as u32);
        let (a, b) = (self.stream()?, self.stream()?);
        let mut input = a.alloc::<u32>(BINS)?;
        a.fill(&mut input, 0)?;
        let (mut sum, mut soft) = (a.alloc::<u32>(BINS)?, b.alloc::<u32>(BINS)?);
        a.fill(&mut sum, 0)?;
        // Made outside: below HIP 7 nothing is allocated while a capture goes on.
        let mut ones = b.alloc::<u32>(BINS)?;
        let graph = self.runtime.capture(|capture| {
            let fork = capture.fork()?;
            fork.launch(&k.blur, size(n), (&input, &mut soft, n, RADIUS))?;
            capture.launch(&k.accumulate, size(n), (&input, &mut sum, n))?;
            // Dropped inside: the graph keeps it (C4). Snapshotted: the graph keeps that too (C10).
            fork.write(&[1_u32; BINS], &mut ones)?;
            fork.launch(&k.accumulate, size(n), (&ones, &mut sum, n))?;
            drop(ones);
            fork.join(capture)
        })?;
        let executable = graph.instantiate()?;
        drop(graph);

        let (mut totals, mut last) = (vec![0_u32; BINS], Vec::new());
        for round in 0..6_u32 {
            last = (0..n).map(|i| i * (round + 1)).collect();
            let stream = if round % 2 == 0 { &a } else { &b };
            stream.write(&last, &mut input)?;
            executable.launch(stream)?;
            plain::accumulate(&last, &mut totals);
            plain::accumulate(&[1; BINS], &mut totals);
            self.replays.fetch_add(1, Ordering::Relaxed);
        }
        let (sums, softs) = (a.download(&sum)?, b.download(&soft)?);
        drop((input, executable, a, sum, b, soft));
        let mut expected = vec![0; BINS];
        plain::blur(&last, &mut expected, RADIUS as usize);
        let (sums, softs) = (sums.wait()?, softs.wait()?);
        self.digest(usize::MAX, &[bytemuck::cast_slice(&sums), bytemuck::cast_slice(&softs)]);
        Ok(sums == totals && softs == expected)
    }

    /// The histogram that all threads added to, read into borrowed memory.
    fn check_total(&self) -> Result<bool> {
        let (mut counted, mut expected) = ([0_u32; BINS], [0_u32; BINS]);
        let stream = self.stream()?;
        self.runtime.scope(|scope| {
            let mut pinned = scope.wrap(&mut counted)?;
            stream.copy(&*self.total.lock(), &mut pinned)
        })?;
        plain::histogram(&self.input, &mut expected);
        self.digest(usize::MAX - 1, &[bytemuck::cast_slice(&counted)]);
        Ok(counted == expected)
    }

    fn finish(tour: Arc<Self>) -> Outcome {
        let runtime = tour.runtime.clone();
        let replays = tour.replays.load(Ordering::Relaxed) as u64;
        let digest = tour.digest.load(Ordering::Relaxed);
        let mut fault = tour.fault.lock().take();
        drop(tour);
        let mut left = runtime.poll();
        for _ in 0..10_000 {
            if left == 0 {
                break;
            }
            thread::pause();
            left = runtime.poll();
        }
        let stats = runtime.stats();
        if let Some(error) = runtime.take_release_errors().first() {
            fault.get_or_insert_with(|| format!("a release failed: {error}"));
        }
        let report = runtime.shutdown(Duration::from_secs(10));
        let leftover = (!report.is_clean()).then(|| format!("{report:?}"));
        Outcome { stats, replays, digest, fault, leftover }
    }
}

/// What a chunk comes to, computed on the processor.
fn expected(data: &[u8]) -> Vec<u8> {
    let mut wide = vec![0; data.len()];
    let mut soft = vec![0; data.len()];
    let mut narrow = vec![0; data.len()];
    plain::widen(data, &mut wide);
    plain::blur(&wide, &mut soft, RADIUS as usize);
    plain::mix(&soft, &mut wide, WEIGHT);
    plain::narrow(&wide, &mut narrow);
    narrow
}
