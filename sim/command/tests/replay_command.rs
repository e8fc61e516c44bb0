//! The command `tenure replay`, as people and scripts meet it: outputs, exit codes, files written, bad input.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const FINE: &str = "scenario \"fine\"\nstream A, B\nbuffer x 4 on A\nwrite x = 7 on A\nread x on B\ndrop x\n";
const WRONG_VALUE: &str = "stream A\nbuffer x 4 on A\nwrite x = 1 on A\nfetch x on A == 2\n";
/// Two threads that wait for what nobody signals.
const DEADLOCK: &str = "keeps R6\nstream A\nthread T {\n  signal t\n  wait u\n}\nthread U {\n  wait t\n  wait v\n}\n";
/// A write that only some orders put before the other.
const ORDER_MATTERS: &str = "stream A\nbuffer x 4 on A\nwrite x = 1 on A\n\
                             thread T {\n  write x = 2 on A\n}\nthread U {\n  fetch x on A == 1\n}\n";

/// A folder of its own, gone at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tenure-replay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).expect("a file can be written");
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

fn tenure(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tenure")).arg("replay").args(arguments).output().expect("the command starts")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn objects(output: &Output) -> Vec<Value> {
    out(output).lines().map(|line| serde_json::from_str(line).expect("each line is an object")).collect()
}

#[test]
fn all_as_expected_is_zero() {
    let scratch = Scratch::new("fine");
    let output = tenure(&[&scratch.file("a.scenario", FINE)]);
    assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
    let text = out(&output);
    let edges = text.lines().next().expect("a line");
    assert!(edges.ends_with(" edges between streams, 0 of which no conflict needed"), "{text}");
    assert!(text.contains("1 runs, ") && out(&output).contains(": 1 ok, 0 violations"), "{}", out(&output));
    assert_eq!(complaint(&output), "");
}

#[test]
fn json_is_a_line_for_each_scenario_and_profile() {
    let scratch = Scratch::new("json");
    scratch.file("a.scenario", FINE);
    scratch.file("b.scenario", WRONG_VALUE);
    scratch.file("no.txt", "no scenario");
    let output = tenure(&[&scratch.0.display().to_string(), "--profile", "all", "--json", "--schedules", "50"]);
    assert_eq!(output.status.code(), Some(1));
    let objects = objects(&output);
    assert_eq!(objects.len(), 12, "two files on six profiles");
    let keys = ["file", "profile", "schedules", "exhaustive", "outcome", "contract", "message", "seed"];
    for object in &objects {
        let object = object.as_object().expect("an object");
        assert_eq!(object.len(), keys.len());
        assert!(keys.iter().all(|key| object.contains_key(*key)), "{object:?}");
    }
    let of = |outcome: &str| objects.iter().filter(|object| object["outcome"] == outcome).count();
    assert_eq!((of("ok"), of("expectation")), (6, 6));
    assert_eq!(objects[6]["message"], "line 4: `x` is 1 at element 0, not 2");
}

#[test]
fn a_deadlock_is_a_violation_with_lanes() {
    let scratch = Scratch::new("deadlock");
    let output = tenure(&[&scratch.file("a.scenario", DEADLOCK)]);
    assert_eq!(output.status.code(), Some(1));
    let text = out(&output);
    assert!(text.starts_with("violation   "), "{text}");
    assert!(text.contains("R6: deadlock: ") && text.contains("T waits for the signal u"), "{text}");
    assert!(text.contains("row | t1 main"), "the lanes are shown: {text}");
}

#[test]
fn the_seed_that_a_result_names_shows_it_again() {
    let scratch = Scratch::new("seed");
    let file = scratch.file("a.scenario", ORDER_MATTERS);
    let found = objects(&tenure(&[&file, "--json"])).remove(0);
    assert_eq!(found["outcome"], "expectation");
    let seed = found["seed"].as_str().expect("a failure has a seed");
    assert!(seed.starts_with("path:"), "{seed}");
    let again = objects(&tenure(&[&file, "--json", "--seed", seed])).remove(0);
    assert_eq!((&again["message"], &again["schedules"]), (&found["message"], &1.into()));
    let plain = objects(&tenure(&[&file, "--json", "--seed", "path:"])).remove(0);
    assert_eq!(found["seed"] == "path:", plain["outcome"] != "ok", "the seed is no longer than it must be");
}

#[test]
fn a_number_as_a_seed_is_one_drawn_schedule() {
    let scratch = Scratch::new("number");
    let file = scratch.file("a.scenario", FINE);
    let object = objects(&tenure(&[&file, "--json", "--seed", "7"])).remove(0);
    assert_eq!((&object["outcome"], &object["schedules"]), (&"ok".into(), &1.into()));
}

#[test]
fn exhaustive_says_so() {
    let scratch = Scratch::new("exhaustive");
    let file = scratch.file("a.scenario", "stream A\nbuffer x 0 on A\n");
    let object = objects(&tenure(&[&file, "--json", "--exhaustive"])).remove(0);
    assert_eq!(object["exhaustive"], true);
    assert_eq!(object["outcome"], "ok");
}

#[test]
fn traces_and_pages_are_written_for_failures_and_for_runs_that_went_well() {
    let scratch = Scratch::new("written");
    let (trace, page) = (scratch.path("trace.json"), scratch.path("page.html"));
    for (text, code) in [(FINE, 0), (WRONG_VALUE, 1)] {
        let output = tenure(&[&scratch.file("a.scenario", text), "--trace", &trace, "--html", &page]);
        assert_eq!(output.status.code(), Some(code), "{}", complaint(&output));
        let read = |path: &str| std::fs::read_to_string(path).expect("the file was written");
        let trace: Value = serde_json::from_str(&read(&trace)).expect("the trace is JSON");
        let events = trace["traceEvents"].as_array().expect("it has events");
        assert!(events.iter().any(|event| event["name"].as_str().is_some_and(|name| name.contains("write1"))));
        assert!(read(&page).contains("<svg") && read(&page).contains("write1"), "the page has its lanes");
    }
}

#[test]
fn bad_input_is_two_with_a_line_that_says_why() {
    let scratch = Scratch::new("bad");
    let (empty, broken) = (scratch.path("empty"), scratch.file("broken.scenario", "stream A\ndrop\n"));
    std::fs::create_dir_all(&empty).expect("a folder can be made");
    let fine = scratch.file("fine.scenario", FINE);
    let elsewhere = scratch.file("elsewhere.scenario", "profile hip-5.7\nstream A\n");
    let bytes = scratch.path("bytes.scenario");
    std::fs::write(&bytes, [0xFF, 0xFE, 0x00]).expect("a file can be written");
    let missing = scratch.path("missing");
    let cases: &[(&[&str], &str)] = &[
        (&[&missing], "No such file"),
        (&[&empty], "no file that ends in .scenario"),
        (&[&broken], "line 2, column 5: expected the name of what is dropped, found the end of the line"),
        (&[&bytes], "valid UTF-8"),
        (&[&elsewhere], "not for this profile, but for hip-5.7"),
        (&[&fine, "--profile", "none"], "there is no profile `none`; there are cuda-13"),
        (&[&fine, "--seed", "x"], "no seed: a number"),
        (&[&fine, "--html", &missing, "--trace", &empty], "cannot write"),
    ];
    for (arguments, expected) in cases {
        let output = tenure(arguments);
        let complaint = complaint(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.starts_with("tenure: ") && complaint.contains(expected), "{arguments:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    for arguments in [&["--schedules", "0"][..], &[], &["--seed", "1", "--exhaustive"]] {
        let arguments: Vec<_> =
            [fine.as_str()].into_iter().filter(|_| !arguments.is_empty()).chain(arguments.iter().copied()).collect();
        assert_eq!(tenure(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn what_cannot_be_read_does_not_hide_the_rest() {
    let scratch = Scratch::new("rest");
    scratch.file("a.scenario", FINE);
    scratch.file("b.scenario", "stream");
    let output = tenure(&[&scratch.0.display().to_string(), "--json", "--schedules", "20"]);
    assert_eq!(output.status.code(), Some(2));
    let outcomes: Vec<_> = objects(&output).iter().map(|object| object["outcome"].clone()).collect();
    assert_eq!(outcomes, ["ok", "error"]);
}

#[test]
fn files_without_an_end_are_ended() {
    let scratch = Scratch::new("endless");
    let mut nested = String::from("stream A\n");
    nested += &"repeat 10000 {\n".repeat(6);
    nested += "ask A\n";
    nested += &"}\n".repeat(6);
    let quiet = "repeat 10000 {\nrepeat 10000 {\nrepeat 10000 {\n}\n}\n}\n";
    let memory = "stream A\nrepeat 10000 {\nbuffer x 65536 on A\nforget x\n}\n";
    let hung = "keeps R6\nhang operation 1\nstream A\nbuffer x 4 on A\nwrite x = 1 on A\nsync A\n";
    let cases = [(nested.as_str(), 2), (quiet, 2), (memory, 2), (hung, 1)];
    for (text, code) in cases {
        let output = tenure(&[&scratch.file("a.scenario", text), "--schedules", "4"]);
        assert_eq!(output.status.code(), Some(code), "{text}: {}{}", out(&output), complaint(&output));
    }
}

#[test]
fn a_schedule_that_goes_on_is_ended_by_its_steps_and_says_where_it_was() {
    let scratch = Scratch::new("steps");
    let file = scratch.file("a.scenario", "stream A\nbuffer x 4 on A\nrepeat 500 {\n  write x = 1 on A\n}\n");
    let output = tenure(&[&file, "--schedules", "4"]);
    assert_eq!(output.status.code(), Some(0), "it has an end: {}", out(&output));
    let output = tenure(&[&file, "--schedules", "4", "--steps", "300"]);
    assert_eq!(output.status.code(), Some(1));
    let text = out(&output);
    assert!(text.contains("R6: no end after 300 steps: main "), "{text}");
    assert!(text.contains("; the device has ") && text.contains("; the step begun last is line 4\n"), "{text}");
    assert!(text.contains(" --seed path: --steps 300\n") && text.contains("row | t1 main"), "{text}");
    let again = objects(&tenure(&[&file, "--json", "--seed", "path:", "--steps", "300"])).remove(0);
    assert_eq!((&again["outcome"], &again["contract"]), (&"violation".into(), &"R6".into()));
}

/// Its steps are few enough, but each takes long.
#[test]
fn a_schedule_that_takes_too_long_is_ended_and_says_where_it_was() {
    let scratch = Scratch::new("seconds");
    scratch.file("a.scenario", WRONG_VALUE);
    let buffers: String = ["w", "x", "y", "z"].map(|name| format!("buffer {name} 65536 on A\n")).concat();
    let file = format!("stream A\n{buffers}repeat 10000 {{\nrepeat 9 {{\nwrite w, x, y, z = 1 on A\n}}\n}}\n");
    scratch.file("b.scenario", &file);
    let folder = scratch.0.display().to_string();
    let bounds = ["--seconds", "1", "--steps", "1000000"];
    let output = tenure(&[&[folder.as_str()], &bounds[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}{}", out(&output), complaint(&output));
    let text = out(&output);
    assert!(text.starts_with("expectation ") && text.contains("\n  line 4: "), "what came before is told: {text}");
    let end = text.split_once("b.scenario on cuda-13 (0 schedules)\n  R6: no end after 1 s: ");
    let end = end.expect("the endless one is named").1;
    assert!(end.contains(" steps so far; main ") && end.contains("; the step begun last is line 8\n"), "{text}");
    let objects = objects(&tenure(&[&[folder.as_str(), "--json"], &bounds[..]].concat()));
    assert_eq!((&objects[1]["outcome"], &objects[1]["contract"]), (&"violation".into(), &"R6".into()));
}

#[test]
fn a_reader_that_leaves_early_is_no_crash() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/ownership");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["replay", "--json", "--schedules", "2"])
        .arg(corpus)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let mut complaint = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut complaint).expect("UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{complaint}");
    assert_eq!(complaint, "");
}
