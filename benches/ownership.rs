//! Reads on two streams, and buffers that change hands. `cargo bench -p tenure-benches --bench ownership`

mod timing;

use criterion::{Criterion, criterion_group, criterion_main};

fn bench(criterion: &mut Criterion) {
    timing::run(criterion, "ownership");
}

criterion_group!(benches, bench);
criterion_main!(benches);
