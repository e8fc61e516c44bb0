//! Results as one page that needs nothing else: no script, no font, no address.

use std::fmt::Write as _;

use super::replay::{Outcome, ScenarioResult};
use super::run::Verdict;

impl Outcome {
    /// One page that needs nothing else, with the lanes of what failed drawn; where nothing did, of what went well and
    /// kept its trace (see [`Options::traced`](super::Options::traced)).
    pub fn to_html(&self) -> String {
        let has_failed = self.results.iter().any(|result| result.outcome != Verdict::Ok);
        let is_shown = |result: &&ScenarioResult| !has_failed || result.outcome != Verdict::Ok;
        let shown = self.results.iter().filter(is_shown).filter(|result| !result.drawing.is_empty() || has_failed);
        let body: String = shown.clone().take(SECTIONS_MAX).map(section).collect();
        let left = shown.count().saturating_sub(SECTIONS_MAX);
        let left = if left > 0 { format!("<p>{left} more are only in the table.</p>") } else { String::new() };
        let rows = self.unreadable.iter().map(|(file, why)| unreadable(file, why));
        let rows: String = rows.chain(self.results.iter().map(row)).collect();
        filled(PAGE, &[("{summary}", &escaped(&self.summary())), ("{body}", &(body + &left)), ("{rows}", &rows)])
    }
}

/// `page` with each mark, in their order, once replaced: what is put in is not looked at again.
fn filled(page: &str, marks: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(page.len() + marks.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut rest = page;
    for (mark, text) in marks {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.push_str(before);
        out.push_str(text);
        rest = after;
    }
    out + rest
}

fn row(result: &ScenarioResult) -> String {
    format!(
        "<tr class={outcome}><td>{}<td>{}<td>{}<td class=count>{}{}<td>{outcome}<td>{}",
        escaped(&result.title),
        escaped(&result.file),
        result.profile,
        result.schedules,
        if result.exhaustive { " (all)" } else { "" },
        escaped(result.contract.as_deref().unwrap_or("")),
        outcome = result.outcome.word(),
    )
}

fn unreadable(file: &str, why: &str) -> String {
    format!("<tr class=error><td><td>{}<td><td><td colspan=2>{}", escaped(file), escaped(why))
}

fn section(result: &ScenarioResult) -> String {
    let title = if result.title.is_empty() { &result.file } else { &result.title };
    let outcome = result.outcome.word();
    let mut html = format!(
        "<section><h2>{} <small>on {}</small> <span class='badge {outcome}'>{outcome}</span></h2>",
        escaped(title),
        result.profile
    );
    if let Some(message) = &result.message {
        let contract = result.contract.as_ref().map(|line| format!("<b>{line}</b> ")).unwrap_or_default();
        let _ = write!(html, "<p class=what>{contract}{}</p>", escaped(message));
    }
    if let Some(promise) = result.promise() {
        let _ = write!(html, "<p class=promise>Promised: {}</p>", escaped(promise));
    }
    let _ = write!(html, "<div class=drawing>{}</div>", result.drawing);
    if let Some(again) = &result.again {
        let _ = write!(html, "<p>Again: <code>{}</code></p>", escaped(again));
    }
    let _ = write!(
        html,
        "<details><summary>The scenario</summary><pre>{}</pre></details>\
         <details><summary>The lanes as text</summary><pre>{}</pre></details></section>",
        escaped(&result.source),
        escaped(&result.lanes),
    );
    html
}

/// Text as HTML.
pub(super) fn escaped(text: &str) -> String {
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

/// More drawings would make the page slow to open.
const SECTIONS_MAX: usize = 24;

const PAGE: &str = include_str!("page.html");

#[cfg(test)]
mod tests {
    use super::super::{Options, replay_text};

    #[test]
    fn a_page_holds_what_failed_and_escapes_it() {
        let text = "scenario \"a <b> & c\"\nstream A\nbuffer x 4 on A\nwrite x = 1 on A\nfetch x on A == 2\n";
        let outcome = replay_text("f<g>.scenario", text, &Options::default());
        let page = outcome.to_html();
        assert!(page.contains("a &lt;b&gt; &amp; c") && !page.contains("f<g>"), "text is escaped");
        assert!(page.contains("<svg") && page.contains("class='device'"), "the lanes are drawn: {page}");
        assert!(page.contains("`x` is 1 at element 0, not 2"));
        assert_eq!(page.matches("<section>").count(), page.matches("</section>").count());
    }

    #[test]
    fn what_went_well_is_drawn_where_it_was_asked_for() {
        let text = "stream A\nbuffer x 4 on A\nwrite x = 1 on A\n";
        let mut options = Options::default();
        assert!(!replay_text("f", text, &options).to_html().contains("<svg"));
        options.traced = true;
        assert!(replay_text("f", text, &options).to_html().contains("kernel write1"));
    }

    #[test]
    fn the_page_asks_nobody_for_anything() {
        for foreign in ["http://", "https://", "<script", "@import", "url(//"] {
            assert!(!super::PAGE.contains(foreign), "{foreign}");
        }
    }
}
