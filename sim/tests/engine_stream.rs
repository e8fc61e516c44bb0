//! Streams and events of the engine: order, positions, handles, full queues.

mod rig;

use rig::{ME, Rig, YOU, blocked, done};
use tenure::driver::{Call, CaptureMode, Priority, Progress, Timing};
use tenure_sim::code::Code;
use tenure_sim::engine::{Answer, Settings, Step};
use tenure_sim::event::{BlockedOn, CallName, Event, StreamHandle, Violation};
use tenure_sim::profile::{Profile, Quirk};

#[test]
fn a_stream_runs_in_order_and_two_run_in_any() {
    let mut rig = Rig::cuda();
    let (a, b) = (rig.stream(), rig.stream());
    let memory = rig.malloc(4);
    rig.fill(a, memory, 0, 4);
    rig.add(a, 1, memory, 4);
    rig.fill(b, memory, 1, 4);
    assert_eq!(rig.ready().len(), 2, "the heads of both streams, and nothing behind them");
    rig.step_on(a);
    rig.step_on(b);
    rig.step_on(a);
    assert_eq!(rig.words(memory, 1), [0x0101_0102]);
}

#[test]
fn a_wait_takes_the_position_at_the_call() {
    let mut rig = Rig::cuda();
    let (a, b) = (rig.stream(), rig.stream());
    let memory = rig.malloc(4);
    let event = rig.event();
    rig.fill(a, memory, 0, 4);
    rig.record(event, a);
    rig.wait(b, event);
    rig.fill(a, memory, 1, 4);
    rig.record(event, a);
    assert_eq!(rig.ready().len(), 1, "the wait is kept by the first record");
    rig.step_on(a);
    rig.step_on(a);
    assert_eq!(rig.ready().len(), 2, "the first record has run, and the second does not keep the wait");
    assert_eq!(rig.engine.event_query(ME, event), Ok(Progress::Pending), "the event itself has moved on");
}

#[test]
fn a_full_queue_blocks_until_there_is_room() {
    let mut profile = Profile::cuda_13();
    profile.queue_depth = 2;
    let mut rig = Rig::new(profile);
    let (full, other) = (rig.stream(), rig.stream());
    let memory = rig.malloc(4);
    rig.fill(full, memory, 1, 4);
    rig.fill(full, memory, 2, 4);
    let wait = blocked(rig.engine.fill(ME, full, memory, 3, 4));
    assert!(matches!(wait.blocked_on(), BlockedOn::QueueRoom { .. }));
    let event = rig.event();
    let record = blocked(rig.engine.event_record(ME, event, full));
    rig.fill(other, memory, 9, 4);
    assert!(!rig.engine.is_over(&wait), "room elsewhere is no room here");
    let Ok(Answer::Blocked(wait)) = rig.engine.finish(wait) else { panic!("there is no room yet") };
    rig.step_on(other);
    rig.step_on(full);
    assert!(rig.engine.is_over(&wait) && rig.engine.is_over(&record));
    assert!(matches!(rig.engine.finish(wait), Ok(Answer::Done(()))));
    assert!(!rig.engine.is_over(&record), "the first of the two took the room");
    assert_eq!(rig.engine.event_query(ME, event), Ok(Progress::Complete), "it is not recorded yet");
    rig.step_on(full);
    assert!(matches!(rig.engine.finish(record), Ok(Answer::Done(()))));
    assert_eq!(rig.engine.event_query(ME, event), Ok(Progress::Pending));
    rig.run();
    assert_eq!(rig.words(memory, 1), [0x0303_0303]);
}

#[test]
fn a_submission_that_waited_finds_what_others_did_to_its_stream() {
    let mut profile = Profile::cuda_13();
    profile.queue_depth = 1;
    let full = |rig: &mut Rig| {
        let stream = rig.stream();
        let memory = rig.malloc(4);
        rig.fill(stream, memory, 1, 4);
        let wait = blocked(rig.engine.fill(ME, stream, memory, 2, 4));
        (stream, wait)
    };
    let mut rig = Rig::new(profile.clone());
    let (stream, wait) = full(&mut rig);
    done(rig.engine.stream_destroy(YOU, stream)).expect("it does not wait");
    let next = rig.stream();
    rig.run();
    assert!(matches!(rig.engine.finish(wait), Err(Code::INVALID_HANDLE)));
    assert!(matches!(rig.violations()[..], [Violation::StaleHandle { .. }]));
    assert!(rig.is_idle(next), "the stream that has the handle now was given nothing");

    let mut rig = Rig::new(profile);
    let (stream, wait) = full(&mut rig);
    rig.engine.capture_begin(YOU, stream, CaptureMode::Relaxed).expect("it captures nothing");
    rig.run();
    assert!(matches!(rig.engine.finish(wait), Ok(Answer::Done(()))));
    let graph = rig.engine.capture_end(YOU, stream).expect("a graph");
    assert_eq!(rig.engine.graph_describe(ME, graph).map(|graph| graph.nodes.len()), Ok(1));
}

#[test]
fn a_destroy_that_waited_spares_the_stream_that_has_the_handle_now() {
    let mut rig = Rig::new(Profile::cuda_13().with(Quirk::StreamDestroyWaits));
    let stream = rig.stream();
    let memory = rig.malloc(4);
    rig.fill(stream, memory, 5, 4);
    let (mine, yours) = (rig.engine.stream_destroy(ME, stream), rig.engine.stream_destroy(YOU, stream));
    let (mine, yours) = (blocked(mine), blocked(yours));
    rig.run();
    assert!(matches!(rig.engine.finish(mine), Ok(Answer::Done(()))));
    assert_eq!(rig.stream(), stream);
    assert!(matches!(rig.engine.finish(yours), Err(Code::INVALID_HANDLE)));
    assert_eq!(rig.engine.live().streams, 1);
}

#[test]
fn a_destroyed_stream_runs_what_it_holds() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let id = rig.engine.stream_id(stream).expect("it lives");
    let memory = rig.malloc(4);
    let event = rig.event();
    rig.fill(stream, memory, 5, 4);
    rig.record(event, stream);
    done(rig.engine.stream_destroy(ME, stream)).expect("it does not wait");
    let again = rig.stream();
    assert_eq!(again, stream, "the handle is handed out again at once");
    assert_ne!(rig.engine.stream_id(again), Some(id), "the stream is another");
    assert!(rig.is_idle(again), "the new stream holds nothing");
    assert_eq!(rig.engine.event_query(ME, event), Ok(Progress::Pending));
    rig.run();
    assert_eq!(rig.engine.event_query(ME, event), Ok(Progress::Complete), "a stream that is gone has run all");
    assert!(rig.drain().contains(&Event::StreamGone { stream: id }));
    assert_eq!(rig.words(memory, 1), [0x0505_0505]);
}

#[test]
fn a_stale_handle_is_a_violation_with_each_drivers_code() {
    for (profile, code, aborts) in [
        (Profile::cuda_13(), Code::INVALID_HANDLE, false),
        (Profile::hip_6_4(), Code::CONTEXT_IS_DESTROYED, false),
        (Profile::hip_7_0(), Code::INVALID_HANDLE, true),
    ] {
        let mut rig = Rig::new(profile);
        let stream = rig.stream();
        done(rig.engine.stream_destroy(ME, stream)).expect("an idle stream");
        assert_eq!(rig.engine.stream_query(ME, stream), Err(code));
        let violations = rig.violations();
        assert!(matches!(violations[0], Violation::StaleHandle { handle, .. } if handle == stream.0));
        assert_eq!(violations.iter().any(|found| matches!(found, Violation::ProcessAborts { .. })), aborts);
    }
}

#[test]
fn a_driver_may_wait_when_a_stream_is_destroyed() {
    let mut rig = Rig::new(Profile::cuda_13().with(Quirk::StreamDestroyWaits));
    let stream = rig.stream();
    let memory = rig.malloc(4);
    rig.fill(stream, memory, 5, 4);
    let wait = blocked(rig.engine.stream_destroy(ME, stream));
    rig.run();
    assert!(matches!(rig.engine.finish(wait), Ok(Answer::Done(()))));
    assert_eq!(rig.engine.live().streams, 0);
}

#[test]
fn an_event_that_outlives_its_stream_is_told_where_a_driver_minds() {
    for (profile, minds) in [(Profile::cuda_13(), false), (Profile::hip_7_2(), true)] {
        let mut rig = Rig::new(profile);
        let stream = rig.stream();
        let event = rig.event();
        rig.record(event, stream);
        rig.run();
        done(rig.engine.stream_destroy(ME, stream)).expect("an idle stream");
        assert_eq!(rig.engine.event_query(ME, event), Ok(Progress::Complete));
        let told = rig.violations().iter().any(|found| matches!(found, Violation::EventOutlivesStream { .. }));
        assert_eq!(told, minds);
        let other = rig.stream();
        rig.wait(other, event);
        let told = rig.violations().iter().any(|found| {
            let waits = CallName::Core(Call::StreamWaitEvent);
            matches!(found, Violation::EventOutlivesStream { call, .. } if *call == waits)
        });
        assert_eq!(told, minds, "a wait of another stream follows it too");
    }
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let mut rig = Rig::cuda();
    let free = rig.stream();
    let blocking = rig.engine.stream_create_with(ME, Priority::Normal, true).expect("a stream");
    let memory = rig.malloc(4);
    rig.fill(blocking, memory, 1, 4);
    rig.fill(StreamHandle::LEGACY, memory, 2, 4);
    rig.fill(blocking, memory, 3, 4);
    rig.fill(free, memory, 4, 4);
    assert_eq!(rig.ready().len(), 2, "the first of the blocking stream, and the stream that has no part in it");
    rig.step_on(free);
    for stream in [blocking, StreamHandle::LEGACY, blocking] {
        assert_eq!(rig.ready().len(), 1);
        rig.step_on(stream);
    }
    let ordered = rig.drain().iter().filter(|event| matches!(event, Event::Ordered { .. })).count();
    assert_eq!(ordered, 2);
}

#[test]
fn synchronizing_waits_for_what_was_there_at_the_call() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(4);
    rig.fill(stream, memory, 1, 4);
    let wait = blocked(rig.engine.stream_synchronize(ME, stream));
    rig.fill(stream, memory, 2, 4);
    rig.step_on(stream);
    assert!(rig.engine.is_over(&wait), "the second fill came after the call");
    assert!(matches!(rig.engine.finish(wait), Ok(Answer::Done(()))));
    let learned = rig.drain().iter().find_map(|event| match event {
        Event::Learned { thread, number, .. } => Some((*thread, *number)),
        _ => None,
    });
    assert_eq!(learned, Some((ME, 1)), "the thread knows of the first alone");
}

#[test]
fn timed_events_tell_the_time_between_them() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings::default());
    let stream = rig.stream();
    let memory = rig.malloc(4);
    let start = rig.engine.event_create(ME, Timing::Enabled).expect("an event");
    let end = rig.engine.event_create(ME, Timing::Enabled).expect("an event");
    let untimed = rig.event();
    rig.record(start, stream);
    rig.fill(stream, memory, 1, 4);
    rig.record(end, stream);
    rig.record(untimed, stream);
    rig.engine.set_now_ns(1_000_000);
    rig.step_on(stream);
    assert_eq!(rig.engine.event_elapsed(ME, start, end), Err(Code::NOT_READY));
    rig.engine.set_now_ns(3_500_000);
    rig.run();
    assert_eq!(rig.engine.event_elapsed(ME, start, end), Ok(2.5));
    assert_eq!(rig.engine.event_elapsed(ME, start, untimed), Err(Code::INVALID_HANDLE));
}

#[test]
fn a_choice_that_is_not_ready_does_nothing() {
    let mut rig = Rig::with(Profile::cuda_13(), Settings::default());
    let stream = rig.stream();
    let memory = rig.malloc(4);
    rig.fill(stream, memory, 1, 4);
    let start = rig.ready()[0].choice;
    rig.step(start);
    assert!(matches!(rig.engine.step(start), Step::NotReady));
    let finish = rig.ready()[0].choice;
    rig.step(finish);
    assert!(matches!(rig.engine.step(finish), Step::NotReady));
    assert!(rig.is_idle(stream));
}
