//! Calls that the driver trait does not have: those that only other code of a process makes.

use std::ffi::{CStr, CString, c_int, c_uint, c_ulonglong, c_void};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::OnceLock;

use tenure::driver::{DeviceAddress, Driver, HostAccess, HostPointer, Location, Priority};
use tenure_hip::Hip;
use tenure_sim::driver::Sim;
use tenure_sim::driver::SimStream;

use super::bed::{code, progress};

/// A call that is refused, and whose last error is then looked at.
#[derive(Clone, Copy, Debug)]
pub enum Plain {
    Register(HostPointer, usize),
    IsRegistered(HostPointer),
    DeviceAddressOf(HostPointer),
    Malloc(u64),
}

/// The bare library of a driver.
pub trait Raw: Driver {
    fn null_stream(&self) -> Self::Stream;
    /// The calling thread's own default stream.
    fn own_stream(&self) -> Self::Stream;
    fn blocking_stream(&self) -> Result<Self::Stream, String>;
    /// The plain copy, on the null stream.
    fn copy_and_wait(&self, to: Location, from: Location, bytes: u64) -> i32;
    /// The plain fill, on the null stream.
    fn fill_and_wait(&self, at: DeviceAddress, bytes: u64) -> i32;
    fn record_external(&self, event: &Self::Event, stream: &Self::Stream) -> i32;
    fn capture_number(&self, stream: &Self::Stream) -> u64;
    fn reset(&self) -> i32;
    fn device_synchronize(&self) -> i32;
    /// The thread's last error, which it forgets.
    fn take_last_error(&self) -> i32;
    /// A call as other code makes it: what it leaves behind stays.
    fn plainly(&self, call: Plain) -> i32;
    fn query_plainly(&self, stream: &Self::Stream) -> i32;
    fn copy_plainly(&self, stream: &Self::Stream, to: Location, from: Location, bytes: u64) -> i32;
}

impl Raw for Sim {
    fn null_stream(&self) -> SimStream {
        SimStream::legacy()
    }

    fn own_stream(&self) -> SimStream {
        SimStream::per_thread()
    }

    fn blocking_stream(&self) -> Result<SimStream, String> {
        self.stream_create_with(Priority::Normal, true).map_err(|error| error.to_string())
    }

    fn copy_and_wait(&self, to: Location, from: Location, bytes: u64) -> i32 {
        // SAFETY: O1. Memory of the probe's own, which lives until the end of the process.
        code(unsafe { Self::copy_and_wait(self, to, from, bytes) })
    }

    fn fill_and_wait(&self, at: DeviceAddress, bytes: u64) -> i32 {
        // SAFETY: O1. Memory of the probe's own.
        code(unsafe { Self::fill_and_wait(self, at, 0, bytes) })
    }

    fn record_external(&self, event: &Self::Event, stream: &SimStream) -> i32 {
        code(self.event_record_external(event, stream))
    }

    fn capture_number(&self, stream: &SimStream) -> u64 {
        Self::capture_number(self, stream).unwrap_or(0)
    }

    fn reset(&self) -> i32 {
        code(self.reset_device())
    }

    fn device_synchronize(&self) -> i32 {
        code(Self::device_synchronize(self))
    }

    fn take_last_error(&self) -> i32 {
        Self::take_last_error(self).0
    }

    fn plainly(&self, call: Plain) -> i32 {
        self.foreign(|| match call {
            Plain::Register(base, bytes) => {
                // SAFETY: P4. The probe's host memory is never given back.
                code(unsafe { self.host_register(base, bytes, HostAccess::ReadWrite) })
            }
            Plain::IsRegistered(pointer) => code(self.host_is_registered(pointer)),
            Plain::DeviceAddressOf(pointer) => code(self.host_device_address(pointer)),
            Plain::Malloc(bytes) => code(self.malloc(bytes)),
        })
    }

    fn query_plainly(&self, stream: &SimStream) -> i32 {
        self.foreign(|| progress(self.stream_query(stream)))
    }

    fn copy_plainly(&self, stream: &SimStream, to: Location, from: Location, bytes: u64) -> i32 {
        // SAFETY: O1. Memory of the probe's own, which lives until the end of the process.
        self.foreign(|| code(unsafe { self.copy(stream, to, from, bytes) }))
    }
}

// --- the library behind a HIP device

/// What a function gives that the library does not have.
const ABSENT: c_int = c_int::MIN;
const NAMES: [&str; 4] = ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];
const COPY_BY_ADDRESS: c_int = 4;
const RECORD_EXTERNAL: c_uint = 1;
/// `hipStreamPerThread`.
const OWN_STREAM: usize = 2;

/// The function of this name in the library that the driver has opened.
fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        let named = std::env::var_os("TENURE_HIP_LIBRARY").map(PathBuf::from);
        let names = named.into_iter().chain(NAMES.map(PathBuf::from));
        let open = |name: PathBuf| {
            let name = CString::new(name.into_os_string().into_encoded_bytes()).ok()?;
            // SAFETY: H1. It opens nothing: the library is there already, and stays.
            NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) })
        };
        names.filter_map(open).map(|library| library.as_ptr().expose_provenance()).next().unwrap_or(0)
    });
    // SAFETY: H1. A library that is never closed, or none: then the program's own symbols are searched.
    NonNull::new(unsafe { libc::dlsym(std::ptr::with_exposed_provenance_mut(library), name.as_ptr()) })
}

/// Calls a C function by name; its code, or [`ABSENT`].
macro_rules! call {
    ($name:literal($($kind:ty = $argument:expr),*)) => {
        symbol($name).map_or(ABSENT, |found| {
            // SAFETY: H1. The function of this name has these parameters in every version of HIP, and the arguments are
            // the probe's own: live handles, and memory that lives until the end of the process.
            unsafe {
                let function = std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> c_int>(found.as_ptr());
                function($($argument),*)
            }
        })
    };
}

type Handle = *mut c_void;

fn raw(location: Location) -> Handle {
    match location {
        Location::Device(address) => std::ptr::with_exposed_provenance_mut(address.0 as usize),
        Location::Host(pointer) => pointer.0.as_ptr().cast(),
    }
}

impl Raw for Hip {
    fn null_stream(&self) -> Self::Stream {
        // SAFETY: H2. The probe only launches on it, asks and waits; it captures no default stream.
        unsafe { Self::Stream::from_raw(std::ptr::null_mut()) }
    }

    fn own_stream(&self) -> Self::Stream {
        // SAFETY: H2. The same as for `null_stream`, and the probe has one thread here.
        unsafe { Self::Stream::from_raw(std::ptr::without_provenance_mut(OWN_STREAM)) }
    }

    fn blocking_stream(&self) -> Result<Self::Stream, String> {
        let mut stream: Handle = std::ptr::null_mut();
        let made = call!(c"hipStreamCreateWithPriority"(*mut Handle = &mut stream, c_uint = 0, c_int = 0));
        if made != 0 {
            return Err(format!("no blocking stream: {made}"));
        }
        // SAFETY: H2. Made just now, and never destroyed.
        Ok(unsafe { Self::Stream::from_raw(stream) })
    }

    fn copy_and_wait(&self, to: Location, from: Location, bytes: u64) -> i32 {
        let bytes = bytes as usize;
        call!(c"hipMemcpy"(Handle = raw(to), Handle = raw(from), usize = bytes, c_int = COPY_BY_ADDRESS))
    }

    fn fill_and_wait(&self, at: DeviceAddress, bytes: u64) -> i32 {
        call!(c"hipMemset"(Handle = raw(Location::Device(at)), c_int = 0, usize = bytes as usize))
    }

    fn record_external(&self, event: &Self::Event, stream: &Self::Stream) -> i32 {
        let (event, stream) = (event.as_raw(), stream.as_raw());
        call!(c"hipEventRecordWithFlags"(Handle = event, Handle = stream, c_uint = RECORD_EXTERNAL))
    }

    fn capture_number(&self, stream: &Self::Stream) -> u64 {
        let (mut status, mut number): (c_int, c_ulonglong) = (0, 0);
        let (status, to) = (&mut status, &mut number);
        let asked = call!(c"hipStreamGetCaptureInfo"(
            Handle = stream.as_raw(), *mut c_int = status, *mut c_ulonglong = to));
        if asked == 0 { number } else { 0 }
    }

    fn reset(&self) -> i32 {
        call!(c"hipDeviceReset"())
    }

    fn device_synchronize(&self) -> i32 {
        call!(c"hipDeviceSynchronize"())
    }

    fn take_last_error(&self) -> i32 {
        call!(c"hipGetLastError"())
    }

    fn plainly(&self, call: Plain) -> i32 {
        let mut place: Handle = std::ptr::null_mut();
        let place = &mut place;
        match call {
            Plain::Register(base, bytes) => {
                call!(c"hipHostRegister"(Handle = base.0.as_ptr().cast(), usize = bytes, c_uint = 0))
            }
            Plain::IsRegistered(pointer) => {
                let mut attributes = [0_u64; 16];
                let attributes = attributes.as_mut_ptr().cast();
                call!(c"hipPointerGetAttributes"(Handle = attributes, Handle = pointer.0.as_ptr().cast()))
            }
            Plain::DeviceAddressOf(pointer) => {
                let pointer = pointer.0.as_ptr().cast();
                call!(c"hipHostGetDevicePointer"(*mut Handle = place, Handle = pointer, c_uint = 0))
            }
            Plain::Malloc(bytes) => call!(c"hipMalloc"(*mut Handle = place, usize = bytes as usize)),
        }
    }

    fn query_plainly(&self, stream: &Self::Stream) -> i32 {
        call!(c"hipStreamQuery"(Handle = stream.as_raw()))
    }

    fn copy_plainly(&self, stream: &Self::Stream, to: Location, from: Location, bytes: u64) -> i32 {
        let (bytes, stream) = (bytes as usize, stream.as_raw());
        call!(c"hipMemcpyAsync"(
            Handle = raw(to),
            Handle = raw(from),
            usize = bytes,
            c_int = COPY_BY_ADDRESS,
            Handle = stream
        ))
    }
}
