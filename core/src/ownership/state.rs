//! What is known of the uses that no cover stands for any more: a pure value, moved along under the buffer's lock.

use smallvec::SmallVec;

use super::Access;

/// A place in a stream's order.
pub trait Position: Clone {
    /// Whether it is known to have been passed.
    fn is_complete(&self) -> bool;
    /// Whether the other is in the same stream.
    fn is_same_stream(&self, other: &Self) -> bool;
    /// The number in the stream; zero stands for no use at all.
    fn number(&self) -> u64;
}

/// The last write, and the reads since, by stream (O9). Last write and last reads are kept apart, or a reader would
/// wait for reads.
#[derive(Clone, Debug)]
pub struct Closed<P> {
    writer: Option<P>,
    readers: SmallVec<[P; 2]>,
}

impl<P: Position> Default for Closed<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Position> Closed<P> {
    /// No use yet.
    pub fn new() -> Self {
        Self { writer: None, readers: SmallVec::new() }
    }

    /// The last write. The reads before it are ordered before it, so they stay only for host waits that ask for all.
    pub fn set_writer(&mut self, point: P) {
        self.writer = (point.number() > 0).then_some(point);
    }

    /// One more read. Those that are complete, or earlier in the same stream, make room.
    pub fn add_reader(&mut self, point: P) {
        self.readers.retain(|reader| {
            !(reader.is_complete() || reader.is_same_stream(&point) && reader.number() <= point.number())
        });
        if point.number() > 0 && !point.is_complete() {
            self.readers.push(point);
        }
    }

    /// What must come before an access of this kind: the last write; before a write, all reads as well.
    pub fn conflicting(&self, access: Access) -> impl Iterator<Item = &P> {
        let readers = if access == Access::Write { &self.readers[..] } else { &[] };
        self.writer.iter().chain(readers)
    }

    /// A stream was ordered after all of it and now stands for it.
    pub fn clear(&mut self) {
        self.writer = None;
        self.readers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct At(u32, u64, bool);

    impl Position for At {
        fn is_complete(&self) -> bool {
            self.2
        }
        fn is_same_stream(&self, other: &Self) -> bool {
            self.0 == other.0
        }
        fn number(&self) -> u64 {
            self.1
        }
    }

    #[test]
    fn a_read_waits_for_the_write_alone() {
        let mut closed = Closed::new();
        closed.set_writer(At(1, 4, false));
        closed.add_reader(At(2, 7, false));
        let before_read: Vec<_> = closed.conflicting(Access::Read).cloned().collect();
        assert_eq!(before_read, [At(1, 4, false)], "two reads need no edge (O1)");
    }

    #[test]
    fn a_write_waits_for_every_reading_stream() {
        let mut closed = Closed::new();
        closed.set_writer(At(1, 4, false));
        closed.add_reader(At(2, 7, false));
        closed.add_reader(At(3, 1, false));
        closed.add_reader(At(2, 9, false));
        let before_write: Vec<_> = closed.conflicting(Access::Write).cloned().collect();
        let expected = [At(1, 4, false), At(3, 1, false), At(2, 9, false)];
        assert_eq!(before_write, expected, "one point a reading stream, the latest (O9)");
    }

    #[test]
    fn no_use_at_all_is_not_kept() {
        let mut closed = Closed::new();
        closed.set_writer(At(1, 0, false));
        closed.add_reader(At(2, 0, false));
        assert_eq!(closed.conflicting(Access::Write).count(), 0, "a number of zero stands for no use");
    }

    #[test]
    fn what_a_cover_stands_for_is_emptied() {
        let mut closed = Closed::new();
        closed.set_writer(At(1, 4, false));
        closed.add_reader(At(2, 7, false));
        closed.clear();
        assert_eq!(closed.conflicting(Access::Write).count(), 0, "the cover stands for all of it");
    }

    #[test]
    fn finished_reads_make_room() {
        let mut closed = Closed::new();
        closed.add_reader(At(2, 7, true));
        assert_eq!(closed.conflicting(Access::Write).count(), 0, "a read that is complete is not kept");
    }
}
