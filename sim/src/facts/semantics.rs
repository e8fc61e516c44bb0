//! Single facts, one scene after the other. Each scene has an engine of its own.

use tenure::driver::{CaptureMode, HostAccess, Location};

use super::bench::{Bench, MAIN, OTHER, code};
use crate::code::Code;
use crate::engine::{Choice, Step};
use crate::event::{HostThread, StreamHandle};
use crate::host_memory::Protection;
use crate::profile::Profile;

pub(super) fn lines(profile: &Profile) -> Vec<String> {
    let mut report = Report { profile, lines: Vec::new() };
    for scene in SCENES.iter().chain(super::habits::SCENES) {
        scene(&mut report);
    }
    report.lines
}

const SCENES: &[fn(&mut Report<'_>)] = &[
    beside_a_busy_stream,
    legacy_stream_during_a_capture,
    event_of_an_ended_capture,
    blocked_host_function,
    executables_in_flight,
    destroyed_while_busy,
    calls_in_host_functions,
    host_functions_of_a_destroyed_stream,
    events_never_recorded_and_destroyed,
    handles_and_priorities,
    overlapping_registrations,
    unaligned_registrations,
    refused_registrations,
    unregister_in_use,
    unmapped_while_registered,
    unjoined_forks,
    ends_on_wrong_streams_and_threads,
    merged_captures,
    use_of_an_invalidated_capture,
    destroyed_while_capturing,
    host_functions_in_graphs,
    graphs_that_allocate,
];

/// The rows so far.
pub(super) struct Report<'a> {
    pub(super) profile: &'a Profile,
    lines: Vec<String>,
}

impl Report<'_> {
    pub(super) fn bench(&self) -> Bench {
        Bench::new(self.profile)
    }

    pub(super) fn code(&mut self, fact: &str, code: Code) {
        self.lines.push(format!("{fact}\t{}\t{}", code.0, code.name()));
    }

    pub(super) fn text(&mut self, fact: &str, text: &str) {
        self.lines.push(format!("{fact}\t{text}"));
    }

    pub(super) fn number(&mut self, fact: &str, number: u64) {
        self.text(fact, &number.to_string());
    }

    pub(super) fn ms(&mut self, fact: &str, ms: f64) {
        self.text(fact, &format!("{ms:.6}"));
    }

    pub(super) fn yes(&mut self, fact: &str, yes: bool) {
        self.text(fact, if yes { "yes" } else { "no" });
    }
}

type Call = fn(&mut Bench);

/// What is measured beside a kernel on a stream that has nothing to do with it: the fact, what is done before, the
/// call.
#[rustfmt::skip]
const BESIDE: [(&str, Call, Call); 8] = [
    ("register while another stream is busy (20 ms)", |_| {}, |b| { register(b, 0, 4 * KIB); }),
    ("unregister memory nobody uses while a stream is busy", |b| { register(b, 0, 4 * KIB); }, |b| { unregister(b, 0); }),
    ("free while a stream is busy", |_| {}, allocate_and_free),
    ("freeAsync on idle stream while another is busy", |_| {}, allocate_and_free_in_order),
    ("destroy idle stream while another is busy", |_| {}, |b| { let stream = b.stream(); b.destroy(MAIN, stream); }),
    ("mallocHost while a stream is busy", |_| {}, |b| { let _ = b.engine.host_alloc(MAIN, 64); }),
    ("freeHost while a stream is busy", |_| {}, allocate_and_free_host),
    ("malloc while a stream is busy", |_| {}, |b| { let _ = b.engine.malloc(MAIN, 64); }),
];

fn beside_a_busy_stream(report: &mut Report<'_>) {
    for (fact, before, call) in BESIDE {
        let mut bench = report.bench();
        before(&mut bench);
        bench.busy_stream();
        let ms = bench.ms(call);
        report.ms(&format!("ms: {fact}"), ms);
    }
}

fn allocate_and_free(bench: &mut Bench) {
    let memory = bench.engine.malloc(MAIN, 64).unwrap_or_default();
    let answer = bench.engine.free(MAIN, memory);
    bench.done(answer);
}

fn allocate_and_free_in_order(bench: &mut Bench) {
    let stream = bench.stream();
    let memory = bench.engine.malloc_async(MAIN, stream, 64);
    let memory = bench.value(memory).unwrap_or_default();
    let answer = bench.engine.free_async(MAIN, stream, memory);
    bench.done(answer);
}

fn allocate_and_free_host(bench: &mut Bench) {
    let elsewhere = bench.host(0);
    let memory = bench.engine.host_alloc(MAIN, 64).unwrap_or(elsewhere);
    let answer = bench.engine.host_free(MAIN, memory);
    bench.done(answer);
}

fn legacy_stream_during_a_capture(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.blocking_stream();
    bench.begin(stream, CaptureMode::Relaxed);
    report.code("launch on legacy stream while a blocking stream captures (relaxed)", bench.spin(StreamHandle::LEGACY));
    report.code("... EndCapture", bench.end(MAIN, stream));
    bench.begin(stream, CaptureMode::Relaxed);
    let (to, from) = (Location::Host(bench.host(0)), Location::Host(bench.host(64)));
    // SAFETY: P4. Inside of memory that the bench keeps, and nobody refers into.
    let answer = unsafe { bench.engine.copy_and_wait(MAIN, to, from, 64) };
    report.code("cudaMemcpy (legacy) while a blocking stream captures", bench.done(answer));
    report.code("... EndCapture", bench.end(MAIN, stream));
}

fn event_of_an_ended_capture(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let (stream, other) = (bench.stream(), bench.stream());
    bench.begin(stream, CaptureMode::Global);
    let event = bench.recorded(stream);
    bench.end(MAIN, stream);
    report.code("event recorded in an ended capture: query", bench.query_event(MAIN, event));
    report.code("... another stream waits on it", bench.wait_event(MAIN, other, event));
    let answer = bench.engine.event_synchronize(MAIN, event);
    report.code("... synchronize it", bench.done(answer));
    report.code("... record it anew outside", bench.record(event, other));
    bench.run();
    report.code("... query", bench.query_event(MAIN, event));
}

fn blocked_host_function(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let (stream, other) = (bench.stream(), bench.stream());
    bench.counting(MAIN, stream);
    bench.counting(MAIN, other);
    let first =
        bench.pick(|ready| matches!(ready.choice, Choice::Start(_))).map(|ready| bench.engine.step(ready.choice));
    let second = bench.pick(|ready| matches!(ready.choice, Choice::Start(_)));
    report.yes("a blocked host func stalls another stream's host func", second.is_none());
    if let Some(Step::Function(call)) = first {
        bench.engine.function_returned(call.op);
    }
}

fn executables_in_flight(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let (stream, other) = (bench.stream(), bench.stream());
    let Some(executable) = one_kernel(&mut bench, stream) else { return };
    let _ = bench.engine.graph_launch(MAIN, executable, stream);
    let mut destroyed = Code::SUCCESS;
    let ms = bench.ms(|bench| destroyed = code(bench.engine.executable_destroy(MAIN, executable)));
    report.code("destroy exec while in flight", destroyed);
    report.ms("ms: ... took", ms);
    report.code("... sync", bench.synchronize(MAIN, stream));
    let Some(executable) = one_kernel(&mut bench, stream) else { return };
    let ms = bench.ms(|bench| {
        let _ = bench.engine.graph_launch(MAIN, executable, stream);
        let _ = bench.engine.graph_launch(MAIN, executable, other);
        bench.run();
    });
    report.ms("ms: one exec launched on two streams (each 20 ms)", ms);
}

fn one_kernel(bench: &mut Bench, stream: StreamHandle) -> Option<crate::event::ExecutableHandle> {
    bench.begin(stream, CaptureMode::Global);
    bench.spin(stream);
    let graph = bench.engine.capture_end(MAIN, stream).ok()?;
    bench.engine.graph_instantiate(MAIN, graph).ok()
}

fn destroyed_while_busy(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.busy_stream();
    report.code("query busy", bench.query(MAIN, stream));
    let mut destroyed = Code::SUCCESS;
    let ms = bench.ms(|bench| destroyed = bench.destroy(MAIN, stream));
    report.code("destroy busy stream", destroyed);
    report.ms("... took ms", ms);
}

/// The function itself cannot reach the engine here, so the drive makes its calls for it, as the thread of functions.
fn calls_in_host_functions(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.stream();
    bench.counting(MAIN, stream);
    let started =
        bench.pick(|ready| matches!(ready.choice, Choice::Start(_))).map(|ready| bench.engine.step(ready.choice));
    let inside = HostThread::FUNCTIONS;
    report.code("cudaMalloc inside a host func", code(bench.engine.malloc(inside, 64)));
    report.code("cudaStreamQuery inside a host func", bench.query(inside, stream));
    let at = bench.host(0);
    let answer = bench.engine.host_unregister(inside, Some(at));
    report.code("cudaHostUnregister inside a host func", bench.done(answer));
    report.code("query with host func pending", bench.query(MAIN, stream));
    if let Some(Step::Function(call)) = started {
        bench.engine.function_returned(call.op);
    }
}

fn host_functions_of_a_destroyed_stream(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.busy_stream();
    for _ in 0..3 {
        bench.counting(MAIN, stream);
    }
    bench.destroy(MAIN, stream);
    bench.run();
    report.number("host funcs run though the stream was destroyed", bench.counted());
}

fn events_never_recorded_and_destroyed(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let waiter = bench.stream();
    let event = bench.event();
    report.code("query an event never recorded", bench.query_event(MAIN, event));
    report.code("wait on an event never recorded", bench.wait_event(MAIN, waiter, event));
    bench.run();
    let busy = bench.busy_stream();
    bench.record(event, busy);
    bench.wait_event(MAIN, waiter, event);
    report.code("destroy a pending event", code(bench.engine.event_destroy(MAIN, event)));
    report.code("waiter of a destroyed event still pending", bench.query(MAIN, waiter));
}

fn handles_and_priorities(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let first = bench.stream();
    bench.destroy(MAIN, first);
    let second = bench.stream();
    report.yes("handle value reused after destroy", first == second);
    let (lowest, highest) = report.profile.priorities;
    report.text("priority range", &format!("{lowest}..{highest}"));
}

const KIB: usize = 1024;

fn register(bench: &mut Bench, offset: usize, bytes: usize) -> Code {
    bench.register(offset, bytes)
}

fn unregister(bench: &mut Bench, offset: usize) -> Code {
    let at = bench.host(offset);
    let answer = bench.engine.host_unregister(MAIN, Some(at));
    bench.done(answer)
}

fn overlapping_registrations(report: &mut Report<'_>) {
    let mut bench = report.bench();
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
        report.code(fact, register(&mut bench, offset, bytes));
    }
    let unregisters = [
        ("unregister interior pointer (4K)", 4 * KIB),
        ("unregister interior unaligned (100)", 100),
        ("unregister base", 0),
        ("unregister base again", 0),
        ("unregister adjacent", 64 * KIB),
    ];
    for (fact, offset) in unregisters {
        report.code(fact, unregister(&mut bench, offset));
    }
}

fn unaligned_registrations(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let attributes = |bench: &mut Bench, offset| {
        let at = bench.host(offset);
        bench.engine.host_is_registered(MAIN, at).map_or_else(|code| u64::from(code.0.unsigned_abs()), u64::from)
    };
    report.code("register unaligned 100 bytes at 100", register(&mut bench, 100, 100));
    report.code("register other bytes of the same page (100 at 1000)", register(&mut bench, 1000, 100));
    report.number("attributes type of unregistered byte in same page", attributes(&mut bench, 500));
    report.number("attributes type inside", attributes(&mut bench, 150));
    report.code("unregister page start, registration began at 100", unregister(&mut bench, 0));
    report.code("unregister unaligned base 100", unregister(&mut bench, 100));
    report.code("unregister other bytes 1000", unregister(&mut bench, 1000));
}

fn refused_registrations(report: &mut Report<'_>) {
    let mut bench = report.bench();
    report.code("register size 0", register(&mut bench, 0, 0));
    // SAFETY: P4. There is no range.
    report.code("register null", code(unsafe { bench.engine.host_register(MAIN, None, 64, HostAccess::ReadWrite) }));
    bench.protect(Protection::None);
    report.code("register PROT_NONE", register(&mut bench, 0, 4 * KIB));
    bench.protect(Protection::Read);
    report.code("register read-only map", register(&mut bench, 0, 4 * KIB));
    let at = bench.host(0);
    // SAFETY: P4. Inside of memory that the bench keeps, and nobody refers into.
    let read_only = unsafe { bench.engine.host_register(MAIN, Some(at), 4 * KIB, HostAccess::Read) };
    report.code("register read-only map w/ ReadOnly flag", code(read_only));
}

fn unregister_in_use(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.stream();
    register(&mut bench, 0, 4 * KIB);
    let at = bench.host(0);
    let address = bench.engine.host_device_address(MAIN, at).unwrap_or_default();
    bench.touch(stream, address);
    let mut unregistered = Code::SUCCESS;
    let ms = bench.ms(|bench| unregistered = unregister(bench, 0));
    report.code("unregister while a kernel on it is queued", unregistered);
    report.ms("... took ms", ms);
    let query = bench.query(MAIN, stream);
    report.text("... stream query right after", &query.0.to_string());
    report.code("... sync", bench.synchronize(MAIN, stream));
}

fn unmapped_while_registered(report: &mut Report<'_>) {
    let mut bench = report.bench();
    register(&mut bench, 0, 64 * KIB);
    bench.protect(Protection::None);
    bench.protect(Protection::ReadWrite);
    report.code("unmapped while registered, mapped anew: register", register(&mut bench, 0, 64 * KIB));
    report.code("... larger", register(&mut bench, 0, 128 * KIB));
    report.code("... unregister", unregister(&mut bench, 0));
}

fn forked(bench: &mut Bench) -> (StreamHandle, StreamHandle) {
    let (origin, fork) = (bench.stream(), bench.stream());
    bench.begin(origin, CaptureMode::Global);
    let event = bench.recorded(origin);
    bench.wait_event(MAIN, fork, event);
    (origin, fork)
}

fn unjoined_forks(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let (origin, fork) = forked(&mut bench);
    bench.spin(fork);
    report.code("fork without join: EndCapture", bench.end(MAIN, origin));
    let status = bench.status(fork);
    report.number("fork without join: forked stream status after", u64::from(status));
    report.code("fork without join: launch on forked after", bench.spin(fork));
    report.code("fork without join: sync forked after", bench.synchronize(MAIN, fork));
    let mut bench = report.bench();
    let (origin, fork) = forked(&mut bench);
    bench.spin(fork);
    let event = bench.recorded(fork);
    bench.wait_event(MAIN, origin, event);
    let graph = bench.engine.capture_end(MAIN, origin);
    report.code("fork with join: EndCapture on origin", code(graph));
    let nodes = graph.and_then(|graph| bench.engine.graph_describe(MAIN, graph)).map_or(0, |graph| graph.nodes.len());
    report.number("fork with join: nodes", nodes as u64);
}

fn ends_on_wrong_streams_and_threads(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let (origin, fork) = forked(&mut bench);
    report.code("EndCapture on forked (not origin)", bench.end(MAIN, fork));
    report.code("... then EndCapture on origin", bench.end(MAIN, origin));
    let modes =
        [("global", CaptureMode::Global), ("threadlocal", CaptureMode::ThreadLocal), ("relaxed", CaptureMode::Relaxed)];
    for (name, mode) in modes {
        let mut bench = report.bench();
        let stream = bench.stream();
        bench.begin(stream, mode);
        report.code(&format!("EndCapture from another thread, {name}"), bench.end(OTHER, stream));
        let status = bench.status(stream);
        report.number(&format!("status after, {name}"), u64::from(status));
        report.code("then EndCapture from own thread", bench.end(MAIN, stream));
    }
    let stream = bench.stream();
    report.code("EndCapture with no capture", bench.end(MAIN, stream));
    report.code("BeginCapture on legacy stream", bench.begin(StreamHandle::LEGACY, CaptureMode::Relaxed));
}

fn merged_captures(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let (a, b) = (bench.stream(), bench.stream());
    bench.begin(a, CaptureMode::Relaxed);
    bench.begin(b, CaptureMode::Relaxed);
    let event = bench.recorded(a);
    report.code("merge two captures by WaitEvent", bench.wait_event(MAIN, b, event));
    report.code("merge: EndCapture a", bench.end(MAIN, a));
    report.code("merge: EndCapture b", bench.end(MAIN, b));
}

fn use_of_an_invalidated_capture(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.stream();
    bench.begin(stream, CaptureMode::Relaxed);
    bench.query(MAIN, stream);
    report.code("launch on an invalidated capture", bench.spin(stream));
    let graph = bench.engine.capture_end(MAIN, stream);
    report.code("end invalidated", code(graph));
    report.text("graph after", if graph.is_ok() { "a graph" } else { "null" });
    report.code("launch after ending it", bench.spin(stream));
    report.code("sync after ending it", bench.synchronize(MAIN, stream));
}

fn destroyed_while_capturing(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.stream();
    bench.begin(stream, CaptureMode::Global);
    report.code("StreamDestroy while capturing", bench.destroy(MAIN, stream));
    report.code("Malloc after destroying capturing stream", code(bench.engine.malloc(MAIN, 64)));
}

fn host_functions_in_graphs(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.stream();
    bench.begin(stream, CaptureMode::Global);
    bench.counting(MAIN, stream);
    let graph = bench.engine.capture_end(MAIN, stream);
    bench.run();
    report.number("host func runs at capture", bench.counted());
    let executable = graph.and_then(|graph| bench.engine.graph_instantiate(MAIN, graph));
    for _ in 0..5 {
        let _ = executable.and_then(|executable| bench.engine.graph_launch(MAIN, executable, stream).map(drop));
    }
    bench.run();
    report.number("host func runs after 5 graph launches", bench.counted());
}

fn graphs_that_allocate(report: &mut Report<'_>) {
    let mut bench = report.bench();
    let stream = bench.stream();
    bench.begin(stream, CaptureMode::Global);
    let memory = bench.engine.malloc_async(MAIN, stream, 64);
    bench.done(memory);
    let graph = bench.engine.capture_end(MAIN, stream);
    let executable = graph.and_then(|graph| bench.engine.graph_instantiate(MAIN, graph));
    report.code("graph w/ alloc, no free: instantiate", code(executable));
    for fact in ["launch 1", "launch 2 without free"] {
        let launched = executable.and_then(|executable| bench.engine.graph_launch(MAIN, executable, stream).map(drop));
        report.code(fact, code(launched));
        bench.run();
    }
}
