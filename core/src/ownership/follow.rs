//! How far one stream already waits for others, so that an edge is not inserted twice.

use crate::id::StreamId;

/// Entries kept. A lossy cache: a forgotten entry costs one more wait, never order. Unbounded it would grow as streams
/// squared.
const ENTRIES: usize = 8;

/// One stream's knowledge of others. Lives under that stream's gate.
#[derive(Clone, Debug, Default)]
pub struct Follows {
    entries: [Option<Entry>; ENTRIES],
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    stream: StreamId,
    /// Work of `stream` up to here comes first.
    reach: u64,
    /// The number of the wait, from which on that holds.
    at: u64,
}

impl Follows {
    /// The number from which on submission `number` of `stream` is known to come first.
    pub fn find(&self, stream: StreamId, number: u64) -> Option<u64> {
        let known = self.entries.iter().flatten().find(|entry| entry.stream == stream && entry.reach >= number);
        known.map(|entry| entry.at)
    }

    /// Notes an accepted and numbered wait. Never before the driver accepted it, never when it failed.
    pub fn insert(&mut self, stream: StreamId, reach: u64, at: u64) {
        let known = self.entries.iter().position(|entry| entry.is_some_and(|entry| entry.stream == stream));
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
        let (mut follows, stream) = (Follows::default(), StreamId::fresh());
        follows.insert(stream, 5, 9);
        assert_eq!(follows.find(stream, 5), Some(9), "the wait reached submission 5");
        assert_eq!(follows.find(stream, 6), None, "submission 6 came after the record");
        assert_eq!(follows.find(StreamId::fresh(), 1), None, "another stream was never waited for");
    }

    #[test]
    fn what_a_capture_must_not_know_is_forgotten() {
        let (mut follows, stream) = (Follows::default(), StreamId::fresh());
        follows.insert(stream, 5, 9);
        follows.clear();
        assert_eq!(follows.find(stream, 1), None, "its graph has no such wait");
    }

    #[test]
    fn the_oldest_entry_makes_room() {
        let mut follows = Follows::default();
        let streams: Vec<_> = (0..=ENTRIES).map(|_| StreamId::fresh()).collect();
        for stream in &streams {
            follows.insert(*stream, 1, 1);
        }
        assert_eq!(follows.find(streams[0], 1), None, "the first of nine entries was forgotten");
        assert_eq!(follows.find(streams[1], 1), Some(1), "the second is still known");
    }
}
