//! The pool's shelf: pure bookkeeping of who holds what. The driver is asked elsewhere.

use std::collections::VecDeque;

use crate::driver::Priority;

/// Figures that a pool adds up over its streams, the destroyed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Streams ever made.
    pub made: u64,
    /// Leases ever given.
    pub leases: u64,
    /// Streams that exist.
    pub alive: usize,
    /// Streams leased now.
    pub leased: usize,
    /// The most that were leased at once.
    pub leased_max: usize,
    /// Streams given up.
    pub quarantined: usize,
    /// Submissions that used buffers.
    pub launches: u64,
    /// Of those, the ones that needed nothing but their stream's gate.
    pub covered: u64,
    /// Buffers that moved from stream to stream, or joined one as readers.
    pub handovers: u64,
    /// Waits that were inserted.
    pub edges_inserted: u64,
    /// Waits that were not needed.
    pub edges_skipped: u64,
}

impl Figures {
    /// Adds the work of one stream.
    pub fn add(&mut self, stream: &Self) {
        self.launches += stream.launches;
        self.covered += stream.covered;
        self.handovers += stream.handovers;
        self.edges_inserted += stream.edges_inserted;
        self.edges_skipped += stream.edges_skipped;
    }
}

/// Where the streams of a pool are. A stream is on one shelf, or leased, or a candidate in one claimer's hands.
#[derive(Clone, Debug)]
pub struct Shelf<S> {
    cap: usize,
    returned: [VecDeque<S>; 3],
    quarantined: Vec<S>,
    /// Every stream that exists.
    pub all: Vec<S>,
    /// Streams that are being made.
    reserved: usize,
    /// Figures of the pool and of destroyed streams.
    pub figures: Figures,
}

impl<S> Shelf<S> {
    /// An empty shelf.
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            returned: [VecDeque::new(), VecDeque::new(), VecDeque::new()],
            quarantined: Vec::new(),
            all: Vec::new(),
            reserved: 0,
            figures: Figures::default(),
        }
    }

    /// How many streams of this priority wait for a claim.
    pub fn returned(&self, priority: Priority) -> usize {
        self.returned[priority as usize].len()
    }

    /// The one that has been waiting longest: it becomes a candidate.
    pub fn take(&mut self, priority: Priority) -> Option<S> {
        self.returned[priority as usize].pop_front()
    }

    /// A candidate that was busy.
    pub fn put_back(&mut self, priority: Priority, stream: S) {
        self.returned[priority as usize].push_back(stream);
    }

    /// A candidate was leased.
    pub fn lease(&mut self) {
        self.figures.leases += 1;
        self.figures.leased += 1;
        self.figures.leased_max = self.figures.leased_max.max(self.figures.leased);
    }

    /// A lease ended.
    pub fn give_back(&mut self, priority: Priority, stream: S) {
        self.figures.leased -= 1;
        self.put_back(priority, stream);
    }

    /// A candidate failed: it is kept, and never used again (S7).
    pub fn quarantine(&mut self, stream: S) {
        self.figures.quarantined += 1;
        self.quarantined.push(stream);
    }

    /// A leased stream had failed by the end of its lease.
    pub fn quarantine_leased(&mut self, stream: S) {
        self.figures.leased -= 1;
        self.quarantine(stream);
    }

    /// Room for one more stream, or the cap. Streams in quarantine still exist, and count.
    pub fn reserve(&mut self) -> Result<(), usize> {
        if self.all.len() + self.reserved >= self.cap {
            return Err(self.cap);
        }
        self.reserved += 1;
        Ok(())
    }

    /// The room was not used.
    pub fn unreserve(&mut self) {
        self.reserved -= 1;
    }

    /// The room was used, for a stream that is leased at once.
    pub fn made(&mut self, stream: S) {
        self.reserved -= 1;
        self.all.push(stream);
        self.figures.made += 1;
        self.figures.alive += 1;
        self.lease();
    }

    /// A candidate was destroyed; its figures are kept.
    pub fn destroyed(&mut self, is_it: impl Fn(&S) -> bool, figures: &Figures) {
        if let Some(index) = self.all.iter().position(is_it) {
            self.all.swap_remove(index);
            self.figures.alive -= 1;
            self.figures.add(figures);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leased now, the most at once, ever, given up, in existence.
    fn counted(shelf: &Shelf<u8>) -> (usize, usize, u64, usize, usize) {
        let Figures { leased, leased_max, leases, quarantined, alive, .. } = shelf.figures;
        (leased, leased_max, leases, quarantined, alive)
    }

    #[test]
    fn every_stream_is_leased_returned_or_given_up() {
        let mut shelf = Shelf::new(2);
        for stream in [1, 2] {
            shelf.reserve().expect("there is room");
            shelf.made(stream);
        }
        assert_eq!(shelf.reserve(), Err(2), "the cap");
        assert_eq!(counted(&shelf), (2, 2, 2, 0, 2));
        shelf.quarantine_leased(2);
        assert_eq!(counted(&shelf), (1, 2, 2, 1, 2), "S7: its lease has ended, and it still exists");
        shelf.give_back(Priority::High, 1);
        assert_eq!((shelf.returned(Priority::High), shelf.returned(Priority::Low)), (1, 0));
        assert_eq!(shelf.take(Priority::High), Some(1));
        shelf.lease();
        assert_eq!(counted(&shelf), (1, 2, 3, 1, 2));
    }

    #[test]
    fn streams_that_are_being_made_take_room() {
        let mut shelf = Shelf::<u8>::new(2);
        shelf.reserve().expect("there is room");
        shelf.reserve().expect("there is room");
        assert_eq!(shelf.reserve(), Err(2), "two are being made");
        shelf.unreserve();
        shelf.made(1);
        shelf.reserve().expect("one was not made");
        assert_eq!(shelf.reserve(), Err(2), "one exists, one is being made");
    }
}
