//! The corpus, both ways: every file must go as it says on the core as it is, on every profile that it names, and must
//! fail with each of its planted defects, under the line of the contract that it names.
//!
//! `cargo run --release -p tenure-corpus -- tests/corpus` prints a table: case, kind, profiles, schedules, caught by.
//! It exits with 1 where a file or a defect did not do what it must. `--schedules N` sets how hard it looks; `--only
//! TEXT` takes the files whose name has it.
//!
//! `--break DEFECT` arms that defect instead and prints what each file came to: to see a bug of one's own caught.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use tenure_sim::profile::Profile;
use tenure_sim::scenario::grammar::Defect;
use tenure_sim::scenario::{Loaded, Options, Verdict, load, run_one};

/// What the command line says.
struct Arguments {
    paths: Vec<PathBuf>,
    schedules: u64,
    only: Option<String>,
    broken: Option<String>,
}

fn arguments() -> Option<Arguments> {
    let mut parsed = Arguments { paths: Vec::new(), schedules: 1_000, only: None, broken: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--schedules" => parsed.schedules = words.next()?.parse().ok()?,
            "--only" => parsed.only = Some(words.next()?),
            "--break" => parsed.broken = Some(words.next()?),
            _ => parsed.paths.push(word.into()),
        }
    }
    (!parsed.paths.is_empty()).then_some(parsed)
}

/// One row of the table, and what was wrong.
#[derive(Default)]
struct Row {
    profiles: usize,
    schedules: u64,
    exhaustive: usize,
    caught: Vec<String>,
    wrong: Vec<String>,
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: tenure-corpus PATH... [--schedules N] [--only TEXT] [--break DEFECT]");
        return ExitCode::from(2);
    };
    let (mut loaded, unreadable) = load(&arguments.paths);
    for (file, error) in &unreadable {
        eprintln!("{file}: {error}");
    }
    loaded.retain(|loaded| arguments.only.as_ref().is_none_or(|only| loaded.file.contains(only)));
    let mut options = Options::default();
    options.schedules = arguments.schedules;
    if let Some(defect) = &arguments.broken {
        return show_broken(&loaded, defect, &options);
    }
    let (mut table, mut wrong, mut kinds) = (String::new(), Vec::new(), BTreeMap::new());
    for loaded in &loaded {
        let row = check(loaded, &options);
        let _ = writeln!(table, "{}", markdown(loaded, &row));
        *kinds.entry(loaded.scenario.kind.clone()).or_insert(0_u32) += 1;
        wrong.extend(row.wrong.into_iter().map(|what| format!("{}: {what}", loaded.file)));
    }
    println!("| case | source | kind | profiles | schedules | caught by |\n|---|---|---|---|---|---|\n{table}");
    println!("{} files: {kinds:?}", loaded.len());
    for what in &wrong {
        println!("WRONG {what}");
    }
    if !unreadable.is_empty() {
        return ExitCode::from(2);
    }
    ExitCode::from(u8::from(!wrong.is_empty() || loaded.is_empty()))
}

/// Every file with one defect armed; a file that fails is what was asked for.
fn show_broken(loaded: &[Loaded], defect: &str, options: &Options) -> ExitCode {
    arm(defect);
    let results: Vec<_> = loaded.iter().map(|loaded| run_one(loaded, first_profile(loaded), options)).collect();
    results.iter().for_each(|result| print!("{}", result.to_text()));
    ExitCode::from(u8::from(results.iter().all(|result| result.outcome == Verdict::Ok)))
}

/// The name lives as long as the process; there are as many as defects in files.
fn arm(defect: &str) {
    tenure::mutant::arm(Some(Box::leak(defect.to_owned().into_boxed_str())));
}

fn first_profile(loaded: &Loaded) -> &'static str {
    let mut names = Profile::NAMES.iter().copied();
    names.find(|name| loaded.scenario.profiles.contains(name)).unwrap_or("cuda-13")
}

fn check(loaded: &Loaded, options: &Options) -> Row {
    let mut row = Row::default();
    tenure::mutant::arm(None);
    for profile in Profile::NAMES.iter().filter(|name| loaded.scenario.profiles.contains(name)) {
        let result = run_one(loaded, profile, options);
        row.profiles += 1;
        row.schedules += result.schedules;
        row.exhaustive += usize::from(result.exhaustive);
        if result.outcome != Verdict::Ok {
            row.wrong.push(format!("on {profile}: {}", result.to_text().lines().take(2).collect::<Vec<_>>().join(" ")));
        }
    }
    for defect in &loaded.scenario.defects {
        match caught(loaded, defect, options) {
            Ok(how) => row.caught.push(how),
            Err(why) => row.wrong.push(why),
        }
    }
    row
}

/// Runs the file with a defect armed, on the profile that it names or the first where the file makes sense.
fn caught(loaded: &Loaded, defect: &Defect, options: &Options) -> Result<String, String> {
    let profile = defect.profile.as_deref().unwrap_or_else(|| first_profile(loaded));
    arm(&defect.name);
    let result = run_one(loaded, profile, options);
    tenure::mutant::arm(None);
    let contract = result.contract.as_deref().unwrap_or("nothing");
    match result.outcome {
        Verdict::Ok => Err(format!("{} was not caught in {} schedules on {profile}", defect.name, result.schedules)),
        _ if contract == defect.line.name() => Ok(format!("`{}` as {contract}", defect.name)),
        _ => {
            let message = result.message.unwrap_or_default();
            Err(format!("{} was caught as {contract}, not {}: {message}", defect.name, defect.line))
        }
    }
}

fn markdown(loaded: &Loaded, row: &Row) -> String {
    let scenario = &loaded.scenario;
    let all = if row.exhaustive == row.profiles { " (all)" } else { "" };
    let caught = if row.caught.is_empty() { "-".to_owned() } else { row.caught.join(", ") };
    format!(
        "| {} | {} | {} | {} | {}{all} | {caught} |",
        scenario.title,
        scenario.sources.join(", "),
        scenario.kind,
        row.profiles,
        row.schedules
    )
}
