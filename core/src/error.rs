//! What can go wrong, and whose call it belongs to (R7).

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

pub use crate::driver::ErrorKind;
use crate::driver::{Call, DriverError};

/// The result of a call into this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A driver call that failed: which one, and what the driver said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverFailure {
    /// The call.
    pub call: Call,
    /// The shared word for the error.
    pub kind: ErrorKind,
    /// The driver's own number.
    pub code: i32,
    /// The driver's own text.
    pub message: String,
}

impl DriverFailure {
    pub(crate) fn new<E: DriverError>(call: Call, error: &E) -> Arc<Self> {
        Arc::new(Self { call, kind: error.kind(), code: error.code(), message: error.to_string() })
    }
}

impl DriverFailure {
    /// A driver reported success and gave no memory.
    pub(crate) fn null(call: Call) -> Arc<Self> {
        let message = "success, but no memory".to_owned();
        Arc::new(Self { call, kind: ErrorKind::OutOfMemory, code: 0, message })
    }
}

impl fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed with code {}: {}", self.call, self.code, self.message)
    }
}

impl StdError for DriverFailure {}

/// An error of this crate.
///
/// Whatever the call was given is still the caller's or was given back: a failed call loses nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Too much that was let go waits for the device, or adopted streams have become too many: nothing is made that would
    /// add to it, until some of it has gone (R12).
    Backlog {
        /// How many things wait, or adopted streams there are.
        pending: usize,
        /// How many there may be: [`Config::backlog_max`](crate::Config::backlog_max) or
        /// [`Config::adopted_max`](crate::Config::adopted_max).
        max: usize,
    },
    /// The runtime was shut down.
    Closed,
    /// The driver refused a call that this operation needed.
    Driver(Arc<DriverFailure>),
    /// The device is gone; the failure is the one that showed it (R6).
    Lost(Arc<DriverFailure>),
    /// The call cannot be made, here or with these arguments.
    Misuse(Misuse),
    /// Host memory cannot be registered as asked.
    Pin(PinError),
    /// A stream that the operation depends on was given up after this earlier failure (S7).
    StreamBroken(Arc<DriverFailure>),
    /// All streams that the pool may make are leased or busy.
    StreamLimit {
        /// The pool's cap.
        cap: usize,
    },
}

/// What call order or arguments cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// An adopted stream is capturing: the core cannot order work with it.
    AdoptedStreamCaptures,
    /// The queues belong to two captures (C9).
    ForeignCapture,
    /// Other clones of the handle of the adopted stream live: its adoption cannot be ended.
    AdoptionShared,
    /// The handles belong to two runtimes.
    ForeignRuntime,
    /// The runtime is of the process that this one was forked from: its threads, and the driver's, are not here.
    Forked,
    /// The host holds a view of the memory: end it first.
    HostView,
    /// The call would wait, and is made inside a capture (C9).
    InsideCapture,
    /// The call would wait, and is made inside a `use_on` closure or a host function.
    InsideHold,
    /// The two sides of a copy, or a range and its buffer, differ in length.
    LengthMismatch {
        /// Elements needed.
        expected: usize,
        /// Elements given.
        actual: usize,
    },
    /// Host memory is not aligned for its elements.
    Misaligned {
        /// What they need, in bytes.
        align: usize,
    },
    /// The stream is not an adopted one.
    NotAdopted,
    /// An owner's drop, or a waker, panicked in a release. The panic hook has told of it, and the release went on (R4).
    PanickedInRelease,
    /// A graph could outlive the scope whose memory it would use.
    ScopedInCapture,
    /// A size in bytes does not fit.
    SizeOverflow,
}

/// Why host memory cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinError {
    /// A live registration covers only a part of the range: it would have to grow (P2).
    Larger {
        /// Bytes that are registered.
        registered: usize,
        /// Bytes that were asked for.
        wanted: usize,
    },
    /// The range overlaps a live registration, of this process or of other code in it, without lying in one (P8, P10).
    Overlap,
    /// A failed unregister left the range in quarantine (P9).
    Quarantined,
    /// The registration that covers the range lets the device only read it (P15): end the wraps that are read from first.
    ReadOnly,
    /// The registration that covers the range belongs to a scope, which ends it without asking others (P4).
    Scoped,
    /// Work on the memory is not known to have ended: it stays registered and alive (P11).
    StillInUse,
    /// Other wraps, or graphs, still use the registration.
    Shared,
    /// What was wrapped is of another type, or nobody's.
    OwnerType,
}

impl Error {
    /// The driver call that failed, or that caused this error.
    pub fn failure(&self) -> Option<&DriverFailure> {
        match self {
            Self::Driver(failure) | Self::Lost(failure) | Self::StreamBroken(failure) => Some(failure),
            _ => None,
        }
    }
}

impl From<Misuse> for Error {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

impl From<PinError> for Error {
    fn from(error: PinError) -> Self {
        Self::Pin(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backlog { pending, max } => {
                write!(f, "too much waits for the device: {pending} things, and there may be {max}")
            }
            Self::Closed => f.write_str("the runtime was shut down"),
            Self::Driver(failure) => failure.fmt(f),
            Self::Lost(failure) => write!(f, "the device is lost, since {failure}"),
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::Pin(error) => error.fmt(f),
            Self::StreamBroken(failure) => write!(f, "the stream was given up, since {failure}"),
            Self::StreamLimit { cap } => write!(f, "all {cap} streams of the pool are in use"),
        }
    }
}

/// It has no source: its text has the cause in full, and [`Error::failure`] gives the driver's part.
impl StdError for Error {}

impl StdError for Misuse {}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AdoptedStreamCaptures => f.write_str("the adopted stream is capturing"),
            Self::ForeignCapture => f.write_str("the queues belong to two captures"),
            Self::AdoptionShared => f.write_str("other handles of the adopted stream live"),
            Self::NotAdopted => f.write_str("the stream is not an adopted one"),
            Self::ForeignRuntime => f.write_str("the handles belong to two runtimes"),
            Self::Forked => f.write_str("the runtime is of the process that this one was forked from"),
            Self::HostView => f.write_str("the host holds a view of the memory"),
            Self::InsideCapture => f.write_str("the call would wait inside a capture"),
            Self::InsideHold => f.write_str("the call would wait inside a use_on closure"),
            Self::LengthMismatch { expected, actual } => {
                write!(f, "{expected} elements are needed, {actual} were given")
            }
            Self::Misaligned { align } => write!(f, "the elements need memory that is aligned to {align} bytes"),
            Self::PanickedInRelease => f.write_str("an owner's drop, or a waker, panicked in a release, which went on"),
            Self::ScopedInCapture => f.write_str("a graph could outlive the scope of this memory"),
            Self::SizeOverflow => f.write_str("the size in bytes does not fit"),
        }
    }
}

impl StdError for PinError {}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Larger { registered, wanted } => {
                write!(f, "only {registered} of the {wanted} bytes are registered, by a wrap that still lives")
            }
            Self::Overlap => f.write_str("the range overlaps a live registration without lying in it"),
            Self::Quarantined => f.write_str("the range is in quarantine after a failed unregister"),
            Self::ReadOnly => f.write_str("the registration that covers the range lets the device only read"),
            Self::Scoped => f.write_str("the registration belongs to a scope"),
            Self::StillInUse => f.write_str("work on the memory is not known to have ended"),
            Self::Shared => f.write_str("other wraps, or graphs, still use the registration"),
            Self::OwnerType => f.write_str("what was wrapped is of another type, or nobody's"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_its_cause_once() {
        let failure = DriverFailure::null(Call::Malloc);
        let causes = [
            Error::Driver(failure.clone()),
            Error::Lost(failure.clone()),
            Error::StreamBroken(failure.clone()),
            Misuse::InsideHold.into(),
            PinError::Overlap.into(),
        ];
        for error in causes {
            let whole = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                assert!(!whole.contains(&cause.to_string()), "{whole:?} is told again as {cause}");
                source = cause.source();
            }
            assert_eq!(error.failure().is_some(), whole.contains(&failure.to_string()), "{whole}");
        }
    }

    #[test]
    fn the_parts_of_an_error_are_errors() {
        fn text(error: &dyn StdError) -> String {
            error.to_string()
        }
        assert_eq!(text(&Misuse::Forked), Error::from(Misuse::Forked).to_string());
        assert_eq!(text(&PinError::Shared), Error::from(PinError::Shared).to_string());
    }
}
