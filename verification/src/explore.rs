//! Searches every state that the core's machines can reach, within stated sizes, and plants mistakes to see them found.
//!
//! A search fails when a line of the contract does not hold, when a planted mistake is not found under its own line, or when the
//! number of states is not the pinned one: a search that reaches less proves less. The gate of the models runs all of them.
//!
//! The pure transitions are the core's own: `Closed` and `Follows`, `Shelf`, `Table`, `Waiting`, `Slabs`. The machines here add the world:
//! who calls them, in what order, and what the driver answers. A step is what happens under one hold of a lock, so what a
//! search cannot see is a lock that is held too briefly, or an ordering that is too weak: that is for the models, on the code itself.

mod capture;
pub mod command;
mod ownership;
mod pool;
mod reclaim;
mod registration;
mod search;
mod staging;

use serde::Serialize;

use self::search::{Found, Limits, Machine, search};

/// What came of one machine.
#[derive(Debug, Serialize)]
pub struct Line {
    /// The machine.
    pub name: &'static str,
    /// How large it is.
    pub sizes: &'static str,
    /// The lines of the contract that are checked on each state.
    pub lines: &'static str,
    /// States reached.
    pub states: usize,
    /// States that there were before.
    pub pinned: usize,
    /// Steps between them.
    pub transitions: usize,
    /// The longest way to a state.
    pub depth: usize,
    /// How long it took.
    pub seconds: f64,
    /// Mistakes planted.
    pub planted: usize,
    /// Mistakes found, each under its own line.
    pub caught: usize,
    /// What does not hold.
    pub failure: Option<String>,
    /// How each planted mistake was found.
    #[serde(skip)]
    pub told: Vec<String>,
}

/// A machine with its sizes and pinned figures.
struct Plan {
    name: &'static str,
    sizes: &'static str,
    lines: &'static str,
    pinned: usize,
}

const CAP: usize = 2_000_000;

impl Plan {
    /// Searches the machine as it is, then with each mistake, which must be found under its line.
    fn run<M: Machine, W: Copy + std::fmt::Debug>(
        self,
        audit: usize,
        make: impl Fn(Option<W>) -> M,
        wrongs: &[(W, &str)],
    ) -> Line {
        let found = search(&make(None), Limits { states: CAP, audit });
        let mut told = Vec::new();
        let mut caught = 0;
        for (wrong, line) in wrongs {
            let Found { states, violation, .. } = search(&make(Some(*wrong)), Limits { states: CAP, audit: 0 });
            let right = violation.as_ref().is_some_and(|violation| violation.broken.line == *line);
            caught += usize::from(right);
            let how = violation.map_or("not found".to_owned(), |violation| violation.to_string());
            let verdict = if right { "caught" } else { "NOT CAUGHT" };
            told.push(format!("  {verdict} {wrong:?} under {line}, in {states} states: {how}"));
        }
        let failure = self.failure(&found, caught, wrongs.len());
        Line {
            name: self.name,
            sizes: self.sizes,
            lines: self.lines,
            states: found.states,
            pinned: self.pinned,
            transitions: found.steps,
            depth: found.depth,
            seconds: found.took.as_secs_f64(),
            planted: wrongs.len(),
            caught,
            failure,
            told,
        }
    }

    fn failure(&self, found: &Found, caught: usize, planted: usize) -> Option<String> {
        if let Some(violation) = &found.violation {
            return Some(violation.to_string());
        }
        if found.states != self.pinned {
            return Some(format!("{} states instead of {}", found.states, self.pinned));
        }
        (caught < planted).then(|| format!("{} planted mistakes are not caught", planted - caught))
    }
}

fn ownership(audit: usize, streams: usize) -> Line {
    use ownership::Wrong;
    const WRONGS: [(Wrong, &str); 10] = [
        (Wrong::NoEdge, "O1"),
        (Wrong::ReachLate, "O1"),
        (Wrong::ReadersWait, "O1"),
        (Wrong::ClosedUngated, "O4"),
        (Wrong::NotStamped, "O9"),
        (Wrong::SlotForgotten, "O9"),
        (Wrong::OwnReadsForgotten, "O9"),
        (Wrong::NotTouched, "O5"),
        (Wrong::HorizonLate, "O2"),
        (Wrong::NumberedEarly, "O2"),
    ];
    let lines = "O1 O2 O4 O5 O9";
    if streams == 2 {
        let plan = Plan { name: "ownership", sizes: "2 streams, 1 slot, 2 in flight", lines, pinned: 423_428 };
        return plan.run(audit, |wrong| ownership::Ownership::new(2, 1, 2, wrong), &WRONGS);
    }
    let plan = Plan { name: "ownership/3", sizes: "3 streams, 1 slot, 1 in flight", lines, pinned: 417_452 };
    // These three need a second submission in flight.
    let needs_two = |wrong: &Wrong| matches!(wrong, Wrong::ReachLate | Wrong::NotTouched | Wrong::HorizonLate);
    let wrongs: Vec<_> = WRONGS.into_iter().filter(|(wrong, _)| !needs_two(wrong)).collect();
    plan.run(audit, |wrong| ownership::Ownership::new(3, 1, 1, wrong), &wrongs)
}

fn pool(audit: usize) -> Line {
    use pool::{Pool, Wrong};
    let wrongs = [
        (Wrong::BusyLeased, "S2"),
        (Wrong::LeftOnShelf, "S1"),
        (Wrong::ClaimWaits, "S4"),
        (Wrong::MadeFirst, "S5"),
        (Wrong::RoomLost, "S5"),
        (Wrong::TrimUnasked, "S6"),
        (Wrong::BrokenReturned, "S7"),
    ];
    let plan = Plan { name: "pool", sizes: "3 tasks, cap 2", lines: "S1 S2 S4 S5 S6 S7", pinned: 416_240 };
    plan.run(audit, |wrong| Pool { tasks: 3, cap: 2, wrong }, &wrongs)
}

fn registration(audit: usize) -> Line {
    use registration::{Registrations, Wrong};
    let wrongs = [
        (Wrong::FailedRegisterStays, "P9"),
        (Wrong::FailedUnregisterForgets, "P9"),
        (Wrong::UnmadeForgotten, "P1"),
        (Wrong::CountKept, "P5"),
        (Wrong::EpochIgnored, "P12"),
        (Wrong::ReleaseLost, "P7"),
        (Wrong::ReleaseAtOnce, "P3"),
        (Wrong::ShortShared, "P2"),
        (Wrong::CallsUnlocked, "P6"),
        (Wrong::ScopeShared, "P4"),
    ];
    let lines = "P1 P2 P3 P4 P5 P6 P7 P8 P9 P12";
    let plan = Plan { name: "registration", sizes: "3 cells, 2 wraps, 2 decided", lines, pinned: 497_183 };
    plan.run(audit, |wrong| Registrations { cells: 3, wraps: 2, releases: 2, wrong }, &wrongs)
}

fn reclaim(audit: usize, ticks: bool) -> Line {
    use reclaim::{Reclaim, Wrong};
    let common = [
        (Wrong::FiledTwice, "O6"),
        (Wrong::DueEarly, "P3"),
        (Wrong::DeferredDropped, "C3"),
        (Wrong::CaptureIgnored, "C1"),
    ];
    // The first that a lost signal leaves behind is what a capture had put off.
    let untold = [(Wrong::SignalClearedLate, "C3"), (Wrong::EndUntold, "C3")];
    let broken = [(Wrong::BrokenReleased, "P11")];
    let wrongs: Vec<_> = common.into_iter().chain(if ticks { broken.to_vec() } else { untold.to_vec() }).collect();
    let lines = "C1 C3 O2 O6 P3 P7 P11";
    let plan = match ticks {
        false => Plan { name: "reclaim", sizes: "2 things, 2 streams of 2, signals only", lines, pinned: 458_787 },
        true => Plan { name: "reclaim/ticks", sizes: "2 things, 2 streams of 1, faults", lines, pinned: 172_341 },
    };
    let submissions = if ticks { 1 } else { 2 };
    plan.run(audit, |wrong| Reclaim { things: 2, streams: 2, submissions, ticks, wrong }, &wrongs)
}

fn staging(audit: usize) -> Line {
    use staging::{Staging, Wrong};
    let wrongs = [
        (Wrong::NotNoted, "T2"),
        (Wrong::BrokenCompletes, "T1"),
        (Wrong::GivenBackTwice, "T1"),
        (Wrong::MadeUnasked, "T2"),
        (Wrong::AbandonedKept, "T3"),
    ];
    let plan = Plan { name: "staging", sizes: "2 tasks, 3 copies, 3 chunks", lines: "T1 T2 T3", pinned: 366_665 };
    plan.run(audit, |wrong| Staging { tasks: 2, copies: 3, wrong }, &wrongs)
}

fn gate(audit: usize) -> Line {
    use capture::{Gate, Wrong};
    let wrongs = [
        (Wrong::BeginsBesideCalls, "C1"),
        (Wrong::EntersInCapture, "C1"),
        (Wrong::UncountedEarly, "C6"),
        (Wrong::NobodyDrains, "C3"),
        (Wrong::LeavesSilently, "deadlock"),
        (Wrong::EndsSilently, "C3"),
    ];
    let plan = Plan { name: "capture", sizes: "2 captures, 2 deferring, 2 waiting", lines: "C1 C3 C6", pinned: 1_821 };
    plan.run(audit, |wrong| Gate { captures: 2, deferring: 2, waiting: 2, wrong }, &wrongs)
}

/// Searches one machine; every so many states are audited.
pub type Run = fn(usize) -> Line;

/// All machines, by name.
pub const MACHINES: [(&str, Run); 8] = [
    ("ownership", |audit| ownership(audit, 2)),
    ("ownership/3", |audit| ownership(audit, 3)),
    ("pool", pool),
    ("registration", registration),
    ("reclaim", |audit| reclaim(audit, false)),
    ("reclaim/ticks", |audit| reclaim(audit, true)),
    ("capture", gate),
    ("staging", staging),
];
