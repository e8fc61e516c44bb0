//! Other designs of the same bookkeeping, each as lean as its idea allows.
//!
//! All of them launch the quoted shape over the same null driver, with the arguments packed by hand; what they take
//! beyond [`bed::raw_three`](crate::bed::raw_three) is their bookkeeping. All know one stream of the launching task, as
//! a number.
//!
//! | rival | seen in | what it gets wrong |
//! |---|---|---|
//! | [`locked`](Rivals::locked) | AMDGPU.jl before 2025, CUDA.jl | nothing in the order of work; one lock a buffer, and a collection each launch |
//! | [`locked_in_place`](Rivals::locked_in_place) | the same, without the collection's allocation | as above |
//! | [`unlocked`](Rivals::unlocked) | AMDGPU.jl now | between taking a buffer and enqueueing, another task may take it and believe the stream covers it (O4) |
//! | [`event_per_argument`](Rivals::event_per_argument) | cudarc | one event cannot remember two readers (O9); a driver call or two an argument |
//! | [`loads`] | the floor | it decides nothing |

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tenure::driver::{Driver, Timing};

use crate::bed::{Bed, infallible, raw_three};
use crate::null::Handle;

/// A buffer under a lock of its own.
#[derive(Debug)]
struct Locked {
    address: u64,
    owner: Mutex<Owner>,
}

#[derive(Debug)]
struct Owner {
    stream: u64,
    dirty: bool,
}

/// A buffer whose owner is looked at without a lock.
#[derive(Debug)]
struct Unlocked {
    address: u64,
    stream: AtomicU64,
    dirty: AtomicBool,
}

/// A buffer with an event of its last use.
#[derive(Debug)]
struct Evented {
    address: u64,
    event: Handle,
}

/// The rivals' buffers, three of each.
#[derive(Debug)]
pub struct Rivals {
    stream: u64,
    locked: [Box<Locked>; 3],
    unlocked: [Box<Unlocked>; 3],
    evented: [Box<Evented>; 3],
}

impl Rivals {
    /// Buffers that stream 1 owns.
    pub fn new(bed: &Bed) -> Self {
        let address = |index: usize| 0x1000 * (index as u64 + 1);
        Self {
            stream: 1,
            locked: std::array::from_fn(|index| {
                let owner = Mutex::new(Owner { stream: 1, dirty: false });
                Box::new(Locked { address: address(index), owner })
            }),
            unlocked: std::array::from_fn(|index| {
                let (stream, dirty) = (AtomicU64::new(1), AtomicBool::new(false));
                Box::new(Unlocked { address: address(index), stream, dirty })
            }),
            evented: std::array::from_fn(|index| {
                let event = infallible(bed.driver.event_create(Timing::Disabled));
                Box::new(Evented { address: address(index), event })
            }),
        }
    }

    /// Collect, sort, drop duplicates, lock each, transfer each, launch, unlock; the collection is allocated.
    pub fn locked(&self, bed: &Bed) {
        let mut collected: Vec<&Locked> = Vec::with_capacity(3);
        collected.extend(self.locked.iter().map(|buffer| &**buffer));
        collected.sort_unstable_by_key(|buffer| buffer.address);
        collected.dedup_by_key(|buffer| buffer.address);
        let mut held: Vec<MutexGuard<'_, Owner>> = Vec::with_capacity(collected.len());
        held.extend(collected.iter().map(|buffer| buffer.owner.lock()));
        held.iter_mut().for_each(|owner| self.take_over(owner));
        raw_three(bed, &[0, 1, 2].map(|index| self.locked[index].address));
    }

    /// The same without an allocation: as many places as there are arguments, known when the launch is compiled.
    pub fn locked_in_place(&self, bed: &Bed) {
        let mut collected = self.locked.each_ref().map(|buffer| &**buffer);
        collected.sort_unstable_by_key(|buffer| buffer.address);
        let is_new = |index: usize| index == 0 || collected[index - 1].address != collected[index].address;
        let mut held = [0, 1, 2].map(|index| is_new(index).then(|| collected[index].owner.lock()));
        held.iter_mut().flatten().for_each(|owner| self.take_over(owner));
        raw_three(bed, &[0, 1, 2].map(|index| self.locked[index].address));
    }

    fn take_over(&self, owner: &mut Owner) {
        if owner.stream != self.stream {
            elsewhere();
            owner.stream = self.stream;
        }
        owner.dirty = true;
    }

    /// Each argument is transferred while it is converted, without a lock.
    pub fn unlocked(&self, bed: &Bed) {
        let addresses = [0, 1, 2].map(|index| {
            let buffer = &*self.unlocked[index];
            // Relaxed, as the plain fields of the original are at best.
            if buffer.stream.load(Ordering::Relaxed) != self.stream {
                elsewhere();
                buffer.stream.store(self.stream, Ordering::Relaxed);
            }
            buffer.dirty.store(true, Ordering::Relaxed);
            buffer.address
        });
        raw_three(bed, &addresses);
    }

    /// Waits for the event of each argument, launches, and records each event anew. The driver's costs decide.
    pub fn event_per_argument(&self, bed: &Bed) {
        for buffer in &self.evented {
            infallible(bed.driver.stream_wait_event(&bed.raw_stream, &buffer.event));
        }
        raw_three(bed, &[0, 1, 2].map(|index| self.evented[index].address));
        for buffer in &self.evented {
            infallible(bed.driver.event_record(&buffer.event, &bed.raw_stream));
        }
    }
}

/// Where a rival would order two streams: never reached, since the benchmarks stay on one.
#[cold]
#[inline(never)]
fn elsewhere() {
    black_box(());
}

/// One relaxed load of each of `words`.
#[inline(never)]
pub fn loads(words: &[&AtomicU64]) -> u64 {
    // Relaxed: a floor, not a protocol.
    words.iter().map(|word| word.load(Ordering::Relaxed)).fold(0, |sum, value| sum ^ value)
}

/// A lock, for its uncontended price.
#[derive(Debug, Default)]
pub struct Lock(Mutex<u64>);

impl Lock {
    /// Takes it and lets it go.
    #[inline]
    pub fn pass(&self) {
        *self.0.lock() += 1;
    }
}

/// A word, for the uncontended price of one compare-and-swap.
#[derive(Debug, Default)]
pub struct Word(AtomicU64);

impl Word {
    /// Adds one by compare-and-swap.
    #[inline]
    pub fn pass(&self) {
        // AcqRel: the price asked for is that of a lock's word. One thread only, so it succeeds.
        let value = self.0.load(Ordering::Relaxed);
        let swapped = self.0.compare_exchange(value, value + 1, Ordering::AcqRel, Ordering::Relaxed);
        debug_assert!(swapped.is_ok(), "nobody else has this word");
    }
}
