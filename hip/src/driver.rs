//! [`Hip`]: one device behind core's [`Driver`].
//!
//! Costs: a call adds a branch on the table and, where the process sees several devices, one `hipGetDevice`. A launch
//! allocates nothing up to 128 arguments. A host function costs one entry in a table and one look at the stream's
//! capture.
//!
//! | what the library does | what this driver does about it |
//! |---|---|
//! | acts on the calling thread's device | sets its own around each call where there are several, and sets the old one back |
//! | calls a host function that was captured at every launch | keeps it as long as the graph and its executables |
//! | leaves a stream broken after its broken capture was ended (AMD) | begins and ends an empty relaxed capture on it |
//! | looks pointers up without its own lock (AMD) | keeps look-ups away from register and unregister, process-wide |
//! | refuses the flag for memory that the device only reads (5.x, some systems) | registers without it |
//! | gives pooled memory back to the system at every wait | raises the default pool's threshold: [`Options::pool_retention_bytes`] |
//!
//! | keeps a thread's last error, which other code of the thread would take for its own | makes it forget that of a failed call |
//!
//! Nothing here holds a lock across a call of the library, with one exception: register, unregister and, on AMD,
//! look-ups share one (P6).

mod device;
mod handle;
mod host_function;

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_ulonglong, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure::driver::{
    Argument, Capabilities, CaptureMode, CaptureStatus, DeviceAddress, Driver, DriverError, ErrorKind,
    GraphDescription, HostAccess, HostFunction, HostPointer, Image, LaunchConfig, Location, Priority, Progress, Timing,
};

pub use self::device::DeviceInfo;
pub(crate) use self::device::device_info;
pub use self::handle::{Event, Executable, Function, Graph, Module, Stream};
use self::host_function::{Pending, Recording};
use crate::error::{Error, NOT_READY, SUCCESS, forget_last, went_well};
use crate::kernel::{Code, CompileOptions, Hiprtc, image};
use crate::load::{self, Library, LoadError, Platform};
use crate::profile::Profile;
use crate::sys::{self, Runtime};

/// Arguments of a launch that need no allocation.
const ARGUMENTS_INLINE: usize = 128;

/// What a device is opened with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How kernels from source are compiled. The architecture is the device's where none is named.
    pub compile: CompileOptions,
    /// How many bytes of freed stream-ordered memory the device's default pool keeps instead of giving them back to the
    /// system at the next wait; `None` leaves the pool as it is. All of it by default. Concerns the whole process.
    pub pool_retention_bytes: Option<u64>,
    /// Whether memory is allocated and freed in the order of streams, where device and library can. Default: it is. Where it
    /// is not, such as with a library whose pools are not to be trusted, each free waits for the whole device.
    pub stream_ordered_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { compile: CompileOptions::default(), pool_retention_bytes: Some(u64::MAX), stream_ordered_memory: true }
    }
}

/// One HIP device.
#[derive(Debug)]
pub struct Hip {
    library: &'static Library,
    device: c_int,
    /// No other device is visible, so every thread is on this one.
    alone: bool,
    capabilities: Capabilities,
    info: DeviceInfo,
    options: Options,
    /// Priorities of the device for low, normal and high.
    priorities: [c_int; 3],
    /// Host functions of captures that have not ended, by the library's number of the capture.
    captured: Mutex<HashMap<c_ulonglong, Vec<Arc<Recording>>>>,
}

impl Hip {
    /// How many devices can be used.
    ///
    /// # Errors
    /// [`LoadError`] where none can: it says why and what to do.
    pub fn devices() -> Result<usize, LoadError> {
        load::usable_library().map(|(_, count)| count)
    }

    /// Opens device `index`, counted from 0.
    ///
    /// # Errors
    /// [`LoadError`] where there is no such device, or none at all.
    ///
    /// # Examples
    /// ```
    /// match tenure_hip::Hip::open(0) {
    ///     Ok(hip) => println!("{}", hip.info()),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    pub fn open(index: usize) -> Result<Self, LoadError> {
        Self::open_with(index, Options::default())
    }

    /// Opens device `index` with options.
    ///
    /// # Errors
    /// The same as for [`open`](Self::open).
    pub fn open_with(index: usize, options: Options) -> Result<Self, LoadError> {
        let (library, count) = load::usable_library()?;
        let device = c_int::try_from(index).ok().filter(|_| index < count);
        let device = device.ok_or(LoadError::NoSuchDevice { index, count })?;
        let mut hip = Self {
            library,
            device,
            alone: count == 1,
            capabilities: Capabilities::default(),
            info: device_info(library, index),
            options,
            priorities: [0; 3],
            captured: Mutex::default(),
        };
        hip.capabilities = hip.detect_capabilities();
        hip.priorities = hip.detect_priorities();
        hip.retain_pool();
        Ok(hip)
    }

    /// Opens every usable device.
    ///
    /// # Errors
    /// The same as for [`open`](Self::open).
    pub fn open_all() -> Result<Vec<Self>, LoadError> {
        (0..Self::devices()?).map(Self::open).collect()
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// How the library behaves.
    pub fn profile(&self) -> Profile {
        self.library.profile
    }

    /// The library's version, such as `7.2.53211` or `CUDA 13.0`.
    pub fn version(&self) -> String {
        self.library.version_text()
    }

    /// Compiles `source` for this device, with the options that it was opened with.
    ///
    /// # Errors
    /// The compiler's, with its messages in [`Error::log`].
    pub fn compile(&self, source: &str) -> Result<Code, Error> {
        let compiler = Hiprtc::open().map_err(|error| Error::refused("hiprtcCompileProgram", error.to_string()))?;
        let mut options = self.options.compile.clone();
        if options.architecture.is_none() && !self.info.architecture.is_empty() {
            options.architecture = Some(self.info.architecture.clone());
        }
        compiler.compile(source, &options)
    }

    fn detect_capabilities(&self) -> Capabilities {
        let runtime = &self.library.runtime;
        let pools = self.options.stream_ordered_memory
            && device::attribute(self.library, sys::ATTRIBUTE_MEMORY_POOLS_SUPPORTED, self.device) == Some(1);
        let mut capabilities = Capabilities::default();
        capabilities.stream_ordered_memory =
            pools && runtime.hipMallocAsync.is_some() && runtime.hipFreeAsync.is_some();
        capabilities.host_functions = runtime.hipLaunchHostFunc.is_some();
        capabilities.relaxed_protects = self.library.profile.relaxed_protects();
        capabilities.relaxed_protects_events = self.library.profile.relaxed_protects_events();
        capabilities.events_outlive_streams = self.library.profile.events_outlive_streams();
        capabilities.refuses_overlap = self.library.profile.refuses_overlap();
        capabilities
    }

    fn detect_priorities(&self) -> [c_int; 3] {
        let (mut least, mut greatest) = (0, 0);
        let code = self.on_device(|runtime| {
            // SAFETY: H3. Two local integers.
            unsafe { runtime.hipDeviceGetStreamPriorityRange(&mut least, &mut greatest) }
        });
        if went_well(&self.library.runtime, code) { [least, 0, greatest] } else { [0; 3] }
    }

    /// Best effort: a pool that cannot be tuned is slower, not wrong.
    fn retain_pool(&self) {
        let Some(mut bytes) = self.options.pool_retention_bytes.filter(|_| self.capabilities.stream_ordered_memory)
        else {
            return;
        };
        let mut pool = std::ptr::null_mut();
        // SAFETY: H3. A local pointer.
        let code = unsafe { self.library.runtime.hipDeviceGetDefaultMemPool(&mut pool, self.device) };
        if went_well(&self.library.runtime, code) {
            let value = (&raw mut bytes).cast();
            // SAFETY: H3. The attribute is a local integer of 64 bits.
            let code = unsafe { self.library.runtime.hipMemPoolSetAttribute(pool, sys::POOL_RELEASE_THRESHOLD, value) };
            went_well(&self.library.runtime, code);
        }
    }

    /// Makes a call on this device, whatever the thread's is, and sets the thread's back.
    #[inline]
    fn on_device(&self, call: impl FnOnce(&Runtime) -> c_int) -> c_int {
        if self.alone { call(&self.library.runtime) } else { self.on_one_of_several(call) }
    }

    fn on_one_of_several(&self, call: impl FnOnce(&Runtime) -> c_int) -> c_int {
        let runtime = &self.library.runtime;
        let mut before = self.device;
        // SAFETY: H3. A local integer.
        let code = unsafe { runtime.hipGetDevice(&mut before) };
        if code != SUCCESS {
            return code;
        }
        if before == self.device {
            return call(runtime);
        }
        // SAFETY: H1. A number of a device that exists.
        let code = unsafe { runtime.hipSetDevice(self.device) };
        if code != SUCCESS {
            return code;
        }
        let code = call(runtime);
        // SAFETY: H1. The number that the library itself gave.
        let back = unsafe { runtime.hipSetDevice(before) };
        went_well(runtime, back);
        code
    }

    #[inline]
    fn check(&self, function: &'static str, code: c_int) -> Result<(), Error> {
        if code == SUCCESS { Ok(()) } else { Err(Error::hip(&self.library.runtime, function, code)) }
    }

    /// The handle that a call made. A library may report success and give none.
    fn made<T>(&self, function: &'static str, code: c_int, raw: *mut T) -> Result<*mut T, Error> {
        self.check(function, code)?;
        if raw.is_null() { Err(Error::nothing(function)) } else { Ok(raw) }
    }

    #[inline]
    fn progress(&self, function: &'static str, code: c_int) -> Result<Progress, Error> {
        match code {
            SUCCESS => Ok(Progress::Complete),
            NOT_READY => {
                if self.library.profile.keeps_not_ready() {
                    forget_last(&self.library.runtime);
                }
                Ok(Progress::Pending)
            }
            code => Err(Error::hip(&self.library.runtime, function, code)),
        }
    }

    /// Never held across a call of the library.
    fn captured(&self) -> MutexGuard<'_, HashMap<c_ulonglong, Vec<Arc<Recording>>>> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The library's number of the capture that `stream` is in.
    fn capture_number(&self, stream: &Stream) -> Result<Option<c_ulonglong>, Error> {
        let (mut status, mut number) = (sys::CAPTURE_STATUS_NONE, 0);
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. A live stream and two local integers.
            unsafe { runtime.hipStreamGetCaptureInfo(stream.raw, &mut status, &mut number) }
        });
        self.check("hipStreamGetCaptureInfo", code)?;
        Ok((status != sys::CAPTURE_STATUS_NONE).then_some(number))
    }

    /// Frees a stream from a broken capture that was ended and still shows: AMD's own reset runs at the end of an empty
    /// capture. Where it does not help, `capture_status` goes on saying so, and the core gives the stream up (S7).
    fn mend(&self, stream: &Stream) {
        let broken = matches!(self.capture_status(stream), Ok(CaptureStatus::Invalidated));
        if self.library.profile.end_resets_capture()
            || !broken
            || self.capture_begin(stream, CaptureMode::Relaxed).is_err()
        {
            return;
        }
        if let Ok(graph) = self.capture_end_raw(stream) {
            let _ = self.graph_destroy(Graph { raw: graph, recordings: Vec::new() });
        }
    }

    fn capture_end_raw(&self, stream: &Stream) -> Result<sys::hipGraph_t, Error> {
        let mut graph = std::ptr::null_mut();
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. A live stream and a local pointer.
            unsafe { runtime.hipStreamEndCapture(stream.raw, &mut graph) }
        });
        self.made("hipStreamEndCapture", code, graph)
    }

    fn register(&self, base: HostPointer, bytes: usize, flags: u32) -> c_int {
        self.on_device(|runtime| {
            // SAFETY: H4. The caller of `host_register` keeps the range mapped.
            unsafe { runtime.hipHostRegister(base.0.as_ptr().cast(), bytes, flags) }
        })
    }

    fn graph_nodes(&self, graph: &Graph) -> Result<Vec<sys::hipGraphNode_t>, Error> {
        let mut count = 0;
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. A live graph; no array asks for the number alone.
            unsafe { runtime.hipGraphGetNodes(graph.raw, std::ptr::null_mut(), &mut count) }
        });
        self.check("hipGraphGetNodes", code)?;
        let mut nodes = vec![std::ptr::null_mut(); count];
        if count > 0 {
            let code = self.on_device(|runtime| {
                // SAFETY: H2, H3. The array has as many places as its number says.
                unsafe { runtime.hipGraphGetNodes(graph.raw, nodes.as_mut_ptr(), &mut count) }
            });
            self.check("hipGraphGetNodes", code)?;
        }
        nodes.truncate(count);
        Ok(nodes)
    }

    fn graph_edges(&self, graph: &Graph) -> Result<Vec<(sys::hipGraphNode_t, sys::hipGraphNode_t)>, Error> {
        let (mut count, null) = (0, std::ptr::null_mut());
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. A live graph; no arrays ask for the number alone.
            unsafe { runtime.hipGraphGetEdges(graph.raw, null, null, &mut count) }
        });
        self.check("hipGraphGetEdges", code)?;
        let (mut from, mut to) = (vec![std::ptr::null_mut(); count], vec![std::ptr::null_mut(); count]);
        if count > 0 {
            let code = self.on_device(|runtime| {
                // SAFETY: H2, H3. Both arrays have as many places as their number says.
                unsafe { runtime.hipGraphGetEdges(graph.raw, from.as_mut_ptr(), to.as_mut_ptr(), &mut count) }
            });
            self.check("hipGraphGetEdges", code)?;
        }
        Ok(from.into_iter().zip(to).take(count).collect())
    }

    fn node_word(&self, node: sys::hipGraphNode_t) -> Result<String, Error> {
        let mut kind = 0;
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. A node of a live graph and a local integer.
            unsafe { runtime.hipGraphNodeGetType(node, &mut kind) }
        });
        self.check("hipGraphNodeGetType", code)?;
        Ok(self.library.profile.node_word(self.library.version, kind).into())
    }

    fn load_image(&self, image: Box<[u8]>) -> Result<Module, Error> {
        let mut raw = std::ptr::null_mut();
        let code = self.on_device(|runtime| {
            // SAFETY: H3. The image was checked to hold all that its headers name, and lives as long as the module.
            unsafe { runtime.hipModuleLoadData(&mut raw, image.as_ptr().cast()) }
        });
        Ok(Module { raw: self.made("hipModuleLoadData", code, raw)?, _image: image })
    }
}

/// The arguments of a launch as the library takes them: a pointer to each value.
#[inline]
fn argument_pointer(argument: &Argument) -> *mut c_void {
    let value: *const u64 = match argument {
        Argument::Pointer { address, .. } => &raw const address.0,
        Argument::Scalar { words, .. } => words.as_ptr(),
    };
    value.cast_mut().cast()
}

fn raw_address(address: DeviceAddress) -> *mut c_void {
    std::ptr::without_provenance_mut(address.0 as usize)
}

fn raw_location(location: Location) -> *mut c_void {
    match location {
        Location::Device(address) => raw_address(address),
        Location::Host(pointer) => pointer.0.as_ptr().cast(),
    }
}

fn size(function: &'static str, bytes: u64) -> Result<usize, Error> {
    usize::try_from(bytes).map_err(|_| Error::refused(function, "more bytes than this machine can address"))
}

fn raw_mode(mode: CaptureMode) -> c_int {
    match mode {
        CaptureMode::Global => sys::CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => sys::CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => sys::CAPTURE_MODE_RELAXED,
    }
}

// SAFETY: H1 to H5: each method is one call of the library, whose documentation promises the same.
unsafe impl Driver for Hip {
    type Stream = Stream;
    type Event = Event;
    type Module = Module;
    type Function = Function;
    type Graph = Graph;
    type Executable = Executable;
    type Error = Error;

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn last_error(&self) -> Option<i32> {
        // SAFETY: H1. It takes nothing.
        let code = unsafe { self.library.runtime.hipPeekAtLastError() };
        (code != sys::ABSENT).then_some(code)
    }

    fn stream_create(&self, priority: Priority) -> Result<Stream, Error> {
        let priority = match priority {
            Priority::Low => self.priorities[0],
            Priority::Normal => self.priorities[1],
            Priority::High => self.priorities[2],
        };
        let mut raw = std::ptr::null_mut();
        let code = self.on_device(|runtime| {
            // SAFETY: H3. A local pointer.
            unsafe { runtime.hipStreamCreateWithPriority(&mut raw, sys::STREAM_NON_BLOCKING, priority) }
        });
        Ok(Stream { raw: self.made("hipStreamCreateWithPriority", code, raw)? })
    }

    unsafe fn stream_destroy(&self, stream: &Stream) -> Result<(), Error> {
        // Host functions of a capture that was never ended are never called.
        let dropped = match self.captured().is_empty() {
            true => None,
            false => self.capture_number(stream).ok().flatten(),
        };
        // SAFETY: H4. The caller does not use the handle again, nor events recorded on it.
        let code = self.on_device(|runtime| unsafe { runtime.hipStreamDestroy(stream.raw) });
        self.check("hipStreamDestroy", code)?;
        let recordings = dropped.and_then(|number| self.captured().remove(&number));
        drop(recordings);
        Ok(())
    }

    fn stream_query(&self, stream: &Stream) -> Result<Progress, Error> {
        // SAFETY: H2. A live stream.
        let code = self.on_device(|runtime| unsafe { runtime.hipStreamQuery(stream.raw) });
        self.progress("hipStreamQuery", code)
    }

    fn stream_synchronize(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: H2. A live stream.
        let code = self.on_device(|runtime| unsafe { runtime.hipStreamSynchronize(stream.raw) });
        self.check("hipStreamSynchronize", code)
    }

    fn stream_wait_event(&self, stream: &Stream, event: &Event) -> Result<(), Error> {
        // SAFETY: H2. A live stream and a live event.
        let code = self.on_device(|runtime| unsafe { runtime.hipStreamWaitEvent(stream.raw, event.raw, 0) });
        self.check("hipStreamWaitEvent", code)
    }

    fn event_create(&self, timing: Timing) -> Result<Event, Error> {
        let flags = match timing {
            Timing::Disabled => sys::EVENT_DISABLE_TIMING,
            Timing::Enabled => 0,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: H3. A local pointer.
        let code = self.on_device(|runtime| unsafe { runtime.hipEventCreateWithFlags(&mut raw, flags) });
        Ok(Event { raw: self.made("hipEventCreateWithFlags", code, raw)? })
    }

    fn event_destroy(&self, event: Event) -> Result<(), Error> {
        // SAFETY: H2. The handle is taken by value.
        let code = self.on_device(|runtime| unsafe { runtime.hipEventDestroy(event.raw) });
        self.check("hipEventDestroy", code)
    }

    fn event_record(&self, event: &Event, stream: &Stream) -> Result<(), Error> {
        // SAFETY: H2. A live event and a live stream.
        let code = self.on_device(|runtime| unsafe { runtime.hipEventRecord(event.raw, stream.raw) });
        self.check("hipEventRecord", code)
    }

    fn event_query(&self, event: &Event) -> Result<Progress, Error> {
        // SAFETY: H2. A live event; whoever destroys its stream asks it no more.
        let code = self.on_device(|runtime| unsafe { runtime.hipEventQuery(event.raw) });
        self.progress("hipEventQuery", code)
    }

    fn event_synchronize(&self, event: &Event) -> Result<(), Error> {
        // SAFETY: H2. A live event; whoever destroys its stream asks it no more.
        let code = self.on_device(|runtime| unsafe { runtime.hipEventSynchronize(event.raw) });
        self.check("hipEventSynchronize", code)
    }

    fn event_elapsed(&self, start: &Event, end: &Event) -> Result<f32, Error> {
        let mut milliseconds = 0.0;
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. Two live events and a local number.
            unsafe { runtime.hipEventElapsedTime(&mut milliseconds, start.raw, end.raw) }
        });
        self.check("hipEventElapsedTime", code)?;
        Ok(milliseconds)
    }

    fn launch_host_function(&self, stream: &Stream, function: HostFunction) -> Result<(), Error> {
        let capture = self.capture_number(stream)?;
        let (pending, recording) = match capture {
            None => (Pending::once(function), None),
            Some(number) => {
                let (pending, recording) = Pending::recorded(function);
                (pending, Some((number, recording)))
            }
        };
        let data = pending.data();
        let code = self.on_device(|runtime| {
            // SAFETY: H2. A live stream; the callback accepts any number, as often as it comes.
            unsafe { runtime.hipLaunchHostFunc(stream.raw, Some(host_function::call), data) }
        });
        self.check("hipLaunchHostFunc", code)?;
        pending.accepted();
        if let Some((number, recording)) = recording {
            self.captured().entry(number).or_default().push(recording);
        }
        Ok(())
    }

    fn malloc(&self, bytes: u64) -> Result<DeviceAddress, Error> {
        let (bytes, mut raw) = (size("hipMalloc", bytes)?, std::ptr::null_mut());
        // SAFETY: H3. A local pointer.
        let code = self.on_device(|runtime| unsafe { runtime.hipMalloc(&mut raw, bytes) });
        self.check("hipMalloc", code)?;
        Ok(DeviceAddress(raw.addr() as u64))
    }

    unsafe fn free(&self, address: DeviceAddress) -> Result<(), Error> {
        // SAFETY: H4. The memory is `malloc`'s, not freed before, and no work uses it.
        let code = self.on_device(|runtime| unsafe { runtime.hipFree(raw_address(address)) });
        self.check("hipFree", code)
    }

    fn malloc_async(&self, stream: &Stream, bytes: u64) -> Result<DeviceAddress, Error> {
        if !self.capabilities.stream_ordered_memory {
            return Err(Error::unsupported("hipMallocAsync", "there is no memory in stream order on this device"));
        }
        let (bytes, mut raw) = (size("hipMallocAsync", bytes)?, std::ptr::null_mut());
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. A live stream and a local pointer.
            unsafe { runtime.hipMallocAsync(&mut raw, bytes, stream.raw) }
        });
        self.check("hipMallocAsync", code)?;
        Ok(DeviceAddress(raw.addr() as u64))
    }

    unsafe fn free_async(&self, stream: &Stream, address: DeviceAddress) -> Result<(), Error> {
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H4. A live stream; the memory is `malloc_async`'s, and all uses are ordered before.
            unsafe { runtime.hipFreeAsync(raw_address(address), stream.raw) }
        });
        self.check("hipFreeAsync", code)
    }

    fn host_alloc(&self, bytes: usize) -> Result<HostPointer, Error> {
        let flags = sys::HOST_MALLOC_PORTABLE | sys::HOST_MALLOC_MAPPED;
        let mut raw = std::ptr::null_mut();
        // SAFETY: H3. A local pointer.
        let code = self.on_device(|runtime| unsafe { runtime.hipHostMalloc(&mut raw, bytes, flags) });
        self.check("hipHostMalloc", code)?;
        let pointer = std::ptr::NonNull::new(raw.cast());
        pointer.map(HostPointer).ok_or_else(|| Error::nothing("hipHostMalloc"))
    }

    unsafe fn host_free(&self, pointer: HostPointer) -> Result<(), Error> {
        // SAFETY: H4. The memory is `host_alloc`'s, not freed before, and nothing uses it.
        let code = self.on_device(|runtime| unsafe { runtime.hipHostFree(pointer.0.as_ptr().cast()) });
        self.check("hipHostFree", code)
    }

    unsafe fn host_register(&self, base: HostPointer, bytes: usize, access: HostAccess) -> Result<(), Error> {
        let flags = sys::HOST_REGISTER_PORTABLE | sys::HOST_REGISTER_MAPPED;
        let _held = self.library.hold_pins();
        let mut result = Ok(());
        if access == HostAccess::Read {
            result = self.check("hipHostRegister", self.register(base, bytes, flags | sys::HOST_REGISTER_READ_ONLY));
            // Versions and systems without the flag refuse it: a registration that also allows writes serves as well.
            let unknown_flag =
                |error: &Error| matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::NotSupported);
            if !result.as_ref().is_err_and(unknown_flag) {
                return result;
            }
        }
        let plain = self.check("hipHostRegister", self.register(base, bytes, flags));
        if plain.is_ok() { plain } else { result.and(plain) }
    }

    unsafe fn host_unregister(&self, base: HostPointer) -> Result<(), Error> {
        let _held = self.library.hold_pins();
        // SAFETY: P3, H4. The base of a live registration that no work uses.
        let code = self.on_device(|runtime| unsafe { runtime.hipHostUnregister(base.0.as_ptr().cast()) });
        self.check("hipHostUnregister", code)
    }

    fn host_device_address(&self, pointer: HostPointer) -> Result<DeviceAddress, Error> {
        let mut raw = std::ptr::null_mut();
        let _held = self.library.hold_pins_to_look();
        let code = self.on_device(|runtime| {
            // SAFETY: H3. A local pointer; the library looks the address up and does not follow it.
            unsafe { runtime.hipHostGetDevicePointer(&mut raw, pointer.0.as_ptr().cast(), 0) }
        });
        self.check("hipHostGetDevicePointer", code)?;
        Ok(DeviceAddress(raw.addr() as u64))
    }

    fn host_is_registered(&self, pointer: HostPointer) -> Result<bool, Error> {
        let null = std::ptr::null_mut();
        let (kind, device, is_managed, flags) = (-1, -1, 0, 0);
        let mut attributes =
            sys::hipPointerAttribute_t { kind, device, device_pointer: null, host_pointer: null, is_managed, flags };
        let _held = self.library.hold_pins_to_look();
        let code = self.on_device(|runtime| {
            // SAFETY: H3. A local struct; the library looks the address up and does not follow it.
            unsafe { runtime.hipPointerGetAttributes(&mut attributes, pointer.0.as_ptr().cast()) }
        });
        match self.check("hipPointerGetAttributes", code) {
            Ok(()) => Ok(attributes.kind == self.library.profile.host_memory_kind()),
            // Memory that the library has never seen: an error in 5.x, a kind of its own since.
            Err(error) if error.kind() == ErrorKind::InvalidValue => Ok(false),
            Err(error) => Err(error),
        }
    }

    unsafe fn copy(&self, stream: &Stream, to: Location, from: Location, bytes: u64) -> Result<(), Error> {
        let bytes = size("hipMemcpyAsync", bytes)?;
        let (to, from) = (raw_location(to), raw_location(from));
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H4. A live stream; the caller vouches for both ranges until the copy has completed.
            unsafe { runtime.hipMemcpyAsync(to, from, bytes, sys::MEMCPY_DEFAULT, stream.raw) }
        });
        self.check("hipMemcpyAsync", code)
    }

    unsafe fn fill(&self, stream: &Stream, at: DeviceAddress, value: u8, bytes: u64) -> Result<(), Error> {
        let bytes = size("hipMemsetAsync", bytes)?;
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H4. A live stream; the caller vouches for the range until the fill has completed.
            unsafe { runtime.hipMemsetAsync(raw_address(at), c_int::from(value), bytes, stream.raw) }
        });
        self.check("hipMemsetAsync", code)
    }

    fn module_load(&self, image: Image<'_>) -> Result<Module, Error> {
        let accepts_text = self.library.platform == Platform::Cuda;
        let image = match image {
            Image::Source(source) => image::padded(self.compile(source)?.bytes(), accepts_text),
            Image::Code(code) => image::padded(code, accepts_text),
        };
        self.load_image(image.map_err(|problem| Error::refused("hipModuleLoadData", problem))?)
    }

    unsafe fn module_unload(&self, module: Module) -> Result<(), Error> {
        // SAFETY: H4. The handle is taken by value, and no work of it is pending or launched again.
        let code = self.on_device(|runtime| unsafe { runtime.hipModuleUnload(module.raw) });
        self.check("hipModuleUnload", code)
    }

    fn function(&self, module: &Module, name: &str) -> Result<Function, Error> {
        let refused = |_| Error::refused("hipModuleGetFunction", "a name with a zero byte");
        let (name, mut raw) = (CString::new(name).map_err(refused)?, std::ptr::null_mut());
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. A live module, a local pointer, and a string that ends in zero.
            unsafe { runtime.hipModuleGetFunction(&mut raw, module.raw, name.as_ptr()) }
        });
        Ok(Function { raw: self.made("hipModuleGetFunction", code, raw)? })
    }

    #[inline]
    unsafe fn launch(
        &self,
        stream: &Stream,
        function: &Function,
        config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Result<(), Error> {
        let mut places = [const { MaybeUninit::<*mut c_void>::uninit() }; ARGUMENTS_INLINE];
        let mut more;
        let pointers = match places.get_mut(..arguments.len()) {
            Some(places) => places,
            None => {
                more = vec![MaybeUninit::uninit(); arguments.len()];
                more.as_mut_slice()
            }
        };
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            pointer.write(argument_pointer(argument));
        }
        let (LaunchConfig { grid, block, shared_bytes }, null) = (*config, std::ptr::null_mut());
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        let code = self.on_device(|runtime| {
            let (raw, all) = (function.raw, pointers.as_mut_ptr().cast());
            // SAFETY: H2, H4. Live handles; one pointer an argument, to a value that the library copies before it
            // returns.
            unsafe { runtime.hipModuleLaunchKernel(raw, gx, gy, gz, bx, by, bz, shared_bytes, stream.raw, all, null) }
        });
        self.check("hipModuleLaunchKernel", code)
    }

    fn capture_begin(&self, stream: &Stream, mode: CaptureMode) -> Result<(), Error> {
        // SAFETY: H2. A live stream.
        let code = self.on_device(|runtime| unsafe { runtime.hipStreamBeginCapture(stream.raw, raw_mode(mode)) });
        self.check("hipStreamBeginCapture", code)
    }

    fn capture_end(&self, stream: &Stream) -> Result<Graph, Error> {
        let number = self.capture_number(stream).ok().flatten();
        let ended = self.capture_end_raw(stream);
        let recordings = number.and_then(|number| self.captured().remove(&number)).unwrap_or_default();
        match ended {
            Ok(raw) => Ok(Graph { raw, recordings }),
            Err(error) => {
                self.mend(stream);
                Err(error)
            }
        }
    }

    fn capture_status(&self, stream: &Stream) -> Result<CaptureStatus, Error> {
        let mut status = sys::CAPTURE_STATUS_NONE;
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. A live stream and a local integer.
            unsafe { runtime.hipStreamIsCapturing(stream.raw, &mut status) }
        });
        self.check("hipStreamIsCapturing", code)?;
        Ok(match status {
            sys::CAPTURE_STATUS_NONE => CaptureStatus::None,
            sys::CAPTURE_STATUS_ACTIVE => CaptureStatus::Active,
            // A status that nobody knows: not to be built on.
            _ => CaptureStatus::Invalidated,
        })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, Error> {
        let mut mode = raw_mode(mode);
        // SAFETY: H3. A local integer. The mode is the thread's, not the device's.
        let code = unsafe { self.library.runtime.hipThreadExchangeStreamCaptureMode(&mut mode) };
        self.check("hipThreadExchangeStreamCaptureMode", code)?;
        Ok(match mode {
            sys::CAPTURE_MODE_THREAD_LOCAL => CaptureMode::ThreadLocal,
            sys::CAPTURE_MODE_RELAXED => CaptureMode::Relaxed,
            _ => CaptureMode::Global,
        })
    }

    fn graph_instantiate(&self, graph: &Graph) -> Result<Executable, Error> {
        let (mut raw, null) = (std::ptr::null_mut(), std::ptr::null_mut());
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. A live graph and a local pointer; neither node nor log is asked for.
            unsafe { runtime.hipGraphInstantiate(&mut raw, graph.raw, null, std::ptr::null_mut(), 0) }
        });
        Ok(Executable::new(self.made("hipGraphInstantiate", code, raw)?, graph.recordings.clone()))
    }

    fn graph_update(&self, executable: &Executable, graph: &Graph) -> Result<(), Error> {
        let (mut node, mut result) = (std::ptr::null_mut(), 0);
        let code = self.on_device(|runtime| {
            // SAFETY: H2, H3. Live handles, a local pointer and a local integer.
            unsafe { runtime.hipGraphExecUpdate(executable.raw, graph.raw, &mut node, &mut result) }
        });
        self.check("hipGraphExecUpdate", code)?;
        let settled = {
            let mut generations = executable.generations();
            let former = std::mem::replace(&mut generations.current, graph.recordings.clone());
            generations.former.extend(former);
            let (settled, waiting) =
                std::mem::take(&mut generations.former).into_iter().partition(|old| old.is_settled());
            generations.former = waiting;
            settled
        };
        // Outside of the lock: the closures' own drops are the user's code.
        drop::<Vec<_>>(settled);
        Ok(())
    }

    unsafe fn graph_launch(&self, executable: &Executable, stream: &Stream) -> Result<(), Error> {
        executable.generations().current.iter().for_each(|recording| recording.expect());
        // SAFETY: H2, H4. Live handles; the caller keeps all memory that the graph names.
        let code = self.on_device(|runtime| unsafe { runtime.hipGraphLaunch(executable.raw, stream.raw) });
        if code != SUCCESS {
            executable.generations().current.iter().for_each(|recording| recording.unexpect());
        }
        self.check("hipGraphLaunch", code)
    }

    fn graph_describe(&self, graph: &Graph) -> Result<GraphDescription, Error> {
        let nodes = self.graph_nodes(graph)?;
        let places: HashMap<_, _> = nodes.iter().enumerate().map(|(place, node)| (*node, place)).collect();
        let place = |(from, to)| Some((*places.get(&from)?, *places.get(&to)?));
        let edges = self.graph_edges(graph)?.into_iter().filter_map(place).collect();
        let nodes = nodes.into_iter().map(|node| self.node_word(node)).collect::<Result<_, _>>()?;
        Ok(GraphDescription { nodes, edges })
    }

    fn graph_destroy(&self, graph: Graph) -> Result<(), Error> {
        // SAFETY: H2. The handle is taken by value.
        let code = self.on_device(|runtime| unsafe { runtime.hipGraphDestroy(graph.raw) });
        self.check("hipGraphDestroy", code)
    }

    fn executable_destroy(&self, executable: Executable) -> Result<(), Error> {
        // SAFETY: H2. The handle is taken by value, once its last launch has completed.
        let code = self.on_device(|runtime| unsafe { runtime.hipGraphExecDestroy(executable.raw) });
        self.check("hipGraphExecDestroy", code)
    }
}
