//! What must never happen, checked on every step: a [`Finding`] names the line of the contract that broke.
//!
//! Checkers read the engine's [`Event`]s and nothing else, so that they judge what was done and not how.
//!
//! | checker | lines | looks at |
//! |---|---|---|
//! | `happens_before` | O1 O3 O6 P3 | accesses, edges, frees, unregistrations |
//! | `lifetime` | C4 O1 O6 O7 P2 P3 P4 R2 S6 | what the engine itself refused to do |
//! | `registration` | P6 | driver calls about one range that run at the same time |
//! | `capture` | C1 C2 | captures that a call broke; frees that went into a graph |
//! | here | usage | reads of device memory that nothing wrote: a warning |
//! | `liveness` | O5 R3 R6, and the leaks of a run | threads that wait forever; what is left at the end |
//!
//! A *violation* breaks a promise. A *warning* is legal on some driver and no good idea on others.
//!
//! # What they do not see
//! `tests/wrong_programs.rs` has programs with what must be said of each. This is out of reach:
//!
//! | what | why |
//! |---|---|
//! | a host access by a plain pointer | nobody is told; [`Sim::host_accessed`](crate::Sim::host_accessed) tells |
//! | two host threads that race with each other | all host threads count as one: tools for that exist (Miri, ThreadSanitizer, loom) |
//! | memory that a kernel's closure reaches beside its arguments | a closure is not looked into |
//! | reads of unwritten memory through [`Write`](crate::kernel::Write), unless warnings are denied | a kernel must run twice to see it |
//! | the element type of who launches a kernel | arguments carry addresses and lengths; only alignment and length are checked |
//! | elements of one range that kernels share out between them, even and odd ones | accesses are whole arguments, so they count as conflicting: give each kernel a range of its own |
//! | a pageable source that is written once its copy has been submitted, on a driver that has taken the bytes by then | the trait promises nothing before the copy has completed, so it is a race everywhere |
//! | work that a thread submits to a stream which another one captures | legal in relaxed mode: it is recorded, and its order with the begin is the program's |
//! | modules left at the end | programs keep them; the report counts them |
//! | a kernel that never ends | it runs with the simulation locked; host threads and host functions that never end are cut |

pub(crate) mod capture;
pub(crate) mod happens_before;
pub(crate) mod lifetime;
pub(crate) mod liveness;
pub(crate) mod order;
pub(crate) mod registration;
pub(crate) mod shadow;

pub use self::happens_before::OrderFigures;

use self::capture::Captures;
use self::happens_before::{HappensBefore, Label};
use self::registration::{InFlight, Region};
use self::shadow::Conflict;
use crate::code::Code;
use crate::event::{Access, CallName, Event, HostThread, KernelId, Memory, WorkKind};
use rustc_hash::FxHashSet;
use std::fmt;
use std::sync::Arc;
use tenure::driver::Call;

macro_rules! lines {
    ($($name:ident $text:literal)*) => {
        /// A line of the contract, as a finding names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Line {
            $(#[doc = $text] $name,)*
            /// A mistake of the calling program that no line of the contract is about.
            Usage,
        }

        impl Line {
            /// Every line, in the order of the contract.
            pub const ALL: &'static [Self] = &[$(Self::$name,)* Self::Usage];

            /// The line's name, as in `O1`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::Usage => "usage",
                }
            }

            /// What the line promises, in short.
            pub fn promise(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Usage => "The program keeps the rules of the calls it makes.",
                }
            }
        }
    };
}

lines! {
    O1 "Conflicting submissions on one buffer are joined by a chain of edges."
    O2 "A buffer is called clean only when all work submitted before has completed."
    O3 "A host access is ordered after the device work that it conflicts with."
    O4 "No other taker slips in between taking a buffer and using it."
    O5 "Taking several buffers cannot deadlock."
    O6 "A free is ordered after all uses and happens exactly once."
    O7 "No identity is a raw handle or address, which are handed out again."
    O8 "A zero-size buffer never touches the backend."
    O9 "Last uses are kept per stream."
    S1 "At most one lease holds a pooled stream."
    S2 "A stream is handed out only when idle."
    S3 "Nothing is enqueued for a lease that has ended."
    S4 "Claiming never waits for the device and disturbs no capture."
    S5 "No more streams are made than were needed at once."
    S6 "No stream is destroyed, or used after its end, while somebody needs it."
    S7 "A broken stream is never handed out again."
    C1 "Nothing that the runtime does invalidates a capture."
    C2 "No release is recorded into a graph."
    C3 "Every release that a capture deferred runs exactly once after it."
    C4 "What a graph uses lives as long as the graph and its last replay."
    C5 "A graph launch owns all that the graph uses."
    C6 "Deciding to defer is atomic with the start and end of a capture."
    C7 "A failed capture leaves no broken stream and no partial graph."
    C8 "Nobody waits for work that is merely recorded."
    C9 "What a capture cannot hold is refused before the driver sees it."
    C10 "Host data copied inside a capture is held by the graph."
    P1 "A range is registered exactly while its count is above zero."
    P2 "A registration covers every live wrap of its range."
    P3 "Unregistering comes after all submissions through any wrap."
    P4 "Host memory lives at least as long as it is registered."
    P5 "Each wrap gives back exactly one count."
    P6 "No driver call about a range runs beside its unregister."
    P7 "Dropping never blocks and never loses a release."
    P8 "Overlap without containment is a typed error."
    P9 "A failed register leaves no count; a failed unregister keeps its range."
    P10 "What somebody else registered is never unregistered."
    P11 "Memory that the device may still use is leaked, never released."
    P12 "Ranges carry an identity beside their address."
    P13 "The driver has a range registered once, whichever runtimes of the process use it."
    P14 "A range is unregistered after the work of all runtimes; one of other code is asked for again before it is revived."
    P15 "What is registered to be read is not written by the device."
    R1 "Dropping a handle makes no call that waits, asks or destroys."
    R2 "A host function only signals."
    R3 "No lock is held across a driver call that may wait for the device."
    R4 "Safety rests on what submitted work holds, not on guards."
    R5 "Shutdown drains what it can and reports the rest."
    R6 "A lost device ends every wait in bounded time."
    R7 "An error names the operation that failed and the one that caused it."
    T1 "A byte of staging memory has one copy at a time, until that has completed and was copied out."
    T2 "Staging memory is bounded in bytes, and goes back when nothing uses it."
    T3 "While there is staging memory, copies with pageable memory wait for nothing."
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// A promise was broken.
    Violation,
    /// Legal here, and no good idea elsewhere.
    Warning,
}

/// Something that a checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The line of the contract.
    pub line: Line,
    /// How bad it is.
    pub severity: Severity,
    /// What happened, as a sentence.
    pub message: String,
    /// After how many events of the run, which is also its row in the lanes.
    pub step: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Violation => "",
            Severity::Warning => "warning: ",
        };
        write!(f, "{word}{}: {} (row {})", self.line, self.message, self.step)
    }
}

/// What was found in a run, capped; equal messages count once.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Vec<Finding>,
    messages: FxHashSet<(Line, String)>,
    dropped: u64,
    pub(crate) step: u64,
    kernels: Vec<Arc<str>>,
}

impl Findings {
    pub(crate) fn violation(&mut self, line: Line, message: String) {
        self.add(line, Severity::Violation, message);
    }

    pub(crate) fn warning(&mut self, line: Line, message: String) {
        self.add(line, Severity::Warning, message);
    }

    pub(crate) fn all(&self) -> &[Finding] {
        &self.found
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn name_kernel(&mut self, kernel: KernelId, name: &str) {
        let index = kernel.0 as usize;
        if self.kernels.len() <= index {
            self.kernels.resize(index + 1, "?".into());
        }
        self.kernels[index] = name.into();
    }

    /// The kernel's name.
    pub(crate) fn kernel(&self, kernel: KernelId) -> &str {
        self.kernels.get(kernel.0 as usize).map_or("?", |name| name)
    }

    /// What an operation does, as in ``kernel `scale` ``.
    pub(crate) fn work(&self, work: WorkKind) -> String {
        match work {
            WorkKind::Kernel(kernel) => format!("kernel `{}`", self.kernel(kernel)),
            WorkKind::Copy(bytes) => format!("copy of {bytes} bytes"),
            WorkKind::Fill(bytes) => format!("fill of {bytes} bytes"),
            WorkKind::Allocate(allocation) => format!("allocation of {allocation}"),
            WorkKind::Free(allocation) => format!("free of {allocation}"),
            WorkKind::Graph(executable) => format!("graph {executable}"),
            other => other.word().replace('_', " "),
        }
    }

    pub(crate) fn race(&mut self, line: Line, earlier: &Conflict<Label>, label: Label, access: Access, memory: Memory) {
        let (start, end) = (earlier.start, earlier.end);
        let what = match memory {
            Memory::Device(allocation) => format!("{allocation}[{start}..{end}]"),
            Memory::Host(_) => format!("host memory {start:#x}..{end:#x}"),
        };
        let verb = match line {
            Line::O6 => "frees",
            Line::P3 => "unregisters",
            Line::P4 => "gives back",
            _ if access == Access::Read => "reads",
            _ => "writes",
        };
        let earlier_verb = if earlier.earlier_mode == Access::Read { "reads" } else { "writes" };
        let (who, other) = (self.who(label), self.who(earlier.earlier.label));
        self.violation(
            line,
            format!("{who} {verb} {what}, and nothing orders that after {other}, which {earlier_verb} it"),
        );
    }

    fn who(&self, label: Label) -> String {
        match label {
            Label::Operation { op, stream, work } => format!("{} on {stream} ({op})", self.work(work)),
            Label::Host(thread) if thread == HostThread::FUNCTIONS => "a host function".into(),
            Label::Host(thread) => format!("host thread {thread}"),
        }
    }

    fn add(&mut self, line: Line, severity: Severity, message: String) {
        if self.found.len() >= FINDINGS_MAX {
            self.dropped += 1;
        } else if self.messages.insert((line, message.clone())) {
            self.found.push(Finding { line, severity, message, step: self.step });
        }
    }
}

/// All checkers of a run.
#[derive(Debug)]
pub(crate) struct Checkers {
    pub(crate) findings: Findings,
    order: HappensBefore,
    in_flight: InFlight,
    captures: Captures,
}

impl Checkers {
    pub(crate) fn new() -> Self {
        Self {
            findings: Findings::default(),
            order: HappensBefore::new(),
            in_flight: InFlight::default(),
            captures: Captures::default(),
        }
    }

    pub(crate) fn on(&mut self, event: &Event) {
        self.findings.step += 1;
        match event {
            // Other code may break its own calls as it likes.
            Event::Violation(violation)
                if violation.caller().is_some_and(|thread| self.captures.is_foreign(thread)) => {}
            Event::Violation(violation) => {
                let context = self.order.describe(violation, &self.findings);
                lifetime::engine_found(*violation, context, &mut self.findings);
            }
            Event::UnwrittenRead { op, allocation, start, bytes } => {
                let (who, end) = (self.order.who(*op, &self.findings), start + bytes);
                let message = format!("{who} reads {allocation}[{start}..{end}], not all of which was ever written");
                self.findings.warning(Line::Usage, message);
            }
            Event::Called { thread, call, code, .. } => {
                if *call == CallName::DeviceSynchronize && *code == Code::SUCCESS {
                    self.order.device_was_waited_for();
                }
                self.order.call_ended(*thread);
            }
            // Most of what happens, and nothing that the others look at.
            Event::Submitted { .. }
            | Event::Started { .. }
            | Event::Accessed { .. }
            | Event::Completed { .. }
            | Event::Learned { .. }
            | Event::Recorded { .. }
            | Event::Waited { .. } => self.order.on(event, &mut self.findings),
            // No checker looks at it.
            Event::ModeExchanged { .. } => {}
            Event::DeviceReset { .. } => {
                // Nothing of before can be touched any more, by anybody.
                self.order.forget_all();
                self.captures.forget_all();
                self.in_flight.forget_all();
            }
            _ => {
                self.order.on(event, &mut self.findings);
                self.captures.on(event, &mut self.findings);
                self.in_flight.on(event);
                lifetime::on(event, &mut self.findings);
            }
        }
    }

    /// A thread begins a call, of the driver trait or (`is_plain` not) another of the same kind. The effect of some must be
    /// in order without the waiting that the call itself may do; and some drivers wait in a copy where others do not, so
    /// that nobody may lean on that.
    pub(crate) fn call_begins(&mut self, thread: HostThread, call: Call, is_plain: bool) {
        match call {
            Call::Free | Call::HostFree | Call::HostUnregister => self.order.call_begins(thread),
            Call::Copy if is_plain => self.order.learns_nothing(thread),
            _ => {}
        }
    }

    /// A host function lets others run: they know of what it did so far, and not of what it does from then on.
    pub(crate) fn function_pauses(&mut self) {
        self.order.function_pauses();
    }

    /// A thread begins a call about host memory; see [`registration`].
    pub(crate) fn range_call_begins(&mut self, thread: HostThread, region: Region) {
        self.in_flight.begin(thread, region, &mut self.findings);
    }

    pub(crate) fn range_call_ends(&mut self, thread: HostThread) {
        self.in_flight.end(thread);
    }

    /// Whether the thread's calls are somebody else's.
    pub(crate) fn is_foreign(&self, thread: HostThread) -> bool {
        self.captures.is_foreign(thread)
    }

    /// Calls of `thread` that break captures are somebody else's from now on, or are ours again.
    pub(crate) fn set_foreign(&mut self, thread: HostThread, foreign: bool) {
        self.captures.set_foreign(thread, foreign);
    }

    /// How many entries the checkers keep, of any kind.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.order.size()
    }

    pub(crate) fn order_figures(&self) -> OrderFigures {
        self.order.figures()
    }
}

/// How many findings of a run are kept; the rest is counted.
const FINDINGS_MAX: usize = 64;
