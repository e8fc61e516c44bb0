//! What a scenario's names stand for while it runs, and the kernels that it launches.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure::driver::{Driver, HostPointer, Image, Priority};
use tenure::sync::Mutex as TurnMutex;
use tenure::{
    Buffer, Completion, Config, Download, Event, Executable, Graph, HostMemory, Pinned, ReclaimMode, Runtime, Stream,
};

use super::grammar::{Action, Mishap, Scenario, Step};
use crate::Sim;
use crate::check::Signal;
use crate::checker::Line;
use crate::driver::{Builder, SimError, SimFunction, SimModule, SimStream};
use crate::event::{StreamHandle, StreamId};
use crate::host_memory::PinnedBlock;
use crate::kernel::{Read, Write};

/// Elements are of this type: large enough to tell values apart, small enough to read in a report.
pub(crate) type Element = u32;

/// One name's meaning.
pub(crate) enum Thing {
    Stream(Stream<Sim>),
    Buffer(Arc<Buffer<Element, Sim>>),
    Wrap(Arc<Pinned<Element, Sim>>),
    Host(Arc<HostBlock>),
    Event(Arc<Event<Sim>>),
    Graph(Arc<Graph<Sim>>),
    Executable(Arc<TurnMutex<Executable<Sim>>>),
    Download(Download<Element, Sim>),
    Completion(Completion<Sim>),
    Foreign(ForeignCapture),
}

impl Thing {
    /// What it is, in the words of the language.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Stream(_) => "a stream",
            Self::Buffer(_) => "a buffer",
            Self::Wrap(_) => "a wrap",
            Self::Host(_) => "plain host memory",
            Self::Event(_) => "an event",
            Self::Graph(_) => "a graph",
            Self::Executable(_) => "an executable",
            Self::Download(_) | Self::Completion(_) => "a future",
            Self::Foreign(_) => "a capture of other code",
        }
    }
}

/// A capture that other code began.
pub(crate) struct ForeignCapture {
    pub(crate) stream: SimStream,
    pub(crate) guard: Option<tenure::capture::CaptureGuard<Sim>>,
}

/// Host memory of the scenario. Its end is told to the checkers, so that a later use by the device is seen (P4).
pub(crate) struct HostBlock {
    block: Mutex<Option<PinnedBlock>>,
    pub(crate) pointer: HostPointer,
    pub(crate) len: usize,
    sim: Sim,
}

impl HostBlock {
    pub(crate) fn new(sim: &Sim, len: usize, value: Element) -> Option<Self> {
        let block = PinnedBlock::new(len.max(1) * size_of::<Element>())?;
        let pointer = block.pointer();
        for index in 0..len {
            // SAFETY: P4. Inside of the block, which is ours.
            unsafe { crate::host_memory::write(pointer.offset(index * size_of::<Element>()), &value.to_ne_bytes()) };
        }
        Some(Self { block: Mutex::new(Some(block)), pointer, len, sim: sim.clone() })
    }

    /// The memory goes back to the system and the same address is handed out again.
    pub(crate) fn remap(self) -> Option<Self> {
        let block = self.block.lock().take()?;
        self.sim.host_memory_gone(self.pointer, self.len * size_of::<Element>());
        let pointer = block.pointer();
        Some(Self { block: Mutex::new(Some(block)), pointer, len: self.len, sim: self.sim.clone() })
    }

    pub(crate) fn at(&self, index: usize) -> HostPointer {
        self.pointer.offset(index * size_of::<Element>())
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        if self.block.lock().is_some() {
            self.sim.host_memory_gone(self.pointer, self.len * size_of::<Element>());
        }
    }
}

/// A share of host memory: what a wrap of it owns.
pub(crate) struct Share {
    pub(crate) block: Arc<HostBlock>,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

// SAFETY: P4. The block lives and stays in place as long as the share. Host and device reach it by copies alone, never
// by references that last, so that two shares of one block are what the simulator is there to watch.
unsafe impl HostMemory for Share {
    type Item = Element;

    fn range(&mut self) -> (NonNull<Element>, usize) {
        (self.block.at(self.start).0.cast(), self.len)
    }
}

/// Why a scenario failed besides what the checkers found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The file itself is wrong, not what it ran.
    pub(crate) is_error: bool,
    pub(crate) line: Option<Line>,
    pub(crate) message: String,
}

/// All that the threads of one run share.
pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) runtime: Mutex<Option<Runtime<Sim>>>,
    /// The runtime's figures at the end of its shutdown.
    pub(crate) last_stats: Mutex<Option<tenure::Stats>>,
    pub(crate) named: Mutex<BTreeMap<String, Thing>>,
    /// The simulator's names of streams, known from their making: to ask later could wait for a full queue.
    pub(crate) ids: Mutex<BTreeMap<String, StreamId>>,
    pub(crate) signals: BTreeMap<String, Signal>,
    /// Locks of the program's.
    pub(crate) locks: BTreeMap<String, TurnMutex<()>>,
    /// In which lines a name comes to stand for something; and for which only inside a block.
    made: BTreeMap<String, Vec<u32>>,
    made_inside: BTreeMap<String, u32>,
    /// Names that stood for something, and the line that ended that.
    gone: Mutex<BTreeMap<String, u32>>,
    /// Raw handles of adopted streams, by name.
    pub(crate) raws: Mutex<BTreeMap<String, StreamHandle>>,
    pub(crate) failed: Mutex<Option<Failed>>,
    /// Streams made by other code, to be destroyed by it at the end.
    pub(crate) adopted: Mutex<Vec<StreamHandle>>,
    /// Release errors are expected: the scenario makes something go wrong.
    pub(crate) has_mishaps: bool,
    /// The scenario makes something go wrong at some count of calls or operations.
    pub(crate) has_faults: bool,
    /// Where host memory lay, by name: its first byte and how many there are.
    hosts: Mutex<BTreeMap<String, (usize, usize)>>,
    /// The line of the step begun last, by any thread; zero before the first.
    pub(crate) begun: AtomicU32,
    /// Memory that uploads came from: whoever gave it has taken it back.
    pub(crate) reused: Mutex<Vec<Vec<Element>>>,
    /// What steps may still cost; see [`Stage::spend`].
    budget: AtomicU64,
    /// An answer of the driver for submissions that only want to know their stream.
    refusal: SimError,
    module: Mutex<Option<SimModule>>,
    kernels: Vec<SimFunction>,
}

impl Stage {
    pub(crate) fn new(sim: Sim, scenario: &Scenario) -> Result<Self, String> {
        let text = |error: SimError| error.to_string();
        let module = sim.module_load(Image::Source("")).map_err(text)?;
        let kernels = (0..KERNELS).map(|index| sim.function(&module, &kernel_name(index / PLACES, index % PLACES)));
        let kernels = kernels.collect::<Result<Vec<_>, _>>().map_err(text)?;
        let Err(refusal) = sim.function(&module, "none") else { return Err("a kernel of no name was found".into()) };
        let mut config = Config::default().reclaim(ReclaimMode::Manual);
        if let Some(pool) = scenario.pool {
            config = config.streams_max(pool);
        }
        let runtime = Runtime::with(sim.clone(), config).map_err(|error| error.to_string())?;
        let (mut signals, mut locks) = (BTreeMap::new(), BTreeMap::new());
        let (mut made, mut made_inside) = (BTreeMap::<String, Vec<u32>>::new(), BTreeMap::new());
        let (mut has_mishaps, mut has_faults) = (false, false);
        for_each_step(scenario, &mut |step| {
            for name in step.action.made() {
                made.entry(name.to_owned()).or_default().push(step.line);
            }
            made_inside.extend(step.action.made_inside().map(|name| (name.to_owned(), step.line)));
        });
        for_each_step(scenario, &mut |step| match &step.action {
            Action::Lock { name, .. } => {
                locks.entry(name.clone()).or_insert_with(|| TurnMutex::new(()));
            }
            Action::Signal { name } | Action::Wait { name } => {
                signals.entry(name.clone()).or_insert_with(|| sim.signal(kept(name)));
            }
            Action::Mishap(mishap) => {
                has_faults = true;
                has_mishaps |= !matches!(mishap, Mishap::SkipFunction(_));
            }
            _ => {}
        });
        Ok(Self {
            sim,
            runtime: Mutex::new(Some(runtime)),
            last_stats: Mutex::new(None),
            named: Mutex::new(BTreeMap::new()),
            ids: Mutex::new(BTreeMap::new()),
            signals,
            locks,
            made,
            made_inside,
            gone: Mutex::new(BTreeMap::new()),
            raws: Mutex::new(BTreeMap::new()),
            failed: Mutex::new(None),
            adopted: Mutex::new(Vec::new()),
            has_mishaps,
            has_faults,
            hosts: Mutex::new(BTreeMap::new()),
            begun: AtomicU32::new(0),
            reused: Mutex::new(Vec::new()),
            budget: AtomicU64::new(BUDGET),
            refusal,
            module: Mutex::new(Some(module)),
            kernels,
        })
    }

    /// The name stands for nothing from this line on.
    pub(crate) fn ended(&self, name: &str, line: u32) {
        self.gone.lock().insert(name.to_owned(), line);
    }

    /// Why a name stands for nothing.
    pub(crate) fn missing(&self, name: &str) -> String {
        let nothing = format!("`{name}` stands for nothing here");
        if let Some(line) = self.gone.lock().get(name) {
            return format!("{nothing}: line {line} let go of it");
        }
        if let Some(line) = self.made_inside.get(name) {
            return format!(
                "{nothing}: it is a queue of the capture in line {line}, which takes work inside of its block alone, and \
                 only such as can be recorded"
            );
        }
        if let Some(lines) = self.made.get(name) {
            let lines: Vec<_> = lines.iter().map(u32::to_string).collect();
            let lines = lines.join(" and ");
            return format!("{nothing}: line {lines} makes it, and was not played before this one, or did not work");
        }
        let known = self.made.keys().chain(self.made_inside.keys()).map(String::as_str);
        match super::vocabulary::closest(name, known) {
            Some(near) => format!("{nothing}: no line makes it; did you mean `{near}`?"),
            None => format!("{nothing}: no line makes it"),
        }
    }

    pub(crate) fn kernel(&self, reads: usize, writes: usize) -> Option<&SimFunction> {
        self.kernels.get(reads * PLACES + writes)
    }

    /// The first failure of the scenario itself; later ones follow from it.
    pub(crate) fn fail(&self, failed: Failed) {
        self.failed.lock().get_or_insert(failed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.lock().is_some()
    }

    /// Pays for a step, or for `elements` of memory: most steps are bounded by the turns that they take, but those that
    /// never hand their turn on are bounded by this alone. Whether it could be paid.
    pub(crate) fn spend(&self, elements: usize) -> bool {
        let cost = 1 + elements as u64 / ELEMENTS_A_STEP;
        let paid = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(cost));
        paid.is_ok()
    }

    /// Which step was begun last.
    pub(crate) fn step_begun(&self) -> String {
        match self.begun.load(Ordering::Relaxed) {
            0 => "no step was begun".into(),
            line => format!("the step begun last is line {line}"),
        }
    }

    /// Where a run is, for whoever looks on while it goes on.
    pub(crate) fn whereabouts(&self) -> String {
        let begun = self.step_begun();
        match self.sim.shared().world.try_lock_for(PATIENCE) {
            Some(world) => {
                let (who, device) = (world.turns.describe(), world.describe_pending());
                format!("{} steps so far; {who}; {device}; {begun}", world.steps)
            }
            None => format!("the device is in one step; {begun}"),
        }
    }

    /// Notes where `name` lies, for [`Stage::with_names`].
    pub(crate) fn note_host(&self, name: &str, start: HostPointer, len: usize) {
        let place = (start.address(), len * size_of::<Element>());
        self.hosts.lock().insert(name.to_owned(), place);
    }

    /// The text with addresses of host memory as name and byte, as in `h+16`: addresses differ from run to run.
    pub(crate) fn with_names(&self, text: &str) -> String {
        let hosts = self.hosts.lock();
        let place = |address: usize| {
            let inside = |(start, bytes): &(usize, usize)| (*start..=*start + bytes).contains(&address);
            let (name, (start, _)) = hosts.iter().find(|(_, place)| inside(place))?;
            Some(format!("{name}+{}", address - start))
        };
        let mut parts = text.split("0x");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.len() - part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()).len();
            let named = usize::from_str_radix(&part[..digits], 16).ok().and_then(place);
            out += &named.unwrap_or_else(|| format!("0x{}", &part[..digits]));
            out += &part[digits..];
        }
        out
    }

    /// The simulator's name of a stream of the runtime: a submission that the driver refuses sees the raw stream and
    /// leaves nothing.
    pub(crate) fn stream_id(&self, stream: &Stream<Sim>) -> Option<StreamId> {
        use tenure::queue::Submit;
        let mut id = None;
        let look = |sim: &Sim, raw: &_| {
            id = sim.stream_id(raw);
            Err::<(), _>(self.refusal)
        };
        // SAFETY: O1. Nothing is submitted.
        let refused = unsafe { stream.submit_raw((), tenure::driver::Call::Function, look) };
        drop(refused);
        id
    }

    /// Lets go of everything, with the device running out between, and shuts the runtime down.
    pub(crate) fn clear(&self, leaks_allowed: bool) {
        let things = std::mem::take(&mut *self.named.lock());
        let (foreign, ours): (Vec<_>, Vec<_>) =
            things.into_values().partition(|thing| matches!(thing, Thing::Foreign(_) | Thing::Host(_)));
        // Memory before streams: what a program does that declares its streams first.
        let (streams, memory): (Vec<_>, Vec<_>) = ours.into_iter().partition(|thing| matches!(thing, Thing::Stream(_)));
        drop(memory);
        drop(streams);
        self.sim.shared().world.lock().stalled.clear();
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            self.drain(&runtime);
            let errors = runtime.take_release_errors();
            if let Some(error) = errors.first().filter(|_| !self.has_mishaps) {
                let message = format!("a release failed though nothing was made to go wrong: {error}");
                self.fail(Failed { is_error: false, line: Some(Line::R7), message });
            }
            let report = runtime.shutdown(Duration::ZERO);
            let kept = report.leaked > 0 && report.lost.is_none() && !leaks_allowed && !self.has_mishaps;
            if kept {
                let message = format!("the shutdown leaked {} thing(s) of which all work had ended", report.leaked);
                self.fail(Failed { is_error: false, line: Some(Line::R5), message });
            }
        }
        drop(foreign);
        self.destroy_adopted();
        if let Some(module) = self.module.lock().take() {
            // The kernels are the stage's, not the runtime's. A device that is lost, or other code's capture that a file
            // leaves open on purpose, refuses the call: no harm.
            // SAFETY: the device has run out, and nobody launches any more.
            let _refused = self.sim.foreign(|| unsafe { self.sim.module_unload(module) });
        }
    }

    /// A capture of other code that nobody ended.
    pub(crate) fn open_capture(&self) -> Option<String> {
        let named = self.named.lock();
        named.iter().find(|(_, thing)| matches!(thing, Thing::Foreign(_))).map(|(name, _)| name.clone())
    }

    fn drain(&self, runtime: &Runtime<Sim>) {
        for _ in 0..DRAIN_TURNS {
            self.sim.run_to_idle();
            if runtime.poll() == 0 && runtime.stats().retired_pending == 0 {
                break;
            }
        }
        self.sim.run_to_idle();
    }

    fn destroy_adopted(&self) {
        let thread = self.sim.thread();
        let mut world = self.sim.shared().world.lock();
        for handle in self.adopted.lock().drain(..) {
            drop(world.engine.stream_destroy(thread, handle));
        }
        world.settle();
    }

    /// A stream that other code makes.
    pub(crate) fn raw_stream(&self) -> Result<SimStream, SimError> {
        self.sim.foreign(|| self.sim.stream_create(Priority::Normal))
    }
}

/// A name that lives as long as the process: there are as many as files name differently.
fn kept(name: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock();
    if let Some(known) = kept.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    kept.insert(name);
    name
}

impl Drop for ForeignCapture {
    fn drop(&mut self) {
        drop(self.guard.take());
    }
}

/// How long to wait for a moment in which a running simulation can be looked at.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most steps of all threads of one run.
pub(crate) const BUDGET: u64 = 100_000;
/// So many elements of memory cost as much as a step.
const ELEMENTS_A_STEP: u64 = 128;

/// Turns of releasing at the end of a run. A thing needs two at most (asked, then released), a graph's memory two more.
const DRAIN_TURNS: u32 = 8;

/// Calls `see` with every step, blocks before what is in them.
pub(crate) fn for_each_step<'a>(scenario: &'a Scenario, see: &mut impl FnMut(&'a Step)) {
    fn walk<'a>(steps: &'a [Step], see: &mut impl FnMut(&'a Step)) {
        for step in steps {
            see(step);
            walk(step.action.steps(), see);
        }
    }
    walk(&scenario.setup, see);
    scenario.threads.iter().for_each(|thread| walk(&thread.steps, see));
    walk(&scenario.finally, see);
}

/// Kernels read 0 to 4 places and write 0 to 4.
const PLACES: usize = 5;
const KERNELS: usize = PLACES * PLACES;

fn kernel_name(reads: usize, writes: usize) -> String {
    match (reads, writes) {
        (0, _) => format!("write{writes}"),
        (_, 0) => format!("read{reads}"),
        _ => format!("read{reads}_write{writes}"),
    }
}

/// A device with the kernels that scenarios launch: each writes the given value, or one more than the sum of the first
/// elements of what it reads.
pub(crate) fn device() -> Builder {
    macro_rules! kernel {
        ($builder:ident [$($read:ident)*] [$($write:ident)*]) => {
            let reads: &[&str] = &[$(stringify!($read)),*];
            let writes: &[&str] = &[$(stringify!($write)),*];
            let name = kernel_name(reads.len(), writes.len());
            $builder = $builder.kernel(
                &name,
                |given: u32, value: Element, $($read: Read<'_, Element>,)* $(mut $write: Write<'_, Element>,)*| {
                    let firsts: &[Element] = &[$($read.first().copied().unwrap_or(0)),*];
                    let sum = firsts.iter().fold(1, |sum: Element, first| sum.wrapping_add(*first));
                    let value = if given == 0 { sum } else { value };
                    $($write.fill(value);)*
                    let _ = value;
                },
            );
        };
        ($builder:ident [$($read:ident)*]) => {
            kernel!($builder [$($read)*] []);
            kernel!($builder [$($read)*] [w]);
            kernel!($builder [$($read)*] [w x]);
            kernel!($builder [$($read)*] [w x y]);
            kernel!($builder [$($read)*] [w x y z]);
        };
    }
    let mut builder = Sim::builder();
    kernel!(builder []);
    kernel!(builder[a]);
    kernel!(builder [a b]);
    kernel!(builder [a b c]);
    kernel!(builder [a b c d]);
    builder
}
