//! Facts about what makes drivers harder to use than their pages say: default streams, copies and who waits in them,
//! last errors, timed events, resets. A busy stream has two kernels.

use std::sync::Arc;

use tenure::driver::{CaptureMode, DeviceAddress, Driver, HostPointer, Location, Timing};

use super::bed::{Bed, code, host_memory};
use super::raw::{Plain, Raw};
use super::semantics::{Report, Scene, done, ms};

const KIB: usize = 1024;

/// The reset comes last: nothing of the bed is left after it.
pub(super) fn scenes<D: Raw>() -> [Scene<D>; 11] {
    [
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
    ]
}

fn idle<D: Raw>(bed: &Bed<D>, kind: &str) -> Result<D::Stream, String> {
    match kind {
        "null" => Ok(bed.driver.null_stream()),
        "per-thread" => Ok(bed.driver.own_stream()),
        "blocking" => bed.driver.blocking_stream(),
        _ => bed.stream(),
    }
}

/// A stream of this kind, with two kernels on it.
fn busy<D: Raw>(bed: &Bed<D>, kind: &str) -> Result<D::Stream, String> {
    let stream = idle(bed, kind)?;
    bed.spin(&stream);
    bed.spin(&stream);
    Ok(stream)
}

fn memory<D: Raw>(bed: &Bed<D>, bytes: u64) -> Result<DeviceAddress, String> {
    bed.driver.malloc(bytes).map_err(|error| error.to_string())
}

fn default_streams_asked<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    for (asked, held) in [
        ("null", "blocking"),
        ("per-thread", "blocking"),
        ("null", "non-blocking"),
        ("null", "per-thread"),
        ("blocking", "null"),
        ("non-blocking", "null"),
    ] {
        let stream = idle(bed, asked)?;
        busy(bed, held)?;
        report.code(&format!("query {asked}, {held} busy"), bed.query(&stream));
        bed.settle();
    }
    Ok(())
}

fn default_streams_waited_for<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let null = bed.driver.null_stream();
    for held in ["blocking", "non-blocking", "per-thread"] {
        busy(bed, held)?;
        let took = ms(bed, || done(bed.synchronize(&null)));
        report.ms(&format!("ms: synchronize null behind {held}"), took);
        bed.settle();
    }
    let (blocking, at) = (bed.driver.blocking_stream()?, memory(bed, 64)?);
    busy(bed, "null")?;
    let took = ms(bed, || {
        bed.fill(&blocking, at);
        bed.synchronize(&blocking);
    });
    report.ms("ms: work on blocking behind null, and a wait for it", took);
    Ok(())
}

fn default_streams_beside_captures<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let null = bed.driver.null_stream();
    for (kind, mode, word) in [
        ("non-blocking", CaptureMode::Global, "global"),
        ("blocking", CaptureMode::Global, "global"),
        ("blocking", CaptureMode::Relaxed, "relaxed"),
    ] {
        let stream = idle(bed, kind)?;
        bed.begin(&stream, mode);
        report.code(&format!("launch on null beside a {word} capture of a {kind} stream"), bed.spin(&null));
        report.code("... end", bed.end(&stream));
        bed.settle();
    }
    let stream = bed.stream()?;
    bed.begin(&stream, CaptureMode::Global);
    let is_counted = bed.driver.capture_number(&stream) > 0;
    bed.end(&stream);
    report.text("a capture's number is above 0", if is_counted { "yes" } else { "no" });
    Ok(())
}

fn calls_that_wait_or_do_not<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (at, host) = (memory(bed, 128)?, host_memory(64));
    let on_device = |at: DeviceAddress| (Location::Device(at.offset(64)), Location::Device(at));
    let mut timed = |fact: &str, held: &str, call: &dyn Fn()| -> Result<(), String> {
        busy(bed, held)?;
        report.ms(&format!("ms: {fact}"), ms(bed, call));
        bed.settle();
        Ok(())
    };
    let copy = |(to, from), bytes| done(bed.driver.copy_and_wait(to, from, bytes));
    let up = (Location::Device(at), Location::Host(host));
    // The first call of each kind loads what it needs.
    done(bed.driver.fill_and_wait(at, 64));
    copy(on_device(at), 64);
    copy(up, 4);
    bed.settle();
    timed("memset of device memory behind a blocking stream", "blocking", &|| done(bed.driver.fill_and_wait(at, 64)))?;
    timed("copy on the device behind a blocking stream", "blocking", &|| copy(on_device(at), 64))?;
    timed("copy on the device beside a non-blocking stream", "non-blocking", &|| copy(on_device(at), 64))?;
    timed("copy of 4 B up from pageable memory behind a blocking stream", "blocking", &|| copy(up, 4))?;
    timed("copy of 4 B up from pageable memory beside a non-blocking stream", "non-blocking", &|| copy(up, 4))?;
    timed("free beside a non-blocking stream", "non-blocking", &|| done(bed.free(at)))?;
    timed("malloc of 64 MiB beside a non-blocking stream", "non-blocking", &|| done(code(bed.driver.malloc(64 << 20))))
}

fn ends(at: DeviceAddress, host: HostPointer, up: bool) -> (Location, Location) {
    let (device, host) = (Location::Device(at), Location::Host(host));
    if up { (device, host) } else { (host, device) }
}

fn copies_with_pageable_memory<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    const LARGEST: usize = 16 << 20;
    let (stream, at) = (bed.stream()?, memory(bed, LARGEST as u64)?);
    let plain = host_memory(LARGEST);
    let locked = bed.driver.host_alloc(LARGEST).map_err(|error| error.to_string())?;
    // The first copy of each kind loads what it needs.
    for (host, up) in [(plain, false), (plain, true), (locked, false), (locked, true)] {
        let (to, from) = ends(at, host, up);
        bed.driver.copy_plainly(&stream, to, from, LARGEST as u64);
    }
    bed.settle();
    for bytes in [4, 16, 4_096, 65_536, 65_537, 131_072, 1 << 20, LARGEST] {
        for (kind, up) in [("pageable", false), ("pageable", true), ("page-locked", false), ("page-locked", true)] {
            let (to, from) = ends(at, if kind == "pageable" { plain } else { locked }, up);
            bed.spin(&stream);
            bed.spin(&stream);
            let took = ms(bed, || done(bed.driver.copy_plainly(&stream, to, from, bytes as u64)));
            let way = if up { "up from" } else { "down to" };
            report.ms(&format!("ms: copy of {bytes} bytes {way} {kind} memory behind its stream"), took);
            bed.synchronize(&stream);
        }
    }
    Ok(())
}

fn copies_over_borders<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (stream, at, host) = (bed.stream()?, memory(bed, 256 * KIB as u64)?, host_memory(256 * KIB));
    report.code("register 64K", bed.register(host, 64 * KIB));
    report.code("... and 64K that touch it", bed.register(host.offset(64 * KIB), 64 * KIB));
    let mut copy = |fact: &str, offset: usize, bytes: u64, up: bool| {
        let (to, from) = ends(at, host.offset(offset), up);
        report.code(fact, bed.driver.copy_plainly(&stream, to, from, bytes));
        bed.synchronize(&stream);
    };
    let both = 128 * KIB as u64;
    copy("copy up over both registrations", 0, both, true);
    copy("copy down over both registrations", 0, both, false);
    copy("copy up inside one", 0, both / 2, true);
    copy("copy up from a registration into plain memory behind it", 64 * KIB, both, true);
    copy("copy down from a registration into plain memory behind it", 64 * KIB, both, false);
    done(bed.driver.take_last_error());
    Ok(())
}

fn last_errors<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (at, host) = (memory(bed, 8 * KIB as u64)?, host_memory(16 * KIB));
    let stream = busy(bed, "non-blocking")?;
    bed.register(host, 4 * KIB);
    done(bed.driver.take_last_error());
    done(bed.driver.query_plainly(&stream));
    report.code("last error after a query of a busy stream", bed.driver.take_last_error());
    let plain = host.offset(8 * KIB);
    for (fact, call) in [
        ("registering again", Plain::Register(host, 4 * KIB)),
        ("asking about plain memory", Plain::IsRegistered(plain)),
        ("the device address of plain memory", Plain::DeviceAddressOf(plain)),
        ("an allocation of too much", Plain::Malloc(1 << 45)),
    ] {
        done(bed.driver.plainly(call));
        report.code(&format!("last error after {fact}"), bed.driver.take_last_error());
    }
    let (to, from) = ends(at, host, true);
    done(bed.driver.copy_plainly(&stream, to, from, 8 * KIB as u64));
    report.code("last error after a copy over a border", bed.driver.take_last_error());
    Ok(())
}

fn timed<D: Driver>(bed: &Bed<D>) -> Result<D::Event, String> {
    bed.driver.event_create(Timing::Enabled).map_err(|error| error.to_string())
}

fn elapsed_times<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (pending, never, untimed) = (timed(bed)?, timed(bed)?, bed.event()?);
    let stream = busy(bed, "non-blocking")?;
    bed.record(&pending, &stream);
    bed.record(&untimed, &stream);
    let mut elapsed = |fact: &str, start, end| {
        report.code(&format!("elapsed ({fact})"), code(bed.driver.event_elapsed(start, end)));
    };
    elapsed("pending timed, untimed", &pending, &untimed);
    elapsed("untimed, pending timed", &untimed, &pending);
    elapsed("never recorded, pending", &never, &pending);
    bed.settle();
    let (start, end, at) = (timed(bed)?, timed(bed)?, memory(bed, 64)?);
    let stream = busy(bed, "non-blocking")?;
    bed.record(&start, &stream);
    bed.fill(&stream, at);
    bed.record(&end, &stream);
    bed.synchronize(&stream);
    let took = bed.driver.event_elapsed(&start, &end).map_or(f64::NAN, f64::from);
    report.ms("ms: elapsed around short work that was queued early", took);
    Ok(())
}

fn events_in_graphs<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let text = |error: D::Error| error.to_string();
    for (external, word) in [(false, "timed"), (true, "external timed")] {
        let (stream, start, end) = (bed.stream()?, timed(bed)?, timed(bed)?);
        let record =
            |event| if external { bed.driver.record_external(event, &stream) } else { bed.record(event, &stream) };
        bed.begin(&stream, CaptureMode::Relaxed);
        let first = record(&start);
        bed.spin(&stream);
        bed.spin(&stream);
        let second = record(&end);
        report.code(&format!("{word} events in a graph: record"), if first == 0 { second } else { first });
        let graph = bed.driver.capture_end(&stream).map_err(text)?;
        let executable = bed.driver.graph_instantiate(&graph).map_err(text)?;
        report.code("... launch", bed.launch_graph(&executable, &stream));
        bed.synchronize(&stream);
        let elapsed = bed.driver.event_elapsed(&start, &end);
        let took = elapsed.as_ref().map_or(f64::NAN, |ms| f64::from(*ms));
        report.code("... elapsed", code(elapsed));
        if external {
            report.ms("ms: elapsed between external events around two kernels of a graph", took);
        }
    }
    Ok(())
}

fn memory_of_a_pool<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let stream = bed.stream()?;
    let allocate = || bed.driver.malloc_async(&stream, 64).map_err(|error| error.to_string());
    let first = allocate()?;
    done(bed.free_async(&stream, first));
    let same = allocate()? == first;
    report.text("a pool gives the same bytes again", if same { "yes" } else { "no" });
    Ok(())
}

fn resets<D: Raw>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let old = bed.stream()?;
    bed.settle();
    done(bed.driver.reset());
    report.code("after a reset: query an old stream", bed.query(&old));
    report.code("... malloc", code(bed.driver.malloc(64)));
    report.code("... synchronize the device", bed.driver.device_synchronize());
    Ok(())
}
