//! Drops of what is in use, and its release. `cargo bench -p tenure-benches --bench reclaim`

mod timing;

use criterion::{Criterion, criterion_group, criterion_main};

fn bench(criterion: &mut Criterion) {
    timing::run(criterion, "reclaim");
}

criterion_group!(benches, bench);
criterion_main!(benches);
