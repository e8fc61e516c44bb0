//! Staging memory under threads: T1 to T3, S6.
//!
//! A chunk is 64 bytes in models, so two small copies fill what little room there is. The device sees each use of staging memory: that of
//! its copies, and that of the host when it fills a chunk or copies it out.

use std::time::Duration;

use super::capture::{buffers, drain};
use super::checker::spawn;
use super::device::Device;
use super::tenure::driver::{Call, Capabilities};
use super::tenure::error::Error;
use super::tenure::{Config, Queue, ReclaimMode, Runtime};
use super::{Model, Reached};

/// Bytes of a chunk, and of each copy of the models.
const CHUNK: usize = 64;

/// What the models of this file have in common.
const MODEL: Model = Model { bound: Some(2), ..Model::USUAL };

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "t1_two_writers_in_room_for_one",
        claim: "Two threads that write through one chunk use it one after the other: the second when the first copy is complete.",
        lines: &["T1", "T3"],
        operations: "1 write each, on its own stream",
        bound: Some(1),
        reaches: &["one waited for the other"],
        body: two_writers,
        ..MODEL
    },
    Model {
        name: "t1_two_writes_of_one_stream_beside_a_question",
        claim: "Copies of one stream that share a chunk are all complete before it is used again, whoever asks the stream meanwhile.",
        lines: &["T1"],
        operations: "2 writes and 1 more; 1 question to the stream",
        reaches: &["the chunk was used again"],
        body: shared_chunk,
        ..MODEL
    },
    Model {
        name: "t2_write_beside_trim",
        claim: "A trim beside a write takes no memory that the write has or is about to have, and all goes back in the end.",
        lines: &["T2", "T1"],
        operations: "1 write; 1 trim and 1 turn",
        reaches: &["the slab went before the write", "the slab stayed for the write"],
        body: write_beside_trim,
        ..MODEL
    },
    Model {
        name: "t1_download_beside_a_writer_without_room",
        claim: "A download that nobody fetched is copied out once, by its owner or by who needs the room, after its copy.",
        lines: &["T1", "T3", "O3"],
        operations: "1 download and 1 wait for it; 1 write that finds no room",
        bound: Some(1),
        reaches: &["the write came to need the room"],
        body: download_beside_writer,
        ..MODEL
    },
    Model {
        name: "t2_write_beside_the_end",
        claim: "A write beside a shutdown is taken or refused; no staging memory is used after it went back.",
        lines: &["T2", "R5", "R9"],
        operations: "1 write; 1 shutdown",
        reaches: &["it was taken", "it was refused"],
        body: write_beside_the_end,
        ..MODEL
    },
    Model {
        name: "s6_end_of_staging_beside_trim",
        claim: "A shutdown that asks the streams whether staging memory is still in use asks none that a trim destroyed.",
        lines: &["S6", "T2"],
        operations: "1 shutdown; 1 trim",
        reaches: &["the trim destroyed a stream", "the shutdown destroyed all"],
        body: end_beside_trim,
        ..MODEL
    },
];

/// A runtime with so many bytes of staging memory, whose releases are made by polling.
fn with_room(bytes: usize) -> (Device, Runtime<Device>) {
    let device = Device::new(Capabilities::default());
    let config = Config::default().reclaim(ReclaimMode::Manual).staging_max(bytes);
    let runtime = Runtime::with(device.clone(), config).expect("a runtime can be made");
    (device, runtime)
}

fn two_writers(reached: &Reached) {
    // setup: room for one copy, which is there
    let (device, runtime) = with_room(CHUNK);
    let (one, [mut first]) = buffers(&runtime);
    let (other, [mut second]) = buffers(&runtime);
    one.write(&[1_u8; CHUNK], &mut first).expect("the driver accepts all");
    // threads
    let writer = spawn(move || {
        other.write(&[7_u8; CHUNK], &mut second).expect("T3: a copy for which there will be room failed");
        (other, second)
    });
    one.write(&[9_u8; CHUNK], &mut first).expect("T3: a copy for which there will be room failed");
    // join
    let (other, second) = writer.join().unwrap();
    // claim: the device, at each use of the chunk
    reached.mark_if(runtime.stats().staging.waits > 0, "one waited for the other");
    assert_eq!(device.count(Call::HostAlloc), 1, "T2: there is more staging memory than there may be");
    drop((first, second, one, other));
    drain(&runtime);
}

fn shared_chunk(reached: &Reached) {
    // setup: a chunk in which there is room for one piece at a time; a slab of two
    let (device, runtime) = with_room(2 * CHUNK);
    let (stream, [mut buffer]) = buffers(&runtime);
    let (other, [mut theirs]) = buffers(&runtime);
    stream.write(&[1_u8; CHUNK], &mut buffer).expect("the driver accepts all");
    // threads
    let asker = spawn({
        let stream = stream.clone();
        move || stream.is_idle()
    });
    stream.write(&[7_u8; CHUNK], &mut buffer).expect("the driver accepts all");
    other.write(&[8_u8; CHUNK], &mut theirs).expect("the driver accepts all");
    stream.write(&[9_u8; CHUNK], &mut buffer).expect("the driver accepts all");
    // join
    assert!(asker.join().unwrap().is_ok(), "the driver answers");
    // claim: the device, at each use of a chunk
    let held = runtime.stats().staging.held;
    reached.mark_if(held == CHUNK, "the chunk was used again");
    assert!(device.count(Call::HostAlloc) <= 2, "T2: there is more staging memory than there may be");
    drop((buffer, theirs, stream, other));
    drain(&runtime);
}

fn write_beside_trim(reached: &Reached) {
    // setup: a slab that nothing uses
    let (device, runtime) = with_room(2 * CHUNK);
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.write(&[1_u8; CHUNK], &mut buffer).expect("the driver accepts all");
    stream.synchronize().expect("the driver accepts all");
    // threads
    let trimmer = spawn({
        let runtime = runtime.clone();
        move || {
            runtime.trim();
            runtime.poll();
        }
    });
    stream.write(&[7_u8; CHUNK], &mut buffer).expect("the driver accepts all");
    // join
    trimmer.join().unwrap();
    // claim: the device, at each use and at the end of each slab
    reached.mark(if device.count(Call::HostAlloc) == 2 {
        "the slab went before the write"
    } else {
        "the slab stayed for the write"
    });
    stream.synchronize().expect("the driver accepts all");
    drop((buffer, stream));
    runtime.trim();
    drain(&runtime);
    assert_eq!(runtime.stats().staging.held, 0, "T2: staging memory that nothing uses did not go back");
    assert_eq!(device.count(Call::HostFree), device.count(Call::HostAlloc), "T2: a slab was given back not once");
}

fn download_beside_writer(reached: &Reached) {
    // setup: room for one copy
    let (device, runtime) = with_room(CHUNK);
    let (stream, [mut buffer]) = buffers(&runtime);
    let (other, [mut theirs]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    let download = stream.download(&buffer).expect("the driver accepts all");
    // threads
    let writer = spawn(move || {
        other.write(&[7_u8; CHUNK], &mut theirs).expect("T3: a copy for which there will be room failed");
        (other, theirs)
    });
    let arrived = download.wait().expect("the driver accepts all");
    // join
    let (other, theirs) = writer.join().unwrap();
    // claim: the device, at each use of the chunk, and
    assert_eq!(arrived.len(), CHUNK, "O3: a download was fetched before it was there");
    reached.mark_if(runtime.stats().staging.waits > 0, "the write came to need the room");
    assert_eq!(device.count(Call::HostAlloc), 1, "T2: there is more staging memory than there may be");
    drop((buffer, theirs, stream, other));
    drain(&runtime);
}

fn write_beside_the_end(reached: &Reached) {
    // setup: a slab that nothing uses
    let (device, runtime) = with_room(CHUNK);
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.write(&[1_u8; CHUNK], &mut buffer).expect("the driver accepts all");
    // threads
    let writer = spawn({
        let stream = stream.clone();
        move || {
            let outcome = stream.write(&[7_u8; CHUNK], &mut buffer);
            (buffer, outcome)
        }
    });
    runtime.shutdown(Duration::ZERO);
    // join
    let (mut buffer, outcome) = writer.join().unwrap();
    // claim: the device, and
    assert!(
        matches!(outcome, Ok(()) | Err(Error::Closed)),
        "R9: a write beside a shutdown failed otherwise: {outcome:?}"
    );
    reached.mark(if outcome.is_ok() { "it was taken" } else { "it was refused" });
    assert_eq!(stream.write(&[9_u8; CHUNK], &mut buffer), Err(Error::Closed), "R9: work was taken after the end");
    assert!(device.count(Call::HostFree) <= device.count(Call::HostAlloc), "T2: a slab was given back twice");
    drop((buffer, stream));
}

fn end_beside_trim(reached: &Reached) {
    // setup: an idle stream of the pool, on which something was staged
    let (device, runtime) = with_room(CHUNK);
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.write(&[1_u8; CHUNK], &mut buffer).expect("the driver accepts all");
    drop(buffer);
    drain(&runtime);
    drop(stream);
    // threads
    let trimmer = spawn({
        let runtime = runtime.clone();
        move || runtime.trim()
    });
    runtime.shutdown(Duration::ZERO);
    // join
    let trimmed = trimmer.join().unwrap();
    // claim: the device
    reached.mark_if(trimmed > 0, "the trim destroyed a stream");
    reached.mark_if(trimmed == 0, "the shutdown destroyed all");
    assert_eq!(device.count(Call::HostAlloc), 1, "a slab was made");
}
