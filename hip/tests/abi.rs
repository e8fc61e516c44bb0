//! Holds the table against the declarations of the crate hip-sys: a difference in a prototype or a constant does not
//! compile.
//!
//! Types are compared as the calling convention sees them: C enums and `int` are one, pointers by what they lead to,
//! and structs that only the library knows are one. The names are those of the C interface.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{align_of, offset_of, size_of};

use hip_sys::hiprt;
use tenure_hip::sys::{self, Runtime};

/// How a type is passed: a number for each kind, and four bits more for each pointer around it.
trait Shape {
    const SHAPE: u64;
}

const INTEGER_32: u64 = 1;
const INTEGER_64: u64 = 2;
const FLOAT_32: u64 = 3;
const CHARACTER: u64 = 4;
const OPAQUE: u64 = 5;
const CALLBACK: u64 = 6;
const ATTRIBUTES: u64 = 7;
const POINTER: u64 = 8;

macro_rules! shapes {
    ($($shape:ident: $($kind:ty),*;)*) => {$($(
        impl Shape for $kind {
            const SHAPE: u64 = $shape;
        }
    )*)*};
}

shapes! {
    INTEGER_32: c_int, c_uint, hiprt::hipError_t, hiprt::hipDeviceAttribute_t, hiprt::hipMemcpyKind,
        hiprt::hipMemPoolAttr, hiprt::hipStreamCaptureMode, hiprt::hipStreamCaptureStatus, hiprt::hipGraphNodeType,
        hiprt::hipGraphExecUpdateResult;
    INTEGER_64: usize, u64;
    FLOAT_32: f32;
    CHARACTER: c_char;
    OPAQUE: c_void, sys::StreamTarget, sys::EventTarget, sys::ModuleTarget, sys::FunctionTarget, sys::GraphTarget,
        sys::GraphNodeTarget, sys::GraphExecTarget, sys::MemPoolTarget, hiprt::ihipStream_t, hiprt::ihipEvent_t,
        hiprt::ihipModule_t, hiprt::ihipModuleSymbol_t, hiprt::ihipGraph, hiprt::hipGraphNode, hiprt::hipGraphExec,
        hiprt::ihipMemPoolHandle_t, hiprt::hipDeviceProp_t;
    CALLBACK: Option<unsafe extern "C" fn(*mut c_void)>;
    ATTRIBUTES: sys::hipPointerAttribute_t, hiprt::hipPointerAttribute_t;
}

impl<T: Shape> Shape for *mut T {
    const SHAPE: u64 = T::SHAPE << 4 | POINTER;
}

impl<T: Shape> Shape for *const T {
    const SHAPE: u64 = T::SHAPE << 4 | POINTER;
}

/// The shapes of a function's arguments, then of its result; zero beyond.
trait Prototype: Copy {
    const SHAPES: [u64; 12];
}

macro_rules! prototypes {
    ($(($($argument:ident)*))*) => {$(
        impl<R: Shape, $($argument: Shape),*> Prototype for unsafe extern "C" fn($($argument),*) -> R {
            const SHAPES: [u64; 12] = {
                let mut shapes = [0; 12];
                let mut place = 0;
                $(
                    shapes[place] = $argument::SHAPE;
                    place += 1;
                )*
                shapes[place] = R::SHAPE;
                shapes
            };
        }
    )*};
}

impl<R: Shape> Prototype for unsafe extern "C" fn() -> R {
    const SHAPES: [u64; 12] = {
        let mut shapes = [0; 12];
        shapes[0] = R::SHAPE;
        shapes
    };
}

prototypes! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) (A B C D E F G H I)
    (A B C D E F G H I J) (A B C D E F G H I J K)
}

const fn is_same<T: Prototype, U: Prototype>(_: fn(&Runtime) -> Option<T>, _: U) -> bool {
    let mut place = 0;
    while place < 12 {
        if T::SHAPES[place] != U::SHAPES[place] {
            return false;
        }
        place += 1;
    }
    true
}

macro_rules! same {
    ($($name:ident($($place:tt),*);)*) => {
        $(const _: () = assert!(
            is_same(|table| table.$name, hiprt::$name as unsafe extern "C" fn($($place),*) -> _),
            concat!("the prototype of ", stringify!($name), " differs"),
        );)*
        /// What was compared.
        const COMPARED: &[&str] = &[$(stringify!($name)),*];
    };
}

same! {
    hipInit(_);
    hipRuntimeGetVersion(_);
    hipDriverGetVersion(_);
    hipDeviceGetName(_, _, _);
    hipDeviceTotalMem(_, _);
    hipDeviceGetPCIBusId(_, _, _);
    hipGetErrorName(_);
    hipGetErrorString(_);
    hipGetLastError();
    hipPeekAtLastError();
    hipGetDeviceCount(_);
    hipSetDevice(_);
    hipGetDevice(_);
    hipDeviceGetAttribute(_, _, _);
    hipGetDeviceProperties(_, _);
    hipDeviceGetStreamPriorityRange(_, _);
    hipStreamCreateWithPriority(_, _, _);
    hipStreamDestroy(_);
    hipStreamQuery(_);
    hipStreamSynchronize(_);
    hipStreamWaitEvent(_, _, _);
    hipEventCreateWithFlags(_, _);
    hipEventDestroy(_);
    hipEventRecord(_, _);
    hipEventQuery(_);
    hipEventSynchronize(_);
    hipEventElapsedTime(_, _, _);
    hipMalloc(_, _);
    hipFree(_);
    hipMemGetInfo(_, _);
    hipHostMalloc(_, _, _);
    hipHostFree(_);
    hipHostRegister(_, _, _);
    hipHostUnregister(_);
    hipHostGetDevicePointer(_, _, _);
    hipHostGetFlags(_, _);
    hipPointerGetAttributes(_, _);
    hipMemcpyAsync(_, _, _, _, _);
    hipMemsetAsync(_, _, _, _);
    hipMallocAsync(_, _, _);
    hipFreeAsync(_, _);
    hipDeviceGetDefaultMemPool(_, _);
    hipMemPoolSetAttribute(_, _, _);
    hipModuleLoadData(_, _);
    hipModuleGetFunction(_, _, _);
    hipModuleUnload(_);
    hipModuleLaunchKernel(_, _, _, _, _, _, _, _, _, _, _);
    hipLaunchHostFunc(_, _, _);
    hipStreamBeginCapture(_, _);
    hipStreamEndCapture(_, _);
    hipStreamIsCapturing(_, _);
    hipStreamGetCaptureInfo(_, _, _);
    hipThreadExchangeStreamCaptureMode(_);
    hipGraphDestroy(_);
    hipGraphGetNodes(_, _, _);
    hipGraphGetEdges(_, _, _, _);
    hipGraphNodeGetType(_, _);
    hipGraphInstantiate(_, _, _, _, _);
    hipGraphExecUpdate(_, _, _, _);
    hipGraphExecDestroy(_);
    hipGraphLaunch(_, _);
}

macro_rules! equal {
    ($($ours:ident = $theirs:expr;)*) => {$(
        const _: () = assert!(sys::$ours as i64 == $theirs as i64, concat!(stringify!($ours), " differs"));
    )*};
}

equal! {
    ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = hiprt::hipDeviceAttribute_t::hipDeviceAttributeComputeCapabilityMajor;
    ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = hiprt::hipDeviceAttribute_t::hipDeviceAttributeComputeCapabilityMinor;
    ATTRIBUTE_MULTIPROCESSOR_COUNT = hiprt::hipDeviceAttribute_t::hipDeviceAttributeMultiprocessorCount;
    ATTRIBUTE_WARP_SIZE = hiprt::hipDeviceAttribute_t::hipDeviceAttributeWarpSize;
    ATTRIBUTE_MEMORY_POOLS_SUPPORTED = hiprt::hipDeviceAttribute_t::hipDeviceAttributeMemoryPoolsSupported;
    STREAM_NON_BLOCKING = hiprt::hipStreamNonBlocking;
    EVENT_DISABLE_TIMING = hiprt::hipEventDisableTiming;
    HOST_MALLOC_PORTABLE = hiprt::hipHostMallocPortable;
    HOST_MALLOC_MAPPED = hiprt::hipHostMallocMapped;
    HOST_REGISTER_PORTABLE = hiprt::hipHostRegisterPortable;
    HOST_REGISTER_MAPPED = hiprt::hipHostRegisterMapped;
    MEMCPY_DEFAULT = hiprt::hipMemcpyKind::hipMemcpyDefault;
    POOL_RELEASE_THRESHOLD = hiprt::hipMemPoolAttr::hipMemPoolAttrReleaseThreshold;
    CAPTURE_MODE_GLOBAL = hiprt::hipStreamCaptureMode::hipStreamCaptureModeGlobal;
    CAPTURE_MODE_THREAD_LOCAL = hiprt::hipStreamCaptureMode::hipStreamCaptureModeThreadLocal;
    CAPTURE_MODE_RELAXED = hiprt::hipStreamCaptureMode::hipStreamCaptureModeRelaxed;
    CAPTURE_STATUS_NONE = hiprt::hipStreamCaptureStatus::hipStreamCaptureStatusNone;
    CAPTURE_STATUS_ACTIVE = hiprt::hipStreamCaptureStatus::hipStreamCaptureStatusActive;
    CAPTURE_STATUS_INVALIDATED = hiprt::hipStreamCaptureStatus::hipStreamCaptureStatusInvalidated;
}

const _: () = assert!(size_of::<sys::hipPointerAttribute_t>() == size_of::<hiprt::hipPointerAttribute_t>());
const _: () = assert!(align_of::<sys::hipPointerAttribute_t>() == align_of::<hiprt::hipPointerAttribute_t>());
const _: () = assert!(size_of::<sys::PropertiesBuffer>() >= size_of::<hiprt::hipDeviceProp_t>());
const _: () = assert!(align_of::<sys::PropertiesBuffer>() >= align_of::<hiprt::hipDeviceProp_t>());

macro_rules! offsets {
    ($($ours:ident = $theirs:ident;)*) => {$(
        const _: () = assert!(
            offset_of!(sys::hipPointerAttribute_t, $ours) == offset_of!(hiprt::hipPointerAttribute_t, $theirs)
        );
    )*};
}

offsets! {
    kind = memoryType;
    device = device;
    device_pointer = devicePointer;
    host_pointer = hostPointer;
    is_managed = isManaged;
    flags = allocationFlags;
}

#[test]
fn every_function_but_the_one_that_hip_sys_lacks_was_compared() {
    let missed: Vec<_> =
        Runtime::SYMBOLS.iter().map(|symbol| symbol.name).filter(|name| !COMPARED.contains(name)).collect();
    assert_eq!(missed, ["hipGetDevicePropertiesR0600"]);
}

#[test]
fn the_comparison_tells_prototypes_apart() {
    let differs = [
        // Another number of arguments.
        is_same(|table| table.hipFree, hiprt::hipFreeAsync as unsafe extern "C" fn(_, _) -> _),
        // A pointer to a pointer for a pointer to a number.
        is_same(|table| table.hipGetDevice, hiprt::hipFree as unsafe extern "C" fn(_) -> _),
        // A number of 64 bits for one of 32.
        is_same(|table| table.hipMalloc, hiprt::hipEventCreateWithFlags as unsafe extern "C" fn(_, _) -> _),
        // A text for a code.
        is_same(|table| table.hipGetErrorName, hiprt::hipSetDevice as unsafe extern "C" fn(_) -> _),
    ];
    assert_eq!(differs, [false; 4]);
    assert!(is_same(|table| table.hipFree, hiprt::hipHostFree as unsafe extern "C" fn(_) -> _));
}
