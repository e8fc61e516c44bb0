//! The gate: every model passes and explores at least what it did before, the checkers see what they are trusted with, and every
//! planted defect is killed, by its model and with its message.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::jobs::{Ended, Job, run};
use crate::mutants::{CONTROL, MUTANTS, Mutant, SINGLE_SCHEDULES};
use crate::run::{Outcome, litmus, models};
use crate::{Checker, page, soak};

/// One in so many states that are met again is audited.
const AUDIT: usize = 101;
/// A run that takes longer has not ended: the gate fails.
const LIMIT: Duration = Duration::from_secs(240);
/// Executions that each model must at least explore: written by `page`, from a run.
const PINNED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/executions.tsv");
/// The core's source, in which every defect is looked for.
const CORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src");
/// The planted defects, as edits of the core's source.
const PLANTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/planted");

/// Scenarios, each with the defect that it catches.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus");

/// What one model did under one checker.
pub struct ModelRun {
    /// The checker.
    pub checker: Checker,
    /// The model.
    pub model: &'static str,
    /// How it ended.
    pub ended: Ended,
}

/// What a planted defect came to.
pub struct Kill {
    /// The defect.
    pub mutant: &'static Mutant,
    /// How the model ended.
    pub ended: Ended,
    /// Of the single random schedules, how many show it, with any words.
    pub shown: usize,
}

/// Everything that a run of the gate found.
#[derive(Default)]
pub struct Findings {
    /// Models under checkers.
    pub models: Vec<ModelRun>,
    /// Planted defects.
    pub kills: Vec<Kill>,
    /// What the storms found of planted defects.
    pub soaked: Vec<Kill>,
    /// Searches of the pure transitions.
    pub searches: Vec<crate::explore::Line>,
    /// What must not be.
    pub faults: Vec<String>,
}

/// Runs the gate; whether it holds. With `write` the pinned executions and the page are written from this run, else compared with it.
pub fn gate(write: bool) -> bool {
    let mut findings = Findings::default();
    let start = Instant::now();
    run_litmus(&mut findings);
    run_models(&mut findings);
    run_mutants(&mut findings);
    run_soaked(&mut findings);
    run_searches(&mut findings);
    check_sources(&mut findings);
    if write {
        write_pinned(&findings);
        page::write(&findings);
    } else {
        check_pinned(&mut findings);
        page::check(&mut findings);
    }
    let executions: u64 = findings.models.iter().filter_map(|run| Some(run.ended.outcome.as_ref()?.executions)).sum();
    let killed = findings.kills.iter().filter(|kill| kill.is_right()).count();
    println!(
        "{} runs of models, {executions} executions; {killed} of {} planted defects killed",
        findings.models.len(),
        MUTANTS.len()
    );
    if findings.models.is_empty() || executions == 0 {
        findings.faults.push("no model was run".to_owned());
    }
    for fault in &findings.faults {
        println!("FAULT: {fault}");
    }
    let passed = findings.models.len() + killed + findings.searches.len();
    println!("{passed} passed, {} failed, in {} s", findings.faults.len(), start.elapsed().as_secs());
    findings.faults.is_empty()
}

fn run_litmus(findings: &mut Findings) {
    let names: Vec<_> = litmus(Checker::Loom).iter().map(|program| (program.name, program.outcomes)).collect();
    let job = |checker, name: &str| Job::new(checker, &format!("litmus:{name}"));
    let jobs: Vec<_> =
        names.iter().flat_map(|(name, _)| [job(Checker::Loom, name), job(Checker::Shuttle, name)]).collect();
    let ends = run(&jobs, LIMIT);
    for ((name, expected), pair) in names.iter().zip(ends.chunks(2)) {
        let outcomes = |end: &Ended| end.outcome.clone().map(|outcome| outcome.outcomes).unwrap_or_default();
        let (loom, shuttle) = (outcomes(&pair[0]), outcomes(&pair[1]));
        println!("litmus   {name:<44} loom {} shuttle {} expected {expected}", loom.len(), shuttle.len());
        if loom != shuttle || loom.len() != *expected {
            findings
                .faults
                .push(format!("{name}: loom and shuttle differ, or not {expected} outcomes: a checker is blind"));
        }
    }
}

fn run_models(findings: &mut Findings) {
    let mut jobs = Vec::new();
    for checker in Checker::ALL {
        for model in models(checker) {
            jobs.push((model, Job::new(checker, model.name)));
        }
    }
    let runs: Vec<_> = jobs.iter().map(|(_, job)| job.clone()).collect();
    for ((model, job), ended) in jobs.into_iter().zip(run(&runs, LIMIT)) {
        let verdict = verdict(job.checker, &ended);
        let executions = ended.outcome.as_ref().map_or(0, |outcome| outcome.executions);
        let bound = match (job.checker, model.bound) {
            (Checker::Loom, Some(bound)) => format!("bound {bound}"),
            (Checker::Loom, None) => "all".to_owned(),
            _ => "-".to_owned(),
        };
        let name = job.checker.name();
        println!(
            "{name:<8} {:<44} {bound:<8} {executions:>8} executions  {}",
            model.name,
            verdict.as_deref().unwrap_or("ok")
        );
        if let Some(fault) = verdict {
            findings.faults.push(format!("{} under {name}: {fault}", model.name));
        }
        findings.models.push(ModelRun { checker: job.checker, model: model.name, ended });
    }
}

/// What is wrong with a run that should have passed.
pub fn verdict(checker: Checker, ended: &Ended) -> Option<String> {
    let Some(outcome) = &ended.outcome else { return Some("did not end in time".to_owned()) };
    if let Some(failure) = &outcome.failure {
        return Some(format!("FAILED in execution {}: {failure}", outcome.executions));
    }
    if outcome.unfinished {
        return Some(format!("did not end in time, after {} executions", outcome.executions));
    }
    if outcome.executions == 0 {
        return Some("executed nothing".to_owned());
    }
    // Real threads take what paths they take.
    if checker == Checker::Loom && !outcome.missing.is_empty() {
        return Some(format!("never reached: {}", outcome.missing.join("; ")));
    }
    None
}

fn run_mutants(findings: &mut Findings) {
    let mut jobs: Vec<_> = MUTANTS.iter().map(Mutant::job).collect();
    jobs.push(Job { mutant: Some(CONTROL.name), ..Job::new(Checker::Loom, CONTROL.model) });
    let mut ends = run(&jobs, LIMIT);
    let control = ends.pop().expect("the control was run");
    if verdict(Checker::Loom, &control).is_some() {
        findings.faults.push("the control, a defect without code, was killed: kills prove nothing".to_owned());
    }
    let singles: Vec<_> = MUTANTS.iter().flat_map(Mutant::single_schedules).collect();
    let singles = run(&singles, LIMIT);
    let singles = singles.chunks(SINGLE_SCHEDULES as usize);
    for ((mutant, ended), singles) in MUTANTS.iter().zip(ends).zip(singles) {
        let fails = |end: &&Ended| end.outcome.as_ref().is_some_and(|outcome| outcome.failure.is_some());
        let kill = Kill { mutant, ended, shown: singles.iter().filter(fails).count() };
        let shown = format!("shown by {} of {SINGLE_SCHEDULES}", kill.shown);
        println!("mutant   {:<28} {:<44} {shown}; {}", mutant.name, mutant.model, kill.said());
        if !kill.is_right() {
            findings.faults.push(format!("{} was not killed as it should: {}", mutant.name, kill.said()));
        }
        findings.kills.push(kill);
    }
}

/// The storms, each with a defect that it must find.
fn run_soaked(findings: &mut Findings) {
    let jobs: Vec<_> = soak::MUTANTS.iter().map(Mutant::job).collect();
    for (mutant, ended) in soak::MUTANTS.iter().zip(run(&jobs, LIMIT)) {
        let kill = Kill { mutant, ended, shown: 0 };
        println!("soak     {:<28} {:<44} {}", mutant.name, mutant.model, kill.said());
        if !kill.is_right() {
            findings.faults.push(format!("{} was not found as it should be: {}", mutant.name, kill.said()));
        }
        findings.soaked.push(kill);
    }
}

impl Kill {
    /// Whether the model failed, and with the message of this defect.
    pub fn is_right(&self) -> bool {
        let failure = self.ended.outcome.as_ref().and_then(|outcome| outcome.failure.as_ref());
        failure.is_some_and(|failure| self.mutant.is_right(failure))
    }

    /// In words.
    pub fn said(&self) -> String {
        match &self.ended.outcome {
            Some(Outcome { failure: Some(failure), executions, .. }) => format!("killed at {executions}: {failure}"),
            Some(Outcome { unfinished: false, executions, .. }) => format!("SURVIVED {executions} executions"),
            _ => "did not end".to_owned(),
        }
    }
}

/// The pure transitions, every state: no checker is needed, so they run here.
fn run_searches(findings: &mut Findings) {
    for (name, search) in crate::explore::MACHINES {
        let line = search(AUDIT);
        println!(
            "explore  {name:<28} {:>8} states, {} of {} planted mistakes caught  {}",
            line.states,
            line.caught,
            line.planted,
            line.failure.as_deref().unwrap_or("ok")
        );
        if let Some(failure) = &line.failure {
            findings.faults.push(format!("{name}, searched: {failure}"));
        }
        findings.searches.push(line);
    }
}

/// Every defect that the core has a place for is in the table, and the other way round.
fn check_sources(findings: &mut Findings) {
    let planted = planted_in_core();
    if planted.is_empty() {
        findings.faults.push("no planted defect was found".to_owned());
    }
    let caught = caught_by_corpus(Path::new(CORPUS));
    for name in &planted {
        let known = caught.contains(name) || MUTANTS.iter().any(|mutant| mutant.name == name);
        if !known {
            findings.faults.push(format!("the defect {name} can be planted, and no model is named for it"));
        }
    }
    for mutant in MUTANTS.iter().filter(|mutant| !mutant.is_of_a_model()) {
        if !planted.iter().any(|name| name == mutant.name) {
            findings.faults.push(format!("the defect {} cannot be planted", mutant.name));
        }
    }
}

/// The defects that some scenario names as the one it catches. That it does is checked where the corpus is replayed.
fn caught_by_corpus(folder: &Path) -> std::collections::BTreeSet<String> {
    let mut caught = std::collections::BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let named = text.lines().filter_map(|line| line.strip_prefix("caught by ")?.split(' ').next());
            caught.extend(named.map(str::to_owned));
        }
    }
    caught
}

#[allow(dead_code, reason = "what is woven is not woven here")]
#[path = "../planted/weave.rs"]
mod weave;

/// The names of all defects that can be planted in the core: those of the edits, and those of the orderings that it names.
pub fn planted_in_core() -> Vec<String> {
    let mut names = weave::names(Path::new(PLANTED));
    orderings_in(Path::new(CORE), &mut names);
    names.into_iter().collect()
}

/// The names in `ordering!("...")` of the sources below `folder`; comments apart.
fn orderings_in(folder: &Path, names: &mut BTreeSet<String>) {
    for path in std::fs::read_dir(folder).expect("the source is there").flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            orderings_in(&path, names);
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file is text");
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let found = line.split("ordering!(\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
            names.extend(found);
        }
    }
}

/// The executions of each model, by checker and name, as they were last written.
pub fn pinned() -> BTreeMap<(String, String), u64> {
    let text = std::fs::read_to_string(PINNED).unwrap_or_default();
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let key = (fields.next()?.to_owned(), fields.next()?.to_owned());
        Some((key, fields.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn check_pinned(findings: &mut Findings) {
    let pinned = pinned();
    for run in &findings.models {
        let key = (run.checker.name().to_owned(), run.model.to_owned());
        let executions = run.ended.outcome.as_ref().map_or(0, |outcome| outcome.executions);
        match pinned.get(&key) {
            Some(least) => {
                let short = falls_short(executions, *least);
                findings.faults.extend(short.map(|short| format!("{} under {}: {short}", key.1, key.0)));
            }
            None => findings.faults.push(format!("{} under {} has no pinned executions: run `page`", key.1, key.0)),
        }
    }
}

/// Says so where there are fewer executions than there were. The order of the buffers' addresses moves loom's counts a little.
pub fn falls_short(executions: u64, before: u64) -> Option<String> {
    (executions * 10 < before * 7).then(|| format!("{executions} executions, {before} before"))
}

fn write_pinned(findings: &Findings) {
    let mut text = String::new();
    for run in &findings.models {
        let executions = run.ended.outcome.as_ref().map_or(0, |outcome| outcome.executions);
        text += &format!("{}\t{}\t{executions}\n", run.checker.name(), run.model);
    }
    std::fs::write(PINNED, text).expect("the pinned executions can be written");
}
