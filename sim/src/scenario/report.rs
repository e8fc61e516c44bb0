//! Results for people and machines: text and JSON. The page is made in `page`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::json;

use super::replay::{Outcome, ScenarioResult};
use super::run::Verdict;
use crate::checker::Line;

impl Verdict {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Violation => "violation",
            Self::Expectation => "expectation",
            Self::Error => "error",
        }
    }
}

impl ScenarioResult {
    /// A line, what happened where something did, and the lanes of it.
    pub fn to_text(&self) -> String {
        let mut text = self.headline();
        if self.message.is_some() {
            self.lanes.lines().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
        }
        text
    }

    /// The same without the lanes.
    pub fn headline(&self) -> String {
        let all = if self.exhaustive { "all " } else { "" };
        let mut text = format!(
            "{:<11} {} on {} ({all}{} schedules)",
            self.outcome.word(),
            self.file,
            self.profile,
            self.schedules
        );
        let Some(message) = &self.message else { return text + "\n" };
        let _ =
            write!(text, "\n  {}{message}", self.contract.as_ref().map(|line| format!("{line}: ")).unwrap_or_default());
        if let Some(promise) = self.promise() {
            let _ = write!(text, "\n  promised: {promise}");
        }
        if let Some(again) = &self.again {
            let _ = write!(text, "\n  again: {again}");
        }
        text + "\n"
    }

    /// One line of JSON; see [`Outcome::to_json`].
    pub fn to_json(&self) -> String {
        let line = JsonLine {
            file: &self.file,
            profile: Some(&self.profile),
            schedules: self.schedules,
            exhaustive: self.exhaustive,
            outcome: self.outcome,
            contract: self.contract.as_deref(),
            message: self.message.as_deref(),
            seed: self.seed.as_deref(),
        };
        line.to_line()
    }

    pub(super) fn promise(&self) -> Option<&'static str> {
        let name = self.contract.as_deref()?;
        Line::ALL.iter().find(|line| line.name() == name).map(|line| line.promise())
    }
}

/// What machines are told, in this order.
#[derive(Default)]
struct JsonLine<'r> {
    file: &'r str,
    profile: Option<&'r str>,
    schedules: u64,
    exhaustive: bool,
    outcome: Verdict,
    contract: Option<&'r str>,
    message: Option<&'r str>,
    seed: Option<&'r str>,
}

impl JsonLine<'_> {
    fn to_line(&self) -> String {
        let Self { file, profile, schedules, exhaustive, outcome, contract, message, seed } = self;
        let fields = [
            ("file", json!(file)),
            ("profile", json!(profile)),
            ("schedules", json!(schedules)),
            ("exhaustive", json!(exhaustive)),
            ("outcome", json!(outcome.word())),
            ("contract", json!(contract)),
            ("message", json!(message)),
            ("seed", json!(seed)),
        ];
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}\n", fields.join(","))
    }
}

impl Outcome {
    /// What failed, and how many did not.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (file, error) in &self.unreadable {
            let _ = writeln!(text, "unreadable  {file}: {error}");
        }
        for (file, profiles) in &self.skipped {
            let _ = writeln!(text, "skipped     {file}: it is for {profiles}");
        }
        for result in self.results.iter().filter(|result| result.outcome != Verdict::Ok) {
            text += &result.to_text();
        }
        text + &self.remarks() + &self.summary() + "\n"
    }

    /// Warnings, a line each and each once, and how much order between streams nothing needed.
    pub fn remarks(&self) -> String {
        let mut text = String::new();
        let mut said = BTreeSet::new();
        for result in &self.results {
            for warning in result.warnings.iter().filter(|warning| said.insert((&result.file, *warning))) {
                let _ = writeln!(text, "warning     {} on {}: {warning}", result.file, result.profile);
            }
        }
        let edges: u64 = self.results.iter().map(|result| result.edges).sum();
        let needless: u64 = self.results.iter().map(|result| result.edges_needless).sum();
        if edges > 0 {
            let _ = writeln!(text, "{edges} edges between streams, {needless} of which no conflict needed");
        }
        text
    }

    /// How many of each outcome there are, on one line.
    pub fn summary(&self) -> String {
        let count = |verdict| self.results.iter().filter(|result| result.outcome == verdict).count();
        let schedules: u64 = self.results.iter().map(|result| result.schedules).sum();
        format!(
            "{} runs, {schedules} schedules: {} ok, {} violations, {} expectations not met, {} errors, {} unreadable",
            self.results.len(),
            count(Verdict::Ok),
            count(Verdict::Violation),
            count(Verdict::Expectation),
            count(Verdict::Error),
            self.unreadable.len(),
        )
    }

    /// A line for each scenario and profile, each an object: `file, profile, schedules, exhaustive, outcome, contract,
    /// message, seed`. A file that could not be read is one with the outcome `error` and no profile.
    pub fn to_json(&self) -> String {
        let unreadable = self.unreadable.iter().map(|(file, error)| {
            let line = JsonLine { file, outcome: Verdict::Error, message: Some(error), ..JsonLine::default() };
            line.to_line()
        });
        unreadable.chain(self.results.iter().map(ScenarioResult::to_json)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, replay_text};
    use serde_json::Value;

    #[test]
    fn a_line_of_json_has_these_keys() {
        let text = "stream A\nbuffer x 4 on A\nwrite x = 1 on A\nfetch x on A == 2\n";
        let outcome = replay_text("f.scenario", text, &Options::default());
        assert_eq!(outcome.exit_code(), 1);
        let json: Value = serde_json::from_str(&outcome.to_json()).expect("it is JSON");
        let keys: Vec<_> = json.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["contract", "exhaustive", "file", "message", "outcome", "profile", "schedules", "seed"]);
        assert_eq!((&json["outcome"], &json["profile"]), (&"expectation".into(), &"cuda-13".into()));
        assert!(json["seed"].is_string());
    }

    #[test]
    fn needless_order_and_reads_of_nothing_are_remarked_on() {
        let text = "stream A, B\nbuffer x 4 on A\nread x on A\nrecord e on A\norder B after e\nsync B\n\
                    expect edges.needless == 1\nexpect warnings == 1\n";
        let outcome = replay_text("f", text, &Options::default());
        assert!(outcome.is_ok(), "{}", outcome.to_text());
        let remarks = outcome.remarks();
        assert!(remarks.contains("not all of which was ever written"), "{remarks}");
        let result = &outcome.results[0];
        assert_eq!((result.edges, result.edges_needless), (result.schedules, result.schedules));
    }

    #[test]
    fn unreadable_text_is_an_error_in_every_form() {
        let outcome = replay_text("x.scenario", "drop", &Options::default());
        assert_eq!(outcome.exit_code(), 2);
        assert!(outcome.to_text().contains("line 1, column 5: expected the name of what is dropped"));
        assert!(outcome.to_json().contains("\"outcome\":\"error\""));
        assert!(outcome.to_html().contains("class=error"));
    }
}
