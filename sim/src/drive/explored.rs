//! Every order, for small cases: depth first over the choices, each walk a fresh run of the program.
//!
//! There is no reduction, since code of any kind may do what no event tells: two walks that differ only in the order of
//! things that do not touch each other are both walked. So keep such cases small: three actors of three moves each have
//! 1,680 orders. Scenario files do only what is known, and are walked by `reduced`.

use super::schedule::{Path, Schedule};
use super::seat::Shared;

/// A search over all orders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    path: Path,
    /// The program did something else at the same choices: it depends on more than the schedule.
    diverged: bool,
}

impl Search {
    /// A search that begins with the walk of a replay key.
    pub(crate) fn from_key(key: &str) -> Option<Self> {
        Some(Self { path: Path::parse(key)?, diverged: false })
    }

    /// The schedule of the next walk.
    pub(crate) fn schedule(&mut self) -> Schedule {
        Schedule::Path(std::mem::take(&mut self.path))
    }

    /// Takes the walk that `shared` has made and turns to the next one; `false` when all were walked.
    pub(crate) fn advance(&mut self, shared: &Shared) -> bool {
        let walked = std::mem::replace(&mut shared.world.lock().schedule, Schedule::First);
        let Schedule::Path(mut path) = walked else { return false };
        self.diverged |= path.diverged();
        let more = path.advance();
        self.path = path;
        more
    }

    pub(crate) fn diverged(&self) -> bool {
        self.diverged
    }
}
