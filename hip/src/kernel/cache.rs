//! One file an entry: what its code depends on, the code, and a checksum over both.
//!
//! The file's name is a hash of the key, and the key itself stands in the file: two keys of one hash cannot be mistaken
//! for each other, they only replace each other. std's hash may change with Rust; then entries are compiled anew.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::Code;

const MAGIC: &[u8] = b"tenure kernel 1\n";
const ENTRIES_MAX: usize = 1024;
const ENDING: &str = "kernel";

/// The folder of the cache; `None` where there is none or it is turned off.
pub(super) fn folder() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("TENURE_CACHE_DIR") {
        return (!folder.is_empty()).then(|| folder.into());
    }
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let root = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(root.join("tenure").join("kernels"))
}

/// Appends a part with its length.
pub(super) fn push_part(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

/// The code that was compiled for `key`; `None` where there is no entry, or it is not whole.
pub(super) fn read(folder: &Path, key: &[u8]) -> Option<Code> {
    decode(&fs::read(path(folder, key)).ok()?, key)
}

/// Keeps `code`. A failure only means that it is compiled again.
pub(super) fn write(folder: &Path, key: &[u8], code: &Code) {
    if fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).is_err() {
        return;
    }
    let partial = folder.join(partial_name());
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)
        .and_then(|mut file| file.write_all(&encode(key, code)))
        .and_then(|()| fs::rename(&partial, path(folder, key)));
    match written {
        Ok(()) => trim(folder, ENTRIES_MAX),
        Err(_) => drop(fs::remove_file(&partial)),
    }
}

fn path(folder: &Path, key: &[u8]) -> PathBuf {
    folder.join(format!("{:016x}.{ENDING}", checksum(key)))
}

/// A name that no other writer has: of this process by the count, of others by the process.
fn partial_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: uniqueness only.
    format!(".{}-{}.partial", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn encode(key: &[u8], code: &Code) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    push_part(&mut bytes, key);
    push_part(&mut bytes, &code.bytes);
    push_part(&mut bytes, code.log.as_bytes());
    for (expression, name) in &code.lowered {
        push_part(&mut bytes, expression.as_bytes());
        push_part(&mut bytes, name.as_bytes());
    }
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8], key: &[u8]) -> Option<Code> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if checksum(body) != u64::from_le_bytes(*sum) {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    if take_part(&mut rest)? != key {
        return None;
    }
    let code = take_part(&mut rest)?.to_vec();
    let log = take_text(&mut rest)?;
    let mut lowered = Vec::new();
    while !rest.is_empty() {
        lowered.push((take_text(&mut rest)?, take_text(&mut rest)?));
    }
    Some(Code { bytes: code, log, lowered, is_cached: true })
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first_chunk::<8>()?;
    let (part, tail) = tail.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *rest = tail;
    Some(part)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_part(rest)?.to_vec()).ok()
}

/// Removes the oldest entries beyond `entries_max`.
fn trim(folder: &Path, entries_max: usize) {
    let Ok(listing) = fs::read_dir(folder) else {
        return;
    };
    let age = |path: PathBuf| {
        let time = fs::metadata(&path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        (time, path)
    };
    let is_entry = |path: &PathBuf| path.extension().is_some_and(|ending| ending == ENDING);
    let mut entries: Vec<_> = listing.flatten().map(|entry| entry.path()).filter(is_entry).map(age).collect();
    let surplus = entries.len().saturating_sub(entries_max);
    if surplus > 0 {
        entries.sort();
        entries.into_iter().take(surplus).for_each(|(_, path)| drop(fs::remove_file(path)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own for each test, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = env::temp_dir().join(format!("tenure-cache-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn code() -> Code {
        let lowered = vec![("scale<float>".into(), "_Z5scaleIfEvPT_".into())];
        Code { bytes: vec![1, 2, 3], log: "warning: none".into(), lowered, is_cached: true }
    }

    #[test]
    fn what_was_written_is_read_back_whole() {
        let folder = Folder::new("whole");
        write(&folder.0, b"key", &code());
        assert_eq!(read(&folder.0, b"key"), Some(code()));
        assert_eq!(read(&folder.0, b"another key"), None);
        let left: Vec<_> = fs::read_dir(&folder.0).expect("the folder").flatten().collect();
        assert_eq!(left.len(), 1, "no partial file stays behind");
    }

    #[test]
    fn an_entry_that_was_cut_or_changed_anywhere_is_ignored() {
        let whole = encode(b"key", &code());
        assert!(decode(&whole, b"key").is_some());
        for length in 0..whole.len() {
            assert_eq!(decode(&whole[..length], b"key"), None, "cut to {length} bytes");
        }
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 0x10;
            assert_eq!(decode(&changed, b"key"), None, "changed at {place}");
        }
    }

    #[test]
    fn a_key_of_the_same_hash_is_not_mistaken() {
        let folder = Folder::new("hash");
        write(&folder.0, b"key", &code());
        fs::rename(path(&folder.0, b"key"), path(&folder.0, b"other")).expect("the entry");
        assert_eq!(read(&folder.0, b"other"), None);
    }

    #[test]
    fn the_oldest_entries_go_first() {
        let folder = Folder::new("oldest");
        for (age, key) in [(300, b"a"), (200, b"b"), (100, b"c")] {
            write(&folder.0, key, &code());
            let file = fs::File::options().write(true).open(path(&folder.0, key)).expect("the entry");
            let time = SystemTime::now() - std::time::Duration::from_secs(age);
            file.set_modified(time).expect("the time");
        }
        trim(&folder.0, 2);
        let kept = [b"a", b"b", b"c"].map(|key| read(&folder.0, key).is_some());
        assert_eq!(kept, [false, true, true]);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_failure() {
        write(Path::new("/dev/null/cache"), b"key", &code());
        assert_eq!(read(Path::new("/dev/null/cache"), b"key"), None);
    }
}
