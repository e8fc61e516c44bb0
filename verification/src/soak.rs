//! The whole runtime over the simulator, eight threads at a time: models for shuttle alone, since loom allows five threads and
//! a simulator is more than it can exhaust.

use crate::Checker;
use crate::model::{Model, Reached, Search};
use crate::mutants::Mutant;

/// The models of this file.
pub const MODELS: &[Model] = &[
    Model {
        name: "x_storm_over_the_simulator",
        claim: "All four machines at once, from eight threads: every number read is right, everything let go is released \
                once, and the simulator's checkers find nothing.",
        lines: &["O1", "O3", "C1", "C3", "C7", "P3", "P5", "P7", "S2", "R4", "R5"],
        threads: 8,
        operations: "2 steps of the suite's storm each: captures, replays, wraps, downloads, drops, polls, trims",
        bound: None,
        search: Search::Sample(1_000),
        leaves_out: "the worker: releases are made by polls; a device that moves beside driver calls",
        reaches: &["a capture was made", "a graph was replayed", "something was released"],
        body: storm,
    },
    Model {
        name: "x_failures_over_the_simulator",
        claim: "The same while driver calls fail: what was refused has not happened, what was accepted has, every error is \
                explained, and what can be released is, once.",
        lines: &["O1", "O5", "C3", "C7", "P9", "P11", "S5", "S7", "R5", "R7"],
        threads: 8,
        operations: "2 steps each: launches, captures, replays, wraps, drops, polls, trims; up to 3 calls fail",
        bound: None,
        search: Search::Sample(1_000),
        leaves_out: "failures of calls that release memory, events or graphs; the worker",
        reaches: &["an operation failed", "something was leaked and counted", "nothing was left after a failure"],
        body: failures,
    },
    Model {
        name: "x_worker_beside_the_storm",
        claim: "The storm while the worker releases, told by host functions: each thread's last drop is heard, though nobody \
                polls any more, and a shutdown ends the worker before anything else.",
        lines: &["O1", "O3", "C1", "C3", "P3", "P7", "R1", "R2", "R4", "R5"],
        threads: 9,
        operations: "8 threads: 2 steps of the suite's storm each, then a drop whose release is waited for; the worker",
        bound: None,
        search: Search::Sample(400),
        leaves_out: "the tick, which never comes; a device that moves beside driver calls",
        reaches: &["a host function told of a completion", "the worker released something", "a graph was replayed"],
        body: worker,
    },
    Model {
        name: "x_loss_over_the_simulator",
        claim: "The device is lost at any operation: every call says so from then on, waits return, drops and polls make no \
                call once it is known, everything let go is released or leaked once, and a shutdown says what it leaked.",
        lines: &["O3", "C3", "P3", "P11", "R1", "R5", "R6", "R7"],
        threads: 9,
        operations: "8 threads: 4 steps each of launches, waits, captures, replays, wraps, drops, polls, trims; in half of the \
                     executions the worker",
        bound: None,
        search: Search::Sample(400),
        leaves_out: "a driver that answers otherwise once its device is lost; the tick",
        reaches: &[
            "the device was lost",
            "the device outlived the storm",
            "a thread that knew of the loss waited",
            "something was leaked and counted",
        ],
        body: loss,
    },
];

fn storm(reached: &Reached) {
    let tally = tenure_soak::storm();
    reached.mark_if(tally.captures > 0, "a capture was made");
    reached.mark_if(tally.replays > 0, "a graph was replayed");
    reached.mark_if(tally.releases > 0, "something was released");
}

fn failures(reached: &Reached) {
    let outcome = tenure_soak::unrest();
    reached.mark_if(outcome.errors > 0, "an operation failed");
    reached.mark_if(outcome.leaked > 0, "something was leaked and counted");
    reached.mark_if(outcome.errors > 0 && outcome.leaked == 0, "nothing was left after a failure");
}

fn worker(reached: &Reached) {
    let watched = tenure_soak::storm_and_worker();
    reached.mark_if(watched.told > 0, "a host function told of a completion");
    reached.mark_if(watched.has_released, "the worker released something");
    reached.mark_if(watched.tally.replays > 0, "a graph was replayed");
}

fn loss(reached: &Reached) {
    let losses = tenure_soak::loss();
    reached.mark(if losses.is_lost { "the device was lost" } else { "the device outlived the storm" });
    reached.mark_if(losses.waits > 0, "a thread that knew of the loss waited");
    reached.mark_if(losses.refused > 0 && losses.leaked > 0, "something was leaked and counted");
}

const fn found(name: &'static str, model: &'static str, message: &'static str) -> Mutant {
    Mutant { name, what: "", lines: &[], model, checker: Checker::Shuttle, message }
}

/// Defects that the storms must find. What they are says the table of all.
pub const MUTANTS: &[Mutant] = &[
    found("c1_no_relaxed", "x_storm_over_the_simulator", "StreamCaptureUnsupported (900)"),
    found("c5_graph_unordered", "x_storm_over_the_simulator", "and nothing orders that after"),
    found("c4_executable_at_once", "x_storm_over_the_simulator", "and nothing orders that after"),
    found("c3_failed_capture_keeps", "x_failures_over_the_simulator", "O6: leak: 1 device allocation(s) never freed"),
    found("r2_raise_without_wake", "x_worker_beside_the_storm", "deadlock"),
    found(
        "r6_calls_after_loss",
        "x_loss_over_the_simulator",
        "R6: a poll made a call though the device is known to be lost",
    ),
    found(
        "r6_wait_after_loss",
        "x_loss_over_the_simulator",
        "R6: a wait made a call though the device is known to be lost",
    ),
];
