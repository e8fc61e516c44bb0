//! Lengths, ranges, elements and durations at their limits: a typed answer, never a panic, and nothing lost.

use std::time::Duration;

use tenure::driver::Image;
use tenure::{Config, LaunchConfig, Queue, ReclaimMode, Result, Write};

use super::answer::Answer;
use super::world::World;

/// What is asked for.
pub const VALUES: &[&str] = &["nothing", "one", "a byte too many", "the largest"];

/// An element of no size.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Empty;

// SAFETY: O1. It has no bytes.
unsafe impl bytemuck::Zeroable for Empty {}
// SAFETY: O1. As above.
unsafe impl bytemuck::Pod for Empty {}

/// An element whose alignment is that of two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Wide([u64; 16]);

// SAFETY: O1. An array of integers without padding.
unsafe impl bytemuck::Zeroable for Wide {}
// SAFETY: O1. As above.
unsafe impl bytemuck::Pod for Wide {}

/// An element of a mebibyte.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Huge([u64; 1 << 17]);

// SAFETY: O1. An array of integers without padding.
unsafe impl bytemuck::Zeroable for Huge {}
// SAFETY: O1. As above.
unsafe impl bytemuck::Pod for Huge {}

/// A call that takes a number.
struct Case {
    name: &'static str,
    run: fn(&World, usize) -> Result<()>,
}

/// Their names.
pub fn names() -> Vec<&'static str> {
    CASES.iter().map(|case| case.name).collect()
}

fn elements<T: tenure::runtime::Element + std::fmt::Debug>(world: &World, len: usize) -> Result<()> {
    let stream = world.runtime.stream()?;
    let mut buffer = stream.alloc::<T>(len)?;
    stream.fill(&mut buffer, 0)?;
    let read = stream.read(&buffer)?;
    assert_eq!(read.len(), len, "all elements come back");
    let mut to = read;
    stream.read_into(&buffer, &mut to)?;
    stream.write(&to, &mut buffer)?;
    let pinned = world.runtime.wrap(to).map_err(tenure::Error::from)?;
    assert_eq!(pinned.read()?.len(), len, "a wrap has them all");
    pinned.free().map(drop)
}

fn host<T: tenure::runtime::Element>(world: &World, len: usize) -> Result<()> {
    let pinned = world.runtime.alloc_host::<T>(len)?;
    let view = pinned.read()?;
    assert!(view.as_ptr().is_aligned(), "the elements are aligned");
    assert_eq!(view.len(), len);
    Ok(())
}

fn four(world: &World) -> Result<tenure::Buffer<u32, super::world::D>> {
    world.runtime.stream()?.upload(&[1_u32; 4])
}

fn duration(steps: usize) -> Duration {
    match steps {
        0 => Duration::ZERO,
        1 => Duration::from_nanos(1),
        usize::MAX => Duration::MAX,
        _ => Duration::from_millis(300),
    }
}

/// A launch of so many elements, of which the kernel touches four at most. A grid larger than devices take is the driver's to
/// refuse, and the program's mistake.
fn launch(world: &World, n: usize) -> Result<()> {
    let (stream, mut x) = (world.runtime.stream()?, four(world)?);
    let module = world.runtime.module(Image::Source(crate::bench::SOURCE))?;
    // SAFETY: O1. The kernel has this signature, and stays within `n` elements.
    let bump = unsafe { module.kernel::<(Write<u32>, u32, u32)>("bump") }?;
    stream.launch(&bump, LaunchConfig::linear(n.min(1 << 20)), (&mut x, 1_u32, n.min(4) as u32))?;
    stream.read(&x).map(drop)
}

/// A runtime with this configuration does what it can, and goes on after what it refuses.
fn with(change: impl FnOnce(Config) -> Config) -> Result<()> {
    let world = World::with(tenure_sim::profile::Profile::NAMES[0], change(Config::default()));
    let outcome = world.runtime.stream().and_then(|stream| {
        let mut x = stream.alloc::<u32>(1 << 16)?;
        stream.write(&vec![3_u32; 1 << 16], &mut x)?;
        assert_eq!(stream.read(&x)?, vec![3; 1 << 16], "O3: what was written is read");
        drop(world.runtime.wrap(vec![1_u32; 4]).map_err(tenure::Error::from)?);
        // SAFETY: S6. The raw stream is destroyed with the device alone.
        unsafe { world.runtime.adopt(world.foreign_stream()) }?.fill(&mut x, 1)
    });
    outcome.and(ended(world))
}

/// # Panics
/// When the world has a finding.
fn ended(world: World) -> Result<()> {
    let ended = world.end(Answer::Works);
    assert_eq!(ended, Answer::Works, "the world ends as any");
    Ok(())
}

const CASES: &[Case] = &[
    Case { name: "bytes", run: elements::<u8> },
    Case { name: "words", run: elements::<u64> },
    Case { name: "elements of no size", run: |world, len| elements::<Empty>(world, len.min(5)) },
    Case { name: "over-aligned elements", run: elements::<Wide> },
    Case { name: "huge elements", run: elements::<Huge> },
    Case { name: "page-locked huge elements", run: host::<Huge> },
    Case { name: "page-locked bytes", run: host::<u8> },
    Case { name: "page-locked elements of no size", run: |world, len| host::<Empty>(world, len.min(5)) },
    Case { name: "page-locked over-aligned elements", run: host::<Wide> },
    Case { name: "view from", run: |world, at| four(world)?.view(at..).map(drop) },
    Case { name: "view to", run: |world, at| four(world)?.view(..at).map(drop) },
    Case { name: "view to, inclusive", run: |world, at| four(world)?.view(..=at).map(drop) },
    Case { name: "view backwards", run: |world, at| four(world)?.view_mut(at..0).map(drop) },
    Case { name: "split", run: |world, at| four(world)?.split_at_mut(at).map(drop) },
    Case { name: "view of a pin", run: |world, at| world.runtime.alloc_host::<u32>(4)?.view(at..).map(drop) },
    Case {
        name: "elements of a write",
        run: |world, len| {
            let stream = world.runtime.stream()?;
            stream.write(&vec![2_u32; len.min(1 << 20)], &mut four(world)?)
        },
    },
    Case {
        name: "elements of a read",
        run: |world, len| {
            let (stream, mut to) = (world.runtime.stream()?, vec![2_u32; len.min(1 << 20)]);
            stream.read_into(&four(world)?, &mut to)
        },
    },
    Case { name: "elements of a launch", run: launch },
    Case { name: "Config::staging_max", run: |_, bytes| with(|config| config.staging_max(bytes)) },
    Case { name: "Config::streams_max", run: |_, streams| with(|config| config.streams_max(streams)) },
    Case {
        name: "Config::backlog_max",
        run: |_, things| with(|config| config.backlog_max(things).reclaim(ReclaimMode::Manual)),
    },
    Case { name: "Config::adopted_max", run: |_, streams| with(|config| config.adopted_max(streams)) },
    Case {
        name: "Config::drain",
        run: |_, steps| {
            let mut config = Config::default();
            config.drain = duration(steps);
            let world = World::with(tenure_sim::profile::Profile::NAMES[0], config);
            let made = four(&world).map(drop);
            made.and(ended(world))
        },
    },
    Case {
        name: "deadline of a shutdown",
        run: |world, steps| {
            drop(world.runtime.clone().shutdown(duration(steps)));
            Ok(())
        },
    },
];

/// Runs the case of the row with the value of the column.
pub fn run(profile: &'static str, row: &'static str, column: &'static str) -> Answer {
    let world = World::new(profile);
    let value = match column {
        "nothing" => 0,
        "one" => 1,
        "a byte too many" => 5,
        "the largest" => usize::MAX,
        other => unreachable!("no value {other}"),
    };
    let case = CASES.iter().find(|case| case.name == row).expect("a listed case");
    let answer = Answer::of(&(case.run)(&world, value));
    world.end(answer)
}
