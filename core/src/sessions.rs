//! The streams that captures run on. How: [`capture`](crate::capture).

use crate::context::Context;
use crate::driver::{Call, Driver, Priority};
use crate::error::Result;
use crate::stream_state::{Kind, StreamState};
use crate::sync::{Arc, Mutex};

/// Streams for captures, kept between them. Their number is that of the most forks that were ever open at once.
#[derive(Debug)]
pub struct Sessions<D: Driver> {
    // Short; never held across a driver call.
    shelf: Mutex<Shelf<D>>,
}

#[derive(Debug)]
struct Shelf<D: Driver> {
    idle: Vec<Arc<StreamState<D>>>,
    /// How many captures have.
    out: usize,
    /// Set at the end: what comes back is destroyed.
    is_closed: bool,
}

impl<D: Driver> Sessions<D> {
    /// None yet.
    pub fn new() -> Self {
        Self { shelf: Mutex::new(Shelf { idle: Vec::new(), out: 0, is_closed: false }) }
    }

    /// One to capture on: idle, or new.
    ///
    /// # Errors
    /// The driver's, when it makes none.
    pub(crate) fn take(&self, context: &Context<D>) -> Result<Arc<StreamState<D>>> {
        let idle = {
            let mut shelf = self.shelf.lock();
            // A new one, where there is none; counted before it is made.
            shelf.out += 1;
            shelf.idle.pop()
        };
        if let Some(state) = idle {
            // The graph to come has none of the waits of the last.
            state.gate().follows.clear();
            return Ok(state);
        }
        match context.check(Call::StreamCreate, context.driver.stream_create(Priority::Normal)) {
            Ok(raw) => {
                let state = StreamState::new(raw, Kind::Capture);
                context.add_witness(&state);
                Ok(state)
            }
            Err(error) => {
                self.shelf.lock().out -= 1;
                Err(error)
            }
        }
    }

    /// Takes back what a capture had that went well.
    pub(crate) fn put(&self, context: &Context<D>, states: impl IntoIterator<Item = Arc<StreamState<D>>>) {
        let late: Vec<_> = {
            let mut shelf = self.shelf.lock();
            let before = shelf.idle.len();
            shelf.idle.extend(states);
            shelf.out -= shelf.idle.len() - before;
            if shelf.is_closed { shelf.idle.drain(..).collect() } else { Vec::new() }
        };
        late.iter().for_each(|state| destroy(context, state));
    }

    /// Destroys one that a capture had.
    pub(crate) fn destroy(&self, context: &Context<D>, state: &StreamState<D>) {
        destroy(context, state);
        self.shelf.lock().out -= 1;
    }

    /// How many captures have.
    pub fn out(&self) -> usize {
        self.shelf.lock().out
    }

    /// Destroys the idle ones, and those that come back later: at shutdown.
    pub fn clear(&self, context: &Context<D>) {
        let idle = {
            let mut shelf = self.shelf.lock();
            shelf.is_closed = true;
            std::mem::take(&mut shelf.idle)
        };
        idle.iter().for_each(|state| destroy(context, state));
    }
}

impl<D: Driver> Default for Sessions<D> {
    fn default() -> Self {
        Self::new()
    }
}

fn destroy<D: Driver>(context: &Context<D>, state: &StreamState<D>) {
    if context.lost().is_some() {
        return;
    }
    context.remove_witness(state);
    // SAFETY: S6, S7. A capture stream outside of any capture: its session is over, and it is in no pool; events that
    // were recorded on it are destroyed.
    let answer = unsafe { context.driver.stream_destroy(&state.raw) };
    if let Err(error) = answer {
        context.fail_untold(Call::StreamDestroy, &error);
    }
}
