//! Small programs over the facade alone whose outcomes are known.
//!
//! They guard the checkers: `SETS` are run by loom and by shuttle, and the sets of outcomes must be equal, so that a
//! loom that loses schedules (see `core/src/sync/loom.rs`) is found. `MODELS` check that each checker sees the kind of
//! defect that it is trusted with.

use std::sync::Arc as StdArc;

use super::checker::{Witness, spawn};
use super::tenure::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use super::tenure::sync::{Arc, ArcCell, Barrier, Condvar, Mutex};
use super::{Litmus, Model, Reached, Search};
use crate::planted;

/// The programs. The numbers are those of a checker without any reduction.
pub const SETS: &[Litmus] = &[
    Litmus { name: "load_beside_load_store", outcomes: 2, bound: None, body: load_beside_load_store },
    Litmus { name: "load_cas_beside_load", outcomes: 2, bound: None, body: load_cas_beside_load },
    Litmus { name: "locked_store_then_load", outcomes: 2, bound: None, body: locked_store_then_load },
    Litmus { name: "double_checked_slow_path", outcomes: 6, bound: None, body: double_checked_slow_path },
    Litmus { name: "cell_load_store_load", outcomes: 7, bound: None, body: cell_load_store_load },
    Litmus { name: "condvar_handshake", outcomes: 2, bound: None, body: condvar_handshake },
    Litmus { name: "two_locks_crossing_counter", outcomes: 3, bound: None, body: two_locks_crossing_counter },
    Litmus { name: "try_lock_beside_lock", outcomes: 3, bound: None, body: try_lock_beside_lock },
    Litmus { name: "stores_barriers_loads", outcomes: 3, bound: None, body: stores_barriers_loads },
    Litmus { name: "three_threads_load_store", outcomes: 16, bound: Some(3), body: three_threads_load_store },
];

/// A thread that loads and then stores hides nothing from the one that only loads.
fn load_beside_load_store() -> Vec<u64> {
    let word = Arc::new(AtomicU64::new(0));
    let other = spawn({
        let word = word.clone();
        move || {
            word.load(Acquire);
            word.store(1, Release);
        }
    });
    let seen = word.load(Acquire);
    other.join().unwrap();
    vec![seen]
}

fn load_cas_beside_load() -> Vec<u64> {
    let word = Arc::new(AtomicU64::new(0));
    let other = spawn({
        let word = word.clone();
        move || {
            let seen = word.load(Acquire);
            let _ = word.compare_exchange(seen, seen + 1, AcqRel, Acquire);
        }
    });
    let seen = word.load(Acquire);
    other.join().unwrap();
    vec![seen]
}

fn locked_store_then_load() -> Vec<u64> {
    let shared = Arc::new((Mutex::new(()), AtomicU64::new(0)));
    let other = spawn({
        let shared = shared.clone();
        move || {
            let _held = shared.0.lock();
            shared.1.load(Acquire);
            shared.1.store(2, Release);
        }
    });
    {
        let _held = shared.0.lock();
        shared.1.store(1, Release);
    }
    let seen = shared.1.load(Acquire);
    other.join().unwrap();
    vec![seen]
}

/// Two owners of one word that each check, lock, check again and store.
fn double_checked_slow_path() -> Vec<u64> {
    let shared = Arc::new((Mutex::new(()), AtomicU64::new(0)));
    let take = |shared: &(Mutex<()>, AtomicU64), me: u64| {
        if shared.1.load(Acquire) == me {
            return 0;
        }
        let _held = shared.0.lock();
        let before = shared.1.load(Acquire);
        shared.1.store(me, Release);
        before
    };
    let other = spawn({
        let shared = shared.clone();
        move || vec![take(&shared, 2), take(&shared, 2)]
    });
    let mut seen = vec![take(&shared, 1), take(&shared, 1)];
    seen.extend(other.join().unwrap());
    seen
}

fn cell_load_store_load() -> Vec<u64> {
    let cell = Arc::new(ArcCell::new(StdArc::new(0_u64)));
    let work = |cell: &ArcCell<u64>, me: u64| {
        let first = value(cell);
        cell.store(StdArc::new(me));
        vec![first, value(cell)]
    };
    let other = spawn({
        let cell = cell.clone();
        move || work(&cell, 2)
    });
    let mut seen = work(&cell, 1);
    seen.extend(other.join().unwrap());
    seen
}

/// What the cell holds, whichever kind of pointer the facade gives.
fn value<T: Copy>(cell: &ArcCell<T>) -> T {
    let loaded = cell.load();
    let value: &T = &loaded;
    *value
}

fn condvar_handshake() -> Vec<u64> {
    let shared = Arc::new((Mutex::new(false), Condvar::new(), AtomicU64::new(0)));
    let other = spawn({
        let shared = shared.clone();
        move || {
            *shared.0.lock() = true;
            shared.1.notify_all();
            shared.2.load(Relaxed);
            shared.2.store(1, Relaxed);
        }
    });
    let mut ready = shared.0.lock();
    while !*ready {
        shared.1.wait(&mut ready);
    }
    drop(ready);
    let seen = shared.2.load(Relaxed);
    other.join().unwrap();
    vec![seen]
}

fn two_locks_crossing_counter() -> Vec<u64> {
    let shared = Arc::new((Mutex::new(0_u64), Mutex::new(0_u64)));
    let step = |lock: &Mutex<u64>| {
        let mut value = lock.lock();
        *value += 1;
        *value
    };
    let other = spawn({
        let shared = shared.clone();
        move || vec![step(&shared.1), step(&shared.0)]
    });
    let mut seen = vec![step(&shared.0), step(&shared.1)];
    seen.extend(other.join().unwrap());
    seen
}

fn try_lock_beside_lock() -> Vec<u64> {
    let shared = Arc::new(Mutex::new(0_u64));
    let other = spawn({
        let shared = shared.clone();
        move || *shared.lock() = 1
    });
    let seen = shared.try_lock().map_or(2, |value| *value);
    other.join().unwrap();
    vec![seen]
}

/// Each of two threads stores, passes its barrier and loads what the other stores: one of them sees it.
fn stores_barriers_loads() -> Vec<u64> {
    let (owner, revoker) = crossing();
    vec![owner, revoker]
}

fn crossing() -> (u64, u64) {
    let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0), Barrier::new()));
    if !shared.2.is_there() {
        // Where the system has none, no thread owns the bias either.
        return (1, 1);
    }
    let other = spawn({
        let shared = shared.clone();
        move || {
            shared.0.store(1, Relaxed);
            if !planted("litmus.revoker") {
                shared.2.revoker();
            }
            shared.1.load(Relaxed)
        }
    });
    shared.1.store(1, Relaxed);
    if !planted("litmus.owner") {
        shared.2.owner();
    }
    let seen = shared.0.load(Relaxed);
    (seen, other.join().unwrap())
}

fn three_threads_load_store() -> Vec<u64> {
    let word = Arc::new(AtomicU64::new(0));
    let work = |word: &AtomicU64, me: u64| {
        let seen = word.load(Acquire);
        word.store(me, Release);
        seen
    };
    let others: Vec<_> = [1, 2]
        .into_iter()
        .map(|me| {
            let word = word.clone();
            spawn(move || work(&word, me))
        })
        .collect();
    let mut seen = vec![work(&word, 3)];
    seen.extend(others.into_iter().map(|other| other.join().unwrap()));
    seen
}

/// The checks of the checkers themselves.
pub const MODELS: &[Model] = &[
    Model {
        name: "litmus_publication_is_seen",
        claim: "What was written before a release is visible after the acquire that reads it.",
        lines: &[],
        threads: 1,
        operations: "1 write and release, 1 acquire and read",
        bound: None,
        search: Search::Every,
        leaves_out: "nothing",
        reaches: &["the flag was seen"],
        body: publication,
    },
    Model {
        name: "litmus_cell_publishes",
        claim: "What was written before a store to the arc cell is visible to who loads that value.",
        lines: &[],
        threads: 1,
        operations: "1 write and store, 1 load and read",
        bound: None,
        search: Search::Every,
        leaves_out: "when the cell drops what it held",
        reaches: &["the new value was loaded"],
        body: cell_publication,
    },
    Model {
        name: "litmus_barriers_order",
        claim: "Of two threads that store, pass their unlike barriers and load, one sees what the other stored.",
        lines: &[],
        threads: 1,
        operations: "1 store, barrier and load each",
        bound: None,
        search: Search::Every,
        leaves_out: "that the system's barrier does so",
        reaches: &["only one saw the other"],
        body: barriers_order,
    },
];

fn publication(reached: &Reached) {
    // setup
    let shared = Arc::new((Witness::new(), AtomicBool::new(false)));
    // threads
    let writer = spawn({
        let shared = shared.clone();
        move || {
            shared.0.write("a write races with the read that it was published to", || {});
            let order = if planted("litmus.w") { Relaxed } else { Release };
            shared.1.store(true, order);
        }
    });
    let order = if planted("litmus.r") { Relaxed } else { Acquire };
    let seen = shared.1.load(order);
    if seen {
        shared.0.read("a published write is not visible to who saw the flag", || {});
    }
    // join
    writer.join().unwrap();
    // claim: the witness itself
    reached.mark_if(seen, "the flag was seen");
}

fn barriers_order(reached: &Reached) {
    // setup, threads, join
    let (owner, revoker) = crossing();
    // claim
    assert!(owner == 1 || revoker == 1, "two unlike barriers order nothing");
    reached.mark_if(owner != revoker, "only one saw the other");
}

fn cell_publication(reached: &Reached) {
    // setup
    let witness = StdArc::new(Witness::new());
    let cell = Arc::new(ArcCell::new(StdArc::new(false)));
    let hint = Arc::new(AtomicBool::new(false));
    // threads
    let writer = spawn({
        let (witness, cell, hint) = (witness.clone(), cell.clone(), hint.clone());
        move || {
            witness.write("a write races with the read that it was published to", || {});
            cell.store(StdArc::new(true));
            hint.store(true, Relaxed);
        }
    });
    let hinted = hint.load(Relaxed);
    let seen = value(&cell);
    // A relaxed flag promises nothing about the cell: only the value that was loaded does.
    if seen || (hinted && planted("litmus.fresh_load")) {
        witness.read("a published write is not visible to who loaded the value", || {});
    }
    // join
    writer.join().unwrap();
    // claim: the witness itself
    reached.mark_if(seen, "the new value was loaded");
}
