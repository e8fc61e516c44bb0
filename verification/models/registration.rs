//! Registered host memory and its release: P1 to P6, P8 to P10, P12, R3.
//!
//! The device checks: no range is registered twice or unregistered while in use, and no two calls about one range are unordered.

use std::ptr::NonNull;

use super::checker::spawn;
use super::device::Device;
use super::ownership::World;
use super::tenure::call_scope::MayWait;
use super::tenure::driver::{Call, ErrorKind, HostAccess, HostPointer};
use super::tenure::ownership::{Access, Points, Use, submit};
use super::tenure::reclaim::{Ask, Reclaim, Resource, Retired};
use super::tenure::registration::{HostRange, Pin, Pins, Request};
use super::tenure::stream_state::StreamState;
use super::tenure::sync::Arc;
use super::{Model, Reached, Search};
use crate::schedule;

/// Where the models' host memory is said to lie: never touched, only registered.
const BASE: usize = 0x10_0000;

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "p1_two_threads_wrap_and_free_one_range",
        claim: "Two threads that wrap and let go one range keep count and registration together, and undo it once.",
        lines: &["P1", "P5", "P6"],
        threads: 2,
        operations: "1 wrap, 1 give back and 1 release each",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["the registration was shared", "it was registered twice over"],
        body: wrap_and_free,
    },
    Model {
        name: "p2_larger_wrap_waits_for_pending_release",
        claim: "A larger wrap over a range whose release is pending never uses the shorter registration, beside the release by another.",
        lines: &["P2", "P12", "P3"],
        threads: 2,
        operations: "1 larger wrap and use; 1 turn that releases",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["the wrap released the shorter one"],
        body: larger_over_pending,
    },
    Model {
        name: "p3_release_waits_for_both_wraps",
        claim: "Two wraps of one range used on two streams: the range is unregistered after the work of both.",
        lines: &["P3", "P5"],
        threads: 2,
        operations: "1 use and 1 give back each, 1 turn each",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["it was released in a turn"],
        body: two_wraps,
    },
    Model {
        name: "p6_driver_calls_are_serialized",
        claim: "Registers and unregisters of two ranges by two threads are made one after the other.",
        lines: &["P6"],
        threads: 2,
        operations: "1 wrap, 1 give back and 1 release each, of its own range",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["both were registered"],
        body: two_ranges,
    },
    Model {
        name: "p9_failed_register_leaves_nothing",
        claim: "A register that fails leaves no count, and a second thread can register the range.",
        lines: &["P9", "P1"],
        threads: 2,
        operations: "1 wrap each, the first driver call fails",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["one wrap failed"],
        body: failed_register,
    },
    Model {
        name: "p9_register_that_cannot_be_undone",
        claim: "A register that was of no use and that the driver would not undo is quarantined: nobody shares the range or \
                registers it again.",
        lines: &["P9", "P1"],
        threads: 2,
        operations: "1 wrap each; the device's address is refused, and so is the unregister",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["the second came while the first was at it", "the second came later"],
        body: undone_in_vain,
    },
    Model {
        name: "p10_foreign_registration_is_borrowed",
        claim: "Two threads that wrap and let go memory that other code registered use it, and never undo it.",
        lines: &["P10", "P5"],
        threads: 2,
        operations: "1 wrap, 1 give back and 1 turn each",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["the wrap was shared", "it was borrowed twice over"],
        body: foreign,
    },
    Model {
        name: "p8_longer_wrap_beside_let_go",
        claim: "A longer wrap beside the end of a shorter one is refused with its error, or gets a registration of its full length.",
        lines: &["P2", "P8"],
        threads: 2,
        operations: "1 give back and 1 turn; 1 longer wrap",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["it was refused", "it got a registration of its own"],
        body: longer_beside_let_go,
    },
    Model {
        name: "p12_old_decision_about_new_registration",
        claim: "A release decided about an earlier registration does not undo a later one of the same addresses.",
        lines: &["P12", "P3"],
        threads: 2,
        operations: "1 give back and its release; 1 longer wrap, use and give back",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["the old decision was void"],
        body: old_decision,
    },
    Model {
        name: "p4_memory_outlives_its_registration",
        claim: "The owner of a range that two threads wrap, use and let go is dropped once, after the unregister and after the work.",
        lines: &["P4", "P3", "P5"],
        threads: 2,
        operations: "1 wrap with an owner, 1 use, 1 give back and 1 turn each",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["the registration was shared", "it was registered twice over"],
        body: owners,
    },
    Model {
        name: "p9_failed_unregister_keeps_range_and_owner",
        claim: "When the driver fails an unregister, range and owner stay, and a wrap beside it shares, or is told of the quarantine.",
        lines: &["P9", "P4"],
        threads: 2,
        operations: "1 give back and 1 turn whose unregister fails; 1 wrap and give back",
        bound: None,
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["the wrap revived it", "the wrap was refused"],
        body: failed_unregister,
    },
    Model {
        name: "r3_drop_beside_blocked_unregister",
        claim: "Drops end while an unregister on another thread waits for the device, under all locks that are held meanwhile.",
        lines: &["R3", "R1", "P7"],
        threads: 2,
        operations: "1 turn whose unregister returns only after the drops; 1 give back and 2 drops",
        bound: None,
        search: Search::Sample(2_000),
        leaves_out: "the memory is never touched",
        reaches: &["the unregister was under way"],
        body: blocked_unregister,
    },
];

/// An owner of the models' host memory, which ends with its last owner. A lock and not a count alone, so that there is
/// no new owner between the last one's end and the look at what is registered. std's on purpose: no checker sees it.
#[derive(Debug)]
struct Owner {
    owners: std::sync::Arc<std::sync::Mutex<usize>>,
    device: Device,
    bytes: usize,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if schedule::is_over() {
            return;
        }
        let mut owners = self.owners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *owners -= 1;
        if *owners == 0 {
            self.device.host_memory_ends(BASE, self.bytes);
        }
    }
}

/// A world with pins and their reclaim.
#[derive(Debug)]
struct Place {
    world: World,
    pins: Pins<Device>,
    reclaim: Reclaim<Device>,
    owners: std::sync::Arc<std::sync::Mutex<usize>>,
}

impl Place {
    fn new() -> Arc<Self> {
        let owners = std::sync::Arc::default();
        Arc::new(Self { world: World::new(), pins: Pins::new(), reclaim: Reclaim::new(), owners })
    }

    fn wrap(&self, bytes: usize) -> Option<Arc<Pin<Device>>> {
        self.wrap_at(BASE, bytes)
    }

    fn wrap_at(&self, base: usize, bytes: usize) -> Option<Arc<Pin<Device>>> {
        let base = HostPointer(NonNull::new(std::ptr::without_provenance_mut(base)).expect("the address is not zero"));
        let request = Request { range: HostRange { base, bytes }, access: HostAccess::ReadWrite, scope: None };
        self.pins.pin(&self.world.context, request, None).ok().map(|(pin, _)| pin)
    }

    /// As the drop of a wrap does.
    fn let_go(&self, pin: &Arc<Pin<Device>>) {
        let parted = self.pins.part(pin, None, true);
        if let Some(epoch) = parted.epoch.filter(|_| parted.retires) {
            let resource = Resource::Pin(pin.clone(), epoch);
            self.reclaim.retire(Retired { resource, points: Points::new() });
        }
    }

    /// As [`wrap`](Self::wrap), with one more owner of the memory.
    fn wrap_owned(&self, bytes: usize) -> Option<Arc<Pin<Device>>> {
        let base = HostPointer(NonNull::new(std::ptr::without_provenance_mut(BASE)).expect("the address is not zero"));
        let request = Request { range: HostRange { base, bytes }, access: HostAccess::ReadWrite, scope: None };
        let owner = self.owner(bytes);
        self.pins.pin(&self.world.context, request, Some(Box::new(owner))).ok().map(|(pin, _)| pin)
    }

    fn owner(&self, bytes: usize) -> Owner {
        *self.owners.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
        Owner { owners: self.owners.clone(), device: self.world.device.clone(), bytes }
    }

    fn write(&self, stream: &Arc<StreamState<Device>>, pin: &Pin<Device>) {
        let uses = [Use::new(&pin.record, Access::Write)];
        let pointers = [(pin.device, pin.range.bytes as u64, true)];
        let answer =
            submit(&self.world.context, stream, &uses, Call::Launch, |device, raw| device.kernel(raw, &pointers));
        assert!(answer.is_ok(), "O5: a launch failed though the driver accepted all");
    }

    fn turn(&self) {
        self.reclaim.turn(&self.world.context, &self.pins, Ask::Query);
    }

    /// What is left is released, once.
    fn ends(&self) {
        // A turn may leave to another what that one then finds busy: a few are enough when nobody else is there.
        for _ in 0..3 {
            self.turn();
        }
        self.world.device.ends_clean();
    }
}

fn wrap_and_free(reached: &Reached) {
    // setup
    let place = Place::new();
    // threads
    let work = |place: &Place| {
        let pin = place.wrap(64).expect("P8: the same range is shared");
        place.let_go(&pin);
        place.turn();
    };
    let other = spawn({
        let place = place.clone();
        move || work(&place)
    });
    work(&place);
    // join
    other.join().unwrap();
    // claim
    let registered = place.world.device.count(Call::HostRegister);
    reached.mark_if(registered == 1, "the registration was shared");
    reached.mark_if(registered == 2, "it was registered twice over");
    place.ends();
    assert_eq!(place.world.device.registrations(), 0, "P5: a count was not given back");
}

fn larger_over_pending(reached: &Reached) {
    // setup: a shorter wrap, used and let go
    let place = Place::new();
    let stream = place.world.stream();
    let short = place.wrap(32).expect("nothing is registered yet");
    place.write(&stream, &short);
    place.let_go(&short);
    drop(short);
    // threads
    let worker = spawn({
        let place = place.clone();
        move || place.turn()
    });
    let long = place.wrap(64).expect("P2: a larger wrap waits for a pending one");
    assert_eq!(long.range.bytes, 64, "P2: the shorter registration was used for a larger wrap");
    place.write(&stream, &long);
    reached.mark_if(place.world.device.count(Call::StreamSynchronize) > 0, "the wrap released the shorter one");
    place.let_go(&long);
    place.turn();
    // join
    worker.join().unwrap();
    // claim: the device
    place.ends();
    assert_eq!(place.world.device.registrations(), 0, "P5: a count was not given back");
}

fn two_wraps(reached: &Reached) {
    // setup
    let place = Place::new();
    let (a, b) = (place.world.stream(), place.world.stream());
    let pins = [place.wrap(64), place.wrap(64)].map(|pin| pin.expect("P8: the same range is shared"));
    let [first, second] = pins;
    // threads
    let other = spawn({
        let place = place.clone();
        move || {
            place.write(&b, &second);
            place.let_go(&second);
            drop(second);
            place.turn();
        }
    });
    place.write(&a, &first);
    place.let_go(&first);
    drop(first);
    place.turn();
    // join
    other.join().unwrap();
    // claim: the device, at each unregister
    reached.mark_if(place.world.device.registrations() == 0, "it was released in a turn");
    place.ends();
    assert_eq!(place.world.device.registrations(), 0, "P5: a count was not given back");
}

fn two_ranges(reached: &Reached) {
    // setup
    let place = Place::new();
    // threads
    let work = |place: &Place, base| {
        let pin = place.wrap_at(base, 64).expect("nothing is in the way");
        place.let_go(&pin);
        place.turn();
    };
    let other = spawn({
        let place = place.clone();
        move || work(&place, 2 * BASE)
    });
    work(&place, BASE);
    // join
    other.join().unwrap();
    // claim: the device's witness of these calls
    reached.mark_if(place.world.device.count(Call::HostRegister) == 2, "both were registered");
    place.ends();
}

fn failed_register(reached: &Reached) {
    // setup
    let place = Place::new();
    place.world.device.fail(Call::HostRegister, ErrorKind::OutOfMemory, 0);
    // threads
    let work = |place: &Place| {
        let pin = place.wrap(64);
        pin.iter().for_each(|pin| place.let_go(pin));
        pin.is_some()
    };
    let other = spawn({
        let place = place.clone();
        move || work(&place)
    });
    let mine = work(&place);
    // join
    let other = other.join().unwrap();
    // claim
    assert!(mine || other, "P9: a failed register was left in the way of a second");
    reached.mark_if(mine != other, "one wrap failed");
    place.ends();
    let census = place.pins.census();
    assert_eq!(census, (0, 0, 0), "P9: a failed register left something in the table");
}

fn undone_in_vain(reached: &Reached) {
    // setup
    let place = Place::new();
    place.world.device.fail(Call::HostDeviceAddress, ErrorKind::OutOfMemory, 0);
    place.world.device.fail(Call::HostUnregister, ErrorKind::Unknown, 0);
    // threads
    let other = spawn({
        let place = place.clone();
        move || {
            let (.., quarantined) = place.pins.census();
            (place.wrap(64).is_some(), quarantined == 0)
        }
    });
    let mine = place.wrap(64).is_some();
    // join
    let (others, early) = other.join().unwrap();
    reached.mark(if early { "the second came while the first was at it" } else { "the second came later" });
    // claim
    assert!(!mine && !others, "P9: a range was used that nobody knows whether it is registered");
    let (census, registers) = (place.pins.census(), place.world.device.count(Call::HostRegister));
    assert_eq!((census, registers), ((0, 0, 1), 1), "P1: a range is registered that the table forgot");
}

fn foreign(reached: &Reached) {
    // setup
    let place = Place::new();
    let base = HostPointer(NonNull::new(std::ptr::without_provenance_mut(BASE)).expect("the address is not zero"));
    place.world.device.register_foreign(base, 64);
    // threads
    let work = |place: &Place| {
        let pin = place.wrap(64).expect("P10: memory that others registered can be used");
        place.let_go(&pin);
        place.turn();
    };
    let other = spawn({
        let place = place.clone();
        move || work(&place)
    });
    work(&place);
    // join
    other.join().unwrap();
    // claim: the device
    place.ends();
    let tried = place.world.device.count(Call::HostRegister);
    reached.mark_if(tried == 1, "the wrap was shared");
    reached.mark_if(tried == 2, "it was borrowed twice over");
    assert_eq!(place.pins.census(), (0, 0, 0), "P5: a count was not given back");
}

fn longer_beside_let_go(reached: &Reached) {
    // setup
    let place = Place::new();
    let short = place.wrap(32).expect("nothing is registered yet");
    // threads
    let other = spawn({
        let place = place.clone();
        move || {
            place.let_go(&short);
            place.turn();
        }
    });
    let long = place.wrap(64);
    // claim
    if let Some(long) = &long {
        assert!(long.range.bytes == 64, "P2: a longer wrap shares a shorter registration");
        place.let_go(long);
    }
    // join
    other.join().unwrap();
    reached.mark_if(long.is_none(), "it was refused");
    reached.mark_if(long.is_some(), "it got a registration of its own");
    place.ends();
}

fn old_decision(reached: &Reached) {
    // setup: the decision about the shorter registration is made, and not yet carried out
    let place = Place::new();
    let stream = place.world.stream();
    let short = place.wrap(32).expect("nothing is registered yet");
    let epoch = place.pins.give_back(&short).expect("it was the only count");
    // threads
    let slow = spawn({
        let (place, short) = (place.clone(), short.clone());
        move || match place.pins.release(&place.world.context, &short, epoch, &MayWait::here().expect("no hold")) {
            Some(Ok(owner)) => owner.is_none(),
            _ => panic!("P9: a release failed though the driver accepts all"),
        }
    });
    let long = place.wrap(64).expect("P2: a longer wrap waits for a pending one");
    place.write(&stream, &long);
    place.let_go(&long);
    // join
    let void = slow.join().unwrap();
    // claim: the device, at each unregister
    reached.mark_if(void, "the old decision was void");
    place.ends();
    assert_eq!(place.world.device.registrations(), 0, "P5: a count was not given back");
}

fn owners(reached: &Reached) {
    // setup
    let place = Place::new();
    let streams = [place.world.stream(), place.world.stream()];
    // threads
    let work = |place: &Place, stream: &Arc<StreamState<Device>>| {
        let pin = place.wrap_owned(64).expect("P8: the same range is shared");
        place.write(stream, &pin);
        place.let_go(&pin);
        place.turn();
    };
    let [one, other] = streams;
    let second = spawn({
        let place = place.clone();
        move || work(&place, &other)
    });
    work(&place, &one);
    // join
    second.join().unwrap();
    // claim: the drop of each owner
    let registered = place.world.device.count(Call::HostRegister);
    reached.mark_if(registered == 1, "the registration was shared");
    reached.mark_if(registered == 2, "it was registered twice over");
    place.ends();
    assert_eq!(place.pins.census(), (0, 0, 0), "P5: a count was not given back");
}

fn failed_unregister(reached: &Reached) {
    // setup: the range is in use
    let place = Place::new();
    let pin = place.wrap_owned(64).expect("nothing is registered yet");
    place.world.device.fail(Call::HostUnregister, ErrorKind::Unknown, 0);
    // threads
    let other = spawn({
        let place = place.clone();
        move || {
            place.let_go(&pin);
            place.turn();
        }
    });
    let again = place.wrap_owned(64);
    let revived = again.is_some();
    again.iter().for_each(|pin| place.let_go(pin));
    // join
    other.join().unwrap();
    // claim: the drop of the owner, and
    place.turn();
    reached.mark_if(revived, "the wrap revived it");
    reached.mark_if(!revived, "the wrap was refused");
    assert_eq!(place.pins.census(), (0, 0, 1), "P9: a failed unregister was forgotten");
    assert_eq!(place.world.device.registrations(), 1, "P9: a range was unregistered after all");
    let told = place.world.context.take_untold();
    assert_eq!(told.len(), 1, "P9: a failed unregister was not reported once");
}

fn blocked_unregister(reached: &Reached) {
    // setup: one range is to be released, and the driver takes its time; another, and memory, are in use
    let place = Place::new();
    let (going, other) = (place.wrap_at(BASE, 64), place.wrap_at(2 * BASE, 64));
    let (going, other) = (going.expect("nothing is in the way"), other.expect("nothing is in the way"));
    place.let_go(&going);
    place.world.device.block(Call::HostUnregister);
    // threads
    let worker = spawn({
        let place = place.clone();
        move || place.turn()
    });
    place.let_go(&other);
    place.reclaim.retire(Retired { resource: Resource::Kept(Box::new(())), points: Points::new() });
    reached.mark_if(place.world.device.count(Call::HostUnregister) == 1, "the unregister was under way");
    place.world.device.unblock();
    // join
    worker.join().unwrap();
    // claim: both ended, and
    place.ends();
    assert_eq!(place.pins.census(), (0, 0, 0), "P7: a release was lost");
}
