//! Captures, and launches of graphs. `cargo bench -p tenure-benches --bench capture`

mod timing;

use criterion::{Criterion, criterion_group, criterion_main};

fn bench(criterion: &mut Criterion) {
    timing::run(criterion, "capture");
}

criterion_group!(benches, bench);
criterion_main!(benches);
