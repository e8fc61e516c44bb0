//! Does the simulator's work grow with what is done, or faster? `cliffs CASE SIZE`, or lists the cases with a size. Run under
//! callgrind by `benches/cliffs.sh`, which compares each case with itself at twice the size.

use std::process::ExitCode;
use std::ptr::NonNull;

use tenure::driver::{DeviceAddress, Driver, HostPointer, Location, Priority};
use tenure_benches::bed::expect;
use tenure_sim::Sim;
use tenure_sim::driver::SimStream;

/// What is done so often.
type Case = fn(&Sim, usize);

const CASES: &[(&str, usize, Case)] = &[
    ("streams_come_and_go_over_live_allocations", 1000, come_and_go),
    ("streams_all_pending", 400, all_pending),
    ("copies_from_pageable_ranges_without_a_wait", 2000, pageable),
    ("fills_of_every_second_byte", 5000, second_bytes),
    ("mebibytes_allocated_of_which_64_bytes_are_used", 512, mostly_unused),
];

fn stream(sim: &Sim) -> SimStream {
    expect(sim.stream_create(Priority::Normal))
}

fn fill(sim: &Sim, stream: &SimStream, at: DeviceAddress, bytes: u64) {
    // SAFETY: every case frees memory only after its streams have run out.
    expect(unsafe { sim.fill(stream, at, 1, bytes) });
}

fn end(sim: &Sim, stream: SimStream) {
    expect(sim.stream_synchronize(&stream));
    // SAFETY: all its work has completed, and the caller gives the handle up.
    expect(unsafe { sim.stream_destroy(&stream) });
}

fn free(sim: &Sim, memory: DeviceAddress) {
    // SAFETY: all that used it has completed.
    expect(unsafe { sim.free(memory) });
}

fn come_and_go(sim: &Sim, size: usize) {
    let memory: Vec<_> = (0..size).map(|_| expect(sim.malloc(64))).collect();
    for memory in &memory {
        let stream = stream(sim);
        fill(sim, &stream, *memory, 64);
        end(sim, stream);
    }
    memory.into_iter().for_each(|memory| free(sim, memory));
}

fn all_pending(sim: &Sim, size: usize) {
    let memory = expect(sim.malloc(64 * size as u64));
    let streams: Vec<_> = (0..size).map(|_| stream(sim)).collect();
    for (index, stream) in streams.iter().enumerate() {
        fill(sim, stream, memory.offset(64 * index as u64), 64);
    }
    streams.into_iter().for_each(|stream| end(sim, stream));
    free(sim, memory);
}

fn pageable(sim: &Sim, size: usize) {
    let mut bytes = vec![0_u8; 128 * size];
    let host = HostPointer(NonNull::from(&mut *bytes).cast());
    let (stream, memory) = (stream(sim), expect(sim.malloc(64)));
    for index in 0..size {
        let from = Location::Host(host.offset(128 * index));
        // SAFETY: `bytes` stays, and nobody else touches it, until the stream has run out.
        expect(unsafe { sim.copy(&stream, Location::Device(memory), from, 64) });
    }
    end(sim, stream);
    free(sim, memory);
}

fn second_bytes(sim: &Sim, size: usize) {
    let (stream, memory) = (stream(sim), expect(sim.malloc(2 * size as u64)));
    (0..size as u64).for_each(|index| fill(sim, &stream, memory.offset(2 * index), 1));
    end(sim, stream);
    free(sim, memory);
}

fn mostly_unused(sim: &Sim, mebibytes: usize) {
    let (stream, memory) = (stream(sim), expect(sim.malloc((mebibytes as u64) << 20)));
    fill(sim, &stream, memory, 64);
    end(sim, stream);
    free(sim, memory);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, size] = &arguments[..] else {
        CASES.iter().for_each(|(name, size, _)| println!("{name} {size}"));
        return ExitCode::SUCCESS;
    };
    match (CASES.iter().find(|(known, ..)| known == name), size.parse()) {
        (Some((.., case)), Ok(size)) => {
            let sim = Sim::builder().seed(1).build();
            case(&sim, size);
            let report = sim.finish();
            assert!(report.is_clean(), "{report}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: cliffs [CASE SIZE]");
            ExitCode::FAILURE
        }
    }
}
