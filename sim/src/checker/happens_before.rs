//! Races: two accesses to the same bytes, one of them a write, with no chain of edges between them (O1, O3, O6, P3).
//!
//! A race is reported whatever the bytes turned out to be: the schedule that makes them wrong exists, even if it is not
//! this one. Cost: three look-ups an access; memory as live operations, allocations, registrations and streams.

use super::lifetime::Context;
use super::order::{Epoch, Lane, Lanes, Position};
use super::shadow::{Conflict, Mark, Ranges, Region, Seen};
use super::{Findings, Line};
use crate::event::{
    Access, AllocationId, Event, EventId, ExecutableId, GraphShape, HostThread, Memory, MemoryOrder, OpId, PinKind,
    RegistrationId, StreamId, Violation, WorkKind,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Who made an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// An operation.
    Operation { op: OpId, stream: StreamId, work: WorkKind },
    /// A host thread.
    Host(HostThread),
}

/// Figures about order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderFigures {
    /// Waits on the device for an event that had been recorded.
    pub edges: u64,
    /// Those that some conflict needed so far: without them there would have been a race. The rest is needless order.
    pub edges_needed: u64,
    /// Accesses checked.
    pub accesses: u64,
}

#[derive(Debug)]
pub(crate) struct HappensBefore {
    lanes: Lanes,
    host: Lane,
    streams: FxHashMap<StreamId, StreamLane>,
    gone: VecDeque<(StreamId, StreamLane)>,
    pending: FxHashMap<OpId, Pending>,
    kept: FxHashMap<OpId, Kept>,
    events: FxHashMap<EventId, OpId>,
    executables: FxHashMap<ExecutableId, OpId>,
    launches: FxHashMap<OpId, Launch>,
    allocations: FxHashMap<AllocationId, Region<Label>>,
    host_ranges: Ranges<Label>,
    /// How many host ranges are kept before those that everybody knows are forgotten.
    host_ranges_max: usize,
    registrations: FxHashMap<RegistrationId, Registered>,
    /// What was known when the thread's present call began; for calls that must not lean on their own waiting.
    call_begins: FxHashMap<HostThread, Position>,
    /// Threads in calls that may wait: what their present call waits for they do not know by it.
    learn_nothing: SmallVec<[HostThread; 4]>,
    function: Option<OpId>,
    is_lost: bool,
    gains: VecDeque<Gain>,
    figures: OrderFigures,
    reported: FxHashSet<(u32, u32, Memory)>,
}

/// A live registration: where it lies on the host, where the device sees it, and how long it is.
#[derive(Clone, Copy, Debug)]
struct Registered {
    base: u64,
    alias: u64,
    bytes: u64,
    kind: PinKind,
}

#[derive(Clone, Debug)]
struct StreamLane {
    lane: Lane,
    /// Operation `n` is at place `offset + n`. Grows by the nodes of graphs that ran here.
    offset: u64,
    /// The last operation that has completed.
    last: Option<OpId>,
}

#[derive(Debug)]
struct Pending {
    submitted: Position,
    stream: StreamId,
    work: WorkKind,
    after: SmallVec<[OpId; 1]>,
    /// For a node: its launch and its index there.
    node: Option<(OpId, u32)>,
}

/// The position of an operation that somebody may still ask for.
#[derive(Debug, Default)]
struct Kept {
    uses: u32,
    position: Option<Position>,
}

/// A running launch of a graph. A *branch* is a chain of nodes that shares a lane; branch 0 is the stream's own.
#[derive(Debug)]
struct Launch {
    shape: Arc<GraphShape>,
    branches: Vec<u32>,
    lanes: Vec<Option<Lane>>,
    ends: Vec<Option<Position>>,
    begun: bool,
}

/// What an edge taught a lane: all that `after` covers and `before` did not.
#[derive(Clone, Debug)]
struct Gain {
    before: Position,
    after: Position,
}

impl HappensBefore {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Lanes::new(),
            host: Lanes::host(),
            streams: FxHashMap::default(),
            gone: VecDeque::new(),
            pending: FxHashMap::default(),
            kept: FxHashMap::default(),
            events: FxHashMap::default(),
            executables: FxHashMap::default(),
            launches: FxHashMap::default(),
            allocations: FxHashMap::default(),
            host_ranges: Ranges::new(),
            host_ranges_max: HOST_RANGES_MAX,
            registrations: FxHashMap::default(),
            call_begins: FxHashMap::default(),
            learn_nothing: SmallVec::new(),
            function: None,
            is_lost: false,
            gains: VecDeque::new(),
            figures: OrderFigures::default(),
            reported: FxHashSet::default(),
        }
    }

    /// The device was reset: what was done before concerns nobody any more.
    pub(crate) fn forget_all(&mut self) {
        *self = Self { figures: self.figures, ..Self::new() };
    }

    pub(crate) fn figures(&self) -> OrderFigures {
        self.figures
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        let operations = self.pending.len() + self.kept.len() + self.launches.len();
        let objects = self.streams.len() + self.events.len() + self.executables.len() + self.registrations.len();
        operations + objects + self.allocations.len() + self.host_ranges.len() + self.gains.len() + self.reported.len()
    }

    /// A call begins that may itself wait, and whose effect must be in order without that (P3, O6).
    pub(crate) fn call_begins(&mut self, thread: HostThread) {
        self.call_begins.insert(thread, self.host.position().clone());
    }

    /// The thread's present call may wait on this driver, and does not on others: it teaches the thread nothing.
    pub(crate) fn learns_nothing(&mut self, thread: HostThread) {
        self.learn_nothing.push(thread);
    }

    /// A thread has waited for the whole device: it is after streams that are gone, too.
    pub(crate) fn device_was_waited_for(&mut self) {
        self.lanes.teach_retired(&mut self.host);
    }

    pub(crate) fn call_ended(&mut self, thread: HostThread) {
        if !self.call_begins.is_empty() {
            self.call_begins.remove(&thread);
        }
        if !self.learn_nothing.is_empty() {
            self.learn_nothing.retain(|known| *known != thread);
        }
    }

    /// What is known about an access that the engine refused.
    pub(crate) fn describe(&self, violation: &Violation, findings: &Findings) -> Context {
        let (op, address) = match violation {
            Violation::Access { op, address, .. } => (op, address),
            Violation::OverlappingCopy { op, .. } | Violation::CodeInUse { op, .. } => {
                return Context { who: self.who(*op, findings), ..Context::default() };
            }
            _ => return Context::default(),
        };
        let pending = self.pending.get(op);
        let begins_in = |start: u64, bytes: u64| (start..start + bytes).contains(address);
        let holds = |at: &Registered| begins_in(at.base, at.bytes) || begins_in(at.alias, at.bytes);
        Context {
            who: self.who(*op, findings),
            in_graph: pending.is_some_and(|pending| pending.node.is_some()),
            beside_registration: self.registrations.values().any(holds),
        }
    }

    /// The operation as a sentence needs it.
    pub(crate) fn who(&self, op: OpId, findings: &Findings) -> String {
        let pending = self.pending.get(&op);
        let label = pending.map(|pending| Label::Operation { op, stream: pending.stream, work: pending.work });
        label.map_or_else(|| op.to_string(), |label| findings.who(label))
    }

    pub(crate) fn on(&mut self, event: &Event, findings: &mut Findings) {
        match event {
            Event::Submitted { op, stream, work, .. } => self.submitted(*op, *stream, *work),
            Event::Waited { op, after: Some(record), .. } => {
                self.figures.edges += 1;
                self.after(*op, *record);
            }
            Event::Ordered { op, after } => {
                self.remember(*after);
                self.after(*op, *after);
            }
            Event::Recorded { event, op } => {
                let before = self.events.insert(*event, *op);
                self.keep(*op, before);
            }
            Event::EventDestroyed { event } => {
                let before = self.events.remove(event);
                self.release(before);
            }
            Event::GraphLaunched { executable, op, first_node, shape } => {
                self.graph_launched(*executable, *op, *first_node, shape);
            }
            Event::ExecutableDestroyed { executable, .. } => {
                let before = self.executables.remove(executable);
                self.release(before);
            }
            Event::Started { op, .. } => self.started(*op),
            Event::Completed { op, .. } => self.completed(*op),
            Event::Accessed { op, memory, start, bytes, access } => {
                self.accessed(*op, *memory, *start..*start + *bytes, *access, findings);
            }
            Event::HostAccessed { thread, start, bytes, access } => {
                self.host_accessed(*thread, *start..*start + *bytes, *access, findings);
            }
            Event::FunctionStarted { op, .. } => self.function_started(*op),
            Event::FunctionReturned { .. } => self.function = None,
            Event::Learned { thread, stream, op, number } if !self.learn_nothing.contains(thread) => {
                self.learned(*stream, *op, *number);
            }
            _ => self.on_object(event, findings),
        }
    }

    fn on_object(&mut self, event: &Event, findings: &mut Findings) {
        match event {
            Event::StreamCreated { stream, .. } => {
                self.stream_lane(*stream);
            }
            Event::StreamGone { stream } => self.stream_gone(*stream),
            Event::Allocated { allocation, bytes, order, .. } => self.allocated(*allocation, *bytes, *order),
            Event::Freed { allocation, order } => self.freed(*allocation, *order, findings),
            Event::Registered { registration, base, bytes, alias, kind, .. } => {
                let registered = Registered { base: *base, alias: alias.0, bytes: *bytes, kind: *kind };
                self.registrations.insert(*registration, registered);
                if *kind == PinKind::Allocated {
                    self.host_ranges.forget(*base..*base + *bytes);
                }
            }
            Event::HostMemoryGone { thread, start, bytes } if *bytes > 0 => {
                self.host_memory_gone(*thread, *start..start.saturating_add(*bytes), findings);
            }
            Event::DeviceLost { .. } => self.is_lost = true,
            Event::Unregistered { registration, thread } => self.unregistered(*registration, *thread, findings),
            _ => {}
        }
    }

    // --- operations

    fn submitted(&mut self, op: OpId, stream: StreamId, work: WorkKind) {
        let submitted = self.host.position().clone();
        self.pending.insert(op, Pending { submitted, stream, work, after: SmallVec::new(), node: None });
    }

    fn after(&mut self, op: OpId, earlier: OpId) {
        if let Some(pending) = self.pending.get_mut(&op) {
            pending.after.push(earlier);
            self.kept.entry(earlier).or_default().uses += 1;
        }
    }

    /// Somebody asks for an operation that may have completed when nobody did: it can only be the last of its stream.
    fn remember(&mut self, op: OpId) {
        if self.pending.contains_key(&op) || self.kept.contains_key(&op) {
            return;
        }
        if let Some(at) = self.streams.values().find(|at| at.last == Some(op)) {
            let position = Some(at.lane.position().clone());
            self.kept.insert(op, Kept { uses: 0, position });
        }
    }

    fn keep(&mut self, op: OpId, before: Option<OpId>) {
        self.kept.entry(op).or_default().uses += 1;
        self.release(before);
    }

    fn release(&mut self, op: Option<OpId>) {
        let Some(op) = op else { return };
        if let Some(kept) = self.kept.get_mut(&op) {
            kept.uses = kept.uses.saturating_sub(1);
            if kept.uses == 0 {
                self.kept.remove(&op);
            }
        }
    }

    fn started(&mut self, op: OpId) {
        if self.launches.contains_key(&op) {
            return self.launch_begins(op);
        }
        let Some(pending) = self.pending.get_mut(&op) else { return };
        if let Some((launch, index)) = pending.node {
            return self.node_started(launch, index);
        }
        let after = std::mem::take(&mut pending.after);
        let stream = pending.stream;
        let lane = &mut stream_lane(&mut self.streams, &mut self.lanes, &self.host, stream).lane;
        lane.step();
        lane.learn(&pending.submitted);
        for earlier in after {
            self.learn_edge(stream, earlier);
            self.release(Some(earlier));
        }
    }

    /// `stream` is now after the operation `earlier`, and remembers what it gained by that.
    fn learn_edge(&mut self, stream: StreamId, earlier: OpId) {
        let Some(position) = self.kept.get(&earlier).and_then(|kept| kept.position.clone()) else { return };
        let Some(at) = self.streams.get_mut(&stream) else { return };
        let before = at.lane.position().clone();
        if at.lane.learn(&position) {
            if self.gains.len() >= GAINS_MAX {
                self.gains.pop_front();
            }
            self.gains.push_back(Gain { before, after: position });
        }
    }

    fn completed(&mut self, op: OpId) {
        if self.launches.contains_key(&op) {
            self.launch_ends(op);
        }
        let Some(pending) = self.pending.remove(&op) else { return };
        if let Some((launch, index)) = pending.node {
            return self.node_ended(launch, index);
        }
        let Some(stream) = self.streams.get_mut(&pending.stream) else { return };
        stream.last = Some(op);
        if let Some(kept) = self.kept.get_mut(&op) {
            kept.position = Some(stream.lane.position().clone());
        }
    }

    fn learned(&mut self, stream: StreamId, op: OpId, number: u64) {
        if let Some(position) = self.kept.get(&op).and_then(|kept| kept.position.as_ref()) {
            self.host.learn(position);
            return;
        }
        let gone = || self.gone.iter().find(|(id, _)| *id == stream).map(|(_, lane)| lane);
        if let Some(at) = self.streams.get(&stream).or_else(gone) {
            let position = at.lane.position().clone().not_after(at.offset + number);
            self.host.learn(&position);
        }
    }

    fn function_started(&mut self, op: OpId) {
        self.function = Some(op);
        if let Some(lane) = self.lane_of(op) {
            let position = lane.position().clone();
            self.host.learn(&position);
        }
    }

    /// The running host function lets others run.
    pub(crate) fn function_pauses(&mut self) {
        let Some(pending) = self.function.and_then(|op| self.pending.get(&op)) else { return };
        let branch = pending.node.and_then(|(launch, index)| {
            let launch = self.launches.get_mut(&launch)?;
            let branch = launch.branches[index as usize] as usize;
            launch.lanes[branch].as_mut()
        });
        let lane = match (branch, self.streams.get_mut(&pending.stream)) {
            (Some(lane), _) => lane,
            (None, Some(at)) => {
                at.offset += 1;
                &mut at.lane
            }
            (None, None) => return,
        };
        self.host.learn(lane.position());
        lane.step();
    }

    // --- graphs

    fn graph_launched(&mut self, executable: ExecutableId, op: OpId, first: OpId, shape: &Arc<GraphShape>) {
        let before = self.executables.insert(executable, op);
        self.keep(op, before);
        let Some(launch) = self.pending.get(&op) else { return };
        let (submitted, stream) = (launch.submitted.clone(), launch.stream);
        for (index, node) in shape.nodes.iter().enumerate() {
            let node = Pending {
                submitted: submitted.clone(),
                stream,
                work: node.work,
                after: SmallVec::new(),
                node: Some((op, index as u32)),
            };
            self.pending.insert(OpId(first.0 + index as u64), node);
        }
        let branches = branches(shape);
        let count = branches.iter().max().map_or(0, |last| *last as usize + 1);
        let launch = Launch {
            shape: shape.clone(),
            branches,
            lanes: vec![None; count],
            ends: vec![None; shape.nodes.len()],
            begun: false,
        };
        self.launches.insert(op, launch);
    }

    fn launch_begins(&mut self, op: OpId) {
        let Some(launch) = self.launches.get_mut(&op).filter(|launch| !launch.begun) else { return };
        launch.begun = true;
        let Some(pending) = self.pending.get_mut(&op) else { return };
        let after = std::mem::take(&mut pending.after);
        let (stream, submitted) = (pending.stream, pending.submitted.clone());
        let lane = &mut stream_lane(&mut self.streams, &mut self.lanes, &self.host, stream).lane;
        lane.step();
        lane.learn(&submitted);
        for earlier in after {
            self.learn_edge(stream, earlier);
            self.release(Some(earlier));
        }
        let start = self.streams[&stream].lane.position().clone();
        let Some(launch) = self.launches.get_mut(&op) else { return };
        for lane in launch.lanes.iter_mut().skip(1) {
            *lane = Some(self.lanes.open(&start));
        }
    }

    fn node_started(&mut self, op: OpId, index: u32) {
        self.launch_begins(op);
        let Some(stream) = self.pending.get(&op).map(|launch| launch.stream) else { return };
        let Some(launch) = self.launches.get_mut(&op) else { return };
        let branch = launch.branches[index as usize] as usize;
        let ends = &launch.ends;
        let earlier = launch.shape.nodes[index as usize].after.iter();
        let earlier: SmallVec<[Position; 2]> = earlier.filter_map(|node| ends[*node as usize].clone()).collect();
        let lane = match launch.lanes[branch].as_mut() {
            Some(lane) => lane,
            None => {
                let Some(at) = self.streams.get_mut(&stream) else { return };
                at.offset += 1;
                &mut at.lane
            }
        };
        lane.step();
        for position in &earlier {
            lane.learn(position);
        }
    }

    fn node_ended(&mut self, op: OpId, index: u32) {
        let Some(stream) = self.pending.get(&op).map(|launch| launch.stream) else { return };
        let Some(launch) = self.launches.get_mut(&op) else { return };
        let branch = launch.branches[index as usize] as usize;
        let lane = launch.lanes[branch].as_ref().or_else(|| self.streams.get(&stream).map(|at| &at.lane));
        launch.ends[index as usize] = lane.map(|lane| lane.position().clone());
    }

    fn launch_ends(&mut self, op: OpId) {
        self.launch_begins(op);
        let Some(stream) = self.pending.get(&op).map(|launch| launch.stream) else { return };
        let (Some(launch), Some(at)) = (self.launches.remove(&op), self.streams.get_mut(&stream)) else { return };
        for lane in launch.lanes.into_iter().flatten() {
            at.lane.learn(lane.position());
            self.lanes.retire(&lane);
        }
        self.sweep_lanes();
    }

    // --- memory

    fn accessed(&mut self, op: OpId, memory: Memory, range: Range<u64>, access: Access, findings: &mut Findings) {
        self.figures.accesses += 1;
        let Some(pending) = self.pending.get(&op) else { return };
        let label = Label::Operation { op, stream: pending.stream, work: pending.work };
        let Some(lane) = lane_of(pending, &self.launches, &self.streams) else { return };
        let mark = Mark { epoch: lane.position().epoch(), label };
        let seen = match memory {
            Memory::Device(allocation) => {
                let Some(region) = self.allocations.get_mut(&allocation) else { return };
                region.access(range, access, lane.position(), mark)
            }
            Memory::Host(_) => self.host_ranges.access(range, access, lane.position(), mark),
        };
        self.saw(&seen, Use { label, access, memory, lane: mark.epoch.lane }, race_line, findings);
        self.bound_host_ranges();
    }

    fn host_accessed(&mut self, thread: HostThread, range: Range<u64>, access: Access, findings: &mut Findings) {
        let function = self.function.filter(|_| thread == HostThread::FUNCTIONS).and_then(|op| self.pending.get(&op));
        if function.is_none() {
            self.host.step();
        }
        let lane = function.and_then(|pending| lane_of(pending, &self.launches, &self.streams)).unwrap_or(&self.host);
        let position = lane.position().clone();
        let label = Label::Host(thread);
        let mark = Mark { epoch: position.epoch(), label };
        let seen = self.host_ranges.access(range, access, &position, mark);
        let access = Use { label, access, memory: Memory::Host(None), lane: mark.epoch.lane };
        self.saw(&seen, access, |_| Line::O3, findings);
        self.bound_host_ranges();
    }

    /// Host memory ends: nothing that used it may be unordered, and what lies there later is other memory.
    fn host_memory_gone(&mut self, thread: HostThread, range: Range<u64>, findings: &mut Findings) {
        let touches = |at: &Registered| at.base < range.end && range.start < at.base + at.bytes;
        if !self.is_lost && self.registrations.values().any(touches) {
            let start = range.start;
            let message = format!(
                "host thread {thread} gave the memory at {start:#x} back to the system while it was registered"
            );
            findings.violation(Line::P4, message);
        }
        let (label, memory, position) = (Label::Host(thread), Memory::Host(None), self.host.position().clone());
        if let Some(conflict) = self.host_ranges.unordered(range.clone(), &position, is_of_device) {
            let seen = Seen { conflict: Some(conflict), ordered: SmallVec::new() };
            let access = Use { label, access: Access::Write, memory, lane: position.epoch().lane };
            self.saw(&seen, access, |_| Line::P4, findings);
        }
        self.host_ranges.forget(range);
    }

    fn allocated(&mut self, allocation: AllocationId, bytes: u64, order: MemoryOrder) {
        let mut region = Region::new(0..bytes.max(1));
        if let Some((label, position)) = self.orderer(order, false) {
            let mark = Mark { epoch: position.epoch(), label };
            let seen = region.access(0..bytes.max(1), Access::Write, &position, mark);
            debug_assert!(seen.conflict.is_none(), "a new region has no past");
        }
        self.allocations.insert(allocation, region);
    }

    fn freed(&mut self, allocation: AllocationId, order: MemoryOrder, findings: &mut Findings) {
        let Some(mut region) = self.allocations.remove(&allocation) else { return };
        let Some((label, position)) = self.orderer(order, true) else { return };
        let mark = Mark { epoch: position.epoch(), label };
        let seen = region.access(region.range(), Access::Write, &position, mark);
        let memory = Memory::Device(allocation);
        let access = Use { label, access: Access::Write, memory, lane: mark.epoch.lane };
        self.saw(&seen, access, |_| Line::O6, findings);
    }

    fn unregistered(&mut self, registration: RegistrationId, thread: HostThread, findings: &mut Findings) {
        let Some(registered) = self.registrations.remove(&registration) else { return };
        let range = registered.base..registered.base + registered.bytes;
        let position = self.call_begins.get(&thread).unwrap_or(self.host.position()).clone();
        let (label, memory) = (Label::Host(thread), Memory::Host(Some(registration)));
        // A host access since the call began is no business of the unregister: only the device's are.
        if let Some(conflict) = self.host_ranges.unordered(range.clone(), &position, is_of_device) {
            let seen = Seen { conflict: Some(conflict), ordered: SmallVec::new() };
            let access = Use { label, access: Access::Write, memory, lane: position.epoch().lane };
            self.saw(&seen, access, |_| Line::P3, findings);
        }
        if registered.kind == PinKind::Allocated {
            self.host_ranges.forget(range);
        }
    }

    /// Who orders an allocation or a free, and what is known there.
    fn orderer(&mut self, order: MemoryOrder, at_call: bool) -> Option<(Label, Position)> {
        match order {
            MemoryOrder::Thread(thread) => {
                let begun = self.call_begins.get(&thread).filter(|_| at_call);
                Some((Label::Host(thread), begun.unwrap_or(self.host.position()).clone()))
            }
            MemoryOrder::Operation(op) => {
                let pending = self.pending.get(&op)?;
                let label = Label::Operation { op, stream: pending.stream, work: pending.work };
                Some((label, lane_of(pending, &self.launches, &self.streams)?.position().clone()))
            }
        }
    }

    fn saw(&mut self, seen: &Seen<Label>, now: Use, line: impl Fn(&Conflict<Label>) -> Line, findings: &mut Findings) {
        for epoch in &seen.ordered {
            self.needed(now.lane, *epoch);
        }
        let Some(conflict) = &seen.conflict else { return };
        if self.reported.len() >= REPORTED_MAX
            || !self.reported.insert((conflict.earlier.epoch.lane, now.lane, now.memory))
        {
            return;
        }
        findings.race(line(conflict), conflict, now.label, now.access, now.memory);
    }

    /// An access in `lane` was in order after `epoch`: the edges that taught it so were needed, and those that taught
    /// the streams from which they came.
    fn needed(&mut self, lane: u32, epoch: Epoch) {
        let mut lane = lane;
        while lane != epoch.lane {
            let teaches = |gain: &Gain| {
                gain.before.epoch().lane == lane && gain.after.covers(epoch) && !gain.before.covers(epoch)
            };
            let Some(index) = self.gains.iter().position(teaches) else { return };
            let Some(gain) = self.gains.remove(index) else { return };
            self.figures.edges_needed += 1;
            lane = gain.after.epoch().lane;
        }
    }

    // --- lanes

    fn stream_lane(&mut self, stream: StreamId) -> &mut StreamLane {
        stream_lane(&mut self.streams, &mut self.lanes, &self.host, stream)
    }

    fn lane_of(&self, op: OpId) -> Option<&Lane> {
        lane_of(self.pending.get(&op)?, &self.launches, &self.streams)
    }

    fn stream_gone(&mut self, stream: StreamId) {
        let Some(at) = self.streams.remove(&stream) else { return };
        self.lanes.retire(&at.lane);
        self.gone.push_back((stream, at));
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
        self.sweep_lanes();
    }

    fn sweep_lanes(&mut self) {
        if !self.lanes.want_sweep() {
            return;
        }
        let mut named: FxHashSet<u32> = self.gone.iter().map(|(_, at)| at.lane.number()).collect();
        self.host_ranges.name_lanes(&mut named);
        self.allocations.values().for_each(|region| region.name_lanes(&mut named));
        self.lanes.sweep(|lane| named.contains(&lane));
        self.reported.clear();
    }

    /// Forgets host ranges that everybody knows, once there are twice as many as were left the last time.
    fn bound_host_ranges(&mut self) {
        if self.host_ranges.len() > self.host_ranges_max {
            self.host_ranges.forget_known(self.host.position());
            self.host_ranges_max = HOST_RANGES_MAX.max(2 * self.host_ranges.len());
        }
    }
}

/// Whether the device made an access, a host function included.
fn is_of_device(label: &Label) -> bool {
    matches!(label, Label::Operation { .. } | Label::Host(HostThread::FUNCTIONS))
}

/// An access as it is reported.
#[derive(Clone, Copy)]
struct Use {
    label: Label,
    access: Access,
    memory: Memory,
    lane: u32,
}

fn race_line(conflict: &Conflict<Label>) -> Line {
    match conflict.earlier.label {
        Label::Operation { .. } => Line::O1,
        Label::Host(_) => Line::O3,
    }
}

fn stream_lane<'a>(
    streams: &'a mut FxHashMap<StreamId, StreamLane>,
    lanes: &mut Lanes,
    host: &Lane,
    stream: StreamId,
) -> &'a mut StreamLane {
    streams.entry(stream).or_insert_with(|| {
        let lane = lanes.open(host.position());
        let offset = lane.position().epoch().at;
        StreamLane { lane, offset, last: None }
    })
}

fn lane_of<'a>(
    pending: &Pending,
    launches: &'a FxHashMap<OpId, Launch>,
    streams: &'a FxHashMap<StreamId, StreamLane>,
) -> Option<&'a Lane> {
    let branch = pending.node.and_then(|(launch, index)| {
        let launch = launches.get(&launch)?;
        launch.lanes[launch.branches[index as usize] as usize].as_ref()
    });
    branch.or_else(|| streams.get(&pending.stream).map(|at| &at.lane))
}

/// Cuts a graph into chains: a node goes on with the branch of a node that it runs after and that none has gone on
/// with.
fn branches(shape: &GraphShape) -> Vec<u32> {
    let mut branches: Vec<u32> = Vec::with_capacity(shape.nodes.len());
    let mut tails: Vec<u32> = Vec::new();
    for (index, node) in shape.nodes.iter().enumerate() {
        let free = node.after.iter().find(|earlier| tails[branches[**earlier as usize] as usize] == **earlier);
        let branch = free.map_or(tails.len() as u32, |earlier| branches[*earlier as usize]);
        if branch as usize == tails.len() {
            tails.push(0);
        }
        tails[branch as usize] = index as u32;
        branches.push(branch);
    }
    branches
}

/// How many edges wait to be found needed. An edge that is not needed among that many later ones counts as needless.
const GAINS_MAX: usize = 64;
/// How many streams that are gone are remembered for threads that learn late of their end.
const GONE_MAX: usize = 16;
/// How many host ranges are kept at least.
const HOST_RANGES_MAX: usize = 1024;
/// How many pairs of lanes are reported at most between two sweeps.
const REPORTED_MAX: usize = 1024;
