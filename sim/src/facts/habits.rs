//! Facts about what makes drivers harder to use than their pages say: default streams, copies and who waits in them,
//! last errors, timed events, resets. Each scene has an engine of its own, and a busy stream has two kernels.

use tenure::driver::{CaptureMode, DeviceAddress, HostPointer, Location, Timing};

use super::bench::{Bench, MAIN, OTHER, code};
use super::semantics::Report;
use crate::code::Code;
use crate::event::{EventHandle, StreamHandle};

const NULL: StreamHandle = StreamHandle::LEGACY;
const OWN: StreamHandle = StreamHandle::PER_THREAD;
const KIB: usize = 1024;

pub(super) const SCENES: &[fn(&mut Report<'_>)] = &[
    default_streams_asked,
    default_streams_waited_for,
    default_streams_beside_captures,
    calls_that_wait_or_do_not,
    copies_with_pageable_memory,
    copies_over_borders,
    last_errors,
    elapsed_times,
    events_in_graphs,
    memory_of_a_pool,
    resets,
];

/// A stream of this kind, with two kernels on it.
fn busy(bench: &mut Bench, kind: &str) -> StreamHandle {
    let stream = match kind {
        "null" => NULL,
        "per-thread" => OWN,
        "blocking" => bench.blocking_stream(),
        _ => bench.stream(),
    };
    bench.spin(stream);
    bench.spin(stream);
    stream
}

fn default_streams_asked(report: &mut Report<'_>) {
    for (asked, held) in [
        ("null", "blocking"),
        ("per-thread", "blocking"),
        ("null", "non-blocking"),
        ("null", "per-thread"),
        ("blocking", "null"),
        ("non-blocking", "null"),
    ] {
        let mut bench = report.bench();
        let stream = match asked {
            "null" => NULL,
            "per-thread" => OWN,
            "blocking" => bench.blocking_stream(),
            _ => bench.stream(),
        };
        busy(&mut bench, held);
        report.code(&format!("query {asked}, {held} busy"), bench.query(MAIN, stream));
    }
}

fn default_streams_waited_for(report: &mut Report<'_>) {
    for held in ["blocking", "non-blocking", "per-thread"] {
        let mut bench = report.bench();
        busy(&mut bench, held);
        let ms = bench.ms(|bench| done(bench.synchronize(MAIN, NULL)));
        report.ms(&format!("ms: synchronize null behind {held}"), ms);
    }
    let mut bench = report.bench();
    let (blocking, memory) = (bench.blocking_stream(), bench.memory(64));
    busy(&mut bench, "null");
    let ms = bench.ms(|bench| {
        bench.fill(blocking, memory, 64);
        bench.synchronize(MAIN, blocking);
    });
    report.ms("ms: work on blocking behind null, and a wait for it", ms);
}

fn default_streams_beside_captures(report: &mut Report<'_>) {
    for (kind, mode, word) in [
        ("non-blocking", CaptureMode::Global, "global"),
        ("blocking", CaptureMode::Global, "global"),
        ("blocking", CaptureMode::Relaxed, "relaxed"),
    ] {
        let mut bench = report.bench();
        let stream = if kind == "blocking" { bench.blocking_stream() } else { bench.stream() };
        bench.begin(stream, mode);
        report.code(&format!("launch on null beside a {word} capture of a {kind} stream"), bench.spin(NULL));
        report.code("... end", bench.end(MAIN, stream));
    }
    let mut bench = report.bench();
    let stream = bench.stream();
    bench.begin(stream, CaptureMode::Global);
    report.yes("a capture's number is above 0", bench.engine.capture_id(stream).is_some_and(|id| id.0 > 0));
}

fn calls_that_wait_or_do_not(report: &mut Report<'_>) {
    type Timed = fn(&mut Bench, DeviceAddress);
    #[rustfmt::skip]
    let calls: [(&str, &str, Timed); 7] = [
        ("memset of device memory behind a blocking stream", "blocking", fill_and_wait),
        ("copy on the device behind a blocking stream", "blocking", |b, at| b.copy_and_wait(Location::Device(at.offset(64)), Location::Device(at), 64)),
        ("copy on the device beside a non-blocking stream", "non-blocking", |b, at| b.copy_and_wait(Location::Device(at.offset(64)), Location::Device(at), 64)),
        ("copy of 4 B up from pageable memory behind a blocking stream", "blocking", |b, at| { let from = b.host(0); b.copy_and_wait(Location::Device(at), Location::Host(from), 4) }),
        ("copy of 4 B up from pageable memory beside a non-blocking stream", "non-blocking", |b, at| { let from = b.host(0); b.copy_and_wait(Location::Device(at), Location::Host(from), 4) }),
        ("free beside a non-blocking stream", "non-blocking", |b, at| { let answer = b.engine.free(MAIN, at); done(b.done(answer)); }),
        ("malloc of 64 MiB beside a non-blocking stream", "non-blocking", |b, _| done(code(b.engine.malloc(MAIN, 64 << 20)))),
    ];
    for (fact, held, call) in calls {
        let mut bench = report.bench();
        let memory = bench.memory(128);
        busy(&mut bench, held);
        let ms = bench.ms(|bench| call(bench, memory));
        report.ms(&format!("ms: {fact}"), ms);
    }
}

fn copies_with_pageable_memory(report: &mut Report<'_>) {
    for bytes in [4, 16, 4_096, 65_536, 65_537, 131_072, 1 << 20, 16 << 20] {
        for (kind, up) in [("pageable", false), ("pageable", true), ("page-locked", false), ("page-locked", true)] {
            let mut bench = Bench::with_host(report.profile, bytes);
            let (stream, memory, host) = (bench.stream(), bench.memory(bytes as u64), bench.host(0));
            if kind == "page-locked" {
                bench.register(0, bytes);
            }
            bench.spin(stream);
            bench.spin(stream);
            let (to, from) = ends(memory, host, up);
            let ms = bench.ms(|bench| done(bench.copy_of(stream, to, from, bytes as u64)));
            let way = if up { "up from" } else { "down to" };
            report.ms(&format!("ms: copy of {bytes} bytes {way} {kind} memory behind its stream"), ms);
            bench.run();
        }
    }
}

fn fill_and_wait(bench: &mut Bench, at: DeviceAddress) {
    let answer = bench.engine.fill_and_wait(MAIN, at, 1, 64);
    done(bench.done(answer));
}

fn ends(memory: DeviceAddress, host: HostPointer, up: bool) -> (Location, Location) {
    let (device, host) = (Location::Device(memory), Location::Host(host));
    if up { (device, host) } else { (host, device) }
}

fn copies_over_borders(report: &mut Report<'_>) {
    let mut bench = report.bench();
    report.code("register 64K", bench.register(0, 64 * KIB));
    report.code("... and 64K that touch it", bench.register(64 * KIB, 64 * KIB));
    let mut copy = |fact: &str, offset: usize, bytes: u64, up: bool| {
        let (stream, memory, host) = (bench.stream(), bench.memory(256 * KIB as u64), bench.host(offset));
        let (to, from) = ends(memory, host, up);
        report.code(fact, bench.copy_of(stream, to, from, bytes));
        bench.run();
    };
    let both = 128 * KIB as u64;
    copy("copy up over both registrations", 0, both, true);
    copy("copy down over both registrations", 0, both, false);
    copy("copy up inside one", 0, both / 2, true);
    copy("copy up from a registration into plain memory behind it", 64 * KIB, both, true);
    copy("copy down from a registration into plain memory behind it", 64 * KIB, both, false);
}

fn last_errors(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = busy(&mut bench, "non-blocking");
    bench.register(0, 4 * KIB);
    bench.take_last_error();
    done(bench.query(MAIN, stream));
    report.code("last error after a query of a busy stream", bench.take_last_error());
    done(bench.register(0, 4 * KIB));
    report.code("last error after registering again", bench.take_last_error());
    let plain = bench.host(8 * KIB);
    done(code(bench.engine.host_is_registered(MAIN, plain)));
    report.code("last error after asking about plain memory", bench.take_last_error());
    done(code(bench.engine.host_device_address(MAIN, plain)));
    report.code("last error after the device address of plain memory", bench.take_last_error());
    done(code(bench.engine.malloc(MAIN, 1 << 45)));
    report.code("last error after an allocation of too much", bench.take_last_error());
    let (memory, host) = (bench.memory(8 * KIB as u64), bench.host(0));
    let (to, from) = ends(memory, host, true);
    done(bench.copy_of(stream, to, from, 8 * KIB as u64));
    report.code("last error after a copy over a border", bench.take_last_error());
}

fn timed(bench: &mut Bench) -> EventHandle {
    bench.engine.event_create(MAIN, Timing::Enabled).unwrap_or(EventHandle(u64::MAX))
}

fn elapsed_times(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = busy(&mut bench, "non-blocking");
    let (pending, never, untimed) = (timed(&mut bench), timed(&mut bench), bench.event());
    bench.record(pending, stream);
    bench.record(untimed, stream);
    let mut elapsed = |fact: &str, start, end| {
        report.code(&format!("elapsed ({fact})"), code(bench.engine.event_elapsed(MAIN, start, end)));
    };
    elapsed("pending timed, untimed", pending, untimed);
    elapsed("untimed, pending timed", untimed, pending);
    elapsed("never recorded, pending", never, pending);
    let mut bench = report.bench();
    let (stream, memory) = (busy(&mut bench, "non-blocking"), bench.memory(64));
    let (start, end) = (timed(&mut bench), timed(&mut bench));
    bench.record(start, stream);
    bench.fill(stream, memory, 64);
    bench.record(end, stream);
    bench.run();
    let ms = bench.engine.event_elapsed(MAIN, start, end).map_or(f64::NAN, f64::from);
    report.ms("ms: elapsed around short work that was queued early", ms);
}

fn events_in_graphs(report: &mut Report<'_>) {
    for (external, word) in [(false, "timed"), (true, "external timed")] {
        let mut bench = report.bench();
        let stream = bench.stream();
        let (start, end) = (timed(&mut bench), timed(&mut bench));
        bench.begin(stream, CaptureMode::Relaxed);
        let record = |bench: &mut Bench, event| {
            let answer = match external {
                true => bench.engine.event_record_external(MAIN, event, stream),
                false => bench.engine.event_record(MAIN, event, stream),
            };
            bench.done(answer)
        };
        let first = record(&mut bench, start);
        bench.spin(stream);
        bench.spin(stream);
        let second = record(&mut bench, end);
        report.code(&format!("{word} events in a graph: record"), if first == Code::SUCCESS { second } else { first });
        let graph = bench.engine.capture_end(MAIN, stream);
        let executable = graph.and_then(|graph| bench.engine.graph_instantiate(MAIN, graph));
        let launched = executable.and_then(|executable| bench.engine.graph_launch(MAIN, executable, stream).map(drop));
        report.code("... launch", code(launched));
        bench.run();
        let elapsed = bench.engine.event_elapsed(MAIN, start, end);
        report.code("... elapsed", code(elapsed));
        if external {
            let ms = elapsed.map_or(f64::NAN, f64::from);
            report.ms("ms: elapsed between external events around two kernels of a graph", ms);
        }
    }
}

fn memory_of_a_pool(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.stream();
    let allocate = |bench: &mut Bench| {
        let answer = bench.engine.malloc_async(MAIN, stream, 64);
        bench.value(answer)
    };
    let first = allocate(&mut bench);
    let freed = bench.engine.free_async(MAIN, stream, first.unwrap_or_default());
    bench.done(freed);
    let second = allocate(&mut bench);
    report.yes("a pool gives the same bytes again", first.is_ok() && first == second);
}

fn resets(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let old = bench.stream();
    done(code(bench.engine.reset_device(OTHER)));
    report.code("after a reset: query an old stream", bench.query(MAIN, old));
    report.code("... malloc", code(bench.engine.malloc(MAIN, 64)));
    let answer = bench.engine.device_synchronize(MAIN);
    report.code("... synchronize the device", bench.done(answer));
}

/// The code of a call that is made for its time, or for what it leaves behind.
fn done(_: Code) {}
