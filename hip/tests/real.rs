//! The real library of the machine, without a device: every call returns an error and none crashes or hangs; kernels
//! compile all the same.
//!
//! Runs where `TENURE_TEST_REAL` names what `TENURE_HIP_LIBRARY` is: `amd` or `cuda` (`check-real.sh` sets both, once a
//! version). Elsewhere there is nothing to run. Each check runs in a process of its own, which is this program again
//! with
//! `REAL_CASE` set; where `TENURE_TEST_LOADER` names a dynamic linker, through that one, so that libraries of another
//! distribution find the C library they need.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::ffi::{c_char, c_int, c_void};
use std::process::{Command, ExitCode, Stdio};
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use tenure::driver::{DriverError, ErrorKind};
use tenure_hip::sys::{self, Runtime};
use tenure_hip::{CompileOptions, Hip, Hiprtc, LoadError, Origin, doctor, load};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const KERNELS: &str = include_str!("real/kernels.hip");
/// Where the project's other kernels stand, in the first raw string of each file, with one of them.
const SOURCES: [(&str, &str); 4] = [
    (include_str!("../../sim/command/src/kernels.rs"), "accumulate"),
    (include_str!("../../sim/command/src/probe/bed.rs"), "touch"),
    (include_str!("../../tests/bench.rs"), "bump"),
    (include_str!("../../tests/hip_bench.rs"), "hold"),
];

fn main() -> ExitCode {
    if let Ok(case) = env::var("REAL_CASE") {
        return run_case(&case);
    }
    let trials = if env::var_os("TENURE_TEST_REAL").is_some() { trials() } else { Vec::new() };
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn is_cuda() -> bool {
    env::var("TENURE_TEST_REAL").is_ok_and(|name| name == "cuda")
}

fn trials() -> Vec<Trial> {
    let mut cases = vec!["start".to_string(), "threads".to_string()];
    cases.extend(Runtime::SYMBOLS.iter().map(|symbol| format!("call {}", symbol.name)));
    // NVRTC is a library of its own, of 100 MB: only where it is named.
    if !is_cuda() || env::var_os("TENURE_NVRTC_LIBRARY").is_some() {
        cases.extend(["broken", "unknown architecture", "cache"].map(String::from));
        cases.extend(architectures().iter().map(|name| format!("compile {name}")));
    }
    cases.into_iter().map(|case| Trial::test(case.clone(), move || spawn_case(&case))).collect()
}

/// What to compile for: `TENURE_TEST_ARCHITECTURES`, separated by spaces.
fn architectures() -> Vec<String> {
    let fallback = if is_cuda() { "sm_90" } else { "gfx90a" };
    let names = env::var("TENURE_TEST_ARCHITECTURES").unwrap_or_else(|_| fallback.into());
    names.split_whitespace().map(String::from).collect()
}

fn spawn_case(case: &str) -> Result<(), Failed> {
    const LIMIT: Duration = Duration::from_secs(60);
    let program = env::current_exe()?;
    let mut command = match env::var_os("TENURE_TEST_LOADER") {
        Some(loader) => {
            let mut command = Command::new(loader);
            command.arg("--library-path").arg(env::var_os("TENURE_TEST_LIBRARY_PATH").unwrap_or_default()).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.env("REAL_CASE", case).env("TENURE_CACHE_DIR", "").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > LIMIT {
            child.kill()?;
            return Err("the process hangs".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.success() && said.lines().next_back() == Some("passed") {
        true => Ok(()),
        false => Err(format!("{}\n{said}\n{complained}", output.status).into()),
    }
}

fn run_case(case: &str) -> ExitCode {
    let (kind, name) = case.split_once(' ').unwrap_or((case, ""));
    let outcome = match kind {
        "start" => start(),
        "threads" => threads(),
        "call" => call(name),
        "compile" => compile(name),
        "broken" => broken(),
        "unknown" => unknown_architecture(),
        "cache" => cache(),
        _ => Err("no such case".into()),
    };
    match outcome {
        Ok(()) => {
            println!("passed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn check(holds: bool, what: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

// --- the runtime

fn start() -> Outcome {
    let error = Hip::open(0).err().ok_or("this machine has a device: these checks are for one without")?;
    let LoadError::NoDevice { code, name, advice, .. } = &error else { return Err(error.to_string().into()) };
    check([35, 100, 101].contains(code) && name.starts_with("hipError"), format!("{error:?}"))?;
    let node = if is_cuda() { "/dev/nvidiactl" } else { "/dev/kfd" };
    check(advice.contains(node), format!("the advice does not name the node: {advice}"))?;
    let report = doctor();
    println!("{report}");
    let library = report.library.as_ref().ok_or("no library in the report")?;
    check(library.profile.name().starts_with(if is_cuda() { "cuda-" } else { "hip-" }), library.version.clone())?;
    if let Ok(expected) = env::var("TENURE_TEST_VERSION") {
        check(library.version.starts_with(&expected), format!("{} is not {expected}", library.version))?;
    }
    check(report.to_string().contains(&advice[..]), "the report does not hold the advice")
}

/// The first call, raced by 8 threads: all get the same verdict.
fn threads() -> Outcome {
    let verdicts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(Hip::devices)).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")).collect()
    });
    let texts = verdicts.into_iter().map(|verdict| Ok(format!("{:?}", verdict?))).collect::<Outcome<BTreeSet<_>>>()?;
    check(texts.len() == 1 && texts.iter().all(|text| text.contains("NoDevice")), format!("{texts:?}"))
}

/// Each of a table's functions, with arguments that would do on a machine that has a device.
fn call(name: &str) -> Outcome {
    let hip = load::runtime()?;
    if hip.absent().contains(&name) {
        // SAFETY: H1. An absent function calls nothing.
        let code = unsafe { call_by_name(&hip, name) };
        return check(matches!(code, Some(sys::ABSENT) | None), format!("{name} is absent and gave {code:?}"));
    }
    // Twice: the first call may find the library in another state than later ones.
    for _ in 0..2 {
        // SAFETY: H3. Local variables for everything that is written, null for every handle, of which there are none.
        let code = unsafe { call_by_name(&hip, name) };
        println!("{name}: {code:?}");
        let answers = ["hipRuntimeGetVersion", "hipDriverGetVersion"].contains(&name);
        match code {
            None => check(name.starts_with("hipGetError"), "no code")?,
            Some(0) => check(answers || SUCCEEDS_WITHOUT_DEVICE.contains(&name), "success without a device")?,
            Some(code) => {
                check([1, 3, 35, 100, 101, 400, 401, 709, 801].contains(&code), format!("unexpected code {code}"))?
            }
        }
    }
    Ok(())
}

/// Calls that need no device to be right.
const SUCCEEDS_WITHOUT_DEVICE: [&str; 1] = ["hipThreadExchangeStreamCaptureMode"];

unsafe extern "C" fn never(_: *mut c_void) {
    println!("a host function ran without a device");
    std::process::abort();
}

/// Calls the function; `None` for those that give a text.
///
/// # Safety
/// - There is no device, so that null handles are refused before they are followed.
unsafe fn call_by_name(hip: &Runtime, name: &str) -> Option<c_int> {
    if name.starts_with("hipGetError") {
        // SAFETY: H1. Any number may be asked for.
        let name = unsafe { hip.hipGetErrorName(4242) };
        // SAFETY: H1. As above.
        let text = unsafe { hip.hipGetErrorString(4242) };
        // An unknown code has a text all the same; none at all is a failure.
        return (name.is_null() || text.is_null()).then_some(c_int::MAX);
    }
    let groups = [call_start, call_queue, call_memory, call_graph];
    // SAFETY: H4. The caller knows that there is no device. At most one group has the name.
    let code = groups.iter().find_map(|group| unsafe { group(hip, name) });
    Some(code.unwrap_or_else(|| {
        println!("{name} has no line here");
        c_int::MAX
    }))
}

/// Starting, and what a device is.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "a table: one call of it runs")]
unsafe fn call_start(hip: &Runtime, name: &str) -> Option<c_int> {
    let (mut number, mut other, mut bytes, mut text) = (0, 0, 0, [0 as c_char; 256]);
    let mut properties = Box::new(sys::PropertiesBuffer([0; 16384]));
    let properties: *mut c_void = (&raw mut *properties).cast();
    // SAFETY: H3, H4. Locals for what is written; the caller knows that there is no device.
    Some(unsafe {
        match name {
            "hipInit" => hip.hipInit(0),
            "hipRuntimeGetVersion" => hip.hipRuntimeGetVersion(&mut number),
            "hipDriverGetVersion" => hip.hipDriverGetVersion(&mut number),
            "hipGetLastError" => hip.hipGetLastError(),
            "hipPeekAtLastError" => hip.hipPeekAtLastError(),
            "hipDeviceGetName" => hip.hipDeviceGetName(text.as_mut_ptr(), 255, 0),
            "hipDeviceTotalMem" => hip.hipDeviceTotalMem(&mut bytes, 0),
            "hipDeviceGetPCIBusId" => hip.hipDeviceGetPCIBusId(text.as_mut_ptr(), 255, 0),
            "hipGetDeviceCount" => hip.hipGetDeviceCount(&mut number),
            "hipSetDevice" => hip.hipSetDevice(0),
            "hipGetDevice" => hip.hipGetDevice(&mut number),
            "hipDeviceGetAttribute" => hip.hipDeviceGetAttribute(&mut number, sys::ATTRIBUTE_WARP_SIZE, 0),
            "hipGetDeviceProperties" => hip.hipGetDeviceProperties(properties, 0),
            "hipGetDevicePropertiesR0600" => hip.hipGetDevicePropertiesR0600(properties, 0),
            "hipDeviceGetStreamPriorityRange" => hip.hipDeviceGetStreamPriorityRange(&mut number, &mut other),
            _ => return None,
        }
    })
}

/// Streams and events.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "a table: one call of it runs")]
unsafe fn call_queue(hip: &Runtime, name: &str) -> Option<c_int> {
    let (mut stream, mut event, mut real) = (null_mut(), null_mut(), 0.0);
    // SAFETY: H3, H4. Locals for what is written; the caller knows that there is no device.
    Some(unsafe {
        match name {
            "hipStreamCreateWithPriority" => hip.hipStreamCreateWithPriority(&mut stream, 1, 0),
            "hipStreamDestroy" => hip.hipStreamDestroy(stream),
            "hipStreamQuery" => hip.hipStreamQuery(stream),
            "hipStreamSynchronize" => hip.hipStreamSynchronize(stream),
            "hipStreamWaitEvent" => hip.hipStreamWaitEvent(stream, event, 0),
            "hipEventCreateWithFlags" => hip.hipEventCreateWithFlags(&mut event, sys::EVENT_DISABLE_TIMING),
            "hipEventDestroy" => hip.hipEventDestroy(event),
            "hipEventRecord" => hip.hipEventRecord(event, stream),
            "hipEventQuery" => hip.hipEventQuery(event),
            "hipEventSynchronize" => hip.hipEventSynchronize(event),
            "hipEventElapsedTime" => hip.hipEventElapsedTime(&mut real, event, event),
            _ => return None,
        }
    })
}

/// Memory and copies.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "a table: one call of it runs")]
unsafe fn call_memory(hip: &Runtime, name: &str) -> Option<c_int> {
    let (mut number, mut bytes, mut total, mut value) = (0, 0, 0, 1_u64);
    let (mut place, mut pool, stream) = (null_mut(), null_mut(), null_mut());
    let mut memory = vec![0_u8; 4096];
    let host: *mut c_void = memory.as_mut_ptr().cast();
    let (kind, device, is_managed, flags) = (0, 0, 0, 0);
    let (device_pointer, host_pointer) = (null_mut(), null_mut());
    let mut attributes = sys::hipPointerAttribute_t { kind, device, device_pointer, host_pointer, is_managed, flags };
    // SAFETY: H3, H4. Locals for what is written; the caller knows that there is no device.
    Some(unsafe {
        match name {
            "hipMalloc" => hip.hipMalloc(&mut place, 4096),
            // Address 1: null is freed successfully, device or not.
            "hipFree" => hip.hipFree(std::ptr::without_provenance_mut(1)),
            "hipMemGetInfo" => hip.hipMemGetInfo(&mut bytes, &mut total),
            "hipHostMalloc" => hip.hipHostMalloc(&mut place, 4096, 3),
            "hipHostFree" => hip.hipHostFree(host),
            "hipHostRegister" => hip.hipHostRegister(host, 4096, 3),
            "hipHostUnregister" => hip.hipHostUnregister(host),
            "hipHostGetDevicePointer" => hip.hipHostGetDevicePointer(&mut place, host, 0),
            "hipHostGetFlags" => hip.hipHostGetFlags((&raw mut number).cast(), host),
            "hipPointerGetAttributes" => hip.hipPointerGetAttributes(&mut attributes, host),
            "hipMemcpyAsync" => hip.hipMemcpyAsync(host, host, 1, sys::MEMCPY_DEFAULT, stream),
            "hipMemsetAsync" => hip.hipMemsetAsync(host, 0, 1, stream),
            "hipMallocAsync" => hip.hipMallocAsync(&mut place, 4096, stream),
            "hipFreeAsync" => hip.hipFreeAsync(host, stream),
            "hipDeviceGetDefaultMemPool" => hip.hipDeviceGetDefaultMemPool(&mut pool, 0),
            "hipMemPoolSetAttribute" => hip.hipMemPoolSetAttribute(pool, 4, (&raw mut value).cast()),
            _ => return None,
        }
    })
}

/// Modules, captures and graphs.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "a table: one call of it runs")]
unsafe fn call_graph(hip: &Runtime, name: &str) -> Option<c_int> {
    let (mut number, mut bytes, mut id, stream) = (0, 0, 0, null_mut());
    let (mut module, mut function, mut graph) = (null_mut(), null_mut(), null_mut());
    let (mut node, mut executable, image) = (null_mut(), null_mut(), [0_u8; 4096]);
    let host: *const c_void = image.as_ptr().cast();
    // SAFETY: H3, H4. Locals for what is written; the caller knows that there is no device.
    Some(unsafe {
        match name {
            "hipModuleLoadData" => hip.hipModuleLoadData(&mut module, host),
            "hipModuleGetFunction" => hip.hipModuleGetFunction(&mut function, module, c"saxpy".as_ptr()),
            "hipModuleUnload" => hip.hipModuleUnload(module),
            "hipModuleLaunchKernel" => {
                hip.hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut())
            }
            "hipLaunchHostFunc" => hip.hipLaunchHostFunc(stream, Some(never), null_mut()),
            "hipStreamBeginCapture" => hip.hipStreamBeginCapture(stream, sys::CAPTURE_MODE_RELAXED),
            "hipStreamEndCapture" => hip.hipStreamEndCapture(stream, &mut graph),
            "hipStreamIsCapturing" => hip.hipStreamIsCapturing(stream, &mut number),
            "hipStreamGetCaptureInfo" => hip.hipStreamGetCaptureInfo(stream, &mut number, &mut id),
            "hipThreadExchangeStreamCaptureMode" => hip.hipThreadExchangeStreamCaptureMode(&mut number),
            "hipGraphDestroy" => hip.hipGraphDestroy(graph),
            "hipGraphGetNodes" => hip.hipGraphGetNodes(graph, null_mut(), &mut bytes),
            "hipGraphGetEdges" => hip.hipGraphGetEdges(graph, null_mut(), null_mut(), &mut bytes),
            "hipGraphNodeGetType" => hip.hipGraphNodeGetType(node, &mut number),
            "hipGraphInstantiate" => hip.hipGraphInstantiate(&mut executable, graph, &mut node, null_mut(), 0),
            "hipGraphExecUpdate" => hip.hipGraphExecUpdate(executable, graph, &mut node, &mut number),
            "hipGraphExecDestroy" => hip.hipGraphExecDestroy(executable),
            "hipGraphLaunch" => hip.hipGraphLaunch(executable, stream),
            _ => return None,
        }
    })
}

// --- the compiler

fn compile(architecture: &str) -> Outcome {
    let options = CompileOptions::default().architecture(architecture).define("TILE", "32").standard("c++17");
    let options = options.optimization(3).fast_math().expression("scale<float>").expression("scale<double>");
    let code = Hiprtc::open()?.compile(KERNELS, &options)?;
    let bytes = code.bytes();
    println!("{} bytes, {:?}", bytes.len(), code.log());
    check(bytes.starts_with(b"\x7fELF"), "not an ELF file")?;
    let machine = u16::from_le_bytes([bytes[18], bytes[19]]);
    check(machine == if is_cuda() { 190 } else { 224 }, format!("code for machine {machine}"))?;
    let lowered: Vec<_> = ["scale<float>", "scale<double>"].iter().filter_map(|asked| code.lowered(asked)).collect();
    check(lowered.len() == 2 && lowered[0] != lowered[1], format!("{lowered:?}"))?;
    let holds = |name: &str| bytes.windows(name.len()).any(|window| window == name.as_bytes());
    for name in ["saxpy", "transpose", "histogram", "length"].into_iter().chain(lowered) {
        check(holds(name), format!("the code does not name {name}"))?;
    }
    for (file, kernel) in SOURCES {
        compile_of_project(file, kernel, architecture).map_err(|error| format!("{kernel}: {error}"))?;
    }
    Ok(())
}

fn compile_of_project(file: &str, kernel: &str, architecture: &str) -> Outcome {
    let source = file.split_once("r#\"").and_then(|(_, rest)| rest.split_once("\"#")).ok_or("no source")?.0;
    let code = Hiprtc::open()?.compile(source, &CompileOptions::default().architecture(architecture))?;
    let names = code.bytes().windows(kernel.len()).any(|window| window == kernel.as_bytes());
    check(names, format!("the code does not name {kernel}"))
}

fn broken() -> Outcome {
    let source = "extern \"C\" __global__ void broken(float *x) {\n    x[0] = undeclared_name;\n}\n";
    let architecture = architectures().into_iter().next().ok_or("no architecture")?;
    let options = CompileOptions::default().architecture(architecture);
    let error = Hiprtc::open()?.compile(source, &options).err().ok_or("a broken kernel compiled")?;
    println!("{error}");
    check(
        (error.kind(), error.origin(), error.code()) == (ErrorKind::InvalidValue, Origin::Hiprtc, 6),
        error.to_string(),
    )?;
    check(error.log().contains("undeclared_name") && error.log().contains('2'), error.log())
}

/// 5.2's compiler aborts here; the driver must not let it come to that.
fn unknown_architecture() -> Outcome {
    let options = CompileOptions::default().architecture(if is_cuda() { "sm_1" } else { "gfx1" });
    let error = Hiprtc::open()?.compile(KERNELS, &options).err().ok_or("compiled for no architecture")?;
    println!("{error}");
    check(error.kind() == ErrorKind::InvalidValue, error.to_string())
}

fn cache() -> Outcome {
    let folder = env::temp_dir().join(format!("tenure-real-cache-{}", std::process::id()));
    // SAFETY: R4. This process has one thread.
    unsafe { env::set_var("TENURE_CACHE_DIR", &folder) };
    let architecture = architectures().into_iter().next().ok_or("no architecture")?;
    let options = CompileOptions::default().architecture(architecture).expression("scale<float>");
    let compiler = Hiprtc::open()?;
    let (first, second) = (compiler.compile(KERNELS, &options)?, compiler.compile(KERNELS, &options)?);
    let other = compiler.compile(KERNELS, &options.define("TILE", "8"))?;
    std::fs::remove_dir_all(&folder)?;
    check(
        (first.is_cached(), second.is_cached(), other.is_cached()) == (false, true, false),
        "the wrong ones are cached",
    )?;
    check(
        first.bytes() == second.bytes() && first.lowered("scale<float>") == second.lowered("scale<float>"),
        "they differ",
    )
}
