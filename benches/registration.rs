//! Wraps of host memory, and look-ups. `cargo bench -p tenure-benches --bench registration`

mod timing;

use criterion::{Criterion, criterion_group, criterion_main};

fn bench(criterion: &mut Criterion) {
    timing::run(criterion, "registration");
}

criterion_group!(benches, bench);
criterion_main!(benches);
