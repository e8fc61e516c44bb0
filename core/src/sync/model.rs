//! What loom's and shuttle's halves share: what is leaked on purpose, and a clock that stands still.

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
}
