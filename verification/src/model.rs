//! What a model is, for the runner and the page.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Everything about one model that the runner and the page need.
#[derive(Debug)]
pub struct Model {
    /// The claim, as a name.
    pub name: &'static str,
    /// The claim, as a sentence.
    pub claim: &'static str,
    /// The contract lines that it bears on.
    pub lines: &'static [&'static str],
    /// Threads, the main one excluded.
    pub threads: u8,
    /// Operations of each thread, in words.
    pub operations: &'static str,
    /// Loom's bound of preemptions in the gate; none means every schedule.
    pub bound: Option<usize>,
    /// How shuttle searches in the gate.
    pub search: Search,
    /// What is left out or simplified.
    pub leaves_out: &'static str,
    /// Contested paths that at least one execution must take.
    pub reaches: &'static [&'static str],
    /// One execution.
    pub body: fn(&Reached),
}

impl Model {
    /// What most models have in common, for a table to begin with: two threads, at bound 3.
    pub const USUAL: Self = Self {
        name: "",
        claim: "",
        lines: &[],
        threads: 2,
        operations: "",
        bound: Some(3),
        search: Search::Sample(1_000),
        leaves_out: "the worker: threads take the turns by polling",
        reaches: &[],
        body: |_| {},
    };
}

/// How shuttle searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Every schedule, depth first.
    Every,
    /// This many schedules each by random choice, by PCT of depth 3 and near-uniformly.
    Sample(usize),
}

/// Which of a model's contested paths were taken so far. Std atomics: no checker sees them.
#[derive(Debug)]
pub struct Reached {
    labels: &'static [&'static str],
    taken: [AtomicBool; 8],
}

impl Reached {
    /// Nothing was reached yet.
    pub fn new(labels: &'static [&'static str]) -> Self {
        assert!(labels.len() <= 8, "a model names at most eight contested paths");
        Self { labels, taken: [const { AtomicBool::new(false) }; 8] }
    }

    /// This execution takes the path.
    pub fn mark(&self, label: &'static str) {
        let index = self.labels.iter().position(|known| *known == label);
        let index = index.unwrap_or_else(|| panic!("the model does not name the path '{label}'"));
        self.taken[index].store(true, Ordering::Relaxed);
    }

    /// This execution takes the path if `taken`.
    pub fn mark_if(&self, taken: bool, label: &'static str) {
        if taken {
            self.mark(label);
        }
    }

    /// The paths that no execution took.
    pub fn missing(&self) -> Vec<&'static str> {
        let taken = self.taken.iter().map(|taken| taken.load(Ordering::Relaxed));
        self.labels.iter().zip(taken).filter(|(_, taken)| !taken).map(|(label, _)| *label).collect()
    }
}

/// A program over the facade alone, and how many outcomes all its schedules have.
#[derive(Clone, Copy, Debug)]
pub struct Litmus {
    /// Its name.
    pub name: &'static str,
    /// How many different outcomes there are, by a checker without any reduction.
    pub outcomes: usize,
    /// Loom's bound of preemptions.
    pub bound: Option<usize>,
    /// One execution; gives what its threads saw.
    pub body: fn() -> Vec<u64>,
}

/// The outcomes of all executions so far.
#[derive(Debug, Default)]
pub struct Outcomes(Mutex<BTreeSet<Vec<u64>>>);

impl Outcomes {
    /// Adds the outcome of one execution.
    pub fn add(&self, outcome: Vec<u64>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(outcome);
    }

    /// All of them.
    pub fn all(&self) -> BTreeSet<Vec<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
