//! The conformance suite on the simulator: every profile, with a device that a seed moves and with one that has a
//! thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

mod parts;

use libtest_mimic::{Arguments, Failed, Trial};
use tenure::driver::{Call, ErrorKind};
use tenure_sim::drive::Drive;
use tenure_sim::profile::Profile;
use tenure_tests::bench::{Bench, SimBench};
use tenure_tests::conformance::{Case, cases};
use tenure_tests::expectations::{DEPARTURES, departure};
use tenure_tests::faulty::OnPurpose;
use tenure_tests::rig::Rig;
use tenure_tests::volume::{self, Plan};

/// How the device moves in one run of the suite, by which seed, and whether it has memory pools.
const DRIVES: [(&str, Drive, u64, bool); 5] = [
    ("uniform", Drive::Seeded, 0, true),
    ("lazy", Drive::Seeded, 2, true),
    ("eager", Drive::Seeded, 3, true),
    ("threaded", Drive::Threaded, 0, true),
    ("without pools", Drive::Seeded, 0, false),
];

fn main() {
    let mut arguments = Arguments::from_args();
    // Waits of two seconds and less: more threads than processors are of use.
    arguments.test_threads.get_or_insert(4);
    std::panic::set_hook(Box::new(|panic| {
        if !panic.payload().is::<OnPurpose>() {
            eprintln!("{panic}");
        }
    }));
    let mut trials = vec![
        Trial::test("expectations name cases and profiles", || {
            check_expectations();
            Ok(())
        }),
        Trial::test("each of many launches and wraps is accounted for", || {
            check_volume();
            Ok(())
        }),
        Trial::test("an account with a failed release does not add up", || {
            check_volume_notices();
            Ok(())
        }),
    ];
    trials.extend(parts::trials());
    for profile in Profile::NAMES {
        for drive in DRIVES {
            trials.extend(cases::<SimBench>().into_iter().map(|case| trial(profile, drive, case)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn check_expectations() {
    for known in DEPARTURES {
        assert!(Profile::NAMES.contains(&known.profile), "{known:?} names no profile");
        let case = cases::<SimBench>().into_iter().find(|case| case.name == known.case);
        let profile = Profile::named(known.profile).expect("a listed profile");
        assert!(profile.quirks().any(|quirk| quirk.name() == known.why), "{known:?} names no quirk of the profile");
        assert!(case.is_some_and(|case| case.is_raw), "{known:?} names no raw case: the contract has no exceptions");
    }
}

fn threaded() -> SimBench {
    SimBench::new(Profile::cuda_13(), Drive::Threaded, 0)
}

fn check_volume() {
    let plan = Plan { launches: 4_001, wraps: 401, threads: 4 };
    let account = volume::run(&threaded(), plan);
    assert_eq!((account.launches, account.registrations), (4_001, 401), "as planned: {account:?}");
    assert!(account.edges > 0, "buffers were handed from stream to stream: {account:?}");
}

fn check_volume_notices() {
    for call in [Call::HostUnregister, Call::FreeAsync, Call::StreamDestroy] {
        let bench = threaded();
        let rig = Rig::working(&bench);
        rig.tap.rules.fail(call, 1, ErrorKind::Unknown);
        let plan = Plan { launches: 200, wraps: 20, threads: 2 };
        let ended = catch_unwind(AssertUnwindSafe(|| volume::carry_out(rig, plan, &*bench.driver())));
        assert!(ended.is_err(), "{call} failed once, and nothing was missed: {ended:?}");
    }
}

fn trial(profile: &'static str, how: (&'static str, Drive, u64, bool), case: Case<SimBench>) -> Trial {
    let (drive_name, drive, seed, has_pools) = how;
    let name = format!("{profile} {drive_name} {}", case.name);
    Trial::test(name, move || {
        let bench = SimBench::with(Profile::named(profile).expect("a listed profile"), drive, seed, has_pools);
        let outcome = run(&bench, &case);
        match (outcome, departure(profile, case.name)) {
            (Ok(()), None) => Ok(()),
            (Err(_), Some(_)) => Ok(()),
            (Ok(()), Some(why)) => Err(format!("passes, and is listed as a failure: {why}").into()),
            (Err(failure), None) => Err(Failed::from(failure)),
        }
    })
}

fn run(bench: &SimBench, case: &Case<SimBench>) -> Result<(), String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| (case.run)(bench)));
    if let Err(panic) = outcome {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        return Err(text.unwrap_or_else(|| "a panic without words".to_owned()));
    }
    // A raw case breaks captures and the like on purpose.
    let findings = if case.is_raw { Vec::new() } else { bench.finish() };
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}
