//! HIP's C functions over a simulated device: what `hip/cuda` is for an NVIDIA GPU, for no GPU at all.
//!
//! So all of `tenure-hip` (loading, table, handles, host functions, kernels from source) runs under the conformance
//! suite on a machine without a device, with any profile's behaviour below it. Kernels are closures that are found by
//! name; a source is taken as it is, and only has to name them.
//!
//! | variable | meaning |
//! |---|---|
//! | `TENURE_SIMULATED_PROFILE` | which driver the device behaves as (cuda-13) |
//! | `TENURE_SIMULATED_POOLS` | `0`: the device has no memory pools |
//! | `TENURE_SIMULATED_FAILURE` | `FUNCTION:N:CODE`: the N-th call of that function, from 1, returns that code and does nothing; `FUNCTION:N:CODE:sticky`: so does every later call of any |
//!
//! Every handle is a number that stands for an entry of a table, so a stale one is an error and never a crash.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure::driver::{
    Argument, CaptureMode, CaptureStatus, DeviceAddress, Driver, HostAccess, HostPointer, Image, LaunchConfig,
    Location, Priority, Progress, Timing,
};
use tenure_sim::code::Code;
use tenure_sim::drive::Drive;
use tenure_sim::driver::{Sim, SimError, SimEvent, SimExecutable, SimFunction, SimGraph, SimModule, SimStream};
use tenure_sim::profile::Profile;
use tenure_tests::bench::add_kernels;

#[path = "../../sim/command/src/kernels.rs"]
#[allow(dead_code, reason = "the tour checks with the plain functions")]
mod tour;

type Handle = *mut c_void;

const INVALID_VALUE: c_int = 1;
const INVALID_IMAGE: c_int = 200;
const INVALID_HANDLE: c_int = 400;
const NOT_READY: c_int = 600;
/// Device addresses of the simulator lie above all host addresses.
const DEVICE_BASE: u64 = 1 << 61;
/// An ELF header that names nothing, then the length of the source, then the source.
const HEADER_BYTES: usize = 64;
/// What a held stream waits for at most.
const HOLD_MAX: Duration = Duration::from_secs(20);

// --- what a kernel takes: C tells neither types nor lengths

#[derive(Clone, Copy)]
enum Parameter {
    /// A pointer to as many elements of so many bytes as that parameter says.
    Array(u64, usize),
    /// A pointer to so many bytes.
    Block(u64),
    /// A value of so many bytes.
    Scalar(u64),
}
use Parameter::{Array, Block, Scalar};

const WORD: Parameter = Scalar(4);
const KERNELS: &[(&str, &[Parameter])] = &[
    ("bump", &[Array(4, 2), WORD, WORD]),
    ("sum", &[Array(4, 2), Array(4, 2), WORD]),
    ("blend", &[Array(4, 5), Array(4, 5), Array(4, 5), WORD, WORD, WORD, WORD]),
    ("hold", &[Block(4), Scalar(8)]),
    ("fault", &[Scalar(4)]),
    ("spin", &[Scalar(8)]),
    ("touch", &[Block(1), Scalar(8)]),
    ("widen", &[Array(1, 2), Array(4, 2), WORD]),
    ("narrow", &[Array(4, 2), Array(1, 2), WORD]),
    ("histogram", &[Array(1, 2), Block(1024), WORD]),
    ("blur", &[Array(4, 2), Array(4, 2), WORD, WORD]),
    ("mix", &[Array(4, 2), Array(4, 2), WORD, WORD]),
    ("accumulate", &[Array(4, 2), Array(4, 2), WORD]),
];

fn add_all_kernels(sim: &Sim) {
    add_kernels(sim);
    tour::register(sim);
    let sleep = |cycles: u64| std::thread::sleep(Duration::from_nanos(cycles / 2));
    sim.kernel("spin", move |cycles: u64| sleep(cycles));
    sim.kernel("touch", move |mut bytes: tenure_sim::kernel::Write<'_, u8>, cycles: u64| {
        sleep(cycles);
        bytes[0] = 1;
    });
    sim.kernel("hold", |_: tenure_sim::kernel::Read<'_, u32>, _: u64| {});
    sim.kernel("fault", |_: u32| {});
}

// --- handles

struct Table<T> {
    entries: Mutex<HashMap<usize, Arc<T>>>,
    last: AtomicUsize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: Mutex::default(), last: AtomicUsize::new(0x1000) }
    }
}

impl<T> Table<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Arc<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, entry: T) -> Handle {
        // Relaxed: uniqueness only.
        let number = self.last.fetch_add(16, Ordering::Relaxed);
        self.lock().insert(number, Arc::new(entry));
        std::ptr::without_provenance_mut(number)
    }

    fn get(&self, handle: Handle) -> Result<Arc<T>, c_int> {
        self.lock().get(&handle.addr()).cloned().ok_or(INVALID_HANDLE)
    }

    /// Takes the entry out; an error while somebody else uses it.
    fn take(&self, handle: Handle) -> Result<T, c_int> {
        let entry = self.lock().remove(&handle.addr()).ok_or(INVALID_HANDLE)?;
        Arc::into_inner(entry).ok_or(INVALID_HANDLE)
    }

    fn remove(&self, handle: Handle) {
        self.lock().remove(&handle.addr());
    }
}

struct Kernel {
    name: &'static str,
    parameters: &'static [Parameter],
    function: SimFunction,
}

/// The handle of a thread's own default stream; the legacy one's is null.
const OWN_STREAM: usize = 2;

impl Streams {
    fn get(&self, handle: Handle) -> Result<Arc<SimStream>, c_int> {
        match handle.addr() {
            0 => Ok(Arc::new(SimStream::legacy())),
            OWN_STREAM => Ok(Arc::new(SimStream::per_thread())),
            _ => self.0.get(handle),
        }
    }

    fn add(&self, stream: SimStream) -> Handle {
        self.0.add(stream)
    }

    fn remove(&self, handle: Handle) {
        self.0.remove(handle);
    }
}

/// Those that were made, besides the default ones.
#[derive(Default)]
struct Streams(Table<SimStream>);

struct Library {
    sim: Sim,
    profile: &'static str,
    streams: Streams,
    events: Table<SimEvent>,
    modules: Table<(SimModule, String)>,
    functions: Table<Kernel>,
    graphs: Table<SimGraph>,
    executables: Table<SimExecutable>,
    programs: Table<String>,
    /// Host addresses by the device's addresses of them.
    aliases: Mutex<HashMap<u64, usize>>,
    names: Mutex<HashMap<c_int, &'static CStr>>,
    failure: Option<Failure>,
}

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let named = std::env::var("TENURE_SIMULATED_PROFILE").unwrap_or_else(|_| "cuda-13".into());
    let profile = Profile::NAMES.iter().copied().find(|name| *name == named).unwrap_or("cuda-13");
    let behaviour = Profile::named(profile).unwrap_or_else(Profile::cuda_13);
    let builder = Sim::builder().profile(behaviour).drive(Drive::Threaded).trace_rows(0);
    let has_pools = std::env::var("TENURE_SIMULATED_POOLS").as_deref() != Ok("0");
    let sim = if has_pools { builder.build() } else { builder.without_pools().build() };
    add_all_kernels(&sim);
    Library {
        sim,
        profile,
        streams: Streams::default(),
        events: Table::default(),
        modules: Table::default(),
        functions: Table::default(),
        graphs: Table::default(),
        executables: Table::default(),
        programs: Table::default(),
        aliases: Mutex::default(),
        names: Mutex::default(),
        failure: std::env::var("TENURE_SIMULATED_FAILURE").ok().as_deref().and_then(Failure::parse),
    }
});

// --- the script

struct Failure {
    function: String,
    passes: AtomicUsize,
    code: c_int,
    is_sticky: bool,
    /// The code that every call returns from now on, unless 0.
    lost: AtomicI32,
}

impl Failure {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(':');
        let (function, nth, code) = (words.next()?.to_owned(), words.next()?, words.next()?.parse().ok()?);
        let passes = AtomicUsize::new(nth.parse().ok()?);
        Some(Self { function, passes, code, is_sticky: words.next() == Some("sticky"), lost: AtomicI32::new(0) })
    }

    /// What a call of this name returns instead of being made.
    fn judge(&self, name: &str) -> Option<c_int> {
        // Relaxed throughout: a script, which orders nothing.
        let lost = self.lost.load(Ordering::Relaxed);
        if lost != 0 {
            return Some(lost);
        }
        // The count stops at 0, which is reached once.
        let is_it = name == self.function
            && self.passes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1);
        if is_it {
            eprintln!("simulated failure of {name}: {}", self.code);
        }
        if is_it && self.is_sticky {
            self.lost.store(self.code, Ordering::Relaxed);
        }
        is_it.then_some(self.code)
    }
}

// --- between C and Rust

/// Where a C function writes a result.
#[repr(transparent)]
struct Out<T>(*mut T);

impl<T> Out<T> {
    fn set(&self, value: T) -> c_int {
        if self.0.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: R4. The C function's caller passes a place for its result, as the vendor's page says.
        unsafe { self.0.write(value) };
        0
    }

    fn get(&self) -> Option<T>
    where
        T: Copy,
    {
        // SAFETY: R4. As above: null, or a place that holds a value.
        (!self.0.is_null()).then(|| unsafe { self.0.read() })
    }

    /// Writes as many as there is room for, and how many there are.
    fn fill(&self, values: &[T], count: &Out<usize>) -> c_int
    where
        T: Copy,
    {
        if !self.0.is_null() {
            let room = count.get().unwrap_or(0).min(values.len());
            for (at, value) in values[..room].iter().enumerate() {
                // SAFETY: R4. As above: an array with as many places as the count says.
                unsafe { self.0.wrapping_add(at).write(*value) };
            }
        }
        count.set(values.len())
    }
}

fn text<'a>(text: *const c_char) -> &'a CStr {
    if text.is_null() {
        return c"";
    }
    // SAFETY: R4. The C function's caller passes a string that ends in zero and outlives the call.
    unsafe { CStr::from_ptr(text) }
}

fn told<T>(answer: Result<T, SimError>) -> Result<T, c_int> {
    answer.map_err(|error| error.code().0)
}

fn number(answer: Result<c_int, c_int>) -> c_int {
    answer.unwrap_or_else(|code| code)
}

fn progress(answer: Result<Progress, SimError>) -> Result<c_int, c_int> {
    told(answer).map(|progress| if progress == Progress::Pending { NOT_READY } else { 0 })
}

fn location(address: Handle) -> Result<Location, c_int> {
    let number = address.addr() as u64;
    match number >= DEVICE_BASE {
        true => Ok(Location::Device(DeviceAddress(number))),
        false => host(address).map(Location::Host),
    }
}

fn device(address: Handle) -> DeviceAddress {
    DeviceAddress(address.addr() as u64)
}

fn raw(address: DeviceAddress) -> Handle {
    std::ptr::without_provenance_mut(address.0 as usize)
}

fn host(pointer: Handle) -> Result<HostPointer, c_int> {
    std::ptr::NonNull::new(pointer.cast()).map(HostPointer).ok_or(INVALID_VALUE)
}

fn mode(number: c_int) -> Result<CaptureMode, c_int> {
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed]
        .get(usize::try_from(number).map_err(|_| INVALID_VALUE)?)
        .copied()
        .ok_or(INVALID_VALUE)
}

fn status(status: CaptureStatus) -> c_int {
    match status {
        CaptureStatus::None => 0,
        CaptureStatus::Active => 1,
        CaptureStatus::Invalidated => 2,
    }
}

/// Exports functions that return a code: what their bodies give, unless the script says otherwise.
macro_rules! export {
    ($($name:ident($($argument:ident: $kind:ty),*) |$library:ident| $body:expr)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> c_int {
            let $library = &*LIBRARY;
            keep_last(match $library.failure.as_ref().and_then(|failure| failure.judge(stringify!($name))) {
                Some(code) => code,
                None => {
                    let body = || -> Result<c_int, c_int> { $body };
                    number(body())
                }
            })
        }
    )*};
}

thread_local! {
    /// The last code of the thread that was an error.
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
}

fn keep_last(code: c_int) -> c_int {
    if code != 0 && code != NOT_READY {
        LAST_ERROR.set(code);
    }
    code
}

#[unsafe(no_mangle)]
extern "C" fn hipGetLastError() -> c_int {
    LAST_ERROR.take()
}

#[unsafe(no_mangle)]
extern "C" fn hipPeekAtLastError() -> c_int {
    LAST_ERROR.get()
}

// --- start and devices

export! {
    hipInit(flags: c_uint) |_l| if flags == 0 { Ok(0) } else { Err(INVALID_VALUE) }
    hipRuntimeGetVersion(version: Out<c_int>) |l| Ok(version.set(l.version()))
    hipDriverGetVersion(version: Out<c_int>) |l| Ok(version.set(l.version()))
    hipGetDeviceCount(count: Out<c_int>) |_l| Ok(count.set(1))
    hipSetDevice(device: c_int) |_l| if device == 0 { Ok(0) } else { Err(101) }
    hipGetDevice(device: Out<c_int>) |_l| Ok(device.set(0))
    hipDeviceGetName(name: *mut c_char, length: c_int, _device: c_int) |l| Ok(write_text(name, length, l.profile))
    hipDeviceTotalMem(bytes: Out<usize>, _device: c_int) |_l| Ok(bytes.set(1 << 34))
    hipDeviceGetPCIBusId(id: *mut c_char, length: c_int, _device: c_int) |_l| Ok(write_text(id, length, "0000:00:00.0"))
    hipDeviceGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) |_l| Ok(least.set(1) + greatest.set(-1))
    hipDeviceGetDefaultMemPool(pool: Out<Handle>, _device: c_int) |_l| Ok(pool.set(std::ptr::without_provenance_mut(16)))
    hipMemPoolSetAttribute(_pool: Handle, _attribute: c_int, _value: Handle) |_l| Ok(0)
    hipMemGetInfo(free: Out<usize>, total: Out<usize>) |_l| Ok(free.set(1 << 33) + total.set(1 << 34))
    hipDeviceGetAttribute(value: Out<c_int>, attribute: c_int, _device: c_int) |l| match attribute {
        23 => Ok(value.set(9)),
        61 => Ok(value.set(0)),
        63 => Ok(value.set(1)),
        87 => Ok(value.set(32)),
        88 => Ok(value.set(c_int::from(l.sim.capabilities().stream_ordered_memory))),
        _ => Err(INVALID_VALUE),
    }
    hipGetDevicePropertiesR0600(properties: *mut c_char, _device: c_int) |_l| {
        Ok(write_text(properties.wrapping_add(1160), 256, "gfx90a"))
    }
}

fn write_text(place: *mut c_char, length: c_int, text: &str) -> c_int {
    let room = usize::try_from(length).unwrap_or(0);
    for (at, byte) in text.bytes().chain([0]).take(room).enumerate() {
        // SAFETY: R4. The C function's caller passes a buffer of this length.
        unsafe { place.wrapping_add(at).write(byte as c_char) };
    }
    0
}

impl Library {
    fn version(&self) -> c_int {
        match self.profile {
            "hip-5.7" => 50_731_921,
            "hip-6.4" => 60_443_484,
            "hip-7.0" => 70_051_831,
            "hip-7.2" => 70_253_211,
            _ => 13_000,
        }
    }

    fn name_of(&self, code: c_int) -> *const c_char {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let name = names.entry(code).or_insert_with(|| {
            let name = Code(code).name().replacen("cuda", "hip", 1);
            &**Box::leak(Box::new(CString::new(name).unwrap_or_default()))
        });
        name.as_ptr()
    }
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(code: c_int) -> *const c_char {
    LIBRARY.name_of(code)
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(code: c_int) -> *const c_char {
    LIBRARY.name_of(code)
}

// --- streams, events, host functions

export! {
    hipStreamCreateWithPriority(stream: Out<Handle>, flags: c_uint, priority: c_int) |l| {
        let priority = [Priority::High, Priority::Normal, Priority::Low][(priority.clamp(-1, 1) + 1) as usize];
        let made = match flags & 1 {
            0 => l.sim.stream_create_with(priority, true),
            _ => l.sim.stream_create(priority),
        };
        Ok(stream.set(l.streams.add(told(made)?)))
    }
    hipStreamDestroy(stream: Handle) |l| {
        let found = l.streams.get(stream)?;
        // SAFETY: S6. The C function's caller does not use the handle again, and the table will not find it.
        told(unsafe { l.sim.stream_destroy(&found) })?;
        l.streams.remove(stream);
        Ok(0)
    }
    hipStreamQuery(stream: Handle) |l| progress(l.sim.stream_query(&*l.streams.get(stream)?))
    hipStreamSynchronize(stream: Handle) |l| told(l.sim.stream_synchronize(&*l.streams.get(stream)?)).map(|()| 0)
    hipStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) |l| {
        told(l.sim.stream_wait_event(&*l.streams.get(stream)?, &*l.events.get(event)?)).map(|()| 0)
    }
    hipLaunchHostFunc(stream: Handle, function: Option<unsafe extern "C" fn(Handle)>, data: Handle) |l| {
        let (function, data) = (function.ok_or(INVALID_VALUE)?, data.addr());
        let call = move || {
            // SAFETY: R2. The C function's caller passes a function that may be called with its data, once or, from a
            // graph, at each launch.
            unsafe { function(std::ptr::without_provenance_mut(data)) }
        };
        told(l.sim.launch_host_function(&*l.streams.get(stream)?, Arc::new(call))).map(|()| 0)
    }
    hipEventCreateWithFlags(event: Out<Handle>, flags: c_uint) |l| {
        let timing = if flags & 2 == 0 { Timing::Enabled } else { Timing::Disabled };
        Ok(event.set(l.events.add(told(l.sim.event_create(timing))?)))
    }
    hipEventDestroy(event: Handle) |l| told(l.sim.event_destroy(l.events.take(event)?)).map(|()| 0)
    hipEventRecord(event: Handle, stream: Handle) |l| {
        told(l.sim.event_record(&*l.events.get(event)?, &*l.streams.get(stream)?)).map(|()| 0)
    }
    hipEventQuery(event: Handle) |l| progress(l.sim.event_query(&*l.events.get(event)?))
    hipEventSynchronize(event: Handle) |l| told(l.sim.event_synchronize(&*l.events.get(event)?)).map(|()| 0)
    hipEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) |l| {
        Ok(milliseconds.set(told(l.sim.event_elapsed(&*l.events.get(start)?, &*l.events.get(end)?))?))
    }
}

// --- memory

/// What `hipPointerGetAttributes` writes.
#[repr(C)]
struct Attributes {
    kind: c_int,
    device: c_int,
    device_pointer: Handle,
    host_pointer: Handle,
    is_managed: c_int,
    flags: c_uint,
}

export! {
    hipMalloc(address: Out<Handle>, bytes: usize) |l| Ok(address.set(raw(told(l.sim.malloc(bytes as u64))?)))
    hipFree(address: Handle) |l| {
        // SAFETY: O6. The C function's caller frees what nothing uses any more.
        told(unsafe { l.sim.free(device(address)) }).map(|()| 0)
    }
    hipMallocAsync(address: Out<Handle>, bytes: usize, stream: Handle) |l| {
        Ok(address.set(raw(told(l.sim.malloc_async(&*l.streams.get(stream)?, bytes as u64))?)))
    }
    hipFreeAsync(address: Handle, stream: Handle) |l| {
        let stream = l.streams.get(stream)?;
        // SAFETY: O6. The same as for `hipFree`, in the stream's order.
        told(unsafe { l.sim.free_async(&stream, device(address)) }).map(|()| 0)
    }
    hipHostMalloc(pointer: Out<Handle>, bytes: usize, _flags: c_uint) |l| {
        Ok(pointer.set(told(l.sim.host_alloc(bytes))?.0.as_ptr().cast()))
    }
    hipHostFree(pointer: Handle) |l| {
        let pointer = host(pointer)?;
        // SAFETY: O6. The same as for `hipFree`.
        told(unsafe { l.sim.host_free(pointer) }).map(|()| 0)
    }
    hipHostRegister(base: Handle, bytes: usize, flags: c_uint) |l| {
        let (base, access) = (host(base)?, if flags & 8 == 0 { HostAccess::ReadWrite } else { HostAccess::Read });
        // SAFETY: P4. The C function's caller keeps the memory until it was unregistered.
        told(unsafe { l.sim.host_register(base, bytes, access) }).map(|()| 0)
    }
    hipHostUnregister(base: Handle) |l| {
        let base = host(base)?;
        // SAFETY: P3. The C function's caller names a base that nothing uses any more.
        told(unsafe { l.sim.host_unregister(base) }).map(|()| 0)
    }
    hipHostGetDevicePointer(address: Out<Handle>, pointer: Handle, _flags: c_uint) |l| {
        let found = told(l.sim.host_device_address(host(pointer)?))?;
        l.aliases.lock().unwrap_or_else(PoisonError::into_inner).insert(found.0, pointer.addr());
        Ok(address.set(raw(found)))
    }
    hipHostGetFlags(flags: Out<c_uint>, _pointer: Handle) |_l| Ok(flags.set(3))
    hipPointerGetAttributes(attributes: Out<Attributes>, pointer: Handle) |l| {
        let is_registered = told(l.sim.host_is_registered(host(pointer)?))?;
        let (is_old, device_pointer, host_pointer) = (l.profile == "hip-5.7", pointer, pointer);
        let kind = if is_registered && !is_old { 1 } else { 0 };
        Ok(attributes.set(Attributes { kind, device: 0, device_pointer, host_pointer, is_managed: 0, flags: 0 }))
    }
    hipMemcpyAsync(to: Handle, from: Handle, bytes: usize, _kind: c_int, stream: Handle) |l| {
        let (to, from, stream) = (location(to)?, location(from)?, l.streams.get(stream)?);
        // SAFETY: O1. The C function's caller keeps both ranges until the copy has completed.
        told(unsafe { l.sim.copy(&stream, to, from, bytes as u64) }).map(|()| 0)
    }
    hipMemsetAsync(at: Handle, value: c_int, bytes: usize, stream: Handle) |l| {
        let stream = l.streams.get(stream)?;
        // SAFETY: O1. As above.
        told(unsafe { l.sim.fill(&stream, device(at), value as u8, bytes as u64) }).map(|()| 0)
    }
}

// --- what only other code calls

export! {
    hipDeviceReset() |l| told(l.sim.reset_device()).map(|()| 0)
    hipDeviceSynchronize() |l| told(l.sim.device_synchronize()).map(|()| 0)
    hipMemcpy(to: Handle, from: Handle, bytes: usize, _kind: c_int) |l| {
        let (to, from) = (location(to)?, location(from)?);
        // SAFETY: O1. The C function's caller keeps both ranges until the copy has completed.
        told(unsafe { l.sim.copy_and_wait(to, from, bytes as u64) }).map(|()| 0)
    }
    hipMemset(at: Handle, value: c_int, bytes: usize) |l| {
        // SAFETY: O1. As above.
        told(unsafe { l.sim.fill_and_wait(device(at), value as u8, bytes as u64) }).map(|()| 0)
    }
    hipEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) |l| {
        let (event, stream) = (l.events.get(event)?, l.streams.get(stream)?);
        let recorded = match flags & 1 {
            0 => l.sim.event_record(&event, &stream),
            _ => l.sim.event_record_external(&event, &stream),
        };
        told(recorded).map(|()| 0)
    }
}

// --- modules and launches

export! {
    hipModuleLoadData(module: Out<Handle>, image: *const u8) |l| {
        let source = source_of(image).ok_or(INVALID_IMAGE)?;
        let loaded = told(l.sim.module_load(Image::Source(&source)))?;
        Ok(module.set(l.modules.add((loaded, source))))
    }
    hipModuleUnload(module: Handle) |l| {
        let (module, _) = l.modules.take(module)?;
        // SAFETY: R4. The C function's caller launches no kernel of it again.
        told(unsafe { l.sim.module_unload(module) }).map(|()| 0)
    }
    hipModuleGetFunction(function: Out<Handle>, module: Handle, name: *const c_char) |l| {
        let (module, name) = (l.modules.get(module)?, text(name).to_str().map_err(|_| INVALID_VALUE)?);
        let known = KERNELS.iter().find(|known| known.0 == name && module.1.contains(&format!(" {name}(")));
        let (name, parameters) = *known.ok_or(500)?;
        let found = told(l.sim.function(&module.0, name))?;
        Ok(function.set(l.functions.add(Kernel { name, parameters, function: found })))
    }
    hipModuleLaunchKernel(
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared_bytes: c_uint, stream: Handle, arguments: *mut *mut c_void, _extra: Handle
    ) |l| {
        let (kernel, stream) = (l.functions.get(function)?, l.streams.get(stream)?);
        let config = LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes };
        let arguments = read_arguments(kernel.parameters, arguments);
        match (kernel.name, arguments.first()) {
            ("hold", Some(Argument::Pointer { address, .. })) => l.hold(stream, *address),
            ("fault", Some(Argument::Scalar { words: [1, _], .. })) => l.sim.lose_device(Code::LAUNCH_FAILURE),
            // SAFETY: O1. The C function's caller passes what the kernel takes, and keeps it until it has run.
            _ => told(unsafe { l.sim.launch(&stream, &kernel.function, &config, &arguments) })?,
        }
        Ok(0)
    }
}

/// The source in an image that [`hiprtcGetCode`] made.
fn source_of(image: *const u8) -> Option<String> {
    // SAFETY: R4. The caller has checked that the image holds what an ELF header names, and padded it by as much again.
    let header = unsafe { std::slice::from_raw_parts(image, HEADER_BYTES + 8) };
    let bytes = u64::from_le_bytes(header[HEADER_BYTES..].try_into().ok()?);
    if !header.starts_with(b"\x7fELF") || bytes > 1 << 20 {
        return None;
    }
    // SAFETY: R4. As above; an image of ours holds as many bytes as it says.
    let source = unsafe { std::slice::from_raw_parts(image.wrapping_add(HEADER_BYTES + 8), bytes as usize) };
    String::from_utf8(source.to_vec()).ok()
}

/// The value of an argument, of up to 8 bytes.
fn read_word(arguments: *mut *mut c_void, index: usize, bytes: u64) -> u64 {
    // SAFETY: R4. The C function's caller passes a pointer to each value.
    let value: *const u8 = unsafe { arguments.wrapping_add(index).read() }.cast();
    (0..bytes as usize).rev().fold(0, |word, at| {
        // SAFETY: R4. As above; the value has this many bytes.
        let byte = unsafe { value.wrapping_add(at).read() };
        word << 8 | u64::from(byte)
    })
}

fn read_arguments(parameters: &[Parameter], arguments: *mut *mut c_void) -> Vec<Argument> {
    let word = |index, bytes| read_word(arguments, index, bytes);
    let argument = |(index, parameter): (usize, &Parameter)| match *parameter {
        Array(element, count) => {
            Argument::Pointer { address: DeviceAddress(word(index, 8)), bytes: element * word(count, 4) }
        }
        Block(bytes) => Argument::Pointer { address: DeviceAddress(word(index, 8)), bytes },
        Scalar(bytes) => Argument::Scalar { words: [word(index, bytes), 0], bytes },
    };
    parameters.iter().enumerate().map(argument).collect()
}

impl Library {
    /// Holds the stream still until the word is not zero.
    fn hold(&'static self, stream: Arc<SimStream>, address: DeviceAddress) {
        self.sim.stall(&stream);
        let host = self.aliases.lock().unwrap_or_else(PoisonError::into_inner).get(&address.0).copied();
        let is_over = move || {
            let word: *const AtomicU32 = std::ptr::with_exposed_provenance(host.unwrap_or_default());
            // SAFETY: P4. The caller keeps the word as long as the kernel runs.
            host.is_none() || unsafe { &*word }.load(Ordering::Acquire) != 0
        };
        std::thread::spawn(move || {
            let end = Instant::now() + HOLD_MAX;
            while !is_over() && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(50));
            }
            self.sim.resume(&stream);
        });
    }
}

// --- captures and graphs

export! {
    hipStreamBeginCapture(stream: Handle, capture_mode: c_int) |l| {
        told(l.sim.capture_begin(&*l.streams.get(stream)?, mode(capture_mode)?)).map(|()| 0)
    }
    hipStreamEndCapture(stream: Handle, graph: Out<Handle>) |l| {
        Ok(graph.set(l.graphs.add(told(l.sim.capture_end(&*l.streams.get(stream)?))?)))
    }
    hipStreamIsCapturing(stream: Handle, found: Out<c_int>) |l| {
        Ok(found.set(status(told(l.sim.capture_status(&*l.streams.get(stream)?))?)))
    }
    hipStreamGetCaptureInfo(stream: Handle, found: Out<c_int>, id: Out<c_ulonglong>) |l| {
        let stream = l.streams.get(stream)?;
        let code = found.set(status(told(l.sim.capture_status(&stream))?));
        Ok(code + id.set(l.sim.capture_number(&stream).unwrap_or(0)))
    }
    hipThreadExchangeStreamCaptureMode(exchanged: Out<c_int>) |l| {
        let before = told(l.sim.exchange_capture_mode(mode(exchanged.get().ok_or(INVALID_VALUE)?)?))?;
        Ok(exchanged.set(before as c_int))
    }
    hipGraphDestroy(graph: Handle) |l| told(l.sim.graph_destroy(l.graphs.take(graph)?)).map(|()| 0)
    hipGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) |l| {
        let description = told(l.sim.graph_describe(&*l.graphs.get(graph)?))?;
        let handles: Vec<_> = description.nodes.iter().enumerate().map(|(at, word)| node(at, word)).collect();
        Ok(nodes.fill(&handles, &count))
    }
    hipGraphGetEdges(graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) |l| {
        let description = told(l.sim.graph_describe(&*l.graphs.get(graph)?))?;
        let handle = |at: usize| node(at, &description.nodes[at]);
        let (firsts, seconds): (Vec<_>, Vec<_>) =
            description.edges.iter().map(|(first, second)| (handle(*first), handle(*second))).unzip();
        from.fill(&firsts, &count);
        Ok(to.fill(&seconds, &count))
    }
    hipGraphNodeGetType(node: Handle, kind: Out<c_int>) |_l| Ok(kind.set((node.addr() & 0xff) as c_int))
    hipGraphInstantiate(executable: Out<Handle>, graph: Handle, _node: Handle, _log: Handle, _bytes: usize) |l| {
        Ok(executable.set(l.executables.add(told(l.sim.graph_instantiate(&*l.graphs.get(graph)?))?)))
    }
    hipGraphExecUpdate(executable: Handle, graph: Handle, _node: Handle, _result: Handle) |l| {
        told(l.sim.graph_update(&*l.executables.get(executable)?, &*l.graphs.get(graph)?)).map(|()| 0)
    }
    hipGraphExecDestroy(executable: Handle) |l| {
        told(l.sim.executable_destroy(l.executables.take(executable)?)).map(|()| 0)
    }
    hipGraphLaunch(executable: Handle, stream: Handle) |l| {
        let (executable, stream) = (l.executables.get(executable)?, l.streams.get(stream)?);
        // SAFETY: C4. The C function's caller keeps all that the graph names.
        told(unsafe { l.sim.graph_launch(&executable, &stream) }).map(|()| 0)
    }
}

/// A node's handle holds its place and its kind.
fn node(at: usize, word: &str) -> Handle {
    const KINDS: [(&str, usize); 8] = [
        ("kernel", 0),
        ("copy", 1),
        ("fill", 2),
        ("host", 3),
        ("event_wait", 6),
        ("event_record", 7),
        ("malloc", 10),
        ("free", 11),
    ];
    let kind = KINDS.iter().find(|kind| kind.0 == word).map_or(5, |kind| kind.1);
    std::ptr::without_provenance_mut((at + 1) << 8 | kind)
}

// --- the compiler

export! {
    hiprtcVersion(major: Out<c_int>, minor: Out<c_int>) |_l| Ok(major.set(9) + minor.set(0))
    hiprtcCreateProgram(
        program: Out<Handle>, source: *const c_char, _name: *const c_char, _headers: c_int, _texts: Handle,
        _names: Handle
    ) |l| Ok(program.set(l.programs.add(text(source).to_string_lossy().into_owned())))
    hiprtcDestroyProgram(program: Out<Handle>) |l| {
        l.programs.remove(program.get().ok_or(INVALID_VALUE)?);
        Ok(0)
    }
    hiprtcCompileProgram(program: Handle, _count: c_int, _options: Handle) |l| l.programs.get(program).map(|_| 0)
    hiprtcGetProgramLogSize(_program: Handle, bytes: Out<usize>) |_l| Ok(bytes.set(0))
    hiprtcGetProgramLog(_program: Handle, _log: *mut c_char) |_l| Ok(0)
    hiprtcGetCodeSize(program: Handle, bytes: Out<usize>) |l| {
        Ok(bytes.set(HEADER_BYTES + 8 + l.programs.get(program)?.len()))
    }
    hiprtcGetCode(program: Handle, code: *mut c_char) |l| {
        let source = l.programs.get(program)?;
        let mut image = [0; HEADER_BYTES];
        image[..5].copy_from_slice(b"\x7fELF\x02");
        let bytes = image.into_iter().chain((source.len() as u64).to_le_bytes()).chain(source.bytes());
        for (at, byte) in bytes.enumerate() {
            // SAFETY: R4. The C function's caller passes as many places as `hiprtcGetCodeSize` said.
            unsafe { code.wrapping_add(at).write(byte as c_char) };
        }
        Ok(0)
    }
    hiprtcAddNameExpression(_program: Handle, _expression: *const c_char) |_l| Err(11)
    hiprtcGetLoweredName(_program: Handle, _expression: *const c_char, _lowered: Handle) |_l| Err(11)
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(code: c_int) -> *const c_char {
    LIBRARY.name_of(code)
}
