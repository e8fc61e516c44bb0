//! The command `tenure`: a tour of the core on a simulated or a real GPU, and what goes with it.

mod doctor;
mod facts;
mod kernels;
mod probe;
mod replay;
mod tour;
mod tour_command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// All went well.
const FINE: u8 = 0;
/// A promise was broken, or a result was wrong.
const BROKEN: u8 = 1;
/// What was asked for cannot be read or understood.
const UNUSABLE: u8 = 2;

/// Who may touch a GPU buffer, when a stream may be reused, what waits for a capture, when pinned memory may go:
/// checked.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Command {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run a real program on the core, and check every result (the default).
    Tour(tour_command::Arguments),
    /// Run scenario files under many schedules, and show the smallest one that breaks a promise.
    Replay(replay::Arguments),
    /// Say what is there to run on, and what is missing.
    Doctor(doctor::Arguments),
    /// Write what a driver does, call by call, as tables of facts.
    Probe(probe::Arguments),
    /// Hold a table of facts against what a profile does.
    Facts(facts::Arguments),
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => return misread(&error),
    };
    let outcome = match command.what.unwrap_or_else(|| What::Tour(tour_command::Arguments::default())) {
        What::Tour(arguments) => tour_command::run(&arguments),
        What::Replay(arguments) => arguments.options().and_then(|options| replay::run(&arguments, &options)),
        What::Doctor(arguments) => Ok(doctor::run(&arguments)),
        What::Probe(arguments) => probe::run(&arguments),
        What::Facts(arguments) => facts::run(&arguments),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            eprintln!("tenure: {message}");
            ExitCode::from(UNUSABLE)
        }
    }
}

/// Help and version as clap gives them; a mistake in one line, as all of ours are.
fn misread(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let said = error.render().to_string();
    let lines = said.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let line = lines.collect::<Vec<_>>().join(" ");
    eprintln!("tenure: {} (`tenure --help` says what there is)", line.trim_start_matches("error: "));
    ExitCode::from(UNUSABLE)
}
