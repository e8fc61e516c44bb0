//! Pins: host memory that is registered (page-locked) so that the device reaches it (P1 to P12).
//!
//! The first wrap of a range registers it; further wraps of the range or of parts of it share the registration and what
//! is known about its use. When the last is dropped the range is *retired*: it stays registered, and its memory alive,
//! until all work through any of its wraps has completed; a new wrap before then revives it at no cost.
//!
//! # Locks
//! - `table`: counts and look-ups. Short; never held across a driver call. Drops take it.
//! - `calls`: the pin driver lock, held around register and unregister, so that no driver call about a range runs
//!   beside its unregister (P6). It *is* held across a call that may wait for the whole device: R3's first exception.
//!   Nobody takes it but who must make such a call: a first wrap, an explicit free, and the worker around its own
//!   unregister. Drops, claims, launches and re-wraps never do. Lock order: `calls`, then `table`.
//! - "Is this address registered?" reads a snapshot without any lock.
//!
//! # The race that looks wrong
//! The worker finds a retired range idle, and a wrap revives it before the unregister. The decision carries the epoch
//! in which the count fell to zero; `begin_release` compares it under `table`, so the worker's decision is void.
//! Deciding and marking are one step under the lock; from then on the range is `releasing`, and wraps wait for the
//! outcome on `calls`.

use std::any::Any;

use crate::context::{Context, Entered};
use crate::driver::{Call, DeviceAddress, Driver, ErrorKind, HostAccess, HostPointer};
use crate::error::{Error, PinError, Result};
use crate::hold::MayWait;
use crate::id::ResourceId;
use crate::mutant;
use crate::ownership::{Access, Record};
use crate::sync::{Arc, ArcCell, Mutex, MutexGuard, leak};

pub mod state;

use self::state::{Meeting, ScopeId, Status, Table};

/// What keeps registered memory alive (P4): the owner of a wrap, or nothing where the caller vouches.
pub type Owner = Option<Box<dyn Any + Send>>;

/// A host range in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// Where it begins.
    pub base: HostPointer,
    /// How long it is, at least 1.
    pub bytes: usize,
}

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
}

#[derive(Debug)]
struct Payload<D: Driver> {
    pin: Arc<Pin<D>>,
    owner: Owner,
}

/// Base and length of every registered range: a persistent map, so that a copy costs nothing and a change a logarithm.
type Ranges = rpds::RedBlackTreeMapSync<usize, usize>;

/// The table, and the ranges of it that are to be seen from outside.
#[derive(Debug)]
struct Listed<D: Driver> {
    entries: Table<Payload<D>>,
    ranges: Ranges,
}

/// All registrations of a runtime.
#[derive(Debug)]
pub struct Pins<D: Driver> {
    table: Mutex<Listed<D>>,
    calls: Mutex<()>,
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
    /// Whether the driver may have the range registered all the same.
    stays: bool,
}

impl From<Error> for Unmade {
    fn from(error: Error) -> Self {
        Self { error, stays: false }
    }
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

impl<D: Driver> Default for Pins<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: Driver> Pins<D> {
    /// No registrations.
    pub fn new() -> Self {
        Self {
            table: Mutex::new(Listed { entries: Table::new(), ranges: Ranges::new_sync() }),
            calls: Mutex::new(()),
            snapshot: ArcCell::new(std::sync::Arc::new(Ranges::new_sync())),
            figures: Figures::default(),
        }
    }

    /// Takes a count on a registration that covers the range: shares one, or makes one. `owner` keeps the memory alive;
    /// if the registration is shared, the one it was made with does, and this one is given back to be kept by the wrap.
    ///
    /// # Errors
    /// The owner comes back with every error. `Pin` for ranges that meet others, `Driver` when the driver refuses,
    /// `Lost`.
    pub fn pin(&self, context: &Context<D>, request: Request, mut owner: Owner) -> Outcome<D> {
        let HostRange { base, bytes } = request.range;
        let mut leave = MayWait::here();
        loop {
            let meeting = match self.table.lock().entries.share(base.address(), bytes, request.scope) {
                Ok(payload) => {
                    count_locked(&self.figures.shared);
                    return Ok((payload.pin.clone(), owner));
                }
                Err(meeting) => meeting,
            };
            // Only what shares is to be had without waiting.
            let may = match &mut leave {
                Ok(may) => may,
                Err(error) => return Err((error.clone(), owner)),
            };
            let settled = match meeting {
                Meeting::Free => match self.register(context, request, &mut owner, may) {
                    Ok(Some(pin)) => return Ok((pin, None)),
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                },
                Meeting::Inside(_) => Ok(()),
                // Whoever makes the call holds the lock; when it is ours the call is over.
                Meeting::InFlight => {
                    drop(self.lock_calls(may));
                    if [mutant!("p6_register_unlocked"), mutant!("p6_release_unlocked")].contains(&true) {
                        // With either planted nobody holds the lock, and this would spin.
                        crate::sync::thread::pause();
                    }
                    Ok(())
                }
                Meeting::Pending(base) => self.release_pending(context, base, may),
                Meeting::Larger { registered } => Err(PinError::Larger { registered, wanted: bytes }.into()),
                Meeting::Overlap => Err(PinError::Overlap.into()),
                Meeting::Scoped => Err(PinError::Scoped.into()),
                Meeting::Quarantined => Err(PinError::Quarantined.into()),
            };
            if let Err(error) = settled {
                return Err((error, owner));
            }
        }
    }

    /// Takes the pin driver lock. Who has it is in a driver call that may wait for the device, but waits for no capture:
    /// while the lock is held, so is the leave to wait.
    fn lock_calls<'a>(&'a self, _may: &'a MayWait) -> MutexGuard<'a, ()> {
        self.calls.lock()
    }

    /// Registers a free range and takes the first count on it; `None` when somebody was faster.
    fn register(
        &self,
        context: &Context<D>,
        request: Request,
        owner: &mut Owner,
        may: &mut MayWait,
    ) -> Result<Option<Arc<Pin<D>>>> {
        context.check_alive()?;
        let HostRange { base, bytes } = request.range;
        // Before the lock: a capture may be waiting for the lock by way of its body.
        let entered = context.enter(may, Call::HostRegister)?;
        let _calls = (!mutant!("p6_register_unlocked")).then(|| self.lock_calls(entered.may()));
        {
            let mut table = self.table.lock();
            if table.entries.meet(base.address(), bytes, request.scope) != Meeting::Free {
                return Ok(None);
            }
            table.entries.begin(base.address(), bytes, request.scope);
        }
        let (device, origin) = match self.register_at_driver(context, request, &entered) {
            Ok(made) => made,
            Err(Unmade { error, stays }) => {
                self.unmade(base, stays);
                return Err(error);
            }
        };
        let pin = Pin { id: ResourceId::fresh(), range: request.range, device, record: Record::new(), origin };
        Ok(Some(self.admit(pin, owner.take())))
    }

    /// Notes that nothing came of a register.
    #[cold]
    fn unmade(&self, base: HostPointer, stays: bool) {
        let mut table = self.table.lock();
        if stays && !mutant!("p9_unmade_forgotten") {
            // P1, P9. Its owner goes back to the caller: nobody has the device's address of it, so no work reaches it.
            table.entries.quarantine(base.address());
        } else {
            table.entries.failed(base.address());
        }
    }

    fn register_at_driver(
        &self,
        context: &Context<D>,
        request: Request,
        entered: &Entered<'_, D>,
    ) -> std::result::Result<(DeviceAddress, Origin), Unmade> {
        let HostRange { base, bytes } = request.range;
        if !context.capabilities.refuses_overlap && self.foreign(context, request.range) {
            let device = context.check(Call::HostDeviceAddress, context.driver.host_device_address(base));
            return Ok((device.map_err(Unmade::from)?, Origin::Borrowed));
        }
        let answer = entered.call(Call::HostRegister, |driver| {
            // SAFETY: P4. The wrap's owner, its scope, or its caller's promise keeps the range mapped until it was
            // unregistered; P6: `calls` is held.
            unsafe { driver.host_register(base, bytes, request.access) }
        });
        let origin = match answer {
            Ok(()) => Origin::Registered,
            Err(error) if already_registered(&error) && self.foreign(context, request.range) => Origin::Borrowed,
            Err(error) => return Err(error.into()),
        };
        let device = context.check(Call::HostDeviceAddress, context.driver.host_device_address(base));
        device.map(|device| (device, origin)).map_err(|error| {
            // Without a device address it is of no use. Nothing has used it, so it goes at once.
            let stays = origin == Origin::Registered && unregister(entered, base).is_err();
            Unmade { error, stays }
        })
    }

    /// Whether somebody else registered the whole range (P10): its first and its last byte are.
    fn foreign(&self, context: &Context<D>, range: HostRange) -> bool {
        let registered = |pointer| context.driver.host_is_registered(pointer).unwrap_or(false);
        registered(range.base) && registered(range.base.offset(range.bytes - 1))
    }

    /// Puts a registered range to use: the first count.
    fn admit(&self, pin: Pin<D>, owner: Owner) -> Arc<Pin<D>> {
        let pin = Arc::new(pin);
        let base = pin.range.base.address();
        {
            let mut table = self.table.lock();
            table.entries.registered(base, Payload { pin: pin.clone(), owner });
            table.ranges.insert_mut(base, pin.range.bytes);
            self.publish(&table);
        }
        count(&self.figures.made);
        pin
    }

    /// Takes memory that the driver allocated page-locked into the table. The driver may hand out an address that it
    /// was just given back while whoever gave it has not yet noted so: `calls` is held from there to the note (P12).
    pub fn adopt_allocated(&self, range: HostRange, device: DeviceAddress, may: &MayWait) -> Arc<Pin<D>> {
        let _calls = (!mutant!("p12_adopt_beside_release")).then(|| self.lock_calls(may));
        self.table.lock().entries.begin(range.base.address(), range.bytes, None);
        let pin = Pin { id: ResourceId::fresh(), range, device, record: Record::new(), origin: Origin::Allocated };
        self.admit(pin, None)
    }

    /// Gives one count back (P5); the epoch of the release when it was the last. Makes no driver call (R1).
    #[must_use]
    pub fn give_back(&self, pin: &Pin<D>) -> Option<u64> {
        if mutant!("r3_drop_takes_calls") {
            drop(self.calls.lock());
        }
        self.table.lock().entries.give_back(pin.range.base.address())
    }

    /// Whether the release of `pin` decided at `epoch` still stands.
    pub fn is_pending(&self, pin: &Pin<D>, epoch: u64) -> bool {
        let table = self.table.lock();
        table
            .entries
            .entry(pin.range.base.address())
            .is_some_and(|entry| entry.status == Status::Pending && entry.epoch == epoch)
    }

    /// Whether the count that the caller has is the last, and an `O` keeps the memory alive.
    pub fn gives_back<O: 'static>(&self, pin: &Pin<D>) -> std::result::Result<(), PinError> {
        let table = self.table.lock();
        let Some(entry) = table.entries.entry(pin.range.base.address()) else { return Err(PinError::OwnerType) };
        if entry.count > 1 {
            return Err(PinError::Shared);
        }
        let owner = entry.payload.as_ref().and_then(|payload| payload.owner.as_ref());
        if owner.is_some_and(|owner| owner.is::<O>()) { Ok(()) } else { Err(PinError::OwnerType) }
    }

    /// Releases a retired range whose work has completed, and drops its owner, or hands it out.
    ///
    /// `Ok(None)`: the range was revived meanwhile, and is somebody else's. `None` at the outside: a capture stands in
    /// the way.
    ///
    /// # Errors
    /// The driver failed to unregister it: range and owner stay, in quarantine (P9).
    pub fn release(
        &self,
        context: &Context<D>,
        pin: &Pin<D>,
        epoch: u64,
        may: &MayWait,
    ) -> Option<Result<Option<Owner>>> {
        let _calls = (!mutant!("p6_release_unlocked")).then(|| self.lock_calls(may));
        let base = pin.range.base.address();
        if !self.table.lock().entries.begin_release(base, epoch) {
            return Some(Ok(None));
        }
        if mutant!("p4_owner_first") {
            let owner =
                self.table.lock().entries.entry_mut(base).and_then(|entry| entry.payload.as_mut()?.owner.take());
            drop(owner);
        }
        let answer = match pin.origin {
            Origin::Borrowed if !mutant!("p10_unregister_borrowed") => Some(Ok(())),
            Origin::Registered | Origin::Borrowed => self.unregister_now(context, pin.range.base),
            Origin::Allocated => context.guarded_now(Call::HostFree, |driver| {
                // SAFETY: P3, P5. Allocated by `host_alloc`, freed once (the epoch), all work complete, no wraps left.
                unsafe { driver.host_free(pin.range.base) }
            }),
        };
        if answer.is_none() && !mutant!("p7_put_off_stays") {
            self.table.lock().entries.put_off(base);
        }
        Some(self.settle(base, answer?))
    }

    /// Notes the outcome of an unregister. The owner is dropped by the caller, outside the locks.
    fn settle(&self, base: usize, answer: Result<()>) -> Result<Option<Owner>> {
        let mut table = self.table.lock();
        match answer {
            Ok(()) => {
                let payload = table.entries.released(base);
                table.ranges.remove_mut(&base);
                self.publish(&table);
                count(&self.figures.released);
                Ok(payload.map(|payload| payload.owner))
            }
            Err(error) => {
                table.entries.quarantine(base);
                Err(error)
            }
        }
    }

    fn unregister_now(&self, context: &Context<D>, base: HostPointer) -> Option<Result<()>> {
        // SAFETY: P3, P5. The base of a live registration of ours, unregistered once (the epoch); all work through any
        // of its wraps has completed.
        context.guarded_now(Call::HostUnregister, |driver| unsafe { driver.host_unregister(base) })
    }

    /// Waits for a pending range and releases it, to make room for a longer one (P2).
    #[cold]
    fn release_pending(&self, context: &Context<D>, base: usize, may: &mut MayWait) -> Result<()> {
        let found = {
            let table = self.table.lock();
            table
                .entries
                .entry(base)
                .filter(|entry| entry.status == Status::Pending)
                .and_then(|entry| entry.payload.as_ref().map(|payload| (payload.pin.clone(), entry.epoch)))
        };
        let Some((pin, epoch)) = found else { return Ok(()) };
        pin.record.wait(context, Access::Write, may)?;
        loop {
            match self.release(context, &pin, epoch, may) {
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
    pub fn quarantine(&self, range: HostRange) {
        self.table.lock().entries.begin(range.base.address(), range.bytes, None);
        self.unmade(range.base, true);
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

/// Undoes a register that nothing has used.
fn unregister<D: Driver>(entered: &Entered<'_, D>, base: HostPointer) -> Result<()> {
    // SAFETY: P3, P5. The base of a registration that was just made, and that nobody knows of.
    entered.call(Call::HostUnregister, |driver| unsafe { driver.host_unregister(base) })
}

/// Whether the driver refused because the range, or a part of it, is registered already.
fn already_registered(error: &Error) -> bool {
    error.failure().is_some_and(|failure| failure.kind == ErrorKind::AlreadyRegistered)
}
