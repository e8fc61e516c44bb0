//! What a call of HIP or hiprtc returned when it failed.
//!
//! The code is kept as the number it was; its name and text come from the library, so that codes newer than this crate
//! read as the library spells them. Making an error asks the library for both and allocates; nothing else does.

use std::error::Error as StdError;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::sync::Arc;

use tenure::driver::{DriverError, ErrorKind};

use crate::sys::{self, Compiler, Runtime};

/// `hipSuccess` and `HIPRTC_SUCCESS`.
pub(crate) const SUCCESS: c_int = 0;
/// `hipErrorInvalidValue`.
pub(crate) const INVALID_VALUE: c_int = 1;
/// `hipErrorNotReady`: an answer, not a failure.
pub(crate) const NOT_READY: c_int = 600;
/// `hipErrorNotSupported`.
pub(crate) const NOT_SUPPORTED: c_int = 801;
/// `hipErrorUnknown`.
const UNKNOWN: c_int = 999;

/// Where a failure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The library lacks the function, or the device was opened without it. The code is 801, as if it had refused.
    Absent,
    /// `libamdhip64` returned the code. It is 999 where the library called a call a success that made nothing.
    Hip,
    /// `libhiprtc` returned the code, which counts on its own.
    Hiprtc,
    /// This crate refused the argument before the library saw it. The code is 1.
    Refused,
}

/// A failed call.
#[derive(Clone)]
pub struct Error(Arc<Failure>);

#[derive(Debug)]
struct Failure {
    origin: Origin,
    function: &'static str,
    code: c_int,
    name: String,
    text: String,
    log: String,
}

impl Error {
    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        self.0.origin
    }

    /// The C function that failed.
    pub fn function(&self) -> &'static str {
        self.0.function
    }

    /// The library's name for the code, such as `hipErrorNoDevice`; `unknown code 4242` where it has none.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The library's sentence for the code. May be empty.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The compiler's messages. Empty for every other failure.
    pub fn log(&self) -> &str {
        &self.0.log
    }

    /// The failure of `function` of the runtime with `code`.
    #[cold]
    pub(crate) fn hip(runtime: &Runtime, function: &'static str, code: c_int) -> Self {
        if code == sys::ABSENT {
            return Self::absent(function);
        }
        forget_last(runtime);
        // SAFETY: H1. Any number may be asked for; unknown ones have a name of their own.
        let name = text_of(unsafe { runtime.hipGetErrorName(code) });
        // SAFETY: H1. As above.
        let text = text_of(unsafe { runtime.hipGetErrorString(code) });
        // Libraries call every code that they do not know "hipErrorUnknown".
        let known = !name.is_empty() && (code == UNKNOWN || name != "hipErrorUnknown");
        let (name, text) = if known { (name, text) } else { (format!("unknown code {code}"), String::new()) };
        Self::new(Origin::Hip, function, code, name, text)
    }

    /// The failure of `function` of the compiler with `code`.
    #[cold]
    pub(crate) fn hiprtc(compiler: &Compiler, function: &'static str, code: c_int, log: String) -> Self {
        if code == sys::ABSENT {
            return Self::absent(function);
        }
        // SAFETY: H1. Any number may be asked for.
        let name = text_of(unsafe { compiler.hiprtcGetErrorString(code) });
        let name = if name.is_empty() { format!("unknown code {code}") } else { name };
        Self(Arc::new(Failure { origin: Origin::Hiprtc, function, code, name, text: String::new(), log }))
    }

    /// This crate refuses an argument of `function`.
    #[cold]
    pub(crate) fn refused(function: &'static str, text: impl Into<String>) -> Self {
        Self::new(Origin::Refused, function, INVALID_VALUE, "refused argument".into(), text.into())
    }

    /// The library calls `function` a success, and gave nothing.
    #[cold]
    pub(crate) fn nothing(function: &'static str) -> Self {
        let text = "the library reports success and gave nothing".into();
        Self::new(Origin::Hip, function, UNKNOWN, "nothing made".into(), text)
    }

    #[cold]
    fn absent(function: &'static str) -> Self {
        let text = "the loaded library does not have this function".into();
        Self::new(Origin::Absent, function, NOT_SUPPORTED, "missing function".into(), text)
    }

    /// A function that is not called, because the device was opened without what it is for.
    #[cold]
    pub(crate) fn unsupported(function: &'static str, text: &str) -> Self {
        Self::new(Origin::Absent, function, NOT_SUPPORTED, "not supported".into(), text.into())
    }

    fn new(origin: Origin, function: &'static str, code: c_int, name: String, text: String) -> Self {
        Self(Arc::new(Failure { origin, function, code, name, text, log: String::new() }))
    }
}

impl DriverError for Error {
    fn kind(&self) -> ErrorKind {
        match self.0.origin {
            Origin::Hip => kind_of_hip(self.0.code),
            Origin::Hiprtc => kind_of_hiprtc(self.0.code),
            Origin::Absent => ErrorKind::NotSupported,
            Origin::Refused => ErrorKind::InvalidValue,
        }
    }

    fn code(&self) -> i32 {
        self.0.code
    }
}

impl StdError for Error {}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { function, code, name, text, log, .. } = &*self.0;
        write!(f, "{function}: {name} ({code})")?;
        if !text.is_empty() && text != name {
            write!(f, ": {text}")?;
        }
        if !log.is_empty() {
            write!(f, "\n{}", log.trim_end())?;
        }
        Ok(())
    }
}

/// The shared word for a code of HIP. The numbers are CUDA's, and the same from 5.2 to 7.14.
///
/// | codes | meaning |
/// |---|---|
/// | 53, 214, 700, 702, 710, 719 | the device, or its context, is beyond use: a fault, an abort, a time limit |
/// | 4 | the runtime has been torn down, at the end of the process |
/// | 3, 35, 100, 101 | no device: which one depends on the version and on which call came first |
/// | 900 to 910 | captures and graphs |
fn kind_of_hip(code: c_int) -> ErrorKind {
    match code {
        1 | 9 | 12 | 17 | 21 | 200 | 209 | 218 | 701 | 720 => ErrorKind::InvalidValue,
        2 => ErrorKind::OutOfMemory,
        3 | 35 | 100 | 101 => ErrorKind::NoDevice,
        4 => ErrorKind::DriverGone,
        98 | 201 | 400 | 709 => ErrorKind::InvalidHandle,
        53 | 214 | 700 | 702 | 710 | 719 => ErrorKind::DeviceLost,
        301 | 302 | 500 => ErrorKind::NotFound,
        401 => ErrorKind::IllegalState,
        712 => ErrorKind::AlreadyRegistered,
        713 => ErrorKind::NotRegistered,
        800 => ErrorKind::NotPermitted,
        801 => ErrorKind::NotSupported,
        900 => ErrorKind::CaptureUnsupported,
        901 => ErrorKind::CaptureInvalidated,
        902 => ErrorKind::CaptureMerge,
        903 => ErrorKind::CaptureUnmatched,
        904 => ErrorKind::CaptureUnjoined,
        905 | 906 => ErrorKind::CaptureIsolation,
        907 => ErrorKind::CapturedEvent,
        908 => ErrorKind::CaptureWrongThread,
        910 => ErrorKind::GraphUpdateRefused,
        _ => ErrorKind::Unknown,
    }
}

/// The shared word for a code of hiprtc: 0 to 11, as nvrtc numbers them.
fn kind_of_hiprtc(code: c_int) -> ErrorKind {
    match code {
        1 => ErrorKind::OutOfMemory,
        3..=6 => ErrorKind::InvalidValue,
        10 => ErrorKind::NotFound,
        _ => ErrorKind::Unknown,
    }
}

/// Makes the library forget the calling thread's last error, which whoever asks next in this thread would take for its own.
#[cold]
pub(crate) fn forget_last(runtime: &Runtime) {
    // SAFETY: H1. It takes nothing.
    let _ = unsafe { runtime.hipGetLastError() };
}

/// Whether a call went well whose failure nobody is told of; its error is forgotten.
pub(crate) fn went_well(runtime: &Runtime, code: c_int) -> bool {
    let well = code == SUCCESS;
    if !well {
        forget_last(runtime);
    }
    well
}

/// A copy of a string of the library; empty where it gave none.
pub(crate) fn text_of(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: H5. Not null, and the library's own constant.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_function_reads_as_not_supported() {
        let error = Error::hip(&Runtime::default(), "hipLaunchHostFunc", sys::ABSENT);
        assert_eq!((error.kind(), error.code(), error.origin()), (ErrorKind::NotSupported, 801, Origin::Absent));
        assert!(error.to_string().starts_with("hipLaunchHostFunc: missing function (801)"), "{error}");
    }

    #[test]
    fn a_code_that_nobody_knows_is_kept() {
        for code in [916, 4242, -1, c_int::MAX] {
            let error = Error::hip(&Runtime::default(), "hipFree", code);
            assert_eq!((error.kind(), error.code()), (ErrorKind::Unknown, code));
            assert_eq!(error.to_string(), format!("hipFree: unknown code {code} ({code})"));
        }
    }

    #[test]
    fn only_faults_and_the_end_are_sticky() {
        let sticky: Vec<c_int> = (0..2000).filter(|code| kind_of_hip(*code).is_sticky()).collect();
        assert_eq!(sticky, [4, 53, 214, 700, 702, 710, 719]);
    }
}
