//! Model builds for shuttle: its types in the shape of the native half.
//!
//! Shuttle is sequentially consistent whatever the orderings say, and has no reduction that could hide an order: it is
//! the oracle for loom's probes, and reaches sizes that loom does not. It has no leak or race detection.

pub use super::model::{Condvar, OnceLock, SlotRef, clock, have_barriers, leak, slot, take_back};
pub use ::shuttle::sync::Arc;
pub use ::shuttle::thread_local;

pub mod coop {
    //! Shuttle is the scheduler. All its threads run on one of the system's, so each has a number of its own.
    pub use super::super::no_coop::{Scheduler, install, yield_blocked};

    /// The number of the running thread.
    pub fn thread_id() -> Option<u64> {
        let thread = ::shuttle::current::get_current_task()?;
        u64::try_from(usize::from(thread)).ok()
    }
}

pub mod atomic {
    //! Shuttle's atomics; each operation is a scheduling point.
    pub use ::shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

/// A mutex without poisoning.
#[derive(Debug)]
pub struct Mutex<T>(::shuttle::sync::Mutex<T>, usize);

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Proof that a [`Mutex`] is held. The option is empty only inside [`Condvar::wait`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    pub(super) inner: Option<::shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A new, free mutex.
    pub fn new(value: T) -> Self {
        static LOCKS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        Self(::shuttle::sync::Mutex::new(value), LOCKS.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }

    /// Its place among all locks: how many were made before it, so that a schedule can be replayed.
    pub fn place(&self) -> usize {
        self.1
    }

    /// Takes the lock, waiting for whoever holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { inner: Some(self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)) }
    }

    /// Takes the lock; but if it is held and `refuse` says so, does not wait for it.
    pub fn lock_or(&self, refuse: impl FnOnce() -> bool) -> Option<MutexGuard<'_, T>> {
        // Asked first, which costs no schedule: whether to refuse depends on the calling thread alone.
        if refuse() { self.try_lock() } else { Some(self.lock()) }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard { inner: Some(guard) }),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(MutexGuard { inner: Some(poisoned.into_inner()) }),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// The value, without locking: `&mut self` proves that nobody holds it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A shared pointer that is replaced as a whole. A lock is as strong as anything under sequential consistency.
#[derive(Debug)]
pub struct ArcCell<T>(Mutex<std::sync::Arc<T>>);

impl<T> ArcCell<T> {
    /// A cell that holds `value`.
    pub fn new(value: std::sync::Arc<T>) -> Self {
        Self(Mutex::new(value))
    }

    /// The value of some recent store.
    pub fn load(&self) -> std::sync::Arc<T> {
        self.0.lock().clone()
    }

    /// Replaces the value.
    pub fn store(&self, value: std::sync::Arc<T>) {
        let before = std::mem::replace(&mut *self.0.lock(), value);
        drop(before);
    }
}

/// What only the holder of some lock touches. Shuttle sees no races, so this looks out for a second holder.
#[derive(Debug)]
pub struct Guarded<T> {
    value: std::cell::UnsafeCell<T>,
    // A std atomic on purpose: no scheduling point.
    held: std::sync::atomic::AtomicBool,
}

// SAFETY: O4. Only its one holder reaches the value; that there is but one is checked.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// The value, for its one holder.
#[derive(Debug)]
pub struct Inside<'a, T> {
    value: &'a mut T,
    held: &'a std::sync::atomic::AtomicBool,
}

impl<T> Guarded<T> {
    /// A cell with `value`.
    pub const fn new(value: T) -> Self {
        Self { value: std::cell::UnsafeCell::new(value), held: std::sync::atomic::AtomicBool::new(false) }
    }

    /// The value.
    ///
    /// # Safety
    /// While what this gives lives, nobody else calls it.
    ///
    /// # Panics
    /// When somebody does.
    pub unsafe fn inside(&self) -> Inside<'_, T> {
        let before = self.held.swap(true, std::sync::atomic::Ordering::Relaxed);
        assert!(!before, "O4: two threads are inside of one gate");
        // SAFETY: the caller's promise.
        Inside { value: unsafe { &mut *self.value.get() }, held: &self.held }
    }
}

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        self.held.store(false, std::sync::atomic::Ordering::Relaxed);
    }
}

impl<T> std::ops::Deref for Inside<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> std::ops::DerefMut for Inside<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

/// The two barriers of a [`Biased`](super::Biased) mutex: under sequential consistency there is nothing to order.
#[derive(Debug, Default)]
pub struct Barrier;

impl Barrier {
    /// A pair.
    pub const fn new() -> Self {
        Self
    }

    /// The bias owner's.
    pub fn owner(&self) {}

    /// The revoker's.
    pub fn revoker(&self) {}

    /// Whether there is one: as the model says.
    pub fn is_there(&self) -> bool {
        super::model::are_there_barriers()
    }
}

/// Threads, as far as the core needs them.
pub mod thread {
    pub use super::super::model::{Aside, aside};
    pub use ::shuttle::thread::{Thread, current, park, park_timeout};

    /// A thread that can be waited for.
    #[derive(Debug)]
    pub struct JoinHandle<T>(::shuttle::thread::JoinHandle<T>);

    impl<T> JoinHandle<T> {
        /// Its handle.
        pub fn thread(&self) -> &Thread {
            self.0.thread()
        }

        /// Always: no time passes while [`join`](Self::join) waits.
        pub fn is_finished(&self) -> bool {
            true
        }

        /// Waits for its end.
        ///
        /// # Errors
        /// What it panicked with.
        pub fn join(self) -> std::thread::Result<T> {
            self.0.join()
        }
    }

    /// Starts a thread.
    pub fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
        Some(JoinHandle(::shuttle::thread::spawn(body)))
    }

    /// Lets others go on for a moment, where there is nothing to wait for but time.
    pub fn pause() {
        ::shuttle::thread::yield_now();
    }

    /// Lets others go on.
    pub fn pause_brief(_tries: &mut u32) {
        ::shuttle::thread::yield_now();
    }
}
