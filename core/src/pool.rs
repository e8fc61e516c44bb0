//! The pool that leases streams.
//!
//! A [`Stream`](crate::Stream) is a lease; the lease ends with its last clone. Ended leases go back to the pool as they
//! are. A claim takes the oldest, asks the driver outside the pool's lock whether it is idle, and puts it back if not.
//!
//! | state of a pooled stream | meaning | changes by | keeps |
//! |---|---|---|---|
//! | leased | one live lease | `claim` (after an idle answer) | S1 S2 |
//! | returned | no lease; may be busy | drop of the last clone | S2 S5 |
//! | candidate | popped by one claim that asks about it | `claim`, `trim` | S1 S5 S6 |
//! | quarantined | failed once; never used again | a failed query or wait | S7 |
//! | destroyed | a tombstone: every number complete | `trim`, shutdown | S6 |

use crate::context::Context;
use crate::driver::{Call, Driver, Priority, Progress};
use crate::error::{Error, Result};
use crate::life::Phase;
use crate::stream_state::{Kind, Role, StreamState};
use crate::sync::{Arc, Mutex};

pub mod state;

use self::state::{Figures, Shelf};

/// What a claim found out about a candidate.
#[derive(Debug)]
enum Candidate {
    /// Idle, and nobody came meanwhile: it is the claimer's.
    Claimed,
    /// Busy, visited, or not to be asked now.
    Busy,
    /// Its query failed.
    Broken,
}

/// The pool: leases streams, and makes new ones up to a cap when none is idle.
#[derive(Debug)]
pub struct Pool<D: Driver> {
    // Never held across a driver call (R1, R3).
    shelf: Mutex<Shelf<Arc<StreamState<D>>>>,
}

impl<D: Driver> Pool<D> {
    /// An empty pool that makes at most `cap` streams.
    pub fn new(cap: usize) -> Self {
        Self { shelf: Mutex::new(Shelf::new(cap)) }
    }

    /// Leases a stream: an idle one, or a new one.
    ///
    /// # Errors
    /// `StreamLimit` at the cap, `Lost`, or the driver's when it cannot make one; the pool is then as it was (S5).
    pub fn claim(&self, context: &Context<D>, priority: Priority) -> Result<Arc<StreamState<D>>> {
        context.check_alive()?;
        let rounds = self.shelf.lock().returned(priority);
        for _ in 0..rounds {
            let Some(candidate) = self.shelf.lock().take(priority) else { break };
            match candidate.examine(context) {
                Candidate::Claimed => {
                    self.shelf.lock().lease();
                    return Ok(candidate);
                }
                Candidate::Busy => self.shelf.lock().put_back(priority, candidate),
                Candidate::Broken => self.shelf.lock().quarantine(candidate),
            }
        }
        self.make(context, priority)
    }

    #[cold]
    fn make(&self, context: &Context<D>, priority: Priority) -> Result<Arc<StreamState<D>>> {
        self.shelf.lock().reserve().map_err(|cap| Error::StreamLimit { cap })?;
        match context.check(Call::StreamCreate, context.driver.stream_create(priority)) {
            Ok(raw) => {
                let state = StreamState::new(raw, Kind::Pooled(priority));
                self.shelf.lock().made(state.clone());
                context.add_witness(&state);
                // After it is listed: `close` finds it there, or has said before that the runtime is closed.
                if context.life.is_past(Phase::Draining) {
                    state.close();
                }
                Ok(state)
            }
            Err(error) => {
                self.shelf.lock().unreserve();
                Err(error)
            }
        }
    }

    /// Takes a stream back whose lease has ended. Makes no driver call (R1).
    pub fn give(&self, state: Arc<StreamState<D>>) {
        let Role::Pooled(priority) = state.role else { return };
        let broken = state.is_broken();
        let mut shelf = self.shelf.lock();
        match broken {
            true => shelf.quarantine_leased(state),
            false => shelf.give_back(priority, state),
        }
    }

    /// Destroys the idle streams that nobody leases; returns how many.
    pub fn trim(&self, context: &Context<D>) -> usize {
        let mut destroyed = 0;
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            let rounds = self.shelf.lock().returned(priority);
            for _ in 0..rounds {
                let Some(candidate) = self.shelf.lock().take(priority) else { break };
                match candidate.examine(context) {
                    Candidate::Claimed if !candidate.destroy(context) => self.shelf.lock().quarantine(candidate),
                    Candidate::Claimed => {
                        self.shelf.lock().destroyed(|state| state.id() == candidate.id(), &candidate.figures());
                        destroyed += 1;
                    }
                    Candidate::Busy => self.shelf.lock().put_back(priority, candidate),
                    Candidate::Broken => self.shelf.lock().quarantine(candidate),
                }
            }
        }
        destroyed
    }

    /// Closes every stream to new work. Makes no driver call, and waits for no holder of a gate.
    pub fn close(&self) {
        self.shelf.lock().all.iter().for_each(|state| state.close());
    }

    /// A copy of the list of all streams that exist.
    pub fn streams(&self) -> Vec<Arc<StreamState<D>>> {
        self.shelf.lock().all.clone()
    }

    /// The pool's figures.
    pub fn figures(&self) -> Figures {
        let (mut figures, all) = {
            let shelf = self.shelf.lock();
            (shelf.figures, shelf.all.clone())
        };
        for state in &all {
            figures.add(&state.figures());
        }
        figures
    }
}

impl<D: Driver> StreamState<D> {
    /// Asks whether this candidate may change hands: idle, and not visited from before the question to after it.
    fn examine(&self, context: &Context<D>) -> Candidate {
        let Some(word) = self.visits.look() else { return Candidate::Busy };
        // A guest may have given it up after its lease ended. One who does so from now on makes `confirm` fail.
        if self.is_broken() {
            return Candidate::Broken;
        }
        match self.query(context) {
            Some(Ok(Progress::Complete)) if self.visits.confirm(word) => Candidate::Claimed,
            Some(Ok(_)) | None => Candidate::Busy,
            Some(Err(_)) => Candidate::Broken,
        }
    }

    /// Whether nobody asks the stream now, or will: all of it is complete, or it was given up.
    pub(crate) fn is_let_go(&self, context: &Context<D>) -> bool {
        match self.examine(context) {
            Candidate::Claimed => true,
            Candidate::Busy => false,
            // Who comes later finds it given up before it finds what marks it.
            Candidate::Broken => self.is_broken() && self.visits.look().is_some_and(|word| self.visits.confirm(word)),
        }
    }

    /// Destroys the raw stream: the caller has claimed it, and will not lease it. `false`: the driver refused, which is
    /// kept (R7).
    fn destroy(&self, context: &Context<D>) -> bool {
        self.destroy_event(context);
        context.remove_witness(self);
        // SAFETY: S6. `examine` proved it idle and unvisited and took it off the shelf, so no lease and no guest uses
        // the handle, now or later: every number on it is complete, and who visits for one turns round at once. Or it is
        // the runtime's own, which only turns use, and the last is over.
        let answer = unsafe { context.driver.stream_destroy(&self.raw) };
        if let Err(error) = answer {
            context.fail_untold(Call::StreamDestroy, &error);
            return false;
        }
        true
    }

    /// Waits for its work and destroys it: a stream of the runtime's own, which frees memory and is on no shelf. Some
    /// drivers do not destroy a stream before its work is done. `false`: it stays, since a capture forbids the wait, or the
    /// driver refused, which is kept (R7).
    pub fn destroy_after_its_work(&self, context: &Context<D>) -> bool {
        match context.guarded_now(Call::StreamSynchronize, |driver| driver.stream_synchronize(&self.raw)) {
            Some(_) if context.lost().is_none() => self.destroy(context),
            _ => false,
        }
    }

    /// Destroys the event of its waits. Takes the gate.
    pub fn destroy_event(&self, context: &Context<D>) {
        let event = self.gate().event.take();
        if let Some(event) = event {
            context.event_destroy(event);
        }
    }

    /// As [`destroy_event`](Self::destroy_event), unless somebody has the gate: at the end, who may be in a driver call
    /// that does not return.
    pub fn destroy_event_unless_held(&self, context: &Context<D>) {
        let event = self.gate_or(|| true).and_then(|mut gate| gate.event.take());
        if let Some(event) = event {
            context.event_destroy(event);
        }
    }

    fn figures(&self) -> Figures {
        // What is subtracted is read first: it was counted before what it is subtracted from.
        let (waits, moved) = (self.counters.waits.value(), self.counters.moved.value());
        let launches = self.timeline.horizon().number().saturating_sub(waits);
        Figures {
            launches,
            covered: launches.saturating_sub(moved),
            handovers: self.counters.handovers.value(),
            edges_inserted: self.counters.edges_inserted.value(),
            edges_skipped: self.counters.edges_skipped.value(),
            ..Figures::default()
        }
    }
}
