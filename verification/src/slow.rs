//! What takes too long for the gate: models one preemption deeper. What they found is kept in a table beside the page, which
//! quotes it.

use std::fmt::Write as _;
use std::time::Duration;

use crate::Checker;
use crate::gate::verdict;
use crate::jobs::{Job, run};
use crate::run::models;

/// What the last slow run found: model, bound, executions, seconds, verdict.
pub const SLOW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/slow.tsv");

/// Every bounded model under loom, one preemption deeper than in the gate; each is given `limit`. What did not end in the last
/// run comes first, so that the processors are done together.
pub fn slow(limit: Duration) -> bool {
    let deeper = |bound: Option<usize>| match bound {
        Some(2) => Some("3"),
        Some(3) => Some("4"),
        _ => None,
    };
    let deeper = models(Checker::Loom).into_iter().filter_map(|model| Some((model, deeper(model.bound)?)));
    let mut jobs: Vec<_> =
        deeper.map(|(model, bound)| Job { bound: Some(bound), ..Job::new(Checker::Loom, model.name) }).collect();
    let before = std::fs::read_to_string(SLOW).unwrap_or_default();
    let short =
        |job: &Job| before.lines().any(|line| line.starts_with(&format!("{}\t", job.model)) && line.ends_with("\tok"));
    jobs.sort_by_cached_key(short);
    let mut holds = true;
    let mut table = String::new();
    for (job, ended) in jobs.iter().zip(run(&jobs, limit)) {
        let outcome = ended.outcome.as_ref();
        let unfinished = outcome.is_some_and(|outcome| outcome.unfinished);
        let fault = verdict(Checker::Loom, &ended).filter(|_| !unfinished);
        let said = match &fault {
            Some(fault) => fault.clone(),
            None if unfinished => "no failure so far, not finished".to_owned(),
            None => "ok".to_owned(),
        };
        let executions = outcome.map_or("-".to_owned(), |outcome| outcome.executions.to_string());
        let (bound, seconds) = (job.bound.unwrap_or("all"), ended.took.as_secs());
        println!("loom     {:<48} bound {bound:<4} {executions:>9} executions {seconds:>5} s  {said}", job.model);
        let _ = writeln!(table, "{}\t{bound}\t{executions}\t{seconds}\t{said}", job.model);
        holds &= fault.is_none();
    }
    std::fs::write(SLOW, table).expect("the table can be written");
    holds
}
