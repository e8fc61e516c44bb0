//! The launch path beside its rivals and its floor. `cargo bench -p tenure-benches --bench launch_path`
//!
//! What a launch takes beyond `raw_*` is bookkeeping. Times of two benchmarks are minutes apart here and drift; for
//! ratios take the binary `ratios`, which interleaves.

mod timing;

use criterion::{Criterion, criterion_group, criterion_main};
use tenure_benches::bed::Bed;
use tenure_benches::null::{Costs, Null};
use tenure_benches::rivals::{Lock, Rivals, Word};

fn bench(criterion: &mut Criterion) {
    timing::run(criterion, "launch_path");
    let bed = Bed::new(Null::default());
    let rivals = Rivals::new(&bed);
    let mut group = criterion.benchmark_group("launch_path");
    group.bench_function("rival_locked", |bencher| bencher.iter(|| rivals.locked(&bed)));
    group.bench_function("rival_locked_in_place", |bencher| bencher.iter(|| rivals.locked_in_place(&bed)));
    group.bench_function("rival_unlocked", |bencher| bencher.iter(|| rivals.unlocked(&bed)));
    let priced = Bed::new(Null::with_costs(Costs::MEASURED));
    let rivals = Rivals::new(&priced);
    group.bench_function("rival_event_per_argument", |bencher| bencher.iter(|| rivals.event_per_argument(&priced)));
    let (lock, word) = (Lock::default(), Word::default());
    group.bench_function("one_lock", |bencher| bencher.iter(|| lock.pass()));
    group.bench_function("one_cas", |bencher| bencher.iter(|| word.pass()));
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
