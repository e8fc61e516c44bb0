//! What programs of the tables are written with: the raw driver, in few words.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use tenure::driver::{
    Argument, CaptureMode, DeviceAddress, Driver, HostAccess, HostPointer, Image, LaunchConfig, Location, Priority,
    Progress, Timing,
};
pub use tenure_sim::Sim;
pub use tenure_sim::driver::{SimError, SimEvent, SimExecutable, SimFunction, SimGraph, SimModule, SimStream};
pub use tenure_sim::event::Access::{Read, Write};

use std::ptr::NonNull;

/// How long memory of the tables is, in bytes.
pub const N: u64 = 64;

pub fn stream(d: &Sim) -> SimStream {
    d.stream_create(Priority::Normal).unwrap()
}

pub fn event(d: &Sim) -> SimEvent {
    d.event_create(Timing::Disabled).unwrap()
}

pub fn alloc(d: &Sim) -> DeviceAddress {
    d.malloc(N).unwrap()
}

pub fn pinned(d: &Sim) -> HostPointer {
    d.host_alloc(N as usize).unwrap()
}

pub fn fill(d: &Sim, s: &SimStream, at: DeviceAddress) {
    // SAFETY: P4. What the device touches is checked: that is what the tables are about.
    unsafe { d.fill(s, at, 7, N) }.unwrap();
}

pub fn try_fill(d: &Sim, s: &SimStream, at: DeviceAddress) -> Result<(), SimError> {
    // SAFETY: P4. The same as for `fill`.
    unsafe { d.fill(s, at, 7, N) }
}

/// Between two addresses of the device.
pub fn copy(d: &Sim, s: &SimStream, to: DeviceAddress, from: DeviceAddress) {
    // SAFETY: P4. The same as for `fill`.
    unsafe { d.copy(s, Location::Device(to), Location::Device(from), N) }.unwrap();
}

pub fn down(d: &Sim, s: &SimStream, to: HostPointer, from: DeviceAddress, bytes: u64) -> Result<(), SimError> {
    // SAFETY: P4. The memory lives to the end of the program, whatever it tells the simulator.
    unsafe { d.copy(s, Location::Host(to), Location::Device(from), bytes) }
}

pub fn up(d: &Sim, s: &SimStream, to: DeviceAddress, from: HostPointer, bytes: u64) -> Result<(), SimError> {
    // SAFETY: P4. The same as for `down`.
    unsafe { d.copy(s, Location::Device(to), Location::Host(from), bytes) }
}

pub fn sync(d: &Sim, s: &SimStream) {
    d.stream_synchronize(s).unwrap();
}

/// `to` goes on after all that is on `from`.
pub fn edge(d: &Sim, from: &SimStream, to: &SimStream) {
    let e = event(d);
    d.event_record(&e, from).unwrap();
    d.stream_wait_event(to, &e).unwrap();
    d.event_destroy(e).unwrap();
}

pub fn free(d: &Sim, at: DeviceAddress) {
    // SAFETY: O6. The same as for `fill`.
    unsafe { d.free(at) }.unwrap();
}

pub fn free_async(d: &Sim, s: &SimStream, at: DeviceAddress) {
    // SAFETY: O6. The same as for `fill`.
    unsafe { d.free_async(s, at) }.unwrap();
}

pub fn unpin(d: &Sim, at: HostPointer) {
    // SAFETY: P3. The same as for `fill`.
    unsafe { d.host_free(at) }.unwrap();
}

pub fn register(d: &Sim, at: HostPointer, bytes: u64) {
    // SAFETY: P4. The memory lives to the end of the program.
    unsafe { d.host_register(at, bytes as usize, HostAccess::ReadWrite) }.unwrap();
}

pub fn unregister(d: &Sim, at: HostPointer) -> Result<(), SimError> {
    // SAFETY: P3. The same as for `fill`.
    unsafe { d.host_unregister(at) }
}

pub fn end(d: &Sim, s: &SimStream) {
    // SAFETY: S6. The same as for `fill`.
    unsafe { d.stream_destroy(s) }.unwrap();
}

/// What `body` puts on a stream, as a graph.
pub fn graph(d: &Sim, body: impl Fn(&SimStream)) -> SimGraph {
    let s = stream(d);
    d.capture_begin(&s, CaptureMode::Relaxed).unwrap();
    body(&s);
    let g = d.capture_end(&s).unwrap();
    end(d, &s);
    g
}

pub fn ready(d: &Sim, g: &SimGraph) -> SimExecutable {
    d.graph_instantiate(g).unwrap()
}

pub fn replay(d: &Sim, x: &SimExecutable, s: &SimStream) {
    // SAFETY: C4. The same as for `fill`.
    unsafe { d.graph_launch(x, s) }.unwrap();
}

pub fn module(d: &Sim) -> SimModule {
    d.module_load(Image::Source("")).unwrap()
}

pub fn unload(d: &Sim, m: SimModule) {
    // SAFETY: C4. The same as for `fill`.
    unsafe { d.module_unload(m) }.unwrap();
}

/// Launches a kernel of one pointer.
pub fn launch(d: &Sim, s: &SimStream, f: &SimFunction, at: DeviceAddress) -> Result<(), SimError> {
    let argument = Argument::Pointer { address: at, bytes: N };
    // SAFETY: O1. The same as for `fill`.
    unsafe { d.launch(s, f, &LaunchConfig::linear(1), &[argument]) }
}

pub fn call(d: &Sim, s: &SimStream, function: impl Fn() + Send + Sync + 'static) {
    d.launch_host_function(s, Arc::new(function)).unwrap();
}

/// Plain memory of the host that lives for good, so that a program may tell what it likes of it.
pub fn plain(bytes: usize) -> HostPointer {
    let memory: &'static mut [u8] = Box::leak(vec![1_u8; bytes].into_boxed_slice());
    HostPointer(NonNull::from(memory).cast())
}
