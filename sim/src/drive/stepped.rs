//! Steps that a test takes itself. They work under every drive, beside whatever else moves the device.

use super::seat::enter_function;
use super::world;
use crate::driver::{Sim, SimStream};
use crate::event::StreamId;

impl Sim {
    /// The streams at which the device can move now, each once, oldest first.
    pub fn ready(&self) -> Vec<StreamId> {
        let mut world = self.shared().world.lock();
        let mut streams: Vec<StreamId> = world.list_ready().iter().map(|ready| ready.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// Lets the device do one thing: the oldest that is possible. `false` where nothing is.
    pub fn step(&self) -> bool {
        self.step_where(|_| true)
    }

    /// Lets the device do one thing on this stream. `false` where it cannot.
    pub fn step_on(&self, stream: &SimStream) -> bool {
        let id = self.stream_id(stream);
        id.is_some_and(|id| self.step_where(|stream| stream == id))
    }

    /// Lets the device move until nothing is possible; how many steps it took. Stalled streams stay as they are.
    pub fn run_to_idle(&self) -> u64 {
        let mut steps = 0;
        while self.step() {
            steps += 1;
        }
        steps
    }

    /// Holds the device still on this stream: what it has there and gets there does not run until
    /// [`resume`](Self::resume).
    pub fn stall(&self, stream: &SimStream) {
        if let Some(id) = self.stream_id(stream) {
            self.shared().world.lock().stalled.push(id);
        }
    }

    /// Ends [`stall`](Self::stall).
    pub fn resume(&self, stream: &SimStream) {
        if let Some(id) = self.stream_id(stream) {
            self.shared().world.lock().stalled.retain(|stalled| *stalled != id);
            self.shared().work.notify_one();
            // A thread that waits moves the device itself where nothing else does.
            self.shared().progress.notify_all();
        }
    }

    fn step_where(&self, wanted: impl Fn(StreamId) -> bool) -> bool {
        let shared = self.shared();
        let mut world = shared.world.lock();
        let choice = world.list_ready().iter().find(|ready| wanted(ready.stream)).map(|ready| ready.choice);
        let Some(choice) = choice else { return false };
        world::advance(&mut world, choice, |inside| enter_function(shared, inside));
        shared.progress.notify_all();
        true
    }
}
