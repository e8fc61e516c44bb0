//! A storm in which the device is lost at some operation: every call says so from then on, waits return, drops and polls make
//! no driver call once it is known, and a shutdown leaks what is left and tells.
//!
//! | step | what could go wrong when the device is lost before or in it |
//! |---|---|
//! | work on a buffer and on a wrap, moved between two streams | O1 O5 R7 |
//! | waits for a stream, a read, a view | O3 R6 |
//! | a capture, its replay | C3 C4 C7 |
//! | a wrap let go or freed, and another | P3 P5 P9 P11 |
//! | a wrap of the shared range | P1 P8 |
//! | polls, trims | C3 R6 |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::driver::{Driver as _, HostPointer, Timing};
use tenure::{Buffer, Error, PinError, Pinned, Queue as _, Result, Stream};
use tenure_sim::code::Code;
use tenure_sim::driver::Sim;
use tenure_sim::fault::Fault;

use crate::rig::{Lent, Rig, deadline};
use crate::storm::Dice;
use crate::tap::Tap;

/// What all threads share.
pub struct Loss {
    rig: Rig<Sim>,
    sim: Arc<Sim>,
    shared: Lent<u32>,
    start: HostPointer,
    refused: AtomicU64,
    waits: AtomicU64,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    /// Whether the device was lost.
    pub is_lost: bool,
    /// Operations that said so.
    pub refused: u64,
    /// Waits by threads that knew.
    pub waits: u64,
    /// Things that were never given back.
    pub leaked: usize,
}

/// What one thread has in hand. The numbers are what was accepted.
struct Hand {
    streams: [Stream<Tap<Sim>>; 2],
    buffer: (Buffer<u32, Tap<Sim>>, u32),
    pinned: (Pinned<u32, Tap<Sim>>, u32),
}

/// What a call may answer once its thread knows of the loss.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The loss alone.
    Makes,
    /// The loss, or that what it waits for had completed before; without a driver call either way.
    Waits,
}

impl Loss {
    /// A program over `rig`, whose device `sim` is going to be lost.
    pub fn new(rig: Rig<Sim>, sim: Arc<Sim>, dice: &mut Dice) -> Self {
        let mut shared = Lent::from(vec![0_u32; 4]);
        let start = shared.start();
        sim.add_fault(Fault::LoseDevice { nth: 1 + u64::from(dice.roll(120)), code: Code::LAUNCH_FAILURE });
        Self { rig, sim, shared, start, refused: AtomicU64::new(0), waits: AtomicU64::new(0) }
    }

    /// The work of one thread. One that knows of the loss goes on: everything must say so.
    ///
    /// # Panics
    /// When something is not as it must be.
    pub fn thread(&self, mut dice: Dice, steps: u32) {
        let Some(mut hand) = self.judge(Kind::Makes, || self.take()) else { return };
        for _ in 0..2 * steps {
            match dice.roll(7) {
                0 | 1 => self.work(&mut dice, &mut hand),
                2 => self.wait(&mut dice, &hand),
                3 => self.capture(&mut dice, &mut hand),
                4 => self.wrap(&mut dice, &mut hand),
                5 => self.wrap_shared(&mut dice, &hand),
                _ => self.poll(&mut dice),
            }
        }
        self.without_calls("R1: a drop made a driver call", || drop(hand));
    }

    fn take(&self) -> Result<Hand> {
        let streams = [self.rig.runtime.stream()?, self.rig.runtime.stream()?];
        let buffer = streams[0].upload(&[0; 4])?;
        let pinned = self.rig.runtime.wrap(vec![0; 4]).map_err(|refused| refused.error)?;
        Ok(Hand { streams, buffer: (buffer, 0), pinned: (pinned, 0) })
    }

    fn knows(&self) -> bool {
        self.rig.runtime.lost().is_some()
    }

    fn without_calls<R>(&self, sentence: &str, body: impl FnOnce() -> R) -> R {
        let mark = self.rig.tap.log.mark();
        let answer = body();
        assert_eq!(self.rig.tap.log.mine_since(mark), [], "{sentence}");
        answer
    }

    /// The value, or nothing where the device is lost; nothing else may go wrong.
    fn judge<T>(&self, kind: Kind, call: impl FnOnce() -> Result<T>) -> Option<T> {
        let knew = self.knows();
        let answer = match knew && kind == Kind::Waits {
            true => {
                // Relaxed: summed up after the threads were joined.
                self.waits.fetch_add(1, Ordering::Relaxed);
                self.without_calls("R6: a wait made a call though the device is known to be lost", call)
            }
            false => call(),
        };
        match answer {
            Ok(value) => {
                assert!(!knew || kind == Kind::Waits, "R6: a call went well though the device is known to be lost");
                Some(value)
            }
            Err(Error::Lost(cause)) => {
                assert_eq!(
                    cause.code,
                    Code::LAUNCH_FAILURE.0,
                    "R7: the error names what took the device away: {cause}"
                );
                assert!(self.knows(), "R6: a call says that the device is lost, and the runtime does not know");
                self.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
            // A thread that found the loss while it registered the shared range left it so.
            Err(Error::Pin(PinError::Quarantined)) if !knew && self.knows() => None,
            Err(error) => panic!("R7: an error that a lost device does not explain: {error}"),
        }
    }

    fn work(&self, dice: &mut Dice, hand: &mut Hand) {
        let stream = dice.pick(&hand.streams);
        let (x, p) = (&mut hand.buffer, &mut hand.pinned);
        let bumped = match dice.roll(2) {
            0 => self.judge(Kind::Makes, || self.rig.bump(stream, &mut x.0, 1)).map(|()| &mut x.1),
            _ => self.judge(Kind::Makes, || self.rig.bump(stream, &mut p.0, 1)).map(|()| &mut p.1),
        };
        bumped.into_iter().for_each(|count| *count += 1);
    }

    fn wait(&self, dice: &mut Dice, hand: &Hand) {
        let stream = dice.pick(&hand.streams);
        let (seen, expected) = match dice.roll(3) {
            0 => return self.judge(Kind::Waits, || stream.synchronize()).unwrap_or_default(),
            1 => (self.judge(Kind::Makes, || stream.read(&hand.buffer.0)), hand.buffer.1),
            _ => (self.judge(Kind::Waits, || Ok(hand.pinned.0.read()?.to_vec())), hand.pinned.1),
        };
        if let Some(seen) = seen {
            assert_eq!(seen, [expected; 4], "O3: a wait that went well is for all that was accepted");
        }
    }

    fn capture(&self, dice: &mut Dice, hand: &mut Hand) {
        let Hand { streams, buffer: (buffer, expected), .. } = hand;
        let graph = || self.rig.runtime.capture(|capture| self.rig.bump(capture, buffer, 1));
        let Some(graph) = self.judge(Kind::Makes, graph) else { return };
        let Some(executable) = self.judge(Kind::Makes, || graph.instantiate()) else { return };
        for _ in 0..dice.roll(3) {
            let launched = self.judge(Kind::Makes, || executable.launch(dice.pick(streams)));
            *expected += u32::from(launched.is_some());
        }
        self.without_calls("R1: a drop made a driver call", || drop((graph, executable)));
    }

    fn wrap(&self, dice: &mut Dice, hand: &mut Hand) {
        let fresh = || self.rig.runtime.wrap(vec![0; 4]).map_err(|refused| refused.error);
        let Some(fresh) = self.judge(Kind::Makes, fresh) else { return };
        let (old, expected) = std::mem::replace(&mut hand.pinned, (fresh, 0));
        match dice.roll(3) {
            0 => self.without_calls("R1: a drop made a driver call", || drop(old)),
            1 => drop(self.judge(Kind::Makes, || old.free())),
            _ => {
                let back = self.judge(Kind::Makes, || old.into_owner::<Vec<u32>>().map_err(|(error, _)| error));
                assert!(
                    back.is_none_or(|back| back == [expected; 4]),
                    "P3: the memory comes back after all that was accepted"
                );
            }
        }
    }

    fn wrap_shared(&self, dice: &mut Dice, hand: &Hand) {
        // SAFETY: P4. The range lives as long as this, and forever where the device may be in the middle of it.
        let wrap = self.judge(Kind::Makes, || unsafe { self.rig.wrap_at(self.start) });
        let Some(mut wrap) = wrap else { return };
        let _ = self.judge(Kind::Makes, || self.rig.bump(dice.pick(&hand.streams), &mut wrap, 1));
        self.without_calls("R1: a drop made a driver call", || drop(wrap));
    }

    fn poll(&self, dice: &mut Dice) {
        match self.knows() {
            true => {
                let sentence = "R6: a poll made a call though the device is known to be lost";
                self.without_calls(sentence, || self.rig.runtime.poll());
            }
            false if dice.roll(2) == 0 => drop(self.rig.runtime.trim()),
            false => drop(self.rig.runtime.poll()),
        }
    }

    /// Ends it and looks at what is left.
    ///
    /// # Panics
    /// When something is not as it must be.
    pub fn end(self) -> Losses {
        self.rig.drain();
        let stats = self.rig.runtime.stats();
        let gone = stats.released + stats.leaked;
        assert_eq!(stats.retired, gone, "C3: everything let go is released once, or leaked and counted: {stats:?}");
        let (log, knew) = (self.rig.tap.log.clone(), self.knows());
        let mark = log.mark();
        let report = self.rig.shut_down(deadline());
        let after = log.since(mark);
        assert!(
            !knew || after.is_empty(),
            "R6: a shutdown made calls though the device is known to be lost: {after:?}"
        );
        // A device that is lost makes nothing.
        let probe = self.sim.event_create(Timing::Disabled).and_then(|event| self.sim.event_destroy(event));
        let is_lost = probe.is_err();
        assert_eq!(report.lost.is_some(), is_lost, "R6: a shutdown does not say that the device is lost: {report:?}");
        assert!(is_lost || report.is_clean(), "R5: all was let go, so all is given back: {report:?}");
        let leaks = self.sim.finish().leaks.expect("the simulation has ended");
        // Page-locked memory is not counted here: staging memory is the driver's as well, and what of it is lost is only part
        // of what the report says.
        // A leaked executable counts for the buffer that it keeps as well.
        let (left, told) = (leaks.allocations, report.leaked + report.pins_quarantined);
        assert!(left <= told as u64, "R5: a shutdown does not say all that it left: {leaks:?}, {report:?}");
        if is_lost {
            // P11. What is leaked may be in use forever, the shared range too.
            std::mem::forget(self.shared);
        }
        // Relaxed: all threads have been joined.
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Losses { is_lost, refused: load(&self.refused), waits: load(&self.waits), leaked: report.leaked }
    }
}
