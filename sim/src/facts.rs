//! Tables of facts about drivers, and what a profile says to each row.
//!
//! A table is a file of tab-separated lines with a heading, of one of three forms:
//!
//! | heading | a row is | its id |
//! |---|---|---|
//! | `mode caller operation returned status_after end_capture graph_nodes` | one call during a capture | its first three columns |
//! | `fact value name` | one measured fact; `...` and `then` continue the row above | the fact, with what it continues |
//! | `operation figures` | one host-side cost | the operation |
//!
//! [`table_of`] makes the first two for a profile, by doing the operations on an engine. [`compare`] holds a table
//! against that. Two values agree if they are equal; milliseconds, which stand beside kernels of [`SPIN_MS`] each,
//! agree if they are the same number of kernels, rounded: whether a call waited is the fact, not how long.

mod bench;
mod capture;
mod habits;
mod semantics;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use crate::profile::Profile;

/// How long the kernel runs that timed rows stand beside, in milliseconds.
pub const SPIN_MS: f64 = 20.0;

/// Which form a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// Calls during a capture.
    Capture,
    /// Single facts.
    Semantics,
    /// Host-side costs. No profile says anything to these.
    Times,
}

impl Form {
    /// The heading.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Capture => "mode\tcaller\toperation\treturned\tstatus_after\tend_capture\tgraph_nodes",
            Self::Semantics => "fact\tvalue\tname",
            Self::Times => "operation\tfigures",
        }
    }

    fn columns(self) -> (usize, std::ops::RangeInclusive<usize>) {
        match self {
            Self::Capture => (3, 7..=7),
            Self::Semantics => (1, 2..=3),
            Self::Times => (1, 2..=4),
        }
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is about, unique in its table.
    pub id: String,
    /// What was found. Several columns are joined by one blank.
    pub value: String,
    /// The line as in the file.
    pub line: String,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its form.
    pub form: Form,
    /// Its rows, in order.
    pub rows: Vec<Row>,
}

/// Why a text is no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl Error for ParseError {}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// The first line that does not fit, with its number. An empty text, an unknown heading and an id that occurs twice
    /// do not.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let heading = lines.next().map(|(_, line)| line.trim_end());
        let forms = [Form::Capture, Form::Semantics, Form::Times];
        let form = forms.into_iter().find(|form| heading == Some(form.heading())).ok_or_else(|| ParseError {
            line: 1,
            message: format!("expected a heading, one of: {}", forms.map(Form::heading).join(" | ")),
        })?;
        let mut table = Self { form, rows: Vec::new() };
        let mut seen = BTreeMap::new();
        for (index, line) in lines {
            let refuse = |message| ParseError { line: index + 1, message };
            table.push_line(line.trim_end()).map_err(refuse)?;
            let id = table.rows.last().map(|row| row.id.clone()).unwrap_or_default();
            if let Some(before) = seen.insert(id, index + 1) {
                return Err(ParseError { line: index + 1, message: format!("the same row as line {before}") });
            }
        }
        Ok(table)
    }

    fn push_line(&mut self, line: &str) -> Result<(), String> {
        let columns: Vec<&str> = line.split('\t').collect();
        let (of_id, wanted) = self.form.columns();
        if !wanted.contains(&columns.len()) {
            return Err(format!("expected {} to {} columns, found {}", wanted.start(), wanted.end(), columns.len()));
        }
        let id = match self.form {
            Form::Semantics => self.continued(columns[0]),
            _ => columns[..of_id].join(" / "),
        };
        let value = match self.form {
            Form::Semantics => columns[1].to_owned(),
            _ => columns[of_id..].join(" "),
        };
        self.rows.push(Row { id, value, line: line.to_owned() });
        Ok(())
    }

    /// `... x` after `a` is `a ... x`, and so is one more after that; `ms: ... x` and `then x` likewise.
    fn continued(&self, fact: &str) -> String {
        let continues = ["ms: ...", "...", "then "].into_iter().find_map(|prefix| fact.strip_prefix(prefix));
        let Some(rest) = continues else { return fact.to_owned() };
        let above = self.rows.last().map_or("", |row| row.id.split(" ... ").next().unwrap_or(""));
        format!("{above} ... {}", rest.trim())
    }

    /// The row of this id.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

impl fmt::Display for Table {
    /// As a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.form.heading())?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", row.line))
    }
}

/// What a profile says: every row that the operations known here can ask. Times cannot be asked of a profile: no rows.
pub fn table_of(profile: &Profile, form: Form) -> Table {
    let lines = match form {
        Form::Capture => capture::lines(profile),
        Form::Semantics => semantics::lines(profile),
        Form::Times => Vec::new(),
    };
    let mut table = Table { form, rows: Vec::new() };
    for line in lines {
        let pushed = table.push_line(&line);
        debug_assert_eq!(pushed, Ok(()), "a line of our own does not fit its form: {line}");
    }
    table
}

/// One row that a profile sees otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The row.
    pub id: String,
    /// What the table has.
    pub table: String,
    /// What the profile does. `None`: no operation known here asks this.
    pub profile: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.profile {
            Some(profile) => write!(f, "{}: table {}, profile {}", self.id, self.table, profile),
            None => write!(f, "{}: table {}, unknown to the profile", self.id, self.table),
        }
    }
}

/// How far a table and a profile agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Rows of the table.
    pub rows: usize,
    /// Those that the profile sees otherwise, in the table's order.
    pub differences: Vec<Difference>,
}

/// Holds a table against a profile.
pub fn compare(table: &Table, profile: &Profile) -> Agreement {
    let found = table_of(profile, table.form);
    let found: BTreeMap<&str, &str> = found.rows.iter().map(|row| (row.id.as_str(), row.value.as_str())).collect();
    let differs = |row: &&Row| found.get(row.id.as_str()).is_none_or(|value| !agree(&row.id, &row.value, value));
    let differences = table.rows.iter().filter(differs).map(|row| Difference {
        id: row.id.clone(),
        table: row.value.clone(),
        profile: found.get(row.id.as_str()).map(|value| (*value).to_owned()),
    });
    Agreement { rows: table.rows.len(), differences: differences.collect() }
}

fn agree(id: &str, table: &str, profile: &str) -> bool {
    if table == profile {
        return true;
    }
    let is_time = id.starts_with("ms:") || id.ends_with("took ms") || id.ends_with("... took");
    let kernels = |text: &str| text.parse::<f64>().ok().map(|ms| (ms / SPIN_MS).round());
    is_time && kernels(table).is_some() && kernels(table) == kernels(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_do_not_fit_are_named() {
        let error = |text: &str| Table::parse(text).expect_err("the text is no table").to_string();
        assert!(error("").starts_with("line 1: expected a heading"));
        assert!(error("fact\tvalue\n").starts_with("line 1: expected a heading"));
        assert_eq!(error("fact\tvalue\tname\na\n"), "line 2: expected 2 to 3 columns, found 1");
        assert_eq!(error("fact\tvalue\tname\na\t1\n\na\t2\n"), "line 4: the same row as line 2");
    }

    #[test]
    fn a_row_may_continue_the_one_above() {
        let table = Table::parse("fact\tvalue\tname\na\t1\n... b\t2\n... c\t3\nd\t4\nms: ... took\t5\n");
        let ids: Vec<String> = table.expect("it fits").rows.into_iter().map(|row| row.id).collect();
        assert_eq!(ids, ["a", "a ... b", "a ... c", "d", "d ... took"]);
    }

    #[test]
    fn times_agree_by_the_number_of_kernels() {
        assert!(agree("ms: free", "18.4", "20"));
        assert!(!agree("ms: free", "18.4", "0"));
        assert!(agree("ms: two", "36.4", "40") && !agree("ms: two", "36.4", "20"));
        assert!(!agree("free", "18.4", "20"), "only times have a tolerance");
        assert!(!agree("ms: free", "yes", "no"));
    }

    #[test]
    fn a_table_is_written_as_it_is_read() {
        let text = format!("{}\nglobal\tsame-thread\tnone\t0\t1\t0\t1\n", Form::Capture.heading());
        assert_eq!(Table::parse(&text).expect("it fits").to_string(), text);
    }
}
