//! What ends badly: unwinding, forgotten handles, a shutdown beside the worker and other handles, a lost device: R1, R3 to R6, R11.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::capture::{buffers, drain, manual};
use super::checker::spawn;
use super::device::Device;
use super::ownership::BYTES;
use super::tenure::driver::{Call, Capabilities, DeviceAddress, ErrorKind};
use super::tenure::error::Error;
use super::tenure::ownership::Access::Write;
use super::tenure::queue::{Memory, Submit};
use super::tenure::sync::{Arc, leak};
use super::tenure::{Buffer, Config, Queue, Readable, Runtime, Stream};
use super::{Model, Reached};
use crate::schedule;

/// What the models of this file have in common.
const MODEL: Model = Model { leaves_out: "time: a deadline of zero has passed, any other never comes", ..Model::USUAL };

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "r4_kept_memory_outlives_its_copy",
        claim: "Memory that a copy uses is kept until the copy has completed, whatever is dropped or forgotten, beside turns.",
        lines: &["R4", "O6", "P11"],
        operations: "1 copy, its memory kept, its future forgotten; 2 polls",
        bound: Some(2),
        reaches: &["a poll came before the end of the copy"],
        body: kept,
        ..MODEL
    },
    Model {
        name: "r4_unwound_work_counts",
        claim: "Work that a closure enqueued before it unwound is ordered with a launch on another stream.",
        lines: &["R4", "O1", "O4"],
        operations: "1 closure that enqueues and unwinds; 1 closure elsewhere",
        bound: Some(3),
        reaches: &["the unwound work came first"],
        body: unwound,
        ..MODEL
    },
    Model {
        name: "r5_shutdown_beside_the_worker",
        claim: "After a shutdown beside the worker and a drop nobody makes a call; what was not given back is in the report.",
        lines: &["R5", "R1", "P7"],
        operations: "the worker's own loop; 1 shutdown; 1 drop of a buffer and its stream",
        bound: Some(2),
        reaches: &["all was given back", "something was left, and reported"],
        body: shutdown,
        ..MODEL
    },
    Model {
        name: "r5_shutdown_beside_a_worker_in_a_hurry",
        claim: "A worker whose own time to drain is over leaves the end to a shutdown that has time.",
        lines: &["R5"],
        operations: "the worker's own loop, with no time to drain; 1 shutdown, with memory that waits for its work",
        bound: Some(2),
        reaches: &["all was given back"],
        body: hurry,
        ..MODEL
    },
    Model {
        name: "r5_last_handle_lets_the_worker_end",
        claim: "When the last of two handles is dropped the worker releases what can be, and ends.",
        lines: &["R5", "P7", "R2"],
        operations: "the worker's own loop; 1 drop of a buffer, its stream and a runtime; 1 drop of a runtime",
        reaches: &["the worker ended"],
        body: last_handle,
        ..MODEL
    },
    Model {
        name: "r2_worker_hears_every_drop",
        claim: "A worker that sleeps when nothing is left is woken by each of two drops, whatever it does meanwhile.",
        lines: &["R2", "P7"],
        operations: "the worker's own loop; 1 drop; 1 drop",
        bound: Some(2),
        leaves_out: "the tick: only signals wake",
        reaches: &["both were released"],
        body: every_drop,
        ..MODEL
    },
    Model {
        name: "r5_deadline_leaks_and_reports",
        claim: "What has not completed by the deadline is leaked and reported, and never released, beside a drop.",
        lines: &["R5", "P11", "O6"],
        operations: "1 shutdown whose deadline has passed; 1 drop",
        reaches: &["one thing was leaked", "two things were leaked"],
        body: deadline,
        ..MODEL
    },
    Model {
        name: "r6_lost_device_is_left_alone",
        claim: "Whoever knows that the device is lost gets errors at once and releases nothing, also while another finds out.",
        lines: &["R6", "P11", "R1"],
        operations: "1 wait that finds the loss; 1 drop, 1 poll and 1 wait",
        reaches: &["the other knew of the loss", "the other released before it"],
        body: lost,
        ..MODEL
    },
    Model {
        name: "r11_reset_is_a_loss",
        claim: "After a reset by other code the first refusal is a loss, and no old handle is used again; one refused handle is none.",
        lines: &["R11", "R6"],
        operations: "1 reset, 1 drop and 1 poll; 3 covered launches, the first refused alone",
        reaches: &["the launch came before the reset", "the other found it out"],
        body: reset,
        ..MODEL
    },
];

/// Memory of ours that a copy is said to use.
struct Kept {
    device: Device,
    address: DeviceAddress,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if schedule::is_over() {
            return;
        }
        self.device.unused(self.address, BYTES, "R4: memory of a copy went while the copy may still run");
    }
}

fn kept(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [buffer]) = buffers(&runtime);
    let address = device.memory(BYTES);
    // threads
    let poller = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            runtime.poll();
            runtime.poll();
            device.count(Call::Launch) > 0
        }
    });
    let region = buffer.region();
    let enqueue = |_: &_, raw: &_| device.kernel(raw, &[(region.address, BYTES, true), (address, BYTES, false)]);
    // SAFETY: O1, R4. One copy, to what the use names, from memory that is kept right after.
    let copied = unsafe { stream.submit_raw(Memory::write(region.backing), Call::Copy, enqueue) };
    let ((), number) = copied.expect("the driver accepts all");
    stream.keep(Box::new(Kept { device: device.clone(), address }), number);
    // Forgotten on purpose: safety must not rest on its drop.
    leak(stream.download(&buffer).expect("the driver accepts all"));
    drop(stream);
    // join
    let late = poller.join().unwrap();
    // claim: the drop of what is kept
    reached.mark_if(late, "a poll came before the end of the copy");
    drop(buffer);
    drain(&runtime);
    assert!(device.count(Call::FreeAsync) == 1, "O6: memory was freed not once");
}

fn unwound(reached: &Reached) {
    // setup
    let (device, runtime) = manual(Capabilities::default());
    let (one, [buffer]) = buffers(&runtime);
    let other = runtime.stream().expect("the pool may make streams");
    // The allocation is known to be complete, so that only the stamp of the closure's work leads to an edge.
    one.synchronize().expect("the driver accepts all");
    let buffer = Arc::new(buffer);
    // threads
    let use_on = |device: &Device, stream: &Stream<Device>, buffer: &Buffer<u8, Device>, unwinds: bool| {
        let region = buffer.region();
        let body = |raw: &_| {
            device.kernel(raw, &[(region.address, BYTES, true)]).expect("the driver accepts all");
            if unwinds {
                resume_unwind(Box::new("planned"));
            }
        };
        // SAFETY: O6. The closure enqueues one kernel on the given stream, which writes what it names.
        unsafe { stream.use_on(&[(region, Write)], body) }
    };
    let second = spawn({
        let (device, buffer) = (device.clone(), buffer.clone());
        move || {
            use_on(&device, &other, &buffer, false).expect("the driver accepts all");
            device.count(Call::Launch) == 2
        }
    });
    let unwound = catch_unwind(AssertUnwindSafe(|| use_on(&device, &one, &buffer, true)));
    // join
    let after = second.join().unwrap();
    // claim: the device, and
    assert!(unwound.is_err(), "R4: a panic of the closure was swallowed");
    reached.mark_if(after, "the unwound work came first");
    drop((one, buffer));
    drain(&runtime);
    device.ends_clean();
}

fn shutdown(reached: &Reached) {
    // setup: a worker, and work on a stream
    let device = Device::default();
    let runtime = Runtime::new(device.clone()).expect("a runtime can be made");
    let (stream, [buffer]) = buffers(&runtime);
    // threads: the worker's is the runtime's own
    let dropper = spawn(move || drop((buffer, stream)));
    let report = runtime.shutdown(Duration::from_secs(1));
    device.close("R5: a call after the shutdown");
    let (freed, alive) = (device.count(Call::FreeAsync), device.streams_alive());
    // join
    dropper.join().unwrap();
    // claim: the device, and
    reached.mark_if(report.is_clean(), "all was given back");
    reached.mark_if(!report.is_clean(), "something was left, and reported");
    assert!(!report.is_clean() || freed == 1 && alive == 0, "R5: a shutdown that left something reported nothing");
}

fn hurry(reached: &Reached) {
    // setup: a worker that may not drain, and memory whose free waits for its work
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let device = Device::new(capabilities);
    let mut config = Config::default();
    config.drain = Duration::ZERO;
    let runtime = Runtime::with(device.clone(), config).expect("a runtime can be made");
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    drop((buffer, stream));
    // threads: the worker's is the runtime's own
    let report = runtime.shutdown(Duration::from_secs(1));
    // claim
    assert!(report.is_clean(), "R5: the worker leaked what a shutdown had time for: {report:?}");
    assert_eq!(device.count(Call::Free), 1, "R5: and so it was given back");
    reached.mark("all was given back");
}

fn last_handle(reached: &Reached) {
    // setup
    let device = Device::default();
    device.await_call(Call::StreamDestroy);
    let runtime = Runtime::new(device.clone()).expect("a runtime can be made");
    let (stream, [mut buffer]) = buffers(&runtime);
    stream.fill(&mut buffer, 7).expect("the driver accepts all");
    let other = runtime.clone();
    // threads: the worker's is the runtime's own
    let dropper = spawn(move || drop((buffer, stream, other)));
    drop(runtime);
    // join
    dropper.join().unwrap();
    device.wait_for(1);
    // claim: the worker's thread ends, and
    assert_eq!(device.count(Call::FreeAsync), 1, "P7: the end of the last handle lost a release");
    reached.mark("the worker ended");
}

fn every_drop(reached: &Reached) {
    // setup
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let device = Device::new(capabilities);
    device.await_call(Call::Free);
    let runtime = Runtime::new(device.clone()).expect("a runtime can be made");
    let (stream, [one, other]) = buffers(&runtime);
    // threads: the worker's is the runtime's own
    let dropper = spawn(move || drop(other));
    drop(one);
    // join
    device.wait_for(2);
    dropper.join().unwrap();
    // claim: neither was waited for in vain
    reached.mark("both were released");
    drop((stream, runtime));
}

fn deadline(reached: &Reached) {
    // setup: two buffers with work that does not end
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let (device, runtime) = manual(capabilities);
    let (stream, [mut one, mut other]) = buffers(&runtime);
    stream.fill(&mut one, 7).expect("the driver accepts all");
    stream.fill(&mut other, 7).expect("the driver accepts all");
    device.hold_all();
    drop(one);
    // threads
    let dropper = spawn(move || drop((other, stream)));
    let report = runtime.shutdown(Duration::ZERO);
    // join
    dropper.join().unwrap();
    // claim: the device, and
    assert!(report.leaked >= 1, "R5: what a shutdown leaked is not in its report");
    reached.mark_if(report.leaked == 1, "one thing was leaked");
    reached.mark_if(report.leaked == 2, "two things were leaked");
    assert_eq!(device.count(Call::Free), 0, "P11: memory was freed though its work has not ended");
}

fn lost(reached: &Reached) {
    // setup: the next wait finds that the device is gone
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    let (device, runtime) = manual(capabilities);
    let (stream, [mut used, unused]) = buffers(&runtime);
    stream.fill(&mut used, 7).expect("the driver accepts all");
    device.fail(Call::StreamSynchronize, ErrorKind::DeviceLost, 0);
    // threads
    let other = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            let knew = runtime.lost().is_some();
            let release = || {
                drop(unused);
                runtime.poll();
            };
            match knew {
                true => {
                    device.without_calls("R6: a release was made though the device is known to be lost", &[], release)
                }
                false => release(),
            }
            knew
        }
    });
    let found = stream.synchronize();
    // claim
    assert!(matches!(found, Err(Error::Lost(_))), "R6: a wait that found the loss did not say so");
    device.without_calls("R6: a call was made though the device is known to be lost", &[], || {
        let told = matches!(used.synchronize(), Err(Error::Lost(_)));
        assert!(told, "R6: a wait after the loss did not say so");
        drop((used, stream));
    });
    // join
    let knew = other.join().unwrap();
    reached.mark_if(knew, "the other knew of the loss");
    reached.mark_if(device.count(Call::Free) == 1, "the other released before it");
    let freed = device.count(Call::Free);
    device.without_calls("R6: a poll made a call though the device is known to be lost", &[], || runtime.poll());
    assert!(freed <= 1 && device.count(Call::Free) == freed, "R6: memory of a lost device was released");
}

fn reset(reached: &Reached) {
    // setup: a handle that is refused alone
    let (device, runtime) = manual(Capabilities::default());
    let (stream, [mut used, unused]) = buffers(&runtime);
    device.fail(Call::Fill, ErrorKind::InvalidHandle, 0);
    let refused = stream.fill(&mut used, 7);
    assert!(matches!(refused, Err(Error::Driver(_))), "R11: one refused handle was taken for a reset");
    stream.fill(&mut used, 7).expect("the driver accepts it now");
    // threads
    let other = spawn({
        let (device, runtime) = (device.clone(), runtime.clone());
        move || {
            device.reset();
            drop(unused);
            runtime.poll();
            runtime.lost().is_some()
        }
    });
    let launched = stream.fill(&mut used, 7);
    // claim
    assert!(matches!(launched, Ok(()) | Err(Error::Lost(_))), "R11: a refusal that a reset explains was not a loss");
    reached.mark_if(launched.is_ok(), "the launch came before the reset");
    // join
    let knew = other.join().unwrap();
    reached.mark_if(knew, "the other found it out");
    let launched = stream.fill(&mut used, 7);
    assert!(matches!(launched, Err(Error::Lost(_))), "R11: a refusal that a reset explains was not a loss");
    device.without_calls("R11: an old handle was used after a reset was known", &[], || {
        let launched = stream.fill(&mut used, 7);
        assert!(matches!(launched, Err(Error::Lost(_))), "R11: a launch was not refused as lost");
        drop((used, stream));
        runtime.poll();
    });
}
