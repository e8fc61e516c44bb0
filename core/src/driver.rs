//! What a GPU backend owes: [`Driver`], one method per driver call.
//!
//! The core validates; a driver does not. A driver tells the core what happened and nothing else: it keeps no state
//! about buffers, waits for nothing that the call does not wait for, and never calls back into the core except through
//! the [`HostFunction`] it was given.
//!
//! # The order of device time
//! A *submission* on a stream is work that [`launch`](Driver::launch), a copy, a fill, an allocation or a free on
//! that stream, a wait for an event, a host function or a graph launch put there. Submissions of one stream run one
//! after the other, in the order in which the calls returned. Submissions of two streams are unordered, except
//! through an event: a record on stream A that happens before a wait on stream B orders everything that A held at the
//! record before everything that B gets after the wait.
//!
//! # Handles
//! A handle is made by the driver alone. Streams are destroyed through a reference by an `unsafe` call, since the core
//! shares them; all others are destroyed by value, so that no safe code can use one after its end.
//!
//! # The last error
//! Libraries keep the last error of each thread until somebody asks for it. Whoever asks next takes it for that of a call
//! of its own, so a call of this trait that fails leaves none behind: its error is in what it returns. "Not ready" is
//! no error. [`Driver::last_error`] shows it.
//!
//! # Threads
//! Every method may be called from any thread at any time, except from inside a host function (R2). A driver belongs to
//! one device: each call acts on that device whatever the calling thread has made current, and leaves that as it was.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

pub use crate::address::{DeviceAddress, HostAccess, HostPointer};
pub use crate::process::Process;

mod probe;

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// Device memory, or host memory through its device address.
    Device(DeviceAddress),
    /// Host memory, registered or not.
    Host(HostPointer),
}

/// One argument of a kernel, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Argument {
    /// A pointer to `bytes` bytes of device-accessible memory.
    Pointer {
        /// Where it begins.
        address: DeviceAddress,
        /// How long it is. Real kernels do not see this; the simulator makes a slice of it.
        bytes: u64,
    },
    /// A value of up to 16 bytes, in memory order.
    Scalar {
        /// The value, padded with zero bytes.
        words: [u64; 2],
        /// How many bytes of `words` count.
        bytes: u64,
    },
}

/// How many threads a launch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in x, y, z; each at least 1.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z; each at least 1.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// A one-dimensional launch of at least `elements` threads, in blocks of 256.
    ///
    /// # Examples
    /// ```
    /// let config = tenure::LaunchConfig::linear(1000);
    /// assert_eq!((config.grid[0], config.block[0]), (4, 256));
    /// ```
    pub fn linear(elements: usize) -> Self {
        Self::linear_blocks(elements, 256)
    }

    /// A one-dimensional launch of at least `elements` threads, in blocks of `block` (1 to 1024).
    ///
    /// No elements still make one block, since drivers refuse an empty grid.
    pub fn linear_blocks(elements: usize, block: u32) -> Self {
        let block = block.max(1);
        let blocks = elements.div_ceil(block as usize).max(1);
        Self { grid: [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], block: [block, 1, 1], shared_bytes: 0 }
    }

    /// A two-dimensional launch of at least `width` times `height` threads, in blocks of 16 by 16.
    pub fn planar(width: usize, height: usize) -> Self {
        let blocks = |extent: usize| u32::try_from(extent.div_ceil(16).max(1)).unwrap_or(u32::MAX);
        Self { grid: [blocks(width), blocks(height), 1], block: [16, 16, 1], shared_bytes: 0 }
    }

    /// The same launch with `bytes` of dynamic shared memory a block.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(tenure::LaunchConfig::linear(1000).shared_bytes(4096).shared_bytes, 4096);
    /// ```
    #[must_use]
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }
}

/// Where a module's code comes from.
#[derive(Clone, Copy, Debug)]
pub enum Image<'a> {
    /// Source text that the backend compiles (hiprtc). The simulator ignores it: its kernels are Rust closures.
    Source(&'a str),
    /// A compiled code object.
    Code(&'a [u8]),
}

/// Something that runs on the host when a stream gets there.
///
/// It only signals (R2): no driver call, no lock of the core, no unwinding. Each execution of the submission calls it
/// once; a graph that holds it calls it at every launch.
pub type HostFunction = Arc<dyn Fn() + Send + Sync>;

/// The answer of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// All work that the call asked about has completed.
    Complete,
    /// Some has not.
    Pending,
}

/// A stream's place among the others, clamped by the driver to what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Served last.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Served first.
    High,
}

/// Whether an event keeps the time at which it completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Order only: cheaper.
    Disabled,
    /// With a time stamp for [`event_elapsed`](Driver::event_elapsed).
    Enabled,
}

/// What a capture forbids to other code, and what a thread accepts to be forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// Calls that could break the capture are refused on every thread whose own mode is global.
    Global,
    /// They are refused on the capturing thread.
    ThreadLocal,
    /// They are allowed.
    Relaxed,
}

/// Whether a stream captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CaptureStatus {
    /// It executes what it is given.
    None,
    /// It records what it is given.
    Active,
    /// Its capture is broken and waits to be ended.
    Invalidated,
}

/// What of a range of host memory is registered, by anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Not a byte.
    None,
    /// All of it, by one registration.
    Whole,
    /// A part of it; or all, by several registrations.
    Part,
}

/// A graph as text and drawings need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphDescription {
    /// A word for each node: `kernel`, `copy`, `fill`, `host`, `malloc`, `free`, `event_wait`, `event_record`, `empty`.
    pub nodes: Vec<String>,
    /// Pairs of indices into `nodes`: the first before the second.
    pub edges: Vec<(usize, usize)>,
}

/// What a backend can do, and how it departs from the rules above. Read once, when a runtime starts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// [`malloc_async`](Driver::malloc_async) and [`free_async`](Driver::free_async) exist. Otherwise the core uses
    /// the plain ones.
    pub stream_ordered_memory: bool,
    /// Host functions exist and run. Otherwise completion is found by asking.
    pub host_functions: bool,
    /// A guarded call made by a thread in relaxed mode leaves the captures of all others intact. Otherwise the core
    /// holds such calls back while it knows of a capture (C1, C6).
    pub relaxed_protects: bool,
    /// As `relaxed_protects`, for queries and waits on events. Otherwise the core asks no event, and streams in its place.
    pub relaxed_protects_events: bool,
    /// An event may be asked, waited for and given back after the stream was destroyed that it was recorded on. Otherwise an
    /// adopted stream is followed by a stream of ours, which costs one more call a submission.
    pub events_outlive_streams: bool,
    /// Registering memory that is registered already, in whole or in part, fails. Otherwise the core asks first.
    pub refuses_overlap: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            stream_ordered_memory: true,
            host_functions: true,
            relaxed_protects: true,
            relaxed_protects_events: true,
            events_outlive_streams: false,
            refuses_overlap: true,
        }
    }
}

/// What went wrong in a driver, in words that all backends share. The code itself stays in the error (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The memory, or a part of it, is registered already (712).
    AlreadyRegistered,
    /// The event belongs to a capture and cannot be asked or waited for (907).
    CapturedEvent,
    /// The capture had been broken by an earlier call (901).
    CaptureInvalidated,
    /// Two captures would have become one (902).
    CaptureMerge,
    /// A capture would have depended on work outside of it (905), or a call on a blocking stream on it (906).
    CaptureIsolation,
    /// A capture was ended on a stream that did not begin it (903).
    CaptureUnmatched,
    /// A forked stream was not joined before the end (904).
    CaptureUnjoined,
    /// The call is refused while a capture is going on (900).
    CaptureUnsupported,
    /// A capture was ended by a thread that did not begin it (908).
    CaptureWrongThread,
    /// The device, or its context, is beyond use: a fault, an abort, a reset. It stays so.
    DeviceLost,
    /// The backend has been shut down, as at the end of a process.
    DriverGone,
    /// A graph could not be updated in place (910).
    GraphUpdateRefused,
    /// The stream or event is in a state that does not allow the call (401).
    IllegalState,
    /// An argument was refused (1).
    InvalidValue,
    /// A handle was refused (400, 709).
    InvalidHandle,
    /// No device can be used.
    NoDevice,
    /// The name was not found (500).
    NotFound,
    /// The call is not allowed here: inside a host function, say (800).
    NotPermitted,
    /// The memory is not registered (713).
    NotRegistered,
    /// The backend does not have this call (801).
    NotSupported,
    /// Memory ran out (2).
    OutOfMemory,
    /// A code that has no word here.
    Unknown,
}

impl ErrorKind {
    /// Whether the error stays: every later call on the device fails as well.
    pub fn is_sticky(self) -> bool {
        matches!(self, Self::DeviceLost | Self::DriverGone)
    }
}

/// The error of a driver: a kind that all share and the code that it had.
pub trait DriverError: StdError + Clone + Send + Sync + 'static {
    /// The shared word for it.
    fn kind(&self) -> ErrorKind;
    /// The backend's own number.
    fn code(&self) -> i32;
}

/// The calls of a driver, by name: for errors (R7), counts, faults and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each is the method of the same name")]
pub enum Call {
    CaptureBegin,
    CaptureEnd,
    CaptureStatus,
    Copy,
    EventCreate,
    EventDestroy,
    EventElapsed,
    EventQuery,
    EventRecord,
    EventSynchronize,
    ExchangeCaptureMode,
    ExecutableDestroy,
    Fill,
    Free,
    FreeAsync,
    Function,
    GraphDescribe,
    GraphDestroy,
    GraphInstantiate,
    GraphLaunch,
    GraphUpdate,
    HostAlloc,
    HostDeviceAddress,
    HostFree,
    HostIsRegistered,
    HostRegister,
    HostUnregister,
    Launch,
    LaunchHostFunction,
    Malloc,
    MallocAsync,
    ModuleLoad,
    ModuleUnload,
    StreamCreate,
    StreamDestroy,
    StreamQuery,
    StreamSynchronize,
    StreamWaitEvent,
}

impl Call {
    /// The name of the method, as in `stream_query`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CaptureBegin => "capture_begin",
            Self::CaptureEnd => "capture_end",
            Self::CaptureStatus => "capture_status",
            Self::Copy => "copy",
            Self::EventCreate => "event_create",
            Self::EventDestroy => "event_destroy",
            Self::EventElapsed => "event_elapsed",
            Self::EventQuery => "event_query",
            Self::EventRecord => "event_record",
            Self::EventSynchronize => "event_synchronize",
            Self::ExchangeCaptureMode => "exchange_capture_mode",
            Self::ExecutableDestroy => "executable_destroy",
            Self::Fill => "fill",
            Self::Free => "free",
            Self::FreeAsync => "free_async",
            Self::Function => "function",
            Self::GraphDescribe => "graph_describe",
            Self::GraphDestroy => "graph_destroy",
            Self::GraphInstantiate => "graph_instantiate",
            Self::GraphLaunch => "graph_launch",
            Self::GraphUpdate => "graph_update",
            Self::HostAlloc => "host_alloc",
            Self::HostDeviceAddress => "host_device_address",
            Self::HostFree => "host_free",
            Self::HostIsRegistered => "host_is_registered",
            Self::HostRegister => "host_register",
            Self::HostUnregister => "host_unregister",
            Self::Launch => "launch",
            Self::LaunchHostFunction => "launch_host_function",
            Self::Malloc => "malloc",
            Self::MallocAsync => "malloc_async",
            Self::ModuleLoad => "module_load",
            Self::ModuleUnload => "module_unload",
            Self::StreamCreate => "stream_create",
            Self::StreamDestroy => "stream_destroy",
            Self::StreamQuery => "stream_query",
            Self::StreamSynchronize => "stream_synchronize",
            Self::StreamWaitEvent => "stream_wait_event",
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A GPU backend. See the module for what holds of every method.
///
/// "Guarded" below means: a strict backend refuses the call, and breaks a capture, while somebody captures in a mode
/// that forbids it. The core makes guarded calls with the thread's mode exchanged to [`CaptureMode::Relaxed`] (C1).
///
/// # Safety
/// The core reads and writes memory by what a driver says, and lets memory go when a driver says that work is over. An
/// implementation promises, whatever its calls answer:
/// - memory: what [`host_alloc`](Self::host_alloc) returns is valid for reads and writes of as many bytes, aligned as it says,
///   and nobody else's until it is freed; a device address that a call returns lies in memory of as many bytes, and in no other
///   live allocation;
/// - completion: a query that answers [`Progress::Complete`], and a synchronize that returns `Ok`, happen after all that was
///   submitted there before them has run, with all its reads and writes of memory done;
/// - order: submissions run as the module says, so that work behind an event begins after what was recorded there has ended;
/// - ends: memory that the core frees, unregisters or gives back is not touched any more, and a host function runs at most once;
/// - failures: a call that fails may have had its effect, but nothing beyond it;
/// - [`process`](Self::process) and [`capabilities`](Self::capabilities) give equal values each time.
///
/// A driver around a driver keeps all that by passing each call on, once, with what it was given.
pub unsafe trait Driver: Send + Sync + Sized + 'static {
    /// An in-order queue. Its raw value may be handed out again after it was destroyed (O7).
    type Stream: fmt::Debug + Send + Sync + 'static;
    /// A mark in a stream.
    type Event: fmt::Debug + Send + Sync + 'static;
    /// Loaded code.
    type Module: fmt::Debug + Send + Sync + 'static;
    /// A kernel of a module.
    type Function: fmt::Debug + Send + Sync + 'static;
    /// A recorded graph.
    type Graph: fmt::Debug + Send + Sync + 'static;
    /// A graph made ready to launch.
    type Executable: fmt::Debug + Send + Sync + 'static;
    /// The backend's error.
    type Error: DriverError;

    /// What this backend can do.
    fn capabilities(&self) -> Capabilities;

    /// The error that the library keeps for the calling thread, as its own number: 0 is none. It stays. `None` where the
    /// backend keeps no such thing, or does not show it.
    fn last_error(&self) -> Option<i32> {
        None
    }

    /// Whose registrations of host memory this driver's are: those of the process that this code runs in. Runtimes whose
    /// drivers give an equal process share what is registered (P13).
    ///
    /// A simulated device, which has registrations of its own, gives a process of its own, the same each time. A driver
    /// around a driver gives that one's.
    fn process(&self) -> Process {
        Process::this()
    }

    // --- streams

    /// Makes a stream that does not synchronize with the default one. Not guarded; does not wait.
    fn stream_create(&self, priority: Priority) -> Result<Self::Stream, Self::Error>;

    /// Gives a stream back. May wait for its work (HIP), so only the worker and shutdown call it.
    ///
    /// # Safety
    /// - The handle is not used again.
    /// - Nobody queries, waits for or synchronizes with an event whose last record was on this stream, unless
    ///   [`Capabilities::events_outlive_streams`].
    unsafe fn stream_destroy(&self, stream: &Self::Stream) -> Result<(), Self::Error>;

    /// Whether every submission that was accepted before this call has completed. Guarded; never wait-free on a
    /// capturing stream: it breaks that capture in every mode.
    fn stream_query(&self, stream: &Self::Stream) -> Result<Progress, Self::Error>;

    /// Waits for every submission that was accepted before this call. Guarded, as for the query.
    fn stream_synchronize(&self, stream: &Self::Stream) -> Result<(), Self::Error>;

    /// Orders all later submissions of `stream` after the position that `event` was last recorded at. The position is
    /// taken at this call: the event may be recorded anew at once. An event never recorded orders nothing.
    fn stream_wait_event(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), Self::Error>;

    // --- events

    /// Makes an event. Not guarded.
    fn event_create(&self, timing: Timing) -> Result<Self::Event, Self::Error>;

    /// Gives an event back; what already waits for it still does.
    fn event_destroy(&self, event: Self::Event) -> Result<(), Self::Error>;

    /// Moves the event to the present end of `stream`.
    fn event_record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<(), Self::Error>;

    /// Whether the work before the last record has completed. Guarded.
    fn event_query(&self, event: &Self::Event) -> Result<Progress, Self::Error>;

    /// Waits for the work before the last record. Guarded.
    fn event_synchronize(&self, event: &Self::Event) -> Result<(), Self::Error>;

    /// The device time between two completed timed events, in milliseconds.
    fn event_elapsed(&self, start: &Self::Event, end: &Self::Event) -> Result<f32, Self::Error>;

    // --- host functions

    /// Calls `function` once all earlier submissions of `stream` have completed; later ones wait until it returns.
    /// After a fault it may never be called. A failed call does not call it.
    fn launch_host_function(&self, stream: &Self::Stream, function: HostFunction) -> Result<(), Self::Error>;

    // --- memory

    /// Allocates `bytes` (at least 1) of device memory, at a multiple of 256. Guarded; may wait for the device.
    fn malloc(&self, bytes: u64) -> Result<DeviceAddress, Self::Error>;

    /// Gives memory of [`malloc`](Self::malloc) back. Guarded; may wait for the whole device.
    ///
    /// # Safety
    /// - `address` came from `malloc` and was not freed.
    /// - All work that uses it has completed.
    unsafe fn free(&self, address: DeviceAddress) -> Result<(), Self::Error>;

    /// Allocates `bytes` (at least 1) of device memory in the order of `stream`, at a multiple of 256: later submissions
    /// there may use it, and others that are ordered after them. Guarded where another stream captures.
    fn malloc_async(&self, stream: &Self::Stream, bytes: u64) -> Result<DeviceAddress, Self::Error>;

    /// Gives memory of [`malloc_async`](Self::malloc_async) back in the order of `stream`. Guarded.
    ///
    /// # Safety
    /// - `address` came from `malloc_async` and was not freed.
    /// - All work that uses it has completed or is ordered before this call in the order of `stream`.
    unsafe fn free_async(&self, stream: &Self::Stream, address: DeviceAddress) -> Result<(), Self::Error>;

    /// Allocates `bytes` (at least 1) of page-locked host memory, aligned to 256 bytes or more. Guarded; may wait. What a
    /// call that fails has allocated is lost.
    fn host_alloc(&self, bytes: usize) -> Result<HostPointer, Self::Error>;

    /// Gives memory of [`host_alloc`](Self::host_alloc) back. Guarded; may wait for the whole device. After a call that
    /// fails the memory is neither used nor freed again, until the driver hands it out anew (P9).
    ///
    /// # Safety
    /// - `pointer` came from `host_alloc` and was not freed.
    /// - All work that uses it has completed, and no reference into it lives.
    unsafe fn host_free(&self, pointer: HostPointer) -> Result<(), Self::Error>;

    /// Registers (page-locks) `bytes` (at least 1) of host memory. Guarded; never concurrent with another register or
    /// unregister of the process (P6: the core's pin driver lock).
    ///
    /// A call that fails may have registered the range all the same. So the core asks afterwards; where the range is
    /// registered and a stranger could have done that, it undoes nothing and keeps what keeps the memory (P4, P10).
    ///
    /// # Safety
    /// - The range is mapped, and stays so until it was unregistered.
    unsafe fn host_register(&self, base: HostPointer, bytes: usize, access: HostAccess) -> Result<(), Self::Error>;

    /// Undoes one registration, named by its base. Guarded; waits for the whole device on real backends, so only the
    /// worker and explicit frees call it.
    ///
    /// A call that fails may have had its effect: the core asks, and keeps range and memory unless nothing of the range is
    /// registered any more (P9).
    ///
    /// # Safety
    /// - `base` is the base of a live registration made by this driver.
    /// - All work that uses the range has completed.
    unsafe fn host_unregister(&self, base: HostPointer) -> Result<(), Self::Error>;

    /// The device's address of a registered byte. A failure leaves nothing; an address of zero counts as one.
    fn host_device_address(&self, pointer: HostPointer) -> Result<DeviceAddress, Self::Error>;

    /// Whether the byte at `pointer` is registered, by anybody. Not guarded. A driver that does not know the memory may
    /// also fail with [`ErrorKind::InvalidValue`]; any other error says nothing, and leaves nothing.
    fn host_is_registered(&self, pointer: HostPointer) -> Result<bool, Self::Error>;

    /// What of `bytes` (at least 1) of host memory is registered, by anybody. Not guarded.
    ///
    /// For drivers that have no such question, this asks for the first byte of each page and for the last byte, and whether
    /// the device's addresses of them are in one line. It does not see a border of two registrations over which they are.
    fn host_coverage(&self, base: HostPointer, bytes: usize) -> Result<Coverage, Self::Error> {
        probe::probe(self, base, bytes)
    }

    /// Tells a driver that watches that the host is about to touch memory which the device may use as well. No driver
    /// call: real backends do nothing; the simulator sees races with it (O3).
    fn host_accessed(&self, start: HostPointer, bytes: usize, access: HostAccess) {
        let _ = (start, bytes, access);
    }

    // --- copies and fills

    /// Copies `bytes` in the order of `stream`. From or to host memory that is not registered the call may wait.
    ///
    /// # Safety
    /// - Both ranges are valid for `bytes` until the copy has completed, and may be accessed so.
    unsafe fn copy(&self, stream: &Self::Stream, to: Location, from: Location, bytes: u64) -> Result<(), Self::Error>;

    /// Sets `bytes` bytes to `value` in the order of `stream`.
    ///
    /// # Safety
    /// - The range is valid for `bytes` until the fill has completed.
    unsafe fn fill(&self, stream: &Self::Stream, at: DeviceAddress, value: u8, bytes: u64) -> Result<(), Self::Error>;

    // --- kernels

    /// Loads code. May compile, and may wait for the device; not from inside a capture.
    fn module_load(&self, image: Image<'_>) -> Result<Self::Module, Self::Error>;

    /// Unloads code.
    ///
    /// # Safety
    /// - No work that runs its functions is pending, and none is launched again.
    unsafe fn module_unload(&self, module: Self::Module) -> Result<(), Self::Error>;

    /// Finds a kernel by name.
    fn function(&self, module: &Self::Module, name: &str) -> Result<Self::Function, Self::Error>;

    /// Starts a kernel in the order of `stream`. Blocks while the stream's queue is full. Copies `arguments` before it
    /// returns.
    ///
    /// # Safety
    /// - The arguments are what the kernel expects, and every pointer stays valid until the kernel has completed.
    unsafe fn launch(
        &self,
        stream: &Self::Stream,
        function: &Self::Function,
        config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Result<(), Self::Error>;

    // --- capture

    /// Makes `stream` record what it is given, in `mode`.
    fn capture_begin(&self, stream: &Self::Stream, mode: CaptureMode) -> Result<(), Self::Error>;

    /// Ends the capture that `stream` began and gives the graph. A broken capture ends with an error.
    fn capture_end(&self, stream: &Self::Stream) -> Result<Self::Graph, Self::Error>;

    /// Whether the stream captures. Not guarded; breaks nothing.
    fn capture_status(&self, stream: &Self::Stream) -> Result<CaptureStatus, Self::Error>;

    /// Sets the calling thread's mode and returns the one before. Never fails on a usable device.
    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, Self::Error>;

    // --- graphs

    /// Makes a graph ready to launch. The graph may be destroyed afterwards.
    fn graph_instantiate(&self, graph: &Self::Graph) -> Result<Self::Executable, Self::Error>;

    /// Replaces what later launches of `executable` do. Refused, with the old one left as it was, where the shape
    /// differs.
    fn graph_update(&self, executable: &Self::Executable, graph: &Self::Graph) -> Result<(), Self::Error>;

    /// Runs the whole graph as one submission of `stream`. Launches of one executable run one after the other.
    ///
    /// # Safety
    /// - All memory that the graph names stays valid until it has completed.
    unsafe fn graph_launch(&self, executable: &Self::Executable, stream: &Self::Stream) -> Result<(), Self::Error>;

    /// The nodes and edges of a graph.
    fn graph_describe(&self, graph: &Self::Graph) -> Result<GraphDescription, Self::Error>;

    /// Gives a graph back.
    fn graph_destroy(&self, graph: Self::Graph) -> Result<(), Self::Error>;

    /// Gives an executable back. The core calls it only when the last launch has completed (C4).
    fn executable_destroy(&self, executable: Self::Executable) -> Result<(), Self::Error>;
}
