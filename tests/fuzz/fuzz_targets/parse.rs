//! Any text is read or refused, with a place that lies in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_sim::scenario::parse;

fuzz_target!(|text: &str| {
    if let Err(error) = parse(text) {
        let lines = text.split('\n').count() as u32;
        assert!((1..=lines).contains(&error.line), "{error} is not in a text of {lines} lines");
        assert!(error.column >= 1 && !error.expected.is_empty() && !error.found.is_empty());
    }
});
