//! A program of somebody's own on this project's core, tested on the simulated device: two threads, each with an async
//! task, one of which hands its result to the other. The planted mistake, taking the result without waiting for it, is
//! found in a few schedules, and found again by the seed that is printed.
//!
//! `cargo run -p tenure-sim --example with_the_core`

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Buffer, Queue, ReclaimMode, Result, Runtime};
use tenure_sim::check::Signal;
use tenure_sim::driver::Sim;
use tenure_sim::{Config, check};

type Slot = Arc<Mutex<Option<Buffer<u32, Sim>>>>;

/// An executor for one task: between polls others have their turns, and the runtime does what is due.
fn block_on<T>(device: &Sim, runtime: &Runtime<Sim>, task: impl Future<Output = T>) -> T {
    let (mut task, mut context) = (pin!(task), Context::from_waker(Waker::noop()));
    loop {
        if let Poll::Ready(value) = task.as_mut().poll(&mut context) {
            return value;
        }
        runtime.poll();
        device.yield_now();
    }
}

async fn produce(runtime: &Runtime<Sim>, slot: &Slot, made: &Signal) -> Result<()> {
    let stream = runtime.stream()?;
    let x = stream.upload(&[1_u32, 2, 3])?;
    let mut y = stream.alloc::<u32>(3)?;
    stream.copy(&x, &mut y)?;
    drop(x); // freed once the copy is done
    stream.completion().await?;
    *slot.lock().expect("nobody panics with it") = Some(y);
    made.set();
    Ok(())
}

async fn consume(runtime: &Runtime<Sim>, slot: &Slot) -> Result<Vec<u32>> {
    let taken = slot.lock().expect("nobody panics with it").take();
    let y = taken.expect("the other thread has put its result there");
    runtime.stream()?.download(&y)?.await
}

fn program(is_careful: bool) -> impl Fn(&Sim) + Send + Sync + 'static {
    move |device| {
        let manual = tenure::Config::default().reclaim(ReclaimMode::Manual);
        let runtime = Runtime::with(device.clone(), manual).expect("the device works");
        let (slot, made) = (Slot::default(), device.signal("made"));
        let (inner, other, shared, set) = (device.clone(), runtime.clone(), slot.clone(), made.clone());
        let producer = device.spawn("producer", move || {
            block_on(&inner, &other, produce(&other, &shared, &set)).expect("the device works");
        });
        if is_careful {
            made.wait();
        }
        let values = block_on(device, &runtime, consume(&runtime, &slot)).expect("the device works");
        assert_eq!(values, [1, 2, 3]);
        producer.join();
        assert!(runtime.shutdown(Duration::from_secs(1)).is_clean(), "all was let go");
    }
}

fn main() {
    let config = Config::default().schedules(500).fibers();
    check(config.clone(), program(true));
    println!("careful program: 500 schedules, nothing found");
    let failure = config.run(program(false)).failure.expect("the careless program is found");
    println!("careless program:\n{failure}");
    let again = config.replay(&failure.report.seed, program(false)).expect("the seed was just printed");
    assert!(again.failure.is_some(), "the same seed shows it again");
}
