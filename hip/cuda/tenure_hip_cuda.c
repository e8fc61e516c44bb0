/* The HIP functions that tenure-hip calls, over the CUDA runtime: the same program then runs on an NVIDIA GPU.
 *
 * Build with build.sh, then set TENURE_HIP_LIBRARY to the library. It checks the Rust code, its locking and the ABI of
 * the table; it says nothing about AMD's semantics, since what answers here is CUDA.
 *
 * What is adapted, everything else being a plain call with equal numbers:
 *   codes               see from_cuda(); HIP kept CUDA's numbers, a few differ
 *   modules             cudaLibrary_t, so that neither nvcc nor libcuda is needed; a kernel is a cudaKernel_t. CUDA takes
 *                       garbage and reads it later; what is no image is refused here, as HIP does
 *   dynamic shared      CUDA wants to be asked before a launch uses more than 48 KiB; HIP does not
 *   graph calls         other argument lists: instantiate, update, capture info, edges
 *   pointer attributes  another layout; the kinds of memory are numbered as in HIP 6
 *   device attributes   numbered anew: those that tenure-hip asks for, by table
 *   hiprtc              NVRTC, opened when it is first needed; --offload-arch=sm_90 becomes --gpu-architecture=sm_90
 *
 * Not exported, and therefore absent from the table: hipGetDeviceProperties and hipGetDevicePropertiesR0600.
 */
#define _GNU_SOURCE /* dladdr */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef int hip_code;

enum {
    HIP_SUCCESS = 0,
    HIP_INVALID_VALUE = 1,
    HIP_INVALID_IMAGE = 200,
    HIP_LAUNCH_FAILURE = 719,
    HIP_NOT_SUPPORTED = 801,
    HIP_UNKNOWN = 999,
    HIP_INVALID_CLUSTER_SIZE = 1054
};

/* ---- codes */

/* A HIP name for each number that both have. */
static const struct { int code; const char *name; } NAMES[] = {
    {0, "hipSuccess"}, {1, "hipErrorInvalidValue"}, {2, "hipErrorOutOfMemory"}, {3, "hipErrorNotInitialized"},
    {4, "hipErrorDeinitialized"}, {9, "hipErrorInvalidConfiguration"}, {12, "hipErrorInvalidPitchValue"},
    {13, "hipErrorInvalidSymbol"}, {17, "hipErrorInvalidDevicePointer"}, {21, "hipErrorInvalidMemcpyDirection"},
    {35, "hipErrorInsufficientDriver"}, {52, "hipErrorMissingConfiguration"}, {53, "hipErrorPriorLaunchFailure"},
    {98, "hipErrorInvalidDeviceFunction"}, {100, "hipErrorNoDevice"}, {101, "hipErrorInvalidDevice"},
    {200, "hipErrorInvalidImage"}, {201, "hipErrorInvalidContext"}, {205, "hipErrorMapFailed"},
    {206, "hipErrorUnmapFailed"}, {207, "hipErrorArrayIsMapped"}, {208, "hipErrorAlreadyMapped"},
    {209, "hipErrorNoBinaryForGpu"}, {210, "hipErrorAlreadyAcquired"}, {211, "hipErrorNotMapped"},
    {212, "hipErrorNotMappedAsArray"}, {213, "hipErrorNotMappedAsPointer"}, {214, "hipErrorECCNotCorrectable"},
    {215, "hipErrorUnsupportedLimit"}, {216, "hipErrorContextAlreadyInUse"}, {217, "hipErrorPeerAccessUnsupported"},
    {218, "hipErrorInvalidKernelFile"}, {219, "hipErrorInvalidGraphicsContext"}, {300, "hipErrorInvalidSource"},
    {301, "hipErrorFileNotFound"}, {302, "hipErrorSharedObjectSymbolNotFound"},
    {303, "hipErrorSharedObjectInitFailed"}, {304, "hipErrorOperatingSystem"}, {400, "hipErrorInvalidHandle"},
    {401, "hipErrorIllegalState"}, {500, "hipErrorNotFound"}, {600, "hipErrorNotReady"},
    {700, "hipErrorIllegalAddress"}, {701, "hipErrorLaunchOutOfResources"}, {702, "hipErrorLaunchTimeOut"},
    {704, "hipErrorPeerAccessAlreadyEnabled"}, {705, "hipErrorPeerAccessNotEnabled"},
    {708, "hipErrorSetOnActiveProcess"}, {709, "hipErrorContextIsDestroyed"}, {710, "hipErrorAssert"},
    {712, "hipErrorHostMemoryAlreadyRegistered"}, {713, "hipErrorHostMemoryNotRegistered"},
    {719, "hipErrorLaunchFailure"}, {720, "hipErrorCooperativeLaunchTooLarge"}, {801, "hipErrorNotSupported"},
    {900, "hipErrorStreamCaptureUnsupported"}, {901, "hipErrorStreamCaptureInvalidated"},
    {902, "hipErrorStreamCaptureMerge"}, {903, "hipErrorStreamCaptureUnmatched"},
    {904, "hipErrorStreamCaptureUnjoined"}, {905, "hipErrorStreamCaptureIsolation"},
    {906, "hipErrorStreamCaptureImplicit"}, {907, "hipErrorCapturedEvent"},
    {908, "hipErrorStreamCaptureWrongThread"}, {910, "hipErrorGraphExecUpdateFailure"},
    {914, "hipErrorInvalidResourceType"}, {915, "hipErrorInvalidResourceConfiguration"},
};
enum { NAME_COUNT = sizeof NAMES / sizeof NAMES[0] };

static const char *name_of(int code) {
    for (int i = 0; i < NAME_COUNT; i++)
        if (NAMES[i].code == code) return NAMES[i].name;
    return NULL;
}

/* Codes that only CUDA has become 999; the original goes to stderr where TENURE_HIP_CUDA_LOG is set. */
static hip_code only_cuda(int code) {
    if (getenv("TENURE_HIP_CUDA_LOG"))
        fprintf(stderr, "tenure_hip_cuda: CUDA error %d (%s) reads as 999\n", code, cudaGetErrorName((cudaError_t)code));
    return HIP_UNKNOWN;
}

static hip_code from_cuda_slow(int code) {
    if (code >= 714 && code <= 718) return HIP_LAUNCH_FAILURE; /* stack, instruction, alignment, space, counter */
    if (code == 912) return HIP_INVALID_CLUSTER_SIZE;
    if (code == 800) return 800; /* inside a host function: HIP has no such number, and tenure-hip knows this one */
    if (name_of(code)) return code;
    return only_cuda(code);
}

static inline hip_code from_cuda(cudaError_t code) {
    if (__builtin_expect(code == cudaSuccess, 1)) return HIP_SUCCESS;
    if (code == cudaErrorNotReady) return 600;
    return from_cuda_slow((int)code);
}

EXPORT const char *hipGetErrorName(int code) {
    if (code == HIP_INVALID_CLUSTER_SIZE) return "hipErrorInvalidClusterSize";
    if (code == 800) return "cudaErrorNotPermitted";
    const char *name = name_of(code);
    return name ? name : "hipErrorUnknown";
}

EXPORT const char *hipGetErrorString(int code) {
    if (code == HIP_INVALID_CLUSTER_SIZE) return cudaGetErrorString((cudaError_t)912);
    return cudaGetErrorString((cudaError_t)code);
}

EXPORT hip_code hipGetLastError(void) { return from_cuda(cudaGetLastError()); }
EXPORT hip_code hipPeekAtLastError(void) { return from_cuda(cudaPeekAtLastError()); }

/* ---- start, devices */

/* Says what this library is, and which CUDA it was built for. */
EXPORT int tenure_hip_cuda_version(void) { return CUDART_VERSION; }

EXPORT hip_code hipInit(unsigned flags) {
    int count = 0;
    if (flags != 0) return HIP_INVALID_VALUE;
    return from_cuda(cudaGetDeviceCount(&count));
}

EXPORT hip_code hipRuntimeGetVersion(int *version) { return from_cuda(cudaRuntimeGetVersion(version)); }
EXPORT hip_code hipDriverGetVersion(int *version) { return from_cuda(cudaDriverGetVersion(version)); }

EXPORT hip_code hipGetDeviceCount(int *count) {
    if (!count) return HIP_INVALID_VALUE;
    hip_code code = from_cuda(cudaGetDeviceCount(count));
    if (code != HIP_SUCCESS) *count = 0;
    return code;
}

EXPORT hip_code hipSetDevice(int device) { return from_cuda(cudaSetDevice(device)); }
EXPORT hip_code hipGetDevice(int *device) { return from_cuda(cudaGetDevice(device)); }

EXPORT hip_code hipDeviceGetAttribute(int *value, int attribute, int device) {
    static const struct { int hip; enum cudaDeviceAttr cuda; } TABLE[] = {
        {2, cudaDevAttrAsyncEngineCount}, {3, cudaDevAttrCanMapHostMemory}, {16, cudaDevAttrIntegrated},
        {23, cudaDevAttrComputeCapabilityMajor}, {24, cudaDevAttrManagedMemory}, {56, cudaDevAttrMaxThreadsPerBlock},
        {61, cudaDevAttrComputeCapabilityMinor}, {63, cudaDevAttrMultiProcessorCount}, {87, cudaDevAttrWarpSize},
        {88, cudaDevAttrMemoryPoolsSupported}, {90, cudaDevAttrHostRegisterSupported},
    };
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++)
        if (TABLE[i].hip == attribute) return from_cuda(cudaDeviceGetAttribute(value, TABLE[i].cuda, device));
    int count = 0;
    hip_code code = from_cuda(cudaGetDeviceCount(&count));
    return code != HIP_SUCCESS ? code : HIP_INVALID_VALUE;
}

EXPORT hip_code hipDeviceGetName(char *name, int length, int device) {
    struct cudaDeviceProp properties;
    hip_code code = from_cuda(cudaGetDeviceProperties(&properties, device));
    if (code != HIP_SUCCESS) return code;
    if (!name || length <= 0) return HIP_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", properties.name);
    return HIP_SUCCESS;
}

EXPORT hip_code hipDeviceTotalMem(size_t *bytes, int device) {
    struct cudaDeviceProp properties;
    hip_code code = from_cuda(cudaGetDeviceProperties(&properties, device));
    if (code == HIP_SUCCESS) *bytes = properties.totalGlobalMem;
    return code;
}

EXPORT hip_code hipDeviceGetPCIBusId(char *id, int length, int device) {
    return from_cuda(cudaDeviceGetPCIBusId(id, length, device));
}

EXPORT hip_code hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return from_cuda(cudaDeviceGetStreamPriorityRange(least, greatest));
}

/* ---- streams */

EXPORT hip_code hipStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    return from_cuda(cudaStreamCreateWithPriority(stream, flags, priority));
}
/* Not in the table of tenure-hip: `tenure probe` asks for these by name, as calls of other code. */
EXPORT hip_code hipDeviceReset(void) { return from_cuda(cudaDeviceReset()); }
EXPORT hip_code hipDeviceSynchronize(void) { return from_cuda(cudaDeviceSynchronize()); }
EXPORT hip_code hipMemcpy(void *to, const void *from, size_t bytes, int kind) {
    return from_cuda(cudaMemcpy(to, from, bytes, (enum cudaMemcpyKind)kind));
}
EXPORT hip_code hipMemset(void *at, int value, size_t bytes) { return from_cuda(cudaMemset(at, value, bytes)); }
EXPORT hip_code hipEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    return from_cuda(cudaEventRecordWithFlags(event, stream, flags));
}

EXPORT hip_code hipStreamDestroy(cudaStream_t stream) { return from_cuda(cudaStreamDestroy(stream)); }
EXPORT hip_code hipStreamQuery(cudaStream_t stream) { return from_cuda(cudaStreamQuery(stream)); }
EXPORT hip_code hipStreamSynchronize(cudaStream_t stream) { return from_cuda(cudaStreamSynchronize(stream)); }
EXPORT hip_code hipStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return from_cuda(cudaStreamWaitEvent(stream, event, flags));
}
EXPORT hip_code hipLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data) {
    return from_cuda(cudaLaunchHostFunc(stream, function, data));
}

/* ---- events */

/* HIP's flags above 7 are hints about fences that CUDA does not have. */
EXPORT hip_code hipEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    return from_cuda(cudaEventCreateWithFlags(event, flags & 7u));
}
EXPORT hip_code hipEventDestroy(cudaEvent_t event) { return from_cuda(cudaEventDestroy(event)); }
EXPORT hip_code hipEventRecord(cudaEvent_t event, cudaStream_t stream) { return from_cuda(cudaEventRecord(event, stream)); }
EXPORT hip_code hipEventQuery(cudaEvent_t event) { return from_cuda(cudaEventQuery(event)); }
EXPORT hip_code hipEventSynchronize(cudaEvent_t event) { return from_cuda(cudaEventSynchronize(event)); }
EXPORT hip_code hipEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    return from_cuda(cudaEventElapsedTime(milliseconds, start, end));
}

/* ---- memory */

EXPORT hip_code hipMalloc(void **address, size_t bytes) { return from_cuda(cudaMalloc(address, bytes)); }
EXPORT hip_code hipFree(void *address) { return from_cuda(cudaFree(address)); }
EXPORT hip_code hipMallocAsync(void **address, size_t bytes, cudaStream_t stream) {
    return from_cuda(cudaMallocAsync(address, bytes, stream));
}
EXPORT hip_code hipFreeAsync(void *address, cudaStream_t stream) { return from_cuda(cudaFreeAsync(address, stream)); }
EXPORT hip_code hipDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    return from_cuda(cudaDeviceGetDefaultMemPool(pool, device));
}
EXPORT hip_code hipMemPoolSetAttribute(cudaMemPool_t pool, int attribute, void *value) {
    return from_cuda(cudaMemPoolSetAttribute(pool, (enum cudaMemPoolAttr)attribute, value));
}
EXPORT hip_code hipMemGetInfo(size_t *free, size_t *total) { return from_cuda(cudaMemGetInfo(free, total)); }

/* HIP's flags above 7 ask for a kind of coherence that CUDA always gives. */
EXPORT hip_code hipHostMalloc(void **pointer, size_t bytes, unsigned flags) {
    return from_cuda(cudaHostAlloc(pointer, bytes, flags & 7u));
}
EXPORT hip_code hipHostFree(void *pointer) { return from_cuda(cudaFreeHost(pointer)); }
EXPORT hip_code hipHostRegister(void *base, size_t bytes, unsigned flags) {
    return from_cuda(cudaHostRegister(base, bytes, flags & 15u));
}
EXPORT hip_code hipHostUnregister(void *base) { return from_cuda(cudaHostUnregister(base)); }
EXPORT hip_code hipHostGetDevicePointer(void **address, void *pointer, unsigned flags) {
    return from_cuda(cudaHostGetDevicePointer(address, pointer, flags));
}
EXPORT hip_code hipHostGetFlags(unsigned *flags, void *pointer) { return from_cuda(cudaHostGetFlags(flags, pointer)); }

struct hip_pointer_attributes {
    int kind;
    int device;
    void *device_pointer;
    void *host_pointer;
    int is_managed;
    unsigned flags;
};

EXPORT hip_code hipPointerGetAttributes(struct hip_pointer_attributes *attributes, const void *pointer) {
    struct cudaPointerAttributes found;
    hip_code code = from_cuda(cudaPointerGetAttributes(&found, pointer));
    if (code != HIP_SUCCESS) return code;
    if (!attributes) return HIP_INVALID_VALUE;
    *attributes = (struct hip_pointer_attributes){
        .kind = (int)found.type,
        .device = found.device,
        .device_pointer = found.devicePointer,
        .host_pointer = found.hostPointer,
        .is_managed = found.type == cudaMemoryTypeManaged,
    };
    return HIP_SUCCESS;
}

EXPORT hip_code hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream) {
    return from_cuda(cudaMemcpyAsync(to, from, bytes, (enum cudaMemcpyKind)kind, stream));
}
EXPORT hip_code hipMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
    return from_cuda(cudaMemsetAsync(at, value, bytes, stream));
}

/* ---- modules */

/* What CUDA 13 would take as it is, and read only when a kernel of it is asked for; HIP reads it here. */
static int is_image(const void *image) {
    static const unsigned char ELF[4] = {0x7f, 'E', 'L', 'F'}, FAT_BINARY[4] = {0x50, 0xed, 0x55, 0xba},
                               FAT_BINARY_WRAPPER[4] = {0xb1, 0x43, 0x62, 0x46};
    /* Byte by byte, since a text may be shorter than four. */
    const unsigned char *bytes = image;
    const unsigned char *const MAGICS[] = {ELF, FAT_BINARY, FAT_BINARY_WRAPPER};
    for (size_t i = 0; i < sizeof MAGICS / sizeof MAGICS[0]; i++) {
        size_t same = 0;
        while (same < 4 && bytes[same] == MAGICS[i][same]) same++;
        if (same == 4) return 1;
    }
    return strstr(image, ".version") != NULL; /* PTX: a text that ends in zero and names its version */
}

EXPORT hip_code hipModuleLoadData(cudaLibrary_t *module, const void *image) {
    if (!image) return HIP_INVALID_VALUE;
    if (!is_image(image)) {
        int count = 0;
        hip_code code = from_cuda(cudaGetDeviceCount(&count)); /* without a device every call says so first */
        return code != HIP_SUCCESS ? code : HIP_INVALID_IMAGE;
    }
    return from_cuda(cudaLibraryLoadData(module, image, NULL, NULL, 0, NULL, NULL, 0));
}
EXPORT hip_code hipModuleUnload(cudaLibrary_t module) { return from_cuda(cudaLibraryUnload(module)); }

/* CUDA loads a kernel when it is first used, which a capture may forbid: asking for its attributes loads it now. */
EXPORT hip_code hipModuleGetFunction(cudaKernel_t *function, cudaLibrary_t module, const char *name) {
    struct cudaFuncAttributes attributes;
    hip_code code = from_cuda(cudaLibraryGetKernel(function, module, name));
    if (code != HIP_SUCCESS) return code;
    return from_cuda(cudaFuncGetAttributes(&attributes, (const void *)*function));
}

EXPORT hip_code hipModuleLaunchKernel(cudaKernel_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                      cudaStream_t stream, void **arguments, void **extra) {
    const void *kernel = (const void *)function;
    dim3 grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
    if (extra) return HIP_NOT_SUPPORTED;
    if (shared_bytes > 48u * 1024u) {
        hip_code code = from_cuda(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes));
        if (code != HIP_SUCCESS) return code;
    }
    return from_cuda(cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream));
}

/* ---- capture and graphs */

EXPORT hip_code hipStreamBeginCapture(cudaStream_t stream, int mode) {
    return from_cuda(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
}
EXPORT hip_code hipStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    return from_cuda(cudaStreamEndCapture(stream, graph));
}

EXPORT hip_code hipStreamIsCapturing(cudaStream_t stream, int *status) {
    enum cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
    hip_code code = from_cuda(cudaStreamIsCapturing(stream, &found));
    if (code == HIP_SUCCESS) *status = (int)found;
    return code;
}

EXPORT hip_code hipStreamGetCaptureInfo(cudaStream_t stream, int *status, unsigned long long *id) {
    enum cudaStreamCaptureStatus found = cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 13000
    hip_code code = from_cuda(cudaStreamGetCaptureInfo(stream, &found, id, NULL, NULL, NULL, NULL));
#else
    hip_code code = from_cuda(cudaStreamGetCaptureInfo_v2(stream, &found, id, NULL, NULL, NULL));
#endif
    if (code == HIP_SUCCESS) *status = (int)found;
    return code;
}

EXPORT hip_code hipThreadExchangeStreamCaptureMode(int *mode) {
    if (!mode) return HIP_INVALID_VALUE;
    enum cudaStreamCaptureMode exchanged = (enum cudaStreamCaptureMode)*mode;
    hip_code code = from_cuda(cudaThreadExchangeStreamCaptureMode(&exchanged));
    if (code == HIP_SUCCESS) *mode = (int)exchanged;
    return code;
}

EXPORT hip_code hipGraphDestroy(cudaGraph_t graph) { return from_cuda(cudaGraphDestroy(graph)); }
EXPORT hip_code hipGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    return from_cuda(cudaGraphGetNodes(graph, nodes, count));
}

EXPORT hip_code hipGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *count) {
#if CUDART_VERSION >= 13000
    return from_cuda(cudaGraphGetEdges(graph, from, to, NULL, count));
#else
    return from_cuda(cudaGraphGetEdges(graph, from, to, count));
#endif
}

EXPORT hip_code hipGraphNodeGetType(cudaGraphNode_t node, int *kind) {
    enum cudaGraphNodeType found;
    hip_code code = from_cuda(cudaGraphNodeGetType(node, &found));
    if (code == HIP_SUCCESS) *kind = (int)found;
    return code;
}

EXPORT hip_code hipGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, cudaGraphNode_t *node, char *log,
                                    size_t bytes) {
    if (node) *node = NULL;
    if (log && bytes > 0) log[0] = 0;
    return from_cuda(cudaGraphInstantiate(executable, graph, 0));
}

EXPORT hip_code hipGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphNode_t *node, int *result) {
    cudaGraphExecUpdateResultInfo found;
    memset(&found, 0, sizeof found);
    hip_code code = from_cuda(cudaGraphExecUpdate(executable, graph, &found));
    if (node) *node = found.errorNode;
    if (result) *result = (int)found.result;
    return code;
}

EXPORT hip_code hipGraphExecDestroy(cudaGraphExec_t executable) { return from_cuda(cudaGraphExecDestroy(executable)); }
EXPORT hip_code hipGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    return from_cuda(cudaGraphLaunch(executable, stream));
}

/* ---- hiprtc, over NVRTC: results 0 to 11 are numbered alike */

enum { RTC_SUCCESS = 0, RTC_OUT_OF_MEMORY = 1, RTC_INVALID_OPTION = 5, RTC_INTERNAL_ERROR = 11 };

typedef void *rtc_program;

/* From NVRTC's manual; nvrtc.h is in a wheel of 90 MB. */
static struct {
    const char *(*error_string)(int);
    int (*version)(int *, int *);
    int (*create)(rtc_program *, const char *, const char *, int, const char *const *, const char *const *);
    int (*destroy)(rtc_program *);
    int (*compile)(rtc_program, int, const char *const *);
    int (*log_size)(rtc_program, size_t *);
    int (*log)(rtc_program, char *);
    int (*cubin_size)(rtc_program, size_t *);
    int (*cubin)(rtc_program, char *);
    int (*ptx_size)(rtc_program, size_t *);
    int (*ptx)(rtc_program, char *);
    int (*add_expression)(rtc_program, const char *);
    int (*lowered)(rtc_program, const char *, const char **);
    int is_open;
} rtc;

static pthread_once_t rtc_once = PTHREAD_ONCE_INIT;

static void *open_nvrtc(void) {
    static const char *const PATHS[] = {
#if CUDART_VERSION >= 13000
        "libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13",
#else
        "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.12",
#endif
        "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so",
    };
    const char *named = getenv("TENURE_NVRTC_LIBRARY");
    if (named) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof PATHS / sizeof PATHS[0]; i++) {
        void *library = dlopen(PATHS[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return NULL;
}

static int find(void *library, const char *name, void *slot) {
    void *found = dlsym(library, name);
    memcpy(slot, &found, sizeof found); /* a function pointer: C has no cast for it */
    return found != NULL;
}

/* NVRTC opens its own helper by name, and finds it only where the loader looks: open the one beside it first. */
static void open_builtins(void) {
    int major = 0, minor = 0;
    Dl_info info;
    char path[4096];
    void *address;
    memcpy(&address, &rtc.version, sizeof address);
    if (rtc.version(&major, &minor) != RTC_SUCCESS || !dladdr(address, &info) || !info.dli_fname) return;
    const char *slash = strrchr(info.dli_fname, '/');
    if (!slash) return;
    int length = snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - info.dli_fname),
                          info.dli_fname, major, minor);
    if (length > 0 && (size_t)length < sizeof path) dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static void rtc_open(void) {
    void *library = open_nvrtc();
    if (!library) return;
    rtc.is_open = find(library, "nvrtcGetErrorString", &rtc.error_string) & find(library, "nvrtcVersion", &rtc.version) &
                  find(library, "nvrtcCreateProgram", &rtc.create) & find(library, "nvrtcDestroyProgram", &rtc.destroy) &
                  find(library, "nvrtcCompileProgram", &rtc.compile) &
                  find(library, "nvrtcGetProgramLogSize", &rtc.log_size) & find(library, "nvrtcGetProgramLog", &rtc.log) &
                  find(library, "nvrtcGetCUBINSize", &rtc.cubin_size) & find(library, "nvrtcGetCUBIN", &rtc.cubin) &
                  find(library, "nvrtcGetPTXSize", &rtc.ptx_size) & find(library, "nvrtcGetPTX", &rtc.ptx) &
                  find(library, "nvrtcAddNameExpression", &rtc.add_expression) &
                  find(library, "nvrtcGetLoweredName", &rtc.lowered);
    if (rtc.is_open) open_builtins();
}

static int rtc_ready(void) {
    pthread_once(&rtc_once, rtc_open);
    return rtc.is_open;
}

#define RTC(call) return rtc_ready() ? rtc.call : RTC_INTERNAL_ERROR

EXPORT const char *hiprtcGetErrorString(int code) {
    if (rtc_ready()) return rtc.error_string(code);
    return code == RTC_SUCCESS ? "HIPRTC_SUCCESS"
                               : "libnvrtc was not found: install CUDA's NVRTC, or set TENURE_NVRTC_LIBRARY to its path";
}
EXPORT int hiprtcVersion(int *major, int *minor) { RTC(version(major, minor)); }

/* Source for HIP may include <hip/hip_runtime.h>, which hiprtc holds in itself: here an empty text stands for it. */
EXPORT int hiprtcCreateProgram(rtc_program *program, const char *source, const char *name, int headers,
                               const char *const *texts, const char *const *names) {
    if (!rtc_ready()) return RTC_INTERNAL_ERROR;
    size_t count = headers > 0 ? (size_t)headers : 0;
    const char **all = malloc(2 * (count + 1) * sizeof *all);
    if (!all) return RTC_OUT_OF_MEMORY;
    const char **all_texts = all, **all_names = all + count + 1;
    for (size_t i = 0; i < count; i++) {
        all_texts[i] = texts[i];
        all_names[i] = names[i];
    }
    all_texts[count] = "";
    all_names[count] = "hip/hip_runtime.h";
    int code = rtc.create(program, source, name, (int)count + 1, all_texts, all_names);
    free(all);
    return code;
}

EXPORT int hiprtcDestroyProgram(rtc_program *program) { RTC(destroy(program)); }

static int starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

/* The option as NVRTC knows it, in `room` where it must be written anew; NULL where it has no meaning here. */
static const char *option_for_nvrtc(const char *option, char *room, size_t bytes) {
    static const char ARCHITECTURE[] = "--offload-arch=";
    if (starts_with(option, ARCHITECTURE)) {
        snprintf(room, bytes, "--gpu-architecture=%s", option + sizeof ARCHITECTURE - 1);
        return room;
    }
    if (strcmp(option, "-ffast-math") == 0) return "--use_fast_math";
    if (starts_with(option, "-O") || starts_with(option, "-f") || starts_with(option, "-m") || starts_with(option, "-W"))
        return NULL;
    return option;
}

EXPORT int hiprtcCompileProgram(rtc_program program, int count, const char *const *options) {
    enum { ROOM = 128 };
    char room[ROOM];
    if (!rtc_ready()) return RTC_INTERNAL_ERROR;
    const char **kept = malloc((size_t)(count > 0 ? count : 1) * sizeof *kept);
    if (!kept) return RTC_OUT_OF_MEMORY;
    int kept_count = 0, code = RTC_SUCCESS, has_architecture = 0;
    for (int i = 0; i < count && code == RTC_SUCCESS; i++) {
        /* One room is enough: NVRTC takes one architecture. */
        if (starts_with(options[i], "--offload-arch=") && has_architecture++) code = RTC_INVALID_OPTION;
        const char *option = option_for_nvrtc(options[i], room, ROOM);
        if (option) kept[kept_count++] = option;
    }
    if (code == RTC_SUCCESS) code = rtc.compile(program, kept_count, kept);
    free(kept);
    return code;
}

EXPORT int hiprtcGetProgramLogSize(rtc_program program, size_t *bytes) { RTC(log_size(program, bytes)); }
EXPORT int hiprtcGetProgramLog(rtc_program program, char *log) { RTC(log(program, log)); }

/* Machine code where a real architecture (sm_90) was named, PTX where a virtual one (compute_90) was. */
static int has_machine_code(rtc_program program) {
    size_t bytes = 0;
    return rtc.cubin_size(program, &bytes) == RTC_SUCCESS && bytes > 0;
}

EXPORT int hiprtcGetCodeSize(rtc_program program, size_t *bytes) {
    if (!rtc_ready()) return RTC_INTERNAL_ERROR;
    return has_machine_code(program) ? rtc.cubin_size(program, bytes) : rtc.ptx_size(program, bytes);
}

EXPORT int hiprtcGetCode(rtc_program program, char *code) {
    if (!rtc_ready()) return RTC_INTERNAL_ERROR;
    return has_machine_code(program) ? rtc.cubin(program, code) : rtc.ptx(program, code);
}

EXPORT int hiprtcAddNameExpression(rtc_program program, const char *expression) {
    RTC(add_expression(program, expression));
}
EXPORT int hiprtcGetLoweredName(rtc_program program, const char *expression, const char **lowered) {
    RTC(lowered(program, expression, lowered));
}
