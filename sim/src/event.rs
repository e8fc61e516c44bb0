//! What happens in the engine, told as a list of [`Event`]s.
//!
//! Checkers, lanes and traces are built from these alone; none looks into the engine. Two kinds of names occur.
//! *Handles* are what a driver hands out: plain values, handed out again soon after an object's end (O7). *Ids* are
//! never used again in the life of an engine; events speak in ids.
//!
//! # What orders what
//! With clocks of one component a host thread and one a stream, happens-before follows from these events alone:
//!
//! | event | effect |
//! |---|---|
//! | [`Submitted`](Event::Submitted) | the operation is after its stream's earlier ones and after all that its thread knew |
//! | [`Waited`](Event::Waited) | the wait (an operation submitted just before) is also after the operation it names |
//! | [`Ordered`](Event::Ordered) | the same, for order that the driver adds by itself |
//! | [`GraphLaunched`](Event::GraphLaunched) | node `i` is operation `first_node + i`: after its nodes in `shape`, after all that the launch is after; what follows the launch is after all nodes |
//! | [`Learned`](Event::Learned) | the thread is after that operation and all that it was after |
//! | [`FunctionStarted`](Event::FunctionStarted) | the thread [`HostThread::FUNCTIONS`] is after the operation's predecessors |
//! | [`FunctionReturned`](Event::FunctionReturned) | what follows on the stream is after all that the function did |
//! | [`Signalled`](Event::Signalled) | one thread is after another (told by the drive) |
//!
//! [`Accessed`](Event::Accessed) and [`HostAccessed`](Event::HostAccessed) are what must then be in order.

use std::fmt;
use std::sync::Arc;

use tenure::driver::{Call, CaptureMode, DeviceAddress, Priority};

use crate::code::Code;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($inner:ty) $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

numbers! {
    /// A host thread, as the drive numbers them: small numbers from 0, since tables are indexed by them.
    HostThread(u32) "t";
    /// A stream as a driver names it. Handed out again after a destroy.
    StreamHandle(u64) "stream#";
    /// An event as a driver names it. Handed out again after a destroy.
    EventHandle(u64) "event#";
    /// Loaded code as a driver names it.
    ModuleHandle(u64) "module#";
    /// A kernel of a module as a driver names it.
    FunctionHandle(u64) "function#";
    /// A graph as a driver names it. Handed out again after a destroy.
    GraphHandle(u64) "graph#";
    /// An executable graph as a driver names it. Handed out again after a destroy.
    ExecutableHandle(u64) "executable#";
    /// A stream, never used again.
    StreamId(u64) "s";
    /// An event, never used again.
    EventId(u64) "e";
    /// One submitted operation, or one node of one graph launch. Numbers grow in the order of submission.
    OpId(u64) "op";
    /// An allocation of device memory: one from its allocation to its free, wherever it lies. Memory that a graph
    /// allocates keeps its id over the launches.
    AllocationId(u64) "m";
    /// A registration of host memory, or host memory that the driver allocated.
    RegistrationId(u64) "r";
    /// A capture from its begin to its end.
    CaptureId(u64) "c";
    /// A recorded graph.
    GraphId(u64) "g";
    /// A graph made ready to launch.
    ExecutableId(u64) "x";
    /// A kernel by its number in the engine's library.
    KernelId(u32) "k";
}

impl HostThread {
    /// The thread on which a driver runs host functions. A call from it is refused (R2).
    pub const FUNCTIONS: Self = Self(u32::MAX);
}

impl StreamHandle {
    /// The legacy default stream, which waits for all blocking streams and they for it.
    pub const LEGACY: Self = Self(0);
    /// The calling thread's own default stream: a blocking one, made when the thread first names it.
    pub const PER_THREAD: Self = Self(2);
}

/// A call that the engine answers: one of the core's driver trait, or one that only other code makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallName {
    /// A call of the driver trait.
    Core(Call),
    /// Registers a callback on a stream, the older form of a host function.
    AddCallback,
    /// Copies on the legacy stream and waits.
    CopyAndWait,
    /// Asks for a number that describes the device.
    DeviceAttribute,
    /// Waits for all work of the device.
    DeviceSynchronize,
    /// Asks what a kernel needs.
    FunctionAttributes,
    /// Asks how much memory is free.
    MemoryInfo,
    /// Ends all that the process has on the device.
    ResetDevice,
    /// Chooses the thread's device.
    SelectDevice,
    /// Sets bytes on the legacy stream and waits.
    FillAndWait,
}

impl CallName {
    /// The name, as in `stream_query`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Core(call) => call.name(),
            Self::AddCallback => "add_callback",
            Self::CopyAndWait => "copy_and_wait",
            Self::DeviceAttribute => "device_attribute",
            Self::DeviceSynchronize => "device_synchronize",
            Self::FunctionAttributes => "function_attributes",
            Self::MemoryInfo => "memory_info",
            Self::ResetDevice => "reset_device",
            Self::SelectDevice => "select_device",
            Self::FillAndWait => "fill_and_wait",
        }
    }
}

impl From<Call> for CallName {
    fn from(call: Call) -> Self {
        Self::Core(call)
    }
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reading or writing. A write may read as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only reads.
    Read,
    /// Writes, and may read.
    Write,
}

/// What kind of work an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A kernel.
    Kernel(KernelId),
    /// A copy of so many bytes.
    Copy(u64),
    /// A fill of so many bytes.
    Fill(u64),
    /// An allocation in the order of the stream.
    Allocate(AllocationId),
    /// A free in the order of the stream.
    Free(AllocationId),
    /// A record of an event.
    Record(EventId),
    /// A wait for an event.
    Wait(EventId),
    /// A host function.
    HostFunction,
    /// A launch of an executable graph.
    Graph(ExecutableId),
    /// A node that only orders others.
    Empty,
}

impl WorkKind {
    /// The word of [`GraphDescription`](tenure::driver::GraphDescription) for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernel(_) => "kernel",
            Self::Copy(_) => "copy",
            Self::Fill(_) => "fill",
            Self::Allocate(_) => "malloc",
            Self::Free(_) => "free",
            Self::Record(_) => "event_record",
            Self::Wait(_) => "event_wait",
            Self::HostFunction => "host",
            Self::Graph(_) => "graph",
            Self::Empty => "empty",
        }
    }

    /// Whether it only orders others: it takes no device time and touches no memory.
    pub fn is_mark(self) -> bool {
        matches!(self, Self::Record(_) | Self::Wait(_) | Self::Empty)
    }
}

/// Which memory an operation touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Device memory. Offsets count from the allocation's begin.
    Device(AllocationId),
    /// Host memory, at real addresses. `None`: it was not registered.
    Host(Option<RegistrationId>),
}

/// What puts an allocation's begin or end in order with its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryOrder {
    /// A call of this thread, at once.
    Thread(HostThread),
    /// An operation of a stream or a node of a graph, when it ran.
    Operation(OpId),
}

/// How host memory became page-locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinKind {
    /// The driver allocated it.
    Allocated,
    /// It was registered.
    Registered,
}

/// What a blocked call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockedOn {
    /// One operation, named by its stream and its number there.
    Operation {
        /// The stream.
        stream: StreamId,
        /// Its number on the stream, from 1.
        number: u64,
    },
    /// All work that the device had when the call was made.
    Device,
    /// Room in a stream's queue.
    QueueRoom {
        /// The stream.
        stream: StreamId,
    },
}

/// One node of a graph as order needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeNode {
    /// What it does.
    pub work: WorkKind,
    /// The nodes it runs after, as indices, all smaller than its own.
    pub after: Vec<u32>,
}

/// The nodes of a graph with their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphShape {
    /// In an order that the edges allow.
    pub nodes: Vec<ShapeNode>,
}

/// Why an access was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BadAccess {
    /// It reaches past the end of the memory.
    OutOfRange,
    /// The memory was freed.
    Freed,
    /// The allocation, ordered on a stream, had not run.
    NotYetAllocated,
    /// The host memory is not registered, or no more.
    Unregistered,
    /// The host memory is registered but its owner gave it back to the system (P4).
    HostMemoryGone,
    /// The host memory may only be read.
    ReadOnly,
    /// The address is not aligned for the element type.
    Misaligned,
    /// The address names nothing.
    Wild,
}

/// Something that the engine itself sees to be wrong. Checkers see more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// Device work touched memory that it must not (O6, P3, P4).
    Access {
        /// The operation.
        op: OpId,
        /// What was wrong.
        why: BadAccess,
        /// The device's address, or the host's.
        address: u64,
        /// How many bytes.
        bytes: u64,
        /// How.
        access: Access,
    },
    /// A driver call was made from inside a host function (R2).
    CallInHostFunction {
        /// The host function's operation.
        op: OpId,
        /// The call.
        call: CallName,
    },
    /// A handle was used after its object's end. Real drivers may crash.
    StaleHandle {
        /// The thread.
        thread: HostThread,
        /// The call.
        call: CallName,
        /// The handle's value.
        handle: u64,
    },
    /// Memory was given back that is not allocated: a second time, or never (O6).
    BadFree {
        /// The thread.
        thread: HostThread,
        /// The address.
        address: u64,
    },
    /// A kernel was launched with arguments that it does not take.
    KernelArguments {
        /// The kernel.
        kernel: KernelId,
        /// The first argument that does not fit, or the number given where that differs.
        argument: u32,
    },
    /// The real driver would have ended the process.
    ProcessAborts {
        /// The call.
        call: CallName,
    },
    /// An event was asked or waited for after the end of the stream it was recorded on: HIP reads freed memory there.
    EventOutlivesStream {
        /// The event.
        event: EventId,
        /// The call.
        call: CallName,
    },
    /// A call was made that the driver's contract forbids. It was refused, and nothing says that anybody minded.
    Refused {
        /// The thread.
        thread: HostThread,
        /// The call.
        call: CallName,
        /// The answer.
        code: Code,
    },
    /// Memory was given back by the call of another kind of memory.
    WrongFree {
        /// The thread.
        thread: HostThread,
        /// The call.
        call: CallName,
        /// The address.
        address: u64,
    },
    /// The two ends of a copy share bytes: what it leaves there is not defined.
    OverlappingCopy {
        /// The copy.
        op: OpId,
        /// How many bytes it moves.
        bytes: u64,
    },
    /// A stream was destroyed while it captured.
    CapturingStreamDestroyed {
        /// The thread.
        thread: HostThread,
        /// The stream.
        stream: StreamId,
        /// The capture.
        capture: CaptureId,
    },
    /// Host code touched page-locked memory of the driver's that it had freed, or past its end.
    HostAccess {
        /// The thread.
        thread: HostThread,
        /// What was wrong.
        why: BadAccess,
        /// The address.
        address: u64,
        /// How many bytes.
        bytes: u64,
        /// How.
        access: Access,
    },
    /// Code was unloaded while work that runs it was pending.
    CodeInUse {
        /// The thread.
        thread: HostThread,
        /// The work.
        op: OpId,
    },
    /// A graph was launched that runs code which was unloaded.
    CodeGone {
        /// The thread.
        thread: HostThread,
        /// The kernel.
        kernel: KernelId,
    },
}

impl Violation {
    /// The thread that broke a call's contract, where it is one that did.
    pub(crate) fn caller(&self) -> Option<HostThread> {
        match *self {
            Self::Refused { thread, .. }
            | Self::WrongFree { thread, .. }
            | Self::CapturingStreamDestroyed { thread, .. }
            | Self::CodeInUse { thread, .. }
            | Self::CodeGone { thread, .. } => Some(thread),
            _ => None,
        }
    }
}

/// One thing that happened. In the order in which the engine did them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    // --- calls
    /// A call has an answer.
    Called {
        /// By which thread.
        thread: HostThread,
        /// Which call.
        call: CallName,
        /// On which stream, where it names one.
        stream: Option<StreamId>,
        /// The answer.
        code: Code,
    },
    /// A call waits. Its [`Called`](Self::Called) follows when it ends.
    Blocked {
        /// Which thread.
        thread: HostThread,
        /// In which call.
        call: CallName,
        /// For what.
        on: BlockedOn,
    },
    /// A thread's own capture mode changed.
    ModeExchanged {
        /// Which thread.
        thread: HostThread,
        /// The new mode.
        mode: CaptureMode,
    },

    // --- operations
    /// A stream took an operation.
    Submitted {
        /// The operation.
        op: OpId,
        /// Its stream.
        stream: StreamId,
        /// Its number on the stream, from 1, without gaps.
        number: u64,
        /// Who submitted it.
        thread: HostThread,
        /// What it does.
        work: WorkKind,
    },
    /// A submitted wait is after the operation `after`; nothing where the event was never recorded.
    Waited {
        /// The wait.
        op: OpId,
        /// For which event.
        event: EventId,
        /// The record that it waits for. Its position was taken at the call.
        after: Option<OpId>,
    },
    /// The driver itself orders `op` after `after`: the legacy stream, or two launches of one executable.
    Ordered {
        /// The later.
        op: OpId,
        /// The earlier.
        after: OpId,
    },
    /// An event was moved to this operation.
    Recorded {
        /// The event.
        event: EventId,
        /// The record, submitted just before.
        op: OpId,
    },
    /// An operation or a node began to run.
    Started {
        /// The operation.
        op: OpId,
        /// On which stream.
        stream: StreamId,
    },
    /// An operation or a node has run.
    Completed {
        /// The operation.
        op: OpId,
        /// On which stream.
        stream: StreamId,
    },
    /// An operation touched memory.
    Accessed {
        /// The operation.
        op: OpId,
        /// Which memory.
        memory: Memory,
        /// Where: an offset in an allocation, an address in host memory.
        start: u64,
        /// How many bytes, at least 1.
        bytes: u64,
        /// How.
        access: Access,
    },
    /// A warning: an operation read device memory that nothing had written.
    UnwrittenRead {
        /// The operation.
        op: OpId,
        /// The allocation.
        allocation: AllocationId,
        /// The offset of the read.
        start: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A host function begins, on [`HostThread::FUNCTIONS`].
    FunctionStarted {
        /// Its operation.
        op: OpId,
        /// On which stream.
        stream: StreamId,
    },
    /// A host function returned.
    FunctionReturned {
        /// Its operation.
        op: OpId,
        /// On which stream.
        stream: StreamId,
    },

    // --- what host threads do and know
    /// Host code touched memory of its own. Told by the drive.
    HostAccessed {
        /// Which thread.
        thread: HostThread,
        /// The address.
        start: u64,
        /// How many bytes, at least 1.
        bytes: u64,
        /// How.
        access: Access,
    },
    /// Host memory was given back to the system or to its allocator. Told by the drive.
    HostMemoryGone {
        /// Which thread.
        thread: HostThread,
        /// The address.
        start: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// A thread was told that an operation, and so all before it on its stream, has completed.
    Learned {
        /// Which thread.
        thread: HostThread,
        /// Which stream.
        stream: StreamId,
        /// The last operation that it knows of.
        op: OpId,
        /// The operation's number on its stream.
        number: u64,
    },
    /// One thread is after another: a lock, a channel, a join. Told by the drive.
    Signalled {
        /// The earlier.
        from: HostThread,
        /// The later.
        to: HostThread,
    },

    // --- objects
    /// A stream was made.
    StreamCreated {
        /// The stream.
        stream: StreamId,
        /// Its name at the driver.
        handle: StreamHandle,
        /// Its place among the others.
        priority: Priority,
        /// By whom.
        thread: HostThread,
    },
    /// A stream's handle was given back. What it holds still runs.
    StreamDestroyed {
        /// The stream.
        stream: StreamId,
        /// By whom.
        thread: HostThread,
        /// How many operations it still held.
        pending: u64,
    },
    /// A destroyed stream has run all it held: nothing names it any more.
    StreamGone {
        /// The stream.
        stream: StreamId,
    },
    /// An event was made.
    EventCreated {
        /// The event.
        event: EventId,
        /// Its name at the driver.
        handle: EventHandle,
    },
    /// An event was given back. What waits for it still waits.
    EventDestroyed {
        /// The event.
        event: EventId,
    },
    /// Device memory begins to exist: at the call, or when the operation ran.
    Allocated {
        /// The allocation.
        allocation: AllocationId,
        /// Where it lies.
        address: DeviceAddress,
        /// How long it is.
        bytes: u64,
        /// What orders it.
        order: MemoryOrder,
    },
    /// Device memory ceases to exist: at the call, or when the operation ran.
    Freed {
        /// The allocation.
        allocation: AllocationId,
        /// What orders it.
        order: MemoryOrder,
    },
    /// Host memory is page-locked from here on.
    Registered {
        /// The registration.
        registration: RegistrationId,
        /// Its address.
        base: u64,
        /// How long it is.
        bytes: u64,
        /// Where the device sees it.
        alias: DeviceAddress,
        /// How it came about.
        kind: PinKind,
        /// By whom.
        thread: HostThread,
    },
    /// Host memory is page-locked no more.
    Unregistered {
        /// The registration.
        registration: RegistrationId,
        /// By whom.
        thread: HostThread,
    },

    // --- captures and graphs
    /// A capture began.
    CaptureBegan {
        /// The capture.
        capture: CaptureId,
        /// Its first stream.
        stream: StreamId,
        /// By whom.
        thread: HostThread,
        /// What it forbids.
        mode: CaptureMode,
    },
    /// A stream was pulled into a capture by a wait.
    CaptureJoined {
        /// The capture.
        capture: CaptureId,
        /// The stream.
        stream: StreamId,
    },
    /// Work was recorded into a capture instead of being run.
    Captured {
        /// The capture.
        capture: CaptureId,
        /// On which stream.
        stream: StreamId,
        /// By whom.
        thread: HostThread,
        /// What it does.
        work: WorkKind,
    },
    /// A capture was broken.
    CaptureInvalidated {
        /// The capture.
        capture: CaptureId,
        /// By whom.
        thread: HostThread,
        /// By which call.
        call: CallName,
        /// What that call returned.
        code: Code,
    },
    /// A capture is over.
    CaptureEnded {
        /// The capture.
        capture: CaptureId,
        /// By whom.
        thread: HostThread,
        /// Its graph, where there is one.
        graph: Option<GraphId>,
        /// What the end returned.
        code: Code,
    },
    /// A graph was made ready to launch.
    GraphInstantiated {
        /// The graph.
        graph: GraphId,
        /// What it became.
        executable: ExecutableId,
    },
    /// Later launches do what another graph says.
    GraphUpdated {
        /// What was changed.
        executable: ExecutableId,
        /// The new content.
        graph: GraphId,
    },
    /// A graph launch was submitted. The nodes' operations have the numbers from `first_node` on.
    GraphLaunched {
        /// What was launched.
        executable: ExecutableId,
        /// The launch, submitted just before.
        op: OpId,
        /// The operation of node 0.
        first_node: OpId,
        /// The nodes.
        shape: Arc<GraphShape>,
    },
    /// A graph was given back.
    GraphDestroyed {
        /// The graph.
        graph: GraphId,
    },
    /// An executable was given back.
    ExecutableDestroyed {
        /// The executable.
        executable: ExecutableId,
        /// Whether a launch of it had not completed.
        pending: bool,
    },

    // --- the end of the device, and what is wrong
    /// A kernel panicked, or made a driver call: on a real device it would have gone out of its memory, or trapped.
    KernelPanicked {
        /// The operation.
        op: OpId,
        /// The kernel.
        kernel: KernelId,
        /// What it said.
        message: Arc<str>,
    },
    /// Other code reset the device: nothing that was made before is there any more, and nothing of it runs.
    DeviceReset {
        /// Which thread did.
        thread: HostThread,
    },
    /// The device is lost: every later call returns this code.
    DeviceLost {
        /// The code.
        code: Code,
    },
    /// Something is wrong.
    Violation(Violation),
}
