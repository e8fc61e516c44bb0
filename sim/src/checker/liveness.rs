//! What never ends, and what is left at the end.
//!
//! A wait that nothing can end is named by what it waits for: threads that wait for each other's locks break O5, a wait
//! for a device that has nothing left to do breaks R6, and a lock held by a thread that waits for the device breaks R3.

use super::{Findings, Line};
use tenure::driver::Call;

/// Why nobody can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// Only locks are waited for.
    Locks,
    /// Only the device, or each other's end.
    Waits,
    /// Both.
    LocksAndWaits,
    /// Only locks and condition variables of the program's own.
    OwnLocks,
}

pub(crate) fn deadlock(stuck: Stuck, who: &str, device: &str, findings: &mut Findings) {
    let line = match stuck {
        Stuck::Locks => Line::O5,
        Stuck::Waits => Line::R6,
        Stuck::LocksAndWaits => Line::R3,
        Stuck::OwnLocks => Line::Usage,
    };
    findings.violation(line, format!("deadlock: {who}; {device}"));
}

pub(crate) fn livelock(steps: u64, who: &str, device: &str, findings: &mut Findings) {
    findings.violation(Line::R6, format!("no end after {steps} steps: {who}; {device}"));
}

pub(crate) fn hang(computes: bool, who: &str, device: &str, findings: &mut Findings) {
    let why = if computes { "a thread has its turn, calls nothing and does not end" } else { "no thread comes back" };
    let help = "under a schedule, use the locks of tenure_sim::sync and Sim::signal";
    findings.violation(Line::R6, format!("hang: {who}; {device}; {why} ({help})"));
}

/// What a run left alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leaks {
    /// Device allocations.
    pub allocations: u64,
    /// Registrations of host memory, and host memory that the driver allocated.
    pub pins: u64,
    /// Streams whose handle was not given back.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Graphs.
    pub graphs: u64,
    /// Executables.
    pub executables: u64,
    /// Captures that nobody ended.
    pub captures: u64,
    /// Modules; not counted as lost, since programs keep them to their end.
    pub modules: u64,
}

impl Leaks {
    /// Whether nothing was left.
    pub fn is_empty(&self) -> bool {
        Self { modules: 0, ..*self } == Self::default()
    }

    /// What is left when of each kind as many are taken off as calls to give one back were refused.
    pub(crate) fn without(&self, refused: impl Fn(Call) -> u64) -> Self {
        let tried = |calls: &[Call]| calls.iter().map(|call| refused(*call)).sum::<u64>();
        Self {
            allocations: self.allocations.saturating_sub(tried(&[Call::Free, Call::FreeAsync])),
            pins: self.pins.saturating_sub(tried(&[Call::HostFree, Call::HostUnregister])),
            streams: self.streams.saturating_sub(tried(&[Call::StreamDestroy])),
            events: self.events.saturating_sub(tried(&[Call::EventDestroy])),
            graphs: self.graphs.saturating_sub(tried(&[Call::GraphDestroy])),
            executables: self.executables.saturating_sub(tried(&[Call::ExecutableDestroy])),
            captures: self.captures.saturating_sub(tried(&[Call::CaptureEnd, Call::StreamDestroy])),
            modules: self.modules,
        }
    }

    /// Names each kind that was left, with the line that promises that nothing is.
    pub(crate) fn report(&self, findings: &mut Findings) {
        let kinds = [
            (self.allocations, Line::O6, "device allocation(s) never freed"),
            (self.pins, Line::P7, "registration(s) or host allocation(s) never undone: a release was lost"),
            (self.streams, Line::R5, "stream(s) never destroyed"),
            (self.events, Line::R5, "event(s) never destroyed"),
            (self.graphs, Line::R5, "graph(s) never destroyed"),
            (self.executables, Line::R5, "executable graph(s) never destroyed"),
            (self.captures, Line::C7, "capture(s) never ended"),
        ];
        for (count, line, what) in kinds.into_iter().filter(|(count, ..)| *count > 0) {
            findings.violation(line, format!("leak: {count} {what}"));
        }
    }
}
