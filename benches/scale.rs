//! Launches of several threads, by what they share. `cargo bench -p tenure-benches --bench scale`
//!
//! The time is that of one launch on one processor: where threads share nothing it stays the same however many there are,
//! whether or not each has a processor.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tenure_benches::measure::{SHARINGS, THREADS, launch_among};

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scale");
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_secs(1)).sample_size(10);
    for (name, sharing) in SHARINGS {
        for threads in THREADS {
            group.bench_function(BenchmarkId::new(name, threads), |bencher| {
                bencher.iter_custom(|n| {
                    let each = launch_among(sharing, threads, 3);
                    Duration::from_secs_f64(each * 1e-9 * n as f64)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
