#!/usr/bin/env bash
# repeat.sh BIN N JOBS [ARGUMENT...]: runs the test binary BIN N times, JOBS processes at once, and says which tests failed in
# how many runs. More jobs than processors make the load under which orders that are rare alone come up. Needs no toolchain.
# A run that does not end within TENURE_RUN_SECONDS (1200) counts as one that hangs. What failed runs wrote stays in the
# folder that is named at the end. Exits with 1 where any run failed.
set -uo pipefail
if [ $# -lt 3 ]; then sed -n '2,5s/^# //p' "$0"; exit 2; fi
binary=$(realpath "$1") runs=$2 jobs=$3
shift 3
folder=$(mktemp -d "${TMPDIR:-/tmp}/repeat.XXXXXX")

one() {
    local run=$1 folder=$2 binary=$3 code
    shift 3
    timeout --kill-after=10 "${TENURE_RUN_SECONDS:-1200}" "$binary" "$@" >"$folder/$run.log" 2>&1
    code=$?
    case $code in
        0) rm -f "$folder/$run.log" ;;
        124 | 137) echo "(a run that hangs)" >"$folder/$run.failed" ;;
        *)
            # The list of names at the end; a crash has none.
            sed -n '/^failures:$/,$ s/^    \(.*\)$/\1/p' "$folder/$run.log" | sort -u >"$folder/$run.failed"
            [ -s "$folder/$run.failed" ] || echo "(a run that ends with $code)" >"$folder/$run.failed"
            ;;
    esac
}
export -f one

seq "$runs" | xargs -P "$jobs" -I{} bash -c 'one "$@"' repeat {} "$folder" "$binary" "$@"
failed=$(find "$folder" -name '*.failed' | wc -l)
echo "$(basename "$binary"): $runs runs, $jobs at once, $failed failed"
[ "$failed" -eq 0 ] && { rmdir "$folder"; exit 0; }
cat "$folder"/*.failed | sort | uniq -c | sort -rn
echo "logs: $folder"
exit 1
