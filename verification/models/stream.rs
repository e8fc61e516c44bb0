//! The stream pool and its guests: S1 to S3, S5 to S7.
//!
//! The device checks: a stream that is handed out is idle (S2), and from then on nobody but its holder puts anything on it (S3).

use super::capture::{buffers, drain, manual};
use super::checker::spawn;
use super::ownership::{BYTES, Buffer, World};
use super::tenure::call_scope::MayWait;
use super::tenure::context::Context;
use super::tenure::driver::{Call, Capabilities, ErrorKind, Priority};
use super::tenure::id::StreamId;
use super::tenure::ownership::Access::{Read, Write};
use super::tenure::ownership::{Point, Points, Record};
use super::tenure::pool::Pool;
use super::tenure::reclaim::{Ask, Reclaim, Resource, Retired};
use super::tenure::registration::Pins;
use super::tenure::sync::Arc;
use super::tenure::sync::atomic::{AtomicU64, Ordering};
use super::tenure::{Event, Queue, Readable, Stream};
use super::{Model, Reached, Search};

use super::device::Device;

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "s1_two_claims_never_share",
        claim: "Two claims beside one returned stream get two streams, and make no more than two.",
        lines: &["S1", "S5"],
        threads: 2,
        operations: "1 claim each",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["the returned stream was handed out again"],
        body: two_claims,
    },
    Model {
        name: "s3_stale_buffer_beside_claim",
        claim: "A buffer last used under a lease that ended puts nothing on its stream once another claim holds it.",
        lines: &["S2", "S3"],
        threads: 2,
        operations: "1 claim; 1 write that moves the stale buffer to another stream",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["the stream changed hands", "the mover came first"],
        body: stale_buffer,
    },
    Model {
        name: "s3_stale_host_wait_beside_claim",
        claim: "A host read of a buffer last used under a lease that ended is a guest there, or finds it finished.",
        lines: &["S2", "S3", "O3"],
        threads: 2,
        operations: "1 claim; 1 host read of the stale buffer",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["the read made no driver call"],
        body: stale_host_wait,
    },
    Model {
        name: "s6_trim_beside_guest",
        claim: "A stream is not destroyed while a guest uses it, and a destroyed one reads as finished.",
        lines: &["S6"],
        threads: 2,
        operations: "1 trim; 1 write that moves a buffer last used there",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["the stream was destroyed", "the stream was kept"],
        body: trim_beside_guest,
    },
    Model {
        name: "s2_busy_stream_is_not_claimed",
        claim: "A claim beside the end of the work on a returned stream gets that stream only after an idle answer.",
        lines: &["S2"],
        threads: 2,
        operations: "1 claim; the work may end",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["the busy stream was left", "the idle stream was taken"],
        body: busy_stream,
    },
    Model {
        name: "s5_failed_creation_leaves_the_pool",
        claim: "A creation that fails beside another claim leaves room for as many streams as before.",
        lines: &["S5"],
        threads: 2,
        operations: "1 claim each, the first creation fails",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["one claim failed"],
        body: failed_creation,
    },
    Model {
        name: "s7_stream_that_a_guest_broke_is_not_claimed",
        claim: "A stream on which a guest's wait failed is not handed out to a claim that comes after, nor to one beside it.",
        lines: &["S7"],
        threads: 2,
        operations: "1 host wait that fails; 1 claim",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority; the error is not sticky, so that the driver itself goes on",
        reaches: &["the wait failed", "the claim came first"],
        body: broken_by_guest,
    },
    Model {
        name: "s3_ordered_free_beside_claim",
        claim: "A free in the order of a stream whose lease has ended is a guest there, or goes elsewhere once another claim holds it.",
        lines: &["S3", "S2", "O6", "P7"],
        threads: 2,
        operations: "1 claim and 1 write; 1 drop and 1 turn",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["it was freed on the stream", "it was freed elsewhere"],
        body: ordered_free,
    },
    Model {
        name: "s3_host_function_beside_claim",
        claim: "A turn that leaves a host function on a stream whose lease has ended is a guest there, or finds it finished.",
        lines: &["S3", "S2", "R2"],
        threads: 2,
        operations: "1 claim and 1 write; 1 turn that arms",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority; plain memory",
        reaches: &["a host function was left there", "the stream was found finished"],
        body: arm_beside_claim,
    },
    Model {
        name: "s6_turn_beside_trim",
        claim: "A turn that asks a stream whose lease has ended makes no call on it once a trim has destroyed it.",
        lines: &["S6", "P11"],
        threads: 2,
        operations: "1 trim; 1 turn that asks",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority; plain memory",
        reaches: &["the stream was destroyed", "the stream was kept"],
        body: turn_beside_trim,
    },
    Model {
        name: "s6_event_query_beside_trim",
        claim: "A question about an event on a stream whose lease has ended follows it to no stream that a trim has destroyed.",
        lines: &["S6"],
        threads: 2,
        operations: "1 trim; 1 question",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["the stream was destroyed", "the stream was kept"],
        body: event_query_beside_trim,
    },
    Model {
        name: "s6_event_wait_beside_trim",
        claim: "A wait for an event on a stream whose lease has ended follows it to no stream that a trim has destroyed.",
        lines: &["S6"],
        threads: 2,
        operations: "1 trim; 1 wait",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["the stream was destroyed", "the stream was kept"],
        body: event_wait_beside_trim,
    },
    Model {
        name: "s6_event_order_beside_trim",
        claim: "An edge from an event on a stream whose lease has ended follows it to no stream that a trim has destroyed.",
        lines: &["S6"],
        threads: 2,
        operations: "1 trim; 1 edge",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "one priority",
        reaches: &["the stream was destroyed", "the stream was kept"],
        body: event_order_beside_trim,
    },
    Model {
        name: "o2_event_proves_its_own_place",
        claim: "Who waits for an event, or asks, learns of what came before it, and of nothing that is submitted beside.",
        lines: &["O2"],
        threads: 2,
        operations: "1 write on the event's stream; 1 wait for the event",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "plain memory",
        reaches: &["the write came first", "the wait came first"],
        body: event_beside_launch,
    },
    Model {
        name: "o1_event_orders_its_own_place",
        claim: "An edge from an event orders what came before it, and stands for nothing that is submitted beside.",
        lines: &["O1"],
        threads: 2,
        operations: "1 write on the event's stream; 1 edge from the event; then a write behind it of what the first wrote",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "plain memory",
        reaches: &["the write came first", "the edge came first"],
        body: event_order_beside_launch,
    },
    Model {
        name: "o2_event_is_complete_with_its_record",
        claim: "An event is called complete only when its own record is, beside who finds its stream idle.",
        lines: &["O2"],
        threads: 2,
        operations: "1 wait for the stream; 1 record, 1 question, and its time",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "times are not measured: the device looks whether they are there",
        reaches: &["it was known to be complete"],
        body: event_beside_wait,
    },
    Model {
        name: "s7_edge_from_a_broken_stream",
        claim: "Work that would have to wait for a stream that was given up fails, and nothing is enqueued behind it, beside who gives it up.",
        lines: &["S7", "P11", "O1"],
        threads: 2,
        operations: "1 host wait that fails; 1 write elsewhere",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the error is not sticky, so that the driver itself goes on",
        reaches: &["the write was refused", "the write came first"],
        body: edge_from_broken,
    },
];

/// The next holder of a stream: claims one, launches on it, and gives it back.
fn claim_and_launch(world: &World, pool: &Pool<Device>) -> StreamId {
    let stream = pool.claim(&world.context, Priority::Normal).expect("the pool may make two streams");
    world.device.handed_out(&stream.raw);
    let y = world.buffer();
    world.launch(&stream, &[(&y, Write)]);
    world.device.given_back(&stream.raw);
    stream.id()
}

/// Plain memory that was last used on a stream whose lease has ended, let go, and who releases it.
struct Stale {
    world: Arc<World>,
    pool: Arc<Pool<Device>>,
    pins: Pins<Device>,
    reclaim: Reclaim<Device>,
}

impl Stale {
    fn new() -> Self {
        let mut capabilities = Capabilities::default();
        capabilities.stream_ordered_memory = false;
        let device = Device::new(capabilities);
        let world = Arc::new(World { context: Context::new(device.clone()), device });
        let pool = Arc::new(Pool::<Device>::new(2));
        let old = pool.claim(&world.context, Priority::Normal).expect("the pool may make a stream");
        let x = world.buffer();
        let mut points = Points::new();
        points.push(Point { number: world.launch(&old, &[(&x, Write)]), stream: old.clone() });
        pool.give(old);
        let reclaim = Reclaim::new();
        reclaim.retire(Retired { resource: Resource::Memory(x.address), points });
        Self { world, pool, pins: Pins::new(), reclaim }
    }

    fn turn(&self, ask: Ask) {
        self.reclaim.turn(&self.world.context, &self.pins, ask);
    }
}

fn two_claims(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let pool = Arc::new(Pool::<Device>::new(2));
    let first = pool.claim(&world.context, Priority::Normal).expect("the pool may make a stream");
    pool.give(first);
    // threads
    let claim = |world: &World, pool: &Pool<Device>| {
        let stream = pool.claim(&world.context, Priority::Normal).expect("S5: two streams are enough for two claims");
        world.device.handed_out(&stream.raw);
        stream
    };
    let other = spawn({
        let (world, pool) = (world.clone(), pool.clone());
        move || claim(&world, &pool)
    });
    let mine = claim(&world, &pool);
    // join
    let other = other.join().unwrap();
    // claim
    assert_ne!(mine.id(), other.id(), "S1: two live leases hold one stream");
    let made = pool.figures().made;
    assert!(made <= 2, "S5: more streams were made than leases lived");
    reached.mark_if(made == 2 && world.device.count(Call::StreamQuery) > 0, "the returned stream was handed out again");
}

fn stale_buffer(reached: &Reached) {
    // setup: X was written under a lease that has ended
    let world = Arc::new(World::new());
    let pool = Arc::new(Pool::<Device>::new(2));
    let old = pool.claim(&world.context, Priority::Normal).expect("the pool may make a stream");
    let id = old.id();
    let x = Arc::new(world.buffer());
    world.launch(&old, &[(&x, Write)]);
    pool.give(old);
    let other = world.stream();
    // threads: the new holder puts its own work on the stream
    let claimer = spawn({
        let (world, pool) = (world.clone(), pool.clone());
        move || claim_and_launch(&world, &pool)
    });
    world.launch(&other, &[(&x, Write)]);
    // join
    let claimed = claimer.join().unwrap();
    // claim: the device
    reached.mark_if(claimed == id, "the stream changed hands");
    reached.mark_if(world.device.count(Call::StreamWaitEvent) == 1, "the mover came first");
}

fn stale_host_wait(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let pool = Arc::new(Pool::<Device>::new(2));
    let old = pool.claim(&world.context, Priority::Normal).expect("the pool may make a stream");
    let x = Arc::new(world.buffer());
    world.launch(&old, &[(&x, Write)]);
    pool.give(old);
    // threads
    let claimer = spawn({
        let (world, pool) = (world.clone(), pool.clone());
        move || claim_and_launch(&world, &pool)
    });
    world.host_reads(&x);
    // join
    claimer.join().unwrap();
    // claim: the device
    reached.mark_if(world.device.count(Call::StreamSynchronize) == 0, "the read made no driver call");
}

fn trim_beside_guest(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let pool = Arc::new(Pool::<Device>::new(2));
    let old = pool.claim(&world.context, Priority::Normal).expect("the pool may make a stream");
    let x = Arc::new(world.buffer());
    world.launch(&old, &[(&x, Read)]);
    pool.give(old);
    let other = world.stream();
    // threads
    let trimmer = spawn({
        let (world, pool) = (world.clone(), pool.clone());
        move || pool.trim(&world.context)
    });
    world.launch(&other, &[(&x, Write)]);
    // join
    let destroyed = trimmer.join().unwrap();
    // claim: the device knows a call on a destroyed stream
    reached.mark_if(destroyed == 1, "the stream was destroyed");
    reached.mark_if(destroyed == 0, "the stream was kept");
}

fn busy_stream(reached: &Reached) {
    // setup: a returned stream with work that does not end yet
    let world = Arc::new(World::new());
    let pool = Arc::new(Pool::<Device>::new(2));
    let old = pool.claim(&world.context, Priority::Normal).expect("the pool may make a stream");
    let x = world.buffer();
    world.launch(&old, &[(&x, Write)]);
    world.device.hold(&old.raw);
    pool.give(old.clone());
    // threads
    let claimer = spawn({
        let (world, pool) = (world.clone(), pool.clone());
        move || {
            let stream = pool.claim(&world.context, Priority::Normal).expect("the pool may make two streams");
            world.device.handed_out(&stream.raw);
            stream.id()
        }
    });
    let touch = world.stream();
    world.launch(&touch, &[]);
    world.device.let_go(&old.raw);
    world.launch(&touch, &[]);
    // join
    let claimed = claimer.join().unwrap();
    // claim: the device
    reached.mark_if(claimed != old.id(), "the busy stream was left");
    reached.mark_if(claimed == old.id(), "the idle stream was taken");
}

fn failed_creation(reached: &Reached) {
    // setup: room for two
    let world = Arc::new(World::new());
    let pool = Arc::new(Pool::<Device>::new(2));
    world.device.fail(Call::StreamCreate, ErrorKind::OutOfMemory, 0);
    // threads
    let other = spawn({
        let (world, pool) = (world.clone(), pool.clone());
        move || pool.claim(&world.context, Priority::Normal).is_ok()
    });
    let mine = pool.claim(&world.context, Priority::Normal).is_ok();
    // join
    let other = other.join().unwrap();
    // claim: a claim that failed left its room
    assert_ne!(mine, other, "S5: exactly the refused creation fails");
    let again = pool.claim(&world.context, Priority::Normal).is_ok();
    assert!(again, "S5: a failed creation took room in the pool forever");
    assert_eq!(pool.figures().alive, 2, "S5: a failed creation was counted as a stream");
    reached.mark("one claim failed");
}

fn ordered_free(reached: &Reached) {
    // setup: X was written under a lease that has ended, and is let go
    let world = Arc::new(World::new());
    let (pins, reclaim) = (Pins::<Device>::new(), Reclaim::<Device>::new());
    let pool = Arc::new(Pool::<Device>::new(2));
    let old = pool.claim(&world.context, Priority::Normal).expect("the pool may make a stream");
    let x = Buffer { record: Record::new(), address: world.device.ordered_memory(BYTES) };
    let mut points = Points::new();
    points.push(Point { number: world.launch(&old, &[(&x, Write)]), stream: old.clone() });
    pool.give(old);
    // threads
    let claimer = spawn({
        let (world, pool) = (world.clone(), pool.clone());
        move || claim_and_launch(&world, &pool)
    });
    reclaim.retire(Retired { resource: Resource::Memory(x.address), points });
    reclaim.turn(&world.context, &pins, Ask::Query);
    let elsewhere = world.device.count(Call::StreamCreate) > 1;
    // join
    claimer.join().unwrap();
    // claim: the device, and
    assert_eq!(world.device.count(Call::FreeAsync), 1, "O6: memory was freed not once");
    reached.mark_if(!elsewhere, "it was freed on the stream");
    reached.mark_if(elsewhere, "it was freed elsewhere");
}

fn arm_beside_claim(reached: &Reached) {
    // setup
    let stale = Stale::new();
    // threads
    let claimer = spawn({
        let (world, pool) = (stale.world.clone(), stale.pool.clone());
        move || claim_and_launch(&world, &pool)
    });
    stale.turn(Ask::Arm);
    let armed = stale.world.device.count(Call::LaunchHostFunction);
    // join
    claimer.join().unwrap();
    // claim: the device
    reached.mark_if(armed == 1, "a host function was left there");
    reached.mark_if(armed == 0, "the stream was found finished");
    stale.world.device.run_host_functions();
    stale.turn(Ask::Query);
    assert_eq!(stale.world.device.count(Call::Free), 1, "O6: memory was freed not once");
}

fn turn_beside_trim(reached: &Reached) {
    // setup
    let stale = Stale::new();
    // threads
    let trimmer = spawn({
        let (world, pool) = (stale.world.clone(), stale.pool.clone());
        move || pool.trim(&world.context)
    });
    stale.turn(Ask::Query);
    // join
    let destroyed = trimmer.join().unwrap();
    // claim: the device knows a call on a destroyed stream
    reached.mark_if(destroyed == 1, "the stream was destroyed");
    reached.mark_if(destroyed == 0, "the stream was kept");
    stale.turn(Ask::Query);
    assert_eq!(stale.world.device.count(Call::Free), 1, "O6: memory was freed not once");
}

fn event_query_beside_trim(reached: &Reached) {
    event_beside_trim(reached, |event, _| {
        event.is_complete().expect("the driver accepts all");
    });
}

fn event_wait_beside_trim(reached: &Reached) {
    event_beside_trim(reached, |event, _| event.synchronize().expect("the driver accepts all"));
}

fn event_order_beside_trim(reached: &Reached) {
    event_beside_trim(reached, |event, other| other.wait_event(event).expect("the driver accepts all"));
}

fn event_beside_trim(reached: &Reached, look: impl FnOnce(&Event<Device>, &Stream<Device>)) {
    // setup: an event behind work, on a stream whose lease has ended
    let (_device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    let event = stream.record().expect("the driver accepts all");
    let other = runtime.stream().expect("the pool may make two streams");
    drop(stream);
    // threads
    let trimmer = spawn({
        let runtime = runtime.clone();
        move || runtime.trim()
    });
    look(&event, &other);
    // join
    let destroyed = trimmer.join().unwrap();
    // claim: the device knows a call that follows the event
    reached.mark_if(destroyed == 1, "the stream was destroyed");
    reached.mark_if(destroyed == 0, "the stream was kept");
    drop((event, buffer, other));
    drain(&runtime);
}

fn event_beside_launch(reached: &Reached) {
    // setup: an event behind the first fill, which a write of the same buffer follows
    let (device, runtime) = manual(plain_memory());
    let (stream, [mut x]) = buffers(&runtime);
    stream.fill(&mut x, 7).expect("the driver accepts all");
    let event = stream.record().expect("the driver accepts all");
    let address = x.region().address;
    let written = Arc::new(AtomicU64::new(0));
    // threads
    let writer = spawn({
        let (stream, written) = (stream.clone(), written.clone());
        move || {
            stream.fill(&mut x, 8).expect("the driver accepts all");
            written.store(1, Ordering::Release);
            x
        }
    });
    let before = written.load(Ordering::Acquire) == 1;
    event.synchronize().expect("the driver accepts all");
    // join
    let x = writer.join().unwrap();
    // claim: both fills came before this question
    if !x.is_busy() {
        device.called_clean(address, BYTES, 2);
    }
    reached.mark_if(before, "the write came first");
    reached.mark_if(!before, "the wait came first");
    drop((x, event, stream));
    drain(&runtime);
}

fn event_order_beside_launch(reached: &Reached) {
    // setup
    let (_device, runtime) = manual(plain_memory());
    let (stream, [mut x]) = buffers(&runtime);
    stream.fill(&mut x, 7).expect("the driver accepts all");
    let event = stream.record().expect("the driver accepts all");
    let other = runtime.stream().expect("the pool may make two streams");
    let written = Arc::new(AtomicU64::new(0));
    // threads
    let writer = spawn({
        let (stream, written) = (stream.clone(), written.clone());
        move || {
            stream.fill(&mut x, 8).expect("the driver accepts all");
            written.store(1, Ordering::Release);
            x
        }
    });
    let before = written.load(Ordering::Acquire) == 1;
    other.wait_event(&event).expect("the driver accepts all");
    // join
    let mut x = writer.join().unwrap();
    // claim: the device
    other.fill(&mut x, 9).expect("the driver accepts all");
    reached.mark_if(before, "the write came first");
    reached.mark_if(!before, "the edge came first");
    drop((x, event, stream, other));
    drain(&runtime);
}

fn event_beside_wait(reached: &Reached) {
    // setup
    let (_device, runtime) = manual(plain_memory());
    let (stream, [mut x]) = buffers(&runtime);
    stream.fill(&mut x, 7).expect("the driver accepts all");
    // threads
    let waiter = spawn({
        let stream = stream.clone();
        move || stream.synchronize().expect("the driver accepts all")
    });
    let event = stream.record().expect("the driver accepts all");
    let is_complete = event.is_complete().expect("the driver accepts all");
    // claim: the device knows what it can measure
    if is_complete {
        event.elapsed(&event).expect("the driver accepts all");
        reached.mark("it was known to be complete");
    }
    // join
    waiter.join().unwrap();
    drop((x, event, stream));
    drain(&runtime);
}

/// A device whose frees wait for no stream's order.
fn plain_memory() -> Capabilities {
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    capabilities
}

fn edge_from_broken(reached: &Reached) {
    // setup: X was written on a stream on which the next wait fails
    let world = Arc::new(World::new());
    let (one, other) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&one, &[(&x, Write)]);
    world.device.fail(Call::StreamSynchronize, ErrorKind::InvalidHandle, 0);
    // threads
    let waiter = spawn({
        let (world, x) = (world.clone(), x.clone());
        move || x.record.wait(&world.context, Read, &mut MayWait::here().expect("no hold")).is_err()
    });
    let broken = one.is_broken();
    let written = world.try_launch(&other, &[(&x, Write)]).is_ok();
    // join
    let failed = waiter.join().unwrap();
    // claim
    assert!(!(broken && written), "S7: work was ordered after a stream that had been given up");
    reached.mark_if(!written, "the write was refused");
    reached.mark_if(written && failed, "the write came first");
}

fn broken_by_guest(reached: &Reached) {
    // setup: X was written under a lease that has ended, and the next wait there fails
    let world = Arc::new(World::new());
    let pool = Arc::new(Pool::<Device>::new(2));
    let old = pool.claim(&world.context, Priority::Normal).expect("the pool may make a stream");
    let x = Arc::new(world.buffer());
    world.launch(&old, &[(&x, Write)]);
    pool.give(old.clone());
    world.device.fail(Call::StreamSynchronize, ErrorKind::InvalidHandle, 0);
    // threads
    let waiter = spawn({
        let (world, x) = (world.clone(), x.clone());
        move || x.record.wait(&world.context, Read, &mut MayWait::here().expect("no hold")).is_err()
    });
    let claimed = pool.claim(&world.context, Priority::Normal).expect("the pool may make two streams");
    // claim: a stream in use here is sound, and stays so
    assert!(claimed.broken().is_none(), "S7: a stream was handed out that had been given up");
    pool.give(claimed.clone());
    // join
    let failed = waiter.join().unwrap();
    let after = pool.claim(&world.context, Priority::Normal).expect("the pool may make two streams");
    assert!(after.broken().is_none(), "S7: a stream was handed out that had been given up");
    reached.mark_if(failed, "the wait failed");
    reached.mark_if(!failed && claimed.id() == old.id(), "the claim came first");
}
