//! What is ordered after what: a vector clock for the host and for each stream.
//!
//! A *lane* is a sequence whose members are ordered among themselves: lane 0 is the host, every stream has one, and so
//! has every branch of a running graph. An *epoch* is a place in a lane. A *position* is all that a lane knows at one
//! of its places: its own past, and for each other lane up to where it knows that one.
//!
//! All host threads share lane 0: what one has learnt, all know from then on. The code under test hands knowledge from
//! thread to thread through its own locks and atomics, which nothing here can see; the order in which host threads ran
//! is one in which they may have done so. So no false alarm comes from the host, and a race that exists only between
//! two host threads is not found here: that is the business of models of the locks themselves.
//!
//! A lane's own place is kept beside its clock, so that a thousand launches in a row share one clock and copy nothing.
//! Lanes of streams that are gone are used again once nothing names them.

use std::sync::Arc;

/// A place in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Epoch {
    pub(crate) lane: u32,
    pub(crate) at: u64,
}

/// The lane of all host threads.
pub(crate) const HOST: u32 = 0;

/// Lanes that are copied and compared together.
const CHUNK: usize = 16;

/// For each lane, up to which epoch the past is known. In chunks that clocks share until one of them changes: where thousands
/// of lanes are named, one that learns of one more copies a chunk, and not all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Clock(Vec<Arc<[u64; CHUNK]>>);

impl Clock {
    fn at(&self, lane: u32) -> u64 {
        let lane = lane as usize;
        self.0.get(lane / CHUNK).map_or(0, |chunk| chunk[lane % CHUNK])
    }

    fn raise(&mut self, lane: u32, at: u64) {
        if self.at(lane) >= at {
            return;
        }
        let lane = lane as usize;
        while self.0.len() <= lane / CHUNK {
            self.0.push(Arc::default());
        }
        Arc::make_mut(&mut self.0[lane / CHUNK])[lane % CHUNK] = at;
    }

    fn join(&mut self, other: &Clock) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            if covers(mine, theirs) {
                continue;
            }
            if covers(theirs, mine) {
                mine.clone_from(theirs);
                continue;
            }
            for (mine, theirs) in Arc::make_mut(mine).iter_mut().zip(theirs.iter()) {
                *mine = (*mine).max(*theirs);
            }
        }
        let known = self.0.len().min(other.0.len());
        self.0.extend_from_slice(&other.0[known..]);
    }

    fn knows_all_of(&self, other: &Clock) -> bool {
        let known = self.0.len().min(other.0.len());
        let is_none = |chunk: &Arc<[u64; CHUNK]>| chunk.iter().all(|at| *at == 0);
        self.0.iter().zip(&other.0).all(|(mine, theirs)| covers(mine, theirs)) && other.0[known..].iter().all(is_none)
    }
}

/// Whether one chunk is at or past the other in every lane.
fn covers(later: &Arc<[u64; CHUNK]>, earlier: &Arc<[u64; CHUNK]>) -> bool {
    Arc::ptr_eq(later, earlier) || later.iter().zip(earlier.iter()).all(|(later, earlier)| later >= earlier)
}

/// What a lane knows at one of its places.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    clock: Arc<Clock>,
    own: Epoch,
}

impl Position {
    /// Whether the epoch lies in the known past.
    pub(crate) fn covers(&self, epoch: Epoch) -> bool {
        let known = if epoch.lane == self.own.lane { self.own.at } else { self.clock.at(epoch.lane) };
        known >= epoch.at
    }

    /// The place itself.
    pub(crate) fn epoch(&self) -> Epoch {
        self.own
    }

    /// The same lane's position at an earlier place. What it learnt from others since is kept: a little too much.
    pub(crate) fn not_after(mut self, at: u64) -> Self {
        self.own.at = self.own.at.min(at);
        self
    }

    fn knows_all_of(&self, other: &Position) -> bool {
        self.covers(other.own) && (Arc::ptr_eq(&self.clock, &other.clock) || self.clock.knows_all_of(&other.clock))
    }
}

/// A sequence, at its present place.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    now: Position,
    /// The clock that was learnt last: most submissions bring the same one again.
    learnt: Arc<Clock>,
    learnt_epoch: Epoch,
}

impl Lane {
    fn new(own: Epoch, clock: Arc<Clock>) -> Self {
        Self { now: Position { clock, own }, learnt: Arc::default(), learnt_epoch: Epoch { lane: HOST, at: 0 } }
    }

    /// What the lane knows now.
    pub(crate) fn position(&self) -> &Position {
        &self.now
    }

    /// Goes one place on.
    pub(crate) fn step(&mut self) {
        self.now.own.at += 1;
    }

    /// Learns what `other` knows; `true` where that was news.
    pub(crate) fn learn(&mut self, other: &Position) -> bool {
        if self.learnt_epoch == other.own && Arc::ptr_eq(&self.learnt, &other.clock) {
            return false;
        }
        self.learnt = other.clock.clone();
        self.learnt_epoch = other.own;
        if self.now.knows_all_of(other) {
            return false;
        }
        let clock = Arc::make_mut(&mut self.now.clock);
        clock.join(&other.clock);
        clock.raise(other.own.lane, other.own.at);
        true
    }

    pub(crate) fn number(&self) -> u32 {
        self.now.own.lane
    }
}

/// The numbers of lanes: given out, retired, and used again.
#[derive(Debug)]
pub(crate) struct Lanes {
    next: u32,
    free: Vec<Epoch>,
    /// Lanes whose sequence is over, with their last place; marks may still name them.
    retired: Vec<Epoch>,
    /// How many retired lanes make a sweep worth it: twice what the last one left, so that sweeps cost little in all.
    sweep_at: usize,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self { next: HOST + 1, free: Vec::new(), retired: Vec::new(), sweep_at: RETIRED_MAX }
    }

    pub(crate) fn host() -> Lane {
        Lane::new(Epoch { lane: HOST, at: 1 }, Arc::default())
    }

    /// A lane for a sequence that begins with what `start` knows.
    pub(crate) fn open(&mut self, start: &Position) -> Lane {
        let own = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            Epoch { lane: self.next - 1, at: 0 }
        });
        let mut lane = Lane::new(own, start.clock.clone());
        lane.learn(start);
        lane
    }

    /// `lane` learns that all sequences which are over lie before it.
    pub(crate) fn teach_retired(&self, lane: &mut Lane) {
        let clock = Arc::make_mut(&mut lane.now.clock);
        self.retired.iter().for_each(|epoch| clock.raise(epoch.lane, epoch.at));
    }

    pub(crate) fn retire(&mut self, lane: &Lane) {
        self.retired.push(lane.now.own);
    }

    /// Whether enough lanes wait for a sweep to be worth one.
    pub(crate) fn want_sweep(&self) -> bool {
        self.retired.len() >= self.sweep_at
    }

    /// Frees the retired lanes that `is_named` does not find anywhere.
    pub(crate) fn sweep(&mut self, is_named: impl Fn(u32) -> bool) {
        let (named, free): (Vec<_>, Vec<_>) = self.retired.drain(..).partition(|epoch| is_named(epoch.lane));
        self.free.extend(free);
        self.sweep_at = RETIRED_MAX.max(2 * named.len());
        self.retired = named;
    }
}

/// How many lanes of gone streams wait at least.
const RETIRED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn stepped(lane: &mut Lane) -> Epoch {
        lane.step();
        lane.position().epoch()
    }

    #[test]
    fn what_is_learnt_is_ordered_and_what_comes_later_is_not() {
        let mut lanes = Lanes::new();
        let host = Lanes::host();
        let (mut a, mut b) = (lanes.open(host.position()), lanes.open(host.position()));
        let first = stepped(&mut a);
        let record = a.position().clone();
        let second = stepped(&mut a);
        assert!(!b.position().covers(first), "nothing joined them yet");
        assert!(b.learn(&record));
        assert!(b.position().covers(first));
        assert!(!b.position().covers(second), "an access after the record is not part of it");
        assert!(!b.learn(&record), "it is no news the second time");
    }

    #[test]
    fn knowledge_is_handed_on() {
        let mut lanes = Lanes::new();
        let host = Lanes::host();
        let mut all: Vec<_> = (0..3).map(|_| lanes.open(host.position())).collect();
        let first = stepped(&mut all[0]);
        let record = all[0].position().clone();
        all[1].learn(&record);
        let onward = all[1].position().clone();
        all[2].learn(&onward);
        assert!(all[2].position().covers(first));
    }

    #[test]
    fn clocks_join_lane_by_lane_in_every_chunk() {
        let clock = |known: &[(u32, u64)]| {
            let mut clock = Clock::default();
            known.iter().for_each(|(lane, at)| clock.raise(*lane, *at));
            clock
        };
        let (low, high) = (clock(&[(0, 5), (1, 2), (40, 7)]), clock(&[(1, 3), (17, 4), (100, 9)]));
        let mut joined = low.clone();
        joined.join(&high);
        let known: Vec<_> = [0, 1, 2, 17, 40, 100, 101].iter().map(|lane| joined.at(*lane)).collect();
        assert_eq!(known, [5, 3, 0, 4, 7, 9, 0]);
        assert!(joined.knows_all_of(&low) && joined.knows_all_of(&high));
        assert!(!low.knows_all_of(&high) && !high.knows_all_of(&joined));
        let mut other = high;
        other.join(&low);
        assert_eq!(other, joined, "whichever learns from the other");
        joined.raise(0, 4);
        assert_eq!(joined.at(0), 5, "a clock never goes back");
    }

    #[test]
    fn sweeps_cost_little_in_all_though_every_lane_stays_named() {
        const LANES: usize = 10_000;
        let (mut lanes, host, looked_at) = (Lanes::new(), Lanes::host(), std::cell::Cell::new(0));
        for _ in 0..LANES {
            let lane = lanes.open(host.position());
            lanes.retire(&lane);
            if lanes.want_sweep() {
                lanes.sweep(|_| {
                    looked_at.set(looked_at.get() + 1);
                    true
                });
            }
        }
        let looked_at = looked_at.get();
        assert!((LANES / 2..4 * LANES).contains(&looked_at), "{looked_at} looks for {LANES} lanes");
    }

    #[test]
    fn a_lane_is_used_again_only_when_nothing_names_it() {
        let mut lanes = Lanes::new();
        let host = Lanes::host();
        let mut a = lanes.open(host.position());
        let old = stepped(&mut a);
        lanes.retire(&a);
        lanes.sweep(|lane| lane == old.lane);
        let b = lanes.open(host.position());
        assert_ne!(b.number(), old.lane);
        lanes.sweep(|_| false);
        let mut c = lanes.open(host.position());
        let new = stepped(&mut c);
        assert_eq!(new.lane, old.lane);
        assert!(new.at > old.at, "epochs of a lane only grow");
    }
}
