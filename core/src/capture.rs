//! Captures and graphs (C1 to C10).
//!
//! [`Runtime::capture`] records on a stream made for nothing else, in relaxed mode. Pooled streams never capture, so no
//! release can aim at a capturing stream, and no edge can pull a normal stream into a capture.
//!
//! | state of a capture | meaning | changes by | keeps |
//! |---|---|---|---|
//! | counted | the gate holds calls back, where the driver needs it | `CaptureGate::begin` before the driver's begin | C6 |
//! | recording | the body runs; uses are listed, and stamp nothing outside | submissions of the body | C4 C8 C9 |
//! | ended | forks joined, the driver's end called on the beginning thread, whatever happened | `Runtime::capture` | C3 C7 |
//! | uncounted | deferred releases run | `CaptureGate::end` after the driver's end | C3 C6 |
//!
//! # Inside
//! A use in a capture is no work, so it leaves no point on the buffer (C8). The session keeps a record of its own for
//! each allocation, and runs the same machine ([`submit`]) on the capture's streams: forks that conflict are ordered by
//! edges of the graph. Nothing on a capture stream ever completes, so no edge is skipped as done. Events that were
//! recorded in a capture are destroyed, never pooled: asking for one would break the capture.
//!
//! # After
//! The graph holds every allocation that it uses (C4), and host data that was copied (C10). A launch takes them all
//! like one kernel (C5), and the executable itself as a written buffer, which orders its replays.
//!
//! # Failure
//! Whatever fails, the driver's end is called, the graph is thrown away, and the streams of the session are destroyed
//! rather than used again: some drivers leave them broken (S7, C7). The error is that of the body, or the first that
//! broke the capture.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use crate::call_scope::{CallScope, MayWait, within};
use crate::driver::{Call, CaptureMode, Driver, GraphDescription, HostAccess, HostPointer, Priority};
use crate::error::{Error, Misuse, Result};
use crate::id::ResourceId;
use crate::kernel::{Kernel, Loaded};
use crate::memory::{Backing, Memory, Region, Storage, UseSet};
use crate::ownership::{Access, Record, Use, join, submit};
use crate::queue::{Submit, snapshot, write_kept};
use crate::reclaim::{Resource, Retired};
use crate::runtime::Runtime;
use crate::sealed::Sealed;
use crate::shared::Anchor;
use crate::stream::Stream;
use crate::stream_state::StreamState;
use crate::sync::{Arc, Mutex};

/// One capture, from begin to end.
#[derive(Debug)]
struct Session<D: Driver> {
    anchor: Arc<Anchor<D>>,
    // Short; never held across a driver call.
    listed: Mutex<Listed<D>>,
}

#[derive(Debug)]
struct Listed<D: Driver> {
    uses: BTreeMap<ResourceId, Held<D>>,
    kept: Vec<Box<dyn Any + Send>>,
    code: Vec<Arc<Loaded<D>>>,
    forks: Vec<Fork<D>>,
    failed: Option<Error>,
}

/// The session's own records of what one submission uses.
type OwnRecords<D> = SmallVec<[(Arc<Record<D>>, Access); 16]>;

/// What the graph will use, and who used it so far inside the capture.
#[derive(Debug)]
struct Held<D: Driver> {
    backing: Backing<D>,
    access: Access,
    record: Arc<Record<D>>,
}

#[derive(Debug)]
struct Fork<D: Driver> {
    state: Arc<StreamState<D>>,
    joined: bool,
}

/// The queue of a capture: records what it is given. A fork is one too.
#[derive(Debug)]
pub struct Capture<'s, D: Driver> {
    session: &'s Session<D>,
    state: Arc<StreamState<D>>,
}

impl<D: Driver> Runtime<D> {
    /// Records what `body` gives to the capture, and makes a graph of it.
    ///
    /// Nothing that this crate does on any thread breaks the capture (C1), and buffers may be dropped in it and after
    /// it (C4). The capture is ended on this thread, also when `body` fails or unwinds; then there is no graph.
    ///
    /// # Errors
    /// What `body` returns; the driver's, at begin and end; `Misuse::InsideHold` in a `use_on` closure.
    ///
    /// # Examples
    /// ```
    /// # use tenure::{Queue, Runtime};
    /// # let runtime = Runtime::new(tenure_sim::Sim::new(tenure_sim::profile::Profile::cuda_13()))?;
    /// let stream = runtime.stream()?;
    /// let mut buffer = stream.upload(&[1_u8; 4])?;
    /// let graph = runtime.capture(|capture| capture.fill(&mut buffer, 7))?;
    /// assert_eq!(stream.read(&buffer)?, [1; 4]);
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(stream.read(&buffer)?, [7; 4]);
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn capture(&self, body: impl FnOnce(&Capture<'_, D>) -> Result<()>) -> Result<Graph<D>> {
        self.record(body)?.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// [`capture`](Self::capture), up to the point where a panic of the body goes on.
    fn record(
        &self,
        body: impl FnOnce(&Capture<'_, D>) -> Result<()>,
    ) -> Result<std::thread::Result<Result<Graph<D>>>> {
        let mut may = MayWait::here()?;
        self.anchor.check_open()?;
        let context = &self.anchor.context;
        let origin = self.anchor.captures.take(context)?;
        context.captures.begin(&mut may);
        let begun = context.driver.capture_begin(&origin.raw, CaptureMode::Relaxed);
        if let Err(error) = context.check(Call::CaptureBegin, begun) {
            self.uncount();
            self.anchor.captures.destroy(context, &origin);
            return Err(error);
        }
        let session = Session::new(self.anchor.clone());
        let capture = Capture { session: &session, state: origin.clone() };
        let outcome =
            within(CallScope::Capture, || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&capture))));
        drop(capture);
        let ended = self.end(&session, &origin, matches!(outcome, Ok(Ok(()))));
        Ok(outcome.map(|outcome| outcome.and(ended)))
    }

    /// Ends a capture, whatever came before; a graph only if all went well.
    fn end(&self, session: &Session<D>, origin: &Arc<StreamState<D>>, wanted: bool) -> Result<Graph<D>> {
        let context = &self.anchor.context;
        // Wanted or not: some drivers go on capturing after an end that finds a fork open.
        let joined = session.join_all(origin);
        // On the thread that began it, and always: a broken capture stays in the driver's way until it is ended.
        // Not where the device is gone: a reset has ended the capture, and the stream with it (R11).
        let end = || context.check(Call::CaptureEnd, context.driver.capture_end(&origin.raw));
        let ended = context.check_alive().and_then(|()| end());
        self.uncount();
        let listed = std::mem::take(&mut *session.listed.lock());
        let states = listed.forks.iter().map(|fork| fork.state.clone()).chain([origin.clone()]);
        match (joined, ended) {
            (Ok(()), Ok(raw)) if wanted => {
                self.anchor.captures.put(context, states);
                Ok(Graph { raw: Some(raw), holdings: listed.into_holdings(), anchor: self.anchor.clone() })
            }
            (joined, ended) => {
                states.for_each(|state| self.anchor.captures.destroy(context, &state));
                let ended = ended.and_then(|raw| context.check(Call::GraphDestroy, context.driver.graph_destroy(raw)));
                // The cause before its consequences. Where all went well here, the caller has the body's own error.
                let error = joined.and(ended).err().unwrap_or(Error::Closed);
                Err(listed.failed.unwrap_or(error))
            }
        }
    }

    fn uncount(&self) {
        if self.anchor.context.captures.end() {
            self.anchor.reclaim.signal.raise();
        }
    }

    /// Tells the runtime that other code is about to capture, with calls of its own, until the guard is dropped.
    ///
    /// Needed only on drivers whose captures break when another thread makes certain calls in any mode (see
    /// [`Capabilities`](crate::driver::Capabilities)): while the guard lives, such calls are put off. Forgetting the
    /// guard puts them off forever. Such calls that are in flight are waited for; but not in a `use_on` closure, where
    /// nothing may be waited for: take the guard before it.
    pub fn capture_guard(&self) -> CaptureGuard<D> {
        let captures = &self.anchor.context.captures;
        match MayWait::here() {
            Ok(mut may) => captures.begin(&mut may),
            Err(_) => captures.begin_now(),
        }
        CaptureGuard { runtime: self.clone() }
    }
}

/// Other code captures while this lives. See [`Runtime::capture_guard`].
#[derive(Debug)]
#[must_use]
pub struct CaptureGuard<D: Driver> {
    runtime: Runtime<D>,
}

impl<D: Driver> Drop for CaptureGuard<D> {
    fn drop(&mut self) {
        self.runtime.uncount();
    }
}

impl<D: Driver> Default for Listed<D> {
    fn default() -> Self {
        Self { uses: BTreeMap::new(), kept: Vec::new(), code: Vec::new(), forks: Vec::new(), failed: None }
    }
}

impl<D: Driver> Listed<D> {
    fn into_holdings(self) -> Arc<Holdings<D>> {
        let uses = self.uses.into_values().map(|held| (held.backing, held.access)).collect();
        Arc::new(Holdings { uses, _code: self.code, kept: Mutex::new(self.kept) })
    }
}

impl<D: Driver> Session<D> {
    fn new(anchor: Arc<Anchor<D>>) -> Self {
        Self { anchor, listed: Mutex::new(Listed::default()) }
    }

    /// Lists what a submission uses; gives the session's own records of it.
    fn list(&self, uses: &[Memory<'_, D>]) -> Result<OwnRecords<D>> {
        // All of them before any is listed: what is refused leaves the capture as it was (C9).
        for Memory { backing, .. } in uses {
            if !backing.is_of(&self.anchor) {
                return Err(Misuse::ForeignRuntime.into());
            }
            if matches!(&backing.storage, Storage::Pin(lease) if lease.scoped) {
                return Err(Misuse::ScopedInCapture.into());
            }
        }
        let mut listed = self.listed.lock();
        let mut records = SmallVec::new();
        for Memory { backing, access } in uses {
            let Some(id) = backing.id() else { continue };
            let held = listed.uses.entry(id).or_insert_with(|| Held {
                backing: backing.share(),
                access: *access,
                record: Arc::new(Record::new()),
            });
            held.access = held.access.max(*access);
            records.push((held.record.clone(), *access));
        }
        Ok(records)
    }

    /// A further stream of the capture, which begins where `from` is.
    fn fork(&self, from: &Arc<StreamState<D>>) -> Result<Arc<StreamState<D>>> {
        let state = self.anchor.captures.take(&self.anchor.context)?;
        // Listed first: whatever happens, the end of the session sees to it.
        self.listed.lock().forks.push(Fork { state: state.clone(), joined: false });
        let forked = join(&self.anchor.context, from, &state);
        if forked.is_err() {
            self.mark_joined(&state);
        }
        forked.map(|()| state)
    }

    fn join(&self, state: &Arc<StreamState<D>>, into: &Arc<StreamState<D>>) -> Result<()> {
        if state.id() == into.id() {
            return Ok(());
        }
        self.anchor.context.check_alive()?;
        join(&self.anchor.context, state, into)?;
        self.mark_joined(state);
        Ok(())
    }

    fn mark_joined(&self, state: &StreamState<D>) {
        let mut listed = self.listed.lock();
        for fork in listed.forks.iter_mut().filter(|fork| fork.state.id() == state.id()) {
            fork.joined = true;
        }
    }

    /// Joins the forks that the body left open: a driver refuses to end otherwise.
    fn join_all(&self, origin: &Arc<StreamState<D>>) -> Result<()> {
        let open: Vec<_> = {
            let listed = self.listed.lock();
            let open = listed.forks.iter().filter(|fork| !fork.joined);
            open.map(|fork| fork.state.clone()).collect()
        };
        let mut all = Ok(());
        for state in &open {
            all = all.and(self.join(state, origin));
        }
        all
    }
}

impl<D: Driver> Capture<'_, D> {
    /// A second queue of the same capture, which begins where this one is. What conflicts is ordered, the rest may run
    /// at the same time. Joined at the end of the capture if not before.
    ///
    /// # Errors
    /// `Closed`; the driver's.
    pub fn fork(&self) -> Result<Self> {
        self.session.anchor.context.check_open()?;
        Ok(Self { session: self.session, state: self.session.fork(&self.state)? })
    }

    /// Orders everything recorded later on `into` after all of this queue.
    ///
    /// # Errors
    /// The driver's; `Misuse::ForeignCapture`, `Misuse::ForeignRuntime` for a queue of another capture: both go on, and
    /// this queue is joined at the end of its own (C9).
    pub fn join(self, into: &Self) -> Result<()> {
        if !Arc::ptr_eq(&self.session.anchor, &into.session.anchor) {
            return Err(Misuse::ForeignRuntime.into());
        }
        if !std::ptr::eq(self.session, into.session) {
            return Err(Misuse::ForeignCapture.into());
        }
        self.session.join(&self.state, &into.state)
    }
}

impl<D: Driver> Sealed for Capture<'_, D> {}

impl<D: Driver> Submit<D> for Capture<'_, D> {
    fn anchor(&self) -> &Arc<Anchor<D>> {
        &self.session.anchor
    }

    unsafe fn submit_raw<'a, R>(
        &self,
        uses: impl UseSet<Memory<'a, D>, D>,
        call: Call,
        enqueue: impl FnOnce(&D, &D::Stream) -> std::result::Result<R, D::Error>,
    ) -> Result<(R, u64)>
    where
        D: 'a,
    {
        self.session.anchor.context.check_open()?;
        let mut list: SmallVec<[Memory<'_, D>; 16]> = SmallVec::new();
        uses.visit(&mut |memory| list.push(memory));
        let records = self.session.list(&list)?;
        let used = records.iter().map(|(record, access)| Use::new(record, *access));
        let used: SmallVec<[Use<'_, D>; 16]> = used.collect();
        let outcome = submit(&self.session.anchor.context, &self.state, &used, call, enqueue);
        if let Err(error) = &outcome {
            self.session.listed.lock().failed.get_or_insert_with(|| error.clone());
        }
        outcome
    }

    fn keep_code<S>(&self, kernel: &Kernel<S, D>) {
        let code = &mut self.session.listed.lock().code;
        if !code.iter().any(|known| Arc::ptr_eq(known, &kernel.loaded)) {
            code.push(kernel.loaded.clone());
        }
    }

    fn keep(&self, memory: Box<dyn Any + Send>, _number: u64) {
        self.session.listed.lock().kept.push(memory);
    }

    /// On a stream that executes: the allocation is no node of the graph (C2).
    fn allocate(&self, bytes: usize, align: usize) -> Result<Backing<D>> {
        let state = self.session.anchor.pool.claim(&self.session.anchor.context, Priority::Normal)?;
        Stream::new(self.session.anchor.clone(), state).allocate(bytes, align)
    }

    /// The graph owns what it copies from: page-locked memory of its own, or, where none is to be had inside of a
    /// capture, a vector. Recording waits for nothing either way.
    unsafe fn write_bytes(&self, from: &[u8], to: Region<'_, D>) -> Result<()> {
        let (kept, host): (Box<dyn Any + Send>, _) = match Block::holding(&self.session.anchor, from) {
            Some(block) => {
                let host = block.start();
                (Box::new(block), host)
            }
            None => snapshot(from),
        };
        // SAFETY: O6, C10. The caller vouches for `to`; what is kept has the bytes of `from`.
        unsafe { write_kept(self, kept, host, to) }
    }
}

/// Page-locked memory of one graph, which a copy of it reads at every launch. It is no part of the bounded staging
/// memory, which it would use up for as long as the graph lives.
#[derive(Debug)]
struct Block<D: Driver> {
    start: HostPointer,
    bytes: usize,
    anchor: Arc<Anchor<D>>,
}

impl<D: Driver> Block<D> {
    /// A block that holds the bytes of `from`. `None`: no such memory is to be had now without a wait.
    fn holding(anchor: &Arc<Anchor<D>>, from: &[u8]) -> Option<Self> {
        let made = anchor.context.guarded_now(Call::HostAlloc, |driver| driver.host_alloc(from.len()));
        let (start, bytes) = (made?.ok()?, from.len());
        anchor.context.driver.host_accessed(start, bytes, HostAccess::ReadWrite);
        // SAFETY: T1. The driver just gave these bytes to us alone.
        unsafe { start.0.as_ptr().copy_from_nonoverlapping(from.as_ptr(), bytes) };
        // Relaxed: a figure.
        anchor.staging.in_graphs.fetch_add(bytes, Ordering::Relaxed);
        Some(Self { start, bytes, anchor: anchor.clone() })
    }

    /// Where it lies.
    fn start(&self) -> HostPointer {
        self.start
    }
}

impl<D: Driver> Drop for Block<D> {
    fn drop(&mut self) {
        // Relaxed: a figure.
        self.anchor.staging.in_graphs.fetch_sub(self.bytes, Ordering::Relaxed);
        // C4. The graph and its executables are gone, and their launches have completed.
        let resource = Resource::Slab(self.start);
        self.anchor.reclaim.retire(Retired { resource, points: Default::default() });
    }
}

/// What a graph keeps alive (C4, C10).
#[derive(Debug)]
struct Holdings<D: Driver> {
    uses: Vec<(Backing<D>, Access)>,
    // The modules of its kernels.
    _code: Vec<Arc<Loaded<D>>>,
    // Only held, never looked at; the lock makes it shareable.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl<D: Driver> Drop for Holdings<D> {
    /// One thing at a time: the drop of an owner that panics takes none of the others along, and the panic goes on after the
    /// last (R4). A second one of the same drop goes nowhere: two at once would end the process.
    fn drop(&mut self) {
        let mut first = None;
        let mut attempt = |end: &mut dyn FnMut()| {
            if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(end)) {
                // A further one is not dropped either: that could panic too.
                match &first {
                    None => first = Some(panic),
                    Some(_) => std::mem::forget(panic),
                }
            }
        };
        while let Some(used) = self.uses.pop() {
            let mut used = Some(used);
            attempt(&mut || drop(used.take()));
        }
        while let Some(kept) = self.kept.get_mut().pop() {
            let mut kept = Some(kept);
            attempt(&mut || drop(kept.take()));
        }
        if let Some(panic) = first.filter(|_| !std::thread::panicking()) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A recorded graph, with what it uses.
#[derive(Debug)]
pub struct Graph<D: Driver> {
    raw: Option<D::Graph>,
    holdings: Arc<Holdings<D>>,
    anchor: Arc<Anchor<D>>,
}

impl<D: Driver> Drop for Graph<D> {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            let resource = Resource::Graph(raw);
            self.anchor.reclaim.retire(Retired { resource, points: SmallVec::new() });
        }
    }
}

impl<D: Driver> Graph<D> {
    fn raw(&self) -> &D::Graph {
        self.raw.as_ref().expect("a graph is taken out only by its drop")
    }

    /// Makes it ready to launch.
    ///
    /// # Errors
    /// `Closed`, `Backlog`; the driver's.
    pub fn instantiate(&self) -> Result<Executable<D>> {
        let mut may = MayWait::here()?;
        let context = &self.anchor.context;
        self.anchor.check_open()?;
        let raw = context.guarded(&mut may, Call::GraphInstantiate, |driver| driver.graph_instantiate(self.raw()))?;
        Ok(Executable {
            raw: Some(raw),
            record: Record::new(),
            holdings: self.holdings.clone(),
            anchor: self.anchor.clone(),
        })
    }

    /// Its nodes and edges.
    ///
    /// # Errors
    /// The driver's.
    pub fn describe(&self) -> Result<GraphDescription> {
        let context = &self.anchor.context;
        context.check_alive()?;
        context.check(Call::GraphDescribe, context.driver.graph_describe(self.raw()))
    }
}

/// A graph that can be launched, any number of times, on any stream.
#[derive(Debug)]
pub struct Executable<D: Driver> {
    raw: Option<D::Executable>,
    record: Record<D>,
    holdings: Arc<Holdings<D>>,
    anchor: Arc<Anchor<D>>,
}

impl<D: Driver> Drop for Executable<D> {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            let points = self.record.into_points();
            let resource = Resource::Executable(raw, Box::new(self.holdings.clone()));
            self.anchor.reclaim.retire(Retired { resource, points });
        }
    }
}

impl<D: Driver> Executable<D> {
    fn raw(&self) -> &D::Executable {
        self.raw.as_ref().expect("an executable is taken out only by its drop")
    }

    /// Runs the graph on `stream`, ordered after what conflicts with any of its uses, as one kernel would be (C5), and
    /// after its own earlier launches.
    ///
    /// # Errors
    /// Those of [`Queue`](crate::Queue).
    pub fn launch(&self, stream: &Stream<D>) -> Result<()> {
        if !Arc::ptr_eq(&self.anchor, stream.anchor()) {
            return Err(Misuse::ForeignRuntime.into());
        }
        let uses = self.holdings.uses.iter().map(|(backing, access)| Use::new(backing.record(), *access));
        let own = Use::new(&self.record, Access::Write);
        let uses: SmallVec<[Use<'_, D>; 32]> = uses.chain([own]).collect();
        submit(&self.anchor.context, stream.state(), &uses, Call::GraphLaunch, |driver, raw| {
            // SAFETY: C4. The holdings keep all that the graph names; they go only with the executable, after its
            // record's last point.
            unsafe { driver.graph_launch(self.raw(), raw) }
        })?;
        Ok(())
    }

    /// Makes later launches run `graph`, which must have the same shape. Launches made before run as they were.
    ///
    /// # Errors
    /// The driver's refusal; the executable then is as it was, and usable.
    pub fn update(&mut self, graph: &Graph<D>) -> Result<()> {
        if !Arc::ptr_eq(&self.anchor, &graph.anchor) {
            return Err(Misuse::ForeignRuntime.into());
        }
        let mut may = MayWait::here()?;
        let context = &self.anchor.context;
        context.check_open()?;
        context.guarded(&mut may, Call::GraphUpdate, |driver| driver.graph_update(self.raw(), graph.raw()))?;
        let before = std::mem::replace(&mut self.holdings, graph.holdings.clone());
        // Launches that are still running use what the old graph held, owners too.
        let points = self.record.points_alone(Access::Write);
        self.anchor.reclaim.retire(Retired { resource: Resource::Holdings(Box::new(before)), points });
        Ok(())
    }
}

impl GraphDescription {
    /// The graph in Graphviz' language.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph {\n");
        for (index, node) in self.nodes.iter().enumerate() {
            dot += &format!("  n{index} [label=\"{index} {}\"];\n", node.escape_default());
        }
        for (before, after) in &self.edges {
            dot += &format!("  n{before} -> n{after};\n");
        }
        dot + "}\n"
    }
}

/// A line a node: its number, what it is, and the numbers of the nodes before it.
impl fmt::Display for GraphDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.nodes.iter().enumerate() {
            write!(f, "{index} {node}")?;
            let before = self.edges.iter().filter(|(_, after)| *after == index).map(|(before, _)| before.to_string());
            let before: Vec<_> = before.collect();
            if !before.is_empty() {
                write!(f, " after {}", before.join(" "))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
