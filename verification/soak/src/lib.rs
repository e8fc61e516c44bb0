//! The whole runtime under shuttle, over the simulator: eight threads use all four machines at once, while the
//! simulator's checkers look on.
//!
//! The models are small, so that they can be exhausted; this is the other end. The programs are the suite's own: the very
//! source of `tests/storm.rs` and of what it stands on, built over shuttle's types. Under the simulator's own scheduler
//! threads change places at driver calls and contended locks alone; here they do at each atomic and each lock of the core.
//!
//! Releases are made by polling, on whichever thread: time stands still, so the worker's tick would never come, and a
//! device that moves by itself would be one more thread. Nothing that a simulated driver call does inside is a
//! scheduling point: it takes effect at once, as it does in the simulator.

#[path = "../../../tests/bench.rs"]
#[allow(dead_code, reason = "the suite needs more of a device")]
pub mod bench;
#[path = "../../../tests/counting.rs"]
#[allow(dead_code, reason = "the suite asks more")]
pub mod counting;
#[path = "../../../tests/faulty.rs"]
#[allow(dead_code, reason = "the suite plans more faults")]
pub mod faulty;
#[path = "../../../tests/rig.rs"]
#[allow(dead_code, reason = "the suite's cases need more")]
pub mod rig;
#[path = "../../../tests/storm.rs"]
pub mod storm;
#[path = "../../../tests/tap.rs"]
pub mod tap;
pub mod unrest;

use std::sync::Arc;

use tenure::{Config, ReclaimMode};
use tenure_sim::drive::Drive;
use tenure_sim::driver::Sim;
use tenure_sim::profile::Profile;

use self::bench::{Bench as _, SimBench};
use self::rig::Rig;
use self::storm::{Dice, Storm, Tally};
use self::unrest::{Outcome, Unrest};

/// Threads of one execution.
pub const THREADS: u64 = 8;

/// Steps of one thread.
const STEPS: u32 = 2;

/// One execution: a storm in which nothing fails.
///
/// # Panics
/// When something is not as it must be.
pub fn storm() -> Tally {
    let (bench, mut dice) = drawn();
    let storm = Arc::new(Storm::new(rig(&bench)));
    let seed = dice.number();
    let tally = on_threads(storm, move |storm, thread| storm.thread(seed ^ thread << 32, STEPS)).end();
    check(&bench);
    tally
}

/// One execution in which up to three driver calls fail.
///
/// # Panics
/// When something is not as it must be.
pub fn unrest() -> Outcome {
    let (bench, mut dice) = drawn();
    let unrest = Arc::new(Unrest::new(rig(&bench), &mut dice));
    let seed = dice.number();
    let outcome = on_threads(unrest, move |unrest, thread| unrest.thread(Dice::new(seed ^ thread << 32), STEPS)).end();
    if outcome.leaves {
        // What is kept for ever is a leak to the simulator too.
        bench.allow(&["O6", "P7", "R5"]);
    }
    check(&bench);
    outcome
}

/// A device of some profile, and the dice that decide the rest: a schedule that is replayed draws the same.
fn drawn() -> (SimBench, Dice) {
    use shuttle::rand::RngCore as _;
    let mut dice = Dice::new(shuttle::rand::thread_rng().next_u64());
    let name = Profile::NAMES[dice.roll(Profile::NAMES.len() as u64) as usize];
    let profile = Profile::named(name).expect("a listed profile");
    (SimBench::new(profile, Drive::Seeded, dice.number()), dice)
}

fn rig(bench: &SimBench) -> Rig<Sim> {
    Rig::with(bench, Config::default().reclaim(ReclaimMode::Manual))
}

/// Runs `work` on [`THREADS`] threads, numbered from 1; gives what they shared.
fn on_threads<T: Send + Sync + 'static>(shared: Arc<T>, work: impl Fn(&T, u64) + Copy + Send + 'static) -> T {
    let threads: Vec<_> = (1..=THREADS)
        .map(|thread| {
            let shared = shared.clone();
            shuttle::thread::spawn(move || work(&shared, thread))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread that fails ends the run"));
    Arc::into_inner(shared).expect("all threads have ended")
}

/// Ends the device: its checkers must have nothing to say.
fn check(bench: &SimBench) {
    let findings = bench.finish();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
