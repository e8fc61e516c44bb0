//! How far one stream already waits for others, so that an edge is not inserted twice.

use super::touch::Touch;
use crate::id::StreamId;
use crate::point::Mark;

/// Entries kept. A lossy cache: a forgotten entry costs one more wait, never order. Unbounded it would grow as streams
/// squared.
const ENTRIES: usize = 8;

/// One stream's knowledge of others. Lives under that stream's gate.
#[derive(Clone, Debug)]
pub struct Follows<R = Mark, A = Touch> {
    entries: [Option<Entry<R, A>>; ENTRIES],
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry<R, A> {
    stream: StreamId,
    /// Work of `stream` up to here comes first.
    reach: R,
    /// The number of the wait, from which on that holds.
    at: A,
}

impl<R, A> Default for Follows<R, A> {
    fn default() -> Self {
        Self { entries: [const { None }; ENTRIES], next: 0 }
    }
}

impl<R: Copy + Into<u64>, A: Copy> Follows<R, A> {
    /// The number from which on submission `number` of `stream` is known to come first.
    pub fn find(&self, stream: StreamId, number: u64) -> Option<A> {
        let known = self.entries.iter().flatten().find(|entry| entry.stream == stream && entry.reach.into() >= number);
        known.map(|entry| entry.at)
    }

    /// Notes an accepted and numbered wait. Never before the driver accepted it, never when it failed. Of two waits for one
    /// stream the later stands: it reaches further, and only from its own number on.
    pub fn insert(&mut self, stream: StreamId, reach: R, at: A) {
        let known = self.entries.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.stream == stream));
        let index = known.unwrap_or_else(|| {
            let oldest = self.next;
            self.next = (oldest + 1) % ENTRIES;
            oldest
        });
        self.entries[index] = Some(Entry { stream, reach, at });
    }

    /// Forgets all: at the begin of a capture, whose graph has none of these waits.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_covers_what_came_before_it_only() {
        let (mut follows, stream) = (Follows::<u64, u64>::default(), StreamId::fresh());
        follows.insert(stream, 5, 9);
        assert_eq!(follows.find(stream, 5), Some(9), "the wait reached submission 5");
        assert_eq!(follows.find(stream, 6), None, "submission 6 came after the record");
        assert_eq!(follows.find(StreamId::fresh(), 1), None, "another stream was never waited for");
    }

    #[test]
    fn a_later_wait_reaches_further_from_its_own_place_on() {
        let (mut follows, stream) = (Follows::<u64, u64>::default(), StreamId::fresh());
        follows.insert(stream, 5, 9);
        follows.insert(stream, 7, 12);
        assert_eq!(follows.find(stream, 6), Some(12), "submission 6 comes first only from the second wait on (O5)");
        assert_eq!(follows.find(stream, 8), None);
    }

    #[test]
    fn what_a_capture_must_not_know_is_forgotten() {
        let (mut follows, stream) = (Follows::<u64, u64>::default(), StreamId::fresh());
        follows.insert(stream, 5, 9);
        follows.clear();
        assert_eq!(follows.find(stream, 1), None, "its graph has no such wait");
    }

    #[test]
    fn the_oldest_entry_makes_room() {
        let mut follows = Follows::<u64, u64>::default();
        let streams: Vec<_> = (0..=ENTRIES).map(|_| StreamId::fresh()).collect();
        for stream in &streams {
            follows.insert(*stream, 1, 1);
        }
        assert_eq!(follows.find(streams[0], 1), None, "the first of nine entries was forgotten");
        assert_eq!(follows.find(streams[1], 1), Some(1), "the second is still known");
    }
}
