//! The stress program: threads that capture, drop, wrap, poll, wait and recycle, as one number decides.
//!
//! Each thread works on memory of its own, whose contents it knows, and on one range that all share, whose total is
//! known at the end. So lost writes, wrong replays and early releases show as wrong numbers, on any driver; on the
//! simulator the checkers look on as well.
//!
//! | step | what could go wrong |
//! |---|---|
//! | work on a buffer, moved between two streams | O1 O3 |
//! | a capture with forks, drops and polls inside; it may fail or panic | C1 C2 C3 C7 |
//! | replays on two streams, handles dropped in any order | C4 C5 |
//! | a capture by raw calls in any mode, under a guard | C1 C6 |
//! | wraps that are dropped busy, freed, taken back | P3 P5 P7 |
//! | a wrap of the shared range | O1 O4 P1 P8 |
//! | downloads that are waited for, or dropped | R4 |
//! | leases ended and taken again, polls, trims | S2 S3 S6 |

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tenure::driver::{Call, CaptureMode, Driver, HostPointer, Priority};
use tenure::{Buffer, Error, Queue, Stream};

use crate::bench::Bench;
use crate::faulty::OnPurpose;
use crate::rig::{Lent, Rig};
use crate::tap::Tap;

/// What all threads of one storm share.
pub struct Storm<D: Driver> {
    rig: Rig<D>,
    shared: Lent<u32>,
    start: HostPointer,
    expected: AtomicU64,
    captures: AtomicU64,
    replays: AtomicU64,
}

/// What a storm came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Captures that ended as they were meant to.
    pub captures: u64,
    /// Graph launches.
    pub replays: u64,
    /// Things let go, each of which was released once.
    pub releases: u64,
    /// Submissions.
    pub launches: u64,
}

impl Tally {
    /// Adds another storm's.
    pub fn add(&mut self, other: Self) {
        self.captures += other.captures;
        self.replays += other.replays;
        self.releases += other.releases;
        self.launches += other.launches;
    }
}

impl<D: Driver> Storm<D> {
    /// A storm over `rig`.
    pub fn new(rig: Rig<D>) -> Self {
        let mut shared = Lent::from(vec![0_u32; 4]);
        let start = shared.start();
        let (expected, captures, replays) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { rig, shared, start, expected, captures, replays }
    }

    /// What it runs over.
    pub fn rig(&self) -> &Rig<D> {
        &self.rig
    }

    /// The work of one thread.
    ///
    /// # Panics
    /// When something is not as it must be.
    pub fn thread(&self, seed: u64, steps: u32) {
        let mut dice = Dice::new(seed);
        let mut streams = [self.rig.stream(), self.rig.stream()];
        for _ in 0..steps {
            match dice.roll(10) {
                0 | 1 => self.work(&mut dice, &streams),
                2 | 3 => self.capture(&mut dice, &streams),
                4 => self.foreign_capture(&mut dice, &streams),
                5 => self.wrap(&mut dice, &streams),
                6 | 7 => self.wrap_shared(&mut dice, &streams),
                8 => self.download(&mut dice, &streams),
                _ => {
                    let index = dice.roll(2) as usize;
                    streams[index] = self.rig.stream();
                    self.rig.runtime.poll();
                    if dice.roll(2) == 0 {
                        self.rig.runtime.trim();
                    }
                }
            }
        }
    }

    /// Ends the storm and looks at what is left.
    ///
    /// # Panics
    /// When something is not as it must be.
    pub fn end(self) -> Tally {
        self.rig.drain();
        let stats = self.rig.runtime.stats();
        assert_eq!(stats.leaked, 0, "P7: nothing is leaked: {stats:?}");
        assert_eq!(stats.retired, stats.released, "C3: everything let go is released once: {stats:?}");
        let tap = self.rig.tap.clone();
        self.rig.close();
        for (take, give) in [
            (Call::MallocAsync, Call::FreeAsync),
            (Call::Malloc, Call::Free),
            (Call::HostRegister, Call::HostUnregister),
            (Call::GraphInstantiate, Call::ExecutableDestroy),
        ] {
            assert_eq!(tap.log.count(take), tap.log.count(give), "R5: {take} and {give}");
        }
        // Relaxed: all threads have been joined.
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let expected = u32::try_from(load(&self.expected)).expect("a storm is short");
        assert_eq!(self.shared[..], [expected; 4], "O1: every write to the shared range came after the one before");
        Tally {
            captures: load(&self.captures),
            replays: load(&self.replays),
            releases: stats.released,
            launches: stats.streams.launches,
        }
    }

    fn check(&self, stream: &Stream<Tap<D>>, x: &Buffer<u32, Tap<D>>, expected: u32) {
        assert_eq!(stream.read(x).expect("a read"), [expected; 4], "O3: a read sees all that was launched before");
    }

    fn work(&self, dice: &mut Dice, streams: &Streams<D>) {
        let mut expected = dice.roll(100);
        let mut x = self.rig.four(dice.pick(streams), expected);
        for _ in 0..dice.roll(4) {
            self.rig.bump(dice.pick(streams), &mut x, 1).expect("a launch");
            expected += 1;
        }
        if dice.roll(2) == 0 {
            self.check(dice.pick(streams), &x, expected);
        }
    }

    /// A capture, whose body may fail or panic, and its replays.
    fn capture(&self, dice: &mut Dice, streams: &Streams<D>) {
        let (mut x, mut spare) = (self.rig.four(&streams[0], 0), Some(self.rig.four(&streams[1], 5)));
        let (ending, forks, inner) = (dice.roll(6), dice.roll(3), dice.roll(4));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.rig.runtime.capture(|capture| {
                capture.write(&[1_u32; 4], &mut x)?;
                if let Some(spare) = &spare {
                    self.rig.sum(capture, spare, &mut x)?;
                }
                for _ in 0..forks {
                    self.rig.bump(&capture.fork()?, &mut x, 1)?;
                }
                match inner {
                    0 => drop(spare.take()),
                    1 => drop(self.rig.runtime.poll()),
                    2 => drop(self.rig.runtime.stream()?),
                    _ => drop(self.rig.runtime.trim()),
                }
                match ending {
                    0 => Err(Error::Closed),
                    1 => std::panic::panic_any(OnPurpose),
                    _ => self.rig.bump(capture, &mut x, 1),
                }
            })
        }));
        self.captures.fetch_add(1, Ordering::Relaxed);
        let graph = match outcome {
            Ok(Ok(graph)) => graph,
            Ok(Err(error)) => return assert!(ending == 0 && error == Error::Closed, "C1: a capture failed: {error}"),
            Err(panic) => return assert!(ending == 1 && panic.is::<OnPurpose>(), "C7: only the body's own panic"),
        };
        assert!(ending > 1, "C7: a body that failed gives no graph");
        let executable = graph.instantiate().expect("an executable");
        let launches = dice.roll(3);
        for _ in 0..launches {
            executable.launch(dice.pick(streams)).expect("a launch");
            self.replays.fetch_add(1, Ordering::Relaxed);
        }
        // The graph writes before it reads, so each replay gives the same.
        if launches > 0 && dice.roll(2) == 0 {
            self.check(dice.pick(streams), &x, 7 + forks);
        }
        match dice.roll(3) {
            0 => drop((executable, graph, spare, x)),
            1 => drop((spare, x, graph, executable)),
            _ => drop((graph, x, executable, spare)),
        }
    }

    /// A capture that is none of the core's business, made by raw calls.
    fn foreign_capture(&self, dice: &mut Dice, streams: &Streams<D>) {
        let x = self.rig.four(&streams[0], 1);
        let driver = self.rig.tap.inner();
        let mode = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed][dice.roll(3) as usize];
        let theirs = driver.stream_create(Priority::Normal).expect("a stream");
        let guard = self.rig.runtime.capture_guard();
        driver.capture_begin(&theirs, mode).expect("a capture begins");
        driver.launch_host_function(&theirs, Arc::new(|| {})).expect("a host function");
        // What must not wait for the capture's end: this very thread ends it.
        drop(x);
        match dice.roll(3) {
            0 => drop(self.rig.runtime.poll()),
            1 => drop(self.rig.runtime.trim()),
            _ => drop(dice.pick(streams).clone()),
        }
        let ended = driver.capture_end(&theirs);
        drop(guard);
        let graph = ended.unwrap_or_else(|error| panic!("C1: a foreign {mode:?} capture was broken: {error}"));
        driver.graph_destroy(graph).expect("a graph goes");
        // SAFETY: S6. Made above, known to nobody else.
        unsafe { driver.stream_destroy(&theirs) }.expect("a stream goes");
        self.captures.fetch_add(1, Ordering::Relaxed);
    }

    fn wrap(&self, dice: &mut Dice, streams: &Streams<D>) {
        let mut pinned = self.rig.runtime.wrap(vec![3_u32; 4]).expect("a wrap");
        self.rig.bump(dice.pick(streams), &mut pinned, 1).expect("a launch");
        match dice.roll(4) {
            0 => drop(pinned),
            1 => drop(pinned.free().expect("a free")),
            2 => assert_eq!(pinned.read().expect("a view")[..], [4; 4], "O3: a view sees the write"),
            _ => {
                let back = pinned.into_owner::<Vec<u32>>().map_err(|(error, _)| error);
                assert_eq!(back.expect("the vector comes back"), [4; 4], "P3: after the write");
            }
        }
    }

    fn wrap_shared(&self, dice: &mut Dice, streams: &Streams<D>) {
        // SAFETY: P4. The range lives as long as the storm, and the host reads it after the runtime's end.
        let mut wrap = unsafe { self.rig.wrap_at(self.start) }.expect("a wrap of the shared range");
        for _ in 0..=dice.roll(2) {
            self.rig.bump(dice.pick(streams), &mut wrap, 1).expect("a launch");
            // Relaxed: summed up after the threads were joined.
            self.expected.fetch_add(1, Ordering::Relaxed);
        }
        match dice.roll(3) {
            0 => drop(wrap.free().expect("a free")),
            _ => drop(wrap),
        }
    }

    fn download(&self, dice: &mut Dice, streams: &Streams<D>) {
        let x = self.rig.four(&streams[0], 9);
        let download = dice.pick(streams).download(&x).expect("a download");
        drop(x);
        match dice.roll(2) {
            0 => drop(download),
            _ => assert_eq!(download.wait().expect("elements"), [9; 4], "O3: the elements are there"),
        }
    }
}

type Streams<D> = [Stream<Tap<D>>; 2];

/// What decides.
pub struct Dice(Xoshiro256PlusPlus);

impl Dice {
    /// Decisions that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u32 {
        u32::try_from((self.0.next_u64() >> 33) % sides).unwrap_or_default()
    }

    /// A number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// One of two.
    pub fn pick<'a, T>(&mut self, two: &'a [T; 2]) -> &'a T {
        &two[self.roll(2) as usize]
    }
}

/// A storm of real threads over the worker's runtime.
///
/// # Panics
/// When something is not as it must be.
pub fn on_threads<B: Bench>(bench: &B, seed: u64, threads: u64, steps: u32) -> Tally {
    let storm = Storm::new(Rig::working(bench));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let storm = &storm;
            scope.spawn(move || storm.thread(seed ^ (thread + 1) << 32, steps));
        }
    });
    storm.end()
}
