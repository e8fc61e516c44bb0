//! Copies between the device and pageable host memory: they go through staging memory, and wait for nothing while it has
//! room.

use std::sync::Arc;
use std::thread;

use tenure::driver::{Call, Driver, ErrorKind};
use tenure::{Buffer, Config, Error, Misuse, Queue, ReclaimMode};

use super::{eventually, list_cases};
use crate::bench::Bench;
use crate::rig::{Brake, Rig, Tapped};
use crate::tap::Tap;

list_cases!("staging": raw [] contract [
    t1_staging_memory_is_used_again_only_after_its_copy,
    t1_a_failed_copy_keeps_its_staging_memory_until_it_is_over,
    t1_what_a_graph_wrote_lives_with_it,
    t2_what_is_staged_is_bounded_in_bytes,
    t2_what_is_not_in_use_goes_back,
    t2_memory_that_is_short_is_told,
    t3_no_copy_waits_while_there_is_room,
    t3_who_shares_a_buffer_does_not_wait_for_a_download,
    t3_a_stream_that_stands_still_keeps_no_more_than_it_staged,
    t3_downloads_that_nobody_fetches_leave_room_for_others,
    t3_without_room_a_hold_is_refused,
    t3_a_capture_keeps_no_copy_from_being_made,
    t3_copies_larger_than_the_memory_arrive,
]);

const KIB: usize = 1 << 10;

/// A rig whose staging memory is one chunk.
fn narrow<B: Bench>(bench: &B) -> Rig<B::Driver> {
    Rig::with(bench, Config::default().reclaim(ReclaimMode::Manual).staging_max(64 * KIB))
}

fn words(count: usize, seed: u32) -> Vec<u32> {
    (0..count as u32).map(|word| word.wrapping_mul(2_654_435_761).wrapping_add(seed)).collect()
}

fn buffer<D: Driver>(rig: &Rig<D>, len: usize) -> Buffer<u32, Tap<D>> {
    rig.stream().alloc(len).expect("memory")
}

fn t3_no_copy_waits_while_there_is_room<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    for len in [1, 1000, 70 * KIB] {
        let (old, new) = (words(len, 1), words(len, 2));
        let mut x = stream.upload(&old).expect("an upload");
        let mut y = buffer(&rig, len);
        stream.synchronize().expect("a wait");
        let brake = Brake::new(bench);
        brake.hold(&stream);
        // None of these would return: nothing lets the device go on meanwhile.
        let before = stream.download(&x).expect("a download");
        stream.write(&new, &mut x).expect("a write");
        let after = stream.download(&x).expect("a download");
        stream.write(&old, &mut y).expect("a write");
        let fresh = stream.upload(&new).expect("an upload");
        assert!(!stream.is_idle().expect("an answer"), "the stream stands still");
        brake.release();
        assert!(before.wait().expect("the old words") == old, "{len} words");
        assert!(after.wait().expect("the new words") == new, "{len} words");
        assert!(stream.read(&y).expect("a read") == old && stream.read(&fresh).expect("a read") == new, "{len} words");
    }
    assert_eq!(rig.runtime.stats().staging.waits, 0, "T3: there was room: {:?}", rig.runtime.stats());
    drop(stream);
    rig.close();
}

fn t3_who_shares_a_buffer_does_not_wait_for_a_download<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, weights) = (rig.four(&a, 1), rig.four(&a, 2));
    a.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 1).expect("a launch");
    let download = a.download(&x).expect("a download");
    // The last to use the weights was the stream that stands still, and they are idle: its gate is all that is needed.
    let mut y = rig.four(&b, 0);
    rig.sum(&b, &weights, &mut y).expect("a launch");
    assert_eq!(b.read(&y).expect("a read"), [2; 4]);
    brake.release();
    assert_eq!(download.wait().expect("the words"), [2; 4]);
    drop((x, weights, y, a, b));
    rig.close();
}

fn t1_staging_memory_is_used_again_only_after_its_copy<B: Bench>(bench: &B) {
    let rig = narrow(bench);
    let stream = rig.stream();
    let mut buffers: Vec<_> = (0..8).map(|_| buffer(&rig, 2 * KIB)).collect();
    stream.synchronize().expect("a wait");
    for round in 0..3 {
        // Eight times 8 KiB fill the chunk; the next round comes upon it while it is in use.
        for (x, seed) in buffers.iter_mut().zip(round..) {
            stream.write(&words(2 * KIB, seed), x).expect("a write");
        }
    }
    for (x, seed) in buffers.iter().zip(2..) {
        let cancelled = stream.download(x).expect("a download");
        drop(cancelled);
        assert!(stream.read(x).expect("a read") == words(2 * KIB, seed), "T1: what was written last is there");
    }
    let figures = rig.runtime.stats().staging;
    assert_eq!((figures.held, figures.limit), (64 * KIB, 64 * KIB), "{figures:?}");
    drop((buffers, stream));
    rig.close();
}

fn t1_a_failed_copy_keeps_its_staging_memory_until_it_is_over<B: Bench>(bench: &B) {
    let rig = narrow(bench);
    let stream = rig.stream();
    let (mut x, mut y) = (buffer(&rig, 12 * KIB), buffer(&rig, 12 * KIB));
    stream.synchronize().expect("a wait");
    // The driver fails a copy that it makes all the same.
    rig.tap.rules.fail_after(Call::Copy, 0, ErrorKind::Unknown);
    let refused = stream.write(&words(12 * KIB, 1), &mut x);
    assert!(matches!(refused, Err(Error::Driver(_))), "R7: the driver's: {refused:?}");
    rig.tap.rules.clear();
    stream.write(&words(12 * KIB, 2), &mut y).expect("there is room once the failed copy is over");
    assert!(stream.read(&x).expect("a read") == words(12 * KIB, 1), "T1: its bytes were left alone until then");
    assert!(stream.read(&y).expect("a read") == words(12 * KIB, 2));
    drop((x, y, stream));
    rig.close();
}

fn t1_what_a_graph_wrote_lives_with_it<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = buffer(&rig, 1000);
    stream.synchronize().expect("a wait");
    let graph = rig.runtime.capture(|capture| capture.write(&words(1000, 7), &mut x)).expect("a graph");
    let executable = graph.instantiate().expect("an executable");
    assert!(rig.runtime.stats().staging.in_use <= 64 * KIB, "what a graph holds is no part of what is bounded");
    drop(graph);
    for _ in 0..2 {
        stream.fill(&mut x, 0).expect("a fill");
        executable.launch(&stream).expect("a launch");
        assert!(stream.read(&x).expect("a read") == words(1000, 7), "C10: the graph has its own");
    }
    drop((executable, x, stream));
    rig.drain();
    assert_eq!(rig.runtime.stats().staging.in_graphs, 0, "it went with the graph");
    rig.close();
}

fn t2_what_is_staged_is_bounded_in_bytes<B: Bench>(bench: &B) {
    let limit = 256 * KIB;
    let rig = Rig::with(bench, Config::default().staging_max(limit));
    let stream = rig.stream();
    let len = 16 * KIB;
    let x = buffer(&rig, len);
    stream.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let writer = {
        let (stream, mut x) = (stream.clone(), x);
        thread::spawn(move || {
            for seed in 0..20 {
                stream.write(&words(len, seed), &mut x).expect("a write");
            }
            x
        })
    };
    let staging = || rig.runtime.stats().staging;
    eventually("T3: the writer finds no room", || staging().waits > 0);
    assert!(staging().held <= limit, "T2: {:?}", staging());
    brake.release();
    let x = writer.join().expect("all was written");
    assert!(stream.read(&x).expect("a read") == words(len, 19), "O1: the last write is the last");
    assert!(staging().held <= limit, "T2: {:?}", staging());
    drop((x, stream));
    rig.close();
}

fn t2_what_is_not_in_use_goes_back<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let x = stream.upload(&words(70 * KIB, 1)).expect("an upload");
    stream.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    let download = stream.download(&x).expect("a download");
    rig.runtime.trim();
    let held = rig.runtime.stats().staging.held;
    assert!(held >= 280 * KIB, "T1: the download needs it");
    brake.release();
    assert!(download.wait().expect("the words") == words(70 * KIB, 1));
    rig.runtime.trim();
    assert_eq!(rig.runtime.stats().staging.held, 0, "T2: nothing is in use");
    rig.drain();
    assert!(stream.read(&x).expect("a read") == words(70 * KIB, 1), "and there is more when it is needed");
    drop((x, stream));
    rig.close();
}

fn t2_memory_that_is_short_is_told<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = buffer(&rig, 4);
    rig.tap.rules.fail_always(Call::HostAlloc, ErrorKind::OutOfMemory);
    let is_short = |error: &Error| error.failure().is_some_and(|failure| failure.kind == ErrorKind::OutOfMemory);
    let written = stream.write(&[1; 4], &mut x);
    assert!(written.as_ref().is_err_and(is_short), "R7: {written:?}");
    let download = stream.download(&x).map(drop);
    assert!(download.as_ref().is_err_and(is_short), "R7: {download:?}");
    rig.tap.rules.clear();
    stream.write(&[2; 4], &mut x).expect("nothing was lost");
    rig.tap.rules.fail_always(Call::HostAlloc, ErrorKind::OutOfMemory);
    // More than there is: it goes in parts through what there is.
    let many = words(100 * KIB, 3);
    let mut y = buffer(&rig, 100 * KIB);
    stream.write(&many, &mut y).expect("it goes in parts");
    assert!(stream.read(&y).expect("a read") == many);
    rig.tap.rules.clear();
    assert_eq!(stream.read(&x).expect("a read"), [2; 4]);
    drop((x, y, stream));
    rig.close();
}

fn t3_a_stream_that_stands_still_keeps_no_more_than_it_staged<B: Bench>(bench: &B) {
    let rig = Rig::with(bench, Config::default().reclaim(ReclaimMode::Manual).staging_max(256 * KIB));
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), buffer(&rig, 24 * KIB));
    b.synchronize().expect("a wait");
    a.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&a);
    // Small writes of one stream between large ones of another, of more than there is in all.
    for seed in 0..12 {
        a.write(&[seed; 4], &mut x).expect("a small write");
        b.write(&words(24 * KIB, seed), &mut y).expect("a large write, which waits for its own stream alone");
    }
    assert!(b.read(&y).expect("a read") == words(24 * KIB, 11));
    brake.release();
    assert_eq!(a.read(&x).expect("a read"), [11; 4]);
    drop((x, y, a, b));
    rig.close();
}

fn t3_downloads_that_nobody_fetches_leave_room_for_others<B: Bench>(bench: &B) {
    let rig = narrow(bench);
    let stream = rig.stream();
    let buffers: Vec<_> = (0..6).map(|seed| stream.upload(&words(8 * KIB, seed)).expect("an upload")).collect();
    // Three times what there is room for, and none is fetched before all are under way.
    let downloads: Vec<_> = buffers.iter().map(|x| stream.download(x).expect("a download")).collect();
    for (download, seed) in downloads.into_iter().zip(0..6).rev() {
        assert!(download.wait().expect("the words") == words(8 * KIB, seed), "each has its own");
    }
    drop((buffers, stream));
    rig.close();
}

fn t3_without_room_a_hold_is_refused<B: Bench>(bench: &B) {
    let rig = narrow(bench);
    let (a, b, c) = (rig.stream(), rig.stream(), rig.stream());
    let (mut x, mut y) = (buffer(&rig, 16 * KIB), rig.four(&b, 1));
    for stream in [&a, &b, &c] {
        stream.synchronize().expect("a wait");
    }
    let brake = Brake::new(bench);
    brake.hold(&a);
    a.write(&words(16 * KIB, 1), &mut x).expect("all there is");
    let write = |y: &mut Buffer<u32, Tapped<B>>| b.write(&[2; 4], y);
    // SAFETY: O1. The closure enqueues nothing on the given stream.
    let refused = unsafe { c.use_on(&[], |_| write(&mut y)) }.expect("the closure runs");
    assert_eq!(refused, Err(Error::Misuse(Misuse::InsideHold)), "T3: it would wait for the device");
    brake.release();
    a.synchronize().expect("a wait");
    write(&mut y).expect("outside it waits");
    assert_eq!(b.read(&y).expect("a read"), [2; 4]);
    drop((x, y, a, b, c));
    rig.close();
}

fn t3_a_capture_keeps_no_copy_from_being_made<B: Bench>(bench: &B) {
    for rig in [Rig::new(bench), Rig::bare(bench)] {
        let stream = rig.stream();
        let mut x = buffer(&rig, 1000);
        let guard = rig.runtime.capture_guard();
        stream.write(&words(1000, 1), &mut x).expect("a write beside a capture");
        let graph = rig.runtime.capture(|capture| {
            capture.write(&words(1000, 2), &mut x)?;
            stream.write(&words(1000, 3), &mut x)
        });
        let download = stream.download(&x).expect("a download beside a capture");
        drop(guard);
        assert!(download.wait().expect("the words") == words(1000, 3));
        graph.expect("a graph").instantiate().expect("an executable").launch(&stream).expect("a launch");
        assert!(stream.read(&x).expect("a read") == words(1000, 2));
        drop((x, stream));
        rig.close();
    }
}

fn t3_copies_larger_than_the_memory_arrive<B: Bench>(bench: &B) {
    let rig = Arc::new(Rig::with(bench, Config::default().staging_max(128 * KIB)));
    let many = words(70 * KIB, 1);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (rig, many) = (rig.clone(), many.clone());
            thread::spawn(move || {
                let stream = rig.stream();
                let x = stream.upload(&many).expect("an upload");
                let download = stream.download(&x).expect("a download");
                let mut read = vec![0; many.len()];
                stream.read_into(&x, &mut read).expect("a read");
                assert!(read == many && download.wait().expect("the words") == many);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("all arrives"));
    Arc::into_inner(rig).expect("all threads have ended").close();
}
