//! What the laziest device records: captures, graphs, executables.
//!
//! A capture is a little device of its own, in which nothing is ever complete: what two of its operations order is told by clocks,
//! as outside. A graph is what its operations use. A launch of it is one operation that uses all of that, and the executable itself.
//!
//! Breaches here are of C1 (a call that breaks a capture), C2 (a release or an allocation that is recorded), C4 (memory of a
//! graph that is gone), C7 (captures that are ended wrongly, or not at all), C8 (work outside that waits for what is only
//! recorded), S7 (a stream of a failed capture that is used again).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex as StdMutex, PoisonError};

use super::super::checker::{ThreadKey, this_thread};
use super::super::tenure::driver::{Call, CaptureMode, ErrorKind};
use super::{Clock, Device, Failure, State, Stream, Use, breach, overlaps};

/// What a graph uses: where, and whether it writes there.
pub type Uses = Vec<(Range<u64>, bool)>;

/// Where an executable is said to lie: a range that its launches write, so that they are ordered among themselves.
const EXECUTABLES: u64 = 1 << 61;

/// A recorded graph.
#[derive(Debug)]
pub struct Graph(Uses);

/// A graph made ready.
#[derive(Debug)]
pub struct Executable {
    index: usize,
    uses: StdMutex<Uses>,
}

impl Executable {
    fn range(&self) -> Range<u64> {
        let base = EXECUTABLES + 16 * self.index as u64;
        base..base + 1
    }

    fn uses(&self) -> Uses {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All captures there ever were, the threads' modes, and the executables that exist.
#[derive(Default)]
pub(super) struct Recording {
    sessions: Vec<Session>,
    modes: HashMap<ThreadKey, CaptureMode>,
    executables: BTreeMap<usize, Uses>,
    executables_made: usize,
}

struct Session {
    origin: usize,
    thread: ThreadKey,
    mode: CaptureMode,
    open: bool,
    /// The streams of the capture, each with what its end comes after and how much it recorded.
    streams: BTreeMap<usize, (Clock, u64)>,
    uses: Vec<Use>,
}

impl Session {
    /// The next operation of `stream`: its position.
    fn append(&mut self, stream: usize) -> u64 {
        let (now, length) = self.streams.entry(stream).or_default();
        *length += 1;
        now.raise(stream, *length);
        *length - 1
    }

    fn is_before(&self, earlier: &Use, stream: usize) -> bool {
        self.streams.get(&stream).is_some_and(|(now, _)| now.at(earlier.stream) > earlier.position)
    }

    /// Whether the origin's end comes after all that was recorded.
    fn is_joined(&self) -> bool {
        let Some((end, _)) = self.streams.get(&self.origin) else { return true };
        self.streams.iter().all(|(stream, (_, length))| end.at(*stream) >= *length)
    }
}

/// Whether the call can break somebody's capture.
fn is_guarded(call: Call) -> bool {
    matches!(
        call,
        Call::StreamQuery
            | Call::StreamSynchronize
            | Call::EventQuery
            | Call::EventSynchronize
            | Call::Malloc
            | Call::Free
            | Call::HostAlloc
            | Call::HostFree
            | Call::HostRegister
            | Call::HostUnregister
            | Call::MallocAsync
            | Call::FreeAsync
            | Call::ModuleLoad
            | Call::ModuleUnload
            | Call::GraphInstantiate
            | Call::GraphUpdate
            | Call::ExecutableDestroy
    )
}

impl State {
    /// A guarded call breaks captures where no mode protects, or where the calling thread's does not.
    pub(super) fn check_guarded(&self, call: Call, relaxed_protects: bool) {
        if !is_guarded(call) {
            return;
        }
        let caller = this_thread();
        let mode = self.recording.modes.get(&caller).copied().unwrap_or(CaptureMode::Global);
        let breaks = |session: &Session| match session.mode {
            _ if !relaxed_protects => true,
            _ if mode == CaptureMode::Relaxed => false,
            CaptureMode::Global => mode == CaptureMode::Global || session.thread == caller,
            CaptureMode::ThreadLocal => session.thread == caller,
            CaptureMode::Relaxed => false,
        };
        if self.recording.sessions.iter().any(|session| session.open && breaks(session)) {
            breach(format_args!("C1: {call} broke a capture"));
        }
    }

    /// A call that only streams outside of captures may be named in.
    pub(super) fn check_executes(&self, call: Call, stream: usize) {
        if self.streams[stream].session.is_none() {
            return;
        }
        match call {
            Call::StreamQuery | Call::StreamSynchronize => breach(format_args!("C1: {call} of a stream that captures")),
            Call::FreeAsync | Call::LaunchHostFunction => breach(format_args!("C2: {call} was recorded into a graph")),
            Call::MallocAsync => breach("C2: an allocation was recorded into a graph"),
            Call::StreamDestroy => breach("C7: a stream was destroyed that captures"),
            Call::GraphLaunch => breach("C9: a launch of a graph was recorded into another"),
            _ => {}
        }
    }

    /// Records an operation, ordered with what conflicts with it in its own capture.
    pub(super) fn record(&mut self, session: usize, stream: usize, uses: &[(Range<u64>, bool)]) {
        let session = &mut self.recording.sessions[session];
        let position = session.append(stream);
        for (range, writes) in uses {
            let conflicting = session.uses.iter().filter(|earlier| overlaps(&earlier.range, range));
            let mut conflicting = conflicting.filter(|earlier| *writes || earlier.writes);
            if conflicting.any(|earlier| earlier.position != position && !session.is_before(earlier, stream)) {
                breach("O1: two conflicting operations of one capture are not ordered");
            }
        }
        let used = |(range, writes): &(Range<u64>, bool)| Use {
            stream,
            position,
            range: range.clone(),
            writes: *writes,
            told: None,
        };
        session.uses.extend(uses.iter().map(used));
    }

    /// Marks the end of `stream` in its capture.
    pub(super) fn recorded_end(&mut self, session: usize, stream: usize) -> Clock {
        let session = &mut self.recording.sessions[session];
        session.append(stream);
        session.streams[&stream].0.clone()
    }

    /// `stream` waits for a mark: in one capture, or a fork that joins the mark's.
    pub(super) fn record_wait(&mut self, stream: usize, mark: Option<(Option<usize>, Clock)>) {
        let Some((of, before)) = mark else { return };
        let target = match (self.streams[stream].session, of) {
            (Some(own), Some(of)) if own == of => own,
            (None, Some(of)) if self.recording.sessions[of].open && self.streams[stream].operations.is_empty() => of,
            (None, Some(_)) => breach("C8: work outside a capture waits for what is only recorded"),
            (Some(_), _) => breach("C8: a capture waits for work outside of it"),
            (None, None) => return,
        };
        self.streams[stream].session = Some(target);
        let session = &mut self.recording.sessions[target];
        session.streams.entry(stream).or_default().0.join(&before);
        session.append(stream);
    }

    /// A release of memory that an executable uses.
    pub(super) fn check_not_of_a_graph(&self, range: &Range<u64>) {
        let mut uses = self.recording.executables.values().flatten();
        if uses.any(|(used, _)| overlaps(used, range)) {
            breach("C4: memory went that a living executable uses");
        }
    }

    fn check_graph_alive(&self, uses: &Uses) {
        for (range, _) in uses {
            if (super::CODE..super::HOST >> 1).contains(&range.start) {
                self.check_loaded(range);
                continue;
            }
            let base = self.blocks.range(..=range.start).next_back();
            let alive = base.is_some_and(|(base, block)| range.end <= base + block.bytes);
            if range.start < super::HOST && (!alive || self.freed.contains(&range.start)) {
                breach("C4: a graph is to run on memory that is gone");
            }
        }
    }

    /// At the end of an execution: no capture is open, and no executable was forgotten.
    pub(super) fn check_recording_ended(&self) {
        if self.recording.sessions.iter().any(|session| session.open) {
            breach("C7: a capture was never ended");
        }
        if !self.recording.executables.is_empty() {
            breach("C3: an executable was never given back");
        }
    }
}

impl Device {
    /// How many captures are open in the driver.
    pub fn open_captures(&self) -> usize {
        self.state().recording.sessions.iter().filter(|session| session.open).count()
    }

    pub(super) fn begin_capture(&self, stream: &Stream, mode: CaptureMode) -> Result<(), Failure> {
        let mut state = self.enter_stream(Call::CaptureBegin, stream)?;
        if state.streams[stream.index].session.is_some() {
            breach("C7: a capture was begun on a stream that captures");
        }
        let streams = BTreeMap::from([(stream.index, (Clock::default(), 0))]);
        let (thread, uses) = (this_thread(), Vec::new());
        state.recording.sessions.push(Session { origin: stream.index, thread, mode, open: true, streams, uses });
        let number = state.recording.sessions.len() - 1;
        state.streams[stream.index].session = Some(number);
        drop(state);
        // A scheduling point inside the window.
        self.0.touch.touch();
        Ok(())
    }

    pub(super) fn end_capture(&self, stream: &Stream) -> Result<Graph, Failure> {
        let entered = self.enter_stream(Call::CaptureEnd, stream);
        let (mut state, failed) = match entered {
            Ok(state) => (state, None),
            // As of a capture that was broken: it ends all the same.
            Err(failure) => (self.state(), Some(failure)),
        };
        let Some(number) = state.streams[stream.index].session else { breach("C7: an end without a begin") };
        let session = &mut state.recording.sessions[number];
        if session.thread != this_thread() {
            breach("C7: a capture was ended by a thread that did not begin it");
        }
        session.open = false;
        let unjoined = (!session.is_joined()).then_some(Failure(ErrorKind::CaptureUnjoined));
        let streams: Vec<_> = session.streams.keys().copied().collect();
        let graph = Graph(session.uses.iter().map(|used| (used.range.clone(), used.writes)).collect());
        let failed = failed.or(unjoined);
        for index in streams {
            state.streams[index].session = None;
            state.streams[index].spoiled |= failed.is_some();
        }
        match failed {
            Some(failure) => Err(failure),
            None => Ok(graph),
        }
    }

    pub(super) fn exchange_mode(&self, mode: CaptureMode) -> CaptureMode {
        // No scheduling point: the mode belongs to the calling thread alone.
        self.state().recording.modes.insert(this_thread(), mode).unwrap_or(CaptureMode::Global)
    }

    pub(super) fn instantiate(&self, graph: &Graph) -> Result<Executable, Failure> {
        let mut state = self.enter(Call::GraphInstantiate, None)?;
        state.check_graph_alive(&graph.0);
        let index = state.recording.executables_made;
        state.recording.executables_made += 1;
        state.recording.executables.insert(index, graph.0.clone());
        Ok(Executable { index, uses: StdMutex::new(graph.0.clone()) })
    }

    pub(super) fn update(&self, executable: &Executable, graph: &Graph) -> Result<(), Failure> {
        let mut state = self.enter(Call::GraphUpdate, None)?;
        state.check_graph_alive(&graph.0);
        state.recording.executables.insert(executable.index, graph.0.clone());
        *executable.uses.lock().unwrap_or_else(PoisonError::into_inner) = graph.0.clone();
        Ok(())
    }

    pub(super) fn launch_graph(&self, executable: &Executable, stream: &Stream) -> Result<(), Failure> {
        let mut uses = executable.uses();
        self.state().check_graph_alive(&uses);
        uses.push((executable.range(), true));
        self.enqueue(Call::GraphLaunch, stream, &uses)
    }

    pub(super) fn destroy_executable(&self, executable: &Executable) -> Result<(), Failure> {
        let mut state = self.enter(Call::ExecutableDestroy, None)?;
        state.check_complete(&executable.range(), "C4: an executable was destroyed while a launch of it may still run");
        if state.recording.executables.remove(&executable.index).is_none() {
            breach("C3: an executable was destroyed twice");
        }
        Ok(())
    }
}
