//! Planted mistakes, each of which must be found under its own line of the contract.

use super::*;
use crate::checker::{Line, Severity};
use crate::driver::{SimEvent, SimStream};
use crate::event::Access;
use std::ptr::NonNull;
use tenure::driver::{
    CaptureMode, DeviceAddress, Driver, HostAccess, HostPointer, Location, Priority, Progress, Timing,
};

const BYTES: u64 = 256;

fn stream(sim: &Sim) -> SimStream {
    sim.stream_create(Priority::Normal).expect("streams can be made")
}

fn memory(sim: &Sim) -> DeviceAddress {
    sim.malloc(BYTES).expect("there is room")
}

fn fill(sim: &Sim, stream: &SimStream, memory: DeviceAddress) {
    // SAFETY: the simulation owns the memory; a use after its end is what the checkers are to find.
    unsafe { sim.fill(stream, memory, 7, BYTES) }.expect("the device works");
}

fn read(sim: &Sim, stream: &SimStream, memory: DeviceAddress, to: DeviceAddress) {
    // SAFETY: the same as for `fill`.
    unsafe { sim.copy(stream, Location::Device(to), Location::Device(memory), BYTES) }.expect("the device works");
}

fn free(sim: &Sim, memory: DeviceAddress) {
    // SAFETY: the same as for `fill`.
    unsafe { sim.free(memory) }.expect("the device works");
}

fn destroy(sim: &Sim, stream: &SimStream) {
    // SAFETY: the same as for `fill`.
    unsafe { sim.stream_destroy(stream) }.expect("the device works");
}

fn edge(sim: &Sim, from: &SimStream, to: &SimStream) {
    let event = event(sim);
    sim.event_record(&event, from).expect("the device works");
    sim.stream_wait_event(to, &event).expect("the device works");
    sim.event_destroy(event).expect("the device works");
}

fn event(sim: &Sim) -> SimEvent {
    sim.event_create(Timing::Disabled).expect("events can be made")
}

fn host(bytes: &mut [u8]) -> HostPointer {
    HostPointer(NonNull::from(bytes).cast())
}

fn quiet() -> Config {
    Config::default().fibers().schedules(200)
}

/// The lines of the violations of the first schedule that fails.
fn lines(config: &Config, body: impl Fn(&Sim) + Send + Sync + 'static) -> Vec<Line> {
    let Some(failure) = config.run(body).failure else { return Vec::new() };
    let mut lines: Vec<_> = failure.report.violations().map(|finding| finding.line).collect();
    lines.dedup();
    lines
}

#[test]
fn o1_two_writers_without_an_edge_race_though_the_bytes_are_right() {
    let body = |sim: &Sim| {
        let (a, b, x) = (stream(sim), stream(sim), memory(sim));
        fill(sim, &a, x);
        fill(sim, &b, x);
        sim.run_to_idle();
    };
    assert_eq!(lines(&quiet().allow_leaks(), body), [Line::O1]);
}

#[test]
fn o1_an_edge_orders_them_and_is_counted_as_needed() {
    check(quiet(), |sim| {
        let (a, b, x) = (stream(sim), stream(sim), memory(sim));
        fill(sim, &a, x);
        edge(sim, &a, &b);
        fill(sim, &b, x);
        edge(sim, &b, &a);
        sim.stream_synchronize(&b).expect("the device works");
        free(sim, x);
        sim.run_to_idle();
        let order = sim.report().order;
        assert_eq!(order.edges, 2);
        assert_eq!(order.edges_needed, 1, "the second edge orders nothing that conflicts");
        destroy(sim, &a);
        destroy(sim, &b);
    });
}

#[test]
fn usage_a_read_of_memory_that_nothing_wrote_is_a_warning() {
    let body = |written: bool| {
        move |sim: &Sim| {
            let (a, x, y) = (stream(sim), memory(sim), memory(sim));
            if written {
                fill(sim, &a, x);
            }
            read(sim, &a, x, y);
            sim.stream_synchronize(&a).expect("the device works");
            free(sim, x);
            free(sim, y);
            destroy(sim, &a);
        }
    };
    check(quiet(), body(false));
    check(quiet().deny_warnings(), body(true));
    let failure = quiet().deny_warnings().run(body(false)).failure.expect("warnings are denied");
    let warning = failure.report.findings.first().expect("there is one");
    assert_eq!((warning.line, warning.severity), (Line::Usage, Severity::Warning));
    assert!(warning.message.ends_with("reads m0[0..256], not all of which was ever written"), "{}", warning.message);
}

#[test]
fn o6_a_free_that_waits_for_one_reader_of_two_is_found() {
    let found = lines(&quiet().allow_leaks(), |sim| {
        let (a, b, x, y) = (stream(sim), stream(sim), memory(sim), memory(sim));
        fill(sim, &a, x);
        edge(sim, &a, &b);
        read(sim, &b, x, y);
        sim.stream_synchronize(&a).expect("the device works");
        free(sim, x);
    });
    assert_eq!(found, [Line::O6]);
}

#[test]
fn o6_a_second_free_is_found() {
    let found = lines(&quiet(), |sim| {
        let x = memory(sim);
        free(sim, x);
        // SAFETY: the second free is the mistake to be found.
        assert!(unsafe { sim.free(x) }.is_err());
    });
    assert_eq!(found, [Line::O6]);
}

#[test]
fn o3_a_host_access_beside_a_copy_is_found() {
    let body = |is_late: bool| {
        move |sim: &Sim| {
            let (a, x) = (stream(sim), memory(sim));
            let mut bytes = vec![0u8; BYTES as usize];
            let pointer = host(&mut bytes);
            // SAFETY: the vector lives until after the unregister.
            unsafe { sim.host_register(pointer, bytes.len(), HostAccess::ReadWrite) }.expect("it can be registered");
            fill(sim, &a, x);
            // SAFETY: both live until after the synchronize.
            unsafe { sim.copy(&a, Location::Host(pointer), Location::Device(x), BYTES) }.expect("the device works");
            if !is_late {
                sim.run_to_idle();
                sim.host_accessed(pointer, bytes.len(), Access::Read);
            }
            sim.stream_synchronize(&a).expect("the device works");
            sim.host_accessed(pointer, bytes.len(), Access::Read);
            assert_eq!(bytes[0], 7);
            // SAFETY: all work has completed.
            unsafe { sim.host_unregister(pointer) }.expect("it is registered");
            free(sim, x);
            destroy(sim, &a);
        }
    };
    assert_eq!(lines(&quiet(), body(false)), [Line::O3]);
    assert_eq!(lines(&quiet(), body(true)), []);
}

#[test]
fn p3_unregistering_under_pending_work_is_found_though_the_driver_waits() {
    let found = lines(&quiet().allow_leaks(), |sim| {
        let (a, x) = (stream(sim), memory(sim));
        let mut bytes = vec![0u8; BYTES as usize];
        let pointer = host(&mut bytes);
        // SAFETY: the vector lives until after the unregister.
        unsafe { sim.host_register(pointer, bytes.len(), HostAccess::ReadWrite) }.expect("it can be registered");
        // SAFETY: unregistering under it is the mistake to be found; the driver waits.
        unsafe { sim.copy(&a, Location::Device(x), Location::Host(pointer), BYTES) }.expect("the device works");
        // SAFETY: as above.
        unsafe { sim.host_unregister(pointer) }.expect("it is registered");
    });
    assert_eq!(found, [Line::P3]);
}

#[test]
fn p6_register_and_unregister_without_a_lock_are_found() {
    let found = lines(&quiet().allow_leaks(), |sim| {
        let bytes = Arc::new(vec![0u8; 64]);
        let pointer = HostPointer(NonNull::from(&bytes[0]));
        // SAFETY: the vector lives to the end of both threads.
        unsafe { sim.host_register(pointer, 64, HostAccess::ReadWrite) }.expect("it can be registered");
        let (device, keep) = (sim.clone(), bytes.clone());
        let other = sim.spawn("other", move || {
            let _keep = keep;
            // SAFETY: the missing lock is the mistake to be found.
            let _ = unsafe { device.host_unregister(pointer) };
        });
        let _ = sim.host_is_registered(pointer);
        other.join();
    });
    assert_eq!(found, [Line::P6]);
}

#[test]
fn c1_a_query_that_breaks_a_capture_is_found_unless_foreign() {
    let body = |is_foreign: bool| {
        move |sim: &Sim| {
            let (a, b) = (stream(sim), stream(sim));
            sim.capture_begin(&a, CaptureMode::Global).expect("nobody captures");
            let query = || assert!(sim.stream_query(&b).is_err());
            if is_foreign {
                sim.foreign(query)
            } else {
                query()
            }
            assert!(sim.capture_end(&a).is_err());
            destroy(sim, &a);
            destroy(sim, &b);
        }
    };
    assert_eq!(lines(&quiet(), body(false)), [Line::C1]);
    assert_eq!(lines(&quiet(), body(true)), []);
}

#[test]
fn c4_an_executable_destroyed_in_flight_is_found() {
    let found = lines(&quiet().policy(Policy::LazyDevice).allow_leaks(), |sim| {
        let (a, x) = (stream(sim), memory(sim));
        sim.capture_begin(&a, CaptureMode::Relaxed).expect("nobody captures");
        fill(sim, &a, x);
        let graph = sim.capture_end(&a).expect("the capture is whole");
        let executable = sim.graph_instantiate(&graph).expect("the graph is whole");
        // SAFETY: the memory lives to the end of the run.
        unsafe { sim.graph_launch(&executable, &a) }.expect("the device works");
        sim.executable_destroy(executable).expect("the driver allows it");
    });
    assert_eq!(found, [Line::C4]);
}

#[test]
fn c4_memory_freed_before_its_graph_is_launched_is_found() {
    let found = lines(&quiet().allow_leaks(), |sim| {
        let (a, x) = (stream(sim), memory(sim));
        sim.capture_begin(&a, CaptureMode::Relaxed).expect("nobody captures");
        fill(sim, &a, x);
        let graph = sim.capture_end(&a).expect("the capture is whole");
        let executable = sim.graph_instantiate(&graph).expect("the graph is whole");
        free(sim, x);
        // SAFETY: the memory is gone, which is the mistake to be found.
        unsafe { sim.graph_launch(&executable, &a) }.expect("the device works");
        assert!(sim.stream_synchronize(&a).is_err(), "the device is lost by the access");
    });
    assert_eq!(found, [Line::C4]);
}

/// A pool of the program's own hands a block from one stream to another.
#[test]
fn o1_memory_of_a_pool_used_again_without_an_edge_is_found() {
    let body = |has_edge: bool| {
        move |sim: &Sim| {
            let (a, b, block) = (stream(sim), stream(sim), memory(sim));
            fill(sim, &a, block);
            if has_edge {
                edge(sim, &a, &b);
            }
            fill(sim, &b, block);
            sim.run_to_idle();
        }
    };
    assert_eq!(lines(&quiet().allow_leaks(), body(false)), [Line::O1]);
    assert_eq!(lines(&quiet().allow_leaks(), body(true)), []);
}

/// The driver's own pool: a stream that takes what another freed uses the address that it was given, not the old one.
#[test]
fn o6_a_stream_that_uses_pool_memory_beside_its_free_is_found() {
    let found = lines(&quiet().allow_leaks(), |sim| {
        let (a, b) = (stream(sim), stream(sim));
        let block = sim.malloc_async(&a, BYTES).expect("there is room");
        edge(sim, &a, &b);
        fill(sim, &b, block);
        // SAFETY: nothing orders the free after the fill, which is the mistake to be found.
        unsafe { sim.free_async(&a, block) }.expect("the device works");
        sim.run_to_idle();
    });
    assert_eq!(found, [Line::O6]);
}

#[test]
fn o1_forks_of_one_graph_that_are_not_joined_race() {
    let body = |is_ordered: bool| {
        move |sim: &Sim| {
            let (a, b, x) = (stream(sim), stream(sim), memory(sim));
            sim.capture_begin(&a, CaptureMode::Relaxed).expect("nobody captures");
            if is_ordered {
                fill(sim, &a, x);
                edge(sim, &a, &b);
            } else {
                edge_from_begin(sim, &a, &b);
                fill(sim, &a, x);
            }
            fill(sim, &b, x);
            edge(sim, &b, &a);
            let graph = sim.capture_end(&a).expect("the capture is whole");
            let executable = sim.graph_instantiate(&graph).expect("the graph is whole");
            // SAFETY: the memory lives to the end of the run.
            unsafe { sim.graph_launch(&executable, &a) }.expect("the device works");
            sim.stream_synchronize(&a).expect("the device works");
        }
    };
    let config = quiet().allow_leaks();
    assert_eq!(lines(&config, body(false)), [Line::O1]);
    assert_eq!(lines(&config, body(true)), []);
}

fn edge_from_begin(sim: &Sim, from: &SimStream, to: &SimStream) {
    // A capture cannot fork before its first node on every driver: an own piece of memory makes one.
    let scratch = sim.exchange_capture_mode(CaptureMode::Relaxed).and_then(|_| sim.malloc(BYTES)).expect("room");
    fill(sim, from, scratch);
    edge(sim, from, to);
}

#[test]
fn r2_a_host_function_that_calls_the_driver_or_waits_is_found() {
    let calls = lines(&quiet(), |sim| {
        let a = stream(sim);
        let device = sim.clone();
        let function = Arc::new(move || assert!(device.malloc(1).is_err()));
        sim.launch_host_function(&a, function).expect("the device works");
        sim.stream_synchronize(&a).expect("the device works");
        destroy(sim, &a);
    });
    assert_eq!(calls, [Line::R2]);
    let waits = lines(&quiet(), |sim| {
        let (a, signal) = (stream(sim), sim.signal("never"));
        sim.launch_host_function(&a, Arc::new(move || signal.wait())).expect("the device works");
        sim.stream_synchronize(&a).expect("the device works");
        destroy(sim, &a);
    });
    assert_eq!(waits, [Line::R2]);
}

#[test]
fn leaks_are_found_by_kind() {
    assert_eq!(lines(&quiet(), |sim| _ = memory(sim)), [Line::O6]);
    assert_eq!(lines(&quiet(), |sim| _ = stream(sim)), [Line::R5]);
    assert_eq!(lines(&quiet(), |sim| _ = sim.host_alloc(64)), [Line::P7]);
}

#[test]
fn r6_a_wait_for_a_stalled_stream_is_a_deadlock_and_ends() {
    for config in [quiet(), Config::default().schedules(3)] {
        let found = lines(&config.allow_leaks(), |sim| {
            let (a, x) = (stream(sim), memory(sim));
            fill(sim, &a, x);
            sim.stall(&a);
            sim.stream_synchronize(&a).expect("never reached");
        });
        assert_eq!(found, [Line::R6]);
    }
}

#[test]
fn o5_two_locks_taken_crosswise_are_a_deadlock() {
    for config in [quiet(), Config::default().schedules(200)] {
        let failure = config.run(|sim| {
            let locks = Arc::new((tenure::sync::Mutex::new(()), tenure::sync::Mutex::new(())));
            let (device, other) = (sim.clone(), locks.clone());
            let thread = sim.spawn("other", move || {
                let _first = other.1.lock();
                device.yield_now();
                drop(other.0.lock());
            });
            {
                let _first = locks.0.lock();
                sim.yield_now();
                drop(locks.1.lock());
            }
            thread.join();
        });
        let failure = failure.failure.expect("some schedule crosses them");
        assert_eq!(failure.report.findings[0].line, Line::O5, "{failure}");
        assert_eq!(failure.threads_left, 0, "both threads unwind");
    }
}

#[test]
fn a_panic_of_a_host_thread_fails_with_its_message() {
    let outcome = quiet().run(|sim| {
        let thread = sim.spawn("other", || panic!("planted"));
        thread.join();
    });
    let failure = outcome.failure.expect("it panics in the first schedule");
    assert_eq!(failure.panics, ["host thread t1 panicked: planted"]);
}

#[test]
fn a_seed_replays_byte_for_byte_and_seeds_differ() {
    let body = |sim: &Sim| {
        let (a, b, x) = (stream(sim), stream(sim), memory(sim));
        let device = sim.clone();
        let thread = sim.spawn("other", move || fill(&device, &b, x));
        fill(sim, &a, x);
        thread.join();
        sim.run_to_idle();
    };
    for seats in [Seats::Threads, Seats::Fibers] {
        let config = Config { seats, ..quiet().allow_leaks() };
        let run = |seed: &str| {
            let failure = config.replay(seed, body).expect("a seed").failure.expect("they always race");
            failure.to_string()
        };
        let texts: Vec<_> = (0..8).map(|seed: u32| run(&seed.to_string())).collect();
        for (seed, text) in texts.iter().enumerate() {
            assert_eq!(*text, run(&seed.to_string()), "seed {seed} must replay");
        }
        assert!(texts.iter().any(|text| text.lines().count() != texts[0].lines().count() || text != &texts[0]));
    }
}

#[test]
fn both_kinds_of_seats_make_the_same_run() {
    let body = |sim: &Sim| {
        let (a, x) = (stream(sim), memory(sim));
        let device = sim.clone();
        let thread = sim.spawn("other", move || fill(&device, &stream(&device), x));
        fill(sim, &a, x);
        thread.join();
        sim.run_to_idle();
    };
    for seed in 0..16 {
        let text = |config: Config| {
            let outcome = config.allow_leaks().replay(&format!("{seed}"), body).expect("a seed");
            outcome.failure.expect("they always race").to_string()
        };
        assert_eq!(text(Config::default()), text(Config::default().fibers()));
    }
}

#[test]
fn every_order_is_walked_and_a_failing_one_replays_by_its_path() {
    let body = |sim: &Sim| {
        let (a, x) = (stream(sim), memory(sim));
        let (device, done) = (sim.clone(), sim.signal("submitted"));
        let set = done.clone();
        let thread = sim.spawn("writer", move || {
            fill(&device, &a, x);
            set.set();
            a
        });
        done.wait();
        let a = thread.join();
        if sim.stream_query(&a) == Ok(Progress::Pending) {
            sim.stream_synchronize(&a).expect("the device works");
        }
        free(sim, x);
        destroy(sim, &a);
    };
    let config = Config::default().fibers().exhaustive().whole_steps().schedules(100_000);
    let outcome = config.run(body);
    assert!(outcome.failure.is_none(), "{}", outcome.failure.expect("checked"));
    // The fill runs before one of the seven points that follow it, or in the wait for it.
    assert!(outcome.is_exhaustive, "the search stopped early");
    assert_eq!(outcome.schedules, 7);
    assert!(!outcome.diverged);

    let racy = |sim: &Sim| {
        let (a, x) = (stream(sim), memory(sim));
        fill(sim, &a, x);
        if sim.stream_query(&a) == Ok(Progress::Complete) {
            sim.host_memory_gone(HostPointer(NonNull::dangling()), 1);
            free(sim, x);
            free(sim, memory(sim));
        } else {
            // SAFETY: the missing wait is the mistake to be found.
            unsafe { sim.free(x) }.expect("the driver waits");
        }
        destroy(sim, &a);
    };
    let failure = config.run(racy).failure.expect("some order frees too early");
    assert_eq!(failure.report.findings[0].line, Line::O6);
    let again = config.replay(&failure.seed, racy).expect("a path").failure.expect("it fails again");
    assert_eq!(again.to_string(), failure.to_string());
}

#[test]
fn a_program_without_an_end_is_found() {
    let found = lines(&quiet().steps_max(1_000), |sim| {
        loop {
            sim.yield_now();
        }
    });
    assert_eq!(found, [Line::R6]);
}

#[test]
fn p4_memory_given_back_while_registered_is_found() {
    let found = lines(&quiet().allow_leaks(), |sim| {
        let (a, x) = (stream(sim), memory(sim));
        let mut bytes = vec![0u8; BYTES as usize];
        let pointer = host(&mut bytes);
        // SAFETY: the vector does live on; the device is told that it does not.
        unsafe { sim.host_register(pointer, bytes.len(), HostAccess::ReadWrite) }.expect("it can be registered");
        sim.host_memory_gone(pointer, bytes.len());
        // SAFETY: as above.
        let _ = unsafe { sim.copy(&a, Location::Device(x), Location::Host(pointer), BYTES) };
        sim.run_to_idle();
    });
    assert_eq!(found, [Line::P4]);
}
