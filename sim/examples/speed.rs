//! How fast the simulator is, on one core, checkers on.
//!
//! `cargo run --release -p tenure-sim --example speed`

use std::time::Instant;
use tenure::driver::{Argument, Driver, Image, LaunchConfig, Location, Priority, Timing};
use tenure_sim::Config;
use tenure_sim::driver::Sim;
use tenure_sim::kernel::{Read, Write};

const OPERATIONS: u64 = 1_000_000;
const SCHEDULES: u64 = 50_000;
const BYTES: u64 = 64;

fn main() {
    println!("{:>12.0} operations/s: launches and fills on four streams, edges between", operations());
    println!("{:>12.0} schedules/s: two host threads, ten steps, coroutines", schedules(Config::default().fibers()));
    println!("{:>12.0} schedules/s: the same, threads of the system", schedules_of_threads());
}

/// Seeded, checkers on: launches on four streams, each eighth with an edge; operations a second.
fn operations() -> f64 {
    let sim = Sim::builder().seed(1).build();
    sim.kernel("add", |x: Read<'_, u32>, mut y: Write<'_, u32>| {
        y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = y.wrapping_add(*x));
    });
    let module = sim.module_load(Image::Source("")).expect("it loads");
    let add = sim.function(&module, "add").expect("it was added");
    let create = |_| sim.stream_create(Priority::Normal).expect("streams can be made");
    let streams: Vec<_> = (0..4).map(create).collect();
    let x = sim.malloc(BYTES).expect("there is room");
    // SAFETY: the memory is never freed.
    unsafe { sim.fill(&streams[0], x, 1, BYTES) }.expect("the device works");
    sim.stream_synchronize(&streams[0]).expect("the device works");
    let y: Vec<_> = (0..4).map(|_| sim.malloc(BYTES).expect("there is room")).collect();
    for (stream, y) in streams.iter().zip(&y) {
        // SAFETY: as above.
        unsafe { sim.fill(stream, *y, 0, BYTES) }.expect("the device works");
    }
    let event = sim.event_create(Timing::Disabled).expect("events can be made");
    let config = LaunchConfig::linear(16);
    let begin = Instant::now();
    let mut made = 0;
    while made < OPERATIONS {
        let index = made as usize % 4;
        let arguments =
            [Argument::Pointer { address: x, bytes: BYTES }, Argument::Pointer { address: y[index], bytes: BYTES }];
        // SAFETY: the memory is never freed, and the kernel takes two pointers.
        unsafe { sim.launch(&streams[index], &add, &config, &arguments) }.expect("the device works");
        made += 1;
        if made % 8 == 0 {
            sim.event_record(&event, &streams[index]).expect("the device works");
            sim.stream_wait_event(&streams[(index + 1) % 4], &event).expect("the device works");
            made += 2;
        }
    }
    sim.run_to_idle();
    let rate = made as f64 / begin.elapsed().as_secs_f64();
    assert!(sim.report().is_clean(), "{}", sim.report());
    rate
}

fn schedules_of_threads() -> f64 {
    let begin = Instant::now();
    run(Config::default(), 2_000);
    2_000.0 / begin.elapsed().as_secs_f64()
}

fn schedules(config: Config) -> f64 {
    let begin = Instant::now();
    run(config, SCHEDULES);
    SCHEDULES as f64 / begin.elapsed().as_secs_f64()
}

fn run(config: Config, schedules: u64) {
    let outcome = config.schedules(schedules).run(scenario);
    assert!(outcome.failure.is_none(), "{}", outcome.failure.expect("checked"));
    assert_eq!(outcome.schedules, schedules);
}

/// Ten steps on two threads: allocate, write, hand over, copy, read back, free.
fn scenario(sim: &Sim) {
    let x = sim.malloc(BYTES).expect("there is room");
    let y = sim.malloc(BYTES).expect("there is room");
    let device = sim.clone();
    let thread = sim.spawn("writer", move || {
        let a = device.stream_create(Priority::Normal).expect("streams can be made");
        // SAFETY: the memory lives until the join of this thread and beyond.
        unsafe { device.fill(&a, x, 7, BYTES) }.expect("the device works");
        device.stream_synchronize(&a).expect("the device works");
        // SAFETY: nobody else knows the stream.
        unsafe { device.stream_destroy(&a) }.expect("the device works");
    });
    thread.join();
    let b = sim.stream_create(Priority::Normal).expect("streams can be made");
    // SAFETY: both live until after the synchronize.
    unsafe { sim.copy(&b, Location::Device(y), Location::Device(x), BYTES) }.expect("the device works");
    sim.stream_synchronize(&b).expect("the device works");
    // SAFETY: all work has completed, and nobody else knows them.
    unsafe { sim.free(x) }.expect("nothing uses it");
    // SAFETY: as above.
    unsafe { sim.free(y) }.expect("nothing uses it");
    // SAFETY: as above.
    unsafe { sim.stream_destroy(&b) }.expect("the device works");
}
