//! The planted defects of the core, by name.

use std::collections::BTreeSet;
use std::path::Path;

#[allow(dead_code, reason = "what is woven is not woven here")]
#[path = "../../../planted/weave.rs"]
mod weave;

/// Every defect that can be planted, in the order of their names.
pub fn all() -> BTreeSet<String> {
    weave::names(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../planted")))
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
