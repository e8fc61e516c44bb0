//! The engine: a CUDA- or HIP-like driver and its device as one pure state machine.
//!
//! Single-threaded, without clocks, locks or randomness. Host calls are methods; what the device may do next is the
//! list that [`Engine::ready`] gives, and [`Engine::step`] does one thing of it. The *drive* around it decides.
//! All that happens is told as [`Event`]s, taken with [`Engine::take_events`]; memory grows with what is live, not with
//! what was done.
//!
//! # Calls that wait
//! return [`Answer::Blocked`] with a [`Wait`]: step the device until [`Engine::is_over`], then [`Engine::finish`].
//! A submission waits for room in its stream's queue; synchronizing, freeing and unregistering wait for work.
//!
//! # Operations
//! Each stream runs its operations in order. An operation goes through these states:
//!
//! | state | listed by `ready` | changes by |
//! |---|---|---|
//! | queued, not at the head | no | the one before it completes |
//! | at the head, kept by an order | no | what it waits for completes |
//! | at the head, free | [`Choice::Start`] | `step` |
//! | running | [`Choice::Finish`] | `step`: here it reads and writes memory |
//! | host function running | no | [`Engine::function_returned`] |
//! | graph running | its nodes, in any order that the edges allow | its last node completes |
//!
//! Memory is read and written as an operation finishes, all at once: any order of effects is an order of finishing.
//!
//! ```
//! use tenure_sim::engine::{Answer, Engine, Settings};
//! use tenure_sim::event::HostThread;
//! use tenure_sim::profile::Profile;
//! use tenure::driver::{Location, Priority, Progress};
//!
//! let mut engine = Engine::new(Profile::cuda_13(), Settings::default());
//! let me = HostThread(0);
//! let stream = engine.stream_create(me, Priority::Normal)?;
//! let memory = engine.malloc(me, 64)?;
//! assert!(matches!(engine.fill(me, stream, memory, 7, 64)?, Answer::Done(())));
//! assert_eq!(engine.stream_query(me, stream)?, Progress::Pending);
//! while let Some(choice) = engine.first_ready() {
//!     engine.step(choice);
//! }
//! assert_eq!(engine.stream_query(me, stream)?, Progress::Complete);
//! # Ok::<(), tenure_sim::code::Code>(())
//! ```

mod capture;
mod graph;
mod host_function;
mod mark;
mod memory;
mod module;
mod probe;
mod registration;
mod reset;
mod run;
mod stream;
mod table;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use slab::Slab;
use tenure::driver::{Call, Capabilities, CaptureMode};

use self::capture::Capture;
use self::graph::{Executable, Graph};
use self::mark::Mark;
use self::registration::Registration;
use self::stream::{Position, Stream, Work};
use self::table::Table;
use crate::code::Code;
use crate::event::{
    AllocationId, BlockedOn, CallName, CaptureId, Event, EventId, ExecutableId, GraphId, HostThread, OpId,
    RegistrationId, StreamHandle, StreamId, Violation,
};
use crate::fault::{Fault, Plan, Verdict};
use crate::host_memory::{HostMap, PinnedBlock, TrustedMap};
use crate::kernel::{Bound, KernelFunction, Library};
use crate::memory::{DeviceMemory, Reuse};
use crate::profile::{Profile, Quirk};

pub use self::host_function::FunctionCall;
pub use self::run::{Choice, Ready, Step, StreamIndex};

/// How an engine is driven, besides its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// [`Choice::Start`] also finishes. Fewer schedules with the same outcomes; no overlap in time.
    pub whole_steps: bool,
    /// Events are kept for [`Engine::take_events`]. Without it nothing is told but violations.
    pub events: bool,
    /// There is memory in the order of a stream. Without it the calls for it fail with 801.
    pub pools: bool,
}

impl Default for Settings {
    /// Starts and finishes apart, events on, with pools.
    fn default() -> Self {
        Self { whole_steps: false, events: true, pools: true }
    }
}

/// What a call that may wait gave.
#[derive(Debug)]
#[must_use]
pub enum Answer<T> {
    /// It is done.
    Done(T),
    /// Its thread waits.
    Blocked(Wait<T>),
}

/// A call that waits. Give it to [`Engine::finish`] once [`Engine::is_over`] says so.
#[derive(Debug)]
#[must_use]
pub struct Wait<T> {
    current: Current,
    /// How often the device had been reset when the wait began: it ends with the next time.
    resets: u64,
    until: Until,
    then: Then,
    value: T,
}

impl<T> Wait<T> {
    /// Who waits.
    pub fn thread(&self) -> HostThread {
        self.current.thread
    }

    /// In which call.
    pub fn call(&self) -> CallName {
        self.current.call
    }

    /// For what.
    pub fn blocked_on(&self) -> BlockedOn {
        self.until.blocked_on()
    }

    fn map<U>(self, value: U) -> Wait<U> {
        Wait { current: self.current, resets: self.resets, until: self.until, then: self.then, value }
    }
}

#[derive(Clone, Debug)]
enum Until {
    Position(Position),
    Positions(Vec<Position>),
    Room { stream: u32, id: StreamId },
}

impl Until {
    fn blocked_on(&self) -> BlockedOn {
        match self {
            Self::Position(position) => BlockedOn::Operation { stream: position.id, number: position.number },
            Self::Positions(_) => BlockedOn::Device,
            Self::Room { id, .. } => BlockedOn::QueueRoom { stream: *id },
        }
    }
}

/// What a call does when its wait is over.
#[derive(Debug)]
enum Then {
    Nothing,
    /// The call only begins now: it has no answer yet, and its thread has learnt nothing.
    Begin,
    Submit {
        stream: u32,
        id: StreamId,
        work: Work,
    },
    Free {
        slot: u32,
    },
    ReleasePin {
        slot: u32,
        id: RegistrationId,
    },
    DestroyStream {
        handle: StreamHandle,
        id: StreamId,
    },
}

#[derive(Clone, Copy, Debug)]
struct Current {
    thread: HostThread,
    call: CallName,
    stream: Option<StreamId>,
    verdict: Verdict,
}

/// How many objects live. All zero after a clean end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Streams whose handle was not given back, the legacy one aside.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Device allocations, as the host sees them.
    pub allocations: usize,
    /// Registrations and host allocations.
    pub pins: usize,
    /// Modules.
    pub modules: usize,
    /// Captures.
    pub captures: usize,
    /// Graphs.
    pub graphs: usize,
    /// Executable graphs.
    pub executables: usize,
    /// Operations that were submitted and have not completed.
    pub operations: usize,
}

impl Live {
    /// Combines each count but that of operations with another's.
    fn with(self, other: Self, combine: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            streams: combine(self.streams, other.streams),
            events: combine(self.events, other.events),
            allocations: combine(self.allocations, other.allocations),
            pins: combine(self.pins, other.pins),
            modules: combine(self.modules, other.modules),
            captures: combine(self.captures, other.captures),
            graphs: combine(self.graphs, other.graphs),
            executables: combine(self.executables, other.executables),
            operations: self.operations,
        }
    }
}

#[derive(Debug)]
struct Numbers {
    op: u64,
    stream: u64,
    event: u64,
    allocation: u64,
    registration: u64,
    capture: u64,
    graph: u64,
    executable: u64,
    module: u64,
}

impl Default for Numbers {
    /// A capture's number is never 0, which stands for none.
    fn default() -> Self {
        let (op, stream, event, allocation, registration, graph, executable, module) = (0, 0, 0, 0, 0, 0, 0, 0);
        Self { op, stream, event, allocation, registration, capture: 1, graph, executable, module }
    }
}

/// A driver and its device.
pub struct Engine {
    profile: Profile,
    settings: Settings,
    kernels: Arc<Library>,
    faults: Plan,
    map: Box<dyn HostMap>,

    streams: Slab<Stream>,
    stream_handles: Table<u32>,
    busy: Vec<u32>,
    blocking_streams: u32,
    /// The default stream of each host thread that has named its own.
    per_thread: Vec<Option<u32>>,
    marks: Table<Mark>,
    /// Events whose time somebody may ask for.
    timed: Vec<(EventId, u32)>,
    memory: DeviceMemory,
    pins: Table<Registration>,
    pins_by_base: BTreeMap<usize, u32>,
    pins_longest: usize,
    /// Page-locked memory that was freed: kept mapped for a while.
    freed_pins: VecDeque<PinnedBlock>,
    /// Host ranges that went back to the system while work was pending, or graphs had names of such.
    gone: VecDeque<registration::Gone>,
    /// How many did, ever.
    ranges_gone: u64,
    /// Kernels that write what nothing wrote are run twice, to see whether they read it.
    probes_kernels: bool,
    gaps: Vec<probe::Gaps>,
    /// For a node that runs: how many had when its graph was recorded, and so its memory named.
    named_at: Option<u64>,
    reuse: Reuse,
    modules: Table<module::Module>,
    functions: Table<module::Function>,
    captures: Slab<Capture>,
    graphs: Table<Graph>,
    executables: Table<Executable>,
    modes: Vec<CaptureMode>,
    last_errors: Vec<Code>,
    /// What calls have made that failed all the same: nobody can give it back.
    orphans: Live,
    resets: u64,

    functions_running: Vec<host_function::Running>,
    /// The last that began.
    last_function: OpId,
    lost: Option<Code>,
    /// A kernel's panic lost it: that is the program's own doing.
    lost_by_panic: bool,
    /// Calls refused since it was lost, by kind.
    refused_since_lost: [u32; CALLS],
    now_ns: u64,
    completions: u64,
    next: Numbers,
    current: Current,
    log: Vec<Event>,
    bounds: Vec<Bound>,
    lent: Vec<run::Lent>,
    spare_arguments: Vec<Vec<tenure::driver::Argument>>,
}

impl Engine {
    /// An engine without kernels, whose host memory is all taken for mapped and writable.
    pub fn new(profile: Profile, settings: Settings) -> Self {
        Self::with_kernels(profile, settings, Arc::new(Library::new()))
    }

    /// An engine that shares a library of kernels.
    pub fn with_kernels(profile: Profile, settings: Settings, kernels: Arc<Library>) -> Self {
        let memory = DeviceMemory::new(profile.device_bytes);
        let mut engine = Self {
            profile,
            settings,
            kernels,
            faults: Plan::default(),
            map: Box::new(TrustedMap),
            streams: Slab::new(),
            stream_handles: Table::new(),
            busy: Vec::new(),
            blocking_streams: 0,
            per_thread: Vec::new(),
            marks: Table::new(),
            timed: Vec::new(),
            memory,
            pins: Table::new(),
            pins_by_base: BTreeMap::new(),
            pins_longest: 0,
            freed_pins: VecDeque::new(),
            gone: VecDeque::new(),
            probes_kernels: false,
            gaps: Vec::new(),
            ranges_gone: 0,
            named_at: None,
            reuse: Reuse::default(),
            modules: Table::new(),
            functions: Table::new(),
            captures: Slab::new(),
            graphs: Table::new(),
            executables: Table::new(),
            modes: Vec::new(),
            last_errors: Vec::new(),
            orphans: Live::default(),
            resets: 0,
            functions_running: Vec::new(),
            last_function: OpId(u64::MAX),
            lost: None,
            lost_by_panic: false,
            refused_since_lost: [0; CALLS],
            now_ns: 0,
            completions: 0,
            next: Numbers::default(),
            current: Current {
                thread: HostThread(0),
                call: CallName::SelectDevice,
                stream: None,
                verdict: Verdict::Plain,
            },
            log: Vec::new(),
            bounds: Vec::new(),
            lent: Vec::new(),
            spare_arguments: Vec::new(),
        };
        engine.add_legacy_stream();
        engine
    }

    // --- around the calls

    /// Its profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// What it can do beyond the least.
    pub fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.stream_ordered_memory = self.settings.pools;
        capabilities.relaxed_protects = !self.profile.has(Quirk::GuardedCallsRaceWithCaptures);
        capabilities.relaxed_protects_events =
            capabilities.relaxed_protects && !self.profile.has(Quirk::EventQueryIgnoresMode);
        capabilities.events_outlive_streams = !self.profile.has(Quirk::EventNeedsItsStream);
        capabilities.refuses_overlap = !self.profile.has(Quirk::OverlapAccepted);
        capabilities
    }

    /// Adds a kernel that modules loaded from now on, and those loaded already, will find under this name.
    pub fn add_kernel<S, F: KernelFunction<S>>(&mut self, name: &str, function: F) {
        Arc::make_mut(&mut self.kernels).add(name, function);
    }

    /// Kernels whose [`Write`](crate::kernel::Write) arguments hold bytes that nothing wrote run twice, with different such
    /// bytes: where what they write differs, they have read them, and are told to have. Without it only `Read` arguments
    /// are asked.
    pub fn probe_kernels(&mut self) {
        self.probes_kernels = true;
    }

    /// Adds all kernels of a library, as [`add_kernel`](Self::add_kernel) does.
    pub fn add_kernels(&mut self, library: &Library) {
        Arc::make_mut(&mut self.kernels).extend(library);
    }

    /// Its kernels.
    pub fn kernels(&self) -> &Library {
        &self.kernels
    }

    /// Sets what tells which host memory is mapped.
    pub fn set_host_map(&mut self, map: Box<dyn HostMap>) {
        self.map = map;
    }

    /// Says in which order addresses and handles that were given back are handed out again.
    pub fn set_reuse(&mut self, reuse: Reuse) {
        self.reuse = reuse;
        self.memory.set_reuse(reuse);
        self.stream_handles.set_reuse(reuse);
        self.marks.set_reuse(reuse);
        self.pins.set_reuse(reuse);
        self.modules.set_reuse(reuse);
        self.functions.set_reuse(reuse);
        self.graphs.set_reuse(reuse);
        self.executables.set_reuse(reuse);
    }

    /// Adds something to go wrong.
    pub fn add_fault(&mut self, fault: Fault) {
        self.faults.add(fault);
    }

    /// Takes all faults away that have not happened.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Changes how much device memory there is, in bytes. What is allocated stays.
    pub fn set_device_bytes(&mut self, bytes: u64) {
        self.memory.set_limit(bytes);
    }

    /// Sets the device's clock in nanoseconds. It must not go back. A timed event gets this time when its record runs,
    /// unless [`set_event_ns`](Self::set_event_ns) says another.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Moves all events since the last call to the end of `events`.
    pub fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.log);
    }

    /// Whether anything has happened since the events were last taken.
    pub(crate) fn has_events(&self) -> bool {
        !self.log.is_empty()
    }

    /// As [`take_events`](Self::take_events), with an empty list, whose room is used for the events to come: nothing is copied.
    pub(crate) fn exchange_events(&mut self, events: &mut Vec<Event>) {
        debug_assert!(events.is_empty(), "what it holds would be told again");
        std::mem::swap(&mut self.log, events);
    }

    /// Hands each event since the last call to `sink`, in order.
    pub fn drain_events(&mut self, mut sink: impl FnMut(Event)) {
        self.log.drain(..).for_each(&mut sink);
    }

    /// Adds an event that only the drive can know: host accesses, order between threads.
    pub fn tell(&mut self, event: Event) {
        match event {
            Event::HostMemoryGone { start, bytes, .. } => self.note_host_memory_gone(start, bytes),
            Event::HostAccessed { thread, start, bytes, access } => {
                self.check_host_access(thread, start, bytes, access);
            }
            _ => {}
        }
        self.push(event);
    }

    /// The code that every call returns since the device was lost.
    pub fn lost(&self) -> Option<Code> {
        self.lost
    }

    /// Loses the device: every later call and every wait returns `code`, and nothing runs any more (R6).
    pub fn lose_device(&mut self, code: Code) {
        if self.lost.is_none() {
            self.lost = Some(code);
            self.push(Event::DeviceLost { code });
        }
    }

    /// Whether the call that a thread is about to make waits for the device first, by a planned fault.
    pub fn is_to_block(&mut self, call: impl Into<CallName>) -> bool {
        self.faults.blocks(call.into())
    }

    /// The wait of a call that is about to be made: for all that the device holds now.
    pub fn wait_before(&mut self, thread: HostThread, call: impl Into<CallName>) -> Answer<()> {
        self.current = Current { thread, call: call.into(), stream: None, verdict: Verdict::Plain };
        let positions = self.busy.iter().map(|stream| self.end_of(*stream)).collect();
        self.block(Until::Positions(positions), Then::Begin)
    }

    /// The last error of a thread, which it forgets: [`Code::SUCCESS`] where there is none. A refused call leaves its
    /// code; "not ready" is no error, and success takes none away. A lost device's stays.
    pub fn take_last_error(&mut self, thread: HostThread) -> Code {
        let code = self.peek_last_error(thread);
        if let Some(kept) = self.last_errors.get_mut(thread.0 as usize) {
            *kept = Code::SUCCESS;
        }
        code
    }

    /// The last error of a thread, which stays.
    pub fn peek_last_error(&self, thread: HostThread) -> Code {
        let kept = self.last_errors.get(thread.0 as usize).copied().unwrap_or(Code::SUCCESS);
        self.lost.unwrap_or(kept)
    }

    fn note_last_error(&mut self, code: Code) {
        let index = self.current.thread.0 as usize;
        let is_result = self.profile.has(Quirk::LastErrorIsLastResult);
        let is_error = code != Code::SUCCESS && code != Code::NOT_READY;
        if self.current.thread == HostThread::FUNCTIONS || !(is_error || is_result) {
            return;
        }
        if self.last_errors.len() <= index {
            self.last_errors.resize(index + 1, Code::SUCCESS);
        }
        self.last_errors[index] = code;
    }

    /// Grows by each submission and each completion.
    pub(crate) fn progress(&self) -> u64 {
        self.next.op + self.completions
    }

    /// Whether a kernel's panic lost the device.
    pub(crate) fn is_lost_by_panic(&self) -> bool {
        self.lost_by_panic
    }

    /// How many calls of this kind were refused since the device was lost.
    pub(crate) fn refused_since_lost(&self, call: Call) -> u64 {
        u64::from(self.refused_since_lost[call as usize])
    }

    /// How many objects live, but for those that a call made which then failed.
    pub fn live(&self) -> Live {
        self.count().with(self.orphans, usize::saturating_sub)
    }

    fn count(&self) -> Live {
        Live {
            streams: self.stream_handles.len() - 1,
            events: self.marks.len(),
            allocations: self.memory.live(),
            pins: self.live_pins(),
            modules: self.modules.len(),
            captures: self.captures.len(),
            graphs: self.graphs.len(),
            executables: self.executables.len(),
            operations: self.busy.iter().map(|stream| self.streams[*stream as usize].pending()).sum(),
        }
    }

    // --- waits

    /// Whether the wait has nothing left to wait for.
    pub fn is_over<T>(&self, wait: &Wait<T>) -> bool {
        self.lost.is_some()
            || wait.resets != self.resets
            || match &wait.until {
                Until::Position(position) => self.is_complete(position),
                Until::Positions(positions) => positions.iter().all(|position| self.is_complete(position)),
                Until::Room { stream, id } => self.has_room(*stream, *id),
            }
    }

    /// Ends a call that waited, or gives it back if it must wait on.
    ///
    /// # Errors
    /// What the call returns.
    pub fn finish<T>(&mut self, wait: Wait<T>) -> Result<Answer<T>, Code> {
        if !self.is_over(&wait) {
            return Ok(Answer::Blocked(wait));
        }
        let Wait { current, resets, until, then, value } = wait;
        self.current = current;
        if matches!(then, Then::Begin) {
            return Ok(Answer::Done(value));
        }
        let late_copy = self.late_copy_that_waits(&then);
        let result = match self.lost {
            Some(code) => Err(code),
            None if resets != self.resets => Err(self.stale_code()),
            None => {
                self.learn(&until);
                self.conclude(then)
            }
        };
        if let (Ok(()), Some(stream)) = (&result, late_copy) {
            return self.finish(Wait {
                current,
                resets,
                until: Until::Position(self.end_of(stream)),
                then: Then::Nothing,
                value,
            });
        }
        self.answered(result).map(|()| Answer::Done(value))
    }

    /// The stream of a copy that waited for room, and then waits until it has run.
    fn late_copy_that_waits(&self, then: &Then) -> Option<u32> {
        match then {
            Then::Submit { stream, id, work: Work::Copy { to, from, bytes } } => {
                let held = self.streams.get(*stream as usize).filter(|held| held.id == *id && !held.destroyed)?;
                let executes = held.capture.is_none() && !held.broken;
                (executes && self.copy_waits(*to, *from, *bytes)).then_some(*stream)
            }
            _ => None,
        }
    }

    fn learn(&mut self, until: &Until) {
        match until {
            Until::Position(position) => self.push_learned(*position),
            Until::Positions(positions) => positions.iter().for_each(|position| self.push_learned(*position)),
            Until::Room { .. } => {}
        }
    }

    fn conclude(&mut self, then: Then) -> Result<(), Code> {
        match then {
            Then::Nothing | Then::Begin => {}
            Then::Submit { stream, id, work } => self.submit_late(stream, id, work)?,
            Then::Free { slot } => self.free_now(slot),
            Then::ReleasePin { slot, id } => self.release_pin(slot, id),
            Then::DestroyStream { handle, id } => self.destroy_stream_late(handle, id)?,
        }
        Ok(())
    }

    // --- inside every call

    /// Runs the body of a call that may wait.
    fn waiting<T>(
        &mut self,
        thread: HostThread,
        call: impl Into<CallName>,
        body: impl FnOnce(&mut Self) -> Result<Answer<T>, Code>,
    ) -> Result<Answer<T>, Code> {
        match self.admit(thread, call.into()).and_then(|()| self.run_body(body)) {
            Ok(Answer::Done(value)) => self.answered(Ok(Answer::Done(value))),
            Ok(Answer::Blocked(wait)) => {
                let Current { thread, call, .. } = self.current;
                self.push(Event::Blocked { thread, call, on: wait.blocked_on() });
                Ok(Answer::Blocked(wait))
            }
            Err(code) => {
                self.push_called(code);
                Err(code)
            }
        }
    }

    /// Runs the body of a call that does not wait.
    fn plain<T>(
        &mut self,
        thread: HostThread,
        call: impl Into<CallName>,
        body: impl FnOnce(&mut Self) -> Result<T, Code>,
    ) -> Result<T, Code> {
        let result = self.admit(thread, call.into()).and_then(|()| self.run_body(body));
        self.answered(result)
    }

    #[inline]
    fn run_body<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T, Code>) -> Result<T, Code> {
        match self.current.verdict {
            Verdict::FailsAfter(_) => self.run_orphaning(body),
            _ => body(self),
        }
    }

    /// What the body makes belongs to nobody: its caller is told that it failed.
    #[cold]
    fn run_orphaning<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T, Code>) -> Result<T, Code> {
        let before = self.count();
        let result = body(self);
        let made = self.count().with(before, usize::saturating_sub);
        self.orphans = self.orphans.with(made, |had, new| had + new);
        result
    }

    fn answered<T>(&mut self, result: Result<T, Code>) -> Result<T, Code> {
        let result = match (result, self.current.verdict) {
            (Ok(_), Verdict::FailsAfter(code)) => {
                self.lose_device_if_sticky(code);
                Err(code)
            }
            (result, _) => result,
        };
        self.push_called(result.as_ref().err().copied().unwrap_or(Code::SUCCESS));
        result
    }

    fn admit(&mut self, thread: HostThread, call: CallName) -> Result<(), Code> {
        self.current = Current { thread, call, stream: None, verdict: Verdict::Plain };
        if thread == HostThread::FUNCTIONS {
            return Err(self.refuse_in_function());
        }
        // A fault that is planned for the call speaks first: drivers are known to answer anything once the device is lost.
        let verdict = self.faults.call(call);
        let refusal = match verdict {
            Verdict::Fails(code) => Some(code),
            _ => self.lost,
        };
        match refusal {
            None => {
                self.current.verdict = verdict;
                Ok(())
            }
            Some(code) => {
                self.lose_device_if_sticky(code);
                if let CallName::Core(call) = call
                    && self.lost.is_some()
                {
                    self.refused_since_lost[call as usize] += 1;
                }
                Err(code)
            }
        }
    }

    fn lose_device_if_sticky(&mut self, code: Code) {
        if code.kind().is_sticky() {
            self.lose_device(code);
        }
    }

    /// Whether a fault has the call under way succeed with nothing.
    #[inline]
    fn gives_null(&self) -> bool {
        self.current.verdict == Verdict::GivesNull
    }

    #[inline]
    fn push(&mut self, event: Event) {
        if self.settings.events || matches!(event, Event::Violation(_)) {
            self.log.push(event);
        }
    }

    /// For what is wrong: told also where events are off.
    #[cold]
    fn push_always(&mut self, event: Event) {
        self.log.push(event);
    }

    fn push_called(&mut self, code: Code) {
        let Current { thread, call, stream, verdict } = self.current;
        match (code, verdict) {
            (Code::SUCCESS, Verdict::Leaves(left)) => self.note_last_error(left),
            _ => self.note_last_error(code),
        }
        self.push(Event::Called { thread, call, stream, code });
    }

    fn push_learned(&mut self, position: Position) {
        if position.number > 0 {
            let Position { id, number, op, .. } = position;
            self.push(Event::Learned { thread: self.current.thread, stream: id, op, number });
        }
    }

    fn violate(&mut self, violation: Violation) {
        self.push(Event::Violation(violation));
    }

    /// The answer of a call that its contract forbids.
    #[cold]
    fn refuse(&mut self, code: Code) -> Code {
        let Current { thread, call, .. } = self.current;
        self.violate(Violation::Refused { thread, call, code });
        code
    }

    /// A handle names nothing any more. One from before a reset is refused and nothing else: nobody was told of that.
    #[cold]
    fn stale(&mut self, handle: u64) -> Code {
        let Current { thread, call, .. } = self.current;
        let is_from_before = self.resets > 0 && !is_of(self.resets, handle);
        if !is_from_before {
            self.violate(Violation::StaleHandle { thread, call, handle });
            if self.profile.has(Quirk::StaleHandleCrashes) {
                self.violate(Violation::ProcessAborts { call });
            }
        }
        self.stale_code()
    }

    fn stale_code(&self) -> Code {
        if self.profile.has(Quirk::StaleHandleIsLostContext) {
            Code::CONTEXT_IS_DESTROYED
        } else {
            Code::INVALID_HANDLE
        }
    }

    fn lenient(&self) -> bool {
        self.profile.has(Quirk::AcceptsInSilence)
    }
}

macro_rules! fresh_ids {
    ($($function:ident $field:ident $id:ident;)*) => {
        impl Engine {$(
            fn $function(&mut self) -> $id {
                let id = $id(self.next.$field);
                self.next.$field += 1;
                id
            }
        )*}
    };
}

fresh_ids! {
    fresh_op op OpId;
    fresh_stream stream StreamId;
    fresh_event event EventId;
    fresh_allocation allocation AllocationId;
    fresh_registration registration RegistrationId;
    fresh_capture capture CaptureId;
    fresh_graph graph GraphId;
    fresh_executable executable ExecutableId;
}

/// One more than the largest number of a [`Call`].
pub(crate) const CALLS: usize = Call::StreamWaitEvent as usize + 1;

// Handle values: far apart by kind, so that one is never taken for another, and no small numbers.
const STREAMS: u64 = 0x51_0000_0000;
const EVENTS: u64 = 0x52_0000_0000;
const MODULES: u64 = 0x53_0000_0000;
const FUNCTIONS: u64 = 0x54_0000_0000;
const GRAPHS: u64 = 0x55_0000_0000;
const EXECUTABLES: u64 = 0x56_0000_0000;

/// Handles lie this far apart. The places in between tell how often the device had been reset when they were made.
const HANDLE_STRIDE: u64 = 64;

fn is_of(resets: u64, handle: u64) -> bool {
    handle % HANDLE_STRIDE == resets % HANDLE_STRIDE
}

/// Whether a handle's value is that of a stream.
pub(crate) fn is_stream(handle: u64) -> bool {
    (STREAMS..EVENTS).contains(&handle)
}

impl Engine {
    fn handle(&self, kind: u64, key: usize) -> u64 {
        kind + (key as u64) * HANDLE_STRIDE + self.resets % HANDLE_STRIDE
    }

    fn handle_key(&self, kind: u64, value: u64) -> Option<usize> {
        let key = value.checked_sub(kind)? / HANDLE_STRIDE;
        (key < 0x400_0000 && is_of(self.resets, value)).then_some(key as usize)
    }
}
