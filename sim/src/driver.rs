//! A simulated GPU as a driver: [`Sim`] implements the core's [`Driver`] over the engine.
//!
//! It is useful without the core as well: the methods of the trait are ordinary calls (create a stream, launch, record,
//! register …) on handles of their own types, and a test of a runtime of its own calls them.
//!
//! ```
//! use tenure::driver::{Argument, Driver, Image, LaunchConfig, Priority};
//! use tenure_sim::driver::Sim;
//! use tenure_sim::kernel::Write;
//! use tenure_sim::profile::Profile;
//!
//! let sim = Sim::new(Profile::cuda_13());
//! sim.kernel("increment", |mut x: Write<'_, u32>| x.iter_mut().for_each(|x| *x += 1));
//! let stream = sim.stream_create(Priority::Normal)?;
//! let memory = sim.malloc(16)?;
//! let module = sim.module_load(Image::Source(""))?;
//! let increment = sim.function(&module, "increment")?;
//! // SAFETY: the memory is 16 bytes and lives until after the synchronize.
//! unsafe { sim.fill(&stream, memory, 0, 16) }?;
//! let x = Argument::Pointer { address: memory, bytes: 16 };
//! // SAFETY: as above, and the kernel takes one pointer.
//! unsafe { sim.launch(&stream, &increment, &LaunchConfig::linear(4), &[x]) }?;
//! sim.stream_synchronize(&stream)?;
//! assert!(sim.report().is_clean());
//! # Ok::<(), tenure_sim::driver::SimError>(())
//! ```
//!
//! # What a call does
//! 1. It is counted ([`Sim::counts`]); so a test can say that a drop makes no driver call.
//! 2. Others may run: the device, and other host threads under a schedule.
//! 3. It takes effect in the engine, all at once; the checkers see what happened.
//! 4. Where it blocks, others run until what it waits for has happened.

use crate::checker::happens_before::OrderFigures;
use crate::checker::liveness::Leaks;
use crate::checker::registration::Region;
use crate::checker::{Finding, Severity};
use crate::code::Code;
use crate::drive::schedule::{Policy, Schedule, Seeded};
use crate::drive::seat::{self, Shared};
use crate::drive::turns::Waiting;
use crate::drive::world::{Value, World};
use crate::drive::{Drive, mover, seeded, threaded};
use crate::engine::{Answer, CALLS, Engine, Settings};
use crate::event::{
    Access, Event, EventHandle, ExecutableHandle, FunctionHandle, GraphHandle, HostThread, KernelId, ModuleHandle,
    StreamHandle, StreamId,
};
use crate::fault::Fault;
use crate::host_memory::ProcessMap;
use crate::kernel::{KernelFunction, Library};
use crate::memory::Reuse;
use crate::profile::Profile;
use crate::trace::{self, Names, Trace};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tenure::driver::{
    Argument, Call, Capabilities, CaptureMode, CaptureStatus, Coverage, DeviceAddress, Driver, DriverError, ErrorKind,
    GraphDescription, HostAccess, HostFunction, HostPointer, Image, LaunchConfig, Location, Priority, Process,
    Progress, Timing,
};
use tenure::sync::coop;

/// An error of the simulated driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimError {
    call: Call,
    code: Code,
}

impl SimError {
    /// The call that failed.
    pub fn call(&self) -> Call {
        self.call
    }

    /// The driver's number for it.
    pub fn code(&self) -> Code {
        self.code
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.code)
    }
}

impl std::error::Error for SimError {}

impl DriverError for SimError {
    fn kind(&self) -> ErrorKind {
        self.code.kind()
    }

    fn code(&self) -> i32 {
        self.code.0
    }
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, PartialEq, Eq, Hash)]
        pub struct $name($inner);

        impl $name {
            /// The value that the driver knows it by; handed out again after its end (O7).
            pub fn handle(&self) -> $inner {
                self.0
            }

            /// The handle of this value, as other code gives it to a runtime. A value that stands for nothing is
            /// refused by the call that is made with it.
            pub fn from_raw(handle: $inner) -> Self {
                Self(handle)
            }
        }
    )*};
}

impl SimStream {
    /// The legacy default stream: every blocking stream waits for it, and it for them.
    pub fn legacy() -> Self {
        Self(StreamHandle::LEGACY)
    }

    /// The default stream of whichever thread names it.
    pub fn per_thread() -> Self {
        Self(StreamHandle::PER_THREAD)
    }
}

handles! {
    /// A stream of the simulated device.
    SimStream(StreamHandle);
    /// An event of the simulated device.
    SimEvent(EventHandle);
    /// A module of the simulated device.
    SimModule(ModuleHandle);
    /// A kernel of the simulated device.
    SimFunction(FunctionHandle);
    /// A recorded graph.
    SimGraph(GraphHandle);
    /// A graph made ready to launch.
    SimExecutable(ExecutableHandle);
}

/// How many calls of each kind were made, in all and by each host thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    threads: Vec<[u64; CALLS]>,
}

impl Counts {
    /// Calls of this kind.
    pub fn of(&self, call: Call) -> u64 {
        self.threads.iter().map(|counts| counts[call as usize]).sum()
    }

    /// Calls of this kind by one thread.
    pub fn of_thread(&self, thread: HostThread, call: Call) -> u64 {
        self.threads.get(thread.0 as usize).map_or(0, |counts| counts[call as usize])
    }

    /// Calls of any kind.
    pub fn total(&self) -> u64 {
        self.threads.iter().flatten().sum()
    }

    /// Calls of any kind by one thread.
    pub fn total_of_thread(&self, thread: HostThread) -> u64 {
        self.threads.get(thread.0 as usize).map_or(0, |counts| counts.iter().sum())
    }

    fn note(&mut self, thread: HostThread, call: Call) {
        let index = thread.0 as usize;
        if self.threads.len() <= index {
            self.threads.resize(index + 1, [0; CALLS]);
        }
        self.threads[index][call as usize] += 1;
    }
}

/// How a [`Sim`] is made. From [`Sim::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    profile: Profile,
    kernels: Arc<Library>,
    pub(crate) drive: Drive,
    pub(crate) seed: u64,
    pub(crate) policy: Option<Policy>,
    faults: Vec<Fault>,
    settings: Settings,
    device_bytes: Option<u64>,
    rows: usize,
    steps_max: u64,
    patience: Duration,
    pub(crate) reuse: Option<Reuse>,
    pub(crate) quiet_max: u64,
    probes_kernels: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            profile: Profile::cuda_13(),
            kernels: Arc::new(Library::new()),
            drive: Drive::default(),
            seed: 0,
            policy: None,
            faults: Vec::new(),
            settings: Settings::default(),
            device_bytes: None,
            rows: 4096,
            steps_max: u64::MAX,
            patience: Duration::from_secs(5),
            reuse: None,
            quiet_max: u64::MAX,
            probes_kernels: false,
        }
    }
}

impl Builder {
    /// Which driver it behaves as. Default: CUDA 13.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// What decides. Default: the seed.
    pub fn drive(mut self, drive: Drive) -> Self {
        self.drive = drive;
        self
    }

    /// The number that decides. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How the seed picks. Default: by the seed itself.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Something to go wrong.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// A kernel; see [`crate::kernel`] for what its closure may take.
    pub fn kernel<S, F: KernelFunction<S>>(mut self, name: &str, function: F) -> Self {
        Arc::make_mut(&mut self.kernels).add(name, function);
        self
    }

    /// All kernels of a library.
    pub fn kernels(mut self, library: &Library) -> Self {
        Arc::make_mut(&mut self.kernels).extend(library);
        self
    }

    /// How much memory the device has, in bytes. Default: what the profile says.
    pub fn device_bytes(mut self, bytes: u64) -> Self {
        self.device_bytes = Some(bytes);
        self
    }

    /// Operations start and finish in one step: fewer schedules with the same outcomes, and no overlap in time.
    pub fn whole_steps(mut self) -> Self {
        self.settings.whole_steps = true;
        self
    }

    /// The device has no memory pools, as where `hipDeviceAttributeMemoryPoolsSupported` is 0: memory is allocated and freed
    /// for the whole device, and not in a stream's order.
    pub fn without_pools(mut self) -> Self {
        self.settings.pools = false;
        self
    }

    /// In which order addresses and handles are handed out again. Default: as the seed has it.
    pub fn reuse(mut self, reuse: Reuse) -> Self {
        self.reuse = Some(reuse);
        self
    }

    /// Kernels that write what nothing wrote run twice, to see whether they read it: [`Engine::probe_kernels`].
    pub fn probe_kernels(mut self) -> Self {
        self.probes_kernels = true;
        self
    }

    /// How many rows of the trace are kept. Default: 4,096.
    pub fn trace_rows(mut self, rows: usize) -> Self {
        self.rows = rows;
        self
    }

    /// After how many steps a scheduled run counts as endless. Default: never.
    pub fn steps_max(mut self, steps: u64) -> Self {
        self.steps_max = steps;
        self
    }

    /// After how many steps in which nothing was submitted and nothing completed a scheduled run counts as endless.
    pub(crate) fn quiet_max(mut self, steps: u64) -> Self {
        self.quiet_max = steps;
        self
    }

    /// How long, in real time, a wait outside of a schedule looks on while nothing moves, before it counts as a
    /// deadlock. Default: 5 seconds.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Makes the simulated device.
    ///
    /// # Panics
    /// Where the system has no thread for the device, under [`Drive::Threaded`].
    pub fn build(self) -> Sim {
        let schedule = match self.drive {
            Drive::Stepped => Schedule::First,
            _ => return self.assemble_seeded(true),
        };
        self.assemble(schedule, true)
    }

    pub(crate) fn keeps_trace(&self) -> bool {
        self.rows > 0
    }

    /// The device whose schedule, and whose order of reuse, its seed decides, for a run whose schedule decides every move.
    pub(crate) fn build_seeded(&self) -> Sim {
        self.assemble_seeded(false)
    }

    fn assemble_seeded(&self, moves_itself: bool) -> Sim {
        let mut seeded = self.clone();
        seeded.reuse = Some(self.reuse.unwrap_or(Reuse::of_seed(self.seed)));
        seeded.assemble(Schedule::Seeded(Seeded::new(self.seed, self.policy)), moves_itself)
    }

    /// As [`build`](Self::build), for a run whose schedule decides every move.
    pub(crate) fn build_with(&self, schedule: Schedule) -> Sim {
        self.assemble(schedule, false)
    }

    fn assemble(&self, schedule: Schedule, moves_itself: bool) -> Sim {
        let mut engine = Engine::with_kernels(self.profile.clone(), self.settings, self.kernels.clone());
        engine.set_host_map(Box::new(ProcessMap));
        self.faults.iter().for_each(|fault| engine.add_fault(*fault));
        if let Some(bytes) = self.device_bytes {
            engine.set_device_bytes(bytes);
        }
        engine.set_reuse(self.reuse.unwrap_or_default());
        if self.probes_kernels {
            engine.probe_kernels();
        }
        let mut world = World::new(engine, schedule, Trace::new(self.rows), self.steps_max);
        world.patience = self.patience;
        world.quiet_max = self.quiet_max;
        name_kernels(&mut world);
        let shared = Arc::new(Shared::new(world));
        let device = (self.drive == Drive::Threaded)
            .then(|| threaded::start(&shared).expect("the system has no thread for the device"));
        let id = NEXT_SIM.fetch_add(1, Ordering::Relaxed);
        let inner = Inner { shared, drive: self.drive, seed: self.seed, id, moves_itself, device: Mutex::new(device) };
        Sim(Arc::new(inner))
    }
}

fn name_kernels(world: &mut World) {
    let World { engine, checkers, .. } = world;
    for number in 0.. {
        let id = KernelId(number);
        let Some(kernel) = engine.kernels().kernel(id) else { return };
        checkers.findings.name_kernel(id, kernel.name());
    }
}

/// Tells simulations apart in per-thread memory. Uniqueness only: no memory hangs on it.
static NEXT_SIM: AtomicU64 = AtomicU64::new(1);

struct Inner {
    shared: Arc<Shared>,
    drive: Drive,
    seed: u64,
    id: u64,
    /// Whether the device may move while nobody calls.
    moves_itself: bool,
    device: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(device) = self.device.lock().take() else { return };
        self.shared.world.lock().is_closed = true;
        self.shared.work.notify_all();
        if device.thread().id() != std::thread::current().id() {
            let _ = device.join();
        }
    }
}

/// A simulated GPU. Clones are handles to the same device.
#[derive(Clone)]
pub struct Sim(Arc<Inner>);

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("drive", &self.0.drive).field("seed", &self.0.seed).finish_non_exhaustive()
    }
}

/// What a simulation has to say. From [`Sim::report`] and [`Sim::finish`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed, or the choices, that replay the run.
    pub seed: String,
    /// How the seed picked.
    pub policy: Option<Policy>,
    /// What the checkers found, in order.
    pub findings: Vec<Finding>,
    /// How many more findings there were than are kept.
    pub findings_dropped: u64,
    /// The calls made.
    pub counts: Counts,
    /// Edges, and how many of them were needed.
    pub order: OrderFigures,
    /// What was left alive; known at the end only.
    pub leaks: Option<Leaks>,
    /// Steps of the device and turns of host threads.
    pub steps: u64,
    /// Virtual time, in nanoseconds.
    pub now_ns: u64,
    /// The end of the run as lanes of text; empty where nothing was found.
    pub lanes: String,
}

impl Report {
    /// The findings that break a promise.
    pub fn violations(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Violation)
    }

    /// Whether no promise was broken.
    pub fn is_clean(&self) -> bool {
        self.violations().next().is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
            writeln!(f, "    {} promises: {}", finding.line, finding.line.promise())?;
        }
        if self.findings_dropped > 0 {
            writeln!(f, "and {} more", self.findings_dropped)?;
        }
        let policy = self.policy.map_or("", Policy::name);
        writeln!(f, "seed {} {policy}", self.seed)?;
        f.write_str(&self.lanes)
    }
}

impl Sim {
    /// A device of this profile that seed 0 drives. While a host function waits to be called, such as that of a future, it also
    /// moves by itself.
    pub fn new(profile: Profile) -> Self {
        Self::builder().profile(profile).build()
    }

    /// A device to be described.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Adds a kernel; modules loaded before find it too. See [`crate::kernel`] for what its closure may take.
    pub fn kernel<S, F: KernelFunction<S>>(&self, name: &str, function: F) {
        let mut world = self.shared().world.lock();
        world.engine.add_kernel(name, function);
        name_kernels(&mut world);
    }

    /// Adds all kernels of a library; modules loaded before find them too.
    pub fn kernels(&self, library: &Library) {
        let mut world = self.shared().world.lock();
        world.engine.add_kernels(library);
        name_kernels(&mut world);
    }

    /// Adds something to go wrong.
    pub fn add_fault(&self, fault: Fault) {
        self.shared().world.lock().engine.add_fault(fault);
    }

    /// Loses the device: every later call and every wait returns this code (R6).
    pub fn lose_device(&self, code: Code) {
        let mut world = self.shared().world.lock();
        world.engine.lose_device(code);
        world.settle();
        world.changed();
        self.shared().progress.notify_all();
    }

    // --- calls that only other code makes: none is counted

    /// Makes a stream; see [`stream_create_with`](Engine::stream_create_with) for what a `blocking` one is.
    ///
    /// # Errors
    /// As every call.
    pub fn stream_create_with(&self, priority: Priority, blocking: bool) -> Result<SimStream, SimError> {
        self.around(Call::StreamCreate, false, None, |world, thread, _| {
            let result = world.engine.stream_create_with(thread, priority, blocking);
            world.settle();
            result.map(SimStream)
        })
    }

    /// Records an event so that a capture gives it a time: [`event_record_external`](Engine::event_record_external).
    ///
    /// # Errors
    /// As a record's.
    pub fn event_record_external(&self, event: &SimEvent, stream: &SimStream) -> Result<(), SimError> {
        self.waiting_as(Call::EventRecord, false, None, |engine, thread| {
            engine.event_record_external(thread, event.0, stream.0)
        })
    }

    /// Waits for all that the device holds.
    ///
    /// # Errors
    /// 900 where anybody captures.
    pub fn device_synchronize(&self) -> Result<(), SimError> {
        self.waiting_as(Call::StreamSynchronize, false, None, Engine::device_synchronize)
    }

    /// Copies on the legacy stream, as the plain call of a driver does: [`copy_and_wait`](Engine::copy_and_wait).
    ///
    /// # Safety
    /// The same as for [`Driver::copy`].
    ///
    /// # Errors
    /// 906 where a capture forbids it; 1 as a copy's.
    pub unsafe fn copy_and_wait(&self, to: Location, from: Location, bytes: u64) -> Result<(), SimError> {
        self.waiting_as(Call::Copy, false, None, |engine, thread| {
            // SAFETY: P4. Promised by the caller.
            unsafe { engine.copy_and_wait(thread, to, from, bytes) }
        })
    }

    /// Sets bytes on the legacy stream, as the plain call of a driver does: [`fill_and_wait`](Engine::fill_and_wait).
    ///
    /// # Safety
    /// The same as for [`Driver::fill`].
    ///
    /// # Errors
    /// 906 where a capture forbids it.
    pub unsafe fn fill_and_wait(&self, at: DeviceAddress, value: u8, bytes: u64) -> Result<(), SimError> {
        self.waiting_as(Call::Fill, false, None, |engine, thread| engine.fill_and_wait(thread, at, value, bytes))
    }

    /// Resets the device: all that was made before is gone, and who has a handle of it is refused at each use.
    ///
    /// # Errors
    /// The device is lost.
    pub fn reset_device(&self) -> Result<(), SimError> {
        let result = self.around(Call::StreamDestroy, false, None, |world, thread, _| {
            let result = world.engine.reset_device(thread);
            world.settle();
            result
        });
        self.shared().progress.notify_all();
        result
    }

    /// The calling thread's last error, which it forgets; 0 where there is none. Calls of the driver trait leave none, as
    /// the trait promises; those that other code makes ([`foreign`](Self::foreign), and the ones above) do.
    pub fn take_last_error(&self) -> Code {
        let thread = self.thread();
        self.shared().world.lock().engine.take_last_error(thread)
    }

    /// The calling thread's last error, which stays.
    pub fn peek_last_error(&self) -> Code {
        let thread = self.thread();
        self.shared().world.lock().engine.peek_last_error(thread)
    }

    /// Runs `calls` as code that is not under test: what it does to captures is not held against the runtime (C1, C2).
    pub fn foreign<T>(&self, calls: impl FnOnce() -> T) -> T {
        let thread = self.thread();
        self.shared().world.lock().checkers.set_foreign(thread, true);
        let result = calls();
        self.shared().world.lock().checkers.set_foreign(thread, false);
        result
    }

    /// Says that the calling thread touches host memory that the device uses as well, so that a race with it is seen
    /// (O3).
    pub fn host_accessed(&self, start: HostPointer, bytes: usize, access: Access) {
        seat::pause_function(self.shared());
        let thread = self.thread();
        if bytes > 0 {
            let (start, bytes) = (start.address() as u64, bytes as u64);
            self.shared().world.lock().tell(Event::HostAccessed { thread, start, bytes, access });
        }
    }

    /// Says that host memory goes back to the system, so that a later use of it by the device is seen (P4).
    pub fn host_memory_gone(&self, start: HostPointer, bytes: usize) {
        let thread = self.thread();
        let (start, bytes) = (start.address() as u64, bytes as u64);
        self.shared().world.lock().tell(Event::HostMemoryGone { thread, start, bytes });
    }

    /// The number of the calling thread at this device.
    pub fn thread(&self) -> HostThread {
        if seat::in_function(self.shared()) {
            return HostThread::FUNCTIONS;
        }
        match seat::of(self.shared()) {
            Some(seat) => HostThread(seat.number()),
            None => self.outside_thread(&mut self.shared().world.lock()),
        }
    }

    /// Calls made so far.
    pub fn counts(&self) -> Counts {
        self.shared().world.lock().counts.clone()
    }

    /// What the checkers have found so far.
    pub fn report(&self) -> Report {
        self.report_of(&self.shared().world.lock(), None)
    }

    /// Lets the device run out and reports, leaks included. Call it when all that used the device has been let go.
    ///
    /// What is still allocated after the device was lost is not called a leak: it must not be released then (P11). Where a
    /// kernel's panic lost it, what nobody tried to give back is.
    pub fn finish(&self) -> Report {
        self.shared().world.lock().stalled.clear();
        self.run_to_idle();
        let mut world = self.shared().world.lock();
        let live = world.engine.live();
        let leaks = Leaks {
            allocations: live.allocations as u64,
            pins: live.pins as u64,
            streams: live.streams as u64,
            events: live.events as u64,
            graphs: live.graphs as u64,
            executables: live.executables as u64,
            captures: live.captures as u64,
            modules: live.modules as u64,
        };
        let missed = match world.engine.lost() {
            None => Some(leaks),
            // The program's own doing excuses only what it tried to give back and could not.
            Some(_) if world.engine.is_lost_by_panic() => {
                Some(leaks.without(|call| world.engine.refused_since_lost(call)))
            }
            Some(_) => None,
        };
        if let Some(missed) = missed {
            let before = world.checkers.findings.all().len();
            missed.report(&mut world.checkers.findings);
            world.note_findings(before);
        }
        self.report_of(&world, Some(leaks))
    }

    /// Lets the device run out and reports what was found by then. What is left alive is not looked at.
    pub(crate) fn run_out(&self) -> Report {
        self.shared().world.lock().stalled.clear();
        self.run_to_idle();
        self.report()
    }

    /// The trace so far as lanes of text: the last `rows` rows.
    pub fn lanes(&self, rows: usize) -> String {
        let world = self.shared().world.lock();
        trace::text(&world.trace, &WorldNames(&world), rows)
    }

    /// The trace so far as a file that Perfetto opens (the JSON trace-event format).
    pub fn perfetto(&self) -> String {
        let world = self.shared().world.lock();
        trace::json(&world.trace, &WorldNames(&world), &self.seed_of(&world))
    }

    /// Looks at the trace so far, with the names that it needs.
    pub(crate) fn with_trace<T>(&self, look: impl FnOnce(&trace::Trace, &dyn Names) -> T) -> T {
        let world = self.shared().world.lock();
        look(&world.trace, &WorldNames(&world))
    }

    fn report_of(&self, world: &World, leaks: Option<Leaks>) -> Report {
        let findings = world.checkers.findings.all().to_vec();
        let lanes = if findings.is_empty() {
            String::new()
        } else {
            trace::text(&world.trace, &WorldNames(world), REPORT_ROWS)
        };
        Report {
            seed: self.seed_of(world),
            policy: match &world.schedule {
                Schedule::Seeded(seeded) | Schedule::Noted(seeded, _) => Some(seeded.policy()),
                _ => None,
            },
            findings,
            findings_dropped: world.checkers.findings.dropped(),
            counts: world.counts.clone(),
            order: world.checkers.order_figures(),
            leaks,
            steps: world.steps,
            now_ns: world.clock.now_ns(),
            lanes,
        }
    }

    fn seed_of(&self, world: &World) -> String {
        match &world.schedule {
            Schedule::Path(path) => format!("path:{}", path.key()),
            _ => self.0.seed.to_string(),
        }
    }

    /// The number of the capture that the stream is in, its own or one that it joined.
    pub fn capture_number(&self, stream: &SimStream) -> Option<u64> {
        self.shared().world.lock().engine.capture_id(stream.0).map(|id| id.0)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn stream_id(&self, stream: &SimStream) -> Option<StreamId> {
        self.shared().world.lock().engine.stream_id(stream.0)
    }

    // --- one call

    /// A call that does not wait.
    fn plain<T>(
        &self,
        call: Call,
        body: impl FnOnce(&mut Engine, HostThread) -> Result<T, Code>,
    ) -> Result<T, SimError> {
        self.around(call, true, None, |world, thread, _| {
            let result = body(&mut world.engine, thread);
            world.settle();
            result
        })
    }

    /// A call that may wait.
    fn waiting<T: Value>(
        &self,
        call: Call,
        region: Option<Region>,
        body: impl FnOnce(&mut Engine, HostThread) -> Result<Answer<T>, Code>,
    ) -> Result<T, SimError> {
        self.waiting_as(call, true, region, body)
    }

    fn waiting_as<T: Value>(
        &self,
        call: Call,
        counts: bool,
        region: Option<Region>,
        body: impl FnOnce(&mut Engine, HostThread) -> Result<Answer<T>, Code>,
    ) -> Result<T, SimError> {
        self.around(call, counts, region, |world, thread, seat| {
            let answer = body(&mut world.engine, thread);
            world.settle();
            self.end_of(world, seat, call, answer?)
        })
    }

    /// The end of a call: at once, or when others have done what it waits for.
    fn end_of<T: Value>(
        &self,
        world: &mut parking_lot::MutexGuard<'_, World>,
        seat: Option<&seat::Seat>,
        call: Call,
        answer: Answer<T>,
    ) -> Result<T, Code> {
        let wait = match answer {
            Answer::Done(value) => return Ok(value),
            Answer::Blocked(wait) => wait,
        };
        let result = match seat {
            Some(seat) if !std::thread::panicking() => wait_seated(world, seat, call, wait),
            _ => seeded::wait(self.shared(), world, self.0.drive, wait),
        };
        world.settle();
        result
    }

    /// What stands around every call: counting, scheduling, and the checkers of calls in flight.
    fn around<T>(
        &self,
        call: Call,
        counts: bool,
        region: Option<Region>,
        body: impl FnOnce(&mut parking_lot::MutexGuard<'_, World>, HostThread, Option<&seat::Seat>) -> Result<T, Code>,
    ) -> Result<T, SimError> {
        let shared = self.shared();
        let error = |code| SimError { call, code };
        if crate::kernel::refuses(call) {
            // The device is at this very step, and whoever calls holds it.
            return Err(error(Code::NOT_PERMITTED));
        }
        if seat::in_function(shared) {
            let mut world = shared.world.lock();
            return body(&mut world, HostThread::FUNCTIONS, None).map_err(error);
        }
        let seat = seat::of(shared);
        let mut world = shared.world.lock();
        let thread = match &seat {
            Some(seat) => HostThread(seat.number()),
            None => self.outside_thread(&mut world),
        };
        if counts {
            world.counts.note(thread, call);
        }
        world.turns.calls(thread.0, call);
        if let Some(region) = region.clone() {
            world.checkers.range_call_begins(thread, region);
        }
        match &seat {
            Some(seat) => {
                drop(world);
                drop(seat.pause());
                world = shared.world.lock();
            }
            None => {
                world.calls += 1;
                seeded::before_call(shared, &mut world, self.0.drive, thread.0);
            }
        }
        if world.stop.is_some() {
            return Err(error(Code::DRIVER_UNLOADING));
        }
        world.checkers.call_begins(thread, call, counts);
        let begun = self.delay(&mut world, thread, seat.as_deref(), call);
        let result = begun.and_then(|()| body(&mut world, thread, seat.as_deref())).map_err(error);
        if region.is_some() {
            world.checkers.range_call_ends(thread);
        }
        let leaves = result.is_err() || world.engine.peek_last_error(thread) == Code::NOT_READY;
        if leaves && counts && !world.checkers.is_foreign(thread) {
            // What the trait promises: the error is in the answer, and nowhere else.
            world.engine.take_last_error(thread);
        }
        drop(world);
        match &seat {
            Some(seat) => drop(seat.pause()),
            None if self.0.drive == Drive::Threaded => {
                shared.work.notify_one();
            }
            None if call == Call::LaunchHostFunction => self.keep_moving(),
            None => {}
        }
        shared.shelf.clear_on_caller();
        result
    }

    /// Somebody waits to be told: from now on the device moves by itself as long as that is so.
    fn keep_moving(&self) {
        if self.0.drive != Drive::Seeded || !self.0.moves_itself {
            return;
        }
        let mut device = self.0.device.lock();
        if device.is_none() {
            // Without a thread to be had, the device moves with calls and waits alone.
            *device = mover::start(self.shared()).ok();
        }
        self.shared().work.notify_one();
    }

    /// Where a fault has the call wait before it does anything: until all that the device holds has run.
    fn delay(
        &self,
        world: &mut parking_lot::MutexGuard<'_, World>,
        thread: HostThread,
        seat: Option<&seat::Seat>,
        call: Call,
    ) -> Result<(), Code> {
        if !world.engine.is_to_block(call) {
            return Ok(());
        }
        let wait = world.engine.wait_before(thread, call);
        self.end_of(world, seat, call, wait)
    }

    /// The number of a thread that no schedule runs.
    fn outside_thread(&self, world: &mut World) -> HostThread {
        thread_local! {
            static NUMBERS: std::cell::RefCell<Vec<(u64, Option<u64>, u32)>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        let key = (self.0.id, coop::thread_id());
        let known = NUMBERS.try_with(|numbers| {
            let numbers = numbers.borrow();
            // The latest first: a thread mostly calls the simulation that it made last.
            numbers.iter().rev().find(|(sim, coop, _)| (*sim, *coop) == key).map(|(.., number)| *number)
        });
        if let Ok(Some(number)) = known {
            return HostThread(number);
        }
        let thread = std::thread::current();
        let number = world.turns.add_outside(thread.name().unwrap_or("thread"));
        let _ = NUMBERS.try_with(|numbers| {
            let mut numbers = numbers.borrow_mut();
            if numbers.len() >= NUMBERS_KEPT_MAX {
                numbers.remove(0);
            }
            numbers.push((key.0, key.1, number));
        });
        HostThread(number)
    }
}

/// Waits, under a schedule, for the end of a blocked call.
fn wait_seated<T: Value>(
    world: &mut parking_lot::MutexGuard<'_, World>,
    seat: &seat::Seat,
    call: Call,
    wait: crate::engine::Wait<T>,
) -> Result<T, Code> {
    let mut wait = wait;
    loop {
        let token = world.hold(T::hold(wait));
        parking_lot::MutexGuard::unlocked(world, || drop(seat.wait(Waiting::Device(token), call.name())));
        let Some(held) = world.unhold(token).and_then(T::take) else { return Err(Code::UNKNOWN) };
        match world.engine.finish(held)? {
            Answer::Done(value) => return Ok(value),
            Answer::Blocked(more) => wait = more,
        }
    }
}

struct WorldNames<'a>(&'a World);

impl Names for WorldNames<'_> {
    fn thread(&self, thread: HostThread) -> String {
        match thread {
            HostThread::FUNCTIONS => "host functions".into(),
            HostThread(number) => format!("{thread} {}", self.0.turns.name(number)),
        }
    }

    fn kernel(&self, kernel: KernelId) -> String {
        self.0.checkers.findings.kernel(kernel).to_owned()
    }
}

/// How many rows of lanes a report shows.
const REPORT_ROWS: usize = 80;
/// For how many simulations a thread remembers its number.
const NUMBERS_KEPT_MAX: usize = 16;

fn host_region(call: Call, pointer: HostPointer, bytes: usize) -> Option<Region> {
    let start = pointer.address() as u64;
    Some(Region { call, bytes: start..start + bytes.max(1) as u64 })
}

// SAFETY: the engine runs submissions in the order of their streams and events, says that work is over when its steps have run, and
// takes host memory from the allocator.
unsafe impl Driver for Sim {
    type Stream = SimStream;
    type Event = SimEvent;
    type Module = SimModule;
    type Function = SimFunction;
    type Graph = SimGraph;
    type Executable = SimExecutable;
    type Error = SimError;

    fn capabilities(&self) -> Capabilities {
        self.shared().world.lock().engine.capabilities()
    }

    fn process(&self) -> Process {
        self.shared().process.clone()
    }

    fn last_error(&self) -> Option<i32> {
        Some(self.peek_last_error().0)
    }

    fn stream_create(&self, priority: Priority) -> Result<SimStream, SimError> {
        self.plain(Call::StreamCreate, |engine, thread| engine.stream_create(thread, priority)).map(SimStream)
    }

    unsafe fn stream_destroy(&self, stream: &SimStream) -> Result<(), SimError> {
        self.waiting(Call::StreamDestroy, None, |engine, thread| engine.stream_destroy(thread, stream.0))
    }

    fn stream_query(&self, stream: &SimStream) -> Result<Progress, SimError> {
        self.plain(Call::StreamQuery, |engine, thread| engine.stream_query(thread, stream.0))
    }

    fn stream_synchronize(&self, stream: &SimStream) -> Result<(), SimError> {
        self.waiting(Call::StreamSynchronize, None, |engine, thread| engine.stream_synchronize(thread, stream.0))
    }

    fn stream_wait_event(&self, stream: &SimStream, event: &SimEvent) -> Result<(), SimError> {
        self.waiting(Call::StreamWaitEvent, None, |engine, thread| engine.stream_wait_event(thread, stream.0, event.0))
    }

    fn event_create(&self, timing: Timing) -> Result<SimEvent, SimError> {
        self.plain(Call::EventCreate, |engine, thread| engine.event_create(thread, timing)).map(SimEvent)
    }

    fn event_destroy(&self, event: SimEvent) -> Result<(), SimError> {
        self.plain(Call::EventDestroy, |engine, thread| engine.event_destroy(thread, event.0))
    }

    fn event_record(&self, event: &SimEvent, stream: &SimStream) -> Result<(), SimError> {
        self.waiting(Call::EventRecord, None, |engine, thread| engine.event_record(thread, event.0, stream.0))
    }

    fn event_query(&self, event: &SimEvent) -> Result<Progress, SimError> {
        self.plain(Call::EventQuery, |engine, thread| engine.event_query(thread, event.0))
    }

    fn event_synchronize(&self, event: &SimEvent) -> Result<(), SimError> {
        self.waiting(Call::EventSynchronize, None, |engine, thread| engine.event_synchronize(thread, event.0))
    }

    fn event_elapsed(&self, start: &SimEvent, end: &SimEvent) -> Result<f32, SimError> {
        self.plain(Call::EventElapsed, |engine, thread| engine.event_elapsed(thread, start.0, end.0))
    }

    fn launch_host_function(&self, stream: &SimStream, function: HostFunction) -> Result<(), SimError> {
        self.waiting(Call::LaunchHostFunction, None, |engine, thread| {
            engine.launch_host_function(thread, stream.0, self.shared().shelf.keep(function))
        })
    }

    fn malloc(&self, bytes: u64) -> Result<DeviceAddress, SimError> {
        self.plain(Call::Malloc, |engine, thread| engine.malloc(thread, bytes))
    }

    unsafe fn free(&self, address: DeviceAddress) -> Result<(), SimError> {
        self.waiting(Call::Free, None, |engine, thread| engine.free(thread, address))
    }

    fn malloc_async(&self, stream: &SimStream, bytes: u64) -> Result<DeviceAddress, SimError> {
        self.waiting(Call::MallocAsync, None, |engine, thread| engine.malloc_async(thread, stream.0, bytes))
    }

    unsafe fn free_async(&self, stream: &SimStream, address: DeviceAddress) -> Result<(), SimError> {
        self.waiting(Call::FreeAsync, None, |engine, thread| engine.free_async(thread, stream.0, address))
    }

    fn host_alloc(&self, bytes: usize) -> Result<HostPointer, SimError> {
        self.plain(Call::HostAlloc, |engine, thread| engine.host_alloc(thread, bytes))
    }

    unsafe fn host_free(&self, pointer: HostPointer) -> Result<(), SimError> {
        let region = host_region(Call::HostFree, pointer, 1);
        self.waiting(Call::HostFree, region, |engine, thread| engine.host_free(thread, pointer))
    }

    unsafe fn host_register(&self, base: HostPointer, bytes: usize, access: HostAccess) -> Result<(), SimError> {
        let region = host_region(Call::HostRegister, base, bytes);
        self.waiting(Call::HostRegister, region, |engine, thread| {
            // SAFETY: P4. As the caller vouches.
            unsafe { engine.host_register(thread, Some(base), bytes, access) }.map(Answer::Done)
        })
    }

    unsafe fn host_unregister(&self, base: HostPointer) -> Result<(), SimError> {
        let region = host_region(Call::HostUnregister, base, 1);
        self.waiting(Call::HostUnregister, region, |engine, thread| engine.host_unregister(thread, Some(base)))
    }

    fn host_device_address(&self, pointer: HostPointer) -> Result<DeviceAddress, SimError> {
        let region = host_region(Call::HostDeviceAddress, pointer, 1);
        self.waiting(Call::HostDeviceAddress, region, |engine, thread| {
            engine.host_device_address(thread, pointer).map(Answer::Done)
        })
    }

    fn host_accessed(&self, start: HostPointer, bytes: usize, access: HostAccess) {
        let access = match access {
            HostAccess::Read => Access::Read,
            HostAccess::ReadWrite => Access::Write,
        };
        Self::host_accessed(self, start, bytes, access);
    }

    fn host_is_registered(&self, pointer: HostPointer) -> Result<bool, SimError> {
        let region = host_region(Call::HostIsRegistered, pointer, 1);
        self.around(Call::HostIsRegistered, true, region, |world, thread, _| {
            let result = world.engine.host_is_registered(thread, pointer);
            world.settle();
            result
        })
    }

    fn host_coverage(&self, base: HostPointer, bytes: usize) -> Result<Coverage, SimError> {
        let region = host_region(Call::HostIsRegistered, base, bytes);
        self.around(Call::HostIsRegistered, true, region, |world, thread, _| {
            let result = world.engine.host_coverage(thread, base, bytes);
            world.settle();
            result
        })
    }

    unsafe fn copy(&self, stream: &SimStream, to: Location, from: Location, bytes: u64) -> Result<(), SimError> {
        let host = [to, from].into_iter().find_map(|location| match location {
            Location::Host(pointer) => host_region(Call::Copy, pointer, usize::try_from(bytes).unwrap_or(usize::MAX)),
            Location::Device(_) => None,
        });
        self.waiting(Call::Copy, host, |engine, thread| {
            // SAFETY: P4. As the caller vouches.
            unsafe { engine.copy(thread, stream.0, to, from, bytes) }
        })
    }

    unsafe fn fill(&self, stream: &SimStream, at: DeviceAddress, value: u8, bytes: u64) -> Result<(), SimError> {
        self.waiting(Call::Fill, None, |engine, thread| engine.fill(thread, stream.0, at, value, bytes))
    }

    fn module_load(&self, image: Image<'_>) -> Result<SimModule, SimError> {
        self.plain(Call::ModuleLoad, |engine, thread| engine.module_load(thread, image)).map(SimModule)
    }

    unsafe fn module_unload(&self, module: SimModule) -> Result<(), SimError> {
        self.plain(Call::ModuleUnload, |engine, thread| engine.module_unload(thread, module.0))
    }

    fn function(&self, module: &SimModule, name: &str) -> Result<SimFunction, SimError> {
        self.plain(Call::Function, |engine, thread| engine.function(thread, module.0, name)).map(SimFunction)
    }

    unsafe fn launch(
        &self,
        stream: &SimStream,
        function: &SimFunction,
        config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Result<(), SimError> {
        self.waiting(Call::Launch, None, |engine, thread| {
            engine.launch(thread, stream.0, function.0, config, arguments)
        })
    }

    fn capture_begin(&self, stream: &SimStream, mode: CaptureMode) -> Result<(), SimError> {
        self.plain(Call::CaptureBegin, |engine, thread| engine.capture_begin(thread, stream.0, mode))
    }

    fn capture_end(&self, stream: &SimStream) -> Result<SimGraph, SimError> {
        self.plain(Call::CaptureEnd, |engine, thread| engine.capture_end(thread, stream.0)).map(SimGraph)
    }

    fn capture_status(&self, stream: &SimStream) -> Result<CaptureStatus, SimError> {
        self.plain(Call::CaptureStatus, |engine, thread| engine.capture_status(thread, stream.0))
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, SimError> {
        self.plain(Call::ExchangeCaptureMode, |engine, thread| engine.exchange_capture_mode(thread, mode))
    }

    fn graph_instantiate(&self, graph: &SimGraph) -> Result<SimExecutable, SimError> {
        self.plain(Call::GraphInstantiate, |engine, thread| engine.graph_instantiate(thread, graph.0))
            .map(SimExecutable)
    }

    fn graph_update(&self, executable: &SimExecutable, graph: &SimGraph) -> Result<(), SimError> {
        self.plain(Call::GraphUpdate, |engine, thread| engine.graph_update(thread, executable.0, graph.0))
    }

    unsafe fn graph_launch(&self, executable: &SimExecutable, stream: &SimStream) -> Result<(), SimError> {
        self.waiting(Call::GraphLaunch, None, |engine, thread| engine.graph_launch(thread, executable.0, stream.0))
    }

    fn graph_describe(&self, graph: &SimGraph) -> Result<GraphDescription, SimError> {
        self.plain(Call::GraphDescribe, |engine, thread| engine.graph_describe(thread, graph.0))
    }

    fn graph_destroy(&self, graph: SimGraph) -> Result<(), SimError> {
        self.plain(Call::GraphDestroy, |engine, thread| engine.graph_destroy(thread, graph.0))
    }

    fn executable_destroy(&self, executable: SimExecutable) -> Result<(), SimError> {
        self.plain(Call::ExecutableDestroy, |engine, thread| engine.executable_destroy(thread, executable.0))
    }
}

#[cfg(test)]
mod tests;
