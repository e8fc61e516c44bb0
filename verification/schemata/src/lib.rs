//! Mutant schemata: every mutant that cargo-mutants lists, or every statement left out, in one source, each armed at run time by
//! its number.
//!
//! cargo-mutants decides what mutants there are, and builds each by itself: for the core, with its models, that is most of a
//! minute a mutant. Here all of them are written into a copy of the source at once ([`weave`]), that copy is built once, and
//! a mutant costs as long as its tests run ([`sweep`]). What cannot be written so is said, and left to cargo-mutants.
//!
//! Nothing here touches the core itself: `mutants.sh` weaves a checked-out copy that it removes afterwards.

pub mod statements;
pub mod sweep;
pub mod weave;

use serde::{Deserialize, Serialize};

/// The variable that names the armed mutant, by its place in the list, from 1.
pub const ARMED: &str = "TENURE_SCHEMA";

/// A mutant, as `cargo mutants --list --json` says it, or [`statements`] does.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Mutant {
    /// The file, from the root of the workspace.
    pub file: String,
    /// What kind of change it is.
    pub genre: String,
    /// All about it in words, with its place.
    pub name: String,
    /// What stands in its place; empty where something is deleted.
    pub replacement: String,
    /// What is replaced.
    pub span: Span,
}

/// From where to where: `end` is the first character that is not replaced.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Span {
    /// The first.
    pub start: Place,
    /// The first after it.
    pub end: Place,
}

/// A place in a text. Both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Place {
    /// How many bytes come before it.
    fn offset(self, text: &str) -> Option<usize> {
        let before: usize = text.split_inclusive('\n').take(self.line - 1).map(str::len).sum();
        let line = text[before..].split_inclusive('\n').next()?;
        let column = line.char_indices().map(|(at, _)| at).chain([line.len()]).nth(self.column - 1)?;
        Some(before + column)
    }
}

impl Span {
    /// The bytes that it covers.
    fn bytes(self, text: &str) -> Option<std::ops::Range<usize>> {
        Some(self.start.offset(text)?..self.end.offset(text)?)
    }
}
