//! The operations that are measured: each a closure that does its operation `n` times, over the null driver.
//!
//! The same cases are timed by criterion and counted in instructions, so that a change seen in one can be looked for in
//! the other.

use std::hint::black_box;
use std::ptr::NonNull;

use tenure::{Freed, Graph, Pinned, Queue, Stream};

use crate::bed::{Bed, CONFIG, Floats, expect, launch_sixteen, launch_three, raw_sixteen, raw_three};
use crate::null::Null;

/// Does its operation so often.
pub type Case = Box<dyn FnMut(u64)>;

/// The name of a case, and what makes it.
pub type Named = (&'static str, fn() -> Case);

/// All cases, by the bench that they belong to.
pub const ALL: &[(&str, &[Named])] = &[
    (
        "launch_path",
        &[
            ("raw_none", raw_none),
            ("no_arguments", no_arguments),
            ("raw_three", raw_three_and_four),
            ("three_and_four", three_and_four),
            ("raw_sixteen", raw_all_sixteen),
            ("sixteen", sixteen),
        ],
    ),
    ("ownership", &[("shared_readers", shared_readers), ("hand_over", hand_over)]),
    ("stream", &[("lease_and_return", lease_and_return)]),
    ("registration", &[("wrap_live", wrap_live), ("look_up", look_up), ("register_and_free", register_and_free)]),
    ("reclaim", &[("drop_busy", drop_busy), ("retire_and_drain", retire_and_drain)]),
    ("capture", &[("begin_and_end", begin_and_end), ("launch_30", launch_30), ("launch_300", launch_300)]),
];

/// A bed for the rest of the process: cases outlive the function that makes them.
fn bed() -> &'static Bed {
    Box::leak(Box::new(Bed::new(Null::default())))
}

/// The driver's call of a launch without arguments, and nothing else.
pub fn raw_none() -> Case {
    let bed = bed();
    Box::new(move |n| (0..n).for_each(|_| bed.raw_launch(black_box(&[]))))
}

/// The driver's call of a launch of three buffers and four scalars, packed by hand.
pub fn raw_three_and_four() -> Case {
    let bed = bed();
    Box::new(move |n| (0..n).for_each(|_| raw_three(bed, black_box(&[1, 2, 3]))))
}

/// The driver's call of a launch of sixteen buffers, packed by hand.
pub fn raw_all_sixteen() -> Case {
    let bed = bed();
    Box::new(move |n| (0..n).for_each(|_| raw_sixteen(bed, black_box(&[7; 16]))))
}

/// A launch without arguments.
pub fn no_arguments() -> Case {
    let bed = bed();
    let stream = bed.stream();
    Box::new(move |n| (0..n).for_each(|_| expect(stream.launch(&bed.empty, CONFIG, ()))))
}

/// A launch of three buffers and four scalars.
pub fn three_and_four() -> Case {
    let bed = bed();
    let stream = bed.stream();
    let mut buffers = bed.buffers(&stream);
    Box::new(move |n| (0..n).for_each(|_| launch_three(bed, &stream, &mut buffers)))
}

/// A launch of sixteen buffers.
pub fn sixteen() -> Case {
    let bed = bed();
    let stream = bed.stream();
    let buffers = bed.buffers(&stream);
    Box::new(move |n| (0..n).for_each(|_| launch_sixteen(bed, &stream, &buffers)))
}

/// A launch on one of two streams that both read one buffer.
pub fn shared_readers() -> Case {
    let bed = bed();
    let streams = [bed.stream(), bed.stream()];
    let [buffer] = bed.buffers::<1>(&streams[0]);
    Box::new(move |n| {
        for turn in 0..n {
            expect(streams[(turn % 2) as usize].launch(&bed.one, CONFIG, (&buffer,)));
        }
    })
}

/// A launch that writes a buffer which the other of two streams wrote last: an event's record and a wait.
pub fn hand_over() -> Case {
    let bed = bed();
    let streams = [bed.stream(), bed.stream()];
    let [mut buffer] = bed.buffers::<1>(&streams[0]);
    Box::new(move |n| {
        for turn in 0..n {
            expect(streams[(turn % 2) as usize].launch(&bed.write, CONFIG, (&mut buffer,)));
        }
    })
}

/// A lease of a pooled stream, and its end.
pub fn lease_and_return() -> Case {
    let bed = bed();
    Box::new(move |n| (0..n).for_each(|_| drop(black_box(bed.stream()))))
}

/// A wrap of `bytes` at `memory`.
fn wrap(bed: &Bed, memory: NonNull<u8>, bytes: usize) -> Pinned<u8, Null> {
    // SAFETY: the memory of every caller is leaked, so it stays; nothing touches it, and the null driver does not
    // either.
    expect(unsafe { bed.runtime.wrap_raw(memory, bytes) })
}

fn memory(bytes: usize) -> NonNull<u8> {
    NonNull::from(vec![0_u8; bytes].leak()).cast()
}

/// A wrap of a range that is wrapped already, and its end.
pub fn wrap_live() -> Case {
    let bed = bed();
    let memory = memory(4096);
    let kept = wrap(bed, memory, 4096);
    Box::new(move |n| {
        black_box(&kept);
        (0..n).for_each(|_| drop(black_box(wrap(bed, memory, 4096))));
    })
}

/// Asking whether an address is registered, among a thousand ranges.
pub fn look_up() -> Case {
    let bed = bed();
    let memory = memory(4096 * 1000);
    // SAFETY: each offset is inside the one allocation.
    let starts: Vec<_> = (0..1000).map(|index| unsafe { memory.add(4096 * index) }).collect();
    let kept: Vec<_> = starts.iter().map(|start| wrap(bed, *start, 4096)).collect();
    Box::new(move |n| {
        black_box(&kept);
        for turn in 0..n {
            black_box(bed.runtime.is_pinned(black_box(starts[turn as usize % 1000].as_ptr())));
        }
    })
}

/// A first wrap of a range, and its explicit free.
pub fn register_and_free() -> Case {
    let bed = bed();
    let memory = memory(4096);
    Box::new(move |n| (0..n).for_each(|_| assert_eq!(expect(wrap(bed, memory, 4096).free()), Freed::Now)))
}

/// A buffer of `stream` that its work still uses.
fn used(bed: &Bed, stream: &Stream<Null>) -> Floats {
    let mut buffer = expect(stream.alloc(16));
    expect(stream.launch(&bed.write, CONFIG, (&mut buffer,)));
    buffer
}

/// An allocation, a launch that uses it, and the drop of it while that runs; nothing is released.
pub fn drop_busy() -> Case {
    let bed = bed();
    let stream = bed.stream();
    bed.driver.set_busy(true);
    Box::new(move |n| (0..n).for_each(|_| drop(used(bed, &stream))))
}

/// As `drop_busy`, and the release of it, by turns that take a thousand each.
pub fn retire_and_drain() -> Case {
    let bed = bed();
    let stream = bed.stream();
    Box::new(move |n| {
        for turn in 1..=n {
            drop(used(bed, &stream));
            if turn % 1000 == 0 || turn == n {
                assert_eq!(bed.runtime.poll(), 0, "all that was retired has completed");
            }
        }
    })
}

/// A capture of nothing; its graph is released.
pub fn begin_and_end() -> Case {
    let bed = bed();
    Box::new(move |n| {
        for _ in 0..n {
            drop(expect(bed.runtime.capture(|_| Ok(()))));
            bed.runtime.poll();
        }
    })
}

fn graph_of(bed: &Bed, buffers: &mut [Floats]) -> Graph<Null> {
    expect(
        bed.runtime
            .capture(|capture| buffers.iter_mut().try_for_each(|buffer| capture.launch(&bed.write, CONFIG, (buffer,)))),
    )
}

fn launch_graph(buffers: usize) -> Case {
    let bed = bed();
    let stream = bed.stream();
    let mut buffers: Vec<_> = (0..buffers).map(|_| expect(stream.alloc(16))).collect();
    let executable = expect(graph_of(bed, &mut buffers).instantiate());
    expect(executable.launch(&stream));
    Box::new(move |n| {
        black_box(&buffers);
        (0..n).for_each(|_| expect(executable.launch(&stream)));
    })
}

/// A launch of a graph that uses 30 buffers.
pub fn launch_30() -> Case {
    launch_graph(30)
}

/// A launch of a graph that uses 300 buffers.
pub fn launch_300() -> Case {
    launch_graph(300)
}
