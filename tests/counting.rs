//! What a [`Tap`](crate::tap::Tap) has seen: how often each driver call was made, and, unless it is told to keep counts
//! alone, each call with the thread that made it: the system's, or a scheduler's that runs several on one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;

use tenure::driver::Call;
use tenure::sync::coop;

/// More than there are calls.
const CALLS_MAX: usize = 64;

/// A thread of the system, and of the scheduler that runs there.
type Thread = (ThreadId, Option<u64>);

/// A count for each call.
#[derive(Debug)]
struct Counts([AtomicUsize; CALLS_MAX]);

impl Default for Counts {
    fn default() -> Self {
        Self([const { AtomicUsize::new(0) }; CALLS_MAX])
    }
}

impl Counts {
    fn add(&self, call: Call) {
        // Release: whoever reads the count sees what came before it.
        self.0[call as usize].fetch_add(1, Ordering::Release);
    }

    fn get(&self, call: Call) -> usize {
        // Acquire: the same as for `add`.
        self.0[call as usize].load(Ordering::Acquire)
    }
}

/// The calls so far, in the order in which they began.
#[derive(Debug, Default)]
pub struct Log {
    calls: Mutex<Vec<(Thread, Call)>>,
    counts_only: AtomicBool,
    begun: Counts,
    returned: Counts,
    failed: AtomicUsize,
}

impl Log {
    /// From now on counts alone are kept: for runs of millions of calls.
    pub fn keep_counts_only(&self) {
        // Relaxed: calls under way may be kept or not.
        self.counts_only.store(true, Ordering::Relaxed);
    }

    /// Notes a call of the running thread.
    pub fn note(&self, call: Call) {
        self.begun.add(call);
        // Relaxed: as where it is set.
        if !self.counts_only.load(Ordering::Relaxed) {
            self.lock().push((this_thread(), call));
        }
    }

    /// Notes that a call has come back, and whether it failed.
    pub fn note_return(&self, call: Call, is_failed: bool) {
        // Relaxed: ordered by the count that follows.
        self.failed.fetch_add(usize::from(is_failed), Ordering::Relaxed);
        self.returned.add(call);
    }

    /// How many calls of any kind have failed.
    pub fn failed(&self) -> usize {
        // Relaxed: read once the calls that count have come back.
        self.failed.load(Ordering::Relaxed)
    }

    /// How many calls of this kind have come back. What another thread's call did is there only then: `count` sees a
    /// call that is still to be made.
    pub fn returned(&self, call: Call) -> usize {
        self.returned.get(call)
    }

    /// A place in the log, to look at what comes after it.
    pub fn mark(&self) -> usize {
        self.lock().len()
    }

    /// The calls of all threads since `mark`.
    pub fn since(&self, mark: usize) -> Vec<Call> {
        self.lock()[mark..].iter().map(|(_, call)| *call).collect()
    }

    /// The calls of the running thread since `mark`.
    pub fn mine_since(&self, mark: usize) -> Vec<Call> {
        let me = this_thread();
        self.lock()[mark..].iter().filter(|(thread, _)| *thread == me).map(|(_, call)| *call).collect()
    }

    /// How many calls of this kind a thread of the scheduler has begun; `None`: those that no scheduler runs.
    pub fn count_of(&self, thread: Option<u64>, call: Call) -> usize {
        self.lock().iter().filter(|((_, other), made)| (*other, *made) == (thread, call)).count()
    }

    /// How many calls of this kind have begun, by anybody.
    pub fn count(&self, call: Call) -> usize {
        self.begun.get(call)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Thread, Call)>> {
        self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn this_thread() -> Thread {
    (std::thread::current().id(), coop::thread_id())
}
