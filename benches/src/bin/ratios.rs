//! The ratios that matter, from one run: `cargo run --release -p tenure-benches --bin ratios -- --json`.

use serde_json::{Value, json};
use tenure_benches::bed::{Bed, launch_three};
use tenure_benches::contest::{Outcome, load};
use tenure_benches::counting::{Counting, allocations};
use tenure_benches::measure::{
    SHARINGS, THREADS, growth, launch_among, launch_path, memory, simulated_operations, simulated_schedules,
};
use tenure_benches::null::Null;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let path = launch_path();
    let memory = memory(0, 401);
    let allocated = launch_allocations();
    let lock = path.net("lock", "nothing");
    let ours = path.net("three and four", "raw three");
    let load = load(|name, base| path.net(name, base));
    let extra = path.net("16 buffers", "raw 16") - path.net("1 buffer", "raw 1");
    let answer = json!({
        "bookkeeping_over_lock": round(ours / lock),
        "extra_buffer_over_load": round(extra / 15.0 / load),
        "locked_phase_over_ours": round(path.net("locked phase", "raw three") / ours),
        "event_per_arg_over_ours": round(path.net("event per argument", "raw three") / ours),
        "bytes_per_launch": allocated.0,
        "allocs_per_launch": allocated.1,
        "threads2_over_1": round(growth(2)),
        "drop_over_push": round(memory.median("drop busy") / memory.median("push")),
        "rewrap_over_lookup": round(memory.median("wrap live") / memory.median("look up")),
        "sim_ops_per_s": simulated_operations().round(),
        "schedules_per_s": simulated_schedules().round(),
        "beside": {
            "locked_in_place_over_ours": round(path.net("locked in place", "raw three") / ours),
            "unlocked_over_ours": round(path.net("unlocked", "raw three") / ours),
            "cas_over_lock": round(path.net("cas", "nothing") / lock),
            "no_arguments_over_lock": round(path.net("no arguments", "raw none") / lock),
            "threads16_over_1": round(growth(16)),
            "threads_ns": threads_each(),
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

/// Nanoseconds of one launch on one processor, for each number of threads and each thing that they share.
fn threads_each() -> Value {
    let each = |sharing| json!(THREADS.map(|threads| round(launch_among(sharing, threads, 9))));
    Value::Object(SHARINGS.iter().map(|(name, sharing)| ((*name).to_owned(), each(*sharing))).collect())
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn medians<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Value {
    let medians = outcomes.into_iter().flat_map(Outcome::medians);
    Value::Object(medians.map(|(name, time)| (name.to_owned(), json!((time * 100.0).round() / 100.0))).collect())
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
