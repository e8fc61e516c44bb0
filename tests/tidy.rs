//! The house rules, checked over the text of the project.
//!
//! Lines of the contract (`O1`) and edges (`E1`) are defined in DESIGN.md, one `- **O1** ...` each. A name counts as
//! cited where it stands as a word in a comment, a string or a name such as `o1_two_reads`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Functions longer than [`FUNCTION_LINES`], each with the reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[("sim/tests/engine_random.rs call", "one arm for each kind of random call")];
const FUNCTION_LINES: usize = 70;
const LINE_WIDTH: usize = 120;
/// Lines of the contract with their numbers: the last number of each letter.
const LETTERS: &str = "OSCPRT";

struct Source {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_path_buf()
}

/// All files of the project that are text of ours.
fn sources(extensions: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["core", "sim", "hip", "tests", "verification", "benches", ".github", ".ci"] {
        walk(&root().join(folder), extensions, &mut found);
    }
    for name in ["README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Cargo.toml"] {
        read(&root().join(name), extensions, &mut found);
    }
    assert!(found.len() > 20, "the sources are found");
    found
}

fn walk(folder: &Path, extensions: &[&str], found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true if path.ends_with("target") => {}
            true => walk(&path, extensions, found),
            false => read(&path, extensions, found),
        }
    }
}

fn read(path: &Path, extensions: &[&str], found: &mut Vec<Source>) {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    if !extensions.contains(&extension) {
        return;
    }
    if let Ok(text) = fs::read_to_string(path) {
        let path = path.strip_prefix(root()).unwrap_or(path).to_string_lossy().into_owned();
        found.push(Source { path, text });
    }
}

/// Fails with every complaint at once.
fn report(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaint(s):\n{}", complaints.len(), complaints.join("\n"));
}

/// The names that DESIGN.md defines.
fn defined() -> BTreeSet<String> {
    let design = fs::read_to_string(root().join("DESIGN.md")).expect("DESIGN.md is there");
    let names = design.lines().filter_map(|line| line.trim_start().strip_prefix("- **")?.split_once("**"));
    names.map(|(name, _)| name.to_owned()).filter(|name| is_name(name)).collect()
}

fn is_name(word: &str) -> bool {
    let mut letters = word.chars();
    let known = letters.next().is_some_and(|letter| letter == 'E' || LETTERS.contains(letter));
    let number = letters.as_str();
    known && (1..=2).contains(&number.len()) && number.chars().all(|digit| digit.is_ascii_digit())
}

/// Names cited in a text: as words, as `E1.w`, and at the head of an identifier (`o1_...`).
fn cited(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    words
        .filter_map(|word| {
            let head = word.split('_').next().unwrap_or_default();
            match word.contains('_') {
                true if head.starts_with(|letter: char| letter.is_lowercase()) => Some(head.to_uppercase()),
                true => None,
                false => Some(word.to_owned()),
            }
        })
        .filter(|name| is_name(name))
        .collect()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

#[test]
fn cited_names_are_defined() {
    let defined = defined();
    let mut complaints = Vec::new();
    for source in sources(&["rs"]).iter().filter(|source| !source.path.starts_with("tests/tidy")) {
        for (number, line) in source.text.lines().enumerate().filter(|(_, line)| is_comment(line)) {
            // Plain prose: `C1: ...`, `(P7)`, `// SAFETY: O6.`; a type parameter is not in a comment.
            let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '`' && letter != '_');
            for word in words.filter(|word| is_name(word) && !defined.contains(*word)) {
                complaints.push(format!("{}:{}: {word} is not defined in DESIGN.md", source.path, number + 1));
            }
        }
    }
    report(&complaints);
}

#[test]
fn defined_names_are_kept_and_checked() {
    let (mut code, mut checks) = (BTreeSet::new(), BTreeSet::new());
    for source in sources(&["rs", "scenario", "toml"]) {
        let names = cited(&source.text);
        // What lists them all keeps none.
        let is_code = source.path != "core/src/contract.rs"
            && ["core/", "sim/src/", "hip/src/"].iter().any(|folder| source.path.starts_with(folder));
        let is_check = ["tests/conformance", "verification/", "tests/corpus", "tests/zero_cost"];
        if is_code {
            code.extend(names);
        } else if is_check.iter().any(|folder| source.path.starts_with(folder)) {
            checks.extend(names);
        }
    }
    let mut complaints = Vec::new();
    for name in defined() {
        if !code.contains(&name) {
            complaints.push(format!("{name} is defined, and cited by no code"));
        }
        if !checks.contains(&name) {
            complaints.push(format!("{name} is defined, and cited by no test and no model"));
        }
    }
    report(&complaints);
}

/// The lines of the contract as DESIGN.md has them, with their sentences.
fn drawn_up() -> Vec<(String, String)> {
    let design = fs::read_to_string(root().join("DESIGN.md")).expect("DESIGN.md is there");
    let mut found: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in design.lines() {
        let defined = line.strip_prefix("- **").and_then(|rest| rest.split_once("** "));
        let defined = defined.filter(|(name, _)| is_name(name) && !name.starts_with('E'));
        goes_on = defined.is_some() || goes_on && line.starts_with("  ");
        match (defined, found.last_mut()) {
            (Some((name, sentence)), _) => found.push((name.to_owned(), sentence.to_owned())),
            (None, Some((_, sentence))) if goes_on => *sentence += &format!(" {}", line.trim()),
            _ => {}
        }
    }
    found
}

#[test]
fn the_contract_is_the_same_in_design_and_data() {
    let data = tenure::contract::LINES.iter().map(|line| (line.code.to_owned(), line.sentence.to_owned()));
    assert_eq!(data.collect::<Vec<_>>(), drawn_up(), "core/src/contract.rs and DESIGN.md");
    let is_there = |item: &str| root().join(format!("core/src/{}.rs", item.replace("::", "/"))).exists();
    let gone = tenure::contract::LINES.iter().filter(|line| !is_there(line.item));
    report(
        &gone
            .map(|line| format!("{} names {}, which the core does not have", line.code, line.item))
            .collect::<Vec<_>>(),
    );
}

/// What checkers and models cite as data, and what messages begin with, are lines of the contract.
#[test]
fn strings_cite_lines_that_there_are() {
    // This one, and a test of what the language says of a line that there is not.
    const EXEMPT: [&str; 2] = ["tests/tidy", "sim/src/scenario/run/language.rs"];
    let defined = defined();
    let mut complaints = Vec::new();
    for source in sources(&["rs", "edits", "scenario"]) {
        for (number, line) in
            source.text.lines().enumerate().filter(|_| !EXEMPT.iter().any(|path| source.path.starts_with(path)))
        {
            // What a checker may find: `    O1 "..."`.
            let listed = line.trim_start().split_once(" \"").map(|(name, _)| name).filter(|name| is_name(name));
            if let Some(name) = listed.filter(|name| !defined.contains(*name)) {
                complaints.push(format!("{}:{}: {name} is no line of the contract", source.path, number + 1));
            }
            // Between quotes: a name alone, or in front of a sentence.
            for text in line.split('"').skip(1).step_by(2) {
                let name = text.split(": ").next().unwrap_or_default();
                if is_name(name) && !defined.contains(name) {
                    complaints.push(format!("{}:{}: {name} is no line of the contract", source.path, number + 1));
                }
            }
        }
    }
    report(&complaints);
}

#[test]
fn orderings_name_defined_edges() {
    let (defined, mut complaints) = (defined(), Vec::new());
    for source in sources(&["rs"]).iter().filter(|source| source.path.starts_with("core/src")) {
        for (number, line) in source.text.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
            let Some((_, rest)) = line.split_once("ordering!(\"") else { continue };
            let edge = rest.split(['.', '"']).next().unwrap_or_default();
            if !defined.contains(edge) {
                complaints.push(format!("{}:{}: edge {edge} is not defined", source.path, number + 1));
            }
        }
    }
    report(&complaints);
}

/// What arms a planted defect, in the copies of the core that are checked.
#[allow(dead_code, reason = "only the hash is of use here")]
#[path = "../verification/planted/switch.rs"]
mod switch;

/// What follows `head`, up to the quote, in the texts of this kind whose path starts so.
fn names(kind: &str, path: &str, head: &str) -> BTreeSet<String> {
    let texts = sources(&[kind]).into_iter().filter(|source| source.path.starts_with(path));
    let names = |source: Source| -> Vec<String> {
        source.text.split(head).skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
    };
    texts.flat_map(names).collect()
}

#[test]
fn defects_are_told_apart() {
    let mut hashes = BTreeMap::new();
    let planted = names("edits", "verification/planted", "planted(\"");
    for name in planted.into_iter().chain(names("rs", "core/src", "ordering!(\"")) {
        let other = hashes.entry(switch::hash(&name)).or_insert_with(|| name.clone());
        assert_eq!(*other, name, "two planted defects have one hash");
    }
    assert!(hashes.len() > 50, "the defects were found: {}", hashes.len());
}

#[test]
fn the_core_has_no_defects_planted() {
    let planted = sources(&["rs"]).into_iter().filter(|source| source.path.starts_with("core/src"));
    let planted: Vec<_> =
        planted.filter(|source| source.text.contains("mutant!(") || source.text.contains("planted(")).collect();
    let paths: Vec<_> = planted.iter().map(|source| source.path.as_str()).collect();
    assert!(paths.is_empty(), "a planted defect belongs into verification/planted: {paths:?}");
}

/// The language of scenarios refuses the name of a defect that there is not.
#[test]
fn defects_are_listed_for_the_language() {
    let planted = names("edits", "verification/planted", "planted(\"");
    let path = root().join("sim/src/scenario/defects.txt");
    let listed: BTreeSet<String> = fs::read_to_string(path).expect("the list").lines().map(str::to_owned).collect();
    let differ: Vec<_> = planted.symmetric_difference(&listed).collect();
    assert!(differ.is_empty(), "sim/src/scenario/defects.txt must list the planted defects: {differ:?}");
}

#[test]
fn atomic_accesses_say_why() {
    let mut complaints = Vec::new();
    for source in sources(&["rs"]).iter().filter(|source| source.path.starts_with("core/src")) {
        if source.path.starts_with("core/src/sync") {
            continue;
        }
        let lines: Vec<_> = source.text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| !is_comment(line)) {
            if line.contains("Ordering::SeqCst") {
                complaints.push(format!("{}:{}: loom checks SeqCst as AcqRel", source.path, at + 1));
            }
            let strong =
                ["Acquire", "Release", "AcqRel"].iter().any(|word| line.contains(&format!("Ordering::{word}")));
            if strong && !line.contains("ordering!") {
                complaints.push(format!("{}:{}: an ordering without `ordering!`", source.path, at + 1));
            }
            if line.contains("Ordering::Relaxed") && !explained(&lines, at, "Relaxed") {
                complaints.push(format!("{}:{}: a Relaxed access without a comment", source.path, at + 1));
            }
        }
    }
    report(&complaints);
}

/// Whether a comment with `word` stands on the line, or above it in the same function.
fn explained(lines: &[&str], at: usize, word: &str) -> bool {
    let above = lines[..=at].iter().rev().take(40);
    let mut above = above.take_while(|line| !line.trim_start().starts_with("impl "));
    above.any(|line| line.split_once("//").is_some_and(|(_, comment)| comment.contains(word)))
}

#[test]
fn unsafe_blocks_are_argued() {
    let mut complaints = Vec::new();
    for source in sources(&["rs"]) {
        if source.path.starts_with("tests/tidy") {
            continue;
        }
        let lines: Vec<_> = source.text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| !is_comment(line)) {
            let code = line.split("//").next().unwrap_or_default();
            if !(code.contains("unsafe {") || code.contains("unsafe impl")) {
                continue;
            }
            let above = lines[at.saturating_sub(8)..=at].iter();
            if !above.into_iter().any(|line| line.contains("SAFETY:")) {
                complaints.push(format!("{}:{}: unsafe without a SAFETY comment", source.path, at + 1));
            }
        }
    }
    report(&complaints);
}

#[test]
fn nothing_is_left_undone() {
    let mut complaints = Vec::new();
    for source in sources(&["rs"]).iter().filter(|source| !source.path.starts_with("tests/tidy")) {
        for (number, line) in source.text.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
            for word in ["todo!(", "unimplemented!(", "#[ignore", "dbg!("] {
                if line.contains(word) {
                    complaints.push(format!("{}:{}: {word}", source.path, number + 1));
                }
            }
        }
    }
    report(&complaints);
}

#[test]
fn the_project_stands_alone() {
    let mut complaints = Vec::new();
    for source in sources(&["rs", "md", "toml", "yml", "sh", "tsv", "c"]) {
        if source.path.starts_with("tests/tidy") {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            for word in ["../shared", "/work/", "/root/", "/home/"] {
                let starts_a_path = |(at, _): (usize, &str)| {
                    !line[..at].ends_with(|before: char| before.is_alphanumeric() || ".-_/".contains(before))
                };
                if line.match_indices(word).any(starts_a_path) {
                    complaints.push(format!("{}:{}: names {word}", source.path, number + 1));
                }
            }
        }
    }
    report(&complaints);
}

/// Turns of phrase that are not plain English, with what to write. Threads and callers are things: "it", and "that".
const PHRASES: &[(&str, &str)] = &[
    ("for ever ", "forever"),
    ("for ever.", "forever"),
    ("for ever,", "forever"),
    ("without more.", "say without what"),
    ("without more,", "say without what"),
    ("without more;", "say without what"),
    ("further ado", "say what is left out"),
    ("unless said", "Default: ..."),
    ("As for ", "the same as for"),
    (": as for ", "the same as for"),
    (" he ", "it"),
    (" his ", "its"),
    (" him ", "it"),
    (" himself", "itself"),
    ("one who ", "a thread that"),
    ("those who ", "threads that"),
    ("all who ", "all that"),
    ("omebody who ", "a thread that"),
    ("obody who ", "no thread that"),
    ("hread who ", "a thread that"),
    ("hreads who ", "threads that"),
];

/// What names them, and programs that are kept as they were found.
const PHRASES_EXEMPT: &[&str] = &["tests/tidy.rs", "tests/corpus/", "tests/fuzz/corpus/"];

#[test]
fn words_are_plain() {
    let mut found = sources(&["rs", "md", "toml", "yml", "sh", "c"]);
    walk(&root().join("docs"), &["md", "sh"], &mut found);
    found.retain(|source| !PHRASES_EXEMPT.iter().any(|exempt| source.path.starts_with(exempt)));
    let mut complaints = Vec::new();
    for source in found {
        for (number, line) in source.text.lines().enumerate() {
            for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| line.contains(phrase)) {
                complaints.push(format!("{}:{}: {phrase:?}, better: {instead}", source.path, number + 1));
            }
        }
    }
    report(&complaints);
}

/// The floors of the core, as DESIGN.md draws them: its modules from the lowest up, on one floor from left to right.
fn floors() -> Vec<String> {
    let design = fs::read_to_string(root().join("DESIGN.md")).expect("DESIGN.md is there");
    let drawn = design.split("## Floors of the core").nth(1).and_then(|rest| rest.split("```").nth(1));
    let rows = drawn.expect("DESIGN.md draws the floors").lines().filter_map(|row| row.split_once('│'));
    let rows: Vec<Vec<_>> = rows.map(|(_, row)| row.split_whitespace().map(str::to_owned).collect()).collect();
    rows.into_iter().rev().flatten().collect()
}

/// The modules of the core that a file of it imports, with the lines: what comments, documentation and tests name aside.
fn imports(text: &str) -> Vec<(usize, String)> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut before = "";
    for (number, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default();
        for rest in line.split("crate::").skip(1).filter(|_| before != "#[cfg(doc)]") {
            let end = rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(rest.len());
            found.push((number + 1, rest[..end].to_owned()));
        }
        before = line.trim();
    }
    found
}

/// What stands on a floor and imports from a higher one, or from the right on its own. Nothing that passes has a cycle.
fn climbs(floors: &[String], path: &str, text: &str) -> Vec<String> {
    let place = |module: &str| floors.iter().position(|known| known == module);
    let module = path.trim_start_matches("core/src/").split(['/', '.']).next().unwrap_or_default();
    let Some(own) = place(module) else { return vec![format!("{path}: DESIGN.md does not say on which floor it is")] };
    let climbs = imports(text).into_iter().filter(|(_, other)| place(other).is_none_or(|other| other > own));
    climbs.map(|(line, other)| format!("{path}:{line}: imports {other}, which is not below {module}")).collect()
}

#[test]
fn the_core_has_floors() {
    let floors = floors();
    let mut complaints = Vec::new();
    let mut there = BTreeSet::new();
    for source in sources(&["rs"]) {
        let Some(below) = source.path.strip_prefix("core/src/").filter(|below| *below != "lib.rs") else { continue };
        there.extend(below.split(['/', '.']).next().map(str::to_owned));
        complaints.extend(climbs(&floors, &source.path, &source.text));
    }
    let listed: BTreeSet<_> = floors.iter().cloned().collect();
    complaints.extend(listed.difference(&there).map(|module| format!("{module} has a floor, and is not there")));
    assert_eq!(listed.len(), floors.len(), "each module is drawn once");
    report(&complaints);
}

/// S8: a number is taken with the proof that work was accepted and marked. One file makes it; its type stands lower.
#[test]
fn acceptance_is_proved_in_one_file() {
    let may = ["core/src/accept.rs", "core/src/point.rs"];
    let others = sources(&["rs"]).into_iter().filter(|source| source.path.starts_with("core/src"));
    let others = others.filter(|source| !may.contains(&source.path.as_str()) && source.text.contains("Accepted"));
    report(&others.map(|source| format!("{} names the proof of acceptance (S8)", source.path)).collect::<Vec<_>>());
}

#[test]
fn a_planted_cycle_is_found() {
    let floors: Vec<_> = ["id", "stream", "event"].map(str::to_owned).into();
    let climbs = |path: &str, text: &str| climbs(&floors, path, text).len();
    assert_eq!(climbs("core/src/event.rs", "use crate::stream::Stream;\nuse crate::id::Id;\n"), 0, "down");
    assert_eq!(climbs("core/src/stream/state.rs", "use crate::stream::Stream;\n"), 0, "within a module");
    assert_eq!(climbs("core/src/stream.rs", "use crate::event::Event;\n"), 1, "the other half of a cycle");
    assert_eq!(climbs("core/src/stream.rs", "fn f() -> crate::event::Event {}\n"), 1, "without `use`");
    assert_eq!(climbs("core/src/stream.rs", "/// [`crate::event`]\n#[cfg(doc)]\nuse crate::event::Event;\n"), 0);
    assert_eq!(climbs("core/src/other.rs", ""), 1, "on no floor");
}

#[test]
fn lines_fit() {
    let mut complaints = Vec::new();
    for source in sources(&["rs"]) {
        if source.path.contains("compile_") {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            let width = line.chars().count();
            // What cannot be broken: a row of a table, a long literal, a row of a macro's table.
            let is_row = is_comment(line) && line.trim_start_matches(['/', '!', ' ']).starts_with('|');
            let is_literal = line.contains("r##\"") || line.split('"').any(|part| part.len() > 40);
            let is_whole = is_row || is_literal || line.contains("https://") || line.starts_with("arguments!(");
            if width > LINE_WIDTH && !is_whole {
                complaints.push(format!("{}:{}: {width} columns", source.path, number + 1));
            }
        }
    }
    report(&complaints);
}

#[test]
fn functions_are_short() {
    let mut complaints = Vec::new();
    let mut used = BTreeSet::new();
    for source in sources(&["rs"]) {
        for (name, length) in functions(&source.text) {
            let key = format!("{} {name}", source.path);
            match LONG_FUNCTIONS.iter().find(|(known, _)| *known == key) {
                Some((known, _)) => drop(used.insert(*known)),
                None if length > FUNCTION_LINES => complaints.push(format!("{key}: {length} lines")),
                None => {}
            }
        }
    }
    for (known, _) in LONG_FUNCTIONS.iter().filter(|(known, _)| !used.contains(known)) {
        complaints.push(format!("{known} is listed as long, and is not there"));
    }
    report(&complaints);
}

/// Functions with their lengths in lines, by indentation: rustfmt closes a function at the column that it opens at.
fn functions(text: &str) -> BTreeMap<String, usize> {
    let (mut found, mut open): (_, Vec<(usize, String, usize)>) = (BTreeMap::new(), Vec::new());
    // A declaration without a body ends at its semicolon.
    let mut in_head = false;
    for (number, line) in text.lines().enumerate() {
        if in_head && line.trim_end().ends_with(['{', ';']) {
            in_head = false;
            if line.trim_end().ends_with(';') {
                open.pop();
            }
        }
        let indent = line.len() - line.trim_start().len();
        if line.trim() == "}"
            && let Some(index) = open.iter().rposition(|(column, ..)| *column == indent)
        {
            let (_, name, start) = open.remove(index);
            found.insert(name, number + 1 - start);
        }
        let Some((before, after)) = line.split_once("fn ") else { continue };
        let modifiers = ["pub", "pub(crate)", "pub(super)", "unsafe", "const", "extern", "\"C\"", "async"];
        let name: String = after.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        let ends_here = line.trim_end().ends_with(['}', ';']);
        if !name.is_empty() && !ends_here && before.split_whitespace().all(|word| modifiers.contains(&word)) {
            open.push((indent, name, number));
            in_head = !line.trim_end().ends_with('{');
        }
    }
    found
}
