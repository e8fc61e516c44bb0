//! Leases of pooled streams. `cargo bench -p tenure-benches --bench stream`

mod timing;

use criterion::{Criterion, criterion_group, criterion_main};

fn bench(criterion: &mut Criterion) {
    timing::run(criterion, "stream");
}

criterion_group!(benches, bench);
criterion_main!(benches);
