//! Checks the core on every interleaving, checks the checks, and writes the page that says so.
//!
//! `gate` runs everything that must hold before a change goes in; `page` writes `verification/RESULTS.md` from such a
//! run; `slow` is deeper. Each model runs in a process of its own, since a failed one leaves the checkers unusable.

#![allow(clippy::duplicate_mod, reason = "the models are built once for each checker")]

mod explore;
mod gate;
mod jobs;
mod model;
mod mutants;
mod not_covered;
mod on_loom;
mod on_shuttle;
mod on_threads;
mod overlap;
mod page;
mod run;
mod schedule;
mod seek;
mod slow;
mod soak;

use std::process::ExitCode;
use std::sync::RwLock;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

/// The checkers that run a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, serde::Serialize, serde::Deserialize)]
pub enum Checker {
    /// Every schedule up to a bound of preemptions, with weak memory.
    Loom,
    /// Every schedule of small models, samples of large ones; sequentially consistent.
    Shuttle,
    /// Real threads over the production build.
    Threads,
}

#[derive(Parser)]
#[command(about = "Checks the core on every interleaving, and checks the checks")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one model in this process and prints its result as one line of JSON.
    Run(run::Order),
    /// Lists the models.
    List,
    /// Runs everything that must hold before a change goes in.
    Gate,
    /// Searches every state that the core's machines can reach, within stated sizes.
    Explore(explore::command::Order),
    /// Runs the models alone, the cheapest first, until one fails: whether any sees a mistake in the core.
    Seek(seek::Reach),
    /// Runs the gate, and writes the page and the pinned executions from it.
    Page,
    /// Runs every bounded model under loom one preemption deeper than the gate, and keeps the figures for the page: on two
    /// processors at most three hours.
    Slow {
        /// Seconds that one model is given.
        #[arg(long, default_value_t = 1000)]
        limit: u64,
    },
}

static PLANTED: RwLock<Option<&'static str>> = RwLock::new(None);

/// Whether this defect of a model, as opposed to one of the core, is armed.
pub(crate) fn planted(name: &str) -> bool {
    PLANTED.read().expect("nobody panics while arming").is_some_and(|planted| planted == name)
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(order) => run::run(&order),
        Command::List => {
            for model in on_loom::models::all() {
                println!("{:<40} {}", model.name, model.claim);
            }
            ExitCode::SUCCESS
        }
        Command::Explore(order) => explore::command::run(&order),
        Command::Gate => code(gate::gate(false)),
        Command::Seek(reach) => code(seek::seek(reach)),
        Command::Page => code(gate::gate(true)),
        Command::Slow { limit } => code(slow::slow(Duration::from_secs(limit))),
    }
}

fn code(holds: bool) -> ExitCode {
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Checker {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Loom, Self::Shuttle, Self::Threads];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loom => "loom",
            Self::Shuttle => "shuttle",
            Self::Threads => "threads",
        }
    }
}
