//! The reduction: what it leaves out comes to nothing that was not met.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Ground, WALKED, builder};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::drive::footprint::Footprint;
use crate::drive::reduced::{Apart, Reduced};
use crate::drive::schedule::Schedule;
use crate::profile::Profile;
use crate::scenario::parse;
use crate::scenario::progress::Progress;

/// What all orders came to.
#[derive(Debug, Default)]
struct Walked {
    /// How they ended: `ok`, or what failed.
    outcomes: BTreeSet<String>,
    /// Orders walked to their end.
    whole: u64,
    /// Orders cut off.
    cut_off: u64,
}

/// All orders of the scenario, one after the other; nothing where there are more than `walks_max`.
fn walk(text: &str, is_apart: Apart, walks_max: u64) -> Option<Walked> {
    let scenario = Arc::new(parse(text).expect("the text is a scenario"));
    let builder = builder(&scenario, &Profile::cuda_13());
    let progress = Progress::default();
    let ground = Ground { scenario: &scenario, builder, walked: WALKED, drawn: WALKED, progress: &progress };
    let mut search = Box::new(Reduced::new(is_apart));
    let mut walked = Walked::default();
    for _ in 0..walks_max {
        let (played, schedule) = ground.play(WALKED, Schedule::Reduced(search));
        match played.is_cut_off {
            true => walked.cut_off += 1,
            false => {
                walked.whole += 1;
                let failure = played.failure.map(|failure| format!("{:?} {}", failure.line, failure.message));
                walked.outcomes.insert(failure.unwrap_or_else(|| "ok".into()));
            }
        }
        let Schedule::Reduced(reduced) = schedule else { panic!("the schedule comes back") };
        search = reduced;
        if !search.advance() {
            return Some(walked);
        }
    }
    None
}

/// No two steps may change places.
fn never(_: &Footprint, _: &Footprint) -> bool {
    false
}

/// Any two steps may change places, which is wrong.
fn always(_: &Footprint, _: &Footprint) -> bool {
    true
}

/// Both ways: all orders, and those that the reduction leaves.
fn both(text: &str, walks_max: u64) -> Option<(Walked, Walked)> {
    let naive = walk(text, never, walks_max)?;
    assert_eq!(naive.cut_off, 0, "{text}");
    let reduced = walk(text, Footprint::is_apart, walks_max).expect("no more are left than there were");
    assert_eq!(reduced.outcomes, naive.outcomes, "{text}");
    assert!(reduced.whole <= naive.whole, "{text}: {} of {}", reduced.whole, naive.whole);
    Some((naive, reduced))
}

/// Values and answers that hang on the order fail, so that what they were is an outcome.
const SMALL: [&str; 10] = [
    "stream A\nbuffer x 1 on A\nwrite x = 1 on A\nask A busy",
    "stream A, B\nbuffer x 1 on A\nbuffer y 1 on B\nask A busy\nask B busy",
    "stream A, B\nbuffer x 1 on A\nread x on B\nask x busy",
    "stream A\nbuffer x 1 on A\ndrop x\nexpect pending == 0",
    "stream A\nbuffer x 1 on A\nthread T {\nask A busy\n}",
    "stream A\nhost h 1 = 1\nwrap raw w = h\nwrite w = 2 on A\nlook h == 1",
    "stream A\nfunction on A {\nsignal s\n}\nask A busy\nwait s\nask A idle",
    "stream A\nhold A\nbuffer x 1 on A\nask A busy\nrelease A\nask A busy",
    "stream A\nbuffer x 1 on A\nread x on A\nexpect warnings == 0",
    "stream A, B\nhang operation 1\nfunction on A {\n}\nfunction on B {\n}\nsync A",
];

#[test]
fn no_outcome_is_lost() {
    let (mut all, mut left, mut ways) = (0, 0, 0);
    for text in SMALL {
        let (naive, reduced) = both(text, 20_000).expect("the scenario is small");
        ways += u32::from(naive.outcomes.len() > 1);
        (all, left) = (all + naive.whole, left + reduced.whole);
    }
    assert!(ways >= 6, "outcomes must hang on the order, else nothing could be lost");
    assert!(left * 2 < all, "{left} of {all} orders are left");
}

#[test]
fn a_reduction_that_goes_too_far_loses_outcomes() {
    let loses = |text: &&&str| {
        let (naive, reduced) = (walk(text, never, 20_000), walk(text, always, 20_000));
        naive.map(|naive| naive.outcomes) != reduced.map(|reduced| reduced.outcomes)
    };
    assert!(SMALL.iter().filter(loses).count() >= 5, "what must be noticed is not");
}

/// A few steps on two streams and two buffers, as the seed has it.
fn drawn(seed: u64) -> String {
    const STEPS: [&str; 12] = [
        "read x on A",
        "read x on B",
        "write x = 3 on A",
        "write x = 4 on B",
        "fill x with 5 on B",
        "ask A busy",
        "ask B busy",
        "ask x idle",
        "sync A",
        "fetch x on B == 3",
        "record e on A\norder B after e",
        "drop x\nbuffer x 1 on B",
    ];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut text = "stream A, B\nbuffer x 1 on A\n".to_owned();
    for _ in 0..=random.next_u64() % 3 {
        text += STEPS[(random.next_u64() >> 32) as usize % STEPS.len()];
        text += "\n";
    }
    text
}

#[test]
fn no_outcome_of_drawn_scenarios_is_lost() {
    let (mut compared, mut all, mut left) = (0, 0, 0);
    for seed in 0..40 {
        if let Some((naive, reduced)) = both(&drawn(seed), 600) {
            (compared, all, left) = (compared + 1, all + naive.whole, left + reduced.whole);
        }
    }
    assert!(compared >= 12, "{compared} were small enough");
    assert!(left * 3 < all, "{left} of {all} orders are left");
}
