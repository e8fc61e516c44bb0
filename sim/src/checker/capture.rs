//! Captures that a call broke (C1), and frees of outside memory that went into a graph (C2).
//!
//! Whose call it was decides: a test says with `Sim::foreign` which calls are made by other code than the one under
//! test. Those may break captures as they like.

use super::{Findings, Line};
use crate::event::{AllocationId, CaptureId, Event, HostThread, WorkKind};

/// What the checker knows about captures and threads.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    foreign: Vec<HostThread>,
    /// Memory that a live capture allocated: its free belongs into the same graph.
    allocated: Vec<(CaptureId, AllocationId)>,
    /// Captures whose end was called, and failed: some drivers let them linger, and what breaks them then breaks
    /// nothing.
    failed: Vec<CaptureId>,
}

impl Captures {
    pub(crate) fn is_foreign(&self, thread: HostThread) -> bool {
        self.foreign.contains(&thread)
    }

    pub(crate) fn set_foreign(&mut self, thread: HostThread, foreign: bool) {
        self.foreign.retain(|known| *known != thread);
        if foreign {
            self.foreign.push(thread);
        }
    }

    /// The device was reset: no capture is left.
    pub(crate) fn forget_all(&mut self) {
        self.allocated.clear();
        self.failed.clear();
    }

    pub(crate) fn on(&mut self, event: &Event, findings: &mut Findings) {
        match event {
            Event::CaptureInvalidated { capture, thread, call, code }
                if !self.foreign.contains(thread) && !self.failed.contains(capture) =>
            {
                findings.violation(
                    Line::C1,
                    format!("{call} on host thread {thread} broke the capture {capture} (it returned {code})"),
                );
            }
            Event::Captured { capture, work: WorkKind::Allocate(allocation), .. } => {
                self.allocated.push((*capture, *allocation));
            }
            Event::Captured { capture, stream, thread, work: WorkKind::Free(allocation) } => {
                let own = self.allocated.contains(&(*capture, *allocation));
                if !own && !self.foreign.contains(thread) {
                    findings.violation(
                        Line::C2,
                        format!("the free of {allocation} on {stream} was recorded into the capture {capture}"),
                    );
                }
            }
            Event::CaptureEnded { capture, graph, .. } => {
                self.allocated.retain(|(known, _)| known != capture);
                if graph.is_none() {
                    self.failed.push(*capture);
                }
            }
            _ => {}
        }
    }
}
