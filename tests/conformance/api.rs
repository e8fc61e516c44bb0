//! The typed interface: lengths, views, runtimes that do not mix, events.

use tenure::driver::Call;
use tenure::{Error, Misuse, Queue, Readable};

use super::list_cases;
use crate::bench::Bench;
use crate::rig::{Brake, Rig};

list_cases!("api": raw [] contract [
    lengths_must_agree,
    views_are_parts,
    runtimes_do_not_mix,
    events_order_and_measure,
    one_code_serves_streams_and_captures,
    contents_survive_every_kind_of_copy,
    figures_add_up,
    a_huge_length_is_refused,
    elements_of_no_size_are_counted,
    elements_of_a_wide_alignment_lie_on_it,
    ranges_at_the_limits_are_refused,
]);

fn lengths_must_agree<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let (x, mut y) = (rig.four(&stream, 1), stream.alloc::<u32>(3).expect("an allocation"));
    let wrong = Err(Error::Misuse(Misuse::LengthMismatch { expected: 4, actual: 3 }));
    assert_eq!(stream.copy(&x, &mut y), wrong, "a copy of four to three");
    assert_eq!(stream.write(&[1, 2, 3, 4], &mut y), wrong, "a write of four to three");
    assert_eq!(stream.read_into(&x, &mut [0; 3]), wrong, "a read of four to three");
    assert!(matches!(x.view(2..5), Err(Error::Misuse(Misuse::LengthMismatch { .. }))), "a part past the end");
    #[allow(clippy::reversed_empty_ranges, reason = "the point of the case")]
    let backwards = 3..2;
    assert!(matches!(x.view(backwards), Err(Error::Misuse(Misuse::LengthMismatch { .. }))), "a part that ends first");
    assert!(y.split_at_mut(4).is_err(), "a split past the end");
    drop((x, y, stream));
    rig.close();
}

fn views_are_parts<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = stream.upload(&[0_u32, 1, 2, 3, 4, 5]).expect("an upload");
    {
        let (mut left, mut right) = x.split_at_mut(2).expect("a split");
        rig.bump(&stream, &mut left, 10).expect("a launch on the left");
        rig.bump(&stream, &mut right, 100).expect("a launch on the right");
    }
    rig.bump(&stream, &mut x.view_mut(1..=2).expect("a part"), 1000).expect("a launch on the middle");
    let part = x.view(1..).expect("a part");
    assert_eq!(part.element_count(), 5, "from the second on");
    assert_eq!(stream.read(&part).expect("a read"), [1011, 1102, 103, 104, 105], "each where it belongs");
    drop((x, stream));
    rig.close();
}

fn runtimes_do_not_mix<B: Bench>(bench: &B) {
    let (rig, other) = (Rig::new(bench), Rig::new(bench));
    let (stream, theirs) = (rig.stream(), other.stream());
    let mut x = rig.four(&stream, 1);
    let mut pinned = rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap");
    let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
    let mut executable = graph.instantiate().expect("an executable");
    let mut own = other.four(&theirs, 1);
    let their_graph = other.runtime.capture(|capture| other.bump(capture, &mut own, 1)).expect("a graph");
    let event = stream.record().expect("an event");
    let foreign = Err(Error::Misuse(Misuse::ForeignRuntime));
    assert_eq!(other.bump(&theirs, &mut x, 1), foreign, "a buffer");
    assert_eq!(other.bump(&theirs, &mut pinned, 1), foreign, "a pin");
    assert_eq!(executable.launch(&theirs), foreign, "an executable");
    assert_eq!(executable.update(&their_graph), foreign, "a graph");
    assert_eq!(theirs.wait_event(&event), foreign, "an event");
    let mixed = other.runtime.capture(|capture| other.bump(capture, &mut x, 1)).map(drop);
    assert_eq!(mixed, foreign, "a buffer in a capture");
    drop((theirs, own, their_graph, executable, graph, event, x, pinned, stream));
    rig.close();
    other.close();
}

fn events_order_and_measure<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (start, mut x) = (a.record_timed().expect("an event"), rig.four(&a, 1));
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 1).expect("a launch");
    let end = a.record_timed().expect("an event");
    b.wait_event(&end).expect("an edge");
    assert!(!end.is_complete().expect("a question"), "held");
    assert!(!b.is_idle().expect("a question"), "O1: and what comes after it too");
    brake.release();
    end.synchronize().expect("a wait");
    assert!(end.is_complete().expect("a question"), "after the wait");
    b.synchronize().expect("a wait");
    start.elapsed(&end).expect("a time");
    drop((a, b, x, start, end));
    rig.close();
}

fn one_code_serves_streams_and_captures<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    rig.bump(&stream, &mut x, 1).expect("a launch on a stream");
    let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 10)).expect("a graph");
    graph.instantiate().expect("an executable").launch(&stream).expect("a launch");
    assert_eq!(stream.read(&x).expect("a read"), [12; 4], "both ran");
    drop((graph, x, stream));
    rig.close();
}

fn contents_survive_every_kind_of_copy<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let data: Vec<u32> = (0..1000).collect();
    let x = a.upload(&data).expect("an upload");
    let mut y = b.alloc(1000).expect("an allocation");
    b.copy(&x, &mut y).expect("a copy on another stream");
    let mut pinned = rig.runtime.wrap(vec![0_u32; 1000]).expect("a wrap");
    a.copy(&y, &mut pinned).expect("a copy to the host");
    let mut z = b.alloc(1000).expect("an allocation");
    b.copy(&pinned, &mut z).expect("a copy from the host");
    let mut back = vec![0; 1000];
    a.read_into(&z, &mut back).expect("a read");
    assert_eq!(back, data, "O1: each copy came after the one before");
    assert_eq!(pinned.read().expect("a view")[..], data[..], "O3: the host sees it");
    drop((a, b, x, y, z, pinned));
    rig.close();
}

fn figures_add_up<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    for _ in 0..5 {
        rig.bump(&stream, &mut x, 1).expect("a launch");
    }
    drop(rig.runtime.wrap(vec![1_u32; 4]).expect("a wrap"));
    stream.synchronize().expect("a wait");
    drop(x);
    rig.drain();
    let stats = rig.runtime.stats();
    assert_eq!((stats.streams.made, stats.streams.leased), (1, 1), "one stream: {stats:?}");
    assert!(stats.streams.covered >= 5, "five launches needed nothing but their gate: {stats:?}");
    assert_eq!((stats.pins_made, stats.pins_released, stats.pins_live), (1, 1, 0), "one pin: {stats:?}");
    assert_eq!((stats.retired, stats.retired_pending), (stats.released, 0), "all was released: {stats:?}");
    drop(stream);
    rig.close();
}

fn a_huge_length_is_refused<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mark = rig.tap.log.mark();
    let huge = Err(Error::Misuse(Misuse::SizeOverflow));
    assert_eq!(stream.alloc::<u64>(usize::MAX / 4).map(drop), huge, "on the device");
    assert_eq!(stream.alloc::<u8>(usize::MAX).map(drop), huge, "more than the host could read");
    assert_eq!(stream.alloc::<Wide>(isize::MAX as usize / size_of::<Wide>() + 1).map(drop), huge, "of wide elements");
    assert_eq!(rig.runtime.alloc_host::<u64>(usize::MAX / 4).map(drop), huge, "on the host");
    assert_eq!(rig.tap.log.since(mark), [], "before the driver sees it");
    drop(stream);
    rig.close();
}

/// What comes back of nothing: elements without bytes have a number all the same.
fn elements_of_no_size_are_counted<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mark = rig.tap.log.mark();
    let (x, mut y) = (stream.upload(&[(); 5]).expect("an upload"), stream.alloc::<()>(3).expect("an allocation"));
    assert_eq!((x.len(), y.len()), (5, 3));
    assert_eq!(stream.read(&x).expect("a read").len(), 5, "a read");
    assert_eq!(stream.download(&x).expect("a download").wait().expect("its end").len(), 5, "a download");
    stream.read_into(&x, &mut [(); 5]).expect("a read into as many");
    let wrong = Err(Error::Misuse(Misuse::LengthMismatch { expected: 5, actual: 3 }));
    assert_eq!(stream.read_into(&x, &mut [(); 3]), wrong, "a read into fewer");
    assert_eq!(stream.copy(&x, &mut y), wrong, "a copy to fewer");
    assert_eq!(stream.write(&[(); 5], &mut y), wrong, "a write of more");
    stream.copy(&x.view(1..4).expect("a part"), &mut y).expect("a copy of as many");
    stream.fill(&mut y, 1).expect("a fill");
    assert_eq!(x.view(1..4).expect("a part").len(), 3, "a part");
    assert!(x.view(1..6).is_err(), "a part past the end");
    let graph = rig.runtime.capture(|capture| capture.write(&[(); 3], &mut y)).expect("a capture of nothing");
    let pinned = rig.runtime.wrap(vec![(); 5]).expect("a wrap");
    assert_eq!((pinned.len(), pinned.read().expect("a view").len()), (5, 5), "a wrap");
    assert_eq!(pinned.into_owner::<Vec<()>>().map_err(|(error, _)| error).expect("the owner").len(), 5);
    let shared = rig.runtime.wrap_shared(std::sync::Arc::from([(); 5])).expect("a shared wrap");
    assert_eq!(shared.len(), 5, "a shared wrap");
    let mut host = rig.runtime.alloc_host::<()>(5).expect("host memory");
    assert_eq!((host.len(), host.write().expect("a view").len()), (5, 5), "host memory");
    let mut borrowed = [(); 5];
    let scoped = rig.runtime.scope(|scope| Ok(scope.wrap(&mut borrowed)?.read()?.len()));
    assert_eq!(scoped, Ok(5), "a scoped wrap");
    let memory = [Call::Malloc, Call::MallocAsync, Call::HostAlloc, Call::HostRegister, Call::Copy, Call::Fill];
    let calls = rig.tap.log.since(mark);
    assert!(!calls.iter().any(|call| memory.contains(call)), "O8: no driver sees memory of no size: {calls:?}");
    drop((x, y, shared, host, graph, stream));
    rig.close();
}

/// Aligned more strictly than any driver aligns.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(8192))]
struct Wide([[u64; 32]; 32]);

fn elements_of_a_wide_alignment_lie_on_it<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let value = |seed: u64| Wide(std::array::from_fn(|i| [seed + i as u64; 32]));
    let held: Vec<_> = (0..8).map(|_| stream.alloc::<Wide>(2).expect("an allocation")).collect();
    for buffer in &held {
        assert!(buffer.region().address.0.is_multiple_of(align_of::<Wide>() as u64), "on the device");
        assert_eq!(buffer.region().bytes, 2 * size_of::<Wide>() as u64, "and no longer for that");
    }
    let mut hosts: Vec<_> = (0..4).map(|_| rig.runtime.alloc_host::<Wide>(2).expect("host memory")).collect();
    for host in &mut hosts {
        assert!(host.as_ptr().addr().is_multiple_of(align_of::<Wide>()), "on the host");
        let x = stream.upload(&[value(1), value(100)]).expect("an upload");
        stream.copy(&x, host).expect("a copy");
        assert_eq!(host.read().expect("a view")[1].0, value(100).0, "what was copied");
        let back = stream.read(&x.view(1..).expect("a part")).expect("a read");
        assert_eq!(back[0].0, value(100).0, "what was uploaded");
    }
    drop((held, hosts, stream));
    rig.drain();
    rig.close();
}

fn ranges_at_the_limits_are_refused<B: Bench>(bench: &B) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    let ends = [Included(usize::MAX), Excluded(usize::MAX), Included(4), Excluded(5)];
    for end in ends {
        assert!(x.view((Unbounded, end)).is_err(), "up to {end:?}");
        assert!(x.view_mut((Included(4), end)).is_err(), "from the end to {end:?}");
        assert!(x.view((Excluded(usize::MAX), end)).is_err(), "from past the last index to {end:?}");
        assert!(x.view((Included(usize::MAX), end)).is_err(), "from the last index to {end:?}");
    }
    assert!(x.view((Excluded(3), Excluded(3))).is_err(), "it ends before it begins");
    assert!(x.view((Excluded(3), Excluded(4))).is_ok_and(|part| part.is_empty()), "empty, at the end");
    assert!(x.view(4..).is_ok_and(|part| part.is_empty()), "empty, at the end");
    assert!(x.split_at_mut(usize::MAX).is_err(), "a split past the end");
    assert!(x.split_at_mut(4).is_ok_and(|(left, right)| left.len() == 4 && right.is_empty()), "a split at the end");
    let many = stream.alloc::<()>(usize::MAX).expect("as many as there are");
    assert!(many.view(..=usize::MAX).is_err(), "one more than there are");
    assert_eq!(many.view(1..).expect("a part").len(), usize::MAX - 1);
    assert_eq!(stream.read(&many).expect("a read").len(), usize::MAX);
    let region = x.region();
    assert!(region.part(0, 17).is_err() && region.part(17, 0).is_err(), "past the end");
    assert!(region.part(u64::MAX, 2).is_err() && region.part(1, u64::MAX).is_err(), "and far past it");
    assert_eq!(region.part(4, 12).map(|part| (part.address, part.bytes)), Ok((region.address.offset(4), 12)));
    drop((x, many, stream));
    rig.close();
}
