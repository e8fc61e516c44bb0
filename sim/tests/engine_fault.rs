//! Host functions and faults of the engine, and that its memory does not grow with what was done.

mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use rig::{ME, Rig, blocked, done};
use tenure::driver::{Call, LaunchConfig, Progress};
use tenure_sim::code::Code;
use tenure_sim::engine::{Settings, Step};
use tenure_sim::event::{CallName, Event, HostThread, Violation};
use tenure_sim::fault::Fault;
use tenure_sim::profile::Profile;

fn host_function(rig: &mut Rig, stream: tenure_sim::event::StreamHandle) {
    done(rig.engine.launch_host_function(ME, stream, Arc::new(|| {}))).expect("a host function");
}

#[test]
fn a_driver_call_inside_a_host_function_is_refused_and_told() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    host_function(&mut rig, stream);
    let choice = rig.ready()[0].choice;
    let Step::Function(call) = rig.engine.step(choice) else { panic!("a host function was to be called") };
    assert_eq!(rig.engine.function_running(), Some(call.op));
    assert_eq!(rig.engine.stream_query(HostThread::FUNCTIONS, stream), Err(Code::NOT_PERMITTED));
    assert_eq!(rig.engine.stream_query(ME, stream), Ok(Progress::Pending), "other threads may call meanwhile");
    assert_eq!(rig.ready().len(), 0, "what follows waits until it returns");
    rig.engine.function_returned(call.op);
    assert_eq!(rig.engine.stream_query(ME, stream), Ok(Progress::Complete));
    let call_name = CallName::Core(Call::StreamQuery);
    assert_eq!(rig.violations(), [Violation::CallInHostFunction { op: call.op, call: call_name }]);
}

#[test]
fn the_nth_call_fails_and_does_nothing() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(4);
    rig.fill(stream, memory, 0, 4);
    rig.engine.add_fault(Fault::Fail {
        call: CallName::Core(Call::Launch),
        nth: 2,
        code: Code::UNKNOWN,
        always: false,
    });
    rig.add(stream, 1, memory, 4);
    assert_eq!(rig.try_add(stream, 10, memory, 4), Err(Code::UNKNOWN));
    rig.add(stream, 100, memory, 4);
    assert_eq!(rig.words(memory, 1), [101]);
}

#[test]
fn a_lost_device_ends_every_wait_and_every_call() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(4);
    rig.engine.add_fault(Fault::LoseDevice { nth: 2, code: Code::LAUNCH_FAILURE });
    rig.fill(stream, memory, 1, 4);
    rig.fill(stream, memory, 2, 4);
    host_function(&mut rig, stream);
    let wait = blocked(rig.engine.stream_synchronize(ME, stream));
    rig.run();
    assert!(rig.engine.is_over(&wait));
    assert!(matches!(rig.engine.finish(wait), Err(Code::LAUNCH_FAILURE)));
    assert_eq!(rig.engine.malloc(ME, 4), Err(Code::LAUNCH_FAILURE));
    assert_eq!(rig.engine.stream_destroy(ME, stream).map(drop), Err(Code::LAUNCH_FAILURE));
    let told = rig.drain().iter().filter(|event| matches!(event, Event::DeviceLost { .. })).count();
    assert_eq!(told, 1);
    let called = |event: &&Event| matches!(event, Event::FunctionStarted { .. });
    assert_eq!(rig.drain().iter().filter(called).count(), 0, "host functions do not run after a fault");
}

#[test]
fn a_sticky_code_from_a_call_loses_the_device() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let call = CallName::Core(Call::StreamQuery);
    rig.engine.add_fault(Fault::Fail { call, nth: 1, code: Code::ILLEGAL_ADDRESS, always: false });
    assert_eq!(rig.engine.stream_query(ME, stream), Err(Code::ILLEGAL_ADDRESS));
    assert_eq!(rig.engine.lost(), Some(Code::ILLEGAL_ADDRESS));
}

#[test]
fn a_skipped_function_lets_the_stream_go_on_and_a_hanging_one_does_not() {
    for (fault, goes_on) in [
        (Fault::SkipFunction { nth: 1, always: false }, true),
        (Fault::HangFunction { nth: 1 }, false),
        (Fault::HangOperation { nth: 1 }, false),
    ] {
        let mut rig = Rig::cuda();
        let (stream, other) = (rig.stream(), rig.stream());
        rig.engine.add_fault(fault);
        host_function(&mut rig, stream);
        rig.run();
        assert_eq!(rig.is_idle(stream), goes_on, "{fault:?}");
        let called = |event: &&Event| matches!(event, Event::FunctionStarted { .. });
        assert_eq!(rig.drain().iter().filter(called).count(), 0, "{fault:?}");
        host_function(&mut rig, other);
        rig.run();
        assert!(rig.is_idle(other), "{fault:?}: other streams go on");
    }
}

#[test]
fn a_kernel_that_panics_is_a_launch_failure() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let panics = rig.function("panics");
    done(rig.engine.launch(ME, stream, panics, &LaunchConfig::linear(1), &[])).expect("a launch");
    let silent = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    rig.run();
    std::panic::set_hook(silent);
    assert_eq!(rig.engine.lost(), Some(Code::LAUNCH_FAILURE));
}

#[test]
fn arguments_that_a_kernel_does_not_take_are_refused() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(8);
    assert_eq!(rig.try_add(stream, 1, memory, 6), Err(Code::INVALID_VALUE), "6 bytes are no words");
    assert!(matches!(rig.violations()[..], [Violation::KernelArguments { argument: 1, .. }]));
    let mut none = LaunchConfig::linear(1);
    none.grid[1] = 0;
    let panics = rig.function("panics");
    assert_eq!(done(rig.engine.launch(ME, stream, panics, &none, &[])), Err(Code::INVALID_VALUE));
}

/// Counts the bytes that this thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: R4. Every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: R4. The caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: R4. The caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One round of everything that makes and gives back objects.
fn round(rig: &mut Rig) {
    let (a, b) = (rig.stream(), rig.stream());
    let event = rig.event();
    let memory = done(rig.engine.malloc_async(ME, a, 64)).expect("memory");
    rig.fill(a, memory, 1, 64);
    rig.record(event, a);
    rig.wait(b, event);
    rig.add(b, 1, memory, 64);
    host_function(rig, b);
    done(rig.engine.free_async(ME, b, memory)).expect("a free");
    rig.engine.capture_begin(ME, a, tenure::driver::CaptureMode::Relaxed).expect("it captures nothing");
    let inside = done(rig.engine.malloc_async(ME, a, 64)).expect("memory");
    rig.fill(a, inside, 1, 64);
    done(rig.engine.free_async(ME, a, inside)).expect("a free");
    let graph = rig.engine.capture_end(ME, a).expect("a graph");
    let executable = rig.engine.graph_instantiate(ME, graph).expect("an executable");
    done(rig.engine.graph_launch(ME, executable, b)).expect("a launch");
    rig.engine.graph_destroy(ME, graph).expect("it lives");
    rig.engine.executable_destroy(ME, executable).expect("it lives");
    rig.engine.event_destroy(ME, event).expect("it lives");
    done(rig.engine.stream_destroy(ME, a)).expect("it lives");
    done(rig.engine.stream_destroy(ME, b)).expect("it lives");
    let pinned = rig.engine.host_alloc(ME, 64).expect("memory");
    rig.run();
    done(rig.engine.host_free(ME, pinned)).expect("an idle device");
}

#[test]
fn memory_grows_with_what_lives_not_with_what_was_done() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings { whole_steps: true, events: false, ..Settings::default() });
    let before = rig.engine.live();
    for _ in 0..100 {
        round(&mut rig);
    }
    let held = HELD.get();
    for _ in 0..10_000 {
        round(&mut rig);
    }
    assert_eq!(HELD.get() - held, 0, "bytes that 10,000 rounds left behind");
    assert_eq!(rig.engine.live(), before);
    assert_eq!(rig.engine.lost(), None);
}
