//! Runs a scenario under many schedules and says what came of it.
//!
//! Small scenarios are walked through in every order (see `reduced`); where that takes more walks than half of the
//! schedules asked for, the other half is drawn from seeds. Host threads are coroutines, one more of them is the runtime's worker: it takes
//! its turns by `poll`, as many as [`Limits`] says, so that a run has an end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::drawing;
use super::grammar::Scenario;
use super::play::Player;
use super::progress::Progress;
use super::shrink;
use super::stage::{Failed, Stage, device};
use crate::Sim;
use crate::checker::{Line, OrderFigures, Severity};
use crate::drive::Drive;
use crate::drive::footprint::Footprint;
use crate::drive::reduced::Reduced;
use crate::drive::schedule::{Path, Schedule, Seeded};
use crate::drive::seat::{self, Seats};
use crate::drive::turns::Condition;
use crate::drive::world::Stop;
use crate::driver::{Builder, Report};
use crate::profile::Profile;
use crate::trace::Trace;

/// What a scenario came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// As expected, under every schedule that was run.
    #[default]
    Ok,
    /// A promise of the contract was broken.
    Violation,
    /// A step or a figure was not what the file says.
    Expectation,
    /// The file could not be played.
    Error,
}

/// Why one schedule failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) verdict: Verdict,
    pub(crate) line: Option<Line>,
    pub(crate) message: String,
}

impl Failure {
    /// Whether it is the same fault, as far as a smaller schedule is concerned.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.verdict, self.line) == (other.verdict, other.line)
    }
}

/// One schedule, played.
#[derive(Default)]
pub(crate) struct Played {
    pub(crate) failure: Option<Failure>,
    /// What would have come has been walked in another order.
    pub(crate) is_cut_off: bool,
    /// The choices that replay it.
    pub(crate) choices: Vec<u16>,
    pub(crate) steps: u64,
    pub(crate) lanes: String,
    pub(crate) perfetto: String,
    /// What device waits there were, and how many a conflict needed.
    pub(crate) order: OrderFigures,
    /// What is legal and no good idea.
    pub(crate) warnings: Vec<String>,
    /// The lanes drawn, where the trace was kept.
    pub(crate) drawing: String,
}

/// What bounds a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Turns of the worker.
    pub(crate) worker_turns: u32,
    /// Whether the worker leaves host functions in streams, as a runtime's own does; otherwise it asks the streams.
    pub(crate) worker_arms: bool,
    /// Steps of the device and turns of threads, before a run counts as endless.
    pub(crate) steps: u64,
}

/// Few turns of the worker, and no host functions of its own, since each multiplies the orders to walk.
const WALKED: Limits = Limits { worker_turns: 1, worker_arms: false, steps: 20_000 };
const DRAWN: Limits = Limits { worker_turns: 24, worker_arms: true, steps: 40_000 };

/// What a scenario did under all schedules.
#[derive(Default)]
pub(crate) struct Explored {
    pub(crate) schedules: u64,
    pub(crate) exhaustive: bool,
    pub(crate) steps: u64,
    pub(crate) order: OrderFigures,
    pub(crate) warnings: BTreeSet<String>,
    pub(crate) failed: Option<(Played, String)>,
    /// One schedule with its trace, where that was asked for and none failed.
    pub(crate) went_well: Option<Played>,
}

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) schedules: u64,
    pub(crate) seed: u64,
    /// Walk every order, however many there are.
    pub(crate) exhaustive: bool,
    /// Only this schedule.
    pub(crate) only: Option<Only>,
    /// Keep the trace of a run that goes well.
    pub(crate) traced: bool,
    /// Steps before a run counts as endless, where not as many as usual.
    pub(crate) steps: Option<u64>,
    /// Told of what is played.
    pub(crate) progress: Arc<Progress>,
}

/// A schedule by name.
#[derive(Clone, Debug)]
pub(crate) enum Only {
    Seed(u64),
    Path(Vec<u16>),
    LongPath(Vec<u16>),
}

/// Plays `scenario` on `profile`, stopping at the first failure.
pub(crate) fn explore(scenario: &Arc<Scenario>, profile: &Profile, plan: &Plan) -> Explored {
    // What makes host functions go wrong must find one, also where every order is walked.
    let arms = scenario.fails_functions();
    let limits = |limits: Limits| Limits {
        steps: plan.steps.unwrap_or(limits.steps),
        worker_arms: limits.worker_arms || arms,
        ..limits
    };
    let (walked, drawn) = (limits(WALKED), limits(DRAWN));
    let ground = Ground { scenario, builder: builder(scenario, profile), walked, drawn, progress: &plan.progress };
    let mut explored = Explored::default();
    match &plan.only {
        Some(Only::Seed(seed)) => ground.draw(*seed, 1, &mut explored),
        Some(Only::Path(choices)) => ground.one(walked, choices, &mut explored),
        Some(Only::LongPath(choices)) => ground.one(drawn, choices, &mut explored),
        None => {
            let walks = if plan.exhaustive { u64::MAX } else { plan.schedules.div_ceil(2) };
            ground.walk(walks, &mut explored);
            if explored.failed.is_none() && !explored.exhaustive {
                let left = plan.schedules.saturating_sub(explored.schedules).max(1);
                ground.draw(plan.seed, left, &mut explored);
            }
        }
    }
    if plan.traced && explored.failed.is_none() && explored.went_well.is_none() {
        explored.went_well = Some(ground.traced(walked, &[]));
    }
    explored
}

fn builder(scenario: &Scenario, profile: &Profile) -> Builder {
    let mut profile = profile.clone();
    if let Some(depth) = scenario.depth {
        profile.queue_depth = depth;
    }
    let builder = device().profile(profile).drive(Drive::Stepped).whole_steps().trace_rows(0);
    builder.device_bytes(scenario.memory.unwrap_or(DEVICE_BYTES_MAX))
}

/// What every schedule of a scenario starts from.
struct Ground<'g> {
    scenario: &'g Arc<Scenario>,
    builder: Builder,
    walked: Limits,
    drawn: Limits,
    progress: &'g Progress,
}

impl Ground<'_> {
    fn one(&self, limits: Limits, choices: &[u16], explored: &mut Explored) {
        let played = self.traced(limits, choices);
        explored.count(&played);
        match played.failure.is_some() {
            true => explored.failed = Some((played, key(choices, limits))),
            false => explored.went_well = Some(played),
        }
    }

    /// Every order, depth first, up to `walks` of them; of orders that come to the same, one.
    fn walk(&self, walks: u64, explored: &mut Explored) {
        let mut search = Box::new(Reduced::new(Footprint::is_apart));
        for _ in 0..walks {
            let (played, schedule) = self.play(self.walked, Schedule::Reduced(search));
            explored.count(&played);
            if played.failure.is_some() {
                explored.failed = Some(self.smallest(self.walked, &played));
                return;
            }
            let Schedule::Reduced(walked) = schedule else { return };
            search = walked;
            if !search.advance() {
                explored.exhaustive = true;
                return;
            }
        }
    }

    fn draw(&self, seed: u64, schedules: u64, explored: &mut Explored) {
        for seed in (0..schedules).map(|offset| seed.wrapping_add(offset)) {
            let schedule = Schedule::Noted(Seeded::new(seed, None), Vec::new());
            let (played, _) = self.play(self.drawn, schedule);
            explored.count(&played);
            if played.failure.is_some() {
                explored.failed = Some(self.smallest(self.drawn, &played));
                return;
            }
            if schedules == 1 {
                explored.went_well = Some(self.traced(self.drawn, &played.choices));
            }
        }
    }

    /// The failure again, under the smallest schedule that shows it and with its trace.
    fn smallest(&self, limits: Limits, played: &Played) -> (Played, String) {
        let Some(failure) = &played.failure else { unreachable!("only failures are made smaller") };
        let choices = shrink::shrink(&played.choices, |choices| {
            let schedule = Schedule::Path(Path::from_choices(choices));
            let (again, _) = self.play(limits, schedule);
            again.failure.as_ref().is_some_and(|again| again.is_like(failure)).then_some(again.choices)
        });
        let mut again = self.traced(limits, &choices);
        if again.failure.is_none() {
            // What was seen counts, also where it hangs on more than the schedule.
            let message =
                format!("{} (not seen again: it hangs on the addresses that the system hands out)", failure.message);
            again.failure = Some(Failure { message, ..failure.clone() });
        }
        (again, key(&choices, limits))
    }

    fn traced(&self, limits: Limits, choices: &[u16]) -> Played {
        let builder = self.builder.clone().trace_rows(ROWS);
        self.played(builder, limits, Schedule::Path(Path::from_choices(choices))).0
    }

    /// Plays one schedule; gives the schedule back as it was left.
    fn play(&self, limits: Limits, schedule: Schedule) -> (Played, Schedule) {
        self.played(self.builder.clone(), limits, schedule)
    }

    fn played(&self, builder: Builder, limits: Limits, schedule: Schedule) -> (Played, Schedule) {
        let played = play(self.scenario, builder, limits, schedule, self.progress);
        self.progress.end_one();
        played
    }
}

impl Explored {
    fn count(&mut self, played: &Played) {
        self.steps += played.steps;
        if played.is_cut_off {
            return;
        }
        self.schedules += 1;
        self.order.edges += played.order.edges;
        self.order.edges_needed += played.order.edges_needed;
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.extend(played.warnings.iter().cloned());
        }
    }
}

/// What names a schedule: `path:` or, with the limits of drawn schedules, `long:`, and the choices.
fn key(choices: &[u16], limits: Limits) -> String {
    let numbers: Vec<_> = choices.iter().map(u16::to_string).collect();
    let kind = if limits.worker_turns == WALKED.worker_turns { "path" } else { "long" };
    format!("{kind}:{}", numbers.join("."))
}

fn play(
    scenario: &Arc<Scenario>,
    builder: Builder,
    limits: Limits,
    schedule: Schedule,
    progress: &Progress,
) -> (Played, Schedule) {
    let keep_trace = builder.keeps_trace();
    let sim = builder.steps_max(limits.steps).build_with(schedule);
    let mut played = Played::default();
    match Stage::new(sim.clone(), scenario) {
        Ok(stage) => {
            {
                let mut world = sim.shared().world.lock();
                // What made the stage is no part of the story.
                world.trace = Trace::new(if keep_trace { ROWS } else { 0 });
                // A fault counts what all streams do: with one, no two steps may change places.
                world.tells_footprints = matches!(world.schedule, Schedule::Reduced(_)) && !stage.has_faults;
                world.footprint = Footprint::default();
            }
            let stage = Arc::new(stage);
            progress.enter(&stage);
            let (failure, report) = perform(&sim, &stage, scenario, limits);
            played.failure = failure.map(|failure| Failure { message: stage.with_names(&failure.message), ..failure });
            played.order = report.order;
            let warnings = report.findings.iter().filter(|finding| finding.severity == Severity::Warning);
            played.warnings = warnings.map(|finding| stage.with_names(&finding.message)).collect();
            if keep_trace {
                tell(&sim, &stage, &mut played);
            }
        }
        Err(message) => played.failure = Some(Failure { verdict: Verdict::Error, line: None, message }),
    }
    let mut world = sim.shared().world.lock();
    played.steps = world.steps;
    played.is_cut_off = world.stop == Some(Stop::CutOff) && played.failure.is_none();
    let schedule = std::mem::replace(&mut world.schedule, Schedule::First);
    played.choices = match &schedule {
        Schedule::Path(path) => path.taken(),
        Schedule::Reduced(reduced) => reduced.taken(),
        Schedule::Noted(_, choices) => choices.clone(),
        _ => Vec::new(),
    };
    (played, schedule)
}

/// The trace in every form.
fn tell(sim: &Sim, stage: &Stage, played: &mut Played) {
    let names = stage.ids.lock().clone();
    let told = names.iter().map(|(name, id)| format!("{name} is {id}. ")).collect::<String>();
    played.lanes = stage.with_names(&format!("{}\n{}", told.trim_end(), sim.lanes(LANES_ROWS)));
    played.perfetto = stage.with_names(&sim.perfetto());
    played.drawing = stage.with_names(&sim.with_trace(|trace, threads| drawing::svg(trace, threads, &names)));
}

fn perform(sim: &Sim, stage: &Arc<Stage>, scenario: &Arc<Scenario>, limits: Limits) -> (Option<Failure>, Report) {
    let (inner, main) = (stage.clone(), scenario.clone());
    seat::run(sim.shared(), Seats::Fibers, Box::new(move || lead(&inner, &main, limits)));
    let (stop, panics) = {
        let world = sim.shared().world.lock();
        (world.stop, world.panics.clone())
    };
    if stop == Some(Stop::Finished)
        && scenario.leaks.is_none()
        && let Some(name) = stage.open_capture()
    {
        let message = format!("the file never ends `{name}`, a capture of other code");
        stage.fail(Failed { is_error: true, line: None, message });
    }
    let is_whole = stop == Some(Stop::Finished) && panics.is_empty() && !stage.has_failed();
    if is_whole {
        {
            let mut world = sim.shared().world.lock();
            world.stop = None;
            // What made the stage clears it: no thread of the scenario, and no longer its beginning.
            world.turns.rename(0, "end");
        }
        stage.clear(scenario.leaks.is_some());
    }
    let report = if is_whole && scenario.leaks.is_none() { sim.finish() } else { sim.report() };
    let failed = stage.failed.lock().clone();
    let violation = report.violations().next().map(|finding| Failure {
        verdict: Verdict::Violation,
        line: Some(finding.line),
        message: match stop {
            Some(Stop::StepLimit) => format!("{}; {}", finding.message, stage.step_begun()),
            _ => finding.message.clone(),
        },
    });
    let expectation = failed.map(|failed| of_scenario(failed, scenario));
    let crash = panics.iter().find(|(_, text)| !text.starts_with("a panic without")).map(|(thread, text)| Failure {
        verdict: Verdict::Violation,
        line: None,
        message: format!("host thread t{thread} panicked: {text}"),
    });
    (violation.or(crash).or(expectation), report)
}

fn of_scenario(failed: Failed, scenario: &Scenario) -> Failure {
    let verdict = if failed.is_error { Verdict::Error } else { Verdict::Expectation };
    let line = failed.line.or_else(|| scenario.keeps.first().copied()).filter(|_| !failed.is_error);
    Failure { verdict, line, message: failed.message }
}

/// The first thread: sets the scene, starts the others, waits for them, and does what comes last.
fn lead(stage: &Arc<Stage>, scenario: &Arc<Scenario>, limits: Limits) {
    let player = Player::new(stage);
    let over = Arc::new(AtomicBool::new(false));
    let has_threads = !scenario.threads.is_empty();
    if has_threads {
        player.play(&scenario.setup);
    }
    let (worker_stage, worker_over, has_work) = (stage.clone(), over.clone(), has_work(stage, &over));
    let may_begin = has_work.clone();
    let body = move || work(&worker_stage, &worker_over, &has_work, limits);
    let worker = stage.sim.spawn_daemon("worker", body);
    stage.sim.hold_back(&worker, RELEASE, &may_begin);
    if !has_threads {
        player.play(&scenario.setup);
    }
    let threads: Vec<_> = (0..scenario.threads.len())
        .map(|index| {
            let (stage, scenario) = (stage.clone(), scenario.clone());
            let name = scenario.threads[index].name.clone();
            stage.clone().sim.spawn(&name, move || Player::new(&stage).play(&scenario.threads[index].steps))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join());
    player.play(&scenario.finally);
    over.store(true, Ordering::Relaxed);
    // A turn that is under way ends: what it holds is neither in the queue nor released. While it runs the worker is a
    // daemon all the same, so that its waiting for something to do is no part of a deadlock.
    worker.join();
}

/// The runtime's worker, so many turns long: one whenever something is retired.
fn work(stage: &Stage, over: &AtomicBool, has_work: &Condition, limits: Limits) {
    for _ in 0..limits.worker_turns {
        stage.sim.wait_until(RELEASE, has_work);
        if over.load(Ordering::Relaxed) || stage.has_failed() {
            return;
        }
        let Some(runtime) = stage.runtime.lock().clone() else { return };
        if limits.worker_arms {
            runtime.work()
        } else {
            runtime.poll()
        };
    }
}

/// Something is retired, or nothing will be any more.
fn has_work(stage: &Arc<Stage>, over: &Arc<AtomicBool>) -> Condition {
    // The simulation keeps the condition, and the stage the simulation.
    let (stage, over) = (Arc::downgrade(stage), over.clone());
    Condition(Arc::new(move || {
        let Some(stage) = stage.upgrade() else { return true };
        let retired = stage.runtime.lock().as_ref().map(tenure::Runtime::retired_pending);
        over.load(Ordering::Relaxed) || stage.has_failed() || retired != Some(0)
    }))
}

/// What the worker waits for.
const RELEASE: &str = "something to release";
/// What a device has where the file does not say, and the most that it can say: more would slow every schedule down and
/// show nothing new.
pub(crate) const DEVICE_BYTES_MAX: u64 = 256 << 20;
/// Warnings that differ, of one scenario on one profile.
const WARNINGS_MAX: usize = 8;
/// How many rows of a trace are kept.
const ROWS: usize = 4096;
/// How many rows of lanes a failure shows.
const LANES_ROWS: usize = 120;

#[cfg(test)]
mod language;
#[cfg(test)]
mod tests;
