//! Host memory that the device reaches: [`Pinned`], and the ways to get one.
//!
//! - [`Runtime::wrap`] takes a `Vec` or a box and gives it back by [`Pinned::into_owner`];
//! - [`Runtime::wrap_shared`] takes an `Arc<[T]>`, which the device may only read;
//! - [`Runtime::wrap_read_only`] takes memory that is not to be written, and gives it back;
//! - [`Runtime::scope`] borrows, and waits at the end;
//! - [`Runtime::wrap_raw`] takes a pointer, and is `unsafe`;
//! - [`Runtime::alloc_host`] lets the driver allocate.
//!
//! Nothing is copied. The memory stays where it is, registered and alive, until the device is done with it, whatever
//! becomes of the handles (P4, R4).

use std::any::Any;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;

use crate::buffer::{View, ViewMut};
use crate::call_scope::MayWait;
use crate::driver::{Call, Driver, HostAccess, HostPointer};
use crate::error::{Error, Misuse, PinError, Result};
use crate::memory::{
    Backing, Element, Freed, PinLease, Readable, Region, Storage, Writable, inside, retire, retire_owner,
};
use crate::ownership::Access;
use crate::process::Alike;
use crate::registration::state::ScopeId;
use crate::registration::{HostRange, Owner, Pin, Released, Request, device_address, drop_owners};
use crate::runtime::Runtime;
use crate::shared::Anchor;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, thread};

/// Memory that can be handed to [`Runtime::wrap`].
///
/// # Safety
/// - `range` names memory that the value owns, exclusively, and that stays where it is when the value is moved.
/// - The memory is valid for reads, and written by nobody else, for as long as the value lives; also for writes, unless the
///   value is only given to [`Runtime::wrap_read_only`].
pub unsafe trait HostMemory: Send + 'static {
    /// The type of its elements.
    type Item: Element;

    /// Its first element and its length.
    fn range(&mut self) -> (NonNull<Self::Item>, usize);
}

// SAFETY: P4. A vector owns its heap block, which does not move with it.
unsafe impl<T: Element> HostMemory for Vec<T> {
    type Item = T;

    fn range(&mut self) -> (NonNull<T>, usize) {
        (NonNull::from(&mut **self).cast(), self.len())
    }
}

// SAFETY: P4. A box owns its heap block, which does not move with it.
unsafe impl<T: Element> HostMemory for Box<[T]> {
    type Item = T;

    fn range(&mut self) -> (NonNull<T>, usize) {
        (NonNull::from(&mut **self).cast(), self.len())
    }
}

/// A wrap that failed, with what was to be wrapped.
#[derive(Debug)]
pub struct WrapError<O> {
    /// Why.
    pub error: Error,
    /// What was given.
    pub owner: Returned<O>,
}

/// What was to be wrapped, given back; unless the driver may have registered its memory all the same, and would not undo
/// that: then it is kept forever, since memory lives at least as long as it is registered (P4, P9).
#[derive(Debug)]
pub struct Returned<O>(Option<O>);

impl<O> Returned<O> {
    /// What was given, or nothing where it is kept.
    pub fn into_inner(self) -> Option<O> {
        self.0
    }

    /// Whether it is kept, because the driver may still have its memory.
    pub fn is_kept(&self) -> bool {
        self.0.is_none()
    }
}

/// # Panics
/// Where it [is kept](Self::is_kept): a driver failed a register after its effect, or failed to undo one.
impl<O> Deref for Returned<O> {
    type Target = O;

    fn deref(&self) -> &O {
        self.0.as_ref().expect("the memory is kept, since the driver may have it: see `Returned::is_kept`")
    }
}

impl<O: PartialEq<U>, U> PartialEq<U> for Returned<O> {
    fn eq(&self, other: &U) -> bool {
        self.0.as_ref().is_some_and(|owner| owner == other)
    }
}

// SAFETY: P4. It owns what it holds, and has no bytes where it holds nothing.
unsafe impl<O: HostMemory> HostMemory for Returned<O> {
    type Item = O::Item;

    fn range(&mut self) -> (NonNull<O::Item>, usize) {
        self.0.as_mut().map_or((NonNull::dangling(), 0), O::range)
    }
}

impl<O> std::fmt::Display for WrapError<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

/// It has no source: its text is that of the error in it.
impl<O: std::fmt::Debug> std::error::Error for WrapError<O> {}

impl<O> From<WrapError<O>> for Error {
    fn from(wrap: WrapError<O>) -> Self {
        wrap.error
    }
}

/// `len` elements of host memory that the device can read and write.
#[derive(Debug)]
pub struct Pinned<T: Element, D: Driver> {
    backing: Backing<D>,
    start: HostPointer,
    len: usize,
    // An owner that never reached the driver, because it has no bytes.
    empty: std::sync::Mutex<Owner>,
    element: PhantomData<T>,
}

/// `len` elements of host memory that the device can only read, since others may be reading it too.
#[derive(Debug)]
pub struct SharedPinned<T: Element, D: Driver>(Pinned<T, D>);

impl<T: Element, D: Driver> Deref for SharedPinned<T, D> {
    type Target = Pinned<T, D>;

    fn deref(&self) -> &Pinned<T, D> {
        &self.0
    }
}

impl<D: Driver> Runtime<D> {
    /// Allocates `len` elements of page-locked host memory, zeroed, which the device reaches as well. None of it
    /// touches the driver when `len` is 0.
    ///
    /// # Errors
    /// `Misuse::SizeOverflow`; the driver's.
    pub fn alloc_host<T: Element>(&self, len: usize) -> Result<Pinned<T, D>> {
        self.anchor.check_open()?;
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(Misuse::SizeOverflow)?;
        if bytes == 0 {
            return Ok(Pinned::empty(len));
        }
        let mut may = MayWait::here()?;
        let range = self.alloc_aligned(bytes, align_of::<T>(), &mut may)?;
        let context = &self.anchor.context;
        let device = device_address(context, range.base);
        let pin = device.and_then(|device| Ok(self.anchor.pins.adopt_allocated(context, range, device, &may)?));
        match pin {
            Ok(pin) => {
                let start = range.base.offset(to_alignment(range.base, align_of::<T>()));
                // SAFETY: P4. The driver just gave these bytes to us alone: there is room for the alignment before them.
                unsafe { start.0.as_ptr().write_bytes(0, bytes) };
                Ok(Pinned::new(self.anchor.clone(), pin, None, false, start, len))
            }
            Err(error) => {
                self.free_unused(range, &mut may);
                Err(error)
            }
        }
    }

    /// Page-locked memory with `bytes` bytes from an address on that is a multiple of `align`. A driver aligns for what is
    /// usual; more is asked for where that is not enough.
    fn alloc_aligned(&self, bytes: usize, align: usize, may: &mut MayWait) -> Result<HostRange> {
        let alloc = |bytes: usize, may: &mut MayWait| {
            let base = self.anchor.context.guarded(may, Call::HostAlloc, |driver| driver.host_alloc(bytes));
            base.map(|base| HostRange { base, bytes })
        };
        let range = alloc(bytes, may)?;
        if to_alignment(range.base, align) == 0 {
            return Ok(range);
        }
        self.free_unused(range, may);
        alloc(bytes.checked_add(align).ok_or(Misuse::SizeOverflow)?, may)
    }

    #[cold]
    fn free_unused(&self, range: HostRange, may: &mut MayWait) {
        // SAFETY: P5. From `host_alloc`, used by nothing yet, and freed only here.
        let freed = self.anchor.context.guarded(may, Call::HostFree, |driver| unsafe { driver.host_free(range.base) });
        if freed.is_err() {
            self.anchor.pins.quarantine(&self.anchor.context, range);
        }
    }

    /// Makes memory that the caller hands over reachable for the device, without a copy.
    ///
    /// # Errors
    /// `Pin` when the range meets other registrations, `Lost`, `Closed`, the driver's. The memory comes back in the
    /// error.
    ///
    /// # Examples
    /// ```
    /// # use tenure::{Freed, Runtime};
    /// # let runtime = Runtime::new(tenure_sim::Sim::new(tenure_sim::profile::Profile::cuda_13()))?;
    /// let pinned = runtime.wrap(vec![1_u32, 2, 3])?;
    /// assert!(runtime.is_pinned(pinned.as_ptr()));
    /// let back: Vec<u32> = pinned.into_owner().map_err(|(error, _)| error)?;
    /// assert_eq!(back, [1, 2, 3]);
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn wrap<O: HostMemory>(&self, owner: O) -> std::result::Result<Pinned<O::Item, D>, WrapError<O>> {
        self.wrap_owner(owner, HostAccess::ReadWrite)
    }

    /// Makes memory that the caller hands over reachable for the device, which may only read it; without a copy. The
    /// process itself need not be able to write it: a file that is mapped to be read, say.
    ///
    /// # Errors
    /// Those of [`wrap`](Self::wrap). A driver that cannot register memory which the process may only read refuses with its
    /// own error.
    pub fn wrap_read_only<O: HostMemory>(
        &self,
        owner: O,
    ) -> std::result::Result<SharedPinned<O::Item, D>, WrapError<O>> {
        self.wrap_owner(owner, HostAccess::Read).map(SharedPinned)
    }

    fn wrap_owner<O: HostMemory>(
        &self,
        owner: O,
        access: HostAccess,
    ) -> std::result::Result<Pinned<O::Item, D>, WrapError<O>> {
        // P4. Asked where it then stays: for a `Box`, a move would end what was derived from it before.
        let mut owner = Box::new(owner);
        let (start, len) = owner.range();
        let start = HostPointer(start.cast());
        match byte_range::<O::Item>(start, len) {
            Ok(Some(range)) => {
                let request = Request { range, access, scope: None };
                let pinned = self.pin(request, len, Some(owner), None);
                pinned.map_err(|(error, owner)| WrapError { error, owner: downcast(owner) })
            }
            Ok(None) => Ok(Pinned { empty: std::sync::Mutex::new(Some(owner)), ..Pinned::empty(len) }),
            Err(error) => Err(WrapError { error, owner: Returned(Some(*owner)) }),
        }
    }

    /// Makes shared memory reachable for the device, which may only read it; without a copy.
    ///
    /// # Errors
    /// Those of [`wrap`](Self::wrap).
    pub fn wrap_shared<T: Element>(
        &self,
        owner: std::sync::Arc<[T]>,
    ) -> std::result::Result<SharedPinned<T, D>, WrapError<std::sync::Arc<[T]>>> {
        let (start, len) = (HostPointer(NonNull::from(&*owner).cast()), owner.len());
        match byte_range::<T>(start, len) {
            Ok(Some(range)) => {
                let request = Request { range, access: reading(), scope: None };
                let pinned = self.pin(request, len, Some(Box::new(owner)), Some(is_one_arc::<T>));
                pinned.map(SharedPinned).map_err(|(error, owner)| WrapError { error, owner: downcast(owner) })
            }
            Ok(None) => Ok(SharedPinned(Pinned::empty(len))),
            Err(error) => Err(WrapError { error, owner: Returned(Some(owner)) }),
        }
    }

    /// Makes `len` elements at `start` reachable for the device.
    ///
    /// # Safety
    /// - The memory is valid for reads and writes, at its present place, until it is released: [`Pinned::free`]
    ///   returned [`Freed::Now`], or the runtime was shut down with nothing left (registrations that other runtimes of
    ///   the process hold on count as left).
    /// - The host touches it only through views ([`Pinned::read`], [`Pinned::write`]), or knows otherwise that no work
    ///   uses it.
    ///
    /// # Errors
    /// Those of [`wrap`](Self::wrap).
    pub unsafe fn wrap_raw<T: Element>(&self, start: NonNull<T>, len: usize) -> Result<Pinned<T, D>> {
        let Some(range) = byte_range::<T>(HostPointer(start.cast()), len)? else { return Ok(Pinned::empty(len)) };
        let request = Request { range, access: HostAccess::ReadWrite, scope: None };
        self.pin(request, len, None, None).map_err(|(error, _)| error)
    }

    /// Runs `body`, in which borrowed memory can be wrapped; before it returns, all work on that memory has completed
    /// and it is no longer registered by it. Also when `body` unwinds.
    ///
    /// Safe against forgotten handles (R4): the scope itself knows what it wrapped.
    ///
    /// # Errors
    /// What `body` returns; then what ending the wraps meets. After a device loss the device runs nothing any more, so
    /// the scope ends.
    ///
    /// # Examples
    /// ```
    /// # use tenure::{LaunchConfig, Queue, Runtime};
    /// # let runtime = Runtime::new(tenure_sim::Sim::new(tenure_sim::profile::Profile::cuda_13()))?;
    /// # let stream = runtime.stream()?;
    /// let mut numbers = [1_u32; 64];
    /// runtime.scope(|scope| {
    ///     let mut pinned = scope.wrap(&mut numbers)?;
    ///     stream.fill(&mut pinned, 0xff)
    /// })?;
    /// assert_eq!(numbers, [u32::MAX; 64]);
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn scope<'env, R>(&self, body: impl FnOnce(&Scope<'_, 'env, D>) -> Result<R>) -> Result<R> {
        let mut may = MayWait::here()?;
        if may.is_in_capture() {
            // Its end would have to wait, and may be held back by that very capture (C9).
            return Err(Misuse::InsideCapture.into());
        }
        let id = ScopeId::new(crate::id::ResourceId::fresh().number()).expect("an identity is not zero");
        let scope = Scope { runtime: self, id, leases: std::sync::Mutex::new(Vec::new()), borrow: PhantomData };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&scope)));
        let ended = scope.end(&mut may);
        // An error that another outcome outweighs is kept (R7).
        let keep = |error| self.anchor.context.keep_untold(error);
        match outcome {
            Ok(Ok(value)) => ended.map(|()| value),
            Ok(Err(error)) => {
                ended.unwrap_or_else(keep);
                Err(error)
            }
            Err(panic) => {
                ended.unwrap_or_else(keep);
                std::panic::resume_unwind(panic)
            }
        }
    }

    fn pin<T: Element>(
        &self,
        request: Request,
        len: usize,
        owner: Owner,
        alike: Option<Alike>,
    ) -> std::result::Result<Pinned<T, D>, (Error, Owner)> {
        if let Err(error) = self.anchor.check_open() {
            return Err((error, owner));
        }
        let (pin, own) = self.anchor.pins.pin_alike(&self.anchor.context, request, owner, alike)?;
        Ok(Pinned::new(self.anchor.clone(), pin, own, request.scope.is_some(), request.range.base, len))
    }
}

/// How far it is from `base` to the next multiple of `align`.
fn to_alignment(base: HostPointer, align: usize) -> usize {
    base.address().next_multiple_of(align) - base.address()
}

/// The bytes of `len` elements at `start`; `None` for no bytes.
fn byte_range<T: Element>(start: HostPointer, len: usize) -> Result<Option<HostRange>> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    let bytes = bytes.filter(|bytes| start.address().checked_add(*bytes).is_some()).ok_or(Misuse::SizeOverflow)?;
    if bytes > 0 && !start.0.cast::<T>().is_aligned() {
        return Err(Misuse::Misaligned { align: align_of::<T>() }.into());
    }
    Ok((bytes > 0).then_some(HostRange { base: start, bytes }))
}

/// What memory that the device only reads is registered for: also what the process may only read can be.
fn reading() -> HostAccess {
    HostAccess::Read
}

fn is_one_arc<T: Element>(one: &(dyn Any + Send), other: &(dyn Any + Send)) -> bool {
    let arc = |owner: &dyn Any| owner.downcast_ref::<std::sync::Arc<[T]>>().cloned();
    let both = arc(one).zip(arc(other));
    both.is_some_and(|(one, other)| std::sync::Arc::ptr_eq(&one, &other))
}

/// A place in which borrowed memory is wrapped. See [`Runtime::scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env, D: Driver> {
    runtime: &'scope Runtime<D>,
    id: ScopeId,
    // What was wrapped, whatever becomes of the handles (R4).
    leases: std::sync::Mutex<Vec<Arc<PinLease<D>>>>,
    // Invariant in 'env: what is borrowed must outlive the scope, no more and no less.
    borrow: PhantomData<&'env mut &'env ()>,
}

impl<'env, D: Driver> Scope<'_, 'env, D> {
    /// Makes borrowed memory reachable for the device until the scope ends.
    ///
    /// # Errors
    /// Those of [`Runtime::wrap`].
    pub fn wrap<'s, T: Element>(&'s self, memory: &'env mut [T]) -> Result<ScopedPinned<'s, T, D>> {
        let pinned = self.pin(NonNull::from(&mut *memory).cast(), memory.len(), HostAccess::ReadWrite)?;
        Ok(ScopedPinned { pinned, scope: PhantomData })
    }

    /// Makes borrowed memory reachable for the device, which may only read it, until the scope ends.
    ///
    /// # Errors
    /// Those of [`Runtime::wrap`].
    pub fn wrap_shared<'s, T: Element>(&'s self, memory: &'env [T]) -> Result<ScopedShared<'s, T, D>> {
        let pinned = self.pin(NonNull::from(memory).cast(), memory.len(), reading())?;
        Ok(ScopedShared { pinned, scope: PhantomData })
    }

    fn pin<T: Element>(&self, start: NonNull<T>, len: usize, access: HostAccess) -> Result<Pinned<T, D>> {
        let Some(range) = byte_range::<T>(HostPointer(start.cast()), len)? else { return Ok(Pinned::empty(len)) };
        let request = Request { range, access, scope: Some(self.id) };
        let pinned = self.runtime.pin(request, len, None, None).map_err(|(error, _)| error)?;
        if let Storage::Pin(lease) = &pinned.backing.storage {
            self.leases.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(lease.clone());
        }
        Ok(pinned)
    }

    /// Ends every wrap of the scope: waits for its work, and unregisters what the scope registered. Whatever one of them
    /// meets, the others are ended as well: the first error is told, the others are kept (R7).
    fn end(self, may: &mut MayWait) -> Result<()> {
        let leases = self.leases.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let anchor = &self.runtime.anchor;
        let mut outcome = Ok(());
        for lease in leases {
            let ended = end_scoped(anchor, &lease, may);
            match &outcome {
                Ok(()) => outcome = ended,
                Err(_) => ended.unwrap_or_else(|error| anchor.context.keep_untold(error)),
            }
        }
        outcome
    }
}

fn end_scoped<D: Driver>(anchor: &Anchor<D>, lease: &PinLease<D>, may: &mut MayWait) -> Result<()> {
    let finished = finish(anchor, &lease.pin, may);
    let last = lease.end();
    match (finished, last) {
        (Err(error), _) => {
            // The range stays registered, and says so. After the end of the count, by which it would be pending.
            anchor.pins.abandon(&lease.pin);
            Err(error)
        }
        (Ok(()), Some(epoch)) => release_scoped(anchor, &lease.pin, epoch, may),
        (Ok(()), None) => Ok(()),
    }
}

/// Waits until the device is done with a borrowed range. There is nothing else to do: the borrow ends after it (P11).
fn finish<D: Driver>(anchor: &Anchor<D>, pin: &Pin<D>, may: &mut MayWait) -> Result<()> {
    loop {
        match pin.record.wait_out(&anchor.context, Access::Write, may) {
            Ok(()) => return Ok(()),
            // A lost device runs nothing any more (R6).
            Err(error @ Error::Lost(_)) => return Err(error),
            // Not known to have ended: asking again is all there is. Of an adopted stream that was given up nobody ever knows
            // it: the scope then lasts until the device is lost.
            Err(_) => thread::pause(),
        }
    }
}

fn release_scoped<D: Driver>(anchor: &Anchor<D>, pin: &Arc<Pin<D>>, epoch: u64, may: &mut MayWait) -> Result<()> {
    loop {
        match anchor.pins.release(&anchor.context, pin, epoch, may) {
            Some(Ok(Released::Undone(owners) | Released::Ceded(owners))) => {
                drop_owners(&anchor.context, owners);
                return Ok(());
            }
            Some(outcome) => return outcome.map(drop),
            // A capture of another thread stands in the way; its end lets us in.
            None => match anchor.context.captures.enter_waiting(may) {
                Ok(_entry) => {}
                // Nobody waits for captures any more; but the borrow ends after this (P4).
                Err(Error::Closed) => thread::pause(),
                Err(error) => {
                    retire_filed(anchor, pin, epoch);
                    return Err(error);
                }
            },
        }
    }
}

/// Borrowed host memory that the device can read and write until its scope ends.
#[derive(Debug)]
pub struct ScopedPinned<'s, T: Element, D: Driver> {
    pinned: Pinned<T, D>,
    scope: PhantomData<&'s ()>,
}

/// Borrowed host memory that the device can read until its scope ends.
#[derive(Debug)]
pub struct ScopedShared<'s, T: Element, D: Driver> {
    pinned: Pinned<T, D>,
    scope: PhantomData<&'s ()>,
}

impl<T: Element, D: Driver> ScopedPinned<'_, T, D> {
    /// As [`Pinned::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self) -> Result<HostRead<'_, T, D>> {
        self.pinned.read()
    }

    /// As [`Pinned::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&mut self) -> Result<HostWrite<'_, T, D>> {
        self.pinned.write()
    }
}

// SAFETY: P3, P4. The range of the wrap, which its count keeps registered.
unsafe impl<T: Element, D: Driver> Readable<T, D> for ScopedPinned<'_, T, D> {
    fn region(&self) -> Region<'_, D> {
        self.pinned.region()
    }

    fn element_count(&self) -> usize {
        self.pinned.len
    }
}

// SAFETY: P4. Wrapped from memory that its owner, or a scope's exclusive borrow, holds alone.
unsafe impl<T: Element, D: Driver> Writable<T, D> for ScopedPinned<'_, T, D> {}

// SAFETY: P3, P4. The range of the wrap, which its count keeps registered.
unsafe impl<T: Element, D: Driver> Readable<T, D> for ScopedShared<'_, T, D> {
    fn region(&self) -> Region<'_, D> {
        self.pinned.region()
    }

    fn element_count(&self) -> usize {
        self.pinned.len
    }
}

/// The owner of a failed wrap, which is of the type that was given; or none where it is kept (P9).
fn downcast<O: 'static>(owner: Owner) -> Returned<O> {
    Returned(owner.and_then(|owner| (owner as Box<dyn Any>).downcast::<O>().ok()).map(|owner| *owner))
}

impl<T: Element, D: Driver> Pinned<T, D> {
    #[inline]
    pub(crate) fn empty(len: usize) -> Self {
        Self {
            backing: Backing::new(Storage::Empty(Arc::default())),
            start: HostPointer(NonNull::<T>::dangling().cast()),
            len,
            empty: std::sync::Mutex::new(None),
            element: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn new(
        anchor: Arc<Anchor<D>>,
        pin: Arc<Pin<D>>,
        own: Owner,
        scoped: bool,
        start: HostPointer,
        len: usize,
    ) -> Self {
        let offset = start.address() - pin.range.base.address();
        let device = pin.device.offset(offset as u64);
        let (own, ended) = (std::sync::Mutex::new(own), AtomicBool::new(false));
        let lease = PinLease { pin, device, anchor, own, scoped, ended };
        let (backing, empty) = (Backing::new(Storage::Pin(Arc::new(lease))), std::sync::Mutex::new(None));
        Self { backing, start, len, empty, element: PhantomData }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element's address. Reading through it is a matter for [`read`](Self::read).
    pub fn as_ptr(&self) -> *const T {
        self.start.0.as_ptr().cast_const().cast()
    }

    /// A part of the memory, for the device to read.
    ///
    /// # Errors
    /// `LengthMismatch` when the range does not lie in the memory.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T, D>> {
        View::part(&self.backing, self.len, &range)
    }

    /// A part of the memory, for the device to read and write.
    ///
    /// # Errors
    /// Those of [`view`](Self::view).
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T, D>> {
        ViewMut::part(&self.backing, self.len, &range)
    }

    /// Whether work that uses the memory, through this or another wrap, may still run (O2, P3).
    pub fn is_busy(&self) -> bool {
        self.backing.record().is_busy(Access::Write)
    }

    /// Waits until all work submitted so far that uses the memory has completed.
    ///
    /// # Errors
    /// `Lost`, `StreamBroken`, the driver's; `Misuse::InsideHold`.
    pub fn synchronize(&self) -> Result<()> {
        match &self.backing.storage {
            Storage::Pin(lease) => lease.pin.record.wait(&lease.anchor.context, Access::Write, &mut MayWait::here()?),
            _ => Ok(()),
        }
    }

    /// The memory, for the host to read: waits for writes of the device (O3). While the view lives, device work that
    /// would write the memory is refused with `Misuse::HostView`; device work that reads it goes on.
    ///
    /// # Errors
    /// `Lost`, `StreamBroken`, the driver's; `Misuse::HostView` beside a writing view; `Misuse::InsideHold`.
    pub fn read(&self) -> Result<HostRead<'_, T, D>> {
        self.begin_view(Access::Read)?;
        Ok(HostRead { pinned: self })
    }

    /// The memory, for the host to write: waits for reads and writes of the device (O3). While the view lives, device
    /// work on the memory is refused with `Misuse::HostView`.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn write(&mut self) -> Result<HostWrite<'_, T, D>> {
        self.begin_view(Access::Write)?;
        Ok(HostWrite { pinned: self })
    }

    fn begin_view(&self, access: Access) -> Result<()> {
        match &self.backing.storage {
            Storage::Pin(lease) => {
                lease.pin.record.begin_view(&lease.anchor.context, access, &mut MayWait::here()?)?;
                let access = if access == Access::Read { HostAccess::Read } else { HostAccess::ReadWrite };
                let bytes = self.len * size_of::<T>();
                lease.anchor.context.driver.host_accessed(self.start, bytes, access);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end_view(&self, access: Access) {
        if let Storage::Pin(lease) = &self.backing.storage {
            lease.pin.record.end_view(access);
        }
    }

    fn as_slice(&self) -> &[T] {
        // SAFETY: P4, O3. The lease keeps the range alive and in place; the view that calls this keeps device writes
        // away.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// Waits for all work on the memory and unregisters it, so that it can be wrapped again, or let go, at once (P7).
    ///
    /// [`Freed::Deferred`] when other wraps or graphs, of this or of another runtime of the process, use the registration,
    /// or the calling thread is inside a capture: it then happens when they end.
    ///
    /// # Errors
    /// `Lost`, `StreamBroken`, the driver's: the memory then stays registered and alive (P9, P11).
    pub fn free(self) -> Result<Freed> {
        match self.end(Captures::PassBy) {
            Ok(owners) => {
                if let Some((anchor, owners)) = owners {
                    drop_owners(&anchor.context, owners);
                }
                Ok(Freed::Now)
            }
            Err(Error::Pin(PinError::Shared)) => Ok(Freed::Deferred),
            Err(error) => Err(error),
        }
    }

    /// As [`free`](Self::free), and gives back what was wrapped. Where the registration was made by another wrap, it only
    /// waits for the work on the memory: what this one was made with is given back, and the other's registration stays.
    ///
    /// # Errors
    /// Besides those of `free`: `PinError::OwnerType` when what was wrapped is no `O`; `PinError::Shared` when other wraps or graphs
    /// use the registration, or the calling thread is inside a capture. With these two, and inside a `use_on` closure, the
    /// handle comes back, unless another wrap began at this very moment: then the owner goes with the last of them.
    pub fn into_owner<O: 'static>(mut self) -> std::result::Result<O, (Error, Option<Self>)> {
        if let Err(error) = self.gives_back::<O>() {
            return Err((error, Some(self)));
        }
        let owner = match &self.backing.storage {
            Storage::Pin(_) => {
                let owners = self.end(Captures::WaitFor).map_err(|error| (error, None))?;
                owners.and_then(|(anchor, mut owners)| {
                    // The wrap's own is the last.
                    let at = owners.iter().rposition(|owner| owner.is::<O>());
                    let owner = at.map(|at| owners.remove(at));
                    drop_owners(&anchor.context, owners);
                    owner
                })
            }
            _ => inside(&mut self.empty).take(),
        };
        let owner = owner.and_then(|owner| (owner as Box<dyn Any>).downcast::<O>().ok());
        owner.map(|owner| *owner).ok_or((PinError::OwnerType.into(), None))
    }

    /// Whether there is an `O` to be had, as far as can be told before the count goes.
    fn gives_back<O: 'static>(&mut self) -> Result<()> {
        let is_kept_by = |owner: &mut std::sync::Mutex<Owner>| inside(owner).as_ref().map(|owner| owner.is::<O>());
        let right = match &mut self.backing.storage {
            Storage::Pin(_) if MayWait::here()?.is_in_capture() => return Err(PinError::Shared.into()),
            Storage::Pin(lease) => {
                let lease = Arc::get_mut(lease).ok_or(PinError::Shared)?;
                match is_kept_by(&mut lease.own) {
                    Some(right) => {
                        lease.anchor.pins.can_end(&lease.pin)?;
                        right
                    }
                    None => return Ok(lease.anchor.pins.gives_back::<O>(&lease.pin)?),
                }
            }
            _ => is_kept_by(&mut self.empty).unwrap_or(false),
        };
        if right { Ok(()) } else { Err(PinError::OwnerType.into()) }
    }

    /// Gives the count back. If it was the last, waits, unregisters, and hands out what kept the memory; if the wrap has an
    /// owner of its own, waits, and hands that out.
    fn end(self, captures: Captures) -> Result<Option<Owners<D>>> {
        let Storage::Pin(lease) = self.backing.storage else { return Ok(None) };
        let mut may = MayWait::here()?;
        if may.is_in_capture() {
            return Err(PinError::Shared.into());
        }
        let mut lease = Arc::try_unwrap(lease).map_err(|_shared| PinError::Shared)?;
        let (anchor, pin) = (lease.anchor.clone(), lease.pin.clone());
        let own = inside(&mut lease.own).take();
        // Relaxed: the lease is this thread's.
        let parted = match lease.ended.swap(true, Ordering::Relaxed) {
            true => return Err(PinError::Shared.into()),
            false => anchor.pins.part(&pin, own, false),
        };
        drop(lease);
        let owners = match (parted.epoch, parted.owner) {
            (Some(epoch), _) => release_now(&anchor, &pin, epoch, &mut may, captures)?,
            (None, Some(own)) => vec![wait_for_owner(&anchor, &pin, own, &mut may)?],
            (None, None) => return Err(PinError::Shared.into()),
        };
        Ok(Some((anchor, owners)))
    }
}

/// What kept memory, and the runtime to tell where dropping it panics.
type Owners<D> = (Arc<Anchor<D>>, Vec<Box<dyn Any + Send>>);

/// Waits for the work on memory whose registration lives on with others, and hands the owner out.
fn wait_for_owner<D: Driver>(
    anchor: &Anchor<D>,
    pin: &Arc<Pin<D>>,
    own: Box<dyn Any + Send>,
    may: &mut MayWait,
) -> Result<Box<dyn Any + Send>> {
    match pin.record.wait(&anchor.context, Access::Write, may) {
        Ok(()) => Ok(own),
        Err(error) => {
            retire_owner(anchor, pin, Some(own));
            Err(error)
        }
    }
}

/// Waits for a registration whose last count is gone, releases it here and now, and hands its owners out.
fn release_now<D: Driver>(
    anchor: &Anchor<D>,
    pin: &Arc<Pin<D>>,
    epoch: u64,
    may: &mut MayWait,
    captures: Captures,
) -> Result<Vec<Box<dyn Any + Send>>> {
    // P3. Reads as well: what the device only reads is not to go under it.
    let released = match pin.record.wait(&anchor.context, Access::Write, may) {
        Ok(()) => release_beside_captures(anchor, pin, epoch, may, captures)?,
        Err(error) => {
            // Not known to have ended: the worker releases it if it does, and leaks it if not (P11).
            retire_filed(anchor, pin, epoch);
            return Err(error);
        }
    };
    match released {
        Some(Ok(Released::Undone(owners))) => Ok(owners),
        Some(Ok(Released::Ceded(owners))) => {
            drop_owners(&anchor.context, owners);
            Err(PinError::Shared.into())
        }
        Some(Ok(Released::Void)) => Err(PinError::Shared.into()),
        Some(Err(error)) => Err(error),
        None => {
            retire_filed(anchor, pin, epoch);
            Err(PinError::Shared.into())
        }
    }
}

/// What an explicit release does where a capture of another thread stands in its way (P7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Captures {
    /// The worker makes the release when the capture has ended.
    PassBy,
    /// The release waits for that: its caller wants what was wrapped.
    WaitFor,
}

/// `None`: a capture stands in the way, and is passed by.
fn release_beside_captures<D: Driver>(
    anchor: &Anchor<D>,
    pin: &Arc<Pin<D>>,
    epoch: u64,
    may: &mut MayWait,
    captures: Captures,
) -> Result<Option<Result<Released>>> {
    loop {
        let released = anchor.pins.release(&anchor.context, pin, epoch, may);
        if released.is_some() || captures == Captures::PassBy {
            return Ok(released);
        }
        let waited = anchor.context.captures.enter_waiting(may).map(drop);
        if let Err(error) = waited {
            retire_filed(anchor, pin, epoch);
            return Err(error);
        }
    }
}

/// Queues the ticket of a range, unless it is there.
fn retire_filed<D: Driver>(anchor: &Anchor<D>, pin: &Arc<Pin<D>>, epoch: u64) {
    if anchor.pins.file(pin) {
        retire(anchor, pin, epoch);
    }
}

/// The memory as a slice, for the host to read.
#[derive(Debug)]
pub struct HostRead<'a, T: Element, D: Driver> {
    pinned: &'a Pinned<T, D>,
}

impl<T: Element, D: Driver> Deref for HostRead<'_, T, D> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.pinned.as_slice()
    }
}

impl<T: Element, D: Driver> Drop for HostRead<'_, T, D> {
    fn drop(&mut self) {
        self.pinned.end_view(Access::Read);
    }
}

/// The memory as a slice, for the host to read and write.
#[derive(Debug)]
pub struct HostWrite<'a, T: Element, D: Driver> {
    pinned: &'a mut Pinned<T, D>,
}

impl<T: Element, D: Driver> Deref for HostWrite<'_, T, D> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.pinned.as_slice()
    }
}

impl<T: Element, D: Driver> DerefMut for HostWrite<'_, T, D> {
    fn deref_mut(&mut self) -> &mut [T] {
        let start = self.pinned.start.0.as_ptr().cast();
        // SAFETY: P4, O3. As in `as_slice`; the writing view keeps device reads away too, and it is the only view.
        unsafe { std::slice::from_raw_parts_mut(start, self.pinned.len) }
    }
}

impl<T: Element, D: Driver> Drop for HostWrite<'_, T, D> {
    fn drop(&mut self) {
        self.pinned.end_view(Access::Write);
    }
}

// SAFETY: P3, P4. The range of the wrap, which its count keeps registered.
unsafe impl<T: Element, D: Driver> Readable<T, D> for Pinned<T, D> {
    #[inline]
    fn region(&self) -> Region<'_, D> {
        self.backing.region::<T>(0, self.len)
    }

    fn element_count(&self) -> usize {
        self.len
    }
}

// SAFETY: P4. Wrapped from memory that its owner, or a scope's exclusive borrow, holds alone.
unsafe impl<T: Element, D: Driver> Writable<T, D> for Pinned<T, D> {}

impl<T: Element, D: Driver> SharedPinned<T, D> {
    /// As [`Pinned::free`].
    ///
    /// # Errors
    /// As there.
    pub fn free(self) -> Result<Freed> {
        self.0.free()
    }

    /// As [`Pinned::into_owner`]. An `Arc` that was wrapped more than once is given back by the last wrap alone.
    ///
    /// # Errors
    /// As there.
    pub fn into_owner<O: 'static>(self) -> std::result::Result<O, (Error, Option<Self>)> {
        self.0.into_owner().map_err(|(error, back)| (error, back.map(Self)))
    }
}

// SAFETY: P3, P4. The range of the wrap, which its count keeps registered.
unsafe impl<T: Element, D: Driver> Readable<T, D> for SharedPinned<T, D> {
    fn region(&self) -> Region<'_, D> {
        self.0.region()
    }

    fn element_count(&self) -> usize {
        self.0.len
    }
}
