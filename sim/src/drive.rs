//! Who decides what happens next: everything around the pure engine that makes it move.
//!
//! | drive | the device moves | host threads | replays |
//! |---|---|---|---|
//! | [`Drive::Stepped`] | where the test says ([`Sim::step`](crate::driver::Sim::step)), and as far as a wait needs | real | by the test |
//! | [`Drive::Seeded`] | between driver calls, as one number decides; by itself while a host function waits to be called | real, or one at a time under [`check`](crate::check::check) | by the number |
//! | [`Drive::Threaded`] | on a thread of its own, in real time | real | no |
//! | explored | in every order, one after the other | one at a time | by the choices |
//!
//! The explored drive is a way of running [`check`](crate::check::check), not of building one simulation.
//!
//! Under a schedule every driver call is a point where others may run, before it takes effect and once more after; a
//! call that blocks and a contended lock are such points too. So what a schedule can reach is every order of driver
//! calls and device steps, and every place of the code between two calls, but not every order of the instructions in
//! between: models of the locks and atomics themselves do that.

pub(crate) mod explored;
pub(crate) mod fiber;
pub(crate) mod footprint;
pub(crate) mod lock;
pub(crate) mod mover;
pub(crate) mod reduced;
pub(crate) mod schedule;
pub(crate) mod seat;
pub(crate) mod seeded;
pub(crate) mod shelf;
pub(crate) mod stepped;
pub(crate) mod threaded;
pub(crate) mod turns;
pub(crate) mod watch;
pub(crate) mod world;

pub use self::schedule::Policy;
pub use self::seat::Seats;

/// How a simulation moves. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drive {
    /// A test decides each step of the device. A wait steps it as far as it needs, the oldest work first.
    Stepped,
    /// One number decides.
    #[default]
    Seeded,
    /// The device has a thread of its own.
    Threaded,
}
