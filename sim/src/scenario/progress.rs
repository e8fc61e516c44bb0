//! How far a replay is, for whoever looks on from another thread. No run depends on it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::replay::ScenarioResult;
use super::run::Verdict;
use super::stage::Stage;
use crate::checker::Line;

/// How far a replay is.
#[derive(Default)]
pub struct Progress {
    ended: AtomicU64,
    now: Mutex<Now>,
}

/// What is being played.
#[derive(Default)]
struct Now {
    file: String,
    profile: String,
    ended_before: u64,
    stage: Weak<Stage>,
}

impl Progress {
    /// How many schedules have ended.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// What to report of a schedule that has not ended after `time`: where it is and who waits for what.
    pub fn endless(&self, time: Duration) -> ScenarioResult {
        let now = self.now.lock();
        let whereabouts =
            now.stage.upgrade().map_or_else(|| "between two schedules".into(), |stage| stage.whereabouts());
        ScenarioResult {
            file: now.file.clone(),
            profile: now.profile.clone(),
            schedules: self.ended() - now.ended_before,
            outcome: Verdict::Violation,
            contract: Some(Line::R6.name().to_owned()),
            message: Some(format!("no end after {} s: {whereabouts}", time.as_secs())),
            ..ScenarioResult::default()
        }
    }

    pub(crate) fn begin(&self, file: &str, profile: &str) {
        let now = Now { file: file.into(), profile: profile.into(), ended_before: self.ended(), stage: Weak::new() };
        *self.now.lock() = now;
    }

    pub(crate) fn enter(&self, stage: &Arc<Stage>) {
        self.now.lock().stage = Arc::downgrade(stage);
    }

    pub(crate) fn end_one(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Progress({} ended)", self.ended())
    }
}
