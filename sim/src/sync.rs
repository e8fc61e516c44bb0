//! Locks for programs under a schedule: [`Mutex`], [`RwLock`] and [`Condvar`], in the shape of std's.
//!
//! A lock of std whose holder has handed its turn on stops the thread that takes it where no schedule can see it. These
//! know the schedule of a [`check`](crate::check()): taking one is a point where others may run, a thread that waits for one lets
//! others run, and a deadlock is a finding that says which lock each thread waits for and who holds it. Outside of a
//! schedule they are ordinary locks.
//!
//! ```
//! use std::sync::Arc;
//! use tenure_sim::sync::Mutex;
//! use tenure_sim::{Config, check};
//!
//! check(Config::default().schedules(20), |device| {
//!     let count = Arc::new(Mutex::new(0));
//!     let other = count.clone();
//!     let thread = device.spawn("other", move || *other.lock().unwrap() += 1);
//!     *count.lock().unwrap() += 1;
//!     thread.join();
//!     assert_eq!(*count.lock().unwrap(), 2);
//! });
//! ```
//!
//! In deadlocks a lock is named by where it was made, or by its [`named`](Mutex::named) name. One made in one schedule is
//! for the threads of that schedule. From inside a host function a lock that is held is not waited for: that is a finding
//! (R2), and the function ends there. Locks order host threads; the checkers take all host threads for one anyhow.

use crate::drive::lock::{Lock, Notice};
use crate::drive::seat;
use crate::drive::turns::Waiting;
use parking_lot::Mutex as Inner;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// The state of a lock, with its sleeping waiters, outside of any schedule.
struct Raw {
    lock: Arc<Lock>,
    is_poisoned: AtomicBool,
}

impl Raw {
    #[track_caller]
    fn new(name: Option<&'static str>) -> Self {
        let caller = Location::caller();
        let name = name.map_or_else(|| format!("of {caller}"), |name| format!("`{name}`"));
        Self { lock: Arc::new(Lock::new(name)), is_poisoned: AtomicBool::new(false) }
    }

    /// Takes it, alone or with other readers.
    fn take(&self, alone: bool) {
        if let Some(seat) = seat::current() {
            drop(seat.pause());
            while !self.lock.try_take(alone, Some(seat.number())) {
                let what = Waiting::Lock { lock: self.lock.clone(), alone };
                drop(seat.wait(what, "a lock"));
            }
        } else {
            self.lock.take_outside(alone);
        }
    }

    fn try_take(&self, alone: bool) -> bool {
        let seat = seat::current();
        if let Some(seat) = &seat {
            drop(seat.pause());
        }
        self.lock.try_take(alone, seat.map(|seat| seat.number()))
    }

    fn give_back(&self, alone: bool) {
        self.lock.give_back(alone, seat::current().map(|seat| seat.number()));
    }

    /// A guard that was taken while nothing panicked goes while something does: what it guards may be half done.
    fn poison_if(&self, was_panicking: bool) {
        if !was_panicking && std::thread::panicking() {
            self.is_poisoned.store(true, Ordering::Relaxed);
        }
    }

    fn checked<G>(&self, guard: G) -> LockResult<G> {
        match self.is_poisoned.load(Ordering::Relaxed) {
            true => Err(PoisonError::new(guard)),
            false => Ok(guard),
        }
    }
}

macro_rules! common {
    ($name:ident) => {
        // SAFETY: R4. The value goes with the lock.
        unsafe impl<T: ?Sized + Send> Send for $name<T> {}

        impl<T> $name<T> {
            /// A new, free lock, named by the line that makes it.
            #[track_caller]
            pub fn new(value: T) -> Self {
                Self { raw: Raw::new(None), value: UnsafeCell::new(value) }
            }

            /// A new, free lock of this name.
            pub fn named(name: &'static str, value: T) -> Self {
                Self { raw: Raw::new(Some(name)), value: UnsafeCell::new(value) }
            }

            /// The value.
            ///
            /// # Errors
            /// A thread panicked while it held the lock alone.
            pub fn into_inner(self) -> LockResult<T> {
                let Self { raw, value } = self;
                raw.checked(value.into_inner())
            }
        }

        impl<T: ?Sized> $name<T> {
            /// The value, which nobody else can reach.
            ///
            /// # Errors
            /// A thread panicked while it held the lock alone.
            pub fn get_mut(&mut self) -> LockResult<&mut T> {
                self.raw.checked(self.value.get_mut())
            }

            /// Whether a thread panicked while it held the lock alone.
            pub fn is_poisoned(&self) -> bool {
                self.raw.is_poisoned.load(Ordering::Relaxed)
            }

            /// What was half done is mended.
            pub fn clear_poison(&self) {
                self.raw.is_poisoned.store(false, Ordering::Relaxed);
            }
        }

        impl<T: Default> Default for $name<T> {
            #[track_caller]
            fn default() -> Self {
                Self::new(T::default())
            }
        }

        impl<T> From<T> for $name<T> {
            #[track_caller]
            fn from(value: T) -> Self {
                Self::new(value)
            }
        }

        impl<T: ?Sized> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("name", &self.raw.lock.name()).finish_non_exhaustive()
            }
        }
    };
}

macro_rules! guard {
    ($(#[$doc:meta])* $guard:ident of $name:ident, alone: $alone:literal) => {
        $(#[$doc])*
        #[must_use]
        pub struct $guard<'a, T: ?Sized> {
            lock: &'a $name<T>,
            was_panicking: bool,
            /// It is given back by the thread that took it.
            _stays: PhantomData<*const ()>,
        }

        impl<'a, T: ?Sized> $guard<'a, T> {
            fn of(lock: &'a $name<T>) -> LockResult<Self> {
                lock.raw.checked(Self { lock, was_panicking: std::thread::panicking(), _stays: PhantomData })
            }

            fn tried(lock: &'a $name<T>) -> TryLockResult<Self> {
                match lock.raw.try_take($alone) {
                    true => Self::of(lock).map_err(TryLockError::Poisoned),
                    false => Err(TryLockError::WouldBlock),
                }
            }
        }

        impl<T: ?Sized> Deref for $guard<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                // SAFETY: R4. The lock is held, alone or by readers alone.
                unsafe { &*self.lock.value.get() }
            }
        }

        impl<T: ?Sized> Drop for $guard<'_, T> {
            fn drop(&mut self) {
                if $alone {
                    self.lock.raw.poison_if(self.was_panicking);
                }
                self.lock.raw.give_back($alone);
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&**self, f)
            }
        }
    };
}

macro_rules! writes {
    ($guard:ident) => {
        impl<T: ?Sized> DerefMut for $guard<'_, T> {
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: R4. The lock is held alone.
                unsafe { &mut *self.lock.value.get() }
            }
        }
    };
}

/// A mutex that the schedule knows. See the module.
pub struct Mutex<T: ?Sized> {
    raw: Raw,
    value: UnsafeCell<T>,
}

// SAFETY: R4. One thread at a time reaches the value.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

common!(Mutex);
guard! {
    /// Proof that a [`Mutex`] is held.
    MutexGuard of Mutex, alone: true
}
writes!(MutexGuard);

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, letting others run until it is free.
    ///
    /// # Errors
    /// A thread panicked while it held the lock; the guard is in the error.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.raw.take(true);
        MutexGuard::of(self)
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// It is held; or as [`lock`](Self::lock).
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        MutexGuard::tried(self)
    }
}

/// A lock for many readers or one writer that the schedule knows. See the module.
pub struct RwLock<T: ?Sized> {
    raw: Raw,
    value: UnsafeCell<T>,
}

// SAFETY: R4. One thread at a time writes the value; several read it.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

common!(RwLock);
guard! {
    /// Proof that a [`RwLock`] is held by a reader.
    RwLockReadGuard of RwLock, alone: false
}
guard! {
    /// Proof that a [`RwLock`] is held by its writer.
    RwLockWriteGuard of RwLock, alone: true
}
writes!(RwLockWriteGuard);

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock with other readers, letting others run until no writer has it.
    ///
    /// # Errors
    /// A writer panicked; the guard is in the error.
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.raw.take(false);
        RwLockReadGuard::of(self)
    }

    /// Takes the lock alone, letting others run until nobody has it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.raw.take(true);
        RwLockWriteGuard::of(self)
    }

    /// Takes the lock with other readers, if no writer has it.
    ///
    /// # Errors
    /// A writer has it; or as [`read`](Self::read).
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        RwLockReadGuard::tried(self)
    }

    /// Takes the lock alone, if nobody has it.
    ///
    /// # Errors
    /// Somebody has it; or as [`read`](Self::read).
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        RwLockWriteGuard::tried(self)
    }
}

/// Whether a wait with a limit ended by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the limit came first.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A condition variable that the schedule knows, for a [`Mutex`] of this module.
pub struct Condvar {
    name: String,
    /// The waiters, in the order in which they came.
    waiters: Inner<Vec<Arc<AtomicBool>>>,
    told: parking_lot::Condvar,
}

impl Condvar {
    /// A new one with nobody waiting, named by the line that makes it.
    #[track_caller]
    pub fn new() -> Self {
        Self {
            name: format!("of {}", Location::caller()),
            waiters: Inner::default(),
            told: parking_lot::Condvar::new(),
        }
    }

    /// Gives the lock back, lets others run until it is notified, and takes the lock again.
    ///
    /// # Errors
    /// A thread panicked while it held the lock; the guard is in the error.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let (lock, ticket) = self.enter(guard);
        match seat::current() {
            Some(seat) => {
                let notice = Notice { name: self.name.clone(), given: ticket };
                drop(seat.wait(Waiting::Notice(notice), "a condition variable"));
            }
            None => {
                let mut waiters = self.waiters.lock();
                while !ticket.load(Ordering::Relaxed) {
                    self.told.wait(&mut waiters);
                }
            }
        }
        lock.lock()
    }

    /// Waits as long as the condition holds.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        let mut guard = guard;
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// As [`wait`](Self::wait), for no longer than `limit`. Under a schedule time is the schedule's: whether the notice or
    /// the limit comes first is one of the things that it decides.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (lock, ticket) = self.enter(guard);
        match seat::current() {
            Some(seat) => drop(seat.pause()),
            None => {
                let mut waiters = self.waiters.lock();
                if !ticket.load(Ordering::Relaxed) {
                    self.told.wait_for(&mut waiters, limit);
                }
            }
        }
        self.waiters.lock().retain(|waiter| !Arc::ptr_eq(waiter, &ticket));
        let result = WaitTimeoutResult(!ticket.load(Ordering::Relaxed));
        match lock.lock() {
            Ok(guard) => Ok((guard, result)),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), result))),
        }
    }

    /// Wakes the waiter that came first, if there is one.
    pub fn notify_one(&self) {
        let mut waiters = self.waiters.lock();
        if !waiters.is_empty() {
            self.wake(&waiters.remove(0));
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        let mut waiters = self.waiters.lock();
        waiters.drain(..).for_each(|waiter| self.wake(&waiter));
    }

    fn wake(&self, waiter: &AtomicBool) {
        waiter.store(true, Ordering::Relaxed);
        self.told.notify_all();
    }

    /// Queues up, and only then gives the lock back: no notice in between is lost.
    fn enter<'a, T>(&self, guard: MutexGuard<'a, T>) -> (&'a Mutex<T>, Arc<AtomicBool>) {
        let (lock, ticket) = (guard.lock, Arc::new(AtomicBool::new(false)));
        self.waiters.lock().push(ticket.clone());
        drop(guard);
        (lock, ticket)
    }
}

impl Default for Condvar {
    #[track_caller]
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").field("name", &self.name).finish_non_exhaustive()
    }
}
