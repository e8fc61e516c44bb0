//! Runs the cases of one bench under criterion. Part of each bench, since only benches have criterion.

use std::time::{Duration, Instant};

use criterion::Criterion;
use tenure_benches::cases::ALL;

/// Times the cases of `bench`.
pub fn run(criterion: &mut Criterion, bench: &str) {
    let mut group = criterion.benchmark_group(bench);
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(50);
    for (_, cases) in ALL.iter().filter(|(name, _)| *name == bench) {
        for (name, make) in *cases {
            let mut case = make();
            group.bench_function(*name, |bencher| {
                bencher.iter_custom(|n| {
                    let start = Instant::now();
                    case(n);
                    start.elapsed()
                });
            });
        }
    }
    group.finish();
}
