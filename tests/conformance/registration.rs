//! Page-locked host memory: what drivers do about it, and P1 to P15.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

use tenure::driver::{Call, Driver, ErrorKind, HostAccess, HostPointer, Location, Priority};
use tenure::{Error, Freed, Misuse, PinError};

use super::{list_cases, word};
use crate::bench::Bench;
use crate::faulty::{INJECTED, OnPurpose};
use crate::rig::{Brake, Lent, Rig, deadline};

list_cases!("registration": raw [
    a_range_is_registered_again_and_again,
    the_device_reaches_registered_memory,
    registering_twice_is_refused,
    registering_an_overlap_is_refused,
    unregistering_the_unknown_is_refused,
    ranges_side_by_side_are_independent,
] contract [
    p1_registered_while_wrapped,
    p2_a_larger_wrap_over_a_live_one_is_refused,
    p2_a_larger_wrap_over_a_pending_one_waits,
    p3_two_wraps_on_two_streams_share_what_is_known,
    p4_the_memory_lives_while_it_is_used,
    p5_each_wrap_gives_one_count_back,
    p7_dropping_a_busy_wrap_makes_no_call,
    p7_a_pending_range_is_revived,
    p7_an_explicit_free_waits,
    p8_a_part_shares_and_an_overlap_is_refused,
    p9_a_failed_register_leaves_nothing,
    p9_a_failed_unregister_is_quarantined,
    p9_a_register_that_cannot_be_undone_is_quarantined,
    p9_memory_that_cannot_be_freed_is_quarantined,
    p10_memory_of_others_is_borrowed,
    p11_what_never_ends_stays_registered,
    p12_memory_at_the_same_address_is_another,
    a_vector_comes_back_from_every_path,
    what_cannot_be_given_back_is_kept,
    a_view_whose_wait_failed_is_over,
    shared_memory_is_read,
    a_scope_ends_what_it_wrapped,
    a_scope_ends_when_its_body_panics,
    a_scope_ends_forgotten_wraps,
    a_scope_is_not_shared_by_others,
    host_memory_of_the_driver_is_given_back,
    host_memory_is_aligned_for_its_elements,
    elements_of_no_size_are_counted,
    sizes_that_do_not_fit_are_refused,
    p3_a_free_waits_for_reads,
    p3_look_ups_follow_the_registration,
    p4_an_owner_comes_back_after_the_work,
    p4_an_owner_that_shares_stays_while_it_is_used,
    p4_a_shared_owner_is_kept_once,
    p4_a_scope_ends_all_that_it_wrapped,
    p4_a_scope_leaves_what_outlives_it,
    p7_a_busy_range_is_retired_once,
    p9_a_call_may_fail_after_its_effect,
    p9_an_address_of_nothing_is_a_failure,
    p10_what_others_registered_in_part_is_left_alone,
    p13_runtimes_of_a_process_share_a_registration,
    p13_a_claim_is_in_the_way_of_others,
    p13_what_vouches_for_memory_is_told_of_other_claims,
    p14_a_registration_outlives_the_work_of_all_claims,
    p14_a_registration_of_others_is_asked_for_again,
    p15_what_is_only_read_is_not_written,
    wraps_of_many_threads_keep_the_count,
]);

const PAGE: usize = 4096;

fn register<D: Driver>(driver: &D, base: HostPointer, bytes: usize) -> Option<ErrorKind> {
    // SAFETY: P4. The cases' memory outlives their registrations.
    word(unsafe { driver.host_register(base, bytes, HostAccess::ReadWrite) })
}

fn unregister<D: Driver>(driver: &D, base: HostPointer) -> Option<ErrorKind> {
    // SAFETY: P3. No work of the case uses the range any more.
    word(unsafe { driver.host_unregister(base) })
}

fn a_range_is_registered_again_and_again<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let mut memory = Lent::from(vec![0_u8; PAGE]);
    let base = memory.start();
    for _ in 0..5 {
        assert_eq!(register(&*driver, base, PAGE), None, "a registration");
        assert!(driver.host_is_registered(base).expect("a question"), "it is registered");
        assert!(driver.host_is_registered(base.offset(PAGE - 1)).expect("a question"), "to its last byte");
        driver.host_device_address(base).expect("the device has an address for it");
        assert_eq!(unregister(&*driver, base), None, "its end");
        assert!(!driver.host_is_registered(base).unwrap_or(false), "it is no longer registered");
    }
}

fn the_device_reaches_registered_memory<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let mut memory = Lent::from(vec![3_u8; PAGE]);
    let base = memory.start();
    assert_eq!(register(&*driver, base, PAGE), None, "a registration");
    let stream = driver.stream_create(Priority::Normal).expect("a stream");
    let device = driver.host_device_address(base).expect("an address");
    // SAFETY: P4. The range is registered and lives on.
    unsafe { driver.fill(&stream, device, 7, 16) }.expect("a fill");
    let (to, from) = (Location::Host(base.offset(32)), Location::Device(device));
    // SAFETY: P4. As above.
    unsafe { driver.copy(&stream, to, from, 16) }.expect("a copy");
    driver.stream_synchronize(&stream).expect("a wait");
    assert_eq!(unregister(&*driver, base), None, "its end");
    assert_eq!((memory[15], memory[16], memory[32], memory[48]), (7, 3, 7, 3), "the device wrote it");
}

fn registering_twice_is_refused<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let mut memory = Lent::from(vec![0_u8; PAGE]);
    let base = memory.start();
    assert_eq!(register(&*driver, base, PAGE), None, "a registration");
    assert_eq!(register(&*driver, base, PAGE), Some(ErrorKind::AlreadyRegistered), "the same range");
    assert_eq!(unregister(&*driver, base), None, "its end");
}

fn registering_an_overlap_is_refused<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let mut memory = Lent::from(vec![0_u8; 4 * PAGE]);
    let base = memory.start();
    assert_eq!(register(&*driver, base, 2 * PAGE), None, "a registration");
    let overlap = register(&*driver, base.offset(PAGE), 2 * PAGE);
    assert_eq!(overlap, Some(ErrorKind::AlreadyRegistered), "an overlapping range");
    assert_eq!(unregister(&*driver, base), None, "its end");
}

fn unregistering_the_unknown_is_refused<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let mut memory = Lent::from(vec![0_u8; PAGE]);
    let base = memory.start();
    assert_eq!(unregister(&*driver, base), Some(ErrorKind::NotRegistered), "never registered");
    assert_eq!(register(&*driver, base, PAGE), None, "a registration");
    assert_eq!(unregister(&*driver, base), None, "its end");
    assert_eq!(unregister(&*driver, base), Some(ErrorKind::NotRegistered), "ended before");
}

fn ranges_side_by_side_are_independent<B: Bench>(bench: &B) {
    let driver = bench.driver();
    let mut memory = Lent::from(vec![0_u8; 2 * PAGE]);
    let (left, right) = (memory.start(), memory.start().offset(PAGE));
    assert_eq!(register(&*driver, left, PAGE), None, "the left one");
    assert_eq!(register(&*driver, right, PAGE), None, "the right one");
    assert_eq!(unregister(&*driver, left), None, "the left one's end");
    assert!(driver.host_is_registered(right).expect("a question"), "the right one stays");
    assert_eq!(unregister(&*driver, right), None, "the right one's end");
}

/// Registrations and unregistrations that reached the driver.
fn calls<B: Bench>(rig: &Rig<B::Driver>) -> (usize, usize) {
    (rig.tap.log.count(Call::HostRegister), rig.tap.log.count(Call::HostUnregister))
}

fn p1_registered_while_wrapped<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let pinned = rig.runtime.wrap(vec![1_u32; 64]).expect("a wrap");
    let (start, end) = (pinned.as_ptr(), pinned.as_ptr().wrapping_add(64));
    assert!(rig.runtime.is_pinned(start) && rig.runtime.is_pinned(end.wrapping_sub(1)), "P1: the whole range");
    assert!(!rig.runtime.is_pinned(end), "P1: and not a byte more");
    drop(pinned);
    rig.drain();
    assert!(!rig.runtime.is_pinned(start), "P1: no count, not registered");
    assert_eq!(calls::<B>(&rig), (1, 1), "P5: registered once, unregistered once");
    rig.close();
}

fn p2_a_larger_wrap_over_a_live_one_is_refused<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let mut memory = Lent::from(vec![0_u32; 64]);
    let start = memory.start().0.cast();
    // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
    let small = unsafe { rig.runtime.wrap_raw::<u32>(start, 32) }.expect("a wrap");
    // SAFETY: P4. As above.
    let large = unsafe { rig.runtime.wrap_raw::<u32>(start, 64) };
    let larger = PinError::Larger { registered: 128, wanted: 256 };
    assert_eq!(large.expect_err("it would have to grow"), Error::Pin(larger), "P2: a typed error");
    drop(small);
    // SAFETY: P4. As above.
    let large = unsafe { rig.runtime.wrap_raw::<u32>(start, 64) }.expect("P2: once the short one is let go");
    assert!(rig.runtime.is_pinned(large.as_ptr().wrapping_add(63)), "P2: the registered length covers it");
    assert_eq!(calls::<B>(&rig), (2, 1), "P2: the shorter registration was not used again");
    drop(large);
    rig.close();
    drop(memory);
}

fn p2_a_larger_wrap_over_a_pending_one_waits<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = Lent::from(vec![0_u32; 64]);
    let start = memory.start();
    // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
    let mut small = unsafe { rig.wrap_at(start) }.expect("a wrap");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut small, 1).expect("a write is launched");
    drop(small);
    thread::scope(|scope| {
        let rig = &rig;
        let wrapping = scope.spawn(move || {
            // SAFETY: P4. As above.
            let large = unsafe { rig.runtime.wrap_raw::<u32>({ start }.0.cast(), 64) }.expect("a wrap");
            drop(large);
        });
        thread::sleep(std::time::Duration::from_millis(5));
        assert!(!wrapping.is_finished(), "P2: it waits for the work on the shorter one");
        assert_eq!(calls::<B>(rig), (1, 0), "P3: which is still registered");
        brake.release();
        wrapping.join().expect("P2: then it is registered anew");
    });
    assert_eq!(calls::<B>(&rig).0, 2, "P2: the shorter registration was not used again");
    drop(stream);
    rig.close();
    assert_eq!(memory[..5], [1, 1, 1, 1, 0], "and the work was done");
}

fn p3_two_wraps_on_two_streams_share_what_is_known<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let mut memory = Lent::from(vec![1_u32; 4]);
    let start = memory.start();
    // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
    let (mut first, mut second) = unsafe { (rig.wrap_at(start), rig.wrap_at(start)) };
    let (first, second) = (first.as_mut().expect("a wrap"), second.as_mut().expect("a second wrap"));
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, first, 1).expect("a write through one wrap");
    assert!(second.is_busy(), "P3: the other wrap knows of it");
    rig.bump(&b, second, 10).expect("a write through the other");
    assert!(!b.is_idle().expect("a question"), "O1: comes after it");
    brake.release();
    assert_eq!(second.read().expect("a view")[..], [12; 4], "O3: and both are seen");
    drop((a, b));
    let Rig { .. } = &rig;
    assert_eq!(calls::<B>(&rig), (1, 0), "P8: one registration serves both");
    drop_both(first, second);
    let report = rig.shut_down(deadline());
    assert!(report.is_clean() || report.pins_left == 1, "P4: {report:?}");
    bench.allow(&["P7"]);
}

fn drop_both<T, U>(_first: T, _second: U) {}

fn p4_the_memory_lives_while_it_is_used<B: Bench>(bench: &B) {
    #[allow(dead_code, reason = "the second is only held, and counted from outside")]
    struct Owner(Vec<u32>, Arc<()>);
    // SAFETY: P4. The vector owns its block, which does not move with it.
    unsafe impl tenure::HostMemory for Owner {
        type Item = u32;
        fn range(&mut self) -> (NonNull<u32>, usize) {
            (NonNull::from(&mut *self.0).cast(), self.0.len())
        }
    }
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let alive = Arc::new(());
    let mut pinned = rig.runtime.wrap(Owner(vec![1; 4], alive.clone())).map_err(Error::from).expect("a wrap");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut pinned, 1).expect("a write is launched");
    drop(pinned);
    rig.runtime.poll();
    assert_eq!(Arc::strong_count(&alive), 2, "P4: the owner lives while the device uses its memory");
    brake.release();
    stream.synchronize().expect("a wait");
    rig.drain();
    assert_eq!(Arc::strong_count(&alive), 1, "P4: and then goes");
    drop(stream);
    rig.close();
}

fn p5_each_wrap_gives_one_count_back<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let mut memory = Lent::from(vec![1_u32; 4]);
    let start = memory.start();
    // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
    let wrap = || unsafe { rig.wrap_at(start) }.expect("a wrap");
    let (first, second, third) = (wrap(), wrap(), wrap());
    assert_eq!(first.free(), Ok(Freed::Deferred), "P5: others use the registration");
    drop(second);
    rig.runtime.poll();
    assert!(rig.runtime.is_pinned(third.as_ptr()), "P5: one count is left");
    let unwinding = catch_unwind(AssertUnwindSafe(|| {
        let _third = third;
        std::panic::panic_any(OnPurpose);
    }));
    assert!(unwinding.is_err(), "the panic goes on");
    rig.drain();
    assert_eq!(calls::<B>(&rig), (1, 1), "P5: three counts, one registration");
    rig.close();
    drop(memory);
}

fn p7_dropping_a_busy_wrap_makes_no_call<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut pinned, 1).expect("a write is launched");
    let mark = rig.tap.log.mark();
    drop(pinned);
    assert_eq!(rig.tap.log.since(mark), [], "P7: no driver call");
    rig.runtime.poll();
    assert_eq!(calls::<B>(&rig), (1, 0), "P3: not unregistered while it is busy");
    brake.release();
    stream.synchronize().expect("a wait");
    rig.drain();
    assert_eq!(calls::<B>(&rig), (1, 1), "P7: the release was not lost");
    drop(stream);
    rig.close();
}

fn p7_a_pending_range_is_revived<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let mut memory = Lent::from(vec![1_u32; 4]);
    let start = memory.start();
    for _ in 0..3 {
        // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
        let wrap = unsafe { rig.wrap_at(start) }.expect("a wrap");
        drop(wrap);
    }
    // SAFETY: P4. As above.
    let live = unsafe { rig.wrap_at(start) }.expect("a wrap");
    rig.runtime.poll();
    assert_eq!(calls::<B>(&rig), (1, 0), "P1: each wrap revived the registration; no old decision ends it");
    assert!(rig.runtime.is_pinned(live.as_ptr()), "P1: it is live");
    drop(live);
    rig.drain();
    assert_eq!(calls::<B>(&rig), (1, 1), "P5: and ends once");
    rig.close();
    drop(memory);
}

fn p7_an_explicit_free_waits<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    rig.bump(&stream, &mut pinned, 1).expect("a write is launched");
    assert_eq!(pinned.free(), Ok(Freed::Now), "P7: it waits, and it is done");
    assert_eq!(calls::<B>(&rig), (1, 1), "P7: unregistered when it returns");
    let mut x = rig.four(&stream, 1);
    rig.bump(&stream, &mut x, 1).expect("a write is launched");
    assert_eq!(x.free(), Ok(Freed::Now), "P7: device memory too");
    drop(stream);
    rig.close();
}

fn p8_a_part_shares_and_an_overlap_is_refused<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = Lent::from(vec![1_u32; 64]);
    let start = memory.start();
    // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
    let whole = unsafe { rig.runtime.wrap_raw::<u32>(start.offset(16).0.cast(), 32) }.expect("a wrap");
    // SAFETY: P4. As above.
    let mut part = unsafe { rig.wrap_at(start.offset(32)) }.expect("P8: a part shares");
    assert_eq!(calls::<B>(&rig).0, 1, "P8: without a call");
    for overlapping in [start, start.offset(16 + 32 * 4 - 8)] {
        // SAFETY: P4. As above.
        let refused = unsafe { rig.runtime.wrap_raw::<u32>(overlapping.0.cast(), 6) };
        assert_eq!(refused.expect_err("it overlaps"), Error::Pin(PinError::Overlap), "P8: a typed error");
    }
    rig.bump(&stream, &mut part, 1).expect("a write through the part");
    assert_eq!(whole.read().expect("a view")[3..9], [1, 2, 2, 2, 2, 1], "P8: is seen through the whole");
    drop((stream, whole, part));
    rig.close();
    drop(memory);
}

fn p9_a_failed_register_leaves_nothing<B: Bench>(bench: &B) {
    for call in [Call::HostRegister, Call::HostDeviceAddress] {
        let rig = Rig::new(bench);
        rig.tap.rules.fail(call, 1, ErrorKind::OutOfMemory);
        let failed = rig.runtime.wrap(vec![1_u32, 2]).expect_err("the driver refuses");
        assert_eq!(failed.owner, [1, 2], "P9: the memory comes back");
        assert_eq!(failed.error.failure().map(|failure| failure.call), Some(call), "R7: it names the call");
        assert!(!rig.runtime.is_pinned(failed.owner.as_ptr()), "P9: no count is left");
        drop(rig.runtime.wrap(failed.owner).expect("P9: the next wrap works"));
        rig.close();
    }
}

fn p9_a_register_that_cannot_be_undone_is_quarantined<B: Bench>(bench: &B) {
    bench.allow(&["P7"]);
    let rig = Rig::new(bench);
    rig.tap.rules.fail(Call::HostDeviceAddress, 1, ErrorKind::OutOfMemory);
    rig.tap.rules.fail(Call::HostUnregister, 1, ErrorKind::Unknown);
    let mut memory = vec![1_u32; 4];
    let start = HostPointer(NonNull::from(&mut *memory).cast());
    let failed = rig.runtime.wrap(memory).expect_err("the driver refuses");
    let call = failed.error.failure().map(|failure| failure.call);
    assert_eq!(call, Some(Call::HostDeviceAddress), "R7: it names the call that failed first");
    assert!(failed.owner.is_kept(), "P4: the driver has its memory");
    assert_eq!(rig.runtime.stats().pins_quarantined, 1, "P1: the range may be registered, and the table says so");
    assert!(!rig.runtime.is_pinned(start.0.as_ptr()), "P9: it is not to be used");
    // SAFETY: P4. The memory is kept, and the wrap is refused.
    let again = unsafe { rig.wrap_at(start) }.expect_err("nobody knows whether it is registered");
    assert_eq!(again, Error::Pin(PinError::Quarantined), "P9: not used again");
    assert_eq!(rig.shut_down(deadline()).pins_quarantined, 1, "R5: the shutdown says so too");
}

fn p9_memory_that_cannot_be_freed_is_quarantined<B: Bench>(bench: &B) {
    bench.allow(&["P7"]);
    let rig = Rig::new(bench);
    rig.tap.rules.fail(Call::HostDeviceAddress, 1, ErrorKind::OutOfMemory);
    rig.tap.rules.fail(Call::HostFree, 1, ErrorKind::Unknown);
    let failed = rig.runtime.alloc_host::<u32>(4).expect_err("the driver refuses");
    let call = failed.failure().map(|failure| failure.call);
    assert_eq!(call, Some(Call::HostDeviceAddress), "R7: it names the call that failed first");
    assert_eq!(rig.runtime.stats().pins_quarantined, 1, "P9: kept, and says so");
    assert_eq!(rig.shut_down(deadline()).pins_quarantined, 1, "R5: a shutdown says what could not be given back");
}

fn p9_a_failed_unregister_is_quarantined<B: Bench>(bench: &B) {
    bench.allow(&["P7"]);
    for explicit in [false, true] {
        let rig = Rig::new(bench);
        let mut memory = Lent::from(vec![1_u32; 4]);
        let start = memory.start();
        // SAFETY: P4. The vector is leaked at the end, since its range stays registered.
        let wrap = unsafe { rig.wrap_at(start) }.expect("a wrap");
        rig.tap.rules.fail(Call::HostUnregister, 1, ErrorKind::Unknown);
        let errors = match explicit {
            true => vec![wrap.free().expect_err("P9: the free reports")],
            false => {
                drop(wrap);
                rig.runtime.poll();
                rig.runtime.take_release_errors()
            }
        };
        let codes: Vec<_> = errors.iter().filter_map(|error| error.failure().map(|failure| failure.code)).collect();
        assert_eq!(codes, [INJECTED], "P9: reported once: {errors:?}");
        assert_eq!(rig.runtime.stats().pins_quarantined, 1, "P9: kept, and says so");
        // SAFETY: P4. As above.
        let again = unsafe { rig.wrap_at(start) };
        assert_eq!(again.expect_err("nobody knows"), Error::Pin(PinError::Quarantined), "P9: not used again");
        assert_eq!(rig.shut_down(deadline()).pins_quarantined, 1, "P9: the shutdown says so too");
        std::mem::forget(memory);
    }
}

fn p10_memory_of_others_is_borrowed<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let driver = bench.driver();
    let mut memory = Lent::from(vec![0_u8; PAGE]);
    let base = memory.start();
    assert_eq!(register(&*driver, base, PAGE), None, "somebody else registers it");
    // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
    let mut wrap = unsafe { rig.wrap_at(base) }.expect("P10: it is used as it is");
    rig.bump(&stream, &mut wrap, 5).expect("a write is launched");
    assert_eq!(wrap.read().expect("a view")[..], [5; 4], "P10: and works");
    drop(wrap);
    rig.drain();
    assert_eq!(calls::<B>(&rig).1, 0, "P10: never unregistered by us");
    drop(stream);
    rig.close();
    assert_eq!(unregister(&*driver, base), None, "P10: its owner still has it");
}

fn p11_what_never_ends_stays_registered<B: Bench>(bench: &B) {
    bench.allow(&["P7", "R5", "O6"]);
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let start = pinned.as_ptr();
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut pinned, 1).expect("a write is launched");
    drop((pinned, stream));
    let report = rig.shut_down(std::time::Duration::from_millis(10));
    assert!(report.leaked >= 1, "P11: leaked and counted: {report:?}");
    let driver = bench.driver();
    let start = HostPointer(NonNull::new(start.cast_mut().cast()).expect("not null"));
    assert!(driver.host_is_registered(start).expect("a question"), "P11: still registered, for work that still runs");
    brake.release();
}

fn p12_memory_at_the_same_address_is_another<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = Lent::from(vec![1_u32; 4]);
    let start = memory.start();
    // SAFETY: P4. The vector outlives the runtime, and the host touches it while it is not wrapped.
    let mut wrap = unsafe { rig.wrap_at(start) }.expect("a wrap");
    rig.bump(&stream, &mut wrap, 1).expect("a write is launched");
    assert_eq!(wrap.free(), Ok(Freed::Now), "the first registration ends");
    // SAFETY: P4. As above.
    let wrap = unsafe { rig.wrap_at(start) }.expect("a wrap at the same address");
    assert!(!wrap.is_busy(), "P12: it knows nothing of the one before");
    assert_eq!(calls::<B>(&rig).0, 2, "P12: it is another registration");
    drop((wrap, stream));
    rig.close();
    assert_eq!(memory[..], [2; 4], "and the work was done");
}

fn a_vector_comes_back_from_every_path<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    rig.bump(&stream, &mut pinned, 1).expect("a write is launched");
    let back: Vec<u32> = pinned.into_owner().map_err(|(error, _)| error).expect("P4: the owner comes back");
    assert_eq!(back, [2; 4], "O3: with what the device wrote");
    let boxed = rig.runtime.wrap(back.into_boxed_slice()).expect("a wrap of a box");
    let back: Box<[u32]> = boxed.into_owner().map_err(|(error, _)| error).expect("P4: a box too");
    let mut pinned = rig.runtime.wrap(back).expect("a wrap");
    pinned.write().expect("a view")[0] = 9;
    assert_eq!(stream.read(&pinned).expect("a read"), [9, 2, 2, 2], "O3: the device sees what the host wrote");
    drop((pinned, stream));
    rig.close();
}

fn what_cannot_be_given_back_is_kept<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    for room in [0, 4] {
        let mut owner = Vec::with_capacity(16);
        owner.resize(room, 7_u32);
        let pinned = rig.runtime.wrap(owner).expect("a wrap");
        let (error, kept) = pinned.into_owner::<Box<[u32]>>().expect_err("it owns no box");
        assert!(matches!(error, Error::Pin(PinError::OwnerType)), "P4: {error}");
        let kept = kept.expect("P4: the handle comes back, with its owner");
        let owner: Vec<u32> = kept.into_owner().map_err(|(error, _)| error).expect("P4: the owner comes back");
        assert_eq!((owner.len(), owner.capacity()), (room, 16), "P4: what went in");
    }
    let pinned = rig.runtime.wrap(vec![7_u32; 4]).expect("a wrap");
    let start = HostPointer(NonNull::new(pinned.as_ptr().cast_mut().cast()).expect("memory has an address"));
    // SAFETY: P4. The owner is dropped after this.
    let shared = unsafe { rig.wrap_at(start) }.expect("a wrap that shares");
    let (error, kept) = pinned.into_owner::<Vec<u32>>().expect_err("another wrap uses the registration");
    assert!(matches!(error, Error::Pin(PinError::Shared)), "P5: {error}");
    let (error, shared) = shared.into_owner::<Vec<u32>>().expect_err("another wrap uses the registration");
    assert!(matches!(error, Error::Pin(PinError::Shared)), "P5: {error}");
    drop(shared);
    let kept = kept.expect("P5: the handle comes back");
    let owner: Vec<u32> = kept.into_owner().map_err(|(error, _)| error).expect("P5: it was the last");
    assert_eq!(owner, [7; 4], "P4: the owner comes back");
    assert_eq!(calls::<B>(&rig), (2, 2), "P5: each once");
    rig.close();
}

fn a_view_whose_wait_failed_is_over<B: Bench>(bench: &B) {
    bench.allow(&["O6", "P7", "R5"]);
    let rig = Rig::new(bench);
    let (stream, other) = (rig.stream(), rig.stream());
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    rig.bump(&stream, &mut pinned, 1).expect("a launch");
    rig.tap.rules.fail(Call::StreamSynchronize, 1, ErrorKind::Unknown);
    assert!(pinned.read().is_err(), "the wait fails");
    let refused = rig.bump(&other, &mut pinned, 1);
    assert!(matches!(refused, Err(Error::StreamBroken(_))), "O3: no view stands in the way, but S7: {refused:?}");
    drop((stream, other, pinned));
    let _left = rig.shut_down(std::time::Duration::from_millis(10));
}

fn shared_memory_is_read<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let memory: Arc<[u32]> = Arc::from([5_u32; 4]);
    let shared = rig.runtime.wrap_shared(memory.clone()).expect("a wrap");
    let mut y = rig.four(&stream, 1);
    rig.sum(&stream, &shared, &mut y).expect("a read is launched");
    assert_eq!(memory[0], 5, "the host reads beside the device");
    assert_eq!(stream.read(&y).expect("a read"), [6; 4], "and the device has read");
    drop((shared, y, stream));
    rig.drain();
    assert_eq!(Arc::strong_count(&memory), 1, "P4: the owner was let go");
    rig.close();
}

fn a_scope_ends_what_it_wrapped<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (mut written, read) = ([1_u32; 4], [10_u32; 4]);
    rig.runtime
        .scope(|scope| {
            let mut target = scope.wrap(&mut written)?;
            let source = scope.wrap_shared(&read)?;
            rig.sum(&stream, &source, &mut target)
        })
        .expect("the scope ends");
    assert_eq!(written, [11; 4], "P3: the work has completed");
    assert!(!rig.runtime.is_pinned(&written) && !rig.runtime.is_pinned(&read), "P4: nothing stays registered");
    assert_eq!(calls::<B>(&rig), (2, 2), "P5: each once");
    drop(stream);
    rig.close();
}

fn a_scope_ends_when_its_body_panics<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = [1_u32; 4];
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        rig.runtime.scope(|scope| -> tenure::Result<()> {
            let mut target = scope.wrap(&mut memory)?;
            rig.bump(&stream, &mut target, 1)?;
            std::panic::panic_any(OnPurpose)
        })
    }));
    assert!(panicked.is_err(), "the panic goes on");
    assert_eq!(memory, [2; 4], "R4: after the work has completed");
    assert_eq!(calls::<B>(&rig), (1, 1), "P5: and the memory was unregistered");
    drop(stream);
    rig.close();
}

fn a_scope_ends_forgotten_wraps<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = [1_u32; 4];
    rig.runtime
        .scope(|scope| {
            let mut target = scope.wrap(&mut memory)?;
            rig.bump(&stream, &mut target, 1)?;
            std::mem::forget(target);
            Ok(())
        })
        .expect("the scope ends");
    assert_eq!(memory, [2; 4], "R4: safety rests on no guard");
    assert!(!rig.runtime.is_pinned(&memory), "P4: it is not registered any more");
    drop(stream);
    let _report = rig.shut_down(deadline());
}

fn a_scope_is_not_shared_by_others<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let mut memory = [1_u32; 4];
    let start = HostPointer(NonNull::from(&mut memory).cast());
    rig.runtime
        .scope(|scope| {
            let _target = scope.wrap(&mut memory)?;
            // SAFETY: P4. The array outlives the scope, and the wrap is refused.
            let refused = unsafe { rig.wrap_at(start) };
            assert_eq!(refused.map(drop), Err(Error::Pin(PinError::Scoped)), "P4: it could outlive the scope");
            Ok(())
        })
        .expect("the scope ends");
    rig.close();
}

fn host_memory_of_the_driver_is_given_back<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut host = rig.runtime.alloc_host::<u32>(4).expect("host memory");
    host.write().expect("a view").fill(3);
    rig.bump(&stream, &mut host, 1).expect("a write is launched");
    assert_eq!(host.read().expect("a view")[..], [4; 4], "O3: the device wrote it");
    drop(host);
    rig.drain();
    assert_eq!(rig.tap.log.count(Call::HostFree), 1, "P5: given back once");
    let host = rig.runtime.alloc_host::<u32>(4).expect("host memory");
    assert_eq!(host.read().expect("a view")[..], [0; 4], "it is zeroed, whatever the driver gave");
    assert_eq!(host.free(), Ok(Freed::Now), "P7: explicitly too");
    rig.tap.rules.fail(Call::HostDeviceAddress, 1, ErrorKind::Unknown);
    assert!(rig.runtime.alloc_host::<u32>(4).is_err(), "it is of no use without a device address");
    assert_eq!(rig.tap.log.count(Call::HostFree), 3, "P9: and nothing is left of it");
    drop(stream);
    rig.close();
}

fn host_memory_is_aligned_for_its_elements<B: Bench>(bench: &B) {
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C, align(16384))]
    struct Wide([[u8; 4096]; 4]);
    let rig = Rig::new(bench);
    let kept: Vec<_> = (0..5).map(|_| rig.runtime.alloc_host::<Wide>(2).expect("host memory")).collect();
    for pinned in &kept {
        assert_eq!(pinned.as_ptr().addr() % align_of::<Wide>(), 0, "P4: a slice of them can be made");
        let view = pinned.read().expect("a view");
        assert!(view.iter().all(|wide| wide.0 == [[0; 4096]; 4]), "zeroed to its end");
        assert!(rig.runtime.is_pinned(pinned.as_ptr().wrapping_add(1)), "P1: all of it");
    }
    drop(kept);
    rig.drain();
    let of = |call| rig.tap.log.count(call);
    assert_eq!(of(Call::HostAlloc), of(Call::HostFree), "P5: what did not fit went back as well");
    // SAFETY: P4. The wrap is refused: nothing is done with the address.
    let askew = unsafe {
        rig.runtime.wrap_raw(NonNull::<u32>::new(std::ptr::without_provenance_mut(1)).expect("one is not zero"), 4)
    };
    assert_eq!(askew.map(drop), Err(Error::Misuse(Misuse::Misaligned { align: 4 })), "no slice could be made of it");
    rig.close();
}

fn elements_of_no_size_are_counted<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let marked = rig.tap.log.mark();
    let wraps = [rig.runtime.alloc_host::<[u32; 0]>(5), rig.runtime.wrap(vec![[0_u32; 0]; 5]).map_err(Error::from)];
    for wrap in wraps {
        let wrap = wrap.expect("no bytes are needed");
        assert_eq!((wrap.len(), wrap.read().expect("a view").len()), (5, 5), "O8: five elements, and no bytes");
    }
    let shared: Arc<[[u32; 0]]> = Arc::from(vec![[]; 5]);
    assert_eq!(rig.runtime.wrap_shared(shared).expect("no bytes are needed").len(), 5);
    assert_eq!(rig.tap.log.since(marked), [], "O8: no driver sees them");
    rig.close();
}

fn sizes_that_do_not_fit_are_refused<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let too_long = Err(Error::Misuse(Misuse::SizeOverflow));
    for len in [usize::MAX, usize::MAX / 4, usize::MAX / 8 + 1, isize::MAX as usize / 4 + 1] {
        assert_eq!(rig.runtime.alloc_host::<u32>(len).map(drop), too_long, "{len} elements");
        let start = NonNull::<u32>::dangling();
        // SAFETY: P4. The wrap is refused: nothing is done with the address.
        let wrapped = unsafe { rig.runtime.wrap_raw(start, len) };
        assert_eq!(wrapped.map(drop), too_long, "{len} elements");
    }
    rig.close();
}

fn p3_a_free_waits_for_reads<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let source = rig.runtime.wrap(vec![7_u32; 4]).expect("a wrap");
    let mut target = rig.four(&stream, 1);
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.sum(&stream, &source, &mut target).expect("a read is launched");
    thread::scope(|scope| {
        let freeing = scope.spawn(move || source.free());
        thread::sleep(std::time::Duration::from_millis(5));
        assert!(!freeing.is_finished(), "P3: the device has not read it yet");
        assert_eq!(calls::<B>(&rig).1, 0, "P3: so it is registered");
        brake.release();
        assert_eq!(freeing.join().expect("no panic"), Ok(Freed::Now), "P7: then it is free");
    });
    assert_eq!(stream.read(&target).expect("a read"), [8; 4], "O3: the device has read it");
    drop((stream, target));
    rig.close();
}

fn p3_look_ups_follow_the_registration<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let mut memory = Lent::from(vec![1_u32; 4]);
    let start = memory.start();
    for _ in 0..3 {
        // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
        let wrap = unsafe { rig.wrap_at(start) }.expect("a wrap");
        assert!(rig.runtime.is_pinned(start.0.as_ptr()), "P1: registered");
        assert_eq!(wrap.free(), Ok(Freed::Now));
        assert!(!rig.runtime.is_pinned(start.0.as_ptr()), "P1: and no longer");
    }
    let ended = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let (rig, ended) = (&rig, &ended);
        scope.spawn(move || {
            for _ in 0..30 {
                // SAFETY: P4. As above.
                let wrap = unsafe { rig.wrap_at(start) }.expect("a wrap");
                assert!(rig.runtime.is_pinned(start.0.as_ptr()), "P1: whoever has a wrap finds it, beside any look-up");
                let _freed = wrap.free().expect("a free");
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            let _either = rig.runtime.is_pinned(start.0.as_ptr());
        }
    });
    rig.close();
    drop(memory);
}

/// Memory of a case's own, and a count of its owners.
struct Counted(HostPointer, #[allow(dead_code, reason = "only held, and counted from outside")] Arc<()>);

// SAFETY: P4. The cases' memory outlives these, and is touched by nobody else.
unsafe impl tenure::HostMemory for Counted {
    type Item = u32;

    fn range(&mut self) -> (NonNull<u32>, usize) {
        (self.0.0.cast(), 4)
    }
}

fn p4_an_owner_comes_back_after_the_work<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = vec![1_u32; 4];
    let start = HostPointer(NonNull::from(&mut *memory).cast());
    // SAFETY: P4. The vector comes back, and is dropped after the runtime.
    let raw = unsafe { rig.wrap_at(start) }.expect("a wrap");
    let mut sharing = rig.runtime.wrap(memory).expect("a wrap that shares");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut sharing, 1).expect("a write is launched");
    let memory = thread::scope(|scope| {
        let ending = scope.spawn(move || sharing.into_owner::<Vec<u32>>().map_err(|(error, _)| error));
        thread::sleep(std::time::Duration::from_millis(5));
        assert!(!ending.is_finished(), "O3: the device has not written it yet");
        brake.release();
        ending.join().expect("no panic").expect("P4: the owner comes back")
    });
    assert_eq!(memory, [2; 4], "O3: after the work");
    assert_eq!(calls::<B>(&rig), (1, 0), "P8: the registration is the other's");
    let last = rig.runtime.wrap(memory).expect("a wrap that shares");
    drop(raw);
    let memory: Vec<u32> = last.into_owner().map_err(|(error, _)| error).expect("P4: also from the last");
    assert_eq!(calls::<B>(&rig), (1, 1), "P4: not while it is registered");
    drop(stream);
    rig.close();
    drop(memory);
}

fn p4_an_owner_that_shares_stays_while_it_is_used<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = Lent::from(vec![1_u32; 4]);
    let (start, alive) = (memory.start(), Arc::new(()));
    for first_goes_first in [false, true] {
        // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
        let raw = unsafe { rig.wrap_at(start) }.expect("a wrap");
        let mut sharing = rig.runtime.wrap(Counted(start, alive.clone())).map_err(Error::from).expect("a wrap");
        let brake = Brake::new(bench);
        brake.hold(&stream);
        rig.bump(&stream, &mut sharing, 1).expect("a write is launched");
        let raw = (!first_goes_first).then_some(raw);
        drop(sharing);
        rig.runtime.poll();
        assert_eq!(Arc::strong_count(&alive), 2, "P4: its owner stays while the device works on its memory");
        brake.release();
        stream.synchronize().expect("a wait");
        rig.drain();
        assert_eq!(Arc::strong_count(&alive), 1, "P4: and goes then, whoever else uses the registration");
        drop(raw);
        rig.drain();
    }
    drop(stream);
    rig.close();
    drop(memory);
}

fn p4_a_shared_owner_is_kept_once<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let memory: Arc<[u32]> = Arc::from([5_u32; 4]);
    let wraps: Vec<_> = (0..20).map(|_| rig.runtime.wrap_shared(memory.clone()).expect("a wrap")).collect();
    assert_eq!(Arc::strong_count(&memory), 2, "P4: one keeps it for all");
    drop(wraps);
    rig.drain();
    assert_eq!(Arc::strong_count(&memory), 1, "P4: and goes with the registration");
    rig.close();
}

fn p4_a_scope_ends_all_that_it_wrapped<B: Bench>(bench: &B) {
    bench.allow(&["P7", "P4"]);
    for panics in [false, true] {
        let rig = Rig::new(bench);
        let (mut first, mut second) = (Lent::from(vec![1_u32; 4]), Lent::from(vec![2_u32; 4]));
        let second_start = second.start();
        rig.tap.rules.fail(Call::HostUnregister, 1, ErrorKind::Unknown);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: P4. The vectors outlive the scope, and are leaked where their ranges stay registered.
            let slices = unsafe {
                [first.start(), second_start]
                    .map(|start| std::slice::from_raw_parts_mut(start.0.as_ptr().cast::<u32>(), 4))
            };
            let [first, second] = slices;
            rig.runtime.scope(|scope| {
                let _wraps = (scope.wrap(first)?, scope.wrap(second)?);
                if panics {
                    std::panic::panic_any(OnPurpose);
                }
                Ok(())
            })
        }));
        assert_eq!(calls::<B>(&rig), (2, 2), "P4: both borrows are over");
        let told = match outcome {
            Ok(outcome) => outcome.err().into_iter().collect(),
            Err(_panic) => rig.runtime.take_release_errors(),
        };
        assert_eq!(told.len(), 1, "R7: the failure is told once: {told:?}");
        assert_eq!(rig.runtime.stats().pins_quarantined, 1, "P9: the first is kept");
        let driver = bench.driver();
        assert!(!driver.host_is_registered(second_start).unwrap_or(false), "P4: the second is not registered any more");
        drop(rig.shut_down(deadline()));
        std::mem::forget(first);
    }
}

fn p4_a_scope_leaves_what_outlives_it<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let memory: Arc<[u32]> = Arc::from([5_u32; 4]);
    let longer = rig.runtime.wrap_shared(memory.clone()).expect("a wrap");
    let mut sum = rig.four(&stream, 1);
    for _ in 0..2 {
        let ended = rig.runtime.scope(|scope| {
            let scoped = scope.wrap_shared(&memory)?;
            rig.sum(&stream, &scoped, &mut sum)
        });
        ended.expect("the scope ends");
        assert!(rig.runtime.is_pinned(longer.as_ptr()), "P1: the other wrap has a count");
    }
    assert_eq!(calls::<B>(&rig), (1, 0), "P8: which the scope shared");
    rig.sum(&stream, &longer, &mut sum).expect("P3: it works on");
    assert_eq!(stream.read(&sum).expect("a read"), [16; 4]);
    drop(longer);
    let ended = rig.runtime.scope(|scope| scope.wrap_shared(&memory).map(drop));
    ended.expect("the scope ends");
    assert_eq!(calls::<B>(&rig), (1, 1), "P4: a range that was pending ends with the scope");
    drop((stream, sum));
    rig.close();
}

fn p7_a_busy_range_is_retired_once<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let memory: Arc<[u32]> = Arc::from([1_u32; 4]);
    let wrap = || rig.runtime.wrap_shared(memory.clone()).expect("a wrap");
    let mut sum = rig.four(&stream, 0);
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.sum(&stream, &wrap(), &mut sum).expect("a read is launched");
    for round in 0..500 {
        drop(wrap());
        if round % 3 == 0 {
            rig.runtime.poll();
        }
    }
    let pending = rig.runtime.retired_pending();
    assert!(pending <= 2, "P7: a range has one place in the queue, not {pending}");
    assert_eq!(Arc::strong_count(&memory), 2, "P4: and one owner");
    brake.release();
    stream.synchronize().expect("a wait");
    rig.drain();
    assert_eq!(calls::<B>(&rig), (1, 1), "P7: the release was not lost");
    drop((stream, sum));
    rig.close();
}

fn p9_a_call_may_fail_after_its_effect<B: Bench>(bench: &B) {
    bench.allow(&["P7", "R5"]);
    let rig = Rig::new(bench);
    rig.tap.rules.fail_after(Call::HostUnregister, 1, ErrorKind::Unknown);
    let pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let memory: Vec<u32> = pinned.into_owner().map_err(|(error, _)| error).expect("P4: the driver has it no longer");
    assert_eq!(rig.runtime.take_release_errors().len(), 1, "R7: the failure is told");
    let mut memory = Lent::from(memory);
    let start = memory.start();
    // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
    drop(unsafe { rig.wrap_at(start) }.expect("P9: nothing is in quarantine"));
    rig.drain();
    let owned = Arc::new(());
    rig.tap.rules.fail_after(Call::HostRegister, 1, ErrorKind::OutOfMemory);
    let failed = rig.runtime.wrap(Counted(start, owned.clone())).map(drop).expect_err("the driver says so");
    assert_eq!(failed.error.failure().map(|failure| failure.kind), Some(ErrorKind::OutOfMemory), "R7");
    let is_registered = bench.driver().host_is_registered(start).unwrap_or(false);
    assert_eq!(failed.owner.is_kept(), is_registered, "P4: what the driver may have is kept, and no more");
    let kept = Arc::strong_count(&owned) - 1;
    drop(failed);
    assert_eq!(Arc::strong_count(&owned), 1 + usize::from(is_registered) * kept, "P4: also when the error is dropped");
    let report = rig.shut_down(deadline());
    assert_eq!(report.pins_quarantined, usize::from(is_registered), "R5: and a shutdown says so");
    std::mem::forget(memory);
}

fn p9_an_address_of_nothing_is_a_failure<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    rig.tap.rules.give_nothing(true);
    let failed = rig.runtime.wrap(vec![1_u32; 4]).expect_err("no device reaches it");
    let call = failed.error.failure().map(|failure| failure.call);
    assert_eq!((call, failed.owner == [1; 4]), (Some(Call::HostDeviceAddress), true), "P9: the memory comes back");
    assert!(rig.runtime.alloc_host::<u32>(4).is_err(), "of the driver's as well");
    rig.tap.rules.give_nothing(false);
    let registers = calls::<B>(&rig);
    assert_eq!(registers, (1, 1), "P9: nothing is left");
    assert_eq!(rig.tap.log.count(Call::HostAlloc), rig.tap.log.count(Call::HostFree), "P9: of both");
    rig.close();
}

fn p10_what_others_registered_in_part_is_left_alone<B: Bench>(bench: &B) {
    let driver = bench.driver();
    // Parts of four pages that a stranger registers.
    let layouts: [&[(usize, usize)]; 5] = [&[(0, 1)], &[(0, 2), (2, 2)], &[(0, 1), (3, 1)], &[(1, 2)], &[(2, 2)]];
    for parts in layouts {
        let rig = Rig::new(bench);
        let mut memory = Lent::from(vec![0_u8; 5 * PAGE]);
        let base = memory.start().offset(memory.start().0.align_offset(PAGE));
        for (first, pages) in parts {
            assert_eq!(register(&*driver, base.offset(first * PAGE), pages * PAGE), None, "somebody else's");
        }
        // SAFETY: P4. The vector outlives the runtime, and the wrap is refused, or is right.
        let wrap = unsafe { rig.runtime.wrap_raw::<u8>(base.0, 4 * PAGE) };
        let borders = parts.len() > 1 && parts.iter().map(|(_, pages)| pages).sum::<usize>() == 4;
        match wrap {
            Ok(wrap) => assert!(borders && wrap.len() == 4 * PAGE, "P10: {parts:?} is not all of it"),
            Err(Error::Pin(PinError::Overlap)) => {}
            Err(error) => {
                let kind = error.failure().map(|failure| failure.kind);
                assert_eq!(kind, Some(ErrorKind::AlreadyRegistered), "P10: a typed error: {error}");
            }
        }
        rig.drain();
        rig.close();
        for (first, pages) in parts {
            let end = base.offset((first + pages) * PAGE - 1);
            assert!(driver.host_is_registered(end).expect("a question"), "P10: {parts:?} is theirs still");
            assert_eq!(unregister(&*driver, base.offset(first * PAGE)), None, "P10: for them to end");
        }
    }
}

fn p13_runtimes_of_a_process_share_a_registration<B: Bench>(bench: &B) {
    let (one, other) = (Rig::new(bench), Rig::new(bench));
    let stream = other.stream();
    let memory: Arc<[u32]> = Arc::from([5_u32; 4]);
    let total = || (calls::<B>(&one), calls::<B>(&other));
    let first = one.runtime.wrap_shared(memory.clone()).expect("a wrap");
    let second = other.runtime.wrap_shared(memory.clone()).expect("a wrap in another runtime");
    assert_eq!(total(), ((1, 0), (0, 0)), "P13: it is registered once");
    drop(first);
    one.drain();
    one.close();
    let mut sum = other.four(&stream, 1);
    other.sum(&stream, &second, &mut sum).expect("P13: the other's claim holds it");
    assert_eq!(stream.read(&sum).expect("a read"), [6; 4]);
    assert_eq!(Arc::strong_count(&memory), 3, "P4: what kept it for the first stays with the second's");
    // The one that began first is over, and the last ends it.
    let third = Rig::new(bench);
    let again = third.runtime.wrap_shared(memory.clone()).expect("a wrap in a third");
    drop(second);
    other.drain();
    assert_eq!(calls::<B>(&other), (0, 0), "P13: not the last");
    drop(again);
    third.drain();
    assert_eq!(calls::<B>(&third), (0, 1), "P13: whoever is the last undoes it");
    assert_eq!(Arc::strong_count(&memory), 1, "P4: and lets go of what kept it");
    drop((stream, sum));
    other.close();
    third.close();
}

fn p13_a_claim_is_in_the_way_of_others<B: Bench>(bench: &B) {
    let (one, other) = (Rig::new(bench), Rig::new(bench));
    let mut memory = Lent::from(vec![0_u32; 64]);
    let start = memory.start();
    // SAFETY: P4. The vector outlives the runtimes and is not touched meanwhile.
    let wrap = |rig: &Rig<B::Driver>, from: usize, len| unsafe {
        rig.runtime.wrap_raw::<u32>(start.offset(from * 4).0.cast(), len)
    };
    let first = wrap(&one, 16, 32).expect("a wrap");
    let larger = PinError::Larger { registered: 128, wanted: 256 };
    assert_eq!(wrap(&other, 0, 64).map(drop), Err(Error::Pin(larger)), "P2: in another runtime too");
    assert_eq!(wrap(&other, 0, 20).map(drop), Err(Error::Pin(PinError::Overlap)), "P8: in another runtime too");
    let part = wrap(&other, 20, 4).expect("P8: a part shares");
    let (error, first) = {
        // SAFETY: P4. As above.
        let sharing = one.runtime.wrap(Counted(start.offset(64), Arc::new(()))).map_err(Error::from).expect("a wrap");
        drop(first);
        sharing.into_owner::<Counted>().map(drop).expect_err("the other runtime uses it")
    };
    assert_eq!(error, Error::Pin(PinError::Shared), "P4: it could go under the other's work");
    assert_eq!(first.expect("P5: the handle comes back").free(), Ok(Freed::Deferred), "P7: it ends with the other's");
    drop(part);
    other.drain();
    assert_eq!((calls::<B>(&one), calls::<B>(&other)), ((1, 0), (0, 1)), "P13: once each");
    let ended = one.runtime.scope(|scope| {
        // SAFETY: P4. As above.
        let slice = unsafe { std::slice::from_raw_parts_mut(start.0.as_ptr().cast::<u32>(), 64) };
        let _scoped = scope.wrap(slice)?;
        assert_eq!(wrap(&other, 0, 4).map(drop), Err(Error::Pin(PinError::Scoped)), "P4: the scope ends alone");
        Ok(())
    });
    ended.expect("the scope ends");
    one.close();
    other.close();
    drop(memory);
}

fn p13_what_vouches_for_memory_is_told_of_other_claims<B: Bench>(bench: &B) {
    let (one, other) = (Rig::new(bench), Rig::new(bench));
    let mut memory = Lent::from(vec![0_u32; 64]);
    let start = memory.start();
    // SAFETY: P4. The vector outlives the runtimes and is not touched meanwhile.
    let whole = unsafe { one.runtime.wrap_raw::<u32>(start.0.cast(), 64) }.expect("a wrap");
    // SAFETY: P4. As above.
    let part = unsafe { other.wrap_at(start) }.expect("a part of it in another runtime");
    assert_eq!(whole.free(), Ok(Freed::Deferred), "P7: the other uses the registration");
    let report = one.shut_down(deadline());
    assert_eq!(report.pins_left, 1, "P4: all of it is registered still: {report:?}");
    assert!(bench.driver().host_is_registered(start.offset(255)).expect("a question"), "P13");
    assert_eq!(part.free(), Ok(Freed::Now), "P13: the last");
    other.close();
    drop(memory);
}

fn p14_a_registration_outlives_the_work_of_all_claims<B: Bench>(bench: &B) {
    let (one, other) = (Rig::new(bench), Rig::new(bench));
    let (slow, quick) = (one.stream(), other.stream());
    let mut memory = Lent::from(vec![1_u32; 4]);
    let start = memory.start();
    let alive = Arc::new(());
    let mut first = one.runtime.wrap(Counted(start, alive.clone())).map_err(Error::from).expect("a wrap");
    // SAFETY: P4. The vector outlives the runtimes and is not touched meanwhile.
    let mut second = unsafe { other.wrap_at(start) }.expect("a wrap in another runtime");
    other.bump(&quick, &mut second, 1).expect("a write is launched");
    quick.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&slow);
    one.bump(&slow, &mut first, 10).expect("a write is launched");
    drop(first);
    one.runtime.poll();
    assert_eq!(second.free(), Ok(Freed::Deferred), "P14: the first runtime's work goes on");
    assert_eq!((calls::<B>(&one).1, calls::<B>(&other).1), (0, 0), "P14: so it is registered");
    assert_eq!(Arc::strong_count(&alive), 2, "P4: and its owner is there");
    brake.release();
    slow.synchronize().expect("a wait");
    one.drain();
    assert_eq!((calls::<B>(&one).1, Arc::strong_count(&alive)), (1, 1), "P14: after the work of both");
    drop((slow, quick));
    one.close();
    other.close();
    assert_eq!(memory[..], [12; 4], "and all was done");
}

fn p14_a_registration_of_others_is_asked_for_again<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let driver = bench.driver();
    let mut memory = Lent::from(vec![0_u8; PAGE]);
    let base = memory.start();
    // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
    let wrap = || unsafe { rig.wrap_at(base) }.expect("a wrap");
    assert_eq!(register(&*driver, base, PAGE), None, "somebody else registers it");
    drop(wrap());
    let again = wrap();
    rig.runtime.poll();
    assert_eq!(rig.runtime.stats().pins_made, 1, "P14: it is there still, and revived");
    drop(again);
    // Not noted by the runtime yet.
    assert_eq!(unregister(&*driver, base), None, "P10: its owner ends it");
    let mut ours = wrap();
    rig.bump(&stream, &mut ours, 5).expect("P14: it is registered, and work is accepted");
    assert_eq!(ours.read().expect("a view")[..], [5; 4], "P14: and done");
    drop(ours);
    rig.drain();
    assert_eq!(calls::<B>(&rig).1, 1, "P13: what we registered we undo");
    drop(stream);
    rig.close();
    drop(memory);
}

fn p15_what_is_only_read_is_not_written<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = Lent::from(vec![1_u32; 4]);
    let start = memory.start();
    let read_only = rig.runtime.wrap_read_only(Counted(start, Arc::new(()))).map_err(Error::from).expect("a wrap");
    let mut sum = rig.four(&stream, 1);
    rig.sum(&stream, &read_only, &mut sum).expect("a read is launched");
    // SAFETY: P4. The vector outlives the runtime and is not touched meanwhile.
    let refused = unsafe { rig.wrap_at(start) };
    assert_eq!(refused.map(drop), Err(Error::Pin(PinError::ReadOnly)), "P15: it is registered to be read");
    let back = read_only.into_owner::<Counted>().map_err(|(error, _)| error);
    drop(rig.runtime.wrap_read_only(back.expect("P4: the owner comes back")).map_err(Error::from).expect("a wrap"));
    // SAFETY: P4. As above.
    let mut writable = unsafe { rig.wrap_at(start) }.expect("P15: once nobody reads it, it is registered anew");
    rig.bump(&stream, &mut writable, 1).expect("a write is launched");
    assert_eq!(writable.read().expect("a view")[..], [2; 4], "P15: to be written");
    let shared = rig.runtime.wrap_read_only(Counted(start, Arc::new(()))).map_err(Error::from);
    assert_eq!(stream.read(&*shared.expect("P8: a reader shares it")).expect("a read"), [2; 4]);
    drop((stream, sum, writable));
    rig.close();
    drop(memory);
}

fn wraps_of_many_threads_keep_the_count<B: Bench>(bench: &B) {
    let rig = Rig::working(bench);
    let mut memory = Lent::from(vec![0_u32; 4]);
    let start = memory.start();
    thread::scope(|scope| {
        for _ in 0..3 {
            let rig = &rig;
            scope.spawn(move || {
                let stream = rig.stream();
                for round in 0..30 {
                    // SAFETY: P4. The vector outlives the runtime, and the host reads it at the end.
                    let mut wrap = unsafe { rig.wrap_at(start) }.expect("a wrap");
                    rig.bump(&stream, &mut wrap, 1).expect("a write is launched");
                    match round % 3 {
                        0 => drop(wrap.free().expect("a free")),
                        _ => drop(wrap),
                    }
                }
            });
        }
    });
    super::eventually("P7: no release is lost", || {
        // A device that only moves with calls moves.
        rig.runtime.poll();
        rig.runtime.stats().pins_pending == 0
    });
    let (registered, unregistered) = calls::<B>(&rig);
    assert_eq!(registered, unregistered, "P5: as many ends as beginnings");
    rig.close();
    assert_eq!(memory[..], [90; 4], "O1: every write came after the one before");
}
