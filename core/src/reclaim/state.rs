//! Retired things in the order in which they can go: pure bookkeeping.
//!
//! A retired thing waits for one point at a time, filed under that point's stream and number. When the stream's
//! watermark passes the number the thing comes out, and is filed under its next point, or is due. So a turn touches
//! what became due, not what waits: filing costs a logarithm, however much is waiting.
//!
//! Why each thing comes out exactly once. At most: it is a value that is moved, in by `file`, out by `due`, `remove` or `drain`, and what the
//! core files cannot be cloned (`Waiting` can only when its things can, as those of the search in `verification/src/explore`). At
//! least: no two have one key, since the sequence grows with each, so none replaces another; `due` takes the whole lane up to
//! the watermark and puts the rest back; and a lane is in `streams` as long as something is in it, so somebody asks.
//! (R4, C3, P5)

use std::collections::BTreeMap;

/// What waits, by stream and number.
#[derive(Clone, Debug)]
pub struct Waiting<K, T> {
    lanes: BTreeMap<K, BTreeMap<(u64, u64), T>>,
    sequence: u64,
    len: usize,
}

impl<K: Ord + Copy, T> Default for Waiting<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy, T> Waiting<K, T> {
    /// Nothing waits.
    pub const fn new() -> Self {
        Self { lanes: BTreeMap::new(), sequence: 0, len: 0 }
    }

    /// Files `thing` under submission `number` of stream `key`; gives its place there, which no other thing ever has.
    pub fn file(&mut self, key: K, number: u64, thing: T) -> (K, u64, u64) {
        self.sequence += 1;
        self.len += 1;
        self.lanes.entry(key).or_default().insert((number, self.sequence), thing);
        (key, number, self.sequence)
    }

    /// Takes out what is filed in this place, if it still is.
    pub fn remove(&mut self, (key, number, sequence): (K, u64, u64)) -> Option<T> {
        let lane = self.lanes.get_mut(&key)?;
        let thing = lane.remove(&(number, sequence))?;
        if lane.is_empty() {
            self.lanes.remove(&key);
        }
        self.len -= 1;
        Some(thing)
    }

    /// Takes out what waits for `completed` or less of stream `key`.
    pub fn due(&mut self, key: K, completed: u64) -> impl Iterator<Item = T> + use<K, T> {
        let later = match self.lanes.get_mut(&key) {
            Some(lane) => lane.split_off(&(completed + 1, 0)),
            None => BTreeMap::new(),
        };
        let due = if later.is_empty() { self.lanes.remove(&key) } else { self.lanes.insert(key, later) };
        let due = due.unwrap_or_default();
        self.len -= due.len();
        due.into_values()
    }

    /// The streams that something waits for, with the earliest number.
    pub fn streams(&self) -> impl Iterator<Item = (K, u64)> {
        self.lanes.iter().filter_map(|(key, lane)| lane.keys().next().map(|(number, _)| (*key, *number)))
    }

    /// Takes out everything: what will never be due.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<K, T> {
        self.len = 0;
        std::mem::take(&mut self.lanes).into_values().flat_map(BTreeMap::into_values)
    }

    /// How many things wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_out_once_and_in_order() {
        let mut waiting = Waiting::new();
        for (number, name) in [(3, "c"), (1, "a"), (3, "d"), (2, "b")] {
            waiting.file(7, number, name);
        }
        assert_eq!(waiting.due(7, 0).count(), 0, "nothing is due before its number");
        assert_eq!((waiting.len(), waiting.is_empty()), (4, false), "all are counted");
        assert_eq!(waiting.due(7, 2).collect::<Vec<_>>(), ["a", "b"], "the numbers passed, in order");
        assert_eq!(waiting.due(7, 2).count(), 0, "nothing comes out twice");
        assert_eq!(waiting.streams().collect::<Vec<_>>(), [(7, 3)], "the rest is still filed");
        assert_eq!(waiting.len(), 2, "and counted");
        assert_eq!(waiting.due(7, 9).collect::<Vec<_>>(), ["c", "d"], "equal numbers keep their order");
        assert!(waiting.is_empty(), "and then nothing waits");
    }

    #[test]
    fn what_is_taken_out_by_its_place_is_gone_once() {
        let mut waiting = Waiting::new();
        let places = [(3, "a"), (3, "b"), (5, "c")].map(|(number, name)| waiting.file(7, number, name));
        assert_eq!(waiting.remove(places[1]), Some("b"), "another of the same number stays");
        assert_eq!(waiting.remove(places[1]), None, "once");
        assert_eq!(waiting.len(), 2, "it is not counted any more");
        assert_eq!(waiting.due(7, 3).collect::<Vec<_>>(), ["a"]);
        assert_eq!(waiting.remove(places[0]), None, "what came out is not there");
        assert_eq!(waiting.remove(places[2]), Some("c"));
        assert_eq!((waiting.streams().count(), waiting.len()), (0, 0), "nobody is asked for nothing");
    }
}
