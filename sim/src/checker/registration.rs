//! Driver calls about one host range that run at the same time as its unregister (P6).
//!
//! A call runs from the moment a thread makes it, before it takes effect, until it returns. In between the schedule may
//! let other threads run; so a missing lock shows in every schedule that interleaves the two calls, whichever order their
//! effects then have.

use super::{Findings, Line};
use crate::event::HostThread;
use std::ops::Range;
use tenure::driver::Call;

/// A call about host memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) call: Call,
    pub(crate) bytes: Range<u64>,
}

/// The calls about host memory that have begun and not returned.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    calls: Vec<(HostThread, Region)>,
}

impl InFlight {
    pub(crate) fn begin(&mut self, thread: HostThread, region: Region, findings: &mut Findings) {
        let unregisters = |region: &Region| matches!(region.call, Call::HostUnregister | Call::HostFree);
        for (other, running) in &self.calls {
            let overlap = running.bytes.start < region.bytes.end && region.bytes.start < running.bytes.end;
            if overlap && *other != thread && (unregisters(running) || unregisters(&region)) {
                findings.violation(
                    Line::P6,
                    format!(
                        "{} on host thread {thread} runs beside {} on host thread {other}, about the same host memory {:#x}",
                        region.call, running.call, region.bytes.start
                    ),
                );
            }
        }
        self.calls.push((thread, region));
    }

    pub(crate) fn end(&mut self, thread: HostThread) {
        self.calls.retain(|(running, _)| *running != thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(call: Call, start: u64) -> Region {
        Region { call, bytes: start..start + 64 }
    }

    #[test]
    fn only_an_overlapping_unregister_of_another_thread_counts() {
        let mut findings = Findings::default();
        let mut calls = InFlight::default();
        calls.begin(HostThread(0), region(Call::HostUnregister, 0), &mut findings);
        calls.begin(HostThread(1), region(Call::HostRegister, 64), &mut findings);
        calls.end(HostThread(1));
        calls.begin(HostThread(1), region(Call::HostRegister, 63), &mut findings);
        calls.end(HostThread(0));
        calls.begin(HostThread(2), region(Call::HostIsRegistered, 63), &mut findings);
        let lines: Vec<_> = findings.all().iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [Line::P6]);
    }
}
