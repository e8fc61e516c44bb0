//! Device memory with a type: [`Buffer`], and views of parts of one.
//!
//! The borrow checker keeps safe programs from racing at the source: a launch takes `&mut` to write and `&` to read.
//! What it cannot see (views on two threads, second wraps, graphs) meets in the allocation's one [`Record`](crate::ownership::Record), which
//! serves all alike.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::call_scope::MayWait;
use crate::driver::Driver;
use crate::error::{Misuse, Result};
pub use crate::memory::{Backing, Extent, Freed, Readable, Region, Writable};
use crate::memory::{Element, Storage, bytes_of};
use crate::ownership::Access;
use crate::sync::Arc;

/// `len` elements of device memory.
///
/// Dropping it never waits (P7): the memory goes back when the work that uses it has completed. Forgetting it leaks it.
#[derive(Debug)]
pub struct Buffer<T: Element, D: Driver> {
    backing: Backing<D>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element, D: Driver> Buffer<T, D> {
    pub(crate) fn new(backing: Backing<D>, len: usize) -> Self {
        Self { backing, len, element: PhantomData }
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
            Storage::Empty(_) => return Ok(()),
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
    /// Those of [`view`](Self::view).
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
    /// Those of [`synchronize`](Self::synchronize). The memory is then kept, since it may be in use (P11).
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
