//! The corpus, both ways: every file must go as it says on the core as it is, on every profile that it names, and must
//! fail with each of its planted defects, under the line of the contract that it names.
//!
//! `cargo run --release -p tenure-corpus -- tests/corpus` prints a table: case, kind, profiles, schedules, caught by.
//! It exits with 1 where a file or a defect did not do what it must, also where a file names neither a defect nor why
//! it names none. `--schedules N` sets how hard it looks; `--readme FILE` writes the table there between its two marks,
//! and `--readme FILE --check` only says whether it differs.
//!
//! `--break DEFECT` is `tenure replay` on a core with that defect, with all its flags: to see a bug of one's own
//! caught. `--break none` is the same on the core as it is, without another build.

extern crate tenure_sim_broken as tenure_sim;

mod defects;
#[path = "../../../../sim/command/src/facts.rs"]
#[allow(dead_code)] // only its look-up of profiles
mod facts;
#[path = "../../../../sim/command/src/replay.rs"]
mod replay;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser};

/// What `--break` takes for the core as it is.
const NONE: &str = "none";
pub(crate) const FINE: u8 = 0;
pub(crate) const BROKEN: u8 = 1;
pub(crate) const UNUSABLE: u8 = 2;

/// Runs scenarios on the core as it is and with planted defects.
#[derive(Debug, Parser)]
struct Command {
    /// Arm this defect, or `none`, and replay as `tenure replay` does.
    #[arg(long = "break", value_name = "DEFECT")]
    broken: Option<String>,
    /// List the defects that there are.
    #[arg(long, exclusive = true)]
    list: bool,
    #[command(flatten)]
    table: Table,
    #[command(flatten)]
    replay: replay::Arguments,
}

#[derive(Debug, Args)]
struct Table {
    /// Only files whose name has this.
    #[arg(long, value_name = "TEXT", conflicts_with = "broken")]
    only: Option<String>,
    /// Write the table between the marks of this file.
    #[arg(long, value_name = "FILE", conflicts_with = "broken")]
    readme: Option<PathBuf>,
    /// Write nothing; fail where the file would change.
    #[arg(long, requires = "readme")]
    check: bool,
}

fn main() -> ExitCode {
    let command = Command::parse();
    let outcome = match &command.broken {
        _ if command.list => {
            defects::all().iter().for_each(|name| println!("{name}"));
            Ok(FINE)
        }
        Some(defect) => broken(defect, &command.replay),
        None => table::run(&command.table, &command.replay),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            eprintln!("tenure-corpus: {message}");
            ExitCode::from(UNUSABLE)
        }
    }
}

fn broken(defect: &str, arguments: &replay::Arguments) -> Result<u8, String> {
    if defect != NONE {
        defects::arm(defect)?;
    }
    let mut options = arguments.options()?;
    options.command = format!("cargo run -p tenure-corpus -- --break {defect}");
    replay::run(arguments, &options)
}
