//! Memory and releases: what drivers do about them, futures, shutdown, a lost device, and R1 to R7.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tenure::driver::{Call, CaptureMode, DeviceAddress, Driver, ErrorKind, Image, Location, Priority, Timing};
use tenure::{Config, Error, HostMemory, Misuse, Queue, ReclaimMode};

use super::{list_cases, word};
use crate::bench::{Bench, SOURCE};
use crate::faulty::INJECTED;
use crate::rig::{Brake, Rig, deadline};

list_cases!("reclaim": raw [
    memory_is_given_and_taken_back,
    memory_in_stream_order_crosses_streams_by_events,
    too_much_memory_is_an_error,
    an_unknown_kernel_is_an_error,
    memory_of_many_threads,
] contract [
    r1_no_drop_makes_a_call_that_waits_asks_or_destroys,
    r1_a_drop_in_a_host_function_is_allowed,
    r2_a_host_function_only_signals,
    r3_drops_and_polls_pass_a_held_stream,
    r4_a_forgotten_future_is_sound,
    r4_a_panic_in_a_release_loses_nothing,
    r4_a_cancelled_download_is_sound,
    r4_a_forgotten_handle_leaks_and_no_more,
    r4_a_runtime_that_just_goes_keeps_what_is_in_use,
    r5_shutdown_says_what_is_left,
    r5_a_shutdown_refuses_new_work,
    r5_the_end_of_the_last_handle_drains,
    r6_a_lost_device_ends_everything,
    r6_a_future_learns_of_the_loss,
    r7_errors_of_releases_are_kept,
    r7_errors_of_destroyed_streams_are_kept,
    r7_errors_of_what_streams_had_are_kept,
    r7_an_allocation_error_is_the_callers,
    p7_a_stream_refused_to_a_release_loses_nothing,
    a_future_completes_by_the_worker,
    a_future_completes_by_polling,
    memory_pressure_releases_the_retired,
    what_is_retired_is_bounded,
    a_worker_releases_without_being_asked,
    a_worker_needs_no_host_functions,
    p11_the_tick_comes_beside_signals,
    r12_makers_are_refused_where_too_much_waits,
    r12_adopted_streams_are_bounded,
    r12_a_dropped_future_leaves_nothing,
    r12_a_future_dropped_beside_a_worker_leaves_nothing,
]);

/// An allocation in the order of the stream; where there is none, that it is refused, and nothing.
fn ordered<D: Driver>(driver: &D, stream: &D::Stream, bytes: u64) -> Option<DeviceAddress> {
    let answer = driver.malloc_async(stream, bytes);
    if driver.capabilities().stream_ordered_memory {
        return Some(answer.expect("an allocation in stream order"));
    }
    assert_eq!(word(answer), Some(ErrorKind::NotSupported), "there is no memory in stream order");
    None
}

fn memory_is_given_and_taken_back<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let stream = driver.stream_create(Priority::Normal).expect("a stream");
    for _ in 0..4 {
        let memory = driver.malloc(256).expect("an allocation");
        let Some(ordered) = ordered(&*driver, &stream, 256) else {
            // SAFETY: O6. Nothing has used it.
            unsafe { driver.free(memory) }.expect("a free");
            continue;
        };
        let (to, from) = (Location::Device(memory), Location::Device(ordered));
        // SAFETY: O6. Both are 256 bytes and live until after the copy.
        unsafe { driver.fill(&stream, ordered, 1, 256) }.expect("a fill");
        // SAFETY: O6. As above.
        unsafe { driver.copy(&stream, to, from, 256) }.expect("a copy");
        // SAFETY: O6. Its last use is on this stream, before.
        unsafe { driver.free_async(&stream, ordered) }.expect("a free in stream order");
        driver.stream_synchronize(&stream).expect("a wait");
        // SAFETY: O6. All work on it has completed.
        unsafe { driver.free(memory) }.expect("a free");
    }
}

fn memory_in_stream_order_crosses_streams_by_events<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let [a, b] = [(); 2].map(|()| driver.stream_create(Priority::Normal).expect("a stream"));
    let event = driver.event_create(Timing::Disabled).expect("an event");
    for _ in 0..4 {
        let Some(memory) = ordered(&*driver, &a, 64) else { continue };
        driver.event_record(&event, &a).expect("a record");
        driver.stream_wait_event(&b, &event).expect("a wait");
        // SAFETY: O6. Ordered after the allocation by the event.
        unsafe { driver.fill(&b, memory, 2, 64) }.expect("a fill");
        // SAFETY: O6. Its last use is on this stream, before.
        unsafe { driver.free_async(&b, memory) }.expect("a free on the other stream");
    }
    driver.stream_synchronize(&b).expect("a wait");
}

fn too_much_memory_is_an_error<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let stream = driver.stream_create(Priority::Normal).expect("a stream");
    assert_eq!(word(driver.malloc(1 << 50)), Some(ErrorKind::OutOfMemory), "a petabyte");
    let in_order =
        if driver.capabilities().stream_ordered_memory { ErrorKind::OutOfMemory } else { ErrorKind::NotSupported };
    assert_eq!(word(driver.malloc_async(&stream, 1 << 50)), Some(in_order), "in stream order");
    assert_eq!(word(driver.malloc(64)), None, "and the next allocation works");
}

fn an_unknown_kernel_is_an_error<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let module = driver.module_load(Image::Source(SOURCE)).expect("a module");
    assert_eq!(word(driver.function(&module, "no_such_kernel")), Some(ErrorKind::NotFound), "it has no such kernel");
    assert_eq!(word(driver.function(&module, "bump")), None, "it has this one");
}

fn memory_of_many_threads<B: Bench>(bench: &B) {
    thread::scope(|scope| {
        for _ in 0..3 {
            let driver = bench.driver();
            scope.spawn(move || {
                let stream = driver.stream_create(Priority::Normal).expect("a stream");
                for round in 1..20 {
                    let Some(memory) = ordered(&*driver, &stream, round * 64) else { continue };
                    // SAFETY: O6. In the order of one stream.
                    unsafe { driver.fill(&stream, memory, 1, round * 64) }.expect("a fill");
                    // SAFETY: O6. As above.
                    unsafe { driver.free_async(&stream, memory) }.expect("a free");
                }
                driver.stream_synchronize(&stream).expect("a wait");
            });
        }
    });
}

fn frees<B: Bench>(rig: &Rig<B::Driver>) -> usize {
    rig.tap.log.count(Call::FreeAsync) + rig.tap.log.count(Call::Free)
}

fn r1_no_drop_makes_a_call_that_waits_asks_or_destroys<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
    let executable = graph.instantiate().expect("an executable");
    let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let host = rig.runtime.alloc_host::<u32>(4).expect("host memory");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let mut y = rig.four(&stream, 0);
    rig.sum(&stream, &pinned, &mut y).expect("a launch");
    rig.sum(&stream, &host, &mut y).expect("a launch");
    executable.launch(&stream).expect("a launch");
    let event = stream.record().expect("an event");
    let download = stream.download(&x).expect("a download");
    let completion = stream.completion();
    let mark = rig.tap.log.mark();
    drop((x, y, graph, executable, pinned, host, event, download, completion, stream));
    assert_eq!(rig.tap.log.since(mark), [], "R1: no call at all");
    brake.release();
    rig.drain();
    rig.close();
}

fn r1_a_drop_in_a_host_function_is_allowed<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let carried = std::sync::Mutex::new(Some(x));
    let driver = bench.driver();
    let function: tenure::driver::HostFunction = Arc::new(move || drop(carried.lock().map(|mut x| x.take())));
    // SAFETY: O1. The closure enqueues a host function, which touches no memory of the device.
    let enqueued = unsafe { stream.use_on(&[], |raw| word(driver.launch_host_function(raw, function))) };
    assert_eq!(enqueued, Ok(None), "a host function is enqueued");
    stream.synchronize().expect("a wait");
    rig.drain();
    assert_eq!(frees::<B>(&rig), 1, "R1: dropped there, released later");
    drop(stream);
    rig.close();
}

fn r2_a_host_function_only_signals<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&b, 1));
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 1).expect("a launch");
    rig.sum(&b, &x, &mut y).expect("a launch");
    drop(x);
    super::eventually("the worker asks to be told", || rig.tap.log.count(Call::LaunchHostFunction) > 0);
    assert_eq!(frees::<B>(&rig), 0, "O6: two streams still use it");
    brake.release();
    // The simulator finds calls and locks inside host functions by itself.
    super::eventually("R2: and is told", || {
        nudge(rig.tap.inner());
        frees::<B>(&rig) == 1
    });
    drop((a, b, y));
    rig.close();
}

fn r3_drops_and_polls_pass_a_held_stream<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (x, y) = (rig.four(&stream, 1), rig.four(&stream, 2));
    let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    // SAFETY: O1. The closure enqueues nothing: it stands for a launch that blocks since the queue is full.
    let held = unsafe {
        stream.use_on(&[], |_| {
            thread::scope(|scope| {
                let beside = scope.spawn(|| {
                    drop((x, pinned));
                    rig.runtime.poll();
                    let other = rig.runtime.stream().expect("a claim");
                    let z = rig.four(&other, 1);
                    let busy = y.is_busy();
                    drop((z, other));
                    rig.runtime.poll();
                    busy
                });
                let end = Instant::now() + deadline();
                while !beside.is_finished() && Instant::now() < end {
                    thread::sleep(Duration::from_micros(100));
                }
                assert!(beside.is_finished(), "R3: drop, poll and claim take no gate");
            });
        })
    };
    held.expect("the closure ran");
    drop((y, stream));
    rig.drain();
    rig.close();
}

/// A call that changes nothing, for a device that only moves with calls.
fn nudge<D: Driver>(driver: &D) {
    let mode = driver.exchange_capture_mode(CaptureMode::Global);
    drop(mode.and_then(|mode| driver.exchange_capture_mode(mode)));
}

/// Runs a future on this thread, parked between wakes; `between` runs before each park.
fn block_on<F: Future>(future: F, mut between: impl FnMut()) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let end = Instant::now() + deadline();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(Instant::now() < end, "a future is woken within {:?}", deadline());
        between();
        thread::park_timeout(Duration::from_millis(1));
    }
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn r4_a_forgotten_future_is_sound<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let mut completion = Box::pin(stream.completion());
    assert!(!poll_once(completion.as_mut()), "held work has not completed");
    std::mem::forget(completion);
    let mut download = Box::pin(stream.download(&x).expect("a download"));
    assert!(!poll_once(download.as_mut()), "nor has the copy");
    std::mem::forget(download);
    drop(x);
    brake.release();
    stream.synchronize().expect("a wait");
    drop(stream);
    rig.drain();
    // Forgotten futures keep the runtime's shared state, and nothing of the device.
    let _report = rig.shut_down(deadline());
}

/// Memory whose end panics.
#[derive(Debug)]
struct Brittle(Vec<u32>);

// SAFETY: P4. The vector owns its block, which does not move with it.
unsafe impl HostMemory for Brittle {
    type Item = u32;

    fn range(&mut self) -> (std::ptr::NonNull<u32>, usize) {
        self.0.range()
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        // Without the hook: its report would look like that of a failed case.
        std::panic::resume_unwind(Box::new("brittle"));
    }
}

struct BrittleWaker;

impl Wake for BrittleWaker {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("brittle"));
    }
}

fn r4_a_panic_in_a_release_loses_nothing<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let brake = Brake::new(bench);
    let mut pinned: Vec<_> = [1, 2].map(|word| rig.runtime.wrap(Brittle(vec![word; 4])).expect("a wrap")).into();
    let mut sound = rig.runtime.wrap(vec![3_u32; 4]).expect("a wrap");
    brake.hold(&stream);
    let mut completion = Box::pin(stream.completion());
    let waker = Waker::from(Arc::new(BrittleWaker));
    let polled = completion.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "held work has not completed");
    pinned.iter_mut().for_each(|pinned| rig.bump(&stream, pinned, 1).expect("a launch"));
    rig.bump(&stream, &mut sound, 1).expect("a launch");
    drop((pinned, sound));
    brake.release();
    stream.synchronize().expect("a wait");
    drop((completion, stream));
    rig.drain();
    let errors = rig.runtime.take_release_errors();
    let panicked = |error: &&Error| matches!(error, Error::Misuse(Misuse::PanickedInRelease));
    assert_eq!(errors.iter().filter(panicked).count(), 3, "R4: two owners and a waker: {errors:?}");
    rig.close();
}

fn r4_a_cancelled_download_is_sound<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    for polls in 0..3 {
        let mut download = Box::pin(stream.download(&x).expect("a download"));
        for _ in 0..polls {
            assert!(!poll_once(download.as_mut()), "the copy is held");
        }
        drop(download);
    }
    rig.runtime.poll();
    brake.release();
    assert_eq!(stream.read(&x).expect("a read"), [2; 4], "R4: the copies went to memory that was kept for them");
    drop((stream, x));
    rig.close();
}

fn r4_a_forgotten_handle_leaks_and_no_more<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    rig.sum(&stream, &pinned, &mut x).expect("a launch");
    let mut y = rig.four(&stream, 0);
    rig.sum(&stream, &x, &mut y).expect("a launch");
    std::mem::forget(pinned);
    std::mem::forget(x);
    assert_eq!(stream.read(&y).expect("a read"), [2; 4], "R4: what it was used for is done");
    drop((y, stream));
    let report = rig.shut_down(deadline());
    assert_eq!((report.leaked, report.pins_left), (0, 1), "R5: the registration is reported: {report:?}");
}

fn r4_a_runtime_that_just_goes_keeps_what_is_in_use<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = stream.upload(&vec![1_u32; 5000]).expect("an upload");
    let mut pinned = rig.runtime.wrap(vec![1_u32; 5000]).expect("a wrap");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut x, 1).expect("a held launch");
    rig.sum(&stream, &x, &mut pinned).expect("a held launch");
    stream.write(&vec![3_u32; 5000], &mut x).expect("a held copy to the device");
    drop(stream.download(&x).expect("a held copy to the host"));
    drop((x, pinned, stream, rig));
    let decoys: Vec<_> = (0..16).map(|_| vec![77_u32; 5000]).collect();
    brake.release();
    bench.finish();
    assert!(decoys.iter().flatten().all(|word| *word == 77), "P11: the device wrote to memory that was let go");
}

fn r5_shutdown_says_what_is_left<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let (held, leased) = (rig.stream(), rig.stream());
    let mut x = rig.four(&held, 1);
    let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    held.synchronize().expect("a wait");
    rig.drain();
    let brake = Brake::new(bench);
    brake.hold(&held);
    rig.bump(&held, &mut x, 1).expect("a launch");
    // A second stream, so that the free cannot be left to the order of the first.
    rig.bump(&leased, &mut x, 1).expect("a launch");
    drop((x, held));
    let begun = Instant::now();
    let report = rig.shut_down(Duration::from_millis(20));
    assert!(begun.elapsed() < deadline(), "R5: within the deadline, and some grace");
    assert!(report.leaked >= 1 && report.streams_left == 2 && report.pins_left == 1, "R5: {report:?}");
    let mark = {
        drop((leased, pinned));
        0
    };
    assert_eq!(mark, 0, "R5: handles that live on are dropped in peace");
    brake.release();
}

fn r5_a_shutdown_refuses_new_work<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let (stream, runtime, tap) = (rig.stream(), rig.runtime.clone(), rig.tap.clone());
    let x = rig.four(&stream, 1);
    let completion = stream.completion();
    let theirs = tap.stream_create(Priority::Normal).expect("a stream of somebody else's");
    drop(rig.shut_down(Duration::from_millis(1)));
    // SAFETY: S6. The stream is never destroyed.
    let adopted = unsafe { runtime.adopt(theirs) };
    assert_eq!(adopted.map(drop), Err(Error::Closed), "R5: no stream is adopted");
    assert_eq!(runtime.stream().map(drop), Err(Error::Closed), "R5: no new stream");
    assert_eq!(runtime.module(Image::Source(SOURCE)).map(drop), Err(Error::Closed), "R5: no new code");
    assert_eq!(runtime.alloc_host::<u32>(4).map(drop), Err(Error::Closed), "R5: no new host memory");
    assert_eq!(runtime.capture(|_| Ok(())).map(drop), Err(Error::Closed), "R5: no new capture");
    assert_eq!(stream.alloc::<u32>(4).map(drop), Err(Error::Closed), "R5: no new memory");
    assert_eq!(runtime.wrap(vec![1_u32]).map(drop).map_err(Error::from), Err(Error::Closed), "R5: no new wrap");
    let mark = tap.log.mark();
    drop((x, completion, stream, runtime));
    assert_eq!(tap.log.since(mark), [], "R5: and no driver call");
}

fn r5_the_end_of_the_last_handle_drains<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    let tap = rig.tap.clone();
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    drop((rig, stream, x));
    super::eventually("R5: the worker gives everything back", || {
        nudge(tap.inner());
        tap.log.returned(Call::StreamDestroy) > 0 && tap.log.returned(Call::ModuleUnload) == 1
    });
    super::eventually("R5: streams too", || {
        tap.log.returned(Call::StreamDestroy) == tap.log.count(Call::StreamCreate)
            && tap.log.returned(Call::EventDestroy) == tap.log.count(Call::EventCreate)
    });
}

fn r6_a_lost_device_ends_everything<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::working(bench);
    let (stream, other) = (rig.stream(), rig.stream());
    let (mut x, y) = (rig.four(&stream, 1), rig.four(&other, 1));
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let (event, unasked) = (stream.record().expect("an event"), other.record().expect("an event"));
    // What was done before the loss may be known to be done, and is then no matter of the device's.
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    rig.bump(&stream, &mut pinned, 1).expect("a launch");
    let is_lost = bench.lose_device();
    brake.release();
    if !is_lost {
        drop((x, y, pinned, event, unasked, stream, other));
        return rig.close();
    }
    let begun = Instant::now();
    let answer = stream.synchronize();
    let Err(Error::Lost(cause)) = &answer else { panic!("R6: {answer:?} does not say so") };
    assert!(cause.kind.is_sticky(), "R7: with the cause: {cause}");
    assert!(matches!(stream.read(&x), Err(Error::Lost(_))), "R6: a read returns");
    assert!(matches!(pinned.read().map(drop), Err(Error::Lost(_))), "R6: a view returns");
    assert!(matches!(rig.runtime.stream().map(drop), Err(Error::Lost(_))), "R6: a claim returns");
    assert!(matches!(event.is_complete(), Ok(_) | Err(Error::Lost(_))), "R6: a question returns");
    assert!(rig.runtime.lost().is_some(), "R6: the runtime knows");
    let mark = rig.tap.log.mark();
    assert!(matches!(unasked.is_complete(), Ok(_) | Err(Error::Lost(_))), "R6: a question that comes later");
    assert!(matches!(unasked.synchronize(), Ok(_) | Err(Error::Lost(_))), "R6: a wait");
    assert!(matches!(other.is_idle(), Ok(_) | Err(Error::Lost(_))), "R6: a question about a stream");
    assert!(matches!(other.record().map(drop), Err(Error::Lost(_))), "R6: an event");
    drop((x, y, pinned, event, unasked, stream, other));
    rig.runtime.poll();
    assert_eq!(rig.tap.log.mine_since(mark), [], "R6: none of it makes a driver call");
    let report = rig.shut_down(deadline());
    assert!(report.lost.is_some() && report.leaked > 0, "R6: {report:?}");
    assert!(begun.elapsed() < deadline(), "R6: all in bounded time");
}

fn r6_a_future_learns_of_the_loss<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::working(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let mut completion = Box::pin(stream.completion());
    assert!(!poll_once(completion.as_mut()), "held work has not completed");
    if bench.lose_device() {
        let answer = block_on(completion, || ());
        assert!(matches!(answer, Err(Error::Lost(_))), "R6: {answer:?}");
        // Not begun before: a real driver may copy to such memory in the call itself, and wait for what holds the stream.
        let answer = stream.download(&x).map(|download| block_on(download, || ()));
        assert!(matches!(answer, Err(Error::Lost(_)) | Ok(Err(Error::Lost(_)))), "R6: {answer:?}");
    }
    brake.release();
    drop((x, stream));
    drop(rig.shut_down(deadline()));
}

fn r7_errors_of_releases_are_kept<B: Bench>(bench: &B) {
    bench.allow(&["O6"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let x = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    rig.drain();
    rig.tap.rules.fail_always(Call::FreeAsync, ErrorKind::Unknown);
    rig.tap.rules.fail_always(Call::Free, ErrorKind::Unknown);
    drop(x);
    rig.runtime.poll();
    let errors = rig.runtime.take_release_errors();
    let codes: Vec<_> = errors.iter().filter_map(|error| error.failure().map(|failure| failure.code)).collect();
    assert_eq!(codes, [INJECTED], "R7: once, with the cause: {errors:?}");
    assert!(rig.runtime.take_release_errors().is_empty(), "R7: and not again");
    assert_eq!(rig.runtime.stats().leaked, 1, "P11: leaked and counted");
    rig.tap.rules.clear();
    drop(stream);
    drop(rig.shut_down(deadline()));
}

/// Where memory is freed in the order of a stream, what no stream of the user's orders any more needs one of the runtime's.
fn p7_a_stream_refused_to_a_release_loses_nothing<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let x = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    rig.drain();
    rig.tap.rules.fail(Call::StreamCreate, 1, ErrorKind::OutOfMemory);
    drop(x);
    let left = rig.runtime.poll();
    let was_refused = rig.tap.rules.clear();
    let errors = rig.runtime.take_release_errors();
    assert_eq!(was_refused, bench.driver().capabilities().stream_ordered_memory, "only there is a stream needed");
    let calls: Vec<_> = errors.iter().filter_map(|error| error.failure().map(|failure| failure.call)).collect();
    assert_eq!(calls, if was_refused { vec![Call::StreamCreate] } else { vec![] }, "R7: the refusal is told");
    assert_eq!(left, usize::from(was_refused), "P7: the memory waits for the next turn");
    rig.drain();
    let stats = rig.runtime.stats();
    assert_eq!((stats.released, stats.leaked), (stats.retired, 0), "P7: and is released then: {stats:?}");
    drop(stream);
    rig.close();
}

fn r7_errors_of_destroyed_streams_are_kept<B: Bench>(bench: &B) {
    bench.allow(&["R5"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    stream.synchronize().expect("a wait");
    drop(stream);
    rig.tap.rules.fail_always(Call::StreamDestroy, ErrorKind::Unknown);
    assert_eq!(rig.runtime.trim(), 0, "R7: a stream that could not be destroyed is not counted as gone");
    let errors = rig.runtime.take_release_errors();
    let calls: Vec<_> = errors.iter().filter_map(|error| error.failure().map(|failure| failure.call)).collect();
    assert_eq!(calls, [Call::StreamDestroy], "R7: once, with the call: {errors:?}");
    assert_eq!(rig.runtime.trim(), 0, "S7: nor is it tried again");
    rig.tap.rules.clear();
    let report = rig.shut_down(deadline());
    assert_eq!(report.streams_left, 1, "R5: the report has it: {report:?}");
    // The runtime's own, in whose order it frees what no stream of others needs.
    let rig = Rig::new(bench);
    let (runtime, stream) = (rig.runtime.clone(), rig.stream());
    let x = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    drop(x);
    rig.drain();
    rig.tap.rules.fail_always(Call::StreamDestroy, ErrorKind::Unknown);
    drop(stream);
    let own = usize::from(rig.tap.capabilities().stream_ordered_memory);
    let _left = rig.shut_down(Duration::from_millis(10));
    assert_eq!(runtime.take_release_errors().len(), 1 + own, "R7: the one that was leased, and the runtime's own");
}

fn r7_errors_of_what_streams_had_are_kept<B: Bench>(bench: &B) {
    bench.allow(&["R5"]);
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let mut x = rig.four(&a, 1);
    rig.bump(&b, &mut x, 1).expect("a write that waits by an event of its stream");
    b.synchronize().expect("a wait");
    drop((x, a, b));
    rig.drain();
    let told = || {
        let errors = rig.runtime.take_release_errors();
        errors.iter().filter_map(|error| error.failure().map(|failure| failure.call)).collect::<Vec<_>>()
    };
    rig.tap.rules.fail(Call::EventDestroy, 1, ErrorKind::Unknown);
    rig.runtime.trim();
    assert_eq!(told(), [Call::EventDestroy], "R7: the event of its waits");
    rig.tap.rules.fail(Call::StreamDestroy, 1, ErrorKind::Unknown);
    let mistake = Error::Misuse(Misuse::SizeOverflow);
    assert_eq!(rig.runtime.capture(|_| Err(mistake.clone())).map(drop), Err(mistake), "C7");
    assert_eq!(told(), [Call::StreamDestroy], "R7: the stream of a failed capture");
    let _left = rig.shut_down(deadline());
}

fn r7_an_allocation_error_is_the_callers<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let failed = stream.alloc::<u8>(1 << 50).map(drop).expect_err("a petabyte");
    assert_eq!(failed.failure().map(|failure| failure.kind), Some(ErrorKind::OutOfMemory), "R7: {failed}");
    drop(rig.four(&stream, 1));
    drop(stream);
    rig.close();
}

fn a_future_completes_by_the_worker<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let nudges = || nudge(rig.tap.inner());
    block_on(stream.completion(), nudges).expect("a completion");
    assert!(!x.is_busy(), "O2: it has told");
    assert_eq!(block_on(stream.download(&x).expect("a download"), nudges).expect("elements"), [2; 4], "O3");
    drop((x, stream));
    rig.close();
}

fn a_future_completes_by_polling<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    rig.bump(&stream, &mut x, 1).expect("a launch");
    let between = || {
        rig.runtime.poll();
    };
    block_on(stream.completion(), between).expect("a completion");
    assert_eq!(block_on(stream.download(&x).expect("a download"), between).expect("elements"), [2; 4], "O3");
    drop((x, stream));
    rig.close();
}

fn memory_pressure_releases_the_retired<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let x = rig.four(&stream, 1);
    let malloc = if rig.tap.capabilities().stream_ordered_memory { Call::MallocAsync } else { Call::Malloc };
    if malloc == Call::Malloc {
        // Freed in the stream's order, it makes room at once; else only when it is done with.
        stream.synchronize().expect("a wait");
    }
    drop(x);
    let before = frees::<B>(&rig);
    rig.tap.rules.fail(malloc, 1, ErrorKind::OutOfMemory);
    let mut x = stream.alloc::<u32>(4).expect("what is retired makes room");
    assert_eq!((before, frees::<B>(&rig)), (0, 1), "the retired buffer was released first");
    rig.bump(&stream, &mut x, 1).expect("a launch");
    for _ in 0..2 {
        rig.tap.rules.fail(malloc, 1, ErrorKind::OutOfMemory);
    }
    let y = stream.alloc::<u32>(4).expect("the end of the stream's own work makes room");
    for _ in 0..3 {
        rig.tap.rules.fail(malloc, 1, ErrorKind::OutOfMemory);
    }
    let refused = stream.alloc::<u32>(4).map(drop).map_err(|error| error.failure().map(|failure| failure.kind));
    assert_eq!(refused, Err(Some(ErrorKind::OutOfMemory)), "where nothing makes room, the error is the caller's");
    assert!(rig.tap.rules.clear(), "each was met");
    rig.tap.rules.give_nothing(true);
    let nowhere = stream.alloc::<u32>(4).map(drop).map_err(|error| error.failure().map(|failure| failure.call));
    assert_eq!(nowhere, Err(Some(malloc)), "no memory is at address zero");
    rig.tap.rules.give_nothing(false);
    drop((x, y, stream));
    rig.close();
}

fn what_is_retired_is_bounded<B: Bench>(bench: &B) {
    let mut config = Config::default().reclaim(ReclaimMode::Manual);
    config.retired_max = 4;
    let rig = Rig::with(bench, config);
    for _ in 0..20 {
        drop(rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap"));
        let pending = rig.runtime.stats().retired_pending;
        assert!(pending <= 5, "P7: whoever makes more helps to release: {pending} wait");
    }
    rig.drain();
    rig.close();
}

fn a_worker_releases_without_being_asked<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    let (a, b) = (rig.stream(), rig.stream());
    for _ in 0..5 {
        let (mut x, mut y) = (rig.four(&a, 1), rig.four(&b, 1));
        rig.bump(&a, &mut x, 1).expect("a launch");
        rig.sum(&b, &x, &mut y).expect("a launch");
        drop((x, y));
    }
    super::eventually("the worker releases ten buffers", || {
        nudge(rig.tap.inner());
        frees::<B>(&rig) == 10
    });
    drop((a, b));
    rig.close();
}

fn a_worker_needs_no_host_functions<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    rig.tap.rules.fail_always(Call::LaunchHostFunction, ErrorKind::NotSupported);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&b, 1));
    rig.bump(&a, &mut x, 1).expect("a launch");
    rig.sum(&b, &x, &mut y).expect("a launch");
    drop((x, y));
    super::eventually("P11: the slow tick asks", || {
        nudge(rig.tap.inner());
        frees::<B>(&rig) == 2
    });
    let counted = AtomicUsize::new(frees::<B>(&rig));
    assert_eq!(counted.load(Ordering::Relaxed), 2, "O6: each once");
    drop((a, b));
    rig.close();
}

/// What only the tick finds is found while the worker is woken all the time.
fn p11_the_tick_comes_beside_signals<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    rig.tap.functions.lose();
    let (stream, other) = (rig.stream(), rig.stream());
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    rig.bump(&stream, &mut pinned, 1).expect("a launch");
    drop(pinned);
    super::eventually("P11: the tick asks, whatever else wakes the worker", || {
        nudge(rig.tap.inner());
        // Its drop signals.
        drop(other.alloc::<u32>(4).expect("an allocation"));
        rig.tap.log.count(Call::HostUnregister) == 1
    });
    drop((stream, other));
    rig.close();
}

/// What is let go while the device stands still is bounded; nothing that lets go, works or asks is refused for it.
fn r12_makers_are_refused_where_too_much_waits<B: Bench>(bench: &B) {
    const MAX: usize = 8;
    let rig = Rig::with(bench, Config::default().reclaim(ReclaimMode::Manual).backlog_max(MAX));
    let (stream, mut x) = (rig.stream(), rig.runtime.wrap(vec![0_u32; 4]).expect("a wrap"));
    let mut y = rig.four(&stream, 0);
    let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut y, 1)).expect("a capture");
    stream.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let make = || {
        let mut wrap = rig.runtime.wrap(vec![1_u32; 4])?;
        rig.bump(&stream, &mut wrap, 1)
    };
    let made = (0..4 * MAX).filter(|_| make().is_ok()).count();
    assert_eq!(made, MAX, "R12: until as many wait as may");
    let pending = rig.runtime.retired_pending();
    assert_eq!(pending, MAX, "R12: a refused call adds nothing");
    let refused = Error::Backlog { pending, max: MAX };
    assert_eq!(make().map_err(|error| error.to_string()), Err(refused.to_string()), "R12: a typed error");
    assert_eq!(rig.runtime.alloc_host::<u32>(4).map(drop), Err(refused.clone()), "R12: page-locked memory");
    assert_eq!(rig.runtime.module(Image::Source(SOURCE)).map(drop), Err(refused.clone()), "R12: code");
    assert_eq!(graph.instantiate().map(drop), Err(refused.clone()), "R12: an executable");
    assert_eq!(stream.alloc::<u32>(4).map(drop), Err(refused.clone()), "R12: device memory");
    assert_eq!(stream.record().map(drop), Err(refused), "R12: an event");
    rig.bump(&stream, &mut x, 1).expect("R12: work on what is there goes on");
    assert!(x.is_busy(), "and questions");
    drop((x, graph));
    assert_eq!(rig.runtime.poll(), MAX + 1, "R12: letting go is never refused");
    brake.release();
    stream.synchronize().expect("a wait");
    make().expect("R12: what the device is done with makes room");
    drop((y, stream));
    rig.drain();
    rig.close();
}

fn r12_adopted_streams_are_bounded<B: Bench>(bench: &B) {
    const MAX: usize = 4;
    let rig = Rig::with(bench, Config::default().reclaim(ReclaimMode::Manual).adopted_max(MAX));
    let (stream, brake) = (rig.stream(), Brake::new(bench));
    let mut x = rig.four(&stream, 0);
    let theirs = super::stream::Foreign::new(bench, Priority::Normal);
    let adopt = || {
        // SAFETY: S6. The foreign stream is never destroyed.
        let adopted = unsafe { rig.runtime.adopt(theirs.make()) }?;
        brake.hold(&adopted);
        Ok(adopted)
    };
    let mut adopted: Vec<_> = (0..MAX).map(|_| adopt().expect("an adoption")).collect();
    rig.bump(&adopted[0], &mut x, 1).expect("a launch");
    let refused = Err(Error::Backlog { pending: MAX, max: MAX });
    assert_eq!(adopt().map(drop), refused, "R12: those that live count");
    adopted.clear();
    assert_eq!(adopt().map(drop), refused, "R12: and those whose work has not ended");
    brake.release();
    stream.read(&x).expect("a read");
    super::eventually("R12: those that are over make room", || adopt_one(&rig, &theirs));
    drop((x, stream));
    rig.drain();
    rig.close();
    bench.allow(&["R5"]);
}

fn adopt_one<B: Bench>(rig: &Rig<B::Driver>, theirs: &super::stream::Foreign<B>) -> bool {
    nudge(rig.tap.inner());
    // SAFETY: S6. As above.
    unsafe { rig.runtime.adopt(theirs.make()) }.is_ok()
}

fn r12_a_dropped_future_leaves_nothing<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let polled = || {
        let mut completion = Box::pin(stream.completion());
        assert!(!poll_once(completion.as_mut()), "held work has not completed");
        completion
    };
    for _ in 0..100 {
        drop(polled());
        assert_eq!(rig.runtime.retired_pending(), 0, "R12: the last one, at once");
    }
    let (first, rest) = (polled(), (0..1000).map(|_| polled()).collect::<Vec<_>>());
    drop(rest);
    assert!(rig.runtime.retired_pending() <= 600, "R12: earlier ones too, where nobody takes a turn");
    assert_eq!(rig.runtime.poll(), 1, "R12: and all of them at a turn");
    let filed = polled();
    assert_eq!(rig.runtime.poll(), 2, "what somebody still waits for stays");
    drop(filed);
    assert_eq!(rig.runtime.poll(), 1, "R12: what a turn filed is taken out by the next");
    brake.release();
    stream.synchronize().expect("a wait");
    rig.drain();
    let mut first = first;
    assert!(poll_once(first.as_mut()), "and who still waits is told");
    drop((first, stream));
    rig.close();
}

fn r12_a_future_dropped_beside_a_worker_leaves_nothing<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    let stream = rig.stream();
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let mut kept = Box::pin(stream.completion());
    assert!(!poll_once(kept.as_mut()), "held work has not completed");
    for _ in 0..200 {
        let mut completion = Box::pin(stream.completion());
        assert!(!poll_once(completion.as_mut()), "held work has not completed");
    }
    super::eventually("R12: the worker takes out what it had filed", || rig.runtime.retired_pending() == 1);
    brake.release();
    super::eventually("the one that is left is told", || {
        nudge(rig.tap.inner());
        poll_once(kept.as_mut())
    });
    drop((kept, stream));
    rig.close();
}
