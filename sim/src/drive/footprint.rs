//! What a step touched, so that a walk over all orders can tell which steps may change places.
//!
//! Two steps are *apart* when either order of them leads to the same: both by different actors, and nothing that one
//! changes is read or changed by the other. Steps of two host threads are never apart, since they share the memory of
//! the program and the core. A step that touches what is not listed here touches everything.

use crate::event::{BlockedOn, CallName, Event, Memory, StreamId, WorkKind};
use tenure::driver::Call;

/// What one step touched. Sets are of numbers modulo 64: where two meet that are not the same, order is kept for
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    is_all: bool,
    is_host: bool,
    /// The list of free device memory.
    allocates: bool,
    streams: u64,
    events: u64,
    reads: u64,
    writes: u64,
    reads_host: bool,
    writes_host: bool,
}

impl Footprint {
    /// Everything.
    pub(crate) const ALL: Self = Self {
        is_all: true,
        is_host: true,
        allocates: true,
        streams: u64::MAX,
        events: u64::MAX,
        reads: u64::MAX,
        writes: u64::MAX,
        reads_host: true,
        writes_host: true,
    };

    /// Whether steps with these footprints, by different actors, may change places.
    pub(crate) fn is_apart(&self, other: &Self) -> bool {
        let shares_memory = self.writes & (other.reads | other.writes) != 0 || other.writes & self.reads != 0;
        let shares_host =
            self.writes_host && (other.reads_host || other.writes_host) || other.writes_host && self.reads_host;
        !(self.is_all
            || other.is_all
            || self.is_host && other.is_host
            || self.allocates && other.allocates
            || self.streams & other.streams != 0
            || self.events & other.events != 0
            || shares_memory
            || shares_host)
    }

    /// It was a turn of a host thread.
    pub(crate) fn of_host(self) -> Self {
        Self { is_host: true, ..self }
    }

    /// The device is about to do this.
    pub(crate) fn work(&mut self, stream: StreamId, work: WorkKind) {
        self.streams |= bit(stream.0);
        match work {
            WorkKind::Kernel(_) | WorkKind::Copy(_) | WorkKind::Fill(_) => {}
            WorkKind::Allocate(allocation) | WorkKind::Free(allocation) => {
                self.allocates = true;
                self.writes |= bit(allocation.0);
            }
            WorkKind::Record(event) | WorkKind::Wait(event) => self.events |= bit(event.0),
            // The program's own code runs there, or work that has an order of its own.
            WorkKind::HostFunction | WorkKind::Graph(_) | WorkKind::Empty => *self = Self::ALL,
        }
    }

    /// This happened in the step.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Called { call, stream, .. } => self.called(*call, *stream),
            Event::Blocked { on: BlockedOn::Operation { stream, .. } | BlockedOn::QueueRoom { stream }, .. }
            | Event::Started { stream, .. }
            | Event::Completed { stream, .. }
            | Event::Learned { stream, .. } => self.streams |= bit(stream.0),
            Event::Submitted { stream, work, .. } => self.work(*stream, *work),
            Event::Waited { event, .. } | Event::Recorded { event, .. } => self.events |= bit(event.0),
            Event::Accessed { memory: Memory::Device(allocation), access, .. } => match access {
                crate::event::Access::Read => self.reads |= bit(allocation.0),
                crate::event::Access::Write => self.writes |= bit(allocation.0),
            },
            Event::Accessed { memory: Memory::Host(_), access, .. } | Event::HostAccessed { access, .. } => {
                match access {
                    crate::event::Access::Read => self.reads_host = true,
                    crate::event::Access::Write => self.writes_host = true,
                }
            }
            Event::UnwrittenRead { allocation, .. } => self.reads |= bit(allocation.0),
            Event::Allocated { allocation, .. } | Event::Freed { allocation, .. } => {
                self.allocates = true;
                self.writes |= bit(allocation.0);
            }
            // A thread's own mode.
            Event::ModeExchanged { .. } => {}
            _ => *self = Self::ALL,
        }
    }

    fn called(&mut self, call: CallName, stream: Option<StreamId>) {
        match (call, stream) {
            (CallName::Core(Call::ExchangeCaptureMode), _) => {}
            (
                CallName::Core(
                    Call::Launch
                    | Call::Copy
                    | Call::Fill
                    | Call::EventRecord
                    | Call::StreamWaitEvent
                    | Call::StreamQuery
                    | Call::StreamSynchronize,
                ),
                Some(stream),
            ) => self.streams |= bit(stream.0),
            (CallName::Core(Call::MallocAsync | Call::FreeAsync), Some(stream)) => {
                self.streams |= bit(stream.0);
                self.allocates = true;
            }
            _ => *self = Self::ALL,
        }
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{AllocationId, EventId, KernelId};

    fn step(stream: u64, work: WorkKind) -> Footprint {
        let mut footprint = Footprint::default();
        footprint.work(StreamId(stream), work);
        footprint
    }

    #[test]
    fn only_what_shares_nothing_is_apart() {
        let kernel = WorkKind::Kernel(KernelId(0));
        let (a, b) = (step(1, kernel), step(2, kernel));
        assert!(a.is_apart(&b) && !a.is_apart(&step(1, kernel)));
        let touching = |footprint: Footprint, reads, writes| Footprint { reads, writes, ..footprint };
        assert!(touching(a, 1, 0).is_apart(&touching(b, 1, 0)), "two readers");
        assert!(!touching(a, 1, 0).is_apart(&touching(b, 0, 1)), "a reader and a writer");
        assert!(!touching(a, 0, 1).is_apart(&touching(b, 0, 1)), "two writers");
        assert!(a.of_host().is_apart(&b) && !a.of_host().is_apart(&b.of_host()), "host threads share memory");
        assert!(!a.is_apart(&step(2, WorkKind::HostFunction)) && !a.is_apart(&Footprint::ALL));
        let record = |stream| step(stream, WorkKind::Record(EventId(9)));
        assert!(!record(1).is_apart(&step(2, WorkKind::Wait(EventId(9)))));
        let free = |stream, allocation| step(stream, WorkKind::Free(AllocationId(allocation)));
        assert!(!free(1, 1).is_apart(&free(2, 2)), "the order of frees decides what is handed out next");
    }
}
