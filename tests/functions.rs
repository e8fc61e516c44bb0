//! What a [`Tap`](crate::tap::Tap) does with host functions: it passes them on as they are, or keeps those whose turn has
//! come until the driver call is over in which it came, or loses them.
//!
//! The latter is for runs whose threads change places inside of such a function, but must not inside of the driver. A host
//! function then ends after work that stands behind it may have begun: later than a driver calls it, never earlier.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure::driver::HostFunction;

/// The host functions of one tap.
#[derive(Default)]
pub struct Functions {
    keeps: AtomicBool,
    loses: AtomicBool,
    due: Arc<Mutex<VecDeque<HostFunction>>>,
    called: AtomicU64,
}

impl Functions {
    /// From now on those whose turn has come are kept for [`call`](Self::call).
    pub fn keep(&self) {
        // Relaxed: told before the threads start.
        self.keeps.store(true, Ordering::Relaxed);
    }

    /// From now on none is called, as where a fault swallows them.
    pub fn lose(&self) {
        // Relaxed: told before the threads start.
        self.loses.store(true, Ordering::Relaxed);
    }

    /// What the driver is given in the place of `function`.
    pub fn wrap(&self, function: HostFunction) -> HostFunction {
        // Relaxed: as in `lose`.
        if self.loses.load(Ordering::Relaxed) {
            return Arc::new(|| {});
        }
        // Relaxed: as in `keep`.
        if !self.keeps.load(Ordering::Relaxed) {
            return function;
        }
        let due = Arc::clone(&self.due);
        Arc::new(move || due.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::clone(&function)))
    }

    /// Calls those that were kept, the oldest first.
    pub fn call(&self) {
        // Relaxed: as in `keep`.
        while self.keeps.load(Ordering::Relaxed) {
            let next = self.due.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(function) = next else { return };
            // Relaxed: a figure, read once the threads have been joined.
            self.called.fetch_add(1, Ordering::Relaxed);
            function();
        }
    }

    /// How many were called by [`call`](Self::call).
    pub fn called(&self) -> u64 {
        // Relaxed: as in `call`.
        self.called.load(Ordering::Relaxed)
    }
}
