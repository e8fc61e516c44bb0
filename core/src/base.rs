//! What a release needs, and so every handle: the driver with what surrounds its calls, the pins, and the queue of the retired.

use crate::context::Context;
use crate::driver::Driver;
use crate::reclaim::Reclaim;
use crate::registration::Pins;

/// The lowest part of what the handles of a runtime share.
#[derive(Debug)]
pub struct Base<D: Driver> {
    pub(crate) context: Context<D>,
    pub(crate) pins: Pins<D>,
    pub(crate) reclaim: Reclaim<D>,
}

impl<D: Driver> Base<D> {
    /// Around `driver`, with nothing pinned and nothing retired.
    pub(crate) fn new(driver: D) -> Self {
        Self { context: Context::new(driver), pins: Pins::new(), reclaim: Reclaim::new() }
    }
}
