//! What [`doctor`] finds on this machine, in words that a person can act on.
//!
//! It opens the libraries as any other call does, and looks at the device nodes; it allocates nothing on a device.

use std::env;
use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::driver::{DeviceInfo, device_info};
use crate::load::{self, LIBRARY_VARIABLE, LoadError, Platform};
use crate::profile::Profile;

/// The state of HIP on this machine. Displayed, it is a report for people; its fields are for programs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Doctor {
    /// The library of the runtime, where one was found.
    pub library: Option<LibraryReport>,
    /// The library of the compiler, or why there is none.
    pub compiler: Result<CompilerReport, LoadError>,
    /// The device nodes that a GPU needs, and whether this user may use them.
    pub nodes: Vec<NodeReport>,
    /// The devices that can be used.
    pub devices: Vec<DeviceInfo>,
    /// The number of usable devices, or why there is none.
    pub verdict: Result<usize, LoadError>,
}

/// The library of the runtime.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LibraryReport {
    /// Its file.
    pub path: PathBuf,
    /// Whose devices it drives.
    pub platform: Platform,
    /// Its version, such as `7.2.53211` or `CUDA 13.0`.
    pub version: String,
    /// How it behaves.
    pub profile: Profile,
    /// The functions that it lacks.
    pub absent: Vec<&'static str>,
    /// What `hipInit` returned, and its name.
    pub init: (i32, String),
    /// What `hipGetDeviceCount` returned, and its name.
    pub count: (i32, String),
}

/// The library of the compiler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompilerReport {
    /// Its file.
    pub path: PathBuf,
    /// Major and minor.
    pub version: (i32, i32),
    /// The functions that it lacks.
    pub absent: Vec<&'static str>,
}

/// A device node and what this user may do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// Its path.
    pub path: PathBuf,
    /// What this user may do with it.
    pub access: Access,
}

/// Whether a device node can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// It is there, but this user may not read and write it.
    Denied,
    /// It is not there.
    Missing,
    /// It can be read and written.
    Open,
}

/// Looks at the libraries, the device nodes and the devices of this machine.
///
/// Opens the libraries, so a later change of the environment has no effect on this process. Never fails: what is wrong
/// is in the report.
///
/// # Examples
/// ```
/// let doctor = tenure_hip::doctor();
/// println!("{doctor}");
/// assert_eq!(doctor.verdict.is_ok(), !doctor.devices.is_empty());
/// ```
pub fn doctor() -> Doctor {
    let library = load::library().ok().map(|library| LibraryReport {
        path: library.path.clone(),
        platform: library.platform,
        version: library.version_text(),
        profile: library.profile,
        absent: library.runtime.absent(),
        init: (library.init_code, load::code_name(library, library.init_code)),
        count: (library.count_code, load::code_name(library, library.count_code)),
    });
    let compiler = load::compiler_library().map_err(Clone::clone).map(|library| CompilerReport {
        path: library.path.clone(),
        version: library.version,
        absent: library.compiler.absent(),
    });
    let platform = library.as_ref().map_or(Platform::Amd, |library| library.platform);
    let (devices, verdict) = match load::usable_library() {
        Ok((library, count)) => ((0..count).map(|index| device_info(library, index)).collect(), Ok(count)),
        Err(error) => (Vec::new(), Err(error)),
    };
    Doctor { library, compiler, nodes: nodes(platform), devices, verdict }
}

impl fmt::Display for Doctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_library(f)?;
        self.write_compiler(f)?;
        for node in &self.nodes {
            writeln!(f, "node      {}: {}", node.path.display(), node.access)?;
        }
        for device in &self.devices {
            writeln!(f, "device    {device}")?;
        }
        match &self.verdict {
            Ok(1) => f.write_str("verdict   usable: 1 device"),
            Ok(count) => write!(f, "verdict   usable: {count} devices"),
            Err(error) => write!(f, "verdict   {error}"),
        }
    }
}

impl Doctor {
    fn write_library(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(library) = &self.library else {
            return writeln!(f, "library   none");
        };
        writeln!(f, "library   {}", library.path.display())?;
        writeln!(f, "version   {}, handled as {}", library.version, library.profile)?;
        if !library.absent.is_empty() {
            writeln!(f, "lacks     {}", library.absent.join(", "))?;
        }
        let (init, count) = (&library.init, &library.count);
        writeln!(f, "start     hipInit {} ({}), hipGetDeviceCount {} ({})", init.1, init.0, count.1, count.0)
    }

    fn write_compiler(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.compiler {
            Ok(compiler) => {
                let (major, minor) = compiler.version;
                writeln!(f, "compiler  {}, version {major}.{minor}", compiler.path.display())
            }
            Err(error) => writeln!(f, "compiler  {error}"),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Denied => "permission denied",
            Self::Missing => "missing",
            Self::Open => "readable and writable",
        })
    }
}

/// What to do where the library is there and no device is.
pub(crate) fn device_advice(platform: Platform) -> String {
    let nodes = nodes(platform);
    let state = |wanted: Access| nodes.iter().find(|node| node.access == wanted);
    match platform {
        Platform::Cuda => cuda_advice(state(Access::Missing), state(Access::Denied)),
        Platform::Amd => amd_advice(state(Access::Missing), state(Access::Denied)),
    }
}

fn cuda_advice(missing: Option<&NodeReport>, denied: Option<&NodeReport>) -> String {
    match (missing, denied) {
        (Some(node), _) => format!(
            "{} is missing: install or load the NVIDIA driver, or pass the GPU into this container (--gpus all)",
            node.path.display()
        ),
        (None, Some(node)) => format!(
            "Permission on {} is denied: let this user read and write it (the driver's NVreg_DeviceFileMode)",
            node.path.display()
        ),
        (None, None) => "The driver may be older than the CUDA runtime: compare nvidia-smi with the library".into(),
    }
}

fn amd_advice(missing: Option<&NodeReport>, denied: Option<&NodeReport>) -> String {
    if let Some(node) = missing {
        return format!(
            "{} is missing: load the amdgpu kernel module, or pass the GPU into this container (--device=/dev/kfd \
             --device=/dev/dri)",
            node.path.display()
        );
    }
    if let Some(node) = denied {
        return format!(
            "Permission on {} is denied: add this user to its group (sudo usermod -aG render,video $USER) and log in \
             again",
            node.path.display()
        );
    }
    let hidden = ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"];
    match hidden.into_iter().find(|name| env::var_os(name).is_some()) {
        Some(name) => format!("{name} is set and may hide every device: unset it"),
        None => format!(
            "The kernel driver is there, but this version does not know the GPU: try a newer ROCm, or another library \
             through {LIBRARY_VARIABLE}"
        ),
    }
}

fn nodes(platform: Platform) -> Vec<NodeReport> {
    let path = match platform {
        Platform::Amd => "/dev/kfd",
        Platform::Cuda => "/dev/nvidiactl",
    };
    let mut paths = vec![PathBuf::from(path)];
    if platform == Platform::Amd && Path::new(path).exists() {
        paths.extend(render_nodes());
    }
    paths.into_iter().map(|path| NodeReport { access: access(&path), path }).collect()
}

fn render_nodes() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/dev/dri") else {
        return Vec::new();
    };
    let is_render = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"renderD"));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_render).collect();
    paths.sort();
    paths
}

fn access(path: &Path) -> Access {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return Access::Missing;
    };
    // SAFETY: H3. A string that ends in zero and outlives the call.
    let code = unsafe { libc::access(name.as_ptr(), libc::R_OK | libc::W_OK) };
    match code {
        0 => Access::Open,
        _ if path.exists() => Access::Denied,
        _ => Access::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_node_and_the_command() {
        let node = |access| NodeReport { path: "/dev/kfd".into(), access };
        assert!(amd_advice(Some(&node(Access::Missing)), None).contains("--device=/dev/kfd"));
        assert!(amd_advice(None, Some(&node(Access::Denied))).contains("usermod -aG render,video"));
        assert!(cuda_advice(Some(&node(Access::Missing)), None).contains("--gpus all"));
        assert!(cuda_advice(None, Some(&node(Access::Denied))).starts_with("Permission on /dev/kfd is denied"));
    }

    #[test]
    fn access_tells_missing_from_open() {
        assert_eq!(access(Path::new("/dev/null")), Access::Open);
        assert_eq!(access(Path::new("/dev/no-such-node")), Access::Missing);
    }
}
