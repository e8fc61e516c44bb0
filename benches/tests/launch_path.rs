//! What a covered launch does besides its bookkeeping: nothing.

use tenure::driver::Call;
use tenure_benches::bed::{Bed, launch_sixteen, launch_three};
use tenure_benches::counting::{Allocations, Counting, allocations};
use tenure_benches::null::Null;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_launch_on_the_stream_that_covers_allocates_nothing() {
    let bed = Bed::new(Null::default());
    let stream = bed.stream();
    let (mut three, sixteen) = (bed.buffers(&stream), bed.buffers(&stream));
    let allocated = allocations(|| {
        for _ in 0..100 {
            launch_three(&bed, &stream, &mut three);
            launch_sixteen(&bed, &stream, &sixteen);
        }
    });
    assert_eq!(
        allocated,
        Allocations::default(),
        "neither three buffers and four scalars nor sixteen buffers allocate"
    );
    let seen = allocations(|| drop(std::hint::black_box(vec![0_u8; 100])));
    assert_eq!(seen, Allocations { calls: 1, bytes: 100 }, "the allocator counts what is allocated");
}

#[test]
fn a_launch_on_the_stream_that_covers_makes_one_driver_call() {
    let driver = Null::counted();
    let bed = Bed::new(driver.clone());
    let stream = bed.stream();
    let mut three = bed.buffers(&stream);
    let before = driver.counts();
    (0..100).for_each(|_| launch_three(&bed, &stream, &mut three));
    let mut after = driver.counts();
    for (call, count) in before {
        *after.entry(call).or_default() -= count;
    }
    after.retain(|_, count| *count > 0);
    assert_eq!(after.into_iter().collect::<Vec<_>>(), [(Call::Launch, 100)], "a launch is one call, and no other");
}

#[test]
fn a_launch_elsewhere_records_and_waits_once() {
    let driver = Null::counted();
    let bed = Bed::new(driver.clone());
    let (first, second) = (bed.stream(), bed.stream());
    let mut three = bed.buffers(&first);
    launch_three(&bed, &second, &mut three);
    let counts = driver.counts();
    let count = |call| counts.get(&call).copied().unwrap_or_default();
    assert_eq!(count(Call::EventRecord), 1, "three buffers of one stream need one record");
    assert_eq!(count(Call::StreamWaitEvent), 1, "and one wait");
}
