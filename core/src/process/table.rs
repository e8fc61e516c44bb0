//! The table of registered host ranges: pure bookkeeping, one transition a method.
//!
//! It serves twice: each runtime has one of its wraps, and the process one of the runtimes' claims (P13), in which a range is
//! live, or in quarantine, whenever the pin driver lock is free.
//!
//! | status | driver has it registered | count | leaves by |
//! |---|---|---|---|
//! | registering | not yet | 0 | `registered`, `failed`, `quarantine` |
//! | live | yes | above 0 | `give_back` of the last count -> pending |
//! | pending | yes, but for a stranger's: perhaps | 0 | `share`, `revive` -> live, `begin_release` -> releasing |
//! | releasing | until the call returns | 0 | `released`, `quarantine` |
//! | quarantined | unknown | 0 | never (P9) |
//!
//! So at every moment when the table is unlocked: registered at the driver <=> live, or the status says otherwise (P1).

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::address::HostAccess;

/// A scope, by a number that is never used again.
pub type ScopeId = std::num::NonZeroU64;

/// How a range is wanted, or was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The scope that ends it without asking others.
    pub scope: Option<ScopeId>,
    /// What the device may do there.
    pub access: HostAccess,
}

impl From<Option<ScopeId>> for Manner {
    /// To be read and written.
    fn from(scope: Option<ScopeId>) -> Self {
        Self { scope, access: HostAccess::ReadWrite }
    }
}

/// Where a range stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The driver is registering it.
    Registering,
    /// Registered, with counts.
    Live,
    /// Registered, without counts; its release waits for work.
    Pending,
    /// The driver is unregistering it.
    Releasing,
    /// A failed unregister, of a release or of a register that was of no use: nobody knows.
    Quarantined,
}

/// One range.
#[derive(Clone, Debug)]
pub struct Entry<P> {
    /// Its length.
    pub bytes: usize,
    /// Where it stands.
    pub status: Status,
    /// Live wraps of it, or of parts of it.
    pub count: usize,
    /// When the count last fell to zero, by the table's clock: a release decided before a revival, or about an earlier
    /// registration of the same addresses, is void (P12).
    pub epoch: u64,
    /// How it was registered.
    pub manner: Manner,
    /// Whether a stranger registered it, and may end that while nobody here has a count (P14).
    pub borrowed: bool,
    /// What the runtime keeps with it; none while registering, nor where that led to quarantine.
    pub payload: Option<P>,
}

/// How a range that is to be wrapped conflicts with what is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Conflict {
    /// Not at all.
    Free,
    /// A registered range that contains it, at this base (P8).
    Inside(usize),
    /// A stranger's range that contains it, at this base, and that nobody has a count on: whether it is still registered
    /// is to be asked (P14).
    Borrowed(usize),
    /// A range whose driver call is in flight: look again afterwards.
    InFlight,
    /// A range in the way whose release is pending, at this base (P2).
    Pending(usize),
    /// A live range that it contains, or that begins where it does, but that is too short (P2).
    Larger {
        /// What is registered.
        registered: usize,
    },
    /// A live range that it overlaps (P8).
    Overlap,
    /// A live range that contains it, but that the device may only read (P15).
    ReadOnly,
    /// A live range of a scope.
    Scoped,
    /// A range in quarantine.
    Quarantined,
}

/// The ranges by base.
#[derive(Clone, Debug)]
pub struct Table<P> {
    ranges: BTreeMap<usize, Entry<P>>,
    /// Moments at which a count fell to zero, in this table: no two are the same.
    epochs: u64,
}

impl<P> Default for Table<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Table<P> {
    /// No ranges.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new(), epochs: 0 }
    }

    /// How `bytes` (at least 1) at `start` conflict with it.
    pub fn conflict(&self, start: usize, bytes: usize, manner: impl Into<Manner>) -> Conflict {
        let end = start.saturating_add(bytes);
        look(self.ranges.range(..end).rev(), start..end, manner.into())
            .map_or_else(|conflict| conflict, |(conflict, _)| conflict)
    }

    /// One more count on the live or pending range that contains `bytes` (at least 1) at `start`.
    ///
    /// # Errors
    /// The [conflict](Self::conflict) where there is none to share.
    pub fn share(&mut self, start: usize, bytes: usize, manner: impl Into<Manner>) -> Result<&mut P, Conflict> {
        let end = start.saturating_add(bytes);
        let (conflict, entry) = look(self.ranges.range_mut(..end).rev(), start..end, manner.into())?;
        if !matches!(conflict, Conflict::Inside(_)) {
            return Err(conflict);
        }
        entry.count += 1;
        entry.status = Status::Live;
        entry.payload.as_mut().ok_or(conflict)
    }

    /// A count on a stranger's range that nobody had one on: the driver says that it is still registered (P14).
    pub fn revive(&mut self, base: usize) -> Option<&mut P> {
        let entry = self.ranges.get_mut(&base).filter(|entry| entry.status == Status::Pending)?;
        entry.count = 1;
        entry.status = Status::Live;
        entry.payload.as_mut()
    }

    /// The driver is about to register a free range.
    pub fn begin(&mut self, start: usize, bytes: usize, manner: impl Into<Manner>) {
        let (status, manner) = (Status::Registering, manner.into());
        let entry = Entry { bytes, status, count: 0, epoch: 0, manner, borrowed: false, payload: None };
        let before = self.ranges.insert(start, entry);
        debug_assert!(before.is_none(), "P1: a range is registered once");
    }

    /// The driver has registered it: the first count.
    pub fn registered(&mut self, start: usize, payload: P) {
        if let Some(entry) = self.ranges.get_mut(&start) {
            entry.status = Status::Live;
            entry.count = 1;
            entry.payload = Some(payload);
        }
    }

    /// A stranger had registered it: the first count (P10).
    pub fn borrowed(&mut self, start: usize, payload: P) {
        self.registered(start, payload);
        if let Some(entry) = self.ranges.get_mut(&start) {
            entry.borrowed = true;
        }
    }

    /// The driver refused it: no count is left (P9).
    pub fn failed(&mut self, start: usize) {
        self.ranges.remove(&start);
    }

    /// One count less; the epoch of the release, when it was the last.
    pub fn give_back(&mut self, base: usize) -> Option<u64> {
        let entry = self.ranges.get_mut(&base)?;
        debug_assert!(entry.count > 0, "P5: each wrap gives back one count");
        entry.count -= 1;
        if entry.count > 0 {
            return None;
        }
        self.epochs += 1;
        entry.epoch = self.epochs;
        entry.status = Status::Pending;
        Some(entry.epoch)
    }

    /// Whether a release decided at `epoch` still holds; then the driver is about to unregister it.
    #[must_use]
    pub fn begin_release(&mut self, base: usize, epoch: u64) -> bool {
        let Some(entry) = self.ranges.get_mut(&base) else { return false };
        let holds = entry.status == Status::Pending && entry.epoch == epoch;
        if holds {
            entry.status = Status::Releasing;
        }
        holds
    }

    /// The release cannot be made now: it is pending again, and its decision still holds.
    pub fn defer(&mut self, base: usize) {
        if let Some(entry) = self.ranges.get_mut(&base) {
            entry.status = Status::Pending;
        }
    }

    /// The driver has unregistered it.
    pub fn released(&mut self, base: usize) -> Option<P> {
        self.ranges.remove(&base)?.payload
    }

    /// The driver failed to unregister it: range and payload stay (P9).
    pub fn quarantine(&mut self, base: usize) {
        if let Some(entry) = self.ranges.get_mut(&base) {
            entry.status = Status::Quarantined;
        }
    }

    /// Takes out the ranges in quarantine that overlap `bytes` at `start` and are such.
    pub fn forget_quarantined(&mut self, start: usize, bytes: usize, is_such: impl Fn(&P) -> bool) -> Vec<Entry<P>> {
        let end = start.saturating_add(bytes);
        let overlapping = self.ranges.range(..end).rev().take_while(|(base, entry)| *base + entry.bytes > start);
        let lost = overlapping.filter(|(_, entry)| entry.status == Status::Quarantined);
        let such = lost.filter(|(_, entry)| entry.payload.as_ref().is_none_or(&is_such));
        let bases: Vec<_> = such.map(|(base, _)| *base).collect();
        bases.iter().filter_map(|base| self.ranges.remove(base)).collect()
    }

    /// The entry at `base`.
    pub fn entry(&self, base: usize) -> Option<&Entry<P>> {
        self.ranges.get(&base)
    }

    /// The entry at `base`, to take its payload apart.
    pub fn entry_mut(&mut self, base: usize) -> Option<&mut Entry<P>> {
        self.ranges.get_mut(&base)
    }

    /// All ranges, by base.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Entry<P>)> {
        self.ranges.iter().map(|(base, entry)| (*base, entry))
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// What `wanted` meets among `ranges`, which begin before its end, the last first; and whose range that is. `Err` for
/// what nobody's range decides. Ranges never overlap each other, so only the last few can reach into it.
fn look<'a, P, E: Borrow<Entry<P>>>(
    ranges: impl Iterator<Item = (&'a usize, E)>,
    wanted: Range<usize>,
    manner: Manner,
) -> Result<(Conflict, E), Conflict> {
    let mut pending = Err(Conflict::Free);
    for (&base, entry) in ranges {
        let reach = base.saturating_add(entry.borrow().bytes);
        if reach <= wanted.start {
            break;
        }
        let contains = base <= wanted.start && wanted.end <= reach;
        let contained = wanted.start <= base && reach <= wanted.end;
        let conflict = entry.borrow().conflict(base, contains, contained, manner);
        // A live obstacle outweighs one that would go away.
        if !matches!(conflict, Conflict::Pending(_)) {
            return Ok((conflict, entry));
        }
        pending = Err(conflict);
    }
    pending
}

impl<P> Entry<P> {
    fn conflict(&self, base: usize, contains: bool, contained: bool, wanted: Manner) -> Conflict {
        let lacks_write = (self.manner.access, wanted.access) == (HostAccess::Read, HostAccess::ReadWrite);
        match self.status {
            Status::Registering | Status::Releasing => Conflict::InFlight,
            Status::Quarantined => Conflict::Quarantined,
            // A scope's wraps share with each other and with ranges that outlive it; nobody else shares a scope's
            // range.
            Status::Live | Status::Pending if contains && self.is_of_another_scope(wanted) => Conflict::Scoped,
            Status::Live if contains && lacks_write => Conflict::ReadOnly,
            Status::Pending if contains && lacks_write => Conflict::Pending(base),
            Status::Pending if contains && self.borrowed => Conflict::Borrowed(base),
            Status::Live | Status::Pending if contains => Conflict::Inside(base),
            Status::Pending => Conflict::Pending(base),
            Status::Live if contained => Conflict::Larger { registered: self.bytes },
            Status::Live => Conflict::Overlap,
        }
    }

    fn is_of_another_scope(&self, wanted: Manner) -> bool {
        self.manner.scope.is_some() && self.manner.scope != wanted.scope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(start: usize, bytes: usize) -> Table<()> {
        let mut table = Table::new();
        table.begin(start, bytes, None);
        table.registered(start, ());
        table
    }

    #[test]
    fn a_part_shares_and_a_whole_is_refused() {
        let table = live(100, 50);
        assert_eq!(table.conflict(100, 50, None), Conflict::Inside(100), "the same range shares (P8)");
        assert_eq!(table.conflict(120, 10, None), Conflict::Inside(100), "a sub-range shares (P8)");
        assert_eq!(table.conflict(100, 51, None), Conflict::Larger { registered: 50 }, "a larger one is refused (P2)");
        assert_eq!(table.conflict(90, 80, None), Conflict::Larger { registered: 50 }, "also to both sides (P2)");
        assert_eq!(table.conflict(90, 20, None), Conflict::Overlap, "an overlap is refused (P8)");
        assert_eq!(table.conflict(140, 20, None), Conflict::Overlap, "at the tail too (P8)");
        assert_eq!(table.conflict(150, 1, None), Conflict::Free, "the next byte is free");
        assert_eq!(table.conflict(99, 1, None), Conflict::Free, "the byte before is free");
    }

    #[test]
    fn a_revived_range_voids_the_release() {
        let mut table = live(100, 50);
        let epoch = table.give_back(100).expect("the last count was given back");
        assert_eq!(table.conflict(100, 60, None), Conflict::Pending(100), "a larger wrap must wait (P2)");
        assert_eq!(table.share(100, 50, None), Ok(&mut ()), "P1: a wrap revives it");
        assert!(!table.begin_release(100, epoch), "P1: a live range is not released");
        let later = table.give_back(100).expect("the last count was given back again");
        assert!(!table.begin_release(100, epoch), "the old decision stays void");
        assert!(table.begin_release(100, later), "the new one holds");
        assert_eq!(table.conflict(100, 50, None), Conflict::InFlight, "nobody shares a range that is going");
        table.released(100);
        assert!(table.is_empty(), "a released range is gone");
    }

    #[test]
    fn the_same_addresses_are_another_registration() {
        let mut table = live(100, 50);
        let before = table.give_back(100).expect("the last count was given back");
        assert!(table.begin_release(100, before), "nobody revived it");
        table.released(100);
        table.begin(100, 80, None);
        table.registered(100, ());
        let after = table.give_back(100).expect("the last count was given back");
        assert_ne!(before, after, "P12: a decision about the shorter registration is not one about the longer");
        assert!(!table.begin_release(100, before), "P12: the old decision is void");
    }

    #[test]
    fn a_deferred_release_still_holds() {
        let mut table = live(100, 50);
        let epoch = table.give_back(100).expect("the last count was given back");
        assert!(table.begin_release(100, epoch));
        assert!(!table.begin_release(100, epoch), "it is being released");
        table.defer(100);
        assert_eq!(table.conflict(100, 60, None), Conflict::Pending(100), "it is pending again");
        assert_eq!(table.entry_mut(100).map(|entry| entry.epoch), Some(epoch));
        assert!(table.begin_release(100, epoch), "the same decision holds");
        table.quarantine(100);
        assert_eq!(table.conflict(120, 1, None), Conflict::Quarantined, "P9: nobody uses it again");
        assert_eq!((table.len(), table.is_empty()), (1, false));
        table.released(100);
        assert_eq!((table.len(), table.is_empty()), (0, true));
    }

    #[test]
    fn a_scope_shares_with_itself_and_with_what_outlives_it() {
        let scopes = [1, 2].map(ScopeId::new);
        let mut table = live(100, 50);
        table.begin(200, 50, scopes[0]);
        table.registered(200, ());
        assert_eq!(table.conflict(100, 50, scopes[0]), Conflict::Inside(100), "what outlives it");
        assert_eq!(table.conflict(210, 10, scopes[0]), Conflict::Inside(200), "its own");
        assert_eq!(table.conflict(210, 10, scopes[1]), Conflict::Scoped, "another scope's");
        assert_eq!(table.conflict(210, 10, None), Conflict::Scoped, "a scope's, for nobody else");
        assert_eq!(
            table.conflict(190, 20, scopes[1]),
            Conflict::Overlap,
            "a part of it is in nobody's way but as ever"
        );
    }

    #[test]
    fn what_is_registered_to_be_read_is_not_written() {
        let reading = Manner { scope: None, access: HostAccess::Read };
        let mut table = Table::new();
        table.begin(100, 50, reading);
        table.registered(100, ());
        assert_eq!(table.conflict(110, 10, reading), Conflict::Inside(100), "readers share it");
        assert_eq!(table.conflict(110, 10, None), Conflict::ReadOnly, "P15: a writer does not");
        table.give_back(100);
        assert_eq!(table.conflict(110, 10, None), Conflict::Pending(100), "P15: but waits for its end");
        assert_eq!(
            live(100, 50).conflict(110, 10, reading),
            Conflict::Inside(100),
            "a reader shares what is written too"
        );
    }

    #[test]
    fn a_strangers_range_is_asked_for_before_it_is_revived() {
        let mut table = Table::new();
        table.begin(100, 50, None);
        table.borrowed(100, ());
        assert_eq!(table.share(100, 50, None), Ok(&mut ()), "P8: while somebody has a count, it is shared");
        assert_eq!([table.give_back(100).is_some(), table.give_back(100).is_some()], [false, true]);
        assert_eq!(table.share(110, 10, None), Err(Conflict::Borrowed(100)), "P14: then it may be gone");
        assert_eq!(table.revive(100), Some(&mut ()), "P14: the driver still has it");
        assert_eq!(table.revive(100), None, "once");
        assert_eq!(table.entry(100).map(|entry| entry.count), Some(1), "P5: one count");
    }

    #[test]
    fn live_obstacles_outweigh_pending_ones() {
        let mut table = live(100, 50);
        table.begin(200, 50, None);
        table.registered(200, ());
        table.give_back(200);
        assert_eq!(table.conflict(90, 200, None), Conflict::Larger { registered: 50 }, "the live one decides");
        assert_eq!(table.conflict(160, 100, None), Conflict::Pending(200), "the pending one can be waited for");
    }
}
