//! Pins: host memory that is registered (page-locked) so that the device reaches it (P1 to P15).
//!
//! The first wrap of a range registers it; further wraps of the range or of parts of it share the registration and what
//! is known about its use. When the last is dropped the range is *retired*: it stays registered, and its memory alive,
//! until all work through any of its wraps has completed; a new wrap before then revives it at no cost.
//!
//! A driver registers for the whole process, so a runtime's registration is a claim in the process's table (`process`):
//! the first claim on a range makes the driver's call, and the last that is given up undoes it (P13).
//!
//! # Locks
//! - `table`: counts and look-ups of one runtime. Short; never held across a driver call. Drops take it.
//! - `calls`: the pin driver lock of the process, held around register and unregister, so that no driver call about a range
//!   runs beside its unregister (P6), whichever runtimes make them. It *is* held across a call that may wait for the whole
//!   device: R3's first exception. Nobody takes it but who must make such a call: a first wrap, an explicit free, and a turn
//!   around its own unregister, which only tries. Drops, claims, launches and re-wraps never do.
//! - `claims`: see `process`. Lock order: `calls`, then `table`, then `claims`.
//! - "Is this address registered?" reads a snapshot without any lock.
//!
//! # The race that looks wrong
//! The worker finds a retired range idle, and a wrap revives it before the unregister. The decision carries the epoch
//! in which the count fell to zero; `begin_release` compares it under `table`, so the worker's decision is void.
//! Deciding and marking are one step under the lock; from then on the range is `releasing`, and wraps wait for the
//! outcome on `calls`. Another runtime's claim is made and given up under `calls`, so it is there before the decision
//! about the last, or after the unregister.
//!
//! A range has one ticket at most in the queue of the retired (`filed`), however often it is wrapped and let go while it
//! is busy. The ticket follows the range: when its turn comes it takes up the decision that stands then, or ends.

use std::any::Any;

use crate::call_scope::MayWait;
use crate::context::{Context, Entered};
use crate::driver::{Call, Coverage, DeviceAddress, Driver, ErrorKind, HostAccess, HostPointer};
use crate::error::{DriverFailure, Error, Misuse, PinError, Result};
use crate::id::ResourceId;
use crate::ownership::{Access, Record};
use crate::process::table::{Conflict, Manner, ScopeId, Status, Table};
use crate::process::{Alike, Claim, Kept, Process, keep};
use crate::sync::{Arc, ArcCell, Mutex, MutexGuard, leak};

pub use crate::address::HostRange;
pub use crate::process::{Origin, table as state};

/// What keeps registered memory alive (P4): the owner of a wrap, or nothing where the caller vouches.
pub type Owner = Option<Box<dyn Any + Send>>;

/// One registration, shared by all wraps of its range. Named by identity, not by address (P12).
#[derive(Debug)]
pub struct Pin<D: Driver> {
    /// Its identity.
    pub id: ResourceId,
    /// The registered range.
    pub range: HostRange,
    /// The device's address of its first byte.
    pub device: DeviceAddress,
    /// Who used it, through any wrap (P3).
    pub record: Record<D>,
    /// How it came about.
    pub origin: Origin,
    /// Where the claim is, unless it is borrowed.
    claim: Option<Claim>,
    process: Process,
}

#[derive(Debug)]
struct Payload<D: Driver> {
    pin: Arc<Pin<D>>,
    /// All that keeps the memory: the maker's owner, and those of wraps that have ended.
    owners: Vec<Kept>,
    /// Whether the queue of the retired has its ticket.
    filed: bool,
}

/// A claim that nothing of ours keeps the memory of, given up while other runtimes have theirs: the memory must outlive
/// those as well, so a shutdown has to say so.
#[derive(Debug)]
struct Ceded {
    process: Process,
    id: ResourceId,
    base: usize,
}

/// Base and length of every registered range: a persistent map, so that a copy costs nothing and a change a logarithm.
type Ranges = rpds::RedBlackTreeMapSync<usize, usize>;

/// The table, and the ranges of it that are to be seen from outside.
#[derive(Debug)]
struct Listed<D: Driver> {
    entries: Table<Payload<D>>,
    ranges: Ranges,
    ceded: Vec<Ceded>,
}

/// All registrations of a runtime.
#[derive(Debug)]
pub struct Pins<D: Driver> {
    table: Mutex<Listed<D>>,
    // The ranges for look-ups without a lock, as they were when the table was last unlocked.
    snapshot: ArcCell<Ranges>,
    pub figures: Figures,
}

/// Figures of the registrations. std atomics outside the facade: they order and decide nothing.
#[derive(Debug, Default)]
pub struct Figures {
    pub made: std::sync::atomic::AtomicU64,
    pub shared: std::sync::atomic::AtomicU64,
    pub released: std::sync::atomic::AtomicU64,
}

fn count(figure: &std::sync::atomic::AtomicU64) {
    // Relaxed: a figure.
    figure.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// As `count`, for figures that change only under the table's lock: a load and a store.
fn count_locked(figure: &std::sync::atomic::AtomicU64) {
    // Relaxed: a figure, and the lock orders its writers.
    let value = figure.load(std::sync::atomic::Ordering::Relaxed);
    figure.store(value + 1, std::sync::atomic::Ordering::Relaxed);
}

/// A count, and the owner that was not needed to keep the memory; or an error, and the owner.
pub type Outcome<D> = std::result::Result<(Arc<Pin<D>>, Owner), (Error, Owner)>;

/// Why nothing came of a register.
#[derive(Debug)]
struct Unmade {
    error: Error,
    left: Leftover,
}

/// What a register that failed has left at the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    Nothing,
    /// The range is registered: by that call or by a stranger, who can tell. So it is not undone (P10), and what keeps the
    /// memory is kept (P4).
    Perhaps,
    /// That very call registered it, and it could not be undone.
    Registered,
}

impl From<Error> for Unmade {
    fn from(error: Error) -> Self {
        Self { error, left: Leftover::Nothing }
    }
}

impl From<PinError> for Unmade {
    fn from(error: PinError) -> Self {
        Error::from(error).into()
    }
}

/// What came of a release that was made.
#[derive(Debug)]
pub enum Released {
    /// Nothing: the range was revived meanwhile, and is somebody else's.
    Void,
    /// The driver has undone the registration. What kept its memory, the latest last.
    Undone(Vec<Box<dyn Any + Send>>),
    /// The claim is given up, and other runtimes have theirs, with what kept the memory; but what need not be kept is here.
    Ceded(Vec<Box<dyn Any + Send>>),
}

impl Released {
    /// Whether there was nothing to release.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Void)
    }
}

/// Why a turn made no release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferral {
    /// A capture stands in the way; its end signals.
    Capture,
    /// Another thread of the process is in a driver call about registrations. Nobody signals its end.
    Busy,
}

/// What the end of a wrap leaves to do.
#[derive(Debug)]
pub struct Parted {
    /// When the count fell to zero, if it was the last.
    pub epoch: Option<u64>,
    /// The wrap's own owner, which must stay until the work on the memory has completed, where others still have counts.
    pub owner: Owner,
    /// Whether the range is to be retired: it has no ticket yet.
    pub retires: bool,
}

/// How a range is to be registered.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The range.
    pub range: HostRange,
    /// What the device may do.
    pub access: HostAccess,
    /// The scope that asks, and will end the registration without asking others.
    pub scope: Option<ScopeId>,
}

impl Request {
    fn manner(&self) -> Manner {
        Manner { scope: self.scope, access: self.access }
    }
}

impl<D: Driver> Default for Pins<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: Driver> Pins<D> {
    /// No registrations.
    pub fn new() -> Self {
        Self {
            table: Mutex::new(Listed { entries: Table::new(), ranges: Ranges::new_sync(), ceded: Vec::new() }),
            snapshot: ArcCell::new(std::sync::Arc::new(Ranges::new_sync())),
            figures: Figures::default(),
        }
    }

    /// Takes a count on a registration that covers the range: shares one, or makes one. `owner` keeps the memory alive;
    /// if the registration is shared, the one it was made with does, and this one is given back to be kept by the wrap.
    ///
    /// # Errors
    /// The owner comes back with every error after which the driver does not have the range. `Pin` for ranges that meet
    /// others, `Driver` when the driver refuses, `Lost`.
    pub fn pin(&self, context: &Context<D>, request: Request, owner: Owner) -> Outcome<D> {
        self.pin_alike(context, request, owner, None)
    }

    /// As [`pin`](Self::pin), with an owner that has clones, and that nobody wants back: one of them is kept.
    pub(crate) fn pin_alike(
        &self,
        context: &Context<D>,
        request: Request,
        owner: Owner,
        alike: Option<Alike>,
    ) -> Outcome<D> {
        let mut kept = owner.map(|owner| Kept { owner, alike });
        let back = |kept: Option<Kept>| kept.map(|kept| kept.owner);
        let mut leave = MayWait::here();
        loop {
            let conflict = match self.share(request, &mut kept) {
                Ok(pin) => return Ok((pin, back(kept))),
                Err(conflict) => conflict,
            };
            // Only what shares is to be had without waiting.
            let may = match &mut leave {
                Ok(may) => may,
                Err(error) => return Err((error.clone(), back(kept))),
            };
            match self.make_room(context, request, &mut kept, conflict, may) {
                Ok(Some(pin)) => return Ok((pin, back(kept))),
                Ok(None) => {}
                Err(error) => return Err((error, back(kept))),
            }
        }
    }

    /// A count on a registration that is there. An owner that has clones goes to it, or away if it has one.
    fn share(&self, request: Request, kept: &mut Option<Kept>) -> std::result::Result<Arc<Pin<D>>, Conflict> {
        let HostRange { base, bytes } = request.range;
        let mut table = self.table.lock();
        let payload = table.entries.share(base.address(), bytes, request.manner())?;
        let surplus = payload.keep_alike(kept);
        let pin = payload.pin.clone();
        count_locked(&self.figures.shared);
        drop(table);
        // Outside of the lock: it is no memory's last owner, but foreign code all the same.
        drop(surplus);
        Ok(pin)
    }

    /// Does what lets a range be shared or registered the next time; or registers it.
    fn make_room(
        &self,
        context: &Context<D>,
        request: Request,
        kept: &mut Option<Kept>,
        conflict: Conflict,
        may: &mut MayWait,
    ) -> Result<Option<Arc<Pin<D>>>> {
        match conflict {
            Conflict::Free => return self.register(context, request, kept, may),
            Conflict::Inside(_) => {}
            Conflict::Borrowed(base) => return self.revive_borrowed(context, base, kept, may),
            // Whoever makes the call holds the lock; when it is ours the call is over.
            Conflict::InFlight => drop(lock_calls(&context.process, may)),
            Conflict::Pending(base) => self.release_pending(context, base, may)?,
            refused => return Err(refusal(refused, request.range.bytes).into()),
        }
        Ok(None)
    }

    /// Registers a free range and takes the first count on it; `None` when somebody was faster.
    fn register(
        &self,
        context: &Context<D>,
        request: Request,
        kept: &mut Option<Kept>,
        may: &mut MayWait,
    ) -> Result<Option<Arc<Pin<D>>>> {
        context.check_alive()?;
        let HostRange { base, bytes } = request.range;
        // Before the lock: a capture may be waiting for the lock by way of its body.
        let entered = context.enter(may, Call::HostRegister)?;
        let _calls = lock_calls(&context.process, entered.may());
        {
            let mut table = self.table.lock();
            if table.entries.conflict(base.address(), bytes, request.manner()) != Conflict::Free {
                return Ok(None);
            }
            table.entries.begin(base.address(), bytes, request.manner());
        }
        let (device, origin, claim) = match self.claim(context, request, &entered) {
            Ok(made) => made,
            Err(Unmade { error, left }) => {
                self.unmade(context, request.range, left, kept);
                return Err(error);
            }
        };
        let (id, range, process) = (ResourceId::fresh(), request.range, context.process.clone());
        let pin = Pin { id, range, device, record: Record::new(), origin, claim, process };
        Ok(Some(self.admit(pin, kept.take())))
    }

    /// A claim on what another runtime has registered (P13), or on what is registered for it.
    fn claim(&self, context: &Context<D>, request: Request, entered: &Entered<'_, D>) -> Made {
        let (range, manner) = (request.range, request.manner());
        let conflict = context.process.conflict(range, manner);
        if conflict == Conflict::Free {
            let (device, origin) = self.register_at_driver(context, request, entered)?;
            let made = origin == Origin::Registered;
            return Ok((device, origin, made.then(|| context.process.register(range, manner, origin))));
        }
        let Conflict::Inside(_) = conflict else { return Err(refusal(conflict, range.bytes).into()) };
        // Asked before the claim is made: what fails has nothing to give back.
        let device = device_address(context, range.base)?;
        let claim = context.process.join(range, manner).ok_or(PinError::Overlap)?;
        Ok((device, claim.origin, Some(claim)))
    }

    /// Notes that nothing came of a register. What keeps memory that the driver may have registered stays (P4).
    #[cold]
    fn unmade(&self, context: &Context<D>, range: HostRange, left: Leftover, kept: &mut Option<Kept>) {
        let stays = left == Leftover::Registered || left == Leftover::Perhaps && kept.is_some();
        if !stays {
            return self.table.lock().entries.failed(range.base.address());
        }
        // P1, P9.
        let owner = kept.take().map(|kept| kept.owner);
        context.process.quarantine_unused(range, Origin::Registered, owner);
        self.table.lock().entries.quarantine(range.base.address());
    }

    fn register_at_driver(
        &self,
        context: &Context<D>,
        request: Request,
        entered: &Entered<'_, D>,
    ) -> std::result::Result<(DeviceAddress, Origin), Unmade> {
        let HostRange { base, bytes } = request.range;
        let asks_first = !context.capabilities.refuses_overlap;
        if asks_first {
            match coverage(context, request.range)? {
                Coverage::Whole => return borrow(context, base),
                // The driver would accept it in silence, and not register all of it.
                Coverage::Part => return Err(PinError::Overlap.into()),
                Coverage::None => {}
            }
        }
        let answer = entered.call(Call::HostRegister, |driver| {
            // SAFETY: P4. The wrap's owner, its scope, or its caller's promise keeps the range mapped until it was
            // unregistered; P6: `calls` is held.
            unsafe { driver.host_register(base, bytes, request.access) }
        });
        match answer {
            Ok(()) => {}
            Err(error) if already_registered(&error) => {
                let is_whole = coverage(context, request.range) == Ok(Coverage::Whole);
                return if is_whole { borrow(context, base) } else { Err(error.into()) };
            }
            Err(error) => return Err(after_failure(context, request.range, entered, asks_first, error)),
        }
        let device = device_address(context, base);
        device
            .map(|device| (device, Origin::Registered))
            // Without a device address it is of no use. Nothing has used it, so it goes at once.
            .map_err(|error| undo(context, request.range, entered, error))
    }

    /// A count on a stranger's range that nobody has one on, if the driver still has it registered, and where it had (P14).
    #[cold]
    fn revive_borrowed(
        &self,
        context: &Context<D>,
        base: usize,
        kept: &mut Option<Kept>,
        may: &mut MayWait,
    ) -> Result<Option<Arc<Pin<D>>>> {
        {
            let _calls = lock_calls(&context.process, may);
            let Some((pin, _)) = self.pending(base) else { return Ok(None) };
            let is_there = coverage(context, pin.range) == Ok(Coverage::Whole)
                && device_address(context, pin.range.base) == Ok(pin.device);
            if is_there {
                let mut table = self.table.lock();
                let Some(payload) = table.entries.revive(base) else { return Ok(None) };
                let surplus = payload.keep_alike(kept);
                count_locked(&self.figures.shared);
                drop(table);
                drop(surplus);
                return Ok(Some(pin));
            }
        }
        self.release_pending(context, base, may)?;
        Ok(None)
    }

    /// Puts a registered range to use: the first count.
    fn admit(&self, pin: Pin<D>, kept: Option<Kept>) -> Arc<Pin<D>> {
        let pin = Arc::new(pin);
        let base = pin.range.base.address();
        let payload = Payload { pin: pin.clone(), owners: kept.into_iter().collect(), filed: false };
        {
            let mut table = self.table.lock();
            match pin.origin {
                Origin::Borrowed => table.entries.borrowed(base, payload),
                Origin::Registered | Origin::Allocated => table.entries.registered(base, payload),
            }
            table.ranges.insert_mut(base, pin.range.bytes);
            self.publish(&table);
        }
        count(&self.figures.made);
        pin
    }

    /// Takes memory that the driver allocated page-locked into the table. The driver may hand out an address that it
    /// was just given back while whoever gave it has not yet noted so: `calls` is held from there to the note (P12).
    ///
    /// # Errors
    /// `Overlap` where the driver gave memory that is registered.
    pub fn adopt_allocated(
        &self,
        context: &Context<D>,
        range: HostRange,
        device: DeviceAddress,
        may: &MayWait,
    ) -> std::result::Result<Arc<Pin<D>>, PinError> {
        let _calls = lock_calls(&context.process, may);
        context.process.forget_freed(range);
        let (base, bytes) = (range.base.address(), range.bytes);
        {
            let mut table = self.table.lock();
            // What the driver would not take back, and has now handed out: so it had.
            let allocated = |payload: &Payload<D>| payload.pin.origin == Origin::Allocated;
            leak(table.entries.forget_quarantined(base, bytes, allocated));
            if table.entries.conflict(base, bytes, None) != Conflict::Free
                || context.process.conflict(range, None.into()) != Conflict::Free
            {
                return Err(PinError::Overlap);
            }
            table.entries.begin(base, bytes, None);
        }
        let claim = Some(context.process.register(range, None.into(), Origin::Allocated));
        let (id, record, origin, process) =
            (ResourceId::fresh(), Record::new(), Origin::Allocated, context.process.clone());
        Ok(self.admit(Pin { id, range, device, record, origin, claim, process }, None))
    }

    /// Gives one count back (P5); the epoch of the release when it was the last. Makes no driver call (R1).
    #[must_use]
    pub fn give_back(&self, pin: &Pin<D>) -> Option<u64> {
        self.table.lock().entries.give_back(pin.range.base.address())
    }

    /// Ends a wrap: gives its count back (P5), with its own owner, which goes with the registration if it was the last (P4).
    /// Makes no driver call (R1). With `retires`, the caller retires the range where that says so.
    #[must_use]
    pub fn part(&self, pin: &Pin<D>, owner: Owner, retires: bool) -> Parted {
        let base = pin.range.base.address();
        let mut table = self.table.lock();
        let epoch = table.entries.give_back(base);
        let payload = table.entries.entry_mut(base).and_then(|entry| entry.payload.as_mut());
        let (Some(payload), Some(_)) = (payload, epoch) else { return Parted { epoch, owner, retires: false } };
        payload.owners.extend(owner.map(|owner| Kept { owner, alike: None }));
        let retires = retires && payload.file();
        Parted { epoch, owner: None, retires }
    }

    /// Whether the range is to be retired: it is pending, and has no ticket yet.
    #[must_use]
    pub fn file(&self, pin: &Pin<D>) -> bool {
        self.with_pending(pin, |_, payload| payload.file()).unwrap_or(false)
    }

    /// What a ticket of the range is about when its turn comes: the epoch in which the count fell to zero last. `None` ends
    /// the ticket: the range is in use, and its end will file another, or it is gone.
    pub fn due(&self, pin: &Pin<D>) -> Option<u64> {
        let mut table = self.table.lock();
        let entry = table.entries.entry_mut(pin.range.base.address())?;
        let due = (entry.status == Status::Pending).then_some(entry.epoch);
        // P12. As in `with_pending`.
        let payload = entry.payload.as_mut().filter(|payload| payload.pin.id == pin.id)?;
        // P5. In the same turn of the lock: whoever lets go next finds that there is no ticket.
        payload.filed = due.is_some();
        due
    }

    /// The ticket of the range has ended.
    pub fn unfile(&self, pin: &Pin<D>) {
        let mut table = self.table.lock();
        let entry = table.entries.entry_mut(pin.range.base.address());
        let payload = entry.and_then(|entry| entry.payload.as_mut()).filter(|payload| payload.pin.id == pin.id);
        if let Some(payload) = payload {
            payload.filed = false;
        }
    }

    fn with_pending<R>(&self, pin: &Pin<D>, act: impl FnOnce(u64, &mut Payload<D>) -> R) -> Option<R> {
        let mut table = self.table.lock();
        let entry = table.entries.entry_mut(pin.range.base.address())?;
        let epoch = (entry.status == Status::Pending).then_some(entry.epoch)?;
        // P12. Another registration of these addresses is none of this pin's.
        let payload = entry.payload.as_mut().filter(|payload| payload.pin.id == pin.id)?;
        Some(act(epoch, payload))
    }

    /// Whether the release of `pin` decided at `epoch` still stands.
    pub fn is_pending(&self, pin: &Pin<D>, epoch: u64) -> bool {
        self.with_pending(pin, |now, _| now == epoch).unwrap_or(false)
    }

    /// Whether the count that the caller has is the last in the process, and an `O` keeps the memory alive.
    pub fn gives_back<O: 'static>(&self, pin: &Pin<D>) -> std::result::Result<(), PinError> {
        self.is_last(pin)?;
        let table = self.table.lock();
        let payload = table.entries.entry(pin.range.base.address()).and_then(|entry| entry.payload.as_ref());
        let owned = payload.is_some_and(|payload| payload.owners.iter().any(|kept| kept.owner.is::<O>()));
        if owned { Ok(()) } else { Err(PinError::OwnerType) }
    }

    fn is_last(&self, pin: &Pin<D>) -> std::result::Result<(), PinError> {
        let is_shared = self.count(pin) > 1 || has_other_claims(pin);
        if is_shared { Err(PinError::Shared) } else { Ok(()) }
    }

    /// Whether what a wrap with an owner of its own was made with can be given back: other wraps of this runtime keep the
    /// memory as before, but if there are none, another runtime's claim would be left with it.
    pub fn can_end(&self, pin: &Pin<D>) -> std::result::Result<(), PinError> {
        if self.count(pin) > 1 { Ok(()) } else { self.is_last(pin) }
    }

    fn count(&self, pin: &Pin<D>) -> usize {
        self.table.lock().entries.entry(pin.range.base.address()).map_or(0, |entry| entry.count)
    }

    /// Releases a retired range whose work has completed, and hands out what kept its memory. `None`: a capture stands in
    /// the way.
    ///
    /// # Errors
    /// The driver failed to unregister it: range and owners stay, in quarantine (P9).
    pub fn release(&self, context: &Context<D>, pin: &Pin<D>, epoch: u64, may: &MayWait) -> Option<Result<Released>> {
        let _calls = lock_calls(&context.process, may);
        self.release_locked(context, pin, epoch)
    }

    /// As [`release`](Self::release), but puts it off where another thread is in such a call: for turns, which a shutdown
    /// makes too (R5).
    ///
    /// # Errors
    /// As there.
    pub fn try_release(
        &self,
        context: &Context<D>,
        pin: &Pin<D>,
        epoch: u64,
        _may: &MayWait,
    ) -> std::result::Result<Result<Released>, Deferral> {
        let Some(_calls) = pin.process.calls().try_lock() else { return Err(Deferral::Busy) };
        self.release_locked(context, pin, epoch).ok_or(Deferral::Capture)
    }

    fn release_locked(&self, context: &Context<D>, pin: &Pin<D>, epoch: u64) -> Option<Result<Released>> {
        let base = pin.range.base.address();
        if !self.table.lock().entries.begin_release(base, epoch) {
            return Some(Ok(Released::Void));
        }
        // Steady: `calls` is held.
        if has_other_claims(pin) {
            return Some(Ok(Released::Ceded(self.cede(pin))));
        }
        let answer = match (pin.origin, pin.claim) {
            (Origin::Borrowed, _) => Some(Ok(())),
            // R6. Nothing of a lost device is released: the range stays registered, with what keeps it (P9).
            _ if context.lost().is_some() => Some(context.check_alive()),
            (Origin::Allocated, _) => context.guarded_now(Call::HostFree, |driver| {
                // SAFETY: P3, P5, P14. Allocated by `host_alloc`, freed once (the epoch, and the last claim), all work
                // complete, no wraps left.
                unsafe { driver.host_free(claimed(pin)) }
            }),
            _ => self.unregister_now(context, pin),
        };
        if answer.is_none() {
            self.table.lock().entries.defer(base);
        }
        Some(self.settle(pin, answer?))
    }

    /// Gives up a claim that others have one beside. What kept the memory stays with theirs (P4); what need not comes back.
    fn cede(&self, pin: &Pin<D>) -> Vec<Box<dyn Any + Send>> {
        let mut table = self.table.lock();
        let owners = self.unlist(&mut table, pin).map(|payload| payload.owners).unwrap_or_default();
        let Some(claim) = pin.claim else { return Vec::new() };
        if owners.is_empty() {
            table.ceded.retain(|ceded| ceded.process.has(ceded.id, ceded.base));
            let (process, id, base) = (pin.process.clone(), claim.id, claim.base.address());
            let is_known = table.ceded.iter().any(|ceded| ceded.id == id);
            table.ceded.extend((!is_known).then_some(Ceded { process, id, base }));
        }
        drop(table);
        pin.process.cede(claim, owners).into_iter().map(|kept| kept.owner).collect()
    }

    fn unlist(&self, table: &mut Listed<D>, pin: &Pin<D>) -> Option<Payload<D>> {
        let base = pin.range.base.address();
        let payload = table.entries.released(base);
        table.ranges.remove_mut(&base);
        self.publish(table);
        count(&self.figures.released);
        payload
    }

    /// Notes the outcome of an unregister. The owners are dropped by the caller, outside the locks.
    fn settle(&self, pin: &Pin<D>, answer: Result<()>) -> Result<Released> {
        match answer {
            Ok(()) => {
                let mut owners = pin.claim.map(|claim| pin.process.released(claim)).unwrap_or_default();
                let mut table = self.table.lock();
                owners.extend(self.unlist(&mut table, pin).map(|payload| payload.owners).unwrap_or_default());
                Ok(Released::Undone(owners.into_iter().map(|kept| kept.owner).collect()))
            }
            Err(error) => {
                if let Some(claim) = pin.claim {
                    pin.process.quarantine(claim);
                }
                self.table.lock().entries.quarantine(pin.range.base.address());
                Err(error)
            }
        }
    }

    fn unregister_now(&self, context: &Context<D>, pin: &Pin<D>) -> Option<Result<()>> {
        // SAFETY: P3, P5, P14. The base of a live registration of ours, unregistered once (the epoch, and the last claim);
        // all work through any wrap of any claim has completed.
        let answer =
            context.guarded_now(Call::HostUnregister, |driver| unsafe { driver.host_unregister(claimed(pin)) });
        let Some(Err(error)) = answer else { return answer };
        // A call may fail after its effect. Then nothing is left to keep, but it is told (R7).
        if context.lost().is_none() && coverage(context, pin.range) == Ok(Coverage::None) {
            context.keep_untold(error);
            return Some(Ok(()));
        }
        Some(Err(error))
    }

    fn pending(&self, base: usize) -> Option<(Arc<Pin<D>>, u64)> {
        let table = self.table.lock();
        let entry = table.entries.entry(base).filter(|entry| entry.status == Status::Pending)?;
        entry.payload.as_ref().map(|payload| (payload.pin.clone(), entry.epoch))
    }

    /// Waits for a pending range and releases it, to make room for a longer one (P2).
    #[cold]
    fn release_pending(&self, context: &Context<D>, base: usize, may: &mut MayWait) -> Result<()> {
        let Some((pin, epoch)) = self.pending(base) else { return Ok(()) };
        pin.record.wait(context, Access::Write, may)?;
        loop {
            match self.release(context, &pin, epoch, may) {
                Some(Ok(Released::Undone(owners) | Released::Ceded(owners))) => {
                    drop_owners(context, owners);
                    return Ok(());
                }
                Some(outcome) => return outcome.map(drop),
                // A capture stands in the way; wait for its end, or refuse where that is our own.
                None => drop(context.captures.enter_waiting(may)?),
            }
        }
    }

    /// Whether the byte at `address` lies in a registration of this runtime. Takes no lock.
    pub fn is_registered(&self, address: usize) -> bool {
        let snapshot = self.snapshot.load();
        snapshot.range(..=address).next_back().is_some_and(|(base, bytes)| address - base < *bytes)
    }

    /// Claims that were given up and that nothing of ours keeps the memory of, while other runtimes have it registered.
    pub fn ceded(&self) -> usize {
        let mut table = self.table.lock();
        table.ceded.retain(|ceded| ceded.process.has(ceded.id, ceded.base));
        table.ceded.len()
    }

    /// Ranges in the table by status: live, pending (or in flight), quarantined.
    pub fn census(&self) -> (usize, usize, usize) {
        let table = self.table.lock();
        table.entries.iter().fold((0, 0, 0), |(live, pending, quarantined), (_, entry)| match entry.status {
            Status::Live => (live + 1, pending, quarantined),
            Status::Quarantined => (live, pending, quarantined + 1),
            _ => (live, pending + 1, quarantined),
        })
    }

    /// Lists memory that the driver allocated and would not take back, and that nobody uses: so that a report says it
    /// (P9, R5).
    #[cold]
    pub fn quarantine(&self, context: &Context<D>, range: HostRange) {
        context.process.forget_freed(range);
        context.process.quarantine_unused(range, Origin::Allocated, None);
        let (base, bytes) = (range.base.address(), range.bytes);
        let mut table = self.table.lock();
        if table.entries.conflict(base, bytes, None) == Conflict::Free {
            table.entries.begin(base, bytes, None);
            table.entries.quarantine(base);
        }
    }

    /// Keeps a range that can no longer be unregistered, with its owner (P9, P11).
    pub fn abandon(&self, pin: &Pin<D>) {
        self.table.lock().entries.quarantine(pin.range.base.address());
    }

    /// Called under the table's lock, so that snapshots follow each other as the table does.
    fn publish(&self, table: &Listed<D>) {
        self.snapshot.store(std::sync::Arc::new(table.ranges.clone()));
    }
}

impl<D: Driver> Drop for Pins<D> {
    fn drop(&mut self) {
        // P4, P11. What is still here is still registered, and the device may be at work on it: its memory outlives the
        // runtime.
        let entries = &mut self.table.get_mut().entries;
        let bases: Vec<_> = entries.iter().map(|(base, _)| base).collect();
        bases.into_iter().for_each(|base| leak(entries.released(base)));
    }
}

impl<D: Driver> Payload<D> {
    fn file(&mut self) -> bool {
        let files = !self.filed;
        self.filed = true;
        files
    }

    /// Takes an owner that has clones; gives back what need not be kept.
    fn keep_alike(&mut self, kept: &mut Option<Kept>) -> Option<Kept> {
        keep(&mut self.owners, kept.take_if(|kept| kept.alike.is_some())?)
    }
}

type Made = std::result::Result<(DeviceAddress, Origin, Option<Claim>), Unmade>;

/// Takes the pin driver lock. Who has it is in a driver call that may wait for the device, but waits for no capture:
/// while the lock is held, so is the leave to wait.
fn lock_calls<'a>(process: &'a Process, _may: &'a MayWait) -> MutexGuard<'a, ()> {
    process.calls().lock()
}

fn has_other_claims<D: Driver>(pin: &Pin<D>) -> bool {
    pin.claim.is_some_and(|claim| pin.process.others(claim) > 0)
}

/// Where the driver's registration of a pin begins.
fn claimed<D: Driver>(pin: &Pin<D>) -> HostPointer {
    pin.claim.map_or(pin.range.base, |claim| claim.base)
}

/// What a range that cannot be shared nor made room for is refused with.
fn refusal(conflict: Conflict, wanted: usize) -> PinError {
    match conflict {
        Conflict::Larger { registered } => PinError::Larger { registered, wanted },
        Conflict::Quarantined => PinError::Quarantined,
        Conflict::ReadOnly => PinError::ReadOnly,
        Conflict::Scoped => PinError::Scoped,
        _ => PinError::Overlap,
    }
}

/// What of a range is registered, by anybody, as the driver says.
fn coverage<D: Driver>(context: &Context<D>, range: HostRange) -> Result<Coverage> {
    context.check(Call::HostIsRegistered, context.driver.host_coverage(range.base, range.bytes))
}

/// The device's address of registered memory; success without one is a failure.
pub(crate) fn device_address<D: Driver>(context: &Context<D>, base: HostPointer) -> Result<DeviceAddress> {
    let device = context.check(Call::HostDeviceAddress, context.driver.host_device_address(base))?;
    if device.0 == 0 { Err(Error::Driver(DriverFailure::null(Call::HostDeviceAddress))) } else { Ok(device) }
}

/// Uses what a stranger registered as it is (P10).
fn borrow<D: Driver>(context: &Context<D>, base: HostPointer) -> std::result::Result<(DeviceAddress, Origin), Unmade> {
    Ok((device_address(context, base)?, Origin::Borrowed))
}

/// Undoes a register that nothing has used, after `error`.
#[cold]
fn undo<D: Driver>(context: &Context<D>, range: HostRange, entered: &Entered<'_, D>, error: Error) -> Unmade {
    // R6. A lost device is left alone, and so the range stays registered (P4).
    if context.lost().is_some() {
        return Unmade { error, left: Leftover::Registered };
    }
    // SAFETY: P3, P5. The base of a registration that was just made, and that nobody knows of.
    let undone = entered.call(Call::HostUnregister, |driver| unsafe { driver.host_unregister(range.base) });
    // That call may fail after its effect.
    let is_gone = undone.is_ok() || coverage(context, range) == Ok(Coverage::None);
    Unmade { error, left: if is_gone { Leftover::Nothing } else { Leftover::Registered } }
}

/// What a register that failed has left: it may have had its effect all the same.
#[cold]
fn after_failure<D: Driver>(
    context: &Context<D>,
    range: HostRange,
    entered: &Entered<'_, D>,
    was_free: bool,
    error: Error,
) -> Unmade {
    // A lost device is done with all memory (R6).
    if context.lost().is_some() {
        return error.into();
    }
    match coverage(context, range) {
        Ok(Coverage::None) => error.into(),
        Ok(_) if was_free => undo(context, range, entered, error),
        _ => Unmade { error, left: Leftover::Perhaps },
    }
}

/// Drops what kept memory. A panic in there keeps nothing from going its way (R4).
pub(crate) fn drop_owners<D: Driver>(context: &Context<D>, owners: Vec<Box<dyn Any + Send>>) {
    for owner in owners {
        if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(owner))) {
            // Not dropped: that could panic too.
            std::mem::forget(payload);
            context.keep_untold(Misuse::PanickedInRelease.into());
        }
    }
}

/// Whether the driver refused because the range, or a part of it, is registered already.
fn already_registered(error: &Error) -> bool {
    error.failure().is_some_and(|failure| failure.kind == ErrorKind::AlreadyRegistered)
}
