//! Who used which bytes last: a shadow of memory, as few cells as the accesses have different ends.
//!
//! A *region* is one allocation; host memory is one map of *cells*, since ranges of it overlap as programs like. Cells cut
//! memory where accesses began and ended; a write over several cells makes them one again. A cell keeps its last write and, since then, the last read of each lane that is
//! not ordered before a later one: all that a race can be seen from (FastTrack).

use super::order::{Epoch, Position};
use crate::event::Access;
use rustc_hash::FxHashSet;
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

/// The cells of one allocation.
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

impl<L: Copy> Seen<L> {
    /// An access meets a cell.
    fn meet(&mut self, cell: &Cell<L>, mode: Access, known: &Position, mark: Mark<L>) {
        if self.conflict.is_none() {
            self.conflict = cell.conflict(mode, known);
        }
        self.ordered.extend(cell.earlier(mode, mark.epoch).filter(|epoch| epoch.lane != mark.epoch.lane));
    }
}

impl<L: Copy> Region<L> {
    pub(crate) fn new(range: Range<u64>) -> Self {
        Self { end: range.end, cells: vec![Cell::new(range.start, range.end)] }
    }

    /// All its bytes.
    pub(crate) fn range(&self) -> Range<u64> {
        self.cells.first().map_or(self.end, |cell| cell.start)..self.end
    }

    /// Adds the lanes that some access was made in.
    pub(crate) fn name_lanes(&self, named: &mut FxHashSet<u32>) {
        named.extend(self.cells.iter().flat_map(Cell::marks).map(|mark| mark.epoch.lane));
    }

    /// Checks an access against the past and notes it. `known` is what the accessor knows.
    pub(crate) fn access(&mut self, range: Range<u64>, mode: Access, known: &Position, mark: Mark<L>) -> Seen<L> {
        let cells = self.cut(range);
        let mut seen = Seen { conflict: None, ordered: SmallVec::new() };
        for cell in &mut self.cells[cells.clone()] {
            seen.meet(cell, mode, known, mark);
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

/// The cells of host memory, of whatever ranges were touched. They do not overlap.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<L> {
    cells: BTreeMap<u64, Cell<L>>,
}

impl<L: Copy> Ranges<L> {
    pub(crate) fn new() -> Self {
        Self { cells: BTreeMap::new() }
    }

    /// Checks an access against the past and notes it, as [`Region::access`] does.
    pub(crate) fn access(&mut self, range: Range<u64>, mode: Access, known: &Position, mark: Mark<L>) -> Seen<L> {
        let mut seen = Seen { conflict: None, ordered: SmallVec::new() };
        self.cover(&range);
        let mut count = 0;
        for cell in self.cells.range_mut(range.clone()).map(|(_, cell)| cell) {
            seen.meet(cell, mode, known, mark);
            cell.note(mode, known, mark);
            count += 1;
        }
        if mode == Access::Write && count > 1 {
            self.join(&range);
        }
        seen
    }

    /// The first access to the range that a write would conflict with and that `known` does not cover, of those that
    /// `counts` lets count.
    pub(crate) fn unordered(
        &self,
        range: Range<u64>,
        known: &Position,
        counts: impl Fn(&L) -> bool,
    ) -> Option<Conflict<L>> {
        let first = self.first_touching(range.start);
        let mut cells = self.cells.range(first..range.end).map(|(_, cell)| cell);
        cells.find_map(|cell| {
            let write = cell.write.iter().map(|mark| (mark, Access::Write));
            let mut all = write.chain(cell.reads.iter().map(|mark| (mark, Access::Read)));
            let (earlier, earlier_mode) = all.find(|(mark, _)| counts(&mark.label) && !known.covers(mark.epoch))?;
            let (start, end) = (cell.start.max(range.start), cell.end.min(range.end));
            Some(Conflict { earlier: *earlier, earlier_mode, start, end })
        })
    }

    /// What was known of the range is no more: other memory lies there from now on.
    pub(crate) fn forget(&mut self, range: Range<u64>) {
        self.cut_at(range.start);
        self.cut_at(range.end);
        let gone: SmallVec<[u64; 8]> = self.cells.range(range).map(|(start, _)| *start).collect();
        gone.iter().for_each(|start| drop(self.cells.remove(start)));
    }

    /// Where the first cell begins that reaches beyond `start`.
    fn first_touching(&self, start: u64) -> u64 {
        let before = self.cells.range(..start).next_back();
        before.filter(|(_, cell)| cell.end > start).map_or(start, |(first, _)| *first)
    }

    /// Makes cells that cover the range and end where it does.
    fn cover(&mut self, range: &Range<u64>) {
        if self.cells.get(&range.start).is_some_and(|cell| cell.end == range.end) {
            return;
        }
        self.cut_at(range.start);
        self.cut_at(range.end);
        let mut at = range.start;
        let mut gaps: SmallVec<[Range<u64>; 4]> = SmallVec::new();
        for cell in self.cells.range(range.clone()).map(|(_, cell)| cell) {
            if at < cell.start {
                gaps.push(at..cell.start);
            }
            at = cell.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        for gap in gaps {
            self.cells.insert(gap.start, Cell::new(gap.start, gap.end));
        }
    }

    fn cut_at(&mut self, at: u64) {
        let Some((_, cell)) = self.cells.range_mut(..at).next_back() else { return };
        if cell.end > at {
            let mut right = cell.clone();
            cell.end = at;
            right.start = at;
            self.cells.insert(at, right);
        }
    }

    /// Makes the cells within a range, which say the same, one.
    fn join(&mut self, range: &Range<u64>) {
        let later: SmallVec<[u64; 8]> = self.cells.range(range.start + 1..range.end).map(|(start, _)| *start).collect();
        later.iter().for_each(|start| drop(self.cells.remove(start)));
        if let Some(cell) = self.cells.get_mut(&range.start) {
            cell.end = range.end;
        }
    }

    /// Adds the lanes that some access was made in.
    pub(crate) fn name_lanes(&self, named: &mut FxHashSet<u32>) {
        named.extend(self.cells.values().flat_map(Cell::marks).map(|mark| mark.epoch.lane));
    }

    /// Forgets the cells all of whose accesses `known` covers.
    pub(crate) fn forget_known(&mut self, known: &Position) {
        self.cells.retain(|_, cell| !cell.marks().all(|mark| known.covers(mark.epoch)));
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
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

    #[test]
    fn host_ranges_keep_what_others_overlap_in_part() {
        let mut lanes = Lanes::new();
        let host = Lanes::host();
        let (mut a, mut b) = (lanes.open(host.position()), lanes.open(host.position()));
        let mut ranges = Ranges::new();
        let mut access = |lane: &mut Lane, range, mode, label| {
            lane.step();
            let mark = Mark { epoch: lane.position().epoch(), label };
            ranges.access(range, mode, lane.position(), mark).conflict
        };
        assert!(access(&mut a, 100..164, Access::Write, 'a').is_none());
        assert!(access(&mut b, 164..200, Access::Write, 'b').is_none(), "they only touch");
        let conflict = access(&mut b, 132..196, Access::Read, 'c').expect("half of it is a's");
        assert_eq!((conflict.earlier.label, conflict.start, conflict.end), ('a', 132, 164));
        assert!(access(&mut a, 0..300, Access::Write, 'd').is_some(), "b's are still known");
        assert_eq!(ranges.len(), 1, "a write over many cells makes them one");
        ranges.forget(50..60);
        assert_eq!(ranges.len(), 2);
        let known = b.position();
        assert!(ranges.unordered(50..60, known, |_| true).is_none(), "nothing is known of it any more");
        assert_eq!(ranges.unordered(10..60, known, |_| true).map(|found| (found.start, found.end)), Some((10, 50)));
    }
}
