//! Parts of the core by themselves, over a tapped simulator: what they ask of the driver and when, and the figures and
//! the bounds that whole programs seldom reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use libtest_mimic::{Failed, Trial};
use tenure::call_scope::MayWait;
use tenure::context::Context;
use tenure::driver::{Call, CaptureMode, Driver, ErrorKind, HostAccess, HostPointer, Priority, Timing};
use tenure::error::Error;
use tenure::ownership::{Access, Record, Use, submit};
use tenure::pool::Pool;
use tenure::reclaim::{Ask, Notice, Reclaim, Remaining, Resource, Retired};
use tenure::registration::{HostRange, Pins, Request};
use tenure::stream_state::{Kind, StreamState};
use tenure_sim::drive::Drive;
use tenure_sim::driver::Sim;
use tenure_sim::profile::Profile;
use tenure_tests::bench::{Bench, SimBench};
use tenure_tests::rig::{Brake, Lent, Rig};
use tenure_tests::tap::Tap;

type D = Tap<Sim>;

/// What a runtime is made of.
struct Parts {
    bench: SimBench,
    tap: D,
    context: Context<D>,
    pool: Pool<D>,
    pins: Pins<D>,
    reclaim: Arc<Reclaim<D>>,
}

impl Parts {
    fn new() -> Self {
        let bench = SimBench::new(Profile::cuda_13(), Drive::Seeded, 0);
        let tap = Tap::new(bench.driver());
        let (context, pins, reclaim) = (Context::new(tap.clone()), Pins::new(), Arc::new(Reclaim::new()));
        Self { bench, tap, context, pool: Pool::new(8), pins, reclaim }
    }

    fn stream(&self) -> Arc<StreamState<D>> {
        self.pool.claim(&self.context, Priority::Normal).expect("a stream")
    }

    /// A stream of somebody else's.
    fn adopted(&self) -> Arc<StreamState<D>> {
        let raw = self.tap.stream_create(Priority::Normal).expect("a stream");
        StreamState::new(raw, Kind::Adopted(self.tap.event_create(Timing::Disabled).expect("an event")))
    }

    /// Submits a write that enqueues nothing.
    fn write(&self, stream: &Arc<StreamState<D>>, record: &Record<D>) {
        let uses = [Use::new(record, Access::Write)];
        submit(&self.context, stream, &uses, Call::Launch, |_, _| Ok(())).expect("a submission");
    }

    /// A thread that waits for all that uses the record.
    fn wait_for(&self, record: &Record<D>) -> Arc<Notice> {
        let notice = Arc::new(Notice::default());
        let points = record.points(Access::Write, &MayWait::here().expect("no hold"));
        self.reclaim.retire(Retired { resource: Resource::Notice(notice.clone()), points });
        notice
    }

    /// A write that stands still until the brake is released, and a thread that waits for it.
    fn held_write(&self, stream: &Arc<StreamState<D>>, record: &Record<D>) -> (Brake<'_, SimBench>, Arc<Notice>) {
        let brake = Brake::new(&self.bench);
        brake.hold_raw(&self.bench.driver(), &stream.raw);
        self.write(stream, record);
        (brake, self.wait_for(record))
    }

    fn turn(&self, ask: Ask) -> Remaining {
        self.reclaim.turn(&self.context, &self.pins, ask)
    }

    /// Host functions enqueued, and streams asked, so far.
    fn told(&self) -> [usize; 2] {
        [Call::LaunchHostFunction, Call::StreamQuery].map(|call| self.tap.log.count(call))
    }

    fn request(&self, base: HostPointer, bytes: usize) -> Request {
        Request { range: HostRange { base, bytes }, access: HostAccess::ReadWrite, scope: None }
    }
}

fn r2_a_lane_has_one_host_function_in_flight() {
    let parts = Parts::new();
    let (stream, record) = (parts.stream(), Record::new());
    let (brake, notice) = parts.held_write(&stream, &record);
    assert_eq!(parts.turn(Ask::Query), Remaining { waiting: 1, deferred: 0 });
    assert_eq!(parts.told(), [0, 1], "asking alone arms nothing");
    for _ in 0..3 {
        assert_eq!(parts.turn(Ask::Arm), Remaining { waiting: 1, deferred: 0 });
        assert_eq!(parts.told(), [1, 1], "R2: a function in flight will tell: no other, and no question");
    }
    parts.turn(Ask::Both);
    assert_eq!(parts.told(), [1, 2], "P11: the tick asks as well, and arms nothing beside it");
    assert!(!notice.is_set() && !stream.timeline.is_drained(), "held");
    brake.release();
    stream.wait(&parts.context, 1, &mut MayWait::here().expect("no hold")).expect("a wait");
    assert!(stream.timeline.is_drained(), "O2: all of it is complete");
    assert_eq!(parts.turn(Ask::Arm), Remaining { waiting: 0, deferred: 0 });
    assert!(notice.is_set(), "R2: told");
    let (brake, _) = parts.held_write(&stream, &record);
    parts.turn(Ask::Arm);
    assert_eq!(parts.told(), [2, 2], "R2: the next work has a function of its own");
    brake.release();
}

fn p11_streams_are_asked_where_nothing_tells() {
    let mut parts = Parts::new();
    parts.context.capabilities.host_functions = false;
    let (stream, record) = (parts.stream(), Record::new());
    let (brake, _) = parts.held_write(&stream, &record);
    parts.turn(Ask::Arm);
    assert_eq!(parts.told(), [0, 1], "this driver has no host functions");
    brake.release();
}

fn p11_what_waits_for_a_stream_that_breaks_is_told() {
    let parts = Parts::new();
    let (stream, record) = (parts.stream(), Record::new());
    let (brake, notice) = parts.held_write(&stream, &record);
    assert_eq!(parts.turn(Ask::Query).waiting, 1, "filed");
    parts.tap.rules.fail(Call::StreamQuery, 1, ErrorKind::Unknown);
    assert_eq!(parts.turn(Ask::Query).waiting, 0, "S7: nobody knows when it ends");
    assert!(matches!(notice.poll(Waker::noop()), Some(Err(Error::StreamBroken(_)))), "R7: and it says so");
    brake.release();
}

/// Memory that the device may still use is kept forever, whatever ends first: the runtime, the stream, or the device.
fn p11_what_may_be_in_use_is_kept() {
    for ending in ["filed", "fresh", "broken", "given up", "lost"] {
        let parts = Parts::new();
        let (stream, record) = (parts.stream(), Record::new());
        let (brake, _notice) = parts.held_write(&stream, &record);
        let memory = Arc::new(());
        let points = record.points(Access::Write, &MayWait::here().expect("no hold"));
        parts.reclaim.retire(Retired { resource: Resource::Kept(Box::new(memory.clone())), points });
        if ending != "fresh" {
            assert_eq!(parts.turn(Ask::Query).waiting, 2, "filed");
        }
        match ending {
            "broken" => parts.tap.rules.fail(Call::StreamQuery, 1, ErrorKind::Unknown),
            "given up" => {
                parts.tap.rules.fail(Call::StreamSynchronize, 1, ErrorKind::Unknown);
                assert!(
                    stream.wait(&parts.context, 1, &mut MayWait::here().expect("no hold")).is_err(),
                    "nobody knows when it ends"
                );
            }
            "lost" => parts.tap.rules.fail(Call::StreamQuery, 1, ErrorKind::DeviceLost),
            _ => parts.reclaim.close(&parts.context, &parts.pins),
        }
        if ["broken", "given up", "lost"].contains(&ending) {
            parts.turn(Ask::Query);
            assert_eq!(parts.turn(Ask::Query).waiting, 0, "nobody waits any more: {ending}");
        }
        assert_eq!(Arc::strong_count(&memory), 2, "P11: kept, {ending}");
        brake.release();
    }
}

/// A capture that the driver would not go on with names the call that broke it, and a lost device is left alone.
fn c7_a_broken_capture_names_its_cause() {
    let rig = Rig::new(&SimBench::new(Profile::cuda_13(), Drive::Seeded, 0));
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    for kind in [ErrorKind::CaptureInvalidated, ErrorKind::DeviceLost] {
        rig.tap.rules.fail(Call::Launch, 1, kind);
        rig.tap.rules.fail(Call::CaptureEnd, 1, kind);
        let destroyed = rig.tap.log.count(Call::StreamDestroy);
        let failed = rig.runtime.capture(|capture| {
            // The body passes over it.
            drop(rig.bump(capture, &mut x, 1));
            Ok(())
        });
        let call = failed.map(drop).map_err(|error| error.failure().map(|failure| failure.call));
        assert_eq!(call, Err(Some(Call::Launch)), "C7: the cause, not what follows from it");
        let destroyed = rig.tap.log.count(Call::StreamDestroy) - destroyed;
        assert_eq!(
            destroyed,
            usize::from(kind != ErrorKind::DeviceLost),
            "C7: its stream goes; R6: unless all is lost"
        );
    }
    drop((x, stream));
}

/// What the device may use when it is lost is kept, whoever waited for it.
fn p11_what_was_waited_for_at_a_loss_is_kept() {
    let bench = SimBench::new(Profile::cuda_13(), Drive::Seeded, 0);
    let rig = Rig::new(&bench);
    let stream = rig.stream();
    let brake = Brake::new(&bench);
    brake.hold(&stream);
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    rig.bump(&stream, &mut pinned, 1).expect("a launch");
    let memory: &'static mut [u32] = Box::leak(Box::new([0_u32; 4]));
    rig.tap.rules.fail(Call::StreamSynchronize, 1, ErrorKind::DeviceLost);
    let scoped = rig.runtime.scope(|scope| rig.bump(&stream, &mut scope.wrap(memory)?, 1));
    assert!(matches!(scoped, Err(Error::Lost(_))), "R6: a scope ends: {scoped:?}");
    assert_eq!(rig.runtime.stats().pins_quarantined, 1, "P11: and keeps its range");
    assert!(matches!(pinned.free(), Err(Error::Lost(_))), "R6: an explicit free ends");
    rig.runtime.poll();
    assert_eq!(rig.runtime.stats().leaked, 1, "P11: and its range is kept");
    brake.release();
}

fn p7_what_nobody_signals_is_waited_for_by_the_tick() {
    let parts = Parts::new();
    let raw = parts.stream();
    let memory = parts.tap.malloc_async(&raw.raw, 64).expect("memory");
    parts.reclaim.retire(Retired { resource: Resource::Memory(memory), points: Default::default() });
    parts.tap.rules.fail(Call::StreamCreate, 1, ErrorKind::OutOfMemory);
    assert_eq!(parts.turn(Ask::Arm), Remaining { waiting: 1, deferred: 0 }, "a stream that the driver would not make");
    assert_eq!(parts.turn(Ask::Arm).total(), 0);
    let mut owned = vec![0_u8; 4096];
    let base = HostPointer(std::ptr::NonNull::new(owned.as_mut_ptr()).expect("not null"));
    let pinned = parts.pins.pin(&parts.context, parts.request(base, 4096), Some(Box::new(owned)));
    let (pin, _) = pinned.expect("a registration");
    let epoch = parts.pins.give_back(&pin).expect("the last count");
    parts.reclaim.retire(Retired { resource: Resource::Pin(pin.clone(), epoch), points: Default::default() });
    let uses = [Use::new(&pin.record, Access::Write)];
    let moving = submit(&parts.context, &raw, &uses, Call::Launch, |_, _| Ok(parts.turn(Ask::Arm)));
    let left = moving.expect("a submission").0;
    assert_eq!(left, Remaining { waiting: 1, deferred: 0 }, "a record that somebody is moving right now");
    assert_eq!(Remaining { waiting: 2, deferred: 1 }.total(), 3);
}

fn r5_the_event_of_an_adopted_stream_is_given_back() {
    let parts = Parts::new();
    let resource = Resource::Adopted(parts.adopted());
    parts.reclaim.retire(Retired { resource, points: Default::default() });
    assert_eq!(parts.turn(Ask::Arm).total(), 0);
    assert_eq!(parts.tap.log.count(Call::EventDestroy), 1, "nobody knows the stream any more");
}

/// Looks, where it is dropped, whether somebody is on turn.
struct Looks(Arc<Reclaim<D>>, Arc<AtomicBool>);

impl Drop for Looks {
    fn drop(&mut self) {
        self.1.store(self.0.is_on_turn(), Ordering::Relaxed);
    }
}

fn r5_who_has_things_in_hand_is_on_turn() {
    let parts = Parts::new();
    assert!(!parts.reclaim.signal.take() && !parts.reclaim.is_on_turn(), "nothing is to be done, and nobody does it");
    let seen = Arc::new(AtomicBool::new(false));
    let looks = Box::new(Looks(parts.reclaim.clone(), seen.clone()));
    parts.reclaim.retire(Retired { resource: Resource::Kept(looks), points: Default::default() });
    assert!(parts.reclaim.signal.take(), "R2: there is something to look at");
    parts.turn(Ask::Arm);
    assert!(seen.load(Ordering::Relaxed), "by the turn that dropped it");
}

/// Notes that it was dropped.
struct Noted(Arc<AtomicBool>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn r4_what_nobody_released_is_kept() {
    let parts = Parts::new();
    let dropped = Arc::new(AtomicBool::new(false));
    let resource = Resource::Kept(Box::new(Noted(dropped.clone())));
    parts.reclaim.retire(Retired { resource, points: Default::default() });
    drop(parts);
    assert!(!dropped.load(Ordering::Relaxed), "R4: a copy may still use it");
}

fn s6_an_adopted_stream_is_asked_by_its_event() {
    let parts = Parts::new();
    let (adopted, ours, record) = (parts.adopted(), parts.stream(), Record::new());
    parts.write(&adopted, &record);
    let marked = parts.tap.log.mark();
    assert!(matches!(adopted.query(&parts.context), Some(Ok(_))), "an answer");
    parts.write(&ours, &record);
    parts.write(&adopted, &record);
    adopted
        .wait(&parts.context, adopted.timeline.horizon().number(), &mut MayWait::here().expect("no hold"))
        .expect("a wait");
    let calls = parts.tap.log.since(marked);
    let asked = [Call::EventQuery, Call::EventSynchronize].map(|call| calls.contains(&call));
    assert_eq!(asked, [true; 2], "S6: its own event is there however long the stream is: {calls:?}");
    let of_the_stream = [Call::StreamQuery, Call::StreamSynchronize].map(|call| calls.contains(&call));
    assert_eq!(of_the_stream, [false; 2], "S6: the stream itself is the others': {calls:?}");
}

fn p10_a_range_is_borrowed_only_as_a_whole() {
    let parts = Parts::new();
    let mut memory = Lent::from(vec![0_u8; 3 * 4096]);
    let start = memory.start().0.as_ptr().addr().next_multiple_of(4096) - memory.start().0.as_ptr().addr();
    let base = memory.start().offset(start);
    // SAFETY: P4, P6. The vector outlives the registration, and no other call is in flight.
    unsafe { parts.tap.host_register(base, 4096, HostAccess::ReadWrite) }.expect("somebody else registers it");
    let pin = |bytes| parts.pins.pin(&parts.context, parts.request(base, bytes), None).map_err(|(error, _)| error);
    let kind = |error: Error| error.failure().map(|failure| failure.kind);
    let longer = pin(4097).map(drop).map_err(kind);
    assert_eq!(longer, Err(Some(ErrorKind::AlreadyRegistered)), "P10: its end is nobody's");
    parts.tap.rules.fail(Call::HostRegister, 1, ErrorKind::OutOfMemory);
    let refused = pin(4096).map(drop).map_err(kind);
    assert_eq!(refused, Err(Some(ErrorKind::OutOfMemory)), "P10: another refusal is the caller's");
    let (borrowed, _) = pin(4096).expect("P10: to its last byte");
    for _ in 0..2 {
        pin(16).expect("P8: a part of it shares");
    }
    assert_eq!(parts.pins.figures.shared.load(Ordering::Relaxed), 2);
    assert_eq!([(); 2].map(|()| parts.pins.give_back(&borrowed)), [None; 2], "P5: not the last count");
    let epoch = parts.pins.give_back(&borrowed).expect("P5: the last count");
    assert!(parts.pins.is_pending(&borrowed, epoch) && !parts.pins.is_pending(&borrowed, epoch + 1), "P12");
    pin(16).expect("P1: it is revived");
    assert!(!parts.pins.is_pending(&borrowed, epoch), "P12: so the decision is void");
    parts.pins.abandon(&borrowed);
    assert_eq!(parts.pins.census(), (0, 0, 1), "P9: kept, and counted");
    // SAFETY: P3, P6. Nothing has used it, and no other call is in flight.
    unsafe { parts.tap.host_unregister(base) }.expect("P10: its owner still has it");
}

/// A constant lies in memory that the process itself may only read.
fn p15_what_the_process_may_only_read_is_registered_to_be_read() {
    static TABLE: [u32; 1024] = [7; 1024];
    let rig = Rig::new(&SimBench::new(Profile::cuda_13(), Drive::Seeded, 0));
    let stream = rig.stream();
    let mut sum = rig.four(&stream, 1);
    let read = rig.runtime.scope(|scope| rig.sum(&stream, &scope.wrap_shared(&TABLE)?, &mut sum));
    assert_eq!(read, Ok(()), "P15: no leave to write is asked for");
    assert_eq!(stream.read(&sum).expect("a read"), [8; 4], "O3: the device has read it");
    let start = std::ptr::NonNull::from(&TABLE).cast::<u32>();
    // SAFETY: P4. The wrap is refused: nothing writes the constant.
    let written = unsafe { rig.runtime.wrap_raw(start, TABLE.len()) };
    let kind = written.map(drop).map_err(|error| error.failure().map(|failure| failure.kind));
    assert_eq!(kind, Err(Some(ErrorKind::InvalidValue)), "P15: what asks for it is refused by the driver");
    drop((stream, sum));
    rig.close();
}

fn c1_a_guarded_call_leaves_the_mode_of_its_thread() {
    let parts = Parts::new();
    let stream = parts.stream();
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        parts.tap.exchange_capture_mode(mode).expect("an exchange");
        drop(stream.query(&parts.context).expect("no capture"));
        let after = parts.tap.exchange_capture_mode(mode).expect("an exchange");
        assert_eq!(after, mode, "C1: the mode is the program's");
    }
    parts.tap.exchange_capture_mode(CaptureMode::Global).expect("an exchange");
}

fn r7_errors_are_kept_up_to_a_bound() {
    let parts = Parts::new();
    for _ in 0..20 {
        parts.context.keep_untold(Error::Closed);
    }
    assert_eq!(parts.context.take_untold().len(), 16, "R7: the oldest");
    assert_eq!(parts.context.take_untold().len(), 0, "R7: once");
}

fn r6_nothing_is_asked_of_a_lost_device() {
    let parts = Parts::new();
    parts.context.check_alive().expect("it is there");
    let stream = parts.stream();
    parts.tap.rules.fail(Call::StreamQuery, 1, ErrorKind::DeviceLost);
    assert!(matches!(stream.query(&parts.context), Some(Err(Error::Lost(_)))), "R6");
    let mark = parts.tap.log.mark();
    assert!(matches!(parts.context.check_alive(), Err(Error::Lost(_))), "R6");
    assert!(matches!(parts.pool.claim(&parts.context, Priority::Normal), Err(Error::Lost(_))), "R6");
    assert_eq!(parts.tap.log.since(mark), [], "R6: without a call");
}

fn o1_what_is_done_is_not_waited_for() {
    let bench = SimBench::new(Profile::cuda_13(), Drive::Seeded, 0);
    let rig = Rig::new(&bench);
    let (a, b) = (rig.stream(), rig.stream());
    let start = a.record_timed().expect("an event");
    let x = rig.four(&a, 1);
    let end = a.record_timed().expect("an event");
    let mark = rig.tap.log.mark();
    a.wait_event(&end).expect("its own is in order as it is");
    assert_eq!(rig.tap.log.since(mark), [], "O1: one stream is in order");
    a.synchronize().expect("a wait");
    let mark = rig.tap.log.mark();
    b.wait_event(&end).expect("it is complete");
    assert_eq!(rig.tap.log.since(mark), [], "O1: what is complete comes first as it is");
    let took = start.elapsed(&end).expect("a time");
    assert!(took.as_nanos() > 0 && took.as_micros() < 100, "the device's time, in its unit: {took:?}");
    drop((a, b, x, start, end));
    rig.close();
}

/// All of them.
pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, body: fn()| {
        Trial::test(format!("parts {name}"), move || {
            body();
            Ok::<(), Failed>(())
        })
    };
    vec![
        trial("r2_a_lane_has_one_host_function_in_flight", r2_a_lane_has_one_host_function_in_flight),
        trial("p11_streams_are_asked_where_nothing_tells", p11_streams_are_asked_where_nothing_tells),
        trial("p11_what_waits_for_a_stream_that_breaks_is_told", p11_what_waits_for_a_stream_that_breaks_is_told),
        trial("p11_what_may_be_in_use_is_kept", p11_what_may_be_in_use_is_kept),
        trial("c7_a_broken_capture_names_its_cause", c7_a_broken_capture_names_its_cause),
        trial("p11_what_was_waited_for_at_a_loss_is_kept", p11_what_was_waited_for_at_a_loss_is_kept),
        trial("p7_what_nobody_signals_is_waited_for_by_the_tick", p7_what_nobody_signals_is_waited_for_by_the_tick),
        trial("r5_the_event_of_an_adopted_stream_is_given_back", r5_the_event_of_an_adopted_stream_is_given_back),
        trial("r5_who_has_things_in_hand_is_on_turn", r5_who_has_things_in_hand_is_on_turn),
        trial("r4_what_nobody_released_is_kept", r4_what_nobody_released_is_kept),
        trial("s6_an_adopted_stream_is_asked_by_its_event", s6_an_adopted_stream_is_asked_by_its_event),
        trial("p10_a_range_is_borrowed_only_as_a_whole", p10_a_range_is_borrowed_only_as_a_whole),
        trial(
            "p15_what_the_process_may_only_read_is_registered_to_be_read",
            p15_what_the_process_may_only_read_is_registered_to_be_read,
        ),
        trial("c1_a_guarded_call_leaves_the_mode_of_its_thread", c1_a_guarded_call_leaves_the_mode_of_its_thread),
        trial("r7_errors_are_kept_up_to_a_bound", r7_errors_are_kept_up_to_a_bound),
        trial("r6_nothing_is_asked_of_a_lost_device", r6_nothing_is_asked_of_a_lost_device),
        trial("o1_what_is_done_is_not_waited_for", o1_what_is_done_is_not_waited_for),
    ]
}
