//! Faults: what can be made to go wrong, and when.
//!
//! # The budget
//! A plan is a list of [`Fault`]s; without any, nothing fails that the rules do not make fail. Each is one of two
//! sorts:
//!
//! | fault | sort | what still holds afterwards |
//! |---|---|---|
//! | [`Fail`](Fault::Fail) | recoverable | the call changed nothing; the next one works, unless the rule is for all |
//! | [`SkipFunction`](Fault::SkipFunction) | recoverable | the stream goes on, but the host function never runs (P11) |
//! | [`HangFunction`](Fault::HangFunction) | lasting | the stream stands still for ever; others go on |
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
    pub(crate) fn call(&mut self, call: CallName) -> Option<Code> {
        if self.rules.is_empty() { None } else { self.call_counted(call) }
    }

    #[cold]
    fn call_counted(&mut self, made: CallName) -> Option<Code> {
        let mut answer = None;
        for (fault, seen) in &mut self.rules {
            let Fault::Fail { call, nth, code, always } = *fault else { continue };
            if call == made {
                *seen += 1;
                let due = *seen == nth || (always && *seen > nth);
                answer = answer.or(due.then_some(code));
            }
        }
        answer
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
                Fault::Fail { .. } => continue,
                Fault::SkipFunction { nth, always } => (is_function, nth, always, Fate::Skipped),
                Fault::HangFunction { nth } => (is_function, nth, false, Fate::Hangs),
                Fault::HangOperation { nth } => (true, nth, false, Fate::Hangs),
                Fault::LoseDevice { nth, code } => (true, nth, false, Fate::LosesDevice(code)),
            };
            if counts {
                *seen += 1;
                if fate == Fate::Runs && (*seen == nth || (always && *seen > nth)) {
                    fate = then;
                }
            }
        }
        fate
    }
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
        assert_eq!(plan.call(call), None);
        assert_eq!(plan.call(CallName::DeviceSynchronize), None);
        assert_eq!(plan.call(call), Some(Code::INVALID_VALUE));
        assert_eq!(plan.call(call), None);
        plan.add(Fault::Fail { call, nth: 1, code: Code::UNKNOWN, always: true });
        assert_eq!(plan.call(call), Some(Code::UNKNOWN));
        assert_eq!(plan.call(call), Some(Code::UNKNOWN));
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
