//! Streams: queues of operations, their handles, and the calls that ask and wait.
//!
//! A stream's handle and its queue end apart: a destroyed stream runs what it holds, while its handle is handed out
//! again at once. Whoever still names the old stream does so by [`Position`], which says "complete" once the queue is
//! gone.
//!
//! # Default streams
//! The *legacy* stream and every *blocking* stream wait for each other, operation by operation; a query of it or a wait
//! for it is about all of them. Each thread has a default stream of its own besides, which is a blocking one. Streams of
//! [`Engine::stream_create`] are not: nothing here concerns them.

use std::collections::VecDeque;

use tenure::driver::{Argument, Call, DeviceAddress, HostFunction, LaunchConfig, Location, Priority, Progress};

use super::graph::{GraphRun, Launch};
use super::module::ModuleRef;
use super::{Answer, Engine, STREAMS, Then, Until, Wait};
use crate::code::Code;
use crate::event::{
    AllocationId, CallName, Event, EventId, HostThread, KernelId, OpId, StreamHandle, StreamId, WorkKind,
};
use crate::profile::Quirk;
use smallvec::SmallVec;

/// The end of a stream at some moment: all its operations up to `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) stream: u32,
    pub(super) id: StreamId,
    pub(super) number: u64,
    pub(super) op: OpId,
}

/// What an operation or a node does.
#[derive(Clone)]
pub(super) enum Work {
    Kernel {
        kernel: KernelId,
        module: ModuleRef,
        config: LaunchConfig,
        arguments: Vec<Argument>,
    },
    Copy {
        to: Location,
        from: Location,
        bytes: u64,
    },
    Fill {
        at: DeviceAddress,
        value: u8,
        bytes: u64,
    },
    Allocate {
        slot: u32,
        allocation: AllocationId,
        bytes: u64,
    },
    Free {
        slot: u32,
        allocation: AllocationId,
    },
    /// An `external` one is a node of its own in a graph, and gives its event a time at each launch.
    Record {
        key: u32,
        event: EventId,
        external: bool,
    },
    Wait {
        event: EventId,
        on: Option<Position>,
    },
    HostFunction(HostFunction),
    Graph(Box<Launch>),
}

impl Work {
    pub(super) fn kind(&self) -> WorkKind {
        match self {
            Self::Kernel { kernel, .. } => WorkKind::Kernel(*kernel),
            Self::Copy { bytes, .. } => WorkKind::Copy(*bytes),
            Self::Fill { bytes, .. } => WorkKind::Fill(*bytes),
            Self::Allocate { allocation, .. } => WorkKind::Allocate(*allocation),
            Self::Free { allocation, .. } => WorkKind::Free(*allocation),
            Self::Record { event, .. } => WorkKind::Record(*event),
            Self::Wait { event, .. } => WorkKind::Wait(*event),
            Self::HostFunction(_) => WorkKind::HostFunction,
            Self::Graph(launch) => WorkKind::Graph(launch.executable),
        }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.kind().fmt(f)
    }
}

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) op: OpId,
    pub(super) work: Work,
    /// Order besides the stream's own: the legacy stream's, and between launches of one executable.
    pub(super) after: Vec<Position>,
}

/// What the operation at the head does.
#[derive(Debug)]
pub(super) enum Head {
    Waiting,
    Running,
    InFunction,
    Graph(Box<GraphRun>),
    Hung,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) queue: VecDeque<Queued>,
    pub(super) head: Head,
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) last: OpId,
    pub(super) blocking: bool,
    pub(super) destroyed: bool,
    pub(super) capture: Option<u32>,
    pub(super) tail: Option<u32>,
    /// Its last capture ended broken and left it so.
    pub(super) broken: bool,
    /// Slots freed on this stream by operations that have not run: it may have them again at once.
    pub(super) pool: Vec<(u32, AllocationId)>,
}

impl Stream {
    fn new(id: StreamId, blocking: bool) -> Self {
        Self {
            id,
            queue: VecDeque::new(),
            head: Head::Waiting,
            submitted: 0,
            completed: 0,
            last: OpId(0),
            blocking,
            destroyed: false,
            capture: None,
            tail: None,
            broken: false,
            pool: Vec::new(),
        }
    }

    pub(super) fn pending(&self) -> usize {
        self.queue.len()
    }
}

pub(super) const LEGACY: u32 = 0;

impl Engine {
    pub(super) fn add_legacy_stream(&mut self) {
        let id = self.fresh_stream();
        let stream = self.streams.insert(Stream::new(id, true)) as u32;
        self.stream_handles.insert(stream);
    }

    /// Makes a stream that does not synchronize with the legacy one.
    ///
    /// # Errors
    /// Faults; the device is lost; called inside a host function. The same holds for every call.
    pub fn stream_create(&mut self, thread: HostThread, priority: Priority) -> Result<StreamHandle, Code> {
        self.stream_create_with(thread, priority, false)
    }

    /// Makes a stream. A `blocking` one waits for the legacy stream and the legacy stream for it.
    ///
    /// # Errors
    /// As [`stream_create`](Self::stream_create).
    pub fn stream_create_with(
        &mut self,
        thread: HostThread,
        priority: Priority,
        blocking: bool,
    ) -> Result<StreamHandle, Code> {
        self.plain(thread, Call::StreamCreate, |engine| {
            if engine.gives_null() {
                return Ok(StreamHandle(0));
            }
            let id = engine.fresh_stream();
            let stream = engine.streams.insert(Stream::new(id, blocking)) as u32;
            engine.blocking_streams += u32::from(blocking);
            let key = engine.stream_handles.insert(stream);
            let handle = StreamHandle(engine.handle(STREAMS, key));
            engine.current.stream = Some(id);
            engine.push(Event::StreamCreated { stream: id, handle, priority, thread });
            Ok(handle)
        })
    }

    /// Gives a stream back. What it holds still runs. A capture that it began ends without a graph; one that it had
    /// joined is broken.
    ///
    /// # Errors
    /// 400 for a default stream; a stale handle.
    pub fn stream_destroy(&mut self, thread: HostThread, handle: StreamHandle) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::StreamDestroy, |engine| {
            if matches!(handle, StreamHandle::LEGACY | StreamHandle::PER_THREAD) {
                return Err(Code::INVALID_HANDLE);
            }
            let stream = engine.resolve(handle)?;
            let position = engine.end_of(stream);
            if engine.profile.has(Quirk::StreamDestroyWaits) && !engine.is_complete(&position) {
                let id = position.id;
                return Ok(engine.block(Until::Position(position), Then::DestroyStream { handle, id }));
            }
            engine.destroy_stream_now(handle).map(Answer::Done)
        })
    }

    pub(super) fn destroy_stream_now(&mut self, handle: StreamHandle) -> Result<(), Code> {
        let stream = self.resolve(handle)?;
        if let Some(key) = self.handle_key(STREAMS, handle.0) {
            self.stream_handles.remove(key);
        }
        self.leave_capture_at_destroy(stream);
        let thread = self.current.thread;
        let held = &mut self.streams[stream as usize];
        held.destroyed = true;
        let (id, pending) = (held.id, held.queue.len() as u64);
        self.blocking_streams -= u32::from(held.blocking);
        self.push(Event::StreamDestroyed { stream: id, thread, pending });
        self.remove_if_gone(stream);
        Ok(())
    }

    pub(super) fn remove_if_gone(&mut self, stream: u32) {
        let held = &self.streams[stream as usize];
        if held.destroyed && held.queue.is_empty() {
            let Stream { id, pool, .. } = self.streams.remove(stream as usize);
            pool.into_iter().for_each(|(slot, _)| self.memory.hand_back(slot));
            self.push(Event::StreamGone { stream: id });
        }
    }

    /// Whether all that the stream holds has completed.
    ///
    /// # Errors
    /// A stale handle; 900 where a capture forbids it; 901 on a broken one.
    pub fn stream_query(&mut self, thread: HostThread, handle: StreamHandle) -> Result<Progress, Code> {
        let answer = self.plain(thread, Call::StreamQuery, |engine| {
            let stream = engine.resolve(handle)?;
            engine.guard_asking(stream, handle)?;
            let positions = engine.asked(stream);
            let is_complete = positions.iter().all(|position| engine.is_complete(position));
            if !is_complete && engine.streams[stream as usize].capture.is_none() {
                return Err(Code::NOT_READY);
            }
            positions.into_iter().for_each(|position| engine.push_learned(position));
            Ok(())
        });
        progress(answer)
    }

    /// Waits for all that the stream holds.
    ///
    /// # Errors
    /// As [`stream_query`](Self::stream_query).
    pub fn stream_synchronize(&mut self, thread: HostThread, handle: StreamHandle) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::StreamSynchronize, |engine| {
            let stream = engine.resolve(handle)?;
            engine.guard_asking(stream, handle)?;
            let positions = engine.asked(stream);
            let until = match positions.as_slice() {
                [position] => Until::Position(*position),
                _ => Until::Positions(positions.into_vec()),
            };
            Ok(engine.wait_for(until, Then::Nothing))
        })
    }

    /// Waits for all that the device holds.
    ///
    /// # Errors
    /// 900 where anybody captures, in any mode; all captures are broken by it.
    pub fn device_synchronize(&mut self, thread: HostThread) -> Result<Answer<()>, Code> {
        self.waiting(thread, CallName::DeviceSynchronize, |engine| {
            engine.guard_device_wait()?;
            // The idle ones too: the caller is after their work as well.
            let streams = engine.streams.iter().map(|(stream, _)| stream as u32);
            let positions = streams.map(|stream| engine.end_of(stream)).collect();
            Ok(engine.wait_for(Until::Positions(positions), Then::Nothing))
        })
    }

    // --- submitting

    /// Puts work on a stream, or into the capture that it belongs to, or waits for room.
    pub(super) fn submit(&mut self, stream: u32, work: Work) -> Result<Answer<()>, Code> {
        let held = &self.streams[stream as usize];
        if held.capture.is_some() || held.broken {
            return self.record(stream, work).map(Answer::Done);
        }
        if stream == LEGACY {
            self.guard_legacy()?;
        }
        let held = &self.streams[stream as usize];
        if held.queue.len() >= self.profile.queue_depth {
            let id = held.id;
            return Ok(self.block(Until::Room { stream, id }, Then::Submit { stream, id, work }));
        }
        self.enqueue(stream, work);
        Ok(Answer::Done(()))
    }

    /// A submission that waited for room. Other threads may have done anything to the stream meanwhile.
    pub(super) fn submit_late(&mut self, stream: u32, id: StreamId, work: Work) -> Result<(), Code> {
        match self.streams.get(stream as usize) {
            Some(held) if held.id == id && !held.destroyed => {
                if held.capture.is_some() || held.broken {
                    return self.record(stream, work);
                }
                self.enqueue(stream, work);
                Ok(())
            }
            _ => Err(self.stale(id.0)),
        }
    }

    /// A destroy that waited for the stream's work.
    pub(super) fn destroy_stream_late(&mut self, handle: StreamHandle, id: StreamId) -> Result<(), Code> {
        if self.stream_id(handle) == Some(id) { self.destroy_stream_now(handle) } else { Err(self.stale(handle.0)) }
    }

    pub(super) fn enqueue(&mut self, stream: u32, mut work: Work) {
        let op = self.fresh_op();
        let mut after = self.legacy_order(stream);
        if let Work::Graph(launch) = &mut work {
            let nodes = launch.data.nodes.len() as u64;
            launch.first = OpId(self.next.op);
            self.next.op += nodes;
            after.extend(self.replay_order(launch));
        }
        let held = &mut self.streams[stream as usize];
        held.submitted += 1;
        held.last = op;
        let (id, number) = (held.id, held.submitted);
        self.push(Event::Submitted { op, stream: id, number, thread: self.current.thread, work: work.kind() });
        for earlier in &after {
            self.push(Event::Ordered { op, after: earlier.op });
        }
        self.note_submission(Position { stream, id, number, op }, &work);
        let held = &mut self.streams[stream as usize];
        let was_idle = held.queue.is_empty();
        held.queue.push_back(Queued { op, work, after });
        if was_idle && let Err(at) = self.busy.binary_search(&stream) {
            self.busy.insert(at, stream);
        }
    }

    fn note_submission(&mut self, position: Position, work: &Work) {
        let op = position.op;
        match work {
            Work::Record { key, event, .. } => {
                self.move_mark(*key, *event, position);
                self.push(Event::Recorded { event: *event, op });
            }
            Work::Wait { event, on } => {
                self.push(Event::Waited { op, event: *event, after: on.map(|position| position.op) });
            }
            Work::Free { slot, allocation } => self.note_enqueued_free(position.stream, *slot, *allocation),
            Work::Graph(launch) => self.note_launch(position, launch),
            _ => {}
        }
    }

    /// What the legacy stream's rule adds: nothing at all unless somebody made a blocking stream. Work that has completed
    /// is in order as well.
    fn legacy_order(&self, stream: u32) -> Vec<Position> {
        if self.blocking_streams == 0 || !self.streams[stream as usize].blocking {
            return Vec::new();
        }
        let streams = self.streams.iter().map(|(key, held)| (key as u32, held));
        let others = streams.filter(|(other, held)| *other != stream && held.blocking && held.submitted > 0);
        let ordered = others.filter(|(other, _)| stream == LEGACY || *other == LEGACY);
        ordered.map(|(other, _)| self.end_of(other)).collect()
    }

    // --- positions and waits

    pub(super) fn resolve(&mut self, handle: StreamHandle) -> Result<u32, Code> {
        let found = if handle == StreamHandle::LEGACY {
            Some(LEGACY)
        } else if handle == StreamHandle::PER_THREAD {
            Some(self.own_default_stream())
        } else {
            self.handle_key(STREAMS, handle.0).and_then(|key| self.stream_handles.get(key).copied())
        };
        match found {
            Some(stream) => {
                self.current.stream = Some(self.streams[stream as usize].id);
                Ok(stream)
            }
            None => {
                let code = self.stale(handle.0);
                let is_told_plainly = matches!(
                    self.current.call,
                    CallName::Core(Call::StreamWaitEvent | Call::MallocAsync | Call::FreeAsync)
                );
                Err(if is_told_plainly { Code::INVALID_HANDLE } else { code })
            }
        }
    }

    /// The calling thread's own default stream.
    fn own_default_stream(&mut self) -> u32 {
        let index = self.current.thread.0 as usize;
        if self.per_thread.len() <= index {
            self.per_thread.resize(index + 1, None);
        }
        if let Some(stream) = self.per_thread[index] {
            return stream;
        }
        let id = self.fresh_stream();
        let stream = self.streams.insert(Stream::new(id, true)) as u32;
        self.blocking_streams += 1;
        self.per_thread[index] = Some(stream);
        stream
    }

    /// The place of a live stream; of the thread that called last where it is a default stream of its own.
    pub(super) fn find_stream(&self, handle: StreamHandle) -> Option<u32> {
        match handle {
            StreamHandle::LEGACY => Some(LEGACY),
            StreamHandle::PER_THREAD => self.per_thread.get(self.current.thread.0 as usize).copied().flatten(),
            _ => self.stream_handles.get(self.handle_key(STREAMS, handle.0)?).copied(),
        }
    }

    /// The id of a live stream, for lanes and tests. [`StreamHandle::PER_THREAD`] is that of the thread that called last.
    pub fn stream_id(&self, handle: StreamHandle) -> Option<StreamId> {
        self.find_stream(handle).map(|stream| self.streams[stream as usize].id)
    }

    /// What a question about the stream, or a wait for it, is about: the legacy stream speaks for all blocking ones.
    fn asked(&self, stream: u32) -> SmallVec<[Position; 1]> {
        let mut positions = SmallVec::from_slice(&[self.end_of(stream)]);
        if stream == LEGACY && self.blocking_streams > 0 && self.profile.has(Quirk::NullStreamSpeaksForAll) {
            let others = self.busy.iter().filter(|other| **other != LEGACY && self.streams[**other as usize].blocking);
            positions.extend(others.map(|other| self.end_of(*other)));
        }
        positions
    }

    pub(super) fn end_of(&self, stream: u32) -> Position {
        let held = &self.streams[stream as usize];
        Position { stream, id: held.id, number: held.submitted, op: held.last }
    }

    /// A stream that is gone has run all that it held.
    #[inline]
    pub(super) fn is_complete(&self, position: &Position) -> bool {
        match self.streams.get(position.stream as usize) {
            Some(held) if held.id == position.id => held.completed >= position.number,
            _ => true,
        }
    }

    pub(super) fn stream_is_gone(&self, position: &Position) -> bool {
        self.streams.get(position.stream as usize).is_none_or(|held| held.id != position.id || held.destroyed)
    }

    pub(super) fn has_room(&self, stream: u32, id: StreamId) -> bool {
        self.streams
            .get(stream as usize)
            .is_none_or(|held| held.id != id || held.queue.len() < self.profile.queue_depth)
    }

    pub(super) fn block<T: Default>(&self, until: Until, then: Then) -> Answer<T> {
        Answer::Blocked(Wait { current: self.current, resets: self.resets, until, then, value: T::default() })
    }

    pub(super) fn wait_for(&mut self, until: Until, then: Then) -> Answer<()> {
        let wait = Wait { current: self.current, resets: self.resets, until, then, value: () };
        if !self.is_over(&wait) {
            return Answer::Blocked(wait);
        }
        self.learn(&wait.until);
        // A call that had nothing to wait for does at once what it would have done then; none of that can fail.
        let _ = self.conclude(wait.then);
        Answer::Done(())
    }

    /// Waits for all that the device holds now.
    pub(super) fn wait_for_device(&mut self, then: Then) -> Answer<()> {
        let positions = self.busy.iter().map(|stream| self.end_of(*stream)).collect();
        self.wait_for(Until::Positions(positions), then)
    }
}

pub(super) fn progress(answer: Result<(), Code>) -> Result<Progress, Code> {
    match answer {
        Ok(()) => Ok(Progress::Complete),
        Err(Code::NOT_READY) => Ok(Progress::Pending),
        Err(code) => Err(code),
    }
}
