//! The laziest device: a driver for models in which nothing completes by itself.
//!
//! An operation is complete only if somebody was *told* so: a wait for it returned, or a query said idle. All else may
//! still be running. Each operation is checked when it is enqueued: every earlier one that conflicts with it must be
//! among its predecessors, by queue order, by an event, or because it was told complete. That covers every schedule of
//! a device at once; a thread per stream that plays the device multiplies the schedules by thousands and finds no more.
//!
//! Three rules make it see what it must:
//! - a query reads the length of the queue with a relaxed load, so that it answers only for what happens before it.
//!   With a fresher answer no weakening of E1 could be seen;
//! - every call touches one common atomic, or loom's reduction would take calls for independent: the state itself is
//!   in a std mutex, which loom does not see;
//! - waits and queries are ordered among themselves, as those of a real driver are.
//!
//! Kernels say how they use their pointers by their name: `"rw"` reads its first and writes its second.
//!
//! A breach panics with a sentence that opens with the contract line. The core validates and a driver need not, so any
//! breach is the core's, or the model's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc as StdArc, Mutex as StdMutex, MutexGuard as StdGuard, PoisonError};

use super::checker::{ThreadKey, Touch, Witness, this_thread};
use super::tenure::driver::{
    Argument, Call, Capabilities, CaptureMode, CaptureStatus, Coverage, DeviceAddress, Driver, DriverError, ErrorKind,
    GraphDescription, HostAccess, HostFunction, HostPointer, Image, LaunchConfig, Location, Priority, Process,
    Progress, Timing,
};
use super::tenure::sync::Condvar;
use super::tenure::sync::atomic::{AtomicU64, Ordering};
use super::tenure::sync::{Arc, Mutex};
use crate::schedule;

mod recording;

use self::recording::Recording;
pub use self::recording::{Executable, Graph};

/// How far a set of streams has come: operations of stream `index` below `self.0[index]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Clock(Vec<u64>);

/// One use of memory by one operation.
#[derive(Clone, Debug)]
struct Use {
    stream: usize,
    position: u64,
    range: Range<u64>,
    writes: bool,
    /// Made, and so written, by the first who is told that the operation is complete; host accesses read it.
    told: Option<StdArc<Witness>>,
}

#[derive(Debug)]
struct StreamState {
    alive: bool,
    /// Since it was handed to a new holder, only this thread may enqueue (S3).
    holder: Option<ThreadKey>,
    /// Queries say that it is busy, and waits fail the model.
    held: bool,
    /// What each operation comes after, itself included.
    operations: Vec<Clock>,
    now: Clock,
    /// The place of its last operation among those of all streams.
    last: u64,
    /// The capture that it belongs to.
    session: Option<usize>,
    /// It was in a capture that failed: it may only be destroyed (S7).
    spoiled: bool,
}

#[derive(Debug, Default)]
struct EventState {
    alive: bool,
    position: Option<Clock>,
    /// The stream that it was recorded on last: some drivers follow it there.
    stream: Option<usize>,
    /// The capture in which it was recorded last.
    session: Option<usize>,
}

#[derive(Clone, Debug)]
struct Block {
    bytes: u64,
    stream_ordered: bool,
}

#[derive(Clone, Debug)]
struct Registration {
    bytes: u64,
    /// Made by somebody else: ours must never undo it (P10).
    foreign: bool,
    /// The device may only read it (P15).
    read_only: bool,
}

struct State {
    recording: Recording,
    streams: Vec<StreamState>,
    events: Vec<EventState>,
    blocks: BTreeMap<u64, Block>,
    reusable: Vec<(u64, u64)>,
    next_address: u64,
    freed: HashSet<u64>,
    /// Memory of the model itself, which need not be freed.
    given: HashSet<u64>,
    uses: Vec<Use>,
    told: Clock,
    sequence: u64,
    registered: BTreeMap<u64, Registration>,
    /// Host memory that the process itself may only read.
    constant: Vec<Range<u64>>,
    /// What the driver allocated, by its address: how many words.
    allocated: BTreeMap<u64, (HostPointer, usize)>,
    modules_made: u64,
    modules: HashSet<u64>,
    /// Host memory that the model will not let go of while it is registered (P4).
    range_locks: HashMap<u64, StdArc<Witness>>,
    functions: Vec<(usize, u64, HostFunction)>,
    inside_host_function: HashSet<ThreadKey>,
    forbidden: HashMap<ThreadKey, (&'static str, &'static [Call])>,
    failures: HashMap<Call, (ErrorKind, u64)>,
    counts: HashMap<Call, u64>,
    /// After a sticky error every call fails, and these threads know why.
    lost: bool,
    know_of_loss: HashSet<ThreadKey>,
    /// How many streams were made before the device was reset: none of them, nor any memory of then, is known any more.
    forgotten: usize,
    /// All calls are over.
    closed: Option<&'static str>,
    /// Calls of this name return only when the model says so.
    blocked: Option<Call>,
    /// Somebody waits for calls of this name.
    awaited: Option<Call>,
}

/// What the device's handles share.
struct Shared {
    touch: Touch,
    /// Waits and queries are ordered among themselves.
    telling: Mutex<()>,
    /// Register and unregister must be ordered among themselves (P6).
    pinning: Witness,
    state: StdMutex<State>,
    /// What threads of the model tell each other; touched only where a model asks for it.
    flags: Mutex<Flags>,
    flags_changed: Condvar,
    capabilities: Capabilities,
    process: Process,
}

#[derive(Debug, Default)]
struct Flags {
    unblocked: bool,
    awaited: u64,
}

/// A handle of the device; the core owns one, the model another.
#[derive(Clone)]
pub struct Device(Arc<Shared>);

/// An in-order queue.
pub struct Stream {
    index: usize,
    /// How many operations it was given: written after each, read relaxed by queries.
    length: AtomicU64,
}

/// A mark in a stream.
#[derive(Debug)]
pub struct Event(usize);

/// Loaded code.
#[derive(Debug)]
pub struct Module(u64);

/// A kernel: how it uses each pointer, and the code that it is of.
#[derive(Clone, Debug)]
pub struct Function(String, u64);

/// Where code is said to lie: a range that launches of its kernels read.
const CODE: u64 = 1 << 60;

fn code(module: u64) -> Range<u64> {
    let base = CODE + 16 * module;
    base..base + 1
}

/// An error that the model asked for.
#[derive(Clone, Debug)]
pub struct Failure(ErrorKind);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model asked for {:?}", self.0)
    }
}

impl std::error::Error for Failure {}

impl DriverError for Failure {
    fn kind(&self) -> ErrorKind {
        self.0
    }

    fn code(&self) -> i32 {
        -1
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.index)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for (pointer, words) in std::mem::take(&mut self.allocated).into_values() {
            let words = std::ptr::slice_from_raw_parts_mut(pointer.0.cast::<u64>().as_ptr(), words);
            // SAFETY: T1. From `host_alloc`, with this length; the execution is over, and nobody has the device any more.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the laziest device")
    }
}

const HOST: u64 = 1 << 62;
const FIRST_ADDRESS: u64 = 0x1000;

impl Clock {
    fn at(&self, stream: usize) -> u64 {
        self.0.get(stream).copied().unwrap_or(0)
    }

    fn raise(&mut self, stream: usize, position: u64) {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] = self.0[stream].max(position);
    }

    fn join(&mut self, other: &Self) {
        for (stream, position) in other.0.iter().enumerate() {
            self.raise(stream, *position);
        }
    }
}

/// Fails the running execution.
pub fn breach(sentence: impl fmt::Display) -> ! {
    panic!("{sentence}")
}

impl Default for Device {
    fn default() -> Self {
        Self::new(Capabilities::default())
    }
}

/// What a model does with the device beside the driver calls of the core.
impl Device {
    /// A device without streams.
    pub fn new(capabilities: Capabilities) -> Self {
        Self(Arc::new(Shared {
            touch: Touch::new(),
            telling: Mutex::new(()),
            pinning: Witness::new(),
            capabilities,
            process: Process::new(),
            state: StdMutex::new(State {
                recording: Recording::default(),
                streams: Vec::new(),
                events: Vec::new(),
                blocks: BTreeMap::new(),
                reusable: Vec::new(),
                next_address: FIRST_ADDRESS,
                freed: HashSet::new(),
                given: HashSet::new(),
                uses: Vec::new(),
                told: Clock::default(),
                sequence: 0,
                registered: BTreeMap::new(),
                constant: Vec::new(),
                allocated: BTreeMap::new(),
                modules_made: 0,
                modules: HashSet::new(),
                range_locks: HashMap::new(),
                functions: Vec::new(),
                inside_host_function: HashSet::new(),
                forbidden: HashMap::new(),
                failures: HashMap::new(),
                counts: HashMap::new(),
                lost: false,
                know_of_loss: HashSet::new(),
                forgotten: 0,
                closed: None,
                blocked: None,
                awaited: None,
            }),
            flags: Mutex::new(Flags::default()),
            flags_changed: Condvar::new(),
        }))
    }

    /// A stream that was there before the model began.
    pub fn made_stream(&self) -> Stream {
        let mut state = self.state();
        Stream { index: state.add_stream(), length: AtomicU64::new(0) }
    }

    /// As [`memory`](Self::memory), of the kind that is freed in a stream's order.
    pub fn ordered_memory(&self, bytes: u64) -> DeviceAddress {
        DeviceAddress(self.state().allocate(bytes, true))
    }

    /// Other code destroys a stream of its own, whatever is pending there.
    pub fn owner_destroys(&self, stream: &Stream) {
        self.0.touch.touch();
        self.state().streams[stream.index].alive = false;
    }

    /// Device memory that was there before the model began, and outlives it.
    pub fn memory(&self, bytes: u64) -> DeviceAddress {
        let mut state = self.state();
        let address = state.allocate(bytes, false);
        state.given.insert(address);
        DeviceAddress(address)
    }

    /// A launch without the packing of arguments: address, bytes, and whether the kernel writes there.
    pub fn kernel(&self, stream: &Stream, pointers: &[(DeviceAddress, u64, bool)]) -> Result<(), Failure> {
        let ranges = pointers.iter().map(|(address, bytes, writes)| (address.0..address.0 + bytes, *writes));
        self.enqueue(Call::Launch, stream, &ranges.collect::<Vec<_>>())
    }

    /// The place of the stream's last operation among those of all streams.
    pub fn last(&self, stream: &Stream) -> u64 {
        self.state().streams[stream.index].last
    }

    /// How often a call was made.
    pub fn count(&self, call: Call) -> u64 {
        self.state().counts.get(&call).copied().unwrap_or(0)
    }

    /// The next call of this name, after `skipped` more, fails.
    pub fn fail(&self, call: Call, kind: ErrorKind, skipped: u64) {
        self.state().failures.insert(call, (kind, skipped));
    }

    /// Other code resets the device: what was made before is refused from now on, and nobody is told.
    pub fn reset(&self) {
        self.0.touch.touch();
        schedule::step(this_thread(), "reset", None);
        let mut state = self.state();
        state.forgotten = state.streams.len();
    }

    /// Queries say that the stream is busy, until [`let_go`](Self::let_go).
    pub fn hold(&self, stream: &Stream) {
        self.state().streams[stream.index].held = true;
    }

    /// Queries may say that the stream is idle again.
    pub fn let_go(&self, stream: &Stream) {
        self.state().streams[stream.index].held = false;
    }

    /// Calls of this name return only after [`unblock`](Self::unblock).
    pub fn block(&self, call: Call) {
        self.state().blocked = Some(call);
    }

    /// Lets the blocked calls return.
    pub fn unblock(&self) {
        self.0.flags.lock().unblocked = true;
        self.0.flags_changed.notify_all();
    }

    /// From now on [`wait_for`](Self::wait_for) can wait for a call of this name.
    pub fn await_call(&self, call: Call) {
        self.state().awaited = Some(call);
    }

    /// Waits until that call was made so many times.
    pub fn wait_for(&self, times: u64) {
        let mut flags = self.0.flags.lock();
        while flags.awaited < times {
            self.0.flags_changed.wait(&mut flags);
        }
    }

    fn tell_waiters(&self, call: Call) {
        if self.state().awaited == Some(call) {
            self.0.flags.lock().awaited += 1;
            self.0.flags_changed.notify_all();
        }
    }

    /// Host memory of the model ends: it must be registered no more, and unused (P4).
    pub fn host_memory_ends(&self, base: usize, bytes: usize) {
        let state = self.state();
        let range = base as u64..(base + bytes) as u64;
        let mut ours = state.registered.iter().filter(|(_, registration)| !registration.foreign);
        if ours.any(|(base, registration)| overlaps(&(*base..*base + registration.bytes), &range)) {
            breach("P4: memory ended while it was registered");
        }
        let range = HOST + range.start..HOST + range.end;
        state.check_complete(&range, "P4: memory ended while work that uses it may still run");
    }

    /// Memory that work uses goes: all of that work must be known to have completed.
    pub fn unused(&self, address: DeviceAddress, bytes: u64, sentence: &'static str) {
        self.state().check_complete(&(address.0..address.0 + bytes), sentence);
    }

    /// From now on no call is allowed.
    pub fn close(&self, sentence: &'static str) {
        self.state().closed = Some(sentence);
    }

    /// How many streams of the core exist.
    pub fn streams_alive(&self) -> usize {
        self.state().streams.iter().filter(|stream| stream.alive).count()
    }

    /// No work completes any more: queries of every stream say busy.
    pub fn hold_all(&self) {
        self.state().streams.iter_mut().for_each(|stream| stream.held = true);
    }

    /// The stream was handed to the calling thread: it must be idle (S2), and from now on nobody else may put anything
    /// on it (S3).
    pub fn handed_out(&self, stream: &Stream) {
        let mut state = self.state();
        let told = state.told.at(stream.index);
        let state = &mut state.streams[stream.index];
        if told < state.operations.len() as u64 {
            breach("S2: a stream was handed out with work on it that is not known to have completed");
        }
        state.holder = Some(this_thread());
    }

    /// The stream's holder is done: anybody may use it again.
    pub fn given_back(&self, stream: &Stream) {
        self.state().streams[stream.index].holder = None;
    }

    /// The host reads `bytes` of the memory at `address`.
    pub fn host_reads(&self, address: DeviceAddress, bytes: u64) {
        self.host_touches(address.0..address.0 + bytes, false);
    }

    /// The host writes `bytes` of the memory at `address`.
    pub fn host_writes(&self, address: DeviceAddress, bytes: u64) {
        self.host_touches(address.0..address.0 + bytes, true);
    }

    /// The core says that the memory is clean.
    pub fn called_clean(&self, address: DeviceAddress, bytes: u64, up_to: u64) {
        let state = self.state();
        let range = address.0..address.0 + bytes;
        let submitted = state.uses.iter().filter(|used| overlaps(&used.range, &range)).take(up_to as usize);
        for used in submitted {
            if state.told.at(used.stream) <= used.position {
                breach("O2: a buffer was called clean while work submitted before the question may still run");
            }
        }
    }

    /// Runs the host functions of all streams: what comes before each is complete from then on.
    ///
    /// The calling thread plays the driver's own. Returns how many ran.
    pub fn run_host_functions(&self) -> usize {
        self.0.touch.touch();
        let functions = {
            let telling = self.0.telling.lock();
            let functions = std::mem::take(&mut self.state().functions);
            for (stream, position, _) in &functions {
                self.tell(*stream, position + 1);
            }
            drop(telling);
            self.state().inside_host_function.insert(this_thread());
            functions
        };
        let count = functions.len();
        for (_, _, function) in functions {
            schedule::step(this_thread(), "host function runs", None);
            function();
        }
        self.state().inside_host_function.remove(&this_thread());
        count
    }

    /// How many host functions wait to be run.
    pub fn host_functions(&self) -> usize {
        self.state().functions.len()
    }

    /// Runs `body` on the calling thread; any driver call but those of `allowed` is a breach with this sentence.
    pub fn without_calls<R>(&self, sentence: &'static str, allowed: &'static [Call], body: impl FnOnce() -> R) -> R {
        self.state().forbidden.insert(this_thread(), (sentence, allowed));
        let result = body();
        self.state().forbidden.remove(&this_thread());
        result
    }

    /// Registers a range on behalf of other code in the process.
    pub fn register_foreign(&self, base: HostPointer, bytes: u64) {
        let registration = Registration { bytes, foreign: true, read_only: false };
        self.state().registered.insert(base.address() as u64, registration);
    }

    /// Other code of the process ends a registration of its own.
    pub fn unregister_foreign(&self, base: HostPointer) {
        self.0.touch.touch();
        self.state().registered.remove(&(base.address() as u64));
    }

    /// The process itself may only read this memory: registering it to be written fails the model (P15).
    pub fn only_read(&self, base: usize, bytes: usize) {
        self.state().constant.push(base as u64..(base + bytes) as u64);
    }

    /// Host memory goes, or is its owner's again: all work on it must be known to have completed.
    pub fn host_unused(&self, base: usize, bytes: usize, sentence: &'static str) {
        self.unused(DeviceAddress(HOST + base as u64), bytes as u64, sentence);
    }

    /// How many ranges the core has registered.
    pub fn registrations(&self) -> usize {
        self.state().registered.values().filter(|registration| !registration.foreign).count()
    }

    /// At the end of an execution: what must be gone is gone.
    pub fn ends_clean(&self) {
        let state = self.state();
        if state.blocks.keys().any(|address| !state.given.contains(address)) {
            breach("O6: device memory was never freed");
        }
        if state.registered.values().any(|registration| !registration.foreign) {
            breach("P5: a registration was never undone");
        }
        state.check_recording_ended();
    }

    fn host_touches(&self, range: Range<u64>, writes: bool) {
        let witnesses: Vec<_> = {
            let state = self.state();
            let conflicting = state.uses.iter().filter(|used| overlaps(&used.range, &range) && (writes || used.writes));
            conflicting
                .map(|used| {
                    if state.told.at(used.stream) <= used.position {
                        breach(if writes {
                            "O3: the host wrote while work on the memory may still run"
                        } else {
                            "O3: the host read before a write submitted earlier is known to have completed"
                        });
                    }
                    used.told.clone()
                })
                .collect()
        };
        for witness in witnesses.into_iter().flatten() {
            witness.read("E2: the bytes of a completed write are not visible to the host access after it", || {});
        }
    }
}

/// The parts that the calls share.
impl Device {
    fn state(&self) -> StdGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every call begins here: a scheduling point, the count, the rules of who may call, and the failures asked for.
    fn enter(&self, call: Call, place: Option<(&'static str, u64)>) -> Result<StdGuard<'_, State>, Failure> {
        self.0.touch.touch();
        let thread = this_thread();
        schedule::step(thread, call.name(), place);
        let mut state = self.state();
        *state.counts.entry(call).or_default() += 1;
        if state.inside_host_function.contains(&thread) {
            breach(format_args!("R2: a host function called {call}"));
        }
        if let Some((sentence, allowed)) = state.forbidden.get(&thread)
            && !allowed.contains(&call)
        {
            breach(format_args!("{sentence}: {call}"));
        }
        if let Some(sentence) = state.closed {
            breach(format_args!("{sentence}: {call}"));
        }
        let capabilities = &self.0.capabilities;
        let is_of_event = matches!(call, Call::EventQuery | Call::EventSynchronize);
        let protects = if is_of_event { capabilities.relaxed_protects_events } else { capabilities.relaxed_protects };
        state.check_guarded(call, protects);
        if state.blocked == Some(call) {
            drop(state);
            self.blocks();
            state = self.state();
        }
        if state.lost {
            return Err(state.refuse(thread, call));
        }
        match state.failures.get_mut(&call) {
            Some((kind, 0)) => {
                let kind = *kind;
                state.failures.remove(&call);
                if kind.is_sticky() {
                    state.lost = true;
                    return Err(state.refuse(thread, call));
                }
                Err(Failure(kind))
            }
            Some((_, skipped)) => {
                *skipped -= 1;
                Ok(state)
            }
            None => Ok(state),
        }
    }

    fn blocks(&self) {
        let mut flags = self.0.flags.lock();
        while !flags.unblocked {
            self.0.flags_changed.wait(&mut flags);
        }
    }

    fn enter_stream(&self, call: Call, stream: &Stream) -> Result<StdGuard<'_, State>, Failure> {
        let state = self.enter(call, Some(("stream", stream.index as u64)))?;
        if stream.index < state.forgotten {
            return Err(Failure(ErrorKind::InvalidHandle));
        }
        if !state.streams[stream.index].alive {
            breach(format_args!("S6: {call} on a stream that was destroyed"));
        }
        if state.streams[stream.index].spoiled && call != Call::StreamDestroy {
            breach(format_args!("S7: {call} on a stream of a failed capture"));
        }
        state.check_executes(call, stream.index);
        Ok(state)
    }

    /// Puts an operation on a stream, after checking it against all earlier uses.
    fn enqueue(&self, call: Call, stream: &Stream, uses: &[(Range<u64>, bool)]) -> Result<(), Failure> {
        let mut state = self.enter_stream(call, stream)?;
        if let Some(session) = state.streams[stream.index].session {
            state.record(session, stream.index, uses);
            return Ok(());
        }
        let position = state.append(call, stream.index);
        for (range, writes) in uses {
            state.check_alive(range, *writes);
            state.check_order(stream.index, range, *writes);
        }
        for (range, writes) in uses {
            let (range, writes) = (range.clone(), *writes);
            state.uses.push(Use { stream: stream.index, position, range, writes, told: None });
        }
        drop(state);
        self.lengthen(stream, position);
        Ok(())
    }

    fn check_followed(&self, state: &State, event: &Event, call: Call) {
        let stream = state.events[event.0].stream.filter(|_| !self.0.capabilities.events_outlive_streams);
        if stream.is_some_and(|stream| !state.streams[stream].alive) {
            breach(format_args!("S6: {call} of an event follows it to a stream that was destroyed"));
        }
    }

    fn lengthen(&self, stream: &Stream, position: u64) {
        // Relaxed: a query must see only what happens before it. A maximum, since two threads may come out of order.
        stream.length.fetch_max(position + 1, Ordering::Relaxed);
    }

    /// Somebody is told that the first `length` operations of the stream are complete. `telling` is held.
    fn tell(&self, stream: usize, length: u64) {
        let mut state = self.state();
        if length > 0 {
            let before = state.streams[stream].operations[length as usize - 1].clone();
            state.tell_all(&before);
        }
    }

    fn tell_all(&self, before: &Clock) {
        self.state().tell_all(before);
    }

    fn wait_up_to(&self, call: Call, stream: &Stream) -> Result<(), Failure> {
        let state = self.enter_stream(call, stream)?;
        if state.streams[stream.index].held {
            breach("R6: a call waits for work that this model never lets complete");
        }
        if state.streams[stream.index].holder.is_some_and(|holder| holder != this_thread()) {
            breach("S3: a wait for old work waits for the work of the stream's new holder");
        }
        drop(state);
        let length = stream.length.load(Ordering::Relaxed);
        let telling = self.0.telling.lock();
        self.tell(stream.index, length);
        drop(telling);
        Ok(())
    }
}

impl State {
    fn add_stream(&mut self) -> usize {
        let (operations, now) = (Vec::new(), Clock::default());
        let fresh = StreamState {
            alive: true,
            holder: None,
            held: false,
            operations,
            now,
            last: 0,
            session: None,
            spoiled: false,
        };
        self.streams.push(fresh);
        self.streams.len() - 1
    }

    /// The error of every call after a loss. Who knows of it releases nothing, and does not ask.
    fn refuse(&mut self, thread: ThreadKey, call: Call) -> Failure {
        let releases = matches!(
            call,
            Call::Free
                | Call::FreeAsync
                | Call::HostUnregister
                | Call::HostFree
                | Call::EventDestroy
                | Call::StreamDestroy
                | Call::GraphDestroy
                | Call::ExecutableDestroy
                | Call::StreamQuery
                | Call::StreamSynchronize
                | Call::HostIsRegistered
        );
        if releases && self.know_of_loss.contains(&thread) {
            breach(format_args!("R6: a thread that knew that the device is lost called {call}"));
        }
        self.know_of_loss.insert(thread);
        Failure(ErrorKind::DeviceLost)
    }

    fn append(&mut self, call: Call, stream: usize) -> u64 {
        self.sequence += 1;
        let state = &mut self.streams[stream];
        state.last = self.sequence;
        if state.holder.is_some_and(|holder| holder != this_thread()) {
            breach(format_args!("S3: {call} was put on a stream that has a new holder, by another thread"));
        }
        let position = state.operations.len() as u64;
        state.now.raise(stream, position + 1);
        state.operations.push(state.now.clone());
        position
    }

    fn check_alive(&self, range: &Range<u64>, writes: bool) {
        if (HOST >> 1..HOST).contains(&range.start) {
            // An executable.
            return;
        }
        if (CODE..HOST >> 1).contains(&range.start) {
            return self.check_loaded(range);
        }
        if range.start >= HOST {
            let range = range.start - HOST..range.end - HOST;
            let mut registered = self.registered.iter();
            match registered.find(|(base, other)| **base <= range.start && range.end <= *base + other.bytes) {
                None => breach("P1: work was enqueued on host memory that is not registered over its whole length"),
                Some((_, registration)) if writes && registration.read_only => {
                    breach("P15: work writes memory that is registered to be read")
                }
                Some(_) => return,
            }
        }
        if self.freed.contains(&range.start) {
            breach("O6: work was enqueued on memory that had been freed");
        }
        let block = self.blocks.range(..=range.start).next_back();
        if block.is_none_or(|(base, block)| range.end > base + block.bytes) {
            breach("O8: work was enqueued on an address that was never allocated");
        }
    }

    fn check_loaded(&self, code: &Range<u64>) {
        if !self.modules.contains(&((code.start - CODE) / 16)) {
            breach("C4: code was to run that had been unloaded");
        }
    }

    fn check_order(&self, stream: usize, range: &Range<u64>, writes: bool) {
        for earlier in self.uses.iter().filter(|earlier| overlaps(&earlier.range, range)) {
            if !writes && !earlier.writes {
                continue;
            }
            let before = self.streams[stream].now.at(earlier.stream) > earlier.position;
            if !before && self.told.at(earlier.stream) <= earlier.position {
                breach(format_args!(
                    "O1: two conflicting submissions are not ordered: a {} on stream {} after a {} on stream {}",
                    if writes { "write" } else { "read" },
                    stream,
                    if earlier.writes { "write" } else { "read" },
                    earlier.stream,
                ));
            }
        }
    }

    /// All of `before` is known to be complete.
    fn tell_all(&mut self, before: &Clock) {
        self.told.join(before);
        let told = &self.told;
        for used in self.uses.iter_mut().filter(|used| told.at(used.stream) > used.position) {
            used.told.get_or_insert_with(|| StdArc::new(Witness::new()));
        }
    }

    fn check_complete(&self, range: &Range<u64>, sentence: &str) {
        let pending =
            self.uses.iter().any(|used| overlaps(&used.range, range) && self.told.at(used.stream) <= used.position);
        if pending {
            breach(sentence);
        }
    }

    fn allocate(&mut self, bytes: u64, stream_ordered: bool) -> u64 {
        if bytes == 0 {
            breach("O8: an allocation of no bytes reached the driver");
        }
        let again = self.reusable.iter().rposition(|(_, freed)| *freed == bytes);
        let address = match again.filter(|_| !stream_ordered) {
            Some(index) => self.reusable.remove(index).0,
            None => {
                let address = self.next_address;
                self.next_address += bytes.next_multiple_of(256) + 256;
                address
            }
        };
        self.freed.remove(&address);
        self.blocks.insert(address, Block { bytes, stream_ordered });
        address
    }

    fn release(&mut self, address: u64, stream_ordered: bool) -> Range<u64> {
        let Some(block) = self.blocks.remove(&address) else {
            breach("O6: memory was freed twice, or was never allocated");
        };
        if block.stream_ordered != stream_ordered {
            breach("O6: memory was freed by a call of the other kind than the one that allocated it");
        }
        self.freed.insert(address);
        self.check_not_of_a_graph(&(address..address + block.bytes));
        address..address + block.bytes
    }
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn place(pointer: HostPointer) -> u64 {
    HOST + pointer.address() as u64
}

fn end_of_copy(location: Location, bytes: u64) -> Option<Range<u64>> {
    match location {
        Location::Device(address) => Some(address.0..address.0 + bytes),
        Location::Host(pointer) => Some(place(pointer)..place(pointer) + bytes),
    }
}

/// The calls. Each is one step of the state, behind one scheduling point.
// SAFETY: a step is the work: what was submitted is over when the model's device says so, and memory comes from the allocator.
unsafe impl Driver for Device {
    type Stream = Stream;
    type Event = Event;
    type Module = Module;
    type Function = Function;
    type Graph = Graph;
    type Executable = Executable;
    type Error = Failure;

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities.clone()
    }

    fn process(&self) -> Process {
        self.0.process.clone()
    }

    fn stream_create(&self, _priority: Priority) -> Result<Stream, Failure> {
        let index = self.enter(Call::StreamCreate, None)?.add_stream();
        Ok(Stream { index, length: AtomicU64::new(0) })
    }

    unsafe fn stream_destroy(&self, stream: &Stream) -> Result<(), Failure> {
        let mut state = self.enter_stream(Call::StreamDestroy, stream)?;
        if state.told.at(stream.index) < state.streams[stream.index].operations.len() as u64 {
            breach("S6: a stream was destroyed with work on it that may still run");
        }
        state.streams[stream.index].alive = false;
        drop(state);
        self.tell_waiters(Call::StreamDestroy);
        Ok(())
    }

    fn stream_query(&self, stream: &Stream) -> Result<Progress, Failure> {
        let state = self.enter_stream(Call::StreamQuery, stream)?;
        if state.streams[stream.index].held {
            return Ok(Progress::Pending);
        }
        drop(state);
        let length = stream.length.load(Ordering::Relaxed);
        let telling = self.0.telling.lock();
        self.tell(stream.index, length);
        drop(telling);
        Ok(Progress::Complete)
    }

    fn stream_synchronize(&self, stream: &Stream) -> Result<(), Failure> {
        self.wait_up_to(Call::StreamSynchronize, stream)
    }

    fn stream_wait_event(&self, stream: &Stream, event: &Event) -> Result<(), Failure> {
        let mut state = self.enter_stream(Call::StreamWaitEvent, stream)?;
        state.check_event(event, Call::StreamWaitEvent);
        self.check_followed(&state, event, Call::StreamWaitEvent);
        let session = state.events[event.0].session;
        let mark = state.events[event.0].position.clone().map(|position| (session, position));
        state.record_wait(stream.index, mark);
        if state.streams[stream.index].session.is_some() {
            return Ok(());
        }
        if let Some(before) = state.events[event.0].position.clone() {
            state.streams[stream.index].now.join(&before);
        }
        let position = state.append(Call::StreamWaitEvent, stream.index);
        drop(state);
        self.lengthen(stream, position);
        Ok(())
    }

    fn event_create(&self, _timing: Timing) -> Result<Event, Failure> {
        let mut state = self.enter(Call::EventCreate, None)?;
        state.events.push(EventState { alive: true, ..EventState::default() });
        Ok(Event(state.events.len() - 1))
    }

    fn event_destroy(&self, event: Event) -> Result<(), Failure> {
        let mut state = self.enter(Call::EventDestroy, Some(("event", event.0 as u64)))?;
        state.check_event(&event, Call::EventDestroy);
        state.events[event.0].alive = false;
        Ok(())
    }

    fn event_record(&self, event: &Event, stream: &Stream) -> Result<(), Failure> {
        let mut state = self.enter_stream(Call::EventRecord, stream)?;
        state.check_event(event, Call::EventRecord);
        state.events[event.0].stream = Some(stream.index);
        if let Some(session) = state.streams[stream.index].session {
            let end = state.recorded_end(session, stream.index);
            state.events[event.0].position = Some(end);
            state.events[event.0].session = Some(session);
            return Ok(());
        }
        state.events[event.0].session = None;
        let position = state.append(Call::EventRecord, stream.index);
        let now = state.streams[stream.index].now.clone();
        state.events[event.0].position = Some(now);
        drop(state);
        self.lengthen(stream, position);
        Ok(())
    }

    fn event_query(&self, event: &Event) -> Result<Progress, Failure> {
        let state = self.enter(Call::EventQuery, Some(("event", event.0 as u64)))?;
        state.check_event(event, Call::EventQuery);
        self.check_followed(&state, event, Call::EventQuery);
        if state.events[event.0].session.is_some() {
            breach("C1: an event was asked for that a capture recorded");
        }
        let position = state.events[event.0].position.clone().unwrap_or_default();
        if state.is_held(&position) {
            return Ok(Progress::Pending);
        }
        drop(state);
        let telling = self.0.telling.lock();
        self.tell_all(&position);
        drop(telling);
        Ok(Progress::Complete)
    }

    fn event_synchronize(&self, event: &Event) -> Result<(), Failure> {
        let state = self.enter(Call::EventSynchronize, Some(("event", event.0 as u64)))?;
        state.check_event(event, Call::EventSynchronize);
        self.check_followed(&state, event, Call::EventSynchronize);
        if state.events[event.0].session.is_some() {
            breach("C1: an event was asked for that a capture recorded");
        }
        let position = state.events[event.0].position.clone().unwrap_or_default();
        if state.is_held(&position) {
            breach("R6: a call waits for work that this model never lets complete");
        }
        drop(state);
        let telling = self.0.telling.lock();
        self.tell_all(&position);
        drop(telling);
        Ok(())
    }

    fn event_elapsed(&self, start: &Event, end: &Event) -> Result<f32, Failure> {
        let state = self.enter(Call::EventElapsed, None)?;
        for event in [start, end] {
            let position = state.events[event.0].position.clone().unwrap_or_default();
            if (0..state.streams.len()).any(|stream| position.at(stream) > state.told.at(stream)) {
                breach("O2: an event was called complete while its own record may still be pending");
            }
        }
        Ok(0.0)
    }

    fn launch_host_function(&self, stream: &Stream, function: HostFunction) -> Result<(), Failure> {
        let mut state = self.enter_stream(Call::LaunchHostFunction, stream)?;
        let position = state.append(Call::LaunchHostFunction, stream.index);
        state.functions.push((stream.index, position, function));
        drop(state);
        self.lengthen(stream, position);
        Ok(())
    }

    fn malloc(&self, bytes: u64) -> Result<DeviceAddress, Failure> {
        let mut state = self.enter(Call::Malloc, None)?;
        Ok(DeviceAddress(state.allocate(bytes, false)))
    }

    unsafe fn free(&self, address: DeviceAddress) -> Result<(), Failure> {
        let mut state = self.enter(Call::Free, Some(("address", address.0)))?;
        let range = state.release(address.0, false);
        state.check_complete(&range, "O6: memory was freed while work that uses it may still run");
        state.uses.retain(|used| !overlaps(&used.range, &range));
        state.reusable.push((address.0, range.end - range.start));
        drop(state);
        self.tell_waiters(Call::Free);
        Ok(())
    }

    fn malloc_async(&self, stream: &Stream, bytes: u64) -> Result<DeviceAddress, Failure> {
        let mut state = self.enter_stream(Call::MallocAsync, stream)?;
        let address = state.allocate(bytes, true);
        let position = state.append(Call::MallocAsync, stream.index);
        let range = address..address + bytes;
        state.uses.push(Use { stream: stream.index, position, range, writes: true, told: None });
        drop(state);
        self.lengthen(stream, position);
        Ok(DeviceAddress(address))
    }

    unsafe fn free_async(&self, stream: &Stream, address: DeviceAddress) -> Result<(), Failure> {
        let mut state = self.enter_stream(Call::FreeAsync, stream)?;
        let range = state.release(address.0, true);
        let position = state.append(Call::FreeAsync, stream.index);
        state.check_free_order(stream.index, &range);
        state.uses.push(Use { stream: stream.index, position, range, writes: true, told: None });
        drop(state);
        self.lengthen(stream, position);
        Ok(())
    }

    fn host_alloc(&self, bytes: usize) -> Result<HostPointer, Failure> {
        drop(self.enter(Call::HostAlloc, None)?);
        if bytes == 0 {
            breach("O8: an allocation of no bytes reached the driver");
        }
        let words = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
        let count = words.len();
        let pointer = std::ptr::NonNull::from(Box::leak(words)).cast::<u8>();
        let pointer = HostPointer(pointer);
        let registration = Registration { bytes: bytes as u64, foreign: true, read_only: false };
        let mut state = self.state();
        state.registered.insert(pointer.address() as u64, registration);
        state.allocated.insert(pointer.address() as u64, (pointer, count));
        Ok(pointer)
    }

    unsafe fn host_free(&self, pointer: HostPointer) -> Result<(), Failure> {
        let mut state = self.enter(Call::HostFree, None)?;
        let Some(registration) = state.registered.remove(&(pointer.address() as u64)) else {
            breach("O6: page-locked memory was freed twice, or was never allocated");
        };
        let range = place(pointer)..place(pointer) + registration.bytes;
        state.check_complete(&range, "O6: page-locked memory was freed while work that uses it may still run");
        state.uses.retain(|used| !overlaps(&used.range, &range));
        // The memory itself stays until the end of the execution: what is written there too late ends no checker.
        Ok(())
    }

    unsafe fn host_register(&self, base: HostPointer, bytes: usize, access: HostAccess) -> Result<(), Failure> {
        let mut refused = Ok(());
        self.0.pinning.write(PINS_OVERLAP, || refused = self.register(base, bytes, access));
        refused
    }

    unsafe fn host_unregister(&self, base: HostPointer) -> Result<(), Failure> {
        let mut refused = Ok(());
        self.0.pinning.write(PINS_OVERLAP, || refused = self.unregister(base));
        refused
    }

    fn host_device_address(&self, pointer: HostPointer) -> Result<DeviceAddress, Failure> {
        let mut state = self.enter(Call::HostDeviceAddress, None)?;
        let lock = state.range_lock(pointer);
        if !state.is_registered(pointer) {
            breach("P1: the device address of memory that is not registered was asked for");
        }
        drop(state);
        lock.read(CALL_BESIDE_UNREGISTER, || {});
        Ok(DeviceAddress(place(pointer)))
    }

    fn host_is_registered(&self, pointer: HostPointer) -> Result<bool, Failure> {
        let mut state = self.enter(Call::HostIsRegistered, None)?;
        let lock = state.range_lock(pointer);
        let registered = state.is_registered(pointer);
        drop(state);
        lock.read(CALL_BESIDE_UNREGISTER, || {});
        Ok(registered)
    }

    fn host_coverage(&self, base: HostPointer, bytes: usize) -> Result<Coverage, Failure> {
        let mut state = self.enter(Call::HostIsRegistered, None)?;
        let lock = state.range_lock(base);
        let coverage = state.coverage(base.address() as u64, bytes as u64);
        drop(state);
        lock.read(CALL_BESIDE_UNREGISTER, || {});
        Ok(coverage)
    }

    fn host_accessed(&self, start: HostPointer, bytes: usize, access: HostAccess) {
        let range = place(start)..place(start) + bytes as u64;
        self.host_touches(range, access == HostAccess::ReadWrite);
    }

    unsafe fn copy(&self, stream: &Stream, to: Location, from: Location, bytes: u64) -> Result<(), Failure> {
        let uses = [(end_of_copy(to, bytes), true), (end_of_copy(from, bytes), false)];
        let state = self.state();
        let uses: Vec<_> = uses
            .into_iter()
            .filter_map(|(range, writes)| range.map(|range| (range, writes)))
            .filter(|(range, _)| range.start < HOST || state.touches_registered(range))
            .collect();
        drop(state);
        self.enqueue(Call::Copy, stream, &uses)
    }

    unsafe fn fill(&self, stream: &Stream, at: DeviceAddress, _value: u8, bytes: u64) -> Result<(), Failure> {
        self.enqueue(Call::Fill, stream, &[(at.0..at.0 + bytes, true)])
    }

    fn module_load(&self, _image: Image<'_>) -> Result<Module, Failure> {
        let mut state = self.enter(Call::ModuleLoad, None)?;
        let module = state.modules_made;
        state.modules_made += 1;
        state.modules.insert(module);
        Ok(Module(module))
    }

    unsafe fn module_unload(&self, module: Module) -> Result<(), Failure> {
        let mut state = self.enter(Call::ModuleUnload, None)?;
        if !state.modules.remove(&module.0) {
            breach("C4: code was unloaded twice");
        }
        state.check_not_of_a_graph(&code(module.0));
        state.check_complete(&code(module.0), "C4: code was unloaded while work that runs it may still run");
        Ok(())
    }

    fn function(&self, module: &Module, name: &str) -> Result<Function, Failure> {
        drop(self.enter(Call::Function, None)?);
        Ok(Function(name.to_owned(), module.0))
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        function: &Function,
        _config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Result<(), Failure> {
        let pointers = arguments.iter().filter_map(|argument| match argument {
            Argument::Pointer { address, bytes } => Some(address.0..address.0 + bytes),
            Argument::Scalar { .. } => None,
        });
        let writes = function.0.chars().map(|letter| letter == 'w');
        let uses = pointers.filter(|range| !range.is_empty()).zip(writes);
        let uses: Vec<_> = uses.chain([(code(function.1), false)]).collect();
        self.enqueue(Call::Launch, stream, &uses)
    }

    fn capture_begin(&self, stream: &Stream, mode: CaptureMode) -> Result<(), Failure> {
        self.begin_capture(stream, mode)
    }

    fn capture_end(&self, stream: &Stream) -> Result<Graph, Failure> {
        self.end_capture(stream)
    }

    fn capture_status(&self, stream: &Stream) -> Result<CaptureStatus, Failure> {
        let state = self.enter_stream(Call::CaptureStatus, stream)?;
        let captures = state.streams[stream.index].session.is_some();
        Ok(if captures { CaptureStatus::Active } else { CaptureStatus::None })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, Failure> {
        Ok(self.exchange_mode(mode))
    }

    fn graph_instantiate(&self, graph: &Graph) -> Result<Executable, Failure> {
        self.instantiate(graph)
    }

    fn graph_update(&self, executable: &Executable, graph: &Graph) -> Result<(), Failure> {
        self.update(executable, graph)
    }

    unsafe fn graph_launch(&self, executable: &Executable, stream: &Stream) -> Result<(), Failure> {
        self.launch_graph(executable, stream)
    }

    fn graph_describe(&self, _graph: &Graph) -> Result<GraphDescription, Failure> {
        drop(self.enter(Call::GraphDescribe, None)?);
        Ok(GraphDescription::default())
    }

    fn graph_destroy(&self, _graph: Graph) -> Result<(), Failure> {
        drop(self.enter(Call::GraphDestroy, None)?);
        Ok(())
    }

    fn executable_destroy(&self, executable: Executable) -> Result<(), Failure> {
        self.destroy_executable(&executable)
    }
}

const PINS_OVERLAP: &str = "P6: register and unregister calls are not ordered one after the other";
const CALL_BESIDE_UNREGISTER: &str = "P6: a driver call about a range is not ordered with its unregister";

impl Device {
    fn register(&self, base: HostPointer, bytes: usize, access: HostAccess) -> Result<(), Failure> {
        let mut state = self.enter(Call::HostRegister, None)?;
        if bytes == 0 {
            breach("O8: a registration of no bytes reached the driver");
        }
        let range = base.address() as u64..(base.address() + bytes) as u64;
        let lock = state.range_lock(base);
        let taken = state.registered.iter().find(|(base, other)| overlaps(&(**base..*base + other.bytes), &range));
        match taken.map(|(_, registration)| registration.foreign) {
            Some(true) => return Err(Failure(ErrorKind::AlreadyRegistered)),
            Some(false) => breach("P1: a range was registered that overlaps one of our registrations"),
            None => {}
        }
        let read_only = access == HostAccess::Read;
        if !read_only && state.constant.iter().any(|constant| overlaps(constant, &range)) {
            breach("P15: memory that may only be read was registered to be written");
        }
        state.registered.insert(range.start, Registration { bytes: bytes as u64, foreign: false, read_only });
        drop(state);
        lock.write(CALL_BESIDE_UNREGISTER, || self.0.touch.touch());
        Ok(())
    }

    fn unregister(&self, base: HostPointer) -> Result<(), Failure> {
        let mut state = self.enter(Call::HostUnregister, None)?;
        let lock = state.range_lock(base);
        match state.registered.remove(&(base.address() as u64)) {
            None => breach("P5: a range was unregistered that is not registered"),
            Some(Registration { foreign: true, .. }) => breach("P10: a registration of others was undone"),
            Some(Registration { bytes, .. }) => {
                let range = place(base)..place(base) + bytes;
                state.check_not_of_a_graph(&range);
                state.check_complete(&range, "P3: a range was unregistered while work that uses it may still run");
                state.uses.retain(|used| !overlaps(&used.range, &range));
            }
        }
        drop(state);
        lock.write(CALL_BESIDE_UNREGISTER, || self.0.touch.touch());
        Ok(())
    }
}

impl State {
    fn range_lock(&mut self, pointer: HostPointer) -> StdArc<Witness> {
        let address = pointer.address() as u64;
        let range = self.registered.range(..=address).next_back();
        let base = range.filter(|(base, range)| address < *base + range.bytes).map_or(address, |(base, _)| *base);
        self.range_locks.entry(base).or_insert_with(|| StdArc::new(Witness::new())).clone()
    }

    fn is_registered(&self, pointer: HostPointer) -> bool {
        let address = pointer.address() as u64;
        self.registered.range(..=address).next_back().is_some_and(|(base, range)| address < *base + range.bytes)
    }

    fn coverage(&self, start: u64, bytes: u64) -> Coverage {
        let wanted = start..start + bytes;
        let mut overlapping = self.registered.iter().map(|(base, other)| *base..*base + other.bytes);
        let found = overlapping.find(|range| overlaps(range, &wanted));
        match found {
            None => Coverage::None,
            Some(range) if range.start <= wanted.start && wanted.end <= range.end => Coverage::Whole,
            Some(_) => Coverage::Part,
        }
    }

    fn touches_registered(&self, range: &Range<u64>) -> bool {
        let range = range.start - HOST..range.end - HOST;
        self.registered.iter().any(|(base, other)| overlaps(&(*base..*base + other.bytes), &range))
    }

    fn check_event(&self, event: &Event, call: Call) {
        if !self.events[event.0].alive {
            breach(format_args!("S6: {call} of an event that was destroyed"));
        }
    }

    fn is_held(&self, position: &Clock) -> bool {
        (0..self.streams.len()).any(|stream| self.streams[stream].held && position.at(stream) > self.told.at(stream))
    }

    fn check_free_order(&self, stream: usize, range: &Range<u64>) {
        for earlier in self.uses.iter().filter(|earlier| overlaps(&earlier.range, range)) {
            let before = self.streams[stream].now.at(earlier.stream) > earlier.position;
            if !before && self.told.at(earlier.stream) <= earlier.position {
                breach("O6: a free in the order of a stream is not ordered after all work on the memory");
            }
        }
    }
}
