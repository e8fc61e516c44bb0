//! Runs one model in this process.
//!
//! The bound is set here and in the models' table, never by the environment. No cap is ever set: loom's caps end
//! green. The first failure prints its sentence and ends the process at once, since unwinding through a checker's
//! threads can fail a second time for another reason.

use std::io::Write as _;
use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::model::{Litmus, Model, Outcomes, Reached, Search};
use crate::{Checker, PLANTED, on_loom, on_shuttle, on_threads, schedule, soak};

/// What to run.
#[derive(Args, Clone, Debug)]
pub struct Order {
    /// The checker.
    pub checker: Checker,
    /// The model, or `litmus:NAME` for the outcomes of a litmus program.
    pub model: String,
    /// A planted defect to arm.
    #[arg(long)]
    pub mutant: Option<String>,
    /// Loom: the bound of preemptions instead of the table's; `none` for every schedule.
    #[arg(long)]
    pub bound: Option<String>,
    /// Shuttle: samples instead of the table's search.
    #[arg(long)]
    pub samples: Option<usize>,
    /// Shuttle: one schedule, drawn at random from this seed, instead of the table's search.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Loom: where to keep the failing schedule. Run twice: the second run begins with it.
    #[arg(long)]
    pub checkpoint: Option<PathBuf>,
    /// Shuttle: replay this schedule, as printed by the failure.
    #[arg(long)]
    pub schedule: Option<String>,
    /// Seconds after which it is given up, unfinished: what it explored so far is printed.
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Print the calls of the failing execution.
    #[arg(long)]
    pub verbose: bool,
}

/// What came of it: one line of JSON on the standard output.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// How many executions there were; where one failed, its number.
    pub executions: u64,
    /// Whether it was given up before all was explored.
    pub unfinished: bool,
    /// Why the last one failed.
    pub failure: Option<String>,
    /// Contested paths that no execution took.
    pub missing: Vec<String>,
    /// For litmus programs: what the executions saw.
    pub outcomes: Vec<Vec<u64>>,
}

/// A failed model ends the process with this code.
pub const FAILED: u8 = 1;
/// One that was given up, with this.
pub const UNFINISHED: u8 = 3;

/// Runs and prints the outcome.
pub fn run(order: &Order) -> ExitCode {
    arm(order.mutant.as_deref());
    fail_at_once(order.verbose);
    if let Some(seconds) = order.seconds {
        give_up_after(Duration::from_secs(seconds));
    }
    let outcome = match order.model.strip_prefix("litmus:") {
        Some(name) => run_litmus(order, name),
        None => run_model(order),
    };
    match outcome {
        Some(outcome) => {
            print(&outcome);
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("there is no model of the name {}", order.model);
            ExitCode::from(2)
        }
    }
}

/// Ends the process after `limit`, and says that the run did not: a checker's own cap would end it as if it had.
fn give_up_after(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        print(&Outcome { executions: schedule::executions(), unfinished: true, ..Outcome::default() });
        std::process::exit(i32::from(UNFINISHED));
    });
}

/// The models of a checker.
pub fn models(checker: Checker) -> Vec<&'static Model> {
    match checker {
        Checker::Loom => on_loom::models::all(),
        Checker::Shuttle => on_shuttle::models::all().into_iter().chain(soak::MODELS).collect(),
        Checker::Threads => on_threads::models::all(),
    }
}

/// The litmus programs of a checker.
pub fn litmus(checker: Checker) -> &'static [Litmus] {
    match checker {
        Checker::Loom => on_loom::models::litmus::SETS,
        Checker::Shuttle => on_shuttle::models::litmus::SETS,
        Checker::Threads => on_threads::models::litmus::SETS,
    }
}

fn run_model(order: &Order) -> Option<Outcome> {
    let model = models(order.checker).into_iter().find(|model| model.name == order.model)?;
    let reached = Arc::new(Reached::new(model.reaches));
    let bound = order.bound.as_deref().map_or(model.bound, parse_bound);
    let checker = order.checker;
    let body = {
        let reached = Arc::clone(&reached);
        move || {
            schedule::begin();
            (model.body)(&reached);
            schedule::end();
            take_back(checker);
        }
    };
    let search = order.samples.map_or(model.search, Search::Sample);
    explore(order, bound, search, body);
    let missing = reached.missing().into_iter().map(str::to_owned).collect();
    Some(Outcome { executions: schedule::executions(), missing, ..Outcome::default() })
}

/// Takes back what the core leaked in this execution, so that a leak on purpose is none to the checker. On real threads it is one.
fn take_back(checker: Checker) {
    match checker {
        Checker::Loom => tenure_loom::sync::take_back(),
        Checker::Shuttle => tenure_shuttle::sync::take_back(),
        Checker::Threads => {}
    }
}

fn run_litmus(order: &Order, name: &str) -> Option<Outcome> {
    let program = litmus(order.checker).iter().find(|program| program.name == name)?;
    let outcomes = Arc::new(Outcomes::default());
    let body = {
        let outcomes = Arc::clone(&outcomes);
        move || {
            schedule::begin();
            outcomes.add((program.body)());
        }
    };
    explore(order, program.bound, Search::Every, body);
    let outcomes = outcomes.all().into_iter().collect();
    Some(Outcome { executions: schedule::executions(), outcomes, ..Outcome::default() })
}

fn explore(order: &Order, bound: Option<usize>, search: Search, body: impl Fn() + Send + Sync + 'static) {
    match order.checker {
        Checker::Loom => explore_loom(order, bound, body),
        Checker::Shuttle => explore_shuttle(order, search, body),
        Checker::Threads => (0..THREAD_RUNS).for_each(|_| body()),
    }
}

const THREAD_RUNS: usize = 2000;
const SEED: u64 = 0x7e_4e_0e;
const STACK_BYTES: usize = 512 * 1024;

fn explore_loom(order: &Order, bound: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_threads = 5;
    builder.max_branches = 20_000;
    builder.max_permutations = None;
    builder.max_duration = None;
    builder.preemption_bound = bound;
    builder.expect_explicit_explore = false;
    builder.checkpoint_file = order.checkpoint.clone();
    builder.checkpoint_interval = if order.checkpoint.is_some() { 1 } else { 20_000 };
    builder.location = order.verbose && order.checkpoint.is_some();
    builder.log = false;
    builder.check(body);
}

fn explore_shuttle(order: &Order, search: Search, body: impl Fn() + Send + Sync + 'static) {
    use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, ReplayScheduler, UrwRandomScheduler};
    let mut config = shuttle::Config::new();
    config.silence_warnings = true;
    config.stack_size = STACK_BYTES;
    config.failure_persistence = shuttle::FailurePersistence::None;
    if order.verbose {
        config.failure_persistence = shuttle::FailurePersistence::Print;
    }
    let body = Arc::new(body);
    let again = |body: &Arc<_>| {
        let body: Arc<dyn Fn() + Send + Sync> = Arc::<_>::clone(body);
        move || body()
    };
    let body: Arc<dyn Fn() + Send + Sync> = body;
    if let Some(schedule) = &order.schedule {
        let scheduler = ReplayScheduler::new_from_encoded(schedule);
        shuttle::Runner::new(scheduler, config).run(again(&body));
        return;
    }
    if let Some(seed) = order.seed {
        shuttle::Runner::new(RandomScheduler::new_from_seed(seed, 1), config).run(again(&body));
        return;
    }
    match search {
        Search::Every => {
            shuttle::Runner::new(DfsScheduler::new(None, false), config).run(again(&body));
        }
        Search::Sample(count) => {
            let random = RandomScheduler::new_from_seed(SEED, count);
            shuttle::Runner::new(random, config.clone()).run(again(&body));
            let pct = PctScheduler::new_from_seed(SEED, 3, count);
            shuttle::Runner::new(pct, config.clone()).run(again(&body));
            let uniform = UrwRandomScheduler::new_from_seed(SEED, count);
            shuttle::Runner::new(uniform, config).run(again(&body));
        }
    }
}

fn parse_bound(text: &str) -> Option<usize> {
    match text {
        "none" => None,
        number => Some(number.parse().unwrap_or_else(|_| panic!("the bound is a number or 'none', not {number}"))),
    }
}

fn arm(mutant: Option<&str>) {
    let Some(mutant) = mutant else { return };
    // One name, once a process: leaking it is the simplest way to make it live long enough.
    let mutant: &'static str = String::leak(mutant.to_owned());
    *PLANTED.write().expect("nobody panics while arming") = Some(mutant);
    tenure_loom::planted::arm(Some(mutant));
    tenure_shuttle::planted::arm(Some(mutant));
}

/// The first panic is the result, whichever thread and whatever raised it. A panic that a model plans is raised by
/// `resume_unwind`, which calls no hook; one that a storm plans says so.
fn fail_at_once(verbose: bool) {
    static FIRST: Mutex<bool> = Mutex::new(false);
    panic::set_hook(Box::new(move |info| {
        if info.payload().is::<tenure_soak::faulty::OnPurpose>() {
            return;
        }
        let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *first, true) {
            return;
        }
        let said = info.payload_as_str().unwrap_or("a panic without words");
        let said = said.lines().next().unwrap_or_default();
        let failure = match schedule::broken_promise() {
            // What a breach or a deadlock says stands for itself; the promise is for a race, which the checker words.
            Some(promise) if !said.starts_with("deadlock") && !opens_with_a_line(said) => format!("{promise} ({said})"),
            _ => said.to_owned(),
        };
        if verbose {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            eprintln!("{failure}\n  at {place}, in execution {}:\n{}", schedule::executions(), schedule::table());
        }
        print(&Outcome { executions: schedule::executions(), failure: Some(failure), ..Outcome::default() });
        std::process::exit(i32::from(FAILED));
    }));
}

/// Whether the sentence opens with a name as "C3: ".
fn opens_with_a_line(sentence: &str) -> bool {
    let Some((name, _)) = sentence.split_once(": ") else { return false };
    let digits = name.trim_start_matches(|char: char| char.is_ascii_uppercase());
    digits.len() + 1 == name.len() && digits.chars().all(|char| char.is_ascii_digit())
}

fn print(outcome: &Outcome) {
    let line = serde_json::to_string(outcome).expect("an outcome is plain data");
    let mut out = std::io::stdout().lock();
    // A reader that is gone wants no result.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
