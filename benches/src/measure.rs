//! The measurements that are compared, each in one process and in interleaved rounds.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tenure::driver::{Argument, Driver, Image, Priority};
use tenure::{Access, Config, Kernel, Pinned, Queue, Readable, ReclaimMode, Runtime, Stream, Write};
use tenure_sim::driver::Sim;
use tenure_sim::kernel as sim;

use crate::bed::{Bed, CONFIG, Floats, expect, launch_sixteen, launch_three, pointer, raw_sixteen, raw_three};
use crate::contest::{Contest, Outcome, median};
use crate::null::{Costs, Null};
use crate::rivals::{Lock, Rivals, Word, loads};

/// Rounds of the contests; each takes a few milliseconds.
const ROUNDS: usize = 401;

/// Does `body` so often.
fn repeat<R>(n: u64, mut body: impl FnMut() -> R) {
    for _ in 0..n {
        black_box(body());
    }
}

/// The launch path beside its rivals and its floor.
pub fn launch_path() -> Outcome {
    let bed = Bed::new(Null::default());
    let priced = Bed::new(Null::with_costs(Costs::MEASURED));
    let stream = bed.stream();
    let (rivals, priced_rivals) = (Rivals::new(&bed), Rivals::new(&priced));
    let (mut three, sixteen, one) = (bed.buffers(&stream), bed.buffers(&stream), bed.buffers::<1>(&stream));
    let words: Vec<_> = (0..64).map(|_| Box::new(AtomicU64::new(1))).collect();
    let words: Vec<&AtomicU64> = words.iter().map(|word| &**word).collect();
    let (lock, word) = (Lock::default(), Word::default());
    // In memory, as a program's own handles are: passed by value they are written and read back in one go, which
    // stalls.
    let (addresses, sixteen_addresses) = ([1, 2, 3], [7; 16]);
    let (bed, stream) = (&bed, &stream);
    Contest::new()
        .entrant("nothing", 2000, |n| repeat(n, || black_box(1)))
        .entrant("lock", 2000, |n| repeat(n, || lock.pass()))
        .entrant("cas", 2000, |n| repeat(n, || word.pass()))
        .entrant("16 loads", 2000, |n| repeat(n, || loads(black_box(&words[..16]))))
        .entrant("64 loads", 1000, |n| repeat(n, || loads(black_box(&words[..]))))
        .entrant("raw none", 2000, |n| repeat(n, || bed.raw_launch(black_box(&[]))))
        .entrant("no arguments", 2000, |n| repeat(n, || expect(stream.launch(&bed.empty, CONFIG, ()))))
        .entrant("raw 1", 2000, |n| repeat(n, || bed.raw_launch(&[pointer(*black_box(&addresses[0]))])))
        .entrant("1 buffer", 2000, |n| repeat(n, || expect(stream.launch(&bed.one, CONFIG, (&one[0],)))))
        .entrant("raw three", 2000, |n| repeat(n, || raw_three(bed, black_box(&addresses))))
        .entrant("three and four", 2000, |n| repeat(n, || launch_three(bed, stream, &mut three)))
        .entrant("raw 16", 2000, |n| repeat(n, || raw_sixteen(bed, black_box(&sixteen_addresses))))
        .entrant("16 buffers", 2000, |n| repeat(n, || launch_sixteen(bed, stream, &sixteen)))
        .entrant("locked phase", 1000, |n| repeat(n, || rivals.locked(bed)))
        .entrant("locked in place", 1000, |n| repeat(n, || rivals.locked_in_place(bed)))
        .entrant("unlocked", 2000, |n| repeat(n, || rivals.unlocked(bed)))
        .entrant("event per argument", 50, |n| repeat(n, || priced_rivals.event_per_argument(&priced)))
        .run(ROUNDS)
}

/// Launching, dropping and wrapping beside a push and a look-up, while `live` buffers, `live` registrations and `live`
/// retired things are there already.
pub fn memory(live: usize, rounds: usize) -> Outcome {
    const BATCH: u64 = 200;
    let bed = Bed::new(Null::default());
    let stream = bed.stream();
    let backdrop = Backdrop::new(&bed, &stream, live);
    let mut three = bed.buffers(&stream);
    let queue = parking_lot::Mutex::new(Vec::with_capacity(4096));
    let mut rows = Vec::new();
    for round in 0..=rounds {
        let mut buffers: Vec<Floats> = (0..BATCH).map(|_| used(&bed, &stream)).collect();
        let mut wraps = Vec::with_capacity(BATCH as usize);
        let launch = time(BATCH, || repeat(BATCH, || launch_three(&bed, &stream, &mut three)));
        let push = time(BATCH, || repeat(BATCH, || queue.lock().push(1_u64)));
        let drops = time(BATCH, || buffers.clear());
        let look = time(BATCH, || repeat(BATCH, || bed.runtime.is_pinned(black_box(backdrop.middle.as_ptr()))));
        let wrapping = time(BATCH, || repeat(BATCH, || wraps.push(wrap(&bed, backdrop.middle))));
        let unwrapping = time(BATCH, || wraps.clear());
        queue.lock().clear();
        if live == 0 {
            bed.driver.set_busy(false);
            bed.runtime.poll();
            bed.driver.set_busy(true);
        }
        if round > 0 {
            rows.push([launch, push, drops, look, wrapping, unwrapping]);
        }
    }
    bed.driver.set_busy(false);
    drop(backdrop);
    Outcome::from_columns(["launch", "push", "drop busy", "look up", "wrap live", "drop wrap"], &rows)
}

/// What is there already while something is measured.
#[derive(Debug)]
struct Backdrop {
    _buffers: Vec<Floats>,
    _pins: Vec<Pinned<u8, Null>>,
    /// A wrapped range in the middle of the others.
    middle: NonNull<u8>,
}

/// Bytes of each range of a backdrop.
const RANGE: usize = 64;

impl Backdrop {
    fn new(bed: &Bed, stream: &Stream<Null>, live: usize) -> Self {
        let memory = NonNull::from(vec![0_u8; RANGE * (live + 1)].leak()).cast::<u8>();
        // SAFETY: each offset is inside the one allocation.
        let start = |index: usize| unsafe { memory.add(RANGE * index) };
        let pins = (0..=live).map(|index| wrap(bed, start(index))).collect();
        bed.driver.set_busy(true);
        (0..live).for_each(|_| drop(used(bed, stream)));
        let buffers = (0..live).map(|_| expect(stream.alloc(16))).collect();
        Self { _buffers: buffers, _pins: pins, middle: start(live / 2) }
    }
}

/// A wrap of the range at `start`.
fn wrap(bed: &Bed, start: NonNull<u8>) -> Pinned<u8, Null> {
    // SAFETY: the memory of a backdrop is leaked, so it stays, and nothing touches it.
    expect(unsafe { bed.runtime.wrap_raw(start, RANGE) })
}

/// A buffer that work of `stream` uses.
fn used(bed: &Bed, stream: &Stream<Null>) -> Floats {
    let mut buffer = expect(stream.alloc(16));
    expect(stream.launch(&bed.write, CONFIG, (&mut buffer,)));
    buffer
}

/// Submissions a second that the simulator takes, runs and checks: two streams of kernels, and a wait for every fifty.
pub fn simulated_operations() -> f64 {
    const LAUNCHES: u64 = 5_000;
    let sim = Sim::builder().kernel("bump", |mut x: sim::Write<'_, u32>| x.iter_mut().for_each(|x| *x += 1)).build();
    let module = expect(sim.module_load(Image::Source("")));
    let bump = expect(sim.function(&module, "bump"));
    let streams = [0, 1].map(|_| expect(sim.stream_create(Priority::Normal)));
    let memory = [0, 1].map(|_| expect(sim.malloc(64)));
    let nanoseconds = time(LAUNCHES, || {
        for turn in 0..LAUNCHES {
            let side = (turn % 2) as usize;
            let argument = Argument::Pointer { address: memory[side], bytes: 64 };
            // SAFETY: the kernel takes one pointer, each stream has memory of its own, and none is freed.
            expect(unsafe { sim.launch(&streams[side], &bump, &CONFIG, &[argument]) });
            if turn % 50 == 49 {
                streams.iter().for_each(|stream| expect(sim.stream_synchronize(stream)));
            }
        }
    });
    1e9 / nanoseconds
}

/// Whole schedules a second: a runtime over a fresh simulator and seed, one buffer written by two streams, read, and
/// all given back.
///
/// # Panics
/// When a schedule is not clean.
pub fn simulated_schedules() -> f64 {
    const SCHEDULES: u64 = 200;
    let nanoseconds = time(SCHEDULES, || (0..SCHEDULES).for_each(schedule));
    1e9 / nanoseconds
}

fn schedule(seed: u64) {
    let sim = Sim::builder()
        .seed(seed)
        .kernel("bump", |mut x: sim::Write<'_, u32>| x.iter_mut().for_each(|x| *x += 1))
        .build();
    let runtime = expect(Runtime::with(sim, Config::default().reclaim(ReclaimMode::Manual)));
    let module = expect(runtime.module(Image::Source("")));
    // SAFETY: the kernel has this signature and stays inside its argument.
    let bump: Kernel<(Write<u32>,), Sim> = expect(unsafe { module.kernel("bump") });
    let streams = [expect(runtime.stream()), expect(runtime.stream())];
    let mut buffer = expect(streams[0].upload(&[0_u32; 16]));
    for turn in 0..10 {
        expect(streams[turn % 2].launch(&bump, CONFIG, (&mut buffer,)));
    }
    assert_eq!(expect(streams[0].read(&buffer)), [10; 16], "ten launches on two streams came one after the other");
    drop((buffer, bump, module, streams));
    let report = runtime.shutdown(Duration::from_secs(1));
    assert!(report.is_clean(), "seed {seed}: {report:?}");
}

fn time(times: u64, body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    start.elapsed().as_nanos() as f64 / times as f64
}

/// What the threads of a measurement of scale have in common, besides the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// No bookkeeping at all, only the driver's call: what the machine itself does to a thread among others.
    Raw,
    /// Each launches on a stream and with buffers of its own.
    Nothing,
    /// Each on a stream of its own, and all read one buffer.
    ReadBuffer,
    /// All on one stream, each with buffers of its own.
    Stream,
    /// Each on a stream of its own, and all write one buffer, which changes hands with every launch.
    Buffer,
}

/// All of them, by name.
pub const SHARINGS: [(&str, Sharing); 5] = [
    ("the call alone", Sharing::Raw),
    ("disjoint", Sharing::Nothing),
    ("one read-only buffer", Sharing::ReadBuffer),
    ("one stream", Sharing::Stream),
    ("one contended buffer", Sharing::Buffer),
];

/// The threads of a measurement of scale.
pub const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

/// What one thread launches.
struct Launcher<'a> {
    bed: &'a Bed,
    stream: Stream<Null>,
    own: [Floats; 3],
    common: &'a Floats,
    sharing: Sharing,
}

impl Launcher<'_> {
    #[inline]
    fn launch(&mut self) {
        match self.sharing {
            Sharing::Raw => raw_three(self.bed, black_box(&[1, 2, 3])),
            Sharing::Nothing | Sharing::Stream => launch_three(self.bed, &self.stream, &mut self.own),
            Sharing::ReadBuffer => expect(self.stream.launch(&self.bed.one, CONFIG, (self.common,))),
            Sharing::Buffer => {
                let uses = [(self.common.region(), Access::Write)];
                // SAFETY: the closure enqueues nothing, so whatever it is said to use is right.
                expect(unsafe {
                    self.stream.use_on(&uses, |stream| {
                        black_box(stream);
                    })
                });
            }
        }
    }
}

/// Nanoseconds of a processor for one launch where `threads` threads launch at once: the median of `rounds` rounds.
///
/// Threads beyond the processors take turns. So it is the time of all launches together, times the processors that were
/// at work, over the launches.
pub fn launch_among(sharing: Sharing, threads: usize, rounds: usize) -> f64 {
    // Long beside what threads need to come out of a barrier, a tenth of a millisecond.
    let batch: u64 = match sharing {
        Sharing::Raw | Sharing::Nothing | Sharing::ReadBuffer => 200_000,
        Sharing::Stream => 5_000,
        Sharing::Buffer => 1_000,
    };
    let bed = Bed::new(Null::default());
    let first = bed.stream();
    let [common] = bed.buffers::<1>(&first);
    let barrier = Barrier::new(threads);
    let spans = |stream: Stream<Null>| {
        let own = bed.buffers(&stream);
        let mut launcher = Launcher { bed: &bed, stream, own, common: &common, sharing };
        let mut span = |_| {
            barrier.wait();
            let start = Instant::now();
            (0..batch).for_each(|_| launcher.launch());
            (start, Instant::now())
        };
        // What comes once, as the first look at a buffer that another thread has used, does not count.
        span(0);
        (0..rounds).map(span).collect::<Vec<_>>()
    };
    let spans: Vec<_> = std::thread::scope(|scope| {
        let stream = || if sharing == Sharing::Stream { first.clone() } else { bed.stream() };
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                let (spans, stream) = (&spans, stream());
                scope.spawn(move || spans(stream))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no launcher panics")).collect()
    });
    // A round lasts from the first start to the last end.
    let round = |index: usize| {
        let of_all = spans.iter().map(|spans| spans[index]);
        let (first, last) = of_all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).expect("there is a thread");
        last.duration_since(first).as_nanos() as f64 / (batch * threads as u64) as f64
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from).min(threads);
    median((0..rounds).map(round).collect()) * processors as f64
}

/// How a launch grows from one thread to `threads` that share nothing but the runtime, over how the driver's call alone
/// grows: two processors may be halves of one core, which slows down whatever runs on them.
pub fn growth(threads: usize) -> f64 {
    let growth = |sharing| launch_among(sharing, threads, 3) / launch_among(sharing, 1, 3);
    median((0..25).map(|_| growth(Sharing::Nothing) / growth(Sharing::Raw)).collect())
}
