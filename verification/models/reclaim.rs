//! Reclaim: the worker's signal, host functions, and exactly one release: O6, R1, R2, E5.

use super::checker::spawn;
use super::device::Device;
use super::ownership::{BYTES, Buffer, World};
use super::tenure::call_scope::MayWait;
use super::tenure::context::Context;
use super::tenure::driver::{Call, Capabilities};
use super::tenure::ownership::Access::{Read, Write};
use super::tenure::ownership::{Point, Points, Record};
use super::tenure::reclaim::{Ask, Reclaim, Resource, Retired};
use super::tenure::registration::Pins;
use super::tenure::sync::{Arc, thread};
use super::{Model, Reached, Search};

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "r2_no_signal_is_lost",
        claim: "A worker that sleeps when there is nothing to do is woken by a drop and by a host function, and releases.",
        lines: &["R2", "O6"],
        threads: 2,
        operations: "a worker's loop; 1 retire of a kept thing with work pending, 1 run of the host function",
        bound: Some(3),
        search: Search::Sample(1_000),
        leaves_out: "the tick: only the signal wakes",
        reaches: &["a host function told"],
        body: signal,
    },
    Model {
        name: "o6_memory_is_freed_once",
        claim: "Two threads that take turns free retired memory once, after the work on it.",
        lines: &["O6", "R1"],
        threads: 2,
        operations: "1 retire and 1 turn; 1 turn",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "plain memory, freed when it is complete",
        reaches: &["it was freed in a turn"],
        body: freed_once,
    },
    Model {
        name: "p11_tick_finds_what_no_function_tells",
        claim: "Where a host function never runs, the tick asks the stream beside other turns, and the thing is released once.",
        lines: &["P11", "R2"],
        threads: 2,
        operations: "1 turn that arms; 1 tick; then 1 tick",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "plain memory",
        reaches: &["a host function was left unheard"],
        body: tick,
    },
    Model {
        name: "o9_free_waits_for_two_readers",
        claim: "Memory that two streams read is freed after both, in the order of the one that is not known to be done, beside a wait for the other.",
        lines: &["O9", "O6"],
        threads: 2,
        operations: "1 wait for one reading stream; 1 retire and 1 turn; then 1 turn",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the worker",
        reaches: &["it was freed in a stream's order"],
        body: two_readers,
    },
];

fn signal(reached: &Reached) {
    // setup: work on a stream, and a thing that must outlive it
    let world = Arc::new(World::new());
    let (pins, reclaim) = (Arc::new(Pins::<Device>::new()), Arc::new(Reclaim::<Device>::new()));
    let stream = world.stream();
    let x = world.buffer();
    let number = world.launch(&stream, &[(&x, Write)]);
    // threads
    let worker = thread::spawn("worker", {
        let (world, pins, reclaim) = (world.clone(), pins.clone(), reclaim.clone());
        move || {
            // The driver's side of this model runs here once there is a function, so that only the signal is in question.
            loop {
                let signalled = reclaim.signal.take();
                let left = reclaim.turn(&world.context, &pins, Ask::Arm).total();
                if left == 0 && reclaim.figures.released.load(std::sync::atomic::Ordering::Relaxed) == 1 {
                    return;
                }
                if !signalled {
                    thread::park();
                }
            }
        }
    });
    let worker = worker.expect("there is a thread");
    // As the runtime does: named by who starts it, before anybody can let go of anything.
    reclaim.signal.attend(worker.thread().clone());
    worker.thread().unpark();
    let mut points = Points::new();
    points.push(Point { stream: stream.clone(), number });
    reclaim.retire(Retired { resource: Resource::Kept(Box::new(())), points });
    let mut told = 0;
    while told == 0 {
        told = world.device.run_host_functions();
        if told == 0 {
            super::checker::yield_now();
        }
    }
    // join
    worker.join().unwrap();
    // claim: the worker ended, so no signal was lost
    reached.mark("a host function told");
}

fn freed_once(reached: &Reached) {
    // setup: a device without stream-ordered memory
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let device = Device::new(capabilities);
    let world = Arc::new(World { context: Context::new(device.clone()), device });
    let (pins, reclaim) = (Arc::new(Pins::<Device>::new()), Arc::new(Reclaim::<Device>::new()));
    let stream = world.stream();
    let x = world.buffer();
    let number = world.launch(&stream, &[(&x, Write)]);
    // threads
    let other = spawn({
        let (world, pins, reclaim) = (world.clone(), pins.clone(), reclaim.clone());
        move || reclaim.turn(&world.context, &pins, Ask::Query)
    });
    let mut points = Points::new();
    points.push(Point { stream: stream.clone(), number });
    world.device.without_calls("R1: a drop made a driver call", &[], || {
        reclaim.retire(Retired { resource: Resource::Memory(x.address), points });
    });
    reclaim.turn(&world.context, &pins, Ask::Query);
    // join
    other.join().unwrap();
    // claim
    let early = world.device.count(Call::FreeAsync) + world.device.count(Call::Free);
    reached.mark_if(early == 1, "it was freed in a turn");
    reclaim.turn(&world.context, &pins, Ask::Query);
    let freed = world.device.count(Call::FreeAsync) + world.device.count(Call::Free);
    assert_eq!(freed, 1, "O6: memory was freed not once");
}

/// A device without stream-ordered memory, so that a free waits for its work.
fn plain() -> Arc<World> {
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let device = Device::new(capabilities);
    Arc::new(World { context: Context::new(device.clone()), device })
}

fn two_readers(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (pins, reclaim) = (Pins::<Device>::new(), Reclaim::<Device>::new());
    let (one, other) = (world.stream(), world.stream());
    let x = Buffer { record: Record::new(), address: world.device.ordered_memory(BYTES) };
    let numbers = [&one, &other].map(|stream| world.launch(stream, &[(&x, Read)]));
    let mut points = Points::new();
    points.push(Point { stream: one.clone(), number: numbers[0] });
    points.push(Point { stream: other, number: numbers[1] });
    // threads
    let waiter = spawn({
        let world = world.clone();
        move || one.wait(&world.context, numbers[0], &mut MayWait::here().expect("no hold")).is_ok()
    });
    reclaim.retire(Retired { resource: Resource::Memory(x.address), points });
    reclaim.turn(&world.context, &pins, Ask::Arm);
    let early = world.device.count(Call::FreeAsync) == 1;
    // join
    assert!(waiter.join().unwrap(), "O3: a wait failed though the driver accepts all");
    // claim: the device, at the free
    reached.mark_if(early, "it was freed in a stream's order");
    reclaim.turn(&world.context, &pins, Ask::Query);
    assert_eq!(world.device.count(Call::FreeAsync), 1, "O6: memory was freed not once");
}

fn tick(reached: &Reached) {
    // setup: memory waits for a stream
    let world = plain();
    let (pins, reclaim) = (Arc::new(Pins::<Device>::new()), Arc::new(Reclaim::<Device>::new()));
    let stream = world.stream();
    let x = world.buffer();
    let number = world.launch(&stream, &[(&x, Write)]);
    let mut points = Points::new();
    points.push(Point { stream: stream.clone(), number });
    reclaim.retire(Retired { resource: Resource::Memory(x.address), points });
    // threads
    let arming = spawn({
        let (world, pins, reclaim) = (world.clone(), pins.clone(), reclaim.clone());
        move || reclaim.turn(&world.context, &pins, Ask::Arm)
    });
    reclaim.turn(&world.context, &pins, Ask::Both);
    // join
    arming.join().unwrap();
    reclaim.turn(&world.context, &pins, Ask::Both);
    // claim: no host function ever ran
    reached.mark_if(world.device.host_functions() > 0, "a host function was left unheard");
    assert_eq!(world.device.count(Call::Free), 1, "P11: what no host function tells is never released");
}
