//! Events of the driver: marks in streams. (The engine's own events, in `crate::event`, tell what happened.)
//!
//! | mark at | query | wait on a stream |
//! |---|---|---|
//! | nowhere: never recorded | complete | orders nothing |
//! | a position of a stream | whether that is complete | after that position, taken at the call |
//! | a node of a live capture | 907, and the capture breaks | joins the capture |
//! | a node of a capture that is over | 1 | 1 |
//!
//! An *external* record in a capture is a node that does something: at each launch of the graph the event lies in that
//! launch, and has the time at which the node ran. Any other record in a capture gives its event no time.

use tenure::driver::{Call, Progress, Timing};

use super::stream::{Position, Work, progress};
use super::{Answer, EVENTS, Engine, Then, Until};
use crate::code::Code;
use crate::event::{CaptureId, Event, EventHandle, EventId, HostThread, StreamHandle, Violation};
use crate::profile::Quirk;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkPlace {
    Nowhere,
    Stream(Position),
    Captured { key: u32, capture: CaptureId, node: u32 },
}

#[derive(Debug)]
pub(super) struct Mark {
    pub(super) id: EventId,
    pub(super) place: MarkPlace,
    timing: Timing,
    completed_ns: Option<u64>,
}

impl Engine {
    /// Makes an event.
    ///
    /// # Errors
    /// As [`stream_create`](Self::stream_create).
    pub fn event_create(&mut self, thread: HostThread, timing: Timing) -> Result<EventHandle, Code> {
        self.plain(thread, Call::EventCreate, |engine| {
            if engine.gives_null() {
                return Ok(EventHandle(0));
            }
            let id = engine.fresh_event();
            let key = engine.marks.insert(Mark { id, place: MarkPlace::Nowhere, timing, completed_ns: None });
            if timing == Timing::Enabled {
                engine.timed.push((id, key as u32));
            }
            let handle = EventHandle(engine.handle(EVENTS, key));
            engine.push(Event::EventCreated { event: id, handle });
            Ok(handle)
        })
    }

    /// Gives an event back. What waits for it still does.
    ///
    /// # Errors
    /// A stale handle.
    pub fn event_destroy(&mut self, thread: HostThread, handle: EventHandle) -> Result<(), Code> {
        self.plain(thread, Call::EventDestroy, |engine| {
            let key = engine.resolve_event(handle)?;
            let mark = engine.marks.remove(key as usize);
            engine.timed.retain(|(event, _)| *event != mark.id);
            engine.push(Event::EventDestroyed { event: mark.id });
            Ok(())
        })
    }

    /// Moves the event to the end of the stream.
    ///
    /// # Errors
    /// Stale handles; 901 on a broken capture.
    pub fn event_record(
        &mut self,
        thread: HostThread,
        handle: EventHandle,
        stream: StreamHandle,
    ) -> Result<Answer<()>, Code> {
        self.record_event(thread, handle, stream, false)
    }

    /// As [`event_record`](Self::event_record), but a capture makes a node of it, which gives the event a place and a
    /// time at each launch (`hipEventRecordExternal`).
    ///
    /// # Errors
    /// As [`event_record`](Self::event_record).
    pub fn event_record_external(
        &mut self,
        thread: HostThread,
        handle: EventHandle,
        stream: StreamHandle,
    ) -> Result<Answer<()>, Code> {
        self.record_event(thread, handle, stream, true)
    }

    fn record_event(
        &mut self,
        thread: HostThread,
        handle: EventHandle,
        stream: StreamHandle,
        external: bool,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::EventRecord, |engine| {
            let stream = engine.resolve(stream)?;
            let key = engine.resolve_event(handle)?;
            let event = engine.marks[key as usize].id;
            engine.submit(stream, Work::Record { key, event, external })
        })
    }

    /// Orders later work of the stream after the event's present position.
    ///
    /// # Errors
    /// Stale handles; 1 for an event of a capture that is over; 901, 902, 905 as captures have it.
    pub fn stream_wait_event(
        &mut self,
        thread: HostThread,
        stream: StreamHandle,
        event: EventHandle,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::StreamWaitEvent, |engine| {
            let stream = engine.resolve(stream)?;
            let key = engine.resolve_event(event)?;
            let Mark { id: event, place, .. } = engine.marks[key as usize];
            let captures = engine.streams[stream as usize].capture.is_some();
            match place {
                MarkPlace::Captured { key, capture, node } => {
                    engine.wait_captured(stream, key, capture, node).map(Answer::Done)
                }
                MarkPlace::Nowhere if captures => Ok(Answer::Done(())),
                MarkPlace::Nowhere => engine.submit(stream, Work::Wait { event, on: None }),
                MarkPlace::Stream(_) if captures => engine.refuse_outside(stream).map(Answer::Done),
                MarkPlace::Stream(on) => {
                    engine.follow_to_stream(event, &on);
                    engine.submit(stream, Work::Wait { event, on: Some(on) })
                }
            }
        })
    }

    /// Whether the work before the event's last record has completed.
    ///
    /// # Errors
    /// A stale handle; 907 for an event of a live capture, which breaks it; 1 for one of a capture that is over; 900
    /// where a capture forbids it.
    pub fn event_query(&mut self, thread: HostThread, handle: EventHandle) -> Result<Progress, Code> {
        let answer = self.plain(thread, Call::EventQuery, |engine| {
            let place = engine.ask_event(handle, true)?;
            let MarkPlace::Stream(position) = place else { return Ok(()) };
            if !engine.is_complete(&position) {
                return Err(Code::NOT_READY);
            }
            engine.push_learned(position);
            Ok(())
        });
        progress(answer)
    }

    /// Waits for the work before the event's last record.
    ///
    /// # Errors
    /// As [`event_query`](Self::event_query).
    pub fn event_synchronize(&mut self, thread: HostThread, handle: EventHandle) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::EventSynchronize, |engine| {
            let place = engine.ask_event(handle, false)?;
            let MarkPlace::Stream(position) = place else { return Ok(Answer::Done(())) };
            Ok(engine.wait_for(Until::Position(position), Then::Nothing))
        })
    }

    fn ask_event(&mut self, handle: EventHandle, is_query: bool) -> Result<MarkPlace, Code> {
        let key = self.resolve_event(handle)?;
        let Mark { id, place, .. } = self.marks[key as usize];
        match place {
            MarkPlace::Captured { key, capture, .. } => self.ask_captured(key, capture)?,
            MarkPlace::Stream(position) => {
                self.guard_event(&position, is_query)?;
                self.follow_to_stream(id, &position);
            }
            MarkPlace::Nowhere => self.guard_unplaced_event(is_query)?,
        }
        Ok(place)
    }

    /// Some drivers follow an event to the stream that it was recorded on, whatever they are asked about it.
    fn follow_to_stream(&mut self, event: EventId, position: &Position) {
        if self.profile.has(Quirk::EventNeedsItsStream) && self.stream_is_gone(position) {
            let call = self.current.call;
            self.violate(Violation::EventOutlivesStream { event, call });
        }
    }

    /// The device time between two completed events, in milliseconds.
    ///
    /// # Errors
    /// Stale handles; 400 where one is not timed or was never recorded, whatever the other is; 1 where one was recorded
    /// in a capture; 600 where one has not completed.
    pub fn event_elapsed(&mut self, thread: HostThread, start: EventHandle, end: EventHandle) -> Result<f32, Code> {
        self.plain(thread, Call::EventElapsed, |engine| {
            let (start, end) = (engine.resolve_timed(start)?, engine.resolve_timed(end)?);
            let (start, end) = (engine.completed_ns(start)?, engine.completed_ns(end)?);
            Ok((end as f64 - start as f64) as f32 / 1e6)
        })
    }

    fn resolve_timed(&mut self, handle: EventHandle) -> Result<u32, Code> {
        let key = self.resolve_event(handle)?;
        let mark = &self.marks[key as usize];
        let can_tell = mark.timing == Timing::Enabled && mark.place != MarkPlace::Nowhere;
        if can_tell { Ok(key) } else { Err(self.refuse(Code::INVALID_HANDLE)) }
    }

    fn completed_ns(&mut self, key: u32) -> Result<u64, Code> {
        let mark = &self.marks[key as usize];
        let answer = match mark.place {
            MarkPlace::Captured { .. } => Err(Code::INVALID_VALUE),
            _ => mark.completed_ns.ok_or(Code::NOT_READY),
        };
        answer.map_err(|code| self.refuse(code))
    }

    /// Says when the last record of an event ran, on the clock of its stream, where a drive keeps one.
    pub fn set_event_ns(&mut self, event: EventId, ns: u64) {
        let Some((_, key)) = self.timed.iter().find(|(id, _)| *id == event) else { return };
        if let Some(mark) = self.marks.get_mut(*key as usize)
            && mark.completed_ns.is_some()
        {
            mark.completed_ns = Some(ns);
        }
    }

    fn resolve_event(&mut self, handle: EventHandle) -> Result<u32, Code> {
        match self.handle_key(EVENTS, handle.0) {
            Some(key) if self.marks.contains(key) => Ok(key as u32),
            _ => Err(self.stale(handle.0)),
        }
    }

    /// The id of a live event, for lanes and tests.
    pub fn event_id(&self, handle: EventHandle) -> Option<EventId> {
        self.marks.get(self.handle_key(EVENTS, handle.0)?).map(|mark| mark.id)
    }

    /// At the call that records.
    pub(super) fn move_mark(&mut self, key: u32, event: EventId, position: Position) {
        if let Some(mark) = self.marks.get_mut(key as usize).filter(|mark| mark.id == event) {
            mark.place = MarkPlace::Stream(position);
            mark.completed_ns = None;
        }
    }

    pub(super) fn move_mark_into_capture(&mut self, mark: u32, event: EventId, place: MarkPlace) {
        if let Some(mark) = self.marks.get_mut(mark as usize).filter(|mark| mark.id == event) {
            mark.place = place;
        }
    }

    /// When the record runs on the device, as the operation `op` or a node of it.
    pub(super) fn complete_mark(&mut self, key: u32, event: EventId, op: crate::event::OpId) {
        let now_ns = self.now_ns;
        if let Some(mark) = self.marks.get_mut(key as usize).filter(|mark| mark.id == event)
            && matches!(mark.place, MarkPlace::Stream(position) if position.op == op)
        {
            mark.completed_ns = Some(now_ns);
        }
    }
}
