//! Files and folders of scenarios, on the profiles asked for: what the command `tenure replay` does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::grammar::Scenario;
use super::parse::parse;
use super::progress::Progress;
use super::run::{Explored, Only, Plan, Verdict, explore};
use crate::profile::Profile;

/// What to replay. `Options::default()`: 1,000 schedules on `cuda-13`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Files, and folders whose files that end in `.scenario` are meant, also those in folders below.
    pub paths: Vec<PathBuf>,
    /// Names of profiles; none are all.
    pub profiles: Vec<String>,
    /// The most schedules of one scenario on one profile.
    pub schedules: u64,
    /// Where drawn schedules begin; each takes the next.
    pub seed: u64,
    /// Every order is walked, however many there are.
    pub exhaustive: bool,
    /// Only this schedule: a number, or what a result's `seed` says.
    pub only: Option<String>,
    /// Runs that went well keep their lanes too: of the schedule asked for, or of the one in the program's own order.
    pub traced: bool,
    /// What replays a file, in the results: a command, up to the file's name.
    pub command: String,
    /// Steps of the device and turns of threads, before a schedule counts as endless; 20,000 by default, and 40,000 in
    /// drawn ones.
    pub steps: Option<u64>,
    /// For whoever watches how far it is.
    pub progress: Arc<Progress>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            profiles: vec!["cuda-13".into()],
            schedules: 1_000,
            seed: 0,
            exhaustive: false,
            only: None,
            traced: false,
            command: "tenure replay".into(),
            steps: None,
            progress: Arc::default(),
        }
    }
}

/// One scenario on one profile.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ScenarioResult {
    /// The file.
    pub file: String,
    /// Its title.
    pub title: String,
    /// Its group.
    pub kind: String,
    /// The profile.
    pub profile: String,
    /// Schedules run.
    pub schedules: u64,
    /// Whether those were all that there are.
    pub exhaustive: bool,
    /// What it came to.
    pub outcome: Verdict,
    /// The line of the contract that was broken.
    pub contract: Option<String>,
    /// What happened.
    pub message: Option<String>,
    /// What replays the failure.
    pub seed: Option<String>,
    /// The command that does.
    pub again: Option<String>,
    /// Waits of one stream for another, over all schedules.
    pub edges: u64,
    /// Those that no conflict needed: order for nothing.
    pub edges_needless: u64,
    /// What is legal and no good idea: reads of memory that nothing wrote, say.
    pub warnings: Vec<String>,
    /// The failure as lanes of text; see [`Options::traced`].
    pub lanes: String,
    /// The same as a file for Perfetto.
    pub trace: String,
    /// The same as an SVG drawing.
    pub drawing: String,
    /// The file's text.
    pub source: String,
}

/// What all scenarios came to.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// One for each scenario and profile.
    pub results: Vec<ScenarioResult>,
    /// What could not be read, with why.
    pub unreadable: Vec<(String, String)>,
    /// Files that make no sense on any profile that was asked for, with those on which they do.
    pub skipped: Vec<(String, String)>,
}

impl Outcome {
    /// Whether all files could be read and all went as they say.
    pub fn is_ok(&self) -> bool {
        self.unreadable.is_empty() && self.results.iter().all(|result| result.outcome == Verdict::Ok)
    }

    /// What a process should exit with: 0 all as expected, 1 not, 2 unreadable.
    pub fn exit_code(&self) -> u8 {
        if !self.unreadable.is_empty() || self.results.iter().any(|result| result.outcome == Verdict::Error) {
            2
        } else {
            u8::from(!self.is_ok())
        }
    }
}

/// A scenario that was read.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its file.
    pub file: String,
    /// Its text.
    pub source: String,
    /// What the text says.
    pub scenario: Arc<Scenario>,
}

/// Replays what `options` name; `done` hears of each result as it comes, with how many there will be.
///
/// # Examples
/// ```
/// use tenure_sim::scenario::{Options, replay_text};
/// let outcome = replay_text("two readers", "stream A, B\nbuffer x 4 on A\nwrite x = 7 on A\nread x on B\ndrop x", &Options::default());
/// assert!(outcome.is_ok());
/// ```
pub fn replay(options: &Options, mut done: impl FnMut(&ScenarioResult, usize)) -> Outcome {
    let (loaded, unreadable) = load(&options.paths);
    let mut outcome = Outcome { unreadable, ..Outcome::default() };
    if let Some(error) = wrong(options) {
        outcome.unreadable.push(error);
        return outcome;
    }
    outcome.skipped = loaded.iter().filter_map(|loaded| skipped(loaded, options)).collect();
    let jobs: Vec<_> = loaded.iter().flat_map(|loaded| jobs(loaded, options)).collect();
    for (loaded, profile) in &jobs {
        let result = run_one(loaded, profile, options);
        done(&result, jobs.len());
        outcome.results.push(result);
    }
    outcome
}

/// Replays a text instead of files.
pub fn replay_text(name: &str, text: &str, options: &Options) -> Outcome {
    let mut outcome = Outcome { unreadable: wrong(options).into_iter().collect(), ..Outcome::default() };
    match parse(text) {
        Ok(scenario) if outcome.unreadable.is_empty() => {
            let loaded = Loaded { file: name.into(), source: text.into(), scenario: Arc::new(scenario) };
            let results = jobs(&loaded, options);
            outcome.skipped = skipped(&loaded, options).into_iter().collect();
            outcome.results = results.iter().map(|(loaded, profile)| run_one(loaded, profile, options)).collect();
        }
        Ok(_) => {}
        Err(error) => outcome.unreadable.push((name.into(), error.to_string())),
    }
    outcome
}

/// Reads files and folders, in the order of their names; what cannot be read comes with why.
pub fn load(paths: &[PathBuf]) -> (Vec<Loaded>, Vec<(String, String)>) {
    let (mut files, mut unreadable) = (Vec::new(), Vec::new());
    for path in paths {
        let before = files.len();
        let why = match find(path, true, 0, &mut files) {
            Err(error) => error.to_string(),
            Ok(()) if files.len() == before => "holds no file that ends in .scenario".to_owned(),
            Ok(()) => continue,
        };
        unreadable.push((path.display().to_string(), why));
    }
    let mut loaded = Vec::new();
    for path in files {
        let file = path.display().to_string();
        match fs::read_to_string(&path) {
            Ok(source) => match parse(&source) {
                Ok(scenario) => loaded.push(Loaded { file, source, scenario: Arc::new(scenario) }),
                Err(error) => unreadable.push((file, error.to_string())),
            },
            Err(error) => unreadable.push((file, error.to_string())),
        }
    }
    (loaded, unreadable)
}

fn find(path: &Path, is_named: bool, depth: u32, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        if depth > FOLDERS_DEEP_MAX {
            return Ok(());
        }
        let mut entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        return entries.iter().try_for_each(|entry| find(entry, false, depth + 1, files));
    }
    if is_named || path.extension().is_some_and(|extension| extension == "scenario") {
        files.push(path.to_owned());
    }
    Ok(())
}

/// A link that leads back up ends here.
const FOLDERS_DEEP_MAX: u32 = 16;

fn wrong(options: &Options) -> Option<(String, String)> {
    let unknown = options.profiles.iter().find(|name| Profile::named(name).is_none());
    if let Some(name) = unknown {
        let error = format!("no such profile; there are {} and all", Profile::NAMES.join(", "));
        return Some((name.clone(), error));
    }
    let seed = options.only.as_ref().filter(|seed| only(seed).is_none());
    seed.map(|seed| (seed.clone(), "no seed: a number, or path:0.2.1 as a result says".to_owned()))
}

fn skipped(loaded: &Loaded, options: &Options) -> Option<(String, String)> {
    let makes_sense = Profile::NAMES.iter().copied().filter(|name| loaded.scenario.profiles.contains(name));
    jobs(loaded, options).is_empty().then(|| (loaded.file.clone(), makes_sense.collect::<Vec<_>>().join(", ")))
}

fn jobs<'l>(loaded: &'l Loaded, options: &Options) -> Vec<(&'l Loaded, &'static str)> {
    let asked = |name: &str| options.profiles.is_empty() || options.profiles.iter().any(|profile| profile == name);
    let names = Profile::NAMES.iter().copied();
    names.filter(|name| asked(name) && loaded.scenario.profiles.contains(name)).map(|name| (loaded, name)).collect()
}

fn only(seed: &str) -> Option<Only> {
    let choices = |key: &str| {
        let numbers = key.split('.').filter(|part| !part.is_empty());
        numbers.map(|number| number.parse().ok()).collect::<Option<Vec<u16>>>()
    };
    match (seed.strip_prefix("path:"), seed.strip_prefix("long:")) {
        (Some(key), _) => choices(key).map(Only::Path),
        (_, Some(key)) => choices(key).map(Only::LongPath),
        _ => seed.parse().ok().map(Only::Seed),
    }
}

/// Plays one scenario on one profile.
pub fn run_one(loaded: &Loaded, profile: &str, options: &Options) -> ScenarioResult {
    let scenario = &loaded.scenario;
    let plan = Plan {
        schedules: options.schedules.max(1),
        seed: options.seed,
        exhaustive: options.exhaustive,
        only: options.only.as_deref().and_then(only),
        traced: options.traced,
        steps: options.steps,
        progress: options.progress.clone(),
    };
    options.progress.begin(&loaded.file, profile);
    let played = Profile::named(profile).map(|profile| explore(scenario, &profile, &plan));
    let Explored { schedules, exhaustive, order, warnings, failed, went_well, .. } = played.unwrap_or_default();
    let mut result = ScenarioResult {
        file: loaded.file.clone(),
        title: scenario.title.clone(),
        kind: scenario.kind.clone(),
        profile: profile.to_owned(),
        schedules,
        exhaustive,
        edges: order.edges,
        edges_needless: order.edges - order.edges_needed,
        warnings: warnings.into_iter().collect(),
        source: loaded.source.clone(),
        ..ScenarioResult::default()
    };
    if let Some(played) = went_well {
        (result.lanes, result.trace, result.drawing) = (played.lanes, played.perfetto, played.drawing);
    }
    if let Some((played, seed)) = failed {
        let steps = options.steps.map(|steps| format!(" --steps {steps}")).unwrap_or_default();
        result.again = Some(format!("{} {} --profile {profile} --seed {seed}{steps}", options.command, loaded.file));
        result.seed = Some(seed);
        (result.lanes, result.trace, result.drawing) = (played.lanes, played.perfetto, played.drawing);
        match played.failure {
            Some(failure) => {
                result.outcome = failure.verdict;
                result.contract = failure.line.map(|line| line.name().to_owned());
                result.message = Some(failure.message);
            }
            None => {
                result.outcome = Verdict::Error;
                result.message = Some("the failure did not show again under its own schedule".into());
            }
        }
    }
    result
}
