//! Results for people and machines: text, JSON, and one page that needs nothing else, with the lanes drawn.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

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
    /// A line, and what happened where something did.
    pub fn to_text(&self) -> String {
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
        if let Some(seed) = &self.seed {
            let _ = write!(text, "\n  again: tenure replay {} --profile {} --seed {seed}", self.file, self.profile);
        }
        text.push('\n');
        self.lanes.lines().for_each(|line| {
            let _ = writeln!(text, "  {line}");
        });
        text
    }

    fn promise(&self) -> Option<&'static str> {
        let name = self.contract.as_deref()?;
        Line::ALL.iter().find(|line| line.name() == name).map(|line| line.promise())
    }
}

impl Outcome {
    /// What failed, and how many did not.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (file, error) in &self.unreadable {
            let _ = writeln!(text, "unreadable  {file}: {error}");
        }
        for result in self.results.iter().filter(|result| result.outcome != Verdict::Ok) {
            text += &result.to_text();
        }
        let count = |verdict| self.results.iter().filter(|result| result.outcome == verdict).count();
        let schedules: u64 = self.results.iter().map(|result| result.schedules).sum();
        let _ = writeln!(
            text,
            "{} runs, {schedules} schedules: {} ok, {} violations, {} expectations not met, {} errors, {} unreadable",
            self.results.len(),
            count(Verdict::Ok),
            count(Verdict::Violation),
            count(Verdict::Expectation),
            count(Verdict::Error),
            self.unreadable.len(),
        );
        text
    }

    /// One object for each scenario and profile: `file, profile, schedules, exhaustive, outcome, contract, message,
    /// seed`. A file that could not be read is one with the outcome `error` and no profile.
    pub fn to_json(&self) -> String {
        let unreadable = self.unreadable.iter().map(|(file, error)| {
            serde_json::json!({
                "file": file, "profile": null, "schedules": 0, "exhaustive": false,
                "outcome": "error", "contract": null, "message": error, "seed": null,
            })
        });
        let results = self.results.iter().map(|result| serde_json::to_value(result).unwrap_or(Value::Null));
        let all: Vec<Value> = unreadable.chain(results).collect();
        serde_json::to_string_pretty(&all).unwrap_or_default()
    }

    /// One page that needs nothing else.
    pub fn to_html(&self) -> String {
        let mut body = String::new();
        let failed = self.results.iter().filter(|result| result.outcome != Verdict::Ok);
        failed.for_each(|result| body += &section(result));
        let mut rows = String::new();
        for result in &self.results {
            let _ = write!(
                rows,
                "<tr class={outcome}><td>{}<td>{}<td>{}<td>{}{}<td>{outcome}<td>{}",
                escaped(&result.title),
                escaped(&result.file),
                result.profile,
                result.schedules,
                if result.exhaustive { " (all)" } else { "" },
                escaped(result.contract.as_deref().unwrap_or("")),
                outcome = result.outcome.word(),
            );
        }
        for (file, error) in &self.unreadable {
            let _ = write!(rows, "<tr class=error><td><td>{}<td><td><td>{}<td>", escaped(file), escaped(error));
        }
        let summary = self.to_text().lines().last().unwrap_or("").to_owned();
        PAGE.replace("{summary}", &escaped(&summary)).replace("{rows}", &rows).replace("{body}", &body)
    }
}

fn section(result: &ScenarioResult) -> String {
    let contract = result.contract.as_deref().unwrap_or("");
    format!(
        "<section><h2>{} <small>on {}</small></h2><p class=what><b>{contract}</b> {}</p><p>{}</p>{}\
         <details><summary>The same as text</summary><pre>{}</pre></details>\
         <details><summary>The scenario</summary><pre>{}</pre></details>\
         <p>Again: <code>tenure replay {} --profile {} --seed {}</code></p></section>",
        escaped(if result.title.is_empty() { &result.file } else { &result.title }),
        result.profile,
        escaped(result.message.as_deref().unwrap_or("")),
        escaped(result.promise().unwrap_or("")),
        drawing(&result.trace).unwrap_or_default(),
        escaped(&result.lanes),
        escaped(&result.source),
        escaped(&result.file),
        result.profile,
        escaped(result.seed.as_deref().unwrap_or("")),
    )
}

/// A trace as a drawing: time goes down, a column for each host thread and stream. Rows are evenly spaced in the order
/// of the events, since the lengths of virtual times say less than their order.
fn drawing(trace: &str) -> Option<String> {
    let trace: Value = serde_json::from_str(trace).ok()?;
    let events = trace.get("traceEvents")?.as_array()?;
    let mut lanes = BTreeMap::new();
    let mut marks = Vec::new();
    for event in events {
        let lane = (number(event, "pid"), number(event, "tid"));
        let name = |event: &Value| event.get("name").and_then(Value::as_str).unwrap_or("").to_owned();
        match event.get("ph").and_then(Value::as_str) {
            Some("M") if name(event) == "thread_name" => {
                let title = event.pointer("/args/name").and_then(Value::as_str).unwrap_or("?");
                lanes.insert(lane, title.to_owned());
            }
            Some("X") => marks.push((lane, name(event), false)),
            Some("i" | "I") => marks.push((lane, name(event), true)),
            _ => {}
        }
    }
    let columns: BTreeMap<_, _> =
        lanes.keys().filter(|lane| lane.0 != 3).enumerate().map(|(at, lane)| (*lane, at)).collect();
    let (width, height) = (columns.len().max(1) * COLUMN + MARGIN, marks.len() * ROW + 60);
    let mut svg =
        format!("<svg role=img aria-label='lanes' viewBox='0 0 {width} {height}' width={width} height={height}>");
    for (lane, at) in &columns {
        let x = at * COLUMN + 10;
        let _ = write!(svg, "<text class=title x={x} y=18>{}</text>", escaped(&lanes[lane]));
        let _ = write!(svg, "<line x1={x} y1=26 x2={x} y2={height} class=lane />");
    }
    for (row, (lane, name, is_finding)) in marks.iter().enumerate() {
        let y = row * ROW + 34;
        let Some(at) = columns.get(lane).filter(|_| !is_finding) else {
            let _ = write!(svg, "<rect class=found x=4 y={y} width={} height={} rx=3 />", width - 8, ROW - 4);
            let _ = write!(svg, "<text class=bad x=10 y={}><title>{n}</title>{n}</text>", y + 13, n = escaped(name));
            continue;
        };
        let x = at * COLUMN + 10;
        let class = if lane.0 == 1 { "host" } else { "device" };
        let _ = write!(svg, "<rect class={class} x={x} y={y} width={} height={} rx=3 />", COLUMN - 20, ROW - 4);
        let short: String = name.chars().take(NAME_MAX).collect();
        let _ =
            write!(svg, "<text x={} y={}><title>{}</title>{}</text>", x + 6, y + 13, escaped(name), escaped(&short));
    }
    svg.push_str("</svg>");
    Some(svg)
}

fn number(event: &Value, key: &str) -> u64 {
    event.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// Pixels.
const COLUMN: usize = 230;
const ROW: usize = 20;
const MARGIN: usize = 20;
/// Letters that fit in a column.
const NAME_MAX: usize = 32;

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(letter),
        }
    }
    out
}

const PAGE: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>tenure replay</title>\
<meta name=viewport content='width=device-width'><style>\
:root{color-scheme:light dark;--line:#8886}body{font:15px/1.45 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem;border-bottom:1px solid var(--line)}\
tr.violation,tr.expectation,tr.error{color:#c22}section{margin:2.5rem 0;overflow-x:auto}pre{overflow-x:auto;font-size:12px}\
small{font-weight:400;opacity:.7}.what{font-size:1.05rem}svg{font:12px ui-monospace,monospace;fill:currentColor}\
.title{font-weight:700}.lane{stroke:var(--line)}.host{fill:#4a7dff44;stroke:#4a7dff}.device{fill:#22a06b44;stroke:#22a06b}\
.found{fill:#d3312b33;stroke:#d3312b}.bad{font-weight:700}</style><h1>Replay</h1><p>{summary}</p>{body}\
<table><tr><th>Scenario<th>File<th>Profile<th>Schedules<th>Outcome<th>Line{rows}</table></html>";

#[cfg(test)]
mod tests {
    use super::super::{Options, replay_text};
    use super::*;

    #[test]
    fn a_page_holds_what_failed_and_escapes_it() {
        let text = "scenario \"a <b> & c\"\nstream A\nbuffer x 4 on A\nwrite x = 1 on A\nfetch x on A == 2\n";
        let outcome = replay_text("f<g>.scenario", text, &Options::default());
        assert_eq!(outcome.exit_code(), 1);
        let page = outcome.to_html();
        assert!(page.contains("a &lt;b&gt; &amp; c") && !page.contains("f<g>"), "text is escaped");
        assert!(page.contains("<svg") && page.contains("class=device"), "the lanes are drawn: {page}");
        let json: Value = serde_json::from_str(&outcome.to_json()).expect("it is JSON");
        assert_eq!(json[0]["outcome"], "expectation");
        assert_eq!(json[0]["profile"], "cuda-13");
        assert!(json[0]["seed"].is_string());
    }

    #[test]
    fn unreadable_text_is_an_error_in_every_form() {
        let outcome = replay_text("x.scenario", "drop", &Options::default());
        assert_eq!(outcome.exit_code(), 2);
        assert!(outcome.to_text().contains("line 1, column 5: expected the name of what is dropped"));
        assert!(outcome.to_json().contains("\"outcome\": \"error\""));
        assert!(outcome.to_html().contains("class=error"));
    }
}
