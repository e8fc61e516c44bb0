//! The suite: one list of cases, for every driver.
//!
//! A *raw* case makes driver calls and says what a driver does; drivers differ there, and
//! [`expectations`](crate::expectations) lists who fails which. A *contract* case goes through the typed interface and
//! shows one line of the contract, whose name it begins with; it holds on every driver.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tenure::driver::{DriverError, ErrorKind};

use crate::bench::Bench;

pub mod api;
pub mod capture;
pub mod code;
pub mod life;
pub mod ownership;
pub mod places;
pub mod reclaim;
pub mod registration;
pub mod reset;
pub mod staging;
pub mod stream;

/// One case.
#[derive(Debug)]
pub struct Case<B> {
    /// `module::function`.
    pub name: &'static str,
    /// Whether it makes driver calls itself.
    pub is_raw: bool,
    /// Panics where the driver or the core is not as the case says.
    pub run: fn(&B),
}

/// Lists functions of a module as cases.
macro_rules! list_cases {
    ($module:literal: raw [$($raw:ident),* $(,)?] contract [$($contract:ident),* $(,)?]) => {
        /// The cases of this module.
        pub fn cases<B: crate::bench::Bench>() -> Vec<crate::conformance::Case<B>> {
            vec![
                $(crate::conformance::Case {
                    name: concat!($module, "::", stringify!($raw)),
                    is_raw: true,
                    run: $raw::<B>,
                },)*
                $(crate::conformance::Case {
                    name: concat!($module, "::", stringify!($contract)),
                    is_raw: false,
                    run: $contract::<B>,
                },)*
            ]
        }
    };
}
pub(crate) use list_cases;

/// All cases.
pub fn cases<B: Bench>() -> Vec<Case<B>> {
    let modules = [
        ownership::cases,
        stream::cases,
        capture::cases,
        code::cases,
        places::cases,
        registration::cases,
        reclaim::cases,
        staging::cases,
        api::cases,
        life::cases,
        reset::cases,
    ];
    modules.iter().flat_map(|cases| cases()).collect()
}

/// The word for the error, if it is one.
fn word<T, E: DriverError>(answer: Result<T, E>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}

/// Does both, each on a thread of its own, and says what they came to.
///
/// # Panics
/// When one does not end: its thread is then left.
fn both_end<A: Send + 'static, B: Send + 'static>(
    what: &str,
    first: impl FnOnce() -> A + Send + 'static,
    second: impl FnOnce() -> B + Send + 'static,
) -> (A, B) {
    let ((first_told, first_ended), (second_told, second_ended)) = (mpsc::channel(), mpsc::channel());
    let threads = [
        std::thread::spawn(move || drop(first_told.send(first()))),
        std::thread::spawn(move || drop(second_told.send(second()))),
    ];
    let first = first_ended.recv_timeout(crate::rig::deadline());
    let second = second_ended.recv_timeout(crate::rig::deadline());
    let outcome = (
        first.unwrap_or_else(|error| panic!("{what}: the first does not end: {error}")),
        second.unwrap_or_else(|error| panic!("{what}: the second does not end: {error}")),
    );
    threads.into_iter().for_each(|thread| thread.join().expect("it has told"));
    outcome
}

/// Looks until it is so.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + crate::rig::deadline();
    while !is_so() {
        assert!(Instant::now() < end, "{what}, but not within {:?}", crate::rig::deadline());
        std::thread::sleep(Duration::from_micros(100));
    }
}
