#!/usr/bin/env bash
# Mutants of the files of the core that carry the protocol, with the tests and then the models as what must notice. They are
# cargo-mutants', or with `--statements` every statement left out, which cargo-mutants does not try. `schemata/` weaves all of
# them into one copy of the core, which is built once, and tries each on, until something fails:
#
#   1. suite     the conformance suite over one profile of the simulator
#   2. own       the core's own tests
#   3. costs     the counts of locks, calls and allocations
#   4. profiles  the suite over all profiles, and its own checks
#   5. corpus    the scenarios, on the core as it is
#   6. storms    the stress program, 60 seeds on each profile
#   7. models    the searches of the pure machines, and the models: under shuttle, and under loom those of at most
#                $MUTANTS_MOST executions
#
# What cannot be woven is left to cargo-mutants itself, which builds each: stages 1, 2 and 4. A statement that is not does not
# compile without.
#
# `mutants.sh [--statements] [FILE...]`, such as `point stream/state`; all that are listed below by default. An hour and more on
# two processors: it is no part of the gate. Stopped, it goes on where it was, as long as it is for the same commit and files: `rm -r` what it says
# to begin again. Prints a row a file and a line a survivor; `mutants.tsv` keeps the rows, and says of each survivor why.
# Needs `cargo install cargo-mutants --locked`. What is left out of the list says `.cargo/mutants.toml`, and here: deleting
# the `!` of `!mutant!(…)` is that planted defect itself, which the gate tries.
set -euo pipefail
cd "$(dirname "$0")/.."
files=(point registration registration/state reclaim reclaim/state reclaim/worker ownership ownership/state
    ownership/follow stream stream/state context capture capture/gate event sync/biased)
kind=mutants
# Statements also of the rest.
[ "${1:-}" != --statements ] || { kind=statements && files+=(queue buffer pinned runtime future hold kernel driver) && shift; }
[ $# = 0 ] || files=("$@")
paths=("${files[@]/#/core/src/}") && paths=("${paths[@]/%/.rs}")
most=${MUTANTS_MOST:-2000} jobs=${MUTANTS_JOBS:-2}
command -v cargo-mutants >/dev/null || { echo "SKIPPED: \`cargo install cargo-mutants --locked\` brings it"; exit 77; }
[ -z "$(git status --porcelain core)" ] || { echo "core has changes that are not committed: they would be mixed up"; exit 1; }

root=$PWD out=${CARGO_TARGET_DIR:-$PWD/target}/mutants/$kind
this="$(git rev-parse HEAD) ${files[*]}"
if [ "$(cat "$out/this" 2>/dev/null)" != "$this" ]; then
    for tree in woven plain; do git worktree remove --force "$out/$tree" 2>/dev/null || true; done
    git worktree prune
    rm -rf "$out"/{woven,plain,bin,mutants.out,*.tsv,*.json,this}
    mkdir -p "$out/bin" "$out/../target"
    git worktree add --quiet --detach "$out/woven"
    git worktree add --quiet --detach "$out/plain"
fi
cargo build --quiet --release -p tenure-schemata
tool=${CARGO_TARGET_DIR:-$root/target}/release/tenure-schemata
CARGO_TARGET_DIR=$(cd "$out/../target" && pwd)
export CARGO_TARGET_DIR CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_MODEL_DEBUG=0 RUST_BACKTRACE=0

list() {
    if [ "$kind" = statements ]; then
        "$tool" statements "${paths[@]}"
        return
    fi
    local given=() file line column rest text
    for file in "${paths[@]}"; do given+=(-f "$file"); done
    while IFS=: read -r file line column rest; do
        case "$rest" in *"delete !"*) ;; *) continue ;; esac
        text=$(sed -n "${line}p" "$file")
        [ "${text:column-1:9}" != '!mutant!(' ] || given+=(--exclude-re "^$file:$line:$column: delete !")
    done < <(cargo mutants -p tenure --list "${given[@]}")
    cargo mutants -p tenure --list --json "${given[@]}"
}

# Everything that runs, over the woven core, in `bin/`.
build() {
    local built target
    for built in "tenure --lib" "tenure-tests --test on_sim --test zero_cost" "tenure-sim --test scenario_corpus"; do
        # shellcheck disable=SC2086 # words
        cargo test --quiet --no-run --profile model --message-format json -p $built
    done >"$out/built.json"
    cargo build --quiet --profile model -p tenure-tests --bin stress
    cargo build --quiet --profile model -p tenure-verification
    for target in tenure on_sim zero_cost scenario_corpus; do
        cp "$(jq -r "select(.profile.test and .executable and .target.name == \"$target\").executable" "$out/built.json")" \
            "$out/bin/$target"
    done
    cp "$CARGO_TARGET_DIR"/model/{stress,tenure-verification} "$out/bin/"
}

try() { # stage, seconds, at a time, the words of a failure, command...
    local stage=$1 limit=$2 jobs=$3 fails=$4
    shift 4
    "$tool" sweep --woven "$out/woven.tsv" --results "$out/results.tsv" --stage "$stage" --limit "$limit" --jobs "$jobs" \
        --fails "$fails" -- "$@"
}

# What was not woven: by cargo-mutants, which says of most that they do not compile. Its numbers and verdicts, as `try` has them.
rest() {
    local number fate name named=() verdict
    if [ "$kind" = statements ]; then
        awk -F'\t' '$2 != "woven" { print $1 "\talone\tunviable\t-\t" }' "$out/woven.tsv" >>"$out/results.tsv"
        return
    fi
    while IFS=$'\t' read -r number fate name; do
        [ "$fate" = woven ] || named+=(--re "^$(sed 's/[][\\.*^$+?(){}|]/\\&/g' <<<"$name")\$")
    done <"$out/woven.tsv"
    [ ${#named[@]} != 0 ] || return 0
    (cd "$out/plain" && cargo mutants -p tenure --in-place --timeout 120 --build-timeout 600 --no-times --colors never -o "$out" \
        "${named[@]}" --cargo-test-arg=-p --cargo-test-arg=tenure-tests -- --lib --test on_sim) || true
    jq -e '.outcomes[0].summary == "Success"' "$out/mutants.out/outcomes.json" >/dev/null || { echo "nothing was tried alone"; exit 1; }
    for verdict in caught:failed timeout:hung unviable:unviable missed:passed; do
        while read -r name; do
            number=$(awk -F'\t' -v name="$name" '$2 != "woven" && $3 == name { print $1 }' "$out/woven.tsv")
            # cargo-mutants tries fields of structures unasked.
            [ -n "$number" ] || continue
            printf '%s\talone\t%s\t-\t\n' "$number" "${verdict#*:}" >>"$out/results.tsv"
        done <"$out/mutants.out/${verdict%:*}.txt"
    done
}

if [ ! -e "$out/this" ]; then
    list >"$out/list.json"
    "$tool" weave "$out/list.json" "$out/woven" tenure tenure-loom tenure-shuttle >"$out/woven.tsv"
    (cd "$out/woven" && build)
    echo "$this" >"$out/this"
fi
cd "$out/woven"
# Where nothing is wrong, a run takes a second, on all profiles and the corpus some. What never comes is waited for so long:
export TENURE_TEST_SECONDS=10
try suite 20 "$jobs" FAILED "$out/bin/on_sim" cuda-13
try own 60 "$jobs" FAILED "$out/bin/tenure"
try costs 20 "$jobs" panicked "$out/bin/zero_cost"
try profiles 60 "$jobs" FAILED "$out/bin/on_sim"
try corpus 120 "$jobs" FAILED "$out/bin/scenario_corpus"
try storms 200 "$jobs" ": seed " "$out/bin/stress" --seeds 60
grep -q $'\talone\t' "$out/results.tsv" || rest
# This takes all processors by itself.
try models 900 1 FAULT "$out/bin/tenure-verification" seek --executions "$most" --samples 60 --seconds 60 --searches

# A row a file, then a line a survivor.
awk -F'\t' '
    NR == FNR { if ($3 != "passed") { stage[$1] = $2; verdict[$1] = $3 } else seen[$1] = 1; next }
    { split($3, place, ":"); file = substr(place[1], 10); tried[file]++ }
    verdict[$1] == "unviable" { unviable[file]++; next }
    verdict[$1] == "hung" { hung[file]++; next }
    verdict[$1] == "failed" { by[file, stage[$1] == "models" ? "models" : stage[$1] == "storms" ? "storms" : "tests"]++; next }
    { survived[file]++; left = left file "\t" $3 "\n" }
    END {
        for (file in tried) printf "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", file, tried[file], by[file, "tests"],
            by[file, "storms"], by[file, "models"], hung[file], unviable[file], survived[file] | "sort"
        close("sort")
        printf "%s", left
    }' "$out/results.tsv" "$out/woven.tsv"
