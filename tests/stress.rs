//! Storms over many seeds, and runs of many launches.
//!
//! ```text
//! stress [--seeds N] [--first SEED] [--profile NAME|all] [--threads N] [--steps N] [--real] [--on sim|hip]
//! stress --launches N [--wraps N] [--threads N] [--profile NAME|all] [--on sim|hip]
//! ```
//! Each seed decides what the threads do and, unless `--real`, every turn of theirs and of the device; a failure prints
//! the seed, and `--first SEED --seeds 1` replays it. `--real` takes real threads, and a device with a thread of its own;
//! `--on hip` the first HIP device. With `--launches` there is no storm, but that many launches and wraps, each
//! accounted for.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tenure::{Config, ReclaimMode};
use tenure_hip::Hip;
use tenure_sim::drive::Drive;
use tenure_sim::profile::Profile;
use tenure_tests::bench::{Bench, SimBench};
use tenure_tests::faulty::OnPurpose;
use tenure_tests::hip_bench::HipBench;
use tenure_tests::rig::Rig;
use tenure_tests::storm::{Storm, Tally, on_threads};
use tenure_tests::volume::{self, Account, Plan};

struct Options {
    seeds: u64,
    first: u64,
    profile: String,
    threads: u64,
    steps: u32,
    is_real: bool,
    is_hip: bool,
    /// Above zero: no storm, but so many launches.
    launches: u64,
    wraps: u64,
}

impl Default for Options {
    fn default() -> Self {
        let (seeds, first, profile, threads, steps, is_real) = (100, 0, "all".into(), 3, 6, false);
        Self { seeds, first, profile, threads, steps, is_real, is_hip: false, launches: 0, wraps: 0 }
    }
}

impl Options {
    fn plan(&self) -> Plan {
        Plan { launches: self.launches, wraps: self.wraps, threads: self.threads.max(1) }
    }
}

fn main() -> ExitCode {
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
    let failed = if options.is_hip { on_hip(&options) } else { on_sim(&options) };
    match failed {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(mistake) => {
            eprintln!("stress: {mistake}");
            ExitCode::from(2)
        }
    }
}

/// Turns of a storm's worker.
const WORKER_TURNS: u32 = 40;

/// One device in four has no memory pools.
fn has_pools(seed: u64) -> bool {
    seed % 4 != 3
}

/// How many seeds or runs failed.
fn on_sim(options: &Options) -> Result<u64, String> {
    let names = Profile::NAMES.iter().filter(|name| options.profile == "all" || options.profile == **name);
    let mut failed = 0;
    for name in names {
        let profile = || Profile::named(name).expect("a listed profile");
        let threaded = |seed| SimBench::with(profile(), Drive::Threaded, seed, has_pools(seed));
        failed += match (options.launches > 0, options.is_real) {
            (true, _) => account(name, options.plan(), &threaded(options.first)),
            (false, true) => sweep(name, options, |seed| real(&threaded(seed), seed, options)),
            (false, false) => sweep(name, options, |seed| scheduled(profile(), seed, options)),
        };
    }
    Ok(failed)
}

/// As [`on_sim`], on one device for all seeds.
fn on_hip(options: &Options) -> Result<u64, String> {
    let hip = Hip::open(0).map_err(|error| format!("no HIP device: {error}"))?;
    let name = format!("hip {} as {} ({})", hip.version(), hip.profile().name(), hip.info().name);
    let bench = HipBench::new(hip).map_err(|error| error.to_string())?;
    Ok(match options.launches > 0 {
        true => account(&name, options.plan(), &bench),
        false => sweep(&name, options, |seed| real(&bench, seed, options)),
    })
}

fn options() -> Result<Options, String> {
    let mut options = Options::default();
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
            "--launches" => options.launches = number(value()?)?,
            "--wraps" => options.wraps = number(value()?)?,
            "--on" => {
                options.is_hip = match value()?.as_str() {
                    "sim" => false,
                    "hip" => true,
                    other => return Err(format!("no device {other}: sim or hip")),
                }
            }
            _ => return Err(format!("unknown option {word}")),
        }
    }
    let is_known = options.profile == "all" || Profile::NAMES.contains(&options.profile.as_str());
    if is_known { Ok(options) } else { Err(format!("no profile {}: {:?}", options.profile, Profile::NAMES)) }
}

/// Runs the seeds; how many failed.
fn sweep(name: &str, options: &Options, storm: impl Fn(u64) -> Result<Tally, String>) -> u64 {
    let begun = Instant::now();
    let (mut sum, mut failed) = (Tally::default(), 0);
    for seed in options.first..options.first + options.seeds {
        match storm(seed) {
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

/// Carries the plan out; 1 where it failed.
fn account<B: Bench>(name: &str, plan: Plan, bench: &B) -> u64 {
    let begun = Instant::now();
    let outcome = on_bench(bench, || volume::run(bench, plan));
    let seconds = begun.elapsed().as_secs_f64();
    match outcome {
        Ok(Account { launches, registrations, edges, taken }) => {
            println!(
                "{name}: {launches} launches and {registrations} wraps of {} threads, {edges} waits between streams, \
                 {taken} things taken and given back, nothing lost, leaked or registered, {seconds:.1} s",
                plan.threads
            );
            0
        }
        Err(failure) => {
            eprintln!("{name}: {plan:?} failed: {failure}");
            1
        }
    }
}

fn real<B: Bench>(bench: &B, seed: u64, options: &Options) -> Result<Tally, String> {
    on_bench(bench, || on_threads(bench, seed, options.threads, options.steps))
}

/// What the program comes to, unless it panics or the bench has something to say.
fn on_bench<B: Bench, R>(bench: &B, program: impl FnOnce() -> R) -> Result<R, String> {
    let program = std::panic::AssertUnwindSafe(program);
    let outcome = std::panic::catch_unwind(program).map_err(|_| "see above".to_owned())?;
    let findings = bench.finish();
    if findings.is_empty() { Ok(outcome) } else { Err(findings.join("\n")) }
}

fn scheduled(profile: Profile, seed: u64, options: &Options) -> Result<Tally, String> {
    let (threads, steps) = (options.threads, options.steps);
    let tally = Arc::new(Mutex::new(Tally::default()));
    let told = tally.clone();
    let config = tenure_sim::Config::default().profile(profile).seed(seed).schedules(1).fibers().steps_max(1_000_000);
    let config = if has_pools(seed) { config } else { config.without_pools() };
    let outcome = config.run(move |device| {
        let bench = SimBench::over(device.clone());
        let storm = Arc::new(Storm::new(Rig::with(&bench, Config::default().reclaim(ReclaimMode::Manual))));
        // In every other storm a worker takes turns beside the threads, and leaves host functions, as a runtime's own.
        let worker = (seed % 2 == 1).then(|| {
            let (device, runtime) = (device.clone(), storm.rig().runtime.clone());
            let body = move || {
                for _ in 0..WORKER_TURNS {
                    device.yield_now();
                    runtime.work();
                }
            };
            bench.driver().spawn("worker", body)
        });
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let storm = storm.clone();
                device.spawn("storm", move || storm.thread(seed ^ (thread + 1) << 32, steps))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join());
        worker.into_iter().for_each(|worker| worker.join());
        let storm = Arc::into_inner(storm).expect("all threads have ended");
        *told.lock().expect("no panic") = storm.end();
    });
    match outcome.failure {
        None => Ok(*tally.lock().expect("no panic")),
        Some(failure) => Err(failure.to_string()),
    }
}
