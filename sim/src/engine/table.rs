//! Objects by small numbers, which are handed out again as [`Reuse`] has it.

use std::ops::{Index, IndexMut};

use crate::memory::{Freed, Reuse};

/// See the module.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: Vec<Option<T>>,
    freed: Freed,
    len: usize,
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), freed: Freed::default(), len: 0 }
    }

    pub(super) fn set_reuse(&mut self, reuse: Reuse) {
        self.freed.set_reuse(reuse);
    }

    pub(super) fn insert(&mut self, value: T) -> usize {
        self.len += 1;
        match self.freed.take() {
            Some(key) => {
                self.entries[key as usize] = Some(value);
                key as usize
            }
            None => {
                self.entries.push(Some(value));
                self.entries.len() - 1
            }
        }
    }

    /// Takes an entry out.
    ///
    /// # Panics
    /// Where there is none.
    pub(super) fn remove(&mut self, key: usize) -> T {
        let value = self.entries[key].take().expect("an entry that lives");
        self.len -= 1;
        self.freed.give_back(key as u32);
        value
    }

    /// Takes all entries out.
    pub(super) fn clear(&mut self) {
        let live = (0..self.entries.len()).filter(|key| self.entries[*key].is_some());
        live.for_each(|key| self.freed.give_back(key as u32));
        self.entries.iter_mut().for_each(|entry| *entry = None);
        self.len = 0;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.entries.iter().enumerate().filter_map(|(key, entry)| Some((key, entry.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(key, entry)| Some((key, entry.as_mut()?)))
    }

    pub(super) fn get(&self, key: usize) -> Option<&T> {
        self.entries.get(key)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, key: usize) -> Option<&mut T> {
        self.entries.get_mut(key)?.as_mut()
    }

    pub(super) fn contains(&self, key: usize) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = T;

    fn index(&self, key: usize) -> &T {
        self.entries[key].as_ref().expect("an entry that lives")
    }
}

impl<T> IndexMut<usize> for Table<T> {
    fn index_mut(&mut self, key: usize) -> &mut T {
        self.entries[key].as_mut().expect("an entry that lives")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::WITHHELD_MAX;

    fn second_after(reuse: Reuse) -> usize {
        let mut table = Table::new();
        table.set_reuse(reuse);
        let keys: Vec<_> = (0..3).map(|value| table.insert(value)).collect();
        keys[..2].iter().for_each(|key| _ = table.remove(*key));
        table.insert(9)
    }

    #[test]
    fn what_was_given_back_comes_again_in_the_order_asked_for() {
        assert_eq!(second_after(Reuse::LastFreed), 1);
        assert_eq!(second_after(Reuse::OldestFreed), 0);
        assert_eq!(second_after(Reuse::Withheld), 3);
    }

    #[test]
    fn what_is_withheld_does_not_grow_without_limit() {
        let mut table = Table::new();
        table.set_reuse(Reuse::Withheld);
        for value in 0..3 * WITHHELD_MAX {
            let key = table.insert(value);
            assert!(key <= WITHHELD_MAX + 1, "{key}");
            assert!(table.contains(key));
            assert_eq!(table.remove(key), value);
            assert!(!table.contains(key));
        }
        assert_eq!(table.len(), 0);
    }
}
