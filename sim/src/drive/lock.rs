//! What the locks of [`crate::sync`] are to the schedule: who holds one, and what its waiters wait for.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What holds a lock: a host thread of the run, or a thread that no schedule runs.
pub(crate) type Holder = Option<u32>;

/// A lock of the program under test.
#[derive(Debug)]
pub(crate) struct Lock {
    name: String,
    held: Mutex<Held>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    alone: Option<Holder>,
    readers: Vec<Holder>,
}

impl Held {
    fn is_free(&self, alone: bool) -> bool {
        self.alone.is_none() && (!alone || self.readers.is_empty())
    }

    fn take(&mut self, alone: bool, who: Holder) -> bool {
        let takes = self.is_free(alone);
        match (takes, alone) {
            (true, true) => self.alone = Some(who),
            (true, false) => self.readers.push(who),
            (false, _) => {}
        }
        takes
    }
}

impl Lock {
    pub(crate) fn new(name: String) -> Self {
        Self { name, held: Mutex::default(), freed: Condvar::new() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it could be taken, alone or with other readers.
    pub(crate) fn is_free(&self, alone: bool) -> bool {
        self.held.lock().is_free(alone)
    }

    /// Takes it where it is free.
    pub(crate) fn try_take(&self, alone: bool, who: Holder) -> bool {
        self.held.lock().take(alone, who)
    }

    /// Takes it for a thread that no schedule runs, which sleeps until it is free.
    pub(crate) fn take_outside(&self, alone: bool) {
        let mut held = self.held.lock();
        while !held.take(alone, None) {
            self.freed.wait(&mut held);
        }
    }

    pub(crate) fn give_back(&self, alone: bool, who: Holder) {
        let mut held = self.held.lock();
        if alone {
            held.alone = None;
        } else if let Some(at) = held.readers.iter().position(|reader| *reader == who) {
            held.readers.swap_remove(at);
        } else {
            held.readers.pop();
        }
        self.freed.notify_all();
    }

    /// Who holds it.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let held = self.held.lock();
        held.alone.iter().chain(&held.readers).copied().collect()
    }
}

impl PartialEq for Lock {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Lock {}

/// A notice to a thread that waits for a condition variable of the program under test.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// The condition variable.
    pub(crate) name: String,
    pub(crate) given: Arc<AtomicBool>,
}

impl Notice {
    pub(crate) fn is_given(&self) -> bool {
        // Relaxed: the schedule runs one thread at a time.
        self.given.load(Ordering::Relaxed)
    }
}

impl PartialEq for Notice {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.given, &other.given)
    }
}

impl Eq for Notice {}
