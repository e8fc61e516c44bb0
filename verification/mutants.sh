#!/usr/bin/env bash
# Changes that a machine thinks of, over the files of the core that carry the protocol: cargo-mutants makes each, and runs the core's
# own tests, the suite on the simulator and the scenarios on it. Hours on two processors: it is no part of the gate. What it leaves out
# says `.cargo/mutants.toml`. `mutants.tsv` keeps the figures of the last sweep, and says of each survivor why.
#
# `mutants.sh [FILE...]`, such as `point pool/state`. Needs `cargo install cargo-mutants --locked`.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-mutants >/dev/null || { echo "SKIPPED: \`cargo install cargo-mutants --locked\` brings it"; exit 77; }
files=(point registration process/table reclaim reclaim/state worker ownership ownership/state stream_state/follow
    stream_state pool/state accept adopted ask pool context capture capture_gate event staging staging/state life sync/biased)
[ $# = 0 ] || files=("$@")
given=()
for file in "${files[@]}"; do given+=(-f "core/src/$file.rs"); done
# What never comes is waited for so long.
export TENURE_TEST_SECONDS=10
exec cargo mutants -p tenure --test-package tenure,tenure-tests,tenure-sim --timeout 300 -o "${CARGO_TARGET_DIR:-target}" \
    "${given[@]}" -- --lib --test on_sim --test scenario_corpus
