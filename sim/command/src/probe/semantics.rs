//! Single facts, one scene after the other. Each scene has a device, or at least streams, of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::driver::{CaptureMode, Driver};
use tenure_sim::code::Code;

use super::bed::{Bed, code, host_memory};
use super::raw::Raw;
use super::{Fresh, habits};

const KIB: usize = 1024;

/// The rows so far.
#[derive(Default)]
pub(super) struct Report(Vec<String>);

impl Report {
    pub(super) fn code(&mut self, fact: &str, code: i32) {
        self.0.push(format!("{fact}\t{code}\t{}", Code(code).name()));
    }

    pub(super) fn text(&mut self, fact: &str, text: &str) {
        self.0.push(format!("{fact}\t{text}"));
    }

    pub(super) fn ms(&mut self, fact: &str, ms: f64) {
        self.text(fact, &format!("{ms:.6}"));
    }
}

/// Asks its rows.
pub(super) type Scene<D> = fn(&Arc<Bed<D>>, &mut Report) -> Result<(), String>;

/// All rows.
///
/// # Errors
/// A line on what a scene could not be set up for.
pub fn lines<D: Raw>(fresh: Fresh<'_, D>) -> Result<Vec<String>, String> {
    let scenes: [Scene<D>; 12] = [
        beside_a_busy_stream,
        event_of_an_ended_capture,
        destroyed_while_busy,
        host_functions_of_a_destroyed_stream,
        events_never_recorded,
        overlapping_registrations,
        unaligned_registrations,
        unregister_in_use,
        unjoined_forks,
        ends_on_wrong_streams_and_threads,
        merged_and_invalidated_captures,
        host_functions_in_graphs,
    ];
    let mut report = Report::default();
    for scene in scenes.into_iter().chain(habits::scenes()) {
        let bed = fresh()?;
        scene(&bed, &mut report)?;
        bed.settle();
    }
    Ok(report.0)
}

pub(super) fn ms<D: Driver>(bed: &Bed<D>, body: impl FnOnce()) -> f64 {
    let before = bed.now_ms();
    body();
    bed.now_ms() - before
}

/// The calls are timed beside a kernel of 20 ms on a stream that has nothing to do with them.
fn beside_a_busy_stream<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let text = |error: D::Error| error.to_string();
    let (host, idle) = (host_memory(8 * KIB), bed.stream()?);
    let memory = bed.driver.malloc(64).map_err(text)?;
    let ordered = bed.driver.malloc_async(&idle, 64).map_err(text)?;
    let pinned = bed.driver.host_alloc(64).map_err(text)?;
    bed.synchronize(&idle);
    let mut timed = |fact: &str, call: &dyn Fn()| -> Result<(), String> {
        bed.settle();
        let busy = bed.busy_stream()?;
        report.ms(&format!("ms: {fact}"), ms(bed, call));
        bed.synchronize(&busy);
        bed.destroy(&busy);
        Ok(())
    };
    timed("register while another stream is busy (20 ms)", &|| done(bed.register(host, 4 * KIB)))?;
    timed("unregister memory nobody uses while a stream is busy", &|| done(bed.unregister(host)))?;
    timed("free while a stream is busy", &|| done(bed.free(memory)))?;
    timed("freeAsync on idle stream while another is busy", &|| done(bed.free_async(&idle, ordered)))?;
    timed("destroy idle stream while another is busy", &|| done(bed.destroy(&idle)))?;
    timed("mallocHost while a stream is busy", &|| drop(bed.driver.host_alloc(64)))?;
    timed("freeHost while a stream is busy", &|| done(bed.free_host(pinned)))?;
    timed("malloc while a stream is busy", &|| drop(bed.driver.malloc(64)))
}

fn event_of_an_ended_capture<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (stream, other) = (bed.stream()?, bed.stream()?);
    bed.begin(&stream, CaptureMode::Global);
    let event = bed.recorded(&stream)?;
    bed.end(&stream);
    report.code("event recorded in an ended capture: query", bed.query_event(&event));
    report.code("... another stream waits on it", bed.wait_event(&other, &event));
    report.code("... synchronize it", code(bed.driver.event_synchronize(&event)));
    report.code("... record it anew outside", bed.record(&event, &other));
    bed.settle();
    report.code("... query", bed.query_event(&event));
    Ok(())
}

fn destroyed_while_busy<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let stream = bed.busy_stream()?;
    report.code("query busy", bed.query(&stream));
    let mut destroyed = 0;
    let took = ms(bed, || destroyed = bed.destroy(&stream));
    report.code("destroy busy stream", destroyed);
    report.ms("... took ms", took);
    Ok(())
}

fn counting<D: Driver>(bed: &Bed<D>, stream: &D::Stream, count: &Arc<AtomicU64>) -> i32 {
    let count = count.clone();
    // Relaxed: a count alone, read once the device has settled.
    bed.host_function(stream, Arc::new(move || add_one(&count)))
}

fn host_functions_of_a_destroyed_stream<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (stream, count) = (bed.busy_stream()?, Arc::default());
    for _ in 0..3 {
        counting(bed, &stream, &count);
    }
    report.code("query with host func pending", bed.query(&stream));
    bed.destroy(&stream);
    bed.settle();
    let ran = count.load(Ordering::Relaxed).to_string();
    report.text("host funcs run though the stream was destroyed", &ran);
    Ok(())
}

fn events_never_recorded<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (waiter, event) = (bed.stream()?, bed.event()?);
    report.code("query an event never recorded", bed.query_event(&event));
    report.code("wait on an event never recorded", bed.wait_event(&waiter, &event));
    bed.settle();
    let busy = bed.busy_stream()?;
    bed.record(&event, &busy);
    bed.wait_event(&waiter, &event);
    report.code("destroy a pending event", code(bed.driver.event_destroy(event)));
    report.text("waiter of a destroyed event still pending", &bed.query(&waiter).to_string());
    Ok(())
}

fn overlapping_registrations<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let host = host_memory(128 * KIB);
    let registers = [
        ("register 64K at 0", 0, 64 * KIB),
        ("register same again", 0, 64 * KIB),
        ("register same base, larger", 0, 128 * KIB),
        ("register same base, smaller", 0, 4 * KIB),
        ("register inside (4K at 4K)", 4 * KIB, 4 * KIB),
        ("register overlapping tail (64K at 60K)", 60 * KIB, 64 * KIB),
        ("register adjacent (64K at 64K)", 64 * KIB, 64 * KIB),
    ];
    for (fact, offset, bytes) in registers {
        report.code(fact, bed.register(host.offset(offset), bytes));
    }
    // Addresses inside a registration are left out: AMD's library ends the process over them.
    for (fact, offset) in [("unregister base", 0), ("unregister base again", 0), ("unregister adjacent", 64 * KIB)] {
        report.code(fact, bed.unregister(host.offset(offset)));
    }
    Ok(())
}

fn unaligned_registrations<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let host = host_memory(4 * KIB);
    let kind = |offset| match bed.driver.host_is_registered(host.offset(offset)) {
        Ok(is_registered) => u32::from(is_registered).to_string(),
        Err(error) => code::<(), _>(Err(error)).to_string(),
    };
    report.code("register unaligned 100 bytes at 100", bed.register(host.offset(100), 100));
    let second = bed.register(host.offset(1000), 100);
    report.code("register other bytes of the same page (100 at 1000)", second);
    report.text("attributes type of unregistered byte in same page", &kind(500));
    report.text("attributes type inside", &kind(150));
    report.code("unregister unaligned base 100", bed.unregister(host.offset(100)));
    report.code("unregister other bytes 1000", bed.unregister(host.offset(1000)));
    Ok(())
}

fn unregister_in_use<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (stream, host) = (bed.stream()?, host_memory(4 * KIB));
    bed.register(host, 4 * KIB);
    let address = bed.driver.host_device_address(host).map_err(|error| error.to_string())?;
    bed.touch(&stream, address);
    let mut unregistered = 0;
    let took = ms(bed, || unregistered = bed.unregister(host));
    report.code("unregister while a kernel on it is queued", unregistered);
    report.ms("... took ms", took);
    report.text("... stream query right after", &bed.query(&stream).to_string());
    report.code("... sync", bed.synchronize(&stream));
    Ok(())
}

fn forked<D: Driver>(bed: &Bed<D>) -> Result<(D::Stream, D::Stream), String> {
    let (origin, fork) = (bed.stream()?, bed.stream()?);
    bed.begin(&origin, CaptureMode::Global);
    let event = bed.recorded(&origin)?;
    bed.wait_event(&fork, &event);
    Ok((origin, fork))
}

fn unjoined_forks<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (origin, fork) = forked(bed)?;
    bed.spin(&fork);
    report.code("fork without join: EndCapture", bed.end(&origin));
    report.text("fork without join: forked stream status after", &bed.status(&fork).to_string());
    report.code("fork without join: launch on forked after", bed.spin(&fork));
    report.code("fork without join: sync forked after", bed.synchronize(&fork));
    let (origin, fork) = forked(bed)?;
    bed.spin(&fork);
    let event = bed.recorded(&fork)?;
    bed.wait_event(&origin, &event);
    let graph = bed.driver.capture_end(&origin).map_err(|error| error.to_string())?;
    report.code("fork with join: EndCapture on origin", 0);
    let nodes = bed.driver.graph_describe(&graph).map_or(0, |graph| graph.nodes.len());
    report.text("fork with join: nodes", &nodes.to_string());
    Ok(())
}

fn ends_on_wrong_streams_and_threads<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (origin, fork) = forked(bed)?;
    report.code("EndCapture on forked (not origin)", bed.end(&fork));
    report.code("... then EndCapture on origin", bed.end(&origin));
    let modes =
        [("global", CaptureMode::Global), ("threadlocal", CaptureMode::ThreadLocal), ("relaxed", CaptureMode::Relaxed)];
    for (name, mode) in modes {
        let stream = bed.stream()?;
        bed.begin(&stream, mode);
        let ended = std::thread::scope(|scope| scope.spawn(|| bed.end(&stream)).join());
        let ended = ended.map_err(|_| "the other thread panicked".to_owned())?;
        report.code(&format!("EndCapture from another thread, {name}"), ended);
        report.text(&format!("status after, {name}"), &bed.status(&stream).to_string());
        report.code("then EndCapture from own thread", bed.end(&stream));
    }
    let stream = bed.stream()?;
    report.code("EndCapture with no capture", bed.end(&stream));
    Ok(())
}

fn merged_and_invalidated_captures<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let (a, b) = (bed.stream()?, bed.stream()?);
    bed.begin(&a, CaptureMode::Relaxed);
    bed.begin(&b, CaptureMode::Relaxed);
    let event = bed.recorded(&a)?;
    report.code("merge two captures by WaitEvent", bed.wait_event(&b, &event));
    report.code("merge: EndCapture a", bed.end(&a));
    report.code("merge: EndCapture b", bed.end(&b));
    let stream = bed.stream()?;
    bed.begin(&stream, CaptureMode::Relaxed);
    bed.query(&stream);
    report.code("launch on an invalidated capture", bed.spin(&stream));
    let ended = bed.end(&stream);
    report.code("end invalidated", ended);
    report.text("graph after", if ended == 0 { "a graph" } else { "null" });
    report.code("launch after ending it", bed.spin(&stream));
    report.code("sync after ending it", bed.synchronize(&stream));
    Ok(())
}

fn host_functions_in_graphs<D: Driver>(bed: &Arc<Bed<D>>, report: &mut Report) -> Result<(), String> {
    let text = |error: D::Error| error.to_string();
    let (stream, count) = (bed.stream()?, Arc::default());
    bed.begin(&stream, CaptureMode::Global);
    counting(bed, &stream, &count);
    let graph = bed.driver.capture_end(&stream).map_err(text)?;
    bed.settle();
    report.text("host func runs at capture", &count.load(Ordering::Relaxed).to_string());
    let executable = bed.driver.graph_instantiate(&graph).map_err(text)?;
    for _ in 0..5 {
        bed.launch_graph(&executable, &stream);
    }
    bed.synchronize(&stream);
    report.text("host func runs after 5 graph launches", &count.load(Ordering::Relaxed).to_string());
    Ok(())
}

fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The code of a call that is made for its time alone.
pub(super) fn done(_: i32) {}
