/* A library with HIP's functions that does as it is told. Memory is host memory, and work is done when it is submitted.
 *
 * When it is loaded it reads, from the environment,
 *   FAKE_VERSION      what hipRuntimeGetVersion reports            (70253211)
 *   FAKE_DEVICES      how many devices there are                   (1)
 *   FAKE_INIT         what hipInit returns                         (0)
 *   FAKE_COUNT        what hipGetDeviceCount returns               (0)
 * and, once loaded, it is scripted through the functions that begin with fake_. Built with WITHOUT_NEWER it lacks what old
 * libraries lack.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*host_function)(void *);
enum op_kind { KERNEL = 0, COPY = 1, FILL = 2, HOST = 3 };
enum { KERNELS = 3, FUNCTIONS_MAX = 128, RANGES_MAX = 64 };

struct kernel { const char *name; int id; };
static struct kernel kernels[KERNELS] = {{"saxpy", 0}, {"increment", 1}, {"_Z5scaleIfEvPT_", 2}};

struct op {
    enum op_kind kind;
    int kernel, value;
    float factor, *x, *y;
    unsigned count;
    void *to;
    const void *from;
    size_t bytes;
    host_function function;
    void *data;
    struct op *next;
};
struct graph { struct op *first, *last; size_t count; };
struct stream { int device, status; unsigned long long capture; struct graph *graph; };
struct event { int device, timed; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int version = 70253211, devices = 1, init_code, count_code;
static int host_times = 1, keeps_broken, refuses_read_only, wrong_device;
static unsigned long long captures;
static struct { const char *name; int calls, fail_at, code, sticky; } functions[FUNCTIONS_MAX];
static int function_count, sticky_code;
static struct { char *base; size_t bytes; int allocated; } ranges[RANGES_MAX];
static _Thread_local int current_device;
static _Thread_local int thread_mode;
static _Thread_local int last_error;

__attribute__((constructor)) static void start(void) {
    const char *text;
    if ((text = getenv("FAKE_VERSION"))) version = atoi(text);
    if ((text = getenv("FAKE_DEVICES"))) devices = atoi(text);
    if ((text = getenv("FAKE_INIT"))) init_code = atoi(text);
    if ((text = getenv("FAKE_COUNT"))) count_code = atoi(text);
}

static int slot_of(const char *name) {
    for (int i = 0; i < function_count; i++)
        if (strcmp(functions[i].name, name) == 0) return i;
    functions[function_count].name = strdup(name);
    return function_count++;
}

/* Counts a call; the code that the script has for it, or 0. */
static int enter(const char *name) {
    pthread_mutex_lock(&lock);
    int i = slot_of(name), code = sticky_code;
    functions[i].calls++;
    if (functions[i].fail_at && functions[i].calls == functions[i].fail_at) {
        code = functions[i].code;
        if (functions[i].sticky) sticky_code = code;
    }
    pthread_mutex_unlock(&lock);
    /* The compiler's codes count on their own, and are not kept. */
    if (code > 0 && strncmp(name, "hiprtc", 6) != 0) last_error = code;
    return code;
}
/* The code of a call that succeeds and makes nothing. */
#define NOTHING (-1)
#define ENTER do { int code_ = enter(__func__); if (code_) return code_; } while (0)
#define MAKES(out) do { int code_ = enter(__func__); if (code_ == NOTHING) { *(out) = NULL; return 0; } if (code_) return code_; } while (0)
#define ON(object) do { if ((object)->device != current_device) __atomic_fetch_add(&wrong_device, 1, __ATOMIC_RELAXED); } while (0)

/* ---- the script */

void fake_reset(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < function_count; i++) functions[i].calls = functions[i].fail_at = 0;
    memset(ranges, 0, sizeof ranges), thread_mode = 0;
    sticky_code = 0, host_times = 1, keeps_broken = refuses_read_only = wrong_device = 0;
    pthread_mutex_unlock(&lock);
}
/* Call `at` of `name`, from 1, returns `code`; where `sticky`, so does every call after it. With NOTHING a call that makes
 * something returns 0 and gives null. */
void fake_fail(const char *name, int at, int code, int sticky) {
    pthread_mutex_lock(&lock);
    int i = slot_of(name);
    functions[i].fail_at = at, functions[i].code = code, functions[i].sticky = sticky;
    pthread_mutex_unlock(&lock);
}
void fake_host_function_times(int times) { host_times = times; }
void fake_broken_captures_stay(int on) { keeps_broken = on; }
void fake_refuses_read_only(int on) { refuses_read_only = on; }
int fake_wrong_device(void) { return wrong_device; }
int fake_current_device(void) { return current_device; }
void fake_set_current_device(int device) { current_device = device; }
const char *fake_function(int i) { return i < function_count ? functions[i].name : NULL; }
int fake_calls(int i) { return functions[i].calls; }

/* ---- start, devices */

int hipInit(unsigned flags) { ENTER; return flags ? 1 : init_code; }
int hipRuntimeGetVersion(int *out) { ENTER; *out = version; return 0; }
int hipDriverGetVersion(int *out) { ENTER; *out = version; return 0; }
int hipGetDeviceCount(int *out) { ENTER; *out = count_code ? 0 : devices; return count_code; }
int hipSetDevice(int device) { ENTER; if (device < 0 || device >= devices) return 101; current_device = device; return 0; }
int hipGetDevice(int *out) { ENTER; *out = current_device; return 0; }
const char *hipGetErrorName(int code) {
    switch (code) {
    case 0: return "hipSuccess";
    case 1: return "hipErrorInvalidValue";
    case 2: return "hipErrorOutOfMemory";
    case 100: return "hipErrorNoDevice";
    case 700: return "hipErrorIllegalAddress";
    default: return "hipErrorUnknown";
    }
}
const char *hipGetErrorString(int code) { return code == 700 ? "an illegal memory access was encountered" : hipGetErrorName(code); }
int hipGetLastError(void) { int code = last_error; last_error = 0; return code; }
int hipPeekAtLastError(void) { return last_error; }
int hipDeviceGetAttribute(int *out, int attribute, int device) {
    ENTER;
    if (device < 0 || device >= devices) return 101;
    *out = attribute == 88 ? 1 : attribute == 87 ? 64 : attribute == 63 ? 104 : 9;
    return 0;
}
int hipDeviceGetName(char *out, int bytes, int device) { ENTER; snprintf(out, bytes, "Fake %d", device); return 0; }
int hipDeviceTotalMem(size_t *out, int device) { ENTER; (void)device; *out = (size_t)64 << 30; return 0; }
int hipDeviceGetPCIBusId(char *out, int bytes, int device) { ENTER; snprintf(out, bytes, "0000:0%d:00.0", device); return 0; }
int hipGetDeviceProperties(char *out, int device) { ENTER; (void)device; strcpy(out, "Fake"); strcpy(out + 396, "gfx90a"); return 0; }
#ifndef WITHOUT_NEWER
int hipGetDevicePropertiesR0600(char *out, int device) { ENTER; (void)device; strcpy(out, "Fake"); strcpy(out + 1160, "gfx90a:xnack-"); return 0; }
#endif
int hipDeviceGetStreamPriorityRange(int *least, int *greatest) { ENTER; *least = 1, *greatest = -1; return 0; }
int hipMemGetInfo(size_t *free, size_t *total) { ENTER; *free = *total = (size_t)64 << 30; return 0; }

/* ---- work */

static void run(const struct op *op) {
    switch (op->kind) {
    case KERNEL:
        for (unsigned i = 0; i < op->count; i++)
            op->y[i] = op->kernel == 0 ? op->factor * op->x[i] + op->y[i] : op->y[i] + 1;
        break;
    case COPY: memmove(op->to, op->from, op->bytes); break;
    case FILL: memset(op->to, op->value, op->bytes); break;
    case HOST: for (int i = 0; i < host_times; i++) op->function(op->data); break;
    }
}

static int submit(struct stream *stream, struct op op) {
    ON(stream);
    if (stream->status == 2) return 901;
    if (stream->status == 0) { run(&op); return 0; }
    struct op *node = malloc(sizeof *node);
    *node = op, node->next = NULL;
    if (stream->graph->last) stream->graph->last->next = node; else stream->graph->first = node;
    stream->graph->last = node, stream->graph->count++;
    return 0;
}

int hipStreamCreateWithPriority(struct stream **out, unsigned flags, int priority) {
    MAKES(out);
    if (flags > 1 || priority < -1 || priority > 1) return 1;
    *out = calloc(1, sizeof **out), (*out)->device = current_device;
    return 0;
}
int hipStreamDestroy(struct stream *stream) { ENTER; ON(stream); free(stream); return 0; }
int hipStreamQuery(struct stream *stream) { ENTER; ON(stream); if (stream->status) { stream->status = 2; return 900; } return 0; }
int hipStreamSynchronize(struct stream *stream) { ENTER; ON(stream); if (stream->status) { stream->status = 2; return 900; } return 0; }
int hipStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags) { ENTER; ON(stream); (void)event, (void)flags; return 0; }
int hipEventCreateWithFlags(struct event **out, unsigned flags) { MAKES(out); *out = calloc(1, sizeof **out), (*out)->device = current_device, (*out)->timed = !(flags & 2); return 0; }
int hipEventDestroy(struct event *event) { ENTER; ON(event); free(event); return 0; }
int hipEventRecord(struct event *event, struct stream *stream) { ENTER; ON(event); ON(stream); return 0; }
int hipEventQuery(struct event *event) { ENTER; ON(event); return 0; }
int hipEventSynchronize(struct event *event) { ENTER; ON(event); return 0; }
int hipEventElapsedTime(float *out, struct event *start, struct event *end) { ENTER; ON(start); *out = 0.5f; return start->timed && end->timed ? 0 : 400; }
#ifndef WITHOUT_NEWER
int hipLaunchHostFunc(struct stream *stream, host_function function, void *data) { ENTER; return submit(stream, (struct op){.kind = HOST, .function = function, .data = data}); }
int hipMallocAsync(void **out, size_t bytes, struct stream *stream) { ENTER; ON(stream); *out = malloc(bytes); return *out ? 0 : 2; }
int hipFreeAsync(void *at, struct stream *stream) { ENTER; ON(stream); free(at); return 0; }
#endif
int hipDeviceGetDefaultMemPool(void **out, int device) { ENTER; (void)device; *out = &lock; return 0; }
int hipMemPoolSetAttribute(void *pool, int attribute, void *value) { ENTER; (void)pool; return attribute == 4 && *(uint64_t *)value ? 0 : 1; }
int hipMalloc(void **out, size_t bytes) { ENTER; *out = bytes > (size_t)1 << 40 ? NULL : malloc(bytes); return *out ? 0 : 2; }
int hipFree(void *at) { ENTER; free(at); return 0; }

static int range_of(const char *at) {
    for (int i = 0; i < RANGES_MAX; i++)
        if (ranges[i].base && at >= ranges[i].base && at < ranges[i].base + ranges[i].bytes) return i;
    return -1;
}
static int add_range(char *base, size_t bytes, int allocated) {
    for (int i = 0; i < RANGES_MAX; i++)
        if (!ranges[i].base) { ranges[i].base = base, ranges[i].bytes = bytes, ranges[i].allocated = allocated; return 0; }
    return 2;
}
int hipHostMalloc(char **out, size_t bytes, unsigned flags) { ENTER; if (flags != 3) return 1; *out = malloc(bytes); return add_range(*out, bytes, 1); }
int hipHostFree(char *at) { ENTER; int i = range_of(at); if (i < 0 || !ranges[i].allocated) return 1; ranges[i].base = NULL; free(at); return 0; }
int hipHostRegister(char *base, size_t bytes, unsigned flags) {
    ENTER;
    if (flags & 8 && refuses_read_only) return refuses_read_only;
    return range_of(base) >= 0 ? 712 : add_range(base, bytes, 0);
}
int hipHostUnregister(char *base) { ENTER; int i = range_of(base); if (i < 0 || ranges[i].base != base) return 713; ranges[i].base = NULL; return 0; }
int hipHostGetDevicePointer(void **out, char *at, unsigned flags) { ENTER; (void)flags; if (range_of(at) < 0) return 1; *out = at; return 0; }
int hipHostGetFlags(unsigned *out, char *at) { ENTER; *out = 3; return range_of(at) < 0; }
struct attributes { int kind, device; void *device_pointer, *host_pointer; int is_managed; unsigned flags; };
int hipPointerGetAttributes(struct attributes *out, const char *at) {
    ENTER;
    int is_old = version < 60000000, i = range_of(at);
    if (i < 0 && is_old) return 1;
    out->kind = i < 0 ? 0 : is_old ? 0 : 1;
    return 0;
}
int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, struct stream *stream) { ENTER; return kind != 4 ? 21 : submit(stream, (struct op){.kind = COPY, .to = to, .from = from, .bytes = bytes}); }
int hipMemsetAsync(void *at, int value, size_t bytes, struct stream *stream) { ENTER; return submit(stream, (struct op){.kind = FILL, .to = at, .value = value, .bytes = bytes}); }

/* ---- modules */

int hipModuleLoadData(void **out, const char *image) { MAKES(out); if (memcmp(image, "\177ELF", 4)) return 200; *out = malloc(1); return 0; }
int hipModuleUnload(void *module) { ENTER; free(module); return 0; }
int hipModuleGetFunction(struct kernel **out, void *module, const char *name) {
    MAKES(out);
    (void)module;
    for (int i = 0; i < KERNELS; i++)
        if (strcmp(kernels[i].name, name) == 0) { *out = &kernels[i]; return 0; }
    return 500;
}
int hipModuleLaunchKernel(struct kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, struct stream *stream, void **arguments, void **extra) {
    ENTER;
    if (!gx || !gy || !gz || !bx || !by || !bz || extra) return 9;
    (void)shared;
    struct op op = {.kind = KERNEL, .kernel = kernel->id};
    if (kernel->id == 0) {
        op.factor = *(float *)arguments[0], op.x = *(float **)arguments[1], op.y = *(float **)arguments[2], op.count = *(unsigned *)arguments[3];
    } else {
        op.y = *(float **)arguments[0], op.count = *(unsigned *)arguments[1];
    }
    return submit(stream, op);
}

/* ---- capture and graphs */

int hipStreamBeginCapture(struct stream *stream, int mode) {
    ENTER;
    ON(stream);
    if (mode < 0 || mode > 2) return 1;
    if (stream->status == 1) return 401;
    stream->status = 1, stream->capture = ++captures, stream->graph = calloc(1, sizeof *stream->graph);
    return 0;
}
int hipStreamEndCapture(struct stream *stream, struct graph **out) {
    int code = enter(__func__);
    if (code && code != NOTHING) return code;
    ON(stream);
    *out = NULL;
    if (stream->status == 0) return 401;
    if (stream->status == 2) { if (!keeps_broken) stream->status = 0; return 901; }
    stream->status = 0, *out = code == NOTHING ? NULL : stream->graph;
    return 0;
}
int hipStreamIsCapturing(struct stream *stream, int *out) { ENTER; ON(stream); *out = stream->status; return 0; }
int hipStreamGetCaptureInfo(struct stream *stream, int *out, unsigned long long *id) { ENTER; ON(stream); *out = stream->status, *id = stream->capture; return 0; }
int hipThreadExchangeStreamCaptureMode(int *mode) { ENTER; int before = thread_mode; thread_mode = *mode, *mode = before; return 0; }
int hipGraphDestroy(struct graph *graph) { ENTER; free(graph); return 0; }
int hipGraphGetNodes(struct graph *graph, struct op **nodes, size_t *count) {
    ENTER;
    size_t i = 0;
    if (nodes) for (struct op *op = graph->first; op && i < *count; op = op->next) nodes[i++] = op;
    *count = graph->count;
    return 0;
}
int hipGraphGetEdges(struct graph *graph, struct op **from, struct op **to, size_t *count) {
    ENTER;
    size_t i = 0;
    if (from) for (struct op *op = graph->first; op && op->next && i < *count; op = op->next) from[i] = op, to[i++] = op->next;
    *count = graph->count ? graph->count - 1 : 0;
    return 0;
}
int hipGraphNodeGetType(struct op *op, int *out) { ENTER; *out = (int)op->kind + (version < 50300000); return 0; }
int hipGraphInstantiate(struct graph **out, struct graph *graph, void **node, char *log, size_t bytes) { MAKES(out); (void)node, (void)log, (void)bytes; *out = malloc(sizeof **out), **out = *graph; return 0; }
int hipGraphExecUpdate(struct graph *executable, struct graph *graph, void **node, int *result) { ENTER; *node = NULL, *result = 0; if (executable->count != graph->count) { *result = 2; return 910; } *executable = *graph; return 0; }
int hipGraphExecDestroy(struct graph *executable) { ENTER; free(executable); return 0; }
int hipGraphLaunch(struct graph *executable, struct stream *stream) { ENTER; ON(stream); for (struct op *op = executable->first; op; op = op->next) run(op); return 0; }

/* ---- hiprtc */

struct program { int broken; };
static const char LOG[] = "kernel:1:1: error: use of undeclared identifier 'nonsense'\n";
int hiprtcVersion(int *major, int *minor) { ENTER; *major = 9, *minor = 0; return 0; }
const char *hiprtcGetErrorString(int code) { return code == 6 ? "HIPRTC_ERROR_COMPILATION" : code ? "HIPRTC_ERROR_UNKNOWN" : "HIPRTC_SUCCESS"; }
int hiprtcCreateProgram(struct program **out, const char *source, const char *name, int count, const char **texts, const char **names) { ENTER; (void)name, (void)count, (void)texts, (void)names; *out = malloc(sizeof **out), (*out)->broken = strstr(source, "nonsense") != NULL; return 0; }
int hiprtcDestroyProgram(struct program **program) { ENTER; free(*program); *program = NULL; return 0; }
int hiprtcCompileProgram(struct program *program, int count, const char **options) { ENTER; if (count < 1 || strncmp(options[0], "--offload-arch=", 15)) return 5; return program->broken ? 6 : 0; }
int hiprtcGetProgramLogSize(struct program *program, size_t *out) { ENTER; *out = program->broken ? sizeof LOG : 0; return 0; }
int hiprtcGetProgramLog(struct program *program, char *out) { ENTER; (void)program; memcpy(out, LOG, sizeof LOG); return 0; }
int hiprtcGetCodeSize(struct program *program, size_t *out) { ENTER; (void)program; *out = 64; return 0; }
int hiprtcGetCode(struct program *program, char *out) { ENTER; (void)program; memset(out, 0, 64); memcpy(out, "\177ELF\2", 5); return 0; }
int hiprtcAddNameExpression(struct program *program, const char *expression) { ENTER; (void)program, (void)expression; return 0; }
int hiprtcGetLoweredName(struct program *program, const char *expression, const char **out) { ENTER; (void)program, (void)expression; *out = "_Z5scaleIfEvPT_"; return 0; }
