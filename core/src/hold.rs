//! What the running thread is inside of: a `use_on` closure, or the body of a capture.
//!
//! Looked at on slow paths only. A call that would wait in there could wait for its own thread; it is refused instead
//! with a typed error. Marks are set by closures, never by guard values that could be forgotten.

use std::cell::{Cell, RefCell};

use crate::sync::{coop, thread_local};

/// What a thread can be inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A closure that holds a stream's gate.
    Hold,
    /// The body of a capture.
    Capture,
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "the models' thread_local! takes no const block")]
    // Keyed by the scheduler's thread as well: several of its threads may share this one.
    static PLACES: RefCell<Vec<(Place, u64)>> = RefCell::new(Vec::new());
    // How many there are: mostly none, and then that is all there is to look at.
    #[allow(clippy::missing_const_for_thread_local, reason = "as above")]
    static MARKS: Cell<usize> = Cell::new(0);
}

/// Runs `body` with the thread marked; the mark goes also when it unwinds.
pub fn within<R>(place: Place, body: impl FnOnce() -> R) -> R {
    struct Unmark(Place, u64);
    impl Drop for Unmark {
        fn drop(&mut self) {
            PLACES.with(|places| {
                let mut places = places.borrow_mut();
                if let Some(index) = places.iter().rposition(|mark| *mark == (self.0, self.1)) {
                    places.swap_remove(index);
                    MARKS.with(|marks| marks.set(places.len()));
                }
            });
        }
    }
    let thread = coop::thread_id().unwrap_or(0);
    PLACES.with(|places| {
        let mut places = places.borrow_mut();
        places.push((place, thread));
        MARKS.with(|marks| marks.set(places.len()));
    });
    let _unmark = Unmark(place, thread);
    body()
}

/// Whether the running thread is in such a place.
pub fn is_within(place: Place) -> bool {
    if MARKS.with(Cell::get) == 0 {
        return false;
    }
    PLACES.with(|places| places.borrow().contains(&(place, coop::thread_id().unwrap_or(0))))
}
