//! Model builds for loom: its types in the shape of the native half.
//!
//! # Probes
//! Loom 0.7 keeps only the last access of an atomic for its partial-order reduction. A store is compared with that one
//! alone, so a load (the storing thread's own, even) hides the earlier loads of other threads, and loom reports
//! "complete" without having tried the store before them (tokio-rs/loom #166, #392). "Load, then lock, load again and
//! store" is the shape of most of our code. So each atomic has a companion for each thread: a load touches the
//! companion of its own thread, a write those of all other threads that have loaded. A touch is a relaxed
//! read-modify-write, which conflicts and orders nothing. Two loads still do not conflict.
//!
//! `verification` compares the outcomes with those of a checker that has no reduction.
//!
//! Loom has no const constructors, no `Weak`, no timeouts and no spurious wake-ups.

pub use super::model::{Condvar, OnceLock, SlotRef, clock, have_barriers, leak, slot, take_back};
pub use super::no_coop as coop;
pub use ::loom::sync::Arc;
pub use ::loom::thread_local;

pub mod atomic {
    //! Probed atomics.
    use ::loom::sync::atomic as inner;
    pub use ::std::sync::atomic::Ordering;

    /// Makes loads and writes of different threads visible to loom's reduction as conflicts.
    #[derive(Debug)]
    pub(super) struct Probe {
        companions: [inner::AtomicUsize; ::loom::MAX_THREADS],
        // Which threads have loaded. A std atomic on purpose: loom must not see it.
        loaded: ::std::sync::atomic::AtomicUsize,
    }

    impl Probe {
        pub(super) fn new() -> Self {
            Self {
                companions: ::std::array::from_fn(|_| inner::AtomicUsize::new(0)),
                loaded: ::std::sync::atomic::AtomicUsize::new(0),
            }
        }

        /// A load comes.
        pub(super) fn before_load(&self) {
            let thread = this_thread();
            self.loaded.fetch_or(1 << thread, Ordering::Relaxed);
            self.companions[thread].fetch_add(0, Ordering::Relaxed);
        }

        /// A store or a read-modify-write comes.
        pub(super) fn before_write(&self) {
            let (thread, loaded) = (this_thread(), self.loaded.load(Ordering::Relaxed));
            for (other, companion) in self.companions.iter().enumerate() {
                if other != thread && loaded & (1 << other) != 0 {
                    companion.fetch_add(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// The number of the running thread in this execution: the last part of its id, which loom shows to a hasher only.
    fn this_thread() -> usize {
        use ::std::hash::{Hash, Hasher};
        struct Last(usize);
        impl Hasher for Last {
            fn write(&mut self, _bytes: &[u8]) {}
            fn write_usize(&mut self, number: usize) {
                self.0 = number;
            }
            fn finish(&self) -> u64 {
                self.0 as u64
            }
        }
        let mut last = Last(0);
        ::loom::thread::current().id().hash(&mut last);
        last.0
    }

    macro_rules! probed {
        ($name:ident, $value:ty, [$($fetch:ident),*]) => {
            /// An atomic whose every operation is visible to loom's reduction.
            #[derive(Debug)]
            pub struct $name {
                probe: Probe,
                value: inner::$name,
            }

            impl $name {
                /// A new atomic.
                pub fn new(value: $value) -> Self {
                    Self { probe: Probe::new(), value: inner::$name::new(value) }
                }

                /// As std.
                #[track_caller]
                pub fn load(&self, order: Ordering) -> $value {
                    self.probe.before_load();
                    self.value.load(order)
                }

                /// As std.
                #[track_caller]
                pub fn store(&self, value: $value, order: Ordering) {
                    self.probe.before_write();
                    self.value.store(value, order);
                }

                /// As std.
                #[track_caller]
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.probe.before_write();
                    self.value.swap(value, order)
                }

                /// As std.
                ///
                /// # Errors
                /// The value found, where it is not `current`.
                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.probe.before_write();
                    self.value.compare_exchange(current, new, success, failure)
                }

                $(
                    /// As std.
                    #[track_caller]
                    pub fn $fetch(&self, value: $value, order: Ordering) -> $value {
                        self.probe.before_write();
                        self.value.$fetch(value, order)
                    }
                )*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::new(<$value>::default())
                }
            }
        };
    }

    probed!(AtomicBool, bool, [fetch_and, fetch_or, fetch_xor]);
    probed!(AtomicU32, u32, [fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min]);
    probed!(AtomicU64, u64, [fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min]);
    probed!(AtomicUsize, usize, [fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min]);
}

/// A mutex without poisoning.
///
/// Loom has no scheduling point at an unlock, so a lock that is held over nothing that loom sees would never be found
/// held by `try_lock`. The end of each guard is therefore a load that conflicts with the read-modify-write of a
/// `try_lock`, and with nothing else.
#[derive(Debug)]
pub struct Mutex<T> {
    place: usize,
    tries: ::loom::sync::atomic::AtomicUsize,
    inner: ::loom::sync::Mutex<T>,
}

/// Proof that a [`Mutex`] is held. The option is empty only inside [`Condvar::wait`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    tries: &'a ::loom::sync::atomic::AtomicUsize,
    pub(super) inner: Option<::loom::sync::MutexGuard<'a, T>>,
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Relaxed: a scheduling point that a `try_lock` of another thread can come before, and no edge.
            self.tries.load(atomic::Ordering::Relaxed);
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Mutex<T> {
    /// A new, free mutex.
    pub fn new(value: T) -> Self {
        static LOCKS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let place = LOCKS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { place, tries: ::loom::sync::atomic::AtomicUsize::new(0), inner: ::loom::sync::Mutex::new(value) }
    }

    /// Its place among all locks: how many were made before it. An address would differ from execution to execution, and no
    /// schedule could be replayed.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Takes the lock, waiting for whoever holds it.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        MutexGuard { tries: &self.tries, inner: Some(held) }
    }

    /// Takes the lock; but if it is held and `refuse` says so, does not wait for it.
    #[track_caller]
    pub fn lock_or(&self, refuse: impl FnOnce() -> bool) -> Option<MutexGuard<'_, T>> {
        // Asked first, which costs no schedule: whether to refuse depends on the calling thread alone.
        if refuse() { self.try_lock() } else { Some(self.lock()) }
    }

    /// Takes the lock if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Relaxed: see `MutexGuard`.
        self.tries.fetch_add(0, atomic::Ordering::Relaxed);
        let held = self.inner.try_lock().ok()?;
        Some(MutexGuard { tries: &self.tries, inner: Some(held) })
    }

    /// The value, without locking: `&mut self` proves that nobody holds it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The specification of arc-swap, as far as the core may rely on it: a load may be stale and acquires only what the
/// storer of the value it returns had done; a store releases and acquires.
///
/// A lock in its place would hide defects: every load of it would be fresh. Values are kept until the cell is dropped,
/// so this says nothing about when arc-swap drops one.
#[derive(Debug)]
pub struct ArcCell<T> {
    probe: atomic::Probe,
    current: ::loom::sync::atomic::AtomicUsize,
    // A std lock on purpose: loom must not see it, or it would add edges of its own.
    kept: std::sync::Mutex<Vec<std::sync::Arc<T>>>,
}

impl<T> ArcCell<T> {
    /// A cell that holds `value`.
    pub fn new(value: std::sync::Arc<T>) -> Self {
        Self {
            probe: atomic::Probe::new(),
            current: ::loom::sync::atomic::AtomicUsize::new(0),
            kept: std::sync::Mutex::new(vec![value]),
        }
    }

    /// The value of some recent store.
    #[track_caller]
    pub fn load(&self) -> std::sync::Arc<T> {
        self.probe.before_load();
        let index = self.current.load(atomic::Ordering::Acquire);
        self.kept()[index].clone()
    }

    /// Replaces the value.
    #[track_caller]
    pub fn store(&self, value: std::sync::Arc<T>) {
        self.probe.before_write();
        let index = {
            let mut kept = self.kept();
            kept.push(value);
            kept.len() - 1
        };
        self.current.swap(index, atomic::Ordering::AcqRel);
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<std::sync::Arc<T>>> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What only the holder of some lock touches: loom finds accesses that are not ordered.
#[derive(Debug)]
pub struct Guarded<T>(::loom::cell::UnsafeCell<T>);

// SAFETY: O4. Only its one holder reaches the value; loom checks it.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// The value, for its one holder.
pub struct Inside<'a, T>(::loom::cell::MutPtr<T>, std::marker::PhantomData<&'a mut T>);

impl<T> Guarded<T> {
    /// A cell with `value`.
    pub fn new(value: T) -> Self {
        Self(::loom::cell::UnsafeCell::new(value))
    }

    /// The value.
    ///
    /// # Safety
    /// While what this gives lives, nobody else calls it.
    #[track_caller]
    pub unsafe fn inside(&self) -> Inside<'_, T> {
        Inside(self.0.get_mut(), std::marker::PhantomData)
    }
}

impl<T> std::fmt::Debug for Inside<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inside")
    }
}

impl<T> std::ops::Deref for Inside<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: O4. `inside` was promised that nobody else has the value.
        unsafe { self.0.deref() }
    }
}

impl<T> std::ops::DerefMut for Inside<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: O4. `inside` was promised that nobody else has the value.
        unsafe { self.0.deref() }
    }
}

/// The two unlike barriers of a [`Biased`](super::Biased) mutex, as C++ proposal P1202 defines asymmetric fences: of a
/// bias owner's and a revoker's, one comes first, and what was written before it is seen after the other. That is
/// what two read-modify-writes of one word do. Of two bias owners' the proposal promises nothing, and here they
/// meet in one word of one mutex only, whose holders follow each other anyway.
///
/// That the system's barrier does this is taken on trust.
#[derive(Debug)]
pub struct Barrier(::loom::sync::atomic::AtomicUsize);

impl Default for Barrier {
    fn default() -> Self {
        Self::new()
    }
}

impl Barrier {
    /// A pair.
    pub fn new() -> Self {
        Self(::loom::sync::atomic::AtomicUsize::new(0))
    }

    /// The bias owner's.
    #[track_caller]
    pub fn owner(&self) {
        self.0.fetch_add(1, atomic::Ordering::AcqRel);
    }

    /// The revoker's.
    #[track_caller]
    pub fn revoker(&self) {
        self.0.fetch_add(1, atomic::Ordering::AcqRel);
    }

    /// Whether there is one: as the model says.
    pub fn is_there(&self) -> bool {
        super::model::are_there_barriers()
    }
}

/// Threads, as far as the core needs them.
///
/// Loom's own `unpark` also wakes a thread that waits for a lock, which then fails, and its token is lost to any other wait. So
/// parking is made of a lock and a condition here. What happened before an `unpark` comes before the end of the `park`, as in std.
pub mod thread {
    pub use super::super::model::{Aside, aside};
    use super::{Arc, Condvar, Mutex};
    use std::cell::RefCell;

    /// A handle of a thread.
    #[derive(Clone, Debug)]
    pub struct Thread(Arc<Parker>);

    #[derive(Debug)]
    struct Parker {
        token: Mutex<bool>,
        changed: Condvar,
    }

    ::loom::thread_local! {
        static CURRENT: RefCell<Option<Thread>> = RefCell::new(None);
    }

    impl Thread {
        fn new() -> Self {
            Self(Arc::new(Parker { token: Mutex::new(false), changed: Condvar::new() }))
        }

        /// Makes the thread's token available, and wakes it.
        pub fn unpark(&self) {
            *self.0.token.lock() = true;
            self.0.changed.notify_one();
        }
    }

    /// The running thread.
    pub fn current() -> Thread {
        CURRENT.with(|current| current.borrow_mut().get_or_insert_with(Thread::new).clone())
    }

    /// Waits for the token, and takes it.
    pub fn park() {
        let Thread(parker) = current();
        let mut token = parker.token.lock();
        while !*token {
            parker.changed.wait(&mut token);
        }
        *token = false;
    }

    /// As [`park`]: no time passes here.
    pub fn park_timeout(_time: std::time::Duration) {
        park();
    }

    /// A thread that can be waited for.
    #[derive(Debug)]
    pub struct JoinHandle<T> {
        thread: Thread,
        handle: ::loom::thread::JoinHandle<T>,
    }

    impl<T> JoinHandle<T> {
        /// Its handle.
        pub fn thread(&self) -> &Thread {
            &self.thread
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
            self.handle.join()
        }
    }

    /// Starts a thread.
    pub fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
        let thread = Thread::new();
        let named = thread.clone();
        let handle = ::loom::thread::spawn(move || {
            CURRENT.with(|current| *current.borrow_mut() = Some(named));
            body();
        });
        Some(JoinHandle { thread, handle })
    }

    /// Lets others go on for a moment, where there is nothing to wait for but time.
    pub fn pause() {
        ::loom::thread::yield_now();
    }

    /// Lets others go on.
    pub fn pause_brief(_tries: &mut u32) {
        ::loom::thread::yield_now();
    }
}
