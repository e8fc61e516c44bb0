//! Scenario files with lines taken out, doubled, swapped and cut: reading and playing them ends, with a verdict,
//! whatever they say, and a failure shows again under the seed that is named for it. The same for what fuzzing found.

use std::path::PathBuf;
use std::sync::Arc;

use tenure_sim::scenario::{Loaded, Options, load, parse, run_one};

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

fn corpus() -> Vec<Loaded> {
    let (loaded, unreadable) = load(&[PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus"))]);
    assert_eq!(unreadable, [], "the corpus can be read");
    assert!(loaded.len() > 100, "the corpus is there");
    loaded
}

/// One to three lines taken out, doubled or swapped.
fn with_lines_moved(text: &str, numbers: &mut Numbers) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    for _ in 0..=numbers.below(3) {
        let (at, other) = (numbers.below(lines.len()), numbers.below(lines.len()));
        match numbers.below(3) {
            0 if lines.len() > 1 => drop(lines.remove(at)),
            1 => lines.insert(other, lines[at]),
            _ => lines.swap(at, other),
        }
    }
    lines.join("\n")
}

#[test]
fn cut_text_is_read_or_refused_with_a_place() {
    let mut numbers = Numbers(1);
    let mut refused = 0;
    for loaded in corpus() {
        for _ in 0..40 {
            let mut bytes = loaded.source.clone().into_bytes();
            let at = numbers.below(bytes.len());
            match numbers.below(3) {
                0 => bytes.truncate(at),
                1 => drop(bytes.remove(at)),
                _ => bytes[at] = b" {}[]=#\n\"xA0"[numbers.below(12)],
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Err(error) = parse(&text) {
                refused += 1;
                let lines = text.split('\n').count() as u32;
                assert!((1..=lines).contains(&error.line), "{error} is not in a text of {lines} lines");
                assert!(error.column >= 1 && !error.expected.is_empty() && !error.found.is_empty());
            }
        }
    }
    assert!(refused > 500, "only {refused} texts were refused: the mangling does nothing");
}

/// Plays it, and again where it failed; whether it did.
fn ends(loaded: &Loaded, options: &Options) -> bool {
    let result = run_one(loaded, "cuda-13", options);
    assert!(result.schedules >= 1, "{}: nothing was played", loaded.file);
    let Some(seed) = &result.seed else { return false };
    let mut alone = options.clone();
    alone.only = Some(seed.clone());
    let again = run_one(loaded, "cuda-13", &alone);
    assert_eq!(again.message, result.message, "{seed} shows something else in:\n{}", loaded.source);
    true
}

#[test]
fn what_fuzzing_found_ends_with_a_verdict() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fuzz/corpus/replay");
    let mut options = Options::default();
    options.schedules = 40;
    let mut played = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus of the fuzzer is there") {
        let path = entry.expect("it can be listed").path();
        let source = std::fs::read_to_string(&path).expect("it is text");
        let Ok(scenario) = parse(&source) else { continue };
        let loaded = Loaded { file: path.display().to_string(), source, scenario: Arc::new(scenario) };
        ends(&loaded, &options);
        played += 1;
    }
    assert!(played > 4, "only {played} files could be read");
}

#[test]
fn mangled_scenarios_end_with_a_verdict() {
    let mut options = Options::default();
    options.schedules = 4;
    let (mut numbers, mut played, mut failed) = (Numbers(2), 0, 0);
    for mut loaded in corpus() {
        for _ in 0..4 {
            let text = with_lines_moved(&loaded.source, &mut numbers);
            let Ok(scenario) = parse(&text) else { continue };
            loaded.scenario = Arc::new(scenario);
            loaded.source = text;
            failed += u32::from(ends(&loaded, &options));
            played += 1;
        }
    }
    assert!(failed > 20, "only {failed} mangled scenarios failed: the seeds were not looked at");
    assert!(played > 200, "only {played} mangled scenarios could be read");
}
