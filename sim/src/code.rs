//! The numbers that CUDA and HIP give for errors, with their names and the words that all backends share.
//!
//! HIP took its numbers from CUDA, so that one table serves every profile. A number without a name is data too.

use std::fmt;

use tenure::driver::{DriverError, ErrorKind};

/// The number of a driver's answer. Zero is success and two are answers rather than faults: see [`Code::NOT_READY`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($(#[$doc:meta])* $constant:ident = $number:literal, $name:literal, $kind:ident;)*) => {
        impl Code {
            $($(#[$doc])* pub const $constant: Self = Self($number);)*

            /// Every code that has a name, in the order of the numbers.
            pub const NAMED: &'static [Self] = &[$(Self::$constant),*];

            /// The name without its vendor's prefix, as in `StreamCaptureIsolation`; `Unknown` for a number without
            /// one.
            pub fn name(self) -> &'static str {
                match self.0 {
                    $($number => $name,)*
                    _ => "Unknown",
                }
            }

            /// The shared word for it.
            pub fn kind(self) -> ErrorKind {
                match self.0 {
                    $($number => ErrorKind::$kind,)*
                    _ => ErrorKind::Unknown,
                }
            }
        }
    };
}

codes! {
    /// No error.
    SUCCESS = 0, "Success", Unknown;
    /// An argument was refused.
    INVALID_VALUE = 1, "InvalidValue", InvalidValue;
    /// Memory ran out.
    MEMORY_ALLOCATION = 2, "MemoryAllocation", OutOfMemory;
    /// The driver is being unloaded.
    DRIVER_UNLOADING = 4, "CudartUnloading", DriverGone;
    /// No device can be used.
    NO_DEVICE = 100, "NoDevice", NoDevice;
    /// A handle was refused.
    INVALID_HANDLE = 400, "InvalidResourceHandle", InvalidHandle;
    /// The stream or event is in a state that does not allow the call.
    ILLEGAL_STATE = 401, "IllegalState", IllegalState;
    /// The name was not found.
    NOT_FOUND = 500, "SymbolNotFound", NotFound;
    /// Not an error: the work that a query asked about has not completed.
    NOT_READY = 600, "NotReady", Unknown;
    /// A kernel or copy touched memory that it must not; the device is lost.
    ILLEGAL_ADDRESS = 700, "IllegalAddress", DeviceLost;
    /// What HIP gave for a stream that is no more, up to 6.4.
    CONTEXT_IS_DESTROYED = 709, "ContextIsDestroyed", InvalidHandle;
    /// The memory, or a part of it, is registered already.
    ALREADY_REGISTERED = 712, "HostMemoryAlreadyRegistered", AlreadyRegistered;
    /// The memory is not registered.
    NOT_REGISTERED = 713, "HostMemoryNotRegistered", NotRegistered;
    /// A kernel failed; the device is lost.
    LAUNCH_FAILURE = 719, "LaunchFailure", DeviceLost;
    /// The call is not allowed here: inside a host function.
    NOT_PERMITTED = 800, "NotPermitted", NotPermitted;
    /// The backend does not have the call.
    NOT_SUPPORTED = 801, "NotSupported", NotSupported;
    /// The call is refused while a capture is going on.
    CAPTURE_UNSUPPORTED = 900, "StreamCaptureUnsupported", CaptureUnsupported;
    /// The capture had been broken by an earlier call.
    CAPTURE_INVALIDATED = 901, "StreamCaptureInvalidated", CaptureInvalidated;
    /// Two captures would have become one.
    CAPTURE_MERGE = 902, "StreamCaptureMerge", CaptureMerge;
    /// The capture was not begun on this stream.
    CAPTURE_UNMATCHED = 903, "StreamCaptureUnmatched", CaptureUnmatched;
    /// A forked stream was not joined.
    CAPTURE_UNJOINED = 904, "StreamCaptureUnjoined", CaptureUnjoined;
    /// The capture would have depended on work outside of it.
    CAPTURE_ISOLATION = 905, "StreamCaptureIsolation", CaptureIsolation;
    /// A call on the legacy stream would have depended on a capture.
    CAPTURE_IMPLICIT = 906, "StreamCaptureImplicit", CaptureIsolation;
    /// The event was last recorded in a capture.
    CAPTURED_EVENT = 907, "CapturedEvent", CapturedEvent;
    /// The capture was begun by another thread.
    CAPTURE_WRONG_THREAD = 908, "StreamCaptureWrongThread", CaptureWrongThread;
    /// The graph's shape differs from the executable's.
    GRAPH_UPDATE_REFUSED = 910, "GraphExecUpdateFailure", GraphUpdateRefused;
    /// A code without a better word.
    UNKNOWN = 999, "Unknown", Unknown;
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.name())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl std::error::Error for Code {}

impl DriverError for Code {
    fn kind(&self) -> ErrorKind {
        Code::kind(*self)
    }

    fn code(&self) -> i32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_kinds_agree() {
        assert_eq!(Code(712), Code::ALREADY_REGISTERED);
        assert_eq!(Code(712).name(), "HostMemoryAlreadyRegistered");
        assert_eq!(Code(712).kind(), ErrorKind::AlreadyRegistered);
        assert_eq!(Code(12345).kind(), ErrorKind::Unknown);
        assert_eq!(Code(700).to_string(), "IllegalAddress (700)");
        assert!(Code(700).kind().is_sticky() && Code(719).kind().is_sticky());
    }

    #[test]
    fn the_table_is_sorted_and_has_no_number_twice() {
        assert!(Code::NAMED.windows(2).all(|pair| pair[0] < pair[1]), "the table of codes is out of order");
    }
}
