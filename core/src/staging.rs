//! Staging: page-locked memory of the runtime's own, through which all copies between the device and pageable host
//! memory go (T1 to T3).
//!
//! A driver's asynchronous copy from or to pageable memory may keep its thread until the device has run it: at every
//! size down, from some size on up. So the core never makes one, but where a capture leaves it no choice. A copy up is
//! first copied to staging by its thread, which is the snapshot that C10 asks for as well; a copy down is copied out of
//! staging by whoever waits for it, or polls its future.
//!
//! # When there is no room
//! The memory is bounded in bytes ([`Config::staging_max`](crate::Config::staging_max)). Who finds no room first copies
//! out what futures of others have not fetched, then asks the streams, then makes a slab, and then waits for a copy
//! to complete; in a `use_on` closure, where nothing may be waited for, it is refused with `InsideHold`. It holds no gate
//! meanwhile, no lock, and no staging memory, so what it waits for needs nothing but the device. A copy for which there
//! is room is one submission; one that has to wait goes in parts, and so does a read of more than [`PART`] bytes.
//!
//! # Locks
//! `shelf` and the lock of a landing are short and never held across a driver call; in this order: a landing's, then
//! `shelf`.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::Base;
use crate::call_scope::MayWait;
use crate::driver::{Call, Driver, ErrorKind, HostAccess, HostPointer, Location};
use crate::error::{Error, Result};
use crate::ownership::Point;
use crate::reclaim::{Resource, Retired, free_slab};
use crate::stream_state::{Role, StreamState};
use crate::sync::{Arc, Mutex, thread};

pub mod state;

use self::state::{CHUNK, Mark, Piece, Pieces, SLAB_CHUNKS, Slabs};

/// A copy that has to wait for room, and a read, goes in parts of at most so many bytes.
pub const PART: usize = SLAB_CHUNKS * CHUNK;

/// How often who finds no room looks again before it waits for a stream: its own, or the only one there is to wait for.
const LOOKS: u32 = 8;
/// And before it waits for one of several: the others may be sooner.
const LOOKS_AT_SEVERAL: u32 = 2000;

impl<D: Driver> Mark for Point<D> {
    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn is_void(&self) -> bool {
        self.stream.is_broken() && !self.is_complete()
    }
}

/// The staging memory of a runtime.
#[derive(Debug)]
pub struct Staging<D: Driver> {
    shelf: Mutex<Shelf<D>>,
    /// How often a copy waited for room. Outside the facade: it decides nothing.
    waits: AtomicU64,
    /// Bytes that graphs have page-locked. As above.
    pub(crate) in_graphs: AtomicUsize,
}

#[derive(Debug)]
struct Shelf<D: Driver> {
    slabs: Slabs<HostPointer, Point<D>>,
    /// Downloads whose staging memory is not copied out yet.
    landings: BTreeMap<u64, Arc<Landing<D>>>,
    next: u64,
    closed: bool,
}

/// Figures of the staging memory, in bytes but for the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Page-locked now.
    pub held: usize,
    /// Of that, not known to be free.
    pub in_use: usize,
    /// The most of it that there ever is.
    pub limit: usize,
    /// Page-locked besides, by graphs, for what was written while they were recorded.
    pub in_graphs: usize,
    /// How often a copy found no room and waited.
    pub waits: u64,
}

/// Which streams are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The runtime's own.
    Pooled,
    /// Adopted ones too.
    All,
}

/// Staging memory of one copy. Dropped without a word, its chunks are never used again.
#[derive(Debug)]
#[must_use]
pub struct Staged<'a, D: Driver> {
    staging: &'a Staging<D>,
    pieces: Pieces<HostPointer>,
    /// How many bytes: fewer than were asked for where there was not room for all.
    pub bytes: usize,
    should_tell: bool,
}

impl<D: Driver> Staging<D> {
    /// None yet, and never more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let shelf = Shelf { slabs: Slabs::new(limit), landings: BTreeMap::new(), next: 0, closed: false };
        Self { shelf: Mutex::new(shelf), waits: AtomicU64::new(0), in_graphs: AtomicUsize::new(0) }
    }

    /// Takes memory for a copy of `bytes` bytes (at least 1) on `stream`, or for a first part of it where there is no
    /// room for all: then it has waited for that. `None`: a capture keeps page-locked memory from being allocated, and
    /// there is none.
    ///
    /// # Errors
    /// `InsideHold` where it would wait in a `use_on` closure; `InsideCapture` where a wait would break the calling
    /// thread's capture; `Closed`, `Lost`, the driver's.
    pub fn take(&self, base: &Base<D>, stream: &StreamState<D>, bytes: usize) -> Result<Option<Staged<'_, D>>> {
        if let Some(staged) = self.take_now(base, stream, bytes)? {
            return Ok(Some(staged));
        }
        let mut may = MayWait::here()?;
        // Relaxed: a figure.
        self.waits.fetch_add(1, Ordering::Relaxed);
        for looks in 0.. {
            // No more than there is, where more is not to be had.
            let part = bytes.min(self.part()).min(self.shelf.lock().slabs.usable());
            if let Some(staged) = self.take_now(base, stream, part)? {
                return Ok(Some(staged));
            }
            if !self.has_slabs() {
                return Ok(None);
            }
            self.wait_for_room(base, stream, &mut may, looks)?;
        }
        Ok(None)
    }

    /// The most bytes of a part, where a copy goes in parts.
    pub fn part(&self) -> usize {
        PART.min(self.shelf.lock().slabs.limit())
    }

    /// Whether any memory is page-locked.
    pub fn has_slabs(&self) -> bool {
        self.shelf.lock().slabs.slabs() > 0
    }

    /// As [`take`](Self::take), for all of it, without a wait. `None`: there is no room now.
    pub fn take_now(&self, base: &Base<D>, stream: &StreamState<D>, bytes: usize) -> Result<Option<Staged<'_, D>>> {
        base.context.check_open()?;
        if let Some(staged) = self.take_free(stream, bytes)? {
            return Ok(Some(staged));
        }
        // Page-locking memory, and asking, can take long: not where a gate is held.
        let is_held = MayWait::here().is_err();
        if self.land(base)
            && let Some(staged) = self.take_free(stream, bytes)?
        {
            return Ok(Some(staged));
        }
        if is_held {
            return Ok(None);
        }
        if self.ask(base, Asked::Pooled)
            && let Some(staged) = self.take_free(stream, bytes)?
        {
            return Ok(Some(staged));
        }
        while self.grow(base, bytes)? {
            if let Some(staged) = self.take_free(stream, bytes)? {
                return Ok(Some(staged));
            }
        }
        Ok(None)
    }

    fn take_free(&self, stream: &StreamState<D>, bytes: usize) -> Result<Option<Staged<'_, D>>> {
        let mut shelf = self.shelf.lock();
        if shelf.closed {
            return Err(Error::Closed);
        }
        let taken = shelf.slabs.take(stream.id().number(), bytes);
        Ok(taken.map(|taken| Staged { staging: self, pieces: taken.pieces, bytes, should_tell: taken.should_tell }))
    }

    /// Page-locks one slab more. `false`: the limit is reached, a capture stands in the way, or memory is short and
    /// there is some to wait for.
    fn grow(&self, base: &Base<D>, bytes: usize) -> Result<bool> {
        let (size, has_some) = {
            let mut shelf = self.shelf.lock();
            let has_some = shelf.slabs.slabs() > 0;
            if bytes > shelf.slabs.limit() {
                return Ok(false);
            }
            let Some(size) = shelf.slabs.reserve(bytes) else { return Ok(false) };
            (size, has_some)
        };
        let made = base.context.guarded_now(Call::HostAlloc, |driver| driver.host_alloc(size));
        let mut shelf = self.shelf.lock();
        match made {
            Some(Ok(base)) => {
                shelf.slabs.made(base, size);
                Ok(true)
            }
            Some(Err(Error::Driver(failure))) if has_some && failure.kind == ErrorKind::OutOfMemory => {
                shelf.slabs.unmade(size);
                Ok(false)
            }
            Some(Err(error)) => {
                shelf.slabs.unmade(size);
                Err(error)
            }
            None => {
                shelf.slabs.unmade(size);
                Ok(false)
            }
        }
    }

    /// Asks the streams that staging memory waits for how far they have come. Says whether memory came free.
    fn ask(&self, base: &Base<D>, asked: Asked) -> bool {
        let mut streams: BTreeMap<_, Point<D>> = BTreeMap::new();
        for point in self.shelf.lock().slabs.waiting() {
            streams.insert(point.stream.id(), point.clone());
        }
        let may_ask = |point: &&Point<D>| {
            // C1. To ask an adopted one can break a capture of other code.
            !point.stream.is_broken() && (asked == Asked::All || matches!(point.stream.role, Role::Pooled(_)))
        };
        for point in streams.values().filter(may_ask) {
            if let Some(_guest) = point.stream.visit(point.number) {
                // What it says is kept with the stream.
                drop(point.stream.query(&base.context));
            }
        }
        self.land(base);
        self.tidy(base)
    }

    /// Frees what is done, and counts as leaked what will never be. Says whether anything came of it.
    pub fn tidy(&self, base: &Base<D>) -> bool {
        let mut shelf = self.shelf.lock();
        let any = shelf.slabs.sweep();
        let leaked = shelf.slabs.take_lost();
        drop(shelf);
        base.reclaim.count_leaked(leaked);
        any
    }

    /// Whether nothing is staged any more, but what will never be known to have ended. Asks the streams.
    pub fn is_settled(&self, base: &Base<D>) -> bool {
        if base.context.lost().is_some() || self.shelf.lock().slabs.is_idle() {
            return true;
        }
        self.ask(base, Asked::All);
        self.shelf.lock().slabs.is_idle()
    }

    /// Which copy to wait for, after so many looks: the oldest of the stream itself, behind which the new one goes
    /// anyway; or the oldest of all.
    fn oldest(&self, stream: &StreamState<D>, looks: u32) -> Option<Point<D>> {
        let shelf = self.shelf.lock();
        let waiting = || shelf.slabs.waiting().filter(|point| !point.stream.is_broken());
        let own = waiting().find(|point| point.stream.id() == stream.id());
        let first = own.or_else(|| waiting().next())?;
        let is_only = own.is_some() || waiting().all(|point| point.stream.id() == first.stream.id());
        (looks >= if is_only { LOOKS } else { LOOKS_AT_SEVERAL }).then(|| first.clone())
    }

    /// Waits until there may be more room.
    fn wait_for_room(&self, base: &Base<D>, stream: &StreamState<D>, may: &mut MayWait, looks: u32) -> Result<()> {
        base.context.check_alive()?;
        let Some(oldest) = self.oldest(stream, looks) else {
            // Nothing is left to the device: other threads are about to copy out, or to submit.
            thread::pause();
            return Ok(());
        };
        match oldest.wait(&base.context, may) {
            Ok(()) => Ok(()),
            Err(error @ (Error::Lost(_) | Error::Misuse(_))) => Err(error),
            // The stream was given up, and with it its staging memory.
            Err(_) => Ok(()),
        }
    }

    /// Copies out what downloads have ready and nobody fetched. Says whether there was any.
    fn land(&self, base: &Base<D>) -> bool {
        let landings: Vec<_> = self.shelf.lock().landings.values().cloned().collect();
        let mut landed = false;
        for landing in landings {
            landed |= landing.land(self, base);
        }
        landed
    }

    /// Makes a landing known, so that others can copy it out when they are short of room. Gives its key.
    pub fn list(&self, landing: &Arc<Landing<D>>) -> u64 {
        let mut shelf = self.shelf.lock();
        shelf.next += 1;
        let key = shelf.next;
        shelf.landings.insert(key, landing.clone());
        key
    }

    /// Takes a landing off the list.
    pub fn unlist(&self, key: u64) {
        let gone = self.shelf.lock().landings.remove(&key);
        drop(gone);
    }

    fn give_back(&self, piece: &Piece<HostPointer>) {
        let mut shelf = self.shelf.lock();
        shelf.slabs.give_back(piece);
    }

    /// Lets go of the slabs that nothing uses: the worker gives them back.
    pub fn trim(&self, base: &Base<D>) {
        let idle = self.shelf.lock().slabs.trim();
        for slab in idle {
            base.reclaim.retire(Retired { resource: Resource::Slab(slab), points: Default::default() });
        }
    }

    /// Gives back the slabs that nothing uses: where the device is idle, since that waits for it.
    pub fn shrink(&self, base: &Base<D>) {
        self.is_settled(base);
        let idle = self.shelf.lock().slabs.trim();
        for slab in idle {
            let freed = free_slab(&base.context, slab);
            if !matches!(freed, Some(Ok(()))) {
                base.reclaim.count_leaked(1);
            }
            if let Some(Err(error)) = freed {
                base.context.keep_untold(error);
            }
        }
    }

    /// Ends all staging. What is in use stays, and so does its slab (P11).
    pub fn close(&self, base: &Base<D>) {
        let mut shelf = self.shelf.lock();
        shelf.closed = true;
        let leaked = shelf.slabs.take_lost() + shelf.slabs.runs();
        drop(shelf);
        base.reclaim.count_leaked(leaked);
    }

    /// Its figures.
    pub fn figures(&self) -> Figures {
        let shelf = self.shelf.lock();
        let slabs = &shelf.slabs;
        // Relaxed: figures.
        let (waits, in_graphs) = (self.waits.load(Ordering::Relaxed), self.in_graphs.load(Ordering::Relaxed));
        Figures { held: slabs.held(), in_use: slabs.in_use(), limit: slabs.limit(), in_graphs, waits }
    }
}

/// Where a piece lies.
fn place(piece: &Piece<HostPointer>) -> HostPointer {
    piece.base.offset(piece.offset)
}

impl<D: Driver> Staged<'_, D> {
    /// Where each piece lies, with its bytes, in order.
    pub fn parts(&self) -> impl Iterator<Item = (Location, u64)> {
        self.pieces.iter().map(|piece| (Location::Host(place(piece)), piece.bytes as u64))
    }

    /// Copies `from` into it, which is as long.
    pub fn fill(&mut self, driver: &D, from: &[u8]) {
        let mut rest = from;
        for piece in &mut self.pieces {
            let (part, later) = rest.split_at(piece.bytes.min(rest.len()));
            driver.host_accessed(place(piece), part.len(), HostAccess::ReadWrite);
            // SAFETY: T1. The piece is this copy's alone, and as long; what `from` borrows is not in a slab.
            unsafe { place(piece).0.as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            rest = later;
        }
    }

    /// Its copies were submitted, up to `point`: it is free when they have completed.
    pub fn submitted(mut self, point: &Point<D>) {
        let mut shelf = self.staging.shelf.lock();
        for piece in self.pieces.drain(..) {
            shelf.slabs.note(&piece, point.clone());
            shelf.slabs.give_back(&piece);
        }
    }

    /// Nothing was submitted: it is free.
    pub fn refused(mut self) {
        let mut shelf = self.staging.shelf.lock();
        self.pieces.drain(..).for_each(|piece| shelf.slabs.give_back(&piece));
    }

    /// Its copies down were submitted, up to `point`: gives the pieces, which still are taken.
    fn keep(mut self, point: &Point<D>) -> Pieces<HostPointer> {
        let pieces = std::mem::take(&mut self.pieces);
        let mut shelf = self.staging.shelf.lock();
        for piece in &pieces {
            shelf.slabs.note(piece, point.clone());
        }
        drop(shelf);
        pieces
    }

    /// Has `stream` tell how far it has come, where much was staged on it: who waits for room then waits for no work
    /// behind the copies.
    pub fn have_told(&self, base: &Base<D>, stream: &Arc<StreamState<D>>) {
        let can_tell = base.context.capabilities.host_functions && matches!(stream.role, Role::Pooled(_));
        if !self.should_tell || !can_tell {
            return;
        }
        let (mark, told) = (stream.timeline.mark(), stream.clone());
        let function = std::sync::Arc::new(move || told.timeline.reach(mark));
        if let Err(error) = base.context.driver.launch_host_function(&stream.raw, function) {
            // Then the streams are asked. A sticky error is noted.
            drop(base.context.fail(Call::LaunchHostFunction, &error));
        }
    }
}

impl<D: Driver> Drop for Staged<'_, D> {
    fn drop(&mut self) {
        let mut shelf = self.staging.shelf.lock();
        // R4. Something unwound, and the device may be using it.
        self.pieces.iter().for_each(|piece| shelf.slabs.give_up(piece));
    }
}

/// Host memory that a download ends in, with what is still in staging memory on its way there. Whoever needs the room
/// copies it out; the memory itself goes to the future's owner alone.
#[derive(Debug)]
pub struct Landing<D: Driver> {
    inner: Mutex<Landed<D>>,
}

#[derive(Debug)]
struct Landed<D: Driver> {
    /// A vector of the elements, of length 0 and with room for all. Gone when it was fetched.
    memory: Option<Box<dyn Any + Send>>,
    start: HostPointer,
    staged: VecDeque<Part<D>>,
    /// The end of what goes there without staging.
    direct: Option<Point<D>>,
}

/// A piece on its way.
#[derive(Debug)]
struct Part<D: Driver> {
    piece: Piece<HostPointer>,
    point: Point<D>,
    /// Where it goes, in bytes from the start.
    offset: usize,
}

impl<D: Driver> Landing<D> {
    /// Nothing is on its way yet to `memory`, whose room begins at `start`.
    pub fn new(memory: Box<dyn Any + Send>, start: HostPointer) -> Arc<Self> {
        let inner = Mutex::new(Landed { memory: Some(memory), start, staged: VecDeque::new(), direct: None });
        Arc::new(Self { inner })
    }

    /// What `staged` gets from its copies, up to `point`, goes to `offset`.
    pub fn expect(&self, staged: Staged<'_, D>, point: &Point<D>, offset: usize) {
        let mut inner = self.inner.lock();
        let mut offset = offset;
        for piece in staged.keep(point) {
            let bytes = piece.bytes;
            inner.staged.push_back(Part { piece, point: point.clone(), offset });
            offset += bytes;
        }
    }

    /// Copies up to `point` go there without staging.
    pub fn expect_direct(&self, point: Point<D>) {
        self.inner.lock().direct = Some(point);
    }

    /// Where byte `offset` goes.
    pub fn place(&self, offset: usize) -> HostPointer {
        self.inner.lock().start.offset(offset)
    }

    /// Copies out what has completed. Says whether there was any.
    fn land(&self, staging: &Staging<D>, base: &Base<D>) -> bool {
        let mut inner = self.inner.lock();
        let mut any = false;
        while inner.staged.front().is_some_and(|part| part.point.is_complete())
            && let Some(part) = inner.staged.pop_front()
        {
            copy_out(&base.context.driver, &part.piece, inner.start.offset(part.offset));
            staging.give_back(&part.piece);
            any = true;
        }
        any
    }

    /// The memory, filled: all copies have completed. `None` when it was fetched before.
    pub fn fetch(&self, staging: &Staging<D>, base: &Base<D>) -> Option<Box<dyn Any + Send>> {
        self.land(staging, base);
        let mut inner = self.inner.lock();
        let is_whole = inner.staged.is_empty();
        inner.memory.take().filter(|_| is_whole)
    }

    /// Nobody wants it: what is on its way is free when its copies have completed.
    pub fn abandon(&self, staging: &Staging<D>, base: &Base<D>) {
        let (staged, memory, direct) = {
            let mut inner = self.inner.lock();
            (std::mem::take(&mut inner.staged), inner.memory.take(), inner.direct.take())
        };
        staged.iter().for_each(|part| staging.give_back(&part.piece));
        if let (Some(memory), Some(point)) = (memory, direct.filter(|point| !point.is_complete())) {
            // The device writes to it: it waits with the rest.
            base.reclaim.retire(Retired { resource: Resource::Kept(memory), points: [point].into_iter().collect() });
        }
    }
}

/// Copies a piece to `to`, which has room for it.
fn copy_out<D: Driver>(driver: &D, piece: &Piece<HostPointer>, to: HostPointer) {
    driver.host_accessed(place(piece), piece.bytes, HostAccess::Read);
    // SAFETY: T1, O3. The copy into the piece has completed, and the piece is the caller's; `to` is memory of ours
    // outside of the slabs, with room for it.
    unsafe { to.0.as_ptr().copy_from_nonoverlapping(place(piece).0.as_ptr(), piece.bytes) };
}

/// Copies of a read on their way through staging, for a reader that waits itself.
#[derive(Debug)]
pub struct Reading<'a, D: Driver> {
    staging: &'a Staging<D>,
    base: &'a Base<D>,
    parts: VecDeque<Part<D>>,
}

impl<'a, D: Driver> Reading<'a, D> {
    /// Nothing is on its way yet.
    pub fn new(staging: &'a Staging<D>, base: &'a Base<D>) -> Self {
        Self { staging, base, parts: VecDeque::new() }
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.parts.is_empty()
    }

    /// How many bytes are on their way.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.piece.bytes).sum()
    }

    /// What `staged` gets from its copies, up to `point`, goes to `offset`.
    pub fn expect(&mut self, staged: Staged<'_, D>, point: &Point<D>, offset: usize) {
        let mut offset = offset;
        for piece in staged.keep(point) {
            let bytes = piece.bytes;
            self.parts.push_back(Part { piece, point: point.clone(), offset });
            offset += bytes;
        }
    }

    /// Waits for the oldest piece and copies it out.
    ///
    /// # Safety
    /// - `start` is where the read ends up, with room for all of it, outside of the slabs.
    ///
    /// # Errors
    /// `Lost`, `StreamBroken`, the driver's: then nothing was copied.
    pub unsafe fn land_next(&mut self, start: HostPointer, may: &mut MayWait) -> Result<()> {
        let Some(part) = self.parts.front() else { return Ok(()) };
        part.point.wait(&self.base.context, may)?;
        copy_out(&self.base.context.driver, &part.piece, start.offset(part.offset));
        if let Some(part) = self.parts.pop_front() {
            self.staging.give_back(&part.piece);
        }
        Ok(())
    }
}

impl<D: Driver> Drop for Reading<'_, D> {
    fn drop(&mut self) {
        // What did not arrive is free when its copies have completed.
        self.parts.iter().for_each(|part| self.staging.give_back(&part.piece));
    }
}
