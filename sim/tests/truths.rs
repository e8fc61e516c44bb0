//! What real drivers do that a careless program does not expect: each habit is on where it holds, and finds something.
//!
//! A row is a habit, a profile that has it, a program that is right where the driver is kind, and what is said where it
//! is not. Habits of captures alone stand in the tables of facts (`facts.rs`: a wrong rule is named by a row); guarded
//! calls that wait for captures are refused or kept back by the core, which its conformance suite and storms see.

mod programs;

use programs::*;
use tenure_sim::Config;
use tenure_sim::code::Code;
use tenure_sim::event::CallName;
use tenure_sim::fault::Fault;
use tenure_sim::profile::{Profile, Quirk};

/// A habit, a profile that has it, a part of what is said, and the program.
type Row = (Quirk, &'static str, &'static str, fn(&Sim));

fn said(config: &Config, program: fn(&Sim)) -> String {
    let failure = config.clone().schedules(60).fibers().run(program).failure;
    failure.map_or_else(String::new, |failure| failure.to_string())
}

#[test]
fn a_careless_program_is_told_where_a_habit_holds_and_nowhere_else() {
    let mut wrong = Vec::new();
    for (quirk, name, part, program) in ROWS {
        let profile = Profile::named(name).expect("a listed profile");
        assert!(profile.has(*quirk), "{name} must have {}", quirk.name());
        let unkind = said(&Config::default().profile(profile.clone()), *program);
        if !unkind.contains(part) {
            wrong.push(format!("{} must lead to `{part}`, and leads to: {unkind}", quirk.name()));
        }
        let kind = said(&Config::default().profile(profile.without(*quirk)), *program);
        if !kind.is_empty() {
            wrong.push(format!("without {} nothing must be said, and is: {kind}", quirk.name()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A copy that fails after it was taken is under way all the same.
#[test]
fn a_call_that_failed_may_have_had_its_effect() {
    let program: fn(&Sim) = |d| {
        let (a, m, p) = (stream(d), alloc(d), pinned(d));
        if up(d, &a, m, p, N).is_err() {
            free(d, m);
        } else {
            sync(d, &a);
            free(d, m);
        }
        sync(d, &a);
        unpin(d, p);
        end(d, &a);
    };
    let call = CallName::Core(tenure::driver::Call::Copy);
    let fails = Config::default().fault(Fault::Fail { call, nth: 1, code: Code::UNKNOWN, always: false });
    let fails_after = Config::default().fault(Fault::FailAfter { call, nth: 1, code: Code::UNKNOWN, always: false });
    assert_eq!(said(&Config::default(), program), "");
    assert_eq!(said(&fails, program), "", "where it did nothing, the memory may go");
    let late = said(&fails_after, program);
    assert!(late.contains("O6: host thread t0 frees m0"), "{late}");
}

/// A reset by other code: the next call works, and old handles are refused one by one.
#[test]
fn what_was_made_before_a_reset_is_refused() {
    let program: fn(&Sim) = |d| {
        let (a, m) = (stream(d), alloc(d));
        d.reset_device().expect("the device is there");
        let n = alloc(d);
        assert!(try_fill(d, &a, m).is_err(), "the stream is from before");
        free(d, n);
    };
    assert_eq!(said(&Config::default(), program), "");
    let careless: fn(&Sim) = |d| {
        let (a, m) = (stream(d), alloc(d));
        d.reset_device().expect("the device is there");
        fill(d, &a, m);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    };
    let told = said(&Config::default(), careless);
    assert!(told.contains("Fill, code: 400 InvalidResourceHandle"), "{told}");
}

const ROWS: &[Row] = &[
    (Quirk::PageableCopiesWait, "cuda-13", "R6: deadlock: main waits for the device in copy", |d| {
        let (a, m) = (stream(d), alloc(d));
        fill(d, &a, m);
        d.stall(&a);
        down(d, &a, plain(64), m, N).unwrap();
        d.resume(&a);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    (Quirk::BorderCopiesRefused, "cuda-13", "P2: copy on host thread t0 was refused", |d| {
        let (a, m, p) = (stream(d), d.malloc(128).unwrap(), plain(128));
        register(d, p, 64);
        register(d, p.offset(64), 64);
        let _ = up(d, &a, m, p, 128);
        sync(d, &a);
        unregister(d, p).unwrap();
        unregister(d, p.offset(64)).unwrap();
        free(d, m);
        end(d, &a);
    }),
    (Quirk::FillsDoNotWait, "cuda-13", "O1: ", |d| {
        let (a, m) = (stream(d), alloc(d));
        // SAFETY: P4. The memory is so long.
        unsafe { d.fill_and_wait(m, 0, N) }.unwrap();
        fill(d, &a, m);
        sync(d, &a);
        d.device_synchronize().unwrap();
        free(d, m);
        end(d, &a);
    }),
    (Quirk::DeviceCopiesDoNotWait, "cuda-13", "O1: ", |d| {
        let (a, m, n) = (stream(d), alloc(d), alloc(d));
        fill(d, &a, m);
        sync(d, &a);
        // SAFETY: P4. The memory is so long.
        unsafe { d.copy_and_wait(Location::Device(n), Location::Device(m), N) }.unwrap();
        fill(d, &a, n);
        sync(d, &a);
        d.device_synchronize().unwrap();
        free(d, m);
        free(d, n);
        end(d, &a);
    }),
    (Quirk::NullStreamSpeaksForAll, "cuda-13", "R6: deadlock: main waits for the device in stream_synchronize", |d| {
        let (a, m) = (d.stream_create_with(Priority::Normal, true).unwrap(), alloc(d));
        fill(d, &a, m);
        d.stall(&a);
        sync(d, &SimStream::legacy());
        d.resume(&a);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    (Quirk::ReadOnlyMemoryRefused, "cuda-13", "HostRegister, code: 1 InvalidValue", |d| {
        static TABLE: [u8; 8192] = [7; 8192];
        let p = HostPointer(std::ptr::NonNull::from(&TABLE).cast());
        register(d, p, 4096);
        unregister(d, p).unwrap();
    }),
    (Quirk::StreamDestroyWaits, "hip-7.2", "R6: deadlock: main waits for the device in stream_destroy", |d| {
        let (a, b, m) = (stream(d), stream(d), alloc(d));
        d.stall(&b);
        fill(d, &b, m);
        edge(d, &b, &a);
        fill(d, &a, m);
        end(d, &a);
        d.resume(&b);
        d.device_synchronize().unwrap();
        free(d, m);
        end(d, &b);
    }),
    (Quirk::EventNeedsItsStream, "hip-7.2", "S6: event_query used e0 after the end of the stream", |d| {
        let (a, e) = (stream(d), event(d));
        d.event_record(&e, &a).unwrap();
        sync(d, &a);
        end(d, &a);
        let _ = d.event_query(&e);
        d.event_destroy(e).unwrap();
    }),
    (Quirk::OverlapAccepted, "hip-7.2", "P2: copy on host thread t0 was refused", |d| {
        let (a, m, p) = (stream(d), d.malloc(128).unwrap(), plain(128));
        register(d, p, 64);
        // SAFETY: P4. The memory lives to the end of the program.
        let longer = unsafe { d.host_register(p, 128, HostAccess::ReadWrite) };
        if longer.is_ok() {
            let _ = up(d, &a, m, p, 128);
        }
        sync(d, &a);
        unregister(d, p).unwrap();
        free(d, m);
        end(d, &a);
    }),
    (Quirk::SynchronousCopyBreaksAll, "hip-7.2", "C1: fill_and_wait on host thread t1 broke the capture", |d| {
        let (a, m, inner) = (stream(d), alloc(d), d.clone());
        d.capture_begin(&a, CaptureMode::Relaxed).unwrap();
        let other = d.spawn("other", move || {
            // SAFETY: P4. The memory is so long.
            let _ = unsafe { inner.fill_and_wait(m, 0, N) };
        });
        other.join();
        if let Ok(g) = d.capture_end(&a) {
            d.graph_destroy(g).unwrap();
        }
        d.device_synchronize().unwrap();
        free(d, m);
        end(d, &a);
    }),
    (Quirk::QueryMindsGlobalCaptures, "hip-6.4", "C1: stream_query on host thread t1 broke the capture", |d| {
        let (a, b, inner) = (stream(d), Arc::new(stream(d)), d.clone());
        let asked = b.clone();
        d.capture_begin(&a, CaptureMode::Global).unwrap();
        let other = d.spawn("other", move || {
            inner.exchange_capture_mode(CaptureMode::ThreadLocal).unwrap();
            let _ = inner.stream_query(&asked);
        });
        other.join();
        if let Ok(g) = d.capture_end(&a) {
            d.graph_destroy(g).unwrap();
        }
        end(d, &a);
        end(d, &b);
    }),
    (Quirk::InteriorUnregisterAborts, "hip-7.2", "the real driver would end the process", |d| {
        let p = plain(128);
        register(d, p, 128);
        let interior = d.foreign(|| unregister(d, p.offset(64)));
        assert!(interior.is_err(), "no registration begins there");
        unregister(d, p).unwrap();
    }),
];
