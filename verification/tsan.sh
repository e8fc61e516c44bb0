#!/usr/bin/env bash
# ThreadSanitizer over the suite's cases with threads, adopted streams among them, and the storms, on the simulator: std built anew with it. To
# build it takes minutes, so it is in no gate. Needs a nightly toolchain with rust-src; without, it says so, and ends with 77.
#
# What it cannot see: it knows neither `fetch_max` nor an order that only a fence makes (`weak-memory.sh` names the edges for which it is
# blind), and it runs the machine's own schedules.
#
# `tsan.sh [CASES...]`, each the beginning of a name.
set -uo pipefail
cd "$(dirname "$0")/.."
rustup +nightly component list 2>/dev/null | grep -q '^rust-src.*(installed)' || {
    echo "SKIPPED: \`rustup toolchain install nightly --component rust-src\` brings what ThreadSanitizer needs"
    exit 77
}
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(stream::s8 stream::s9 registration::p1 stress)
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}/weak-memory/tsan
export RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS="halt_on_error=0 exitcode=66"
cargo +nightly build -q -Zbuild-std --target "$host" --target-dir "$target" -p tenure-tests --bin cases || exit 1
"$target/$host/debug/cases" "${cases[@]}" >"$target.out" 2>&1
ended=$?
races=$(grep -c 'WARNING: ThreadSanitizer' "$target.out")
echo "$(grep -o '[0-9]* passed' "$target.out" | tail -n 1), $races reports, exit $ended: $target.out"
grep 'SUMMARY: ThreadSanitizer' "$target.out" | sort | uniq -c
exit $ended
