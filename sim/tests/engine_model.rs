//! The engine and its race checker against a model of a few lines that knows order by its definition alone.
//!
//! | said by the model | held against |
//! |---|---|
//! | the head of a stream may run once all that it comes after has | the engine's ready set, after every call and step |
//! | what has run, bytes included | queries, waits, the final bytes |
//! | two operations race where no chain of "comes after" joins them | the checkers' findings |
//!
//! `PROPTEST_CASES` sets how many programs are tried.

mod rig;

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rig::{ME, Rig, blocked, done};
use tenure::driver::{DeviceAddress, Driver, Location, Priority, Progress, Timing};
use tenure_sim::Sim;
use tenure_sim::checker::Line;
use tenure_sim::drive::Drive;
use tenure_sim::engine::{Settings, Wait};
use tenure_sim::event::{EventHandle, StreamHandle};
use tenure_sim::profile::Profile;

/// The legacy stream, one that orders with it, and two that do not.
const STREAMS: usize = 4;
const LEGACY: usize = 0;
const BLOCKING: usize = 1;
const EVENTS: usize = 3;
const BUFFERS: usize = 3;
/// Two words a buffer, so that accesses can miss each other.
const WORDS: usize = 2;

/// A call of the host, or a step of the device.
#[derive(Clone, Copy, Debug)]
enum Act {
    Fill { stream: usize, buffer: usize, word: usize, value: u8 },
    Copy { stream: usize, from: usize, to: usize },
    Add { stream: usize, buffer: usize, by: u32 },
    Record { stream: usize, event: usize },
    Wait { stream: usize, event: usize },
    Synchronize { stream: usize },
    Step { which: usize },
}

fn act() -> impl Strategy<Value = Act> {
    let (stream, event, buffer) = (0..STREAMS, 0..EVENTS, 0..BUFFERS);
    prop_oneof![
        2 => (stream.clone(), buffer.clone(), 0..WORDS, 1..9_u8)
            .prop_map(|(stream, buffer, word, value)| Act::Fill { stream, buffer, word, value }),
        2 => (stream.clone(), buffer.clone(), buffer.clone())
            .prop_map(|(stream, from, to)| Act::Copy { stream, from, to }),
        2 => (stream.clone(), buffer, 1..9_u32).prop_map(|(stream, buffer, by)| Act::Add { stream, buffer, by }),
        2 => (stream.clone(), event.clone()).prop_map(|(stream, event)| Act::Record { stream, event }),
        2 => (stream.clone(), event).prop_map(|(stream, event)| Act::Wait { stream, event }),
        1 => stream.prop_map(|stream| Act::Synchronize { stream }),
        6 => (0..STREAMS).prop_map(|which| Act::Step { which }),
    ]
}

// --- the model

#[derive(Clone, Copy, Debug)]
struct Op {
    act: Act,
    has_run: bool,
}

/// Order by its definition: an operation comes after the one before it on its stream, after what it waits for, and
/// after what the host had waited for.
#[derive(Default)]
struct Model {
    ops: Vec<Op>,
    /// What each comes after, directly.
    after: Vec<BTreeSet<usize>>,
    queues: [VecDeque<usize>; STREAMS],
    last: [Option<usize>; STREAMS],
    recorded: [Option<usize>; EVENTS],
    /// What the host knows to have run since it waited.
    known: BTreeSet<usize>,
    words: [[u32; WORDS]; BUFFERS],
}

impl Model {
    fn submit(&mut self, stream: usize, act: Act) {
        let op = self.ops.len();
        let mut after: BTreeSet<usize> = self.known.iter().copied().chain(self.last[stream]).collect();
        match stream {
            LEGACY => after.extend(self.last[BLOCKING]),
            BLOCKING => after.extend(self.last[LEGACY]),
            _ => {}
        }
        match act {
            Act::Record { event, .. } => self.recorded[event] = Some(op),
            Act::Wait { event, .. } => after.extend(self.recorded[event]),
            _ => {}
        }
        self.ops.push(Op { act, has_run: false });
        self.after.push(after);
        self.queues[stream].push_back(op);
        self.last[stream] = Some(op);
    }

    fn ready(&self) -> BTreeSet<usize> {
        let may_run = |stream: &usize| {
            self.queues[*stream].front().is_some_and(|op| self.after[*op].iter().all(|earlier| self.has_run(*earlier)))
        };
        (0..STREAMS).filter(may_run).collect()
    }

    fn has_run(&self, op: usize) -> bool {
        self.ops[op].has_run
    }

    fn step(&mut self, stream: usize) {
        let op = self.queues[stream].pop_front().expect("only what is ready is stepped");
        self.ops[op].has_run = true;
        match self.ops[op].act {
            Act::Fill { buffer, word, value, .. } => self.words[buffer][word] = u32::from_ne_bytes([value; 4]),
            Act::Copy { from, to, .. } => self.words[to] = self.words[from],
            Act::Add { buffer, by, .. } => self.words[buffer].iter_mut().for_each(|word| *word += by),
            _ => {}
        }
    }

    /// What a question about the stream is about.
    fn asked(&self, stream: usize) -> Vec<usize> {
        let also = if stream == LEGACY { self.last[BLOCKING] } else { None };
        self.last[stream].into_iter().chain(also).collect()
    }

    /// The host has waited for the stream.
    fn synchronized(&mut self, stream: usize) {
        self.known.extend(self.last[stream]);
    }

    /// Whether two operations touch one word, one of them writing, with no chain between them.
    fn has_race(&self) -> bool {
        let mut before: Vec<BTreeSet<usize>> = Vec::new();
        for after in &self.after {
            let all = after.iter().flat_map(|earlier| before[*earlier].iter().copied().chain([*earlier])).collect();
            before.push(all);
        }
        (0..self.ops.len()).any(|later| {
            (0..later).any(|earlier| {
                !before[later].contains(&earlier) && conflict(self.ops[earlier].act, self.ops[later].act)
            })
        })
    }
}

/// Buffer, word and whether it is written, of each word that an operation touches.
fn touches(act: Act) -> Vec<(usize, usize, bool)> {
    let all = |buffer, write| (0..WORDS).map(move |word| (buffer, word, write));
    match act {
        Act::Fill { buffer, word, .. } => vec![(buffer, word, true)],
        Act::Copy { from, to, .. } => all(from, false).chain(all(to, true)).collect(),
        Act::Add { buffer, .. } => all(buffer, true).collect(),
        _ => Vec::new(),
    }
}

fn conflict(one: Act, other: Act) -> bool {
    let other = touches(other);
    let meets = |(buffer, word, write): (usize, usize, bool)| {
        other.iter().any(|(b, w, also)| (*b, *w) == (buffer, word) && (write || *also))
    };
    touches(one).into_iter().any(meets)
}

// --- the engine

struct Bench {
    rig: Rig,
    streams: Vec<StreamHandle>,
    events: Vec<EventHandle>,
    buffers: Vec<DeviceAddress>,
    /// Calls that wait, with what the model says that they wait for.
    waits: Vec<(Wait<()>, Vec<usize>)>,
    model: Model,
}

const BYTES: u64 = WORDS as u64 * 4;

impl Bench {
    fn new() -> Self {
        let mut rig = Rig::with(Profile::cuda_13(), Settings { whole_steps: true, ..Settings::default() });
        let blocking = rig.engine.stream_create_with(ME, Priority::Normal, true).expect("a stream");
        let streams = vec![StreamHandle::LEGACY, blocking, rig.stream(), rig.stream()];
        let events = (0..EVENTS).map(|_| rig.event()).collect();
        let buffers: Vec<_> = (0..BUFFERS).map(|_| rig.malloc(BYTES)).collect();
        for buffer in &buffers {
            rig.fill(streams[2], *buffer, 0, BYTES);
        }
        rig.run();
        Self { rig, streams, events, buffers, waits: Vec::new(), model: Model::default() }
    }

    fn act(&mut self, act: Act) {
        let bytes = BYTES;
        match act {
            Act::Fill { stream, buffer, word, value } => {
                let at = self.buffers[buffer].offset(word as u64 * 4);
                self.rig.fill(self.streams[stream], at, value, 4);
                self.model.submit(stream, act);
            }
            Act::Copy { stream, from, to } => {
                let (from, to) = (Location::Device(self.buffers[from]), Location::Device(self.buffers[to]));
                // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
                done(unsafe { self.rig.engine.copy(ME, self.streams[stream], to, from, bytes) }).expect("a copy");
                self.model.submit(stream, act);
            }
            Act::Add { stream, buffer, by } => {
                self.rig.add(self.streams[stream], by, self.buffers[buffer], bytes);
                self.model.submit(stream, act);
            }
            Act::Record { stream, event } => {
                self.rig.record(self.events[event], self.streams[stream]);
                self.model.submit(stream, act);
            }
            Act::Wait { stream, event } => {
                self.rig.wait(self.streams[stream], self.events[event]);
                self.model.submit(stream, act);
            }
            Act::Synchronize { stream } => self.synchronize(stream),
            Act::Step { which } => self.step(which),
        }
    }

    /// The call is left waiting: when it is over is asked after every step.
    fn synchronize(&mut self, stream: usize) {
        let answer = self.rig.engine.stream_synchronize(ME, self.streams[stream]);
        let last = self.model.asked(stream);
        if last.iter().all(|op| self.model.has_run(*op)) {
            done(answer).expect("what is idle is not waited for");
        } else {
            self.waits.push((blocked(answer), last));
        }
    }

    fn step(&mut self, which: usize) {
        let ready = self.rig.ready();
        let Some(chosen) = ready.get(which % ready.len().max(1)) else { return };
        let stream = self.stream_of(chosen.stream);
        self.rig.step(chosen.choice);
        self.model.step(stream);
    }

    fn stream_of(&self, id: tenure_sim::event::StreamId) -> usize {
        let is_it = |handle: &&StreamHandle| self.rig.engine.stream_id(**handle) == Some(id);
        let handle = self.streams.iter().find(is_it).expect("one of ours");
        self.streams.iter().position(|known| known == handle).expect("it was just found")
    }

    fn compare(&mut self) {
        let ready = self.rig.ready();
        let streams: BTreeSet<usize> = ready.iter().map(|ready| self.stream_of(ready.stream)).collect();
        assert_eq!(streams, self.model.ready(), "the ready sets differ");
        assert_eq!(streams.len(), ready.len(), "a stream can do one thing");
        for (wait, last) in &self.waits {
            let is_over = last.iter().all(|op| self.model.has_run(*op));
            assert_eq!(self.rig.engine.is_over(wait), is_over, "a wait is over when its last operations have run");
        }
        for stream in 0..STREAMS {
            let is_idle = self.model.asked(stream).iter().all(|op| self.model.has_run(*op));
            assert_eq!(self.rig.is_idle(self.streams[stream]), is_idle, "the legacy stream speaks for blocking ones");
        }
        for (event, recorded) in self.events.clone().into_iter().zip(self.model.recorded) {
            let answer = self.rig.engine.event_query(ME, event).expect("an answer");
            let has_run = recorded.is_none_or(|op| self.model.has_run(op));
            assert_eq!(answer == Progress::Complete, has_run, "an event is complete once its last record has run");
        }
    }

    fn run_out(&mut self) {
        while !self.rig.ready().is_empty() {
            self.step(0);
        }
        assert!(self.model.queues.iter().all(VecDeque::is_empty), "nothing is left waiting forever");
        for (buffer, words) in self.buffers.clone().into_iter().zip(self.model.words) {
            assert_eq!(self.rig.words(buffer, WORDS), words, "the bytes differ");
        }
    }
}

// --- the checkers

/// Plays the calls of a program through the driver; whether a race was found, and whether the model has one.
fn races(acts: &[Act], seed: u64) -> (bool, bool) {
    let sim = Sim::builder().profile(Profile::cuda_13()).drive(Drive::Seeded).seed(seed).build();
    let mut model = Model::default();
    let expect = "the simulator answers";
    let streams: Vec<_> = (0..STREAMS).map(|_| sim.stream_create(Priority::Normal).expect(expect)).collect();
    let events: Vec<_> = (0..EVENTS).map(|_| sim.event_create(Timing::Disabled).expect(expect)).collect();
    let buffers: Vec<_> = (0..BUFFERS).map(|_| sim.malloc(BYTES).expect(expect)).collect();
    for act in acts {
        match *act {
            Act::Fill { stream, buffer, word, value } => {
                let at = buffers[buffer].offset(word as u64 * 4);
                // SAFETY: O6. The memory is freed after all streams have been waited for.
                unsafe { sim.fill(&streams[stream], at, value, 4) }.expect(expect);
            }
            Act::Copy { stream, from, to } => {
                let (from, to) = (Location::Device(buffers[from]), Location::Device(buffers[to]));
                // SAFETY: O6. As above.
                unsafe { sim.copy(&streams[stream], to, from, BYTES) }.expect(expect);
            }
            Act::Record { stream, event } => sim.event_record(&events[event], &streams[stream]).expect(expect),
            Act::Wait { stream, event } => sim.stream_wait_event(&streams[stream], &events[event]).expect(expect),
            Act::Synchronize { stream } => {
                sim.stream_synchronize(&streams[stream]).expect(expect);
                model.synchronized(stream);
                continue;
            }
            Act::Add { .. } | Act::Step { .. } => continue,
        }
        model.submit_apart(*act);
    }
    for stream in &streams {
        sim.stream_synchronize(stream).expect(expect);
    }
    for buffer in buffers {
        // SAFETY: O6. All streams have been waited for.
        unsafe { sim.free(buffer) }.expect(expect);
    }
    let found = sim.report().violations().any(|finding| finding.line == Line::O1);
    (found, model.has_race())
}

impl Model {
    /// As [`Model::submit`], where no stream orders with the legacy one: the driver makes no others.
    fn submit_apart(&mut self, act: Act) {
        let (Act::Fill { stream, .. }
        | Act::Copy { stream, .. }
        | Act::Add { stream, .. }
        | Act::Record { stream, .. }
        | Act::Wait { stream, .. }
        | Act::Synchronize { stream }) = act
        else {
            return;
        };
        let others = (self.last[LEGACY], self.last[BLOCKING]);
        match stream {
            LEGACY => self.last[BLOCKING] = None,
            BLOCKING => self.last[LEGACY] = None,
            _ => {}
        }
        self.submit(stream, act);
        match stream {
            LEGACY => self.last[BLOCKING] = others.1,
            BLOCKING => self.last[LEGACY] = others.0,
            _ => {}
        }
    }
}

fn config() -> ProptestConfig {
    let defaults = ProptestConfig::default();
    ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(5), ..defaults }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn ready_sets_waits_and_bytes_are_as_order_defines_them(acts in prop::collection::vec(act(), 1..60)) {
        let mut bench = Bench::new();
        for act in acts {
            bench.act(act);
            bench.compare();
        }
        bench.run_out();
    }

    #[test]
    fn a_race_is_found_where_no_chain_joins_a_conflict(acts in prop::collection::vec(act(), 1..24), seed in 0..4_u64) {
        let (found, has_race) = races(&acts, seed);
        prop_assert_eq!(found, has_race, "the checkers and the definition disagree");
    }
}

#[test]
fn both_verdicts_on_races_are_reached() {
    let fill = |stream| Act::Fill { stream, buffer: 0, word: 0, value: 1 };
    assert_eq!(races(&[fill(2), fill(3)], 0), (true, true));
    let edge = [fill(2), Act::Record { stream: 2, event: 0 }, Act::Wait { stream: 3, event: 0 }, fill(3)];
    assert_eq!(races(&edge, 0), (false, false));
    let other_word = Act::Fill { stream: 3, buffer: 0, word: 1, value: 1 };
    assert_eq!(races(&[fill(2), other_word], 0), (false, false));
}
