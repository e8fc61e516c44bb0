//! Runs a cell on a thread of its own, and cuts it where it hangs: the thread is left behind, and the state of all
//! threads of the process is told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Cell;
use super::answer::Answer;

/// How long a cell may take: what takes longer hangs. A cell takes some milliseconds.
fn patience() -> Duration {
    crate::rig::deadline() / 2
}

/// Runs all cells, `threads` at a time; the answers come in the order of the cells.
pub fn run_all(cells: Vec<Cell>, threads: usize) -> Vec<(Cell, Answer)> {
    let count = cells.len();
    let next = Arc::new(Mutex::new(cells.into_iter().enumerate()));
    let (told, answers) = channel();
    for _ in 0..threads.max(1) {
        let (next, told) = (next.clone(), told.clone());
        std::thread::spawn(move || {
            loop {
                let cell = next.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                let Some((index, cell)) = cell else { return };
                let answer = run(cell);
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

fn run(cell: Cell) -> Answer {
    let (told, answer) = channel();
    let name = format!("{}/{}", cell.row, cell.column);
    let body = move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| (cell.run)(cell.profile, cell.row, cell.column)));
        let _ = told.send(outcome.unwrap_or_else(|panic| Answer::Wrong(format!("panic: {}", words(&*panic)))));
    };
    let spawned = std::thread::Builder::new().name(name.clone()).spawn(body);
    spawned.expect("a thread starts");
    match answer.recv_timeout(patience()) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Answer::Hung(threads(&name)),
        Err(RecvTimeoutError::Disconnected) => Answer::Wrong("the thread ended without an answer".to_owned()),
    }
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
