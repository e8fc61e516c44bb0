//! Runs models as processes of their own: a failed one leaves its checker unusable, and a planted defect stays armed.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::Checker;
use crate::run::Outcome;

/// One run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The checker.
    pub checker: Checker,
    /// The model, or `litmus:NAME`.
    pub model: String,
    /// The planted defect.
    pub mutant: Option<&'static str>,
    /// Loom's bound instead of the table's.
    pub bound: Option<&'static str>,
    /// Shuttle's samples instead of the table's search.
    pub samples: Option<usize>,
    /// Shuttle's one random schedule instead of the table's search.
    pub seed: Option<u64>,
}

impl Job {
    /// The model as the table has it.
    pub fn new(checker: Checker, model: &str) -> Self {
        Self { checker, model: model.to_owned(), mutant: None, bound: None, samples: None, seed: None }
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What it printed; none when it printed nothing, or could not be given up in time.
    pub outcome: Option<Outcome>,
    /// How long it took.
    pub took: Duration,
}

/// Runs all jobs, as many at a time as there are processors; gives the ends in the order of the jobs.
pub fn run(jobs: &[Job], limit: Duration) -> Vec<Ended> {
    let next = AtomicUsize::new(0);
    let ends: Vec<_> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < jobs.len()) {
                    *ends[index].lock().expect("no worker panics") = Some(run_one(&jobs[index], limit));
                }
            });
        }
    });
    let ended = |end: Mutex<Option<Ended>>| end.into_inner().expect("no worker panics").expect("every job was run");
    ends.into_iter().map(ended).collect()
}

/// A run gives itself up at the limit; one that does not is killed so much later.
const GRACE: Duration = Duration::from_secs(5);

fn run_one(job: &Job, limit: Duration) -> Ended {
    let start = Instant::now();
    let mut command = Command::new(std::env::current_exe().expect("the running program has a path"));
    command.arg("run").arg(job.checker.name()).arg(&job.model);
    if let Some(mutant) = job.mutant {
        command.args(["--mutant", mutant]);
    }
    if let Some(bound) = job.bound {
        command.args(["--bound", bound]);
    }
    if let Some(samples) = job.samples {
        command.args(["--samples", &samples.to_string()]);
    }
    if let Some(seed) = job.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    command.args(["--seconds", &limit.as_secs().to_string()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("the running program can be started again");
    let ended = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(_) => break true,
            None if start.elapsed() > limit + GRACE => break false,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if !ended {
        // It may end by itself meanwhile; either way it is gone after the wait.
        let _ = child.kill();
        let _ = child.wait();
    }
    let mut text = String::new();
    let read = child.stdout.take().map(|mut out| out.read_to_string(&mut text));
    let outcome = read.filter(|_| ended).and_then(|_| serde_json::from_str(text.lines().next()?).ok());
    Ended { outcome, took: start.elapsed() }
}
