//! What real drivers do that makes them harder to use than the rules of a page: habits that profiles name, and what a
//! call, a reset and a fault leave behind.

mod rig;

use std::ptr::NonNull;
use std::sync::Arc;

use rig::{ME, Rig, YOU, blocked, done};
use tenure::driver::{Call, CaptureMode, HostAccess, HostPointer, Location, Priority, Progress, Timing};
use tenure_sim::code::Code;
use tenure_sim::engine::{Answer, Settings};
use tenure_sim::event::{CallName, EventHandle, HostThread, StreamHandle};
use tenure_sim::fault::Fault;
use tenure_sim::profile::{Profile, Quirk};

const LEGACY: StreamHandle = StreamHandle::LEGACY;
const PER_THREAD: StreamHandle = StreamHandle::PER_THREAD;

fn blocking(rig: &mut Rig) -> StreamHandle {
    rig.engine.stream_create_with(ME, Priority::Normal, true).expect("a stream")
}

fn timed(rig: &mut Rig) -> EventHandle {
    rig.engine.event_create(ME, Timing::Enabled).expect("an event")
}

fn query(rig: &mut Rig, thread: HostThread, stream: StreamHandle) -> Result<Progress, Code> {
    rig.engine.stream_query(thread, stream)
}

fn profiles() -> impl Iterator<Item = Profile> {
    Profile::NAMES.iter().filter_map(|name| Profile::named(name))
}

// --- copies over the border of registrations

/// Two registrations of 64 bytes that touch, and 64 bytes of plain memory behind them.
struct Host(Vec<u8>);

impl Host {
    fn at(&mut self, offset: usize) -> HostPointer {
        HostPointer(NonNull::from(&mut self.0[offset]))
    }

    fn registered(rig: &mut Rig) -> Self {
        let mut host = Self(vec![0; 192]);
        for offset in [0, 64] {
            host.register(rig, offset).expect("a registration");
        }
        host
    }

    fn register(&mut self, rig: &mut Rig, offset: usize) -> Result<(), Code> {
        let at = self.at(offset);
        // SAFETY: P4. No test lets the device work once the vector has gone, and nobody touches its bytes meanwhile.
        unsafe { rig.engine.host_register(ME, Some(at), 64, HostAccess::ReadWrite) }
    }
}

fn copy(rig: &mut Rig, host: HostPointer, bytes: u64, up: bool) -> Result<(), Code> {
    let stream = rig.stream();
    let device = Location::Device(rig.malloc(192));
    let (to, from) = if up { (device, Location::Host(host)) } else { (Location::Host(host), device) };
    // SAFETY: P4. All has run before this returns, and the caller has the bytes.
    let answer = match unsafe { rig.engine.copy(ME, stream, to, from, bytes) }? {
        Answer::Done(()) => Ok(()),
        Answer::Blocked(wait) => {
            rig.run();
            rig.engine.finish(wait).map(drop)
        }
    };
    rig.run();
    answer
}

#[test]
fn a_copy_that_begins_in_a_registration_ends_in_it() {
    for profile in profiles() {
        let refuses = profile.has(Quirk::BorderCopiesRefused);
        assert_eq!(refuses, profile.name() != "lenient", "every driver that was read or measured refuses");
        for up in [true, false] {
            for (what, offset, bytes, inside) in [
                ("one whole registration", 0, 64, true),
                ("the end of one", 100, 28, true),
                ("over two that touch", 0, 128, false),
                ("one byte over the border", 63, 2, false),
                ("into plain memory behind", 64, 128, false),
                ("plain memory alone", 128, 64, true),
            ] {
                let mut rig = Rig::new(profile.clone());
                let mut host = Host::registered(&mut rig);
                let expected = if inside || !refuses { Ok(()) } else { Err(Code::INVALID_VALUE) };
                let at = host.at(offset);
                assert_eq!(copy(&mut rig, at, bytes, up), expected, "{}: {what}, up: {up}", profile.name());
            }
        }
    }
}

#[test]
fn a_copy_that_begins_in_plain_memory_may_reach_into_a_registration() {
    let mut rig = Rig::cuda();
    let mut host = Host(vec![0; 128]);
    host.register(&mut rig, 64).expect("a registration");
    let at = host.at(0);
    assert_eq!((copy(&mut rig, at, 128, true), copy(&mut rig, at, 128, false)), (Ok(()), Ok(())));
}

// --- the default streams

#[test]
fn the_legacy_stream_speaks_for_every_blocking_stream() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings::default());
    let (free, blocking) = (rig.stream(), blocking(&mut rig));
    let memory = rig.malloc(4);
    rig.fill(free, memory, 1, 4);
    assert_eq!(query(&mut rig, ME, LEGACY), Ok(Progress::Complete), "a stream that does not block is not its matter");
    done(rig.engine.stream_synchronize(ME, LEGACY)).expect("nothing to wait for");
    rig.run();
    rig.fill(blocking, memory, 2, 4);
    assert_eq!(query(&mut rig, ME, LEGACY), Ok(Progress::Pending));
    assert_eq!(query(&mut rig, ME, PER_THREAD), Ok(Progress::Complete), "only the legacy one does so");
    let wait = blocked(rig.engine.stream_synchronize(ME, LEGACY));
    rig.run();
    assert!(rig.engine.is_over(&wait));
    rig.fill(LEGACY, memory, 3, 4);
    assert_eq!(query(&mut rig, ME, blocking), Ok(Progress::Complete), "nor do they speak for it");
}

#[test]
fn each_thread_has_a_default_stream_of_its_own_and_it_blocks() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings::default());
    let memory = rig.malloc(4);
    rig.fill(PER_THREAD, memory, 1, 4);
    assert_eq!(query(&mut rig, ME, PER_THREAD), Ok(Progress::Pending));
    assert_eq!(query(&mut rig, YOU, PER_THREAD), Ok(Progress::Complete), "it is another thread's");
    assert_eq!(query(&mut rig, YOU, LEGACY), Ok(Progress::Pending), "the legacy one speaks for all threads");
    rig.fill(LEGACY, memory, 2, 4);
    assert_eq!(rig.ready().len(), 1, "the legacy stream waits for it");
    assert_eq!(rig.engine.stream_destroy(ME, PER_THREAD).map(drop), Err(Code::INVALID_HANDLE));
    assert_eq!(rig.engine.live().streams, 0, "nobody has to give a default stream back");
}

#[test]
fn work_on_the_legacy_stream_breaks_the_capture_of_a_blocking_stream_only() {
    for (on, mode, launched, ended) in [
        ("blocking", CaptureMode::Global, Err(Code::CAPTURE_IMPLICIT), Err(Code::CAPTURE_INVALIDATED)),
        ("blocking", CaptureMode::Relaxed, Err(Code::CAPTURE_IMPLICIT), Err(Code::CAPTURE_INVALIDATED)),
        ("per thread", CaptureMode::Relaxed, Err(Code::CAPTURE_IMPLICIT), Err(Code::CAPTURE_INVALIDATED)),
        ("apart", CaptureMode::Global, Ok(()), Ok(())),
    ] {
        let mut rig = Rig::cuda();
        let memory = rig.malloc(4);
        let stream = match on {
            "blocking" => blocking(&mut rig),
            "per thread" => PER_THREAD,
            _ => rig.stream(),
        };
        rig.engine.capture_begin(ME, stream, mode).expect("a begin");
        assert_eq!(rig.try_add(LEGACY, 1, memory, 4), launched, "{on}");
        assert_eq!(rig.engine.capture_end(ME, stream).map(drop), ended, "{on}");
    }
}

#[test]
fn fills_and_copies_on_the_device_do_not_wait_whatever_they_are_called() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings::default());
    let blocking = blocking(&mut rig);
    let memory = rig.malloc(64);
    let at = |offset| Location::Device(memory.offset(offset));
    let mut host = Host(vec![7; 64]);
    rig.fill(blocking, memory, 1, 64);
    done(rig.engine.fill_and_wait(ME, memory, 2, 16)).expect("it does not wait");
    // SAFETY: P4. It names no host memory.
    done(unsafe { rig.engine.copy_and_wait(ME, at(16), at(0), 16) }).expect("it does not wait");
    let from = Location::Host(host.at(0));
    // SAFETY: P4. The vector outlives the run below.
    let wait = blocked(unsafe { rig.engine.copy_and_wait(ME, at(32), from, 16) });
    rig.run();
    rig.engine.finish(wait).map(drop).expect("it has waited");
    let words = rig.words(memory, 16);
    assert_eq!((words[0], words[4], words[8], words[12]), (0x0202_0202, 0x0202_0202, 0x0707_0707, 0x0101_0101));
    let kind = Profile::cuda_13().without(Quirk::FillsDoNotWait).without(Quirk::DeviceCopiesDoNotWait);
    let mut rig = Rig::with(kind, Settings::default());
    let memory = rig.malloc(64);
    let to = Location::Device(memory.offset(32));
    let _ = blocked(rig.engine.fill_and_wait(ME, memory, 2, 16));
    // SAFETY: P4. It names no host memory.
    let _ = blocked(unsafe { rig.engine.copy_and_wait(ME, to, Location::Device(memory), 16) });
}

// --- events

#[test]
fn elapsed_time_needs_two_timed_events_before_anything_else() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings::default());
    let stream = rig.stream();
    let memory = rig.malloc(4);
    let (pending, never, untimed) = (timed(&mut rig), timed(&mut rig), rig.event());
    rig.fill(stream, memory, 1, 4);
    rig.record(pending, stream);
    rig.record(untimed, stream);
    let mut elapsed = |start, end| rig.engine.event_elapsed(ME, start, end);
    assert_eq!(elapsed(pending, pending), Err(Code::NOT_READY));
    for other in [never, untimed] {
        assert_eq!(elapsed(pending, other), Err(Code::INVALID_HANDLE), "whichever of them is pending");
        assert_eq!(elapsed(other, pending), Err(Code::INVALID_HANDLE));
    }
}

#[test]
fn only_external_records_have_a_time_in_a_graph() {
    for external in [false, true] {
        let mut rig = Rig::cuda();
        let stream = rig.stream();
        let memory = rig.malloc(4);
        let (start, end) = (timed(&mut rig), timed(&mut rig));
        rig.engine.capture_begin(ME, stream, CaptureMode::Relaxed).expect("a begin");
        for event in [start, end] {
            let recorded = if external {
                rig.engine.event_record_external(ME, event, stream)
            } else {
                rig.engine.event_record(ME, event, stream)
            };
            done(recorded).expect("a record");
            rig.fill(stream, memory, 1, 4);
        }
        let graph = rig.engine.capture_end(ME, stream).expect("a graph");
        let nodes = rig.engine.graph_describe(ME, graph).expect("a graph").nodes.len();
        assert_eq!(nodes, if external { 4 } else { 2 }, "an external record is a node");
        let executable = rig.engine.graph_instantiate(ME, graph).expect("an executable");
        done(rig.engine.graph_launch(ME, executable, stream)).expect("a launch");
        if external {
            assert_eq!(rig.engine.event_query(ME, start), Ok(Progress::Pending), "it lies in the launch");
        }
        rig.run();
        let elapsed = rig.engine.event_elapsed(ME, start, end);
        assert_eq!(elapsed, if external { Ok(0.0) } else { Err(Code::INVALID_VALUE) });
        let other = rig.stream();
        let waited = done(rig.engine.stream_wait_event(ME, other, start));
        assert_eq!(waited, if external { Ok(()) } else { Err(Code::INVALID_VALUE) });
    }
}

#[test]
fn the_number_of_a_capture_is_never_zero() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    rig.engine.capture_begin(ME, stream, CaptureMode::Global).expect("a begin");
    assert_eq!(rig.engine.capture_id(stream).map(|id| id.0), Some(1));
}

// --- last errors

#[test]
fn a_refused_call_leaves_its_threads_last_error_and_nothing_but_a_look_takes_it() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings::default());
    let stream = rig.stream();
    let memory = rig.malloc(4);
    let mut host = Host::registered(&mut rig);
    rig.fill(stream, memory, 1, 4);
    assert_eq!(query(&mut rig, ME, stream), Ok(Progress::Pending));
    assert_eq!(rig.engine.peek_last_error(ME), Code::SUCCESS, "not ready is no error");
    let refused = [
        (host.register(&mut rig, 0), Code::ALREADY_REGISTERED),
        (rig.engine.host_unregister(ME, Some(host.at(128))).map(drop), Code::NOT_REGISTERED),
    ];
    assert_eq!(refused.map(|(answer, code)| answer == Err(code)), [true; 2]);
    assert_eq!(rig.engine.peek_last_error(ME), Code::NOT_REGISTERED, "the later one");
    rig.fill(stream, memory, 1, 4);
    assert_eq!(rig.engine.peek_last_error(YOU), Code::SUCCESS, "it is the thread's own");
    assert_eq!(rig.engine.take_last_error(ME), Code::NOT_REGISTERED, "success took nothing away");
    assert_eq!(rig.engine.take_last_error(ME), Code::SUCCESS);
    assert_eq!(rig.engine.malloc(ME, 1 << 45), Err(Code::MEMORY_ALLOCATION));
    assert_eq!(rig.engine.host_is_registered(ME, host.at(128)), Ok(false));
    assert_eq!(rig.engine.take_last_error(ME), Code::MEMORY_ALLOCATION);
    rig.engine.lose_device(Code::LAUNCH_FAILURE);
    assert_eq!(rig.engine.take_last_error(ME), Code::LAUNCH_FAILURE);
    assert_eq!(rig.engine.take_last_error(ME), Code::LAUNCH_FAILURE, "a lost device's stays");
}

#[test]
fn below_hip_7_the_last_error_is_the_last_calls_result() {
    let mut rig = Rig::with(Profile::hip_6_4(), Settings::default());
    let stream = rig.stream();
    let memory = rig.malloc(4);
    assert_eq!(rig.engine.malloc(ME, 0), Err(Code::INVALID_VALUE));
    rig.fill(stream, memory, 1, 4);
    assert_eq!(rig.engine.peek_last_error(ME), Code::SUCCESS);
    assert_eq!(query(&mut rig, ME, stream), Ok(Progress::Pending));
    assert_eq!(rig.engine.take_last_error(ME), Code::NOT_READY);
}

// --- resets

#[test]
fn after_a_reset_each_old_handle_is_refused_and_the_device_works() {
    let lost = Code::CONTEXT_IS_DESTROYED;
    for (profile, code) in [(Profile::cuda_13(), Code::INVALID_HANDLE), (Profile::hip_6_4(), lost)] {
        let mut rig = Rig::new(profile);
        let (stream, event) = (rig.stream(), rig.event());
        let memory = rig.malloc(4);
        let mut host = Host::registered(&mut rig);
        rig.fill(stream, memory, 1, 4);
        rig.record(event, stream);
        let wait = blocked(rig.engine.stream_synchronize(ME, stream));
        rig.engine.reset_device(YOU).expect("a reset");
        assert!(rig.engine.is_over(&wait), "nothing is waited for any more");
        assert_eq!(rig.engine.finish(wait).map(drop), Err(code));
        let plain = Code::INVALID_HANDLE;
        let renewed = rig.stream();
        assert_ne!(renewed, stream, "an old handle does not name what is new");
        let engine = &mut rig.engine;
        let nothing = Arc::new(|| {});
        let answers = [
            (engine.stream_query(ME, stream).map(drop), code),
            (engine.stream_synchronize(ME, stream).map(drop), code),
            (engine.launch_host_function(ME, stream, nothing).map(drop), code),
            (engine.capture_begin(ME, stream, CaptureMode::Global), code),
            (engine.fill(ME, stream, memory, 1, 4).map(drop), code),
            (engine.event_query(ME, event).map(drop), code),
            (engine.event_destroy(ME, event), code),
            (engine.stream_destroy(ME, stream).map(drop), code),
            (engine.malloc_async(ME, stream, 4).map(drop), plain),
            (engine.free_async(ME, stream, memory).map(drop), plain),
            (engine.stream_wait_event(ME, stream, event).map(drop), plain),
            (engine.free(ME, memory).map(drop), Code::INVALID_VALUE),
            (engine.host_unregister(ME, Some(host.at(0))).map(drop), Code::NOT_REGISTERED),
        ];
        for (at, (answer, expected)) in answers.into_iter().enumerate() {
            assert_eq!(answer, Err(expected), "answer {at}");
        }
        assert_eq!(rig.violations(), [], "a caller that was told nothing did nothing wrong");
        let again = rig.malloc(4);
        rig.fill(renewed, again, 3, 4);
        assert_eq!(rig.words(again, 1), [0x0303_0303], "it works again at the next call");
        let live = rig.engine.live();
        assert_eq!((live.streams, live.events, live.allocations, live.pins), (1, 0, 1, 0), "nothing of before is left");
    }
}

// --- faults that leave something behind

fn named(call: Call) -> CallName {
    CallName::Core(call)
}

#[test]
fn a_call_may_fail_after_its_effect_and_what_it_made_is_nobodys_leak() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(4);
    let fails = |call| Fault::FailAfter { call: named(call), nth: 1, code: Code::UNKNOWN, always: false };
    for call in [Call::Fill, Call::HostRegister, Call::StreamCreate, Call::MallocAsync, Call::StreamSynchronize] {
        rig.engine.add_fault(fails(call));
    }
    let before = rig.engine.live();
    assert_eq!(rig.engine.fill(ME, stream, memory, 5, 4).map(drop), Err(Code::UNKNOWN));
    let mut host = Host(vec![0; 64]);
    let at = host.at(0);
    assert_eq!(host.register(&mut rig, 0), Err(Code::UNKNOWN));
    assert_eq!(rig.engine.host_is_registered(ME, at), Ok(true), "it is registered all the same");
    assert_eq!(rig.engine.stream_create(ME, Priority::Normal), Err(Code::UNKNOWN));
    assert_eq!(rig.engine.malloc_async(ME, stream, 4).map(drop), Err(Code::UNKNOWN));
    let wait = blocked(rig.engine.stream_synchronize(ME, stream));
    rig.run();
    assert_eq!(rig.engine.finish(wait).map(drop), Err(Code::UNKNOWN), "it waited, and then failed");
    assert_eq!(rig.words(memory, 1), [0x0505_0505], "the fill has run");
    assert_eq!(rig.engine.live(), before, "nobody could give it back");
    rig.engine.host_unregister(ME, Some(at)).map(drop).expect("the caller may undo it");
    assert_eq!(rig.engine.live(), before);
}

#[test]
fn a_call_may_succeed_with_null_and_leave_an_error_and_block() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings::default());
    let stream = rig.stream();
    let memory = rig.malloc(4);
    rig.engine.add_fault(Fault::Null { call: named(Call::Malloc), nth: 1 });
    assert_eq!(rig.engine.malloc(ME, 4).map(|address| address.0), Ok(0));
    assert_eq!(rig.engine.live().allocations, 1, "nothing was allocated");
    let leaves = Fault::LeaveError { call: named(Call::Fill), nth: 2, code: Code::INVALID_VALUE };
    rig.engine.add_fault(leaves);
    rig.fill(stream, memory, 1, 4);
    assert_eq!(rig.engine.peek_last_error(ME), Code::SUCCESS);
    rig.fill(stream, memory, 1, 4);
    assert_eq!(rig.engine.take_last_error(ME), Code::INVALID_VALUE);
    rig.engine.add_fault(Fault::Block { call: named(Call::Malloc), nth: 1, always: false });
    assert!(rig.engine.is_to_block(Call::Malloc));
    let Answer::Blocked(wait) = rig.engine.wait_before(ME, Call::Malloc) else { panic!("it is to wait") };
    assert!(!rig.engine.is_over(&wait));
    rig.run();
    assert!(matches!(rig.engine.finish(wait), Ok(Answer::Done(()))));
    assert!(!rig.engine.is_to_block(Call::Malloc), "once");
}

#[test]
fn guarded_calls_are_to_be_kept_apart_from_captures_below_hip_7() {
    for profile in profiles() {
        let holds_back = matches!(profile.name(), "hip-5.7" | "hip-6.4");
        let capabilities = Rig::new(profile.clone()).engine.capabilities();
        assert_eq!(capabilities.relaxed_protects, !holds_back, "{}", profile.name());
        let asks = matches!(profile.name(), "cuda-13" | "lenient");
        assert_eq!(capabilities.relaxed_protects_events, asks, "{}", profile.name());
    }
}
