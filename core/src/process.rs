//! The registrations of a process, whichever runtimes made them (P13).
//!
//! A driver registers memory for a process and not for a runtime: two runtimes over one driver share what is registered.
//! So there is one table of it, in which a runtime's registration is a *claim*; the counts of its wraps are its own. The
//! first claim on a range makes the driver's call. One that is given up before the last leaves what kept its memory alive
//! here (P4), and the last makes the other call. Each runtime gives its claim up after its own work, so that call comes
//! after the work of all (P14).
//!
//! What other code registered is in no table: each runtime asks the driver for it (P10).
//!
//! # Locks
//! - `calls`: the pin driver lock. See [`registration`](crate::registration).
//! - `claims`: the table; short, taken last, and changed only with `calls` held.

use std::any::Any;

use crate::address::{HostPointer, HostRange};
use crate::id::ResourceId;
use crate::sync::{Arc, Mutex, leak};

pub mod table;

use self::table::{Conflict, Manner, Table};

/// How a registration came about, and so how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// We registered it and unregister it.
    Registered,
    /// Somebody else had registered it; we only use it (P10).
    Borrowed,
    /// The driver allocated it page-locked; we free it.
    Allocated,
}

/// The registrations of one process: those of all runtimes whose drivers give an equal one share them.
#[derive(Clone, Debug)]
pub struct Process(Arc<Shared>);

impl PartialEq for Process {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Process {}

#[derive(Debug)]
struct Shared {
    calls: Mutex<()>,
    claims: Mutex<Table<Held>>,
}

/// Whether two owners are clones of one: then one of them keeps the memory as well as both.
pub(crate) type Alike = fn(&(dyn Any + Send), &(dyn Any + Send)) -> bool;

/// What keeps registered memory alive (P4).
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) owner: Box<dyn Any + Send>,
    pub(crate) alike: Option<Alike>,
}

/// Adds an owner, unless one like it is there already: that one is handed back, and may go at once.
pub(crate) fn keep(owners: &mut Vec<Kept>, kept: Kept) -> Option<Kept> {
    if kept.alike.is_some_and(|alike| owners.iter().any(|other| alike(&*other.owner, &*kept.owner))) {
        return Some(kept);
    }
    owners.push(kept);
    None
}

/// What is registered, or allocated, by a driver of this process.
#[derive(Debug)]
struct Held {
    id: ResourceId,
    base: HostPointer,
    origin: Origin,
    /// Owners of claims that were given up.
    owners: Vec<Kept>,
}

/// A claim, by what it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) id: ResourceId,
    /// Where what is registered begins: the driver knows it by that.
    pub(crate) base: HostPointer,
    pub(crate) origin: Origin,
}

impl Default for Process {
    /// As [`new`](Self::new).
    fn default() -> Self {
        Self::new()
    }
}

impl Process {
    /// One of its own: a simulated device's, whose registrations have nothing to do with those of others.
    pub fn new() -> Self {
        Self(Arc::new(Shared { calls: Mutex::new(()), claims: Mutex::new(Table::new()) }))
    }

    /// The process that this code runs in.
    pub fn this() -> Self {
        // std's: set once, and nothing in a model asks for it.
        static THIS: std::sync::OnceLock<Process> = std::sync::OnceLock::new();
        THIS.get_or_init(Self::new).clone()
    }

    pub(crate) fn calls(&self) -> &Mutex<()> {
        &self.0.calls
    }

    /// How a range conflicts with what is there. The caller holds `calls`.
    pub(crate) fn conflict(&self, range: HostRange, manner: Manner) -> Conflict {
        self.0.claims.lock().conflict(range.base.address(), range.bytes, manner)
    }

    /// A claim on what contains the range, after [`conflict`](Self::conflict) said so.
    pub(crate) fn join(&self, range: HostRange, manner: Manner) -> Option<Claim> {
        let mut claims = self.0.claims.lock();
        let held = claims.share(range.base.address(), range.bytes, manner).ok()?;
        Some(Claim { id: held.id, base: held.base, origin: held.origin })
    }

    /// The first claim on what the driver has just registered or allocated.
    pub(crate) fn register(&self, range: HostRange, manner: Manner, origin: Origin) -> Claim {
        let (id, base) = (ResourceId::fresh(), range.base);
        let mut claims = self.0.claims.lock();
        claims.begin(base.address(), range.bytes, manner);
        claims.registered(base.address(), Held { id, base, origin, owners: Vec::new() });
        Claim { id, base, origin }
    }

    /// Claims of other runtimes beside this one.
    pub(crate) fn others(&self, claim: Claim) -> usize {
        let claims = self.0.claims.lock();
        let entry = claims.entry(claim.base.address());
        let entry = entry.filter(|entry| entry.payload.as_ref().is_some_and(|held| held.id == claim.id));
        entry.map_or(0, |entry| entry.count.saturating_sub(1))
    }

    /// Whether what the claim is on is registered still, or in quarantine.
    pub(crate) fn has(&self, id: ResourceId, base: usize) -> bool {
        let claims = self.0.claims.lock();
        let held = claims.entry(base).and_then(|entry| entry.payload.as_ref());
        held.is_some_and(|held| held.id == id)
    }

    /// Gives up a claim that is not the last; its owners stay until the last is (P4). Those that need not, come back.
    pub(crate) fn cede(&self, claim: Claim, owners: Vec<Kept>) -> Vec<Kept> {
        let base = claim.base.address();
        let mut claims = self.0.claims.lock();
        let _not_the_last = claims.give_back(base);
        let held = claims.entry_mut(base).and_then(|entry| entry.payload.as_mut());
        let Some(held) = held else { return owners };
        owners.into_iter().filter_map(|kept| keep(&mut held.owners, kept)).collect()
    }

    /// The driver has undone it: the owners of every claim.
    pub(crate) fn released(&self, claim: Claim) -> Vec<Kept> {
        self.0.claims.lock().released(claim.base.address()).map(|held| held.owners).unwrap_or_default()
    }

    /// The driver would not undo it: nobody shares it any more, and what is kept stays (P9).
    pub(crate) fn quarantine(&self, claim: Claim) {
        self.0.claims.lock().quarantine(claim.base.address());
    }

    /// Lists what a driver may have and nobody can use, with what keeps the memory.
    pub(crate) fn quarantine_unused(&self, range: HostRange, origin: Origin, owner: Option<Box<dyn Any + Send>>) {
        let base = range.base;
        let owners = owner.map(|owner| Kept { owner, alike: None }).into_iter().collect();
        let mut claims = self.0.claims.lock();
        if claims.conflict(base.address(), range.bytes, None) != Conflict::Free {
            // It overlaps what is listed, as it cannot on a driver that does what it says.
            return leak(owners);
        }
        claims.begin(base.address(), range.bytes, None);
        claims.registered(base.address(), Held { id: ResourceId::fresh(), base, origin, owners });
        claims.quarantine(base.address());
    }

    /// Forgets memory in quarantine that the driver has handed out anew: so it had been freed (P9).
    pub(crate) fn forget_freed(&self, range: HostRange) {
        let mut claims = self.0.claims.lock();
        let allocated = |held: &Held| held.origin == Origin::Allocated;
        let gone = claims.forget_quarantined(range.base.address(), range.bytes, allocated);
        drop(claims);
        leak(gone);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // P4. What is still here is still registered, and its memory stays.
        let claims = self.claims.get_mut();
        let bases: Vec<_> = claims.iter().map(|(base, _)| base).collect();
        bases.into_iter().for_each(|base| leak(claims.released(base)));
    }
}
