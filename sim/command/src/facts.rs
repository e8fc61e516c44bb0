//! `tenure facts`: a table of facts against what a profile does.

use std::path::PathBuf;

use clap::Args;
use tenure_sim::facts::{Table, compare};
use tenure_sim::profile::Profile;

/// What `tenure facts` takes.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The table, as `tenure probe` writes it.
    file: PathBuf,
    /// The profile to hold it against.
    #[arg(long, default_value = "cuda-13")]
    profile: String,
}

/// Prints the rows that differ; the exit code.
///
/// # Errors
/// A line on what cannot be read.
pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let path = arguments.file.display();
    let profile = profile(&arguments.profile)?;
    let text = std::fs::read_to_string(&arguments.file).map_err(|error| format!("cannot read {path}: {error}"))?;
    let table = Table::parse(&text).map_err(|error| format!("{path}: {error}"))?;
    let agreement = compare(&table, &profile);
    for difference in &agreement.differences {
        println!("{difference}");
    }
    let (rows, differ) = (agreement.rows, agreement.differences.len());
    println!("{rows} rows, {} as {} does, {differ} not", rows - differ, arguments.profile);
    Ok(if differ == 0 { crate::FINE } else { crate::BROKEN })
}

/// The profile of this name, or a line on which there are.
///
/// # Errors
/// There is none of this name.
pub fn profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| format!("there is no profile `{name}`; there are {}", Profile::NAMES.join(", ")))
}
