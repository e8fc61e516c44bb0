//! What a cell may answer, and the tables of what it must.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use tenure::{Error, PinError};

use super::Cell;

/// What a cell came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call went through.
    Works,
    /// A typed error, by its word.
    Refused(String),
    /// It did not end; the state of all threads.
    Hung(String),
    /// A panic, a finding of the simulator, or a broken promise.
    Wrong(String),
}

impl Answer {
    /// The answer of a call.
    pub fn of<T>(outcome: &Result<T, Error>) -> Self {
        match outcome {
            Ok(_) => Self::Works,
            Err(error) => Self::Refused(word(error)),
        }
    }

    /// As the tables write it.
    pub fn word(&self) -> &str {
        match self {
            Self::Works => "works",
            Self::Refused(word) => word,
            Self::Hung(_) => "hung",
            Self::Wrong(_) => "wrong",
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::Refused(word) => write!(f, "refused with {word}"),
            Self::Hung(state) => write!(f, "hung: {state}"),
            Self::Wrong(what) => write!(f, "wrong: {what}"),
        }
    }
}

/// The word for an error: its variant, and that of what it carries.
pub fn word(error: &Error) -> String {
    let text = match error {
        Error::Misuse(misuse) => format!("{misuse:?}"),
        Error::Pin(PinError::Larger { .. }) => "Larger".to_owned(),
        Error::Pin(pin) => format!("{pin:?}"),
        Error::Driver(failure) => format!("Driver({:?})", failure.kind),
        other => format!("{other:?}"),
    };
    text.split([' ', '{']).next().unwrap_or_default().split("(Driver").next().unwrap_or_default().to_owned()
}

/// The tables, by matrix, row and column; and by profile where one differs.
#[derive(Debug, Default)]
pub struct Answers {
    common: BTreeMap<(String, String, String), String>,
    exceptions: BTreeMap<(String, String, String, String), String>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("matrix")
}

const EXCEPTIONS: &str = "exceptions";

impl Answers {
    /// Reads the tables. A table that is not there answers nothing.
    ///
    /// # Panics
    /// When a line has more or fewer fields than its table's head.
    pub fn read() -> Self {
        let mut answers = Self::default();
        for entry in std::fs::read_dir(folder()).expect("the folder of the tables").flatten() {
            let path = entry.path();
            let (Some(name), Some("tsv")) =
                (path.file_stem().and_then(|name| name.to_str()), path.extension().and_then(|end| end.to_str()))
            else {
                continue;
            };
            answers.read_table(name, &std::fs::read_to_string(&path).expect("a table can be read"));
        }
        answers
    }

    fn read_table(&mut self, name: &str, text: &str) {
        let mut lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t'));
        let Some(head) = lines.next() else { return };
        let columns: Vec<_> = head.skip(1).collect();
        for mut fields in lines {
            let row = fields.next().unwrap_or_default().to_owned();
            let fields: Vec<_> = fields.collect();
            assert_eq!(
                fields.len(),
                columns.len(),
                "{name}: the row `{row}` has another number of fields than the head"
            );
            if name == EXCEPTIONS {
                let [inner, column, profile, answer] = fields[..] else { panic!("{name}: five fields a line") };
                let key = (row, inner.to_owned(), column.to_owned(), profile.to_owned());
                self.exceptions.insert(key, answer.to_owned());
                continue;
            }
            for (column, answer) in columns.iter().zip(fields) {
                self.common.insert((name.to_owned(), row.clone(), (*column).to_owned()), answer.to_owned());
            }
        }
    }

    /// What a cell must answer.
    pub fn of(&self, cell: &Cell) -> Option<&str> {
        let key = (cell.matrix.to_owned(), cell.row.to_owned(), cell.column.to_owned());
        let exception = (key.0.clone(), key.1.clone(), key.2.clone(), cell.profile.to_owned());
        self.exceptions.get(&exception).or_else(|| self.common.get(&key)).map(String::as_str)
    }

    /// Writes the tables anew from answers that were seen: the most frequent one of a cell's profiles goes into its
    /// matrix' table, the others are exceptions. For the eyes of whoever reviews the difference.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(seen: &[(Cell, Answer)]) -> std::io::Result<()> {
        let mut cells: BTreeMap<&str, Vec<&(Cell, Answer)>> = BTreeMap::new();
        seen.iter().for_each(|answer| cells.entry(answer.0.matrix).or_default().push(answer));
        let mut exceptions = String::from("matrix\trow\tcolumn\tprofile\tanswer\n");
        for (matrix, answers) in cells {
            std::fs::write(folder().join(format!("{matrix}.tsv")), table(&answers, &mut exceptions))?;
        }
        std::fs::write(folder().join(format!("{EXCEPTIONS}.tsv")), exceptions)
    }
}

fn table(answers: &[&(Cell, Answer)], exceptions: &mut String) -> String {
    let (mut rows, mut columns): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (cell, _) in answers {
        if !rows.contains(&cell.row) {
            rows.push(cell.row);
        }
        if !columns.contains(&cell.column) {
            columns.push(cell.column);
        }
    }
    let mut text = format!("call\t{}\n", columns.join("\t"));
    for row in rows {
        text += row;
        for column in &columns {
            let of_cell: Vec<_> =
                answers.iter().filter(|(cell, _)| cell.row == row && cell.column == *column).collect();
            let count = |word: &str| of_cell.iter().filter(|(_, answer)| answer.word() == word).count();
            let usual = of_cell.iter().map(|(_, answer)| answer.word()).max_by_key(|word| count(word)).unwrap_or("");
            text += "\t";
            text += usual;
            for (cell, answer) in of_cell.iter().filter(|(_, answer)| answer.word() != usual) {
                let Cell { matrix, profile, .. } = cell;
                *exceptions += &format!("{matrix}\t{row}\t{column}\t{profile}\t{}\n", answer.word());
            }
        }
        text += "\n";
    }
    text
}
