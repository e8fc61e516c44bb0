//! Uses after the end: of memory, of registrations, of handles; and what else the engine itself saw to be wrong.
//!
//! The engine says what happened ([`Violation`]); here it gets the name of the promise that was broken.

use super::{Findings, Line};
use crate::code::Code;
use crate::engine::is_stream;
use crate::event::{Access, BadAccess, Event, Violation};

/// What the checkers know about an operation that the engine names by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// The operation as a sentence needs it.
    pub(crate) who: String,
    /// It is a node of a graph.
    pub(crate) in_graph: bool,
    /// Its bytes touch memory of a registration that is live, but shorter.
    pub(crate) beside_registration: bool,
}

pub(crate) fn on(event: &Event, findings: &mut Findings) {
    match event {
        Event::ExecutableDestroyed { executable, pending: true } => {
            findings.violation(Line::C4, format!("{executable} was destroyed while a launch of it had not completed"));
        }
        Event::KernelPanicked { op, kernel, message } => {
            let kernel = findings.kernel(*kernel).to_owned();
            findings.violation(
                Line::Usage,
                format!("kernel `{kernel}` ({op}) panicked, and the device is lost: {message}"),
            );
        }
        Event::StreamDestroyed { stream, pending, .. } if *pending > 0 => {
            findings
                .warning(Line::S6, format!("{stream} was destroyed while {pending} of its operations were pending"));
        }
        _ => {}
    }
}

pub(crate) fn engine_found(violation: Violation, context: Context, findings: &mut Findings) {
    let (line, message) = match violation {
        Violation::Access { why, address, bytes, access, .. } => {
            (access_line(why, &context), access_message(why, access, address, bytes, &context))
        }
        Violation::CallInHostFunction { op, call } => {
            (Line::R2, format!("the host function {op} called the driver: {call}"))
        }
        Violation::StaleHandle { thread, call, handle } => (
            stale_line(call.name(), handle),
            format!("{call} on host thread {thread} used handle {handle:#x} after its object's end"),
        ),
        Violation::BadFree { thread, address } => (
            Line::O6,
            format!("host thread {thread} freed {address:#x}, which is not allocated: freed before, or never"),
        ),
        Violation::KernelArguments { kernel, argument } => {
            let name = findings.kernel(kernel);
            (
                Line::Usage,
                format!("kernel `{name}` was launched with arguments that it does not take (argument {argument})"),
            )
        }
        Violation::ProcessAborts { call } => {
            (Line::Usage, format!("{call}: the real driver would end the process here"))
        }
        Violation::EventOutlivesStream { event, call } => {
            (Line::S6, format!("{call} used {event} after the end of the stream that it was recorded on"))
        }
        other => contract_broken(other, &context, findings),
    };
    findings.violation(line, message);
}

/// What a caller must not do, by the contract of the driver's calls.
fn contract_broken(violation: Violation, context: &Context, findings: &Findings) -> (Line, String) {
    match violation {
        Violation::Refused { thread, call, code } => {
            let must = must_not(call.name(), code);
            (refused_line(call.name(), code), format!("{call} on host thread {thread} was refused ({code}): {must}"))
        }
        Violation::WrongFree { thread, call, address } => (
            Line::O6,
            format!("{call} on host thread {thread} was given {address:#x}, which is not of that call's memory"),
        ),
        Violation::OverlappingCopy { bytes, .. } => {
            (Line::Usage, format!("{}: source and target share bytes within its {bytes}", context.who))
        }
        Violation::CapturingStreamDestroyed { thread, stream, capture } => {
            (Line::C7, format!("host thread {thread} destroyed {stream} while it captured {capture}"))
        }
        Violation::HostAccess { thread, why, address, bytes, access } => {
            let host = Context { who: format!("host thread {thread}"), ..Context::default() };
            let line = if why == BadAccess::OutOfRange { Line::Usage } else { Line::P4 };
            (line, access_message(why, access, address, bytes, &host))
        }
        Violation::CodeInUse { thread, .. } => (
            Line::C4,
            format!("host thread {thread} unloaded a module while {}, which runs it, was pending", context.who),
        ),
        Violation::CodeGone { thread, kernel } => {
            let kernel = findings.kernel(kernel);
            (
                Line::C4,
                format!("host thread {thread} launched a graph with kernel `{kernel}`, whose module was unloaded"),
            )
        }
        other => (Line::Usage, format!("{other:?}")),
    }
}

fn refused_line(call: &str, code: Code) -> Line {
    match (call, code) {
        ("host_unregister", _) => Line::P5,
        ("capture_end", _) => Line::C7,
        ("copy" | "copy_and_wait", _) => Line::P2,
        _ => Line::Usage,
    }
}

fn must_not(call: &str, code: Code) -> &'static str {
    match (call, code) {
        ("host_unregister", Code::NOT_REGISTERED) => "nothing is registered there, or no more",
        ("host_unregister", _) => "no registration begins there",
        ("event_elapsed", _) => "both events must be timed, recorded and complete",
        ("capture_end", Code::CAPTURE_UNJOINED) => "a stream that joined the capture was not joined back",
        ("capture_end", Code::CAPTURE_UNMATCHED) => "the capture did not begin on this stream",
        ("capture_end", Code::CAPTURE_WRONG_THREAD) => "another thread began the capture, in a mode that is its own",
        ("capture_end", _) => "no capture goes on there",
        ("copy" | "copy_and_wait", _) => "it would cross the end of a registration in which it begins",
        ("launch", _) => "the grid or the block is empty, or larger than a device takes",
        ("graph_launch", _) => "the memory that an earlier launch of it allocated was not freed",
        _ => "the call's contract forbids it",
    }
}

fn access_line(why: BadAccess, context: &Context) -> Line {
    match why {
        BadAccess::Freed if context.in_graph => Line::C4,
        BadAccess::Freed => Line::O6,
        BadAccess::NotYetAllocated => Line::O1,
        BadAccess::Unregistered => Line::P3,
        BadAccess::HostMemoryGone => Line::P4,
        BadAccess::OutOfRange if context.beside_registration => Line::P2,
        BadAccess::OutOfRange | BadAccess::ReadOnly | BadAccess::Misaligned | BadAccess::Wild => Line::Usage,
    }
}

fn access_message(why: BadAccess, access: Access, address: u64, bytes: u64, context: &Context) -> String {
    let verb = if access == Access::Read { "reads" } else { "writes" };
    let why = match why {
        BadAccess::OutOfRange => "which reaches past the end of that memory",
        BadAccess::Freed => "which was freed",
        BadAccess::NotYetAllocated => "whose allocation had not run",
        BadAccess::Unregistered => "which is not registered, or no more",
        BadAccess::HostMemoryGone => "whose owner gave it back to the system",
        BadAccess::ReadOnly => "which may only be read",
        BadAccess::Misaligned => "which is not aligned for the element type",
        BadAccess::Wild => "which names nothing",
    };
    format!("{} {verb} {bytes} bytes at {address:#x}, {why}", context.who)
}

fn stale_line(call: &str, handle: u64) -> Line {
    if call.starts_with("stream") || is_stream(handle) { Line::S6 } else { Line::O7 }
}
