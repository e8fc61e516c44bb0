//! What the hot paths cost, counted and not timed: allocations, driver calls and, in debug builds, the core's locks.
//!
//! A binary of its own, since the allocator is the whole program's. It counts for the running thread, outside of driver
//! calls.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tenure::driver::Call;
use tenure::ownership::SLOTS;
use tenure::{Buffer, Kernel, LaunchConfig, Queue, Read, Result, Stream, Write};
use tenure_sim::drive::Drive;
use tenure_sim::driver::Sim;
use tenure_sim::profile::Profile;
use tenure_tests::bench::{Bench, SimBench};
use tenure_tests::rig::{Brake, Rig};
use tenure_tests::tap::{Tap, is_inside};

struct Counting;

thread_local! {
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: R1. Every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_inside() {
            let _gone = COUNTED.try_with(|counted| counted.set(counted.get() + 1));
        }
        // SAFETY: R1. As the caller vouched for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: R1. As the caller vouched for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations this thread made in `body`, outside of driver calls.
fn allocations(body: impl FnOnce()) -> u64 {
    let before = COUNTED.get();
    body();
    COUNTED.get() - before
}

/// How many of the core's locks this thread takes in `body`. Release builds of the core do not count.
#[cfg(debug_assertions)]
fn locks(body: impl FnOnce()) -> Option<u64> {
    let before = tenure::sync::locks_taken();
    body();
    Some(tenure::sync::locks_taken() - before)
}

#[cfg(not(debug_assertions))]
fn locks(body: impl FnOnce()) -> Option<u64> {
    body();
    None
}

fn main() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the allocator counts");
    for profile in Profile::NAMES {
        let bench = SimBench::new(Profile::named(profile).expect("a listed profile"), Drive::Seeded, 0);
        a_covered_launch(&bench);
        a_shared_read(&bench);
        a_lease_after_another(&bench);
        a_drop_of_a_busy_wrap(&bench);
        a_wrap_of_nothing(&bench);
        let findings = bench.finish();
        assert!(findings.is_empty(), "{profile}: {findings:?}");
    }
    println!(
        "zero_cost: a covered launch, a shared read, a busy drop and an empty wrap, on {} profiles",
        Profile::NAMES.len()
    );
}

type D = Tap<Sim>;
type Blend = Kernel<(Read<f32>, Read<f32>, Write<f32>, f32, f32, u32, u32), D>;
type Three<'a> = (&'a Buffer<f32, D>, &'a Buffer<f32, D>, &'a mut Buffer<f32, D>);

fn blend(stream: &Stream<D>, kernel: &Blend, (a, b, y): Three<'_>) -> Result<()> {
    stream.launch(kernel, LaunchConfig::linear(4), (a, b, y, 2.0, 3.0, 4, 0))
}

/// The locks of a gate: where the system has no barrier, the gate is biased to no thread and is a lock.
fn gate() -> u64 {
    u64::from(!tenure::sync::Barrier::new().is_there())
}

/// Three buffers and four scalars: no allocation, one driver call; a capture elsewhere changes neither.
fn a_covered_launch(bench: &SimBench) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    // SAFETY: O1. The kernel has this signature, and stays within the elements that it is given the number of.
    let kernel: Blend = unsafe { rig.module().kernel("blend") }.expect("`blend` is in the module");
    let (a, b) = (stream.upload(&[1.0; 4]).expect("an upload"), stream.upload(&[10.0; 4]).expect("an upload"));
    let mut y = stream.upload(&[0.0_f32; 4]).expect("an upload");
    blend(&stream, &kernel, (&a, &b, &mut y)).expect("the first launch");
    let mark = rig.tap.log.mark();
    let made = allocations(|| blend(&stream, &kernel, (&a, &b, &mut y)).expect("a launch"));
    assert_eq!(made, 0, "a covered launch allocates nothing");
    assert_eq!(rig.tap.log.since(mark), [Call::Launch], "a covered launch makes one driver call");
    let taken = locks(|| blend(&stream, &kernel, (&a, &b, &mut y)).expect("a launch"));
    assert_eq!(taken.unwrap_or(gate()), gate(), "a covered launch takes its stream's gate and no other lock");
    let other = rig.stream();
    let taken = locks(|| blend(&other, &kernel, (&a, &b, &mut y)).expect("a launch"));
    assert!(taken.is_none_or(|taken| taken > 3), "one that is not covered takes those of its buffers too: {taken:?}");
    drop(other);
    blend(&stream, &kernel, (&a, &b, &mut y)).expect("a launch");
    let guard = rig.runtime.capture_guard();
    let mark = rig.tap.log.mark();
    let made = allocations(|| blend(&stream, &kernel, (&a, &b, &mut y)).expect("a launch"));
    assert_eq!((made, rig.tap.log.since(mark)), (0, vec![Call::Launch]), "nor does a capture change that");
    drop(guard);
    assert_eq!(stream.read(&y).expect("a read"), [32.0; 4], "and it computes");
    drop((kernel, a, b, y, stream));
    rig.close();
}

/// O1, O9: streams that read the same buffer again take no lock and wait for nobody, as many as there are places; and who
/// is done makes room for the next.
fn a_shared_read(bench: &SimBench) {
    let rig = Rig::new(bench);
    let owner = rig.stream();
    let x = rig.four(&owner, 1);
    let mut readers = vec![(rig.four(&owner, 0), owner)];
    let reader = || {
        let stream = rig.stream();
        (rig.four(&stream, 0), stream)
    };
    let again = |(y, stream): &mut (Buffer<u32, D>, Stream<D>), who: &str| {
        let mark = rig.tap.log.mark();
        let taken = locks(|| rig.sum(stream, &x, y).expect("a launch"));
        assert_eq!(rig.tap.log.since(mark), [Call::Launch], "O1: two reads need no edge: {who}");
        assert_eq!(taken.unwrap_or(gate()), gate(), "a read of what is shared takes no other lock: {who}");
    };
    while readers.len() < SLOTS {
        let mut new = reader();
        rig.sum(&new.1, &x, &mut new.0).expect("a launch");
        readers.push(new);
        readers.iter_mut().for_each(|reader| again(reader, "in a place of its own"));
        // A finished reader keeps the place as long as nobody needs it.
        readers.iter().for_each(|(_, stream)| stream.synchronize().expect("a wait"));
    }
    let mut late = reader();
    rig.sum(&late.1, &x, &mut late.0).expect("a launch");
    again(&mut late, "in the place of one that is done");
    drop((late, readers, x));
    rig.drain();
    rig.close();
}

/// The gate of a stream that another thread leased before is biased to the thread that leases it now.
fn a_lease_after_another(bench: &SimBench) {
    let rig = Rig::new(bench);
    let bump = |stream: &Stream<D>, x: &mut Buffer<u32, D>| rig.bump(stream, x, 1).expect("a launch");
    let before = std::thread::scope(|scope| {
        let lease = || {
            let stream = rig.stream();
            bump(&stream, &mut rig.four(&stream, 1));
            stream.synchronize().expect("a wait");
            stream.id()
        };
        scope.spawn(lease).join().expect("it does not panic")
    });
    rig.drain();
    let stream = rig.stream();
    assert_eq!(stream.id(), before, "S2: it is idle, so it is leased again");
    let mut x = rig.four(&stream, 1);
    bump(&stream, &mut x);
    let taken = locks(|| bump(&stream, &mut x));
    assert_eq!(taken.unwrap_or(gate()), gate(), "its gate is nobody else's any more");
    drop((x, stream));
    rig.close();
}

/// P7, R1: no driver call.
fn a_drop_of_a_busy_wrap(bench: &SimBench) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut pinned, 1).expect("a launch");
    let mark = rig.tap.log.mark();
    drop(pinned);
    assert_eq!(rig.tap.log.since(mark), [], "dropping a busy wrap makes no driver call");
    brake.release();
    stream.synchronize().expect("a wait");
    drop(stream);
    rig.close();
}

/// O8: no driver call.
fn a_wrap_of_nothing(bench: &SimBench) {
    let rig = Rig::new(bench);
    let mark = rig.tap.log.mark();
    drop(rig.runtime.wrap(Vec::<u32>::new()).expect("a wrap of nothing"));
    assert_eq!(rig.tap.log.since(mark), [], "a wrap of nothing makes no driver call");
    rig.close();
}
