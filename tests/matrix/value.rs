//! Lengths, ranges, elements and durations at their limits: a typed answer, never a panic, and nothing lost.

use std::time::Duration;

use tenure::{Queue, Result};

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

const CASES: &[Case] = &[
    Case { name: "bytes", run: elements::<u8> },
    Case { name: "words", run: elements::<u64> },
    Case { name: "elements of no size", run: |world, len| elements::<Empty>(world, len.min(5)) },
    Case { name: "over-aligned elements", run: elements::<Wide> },
    Case { name: "page-locked bytes", run: host::<u8> },
    Case { name: "page-locked elements of no size", run: |world, len| host::<Empty>(world, len.min(5)) },
    Case { name: "page-locked over-aligned elements", run: host::<Wide> },
    Case { name: "view from", run: |world, at| four(world)?.view(at..).map(drop) },
    Case { name: "view to", run: |world, at| four(world)?.view(..at).map(drop) },
    Case { name: "view to, inclusive", run: |world, at| four(world)?.view(..=at).map(drop) },
    Case { name: "view backwards", run: |world, at| four(world)?.view_mut(at..0).map(drop) },
    Case { name: "split", run: |world, at| four(world)?.split_at_mut(at).map(drop) },
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
