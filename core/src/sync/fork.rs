//! How often the process was forked off, as the system tells the child. A child has another number than its parent: there the
//! threads of the parent are gone, and any lock may be held by one of them.

#[cfg(all(target_os = "linux", not(any(miri, mc_loom, mc_shuttle))))]
pub use self::told::*;
#[cfg(not(all(target_os = "linux", not(any(miri, mc_loom, mc_shuttle)))))]
pub use self::untold::*;

/// The system tells the child. A look is a plain load.
#[cfg(all(target_os = "linux", not(any(miri, mc_loom, mc_shuttle))))]
mod told {
    use std::sync::Once;
    // std, outside the facade: written in a child that has one thread, before that goes on.
    use std::sync::atomic::{AtomicU32, Ordering};

    static FORKS: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count_one() {
        // Relaxed: a child begins with this thread alone.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    /// The number. Asks the system to count, the first time.
    pub fn count() -> u32 {
        static ASKED: Once = Once::new();
        if !ASKED.is_completed() {
            ASKED.call_once(|| {
                // SAFETY: R5. The handler is a function of this program that only adds to a static word, which may be
                // done in a child of any process. Should the system refuse it, children count as their parent.
                let _refused = unsafe { libc::pthread_atfork(None, None, Some(count_one)) };
            });
        }
        counted()
    }

    /// The number, for who knows that the system was asked to count.
    #[inline]
    pub fn counted() -> u32 {
        // Relaxed: as above.
        FORKS.load(Ordering::Relaxed)
    }
}

/// Nothing tells a child here.
#[cfg(not(all(target_os = "linux", not(any(miri, mc_loom, mc_shuttle)))))]
mod untold {
    /// As in a process that was never forked off.
    pub fn count() -> u32 {
        0
    }

    /// As [`count`].
    pub fn counted() -> u32 {
        0
    }
}
