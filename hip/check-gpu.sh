#!/bin/sh
# Checks tenure on a real GPU, from the driver to the whole, and keeps what was seen.
#
#   hip/check-gpu.sh [--bin DIR] [--out DIR] [--profile NAME] [STEP...]
#   hip/check-gpu.sh build DIR
#
# AMD:     hip/check-gpu.sh
# NVIDIA:  TENURE_HIP_LIBRARY=$(hip/cuda/build.sh local) hip/check-gpu.sh
#
# build DIR      builds every program into DIR, stripped, and nothing else: for a machine with a GPU and no cargo. Put a
#                libtenure_hip_cuda.so beside them, and --bin takes that for the library where none is named.
# --bin DIR      takes the programs from DIR and builds nothing
# --out DIR      where each step's output goes (target/check-gpu); the tables of facts lie in DIR/facts
# --profile NAME what the device is expected to do; by default what `doctor` says that the library is handled as
#
# Steps, all of them by default:
#   doctor        what is there
#   smoke         every call of the driver, every result checked
#   tour          a real program; its results equal the simulator's
#   conformance   the suite of every driver
#   plain         the same, on the device opened without memory in the order of streams
#   storm         threads that capture, drop, wrap, poll, wait and recycle at random
#   volume        1,000,000 launches and 100,000 wraps from 8 threads, each accounted for
#   behind        copies with pageable memory behind a kernel that runs: none waits for it
#   facts         what the device does, call by call, and whether the profile says so
#   sanitizer     smoke and a small storm under compute-sanitizer's memcheck; skipped where that is missing
#   bench         the launch path beside the raw driver; on CUDA only
#
# One line a step. Exits with 1 if one failed, with 2 if there is nothing to check; a step that was skipped says so.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
all="doctor smoke tour conformance plain storm volume behind facts sanitizer bench"
bin='' profile='' failed=0 skipped=0 passed=0
out=${CARGO_TARGET_DIR:-target}/check-gpu

die() {
    echo "check-gpu.sh: $*" >&2
    exit 2
}

# Every program, built for release and without symbols, into the folder.
build() {
    mkdir -p "$1"
    built=${CARGO_TARGET_DIR:-target}/release
    cargo build --quiet --release -p tenure-command
    cargo build --quiet --release -p tenure-tests --bin stress --bin behind
    cargo build --quiet --release -p tenure-hip --example doctor --example smoke
    cargo build --quiet --release -p tenure-benches --features gpu --bin gpu
    suite=$(cargo test --release -p tenure-tests --test on_hip --no-run 2>&1 | sed -n 's/.*(\(.*on_hip-[0-9a-f]*\)).*/\1/p')
    [ -x "$suite" ] || die "the suite was not built"
    for program in "$built/tenure" "$built/stress" "$built/behind" "$built/gpu" "$built/examples/doctor" "$built/examples/smoke"; do
        strip -o "$1/$(basename "$program")" "$program"
    done
    strip -o "$1/on_hip" "$suite"
}

# run STEP SECONDS COMMAND...: the command with its output in a file; a line on how it ended.
run() {
    step=$1 limit=$2 begun=$(date +%s)
    shift 2
    code=0
    timeout -k 10 "$limit" "$@" >>"$out/$step.log" 2>&1 || code=$?
    took=$(($(date +%s) - begun))
    [ "$code" -ne 124 ] || echo "stopped after $limit seconds" >>"$out/$step.log"
    return "$code"
}

good() {
    passed=$((passed + 1))
    printf 'ok       %-12s %s\n' "$1" "$2"
}

bad() {
    failed=$((failed + 1))
    printf 'FAIL     %-12s %s; see %s\n' "$1" "$2" "$out/$1.log"
    tail -n 15 "$out/$1.log" | sed 's/^/         | /'
}

skip() {
    skipped=$((skipped + 1))
    printf 'SKIPPED  %-12s %s\n' "$1" "$2"
}

# simple STEP SECONDS COMMAND...: a step that is one command; its last line is told.
simple() {
    if run "$@"; then
        good "$1" "$(tail -n 1 "$out/$1.log") ($took s)"
    else
        bad "$1" "exit code $code after $took s"
    fi
}

field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$2"; }

tour() {
    : >"$out/tour.log"
    for on in sim hip; do
        if ! timeout -k 10 60 "$bin/tenure" tour --on $on --json >"$out/tour.$on.json" 2>>"$out/tour.log"; then
            cat "$out/tour.$on.json" >>"$out/tour.log"
            bad tour "--on $on did not end well"
            return
        fi
    done
    cat "$out/tour.sim.json" "$out/tour.hip.json" >"$out/tour.log"
    sim=$(field digest "$out/tour.sim.json") hip=$(field digest "$out/tour.hip.json")
    if [ -n "$hip" ] && [ "$sim" = "$hip" ] && [ "$(field verified "$out/tour.hip.json")" = true ]; then
        good tour "digest $hip on both, $(field launches "$out/tour.hip.json") submissions"
    else
        bad tour "digest $sim on the simulator, $hip on the device"
    fi
}

conformance() {
    suite conformance 1
}

plain() {
    suite plain 0
}

suite() { # step, pools
    # CUDA loads a kernel at its first launch, for which it may wait until a held stream goes on.
    if TENURE_TEST_POOLS=$2 TENURE_TEST_HIP=1 CUDA_MODULE_LOADING=EAGER run "$1" 600 "$bin/on_hip"; then
        good "$1" "$(grep 'need the simulator$' "$out/$1.log") ($took s)"
    else
        bad "$1" "$(grep -c 'FAILED$' "$out/$1.log") cases failed ($took s)"
        grep 'FAILED$' "$out/$1.log" | sed 's/^/         | /'
    fi
}

facts() {
    if ! run facts 120 "$bin/tenure" probe --on hip --out "$out/facts"; then
        bad facts "the probe ended with $code after $took s"
        return
    fi
    differ=0
    for table in capture semantics; do
        "$bin/tenure" facts "$out/facts/$table.tsv" --profile "$profile" >>"$out/facts.log" 2>&1 || differ=1
    done
    told=$(grep ' rows, ' "$out/facts.log" | tr '\n' ';')
    if [ $differ = 0 ]; then good facts "$told ($took s)"; else bad facts "the device departs from $profile: $told"; fi
}

sanitizer() {
    sanitize=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
    if [ -z "$sanitize" ]; then
        skip sanitizer "compute-sanitizer is not here, so memcheck was NOT run"
        return
    fi
    for program in "$bin/smoke" "$bin/stress --on hip --seeds 2 --threads 4 --steps 20"; do
        # shellcheck disable=SC2086 # a program and its arguments
        if run sanitizer 120 "$sanitize" --tool memcheck --report-api-errors no --error-exitcode 9 $program; then
            continue
        fi
        if grep -q 'Device not supported' "$out/sanitizer.log"; then
            skip sanitizer "compute-sanitizer does not support this device, so memcheck was NOT run"
        else
            bad sanitizer "memcheck of $program ended with $code after $took s"
        fi
        return
    done
    good sanitizer "$(grep 'ERROR SUMMARY' "$out/sanitizer.log" | tr '\n' ';')"
}

bench() {
    case $profile in
    cuda*) simple_bench ;;
    *) skip bench "the bench compares with the CUDA driver" ;;
    esac
}

simple_bench() {
    if run bench 240 "$bin/gpu"; then
        good bench "launch over raw: $(sed -n 's/.*"launch_over_raw": \([0-9.]*\).*/\1/p' "$out/bench.log") ($took s)"
    else
        bad bench "ended with $code after $took s"
    fi
}

one() {
    case $1 in
    doctor) simple doctor 60 "$bin/doctor" ;;
    smoke) simple smoke 60 "$bin/smoke" ;;
    storm) simple storm 120 "$bin/stress" --on hip --seeds 20 --threads 8 --steps 60 ;;
    volume) simple volume 240 "$bin/stress" --on hip --launches 1000000 --wraps 100000 --threads 8 ;;
    behind) simple behind 120 "$bin/behind" --on hip ;;
    tour | conformance | plain | facts | sanitizer | bench) "$1" ;;
    *) die "no such step: $1 (there are $all)" ;;
    esac
}

steps=''
while [ $# -gt 0 ]; do
    case $1 in
    build)
        build "${2:?a folder}"
        ls "$2"
        exit 0
        ;;
    --bin) bin=${2:?a folder} && shift ;;
    --out) out=${2:?a folder} && shift ;;
    --profile) profile=${2:?a name} && shift ;;
    -*) die "no such option: $1" ;;
    *) steps="$steps $1" ;;
    esac
    shift
done

mkdir -p "$out"
if [ -z "$bin" ]; then
    bin=$out/bin
    build "$bin"
fi
if [ -z "${TENURE_HIP_LIBRARY:-}" ] && [ -e "$bin/libtenure_hip_cuda.so" ]; then
    TENURE_HIP_LIBRARY=$(cd "$bin" && pwd)/libtenure_hip_cuda.so
    export TENURE_HIP_LIBRARY
fi
if ! "$bin/doctor" >"$out/doctor.log" 2>&1; then
    cat "$out/doctor.log"
    die "there is no device to check"
fi
[ -n "$profile" ] || profile=$(sed -n 's/^version .*handled as //p' "$out/doctor.log")
rm -f "$out"/*.log
for step in ${steps:-$all}; do
    one "$step"
done
echo "$passed passed, $failed FAILED, $skipped skipped, as $profile, on $(date -u +%Y-%m-%d)"
[ "$failed" = 0 ]
