#!/usr/bin/env bash
# Counts the instructions of one operation of each case under callgrind, and fails where a count is more than 3 %
# away from benches/instructions.tsv, or than a third column says there: what a crate of others inlines, or not, changes
# with anything around it. Counts repeat exactly on one compiler, so this needs no quiet machine.
#
#   benches/instructions.sh           compare
#   benches/instructions.sh --bless   write what was counted as the new baseline
set -euo pipefail
cd "$(dirname "$0")/.."
baseline=benches/instructions.tsv
command -v valgrind >/dev/null || { apt-get update -q && apt-get install -y -q valgrind; }
cargo build --quiet --release -p tenure-benches --bin instructions
program=${CARGO_TARGET_DIR:-target}/release/instructions

# Instructions of the whole program, the case done so often.
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

few=1000 many=3000 failed=0 counted=
while read -r case; do
    low=$(count "$case" $few) high=$(count "$case" $many)
    each=$(((high - low) / (many - few)))
    IFS=$'\t' read -r expected percent < <(awk -F'\t' -v name="$case" '$1 == name { print $2 "\t" $3 }' "$baseline") || true
    counted+="$case	$each${percent:+	$percent}"$'\n'
    verdict=ok
    if [ -z "$expected" ]; then
        verdict='not in the baseline'
    elif ((each * 100 > expected * (100 + ${percent:-3}))); then
        verdict='MORE'
    elif ((each * 100 < expected * (100 - ${percent:-3}))); then
        verdict='fewer: bless it'
    fi
    [ "$verdict" = ok ] || failed=1
    printf '%-32s %8d  expected %8s  %s\n' "$case" "$each" "${expected:-none}" "$verdict"
done < <("$program")

if [ "${1:-}" = --bless ]; then
    printf '%s' "$counted" >"$baseline"
    failed=0
fi
exit $failed
