//! Staging memory (T1 to T3): the core's [`Slabs`], with copies up and down, streams that complete or break, and trims.
//!
//! A step is one hold of the shelf's lock, or what the world does. Beside the bookkeeping stands what the device really still
//! uses, so that a byte with two copies shows.
//!
//! Fair: the device, who learns of it, and whoever has staging memory in hand (weakly).

use std::cell::RefCell;
use std::rc::Rc;

use tenure::staging::state::{CHUNK, Mark, Piece, Slabs};

use super::search::{Broken, FREE, Fair, Label, Machine, NONE, Promise, Steps, must};

/// A planted mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The point of a copy is not noted.
    NotNoted,
    /// What a broken stream may use counts as complete.
    BrokenCompletes,
    /// A piece is given back twice.
    GivenBackTwice,
    /// A slab is made without asking for room.
    MadeUnasked,
    /// A download that nobody wants is not given back.
    AbandonedKept,
}

/// The machine, and how large it is.
#[derive(Debug)]
pub struct Staging {
    /// Who copies.
    pub tasks: usize,
    /// Copies in all.
    pub copies: u8,
    /// What is done wrong.
    pub wrong: Option<Wrong>,
}

/// The slabs and the world.
#[derive(Clone, Debug)]
pub struct State {
    slabs: Slabs<u8, At>,
    lanes: [Lane; 2],
    tasks: Vec<Task>,
    /// What the device still uses.
    used: Vec<Used>,
    slabs_made: u8,
    copies: u8,
    trimmed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    submitted: u64,
    done: u64,
    /// How far it is known to be done.
    known: u64,
    broken: bool,
}

#[derive(Clone, Debug)]
enum Task {
    Rests,
    Wants {
        stream: usize,
        bytes: usize,
    },
    Has {
        stream: usize,
        pieces: Vec<Rc<Piece<u8>>>,
    },
    /// A download that is not fetched yet.
    Flies {
        pieces: Vec<Rc<Piece<u8>>>,
    },
}

/// Bytes from `start` to `end` of a slab.
#[derive(Clone, Debug)]
struct Used {
    slab: u8,
    start: usize,
    end: usize,
    stream: usize,
    number: u64,
}

/// A place in a stream's order.
#[derive(Clone, Copy, Debug)]
struct At(usize, u64);

thread_local! {
    static LANES: RefCell<([Lane; 2], Option<Wrong>)> = const {
        RefCell::new(([Lane { submitted: 0, done: 0, known: 0, broken: false }; 2], None))
    };
}

impl Mark for At {
    fn is_complete(&self) -> bool {
        LANES.with_borrow(|(lanes, wrong)| {
            let lane = lanes[self.0];
            lane.known >= self.1 || lane.broken && *wrong == Some(Wrong::BrokenCompletes)
        })
    }

    fn is_void(&self) -> bool {
        LANES.with_borrow(|(lanes, _)| lanes[self.0].broken && lanes[self.0].known < self.1)
    }
}

impl State {
    /// The bytes of pieces, as the device uses them.
    fn use_of(pieces: &[Rc<Piece<u8>>], stream: usize, number: u64) -> impl Iterator<Item = Used> + '_ {
        pieces.iter().map(move |piece| {
            let (start, end) = (piece.offset, piece.offset + piece.bytes);
            Used { slab: piece.base, start, end, stream, number }
        })
    }

    /// Whether no two of what the device uses, and of what tasks have in hand, share a byte.
    fn is_apart(&self) -> bool {
        let in_hand = self.tasks.iter().filter_map(|task| match task {
            // What flies is the device's as well, until it is done.
            Task::Has { pieces, .. } => Some(pieces),
            _ => None,
        });
        let mut all: Vec<_> = in_hand.flat_map(|pieces| Self::use_of(pieces, 0, 0)).collect();
        all.extend(self.used.iter().cloned());
        all.sort_by_key(|used| (used.slab, used.start));
        all.windows(2).all(|two| two[0].slab != two[1].slab || two[0].end <= two[1].start)
    }
}

const TASK: Fair = 0;
const DEVICE: Fair = 8;
const LEARN: Fair = 16;
const LIMIT: usize = 3 * CHUNK;

impl Staging {
    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    fn take(&self, state: &State, index: usize, (stream, bytes): (usize, usize), steps: &mut Steps<State>) {
        let fair = TASK + index as Fair;
        let mut probe = state.slabs.clone();
        if probe.take(stream as u64, bytes).is_some() {
            steps.add(state, Label("take", [index as u8, NONE]), fair, |state| {
                let taken = state.slabs.take(stream as u64, bytes);
                let pieces = taken.map(|taken| taken.pieces.into_iter().map(Rc::new).collect()).unwrap_or_default();
                state.tasks[index] = Task::Has { stream, pieces };
                must(state.is_apart(), "T1", "a byte of staging memory has two copies")
            });
        } else if let Some(size) = probe.reserve(bytes).or(self.is(Wrong::MadeUnasked).then_some(CHUNK))
            && state.slabs_made < 8
        {
            steps.add(state, Label("make a slab", [index as u8, NONE]), fair, |state| {
                if !self.is(Wrong::MadeUnasked) {
                    // As the core does: who finds no room has just swept.
                    let _ = state.slabs.take(stream as u64, bytes);
                    let _ = state.slabs.reserve(bytes);
                }
                state.slabs_made += 1;
                state.slabs.made(state.slabs_made, size);
                Ok(())
            });
        }
    }

    fn has(&self, state: &State, index: usize, steps: &mut Steps<State>) {
        let Task::Has { stream, pieces } = state.tasks[index].clone() else { return };
        let fair = TASK + index as Fair;
        let give_back = |state: &mut State| pieces.iter().for_each(|piece| state.slabs.give_back(piece));
        let submit = |state: &mut State| {
            let lane = &mut state.lanes[stream];
            lane.submitted += 1;
            let number = lane.submitted;
            for piece in pieces.iter().filter(|_| !self.is(Wrong::NotNoted)) {
                state.slabs.note(piece, At(stream, number));
            }
            state.used.extend(State::use_of(&pieces, stream, number));
        };
        if state.lanes[stream].broken {
            return steps.add(state, Label("refused", [index as u8, NONE]), fair, |state| {
                give_back(state);
                state.tasks[index] = Task::Rests;
                Ok(())
            });
        }
        steps.add(state, Label("copy up", [index as u8, NONE]), fair, |state| {
            submit(state);
            give_back(state);
            if self.is(Wrong::GivenBackTwice) {
                give_back(state);
            }
            state.tasks[index] = Task::Rests;
            Ok(())
        });
        steps.add(state, Label("copy down", [index as u8, NONE]), fair, |state| {
            submit(state);
            state.tasks[index] = Task::Flies { pieces: pieces.clone() };
            Ok(())
        });
    }

    fn flies(&self, state: &State, index: usize, steps: &mut Steps<State>) {
        let Task::Flies { pieces } = &state.tasks[index] else { return };
        let fair = TASK + index as Fair;
        // Fetched or dropped, early or late: the piece goes back either way.
        steps.add(state, Label("give back", [index as u8, NONE]), fair, |state| {
            if !self.is(Wrong::AbandonedKept) {
                pieces.iter().for_each(|piece| state.slabs.give_back(piece));
            }
            state.tasks[index] = Task::Rests;
            Ok(())
        });
    }

    fn world(&self, state: &State, stream: usize, steps: &mut Steps<State>) {
        let lane = state.lanes[stream];
        let label = |name| Label(name, [stream as u8, NONE]);
        if lane.done < lane.submitted && !lane.broken {
            steps.add(state, label("runs"), DEVICE + stream as Fair, |state| {
                state.lanes[stream].done += 1;
                let done = state.lanes[stream].done;
                state.used.retain(|used| used.stream != stream || used.number > done);
                Ok(())
            });
            steps.add(state, label("breaks"), FREE, |state| {
                state.lanes[stream].broken = true;
                Ok(())
            });
        }
        if lane.known < lane.done && !lane.broken {
            steps.add(state, label("is known"), LEARN + stream as Fair, |state| {
                state.lanes[stream].known = state.lanes[stream].done;
                Ok(())
            });
        }
    }
}

impl Machine for Staging {
    type State = State;
    type Key = String;

    fn starts(&self) -> Vec<State> {
        let tasks = vec![Task::Rests; self.tasks];
        let slabs = Slabs::new(LIMIT);
        let (lanes, used) = ([Lane::default(); 2], Vec::new());
        vec![State { slabs, lanes, tasks, used, slabs_made: 0, copies: self.copies, trimmed: false }]
    }

    /// All of it, since the number of copies bounds it: as text, without the names of fields.
    fn key(&self, state: &State) -> String {
        let says = |letter: &char| !(letter.is_lowercase() || *letter == ' ') || matches!(letter, 't' | 'f');
        format!("{state:?}").chars().filter(says).collect()
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        LANES.set((state.lanes, self.wrong));
        for (index, task) in state.tasks.iter().enumerate() {
            match task {
                Task::Rests if state.copies > 0 => {
                    for (stream, bytes) in [(0, CHUNK / 2), (0, 2 * CHUNK), (1, CHUNK / 2)] {
                        steps.add(state, Label("wants", [index as u8, stream as u8]), FREE, |state| {
                            state.copies -= 1;
                            state.tasks[index] = Task::Wants { stream, bytes };
                            Ok(())
                        });
                    }
                }
                Task::Rests => {}
                Task::Wants { stream, bytes } => self.take(state, index, (*stream, *bytes), steps),
                Task::Has { .. } => self.has(state, index, steps),
                Task::Flies { .. } => self.flies(state, index, steps),
            }
        }
        (0..2).for_each(|stream| self.world(state, stream, steps));
        let mut probe = state.slabs.clone();
        if !state.trimmed && !probe.trim().is_empty() {
            steps.add(state, Label("trim", [NONE, NONE]), FREE, |state| {
                // Once: otherwise slabs that are made again make states without end.
                state.trimmed = true;
                let gone = state.slabs.trim();
                let unused = state.used.iter().all(|used| !gone.contains(&used.slab));
                must(unused, "T2", "a slab is given back while a copy may use it")
            });
        }
    }

    fn check(&self, state: &State) -> Result<(), Broken> {
        LANES.set((state.lanes, self.wrong));
        must(state.slabs.within_limit(), "T2", "more staging memory than the limit allows")
    }

    fn may_rest(&self, _: &State) -> bool {
        true
    }

    fn promises(&self) -> Vec<Promise<State>> {
        let wants = |state: &State| state.tasks.iter().any(|task| matches!(task, Task::Wants { .. }));
        let how = "who found no room never gets any, though all copies complete";
        vec![Promise { broken: Broken { line: "T3", how }, if_quiet: true, open: Box::new(wants) }]
    }
}
