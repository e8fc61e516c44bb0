//! Calls of threads that no schedule runs: before each the device may move, and a wait moves it.
//!
//! With one host thread the seed decides everything, and a run replays. With several the device's moves are still drawn
//! from the seed, but the system decides which thread draws.

use super::Drive;
use super::seat::{Shared, enter_function};
use super::world::{self, Value, World};
use crate::checker::Line;
use crate::code::Code;
use crate::engine::{Answer, Wait};
use parking_lot::MutexGuard;
use std::sync::Arc;

/// Lets the device move before a call of thread `number`, as the schedule has it.
pub(crate) fn before_call(shared: &Arc<Shared>, world: &mut MutexGuard<'_, World>, drive: Drive, number: u32) {
    if drive != Drive::Seeded {
        return;
    }
    while let Some(choice) = world.pick_device_or_host(number) {
        world::advance(world, choice, |inside| enter_function(shared, inside));
        // Another thread may wait for just this.
        shared.progress.notify_all();
    }
}

/// Waits for the end of a blocked call: by moving the device, or until its thread has.
pub(crate) fn wait<T: Value>(
    shared: &Arc<Shared>,
    world: &mut MutexGuard<'_, World>,
    drive: Drive,
    wait: Wait<T>,
) -> Result<T, Code> {
    let mut wait = wait;
    loop {
        if world.engine.is_over(&wait) {
            match world.engine.finish(wait)? {
                Answer::Done(value) => return Ok(value),
                Answer::Blocked(more) => wait = more,
            }
            continue;
        }
        let choice = if drive == Drive::Threaded { None } else { world.pick_device() };
        match choice {
            Some(choice) => {
                world::advance(world, choice, |inside| enter_function(shared, inside));
                shared.progress.notify_all();
            }
            None => wait_for_others(shared, world, wait.call().name()),
        }
    }
}

/// Waits until another thread does something. Where none does for as long as the world's patience, the wait is a
/// finding, and the device is taken for lost so that everybody's waits end.
fn wait_for_others(shared: &Shared, world: &mut MutexGuard<'_, World>, call: &str) {
    shared.work.notify_one();
    let steps = world.steps;
    let patience = world.patience;
    let timed_out = shared.progress.wait_for(world, patience).timed_out();
    if timed_out && world.steps == steps && world.engine.lost().is_none() {
        let device = world.describe_device();
        world.found(Line::R6, format!("deadlock: {call} waits, and nothing moved for {patience:?}; {device}"));
        world.engine.lose_device(Code::LAUNCH_FAILURE);
        world.settle();
        shared.progress.notify_all();
    }
}
