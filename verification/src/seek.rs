//! Looks for one model that fails: for a core that has something wrong in it, and the cheapest model that says so.

use std::time::Duration;

use clap::Args;

use crate::Checker;
use crate::gate::{falls_short, pinned, verdict};
use crate::jobs::{Job, run};
use crate::run::models;

/// How far to look.
#[derive(Args, Clone, Copy, Debug)]
pub struct Reach {
    /// Models that have more executions than this under loom are left out.
    #[arg(long, default_value_t = 1_000_000)]
    executions: u64,
    /// Schedules that each of shuttle's three schedulers draws.
    #[arg(long, default_value_t = 1_000)]
    samples: usize,
    /// Seconds that one model is given.
    #[arg(long, default_value_t = 240)]
    seconds: u64,
    /// The searches of the pure machines as well, before all.
    #[arg(long)]
    searches: bool,
    /// On real threads as well, after all.
    #[arg(long)]
    threads: bool,
}

/// So many at a time: what comes behind a failure is not begun.
const CHUNK: usize = 8;

/// Runs the models, the cheapest first, until one fails; whether none did.
pub fn seek(reach: Reach) -> bool {
    if reach.searches {
        for (name, search) in crate::explore::MACHINES {
            if let Some(failure) = search(0).failure {
                println!("FAULT: {name}, searched: {failure}");
                return false;
            }
        }
    }
    let mut jobs = Vec::new();
    for model in models(Checker::Shuttle) {
        jobs.push(Job { samples: Some(reach.samples), ..Job::new(Checker::Shuttle, model.name) });
    }
    let pinned = pinned();
    let before = |name: &str| pinned.get(&(Checker::Loom.name().to_owned(), name.to_owned())).copied().unwrap_or(0);
    let mut by_loom = models(Checker::Loom);
    by_loom.retain(|model| before(model.name) <= reach.executions);
    by_loom.sort_by_key(|model| before(model.name));
    jobs.extend(by_loom.into_iter().map(|model| Job::new(Checker::Loom, model.name)));
    let on_threads = models(Checker::Threads).into_iter().filter(|_| reach.threads);
    jobs.extend(on_threads.map(|model| Job::new(Checker::Threads, model.name)));
    for chunk in jobs.chunks(CHUNK) {
        for (job, ended) in chunk.iter().zip(run(chunk, Duration::from_secs(reach.seconds))) {
            let short = || falls_short(ended.outcome.as_ref()?.executions, before(&job.model));
            let short = || (job.checker == Checker::Loom).then(short).flatten();
            if let Some(fault) = verdict(job.checker, &ended).or_else(short) {
                println!("FAULT: {} under {}: {fault}", job.model, job.checker.name());
                return false;
            }
        }
    }
    println!("{} runs of models, none failed", jobs.len());
    true
}
