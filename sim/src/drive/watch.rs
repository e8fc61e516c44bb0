//! Threads that wait for what the schedule does not know: a lock or a channel of std, a parked thread, a join.
//!
//! Such a thread has its turn and does not hand it on. Whoever watches a run looks at it every [`LOOK`]:
//!
//! | what is seen | what is done |
//! |---|---|
//! | the thread whose turn it is sleeps, and nothing has moved | it is *outside*: the turn goes on without it until it makes a call that the schedule knows |
//! | it computes for as long as [`SPELL`] and calls nothing | the same |
//! | it is a fiber | the run is given up and done anew with threads of the system |
//! | only threads outside are left, asleep for as long as [`PATIENCE`] or computing for [`BUSY`] | a finding, and the end of the run |
//!
//! From where a thread was outside, the system has a part in the order, and a seed may not replay.

use super::world::World;
use std::time::{Duration, Instant};

/// How long between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(10);
/// How many looks a thread sleeps, with nothing moving, before it is outside.
const LOOKS_ASLEEP: u32 = 2;
/// How long a thread computes, with nothing moving, before it is outside.
pub(crate) const SPELL: Duration = Duration::from_secs(1);
/// How long all may be outside and asleep.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long all may be outside while one of them computes.
const BUSY: Duration = Duration::from_secs(15);
/// How long a run of fibers may sleep.
const FIBERS_PATIENCE: Duration = Duration::from_secs(1);
/// How long a run of fibers may compute and call nothing.
const FIBERS_BUSY: Duration = Duration::from_secs(3);

/// A thread of the system, to be looked at by others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Task {
    /// It has not begun.
    #[default]
    New,
    /// The system tells of it in this file.
    Told(String),
    /// The system tells nothing.
    Silent,
}

impl Task {
    /// The calling thread.
    pub(crate) fn current() -> Self {
        let link = std::fs::read_link("/proc/thread-self").ok();
        link.map_or(Self::Silent, |link| Self::Told(format!("/proc/{}/stat", link.display())))
    }

    /// Whether it sleeps. Where the system does not say, only time tells: it counts as asleep.
    pub(crate) fn is_asleep(&self) -> bool {
        let path = match self {
            Self::New => return false,
            Self::Silent => return true,
            Self::Told(path) => path,
        };
        let Ok(stat) = std::fs::read_to_string(path) else { return false };
        // The name before it stands in brackets and may hold anything.
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
    }
}

/// What a look can show of a run's progress: calls, steps and turns so far, and whose turn it is.
type Seen = (u64, u64, u64, Option<u32>);

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on, or has not stood still for long.
    Moves,
    /// Whose turn it is sleeps.
    Asleep,
    /// It has stood still for this long with no thread's turn, or with a thread that computes.
    Still(Duration),
}

/// Looks at one run.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Option<Seen>,
    since: Instant,
    asleep: u32,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { seen: None, since: Instant::now(), asleep: 0 }
    }

    /// Looks again, at the thread of the system that has the turn, if one has.
    pub(crate) fn look(&mut self, seen: Seen, task: Option<&Task>) -> Verdict {
        if self.seen != Some(seen) {
            *self = Self { seen: Some(seen), ..Self::new() };
            return Verdict::Moves;
        }
        match task {
            Some(task) if task.is_asleep() => self.asleep += 1,
            _ => self.asleep = 0,
        }
        match self.asleep {
            0 => Verdict::Still(self.since.elapsed()),
            asleep if asleep < LOOKS_ASLEEP => Verdict::Moves,
            _ => Verdict::Asleep,
        }
    }

    /// Whether a run of fibers on one thread of the system has stood still for too long. `seen` is nothing where the
    /// simulation is locked.
    pub(crate) fn is_stuck(&mut self, seen: Option<Seen>, task: &Task) -> bool {
        let seen = seen.or(self.seen).unwrap_or_default();
        match self.look(seen, Some(task)) {
            Verdict::Moves => false,
            Verdict::Asleep => self.since.elapsed() > FIBERS_PATIENCE,
            Verdict::Still(time) => time > FIBERS_BUSY,
        }
    }
}

impl World {
    /// Ends the run where nobody has the turn, and those outside have been there for too long.
    pub(crate) fn hang_after(&mut self, time: Duration) {
        let computes = self.turns.computes_outside();
        if time > if computes { BUSY } else { PATIENCE } {
            self.hang(computes);
        }
    }

    /// See [`Seen`].
    pub(crate) fn seen(&self) -> (u64, u64, u64, Option<u32>) {
        (self.calls, self.steps, self.turns.moves(), self.running)
    }
}
