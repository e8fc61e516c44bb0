//! `tenure replay`: scenario files under every schedule, and what came of them.
//!
//! Results go to standard output, what could not be read and the bar to standard error. A thread of its own looks on:
//! it draws the bar, and ends the command when one schedule takes longer than `--seconds`. That is the last resort:
//! schedules are bounded by steps, and only code that spins without a call of the driver, or steps that take long, get
//! past those.

use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tenure_sim::scenario::{Options, Outcome, Progress, ScenarioResult, Verdict, replay};

/// A replay that takes longer shows how far it is.
const PATIENCE_BAR: Duration = Duration::from_secs(1);
/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(200);

/// What `tenure replay` takes.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Scenario files, and folders for the files in them that end in `.scenario`.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Which driver the simulated device behaves as, or `all`.
    #[arg(long, value_name = "NAME", default_value = "cuda-13")]
    profile: String,
    /// The most schedules of one scenario on one profile.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    schedules: u64,
    /// Only this schedule: a number, or what a result says after `--seed`.
    #[arg(long, value_name = "S", conflicts_with_all = ["schedules", "exhaustive"])]
    seed: Option<String>,
    /// Every order, however many there are.
    #[arg(long, conflicts_with = "schedules")]
    exhaustive: bool,
    /// The most steps of one schedule, of the device and turns of threads: more have no end. 20000 if not said, and
    /// 40000 where the order is drawn.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// The most seconds that one schedule may take; most take microseconds.
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Write the first failure, or else the first run, to this file, for ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write one page that needs nothing else, with the lanes drawn.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print a line of JSON for each scenario and profile instead of a report.
    #[arg(long)]
    json: bool,
}

/// Replays what `options` name; the exit code: 0 all as expected, 1 not, 2 unreadable.
///
/// # Errors
/// A line on what cannot be written.
pub fn run(arguments: &Arguments, options: &Options) -> Result<u8, String> {
    let watch = Watch::start(options.progress.clone(), Duration::from_secs(arguments.seconds), arguments.json);
    let mut printed = Ok(());
    let outcome = replay(options, |result, all| {
        watch.tell(result, all);
        if arguments.json && printed.is_ok() {
            printed = print(&result.to_json());
        }
    });
    watch.end();
    printed?;
    for (file, why) in &outcome.unreadable {
        eprintln!("tenure: {file}: {why}");
    }
    for (file, profiles) in &outcome.skipped {
        eprintln!("tenure: {file}: not for this profile, but for {profiles}");
    }
    print(&report(&outcome, arguments.json))?;
    if let Some(path) = &arguments.html {
        write(path, &outcome.to_html())?;
    }
    if let (Some(path), Some(result)) = (&arguments.trace, shown(&outcome)) {
        write(path, &result.trace)?;
    }
    let nothing_ran = outcome.results.is_empty();
    Ok(if nothing_ran { crate::UNUSABLE } else { outcome.exit_code() })
}

impl Arguments {
    /// What to replay.
    ///
    /// # Errors
    /// There is no such profile.
    pub fn options(&self) -> Result<Options, String> {
        let mut options = Options::default();
        options.paths.clone_from(&self.paths);
        options.profiles = match self.profile.as_str() {
            "all" => Vec::new(),
            name => vec![crate::facts::profile(name).map(|_known| name.to_owned())?],
        };
        options.schedules = self.schedules;
        options.exhaustive = self.exhaustive;
        options.steps = self.steps;
        options.only.clone_from(&self.seed);
        options.traced = self.trace.is_some() || self.html.is_some();
        Ok(options)
    }
}

/// The result whose lanes are shown.
fn shown(outcome: &Outcome) -> Option<&ScenarioResult> {
    let failed = outcome.results.iter().find(|result| result.outcome != Verdict::Ok);
    failed.or(outcome.results.first())
}

/// The first failure in full, the others without their lanes, and how many there were; or, as JSON, what no result
/// has said yet.
fn report(outcome: &Outcome, is_json: bool) -> String {
    if is_json {
        let mut unread = Outcome::default();
        unread.unreadable.clone_from(&outcome.unreadable);
        return unread.to_json();
    }
    let failed = outcome.results.iter().filter(|result| result.outcome != Verdict::Ok);
    let text = failed.enumerate().map(|(index, result)| match index {
        0 => result.to_text(),
        _ => result.headline(),
    });
    text.collect::<String>() + &outcome.remarks() + &outcome.summary() + "\n"
}

/// The reader of the output may stop early: `tenure replay ... | head`.
fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// How many results there are, of how many, and what those said that are not as expected.
#[derive(Default)]
struct Far {
    done: u64,
    all: u64,
    failed: String,
}

/// Looks on while another thread replays.
struct Watch {
    far: Arc<Mutex<Far>>,
    over: Sender<()>,
    thread: JoinHandle<()>,
}

/// What the thread that looks on needs.
struct Lookout {
    far: Arc<Mutex<Far>>,
    progress: Arc<Progress>,
    /// How long one schedule may take.
    patience: Duration,
    has_bar: bool,
    is_json: bool,
}

impl Watch {
    fn start(progress: Arc<Progress>, patience: Duration, is_json: bool) -> Self {
        let (over, heard) = channel();
        let far = Arc::new(Mutex::new(Far::default()));
        // Lines of JSON on the same screen would tear the bar.
        let has_bar = std::io::stderr().is_terminal() && !(is_json && std::io::stdout().is_terminal());
        let lookout = Lookout { far: far.clone(), progress, patience, has_bar, is_json };
        let thread = std::thread::spawn(move || lookout.look_on(&heard));
        Self { far, over, thread }
    }

    fn tell(&self, result: &ScenarioResult, all: usize) {
        let mut far = self.far.lock().unwrap_or_else(PoisonError::into_inner);
        far.done += 1;
        far.all = all as u64;
        if result.outcome != Verdict::Ok {
            far.failed += &result.headline();
        }
    }

    fn end(self) {
        drop(self.over);
        // It ends at once, and has nothing to say.
        let _ended = self.thread.join();
    }
}

impl Lookout {
    fn look_on(&self, over: &Receiver<()>) {
        let start = Instant::now();
        let mut bar = None;
        let mut moved = (0, start);
        while over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            let schedules = self.progress.ended();
            if schedules != moved.0 {
                moved = (schedules, Instant::now());
            }
            let far = self.far.lock().unwrap_or_else(PoisonError::into_inner);
            if self.has_bar && start.elapsed() >= PATIENCE_BAR {
                draw(bar.get_or_insert_with(new_bar), &far, schedules);
            }
            if moved.1.elapsed() >= self.patience {
                self.give_up(&far);
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
    }

    /// The thread that replays cannot be stopped from here: the process ends, with what is known so far.
    fn give_up(&self, far: &Far) -> ! {
        let endless = self.progress.endless(self.patience);
        // As results come, JSON has been printed.
        let text = if self.is_json { endless.to_json() } else { format!("{}{}", far.failed, endless.headline()) };
        if let Err(error) = print(&text) {
            eprintln!("tenure: {error}");
        }
        std::process::exit(i32::from(crate::BROKEN))
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn draw(bar: &ProgressBar, far: &Far, schedules: u64) {
    bar.set_length(far.all.max(1));
    bar.set_position(far.done);
    bar.set_message(format!("{schedules} schedules"));
}
