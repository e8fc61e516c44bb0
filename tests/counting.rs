//! What a [`Tap`](crate::tap::Tap) has seen: each driver call with the thread that made it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread::ThreadId;

use tenure::driver::Call;

/// The calls so far, in the order in which they began.
#[derive(Debug, Default)]
pub struct Log {
    calls: Mutex<Vec<(ThreadId, Call)>>,
    returned: Mutex<BTreeMap<Call, usize>>,
}

impl Log {
    /// Notes a call of the running thread.
    pub fn note(&self, call: Call) {
        self.lock().push((std::thread::current().id(), call));
    }

    /// Notes that a call has come back.
    pub fn note_return(&self, call: Call) {
        *self.returns().entry(call).or_default() += 1;
    }

    /// How many calls of this kind have come back. What another thread's call did is there only then: `count` sees a call that
    /// is still to be made.
    pub fn returned(&self, call: Call) -> usize {
        self.returns().get(&call).copied().unwrap_or(0)
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
        let me = std::thread::current().id();
        self.lock()[mark..].iter().filter(|(thread, _)| *thread == me).map(|(_, call)| *call).collect()
    }

    /// How many calls of this kind have begun, by anybody.
    pub fn count(&self, call: Call) -> usize {
        self.lock().iter().filter(|(_, seen)| *seen == call).count()
    }

    fn returns(&self) -> std::sync::MutexGuard<'_, BTreeMap<Call, usize>> {
        self.returned.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(ThreadId, Call)>> {
        self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
