//! Device memory, and copies and fills.
//!
//! | call | host side | device side |
//! |---|---|---|
//! | `malloc` | at once | at once |
//! | `free` | at once: a second free is refused | when the device is idle (waits) |
//! | `malloc_async` | at once, in a slot that this stream freed if there is one | when its operation runs |
//! | `free_async` | at once | when its operation runs; the slot is the stream's own until then, everybody's after |
//!
//! So memory is handed out again as soon as is legal, and no later: a missing edge shows. Where [`Reuse`] withholds it, a
//! use after the free shows instead.

use tenure::driver::{Call, DeviceAddress, Location};

use super::stream::Work;
use super::{Answer, Engine, Then, Until};
use crate::code::Code;
use crate::event::{AllocationId, CallName, Event, HostThread, MemoryOrder, StreamHandle, Violation};
use crate::memory::{Named, Origin, Place, Reuse, place};
use crate::profile::Quirk;

impl Engine {
    /// Allocates `bytes` of device memory. Guarded.
    ///
    /// # Errors
    /// 1 for no bytes; 2 where there is not so much; 900 where a capture forbids it.
    pub fn malloc(&mut self, thread: HostThread, bytes: u64) -> Result<DeviceAddress, Code> {
        self.plain(thread, Call::Malloc, |engine| {
            engine.guard()?;
            if engine.gives_null() {
                return Ok(DeviceAddress(0));
            }
            let (slot, allocation, address) = engine.name_memory(bytes, Origin::Plain, None)?;
            let order = MemoryOrder::Thread(thread);
            engine.bring_up(slot, allocation, bytes, order);
            Ok(address)
        })
    }

    /// Gives device memory back once the device is idle. Guarded.
    ///
    /// # Errors
    /// 1 for an address that is not allocated; 900 where a capture forbids it.
    pub fn free(&mut self, thread: HostThread, address: DeviceAddress) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::Free, |engine| {
            engine.guard()?;
            engine.free_plain(address)
        })
    }

    fn need_pools(&self) -> Result<(), Code> {
        if self.settings.pools { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
    }

    fn free_plain(&mut self, address: DeviceAddress) -> Result<Answer<()>, Code> {
        let (slot, named) = self.named_or_violation(address)?;
        self.memory.unname(slot);
        if named.origin == Origin::Ordered && self.profile.has(Quirk::FreeOfPoolMemoryDoesNotWait) {
            self.free_now(slot);
            return Ok(Answer::Done(()));
        }
        Ok(self.wait_for_device(Then::Free { slot }))
    }

    pub(super) fn free_now(&mut self, slot: u32) {
        self.take_down(slot, MemoryOrder::Thread(self.current.thread));
        if !self.memory.is_kept_for_graph(slot) {
            self.memory.hand_back(slot);
        }
    }

    /// Allocates `bytes` of device memory in the order of the stream, or as a node of its capture.
    ///
    /// # Errors
    /// As [`malloc`](Self::malloc); a stale handle; what a submission may return; 801 on a device without pools.
    pub fn malloc_async(
        &mut self,
        thread: HostThread,
        stream: StreamHandle,
        bytes: u64,
    ) -> Result<Answer<DeviceAddress>, Code> {
        self.waiting(thread, Call::MallocAsync, |engine| {
            let stream = engine.resolve(stream)?;
            engine.need_pools()?;
            if engine.gives_null() {
                return Ok(Answer::Done(DeviceAddress(0)));
            }
            if engine.streams[stream as usize].capture.is_some() {
                return engine.record_allocation(stream, bytes).map(Answer::Done);
            }
            engine.guard_async_memory()?;
            let reuse = engine.pooled_slot(stream);
            let (slot, allocation, address) =
                engine.name_memory(bytes, Origin::Ordered, reuse.map(|(slot, _)| slot))?;
            if let Some(held) = reuse {
                engine.streams[stream as usize].pool.retain(|pooled| *pooled != held);
            }
            match engine.submit(stream, Work::Allocate { slot, allocation, bytes }) {
                Ok(Answer::Done(())) => Ok(Answer::Done(address)),
                Ok(Answer::Blocked(wait)) => Ok(Answer::Blocked(wait.map(address))),
                Err(code) => {
                    engine.memory.unname(slot);
                    match reuse {
                        Some(held) => engine.streams[stream as usize].pool.push(held),
                        None => engine.memory.hand_back(slot),
                    }
                    Err(code)
                }
            }
        })
    }

    /// A slot that the stream freed itself and may have again at once.
    fn pooled_slot(&self, stream: u32) -> Option<(u32, AllocationId)> {
        let pool = &self.streams[stream as usize].pool;
        match self.reuse {
            Reuse::LastFreed => pool.last().copied(),
            Reuse::OldestFreed => pool.first().copied(),
            Reuse::Withheld => None,
        }
    }

    /// Gives memory back in the order of the stream, or as a node of its capture.
    ///
    /// # Errors
    /// 1 for an address that is not allocated, or in a capture one that does not belong to it; as
    /// [`malloc_async`](Self::malloc_async) otherwise.
    pub fn free_async(
        &mut self,
        thread: HostThread,
        stream: StreamHandle,
        address: DeviceAddress,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::FreeAsync, |engine| {
            let stream = engine.resolve(stream)?;
            engine.need_pools()?;
            if engine.streams[stream as usize].capture.is_some() {
                return engine.record_free(stream, address).map(Answer::Done);
            }
            engine.guard_async_memory()?;
            let (slot, named) = engine.named_or_violation(address)?;
            if named.origin == Origin::Plain {
                let (call, address) = (CallName::from(Call::FreeAsync), address.0);
                engine.violate(Violation::WrongFree { thread, call, address });
            }
            if named.origin == Origin::Plain && engine.profile.has(Quirk::FreeAsyncOfPlainWaits) {
                return engine.free_plain(address);
            }
            let answer = engine.submit(stream, Work::Free { slot, allocation: named.allocation })?;
            engine.memory.unname(slot);
            Ok(answer)
        })
    }

    /// Names memory on the host's side.
    pub(super) fn name_memory(
        &mut self,
        bytes: u64,
        origin: Origin,
        reuse: Option<u32>,
    ) -> Result<(u32, AllocationId, DeviceAddress), Code> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let allocation = self.fresh_allocation();
        let named = Named { allocation, bytes, origin };
        let (slot, address) = self.memory.name(named, reuse).ok_or(Code::MEMORY_ALLOCATION)?;
        Ok((slot, allocation, address))
    }

    pub(super) fn named_or_violation(&mut self, address: DeviceAddress) -> Result<(u32, Named), Code> {
        self.memory.named(address).ok_or_else(|| {
            if !self.memory.is_ended(address) {
                let thread = self.current.thread;
                self.violate(Violation::BadFree { thread, address: address.0 });
            }
            Code::INVALID_VALUE
        })
    }

    pub(super) fn bring_up(&mut self, slot: u32, allocation: AllocationId, bytes: u64, order: MemoryOrder) {
        self.memory.bring_up(slot, allocation, bytes);
        let address = self.memory.address(slot);
        self.push(Event::Allocated { allocation, address, bytes, order });
    }

    pub(super) fn take_down(&mut self, slot: u32, order: MemoryOrder) {
        if let Some(allocation) = self.memory.take_down(slot) {
            self.push(Event::Freed { allocation, order });
        }
    }

    /// When a free is on its stream: that stream may have the slot again at once.
    pub(super) fn note_enqueued_free(&mut self, stream: u32, slot: u32, allocation: AllocationId) {
        if !self.memory.is_kept_for_graph(slot) {
            self.streams[stream as usize].pool.push((slot, allocation));
        }
    }

    /// When a free has run: the slot is everybody's, unless its stream has taken it again meanwhile.
    pub(super) fn release_slot_after_free(&mut self, stream: u32, slot: u32, allocation: AllocationId) {
        let pool = &mut self.streams[stream as usize].pool;
        if let Some(at) = pool.iter().position(|held| *held == (slot, allocation)) {
            pool.remove(at);
            self.memory.hand_back(slot);
        }
    }

    // --- copies and fills

    /// Copies `bytes` in the order of the stream. Host memory is read and written when the copy finishes. With
    /// [`Quirk::PageableCopiesWait`] the call ends only then where the host memory is not page-locked.
    ///
    /// # Safety
    /// - Host memory that it names by pointer is mapped and may be accessed so until the copy has run, or every graph that
    ///   recorded it is gone; while it runs, no reference to what it writes is in use.
    ///
    /// # Errors
    /// A stale handle; 1 where it would cross the end of a registration that it begins in; what a submission may return.
    pub unsafe fn copy(
        &mut self,
        thread: HostThread,
        stream: StreamHandle,
        to: Location,
        from: Location,
        bytes: u64,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::Copy, |engine| {
            let stream = engine.resolve(stream)?;
            engine.refuse_border(to, from, bytes)?;
            let held = &engine.streams[stream as usize];
            let executes = held.capture.is_none() && !held.broken;
            let answer = engine.submit(stream, Work::Copy { to, from, bytes })?;
            match answer {
                Answer::Done(()) if executes && engine.copy_waits(to, from, bytes) => {
                    Ok(engine.wait_for(Until::Position(engine.end_of(stream)), Then::Nothing))
                }
                answer => Ok(answer),
            }
        })
    }

    /// Whether the call that makes this copy returns only when it has run.
    pub(super) fn copy_waits(&self, to: Location, from: Location, bytes: u64) -> bool {
        if !self.profile.has(Quirk::PageableCopiesWait) || bytes == 0 {
            return false;
        }
        let next = crate::event::OpId(self.next.op);
        let is_pageable = |location| match location {
            Location::Host(pointer) => matches!(self.covering(next, pointer, bytes, false), Ok(None)),
            Location::Device(_) => false,
        };
        is_pageable(to) || bytes >= self.profile.pageable_upload_waits_from && is_pageable(from)
    }

    /// Sets `bytes` bytes to `value` in the order of the stream.
    ///
    /// # Errors
    /// A stale handle; what a submission may return.
    pub fn fill(
        &mut self,
        thread: HostThread,
        stream: StreamHandle,
        at: DeviceAddress,
        value: u8,
        bytes: u64,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::Fill, |engine| {
            let stream = engine.resolve(stream)?;
            engine.submit(stream, Work::Fill { at, value, bytes })
        })
    }

    /// Copies on the legacy stream and waits; from device to device it does not wait where a driver has it so.
    ///
    /// # Safety
    /// - The same as for [`copy`](Self::copy).
    ///
    /// # Errors
    /// 906 where a capture forbids it; 1 as [`copy`](Self::copy).
    pub unsafe fn copy_and_wait(
        &mut self,
        thread: HostThread,
        to: Location,
        from: Location,
        bytes: u64,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, CallName::CopyAndWait, |engine| {
            engine.refuse_border(to, from, bytes)?;
            let on_device = is_device_memory(to) && is_device_memory(from);
            let waits = !(on_device && engine.profile.has(Quirk::DeviceCopiesDoNotWait));
            engine.run_and_wait(Work::Copy { to, from, bytes }, waits)
        })
    }

    /// Sets bytes on the legacy stream and waits; for device memory it does not wait where a driver has it so.
    ///
    /// # Errors
    /// 906 where a capture forbids it.
    pub fn fill_and_wait(
        &mut self,
        thread: HostThread,
        at: DeviceAddress,
        value: u8,
        bytes: u64,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, CallName::FillAndWait, |engine| {
            let waits = !(is_device_memory(Location::Device(at)) && engine.profile.has(Quirk::FillsDoNotWait));
            engine.run_and_wait(Work::Fill { at, value, bytes }, waits)
        })
    }

    fn run_and_wait(&mut self, work: Work, waits: bool) -> Result<Answer<()>, Code> {
        self.guard_synchronous_copy()?;
        let legacy = self.resolve(StreamHandle::LEGACY)?;
        self.enqueue(legacy, work);
        if !waits {
            return Ok(Answer::Done(()));
        }
        let position = self.end_of(legacy);
        Ok(self.wait_for(Until::Position(position), Then::Nothing))
    }
}

/// Whether it lies on the device itself, and is no page-locked memory of the host's.
fn is_device_memory(at: Location) -> bool {
    matches!(at, Location::Device(address) if !matches!(place(address), Place::Alias { .. }))
}
