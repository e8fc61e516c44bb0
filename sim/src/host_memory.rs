//! The host's memory as the simulated device sees it: the only file that touches real memory through addresses.
//!
//! Everything goes by copying in and out, so that no reference into the user's memory ever exists. Whether an access
//! may happen at all is decided before it comes here (registration, range, [`HostMap`]); that the memory is mapped and
//! stays so is promised by whoever submitted the work: the `# Safety` sections of the core's driver trait say it.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use tenure::driver::HostPointer;

const PAGE: usize = 4096;

/// Copies from host memory.
///
/// # Safety
/// - `to.len()` bytes at `from` are mapped and may be read, and nobody writes them meanwhile but by copies of this module.
pub unsafe fn read(from: HostPointer, to: &mut [u8]) {
    // SAFETY: P4. The caller vouches for the range; `to` is a reference, so that the two cannot overlap.
    unsafe { std::ptr::copy_nonoverlapping(from.0.as_ptr(), to.as_mut_ptr(), to.len()) }
}

/// Copies to host memory.
///
/// # Safety
/// - `from.len()` bytes at `to` are mapped and may be written, and no reference to any of them is in use.
pub unsafe fn write(to: HostPointer, from: &[u8]) {
    // SAFETY: P4. The caller vouches for the range; `from` is a reference, so that the two cannot overlap.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.0.as_ptr(), from.len()) }
}

/// Sets host memory to one value.
///
/// # Safety
/// - The same as for [`write`](fn@write).
pub unsafe fn fill(at: HostPointer, value: u8, bytes: usize) {
    // SAFETY: P4. The same as for `write`.
    unsafe { std::ptr::write_bytes(at.0.as_ptr(), value, bytes) }
}

/// Copies within host memory, where the ranges may overlap.
///
/// # Safety
/// - The same as for [`read`] of the one range and [`write`](fn@write) of the other.
pub unsafe fn copy(from: HostPointer, to: HostPointer, bytes: usize) {
    // SAFETY: P4. The same as for `read` and `write`; `copy` allows overlap.
    unsafe { std::ptr::copy(from.0.as_ptr(), to.0.as_ptr(), bytes) }
}

/// Host memory that the engine allocated for [`host_alloc`](tenure::driver::Driver::host_alloc); freed when dropped.
///
/// What was freed last is handed out first, per size and thread. That is what finds code that takes an address for an
/// identity, and it does not hang on what the system's allocator was at before.
pub struct PinnedBlock {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: P4. The block is owned by whoever holds this value, and reached only through it or through copies of its
// address whose use the driver trait's contract bounds.
unsafe impl Send for PinnedBlock {}

/// Blocks that nobody owns.
#[derive(Default)]
struct Shelf(Vec<(NonNull<u8>, Layout)>);

thread_local! {
    static SHELF: RefCell<Shelf> = RefCell::default();
}

impl Shelf {
    fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let at = self.0.iter().rposition(|(_, known)| *known == layout)?;
        Some(self.0.remove(at).0)
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(pointer, layout)| release(pointer, layout));
    }
}

fn release(pointer: NonNull<u8>, layout: Layout) {
    // SAFETY: P4. `pointer` came from `alloc` with this layout, and the caller owns it and lets it go.
    unsafe { dealloc(pointer.as_ptr(), layout) }
}

/// What new memory of the driver's is full of.
const LEFTOVER: u8 = 0xc5;

impl PinnedBlock {
    /// `bytes` bytes, aligned to a page, of which no driver says what they hold. `None` where the system has no more, or for no bytes.
    pub fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, PAGE).ok().filter(|layout| layout.size() > 0)?;
        if let Some(pointer) = SHELF.try_with(|shelf| shelf.borrow_mut().take(layout)).ok().flatten() {
            // SAFETY: P4. The block has as many bytes, and is nobody's but ours.
            unsafe { fill(HostPointer(pointer), LEFTOVER, bytes) };
            return Some(Self { pointer, layout });
        }
        // SAFETY: P4. The layout's size is above zero.
        let pointer = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: P4. The block has as many bytes, and is nobody's but ours.
        unsafe { fill(HostPointer(pointer), LEFTOVER, bytes) };
        Some(Self { pointer, layout })
    }

    /// Where it lies.
    pub fn pointer(&self) -> HostPointer {
        HostPointer(self.pointer)
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Its addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.pointer().address();
        start..start + self.bytes()
    }

    /// Fills it with what new memory holds.
    pub(crate) fn soil(&mut self) {
        // SAFETY: P4. The block has as many bytes, and is nobody's but ours.
        unsafe { fill(HostPointer(self.pointer), LEFTOVER, self.bytes()) };
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        let block = (self.pointer, self.layout);
        let kept = SHELF.try_with(|shelf| {
            let shelf = &mut shelf.borrow_mut().0;
            let has_room = shelf.len() < SHELF_MAX && self.layout.size() <= SHELF_BYTES_MAX;
            if has_room {
                shelf.push(block);
            }
            has_room
        });
        if !kept.unwrap_or(false) {
            release(block.0, block.1);
        }
    }
}

/// Blocks that a thread keeps, and the largest that it does.
const SHELF_MAX: usize = 64;
const SHELF_BYTES_MAX: usize = 1 << 18;

impl fmt::Debug for PinnedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBlock({:?}, {} bytes)", self.pointer, self.layout.size())
    }
}

/// What the process may do with a range of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// Nothing, for a part of it at least.
    None,
    /// Read all of it.
    Read,
    /// Read and write all of it.
    ReadWrite,
}

/// Tells what is mapped: asked when memory is registered.
pub trait HostMap: Send {
    /// The least that the process may do with any byte of the range.
    fn protection(&mut self, range: Range<usize>) -> Protection;
}

/// Takes all memory for mapped and writable.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrustedMap;

impl HostMap for TrustedMap {
    fn protection(&mut self, _: Range<usize>) -> Protection {
        Protection::ReadWrite
    }
}

/// A map made by hand, for tests.
#[derive(Clone, Debug, Default)]
pub struct ListedMap {
    /// Ranges with what may be done with them, sorted and apart. All else is not mapped.
    pub ranges: Vec<(Range<usize>, Protection)>,
}

impl HostMap for ListedMap {
    fn protection(&mut self, range: Range<usize>) -> Protection {
        least(&self.ranges, range)
    }
}

/// What the process may do by the system's own word, asked at each registration: what was mapped yesterday need not be
/// mapped so today. Where the system tells nothing, everything counts as writable.
///
/// On Linux pages are made present, for writing if they can be, as page-locking makes them; where the kernel cannot be
/// asked so, the list of mappings is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMap;

impl HostMap for ProcessMap {
    fn protection(&mut self, range: Range<usize>) -> Protection {
        system::protection(range)
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use super::{PAGE, Protection, least, parse_maps};
    use std::ops::Range;
    use std::sync::OnceLock;

    pub(super) fn protection(range: Range<usize>) -> Protection {
        static ANSWERS: OnceLock<bool> = OnceLock::new();
        let known = [0_u8; PAGE];
        let known = known.as_ptr() as usize;
        if !*ANSWERS.get_or_init(|| populate(known..known + 1, libc::MADV_POPULATE_WRITE)) {
            return listed(range);
        }
        if populate(range.clone(), libc::MADV_POPULATE_WRITE) {
            Protection::ReadWrite
        } else if populate(range, libc::MADV_POPULATE_READ) {
            Protection::Read
        } else {
            Protection::None
        }
    }

    /// Makes the pages of a range present; whether all of them can be used so.
    fn populate(range: Range<usize>, advice: libc::c_int) -> bool {
        let start = range.start - range.start % PAGE;
        let address = std::ptr::without_provenance_mut(start);
        // SAFETY: P4. The call changes no byte: it brings in pages of mappings that are there, and fails for others.
        unsafe { libc::madvise(address, range.end - start, advice) == 0 }
    }

    pub(super) fn listed(range: Range<usize>) -> Protection {
        match std::fs::read_to_string("/proc/self/maps") {
            Ok(text) => least(&parse_maps(&text), range),
            Err(_) => Protection::ReadWrite,
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(super) fn protection(_: std::ops::Range<usize>) -> super::Protection {
        super::Protection::ReadWrite
    }
}

fn least(ranges: &[(Range<usize>, Protection)], wanted: Range<usize>) -> Protection {
    let mut at = wanted.start;
    let mut least = Protection::ReadWrite;
    let first = ranges.partition_point(|(range, _)| range.end <= at);
    for (range, protection) in &ranges[first..] {
        if at >= wanted.end || range.start > at {
            break;
        }
        least = least.min(*protection);
        at = range.end;
    }
    if at >= wanted.end { least } else { Protection::None }
}

#[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code, reason = "asked on Linux alone"))]
fn parse_maps(text: &str) -> Vec<(Range<usize>, Protection)> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(Range<usize>, Protection)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let protection = match (rights.first(), rights.get(1)) {
        (Some(b'r'), Some(b'w')) => Protection::ReadWrite,
        (Some(b'r'), _) => Protection::Read,
        _ => Protection::None,
    };
    Some((usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?, protection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_the_least_of_its_parts() {
        let text = "1000-3000 rw-p 0 0 0\n3000-4000 r--p 0 0 0 file\n4000-5000 ---p 0 0 0\n6000-7000 rw-p 0 0 0\n";
        let mut map = ListedMap { ranges: parse_maps(text) };
        assert_eq!(map.protection(0x1000..0x3000), Protection::ReadWrite);
        assert_eq!(map.protection(0x2000..0x3001), Protection::Read);
        assert_eq!(map.protection(0x3fff..0x4001), Protection::None);
        assert_eq!(map.protection(0x4fff..0x6001), Protection::None);
        assert_eq!(map.protection(0x6fff..0x7001), Protection::None);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_system_tells_what_it_lets_the_process_do() {
        static CONSTANT: [u8; 3 * PAGE] = [7; 3 * PAGE];
        let heap = vec![0_u8; 3 * PAGE];
        let whole = |bytes: &[u8]| bytes.as_ptr() as usize..bytes.as_ptr() as usize + bytes.len();
        // Constants may share their first and last page with what can be written; the one between is all theirs.
        let constant = whole(&CONSTANT).start.next_multiple_of(PAGE);
        for asked in [system::protection, system::listed] {
            assert_eq!(asked(whole(&heap)), Protection::ReadWrite);
            assert_eq!(asked(constant..constant + PAGE), Protection::Read);
            assert_eq!(asked(8..16), Protection::None);
            assert_eq!(asked(constant..constant + (1 << 45)), Protection::None, "not all of it is there");
        }
        assert_eq!(ProcessMap.protection(8..16), Protection::None);
    }

    #[test]
    fn pinned_blocks_hold_what_is_written() {
        let block = PinnedBlock::new(5000).expect("the system has 5000 bytes");
        assert_eq!(block.pointer().address() % PAGE, 0);
        // SAFETY: P4. Inside of the block, which is ours.
        unsafe { write(block.pointer().offset(4990), &[1, 2, 3]) };
        // SAFETY: P4. Inside of the block, which is ours.
        unsafe { copy(block.pointer().offset(4990), block.pointer().offset(4991), 3) };
        // SAFETY: P4. Inside of the block, which is ours.
        unsafe { fill(block.pointer(), 9, 2) };
        let mut read_back = [0; 4];
        // SAFETY: P4. Inside of the block, which is ours.
        unsafe { read(block.pointer().offset(4990), &mut read_back) };
        assert_eq!(read_back, [1, 1, 2, 3]);
        // SAFETY: P4. Inside of the block, which is ours.
        unsafe { read(block.pointer(), &mut read_back) };
        assert_eq!(read_back, [9, 9, LEFTOVER, LEFTOVER]);
        assert!(PinnedBlock::new(0).is_none());
    }
}
