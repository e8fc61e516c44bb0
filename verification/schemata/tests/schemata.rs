//! Each kind of mutant, woven into a small crate, armed and seen at work; and each way in which a trial can end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure_schemata::statements::statements;
use tenure_schemata::sweep::{Stage, Verdict, attempt, open, sweep};
use tenure_schemata::weave::{Fate, weave_tree};
use tenure_schemata::{ARMED, Mutant, Place, Span};

const FIXTURE: &str = include_str!("fixture.rs");
const AS_IT_WAS: &str = "8 [1] [true, false, false] 12 [11, 13, 13] 7 80 3 2";

/// Genre, what stands around the change, what is changed, what it becomes, what comes of it, and what all then comes to.
const MUTANTS: &[(&str, &str, &str, &str, Fate, &str)] = &[
    ("FnValue", "!7 % 10", "!7 % 10", "1", Fate::Woven, "1 [1] [true, false, false] 12 [11, 13, 13] 7 80 3 2"),
    ("FnValue", "!7 % 10", "!7 % 10", "\"no number\".to_owned()", Fate::Refused, ""),
    ("BinaryOperator", "!7 % 10", "%", "/", Fate::Woven, "429496728 [1] [true, false, false] 12 [11, 13, 13] 7 80 3 2"),
    ("UnaryOperator", "!7 % 10", "!", "", Fate::Woven, "7 [1] [true, false, false] 12 [11, 13, 13] 7 80 3 2"),
    (
        "FnValue",
        "out.push(1);",
        "out.push(1);",
        "()",
        Fate::Woven,
        "8 [] [true, false, false] 12 [11, 13, 13] 7 80 3 2",
    ),
    ("BinaryOperator", "a + b", "+", "*", Fate::Woven, "8 [1] [false, false, false] 12 [11, 13, 13] 7 80 3 2"),
    ("BinaryOperator", "b == 5", "==", "!=", Fate::Woven, "8 [1] [false, false, false] 12 [11, 13, 13] 7 80 3 2"),
    ("BinaryOperator", "5 && b", "&&", "||", Fate::Woven, "8 [1] [true, false, false] 12 [11, 13, 13] 7 80 3 2"),
    ("BinaryOperator", "b < 4", "<", ">", Fate::Woven, "8 [1] [false, false, false] 12 [11, 13, 13] 7 80 3 2"),
    // As it is written, so that it now reads: a, or b and c.
    ("BinaryOperator", "a && b && c", "&&", "||", Fate::Woven, "8 [1] [true, false, true] 12 [11, 13, 13] 7 80 3 2"),
    ("BinaryOperator", "count += 2", "+=", "-=", Fate::Woven, "8 [1] [true, false, false] 8 [11, 13, 13] 7 80 3 2"),
    ("BinaryOperator", "count += 2", "+=", "*=", Fate::Woven, "8 [1] [true, false, false] 20 [11, 13, 13] 7 80 3 2"),
    ("MatchArm", "1 => 11,", "1 => 11,", "", Fate::Woven, "8 [1] [true, false, false] 12 [13, 13, 13] 7 80 3 2"),
    (
        "MatchArmGuard",
        "number > 5",
        "number > 5",
        "true",
        Fate::Woven,
        "8 [1] [true, false, false] 12 [11, 12, 13] 7 80 3 2",
    ),
    ("BinaryOperator", "number > 5", ">", "<", Fate::Woven, "8 [1] [true, false, false] 12 [11, 12, 13] 7 80 3 2"),
    ("StructField", "left: 7,", "left: 7", "", Fate::Woven, "8 [1] [true, false, false] 12 [11, 13, 13] 70 80 3 2"),
    ("Statement", "count += 2", "count += 2", "", Fate::Woven, "8 [1] [true, false, false] 10 [11, 13, 13] 7 80 3 2"),
    ("BinaryOperator", "&& let", "&&", "||", Fate::Left, ""),
    ("FnValue", "[1, 2].into_iter()", "[1, 2].into_iter()", "::std::iter::empty()", Fate::Left, ""),
];

fn place(at: usize) -> Place {
    let before = &FIXTURE[..at];
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    Place { line: before.matches('\n').count() + 1, column: before[line..].chars().count() + 1 }
}

fn mutant(genre: &str, around: &str, changed: &str, replacement: &str) -> Mutant {
    let at =
        FIXTURE.find(around).expect("the fixture has these words") + around.find(changed).expect("they have these");
    let span = Span { start: place(at), end: place(at + changed.len()) };
    let name = format!("{genre} {changed}: {replacement}");
    Mutant { file: "core/src/report.rs".into(), genre: genre.into(), name, replacement: replacement.into(), span }
}

/// A crate of the fixture, in a place of its own.
fn tree() -> PathBuf {
    let tree = Path::new(env!("CARGO_TARGET_TMPDIR")).join("woven");
    // There may be none yet.
    let _ = std::fs::remove_dir_all(&tree);
    std::fs::create_dir_all(tree.join("core/src")).expect("a folder can be made");
    let manifest = "[workspace]\n[package]\nname = \"fixture\"\nedition = \"2024\"\n\
                    [lib]\npath = \"core/src/lib.rs\"\n[[bin]]\nname = \"fixture\"\npath = \"core/src/main.rs\"\n";
    let main = "fn main() {\n    println!(\"{}\", fixture::report());\n}\n";
    let root = "mod report;\npub use report::report;\n";
    let files = [("Cargo.toml", manifest), ("lib.rs", root), ("main.rs", main), ("report.rs", FIXTURE)];
    for (name, text) in files {
        let folder = if name == "Cargo.toml" { "" } else { "core/src" };
        std::fs::write(tree.join(folder).join(name), text).expect("a file can be written");
    }
    tree
}

fn said(program: &Path, number: usize) -> String {
    let output = Command::new(program).env(ARMED, number.to_string()).output().expect("the fixture runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn each_kind_of_mutant_is_woven_or_left() {
    let tree = tree();
    let mutants: Vec<_> =
        MUTANTS.iter().map(|(genre, around, changed, to, ..)| mutant(genre, around, changed, to)).collect();
    let fates = weave_tree(&tree, &mutants, &["fixture".to_owned()]);
    let target = tree.join("target");
    let built =
        Command::new("cargo").args(["build", "--quiet", "--target-dir"]).arg(&target).current_dir(&tree).status();
    assert!(built.expect("cargo runs").success(), "what is woven compiles");
    let program = target.join("debug/fixture");
    assert_eq!(said(&program, 0), AS_IT_WAS, "unarmed, all is as it was");
    for (number, (fate, mutant)) in (1..).zip(fates.iter().zip(&mutants)) {
        let (.., expected_fate, expected) = MUTANTS[number - 1];
        assert_eq!(*fate, expected_fate, "{}", mutant.name);
        if *fate == Fate::Woven {
            assert_eq!(said(&program, number), expected, "{}", mutant.name);
        }
    }
}

#[test]
fn every_statement_is_listed_but_values_and_jumps() {
    let source = "fn f() -> u32 {\n    let a = 1;\n    if a == 2 {\n        return 3;\n    }\n    drop(a);\n    println!();\n    a\n}\n\
                  fn g() {\n    for _ in 0..2 {\n        f();\n    }\n}\nmod tests {\n    fn h() {\n        f();\n    }\n}\n";
    let named: Vec<_> = statements("f.rs", source).into_iter().map(|mutant| mutant.name).collect();
    let expected = [
        "3:5: leave out if a == 2 {",
        "6:5: leave out drop(a)",
        "11:5: leave out for _ in 0..2 {",
        "12:9: leave out f()",
    ];
    assert_eq!(named, expected.map(|name| format!("f.rs:{name}")));
}

fn stage(command: &str) -> Stage {
    let command = ["sh", "-c", command].map(str::to_owned).to_vec();
    Stage { name: "suite".into(), limit: Duration::from_secs(2), fails: vec!["FAILED".into()], command }
}

#[test]
fn a_trial_ends_by_its_verdict() {
    assert_eq!(attempt(&stage("echo fine"), 1), Verdict::Passed);
    assert_eq!(attempt(&stage("exit 3"), 1), Verdict::Failed("exit status: 3".into()));
    assert_eq!(attempt(&stage("echo a test FAILED >&2; sleep 1000"), 1), Verdict::Failed("a test FAILED".into()));
    // What it started goes with it, or the end of the streams would not come.
    assert_eq!(attempt(&stage("sleep 1000 & sleep 1000"), 1), Verdict::Hung);
    assert_eq!(attempt(&stage(&format!("test ${ARMED} = 7")), 7), Verdict::Passed, "the mutant is armed");
}

#[test]
fn a_sweep_goes_on_where_it_was() {
    let results = Path::new(env!("CARGO_TARGET_TMPDIR")).join("results.tsv");
    std::fs::write(&results, "1\tsuite\tfailed\t0.1\twords\n2\tsuite\tpassed\t0.1\t\n3\town\thung\t0.1\t\n")
        .expect("written");
    let known = std::fs::read_to_string(&results).expect("read");
    assert_eq!(open(&known, "suite", &[1, 2, 3, 4]), [4], "noticed before, tried here, noticed elsewhere");
    assert_eq!(open(&known, "own", &[1, 2, 3, 4]), [2, 4]);
    sweep(&stage(&format!("test ${ARMED} != 4")), &[4, 5], 2, &results);
    let known = std::fs::read_to_string(&results).expect("read");
    assert!(known.contains("\n4\tsuite\tfailed\t") && known.contains("\n5\tsuite\tpassed\t"), "{known}");
    assert_eq!(open(&known, "own", &[1, 2, 3, 4, 5]), [2, 5]);
    let once = results.with_extension("once");
    // There may be none.
    let _ = std::fs::remove_file(&once);
    sweep(&stage(&format!("test -e {0} || {{ touch {0}; exit 1; }}", once.display())), &[6], 1, &results);
    let known = std::fs::read_to_string(&results).expect("read");
    assert!(known.contains("\n6\tsuite\tpassed\t"), "a failure that does not come again is none: {known}");
}
