//! Storms over many seeds.
//!
//! ```text
//! stress [--seeds N] [--first SEED] [--profile NAME|all] [--threads N] [--steps N] [--real]
//! ```
//! Each seed decides what the threads do and, unless `--real`, every turn of theirs and of the device; a failure prints
//! the seed, and `--first SEED --seeds 1` replays it. `--real` takes real threads, and a device with a thread of its own.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tenure::{Config, ReclaimMode};
use tenure_sim::drive::Drive;
use tenure_sim::profile::Profile;
use tenure_tests::bench::{Bench, SimBench};
use tenure_tests::faulty::OnPurpose;
use tenure_tests::rig::Rig;
use tenure_tests::storm::{Storm, Tally, on_threads};

struct Options {
    seeds: u64,
    first: u64,
    profile: String,
    threads: u64,
    steps: u32,
    is_real: bool,
}

fn main() -> ExitCode {
    tenure_tests::arm_mutant();
    let options = match options() {
        Ok(options) => options,
        Err(mistake) => {
            eprintln!("stress: {mistake}");
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|panic| {
        if !panic.payload().is::<OnPurpose>() {
            eprintln!("{panic}");
        }
    }));
    let names = Profile::NAMES.iter().filter(|name| options.profile == "all" || options.profile == **name);
    let mut failed = 0;
    for name in names {
        failed += sweep(name, &options);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options() -> Result<Options, String> {
    let mut options = Options { seeds: 100, first: 0, profile: "all".into(), threads: 3, steps: 6, is_real: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--seeds" => options.seeds = number(value()?)?,
            "--first" => options.first = number(value()?)?,
            "--threads" => options.threads = number(value()?)?,
            "--steps" => options.steps = u32::try_from(number(value()?)?).map_err(|error| error.to_string())?,
            "--profile" => options.profile = value()?,
            "--real" => options.is_real = true,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    let is_known = options.profile == "all" || Profile::NAMES.contains(&options.profile.as_str());
    if is_known { Ok(options) } else { Err(format!("no profile {}: {:?}", options.profile, Profile::NAMES)) }
}

/// Runs the seeds over one profile; how many failed.
fn sweep(name: &str, options: &Options) -> u64 {
    let begun = Instant::now();
    let (mut sum, mut failed) = (Tally::default(), 0);
    for seed in options.first..options.first + options.seeds {
        let profile = Profile::named(name).expect("a listed profile");
        let outcome = if options.is_real { real(profile, seed, options) } else { scheduled(profile, seed, options) };
        match outcome {
            Ok(tally) => sum.add(tally),
            Err(failure) => {
                failed += 1;
                eprintln!("{name}: seed {seed} failed: {failure}");
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let Tally { captures, replays, releases, launches } = sum;
    println!(
        "{name}: {} seeds, {failed} failed, {captures} captures, {replays} replays, {launches} launches, {releases} \
         releases, {seconds:.1} s",
        options.seeds
    );
    failed
}

fn real(profile: Profile, seed: u64, options: &Options) -> Result<Tally, String> {
    let bench = SimBench::new(profile, Drive::Threaded, seed);
    let storm = || on_threads(&bench, seed, options.threads, options.steps);
    let tally = std::panic::catch_unwind(std::panic::AssertUnwindSafe(storm)).map_err(|_| "see above".to_owned())?;
    let findings = bench.finish();
    if findings.is_empty() { Ok(tally) } else { Err(findings.join("\n")) }
}

fn scheduled(profile: Profile, seed: u64, options: &Options) -> Result<Tally, String> {
    let (threads, steps) = (options.threads, options.steps);
    let tally = Arc::new(Mutex::new(Tally::default()));
    let told = tally.clone();
    let config = tenure_sim::Config::default().profile(profile).seed(seed).schedules(1).fibers().steps_max(1_000_000);
    let outcome = config.run(move |device| {
        let bench = SimBench::over(device.clone());
        let storm = Arc::new(Storm::new(Rig::with(&bench, Config::default().reclaim(ReclaimMode::Manual))));
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let storm = storm.clone();
                device.spawn("storm", move || storm.thread(seed ^ (thread + 1) << 32, steps))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join());
        let storm = Arc::into_inner(storm).expect("all threads have ended");
        *told.lock().expect("no panic") = storm.end();
    });
    match outcome.failure {
        None => Ok(*tally.lock().expect("no panic")),
        Some(failure) => Err(failure.to_string()),
    }
}
