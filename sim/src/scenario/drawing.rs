//! A trace as a drawing: time goes down, a column for each host thread and each stream.
//!
//! | drawn | is |
//! |---|---|
//! | a box in a host column | a call of the driver; a submission says what and where |
//! | a box in a stream's column | an operation, from its begin to its end |
//! | a thin dashed line | from a submission to where the device begins it |
//! | an arrow | an edge: work waits for what an event recorded |
//! | a red band | what a checker found; the operations that it names have red borders |
//!
//! Rows are evenly spaced in the order of the events: the lengths of virtual times say less than their order. What
//! comes after the first violation is left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tenure::driver::Call;

use super::page::escaped;
use crate::code::Code;
use crate::event::{CallName, HostThread, OpId, StreamId};
use crate::trace::{Lane, Names, Row, Trace, What, title, words};

/// Draws the last [`ROWS_MAX`] rows of `trace`; streams are also called by their names in the scenario.
pub(crate) fn svg(trace: &Trace, names: &dyn Names, streams: &BTreeMap<String, StreamId>) -> String {
    let rows = shown(trace);
    let Some(first) = rows.first() else { return String::new() };
    let hidden = trace.rows().take_while(|row| row.step < first.step).count();
    let mut drawing = Drawing::new(&rows, names, streams);
    if hidden > 0 {
        drawing.note(&format!("{hidden} earlier rows are not drawn"));
    }
    let mut before: Option<&Row> = None;
    for row in rows {
        if !before.is_some_and(|before| is_said(before, row)) {
            drawing.row(row);
        }
        // That an operation waits is said beside what was submitted.
        if !matches!(row.what, What::Waited { .. }) {
            before = Some(row);
        }
    }
    drawing.finish()
}

/// Up to the first violation, without what says nothing: the mode of a thread that goes and comes.
fn shown(trace: &Trace) -> Vec<&Row> {
    let rows = trace.rows().take(trace.first_violation().map_or(usize::MAX, |at| at + 1));
    let is_noise = |row: &&Row| match &row.what {
        What::Called { call, code, .. } => *call == CallName::Core(Call::ExchangeCaptureMode) && *code == Code::SUCCESS,
        _ => false,
    };
    let mut rows: Vec<_> = rows.filter(|row| !is_noise(row)).collect();
    rows.drain(..rows.len().saturating_sub(ROWS_MAX));
    rows
}

/// A call that worked and only submitted what the row before it says.
fn is_said(before: &Row, row: &Row) -> bool {
    let worked = matches!(row.what, What::Called { code, .. } if code == Code::SUCCESS);
    worked && before.lane == row.lane && matches!(before.what, What::Submitted { .. })
}

struct Drawing<'d> {
    names: &'d dyn Names,
    columns: BTreeMap<Lane, Column>,
    streams: BTreeMap<StreamId, String>,
    width: usize,
    y: usize,
    /// Lines and arrows, then boxes, then text and bands: what lies over what.
    below: String,
    boxes: String,
    above: String,
    submitted: BTreeMap<OpId, (usize, usize)>,
    /// What the device works on.
    begun: BTreeMap<OpId, Begun>,
    done: BTreeMap<OpId, (usize, usize)>,
    waits: BTreeMap<OpId, OpId>,
    culprits: Vec<OpId>,
}

/// An operation whose end is not drawn yet.
struct Begun {
    lane: Lane,
    x: usize,
    width: usize,
    y: usize,
    text: String,
}

struct Column {
    x: usize,
    width: usize,
    title: String,
}

impl<'d> Drawing<'d> {
    fn new(rows: &[&Row], names: &'d dyn Names, known: &BTreeMap<String, StreamId>) -> Self {
        let mut streams: BTreeMap<StreamId, String> = BTreeMap::new();
        for (name, id) in known {
            let all = streams.entry(*id).or_default();
            let separator = if all.is_empty() { "" } else { ", " };
            let _ = write!(all, "{separator}{name}");
        }
        let mut drawing = Self {
            names,
            columns: BTreeMap::new(),
            streams,
            width: 0,
            y: HEAD,
            below: String::new(),
            boxes: String::new(),
            above: String::new(),
            submitted: BTreeMap::new(),
            begun: BTreeMap::new(),
            done: BTreeMap::new(),
            waits: BTreeMap::new(),
            culprits: rows.last().map(|row| culprits(&row.what)).unwrap_or_default(),
        };
        drawing.lay_out(rows);
        drawing
    }

    /// Each column is as wide as its longest text.
    fn lay_out(&mut self, rows: &[&Row]) {
        let mut widest: BTreeMap<Lane, usize> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.lane != Lane::Checker) {
            let letters = self.text(row).chars().count().min(LETTERS_MAX);
            let widest = widest.entry(row.lane).or_insert_with(|| self.title(row.lane).chars().count());
            *widest = (*widest).max(letters);
        }
        let mut x = GUTTER;
        for (lane, letters) in widest {
            let width = (letters * LETTER + 20 + INSET).max(COLUMN_MIN);
            self.columns.insert(lane, Column { x, width, title: self.title(lane) });
            x += width + GAP;
        }
        self.width = x.max(WIDTH_MIN);
    }

    fn title(&self, lane: Lane) -> String {
        let own = title(lane, self.names);
        match lane {
            Lane::Stream(id) => self.streams.get(&id).map_or_else(|| own.clone(), |name| format!("{name} ({own})")),
            _ => own,
        }
    }

    fn text(&self, row: &Row) -> String {
        match &row.what {
            What::Submitted { stream, work, .. } => {
                let to = self.streams.get(stream).cloned().unwrap_or_else(|| stream.to_string());
                format!("{} \u{2192} {to}", words(*work, self.names))
            }
            What::Started { work, .. } => words(*work, self.names),
            what => crate::trace::cell(what, self.names),
        }
    }

    fn note(&mut self, text: &str) {
        let _ = write!(self.above, "<text class=number x=8 y={}>{}</text>", self.y + TEXT_Y, escaped(text));
        self.y += ROW;
    }

    fn row(&mut self, row: &Row) {
        match &row.what {
            What::Waited { op, after } => {
                self.waits.extend(after.map(|after| (*op, after)));
                return;
            }
            What::Found(text, _) => return self.found(row, text),
            What::Lost(_) => return self.found(row, &self.text(row)),
            _ => {}
        }
        let Some(column) = self.columns.get(&row.lane) else { return };
        let (x, width) = (column.x, column.width);
        let _ = write!(self.above, "<text class=number x=8 y={}>{}</text>", self.y + TEXT_Y, row.step);
        match &row.what {
            What::Started { op, .. } => self.begins(row, *op, x, width),
            What::Completed { op, work } => self.completed(row.lane, *op, &words(*work, self.names)),
            what => {
                if let What::Submitted { op, .. } = what {
                    self.submitted.insert(*op, (x + width, self.y + ROW / 2));
                }
                let class = match (what, row.lane) {
                    (What::Submitted { op, .. }, _) if self.culprits.contains(op) => "host culprit",
                    (_, Lane::Stream(_)) => "device",
                    _ => "host",
                };
                self.block(class, x, width, (self.y, self.y + ROW - 4), &self.text(row));
            }
        }
        self.y += ROW;
    }

    /// Nodes of a graph may run beside each other in one column: later ones are set in.
    fn begins(&mut self, row: &Row, op: OpId, x: usize, width: usize) {
        let beside = self.begun.values().filter(|begun| begun.lane == row.lane).count().min(INSETS_MAX) * INSET;
        let begun = Begun { lane: row.lane, x: x + beside, width: width - beside, y: self.y, text: self.text(row) };
        self.begun.insert(op, begun);
        if let Some((from_x, from_y)) = self.submitted.get(&op) {
            let to_y = self.y + ROW / 2 - 2;
            let _ = write!(self.below, "<path class=handed d='M{from_x} {from_y} L{x} {to_y}'/>");
        }
    }

    fn completed(&mut self, lane: Lane, op: OpId, text: &str) {
        let Some(column) = self.columns.get(&lane) else { return };
        let unseen = || Begun { lane, x: column.x, width: column.width, y: self.y, text: text.to_owned() };
        let Begun { x, width, y, text, .. } = self.begun.remove(&op).unwrap_or_else(unseen);
        let class = if self.culprits.contains(&op) { "device culprit" } else { "device" };
        let bottom = self.y + ROW - 4;
        self.block(class, x, width, (y, bottom), &text);
        if let Some((from, from_bottom)) = self.waits.get(&op).and_then(|record| self.done.get(record)) {
            let (from_x, to_x) = (from + COLUMN_MIN / 2, if *from < x { x } else { x + width });
            let to_y = y + ROW / 2 - 2;
            let curve = format!("M{from_x} {from_bottom} C{from_x} {to_y} {from_x} {to_y} {to_x} {to_y}");
            let _ =
                write!(self.below, "<path class=edge marker-end='url(#tip)' d='{curve}'><title>edge</title></path>");
        }
        self.done.insert(op, (x, bottom));
    }

    fn block(&mut self, class: &str, x: usize, width: usize, (top, bottom): (usize, usize), text: &str) {
        let short: String = text.chars().take(LETTERS_MAX).collect();
        let _ = write!(
            self.boxes,
            "<g><title>{}</title><rect class='{class}' x={x} y={top} width={width} height={} rx=4 />\
             <text x={} y={}>{}</text></g>",
            escaped(text),
            bottom - top,
            x + 8,
            top + TEXT_Y,
            escaped(&short),
        );
    }

    /// What the device was at when the run ended is drawn open.
    fn end_begun(&mut self) {
        for (op, begun) in std::mem::take(&mut self.begun) {
            let class = if self.culprits.contains(&op) { "device open culprit" } else { "device open" };
            let bottom = self.y.max(begun.y + ROW) - 4;
            self.block(class, begun.x, begun.width, (begun.y, bottom), &begun.text);
        }
    }

    fn found(&mut self, row: &Row, text: &str) {
        self.end_begun();
        let lines = wrapped(text, (self.width - 2 * GUTTER) / LETTER);
        let height = lines.len() * LINE + 10;
        let y = self.y + 2;
        let _ = write!(self.above, "<rect class=found x=4 y={y} width={} height={height} rx=4 />", self.width - 8);
        let _ = write!(self.above, "<text class=number x=8 y={}>{}</text>", y + LINE, row.step);
        for (index, line) in lines.iter().enumerate() {
            let at = y + (index + 1) * LINE;
            let _ = write!(self.above, "<text class=bad x={GUTTER} y={at}>{}</text>", escaped(line));
        }
        self.y += height + 8;
    }

    fn finish(mut self) -> String {
        self.end_begun();
        let (width, height) = (self.width, self.y + 8);
        let mut svg = format!(
            "<svg class=lanes role=img aria-label='lanes of host threads and streams' viewBox='0 0 {width} {height}' \
             width={width} height={height}><defs><marker id=tip viewBox='0 0 8 8' refX=7 refY=4 markerWidth=7 \
             markerHeight=7 orient=auto><path class=tip d='M0 0 L8 4 L0 8 z'/></marker></defs>"
        );
        for (lane, column) in &self.columns {
            let (kind, middle) = (kind(*lane), column.x + column.width / 2);
            let _ = write!(svg, "<line class=lane x1={middle} y1={HEAD} x2={middle} y2={height} />");
            let _ = write!(svg, "<text class='title {kind}' x={} y=20>{}</text>", column.x, escaped(&column.title));
        }
        svg + &self.below + &self.boxes + &self.above + "</svg>"
    }
}

fn kind(lane: Lane) -> &'static str {
    match lane {
        Lane::Host(thread) if thread == HostThread::FUNCTIONS => "function",
        Lane::Host(_) => "thread",
        Lane::Stream(_) | Lane::Checker => "stream",
    }
}

/// The operations that a finding names, as in `(op6)`.
fn culprits(what: &What) -> Vec<OpId> {
    let What::Found(text, _) = what else { return Vec::new() };
    let after = text.split("(op").skip(1);
    after.filter_map(|rest| rest.split(')').next()?.parse().ok()).map(OpId).collect()
}

fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a line from the start");
        let needs = line.chars().count() + word.chars().count() + 1;
        match line.is_empty() || needs <= letters {
            true if line.is_empty() => line.push_str(word),
            true => {
                let _ = write!(line, " {word}");
            }
            false => lines.push(word.to_owned()),
        }
    }
    lines
}

/// More would make the page slow; the text has them.
const ROWS_MAX: usize = 240;
/// Pixels from here on. A row, and where its text stands in it.
const ROW: usize = 22;
const TEXT_Y: usize = 13;
/// A line of wrapped text.
const LINE: usize = 16;
/// The titles of the columns.
const HEAD: usize = 32;
/// The numbers of the rows.
const GUTTER: usize = 48;
const GAP: usize = 28;
const COLUMN_MIN: usize = 110;
const WIDTH_MIN: usize = 560;
/// How far what runs beside another is set in, and how often.
const INSET: usize = 12;
const INSETS_MAX: usize = 4;
/// The width of a letter.
const LETTER: usize = 7;
/// Letters that fit in the widest column.
const LETTERS_MAX: usize = 36;
