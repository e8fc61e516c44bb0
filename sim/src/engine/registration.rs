//! Page-locked host memory: registered, or allocated by the driver.
//!
//! | call on a range | nothing there | overlaps a live one | base of a live one | inside a live one |
//! |---|---|---|---|---|
//! | register | 0 | 712 | 712 | 712 |
//! | unregister | 713 | | 0, after the whole device is idle | 1 |
//!
//! Ranges count in bytes, not pages. No size and no address give 1, memory that the process cannot use gives 1, memory
//! that it can only read gives 1 unless the device shall only read. The table does not look at what is mapped later:
//! memory that was unmapped while registered still counts.
//!
//! The device sees each registration at an address of its own, never at the host's.

use std::ops::Range;

use tenure::driver::{Call, Coverage, DeviceAddress, HostAccess, HostPointer, Location};

use super::{Answer, Engine, Then};
use crate::code::Code;
use crate::event::{Access, BadAccess, Event, HostThread, OpId, PinKind, RegistrationId, Violation};
use crate::host_memory::{PinnedBlock, Protection};
use crate::memory::{Reuse, alias};
use crate::profile::Quirk;

#[derive(Debug)]
pub(super) struct Registration {
    pub(super) id: RegistrationId,
    /// Where it begins, with the right to reach all of it.
    pointer: HostPointer,
    base: usize,
    bytes: usize,
    read_only: bool,
    kind: PinKind,
    /// Its owner gave the memory back to the system although it is registered (P4).
    gone: bool,
    /// The device was reset under it: the table has it no more, and its alias names nothing.
    ended: bool,
    /// The memory itself, where the driver allocated it; freed with this value.
    block: Option<PinnedBlock>,
}

/// A host range that went back to the system.
#[derive(Debug)]
pub(super) struct Gone {
    range: Range<usize>,
    /// Operations submitted from here on mean whatever lies there now.
    before: OpId,
    /// How many went before it.
    number: u64,
}

/// How many ranges that went back to the system are remembered while graphs live.
const GONE_MAX: usize = 1024;
/// How many freed blocks are kept, and the largest that is.
const FREED_MAX: usize = 64;
const FREED_BYTES_MAX: usize = 1 << 20;

impl Registration {
    fn end(&self) -> usize {
        self.base + self.bytes
    }
}

impl Engine {
    /// Allocates `bytes` of page-locked host memory, zeroed. Guarded.
    ///
    /// # Errors
    /// 1 for no bytes; 2 where the system has no more; 900 where a capture forbids it.
    pub fn host_alloc(&mut self, thread: HostThread, bytes: usize) -> Result<HostPointer, Code> {
        self.plain(thread, Call::HostAlloc, |engine| {
            engine.guard()?;
            if bytes == 0 {
                return Err(Code::INVALID_VALUE);
            }
            let block = engine.take_freed(bytes).or_else(|| PinnedBlock::new(bytes)).ok_or(Code::MEMORY_ALLOCATION)?;
            let pointer = block.pointer();
            engine.pin(pointer, bytes, false, Some(block));
            Ok(pointer)
        })
    }

    /// Gives memory of [`host_alloc`](Self::host_alloc) back once the device is idle. Guarded.
    ///
    /// # Errors
    /// 1 for anything else; 900 where a capture forbids it.
    pub fn host_free(&mut self, thread: HostThread, pointer: HostPointer) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::HostFree, |engine| {
            engine.guard()?;
            let address = pointer.address();
            match engine.pin_with_base(address) {
                Some(slot) if engine.pins[slot as usize].kind == PinKind::Allocated => {
                    let id = engine.pins[slot as usize].id;
                    Ok(engine.wait_for_device(Then::ReleasePin { slot, id }))
                }
                _ => {
                    if !engine.has_ended(address) {
                        engine.violate(Violation::BadFree { thread, address: address as u64 });
                    }
                    Err(Code::INVALID_VALUE)
                }
            }
        })
    }

    /// Registers `bytes` at `base`. Guarded.
    ///
    /// # Safety
    /// - The range is mapped until it was unregistered, or the engine is gone; while the device works on its alias, no
    ///   reference to it is in use but to read what is only read.
    ///
    /// # Errors
    /// See the module's table; 900 where a capture forbids it.
    pub unsafe fn host_register(
        &mut self,
        thread: HostThread,
        base: Option<HostPointer>,
        bytes: usize,
        access: HostAccess,
    ) -> Result<(), Code> {
        self.plain(thread, Call::HostRegister, |engine| {
            engine.guard()?;
            let pointer = base.ok_or(Code::INVALID_VALUE)?;
            let base = pointer.address();
            let end = base.checked_add(bytes).filter(|_| bytes > 0).ok_or(Code::INVALID_VALUE)?;
            if engine.overlaps_a_pin(base, end) {
                if !engine.profile.has(Quirk::OverlapAccepted) {
                    return Err(Code::ALREADY_REGISTERED);
                }
                if engine.pin_with_base(base).is_some() {
                    return Ok(());
                }
            }
            let read_only = access == HostAccess::Read;
            match engine.map.protection(base..end) {
                Protection::None => return Err(Code::INVALID_VALUE),
                Protection::Read if !read_only && engine.profile.has(Quirk::ReadOnlyMemoryRefused) => {
                    return Err(Code::INVALID_VALUE);
                }
                Protection::Read | Protection::ReadWrite => {}
            }
            engine.pin(pointer, bytes, read_only, None);
            Ok(())
        })
    }

    /// Undoes the registration whose base this is, once the device is idle. Guarded.
    ///
    /// # Errors
    /// See the module's table; 900 where a capture forbids it.
    pub fn host_unregister(&mut self, thread: HostThread, base: Option<HostPointer>) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::HostUnregister, |engine| {
            engine.guard()?;
            let base = base.ok_or(Code::INVALID_VALUE)?.address();
            if let Some(slot) = engine.pin_with_base(base) {
                let Registration { id, kind, .. } = engine.pins[slot as usize];
                return match kind {
                    PinKind::Registered => Ok(engine.wait_for_device(Then::ReleasePin { slot, id })),
                    PinKind::Allocated => Err(engine.refuse(Code::INVALID_VALUE)),
                };
            }
            if engine.pin_at(base).is_none() {
                // A reset took the registration away, and nobody was told.
                let code = Code::NOT_REGISTERED;
                return Err(if engine.has_ended(base) { code } else { engine.refuse(code) });
            }
            if engine.profile.has(Quirk::InteriorUnregisterAborts) {
                let call = Call::HostUnregister.into();
                engine.violate(Violation::ProcessAborts { call });
            }
            Err(engine.refuse(Code::INVALID_VALUE))
        })
    }

    /// The device's address of a registered byte.
    ///
    /// # Errors
    /// 1 for memory that is not registered.
    pub fn host_device_address(&mut self, thread: HostThread, pointer: HostPointer) -> Result<DeviceAddress, Code> {
        self.plain(thread, Call::HostDeviceAddress, |engine| {
            let address = pointer.address();
            let slot = engine.pin_at(address).ok_or(Code::INVALID_VALUE)?;
            if engine.gives_null() {
                return Ok(DeviceAddress(0));
            }
            let base = engine.pins[slot as usize].base;
            Ok(alias(slot, base).offset((address - base) as u64))
        })
    }

    /// Whether the byte is registered, or page-locked by the driver's own allocation.
    ///
    /// # Errors
    /// 1 for other memory where a driver has it so.
    pub fn host_is_registered(&mut self, thread: HostThread, pointer: HostPointer) -> Result<bool, Code> {
        self.plain(thread, Call::HostIsRegistered, |engine| {
            let found = engine.pin_at(pointer.address()).is_some();
            if !found && engine.profile.has(Quirk::PlainMemoryHasNoAttributes) {
                return Err(Code::INVALID_VALUE);
            }
            Ok(found)
        })
    }

    /// What of `bytes` at `base` is registered, or page-locked by the driver's own allocation.
    ///
    /// # Errors
    /// What any call may return.
    pub fn host_coverage(&mut self, thread: HostThread, base: HostPointer, bytes: usize) -> Result<Coverage, Code> {
        self.plain(thread, Call::HostIsRegistered, |engine| {
            let (start, end) = (base.address(), base.address().saturating_add(bytes));
            let holds = |slot: u32| engine.pins[slot as usize].base <= start && end <= engine.pins[slot as usize].end();
            // Where registrations overlap, the driver finds one of them by the first byte: that one counts.
            Ok(match engine.pin_at(start) {
                Some(slot) if holds(slot) => Coverage::Whole,
                None if !engine.overlaps_a_pin(start, end) => Coverage::None,
                _ => Coverage::Part,
            })
        })
    }

    // --- the table

    fn pin(&mut self, pointer: HostPointer, bytes: usize, read_only: bool, block: Option<PinnedBlock>) {
        let base = pointer.address();
        let id = self.fresh_registration();
        let kind = if block.is_some() { PinKind::Allocated } else { PinKind::Registered };
        let pin = Registration { id, pointer, base, bytes, read_only, kind, gone: false, ended: false, block };
        let slot = self.pins.insert(pin) as u32;
        self.pins_by_base.insert(base, slot);
        self.pins_longest = self.pins_longest.max(bytes);
        let thread = self.current.thread;
        self.push(Event::Registered {
            registration: id,
            base: base as u64,
            bytes: bytes as u64,
            alias: alias(slot, base),
            kind,
            thread,
        });
    }

    pub(super) fn release_pin(&mut self, slot: u32, id: RegistrationId) {
        // Two unregisters of one range may wait at once: the second finds it gone, or another in its slot.
        if self.pins.get(slot as usize).is_none_or(|pin| pin.id != id || pin.ended) {
            return;
        }
        let pin = self.pins.remove(slot as usize);
        self.pins_by_base.remove(&pin.base);
        if self.pins_by_base.is_empty() {
            self.pins_longest = 0;
        }
        let thread = self.current.thread;
        self.push(Event::Unregistered { registration: pin.id, thread });
        if let Some(block) = pin.block {
            self.keep_freed(block);
        }
    }

    /// Freed memory stays mapped for a while, so that whoever still uses it is seen and does no harm.
    fn keep_freed(&mut self, block: PinnedBlock) {
        if block.bytes() <= FREED_BYTES_MAX {
            self.freed_pins.push_back(block);
            if self.freed_pins.len() > FREED_MAX {
                self.freed_pins.pop_front();
            }
        }
    }

    /// A freed block of just this size, as the order of reuse has it.
    fn take_freed(&mut self, bytes: usize) -> Option<PinnedBlock> {
        let fits = |block: &PinnedBlock| block.bytes() == bytes;
        let at = match self.reuse {
            Reuse::LastFreed => self.freed_pins.iter().rposition(fits)?,
            Reuse::OldestFreed => self.freed_pins.iter().position(fits)?,
            Reuse::Withheld => return None,
        };
        let mut block = self.freed_pins.remove(at)?;
        block.soil();
        Some(block)
    }

    pub(super) fn live_pins(&self) -> usize {
        self.pins_by_base.len()
    }

    /// All registrations end at once. What the driver allocated stays where it is, unused: its users still have it.
    pub(super) fn end_pins(&mut self) {
        self.pins.iter_mut().for_each(|(_, pin)| pin.ended = true);
        self.pins_by_base.clear();
        self.pins_longest = 0;
    }

    /// A copy that begins in a registration must end in it, whatever lies behind; one that begins before it need not.
    pub(super) fn refuse_border(&mut self, to: Location, from: Location, bytes: u64) -> Result<(), Code> {
        if self.pins_by_base.is_empty() || bytes == 0 || !self.profile.has(Quirk::BorderCopiesRefused) {
            return Ok(());
        }
        let crosses = |at: Location| match at {
            Location::Host(pointer) => self.pin_at(pointer.address()).is_some_and(|slot| {
                let end = pointer.address().saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
                end > self.pins[slot as usize].end()
            }),
            Location::Device(_) => false,
        };
        if crosses(to) || crosses(from) { Err(self.refuse(Code::INVALID_VALUE)) } else { Ok(()) }
    }

    /// Whether a reset ended a registration that began here.
    fn has_ended(&self, base: usize) -> bool {
        self.pins.iter().any(|(_, pin)| pin.ended && pin.base == base)
    }

    fn pin_with_base(&self, base: usize) -> Option<u32> {
        self.pins_by_base.get(&base).copied()
    }

    /// The registration that holds the byte.
    fn pin_at(&self, address: usize) -> Option<u32> {
        self.pins_over(address, address + 1).next()
    }

    fn overlaps_a_pin(&self, start: usize, end: usize) -> bool {
        self.pins_over(start, end).next().is_some()
    }

    /// Registrations that overlap `start..end`, last base first. Without overlaps among themselves only the last one
    /// that begins before `start` can reach into the range; with them, none that begins more than the longest before
    /// it.
    fn pins_over(&self, start: usize, end: usize) -> impl Iterator<Item = u32> + '_ {
        let from = start.saturating_sub(self.pins_longest);
        let candidates = self.pins_by_base.range(from..end).rev().map(|(_, slot)| *slot);
        candidates.filter(move |slot| self.pins[*slot as usize].end() > start)
    }

    pub(super) fn note_host_memory_gone(&mut self, start: u64, bytes: u64) {
        let (start, end) = (start as usize, start.saturating_add(bytes) as usize);
        let slots: Vec<u32> = self.pins_over(start, end).collect();
        for slot in slots {
            self.pins[slot as usize].gone = true;
        }
        if !self.busy.is_empty() || self.has_graphs() {
            if self.gone.len() >= GONE_MAX {
                self.gone.pop_front();
            }
            let before = OpId(self.next.op);
            self.gone.push_back(Gone { range: start..end, before, number: self.ranges_gone });
        }
        self.ranges_gone += 1;
    }

    /// Whether a range, as an operation names it, went back to the system after the operation was submitted.
    fn is_gone(&self, op: OpId, start: usize, end: usize) -> bool {
        let is_later = |gone: &Gone| match self.named_at {
            Some(recorded) => recorded <= gone.number,
            None => op < gone.before,
        };
        let hit = |gone: &Gone| is_later(gone) && gone.range.start < end && start < gone.range.end;
        self.gone.iter().any(hit)
    }

    /// Nothing is pending that could still name memory that is gone.
    pub(super) fn forget_gone(&mut self) {
        if !self.gone.is_empty() && !self.has_graphs() {
            self.gone.clear();
        }
    }

    fn has_graphs(&self) -> bool {
        self.graphs.len() + self.executables.len() > 0
    }

    /// Host code touches memory: it must not be what the driver has taken back, nor lie beyond what the driver gave.
    pub(super) fn check_host_access(&mut self, thread: HostThread, start: u64, bytes: u64, access: Access) {
        let (from, to) = (start as usize, start.saturating_add(bytes) as usize);
        let is_freed = |block: &PinnedBlock| block.range().start < to && from < block.range().end;
        let past = |slot: u32| {
            let pin = &self.pins[slot as usize];
            pin.kind == PinKind::Allocated && (from < pin.base || to > pin.end())
        };
        let why = match () {
            () if self.freed_pins.iter().any(is_freed) => BadAccess::Freed,
            () if self.pins_over(from, to).any(past) => BadAccess::OutOfRange,
            () => return,
        };
        self.violate(Violation::HostAccess { thread, why, address: start, bytes, access });
    }

    // --- accesses by the device

    /// Host memory behind an alias.
    pub(super) fn behind_alias(
        &self,
        slot: u32,
        offset: u64,
        bytes: u64,
        writes: bool,
    ) -> Result<(HostPointer, RegistrationId), BadAccess> {
        let pin = self.pins.get(slot as usize).filter(|pin| !pin.ended).ok_or(BadAccess::Unregistered)?;
        let offset = (offset as usize).checked_sub(pin.base & 0xfff).ok_or(BadAccess::Unregistered)?;
        if offset.checked_add(bytes as usize).is_none_or(|end| end > pin.bytes) {
            return Err(BadAccess::OutOfRange);
        }
        pin.usable(writes)?;
        Ok((pin.pointer.offset(offset), pin.id))
    }

    /// The registration that covers all of a host range, if one does.
    pub(super) fn covering(
        &self,
        op: OpId,
        pointer: HostPointer,
        bytes: u64,
        writes: bool,
    ) -> Result<Option<RegistrationId>, BadAccess> {
        let (start, end) = (pointer.address(), pointer.address().saturating_add(bytes as usize));
        if self.is_gone(op, start, end) {
            return Err(BadAccess::HostMemoryGone);
        }
        let is_freed = |block: &PinnedBlock| block.range().start < end && start < block.range().end;
        if self.freed_pins.iter().any(is_freed) {
            return Err(BadAccess::Freed);
        }
        for slot in self.pins_over(start, end) {
            let pin = &self.pins[slot as usize];
            if pin.gone {
                return Err(BadAccess::HostMemoryGone);
            }
            if pin.base <= start && end <= pin.end() {
                pin.usable(writes)?;
                return Ok(Some(pin.id));
            }
        }
        Ok(None)
    }
}

impl Registration {
    fn usable(&self, writes: bool) -> Result<(), BadAccess> {
        match (self.gone, self.read_only && writes) {
            (true, _) => Err(BadAccess::HostMemoryGone),
            (_, true) => Err(BadAccess::ReadOnly),
            _ => Ok(()),
        }
    }
}
