//! What the running execution has done so far, for the reader of a failure: the calls of the device in order, and
//! how many executions there were before.
//!
//! All of it lies in std types that no checker sees, so that it adds no schedule and no edge.

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static EXECUTIONS: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicBool = AtomicBool::new(false);
static STEPS: Mutex<Vec<Step>> = Mutex::new(Vec::new());

thread_local! {
    // Loom and shuttle run all their threads on one: there this is global.
    static PROMISE: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// One driver call or one remark of a model.
#[derive(Clone, Debug)]
struct Step {
    thread: String,
    what: &'static str,
    where_to: Option<(&'static str, u64)>,
}

/// A new execution begins.
pub fn begin() {
    EXECUTIONS.fetch_add(1, Ordering::Relaxed);
    OVER.store(false, Ordering::Relaxed);
    steps().clear();
    promise(None);
}

/// The execution is over: what goes from now on was leaked on purpose.
pub fn end() {
    OVER.store(true, Ordering::Relaxed);
}

/// Whether it is.
pub fn is_over() -> bool {
    OVER.load(Ordering::Relaxed)
}

/// How many executions have begun.
pub fn executions() -> u64 {
    EXECUTIONS.load(Ordering::Relaxed)
}

/// Notes a step of the running execution. `thread` is asked for only here, since it may be dear.
pub fn step(thread: impl std::fmt::Debug, what: &'static str, where_to: Option<(&'static str, u64)>) {
    let mut steps = steps();
    if steps.len() < 1000 {
        steps.push(Step { thread: format!("{thread:?}"), what, where_to });
    }
}

/// What a race found from now on would break: a sentence that opens with a contract line.
pub fn promise(sentence: Option<&'static str>) {
    PROMISE.with(|promise| promise.set(sentence));
}

/// The sentence of [`promise`] that was being checked.
pub fn broken_promise() -> Option<&'static str> {
    PROMISE.with(Cell::get)
}

/// The steps as a table, a line each.
pub fn table() -> String {
    let mut text = String::new();
    for (number, step) in steps().iter().enumerate() {
        let place = step.where_to.map(|(noun, index)| format!(" {noun} {index}")).unwrap_or_default();
        let _ = writeln!(text, "  {number:>3}  {:<14} {}{place}", step.thread, step.what);
    }
    text
}

fn steps() -> MutexGuard<'static, Vec<Step>> {
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}
