#!/usr/bin/env bash
# Miri and ThreadSanitizer over the witnesses of each happens-before edge (verification/racing): sound as they are, and
# a race with each named ordering weakened. Then Miri alone over the core's own tests, on several schedules, and over the
# suite on the simulator: every unsafe line that they pass. Needs a nightly toolchain with the components miri and rust-src;
# what is missing is said, and skipped: neither is a gate. `weak-memory.sh [ROUNDS]`, 60 by default; half an hour.
# What a run finds in which nothing is skipped is kept beside this for the page: kind, tool, subject, words.
set -uo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-60}
target=${CARGO_TARGET_DIR:-target}/weak-memory
host=$(rustc -vV | sed -n 's/^host: //p')
failed=0 shown=0 skipped=0
figures=$target/figures.tsv

note() { printf '%s\t%s\t%s\t%s\n' "$@" >>"$figures"; }

fails() { # tool, subject, what
    echo "FAILED   $1: $2: $3"
    note failed "$@"
    failed=1
}

blind() { # tool, subject, why
    echo "blind    $1: $2: $3"
    note blind "$@"
}

skips() { # words
    echo "SKIPPED  $*"
    skipped=1
}

has() { rustup +nightly component list 2>/dev/null | grep -q "^$1.*(installed)"; }

# Runs a witness as it is, then with each defect that it must show as a race.
sweep() { # tool, words of a race, command...
    local tool=$1 race=$2 list
    shift 2
    list=$("$@" 2>/dev/null) || { fails "$tool" "the witnesses" "do not run"; return; }
    while read -r witness defects; do
        case "$tool $witness" in
        "tsan e2_completion")
            blind tsan "$witness" "it does not know fetch_max, and calls the core as it is a race"
            continue
            ;;
        "tsan e6_favoured_elsewhere")
            blind tsan E6.enter "it does not let a relaxed store end what an earlier release published"
            defects="E6.look"
            ;;
        "tsan e3_claim_then_guest")
            blind tsan "$defects" "it runs the machine's own order, in which no thread reads a stale watermark"
            defects=""
            ;;
        "miri e4_view_then_launch")
            blind miri "E4.r in $witness" "a launch takes a gate after the look, and that is a full fence there"
            defects="E4.w"
            ;;
        esac
        if "$@" "$witness" "$rounds" >"$target/out" 2>&1; then
            echo "ok       $tool: $(tail -n1 "$target/out")"
            note sound "$tool" "$witness" "$(sed -n '$s/.*: //p' "$target/out")"
        else
            fails "$tool" "$witness" "is not sound"
            tail -n 30 "$target/out"
        fi
        for defect in $defects; do
            "$@" "$witness" "$rounds" "$defect" >"$target/out" 2>&1
            if grep -q "$race" "$target/out"; then
                echo "shown    $tool: $defect weakened is a race in $witness"
                note shown "$tool" "$defect" "$witness"
                shown=$((shown + 1))
            else
                fails "$tool" "$defect in $witness" "weakened, it went unseen"
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
    0)
        echo "ok       miri: $what, $seeds schedules"
        note whole miri "$what" "$(passed), on $seeds schedules each"
        ;;
    124) skips "miri: $what did not end in $seconds s" ;;
    *)
        fails miri "$what" "a test fails, or an access is undefined"
        tail -n 30 "$target/out"
        ;;
    esac
}

# Runs cases of the suite on the simulator under Miri, on one schedule.
suite() { # seconds, names...
    local seconds=$1 ended
    shift
    timeout "$seconds" cargo +nightly miri run -q --target-dir "$target/miri" -p tenure-tests --bin cases -- "$@" >"$target/out" 2>&1
    ended=$?
    case $ended in
    0)
        echo "ok       miri: $(passed) of the suite's cases"
        note whole miri "cases of the suite, on one schedule: $*" "$(passed)"
        ;;
    124) skips "miri: the suite did not end in $seconds s: $(grep -c '::' "$target/out") cases passed" ;;
    *)
        fails miri "the suite" "a case fails, or an access is undefined"
        tail -n 30 "$target/out"
        ;;
    esac
}

passed() { grep -o '[0-9]* passed' "$target/out" | head -n 1; }

mkdir -p "$target"
: >"$figures"
if has miri && has rust-src; then
    export MIRIFLAGS="-Zmiri-preemption-rate=0.05"
    sweep miri "Data race detected" cargo +nightly miri run -q --target-dir "$target/miri" -p tenure-racing --
    # One test counts to hundreds of thousands against a clock.
    whole "the core's own tests" 4 600 cargo +nightly miri test -q --target-dir "$target/miri" -p tenure --lib -- --skip no_notification_is_lost
    suite 1800 ownership::o1 registration::p4 capture::c4
else
    skips "miri: \`rustup toolchain install nightly --component miri,rust-src\` brings it"
fi
if has rust-src; then
    export RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS="halt_on_error=1 exitcode=66"
    build=(cargo +nightly build -q -Zbuild-std --target "$host" --target-dir "$target/tsan" -p tenure-racing)
    if "${build[@]}"; then
        # Real threads meet in some rounds only: many of them, each a few microseconds.
        rounds=$((rounds * 100))
        sweep tsan "ThreadSanitizer: data race" "$target/tsan/$host/debug/tenure-racing"
    else
        skips "tsan: an instrumented std does not build here"
    fi
else
    skips "tsan: \`rustup toolchain install nightly --component rust-src\` brings what it needs"
fi
echo "$shown weakened orderings were shown as races"
[ "$skipped" = 1 ] || cp "$figures" verification/weak-memory.tsv
exit "$failed"
