//! Device memory, page-locked memory and accesses of the engine.

mod rig;

use std::ptr::NonNull;

use rig::{ME, Rig, blocked, done};
use tenure::driver::{CaptureMode, DeviceAddress, HostAccess, HostPointer, Location};
use tenure_sim::code::Code;
use tenure_sim::engine::Answer;
use tenure_sim::event::{Access, BadAccess, Event, Memory, Violation};
use tenure_sim::profile::{Profile, Quirk};

fn pointer(words: &mut [u32]) -> HostPointer {
    HostPointer(NonNull::from(&mut *words).cast())
}

/// The one reason for which the device was lost.
#[track_caller]
fn why(rig: &mut Rig) -> BadAccess {
    rig.run();
    assert_eq!(rig.engine.lost(), Some(Code::ILLEGAL_ADDRESS), "a bad access loses the device");
    let violations = rig.violations();
    let [Violation::Access { why, .. }] = violations[..] else { panic!("one bad access, not {violations:?}") };
    why
}

#[test]
fn kernels_may_have_arguments_in_one_allocation() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(16);
    rig.fill(stream, memory, 0, 16);
    rig.add(stream, 7, memory, 4);
    rig.copy_kernel(stream, memory, memory.offset(4), 12);
    assert_eq!(rig.words(memory, 4), [7, 7, 0, 0], "the kernel reads what was there before it");
    rig.copy_kernel(stream, memory, memory, 16);
    assert_eq!(rig.words(memory, 4), [7, 7, 0, 0]);
}

#[test]
fn copies_go_both_ways_and_within() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let (a, b) = (rig.malloc(16), rig.malloc(16));
    let mut words = [1, 2, 3, 4];
    let host = pointer(&mut words);
    for (to, from, bytes) in [
        (Location::Device(a), Location::Host(host), 16),
        (Location::Device(b), Location::Device(a), 16),
        (Location::Device(b.offset(4)), Location::Device(b), 12),
        (Location::Host(host), Location::Device(b.offset(8)), 8),
    ] {
        rig.copy(stream, to, from, bytes);
    }
    rig.run();
    assert_eq!(words, [2, 3, 3, 4]);
    assert_eq!(rig.words(b, 4), [1, 1, 2, 3]);
}

/// The wait of a copy down to `host`, and of one up from it, of `bytes` bytes each, on streams that stand still.
fn waits(profile: &Profile, is_page_locked: bool, bytes: usize) -> (bool, bool) {
    let mut rig = Rig::new(profile.clone());
    let memory = rig.malloc(bytes as u64);
    let mut plain = vec![0_u8; bytes];
    let host = match is_page_locked {
        true => rig.engine.host_alloc(ME, bytes).expect("there is memory"),
        false => HostPointer(NonNull::from(&mut *plain).cast()),
    };
    let both = [(Location::Host(host), Location::Device(memory)), (Location::Device(memory), Location::Host(host))];
    let [down, up] = both.map(|(to, from)| {
        let stream = rig.stream();
        rig.fill(stream, memory, 7, bytes as u64);
        // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
        let answer = unsafe { rig.engine.copy(ME, stream, to, from, bytes as u64) }.expect("a copy");
        let waits = matches!(answer, Answer::Blocked(_));
        if let Answer::Blocked(wait) = answer {
            assert!(!rig.engine.is_over(&wait), "nothing has run yet");
            rig.run();
            assert!(matches!(rig.engine.finish(wait), Ok(Answer::Done(()))), "the copy has run");
        }
        rig.run();
        waits
    });
    (down, up)
}

#[test]
fn copies_with_pageable_memory_wait_where_the_driver_does_so() {
    let cuda = Profile::cuda_13().with(Quirk::PageableCopiesWait);
    for (bytes, expected) in [(4, (true, false)), (1 << 20, (true, false)), (16 << 20, (true, true))] {
        assert_eq!(waits(&cuda, false, bytes), expected, "{bytes} bytes");
        assert_eq!(waits(&cuda, true, bytes), (false, false), "{bytes} bytes of page-locked memory");
    }
    let hip = Profile::hip_7_2().with(Quirk::PageableCopiesWait);
    assert_eq!((waits(&hip, false, 4), waits(&hip, true, 4)), ((true, true), (false, false)));
    let without = Profile::cuda_13().without(Quirk::PageableCopiesWait);
    assert_eq!(waits(&without, false, 16 << 20), (false, false));
}

#[test]
fn a_pageable_copy_that_waited_for_room_then_waits_until_it_has_run() {
    let mut profile = Profile::cuda_13().with(Quirk::PageableCopiesWait);
    profile.queue_depth = 1;
    let mut rig = Rig::new(profile);
    let stream = rig.stream();
    let memory = rig.malloc(16);
    rig.fill(stream, memory, 7, 16);
    let mut words = [0_u32; 4];
    let (to, from) = (Location::Host(pointer(&mut words)), Location::Device(memory));
    // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
    let room = blocked(unsafe { rig.engine.copy(ME, stream, to, from, 16) });
    rig.step_on(stream);
    let ran = blocked(rig.engine.finish(room));
    assert_eq!(words, [0; 4], "there is room, and it has not run");
    rig.step_on(stream);
    assert!(matches!(rig.engine.finish(ran), Ok(Answer::Done(()))));
    assert_eq!(words, [0x0707_0707; 4]);
}

#[test]
fn a_recorded_pageable_copy_waits_for_nothing() {
    let mut rig = Rig::new(Profile::cuda_13().with(Quirk::PageableCopiesWait));
    let stream = rig.stream();
    let memory = rig.malloc(16);
    let mut words = [0_u32; 4];
    rig.engine.capture_begin(ME, stream, CaptureMode::Relaxed).expect("a capture");
    let (to, from) = (Location::Host(pointer(&mut words)), Location::Device(memory));
    // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
    done(unsafe { rig.engine.copy(ME, stream, to, from, 16) }).expect("it is recorded");
    rig.engine.capture_end(ME, stream).expect("a graph");
}

#[test]
fn bad_accesses_are_named_and_lose_the_device() {
    type Setup = fn(&mut Rig) -> (DeviceAddress, u64);
    let cases: [(BadAccess, Setup); 5] = [
        (BadAccess::OutOfRange, |rig| (rig.malloc(16), 20)),
        (BadAccess::OutOfRange, |rig| (rig.malloc(16).offset(12), 8)),
        (BadAccess::Misaligned, |rig| (rig.malloc(16).offset(2), 4)),
        (BadAccess::Wild, |_| (DeviceAddress(0x1000), 4)),
        (BadAccess::Freed, |rig| {
            let memory = rig.malloc(16);
            done(rig.engine.free(ME, memory)).expect("an idle device");
            (memory, 4)
        }),
    ];
    for (expected, setup) in cases {
        let mut rig = Rig::cuda();
        let stream = rig.stream();
        let (address, bytes) = setup(&mut rig);
        rig.add(stream, 1, address, bytes);
        assert_eq!(why(&mut rig), expected);
        assert_eq!(rig.engine.stream_query(ME, stream), Err(Code::ILLEGAL_ADDRESS), "the error stays");
    }
}

#[test]
fn memory_ordered_on_a_stream_exists_when_its_operation_has_run() {
    let mut rig = Rig::cuda();
    let (a, b) = (rig.stream(), rig.stream());
    let memory = done(rig.engine.malloc_async(ME, a, 4)).expect("memory");
    rig.fill(b, memory, 1, 4);
    rig.step_on(b);
    assert_eq!(why(&mut rig), BadAccess::NotYetAllocated);
}

#[test]
fn freed_pool_memory_is_the_streams_at_once_and_everybodys_once_the_free_has_run() {
    let mut rig = Rig::cuda();
    let (a, b) = (rig.stream(), rig.stream());
    let first = done(rig.engine.malloc_async(ME, a, 64)).expect("memory");
    done(rig.engine.free_async(ME, a, first)).expect("a free");
    let elsewhere = done(rig.engine.malloc_async(ME, b, 64)).expect("memory");
    assert_ne!(elsewhere, first, "no order makes it free for the other stream");
    let again = done(rig.engine.malloc_async(ME, a, 128)).expect("memory");
    assert_eq!(again, first, "in the order of its own stream it is free");
    done(rig.engine.free_async(ME, a, again)).expect("a free");
    rig.step_on(a);
    rig.step_on(a);
    let during = done(rig.engine.malloc_async(ME, b, 64)).expect("memory");
    assert_ne!(during, first, "the first free has run, but the second has not");
    rig.run();
    assert_eq!(done(rig.engine.malloc_async(ME, b, 64)).expect("memory"), first);
}

#[test]
fn a_plain_free_waits_for_the_device_and_a_second_is_a_violation() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let (used, unused) = (rig.malloc(4), rig.malloc(4));
    rig.fill(stream, used, 1, 4);
    let wait = blocked(rig.engine.free(ME, unused));
    assert_eq!(rig.engine.free(ME, unused).map(drop), Err(Code::INVALID_VALUE));
    assert!(matches!(rig.violations()[..], [Violation::BadFree { .. }]));
    rig.run();
    assert!(matches!(rig.engine.finish(wait), Ok(Answer::Done(()))));
    assert_eq!(rig.malloc(4), unused, "the address is handed out again at once");
}

#[test]
fn pool_memory_freed_plainly_waits_or_not_by_profile() {
    for (profile, waits) in [(Profile::cuda_13(), true), (Profile::hip_7_0(), false)] {
        let mut rig = Rig::new(profile);
        let (a, b) = (rig.stream(), rig.stream());
        let memory = done(rig.engine.malloc_async(ME, a, 4)).expect("memory");
        rig.run();
        let other = rig.malloc(4);
        rig.fill(b, other, 1, 4);
        let answer = rig.engine.free(ME, memory).expect("it is allocated");
        assert_eq!(matches!(answer, Answer::Blocked(_)), waits);
    }
}

#[test]
fn plain_memory_freed_in_stream_order_waits_where_a_driver_has_it_so() {
    let mut rig = Rig::new(Profile::cuda_13().with(Quirk::FreeAsyncOfPlainWaits));
    let stream = rig.stream();
    let memory = rig.malloc(4);
    rig.fill(stream, memory, 1, 4);
    let wait = blocked(rig.engine.free_async(ME, stream, memory));
    rig.run();
    assert!(matches!(rig.engine.finish(wait), Ok(Answer::Done(()))));
    assert_eq!(rig.engine.live().allocations, 0);
}

#[test]
fn memory_runs_out() {
    let mut rig = Rig::cuda();
    rig.engine.set_device_bytes(100);
    let stream = rig.stream();
    let memory = rig.malloc(60);
    assert_eq!(rig.engine.malloc(ME, 41), Err(Code::MEMORY_ALLOCATION));
    assert_eq!(done(rig.engine.malloc_async(ME, stream, 41)), Err(Code::MEMORY_ALLOCATION));
    assert_eq!(rig.engine.memory_info(ME), Ok((40, 100)));
    done(rig.engine.free(ME, memory)).expect("an idle device");
    assert!(rig.engine.malloc(ME, 100).is_ok());
    assert_eq!(rig.engine.malloc(ME, 0), Err(Code::INVALID_VALUE));
}

#[test]
fn reading_what_nobody_wrote_is_told() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let (a, b) = (rig.malloc(16), rig.malloc(16));
    rig.fill(stream, a, 1, 8);
    rig.copy_kernel(stream, a, b, 8);
    rig.run();
    let told = |rig: &mut Rig| rig.drain().iter().filter(|event| matches!(event, Event::UnwrittenRead { .. })).count();
    assert_eq!(told(&mut rig), 0);
    rig.copy_kernel(stream, a, b, 12);
    rig.run();
    assert_eq!(told(&mut rig), 1);
    assert_eq!(rig.engine.lost(), None, "a warning, no fault");
}

#[test]
fn kernels_reach_registered_memory_through_its_alias() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let mut words = [1, 2, 3, 4];
    let base = pointer(&mut words);
    // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
    unsafe { rig.engine.host_register(ME, Some(base), 16, HostAccess::ReadWrite) }.expect("nothing is there");
    let alias = rig.engine.host_device_address(ME, base.offset(4)).expect("it is registered");
    assert_ne!(alias.0, base.address() as u64 + 4, "device addresses are never host addresses");
    rig.add(stream, 10, alias, 8);
    rig.run();
    assert_eq!(words, [1, 12, 13, 4]);
    let accessed = rig.drain().iter().find_map(|event| match event {
        Event::Accessed { memory: Memory::Host(Some(_)), start, bytes, access, .. } => Some((*start, *bytes, *access)),
        _ => None,
    });
    assert_eq!(accessed, Some((base.address() as u64 + 4, 8, Access::Write)));
}

#[test]
fn registered_memory_is_reached_only_while_it_is_registered_alive_and_writable() {
    type Setup = fn(&mut Rig, HostPointer);
    let cases: [(BadAccess, HostAccess, u64, Setup); 4] = [
        (BadAccess::OutOfRange, HostAccess::ReadWrite, 12, |_, _| {}),
        (BadAccess::ReadOnly, HostAccess::Read, 4, |_, _| {}),
        (BadAccess::Unregistered, HostAccess::ReadWrite, 4, |rig, base| {
            done(rig.engine.host_unregister(ME, Some(base))).expect("an idle device");
        }),
        (BadAccess::HostMemoryGone, HostAccess::ReadWrite, 4, |rig, base| {
            rig.engine.tell(Event::HostMemoryGone { thread: ME, start: base.address() as u64, bytes: 4 });
        }),
    ];
    for (expected, access, bytes, setup) in cases {
        let mut rig = Rig::cuda();
        let stream = rig.stream();
        let mut words = [1, 2, 3, 4];
        let base = pointer(&mut words);
        // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
        unsafe { rig.engine.host_register(ME, Some(base), 8, access) }.expect("nothing is there");
        let alias = rig.engine.host_device_address(ME, base).expect("it is registered");
        setup(&mut rig, base);
        rig.add(stream, 10, alias, bytes);
        assert_eq!(why(&mut rig), expected);
        assert_eq!(words, [1, 2, 3, 4], "a refused access touches nothing");
    }
}

#[test]
fn overlaps_are_accepted_by_drivers_that_look_at_bases_alone() {
    let mut rig = Rig::new(Profile::hip_7_2());
    let mut words = [0; 64];
    let base = pointer(&mut words);
    let register =
        // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
        |rig: &mut Rig, at: HostPointer, bytes| unsafe { rig.engine.host_register(ME, Some(at), bytes, HostAccess::ReadWrite) };
    assert_eq!(register(&mut rig, base, 64), Ok(()));
    assert_eq!(register(&mut rig, base, 128), Ok(()));
    assert_eq!(rig.engine.live().pins, 1, "of two with one base the first is kept");
    assert_eq!(rig.engine.host_device_address(ME, base.offset(100)), Err(Code::INVALID_VALUE));
    assert_eq!(register(&mut rig, base.offset(32), 64), Ok(()));
    assert_eq!(done(rig.engine.host_unregister(ME, Some(base))), Ok(()));
    assert_eq!(rig.engine.host_is_registered(ME, base.offset(40)), Ok(true), "the second one is still there");
    assert_eq!(done(rig.engine.host_unregister(ME, Some(base.offset(40)))), Err(Code::INVALID_VALUE));
    let found = rig.violations();
    assert!(matches!(found[..], [Violation::ProcessAborts { .. }, Violation::Refused { .. }]), "{found:?}");
}

#[test]
fn memory_of_the_driver_is_freed_by_its_own_call_alone() {
    let mut rig = Rig::cuda();
    let memory = rig.engine.host_alloc(ME, 64).expect("memory");
    assert_eq!(rig.engine.host_is_registered(ME, memory), Ok(true));
    assert_eq!(rig.engine.host_unregister(ME, Some(memory)).map(drop), Err(Code::INVALID_VALUE));
    let alias = rig.engine.host_device_address(ME, memory).expect("it is page-locked");
    let stream = rig.stream();
    rig.fill(stream, alias, 3, 64);
    let wait = blocked(rig.engine.host_free(ME, memory));
    rig.run();
    assert!(matches!(rig.engine.finish(wait), Ok(Answer::Done(()))));
    assert_eq!(rig.engine.host_free(ME, memory).map(drop), Err(Code::INVALID_VALUE));
    assert_eq!(rig.engine.live().pins, 0);
}

#[test]
fn asking_about_plain_memory_is_an_error_on_old_hip() {
    let mut words = [0; 4];
    let plain = pointer(&mut words);
    assert_eq!(Rig::cuda().engine.host_is_registered(ME, plain), Ok(false));
    assert_eq!(Rig::new(Profile::hip_5_7()).engine.host_is_registered(ME, plain), Err(Code::INVALID_VALUE));
}

#[test]
fn an_unregister_that_waited_spares_what_was_registered_meanwhile() {
    let mut rig = Rig::cuda();
    let stream = rig.stream();
    let memory = rig.malloc(4);
    let mut words = [0; 4];
    let base = pointer(&mut words);
    // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
    unsafe { rig.engine.host_register(ME, Some(base), 16, HostAccess::ReadWrite) }.expect("nothing is there");
    rig.fill(stream, memory, 1, 4);
    let (mine, yours) = (rig.engine.host_unregister(ME, Some(base)), rig.engine.host_unregister(ME, Some(base)));
    let (mine, yours) = (blocked(mine), blocked(yours));
    rig.run();
    assert!(matches!(rig.engine.finish(mine), Ok(Answer::Done(()))));
    // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
    unsafe { rig.engine.host_register(ME, Some(base), 16, HostAccess::ReadWrite) }.expect("nothing is there any more");
    assert!(matches!(rig.engine.finish(yours), Ok(Answer::Done(()))));
    assert_eq!(rig.engine.host_is_registered(ME, base), Ok(true));
}
