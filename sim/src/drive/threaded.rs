//! A thread for the device: for running real programs in real time.

use super::seat::{Shared, enter_function};
use super::world;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Starts the device's thread; it ends when the simulation is closed.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let shared = shared.clone();
    std::thread::Builder::new().name("sim-device".into()).spawn(move || work(&shared))
}

fn work(shared: &Arc<Shared>) {
    let mut world = shared.world.lock();
    while !world.is_closed {
        match world.pick_device() {
            Some(choice) => {
                world::advance(&mut world, choice, |inside| enter_function(shared, inside));
                shared.progress.notify_all();
                // Others want the lock too, and this loop would win it back every time.
                parking_lot::MutexGuard::bump(&mut world);
            }
            None => shared.work.wait(&mut world),
        }
    }
}
