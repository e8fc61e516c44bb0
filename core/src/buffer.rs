//! Device memory with a type: [`Buffer`], and views of parts of one.
//!
//! The borrow checker keeps safe programs from racing at the source: a launch takes `&mut` to write and `&` to read.
//! What it cannot see (views on two threads, second wraps, graphs) meets in the allocation's one [`Record`], which
//! serves all alike.

use std::marker::PhantomData;
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::{Argument, DeviceAddress, Driver};
use crate::error::{Error, Misuse, Result};
use crate::hold::MayWait;
use crate::id::ResourceId;
use crate::life::Phase;
use crate::ownership::{Access, Record};
use crate::pinned::PinLease;
use crate::reclaim::{Resource, Retired};
use crate::runtime::Element;
use crate::shared::Anchor;
use crate::sync::Arc;

/// One allocation of device memory.
#[derive(Debug)]
pub(crate) struct Allocation<D: Driver> {
    pub(crate) id: ResourceId,
    /// What the driver gave, and gets back.
    pub(crate) address: DeviceAddress,
    /// Where the elements begin.
    start: DeviceAddress,
    pub(crate) record: Record<D>,
    pub(crate) anchor: Arc<Anchor<D>>,
    /// Whether the driver has it back.
    is_freed: bool,
}

impl<D: Driver> Allocation<D> {
    /// What the driver just gave.
    pub(crate) fn new(address: DeviceAddress, record: Record<D>, anchor: Arc<Anchor<D>>) -> Self {
        Self { id: ResourceId::fresh(), address, start: address, record, anchor, is_freed: false }
    }

    /// The same, for elements that begin at a multiple of `align`. [`slack`] was allocated for that.
    pub(crate) fn aligned(mut self, align: usize) -> Self {
        if slack(align) > 0 {
            self.start = DeviceAddress(self.address.0.next_multiple_of(align as u64));
        }
        self
    }

    /// Gives it back here and now: the caller has waited for all its work. Where a capture forbids that, it is retired.
    fn free_now(mut self, may: &MayWait) -> Result<Freed> {
        let anchor = self.anchor.clone();
        if anchor.context.life.is_past(Phase::Shut) {
            return Err(Error::Closed);
        }
        match anchor.reclaim.free_now(&anchor.context, &anchor.pins, self.address, may) {
            None => Ok(Freed::Deferred),
            Some(answer) => {
                // Also where the driver refused: it is not asked again.
                self.is_freed = true;
                answer.map(|()| Freed::Now)
            }
        }
    }
}

/// How much more than its elements an allocation has to hold, for them to begin at a multiple of `align`.
pub(crate) fn slack(align: usize) -> usize {
    if align > DEVICE_ALIGNMENT { align - 1 } else { 0 }
}

/// What a driver aligns device memory to.
const DEVICE_ALIGNMENT: usize = 256;

impl<D: Driver> Drop for Allocation<D> {
    fn drop(&mut self) {
        if self.is_freed {
            return;
        }
        // O6: exclusive, since this was the last holder: everything submitted is in the record.
        let points = self.record.into_points();
        self.anchor.reclaim.retire(Retired { resource: Resource::Memory(self.address), points });
    }
}

/// What is behind a handle: shared by the handle, its views, and the graphs that use it. A program only ever borrows
/// one: an own copy would keep a scope's memory past its scope.
#[derive(Debug)]
pub struct Backing<D: Driver> {
    pub(crate) storage: Storage<D>,
    place: Place<D>,
}

/// What a [`Backing`] keeps alive.
#[derive(Debug)]
pub(crate) enum Storage<D: Driver> {
    /// Zero bytes: no driver ever sees it (O8), and nobody ever covers it.
    Nothing(Arc<Record<D>>),
    /// Device memory.
    Memory(Arc<Allocation<D>>),
    /// Registered host memory.
    Pin(Arc<PinLease<D>>),
}

/// What a launch wants of it, at hand without following it.
#[derive(Debug)]
struct Place<D: Driver> {
    // Never changed. Atomic only so that a launch reads it again after its driver call: kept across the call it is one
    // store more a buffer, and stores are what a launch is bound by.
    record: AtomicPtr<Record<D>>,
    base: DeviceAddress,
}

impl<D: Driver> Backing<D> {
    /// The same memory, kept for as long as the copy lives.
    pub(crate) fn share(&self) -> Self {
        Self::new(match &self.storage {
            Storage::Nothing(record) => Storage::Nothing(record.clone()),
            Storage::Memory(allocation) => Storage::Memory(allocation.clone()),
            Storage::Pin(lease) => Storage::Pin(lease.clone()),
        })
    }

    #[inline]
    pub(crate) fn new(storage: Storage<D>) -> Self {
        let (record, base) = match &storage {
            Storage::Nothing(record) => (&**record, DeviceAddress(0)),
            Storage::Memory(allocation) => (&allocation.record, allocation.start),
            Storage::Pin(lease) => (&lease.pin.record, lease.device),
        };
        let place = Place { record: AtomicPtr::new(std::ptr::from_ref(record).cast_mut()), base };
        Self { storage, place }
    }

    /// Who used it.
    #[inline]
    pub(crate) fn record(&self) -> &Record<D> {
        // Relaxed: nobody writes it.
        let record = self.place.record.load(Ordering::Relaxed);
        // SAFETY: O6. It lies behind the `Arc` that is stored here, so it stays, where it is, as long as this; and
        // whoever wants it exclusively must be the last to hold that.
        unsafe { &*record }
    }

    /// Whether it has no bytes: then nobody is ever ordered by its record.
    pub fn is_nothing(&self) -> bool {
        matches!(self.storage, Storage::Nothing(_))
    }

    /// Its identity.
    pub fn id(&self) -> Option<ResourceId> {
        match &self.storage {
            Storage::Nothing(_) => None,
            Storage::Memory(allocation) => Some(allocation.id),
            Storage::Pin(lease) => Some(lease.pin.id),
        }
    }

    /// Whether it belongs to this runtime.
    #[inline]
    pub(crate) fn is_of(&self, anchor: &Arc<Anchor<D>>) -> bool {
        match &self.storage {
            Storage::Nothing(_) => true,
            Storage::Memory(allocation) => Arc::ptr_eq(&allocation.anchor, anchor),
            Storage::Pin(lease) => Arc::ptr_eq(&lease.anchor, anchor),
        }
    }

    /// The part of it from `offset` on that holds `len` elements.
    #[inline]
    pub(crate) fn region<T>(&self, offset: u64, len: usize) -> Region<'_, D> {
        Region(Extent { backing: self, address: self.place.base.offset(offset), bytes: bytes_of::<T>(len) })
    }
}

/// A range of device-accessible memory, borrowed for one submission. Only memory of this crate has one; what it says,
/// it says by the fields of its [`Extent`], to be read and not changed.
#[derive(Debug)]
pub struct Region<'a, D: Driver>(Extent<'a, D>);

/// What a [`Region`] says of itself.
#[derive(Debug)]
#[non_exhaustive]
pub struct Extent<'a, D: Driver> {
    /// What it lies in.
    pub backing: &'a Backing<D>,
    /// The device's address of its first byte. The memory stays there as long as the borrow, and until submitted work
    /// that names it has completed.
    pub address: DeviceAddress,
    /// Its length in bytes.
    pub bytes: u64,
}

impl<D: Driver> Clone for Extent<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Extent<'_, D> {}

impl<'a, D: Driver> Deref for Region<'a, D> {
    type Target = Extent<'a, D>;

    #[inline]
    fn deref(&self) -> &Extent<'a, D> {
        &self.0
    }
}

impl<D: Driver> Clone for Region<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Region<'_, D> {}

impl<D: Driver> Region<'_, D> {
    /// The `bytes` bytes of it from `offset` on.
    ///
    /// # Errors
    /// `LengthMismatch`, in bytes, when they do not lie in it.
    pub fn part(&self, offset: u64, bytes: u64) -> Result<Self> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => {
                Ok(Self(Extent { address: self.address.offset(offset), bytes, ..self.0 }))
            }
            end => {
                let count = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
                let expected = count(end.unwrap_or(u64::MAX));
                Err(Misuse::LengthMismatch { expected, actual: count(self.bytes) }.into())
            }
        }
    }

    /// As an argument of a kernel.
    #[inline]
    pub fn argument(&self) -> Argument {
        Argument::Pointer { address: self.address, bytes: self.bytes }
    }
}

/// Memory that the device can read as elements of `T`. Buffers, pins and their views are; so may be a type of a
/// program's own that holds one of them.
///
/// # Safety
/// For as long as the borrow that `region` was called with:
/// - Every call of `region` gives the same range: that of memory that the value holds, or a part of it, at an offset that
///   is a multiple of `T`'s alignment.
/// - `element_count` elements of `T` are exactly as long as it.
pub unsafe trait Readable<T: Element, D: Driver> {
    /// The range.
    fn region(&self) -> Region<'_, D>;

    /// How many elements. To be said by those that can hold elements of no size; for all others it follows.
    fn element_count(&self) -> usize {
        let bytes = usize::try_from(self.region().bytes).unwrap_or(usize::MAX);
        bytes.checked_div(size_of::<T>()).unwrap_or(0)
    }
}

/// Memory that the device can also write.
///
/// # Safety
/// - The range is one that a [`Writable`] of this crate gave, and not memory that is only shared with the device
///   ([`SharedPinned`](crate::SharedPinned), [`ScopedShared`](crate::pinned::ScopedShared)).
pub unsafe trait Writable<T: Element, D: Driver>: Readable<T, D> {}

/// `len` elements of device memory.
///
/// Dropping it never waits (P7): the memory goes back when the work that uses it has completed. Forgetting it leaks it.
#[derive(Debug)]
pub struct Buffer<T: Element, D: Driver> {
    backing: Backing<D>,
    len: usize,
    element: PhantomData<T>,
}

/// What an explicit free came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Freed {
    /// It is done.
    Now,
    /// Something still uses it (a graph, another wrap, a capture that is going on): it happens when that ends.
    Deferred,
}

impl<T: Element, D: Driver> Buffer<T, D> {
    pub(crate) fn new(storage: Storage<D>, len: usize) -> Self {
        Self { backing: Backing::new(storage), len, element: PhantomData }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether work that uses the buffer may still run. May say so for too long, never for too short (O2).
    pub fn is_busy(&self) -> bool {
        self.backing.record().is_busy(Access::Write)
    }

    /// Waits until all work submitted so far that uses the buffer has completed.
    ///
    /// # Errors
    /// `Lost`, `StreamBroken`, the driver's; `Misuse::InsideHold` where the call could wait for its own thread.
    pub fn synchronize(&self) -> Result<()> {
        let (record, anchor) = match &self.backing.storage {
            Storage::Memory(allocation) => (&allocation.record, &allocation.anchor),
            Storage::Pin(lease) => (&lease.pin.record, &lease.anchor),
            Storage::Nothing(_) => return Ok(()),
        };
        record.wait(&anchor.context, Access::Write, &mut MayWait::here()?)
    }

    /// A part of the buffer, for reading.
    ///
    /// # Errors
    /// `LengthMismatch` when the range does not lie in the buffer.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T, D>> {
        View::part(&self.backing, self.len, &range)
    }

    /// A part of the buffer, for reading and writing.
    ///
    /// # Errors
    /// As for [`view`](Self::view).
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T, D>> {
        ViewMut::part(&self.backing, self.len, &range)
    }

    /// Two parts that lie side by side and can be written by two threads. The core orders uses of one allocation, so
    /// work on the two is ordered all the same.
    ///
    /// # Errors
    /// `LengthMismatch` when `middle` is past the end.
    pub fn split_at_mut(&mut self, middle: usize) -> Result<(ViewMut<'_, T, D>, ViewMut<'_, T, D>)> {
        let (start, len) = part(self.len, &(middle..))?;
        let view = |offset, len| ViewMut { backing: &self.backing, offset, len, element: PhantomData };
        Ok((view(0, start), view(bytes_of::<T>(start), len)))
    }

    /// Waits for all work that uses the buffer and gives the memory back.
    ///
    /// # Errors
    /// As for [`synchronize`](Self::synchronize). The memory is then kept, since it may be in use (P11).
    pub fn free(self) -> Result<Freed> {
        let Storage::Memory(allocation) = self.backing.storage else { return Ok(Freed::Now) };
        let mut may = MayWait::here()?;
        if may.is_in_capture() {
            return Ok(Freed::Deferred);
        }
        match Arc::try_unwrap(allocation) {
            Ok(allocation) => {
                let anchor = allocation.anchor.clone();
                allocation.record.wait(&anchor.context, Access::Write, &mut may)?;
                allocation.free_now(&may)
            }
            Err(_shared) => Ok(Freed::Deferred),
        }
    }
}

/// A part of a buffer, for reading.
#[derive(Debug)]
pub struct View<'a, T: Element, D: Driver> {
    backing: &'a Backing<D>,
    offset: u64,
    len: usize,
    element: PhantomData<T>,
}

/// A part of a buffer, for reading and writing.
#[derive(Debug)]
pub struct ViewMut<'a, T: Element, D: Driver> {
    backing: &'a Backing<D>,
    offset: u64,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element, D: Driver> Clone for View<'_, T, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element, D: Driver> Copy for View<'_, T, D> {}

impl<'a, T: Element, D: Driver> View<'a, T, D> {
    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn part(backing: &'a Backing<D>, whole: usize, range: &impl RangeBounds<usize>) -> Result<Self> {
        let (start, len) = part(whole, range)?;
        Ok(Self { backing, offset: bytes_of::<T>(start), len, element: PhantomData })
    }
}

impl<'a, T: Element, D: Driver> ViewMut<'a, T, D> {
    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn part(backing: &'a Backing<D>, whole: usize, range: &impl RangeBounds<usize>) -> Result<Self> {
        let (start, len) = part(whole, range)?;
        Ok(Self { backing, offset: bytes_of::<T>(start), len, element: PhantomData })
    }
}

// SAFETY: O6. The range of what the handle borrows or holds; `new` and `part` saw to it that it lies inside.
unsafe impl<T: Element, D: Driver> Readable<T, D> for Buffer<T, D> {
    #[inline]
    fn region(&self) -> Region<'_, D> {
        self.backing.region::<T>(0, self.len)
    }

    fn element_count(&self) -> usize {
        self.len
    }
}

// SAFETY: O6. Made from what its maker held as writable.
unsafe impl<T: Element, D: Driver> Writable<T, D> for Buffer<T, D> {}

// SAFETY: O6. The range of what the handle borrows or holds; `new` and `part` saw to it that it lies inside.
unsafe impl<T: Element, D: Driver> Readable<T, D> for View<'_, T, D> {
    #[inline]
    fn region(&self) -> Region<'_, D> {
        self.backing.region::<T>(self.offset, self.len)
    }

    fn element_count(&self) -> usize {
        self.len
    }
}

// SAFETY: O6. The range of what the handle borrows or holds; `new` and `part` saw to it that it lies inside.
unsafe impl<T: Element, D: Driver> Readable<T, D> for ViewMut<'_, T, D> {
    #[inline]
    fn region(&self) -> Region<'_, D> {
        self.backing.region::<T>(self.offset, self.len)
    }

    fn element_count(&self) -> usize {
        self.len
    }
}

// SAFETY: O6. Made from what its maker held as writable.
unsafe impl<T: Element, D: Driver> Writable<T, D> for ViewMut<'_, T, D> {}

/// The size of `len` elements that exist, so that it fits.
#[inline]
pub(crate) fn bytes_of<T>(len: usize) -> u64 {
    (len * size_of::<T>()) as u64
}

fn part(len: usize, range: &impl RangeBounds<usize>) -> Result<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    // None: past the last index that there is.
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok((start, end - start)),
        _ => {
            let expected = start.unwrap_or(usize::MAX).max(end.unwrap_or(usize::MAX));
            Err(Misuse::LengthMismatch { expected, actual: len }.into())
        }
    }
}
