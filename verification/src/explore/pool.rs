//! The stream pool (S1, S2, S4 to S7): the core's [`Shelf`], with claimers, trims, leases, guests, faults and a device.
//!
//! A step is one hold of the shelf's lock, one answer of the driver, or what the world does. The question about a candidate is one
//! step: that no guest slips in beside it is what the models of visits show. Streams are told apart by their place in the list of
//! all, so there is no bound on how many are made and destroyed.
//!
//! Fair: nobody but the claimers themselves (weakly). A claim must end though the device and the guests stand still (S4).

use tenure::Priority;
use tenure::pool::state::{Figures, Shelf};

use super::search::{Broken, FREE, Fair, Label, Machine, NONE, Promise, Steps, must};

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A busy candidate is leased.
    BusyLeased,
    /// A leased stream stays on the shelf.
    LeftOnShelf,
    /// A claim waits until a candidate is idle.
    ClaimWaits,
    /// A claim makes a stream before it looks.
    MadeFirst,
    /// A failed creation keeps its room.
    RoomLost,
    /// Trim does not ask.
    TrimUnasked,
    /// A stream that failed goes back to the shelf.
    BrokenReturned,
}

/// The machine, and how large it is.
#[derive(Debug)]
pub struct Pool {
    /// Who claim, lease and trim.
    pub tasks: usize,
    /// Streams at once.
    pub cap: usize,
    /// What is done wrong.
    pub wrong: Option<Wrong>,
}

/// The shelf and the world.
#[derive(Clone, Debug)]
pub struct State {
    shelf: Shelf<u32>,
    made: u32,
    streams: Vec<Stream>,
    tasks: Vec<Task>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    id: u32,
    busy: bool,
    visited: bool,
    /// The driver answers with an error from now on.
    failed: bool,
    /// Somebody was told.
    known: bool,
    quarantined: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Task {
    Rests,
    /// Will look at so many more; `idle` lay on the shelf, idle, since it began.
    Looks {
        left: usize,
        trims: bool,
        idle: Vec<u32>,
    },
    Holds {
        left: usize,
        trims: bool,
        idle: Vec<u32>,
        id: u32,
        answer: Answer,
    },
    Makes,
    Leases(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    None,
    Idle,
    Busy,
    Failed,
}

const PRIORITY: Priority = Priority::Normal;

impl Pool {
    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    fn begin(&self, state: &State, task: usize, trims: bool, steps: &mut Steps<State>) {
        let name = if trims { "trim" } else { "claim" };
        steps.add(state, label(name, task, NONE), FREE, |state| {
            let left = if self.is(Wrong::MadeFirst) { 0 } else { state.shelf.returned(PRIORITY) };
            let idle = |id: &u32| {
                let stream = state.stream(*id);
                !(stream.busy || stream.visited || stream.failed)
            };
            let idle = if trims { Vec::new() } else { returned(&state.shelf).into_iter().filter(idle).collect() };
            state.tasks[task] = Task::Looks { left, trims, idle };
            Ok(())
        });
    }

    fn look(&self, state: &State, task: usize, (left, trims): (usize, bool), idle: &[u32], steps: &mut Steps<State>) {
        steps.add(state, label("look", task, NONE), task as Fair, |state| {
            let taken = if left > 0 { state.shelf.take(PRIORITY) } else { None };
            let Some(id) = taken else {
                state.tasks[task] = Task::Rests;
                if !trims {
                    must(idle.is_empty(), "S5", "a stream is made although one lay idle all the time")?;
                    if state.shelf.reserve().is_ok() {
                        state.tasks[task] = Task::Makes;
                    }
                }
                return Ok(());
            };
            let left = if self.is(Wrong::ClaimWaits) { left } else { left - 1 };
            state.tasks[task] = Task::Holds { left, trims, idle: idle.to_vec(), id, answer: Answer::None };
            state.tasks.iter_mut().for_each(|task| task.saw_taken(id));
            Ok(())
        });
    }

    fn ask(&self, state: &State, task: usize, id: u32, trims: bool, steps: &mut Steps<State>) {
        let stream = state.stream(id);
        let unasked = self.is(Wrong::TrimUnasked) && trims || self.is(Wrong::BusyLeased) && !trims;
        let found = match stream {
            _ if unasked => Answer::Idle,
            Stream { visited: true, .. } => Answer::Busy,
            Stream { failed: true, .. } => Answer::Failed,
            Stream { busy: true, .. } => Answer::Busy,
            _ => Answer::Idle,
        };
        steps.add(state, label("ask", task, state.place(id)), task as Fair, |state| {
            state.stream_mut(id).known |= found == Answer::Failed;
            match &mut state.tasks[task] {
                Task::Holds { answer, .. } => *answer = found,
                _ => unreachable!("only a holder asks"),
            }
            Ok(())
        });
    }

    fn put(&self, state: &State, task: usize, held: Task, steps: &mut Steps<State>) {
        let Task::Holds { left, trims, idle, id, answer } = held else { return };
        let place = state.place(id);
        let looks = Task::Looks { left, trims, idle };
        let fair = task as Fair;
        match answer {
            Answer::None => self.ask(state, task, id, trims, steps),
            Answer::Busy => steps.add(state, label("put back", task, place), fair, |state| {
                state.shelf.put_back(PRIORITY, id);
                state.tasks[task] = looks;
                Ok(())
            }),
            Answer::Failed => steps.add(state, label("quarantine", task, place), fair, |state| {
                match self.is(Wrong::BrokenReturned) {
                    true => state.shelf.put_back(PRIORITY, id),
                    false => {
                        state.shelf.quarantine(id);
                        state.stream_mut(id).quarantined = true;
                    }
                }
                state.tasks[task] = looks;
                Ok(())
            }),
            Answer::Idle if trims => steps.add(state, label("destroy", task, place), fair, |state| {
                let stream = state.stream(id);
                must(!stream.busy && !stream.visited, "S6", "a busy stream is destroyed")?;
                state.shelf.destroyed(|other| *other == id, &Figures::default());
                state.streams.retain(|stream| stream.id != id);
                state.tasks[task] = looks;
                Ok(())
            }),
            Answer::Idle => steps.add(state, label("lease", task, place), fair, |state| {
                must(!state.stream(id).busy, "S2", "a stream is handed out that is busy")?;
                state.shelf.lease();
                if self.is(Wrong::LeftOnShelf) {
                    state.shelf.put_back(PRIORITY, id);
                }
                state.tasks[task] = Task::Leases(id);
                Ok(())
            }),
        }
    }

    fn make(&self, state: &State, task: usize, steps: &mut Steps<State>) {
        steps.add(state, label("made", task, NONE), task as Fair, |state| {
            state.made += 1;
            let id = state.made;
            state.shelf.made(id);
            let stream = Stream { id, busy: false, visited: false, failed: false, known: false, quarantined: false };
            state.streams.push(stream);
            state.tasks[task] = Task::Leases(id);
            Ok(())
        });
        steps.add(state, label("not made", task, NONE), FREE, |state| {
            if !self.is(Wrong::RoomLost) {
                state.shelf.unreserve();
            }
            state.tasks[task] = Task::Rests;
            Ok(())
        });
    }

    fn lease(&self, state: &State, task: usize, id: u32, steps: &mut Steps<State>) {
        let (stream, place) = (state.stream(id), state.place(id));
        if !stream.busy && !stream.failed {
            steps.add(state, label("launch", task, place), FREE, |state| {
                state.stream_mut(id).busy = true;
                Ok(())
            });
        }
        steps.add(state, label("give back", task, place), FREE, |state| {
            state.tasks[task] = Task::Rests;
            state.shelf.give_back(PRIORITY, id);
            Ok(())
        });
        if stream.failed {
            steps.add(state, label("give back failed", task, place), FREE, |state| {
                state.tasks[task] = Task::Rests;
                state.stream_mut(id).known = true;
                match self.is(Wrong::BrokenReturned) {
                    true => state.shelf.give_back(PRIORITY, id),
                    false => {
                        state.shelf.quarantine_leased(id);
                        state.stream_mut(id).quarantined = true;
                    }
                }
                Ok(())
            });
        }
    }

    fn world(state: &State, id: u32, steps: &mut Steps<State>) {
        let (stream, place) = (state.stream(id), state.place(id));
        let mut set = |name, act: fn(&mut Stream)| {
            steps.add(state, Label(name, [place, NONE]), FREE, |state| {
                act(state.stream_mut(id));
                Ok(())
            });
        };
        if stream.busy && !stream.failed {
            set("work done", |stream| stream.busy = false);
            set("fails", |stream| stream.failed = true);
        }
        match stream.visited {
            // A guest that finds its work complete turns round.
            false if stream.busy => set("guest comes", |stream| stream.visited = true),
            false => {}
            true => set("guest goes", |stream| stream.visited = false),
        }
    }

    fn check_places(&self, state: &State) -> Result<(), Broken> {
        let on_shelf = returned(&state.shelf);
        for stream in &state.streams {
            let holds = |task: &&Task| matches!(task, Task::Holds { id, .. } if *id == stream.id);
            let leases = state.tasks.iter().filter(|task| **task == Task::Leases(stream.id)).count();
            let held = state.tasks.iter().filter(holds).count();
            let lies = on_shelf.iter().filter(|id| **id == stream.id).count();
            let places = leases + held + lies + usize::from(stream.quarantined);
            must(places == 1, "S1", "a stream is in two places, or in none")?;
            must(lies == 0 || !stream.known, "S7", "a stream that is known to have failed can be claimed")?;
        }
        Ok(())
    }
}

fn label(name: &'static str, task: usize, place: u8) -> Label {
    Label(name, [task as u8, place])
}

/// What lies on the shelf, the next to be taken first.
fn returned(shelf: &Shelf<u32>) -> Vec<u32> {
    let mut shelf = shelf.clone();
    std::iter::from_fn(|| shelf.take(PRIORITY)).collect()
}

fn reserved(shelf: &Shelf<u32>, cap: usize) -> usize {
    let mut probe = shelf.clone();
    let room = std::iter::from_fn(|| probe.reserve().ok()).count();
    cap - shelf.all.len() - room
}

impl Task {
    fn saw_taken(&mut self, taken: u32) {
        if let Self::Looks { idle, .. } | Self::Holds { idle, .. } = self {
            idle.retain(|id| *id != taken);
        }
    }
}

impl State {
    fn stream(&self, id: u32) -> Stream {
        *self.streams.iter().find(|stream| stream.id == id).expect("who names a stream keeps it from being destroyed")
    }

    fn stream_mut(&mut self, id: u32) -> &mut Stream {
        let mut streams = self.streams.iter_mut();
        streams.find(|stream| stream.id == id).expect("who names a stream keeps it from being destroyed")
    }

    fn place(&self, id: u32) -> u8 {
        self.shelf.all.iter().position(|other| *other == id).map_or(NONE, |place| place as u8)
    }
}

impl Machine for Pool {
    type State = State;
    type Key = Vec<u8>;

    fn starts(&self) -> Vec<State> {
        let tasks = vec![Task::Rests; self.tasks];
        vec![State { shelf: Shelf::new(self.cap), made: 0, streams: Vec::new(), tasks }]
    }

    /// Streams by their place in the list of all; without the figures that only add up.
    fn key(&self, state: &State) -> Vec<u8> {
        let places = |ids: &[u32]| ids.iter().map(|id| state.place(*id)).collect::<Vec<_>>();
        let mut key = vec![state.shelf.figures.quarantined as u8, reserved(&state.shelf, self.cap) as u8];
        key.push(state.shelf.figures.leased as u8);
        key.extend(places(&returned(&state.shelf)));
        for id in &state.shelf.all {
            let Stream { busy, visited, failed, known, quarantined, .. } = state.stream(*id);
            let flags = [busy, visited, failed, known, quarantined];
            key.extend([NONE, flags.iter().fold(0, |all, flag| all << 1 | u8::from(*flag))]);
        }
        for task in &state.tasks {
            key.push(NONE);
            match task {
                Task::Rests => key.push(0),
                Task::Makes => key.push(1),
                Task::Leases(id) => key.extend([2, state.place(*id)]),
                Task::Looks { left, trims, idle } => {
                    key.extend([3, *left as u8, (*trims).into()]);
                    key.extend(places(idle));
                }
                Task::Holds { left, trims, idle, id, answer } => {
                    key.extend([4, *left as u8, (*trims).into(), state.place(*id), *answer as u8]);
                    key.extend(places(idle));
                }
            }
        }
        key
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        for (index, task) in state.tasks.iter().enumerate() {
            match task {
                Task::Rests => [false, true].into_iter().for_each(|trims| self.begin(state, index, trims, steps)),
                Task::Looks { left, trims, idle } => self.look(state, index, (*left, *trims), idle, steps),
                Task::Holds { .. } => self.put(state, index, task.clone(), steps),
                Task::Makes => self.make(state, index, steps),
                Task::Leases(id) => self.lease(state, index, *id, steps),
            }
        }
        state.shelf.all.iter().for_each(|id| Self::world(state, *id, steps));
    }

    fn check(&self, state: &State) -> Result<(), Broken> {
        self.check_places(state)?;
        let count = |wanted: fn(&Task) -> bool| state.tasks.iter().filter(|task| wanted(task)).count();
        let making = count(|task| *task == Task::Makes);
        let leased = count(|task| matches!(task, Task::Leases(_)));
        let Figures { alive, leased: figured, quarantined, .. } = state.shelf.figures;
        must(reserved(&state.shelf, self.cap) == making, "S5", "room is reserved that nobody is going to use")?;
        must(state.shelf.all.len() + making <= self.cap, "S5", "more streams than the cap allows")?;
        let given_up = state.streams.iter().filter(|stream| stream.quarantined).count();
        let sound = alive == state.shelf.all.len() && figured == leased && quarantined == given_up;
        must(sound, "S1", "the figures do not say where the streams are")
    }

    fn may_rest(&self, _: &State) -> bool {
        false
    }

    fn promises(&self) -> Vec<Promise<State>> {
        let endless = Broken { line: "S4", how: "a claim or a trim waits for the device" };
        (0..self.tasks)
            .map(|task| Promise {
                broken: endless,
                if_quiet: false,
                open: Box::new(move |state: &State| !matches!(state.tasks[task], Task::Rests | Task::Leases(_))),
            })
            .collect()
    }
}
