//! Whose the parts of the staging memory are: pure bookkeeping.
//!
//! | thing | is | ends when |
//! |---|---|---|
//! | slab | one allocation of the driver's, of up to [`SLAB_CHUNKS`] chunks | `trim`, with all of its chunks free |
//! | run | chunks side by side, taken for one stream | it holds no piece, and its last copy has completed (T1) |
//! | piece | the bytes of one copy, in one run | `give_back` |
//!
//! A copy of at most a chunk shares a run of one chunk with earlier ones of its stream, one behind the other; such a run
//! is *open*. Streams share no run, so that one that stands still keeps no more from the others than it uses.
//!
//! Why no byte has two copies at a time (T1): a piece lies in chunks that its run took off the list of the free, behind
//! all earlier pieces of the run. Chunks go back to that list, and an open run begins anew, only at `is_done`: nobody
//! holds a piece, and the point noted last has completed. Points of one stream complete in order, so that is all of them.

use std::collections::BTreeMap;

use smallvec::SmallVec;

/// The unit of the bookkeeping, in bytes. Small in models, which make a slab an execution.
pub const CHUNK: usize = if cfg!(any(mc_loom, mc_shuttle)) { 64 } else { 64 << 10 };
/// The most chunks of a slab: one word has a bit for each.
pub const SLAB_CHUNKS: usize = 64;
/// Pieces of one run begin at multiples of this, in bytes.
const ALIGNMENT: usize = 64;
/// After how many bytes a stream is asked to tell how far it has come.
const TOLD_EVERY: usize = SLAB_CHUNKS * CHUNK;

/// What a run waits for.
pub trait Mark {
    /// Whether the copy is known to have completed.
    fn is_complete(&self) -> bool;
    /// Whether it will never be known: its stream was given up.
    fn is_void(&self) -> bool;
}

/// The bytes of one copy: `bytes` at `offset` from `base`. Not `Clone`: who has it gives it back, once.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Piece<B> {
    /// The slab's address.
    pub base: B,
    /// Where in the slab.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
    run: u64,
}

/// What one copy takes: its pieces in order, and whether its stream should now tell how far it has come.
#[derive(Debug)]
pub struct Taken<B> {
    /// The pieces.
    pub pieces: Pieces<B>,
    /// The stream has staged much since it was last asked to.
    pub should_tell: bool,
}

/// Pieces of one copy: mostly one.
pub type Pieces<B> = SmallVec<[Piece<B>; 2]>;

#[derive(Clone, Debug)]
struct Slab<B> {
    base: B,
    chunks: u32,
    /// A bit for each free chunk.
    free: u64,
}

#[derive(Clone, Debug)]
struct Run<P> {
    slab: u64,
    first: u32,
    chunks: u32,
    /// Bytes from its start that were given to pieces.
    filled: usize,
    /// Pieces that nobody gave back yet.
    pieces: usize,
    /// The latest copy.
    last: Option<P>,
}

impl<P: Mark> Run<P> {
    fn is_done(&self) -> bool {
        self.pieces == 0 && (self.last.as_ref().is_none_or(P::is_complete))
    }

    fn is_void(&self) -> bool {
        self.pieces == 0 && self.last.as_ref().is_some_and(P::is_void)
    }

    fn bits(&self) -> u64 {
        mask(self.first, self.chunks)
    }
}

fn mask(first: u32, chunks: u32) -> u64 {
    (u64::MAX >> (u64::BITS - chunks)) << first
}

/// The first run of `wanted` bits in `free`, or else the longest: where it begins, and its length.
fn run_in(free: u64, wanted: u32) -> (u32, u32) {
    let (mut best, mut at) = ((0, 0), 0);
    while at < u64::BITS && free >> at != 0 {
        at += (free >> at).trailing_zeros();
        let length = (free >> at).trailing_ones();
        if length >= wanted {
            return (at, wanted);
        }
        if length > best.1 {
            best = (at, length);
        }
        at += length;
    }
    best
}

/// What a stream has open.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    run: Option<u64>,
    /// Bytes staged since it was asked to tell.
    untold: usize,
}

/// The slabs, and what is taken of them.
#[derive(Clone, Debug)]
pub struct Slabs<B, P> {
    limit: usize,
    /// Bytes of all slabs, and of those that are being made.
    held: usize,
    /// Bytes that are in use forever: their copies will never be known to have ended. They do not count for the limit.
    given_up: usize,
    /// Runs that were given up and not yet counted by others.
    lost: usize,
    free: usize,
    slabs: BTreeMap<u64, Slab<B>>,
    runs: BTreeMap<u64, Run<P>>,
    open: BTreeMap<u64, Open>,
    next: u64,
}

impl<B: Copy, P: Mark> Slabs<B, P> {
    /// No slab yet, and never more than `limit` bytes of them; at least one chunk.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: (limit / CHUNK).max(1) * CHUNK,
            held: 0,
            given_up: 0,
            lost: 0,
            free: 0,
            slabs: BTreeMap::new(),
            runs: BTreeMap::new(),
            open: BTreeMap::new(),
            next: 0,
        }
    }

    /// Takes `bytes` bytes (at least 1) for a copy on `stream`: all of them, or none.
    pub fn take(&mut self, stream: u64, bytes: usize) -> Option<Taken<B>> {
        let pieces = match self.take_open(stream, bytes) {
            Some(piece) => SmallVec::from_iter([piece]),
            None => self.take_chunks(stream, bytes)?,
        };
        let open = self.open.entry(stream).or_default();
        open.untold += bytes;
        let should_tell = open.untold >= TOLD_EVERY;
        if should_tell {
            open.untold = 0;
        }
        Some(Taken { pieces, should_tell })
    }

    fn take_open(&mut self, stream: u64, bytes: usize) -> Option<Piece<B>> {
        let number = self.open.get(&stream)?.run?;
        let run = self.runs.get_mut(&number)?;
        if run.is_done() {
            run.filled = 0;
            run.last = None;
        }
        let start = run.filled.next_multiple_of(ALIGNMENT);
        if start + bytes > run.chunks as usize * CHUNK {
            return None;
        }
        run.filled = start + bytes;
        run.pieces += 1;
        let base = self.slabs.get(&run.slab)?.base;
        Some(Piece { base, offset: run.first as usize * CHUNK + start, bytes, run: number })
    }

    fn take_chunks(&mut self, stream: u64, bytes: usize) -> Option<Pieces<B>> {
        if self.free < bytes.div_ceil(CHUNK) {
            self.sweep();
        }
        if self.free < bytes.div_ceil(CHUNK) {
            return None;
        }
        let (mut pieces, mut rest) = (Pieces::new(), bytes);
        while rest > 0 {
            let piece = self.take_run(rest)?;
            rest -= piece.bytes;
            pieces.push(piece);
        }
        if let [piece] = &pieces[..]
            && bytes <= CHUNK
        {
            self.open.entry(stream).or_default().run = Some(piece.run);
        }
        Some(pieces)
    }

    /// A run for as many of `bytes` bytes as lie side by side.
    fn take_run(&mut self, bytes: usize) -> Option<Piece<B>> {
        let wanted = u32::try_from(bytes.div_ceil(CHUNK).min(SLAB_CHUNKS)).ok()?;
        let mut best: Option<(u64, u32, u32)> = None;
        for (number, slab) in &self.slabs {
            let (first, chunks) = run_in(slab.free, wanted);
            if best.is_none_or(|(.., most)| chunks > most) {
                best = Some((*number, first, chunks));
            }
            if chunks == wanted {
                break;
            }
        }
        let (number, first, chunks) = best.filter(|(.., chunks)| *chunks > 0)?;
        let slab = self.slabs.get_mut(&number)?;
        slab.free &= !mask(first, chunks);
        self.free -= chunks as usize;
        let filled = bytes.min(chunks as usize * CHUNK);
        self.next += 1;
        self.runs.insert(self.next, Run { slab: number, first, chunks, filled, pieces: 1, last: None });
        Some(Piece { base: slab.base, offset: first as usize * CHUNK, bytes: filled, run: self.next })
    }

    /// Notes the point of the piece's copy. A stream's points come in order.
    pub fn note(&mut self, piece: &Piece<B>, point: P) {
        if let Some(run) = self.runs.get_mut(&piece.run) {
            run.last = Some(point);
        }
    }

    /// Takes a piece back. Its bytes are free once the copy noted last has completed.
    pub fn give_back(&mut self, piece: &Piece<B>) {
        if let Some(run) = self.runs.get_mut(&piece.run) {
            let pieces = 1;
            run.pieces = run.pieces.saturating_sub(pieces);
        }
    }

    /// Gives up the run of a piece: nobody knows what became of its copy.
    pub fn give_up(&mut self, piece: &Piece<B>) {
        if let Some(run) = self.runs.remove(&piece.run) {
            self.given_up += run.chunks as usize * CHUNK;
            self.lost += 1;
        }
    }

    /// Frees what is done, and gives up what will never be. Says whether anything came of it.
    pub fn sweep(&mut self) -> bool {
        let before = (self.free, self.given_up);
        let Self { runs, slabs, open, free, given_up, lost, .. } = self;
        runs.retain(|_, run| {
            if run.is_void() {
                *given_up += run.chunks as usize * CHUNK;
                *lost += 1;
                return false;
            }
            if run.is_done()
                && let Some(slab) = slabs.get_mut(&run.slab)
            {
                slab.free |= run.bits();
                *free += run.chunks as usize;
                return false;
            }
            true
        });
        open.retain(|_, open| open.run.is_some_and(|run| runs.contains_key(&run)) || open.untold > 0);
        if open.len() > STREAMS_KEPT {
            open.retain(|_, open| open.run.is_some_and(|run| runs.contains_key(&run)));
        }
        (self.free, self.given_up) != before
    }

    /// How many bytes the next slab has, where `bytes` are wanted and there is room for one. It counts from now on.
    pub fn reserve(&mut self, bytes: usize) -> Option<usize> {
        let room = (self.limit + self.given_up).saturating_sub(self.held) / CHUNK;
        // As much again as there is: few slabs where much is staged, and little memory where little is.
        let wanted = bytes.div_ceil(CHUNK).saturating_sub(self.free).max(self.held / CHUNK);
        let chunks = wanted.clamp(1, SLAB_CHUNKS).min(room);
        self.held += chunks * CHUNK;
        (chunks > 0).then_some(chunks * CHUNK)
    }

    /// The slab of `bytes` bytes was made.
    pub fn made(&mut self, base: B, bytes: usize) {
        let chunks = u32::try_from(bytes / CHUNK).unwrap_or(0);
        self.next += 1;
        self.free += chunks as usize;
        self.slabs.insert(self.next, Slab { base, chunks, free: mask(0, chunks) });
    }

    /// It was not.
    pub fn unmade(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    /// Takes out the slabs that nothing uses.
    pub fn trim(&mut self) -> Vec<B> {
        self.sweep();
        let Self { slabs, held, free, .. } = self;
        let mut idle = Vec::new();
        slabs.retain(|_, slab| {
            let is_idle = slab.free == mask(0, slab.chunks);
            if is_idle {
                *held -= slab.chunks as usize * CHUNK;
                *free -= slab.free.count_ones() as usize;
                idle.push(slab.base);
            }
            !is_idle
        });
        idle
    }

    /// The points that runs wait for, oldest run first.
    pub fn waiting(&self) -> impl Iterator<Item = &P> {
        self.runs.values().filter_map(|run| run.last.as_ref()).filter(|last| !last.is_complete())
    }

    /// Whether there is no more of it than there may be.
    pub fn within_limit(&self) -> bool {
        let made: usize = self.slabs.values().map(|slab| slab.chunks as usize * CHUNK).sum();
        made <= self.held.min(self.limit + self.given_up)
    }

    /// Whether nothing is taken.
    pub fn is_idle(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// How many runs were given up since this was asked last.
    pub fn take_lost(&mut self) -> usize {
        std::mem::take(&mut self.lost)
    }

    /// How many slabs there are.
    pub fn slabs(&self) -> usize {
        self.slabs.len()
    }

    /// The most bytes of slabs.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes of all slabs.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Bytes that can be had at once when nothing is taken; at least a chunk.
    pub fn usable(&self) -> usize {
        self.held.saturating_sub(self.given_up).max(CHUNK)
    }

    /// Bytes that are taken, by whole chunks.
    pub fn in_use(&self) -> usize {
        self.held.saturating_sub(self.free * CHUNK)
    }
}

/// For how many streams that have nothing open it is known how much they staged.
const STREAMS_KEPT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// A point that is complete, or void, when it is said to be.
    #[derive(Clone, Debug, Default)]
    struct Told(Rc<Cell<(bool, bool)>>);

    impl Told {
        fn completes(&self) {
            self.0.set((true, false));
        }

        fn breaks(&self) {
            self.0.set((false, true));
        }
    }

    impl Mark for Told {
        fn is_complete(&self) -> bool {
            self.0.get().0
        }
        fn is_void(&self) -> bool {
            self.0.get().1
        }
    }

    /// Slabs with one of as many chunks.
    fn slabs(chunks: usize) -> Slabs<u8, Told> {
        let mut slabs = Slabs::new(chunks * CHUNK);
        let bytes = slabs.reserve(chunks * CHUNK).expect("there is room");
        slabs.made(1, bytes);
        slabs
    }

    fn one(slabs: &mut Slabs<u8, Told>, stream: u64, bytes: usize) -> Piece<u8> {
        let mut taken = slabs.take(stream, bytes).expect("there is room");
        let piece = taken.pieces.pop().expect("a piece");
        assert!(taken.pieces.is_empty() && piece.bytes == bytes, "it lies side by side");
        piece
    }

    #[test]
    fn t1_small_pieces_of_a_stream_share_a_chunk_until_the_last_copy_is_over() {
        let mut slabs = slabs(1);
        let (first, second) = (one(&mut slabs, 7, 100), one(&mut slabs, 7, 100));
        assert_eq!((first.offset, second.offset), (0, 128), "one behind the other, aligned");
        assert!(slabs.take(8, 100).is_none(), "another stream has none of it");
        let (early, late) = (Told::default(), Told::default());
        slabs.note(&first, early.clone());
        slabs.note(&second, late.clone());
        slabs.give_back(&first);
        early.completes();
        assert!(slabs.take(8, 100).is_none(), "the second is in hand");
        slabs.give_back(&second);
        assert!(slabs.take(8, 100).is_none(), "and its copy has not completed");
        late.completes();
        assert_eq!(one(&mut slabs, 8, 100).offset, 0, "now it is free");
    }

    #[test]
    fn t1_a_large_copy_is_all_or_nothing_and_may_lie_in_pieces() {
        let mut slabs = slabs(4);
        let all: Vec<_> = (1..=4).map(|stream| one(&mut slabs, stream, CHUNK)).collect();
        slabs.give_back(&all[0]);
        slabs.give_back(&all[2]);
        assert!(slabs.take(9, 3 * CHUNK).is_none(), "two chunks are free");
        let taken = slabs.take(9, CHUNK + 1).expect("two chunks are enough");
        let places: Vec<_> = taken.pieces.iter().map(|piece| (piece.offset / CHUNK, piece.bytes)).collect();
        assert_eq!(places, [(0, CHUNK), (2, 1)], "in what is free");
        assert_eq!(slabs.in_use(), 4 * CHUNK);
    }

    #[test]
    fn t2_what_is_given_up_makes_room_for_more_and_its_slab_stays() {
        let mut slabs = slabs(2);
        assert_eq!(slabs.reserve(CHUNK), None, "the limit");
        let (piece, told) = (one(&mut slabs, 1, CHUNK), Told::default());
        slabs.note(&piece, told.clone());
        slabs.give_back(&piece);
        told.breaks();
        assert!(slabs.sweep(), "it is given up");
        assert_eq!((slabs.take_lost(), slabs.take_lost()), (1, 0), "and counted once");
        assert!(slabs.trim().is_empty(), "the device may still use it");
        assert_eq!(slabs.reserve(CHUNK), Some(CHUNK), "others need not do with less");
        slabs.made(2, CHUNK);
        assert!(slabs.within_limit());
        assert_eq!(slabs.trim(), [2], "what is free goes back");
    }

    #[test]
    fn a_stream_tells_each_time_that_it_has_staged_a_slab() {
        let mut slabs = slabs(SLAB_CHUNKS);
        let mut told = 0;
        for _ in 0..2 * SLAB_CHUNKS {
            let taken = slabs.take(1, CHUNK).expect("there is room");
            told += u32::from(taken.should_tell);
            taken.pieces.iter().for_each(|piece| slabs.give_back(piece));
        }
        assert_eq!(told, 2);
    }
}
