//! A storm in which driver calls fail, anywhere and at any time: what the driver refused has not happened, what it accepted
//! has, every error is explained by a fault, and all that can be given back is.
//!
//! | step | what could go wrong when a call in it fails |
//! |---|---|
//! | work on a buffer, moved between two streams | O1 O5 R7 |
//! | a capture with forks, its replays | C1 C3 C4 C7 |
//! | a wrap, used, let go or taken back | P5 P7 P9 |
//! | a wrap of the shared range | O1 P1 P8 P9 |
//! | leases ended and taken again, polls, trims | S2 S5 S7 |

use std::sync::atomic::{AtomicU64, Ordering};

use tenure::driver::{Call, Driver, ErrorKind, HostPointer};
use tenure::{Buffer, Error, PinError, Queue, Result, Stream};

use crate::faulty::INJECTED;
use crate::rig::{Lent, Rig};
use crate::storm::Dice;
use crate::tap::Tap;

/// Calls whose failure leaves nothing behind.
const REFUSED: &[Call] = &[
    Call::StreamCreate,
    Call::EventCreate,
    Call::EventRecord,
    Call::StreamWaitEvent,
    Call::MallocAsync,
    Call::Malloc,
    Call::HostRegister,
    Call::Launch,
    Call::Copy,
    Call::CaptureBegin,
    Call::GraphInstantiate,
    Call::GraphLaunch,
];

/// Calls after whose failure something is kept forever: a stream is given up with what waits for it, or a range stays registered.
const LEAVING: &[Call] = &[Call::StreamQuery, Call::StreamSynchronize, Call::HostUnregister];

/// What all threads share.
pub struct Unrest<D: Driver> {
    rig: Rig<D>,
    shared: Lent<u32>,
    start: HostPointer,
    expected: AtomicU64,
    errors: AtomicU64,
    leaves: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Operations that failed.
    pub errors: u64,
    /// Things that were never given back.
    pub leaked: usize,
    /// Whether a call was to fail after which something may be left.
    pub leaves: bool,
}

type Streams<D> = [Stream<Tap<D>>; 2];

impl<D: Driver> Unrest<D> {
    /// A program over `rig`, whose driver is going to fail a few times.
    pub fn new(rig: Rig<D>, dice: &mut Dice) -> Self {
        let mut shared = Lent::from(vec![0_u32; 4]);
        let start = shared.start();
        let leaves = dice.roll(2) == 0;
        let calls = if leaves { LEAVING } else { REFUSED };
        for _ in 0..=dice.roll(3) {
            let call = calls[dice.roll(calls.len() as u64) as usize];
            rig.tap.rules.fail(call, 1 + dice.roll(12) as usize, ErrorKind::Unknown);
        }
        Self { rig, shared, start, expected: AtomicU64::new(0), errors: AtomicU64::new(0), leaves }
    }

    /// The work of one thread.
    ///
    /// # Panics
    /// When something is not as it must be.
    pub fn thread(&self, mut dice: Dice, steps: u32) {
        let Some(mut streams) = self.accept(self.streams()) else { return };
        for _ in 0..steps {
            let answer = match dice.roll(6) {
                0 | 1 => self.work(&mut dice, &streams),
                2 => self.capture(&mut dice, &streams),
                3 => self.wrap(&mut dice, &streams),
                4 => self.wrap_shared(&mut dice, &streams),
                _ => {
                    self.rig.runtime.poll();
                    self.rig.runtime.trim();
                    Ok(())
                }
            };
            if self.accept(answer).is_none() || dice.roll(3) == 0 {
                let Some(fresh) = self.accept(self.streams()) else { return };
                streams = fresh;
            }
        }
    }

    fn streams(&self) -> Result<Streams<D>> {
        Ok([self.rig.runtime.stream()?, self.rig.runtime.stream()?])
    }

    /// The value, or nothing where a fault explains the error.
    fn accept<T>(&self, answer: Result<T>) -> Option<T> {
        let error = match answer {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let explained = match &error {
            Error::Driver(failure) => failure.code == INJECTED,
            Error::StreamBroken(failure) => failure.code == INJECTED && self.leaves,
            Error::Pin(PinError::Quarantined | PinError::StillInUse) => self.leaves,
            _ => false,
        };
        assert!(explained, "R7: an error that no fault explains: {error}");
        // Relaxed: summed up after the threads were joined.
        self.errors.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn check(&self, stream: &Stream<Tap<D>>, x: &Buffer<u32, Tap<D>>, expected: u32) -> Result<()> {
        let seen = stream.read(x)?;
        assert_eq!(seen, [expected; 4], "O5: what was accepted was done, once, and what was refused was not");
        Ok(())
    }

    fn work(&self, dice: &mut Dice, streams: &Streams<D>) -> Result<()> {
        let mut expected = dice.roll(100);
        let mut x = dice.pick(streams).upload(&[expected; 4])?;
        for _ in 0..dice.roll(4) {
            let bumped = self.rig.bump(dice.pick(streams), &mut x, 1);
            expected += u32::from(self.accept(bumped).is_some());
        }
        self.check(dice.pick(streams), &x, expected)
    }

    fn capture(&self, dice: &mut Dice, streams: &Streams<D>) -> Result<()> {
        let mut x = streams[0].upload(&[0_u32; 4])?;
        let forks = dice.roll(3);
        let graph = self.rig.runtime.capture(|capture| {
            capture.write(&[1_u32; 4], &mut x)?;
            for _ in 0..forks {
                self.rig.bump(&capture.fork()?, &mut x, 1)?;
            }
            self.rig.bump(capture, &mut x, 1)
        });
        let mut expected = 0;
        if let Some(graph) = self.accept(graph) {
            let executable = graph.instantiate()?;
            for _ in 0..dice.roll(3) {
                if self.accept(executable.launch(dice.pick(streams))).is_some() {
                    expected = 2 + forks;
                }
            }
        }
        self.check(dice.pick(streams), &x, expected)
    }

    fn wrap(&self, dice: &mut Dice, streams: &Streams<D>) -> Result<()> {
        let mut pinned = self.rig.runtime.wrap(vec![3_u32; 4]).map_err(|refused| refused.error)?;
        let mut expected = 3;
        for _ in 0..dice.roll(3) {
            let bumped = self.rig.bump(dice.pick(streams), &mut pinned, 1);
            expected += u32::from(self.accept(bumped).is_some());
        }
        match dice.roll(3) {
            0 => drop(pinned),
            1 => drop(pinned.free()?),
            _ => {
                let back = pinned.into_owner::<Vec<u32>>().map_err(|(error, _)| error)?;
                assert_eq!(back, [expected; 4], "P3: the memory comes back after all that was accepted");
            }
        }
        Ok(())
    }

    fn wrap_shared(&self, dice: &mut Dice, streams: &Streams<D>) -> Result<()> {
        // SAFETY: P4. The range lives as long as this, and the host reads it after the runtime's end.
        let mut wrap = unsafe { self.rig.wrap_at(self.start) }?;
        for _ in 0..=dice.roll(2) {
            let bumped = self.rig.bump(dice.pick(streams), &mut wrap, 1);
            // Relaxed: summed up after the threads were joined.
            self.expected.fetch_add(u64::from(self.accept(bumped).is_some()), Ordering::Relaxed);
        }
        if dice.roll(3) == 0 {
            let _ = wrap.free()?;
        }
        Ok(())
    }

    /// Ends it and looks at what is left.
    ///
    /// # Panics
    /// When something is not as it must be.
    pub fn end(self) -> Outcome {
        self.rig.tap.rules.clear();
        self.rig.drain();
        let stats = self.rig.runtime.stats();
        let gone = stats.released + stats.leaked;
        assert_eq!(stats.retired, gone, "C3: everything let go is released once, or leaked and counted: {stats:?}");
        let report = self.rig.shut_down(crate::rig::deadline());
        let left = report.leaked > 0 || report.pins_quarantined > 0;
        assert!(!left || self.leaves, "P7: something was leaked, and no fault explains it: {report:?}");
        assert!(report.is_clean() || self.leaves, "R5: all was let go, so all is given back: {report:?}");
        // Relaxed: all threads have been joined.
        let expected = u32::try_from(self.expected.load(Ordering::Relaxed)).expect("a storm is short");
        match left {
            // P11. What is leaked may be in use forever, the shared range too.
            true => std::mem::forget(self.shared),
            false => {
                assert_eq!(
                    self.shared[..],
                    [expected; 4],
                    "O1: every accepted write to the shared range was done, once"
                )
            }
        }
        Outcome { errors: self.errors.load(Ordering::Relaxed), leaked: report.leaked, leaves: self.leaves }
    }
}
