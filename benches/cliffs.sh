#!/usr/bin/env bash
# Counts the instructions that the simulator takes for each case of `cliffs`, and for twice as much of it, under callgrind.
# Fails where the second count is more than 2.3 times the first: then something looks at all that there is.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { apt-get update -q && apt-get install -y -q valgrind; }
cargo build --quiet --release -p tenure-benches --bin cliffs
program=${CARGO_TARGET_DIR:-target}/release/cliffs

count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

failed=0
while read -r case size; do
    once=$(count "$case" "$size") twice=$(count "$case" $((2 * size)))
    verdict=ok
    ((twice * 10 <= once * 23)) || { verdict=CLIFF failed=1; }
    hundredths=$((twice * 100 / once))
    printf '%-50s %6d  %12d  twice: %d.%02d times  %s\n' "$case" "$size" "$once" \
        $((hundredths / 100)) $((hundredths % 100)) "$verdict"
done < <("$program")
exit $failed
