//! A device that moves by itself while somebody waits to be told.
//!
//! Under [`Drive::Seeded`](super::Drive::Seeded), outside of a schedule, the device moves before calls and in waits. A
//! program that awaits makes neither: it gave the driver a host function and sleeps. So the first host function starts a
//! thread that moves the device where no call has come for [`MOMENT`], until no host function is left on a stream. The
//! seed still picks what moves; when it does hangs on real time from there on.

use super::seat::{Shared, enter_function};
use super::world::{self, World};
use parking_lot::MutexGuard;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long nobody calls before the device moves by itself.
const MOMENT: Duration = Duration::from_millis(1);

/// Starts the thread; it ends when the simulation is closed.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let shared = shared.clone();
    std::thread::Builder::new().name("sim-mover".into()).spawn(move || work(&shared))
}

fn work(shared: &Arc<Shared>) {
    let mut world = shared.world.lock();
    while !world.is_closed {
        if !world.engine.has_function_to_call() {
            shared.work.wait(&mut world);
            continue;
        }
        let seen = (world.calls, world.steps);
        let was_woken = !shared.work.wait_for(&mut world, MOMENT).timed_out();
        if was_woken || (world.calls, world.steps) != seen {
            continue;
        }
        if !move_on(shared, &mut world) && !world.is_closed {
            // What is left stands still until somebody does something about it.
            shared.work.wait(&mut world);
        }
    }
}

/// Moves the device until nobody waits to be told; `false` where it cannot move before.
fn move_on(shared: &Arc<Shared>, world: &mut MutexGuard<'_, World>) -> bool {
    while world.engine.has_function_to_call() && !world.is_closed {
        let Some(choice) = world.pick_device() else { return false };
        world::advance(world, choice, |inside| enter_function(shared, inside));
        shared.progress.notify_all();
        MutexGuard::bump(world);
    }
    true
}
