//! An allocator that counts what the calling thread asks for.
//!
//! A binary that measures allocation names it: `#[global_allocator] static ALLOCATOR: Counting = Counting;`

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counts.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static COUNT: Cell<Allocations> = const { Cell::new(Allocations { calls: 0, bytes: 0 }) };
}

/// What one thread has allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// How often.
    pub calls: u64,
    /// How much.
    pub bytes: u64,
}

/// What the calling thread allocates while `body` runs. All zero where [`Counting`] is not the global allocator.
pub fn allocations(body: impl FnOnce()) -> Allocations {
    let before = COUNT.with(Cell::get);
    body();
    let after = COUNT.with(Cell::get);
    Allocations { calls: after.calls - before.calls, bytes: after.bytes - before.bytes }
}

fn note(bytes: usize) {
    // A thread that is ending has no count any more.
    let _ = COUNT.try_with(|count| {
        let Allocations { calls, bytes: sum } = count.get();
        count.set(Allocations { calls: calls + 1, bytes: sum + bytes as u64 });
    });
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on: the pointer came from `alloc` above, so from the system.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the same as for `dealloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
