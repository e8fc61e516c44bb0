//! Tries mutants on a command, and keeps what came of each.
//!
//! A line a trial: number, stage, verdict, seconds, the first words of the failure. A trial that has a line is not made
//! again, so that a sweep goes on where it was stopped.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::ARMED;

/// What mutants are tried on.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its name in the results.
    pub name: String,
    /// A trial that takes longer has hung.
    pub limit: Duration,
    /// A line of the output that holds one of these is a failure, and the rest is not waited for.
    pub fails: Vec<String>,
    /// The program, with its arguments.
    pub command: Vec<String>,
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was noticed.
    Passed,
    /// Something was, in words.
    Failed(String),
    /// It did not end.
    Hung,
}

impl Verdict {
    fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Hung => "hung",
        }
    }
}

/// Of `numbers`, those that nothing has noticed so far, and that were not tried on this stage.
pub fn open(results: &str, stage: &str, numbers: &[usize]) -> Vec<usize> {
    let mut settled = BTreeSet::new();
    for line in results.lines() {
        if let [number, at, verdict, ..] = line.split('\t').collect::<Vec<_>>()[..]
            && (at == stage || verdict != "passed")
        {
            settled.insert(number.to_owned());
        }
    }
    numbers.iter().copied().filter(|number| !settled.contains(&number.to_string())).collect()
}

/// Tries the mutants, so many at a time, and appends to the results.
///
/// # Panics
/// When the results cannot be written, or the command not started.
pub fn sweep(stage: &Stage, numbers: &[usize], workers: usize, results: &Path) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(results);
    let file = Mutex::new(file.expect("the results can be written"));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    let verdict = confirmed(stage, *number);
                    let (seconds, name) = (begun.elapsed().as_secs_f64(), verdict.name());
                    let words = if let Verdict::Failed(words) = verdict { words } else { String::new() };
                    let line = format!("{number}\t{}\t{name}\t{seconds:.1}\t{words}\n", stage.name);
                    let mut file = file.lock().expect("no worker panics");
                    file.write_all(line.as_bytes()).expect("the results can be written");
                }
            });
        }
    });
}

/// What two trials agree on. Tests have deadlines, and a busy machine makes some of them fail now and then: what is noticed
/// once only is not noticed.
fn confirmed(stage: &Stage, number: usize) -> Verdict {
    match attempt(stage, number) {
        Verdict::Passed => Verdict::Passed,
        _ => attempt(stage, number),
    }
}

/// One mutant on the stage; zero for none. With everything that it started, the command is gone afterwards.
///
/// # Panics
/// When the command cannot be started.
pub fn attempt(stage: &Stage, number: usize) -> Verdict {
    let [program, arguments @ ..] = &stage.command[..] else { panic!("a stage has a command") };
    let mut command = Command::new(program);
    command.args(arguments).env(ARMED, number.to_string()).env("RUST_BACKTRACE", "0").process_group(0);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
    let (lines, said) = mpsc::channel();
    read(child.stdout.take(), &lines, &stage.fails);
    read(child.stderr.take(), &lines, &stage.fails);
    drop(lines);
    // The first failure; or the end of both streams, and so of the command; or neither in time.
    let verdict = match said.recv_timeout(stage.limit) {
        Ok(words) => Verdict::Failed(words),
        Err(mpsc::RecvTimeoutError::Timeout) => Verdict::Hung,
        Err(mpsc::RecvTimeoutError::Disconnected) => Verdict::Passed,
    };
    if verdict != Verdict::Passed {
        let group = format!("-{}", child.id());
        // It may have ended by itself meanwhile.
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    }
    let status = child.wait().expect("a child can be waited for");
    if verdict == Verdict::Passed && !status.success() { Verdict::Failed(status.to_string()) } else { verdict }
}

/// Sends the first line that says that something failed.
fn read(stream: Option<impl Read + Send + 'static>, lines: &mpsc::Sender<String>, fails: &[String]) {
    let (Some(stream), lines, fails) = (stream, lines.clone(), fails.to_vec()) else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).replace(['\t', '\r'], " ");
            if fails.iter().any(|word| line.contains(word)) {
                // Whoever gave up on the command hears nothing more.
                let _ = lines.send(line.chars().take(200).collect());
            }
        }
    });
}
