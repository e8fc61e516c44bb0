#!/usr/bin/env bash
# Miri and ThreadSanitizer over the witnesses of each happens-before edge (verification/broken/racing): sound as they are, and
# a race with each named ordering weakened. Then Miri alone over the core's own tests, on several schedules, and over cases of
# the suite on the simulator that together pass every unsafe line of the core: which lines they pass is counted in a run of the
# same tests without Miri. Needs a nightly toolchain with the components miri and rust-src, and llvm-tools for the stable one;
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
        "tsan e6_biased_elsewhere")
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

# The unsafe lines of the core that nothing of this passes, counted without Miri: the core's own tests, and the same cases.
unpassed() { # cases of a device with pools, cases of one without
    local tools own left all
    tools=$(rustc --print sysroot)/lib/rustlib/$host/bin
    [ -x "$tools/llvm-cov" ] || { skips "coverage: \`rustup component add llvm-tools\` brings it"; return; }
    local -x RUSTFLAGS="-Cinstrument-coverage" LLVM_PROFILE_FILE="$target/%p.profraw"
    own=$(cargo test -q --target-dir "$target/coverage" -p tenure --lib --no-run --message-format json |
        grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d '"' -f 4)
    cargo build -q --target-dir "$target/coverage" -p tenure-tests --bin cases
    rm -f "$target"/*.profraw
    # shellcheck disable=SC2086 # words
    "$own" --skip no_notification_is_lost >/dev/null && "$target/coverage/debug/cases" $1 >/dev/null &&
        "$target/coverage/debug/cases" --without-pools $2 >/dev/null || { fails coverage "the same tests" "fail without Miri"; return; }
    "$tools/llvm-profdata" merge --sparse "$target"/*.profraw -o "$target/all.profdata"
    "$tools/llvm-cov" export --format=lcov --instr-profile "$target/all.profdata" "$own" --object "$target/coverage/debug/cases" \
        --sources core/src >"$target/lcov"
    # What the checkers run instead has models. The system's barrier is not called under Miri.
    all=$(grep -n 'unsafe {' -r core/src --include '*.rs' | grep -v '/\(loom\|shuttle\)\.rs:\|:[0-9]*: *//\|libc::' | cut -d : -f 1,2)
    blind miri core/src/sync/native.rs "it does not make the system call of the barrier: a full fence stands for it"
    left=$(awk -F '[:,]' -v root="$PWD/" '
        NR == FNR { if ($1 == "SF") file = substr($2, length(root) + 1); if ($1 == "DA" && $3 > 0) passed[file ":" $2]; next }
        !($0 in passed)' "$target/lcov" - <<<"$all" | tr '\n' ' ')
    echo "ok       coverage: of $(wc -l <<<"$all") unsafe lines of the core these do not pass: ${left:-none}"
    note whole coverage "unsafe lines of the core, of $(wc -l <<<"$all"), that what ran under Miri does not pass" "${left:-none}"
}

passed() { grep -o '[0-9]* passed' "$target/out" | head -n 1; }

mkdir -p "$target"
: >"$figures"
if has miri && has rust-src; then
    export MIRIFLAGS="-Zmiri-preemption-rate=0.05"
    sweep miri "Data race detected" cargo +nightly miri run -q --target-dir "$target/miri" -p tenure-broken --bin tenure-racing --
    # One test counts to hundreds of thousands against a clock.
    whole "the core's own tests" 4 600 cargo +nightly miri test -q --target-dir "$target/miri" -p tenure --lib -- --skip no_notification_is_lost
    pooled="ownership::o1 ownership::o9_the registration::p4 registration::p9_a_failed_register registration::host_memory_of_the
        capture::c4 capture::a_graph_tells"
    plain=ownership::o6_the_last
    # shellcheck disable=SC2086 # words
    suite 1800 $pooled
    # shellcheck disable=SC2086 # as above
    suite 900 --without-pools $plain
    unpassed "$pooled" "$plain"
else
    skips "miri: \`rustup toolchain install nightly --component miri,rust-src\` brings it"
fi
if has rust-src; then
    export RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS="halt_on_error=1 exitcode=66"
    build=(cargo +nightly build -q -Zbuild-std --target "$host" --target-dir "$target/tsan" -p tenure-broken --bin tenure-racing)
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
