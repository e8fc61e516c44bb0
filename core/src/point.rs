//! Points: (stream, number), and the two counters of a stream that give them meaning.
//!
//! `submitted` counts what the driver accepted; `completed` is a watermark below which all is known to have run. Both
//! only grow. So "is this still busy?" is a comparison, nothing stores its answer, and no answer can be lost (O2):
//!
//! - a number is taken *after* the driver accepted the work, so whoever reads `submitted >= n` knows that work n was
//!   accepted. It is taken under the stream's gate, in the order of the queue.
//! - `completed` is raised to a value of `submitted` that was read *before* the question was put to the driver: the
//!   [`Horizon`] is that reading, and only [`Timeline::horizon`] makes one.
//!
//! # Why clean is never optimistic
//! Say `is_complete(n)` answers yes. Then somebody raised `completed` to a horizon h, n <= h: it only grows, and holds nothing but
//! horizons. He read h before he asked. Numbers are given in the order of acceptance and after it, so all up to h had been accepted
//! when he read it, and by E1 it is among what the driver answers about:
//! - a query or a wait of the stream says yes only when all that it has accepted has run;
//! - a host function was put behind all that it has accepted, and the stream runs in order;
//! - an adopted stream's event was recorded after each submission and before its number, so at h it marked h or later. If
//!   it is recorded anew meanwhile, it marks later work still.
//!
//! So n has run. Whoever reads the yes sees what the asker saw (E2). Busy may be wrong, and costs a question. Nobody has to
//! know when he reads, or who else asks: a late or lost raise makes an answer too pessimistic, and two raises leave the larger.
//!
//! A buffer is clean when each of its last uses is complete, and those stand for all of its uses (`ownership` has the argument).
//! The uses that happened before the question are stamped before it, so they are among what is looked at.
//!
//! Why a claim of a stream ends every older point: it raises `completed` to the last number, after an idle answer (S2).
//!
//! The counters are 64 bits wide: at a submission a nanosecond they wrap after 584 years.

use crate::driver::Driver;
use crate::ordering;
use crate::stream::Gate;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The two counters of a stream.
///
/// | counter | changes by | keeps |
/// |---|---|---|
/// | `submitted` | one more after acceptance, under the stream's gate, E1 | O2 S2 |
/// | `completed` | `fetch_max` of a horizon, E2 | O2 O3 S2 S3 |
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

    /// Numbers one submission that the driver has accepted. The numbers begin at 1. The stream's own gate is held, so a
    /// load and a store do.
    #[inline]
    pub fn submit<D: Driver>(&self, _gate: &Gate<D>) -> u64 {
        // Relaxed: only holders of the gate write it.
        let number = self.submitted.load(Ordering::Relaxed) + 1;
        // E1.w: Release; pairs with E1.r in `horizon`. Who reads the number may ask the driver about the work.
        self.submitted.store(number, ordering!("E1.w", Release));
        number
    }

    /// What had been accepted by now. Read it before the question is put to the driver.
    #[inline]
    pub fn horizon(&self) -> Horizon {
        // E1.r: Acquire; pairs with E1.w in `submit`. The driver then answers from a state that has the work.
        Horizon(self.submitted.load(ordering!("E1.r", Acquire)))
    }

    /// Notes that all work up to `horizon` has completed.
    pub fn raise(&self, horizon: Horizon) {
        // E2.w: Release; pairs with E2.r in `is_complete`. Who learns of it second-hand sees the bytes.
        self.completed.fetch_max(horizon.0, ordering!("E2.w", Release));
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
