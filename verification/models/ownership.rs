//! Ownership: O1 to O5, O9, the follow map and the event of a stream's waits.
//!
//! All over [`submit`](super::tenure::ownership::submit) itself, with streams made directly: the pool has its own models.

use super::checker::{have_barriers, spawn};
use super::device::Device;
use super::tenure::call_scope::MayWait;
use super::tenure::context::Context;
use super::tenure::driver::{Call, DeviceAddress, ErrorKind, Priority, Progress};
use super::tenure::error::Result;
use super::tenure::ownership::{Access, Access::Read, Access::Write, Record, Use, submit};
use super::tenure::stream_state::{Kind, StreamState};
use super::tenure::sync::Arc;
use super::tenure::sync::atomic::{AtomicU64, Ordering};
use super::{Model, Reached, Search};

/// Bytes of each buffer of a model.
pub const BYTES: u64 = 64;

/// A buffer as ownership sees it.
#[derive(Debug)]
pub struct Buffer {
    /// Its record.
    pub record: Record<Device>,
    /// Where it is.
    pub address: DeviceAddress,
}

/// A device and what the core knows of it.
#[derive(Debug)]
pub struct World {
    /// The model's handle of the device.
    pub device: Device,
    /// The core's.
    pub context: Context<Device>,
}

impl World {
    /// A fresh device, and gates that are biased to whichever thread they please.
    pub fn new() -> Self {
        Self::with(true)
    }

    /// A fresh device, and gates that are biased to no thread: any mutex. So it is where a system has no barrier, and so models stay
    /// small: `biased` says that a gate that is biased is a mutex too, and some models here run with both.
    pub fn plain() -> Self {
        Self::with(false)
    }

    fn with(barriers: bool) -> Self {
        Self::over(barriers, Device::default())
    }

    /// Over this device.
    pub fn over(barriers: bool, device: Device) -> Self {
        have_barriers(barriers);
        Self { context: Context::new(device.clone()), device }
    }

    /// A stream outside any pool.
    pub fn stream(&self) -> Arc<StreamState<Device>> {
        StreamState::new(self.device.made_stream(), Kind::Pooled(Priority::Normal))
    }

    /// A buffer that nothing has used.
    pub fn buffer(&self) -> Buffer {
        Buffer { record: Record::new(), address: self.device.memory(BYTES) }
    }

    /// A buffer last used on a stream that was given up: who takes it together with one that was made before it is refused
    /// when that one has moved, and before anything is enqueued.
    pub fn spoiled(&self) -> Buffer {
        let (stream, buffer) = (self.stream(), self.buffer());
        let number = self.launch(&stream, &[(&buffer, Write)]);
        self.device.fail(Call::StreamSynchronize, ErrorKind::InvalidValue, 0);
        let waited = stream.wait(&self.context, number, &mut MayWait::here().expect("no hold"));
        assert!(waited.is_err(), "the wait was to fail");
        buffer
    }

    /// Two buffers, the first of which is locked first.
    pub fn two_buffers(&self) -> (Arc<Buffer>, Arc<Buffer>) {
        (Arc::new(self.buffer()), Arc::new(self.buffer()))
    }

    /// Launches a kernel that uses `buffers`.
    pub fn try_launch(&self, stream: &Arc<StreamState<Device>>, buffers: &[(&Buffer, Access)]) -> Result<u64> {
        let uses: Vec<_> = buffers.iter().map(|(buffer, access)| Use::new(&buffer.record, *access)).collect();
        let pointers: Vec<_> =
            buffers.iter().map(|(buffer, access)| (buffer.address, BYTES, *access == Write)).collect();
        let enqueue = |device: &Device, raw: &_| device.kernel(raw, &pointers);
        submit(&self.context, stream, &uses, Call::Launch, enqueue).map(|((), number)| number)
    }

    /// As [`try_launch`](Self::try_launch), where nothing can fail.
    pub fn launch(&self, stream: &Arc<StreamState<Device>>, buffers: &[(&Buffer, Access)]) -> u64 {
        match self.try_launch(stream, buffers) {
            Ok(number) => number,
            Err(error) => panic!("O5: a launch failed though the driver accepted all: {error}"),
        }
    }

    /// Waits as the host for all that conflicts, then touches the bytes.
    pub fn host_reads(&self, buffer: &Buffer) {
        buffer
            .record
            .wait(&self.context, Read, &mut MayWait::here().expect("no hold"))
            .expect("a wait on a healthy device succeeds");
        self.device.host_reads(buffer.address, BYTES);
    }

    /// As [`host_reads`](Self::host_reads), to write.
    pub fn host_writes(&self, buffer: &Buffer) {
        buffer
            .record
            .wait(&self.context, Write, &mut MayWait::here().expect("no hold"))
            .expect("a wait on a healthy device succeeds");
        self.device.host_writes(buffer.address, BYTES);
    }
}

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "o1_two_writers_are_ordered",
        claim: "Two threads that write one buffer on two streams are ordered, whoever comes first.",
        lines: &["O1", "O4"],
        threads: 2,
        operations: "1 launch on its own stream, 1 launch on another",
        bound: None,
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents; streams are made outside the pool",
        reaches: &["an edge was inserted", "the old owner launched first", "the buffer came back"],
        body: two_writers,
    },
    Model {
        name: "o1_two_writers_are_ordered_biased",
        claim: "Two threads that write one buffer on two streams are ordered, whoever comes first.",
        lines: &["O1", "O4"],
        threads: 2,
        operations: "1 launch on its own stream, 1 launch on another",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents; streams are made outside the pool",
        reaches: &["an edge was inserted", "the old owner launched first", "the buffer came back"],
        body: two_writers_biased,
    },
    Model {
        name: "o1_two_readers_share",
        claim: "Two reads on two streams get an edge from the write and none from each other; the next write gets one from each.",
        lines: &["O1", "O9"],
        threads: 2,
        operations: "1 read each on its own stream, then 1 write on a third",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["both readers have a slot"],
        body: two_readers,
    },
    Model {
        name: "o1_reader_and_writer_are_ordered",
        claim: "A read and a write on two streams, neither of them the owner's, are ordered.",
        lines: &["O1", "O9"],
        threads: 2,
        operations: "1 read, 1 write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the reader came first", "the writer came first"],
        body: reader_and_writer,
    },
    Model {
        name: "o9_owner_reads_are_waited_for",
        claim: "An owner's read after a write that is known to be complete is waited for by the next writer elsewhere.",
        lines: &["O9", "O1"],
        threads: 2,
        operations: "1 read by the owner, 1 write elsewhere",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the read came first"],
        body: owner_reads,
    },
    Model {
        name: "o1_slot_beside_writer",
        claim: "A stream that reads through its slot, at once, is ordered with a writer that closes the slot.",
        lines: &["O1", "O4", "O9"],
        threads: 2,
        operations: "2 reads through a slot, 1 write elsewhere",
        bound: None,
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["a read through the slot", "a read had to come back"],
        body: slot_beside_writer,
    },
    Model {
        name: "o1_slot_beside_writer_biased",
        claim: "A stream that reads through its slot, at once, is ordered with a writer that closes the slot.",
        lines: &["O1", "O4", "O9"],
        threads: 2,
        operations: "2 reads through a slot, 1 write elsewhere",
        bound: Some(2),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["a read through the slot", "a read had to come back"],
        body: slot_beside_writer_biased,
    },
    Model {
        name: "o1_owner_reads_beside_joining_reader",
        claim: "An owner that only reads becomes a reader among others when another stream joins, and its last write is not lost.",
        lines: &["O1", "O9"],
        threads: 2,
        operations: "1 read and 1 write by the owner, 1 read elsewhere",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the owner wrote after the join", "the owner wrote before the join"],
        body: owner_reads_beside_joiner,
    },
    Model {
        name: "o1_three_streams_are_ordered",
        claim: "Two readers and a writer on three streams and three threads are ordered.",
        lines: &["O1", "O9"],
        threads: 3,
        operations: "1 launch each",
        bound: Some(2),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["the writer came between the readers"],
        body: three_streams,
    },
    Model {
        name: "o1_three_streams_are_ordered_biased",
        claim: "Two readers and a writer on three streams and three threads are ordered.",
        lines: &["O1", "O9"],
        threads: 3,
        operations: "1 launch each",
        bound: Some(2),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the writer came between the readers"],
        body: three_streams_biased,
    },
    Model {
        name: "o1_readers_without_a_slot_are_waited_for",
        claim: "A read on more streams than there are slots is remembered, and the next writer waits for it.",
        lines: &["O1", "O9"],
        threads: 2,
        operations: "2 reads on two streams where all slots are taken, then 1 write",
        bound: Some(3),
        search: Search::Sample(1_000),
        leaves_out: "under loom there are two slots, elsewhere twenty-four",
        reaches: &["a reader found no slot"],
        body: readers_without_a_slot,
    },
    Model {
        name: "o2_clean_beside_launch_on_one_stream",
        claim: "One thread launches on a stream while another synchronizes it: a buffer is called clean only when the work submitted before the question has completed.",
        lines: &["O2"],
        threads: 1,
        operations: "2 launches; 1 wait and 1 question",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["called clean", "called busy"],
        body: launch_beside_sync,
    },
    Model {
        name: "o2_clean_beside_two_launching_threads",
        claim: "As with one launching thread, with two on one stream, whose numbers may be taken out of order.",
        lines: &["O2"],
        threads: 2,
        operations: "1 launch each; 1 wait and 1 question",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["called clean", "called busy"],
        body: two_launch_one_sync,
    },
    Model {
        name: "o2_clean_beside_two_launching_threads_biased",
        claim: "As with one launching thread, with two on one stream, whose numbers may be taken out of order.",
        lines: &["O2"],
        threads: 2,
        operations: "1 launch each; 1 wait and 1 question",
        bound: Some(2),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["called clean", "called busy"],
        body: two_launch_one_sync_biased,
    },
    Model {
        name: "o2_clean_beside_move",
        claim: "The stream and the number of a last use are read as a pair: a buffer that moves to a stream with small numbers is not called clean by a large watermark.",
        lines: &["O2"],
        threads: 1,
        operations: "1 move with its launch; 1 question",
        bound: None,
        search: Search::Every,
        leaves_out: "kernels have no contents",
        reaches: &["called busy"],
        body: clean_beside_move,
    },
    Model {
        name: "o3_host_read_sees_the_bytes",
        claim: "A host read that learns second-hand that the write completed sees the bytes.",
        lines: &["O3"],
        threads: 1,
        operations: "1 wait for the stream; 1 host read",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the bytes are a witness cell, written when somebody is told",
        reaches: &["the read made no driver call"],
        body: host_read,
    },
    Model {
        name: "o3_query_completes_for_the_host",
        claim: "A query that says idle lets a host read on another thread go ahead, and it sees the bytes.",
        lines: &["O3"],
        threads: 1,
        operations: "1 query; 1 host read",
        bound: None,
        search: Search::Sample(2_000),
        leaves_out: "the bytes are a witness cell, written when somebody is told",
        reaches: &["the read made no driver call"],
        body: query_raises,
    },
    Model {
        name: "o3_host_write_waits_for_readers",
        claim: "A host write waits for reads as well as writes, beside a thread that reads on the device.",
        lines: &["O3"],
        threads: 1,
        operations: "1 device read joined to the host write by a flag; 1 host write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the read came first"],
        body: host_write_waits,
    },
    Model {
        name: "o3_host_view_excludes_device_writes",
        claim: "While the host has a view, a device write is refused; when the view ended, the host's accesses come before it.",
        lines: &["O3"],
        threads: 1,
        operations: "1 view, read and end; 1 device write tried once",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "the host's reads are a witness cell that the kernel's enqueue writes",
        reaches: &["the launch was refused", "the launch came after the view"],
        body: host_view,
    },
    Model {
        name: "o3_host_view_beside_covered_launch",
        claim: "A launch that its stream covers is refused while the host has a view, or the host's look comes before it or after.",
        lines: &["O3", "O4"],
        threads: 2,
        operations: "1 view, read and end; 1 device write by the owner tried once",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; the host's reads are a witness cell that the kernel's enqueue writes",
        reaches: &["the launch was refused", "the launch came after the view", "the launch came before the view"],
        body: view_beside_covered,
    },
    Model {
        name: "o4_no_window_between_take_and_enqueue",
        claim: "A launch of two covered buffers and a move of one of them do not interleave.",
        lines: &["O4", "O1"],
        threads: 2,
        operations: "1 covered launch of two buffers; 1 move of one",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the covered launch came first", "the move came first"],
        body: window,
    },
    Model {
        name: "o1_cover_closed_beside_a_covered_launch",
        claim: "A covered launch beside a move is before it or behind it, also where all earlier work is known to be complete.",
        lines: &["O1", "O4"],
        threads: 2,
        operations: "1 covered launch; 1 move",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["the covered launch came first", "the move came first"],
        body: close_beside_covered,
    },
    Model {
        name: "o1_slot_closed_beside_a_read",
        claim: "A read through a slot beside a write elsewhere is before it or behind it, also where all earlier work is complete.",
        lines: &["O1", "O9"],
        threads: 2,
        operations: "1 read through a slot; 1 write elsewhere",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["the read came first", "the write came first"],
        body: close_beside_read,
    },
    Model {
        name: "o5_refused_launch_behind_two_readers",
        claim: "A refused launch that waits for one reader, and waited for another long before, leaves the number of the later wait.",
        lines: &["O5", "O9"],
        threads: 2,
        operations: "1 launch that is refused behind an edge; 1 read through a slot; then a host write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["an edge was skipped"],
        body: refused_behind_readers,
    },
    Model {
        name: "o4_two_fast_launches_and_a_mover",
        claim: "Two threads that launch on the owner's stream and one that moves the buffer away are ordered.",
        lines: &["O4", "O1"],
        threads: 3,
        operations: "1 launch each",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["the move came between the launches"],
        body: two_fast_one_mover,
    },
    Model {
        name: "o4_two_fast_launches_and_a_mover_biased",
        claim: "Two threads that launch on the owner's stream and one that moves the buffer away are ordered.",
        lines: &["O4", "O1"],
        threads: 3,
        operations: "1 launch each",
        bound: Some(2),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the move came between the launches"],
        body: two_fast_one_mover_biased,
    },
    Model {
        name: "o5_crossed_buffers_do_not_deadlock",
        claim: "Two launches that take the same two buffers in opposite order end, ordered.",
        lines: &["O5", "O1"],
        threads: 2,
        operations: "1 launch of two buffers each",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the first came first", "the second came first"],
        body: crossed,
    },
    Model {
        name: "o5_buffer_named_twice_counts_once",
        claim: "Two launches that name one buffer twice each, for reading first, end, ordered as writers.",
        lines: &["O5", "O1"],
        threads: 2,
        operations: "1 launch each",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the first came first", "the second came first"],
        body: named_twice,
    },
    Model {
        name: "o5_failed_launch_leaves_the_truth",
        claim: "When the driver refuses a launch after the buffer has moved, what ran before it is still known.",
        lines: &["O5", "O2"],
        threads: 2,
        operations: "1 move whose launch fails; 1 launch elsewhere; then a host write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the launch failed", "the other launch failed"],
        body: failed_launch,
    },
    Model {
        name: "o5_failed_edge_leaves_the_truth",
        claim: "When the driver refuses a record or a wait, the buffer stays as it was or looks busy.",
        lines: &["O5", "O2"],
        threads: 2,
        operations: "1 move whose edge fails; 1 launch elsewhere; then a host write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the edge failed"],
        body: failed_edge,
    },
    Model {
        name: "o5_refused_retake_keeps_the_last_write",
        claim: "A stream that takes its own buffer back, after a move elsewhere failed, and is refused, leaves its own last write known.",
        lines: &["O5", "O2"],
        threads: 2,
        operations: "1 move whose edge fails; 1 launch by the last writer's stream, refused by another buffer; then a host write",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["the buffer was taken back"],
        body: refused_retake,
    },
    Model {
        name: "o5_refused_launch_behind_a_second_wait",
        claim: "A launch that is refused behind an edge that an earlier wait stands for leaves that wait known, not one before it.",
        lines: &["O5", "O2"],
        threads: 2,
        operations: "1 launch each on one stream, of buffers of another, one of them refused by a further one; then a host write of both",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["an edge was skipped"],
        body: refused_behind_second_wait,
    },
    Model {
        name: "o1_follow_map_skips_only_known_edges",
        claim: "An edge is skipped only when the stream already waits for that work: not for work accepted after the record.",
        lines: &["O1"],
        threads: 2,
        operations: "2 launches on the source; 2 moves to one stream",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["an edge was skipped", "two edges were inserted"],
        body: follow_map,
    },
    Model {
        name: "o1_followers_share_an_edge",
        claim: "Two threads that move buffers to one stream share an edge, and neither runs ahead of it.",
        lines: &["O1"],
        threads: 2,
        operations: "1 move each to the same stream",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "gates are biased to no thread; kernels have no contents",
        reaches: &["one edge served both"],
        body: shared_edge,
    },
    Model {
        name: "o1_followers_share_an_edge_biased",
        claim: "Two threads that move buffers to one stream share an edge, and neither runs ahead of it.",
        lines: &["O1"],
        threads: 2,
        operations: "1 move each to the same stream",
        bound: Some(2),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["one edge served both"],
        body: shared_edge_biased,
    },
    Model {
        name: "o1_events_are_not_shared",
        claim: "A stream's event belongs to one thread from its record until the wait has been accepted.",
        lines: &["O1"],
        threads: 2,
        operations: "1 move each to the same stream, from different ones; the stream has its event already",
        bound: Some(3),
        search: Search::Sample(2_000),
        leaves_out: "kernels have no contents",
        reaches: &["the stream's own event was used"],
        body: event_of_a_stream,
    },
];

fn two_writers(reached: &Reached) {
    two_writers_in(World::plain(), reached);
}

fn two_writers_biased(reached: &Reached) {
    two_writers_in(World::new(), reached);
}

fn two_writers_in(world: World, reached: &Reached) {
    // setup
    let world = Arc::new(world);
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    // threads
    let mover = spawn({
        let (world, b, x) = (world.clone(), b.clone(), x.clone());
        move || world.launch(&b, &[(&x, Write)])
    });
    let owner = spawn({
        let (world, a, x) = (world.clone(), a.clone(), x.clone());
        move || world.launch(&a, &[(&x, Write)])
    });
    // join
    mover.join().unwrap();
    let last = owner.join().unwrap();
    // claim: the device checks each launch; and at the end the host may write
    let edges = world.device.count(Call::StreamWaitEvent);
    reached.mark_if(edges > 0, "an edge was inserted");
    reached.mark_if(last == 2 && edges == 1, "the old owner launched first");
    reached.mark_if(edges == 2, "the buffer came back");
    world.host_writes(&x);
}

fn two_readers(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (a, b, c) = (world.stream(), world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    // threads
    let readers = [&b, &c].map(|stream| {
        let (world, stream, x) = (world.clone(), stream.clone(), x.clone());
        spawn(move || world.launch(&stream, &[(&x, Read)]))
    });
    // join
    for reader in readers {
        reader.join().unwrap();
    }
    // claim
    let edges = world.device.count(Call::StreamWaitEvent);
    assert!(edges <= 2, "O1: a reader got an edge from another reader");
    reached.mark("both readers have a slot");
    world.launch(&a, &[(&x, Write)]);
    let edges = world.device.count(Call::StreamWaitEvent) - edges;
    assert!(edges >= 2, "O9: the next writer did not wait for both readers");
}

fn owner_reads(reached: &Reached) {
    // setup: the write is complete, and known to be
    let world = Arc::new(World::new());
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    world.host_reads(&x);
    // threads
    let owner = spawn({
        let (world, a, x) = (world.clone(), a.clone(), x.clone());
        move || world.launch(&a, &[(&x, Read)])
    });
    world.launch(&b, &[(&x, Write)]);
    // join
    owner.join().unwrap();
    // claim: the device
    reached.mark_if(world.device.last(&a.raw) < world.device.last(&b.raw), "the read came first");
    world.host_writes(&x);
}

fn reader_and_writer(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (a, b, c) = (world.stream(), world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    // threads
    let reader = spawn({
        let (world, b, x) = (world.clone(), b.clone(), x.clone());
        move || world.launch(&b, &[(&x, Read)])
    });
    let writer = spawn({
        let (world, c, x) = (world.clone(), c.clone(), x.clone());
        move || world.launch(&c, &[(&x, Write)])
    });
    // join
    reader.join().unwrap();
    let number = writer.join().unwrap();
    // claim
    reached.mark_if(number == 3, "the reader came first");
    reached.mark_if(number == 2, "the writer came first");
    world.host_writes(&x);
}

fn slot_beside_writer(reached: &Reached) {
    slot_beside_writer_in(World::plain(), reached);
}

fn slot_beside_writer_biased(reached: &Reached) {
    slot_beside_writer_in(World::new(), reached);
}

fn slot_beside_writer_in(world: World, reached: &Reached) {
    // setup: A and B share X
    let world = Arc::new(world);
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    world.launch(&b, &[(&x, Read)]);
    let before = world.device.count(Call::StreamWaitEvent);
    // threads
    let reader = spawn({
        let (world, b, x) = (world.clone(), b.clone(), x.clone());
        move || {
            world.launch(&b, &[(&x, Read)]);
            world.launch(&b, &[(&x, Read)]);
        }
    });
    world.launch(&a, &[(&x, Write)]);
    // join
    reader.join().unwrap();
    // claim
    let edges = world.device.count(Call::StreamWaitEvent) - before;
    reached.mark_if(edges == 1, "a read through the slot");
    reached.mark_if(edges > 1, "a read had to come back");
    world.host_writes(&x);
}

fn owner_reads_beside_joiner(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    // threads
    let joiner = spawn({
        let (world, b, x) = (world.clone(), b.clone(), x.clone());
        move || world.launch(&b, &[(&x, Read)])
    });
    let owner = spawn({
        let (world, a, x) = (world.clone(), a.clone(), x.clone());
        move || {
            world.launch(&a, &[(&x, Read)]);
            world.launch(&a, &[(&x, Write)]);
        }
    });
    // join
    joiner.join().unwrap();
    owner.join().unwrap();
    // claim
    let edges = world.device.count(Call::StreamWaitEvent);
    reached.mark_if(edges == 2, "the owner wrote after the join");
    reached.mark_if(edges == 1, "the owner wrote before the join");
    world.host_writes(&x);
}

fn three_streams(reached: &Reached) {
    three_streams_in(World::plain(), reached);
}

fn three_streams_biased(reached: &Reached) {
    three_streams_in(World::new(), reached);
}

fn three_streams_in(world: World, reached: &Reached) {
    // setup
    let world = Arc::new(world);
    let (a, b, c) = (world.stream(), world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    // threads
    let others = [(&a, Read), (&b, Read), (&c, Write)].map(|(stream, access)| {
        let (world, stream, x) = (world.clone(), stream.clone(), x.clone());
        spawn(move || world.launch(&stream, &[(&x, access)]))
    });
    // join
    let numbers = others.map(|other| other.join().unwrap());
    // claim
    reached.mark_if(numbers[0] == 2 && numbers[1] == 2 && numbers[2] == 3, "the writer came between the readers");
    world.host_writes(&x);
}

fn readers_without_a_slot(reached: &Reached) {
    // setup: every slot is taken by a stream that still reads
    let world = Arc::new(World::new());
    let slots = super::tenure::ownership::SLOTS;
    let x = Arc::new(world.buffer());
    let owner = world.stream();
    world.launch(&owner, &[(&x, Write)]);
    for _ in 1..slots {
        world.launch(&world.stream(), &[(&x, Read)]);
    }
    let (a, b) = (world.stream(), world.stream());
    // threads
    let reader = spawn({
        let (world, a, x) = (world.clone(), a.clone(), x.clone());
        move || world.launch(&a, &[(&x, Read)])
    });
    world.launch(&b, &[(&x, Read)]);
    // join
    reader.join().unwrap();
    // claim: the next writer comes after all of them
    reached.mark("a reader found no slot");
    world.launch(&owner, &[(&x, Write)]);
    world.host_writes(&x);
}

fn launch_beside_sync(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let a = world.stream();
    let x = Arc::new(world.buffer());
    let launched = Arc::new(AtomicU64::new(0));
    // threads
    let launcher = spawn({
        let (world, a, x, launched) = (world.clone(), a.clone(), x.clone(), launched.clone());
        move || {
            for number in 1..=2 {
                world.launch(&a, &[(&x, Write)]);
                launched.store(number, Ordering::Release);
            }
        }
    });
    let horizon = a.timeline.horizon().number();
    a.wait(&world.context, horizon, &mut MayWait::here().expect("no hold"))
        .expect("a wait on a healthy device succeeds");
    let before = launched.load(Ordering::Acquire);
    let busy = x.record.is_busy(Write);
    // claim
    if !busy {
        world.device.called_clean(x.address, BYTES, before);
    }
    reached.mark_if(!busy && before > 0, "called clean");
    reached.mark_if(busy, "called busy");
    // join
    launcher.join().unwrap();
    world.host_writes(&x);
}

fn two_launch_one_sync(reached: &Reached) {
    two_launch_one_sync_in(World::plain(), reached);
}

fn two_launch_one_sync_biased(reached: &Reached) {
    two_launch_one_sync_in(World::new(), reached);
}

fn two_launch_one_sync_in(world: World, reached: &Reached) {
    // setup
    let world = Arc::new(world);
    let a = world.stream();
    let buffers = [Arc::new(world.buffer()), Arc::new(world.buffer())];
    let launched = Arc::new(AtomicU64::new(0));
    // threads
    let launchers = [0, 1].map(|index| {
        let (world, a, x, launched) = (world.clone(), a.clone(), buffers[index].clone(), launched.clone());
        spawn(move || {
            world.launch(&a, &[(&x, Write)]);
            launched.fetch_or(1 << index, Ordering::AcqRel);
        })
    });
    let horizon = a.timeline.horizon().number();
    a.wait(&world.context, horizon, &mut MayWait::here().expect("no hold"))
        .expect("a wait on a healthy device succeeds");
    let before = launched.load(Ordering::Acquire);
    // claim
    for (index, buffer) in buffers.iter().enumerate() {
        let busy = buffer.record.is_busy(Write);
        if !busy {
            world.device.called_clean(buffer.address, BYTES, before >> index & 1);
        }
        reached.mark_if(!busy && before >> index & 1 == 1, "called clean");
        reached.mark_if(busy, "called busy");
    }
    // join
    for launcher in launchers {
        launcher.join().unwrap();
    }
    buffers.iter().for_each(|buffer| world.host_writes(buffer));
}

fn clean_beside_move(reached: &Reached) {
    // setup: X was used last on A, whose numbers are large and complete; B's are small
    let world = Arc::new(World::new());
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    for _ in 0..3 {
        world.launch(&a, &[(&x, Write)]);
    }
    a.wait(&world.context, 3, &mut MayWait::here().expect("no hold")).expect("a wait on a healthy device succeeds");
    world.launch(&b, &[(&x, Write)]);
    // threads: X moves from B, where it is busy, back to A
    let mover = spawn({
        let (world, a, x) = (world.clone(), a.clone(), x.clone());
        move || world.launch(&a, &[(&x, Write)])
    });
    let busy = x.record.is_busy(Write);
    // claim: the launch on B came before the question
    if !busy {
        world.device.called_clean(x.address, BYTES, 4);
    }
    reached.mark_if(busy, "called busy");
    // join
    mover.join().unwrap();
}

fn host_read(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let a = world.stream();
    let x = Arc::new(world.buffer());
    let number = world.launch(&a, &[(&x, Write)]);
    // threads
    let waiter = spawn({
        let (world, a) = (world.clone(), a.clone());
        move || {
            a.wait(&world.context, number, &mut MayWait::here().expect("no hold"))
                .expect("a wait on a healthy device succeeds")
        }
    });
    world.host_reads(&x);
    // join
    waiter.join().unwrap();
    // claim: the device and its witness
    reached.mark_if(world.device.count(Call::StreamSynchronize) == 1, "the read made no driver call");
}

fn query_raises(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let a = world.stream();
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    // threads
    let asker = spawn({
        let (world, a) = (world.clone(), a.clone());
        move || {
            let answer = a.query(&world.context).expect("nobody captures");
            assert_eq!(answer, Ok(Progress::Complete), "the device is idle when asked");
        }
    });
    world.host_reads(&x);
    // join
    asker.join().unwrap();
    // claim: the device and its witness
    reached.mark_if(world.device.count(Call::StreamSynchronize) == 0, "the read made no driver call");
}

fn host_write_waits(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    let flag = Arc::new(AtomicU64::new(0));
    world.launch(&a, &[(&x, Write)]);
    // threads
    let reader = spawn({
        let (world, b, x, flag) = (world.clone(), b.clone(), x.clone(), flag.clone());
        move || {
            world.launch(&b, &[(&x, Read)]);
            flag.store(1, Ordering::Release);
        }
    });
    // claim: only what happened before the host write is promised to it
    if flag.load(Ordering::Acquire) == 1 {
        world.host_writes(&x);
        reached.mark("the read came first");
    }
    // join
    reader.join().unwrap();
}

fn host_view(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    let bytes = Arc::new(super::checker::Witness::new());
    world.launch(&a, &[(&x, Write)]);
    // threads
    let writer = spawn({
        let (world, b, x, bytes) = (world.clone(), b.clone(), x.clone(), bytes.clone());
        move || {
            let uses = [Use::new(&x.record, Write)];
            let pointers = [(x.address, BYTES, true)];
            let answer = submit(&world.context, &b, &uses, Call::Launch, |device, raw| {
                bytes.write("O3: a device write is not ordered after the host's last look at its view", || {});
                device.kernel(raw, &pointers)
            });
            answer.is_ok()
        }
    });
    let viewed = x.record.begin_view(&world.context, Read, &mut MayWait::here().expect("no hold")).is_ok();
    assert!(viewed, "O3: a view was refused though nobody else has one");
    bytes.read("O3: a device write is not ordered after the host's last look at its view", || {});
    world.device.host_reads(x.address, BYTES);
    x.record.end_view(Read);
    // join
    let launched = writer.join().unwrap();
    // claim: the witness
    reached.mark_if(!launched, "the launch was refused");
    reached.mark_if(launched, "the launch came after the view");
}

fn window(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (a, b) = (world.stream(), world.stream());
    let (x, y) = world.two_buffers();
    world.launch(&a, &[(&x, Write), (&y, Write)]);
    // threads
    let owner = spawn({
        let (world, a, x, y) = (world.clone(), a.clone(), x.clone(), y.clone());
        move || world.launch(&a, &[(&x, Write), (&y, Write)])
    });
    world.launch(&b, &[(&y, Write)]);
    // join
    let number = owner.join().unwrap();
    // claim
    reached.mark_if(number == 2, "the covered launch came first");
    reached.mark_if(number == 3, "the move came first");
    world.host_writes(&x);
    world.host_writes(&y);
}

fn two_fast_one_mover(reached: &Reached) {
    two_fast_one_mover_in(World::plain(), reached);
}

fn two_fast_one_mover_biased(reached: &Reached) {
    two_fast_one_mover_in(World::new(), reached);
}

fn two_fast_one_mover_in(world: World, reached: &Reached) {
    // setup
    let world = Arc::new(world);
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    // threads
    let others = [&a, &a, &b].map(|stream| {
        let (world, stream, x) = (world.clone(), stream.clone(), x.clone());
        spawn(move || world.launch(&stream, &[(&x, Write)]))
    });
    // join
    let numbers = others.map(|other| other.join().unwrap());
    // claim
    let on_a = numbers[0].max(numbers[1]);
    let first = numbers[0].min(numbers[1]);
    reached.mark_if(first == 2 && on_a == 4, "the move came between the launches");
    world.host_writes(&x);
}

fn crossed(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (a, b) = (world.stream(), world.stream());
    let (x, y) = world.two_buffers();
    world.launch(&a, &[(&x, Write)]);
    world.launch(&b, &[(&y, Write)]);
    // threads
    let other = spawn({
        let (world, b, x, y) = (world.clone(), b.clone(), x.clone(), y.clone());
        move || world.launch(&b, &[(&y, Write), (&x, Write)])
    });
    world.launch(&a, &[(&x, Write), (&y, Write)]);
    // join
    other.join().unwrap();
    // claim
    let (mine, other) = (world.device.last(&a.raw), world.device.last(&b.raw));
    reached.mark_if(mine < other, "the first came first");
    reached.mark_if(mine > other, "the second came first");
    world.host_writes(&x);
    world.host_writes(&y);
}

fn named_twice(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    // threads
    let other = spawn({
        let (world, b, x) = (world.clone(), b.clone(), x.clone());
        move || world.launch(&b, &[(&x, Read), (&x, Write)])
    });
    world.launch(&a, &[(&x, Read), (&x, Write)]);
    // join
    other.join().unwrap();
    // claim
    let (mine, other) = (world.device.last(&a.raw), world.device.last(&b.raw));
    reached.mark_if(mine < other, "the first came first");
    reached.mark_if(mine > other, "the second came first");
    world.host_writes(&x);
}

fn failed_launch(reached: &Reached) {
    // setup: the second launch from now on is refused, whichever that is
    let world = Arc::new(World::new());
    let (a, b, c) = (world.stream(), world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    world.launch(&a, &[(&x, Write)]);
    world.device.fail(Call::Launch, ErrorKind::OutOfMemory, 0);
    // threads
    let other = spawn({
        let (world, c, x) = (world.clone(), c.clone(), x.clone());
        move || world.try_launch(&c, &[(&x, Write)])
    });
    let mine = world.try_launch(&b, &[(&x, Write)]);
    // join
    let other = other.join().unwrap();
    // claim: the device checks the one that was accepted, and that the host waits for all
    assert!(mine.is_err() != other.is_err(), "O5: exactly the refused launch fails");
    reached.mark_if(mine.is_err(), "the launch failed");
    reached.mark_if(other.is_err(), "the other launch failed");
    world.host_writes(&x);
}

fn failed_edge(reached: &Reached) {
    // setup
    let world = Arc::new(World::new());
    let (a, b, c) = (world.stream(), world.stream(), world.stream());
    let (x, y) = world.two_buffers();
    world.launch(&a, &[(&x, Write)]);
    world.launch(&c, &[(&y, Write)]);
    world.device.fail(Call::StreamWaitEvent, ErrorKind::OutOfMemory, 1);
    // threads
    let other = spawn({
        let (world, c, x) = (world.clone(), c.clone(), x.clone());
        move || world.try_launch(&c, &[(&x, Write)])
    });
    let mine = world.try_launch(&b, &[(&x, Write), (&y, Write)]);
    // join
    let other = other.join().unwrap();
    // claim
    reached.mark_if(mine.is_err() || other.is_err(), "the edge failed");
    world.host_writes(&x);
    world.host_writes(&y);
}

fn refused_retake(reached: &Reached) {
    // setup: A wrote X; the next edge fails, and so does what takes X with what nobody can have
    let world = Arc::new(World::plain());
    let (a, b) = (world.stream(), world.stream());
    let (x, spoiled) = (Arc::new(world.buffer()), world.spoiled());
    world.launch(&a, &[(&x, Write)]);
    world.device.fail(Call::StreamWaitEvent, ErrorKind::InvalidValue, 0);
    // threads
    let other = spawn({
        let (world, b, x) = (world.clone(), b.clone(), x.clone());
        move || world.try_launch(&b, &[(&x, Write)])
    });
    let mine = world.try_launch(&a, &[(&x, Write), (&spoiled, Write)]);
    // join
    let other = other.join().unwrap();
    // claim: the device, and that the host waits for all
    assert!(mine.is_err() && other.is_err(), "O5: a launch behind an edge that fails is refused");
    reached.mark_if(a.counters.handovers.value() == 2, "the buffer was taken back");
    world.host_writes(&x);
}

fn refused_behind_second_wait(reached: &Reached) {
    // setup: B waited for A before, and that is passed; A wrote Y and Z since
    let world = Arc::new(World::plain());
    let (a, b) = (world.stream(), world.stream());
    let (x, y, z) = (world.buffer(), Arc::new(world.buffer()), Arc::new(world.buffer()));
    let spoiled = world.spoiled();
    world.launch(&a, &[(&x, Write)]);
    let first = world.launch(&b, &[(&x, Write)]);
    b.wait(&world.context, first, &mut MayWait::here().expect("no hold")).expect("a wait on a healthy device succeeds");
    world.launch(&a, &[(&y, Write), (&z, Write)]);
    let edges = b.counters.edges_skipped.value();
    // threads
    let other = spawn({
        let (world, b, y) = (world.clone(), b.clone(), y.clone());
        move || world.launch(&b, &[(&y, Write)])
    });
    let refused = world.try_launch(&b, &[(&z, Write), (&spoiled, Write)]);
    // join
    other.join().unwrap();
    // claim: the device, and that the host waits for all
    assert!(refused.is_err(), "O5: a launch behind an edge that fails is refused");
    reached.mark_if(b.counters.edges_skipped.value() > edges, "an edge was skipped");
    world.host_writes(&z);
    world.host_writes(&y);
}

fn view_beside_covered(reached: &Reached) {
    // setup: A covers X, and what it wrote is done
    let world = Arc::new(World::plain());
    let a = world.stream();
    let x = Arc::new(world.buffer());
    let bytes = Arc::new(super::checker::Witness::new());
    let first = world.launch(&a, &[(&x, Write)]);
    a.wait(&world.context, first, &mut MayWait::here().expect("no hold")).expect("a wait on a healthy device succeeds");
    // threads
    let owner = spawn({
        let (world, a, x, bytes) = (world.clone(), a.clone(), x.clone(), bytes.clone());
        move || {
            let uses = [Use::new(&x.record, Write)];
            let pointers = [(x.address, BYTES, true)];
            let answer = submit(&world.context, &a, &uses, Call::Launch, |device, raw| {
                bytes.write("O3: a covered launch is not ordered with the host's look at its view", || {});
                device.kernel(raw, &pointers)
            });
            answer.is_ok()
        }
    });
    let viewed = x.record.begin_view(&world.context, Read, &mut MayWait::here().expect("no hold")).is_ok();
    assert!(viewed, "O3: a view was refused though nobody else has one");
    let before = world.device.count(Call::Launch) == 2;
    world.device.host_reads(x.address, BYTES);
    bytes.read("O3: a covered launch is not ordered with the host's look at its view", || {});
    x.record.end_view(Read);
    // join
    let launched = owner.join().unwrap();
    // claim: the device and its witness
    reached.mark_if(!launched, "the launch was refused");
    reached.mark_if(launched && !before, "the launch came after the view");
    reached.mark_if(launched && before, "the launch came before the view");
}

fn follow_map(reached: &Reached) {
    // setup: X and Y were written on A
    let world = Arc::new(World::new());
    let (a, b) = (world.stream(), world.stream());
    let (x, y) = world.two_buffers();
    world.launch(&a, &[(&x, Write), (&y, Write)]);
    // threads: A writes Y once more while B takes X, then Y
    let source = spawn({
        let (world, a, y) = (world.clone(), a.clone(), y.clone());
        move || world.launch(&a, &[(&y, Write)])
    });
    world.launch(&b, &[(&x, Write)]);
    world.launch(&b, &[(&y, Write)]);
    // join
    source.join().unwrap();
    // claim
    let edges = world.device.count(Call::StreamWaitEvent);
    reached.mark_if(edges == 1, "an edge was skipped");
    reached.mark_if(edges == 2, "two edges were inserted");
    world.host_writes(&y);
}

fn shared_edge(reached: &Reached) {
    shared_edge_in(World::plain(), reached);
}

fn shared_edge_biased(reached: &Reached) {
    shared_edge_in(World::new(), reached);
}

fn shared_edge_in(world: World, reached: &Reached) {
    // setup
    let world = Arc::new(world);
    let (a, b) = (world.stream(), world.stream());
    let buffers = [Arc::new(world.buffer()), Arc::new(world.buffer())];
    world.launch(&a, &[(&buffers[0], Write)]);
    world.launch(&a, &[(&buffers[1], Write)]);
    // threads
    let other = spawn({
        let (world, b, x) = (world.clone(), b.clone(), buffers[0].clone());
        move || world.launch(&b, &[(&x, Write)])
    });
    world.launch(&b, &[(&buffers[1], Write)]);
    // join
    other.join().unwrap();
    // claim
    let edges = world.device.count(Call::StreamWaitEvent);
    reached.mark_if(edges == 1, "one edge served both");
}

fn event_of_a_stream(reached: &Reached) {
    // setup: an earlier edge made the event
    let world = Arc::new(World::new());
    let (a, b, c) = (world.stream(), world.stream(), world.stream());
    let (w, x, y) = (world.buffer(), Arc::new(world.buffer()), Arc::new(world.buffer()));
    world.launch(&a, &[(&w, Write)]);
    world.launch(&b, &[(&w, Write)]);
    world.launch(&a, &[(&x, Write)]);
    world.launch(&c, &[(&y, Write)]);
    // threads
    let other = spawn({
        let (world, b, y) = (world.clone(), b.clone(), y.clone());
        move || world.launch(&b, &[(&y, Write)])
    });
    world.launch(&b, &[(&x, Write)]);
    // join
    other.join().unwrap();
    // claim: the device, which knows what each wait really ordered
    let calls = (world.device.count(Call::EventCreate), world.device.count(Call::StreamWaitEvent));
    assert_eq!(calls, (1, 3), "O1: a stream makes one event, and waits by it each time");
    reached.mark("the stream's own event was used");
}

/// Waits until `number` of the stream is complete.
fn wait(world: &World, stream: &StreamState<Device>, number: u64) {
    let mut may = MayWait::here().expect("no hold");
    stream.wait(&world.context, number, &mut may).expect("a wait on a healthy device succeeds");
}

fn close_beside_covered(reached: &Reached) {
    // setup: A covers X, and all that it wrote is known to be complete
    let world = Arc::new(World::plain());
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    wait(&world, &a, world.launch(&a, &[(&x, Write)]));
    // threads
    let owner = spawn({
        let (world, a, x) = (world.clone(), a.clone(), x.clone());
        move || world.launch(&a, &[(&x, Write)])
    });
    world.launch(&b, &[(&x, Write)]);
    // join
    owner.join().unwrap();
    // claim: the device
    let moves = a.counters.handovers.value();
    reached.mark_if(moves == 1, "the covered launch came first");
    reached.mark_if(moves == 2, "the move came first");
}

fn close_beside_read(reached: &Reached) {
    // setup: A reads X through its slot, and all that it read is known to be complete
    let world = Arc::new(World::plain());
    let (a, b) = (world.stream(), world.stream());
    let x = Arc::new(world.buffer());
    wait(&world, &a, world.launch(&a, &[(&x, Read)]));
    // threads
    let reader = spawn({
        let (world, a, x) = (world.clone(), a.clone(), x.clone());
        move || world.launch(&a, &[(&x, Read)])
    });
    world.launch(&b, &[(&x, Write)]);
    // join
    reader.join().unwrap();
    // claim: the device
    let moves = a.counters.handovers.value();
    reached.mark_if(moves == 1, "the read came first");
    reached.mark_if(moves == 2, "the write came first");
}

fn refused_behind_readers(reached: &Reached) {
    // setup: two streams read X; ours waited for the second before, by way of Y, and that is passed
    let world = Arc::new(World::plain());
    let (ours, first, second) = (world.stream(), world.stream(), world.stream());
    let (x, y) = (Arc::new(world.buffer()), world.buffer());
    let spoiled = world.spoiled();
    world.launch(&first, &[(&x, Read)]);
    world.launch(&second, &[(&x, Read)]);
    world.launch(&second, &[(&y, Write)]);
    wait(&world, &ours, world.launch(&ours, &[(&y, Write)]));
    let edges = ours.counters.edges_skipped.value();
    // threads
    let reader = spawn({
        let (world, first, x) = (world.clone(), first.clone(), x.clone());
        move || world.launch(&first, &[(&x, Read)])
    });
    let refused = world.try_launch(&ours, &[(&x, Write), (&spoiled, Write)]);
    // join
    reader.join().unwrap();
    // claim: the device, and that the host waits for all
    assert!(refused.is_err(), "O5: a launch behind an edge that fails is refused");
    reached.mark_if(ours.counters.edges_skipped.value() > edges, "an edge was skipped");
    world.host_writes(&x);
}
