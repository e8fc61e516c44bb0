//! `tenure tour`: runs the tour and tells what it did.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde::Serialize;
use tenure::ReclaimMode;
use tenure_hip::Hip;
use tenure_sim::Config;
use tenure_sim::drive::Drive;
use tenure_sim::driver::{Report, Sim};
use tenure_sim::profile::Profile;

use crate::tour::{self, Job, Options, Outcome};

/// The picture that ships.
const PICTURE: &[u8] = include_bytes!("../assets/julia.ppm");
/// After so many steps a seeded tour counts as endless.
const STEPS_MAX: u64 = 1 << 40;
/// Rows of the trace that `--trace` keeps.
const TRACE_ROWS: usize = 1 << 18;
/// A tour that takes longer shows how far it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// What `tenure tour` takes.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The file to work on; any will do. By default a picture that ships.
    file: Option<PathBuf>,
    /// What to run on.
    #[arg(long, value_enum, default_value_t)]
    on: Device,
    /// Which driver the simulated device behaves as.
    #[arg(long, default_value = "cuda-13")]
    profile: String,
    /// Which schedule of threads and device: the same number, the same run.
    #[arg(long, default_value_t = 0, conflicts_with = "threads")]
    seed: u64,
    /// Real threads and a device thread, in real time, instead of a seeded schedule.
    #[arg(long)]
    threads: bool,
    /// Print one JSON object instead of a report.
    #[arg(long)]
    json: bool,
    /// Write the timeline of threads and streams to this file, for ui.perfetto.dev (simulator only).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Device {
    /// The simulated device.
    #[default]
    Sim,
    /// The first HIP device.
    Hip,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            file: None,
            on: Device::Sim,
            profile: "cuda-13".to_owned(),
            seed: 0,
            threads: false,
            json: false,
            trace: None,
        }
    }
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Figures {
    backend: String,
    seed: Option<u64>,
    input_bytes: usize,
    launches: u64,
    handovers: u64,
    edges_inserted: u64,
    edges_skipped: u64,
    covered_launches: u64,
    streams_created: u64,
    leases: u64,
    pins_made: u64,
    pins_shared: u64,
    releases: u64,
    replays: u64,
    digest: String,
    violations: usize,
    verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

/// What a run leaves besides the outcome.
struct Ran {
    backend: String,
    outcome: Outcome,
    report: Option<Report>,
    trace: Option<String>,
}

/// Runs the tour; the exit code.
///
/// # Errors
/// A line on what cannot be read, found or written.
pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let input = read(arguments.file.as_deref())?;
    let input_bytes = input.len();
    let ran = match (arguments.on, arguments.threads) {
        (Device::Hip, _) => on_hip(arguments, input)?,
        (Device::Sim, true) => on_sim_threaded(arguments, input)?,
        (Device::Sim, false) => on_sim_seeded(arguments, input)?,
    };
    if let (Some(path), Some(trace)) = (&arguments.trace, &ran.trace) {
        std::fs::write(path, trace).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let figures = figures(arguments, input_bytes, &ran);
    if arguments.json {
        println!("{}", serde_json::to_string(&figures).map_err(|error| error.to_string())?);
    } else {
        print_report(&figures, &ran);
    }
    let is_fine = figures.verified && figures.violations == 0;
    Ok(if is_fine { crate::FINE } else { crate::BROKEN })
}

fn read(path: Option<&Path>) -> Result<Vec<u8>, String> {
    let Some(path) = path else { return Ok(PICTURE.to_vec()) };
    let input = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match input.is_empty() {
        true => Err(format!("{} is empty: there is nothing to work on", path.display())),
        false => Ok(input),
    }
}

fn profile(arguments: &Arguments) -> Result<Profile, String> {
    Profile::named(&arguments.profile)
        .ok_or_else(|| format!("there is no profile `{}`; there are {}", arguments.profile, Profile::NAMES.join(", ")))
}

/// One seed decides how threads and device take turns.
fn on_sim_seeded(arguments: &Arguments, input: Vec<u8>) -> Result<Ran, String> {
    let rows = if arguments.trace.is_some() { TRACE_ROWS } else { 4096 };
    let config = Config::default()
        .profile(profile(arguments)?)
        .seed(arguments.seed)
        .schedules(1)
        .steps_max(STEPS_MAX)
        .trace_rows(rows)
        .fibers();
    let slot = Arc::new(Mutex::new(None));
    let (keep, wants_trace, progress) = (slot.clone(), arguments.trace.is_some(), progress());
    let checked = config.run(move |sim| {
        crate::kernels::register(sim);
        let run = |jobs: Vec<Job>| {
            let threads: Vec<_> = jobs.into_iter().map(|job| sim.spawn("worker", job)).collect();
            threads.into_iter().for_each(|thread| thread.join());
        };
        let (input, progress) = (input.clone(), progress.clone());
        let outcome = tour::run(sim.clone(), Options { input, reclaim: ReclaimMode::Manual, run: &run, progress });
        let trace = wants_trace.then(|| sim.perfetto());
        *keep.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((outcome, trace));
    });
    let kept = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    let report = checked.failure.as_ref().map(|failure| failure.report.clone());
    let Some((outcome, trace)) = kept else {
        let failure = checked.failure.map_or_else(|| "no reason is known".to_owned(), |failure| failure.to_string());
        return Err(format!("the tour did not end: {failure}"));
    };
    let mut outcome = outcome.map_err(|error| format!("the tour could not start: {error}"))?;
    if let Some(failure) = checked.failure {
        outcome.fault.get_or_insert_with(|| failure.to_string());
    }
    Ok(Ran { backend: format!("sim {}", arguments.profile), outcome, report, trace })
}

/// Real threads, and the device on one of its own.
fn on_sim_threaded(arguments: &Arguments, input: Vec<u8>) -> Result<Ran, String> {
    let sim = Sim::builder().profile(profile(arguments)?).drive(Drive::Threaded).trace_rows(TRACE_ROWS).build();
    crate::kernels::register(&sim);
    let outcome = threaded(sim.clone(), input)?;
    let report = sim.finish();
    let trace = arguments.trace.is_some().then(|| sim.perfetto());
    Ok(Ran { backend: format!("sim {}", arguments.profile), outcome, report: Some(report), trace })
}

fn on_hip(arguments: &Arguments, input: Vec<u8>) -> Result<Ran, String> {
    if arguments.trace.is_some() {
        return Err("--trace needs the simulator: a real device tells no timeline here".to_owned());
    }
    let device = Hip::open(0).map_err(|error| format!("no HIP device: {error}; see `tenure doctor`"))?;
    let backend = format!("hip {} ({})", device.version(), device.info().name);
    Ok(Ran { backend, outcome: threaded(device, input)?, report: None, trace: None })
}

fn threaded<D: tenure::Driver>(driver: D, input: Vec<u8>) -> Result<Outcome, String> {
    let run = |jobs: Vec<Job>| {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(job);
            }
        });
    };
    let options = Options { input, reclaim: ReclaimMode::Worker, run: &run, progress: progress() };
    tour::run(driver, options).map_err(|error| format!("the tour could not start: {error}"))
}

/// A bar, once it takes long, where somebody is looking.
fn progress() -> Arc<dyn Fn(usize, usize) + Send + Sync> {
    let (start, bar) = (Instant::now(), Mutex::new(None::<ProgressBar>));
    let is_watched = std::io::stderr().is_terminal();
    Arc::new(move |done, all| {
        if !is_watched || start.elapsed() < PATIENCE {
            return;
        }
        let mut bar = bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        bar.get_or_insert_with(|| ProgressBar::new(all as u64)).set_position(done as u64);
        if done == all
            && let Some(bar) = bar.take()
        {
            bar.finish_and_clear();
        }
    })
}

fn figures(arguments: &Arguments, input_bytes: usize, ran: &Ran) -> Figures {
    let (stats, outcome) = (&ran.outcome.stats, &ran.outcome);
    let violations = ran.report.as_ref().map_or(0, |report| report.violations().count());
    let fault = outcome.fault.clone().or_else(|| outcome.leftover.clone());
    Figures {
        backend: ran.backend.clone(),
        seed: (arguments.on == Device::Sim && !arguments.threads).then_some(arguments.seed),
        input_bytes,
        launches: stats.streams.launches,
        handovers: stats.streams.handovers,
        edges_inserted: stats.streams.edges_inserted,
        edges_skipped: stats.streams.edges_skipped,
        covered_launches: stats.streams.covered,
        streams_created: stats.streams.made,
        leases: stats.streams.leases,
        pins_made: stats.pins_made,
        pins_shared: stats.pins_shared,
        releases: stats.released,
        replays: outcome.replays,
        digest: format!("{:016x}", outcome.digest),
        violations,
        verified: fault.is_none(),
        fault,
    }
}

fn print_report(figures: &Figures, ran: &Ran) {
    let how = figures.seed.map_or_else(|| "real threads".to_owned(), |seed| format!("seed {seed}"));
    println!("tour of {} bytes on {}, {how}", figures.input_bytes, figures.backend);
    println!(
        "  submissions   {:>8}   of which {} needed only their stream's gate",
        figures.launches, figures.covered_launches
    );
    println!(
        "  hand-overs    {:>8}   edges inserted {}, not needed {}",
        figures.handovers, figures.edges_inserted, figures.edges_skipped
    );
    println!("  streams made  {:>8}   for {} leases", figures.streams_created, figures.leases);
    println!("  pins made     {:>8}   shared {} times more", figures.pins_made, figures.pins_shared);
    println!("  graph replays {:>8}", figures.replays);
    println!("  released      {:>8}   things that were let go", figures.releases);
    println!("  violations    {:>8}", figures.violations);
    println!("  digest        {}   of all results, equal on every device", figures.digest);
    match &figures.fault {
        None => println!("every result equals the plain computation; nothing is left"),
        Some(fault) => println!("WRONG: {fault}"),
    }
    if let Some(report) = ran.report.as_ref().filter(|report| !report.is_clean()) {
        println!("{report}");
    }
}
