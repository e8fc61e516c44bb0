//! The handle of a stream: [`Stream`], which runs what it is given.

use std::ptr::NonNull;

use smallvec::SmallVec;

use crate::call_scope::{CallScope, MayWait, within};
use crate::driver::{Call, DeviceAddress, Driver, ErrorKind, HostAccess, HostPointer, Location, Priority, Progress};
use crate::error::{DriverFailure, Error, Misuse, Result};
use crate::id::StreamId;
use crate::kernel::Kernel;
use crate::memory::{Allocation, Backing, Element, Memory, Readable, Region, Storage, UseSet, slack};
use crate::ownership::{Access, Point, Points, Record, Use, submit, submit_covered, submit_moving};
#[cfg(doc)]
use crate::queue::Queue;
use crate::queue::{Submit, same_length, snapshot, without_bytes, write_kept};
use crate::reclaim::{Ask, Resource, Retired};
use crate::runtime::Runtime;
use crate::sealed::Sealed;
use crate::shared::Anchor;
use crate::staging::{Reading, Staged};
use crate::stream_state::adoption::EndedAdoption;
use crate::stream_state::{Role, StreamState};
use crate::sync::Arc;

/// How many moments of 50 microseconds an allocation that is short of memory gives to whoever is on turn.
const MOMENTS_MAX: u32 = 200;

/// A lease of a stream: an in-order queue of the device.
///
/// Clones share the lease; it ends with the last. Several threads may use one stream: their submissions are taken one
/// at a time. Dropping it waits for nothing (P7).
#[derive(Debug)]
pub struct Stream<D: Driver> {
    lease: Arc<Lease<D>>,
}

#[derive(Debug)]
struct Lease<D: Driver> {
    state: Arc<StreamState<D>>,
    anchor: Arc<Anchor<D>>,
}

impl<D: Driver> Drop for Lease<D> {
    fn drop(&mut self) {
        if self.anchor.context.life.is_inherited() {
            return;
        }
        match self.state.role {
            Role::Pooled(_) => {
                // The next holder is mostly another thread.
                self.state.release_bias();
                self.anchor.pool.give(self.state.clone());
            }
            Role::Adopted(_) => {
                // S9. No lease, so no more submissions: what marks the stream is given back once all of them are complete.
                let resource = Resource::Adopted(self.state.clone());
                let mut points = Points::new();
                points.push(Point { number: self.state.timeline.horizon().number(), stream: self.state.clone() });
                self.anchor.reclaim.retire(Retired { resource, points });
            }
            Role::Capture => {}
        }
    }
}

impl<D: Driver> Clone for Stream<D> {
    fn clone(&self) -> Self {
        Self { lease: self.lease.clone() }
    }
}

impl<D: Driver> Sealed for Stream<D> {}

impl<D: Driver> Submit<D> for Stream<D> {
    #[inline]
    fn anchor(&self) -> &Arc<Anchor<D>> {
        &self.lease.anchor
    }

    #[inline(always)]
    unsafe fn submit_raw<'a, R>(
        &self,
        uses: impl UseSet<Memory<'a, D>, D>,
        call: Call,
        enqueue: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> Result<(R, u64)>
    where
        D: 'a,
    {
        submit_covered(&self.lease.anchor.context, &self.lease.state, uses, call, enqueue, move |uses, enqueue| {
            self.submit_uncovered(uses, call, enqueue)
        })
    }

    #[inline]
    fn keep_code<S>(&self, _: &Kernel<S, D>) {}

    fn keep(&self, memory: Box<dyn std::any::Any + Send>, number: u64) {
        let mut points = Points::new();
        points.push(self.point(number));
        self.lease.anchor.reclaim.retire(Retired { resource: Resource::Kept(memory), points });
    }

    fn allocate(&self, bytes: usize, align: usize) -> Result<Backing<D>> {
        let allocation = self.allocate_raw((bytes + slack(align)) as u64)?.aligned(align);
        Ok(Backing::new(Storage::Memory(Arc::new(allocation))))
    }

    unsafe fn write_bytes(&self, from: &[u8], to: Region<'_, D>) -> Result<()> {
        let (shared, stream) = (&**self.lease.anchor, &self.lease.state);
        let mut rest = from;
        while !rest.is_empty() {
            let at = (from.len() - rest.len()) as u64;
            let Some(mut staged) = shared.staging.take(shared, stream, rest.len())? else {
                let (kept, host) = snapshot(rest);
                // SAFETY: O6, C10. The caller vouches for the whole; the snapshot is what is kept.
                return unsafe { write_kept(self, kept, host, to.part(at, rest.len() as u64)?) };
            };
            let (part, later) = rest.split_at(staged.bytes);
            staged.fill(&shared.context.driver, part);
            // SAFETY: O6, T1. The part lies in the region, which may be written; it is filled, and given back below.
            let sent = unsafe { self.submit_staged(staged, Memory::write(to.backing), to.address.offset(at), Way::Up) };
            let (staged, point, copied) = sent?;
            staged.have_told(shared, stream);
            staged.submitted(&point);
            copied?;
            rest = later;
        }
        Ok(())
    }
}

/// Which way a staged copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the device.
    Up,
    /// From it.
    Down,
}

/// What was submitted: its staging memory, its point, and whether all of its copies were accepted.
pub(crate) type Submitted<'a, D> = (Staged<'a, D>, Point<D>, Result<()>);

impl<D: Driver> Runtime<D> {
    /// Leases a stream of normal priority. The lease ends with the last clone of the handle.
    ///
    /// # Errors
    /// [`Error::StreamLimit`] when all streams that the pool may make are leased or busy; `Lost`, `Closed`, the
    /// driver's. The pool is then as it was (S5).
    pub fn stream(&self) -> Result<Stream<D>> {
        self.stream_with(Priority::Normal)
    }

    /// Leases a stream of this priority; each priority has streams of its own.
    ///
    /// # Errors
    /// Those of [`stream`](Self::stream).
    pub fn stream_with(&self, priority: Priority) -> Result<Stream<D>> {
        self.anchor.check_open()?;
        let state = self.anchor.pool.claim(&self.anchor.context, priority)?;
        Ok(Stream::new(self.anchor.clone(), state))
    }

    /// Uses a stream that somebody else made and will destroy. It is never pooled. What marks its end is moved after each
    /// submission, since nobody can ask the stream itself later.
    ///
    /// The adoption ends with the last clone of the handle. From then on the runtime makes no call that names the stream or
    /// follows anything to it, whatever is pending there and whoever still waits for that; so its owner may destroy it, as soon as the driver
    /// allows a stream with work on it to be destroyed. [`Stream::end_adoption`] also waits for that work.
    ///
    /// Where the driver's events do not outlive their streams (AMD's), an adoption costs a stream of the runtime's own, and a
    /// submission one more call: adopt a stream once, and not for each use.
    ///
    /// # Safety
    /// - `raw` is a stream of this driver's device, and lives until the last clone of the handle was dropped or
    ///   [`Stream::end_adoption`] has returned its success.
    /// - Nobody captures on it while a call on the handle is running.
    ///
    /// # Errors
    /// [`Error::Backlog`] where there are too many already ([`Config::adopted_max`](crate::Config::adopted_max)); the driver's, when it makes no event, or
    /// no stream where one is needed.
    pub unsafe fn adopt(&self, raw: D::Stream) -> Result<Stream<D>> {
        self.anchor.check_open()?;
        let (adoptions, max) = (&self.anchor.context.adoptions, self.anchor.config.adopted_max);
        if adoptions.count() >= max {
            self.anchor.relieve(max, || adoptions.count())?;
        }
        let state = StreamState::adopt(&self.anchor.context, raw)?;
        Ok(Stream::new(self.anchor.clone(), state))
    }
}

impl<D: Driver> Stream<D> {
    pub(crate) fn new(anchor: Arc<Anchor<D>>, state: Arc<StreamState<D>>) -> Self {
        Self { lease: Arc::new(Lease { state, anchor }) }
    }

    /// The slow way. Memory of another runtime always comes here: only a stream that passed this test ever covers.
    #[cold]
    fn submit_uncovered<'a, R>(
        &self,
        uses: impl UseSet<Memory<'a, D>, D>,
        call: Call,
        enqueue: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> Result<(R, u64)>
    where
        D: 'a,
    {
        let mut records: SmallVec<[Use<'a, D>; 16]> = SmallVec::new();
        let mut all_ours = true;
        uses.visit(&mut |memory| {
            all_ours &= memory.backing.is_of(&self.lease.anchor);
            records.push(Use::new(memory.backing.record(), memory.access));
        });
        if !all_ours {
            return Err(Misuse::ForeignRuntime.into());
        }
        submit_moving(&self.lease.anchor.context, &self.lease.state, &mut records, call, enqueue)
    }

    pub(crate) fn state(&self) -> &Arc<StreamState<D>> {
        &self.lease.state
    }

    pub(crate) fn point(&self, number: u64) -> Point<D> {
        Point { stream: self.lease.state.clone(), number }
    }

    /// All that was submitted so far.
    pub(crate) fn end(&self) -> Point<D> {
        self.point(self.lease.state.timeline.horizon().number())
    }

    /// The stream's identity, which no other stream ever has (O7).
    pub fn id(&self) -> StreamId {
        self.lease.state.id()
    }

    /// Waits until all work submitted so far has completed.
    ///
    /// # Errors
    /// `Lost`, the driver's; `Misuse::InsideHold`; `Misuse::InsideCapture` on drivers where a wait would break the
    /// capture.
    pub fn synchronize(&self) -> Result<()> {
        self.wait(&mut MayWait::here()?)
    }

    /// [`synchronize`](Self::synchronize), for a call that has asked where it is.
    pub(crate) fn wait(&self, may: &mut MayWait) -> Result<()> {
        self.end().wait(&self.lease.anchor.context, may)
    }

    /// Ends the adoption of a stream of other code: waits until all work submitted to it has completed. From then on nothing
    /// of it is pending and the runtime touches it no more, so that its owner may destroy it on every driver (S9).
    ///
    /// Dropping the last clone ends an adoption too, without the wait: see [`Runtime::adopt`](crate::Runtime::adopt).
    ///
    /// # Errors
    /// Those of [`synchronize`](Self::synchronize); `Misuse::AdoptionShared` while other clones live; `Misuse::NotAdopted`. The
    /// handle comes back with each.
    pub fn end_adoption(self) -> std::result::Result<EndedAdoption<D>, (Error, Self)> {
        if !matches!(self.state().role, Role::Adopted(_)) {
            return Err((Misuse::NotAdopted.into(), self));
        }
        let lease = match Arc::try_unwrap(self.lease) {
            Ok(lease) => lease,
            Err(lease) => return Err((Misuse::AdoptionShared.into(), Self { lease })),
        };
        let stream = Self { lease: Arc::new(lease) };
        match stream.synchronize() {
            Ok(()) => Ok(EndedAdoption::new(stream.state().clone())),
            Err(error) => Err((error, stream)),
        }
    }

    /// Whether all work submitted so far has completed. Asks the driver unless it is known.
    ///
    /// # Errors
    /// `Lost`, the driver's.
    pub fn is_idle(&self) -> Result<bool> {
        let (state, context) = (&self.lease.state, &self.lease.anchor.context);
        context.life.check_process()?;
        context.check_alive()?;
        if state.timeline.is_drained() {
            return Ok(true);
        }
        match state.query(context) {
            Some(progress) => Ok(progress? == Progress::Complete),
            // A capture forbids the question on this driver: not known to be.
            None => Ok(false),
        }
    }

    /// Copies `from` to the host and waits for it (O3). It goes through staging memory as a
    /// [`download`](Self::download) does; a large one in parts, while earlier ones are copied out.
    ///
    /// # Errors
    /// Those of [`Queue`] and [`synchronize`](Self::synchronize).
    pub fn read<T: Element>(&self, from: &impl Readable<T, D>) -> Result<Vec<T>> {
        let (region, len) = (from.region(), from.element_count());
        if region.bytes == 0 {
            return Ok(without_bytes(len));
        }
        let mut memory: Vec<T> = Vec::with_capacity(len);
        let start = HostPointer(NonNull::from(memory.spare_capacity_mut()).cast());
        // SAFETY: O3. There is room for all, and nobody else has it.
        unsafe { self.read_bytes(region, start) }?;
        // SAFETY: O3. All bytes were written, and any bit pattern is an element.
        unsafe { memory.set_len(len) };
        Ok(memory)
    }

    /// As [`read`](Self::read), into memory of the caller's.
    ///
    /// # Errors
    /// As there; `Misuse::LengthMismatch`. On an error a part of `to` may have been written.
    pub fn read_into<T: Element>(&self, from: &impl Readable<T, D>, to: &mut [T]) -> Result<()> {
        let region = from.region();
        same_length(from.element_count(), to.len())?;
        if region.bytes == 0 {
            return Ok(());
        }
        // SAFETY: O3. It is as long, and borrowed for writing.
        unsafe { self.read_bytes(region, HostPointer(NonNull::from(to).cast())) }
    }

    /// Copies `from` to `to` and waits. The device itself never writes to `to`: should the wait fail, it may write
    /// later (P11).
    ///
    /// # Safety
    /// - `to` has room for all of `from`, and nobody else has it.
    unsafe fn read_bytes(&self, from: Region<'_, D>, to: HostPointer) -> Result<()> {
        let mut may = MayWait::here()?;
        let (shared, stream) = (&**self.lease.anchor, &self.lease.state);
        let bytes = usize::try_from(from.bytes).map_err(|_| Misuse::SizeOverflow)?;
        let (mut reading, mut at) = (Reading::new(&shared.staging, shared), 0);
        while at < bytes || !reading.is_idle() {
            if at < bytes && reading.bytes() <= shared.staging.part() {
                let part = (bytes - at).min(shared.staging.part());
                // With memory in hand it waits for none: two such readers would wait for each other.
                let staged = match reading.is_idle() {
                    true => shared.staging.take(shared, stream, part)?,
                    false => shared.staging.take_now(shared, stream, part)?,
                };
                let address = from.address.offset(at as u64);
                if let Some(staged) = staged {
                    let part = staged.bytes;
                    // SAFETY: O6, T1. The part lies in the region; it is given back once it was copied out.
                    let sent = unsafe { self.submit_staged(staged, Memory::read(from.backing), address, Way::Down) };
                    let (staged, point, copied) = sent?;
                    reading.expect(staged, &point, at);
                    copied?;
                    at += part;
                    continue;
                }
                if reading.is_idle() {
                    let rest = from.part(at as u64, (bytes - at) as u64)?;
                    // SAFETY: O3. There is room for the rest, at its place.
                    return unsafe { self.read_pageable(rest, to.offset(at), &mut may) };
                }
            }
            // SAFETY: O3, T1. There is room for all, outside of the slabs.
            unsafe { reading.land_next(to, &mut may) }?;
        }
        Ok(())
    }

    /// [`read_bytes`](Self::read_bytes) by way of pageable memory of ours.
    ///
    /// # Safety
    /// - As there.
    unsafe fn read_pageable(&self, from: Region<'_, D>, to: HostPointer, may: &mut MayWait) -> Result<()> {
        let bytes = usize::try_from(from.bytes).map_err(|_| Misuse::SizeOverflow)?;
        let mut memory = vec![0_u8; bytes];
        let host = HostPointer(NonNull::from(&mut *memory).cast());
        // SAFETY: O6, R4. The memory is kept below where the copy is not known to have completed.
        let (point, copied) = unsafe { self.copy_down(from, host) }?;
        if let Err(error) = copied.and_then(|()| point.wait(&self.lease.anchor.context, may)) {
            self.keep(Box::new(memory), point.number);
            return Err(error);
        }
        self.lease.anchor.context.driver.host_accessed(host, bytes, HostAccess::Read);
        // SAFETY: O3. The copy has completed; there is room at `to`, which is not ours.
        unsafe { to.0.as_ptr().copy_from_nonoverlapping(host.0.as_ptr(), bytes) };
        Ok(())
    }

    /// Copies `from` to `host` without staging; its point, and whether the driver accepted it.
    ///
    /// # Safety
    /// - There is room at `host`, which stays until the copy has completed.
    pub(crate) unsafe fn copy_down(&self, from: Region<'_, D>, host: HostPointer) -> Result<(Point<D>, Result<()>)> {
        let enqueue = |driver: &D, stream: &D::Stream| {
            // SAFETY: O6, R4. The region lies in its backing, which stays as in `launch`; the caller keeps the memory.
            let copied =
                unsafe { driver.copy(stream, Location::Host(host), Location::Device(from.address), from.bytes) };
            // One that fails may have had its effect: it has a point as well.
            Ok(copied)
        };
        // SAFETY: O1, R4. One copy, from what the use names, to memory that the caller keeps.
        let (copied, number) = unsafe { self.submit_raw(Memory::read(from.backing), Call::Copy, enqueue) }?;
        Ok((self.point(number), copied.map_err(|error| self.lease.anchor.context.fail(Call::Copy, &error))))
    }

    /// Makes one submission of a copy for each piece of `staged`, from or to the device memory that begins at `address`.
    ///
    /// # Safety
    /// - As many bytes from there lie in `memory`; going up, `staged` is filled.
    /// - The caller gives `staged` back by its point.
    pub(crate) unsafe fn submit_staged<'s>(
        &self,
        staged: Staged<'s, D>,
        memory: Memory<'_, D>,
        address: DeviceAddress,
        way: Way,
    ) -> Result<Submitted<'s, D>> {
        let enqueue = |driver: &D, stream: &D::Stream| {
            let mut at = address;
            for (host, bytes) in staged.parts() {
                let (to, from) =
                    if way == Way::Up { (Location::Device(at), host) } else { (host, Location::Device(at)) };
                // SAFETY: O6, T1. The region lies in its backing, which stays as in `launch`; the staging memory is this
                // copy's until its point.
                let copied = unsafe { driver.copy(stream, to, from, bytes) };
                if copied.is_err() {
                    // It is numbered as if it had been accepted: what was before it has been, and a call that fails may
                    // have had its effect.
                    return Ok(copied);
                }
                at = at.offset(bytes);
            }
            Ok(Ok(()))
        };
        // SAFETY: O1, T1. Copies between what the use names and staging memory, which is given back by its point.
        match unsafe { self.submit_raw(memory, Call::Copy, enqueue) } {
            Ok((copied, number)) => {
                let copied = copied.map_err(|error| self.lease.anchor.context.fail(Call::Copy, &error));
                Ok((staged, self.point(number), copied))
            }
            Err(error) => {
                // No copy was tried.
                staged.refused();
                Err(error)
            }
        }
    }

    /// Lets other code, a library say, enqueue work on the stream that uses `uses`. While `body` runs nobody else can
    /// submit to the stream, and calls of this crate that would wait are refused with `Misuse::InsideHold`.
    ///
    /// # Safety
    /// - `body` enqueues on the given stream only, and what it enqueues touches no memory but that of `uses`, in these
    ///   ways.
    /// - It does not wait for the device, destroy the stream, or begin a capture on it.
    ///
    /// # Errors
    /// Those of [`Queue`]; then `body` was not run. What `body` itself returns is the call's value.
    ///
    /// # Panics
    /// When `body` does; its work counts as submitted.
    pub unsafe fn use_on<R>(&self, uses: &[(Region<'_, D>, Access)], body: impl FnOnce(&D::Stream) -> R) -> Result<R> {
        let uses: SmallVec<[Memory<'_, D>; 16]> =
            uses.iter().map(|(region, access)| Memory::new(region.backing, *access)).collect();
        let enqueue = |_: &D, raw: &D::Stream| {
            Ok(within(CallScope::UseOn, || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(raw)))))
        };
        // SAFETY: O1. The caller vouches that `body` touches what `uses` names, on this stream. It may put any number of
        // submissions there, and have left some behind where it unwinds: it always counts as submitted.
        let (outcome, _) = unsafe { self.submit_raw(uses.as_slice(), Call::Launch, enqueue) }?;
        outcome.map_err(|panic| std::panic::resume_unwind(panic))
    }

    /// Allocates in the order of this stream. When memory is short, first what is retired goes, then what this stream's
    /// own work still holds up.
    fn allocate_raw(&self, bytes: u64) -> Result<Allocation<D>> {
        let anchor = &self.lease.anchor;
        let release = || {
            // Memory may be in the hands of whoever is on turn: worth a moment, but no more, since a turn may wait for
            // the device (R3).
            let mut moments = 0;
            while anchor.reclaim.is_on_turn() && moments < MOMENTS_MAX {
                crate::sync::thread::pause();
                moments += 1;
            }
            anchor.reclaim.turn(&anchor.context, &anchor.pins, Ask::Query)
        };
        let is_short = |answer: &Result<_>| matches!(answer, Err(Error::Driver(failure)) if failure.kind == ErrorKind::OutOfMemory);
        let mut answer = self.try_allocate(bytes);
        if is_short(&answer) {
            release();
            answer = self.try_allocate(bytes);
        }
        if is_short(&answer) && self.synchronize().is_ok() {
            release();
            answer = self.try_allocate(bytes);
        }
        answer
    }

    fn try_allocate(&self, bytes: u64) -> Result<Allocation<D>> {
        let anchor = self.lease.anchor.clone();
        let context = &anchor.context;
        let record = Record::new();
        let mut may = MayWait::here()?;
        let is_ordered = context.capabilities.stream_ordered_memory;
        let address = if is_ordered {
            // The allocation is a submission that writes the buffer: whoever uses it elsewhere is ordered after it
            // (O1).
            context.guarded_scope(&mut may, Call::MallocAsync, || {
                let uses = [Use::new(&record, Access::Write)];
                let allocated = submit(context, &self.lease.state, &uses, Call::MallocAsync, |driver, stream| {
                    driver.malloc_async(stream, bytes)
                });
                Ok(allocated?.0)
            })?
        } else {
            context.guarded(&mut may, Call::Malloc, |driver| driver.malloc(bytes))?
        };
        if address.0 == 0 {
            // Some pools have been seen to say so when they are empty.
            let call = if is_ordered { Call::MallocAsync } else { Call::Malloc };
            return Err(Error::Driver(DriverFailure::null(call)));
        }
        Ok(Allocation::new(address, record, anchor))
    }
}
