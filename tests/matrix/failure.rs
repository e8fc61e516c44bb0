//! Every driver call, and how it fails: one program that makes each of them goes through, or ends with a typed error;
//! nothing is used after it was given back, and the runtime shuts down.

use std::sync::Arc;
use std::time::Duration;

use tenure::driver::{Call, ErrorKind, Image};
use tenure::{Config, LaunchConfig, Queue, ReclaimMode, Result, Runtime, Write};

use tenure_sim::code::Code;
use tenure_sim::fault::Fault;

use crate::bench::Bench as _;

use super::answer::Answer;
use super::world::{D, World};

/// How a call fails.
pub const WAYS: &[&str] = &[
    "the first, nothing done",
    "the first, after its effect",
    "the second, nothing done",
    "the second, after its effect",
    "every one",
    "the first, with its undoing",
    "the device is lost with it",
    "each blocks for a while",
    "succeeds with null",
    "leaves a latched error",
];

/// The calls that a program through the typed interface makes, each with the call that undoes it.
const CALLS: &[(Call, Option<Call>)] = &[
    (Call::CaptureBegin, Some(Call::CaptureEnd)),
    (Call::CaptureEnd, Some(Call::StreamDestroy)),
    (Call::CaptureStatus, None),
    (Call::Copy, None),
    (Call::EventCreate, Some(Call::EventDestroy)),
    (Call::EventDestroy, None),
    (Call::EventElapsed, None),
    (Call::EventQuery, None),
    (Call::EventRecord, Some(Call::EventDestroy)),
    (Call::EventSynchronize, None),
    (Call::ExchangeCaptureMode, Some(Call::ExchangeCaptureMode)),
    (Call::ExecutableDestroy, None),
    (Call::Fill, None),
    (Call::Free, None),
    (Call::FreeAsync, Some(Call::Free)),
    (Call::Function, None),
    (Call::GraphDescribe, None),
    (Call::GraphDestroy, None),
    (Call::GraphInstantiate, Some(Call::ExecutableDestroy)),
    (Call::GraphLaunch, None),
    (Call::GraphUpdate, None),
    (Call::HostAlloc, Some(Call::HostFree)),
    (Call::HostDeviceAddress, Some(Call::HostUnregister)),
    (Call::HostFree, None),
    (Call::HostIsRegistered, None),
    (Call::HostRegister, Some(Call::HostUnregister)),
    (Call::HostUnregister, None),
    (Call::Launch, None),
    (Call::LaunchHostFunction, None),
    (Call::Malloc, Some(Call::Free)),
    (Call::MallocAsync, Some(Call::FreeAsync)),
    (Call::ModuleLoad, Some(Call::ModuleUnload)),
    (Call::ModuleUnload, None),
    (Call::StreamCreate, Some(Call::StreamDestroy)),
    (Call::StreamDestroy, None),
    (Call::StreamQuery, None),
    (Call::StreamSynchronize, None),
    (Call::StreamWaitEvent, None),
];

/// Those that give an address.
const ADDRESSES: [Call; 4] = [Call::HostAlloc, Call::HostDeviceAddress, Call::Malloc, Call::MallocAsync];

/// Their names.
pub fn calls() -> Vec<&'static str> {
    CALLS.iter().map(|(call, _)| call.name()).collect()
}

/// Lets the call of the row fail in the way of the column under the program.
pub fn run(profile: &'static str, row: &'static str, column: &'static str) -> Answer {
    let world = World::with(profile, Config::default().reclaim(ReclaimMode::Manual));
    let &(call, undoing) = CALLS.iter().find(|(call, _)| call.name() == row).expect("a listed call");
    let rules = &world.tap.rules;
    match column {
        "the first, nothing done" => rules.fail(call, 1, ErrorKind::Unknown),
        "the first, after its effect" => rules.fail_after(call, 1, ErrorKind::Unknown),
        "the second, nothing done" => rules.fail(call, 2, ErrorKind::Unknown),
        "the second, after its effect" => rules.fail_after(call, 2, ErrorKind::Unknown),
        "every one" => rules.fail_always(call, ErrorKind::Unknown),
        "the first, with its undoing" => {
            rules.fail(call, 1, ErrorKind::Unknown);
            if let Some(undoing) = undoing {
                rules.fail_always(undoing, ErrorKind::Unknown);
            }
        }
        "the device is lost with it" => rules.fail(call, 1, ErrorKind::DeviceLost),
        "each blocks for a while" => rules.delay(call, Duration::from_millis(20)),
        // Of calls that give an address; elsewhere nothing is different: handles are the driver's own, and never null.
        "succeeds with null" if ADDRESSES.contains(&call) => {
            world.bench.driver().add_fault(Fault::Null { call: call.into(), nth: 1 });
        }
        "succeeds with null" => {}
        // Nothing that fails may be told of it.
        "leaves a latched error" => {
            world.bench.driver().add_fault(Fault::LeaveError { call: call.into(), nth: 1, code: Code::INVALID_VALUE });
        }
        other => unreachable!("no way {other}"),
    }
    // What a call that failed after its effect made is nobody's, and what may be in use is kept: no fault of the core's.
    let mut world = world;
    world.leaks_allowed = true;
    if matches!(call, Call::CaptureBegin | Call::CaptureEnd) {
        // A capture that its end leaves open, or that nobody knows to be open, ends with its stream: that is all the driver
        // offers.
        world.bench.allow(&["C1", "C7"]);
    }
    let runtime = world.runtime.clone();
    let mut outcomes = program(&runtime);
    outcomes.push(adopted(&world, &runtime));
    drop(runtime);
    world.tap.rules.clear();
    // A program whose every step is refused has shown nothing; which are is data in no table, but some must go.
    let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).next();
    let answer = match refused {
        None => Answer::Works,
        Some(error) => Answer::Refused(super::answer::word(error)),
    };
    world.end(answer)
}

/// Steps that make every driver call, each by itself, so that one that fails leaves the others to be tried.
fn program(runtime: &Runtime<D>) -> Vec<Result<()>> {
    vec![
        streams(runtime),
        launches(runtime),
        host_memory(runtime),
        host_allocation(runtime),
        events(runtime),
        graphs(runtime),
        scopes(runtime),
        {
            runtime.poll();
            runtime.trim();
            Ok(())
        },
    ]
}

fn streams(runtime: &Runtime<D>) -> Result<()> {
    let (a, b) = (runtime.stream()?, runtime.stream()?);
    let mut x = a.upload(&[1_u32; 4])?;
    b.fill(&mut x, 0)?;
    a.fill(&mut x, 0xff)?;
    assert_eq!(b.read(&x)?, [u32::MAX; 4], "O1, O3: a read that works gives what was written");
    for byte in [0, 1] {
        // Each question is about work that nobody has waited for, so that the driver is asked each time.
        a.fill(&mut x, byte)?;
        a.is_idle()?;
    }
    drop(x);
    runtime.poll();
    Ok(())
}

/// A stream of other code, which is asked whether it captures.
fn adopted(world: &World, runtime: &Runtime<D>) -> Result<()> {
    let raw = world.foreign_stream();
    // SAFETY: S6. The raw stream is destroyed with the device alone.
    let adopted = unsafe { runtime.adopt(raw) }?;
    let stream = runtime.stream()?;
    let mut x = stream.upload(&[1_u32; 4])?;
    adopted.fill(&mut x, 0xff)?;
    assert_eq!(stream.read(&x)?, [u32::MAX; 4], "O1: work on an adopted stream comes before what follows it");
    adopted.end_adoption().map(drop).map_err(|(error, _)| error)
}

fn launches(runtime: &Runtime<D>) -> Result<()> {
    let module = runtime.module(Image::Source(crate::bench::SOURCE))?;
    // SAFETY: O1. The kernel has this signature, and stays within `n` elements.
    let bump = unsafe { module.kernel::<(Write<u32>, u32, u32)>("bump") }?;
    let (a, b) = (runtime.stream()?, runtime.stream()?);
    let mut x = a.upload(&[1_u32; 4])?;
    for stream in [&a, &b, &a] {
        stream.launch(&bump, LaunchConfig::linear(4), (&mut x, 1_u32, 4_u32))?;
    }
    assert_eq!(a.read(&x)?, [4; 4], "O1: launches that were accepted have run, each once");
    x.free().map(drop)
}

fn host_memory(runtime: &Runtime<D>) -> Result<()> {
    let stream = runtime.stream()?;
    let mut pinned = runtime.wrap(vec![1_u32; 4]).map_err(tenure::Error::from)?;
    let shared = runtime.wrap_shared(Arc::from(vec![2_u32; 4])).map_err(tenure::Error::from)?;
    stream.copy(&*shared, &mut pinned)?;
    assert_eq!(&*pinned.read()?, [2; 4], "O3: a view that opens shows what was copied");
    drop(shared);
    runtime.poll();
    let memory = pinned.into_owner::<Vec<u32>>().map_err(|(error, _)| error)?;
    assert_eq!(memory, [2; 4], "P4: the owner comes back as it was left");
    Ok(())
}

fn host_allocation(runtime: &Runtime<D>) -> Result<()> {
    let stream = runtime.stream()?;
    let mut host = runtime.alloc_host::<u32>(4)?;
    stream.fill(&mut host, 0xff)?;
    assert_eq!(&*host.read()?, [u32::MAX; 4], "O3: a view that opens shows what was filled");
    host.free().map(drop)
}

fn events(runtime: &Runtime<D>) -> Result<()> {
    let (a, b) = (runtime.stream()?, runtime.stream()?);
    let mut x = a.upload(&[1_u32; 4])?;
    let (before, after) = (a.record_timed()?, {
        a.fill(&mut x, 1)?;
        a.record_timed()?
    });
    b.wait_event(&after)?;
    after.is_complete()?;
    for byte in [2, 3] {
        // Each wait is for work that nobody has asked about, so that the driver is asked each time.
        a.fill(&mut x, byte)?;
        a.record()?.synchronize()?;
    }
    after.synchronize()?;
    before.elapsed(&after)?;
    Ok(())
}

fn graphs(runtime: &Runtime<D>) -> Result<()> {
    let stream = runtime.stream()?;
    let mut x = stream.upload(&[1_u32; 4])?;
    let graph = runtime.capture(|capture| {
        let fork = capture.fork()?;
        fork.fill(&mut x, 3)?;
        fork.join(capture)
    })?;
    graph.describe()?;
    let mut executable = graph.instantiate()?;
    executable.launch(&stream)?;
    executable.update(&graph)?;
    executable.launch(&stream)?;
    drop((graph, executable));
    assert_eq!(stream.read(&x)?, [0x0303_0303; 4], "C5: a replay that was accepted has run");
    Ok(())
}

fn scopes(runtime: &Runtime<D>) -> Result<()> {
    let stream = runtime.stream()?;
    let (mut first, mut second) = ([1_u32; 4], [2_u32; 4]);
    runtime.scope(|scope| {
        let mut pinned = scope.wrap(&mut first)?;
        let other = scope.wrap(&mut second)?;
        stream.copy(&other, &mut pinned)
    })?;
    assert_eq!(first, [2; 4], "O3: a scope that ends has waited");
    Ok(())
}
