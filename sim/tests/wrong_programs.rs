//! Programs on the raw driver: what each does wrong, and what must be said about it. The right ones must pass.
//!
//! A row names the line and a part of the sentence, so that a finding which changes its kind or falls silent is seen.

mod programs;

use programs::*;
use tenure_sim::checker::Severity;
use tenure_sim::{Config, kernel};

/// A wrong program: its name, the line, a part of what is said, and what it does.
type Wrong = (&'static str, &'static str, &'static str, fn(&Sim));
/// A right one.
type Right = (&'static str, fn(&Sim));

/// The kernels that the programs launch.
fn config() -> Config {
    Config::default()
        .schedules(120)
        .fibers()
        .kernel("set", |mut x: kernel::Write<'_, u32>| x.iter_mut().for_each(|x| *x = 1))
        .kernel("add", |mut x: kernel::Write<'_, u32>| x.iter_mut().for_each(|x| *x = x.wrapping_add(1)))
        .kernel("past", |mut x: kernel::Write<'_, u32>| {
            let end = x.len();
            x[end] = 1;
        })
        .kernel("wide", |mut x: kernel::Write<'_, u64>| x.iter_mut().for_each(|x| *x = 1))
}

/// What is said about a program: its findings a line each, or nothing.
fn said(config: &Config, program: fn(&Sim)) -> Vec<String> {
    let Some(failure) = config.run(program).failure else { return Vec::new() };
    let findings = failure.report.findings.iter().filter(|finding| finding.severity == Severity::Violation);
    let mut said: Vec<String> = findings.map(|finding| format!("{}: {}", finding.line, finding.message)).collect();
    if said.is_empty() {
        said.extend(failure.panics.iter().map(|panic| format!("panic: {panic}")));
    }
    said
}

fn judge(config: &Config, table: &[Wrong]) {
    let mut missed = Vec::new();
    for (name, line, part, program) in table {
        let said = said(config, *program);
        if !said.iter().any(|said| said.starts_with(&format!("{line}: ")) && said.contains(part)) {
            missed.push(format!("{name}: must say `{line}: … {part}`, says {said:#?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_wrong_program_is_told_what_is_wrong() {
    judge(&config(), WRONG);
}

#[test]
fn what_warns_fails_where_warnings_are_denied() {
    for (name, part, program) in WARNED {
        let failure = config().deny_warnings().run(*program).failure;
        let said: Vec<_> =
            failure.iter().flat_map(|failure| &failure.report.findings).map(ToString::to_string).collect();
        assert!(said.iter().any(|said| said.contains(part)), "{name}: must say `{part}`, says {said:#?}");
    }
}

#[test]
fn a_kernel_that_only_writes_reads_nothing() {
    let program: fn(&Sim) = |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        launch(d, &a, &d.function(&code, "set").unwrap(), m).unwrap();
        launch(d, &a, &d.function(&code, "add").unwrap(), m).unwrap();
        sync(d, &a);
        unload(d, code);
        free(d, m);
        end(d, &a);
    };
    let failure = config().deny_warnings().run(program).failure;
    assert!(failure.is_none(), "{}", failure.map_or_else(String::new, |failure| failure.to_string()));
}

#[test]
fn no_right_program_is_accused() {
    let accused: Vec<_> = RIGHT
        .iter()
        .map(|(name, program)| (name, said(&config(), *program)))
        .filter(|(_, said)| !said.is_empty())
        .map(|(name, said)| format!("{name}: {said:#?}"))
        .collect();
    assert!(accused.is_empty(), "{}", accused.join("\n"));
}

#[test]
fn a_leak_allowed_hides_no_race() {
    let program: fn(&Sim) = |d| {
        let (a, b, m) = (stream(d), stream(d), alloc(d));
        fill(d, &a, m);
        fill(d, &b, m);
    };
    for seed in 0..40 {
        let config = config().allow_leaks().schedules(1).seed(seed);
        let said = said(&config, program);
        assert!(said.iter().any(|said| said.starts_with("O1: ")), "seed {seed} says {said:?}");
    }
}

const WRONG: &[Wrong] = &[
    // --- kernels that panic
    ("a kernel writes past its argument", "usage", "kernel `past` (op0) panicked, and the device is lost", |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        let _ = launch(d, &a, &d.function(&code, "past").unwrap(), m);
        let _ = d.stream_synchronize(&a);
    }),
    ("a panic beside pending work of another stream", "usage", "panicked, and the device is lost", |d| {
        let (a, b, m, code) = (stream(d), stream(d), alloc(d), module(d));
        fill(d, &b, m);
        let _ = launch(d, &a, &d.function(&code, "past").unwrap(), alloc(d));
        let _ = try_fill(d, &b, m);
        let _ = (d.stream_synchronize(&a), d.stream_synchronize(&b));
    }),
    ("a panic does not excuse what is leaked", "R5", "leak: 2 stream(s) never destroyed", |d| {
        let (a, _b, m, code) = (stream(d), stream(d), alloc(d), module(d));
        let _ = launch(d, &a, &d.function(&code, "past").unwrap(), m);
        let _ = d.stream_synchronize(&a);
    }),
    ("a kernel that panics in a graph", "usage", "kernel `past`", |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        let f = d.function(&code, "past").unwrap();
        let x = ready(d, &graph(d, |s| launch(d, s, &f, m).unwrap()));
        replay(d, &x, &a);
        let _ = d.stream_synchronize(&a);
    }),
    // --- handles and addresses after their end
    ("a stream's handle, handed out again", "S6", "after its object's end", |d| {
        let (a, m) = (stream(d), alloc(d));
        end(d, &a);
        let b = stream(d);
        let _ = try_fill(d, &a, m);
        sync(d, &b);
        free(d, m);
        end(d, &b);
    }),
    ("a stream that is gone is asked", "S6", "stream_query on host thread t0 used handle", |d| {
        let a = stream(d);
        end(d, &a);
        let b = stream(d);
        let _ = d.stream_query(&a);
        end(d, &b);
    }),
    ("an event's handle, handed out again, is recorded", "O7", "event_record", |d| {
        let (a, e) = (stream(d), event(d));
        let old = SimEvent::from_raw(e.handle());
        d.event_destroy(e).unwrap();
        let new = event(d);
        let _ = d.event_record(&old, &a);
        d.event_destroy(new).unwrap();
        sync(d, &a);
        end(d, &a);
    }),
    ("an event that is gone is waited for", "S6", "stream_wait_event", |d| {
        let (a, b, e) = (stream(d), stream(d), event(d));
        d.event_record(&e, &a).unwrap();
        let old = SimEvent::from_raw(e.handle());
        d.event_destroy(e).unwrap();
        let _ = d.stream_wait_event(&b, &old);
        end(d, &a);
        end(d, &b);
    }),
    ("a graph that is gone is instantiated", "O7", "graph_instantiate", |d| {
        let m = alloc(d);
        let g = graph(d, |s| fill(d, s, m));
        let old = SimGraph::from_raw(g.handle());
        d.graph_destroy(g).unwrap();
        let _ = d.graph_instantiate(&old);
        free(d, m);
    }),
    ("an executable that is gone is launched", "O7", "graph_launch", |d| {
        let (a, m) = (stream(d), alloc(d));
        let g = graph(d, |s| fill(d, s, m));
        let x = ready(d, &g);
        let old = SimExecutable::from_raw(x.handle());
        d.executable_destroy(x).unwrap();
        // SAFETY: C4. The handle is refused.
        let _ = unsafe { d.graph_launch(&old, &a) };
        d.graph_destroy(g).unwrap();
        free(d, m);
        end(d, &a);
    }),
    ("an executable that is gone is updated", "O7", "graph_update", |d| {
        let m = alloc(d);
        let g = graph(d, |s| fill(d, s, m));
        let x = ready(d, &g);
        let old = SimExecutable::from_raw(x.handle());
        d.executable_destroy(x).unwrap();
        let _ = d.graph_update(&old, &g);
        d.graph_destroy(g).unwrap();
        free(d, m);
    }),
    ("device memory, freed and allocated anew, by its old address", "O6", "which was freed", |d| {
        let (a, m) = (stream(d), alloc(d));
        free(d, m);
        let n = alloc(d);
        let _ = try_fill(d, &a, m);
        let _ = d.stream_synchronize(&a);
        free(d, n);
        end(d, &a);
    }),
    ("half of what was freed lies in something larger now", "O6", "which was freed", |d| {
        let (a, m) = (stream(d), alloc(d));
        free(d, m);
        let n = d.malloc(64 * N).unwrap();
        let _ = try_fill(d, &a, m.offset(16));
        let _ = d.stream_synchronize(&a);
        free(d, n);
        end(d, &a);
    }),
    ("memory of a pool by its old address, on another stream", "O6", "which was freed", |d| {
        let (a, b) = (stream(d), stream(d));
        let m = d.malloc_async(&a, N).unwrap();
        free_async(d, &a, m);
        let n = d.malloc_async(&a, N).unwrap();
        edge(d, &a, &b);
        let _ = try_fill(d, &b, m);
        let _ = d.stream_synchronize(&b);
        free_async(d, &a, n);
        let _ = d.stream_synchronize(&a);
        end(d, &a);
        end(d, &b);
    }),
    ("a graph fills memory that is somebody else's by now", "C4", "which was freed", |d| {
        let (a, m) = (stream(d), alloc(d));
        let g = graph(d, |s| fill(d, s, m));
        let x = ready(d, &g);
        free(d, m);
        let n = alloc(d);
        replay(d, &x, &a);
        let _ = d.stream_synchronize(&a);
        free(d, n);
        d.executable_destroy(x).unwrap();
        d.graph_destroy(g).unwrap();
        end(d, &a);
    }),
    ("page-locked memory, freed and allocated anew, by its old pointer", "O6", "which was freed", |d| {
        let (a, m, p) = (stream(d), alloc(d), pinned(d));
        unpin(d, p);
        let q = pinned(d);
        let _ = up(d, &a, m, p, N);
        let _ = d.stream_synchronize(&a);
        unpin(d, q);
        free(d, m);
        end(d, &a);
    }),
    ("the alias of a registration that was made anew", "P3", "which is not registered, or no more", |d| {
        let pages = plain(3 * 4096);
        let p = pages.offset(pages.address().wrapping_neg() % 4096);
        let (a, q) = (stream(d), p.offset(4096));
        register(d, p, N);
        let alias = d.host_device_address(p).unwrap();
        unregister(d, p).unwrap();
        register(d, q, N);
        let _ = try_fill(d, &a, alias);
        let _ = d.stream_synchronize(&a);
        let _ = unregister(d, q);
        end(d, &a);
    }),
    ("memory is freed twice, and is another's in between", "O6", "freed before, or never", |d| {
        let m = alloc(d);
        free(d, m);
        let n = alloc(d);
        // SAFETY: O6. It is refused, or frees another's, which is what the row is about.
        let _ = unsafe { d.free(m) };
        // SAFETY: O6. As above.
        let _ = unsafe { d.free(n) };
    }),
    // --- pageable memory
    ("a pageable target is given back under its copy", "P4", "gives back host memory", |d| {
        let (a, m, p) = (stream(d), alloc(d), plain(64));
        fill(d, &a, m);
        down(d, &a, p, m, N).unwrap();
        d.host_memory_gone(p, 64);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    ("a part of a pageable target is given back under its copy", "P4", "gives back host memory", |d| {
        let (a, m, p) = (stream(d), alloc(d), plain(64));
        fill(d, &a, m);
        down(d, &a, p, m, N).unwrap();
        d.host_memory_gone(p.offset(48), 64);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    ("pageable ranges of two streams overlap by a byte", "O1", "writes host memory", |d| {
        let (a, b, m, p) = (stream(d), stream(d), alloc(d), plain(128));
        fill(d, &a, m);
        edge(d, &a, &b);
        down(d, &a, p, m, N).unwrap();
        down(d, &b, p.offset(63), m, N).unwrap();
        sync(d, &a);
        sync(d, &b);
        free(d, m);
        end(d, &a);
        end(d, &b);
    }),
    ("a pageable range is read up on one stream as another writes it", "O1", "host memory", |d| {
        let (a, b, m, n, p) = (stream(d), stream(d), alloc(d), alloc(d), plain(64));
        fill(d, &a, m);
        down(d, &a, p, m, N).unwrap();
        up(d, &b, n, p.offset(32), 16).unwrap();
        sync(d, &a);
        sync(d, &b);
        free(d, m);
        free(d, n);
        end(d, &a);
        end(d, &b);
    }),
    ("a third range between does not make two of the others forgotten", "O1", "host memory", |d| {
        let (a, b, c, m, p) = (stream(d), stream(d), stream(d), alloc(d), plain(256));
        fill(d, &a, m);
        edge(d, &a, &b);
        edge(d, &a, &c);
        down(d, &a, p, m, N).unwrap();
        edge(d, &a, &c);
        down(d, &c, p.offset(32), m, N).unwrap();
        down(d, &b, p.offset(8), m, 8).unwrap();
        [&a, &b, &c].iter().for_each(|s| sync(d, s));
        free(d, m);
        end(d, &a);
        end(d, &b);
        end(d, &c);
    }),
    ("the host reads a pageable target before the stream is waited for", "O3", "host memory", |d| {
        let (a, m, p) = (stream(d), alloc(d), plain(64));
        fill(d, &a, m);
        down(d, &a, p, m, N).unwrap();
        d.host_accessed(p, 64, Read);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    ("the host writes a pageable source before the stream is waited for", "O3", "writes", |d| {
        let (a, m, p) = (stream(d), alloc(d), plain(64));
        up(d, &a, m, p, N).unwrap();
        d.host_accessed(p.offset(60), 4, Write);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    ("memory is registered while an older copy to it is pending elsewhere", "O1", "host memory", |d| {
        let (a, b, m, p) = (stream(d), stream(d), alloc(d), plain(64));
        fill(d, &a, m);
        edge(d, &a, &b);
        down(d, &a, p, m, N).unwrap();
        register(d, p, N);
        down(d, &b, p, m, N).unwrap();
        sync(d, &a);
        sync(d, &b);
        unregister(d, p).unwrap();
        free(d, m);
        end(d, &a);
        end(d, &b);
    }),
    ("a copy begins in a registration and ends outside", "P2", "cross the end of a registration", |d| {
        let (a, m, p) = (stream(d), d.malloc(128).unwrap(), plain(128));
        register(d, p, 64);
        let _ = up(d, &a, m, p, 128);
        unregister(d, p).unwrap();
        free(d, m);
        end(d, &a);
    }),
    ("a graph reads pageable memory that was given back", "P4", "gave it back to the system", |d| {
        let (a, m, p) = (stream(d), alloc(d), plain(64));
        let g = graph(d, |s| up(d, s, m, p, N).unwrap());
        let x = ready(d, &g);
        d.host_memory_gone(p, 64);
        replay(d, &x, &a);
        let _ = d.stream_synchronize(&a);
        d.executable_destroy(x).unwrap();
        d.graph_destroy(g).unwrap();
        free(d, m);
        end(d, &a);
    }),
    // --- host functions that others see half done
    ("memory is written while the function that signalled reads it", "O3", "a host function reads host memory", |d| {
        let (a, p, told) = (stream(d), pinned(d), d.signal("told"));
        let (tell, inner) = (told.clone(), d.clone());
        call(d, &a, move || {
            tell.set();
            inner.host_accessed(p, 64, Read);
        });
        told.wait();
        d.host_accessed(p, 64, Write);
        sync(d, &a);
        unpin(d, p);
        end(d, &a);
    }),
    ("whoever a function wakes takes its stream for idle", "panic", "the function has returned", |d| {
        let (a, told) = (stream(d), d.signal("told"));
        let tell = told.clone();
        call(d, &a, move || tell.set());
        told.wait();
        assert_eq!(d.stream_query(&a).unwrap(), Progress::Complete, "the function has returned");
        end(d, &a);
    }),
    ("what a function stores after its signal is taken for stored", "panic", "the value is there", |d| {
        let (a, told, value) = (stream(d), d.signal("told"), Arc::new(AtomicU64::new(0)));
        let (tell, store) = (told.clone(), value.clone());
        call(d, &a, move || {
            tell.set();
            store.store(1, Ordering::Relaxed);
        });
        told.wait();
        assert_eq!(value.load(Ordering::Relaxed), 1, "the value is there");
        sync(d, &a);
        end(d, &a);
    }),
    (
        "page-locked memory is freed at the signal of a function that still reads it",
        "P3",
        "after a host function, which reads it",
        |d| {
            let (a, p, told) = (stream(d), pinned(d), d.signal("told"));
            let (tell, inner) = (told.clone(), d.clone());
            call(d, &a, move || {
                tell.set();
                inner.host_accessed(p, 64, Read);
            });
            told.wait();
            unpin(d, p);
            sync(d, &a);
            end(d, &a);
        },
    ),
    ("a function waits for a signal that comes after it", "R2", "a host function waits for after", |d| {
        let (a, after) = (stream(d), d.signal("after"));
        let waits = after.clone();
        call(d, &a, move || waits.wait());
        sync(d, &a);
        after.set();
        end(d, &a);
    }),
    ("a function calls the driver as what it holds is dropped", "R2", "called the driver: event_query", |d| {
        struct Asks(Sim, SimEvent);
        impl Drop for Asks {
            fn drop(&mut self) {
                let _ = self.0.event_query(&self.1);
            }
        }
        let (a, asks) = (stream(d), Asks(d.clone(), event(d)));
        call(d, &a, move || {
            let _ = &asks;
        });
        sync(d, &a);
        end(d, &a);
    }),
    ("a function waits for a thread that waits for its stream", "R2", "a host function waits for join", |d| {
        let (a, inner) = (Arc::new(stream(d)), d.clone());
        let other = a.clone();
        let thread = d.spawn("other", move || sync(&inner, &other));
        let thread = std::sync::Mutex::new(Some(thread));
        call(d, &a, move || {
            let thread = thread.lock().unwrap().take();
            thread.into_iter().for_each(tenure_sim::check::Join::join);
        });
        sync(d, &a);
        end(d, &a);
    }),
    // --- modules
    ("a module is unloaded under the graph that runs its kernel", "C4", "unloaded a module while", |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        let f = d.function(&code, "set").unwrap();
        let g = graph(d, |s| launch(d, s, &f, m).unwrap());
        let x = ready(d, &g);
        replay(d, &x, &a);
        unload(d, code);
        let _ = d.stream_synchronize(&a);
        d.executable_destroy(x).unwrap();
        d.graph_destroy(g).unwrap();
        free(d, m);
        end(d, &a);
    }),
    ("a graph is replayed after its module is gone", "C4", "whose module was unloaded", |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        let f = d.function(&code, "set").unwrap();
        let g = graph(d, |s| launch(d, s, &f, m).unwrap());
        let x = ready(d, &g);
        unload(d, code);
        // SAFETY: C4. It is refused, or found.
        let _ = unsafe { d.graph_launch(&x, &a) };
        let _ = d.stream_synchronize(&a);
        d.executable_destroy(x).unwrap();
        d.graph_destroy(g).unwrap();
        free(d, m);
        end(d, &a);
    }),
    ("a module is unloaded behind the edge that the kernel waits for", "C4", "which runs it, was pending", |d| {
        let (a, b, m, code) = (stream(d), stream(d), alloc(d), module(d));
        let f = d.function(&code, "set").unwrap();
        fill(d, &a, m);
        edge(d, &a, &b);
        launch(d, &b, &f, m).unwrap();
        sync(d, &a);
        unload(d, code);
        let _ = d.stream_synchronize(&b);
        free(d, m);
        end(d, &a);
        end(d, &b);
    }),
    ("a function of a module that was loaded anew", "O7", "after its object's end", |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        let f = d.function(&code, "set").unwrap();
        unload(d, code);
        let again = module(d);
        let _ = launch(d, &a, &f, m);
        unload(d, again);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    // --- host memory
    ("the host reads page-locked memory after its free", "P4", "which was freed", |d| {
        let p = pinned(d);
        unpin(d, p);
        d.host_accessed(p, 8, Read);
    }),
    ("the host writes past the end of page-locked memory", "usage", "reaches past the end", |d| {
        let p = pinned(d);
        d.host_accessed(p.offset(60), 8, Write);
        unpin(d, p);
    }),
    ("registered memory is given back and never used again", "P4", "while it was registered", |d| {
        let p = plain(64);
        register(d, p, N);
        d.host_memory_gone(p.offset(16), 16);
        unregister(d, p).unwrap();
    }),
    ("the two ends of a copy overlap", "usage", "source and target share bytes", |d| {
        let (a, m) = (stream(d), d.malloc(2 * N).unwrap());
        // SAFETY: O1. As the row is about.
        unsafe { d.fill(&a, m, 1, 2 * N) }.unwrap();
        copy(d, &a, m.offset(8), m);
        let _ = d.stream_synchronize(&a);
        free(d, m);
        end(d, &a);
    }),
    ("a stream is destroyed while it captures", "C7", "destroyed s1 while it captured", |d| {
        let a = stream(d);
        d.capture_begin(&a, CaptureMode::Relaxed).unwrap();
        end(d, &a);
    }),
    ("page-locked memory is freed under its copy", "P3", "", |d| {
        let (a, m, p) = (stream(d), alloc(d), pinned(d));
        fill(d, &a, m);
        down(d, &a, p, m, N).unwrap();
        unpin(d, p);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    ("host memory is read while the device writes its alias", "O3", "host memory", |d| {
        let (a, p) = (stream(d), pinned(d));
        fill(d, &a, d.host_device_address(p).unwrap());
        d.host_accessed(p, 4, Read);
        sync(d, &a);
        unpin(d, p);
        end(d, &a);
    }),
    // --- calls that are refused
    ("memory is unregistered twice", "P5", "nothing is registered there", |d| {
        let p = plain(64);
        register(d, p, N);
        unregister(d, p).unwrap();
        let _ = unregister(d, p);
    }),
    ("memory is unregistered by a pointer into it", "P5", "no registration begins there", |d| {
        let p = plain(64);
        register(d, p, N);
        let _ = unregister(d, p.offset(16));
        unregister(d, p).unwrap();
    }),
    ("the time between events that have none", "usage", "must be timed, recorded and complete", |d| {
        let (a, e, f) = (stream(d), event(d), event(d));
        d.event_record(&e, &a).unwrap();
        d.event_record(&f, &a).unwrap();
        sync(d, &a);
        let _ = d.event_elapsed(&e, &f);
        d.event_destroy(e).unwrap();
        d.event_destroy(f).unwrap();
        end(d, &a);
    }),
    ("a fork that is not joined", "C7", "was not joined back", |d| {
        let (a, b, m, e) = (stream(d), stream(d), alloc(d), event(d));
        d.capture_begin(&a, CaptureMode::Relaxed).unwrap();
        d.event_record(&e, &a).unwrap();
        d.stream_wait_event(&b, &e).unwrap();
        fill(d, &b, m);
        let _ = d.capture_end(&a);
        d.event_destroy(e).unwrap();
        end(d, &a);
        end(d, &b);
        free(d, m);
    }),
    ("the end of a capture that nobody began", "C7", "no capture goes on there", |d| {
        let a = stream(d);
        let _ = d.capture_end(&a);
        end(d, &a);
    }),
    ("a capture is ended on the stream that joined it", "C7", "did not begin on this stream", |d| {
        let (a, b, e) = (stream(d), stream(d), event(d));
        d.capture_begin(&a, CaptureMode::Relaxed).unwrap();
        d.event_record(&e, &a).unwrap();
        d.stream_wait_event(&b, &e).unwrap();
        let _ = d.capture_end(&b);
        let _ = d.capture_end(&a);
        d.event_destroy(e).unwrap();
        end(d, &a);
        end(d, &b);
    }),
    ("a launch with an empty grid", "usage", "the grid or the block is empty", |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        let f = d.function(&code, "set").unwrap();
        let config = LaunchConfig { grid: [0, 1, 1], block: [1, 1, 1], shared_bytes: 0 };
        // SAFETY: O1. It is refused.
        let _ = unsafe { d.launch(&a, &f, &config, &[Argument::Pointer { address: m, bytes: N }]) };
        free(d, m);
        end(d, &a);
    }),
    ("an odd address for elements of eight bytes", "usage", "not aligned for the element type", |d| {
        let (a, m, code) = (stream(d), d.malloc(2 * N).unwrap(), module(d));
        let f = d.function(&code, "wide").unwrap();
        launch(d, &a, &f, m.offset(4)).unwrap();
        let _ = d.stream_synchronize(&a);
        free(d, m);
        end(d, &a);
    }),
    // --- default streams, and waits that are nothing to lean on
    ("the legacy stream orders no stream that does not block", "O1", "writes m0", |d| {
        let (a, m) = (stream(d), alloc(d));
        fill(d, &a, m);
        fill(d, &SimStream::legacy(), m);
        sync(d, &a);
        sync(d, &SimStream::legacy());
        free(d, m);
        end(d, &a);
    }),
    ("two threads' own default streams are two streams", "O1", "writes m0", |d| {
        let (m, inner) = (alloc(d), d.clone());
        let thread = d.spawn("other", move || {
            fill(&inner, &SimStream::per_thread(), m);
            sync(&inner, &SimStream::per_thread());
        });
        fill(d, &SimStream::per_thread(), m);
        sync(d, &SimStream::per_thread());
        thread.join();
        free(d, m);
    }),
    ("a free of other memory is no wait for the device", "O6", "frees m0", |d| {
        let (a, m, n) = (stream(d), alloc(d), alloc(d));
        fill(d, &a, m);
        free(d, n);
        free(d, m);
        sync(d, &a);
        end(d, &a);
    }),
    ("a copy down to pageable memory is no wait for the stream", "O6", "frees m0", |d| {
        let (a, m, p) = (stream(d), alloc(d), plain(64));
        fill(d, &a, m);
        down(d, &a, p, m, N).unwrap();
        free(d, m);
        sync(d, &a);
        end(d, &a);
    }),
    // --- graphs that are changed
    ("an executable is updated to write what another stream writes", "O1", "writes m1", |d| {
        let (a, b, m, n) = (stream(d), stream(d), alloc(d), alloc(d));
        let (g, h) = (graph(d, |s| fill(d, s, m)), graph(d, |s| fill(d, s, n)));
        let x = ready(d, &g);
        replay(d, &x, &a);
        d.graph_update(&x, &h).unwrap();
        replay(d, &x, &a);
        fill(d, &b, n);
        sync(d, &a);
        sync(d, &b);
        d.executable_destroy(x).unwrap();
        d.graph_destroy(g).unwrap();
        d.graph_destroy(h).unwrap();
        free(d, m);
        free(d, n);
        end(d, &a);
        end(d, &b);
    }),
    ("memory of the graph before an update is freed under its launch", "O6", "frees m0", |d| {
        let (a, m, n) = (stream(d), alloc(d), alloc(d));
        let (g, h) = (graph(d, |s| fill(d, s, m)), graph(d, |s| fill(d, s, n)));
        let x = ready(d, &g);
        replay(d, &x, &a);
        d.graph_update(&x, &h).unwrap();
        free(d, m);
        sync(d, &a);
        d.executable_destroy(x).unwrap();
        d.graph_destroy(g).unwrap();
        d.graph_destroy(h).unwrap();
        free(d, n);
        end(d, &a);
    }),
    ("an executable is destroyed under its second launch", "C4", "had not completed", |d| {
        let (a, m) = (stream(d), alloc(d));
        let g = graph(d, |s| fill(d, s, m));
        let x = ready(d, &g);
        replay(d, &x, &a);
        sync(d, &a);
        replay(d, &x, &a);
        d.executable_destroy(x).unwrap();
        sync(d, &a);
        d.graph_destroy(g).unwrap();
        free(d, m);
        end(d, &a);
    }),
    // --- hangs
    ("two threads wait for each other", "R6", "deadlock: ", |d| {
        let (ping, pong) = (d.signal("ping"), d.signal("pong"));
        let (first, second) = (ping.clone(), pong.clone());
        let thread = d.spawn("other", move || {
            first.wait();
            second.set();
        });
        pong.wait();
        ping.set();
        thread.join();
    }),
];

/// A name, what is said, and the program.
type Warned = (&'static str, &'static str, fn(&Sim));

/// What is legal and no good idea: a part of what is said, and the program.
const WARNED: &[Warned] = &[
    ("a copy of memory that nothing wrote", "not all of which was ever written", |d| {
        let (a, m, n) = (stream(d), alloc(d), alloc(d));
        copy(d, &a, m, n);
        sync(d, &a);
        free(d, m);
        free(d, n);
        end(d, &a);
    }),
    ("a kernel adds to memory that nothing wrote", "not all of which was ever written", |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        launch(d, &a, &d.function(&code, "add").unwrap(), m).unwrap();
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    ("a kernel adds to memory half of which was written", "not all of which was ever written", |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        // SAFETY: P4. The memory is longer.
        unsafe { d.fill(&a, m, 0, N / 2) }.unwrap();
        launch(d, &a, &d.function(&code, "add").unwrap(), m).unwrap();
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    ("a stream that goes with work pending", "were pending", |d| {
        let (a, m) = (stream(d), alloc(d));
        fill(d, &a, m);
        end(d, &a);
        d.device_synchronize().unwrap();
        free(d, m);
    }),
];

const RIGHT: &[Right] = &[
    ("one executable on two streams, the first launch complete or not", |d| {
        let (a, b, m) = (stream(d), stream(d), alloc(d));
        let g = graph(d, |s| fill(d, s, m));
        let x = ready(d, &g);
        replay(d, &x, &a);
        replay(d, &x, &b);
        replay(d, &x, &a);
        sync(d, &a);
        sync(d, &b);
        d.executable_destroy(x).unwrap();
        d.graph_destroy(g).unwrap();
        free(d, m);
        end(d, &a);
        end(d, &b);
    }),
    ("an executable is updated between launches on two streams", |d| {
        let (a, b, m) = (stream(d), stream(d), alloc(d));
        let (g, h) = (graph(d, |s| fill(d, s, m)), graph(d, |s| fill(d, s, m)));
        let x = ready(d, &g);
        replay(d, &x, &a);
        d.graph_update(&x, &h).unwrap();
        replay(d, &x, &b);
        sync(d, &a);
        sync(d, &b);
        d.executable_destroy(x).unwrap();
        d.graph_destroy(g).unwrap();
        d.graph_destroy(h).unwrap();
        free(d, m);
        end(d, &a);
        end(d, &b);
    }),
    ("two threads launch one executable", |d| {
        let (m, inner) = (alloc(d), d.clone());
        let g = graph(d, |s| fill(d, s, m));
        let x = Arc::new(ready(d, &g));
        let other = x.clone();
        let thread = d.spawn("other", move || {
            let b = stream(&inner);
            replay(&inner, &other, &b);
            sync(&inner, &b);
            end(&inner, &b);
        });
        let a = stream(d);
        replay(d, &x, &a);
        sync(d, &a);
        end(d, &a);
        thread.join();
        d.executable_destroy(Arc::into_inner(x).unwrap()).unwrap();
        d.graph_destroy(g).unwrap();
        free(d, m);
    }),
    ("a pageable target is read after a wait for the stream", |d| {
        let (a, m, p) = (stream(d), alloc(d), plain(64));
        fill(d, &a, m);
        down(d, &a, p, m, N).unwrap();
        sync(d, &a);
        d.host_accessed(p, 64, Read);
        d.host_memory_gone(p, 64);
        free(d, m);
        end(d, &a);
    }),
    ("pageable ranges of two streams that touch", |d| {
        let (a, b, m, p) = (stream(d), stream(d), alloc(d), plain(128));
        fill(d, &a, m);
        edge(d, &a, &b);
        down(d, &a, p, m, N).unwrap();
        down(d, &b, p.offset(64), m, N).unwrap();
        sync(d, &a);
        sync(d, &b);
        free(d, m);
        end(d, &a);
        end(d, &b);
    }),
    ("a flag of a function ends a wait, and what it read is written", |d| {
        let (a, p, flag) = (stream(d), pinned(d), Arc::new(AtomicBool::new(false)));
        let (set, inner) = (flag.clone(), d.clone());
        call(d, &a, move || {
            inner.host_accessed(p, 64, Read);
            set.store(true, Ordering::Relaxed);
        });
        while !flag.load(Ordering::Relaxed) {
            d.yield_now();
        }
        d.host_accessed(p, 64, Write);
        sync(d, &a);
        unpin(d, p);
        end(d, &a);
    }),
    ("two signals of a function, each for what came before it", |d| {
        let (a, p, first, second) = (stream(d), pinned(d), d.signal("first"), d.signal("second"));
        let (one, two, inner) = (first.clone(), second.clone(), d.clone());
        call(d, &a, move || {
            one.set();
            inner.host_accessed(p, 64, Read);
            two.set();
        });
        first.wait();
        second.wait();
        d.host_accessed(p, 64, Write);
        sync(d, &a);
        unpin(d, p);
        end(d, &a);
    }),
    ("what a function holds is dropped without calls", |d| {
        let (a, value) = (stream(d), Arc::new(7));
        let held = value.clone();
        call(d, &a, move || assert_eq!(*held, 7));
        sync(d, &a);
        end(d, &a);
    }),
    ("a module is unloaded after a wait for its kernel", |d| {
        let (a, m, code) = (stream(d), alloc(d), module(d));
        launch(d, &a, &d.function(&code, "set").unwrap(), m).unwrap();
        sync(d, &a);
        unload(d, code);
        free(d, m);
        end(d, &a);
    }),
    ("one module is unloaded as another's kernel is pending", |d| {
        let (a, m, code, other) = (stream(d), alloc(d), module(d), module(d));
        launch(d, &a, &d.function(&code, "set").unwrap(), m).unwrap();
        unload(d, other);
        sync(d, &a);
        unload(d, code);
        free(d, m);
        end(d, &a);
    }),
    ("memory is freed, and its address used by who has it now", |d| {
        let (a, m) = (stream(d), alloc(d));
        fill(d, &a, m);
        sync(d, &a);
        free(d, m);
        let n = alloc(d);
        fill(d, &a, n);
        sync(d, &a);
        free(d, n);
        end(d, &a);
    }),
    ("two registrations that touch, a copy in each", |d| {
        let (a, m, p) = (stream(d), alloc(d), plain(128));
        register(d, p, N);
        register(d, p.offset(64), N);
        up(d, &a, m, p, N).unwrap();
        up(d, &a, m, p.offset(64), N).unwrap();
        sync(d, &a);
        unregister(d, p).unwrap();
        unregister(d, p.offset(64)).unwrap();
        free(d, m);
        end(d, &a);
    }),
    ("the legacy stream waits for a stream that blocks", |d| {
        let (a, m) = (d.stream_create_with(Priority::Normal, true).unwrap(), alloc(d));
        fill(d, &a, m);
        fill(d, &SimStream::legacy(), m);
        fill(d, &a, m);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    ("a thread's own default stream is one stream", |d| {
        let m = alloc(d);
        fill(d, &SimStream::per_thread(), m);
        fill(d, &SimStream::per_thread(), m);
        sync(d, &SimStream::per_thread());
        free(d, m);
    }),
    ("a copy of one half to the other", |d| {
        let (a, m) = (stream(d), d.malloc(2 * N).unwrap());
        fill(d, &a, m);
        copy(d, &a, m.offset(N), m);
        sync(d, &a);
        free(d, m);
        end(d, &a);
    }),
    ("an event outlives its record's stream, and is waited for", |d| {
        let (a, b, m, e) = (stream(d), stream(d), alloc(d), event(d));
        fill(d, &a, m);
        d.event_record(&e, &a).unwrap();
        d.stream_wait_event(&b, &e).unwrap();
        fill(d, &b, m);
        sync(d, &b);
        end(d, &a);
        d.event_synchronize(&e).unwrap();
        d.event_destroy(e).unwrap();
        free(d, m);
        end(d, &b);
    }),
    ("a wait for the device comes after streams that are idle, and gone", |d| {
        let (a, b, m, n) = (stream(d), stream(d), alloc(d), alloc(d));
        // SAFETY: P4. The memory is so long.
        unsafe { d.fill_and_wait(m, 0, N) }.unwrap();
        fill(d, &a, n);
        end(d, &a);
        while d.stream_query(&b).unwrap() == Progress::Pending {}
        d.device_synchronize().unwrap();
        free(d, m);
        free(d, n);
        end(d, &b);
    }),
    ("not ready is an answer and no mistake", |d| {
        let (a, m) = (stream(d), alloc(d));
        fill(d, &a, m);
        while d.stream_query(&a).unwrap() == Progress::Pending {}
        free(d, m);
        end(d, &a);
    }),
    ("a host function of a graph, launched twice", |d| {
        let (a, count) = (stream(d), Arc::new(AtomicU64::new(0)));
        let add = count.clone();
        let g = graph(d, move |s| {
            let add = add.clone();
            call(d, s, move || {
                add.fetch_add(1, Ordering::Relaxed);
            });
        });
        let x = ready(d, &g);
        replay(d, &x, &a);
        replay(d, &x, &a);
        sync(d, &a);
        assert_eq!(count.load(Ordering::Relaxed), 2);
        d.executable_destroy(x).unwrap();
        d.graph_destroy(g).unwrap();
        end(d, &a);
    }),
];
