//! What a device is: name, architecture, memory.

use std::ffi::{c_char, c_int};
use std::fmt;

use crate::error::went_well;
use crate::load::{Library, Platform};
use crate::sys::{self, Runtime};

/// A device as the library describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number, from 0.
    pub index: usize,
    /// Its name in the trade. May be empty.
    pub name: String,
    /// What kernels are compiled for: `gfx90a:sramecc+:xnack-`, `sm_90`. Empty where the library does not say.
    pub architecture: String,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// Multiprocessors, or compute units.
    pub multiprocessors: u32,
    /// Threads that run in step.
    pub warp_size: u32,
    /// Its address on the bus. May be empty.
    pub bus_id: String,
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, name, architecture, memory_bytes, multiprocessors, warp_size, bus_id } = self;
        let gibibytes = memory_bytes >> 30;
        write!(f, "{index}: {name} ({architecture}), {gibibytes} GiB, {multiprocessors} multiprocessors of warps of ")?;
        write!(f, "{warp_size}, at {bus_id}")
    }
}

/// What the library says about device `index`; fields that it does not answer stay empty or zero.
pub(crate) fn device_info(library: &Library, index: usize) -> DeviceInfo {
    let device = c_int::try_from(index).unwrap_or(c_int::MAX);
    let runtime = &library.runtime;
    let mut memory_bytes = 0_usize;
    // SAFETY: H3. A local integer.
    let code = unsafe { runtime.hipDeviceTotalMem(&mut memory_bytes, device) };
    went_well(runtime, code);
    DeviceInfo {
        index,
        // SAFETY: H3. The buffer's own length goes with it.
        name: read_text(runtime, |text, length| unsafe { runtime.hipDeviceGetName(text, length, device) }),
        architecture: architecture(library, device),
        memory_bytes: memory_bytes as u64,
        multiprocessors: attribute(library, sys::ATTRIBUTE_MULTIPROCESSOR_COUNT, device).unwrap_or(0),
        warp_size: attribute(library, sys::ATTRIBUTE_WARP_SIZE, device).unwrap_or(0),
        // SAFETY: H3. The buffer's own length goes with it.
        bus_id: read_text(runtime, |text, length| unsafe { runtime.hipDeviceGetPCIBusId(text, length, device) }),
    }
}

/// An attribute of the device; `None` where the library does not know it.
pub(super) fn attribute(library: &Library, attribute: c_int, device: c_int) -> Option<u32> {
    let mut value = 0;
    // SAFETY: H3. A local integer.
    let code = unsafe { library.runtime.hipDeviceGetAttribute(&mut value, attribute, device) };
    went_well(&library.runtime, code).then(|| u32::try_from(value).ok()).flatten()
}

fn read_text(runtime: &Runtime, fill: impl FnOnce(*mut c_char, c_int) -> c_int) -> String {
    let mut bytes = [0_u8; 256];
    // One byte less than there is, so that the text always ends.
    let code = fill(bytes.as_mut_ptr().cast(), 255);
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    if went_well(runtime, code) { String::from_utf8_lossy(&bytes[..length]).into_owned() } else { String::new() }
}

fn architecture(library: &Library, device: c_int) -> String {
    match library.platform {
        Platform::Cuda => {
            let part = |number| attribute(library, number, device);
            let major = part(sys::ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
            let minor = part(sys::ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
            major.zip(minor).map(|(major, minor)| format!("sm_{major}{minor}")).unwrap_or_default()
        }
        Platform::Amd => amd_architecture(library, device),
    }
}

fn amd_architecture(library: &Library, device: c_int) -> String {
    let mut buffer = Box::new(sys::PropertiesBuffer([0; 16384]));
    let properties = (&raw mut *buffer).cast();
    let code = match library.runtime.hipGetDevicePropertiesR0600 {
        // SAFETY: H3. The buffer is larger than the struct of any version.
        Some(_) => unsafe { library.runtime.hipGetDevicePropertiesR0600(properties, device) },
        // SAFETY: H3. As above.
        None => unsafe { library.runtime.hipGetDeviceProperties(properties, device) },
    };
    if went_well(&library.runtime, code) { find_architecture(&buffer.0) } else { String::new() }
}

/// The last string in `bytes` that begins with `gfx`. The struct holds two texts, the name in the trade and, after it,
/// this one; its place differs by version, its beginning does not.
fn find_architecture(bytes: &[u8]) -> String {
    let begins = |at: &usize| bytes[*at..].starts_with(b"gfx") && (*at == 0 || bytes[at - 1] == 0);
    let Some(begin) = (0..bytes.len()).rev().find(begins) else {
        return String::new();
    };
    let length = bytes[begin..].iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[begin..begin + length]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::find_architecture;

    #[test]
    fn the_architecture_is_found_wherever_a_version_keeps_it() {
        for place in [396, 1160] {
            let mut bytes = vec![0_u8; 1472];
            bytes[..12].copy_from_slice(b"AMD Instinct");
            bytes[place..place + 22].copy_from_slice(b"gfx90a:sramecc+:xnack-");
            assert_eq!(find_architecture(&bytes), "gfx90a:sramecc+:xnack-");
        }
    }

    #[test]
    fn no_architecture_is_an_empty_one() {
        assert_eq!(find_architecture(&[0; 1472]), "");
    }
}
