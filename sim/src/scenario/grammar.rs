//! What a scenario file can say, as a tree. `parse` makes it of text, `run` plays it; docs/scenarios.md tells it to
//! people.

use tenure::driver::{Call, CaptureMode, Priority};

use crate::checker::Line;
use crate::code::Code;

/// One file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scenario {
    /// What it is about, in a few words.
    pub title: String,
    /// Where the case comes from.
    pub sources: Vec<String>,
    /// The word that groups it with others.
    pub kind: String,
    /// The lines of the contract that it is about; an expectation that fails is reported under the first.
    pub keeps: Vec<Line>,
    /// On which profiles it makes sense.
    pub profiles: Profiles,
    /// Planted defects with which it must fail.
    pub defects: Vec<Defect>,
    /// Why no planted defect is there that it could catch.
    pub uncaught: Option<String>,
    /// The most streams that the pool makes.
    pub pool: Option<usize>,
    /// How much device memory there is, in bytes.
    pub memory: Option<u64>,
    /// How many operations a stream holds before a submission blocks.
    pub depth: Option<usize>,
    /// Why something may be left at the end.
    pub leaks: Option<String>,
    /// Steps of the first thread, before the others start.
    pub setup: Vec<Step>,
    /// Threads that run at the same time.
    pub threads: Vec<Thread>,
    /// Steps after all threads have ended.
    pub finally: Vec<Step>,
}

impl Scenario {
    /// Whether a step lets host functions be skipped or hang.
    pub(crate) fn fails_functions(&self) -> bool {
        fn any(steps: &[Step]) -> bool {
            let goes_wrong = |action: &Action| {
                let call = Call::LaunchHostFunction;
                matches!(action, Action::Mishap(Mishap::SkipFunction(_) | Mishap::HangFunction(_)))
                    || matches!(action, Action::Mishap(Mishap::Call { call: found, .. }) if *found == call)
            };
            steps.iter().any(|step| goes_wrong(&step.action) || any(step.action.steps()))
        }
        any(&self.setup) || any(&self.finally) || self.threads.iter().any(|thread| any(&thread.steps))
    }
}

/// On which profiles a scenario makes sense.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Profiles {
    /// On every one.
    #[default]
    All,
    /// On every one but these.
    Except(Vec<String>),
    /// On these.
    Only(Vec<String>),
}

impl Profiles {
    /// Whether the profile of this name is meant.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Except(names) => names.iter().all(|known| known != name),
            Self::Only(names) => names.iter().any(|known| known == name),
        }
    }
}

/// A planted defect that the scenario must catch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// Its name in the core.
    pub name: String,
    /// The line of the contract that must be reported.
    pub line: Line,
    /// The profile on which it shows, where not on every one.
    pub profile: Option<String>,
}

/// A host thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// What it does.
    pub steps: Vec<Step>,
}

/// One thing that a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its line in the file, from 1.
    pub line: u32,
    /// What it is.
    pub action: Action,
    /// What must come of it.
    pub outcome: Outcome,
}

/// What must come of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It works.
    #[default]
    Works,
    /// It fails with one of these errors; with any, where there are none.
    Fails(Vec<String>),
    /// It works, or fails with one of these errors; with any, where there are none.
    MayFail(Vec<String>),
}

/// Memory that a step names: all of it, or elements `start..end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A buffer, wrapped or plain host memory.
    pub name: String,
    /// A part of it.
    pub range: Option<(usize, usize)>,
}

/// A stream to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Leased from the pool.
    Pooled(Priority),
    /// Made by other code, and adopted.
    Adopted,
}

/// How host memory is wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrapKind {
    /// The wrap holds a share of the memory: it lives as long as it is registered. In a scope: borrowed for the scope.
    Owned,
    /// By its address alone.
    Raw,
}

/// What an explicit free must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedAs {
    /// It is done.
    Now,
    /// Something still uses the memory.
    Deferred,
}

/// How a figure is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
}

impl Relation {
    /// Whether `value` stands so to `bound`.
    pub fn holds(self, value: u64, bound: u64) -> bool {
        match self {
            Self::Equal => value == bound,
            Self::Unequal => value != bound,
            Self::AtMost => value <= bound,
            Self::AtLeast => value >= bound,
        }
    }

    /// How it is written.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::Unequal => "!=",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }
}

/// Something that a scenario can count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Calls of the driver by name.
    Calls(Call),
    /// A figure of the runtime's own, by name.
    Runtime(String),
}

/// Something to go wrong, from the step on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The n-th call fails.
    Call {
        /// Which call.
        call: Call,
        /// Which one of them, from 1.
        nth: u64,
        /// All after it as well.
        always: bool,
        /// After it has had its effect.
        late: bool,
        /// With what.
        code: Code,
    },
    /// The n-th host function to come up is skipped.
    SkipFunction(u64),
    /// The n-th host function to come up never starts.
    HangFunction(u64),
    /// The n-th operation to start never ends.
    HangOperation(u64),
    /// The device is lost as the n-th operation starts.
    LoseAt(u64, Code),
    /// The device is lost now: also a fork seen from the child, a driver that was unloaded.
    Lose(Code),
    /// Other code resets the device.
    Reset,
}

/// What other code does, with raw calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Begins a capture on a stream of its own.
    Begin {
        /// Its name.
        name: String,
        /// In which mode.
        mode: CaptureMode,
        /// Whether the runtime was told.
        announced: bool,
    },
    /// Ends it.
    End {
        /// Its name.
        name: String,
    },
    /// Registers host memory.
    Pin(Place),
    /// Unregisters host memory.
    Unpin(Place),
    /// Makes a raw call, on a stream where it needs one.
    Call(String, Option<String>),
    /// Destroys a stream of other code that the runtime has adopted.
    Destroy(String),
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the words of the language: docs/scenarios.md")]
pub enum Action {
    /// Leases or adopts streams.
    Stream {
        names: Vec<String>,
        kind: StreamKind,
    },
    /// Another handle of the same stream, buffer or wrap.
    Clone {
        name: String,
        of: String,
    },
    /// Allocates device memory.
    Buffer {
        name: String,
        len: usize,
        queue: String,
    },
    /// Maps host memory.
    Host {
        name: String,
        len: usize,
        value: u32,
    },
    /// Gives host memory back and maps it again at the same address.
    Remap {
        name: String,
    },
    /// Makes host memory reachable for the device.
    Wrap {
        name: String,
        kind: WrapKind,
        of: Place,
    },
    /// Lets the driver allocate page-locked host memory.
    Pinned {
        name: String,
        len: usize,
    },
    /// A kernel.
    Launch {
        queue: String,
        reads: Vec<Place>,
        writes: Vec<Place>,
        value: Option<u32>,
        library: bool,
    },
    Copy {
        from: Place,
        to: Place,
        queue: String,
    },
    Fill {
        to: Place,
        byte: u8,
        queue: String,
    },
    /// Copies plain host memory to the device.
    Upload {
        from: Place,
        to: Place,
        queue: String,
    },
    /// Copies to the host and waits.
    Fetch {
        from: Place,
        queue: String,
        value: Option<u32>,
    },
    /// Copies to the host; a future.
    FetchLater {
        from: Place,
        queue: String,
        name: String,
    },
    /// A future of all that a stream has.
    Completion {
        queue: String,
        name: String,
    },
    Await {
        name: String,
        value: Option<u32>,
    },
    /// Polls a future once.
    PollOnce {
        name: String,
        ready: Option<bool>,
    },
    /// The host reads wrapped or plain host memory.
    Look {
        at: Place,
        value: Option<u32>,
    },
    /// The host writes wrapped or plain host memory.
    Poke {
        at: Place,
        value: u32,
    },
    /// The host holds a view while the steps run.
    View {
        at: String,
        write: bool,
        steps: Vec<Step>,
    },
    Free {
        name: String,
        freed: Option<FreedAs>,
    },
    /// Takes the owner back out of a wrap.
    Unwrap {
        name: String,
    },
    Drop {
        names: Vec<String>,
    },
    Forget {
        names: Vec<String>,
    },
    /// Waits for a stream, a buffer, a wrap or an event.
    Sync {
        name: String,
    },
    /// Asks whether a stream, a buffer, a wrap or an event is busy.
    Ask {
        name: String,
        busy: Option<bool>,
    },
    Record {
        name: String,
        queue: String,
    },
    Order {
        queue: String,
        after: String,
    },
    Signal {
        name: String,
    },
    Wait {
        name: String,
    },
    /// Holds the device still on a stream.
    Hold {
        queue: String,
    },
    Release {
        queue: String,
    },
    Capture {
        graph: String,
        queue: String,
        steps: Vec<Step>,
    },
    Fork {
        name: String,
        from: String,
    },
    Join {
        name: String,
        into: String,
    },
    /// The body of the capture or scope fails.
    Abort,
    /// The body of the capture or scope panics.
    Panic,
    Instantiate {
        name: String,
        graph: String,
    },
    Replay {
        name: String,
        queue: String,
    },
    Update {
        name: String,
        graph: String,
    },
    Scope {
        steps: Vec<Step>,
    },
    /// The thread makes no driver call and waits for nothing.
    Quiet {
        steps: Vec<Step>,
    },
    Repeat {
        times: u32,
        steps: Vec<Step>,
    },
    /// Steps that are played where a name stands for something.
    If {
        name: String,
        steps: Vec<Step>,
    },
    /// A lock of the program's, held while the steps run.
    Lock {
        name: String,
        steps: Vec<Step>,
    },
    /// A host function on a stream.
    Function {
        queue: String,
        steps: Vec<Step>,
    },
    Foreign(Foreign),
    Mishap(Mishap),
    Poll,
    Trim,
    Shutdown {
        clean: bool,
    },
    Expect {
        figure: Figure,
        relation: Relation,
        bound: u64,
    },
}

impl Action {
    /// The steps inside it.
    pub fn steps(&self) -> &[Step] {
        match self {
            Self::View { steps, .. }
            | Self::Capture { steps, .. }
            | Self::Scope { steps }
            | Self::Quiet { steps }
            | Self::Repeat { steps, .. }
            | Self::If { steps, .. }
            | Self::Lock { steps, .. }
            | Self::Function { steps, .. } => steps,
            _ => &[],
        }
    }
}

impl Action {
    /// The names that the step gives to what it makes, where they outlive it.
    pub fn made(&self) -> Vec<&str> {
        match self {
            Self::Stream { names, .. } => names.iter().map(String::as_str).collect(),
            Self::Clone { name, .. }
            | Self::Buffer { name, .. }
            | Self::Host { name, .. }
            | Self::Wrap { name, .. }
            | Self::Pinned { name, .. }
            | Self::Record { name, .. }
            | Self::FetchLater { name, .. }
            | Self::Completion { name, .. }
            | Self::Instantiate { name, .. }
            | Self::Capture { graph: name, .. }
            | Self::Foreign(Foreign::Begin { name, .. }) => vec![name],
            _ => Vec::new(),
        }
    }

    /// The names that stand for something only inside the block around the step, or inside its own.
    pub fn made_inside(&self) -> Option<&str> {
        match self {
            Self::Capture { queue: name, .. } | Self::Fork { name, .. } => Some(name),
            _ => None,
        }
    }
}

/// The calls of a driver, for the names in files.
pub const CALLS: &[Call] = &[
    Call::CaptureBegin,
    Call::CaptureEnd,
    Call::CaptureStatus,
    Call::Copy,
    Call::EventCreate,
    Call::EventDestroy,
    Call::EventElapsed,
    Call::EventQuery,
    Call::EventRecord,
    Call::EventSynchronize,
    Call::ExchangeCaptureMode,
    Call::ExecutableDestroy,
    Call::Fill,
    Call::Free,
    Call::FreeAsync,
    Call::Function,
    Call::GraphDescribe,
    Call::GraphDestroy,
    Call::GraphInstantiate,
    Call::GraphLaunch,
    Call::GraphUpdate,
    Call::HostAlloc,
    Call::HostDeviceAddress,
    Call::HostFree,
    Call::HostIsRegistered,
    Call::HostRegister,
    Call::HostUnregister,
    Call::Launch,
    Call::LaunchHostFunction,
    Call::Malloc,
    Call::MallocAsync,
    Call::ModuleLoad,
    Call::ModuleUnload,
    Call::StreamCreate,
    Call::StreamDestroy,
    Call::StreamQuery,
    Call::StreamSynchronize,
    Call::StreamWaitEvent,
];
