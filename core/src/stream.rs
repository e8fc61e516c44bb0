//! Streams: their state, who may visit one, and the pool that leases them.
//!
//! A [`Stream`](crate::Stream) is a lease; the lease ends with its last clone. Ended leases go back to the pool as they
//! are. A claim takes the oldest, asks the driver outside the pool's lock whether it is idle, and puts it back if not.
//!
//! | state of a pooled stream | meaning | changes by | keeps |
//! |---|---|---|---|
//! | leased | one live lease | `claim` (after an idle answer) | S1 S2 |
//! | returned | no lease; may be busy | drop of the last clone | S2 S5 |
//! | candidate | popped by one claim that asks about it | `claim`, `trim` | S1 S5 S6 |
//! | quarantined | failed once; never used again | a failed query or wait | S7 |
//! | destroyed | a tombstone: every number complete | `trim`, shutdown | S6 |
//!
//! Adopted streams have states of their own: [`adopted`].
//!
//! # Visits
//! Whoever makes a driver call on a stream that he does not lease is a *guest*: the record of an edge, a host wait, the
//! worker's host function. One word counts entries above and guests below. A guest enters, looks at `completed` again,
//! makes his call, leaves. A claim reads the word, wants no guests, reads `submitted`, asks, raises `completed` and
//! swaps the word: if anybody came meanwhile, even if he left again, the swap fails and the stream goes back. So
//! nothing is ever enqueued on a stream that has changed hands or is gone (S3, S6).
//!
//! The race that looks wrong: a guest enters right after the swap. He then reads from it (E3), so he sees the raised
//! watermark, finds his number complete, and enqueues nothing.

use crate::context::Context;
use crate::driver::{Call, Driver, Priority, Progress};
use crate::error::{DriverFailure, Error, Result};
use crate::hold::MayWait;
use crate::id::StreamId;
use crate::life::Phase;
use crate::ownership::follow::Follows;
use crate::point::Timeline;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::ordering;
use crate::sync::{Arc, Biased, BiasedGuard, Mutex, OnceLock};

pub mod accept;
pub mod adopted;
pub mod state;

use self::adopted::{Adoption, End};
use self::state::{Figures, Shelf};

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
    visits: Visits,
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

    fn with_role(raw: D::Stream, role: Role<D>) -> Arc<Self> {
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

    /// Takes the gate if it favours the calling thread: without a lock.
    #[inline]
    pub fn gate_favoured(&self) -> Option<BiasedGuard<'_, Gate<D>>> {
        self.gate.lock_favoured()
    }

    /// Takes the gate, unless it is held and the thread must not wait.
    #[inline]
    pub fn gate_or(&self, refuse: impl Fn() -> bool) -> Option<BiasedGuard<'_, Gate<D>>> {
        self.gate.lock_or(refuse)
    }

    /// Gives up what makes the gate cheap for the calling thread alone. Waits for nobody (R1).
    pub fn resign_gate(&self) {
        self.gate.resign();
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

    /// Waits until submission `number` has completed, and learns of all that completed with it.
    ///
    /// # Errors
    /// `Lost` when the device is gone; `StreamBroken` when the stream was given up; the driver's own.
    pub fn wait(&self, context: &Context<D>, number: u64, may: &mut MayWait) -> Result<()> {
        if self.timeline.is_complete(number) {
            return Ok(());
        }
        context.life.check_process()?;
        context.check_alive()?;
        let Some(_guest) = self.visit(number) else { return Ok(()) };
        let answer = self.timeline.ask(|| {
            self.check_not_broken()?;
            match self.end() {
                End::Over => Ok(()),
                End::Event(mark) => {
                    context.guarded(may, Call::EventSynchronize, |driver| driver.event_synchronize(&mark))
                }
                End::Stream(end) => {
                    context.guarded(may, Call::StreamSynchronize, |driver| driver.stream_synchronize(end))
                }
            }
            .map(|()| Progress::Complete)
        });
        answer.map(drop).map_err(|error| self.note(error))
    }

    /// As [`wait`](Self::wait), also where the stream was given up: by who has nothing else to do but to ask again. A stream of
    /// ours answers for all its work whatever failed before. An adopted one does not: its mark may stand at an older place (S8).
    ///
    /// # Errors
    /// As there; `StreamBroken` only of an adopted stream.
    pub fn wait_out(&self, context: &Context<D>, number: u64, may: &mut MayWait) -> Result<()> {
        match self.wait(context, number, may) {
            Err(Error::StreamBroken(_)) if matches!(self.role, Role::Pooled(_)) => {}
            answer => return answer,
        }
        let Some(_guest) = self.visit(number) else { return Ok(()) };
        let wait = |driver: &D| driver.stream_synchronize(&self.raw);
        let ask = || context.guarded(may, Call::StreamSynchronize, wait).map(|()| Progress::Complete);
        let waited = self.timeline.ask(ask).map(drop);
        if waited.is_err() {
            // A wait that fails each time is no end of it: the stream may still answer a question.
            let query = |driver: &D| driver.stream_query(&self.raw);
            let now = || context.guarded_now(Call::StreamQuery, query).unwrap_or(Ok(Progress::Pending));
            if self.timeline.ask(now)? == Progress::Complete {
                return Ok(());
            }
        }
        waited
    }

    /// Asks whether all accepted work has completed, and learns of it. `None`: not now, a capture would break.
    pub fn query(&self, context: &Context<D>) -> Option<Result<Progress>> {
        let answer = self.timeline.ask(|| {
            self.check_not_broken().map_err(Some)?;
            let answer = match self.end() {
                End::Over => Some(Ok(Progress::Complete)),
                End::Event(mark) => context.guarded_now(Call::EventQuery, |driver| driver.event_query(&mark)),
                End::Stream(end) => context.guarded_now(Call::StreamQuery, |driver| driver.stream_query(end)),
            };
            answer.map_or(Err(None), |answer| answer.map_err(Some))
        });
        match answer {
            Ok(progress) => Some(Ok(progress)),
            Err(error) => error.map(|error| Err(self.note(error))),
        }
    }

    /// S8. Looked at after a horizon was read: a stream is given up before the number is taken that its mark is not past, so
    /// one that is not given up by then has marked all up to there.
    fn check_not_broken(&self) -> Result<()> {
        match self.broken() {
            Some(cause) => Err(Error::StreamBroken(cause)),
            None => Ok(()),
        }
    }

    /// Gives the stream up after a question that failed by itself.
    fn note(&self, error: Error) -> Error {
        if let Error::Driver(failure) = &error {
            self.break_with(failure.clone());
        }
        error
    }
}

/// Entries above, guests below, in one word, so that a claim sees both in one swap.
///
/// The upper half only grows: with a plain count of guests, one who came, enqueued and left between a claim's question
/// and its swap would go unseen. It wraps after 2^32 visits; a claim would have to sleep through exactly that many.
#[derive(Debug)]
struct Visits(AtomicU64);

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
    fn look(&self) -> Option<u64> {
        // E3.look: Acquire; pairs with E3.leave.
        let word = self.0.load(ordering!("E3.look", Acquire));
        (word & Self::GUESTS == 0).then_some(word)
    }

    /// Whether nobody entered since `word` was read; publishes what the claim learned.
    #[inline]
    fn confirm(&self, word: u64) -> bool {
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

/// Somebody who makes a driver call on a stream that he does not lease. Leaves when dropped.
#[must_use]
pub struct Guest<'a, D: Driver>(&'a StreamState<D>);

impl<D: Driver> Drop for Guest<'_, D> {
    fn drop(&mut self) {
        self.0.visits.leave();
    }
}

/// What a claim found out about a candidate.
#[derive(Debug)]
enum Candidate {
    /// Idle, and nobody came meanwhile: it is the claimer's.
    Claimed,
    /// Busy, visited, or not to be asked now.
    Busy,
    /// Its query failed.
    Broken,
}

/// The pool: leases streams, and makes new ones up to a cap when none is idle.
#[derive(Debug)]
pub struct Pool<D: Driver> {
    // Never held across a driver call (R1, R3).
    shelf: Mutex<Shelf<Arc<StreamState<D>>>>,
}

impl<D: Driver> Pool<D> {
    /// An empty pool that makes at most `cap` streams.
    pub fn new(cap: usize) -> Self {
        Self { shelf: Mutex::new(Shelf::new(cap)) }
    }

    /// Leases a stream: an idle one, or a new one.
    ///
    /// # Errors
    /// `StreamLimit` at the cap, `Lost`, or the driver's when it cannot make one; the pool is then as it was (S5).
    pub fn claim(&self, context: &Context<D>, priority: Priority) -> Result<Arc<StreamState<D>>> {
        context.check_alive()?;
        let rounds = self.shelf.lock().returned(priority);
        for _ in 0..rounds {
            let Some(candidate) = self.shelf.lock().take(priority) else { break };
            match candidate.examine(context) {
                Candidate::Claimed => {
                    self.shelf.lock().lease();
                    return Ok(candidate);
                }
                Candidate::Busy => self.shelf.lock().put_back(priority, candidate),
                Candidate::Broken => self.shelf.lock().quarantine(candidate),
            }
        }
        self.make(context, priority)
    }

    #[cold]
    fn make(&self, context: &Context<D>, priority: Priority) -> Result<Arc<StreamState<D>>> {
        self.shelf.lock().reserve().map_err(|cap| Error::StreamLimit { cap })?;
        match context.check(Call::StreamCreate, context.driver.stream_create(priority)) {
            Ok(raw) => {
                let state = StreamState::new(raw, Kind::Pooled(priority));
                self.shelf.lock().made(state.clone());
                context.add_witness(&state);
                // After it is listed: `close` finds it there, or has said before that the runtime is closed.
                if context.life.is_past(Phase::Draining) {
                    state.close();
                }
                Ok(state)
            }
            Err(error) => {
                self.shelf.lock().unreserve();
                Err(error)
            }
        }
    }

    /// Takes a stream back whose lease has ended. Makes no driver call (R1).
    pub fn give(&self, state: Arc<StreamState<D>>) {
        let Role::Pooled(priority) = state.role else { return };
        let broken = state.is_broken();
        let mut shelf = self.shelf.lock();
        match broken {
            true => shelf.quarantine_leased(state),
            false => shelf.give_back(priority, state),
        }
    }

    /// Destroys the idle streams that nobody leases; returns how many.
    pub fn trim(&self, context: &Context<D>) -> usize {
        let mut destroyed = 0;
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            let rounds = self.shelf.lock().returned(priority);
            for _ in 0..rounds {
                let Some(candidate) = self.shelf.lock().take(priority) else { break };
                match candidate.examine(context) {
                    Candidate::Claimed if !candidate.destroy(context) => self.shelf.lock().quarantine(candidate),
                    Candidate::Claimed => {
                        self.shelf.lock().destroyed(|state| state.id == candidate.id, &candidate.figures());
                        destroyed += 1;
                    }
                    Candidate::Busy => self.shelf.lock().put_back(priority, candidate),
                    Candidate::Broken => self.shelf.lock().quarantine(candidate),
                }
            }
        }
        destroyed
    }

    /// Closes every stream to new work. Makes no driver call, and waits for nobody who has a gate.
    pub fn close(&self) {
        self.shelf.lock().all.iter().for_each(|state| state.close());
    }

    /// A copy of the list of all streams that exist.
    pub fn streams(&self) -> Vec<Arc<StreamState<D>>> {
        self.shelf.lock().all.clone()
    }

    /// The pool's figures.
    pub fn figures(&self) -> Figures {
        let (mut figures, all) = {
            let shelf = self.shelf.lock();
            (shelf.figures, shelf.all.clone())
        };
        for state in &all {
            figures.add(&state.figures());
        }
        figures
    }
}

impl<D: Driver> StreamState<D> {
    /// Asks whether this candidate may change hands: idle, and not visited from before the question to after it.
    fn examine(&self, context: &Context<D>) -> Candidate {
        let Some(word) = self.visits.look() else { return Candidate::Busy };
        // A guest may have given it up after its lease ended. One who does so from now on makes `confirm` fail.
        if self.is_broken() {
            return Candidate::Broken;
        }
        match self.query(context) {
            Some(Ok(Progress::Complete)) if self.visits.confirm(word) => Candidate::Claimed,
            Some(Ok(_)) | None => Candidate::Busy,
            Some(Err(_)) => Candidate::Broken,
        }
    }

    /// Whether nobody asks the stream now, or will: all of it is complete, or it was given up.
    fn is_let_go(&self, context: &Context<D>) -> bool {
        match self.examine(context) {
            Candidate::Claimed => true,
            Candidate::Busy => false,
            // Who comes later finds it given up before it finds what marks it.
            Candidate::Broken => self.is_broken() && self.visits.look().is_some_and(|word| self.visits.confirm(word)),
        }
    }

    /// Destroys the raw stream: the caller has claimed it, and will not lease it. `false`: the driver refused, which is
    /// kept (R7).
    fn destroy(&self, context: &Context<D>) -> bool {
        self.destroy_event(context);
        context.remove_witness(self);
        // SAFETY: S6. `examine` proved it idle and unvisited and took it off the shelf, so no lease and no guest uses
        // the handle, now or later: every number on it is complete, and who visits for one turns round at once. Or it is
        // the runtime's own, which only turns use, and the last is over.
        let answer = unsafe { context.driver.stream_destroy(&self.raw) };
        if let Err(error) = answer {
            context.fail_untold(Call::StreamDestroy, &error);
            return false;
        }
        true
    }

    /// Waits for its work and destroys it: a stream of the runtime's own, which frees memory and is on no shelf. Some
    /// drivers do not destroy a stream before its work is done. `false`: it stays, since a capture forbids the wait, or the
    /// driver refused, which is kept (R7).
    pub fn destroy_after_its_work(&self, context: &Context<D>) -> bool {
        match context.guarded_now(Call::StreamSynchronize, |driver| driver.stream_synchronize(&self.raw)) {
            Some(_) if context.lost().is_none() => self.destroy(context),
            _ => false,
        }
    }

    /// Destroys the event of its waits. Takes the gate.
    pub fn destroy_event(&self, context: &Context<D>) {
        let event = self.gate().event.take();
        if let Some(event) = event {
            context.event_destroy(event);
        }
    }

    /// As [`destroy_event`](Self::destroy_event), unless somebody has the gate: at the end, who may be in a driver call
    /// that does not return.
    pub fn destroy_event_unless_held(&self, context: &Context<D>) {
        let event = self.gate_or(|| true).and_then(|mut gate| gate.event.take());
        if let Some(event) = event {
            context.event_destroy(event);
        }
    }

    fn figures(&self) -> Figures {
        // What is subtracted is read first: it was counted before what it is subtracted from.
        let (waits, moved) = (self.counters.waits.value(), self.counters.moved.value());
        let launches = self.timeline.horizon().number().saturating_sub(waits);
        Figures {
            launches,
            covered: launches.saturating_sub(moved),
            handovers: self.counters.handovers.value(),
            edges_inserted: self.counters.edges_inserted.value(),
            edges_skipped: self.counters.edges_skipped.value(),
            ..Figures::default()
        }
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
