//! Production: parking_lot, std and arc-swap, and the hook for a cooperative scheduler.

pub use std::sync::{Arc, OnceLock};
pub use std::thread_local;

/// The atomics of the core; std's.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

/// A mutex without poisoning. Lock order is written down where each one stands.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

/// Proof that a [`Mutex`] is held.
pub type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// A new, free mutex.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Takes the lock, waiting for whoever holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        count_lock();
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    /// Takes the lock; but if it is held and `refuse` says so, does not wait for it.
    #[inline]
    pub fn lock_or(&self, refuse: impl FnOnce() -> bool) -> Option<MutexGuard<'_, T>> {
        count_lock();
        match self.0.try_lock() {
            Some(guard) => Some(guard),
            None if refuse() => None,
            None => Some(self.lock_contended()),
        }
    }

    /// Its place among all locks, by which several are taken in one order: its address.
    pub fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        count_lock();
        self.0.try_lock()
    }

    /// The value, without locking: `&mut self` proves that nobody holds it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, T> {
        while coop::yield_blocked() {
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
        self.0.lock()
    }
}

#[cfg(debug_assertions)]
thread_local! {
    static LOCKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Debug builds count, so that a test can say what a path takes; release builds do nothing here.
#[inline]
fn count_lock() {
    #[cfg(debug_assertions)]
    let _gone = LOCKS.try_with(|locks| locks.set(locks.get() + 1));
}

/// How many locks of this facade the calling thread has tried or taken since it began.
#[cfg(debug_assertions)]
pub fn locks_taken() -> u64 {
    LOCKS.get()
}

/// A condition variable with parking_lot's signature. Callers loop: wake-ups may be spurious.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A new condition variable.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Lets go of the lock, waits for a notification, takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if coop::thread_id().is_none() {
            // Without letting go first: a notification between the caller's look and the wait would be lost.
            return self.0.wait(guard);
        }
        let mutex = parking_lot::MutexGuard::mutex(guard);
        parking_lot::MutexGuard::unlocked(guard, || {
            coop::yield_blocked();
            // The lock is taken again without asking the scheduler: not while another of its threads holds it.
            while mutex.is_locked() {
                coop::yield_blocked();
            }
        });
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A shared pointer that is read without a lock and replaced as a whole: arc-swap.
///
/// `load` acquires what the storer of the value it returns had done before; nothing more is promised.
#[derive(Debug)]
pub struct ArcCell<T>(arc_swap::ArcSwap<T>);

impl<T> ArcCell<T> {
    /// A cell that holds `value`.
    pub fn new(value: std::sync::Arc<T>) -> Self {
        Self(arc_swap::ArcSwap::new(value))
    }

    /// The value of some recent store. Borrowed from the cell rather than counted, so this is no read-modify-write.
    #[inline]
    pub fn load(&self) -> impl std::ops::Deref<Target = std::sync::Arc<T>> + '_ {
        self.0.load()
    }

    /// Replaces the value.
    pub fn store(&self, value: std::sync::Arc<T>) {
        self.0.store(value);
    }
}

/// What only the holder of some lock touches.
#[derive(Debug, Default)]
pub struct Guarded<T>(std::cell::UnsafeCell<T>);

// SAFETY: O4. Only its one holder reaches the value, so it is as if it were sent from holder to holder.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// The value, for its one holder. Not a `&mut`: a guard that is handed to `drop` would promise it to the end of that call,
/// when the next holder is inside already.
#[derive(Debug)]
pub struct Inside<'a, T>(&'a std::cell::UnsafeCell<T>);

impl<T> Guarded<T> {
    /// A cell with `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// The value.
    ///
    /// # Safety
    /// While what this gives lives, nobody else calls it.
    #[inline]
    pub unsafe fn inside(&self) -> Inside<'_, T> {
        Inside(&self.0)
    }
}

impl<T> std::ops::Deref for Inside<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: O4. `inside` was promised that there is one of these at a time, and this one is borrowed.
        unsafe { &*self.0.get() }
    }
}

impl<T> std::ops::DerefMut for Inside<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: O4. As in `deref`, and it is borrowed for writing.
        unsafe { &mut *self.0.get() }
    }
}

/// The two unlike barriers of a [`Biased`](super::Biased) mutex. Of one by the bias owner and one by a revoker, one
/// comes first: what was written before it is seen after the other.
///
/// The bias owner's keeps the compiler from moving accesses over it, and no more. The revoker's has the system run a
/// full barrier on every processor that runs a thread of this process: Linux's `membarrier`, in its expedited form.
#[derive(Debug, Default)]
pub struct Barrier;

impl Barrier {
    /// A pair.
    pub const fn new() -> Self {
        Self
    }

    /// The bias owner's.
    #[inline]
    pub fn owner(&self) {
        membarrier::other_side();
    }

    /// The revoker's. Should the system refuse what it has granted, the process ends: no thread could go on, or unwind, and
    /// know that it is alone.
    #[cold]
    pub fn revoker(&self) {
        if !membarrier::pass() {
            std::process::abort();
        }
    }

    /// Whether the system has it.
    pub fn is_there(&self) -> bool {
        membarrier::is_there()
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod membarrier {
    use std::sync::OnceLock;

    fn call(command: libc::c_int) -> bool {
        // SAFETY: R3. The call takes three numbers, touches no memory of ours, and waits for no thread but only for
        // processors to pass a barrier.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Asks once for the process.
    pub fn is_there() -> bool {
        static THERE: OnceLock<bool> = OnceLock::new();
        *THERE.get_or_init(|| call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && pass())
    }

    pub fn pass() -> bool {
        call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    #[inline]
    pub fn other_side() {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// Miri has none. There both sides pass a full fence of their own, which is what the pair stands for: so the rest of the
/// protocol is looked at.
#[cfg(miri)]
mod membarrier {
    use std::sync::atomic::{Ordering, fence};

    pub fn is_there() -> bool {
        true
    }

    pub fn pass() -> bool {
        other_side();
        true
    }

    pub fn other_side() {
        fence(Ordering::SeqCst);
    }
}

#[cfg(not(any(target_os = "linux", miri)))]
mod membarrier {
    pub fn is_there() -> bool {
        false
    }

    pub fn pass() -> bool {
        false
    }

    pub fn other_side() {}
}

/// How a [`ThreadSlot`](super::biased::ThreadSlot) is held: slots are few, and never freed.
#[derive(Clone, Copy, Debug)]
pub struct SlotRef(&'static super::biased::ThreadSlot);

impl SlotRef {
    /// What no other slot has. Never zero.
    #[inline]
    pub fn identity(&self) -> usize {
        std::ptr::from_ref(self.0).addr()
    }
}

impl std::ops::Deref for SlotRef {
    type Target = super::biased::ThreadSlot;

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.0
    }
}

/// The slot of the running thread. Slots of threads that have ended are handed on: who gets one comes after all that
/// its last thread did, and inherits its biases.
pub mod slot {
    use std::cell::Cell;

    use super::super::biased::ThreadSlot;
    use super::{Mutex, SlotRef};

    static FREE: Mutex<Vec<SlotRef>> = Mutex::new(Vec::new());

    thread_local! {
        static SLOT: Cell<Option<SlotRef>> = const { Cell::new(None) };
        static LEASE: Lease = const { Lease };
    }

    /// Gives the slot back when its thread ends.
    struct Lease;

    impl Drop for Lease {
        fn drop(&mut self) {
            if let Some(slot) = SLOT.take() {
                FREE.lock().push(slot);
            }
        }
    }

    /// The running thread's, if it has one.
    #[inline]
    pub fn current() -> Option<SlotRef> {
        SLOT.get()
    }

    /// The running thread's; none once the thread is ending.
    #[cold]
    pub fn take() -> Option<SlotRef> {
        if let Some(slot) = current() {
            return Some(slot);
        }
        LEASE.try_with(|_| {}).ok()?;
        let free = FREE.lock().pop();
        let slot = free.unwrap_or_else(|| SlotRef(Box::leak(Box::new(ThreadSlot::new()))));
        SLOT.set(Some(slot));
        Some(slot)
    }
}

/// Threads, as far as the core needs them.
pub mod thread {
    pub use std::thread::{JoinHandle, Thread, current, park, park_timeout};

    /// Starts a thread; `None` where there is none to be had.
    pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(body).ok()
    }

    /// Work that another thread does, which is waited for up to a moment and then left to itself.
    #[derive(Debug)]
    pub struct Aside(std::sync::Arc<super::aside::Outcome>);

    impl Aside {
        /// Waits until the work has ended or `end` has come; whether it has ended, and not by a panic.
        pub fn has_ended_by(&self, end: std::time::Instant) -> bool {
            self.0.by(end)
        }
    }

    /// Has `body` run on a thread of its own: one that has lately done such work and waits for more, or a new one of this
    /// name. `None` where there is none to be had.
    pub fn aside(name: &str, body: impl FnOnce() + Send + 'static) -> Option<Aside> {
        super::aside::start(name, Box::new(body)).map(Aside)
    }

    /// Waits a little for what another thread is about to do, longer the more often it was tried.
    pub fn pause_brief(tries: &mut u32) {
        *tries += 1;
        match *tries {
            0..64 if !super::coop::yield_blocked() => std::hint::spin_loop(),
            64..128 if !super::coop::yield_blocked() => std::thread::yield_now(),
            128.. => pause(),
            _ => {}
        }
    }

    /// Lets others go on for a moment, where there is nothing to wait for but time.
    pub fn pause() {
        if !super::coop::yield_blocked() {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

/// Threads for work that may never return. To start a thread and see its end takes some ten times as long as to wake one,
/// so one that is done waits a moment for more.
mod aside {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    use crate::sync::fork;

    /// How many threads wait, and for how long.
    const IDLE_MAX: usize = 2;
    const IDLE_FOR: Duration = Duration::from_millis(100);

    // The standard library's locks, on purpose: parking_lot lists who waits by address in a table of the process. In a forked child
    // that table still has its parent's threads, which a lock at an address of theirs would wake.

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that wait, with the process that they are in: a forked child has none of its parent's. Only ever tried by who
    /// asks for work to be done: a child may find it locked for good.
    static IDLE: Mutex<Vec<(u32, Arc<Desk>)>> = Mutex::new(Vec::new());

    /// Whether the work has ended; `false`, by a panic. Not std's channels, which wait by the park token of the user's thread.
    #[derive(Debug, Default)]
    pub struct Outcome {
        ended: Mutex<Option<bool>>,
        changed: Condvar,
    }

    impl Outcome {
        /// Waits for it until then.
        pub fn by(&self, end: Instant) -> bool {
            let left = end.saturating_duration_since(Instant::now());
            let waited = self.changed.wait_timeout_while(lock(&self.ended), left, |ended| ended.is_none());
            *waited.unwrap_or_else(PoisonError::into_inner).0 == Some(true)
        }

        fn tell(&self, outcome: bool) {
            *lock(&self.ended) = Some(outcome);
            self.changed.notify_all();
        }
    }

    struct Job {
        body: Box<dyn FnOnce() + Send>,
        outcome: Arc<Outcome>,
    }

    /// Where a thread finds its next work.
    #[derive(Default)]
    struct Desk {
        job: Mutex<Option<Job>>,
        changed: Condvar,
    }

    pub fn start(name: &str, body: Box<dyn FnOnce() + Send>) -> Option<Arc<Outcome>> {
        let outcome = Arc::new(Outcome::default());
        let job = Job { body, outcome: outcome.clone() };
        match take() {
            Some(desk) => {
                *lock(&desk.job) = Some(job);
                desk.changed.notify_one();
            }
            None => drop(super::thread::spawn(name, move || serve(job))?),
        }
        Some(outcome)
    }

    fn take() -> Option<Arc<Desk>> {
        let mut idle = IDLE.try_lock().ok()?;
        idle.retain(|(process, _)| *process == fork::count());
        idle.pop().map(|(_, desk)| desk)
    }

    fn serve(mut job: Job) {
        let desk = Arc::new(Desk::default());
        loop {
            let outcome = catch_unwind(AssertUnwindSafe(job.body));
            // Listed before it is told: who asks for more next finds this thread.
            let stays = is_listed(&desk);
            job.outcome.tell(outcome.map_err(std::mem::forget).is_ok());
            match if stays { desk.next() } else { None } {
                Some(next) => job = next,
                None => return,
            }
        }
    }

    fn is_listed(desk: &Arc<Desk>) -> bool {
        // Under Miri every thread is to end before the process does.
        let idle = IDLE.try_lock().ok().filter(|idle| idle.len() < IDLE_MAX && !cfg!(miri));
        idle.map(|mut idle| idle.push((fork::count(), desk.clone()))).is_some()
    }

    impl Desk {
        /// The next work; `None` when none has come for a while.
        fn next(self: &Arc<Self>) -> Option<Job> {
            let mut job = lock(&self.job);
            loop {
                let waited = self.changed.wait_timeout_while(job, IDLE_FOR, |job| job.is_none());
                job = waited.unwrap_or_else(PoisonError::into_inner).0;
                // Who has taken the desk off the list brings work.
                if job.is_some() || self.is_unlisted() {
                    return job.take();
                }
            }
        }

        fn is_unlisted(self: &Arc<Self>) -> bool {
            let mut idle = lock(&IDLE);
            let before = idle.len();
            idle.retain(|(_, desk)| !Arc::ptr_eq(desk, self));
            idle.len() < before
        }
    }
}

/// Time, as far as the core reads it.
pub mod clock {
    pub use std::time::Instant;

    /// This moment.
    pub fn now() -> Instant {
        Instant::now()
    }

    /// The moment `time` from now; in a century at the latest.
    pub fn after(time: std::time::Duration) -> Instant {
        let century = std::time::Duration::from_secs(100 * 365 * 24 * 3600);
        now() + time.min(century)
    }
}

/// Keeps a value forever: what the device may still use, and nobody will ever know that it has done with.
pub fn leak<T: 'static>(value: T) {
    std::mem::forget(value);
}

/// The hook for a scheduler that runs threads one at a time.
///
/// Such a scheduler holds other threads of the program still while one runs. A thread that then waits for a lock held
/// by a still one would wait forever; so it must hand its turn on instead.
pub mod coop {
    use std::cell::RefCell;
    use std::rc::Rc;

    /// What a cooperative scheduler does for a thread that runs under it.
    pub trait Scheduler {
        /// The running thread cannot go on before another one has: let others run, then return.
        fn yield_blocked(&self);
        /// The identity of the running thread (several may share one thread of the system).
        fn thread_id(&self) -> u64;
    }

    thread_local! {
        static SCHEDULER: RefCell<Option<Rc<dyn Scheduler>>> = const { RefCell::new(None) };
    }

    /// Puts the calling thread under `scheduler`, or takes it out again with `None`; returns the one before.
    pub fn install(scheduler: Option<Rc<dyn Scheduler>>) -> Option<Rc<dyn Scheduler>> {
        SCHEDULER.with(|current| current.replace(scheduler))
    }

    /// Hands the turn on where a scheduler runs this thread; `false`, at once, where none does.
    pub fn yield_blocked() -> bool {
        match scheduler() {
            Some(scheduler) => {
                scheduler.yield_blocked();
                true
            }
            None => false,
        }
    }

    /// The scheduler's name for the running thread, where one runs it.
    pub fn thread_id() -> Option<u64> {
        scheduler().map(|scheduler| scheduler.thread_id())
    }

    fn scheduler() -> Option<Rc<dyn Scheduler>> {
        SCHEDULER.try_with(|current| current.borrow().clone()).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Condvar, Mutex};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const TURNS: u64 = 200_000;

    /// Takes every other turn, each after the other's.
    fn alternate(turns: &(Mutex<u64>, Condvar), mine: u64) {
        let mut turn = turns.0.lock();
        while *turn < TURNS {
            if *turn % 2 == mine {
                *turn += 1;
                turns.1.notify_all();
            } else {
                turns.1.wait(&mut turn);
            }
        }
        turns.1.notify_all();
    }

    #[test]
    fn r5_work_aside_is_waited_for_until_it_ends_or_time_is_up() {
        let after = |seconds| std::time::Instant::now() + Duration::from_secs(seconds);
        let start = |body: Box<dyn FnOnce() + Send>| super::thread::aside("aside", body).expect("a thread");
        for _ in 0..100 {
            assert!(start(Box::new(|| {})).has_ended_by(after(120)), "it ends at once");
        }
        let (release, held) = channel::<()>();
        let stuck = start(Box::new(move || assert!(held.recv().is_err(), "nothing is sent")));
        assert!(!stuck.has_ended_by(after(0)), "it is left to itself");
        assert!(start(Box::new(|| {})).has_ended_by(after(120)), "what is stuck holds up no other work");
        drop(release);
        assert!(stuck.has_ended_by(after(120)), "it can be asked again");
    }

    #[test]
    fn r5_work_aside_that_panics_says_so_and_spoils_nothing() {
        let after = std::time::Instant::now() + Duration::from_secs(120);
        let body = || std::panic::resume_unwind(Box::new("planned"));
        assert!(!super::thread::aside("aside", body).expect("a thread").has_ended_by(after), "it panicked");
        assert!(super::thread::aside("aside", || {}).expect("a thread").has_ended_by(after));
    }

    #[test]
    fn no_notification_is_lost_between_the_look_and_the_wait() {
        let turns = Arc::new((Mutex::new(0), Condvar::new()));
        let (done, ended) = channel();
        for mine in 0..2 {
            let (turns, done) = (turns.clone(), done.clone());
            std::thread::spawn(move || {
                alternate(&turns, mine);
                done.send(()).expect("the test waits for both");
            });
        }
        for _ in 0..2 {
            let both = ended.recv_timeout(Duration::from_secs(120));
            assert!(both.is_ok(), "a thread waits for a turn that it was told of: {} of {TURNS}", turns.0.lock());
        }
    }
}
