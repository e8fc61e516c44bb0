//! Every public call, on the objects of a [world](super::world).

use std::time::Duration;

use std::ptr::NonNull;
use std::sync::Arc;

use tenure::driver::{Image, Priority};
use tenure::{Access, Error, LaunchConfig, Queue, Readable, Result, Runtime};

use super::world::Objects;

/// One call.
pub struct Call {
    /// `Type::method`.
    pub name: &'static str,
    /// Makes it.
    pub run: fn(&mut Objects) -> Result<()>,
}

/// Their names.
pub fn names() -> Vec<&'static str> {
    CALLS.iter().map(|call| call.name).collect()
}

/// The call of this name.
///
/// # Panics
/// Where there is none.
pub fn named(name: &str) -> &'static Call {
    CALLS.iter().find(|call| call.name == name).unwrap_or_else(|| panic!("no call {name}"))
}

macro_rules! calls {
    ($($name:literal => $run:expr;)*) => {
        /// Every public call that can fail, wait, or make a driver call; and every drop.
        pub const CALLS: &[Call] = &[$(Call { name: $name, run: $run }),*];
    };
}

fn taken<T>(slot: &mut Option<T>) -> T {
    slot.take().expect("a cell makes one call")
}

/// Moves the buffer to the other stream: an edge is needed, or was.
fn moved(objects: &mut Objects) -> Result<()> {
    let config = LaunchConfig::linear(4);
    objects.other.launch(&objects.bump, config, (&mut objects.x, 1_u32, 4_u32))
}

/// Makes another runtime over the same device, and ends it.
fn new_runtime(objects: &mut Objects) -> Result<()> {
    let runtime = Runtime::new(objects.runtime.driver().clone())?;
    let _ = runtime.shutdown(Duration::from_millis(200));
    Ok(())
}

/// Adopts a stream of other code.
fn adopt(objects: &mut Objects) -> Result<()> {
    let raw = taken(&mut objects.raw);
    // SAFETY: S6. The raw stream is destroyed with the device alone.
    unsafe { objects.runtime.adopt(raw) }.map(drop)
}

/// Wraps memory that this vouches for.
fn wrap_raw(objects: &mut Objects) -> Result<()> {
    let memory = NonNull::from(Vec::leak(vec![0_u32; 8])).cast();
    // SAFETY: P4. The memory is never given back, and nobody else knows it.
    unsafe { objects.runtime.wrap_raw::<u32>(memory, 8) }.map(drop)
}

/// A scope whose pin takes part in a copy and is then looked at.
fn used_scope(objects: &mut Objects) -> Result<()> {
    let (runtime, mut memory, shared) = (objects.runtime.clone(), [0_u32; 4], [1_u32; 4]);
    runtime.scope(|scope| {
        let (mut pin, shared) = (scope.wrap(&mut memory)?, scope.wrap_shared(&shared)?);
        objects.stream.copy(&shared, &mut pin)?;
        pin.read().map(drop)?;
        pin.write().map(drop)
    })
}

/// Records what `body` does.
fn captured(
    objects: &mut Objects,
    body: impl FnOnce(&tenure::Capture<'_, super::world::D>, &mut Objects) -> Result<()>,
) -> Result<()> {
    let runtime = objects.runtime.clone();
    runtime.capture(|capture| body(capture, objects)).map(drop)
}

calls! {
    "Runtime::new and shutdown" => new_runtime;
    "Runtime::stream" => |o| o.runtime.stream().map(drop);
    "Runtime::stream_with" => |o| o.runtime.stream_with(Priority::High).map(drop);
    "Runtime::module" => |o| o.runtime.module(Image::Source(crate::bench::SOURCE)).map(drop);
    "Runtime::alloc_host" => |o| o.runtime.alloc_host::<u32>(8).map(drop);
    "Runtime::wrap" => |o| o.runtime.wrap(vec![0_u32; 8]).map(drop).map_err(Error::from);
    "Runtime::wrap_shared" => |o| o.runtime.wrap_shared(Arc::from(vec![0_u32; 8])).map(drop).map_err(Error::from);
    "Runtime::wrap_read_only" => |o| o.runtime.wrap_read_only(vec![0_u32; 8]).map(drop).map_err(Error::from);
    "Runtime::wrap_raw" => wrap_raw;
    "Runtime::adopt" => adopt;
    "Runtime::clone and drop" => |o| { drop(o.runtime.clone()); Ok(()) };
    "Runtime::retired_pending" => |o| { let _ = o.runtime.retired_pending(); Ok(()) };
    "Runtime::scope, used" => used_scope;
    "Runtime::scope" => |o| { let mut memory = [0_u32; 8]; o.runtime.scope(|scope| scope.wrap(&mut memory).map(drop)) };
    "Runtime::capture" => |o| { let (runtime, x) = (o.runtime.clone(), &mut o.x); runtime.capture(|capture| capture.fill(x, 1)).map(drop) };
    "Capture::launch" => |o| captured(o, |capture, o| capture.launch(&o.bump, LaunchConfig::linear(4), (&mut o.x, 1_u32, 4_u32)));
    "Capture::copy" => |o| captured(o, |capture, o| capture.copy(&o.y, &mut o.x));
    "Capture::write" => |o| captured(o, |capture, o| capture.write(&[1_u32; 4], &mut o.x));
    "Capture::upload" => |o| captured(o, |capture, _| capture.upload(&[1_u32; 4]).map(drop));
    "Capture::alloc" => |o| captured(o, |capture, _| capture.alloc::<u32>(4).map(drop));
    "Capture::fork and join" => |o| captured(o, |capture, _| capture.fork()?.join(capture));
    "Runtime::capture_guard" => |o| { drop(o.runtime.capture_guard()); Ok(()) };
    "Runtime::poll" => |o| { o.runtime.poll(); Ok(()) };
    "Runtime::trim" => |o| { o.runtime.trim(); Ok(()) };
    "Runtime::stats" => |o| { let _ = o.runtime.stats(); Ok(()) };
    "Runtime::lost" => |o| { let _ = o.runtime.lost(); Ok(()) };
    "Runtime::is_pinned" => |o| { let _ = o.runtime.is_pinned(o.host.as_ptr()); Ok(()) };
    "Runtime::take_release_errors" => |o| { let _ = o.runtime.take_release_errors(); Ok(()) };
    "Runtime::shutdown" => |o| { let _ = o.runtime.clone().shutdown(Duration::from_millis(200)); Ok(()) };
    "Stream::launch, covered" => |o| o.stream.launch(&o.bump, LaunchConfig::linear(4), (&mut o.x, 1_u32, 4_u32));
    "Stream::launch, moving" => moved;
    "Stream::launch, adopted" => |o| { let adopted = taken(&mut o.adopted); adopted.launch(&o.bump, LaunchConfig::linear(4), (&mut o.x, 1_u32, 4_u32)) };
    "Stream::copy" => |o| o.stream.copy(&o.x, &mut o.host);
    "Stream::copy, moving" => |o| o.stream.copy(&o.y, &mut o.x);
    "Stream::fill" => |o| o.stream.fill(&mut o.x, 1);
    "Stream::write" => |o| o.stream.write(&[2_u32; 4], &mut o.x);
    "Stream::upload" => |o| o.stream.upload(&[2_u32; 4]).map(drop);
    "Stream::alloc" => |o| o.stream.alloc::<u32>(16).map(drop);
    "Stream::read" => |o| o.stream.read(&o.x).map(drop);
    "Stream::read_into" => |o| { let mut to = [0_u32; 4]; o.stream.read_into(&o.x, &mut to) };
    "Stream::download" => |o| o.stream.download(&o.x).map(drop);
    "Stream::synchronize" => |o| o.stream.synchronize();
    "Stream::is_idle" => |o| o.stream.is_idle().map(drop);
    "Stream::completion" => |o| { drop(o.stream.completion()); Ok(()) };
    "Stream::record" => |o| o.stream.record().map(drop);
    "Stream::record_timed" => |o| o.stream.record_timed().map(drop);
    "Stream::wait_event" => |o| o.other.wait_event(&o.event);
    // SAFETY: O1. The body enqueues nothing.
    "Stream::use_on" => |o| unsafe { o.stream.use_on(&[(o.x.region(), Access::Write)], |_| ()) };
    // SAFETY: O1. As above.
    "Stream::use_on, moving" => |o| unsafe { o.stream.use_on(&[(o.y.region(), Access::Write)], |_| ()) };
    "Stream::record, adopted" => |o| o.adopted.as_ref().map_or(Ok(()), |adopted| adopted.record().map(drop));
    "Stream::wait_event, adopted" => |o| o.adopted.as_ref().map_or(Ok(()), |adopted| adopted.wait_event(&o.event));
    "Stream::end_adoption" => |o| taken(&mut o.adopted).end_adoption().map(drop).map_err(|(error, _)| error);
    "Stream::clone and drop" => |o| { drop(o.stream.clone()); Ok(()) };
    "Stream::drop, adopted" => |o| { drop(taken(&mut o.adopted)); Ok(()) };
    "Buffer::view" => |o| o.x.view(1..3).map(drop);
    "Buffer::view_mut" => |o| o.x.view_mut(1..3).map(drop);
    "Buffer::split_at_mut" => |o| o.x.split_at_mut(2).map(drop);
    "Buffer::is_busy" => |o| { let _ = o.x.is_busy(); Ok(()) };
    "Buffer::synchronize" => |o| o.x.synchronize();
    "Buffer::free" => |o| taken(&mut o.spare).free().map(drop);
    "Buffer::drop" => |o| { drop(taken(&mut o.spare)); Ok(()) };
    "Pinned::view" => |o| o.host.view(1..3).map(drop);
    "Pinned::view_mut" => |o| o.host.view_mut(1..3).map(drop);
    "Pinned::synchronize" => |o| o.host.synchronize();
    "Pinned::is_busy" => |o| { let _ = o.host.is_busy(); Ok(()) };
    "Pinned::read" => |o| o.host.read().map(drop);
    "Pinned::write" => |o| o.host.write().map(drop);
    "Pinned::free" => |o| taken(&mut o.pin).free().map(drop);
    "Pinned::into_owner" => |o| taken(&mut o.pin).into_owner::<Vec<u32>>().map(drop).map_err(|(error, _)| error);
    "Pinned::drop" => |o| { drop(taken(&mut o.pin)); Ok(()) };
    "SharedPinned::free" => |o| taken(&mut o.shared).free().map(drop);
    "SharedPinned::into_owner" => |o| taken(&mut o.shared).into_owner::<Arc<[u32]>>().map(drop).map_err(|(error, _)| error);
    "SharedPinned::drop" => |o| { drop(taken(&mut o.shared)); Ok(()) };
    "Event::is_complete" => |o| o.event.is_complete().map(drop);
    "Event::synchronize" => |o| o.event.synchronize();
    "Event::elapsed" => |o| o.timed[0].elapsed(&o.timed[1]).map(drop);
    // SAFETY: O1. The kernel has this signature, and is not launched.
    "Module::kernel" => |o| unsafe { o.module.kernel::<(tenure::Write<u32>, u32, u32)>("bump") }.map(drop);
    "Module::clone and drop" => |o| { drop(o.module.clone()); Ok(()) };
    "Graph::instantiate" => |o| o.graph.as_ref().expect("a graph").instantiate().map(drop);
    "Graph::describe" => |o| o.graph.as_ref().expect("a graph").describe().map(drop);
    "Graph::drop" => |o| { drop(taken(&mut o.graph)); Ok(()) };
    "Executable::launch" => |o| o.executable.launch(&o.stream);
    "Executable::launch, adopted" => |o| o.adopted.as_ref().map_or(Ok(()), |adopted| o.executable.launch(adopted));
    "Executable::update" => |o| { let graph = taken(&mut o.graph); o.executable.update(&graph) };
    "Completion::wait" => |o| taken(&mut o.completion).wait();
    "Completion::is_complete" => |o| { let _ = o.completion.as_ref().map(tenure::Completion::is_complete); Ok(()) };
    "Completion::poll" => |o| super::place::poll_once(&mut taken(&mut o.completion));
    "Download::wait" => |o| taken(&mut o.download).wait().map(drop);
    "Download::poll" => |o| super::place::poll_once(&mut taken(&mut o.download)).map(drop);
    "Download::drop" => |o| { drop(taken(&mut o.download)); Ok(()) };
}
