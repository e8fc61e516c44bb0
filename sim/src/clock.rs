//! A virtual clock: how long each call and each operation would have taken, by the profile's table of costs.
//!
//! Every host thread and every stream has a time of its own. A call costs its thread; an operation begins when its
//! stream, its submission and what it waits for are all past, and costs its stream; a thread that is told of an
//! operation's end is not before it. The times order nothing: they are for traces, timed events and reports. Memory:
//! live streams, threads and operations.

use crate::event::{CallName, Event, EventId, OpId, StreamId, WorkKind};
use crate::profile::Profile;
use rustc_hash::FxHashMap;

/// A stretch of virtual time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    work: WorkKind,
    ready_ns: u64,
    bytes: u64,
}

/// The times of a run.
#[derive(Debug)]
pub(crate) struct Clock {
    threads: Vec<u64>,
    streams: FxHashMap<StreamId, u64>,
    pending: FxHashMap<OpId, Pending>,
    records: FxHashMap<EventId, u64>,
    /// The record that the last event completed.
    recorded: Option<(EventId, u64)>,
    latest_ns: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            threads: Vec::new(),
            streams: FxHashMap::default(),
            pending: FxHashMap::default(),
            records: FxHashMap::default(),
            recorded: None,
            latest_ns: 0,
        }
    }

    /// The latest time that anything has reached.
    pub(crate) fn now_ns(&self) -> u64 {
        self.latest_ns
    }

    /// The event whose record has just completed, with its stream's time then: once.
    pub(crate) fn take_recorded(&mut self) -> Option<(EventId, u64)> {
        self.recorded.take()
    }

    /// Moves on by an event; the stretch that a call or an operation took, where it ends one, and what an operation that
    /// starts or ends does.
    pub(crate) fn on(&mut self, event: &Event, profile: &Profile) -> (Span, Option<WorkKind>) {
        match event {
            Event::Started { op, .. } => (Span::default(), self.pending.get(op).map(|pending| pending.work)),
            Event::Completed { op, stream } => self.completed(*op, *stream, profile),
            _ => (self.on_other(event, profile), None),
        }
    }

    fn on_other(&mut self, event: &Event, profile: &Profile) -> Span {
        match event {
            Event::Called { thread, call, .. } => self.called(thread.0, *call, profile),
            Event::Submitted { op, thread, work, .. } => {
                let ready_ns = *self.thread(thread.0);
                self.pending.insert(*op, Pending { work: *work, ready_ns, bytes: bytes_of(*work) });
                Span::default()
            }
            Event::GraphLaunched { op, first_node, shape, .. } => {
                let ready_ns = self.pending.get(op).map_or(0, |launch| launch.ready_ns);
                for (index, node) in shape.nodes.iter().enumerate() {
                    let pending = Pending { work: node.work, ready_ns, bytes: bytes_of(node.work) };
                    self.pending.insert(OpId(first_node.0 + index as u64), pending);
                }
                Span::default()
            }
            Event::Waited { op, event, .. } => {
                let recorded = self.records.get(event).copied().unwrap_or(0);
                if let Some(pending) = self.pending.get_mut(op) {
                    pending.ready_ns = pending.ready_ns.max(recorded);
                }
                Span::default()
            }
            Event::Accessed { op, bytes, .. } => {
                if let Some(pending) = self.pending.get_mut(op) {
                    pending.bytes = pending.bytes.max(*bytes);
                }
                Span::default()
            }
            Event::Learned { thread, stream, .. } => {
                let end = self.streams.get(stream).copied().unwrap_or(0);
                let time = self.thread(thread.0);
                *time = (*time).max(end);
                Span::default()
            }
            Event::StreamGone { stream } => {
                self.streams.remove(stream);
                Span::default()
            }
            Event::EventDestroyed { event } => {
                self.records.remove(event);
                Span::default()
            }
            Event::DeviceReset { .. } => {
                self.pending.clear();
                self.records.clear();
                Span::default()
            }
            _ => Span::default(),
        }
    }

    fn called(&mut self, thread: u32, call: CallName, profile: &Profile) -> Span {
        let time = self.thread(thread);
        let begin_ns = *time;
        *time += profile.call_cost_ns(call);
        let end_ns = *time;
        self.latest_ns = self.latest_ns.max(end_ns);
        Span { begin_ns, end_ns }
    }

    fn completed(&mut self, op: OpId, stream: StreamId, profile: &Profile) -> (Span, Option<WorkKind>) {
        let Some(pending) = self.pending.remove(&op) else { return (Span::default(), None) };
        let time = self.streams.entry(stream).or_default();
        let begin_ns = (*time).max(pending.ready_ns);
        let end_ns = begin_ns + profile.work_cost_ns(pending.work, pending.bytes);
        *time = end_ns;
        if let WorkKind::Record(event) = pending.work {
            self.records.insert(event, end_ns);
            self.recorded = Some((event, end_ns));
        }
        self.latest_ns = self.latest_ns.max(end_ns);
        (Span { begin_ns, end_ns }, Some(pending.work))
    }

    fn thread(&mut self, thread: u32) -> &mut u64 {
        // The thread of host functions has the largest number of all: it shares a place with the first one.
        let index = if thread == u32::MAX { 0 } else { thread as usize };
        if self.threads.len() <= index {
            self.threads.resize(index + 1, 0);
        }
        &mut self.threads[index]
    }
}

fn bytes_of(work: WorkKind) -> u64 {
    match work {
        WorkKind::Copy(bytes) | WorkKind::Fill(bytes) => bytes,
        _ => 0,
    }
}
