#!/usr/bin/env bash
# Miri over the suite's cases of pins, boxes and owners, on the simulator: once by Stacked Borrows and once by Tree Borrows. Some minutes, so
# in no gate. Needs a nightly toolchain with the components miri and rust-src; without them it says so, and ends with 77.
#
# What it runs: registrations and their owners, scopes, views, and memory that is kept on purpose (so leaks are not looked
# for). What it cannot: cases whose memory must begin at a page (Miri aligns a vector of bytes to one byte), real drivers, the system's
# barrier, and more than one schedule of threads; `weak-memory.sh` has the orderings.
#
# `miri.sh [CASES...]`, each the beginning of a name.
set -uo pipefail
cd "$(dirname "$0")/.."
has() { rustup +nightly component list 2>/dev/null | grep -q "^$1.*(installed)"; }
has miri && has rust-src || {
    echo "SKIPPED: \`rustup toolchain install nightly --component miri,rust-src\` brings Miri"
    exit 77
}
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(registration::p1_ registration::p4 registration::p5 registration::p9_a registration::host_memory)
target=${CARGO_TARGET_DIR:-target}/weak-memory/miri
failed=0
for rules in stacked tree; do
    flags="-Zmiri-ignore-leaks"
    [ $rules = stacked ] || flags="$flags -Zmiri-tree-borrows"
    if MIRIFLAGS=$flags cargo +nightly miri run -q --target-dir "$target" -p tenure-tests --bin cases -- "${cases[@]}" >"$target.$rules" 2>&1; then
        echo "ok       $rules borrows: $(grep -o '[0-9]* passed' "$target.$rules" | tail -n 1)"
    else
        echo "FAILED   $rules borrows:"
        tail -n 30 "$target.$rules"
        failed=1
    fi
done
exit $failed
