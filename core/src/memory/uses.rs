//! What memory a submission uses.

use super::Backing;
use crate::driver::Driver;
pub use crate::ownership::UseSet;
use crate::ownership::{Access, Record};
use crate::sealed::Sealed;

/// One argument's memory, and what the submission does with it.
#[derive(Debug)]
pub struct Memory<'a, D: Driver> {
    pub(crate) backing: &'a Backing<D>,
    pub(crate) access: Access,
}

impl<D: Driver> Clone for Memory<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Memory<'_, D> {}

impl<D: Driver> Sealed for Memory<'_, D> {}
impl<D: Driver> Sealed for &[Memory<'_, D>] {}
impl<D: Driver, const N: usize> Sealed for [Memory<'_, D>; N] {}

impl<D: Driver> UseSet<Self, D> for Memory<'_, D> {
    #[inline]
    fn all_outright(&self, stream: u64) -> bool {
        self.backing.record().cover.is_of(stream)
    }

    #[inline]
    fn stamp_outright(&self, number: u64) {
        self.backing.record().cover.stamp(self.access, number);
    }

    #[inline]
    fn all(&self, test: impl Fn(&Record<D>, Access) -> bool + Copy) -> bool {
        // Empty memory has a record that nobody covers: it is asked about last.
        test(self.backing.record(), self.access) || self.backing.is_empty()
    }

    #[inline]
    fn each(&self, act: impl Fn(&Record<D>, Access) + Copy) {
        act(self.backing.record(), self.access);
    }

    #[inline]
    fn visit(&self, act: &mut impl FnMut(Self)) {
        if !self.backing.is_empty() {
            act(*self);
        }
    }
}

impl<'a, D: Driver> UseSet<Memory<'a, D>, D> for &[Memory<'a, D>] {
    #[inline]
    fn all_outright(&self, stream: u64) -> bool {
        // Nothing at all is not covered: it would not show that the stream is closed (R5).
        !self.is_empty() && self.iter().all(|memory| memory.all_outright(stream))
    }

    #[inline]
    fn stamp_outright(&self, number: u64) {
        self.iter().for_each(|memory| memory.stamp_outright(number));
    }

    #[inline]
    fn all(&self, test: impl Fn(&Record<D>, Access) -> bool + Copy) -> bool {
        self.iter().all(|memory| memory.all(test))
    }

    #[inline]
    fn each(&self, act: impl Fn(&Record<D>, Access) + Copy) {
        self.iter().for_each(|memory| memory.each(act));
    }

    fn visit(&self, act: &mut impl FnMut(Memory<'a, D>)) {
        self.iter().for_each(|memory| memory.visit(act));
    }
}

impl<'a, D: Driver, const N: usize> UseSet<Memory<'a, D>, D> for [Memory<'a, D>; N] {
    #[inline]
    fn all_outright(&self, stream: u64) -> bool {
        self.as_slice().all_outright(stream)
    }

    #[inline]
    fn stamp_outright(&self, number: u64) {
        self.as_slice().stamp_outright(number);
    }

    #[inline]
    fn all(&self, test: impl Fn(&Record<D>, Access) -> bool + Copy) -> bool {
        self.as_slice().all(test)
    }

    #[inline]
    fn each(&self, act: impl Fn(&Record<D>, Access) + Copy) {
        self.as_slice().each(act);
    }

    fn visit(&self, act: &mut impl FnMut(Memory<'a, D>)) {
        self.as_slice().visit(act);
    }
}

impl<'a, D: Driver> Memory<'a, D> {
    /// Memory that is only read.
    #[inline]
    pub fn read(backing: &'a Backing<D>) -> Self {
        Self::new(backing, Access::Read)
    }

    /// Memory that is written, and perhaps read.
    #[inline]
    pub fn write(backing: &'a Backing<D>) -> Self {
        Self::new(backing, Access::Write)
    }

    /// Memory that is accessed so.
    #[inline]
    pub fn new(backing: &'a Backing<D>, access: Access) -> Self {
        Self { backing, access }
    }
}
