//! The ratios that matter, from one run: `cargo run --release -p tenure-benches --bin ratios -- --json`.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use serde_json::{Value, json};
use tenure::{Queue, Stream};
use tenure_benches::bed::{
    Bed, CONFIG, Floats, expect, launch_sixteen, launch_three, raw_sixteen, raw_three,
};
use tenure_benches::contest::{Contest, Outcome, median};
use tenure_benches::counting::{Counting, allocations};
use tenure_benches::null::{Costs, Null};
use tenure_benches::rivals::{Lock, Rivals, Word, loads};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rounds of the contests; each takes a few milliseconds.
const ROUNDS: usize = 401;

fn main() {
    let path = launch_path();
    let memory = memory();
    let allocated = launch_allocations();
    let threads = threads();
    let lock = path.net("lock", "nothing");
    let ours = path.net("three and four", "raw three");
    let load = path.net("16 loads", "1 load") / 15.0;
    let extra = path.net("16 buffers", "raw 16") - path.net("1 buffer", "raw 1");
    let answer = json!({
        "bookkeeping_over_lock": round(ours / lock),
        "extra_buffer_over_load": round(extra / 15.0 / load),
        "locked_phase_over_ours": round(path.net("locked phase", "raw three") / ours),
        "event_per_arg_over_ours": round(path.net("event per argument", "raw three") / ours),
        "bytes_per_launch": allocated.0,
        "allocs_per_launch": allocated.1,
        "threads2_over_1": round(threads),
        "drop_over_push": round(memory.median("drop busy") / memory.median("push")),
        "rewrap_over_lookup": round(memory.median("wrap live") / memory.median("look up")),
        "sim_ops_per_s": Value::Null,
        "schedules_per_s": Value::Null,
        "beside": {
            "locked_in_place_over_ours": round(path.net("locked in place", "raw three") / ours),
            "unlocked_over_ours": round(path.net("unlocked", "raw three") / ours),
            "cas_over_lock": round(path.net("cas", "nothing") / lock),
            "no_arguments_over_lock": round(path.net("no arguments", "raw none") / lock),
            "drop_busy_within_200_ns": memory.median("drop busy") <= 200.0,
            "wrap_live_within_100_ns": memory.median("wrap live") <= 100.0,
        },
        "medians_ns": medians([&path, &memory]),
    });
    match std::env::args().any(|argument| argument == "--json") {
        true => println!("{answer}"),
        false => println!("{answer:#}"),
    }
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn medians<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Value {
    let medians = outcomes.into_iter().flat_map(Outcome::medians);
    Value::Object(medians.map(|(name, time)| (name.to_owned(), json!((time * 100.0).round() / 100.0))).collect())
}

/// The launch path beside its rivals and its floor.
fn launch_path() -> Outcome {
    let bed = Bed::new(Null::default());
    let priced = Bed::new(Null::with_costs(Costs::MEASURED));
    let stream = bed.stream();
    let (rivals, priced_rivals) = (Rivals::new(&bed), Rivals::new(&priced));
    let (mut three, sixteen, one) = (bed.buffers(&stream), bed.buffers(&stream), bed.buffers::<1>(&stream));
    let words: Vec<_> = (0..16).map(|_| Box::new(AtomicU64::new(1))).collect();
    let words: Vec<&AtomicU64> = words.iter().map(|word| &**word).collect();
    let (lock, word) = (Lock::default(), Word::default());
    let (bed, stream) = (&bed, &stream);
    Contest::new()
        .entrant("nothing", 2000, |n| (0..n).for_each(|i| drop(black_box(i))))
        .entrant("lock", 2000, |n| (0..n).for_each(|i| { black_box(i); lock.pass() }))
        .entrant("cas", 2000, |n| (0..n).for_each(|i| { black_box(i); word.pass() }))
        .entrant("1 load", 2000, |n| (0..n).for_each(|_| drop(black_box(loads(black_box(&words[..1]))))))
        .entrant("16 loads", 2000, |n| (0..n).for_each(|_| drop(black_box(loads(black_box(&words[..]))))))
        .entrant("raw none", 2000, |n| (0..n).for_each(|_| bed.raw_launch(black_box(&[]))))
        .entrant("no arguments", 2000, |n| (0..n).for_each(|_| expect(stream.launch(&bed.empty, CONFIG, ()))))
        .entrant("raw 1", 2000, |n| (0..n).for_each(|_| bed.raw_launch(&black_box([1]).map(tenure_benches::bed::pointer))))
        .entrant("1 buffer", 2000, |n| (0..n).for_each(|_| expect(stream.launch(&bed.one, CONFIG, (&one[0],)))))
        .entrant("raw three", 2000, |n| (0..n).for_each(|_| raw_three(bed, black_box([1, 2, 3]))))
        .entrant("three and four", 2000, |n| (0..n).for_each(|_| launch_three(bed, stream, &mut three)))
        .entrant("raw 16", 2000, |n| (0..n).for_each(|_| raw_sixteen(bed, black_box(&[7; 16]))))
        .entrant("16 buffers", 2000, |n| (0..n).for_each(|_| launch_sixteen(bed, stream, &sixteen)))
        .entrant("locked phase", 1000, |n| (0..n).for_each(|_| rivals.locked(bed)))
        .entrant("locked in place", 1000, |n| (0..n).for_each(|_| rivals.locked_in_place(bed)))
        .entrant("unlocked", 2000, |n| (0..n).for_each(|_| rivals.unlocked(bed)))
        .entrant("event per argument", 50, |n| (0..n).for_each(|_| priced_rivals.event_per_argument(&priced)))
        .run(ROUNDS)
}

/// Dropping and wrapping, beside a push and a look-up.
fn memory() -> Outcome {
    const BATCH: u64 = 200;
    let bed = Bed::new(Null::default());
    let stream = bed.stream();
    let mut memory = vec![0_u8; 4096];
    let start = NonNull::from(&mut memory[..]).cast::<u8>();
    let wrap = || {
        // SAFETY: `memory` outlives the runtime, and nothing touches it meanwhile.
        expect(unsafe { bed.runtime.wrap_raw(start, 4096) })
    };
    let kept = wrap();
    let queue = parking_lot::Mutex::new(Vec::with_capacity(4096));
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let mut buffers: Vec<Floats> = (0..BATCH).map(|_| expect(stream.alloc(16))).collect();
        let wraps = Vec::with_capacity(BATCH as usize);
        bed.driver.set_busy(true);
        for buffer in &mut buffers {
            expect(stream.launch(&bed.write, CONFIG, (buffer,)));
        }
        let push = time(BATCH, || (0..BATCH).for_each(|i| queue.lock().push(i)));
        let drops = time(BATCH, || buffers.clear());
        let look = time(BATCH, || (0..BATCH).for_each(|_| drop(black_box(bed.runtime.is_pinned(black_box(start.as_ptr()))))));
        let mut wraps = wraps;
        let wrapping = time(BATCH, || (0..BATCH).for_each(|_| wraps.push(wrap())));
        let unwrapping = time(BATCH, || wraps.clear());
        queue.lock().clear();
        bed.driver.set_busy(false);
        bed.runtime.poll();
        if round > 0 {
            rounds.push([push, drops, look, wrapping, unwrapping]);
        }
    }
    drop(kept);
    Outcome::from_columns(["push", "drop busy", "look up", "wrap live", "drop wrap"], &rounds)
}

fn time(times: u64, body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    start.elapsed().as_nanos() as f64 / times as f64
}

/// Bytes and calls of the allocator a launch of the quoted shape.
fn launch_allocations() -> (f64, f64) {
    const LAUNCHES: u64 = 10_000;
    let bed = Bed::new(Null::default());
    let stream = bed.stream();
    let mut buffers = bed.buffers(&stream);
    let allocated = allocations(|| (0..LAUNCHES).for_each(|_| launch_three(&bed, &stream, &mut buffers)));
    (allocated.bytes as f64 / LAUNCHES as f64, allocated.calls as f64 / LAUNCHES as f64)
}

/// What a launch costs one of two threads that share nothing but the runtime, over what it costs one alone.
fn threads() -> f64 {
    let bed = Bed::new(Null::default());
    let (first, second) = (bed.stream(), bed.stream());
    let (mut ours, mut theirs) = (bed.buffers(&first), bed.buffers(&second));
    let (alone, together) = (Barrier::new(2), Barrier::new(2));
    let launch = |stream: &Stream<Null>, buffers: &mut [Floats; 3]| {
        time(20_000, || (0..20_000).for_each(|_| launch_three(&bed, stream, buffers)))
    };
    let rounds = 101;
    let mut ratios = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                alone.wait();
                together.wait();
                launch(&second, &mut theirs);
            }
        });
        for _ in 0..rounds {
            let single = launch(&first, &mut ours);
            alone.wait();
            together.wait();
            ratios.push(launch(&first, &mut ours) / single);
        }
    });
    median(ratios)
}
