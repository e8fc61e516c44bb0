//! Runs a cell on a thread of its own, and cuts it where it hangs: the thread is left behind, and what is told is the state
//! of its runtime with all its locks, as far as nobody holds them, and that of all threads of the process.

use std::cell::Cell as StdCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Cell;
use super::answer::Answer;

/// How long a cell may take: what takes longer hangs. A cell takes some milliseconds.
pub fn patience() -> Duration {
    crate::rig::deadline() / 2
}

type State = Box<dyn Fn() -> String + Send>;

/// What tells the state of each cell's world, by the cell's number.
static STATES: Mutex<BTreeMap<u64, State>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The number of the cell that this thread runs; zero: none.
    static NUMBER: StdCell<u64> = const { StdCell::new(0) };
}

fn states() -> std::sync::MutexGuard<'static, BTreeMap<u64, State>> {
    STATES.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What tells the state of the running cell, should it hang.
pub fn note(state: impl Fn() -> String + Send + 'static) {
    let number = NUMBER.get();
    if number > 0 {
        drop(states().insert(number, Box::new(state)));
    }
}

/// The running cell gives up what its state is told from.
pub fn forget() {
    let state = states().remove(&NUMBER.get());
    drop(state);
}

/// Runs all cells, `threads` at a time, each for `patience` at most; the answers come in the order of the cells.
pub fn run_all(cells: Vec<Cell>, threads: usize, patience: Duration) -> Vec<(Cell, Answer)> {
    let count = cells.len();
    let mut cells: Vec<_> = cells.into_iter().enumerate().collect();
    // Those that run alone come last, so that nobody waits for them in between.
    cells.sort_by_key(|(_, cell)| cell.column == super::child::COLUMN);
    let next = Arc::new(Mutex::new(cells.into_iter()));
    let (told, answers) = channel();
    for _ in 0..threads.max(1) {
        let (next, told) = (next.clone(), told.clone());
        std::thread::spawn(move || {
            loop {
                let cell = next.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                let Some((index, cell)) = cell else { return };
                let answer = run(cell, index as u64 + 1, patience);
                if told.send((index, cell, answer)).is_err() {
                    return;
                }
            }
        });
    }
    drop(told);
    let mut answers: Vec<_> = answers.into_iter().take(count).collect();
    answers.sort_by_key(|(index, ..)| *index);
    answers.into_iter().map(|(_, cell, answer)| (cell, answer)).collect()
}

fn run(cell: Cell, number: u64, patience: Duration) -> Answer {
    let _beside = super::child::beside(&cell);
    let (told, answer) = channel();
    let name = format!("{}/{}", cell.row, cell.column);
    let body = move || {
        NUMBER.set(number);
        let outcome = catch_unwind(AssertUnwindSafe(|| (cell.run)(cell.profile, cell.row, cell.column)));
        let answer = outcome.unwrap_or_else(|panic| Answer::Wrong(format!("panic: {}", words(&*panic))));
        if !matches!(answer, Answer::Hung(_)) {
            forget();
        }
        let _ = told.send(answer);
    };
    let spawned = std::thread::Builder::new().name(name.clone()).spawn(body);
    spawned.expect("a thread starts");
    match answer.recv_timeout(patience) {
        // A part of it that hangs.
        Ok(Answer::Hung(what)) => Answer::Hung(format!("{what}; {}{}", threads(&name), locks(number))),
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Answer::Hung(threads(&name) + &locks(number)),
        Err(RecvTimeoutError::Disconnected) => Answer::Wrong("the thread ended without an answer".to_owned()),
    }
}

/// The state of the cell's world, told by a thread of its own: it may hang too.
fn locks(number: u64) -> String {
    const LONGEST: usize = 20_000;
    let Some(state) = states().remove(&number) else { return String::new() };
    let (told, text) = channel();
    std::thread::spawn(move || {
        let text = catch_unwind(AssertUnwindSafe(&state));
        let _ = told.send(text.unwrap_or_else(|_| "it cannot be told".to_owned()));
        // What it holds may be the last handle of a runtime that hangs.
        std::mem::forget(state);
    });
    let text = text.recv_timeout(Duration::from_secs(2)).unwrap_or_else(|_| "telling it hangs as well".to_owned());
    format!("; the runtime, <locked> where somebody holds the lock: {}", text.chars().take(LONGEST).collect::<String>())
}

/// What a panic says.
pub fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

/// The threads of the process by name, and what the system says that each does.
fn threads(cell: &str) -> String {
    let mut states: Vec<String> = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (name, stat, waits) = (read("comm"), read("stat"), read("wchan"));
        let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).unwrap_or("?").to_owned();
        states.push(format!("{} {state} {}", name.trim(), waits.trim()));
    }
    states.sort();
    format!("cell {cell}; threads: {}", states.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::world::World;

    /// A cell that holds the gate of a stream forever, and waits there for nobody.
    fn hangs(profile: &'static str, _row: &'static str, _column: &'static str) -> Answer {
        let world = World::new(profile);
        let stream = world.runtime.stream().expect("a stream");
        // SAFETY: O1. The closure enqueues nothing.
        let held = unsafe {
            stream.use_on::<()>(&[], |_| {
                loop {
                    std::thread::park();
                }
            })
        };
        Answer::of(&held)
    }

    fn works(_profile: &'static str, _row: &'static str, _column: &'static str) -> Answer {
        Answer::Works
    }

    #[test]
    fn a_cell_that_hangs_is_cut_and_told_with_its_locks_and_threads() {
        let cell = |row, run| Cell { matrix: "planted", row, column: "a column", profile: "cuda-13", run };
        let cells = vec![cell("hangs", hangs), cell("works", works)];
        let answers = run_all(cells, 1, Duration::from_secs(2));
        let [(_, Answer::Hung(state)), (_, Answer::Works)] = &answers[..] else { panic!("it goes on: {answers:?}") };
        assert!(state.contains("cell hangs/a column"), "which cell: {state}");
        assert!(state.contains("tenure-reclaim S"), "what the threads do: {state}");
        assert!(state.contains("the runtime") && state.contains("Reclaim"), "what the runtime is at: {state}");
        assert!(state.contains("<locked>"), "and which locks are held: {state}");
    }
}
