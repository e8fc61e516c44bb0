//! Lanes as text: a column for each host thread and stream, a row for each thing that happened.
//!
//! ```text
//!  row | main            | s1               | s2
//!   12 | launch s1       |                  |
//!   14 |                 | > kernel scale   |
//!   15 |                 | . kernel scale   |
//! ```
//! `>` begins, `.` is done, `~` waits, `!` is a finding, over all lanes.

use super::{Names, Row, Trace, What, words};
use crate::code::Code;
use crate::event::{BlockedOn, HostThread, StreamId};
use std::fmt::Write as _;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    /// A host thread.
    Host(HostThread),
    /// A stream.
    Stream(StreamId),
    /// Over all lanes.
    Checker,
}

/// The last `rows_max` rows that say something, as text; what comes after the first violation follows from it.
pub(crate) fn text(trace: &Trace, names: &dyn Names, rows_max: usize) -> String {
    let story = trace.rows().take(trace.first_violation().map_or(usize::MAX, |at| at + 1));
    let rows: Vec<&Row> = story.filter(|row| !matches!(row.what, What::Waited { .. })).collect();
    let skipped = rows.len().saturating_sub(rows_max);
    let rows = &rows[skipped..];
    let mut lanes: Vec<Lane> = rows.iter().map(|row| row.lane).filter(|lane| *lane != Lane::Checker).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let titles: Vec<String> = lanes.iter().map(|lane| title(*lane, names)).collect();
    let cells: Vec<String> = rows.iter().map(|row| cell(&row.what, names)).collect();
    let widths: Vec<usize> = (0..lanes.len()).map(|column| width(column, &lanes, &titles, rows, &cells)).collect();
    let mut out = String::new();
    let hidden = trace.dropped() + skipped as u64;
    if hidden > 0 {
        let _ = writeln!(out, "({hidden} earlier rows not shown)");
    }
    line(&mut out, "row", &widths, |column| &titles[column]);
    for (row, cell) in rows.iter().zip(&cells) {
        if row.lane == Lane::Checker {
            let _ = writeln!(out, "{:>6} ! {cell}", row.step);
        } else {
            let number = row.step.to_string();
            line(&mut out, &number, &widths, |column| if lanes[column] == row.lane { cell } else { "" });
        }
    }
    out
}

fn line<'a>(out: &mut String, number: &str, widths: &[usize], text: impl Fn(usize) -> &'a str) {
    let _ = write!(out, "{number:>6}");
    for (column, width) in widths.iter().enumerate() {
        let _ = write!(out, " | {:<width$}", text(column));
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
}

fn width(column: usize, lanes: &[Lane], titles: &[String], rows: &[&Row], cells: &[String]) -> usize {
    let own = rows.iter().zip(cells).filter(|(row, _)| row.lane == lanes[column]);
    own.map(|(_, cell)| cell.chars().count()).max().unwrap_or(0).max(titles[column].chars().count())
}

/// A lane's name.
pub(crate) fn title(lane: Lane, names: &dyn Names) -> String {
    match lane {
        Lane::Host(thread) => names.thread(thread),
        Lane::Stream(stream) => stream.to_string(),
        Lane::Checker => "checkers".into(),
    }
}

/// What a row says, in its lane.
pub(crate) fn cell(what: &What, names: &dyn Names) -> String {
    match what {
        What::Called { call, stream, code } => {
            let on = stream.map(|stream| format!(" {stream}")).unwrap_or_default();
            let result = if *code == Code::SUCCESS { String::new() } else { format!(" = {}", code.name()) };
            format!("{call}{on}{result}")
        }
        What::Blocked { call, on } => format!("~ {call} {}", waits_for(on)),
        What::Submitted { stream, work, .. } => format!("+ {} on {stream}", words(*work, names)),
        What::Started { work, .. } => format!("> {}", words(*work, names)),
        What::Completed { work, .. } => format!(". {}", words(*work, names)),
        What::Waited { op, after } => format!("{op} after {after:?}"),
        What::Captured { capture, work } => format!("{capture} records {}", words(*work, names)),
        What::CaptureBegan(capture) => format!("{capture} begins"),
        What::CaptureEnded(capture, code) => format!("{capture} ends: {}", code.name()),
        What::CaptureBroken(capture, call) => format!("{call} breaks {capture}"),
        What::HostAccess { write, bytes } => {
            format!("{} {bytes} bytes of host memory", if *write { "writes" } else { "reads" })
        }
        What::Lost(code) => format!("device lost: {code}"),
        What::Found(text, _) => text.to_string(),
    }
}

fn waits_for(on: &BlockedOn) -> String {
    match on {
        BlockedOn::Operation { stream, number } => format!("for {stream}:{number}"),
        BlockedOn::Device => "for the device".into(),
        BlockedOn::QueueRoom { stream } => format!("for room on {stream}"),
    }
}
