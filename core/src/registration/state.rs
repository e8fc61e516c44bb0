//! The table of registered host ranges: pure bookkeeping, one transition a method.
//!
//! | status | driver has it registered | count | leaves by |
//! |---|---|---|---|
//! | registering | not yet | 0 | `registered`, `failed`, `quarantine` |
//! | live | yes | above 0 | `give_back` of the last count -> pending |
//! | pending | yes | 0 | `share` -> live (revived), `begin_release` -> releasing |
//! | releasing | until the call returns | 0 | `released`, `quarantine` |
//! | quarantined | unknown | 0 | never (P9) |
//!
//! So at every moment when the table is unlocked: registered at the driver <=> live, or the status says otherwise (P1).

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::mutant;

/// A scope, by a number that is never used again.
pub type ScopeId = std::num::NonZeroU64;

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
    /// The scope that ends it without asking others.
    pub scope: Option<ScopeId>,
    /// What the runtime keeps with it; none while registering, nor where that led to quarantine.
    pub payload: Option<P>,
}

/// What a range that is to be wrapped meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Meeting {
    /// Nothing.
    Free,
    /// A registered range that contains it, at this base (P8).
    Inside(usize),
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

    /// What `bytes` (at least 1) at `start` meet.
    pub fn meet(&self, start: usize, bytes: usize, scope: Option<ScopeId>) -> Meeting {
        let end = start.saturating_add(bytes);
        look(self.ranges.range(..end).rev(), start..end, scope).map_or_else(|meeting| meeting, |(meeting, _)| meeting)
    }

    /// One more count on the live or pending range that contains `bytes` (at least 1) at `start`.
    ///
    /// # Errors
    /// What they [meet](Self::meet) where there is none to share.
    pub fn share(&mut self, start: usize, bytes: usize, scope: Option<ScopeId>) -> Result<&P, Meeting> {
        let end = start.saturating_add(bytes);
        let (meeting, entry) = look(self.ranges.range_mut(..end).rev(), start..end, scope)?;
        if !matches!(meeting, Meeting::Inside(_)) {
            return Err(meeting);
        }
        entry.count += if mutant!("p5_share_uncounted") { 0 } else { 1 };
        entry.status = Status::Live;
        entry.payload.as_ref().ok_or(meeting)
    }

    /// The driver is about to register a free range.
    pub fn begin(&mut self, start: usize, bytes: usize, scope: Option<ScopeId>) {
        let entry = Entry { bytes, status: Status::Registering, count: 0, epoch: 0, scope, payload: None };
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

    /// The driver refused it: no count is left (P9).
    pub fn failed(&mut self, start: usize) {
        if !mutant!("p9_failed_register_stays") {
            self.ranges.remove(&start);
        }
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
        entry.epoch = if mutant!("p12_epoch_by_range") { entry.epoch + 1 } else { self.epochs };
        entry.status = Status::Pending;
        Some(entry.epoch)
    }

    /// Whether a release decided at `epoch` still holds; then the driver is about to unregister it.
    #[must_use]
    pub fn begin_release(&mut self, base: usize, epoch: u64) -> bool {
        let Some(entry) = self.ranges.get_mut(&base) else { return false };
        let holds = entry.status == Status::Pending && entry.epoch == epoch;
        if mutant!("p1_release_ignores_revival") && entry.status == Status::Live {
            entry.status = Status::Releasing;
            return true;
        }
        if holds {
            entry.status = Status::Releasing;
        }
        holds
    }

    /// The release cannot be made now: it is pending again, and its decision still holds.
    pub fn put_off(&mut self, base: usize) {
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
        if mutant!("p9_failed_unregister_forgets") {
            self.ranges.remove(&base);
        }
        if let Some(entry) = self.ranges.get_mut(&base) {
            entry.status = Status::Quarantined;
        }
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
    scope: Option<ScopeId>,
) -> Result<(Meeting, E), Meeting> {
    let mut pending = Err(Meeting::Free);
    for (&base, entry) in ranges {
        let reach = base.saturating_add(entry.borrow().bytes);
        if reach <= wanted.start {
            break;
        }
        let contains = base <= wanted.start && wanted.end <= reach;
        let contained = wanted.start <= base && reach <= wanted.end;
        let meeting = entry.borrow().meeting(base, contains, contained, scope);
        // A live obstacle outweighs one that would go away.
        if !matches!(meeting, Meeting::Pending(_)) {
            return Ok((meeting, entry));
        }
        pending = Err(meeting);
    }
    pending
}

impl<P> Entry<P> {
    fn meeting(&self, base: usize, contains: bool, contained: bool, scope: Option<ScopeId>) -> Meeting {
        match self.status {
            Status::Registering | Status::Releasing => Meeting::InFlight,
            Status::Quarantined => Meeting::Quarantined,
            // A scope's wraps share with each other and with ranges that outlive it; nobody else shares a scope's
            // range.
            Status::Live | Status::Pending if contains && self.scope.is_some() && self.scope != scope => {
                Meeting::Scoped
            }
            Status::Live | Status::Pending if contains => Meeting::Inside(base),
            Status::Pending if mutant!("p2_reuse_short") => Meeting::Inside(base),
            Status::Pending => Meeting::Pending(base),
            Status::Live if contained && mutant!("p2_larger_accepted") => Meeting::Inside(base),
            Status::Live if mutant!("p8_overlap_shares") => Meeting::Inside(base),
            Status::Live if contained => Meeting::Larger { registered: self.bytes },
            Status::Live => Meeting::Overlap,
        }
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
        assert_eq!(table.meet(100, 50, None), Meeting::Inside(100), "the same range shares (P8)");
        assert_eq!(table.meet(120, 10, None), Meeting::Inside(100), "a sub-range shares (P8)");
        assert_eq!(table.meet(100, 51, None), Meeting::Larger { registered: 50 }, "a larger one is refused (P2)");
        assert_eq!(table.meet(90, 80, None), Meeting::Larger { registered: 50 }, "also to both sides (P2)");
        assert_eq!(table.meet(90, 20, None), Meeting::Overlap, "an overlap is refused (P8)");
        assert_eq!(table.meet(140, 20, None), Meeting::Overlap, "at the tail too (P8)");
        assert_eq!(table.meet(150, 1, None), Meeting::Free, "the next byte is free");
        assert_eq!(table.meet(99, 1, None), Meeting::Free, "the byte before is free");
    }

    #[test]
    fn a_revived_range_voids_the_release() {
        let mut table = live(100, 50);
        let epoch = table.give_back(100).expect("the last count was given back");
        assert_eq!(table.meet(100, 60, None), Meeting::Pending(100), "a larger wrap must wait (P2)");
        assert_eq!(table.share(100, 50, None), Ok(&()), "P1: a wrap revives it");
        assert!(!table.begin_release(100, epoch), "P1: a live range is not released");
        let later = table.give_back(100).expect("the last count was given back again");
        assert!(!table.begin_release(100, epoch), "the old decision stays void");
        assert!(table.begin_release(100, later), "the new one holds");
        assert_eq!(table.meet(100, 50, None), Meeting::InFlight, "nobody shares a range that is going");
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
    fn a_release_put_off_still_holds() {
        let mut table = live(100, 50);
        let epoch = table.give_back(100).expect("the last count was given back");
        assert!(table.begin_release(100, epoch));
        assert!(!table.begin_release(100, epoch), "it is being released");
        table.put_off(100);
        assert_eq!(table.meet(100, 60, None), Meeting::Pending(100), "it is pending again");
        assert_eq!(table.entry_mut(100).map(|entry| entry.epoch), Some(epoch));
        assert!(table.begin_release(100, epoch), "the same decision holds");
        table.quarantine(100);
        assert_eq!(table.meet(120, 1, None), Meeting::Quarantined, "P9: nobody uses it again");
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
        assert_eq!(table.meet(100, 50, scopes[0]), Meeting::Inside(100), "what outlives it");
        assert_eq!(table.meet(210, 10, scopes[0]), Meeting::Inside(200), "its own");
        assert_eq!(table.meet(210, 10, scopes[1]), Meeting::Scoped, "another scope's");
        assert_eq!(table.meet(210, 10, None), Meeting::Scoped, "a scope's, for nobody else");
        assert_eq!(table.meet(190, 20, scopes[1]), Meeting::Overlap, "a part of it is in nobody's way but as ever");
    }

    #[test]
    fn live_obstacles_outweigh_pending_ones() {
        let mut table = live(100, 50);
        table.begin(200, 50, None);
        table.registered(200, ());
        table.give_back(200);
        assert_eq!(table.meet(90, 200, None), Meeting::Larger { registered: 50 }, "the live one decides");
        assert_eq!(table.meet(160, 100, None), Meeting::Pending(200), "the pending one can be waited for");
    }
}
