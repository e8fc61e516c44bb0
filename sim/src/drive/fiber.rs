//! Coroutines: host threads of the simulation that share one thread of the system, so that a switch costs tens of
//! nanoseconds and a schedule a few microseconds.
//!
//! The *table* of a thread of the system holds its fibers by number. Whoever drives a run calls [`resume`]; a fiber
//! hands its turn back with [`suspend`]. Which fiber runs next is decided elsewhere (`turns`): here are only stacks.
//!
//! A fiber that can never go on is *leaked* with its stack: nothing on it is dropped, and what it borrowed stays.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::RefCell;
use std::io;
use std::ptr::NonNull;

/// What a fiber runs. It must not unwind: whoever makes it catches.
pub(crate) type Body = Box<dyn FnOnce()>;

/// What became of a fiber that was resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumed {
    /// It handed its turn back.
    Suspended,
    /// It has returned.
    Ended,
}

type Fiber = Coroutine<(), (), (), DefaultStack>;
type Handle = NonNull<Yielder<(), ()>>;

#[derive(Default)]
struct Table {
    fibers: Vec<Slot>,
    /// Stacks of fibers that ended, for the next ones: mapping one costs more than running a small scenario.
    stacks: Vec<DefaultStack>,
}

#[derive(Default)]
struct Slot {
    waiting: Option<Fiber>,
    handle: Option<Handle>,
}

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// Puts a new fiber, not yet started, into the calling thread's table under `number`.
pub(crate) fn create(number: u32, body: Body) -> io::Result<()> {
    TABLE.with_borrow_mut(|table| {
        let stack = match table.stacks.pop() {
            Some(stack) => stack,
            None => DefaultStack::new(STACK_BYTES)?,
        };
        let fiber = Fiber::with_stack(stack, move |yielder, ()| {
            remember(number, NonNull::from(yielder));
            body();
        });
        slot(table, number).waiting = Some(fiber);
        Ok(())
    })
}

/// Runs fiber `number` until it hands its turn back or returns. A number that is not in the table has ended.
pub(crate) fn resume(number: u32) -> Resumed {
    let fiber = TABLE.with_borrow_mut(|table| slot(table, number).waiting.take());
    let Some(mut fiber) = fiber else { return Resumed::Ended };
    let result = fiber.resume(());
    TABLE.with_borrow_mut(|table| match result {
        CoroutineResult::Yield(()) => {
            slot(table, number).waiting = Some(fiber);
            Resumed::Suspended
        }
        CoroutineResult::Return(()) => {
            slot(table, number).handle = None;
            keep(table, fiber.into_stack());
            Resumed::Ended
        }
    })
}

/// Hands the turn of fiber `number`, which is the running one, back to whoever resumed it.
pub(crate) fn suspend(number: u32) {
    let handle = TABLE.with_borrow_mut(|table| slot(table, number).handle);
    let Some(handle) = handle else { return };
    // SAFETY: the yielder lives on the running fiber's own stack, from `remember` until the fiber's body has returned;
    // only the running fiber passes its own number, so it has not returned.
    let yielder = unsafe { handle.as_ref() };
    yielder.suspend(());
}

/// Empties the table. Fibers that have not ended are leaked; returns how many.
pub(crate) fn clear() -> usize {
    let left = TABLE.with_borrow_mut(|table| std::mem::take(&mut table.fibers));
    let mut leaked = 0;
    for fiber in left.into_iter().filter_map(|slot| slot.waiting) {
        if fiber.started() {
            leaked += 1;
            std::mem::forget(fiber);
        }
    }
    leaked
}

fn remember(number: u32, handle: Handle) {
    TABLE.with_borrow_mut(|table| slot(table, number).handle = Some(handle));
}

fn slot(table: &mut Table, number: u32) -> &mut Slot {
    let index = number as usize;
    if table.fibers.len() <= index {
        table.fibers.resize_with(index + 1, Slot::default);
    }
    &mut table.fibers[index]
}

fn keep(table: &mut Table, stack: DefaultStack) {
    if table.stacks.len() < STACKS_KEPT_MAX {
        table.stacks.push(stack);
    }
}

/// Room for a fiber's calls, in bytes. Formatting a panic takes about 20 KiB; pages that are not touched cost nothing.
const STACK_BYTES: usize = 512 * 1024;
/// How many free stacks a thread keeps.
const STACKS_KEPT_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn fibers_take_turns_and_give_their_stacks_back() {
        let log = Rc::new(RefCell::new(Vec::new()));
        for number in 0..2 {
            let log = log.clone();
            let body = Box::new(move || {
                log.borrow_mut().push((number, 'a'));
                suspend(number);
                log.borrow_mut().push((number, 'b'));
            });
            create(number, body).expect("a stack can be mapped");
        }
        assert_eq!((resume(0), resume(1)), (Resumed::Suspended, Resumed::Suspended));
        assert_eq!((resume(1), resume(0), resume(0)), (Resumed::Ended, Resumed::Ended, Resumed::Ended));
        assert_eq!(*log.borrow(), [(0, 'a'), (1, 'a'), (1, 'b'), (0, 'b')]);
        assert_eq!(clear(), 0);
        TABLE.with_borrow(|table| assert_eq!(table.stacks.len(), 2));
    }

    #[test]
    fn a_fiber_that_never_ends_is_leaked_and_counted() {
        let witness = Rc::new(());
        let held = witness.clone();
        create(
            0,
            Box::new(move || {
                let _held = held;
                suspend(0);
            }),
        )
        .expect("a stack can be mapped");
        assert_eq!(resume(0), Resumed::Suspended);
        assert_eq!(clear(), 1);
        assert_eq!(Rc::strong_count(&witness), 2, "what it holds is not dropped");
    }
}
