//! Faults: what can be made to go wrong, and when.
//!
//! # The budget
//! A plan is a list of [`Fault`]s; without any, nothing fails that the rules do not make fail. Each is one of two
//! sorts:
//!
//! | fault | sort | what still holds afterwards |
//! |---|---|---|
//! | [`Fail`](Fault::Fail) | recoverable | the call changed nothing; the next one works, unless the rule is for all |
//! | [`FailAfter`](Fault::FailAfter) | recoverable | the call did all that it does, and what it made is lost: no leak of the caller's |
//! | [`Null`](Fault::Null) | recoverable | the call changed nothing and says that it worked |
//! | [`Block`](Fault::Block) | recoverable | the call does what it does, after all that the device has to do |
//! | [`LeaveError`](Fault::LeaveError) | recoverable | the call does what it does; its thread's last error is the code |
//! | [`SkipFunction`](Fault::SkipFunction) | recoverable | the stream goes on, but the host function never runs (P11) |
//! | [`HangFunction`](Fault::HangFunction) | lasting | the stream stands still forever; others go on |
//! | [`HangOperation`](Fault::HangOperation) | lasting | the same, for any operation |
//! | [`LoseDevice`](Fault::LoseDevice) | final | every call and every wait returns the code; nothing more runs (R6) |
//!
//! Memory that runs out is not a fault but a limit:
//! [`Engine::set_device_bytes`](crate::engine::Engine::set_device_bytes). Calls are counted from the moment a fault is
//! added, refused ones included, and numbers begin at 1.

use crate::code::Code;
use crate::event::CallName;

/// One thing to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The n-th call of this name returns `code` and does nothing.
    Fail {
        /// Which call.
        call: CallName,
        /// Which one of them, from 1.
        nth: u64,
        /// What it returns. A code that says the device is lost also loses it.
        code: Code,
        /// Whether all later ones fail as well.
        always: bool,
    },
    /// The n-th call of this name does all that it does, and then returns `code`: what it made or took cannot be known.
    FailAfter {
        /// Which call.
        call: CallName,
        /// Which one of them, from 1.
        nth: u64,
        /// What it returns. A code that says the device is lost also loses it.
        code: Code,
        /// Whether all later ones fail as well.
        always: bool,
    },
    /// The n-th call of this name does nothing and succeeds: an address or a handle that it gives is null. A call that
    /// gives something else does what it does.
    Null {
        /// Which call.
        call: CallName,
        /// Which one of them, from 1.
        nth: u64,
    },
    /// The n-th call of this name first waits for all that the device holds, whatever call it is. The engine alone
    /// waits only in calls that may wait; the drives do for every call.
    Block {
        /// Which call.
        call: CallName,
        /// Which one of them, from 1.
        nth: u64,
        /// Whether all later ones wait as well.
        always: bool,
    },
    /// The n-th call of this name succeeds, and leaves `code` behind as its thread's last error.
    LeaveError {
        /// Which call.
        call: CallName,
        /// Which one of them, from 1.
        nth: u64,
        /// What it leaves.
        code: Code,
    },
    /// The n-th host function to come up is not run, but the stream goes on.
    SkipFunction {
        /// Which one, from 1.
        nth: u64,
        /// Whether all later ones are skipped as well.
        always: bool,
    },
    /// The n-th host function to come up never starts, and its stream stands still.
    HangFunction {
        /// Which one, from 1.
        nth: u64,
    },
    /// The n-th operation or node to start never ends, and its stream stands still.
    HangOperation {
        /// Which one, from 1.
        nth: u64,
    },
    /// The device is lost when the n-th operation or node starts.
    LoseDevice {
        /// Which one, from 1.
        nth: u64,
        /// What every later call returns.
        code: Code,
    },
}

/// What becomes of an operation that is about to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Runs,
    Skipped,
    Hangs,
    LosesDevice(Code),
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What its rules say.
    #[default]
    Plain,
    Fails(Code),
    FailsAfter(Code),
    GivesNull,
    Leaves(Code),
}

/// The faults of one engine, with how far each has counted.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    rules: Vec<(Fault, u64)>,
}

impl Plan {
    /// Adds a fault.
    pub fn add(&mut self, fault: Fault) {
        self.rules.push((fault, 0));
    }

    /// Takes all faults away.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    #[inline]
    pub(crate) fn call(&mut self, call: CallName) -> Verdict {
        if self.rules.is_empty() { Verdict::Plain } else { self.call_counted(call) }
    }

    #[cold]
    fn call_counted(&mut self, made: CallName) -> Verdict {
        let mut verdict = Verdict::Plain;
        for (fault, seen) in &mut self.rules {
            let (call, nth, always, then) = match *fault {
                Fault::Fail { call, nth, code, always } => (call, nth, always, Verdict::Fails(code)),
                Fault::FailAfter { call, nth, code, always } => (call, nth, always, Verdict::FailsAfter(code)),
                Fault::Null { call, nth } => (call, nth, false, Verdict::GivesNull),
                Fault::LeaveError { call, nth, code } => (call, nth, false, Verdict::Leaves(code)),
                _ => continue,
            };
            if call == made && is_due(seen, nth, always) && verdict == Verdict::Plain {
                verdict = then;
            }
        }
        verdict
    }

    /// Whether a call that is about to be made waits for the device first.
    #[inline]
    pub(crate) fn blocks(&mut self, call: CallName) -> bool {
        !self.rules.is_empty() && self.blocks_counted(call)
    }

    #[cold]
    fn blocks_counted(&mut self, made: CallName) -> bool {
        let mut blocks = false;
        for (fault, seen) in &mut self.rules {
            let Fault::Block { call, nth, always } = *fault else { continue };
            blocks |= call == made && is_due(seen, nth, always);
        }
        blocks
    }

    #[inline]
    pub(crate) fn start(&mut self, is_function: bool) -> Fate {
        if self.rules.is_empty() { Fate::Runs } else { self.start_counted(is_function) }
    }

    #[cold]
    fn start_counted(&mut self, is_function: bool) -> Fate {
        let mut fate = Fate::Runs;
        for (fault, seen) in &mut self.rules {
            let (counts, nth, always, then) = match *fault {
                Fault::SkipFunction { nth, always } => (is_function, nth, always, Fate::Skipped),
                Fault::HangFunction { nth } => (is_function, nth, false, Fate::Hangs),
                Fault::HangOperation { nth } => (true, nth, false, Fate::Hangs),
                Fault::LoseDevice { nth, code } => (true, nth, false, Fate::LosesDevice(code)),
                _ => continue,
            };
            if counts && is_due(seen, nth, always) && fate == Fate::Runs {
                fate = then;
            }
        }
        fate
    }
}

/// Counts one more; whether the rule holds for this one.
fn is_due(seen: &mut u64, nth: u64, always: bool) -> bool {
    *seen += 1;
    *seen == nth || (always && *seen > nth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::driver::Call;

    #[test]
    fn a_rule_counts_its_own_calls_from_one() {
        let mut plan = Plan::default();
        let call = CallName::Core(Call::Launch);
        plan.add(Fault::Fail { call, nth: 2, code: Code::INVALID_VALUE, always: false });
        assert_eq!(plan.call(call), Verdict::Plain);
        assert_eq!(plan.call(CallName::DeviceSynchronize), Verdict::Plain);
        assert_eq!(plan.call(call), Verdict::Fails(Code::INVALID_VALUE));
        assert_eq!(plan.call(call), Verdict::Plain);
        plan.add(Fault::Fail { call, nth: 1, code: Code::UNKNOWN, always: true });
        assert_eq!(plan.call(call), Verdict::Fails(Code::UNKNOWN));
        assert_eq!(plan.call(call), Verdict::Fails(Code::UNKNOWN));
    }

    #[test]
    fn calls_that_wait_are_counted_apart_from_what_becomes_of_them() {
        let mut plan = Plan::default();
        let call = CallName::Core(Call::Malloc);
        plan.add(Fault::Block { call, nth: 2, always: false });
        plan.add(Fault::FailAfter { call, nth: 1, code: Code::UNKNOWN, always: false });
        assert_eq!((plan.blocks(call), plan.call(call)), (false, Verdict::FailsAfter(Code::UNKNOWN)));
        assert_eq!((plan.blocks(call), plan.call(call)), (true, Verdict::Plain));
        assert_eq!((plan.blocks(call), plan.call(call)), (false, Verdict::Plain));
    }

    #[test]
    fn functions_and_operations_are_counted_apart() {
        let mut plan = Plan::default();
        plan.add(Fault::SkipFunction { nth: 1, always: false });
        plan.add(Fault::HangOperation { nth: 3 });
        assert_eq!(plan.start(false), Fate::Runs);
        assert_eq!(plan.start(true), Fate::Skipped);
        assert_eq!(plan.start(true), Fate::Hangs);
        assert_eq!(plan.start(true), Fate::Runs);
    }
}
