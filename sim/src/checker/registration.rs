//! Driver calls about one host range that run at the same time as its unregister (P6).
//!
//! A call runs from the moment a thread makes it, before it takes effect, until it returns. In between the schedule may
//! let other threads run; so a missing lock shows in every schedule that interleaves the two calls, whichever order
//! their effects then have.

use super::{Findings, Line};
use crate::event::{Event, HostThread, RegistrationId};
use rustc_hash::FxHashMap;
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
    /// What is registered: an unregister names only where it begins.
    ends: FxHashMap<u64, u64>,
    bases: FxHashMap<RegistrationId, u64>,
}

impl InFlight {
    pub(crate) fn on(&mut self, event: &Event) {
        match event {
            Event::Registered { registration, base, bytes, .. } => {
                self.ends.insert(*base, *base + *bytes);
                self.bases.insert(*registration, *base);
            }
            Event::Unregistered { registration, .. } => {
                let base = self.bases.remove(registration);
                base.and_then(|base| self.ends.remove(&base));
            }
            _ => {}
        }
    }

    /// The device was reset: nothing is registered.
    pub(crate) fn forget_all(&mut self) {
        self.ends.clear();
        self.bases.clear();
    }

    pub(crate) fn begin(&mut self, thread: HostThread, mut region: Region, findings: &mut Findings) {
        if let Some(end) = self.ends.get(&region.bytes.start) {
            region.bytes.end = region.bytes.end.max(*end);
        }
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
    use crate::event::PinKind;
    use tenure::driver::DeviceAddress;

    fn region(call: Call, start: u64) -> Region {
        Region { call, bytes: start..start + 64 }
    }

    #[test]
    fn an_unregister_is_about_all_that_was_registered_there() {
        let mut findings = Findings::default();
        let mut calls = InFlight::default();
        let registration = RegistrationId(0);
        let (alias, kind, thread) = (DeviceAddress(0), PinKind::Registered, HostThread(0));
        calls.on(&Event::Registered { registration, base: 0, bytes: 4096, alias, kind, thread });
        calls.begin(thread, Region { call: Call::HostUnregister, bytes: 0..1 }, &mut findings);
        calls.begin(HostThread(1), region(Call::HostIsRegistered, 2048), &mut findings);
        assert_eq!(findings.all().len(), 1);
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
