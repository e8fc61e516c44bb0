//! The table: what every file came to, and by what it was caught.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use tenure_sim::profile::Profile;
use tenure_sim::scenario::grammar::Defect;
use tenure_sim::scenario::{Loaded, Options, Verdict, load, run_one};

use crate::defects;
use crate::replay::Arguments;

/// What stands around the table in the file that has it.
const MARKS: (&str, &str) = ("<!-- table -->\n", "<!-- end of the table -->\n");

/// One row of the table, and what was wrong.
#[derive(Default)]
struct Row {
    profiles: usize,
    schedules: u64,
    exhaustive: usize,
    caught: Vec<String>,
    wrong: Vec<String>,
}

/// Checks every file and prints the table; the exit code.
///
/// # Errors
/// A line on what cannot be read or written.
pub fn run(arguments: &crate::Table, replay: &Arguments) -> Result<u8, String> {
    let options = replay.options()?;
    let (mut loaded, unreadable) = load(&options.paths);
    for (file, error) in &unreadable {
        eprintln!("tenure-corpus: {file}: {error}");
    }
    loaded.retain(|loaded| arguments.only.as_ref().is_none_or(|only| loaded.file.contains(only)));
    let (mut lines, mut wrong, mut kinds) = (String::new(), Vec::new(), BTreeMap::new());
    let mut used = BTreeSet::new();
    for loaded in &loaded {
        let row = check(loaded, &options);
        let _ = writeln!(lines, "{}", markdown(loaded, &row));
        *kinds.entry(loaded.scenario.kind.as_str()).or_insert(0_u32) += 1;
        used.extend(loaded.scenario.defects.iter().map(|defect| defect.name.clone()));
        wrong.extend(row.wrong.into_iter().map(|what| format!("{}: {what}", loaded.file)));
    }
    let table = table(&lines, &loaded, &kinds, used.len());
    match &arguments.readme {
        Some(file) => wrong.extend(put(file, &table, arguments.check)?),
        None => print!("{table}"),
    }
    wrong.iter().for_each(|what| println!("WRONG {what}"));
    println!("{} files, {} defects, {} wrong", loaded.len(), used.len(), wrong.len());
    Ok(match (unreadable.is_empty() && !loaded.is_empty(), wrong.is_empty()) {
        (false, _) => crate::UNUSABLE,
        (true, false) => crate::BROKEN,
        (true, true) => crate::FINE,
    })
}

fn table(lines: &str, loaded: &[Loaded], kinds: &BTreeMap<&str, u32>, defects: usize) -> String {
    let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!(
        "| case | source | kind | profiles | schedules | caught by |\n|---|---|---|---|---|---|\n{lines}\n\
         {} files ({}), {defects} defects.\n",
        loaded.len(),
        kinds.join(", "),
    )
}

/// Puts the table between the marks of `file`, or says that it stands there otherwise.
fn put(file: &Path, table: &str, is_check: bool) -> Result<Option<String>, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    let parts = text.split_once(MARKS.0).and_then(|(before, rest)| Some((before, rest.split_once(MARKS.1)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{name} has no {} and {}", MARKS.0.trim(), MARKS.1.trim()))?;
    let made = format!("{before}{}{table}{}{after}", MARKS.0, MARKS.1);
    match (made == text, is_check) {
        (true, _) => Ok(None),
        (false, true) => Ok(Some(format!("{name} is not what the run gives"))),
        (false, false) => {
            std::fs::write(file, made).map_err(|error| format!("cannot write {name}: {error}")).map(|()| None)
        }
    }
}

fn first_profile(loaded: &Loaded) -> &'static str {
    let mut names = Profile::NAMES.iter().copied();
    names.find(|name| loaded.scenario.profiles.contains(name)).unwrap_or("cuda-13")
}

fn check(loaded: &Loaded, options: &Options) -> Row {
    let mut row = Row::default();
    defects::disarm();
    for profile in Profile::NAMES.iter().filter(|name| loaded.scenario.profiles.contains(name)) {
        let result = run_one(loaded, profile, options);
        row.profiles += 1;
        row.schedules += result.schedules;
        row.exhaustive += usize::from(result.exhaustive);
        if result.outcome != Verdict::Ok {
            row.wrong
                .push(format!("on {profile}: {}", result.headline().lines().take(2).collect::<Vec<_>>().join(" ")));
        }
    }
    for defect in &loaded.scenario.defects {
        match caught(loaded, defect, options) {
            Ok(how) => row.caught.push(how),
            Err(why) => row.wrong.push(why),
        }
    }
    if loaded.scenario.defects.is_empty() && loaded.scenario.uncaught.is_none() {
        row.wrong.push("it names no defect, and not why".into());
    }
    row
}

/// Runs the file with a defect armed, on the profile that it names or the first where the file makes sense; and once
/// more under the schedule that was reported.
fn caught(loaded: &Loaded, defect: &Defect, options: &Options) -> Result<String, String> {
    let profile = defect.profile.as_deref().unwrap_or_else(|| first_profile(loaded));
    defects::arm(&defect.name)?;
    let result = run_one(loaded, profile, options);
    let mut alone = options.clone();
    alone.only.clone_from(&result.seed);
    let again = run_one(loaded, profile, &alone);
    defects::disarm();
    let contract = result.contract.as_deref().unwrap_or("nothing");
    let message = result.message.unwrap_or_default();
    let name = &defect.name;
    if result.outcome == Verdict::Ok {
        Err(format!("{name} was not caught in {} schedules on {profile}", result.schedules))
    } else if contract != defect.line.name() {
        Err(format!("{name} was caught as {contract}, not {}: {message}", defect.line))
    } else if again.message.as_ref() != Some(&message) {
        let (seed, again) = (result.seed.unwrap_or_default(), again.message.unwrap_or_default());
        Err(format!("{name}: {seed} does not replay `{message}` but `{again}`"))
    } else {
        Ok(format!("`{name}` as {contract}"))
    }
}

fn markdown(loaded: &Loaded, row: &Row) -> String {
    let scenario = &loaded.scenario;
    let all = if row.exhaustive == row.profiles { " (all)" } else { "" };
    let caught = match &scenario.uncaught {
        Some(why) if row.caught.is_empty() => format!("- {why}"),
        _ => row.caught.join(", "),
    };
    let (sources, kind, profiles, schedules) =
        (scenario.sources.join(", "), &scenario.kind, row.profiles, row.schedules);
    format!("| {} | {sources} | {kind} | {profiles} | {schedules}{all} | {caught} |", scenario.title)
}
