//! The whole runtime under shuttle, over the simulator: eight threads use all four machines at once, while the
//! simulator's checkers look on.
//!
//! The models are small, so that they can be exhausted; this is the other end. The programs are the suite's own: the very
//! source of `tests/storm.rs` and of what it stands on, built over shuttle's types. Under the simulator's own scheduler
//! threads change places at driver calls and contended locks alone; here they do at each atomic and each lock of the core.
//!
//! Releases are made by polling, on whichever thread, or by the worker, as each storm says. Time stands still, so the
//! worker's tick never comes: what it does not hear of it does not do. A device that moves by itself would be one more
//! thread; it moves beside driver calls. Nothing that a simulated driver call does inside is a scheduling point: it takes
//! effect at once, as it does in the simulator. So a host function is called at the end of the driver call in which its turn
//! came, by that call's thread; everybody may come between its steps.

#[path = "../../../tests/bench.rs"]
#[allow(dead_code, reason = "the suite needs more of a device")]
pub mod bench;
#[path = "../../../tests/counting.rs"]
#[allow(dead_code, reason = "the suite asks more")]
pub mod counting;
#[path = "../../../tests/faulty.rs"]
#[allow(dead_code, reason = "the suite plans more faults")]
pub mod faulty;
#[path = "../../../tests/functions.rs"]
pub mod functions;
pub mod loss;
#[path = "../../../tests/rig.rs"]
#[allow(dead_code, reason = "the suite's cases need more")]
pub mod rig;
#[path = "../../../tests/storm.rs"]
pub mod storm;
#[path = "../../../tests/tap.rs"]
pub mod tap;
pub mod unrest;

use std::ptr::NonNull;
use std::sync::Arc;

use tenure::driver::Call;
use tenure::{Config, HostMemory, ReclaimMode};
use tenure_sim::drive::Drive;
use tenure_sim::driver::Sim;
use tenure_sim::profile::Profile;

use self::bench::{Bench as _, SimBench};
use self::loss::{Loss, Losses};
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
    let storm = Arc::new(Storm::new(rig(&bench, ReclaimMode::Manual)));
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
    let unrest = Arc::new(Unrest::new(rig(&bench, ReclaimMode::Manual), &mut dice));
    let seed = dice.number();
    // Where a fork cannot be joined, the end of its capture is refused: the driver keeps no capture that it does not end.
    bench.allow(&["C7"]);
    let outcome = on_threads(unrest, move |unrest, thread| unrest.thread(Dice::new(seed ^ thread << 32), STEPS)).end();
    if outcome.leaves {
        // What is kept forever is a leak to the simulator too.
        bench.allow(&["O6", "P7", "R5"]);
    }
    check(&bench);
    outcome
}

/// What the worker did in one execution.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// What the storm came to.
    pub tally: Tally,
    /// Host functions that told of a completion.
    pub told: u64,
    /// Whether the worker had released something before anybody else looked for what is left.
    pub has_released: bool,
}

/// One execution in which the worker releases, beside the polls of the storm. Each thread at last lets go of a wrap and waits for
/// the end of its owner, on which the worker alone is left to work when all wait.
///
/// # Panics
/// When something is not as it must be.
pub fn storm_and_worker() -> Watched {
    let (bench, mut dice) = drawn();
    let storm = Arc::new(Storm::new(rig(&bench, ReclaimMode::Worker)));
    let seed = dice.number();
    let storm = on_threads(storm, move |storm, thread| {
        storm.thread(seed ^ thread << 32, STEPS);
        let waiter = let_go(storm.rig());
        // The sender is gone with the owner: that is what it waits for.
        let _ = waiter.recv();
    });
    let tap = storm.rig().tap.clone();
    let has_released = tap.log.count_of(Some(WORKER), Call::HostUnregister) > 0;
    let tally = storm.end();
    let mark = tap.log.mark();
    check(&bench);
    assert_eq!(tap.log.since(mark), [], "R5: the worker made a call after the shutdown");
    Watched { tally, told: tap.functions.called(), has_released }
}

/// The worker's number among the threads of an execution: the main thread has zero, and starts it first.
const WORKER: u64 = 1;

/// Wraps memory of which nobody makes use, and lets go of it at once: it takes an unregister to end its owner.
fn let_go(rig: &Rig<Sim>) -> shuttle::sync::mpsc::Receiver<()> {
    let (sender, receiver) = shuttle::sync::mpsc::channel();
    let wrap = rig.runtime.wrap(Told { memory: vec![0; 4], _end: sender });
    drop(wrap.map_err(|refused| refused.error).expect("a wrap"));
    receiver
}

/// Memory whose end is told.
struct Told {
    memory: Vec<u32>,
    _end: shuttle::sync::mpsc::Sender<()>,
}

// SAFETY: P4. A vector owns its heap block, which does not move with it, and nobody writes to this one.
unsafe impl HostMemory for Told {
    type Item = u32;

    fn range(&mut self) -> (NonNull<u32>, usize) {
        self.memory.range()
    }
}

/// One execution in which the device is lost at some point, or, rarely, beyond the end.
///
/// # Panics
/// When something is not as it must be.
pub fn loss() -> Losses {
    let (bench, mut dice) = drawn();
    let mode = if dice.roll(2) == 0 { ReclaimMode::Manual } else { ReclaimMode::Worker };
    let loss = Loss::new(rig(&bench, mode), bench.driver(), &mut dice);
    let seed = dice.number();
    let threads = move |loss: &Loss, thread| loss.thread(Dice::new(seed ^ thread << 32), STEPS);
    let losses = on_threads(Arc::new(loss), threads).end();
    check(&bench);
    losses
}

/// A device of some profile, and the dice that decide the rest: a schedule that is replayed draws the same.
fn drawn() -> (SimBench, Dice) {
    use shuttle::rand::RngCore as _;
    let mut dice = Dice::new(shuttle::rand::thread_rng().next_u64());
    let name = Profile::NAMES[dice.roll(Profile::NAMES.len() as u64) as usize];
    let profile = Profile::named(name).expect("a listed profile");
    (SimBench::new(profile, Drive::Seeded, dice.number()), dice)
}

fn rig(bench: &SimBench, mode: ReclaimMode) -> Rig<Sim> {
    let rig = Rig::with(bench, Config::default().reclaim(mode));
    rig.tap.functions.keep();
    rig
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
