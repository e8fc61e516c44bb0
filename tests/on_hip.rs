//! The conformance suite on a real HIP device.
//!
//! Each case runs in a process of its own, which is this program again with `TENURE_CASE` set: a case that hangs,
//! crashes or loses the device is one failure, and the next one has a fresh device.
//!
//! Without a device the suite is skipped, loudly, and what is tested is that it is skipped for the right reason: not
//! because a library that is there does not work. Where `TENURE_TEST_HIP` is set there must be a device. Then, in place
//! of the device, the suite runs on HIP over the simulator (`hip_over_sim`): all of `tenure-hip`, as each version's
//! profile has it behave, and with each C function failing at each position.
//!
//! `TENURE_TEST_POOLS=0` opens the device without memory in the order of streams.

use std::env;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use tenure_hip::sys::Runtime;
use tenure_hip::{Hip, LoadError, Options};
use tenure_tests::bench::Bench;
use tenure_tests::conformance::{Case, cases};
use tenure_tests::expectations::departure;
use tenure_tests::faulty::OnPurpose;
use tenure_tests::hip_bench::HipBench;

/// After so long a case hangs: longer than the cases themselves wait for anything.
const LIMIT: Duration = Duration::from_secs(90);
/// Hardware queues for each process: on fewer, streams share them, and one that is held still holds up another.
const QUEUES: [(&str, &str); 2] = [("CUDA_DEVICE_MAX_CONNECTIONS", "32"), ("GPU_MAX_HW_QUEUES", "32")];
/// Cases that take the device away, which only the simulator survives everywhere.
const LOSING: [&str; 2] = ["reclaim::r6_a_lost_device_ends_everything", "reclaim::r6_a_future_learns_of_the_loss"];

fn main() -> ExitCode {
    if let Ok(name) = env::var("TENURE_CASE") {
        return run_case(&name);
    }
    let mut arguments = Arguments::from_args();
    // Each process has a context on the device.
    arguments.test_threads.get_or_insert(4);
    match Hip::open(0) {
        Ok(hip) => on_device(&arguments, &hip),
        Err(error) => without_device(&arguments, &error),
    }
}

fn on_device(arguments: &Arguments, hip: &Hip) -> ExitCode {
    let profile = hip.profile().name();
    let (run, left): (Vec<_>, Vec<_>) =
        cases::<HipBench>().into_iter().partition(|case| needs_simulator(profile, case.name).is_none());
    let trials = run.into_iter().map(|case| {
        let name = case.name;
        Trial::test(name, move || judge(profile, name, &in_its_own_process(name, &[])?))
    });
    let conclusion = libtest_mimic::run(arguments, trials.collect());
    println!("conformance on HIP {} as {profile}, {}:", hip.version(), hip.info());
    let (passed, failed) = (conclusion.num_passed, conclusion.num_failed);
    println!("{passed} cases passed, {failed} failed, {} need the simulator", left.len());
    for case in left {
        println!("  {}: {}", case.name, needs_simulator(profile, case.name).unwrap_or_default());
    }
    println!("what only the simulator has: the checkers that look on beside each case, and a seed for each schedule");
    conclusion.exit_code()
}

/// Why a case cannot run here.
fn needs_simulator(profile: &str, case: &str) -> Option<&'static str> {
    let is_losing = LOSING.contains(&case) && !HipBench::can_be_lost(profile);
    is_losing.then_some("it takes the device away, which ends the process on this platform")
}

fn judge(profile: &str, name: &str, outcome: &Result<String, String>) -> Result<(), Failed> {
    match (outcome, departure(profile, name)) {
        (Ok(_), None) => Ok(()),
        // The driver makes up for some of what a library does.
        (Ok(_), Some(why)) => {
            println!("note: {name} passes here, though {profile} departs from it: {why}");
            Ok(())
        }
        (Err(failure), Some(why)) => {
            println!("note: {name} fails here, as {profile} does ({why}): {failure}");
            Ok(())
        }
        (Err(failure), None) => Err(failure.into()),
    }
}

// --- without a device

fn without_device(arguments: &Arguments, error: &LoadError) -> ExitCode {
    let all = cases::<HipBench>().len();
    println!("SKIPPED: conformance on HIP, all {all} cases, for lack of a device. {error}");
    let reason = is_right_reason(error);
    let mut trials = vec![
        Trial::test("skipped for the right reason", move || reason.map_err(Failed::from)),
        Trial::test("a case without a device fails and says why", || {
            let outcome = in_its_own_process(cases::<HipBench>()[0].name, &[])?;
            let told = outcome.err().ok_or("a case passed without a device")?;
            if told.contains("no device: ") { Ok(()) } else { Err(told.into()) }
        }),
    ];
    match Simulated::all() {
        Ok(libraries) => {
            trials.extend(libraries.iter().flat_map(Simulated::suite));
            trials
                .extend(libraries.iter().filter(|library| library.profile == "hip-7.2").flat_map(Simulated::failures));
        }
        Err(problem) => trials.push(Trial::test("HIP over the simulator is built", || Err(problem.into()))),
    }
    libtest_mimic::run(arguments, trials).exit_code()
}

/// There is no library, or one that works and says that there is no device.
fn is_right_reason(error: &LoadError) -> Result<(), String> {
    if env::var_os("TENURE_TEST_HIP").is_some() {
        return Err(format!("TENURE_TEST_HIP is set, so there must be a device: {error}"));
    }
    match error {
        LoadError::NotFound { tried } if !tried.is_empty() => {
            let is_named = env::var_os("TENURE_HIP_LIBRARY").is_some();
            if is_named { Err(format!("TENURE_HIP_LIBRARY names no library: {error}")) } else { Ok(()) }
        }
        LoadError::NoDevice { code, advice, .. } if [0, 35, 100, 101].contains(code) && !advice.is_empty() => Ok(()),
        _ => Err(format!("not for lack of a device: {error}")),
    }
}

// --- HIP over the simulator

/// A library of HIP's functions over a simulated device.
struct Simulated {
    path: PathBuf,
    profile: &'static str,
    has_pools: bool,
}

impl Simulated {
    /// One for each version that a profile stands for.
    fn all() -> Result<Vec<Self>, String> {
        let (cuda, amd) = (built("hip_over_sim_cuda")?, built("hip_over_sim_amd")?);
        let of = |path: &Path, profile| Self { path: path.to_owned(), profile, has_pools: true };
        let versions = ["hip-5.7", "hip-6.4", "hip-7.0", "hip-7.2"];
        let without_pools = Self { has_pools: false, ..of(&amd, "hip-6.4") };
        let all = [of(&cuda, "cuda-13"), without_pools].into_iter();
        Ok(all.chain(versions.map(|profile| of(&amd, profile))).collect())
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let path = self.path.to_string_lossy().into_owned();
        vec![
            ("TENURE_HIP_LIBRARY", path.clone()),
            ("TENURE_HIPRTC_LIBRARY", path),
            ("TENURE_CACHE_DIR", String::new()),
            ("TENURE_SIMULATED_PROFILE", self.profile.to_owned()),
            ("TENURE_SIMULATED_POOLS", u8::from(self.has_pools).to_string()),
        ]
    }

    /// Every case.
    fn suite(&self) -> Vec<Trial> {
        let profile = self.profile;
        let pools = if self.has_pools { "" } else { " without pools" };
        let run = cases::<HipBench>().into_iter().filter(|case| needs_simulator(profile, case.name).is_none());
        run.map(|case| {
            let (name, variables) = (case.name, self.variables());
            Trial::test(format!("{profile}{pools} over the simulator: {name}"), move || {
                judge(profile, name, &in_its_own_process(name, &variables)?)
            })
        })
        .collect()
    }

    /// Every function failing at each position, with a code that nobody knows and with one that stays.
    fn failures(&self) -> Vec<Trial> {
        let trial = |function: &'static str| {
            let mut variables = self.variables();
            // What the failed call was to bring about may never come.
            variables.push(("TENURE_TEST_SECONDS", "5".to_owned()));
            Trial::test(format!("a failing {function} neither hangs nor crashes"), move || {
                for ending in ["4242", "719:sticky"] {
                    for case in FAILING {
                        fail_at_each_position(case, function, ending, &variables)?;
                    }
                }
                Ok(())
            })
        };
        Runtime::SYMBOLS.iter().map(|symbol| trial(symbol.name)).collect()
    }
}

/// Cases that together make every call.
const FAILING: [&str; 12] = [
    "ownership::o5_crossing_launches_do_not_deadlock",
    "ownership::o9_two_readers_are_both_waited_for",
    "stream::s5_no_more_streams_than_leases",
    "stream::an_adopted_stream_takes_part_and_is_never_pooled",
    "capture::c1_a_foreign_capture_survives_everything_beside_it",
    "capture::c4_an_update_keeps_both_until_done",
    "capture::a_graph_tells_its_nodes",
    "registration::p10_memory_of_others_is_borrowed",
    "registration::wraps_of_many_threads_keep_the_count",
    "reclaim::r1_no_drop_makes_a_call_that_waits_asks_or_destroys",
    "reclaim::a_future_completes_by_the_worker",
    "api::events_order_and_measure",
];
/// Positions that are tried of a call that is made often.
const POSITIONS_MAX: usize = 6;

/// The case passes or says what went wrong, whichever call of the function fails.
fn fail_at_each_position(
    case: &str,
    function: &str,
    ending: &str,
    variables: &[(&'static str, String)],
) -> Result<(), Failed> {
    for position in 1..=POSITIONS_MAX {
        let script = format!("{function}:{position}:{ending}");
        let mut variables = variables.to_vec();
        variables.push(("TENURE_SIMULATED_FAILURE", script.clone()));
        let told = match in_its_own_process(case, &variables)? {
            Ok(told) => told,
            // A case that fails ends with 1, and it is the case that panics, not what it tests.
            Err(told) if told.starts_with("exit status: 1\n") && panics_of_others(&told).is_empty() => told,
            Err(told) => return Err(format!("{case} with {script}: {told}").into()),
        };
        if !told.contains("simulated failure of") {
            return Ok(());
        }
    }
    Ok(())
}

/// Where something else than the suite panicked.
fn panics_of_others(told: &str) -> Vec<&str> {
    let places = told.lines().filter_map(|line| line.split_once("panicked at ").map(|(_, place)| place));
    places.filter(|place| !place.starts_with("tests/")).collect()
}

/// Where the example lies beside this program; it is built where only this test was.
fn built(example: &str) -> Result<PathBuf, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let folder = program.parent().and_then(Path::parent).ok_or("this program lies nowhere")?;
    let path = folder.join("examples").join(format!("lib{example}.so"));
    if !path.exists() {
        let release = folder.ends_with("release").then_some("--release");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "tenure-tests", "--example", example]).args(release);
        let status = cargo.status().map_err(|error| format!("cargo: {error}"))?;
        if !status.success() || !path.exists() {
            return Err(format!("{} was not built: {status}", path.display()));
        }
    }
    Ok(path)
}

// --- one case

/// What the case told, passed or not; `Err` where the process could not be started or watched.
fn in_its_own_process(name: &str, variables: &[(&str, String)]) -> Result<Result<String, String>, Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.envs(variables.iter().map(|(variable, value)| (variable, value)));
    command.env("TENURE_CASE", name).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (variable, value) in QUEUES {
        if env::var_os(variable).is_none() {
            command.env(variable, value);
        }
    }
    let mut child = command.spawn()?;
    let is_ended = wait(&mut child)?;
    if !is_ended {
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
    Ok(match (is_ended, output.status.success() && told.contains("passed")) {
        (false, _) => Err(format!("it hangs: stopped after {} s\n{told}", LIMIT.as_secs())),
        (true, true) => Ok(told),
        (true, false) => Err(format!("{}\n{told}", output.status)),
    })
}

/// Whether it ends in time.
fn wait(child: &mut Child) -> std::io::Result<bool> {
    let end = Instant::now() + LIMIT;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(true)
}

fn run_case(name: &str) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        if !panic.payload().is::<OnPurpose>() {
            eprintln!("{panic}");
        }
    }));
    let Some(case) = cases::<HipBench>().into_iter().find(|case| case.name == name) else {
        return told("no such case");
    };
    let mut options = Options::default();
    options.stream_ordered_memory = env::var("TENURE_TEST_POOLS").as_deref() != Ok("0");
    let bench = match Hip::open_with(0, options).map(HipBench::new) {
        Err(error) => return told(format!("no device: {error}")),
        Ok(Err(error)) => return told(format!("the bench's kernels: {error}")),
        Ok(Ok(bench)) => bench,
    };
    match run(&bench, &case) {
        Ok(()) => {
            println!("passed");
            ExitCode::SUCCESS
        }
        Err(failure) => told(failure),
    }
}

fn told(failure: impl Display) -> ExitCode {
    println!("{failure}");
    ExitCode::FAILURE
}

fn run(bench: &HipBench, case: &Case<HipBench>) -> Result<(), String> {
    if catch_unwind(AssertUnwindSafe(|| (case.run)(bench))).is_err() {
        return Err("it panicked".into());
    }
    let findings = bench.finish();
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}
