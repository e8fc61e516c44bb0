//! The planted defects of the core, by name.

use std::collections::BTreeSet;
use std::path::Path;

/// Every defect that can be planted, in the order of their names.
pub fn all() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    find(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../planted")), &mut names);
    names
}

fn find(folder: &Path, names: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            find(&path, names);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let after = text.split("planted(\"").skip(1);
            names.extend(after.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
}

/// Arms the defect of this name, and no other.
///
/// # Errors
/// There is none of this name.
pub fn arm(name: &str) -> Result<(), String> {
    if !all().contains(name) {
        return Err(format!("there is no planted defect `{name}`; --list names all"));
    }
    // The name lives as long as the process; there are as many as defects.
    tenure::planted::arm(Some(Box::leak(name.to_owned().into_boxed_str())));
    Ok(())
}

/// The core as it is.
pub fn disarm() {
    tenure::planted::arm(None);
}
