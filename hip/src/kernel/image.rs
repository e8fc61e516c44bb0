//! Checks a code object before the library reads it: the library gets no length, and would follow the headers of a file
//! that was cut short past its end.

const ELF: &[u8] = b"\x7fELF";
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED_BUNDLE: &[u8] = b"CCOB";
const CUDA_FAT_BINARY: &[u8] = &[0x50, 0xed, 0x55, 0xba];
/// More than any reader looks past the end of a text.
const PADDING_BYTES: usize = 64;

/// A copy of `code` with zero bytes after it, once it is known to hold all that its headers name.
pub(crate) fn padded(code: &[u8], accepts_text: bool) -> Result<Box<[u8]>, &'static str> {
    let is_whole = if code.starts_with(ELF) {
        elf_is_whole(code)
    } else if code.starts_with(BUNDLE) {
        bundle_is_whole(code)
    } else if code.starts_with(COMPRESSED_BUNDLE) {
        compressed_is_whole(code)
    } else if accepts_text && code.starts_with(CUDA_FAT_BINARY) {
        fat_binary_is_whole(code)
    } else if accepts_text && is_text(code) {
        Some(true)
    } else {
        return Err("not a code object");
    };
    if is_whole != Some(true) {
        return Err("a code object that was cut short");
    }
    let mut padded = code.to_vec();
    padded.resize(code.len() + PADDING_BYTES, 0);
    Ok(padded.into())
}

/// PTX: a text that ends with or before its only zero byte, and names its version, as each must before all else. CUDA
/// itself takes any text and reads it only when a kernel of it is asked for.
fn is_text(code: &[u8]) -> bool {
    let text = code.strip_suffix(&[0]).unwrap_or(code);
    !text.contains(&0) && std::str::from_utf8(text).is_ok_and(|text| text.contains(".version"))
}

fn number<const BYTES: usize>(code: &[u8], at: usize) -> Option<u64> {
    let bytes = code.get(at..at.checked_add(BYTES)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn holds(code: &[u8], offset: u64, bytes: u64) -> Option<bool> {
    Some(offset.checked_add(bytes)? <= code.len() as u64)
}

/// Both header tables of a 64-bit ELF file, and every segment and section that has bytes in it.
fn elf_is_whole(code: &[u8]) -> Option<bool> {
    const CLASS_64: u64 = 2;
    const NO_BITS: u64 = 8;
    if number::<1>(code, 4)? != CLASS_64 {
        return Some(false);
    }
    let (segments, segment_bytes, segment_count) =
        (number::<8>(code, 32)?, number::<2>(code, 54)?, number::<2>(code, 56)?);
    let (sections, section_bytes, section_count) =
        (number::<8>(code, 40)?, number::<2>(code, 58)?, number::<2>(code, 60)?);
    for index in 0..segment_count {
        let at = usize::try_from(segments.checked_add(index * segment_bytes)?).ok()?;
        if !holds(code, number::<8>(code, at.checked_add(8)?)?, number::<8>(code, at.checked_add(32)?)?)? {
            return Some(false);
        }
    }
    for index in 0..section_count {
        let at = usize::try_from(sections.checked_add(index * section_bytes)?).ok()?;
        let has_bytes = number::<4>(code, at.checked_add(4)?)? != NO_BITS;
        if has_bytes && !holds(code, number::<8>(code, at.checked_add(24)?)?, number::<8>(code, at.checked_add(32)?)?)?
        {
            return Some(false);
        }
    }
    Some(true)
}

/// Every entry of a bundle: offset, size, length of its name, name.
fn bundle_is_whole(code: &[u8]) -> Option<bool> {
    let count = number::<8>(code, BUNDLE.len())?;
    let mut at = BUNDLE.len() + 8;
    for _ in 0..count {
        let name_bytes = usize::try_from(number::<8>(code, at.checked_add(16)?)?).ok()?;
        if !holds(code, number::<8>(code, at)?, number::<8>(code, at.checked_add(8)?)?)? {
            return Some(false);
        }
        at = at.checked_add(24)?.checked_add(name_bytes)?;
        if at > code.len() {
            return Some(false);
        }
    }
    Some(true)
}

/// Version 1 carries no size of the file; later ones do, in 4 bytes in version 2 and in 8 in version 3.
fn compressed_is_whole(code: &[u8]) -> Option<bool> {
    match number::<2>(code, 4)? {
        1 => Some(code.len() > 24),
        2 => Some(number::<4>(code, 8)? <= code.len() as u64),
        _ => Some(number::<8>(code, 8)? <= code.len() as u64),
    }
}

/// Magic, version, size of the header, size of what follows it.
fn fat_binary_is_whole(code: &[u8]) -> Option<bool> {
    holds(code, number::<2>(code, 6)?, number::<8>(code, 8)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, one segment header and one section header, each naming bytes at the end.
    fn elf() -> Vec<u8> {
        let mut code = vec![0_u8; 64 + 56 + 64 + 16];
        code[..4].copy_from_slice(ELF);
        code[4] = 2;
        code[32] = 64;
        code[40] = 120;
        code[54] = 56;
        code[56] = 1;
        code[58] = 64;
        code[60] = 1;
        code[64 + 8] = 184;
        code[64 + 32] = 16;
        code[120 + 4] = 1;
        code[120 + 24] = 184;
        code[120 + 32] = 16;
        code
    }

    fn bundle() -> Vec<u8> {
        let mut code = BUNDLE.to_vec();
        for number in [1_u64, 60, 4, 4] {
            code.extend_from_slice(&number.to_le_bytes());
        }
        code.extend_from_slice(b"hip-code");
        code
    }

    #[test]
    fn whole_code_is_accepted_with_zeros_after_it() {
        for code in [elf(), bundle()] {
            let padded = padded(&code, false).expect("whole code");
            assert_eq!((&padded[..code.len()], &padded[code.len()..]), (&code[..], &[0; PADDING_BYTES][..]));
        }
    }

    #[test]
    fn code_that_was_cut_anywhere_is_refused() {
        for code in [elf(), bundle()] {
            for length in 0..code.len() {
                assert!(padded(&code[..length], false).is_err(), "cut to {length} of {}", code.len());
            }
        }
    }

    #[test]
    fn numbers_that_overflow_are_refused() {
        for at in [32, 40, 64 + 8, 64 + 32, 120 + 24, 120 + 32] {
            let mut code = elf();
            code[at..at + 8].fill(0xff);
            assert!(padded(&code, false).is_err(), "at {at}");
        }
        let mut code = bundle();
        code[BUNDLE.len()..].fill(0xff);
        assert!(padded(&code, false).is_err());
    }

    #[test]
    fn text_is_code_only_where_it_is_asked_for() {
        let text = b".version 8.0\n.target sm_90\n";
        assert!(padded(text, true).is_ok());
        assert_eq!(padded(text, false), Err("not a code object"));
        for garbage in [&b""[..], b"not code", b"\0.version 8.0"] {
            assert_eq!(padded(garbage, true), Err("not a code object"));
        }
    }
}
