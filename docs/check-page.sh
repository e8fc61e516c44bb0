#!/usr/bin/env bash
# The page of `tenure replay --html`, in a real browser without a screen: the lanes are drawn, the finding is there, and nothing is complained
# about. Without a browser it says so and exits with 77. `--picture FILE` keeps what the browser shows.
set -euo pipefail
cd "$(dirname "$0")/.."
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "SKIPPED: no chromium here (apt-get install -y chromium), the page was not looked at" >&2; exit 77; }
corpus=${CARGO_TARGET_DIR:-target}/release/tenure-corpus
[ -x "$corpus" ] || cargo build --release -p tenure-corpus
corpus=$(realpath "$corpus")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The scenario of docs/scenarios.md, word for word: the first block of text there.
awk '/^```text$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' docs/scenarios.md >"$scratch/drop.scenario"
(cd "$scratch" && "$corpus" --break o9_free_one_reader drop.scenario --html page.html >/dev/null) && { echo "the defect was not caught"; exit 1; }

browse() { timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,1010 --enable-logging=stderr "$@"; }
browse --dump-dom "file://$scratch/page.html" >"$scratch/dom" 2>"$scratch/log"
check() { grep -qE "$1" "$scratch/dom" || { echo "the page lacks: $2"; exit 1; }; }
check '<svg[^>]*class="lanes"' "the drawing"
check '<text class="title thread"[^>]*>t1 main</text>' "the lane of the host thread"
check '<text class="title stream"[^>]*>A \(s1\)</text>' "the lane of stream A"
check '<text class="title stream"[^>]*>B \(s2\)</text>' "the lane of stream B"
check '<rect class="device culprit"' "the operation that the finding names"
check '<path class="edge"' "the edge from A to B"
check '<text class="bad"[^>]*>O6: free of m0 on s1' "the finding in the drawing"
check '<b>O6</b> free of m0 on s1 \(op6\) frees m0' "the finding above it"
boxes=$(grep -oE '<rect class="(host|device)' "$scratch/dom" | wc -l)
[ "$boxes" -ge 15 ] || { echo "only $boxes boxes are drawn"; exit 1; }
if grep -E ':CONSOLE|Uncaught|Failed to load' "$scratch/log"; then echo "the browser complained"; exit 1; fi
if [ "${1:-}" = --picture ]; then
    browse --screenshot="$2" "file://$scratch/page.html" >/dev/null 2>&1
    [ "$(stat -c %s "$2")" -lt 153600 ] || { echo "$2 is too large"; exit 1; }
fi
echo "the page held: $boxes boxes, lanes, edge and finding, no complaint"
