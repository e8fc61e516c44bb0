//! One device under each drive, its figures, its trace, and the core on it.

use super::*;
use crate::checker::Line;
use crate::{Config, check};
use tenure::{Queue, ReclaimMode, Runtime};

const BYTES: u64 = 64;

fn stream(sim: &Sim) -> SimStream {
    sim.stream_create(Priority::Normal).expect("streams can be made")
}

fn fill(sim: &Sim, stream: &SimStream, memory: DeviceAddress) {
    // SAFETY: the simulation owns the memory; a use after its end is what the checkers are to find.
    unsafe { sim.fill(stream, memory, 7, BYTES) }.expect("the device works");
}

fn work(sim: &Sim, operations: u64) {
    let (a, b, x) = (stream(sim), stream(sim), sim.malloc(BYTES).expect("there is room"));
    let event = sim.event_create(Timing::Disabled).expect("events can be made");
    for _ in 0..operations {
        fill(sim, &a, x);
        sim.event_record(&event, &a).expect("the device works");
        sim.stream_wait_event(&b, &event).expect("the device works");
        fill(sim, &b, x);
        sim.event_record(&event, &b).expect("the device works");
        sim.stream_wait_event(&a, &event).expect("the device works");
    }
    sim.stream_synchronize(&a).expect("the device works");
    // SAFETY: all work on it has completed, as the stream `a` waited for `b`.
    unsafe { sim.free(x) }.expect("nothing uses it");
    sim.event_destroy(event).expect("the device works");
    for stream in [a, b] {
        // SAFETY: nobody else knows the stream.
        unsafe { sim.stream_destroy(&stream) }.expect("the device works");
    }
}

#[test]
fn the_same_program_is_clean_under_every_drive() {
    for drive in [Drive::Stepped, Drive::Seeded, Drive::Threaded] {
        let sim = Sim::builder().drive(drive).seed(3).build();
        work(&sim, 20);
        let report = sim.finish();
        assert!(report.is_clean(), "{drive:?}: {report}");
        assert_eq!(report.leaks, Some(Leaks::default()));
        assert_eq!(report.counts.of(Call::Fill), 40);
        assert_eq!(report.order.edges, 40);
    }
}

#[test]
fn many_threads_share_a_threaded_device() {
    let sim = Sim::builder().drive(Drive::Threaded).build();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let device = sim.clone();
            sim.spawn("worker", move || work(&device, 50))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join());
    let report = sim.finish();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.counts.total(), 4 * (50 * 6 + 9));
}

#[test]
fn a_stepped_device_moves_only_where_it_is_told_to() {
    let sim = Sim::builder().drive(Drive::Stepped).whole_steps().build();
    let (a, b, x) = (stream(&sim), stream(&sim), sim.malloc(2 * BYTES).expect("there is room"));
    fill(&sim, &a, x);
    fill(&sim, &b, x.offset(BYTES));
    assert_eq!(sim.ready().len(), 2);
    assert_eq!(sim.stream_query(&a), Ok(Progress::Pending));
    assert!(sim.step_on(&b));
    assert!(!sim.step_on(&b), "it has run all that it had");
    assert_eq!((sim.stream_query(&a), sim.stream_query(&b)), (Ok(Progress::Pending), Ok(Progress::Complete)));
    sim.stall(&a);
    assert!(!sim.step(), "the only stream with work is stalled");
    sim.resume(&a);
    assert_eq!(sim.run_to_idle(), 1);
    assert!(sim.report().is_clean());
}

#[test]
fn calls_are_counted_by_kind_and_thread() {
    let sim = Sim::new(Profile::cuda_13());
    let (a, x) = (stream(&sim), sim.malloc(BYTES).expect("there is room"));
    let device = sim.clone();
    let other = sim.spawn("other", move || {
        fill(&device, &a, x);
        device.thread()
    });
    let other = other.join();
    let counts = sim.counts();
    assert_ne!(other, sim.thread());
    assert_eq!((counts.of(Call::Fill), counts.of_thread(other, Call::Fill)), (1, 1));
    assert_eq!(counts.of_thread(sim.thread(), Call::Fill), 0);
    assert_eq!((counts.total(), counts.total_of_thread(sim.thread())), (3, 2));
}

#[test]
fn a_seed_gives_the_same_trace_byte_for_byte_and_perfetto_can_read_it() {
    let trace = |seed| {
        let sim = Sim::builder().seed(seed).build();
        work(&sim, 10);
        (sim.perfetto(), sim.lanes(1_000))
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
    let whole: serde_json::Value = serde_json::from_str(&trace(5).0).expect("it is JSON");
    let events = whole["traceEvents"].as_array().expect("a list of events");
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert!(count("X") > 60, "calls and operations are slices");
    assert_eq!(count("s"), count("f"), "each arrow has two ends");
    assert!(count("s") >= 19, "edges are arrows");
    let names: Vec<_> = events.iter().filter(|event| event["name"] == "thread_name").collect();
    assert_eq!(names.len(), 3, "a track for the host thread and each stream that did something");
}

#[test]
fn the_trace_is_a_ring_and_says_what_it_dropped() {
    let sim = Sim::builder().trace_rows(10).build();
    work(&sim, 10);
    assert!(sim.lanes(100).starts_with('('), "{}", sim.lanes(100));
    let whole: serde_json::Value = serde_json::from_str(&sim.perfetto()).expect("it is JSON");
    assert!(whole["otherData"]["rows_dropped"].as_u64().expect("a number") > 100);
}

#[test]
fn memory_grows_with_what_is_live_and_not_with_what_was_done() {
    let sim = Sim::builder().trace_rows(64).build();
    work(&sim, 100);
    let first = sim.shared().world.lock().checkers.size();
    for _ in 0..100 {
        work(&sim, 100);
    }
    let last = sim.shared().world.lock().checkers.size();
    assert!(last <= first + 256, "the checkers kept {first} entries after one round and {last} after a hundred more");
    assert!(sim.finish().is_clean());
}

#[test]
fn an_operation_that_never_ends_is_found_by_a_thread_outside_of_schedules() {
    let patience = Duration::from_millis(50);
    let fault = Fault::HangOperation { nth: 1 };
    let sim = Sim::builder().fault(fault).drive(Drive::Threaded).patience(patience).build();
    let (a, x) = (stream(&sim), sim.malloc(BYTES).expect("there is room"));
    fill(&sim, &a, x);
    assert!(sim.stream_synchronize(&a).is_err(), "the wait ends by the loss of the device");
    assert_eq!(sim.report().findings[0].line, Line::R6);
}

#[test]
fn the_core_hands_a_buffer_between_threads_under_many_schedules() {
    check(Config::default().fibers().schedules(300).deny_warnings(), |sim| {
        let config = tenure::Config::default().reclaim(ReclaimMode::Manual);
        let runtime = Runtime::with(sim.clone(), config).expect("the device works");
        let a = runtime.stream().expect("there is a stream");
        let buffer = a.upload(&[1u32, 2, 3]).expect("there is room");
        let inner = runtime.clone();
        let thread = sim.spawn("other", move || {
            let b = inner.stream().expect("there is a stream");
            let mut copy = b.alloc::<u32>(3).expect("there is room");
            b.copy(&buffer, &mut copy).expect("the device works");
            assert_eq!(b.read(&copy).expect("the device works"), [1, 2, 3]);
            inner.poll();
        });
        drop(a);
        thread.join();
        assert!(runtime.shutdown(Duration::from_secs(10)).is_clean());
    });
}

#[cfg(all(target_os = "linux", not(miri)))]
mod host_memory {
    use super::*;
    use std::ptr::NonNull;

    const PAGE: usize = 4096;

    fn map(at: *mut libc::c_void, flags: libc::c_int, protection: libc::c_int) -> HostPointer {
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: P4. New memory, or in the place of memory that only this test uses.
        let address = unsafe { libc::mmap(at, PAGE, protection, flags, -1, 0) };
        assert_ne!(address, libc::MAP_FAILED, "the system has a page");
        HostPointer(NonNull::new(address.cast()).expect("not null"))
    }

    fn register(sim: &Sim, at: HostPointer, access: HostAccess) -> Code {
        // SAFETY: P4. The page is never given back.
        let registered = unsafe { sim.host_register(at, PAGE, access) };
        if registered.is_ok() {
            // SAFETY: P3. Nothing uses it.
            unsafe { sim.host_unregister(at) }.expect("it was registered");
        }
        registered.err().map_or(Code::SUCCESS, |error| error.code())
    }

    /// A page that could be written and now can only be read, at the same address, is asked about anew.
    #[test]
    fn memory_that_can_only_be_read_is_registered_for_reading_only() {
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        for name in Profile::NAMES {
            let sim = Sim::new(Profile::named(name).expect("a listed profile"));
            let page = map(std::ptr::null_mut(), 0, read_write);
            assert_eq!(register(&sim, page, HostAccess::ReadWrite), Code::SUCCESS, "{name}");
            let again = map(page.0.as_ptr().cast(), libc::MAP_FIXED, libc::PROT_READ);
            assert_eq!(again, page);
            let refused = if *name == "lenient" { Code::SUCCESS } else { Code::INVALID_VALUE };
            assert_eq!(register(&sim, page, HostAccess::ReadWrite), refused, "{name}");
            assert_eq!(register(&sim, page, HostAccess::Read), Code::SUCCESS, "{name}");
            map(page.0.as_ptr().cast(), libc::MAP_FIXED, libc::PROT_NONE);
            assert_eq!(register(&sim, page, HostAccess::Read), Code::INVALID_VALUE, "{name}");
        }
    }
}

#[test]
fn a_timed_event_has_the_time_of_its_stream_and_not_the_latest_of_the_run() {
    let sim = Sim::builder().drive(Drive::Stepped).build();
    let (busy, apart) = (stream(&sim), stream(&sim));
    let memory = sim.malloc(BYTES).expect("there is room");
    let timed = || sim.event_create(Timing::Enabled).expect("events can be made");
    let (start, end, idle_start, idle_end) = (timed(), timed(), timed(), timed());
    let record = |event, stream| sim.event_record(event, stream).expect("a record");
    record(&idle_start, &apart);
    record(&idle_end, &apart);
    record(&start, &busy);
    for _ in 0..100 {
        fill(&sim, &busy, memory);
    }
    record(&end, &busy);
    assert!(sim.step_on(&apart), "the first of the two records");
    while sim.step_on(&busy) {}
    assert!(sim.step_on(&apart), "the second");
    let elapsed = |start, end| sim.event_elapsed(start, end).expect("both have run");
    let work_ms = elapsed(&start, &end);
    assert!(work_ms >= 0.05, "a hundred fills of half a microsecond took {work_ms} ms");
    let apart_ms = elapsed(&idle_start, &idle_end);
    assert!(apart_ms < 0.01, "two records that follow each other are {apart_ms} ms apart");
}

#[test]
fn a_call_that_a_fault_holds_up_waits_for_the_device_first() {
    let call = crate::event::CallName::Core(Call::Malloc);
    let sim = Sim::builder().drive(Drive::Stepped).fault(Fault::Block { call, nth: 2, always: false }).build();
    let (stream, memory) = (stream(&sim), sim.malloc(BYTES).expect("there is room"));
    fill(&sim, &stream, memory);
    assert_eq!(sim.stream_query(&stream), Ok(Progress::Pending));
    sim.malloc(BYTES).expect("it does what it does");
    assert_eq!(sim.stream_query(&stream), Ok(Progress::Complete), "and nobody waited but that call");
}

#[test]
fn other_code_resets_the_device_and_calls_by_its_own_are_not_counted() {
    let sim = Sim::builder().drive(Drive::Stepped).build();
    let (old, memory) = (stream(&sim), sim.malloc(BYTES).expect("there is room"));
    fill(&sim, &old, memory);
    let before = sim.counts();
    sim.reset_device().expect("the device works");
    sim.device_synchronize().expect("the device works");
    let blocking = sim.stream_create_with(Priority::Normal, true).expect("streams can be made");
    assert_eq!(sim.counts(), before);
    assert_eq!(sim.stream_query(&old).map_err(|error| error.code()), Err(Code::INVALID_HANDLE));
    assert_eq!(sim.peek_last_error(), Code::SUCCESS, "a call of the trait leaves none behind");
    let asked = sim.foreign(|| sim.stream_query(&old)).map_err(|error| error.code());
    assert_eq!(asked, Err(Code::INVALID_HANDLE));
    assert_eq!(sim.peek_last_error(), Code::INVALID_HANDLE, "other code's call does");
    assert_eq!((sim.take_last_error(), sim.take_last_error()), (Code::INVALID_HANDLE, Code::SUCCESS));
    let memory = sim.malloc(BYTES).expect("it works again");
    fill(&sim, &blocking, memory);
    assert_eq!(sim.stream_query(&SimStream::legacy()), Ok(Progress::Pending));
    sim.stream_synchronize(&SimStream::legacy()).expect("the device works");
    assert_eq!(sim.stream_query(&blocking), Ok(Progress::Complete));
    assert!(sim.report().is_clean(), "{}", sim.report());
}

/// The executor of a program that has none: one future, and a thread that sleeps until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Wakes(std::thread::Thread);
    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Wakes(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_device_moves_by_itself_for_who_waits_to_be_told_and_makes_no_call() {
    let sim = Sim::new(Profile::cuda_13());
    let (stream, memory) = (stream(&sim), sim.malloc(BYTES).expect("there is room"));
    for _ in 0..3 {
        let (tell, told) = std::sync::mpsc::channel();
        for _ in 0..50 {
            fill(&sim, &stream, memory);
        }
        let tell = Mutex::new(tell);
        let function = Arc::new(move || tell.lock().send(()).expect("somebody listens"));
        sim.launch_host_function(&stream, function).expect("the device works");
        told.recv_timeout(Duration::from_secs(20)).expect("nobody calls, and the device moves all the same");
    }
    assert!(sim.report().is_clean(), "{}", sim.report());
}

#[test]
fn a_future_ends_on_the_default_device_under_an_executor_that_only_sleeps() {
    let runtime = Runtime::new(Sim::new(Profile::cuda_13())).expect("a runtime");
    let stream = runtime.stream().expect("a stream");
    let mut memory = stream.alloc::<u32>(16).expect("there is room");
    let begun = std::time::Instant::now();
    let mut fastest = Duration::MAX;
    for turn in 0..20 {
        let before = begun.elapsed();
        stream.fill(&mut memory, turn).expect("the device works");
        block_on(stream.completion()).expect("the device works");
        fastest = fastest.min(begun.elapsed() - before);
    }
    // The worker's tick comes each 50 milliseconds and later: whoever hangs on it is never faster.
    assert!(fastest < Duration::from_millis(40), "the fastest of twenty took {fastest:?}");
}

#[test]
fn a_kernel_that_calls_the_driver_is_refused_and_told() {
    let sim = std::sync::Arc::new(Sim::builder().drive(Drive::Stepped).build());
    let (inside, answers) = (std::sync::Arc::downgrade(&sim), std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
    let told = answers.clone();
    sim.kernel("calls", move |_: crate::kernel::Write<'_, u8>| {
        let Some(sim) = inside.upgrade() else { return };
        let made = sim.malloc(BYTES).map(drop).map_err(|error| error.code());
        told.lock()
            .expect("nobody panics")
            .extend([made, sim.stream_create(Priority::Normal).map(drop).map_err(|error| error.code())]);
    });
    let (stream, memory) = (stream(&sim), sim.malloc(BYTES).expect("there is room"));
    let module = sim.module_load(Image::Source("")).expect("a module");
    let function = sim.function(&module, "calls").expect("a kernel");
    let argument = Argument::Pointer { address: memory, bytes: BYTES };
    // SAFETY: O1. The kernel has this signature, and touches nothing.
    unsafe { sim.launch(&stream, &function, &LaunchConfig::linear(1), &[argument]) }.expect("a launch");
    assert_eq!(sim.stream_synchronize(&stream).map_err(|error| error.code()), Err(Code::LAUNCH_FAILURE));
    assert_eq!(*answers.lock().expect("nobody panics"), [Err(Code::NOT_PERMITTED); 2], "and it did not hang");
    let findings = sim.finish().findings;
    let is_told = |message: &str| message.contains("it made a driver call, malloc, which no kernel can");
    assert!(findings.iter().any(|finding| is_told(&finding.message)), "{findings:?}");
}
