//! Addresses of device and host memory, as plain values.

use std::ptr::NonNull;

/// A device address. Zero is the address of a zero-size allocation, which no driver ever sees (O8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceAddress(pub u64);

impl DeviceAddress {
    /// The address `bytes` further on.
    #[must_use]
    #[inline]
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

/// The address of host memory, as a plain value: making and sending one is safe, using it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPointer(pub NonNull<u8>);

// SAFETY: an address is a number; whoever reads or writes through it must itself know that it may (P4).
unsafe impl Send for HostPointer {}
// SAFETY: the same reason: a shared address gives no access by itself.
unsafe impl Sync for HostPointer {}

impl HostPointer {
    /// The address as a number.
    #[inline]
    pub fn address(self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The address `bytes` further on.
    #[must_use]
    #[inline]
    pub fn offset(self, bytes: usize) -> Self {
        let moved = self.0.as_ptr().wrapping_add(bytes);
        Self(NonNull::new(moved).unwrap_or(self.0))
    }
}

/// Whether the device may write to registered host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAccess {
    /// The device only reads: also memory that the process itself may only read can be registered.
    Read,
    /// The device reads and writes.
    ReadWrite,
}

/// A host range in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// Where it begins.
    pub base: HostPointer,
    /// How long it is, at least 1.
    pub bytes: usize,
}
