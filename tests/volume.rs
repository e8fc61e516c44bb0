//! The volume program: so many launches and so many wraps from several threads, each accounted for at the end.
//!
//! Each thread works on a buffer of its own, which it hands from one stream to another every few launches, and wraps,
//! uses and lets go fresh host memory in between. At the end the contents say whether a launch was lost or ran twice,
//! and the tap below the runtime whether as much was given back as was taken.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::driver::{Call, Driver, HostPointer};
use tenure::{Freed, Stream};

use crate::bench::Bench;
use crate::rig::Rig;
use crate::tap::Tap;

/// Elements of a wrap: several share a page.
const ELEMENTS: usize = 64;
/// Launches on one stream before the next takes the buffer.
const HAND_OVER: u64 = 16;

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Launches of all threads, those on wraps among them.
    pub launches: u64,
    /// Wraps of all threads: each of memory of its own, launched on once.
    pub wraps: u64,
    /// Threads.
    pub threads: u64,
}

/// What reached the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Launches.
    pub launches: usize,
    /// Registrations, and as many ends of them.
    pub registrations: usize,
    /// Waits of one stream for another.
    pub edges: usize,
    /// Driver calls of the kinds that take or give back.
    pub taken: usize,
}

/// Carries the plan out and looks at what is left.
///
/// # Panics
/// When something was lost, leaked, left registered, or ran more than once.
pub fn run<B: Bench>(bench: &B, plan: Plan) -> Account {
    carry_out(Rig::working(bench), plan, &*bench.driver())
}

/// As [`run`], over a rig whose tap may have rules.
///
/// # Panics
/// As [`run`].
pub fn carry_out<D: Driver>(rig: Rig<D>, plan: Plan, driver: &D) -> Account {
    rig.tap.log.keep_counts_only();
    let launched = AtomicU64::new(0);
    let addresses: Vec<_> = std::thread::scope(|scope| {
        let (rig, launched) = (&rig, &launched);
        let threads = (0..plan.threads).map(|thread| scope.spawn(move || work(rig, share(plan, thread), launched)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread ends well")).collect()
    });
    // Relaxed: all threads have been joined.
    assert_eq!(launched.load(Ordering::Relaxed), plan.launches, "every launch of the plan was made");
    let account = settle(rig, plan);
    for address in addresses {
        let is_registered = driver.host_is_registered(address).unwrap_or(false);
        assert!(!is_registered, "P1: {address:?} is still registered");
    }
    account
}

/// What one of the threads does: what cannot be divided goes to the first.
fn share(plan: Plan, thread: u64) -> Plan {
    let part = |all: u64| all / plan.threads + if thread == 0 { all % plan.threads } else { 0 };
    Plan { launches: part(plan.launches), wraps: part(plan.wraps), threads: 1 }
}

/// The work of one thread; the addresses of some of its wraps.
fn work<D: Driver>(rig: &Rig<D>, share: Plan, launched: &AtomicU64) -> Vec<HostPointer> {
    let streams = [rig.stream(), rig.stream()];
    let mut x = rig.four(&streams[0], 0);
    let (plain, mut wrapped, mut addresses) = (share.launches.saturating_sub(share.wraps), 0, Vec::new());
    for step in 0..plain {
        let stream = &streams[(step / HAND_OVER % 2) as usize];
        rig.bump(stream, &mut x, 1).expect("a launch");
        while wrapped < share.wraps && wrapped * plain <= step * share.wraps {
            let address = wrap(rig, stream, wrapped);
            wrapped += 1;
            if wrapped.is_power_of_two() {
                addresses.push(address);
            }
        }
    }
    for _ in wrapped..share.wraps {
        addresses.push(wrap(rig, &streams[0], 0));
    }
    let bumps = u32::try_from(plain).expect("fewer launches than a word counts");
    assert_eq!(streams[1].read(&x).expect("a read"), [bumps; 4], "O1: every launch ran, once and in order");
    // Relaxed: summed up after the threads were joined.
    launched.fetch_add(plain + share.wraps, Ordering::Relaxed);
    addresses
}

/// Wraps fresh memory, launches on it, and lets it go in one of four ways.
fn wrap<D: Driver>(rig: &Rig<D>, stream: &Stream<Tap<D>>, number: u64) -> HostPointer {
    let value = number as u32;
    let mut pinned = rig.runtime.wrap(vec![value; ELEMENTS]).expect("a wrap");
    let address = NonNull::new(pinned.as_ptr().cast_mut().cast()).map(HostPointer).expect("memory has an address");
    rig.bump(stream, &mut pinned, 1).expect("a launch on a wrap");
    let written = [value.wrapping_add(1); ELEMENTS];
    match number % 4 {
        0 => drop(pinned),
        1 => assert_eq!(pinned.free(), Ok(Freed::Now), "P7: a free waits, and then it is done"),
        2 => assert_eq!(pinned.read().expect("a view")[..], written, "O3: the host sees what the device wrote"),
        _ => {
            let back: Vec<u32> = pinned.into_owner().map_err(|(error, _)| error).expect("the memory comes back");
            assert_eq!(back, written, "P3: after the device wrote it");
        }
    }
    address
}

/// Lets everything be released, ends the runtime, and compares what was taken with what was given back.
fn settle<D: Driver>(rig: Rig<D>, plan: Plan) -> Account {
    rig.drain();
    let stats = rig.runtime.stats();
    assert_eq!(stats.leaked, 0, "P7: nothing is leaked: {stats:?}");
    assert_eq!(stats.retired, stats.released, "P7: everything let go is released once: {stats:?}");
    assert_eq!((stats.pins_live, stats.pins_quarantined), (0, 0), "P5: no registration is left: {stats:?}");
    let tap = rig.tap.clone();
    rig.close();
    assert_eq!(tap.log.failed(), 0, "R7: no driver call failed, in a release least of all");
    let count = |call| tap.log.count(call);
    let mut taken = 0;
    for (take, give) in [
        (Call::MallocAsync, Call::FreeAsync),
        (Call::Malloc, Call::Free),
        (Call::HostAlloc, Call::HostFree),
        (Call::HostRegister, Call::HostUnregister),
        (Call::StreamCreate, Call::StreamDestroy),
        (Call::EventCreate, Call::EventDestroy),
        (Call::ModuleLoad, Call::ModuleUnload),
    ] {
        assert_eq!(count(take), count(give), "R5: as many of {take} as of {give}");
        taken += count(take) + count(give);
    }
    assert_eq!(count(Call::Launch) as u64, plan.launches, "every launch reached the driver, once");
    assert_eq!(count(Call::HostRegister) as u64, plan.wraps, "P5: a registration a wrap");
    let (launches, registrations) = (count(Call::Launch), count(Call::HostRegister));
    Account { launches, registrations, edges: count(Call::StreamWaitEvent), taken }
}
