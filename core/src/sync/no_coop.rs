//! The hook for a cooperative scheduler where none can be: loom and shuttle are schedulers already.

use std::rc::Rc;

/// As the native one; never called.
pub trait Scheduler {
    /// Lets others run.
    fn yield_blocked(&self);
    /// The identity of the running thread.
    fn thread_id(&self) -> u64;
}

/// Ignores `scheduler`.
pub fn install(scheduler: Option<Rc<dyn Scheduler>>) -> Option<Rc<dyn Scheduler>> {
    drop(scheduler);
    None
}

/// Nobody to yield to.
pub fn yield_blocked() -> bool {
    false
}

/// No name of its own.
pub fn thread_id() -> Option<u64> {
    None
}
