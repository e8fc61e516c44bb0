//! Streams: their state, and who may visit one.
//!
//! What is known of a stream, without a call of the driver. Pooled streams have their states in [`pool`](crate::pool), adopted
//! ones in `adopted`.
//!
//! # Visits
//! A thread that makes a driver call on a stream that it does not lease is a *guest*: it records an edge, waits on the host,
//! or arms the worker's host function. One word counts entries above and guests below. A guest enters, looks at `completed`
//! again, makes its call and leaves. A claim reads the word, wants no guests, reads `submitted`, asks, raises `completed` and
//! swaps the word: if a guest came meanwhile, even if it left again, the swap fails and the stream goes back. So
//! nothing is ever enqueued on a stream that has changed hands or is gone (S3, S6).
//!
//! The race that looks wrong: a guest enters right after the swap. It then reads from the swap (E3), so it sees the raised
//! watermark, finds its number complete, and enqueues nothing.

use smallvec::SmallVec;

use crate::driver::{Driver, Priority};
use crate::error::DriverFailure;
use crate::id::StreamId;
use crate::point::Timeline;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::ordering;
use crate::sync::{Arc, Biased, BiasedGuard, OnceLock};

pub mod adoption;
pub mod follow;
pub mod touch;

use self::adoption::Adoption;
use self::follow::Follows;

/// The key of a stream that takes no work: the number of no stream.
pub const CLOSED: u64 = u64::MAX;

/// As what kind of stream it is made.
#[derive(Debug)]
pub enum Kind<D: Driver> {
    /// Made by the pool and leased.
    Pooled(Priority),
    /// Made by somebody else. The event marks its end, since nobody can ask the stream later; on a driver whose events outlive
    /// their streams. See [`StreamState::adopt`].
    Adopted(D::Event),
    /// Made for captures; never executes, so nothing on it ever completes.
    Capture,
}

/// What kind of stream it is, with what the core keeps for it.
#[derive(Debug)]
pub enum Role<D: Driver> {
    /// As [`Kind::Pooled`].
    Pooled(Priority),
    /// As [`Kind::Adopted`].
    Adopted(Adoption<D>),
    /// As [`Kind::Capture`].
    Capture,
}

/// One stream of the driver and all that is known about it. Never reused for another raw handle (O7).
///
/// Streams of different threads share no cache line, nor the one beside, which processors fetch along.
#[derive(Debug)]
#[repr(align(128))]
pub struct StreamState<D: Driver> {
    id: StreamId,
    // What covers are compared with on the shortest way: the number of `id`; that of no stream once the runtime takes no
    // work, and of an adopted stream, whose work takes more than a number.
    key: AtomicU64,
    pub raw: D::Stream,
    pub role: Role<D>,
    pub timeline: Timeline,
    pub(crate) visits: Visits,
    // Held from checking the arguments of a launch to stamping them. Lock order: the locks of buffers in address
    // order, then one gate; never two gates, never a gate while waiting for a buffer.
    gate: Biased<Gate<D>>,
    // Set once and for all (S7).
    broken: OnceLock<std::sync::Arc<DriverFailure>>,
    pub counters: Counters,
}

/// What the gate protects besides the order of its holders.
#[derive(Debug)]
pub struct Gate<D: Driver> {
    /// Which work of other streams this one already waits for.
    pub follows: Follows,
    /// Marks what the stream is to wait for next, without timing. Made by its first wait, and nobody else's. The driver
    /// copies the position at the wait, so it may be recorded anew at once.
    pub event: Option<D::Event>,
}

impl<D: Driver> Default for Gate<D> {
    fn default() -> Self {
        Self { follows: Follows::default(), event: None }
    }
}

/// Figures of a stream, written under its gate, read by `stats()` at any time.
///
/// std atomics, outside the facade: they carry no ordering and decide nothing.
#[derive(Debug, Default)]
pub struct Counters {
    /// Submissions that are waits. All others are launches.
    pub waits: Figure,
    /// Launches that were not covered.
    pub moved: Figure,
    pub handovers: Figure,
    pub edges_inserted: Figure,
    pub edges_skipped: Figure,
}

/// A number that one thread at a time raises and any may read.
#[derive(Debug, Default)]
pub struct Figure(std::sync::atomic::AtomicU64);

impl Figure {
    /// Adds one. Only under the gate: a load and a store, not a read-modify-write.
    #[inline]
    pub fn bump(&self) {
        // Relaxed: a figure, ordered by the gate among writers; readers take what they get.
        let value = self.0.load(std::sync::atomic::Ordering::Relaxed);
        self.0.store(value + 1, std::sync::atomic::Ordering::Relaxed);
    }

    /// The value, or a recent one.
    pub fn value(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl<D: Driver> StreamState<D> {
    pub fn new(raw: D::Stream, kind: Kind<D>) -> Arc<Self> {
        let role = match kind {
            Kind::Pooled(priority) => Role::Pooled(priority),
            Kind::Adopted(mark) => Role::Adopted(Adoption::new(mark, None)),
            Kind::Capture => Role::Capture,
        };
        Self::with_role(raw, role)
    }

    pub(crate) fn with_role(raw: D::Stream, role: Role<D>) -> Arc<Self> {
        let id = StreamId::fresh();
        let key = if matches!(role, Role::Adopted(_)) { CLOSED } else { id.number() };
        Arc::new(Self {
            id,
            key: AtomicU64::new(key),
            raw,
            role,
            timeline: Timeline::new(),
            visits: Visits::new(),
            gate: Biased::new(Gate::default()),
            broken: OnceLock::default(),
            counters: Counters::default(),
        })
    }

    /// Its identity, never used again.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// What the cover of a buffer is compared with: the number of the stream, or [`CLOSED`] once the runtime takes no work
    /// (R9). Then nothing is covered, and whoever comes the slow way is refused. That of an adopted stream is never its own:
    /// each submission there asks whether it captures and moves its mark, which the slow way does.
    #[inline]
    pub fn key(&self) -> u64 {
        // Relaxed: it closes for work that comes after, which is to say after something that the closer did.
        self.key.load(Ordering::Relaxed)
    }

    /// Whether other code made it.
    #[inline]
    pub fn is_adopted(&self) -> bool {
        matches!(self.role, Role::Adopted(_))
    }

    /// Whether it was made for captures, and may capture now.
    pub fn is_for_captures(&self) -> bool {
        matches!(self.role, Role::Capture)
    }

    /// Takes no work from now on. Waits for nobody: a submission may be under way.
    pub fn close(&self) {
        // Relaxed: as in `key`.
        self.key.store(CLOSED, Ordering::Relaxed);
    }

    /// Takes the gate.
    #[inline]
    pub fn gate(&self) -> BiasedGuard<'_, Gate<D>> {
        self.gate.lock()
    }

    /// Takes the gate if it is biased to the calling thread: without a lock.
    #[inline]
    pub fn gate_biased(&self) -> Option<BiasedGuard<'_, Gate<D>>> {
        self.gate.lock_biased()
    }

    /// Takes the gate, unless it is held and the thread must not wait.
    #[inline]
    pub fn gate_or(&self, refuse: impl Fn() -> bool) -> Option<BiasedGuard<'_, Gate<D>>> {
        self.gate.lock_or(refuse)
    }

    /// Gives up what makes the gate cheap for the calling thread alone. Waits for nobody (R1).
    pub fn release_bias(&self) {
        self.gate.release_bias();
    }

    /// Enters as a guest on behalf of submission `number`; `None` when that has completed: then there is nothing to do.
    pub fn visit(&self, number: u64) -> Option<Guest<'_, D>> {
        self.visits.enter();
        let guest = Guest(self);
        if self.timeline.is_complete(number) {
            return None;
        }
        Some(guest)
    }

    /// The failure after which the stream was given up.
    pub fn broken(&self) -> Option<std::sync::Arc<DriverFailure>> {
        self.broken.get().cloned()
    }

    /// Whether the stream was given up.
    pub fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// Gives the stream up (S7). The first failure is kept.
    pub fn break_with(&self, failure: std::sync::Arc<DriverFailure>) {
        self.broken.get_or_init(|| failure);
    }
}

/// Work of one stream up to a number.
#[derive(Debug)]
pub struct Point<D: Driver> {
    /// The stream. Holding it keeps the tombstone of a destroyed one.
    pub stream: Arc<StreamState<D>>,
    /// The number; zero means nothing.
    pub number: u64,
}

impl<D: Driver> Clone for Point<D> {
    fn clone(&self) -> Self {
        Self { stream: self.stream.clone(), number: self.number }
    }
}

impl<D: Driver> Point<D> {
    /// Whether it is known to have completed.
    pub fn is_complete(&self) -> bool {
        self.stream.timeline.is_complete(self.number)
    }
}

/// Points, few enough to lie on the stack.
pub type Points<D> = SmallVec<[Point<D>; 4]>;

/// Entries above, guests below, in one word, so that a claim sees both in one swap.
///
/// The upper half only grows: with a plain count of guests, a guest that came, enqueued and left between a claim's question
/// and its swap would go unseen. It wraps after 2^32 visits; a claim would have to sleep through exactly that many.
#[derive(Debug)]
pub(crate) struct Visits(AtomicU64);

impl Visits {
    const ENTRY: u64 = 1 << 32;
    const GUESTS: u64 = Self::ENTRY - 1;

    fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn enter(&self) {
        // E3.enter: Acquire; pairs with E3.claim. A guest who enters after a claim sees the watermark it raised.
        self.0.fetch_add(Self::ENTRY | 1, ordering!("E3.enter", Acquire));
    }

    fn leave(&self) {
        // E3.leave: Release; pairs with E3.look. A claim that finds no guest sees what the last one enqueued.
        self.0.fetch_sub(1, ordering!("E3.leave", Release));
    }

    /// The word, if no guest is inside.
    #[inline]
    pub(crate) fn look(&self) -> Option<u64> {
        // E3.look: Acquire; pairs with E3.leave.
        let word = self.0.load(ordering!("E3.look", Acquire));
        (word & Self::GUESTS == 0).then_some(word)
    }

    /// Whether nobody entered since `word` was read; publishes what the claim learned.
    #[inline]
    pub(crate) fn confirm(&self, word: u64) -> bool {
        // E3.claim: AcqRel; its release side pairs with E3.enter. Relaxed on failure: nothing is concluded from it.
        self.0
            .compare_exchange(
                word,
                word.wrapping_add(Self::ENTRY),
                ordering!("E3.claim", AcqRel),
                crate::sync::atomic::Ordering::Relaxed,
            )
            .is_ok()
    }
}

/// The visit of a thread that makes a driver call on a stream that it does not lease. Ends when dropped.
#[must_use]
pub struct Guest<'a, D: Driver>(&'a StreamState<D>);

impl<D: Driver> Drop for Guest<'_, D> {
    fn drop(&mut self) {
        self.0.visits.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_a_claim_sees_whether_any_guest_is_inside() {
        let visits = Visits::new();
        for guests in 1..=3 {
            for _ in 0..guests {
                visits.enter();
                assert_eq!(visits.look(), None, "S2: somebody is inside");
            }
            for _ in 1..guests {
                visits.leave();
                assert_eq!(visits.look(), None, "S2: not all have left");
            }
            visits.leave();
            let word = visits.look().expect("S5: after any number of visits, nobody is inside");
            visits.enter();
            visits.leave();
            assert!(!visits.confirm(word), "S3: somebody came and went since");
        }
    }
}
