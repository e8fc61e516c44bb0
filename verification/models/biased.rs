//! The gate that is biased to one thread: O4, and R3's refusal to wait.
//!
//! Over [`Biased`] alone. Loom finds two holders that are not ordered, shuttle two at once; on real threads a counter that
//! is raised inside must come out whole. The first to take a gate owns the bias at once, after a revocation who takes it twice in a row.

use super::checker::spawn;
use super::tenure::sync::{Arc, Biased, BiasedGuard};
use super::{Model, Reached, Search};
use crate::schedule::promise;

const MEET: &str = "O4: two threads meet inside of one gate";

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "o4_biased_beside_revoker",
        claim: "A bias owner and one that revokes its bias are never inside at once, and see what the other did.",
        lines: &["O4"],
        threads: 2,
        operations: "2 turns of the owner, 1 of another",
        bound: None,
        search: Search::Sample(5_000),
        leaves_out: "that the system's barrier orders as the proposal says",
        reaches: &["the owner came twice by its slot", "the owner came back by the lock", "the other came first"],
        body: biased_beside_revoker,
    },
    Model {
        name: "o4_bias_changes_hands",
        claim: "A thread that owned the bias and one that owns it now are never inside at once, however late the first looks.",
        lines: &["O4"],
        threads: 2,
        operations: "1 turn of the old owner, 3 of the new",
        bound: Some(4),
        search: Search::Sample(5_000),
        leaves_out: "slots that are handed on when their thread ends",
        reaches: &["the new one came by its slot", "the old one came after that"],
        body: bias_changes_hands,
    },
    Model {
        name: "o4_biased_goes_elsewhere",
        claim: "Who revokes a bias and finds the owner in another gate sees what the owner did in this one.",
        lines: &["O4"],
        threads: 2,
        operations: "1 turn in each of two gates, 1 of another thread in the first",
        bound: None,
        search: Search::Sample(5_000),
        leaves_out: "nothing",
        reaches: &["the other came last"],
        body: biased_goes_elsewhere,
    },
    Model {
        name: "o4_refusal_leaves_no_gap",
        claim: "A thread that refuses to wait for the owner leaves that to the next.",
        lines: &["O4", "R3"],
        threads: 2,
        operations: "1 turn of the owner; 1 try and 1 turn of another",
        bound: None,
        search: Search::Sample(5_000),
        leaves_out: "nothing",
        reaches: &["it was refused", "it was not refused"],
        body: refusal,
    },
    Model {
        name: "o4_gate_inside_a_gate",
        claim: "A thread that tries a second gate inside of one keeps the first, whether the second is biased to it or not.",
        lines: &["O4"],
        threads: 2,
        operations: "1 turn in two gates, one inside the other; 1 of another thread in the first",
        bound: None,
        search: Search::Sample(5_000),
        leaves_out: "nothing",
        reaches: &["the outer one was held by its slot", "the inner one would have been biased to it"],
        body: gate_inside_a_gate,
    },
    Model {
        name: "o4_bias_is_given_up",
        claim: "After a thread gave up its bias without a barrier, it and the next owner are never inside at once.",
        lines: &["O4", "R1"],
        threads: 2,
        operations: "1 turn, the giving up, 1 turn; 2 turns of another thread",
        bound: Some(4),
        search: Search::Sample(5_000),
        leaves_out: "nothing",
        reaches: &["the next owned the bias at once", "it came back by the lock"],
        body: given_up,
    },
];

/// Takes the gate and raises what it guards; whether that was by the slot.
fn turn(gate: &Biased<u64>) -> bool {
    let mut guard = gate.lock();
    *guard += 1;
    BiasedGuard::is_biased(&guard)
}

/// Takes the gate and raises what it guards; what that is then.
fn raised(gate: &Biased<u64>) -> u64 {
    let mut guard = gate.lock();
    *guard += 1;
    *guard
}

fn total(gate: &Biased<u64>, turns: u64) {
    assert_eq!(*gate.lock(), turns, "O4: what was done inside of a gate was lost");
}

fn biased_beside_revoker(reached: &Reached) {
    // setup: this thread owns the bias
    promise(Some(MEET));
    let gate = Arc::new(Biased::new(0));
    assert!(turn(&gate), "the first to take a gate owns the bias");
    // threads
    let other = spawn({
        let gate = gate.clone();
        move || raised(&gate)
    });
    let first = turn(&gate);
    let second = turn(&gate);
    // join
    let seen = other.join().unwrap();
    // claim: the cell's own check, and
    total(&gate, 4);
    reached.mark_if(first && second, "the owner came twice by its slot");
    reached.mark_if(!second, "the owner came back by the lock");
    reached.mark_if(seen == 2, "the other came first");
}

fn bias_changes_hands(reached: &Reached) {
    // setup: this thread owns the bias
    promise(Some(MEET));
    let gate = Arc::new(Biased::new(0));
    turn(&gate);
    // threads
    let other = spawn({
        let gate = gate.clone();
        move || {
            let turns = [turn(&gate), turn(&gate), turn(&gate)];
            turns.contains(&true)
        }
    });
    let seen = raised(&gate);
    // join
    let owner = other.join().unwrap();
    // claim: the cell's own check, and
    total(&gate, 5);
    reached.mark_if(owner, "the new one came by its slot");
    reached.mark_if(owner && seen == 5, "the old one came after that");
}

fn biased_goes_elsewhere(reached: &Reached) {
    // setup: this thread owns the bias in both
    promise(Some(MEET));
    let (gate, elsewhere) = (Arc::new(Biased::new(0)), Biased::new(0));
    turn(&gate);
    turn(&elsewhere);
    // threads
    let other = spawn({
        let gate = gate.clone();
        move || raised(&gate)
    });
    turn(&gate);
    turn(&elsewhere);
    // join
    let seen = other.join().unwrap();
    // claim: the cell's own check, and
    total(&gate, 3);
    reached.mark_if(seen == 3, "the other came last");
}

fn refusal(reached: &Reached) {
    // setup: this thread owns the bias
    promise(Some(MEET));
    let gate = Arc::new(Biased::new(0));
    turn(&gate);
    // threads
    let other = spawn({
        let gate = gate.clone();
        move || {
            let tried = match gate.lock_or(|| true) {
                Some(mut guard) => {
                    *guard += 1;
                    true
                }
                None => false,
            };
            turn(&gate);
            tried
        }
    });
    turn(&gate);
    // join
    let tried = other.join().unwrap();
    // claim: the cell's own check, and
    total(&gate, if tried { 4 } else { 3 });
    reached.mark_if(!tried, "it was refused");
    reached.mark_if(tried, "it was not refused");
}

fn gate_inside_a_gate(reached: &Reached) {
    // setup: this thread owns the bias in the outer one, and would be in the inner one at its next turn
    promise(Some(MEET));
    let (outer, inner) = (Arc::new(Biased::new(0)), [Biased::new(0), Biased::new(0)]);
    turn(&outer);
    turn(&inner[0]);
    // threads
    let other = spawn({
        let outer = outer.clone();
        move || turn(&outer)
    });
    let mut guard = outer.lock();
    let owner = BiasedGuard::is_biased(&guard);
    let inside = [turn(&inner[0]), turn(&inner[1])];
    *guard += 1;
    drop(guard);
    // join
    other.join().unwrap();
    // claim: the cell's own check, and
    assert!(!owner || inside == [false, false], "O4: a thread is by its slot in two gates");
    total(&outer, 3);
    reached.mark_if(owner, "the outer one was held by its slot");
    reached.mark_if(owner && turn(&inner[1]), "the inner one would have been biased to it");
}

fn given_up(reached: &Reached) {
    // setup: this thread owns the bias
    promise(Some(MEET));
    let gate = Arc::new(Biased::new(0));
    turn(&gate);
    // threads
    let other = spawn({
        let gate = gate.clone();
        move || [turn(&gate), turn(&gate)]
    });
    turn(&gate);
    gate.release_bias();
    let back = turn(&gate);
    // join
    let turns = other.join().unwrap();
    // claim: the cell's own check, and
    total(&gate, 5);
    reached.mark_if(turns[0], "the next owned the bias at once");
    reached.mark_if(!back, "it came back by the lock");
}
