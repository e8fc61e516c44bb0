//! The corpus goes as its files say, on every profile.

use std::path::PathBuf;

use tenure_sim::scenario::{Options, replay};

#[test]
fn every_scenario_goes_as_it_says() {
    let mut options = Options::default();
    options.paths = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus"))];
    options.profiles = Vec::new();
    options.schedules = 60;
    let mut heard = 0;
    let outcome = replay(&options, |_, _| heard += 1);
    assert!(outcome.is_ok(), "{}", outcome.to_text());
    assert_eq!(heard, outcome.results.len());
    assert!(heard > 600, "only {heard} runs: the corpus is not there");
}

#[test]
fn every_scenario_names_its_source_and_its_promise() {
    let (loaded, _) =
        tenure_sim::scenario::load(&[PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus"))]);
    for loaded in &loaded {
        let scenario = &loaded.scenario;
        assert!(!scenario.title.is_empty() && !scenario.sources.is_empty(), "{} has a title and a source", loaded.file);
        assert!(!scenario.keeps.is_empty(), "{} names a line of the contract", loaded.file);
        let folder = format!("/{}/", scenario.kind);
        assert!(loaded.file.contains(&folder), "{} lies in the folder of its kind", loaded.file);
    }
}
