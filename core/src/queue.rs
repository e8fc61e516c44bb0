//! What takes work: [`Stream`], which runs it, and a capture, which records it. Code for both takes `&impl Queue`.

use smallvec::SmallVec;

use crate::buffer::{Allocation, Backing, Buffer, Readable, Region, Storage, Writable, slack};
use crate::driver::{
    Call, DeviceAddress, Driver, ErrorKind, HostAccess, HostPointer, LaunchConfig, Location, Progress,
};
use crate::error::{DriverFailure, Error, Misuse, Result};
use crate::event::Event;
use crate::future::{Completion, Download};
use crate::hold::{MayWait, Place, within};
use crate::id::StreamId;
use crate::kernel::{Arguments, Kernel};
use crate::ownership::{Access, Point, Points, Record, Records, Use, submit, submit_covered, submit_moving};
use crate::reclaim::{Ask, Resource, Retired};
use crate::runtime::Element;
use crate::sealed::Sealed;
use crate::shared::Anchor;
use crate::staging::{Reading, Staged};
use crate::stream::adoption::EndedAdoption;
use crate::stream::{Role, StreamState};
use crate::sync::Arc;
use std::ptr::NonNull;

/// One argument's memory, and what the submission does with it.
#[derive(Debug)]
pub struct Memory<'a, D: Driver> {
    pub(crate) backing: &'a Backing<D>,
    pub(crate) access: Access,
}

impl<D: Driver> Clone for Memory<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Memory<'_, D> {}

/// The memory of one submission: an argument's, a tuple or an array of such, or a slice. This crate alone implements it.
pub trait UseSet<'a, D: Driver>: Records<D> + Copy {
    /// Visits each piece that has bytes.
    fn visit(&self, act: &mut impl FnMut(Memory<'a, D>));
}

impl<D: Driver> Sealed for Memory<'_, D> {}
impl<D: Driver> Sealed for &[Memory<'_, D>] {}
impl<D: Driver, const N: usize> Sealed for [Memory<'_, D>; N] {}

impl<D: Driver> Records<D> for Memory<'_, D> {
    #[inline]
    fn all_outright(&self, stream: u64) -> bool {
        self.backing.record().cover.is_of(stream)
    }

    #[inline]
    fn stamp_outright(&self, number: u64) {
        self.backing.record().cover.stamp(self.access, number);
    }

    #[inline]
    fn all(&self, test: impl Fn(&Record<D>, Access) -> bool + Copy) -> bool {
        // Nothing has a record that nobody covers: it is asked about last.
        test(self.backing.record(), self.access) || self.backing.is_nothing()
    }

    #[inline]
    fn each(&self, act: impl Fn(&Record<D>, Access) + Copy) {
        act(self.backing.record(), self.access);
    }
}

impl<'a, D: Driver> UseSet<'a, D> for Memory<'a, D> {
    #[inline]
    fn visit(&self, act: &mut impl FnMut(Self)) {
        if !self.backing.is_nothing() {
            act(*self);
        }
    }
}

impl<D: Driver> Records<D> for &[Memory<'_, D>] {
    #[inline]
    fn all_outright(&self, stream: u64) -> bool {
        // Nothing at all is not covered: it would not show that the stream is closed (R5).
        !self.is_empty() && self.iter().all(|memory| memory.all_outright(stream))
    }

    #[inline]
    fn stamp_outright(&self, number: u64) {
        self.iter().for_each(|memory| memory.stamp_outright(number));
    }

    #[inline]
    fn all(&self, test: impl Fn(&Record<D>, Access) -> bool + Copy) -> bool {
        self.iter().all(|memory| memory.all(test))
    }

    #[inline]
    fn each(&self, act: impl Fn(&Record<D>, Access) + Copy) {
        self.iter().for_each(|memory| memory.each(act));
    }
}

impl<D: Driver, const N: usize> Records<D> for [Memory<'_, D>; N] {
    #[inline]
    fn all_outright(&self, stream: u64) -> bool {
        self.as_slice().all_outright(stream)
    }

    #[inline]
    fn stamp_outright(&self, number: u64) {
        self.as_slice().stamp_outright(number);
    }

    #[inline]
    fn all(&self, test: impl Fn(&Record<D>, Access) -> bool + Copy) -> bool {
        self.as_slice().all(test)
    }

    #[inline]
    fn each(&self, act: impl Fn(&Record<D>, Access) + Copy) {
        self.as_slice().each(act);
    }
}

impl<'a, D: Driver, const N: usize> UseSet<'a, D> for [Memory<'a, D>; N] {
    fn visit(&self, act: &mut impl FnMut(Memory<'a, D>)) {
        self.as_slice().visit(act);
    }
}

impl<'a, D: Driver> UseSet<'a, D> for &[Memory<'a, D>] {
    fn visit(&self, act: &mut impl FnMut(Memory<'a, D>)) {
        self.iter().for_each(|memory| memory.visit(act));
    }
}

impl<'a, D: Driver> Memory<'a, D> {
    /// Memory that is only read.
    #[inline]
    pub fn read(backing: &'a Backing<D>) -> Self {
        Self::new(backing, Access::Read)
    }

    /// Memory that is written, and perhaps read.
    #[inline]
    pub fn write(backing: &'a Backing<D>) -> Self {
        Self::new(backing, Access::Write)
    }

    /// Memory that is accessed so.
    #[inline]
    pub fn new(backing: &'a Backing<D>, access: Access) -> Self {
        Self { backing, access }
    }
}

/// The part of a queue that knows where a submission goes. This crate alone implements it.
pub trait Submit<D: Driver>: Sealed {
    /// The runtime that it belongs to.
    fn anchor(&self) -> &Arc<Anchor<D>>;

    /// Makes one submission that uses `uses`, with a driver call of the caller's; returns its number. `enqueue` runs once
    /// or not at all, and nobody else submits to the stream meanwhile.
    ///
    /// # Safety
    /// - `enqueue` puts one submission on the given stream, and nothing else anywhere, or fails and puts none.
    /// - That submission touches no memory but that of `uses`, in these ways, and memory of the caller's own. The
    ///   latter, and code that it runs, stays until it has completed ([`keep`](Self::keep)); in a capture, until the
    ///   graph and its executables are gone and their launches have completed.
    /// - `enqueue` does not wait for the device, begin or end a capture, or keep or destroy the stream.
    ///
    /// # Errors
    /// When `enqueue` or an edge failed, or the call cannot be made here. Nothing was submitted then.
    unsafe fn submit_raw<'a, R>(
        &self,
        uses: impl UseSet<'a, D>,
        call: Call,
        enqueue: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> Result<(R, u64)>
    where
        D: 'a;

    /// Keeps the code of `kernel` for as long as what is submitted here may run it. A stream needs nothing for that:
    /// the module itself waits for what streams have accepted (C4).
    fn keep_code<S>(&self, kernel: &Kernel<S, D>);

    /// Keeps `memory` until submission `number` can no longer touch it.
    fn keep(&self, memory: Box<dyn std::any::Any + Send>, number: u64);

    /// A stream that executes, for what a capture must not record.
    ///
    /// # Errors
    /// As [`Runtime::stream`](crate::Runtime::stream).
    fn executing(&self) -> Result<Stream<D>>;

    /// Copies what `from` holds now to `to`, which is as long and not empty.
    ///
    /// # Safety
    /// - The device may write `to`: it is of a [`Writable`].
    ///
    /// # Errors
    /// As for [`Queue::write`].
    #[doc(hidden)]
    unsafe fn write_bytes(&self, from: &[u8], to: Region<'_, D>) -> Result<()>;
}

/// What takes work. Every call is ordered after what conflicts with it, whatever thread and stream that came from (O1),
/// and returns without waiting for the device, unless the stream's queue is full.
///
/// # Errors
/// Every method: the driver's; `Lost`; `StreamBroken` when a stream that the memory was used on failed; `Misuse` for
/// memory of another runtime, memory that the host has a view of, or a call inside a `use_on` closure that would wait.
pub trait Queue<D: Driver>: Submit<D> {
    /// Starts a kernel.
    ///
    /// # Errors
    /// See the trait.
    // Always: what it packs is put together in registers only where it is inlined, which saves a third of a launch.
    #[inline(always)]
    fn launch<'a, S>(
        &self,
        kernel: &Kernel<S, D>,
        config: LaunchConfig,
        arguments: impl Arguments<'a, S, D>,
    ) -> Result<()>
    where
        D: 'a,
    {
        if !kernel.is_of(self.anchor()) {
            return Err(foreign());
        }
        self.keep_code(kernel);
        let (uses, values) = arguments.pack();
        let enqueue = |driver: &D, stream: &D::Stream| {
            // SAFETY: O6, C4. `Module::kernel` vouched for the signature; each pointer's memory stays until this
            // submission, or the graph that recorded it, is done: the record has its number, or the graph its backing.
            unsafe { driver.launch(stream, &kernel.function, &config, values.as_ref()) }
        };
        // SAFETY: O1, C4. One kernel, which touches what its arguments name, as `Arguments` vouches; its code stays, since
        // its module is of this runtime, and a capture keeps it.
        unsafe { self.submit_raw(uses, Call::Launch, enqueue) }?;
        Ok(())
    }

    /// Copies all of `from` to all of `to`.
    ///
    /// # Errors
    /// See the trait; `Misuse::LengthMismatch`.
    fn copy<T: Element>(&self, from: &impl Readable<T, D>, to: &mut impl Writable<T, D>) -> Result<()> {
        let (from_region, to_region) = (from.region(), to.region());
        same_length(from.element_count(), to.element_count())?;
        if from_region.bytes == 0 {
            return Ok(());
        }
        let uses = [Memory::read(from_region.backing), Memory::write(to_region.backing)];
        let enqueue = |driver: &D, stream: &D::Stream| {
            let (to, from) = (Location::Device(to_region.address), Location::Device(from_region.address));
            // SAFETY: O6, C4. Both regions lie in their backings, which stay as in `launch`.
            unsafe { driver.copy(stream, to, from, from_region.bytes) }
        };
        // SAFETY: O1. One copy, between what `uses` names.
        unsafe { self.submit_raw(uses, Call::Copy, enqueue) }?;
        Ok(())
    }

    /// Sets every byte of `to`.
    ///
    /// # Errors
    /// See the trait.
    fn fill<T: Element>(&self, to: &mut impl Writable<T, D>, byte: u8) -> Result<()> {
        let region = to.region();
        if region.bytes == 0 {
            return Ok(());
        }
        let enqueue = |driver: &D, stream: &D::Stream| {
            // SAFETY: O6, C4. The region lies in its backing, which stays as in `launch`.
            unsafe { driver.fill(stream, region.address, byte, region.bytes) }
        };
        // SAFETY: O1. One fill, of what the use names.
        unsafe { self.submit_raw(Memory::write(region.backing), Call::Fill, enqueue) }?;
        Ok(())
    }

    /// Copies `from` to the device. What is copied is what `from` holds now: it is snapshotted, and free for use when
    /// the call returns. A graph replays the snapshot (C10).
    ///
    /// The snapshot is page-locked memory of the runtime's ([`Config::staging_max`](crate::Config::staging_max)), so the
    /// call does not wait for the device (T3). Where there is no room it waits for earlier copies, and goes in parts,
    /// which a graph that another thread launches may come between. The bytes are copied twice, once by this thread:
    /// from some hundred KiB on that is most of the cost, and [`copy`](Self::copy) from a [`Pinned`](crate::Pinned)
    /// saves it.
    ///
    /// # Errors
    /// See the trait; `Misuse::LengthMismatch`; `Misuse::InsideHold` in a `use_on` closure without room; out of memory
    /// where no page-locked memory is to be had. When the driver fails later parts of a copy, the first were made.
    fn write<T: Element>(&self, from: &[T], to: &mut impl Writable<T, D>) -> Result<()> {
        let region = to.region();
        same_length(from.len(), to.element_count())?;
        if region.bytes == 0 {
            return Ok(());
        }
        // SAFETY: O6. The region is of what is writable, and as long as `from`.
        unsafe { self.write_bytes(bytemuck::cast_slice(from), region) }
    }

    /// Allocates `len` elements of device memory, of unspecified contents. In a capture too it comes from outside the
    /// graph, so it lives as long as its handle and whatever uses it.
    ///
    /// # Errors
    /// See the trait; `Misuse::SizeOverflow`; out of memory, after what is retired was released.
    fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T, D>> {
        // No more than the host could ever read of it.
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(Misuse::SizeOverflow)?;
        if bytes == 0 {
            return Ok(Buffer::new(Storage::Nothing(Arc::default()), len));
        }
        self.anchor().check_open()?;
        let stream = self.executing()?;
        let allocation = stream.allocate((bytes + slack(align_of::<T>())) as u64)?.aligned(align_of::<T>());
        Ok(Buffer::new(Storage::Memory(Arc::new(allocation)), len))
    }

    /// Allocates a buffer and copies `from` to it. See [`write`](Self::write).
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc).
    fn upload<T: Element>(&self, from: &[T]) -> Result<Buffer<T, D>> {
        let mut buffer = self.alloc(from.len())?;
        self.write(from, &mut buffer)?;
        Ok(buffer)
    }
}

impl<D: Driver, Q: Submit<D>> Queue<D> for Q {}

/// How many moments of 50 microseconds an allocation that is short of memory gives to whoever is on turn.
const MOMENTS_MAX: u32 = 200;

/// `len` elements that have no bytes: one by one, as many as there may be of them would not come to an end.
#[allow(clippy::uninit_vec, reason = "there are no bytes to initialize")]
fn without_bytes<T: Element>(len: usize) -> Vec<T> {
    let mut elements = Vec::new();
    // SAFETY: O8. Either none, or of no size: there is room for any number, and nothing to be written.
    unsafe { elements.set_len(len) };
    elements
}

/// In elements, since those of no size have no bytes to compare.
fn same_length(expected: usize, actual: usize) -> Result<()> {
    match expected == actual {
        true => Ok(()),
        false => Err(Misuse::LengthMismatch { expected, actual }.into()),
    }
}

#[cold]
fn foreign() -> Error {
    Misuse::ForeignRuntime.into()
}

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
                self.state.resign_gate();
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
        uses: impl UseSet<'a, D>,
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

    fn executing(&self) -> Result<Stream<D>> {
        Ok(self.clone())
    }

    unsafe fn write_bytes(&self, from: &[u8], to: Region<'_, D>) -> Result<()> {
        let (shared, stream) = (&**self.lease.anchor, &self.lease.state);
        let mut rest = from;
        while !rest.is_empty() {
            let at = (from.len() - rest.len()) as u64;
            let Some(mut staged) = shared.staging.take(shared, stream, rest.len())? else {
                let (kept, host) = snapshot(rest);
                // SAFETY: O6, C10. As for the whole; the snapshot is what is kept.
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
enum Way {
    /// To the device.
    Up,
    /// From it.
    Down,
}

/// What was submitted: its staging memory, its point, and whether all of its copies were accepted.
type Submitted<'a, D> = (Staged<'a, D>, Point<D>, Result<()>);

/// A copy of `from` in pageable memory, and where it lies.
pub(crate) fn snapshot(from: &[u8]) -> (Box<dyn std::any::Any + Send>, HostPointer) {
    let mut snapshot = from.to_vec();
    let host = HostPointer(NonNull::from(&mut *snapshot).cast());
    (Box::new(snapshot), host)
}

/// Copies from `host`, which `kept` keeps, to `to`.
///
/// # Safety
/// - `to` may be written, and `kept` has as many bytes at `host`.
pub(crate) unsafe fn write_kept<D: Driver>(
    queue: &impl Submit<D>,
    kept: Box<dyn std::any::Any + Send>,
    host: HostPointer,
    to: Region<'_, D>,
) -> Result<()> {
    let enqueue = |driver: &D, stream: &D::Stream| {
        // SAFETY: O6, C10. What is at `host` is kept until the copy has completed, or by the graph; the region as in
        // `launch`.
        unsafe { driver.copy(stream, Location::Device(to.address), Location::Host(host), to.bytes) }
    };
    // SAFETY: O1, C10. One copy, to what the use names, from what is kept right after.
    let (_, number) = unsafe { queue.submit_raw(Memory::write(to.backing), Call::Copy, enqueue) }?;
    queue.keep(kept, number);
    Ok(())
}

impl<D: Driver> Stream<D> {
    pub(crate) fn new(anchor: Arc<Anchor<D>>, state: Arc<StreamState<D>>) -> Self {
        Self { lease: Arc::new(Lease { state, anchor }) }
    }

    /// The slow way. Memory of another runtime always comes here: only a stream that passed this test ever covers.
    #[cold]
    fn submit_uncovered<'a, R>(
        &self,
        uses: impl UseSet<'a, D>,
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
    fn end(&self) -> Point<D> {
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
    /// As for [`Queue`] and [`synchronize`](Self::synchronize).
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
    unsafe fn copy_down(&self, from: Region<'_, D>, host: HostPointer) -> Result<(Point<D>, Result<()>)> {
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
    unsafe fn submit_staged<'s>(
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

    /// Copies `from` to the host; the future gives the elements once they are there. Dropping or forgetting it is
    /// harmless (R4).
    ///
    /// The device copies to page-locked memory of the runtime's ([`Config::staging_max`](crate::Config::staging_max)), so
    /// the call does not wait for it (T3); whoever polls or waits copies the elements out. Where there is no room the
    /// call waits for earlier copies, and goes in parts, which a graph that another thread launches may come between.
    /// From some hundred KiB on [`copy`](Queue::copy) to a [`Pinned`](crate::Pinned) saves the second copy.
    ///
    /// # Errors
    /// As for [`Queue`]; `Misuse::InsideHold` in a `use_on` closure without room; out of memory where no page-locked
    /// memory is to be had.
    pub fn download<T: Element>(&self, from: &impl Readable<T, D>) -> Result<Download<T, D>> {
        let (region, len) = (from.region(), from.element_count());
        if region.bytes == 0 {
            return Ok(Download::new(self, without_bytes(len), len));
        }
        let mut download = Download::new(self, Vec::with_capacity(len), len);
        // A failure drops it, and what is on its way stays until it has arrived.
        self.send(region, &mut download)?;
        Ok(download)
    }

    fn send<T: Element>(&self, from: Region<'_, D>, download: &mut Download<T, D>) -> Result<()> {
        let (shared, stream) = (&**self.lease.anchor, &self.lease.state);
        let bytes = usize::try_from(from.bytes).map_err(|_| Misuse::SizeOverflow)?;
        let mut at = 0;
        while at < bytes {
            let address = from.address.offset(at as u64);
            let Some(staged) = shared.staging.take(shared, stream, bytes - at)? else {
                let rest = from.part(at as u64, (bytes - at) as u64)?;
                // SAFETY: O6, R4. `Download` keeps its memory until the copy has completed, even when it is dropped.
                let (point, copied) = unsafe { self.copy_down(rest, download.place(at)) }?;
                download.expect_direct(point);
                return copied;
            };
            let part = staged.bytes;
            // SAFETY: O6, T1. The part lies in the region; it is given back once it was copied out, or by its point.
            let (staged, point, copied) =
                unsafe { self.submit_staged(staged, Memory::read(from.backing), address, Way::Down) }?;
            staged.have_told(shared, stream);
            download.expect(staged, point, at);
            copied?;
            at += part;
        }
        Ok(())
    }

    /// A future of the completion of all work submitted so far.
    pub fn completion(&self) -> Completion<D> {
        let mut points = Points::new();
        points.push(self.end());
        Completion::new(&self.lease.anchor, points)
    }

    /// Marks the present end of the stream.
    ///
    /// # Errors
    /// `Lost`, the driver's.
    pub fn record(&self) -> Result<Event<D>> {
        Event::record(self, crate::driver::Timing::Disabled)
    }

    /// Marks the present end of the stream, with the time at which it is reached.
    ///
    /// # Errors
    /// As for [`record`](Self::record).
    pub fn record_timed(&self) -> Result<Event<D>> {
        Event::record(self, crate::driver::Timing::Enabled)
    }

    /// Orders all later work of this stream after `event`.
    ///
    /// # Errors
    /// The driver's; `Misuse::ForeignRuntime`.
    pub fn wait_event(&self, event: &Event<D>) -> Result<()> {
        event.order_before(self)
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
    /// As for [`Queue`]; then `body` was not run. What `body` itself returns is the call's value.
    ///
    /// # Panics
    /// When `body` does; its work counts as submitted.
    pub unsafe fn use_on<R>(&self, uses: &[(Region<'_, D>, Access)], body: impl FnOnce(&D::Stream) -> R) -> Result<R> {
        let uses: SmallVec<[Memory<'_, D>; 16]> =
            uses.iter().map(|(region, access)| Memory::new(region.backing, *access)).collect();
        let enqueue = |_: &D, raw: &D::Stream| {
            Ok(within(Place::Hold, || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(raw)))))
        };
        // SAFETY: O1. The caller vouches that `body` touches what `uses` names, on this stream. It may put any number of
        // submissions there, and have left some behind where it unwinds: it always counts as submitted.
        let (outcome, _) = unsafe { self.submit_raw(uses.as_slice(), Call::Launch, enqueue) }?;
        outcome.map_err(|panic| std::panic::resume_unwind(panic))
    }

    /// Allocates in the order of this stream. When memory is short, first what is retired goes, then what this stream's
    /// own work still holds up.
    fn allocate(&self, bytes: u64) -> Result<Allocation<D>> {
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
