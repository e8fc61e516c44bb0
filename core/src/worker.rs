//! The thread that takes the turns.

use std::time::Duration;

use crate::driver::Driver;
use crate::error::Misuse;
use crate::reclaim::{Ask, Remaining};
use crate::shared::Shared;
use crate::sync::Arc;
use crate::sync::clock;
use crate::sync::thread::{self, JoinHandle};

/// How often streams are asked although host functions should tell: after a fault those may never run (P11).
const TICK: Duration = Duration::from_millis(50);

/// Starts the worker. It holds the shared state alive, and ends after the last handle is gone and what can finish has.
///
/// Where no thread is to be had there is none: releases wait for `poll` and for shutdown, as in manual mode.
pub(crate) fn start<D: Driver>(shared: Arc<Shared<D>>) -> Option<JoinHandle<()>> {
    let signal = shared.reclaim.signal.clone();
    let worker = thread::spawn("tenure-reclaim", move || work(&shared))?;
    signal.attend(worker.thread().clone());
    // What was announced before the worker had a name.
    worker.thread().unpark();
    Some(worker)
}

/// Starts a thread that drops owners until there is none to drop.
fn attend<D: Driver>(shared: &Arc<Shared<D>>) -> bool {
    let shared = shared.clone();
    thread::spawn("tenure-owners", move || shared.reclaim.drop_owners(&shared.context)).is_some()
}

/// One turn. Should a driver panic, what is in hand stays there for the next (R4).
fn turn<D: Driver>(shared: &Arc<Shared<D>>, ask: Ask) -> Remaining {
    shared.staging.tidy(shared);
    let turn = || shared.reclaim.turn_of_worker(&shared.context, &shared.pins, ask, || attend(shared));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(turn)).unwrap_or_else(|payload| {
        // Not dropped: that could panic too.
        std::mem::forget(payload);
        shared.context.keep_untold(Misuse::PanickedInRelease.into());
        Remaining { waiting: shared.reclaim.pending(), deferred: 0 }
    })
}

fn work<D: Driver>(shared: &Arc<Shared<D>>) {
    let mut deadline = None;
    let mut asked = clock::now();
    loop {
        // Cleared before the look: what is announced during the turn leads to another.
        let signalled = shared.reclaim.signal.take();
        let ask = if clock::now() - asked >= TICK { Ask::Both } else { Ask::Arm };
        if ask == Ask::Both {
            asked = clock::now();
        }
        // Before the turn: what handles retired before the last was dropped is then in this turn, and not leaked after it.
        let closed = shared.is_closed();
        let left = turn(shared, ask);
        if shared.is_stopped() {
            return;
        }
        // A shutdown has a deadline of its own, and ends what is left by then.
        if closed && !shared.is_shutting_down() {
            let end = *deadline.get_or_insert_with(|| clock::after(shared.config.drain));
            if left.total() == 0 && shared.streams_are_gone() || clock::now() >= end {
                shared.tear_down(clock::now());
                return;
            }
        }
        if !signalled {
            // What a capture holds up needs no tick: its end signals.
            shared.reclaim.signal.wait(match left.waiting {
                0 if deadline.is_none() => None,
                // Only streams are waited for, and the program is ending.
                0 => Some(TICK / 50),
                _ => Some(TICK),
            });
        }
    }
}
