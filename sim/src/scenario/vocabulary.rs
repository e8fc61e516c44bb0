//! The words of the language, for whoever mistypes one: what can stand where, and which word comes nearest.

use super::grammar::CALLS;
use crate::checker::Line;
use crate::code::Code;
use crate::profile::Profile;

pub(crate) const STEP: &str = "a step (stream, buffer, host, wrap, read, write, launch, copy, fill, fetch, look, poke, \
                               drop, free, sync, capture, replay, signal, wait, hold, expect, ...)";
pub(crate) const CALL: &str = "a call of the driver, as in `stream_query` (docs/scenarios.md lists them)";
pub(crate) const PROFILE: &str = "a profile: cuda-13, hip-5.7, hip-6.4, hip-7.0, hip-7.2 or lenient";
pub(crate) const CODE: &str = "an error of the driver: a number or a name, as in `712` or `MemoryAllocation`";
pub(crate) const LINE: &str = "a line of the contract, as in `O1`";
pub(crate) const ERROR: &str = "the name of an error, as in `overlap`, or `any` (docs/scenarios.md lists them)";
pub(crate) const DEFECT: &str = "the name of a planted defect, as in `o1_no_edge` (`tenure-corpus --list` lists them)";
pub(crate) const RAW_CALL: &str = "a raw call: stream_query, stream_synchronize, device_synchronize or malloc";
pub(crate) const FIGURE: &str = "`calls` and a call of the driver, or a figure as in `streams.made`";

/// What a line can begin with.
const FIRST_WORDS: &[&str] = &[
    "abort",
    "ask",
    "await",
    "buffer",
    "cancel",
    "capture",
    "caught",
    "clone",
    "completion",
    "copy",
    "depth",
    "destroy",
    "drop",
    "expect",
    "fail",
    "fetch",
    "fill",
    "finally",
    "foreign",
    "forget",
    "fork",
    "free",
    "function",
    "give",
    "hang",
    "hold",
    "host",
    "if",
    "instantiate",
    "join",
    "keeps",
    "kind",
    "launch",
    "leaks",
    "library",
    "lock",
    "look",
    "lose",
    "memory",
    "order",
    "panic",
    "pinned",
    "poke",
    "poll",
    "pool",
    "profile",
    "quiet",
    "read",
    "record",
    "release",
    "remap",
    "repeat",
    "replay",
    "reset",
    "scenario",
    "scope",
    "shutdown",
    "signal",
    "skip",
    "source",
    "stream",
    "sync",
    "thread",
    "trim",
    "uncaught",
    "unload",
    "unwrap",
    "update",
    "upload",
    "view",
    "wait",
    "wrap",
    "write",
];

/// What `foreign call` can make.
pub(crate) const RAW_CALLS: &[&str] = &["stream_query", "stream_synchronize", "device_synchronize", "malloc"];

/// What `expect` can compare besides calls.
pub(crate) const FIGURES: &[&str] = &[
    "streams.made",
    "streams.alive",
    "streams.leased",
    "streams.quarantined",
    "edges.inserted",
    "edges.needless",
    "warnings",
    "pins.made",
    "pins.shared",
    "pins.released",
    "pins.live",
    "pins.pending",
    "pins.quarantined",
    "retired",
    "released",
    "leaked",
    "pending",
    "captures",
    "errors",
];

/// The errors that a step can be expected to fail with; besides them `any`, and `lost-` with a code. Whoever meets an
/// error that is not here adds it: a run that does says so.
pub(crate) const ERRORS: &[&str] = &[
    // The core's.
    "closed",
    "driver",
    "lost",
    "stream-broken",
    "stream-limit",
    // What call order or arguments cause.
    "misuse",
    "adopted-stream-captures",
    "foreign-runtime",
    "host-view",
    "inside-capture",
    "inside-hold",
    "length-mismatch",
    "panicked-in-release",
    "misaligned",
    "scoped-in-capture",
    "size-overflow",
    // Of host memory.
    "pin",
    "larger",
    "overlap",
    "owner-type",
    "quarantined",
    "scoped",
    "shared",
    "read-only",
    "still-in-use",
    // What a driver's refusal means.
    "already-registered",
    "capture-invalidated",
    "capture-isolation",
    "capture-merge",
    "capture-unjoined",
    "capture-unmatched",
    "capture-unsupported",
    "capture-wrong-thread",
    "captured-event",
    "device-lost",
    "driver-gone",
    "graph-update-refused",
    "illegal-state",
    "invalid-handle",
    "invalid-value",
    "no-device",
    "not-found",
    "not-permitted",
    "not-registered",
    "not-supported",
    "out-of-memory",
    "unknown",
    // Of other code's calls, and of blocks.
    "raw",
    "aborted",
    "panicked",
];

/// The planted defects that a core made for checking has, a name a line.
const DEFECTS: &str = include_str!("defects.txt");

/// Whether a core made for checking has this defect.
pub(crate) fn is_defect(word: &str) -> bool {
    DEFECTS.lines().any(|defect| defect == word)
}

/// The word that could have been meant by `found`, where `expected` was.
pub(crate) fn nearest(expected: &str, found: &str) -> Option<&'static str> {
    match expected {
        STEP => closest(found, FIRST_WORDS.iter().copied()),
        CALL => closest(found, CALLS.iter().map(|call| call.name())),
        PROFILE => closest(found, Profile::NAMES.iter().copied()),
        CODE => closest(found, Code::NAMED.iter().map(|code| code.name())),
        LINE => closest(found, Line::ALL.iter().map(|line| line.name())),
        ERROR => closest(found, ERRORS.iter().copied().chain(["any"])),
        DEFECT => closest(found, DEFECTS.lines()),
        RAW_CALL => closest(found, RAW_CALLS.iter().copied()),
        FIGURE => closest(found, FIGURES.iter().copied().chain(["calls"])),
        _ => closest(found, KEYWORDS.iter().copied().filter(|word| expected.contains(word))),
    }
}

/// What stands inside of steps.
const KEYWORDS: &[&str] = &[
    "on",
    "to",
    "with",
    "as",
    "from",
    "into",
    "after",
    "reads",
    "writes",
    "fail",
    "fails",
    "priority",
    "adopted",
    "busy",
    "idle",
    "now",
    "deferred",
    "global",
    "thread-local",
    "relaxed",
    "announced",
    "low",
    "normal",
    "high",
    "because",
    "function",
    "operation",
    "device",
    "driver",
    "begin",
    "end",
    "pin",
    "unpin",
    "call",
    "of",
    "by",
    "raw",
];

/// The word that is the fewest letters away, if that is few enough for a slip.
pub(crate) fn closest<'w>(found: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    // Of two letters, one that differs makes another word.
    let most = (found.chars().count() / 3).min(3);
    // A word that was not written to its end is near as well, behind those that differ by a letter.
    let begins = |word: &str| found.len() > 2 && word.starts_with(found);
    let away = |word: &str| if begins(word) { distance(found, word).min(most) } else { distance(found, word) };
    let near = words.map(|word| (away(word), word)).filter(|(away, _)| (1..=most).contains(away));
    near.min_by_key(|(away, _)| *away).map(|(_, word)| word)
}

/// How many letters must be changed, added, left out or swapped with the next to make one word the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let same = usize::from(one[i - 1] != other[j - 1]);
            let mut least = (rows[i - 1][j - 1] + same).min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word() {
        assert_eq!(nearest(STEP, "strem"), Some("stream"));
        assert_eq!(nearest(ERROR, "out-of-memroy"), Some("out-of-memory"));
        assert_eq!(nearest(CALL, "host_registr"), Some("host_register"));
        assert_eq!(nearest(DEFECT, "o1_no_egde"), Some("o1_no_edge"));
        assert_eq!(nearest(PROFILE, "cuda-12"), Some("cuda-13"));
        assert_eq!(nearest(FIGURE, "stream.made"), Some("streams.made"));
        assert_eq!(nearest("`on` and a stream", "at"), None, "two letters of two are another word");
        assert_eq!(nearest(STEP, "teleport"), None);
    }
}
