//! Points: (stream, number), and the two counters of a stream that give them meaning.
//!
//! `submitted` counts what the driver accepted; `completed` is a watermark below which all is known to have run. Both
//! only grow. So "is this still busy?" is a comparison, nothing stores its answer, and no answer can be lost (O2):
//!
//! - a number is taken *after* the driver accepted the work, so whoever reads `submitted >= n` knows that work n was
//!   accepted. It is taken under the stream's gate, in the order of the queue, and by [`StreamState::accept`] alone: that is
//!   true of launches, waits and events alike.
//! - `completed` is raised in two ways only, and each names what it proves: [`Timeline::ask`] reads `submitted` *before* it puts
//!   its question to the driver; a [`Mark`] is read before something is enqueued that will tell, and tells of no more.
//!
//! # Why clean is never optimistic
//! Say `is_complete(n)` answers yes. Then somebody raised `completed` to a horizon h, n <= h: it only grows, and holds nothing but
//! readings of `submitted` and numbers. Numbers are given in the order of acceptance and after it, so all up to h had been accepted
//! when h was read, and by E1 it is among what the driver answers about:
//! - a query or a wait of the stream says yes only when all that it has accepted has run;
//! - a host function, or an event, was put behind all that it has accepted, and the stream runs in order;
//! - an adopted stream is asked by what marks its end (`adopted`). The mark was moved past each submission, be it a wait, and
//!   before its number, so at h it marked h or later; if it is moved meanwhile, it marks later work still. If one move failed, the
//!   stream was given up before that number was taken: a thread that reads h, and *then* finds the stream not given up, asks a
//!   mark that is past h (S8).
//!
//! So n has run. Whoever reads the yes sees what the asker saw (E2). Busy may be wrong, and costs a question. No thread has to
//! know when it reads, or which others ask: a late or lost raise makes an answer too pessimistic, and two raises leave the larger.
//!
//! A buffer is clean when each of its last uses is complete, and those stand for all of its uses (`ownership` has the argument).
//! The uses that happened before the question are stamped before it, so they are among what is looked at.
//!
//! Why a claim of a stream ends every older point: it raises `completed` to the last number, after an idle answer (S2).
//!
//! The counters are 64 bits wide: at a submission a nanosecond they wrap after 584 years.

use std::marker::PhantomData;

use crate::driver::Progress;
#[cfg(doc)]
use crate::stream_state::StreamState;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::ordering;

/// The two counters of a stream.
///
/// | counter | changes by | keeps |
/// |---|---|---|
/// | `submitted` | one more after acceptance, under the stream's gate, E1 | O2 S2 |
/// | `completed` | `fetch_max` of a horizon or a mark, E2 | O2 O3 S2 S3 |
#[derive(Debug)]
pub struct Timeline {
    submitted: AtomicU64,
    completed: AtomicU64,
}

/// All work up to here had been accepted when this was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Horizon(u64);

impl Horizon {
    /// The number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The number of work that the driver has accepted, and that the mark of its stream is past. Numbers begin at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(u64);

impl Number {
    /// The number.
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The place of this very work: for an event, which is complete when its own record is.
    pub fn mark(self) -> Mark {
        Mark(self.0)
    }
}

/// A place in a stream. What was enqueued there, after this was read, tells that all up to here has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

impl Mark {
    /// The number of the last work before it.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Says that the driver has accepted work on the stream of this gate, and that what marks the stream's end, where it has such,
/// was moved past it, or the stream given up (S8). Made in `accept` only, and used up by the number.
#[derive(Debug)]
pub struct Accepted<'g, G>(PhantomData<&'g G>);

impl<'g, G> Accepted<'g, G> {
    /// For work that was accepted, and marked, with this gate held.
    #[inline]
    pub(crate) fn under(_gate: &'g G) -> Self {
        Self(PhantomData)
    }
}

impl From<Mark> for u64 {
    fn from(mark: Mark) -> Self {
        mark.0
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Timeline {
    /// A stream that was given nothing yet.
    pub fn new() -> Self {
        Self { submitted: AtomicU64::new(0), completed: AtomicU64::new(0) }
    }

    /// Numbers one submission that the driver has accepted. The stream's own gate is held, so a load and a store do.
    #[inline]
    pub(crate) fn submit<G>(&self, _accepted: Accepted<'_, G>) -> Number {
        // Relaxed: only holders of the gate write it.
        let number = self.submitted.load(Ordering::Relaxed) + 1;
        // E1.w: Release; pairs with E1.r in `horizon`. Who reads the number may ask the driver about the work.
        self.submitted.store(number, ordering!("E1.w", Release));
        Number(number)
    }

    /// What had been accepted by now.
    #[inline]
    pub fn horizon(&self) -> Horizon {
        // E1.r: Acquire; pairs with E1.w in `submit`. The driver then answers from a state that has the work.
        Horizon(self.submitted.load(ordering!("E1.r", Acquire)))
    }

    /// Where something that is enqueued from now on will stand: behind all that was accepted.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark(self.horizon().0)
    }

    /// Puts to the driver the question whether all that it has accepted has completed. If it has, all that was accepted
    /// before the question is known to be complete. What makes the answer doubtful, `question` looks at itself.
    ///
    /// # Errors
    /// Those of `question`: then nothing was learned.
    #[inline]
    pub fn ask<E>(&self, question: impl FnOnce() -> Result<Progress, E>) -> Result<Progress, E> {
        let horizon = self.horizon();
        let progress = question()?;
        if progress == Progress::Complete {
            self.raise(horizon.0);
        }
        Ok(progress)
    }

    /// Notes that what was enqueued behind `mark` has run, and so all up to there.
    pub fn reach(&self, mark: Mark) {
        self.raise(mark.0);
    }

    #[inline]
    fn raise(&self, number: u64) {
        // E2.w: Release; pairs with E2.r in `is_complete`. Who learns of it second-hand sees the bytes.
        self.completed.fetch_max(number, ordering!("E2.w", Release));
    }

    /// Whether the submission of this number is known to have completed. Zero always has.
    #[inline]
    pub fn is_complete(&self, number: u64) -> bool {
        // E2.r: Acquire; pairs with E2.w in `raise`.
        number == 0 || self.completed.load(ordering!("E2.r", Acquire)) >= number
    }

    /// How far the stream is known to have come.
    pub fn completed(&self) -> Horizon {
        // E2.r: Acquire; pairs with E2.w in `raise`.
        Horizon(self.completed.load(ordering!("E2.r", Acquire)))
    }

    /// Whether everything accepted so far is known to have completed.
    pub fn is_drained(&self) -> bool {
        let horizon = self.horizon();
        self.is_complete(horizon.0)
    }
}
