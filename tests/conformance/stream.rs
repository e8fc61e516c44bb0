//! Streams and their pool: S1 to S7, adopted streams, and libraries that enqueue by themselves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use tenure::driver::{Call, CaptureMode, Driver, ErrorKind, HostFunction, Image, Priority, Progress, Timing};
use tenure::{Access, Config, Error, LaunchConfig, Misuse, Queue, Readable, ReclaimMode, Stream, Write};

use super::{eventually, list_cases, word};
use crate::bench::{Bench, SOURCE};
use crate::faulty::{INJECTED, OnPurpose};
use crate::rig::{Brake, Rig, Tapped};

list_cases!("stream": raw [
    an_event_never_recorded_is_complete,
    a_query_tells_pending_from_complete,
    host_functions_run_once_and_in_order,
    host_functions_of_many_threads_all_run,
    a_wait_orders_two_streams,
    a_wait_takes_the_position_of_its_call,
    a_destroyed_event_still_orders,
    a_destroyed_stream_finishes_its_work,
    streams_of_every_priority_work,
] contract [
    s1_two_leases_have_two_streams,
    s1_clones_share_a_lease,
    s2_a_busy_stream_is_not_handed_out,
    s3_a_stale_buffer_is_released_at_once,
    s4_claiming_does_not_wait,
    s5_no_more_streams_than_leases,
    s5_a_failed_creation_changes_nothing,
    s5_the_cap_is_an_error,
    s6_trimming_spares_the_leased_and_the_busy,
    s7_a_failed_stream_is_given_up,
    priorities_have_streams_of_their_own,
    an_adopted_stream_takes_part_and_is_never_pooled,
    an_adopted_stream_that_captures_is_refused,
    s7_an_adopted_stream_that_tells_no_end_is_given_up,
    s8_a_wait_of_an_adopted_stream_is_marked,
    s8_a_refused_launch_on_an_adopted_stream_keeps_the_order,
    s8_an_event_holds_an_adopted_stream,
    s8_a_mark_that_failed_is_not_asked,
    s8_a_mark_of_a_wait_that_failed_is_not_asked,
    s8_nothing_waits_for_a_mark_that_failed,
    s9_an_adopted_stream_goes_after_its_last_clone,
    s9_an_event_outlives_the_adopted_stream,
    s9_the_end_of_an_adoption_is_told,
    s9_an_adoption_that_cannot_end_gives_its_handle_back,
    s9_adoptions_behind_a_buffer_that_is_read_do_not_pile_up,
    s9_an_adoption_that_fails_leaves_nothing,
    c4_code_stays_while_an_adopted_stream_runs_it,
    o2_an_event_proves_its_own_place_only,
    o1_a_wait_for_an_event_reaches_its_place_only,
    o2_an_event_is_complete_when_its_record_is,
    a_library_enqueues_by_itself,
    a_panic_in_a_library_counts_as_submitted,
    inside_a_library_nothing_waits,
]);

fn counter() -> (Arc<AtomicUsize>, HostFunction) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    // Relaxed: the stream's order and the wait for it make it visible.
    (
        count,
        Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }),
    )
}

fn an_event_never_recorded_is_complete<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let event = driver.event_create(Timing::Disabled).expect("an event");
    assert_eq!(driver.event_query(&event).expect("a query"), Progress::Complete, "nothing is waited for");
    driver.event_synchronize(&event).expect("a wait for nothing");
    let stream = driver.stream_create(Priority::Normal).expect("a stream");
    driver.stream_wait_event(&stream, &event).expect("a wait for nothing");
    driver.stream_synchronize(&stream).expect("and it passes");
}

fn a_query_tells_pending_from_complete<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let stream = driver.stream_create(Priority::Normal).expect("a stream");
    let event = driver.event_create(Timing::Disabled).expect("an event");
    assert_eq!(driver.stream_query(&stream).expect("a query"), Progress::Complete, "an empty stream");
    let brake = Brake::new(bench);
    brake.hold_raw(&driver, &stream);
    driver.event_record(&event, &stream).expect("a record");
    assert_eq!(driver.stream_query(&stream).expect("a query"), Progress::Pending, "a held stream");
    assert_eq!(driver.event_query(&event).expect("a query"), Progress::Pending, "a held event");
    brake.release();
    driver.event_synchronize(&event).expect("a wait");
    assert_eq!(driver.event_query(&event).expect("a query"), Progress::Complete, "after the wait");
    driver.stream_synchronize(&stream).expect("a wait");
    assert_eq!(driver.stream_query(&stream).expect("a query"), Progress::Complete, "after the wait");
}

fn host_functions_run_once_and_in_order<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let stream = driver.stream_create(Priority::Normal).expect("a stream");
    let seen = Arc::new(Mutex::new(Vec::new()));
    for number in 0..10 {
        let seen = seen.clone();
        let function: HostFunction = Arc::new(move || seen.lock().expect("no panic").push(number));
        driver.launch_host_function(&stream, function).expect("a host function");
    }
    driver.stream_synchronize(&stream).expect("a wait");
    assert_eq!(*seen.lock().expect("no panic"), (0..10).collect::<Vec<_>>(), "each once, in stream order");
}

fn host_functions_of_many_threads_all_run<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let (count, function) = counter();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (driver, function) = (driver.clone(), function.clone());
            scope.spawn(move || {
                let stream = driver.stream_create(Priority::Normal).expect("a stream");
                for _ in 0..20 {
                    driver.launch_host_function(&stream, function.clone()).expect("a host function");
                }
                driver.stream_synchronize(&stream).expect("a wait");
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 80, "every function ran once");
}

fn a_wait_orders_two_streams<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let [a, b] = [(); 2].map(|()| driver.stream_create(Priority::Normal).expect("a stream"));
    let event = driver.event_create(Timing::Disabled).expect("an event");
    let brake = Brake::new(bench);
    brake.hold_raw(&driver, &a);
    driver.event_record(&event, &a).expect("a record");
    let (count, function) = counter();
    driver.stream_wait_event(&b, &event).expect("a wait");
    driver.launch_host_function(&b, function).expect("a host function");
    assert_eq!(driver.stream_query(&b).expect("a query"), Progress::Pending, "held by way of the event");
    assert_eq!(count.load(Ordering::Relaxed), 0, "so nothing behind the wait has run");
    brake.release();
    driver.stream_synchronize(&b).expect("a wait");
    assert_eq!(count.load(Ordering::Relaxed), 1, "released, it runs");
}

fn a_wait_takes_the_position_of_its_call<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let [a, b] = [(); 2].map(|()| driver.stream_create(Priority::Normal).expect("a stream"));
    let event = driver.event_create(Timing::Disabled).expect("an event");
    driver.event_record(&event, &a).expect("a record");
    driver.stream_wait_event(&b, &event).expect("a wait");
    let brake = Brake::new(bench);
    brake.hold_raw(&driver, &a);
    driver.event_record(&event, &a).expect("the event is recorded anew");
    driver.stream_synchronize(&b).expect("the wait is for the first position");
    assert_eq!(driver.event_query(&event).expect("a query"), Progress::Pending, "the event has the second");
    brake.release();
    driver.stream_synchronize(&a).expect("a wait");
}

fn a_destroyed_event_still_orders<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let [a, b] = [(); 2].map(|()| driver.stream_create(Priority::Normal).expect("a stream"));
    let event = driver.event_create(Timing::Disabled).expect("an event");
    let brake = Brake::new(bench);
    brake.hold_raw(&driver, &a);
    driver.event_record(&event, &a).expect("a record");
    driver.stream_wait_event(&b, &event).expect("a wait");
    driver.event_destroy(event).expect("the event goes");
    assert_eq!(driver.stream_query(&b).expect("a query"), Progress::Pending, "what waits still does");
    brake.release();
    driver.stream_synchronize(&b).expect("and is let go on");
}

fn a_destroyed_stream_finishes_its_work<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let [a, b] = [(); 2].map(|()| driver.stream_create(Priority::Normal).expect("a stream"));
    let (count, function) = counter();
    for _ in 0..8 {
        driver.launch_host_function(&a, function.clone()).expect("a host function");
    }
    // SAFETY: S6. The stream has no events, and is not used again.
    unsafe { driver.stream_destroy(&a) }.expect("the stream goes");
    eventually("the work of a destroyed stream completes", || {
        assert_eq!(word(driver.stream_query(&b)), None, "another stream can be asked");
        count.load(Ordering::Relaxed) == 8
    });
}

fn streams_of_every_priority_work<B: Bench>(bench: &B) {
    let driver = bench.driver();
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        let stream = driver.stream_create(priority).expect("a stream");
        let (count, function) = counter();
        driver.launch_host_function(&stream, function).expect("a host function");
        driver.stream_synchronize(&stream).expect("a wait");
        assert_eq!(count.load(Ordering::Relaxed), 1, "{priority:?}");
    }
}

fn s1_two_leases_have_two_streams<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let streams: Vec<_> = (0..5).map(|_| rig.stream()).collect();
    let mut ids: Vec<_> = streams.iter().map(|stream| stream.id()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5, "S1: five live leases, five streams");
    drop(streams);
    rig.close();
}

fn s1_clones_share_a_lease<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let clone = stream.clone();
    let id = stream.id();
    drop(stream);
    assert_ne!(rig.stream().id(), id, "S1: the clone still leases it");
    drop(clone);
    let again: Vec<_> = (0..2).map(|_| rig.stream().id()).collect();
    assert!(again.contains(&id), "S1: the last clone ends the lease");
    rig.close();
}

fn s2_a_busy_stream_is_not_handed_out<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let id = stream.id();
    let brake = Brake::new(bench);
    brake.hold(&stream);
    drop(stream);
    let others: Vec<_> = (0..3).map(|_| rig.stream()).collect();
    assert!(others.iter().all(|other| other.id() != id), "S2: it has work that has not completed");
    drop(others);
    brake.release();
    eventually("the stream becomes idle", || {
        let all: Vec<_> = (0..4).map(|_| rig.stream()).collect();
        all.iter().any(|stream| stream.id() == id)
    });
    assert!(rig.runtime.stats().streams.made <= 5, "S5: {:?}", rig.runtime.stats().streams);
    rig.close();
}

fn s3_a_stale_buffer_is_released_at_once<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (id, mut x) = (stream.id(), rig.four(&stream, 1));
    rig.bump(&stream, &mut x, 1).expect("a write is launched");
    stream.synchronize().expect("a wait");
    drop(stream);
    rig.drain();
    let holder = rig.stream();
    assert_eq!(holder.id(), id, "the idle stream is leased again");
    // A free of memory that belongs to no stream waits for the whole device: that is the driver's.
    let brake = rig.tap.capabilities().stream_ordered_memory.then(|| Brake::new(bench));
    brake.iter().for_each(|brake| brake.hold(&holder));
    let mark = rig.tap.log.mark();
    drop(x);
    assert_eq!(rig.runtime.poll(), 0, "S3: nothing of the new holder's is waited for");
    let calls = rig.tap.log.since(mark);
    let frees = calls.iter().filter(|call| matches!(call, Call::Free | Call::FreeAsync)).count();
    assert_eq!(frees, 1, "S3: released at once: {calls:?}");
    let touching = [Call::LaunchHostFunction, Call::EventRecord, Call::StreamWaitEvent, Call::StreamQuery];
    assert!(calls.iter().all(|call| !touching.contains(call)), "S3: the holder's stream is left alone: {calls:?}");
    drop(brake);
    drop(holder);
    rig.close();
}

fn s4_claiming_does_not_wait<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let brake = Brake::new(bench);
    for _ in 0..3 {
        let stream = rig.stream();
        brake.hold(&stream);
    }
    let mark = rig.tap.log.mark();
    let stream = rig.stream();
    let calls = rig.tap.log.since(mark);
    let waits = [Call::StreamSynchronize, Call::EventSynchronize, Call::StreamWaitEvent];
    assert!(calls.iter().all(|call| !waits.contains(call)), "S4: a claim asks and never waits: {calls:?}");
    assert!(stream.is_idle().expect("a question"), "S2: the new stream has no work");
    brake.release();
    drop(stream);
    rig.close();
}

fn s5_no_more_streams_than_leases<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    for round in 0..10 {
        let streams: Vec<_> = (0..3).map(|_| rig.stream()).collect();
        for stream in &streams {
            let mut x = rig.four(stream, round);
            rig.bump(stream, &mut x, 1).expect("a write is launched");
            stream.synchronize().expect("a wait");
        }
        drop(streams);
        rig.drain();
        for stream in (0..3).map(|_| rig.stream()).collect::<Vec<_>>() {
            stream.synchronize().expect("a wait");
        }
    }
    let figures = rig.runtime.stats().streams;
    assert!(figures.made <= 6, "S5: three leases at once, and those still busy with frees: {figures:?}");
    assert_eq!((figures.leased, figures.leased_max), (0, 3), "S5: {figures:?}");
    rig.close();
}

fn s5_a_failed_creation_changes_nothing<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let first = rig.stream();
    rig.tap.rules.fail(Call::StreamCreate, 1, ErrorKind::OutOfMemory);
    let failed = rig.runtime.stream().expect_err("the driver makes no stream");
    let failure = failed.failure().expect("with the driver's words");
    assert_eq!((failure.call, failure.code), (Call::StreamCreate, INJECTED), "R7: it names the call");
    let figures = rig.runtime.stats().streams;
    assert_eq!((figures.alive, figures.leased, figures.made), (1, 1, 1), "S5: the pool is as it was");
    drop(rig.runtime.stream().expect("the next claim works"));
    drop(first);
    rig.close();
}

fn s5_the_cap_is_an_error<B: Bench>(bench: &B) {
    let rig = Rig::with(bench, Config::default().reclaim(ReclaimMode::Manual).streams_max(2));
    let (first, second) = (rig.stream(), rig.stream());
    drop(second);
    rig.runtime.trim();
    rig.tap.rules.fail(Call::StreamCreate, 1, ErrorKind::OutOfMemory);
    assert!(rig.runtime.stream().is_err(), "the driver makes no stream");
    let second = rig.runtime.stream().expect("S5: the failed one does not count against the cap");
    assert_eq!(rig.runtime.stream().expect_err("all are leased"), Error::StreamLimit { cap: 2 }, "S5: the cap");
    drop(first);
    drop(rig.runtime.stream().expect("one is idle again"));
    drop(second);
    rig.close();
}

fn s6_trimming_spares_the_leased_and_the_busy<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (leased, busy, idle) = (rig.stream(), rig.stream(), rig.stream());
    let mut x = rig.four(&idle, 1);
    idle.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&busy);
    drop((busy, idle));
    assert_eq!(rig.runtime.trim(), 1, "S6: only the idle one goes");
    assert_eq!(rig.runtime.stats().streams.alive, 2, "S6: the leased and the busy one stay");
    rig.bump(&leased, &mut x, 1).expect("a buffer that names the destroyed one is usable");
    assert_eq!(leased.read(&x).expect("a read"), [2; 4], "S6: its past is finished");
    brake.release();
    drop((leased, x));
    rig.close();
}

fn s7_a_failed_stream_is_given_up<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let (stream, other) = (rig.stream(), rig.stream());
    let id = stream.id();
    let mut x = rig.four(&stream, 1);
    rig.bump(&stream, &mut x, 1).expect("a write is launched");
    rig.tap.rules.fail(Call::StreamSynchronize, 1, ErrorKind::Unknown);
    let failed = stream.synchronize().expect_err("the wait fails");
    assert_eq!(failed.failure().map(|failure| failure.call), Some(Call::StreamSynchronize), "R7: it names the call");
    let refused = rig.bump(&other, &mut x, 1).expect_err("nobody knows when the stream's work ends");
    let Error::StreamBroken(cause) = refused else { panic!("S7: {refused:?} does not say so") };
    assert_eq!(cause.code, INJECTED, "R7: with its cause");
    drop(stream);
    let streams: Vec<_> = (0..3).map(|_| rig.stream()).collect();
    assert!(streams.iter().all(|stream| stream.id() != id), "S7: never used again");
    assert_eq!(rig.runtime.stats().streams.quarantined, 1, "S7: and it says so");
    drop((streams, other, x));
    rig.runtime.poll();
    assert_eq!(rig.runtime.stats().leaked, 2, "P11: the buffer and the upload's snapshot are leaked and counted");
    let _left = rig.shut_down(crate::rig::deadline());
}

fn priorities_have_streams_of_their_own<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let high = rig.runtime.stream_with(Priority::High).expect("a stream");
    let id = high.id();
    drop(high);
    assert_ne!(rig.stream().id(), id, "an idle stream of another priority is not taken");
    assert_eq!(rig.runtime.stream_with(Priority::High).expect("a stream").id(), id, "the same priority takes it");
    rig.close();
}

fn an_adopted_stream_takes_part_and_is_never_pooled<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let theirs = Foreign::new(bench, Priority::Normal);
    // SAFETY: S6. The foreign stream is destroyed at the end of the case, after the runtime.
    let adopted = unsafe { rig.runtime.adopt(theirs.make()) }.expect("a stream is adopted");
    let ours = rig.stream();
    let (mut x, mut y) = (rig.four(&ours, 1), rig.four(&adopted, 10));
    let brake = Brake::new(bench);
    brake.hold(&adopted);
    rig.bump(&adopted, &mut x, 1).expect("a write is launched on it");
    rig.sum(&ours, &x, &mut y).expect("a read elsewhere comes after it");
    rig.bump(&adopted, &mut y, 100).expect("and a write on it after that");
    assert!(y.is_busy(), "O2: by its event");
    brake.release();
    assert_eq!(adopted.read(&y).expect("a read"), [112; 4], "O1: in both directions");
    drop((x, y));
    let made = rig.runtime.stats().streams.made;
    drop(adopted);
    rig.drain();
    let given_back = rig.tap.log.returned(Call::EventDestroy);
    assert_eq!(given_back, 2, "R5: the event of its end and that of its waits are given back");
    let (other, another) = (rig.stream(), rig.stream());
    assert!(rig.runtime.stats().streams.made >= made, "it is not in the pool");
    assert!(![other.id(), another.id()].contains(&ours.id()), "S1: nor is the leased one");
    drop((ours, other, another));
    rig.close();
    bench.allow(&["R5"]);
}

fn an_adopted_stream_that_captures_is_refused<B: Bench>(bench: &B) {
    // The staging memory of an upload is kept with the stream that never tells its end; a lenient driver tells one.
    bench.allow(&["P3", "P7", "R5"]);
    let rig = Rig::new(bench);
    let theirs = Foreign::new(bench, Priority::Normal);
    // SAFETY: S6. The foreign stream is never destroyed.
    let adopted = unsafe { rig.runtime.adopt(theirs.make()) }.expect("a stream is adopted");
    let ours = rig.stream();
    let (mut x, mut covered) = (rig.four(&ours, 1), rig.four(&adopted, 1));
    let driver = bench.driver();
    // SAFETY: O1. The closure begins a capture where the contract of `use_on` forbids it: that is the case.
    let begun = unsafe { adopted.use_on(&[], |raw| driver.capture_begin(raw, CaptureMode::Relaxed).is_ok()) };
    // The closure's work is followed by a record of the stream's event, which the capture swallows.
    let begun = begun.unwrap_or(true);
    assert!(begun, "the capture began");
    let refused = rig.bump(&adopted, &mut x, 1);
    let theirs = Err(Error::Misuse(Misuse::AdoptedStreamCaptures));
    assert_eq!(refused, theirs, "C9: before the driver sees it");
    assert_eq!(rig.bump(&adopted, &mut covered, 1), theirs, "C9: whatever it covers");
    assert_eq!(adopted.record().map(drop), theirs, "C9: an event would belong to the capture");
    let event = ours.record().expect("an event");
    assert_eq!(adopted.wait_event(&event), theirs, "C1: a wait for work outside would break it");
    drop(event);
    drop((adopted, x, covered, ours));
    let _left = rig.shut_down(std::time::Duration::from_millis(10));
    bench.allow(&["C7", "O6", "C1", "C2"]);
}

fn s7_an_adopted_stream_that_tells_no_end_is_given_up<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let theirs = Foreign::new(bench, Priority::Normal);
    // SAFETY: S6. The foreign stream is never destroyed.
    let adopted = unsafe { rig.runtime.adopt(theirs.make()) }.expect("a stream is adopted");
    let mut x = rig.four(&adopted, 1);
    rig.tap.rules.fail(Call::EventRecord, 1, ErrorKind::Unknown);
    rig.bump(&adopted, &mut x, 1).expect("the launch was accepted");
    assert!(rig.tap.rules.clear(), "its end could not be marked");
    assert!(matches!(adopted.synchronize(), Err(Error::StreamBroken(_))), "S7: nobody knows when it ends");
    drop((x, adopted));
    rig.runtime.poll();
    assert!(rig.runtime.stats().leaked > 0, "P11: what it used is kept");
    let _left = rig.shut_down(std::time::Duration::from_millis(10));
}

/// A stream of somebody else's, adopted. It is never destroyed.
fn adopted<B: Bench>(bench: &B, rig: &Rig<B::Driver>) -> Stream<Tapped<B>> {
    bench.allow(&["R5"]);
    // SAFETY: S9. The foreign stream is never destroyed.
    unsafe { rig.runtime.adopt(Foreign::new(bench, Priority::Normal).make()) }.expect("a stream is adopted")
}

fn s8_a_wait_of_an_adopted_stream_is_marked<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (ours, theirs) = (rig.stream(), adopted(bench, &rig));
    let mut x = rig.four(&ours, 1);
    ours.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&ours);
    rig.bump(&ours, &mut x, 1).expect("a write that is held");
    rig.tap.rules.fail(Call::Launch, 1, ErrorKind::InvalidValue);
    assert!(rig.bump(&theirs, &mut x, 1).is_err(), "refused, after the stream was made to wait");
    assert!(!theirs.is_idle().expect("a question"), "S8: the wait is not passed");
    assert!(x.is_busy(), "O2: our write is held");
    let freed = [Call::Free, Call::FreeAsync].map(|call| rig.tap.log.returned(call));
    drop(x);
    for _ in 0..3 {
        rig.runtime.poll();
    }
    // A driver with a stream to follow the adopted one may be left to free in that stream's order.
    let in_order = usize::from(!rig.tap.capabilities().events_outlive_streams);
    let freed = rig.tap.log.returned(Call::Free) + rig.tap.log.returned(Call::FreeAsync) - freed.iter().sum::<usize>();
    assert!(freed <= in_order, "O6: freed while our write is held");
    brake.release();
    theirs.synchronize().expect("a wait");
    ours.synchronize().expect("a wait");
    drop((ours, theirs));
    rig.drain();
    rig.close();
}

fn s8_a_refused_launch_on_an_adopted_stream_keeps_the_order<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b, theirs) = (rig.stream(), rig.stream(), adopted(bench, &rig));
    let mut x = rig.four(&a, 1);
    a.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 1).expect("a write that is held");
    rig.tap.rules.fail(Call::Launch, 1, ErrorKind::InvalidValue);
    assert!(rig.bump(&theirs, &mut x, 1).is_err(), "refused, after the stream was made to wait");
    rig.bump(&b, &mut x, 10).expect("a write elsewhere");
    assert!(!b.is_idle().expect("a question"), "O1: it comes after the write that is held");
    brake.release();
    assert_eq!(b.read(&x).expect("a read"), [12; 4], "O1: both writes came");
    drop((a, b, theirs, x));
    rig.drain();
    rig.close();
}

fn s8_an_event_holds_an_adopted_stream<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (ours, theirs) = (rig.stream(), adopted(bench, &rig));
    let brake = Brake::new(bench);
    brake.hold(&ours);
    let event = ours.record().expect("an event");
    theirs.wait_event(&event).expect("an edge");
    let own = theirs.record().expect("an event behind the wait");
    assert!(!theirs.is_idle().expect("a question"), "S8: it waits for the event");
    assert!(!own.is_complete().expect("a question"), "S8: so does what comes after");
    brake.release();
    theirs.synchronize().expect("a wait");
    assert!(event.is_complete().expect("a question") && own.is_complete().expect("a question"), "S8: in order");
    drop((ours, theirs, event, own));
    rig.drain();
    rig.close();
}

/// How a write behind a brake on an adopted stream stays known, where the `nth` call of `call` from then on fails.
fn a_mark_fails<B: Bench>(bench: &B, call: Call, nth: usize, with_wait: bool) {
    bench.allow(&["P7", "O6", "R5"]);
    let rig = Rig::new(bench);
    let ours = rig.stream();
    let raw = Foreign::new(bench, Priority::Normal).make();
    let brake = Brake::new(bench);
    // The owner's own work, from before it was adopted.
    brake.hold_raw(&bench.driver(), &raw);
    // SAFETY: S9. The foreign stream is never destroyed.
    let theirs = unsafe { rig.runtime.adopt(raw) }.expect("a stream is adopted");
    let mut x = rig.four(&ours, 1);
    if !with_wait {
        ours.synchronize().expect("a wait");
    }
    rig.tap.rules.fail(call, nth, ErrorKind::InvalidValue);
    rig.bump(&theirs, &mut x, 1).expect("the launch was accepted");
    assert!(rig.tap.rules.clear(), "its end could not be marked");
    assert!(matches!(theirs.is_idle(), Err(Error::StreamBroken(_))), "S8: nobody knows");
    assert!(x.is_busy(), "O2: the mark stands for less than the launch");
    assert!(matches!(x.synchronize(), Err(Error::StreamBroken(_))), "S7: nobody knows when it ends");
    assert!(x.is_busy(), "O2: and it still does");
    drop(x);
    for _ in 0..3 {
        rig.runtime.poll();
    }
    let freed = [Call::Free, Call::FreeAsync].map(|call| rig.tap.log.returned(call));
    assert_eq!(freed, [0; 2], "P11: memory that may be in use is kept");
    assert!(rig.runtime.stats().leaked > 0, "P11: and counted");
    brake.release();
    drop((ours, theirs));
    let _left = rig.shut_down(std::time::Duration::from_millis(10));
}

fn s8_a_mark_that_failed_is_not_asked<B: Bench>(bench: &B) {
    a_mark_fails(bench, Call::EventRecord, 1, false);
}

fn s8_a_mark_of_a_wait_that_failed_is_not_asked<B: Bench>(bench: &B) {
    // The first record is of the edge, the second of its mark; the launch's own mark, which is the third, is moved past both.
    a_mark_fails(bench, Call::EventRecord, 2, true);
}

fn s8_nothing_waits_for_a_mark_that_failed<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let (ours, theirs) = (rig.stream(), adopted(bench, &rig));
    let mut x = rig.four(&theirs, 1);
    let call = if rig.tap.capabilities().events_outlive_streams { Call::EventRecord } else { Call::StreamWaitEvent };
    rig.tap.rules.fail(call, 1, ErrorKind::Unknown);
    rig.bump(&theirs, &mut x, 1).expect("the launch was accepted");
    assert!(rig.tap.rules.clear(), "its end could not be marked");
    let waits = rig.tap.log.count(Call::StreamWaitEvent);
    assert!(matches!(rig.bump(&ours, &mut x, 1), Err(Error::StreamBroken(_))), "S8: nothing to wait for");
    assert_eq!(rig.tap.log.count(Call::StreamWaitEvent), waits, "S8: and nothing was");
    drop((x, ours, theirs));
    rig.runtime.poll();
    let _left = rig.shut_down(std::time::Duration::from_millis(10));
}

fn s9_an_adopted_stream_goes_after_its_last_clone<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let ours = rig.stream();
    let raw = Foreign::new(bench, Priority::Normal).make();
    // SAFETY: S9. It is destroyed below, after the last clone of the handle is dropped.
    let theirs = unsafe { rig.runtime.adopt(raw) }.expect("a stream is adopted");
    let (mut x, mut y, mut z) = (rig.four(&ours, 1), rig.four(&ours, 1), rig.four(&ours, 1));
    for buffer in [&mut x, &mut y, &mut z] {
        rig.bump(&theirs, buffer, 1).expect("a launch");
    }
    let completion = theirs.completion();
    // SAFETY: O1. It enqueues nothing; the stream's owner looks up the handle.
    let same: *const _ = unsafe { theirs.use_on(&[], std::ptr::from_ref) }.expect("the closure runs");
    drop(theirs);
    // SAFETY: S9. The handle lies in what the records of the buffers keep, and no clone of the stream's is left.
    unsafe { bench.driver().stream_destroy(&*same) }.expect("its owner destroys the stream");
    x.synchronize().expect("O3: a wait of the host, for what was pending there");
    rig.bump(&ours, &mut y, 10).expect("O1: an edge from there");
    drop(z);
    rig.runtime.poll();
    completion.wait().expect("O3: a completion");
    assert_eq!(ours.read(&y).expect("a read"), [12; 4], "O1: both writes came");
    drop((ours, x, y));
    rig.drain();
    rig.close();
}

fn s9_an_event_outlives_the_adopted_stream<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let ours = rig.stream();
    let raw = Foreign::new(bench, Priority::Normal).make();
    // SAFETY: S9. It is destroyed below, after the last clone of the handle is dropped.
    let theirs = unsafe { rig.runtime.adopt(raw) }.expect("a stream is adopted");
    let (mut x, y) = (rig.four(&ours, 1), rig.four(&ours, 1));
    let start = theirs.record_timed().expect("an event");
    rig.bump(&theirs, &mut x, 1).expect("a launch");
    let events = [(); 3].map(|()| theirs.record_timed().expect("an event"));
    // SAFETY: O1. As above.
    let same: *const _ =
        unsafe { theirs.use_on(&[(y.region(), Access::Read)], std::ptr::from_ref) }.expect("the closure runs");
    drop(theirs);
    // SAFETY: S9. As above.
    unsafe { bench.driver().stream_destroy(&*same) }.expect("its owner destroys the stream");
    ours.wait_event(&events[0]).expect("O1: an edge");
    while !events[1].is_complete().expect("a question") {
        tenure::sync::thread::pause();
    }
    events[2].synchronize().expect("a wait");
    start.elapsed(&events[2]).expect("a time");
    drop((ours, x, y, start, events));
    rig.drain();
    rig.close();
}

fn s9_the_end_of_an_adoption_is_told<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let ours = rig.stream();
    let raw = Foreign::new(bench, Priority::Normal).make();
    // SAFETY: S9. It is destroyed below, when its adoption has ended.
    let theirs = unsafe { rig.runtime.adopt(raw) }.expect("a stream is adopted");
    let (mut x, y) = (rig.four(&ours, 1), rig.four(&theirs, 10));
    rig.bump(&theirs, &mut x, 1).expect("a launch");
    rig.sum(&theirs, &y, &mut x).expect("a read and a write");
    let ended = theirs.end_adoption().map_err(|(error, _)| error).expect("the adoption ends");
    assert!(!x.is_busy() && !y.is_busy(), "S9: all of it has completed");
    let mark = rig.tap.log.mark();
    // SAFETY: S9. Its adoption has ended.
    unsafe { bench.driver().stream_destroy(ended.raw()) }.expect("its owner destroys the stream");
    x.synchronize().expect("nothing to wait for");
    assert_eq!(rig.tap.log.since(mark), [], "S9: nothing is asked of it");
    rig.bump(&ours, &mut x, 100).expect("a write elsewhere");
    assert_eq!(ours.read(&x).expect("a read"), [112; 4], "O1: after all of it");
    drop((ours, x, y));
    rig.drain();
    rig.close();
    drop(ended);
}

fn s9_an_adoption_that_cannot_end_gives_its_handle_back<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (ours, theirs) = (rig.stream(), adopted(bench, &rig));
    let refused = |stream: Stream<Tapped<B>>, misuse: Misuse| {
        let (error, stream) = stream.end_adoption().map(drop).expect_err("it cannot end");
        assert_eq!(error, Error::Misuse(misuse));
        stream
    };
    let ours = refused(ours, Misuse::NotAdopted);
    let clone = theirs.clone();
    let theirs = refused(theirs, Misuse::AdoptionShared);
    drop(clone);
    let mut x = rig.four(&theirs, 1);
    // SAFETY: O1. The closure enqueues nothing.
    let theirs = unsafe { ours.use_on(&[], |_| refused(theirs, Misuse::InsideHold)) }.expect("the closure runs");
    rig.bump(&theirs, &mut x, 1).expect("S9: the handle is as it was");
    theirs.end_adoption().map(drop).map_err(|(error, _)| error).expect("and then it ends");
    assert_eq!(ours.read(&x).expect("a read"), [2; 4]);
    drop((ours, x));
    rig.drain();
    rig.close();
}

fn s9_adoptions_behind_a_buffer_that_is_read_do_not_pile_up<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let weights = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    for _ in 0..40 {
        let theirs = adopted(bench, &rig);
        let mut y = rig.four(&theirs, 0);
        rig.sum(&theirs, &weights, &mut y).expect("a read of what lives long");
        theirs.synchronize().expect("a wait");
        drop((y, theirs));
        rig.drain();
        assert_eq!(rig.runtime.retired_pending(), 0, "S9: what marked it is given back, whoever still names it");
    }
    let given_back = rig.tap.log.returned(Call::EventDestroy);
    assert!(given_back >= 40, "S9: an event each: {given_back}");
    let mut weights = weights;
    rig.bump(&stream, &mut weights, 1).expect("a write");
    assert_eq!(stream.read(&weights).expect("a read"), [2; 4]);
    drop((stream, weights));
    rig.close();
}

fn s9_an_adoption_that_fails_leaves_nothing<B: Bench>(bench: &B) {
    bench.allow(&["R5"]);
    let rig = Rig::new(bench);
    let mut calls = vec![Call::EventCreate];
    if !rig.tap.capabilities().events_outlive_streams {
        calls.push(Call::StreamCreate);
    }
    for call in calls {
        let given_back = rig.tap.log.returned(Call::EventDestroy);
        rig.tap.rules.fail(call, 1, ErrorKind::OutOfMemory);
        // SAFETY: S9. The foreign stream is never destroyed.
        let refused = unsafe { rig.runtime.adopt(Foreign::new(bench, Priority::Normal).make()) };
        let kind = refused.map(drop).map_err(|error| error.failure().map(|failure| failure.kind));
        assert_eq!(kind, Err(Some(ErrorKind::OutOfMemory)), "R7: it says so");
        let made = usize::from(call == Call::StreamCreate);
        assert_eq!(rig.tap.log.returned(Call::EventDestroy) - given_back, made, "S9: and nothing is left");
    }
    rig.close();
}

fn c4_code_stays_while_an_adopted_stream_runs_it<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let theirs = adopted(bench, &rig);
    let mut x = rig.four(&theirs, 1);
    let module = rig.runtime.module(Image::Source(SOURCE)).expect("the kernels load");
    // SAFETY: O1. The kernel has this signature, and stays within four elements.
    let bump = unsafe { module.kernel::<(Write<u32>, u32, u32)>("bump") }.expect("it is in the module");
    let brake = Brake::new(bench);
    brake.hold(&theirs);
    theirs.launch(&bump, LaunchConfig::linear(4), (&mut x, 1_u32, 4_u32)).expect("a launch");
    let unloaded = rig.tap.log.returned(Call::ModuleUnload);
    drop((bump, module, theirs));
    rig.runtime.poll();
    assert_eq!(rig.tap.log.returned(Call::ModuleUnload), unloaded, "C4: its code may be running");
    brake.release();
    rig.drain();
    assert_eq!(rig.tap.log.returned(Call::ModuleUnload), unloaded + 1, "C4: and then it goes");
    drop(x);
    rig.close();
}

fn o2_an_event_proves_its_own_place_only<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut x, mut y) = (rig.four(&stream, 1), rig.four(&stream, 1));
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let [event, asked] = [(); 2].map(|()| stream.record().expect("an event"));
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut y, 1).expect("a launch that is held");
    event.synchronize().expect("a wait");
    assert!(!x.is_busy(), "O2: what came before the event is known to be done");
    assert!(y.is_busy(), "O2: what came after it is not");
    while !asked.is_complete().expect("a question") {
        tenure::sync::thread::pause();
    }
    assert!(y.is_busy(), "O2: nor by a question");
    brake.release();
    assert_eq!(stream.read(&y).expect("a read"), [2; 4]);
    drop((stream, x, y, event, asked));
    rig.close();
}

fn o1_a_wait_for_an_event_reaches_its_place_only<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&a, 1));
    rig.bump(&a, &mut x, 1).expect("a launch");
    let event = a.record().expect("an event");
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut y, 1).expect("a launch that is held, behind the event");
    b.wait_event(&event).expect("an edge");
    rig.bump(&b, &mut y, 10).expect("a write elsewhere");
    assert!(!b.is_idle().expect("a question"), "O1: the wait for the event does not reach so far");
    brake.release();
    assert_eq!(b.read(&y).expect("a read"), [12; 4], "O1: both writes came");
    drop((a, b, x, y, event));
    rig.close();
}

fn o2_an_event_is_complete_when_its_record_is<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let start = stream.record_timed().expect("an event");
    for _ in 0..3 {
        rig.bump(&stream, &mut x, 1).expect("a launch");
        stream.synchronize().expect("all of it is done, and known to be");
        let end = stream.record_timed().expect("an event");
        while !end.is_complete().expect("a question") {
            tenure::sync::thread::pause();
        }
        start.elapsed(&end).expect("O2: what is complete has a time");
        let end = stream.record_timed().expect("an event");
        end.synchronize().expect("a wait");
        start.elapsed(&end).expect("O2: what was waited for has a time");
    }
    drop((stream, x, start));
    rig.close();
}

/// Other code that makes streams.
pub(super) struct Foreign<B: Bench> {
    driver: Arc<B::Driver>,
    priority: Priority,
}

impl<B: Bench> Foreign<B> {
    pub(super) fn new(bench: &B, priority: Priority) -> Self {
        Self { driver: bench.driver(), priority }
    }

    pub(super) fn make(&self) -> <B::Driver as Driver>::Stream {
        self.driver.stream_create(self.priority).expect("a stream is made")
    }
}

fn a_library_enqueues_by_itself<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&b, 0));
    let brake = Brake::new(bench);
    brake.hold(&a);
    let region = x.region();
    let driver = rig.tap.clone();
    // SAFETY: O1. The closure fills the given buffer, which it names as written, on the given stream.
    let filled = unsafe {
        a.use_on(&[(region, Access::Write)], |raw| driver.fill(raw, region.address, 0, region.bytes).map_err(drop))
    };
    assert_eq!(filled, Ok(Ok(())), "the closure's value comes back");
    rig.sum(&b, &x, &mut y).expect("a read elsewhere");
    brake.release();
    assert_eq!(b.read(&y).expect("a read"), [0; 4], "O1: what the closure enqueued came before");
    rig.bump(&b, &mut x, 3).expect("a write elsewhere");
    assert_eq!(a.read(&x).expect("a read"), [3; 4], "O1: and what came later is later");
    drop((a, b, x, y));
    rig.close();
}

fn a_panic_in_a_library_counts_as_submitted<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let mut x = rig.four(&a, 1);
    a.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&a);
    let (region, driver) = (x.region(), rig.tap.clone());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: O1. The closure fills the given buffer, which it names as written, on the given stream.
        let outcome = unsafe {
            a.use_on(&[(region, Access::Write)], |raw| {
                driver.fill(raw, region.address, 0, region.bytes).expect("a fill");
                std::panic::panic_any(OnPurpose)
            })
        };
        outcome.expect("the closure does not return")
    }));
    let panic = panicked.expect_err("the panic goes on to the caller");
    assert!(panic.is::<OnPurpose>(), "as it was");
    assert!(x.is_busy(), "R4: what was enqueued before the panic counts");
    rig.bump(&b, &mut x, 5).expect("the buffer and the gate are usable");
    brake.release();
    assert_eq!(a.read(&x).expect("a read"), [5; 4], "O1: and came before what came later");
    drop((a, b, x));
    rig.close();
}

fn inside_a_library_nothing_waits<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&b, 1), rig.four(&a, 2));
    let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let refused = Err(Error::Misuse(Misuse::InsideHold));
    let event = b.record().expect("an event");
    // SAFETY: O1. The closure enqueues nothing on the given stream.
    let inside = unsafe {
        a.use_on(&[], |_| {
            assert_eq!(rig.bump(&a, &mut y, 1), refused, "O5: the stream's own gate is held");
            assert_eq!(a.synchronize(), refused, "O5: a wait for a stream");
            assert_eq!(b.synchronize(), refused, "O5: a wait for another stream");
            assert_eq!(x.synchronize(), refused, "O5: a wait for a buffer");
            assert_eq!(event.synchronize(), refused, "O5: a wait for an event");
            assert_eq!(a.wait_event(&event), refused, "O5: an edge to the held stream");
            assert_eq!(b.completion().wait(), refused, "O5: a wait for a completion");
            assert_eq!(rig.bump(&b, &mut y, 1), refused, "O5: a move from the held stream");
            assert_eq!(pinned.read().map(drop), refused, "O5: a view");
            assert_eq!(rig.bump(&b, &mut x, 1), Ok(()), "what its own stream covers needs no wait");
            drop(rig.runtime.stream().expect("a claim waits for nobody"));
        })
    };
    inside.expect("the closure ran");
    assert_eq!(b.read(&x).expect("a read"), [2; 4], "the launch inside ran");
    drop((a, b, x, y, event, pinned));
    rig.close();
}
