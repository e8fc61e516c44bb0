//! The driver on a library that does as it is told (`fake/fake_hip.c`, built here with `cc`).
//!
//! Which library is loaded, and what it says when it starts, is settled once a process: so each case runs in a process
//! of its own, which is this program again with `FAKE_CASE` set. A case that crashes, hangs or says something else than
//! "passed" fails.

#[path = "../examples/smoke/steps.rs"]
mod steps;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libloading::Library;
use libtest_mimic::{Arguments, Failed, Trial};
use tenure::driver::{
    Argument, CaptureMode, CaptureStatus, DeviceAddress, Driver, DriverError, ErrorKind, HostAccess, HostPointer,
    Image, LaunchConfig, Priority,
};
use tenure_hip::{Error as HipError, Hip, LoadError, Origin, doctor};

/// How many numbers a buffer holds: few, since the library works on the processor.
const ELEMENTS: usize = 256;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// A case: its name, the library's build, its environment, and what runs in the process.
struct Case {
    name: &'static str,
    library: Which,
    variables: &'static [(&'static str, &'static str)],
    run: fn() -> Outcome,
}

/// Which library `TENURE_HIP_LIBRARY` names.
#[derive(Clone, Copy)]
enum Which {
    Fake,
    FakeWithoutNewer,
    Missing,
    OfMathematics,
}

const CASES: &[Case] = &[
    Case { name: "a_missing_library_is_explained", library: Which::Missing, variables: &[], run: missing_library },
    Case { name: "another_library_is_explained", library: Which::OfMathematics, variables: &[], run: other_library },
    Case {
        name: "no_device_is_explained",
        library: Which::Fake,
        variables: &[("FAKE_INIT", "101"), ("FAKE_COUNT", "100")],
        run: no_device,
    },
    Case {
        name: "a_count_of_zero_is_explained",
        library: Which::Fake,
        variables: &[("FAKE_DEVICES", "0")],
        run: no_device,
    },
    Case {
        name: "a_start_with_an_unknown_code_is_explained",
        library: Which::Fake,
        variables: &[("FAKE_INIT", "4242")],
        run: unknown_start,
    },
    Case {
        name: "a_version_too_old_is_refused",
        library: Which::Fake,
        variables: &[("FAKE_VERSION", "40300000")],
        run: too_old,
    },
    Case {
        name: "missing_functions_limit_what_works",
        library: Which::FakeWithoutNewer,
        variables: &[("FAKE_VERSION", "50221153")],
        run: missing_functions,
    },
    Case { name: "the_library_starts_once_for_all_threads", library: Which::Fake, variables: &[], run: starts_once },
    Case { name: "every_step_passes_on_7_2", library: Which::Fake, variables: &[], run: every_step },
    Case {
        name: "every_step_passes_on_6_4",
        library: Which::Fake,
        variables: &[("FAKE_VERSION", "60443484")],
        run: every_step,
    },
    Case {
        name: "every_step_passes_on_5_7",
        library: Which::Fake,
        variables: &[("FAKE_VERSION", "50731921")],
        run: every_step,
    },
    Case { name: "each_call_fails_once_at_each_position", library: Which::Fake, variables: &[], run: each_call_fails },
    Case { name: "no_null_handle_passes_for_one", library: Which::Fake, variables: &[], run: null_handles },
    Case { name: "a_sticky_error_reaches_every_later_call", library: Which::Fake, variables: &[], run: sticky_error },
    Case {
        name: "each_call_acts_on_its_device_and_sets_the_threads_back",
        library: Which::Fake,
        variables: &[("FAKE_DEVICES", "3")],
        run: several_devices,
    },
    Case {
        name: "a_host_function_that_never_fires_hangs_nothing",
        library: Which::Fake,
        variables: &[],
        run: never_fires,
    },
    Case { name: "a_host_function_that_fires_twice_runs_once", library: Which::Fake, variables: &[], run: fires_twice },
    Case {
        name: "a_graphs_host_function_lives_with_its_executable",
        library: Which::Fake,
        variables: &[],
        run: graph_lifetime,
    },
    Case { name: "a_stream_that_stays_broken_is_mended", library: Which::Fake, variables: &[], run: mended_stream },
    Case {
        name: "memory_is_registered_without_a_flag_that_is_refused",
        library: Which::Fake,
        variables: &[],
        run: read_only_flag,
    },
    Case { name: "a_launch_allocates_nothing", library: Which::Fake, variables: &[], run: launch_allocates_nothing },
    Case {
        name: "code_that_is_not_whole_never_reaches_the_library",
        library: Which::Fake,
        variables: &[],
        run: code_is_checked,
    },
];

fn main() -> ExitCode {
    if let Ok(name) = env::var("FAKE_CASE") {
        return run_case(&name);
    }
    let libraries = Libraries::build();
    let trials = CASES.iter().map(|case| {
        let path = libraries.path(case.library);
        Trial::test(case.name, move || spawn_case(case, &path))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

// --- the process of a case

fn run_case(name: &str) -> ExitCode {
    let Some(case) = CASES.iter().find(|case| case.name == name) else {
        return ExitCode::FAILURE;
    };
    match (case.run)() {
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

fn spawn_case(case: &Case, library: &Path) -> Result<(), Failed> {
    const LIMIT: Duration = Duration::from_secs(120);
    let mut command = Command::new(env::current_exe()?);
    command.env("FAKE_CASE", case.name).env("TENURE_HIP_LIBRARY", library).env("TENURE_CACHE_DIR", "");
    command.env_remove("TENURE_HIPRTC_LIBRARY").envs(case.variables.iter().copied());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
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

struct Libraries {
    whole: PathBuf,
    without_newer: PathBuf,
}

impl Libraries {
    fn build() -> Self {
        let (whole, without_newer) =
            (compile("libfake_hip.so", &[]), compile("libfake_hip_old.so", &["-DWITHOUT_NEWER"]));
        Self { whole, without_newer }
    }

    fn path(&self, which: Which) -> PathBuf {
        match which {
            Which::Fake => self.whole.clone(),
            Which::FakeWithoutNewer => self.without_newer.clone(),
            Which::Missing => "/no/such/folder/libamdhip64.so".into(),
            Which::OfMathematics => "libm.so.6".into(),
        }
    }
}

fn compile(name: &str, options: &[&str]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Under another name first: another run of this program may have the library open.
    let partial = target.with_extension(format!("{}.partial", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/fake_hip.c");
    let flags = ["-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"];
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let status =
        Command::new(&compiler).args(flags).args(options).arg("-o").arg(&partial).arg(source).arg("-lpthread").status();
    assert!(status.is_ok_and(|status| status.success()), "{compiler} must build {source}");
    std::fs::rename(&partial, &target).expect("the library can be moved into place");
    target
}

// --- the script of the library

/// The functions by which the loaded library is told what to do.
struct Script(Library);

impl Script {
    fn open() -> Outcome<Self> {
        let path = env::var_os("TENURE_HIP_LIBRARY").ok_or("no library is named")?;
        // SAFETY: H1. The library that the driver has open as well, built by this program.
        let script = Self(unsafe { Library::new(path) }?);
        script.call("fake_reset");
        Ok(script)
    }

    fn call(&self, name: &str) -> c_int {
        // SAFETY: H1. A function of the library without arguments; where it returns nothing, nobody reads it.
        let function =
            unsafe { self.0.get::<unsafe extern "C" fn() -> c_int>(name) }.expect("a function of the script");
        // SAFETY: H1. As above.
        unsafe { function() }
    }

    fn set(&self, name: &str, value: c_int) {
        // SAFETY: H1. A function of the library that takes one number.
        let function = unsafe { self.0.get::<unsafe extern "C" fn(c_int)>(name) }.expect("a function of the script");
        // SAFETY: H1. As above.
        unsafe { function(value) }
    }

    fn fail(&self, name: &str, at: c_int, code: c_int, sticky: bool) {
        type Fail = unsafe extern "C" fn(*const c_char, c_int, c_int, c_int);
        let name = CString::new(name).expect("a name holds no zero byte");
        // SAFETY: H1. The prototype of the library's function.
        let function = unsafe { self.0.get::<Fail>("fake_fail") }.expect("a function of the script");
        // SAFETY: H3. A string that ends in zero; the library copies it.
        unsafe { function(name.as_ptr(), at, code, c_int::from(sticky)) }
    }

    /// The functions called since the reset, and how often.
    fn calls(&self) -> Vec<(String, c_int)> {
        // SAFETY: H1. The prototype of the library's function.
        let name = unsafe { self.0.get::<unsafe extern "C" fn(c_int) -> *const c_char>("fake_function") };
        // SAFETY: H1. The prototype of the library's function.
        let count = unsafe { self.0.get::<unsafe extern "C" fn(c_int) -> c_int>("fake_calls") };
        let (name, count) = (name.expect("a function of the script"), count.expect("a function of the script"));
        let mut calls = Vec::new();
        for place in 0.. {
            // SAFETY: H1. Null past the last one.
            let text = unsafe { name(place) };
            if text.is_null() {
                break;
            }
            // SAFETY: H5. Not null.
            let text = unsafe { CStr::from_ptr(text) };
            // SAFETY: H1. A place that has a name has a count.
            calls.push((text.to_string_lossy().into_owned(), unsafe { count(place) }));
        }
        calls.retain(|(_, count)| *count > 0);
        calls
    }
}

fn check(holds: bool, what: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

fn expect_steps(index: usize) -> Outcome {
    let failed: Vec<_> =
        steps::run(index).into_iter().filter_map(|(name, outcome)| outcome.err().map(|e| (name, e))).collect();
    check(failed.is_empty(), format!("{failed:?}"))
}

// --- how a process starts

fn missing_library() -> Outcome {
    let error = Hip::open(0).err().ok_or("a missing library was opened")?;
    check(matches!(&error, LoadError::NotFound { tried } if tried.len() == 1), format!("{error:?}"))?;
    let (text, report) = (error.to_string(), doctor().to_string());
    check(text.contains("TENURE_HIP_LIBRARY") && text.contains("/no/such/folder/libamdhip64.so: "), text.clone())?;
    check(report.contains(&text), report)
}

fn other_library() -> Outcome {
    let error = Hip::devices().err().ok_or("a library of mathematics has devices")?;
    check(matches!(&error, LoadError::Incomplete { absent, .. } if absent.contains(&"hipInit")), format!("{error:?}"))?;
    check(error.to_string().contains("libm.so.6 is not a usable HIP library"), error.to_string())
}

fn no_device() -> Outcome {
    let error = Hip::open(0).err().ok_or("a device was opened where none is")?;
    let LoadError::NoDevice { code, advice, .. } = &error else { return Err(format!("{error:?}").into()) };
    check([0, 101].contains(code) && !advice.is_empty(), format!("{error:?}"))?;
    let report = doctor();
    check(report.devices.is_empty() && report.to_string().contains("no usable GPU"), report.to_string())
}

fn unknown_start() -> Outcome {
    let error = Hip::devices().err().ok_or("a device was counted")?;
    check(matches!(&error, LoadError::NoDevice { code: 4242, .. }), format!("{error:?}"))
}

fn too_old() -> Outcome {
    let error = Hip::devices().err().ok_or("an old library was accepted")?;
    check(error.to_string().contains("is HIP 4.3.0, older than 5.2"), error.to_string())
}

fn missing_functions() -> Outcome {
    let hip = Hip::open(0)?;
    let capabilities = hip.capabilities();
    check(!capabilities.host_functions && !capabilities.stream_ordered_memory, format!("{capabilities:?}"))?;
    let stream = hip.stream_create(Priority::Normal)?;
    let refused =
        [hip.malloc_async(&stream, 16).map(drop).err(), hip.launch_host_function(&stream, Arc::new(|| ())).err()];
    for error in refused {
        let error = error.ok_or("a missing function was called")?;
        check((error.kind(), error.origin()) == (ErrorKind::NotSupported, Origin::Absent), error.to_string())?;
    }
    let absent = doctor().library.map(|library| library.absent).unwrap_or_default();
    let expected = ["hipGetDevicePropertiesR0600", "hipMallocAsync", "hipFreeAsync", "hipLaunchHostFunc"];
    check(absent == expected, format!("{absent:?}"))?;
    check(hip.info().architecture == "gfx90a", hip.info().to_string())
}

fn starts_once() -> Outcome {
    thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(|| Hip::open(0).map(drop))));
    });
    // Without the reset of `Script::open`, which would forget the start.
    let path = env::var_os("TENURE_HIP_LIBRARY").ok_or("no library is named")?;
    // SAFETY: H1. The library that the driver has open as well.
    let script = Script(unsafe { Library::new(path) }?);
    let starts = script.calls().into_iter().find(|(name, _)| name == "hipInit");
    check(starts == Some(("hipInit".into(), 1)), format!("{starts:?}"))
}

// --- the whole driver

fn every_step() -> Outcome {
    let script = Script::open()?;
    expect_steps(0)?;
    let called: Vec<_> = script.calls().into_iter().map(|(name, _)| name).collect();
    for name in ["hipHostUnregister", "hipGraphExecUpdate", "hiprtcGetLoweredName", "hipMemPoolSetAttribute"] {
        check(called.iter().any(|called| called == name), format!("no step calls {name}"))?;
    }
    check(
        Hip::open(1).is_err_and(|error| error == LoadError::NoSuchDevice { index: 1, count: 1 }),
        "device 1 was opened",
    )
}

/// Calls whose failure is no failure of the caller's.
const BEST_EFFORT: [&str; 11] = [
    "hipDeviceGetAttribute",
    "hipDeviceGetDefaultMemPool",
    "hipDeviceGetName",
    "hipDeviceGetPCIBusId",
    "hipDeviceGetStreamPriorityRange",
    "hipDeviceTotalMem",
    "hipGetDevicePropertiesR0600",
    "hipMemPoolSetAttribute",
    "hiprtcDestroyProgram",
    "hiprtcGetProgramLog",
    "hiprtcGetProgramLogSize",
];

/// The status that the driver asks for after a broken capture, to see whether the stream needs mending: where it gets
/// no answer it mends nothing, and the core asks again.
const EXPECTED: [&str; 1] = ["hipStreamIsCapturing at 6: []"];

fn each_call_fails() -> Outcome {
    const POSITIONS_MAX: c_int = 6;
    const CODE: c_int = 4242;
    // What starts the libraries is called before the script begins: once a process, and by cases of its own.
    expect_steps(0)?;
    let script = Script::open()?;
    expect_steps(0)?;
    let calls = script.calls();
    check(calls.len() > 50, format!("only {} functions are called", calls.len()))?;
    let mut unexplained = Vec::new();
    for (name, count) in &calls {
        for at in 1..=(*count).min(POSITIONS_MAX) {
            script.call("fake_reset");
            script.fail(name, at, CODE, false);
            let errors: Vec<_> = steps::run(0).into_iter().filter_map(|(_, outcome)| outcome.err()).collect();
            let left = script.call("hipPeekAtLastError");
            check(left == 0, format!("{name} at {at} leaves {left} as the thread's last error"))?;
            // Steps that expect a failure say which kind they got; all others hand on the error.
            let says = |text: &str| errors.iter().any(|error| error.to_string().contains(text));
            let explained = says(&format!("{name}: ")) || says("Unknown") || says(&CODE.to_string());
            let best_effort = BEST_EFFORT.contains(&name.as_str());
            if !explained && !best_effort {
                unexplained.push(format!("{name} at {at}: {errors:?}"));
            }
        }
    }
    check(unexplained == EXPECTED, format!("{unexplained:#?}"))?;
    script.call("fake_reset");
    expect_steps(0)
}

/// What the library calls success and gives null for is an error of that call, and all else goes on.
fn null_handles() -> Outcome {
    /// The script's code for it.
    const NOTHING: c_int = -1;
    expect_steps(0)?;
    let script = Script::open()?;
    for name in [
        "hipStreamCreateWithPriority",
        "hipEventCreateWithFlags",
        "hipModuleLoadData",
        "hipModuleGetFunction",
        "hipStreamEndCapture",
        "hipGraphInstantiate",
    ] {
        script.call("fake_reset");
        script.fail(name, 1, NOTHING, false);
        let errors: Vec<_> = steps::run(0).into_iter().filter_map(|(_, outcome)| outcome.err()).collect();
        let says = |error: &_| format!("{error:?}").contains("gave nothing") && format!("{error:?}").contains(name);
        check(errors.iter().any(says), format!("{name}: {errors:?}"))?;
    }
    script.call("fake_reset");
    expect_steps(0)
}

fn sticky_error() -> Outcome {
    let script = Script::open()?;
    let hip = Hip::open(0)?;
    let stream = hip.stream_create(Priority::Normal)?;
    script.fail("hipStreamQuery", 1, 700, true);
    let kinds = [
        hip.stream_query(&stream).map(drop),
        hip.stream_synchronize(&stream),
        hip.malloc(16).map(drop),
        hip.capture_begin(&stream, CaptureMode::Relaxed),
        hip.launch_host_function(&stream, Arc::new(|| ())),
        hip.module_load(Image::Code(&whole_code())).map(drop),
    ];
    for outcome in kinds {
        let error = outcome.err().ok_or("a call succeeded after the fault")?;
        check(error.kind() == ErrorKind::DeviceLost && error.kind().is_sticky(), error.to_string())?;
        check(error.to_string().contains("hipErrorIllegalAddress (700): an illegal memory access"), error.to_string())?;
    }
    let failed = steps::run(0).iter().filter(|(_, outcome)| outcome.is_err()).count();
    check(failed > 0, "the steps passed on a lost device")
}

fn several_devices() -> Outcome {
    let script = Script::open()?;
    check(Hip::open_all()?.len() == 3, "not every device was opened")?;
    for (index, current) in [(2, 0), (1, 2), (0, 0)] {
        script.set("fake_set_current_device", current);
        expect_steps(index)?;
        check(
            script.call("fake_current_device") == current,
            format!("the thread's device {current} was not set back"),
        )?;
    }
    let wrong = script.call("fake_wrong_device");
    check(wrong == 0, format!("{wrong} calls were made on another device"))?;
    // The check can fail: a stream of device 2 is used by a driver of device 1.
    let (one, two) = (Hip::open(1)?, Hip::open(2)?);
    let stream = two.stream_create(Priority::Normal)?;
    one.stream_synchronize(&stream)?;
    check(script.call("fake_wrong_device") == 1, "a call on another device is not noticed")
}

// --- host functions and graphs

fn counted() -> (Arc<AtomicU32>, tenure::driver::HostFunction) {
    let count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&count);
    let function = move || {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    (count, Arc::new(function))
}

fn never_fires() -> Outcome {
    let (script, hip, (count, function)) = (Script::open()?, Hip::open(0)?, counted());
    script.set("fake_host_function_times", 0);
    let stream = hip.stream_create(Priority::Normal)?;
    hip.launch_host_function(&stream, Arc::clone(&function))?;
    hip.stream_synchronize(&stream)?;
    // SAFETY: R4. The stream is idle and not used again.
    unsafe { hip.stream_destroy(&stream) }?;
    drop(hip);
    check(count.load(Ordering::Relaxed) == 0, "it was called")?;
    check(Arc::strong_count(&function) == 2, "what a pending function holds was let go (P11)")
}

fn fires_twice() -> Outcome {
    let (script, hip, (count, function)) = (Script::open()?, Hip::open(0)?, counted());
    script.set("fake_host_function_times", 2);
    let stream = hip.stream_create(Priority::Normal)?;
    hip.launch_host_function(&stream, Arc::clone(&function))?;
    check((count.load(Ordering::Relaxed), Arc::strong_count(&function)) == (1, 1), "it ran twice, or is still held")
}

fn graph_lifetime() -> Outcome {
    let (script, hip) = (Script::open()?, Hip::open(0)?);
    let stream = hip.stream_create(Priority::Normal)?;
    let record = |function: &tenure::driver::HostFunction| {
        hip.capture_begin(&stream, CaptureMode::Relaxed)?;
        hip.launch_host_function(&stream, Arc::clone(function))?;
        hip.capture_end(&stream)
    };
    let ((first_count, first), (second_count, second)) = (counted(), counted());
    let (one, two) = (record(&first)?, record(&second)?);
    let executable = hip.graph_instantiate(&one)?;
    hip.graph_destroy(one)?;
    // SAFETY: C4. The graph names no memory.
    unsafe { hip.graph_launch(&executable, &stream) }?;
    script.set("fake_host_function_times", 0);
    // SAFETY: C4. As above.
    unsafe { hip.graph_launch(&executable, &stream) }?;
    hip.graph_update(&executable, &two)?;
    check(Arc::strong_count(&first) == 2, "a launch still owes a call, and its function was let go")?;
    script.set("fake_host_function_times", 1);
    // SAFETY: C4. As above.
    unsafe { hip.graph_launch(&executable, &stream) }?;
    hip.graph_destroy(two)?;
    let counts = (first_count.load(Ordering::Relaxed), second_count.load(Ordering::Relaxed));
    check(counts == (1, 1) && Arc::strong_count(&second) == 2, format!("{counts:?}"))?;
    hip.executable_destroy(executable)?;
    let held = (Arc::strong_count(&first), Arc::strong_count(&second));
    check(held == (1, 1), format!("still held after the executable: {held:?}"))?;
    abandoned_capture(&hip)
}

/// A capture that is never ended: its functions go with the stream.
fn abandoned_capture(hip: &Hip) -> Outcome {
    let (stream, (count, function)) = (hip.stream_create(Priority::Normal)?, counted());
    hip.capture_begin(&stream, CaptureMode::Relaxed)?;
    hip.launch_host_function(&stream, Arc::clone(&function))?;
    // SAFETY: R4. The stream is not used again.
    unsafe { hip.stream_destroy(&stream) }?;
    check((count.load(Ordering::Relaxed), Arc::strong_count(&function)) == (0, 1), "a capture's function outlives it")
}

fn mended_stream() -> Outcome {
    let (script, hip) = (Script::open()?, Hip::open(0)?);
    script.set("fake_broken_captures_stay", 1);
    let stream = hip.stream_create(Priority::Normal)?;
    hip.capture_begin(&stream, CaptureMode::Global)?;
    check(hip.stream_query(&stream).is_err(), "a capturing stream was asked")?;
    let ended = hip.capture_end(&stream).err().map(|error| error.kind());
    check(ended == Some(ErrorKind::CaptureInvalidated), format!("{ended:?}"))?;
    check(hip.capture_status(&stream)? == CaptureStatus::None, "the stream stays broken")?;
    Ok(hip.stream_synchronize(&stream)?)
}

// --- memory, launches, code

fn read_only_flag() -> Outcome {
    let (script, hip) = (Script::open()?, Hip::open(0)?);
    let mut memory = vec![0_u8; 4096];
    let base = HostPointer(std::ptr::NonNull::from(&mut memory[0]));
    for refusal in [0, 1, 801] {
        script.set("fake_refuses_read_only", refusal);
        // SAFETY: P4. The vector outlives the registration.
        unsafe { hip.host_register(base, 4096, HostAccess::Read) }?;
        check(hip.host_is_registered(base)?, format!("not registered where the flag gives {refusal}"))?;
        // SAFETY: P3. The base of a live registration that nothing uses.
        unsafe { hip.host_unregister(base) }?;
    }
    script.set("fake_refuses_read_only", 2);
    // SAFETY: P4. The vector outlives the registration.
    let refused: Result<(), HipError> = unsafe { hip.host_register(base, 4096, HostAccess::Read) };
    check(refused.is_err_and(|error| error.kind() == ErrorKind::OutOfMemory), "another refusal was hidden")
}

/// Counts the calling thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: R4. Every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: H4. The caller's own promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: H4. The caller's own promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn launch_allocates_nothing() -> Outcome {
    let (_script, hip) = (Script::open()?, Hip::open(0)?);
    let stream = hip.stream_create(Priority::Normal)?;
    let module = hip.module_load(Image::Code(&whole_code()))?;
    let function = hip.function(&module, "increment")?;
    let mut values = [0.0_f32; 4];
    let address = DeviceAddress(values.as_mut_ptr().addr() as u64);
    let mut arguments = vec![Argument::Scalar { words: [0; 2], bytes: 4 }; 129];
    arguments[0] = Argument::Pointer { address, bytes: 16 };
    arguments[1] = Argument::Scalar { words: [4, 0], bytes: 4 };
    let allocations = |count: usize| {
        let before = ALLOCATIONS.get();
        for _ in 0..100 {
            // SAFETY: R4. The fake kernel reads the first two arguments; the array outlives the launch.
            unsafe { hip.launch(&stream, &function, &LaunchConfig::linear(4), &arguments[..count]) }?;
        }
        Outcome::Ok(ALLOCATIONS.get() - before)
    };
    let counts = (allocations(2)?, allocations(128)?, allocations(129)?);
    // The last one shows that the count counts.
    check(counts == (0, 0, 100), format!("allocations of 100 launches: {counts:?}"))?;
    check(std::hint::black_box(&values)[3] == 300.0, format!("{values:?}"))
}

/// The smallest file that has the form of a code object.
fn whole_code() -> [u8; 64] {
    let mut code = [0; 64];
    code[..5].copy_from_slice(b"\x7fELF\x02");
    code
}

fn code_is_checked() -> Outcome {
    let (script, hip) = (Script::open()?, Hip::open(0)?);
    let whole = whole_code();
    for code in [&b""[..], b"not code", &whole[..32]] {
        let error = hip.module_load(Image::Code(code)).err().ok_or("it was loaded")?;
        check((error.kind(), error.origin()) == (ErrorKind::InvalidValue, Origin::Refused), error.to_string())?;
    }
    check(!script.calls().iter().any(|(name, _)| name == "hipModuleLoadData"), "the library was asked")?;
    hip.module_load(Image::Code(&whole))?;
    check(script.calls().iter().any(|(name, _)| name == "hipModuleLoadData"), "the library was not asked")
}
