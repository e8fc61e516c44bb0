//! A file that Perfetto (and chrome://tracing) opens: the JSON trace-event format, a track for each lane, virtual time.
//!
//! Calls and operations are slices, device waits are arrows from the record to the wait, findings are instants.

use super::lanes::{Lane, title};
use super::{Names, Row, Trace, What, words};
use crate::code::Code;
use crate::event::{HostThread, OpId};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The trace as one JSON text. Rows that the ring dropped are said in `otherData`.
pub(crate) fn json(trace: &Trace, names: &dyn Names, seed: &str) -> String {
    let mut events: Vec<Value> = processes();
    let shown = trace.rows().filter(|row| !matches!(row.what, What::Waited { .. }));
    let lanes: BTreeSet<Lane> = shown.map(|row| row.lane).collect();
    events.extend(lanes.iter().map(|lane| {
        let (pid, tid) = track(*lane);
        json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": title(*lane, names)}})
    }));
    let mut ends: FxHashMap<OpId, (Lane, u64)> = FxHashMap::default();
    let mut waits: FxHashMap<OpId, OpId> = FxHashMap::default();
    for row in trace.rows() {
        if let What::Waited { op, after: Some(after) } = row.what {
            waits.insert(op, after);
        }
        if let What::Completed { op, .. } = row.what {
            ends.insert(op, (row.lane, row.span.end_ns));
            events.extend(arrow(op, row, &waits, &ends));
        }
        events.extend(slice(row, names));
    }
    let whole = json!({
        "displayTimeUnit": "ns",
        "otherData": {"seed": seed, "rows_dropped": trace.dropped()},
        "traceEvents": events,
    });
    whole.to_string()
}

fn processes() -> Vec<Value> {
    let name = |pid: u32, name: &str| json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}});
    vec![name(1, "host threads"), name(2, "device streams"), name(3, "checkers")]
}

fn slice(row: &Row, names: &dyn Names) -> Option<Value> {
    let (pid, tid) = track(row.lane);
    let name = match &row.what {
        What::Called { call, stream, code } => {
            let on = stream.map(|stream| format!(" {stream}")).unwrap_or_default();
            let result = if *code == Code::SUCCESS { String::new() } else { format!(" = {}", code.name()) };
            format!("{call}{on}{result}")
        }
        What::Completed { work, .. } => words(*work, names),
        What::Found(text, _) => return Some(instant(text, row)),
        What::Lost(code) => return Some(instant(&format!("device lost: {code}"), row)),
        _ => return None,
    };
    let length = row.span.end_ns.saturating_sub(row.span.begin_ns);
    Some(json!({
        "ph": "X", "name": name, "pid": pid, "tid": tid,
        "ts": microseconds(row.span.begin_ns), "dur": microseconds(length), "args": {"row": row.step},
    }))
}

fn instant(name: &str, row: &Row) -> Value {
    let (pid, tid) = track(row.lane);
    json!({
        "ph": "i", "s": "g", "name": name, "pid": pid, "tid": tid,
        "ts": microseconds(row.span.begin_ns), "args": {"row": row.step},
    })
}

fn arrow(op: OpId, row: &Row, waits: &FxHashMap<OpId, OpId>, ends: &FxHashMap<OpId, (Lane, u64)>) -> Vec<Value> {
    let from = waits.get(&op).and_then(|record| ends.get(record));
    let Some((lane, end_ns)) = from else { return Vec::new() };
    let (from_pid, from_tid) = track(*lane);
    let (pid, tid) = track(row.lane);
    vec![
        json!({"ph": "s", "name": "edge", "cat": "edge", "id": op.0, "pid": from_pid, "tid": from_tid,
               "ts": microseconds(end_ns.saturating_sub(1))}),
        json!({"ph": "f", "bp": "e", "name": "edge", "cat": "edge", "id": op.0, "pid": pid, "tid": tid,
               "ts": microseconds(row.span.begin_ns)}),
    ]
}

/// Process and thread of a lane's track.
fn track(lane: Lane) -> (u32, u64) {
    match lane {
        Lane::Host(thread) if thread == HostThread::FUNCTIONS => (1, 0),
        Lane::Host(thread) => (1, u64::from(thread.0) + 1),
        Lane::Stream(stream) => (2, stream.0 + 1),
        Lane::Checker => (3, 1),
    }
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}
