//! Which work on a buffer comes after which: O1 to O9.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tenure::driver::{Call, ErrorKind};
use tenure::{Error, Misuse, Queue};

use super::list_cases;
use crate::bench::Bench;
use crate::rig::{Brake, Lent, Rig};

list_cases!("ownership": raw [] contract [
    o1_a_read_elsewhere_comes_after_the_write,
    o1_a_write_elsewhere_comes_after_the_read,
    o1_two_reads_need_no_edge,
    o1_an_edge_is_not_inserted_twice,
    o2_busy_until_the_work_has_completed,
    o2_one_launches_one_synchronizes,
    o2_the_owners_own_read_is_work_too,
    o2_reads_of_an_owner_before_are_not_the_next_ones,
    o3_a_read_waits_for_the_write,
    o3_a_host_write_waits_for_reads,
    o3_a_view_keeps_the_device_away,
    o4_two_threads_and_two_streams_lose_no_write,
    o5_duplicates_collapse,
    o5_crossing_launches_do_not_deadlock,
    o5_a_failed_launch_leaves_buffers_usable,
    o5_a_failed_edge_leaves_buffers_usable,
    o5_a_refused_retake_keeps_its_own_last_write,
    o5_a_refused_launch_behind_a_second_wait_keeps_it,
    o6_a_free_comes_once_and_after_the_work,
    o6_the_last_of_two_holders_frees,
    o7_a_handle_used_again_is_not_the_same_stream,
    o8_nothing_of_zero_size_reaches_the_driver,
    o9_two_readers_are_both_waited_for,
    o9_the_owners_read_is_waited_for_when_another_joined,
    o9_more_readers_than_slots,
    o9_finished_readers_are_forgotten,
]);

fn o1_a_read_elsewhere_comes_after_the_write<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&b, 10));
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 5).expect("a write is launched");
    rig.sum(&b, &x, &mut y).expect("a read is launched");
    brake.release();
    assert_eq!(b.read(&y).expect("a read"), [16; 4], "O1: the read came after the write");
    drop((a, b, x, y));
    rig.close();
}

fn o1_a_write_elsewhere_comes_after_the_read<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&a, 10));
    // The write is done, so that nothing but the read is left to wait for.
    a.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.sum(&a, &x, &mut y).expect("a read is launched");
    rig.bump(&b, &mut x, 5).expect("a write is launched");
    assert!(!b.is_idle().expect("a question"), "O9: the write waits for the held read");
    brake.release();
    assert_eq!(a.read(&y).expect("a read"), [11; 4], "O1: the read came before the write");
    assert_eq!(b.read(&x).expect("a read"), [6; 4], "O1: and the write came");
    drop((a, b, x, y));
    rig.close();
}

fn o1_two_reads_need_no_edge<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b, c) = (rig.stream(), rig.stream(), rig.stream());
    let x = rig.four(&a, 1);
    let (mut y, mut z) = (rig.four(&b, 0), rig.four(&c, 0));
    for stream in [&a, &b, &c] {
        stream.synchronize().expect("a wait");
    }
    let brake = Brake::new(bench);
    brake.hold(&b);
    rig.sum(&b, &x, &mut y).expect("a read is launched");
    let mark = rig.tap.log.mark();
    rig.sum(&c, &x, &mut z).expect("another read is launched");
    let calls = rig.tap.log.since(mark);
    assert!(!calls.contains(&Call::StreamWaitEvent), "O1: two reads need no edge, but: {calls:?}");
    assert_eq!(c.read(&z).expect("a read"), [1; 4], "the second reader runs while the first is held");
    assert!(y.is_busy(), "the first reader is still held");
    brake.release();
    drop((a, b, c, x, y, z));
    rig.close();
}

fn o1_an_edge_is_not_inserted_twice<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&a, 2));
    let mut z = rig.four(&b, 0);
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 1).expect("a write is launched");
    rig.bump(&a, &mut y, 1).expect("a write is launched");
    let mark = rig.tap.log.mark();
    rig.sum(&b, &x, &mut z).expect("the first read is launched");
    rig.sum(&b, &y, &mut z).expect("the second read is launched");
    let waits = rig.tap.log.since(mark).iter().filter(|call| **call == Call::StreamWaitEvent).count();
    assert_eq!(waits, 1, "O1: one wait for all of the other stream is enough");
    let figures = rig.runtime.stats().streams;
    assert_eq!((figures.edges_inserted, figures.edges_skipped), (1, 1), "and is told: {figures:?}");
    brake.release();
    assert_eq!(b.read(&z).expect("a read"), [5; 4], "O1: both reads came after their writes");
    drop((a, b, x, y, z));
    rig.close();
}

fn o2_busy_until_the_work_has_completed<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 1);
    stream.synchronize().expect("a wait");
    assert!(!x.is_busy(), "O2: all work is known to have completed");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut x, 1).expect("a write is launched");
    assert!(x.is_busy() && !stream.is_idle().expect("a question"), "O2: held work has not completed");
    brake.release();
    x.synchronize().expect("a wait");
    assert!(!x.is_busy(), "O2: the wait has told");
    drop((stream, x));
    rig.close();
}

fn o2_one_launches_one_synchronizes<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut x = rig.four(&stream, 0);
    thread::scope(|scope| {
        let other = stream.clone();
        let waiting = scope.spawn(move || {
            for _ in 0..50 {
                other.synchronize().expect("a wait");
            }
        });
        for _ in 0..50 {
            rig.bump(&stream, &mut x, 1).expect("a write is launched");
        }
        waiting.join().expect("the waiting thread ends");
    });
    // A wait that took credit for a launch that came after it would have left the last one looking clean.
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.bump(&stream, &mut x, 1).expect("a write is launched");
    assert!(x.is_busy(), "O2: the held launch is not covered by an earlier wait");
    brake.release();
    assert_eq!(stream.read(&x).expect("a read"), [51; 4], "O3: every launch is seen");
    drop((stream, x));
    rig.close();
}

fn o2_the_owners_own_read_is_work_too<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut pinned = rig.runtime.wrap(vec![3_u32; 4]).expect("a wrap");
    let mut y = rig.four(&stream, 0);
    rig.bump(&stream, &mut pinned, 1).expect("a write is launched: the stream owns the memory");
    stream.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.sum(&stream, &pinned, &mut y).expect("a read is launched");
    assert!(pinned.is_busy(), "O2: the held read has not completed");
    drop(pinned);
    rig.runtime.poll();
    assert_eq!(rig.tap.log.count(Call::HostUnregister), 0, "P3: nor is the memory let go");
    brake.release();
    assert_eq!(stream.read(&y).expect("a read"), [4; 4], "O3: the read saw the write");
    drop((stream, y));
    rig.drain();
    rig.close();
}

fn o2_reads_of_an_owner_before_are_not_the_next_ones<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let mut pinned = rig.runtime.wrap(vec![3_u32; 4]).expect("a wrap");
    let mut y = rig.four(&a, 0);
    rig.bump(&a, &mut pinned, 1).expect("a write is launched: the stream owns the memory");
    for _ in 0..8 {
        rig.sum(&a, &pinned, &mut y).expect("a read is launched");
    }
    rig.bump(&b, &mut pinned, 1).expect("a write elsewhere is launched, the first of its stream");
    b.synchronize().expect("a wait");
    assert!(!pinned.is_busy(), "O2: its stream has no submission that is not complete");
    assert_eq!(a.read(&y).expect("a read"), [32; 4], "O1: the reads came before the second write");
    drop((a, b, y, pinned));
    rig.drain();
    rig.close();
}

fn o3_a_read_waits_for_the_write<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let mut x = rig.four(&a, 1);
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 1).expect("a write is launched");
    thread::scope(|scope| {
        let reading = scope.spawn(|| b.read(&x).expect("a read"));
        thread::sleep(Duration::from_millis(5));
        assert!(!reading.is_finished(), "O3: the read waits for the held write");
        brake.release();
        assert_eq!(reading.join().expect("the reading thread ends"), [2; 4], "O3: the read sees the write");
    });
    drop((a, b, x));
    rig.close();
}

fn o3_a_host_write_waits_for_reads<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut pinned = rig.runtime.wrap(vec![3_u32; 4]).expect("a wrap");
    let mut y = rig.four(&stream, 0);
    let brake = Brake::new(bench);
    brake.hold(&stream);
    rig.sum(&stream, &pinned, &mut y).expect("a read is launched");
    assert_eq!(pinned.read().expect("a view")[0], 3, "O3: a host read does not wait for device reads");
    thread::scope(|scope| {
        let writing = scope.spawn(|| pinned.write().expect("a view").fill(100));
        thread::sleep(Duration::from_millis(5));
        assert!(!writing.is_finished(), "O3: the host write waits for the held read");
        brake.release();
        writing.join().expect("the writing thread ends");
    });
    assert_eq!(stream.read(&y).expect("a read"), [3; 4], "O3: the device read what was there before");
    drop((stream, pinned, y));
    rig.close();
}

fn o3_a_view_keeps_the_device_away<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mut memory = Lent::from(vec![1_u32; 4]);
    let start = memory.start();
    // SAFETY: P4. The vector outlives the runtime, and is touched through views only.
    let mut first = unsafe { rig.wrap_at(start) }.expect("a wrap");
    // SAFETY: P4. As above.
    let mut second = unsafe { rig.wrap_at(start) }.expect("a second wrap of the range");
    let mut y = rig.four(&stream, 0);
    let reading = first.read().expect("a view");
    rig.sum(&stream, &second, &mut y).expect("the device reads beside a reading view");
    let refused = rig.bump(&stream, &mut second, 1);
    assert_eq!(refused, Err(Error::Misuse(Misuse::HostView)), "O3: the device does not write beside a view");
    drop(reading);
    let writing = first.write().expect("a view");
    let refused = rig.sum(&stream, &second, &mut y);
    assert_eq!(refused, Err(Error::Misuse(Misuse::HostView)), "O3: nor does it read beside a writing one");
    assert!(second.read().is_err(), "O3: nor does another view");
    drop(writing);
    rig.bump(&stream, &mut second, 1).expect("the device writes after the view");
    assert_eq!(first.read().expect("a view")[..], [2; 4], "O3: the host reads after the device");
    drop((stream, first, second, y));
    rig.close();
    drop(memory);
}

fn o4_two_threads_and_two_streams_lose_no_write<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let mut memory = Lent::from(vec![0_u32; 4]);
    let start = memory.start();
    thread::scope(|scope| {
        for _ in 0..2 {
            let rig = &rig;
            scope.spawn(move || {
                let stream = rig.stream();
                // SAFETY: P4. The vector outlives the runtime, and the host reads it at the end.
                let mut wrap = unsafe { rig.wrap_at(start) }.expect("a wrap");
                for _ in 0..100 {
                    rig.bump(&stream, &mut wrap, 1).expect("a write is launched");
                }
            });
        }
    });
    rig.close();
    assert_eq!(memory[..], [200; 4], "O4: every write of both streams was ordered after the one before");
}

fn o5_duplicates_collapse<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let mut x = a.upload(&[1_u32, 1, 20, 20]).expect("an upload");
    {
        let (left, mut right) = x.split_at_mut(2).expect("a split");
        rig.sum(&b, &left, &mut right).expect("one buffer is read and written by one launch");
    }
    assert_eq!(a.read(&x).expect("a read"), [1, 1, 21, 21], "O5: named twice, used once, as a writer");
    drop((a, b, x));
    rig.close();
}

fn o5_crossing_launches_do_not_deadlock<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let mut memory = Lent::from(vec![1_u32; 8]);
    let start = memory.start();
    thread::scope(|scope| {
        for turned in [false, true] {
            let rig = &rig;
            scope.spawn(move || {
                let stream = rig.stream();
                // SAFETY: P4. The vector outlives the runtime, and the host does not touch it meanwhile.
                let mut left = unsafe { rig.wrap_at(start) }.expect("a wrap");
                // SAFETY: P4. As above, for the second half.
                let right = unsafe { rig.wrap_at(start.offset(16)) };
                let mut right = right.expect("a wrap");
                for _ in 0..100 {
                    match turned {
                        false => rig.sum(&stream, &left, &mut right).expect("a launch"),
                        true => rig.sum(&stream, &right, &mut left).expect("a launch"),
                    }
                }
            });
        }
    });
    rig.close();
    assert!(memory[0] > 1 || memory[4] > 1, "O5: the launches ran");
}

fn o5_a_failed_launch_leaves_buffers_usable<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&b, 10));
    rig.tap.rules.fail(Call::Launch, 1, ErrorKind::InvalidValue);
    let failed = rig.sum(&b, &x, &mut y);
    let failure = failed.as_ref().expect_err("the launch fails").failure().expect("with the driver's words");
    assert_eq!((failure.call, failure.kind), (Call::Launch, ErrorKind::InvalidValue), "R7: it names the call");
    rig.bump(&a, &mut x, 1).expect("the reader's buffer is usable where it was");
    rig.sum(&b, &x, &mut y).expect("and the launch can be made again");
    assert_eq!(a.read(&y).expect("a read"), [12; 4], "O5: in order");
    drop((a, b, x, y));
    rig.close();
}

fn o5_a_failed_edge_leaves_buffers_usable<B: Bench>(bench: &B) {
    for call in [Call::EventCreate, Call::EventRecord, Call::StreamWaitEvent] {
        for nth in 1..=2 {
            let rig = Rig::new(bench);
            let (a, b, c) = (rig.stream(), rig.stream(), rig.stream());
            let (mut x, mut y, mut z) = (rig.four(&a, 1), rig.four(&b, 2), rig.four(&c, 0));
            let brake = Brake::new(bench);
            brake.hold(&a);
            brake.hold(&b);
            rig.bump(&a, &mut x, 1).expect("a write is launched");
            rig.bump(&b, &mut y, 1).expect("a write is launched");
            rig.tap.rules.fail(call, nth, ErrorKind::Unknown);
            let first = rig.sum(&c, &x, &mut z);
            let second = rig.sum(&c, &y, &mut z);
            let reached = rig.tap.rules.clear();
            let failed = usize::from(first.is_err()) + usize::from(second.is_err());
            assert_eq!(failed, usize::from(reached), "O5: {call} {nth} failed one launch");
            if first.is_err() {
                rig.sum(&c, &x, &mut z).expect("the launch can be made again");
            }
            if second.is_err() {
                rig.sum(&c, &y, &mut z).expect("the launch can be made again");
            }
            rig.bump(&a, &mut z, 100).expect("the written buffer can move on");
            brake.release();
            assert_eq!(b.read(&z).expect("a read"), [105; 4], "O5: after a failed {call}, all is still ordered");
            drop((a, b, c, x, y, z));
            rig.close();
        }
    }
}

fn frees<B: Bench>(rig: &Rig<B::Driver>) -> usize {
    rig.tap.log.count(Call::FreeAsync) + rig.tap.log.count(Call::Free)
}

fn o5_a_refused_retake_keeps_its_own_last_write<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let mut x = rig.four(&a, 1);
    a.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 1).expect("a write that is held");
    rig.tap.rules.fail(Call::StreamWaitEvent, 1, ErrorKind::InvalidValue);
    assert!(rig.bump(&b, &mut x, 1).is_err(), "the cover is closed, and nobody gets it");
    rig.tap.rules.fail(Call::Launch, 1, ErrorKind::InvalidValue);
    assert!(rig.bump(&a, &mut x, 1).is_err(), "its last writer takes it back, and is refused");
    assert!(x.is_busy(), "O5: its own write is still what runs last");
    brake.release();
    a.synchronize().expect("a wait");
    assert!(!x.is_busy(), "O2: and now it has run");
    drop((a, b, x));
    rig.close();
}

fn o5_a_refused_launch_behind_a_second_wait_keeps_it<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let [mut x, mut y, mut z] = [(); 3].map(|()| rig.four(&a, 1));
    rig.bump(&b, &mut x, 1).expect("a first wait for the other stream");
    b.synchronize().expect("which is passed");
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut y, 1).expect("a write that is held");
    rig.bump(&a, &mut z, 1).expect("a write that is held");
    rig.bump(&b, &mut y, 1).expect("a second wait, which reaches both");
    rig.tap.rules.fail(Call::Launch, 1, ErrorKind::InvalidValue);
    assert!(rig.bump(&b, &mut z, 1).is_err(), "refused, behind the second wait");
    assert!(z.is_busy(), "O5: the second wait stands for what was taken over, not the first");
    brake.release();
    b.synchronize().expect("a wait");
    a.synchronize().expect("a wait");
    drop((a, b, x, y, z));
    rig.close();
}

fn o6_a_free_comes_once_and_after_the_work<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b) = (rig.stream(), rig.stream());
    let (mut x, mut y) = (rig.four(&a, 1), rig.four(&b, 0));
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.bump(&a, &mut x, 1).expect("a write is launched");
    rig.sum(&b, &x, &mut y).expect("a read is launched");
    let mark = rig.tap.log.mark();
    drop(x);
    assert_eq!(rig.tap.log.since(mark), [], "R1: a drop makes no driver call");
    rig.runtime.poll();
    assert_eq!(frees::<B>(&rig), 0, "O6: two streams still use it");
    brake.release();
    assert_eq!(b.read(&y).expect("a read"), [2; 4], "O6: its last reader saw it");
    a.synchronize().expect("a wait");
    rig.drain();
    assert_eq!(frees::<B>(&rig), 1, "O6: freed once");
    drop((a, b, y));
    rig.close();
}

fn o6_the_last_of_two_holders_frees<B: Bench>(bench: &B) {
    for graph_first in [true, false] {
        let rig = Rig::new(bench);
        let stream = rig.stream();
        let mut x = rig.four(&stream, 1);
        let graph = rig.runtime.capture(|capture| rig.bump(capture, &mut x, 1)).expect("a graph");
        stream.synchronize().expect("a wait");
        let before = frees::<B>(&rig);
        match graph_first {
            true => drop(graph),
            false => {
                drop(x);
                rig.drain();
                assert_eq!(frees::<B>(&rig), before, "C4: the graph still holds it");
                drop(graph);
                rig.drain();
                assert_eq!(frees::<B>(&rig), before + 1, "O6: freed by the last holder");
                drop(stream);
                rig.close();
                continue;
            }
        }
        rig.drain();
        assert_eq!(frees::<B>(&rig), before, "O6: the buffer still holds it");
        drop(x);
        rig.drain();
        assert_eq!(frees::<B>(&rig), before + 1, "O6: freed by the last holder");
        drop(stream);
        rig.close();
    }
}

fn o7_a_handle_used_again_is_not_the_same_stream<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let first = rig.stream();
    let mut x = rig.four(&first, 1);
    first.synchronize().expect("a wait");
    let id = first.id();
    drop(first);
    assert_eq!(rig.runtime.trim(), 1, "the idle stream is destroyed");
    let second = rig.stream();
    assert_ne!(second.id(), id, "O7: whatever its handle is, it is another stream");
    assert!(!x.is_busy(), "S6: what the destroyed stream had is finished");
    let brake = Brake::new(bench);
    brake.hold(&second);
    let mark = rig.tap.log.mark();
    rig.bump(&second, &mut x, 1).expect("a write is launched");
    let calls = rig.tap.log.since(mark);
    assert_eq!(calls, [Call::Launch], "S6: nothing is asked of the destroyed stream");
    assert!(x.is_busy(), "O7: the new stream's work is not taken for the old one's");
    brake.release();
    assert_eq!(second.read(&x).expect("a read"), [2; 4], "and it runs");
    drop((second, x));
    rig.close();
}

fn o8_nothing_of_zero_size_reaches_the_driver<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let stream = rig.stream();
    let mark = rig.tap.log.mark();
    let mut empty = stream.upload::<u32>(&[]).expect("an empty upload");
    let mut other = stream.alloc::<u32>(0).expect("an empty allocation");
    stream.fill(&mut empty, 1).expect("an empty fill");
    stream.copy(&empty, &mut other).expect("an empty copy");
    assert!(stream.read(&empty).expect("an empty read").is_empty(), "O8: nothing comes back");
    let wrapped = rig.runtime.wrap(Vec::<u32>::new()).expect("an empty wrap");
    assert!(wrapped.read().expect("an empty view").is_empty(), "O8: nothing to see");
    let host = rig.runtime.alloc_host::<u32>(0).expect("empty host memory");
    assert!(!wrapped.is_busy() && !empty.is_busy(), "O8: nothing is ever busy");
    let shared = rig.runtime.wrap_shared(Arc::<[u32]>::from([])).expect("an empty shared wrap");
    let scoped = rig.runtime.scope(|scope| {
        let (written, read) = (scope.wrap(&mut [0_u32; 0])?, scope.wrap_shared(&[0_u32; 0])?);
        stream.copy(&read, &mut { written })
    });
    assert_eq!(scoped, Ok(()), "O8: an empty scope");
    let back: Vec<u32> = wrapped.into_owner().map_err(|(error, _)| error).expect("the vector comes back");
    assert!(back.is_empty(), "O8: as it was");
    drop((empty, other, host, shared));
    rig.runtime.poll();
    assert_eq!(rig.tap.log.since(mark), [], "O8: the driver saw none of it");
    drop(stream);
    rig.close();
}

fn o9_two_readers_are_both_waited_for<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b, c) = (rig.stream(), rig.stream(), rig.stream());
    let (mut x, mut y, mut z) = (rig.four(&c, 1), rig.four(&a, 0), rig.four(&b, 0));
    c.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.sum(&a, &x, &mut y).expect("the held reader is launched");
    rig.sum(&b, &x, &mut z).expect("the later reader is launched");
    rig.bump(&c, &mut x, 100).expect("the writer is launched");
    b.synchronize().expect("the later reader ends");
    assert!(!c.is_idle().expect("a question"), "O9: the writer waits for the held reader as well");
    brake.release();
    assert_eq!(a.read(&y).expect("a read"), [1; 4], "O9: the held reader read what was there before the write");
    assert_eq!(c.read(&x).expect("a read"), [101; 4], "and the write came");
    drop((a, b, c, x, y, z));
    rig.close();
}

fn o9_the_owners_read_is_waited_for_when_another_joined<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b, c) = (rig.stream(), rig.stream(), rig.stream());
    let (mut x, mut y, mut z) = (rig.four(&a, 1), rig.four(&a, 0), rig.four(&b, 0));
    // The write is done, so that nothing but the read is left to wait for.
    a.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    brake.hold(&a);
    rig.sum(&a, &x, &mut y).expect("the owner's held read is launched");
    rig.sum(&b, &x, &mut z).expect("a reader joins");
    rig.bump(&c, &mut x, 100).expect("the writer is launched");
    b.synchronize().expect("the reader that joined ends");
    assert!(!c.is_idle().expect("a question"), "O9: the writer waits for the owner's held read as well");
    brake.release();
    assert_eq!(a.read(&y).expect("a read"), [1; 4], "O9: the held read read what was there before the write");
    assert_eq!(c.read(&x).expect("a read"), [101; 4], "and the write came");
    drop((a, b, c, x, y, z));
    rig.close();
}

fn o9_more_readers_than_slots<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let writer = rig.stream();
    let mut x = rig.four(&writer, 1);
    writer.synchronize().expect("a wait");
    let brake = Brake::new(bench);
    let mut readers: Vec<_> = (0..26)
        .map(|_| {
            let stream = rig.stream();
            let y = rig.four(&stream, 0);
            brake.hold(&stream);
            (stream, y)
        })
        .collect();
    for _ in 0..2 {
        for (stream, y) in &mut readers {
            rig.sum(stream, &x, y).expect("a reader is launched");
        }
    }
    let before = rig.runtime.stats().streams;
    rig.bump(&writer, &mut x, 100).expect("the writer is launched");
    let after = rig.runtime.stats().streams;
    let edges = (after.edges_inserted - before.edges_inserted, after.edges_skipped - before.edges_skipped);
    assert_eq!(edges, (readers.len() as u64, 0), "O9: one edge from the last read of each stream");
    assert!(!writer.is_idle().expect("a question"), "O9: the writer waits");
    brake.release();
    assert_eq!(writer.read(&x).expect("a read"), [101; 4], "the write came");
    for (stream, y) in &readers {
        assert_eq!(stream.read(y).expect("a read"), [2; 4], "O9: after every read of every stream");
    }
    drop((readers, writer, x));
    rig.close();
}

fn o9_finished_readers_are_forgotten<B: Bench>(bench: &B) {
    let rig = Rig::new(bench);
    let (a, b, c) = (rig.stream(), rig.stream(), rig.stream());
    let (mut x, mut y, mut z) = (rig.four(&a, 1), rig.four(&a, 0), rig.four(&b, 0));
    rig.sum(&a, &x, &mut y).expect("a reader is launched");
    rig.sum(&b, &x, &mut z).expect("a reader is launched");
    a.synchronize().expect("a wait");
    b.synchronize().expect("a wait");
    let before = rig.runtime.stats().streams;
    rig.bump(&c, &mut x, 1).expect("a writer is launched");
    rig.bump(&c, &mut x, 1).expect("a writer is launched again");
    let after = rig.runtime.stats().streams;
    let counts = |figures: tenure::pool::state::Figures| {
        [figures.launches, figures.covered, figures.handovers, figures.edges_inserted, figures.edges_skipped]
    };
    let (before, after) = (counts(before), counts(after));
    let grown: [u64; 5] = std::array::from_fn(|index| after[index] - before[index]);
    assert_eq!(grown, [2, 1, 1, 0, 1], "O9: of what has completed the last write alone is still looked at");
    assert_eq!(c.read(&x).expect("a read"), [3; 4], "O1: both writes came");
    drop((a, b, c, x, y, z));
    rig.close();
}
