//! Opens the libraries of HIP when the program runs, so that building it needs none of them.
//!
//! Costs: the first call opens the library (12 to 24 ms measured), initializes it and counts the devices; the verdict
//! is kept, good or bad, for the rest of the process. A failing call would otherwise ask the kernel driver anew each
//! time.
//!
//! | state | meaning | changes by |
//! |---|---|---|
//! | not asked | no library is open | the first caller, while later ones wait |
//! | loaded | open, every function looked up, `hipInit` called once, devices counted | never: a library is not closed |
//! | refused | a [`LoadError`] that says why and what to do | never |
//!
//! `hipInit` runs inside the same once-lock, before any other thread can reach the library: the first call raced by
//! several threads has crashed (reports, hip 3063, rocm-systems 10196). Libraries are never closed: their own threads
//! run inside them.
//!
//! # Which library
//! `TENURE_HIP_LIBRARY`, where set, is the only candidate. Otherwise `libamdhip64.so`, then `.so.7`, `.so.6`, `.so.5`,
//! by the loader's own search; then the first of these in `$ROCM_PATH/lib`, `$HIP_PATH/lib` and `/opt/rocm/lib`. With
//! the feature `hip-sys`, the library that the program was linked with, unless the variable is set.
//!
//! For the compiler: `TENURE_HIPRTC_LIBRARY`, where set; otherwise `libhiprtc.so`, `.so.7`, `.so.6` beside the runtime
//! that was loaded, then by the loader's search; then, below 7.0, the runtime itself. A runtime that was named by its
//! variable and holds the compiler as well comes first.

use std::env;
use std::error::Error as StdError;
use std::ffi::{CStr, OsString, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock};

use libloading::os::unix::Library as SharedObject;

use crate::error::{SUCCESS, text_of, went_well};
use crate::profile::Profile;
use crate::sys::{self, Comgr, Compiler, Runtime};

/// The variable that names the library of the runtime.
pub const LIBRARY_VARIABLE: &str = "TENURE_HIP_LIBRARY";
/// The variable that names the library of the compiler.
pub const COMPILER_VARIABLE: &str = "TENURE_HIPRTC_LIBRARY";
/// The oldest version that was read: 5.2.
pub const OLDEST_VERSION: i32 = 50_200_000;

const RUNTIME_NAMES: [&str; 4] = ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];
const COMPILER_NAMES: [&str; 3] = ["libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6"];

/// What a library cannot do without; everything else only limits what works.
const NEEDED: [&str; 4] = ["hipInit", "hipGetDeviceCount", "hipGetErrorName", "hipStreamQuery"];

/// A name that was tried, and what the loader said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The name or path.
    pub name: PathBuf,
    /// Why it was not taken.
    pub problem: String,
}

/// Why HIP cannot be used. Displayed, it says what was found and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// A library was opened, but it is not HIP's: functions that everything needs are missing.
    Incomplete {
        /// Its path.
        path: PathBuf,
        /// What it lacks.
        absent: Vec<&'static str>,
    },
    /// No library of the compiler was found, or none that works.
    NoCompiler {
        /// What was tried.
        tried: Vec<Attempt>,
    },
    /// The library works, but no device can be used.
    NoDevice {
        /// The library's path.
        path: PathBuf,
        /// What `hipInit` or `hipGetDeviceCount` returned; 0 where they counted no device without an error.
        code: i32,
        /// The library's name for the code.
        name: String,
        /// What stands in the way, as far as the machine shows it, and what to do.
        advice: String,
    },
    /// There are devices, but not that one.
    NoSuchDevice {
        /// The one asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// No library of the runtime was found.
    NotFound {
        /// What was tried.
        tried: Vec<Attempt>,
    },
    /// The library is older than any that this crate knows.
    TooOld {
        /// Its path.
        path: PathBuf,
        /// Its version, as it reports it.
        version: i32,
    },
}

impl StdError for LoadError {}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { path, absent } => {
                write!(f, "{} is not a usable HIP library: it lacks {}", path.display(), absent.join(", "))
            }
            Self::NoDevice { path, code, name, advice } => {
                write!(f, "no usable GPU: {} answers {name} ({code}). {advice}", path.display())
            }
            Self::NoSuchDevice { index, count } => {
                write!(f, "there is no device {index}: this machine has {count}, counted from 0")
            }
            Self::NoCompiler { tried } => {
                write!(
                    f,
                    "no HIP compiler was found: kernels load from code objects only. Install libhiprtc, or set "
                )?;
                write!(f, "{COMPILER_VARIABLE} to its path. Tried:")?;
                write_attempts(f, tried)
            }
            Self::NotFound { tried } => write_not_found(f, tried),
            Self::TooOld { path, version } => write!(
                f,
                "{} is HIP {}, older than 5.2, the oldest that is supported: install a newer ROCm",
                path.display(),
                VersionText(*version)
            ),
        }
    }
}

fn write_not_found(f: &mut fmt::Formatter<'_>, tried: &[Attempt]) -> fmt::Result {
    f.write_str(
        "no HIP library was found. Install ROCm's runtime (Debian, Ubuntu: libamdhip64-5 or rocm-hip-runtime), ",
    )?;
    write!(f, "or set {LIBRARY_VARIABLE} to the path of libamdhip64.so. Tried:")?;
    write_attempts(f, tried)
}

fn write_attempts(f: &mut fmt::Formatter<'_>, tried: &[Attempt]) -> fmt::Result {
    tried.iter().try_for_each(|attempt| write!(f, "\n  {}: {}", attempt.name.display(), attempt.problem))
}

/// A version of HIP as people write it: 7.2.53211.
pub(crate) struct VersionText(pub(crate) i32);

impl fmt::Display for VersionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000_000, self.0 / 100_000 % 100, self.0 % 100_000)
    }
}

/// Whose device is behind the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Platform {
    /// AMD's own library.
    Amd,
    /// `hip/cuda`, over the CUDA runtime.
    Cuda,
}

/// An open library of the runtime and what it said when it was initialized.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) runtime: Runtime,
    pub(crate) path: PathBuf,
    pub(crate) platform: Platform,
    /// What `hipRuntimeGetVersion` reports; 0 where it fails.
    pub(crate) version: c_int,
    pub(crate) profile: Profile,
    pub(crate) init_code: c_int,
    pub(crate) count_code: c_int,
    pub(crate) devices: c_int,
    /// Keeps look-ups of pointers away from register and unregister, which AMD's library does not.
    pins: Mutex<()>,
}

impl Library {
    /// The devices that can be used; the code that says why none can.
    pub(crate) fn usable(&self) -> Result<usize, c_int> {
        match (self.init_code, self.count_code) {
            (SUCCESS, SUCCESS) => usize::try_from(self.devices).ok().filter(|count| *count > 0).ok_or(SUCCESS),
            (SUCCESS, code) | (code, _) => Err(code),
        }
    }

    /// Held around register and unregister.
    pub(crate) fn hold_pins(&self) -> MutexGuard<'_, ()> {
        self.pins.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Held around a look-up, where the library needs it.
    pub(crate) fn hold_pins_to_look(&self) -> Option<MutexGuard<'_, ()>> {
        (!self.profile.lookups_are_safe()).then(|| self.hold_pins())
    }

    /// The version as people write it.
    pub(crate) fn version_text(&self) -> String {
        match self.platform {
            Platform::Amd => VersionText(self.version).to_string(),
            Platform::Cuda => format!("CUDA {}.{}", self.version / 1000, self.version / 10 % 100),
        }
    }
}

/// An open library of the compiler.
#[derive(Debug)]
pub(crate) struct CompilerLibrary {
    pub(crate) compiler: Compiler,
    pub(crate) path: PathBuf,
    /// Major and minor.
    pub(crate) version: (c_int, c_int),
}

static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
static COMPILER: OnceLock<Result<CompilerLibrary, LoadError>> = OnceLock::new();

/// The runtime's library: opened and initialized by the first caller.
pub(crate) fn library() -> Result<&'static Library, &'static LoadError> {
    LIBRARY.get_or_init(open_runtime).as_ref()
}

/// The compiler's library. Opening it needs no device.
pub(crate) fn compiler_library() -> Result<&'static CompilerLibrary, &'static LoadError> {
    COMPILER.get_or_init(open_compiler).as_ref()
}

/// The table of the runtime's library, for calls that this crate does not make.
///
/// # Errors
/// [`LoadError`] where there is no library. No device is needed.
pub fn runtime() -> Result<Runtime, LoadError> {
    library().map(|library| library.runtime).map_err(Clone::clone)
}

/// The table of the compiler's library.
///
/// # Errors
/// [`LoadError::NoCompiler`] where there is none.
pub fn compiler() -> Result<Compiler, LoadError> {
    compiler_library().map(|library| library.compiler).map_err(Clone::clone)
}

/// The library with at least one usable device.
pub(crate) fn usable_library() -> Result<(&'static Library, usize), LoadError> {
    let library = library().map_err(Clone::clone)?;
    match library.usable() {
        Ok(count) => Ok((library, count)),
        Err(code) => Err(no_device(library, code)),
    }
}

fn no_device(library: &Library, code: c_int) -> LoadError {
    // SAFETY: H1. Any number may be asked for.
    let name = text_of(unsafe { library.runtime.hipGetErrorName(code) });
    let name = if code == SUCCESS { "that it has no device".into() } else { name };
    let advice = crate::diagnosis::device_advice(library.platform);
    LoadError::NoDevice { path: library.path.clone(), code, name, advice }
}

fn open_runtime() -> Result<Library, LoadError> {
    let (runtime, path, is_cuda) = bind_runtime()?;
    let absent = runtime.absent();
    let lacking: Vec<_> = NEEDED.into_iter().filter(|name| absent.contains(name)).collect();
    if !lacking.is_empty() {
        return Err(LoadError::Incomplete { path, absent: lacking });
    }
    let mut version = 0;
    // SAFETY: H3. A local integer.
    let _ = unsafe { runtime.hipRuntimeGetVersion(&mut version) };
    if !is_cuda && (1..OLDEST_VERSION).contains(&version) {
        return Err(LoadError::TooOld { path, version });
    }
    // SAFETY: H1. Under the once-lock, so that no other call races with it.
    let init_code = unsafe { runtime.hipInit(0) };
    let mut devices = 0;
    // SAFETY: H3. A local integer.
    let count_code = unsafe { runtime.hipGetDeviceCount(&mut devices) };
    if version == 0 {
        // SAFETY: H3. A local integer. Some versions know their number only once they were initialized.
        let _ = unsafe { runtime.hipRuntimeGetVersion(&mut version) };
    }
    // What the start left as the thread's last error is told by the codes.
    went_well(&runtime, if init_code == SUCCESS { count_code } else { init_code });
    let (platform, profile) = match is_cuda {
        true => (Platform::Cuda, Profile::Cuda13),
        false => (Platform::Amd, Profile::of_hip(version)),
    };
    Ok(Library { runtime, path, platform, version, profile, init_code, count_code, devices, pins: Mutex::new(()) })
}

fn bind_runtime() -> Result<(Runtime, PathBuf, bool), LoadError> {
    #[cfg(feature = "hip-sys")]
    if env::var_os(LIBRARY_VARIABLE).is_none() {
        let runtime = crate::linked::runtime();
        let path = runtime.hipInit.and_then(|function| path_of(function as *const c_void));
        return Ok((runtime, path.unwrap_or_else(|| RUNTIME_NAMES[0].into()), false));
    }
    let (object, name) = open_first(&runtime_candidates()).map_err(|tried| LoadError::NotFound { tried })?;
    let object: &'static SharedObject = Box::leak(Box::new(object));
    // SAFETY: H1. The object is leaked, and the names are those of the vendor's header.
    let runtime = unsafe { Runtime::resolve(|symbol| find(object, symbol)) };
    let path = runtime.hipInit.and_then(|function| path_of(function as *const c_void)).unwrap_or(name);
    Ok((runtime, path, find(object, c"tenure_hip_cuda_version").is_some()))
}

fn runtime_candidates() -> Vec<PathBuf> {
    if let Some(path) = env::var_os(LIBRARY_VARIABLE) {
        return vec![path.into()];
    }
    let mut names: Vec<PathBuf> = RUNTIME_NAMES.iter().map(PathBuf::from).collect();
    for folder in rocm_folders() {
        names.extend(RUNTIME_NAMES.iter().map(|name| folder.join(name)).filter(|path| path.exists()).take(1));
    }
    names
}

/// Where ROCm keeps its libraries when the loader does not know of them.
fn rocm_folders() -> Vec<PathBuf> {
    let roots = ["ROCM_PATH", "HIP_PATH"].into_iter().filter_map(env::var_os).chain([OsString::from("/opt/rocm")]);
    roots.map(|root| Path::new(&root).join("lib")).collect()
}

fn open_compiler() -> Result<CompilerLibrary, LoadError> {
    let mut tried = Vec::new();
    let library = library().ok();
    for name in compiler_candidates(library) {
        match open_first(std::slice::from_ref(&name)) {
            Ok((object, name)) => match bind_compiler(object, name.clone()) {
                Ok(found) => return Ok(found),
                Err(problem) => tried.push(Attempt { name, problem }),
            },
            Err(attempts) => tried.extend(attempts),
        }
    }
    Err(LoadError::NoCompiler { tried })
}

fn bind_compiler(object: SharedObject, name: PathBuf) -> Result<CompilerLibrary, String> {
    let object: &'static SharedObject = Box::leak(Box::new(object));
    // SAFETY: H1. The object is leaked, and the names are those of the vendor's header.
    let compiler = unsafe { Compiler::resolve(|symbol| find(object, symbol)) };
    let compile = compiler.hiprtcCompileProgram.ok_or("opened, but it has no hiprtcCompileProgram")?;
    let path = path_of(compile as *const c_void).unwrap_or(name);
    let mut version = (0, 0);
    // SAFETY: H3. Two local integers.
    match unsafe { compiler.hiprtcVersion(&mut version.0, &mut version.1) } {
        SUCCESS => Ok(CompilerLibrary { compiler, path, version }),
        // SAFETY: H1. Any number may be asked for.
        code => Err(text_of(unsafe { compiler.hiprtcGetErrorString(code) })),
    }
}

fn compiler_candidates(library: Option<&Library>) -> Vec<PathBuf> {
    if let Some(path) = env::var_os(COMPILER_VARIABLE) {
        return vec![path.into()];
    }
    let mut names = Vec::new();
    if env::var_os(LIBRARY_VARIABLE).is_some() {
        // A library that was named may hold both: hip/cuda does, and AMD's below 7.0.
        names.extend(library.map(|library| library.path.clone()));
    }
    if let Some(folder) = library.and_then(|library| library.path.parent()) {
        names.extend(COMPILER_NAMES.iter().map(|name| folder.join(name)).filter(|path| path.exists()));
    }
    names.extend(COMPILER_NAMES.iter().map(PathBuf::from));
    for folder in rocm_folders() {
        names.extend(COMPILER_NAMES.iter().map(|name| folder.join(name)).filter(|path| path.exists()).take(1));
    }
    let holds_both = library.filter(|library| library.platform == Platform::Amd && library.version < 70_000_000);
    names.extend(holds_both.map(|library| library.path.clone()));
    names
}

/// The library below the compiler, the first of `names` that opens.
pub(crate) fn open_comgr(names: &[PathBuf]) -> Option<Comgr> {
    let (object, _) = open_first(names).ok()?;
    let object: &'static SharedObject = Box::leak(Box::new(object));
    // SAFETY: H1. The object is leaked, and the names are those of the vendor's header.
    Some(unsafe { Comgr::resolve(|symbol| find(object, symbol)) })
}

fn open_first(names: &[PathBuf]) -> Result<(SharedObject, PathBuf), Vec<Attempt>> {
    let mut tried = Vec::new();
    for name in names {
        // SAFETY: H1. Runs the library's initializers: it is the vendor's, or the one that the user named.
        match unsafe { SharedObject::open(Some(name), libc::RTLD_NOW | libc::RTLD_LOCAL) } {
            Ok(object) => return Ok((object, name.clone())),
            Err(error) => tried.push(Attempt { name: name.clone(), problem: problem_of(&error) }),
        }
    }
    Err(tried)
}

fn problem_of(error: &libloading::Error) -> String {
    match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

pub(crate) fn find(object: &SharedObject, symbol: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: H1. Only the address is taken here; the table says what it is called as.
    let found = unsafe { object.get::<*mut c_void>(symbol.to_bytes_with_nul()) };
    NonNull::new(found.ok()?.into_raw())
}

/// The file that holds the code at `address`.
fn path_of(address: *const c_void) -> Option<PathBuf> {
    // SAFETY: H3. All-zero is a value of this struct of pointers, which the next call fills.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: H3. A local struct; any address may be asked for.
    let found = unsafe { libc::dladdr(address, &mut info) };
    let path = (found != 0).then(|| text_of(info.dli_fname)).filter(|path| !path.is_empty())?;
    Some(path.into())
}

/// The text of a code that came from the library's own start.
pub(crate) fn code_name(library: &Library, code: c_int) -> String {
    if code == sys::ABSENT {
        return "missing function".into();
    }
    // SAFETY: H1. Any number may be asked for.
    text_of(unsafe { library.runtime.hipGetErrorName(code) })
}
