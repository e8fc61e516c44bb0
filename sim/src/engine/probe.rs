//! Whether a kernel reads what nothing wrote through an argument that it may also write.
//!
//! Nobody sees a closure read. So the kernel runs once more, on copies in which the bytes that nothing wrote are others:
//! where what it writes then differs, it has read them. Bytes that it leaves as they are say nothing.

use super::Engine;
use crate::event::{Access, AllocationId, Event, OpId};
use crate::kernel::{Bound, Kernel};
use crate::memory::{Place, place};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tenure::driver::DeviceAddress;

/// An argument of the kernel under way that holds bytes which nothing wrote.
#[derive(Debug)]
pub(super) struct Gaps {
    bound: usize,
    allocation: AllocationId,
    offset: u64,
    bytes: u64,
    /// From the argument's start on.
    at: Vec<Range<usize>>,
}

/// What a kernel's memory was and came to, with other bytes where nothing had written.
#[derive(Debug)]
pub(super) struct Twin {
    before: Vec<Bound>,
    other_before: Vec<Bound>,
    other: Vec<Bound>,
}

impl Engine {
    /// Looks at the argument that is bound next, before it counts as written.
    pub(super) fn note_gaps(&mut self, bound: usize, address: DeviceAddress, bytes: u64, access: Access) {
        if !self.probes_kernels || access == Access::Read || bytes == 0 {
            return;
        }
        let Place::Device { slot, offset } = place(address) else { return };
        let Ok(allocation) = self.memory.check(slot, offset, bytes) else { return };
        let at = self.memory.unwritten(slot, offset, bytes);
        if !at.is_empty() {
            self.gaps.push(Gaps { bound, allocation, offset, bytes, at });
        }
    }

    /// Runs the kernel on copies, where there is something to see.
    pub(super) fn run_twin(&self, kernel: &Kernel, bounds: &[Bound]) -> Option<Twin> {
        if self.gaps.is_empty() {
            return None;
        }
        let before: Vec<Bound> = bounds.iter().map(Bound::duplicate).collect();
        let mut other: Vec<Bound> = bounds.iter().map(Bound::duplicate).collect();
        for gaps in &self.gaps {
            let bytes = other.get_mut(gaps.bound)?.bytes_mut();
            gaps.at.iter().for_each(|range| bytes[range.clone()].iter_mut().for_each(|byte| *byte = !*byte));
        }
        let other_before = other.iter().map(Bound::duplicate).collect();
        // A panic is told when the kernel itself runs.
        catch_unwind(AssertUnwindSafe(|| kernel.run(&mut other))).ok()?;
        Some(Twin { before, other_before, other })
    }

    /// Tells of what the kernel has read, now that it has run on its own memory as well.
    pub(super) fn compare_twin(&mut self, op: OpId, twin: Option<Twin>, bounds: &[Bound]) {
        let gaps = std::mem::take(&mut self.gaps);
        let Some(twin) = twin else { return };
        let hangs_on_gaps = bounds.iter().enumerate().any(|(index, after)| {
            let (after, other) = (after.bytes(), twin.other[index].bytes());
            let (before, other_before) = (twin.before[index].bytes(), twin.other_before[index].bytes());
            let is_left = |at: usize| after[at] == before[at] && other[at] == other_before[at];
            (0..after.len()).any(|at| after[at] != other[at] && !is_left(at))
        });
        if let Some(Gaps { allocation, offset, bytes, .. }) = gaps.into_iter().next().filter(|_| hangs_on_gaps) {
            self.push(Event::UnwrittenRead { op, allocation, start: offset, bytes });
        }
    }
}
