//! What a move leaves on its stream for what it emptied.

use super::Point;
use crate::driver::Driver;
use crate::point::Number;

/// A number of the moving stream at or past the waits that ordered it after the uses of a buffer: it stands for them until
/// the first launch, also when that is refused (O5). It is nobody's use, and only the edges of a move make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch(u64);

impl Touch {
    /// Nothing had to be waited for: all was known to be complete.
    pub(crate) const NOTHING: Self = Self(0);

    /// At the wait itself.
    pub(crate) fn at_wait(number: Number) -> Self {
        Self(number.get())
    }

    /// At a use on the moving stream itself, whose order is the edge.
    pub(crate) fn at_own<D: Driver>(point: &Point<D>) -> Self {
        Self(point.number)
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}
