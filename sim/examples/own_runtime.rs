//! A runtime of somebody's own, without this project's core, tested on the simulated device: a pool that hands freed
//! memory on. Its planted mistake, forgetting on which stream a block was used last, is found in a few schedules.
//!
//! `cargo run -p tenure-sim --example own_runtime`

use std::sync::{Arc, Mutex};
use tenure::driver::{DeviceAddress, Driver, Priority, Timing};
use tenure_sim::Config;
use tenure_sim::driver::{Sim, SimStream};

const BYTES: u64 = 1 << 10;

/// Blocks that were given back, each with the stream that used it last.
#[derive(Default)]
struct Pool {
    free: Mutex<Vec<(DeviceAddress, Arc<SimStream>)>>,
}

impl Pool {
    fn take(&self, device: &Sim, stream: &Arc<SimStream>, is_careful: bool) -> DeviceAddress {
        let Some((memory, last)) = self.free.lock().expect("nobody panics with it").pop() else {
            return device.malloc(BYTES).expect("there is room");
        };
        if is_careful && !Arc::ptr_eq(&last, stream) {
            let event = device.event_create(Timing::Disabled).expect("events can be made");
            device.event_record(&event, &last).expect("the device works");
            device.stream_wait_event(stream, &event).expect("the device works");
            device.event_destroy(event).expect("the device works");
        }
        memory
    }

    fn give(&self, memory: DeviceAddress, stream: &Arc<SimStream>) {
        self.free.lock().expect("nobody panics with it").push((memory, stream.clone()));
    }
}

fn task(device: &Sim, pool: &Pool, is_careful: bool) {
    let stream = Arc::new(device.stream_create(Priority::Normal).expect("streams can be made"));
    for value in 0..3 {
        let memory = pool.take(device, &stream, is_careful);
        // SAFETY: the pool keeps its blocks to the end of the program; order is what the simulation checks.
        unsafe { device.fill(&stream, memory, value, BYTES) }.expect("the device works");
        pool.give(memory, &stream);
    }
}

fn program(is_careful: bool) -> impl Fn(&Sim) + Send + Sync + 'static {
    move |device| {
        let pool = Arc::new(Pool::default());
        let (other, shared) = (device.clone(), pool.clone());
        let thread = device.spawn("other", move || task(&other, &shared, is_careful));
        task(device, &pool, is_careful);
        thread.join();
        device.run_to_idle();
    }
}

fn main() {
    let config = Config::default().schedules(1_000).fibers().allow_leaks();
    let right = config.run(program(true));
    assert!(right.failure.is_none(), "the careful pool is right");
    println!("careful pool: {} schedules, nothing found", right.schedules);
    let wrong = config.run(program(false));
    let failure = wrong.failure.expect("the careless pool is found");
    println!("careless pool: found in schedule {}\n{failure}", wrong.schedules);
}
