//! Random programs on every profile: whatever is called in whatever order, the engine answers, keeps its promises and
//! ends with nothing left.

mod rig;

use std::ptr::NonNull;
use std::sync::Arc;

use rig::{ME, Rig, YOU};
use tenure::driver::{CaptureMode, DeviceAddress, HostAccess, HostPointer, Location, Priority, Timing};
use tenure_sim::code::Code;
use tenure_sim::engine::{Answer, Live, Settings, Step, Wait};
use tenure_sim::event::{
    Event, EventHandle, ExecutableHandle, GraphHandle, HostThread, OpId, StreamHandle, StreamId, Violation,
};
use tenure_sim::profile::Profile;

const CALLS: usize = 250;
const SEEDS: u64 = 200;
const HOST_WORDS: usize = 64;

struct Program {
    rig: Rig,
    random: u64,
    streams: Vec<StreamHandle>,
    marks: Vec<EventHandle>,
    memory: Vec<DeviceAddress>,
    /// Memory that is never freed before the end. Careful programs use no other.
    lasting: Vec<DeviceAddress>,
    graphs: Vec<GraphHandle>,
    executables: Vec<ExecutableHandle>,
    pinned: Vec<HostPointer>,
    host: Vec<u32>,
    waits: Vec<Wait<()>>,
    functions: Vec<OpId>,
}

impl Program {
    fn new(profile: Profile, seed: u64) -> Self {
        let mut profile = profile;
        profile.queue_depth = 6;
        let mut rig = Rig::with(profile, Settings { whole_steps: seed.is_multiple_of(2), ..Settings::default() });
        let lasting = if seed.is_multiple_of(8) { Vec::new() } else { vec![rig.malloc(64), rig.malloc(64)] };
        Self {
            rig,
            lasting,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            streams: vec![StreamHandle::LEGACY],
            marks: Vec::new(),
            memory: Vec::new(),
            graphs: Vec::new(),
            executables: Vec::new(),
            pinned: Vec::new(),
            host: vec![0; HOST_WORDS],
            waits: Vec::new(),
            functions: Vec::new(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % bound.max(1)
    }

    fn pick<T: Copy>(&mut self, of: fn(&Self) -> &Vec<T>) -> Option<T> {
        let at = self.below(of(self).len());
        of(self).get(at).copied()
    }

    fn target(&mut self) -> Option<DeviceAddress> {
        if self.lasting.is_empty() { self.pick(|p| &p.memory) } else { self.pick(|p| &p.lasting) }
    }

    fn host_pointer(&mut self) -> HostPointer {
        let at = self.below(HOST_WORDS / 2);
        HostPointer(NonNull::from(&mut self.host[at]).cast())
    }

    fn keep(&mut self, answer: Result<Answer<()>, Code>) {
        if let Ok(Answer::Blocked(wait)) = answer {
            self.waits.push(wait);
        }
    }

    fn step(&mut self) -> bool {
        let ready = self.rig.ready();
        if ready.is_empty() {
            return match self.functions.pop() {
                Some(op) => {
                    self.rig.engine.function_returned(op);
                    true
                }
                None => false,
            };
        }
        let at = self.below(ready.len());
        match self.rig.engine.step(ready[at].choice) {
            Step::Done => {}
            Step::Function(call) => self.functions.push(call.op),
            Step::NotReady => panic!("{:?} was listed as ready and is not", ready[at]),
        }
        true
    }

    fn finish_waits(&mut self) {
        for wait in std::mem::take(&mut self.waits) {
            let was_over = self.rig.engine.is_over(&wait);
            match self.rig.engine.finish(wait) {
                Ok(Answer::Blocked(wait)) => {
                    assert!(!was_over, "a wait that is over does not block again");
                    self.waits.push(wait);
                }
                Ok(Answer::Done(())) | Err(_) => assert!(was_over, "a wait ended before it was over"),
            }
        }
    }

    fn call(&mut self, thread: HostThread) -> Option<()> {
        let mode = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed][self.below(3)];
        match self.below(30) {
            0 => {
                let blocking = self.below(4) == 0;
                let made = self.rig.engine.stream_create_with(thread, Priority::Normal, blocking);
                self.streams.extend(made.ok());
            }
            1 => {
                let stream = self.pick(|p| &p.streams)?;
                let answer = self.rig.engine.stream_destroy(thread, stream);
                self.keep(answer);
            }
            2 => drop(self.pick(|p| &p.streams).map(|stream| self.rig.engine.stream_query(thread, stream))),
            3 => {
                let stream = self.pick(|p| &p.streams)?;
                let answer = self.rig.engine.stream_synchronize(thread, stream);
                self.keep(answer);
            }
            4 => self.marks.extend(self.rig.engine.event_create(thread, Timing::Enabled).ok()),
            5 => {
                let mark = self.pick(|p| &p.marks)?;
                let _ = self.rig.engine.event_destroy(thread, mark);
            }
            6 | 7 => {
                let (mark, stream) = (self.pick(|p| &p.marks)?, self.pick(|p| &p.streams)?);
                let answer = self.rig.engine.event_record(thread, mark, stream);
                self.keep(answer);
            }
            8 | 9 => {
                let (mark, stream) = (self.pick(|p| &p.marks)?, self.pick(|p| &p.streams)?);
                let answer = self.rig.engine.stream_wait_event(thread, stream, mark);
                self.keep(answer);
            }
            10 => drop(self.pick(|p| &p.marks).map(|mark| self.rig.engine.event_query(thread, mark))),
            11 => {
                let mark = self.pick(|p| &p.marks)?;
                let answer = self.rig.engine.event_synchronize(thread, mark);
                self.keep(answer);
            }
            12 => {
                let stream = self.pick(|p| &p.streams)?;
                let answer = self.rig.engine.launch_host_function(thread, stream, Arc::new(|| {}));
                self.keep(answer);
            }
            13 => self.memory.extend(self.rig.engine.malloc(thread, 64).ok()),
            14 => {
                let memory = self.pick(|p| &p.memory)?;
                let answer = self.rig.engine.free(thread, memory);
                self.keep(answer);
            }
            15 | 16 => {
                let stream = self.pick(|p| &p.streams)?;
                let mut answer = self.rig.engine.malloc_async(thread, stream, 64).ok()?;
                while let Answer::Blocked(wait) = answer {
                    self.step();
                    answer = self.rig.engine.finish(wait).ok()?;
                }
                if let Answer::Done(memory) = answer {
                    self.memory.push(memory);
                }
            }
            17 => {
                let (memory, stream) = (self.pick(|p| &p.memory)?, self.pick(|p| &p.streams)?);
                let answer = self.rig.engine.free_async(thread, stream, memory);
                self.keep(answer);
            }
            18 => self.pinned.extend(self.rig.engine.host_alloc(thread, 64).ok()),
            19 => {
                let at = self.host_pointer();
                // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
                let _ = unsafe { self.rig.engine.host_register(thread, Some(at), 32, HostAccess::ReadWrite) };
            }
            20 => {
                let at = self.host_pointer();
                let answer = self.rig.engine.host_unregister(thread, Some(at));
                self.keep(answer);
            }
            21 | 22 => {
                let (stream, to) = (self.pick(|p| &p.streams)?, self.target()?);
                let from = self.host_pointer();
                // SAFETY: P4. Inside of memory of the test, which outlives the engine or is unregistered first.
                let answer =
                    unsafe { self.rig.engine.copy(thread, stream, Location::Device(to), Location::Host(from), 32) };
                self.keep(answer);
            }
            23 => {
                let (stream, at) = (self.pick(|p| &p.streams)?, self.target()?);
                let answer = self.rig.engine.fill(thread, stream, at, 1, 64);
                self.keep(answer);
            }
            24 => drop(self.pick(|p| &p.streams).map(|stream| self.rig.engine.capture_begin(thread, stream, mode))),
            25 => {
                let stream = self.pick(|p| &p.streams)?;
                self.graphs.extend(self.rig.engine.capture_end(thread, stream).ok());
            }
            26 => drop(self.rig.engine.exchange_capture_mode(thread, mode)),
            27 => {
                let graph = self.pick(|p| &p.graphs)?;
                self.executables.extend(self.rig.engine.graph_instantiate(thread, graph).ok());
                if self.below(2) == 0 {
                    let _ = self.rig.engine.graph_destroy(thread, graph);
                }
            }
            28 => {
                let (executable, stream) = (self.pick(|p| &p.executables)?, self.pick(|p| &p.streams)?);
                let answer = self.rig.engine.graph_launch(thread, executable, stream);
                self.keep(answer);
            }
            _ => {
                let (executable, graph) = (self.pick(|p| &p.executables)?, self.pick(|p| &p.graphs)?);
                let _ = self.rig.engine.graph_update(thread, executable, graph);
                if self.below(4) == 0 {
                    let _ = self.rig.engine.executable_destroy(thread, executable);
                }
            }
        }
        Some(())
    }

    fn run(&mut self) {
        loop {
            let stepped = self.step();
            self.finish_waits();
            if !stepped && (self.waits.is_empty() || self.rig.ready().is_empty()) {
                break;
            }
        }
        assert!(self.waits.is_empty(), "an idle device leaves no call waiting: {:?}", self.waits);
    }

    /// Gives everything back; handles that are stale by now are refused, which is no harm.
    fn clean_up(&mut self) {
        self.run();
        for thread in [ME, YOU] {
            for stream in self.streams.clone() {
                self.graphs.extend(self.rig.engine.capture_end(thread, stream).ok());
            }
            let _ = self.rig.engine.exchange_capture_mode(thread, CaptureMode::Relaxed);
        }
        for stream in std::mem::take(&mut self.streams) {
            let answer = self.rig.engine.stream_destroy(ME, stream);
            self.keep(answer);
        }
        self.run();
        for mark in &self.marks {
            let _ = self.rig.engine.event_destroy(ME, *mark);
        }
        for graph in &self.graphs {
            let _ = self.rig.engine.graph_destroy(ME, *graph);
        }
        for executable in &self.executables {
            let _ = self.rig.engine.executable_destroy(ME, *executable);
        }
        self.memory.append(&mut self.lasting);
        for memory in std::mem::take(&mut self.memory) {
            let answer = self.rig.engine.free(ME, memory);
            self.keep(answer);
        }
        for pinned in std::mem::take(&mut self.pinned) {
            let answer = self.rig.engine.host_free(ME, pinned);
            self.keep(answer);
        }
        for at in 0..HOST_WORDS {
            let base = HostPointer(NonNull::from(&mut self.host[at]).cast());
            let answer = self.rig.engine.host_unregister(ME, Some(base));
            self.keep(answer);
        }
        self.run();
    }
}

/// Numbers on each stream have no gaps, and each operation starts and completes once, in order.
fn assert_streams_in_order(events: &[Event]) {
    let mut next: std::collections::BTreeMap<StreamId, (u64, std::collections::VecDeque<OpId>)> = Default::default();
    for event in events {
        match event {
            Event::Submitted { op, stream, number, .. } => {
                let (last, queue) = next.entry(*stream).or_default();
                *last += 1;
                assert_eq!(number, last, "a number was left out or given twice");
                queue.push_back(*op);
            }
            Event::Completed { op, stream } => {
                let (_, queue) = next.entry(*stream).or_default();
                if queue.contains(op) {
                    assert_eq!(queue.pop_front(), Some(*op), "an operation overtook another on its stream");
                }
            }
            _ => {}
        }
    }
}

#[test]
fn random_programs_are_answered_and_leave_nothing() {
    for name in Profile::NAMES {
        let mut lost = 0;
        for seed in 1..=SEEDS {
            let mut program = Program::new(Profile::named(name).expect("a listed name"), seed);
            for _ in 0..CALLS {
                let thread = [ME, YOU, HostThread::FUNCTIONS][program.below(21).saturating_sub(18).min(2)];
                program.call(thread);
                if program.below(3) > 0 {
                    program.step();
                }
                program.finish_waits();
            }
            let is_lost = program.rig.engine.lost().is_some();
            lost += u64::from(is_lost);
            assert!(!is_lost || seed.is_multiple_of(8), "{name}, seed {seed}: a careful program lost the device");
            if !is_lost {
                program.clean_up();
            }
            let violated = program.rig.violations().iter().any(|found| matches!(found, Violation::Access { .. }));
            assert_eq!(violated, program.rig.engine.lost().is_some(), "{name}, seed {seed}: lost without a cause");
            assert_streams_in_order(&program.rig.events);
            if program.rig.engine.lost().is_none() {
                let modules = program.rig.engine.live().modules;
                assert_eq!(program.rig.engine.live(), Live { modules, ..Live::default() }, "{name}, seed {seed}");
            }
        }
        assert!(lost > 0, "{name}: no careless program was found out");
    }
}
