//! Captures on a driver where relaxed mode protects nothing: C1, C3, C6.
//!
//! The device breaks a capture at every guarded call that runs while one is open.

use super::checker::spawn;
use super::device::Device;
use super::tenure::driver::{Call, Capabilities};
use super::tenure::sync::Arc;
use super::tenure::{Config, Queue, ReclaimMode, Runtime};
use super::{Model, Reached, Search};

/// The models of this file.
pub const MODELS: &[Model] = &[Model {
    name: "c6_releases_stay_out_of_captures",
    claim: "A release beside the begin and the end of a capture makes no guarded call inside its window, and happens once.",
    lines: &["C1", "C3", "C6"],
    threads: 2,
    operations: "1 capture; 1 drop and 1 poll",
    bound: None,
    search: Search::Sample(1_000),
    leaves_out: "the capture records nothing",
    reaches: &["the release was put off", "the release came before the capture"],
    body: release_beside_capture,
}];

fn release_beside_capture(reached: &Reached) {
    // setup: memory whose free is a guarded call
    let mut capabilities = Capabilities::default();
    capabilities.stream_ordered_memory = false;
    capabilities.relaxed_protects = false;
    let device = Device::new(capabilities);
    let config = Config::default().reclaim(ReclaimMode::Manual);
    let runtime = Arc::new(Runtime::with(device.clone(), config).expect("a runtime can be made"));
    let stream = runtime.stream().expect("the pool may make a stream");
    let buffer = stream.alloc::<u8>(64).expect("there is memory");
    // threads
    let releaser = spawn({
        let runtime = runtime.clone();
        move || {
            drop(buffer);
            runtime.poll()
        }
    });
    let graph = runtime.capture(|_| Ok(()));
    // join
    let left: usize = releaser.join().unwrap();
    // claim
    assert!(graph.is_ok(), "C1: an undisturbed capture failed");
    reached.mark_if(left > 0, "the release was put off");
    reached.mark_if(left == 0, "the release came before the capture");
    drop(graph);
    while runtime.poll() > 0 {}
    assert_eq!(device.count(Call::Free), 1, "C3: a release that was put off ran not once");
}
