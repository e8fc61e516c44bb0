#!/usr/bin/env bash
# Miri and ThreadSanitizer over the witnesses of each happens-before edge (verification/racing): sound as they are, and
# a race with each named ordering weakened. Then Miri alone over the core's own tests, on several
# schedules: every unsafe line that they pass. Needs a nightly toolchain with the components miri and rust-src;
# what is missing is said, and skipped: neither is a gate. `weak-memory.sh [ROUNDS]`, 60 by default; some minutes.
set -uo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-60}
target=${CARGO_TARGET_DIR:-target}/weak-memory
host=$(rustc -vV | sed -n 's/^host: //p')
failed=0 shown=0

has() { rustup +nightly component list 2>/dev/null | grep -q "^$1.*(installed)"; }

# Runs a witness as it is, then with each defect that it must show as a race.
sweep() { # tool, words of a race, command...
    local tool=$1 race=$2 list
    shift 2
    list=$("$@" 2>/dev/null) || { echo "FAILED   $tool: does not run"; failed=1; return; }
    while read -r witness defects; do
        case "$tool $witness" in
        "tsan e2_completion")
            echo "blind    tsan: $witness: it does not know fetch_max, and calls the core as it is a race"
            continue
            ;;
        "tsan e6_favoured_elsewhere")
            echo "blind    tsan: E6.enter: it does not let a relaxed store end what an earlier release published"
            defects="E6.look"
            ;;
        "tsan e3_claim_then_guest")
            echo "blind    tsan: $defects: it runs the machine's own order, in which no thread reads a stale watermark"
            defects=""
            ;;
        esac
        if "$@" "$witness" "$rounds" >"$target/out" 2>&1; then
            echo "ok       $tool: $(tail -n1 "$target/out")"
        else
            echo "FAILED   $tool: $witness:"
            tail -n 30 "$target/out"
            failed=1
        fi
        for defect in $defects; do
            "$@" "$witness" "$rounds" "$defect" >"$target/out" 2>&1
            if grep -q "$race" "$target/out"; then
                echo "shown    $tool: $defect weakened is a race in $witness"
                shown=$((shown + 1))
            else
                echo "FAILED   $tool: $defect weakened went unseen in $witness"
                failed=1
            fi
        done
    done <<<"$list"
}

# Runs tests under Miri on so many schedules.
whole() { # what, seeds, seconds, command...
    local what=$1 seeds=$2 seconds=$3 ended
    shift 3
    MIRIFLAGS="$MIRIFLAGS -Zmiri-many-seeds=0..$seeds" timeout "$seconds" "$@" >"$target/out" 2>&1
    ended=$?
    case $ended in
    0) echo "ok       miri: $what, $seeds schedules" ;;
    124) echo "SKIPPED  miri: $what did not end in $seconds s" ;;
    *)
        echo "FAILED   miri: $what:"
        tail -n 30 "$target/out"
        failed=1
        ;;
    esac
}

mkdir -p "$target"
if has miri && has rust-src; then
    export MIRIFLAGS="-Zmiri-preemption-rate=0.05"
    sweep miri "Data race detected" cargo +nightly miri run -q --target-dir "$target/miri" -p tenure-racing --
    # One test counts to hundreds of thousands against a clock.
    whole "the core's own tests" 4 600 cargo +nightly miri test -q --target-dir "$target/miri" -p tenure --lib -- --skip no_notification_is_lost
else
    echo "SKIPPED  miri: \`rustup toolchain install nightly --component miri,rust-src\` brings it"
fi
if has rust-src; then
    export RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS="halt_on_error=1 exitcode=66"
    build=(cargo +nightly build -q -Zbuild-std --target "$host" --target-dir "$target/tsan" -p tenure-racing)
    if "${build[@]}"; then
        # Real threads meet in some rounds only: many of them, each a few microseconds.
        rounds=$((rounds * 100))
        sweep tsan "ThreadSanitizer: data race" "$target/tsan/$host/debug/tenure-racing"
    else
        echo "SKIPPED  tsan: an instrumented std does not build here"
    fi
else
    echo "SKIPPED  tsan: \`rustup toolchain install nightly --component rust-src\` brings what it needs"
fi
echo "$shown weakened orderings were shown as races"
exit "$failed"
