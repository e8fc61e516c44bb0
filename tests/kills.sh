#!/bin/sh
# Arms each planted defect in turn and says how many cases of the suite, or else how many storms, fail.
# Defects that only an order of instructions shows are for the models: they may read 0 here.
set -eu
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/broken" RUSTFLAGS="--cfg mc_broken"
cargo build --quiet --release -p tenure-tests --bin stress
suite=$(cargo test --release -p tenure-tests --test on_sim --no-run 2>&1 | sed -n 's/.*(\(.*on_sim-[^)]*\)).*/\1/p')
failures() { sed -n 's/.*\b\([0-9][0-9]*\) failed.*/\1/p' | tail -n 1; }
grep -rhoE 'mutant!\("[a-z0-9_]+"\)' core/src | sed 's/.*"\(.*\)".*/\1/' | sort -u | while read -r name; do
    export TENURE_MUTANT="$name"
    cases=$(timeout 30 "$suite" 2>/dev/null | failures || true)
    storms=
    if [ "${cases:-ended}" = 0 ]; then
        storms=$(timeout 30 "$CARGO_TARGET_DIR/release/stress" --seeds 1000 --profile hip-7.2 2>/dev/null | failures || true)
    fi
    echo "$name: ${cases:-the run ended} cases, ${storms:--} storms"
done
