//! Ownership: which work on a buffer is ordered after which (O1 to O9).
//!
//! Each buffer has a [`Record`]; each use of buffers goes through [`submit`]. A use that its stream *covers* costs the
//! stream's gate and a load and a store a buffer. Any other goes the slow way and moves the buffer.
//!
//! | cover | slots | meaning | changes by | under | keeps |
//! |---|---|---|---|---|---|
//! | s | none | s reads and writes at once; `write` and `read` are its last uses | close -> nobody | inner, gate of s | O1 O4 |
//! | nobody | some | each stream in a slot reads at once; `closed` has the last write | join, close | inner, the slot's gate | O1 O9 |
//! | nobody | none | `closed` says what may still run | move -> s, join -> slots | inner, gate of s | O2 O5 |
//!
//! # Who touches what
//! - *Cover changes from or to S only under S's gate; a slot likewise; numbers on S are written only under S's gate.*
//!   Both change only under `inner` as well, so whoever holds `inner` reads them steadily.
//! - `closed` is touched only under `inner`.
//! - Lock order: `inner` locks in address order, then one gate. Never two gates, never an `inner` while holding a gate.
//!
//! # Why n threads and m streams keep O1 to O4
//! Call a *tenure* the time from a stream's getting cover (or a slot) to its being closed. Both ends lie under `inner` and under
//! that stream's gate. Cover is got only when there is neither cover nor a slot, a slot only when there is no cover: so tenures
//! of which one can write never overlap. Every use lies in a tenure of its stream, in one gate section from check to stamp,
//! which no end can cut, since closing needs the gate (O4). A read that found no free slot is a tenure of its own: its
//! mover holds `inner` throughout, and its point goes to `closed` at once.
//!
//! Take two conflicting submissions a and b on one buffer. On one stream, the driver runs them in the order of its gate: the edge
//! is the stream itself. Otherwise their tenures do not overlap; let a's stream A be the one whose tenure ends first.
//! 1. It is closed under A's gate, so after a's section: the numbers read then are at or past a's stamp, and go to `closed`, the last
//!    write apart from the last read.
//! 2. They stay there until something comes after them. A read is dropped when it is complete, or for a later one of the same
//!    stream. The last write is replaced only at the end of a tenure of cover, which began by emptying `closed`. And
//!    `closed` is emptied only by giving cover to a stream that was ordered after all of it.
//! 3. Whoever gets cover is ordered, under its gate, after all of `closed`; whoever gets a slot, after the last write: by a wait,
//!    by one that it made before ([`follow`](crate::stream_state::follow)), or by none where the point is complete, since then the host was told first. Cover
//!    begins with the number of the last such wait as its last write. So that number stands for all that was emptied, even if
//!    nothing is ever launched in that tenure.
//!
//! By induction over the tenures from a's to b's, a comes before the first wait or number of each that conflicts with it, and so
//! before b. Nothing in this counts threads or streams.
//!
//! What fails keeps it true (O5). Before the move, `closed` is as full as it was, or fuller, and the cover nobody's. After
//! it, the number of the last wait is still there. A submission that the driver refuses is stamped
//! all the same: a call that fails may have had its effect, and if not, its number stands for nothing and completes with the rest.
//!
//! The race that looks wrong: [`Record::points`] reads numbers without the gate, while a launch may be about to stamp.
//! It promises only what happened before the question (O2), and a stamp that happened before is seen.

use crate::call_scope::{CallScope, MayWait, is_within};
use crate::context::Context;
use crate::driver::{Call, CaptureStatus, Driver, Timing};
use crate::error::{Error, Misuse, Result};
use crate::sealed::Sealed;
use crate::stream_state::adoption::End;
use crate::stream_state::touch::Touch;
use crate::stream_state::{CLOSED, Gate, Role, StreamState};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::ordering;
use crate::sync::{Arc, CachePadded, Mutex, MutexGuard, OnceLock};
use smallvec::SmallVec;

pub mod state;

use self::state::Closed;
pub use crate::stream_state::{Point, Points};

/// What a use does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Only reads.
    Read,
    /// Writes, and may read.
    Write,
}

impl<D: Driver> state::Position for Point<D> {
    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn is_same_stream(&self, other: &Self) -> bool {
        self.stream.id() == other.stream.id()
    }

    fn number(&self) -> u64 {
        self.number
    }
}

/// Streams that may read one buffer at once: about as many as a device has queues. Further readers take the
/// slow way.
pub const SLOTS: usize = if cfg!(mc_loom) { 2 } else { 24 };

const NOBODY: u64 = 0;

/// The ownership of one allocation, one registered range, or one executable graph.
#[derive(Debug)]
pub struct Record<D: Driver> {
    pub(crate) cover: Cover,
    /// Made when the first stream joins as a reader, under `inner`; most buffers never need it.
    shared: OnceLock<Box<Shared>>,
    views: Views,
    inner: Mutex<Inner<D>>,
}

/// Which stream uses a buffer at once, and the last uses of it: all that a launch looks at.
#[derive(Debug)]
pub struct Cover {
    stream: AtomicU64,
    /// Its last read and its last write, by [`Access`].
    last: [AtomicU64; 2],
}

impl Default for Cover {
    /// Nobody's.
    fn default() -> Self {
        Self { stream: AtomicU64::new(NOBODY), last: [AtomicU64::new(0), AtomicU64::new(0)] }
    }
}

impl Cover {
    /// Whether it is the stream's. Steady for a caller that holds the stream's gate, or `inner`.
    #[inline]
    pub fn is_of(&self, stream: u64) -> bool {
        // Relaxed: as in [`Record::covers`].
        self.stream.load(Ordering::Relaxed) == stream
    }

    /// Notes submission `number` of its stream. The caller holds the stream's gate.
    #[inline]
    pub fn stamp(&self, access: Access, number: u64) {
        // Relaxed: numbers on a stream are written and closed under its gate.
        self.last[access as usize].store(number, Ordering::Relaxed);
    }

    fn last(&self, access: Access) -> &AtomicU64 {
        &self.last[access as usize]
    }
}

/// The streams that read at once, and the number of the last read of each.
#[derive(Debug)]
struct Shared {
    readers: [AtomicU64; SLOTS],
    // Apart, since each is written by another thread with each of its launches.
    reads: [CachePadded<AtomicU64>; SLOTS],
}

impl Shared {
    fn new() -> Self {
        Self {
            readers: std::array::from_fn(|_| AtomicU64::new(NOBODY)),
            reads: std::array::from_fn(|_| CachePadded::new(AtomicU64::new(0))),
        }
    }

    /// The number of the last read of `stream`, if it has a slot. Steady as for [`Record::covers`].
    fn read_of(&self, stream: u64) -> Option<&AtomicU64> {
        let mut slots = self.readers.iter().zip(&self.reads);
        // Relaxed: as in `covers`.
        let (_, read) = slots.find(|(reader, _)| reader.load(Ordering::Relaxed) == stream)?;
        Some(&read.value)
    }

    /// Fills a slot. The caller holds `inner` and the gate of the stream.
    fn fill(&self, slot: usize, stream: u64, read: u64) {
        // Relaxed both: they change only under the gate of the stream that the slot names.
        self.reads[slot].value.store(read, Ordering::Relaxed);
        self.readers[slot].store(stream, Ordering::Relaxed);
    }

    /// Empties a slot and gives the last read. The caller holds `inner` and the gate of the stream in it.
    fn empty(&self, slot: usize) -> u64 {
        // Relaxed both: as in `fill`.
        self.readers[slot].store(NOBODY, Ordering::Relaxed);
        self.reads[slot].value.load(Ordering::Relaxed)
    }

    /// The last read in a slot.
    fn read(&self, slot: usize) -> u64 {
        // Relaxed: a stamp that happened before the question is seen; of others nothing is promised (O2).
        self.reads[slot].value.load(Ordering::Relaxed)
    }
}

/// What only movers need. Held through a move.
#[derive(Debug)]
pub struct Inner<D: Driver> {
    cover: Option<Arc<StreamState<D>>>,
    /// Who is in which slot of `shared`.
    slots: Vec<Option<Arc<StreamState<D>>>>,
    closed: Closed<Point<D>>,
}

/// One buffer of a submission.
#[derive(Debug)]
pub struct Use<'a, D: Driver> {
    record: &'a Record<D>,
    access: Access,
}

impl<D: Driver> Clone for Use<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Use<'_, D> {}

impl<'a, D: Driver> Use<'a, D> {
    /// A use of `record`.
    pub fn new(record: &'a Record<D>, access: Access) -> Self {
        Self { record, access }
    }

    fn address(&self) -> usize {
        self.record.inner.place()
    }
}

/// What one submission uses, in pieces of this type: one, a tuple or an array of such, or a slice. Where their number is known
/// when a launch is compiled, going through them costs no loop. This crate alone implements it: what a set leaves out is not
/// ordered (O1).
pub trait UseSet<Piece, D: Driver>: Sealed + Copy {
    /// Whether `stream` covers every one outright. The caller holds its gate.
    fn all_outright(&self, stream: u64) -> bool;
    /// Notes submission `number` of the stream that covers every one. The caller has held its gate since it looked.
    fn stamp_outright(&self, number: u64);
    /// Whether `test` holds for every one.
    fn all(&self, test: impl Fn(&Record<D>, Access) -> bool + Copy) -> bool;
    /// Does `act` with every one.
    fn each(&self, act: impl Fn(&Record<D>, Access) + Copy);
    /// Visits each piece that has bytes.
    fn visit(&self, act: &mut impl FnMut(Piece));
}

impl<D: Driver> Sealed for &[Use<'_, D>] {}

impl<'a, D: Driver> UseSet<Use<'a, D>, D> for &[Use<'a, D>] {
    #[inline]
    fn all_outright(&self, stream: u64) -> bool {
        // Nothing at all is not covered: it would not show that the stream is closed, or adopted (R5, S8).
        !self.is_empty() && self.iter().all(|used| used.record.cover.is_of(stream))
    }

    #[inline]
    fn stamp_outright(&self, number: u64) {
        self.iter().for_each(|used| used.record.cover.stamp(used.access, number));
    }

    #[inline]
    fn all(&self, test: impl Fn(&Record<D>, Access) -> bool + Copy) -> bool {
        self.iter().all(|used| test(used.record, used.access))
    }

    #[inline]
    fn each(&self, act: impl Fn(&Record<D>, Access) + Copy) {
        self.iter().for_each(|used| act(used.record, used.access));
    }

    fn visit(&self, act: &mut impl FnMut(Use<'a, D>)) {
        self.iter().for_each(|used| act(*used));
    }
}

/// Enqueues one submission that uses `uses` on `stream`, ordered after all that conflicts with it; returns its number.
///
/// `enqueue` makes the driver call. It runs once, under the stream's gate, or not at all. `uses` may name a buffer
/// twice.
///
/// # Errors
/// When `enqueue` or an edge failed, or the call cannot be made here. Every buffer is then as it was, or looks busy for
/// longer than it is: `enqueue` may have had its effect, and counts as if it had (O5).
#[inline]
pub fn submit<D: Driver, R>(
    context: &Context<D>,
    stream: &Arc<StreamState<D>>,
    uses: &[Use<'_, D>],
    call: Call,
    enqueue: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
) -> Result<(R, u64)> {
    submit_covered(context, stream, uses, call, enqueue, move |uses, enqueue| {
        let mut uses: SmallVec<[Use<'_, D>; 16]> = uses.into();
        submit_moving(context, stream, &mut uses, call, enqueue)
    })
}

/// [`submit`] where `stream` covers every use: under its gate, and without a list. Otherwise nothing was done, and
/// `moving` gets `uses` and `enqueue`. They go by value: lent to the slow way, they would lie in memory on the fast one
/// too.
#[inline(always)]
pub fn submit_covered<D: Driver, R, P, U: UseSet<P, D>, F>(
    context: &Context<D>,
    stream: &StreamState<D>,
    uses: U,
    call: Call,
    enqueue: F,
    moving: impl FnOnce(U, F) -> Result<(R, u64)>,
) -> Result<(R, u64)>
where
    F: FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
{
    let key = stream.key();
    // What uses nothing is covered by a stream that is not closed: elsewhere the covers show that.
    let is_open = size_of::<U>() > 0 || key != CLOSED;
    // Mostly the gate is biased to the thread, and all is covered outright.
    if is_open
        && let Some(gate) = stream.gate_biased()
        && uses.all_outright(key)
    {
        let (answer, number) = stream.attempt_outright(context, &gate, enqueue);
        return match answer {
            Ok(value) => {
                uses.stamp_outright(number);
                Ok((value, number))
            }
            Err(error) => Err(refused_outright(context, uses, number, call, &error)),
        };
    }
    submit_gated(context, stream, uses, call, enqueue, moving)
}

/// Notes a submission that the driver refused as if it had been accepted: it may have been (O5).
#[cold]
#[inline(never)]
fn refused_outright<P, D: Driver>(
    context: &Context<D>,
    uses: impl UseSet<P, D>,
    number: u64,
    call: Call,
    error: &D::Error,
) -> Error {
    uses.stamp_outright(number);
    context.fail(call, error)
}

/// [`submit_covered`] by a gate that may not be biased to the thread, and where some of the uses may be reads of what the
/// stream shares with others.
#[inline(never)]
fn submit_gated<D: Driver, R, P, U: UseSet<P, D>, F>(
    context: &Context<D>,
    stream: &StreamState<D>,
    uses: U,
    call: Call,
    enqueue: F,
    moving: impl FnOnce(U, F) -> Result<(R, u64)>,
) -> Result<(R, u64)>
where
    F: FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
{
    let id = match stream.key() {
        // Whether an adopted stream is closed is asked below: the pool does not know it.
        CLOSED if stream.is_adopted() => stream.id().number(),
        CLOSED => return Err(context.why_closed()),
        id => id,
    };
    let Some(gate) = stream.gate_or(|| is_within(CallScope::UseOn)) else {
        return Err(Misuse::InsideHold.into());
    };
    if !uses.all(|record, access| record.covers(id, access)) {
        drop(gate);
        return moving(uses, enqueue);
    }
    let (answer, number) = stream.enqueue(context, &gate, enqueue)?;
    uses.each(|record, access| {
        record.stamp(id, access, number);
    });
    Ok((context.check(call, answer)?, number))
}

/// [`submit`] the slow way: locks all buffers, closes those that others cover, orders `stream` after them, then
/// submits. Sorts `uses`.
///
/// # Errors
/// Those of [`submit`].
#[cold]
pub fn submit_moving<D: Driver, R>(
    context: &Context<D>,
    stream: &Arc<StreamState<D>>,
    uses: &mut [Use<'_, D>],
    call: Call,
    enqueue: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
) -> Result<(R, u64)> {
    context.life.check_process()?;
    let may = MayWait::here()?;
    let mut taken = Taken::new();
    take_all(uses, &mut taken, &may)?;
    let id = stream.id().number();
    for (used, inner) in &mut taken {
        if !used.record.covers(id, used.access) {
            used.record.close(inner, used.access);
        }
    }
    let mut gate = stream.gate();
    // Before the first wait, not only before the enqueue.
    stream.check_takes_work(context)?;
    for (used, inner) in &mut taken {
        if !used.record.covers(id, used.access) {
            let touch = order_after(context, stream, &mut gate, &inner.closed, used.access)?;
            used.record.move_to(inner, stream, used.access, touch);
            stream.counters.handovers.bump();
        }
    }
    let (answer, number) = stream.enqueue(context, &gate, enqueue)?;
    stream.counters.moved.bump();
    for (used, inner) in &mut taken {
        if !used.record.stamp(id, used.access, number) {
            inner.closed.add_reader(Point { stream: stream.clone(), number });
        }
    }
    Ok((context.check(call, answer)?, number))
}

type Taken<'a, D> = SmallVec<[(Use<'a, D>, MutexGuard<'a, Inner<D>>); 8]>;

/// Locks every buffer once, in address order, the strongest access to it first (O5).
fn take_all<'a, D: Driver>(uses: &mut [Use<'a, D>], taken: &mut Taken<'a, D>, may: &MayWait) -> Result<()> {
    uses.sort_unstable_by_key(|used| (used.address(), std::cmp::Reverse(used.access)));
    for used in uses.iter().copied() {
        let is_taken = taken.last().is_some_and(|(earlier, _)| earlier.address() == used.address());
        if is_taken {
            continue;
        }
        let inner = used.record.lock(may);
        if used.record.views.forbid(used.access) {
            return Err(Misuse::HostView.into());
        }
        taken.push((used, inner));
    }
    Ok(())
}

/// Orders `stream` after everything in `closed` that conflicts with `access`; returns what stands for it from now on.
/// Holds the gate of `stream`, and visits the others.
fn order_after<D: Driver>(
    context: &Context<D>,
    stream: &StreamState<D>,
    gate: &mut Gate<D>,
    closed: &Closed<Point<D>>,
    access: Access,
) -> Result<Touch> {
    let mut touch = Touch::NOTHING;
    for point in closed.conflicting(access) {
        touch = touch.max(edge(context, stream, gate, point)?);
    }
    Ok(touch)
}

/// One edge from `point` to `stream`, if none exists; returns the number on `stream` from which on it holds.
pub fn edge<D: Driver>(
    context: &Context<D>,
    stream: &StreamState<D>,
    gate: &mut Gate<D>,
    point: &Point<D>,
) -> Result<Touch> {
    if point.stream.id() == stream.id() {
        return Ok(Touch::at_own(point));
    }
    if point.is_complete() {
        stream.counters.edges_skipped.bump();
        return Ok(Touch::NOTHING);
    }
    if let Some(at) = gate.follows.find(point.stream.id(), point.number) {
        stream.counters.edges_skipped.bump();
        return Ok(at);
    }
    let Some(_guest) = point.stream.visit(point.number) else { return Ok(Touch::NOTHING) };
    let at = insert_wait(context, stream, gate, &point.stream)?;
    stream.counters.edges_inserted.bump();
    Ok(at)
}

/// Orders everything later on `to` after all of `from`: forks and joins of a capture.
pub fn join<D: Driver>(context: &Context<D>, from: &Arc<StreamState<D>>, to: &Arc<StreamState<D>>) -> Result<()> {
    let mut gate = to.gate();
    insert_wait(context, to, &mut gate, from).map(drop)
}

/// Makes `stream` wait for the present end of `source`, and notes how far that reaches.
fn insert_wait<D: Driver>(
    context: &Context<D>,
    stream: &StreamState<D>,
    gate: &mut Gate<D>,
    source: &StreamState<D>,
) -> Result<Touch> {
    let driver = &context.driver;
    // Read before the record: what is accepted later is not behind the event.
    let reach = source.timeline.mark();
    // S8. Looked at after that: a mark that could not be moved past some of it is not waited for.
    if let Some(cause) = source.broken() {
        return Err(Error::StreamBroken(cause));
    }
    let at = match source.end() {
        End::Over => return Ok(Touch::NOTHING),
        End::Event(mark) => stream.accept_wait(context, gate, &mark)?,
        End::Stream(end) => {
            let event = match gate.event.take() {
                Some(event) => event,
                None => context.check(Call::EventCreate, driver.event_create(Timing::Disabled))?,
            };
            let recorded = context.check(Call::EventRecord, driver.event_record(&event, end));
            // An event whose record failed still means an older position: it is never waited for.
            let answer = recorded.and_then(|()| stream.accept_wait(context, gate, &event));
            match stream.role {
                // One that a capture recorded is destroyed: asking for it would break the capture.
                Role::Capture => context.event_destroy(event),
                _ => gate.event = Some(event),
            }
            answer?
        }
    };
    let at = Touch::at_wait(at);
    gate.follows.insert(source.id(), reach, at);
    Ok(at)
}

impl<D: Driver> StreamState<D> {
    /// Makes the driver call and numbers it, under the stream's own gate: also where it fails, since that may have been
    /// after its effect (O5).
    #[inline]
    fn enqueue<R>(
        &self,
        context: &Context<D>,
        gate: &Gate<D>,
        body: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> Result<(std::result::Result<R, D::Error>, u64)> {
        let (answer, number) = self.attempt(context, gate, body)?;
        Ok((answer, number.get()))
    }

    /// Refuses an adopted stream that captures. A wait for work of ours would break that capture (C1), and an event on
    /// the stream would belong to it, so that asking for it later would break it too.
    #[inline]
    pub fn check_takes_work(&self, context: &Context<D>) -> Result<()> {
        if self.is_adopted() { self.check_not_capturing(context) } else { Ok(()) }
    }

    #[cold]
    fn check_not_capturing(&self, context: &Context<D>) -> Result<()> {
        // The pool does not know it, so nobody closed it (R5).
        context.check_open()?;
        let status = context.check(Call::CaptureStatus, context.driver.capture_status(&self.raw))?;
        if status != CaptureStatus::None {
            return Err(Misuse::AdoptedStreamCaptures.into());
        }
        Ok(())
    }
}

impl<D: Driver> Default for Record<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: Driver> Record<D> {
    /// A buffer that nothing has used.
    pub fn new() -> Self {
        Self {
            cover: Cover::default(),
            shared: OnceLock::default(),
            views: Views::new(),
            inner: Mutex::new(Inner { cover: None, slots: Vec::new(), closed: Closed::new() }),
        }
    }

    /// Whether `stream` may use it at once. Steady for a caller that holds the stream's gate or `inner`.
    #[inline]
    fn covers(&self, stream: u64, access: Access) -> bool {
        // Relaxed: cover and slots change only under the gate of the stream that they name, which the caller holds, or
        // under `inner`, which it holds then.
        self.cover.is_of(stream) || access == Access::Read && self.read_of(stream).is_some()
    }

    fn read_of(&self, stream: u64) -> Option<&AtomicU64> {
        self.shared.get()?.read_of(stream)
    }

    /// Notes submission `number` of `stream`. The caller holds its gate. `false`: the stream has no place here.
    #[inline]
    fn stamp(&self, stream: u64, access: Access, number: u64) -> bool {
        if self.cover.is_of(stream) {
            self.cover.stamp(access, number);
            return true;
        }
        let read = self.read_of(stream);
        // Relaxed: as in `Cover::stamp`.
        read.inspect(|read| read.store(number, Ordering::Relaxed)).is_some()
    }

    /// Takes the buffer away from those whose cover conflicts with `access`, each under its own gate, and turns their
    /// last uses into points. The caller holds `inner` and no gate.
    fn close(&self, inner: &mut Inner<D>, access: Access) {
        if let Some(owner) = inner.cover.take() {
            self.close_cover(inner, owner, access);
        }
        match access {
            Access::Write => self.close_slots(inner, |_| true),
            // A full house: make room by closing the readers that are done.
            Access::Read if inner.slots.len() == SLOTS && inner.slots.iter().all(Option::is_some) => {
                self.close_slots(inner, |reader| reader.timeline.is_drained());
            }
            Access::Read => {}
        }
    }

    fn close_cover(&self, inner: &mut Inner<D>, owner: Arc<StreamState<D>>, access: Access) {
        let gate = owner.gate();
        self.cover.stream.store(NOBODY, Ordering::Relaxed);
        let write = self.cover.last(Access::Write).load(Ordering::Relaxed);
        let read = self.cover.last(Access::Read).load(Ordering::Relaxed);
        if access == Access::Read {
            // The old owner goes on reading: its slot is filled under its gate.
            self.join(inner, &owner, read);
        }
        drop(gate);
        // A read before the last write needs no point of its own.
        if access == Access::Write && read > write {
            inner.closed.add_reader(Point { stream: owner.clone(), number: read });
        }
        inner.closed.set_writer(Point { stream: owner, number: write });
    }

    fn close_slots(&self, inner: &mut Inner<D>, wanted: impl Fn(&StreamState<D>) -> bool) {
        let Some(shared) = self.shared.get() else { return };
        for (slot, reader) in inner.slots.iter_mut().enumerate() {
            let Some(reader) = reader.take_if(|reader| wanted(reader)) else { continue };
            let gate = reader.gate();
            let number = shared.empty(slot);
            drop(gate);
            inner.closed.add_reader(Point { stream: reader, number });
        }
    }

    /// Gives `stream` cover, or a slot for reading. The caller holds `inner` and the stream's gate, and has ordered it
    /// after what conflicts.
    fn move_to(&self, inner: &mut Inner<D>, stream: &Arc<StreamState<D>>, access: Access, touch: Touch) {
        let id = stream.id().number();
        // Relaxed: the caller holds `inner` and the gate of the stream that the numbers are on.
        if access == Access::Write {
            self.cover.last(Access::Write).store(touch.number(), Ordering::Relaxed);
            self.cover.last(Access::Read).store(0, Ordering::Relaxed);
            self.cover.stream.store(id, Ordering::Relaxed);
            inner.cover = Some(stream.clone());
            inner.closed.clear();
            return;
        }
        self.join(inner, stream, 0);
    }

    /// Gives `stream` a slot, if one is free; `close` made room where it could. The caller holds `inner` and the stream's
    /// gate. Without a slot the point of a read goes to `closed`, and the stream's next read comes this way again.
    fn join(&self, inner: &mut Inner<D>, stream: &Arc<StreamState<D>>, read: u64) {
        let free = inner.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or(inner.slots.len());
        if slot == SLOTS {
            return;
        }
        self.shared.get_or_init(|| Box::new(Shared::new())).fill(slot, stream.id().number(), read);
        match free {
            Some(slot) => inner.slots[slot] = Some(stream.clone()),
            None => inner.slots.push(Some(stream.clone())),
        }
    }

    /// What a host access must wait for: writes for a read, all for a write. What is known to be complete is left out.
    pub fn points(&self, access: Access, may: &MayWait) -> Points<D> {
        self.points_of(&self.lock(may), access)
    }

    /// Who has it locked may wait for the gate of any stream: not to be waited for where a gate is held.
    fn lock(&self, _may: &MayWait) -> MutexGuard<'_, Inner<D>> {
        self.inner.lock()
    }

    /// As [`points`](Self::points), unless somebody is moving the buffer right now.
    pub fn points_now(&self, access: Access) -> Option<Points<D>> {
        Some(self.points_of(&*self.inner.try_lock()?, access))
    }

    /// As [`points`](Self::points), by exclusive access: no lock.
    pub fn points_alone(&mut self, access: Access) -> Points<D> {
        self.points_now(access).expect("nobody else has it, so nobody has it locked")
    }

    /// Everything that may still use it, by exclusive access: no lock.
    pub fn into_points(&mut self) -> Points<D> {
        let Self { cover, shared, inner, .. } = self;
        let inner = inner.get_mut();
        let mut points: Points<D> = SmallVec::new();
        // Relaxed: `&mut` proves that nobody else touches them.
        let numbers = cover.last.each_ref().map(|number| number.load(Ordering::Relaxed));
        if let Some(owner) = inner.cover.take() {
            points.push(Point { number: numbers[0].max(numbers[1]), stream: owner });
        }
        if let Some(shared) = shared.get() {
            let readers = inner.slots.drain(..).enumerate();
            points.extend(
                readers.filter_map(|(slot, stream)| Some(Point { stream: stream?, number: shared.read(slot) })),
            );
        }
        points.extend(inner.closed.conflicting(Access::Write).cloned());
        points.retain(|point| !point.is_complete());
        points
    }

    fn points_of(&self, inner: &Inner<D>, access: Access) -> Points<D> {
        let mut points: Points<D> = SmallVec::new();
        if let Some(owner) = &inner.cover {
            // Relaxed: a stamp that happened before the question is seen; of others nothing is promised (O2).
            let write = self.cover.last(Access::Write).load(Ordering::Relaxed);
            let read = if access == Access::Write { self.cover.last(Access::Read).load(Ordering::Relaxed) } else { 0 };
            points.push(Point { stream: owner.clone(), number: write.max(read) });
        }
        if access == Access::Write
            && let Some(shared) = self.shared.get()
        {
            let readers = inner.slots.iter().enumerate().filter_map(|(slot, stream)| Some((slot, stream.clone()?)));
            points.extend(readers.map(|(slot, stream)| Point { stream, number: shared.read(slot) }));
        }
        points.extend(inner.closed.conflicting(access).cloned());
        points.retain(|point| !point.is_complete());
        points
    }

    /// Whether work that conflicts with `access` of the host may still run. Pessimistic when in doubt (O2).
    ///
    /// In a `use_on` closure it does not wait for whoever moves the buffer: then it is busy.
    pub fn is_busy(&self, access: Access) -> bool {
        match MayWait::here() {
            Ok(may) => !self.points(access, &may).is_empty(),
            Err(_) => self.points_now(access).is_none_or(|points| !points.is_empty()),
        }
    }

    /// Waits for all work submitted before the call that conflicts with `access` of the host (O3).
    pub fn wait(&self, context: &Context<D>, access: Access, may: &mut MayWait) -> Result<()> {
        context.life.check_process()?;
        self.points(access, may).iter().try_for_each(|point| point.wait(context, may))
    }

    /// As [`wait`](Self::wait), also for streams that were given up, as [`StreamState::wait_out`] says.
    pub fn wait_out(&self, context: &Context<D>, access: Access, may: &mut MayWait) -> Result<()> {
        self.points(access, may).iter().try_for_each(|point| point.stream.wait_out(context, point.number, may))
    }

    /// Makes the host the owner: closes every conflicting cover, so that a conflicting take is refused until
    /// [`end_view`](Self::end_view), then waits. On an error there is no view.
    pub fn begin_view(&self, context: &Context<D>, access: Access, may: &mut MayWait) -> Result<()> {
        context.life.check_process()?;
        let points = {
            let mut inner = self.lock(may);
            self.views.begin(access)?;
            // For a host read, streams keep their slots and read on; nobody keeps cover, since cover can write.
            self.close(&mut inner, access);
            self.points_of(&inner, access)
        };
        let waited = points.iter().try_for_each(|point| point.wait(context, may));
        if waited.is_err() {
            self.end_view(access);
        }
        waited
    }

    /// Ends a view. One atomic operation: views are dropped anywhere (R1).
    pub fn end_view(&self, access: Access) {
        self.views.end(access);
    }
}

/// Views of the host: any number of readers, or one writer.
#[derive(Debug)]
struct Views(AtomicU32);

impl Views {
    const WRITER: u32 = 1 << 31;

    fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Adds a view. The caller holds `inner`, so that only ends run beside this.
    fn begin(&self, access: Access) -> Result<()> {
        // E4.r: Acquire; pairs with E4.w in `end`: what the host did through the ended view comes first.
        let views = self.0.load(ordering!("E4.r", Acquire));
        let step = match access {
            Access::Read if views & Self::WRITER == 0 && views < Self::WRITER - 1 => 1,
            Access::Write if views == 0 => Self::WRITER,
            _ => return Err(Misuse::HostView.into()),
        };
        // Relaxed: takers look under `inner`, which the caller holds.
        self.0.fetch_add(step, Ordering::Relaxed);
        Ok(())
    }

    fn end(&self, access: Access) {
        let step = if access == Access::Write { Self::WRITER } else { 1 };
        // E4.w: Release; pairs with E4.r in `begin` and `forbid`.
        self.0.fetch_sub(step, ordering!("E4.w", Release));
    }

    /// Whether a device access of this kind conflicts with a view.
    fn forbid(&self, access: Access) -> bool {
        // E4.r: Acquire; pairs with E4.w: a device access ordered after this look is after what the host did.
        let views = self.0.load(ordering!("E4.r", Acquire));
        match access {
            Access::Read => views & Self::WRITER != 0,
            Access::Write => views != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of a read and a write the views admit.
    fn admitted(views: &Views) -> [bool; 2] {
        [Access::Read, Access::Write].map(|access| {
            let admitted = views.begin(access).is_ok();
            if admitted {
                views.end(access);
            }
            admitted
        })
    }

    #[test]
    fn views_are_many_readers_or_one_writer() {
        let views = Views::new();
        assert_eq!((admitted(&views), views.forbid(Access::Read)), ([true, true], false));
        views.begin(Access::Read).expect("nobody looks");
        assert_eq!(admitted(&views), [true, false], "a reader beside readers");
        assert_eq!([Access::Read, Access::Write].map(|access| views.forbid(access)), [false, true]);
        views.end(Access::Read);
        views.begin(Access::Write).expect("nobody looks");
        assert_eq!(admitted(&views), [false, false], "nobody beside a writer");
        assert_eq!([Access::Read, Access::Write].map(|access| views.forbid(access)), [true, true]);
        views.end(Access::Write);
        assert_eq!(admitted(&views), [true, true]);
    }

    #[test]
    fn readers_never_count_up_to_a_writer() {
        let (most, one_less) = (Views::WRITER - 1, Views::WRITER - 2);
        let views = Views(AtomicU32::new(one_less));
        // Relaxed: one thread.
        let count = || views.0.load(Ordering::Relaxed);
        views.begin(Access::Read).expect("one more than that");
        assert_eq!(count(), most);
        assert!(views.begin(Access::Read).is_err(), "the next would look like a writer");
        assert_eq!(count(), most);
    }
}
