//! Weaves the planted defects into a copy of the core's source: for the build scripts of the packages that check that copy.
//!
//! Each file beside this one, `X.edits`, changes one file of `core/src`: `stream.accept.edits` is about `stream/accept.rs`.
//! An edit names its defects, then has the text to find and the text to put in its place:
//!
//! ```text
//! @@ o1_no_edge
//!     if point.is_complete() {
//! == put
//!     if crate::planted("o1_no_edge") || point.is_complete() {
//! ```
//!
//! The text to find must stand exactly once in the file, in whole lines: an edit that the core has moved away from fails the build.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One change to a file of the core.
pub struct Edit {
    /// The defects that it is a part of.
    pub names: Vec<String>,
    find: String,
    put: String,
}

/// The edits of one file, with the file's path below `core/src`.
pub fn edits(file: &Path) -> (PathBuf, Vec<Edit>) {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let name = file.file_stem().expect("a file of edits has a name").to_string_lossy().replace('.', "/");
    let edits = text.split("@@ ").skip(1).map(|edit| {
        let (names, rest) = edit.split_once('\n').expect("an edit has a body");
        let (find, put) = rest.split_once("\n== put\n").unwrap_or_else(|| panic!("{name}: `{names}` has no `== put`"));
        let names = names.split(' ').map(str::to_owned).collect();
        Edit { names, find: find.to_owned(), put: put.trim_end().to_owned() }
    });
    (format!("{name}.rs").into(), edits.collect())
}

/// The files of edits in `folder`.
pub fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())).flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "edits")).collect()
}

/// The defects that the edits in `folder` plant.
pub fn names(folder: &Path) -> BTreeSet<String> {
    let read = |file: &PathBuf| fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let texts: Vec<_> = files(folder).iter().map(read).collect();
    let named = texts.iter().flat_map(|text| text.split("planted(\"").skip(1));
    named.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

/// `text` with the edits made.
///
/// # Panics
/// Where the text to find does not stand there exactly once, in whole lines.
pub fn woven(file: &Path, text: &str, edits: &[Edit]) -> String {
    // Whole lines alone are found so.
    let mut text = format!("\n{text}");
    for Edit { names, find, put } in edits {
        let (find, put) = (format!("\n{find}\n"), format!("\n{put}\n"));
        let found = text.matches(&find).count();
        assert!(
            found == 1,
            "{}: the text that {names:?} changes stands there {found} times, not once:{find}",
            file.display()
        );
        text = text.replacen(&find, &put, 1);
    }
    text.split_off(1)
}

/// Writes the copy to `OUT_DIR/core`, and sets `cfg`.
pub fn weave(cfg: &str) {
    // Relative to the package, where cargo runs this: a build folder that was copied to another checkout must not name the first.
    let (planted, core) = (PathBuf::from("../planted"), PathBuf::from("../../core/src"));
    println!("cargo::rustc-cfg={cfg}");
    println!("cargo::rerun-if-changed={}", planted.display());
    println!("cargo::rerun-if-changed={}", core.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where to write")).join("core");
    let _none_yet = fs::remove_dir_all(&out);
    copy(&core, &out);
    for file in files(&planted) {
        let (path, edits) = edits(&file);
        rewrite(&out.join(&path), |text| woven(&path, text, &edits));
    }
    fs::copy(planted.join("switch.rs"), out.join("planted.rs")).expect("the switch is there");
    // What stands in front of the modules belongs to the package's own root, which includes this.
    rewrite(&out.join("lib.rs"), |text| {
        let lines = text.lines().filter(|line| !line.starts_with("//!") && !line.starts_with("#!["));
        let rest: Vec<_> = lines.collect();
        format!("pub mod planted;\nuse planted::planted;\n{}\n", rest.join("\n"))
    });
}

fn rewrite(file: &Path, change: impl FnOnce(&str) -> String) {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    fs::write(file, change(&text)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())).flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap_or_else(|error| panic!("{}: {error}", target.display()));
        }
    }
}
