//! Reclaim (C1, C3, O6, P3, P7, P11): the core's [`Waiting`], with users that retire, a worker that takes turns, a signal that
//! wakes it, streams that complete or break, host functions, a capture in the way, and a shutdown.
//!
//! Things wait for any set of points on the streams; all sets are tried. With the tick off, the worker hears only of signals, so
//! a lost one shows; with it on, streams may break, and then host functions never run.
//!
//! Fair: the device, host functions, the worker, the end of the capture (weakly).

use tenure::reclaim::state::Waiting;

use super::search::{Broken, FREE, Fair, Label, Machine, NONE, Promise, Steps, must};

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A thing that waits for two streams is filed under both.
    FiledTwice,
    /// What waits for the next number comes out too.
    DueEarly,
    /// The signal is cleared after the look, not before it.
    SignalClearedLate,
    /// Nobody is told that the capture has ended.
    EndUntold,
    /// What a capture put off is dropped.
    DeferredDropped,
    /// A capture is not looked at.
    CaptureIgnored,
    /// What waits for a broken stream is released.
    BrokenReleased,
}

/// The machine, and how large it is.
#[derive(Debug)]
pub struct Reclaim {
    /// Things that are retired.
    pub things: u8,
    /// Streams.
    pub streams: u8,
    /// Submissions of each.
    pub submissions: u64,
    /// Whether the worker asks the streams from time to time; then they may break.
    pub ticks: bool,
    /// What is done wrong.
    pub wrong: Option<Wrong>,
}

/// The queue and the world.
#[derive(Clone, Debug)]
pub struct State {
    held: Vec<Thing>,
    incoming: Vec<Thing>,
    deferred: Vec<Thing>,
    waiting: Waiting<u8, Thing>,
    worker: Worker,
    signal: bool,
    lanes: Vec<Lane>,
    capture: Capture,
    closed: bool,
    /// How often each was released, and leaked.
    ends: Vec<[u8; 2]>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Thing {
    id: u8,
    /// Whether its release is a call that a capture must not see.
    guarded: bool,
    points: Vec<(u8, u64)>,
    filed: Option<(u8, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Lane {
    done: u64,
    completed: u64,
    armed: u64,
    broken: bool,
    /// Somebody asked and knows.
    known: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capture {
    Before,
    During,
    After,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Worker {
    Sleeps,
    /// Has cleared the signal.
    Woke {
        ticks: bool,
    },
    /// Admits these, then looks at this stream.
    Admits {
        things: Vec<Thing>,
        then: u8,
        ticks: bool,
    },
}

const WORKER: Fair = 0;
const CAPTURE: Fair = 1;
const DEVICE: Fair = 8;
const TELLS: Fair = 16;

impl Reclaim {
    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    fn work(&self, state: &State, steps: &mut Steps<State>) {
        match &state.worker {
            Worker::Sleeps => {
                let gone: usize = state.ends.iter().filter(|ends| **ends != [0; 2]).count();
                let pending = usize::from(self.things) - state.held.len() - gone;
                // As the core does: what a capture puts off needs no tick.
                let ticks = self.ticks && pending > state.deferred.len();
                if state.signal || ticks {
                    steps.add(state, Label("wake", [ticks.into(), NONE]), WORKER, |state| {
                        state.signal &= self.is(Wrong::SignalClearedLate);
                        state.worker = Worker::Woke { ticks };
                        Ok(())
                    });
                }
                if !state.closed {
                    steps.add(state, Label("close", [NONE; 2]), FREE, |state| {
                        state.closed = true;
                        let fresh = std::mem::take(&mut state.incoming).into_iter();
                        let left: Vec<_> =
                            fresh.chain(std::mem::take(&mut state.deferred)).chain(state.waiting.drain()).collect();
                        left.into_iter().try_for_each(|thing| state.end(&thing, LEAKED))
                    });
                }
            }
            Worker::Woke { ticks } => steps.add(state, Label("take", [NONE; 2]), WORKER, |state| {
                let mut things = std::mem::take(&mut state.deferred);
                things.append(&mut state.incoming);
                state.worker = Worker::Admits { things, then: 0, ticks: *ticks };
                Ok(())
            }),
            Worker::Admits { things, then, ticks } => match things.split_first() {
                Some((thing, rest)) => steps.add(state, Label("admit", [thing.id, NONE]), WORKER, |state| {
                    state.worker = Worker::Admits { things: rest.to_vec(), then: *then, ticks: *ticks };
                    self.admit(state, thing.clone())
                }),
                None if *then < self.streams => self.learn(state, *then, *ticks, steps),
                None => steps.add(state, Label("sleep", [NONE; 2]), WORKER, |state| {
                    state.signal &= !self.is(Wrong::SignalClearedLate);
                    state.worker = Worker::Sleeps;
                    Ok(())
                }),
            },
        }
    }

    fn admit(&self, state: &mut State, mut thing: Thing) -> Result<(), Broken> {
        thing.points.retain(|(stream, number)| state.lanes[usize::from(*stream)].completed < *number);
        let broken = |(stream, _): &(u8, u64)| state.lanes[usize::from(*stream)].known;
        if thing.points.iter().any(broken) {
            return state.end(&thing, if self.is(Wrong::BrokenReleased) { RELEASED } else { LEAKED });
        }
        if let Some(&(stream, number)) = thing.points.first() {
            thing.filed = Some((stream, number));
            if let Some((other, later)) = thing.points.get(1).copied().filter(|_| self.is(Wrong::FiledTwice)) {
                state.waiting.file(other, later, Thing { filed: Some((other, later)), ..thing.clone() });
            }
            state.waiting.file(stream, number, thing);
            return Ok(());
        }
        if thing.guarded && state.capture == Capture::During && !self.is(Wrong::CaptureIgnored) {
            if !self.is(Wrong::DeferredDropped) {
                state.deferred.push(thing);
            }
            return Ok(());
        }
        state.end(&thing, RELEASED)
    }

    /// Asks the stream or arms it, then takes out what is due.
    fn learn(&self, state: &State, stream: u8, ticks: bool, steps: &mut Steps<State>) {
        steps.add(state, Label("learn", [stream, NONE]), WORKER, |state| {
            let lane = &mut state.lanes[usize::from(stream)];
            let waits = state.waiting.streams().find(|(key, _)| *key == stream);
            if waits.is_some_and(|(_, number)| lane.completed < number) {
                if ticks && lane.broken {
                    lane.known = true;
                } else if ticks && lane.done == self.submissions {
                    lane.completed = lane.done;
                } else if lane.armed == 0 && !lane.broken {
                    lane.armed = self.submissions;
                }
            }
            let completed = lane.completed + u64::from(self.is(Wrong::DueEarly));
            let known = lane.known;
            let done = lane.done;
            let things: Vec<_> = state.waiting.due(stream, completed).collect();
            let complete = |thing: &Thing| thing.filed.is_some_and(|(_, number)| number <= done);
            must(things.iter().all(complete), "P3", "a thing is due before its work has completed")?;
            let mut things: Vec<_> = things.into_iter().map(|thing| Thing { filed: None, ..thing }).collect();
            if known {
                things.extend(state.waiting.due(stream, u64::MAX - 1).map(|thing| Thing { filed: None, ..thing }));
            }
            state.worker = Worker::Admits { things, then: stream + 1, ticks };
            Ok(())
        });
    }

    fn device(&self, state: &State, stream: u8, steps: &mut Steps<State>) {
        let index = usize::from(stream);
        let lane = state.lanes[index];
        let label = |name| Label(name, [stream, NONE]);
        if lane.done < self.submissions && !lane.broken {
            steps.add(state, label("work done"), DEVICE + stream, |state| {
                state.lanes[index].done += 1;
                Ok(())
            });
            if self.ticks {
                steps.add(state, label("breaks"), FREE, |state| {
                    state.lanes[index].broken = true;
                    Ok(())
                });
            }
        }
        if lane.armed > 0 && lane.done >= lane.armed && !lane.broken {
            steps.add(state, label("tells"), TELLS + stream, |state| {
                let lane = &mut state.lanes[index];
                lane.completed = lane.completed.max(lane.armed);
                lane.armed = 0;
                state.signal = true;
                Ok(())
            });
        }
    }

    fn capture(&self, state: &State, steps: &mut Steps<State>) {
        match state.capture {
            Capture::Before => steps.add(state, Label("capture begins", [NONE; 2]), FREE, |state| {
                state.capture = Capture::During;
                Ok(())
            }),
            Capture::During => steps.add(state, Label("capture ends", [NONE; 2]), CAPTURE, |state| {
                state.capture = Capture::After;
                state.signal |= !self.is(Wrong::EndUntold);
                Ok(())
            }),
            Capture::After => {}
        }
    }

    fn wishes(&self) -> Vec<(bool, Vec<(u8, u64)>)> {
        let mut sets = vec![Vec::new()];
        for stream in 0..self.streams {
            let longer = |set: &Vec<(u8, u64)>| {
                let set = set.clone();
                let points = (0..=self.submissions).map(move |number| (stream, number));
                points
                    .map(move |point| set.iter().copied().chain([point].into_iter().filter(|(_, n)| *n > 0)).collect())
            };
            sets = sets.iter().flat_map(longer).collect::<Vec<Vec<_>>>();
        }
        sets.into_iter().flat_map(|set| [(false, set.clone()), (true, set)]).collect()
    }
}

const RELEASED: usize = 0;
const LEAKED: usize = 1;

impl State {
    fn end(&mut self, thing: &Thing, how: usize) -> Result<(), Broken> {
        let ends = &mut self.ends[usize::from(thing.id)];
        ends[how] += 1;
        must(ends[RELEASED] + ends[LEAKED] == 1, "O6", "a thing is released twice")?;
        if how == RELEASED {
            let done = |(stream, number): &(u8, u64)| self.lanes[usize::from(*stream)].done >= *number;
            let original = &thing.points;
            must(original.iter().all(done), "P11", "released though its work will never complete")?;
            must(
                !thing.guarded || self.capture != Capture::During,
                "C1",
                "a guarded release is made inside a capture",
            )?;
        }
        Ok(())
    }

    fn everywhere(&self) -> Vec<Thing> {
        let in_hand = match &self.worker {
            Worker::Admits { things, .. } => &things[..],
            _ => &[],
        };
        let listed = self.held.iter().chain(&self.incoming).chain(&self.deferred).chain(in_hand).cloned();
        listed.chain(self.waiting.clone().drain()).collect()
    }
}

impl Machine for Reclaim {
    type State = State;
    type Key = Vec<u8>;

    fn starts(&self) -> Vec<State> {
        let wishes = self.wishes();
        let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..self.things {
            let longer = |choice: &Vec<usize>| {
                let choice = choice.clone();
                let least = choice.last().copied().unwrap_or(0);
                (least..wishes.len()).map(move |wish| choice.iter().copied().chain([wish]).collect::<Vec<_>>())
            };
            choices = choices.iter().flat_map(longer).collect();
        }
        let lane = Lane { done: 0, completed: 0, armed: 0, broken: false, known: false };
        let thing = |(id, wish): (usize, &usize)| {
            let (guarded, points) = wishes[*wish].clone();
            Thing { id: id as u8, guarded, points, filed: None }
        };
        let start = |choice: Vec<usize>| State {
            held: choice.iter().enumerate().map(thing).collect(),
            incoming: Vec::new(),
            deferred: Vec::new(),
            waiting: Waiting::new(),
            worker: Worker::Sleeps,
            signal: false,
            lanes: vec![lane; usize::from(self.streams)],
            capture: Capture::Before,
            closed: false,
            ends: vec![[0; 2]; usize::from(self.things)],
        };
        choices.into_iter().map(start).collect()
    }

    fn key(&self, state: &State) -> Vec<u8> {
        let mut key = vec![state.signal.into(), state.capture as u8, state.closed.into()];
        for lane in &state.lanes {
            key.extend([
                lane.done as u8,
                lane.completed as u8,
                lane.armed as u8,
                lane.broken.into(),
                lane.known.into(),
            ]);
        }
        key.extend(state.ends.iter().flatten());
        let mut list = |things: &[Thing]| {
            key.push(NONE);
            for thing in things {
                key.extend([thing.id, thing.guarded.into()]);
                key.extend(thing.filed.map_or([NONE, 0], |(stream, number)| [stream, number as u8]));
                key.extend(thing.points.iter().flat_map(|(stream, number)| [*stream, *number as u8]));
            }
        };
        list(&state.held);
        list(&state.incoming);
        list(&state.deferred);
        list(&state.waiting.clone().drain().collect::<Vec<_>>());
        match &state.worker {
            Worker::Sleeps => key.push(0),
            Worker::Woke { ticks } => key.extend([1, (*ticks).into()]),
            Worker::Admits { things, then, ticks } => {
                list(things);
                key.extend([2, *then, (*ticks).into()]);
            }
        }
        key
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        if !state.closed {
            for index in 0..state.held.len() {
                steps.add(state, Label("retire", [state.held[index].id, NONE]), FREE, |state| {
                    let thing = state.held.remove(index);
                    state.incoming.push(thing);
                    state.signal = true;
                    Ok(())
                });
            }
        }
        self.work(state, steps);
        (0..self.streams).for_each(|stream| self.device(state, stream, steps));
        self.capture(state, steps);
    }

    fn check(&self, state: &State) -> Result<(), Broken> {
        let things = state.everywhere();
        for id in 0..self.things {
            let ends: u8 = state.ends[usize::from(id)].iter().sum();
            let places = things.iter().filter(|thing| thing.id == id).count();
            must(places + usize::from(ends) <= 1, "O6", "a thing is in two places")?;
            must(places + usize::from(ends) >= 1, "C3", "a thing is lost")?;
        }
        let waits = state.waiting.clone().drain().count();
        let count = waits == state.waiting.len() && (waits == 0) == state.waiting.is_empty();
        must(count, "P7", "the figure of what waits is wrong")?;
        let early = |lane: &Lane| lane.completed > lane.done;
        must(!state.lanes.iter().any(early), "O2", "work is called complete that has not run")
    }

    fn may_rest(&self, _: &State) -> bool {
        true
    }

    fn promises(&self) -> Vec<Promise<State>> {
        let kept = Broken { line: "P7", how: "a retired thing is never released nor leaked" };
        let promise = |id: u8| Promise {
            broken: kept,
            if_quiet: false,
            open: Box::new(move |state: &State| {
                let held = state.held.iter().any(|thing| thing.id == id);
                !held && state.ends[usize::from(id)] == [0; 2]
            }),
        };
        let deferred = Broken { line: "C3", how: "what a capture put off is never released after it" };
        let resumed = Promise {
            broken: deferred,
            if_quiet: false,
            open: Box::new(|state: &State| state.capture == Capture::After && !state.deferred.is_empty()),
        };
        [resumed].into_iter().chain((0..self.things).map(promise)).collect()
    }
}
