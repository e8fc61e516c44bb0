//! The table filled with the functions that the program was linked with: feature `hip-sys`.
//!
//! For programs that are built with ROCm's headers and want the loader to find the library at the program's start. Such a program
//! starts only where that major version of the library is. Functions that the crate hip-sys lacks, or that its oldest
//! library lacks, are looked up.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use libloading::os::unix::Library as SharedObject;

use crate::sys::Runtime;

macro_rules! linked {
    ($asked:ident: $($name:ident)*) => {
        match $asked.to_bytes() {
            $(name if name == stringify!($name).as_bytes() => hip_sys::hiprt::$name as *const c_void,)*
            _ => return None,
        }
    };
}

/// The table of the linked library.
pub(crate) fn runtime() -> Runtime {
    let program: &'static SharedObject = Box::leak(Box::new(SharedObject::this()));
    // SAFETY: H1. Linked, or found in the program's own scope; tests/abi.rs holds the prototypes against hip-sys.
    unsafe { Runtime::resolve(|name| address(name).or_else(|| crate::load::find(program, name))) }
}

fn address(name: &CStr) -> Option<NonNull<c_void>> {
    let address = linked! { name:
        hipInit
        hipRuntimeGetVersion
        hipDriverGetVersion
        hipDeviceGetName
        hipDeviceTotalMem
        hipDeviceGetPCIBusId
        hipGetErrorName
        hipGetErrorString
        hipGetLastError
        hipPeekAtLastError
        hipGetDeviceCount
        hipSetDevice
        hipGetDevice
        hipDeviceGetAttribute
        hipGetDeviceProperties
        hipDeviceGetStreamPriorityRange
        hipStreamCreateWithPriority
        hipStreamDestroy
        hipStreamQuery
        hipStreamSynchronize
        hipStreamWaitEvent
        hipEventCreateWithFlags
        hipEventDestroy
        hipEventRecord
        hipEventQuery
        hipEventSynchronize
        hipEventElapsedTime
        hipMalloc
        hipFree
        hipMemGetInfo
        hipHostMalloc
        hipHostFree
        hipHostRegister
        hipHostUnregister
        hipHostGetDevicePointer
        hipHostGetFlags
        hipPointerGetAttributes
        hipMemcpyAsync
        hipMemsetAsync
        hipMallocAsync
        hipFreeAsync
        hipDeviceGetDefaultMemPool
        hipMemPoolSetAttribute
        hipModuleLoadData
        hipModuleGetFunction
        hipModuleUnload
        hipModuleLaunchKernel
        hipStreamBeginCapture
        hipStreamEndCapture
        hipStreamIsCapturing
        hipStreamGetCaptureInfo
        hipThreadExchangeStreamCaptureMode
        hipGraphDestroy
        hipGraphGetNodes
        hipGraphGetEdges
        hipGraphNodeGetType
        hipGraphInstantiate
        hipGraphExecUpdate
        hipGraphExecDestroy
        hipGraphLaunch
    };
    NonNull::new(address.cast_mut())
}
