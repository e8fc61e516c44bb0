//! What takes work: [`Stream`](crate::Stream), which runs it, and a capture, which records it. Code for both takes `&impl Queue`.

use crate::buffer::Buffer;
use crate::driver::{Call, Driver, HostPointer, LaunchConfig, Location};
use crate::error::{Error, Misuse, Result};
use crate::kernel::{Kernel, KernelArguments};
use crate::memory::{Backing, Element, Readable, Region, Storage, Writable};
pub use crate::memory::{Memory, UseSet};
use crate::sealed::Sealed;
use crate::shared::Anchor;
use crate::sync::Arc;
use std::ptr::NonNull;

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
        uses: impl UseSet<Memory<'a, D>, D>,
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

    /// Allocates so many bytes, not none, for elements of this alignment; outside of what a capture records.
    ///
    /// # Errors
    /// Those of [`Queue::alloc`].
    #[doc(hidden)]
    fn allocate(&self, bytes: usize, align: usize) -> Result<Backing<D>>;

    /// Copies what `from` holds now to `to`, which is as long and not empty.
    ///
    /// # Safety
    /// - The device may write `to`: it is of a [`Writable`].
    ///
    /// # Errors
    /// Those of [`Queue::write`].
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
        arguments: impl KernelArguments<'a, S, D>,
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
        // SAFETY: O1, C4. One kernel, which touches what its arguments name, as `KernelArguments` vouches; its code stays, since
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
            return Ok(Buffer::new(Backing::new(Storage::Empty(Arc::default())), len));
        }
        self.anchor().check_open()?;
        Ok(Buffer::new(self.allocate(bytes, align_of::<T>())?, len))
    }

    /// Allocates a buffer and copies `from` to it. See [`write`](Self::write).
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc).
    fn upload<T: Element>(&self, from: &[T]) -> Result<Buffer<T, D>> {
        let mut buffer = self.alloc(from.len())?;
        self.write(from, &mut buffer)?;
        Ok(buffer)
    }
}

impl<D: Driver, Q: Submit<D>> Queue<D> for Q {}

/// `len` elements that have no bytes: one by one, as many as there may be of them would not come to an end.
#[allow(clippy::uninit_vec, reason = "there are no bytes to initialize")]
pub(crate) fn without_bytes<T: Element>(len: usize) -> Vec<T> {
    let mut elements = Vec::new();
    // SAFETY: O8. Either none, or of no size: there is room for any number, and nothing to be written.
    unsafe { elements.set_len(len) };
    elements
}

/// In elements, since those of no size have no bytes to compare.
pub(crate) fn same_length(expected: usize, actual: usize) -> Result<()> {
    match expected == actual {
        true => Ok(()),
        false => Err(Misuse::LengthMismatch { expected, actual }.into()),
    }
}

#[cold]
pub(crate) fn foreign() -> Error {
    Misuse::ForeignRuntime.into()
}

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
