//! Who used which bytes last: a shadow of memory, as few cells as the accesses have different ends.
//!
//! A *region* is one allocation or one host range. Its cells cut it where accesses began and ended; a write over
//! several cells makes them one again. A cell keeps its last write and, since then, the last read of each lane that is
//! not ordered before a later one: all that a race can be seen from (FastTrack).

use super::order::{Epoch, Position};
use crate::event::Access;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// An access as a report names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark<L> {
    pub(crate) epoch: Epoch,
    pub(crate) label: L,
}

/// Two accesses that nothing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict<L> {
    pub(crate) earlier: Mark<L>,
    pub(crate) earlier_mode: Access,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

#[derive(Clone, Debug)]
struct Cell<L> {
    start: u64,
    end: u64,
    write: Option<Mark<L>>,
    reads: SmallVec<[Mark<L>; 2]>,
    /// Reads of other lanes that the read of `displaced_by` took the place of: work that reads and then writes, as one
    /// operation, comes after them all the same.
    displaced: SmallVec<[Epoch; 1]>,
    displaced_by: Option<Epoch>,
}

impl<L: Copy> Cell<L> {
    fn new(start: u64, end: u64) -> Self {
        let (reads, displaced) = (SmallVec::new(), SmallVec::new());
        Self { start, end, write: None, reads, displaced, displaced_by: None }
    }

    /// Earlier accesses that one of `epoch` conflicts with, those of its own lane included.
    fn earlier(&self, mode: Access, epoch: Epoch) -> impl Iterator<Item = Epoch> + '_ {
        let writes = mode == Access::Write;
        let displaced = self.displaced.iter().filter(move |_| writes && self.displaced_by == Some(epoch));
        let marks = self.write.iter().chain(self.reads.iter().filter(move |_| writes));
        marks.map(|mark| mark.epoch).chain(displaced.copied())
    }

    /// The first earlier access that `mode` conflicts with and that `known` does not cover.
    fn conflict(&self, mode: Access, known: &Position) -> Option<Conflict<L>> {
        let found =
            |earlier: Mark<L>, earlier_mode| Conflict { earlier, earlier_mode, start: self.start, end: self.end };
        if let Some(write) = self.write.filter(|write| !known.covers(write.epoch)) {
            return Some(found(write, Access::Write));
        }
        if mode == Access::Read {
            return None;
        }
        let read = self.reads.iter().find(|read| !known.covers(read.epoch))?;
        Some(found(*read, Access::Read))
    }

    fn note(&mut self, mode: Access, known: &Position, mark: Mark<L>) {
        match mode {
            Access::Write => {
                self.reads.clear();
                self.displaced.clear();
                self.write = Some(mark);
            }
            Access::Read => {
                if self.displaced_by != Some(mark.epoch) {
                    self.displaced.clear();
                    self.displaced_by = Some(mark.epoch);
                }
                let gone = self.reads.iter().map(|read| read.epoch).filter(|read| known.covers(*read));
                self.displaced.extend(gone.filter(|read| read.lane != mark.epoch.lane));
                self.reads.retain(|read| !known.covers(read.epoch));
                self.reads.push(mark);
            }
        }
    }

    fn marks(&self) -> impl Iterator<Item = &Mark<L>> {
        self.write.iter().chain(&self.reads)
    }
}

/// The cells of one allocation or host range.
#[derive(Clone, Debug)]
pub(crate) struct Region<L> {
    end: u64,
    cells: Vec<Cell<L>>,
}

/// What one access found.
#[derive(Debug)]
pub(crate) struct Seen<L> {
    /// The first access that it races with.
    pub(crate) conflict: Option<Conflict<L>>,
    /// Earlier accesses on other lanes that it conflicts with and is ordered after: what edges were needed for.
    pub(crate) ordered: SmallVec<[Epoch; 4]>,
}

impl<L: Copy> Region<L> {
    pub(crate) fn new(range: Range<u64>) -> Self {
        Self { end: range.end, cells: vec![Cell::new(range.start, range.end)] }
    }

    /// All its bytes.
    pub(crate) fn range(&self) -> Range<u64> {
        self.cells.first().map_or(self.end, |cell| cell.start)..self.end
    }

    pub(crate) fn names(&self, lane: u32) -> bool {
        self.cells.iter().flat_map(Cell::marks).any(|mark| mark.epoch.lane == lane)
    }

    fn is_known(&self, known: &Position) -> bool {
        self.cells.iter().flat_map(Cell::marks).all(|mark| known.covers(mark.epoch))
    }

    /// Checks an access against the past and notes it. `known` is what the accessor knows.
    pub(crate) fn access(&mut self, range: Range<u64>, mode: Access, known: &Position, mark: Mark<L>) -> Seen<L> {
        let cells = self.cut(range);
        let mut seen = Seen { conflict: None, ordered: SmallVec::new() };
        for cell in &mut self.cells[cells.clone()] {
            if seen.conflict.is_none() {
                seen.conflict = cell.conflict(mode, known);
            }
            seen.ordered.extend(cell.earlier(mode, mark.epoch).filter(|epoch| epoch.lane != mark.epoch.lane));
            cell.note(mode, known, mark);
        }
        if mode == Access::Write {
            self.join(cells);
        }
        seen
    }

    /// Makes cells end where `range` does and returns the indices of those inside it.
    fn cut(&mut self, range: Range<u64>) -> Range<usize> {
        if let [only] = self.cells.as_slice()
            && only.start == range.start
            && only.end == range.end
        {
            return 0..1;
        }
        let first = self.cut_at(range.start);
        let last = self.cut_at(range.end);
        first..last
    }

    /// The index of the cell that begins at `at`, made by a cut where there is none.
    fn cut_at(&mut self, at: u64) -> usize {
        let index = self.cells.partition_point(|cell| cell.end <= at);
        let Some(cell) = self.cells.get_mut(index) else { return index };
        if cell.start >= at {
            return index;
        }
        let mut right = cell.clone();
        cell.end = at;
        right.start = at;
        self.cells.insert(index + 1, right);
        index + 1
    }

    fn join(&mut self, cells: Range<usize>) {
        if cells.len() > 1 {
            self.cells[cells.start].end = self.cells[cells.end - 1].end;
            self.cells.drain(cells.start + 1..cells.end);
        }
    }
}

/// Regions by where they begin. They do not overlap.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<L> {
    regions: BTreeMap<u64, Region<L>>,
}

impl<L: Copy> Ranges<L> {
    pub(crate) fn new() -> Self {
        Self { regions: BTreeMap::new() }
    }

    /// A new region; those that it would overlap are forgotten.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        let before = self.regions.range(..range.end).rev();
        let stale: Vec<u64> =
            before.take_while(|(_, region)| region.end > range.start).map(|(start, _)| *start).collect();
        for start in stale {
            self.regions.remove(&start);
        }
        self.regions.insert(range.start, Region::new(range));
    }

    pub(crate) fn remove(&mut self, start: u64) -> Option<Region<L>> {
        self.regions.remove(&start)
    }

    /// The region that holds all of `range`.
    pub(crate) fn holding(&mut self, range: &Range<u64>) -> Option<&mut Region<L>> {
        let (_, region) = self.regions.range_mut(..=range.start).next_back()?;
        (range.end <= region.end).then_some(region)
    }

    /// The regions that share bytes with `range`, each with the shared part.
    pub(crate) fn overlapping(&mut self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, &mut Region<L>)> {
        let before = self.regions.range_mut(..range.end).rev();
        let sharing = before.take_while(move |(_, region)| region.end > range.start);
        sharing.map(move |(start, region)| (range.start.max(*start)..range.end.min(region.end), region))
    }

    pub(crate) fn names(&self, lane: u32) -> bool {
        self.regions.values().any(|region| region.names(lane))
    }

    /// Forgets the regions all of whose accesses `known` covers, but those that begin at one of `kept`.
    pub(crate) fn forget_known(&mut self, known: &Position, kept: impl Fn(u64) -> bool) {
        self.regions.retain(|start, region| kept(*start) || !region.is_known(known));
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::{Lane, Lanes};
    use super::*;

    fn access(region: &mut Region<char>, lane: &mut Lane, range: Range<u64>, mode: Access, label: char) -> Seen<char> {
        lane.step();
        let mark = Mark { epoch: lane.position().epoch(), label };
        region.access(range, mode, lane.position(), mark)
    }

    fn two_lanes() -> (Region<char>, Lane, Lane) {
        let mut lanes = Lanes::new();
        let host = Lanes::host();
        (Region::new(100..200), lanes.open(host.position()), lanes.open(host.position()))
    }

    #[test]
    fn two_reads_do_not_race_and_the_writer_must_know_both() {
        let (mut region, mut a, mut b) = two_lanes();
        assert!(access(&mut region, &mut a, 100..200, Access::Read, 'a').conflict.is_none());
        assert!(access(&mut region, &mut b, 100..200, Access::Read, 'b').conflict.is_none());
        let conflict =
            access(&mut region, &mut a, 100..200, Access::Write, 'c').conflict.expect("b was not waited for");
        assert_eq!((conflict.earlier.label, conflict.earlier_mode), ('b', Access::Read));
    }

    #[test]
    fn an_edge_orders_and_is_seen_as_needed() {
        let (mut region, mut a, mut b) = two_lanes();
        access(&mut region, &mut a, 100..200, Access::Write, 'a');
        let record = a.position().clone();
        b.learn(&record);
        let seen = access(&mut region, &mut b, 150..160, Access::Read, 'b');
        assert!(seen.conflict.is_none());
        assert_eq!(seen.ordered.len(), 1);
    }

    #[test]
    fn work_that_reads_and_then_writes_needed_its_edge_after_anothers_read() {
        let (mut region, mut a, mut b) = two_lanes();
        access(&mut region, &mut a, 100..200, Access::Write, 'a');
        let written = a.position().clone();
        b.learn(&written);
        access(&mut region, &mut b, 100..200, Access::Read, 'b');
        let read = b.position().clone();
        a.learn(&read);
        a.step();
        let in_place = Mark { epoch: a.position().epoch(), label: 'c' };
        let first = region.access(100..200, Access::Read, a.position(), in_place);
        let second = region.access(100..200, Access::Write, a.position(), in_place);
        assert!(first.ordered.is_empty(), "two reads need no order");
        assert_eq!(second.ordered.as_slice(), [read.epoch()], "b had to come first");
        let later = access(&mut region, &mut a, 100..200, Access::Write, 'd');
        assert!(later.ordered.is_empty(), "what was displaced is the matter of that one operation");
    }

    #[test]
    fn disjoint_parts_do_not_race_and_touching_ones_do() {
        let (mut region, mut a, mut b) = two_lanes();
        assert!(access(&mut region, &mut a, 100..150, Access::Write, 'a').conflict.is_none());
        assert!(access(&mut region, &mut b, 150..200, Access::Write, 'b').conflict.is_none());
        let conflict = access(&mut region, &mut b, 149..151, Access::Read, 'c').conflict.expect("one byte is a's");
        assert_eq!((conflict.earlier.label, conflict.start, conflict.end), ('a', 149, 150));
    }

    #[test]
    fn a_write_over_many_cells_makes_them_one() {
        let (mut region, mut a, _) = two_lanes();
        for start in (100..200).step_by(10) {
            access(&mut region, &mut a, start..start + 5, Access::Write, 'a');
        }
        access(&mut region, &mut a, 100..200, Access::Write, 'b');
        assert_eq!(region.cells.len(), 1);
    }
}
