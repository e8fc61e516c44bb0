//! Which architectures the compiler knows.
//!
//! hiprtc of 5.2 to 6.4 aborts the process over an architecture that it does not know, where 7.2 returns an error (seen
//! with Debian's 5.2.3, 5.7.1, 6.4.3 and 7.2.4). The library that it compiles with, comgr, lists what it knows, and in
//! all four versions exactly the names on that list were safe: so a name is looked up there first.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::{SUCCESS, text_of};
use crate::load::{self, Platform};
use crate::sys::Comgr;

/// hiprtc opens the one that its own version was built with; the newer first, as loaders prefer it.
const NAMES: [&str; 2] = ["libamd_comgr.so.3", "libamd_comgr.so.2"];
/// The first version that was seen to return an error.
const SAFE_SINCE: c_int = 70_200_000;
/// From here on the newer one is used.
const NEWER_SINCE: c_int = 60_300_000;

/// Whether compiling for `architecture` is safe: it is known, or there is no list to look it up in.
pub(super) fn is_known(architecture: &str, compiler: &Path) -> bool {
    static KNOWN: OnceLock<Vec<String>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| list(compiler));
    let name = architecture.split(':').next().unwrap_or_default();
    known.is_empty() || known.iter().any(|known| known == name)
}

/// The names on comgr's list; none where it is not needed or not there.
fn list(compiler: &Path) -> Vec<String> {
    let version = match load::library() {
        Ok(library) if library.platform == Platform::Amd => library.version,
        _ => return Vec::new(),
    };
    if version >= SAFE_SINCE {
        return Vec::new();
    }
    let comgr = load::open_comgr(&candidates(compiler, version < NEWER_SINCE));
    comgr.map_or_else(Vec::new, |comgr| names(&comgr))
}

fn candidates(compiler: &Path, is_older: bool) -> Vec<PathBuf> {
    let mut names = NAMES;
    if is_older {
        names.reverse();
    }
    let beside = names.iter().filter_map(|name| compiler.parent().map(|folder| folder.join(name)));
    beside.filter(|path| path.exists()).chain(names.iter().map(PathBuf::from)).collect()
}

fn names(comgr: &Comgr) -> Vec<String> {
    let mut count = 0;
    // SAFETY: H3. A local integer.
    if unsafe { comgr.amd_comgr_get_isa_count(&mut count) } != SUCCESS {
        return Vec::new();
    }
    let name = |index| {
        let mut name = std::ptr::null();
        // SAFETY: H3. A local pointer, and an index below the count.
        let code = unsafe { comgr.amd_comgr_get_isa_name(index, &mut name) };
        // As in "amdgcn-amd-amdhsa--gfx90a".
        let name = if code == SUCCESS { text_of(name) } else { String::new() };
        name.rsplit_once("--").map(|(_, name)| name.to_string())
    };
    (0..count).filter_map(name).collect()
}
