//! The C functions that this crate calls: one table, bound by hand.
//!
//! Every function returns a plain `c_int`: a code that no header has yet is data, where a Rust enum would make it
//! undefined behaviour. Every entry is optional, since libraries of HIP 5 to 7 differ in what they have; calling an
//! absent one gives [`ABSENT`] and calls nothing. Calling a present one costs the branch and the indirect call.
//!
//! The prototypes were compared with the headers of HIP 5.2, 5.4, 5.7, 6.2 to 6.4, 7.0 to 7.2 and 7.14: they are the
//! same in all of them (7.0 added `const` to two string arrays of hiprtc, which is the same ABI). `tests/abi.rs` holds
//! them against the declarations of the crate hip-sys at compile time. [`Runtime::SYMBOLS`] and [`Compiler::SYMBOLS`]
//! list each function with the versions that have it and the vendor's page; [`Symbol`] prints as one row of that list.
//!
//! | what drifted | what is done about it |
//! |---|---|
//! | `hipPointerAttribute_t.type`: 5.x numbers Host 0, Device 1; 6.0 on Unregistered 0, Host 1, Device 2 | decoded by the library's version |
//! | `hipDeviceProp_t`: 792 bytes before 6.0, 1,472 since, under the name `hipGetDevicePropertiesR0600` | [`PropertiesBuffer`] is larger than both, and only one string is read from it |
//! | `hipGraphNodeType`: begins at 1 in 5.2, at 0 from 5.4; 10 and 11 became allocation and free | decoded by the library's version |
//! | `hipHostRegisterReadOnly` (8): unknown to 5.x | a refusal is answered by registering without it |
//! | `hipGetLastError`: before 7.0 a success resets it, and "not ready" sets it | called after a failed call alone, to forget its error; before 7.0 after "not ready" too |
//! | a stale stream handle: an error before 7.0, a crash since | handles are owned; destroying one is `unsafe` |

#![allow(non_camel_case_types, non_snake_case, reason = "the names are those of the C interface")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::ptr::NonNull;

/// What a call of an absent function gives. No library returns it: HIP's codes are not negative.
pub const ABSENT: c_int = c_int::MIN;

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident = $target:ident;)*) => {$(
        #[doc = concat!("What a `", stringify!($name), "` points to: only the library knows.")]
        #[derive(Debug)]
        #[repr(C)]
        pub struct $target {
            _opaque: [u8; 0],
        }
        $(#[$doc])*
        pub type $name = *mut $target;
    )*};
}

opaque! {
    /// A stream.
    hipStream_t = StreamTarget;
    /// An event.
    hipEvent_t = EventTarget;
    /// Loaded code.
    hipModule_t = ModuleTarget;
    /// A kernel of a module.
    hipFunction_t = FunctionTarget;
    /// A graph.
    hipGraph_t = GraphTarget;
    /// A node of a graph.
    hipGraphNode_t = GraphNodeTarget;
    /// A graph made ready to launch.
    hipGraphExec_t = GraphExecTarget;
    /// A pool of device memory.
    hipMemPool_t = MemPoolTarget;
    /// A compilation.
    hiprtcProgram = ProgramTarget;
}

/// A function that a stream runs on the host.
pub type hipHostFn_t = Option<unsafe extern "C" fn(*mut c_void)>;

/// What `hipPointerGetAttributes` writes: 32 bytes in every version, with these offsets.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hipPointerAttribute_t {
    /// The kind of memory; its numbers changed in 6.0.
    pub kind: c_int,
    /// The device that it belongs to.
    pub device: c_int,
    /// Its address for the device.
    pub device_pointer: *mut c_void,
    /// Its address for the host.
    pub host_pointer: *mut c_void,
    /// Whether it is managed memory.
    pub is_managed: c_int,
    /// The flags it was made with.
    pub flags: c_uint,
}

/// Room for any version's `hipDeviceProp_t`.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct PropertiesBuffer(pub [u8; 16384]);

/// `hipDeviceAttributeComputeCapabilityMajor`.
pub const ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 23;
/// `hipDeviceAttributeComputeCapabilityMinor`.
pub const ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 61;
/// `hipDeviceAttributeMultiprocessorCount`.
pub const ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 63;
/// `hipDeviceAttributeWarpSize`.
pub const ATTRIBUTE_WARP_SIZE: c_int = 87;
/// `hipDeviceAttributeMemoryPoolsSupported`.
pub const ATTRIBUTE_MEMORY_POOLS_SUPPORTED: c_int = 88;

/// `hipStreamNonBlocking`.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `hipEventDisableTiming`.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `hipHostMallocPortable`.
pub const HOST_MALLOC_PORTABLE: c_uint = 1;
/// `hipHostMallocMapped`.
pub const HOST_MALLOC_MAPPED: c_uint = 2;
/// `hipHostRegisterPortable`.
pub const HOST_REGISTER_PORTABLE: c_uint = 1;
/// `hipHostRegisterMapped`.
pub const HOST_REGISTER_MAPPED: c_uint = 2;
/// `hipHostRegisterReadOnly`; unknown to 5.x.
pub const HOST_REGISTER_READ_ONLY: c_uint = 8;
/// `hipMemcpyDefault`: the addresses say the direction.
pub const MEMCPY_DEFAULT: c_int = 4;
/// `hipMemPoolAttrReleaseThreshold`.
pub const POOL_RELEASE_THRESHOLD: c_int = 4;

/// `hipStreamCaptureModeGlobal`.
pub const CAPTURE_MODE_GLOBAL: c_int = 0;
/// `hipStreamCaptureModeThreadLocal`.
pub const CAPTURE_MODE_THREAD_LOCAL: c_int = 1;
/// `hipStreamCaptureModeRelaxed`.
pub const CAPTURE_MODE_RELAXED: c_int = 2;
/// `hipStreamCaptureStatusNone`.
pub const CAPTURE_STATUS_NONE: c_int = 0;
/// `hipStreamCaptureStatusActive`.
pub const CAPTURE_STATUS_ACTIVE: c_int = 1;
/// `hipStreamCaptureStatusInvalidated`.
pub const CAPTURE_STATUS_INVALIDATED: c_int = 2;

/// One function of a table: who has it, and where its vendor describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its C name.
    pub name: &'static str,
    /// The first version seen to have it, and the last where it went away again.
    pub versions: &'static str,
    /// The page of the vendor's reference: below [`PAGES`], or whole.
    pub page: &'static str,
}

/// Where the vendor's pages lie.
pub const PAGES: &str = "https://rocm.docs.amd.com/projects/HIP/en/latest/reference/hip_runtime_api/modules/";

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<36} {:<6} ", self.name, self.versions)?;
        match self.page.contains("://") {
            true => f.write_str(self.page),
            false => write!(f, "{PAGES}{}.html", self.page),
        }
    }
}

/// What an absent function returns in place of a result.
trait Absent {
    const VALUE: Self;
}

impl Absent for c_int {
    const VALUE: Self = ABSENT;
}

impl Absent for *const c_char {
    const VALUE: Self = std::ptr::null();
}

macro_rules! table {
    (
        $(#[$table_doc:meta])* $table:ident;
        $($page:literal { $($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, $versions:literal;)* })*
    ) => {
        $(#[$table_doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $table {
            $($(
                #[doc = concat!("`", stringify!($name), "`, in HIP ", $versions, ".")]
                pub $name: Option<unsafe extern "C" fn($($kind),*) -> $result>,
            )*)*
        }

        impl $table {
            /// Every function of the table.
            pub const SYMBOLS: &'static [Symbol] = &[$($(
                Symbol { name: stringify!($name), versions: $versions, page: $page },
            )*)*];

            /// Fills a table with what `find` gives for each name.
            ///
            /// # Safety
            /// - What `find` gives for a name is that C function, with the prototype of this table, and stays
            ///   callable for the rest of the process.
            pub unsafe fn resolve(mut find: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>) -> Self {
                Self {$($(
                    $name: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(
                            concat!(stringify!($name), "\0").as_bytes(),
                        ) {
                            Ok(name) => name,
                            Err(_) => panic!("a name holds no zero byte"),
                        };
                        let found = find(NAME);
                        // SAFETY: H1. An optional pointer and an optional function pointer have one layout, and the
                        // caller of `resolve` vouches for the prototype.
                        unsafe {
                            std::mem::transmute::<
                                Option<NonNull<c_void>>,
                                Option<unsafe extern "C" fn($($kind),*) -> $result>,
                            >(found)
                        }
                    },
                )*)*}
            }

            /// The functions that this library lacks.
            pub fn absent(&self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $($(if self.$name.is_none() { names.push(stringify!($name)); })*)*
                names
            }

            $($(
                #[doc = concat!("Calls `", stringify!($name), "`; the absent value where the library lacks it.")]
                ///
                /// # Safety
                /// - The arguments are what the vendor's page of the function asks for.
                #[inline]
                #[allow(clippy::too_many_arguments, reason = "the prototype is the vendor's")]
                pub unsafe fn $name(&self $(, $argument: $kind)*) -> $result {
                    match self.$name {
                        // SAFETY: H4. The caller keeps what the vendor's page asks for.
                        Some(function) => unsafe { function($($argument),*) },
                        None => <$result as Absent>::VALUE,
                    }
                }
            )*)*
        }
    };
}

table! {
    /// The functions of `libamdhip64`.
    Runtime;
    "initialization_and_version" {
        hipInit(flags: c_uint) -> c_int, "5.2-";
        hipRuntimeGetVersion(version: *mut c_int) -> c_int, "5.2-";
        hipDriverGetVersion(version: *mut c_int) -> c_int, "5.2-";
        hipDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int, "5.2-";
        hipDeviceTotalMem(bytes: *mut usize, device: c_int) -> c_int, "5.2-";
        hipDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: c_int) -> c_int, "5.2-";
    }
    "error_handling" {
        hipGetErrorName(code: c_int) -> *const c_char, "5.2-";
        hipGetErrorString(code: c_int) -> *const c_char, "5.2-";
        hipGetLastError() -> c_int, "5.2-";
        hipPeekAtLastError() -> c_int, "5.2-";
    }
    "device_management" {
        hipGetDeviceCount(count: *mut c_int) -> c_int, "5.2-";
        hipSetDevice(device: c_int) -> c_int, "5.2-";
        hipGetDevice(device: *mut c_int) -> c_int, "5.2-";
        hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int, "5.2-";
        hipGetDeviceProperties(properties: *mut c_void, device: c_int) -> c_int, "5.2-";
        hipGetDevicePropertiesR0600(properties: *mut c_void, device: c_int) -> c_int, "6.0-";
    }
    "stream_management" {
        hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int, "5.2-";
        hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: c_uint, priority: c_int) -> c_int, "5.2-";
        hipStreamDestroy(stream: hipStream_t) -> c_int, "5.2-";
        hipStreamQuery(stream: hipStream_t) -> c_int, "5.2-";
        hipStreamSynchronize(stream: hipStream_t) -> c_int, "5.2-";
        hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint) -> c_int, "5.2-";
    }
    "event_management" {
        hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint) -> c_int, "5.2-";
        hipEventDestroy(event: hipEvent_t) -> c_int, "5.2-";
        hipEventRecord(event: hipEvent_t, stream: hipStream_t) -> c_int, "5.2-";
        hipEventQuery(event: hipEvent_t) -> c_int, "5.2-";
        hipEventSynchronize(event: hipEvent_t) -> c_int, "5.2-";
        hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, end: hipEvent_t) -> c_int, "5.2-";
    }
    "memory_management" {
        hipMalloc(address: *mut *mut c_void, bytes: usize) -> c_int, "5.2-";
        hipFree(address: *mut c_void) -> c_int, "5.2-";
        hipMemGetInfo(free: *mut usize, total: *mut usize) -> c_int, "5.2-";
        hipHostMalloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int, "5.2-";
        hipHostFree(pointer: *mut c_void) -> c_int, "5.2-";
        hipHostRegister(base: *mut c_void, bytes: usize, flags: c_uint) -> c_int, "5.2-";
        hipHostUnregister(base: *mut c_void) -> c_int, "5.2-";
        hipHostGetDevicePointer(address: *mut *mut c_void, pointer: *mut c_void, flags: c_uint) -> c_int, "5.2-";
        hipHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) -> c_int, "5.2-";
        hipPointerGetAttributes(attributes: *mut hipPointerAttribute_t, pointer: *const c_void) -> c_int, "5.2-";
        hipMemcpyAsync(
            to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: hipStream_t
        ) -> c_int, "5.2-";
        hipMemsetAsync(at: *mut c_void, value: c_int, bytes: usize, stream: hipStream_t) -> c_int, "5.2-";
    }
    "memory_management/stream_ordered_memory_allocator" {
        hipMallocAsync(address: *mut *mut c_void, bytes: usize, stream: hipStream_t) -> c_int, "5.2-";
        hipFreeAsync(address: *mut c_void, stream: hipStream_t) -> c_int, "5.2-";
        hipDeviceGetDefaultMemPool(pool: *mut hipMemPool_t, device: c_int) -> c_int, "5.2-";
        hipMemPoolSetAttribute(pool: hipMemPool_t, attribute: c_int, value: *mut c_void) -> c_int, "5.2-";
    }
    "module_management" {
        hipModuleLoadData(module: *mut hipModule_t, image: *const c_void) -> c_int, "5.2-";
        hipModuleGetFunction(function: *mut hipFunction_t, module: hipModule_t, name: *const c_char) -> c_int, "5.2-";
        hipModuleUnload(module: hipModule_t) -> c_int, "5.2-";
        hipModuleLaunchKernel(
            function: hipFunction_t, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared_bytes: c_uint, stream: hipStream_t, arguments: *mut *mut c_void,
            extra: *mut *mut c_void
        ) -> c_int, "5.2-";
    }
    "graph_management" {
        hipLaunchHostFunc(stream: hipStream_t, function: hipHostFn_t, data: *mut c_void) -> c_int, "5.7-";
        hipStreamBeginCapture(stream: hipStream_t, mode: c_int) -> c_int, "5.2-";
        hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t) -> c_int, "5.2-";
        hipStreamIsCapturing(stream: hipStream_t, status: *mut c_int) -> c_int, "5.2-";
        hipStreamGetCaptureInfo(stream: hipStream_t, status: *mut c_int, id: *mut c_ulonglong) -> c_int, "5.2-";
        hipThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int, "5.2-";
        hipGraphDestroy(graph: hipGraph_t) -> c_int, "5.2-";
        hipGraphGetNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize) -> c_int, "5.2-";
        hipGraphGetEdges(
            graph: hipGraph_t, from: *mut hipGraphNode_t, to: *mut hipGraphNode_t, count: *mut usize
        ) -> c_int, "5.2-";
        hipGraphNodeGetType(node: hipGraphNode_t, kind: *mut c_int) -> c_int, "5.2-";
        hipGraphInstantiate(
            executable: *mut hipGraphExec_t, graph: hipGraph_t, node: *mut hipGraphNode_t, log: *mut c_char,
            bytes: usize
        ) -> c_int, "5.2-";
        hipGraphExecUpdate(
            executable: hipGraphExec_t, graph: hipGraph_t, node: *mut hipGraphNode_t, result: *mut c_int
        ) -> c_int, "5.2-";
        hipGraphExecDestroy(executable: hipGraphExec_t) -> c_int, "5.2-";
        hipGraphLaunch(executable: hipGraphExec_t, stream: hipStream_t) -> c_int, "5.2-";
    }
}

table! {
    /// The functions of `libhiprtc`, which `libamdhip64` held as well before 7.0.
    Compiler;
    "runtime_compilation" {
        hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int, "5.2-";
        hiprtcGetErrorString(code: c_int) -> *const c_char, "5.2-";
        hiprtcCreateProgram(
            program: *mut hiprtcProgram, source: *const c_char, name: *const c_char, headers: c_int,
            texts: *const *const c_char, names: *const *const c_char
        ) -> c_int, "5.2-";
        hiprtcDestroyProgram(program: *mut hiprtcProgram) -> c_int, "5.2-";
        hiprtcCompileProgram(program: hiprtcProgram, count: c_int, options: *const *const c_char) -> c_int, "5.2-";
        hiprtcGetProgramLogSize(program: hiprtcProgram, bytes: *mut usize) -> c_int, "5.2-";
        hiprtcGetProgramLog(program: hiprtcProgram, log: *mut c_char) -> c_int, "5.2-";
        hiprtcGetCodeSize(program: hiprtcProgram, bytes: *mut usize) -> c_int, "5.2-";
        hiprtcGetCode(program: hiprtcProgram, code: *mut c_char) -> c_int, "5.2-";
        hiprtcAddNameExpression(program: hiprtcProgram, expression: *const c_char) -> c_int, "5.2-";
        hiprtcGetLoweredName(
            program: hiprtcProgram, expression: *const c_char, lowered: *mut *const c_char
        ) -> c_int, "5.2-";
    }
}

table! {
    /// The functions of `libamd_comgr`, which hiprtc compiles with.
    Comgr;
    "https://github.com/ROCm/llvm-project/tree/amd-staging/amd/comgr" {
        amd_comgr_get_isa_count(count: *mut usize) -> c_int, "5.2-";
        amd_comgr_get_isa_name(index: usize, name: *mut *const c_char) -> c_int, "5.2-";
    }
}
