//! Device memory, from the driver's call that makes it to its release.

use crate::call_scope::MayWait;
use crate::driver::{DeviceAddress, Driver};
use crate::error::{Error, Result};
use crate::id::ResourceId;
use crate::life::Phase;
use crate::ownership::Record;
use crate::reclaim::{Resource, Retired};
use crate::shared::Anchor;
use crate::sync::Arc;

/// What an explicit free came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Freed {
    /// It is done.
    Now,
    /// Something still uses it (a graph, another wrap, a capture that is going on): it happens when that ends.
    Deferred,
}

/// One allocation of device memory.
#[derive(Debug)]
pub(crate) struct Allocation<D: Driver> {
    pub(crate) id: ResourceId,
    /// What the driver gave, and gets back.
    pub(crate) address: DeviceAddress,
    /// Where the elements begin.
    pub(super) start: DeviceAddress,
    pub(crate) record: Record<D>,
    pub(crate) anchor: Arc<Anchor<D>>,
    /// Whether the driver has it back.
    is_freed: bool,
}

impl<D: Driver> Allocation<D> {
    /// What the driver just gave.
    pub(crate) fn new(address: DeviceAddress, record: Record<D>, anchor: Arc<Anchor<D>>) -> Self {
        Self { id: ResourceId::fresh(), address, start: address, record, anchor, is_freed: false }
    }

    /// The same, for elements that begin at a multiple of `align`. [`slack`] was allocated for that.
    pub(crate) fn aligned(mut self, align: usize) -> Self {
        if slack(align) > 0 {
            self.start = DeviceAddress(self.address.0.next_multiple_of(align as u64));
        }
        self
    }

    /// Gives it back here and now: the caller has waited for all its work. Where a capture forbids that, it is retired.
    pub(crate) fn free_now(mut self, may: &MayWait) -> Result<Freed> {
        let anchor = self.anchor.clone();
        if anchor.context.life.is_past(Phase::Shut) {
            return Err(Error::Closed);
        }
        match anchor.reclaim.free_now(&anchor.context, &anchor.pins, self.address, may) {
            None => Ok(Freed::Deferred),
            Some(answer) => {
                // Also where the driver refused: it is not asked again.
                self.is_freed = true;
                answer.map(|()| Freed::Now)
            }
        }
    }
}

/// How much more than its elements an allocation has to hold, for them to begin at a multiple of `align`.
pub(crate) fn slack(align: usize) -> usize {
    if align > DEVICE_ALIGNMENT { align - 1 } else { 0 }
}

/// What a driver aligns device memory to.
const DEVICE_ALIGNMENT: usize = 256;

impl<D: Driver> Drop for Allocation<D> {
    fn drop(&mut self) {
        if self.is_freed {
            return;
        }
        // O6: exclusive, since this was the last holder: everything submitted is in the record.
        let points = self.record.into_points();
        self.anchor.reclaim.retire(Retired { resource: Resource::Memory(self.address), points });
    }
}
