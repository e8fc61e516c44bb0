//! Host functions: from a closure to the C callback that a stream calls.
//!
//! The library gets a number and never a pointer, so nothing that it does with it, in whatever order and however often,
//! can reach freed memory. A function's closure stands in a table under that number.
//!
//! | kind | made by | its closure goes when |
//! |---|---|---|
//! | once | a stream that executes | it was called; after a fault never (P11) |
//! | recorded | a stream that captures | the graph and every executable made from it are gone |
//!
//! An executable that is updated keeps the recordings of before until each launch that calls them has: the counts of
//! launches and of calls agree then. After a fault they never do, and the executable keeps them to its end.
//!
//! The callback takes one short lock, which is never held across a call of the library, and calls the closure outside
//! of it (R2). It does not unwind: a panic of the closure ends in the callback.

use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tenure::driver::HostFunction;

static TABLE: LazyLock<Mutex<HashMap<u64, Entry>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

struct Entry {
    function: HostFunction,
    /// How often it has returned; `None` where it is called once.
    calls: Option<Arc<AtomicU64>>,
}

fn table() -> MutexGuard<'static, HashMap<u64, Entry>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A function in the table that the library has not been told of yet. Dropping it takes the function out again.
pub(super) struct Pending(u64);

impl Pending {
    /// Puts a function into the table, to be called once.
    pub(super) fn once(function: HostFunction) -> Self {
        Self::insert(Entry { function, calls: None })
    }

    /// Puts a function into the table, to be called at every launch of a graph.
    pub(super) fn recorded(function: HostFunction) -> (Self, Arc<Recording>) {
        let calls = Arc::new(AtomicU64::new(0));
        let pending = Self::insert(Entry { function, calls: Some(Arc::clone(&calls)) });
        let recording = Recording { number: pending.0, launches: AtomicU64::new(0), calls };
        (pending, Arc::new(recording))
    }

    fn insert(entry: Entry) -> Self {
        // Relaxed: uniqueness only. 2^64 numbers outlast any process.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        table().insert(number, entry);
        Self(number)
    }

    /// What the library is given.
    pub(super) fn data(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0 as usize)
    }

    /// The library has accepted it.
    pub(super) fn accepted(self) {
        std::mem::forget(self);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // The entry goes outside of the lock: the closure's own drop is the user's code.
        let entry = table().remove(&self.0);
        drop(entry);
    }
}

/// A host function that a capture recorded. It stays callable until the last owner lets go.
#[derive(Debug)]
pub(super) struct Recording {
    number: u64,
    /// Launches that call it, each counted before the call of the library.
    launches: AtomicU64,
    /// Its calls that have returned.
    calls: Arc<AtomicU64>,
}

impl Recording {
    /// A launch will call it.
    pub(super) fn expect(&self) {
        // Relaxed: read under the same lock of the executable, by the update.
        self.launches.fetch_add(1, Ordering::Relaxed);
    }

    /// The launch was refused.
    pub(super) fn unexpect(&self) {
        // Relaxed: the same as for `expect`.
        self.launches.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether every launch that calls it has done so.
    pub(super) fn is_settled(&self) -> bool {
        // Acquire: pairs with the Release in `call`, so that what the closure did happens before its drop.
        self.calls.load(Ordering::Acquire) >= self.launches.load(Ordering::Relaxed)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let entry = table().remove(&self.number);
        drop(entry);
    }
}

/// The C callback.
pub(super) unsafe extern "C" fn call(data: *mut c_void) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let number = data.addr() as u64;
        let found = {
            let mut table = table();
            match table.get(&number) {
                Some(Entry { function, calls: Some(calls) }) => Some((Arc::clone(function), Some(Arc::clone(calls)))),
                Some(_) => table.remove(&number).map(|entry| (entry.function, None)),
                None => None,
            }
        };
        if let Some((function, calls)) = found {
            let outcome = catch_unwind(AssertUnwindSafe(|| function()));
            drop(function);
            if let Some(calls) = calls {
                calls.fetch_add(1, Ordering::Release);
            }
            std::mem::forget(outcome);
        }
    }));
    // A panic's payload may panic again when it is dropped; nothing may unwind into C.
    std::mem::forget(outcome);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter() -> (Arc<AtomicU64>, HostFunction) {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let function: HostFunction = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (count, function)
    }

    #[test]
    fn a_function_to_be_called_once_is_called_once_and_let_go() {
        let (count, function) = counter();
        let pending = Pending::once(Arc::clone(&function));
        let data = pending.data();
        pending.accepted();
        for _ in 0..3 {
            // SAFETY: H4. The callback accepts any number.
            unsafe { call(data) };
        }
        assert_eq!((count.load(Ordering::Relaxed), Arc::strong_count(&function)), (1, 1));
    }

    #[test]
    fn a_recorded_function_is_called_until_its_last_owner_lets_go() {
        let (count, function) = counter();
        let (pending, recording) = Pending::recorded(Arc::clone(&function));
        let data = pending.data();
        pending.accepted();
        recording.expect();
        assert!(!recording.is_settled());
        // SAFETY: H4. The callback accepts any number.
        unsafe { call(data) };
        assert!(recording.is_settled());
        drop(recording);
        // SAFETY: H4. The callback accepts any number.
        unsafe { call(data) };
        assert_eq!((count.load(Ordering::Relaxed), Arc::strong_count(&function)), (1, 1));
    }

    #[test]
    fn a_refused_function_is_let_go_uncalled() {
        let (count, function) = counter();
        drop(Pending::once(Arc::clone(&function)));
        assert_eq!((count.load(Ordering::Relaxed), Arc::strong_count(&function)), (0, 1));
    }

    #[test]
    fn a_panic_ends_in_the_callback_and_the_table_stays_usable() {
        let pending = Pending::once(Arc::new(|| panic!("a host function panics")));
        let data = pending.data();
        pending.accepted();
        // SAFETY: H4. The callback accepts any number.
        unsafe { call(data) };
        let (count, function) = counter();
        let pending = Pending::once(function);
        let data = pending.data();
        pending.accepted();
        // SAFETY: H4. The callback accepts any number.
        unsafe { call(data) };
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
