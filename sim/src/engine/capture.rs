//! Captures: streams that record instead of running, and the calls that a capture forbids.
//!
//! # Who is refused
//! A *guarded* call is made by a thread in its own mode (global unless exchanged). It is refused with 900, and breaks
//! every capture that forbids it, if there is one:
//!
//! | thread's mode | captures that forbid |
//! |---|---|
//! | global | those that the thread itself began and that are not relaxed; those that anybody began global |
//! | thread-local | those that the thread itself began and that are not relaxed |
//! | relaxed | none |
//!
//! Asking or waiting for a capturing stream breaks its capture in every mode, and waiting for the whole device breaks
//! all.
//!
//! # What a stream is
//! | state | status | submission | query, wait | end |
//! |---|---|---|---|---|
//! | no capture | none | runs | answers | 401 |
//! | origin of an active one | active | a node | 900, breaks it | the graph, or 904, 908 |
//! | joined to an active one | active | a node | 900, breaks it | 903, breaks it |
//! | of a broken one | invalidated | 901 | 901 | 901 (908 from a wrong thread) |
//! | left broken by its last one (a quirk) | invalidated | 901 | 900 | 901 |
//!
//! Order inside a capture is kept as nodes for waits and records as well; these leave the graph when it ends. A capture
//! is joined if every node that does something comes before the origin's end.

use smallvec::SmallVec;
use tenure::driver::{Call, CaptureMode, CaptureStatus, DeviceAddress};

use super::graph::Graph;
use super::mark::MarkPlace;
use super::stream::{Position, Work};
use super::{Engine, GRAPHS};
use crate::code::Code;
use crate::event::{CaptureId, Event, GraphHandle, HostThread, StreamHandle, Violation};
use crate::memory::Origin;
use crate::profile::Quirk;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    Invalidated,
}

#[derive(Debug)]
pub(super) struct CapturedNode {
    /// `None` orders only.
    pub(super) work: Option<Work>,
    pub(super) after: SmallVec<[u32; 2]>,
}

#[derive(Debug)]
pub(super) struct Capture {
    id: CaptureId,
    thread: HostThread,
    mode: CaptureMode,
    origin: u32,
    members: SmallVec<[u32; 4]>,
    nodes: Vec<CapturedNode>,
    slots: Vec<u32>,
    state: State,
    /// Whether it still forbids calls; false once an end has failed and left it (a quirk).
    listed: bool,
    /// Its end was called and failed, whatever made it fail: to destroy its streams is what is left to do.
    end_tried: bool,
}

impl Capture {
    fn forbids(&self, thread: HostThread, mode: CaptureMode, also_broken: bool) -> bool {
        let alive = self.listed && (self.state == State::Active || also_broken);
        let own = self.thread == thread && self.mode != CaptureMode::Relaxed;
        alive
            && match mode {
                CaptureMode::Relaxed => false,
                CaptureMode::ThreadLocal => own,
                CaptureMode::Global => own || self.mode == CaptureMode::Global,
            }
    }

    /// Whether all that was recorded, on any stream, comes before the origin's end. A stream that joined and was given
    /// no work needs no way back: as measured.
    fn is_joined(&self, origin_tail: Option<u32>) -> bool {
        let mut before = vec![false; self.nodes.len()];
        if let Some(tail) = origin_tail {
            before[tail as usize] = true;
        }
        // Edges only lead to smaller numbers.
        for node in (0..self.nodes.len()).rev() {
            if before[node] {
                self.nodes[node].after.iter().for_each(|earlier| before[*earlier as usize] = true);
            }
        }
        self.nodes.iter().zip(&before).all(|(node, before)| *before || node.work.is_none())
    }
}

impl Engine {
    // --- the calls

    /// The capture that a live stream is in.
    pub fn capture_id(&self, handle: StreamHandle) -> Option<CaptureId> {
        let capture = self.streams[self.find_stream(handle)? as usize].capture?;
        Some(self.captures[capture as usize].id)
    }

    /// Makes the stream record. The mode is the capture's; the thread keeps its own.
    ///
    /// # Errors
    /// 401 for a stream that captures already; 900 for the legacy stream; a stale handle.
    pub fn capture_begin(&mut self, thread: HostThread, stream: StreamHandle, mode: CaptureMode) -> Result<(), Code> {
        self.plain(thread, Call::CaptureBegin, |engine| {
            if stream == StreamHandle::LEGACY {
                return Err(Code::CAPTURE_UNSUPPORTED);
            }
            let origin = engine.resolve(stream)?;
            if engine.streams[origin as usize].capture.is_some() {
                return Err(Code::ILLEGAL_STATE);
            }
            let id = engine.fresh_capture();
            let capture = Capture {
                id,
                thread,
                mode,
                origin,
                members: SmallVec::from_slice(&[origin]),
                nodes: Vec::new(),
                slots: Vec::new(),
                state: State::Active,
                listed: true,
                end_tried: false,
            };
            let key = engine.captures.insert(capture) as u32;
            let held = &mut engine.streams[origin as usize];
            (held.capture, held.tail, held.broken) = (Some(key), None, false);
            let stream = held.id;
            engine.push(Event::CaptureBegan { capture: id, stream, thread, mode });
            Ok(())
        })
    }

    /// Ends the capture that the stream began.
    ///
    /// # Errors
    /// See the module's table. After 901 and 904, and as measured also after 908, the capture is over without a graph.
    pub fn capture_end(&mut self, thread: HostThread, stream: StreamHandle) -> Result<GraphHandle, Code> {
        let ended = self.plain(thread, Call::CaptureEnd, |engine| {
            let stream = engine.resolve(stream)?;
            let held = &engine.streams[stream as usize];
            let Some(key) = held.capture else {
                let is_broken = held.broken;
                return Err(match is_broken {
                    true => Code::CAPTURE_INVALIDATED,
                    false => engine.refuse(Code::ILLEGAL_STATE),
                });
            };
            match engine.may_end(key, stream) {
                Ok(()) => Ok(engine.end_with_graph(key)),
                Err(code) => {
                    engine.end_with_error(key, code);
                    Err(if code == Code::CAPTURE_INVALIDATED { code } else { engine.refuse(code) })
                }
            }
        });
        if ended.is_err() {
            self.note_end_tried(stream);
        }
        ended
    }

    fn note_end_tried(&mut self, handle: StreamHandle) {
        let capture = self.find_stream(handle).and_then(|stream| self.streams[stream as usize].capture);
        if let Some(key) = capture {
            self.captures[key as usize].end_tried = true;
        }
    }

    fn may_end(&self, key: u32, stream: u32) -> Result<(), Code> {
        let capture = &self.captures[key as usize];
        let wrong_thread = capture.thread != self.current.thread || !capture.listed;
        if capture.origin != stream {
            return Err(Code::CAPTURE_UNMATCHED);
        }
        if wrong_thread && capture.mode != CaptureMode::Relaxed {
            return Err(Code::CAPTURE_WRONG_THREAD);
        }
        if capture.state == State::Invalidated {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        if !capture.listed || !capture.is_joined(self.streams[stream as usize].tail) {
            return Err(Code::CAPTURE_UNJOINED);
        }
        Ok(())
    }

    fn end_with_graph(&mut self, key: u32) -> GraphHandle {
        let capture = self.take_capture(key);
        if self.gives_null() {
            capture.slots.into_iter().for_each(|slot| self.give_up_graph_slot(slot));
            self.push_capture_ended(capture.id, None, Code::SUCCESS);
            return GraphHandle(0);
        }
        // Memory of a graph exists from a launch on.
        capture.slots.iter().for_each(|slot| self.memory.unname(*slot));
        let id = self.fresh_graph();
        let graph = Graph::from_capture(id, capture.nodes, capture.slots, self.ranges_gone);
        let key = self.graphs.insert(graph);
        let handle = GraphHandle(self.handle(GRAPHS, key));
        self.push_capture_ended(capture.id, Some(id), Code::SUCCESS);
        handle
    }

    fn end_with_error(&mut self, key: u32, code: Code) {
        let id = self.captures[key as usize].id;
        match code {
            Code::CAPTURE_UNMATCHED => {
                if !self.profile.has(Quirk::EndOnForkKeepsCapture) {
                    self.invalidate(key, code);
                }
                return;
            }
            Code::CAPTURE_WRONG_THREAD if self.profile.has(Quirk::EndOnWrongThreadKeepsCapture) => return,
            Code::CAPTURE_UNJOINED if self.profile.has(Quirk::UnjoinedStaysActive) => {
                self.captures[key as usize].listed = false;
                self.push_capture_ended(id, None, code);
                return;
            }
            _ => {}
        }
        let was_broken = self.captures[key as usize].state == State::Invalidated;
        let capture = self.take_capture(key);
        if was_broken && self.profile.has(Quirk::InvalidatedStaysBroken) {
            self.streams[capture.origin as usize].broken = true;
        }
        capture.slots.into_iter().for_each(|slot| self.give_up_graph_slot(slot));
        self.push_capture_ended(id, None, code);
    }

    fn push_capture_ended(&mut self, capture: CaptureId, graph: Option<crate::event::GraphId>, code: Code) {
        let thread = self.current.thread;
        self.push(Event::CaptureEnded { capture, thread, graph, code });
    }

    fn take_capture(&mut self, key: u32) -> Capture {
        let capture = self.captures.remove(key as usize);
        for member in &capture.members {
            let held = &mut self.streams[*member as usize];
            (held.capture, held.tail) = (None, None);
        }
        capture
    }

    /// Whether the stream captures. Not guarded; breaks nothing.
    ///
    /// # Errors
    /// A stale handle; 906 for the legacy stream while a blocking stream captures.
    pub fn capture_status(&mut self, thread: HostThread, stream: StreamHandle) -> Result<CaptureStatus, Code> {
        self.plain(thread, Call::CaptureStatus, |engine| {
            let key = engine.resolve(stream)?;
            if stream == StreamHandle::LEGACY && engine.blocking_capture().is_some() {
                return Err(Code::CAPTURE_IMPLICIT);
            }
            let held = &engine.streams[key as usize];
            Ok(match held.capture {
                Some(capture) if engine.captures[capture as usize].state == State::Active => CaptureStatus::Active,
                Some(_) => CaptureStatus::Invalidated,
                None if held.broken => CaptureStatus::Invalidated,
                None => CaptureStatus::None,
            })
        })
    }

    /// Sets the thread's own mode and gives the one before.
    ///
    /// # Errors
    /// As every call.
    pub fn exchange_capture_mode(&mut self, thread: HostThread, mode: CaptureMode) -> Result<CaptureMode, Code> {
        self.plain(thread, Call::ExchangeCaptureMode, |engine| {
            let index = thread.0 as usize;
            if engine.modes.len() <= index {
                engine.modes.resize(index + 1, CaptureMode::Global);
            }
            let before = std::mem::replace(&mut engine.modes[index], mode);
            engine.push(Event::ModeExchanged { thread, mode });
            Ok(before)
        })
    }

    // --- what captures forbid

    fn mode(&self) -> CaptureMode {
        self.modes.get(self.current.thread.0 as usize).copied().unwrap_or(CaptureMode::Global)
    }

    /// The rule for guarded calls.
    pub(super) fn guard(&mut self) -> Result<(), Code> {
        if self.captures.is_empty() || self.lenient() { Ok(()) } else { self.guard_as(self.mode()) }
    }

    fn guard_as(&mut self, mode: CaptureMode) -> Result<(), Code> {
        let thread = self.current.thread;
        let also_broken = self.profile.has(Quirk::InvalidatedStillForbids);
        let all = self.captures.iter();
        let forbidding = all.filter(|(_, capture)| capture.forbids(thread, mode, also_broken));
        let forbidding: SmallVec<[u32; 4]> = forbidding.map(|(key, _)| key as u32).collect();
        self.refuse_for(&forbidding, Code::CAPTURE_UNSUPPORTED)
    }

    fn refuse_for(&mut self, captures: &[u32], code: Code) -> Result<(), Code> {
        if captures.is_empty() {
            return Ok(());
        }
        captures.iter().for_each(|key| self.invalidate(*key, code));
        Err(code)
    }

    fn invalidate(&mut self, key: u32, code: Code) {
        let super::Current { thread, call, .. } = self.current;
        let capture = &mut self.captures[key as usize];
        if capture.state == State::Active {
            capture.state = State::Invalidated;
            let capture = capture.id;
            self.push(Event::CaptureInvalidated { capture, thread, call, code });
        }
    }

    pub(super) fn guard_async_memory(&mut self) -> Result<(), Code> {
        if self.profile.has(Quirk::AsyncMemoryUnguarded) { Ok(()) } else { self.guard() }
    }

    /// Before a query of, or a wait for, a stream.
    pub(super) fn guard_asking(&mut self, stream: u32, handle: StreamHandle) -> Result<(), Code> {
        if self.lenient() || (handle == StreamHandle::LEGACY && self.profile.has(Quirk::LegacyUnchecked)) {
            return Ok(());
        }
        let held = &self.streams[stream as usize];
        match held.capture {
            Some(key) if self.captures[key as usize].state == State::Invalidated => Err(Code::CAPTURE_INVALIDATED),
            Some(key) => self.refuse_for(&[key], Code::CAPTURE_UNSUPPORTED),
            None if held.broken => Err(Code::CAPTURE_UNSUPPORTED),
            None => {
                self.guard_legacy_if(stream)?;
                self.guard_question()
            }
        }
    }

    fn guard_legacy_if(&mut self, stream: u32) -> Result<(), Code> {
        if self.streams[stream as usize].id == self.streams[0].id { self.guard_legacy() } else { Ok(()) }
    }

    fn guard_question(&mut self) -> Result<(), Code> {
        if self.captures.is_empty() {
            return Ok(());
        }
        let mode = match self.mode() {
            CaptureMode::ThreadLocal if self.profile.has(Quirk::QueryMindsGlobalCaptures) => CaptureMode::Global,
            mode => mode,
        };
        self.guard_as(mode)
    }

    /// Before a query of, or a wait for, an event that lies in a stream.
    pub(super) fn guard_event(&mut self, position: &Position, is_query: bool) -> Result<(), Code> {
        if self.captures.is_empty() || self.lenient() {
            return Ok(());
        }
        if self.profile.has(Quirk::EventFollowsItsStream) {
            let held = self.streams.get(position.stream as usize).filter(|held| held.id == position.id);
            if let Some(key) = held.and_then(|held| held.capture) {
                return self.refuse_for(&[key], Code::CAPTURED_EVENT);
            }
        }
        self.guard_unplaced_event(is_query)
    }

    pub(super) fn guard_unplaced_event(&mut self, is_query: bool) -> Result<(), Code> {
        if self.captures.is_empty() || self.lenient() || (is_query && self.profile.has(Quirk::EventQueryUnguarded)) {
            return Ok(());
        }
        if is_query && self.profile.has(Quirk::EventQueryIgnoresMode) {
            return self.guard_as(CaptureMode::Global);
        }
        self.guard_question()
    }

    /// Before a query of, or a wait for, an event that lies in a capture.
    pub(super) fn ask_captured(&mut self, key: u32, id: CaptureId) -> Result<(), Code> {
        if self.lenient() {
            return Ok(());
        }
        if self.live_capture(key, id).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        self.refuse_for(&[key], Code::CAPTURED_EVENT)
    }

    /// Before a wait for the whole device.
    pub(super) fn guard_device_wait(&mut self) -> Result<(), Code> {
        if self.lenient() {
            return Ok(());
        }
        let also_broken = self.profile.has(Quirk::InvalidatedStillForbids);
        let alive = |capture: &Capture| capture.listed && (capture.state == State::Active || also_broken);
        let all: SmallVec<[u32; 4]> =
            self.captures.iter().filter(|(_, capture)| alive(capture)).map(|(key, _)| key as u32).collect();
        self.refuse_for(&all, Code::CAPTURE_UNSUPPORTED)
    }

    /// Before work on the legacy stream, which would wait for every blocking stream.
    pub(super) fn guard_legacy(&mut self) -> Result<(), Code> {
        if self.lenient() {
            return Ok(());
        }
        match self.blocking_capture() {
            Some(key) => self.refuse_for(&[key], Code::CAPTURE_IMPLICIT),
            None => Ok(()),
        }
    }

    fn blocking_capture(&self) -> Option<u32> {
        let is_blocking = |stream: &u32| self.streams[*stream as usize].blocking;
        let mut all = self.captures.iter();
        all.find(|(_, capture)| capture.members.iter().any(is_blocking)).map(|(key, _)| key as u32)
    }

    pub(super) fn guard_synchronous_copy(&mut self) -> Result<(), Code> {
        if self.profile.has(Quirk::SynchronousCopyBreaksAll) {
            let all: SmallVec<[u32; 4]> = self.captures.iter().map(|(key, _)| key as u32).collect();
            return self.refuse_for(&all, Code::CAPTURE_IMPLICIT);
        }
        self.guard_legacy()
    }

    /// Before what cannot be captured.
    pub(super) fn refuse_if_capturing(&mut self, stream: u32) -> Result<(), Code> {
        match self.streams[stream as usize].capture {
            Some(key) if !self.lenient() => self.refuse_for(&[key], Code::CAPTURE_UNSUPPORTED),
            _ => Ok(()),
        }
    }

    // --- recording

    fn live_capture(&self, key: u32, id: CaptureId) -> Option<&Capture> {
        self.captures.get(key as usize).filter(|capture| capture.id == id)
    }

    fn active_capture_of(&self, stream: u32) -> Result<u32, Code> {
        match self.streams[stream as usize].capture {
            Some(key) if self.captures[key as usize].state == State::Active => Ok(key),
            _ => Err(Code::CAPTURE_INVALIDATED),
        }
    }

    /// Makes a node of work that a capturing stream was given.
    pub(super) fn record(&mut self, stream: u32, work: Work) -> Result<(), Code> {
        let key = self.active_capture_of(stream)?;
        match work {
            Work::Record { key: mark, event, external: false } => {
                let node = self.add_node(stream, key, None, None);
                let capture = self.captures[key as usize].id;
                self.move_mark_into_capture(mark, event, MarkPlace::Captured { key, capture, node });
            }
            Work::Graph(launch) => self.record_graph(stream, key, &launch.data),
            work => {
                self.push_captured(stream, key, &work);
                self.add_tail(stream, key, Some(work), None);
            }
        }
        Ok(())
    }

    /// Nodes of another graph become nodes of this one, between the stream's end so far and its new end.
    fn record_graph(&mut self, stream: u32, key: u32, data: &super::graph::GraphData) {
        let tail = self.streams[stream as usize].tail;
        let first = self.captures[key as usize].nodes.len() as u32;
        let mut ends: SmallVec<[u32; 2]> = SmallVec::from_iter(tail.filter(|_| data.nodes.is_empty()));
        for (index, node) in data.nodes.iter().enumerate() {
            self.push_captured(stream, key, &node.work);
            let mut after: SmallVec<[u32; 2]> = node.after.iter().map(|earlier| first + earlier).collect();
            after.extend(tail.filter(|_| node.after.is_empty()));
            self.captures[key as usize].nodes.push(CapturedNode { work: Some(node.work.clone()), after });
            if data.successors[index].is_empty() {
                ends.push(first + index as u32);
            }
        }
        let nodes = &mut self.captures[key as usize].nodes;
        nodes.push(CapturedNode { work: None, after: ends });
        self.streams[stream as usize].tail = Some((nodes.len() - 1) as u32);
    }

    fn push_captured(&mut self, stream: u32, key: u32, work: &Work) {
        let (capture, thread) = (self.captures[key as usize].id, self.current.thread);
        let stream = self.streams[stream as usize].id;
        self.push(Event::Captured { capture, stream, thread, work: work.kind() });
    }

    /// Adds a node after the stream's last one and after `also`.
    fn add_node(&mut self, stream: u32, key: u32, work: Option<Work>, also: Option<u32>) -> u32 {
        let tail = self.streams[stream as usize].tail;
        let nodes = &mut self.captures[key as usize].nodes;
        nodes.push(CapturedNode { work, after: tail.into_iter().chain(also).collect() });
        (nodes.len() - 1) as u32
    }

    fn add_tail(&mut self, stream: u32, key: u32, work: Option<Work>, also: Option<u32>) {
        let node = self.add_node(stream, key, work, also);
        self.streams[stream as usize].tail = Some(node);
    }

    /// A stream waits for an event that was recorded in a capture: it joins.
    pub(super) fn wait_captured(&mut self, stream: u32, key: u32, id: CaptureId, node: u32) -> Result<(), Code> {
        let Some(capture) = self.live_capture(key, id) else {
            return if self.lenient() { Ok(()) } else { Err(Code::INVALID_VALUE) };
        };
        if capture.state == State::Invalidated || self.streams[stream as usize].broken {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        match self.streams[stream as usize].capture {
            Some(own) if own == key => {}
            Some(own) => {
                let active = self.captures[own as usize].state == State::Active;
                return match (self.lenient(), active) {
                    (true, _) => Ok(()),
                    (_, true) => self.refuse_for(&[own, key], Code::CAPTURE_MERGE),
                    (_, false) => Err(Code::CAPTURE_INVALIDATED),
                };
            }
            None => self.join(stream, key),
        }
        self.add_tail(stream, key, None, Some(node));
        Ok(())
    }

    fn join(&mut self, stream: u32, key: u32) {
        self.captures[key as usize].members.push(stream);
        let held = &mut self.streams[stream as usize];
        (held.capture, held.tail) = (Some(key), None);
        let (capture, stream) = (self.captures[key as usize].id, held.id);
        self.push(Event::CaptureJoined { capture, stream });
    }

    /// A capturing stream waits for an event from outside.
    pub(super) fn refuse_outside(&mut self, stream: u32) -> Result<(), Code> {
        if self.lenient() {
            return Ok(());
        }
        let key = self.active_capture_of(stream)?;
        self.refuse_for(&[key], Code::CAPTURE_ISOLATION)
    }

    pub(super) fn record_allocation(&mut self, stream: u32, bytes: u64) -> Result<DeviceAddress, Code> {
        let key = self.active_capture_of(stream)?;
        let (slot, allocation, address) = self.name_memory(bytes, Origin::Graph, None)?;
        self.memory.keep_for_graph(slot, true);
        self.captures[key as usize].slots.push(slot);
        self.record(stream, Work::Allocate { slot, allocation, bytes })?;
        Ok(address)
    }

    pub(super) fn record_free(&mut self, stream: u32, address: DeviceAddress) -> Result<(), Code> {
        let key = self.active_capture_of(stream)?;
        let (slot, named) = self.named_or_violation(address)?;
        if !self.captures[key as usize].slots.contains(&slot) && !self.lenient() {
            return Err(Code::INVALID_VALUE);
        }
        self.memory.unname(slot);
        self.record(stream, Work::Free { slot, allocation: named.allocation })
    }

    // --- the end of a stream

    pub(super) fn leave_capture_at_destroy(&mut self, stream: u32) {
        let Some(key) = self.streams[stream as usize].capture else { return };
        let Capture { id: capture, state, listed, end_tried, origin, .. } = self.captures[key as usize];
        if listed && !end_tried && state == State::Active {
            let (thread, stream) = (self.current.thread, self.streams[stream as usize].id);
            self.violate(Violation::CapturingStreamDestroyed { thread, stream, capture });
        }
        if origin == stream {
            let capture = self.take_capture(key);
            capture.slots.into_iter().for_each(|slot| self.give_up_graph_slot(slot));
            self.push_capture_ended(capture.id, None, Code::CAPTURE_INVALIDATED);
            return;
        }
        self.invalidate(key, Code::CAPTURE_INVALIDATED);
        self.captures[key as usize].members.retain(|member| *member != stream);
        let held = &mut self.streams[stream as usize];
        (held.capture, held.tail) = (None, None);
    }
}
