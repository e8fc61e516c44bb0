//! The thread that takes the turns.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::driver::Driver;
use crate::reclaim::Ask;
use crate::runtime::Shared;
use crate::sync::Arc;

/// How often streams are asked although host functions should tell: after a fault those may never run (P11).
const TICK: Duration = Duration::from_millis(50);

/// Starts the worker. It holds the shared state alive, and ends after the last handle is gone and what can finish has.
///
/// Where no thread is to be had there is none: releases wait for `poll` and for shutdown, as in manual mode.
pub(crate) fn start<D: Driver>(shared: Arc<Shared<D>>) -> Option<JoinHandle<()>> {
    let signal = shared.reclaim.signal.clone();
    let worker = std::thread::Builder::new().name("tenure-reclaim".to_owned()).spawn(move || work(&shared)).ok()?;
    signal.attend(worker.thread().clone());
    // What was announced before the worker had a name.
    worker.thread().unpark();
    Some(worker)
}

fn work<D: Driver>(shared: &Shared<D>) {
    let mut deadline = None;
    let mut asked = Instant::now();
    loop {
        // Cleared before the look: what is announced during the turn leads to another.
        let signalled = shared.reclaim.signal.take();
        let ask = if asked.elapsed() >= TICK { Ask::Both } else { Ask::Arm };
        if ask == Ask::Both {
            asked = Instant::now();
        }
        let left = shared.reclaim.turn(&shared.context, &shared.pins, ask);
        if shared.is_stopped() {
            return;
        }
        if shared.is_closed() {
            let end = *deadline.get_or_insert_with(|| Instant::now() + shared.config.drain);
            if left.total() == 0 && shared.streams_are_gone() || Instant::now() >= end {
                return shared.tear_down();
            }
        }
        if !signalled {
            // What a capture holds up needs no tick: its end signals.
            match left.waiting {
                0 if deadline.is_none() => std::thread::park(),
                // Only streams are waited for, and the program is ending.
                0 => std::thread::park_timeout(TICK / 50),
                _ => std::thread::park_timeout(TICK),
            }
        }
    }
}
