//! Futures of what the device will have done. They need no particular executor: a runtime's worker wakes them, or
//! whoever calls [`Runtime::poll`](crate::Runtime::poll).
//!
//! Safety rests on what submitted work holds, not on these values (R4): dropping or forgetting one at any time is
//! sound.

use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context as TaskContext, Poll};

use crate::driver::{Driver, HostAccess, HostPointer, Progress};
use crate::error::{Error, Result};
use crate::hold::MayWait;
use crate::ownership::{Point, Points};
use crate::queue::{Stream, Submit};
use crate::reclaim::{Notice, Resource, Retired};
use crate::runtime::{Anchor, Element};
use crate::sync::Arc;

/// Becomes ready when the work that it was made for has completed.
///
/// # Errors
/// `Lost` when the device is gone, `Closed` when the runtime was shut down before.
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
    /// As for the future; the driver's.
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

/// Becomes ready with the elements of a copy to the host.
///
/// # Errors
/// As for [`Completion`]. The memory is then kept for ever, since the device may still write to it (P11).
#[derive(Debug)]
pub struct Download<T: Element, D: Driver> {
    completion: Completion<D>,
    memory: Option<Vec<T>>,
}

impl<T: Element, D: Driver> Unpin for Download<T, D> {}

impl<T: Element, D: Driver> Download<T, D> {
    pub(crate) fn new(stream: &Stream<D>, memory: Vec<T>, number: u64) -> Self {
        let mut points = Points::new();
        if number > 0 {
            points.push(stream.point(number));
        }
        Self { completion: Completion::new(stream.anchor(), points), memory: Some(memory) }
    }

    /// Waits on this thread instead.
    ///
    /// # Errors
    /// As for the future; the driver's.
    pub fn wait(mut self) -> Result<Vec<T>> {
        let points = self.completion.points.clone();
        Completion::new(&self.completion.anchor, points).wait()?;
        Ok(self.take())
    }

    /// The elements, which the copy has written.
    fn take(&mut self) -> Vec<T> {
        let memory = self.memory.take().unwrap_or_default();
        let start = HostPointer(NonNull::from(&*memory).cast());
        let bytes = std::mem::size_of_val(&*memory);
        self.completion.anchor.context.driver.host_accessed(start, bytes, HostAccess::ReadWrite);
        memory
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
        if let Some(memory) = self.memory.take()
            && !self.completion.is_complete()
        {
            // The copy may still be running: its memory waits for it with the rest.
            let points = self.completion.points.clone();
            self.completion.anchor.reclaim.retire(Retired { resource: Resource::Kept(Box::new(memory)), points });
        }
    }
}
