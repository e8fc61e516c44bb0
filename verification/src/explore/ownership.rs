//! Ownership (O1, O2, O4, O5, O9): one buffer, n streams, launches that are covered, moves, failures, and an asker of streams.
//!
//! [`Closed`] and [`Follows`] are the core's. What surrounds them there is generic over locks and a driver, and is written
//! once more here, a step for what happens under one hold of a gate; the device, and who asks, go on between any two.
//!
//! Every piece of work carries a clock: how much of each stream comes before it. So "joined by a chain of edges" is a
//! comparison. Numbers in a key count from the watermark: there is no bound on how much is submitted, only on how much of
//! it may be in flight on one stream.
//!
//! Fair: the device, the mover and who asks (weakly), the choice of the stream that is asked (strongly).

use std::cell::RefCell;
use std::collections::VecDeque;

use tenure::id::StreamId;
use tenure::ownership::Access;
use tenure::ownership::state::{Closed, Position};
use tenure::stream_state::follow::Follows;

use super::search::{Broken, FREE, Fair, Label, Machine, NONE, Promise, Steps, must};

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A mover inserts no wait.
    NoEdge,
    /// What a wait reaches is read after the record.
    ReachLate,
    /// A read waits for reads.
    ReadersWait,
    /// A cover is closed while its stream's gate is held.
    ClosedUngated,
    /// A launch is not stamped.
    NotStamped,
    /// A closed slot is forgotten.
    SlotForgotten,
    /// The reads of the stream that covered are forgotten.
    OwnReadsForgotten,
    /// A moved buffer does not know the waits that it moved with.
    NotTouched,
    /// What an answer proves is read after the answer.
    HorizonLate,
    /// Work is numbered before the driver accepts it.
    NumberedEarly,
}

/// The machine, and how large it is.
#[derive(Debug)]
pub struct Ownership {
    ids: Vec<StreamId>,
    slots: usize,
    in_flight: u64,
    wrong: Option<Wrong>,
}

/// A place in a stream's order. Whether it is complete is a question to the watermarks of the state that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At(usize, u64);

thread_local! {
    static WATERMARKS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Position for At {
    fn is_complete(&self) -> bool {
        self.1 == 0 || WATERMARKS.with_borrow(|watermarks| watermarks[self.0] >= self.1)
    }
    fn is_same_stream(&self, other: &Self) -> bool {
        self.0 == other.0
    }
    fn number(&self) -> u64 {
        self.1
    }
}

/// The buffer, the streams, the mover and who asks.
#[derive(Clone, Debug)]
pub struct State {
    cover: Option<usize>,
    /// The last read and write of the stream that covers.
    last: [u64; 2],
    slots: Vec<Option<(usize, u64)>>,
    closed: Closed<At>,
    lanes: Vec<Lane>,
    mover: Option<Mover>,
    asks: Option<Asks>,
    /// Whether anybody ever moved it to write.
    written: bool,
    /// How much of each stream came before what the host knows to be complete.
    host: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Lane {
    accepted: u64,
    submitted: u64,
    done: u64,
    completed: u64,
    /// What is accepted and not known to be complete.
    work: VecDeque<Work>,
    /// What comes before the next work.
    clock: Vec<u64>,
    follows: Follows<u64, u64>,
    /// A launch between acceptance and stamp: its gate is held.
    open: Option<Access>,
    /// The last read and write that the buffer was stamped with.
    used: [u64; 2],
}

#[derive(Clone, Debug)]
struct Work {
    waits_for: Option<(usize, u64)>,
    clock: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Mover {
    stream: usize,
    access: Access,
    stage: Stage,
    touch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Holds `inner`, has closed the cover, and closes slots from this one on.
    Slot(usize),
    /// Holds the gate too, and has read what the wait for this point will reach at least.
    Reached(usize, u64),
    /// Has moved it.
    Moved,
    /// Has enqueued.
    Enqueued,
}

#[derive(Clone, Copy, Debug)]
struct Asks {
    stream: usize,
    horizon: u64,
    idle: bool,
}

const DEVICE: Fair = 0;
const MOVER: Fair = 8;
const ANSWERS: Fair = 9;
const STAMPS: Fair = 16;
const ASKS: Fair = 32;

const BOTH: [Access; 2] = [Access::Read, Access::Write];

impl Ownership {
    /// A machine of this size.
    pub fn new(streams: usize, slots: usize, in_flight: u64, wrong: Option<Wrong>) -> Self {
        Self { ids: (0..streams).map(|_| StreamId::fresh()).collect(), slots, in_flight, wrong }
    }

    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    fn streams(&self) -> std::ops::Range<usize> {
        0..self.ids.len()
    }

    /// Whether the stream's gate is free.
    fn gate(&self, state: &State, stream: usize) -> bool {
        let moving = state.mover.is_some_and(|mover| mover.stream == stream && mover.holds_gate());
        state.lanes[stream].open.is_none() && !moving
    }

    fn has_room(&self, state: &State, stream: usize) -> bool {
        let lane = &state.lanes[stream];
        lane.accepted.max(lane.submitted) - lane.completed < self.in_flight
    }

    fn launch(&self, state: &State, stream: usize, access: Access, steps: &mut Steps<State>) {
        if state.covers(stream, access) && self.gate(state, stream) && self.has_room(state, stream) {
            steps.add(state, label("launch", stream, access), FREE, |state| self.enqueue(state, stream, access));
        }
        if let Some(open) = state.lanes[stream].open.filter(|open| *open == access) {
            steps.add(state, label("stamp", stream, open), STAMPS + stream as Fair, |state| {
                self.number(state, stream);
                state.stamp(stream, open, self.is(Wrong::NotStamped));
                state.lanes[stream].open = None;
                if state.mover.is_some_and(|mover| mover.stage == Stage::Enqueued && mover.stream == stream) {
                    state.mover = None;
                }
                Ok(())
            });
        }
    }

    /// The driver accepts a launch. Everything that conflicts must come before it, or be known to have completed.
    fn enqueue(&self, state: &mut State, stream: usize, access: Access) -> Result<(), Broken> {
        state.lanes[stream].open = Some(access);
        match self.is(Wrong::NumberedEarly) {
            true => state.lanes[stream].submitted += 1,
            false => state.accept(stream, None),
        }
        for other in self.streams().filter(|other| *other != stream) {
            let lane = &state.lanes[other];
            let conflicts = |kind: Access| access == Access::Write || kind == Access::Write;
            let before = state.lanes[stream].clock[other].max(state.host[other]);
            let ordered = BOTH.iter().filter(|kind| conflicts(**kind)).all(|kind| lane.used[*kind as usize] <= before);
            let beside = lane.open.is_some_and(conflicts);
            must(ordered && !beside, "O1", "two conflicting launches are joined by no chain of edges")?;
        }
        Ok(())
    }

    fn number(&self, state: &mut State, stream: usize) {
        match self.is(Wrong::NumberedEarly) {
            true => state.accept(stream, None),
            false => state.lanes[stream].submitted += 1,
        }
    }

    /// Takes `inner`, and closes the cover under its gate.
    fn begin_move(&self, state: &State, stream: usize, access: Access, steps: &mut Steps<State>) {
        let owner = state.cover;
        let closes = owner.is_none_or(|owner| self.gate(state, owner) || self.is(Wrong::ClosedUngated));
        if state.mover.is_none() && !state.covers(stream, access) && closes {
            steps.add(state, label("take", stream, access), FREE, |state| {
                owner.into_iter().for_each(|owner| self.close_cover(state, owner, access));
                state.mover = Some(Mover { stream, access, stage: Stage::Slot(0), touch: 0 });
                Ok(())
            });
        }
    }

    fn go_on(&self, state: &State, mover: Mover, steps: &mut Steps<State>) {
        let Mover { stream, access, stage, .. } = mover;
        match stage {
            Stage::Slot(index) => self.close_slot(state, mover, index, steps),
            Stage::Reached(index, reach) => self.wait(state, mover, index, reach, steps),
            Stage::Moved if self.has_room(state, stream) => {
                steps.add(state, label("enqueue", stream, access), MOVER, |state| {
                    self.enqueue(state, stream, access)?;
                    state.step_to(Stage::Enqueued)
                });
                self.fail(state, steps);
            }
            Stage::Moved | Stage::Enqueued => {}
        }
    }

    /// A move that fails leaves the buffer as it was, or busy for longer.
    fn fail(&self, state: &State, steps: &mut Steps<State>) {
        steps.add(state, Label("fail", [NONE; 2]), FREE, |state| {
            state.mover = None;
            self.check_known(state).map_err(|_| Broken { line: "O5", how: "a move that failed forgot work" })
        });
    }

    fn close_cover(&self, state: &mut State, owner: usize, access: Access) {
        let [read, write] = state.last;
        state.cover = None;
        state.closed.set_writer(At(owner, write));
        if access == Access::Read {
            state.slots[0] = Some((owner, read));
        } else if !self.is(Wrong::OwnReadsForgotten) {
            state.closed.add_reader(At(owner, read));
        }
    }

    /// Closes one slot more under its gate, or, when all are closed, takes the own gate.
    fn close_slot(&self, state: &State, mover: Mover, from: usize, steps: &mut Steps<State>) {
        let full = state.slots.iter().all(Option::is_some);
        let wanted = |(reader, _): &(usize, u64)| {
            let lane = &state.lanes[*reader];
            mover.access == Access::Write || full && lane.completed >= lane.submitted
        };
        let mut slots = state.slots.iter().enumerate().skip(from);
        let Some((index, (reader, number))) = slots.find_map(|(index, slot)| Some((index, slot.filter(wanted)?)))
        else {
            if self.gate(state, mover.stream) {
                steps.add(state, label("take gate", mover.stream, mover.access), MOVER, |state| {
                    self.check_known(state)?;
                    self.order(state, mover, 0)
                });
                self.fail(state, steps);
            }
            return;
        };
        if self.gate(state, reader) {
            steps.add(state, Label("close slot", [index as u8, NONE]), MOVER, |state| {
                state.slots[index] = None;
                if !self.is(Wrong::SlotForgotten) {
                    state.closed.add_reader(At(reader, number));
                }
                state.step_to(Stage::Slot(index + 1))
            });
        }
    }

    /// Comes after what is known to come before already, up to the first point that needs a wait; after the last, moves.
    fn order(&self, state: &mut State, mover: Mover, from: usize) -> Result<(), Broken> {
        let access = if self.is(Wrong::ReadersWait) { Access::Write } else { mover.access };
        let points: Vec<At> = state.closed.conflicting(access).copied().collect();
        for (index, point) in points.into_iter().enumerate().skip(from) {
            let lane = &state.lanes[mover.stream];
            let known = if point.0 == mover.stream {
                Some(point.1)
            } else if point.is_complete() || self.is(Wrong::NoEdge) {
                Some(0)
            } else {
                lane.follows.find(self.ids[point.0], point.1)
            };
            match known {
                Some(at) => state.touch(at),
                None => return state.step_to(Stage::Reached(index, state.lanes[point.0].submitted)),
            }
        }
        state.move_to(self.is(Wrong::NotTouched));
        state.step_to(Stage::Moved)
    }

    fn wait(&self, state: &State, mover: Mover, index: usize, reach: u64, steps: &mut Steps<State>) {
        if !self.has_room(state, mover.stream) {
            return;
        }
        let access = if self.is(Wrong::ReadersWait) { Access::Write } else { mover.access };
        let Some(At(other, _)) = state.closed.conflicting(access).nth(index).copied() else { return };
        steps.add(state, Label("wait", [mover.stream as u8, other as u8]), MOVER, |state| {
            must(mover.access == Access::Write || state.written, "O1", "two reads need no edge, and got one")?;
            state.accept(mover.stream, Some(other));
            let late = self.is(Wrong::ReachLate).then_some(state.lanes[other].accepted + 1);
            let lane = &mut state.lanes[mover.stream];
            lane.submitted += 1;
            let at = lane.submitted;
            lane.follows.insert(self.ids[other], late.unwrap_or(reach), at);
            state.touch(at);
            self.order(state, mover, index + 1)
        });
        self.fail(state, steps);
    }

    fn device(&self, state: &State, stream: usize, steps: &mut Steps<State>) {
        let lane = &state.lanes[stream];
        if lane.done == lane.accepted {
            return;
        }
        let next = usize::try_from(lane.done - lane.completed).expect("few are in flight");
        let ready = |(other, number): (usize, u64)| state.lanes[other].done >= number;
        if lane.work[next].waits_for.is_none_or(ready) {
            steps.add(state, Label("work done", [stream as u8, NONE]), DEVICE + stream as Fair, |state| {
                state.lanes[stream].done += 1;
                Ok(())
            });
        }
    }

    fn ask(&self, state: &State, steps: &mut Steps<State>) {
        let Some(Asks { stream, horizon, idle }) = state.asks else {
            for stream in
                self.streams().filter(|stream| state.lanes[*stream].submitted > state.lanes[*stream].completed)
            {
                steps.add(state, Label("horizon", [stream as u8, NONE]), ASKS + stream as Fair, |state| {
                    let horizon = state.lanes[stream].submitted;
                    state.asks = Some(Asks { stream, horizon, idle: false });
                    Ok(())
                });
            }
            return;
        };
        let lane = &state.lanes[stream];
        let name = if idle { "raise" } else { "answer" };
        steps.add(state, Label(name, [stream as u8, NONE]), ANSWERS, |state| {
            if !idle && lane.done == lane.accepted {
                state.asks = Some(Asks { stream, horizon, idle: true });
                return Ok(());
            }
            state.asks = None;
            if idle {
                let horizon = if self.is(Wrong::HorizonLate) { lane.submitted } else { horizon };
                state.lanes[stream].raise(horizon, &mut state.host);
            }
            let lane = &state.lanes[stream];
            must(lane.completed <= lane.done, "O2", "work is called complete that has not run")
        });
    }

    /// Whatever still runs is known to the record: by a point on its own stream, or by one that comes after it (O9, O2).
    fn check_known(&self, state: &State) -> Result<(), Broken> {
        state.publish();
        for access in BOTH {
            let points = state.points(access);
            for (stream, lane) in state.lanes.iter().enumerate() {
                let used = if access == Access::Read { lane.used[1] } else { lane.used[0].max(lane.used[1]) };
                let known = |At(on, number): &At| {
                    let after = state.lanes[*on].clock_of(*number).is_some_and(|clock| clock[stream] >= used);
                    *on == stream && *number >= used || after
                };
                let known = used <= lane.done || points.iter().any(known);
                must(known, "O9", "a use that may still run is forgotten")?;
            }
        }
        Ok(())
    }
}

fn label(name: &'static str, stream: usize, access: Access) -> Label {
    Label(name, [stream as u8, access as u8])
}

impl Mover {
    fn holds_gate(&self) -> bool {
        !matches!(self.stage, Stage::Slot(_))
    }
}

impl Lane {
    /// What came before this work, if it is not known to be complete.
    fn clock_of(&self, number: u64) -> Option<&Vec<u64>> {
        let index = number.checked_sub(self.completed + 1)?;
        Some(&self.work.get(usize::try_from(index).ok()?)?.clock)
    }

    fn raise(&mut self, horizon: u64, host: &mut [u64]) {
        while self.completed < horizon {
            self.completed += 1;
            let before = self.work.pop_front().map(|work| work.clock).unwrap_or_default();
            host.iter_mut().zip(before).for_each(|(known, before)| *known = (*known).max(before));
        }
    }
}

impl State {
    fn publish(&self) {
        let watermarks = self.lanes.iter().map(|lane| lane.completed).collect();
        WATERMARKS.set(watermarks);
    }

    fn covers(&self, stream: usize, access: Access) -> bool {
        let slot = || self.slots.iter().flatten().any(|(reader, _)| *reader == stream);
        self.cover == Some(stream) || access == Access::Read && slot()
    }

    fn accept(&mut self, stream: usize, waits_for: Option<usize>) {
        let mut clock = self.lanes[stream].clock.clone();
        let waits_for = waits_for.map(|other| {
            let before = &self.lanes[other];
            clock.iter_mut().zip(&before.clock).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
            clock[other] = clock[other].max(before.accepted);
            (other, before.accepted)
        });
        let lane = &mut self.lanes[stream];
        lane.accepted += 1;
        clock[stream] = lane.accepted;
        lane.clock.clone_from(&clock);
        lane.work.push_back(Work { waits_for, clock });
    }

    fn stamp(&mut self, stream: usize, access: Access, forgets: bool) {
        let number = self.lanes[stream].submitted;
        self.lanes[stream].used[access as usize] = number;
        if forgets {
            return;
        }
        if self.cover == Some(stream) {
            self.last[access as usize] = number;
        } else if let Some(slot) = self.slots.iter_mut().flatten().find(|slot| slot.0 == stream) {
            slot.1 = number;
        } else {
            self.closed.add_reader(At(stream, number));
        }
    }

    fn step_to(&mut self, stage: Stage) -> Result<(), Broken> {
        self.mover.iter_mut().for_each(|mover| mover.stage = stage);
        Ok(())
    }

    fn touch(&mut self, at: u64) {
        self.mover.iter_mut().for_each(|mover| mover.touch = mover.touch.max(at));
    }

    fn move_to(&mut self, forgets_touch: bool) {
        let Some(mover) = self.mover else { return };
        if mover.access == Access::Write {
            self.last = [0, if forgets_touch { 0 } else { mover.touch }];
            self.cover = Some(mover.stream);
            self.closed.clear();
            self.written = true;
        } else if let Some(slot) = self.slots.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some((mover.stream, 0));
        }
    }

    fn points(&self, access: Access) -> Vec<At> {
        let [read, write] = self.last;
        let number = if access == Access::Write { read.max(write) } else { write };
        let mut points: Vec<At> = self.cover.map(|owner| At(owner, number)).into_iter().collect();
        if access == Access::Write {
            points.extend(self.slots.iter().flatten().map(|(reader, number)| At(*reader, *number)));
        }
        points.extend(self.closed.conflicting(access));
        points.retain(|point| !point.is_complete());
        points
    }
}

impl Machine for Ownership {
    type State = State;
    type Key = Vec<u8>;

    fn starts(&self) -> Vec<State> {
        let lane = Lane {
            accepted: 0,
            submitted: 0,
            done: 0,
            completed: 0,
            work: VecDeque::new(),
            clock: vec![0; self.ids.len()],
            follows: Follows::default(),
            open: None,
            used: [0; 2],
        };
        vec![State {
            cover: None,
            last: [0; 2],
            slots: vec![None; self.slots],
            closed: Closed::new(),
            lanes: vec![lane; self.ids.len()],
            mover: None,
            asks: None,
            written: false,
            host: vec![0; self.ids.len()],
        }]
    }

    /// Every number from its stream's watermark: at or below it they are all alike, complete.
    fn key(&self, state: &State) -> Vec<u8> {
        state.publish();
        let rel = |stream: usize, number: u64| number.saturating_sub(state.lanes[stream].completed) as u8;
        let clock = |clock: &[u64]| clock.iter().enumerate().map(|(on, number)| rel(on, *number)).collect::<Vec<_>>();
        let some = |stream: Option<usize>| stream.map_or(NONE, |stream| stream as u8);
        let mut key = vec![some(state.cover), state.written.into()];
        key.extend(state.cover.iter().flat_map(|owner| state.last.map(|number| rel(*owner, number))));
        key.extend(clock(&state.host));
        for slot in &state.slots {
            key.extend(slot.map_or([NONE, 0], |(reader, number)| [reader as u8, rel(reader, number)]));
        }
        let writers = state.closed.conflicting(Access::Read).count();
        for (index, point) in state.closed.conflicting(Access::Write).enumerate() {
            if !point.is_complete() {
                key.extend([(index < writers).into(), point.0 as u8, rel(point.0, point.1)]);
            }
        }
        for (stream, lane) in state.lanes.iter().enumerate() {
            key.extend([NONE, rel(stream, lane.done), rel(stream, lane.submitted), rel(stream, lane.accepted)]);
            key.push(lane.open.map_or(NONE, |open| open as u8));
            key.extend(lane.used.map(|number| rel(stream, number)));
            key.extend(clock(&lane.clock));
            for work in &lane.work {
                key.extend(work.waits_for.map_or([NONE, 0], |(other, number)| [other as u8, rel(other, number)]));
                key.extend(clock(&work.clock));
            }
            for other in self.streams().filter(|other| *other != stream) {
                let beyond = state.lanes[other].submitted + 1;
                let mut reaches = (state.lanes[other].completed + 1..=beyond).rev();
                let found = reaches.find_map(|n| Some((n, lane.follows.find(self.ids[other], n)?)));
                key.extend(found.map_or([NONE, 0], |(reach, at)| [rel(other, reach), rel(stream, at)]));
            }
        }
        if let Some(Mover { stream, access, stage, touch }) = state.mover {
            let left = |index| {
                let points = state.closed.conflicting(Access::Write).skip(index);
                points.filter(|point| !point.is_complete()).count()
            };
            let (stage, index, waits, reach) = match stage {
                Stage::Slot(index) => (0, index, 0, 0),
                Stage::Reached(index, reach) => {
                    let waits = state.closed.conflicting(Access::Write).nth(index).map_or(0, |point| point.0);
                    (1, left(index + 1), waits, rel(waits, reach))
                }
                Stage::Moved => (2, 0, 0, 0),
                Stage::Enqueued => (3, 0, 0, 0),
            };
            let touch = if stage < 2 { rel(stream, touch) } else { 0 };
            key.extend([NONE, stream as u8, access as u8, stage, index as u8, waits as u8, reach, touch]);
        }
        if let Some(asks) = state.asks {
            key.extend([NONE, asks.stream as u8, rel(asks.stream, asks.horizon), asks.idle.into()]);
        }
        key
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        state.publish();
        for stream in self.streams() {
            for access in BOTH {
                self.launch(state, stream, access, steps);
                self.begin_move(state, stream, access, steps);
            }
            self.device(state, stream, steps);
        }
        state.mover.into_iter().for_each(|mover| self.go_on(state, mover, steps));
        self.ask(state, steps);
    }

    fn check(&self, state: &State) -> Result<(), Broken> {
        for (stream, lane) in state.lanes.iter().enumerate() {
            must(lane.completed <= lane.done, "O2", "work is called complete that has not run")?;
            let mine = state.mover.is_some_and(|mover| mover.stream == stream && mover.holds_gate());
            let covered = lane.open.is_none_or(|open| mine || state.covers(stream, open));
            must(covered, "O4", "a cover was taken away between the check and the stamp of a launch")?;
        }
        if state.mover.is_none() { self.check_known(state) } else { Ok(()) }
    }

    fn may_rest(&self, _: &State) -> bool {
        false
    }

    fn promises(&self) -> Vec<Promise<State>> {
        let unknown =
            Broken { line: "O2", how: "the work of a stream that gets no more is never known to be complete" };
        let promise = |stream: usize| Promise {
            broken: unknown,
            if_quiet: true,
            open: Box::new(move |state: &State| state.lanes[stream].submitted > state.lanes[stream].completed),
        };
        let moves = Broken { line: "O5", how: "a move neither ends nor fails" };
        let moving = Promise { broken: moves, if_quiet: true, open: Box::new(|state: &State| state.mover.is_some()) };
        self.streams().map(promise).chain([moving]).collect()
    }
}
