//! Locks under a schedule: those that the schedule knows, and what becomes of those that it does not.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tenure::driver::{Driver, Priority};
use tenure_sim::sync::{Condvar, Mutex, RwLock};
use tenure_sim::{Config, Sim, check};

/// Both ways of running host threads.
fn both() -> [Config; 2] {
    [Config::default().schedules(60), Config::default().schedules(60).fibers()]
}

/// What is found first, or nothing.
fn found(config: &Config, body: impl Fn(&Sim) + Send + Sync + 'static) -> String {
    let failure = config.run(body).failure;
    failure.map_or_else(String::new, |failure| {
        let findings: Vec<_> = failure.report.findings.iter().map(ToString::to_string).collect();
        format!("{}{}", failure.panics.join("\n"), findings.join("\n"))
    })
}

/// A driver call, in which others may run.
fn call(sim: &Sim) {
    let stream = sim.stream_create(Priority::Normal).expect("streams can be made");
    // SAFETY: S6. Nobody else knows the stream.
    unsafe { sim.stream_destroy(&stream) }.expect("the stream is idle");
}

#[test]
fn a_mutex_lets_one_thread_in_at_a_time() {
    for config in both() {
        check(config, |sim| {
            let count = Arc::new(Mutex::new(0));
            let add = |sim: &Sim, count: &Mutex<u32>| {
                let mut held = count.lock().expect("nobody panics");
                let before = *held;
                call(sim);
                *held = before + 1;
            };
            let (other, shared) = (sim.clone(), count.clone());
            let thread = sim.spawn("other", move || add(&other, &shared));
            add(sim, &count);
            thread.join();
            assert_eq!(*count.lock().expect("nobody panics"), 2, "no addition is lost");
        });
    }
}

#[test]
fn two_locks_in_two_orders_are_a_deadlock_that_names_both() {
    for config in both() {
        let said = found(&config, |sim| {
            let (left, right) = (Arc::new(Mutex::named("left", ())), Arc::new(Mutex::named("right", ())));
            let (other_left, other_right) = (left.clone(), right.clone());
            let thread = sim.spawn("other", move || {
                let _right = other_right.lock();
                let _left = other_left.lock();
            });
            let held = left.lock();
            let second = right.lock();
            drop((held, second));
            thread.join();
        });
        assert!(said.starts_with("usage: deadlock: "), "{said}");
        assert!(said.contains("main waits for the lock `right`, which other holds"), "{said}");
        assert!(said.contains("other waits for the lock `left`, which main holds"), "{said}");
    }
}

#[test]
fn a_lock_taken_twice_is_named_by_the_line_that_made_it() {
    let said = found(&Config::default().schedules(1), |_| {
        let lock = Mutex::new(());
        let _first = lock.lock();
        let _second = lock.lock();
    });
    assert!(said.contains("main waits for the lock of sim/tests/locks.rs:"), "{said}");
    assert!(said.contains("which main holds"), "{said}");
}

#[test]
fn a_lock_held_over_a_wait_for_who_wants_it_is_told() {
    for config in both() {
        let said = found(&config, |sim| {
            let lock = Arc::new(Mutex::named("state", ()));
            let told = sim.signal("told");
            let (shared, tell) = (lock.clone(), told.clone());
            let thread = sim.spawn("other", move || {
                let held = shared.lock();
                tell.set();
                drop(held);
            });
            let held = lock.lock();
            told.wait();
            drop(held);
            thread.join();
        });
        assert!(said.contains("other waits for the lock `state`, which main holds"), "{said}");
        assert!(said.contains("main waits for the signal told"), "{said}");
    }
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let seen = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    for config in both() {
        let seen = seen.clone();
        check(config, move |sim| {
            let lock = Arc::new(RwLock::new((0, 0)));
            let readers = Arc::new(Mutex::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (sim2, lock, readers, seen) = (sim.clone(), lock.clone(), readers.clone(), seen.clone());
                    sim.spawn("reader", move || {
                        let held = lock.read().expect("nobody panics");
                        *readers.lock().expect("nobody panics") += 1;
                        call(&sim2);
                        assert_eq!(held.0, held.1, "a write is seen whole");
                        let count = *readers.lock().expect("nobody panics");
                        seen.lock().expect("nobody panics").insert(count);
                        *readers.lock().expect("nobody panics") -= 1;
                    })
                })
                .collect();
            let mut held = lock.write().expect("nobody panics");
            held.0 += 1;
            call(sim);
            held.1 += 1;
            drop(held);
            threads.into_iter().for_each(|thread| thread.join());
        });
    }
    assert!(seen.lock().expect("nobody panics").contains(&2), "in some schedule both read at once");
}

#[test]
fn a_condition_variable_hands_over_and_a_notice_too_early_is_lost() {
    for config in both() {
        check(config.clone(), |sim| {
            let place = Arc::new((Mutex::new(None), Condvar::new()));
            let other = place.clone();
            let thread = sim.spawn("other", move || {
                *other.0.lock().expect("nobody panics") = Some(7);
                other.1.notify_one();
            });
            let held = place.0.lock().expect("nobody panics");
            let held = place.1.wait_while(held, |value| value.is_none()).expect("nobody panics");
            assert_eq!(*held, Some(7));
            drop(held);
            thread.join();
        });
        let said = found(&config, |sim| {
            let place = Arc::new((Mutex::new(()), Condvar::new()));
            let other = place.clone();
            let thread = sim.spawn("other", move || other.1.notify_one());
            drop(place.1.wait(place.0.lock().expect("nobody panics")));
            thread.join();
        });
        assert!(said.contains("main waits for the condition variable of sim/tests/locks.rs:"), "{said}");
    }
}

#[test]
fn a_limit_comes_before_or_after_the_notice() {
    let seen = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let outcomes = seen.clone();
    check(Config::default().schedules(60).fibers(), move |sim| {
        let place = Arc::new((Mutex::new(()), Condvar::new()));
        let other = place.clone();
        let thread = sim.spawn("other", move || other.1.notify_one());
        let held = place.0.lock().expect("nobody panics");
        let (held, result) = place.1.wait_timeout(held, Duration::from_millis(1)).expect("nobody panics");
        outcomes.lock().expect("nobody panics").insert(result.timed_out());
        drop(held);
        thread.join();
    });
    assert_eq!(seen.lock().expect("nobody panics").len(), 2, "both are met");
}

#[test]
fn outside_of_a_schedule_they_are_ordinary_locks() {
    let place = Arc::new((Mutex::new(0), Condvar::new(), RwLock::new(())));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let place = place.clone();
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let _reads = place.2.read();
                    *place.0.lock().expect("nobody panics") += 1;
                    place.1.notify_all();
                }
            })
        })
        .collect();
    let held = place.0.lock().expect("nobody panics");
    let held = place.1.wait_while(held, |count| *count < 400).expect("nobody panics");
    assert_eq!(*held, 400);
    drop(held);
    threads.into_iter().for_each(|thread| thread.join().expect("nobody panics"));
    let (poisoned, lock) = (place.clone(), &place.0);
    let panicked = std::thread::spawn(move || {
        let _held = poisoned.0.lock();
        panic!("meant to be seen");
    });
    assert!(panicked.join().is_err());
    assert!(lock.is_poisoned() && lock.lock().is_err() && lock.try_lock().is_err());
    lock.clear_poison();
    assert_eq!(lock.lock().map(|held| *held).ok(), Some(400));
}

#[test]
fn locks_and_channels_of_std_are_waited_for_outside() {
    for config in both() {
        check(config.schedules(10), |sim| {
            let lock = Arc::new(std::sync::Mutex::new(0));
            let (send, receive) = mpsc::channel();
            let (other, shared) = (sim.clone(), lock.clone());
            let thread = sim.spawn("other", move || {
                let mut held = shared.lock().expect("nobody panics");
                call(&other);
                *held += receive.recv().expect("somebody sends");
            });
            send.send(1).expect("somebody receives");
            let mut held = lock.lock().expect("nobody panics");
            call(sim);
            *held += 1;
            drop(held);
            thread.join();
            assert_eq!(*lock.lock().expect("nobody panics"), 2);
        });
    }
}

#[test]
fn what_is_waited_for_in_vain_is_told() {
    let parked: fn(&Sim) = |sim| {
        call(sim);
        std::thread::park();
    };
    let twice: fn(&Sim) = |sim| {
        let (left, right) = (Arc::new(std::sync::Mutex::new(())), Arc::new(std::sync::Mutex::new(())));
        let (other_left, other_right, other) = (left.clone(), right.clone(), sim.clone());
        let thread = sim.spawn("other", move || {
            let _right = other_right.lock();
            call(&other);
            let _left = other_left.lock();
        });
        let held = left.lock();
        sim.yield_now();
        call(sim);
        sim.yield_now();
        let second = right.lock();
        drop((held, second));
        thread.join();
    };
    for (what, program) in [("a parked thread", parked), ("two locks of std", twice)] {
        let said = found(&Config::default().schedules(40).fibers(), program);
        assert!(said.contains("R6: hang: "), "{what}: {said}");
        assert!(said.contains("waits for what no schedule knows"), "{what}: {said}");
        assert!(said.contains("since its stream_destroy"), "{what}: {said}");
    }
}
