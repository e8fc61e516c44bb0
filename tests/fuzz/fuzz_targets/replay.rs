//! Whatever a file says, a few schedules of it end with a verdict, the same one under the seed that it names, and in every form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_sim::scenario::{Options, Verdict, replay_text};

fuzz_target!(|text: &str| {
    let mut options = Options::default();
    options.schedules = 4;
    options.traced = true;
    let outcome = replay_text("fuzzed.scenario", text, &options);
    let Some(result) = outcome.results.first() else { return };
    assert!(result.schedules >= 1);
    assert_eq!(outcome.to_json().lines().count(), 1);
    assert!(outcome.to_html().ends_with("</html>\n") && !outcome.to_text().is_empty());
    let Some(seed) = &result.seed else {
        assert_eq!(result.outcome, Verdict::Ok);
        return;
    };
    // What the runs do must not hang on anything but the text and the schedule.
    options.only = Some(seed.clone());
    let again = replay_text("fuzzed.scenario", text, &options);
    assert_eq!(again.results[0].message, result.message, "{seed} shows something else");
});
