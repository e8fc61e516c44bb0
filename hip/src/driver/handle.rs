//! The handles of one device. Each is made by the driver alone and owned by whoever holds it; none is `Clone`, so that
//! a handle taken by value cannot be used again.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

use super::host_function::Recording;
use crate::sys;

macro_rules! shareable {
    ($($handle:ident: $why:literal;)*) => {$(
        #[doc = concat!("SAFETY: H2. ", $why)]
        // SAFETY: H2. The handle names an object of the library, whose functions may be called from any thread.
        unsafe impl Send for $handle {}
        // SAFETY: H2. The same as for Send: the library locks its own objects.
        unsafe impl Sync for $handle {}
    )*};
}

/// An in-order queue of the device.
#[derive(Debug)]
pub struct Stream {
    pub(super) raw: sys::hipStream_t,
}

impl Stream {
    /// The `hipStream_t`, for libraries that take one (rocBLAS, MIOpen, RCCL).
    ///
    /// What is done with it is outside the driver's sight: work put there must be told to the core through
    /// `use_on`, and the handle must not be destroyed.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// A handle for a stream that other code made.
    ///
    /// # Safety
    /// - `raw` is a live stream of the same device, and stays live as long as the handle and all that was made from it.
    /// - It is neither the default stream nor the per-thread one: those cannot be captured or told apart by thread.
    pub unsafe fn from_raw(raw: *mut c_void) -> Self {
        Self { raw: raw.cast() }
    }
}

/// A mark in a stream.
#[derive(Debug)]
pub struct Event {
    pub(super) raw: sys::hipEvent_t,
}

impl Event {
    /// The `hipEvent_t`, for libraries that take one.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.cast()
    }
}

/// Loaded code, and the bytes it came from, which some versions read again after the load.
#[derive(Debug)]
pub struct Module {
    pub(super) raw: sys::hipModule_t,
    pub(super) _image: Box<[u8]>,
}

/// A kernel of a module. Usable until the module is unloaded.
#[derive(Debug)]
pub struct Function {
    pub(super) raw: sys::hipFunction_t,
}

/// A recorded graph, and the host functions that it calls.
#[derive(Debug)]
pub struct Graph {
    pub(super) raw: sys::hipGraph_t,
    pub(super) recordings: Vec<Arc<Recording>>,
}

/// A graph made ready to launch, and the host functions that its launches call.
#[derive(Debug)]
pub struct Executable {
    pub(super) raw: sys::hipGraphExec_t,
    pub(super) recordings: Mutex<Generations>,
}

/// The host functions of an executable: those that launches from now on call, and those of before an update, kept
/// until every launch that calls them has done so.
#[derive(Debug, Default)]
pub(super) struct Generations {
    pub(super) current: Vec<Arc<Recording>>,
    pub(super) former: Vec<Arc<Recording>>,
}

impl Executable {
    pub(super) fn new(raw: sys::hipGraphExec_t, current: Vec<Arc<Recording>>) -> Self {
        Self { raw, recordings: Mutex::new(Generations { current, former: Vec::new() }) }
    }

    /// Never held across a call of the library.
    pub(super) fn generations(&self) -> MutexGuard<'_, Generations> {
        self.recordings.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

shareable! {
    Stream: "A queue.";
    Event: "A mark.";
    Module: "Loaded code.";
    Function: "A kernel.";
    Graph: "A recording.";
    Executable: "A recording made ready.";
}
