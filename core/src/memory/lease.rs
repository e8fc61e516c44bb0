//! Leases of registered host memory.

use crate::driver::{DeviceAddress, Driver};
use crate::ownership::Points;
use crate::reclaim::{Resource, Retired};
use crate::registration::{Owner, Pin};
use crate::shared::Anchor;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};

/// One count on a registration (P5).
#[derive(Debug)]
pub(crate) struct PinLease<D: Driver> {
    pub(crate) pin: Arc<Pin<D>>,
    /// The device's address of the wrap's first byte.
    pub(crate) device: DeviceAddress,
    pub(crate) anchor: Arc<Anchor<D>>,
    /// The wrap's own owner, where the registration was made with another, or with none. It can be given back; otherwise
    /// it stays until the work on the memory has completed, or goes with the registration if this wrap is the last (P4).
    pub(crate) own: std::sync::Mutex<Owner>,
    /// Whether it is of a scope, which a graph could outlive.
    pub(crate) scoped: bool,
    pub(crate) ended: AtomicBool,
}

impl<D: Driver> PinLease<D> {
    /// Gives the count back, the first time; the epoch of the release when it was the last (P5).
    pub(crate) fn end(&self) -> Option<u64> {
        // Relaxed: the swap picks one caller; what it does is ordered by the table's lock.
        self.give_back_unless(self.ended.swap(true, Ordering::Relaxed))
    }

    pub(crate) fn give_back_unless(&self, ended: bool) -> Option<u64> {
        if ended || self.anchor.context.life.is_inherited() { None } else { self.anchor.pins.give_back(&self.pin) }
    }
}

impl<D: Driver> Drop for PinLease<D> {
    fn drop(&mut self) {
        // Relaxed, and no swap: `&mut` proves that nobody else is at it.
        let ended = self.ended.load(Ordering::Relaxed);
        let own = inside(&mut self.own).take();
        if ended {
            return retire_owner(&self.anchor, &self.pin, own);
        }
        // P7: no driver call, no wait.
        let parted = self.anchor.pins.part(&self.pin, own, true);
        if let Some(epoch) = parted.epoch.filter(|_| parted.retires) {
            retire(&self.anchor, &self.pin, epoch);
        }
        retire_owner(&self.anchor, &self.pin, parted.owner);
    }
}

/// Queues the one ticket of a range. The caller has filed it.
pub(crate) fn retire<D: Driver>(anchor: &Anchor<D>, pin: &Arc<Pin<D>>, epoch: u64) {
    let resource = Resource::Pin(pin.clone(), epoch);
    anchor.reclaim.retire(Retired { resource, points: Points::new() });
}

/// Keeps an owner until the work on its memory has completed (P4).
pub(crate) fn retire_owner<D: Driver>(anchor: &Anchor<D>, pin: &Arc<Pin<D>>, owner: Owner) {
    let Some(owner) = owner else { return };
    let resource = Resource::Owner(pin.clone(), owner);
    anchor.reclaim.retire(Retired { resource, points: Points::new() });
}

/// The owner, without the lock.
pub(crate) fn inside(owner: &mut std::sync::Mutex<Owner>) -> &mut Owner {
    owner.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
}
