//! Every callback of a user's, and what it may do: the runtime goes on, and ends in time.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::task::Context;
use std::time::Duration;

use tenure::driver::Image;
use tenure::{Completion, LaunchConfig, Queue, Runtime};

use crate::bench::Bench;
use crate::faulty::OnPurpose;
use crate::rig::{Brake, deadline};

use super::answer::Answer;
use super::place::{Errand, Owner, waker};
use super::world::{D, World};

/// Code of a user's that the runtime runs.
pub const CALLBACKS: &[&str] =
    &["owner's drop", "waker", "capture body", "scope body", "use_on body", "fork body", "kernel closure"];

/// What it does.
pub const DEEDS: &[&str] = &[
    "panics",
    "blocks for a while",
    "parks and eats tokens",
    "calls back",
    "polls the runtime",
    "shuts down",
    "drops the last handle",
    "wakes other work",
    "is forgotten",
];

/// Runs the deed of the column in the callback of the row; then a second round of the same callback without a deed must
/// still come.
pub fn run(profile: &'static str, row: &'static str, column: &'static str) -> Answer {
    let mut world = World::new(profile);
    world.leaks_allowed = ["shuts down", FORGOTTEN].contains(&column);
    if column == FORGOTTEN {
        forget(&world, row);
        let answer = goes_on(&world);
        return world.end(answer);
    }
    let (told, done) = channel();
    let mut handle = Some(world.runtime.clone());
    let stream = world.runtime.stream().expect("a stream");
    let deed = deed(column, handle.take().expect("a handle"), stream);
    let errand = Errand::of(move || {
        struct Told(std::sync::mpsc::Sender<()>);
        impl Drop for Told {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let _told = Told(told);
        deed();
    });
    // The future that waits, if one does: it tells nobody once it is gone.
    let outcome = catch_unwind(AssertUnwindSafe(|| call_back(&world, row, &errand)));
    drop(errand);
    if done.recv_timeout(deadline() / 4).is_err() {
        return Answer::Hung("the callback did not come, or does not return".to_owned());
    }
    if let Err(panic) = outcome
        && !panic.is::<OnPurpose>()
    {
        return Answer::Wrong(format!("panic: {}", super::watch::words(&*panic)));
    }
    if column == "shuts down" {
        return world.end(Answer::Works);
    }
    let answer = goes_on(&world);
    match world.end(answer) {
        // The program's mistake, which the simulator tells and which costs it the device.
        Answer::Wrong(finding) if row == KERNEL && finding.contains("panicked") => {
            Answer::Refused("KernelPanicked".to_owned())
        }
        answer => answer,
    }
}

/// The column whose deed is that nothing is ever let go.
const FORGOTTEN: &str = "is forgotten";
/// The row of what a simulated device runs as a kernel.
const KERNEL: &str = "kernel closure";

/// Forgets what the callback belongs to, or is given: what it would have ended is leaked, and no more.
fn forget(world: &World, callback: &str) {
    let runtime = &world.runtime;
    let errand = Errand::of(|| ());
    match callback {
        "owner's drop" => std::mem::forget(runtime.wrap(Owner::new(errand)).expect("a wrap")),
        "waker" => {
            let stream = runtime.stream().expect("a stream");
            let brake = Brake::new(&world.bench);
            brake.hold(&stream);
            let mut completion = stream.completion();
            let waker = waker(errand);
            assert!(Pin::new(&mut completion).poll(&mut Context::from_waker(&waker)).is_pending(), "it stands still");
            std::mem::forget((completion, waker));
            brake.release();
        }
        "capture body" => {
            let graph = runtime.capture(|_| Ok(()));
            std::mem::forget(graph);
        }
        "fork body" => {
            // A fork that is never joined is joined at the end of its capture.
            let graph = runtime.capture(|capture| {
                std::mem::forget(capture.fork()?);
                Ok(())
            });
            drop(graph);
        }
        "scope body" => {
            let mut memory = [1_u32; 4];
            let ended = runtime.scope(|scope| {
                std::mem::forget(scope.wrap(&mut memory)?);
                Ok(())
            });
            assert_eq!(ended, Ok(()), "P4: the scope ends what was forgotten");
            assert!(!runtime.is_pinned(memory.as_ptr()), "P4: the memory is the program's again");
        }
        "use_on body" => {
            let stream = runtime.stream().expect("a stream");
            // SAFETY: O1. The body enqueues nothing on the stream itself.
            drop(unsafe { stream.use_on(&[], |_| std::mem::forget(stream.clone())) });
        }
        KERNEL => {
            let module = runtime.module(Image::Source(crate::bench::SOURCE)).expect("the kernels load");
            // SAFETY: O1. The kernel has this signature, and is not launched.
            let kernel = unsafe { module.kernel::<(tenure::Write<u32>, u32, u32)>("bump") }.expect("a kernel");
            std::mem::forget((kernel, module));
        }
        other => unreachable!("no callback {other}"),
    }
}

fn deed(name: &'static str, runtime: Runtime<D>, stream: tenure::Stream<D>) -> Box<dyn FnOnce() + Send> {
    match name {
        "panics" => Box::new(|| panic_any(OnPurpose)),
        "blocks for a while" => Box::new(|| std::thread::sleep(Duration::from_millis(100))),
        "parks and eats tokens" => Box::new(|| {
            for _ in 0..3 {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }),
        "calls back" => Box::new(move || {
            // Whatever the answer: it comes.
            let _ = stream.upload(&[1_u32; 4]).and_then(|buffer| stream.read(&buffer));
            let _ = runtime.wrap(vec![1_u32; 4]);
        }),
        "polls the runtime" => Box::new(move || {
            runtime.poll();
            runtime.trim();
        }),
        "shuts down" => Box::new(move || {
            let _ = runtime.shutdown(Duration::from_millis(200));
        }),
        "drops the last handle" => Box::new(move || drop((stream, runtime))),
        "wakes other work" => Box::new(move || {
            let _ = stream.alloc::<u32>(4);
            drop(stream);
            drop(runtime.wrap(vec![1_u32; 4]));
        }),
        other => unreachable!("no deed {other}"),
    }
}

fn call_back(world: &World, callback: &str, errand: &Errand) -> Option<Completion<D>> {
    let runtime = &world.runtime;
    match callback {
        "owner's drop" => drop(runtime.wrap(Owner::new(errand.clone())).expect("a wrap")),
        "waker" => {
            let stream = runtime.stream().expect("a stream");
            let brake = Brake::new(&world.bench);
            brake.hold(&stream);
            let mut buffer = stream.alloc::<u32>(4).expect("a buffer");
            stream.fill(&mut buffer, 1).expect("a fill");
            let mut completion = stream.completion();
            let waker = waker(errand.clone());
            assert!(Pin::new(&mut completion).poll(&mut Context::from_waker(&waker)).is_pending(), "it stands still");
            brake.release();
            return Some(completion);
        }
        "capture body" => drop(runtime.capture(|_| {
            errand.run();
            Ok(())
        })),
        "fork body" => drop(runtime.capture(|capture| {
            let fork = capture.fork()?;
            errand.run();
            fork.join(capture)
        })),
        "scope body" => drop(runtime.scope(|_| {
            errand.run();
            Ok(())
        })),
        "use_on body" => {
            let stream = runtime.stream().expect("a stream");
            // SAFETY: O1. The body enqueues nothing on the stream itself.
            drop(unsafe { stream.use_on(&[], |_| errand.run()) });
        }
        KERNEL => run_kernel(world, errand),
        other => unreachable!("no callback {other}"),
    }
    None
}

/// Lets the device run the errand as a kernel.
fn run_kernel(world: &World, errand: &Errand) {
    let errand = errand.clone();
    world.bench.driver().kernel("errand", move |_: tenure_sim::kernel::Write<'_, u32>| errand.run());
    let module = world.runtime.module(Image::Source(crate::bench::SOURCE)).expect("the kernels load");
    // SAFETY: O1. The kernel has this signature, and touches nothing.
    let kernel = unsafe { module.kernel::<(tenure::Write<u32>,)>("errand") }.expect("a kernel");
    let stream = world.runtime.stream().expect("a stream");
    let mut buffer = stream.alloc::<u32>(4).expect("a buffer");
    stream.launch(&kernel, LaunchConfig::linear(1), (&mut buffer,)).expect("a launch");
    drop(stream.synchronize());
}

/// The runtime still releases, wakes, and takes work.
fn goes_on(world: &World) -> Answer {
    let (told, done) = channel();
    let woken = told.clone();
    drop(world.runtime.wrap(Owner::new(Errand::of(move || _ = told.send("released")))));
    let stream = match world.runtime.stream() {
        Ok(stream) => stream,
        Err(error) => return Answer::Wrong(format!("no stream after the callback: {error}")),
    };
    let brake = Brake::new(&world.bench);
    brake.hold(&stream);
    let mut completion = stream.completion();
    let waker = waker(Errand::of(move || _ = woken.send("woken")));
    let _ = Pin::new(&mut completion).poll(&mut Context::from_waker(&waker));
    brake.release();
    drop(waker);
    for _ in 0..2 {
        if done.recv_timeout(deadline() / 6).is_err() {
            return Answer::Wrong("R3: after the callback the worker released or woke nothing".to_owned());
        }
    }
    Answer::Works
}
