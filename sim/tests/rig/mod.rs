//! An engine with a few kernels and no drive: tests step it themselves.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use tenure::driver::{Argument, DeviceAddress, HostPointer, Image, LaunchConfig, Location, Priority, Progress, Timing};
use tenure_sim::code::Code;
use tenure_sim::engine::{Answer, Choice, Engine, Ready, Settings, Step, Wait};
use tenure_sim::event::{Event, EventHandle, FunctionHandle, HostThread, StreamHandle, Violation};
use tenure_sim::kernel::{Library, Read, Write};
use tenure_sim::profile::Profile;

pub const ME: HostThread = HostThread(0);
pub const YOU: HostThread = HostThread(1);

pub struct Rig {
    pub engine: Engine,
    pub events: Vec<Event>,
    add: FunctionHandle,
    copy: FunctionHandle,
}

impl Rig {
    pub fn new(profile: Profile) -> Self {
        Self::with(profile, Settings { whole_steps: true, ..Settings::default() })
    }

    pub fn with(profile: Profile, settings: Settings) -> Self {
        let mut library = Library::new();
        library.add("add", |by: u32, mut y: Write<'_, u32>| y.iter_mut().for_each(|y| *y += by));
        library.add("copy", |x: Read<'_, u32>, mut y: Write<'_, u32>| {
            y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = *x);
        });
        library.add("panics", || panic!("a kernel that fails, on purpose"));
        let mut engine = Engine::with_kernels(profile, settings, Arc::new(library));
        let module = engine.module_load(ME, Image::Source("")).expect("nothing forbids it");
        let add = engine.function(ME, module, "add").expect("it is there");
        let copy = engine.function(ME, module, "copy").expect("it is there");
        Self { engine, events: Vec::new(), add, copy }
    }

    pub fn cuda() -> Self {
        Self::new(Profile::cuda_13())
    }

    pub fn stream(&mut self) -> StreamHandle {
        self.engine.stream_create(ME, Priority::Normal).expect("a stream")
    }

    pub fn event(&mut self) -> EventHandle {
        self.engine.event_create(ME, Timing::Disabled).expect("an event")
    }

    pub fn malloc(&mut self, bytes: u64) -> DeviceAddress {
        self.engine.malloc(ME, bytes).expect("memory")
    }

    pub fn function(&mut self, name: &str) -> FunctionHandle {
        let module = self.engine.module_load(ME, Image::Source("")).expect("nothing forbids it");
        self.engine.function(ME, module, name).expect("it is there")
    }

    // --- submissions that must not block

    pub fn try_add(&mut self, stream: StreamHandle, by: u32, y: DeviceAddress, bytes: u64) -> Result<(), Code> {
        let arguments = [Argument::Scalar { words: [by.into(), 0], bytes: 4 }, Argument::Pointer { address: y, bytes }];
        done(self.engine.launch(ME, stream, self.add, &LaunchConfig::linear(1), &arguments))
    }

    pub fn add(&mut self, stream: StreamHandle, by: u32, y: DeviceAddress, bytes: u64) {
        self.try_add(stream, by, y, bytes).expect("a launch");
    }

    pub fn copy_kernel(&mut self, stream: StreamHandle, from: DeviceAddress, to: DeviceAddress, bytes: u64) {
        let arguments = [Argument::Pointer { address: from, bytes }, Argument::Pointer { address: to, bytes }];
        done(self.engine.launch(ME, stream, self.copy, &LaunchConfig::linear(1), &arguments)).expect("a launch");
    }

    pub fn fill(&mut self, stream: StreamHandle, at: DeviceAddress, value: u8, bytes: u64) {
        done(self.engine.fill(ME, stream, at, value, bytes)).expect("a fill");
    }

    pub fn record(&mut self, event: EventHandle, stream: StreamHandle) {
        done(self.engine.event_record(ME, event, stream)).expect("a record");
    }

    pub fn wait(&mut self, stream: StreamHandle, event: EventHandle) {
        done(self.engine.stream_wait_event(ME, stream, event)).expect("a wait");
    }

    /// A copy, which may wait until it has run: then the device runs.
    pub fn copy(&mut self, stream: StreamHandle, to: Location, from: Location, bytes: u64) {
        // SAFETY: P4. Memory of the test, which stays until the copy has run.
        let mut answer = unsafe { self.engine.copy(ME, stream, to, from, bytes) }.expect("a copy");
        while let Answer::Blocked(wait) = answer {
            self.run();
            answer = self.engine.finish(wait).expect("the device works");
        }
    }

    pub fn is_idle(&mut self, stream: StreamHandle) -> bool {
        self.engine.stream_query(ME, stream).expect("an answer") == Progress::Complete
    }

    /// The words at a device address, once all has run.
    pub fn words(&mut self, at: DeviceAddress, count: usize) -> Vec<u32> {
        let mut words = vec![0_u32; count];
        let to = HostPointer(std::ptr::NonNull::from(&mut words[0]).cast());
        let stream = self.stream();
        self.copy(stream, Location::Host(to), Location::Device(at), count as u64 * 4);
        self.run();
        done(self.engine.stream_destroy(ME, stream)).expect("a destroy");
        words
    }

    // --- the device

    pub fn ready(&self) -> Vec<Ready> {
        let mut ready = Vec::new();
        self.engine.ready(&mut ready);
        ready
    }

    pub fn step(&mut self, choice: Choice) {
        match self.engine.step(choice) {
            Step::Done => {}
            Step::Function(call) => {
                (call.function)();
                self.engine.function_returned(call.op);
            }
            Step::NotReady => panic!("{choice:?} was not ready"),
        }
    }

    pub fn run(&mut self) {
        while let Some(choice) = self.engine.first_ready() {
            self.step(choice);
        }
    }

    /// Steps the first thing that may happen on the stream.
    pub fn step_on(&mut self, stream: StreamHandle) {
        let id = self.engine.stream_id(stream).expect("a live stream");
        let ready = self.ready().into_iter().find(|ready| ready.stream == id).expect("something may happen there");
        self.step(ready.choice);
    }

    pub fn drain(&mut self) -> &[Event] {
        self.engine.take_events(&mut self.events);
        &self.events
    }

    pub fn violations(&mut self) -> Vec<Violation> {
        let found = self.drain().iter();
        found
            .filter_map(|event| if let Event::Violation(violation) = event { Some(*violation) } else { None })
            .collect()
    }
}

/// The value of a call that must not wait.
#[track_caller]
pub fn done<T: std::fmt::Debug>(answer: Result<Answer<T>, Code>) -> Result<T, Code> {
    match answer? {
        Answer::Done(value) => Ok(value),
        Answer::Blocked(wait) => panic!("the call waits: {wait:?}"),
    }
}

/// The wait of a call that must.
#[track_caller]
pub fn blocked<T: std::fmt::Debug>(answer: Result<Answer<T>, Code>) -> Wait<T> {
    match answer.expect("the call waits") {
        Answer::Blocked(wait) => wait,
        Answer::Done(value) => panic!("the call does not wait: {value:?}"),
    }
}
