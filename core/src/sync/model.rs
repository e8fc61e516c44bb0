//! What loom's and shuttle's halves share: what is leaked on purpose, a clock that stands still, a value that is set
//! once, whether the system has barriers, how slots are held, and a condition variable.

use super::MutexGuard;
#[cfg(mc_loom)]
use ::loom as checker;
#[cfg(mc_shuttle)]
use ::shuttle as checker;

/// As the native one, but [`take_back`] ends it: a checker asks at the end of an execution for what was not dropped.
pub fn leak<T: 'static>(value: T) {
    LEAKED.with(|leaked| leaked.borrow_mut().push(Box::new(value)));
}

/// Drops what was leaked since the last call, which the end of an execution makes.
pub fn take_back() {
    loop {
        let leaked = LEAKED.with(|leaked| std::mem::take(&mut *leaked.borrow_mut()));
        if leaked.is_empty() {
            return;
        }
        // May leak in its turn.
        drop(leaked);
    }
}

std::thread_local! {
    // std's on purpose: one thread of the system runs all of the checker's, and this belongs to the execution as a whole.
    static LEAKED: std::cell::RefCell<Vec<Box<dyn std::any::Any>>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Time stands still in models: a deadline of zero has passed, any other never comes, and no tick is due.
pub mod clock {
    pub use std::time::Instant;

    /// The moment at which everything happens.
    pub fn now() -> Instant {
        static MOMENT: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *MOMENT.get_or_init(Instant::now)
    }

    /// The moment `time` from now; in a century at the latest.
    pub fn after(time: std::time::Duration) -> Instant {
        now() + time.min(std::time::Duration::from_secs(100 * 365 * 24 * 3600))
    }
}

/// Work that another thread does.
#[derive(Debug)]
pub struct Aside(std::cell::RefCell<Option<super::thread::JoinHandle<()>>>);

impl Aside {
    /// Waits for its end, since no time passes: whether that was no panic.
    pub fn has_ended_by(&self, _end: clock::Instant) -> bool {
        self.0.take().is_none_or(|thread| thread.join().is_ok())
    }
}

/// Has `body` run on a thread of its own.
pub fn aside(name: &str, body: impl FnOnce() + Send + 'static) -> Option<Aside> {
    super::thread::spawn(name, body).map(|thread| Aside(std::cell::RefCell::new(Some(thread))))
}

/// As std's: looking is a scheduling point, and what is seen may be stale.
#[derive(Debug)]
pub struct OnceLock<T> {
    is_set: super::atomic::AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self { is_set: super::atomic::AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }
}

impl<T> OnceLock<T> {
    /// The value, if it was set.
    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        if self.is_set.load(super::atomic::Ordering::Acquire) { self.value.get() } else { None }
    }

    /// The value, set by `init` if it was not.
    #[track_caller]
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let is_set = self.get().is_some();
        let value = self.value.get_or_init(init);
        if !is_set {
            self.is_set.store(true, super::atomic::Ordering::Release);
        }
        value
    }
}

// A std atomic on purpose: no checker sees it.
static BARRIERS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);

/// Whether the system has barriers from now on. Without, a [`Biased`](super::Biased) mutex is biased to no thread.
pub fn have_barriers(yes: bool) {
    BARRIERS.store(yes, std::sync::atomic::Ordering::Relaxed);
}

/// What [`have_barriers`] said; yes before.
pub(super) fn are_there_barriers() -> bool {
    BARRIERS.load(std::sync::atomic::Ordering::Relaxed)
}

/// How a [`ThreadSlot`](super::biased::ThreadSlot) is held.
#[derive(Clone, Debug)]
pub struct SlotRef {
    slot: std::sync::Arc<super::biased::ThreadSlot>,
    // Not the address: the allocator may give it out again, in one execution and not in the next.
    identity: usize,
}

impl SlotRef {
    pub(super) fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1);
        let identity = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { slot: std::sync::Arc::new(super::biased::ThreadSlot::new()), identity }
    }

    /// What no other slot has. Never zero.
    pub fn identity(&self) -> usize {
        self.identity
    }
}

impl std::ops::Deref for SlotRef {
    type Target = super::biased::ThreadSlot;

    fn deref(&self) -> &Self::Target {
        &self.slot
    }
}

/// The slot of the running thread. Each has its own: none is handed on.
pub mod slot {
    use super::SlotRef;

    super::super::thread_local! {
        static SLOT: SlotRef = SlotRef::new();
    }

    /// The running thread's.
    pub fn current() -> Option<SlotRef> {
        SLOT.try_with(SlotRef::clone).ok()
    }

    /// The running thread's.
    pub fn take() -> Option<SlotRef> {
        current()
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("a guard is empty only while its thread waits")
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("a guard is empty only while its thread waits")
    }
}

/// A condition variable with parking_lot's signature.
#[derive(Debug, Default)]
pub struct Condvar(checker::sync::Condvar);

impl Condvar {
    /// A new condition variable.
    pub fn new() -> Self {
        Self(checker::sync::Condvar::new())
    }

    /// Lets go of the lock, waits for a notification, takes the lock again.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.inner.take().expect("a guard is empty only while its thread waits");
        guard.inner = Some(self.0.wait(held).unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    /// Wakes one waiter.
    #[track_caller]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
