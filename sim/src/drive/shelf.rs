//! What host functions hold, when the device is done with them: dropped by no thread that has the simulation locked.
//!
//! The device keeps host functions in queues and graphs, and lets go of them in the middle of a step or a call. What a
//! function holds is the program's, and its drop may call the driver. So it is laid on the *shelf*, and dropped by the
//! next thread that has just let go of the lock.

use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tenure::driver::HostFunction;

/// See the module.
#[derive(Default)]
pub(crate) struct Shelf {
    functions: Mutex<Vec<HostFunction>>,
    has_any: AtomicBool,
}

struct Shelved {
    function: Option<HostFunction>,
    shelf: Arc<Shelf>,
}

impl Drop for Shelved {
    fn drop(&mut self) {
        if let Some(function) = self.function.take() {
            self.shelf.functions.lock().push(function);
            // Relaxed: a later caller looks again; all are dropped at the end.
            self.shelf.has_any.store(true, Ordering::Relaxed);
        }
    }
}

impl Shelf {
    /// The function as the device may keep it: letting go of it drops nothing of the program's.
    pub(crate) fn keep(self: &Arc<Self>, function: HostFunction) -> HostFunction {
        let shelved = Shelved { function: Some(function), shelf: self.clone() };
        Arc::new(move || {
            if let Some(function) = &shelved.function {
                function();
            }
        })
    }

    /// Drops what lies there, with nothing locked; what panicked, if something did.
    pub(crate) fn clear(&self) -> Result<(), Box<dyn std::any::Any + Send>> {
        if !self.has_any.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.has_any.store(false, Ordering::Relaxed);
        let functions = std::mem::take(&mut *self.functions.lock());
        let mut outcome = Ok(());
        for function in functions {
            outcome = outcome.and(catch_unwind(AssertUnwindSafe(|| drop(function))));
        }
        outcome
    }

    /// Drops what lies there, on a thread that called the driver. A destructor's panic is that thread's to see, as where it
    /// drops something of its own.
    pub(crate) fn clear_on_caller(&self) {
        if let Err(payload) = self.clear()
            && !std::thread::panicking()
        {
            resume_unwind(payload);
        }
    }

    /// Whether something lies there.
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }
}
