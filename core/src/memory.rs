//! Memory that the device reaches, whichever kind it is of: an [`Allocation`], or registered host memory. What submissions use
//! of it are [`Region`]s.

use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::{Argument, DeviceAddress, Driver};
use crate::error::{Misuse, Result};
use crate::id::ResourceId;
use crate::ownership::Record;
use crate::shared::Anchor;
use crate::sync::Arc;

mod allocation;
mod lease;
mod uses;

pub use self::allocation::Freed;
pub(crate) use self::allocation::{Allocation, slack};
pub(crate) use self::lease::{PinLease, inside, retire, retire_owner};
pub use self::uses::{Memory, UseSet};

/// Elements of buffers: plain data, any bit pattern valid.
pub trait Element: bytemuck::Pod + Send + Sync {}
impl<T: bytemuck::Pod + Send + Sync> Element for T {}

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
    Empty(Arc<Record<D>>),
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
            Storage::Empty(record) => Storage::Empty(record.clone()),
            Storage::Memory(allocation) => Storage::Memory(allocation.clone()),
            Storage::Pin(lease) => Storage::Pin(lease.clone()),
        })
    }

    #[inline]
    pub(crate) fn new(storage: Storage<D>) -> Self {
        let (record, base) = match &storage {
            Storage::Empty(record) => (&**record, DeviceAddress(0)),
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
    pub fn is_empty(&self) -> bool {
        matches!(self.storage, Storage::Empty(_))
    }

    /// Its identity.
    pub fn id(&self) -> Option<ResourceId> {
        match &self.storage {
            Storage::Empty(_) => None,
            Storage::Memory(allocation) => Some(allocation.id),
            Storage::Pin(lease) => Some(lease.pin.id),
        }
    }

    /// Whether it belongs to this runtime.
    #[inline]
    pub(crate) fn is_of(&self, anchor: &Arc<Anchor<D>>) -> bool {
        match &self.storage {
            Storage::Empty(_) => true,
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

/// The size of `len` elements that exist, so that it fits.
#[inline]
pub(crate) fn bytes_of<T>(len: usize) -> u64 {
    (len * size_of::<T>()) as u64
}
