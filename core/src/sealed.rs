//! Traits that this crate alone implements: unsafe code trusts what they say.

/// See the module.
pub trait Sealed {}

/// What fits a parameter `P`. See the module.
pub trait KernelArgument<'a, P, D> {}
