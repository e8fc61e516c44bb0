//! What takes too long for the gate: models one preemption deeper, and the whole matrix of defects and models. Each keeps
//! what it found in a table beside the page, which quotes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::Checker;
use crate::gate::{planted_in_core, verdict};
use crate::jobs::{Job, run};
use crate::mutants::MUTANTS;
use crate::run::models;

/// What the last slow run found: model, bound, executions, seconds, verdict.
pub const SLOW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/slow.tsv");
/// What the last run of the matrix found: defect, checker, model, execution, words; a dash for the model sums up.
pub const MATRIX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/matrix.tsv");

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

/// Schedules that each of shuttle's three schedulers draws in one run of the matrix.
const SAMPLES: usize = 30;

/// Every planted defect of the core against every model under shuttle; with `loom`, also under loom against those models that share a
/// line with it. Each run is given `limit`.
pub fn matrix(loom: bool, limit: Duration) -> bool {
    let mut jobs = Vec::new();
    for defect in planted_in_core() {
        // One name, once a process.
        let defect: &'static str = String::leak(defect);
        let lines = MUTANTS.iter().find(|mutant| mutant.name == defect).map_or(&[][..], |mutant| mutant.lines);
        for model in models(Checker::Shuttle) {
            let job = Job { mutant: Some(defect), ..Job::new(Checker::Shuttle, model.name) };
            jobs.push(Job { samples: Some(SAMPLES), ..job });
            if loom && model.lines.iter().any(|line| lines.contains(line)) {
                jobs.push(Job { mutant: Some(defect), ..Job::new(Checker::Loom, model.name) });
            }
        }
    }
    let ends = run(&jobs, limit);
    let mut cells = String::new();
    let mut sums: BTreeMap<(&str, Checker), (usize, usize)> = BTreeMap::new();
    for (job, ended) in jobs.iter().zip(ends) {
        let Some(defect) = job.mutant else { continue };
        let failed = ended.outcome.as_ref().and_then(|outcome| Some((outcome.executions, outcome.failure.as_ref()?)));
        let (killed, runs) = sums.entry((defect, job.checker)).or_default();
        *runs += 1;
        if let Some((execution, words)) = failed {
            *killed += 1;
            let words: String = words.chars().take(100).collect();
            let _ = writeln!(cells, "{defect}\t{}\t{}\t{execution}\t{words}", job.checker.name(), job.model);
        }
    }
    let mut table = String::new();
    for ((defect, checker), (killed, runs)) in &sums {
        println!("{defect:<28} {:<8} killed by {killed} of {runs}", checker.name());
        let _ = writeln!(table, "{defect}\t{}\t-\t{killed}\t{runs}", checker.name());
    }
    std::fs::write(MATRIX, table + &cells).expect("the table can be written");
    !sums.is_empty()
}
