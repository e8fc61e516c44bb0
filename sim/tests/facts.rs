//! The profile `cuda-13` against every row of the facts, and a wrong rule against the rows that it breaks.

use std::fs;
use std::path::PathBuf;

use tenure_sim::facts::{Agreement, Form, Table, compare, table_of};
use tenure_sim::profile::{Profile, Quirk};

const CAPTURE_ROWS: usize = 432;
const SEMANTICS_ROWS: usize = 185;

fn table(name: &str) -> Table {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/facts").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Table::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn assert_agrees(agreement: &Agreement, rows: usize) {
    let differences: Vec<String> = agreement.differences.iter().map(ToString::to_string).collect();
    assert!(differences.is_empty(), "{} rows differ:\n{}", differences.len(), differences.join("\n"));
    assert_eq!(agreement.rows, rows, "the table has not the number of rows that were measured");
}

#[test]
fn cuda_13_agrees_with_every_row_about_captures() {
    assert_agrees(&compare(&table("cuda-13.capture.tsv"), &Profile::cuda_13()), CAPTURE_ROWS);
}

#[test]
fn cuda_13_agrees_with_every_row_about_semantics() {
    assert_agrees(&compare(&table("cuda-13.semantics.tsv"), &Profile::cuda_13()), SEMANTICS_ROWS);
}

#[test]
fn what_a_profile_says_is_a_table_with_the_rows_that_were_measured() {
    for (name, form) in [("cuda-13.capture.tsv", Form::Capture), ("cuda-13.semantics.tsv", Form::Semantics)] {
        let said = Table::parse(&table_of(&Profile::cuda_13(), form).to_string()).expect("a written table can be read");
        let mut said: Vec<String> = said.rows.into_iter().map(|row| row.id).collect();
        let mut measured: Vec<String> = table(name).rows.into_iter().map(|row| row.id).collect();
        said.sort();
        measured.sort();
        assert_eq!(said, measured, "{name}: other rows than measured");
    }
}

/// Each wrong rule must be seen by a row, or the rows check nothing.
#[test]
fn a_wrong_rule_is_named_by_a_row() {
    let capture = table("cuda-13.capture.tsv");
    let semantics = table("cuda-13.semantics.tsv");
    let planted = [
        (&capture, Quirk::AcceptsInSilence, "global / same-thread / Malloc"),
        (&capture, Quirk::AsyncMemoryUnguarded, "global / other-thread / FreeAsync(other)"),
        (&capture, Quirk::EventQueryUnguarded, "threadlocal / same-thread / EventQuery(done outside)"),
        (&capture, Quirk::EventQueryIgnoresMode, "global / relaxed-exchange / EventQuery(busy outside)"),
        (&capture, Quirk::HostFunctionRefusedInCapture, "relaxed / other-thread / LaunchHostFunc(captured)"),
        (&capture, Quirk::SynchronousCopyBreaksAll, "relaxed / same-thread / Memcpy(sync)"),
        (&capture, Quirk::CallbackGuarded, "global / same-thread / StreamAddCallback(other)"),
        (&semantics, Quirk::EndOnForkKeepsCapture, "EndCapture on forked (not origin) ... then EndCapture on origin"),
        (&semantics, Quirk::EndOnWrongThreadKeepsCapture, "status after, global"),
        (&semantics, Quirk::InvalidatedStaysBroken, "launch after ending it"),
        (&semantics, Quirk::LastErrorIsLastResult, "last error after a query of a busy stream"),
        (&semantics, Quirk::OverlapAccepted, "register inside (4K at 4K)"),
        (&semantics, Quirk::StaleHandleIsLostContext, "after a reset: query an old stream"),
        (&semantics, Quirk::StreamDestroyWaits, "destroy busy stream ... took ms"),
        (&semantics, Quirk::UnjoinedStaysActive, "fork without join: forked stream status after"),
    ];
    let left_out = [
        (&semantics, Quirk::BorderCopiesRefused, "copy up over both registrations"),
        (&semantics, Quirk::DeviceCopiesDoNotWait, "ms: copy on the device behind a blocking stream"),
        (&semantics, Quirk::FillsDoNotWait, "ms: memset of device memory behind a blocking stream"),
        (&semantics, Quirk::NullStreamSpeaksForAll, "query null, blocking busy"),
        (&semantics, Quirk::NullStreamSpeaksForAll, "ms: synchronize null behind per-thread"),
        (&semantics, Quirk::PageableCopiesWait, "ms: copy of 4 bytes down to pageable memory behind its stream"),
        (&semantics, Quirk::PageableCopiesWait, "ms: copy of 16777216 bytes up from pageable memory behind its stream"),
        (&semantics, Quirk::ReadOnlyMemoryRefused, "register read-only map"),
    ];
    for (table, quirk, row) in left_out {
        let differences = compare(table, &Profile::cuda_13().without(quirk)).differences;
        let named = differences.iter().any(|difference| difference.id == row);
        assert!(named, "without {}: expected the row {row:?}, found {differences:#?}", quirk.name());
    }
    for (table, quirk, row) in planted {
        let differences = compare(table, &Profile::cuda_13().with(quirk)).differences;
        let named = differences.iter().any(|difference| difference.id == row);
        assert!(named, "{}: expected the row {row:?}, found {differences:#?}", quirk.name());
    }
}

/// How far each other profile is from CUDA, in rows: a change of a rule moves these figures.
#[test]
fn other_profiles_differ_where_their_quirks_say() {
    let capture = table("cuda-13.capture.tsv");
    let semantics = table("cuda-13.semantics.tsv");
    let figures: Vec<String> = Profile::NAMES
        .iter()
        .map(|name| {
            let profile = Profile::named(name).expect("a listed name makes a profile");
            let differ = |table| compare(table, &profile).differences.len();
            format!("{name} {} {}", differ(&capture), differ(&semantics))
        })
        .collect();
    let expected =
        ["cuda-13 0 0", "hip-5.7 20 31", "hip-6.4 20 29", "hip-7.0 21 27", "hip-7.2 21 27", "lenient 107 24"];
    assert_eq!(figures, expected);
}

/// The virtual clock charges what was measured.
#[test]
fn costs_are_the_medians_of_the_table() {
    let times = table("cuda-13.times.tsv");
    let median = |operation: &str| {
        let row = times.row(operation).unwrap_or_else(|| panic!("no row {operation:?}"));
        let figure = row.value.split_whitespace().find_map(|word| word.strip_prefix("median="));
        figure.and_then(|figure| figure.parse::<u64>().ok()).unwrap_or_else(|| panic!("no median in {row:?}"))
    };
    let costs = Profile::cuda_13().costs;
    let half = |operation| median(operation).div_ceil(2);
    assert_eq!(costs.launch_ns, median("launch empty kernel (burst of 500, per launch)"));
    assert_eq!(costs.mark_ns, median("event record"));
    assert_eq!(costs.query_ns, median("stream query idle"));
    assert_eq!(costs.host_function_ns, median("host func submission only (burst of 100)"));
    assert_eq!(costs.stream_create_ns, median("stream create+destroy"));
    assert_eq!(costs.event_ns, half("event create+destroy"));
    assert_eq!(costs.malloc_ns, half("malloc+free 1 MiB"));
    assert_eq!(costs.malloc_async_ns, half("mallocAsync+freeAsync 1 MiB"));
    assert_eq!(costs.register_ns, half("host register+unregister 4096"));
    assert_eq!(costs.graph_launch_ns, median("graph launch of 20 kernels, submission"));
    let depth = times.row("launches queued behind a busy kernel before a launch blocks").expect("it was measured");
    assert!(depth.value.starts_with(&format!("{} ", Profile::cuda_13().queue_depth)), "{depth:?}");
}
