//! Matrices: every public call in every place and every state, every callback with every misbehaviour, every object
//! with a foreign runtime, every driver call with every kind of failure.
//!
//! A case of the [suite](crate::conformance) shows what its author thought of. A matrix asks about the rest: its rows
//! and columns are lists, and a cell is what a row and a column make together. What each cell must answer is data that
//! a person can read: a table a matrix, `tests/matrix/<matrix>.tsv`, and what differs from it on one profile in
//! `tests/matrix/exceptions.tsv`.
//!
//! | module | what it is |
//! |---|---|
//! | [`answer`] | what a cell may answer, and the tables of what it must |
//! | [`world`] | the runtime and the objects that a cell starts with |
//! | [`call`] | every public call |
//! | [`place`] | every place that a call can be made from, and every state of the runtime |
//! | [`callback`] | every callback of a user's, and what it may do |
//! | [`foreign`] | every object, given to another runtime |
//! | [`failure`] | every driver call, and how it fails |
//! | [`value`] | lengths, ranges, elements and durations at their limits |
//! | [`child`] | makes a call in a forked child |
//! | [`watch`] | runs a cell, and cuts it where it hangs |

pub mod answer;
pub mod call;
pub mod callback;
pub mod child;
pub mod failure;
pub mod foreign;
pub mod place;
pub mod value;
pub mod watch;
pub mod world;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use self::answer::{Answer, Answers};

/// One question: a row and a column of a matrix, on a profile.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The matrix.
    pub matrix: &'static str,
    /// The row.
    pub row: &'static str,
    /// The column.
    pub column: &'static str,
    /// The profile.
    pub profile: &'static str,
    run: fn(&'static str, &'static str, &'static str) -> Answer,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} / {} / {} on {}", self.matrix, self.row, self.column, self.profile)
    }
}

/// One matrix.
struct Matrix {
    name: &'static str,
    rows: Vec<&'static str>,
    columns: Vec<&'static str>,
    run: fn(&'static str, &'static str, &'static str) -> Answer,
}

fn matrices() -> Vec<Matrix> {
    vec![
        Matrix { name: "places", rows: call::names(), columns: place::PLACES.to_vec(), run: place::in_place },
        Matrix { name: "states", rows: call::names(), columns: place::STATES.to_vec(), run: place::in_state },
        Matrix {
            name: "callbacks",
            rows: callback::CALLBACKS.to_vec(),
            columns: callback::DEEDS.to_vec(),
            run: callback::run,
        },
        Matrix { name: "foreign", rows: foreign::names(), columns: vec!["another runtime"], run: foreign::run },
        Matrix {
            name: "sessions",
            rows: foreign::sessions(),
            columns: vec!["another capture"],
            run: foreign::run_session,
        },
        Matrix { name: "failures", rows: failure::calls(), columns: failure::WAYS.to_vec(), run: failure::run },
        Matrix { name: "values", rows: value::names(), columns: value::VALUES.to_vec(), run: value::run },
    ]
}

/// Every cell of the matrices whose name begins with `only`, on these profiles.
pub fn cells(only: &str, profiles: &[&'static str]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for matrix in matrices().into_iter().filter(|matrix| matrix.name.starts_with(only)) {
        for &profile in profiles {
            for &row in &matrix.rows {
                for &column in &matrix.columns {
                    cells.push(Cell { matrix: matrix.name, row, column, profile, run: matrix.run });
                }
            }
        }
    }
    cells
}

/// What the cells of one matrix came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Cells that were run.
    pub cells: usize,
    /// Cells whose call went through.
    pub works: usize,
    /// Cells whose call was refused with a typed error.
    pub refused: usize,
    /// Cells that did not end.
    pub hung: usize,
    /// Cells that answered something else than the table says, panicked, or left a finding of the simulator.
    pub wrong: usize,
}

impl Tally {
    fn add(&mut self, answer: &Answer, is_right: bool) {
        self.cells += 1;
        match answer {
            Answer::Works => self.works += 1,
            Answer::Refused(_) => self.refused += 1,
            Answer::Hung(_) => self.hung += 1,
            Answer::Wrong(_) => {}
        }
        if !is_right && !matches!(answer, Answer::Hung(_)) {
            self.wrong += 1;
        }
    }

    fn json(self) -> String {
        let Self { cells, works, refused, hung, wrong } = self;
        format!("\"cells\":{cells},\"works\":{works},\"refused\":{refused},\"hung\":{hung},\"wrong\":{wrong}")
    }
}

/// What all cells came to.
#[derive(Debug, Default)]
pub struct Summary {
    /// All together.
    pub total: Tally,
    /// By matrix.
    pub by_matrix: BTreeMap<&'static str, Tally>,
    /// The cells that hung or were wrong, a line each.
    pub complaints: Vec<String>,
    /// Every answer, for [`Answers::write`].
    pub answers: Vec<(Cell, Answer)>,
}

impl Summary {
    /// As one object of JSON.
    pub fn json(&self) -> String {
        let mut text = format!("{{{},\"matrices\":{{", self.total.json());
        for (index, (name, tally)) in self.by_matrix.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(text, "{comma}\"{name}\":{{{}}}", tally.json()).expect("a string takes all");
        }
        text + "}}"
    }
}

/// Runs cells, several at a time, and holds each answer against the tables.
///
/// # Panics
/// When a table cannot be read.
pub fn run(cells: Vec<Cell>, threads: usize) -> Summary {
    let answers = Answers::read();
    let mut summary = Summary::default();
    for (cell, answer) in watch::run_all(cells, threads, watch::patience()) {
        let expected = answers.of(&cell);
        // What hangs or is wrong is so whatever a table says.
        let is_right = expected.is_some_and(|expected| expected == answer.word())
            && !matches!(answer, Answer::Hung(_) | Answer::Wrong(_));
        summary.total.add(&answer, is_right);
        summary.by_matrix.entry(cell.matrix).or_default().add(&answer, is_right);
        if !is_right {
            let expected = expected.unwrap_or("(no answer in the table)");
            summary.complaints.push(format!("{cell}: {answer}; the table says: {expected}"));
        }
        summary.answers.push((cell, answer));
    }
    summary
}
