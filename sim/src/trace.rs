//! What happened, kept for people: as lanes of text, and as a file that Perfetto opens.
//!
//! The trace keeps the last [`rows`](Trace::new) events of a run in a ring and says how many it dropped; it costs a few
//! tens of nanoseconds an event and bounded memory. The bytes that it writes depend on the events alone: the same seed
//! gives the same file.

mod lanes;
mod perfetto;

use crate::checker::{Finding, Severity};
use crate::clock::Span;
use crate::code::Code;
use crate::event::{BlockedOn, CallName, CaptureId, Event, EventId, HostThread, KernelId, OpId, StreamId, WorkKind};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) use self::lanes::{Lane, cell, title};

/// One row: what happened, in which lane, at which event of the run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// How many events the run had had, this one included.
    pub(crate) step: u64,
    pub(crate) lane: Lane,
    pub(crate) what: What,
    pub(crate) span: Span,
}

/// What a row says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    Called { call: CallName, stream: Option<StreamId>, code: Code },
    Blocked { call: CallName, on: BlockedOn },
    Submitted { op: OpId, stream: StreamId, work: WorkKind },
    Started { op: OpId, work: WorkKind },
    Completed { op: OpId, work: WorkKind },
    Waited { op: OpId, after: Option<OpId> },
    Captured { capture: CaptureId, work: WorkKind },
    CaptureBegan(CaptureId),
    CaptureEnded(CaptureId, Code),
    CaptureBroken(CaptureId, CallName),
    HostAccess { write: bool, bytes: u64 },
    Lost(Code),
    Found(Arc<str>, Severity),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Trace {
    rows: VecDeque<Row>,
    rows_max: usize,
    dropped: u64,
    lent: Vec<Event>,
}

impl Trace {
    /// A trace that keeps the last `rows_max` rows; 0 keeps findings only as text elsewhere.
    pub(crate) fn new(rows_max: usize) -> Self {
        // Room for a short run, so that it does not grow step by step.
        let rows = VecDeque::with_capacity(rows_max.min(ROWS_AT_FIRST));
        Self { rows, rows_max, dropped: 0, lent: Vec::with_capacity(EVENTS_AT_FIRST) }
    }

    /// A list for events, empty and with room, so that none is allocated a call. Give it back.
    pub(crate) fn lend(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.lent)
    }

    pub(crate) fn give_back(&mut self, mut list: Vec<Event>) {
        list.clear();
        self.lent = list;
    }

    /// How many rows were dropped since there was no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Where the first violation stands.
    pub(crate) fn first_violation(&self) -> Option<usize> {
        self.rows.iter().position(|row| matches!(row.what, What::Found(_, Severity::Violation)))
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// Adds what happened. `work` is what the operation does that an event starts or completes, where that is known.
    pub(crate) fn on(&mut self, event: &Event, span: Span, work: Option<WorkKind>, step: u64) {
        if self.rows_max == 0 {
            return;
        }
        if let Some((lane, what)) = Self::row_of(event, work) {
            self.push(Row { step, lane, what, span });
        }
    }

    pub(crate) fn found(&mut self, finding: &Finding, now_ns: u64) {
        let span = Span { begin_ns: now_ns, end_ns: now_ns };
        let text = format!("{}: {}", finding.line, finding.message);
        self.push(Row {
            step: finding.step,
            lane: Lane::Checker,
            what: What::Found(text.into(), finding.severity),
            span,
        });
    }

    fn push(&mut self, row: Row) {
        if self.rows.len() >= self.rows_max {
            self.rows.pop_front();
            self.dropped += 1;
        }
        self.rows.push_back(row);
    }

    fn row_of(event: &Event, work: Option<WorkKind>) -> Option<(Lane, What)> {
        Some(match event {
            Event::Called { thread, call, stream, code } => {
                (Lane::Host(*thread), What::Called { call: *call, stream: *stream, code: *code })
            }
            Event::Blocked { thread, call, on } => (Lane::Host(*thread), What::Blocked { call: *call, on: *on }),
            Event::Submitted { op, stream, thread, work, .. } => {
                (Lane::Host(*thread), What::Submitted { op: *op, stream: *stream, work: *work })
            }
            Event::Started { op, stream } => (Lane::Stream(*stream), What::Started { op: *op, work: work? }),
            Event::Completed { op, stream } => (Lane::Stream(*stream), What::Completed { op: *op, work: work? }),
            Event::Waited { op, after, .. } => (Lane::Checker, What::Waited { op: *op, after: *after }),
            Event::HostAccessed { thread, bytes, access, .. } => {
                let write = *access == crate::event::Access::Write;
                (Lane::Host(*thread), What::HostAccess { write, bytes: *bytes })
            }
            _ => return Self::capture_row(event),
        })
    }

    fn capture_row(event: &Event) -> Option<(Lane, What)> {
        Some(match event {
            Event::Captured { capture, stream, work, .. } => {
                (Lane::Stream(*stream), What::Captured { capture: *capture, work: *work })
            }
            Event::CaptureBegan { capture, stream, .. } => (Lane::Stream(*stream), What::CaptureBegan(*capture)),
            Event::CaptureEnded { capture, thread, code, .. } => {
                (Lane::Host(*thread), What::CaptureEnded(*capture, *code))
            }
            Event::CaptureInvalidated { capture, thread, call, .. } => {
                (Lane::Host(*thread), What::CaptureBroken(*capture, *call))
            }
            Event::DeviceLost { code } => (Lane::Checker, What::Lost(*code)),
            _ => return None,
        })
    }
}

/// How many rows there is room for at first.
const ROWS_AT_FIRST: usize = 256;

/// How many events of one step there is room for at first.
const EVENTS_AT_FIRST: usize = 16;

/// The names that a trace needs and that events do not carry.
pub(crate) trait Names {
    /// A host thread's name.
    fn thread(&self, thread: HostThread) -> String;
    /// A kernel's name.
    fn kernel(&self, kernel: KernelId) -> String;
}

/// An operation in a few words, as in `kernel scale`.
pub(crate) fn words(work: WorkKind, names: &dyn Names) -> String {
    match work {
        WorkKind::Kernel(kernel) => format!("kernel {}", names.kernel(kernel)),
        WorkKind::Copy(bytes) => format!("copy {bytes}"),
        WorkKind::Fill(bytes) => format!("fill {bytes}"),
        WorkKind::Allocate(allocation) => format!("malloc {allocation}"),
        WorkKind::Free(allocation) => format!("free {allocation}"),
        WorkKind::Record(event) => record(event),
        WorkKind::Wait(event) => format!("wait {event}"),
        WorkKind::HostFunction => "host function".into(),
        WorkKind::Graph(executable) => format!("graph {executable}"),
        WorkKind::Empty => "empty".into(),
    }
}

fn record(event: EventId) -> String {
    format!("record {event}")
}

pub(crate) use self::lanes::text;
pub(crate) use self::perfetto::json;
