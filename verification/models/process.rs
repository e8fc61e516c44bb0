//! Registrations of the process: claims of two runtimes, owners that wraps share, code of others, and scopes: P3 to P5, P7,
//! P9, P13 to P15.
//!
//! Over the whole runtime. Two runtimes on one device are of one process. What they use at the same time they only read: the order
//! of their work is their users' matter.

use std::ptr::NonNull;
use std::time::Duration;

use super::capture::{buffers, drain, manual};
use super::checker::spawn;
use super::device::Device;
use super::tenure::driver::{Call, Capabilities, ErrorKind, HostPointer};
use super::tenure::error::{Error, PinError};
use super::tenure::{Config, Freed, HostMemory, Pinned, Queue, ReclaimMode, Runtime};
use super::{Model, Reached};
use crate::schedule;

/// Where the memory of the models is said to lie.
const BASE: usize = 0x50_0000;
/// How much it is.
const BYTES: usize = 64;

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "p13_two_runtimes_wrap_one_range",
        claim: "Two runtimes that wrap, read and let go one range register it once at a time, and the last claim undoes it, after \
                the work of both.",
        lines: &["P13", "P14", "P3"],
        operations: "1 wrap, 1 copy from it, 1 drop and 1 turn each, each of its own runtime",
        bound: Some(2),
        reaches: &["the registration was shared", "it was registered twice over"],
        body: two_runtimes,
        ..Model::USUAL
    },
    Model {
        name: "p4_owner_stays_with_the_last_claim",
        claim: "The owner of a claim that is given up first stays until the last claim has undone the registration.",
        lines: &["P4", "P13"],
        operations: "1 drop and 1 turn each, each of its own runtime",
        bound: Some(2),
        reaches: &["the first runtime was the last", "the second runtime was the last"],
        body: owners_of_claims,
        ..Model::USUAL
    },
    Model {
        name: "p13_owner_wanted_back_beside_a_claim",
        claim: "Who wants its owner back gets it once nothing is registered any more, or is told that another runtime has a claim.",
        lines: &["P13", "P14", "P4"],
        operations: "1 copy and 1 call for the owner; 1 copy, 1 drop and 1 turn of another runtime",
        bound: Some(2),
        reaches: &["the owner came back", "the other claim kept it"],
        body: owner_beside_a_claim,
        ..Model::USUAL
    },
    Model {
        name: "p14_foreign_unregister_beside_a_turn",
        claim: "A stranger's registration that nobody has a count on and that ends meanwhile is not taken to be there by a later wrap.",
        lines: &["P14", "P10"],
        operations: "1 end of a registration by other code, 1 wrap and 1 copy; 1 turn",
        reaches: &["the claim was still pending", "the claim had gone"],
        body: foreign_unregister,
        ..Model::USUAL
    },
    Model {
        name: "p4_own_owner_wanted_back_beside_a_drop",
        claim: "The owner of a wrap that shares a registration comes back after the work on its memory, whoever else lets go.",
        lines: &["P4", "P5"],
        operations: "1 call for the owner, after a write; 1 drop of the other wrap and 1 turn",
        bound: Some(2),
        reaches: &["the wrap was not the last", "the wrap was the last"],
        body: own_owner_back,
        ..Model::USUAL
    },
    Model {
        name: "p4_own_owner_outlives_the_work",
        claim: "The owner of a wrap that ends before another of its range goes after the work on its memory, beside turns.",
        lines: &["P4", "R4"],
        operations: "1 drop of a wrap with work behind it; 1 turn",
        reaches: &["the turn came before the drop", "the turn came after the drop"],
        body: own_owner_let_go,
        ..Model::USUAL
    },
    Model {
        name: "p3_free_waits_for_reads",
        claim: "A free waits for work that only reads the memory, through any wrap of it.",
        lines: &["P3", "P7"],
        operations: "1 copy from a wrap and 1 drop of it; 1 free of another wrap",
        bound: Some(2),
        reaches: &["it was freed at once", "it was deferred"],
        body: free_beside_reads,
        ..Model::USUAL
    },
    Model {
        name: "p15_wrap_to_write_beside_wrap_to_read",
        claim: "What is registered to be read is never written by the device: who wants to write is refused, or gets a registration \
                of its own.",
        lines: &["P15", "P2"],
        operations: "1 wrap to read, 1 copy and 1 drop; 1 wrap to write and 1 fill",
        bound: Some(2),
        reaches: &["it was refused", "it was written"],
        body: write_beside_read,
        ..Model::USUAL
    },
    Model {
        name: "p7_shared_memory_is_kept_once",
        claim: "However often two threads wrap and let go shared memory, one owner of it is kept, one ticket is queued, and it is \
                registered to be read.",
        lines: &["P7", "P15", "P5"],
        operations: "1 wrap and 1 drop each, and nobody polls",
        reaches: &["the registration was shared"],
        body: shared_memory,
        ..Model::USUAL
    },
    Model {
        name: "p1_look_up_beside_two_wraps",
        claim: "Look-ups see what was wrapped before them and nothing that is unregistered, whatever changes beside it.",
        lines: &["P1"],
        operations: "1 wrap each, of its own range; then 1 free and 1 turn",
        reaches: &["both were wrapped"],
        body: look_ups,
        ..Model::USUAL
    },
    Model {
        name: "p4_scope_beside_a_longer_registration",
        claim: "A scope that shares a registration which lives longer, or not, ends after its own work, reads too.",
        lines: &["P4", "P3"],
        operations: "1 scope with 1 copy from what it wraps; 1 drop of a longer wrap and 1 turn",
        bound: Some(2),
        reaches: &["the longer wrap was the last", "the scope was the last"],
        body: scope_beside_longer,
        ..Model::USUAL
    },
    Model {
        name: "p9_scope_ends_all_its_wraps",
        claim: "A scope whose first unregister fails says so, and ends its other wraps all the same, beside turns.",
        lines: &["P9", "P4", "R7"],
        operations: "1 scope with 2 wraps, the unregister of 1 fails; 1 drop and 1 turn",
        bound: Some(2),
        reaches: &["the second was undone"],
        body: failing_scope,
        ..Model::USUAL
    },
    Model {
        name: "p4_scope_beside_the_end",
        claim: "A scope beside a shutdown and a capture ends only when its memory is registered no more.",
        lines: &["P4", "R8", "R9"],
        operations: "1 scope with 1 fill; 1 shutdown, then the end of a capture of other code",
        bound: Some(2),
        reaches: &["the fill was taken", "the runtime was closed before"],
        body: scope_beside_the_end,
        ..Model::USUAL
    },
];

/// When what keeps memory may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// After the work on the memory.
    Unused,
    /// After that, and after the registration.
    Unregistered,
}

/// What keeps the memory of a model. Its end says whether that was too early.
#[derive(Debug)]
struct Memory {
    device: Device,
    until: Until,
}

// SAFETY: P4. Nobody ever touches the memory: the device of the models has none.
unsafe impl HostMemory for Memory {
    type Item = u8;

    fn range(&mut self) -> (NonNull<u8>, usize) {
        (start(BASE), BYTES)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if schedule::is_over() {
            return;
        }
        match self.until {
            Until::Unregistered => self.device.host_memory_ends(BASE, BYTES),
            Until::Unused => {
                self.device.host_unused(BASE, BYTES, "P4: an owner went while work on its memory may still run")
            }
        }
    }
}

fn start(base: usize) -> NonNull<u8> {
    NonNull::new(std::ptr::without_provenance_mut(base)).expect("the address is not zero")
}

/// A second runtime on the device.
fn second(device: &Device) -> Runtime<Device> {
    let config = Config::default().reclaim(ReclaimMode::Manual);
    Runtime::with(device.clone(), config).expect("a runtime can be made")
}

fn wrap(runtime: &Runtime<Device>, device: &Device, until: Until) -> Pinned<u8, Device> {
    let wrapped = runtime.wrap(Memory { device: device.clone(), until });
    wrapped.map_err(|failed| failed.error).expect("nothing is in the way")
}

fn wrap_raw(runtime: &Runtime<Device>, base: usize) -> Result<Pinned<u8, Device>, Error> {
    // SAFETY: P4. Nobody ever touches the memory: the device of the models has none.
    unsafe { runtime.wrap_raw(start(base), BYTES) }
}

fn two_runtimes(reached: &Reached) {
    // setup
    let (device, ours) = manual(Capabilities::default());
    let theirs = second(&device);
    let ([our_stream, their_stream], [mut our_buffer, mut their_buffer]) = {
        let (one, [first]) = buffers(&ours);
        let (other, [second]) = buffers(&theirs);
        ([one, other], [first, second])
    };
    // threads
    let other = spawn(move || {
        let pinned = wrap_raw(&theirs, BASE).expect("P13: what another runtime has registered is shared");
        their_stream.copy(&pinned, &mut their_buffer).expect("the driver accepts all");
        drop(pinned);
        theirs.poll();
        (theirs, their_stream, their_buffer)
    });
    let pinned = wrap_raw(&ours, BASE).expect("P13: what another runtime has registered is shared");
    our_stream.copy(&pinned, &mut our_buffer).expect("the driver accepts all");
    drop(pinned);
    ours.poll();
    // join
    let (theirs, their_stream, their_buffer) = other.join().unwrap();
    // claim: the device, and
    drain(&ours);
    drain(&theirs);
    let registered = device.count(Call::HostRegister);
    reached.mark_if(registered == 1, "the registration was shared");
    reached.mark_if(registered == 2, "it was registered twice over");
    assert_eq!(device.count(Call::HostUnregister), registered, "P13: the last claim did not undo the registration");
    drop((our_stream, our_buffer, their_stream, their_buffer));
}

fn owners_of_claims(reached: &Reached) {
    // setup
    let (device, ours) = manual(Capabilities::default());
    let theirs = second(&device);
    let (our_pin, their_pin) = (wrap(&ours, &device, Until::Unregistered), wrap(&theirs, &device, Until::Unregistered));
    // threads
    let other = spawn({
        let device = device.clone();
        move || {
            drop(their_pin);
            theirs.poll();
            (theirs, device.count(Call::HostUnregister) == 0)
        }
    });
    drop(our_pin);
    ours.poll();
    let first = device.count(Call::HostUnregister) == 0;
    // join
    let (theirs, other_first) = other.join().unwrap();
    // claim: the drop of each owner, and
    reached.mark_if(other_first && !first, "the first runtime was the last");
    reached.mark_if(first && !other_first, "the second runtime was the last");
    drain(&ours);
    drain(&theirs);
    assert_eq!(device.count(Call::HostUnregister), 1, "P13: the last claim did not undo the registration");
}

fn owner_beside_a_claim(reached: &Reached) {
    // setup
    let (device, ours) = manual(Capabilities::default());
    let theirs = second(&device);
    let (our_stream, [mut our_buffer]) = buffers(&ours);
    let (their_stream, [mut their_buffer]) = buffers(&theirs);
    let our_pin = wrap(&ours, &device, Until::Unregistered);
    let their_pin = wrap_raw(&theirs, BASE).expect("P13: what another runtime has registered is shared");
    our_stream.copy(&our_pin, &mut our_buffer).expect("the driver accepts all");
    their_stream.copy(&their_pin, &mut their_buffer).expect("the driver accepts all");
    // threads
    let other = spawn(move || {
        drop(their_pin);
        drop((their_stream, their_buffer));
        drain(&theirs);
        theirs
    });
    let owner = our_pin.into_owner::<Memory>();
    // claim: the drop of the owner, and
    reached.mark_if(owner.is_ok(), "the owner came back");
    if let Err((error, _back)) = &owner {
        assert_eq!(*error, Error::Pin(PinError::Shared), "P13: an owner is refused otherwise");
        // The wrap comes back where it has not ended.
        reached.mark("the other claim kept it");
    }
    drop(owner);
    // join
    let theirs = other.join().unwrap();
    drop((our_stream, our_buffer));
    drain(&ours);
    drain(&theirs);
    assert_eq!(device.count(Call::HostUnregister), 1, "P13: the last claim did not undo the registration");
}

fn foreign_unregister(reached: &Reached) {
    // setup: other code registered the memory; a wrap of it has ended
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    device.register_foreign(HostPointer(start(BASE)), BYTES as u64);
    let pinned = wrap_raw(&runtime, BASE).expect("P10: memory that others registered can be used");
    stream.copy(&pinned, &mut buffer).expect("the driver accepts all");
    stream.synchronize().expect("the driver accepts all");
    drop(pinned);
    let asked = device.count(Call::HostIsRegistered);
    // threads
    let other = spawn({
        let runtime = runtime.clone();
        move || runtime.poll()
    });
    device.unregister_foreign(HostPointer(start(BASE)));
    let again = wrap_raw(&runtime, BASE).expect("nothing is in the way");
    stream.copy(&again, &mut buffer).expect("the driver accepts all");
    // join
    other.join().unwrap();
    // claim: the device, and
    let is_asked = device.count(Call::HostIsRegistered) > asked;
    reached.mark(if is_asked { "the claim was still pending" } else { "the claim had gone" });
    assert_eq!(device.registrations(), 1, "P14: what a stranger registered, and ended, is taken to be there");
    drop(again);
    drop((stream, buffer));
    drain(&runtime);
    assert_eq!(device.registrations(), 0, "P5: a count was not given back");
}

fn own_owner_back(reached: &Reached) {
    // setup: two wraps of one range, each with an owner, and work through the second
    let (device, runtime) = manual(Capabilities::default());
    let stream = runtime.stream().expect("the pool may make streams");
    let (first, mut second) = (wrap(&runtime, &device, Until::Unused), wrap(&runtime, &device, Until::Unused));
    stream.fill(&mut second, 7).expect("the driver accepts all");
    // threads
    let other = spawn({
        let runtime = runtime.clone();
        move || {
            drop(first);
            runtime.poll();
        }
    });
    let owner = second.into_owner::<Memory>().map_err(|(error, _)| error);
    // claim
    device.host_unused(BASE, BYTES, "P4: an owner was given back while work on its memory may still run");
    let undone = device.count(Call::HostUnregister);
    drop(owner.expect("P4: an owner of its own was not given back"));
    // join
    other.join().unwrap();
    reached.mark_if(undone == 0, "the wrap was not the last");
    reached.mark_if(undone == 1, "the wrap was the last");
    drain(&runtime);
    assert_eq!(device.registrations(), 0, "P5: a count was not given back");
    drop(stream);
}

fn own_owner_let_go(reached: &Reached) {
    // setup: two wraps of one range, each with an owner, and work through the second
    let (device, runtime) = manual(Capabilities::default());
    let stream = runtime.stream().expect("the pool may make streams");
    let (first, mut second) = (wrap(&runtime, &device, Until::Unused), wrap(&runtime, &device, Until::Unused));
    stream.fill(&mut second, 7).expect("the driver accepts all");
    // threads
    let other = spawn({
        let runtime = runtime.clone();
        move || runtime.poll()
    });
    drop(second);
    // join
    other.join().unwrap();
    // claim: the drop of the owner, and
    reached.mark_if(runtime.retired_pending() > 0, "the turn came before the drop");
    reached.mark_if(runtime.retired_pending() == 0, "the turn came after the drop");
    drain(&runtime);
    drop(first);
    drain(&runtime);
    assert_eq!(device.registrations(), 0, "P5: a count was not given back");
    drop(stream);
}

fn free_beside_reads(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    let [one, other] = [BASE, BASE].map(|base| wrap_raw(&runtime, base).expect("P8: the same range is shared"));
    // threads
    let reader = spawn(move || {
        stream.copy(&one, &mut buffer).expect("the driver accepts all");
        drop(one);
        (stream, buffer)
    });
    let freed = other.free().expect("the driver accepts all");
    // claim: the device, and
    reached.mark_if(freed == Freed::Now, "it was freed at once");
    reached.mark_if(freed == Freed::Deferred, "it was deferred");
    if freed == Freed::Now {
        device.host_memory_ends(BASE, BYTES);
    }
    // join
    drop(reader.join().unwrap());
    drain(&runtime);
    assert_eq!(device.registrations(), 0, "P5: a count was not given back");
}

fn write_beside_read(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    let other = runtime.stream().expect("the pool may make streams");
    // threads
    let writer = spawn({
        let runtime = runtime.clone();
        move || {
            let outcome = wrap_raw(&runtime, BASE).and_then(|mut pinned| other.fill(&mut pinned, 7));
            drop(other);
            outcome
        }
    });
    let pinned = runtime.wrap_read_only(Memory { device: device.clone(), until: Until::Unused });
    let pinned = pinned.map_err(|failed| failed.error).expect("P15: memory that can be written can be read");
    stream.copy(&*pinned, &mut buffer).expect("the driver accepts all");
    drop(pinned);
    // join
    let written = writer.join().unwrap();
    // claim: the device, at each launch, and
    let refused = Err(Error::Pin(PinError::ReadOnly));
    assert!(written.is_ok() || written == refused, "P15: a wrap to write is refused otherwise: {written:?}");
    reached.mark(if written.is_ok() { "it was written" } else { "it was refused" });
    drop((stream, buffer));
    drain(&runtime);
    assert_eq!(device.registrations(), 0, "P5: a count was not given back");
}

fn shared_memory(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let memory: std::sync::Arc<[u8]> = std::sync::Arc::from([7_u8; BYTES]);
    device.only_read(memory.as_ptr().addr(), BYTES);
    // threads
    let work = |runtime: &Runtime<Device>, memory: &std::sync::Arc<[u8]>| {
        let shared = runtime.wrap_shared(memory.clone());
        drop(shared.map_err(|failed| failed.error).expect("P8: the same range is shared"));
    };
    let other = spawn({
        let (runtime, memory) = (runtime.clone(), memory.clone());
        move || work(&runtime, &memory)
    });
    work(&runtime, &memory);
    // join
    other.join().unwrap();
    // claim: the device, and
    let kept = std::sync::Arc::strong_count(&memory) - 1;
    assert_eq!(kept, 1, "P7: owners of one range pile up");
    assert_eq!(runtime.retired_pending(), 1, "P7: tickets of one range pile up");
    reached.mark_if(device.count(Call::HostRegister) == 1, "the registration was shared");
    drain(&runtime);
    assert_eq!(std::sync::Arc::strong_count(&memory), 1, "P7: an owner was lost");
    assert_eq!(device.registrations(), 0, "P5: a count was not given back");
}

fn look_ups(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    // threads
    let other = spawn({
        let runtime = runtime.clone();
        move || wrap_raw(&runtime, 2 * BASE).expect("nothing is in the way")
    });
    let mine = wrap_raw(&runtime, BASE).expect("nothing is in the way");
    assert!(runtime.is_pinned(mine.as_ptr()), "P1: a look-up does not see what was wrapped before");
    // join
    let theirs = other.join().unwrap();
    // claim
    let pinned = [&mine, &theirs].map(|pinned| runtime.is_pinned(pinned.as_ptr()));
    assert_eq!(pinned, [true; 2], "P1: a look-up does not see what was wrapped before");
    reached.mark_if(device.count(Call::HostRegister) == 2, "both were wrapped");
    let place = mine.as_ptr();
    assert_eq!(mine.free(), Ok(Freed::Now), "nobody else has it");
    assert!(!runtime.is_pinned(place), "P1: a look-up sees what is unregistered");
    drop(theirs);
    drain(&runtime);
    assert!(!runtime.is_pinned(start(2 * BASE).as_ptr()), "P1: a look-up sees what is unregistered");
}

fn scope_beside_longer(reached: &Reached) {
    // setup: all of the memory is wrapped, and stays so
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut buffer]) = buffers(&runtime);
    let mut memory = vec![0_u8; 2 * BYTES];
    let base = memory.as_ptr().addr();
    // SAFETY: P4. The memory lives until the end of the model.
    let longer = unsafe { runtime.wrap_raw(NonNull::from(&mut *memory).cast::<u8>(), 2 * BYTES) };
    let longer = longer.expect("nothing is in the way");
    // threads
    let other = spawn({
        let runtime = runtime.clone();
        move || {
            drop(longer);
            runtime.poll();
        }
    });
    let (part, _) = memory.split_at_mut(BYTES);
    let ended = runtime.scope(|scope| {
        let pinned = scope.wrap(part)?;
        stream.copy(&pinned, &mut buffer)
    });
    // claim
    assert_eq!(ended, Ok(()), "P8: a part of a registration is shared");
    device.host_unused(base, BYTES, "P4: a scope ended while work on its memory may still run");
    let undone = device.registrations() == 0;
    // join
    other.join().unwrap();
    reached.mark_if(undone, "the scope was the last");
    reached.mark_if(!undone, "the longer wrap was the last");
    drop((stream, buffer));
    drain(&runtime);
    assert_eq!(device.registrations(), 0, "P5: a count was not given back");
}

fn failing_scope(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [buffer]) = buffers(&runtime);
    let mut memory = [vec![0_u8; BYTES], vec![0_u8; BYTES]];
    let bases = memory.each_ref().map(|memory| memory.as_ptr().addr());
    device.fail(Call::HostUnregister, ErrorKind::Unknown, 0);
    // threads
    let other = spawn({
        let runtime = runtime.clone();
        move || {
            drop(buffer);
            runtime.poll();
        }
    });
    let [one, two] = &mut memory;
    let ended = runtime.scope(|scope| {
        let (mut one, mut two) = (scope.wrap(one)?, scope.wrap(two)?);
        stream.fill(&mut one, 7)?;
        stream.fill(&mut two, 7)
    });
    // claim
    let failed = ended.as_ref().err().and_then(Error::failure).map(|failure| failure.call);
    assert_eq!(failed, Some(Call::HostUnregister), "P9: a scope does not say what it could not undo");
    device.host_unused(bases[0], BYTES, "P4: a scope ended while work on its memory may still run");
    device.host_memory_ends(bases[1], BYTES);
    reached.mark("the second was undone");
    // join
    other.join().unwrap();
    drop(stream);
    drain(&runtime);
}

fn scope_beside_the_end(reached: &Reached) {
    // setup: a driver whose guarded calls wait for captures, and a capture of other code
    let mut capabilities = Capabilities::default();
    capabilities.relaxed_protects = false;
    let (device, runtime) = manual(capabilities);
    let stream = runtime.stream().expect("the pool may make streams");
    let mut memory = vec![0_u8; BYTES];
    let base = memory.as_ptr().addr();
    // threads
    let other = spawn({
        let runtime = runtime.clone();
        move || {
            let guard = runtime.capture_guard();
            runtime.shutdown(Duration::ZERO);
            drop(guard);
        }
    });
    let ended = runtime.scope(|scope| {
        let mut pinned = scope.wrap(&mut memory)?;
        stream.fill(&mut pinned, 7)
    });
    // claim: the end of the memory
    device.host_memory_ends(base, BYTES);
    reached.mark_if(ended.is_ok(), "the fill was taken");
    reached.mark_if(ended == Err(Error::Closed), "the runtime was closed before");
    // join
    other.join().unwrap();
    drop((stream, runtime));
}
