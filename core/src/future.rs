//! Futures of what the device will have done. They need no particular executor: a runtime's worker wakes them, or
//! whoever calls [`Runtime::poll`](crate::Runtime::poll).
//!
//! Safety rests on what submitted work holds, not on these values (R4): dropping or forgetting one at any time is
//! sound.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context as TaskContext, Poll};

use crate::call_scope::MayWait;
use crate::driver::{Driver, HostPointer, Progress};
use crate::error::{Error, Misuse, Result};
use crate::memory::{Element, Memory, Readable, Region};
use crate::ownership::{Point, Points};
use crate::queue::{Submit, without_bytes};
use crate::reclaim::{Notice, Resource, Retired};
use crate::shared::Anchor;
use crate::staging::{Landing, Staged};
use crate::stream::{Stream, Way};
use crate::sync::{Arc, leak};

impl<D: Driver> Stream<D> {
    /// A future of the completion of all work submitted so far.
    pub fn completion(&self) -> Completion<D> {
        let mut points = Points::new();
        points.push(self.end());
        Completion::new(self.anchor(), points)
    }

    /// Copies `from` to the host; the future gives the elements once they are there. Dropping or forgetting it is
    /// harmless (R4).
    ///
    /// The device copies to page-locked memory of the runtime's ([`Config::staging_max`](crate::Config::staging_max)), so
    /// the call does not wait for it (T3); whoever polls or waits copies the elements out. Where there is no room the
    /// call waits for earlier copies, and goes in parts, which a graph that another thread launches may come between.
    /// From some hundred KiB on [`copy`](crate::Queue::copy) to a [`Pinned`](crate::Pinned) saves the second copy.
    ///
    /// # Errors
    /// Those of [`Queue`](crate::Queue); `Misuse::InsideHold` in a `use_on` closure without room; out of memory where no page-locked
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
        let (shared, stream) = (&**self.anchor(), self.state());
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
}

/// Becomes ready when the work that it was made for has completed.
///
/// # Errors
/// `Lost` when the device is gone, `Closed` when the runtime was shut down before.
#[must_use = "a future tells nothing unless it is awaited, polled or waited for"]
#[derive(Debug)]
pub struct Completion<D: Driver> {
    anchor: Arc<Anchor<D>>,
    points: Points<D>,
    notice: Option<std::sync::Arc<Notice>>,
}

impl<D: Driver> Completion<D> {
    pub(crate) fn new(anchor: &Arc<Anchor<D>>, points: Points<D>) -> Self {
        Self { anchor: anchor.clone(), points, notice: None }
    }

    /// Waits on this thread instead.
    ///
    /// # Errors
    /// Those of the future; the driver's.
    pub fn wait(self) -> Result<()> {
        let mut may = MayWait::here()?;
        self.points.iter().try_for_each(|point| point.wait(&self.anchor.context, &mut may))
    }

    /// Whether it is known to have happened.
    pub fn is_complete(&self) -> bool {
        self.points.iter().all(Point::is_complete)
    }
}

impl<D: Driver> Completion<D> {
    /// Whether it has happened, after the end: nobody tells any more, so the streams are asked.
    #[cold]
    fn has_happened(&self) -> bool {
        let context = &self.anchor.context;
        let is_complete = |point: &Point<D>| {
            // As a guest: the stream is of nobody we know.
            let Some(_guest) = point.stream.visit(point.number) else { return true };
            !point.stream.is_broken() && matches!(point.stream.query(context), Some(Ok(Progress::Complete)))
        };
        context.lost().is_none() && self.points.iter().all(is_complete)
    }
}

impl<D: Driver> Future for Completion<D> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        if this.notice.is_none() {
            if this.is_complete() {
                return Poll::Ready(Ok(()));
            }
            let context = &this.anchor.context;
            if let Err(error) = context.life.check_process().and_then(|()| context.check_alive()) {
                return Poll::Ready(Err(error));
            }
        }
        // Known to the runtime before the waker is left with it. After the end it is told at once (R8).
        let notice = this.notice.get_or_insert_with(|| {
            let notice = std::sync::Arc::new(Notice::default());
            let resource = Resource::Notice(notice.clone());
            this.anchor.reclaim.retire(Retired { resource, points: this.points.clone() });
            notice
        });
        match notice.poll(task.waker()) {
            Some(Err(Error::Closed)) if this.has_happened() => Poll::Ready(Ok(())),
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

impl<D: Driver> Drop for Completion<D> {
    /// Nothing of it stays with the runtime (R12). Where the work is known to be over, the task is still told.
    fn drop(&mut self) {
        if let Some(notice) = self.notice.take()
            && !self.is_complete()
        {
            self.anchor.reclaim.withdraw(notice);
        }
    }
}

/// Becomes ready with the elements of a copy to the host: whoever polls it last copies them out of staging memory.
///
/// # Errors
/// Those of [`Completion`]. What the device may still write to is then kept forever (P11).
#[must_use = "a future tells nothing unless it is awaited, polled or waited for"]
#[derive(Debug)]
pub struct Download<T: Element, D: Driver> {
    completion: Completion<D>,
    landing: Option<Arc<Landing<D>>>,
    /// Under which the staging knows it.
    key: Option<u64>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, D: Driver> Unpin for Download<T, D> {}

impl<T: Element, D: Driver> Download<T, D> {
    /// Nothing is on its way yet to `memory`, which has room for `len` elements.
    pub(crate) fn new(stream: &Stream<D>, mut memory: Vec<T>, len: usize) -> Self {
        let start = HostPointer(NonNull::from(memory.spare_capacity_mut()).cast());
        Self {
            completion: Completion::new(stream.anchor(), Points::new()),
            landing: Some(Landing::new(Box::new(memory), start)),
            key: None,
            len,
            element: PhantomData,
        }
    }

    /// What `staged` gets from its copies, up to `point`, goes to byte `offset`.
    pub(crate) fn expect(&mut self, staged: Staged<'_, D>, point: Point<D>, offset: usize) {
        if let Some(landing) = &self.landing {
            landing.expect(staged, &point, offset);
            let staging = &self.completion.anchor.staging;
            self.key.get_or_insert_with(|| staging.list(landing));
        }
        self.completion.points = [point].into_iter().collect();
    }

    /// The last bytes come without staging, up to `point`.
    pub(crate) fn expect_direct(&mut self, point: Point<D>) {
        if let Some(landing) = &self.landing {
            landing.expect_direct(point.clone());
        }
        self.completion.points = [point].into_iter().collect();
    }

    /// Where byte `offset` goes.
    pub(crate) fn place(&self, offset: usize) -> HostPointer {
        let landing = self.landing.as_ref().expect("it was not fetched yet");
        landing.place(offset)
    }

    /// Waits on this thread instead.
    ///
    /// # Errors
    /// Those of the future; the driver's.
    pub fn wait(mut self) -> Result<Vec<T>> {
        let points = self.completion.points.clone();
        Completion::new(&self.completion.anchor, points).wait()?;
        Ok(self.take())
    }

    /// The elements, which the copies have written. None when they were taken before.
    fn take(&mut self) -> Vec<T> {
        self.unlist();
        let memory = self
            .landing
            .take()
            .and_then(|landing| landing.fetch(&self.completion.anchor.staging, &self.completion.anchor));
        let Some(mut memory) = memory.and_then(|memory| memory.downcast::<Vec<T>>().ok()) else { return Vec::new() };
        // SAFETY: O3. The room for `len` elements was written as far as they have bytes, and any bits are an element.
        unsafe { memory.set_len(self.len) };
        *memory
    }

    fn unlist(&mut self) {
        if let Some(key) = self.key.take() {
            self.completion.anchor.staging.unlist(key);
        }
    }
}

impl<T: Element, D: Driver> Future for Download<T, D> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Result<Vec<T>>> {
        match Pin::new(&mut self.completion).poll(task) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(Ok(self.take())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}

impl<T: Element, D: Driver> Drop for Download<T, D> {
    fn drop(&mut self) {
        if self.completion.anchor.context.life.is_inherited() {
            // A forked child: any lock may be held by a thread that is not here.
            return leak(self.landing.take());
        }
        self.unlist();
        if let Some(landing) = self.landing.take() {
            landing.abandon(&self.completion.anchor.staging, &self.completion.anchor);
        }
    }
}
