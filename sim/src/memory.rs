//! The simulated device's memory: slots of real bytes behind addresses that no host pointer equals.
//!
//! Every allocation lies in a *slot*, a stripe of the address space of its own, so that an access past an end never
//! falls into a neighbour. Slots are handed out again as [`Reuse`] says: the same address with another content is what
//! finds code that takes an address for an identity (O7), and one that nobody has again is what finds its late use. A slot has two sides, since stream-ordered memory
//! changes hands on the host before it does on the device:
//!
//! | side | changes at | answers |
//! |---|---|---|
//! | `named` | the call | may this address be freed, and how |
//! | `state` | the operation, when it runs | may this access happen |
//!
//! New and freed memory is filled with a pattern each; large memory where it is touched, so that what is only reserved
//! costs nothing. What was written is kept as a few ranges an allocation, so that
//! reading what nobody wrote can be told.

use std::collections::VecDeque;

use smallvec::SmallVec;
use tenure::driver::DeviceAddress;

use crate::event::{AllocationId, BadAccess};

/// Fills new device memory.
pub const UNINITIALISED: u8 = 0xC5;
/// Fills freed device memory.
pub const FREED: u8 = 0xDF;

/// Larger blocks get their pattern chunk by chunk, as they are touched.
const LARGE: u64 = 1 << 18;
const CHUNK: u64 = 1 << 16;

const DEVICE_BASE: u64 = 1 << 62;
const ALIAS_BASE: u64 = 1 << 61;
const STRIPE_BITS: u32 = 38;
const STRIPE_MASK: u64 = (1 << STRIPE_BITS) - 1;

/// In which order what was given back is handed out again: addresses, and values of handles.
///
/// A program that goes on using what it gave back is seen where nobody has it yet, and one that takes a value for an
/// identity where somebody has (O7). So schedules differ in this, by their seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// What was given back last comes first.
    #[default]
    LastFreed,
    /// What was given back first comes first.
    OldestFreed,
    /// New values, as long as there are some.
    Withheld,
}

impl Reuse {
    /// The order that a seed means, apart from how it schedules.
    pub fn of_seed(seed: u64) -> Self {
        match (seed ^ (seed >> 2)) % 3 {
            0 => Self::LastFreed,
            1 => Self::Withheld,
            _ => Self::OldestFreed,
        }
    }
}

/// Numbers that were given back, in that order.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    numbers: VecDeque<u32>,
    reuse: Reuse,
}

impl Freed {
    pub(crate) fn set_reuse(&mut self, reuse: Reuse) {
        self.reuse = reuse;
    }

    pub(crate) fn is_withheld(&self) -> bool {
        self.reuse == Reuse::Withheld
    }

    pub(crate) fn give_back(&mut self, number: u32) {
        self.numbers.push_back(number);
    }

    /// A number to use again, if one is to be.
    pub(crate) fn take(&mut self) -> Option<u32> {
        match self.reuse {
            Reuse::LastFreed => self.numbers.pop_back(),
            Reuse::OldestFreed => self.numbers.pop_front(),
            Reuse::Withheld if self.numbers.len() > WITHHELD_MAX => self.numbers.pop_front(),
            Reuse::Withheld => None,
        }
    }
}

/// How many numbers are withheld before the oldest is used again after all.
pub(crate) const WITHHELD_MAX: usize = 4096;

/// Bytes, aligned for every element type.
#[derive(Clone, Debug, Default)]
pub struct Block {
    words: Vec<u128>,
    bytes: usize,
}

impl Block {
    /// `bytes` bytes of `value`.
    pub fn new(bytes: usize, value: u8) -> Self {
        Self { words: vec![word_of(value); bytes.div_ceil(16)], bytes }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    /// Its bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }

    /// `bytes` bytes of zero, which cost nothing before they are touched.
    fn untouched(bytes: usize) -> Self {
        Self { words: vec![0; bytes.div_ceil(16)], bytes }
    }

    fn refill(&mut self, bytes: usize, value: u8) {
        self.words.clear();
        self.words.resize(bytes.div_ceil(16), word_of(value));
        self.bytes = bytes;
    }
}

fn word_of(value: u8) -> u128 {
    u128::from_ne_bytes([value; 16])
}

/// Where a device address points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Into device memory.
    Device {
        /// The slot.
        slot: u32,
        /// Bytes from its begin.
        offset: u64,
    },
    /// Into host memory, through the alias of this registration slot.
    Alias {
        /// The slot in the table of registrations.
        slot: u32,
        /// Bytes from the alias's stripe's begin.
        offset: u64,
    },
    /// Nowhere.
    Wild,
}

/// Takes an address apart.
pub fn place(address: DeviceAddress) -> Place {
    let DeviceAddress(value) = address;
    let stripe = |base: u64| u32::try_from((value - base) >> STRIPE_BITS).unwrap_or(u32::MAX);
    if value >= DEVICE_BASE {
        Place::Device { slot: stripe(DEVICE_BASE), offset: value & STRIPE_MASK }
    } else if value >= ALIAS_BASE {
        Place::Alias { slot: stripe(ALIAS_BASE), offset: value & STRIPE_MASK }
    } else {
        Place::Wild
    }
}

/// The device's address of host memory at `base` in a registration slot: aligned as the host's within a page.
pub fn alias(slot: u32, base: usize) -> DeviceAddress {
    DeviceAddress(ALIAS_BASE + (u64::from(slot) << STRIPE_BITS) + (base & 0xfff) as u64)
}

fn address(slot: u32) -> DeviceAddress {
    DeviceAddress(DEVICE_BASE + (u64::from(slot) << STRIPE_BITS))
}

/// What a free call may do with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The allocation. Memory of a graph has a new one at each launch.
    pub allocation: AllocationId,
    /// How long it is.
    pub bytes: u64,
    /// How it came about.
    pub origin: Origin,
}

/// Which kind of call allocated memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A plain one.
    Plain,
    /// One in the order of a stream.
    Ordered,
    /// A node of a graph; live from its launch to its free.
    Graph,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Empty,
    Live {
        allocation: AllocationId,
        bytes: u64,
    },
    Freed,
    /// The device was reset.
    Ended,
}

#[derive(Debug)]
struct Slot {
    block: Block,
    /// Of a large block: which chunks have got the pattern of new memory, one bit each. Empty for a small one, which has
    /// it from the start.
    prepared: Vec<u64>,
    state: State,
    written: Written,
    named: Option<Named>,
    kept_for_graph: bool,
}

/// All device memory.
#[derive(Debug)]
pub struct DeviceMemory {
    slots: Vec<Slot>,
    free: Freed,
    named_bytes: u64,
    limit: u64,
}

impl DeviceMemory {
    /// Empty memory of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { slots: Vec::new(), free: Freed::default(), named_bytes: 0, limit }
    }

    /// Says in which order slots are handed out again.
    pub fn set_reuse(&mut self, reuse: Reuse) {
        self.free.set_reuse(reuse);
    }

    /// Changes how much there is; what is allocated stays.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Bytes that are allocated as the host sees it, and how many there are.
    pub fn usage(&self) -> (u64, u64) {
        (self.named_bytes, self.limit)
    }

    /// How many allocations are live as the host sees it.
    pub fn live(&self) -> usize {
        self.slots.iter().filter(|slot| slot.named.is_some()).count()
    }

    /// Names `bytes` bytes, in `reuse` if given, else in a slot that was given back, if one is to be used again. `None`:
    /// out of memory.
    pub fn name(&mut self, named: Named, reuse: Option<u32>) -> Option<(u32, DeviceAddress)> {
        if named.bytes > STRIPE_MASK || self.named_bytes.saturating_add(named.bytes) > self.limit {
            return None;
        }
        let slot = reuse.or_else(|| self.free.take()).unwrap_or_else(|| self.grow());
        self.named_bytes += named.bytes;
        self.slots[slot as usize].named = Some(named);
        Some((slot, address(slot)))
    }

    fn grow(&mut self) -> u32 {
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot {
            block: Block::default(),
            prepared: Vec::new(),
            state: State::Empty,
            written: Written::default(),
            named: None,
            kept_for_graph: false,
        });
        slot
    }

    /// Where a slot begins.
    pub fn address(&self, slot: u32) -> DeviceAddress {
        address(slot)
    }

    /// What a free of exactly this address would free.
    pub fn named(&self, address: DeviceAddress) -> Option<(u32, Named)> {
        match place(address) {
            Place::Device { slot, offset: 0 } => Some((slot, self.slots.get(slot as usize)?.named?)),
            _ => None,
        }
    }

    /// Takes an address's name away, at the call that frees it.
    pub fn unname(&mut self, slot: u32) {
        if let Some(named) = self.slots[slot as usize].named.take() {
            self.named_bytes -= named.bytes;
        }
    }

    /// Gives memory of a graph its name at a launch. False: it still has one.
    pub fn rename(&mut self, slot: u32, named: Named) -> bool {
        let held = &mut self.slots[slot as usize];
        if held.named.is_some() {
            return false;
        }
        held.named = Some(named);
        self.named_bytes += named.bytes;
        true
    }

    /// Whether the slot has a name.
    pub fn is_named(&self, slot: u32) -> bool {
        self.slots[slot as usize].named.is_some()
    }

    /// Gives a slot to a graph for as long as that lives: frees do not hand it out again.
    pub fn keep_for_graph(&mut self, slot: u32, kept: bool) {
        self.slots[slot as usize].kept_for_graph = kept;
    }

    /// Whether the slot holds memory, on the device's side.
    pub fn is_live(&self, slot: u32) -> bool {
        matches!(self.slots[slot as usize].state, State::Live { .. })
    }

    /// Whether a graph keeps the slot.
    pub fn is_kept_for_graph(&self, slot: u32) -> bool {
        self.slots[slot as usize].kept_for_graph
    }

    /// Device side of an allocation: the memory begins to exist.
    pub fn bring_up(&mut self, slot: u32, allocation: AllocationId, bytes: u64) {
        let held = &mut self.slots[slot as usize];
        held.prepared.clear();
        if bytes <= LARGE {
            held.block.refill(bytes as usize, UNINITIALISED);
        } else {
            held.block = Block::untouched(bytes as usize);
            held.prepared.resize(bytes.div_ceil(CHUNK).div_ceil(64) as usize, 0);
        }
        held.state = State::Live { allocation, bytes };
        held.written.clear();
    }

    /// Device side of a free: the memory ceases to exist. Gives what was there.
    pub fn take_down(&mut self, slot: u32) -> Option<AllocationId> {
        let held = &mut self.slots[slot as usize];
        let State::Live { allocation, .. } = held.state else { return None };
        if held.prepared.is_empty() && !self.free.is_withheld() {
            held.block.bytes_mut().fill(FREED);
        } else {
            held.block = Block::default();
            held.prepared = Vec::new();
        }
        held.state = State::Freed;
        Some(allocation)
    }

    /// All memory ceases to exist. No slot of it is handed out again: its addresses stay bad.
    pub fn end_all(&mut self) {
        for slot in &mut self.slots {
            if slot.named.is_some() || matches!(slot.state, State::Live { .. }) {
                slot.state = State::Ended;
                slot.block = Block::default();
            }
            (slot.named, slot.kept_for_graph) = (None, false);
        }
        self.named_bytes = 0;
    }

    /// Whether the address is that of memory which a reset ended.
    pub fn is_ended(&self, address: DeviceAddress) -> bool {
        let slot = match place(address) {
            Place::Device { slot, .. } => self.slots.get(slot as usize),
            _ => None,
        };
        slot.is_some_and(|slot| slot.state == State::Ended)
    }

    /// Puts a slot that nothing names or uses where the next allocation takes it from.
    pub fn hand_back(&mut self, slot: u32) {
        self.free.give_back(slot);
    }

    /// The allocation that an access of `bytes` at `offset` falls into.
    ///
    /// # Errors
    /// Why it must not happen.
    pub fn check(&self, slot: u32, offset: u64, bytes: u64) -> Result<AllocationId, BadAccess> {
        let held = self.slots.get(slot as usize).ok_or(BadAccess::Wild)?;
        match held.state {
            State::Empty => Err(BadAccess::NotYetAllocated),
            State::Freed | State::Ended => Err(BadAccess::Freed),
            State::Live { allocation, bytes: size } if offset.checked_add(bytes).is_some_and(|end| end <= size) => {
                Ok(allocation)
            }
            State::Live { .. } => Err(BadAccess::OutOfRange),
        }
    }

    /// A slot's bytes.
    pub fn bytes(&self, slot: u32) -> &[u8] {
        self.slots[slot as usize].block.bytes()
    }

    /// A slot's bytes, to write.
    pub fn bytes_mut(&mut self, slot: u32) -> &mut [u8] {
        self.slots[slot as usize].block.bytes_mut()
    }

    /// Lends a slot's block to a kernel.
    pub fn lend(&mut self, slot: u32) -> Block {
        std::mem::take(&mut self.slots[slot as usize].block)
    }

    /// Before a range is touched: new memory gets its pattern, where it has not yet.
    pub fn prepare(&mut self, slot: u32, offset: u64, bytes: u64) {
        let Slot { block, prepared, .. } = &mut self.slots[slot as usize];
        if prepared.is_empty() || bytes == 0 {
            return;
        }
        for chunk in offset / CHUNK..=(offset + bytes - 1) / CHUNK {
            let bit = 1 << (chunk % 64);
            let word = &mut prepared[(chunk / 64) as usize];
            if *word & bit == 0 {
                *word |= bit;
                let start = (chunk * CHUNK) as usize;
                let end = (start + CHUNK as usize).min(block.bytes);
                block.bytes_mut()[start..end].fill(UNINITIALISED);
            }
        }
    }

    /// Takes a lent block back.
    pub fn take_back(&mut self, slot: u32, block: Block) {
        self.slots[slot as usize].block = block;
    }

    /// Notes a write.
    pub fn note_written(&mut self, slot: u32, offset: u64, bytes: u64) {
        self.slots[slot as usize].written.add(offset, offset + bytes);
    }

    /// Whether all of a range has been written since the allocation.
    pub fn is_written(&self, slot: u32, offset: u64, bytes: u64) -> bool {
        self.slots[slot as usize].written.covers(offset, offset + bytes)
    }

    /// The parts of a range that were not written since the allocation, from the range's start on.
    pub(crate) fn unwritten(&self, slot: u32, offset: u64, bytes: u64) -> Vec<std::ops::Range<usize>> {
        let end = offset + bytes;
        let (mut gaps, mut at) = (Vec::new(), offset);
        for (from, to) in self.slots[slot as usize].written.ranges.iter().copied().chain([(end, end)]) {
            if at < from.min(end) {
                gaps.push((at - offset) as usize..(from.min(end) - offset) as usize);
            }
            at = at.max(to);
        }
        gaps
    }
}

/// Ranges that were written, sorted and apart. Past a bound the gaps between them count as written: fewer warnings.
#[derive(Debug, Default)]
struct Written {
    ranges: SmallVec<[(u64, u64); 2]>,
}

const RANGES_MAX: usize = 64;

impl Written {
    fn clear(&mut self) {
        self.ranges.clear();
    }

    fn covers(&self, start: u64, end: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= start);
        after > 0 && self.ranges[after - 1].1 >= end
    }

    fn add(&mut self, start: u64, end: u64) {
        if self.covers(start, end) {
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = self.ranges.partition_point(|range| range.0 <= end);
        let mut merged = (start, end);
        if first < last {
            merged = (merged.0.min(self.ranges[first].0), merged.1.max(self.ranges[last - 1].1));
            self.ranges.drain(first..last);
        }
        self.ranges.insert(first, merged);
        if self.ranges.len() > RANGES_MAX {
            let end = self.ranges.remove(1).1;
            self.ranges[0].1 = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(allocation: u64, bytes: u64) -> Named {
        Named { allocation: AllocationId(allocation), bytes, origin: Origin::Plain }
    }

    #[test]
    fn addresses_are_no_host_addresses_and_come_apart_again() {
        assert_eq!(place(address(3).offset(17)), Place::Device { slot: 3, offset: 17 });
        assert_eq!(place(alias(5, 0x7fff_1234)), Place::Alias { slot: 5, offset: 0x234 });
        assert_eq!(place(DeviceAddress(0x7fff_ffff_f000)), Place::Wild);
    }

    #[test]
    fn a_slot_is_handed_out_again_at_once() {
        let mut memory = DeviceMemory::new(1000);
        let (slot, first) = memory.name(named(1, 600), None).expect("there is room");
        assert_eq!(memory.name(named(2, 600), None), None, "600 and 600 exceed 1000");
        memory.unname(slot);
        memory.hand_back(slot);
        let (_, second) = memory.name(named(2, 900), None).expect("the first was freed");
        assert_eq!(first, second);
    }

    #[test]
    fn accesses_are_checked_against_the_device_side() {
        let mut memory = DeviceMemory::new(1000);
        let (slot, _) = memory.name(named(1, 100), None).expect("there is room");
        assert_eq!(memory.check(slot, 0, 1), Err(BadAccess::NotYetAllocated));
        memory.bring_up(slot, AllocationId(1), 100);
        assert_eq!(memory.check(slot, 40, 60), Ok(AllocationId(1)));
        assert_eq!(memory.check(slot, 40, 61), Err(BadAccess::OutOfRange));
        assert_eq!(memory.check(slot, 2, u64::MAX), Err(BadAccess::OutOfRange));
        assert_eq!(memory.bytes(slot)[99], UNINITIALISED);
        memory.take_down(slot);
        assert_eq!(memory.check(slot, 0, 1), Err(BadAccess::Freed));
        assert_eq!(memory.bytes(slot)[0], FREED);
        assert_eq!(memory.check(slot + 1, 0, 1), Err(BadAccess::Wild));
    }

    #[test]
    fn written_ranges_merge_and_stay_few() {
        let mut written = Written::default();
        written.add(10, 20);
        written.add(30, 40);
        assert!(written.covers(12, 20) && !written.covers(12, 21) && !written.covers(20, 30));
        written.add(20, 30);
        assert_eq!(written.ranges.as_slice(), &[(10, 40)]);
        for at in 0..1000 {
            written.add(100 + at * 10, 101 + at * 10);
        }
        assert!(written.ranges.len() <= RANGES_MAX);
        assert!(written.covers(10_090, 10_091));
    }

    #[test]
    fn large_memory_gets_its_pattern_where_it_is_touched() {
        let mut memory = DeviceMemory::new(1 << 40);
        let bytes = 1 << 34;
        let (slot, _) = memory.name(named(1, bytes), None).expect("there is room");
        memory.bring_up(slot, AllocationId(1), bytes);
        let at = bytes - CHUNK - 8;
        memory.prepare(slot, at, 16);
        assert_eq!(memory.bytes(slot)[at as usize..][..16], [UNINITIALISED; 16]);
        memory.bytes_mut(slot)[at as usize] = 1;
        memory.prepare(slot, at, 1);
        assert_eq!(memory.bytes(slot)[at as usize], 1, "only once");
        memory.take_down(slot);
        assert_eq!(memory.check(slot, 0, 1), Err(BadAccess::Freed));
    }
}
