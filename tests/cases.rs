//! Runs the cases of the suite whose names begin with one of the arguments, each on a simulated device of its own, one
//! after the other: `cases ownership::o5 capture`; after `--without-pools` on one that has no memory pools. For Miri, under which the harness of `on_sim` alone takes minutes.

use std::process::ExitCode;

use tenure_sim::drive::Drive;
use tenure_sim::profile::Profile;
use tenure_tests::bench::{Bench as _, SimBench};
use tenure_tests::conformance::cases;

fn main() -> ExitCode {
    let mut wanted: Vec<_> = std::env::args().skip(1).collect();
    let has_pools = wanted.first().is_none_or(|first| first != "--without-pools");
    if !has_pools {
        wanted.remove(0);
    }
    let is_wanted = |name: &str| wanted.iter().any(|wanted| name.starts_with(wanted.as_str()));
    let mut passed = 0;
    for case in cases::<SimBench>().iter().filter(|case| is_wanted(case.name)) {
        let bench = SimBench::with(Profile::cuda_13(), Drive::Seeded, 0, has_pools);
        (case.run)(&bench);
        let findings = if case.is_raw { Vec::new() } else { bench.finish() };
        assert!(findings.is_empty(), "{}: {}", case.name, findings.join("\n"));
        println!("{}", case.name);
        passed += 1;
    }
    println!("{passed} passed");
    // Where nothing was wanted that is there, nothing was shown.
    if passed == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
