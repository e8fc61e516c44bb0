#!/usr/bin/env bash
# cargo-mutants over the files of the core that carry the protocol, with the tests and then the models as what must notice:
#
#   1. the suite over one profile of the simulator        every mutant
#   2. the core's own tests and the suite over all        what survived 1
#   3. storms of the stress program                       what survived 2
#   4. the models and the searches                        what survived 3
#
# `mutants.sh [FILE...]`, such as `point stream/state`; all that are listed below by default. Hours on two processors: it
# is no part of the gate. What it comes to is printed; `mutants.tsv` keeps what came of the last runs, and the page quotes
# it. Needs `cargo install cargo-mutants --locked`. What is left out of the list says `.cargo/mutants.toml`, and here:
# deleting the `!` of `!mutant!(…)` is that planted defect itself, which the gate tries.
set -uo pipefail
cd "$(dirname "$0")/.."
files=(point registration registration/state reclaim reclaim/state reclaim/worker ownership ownership/state
    ownership/follow stream stream/state context capture capture/gate event sync/biased)
[ $# = 0 ] || files=("$@")
command -v cargo-mutants >/dev/null || { echo "SKIPPED: \`cargo install cargo-mutants --locked\` brings it"; exit 77; }
[ -z "$(git status --porcelain core)" ] || { echo "core has changes that are not committed: they would be mixed up"; exit 1; }

out=${CARGO_TARGET_DIR:-$PWD/target}/mutants
rm -rf "$out"
mkdir -p "$out"
git worktree add --quiet --detach "$out/tree" && trap 'git worktree remove --force "$out/tree"' EXIT
cd "$out/tree"
export CARGO_TARGET_DIR="$out/target" CARGO_INCREMENTAL=1 CARGO_PROFILE_DEV_DEBUG=0 RUST_BACKTRACE=0

given=()
for file in "${files[@]}"; do given+=(-f "core/src/$file.rs"); done
while IFS=: read -r file line column rest; do
    case "$rest" in *"delete !"*) ;; *) continue ;; esac
    text=$(sed -n "${line}p" "$file")
    [ "${text:column-1:9}" = '!mutant!(' ] && given+=(--exclude-re "^$file:$line:$column: delete !")
done < <(cargo mutants -p tenure --list "${given[@]}")

# A mutant that hangs, hangs for ever; where nothing is wrong a run of the suite takes ten seconds.
try=(cargo mutants -p tenure --in-place --timeout 120 --build-timeout 600 --no-times --colors never -o "$out")
"${try[@]}" "${given[@]}" --test-package tenure-tests -- --test on_sim -- cuda-13
"${try[@]}" "${given[@]}" --iterate --baseline skip --test-package tenure --test-package tenure-tests -- --lib --test on_sim

# What the tests do not see, one at a time.
see() { # stage, command...
    local stage=$1
    shift
    timeout 900 "$@" >"$out/said" 2>&1 && return 1
    printf '%s\t%s\t%s\n' "$stage" "$mutant" "$(grep -m1 -E 'FAULT|failed|error' "$out/said" | cut -c1-160)"
}
while read -r mutant; do
    diff=$(grep -l -F "+++ ${mutant#*: }" "$out"/mutants.out/diff/* | grep -F "$(cut -d: -f1,2 <<<"$mutant" | sed 's|/|__|g; s|:|_line_|')_" | head -n1)
    git checkout --quiet core
    patch --quiet -p0 <"$diff" || { printf 'error\t%s\n' "$mutant"; continue; }
    see storms cargo run --quiet --release -p tenure-tests --bin stress -- --seeds 60 ||
        see models cargo run --quiet --profile model -p tenure-verification -- models ||
        printf 'SURVIVED\t%s\n' "$mutant"
done <"$out/mutants.out/missed.txt"
for verdict in caught timeout unviable missed; do
    printf '%s by the tests:\n' "$verdict"
    cut -d: -f1 "$out/mutants.out/$verdict.txt" | sort | uniq -c
done
