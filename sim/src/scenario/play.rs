//! Plays the steps of one host thread on the real core.
//!
//! Names live on the [`Stage`], which all threads share; captures and scopes exist only inside their block, in a
//! [`Frame`]. A step that does not come to what the file says ends the run: the thread unwinds with [`Ended`], which no
//! hook reports.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::buffer::Region as CoreRegion;
use tenure::driver::{Argument, Call, Driver, DriverError, ErrorKind, HostAccess, HostPointer, LaunchConfig};
use tenure::pinned::{Scope, ScopedPinned};
use tenure::queue::{Memory, Submit};
use tenure::{
    Access, Buffer, Capture, Error, Freed, Misuse, PinError, Pinned, Queue, Readable, Runtime, Stream, Writable,
};

use super::grammar::{Action, Figure, Foreign, FreedAs, Mishap, Outcome, Place, Relation, Step, StreamKind, WrapKind};
use super::stage::{BUDGET, Element, Failed, ForeignCapture, HostBlock, Share, Stage, Thing};
use crate::Sim;
use crate::checker::Line;
use crate::driver::SimError;
use crate::event;
use crate::fault::Fault;

/// The payload of a thread that ends since the scenario has failed.
pub(crate) struct Ended;

/// The payload of the step `panic`.
struct Planned;

/// Why a step did not work.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The core refused.
    Core(Error),
    /// The driver refused other code.
    Raw(SimError),
    /// The step `abort`.
    Aborted,
    /// The step `panic`.
    Panicked,
    /// A value, figure or answer is not what the file says.
    Unexpected(String),
    /// The file cannot be played: a name stands for nothing, say.
    File(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl From<SimError> for Trouble {
    fn from(error: SimError) -> Self {
        Self::Raw(error)
    }
}

type Done = Result<(), Trouble>;

impl Trouble {
    /// The names by which a file can expect it, the most exact first.
    fn names(&self) -> Vec<String> {
        let names = self.known_by();
        let is_listed = |name: &String| name.starts_with("lost-") || super::vocabulary::ERRORS.contains(&name.as_str());
        debug_assert!(names.iter().all(is_listed), "an error of no name in the language: {names:?}");
        names
    }

    fn known_by(&self) -> Vec<String> {
        match self {
            Self::Core(error) => names_of(error),
            Self::Raw(error) => vec![kebab(&format!("{:?}", error.kind())), "raw".into()],
            Self::Aborted => vec!["aborted".into()],
            Self::Panicked => vec!["panicked".into()],
            Self::Unexpected(_) | Self::File(_) => Vec::new(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Core(error) => format!("{error} ({})", self.names()[0]),
            Self::Raw(error) => format!("{error} ({})", self.names()[0]),
            Self::Aborted => "the body was aborted".into(),
            Self::Panicked => "the body panicked".into(),
            Self::Unexpected(text) | Self::File(text) => text.clone(),
        }
    }
}

fn names_of(error: &Error) -> Vec<String> {
    let first_word = |text: String| kebab(text.split([' ', '{', '(']).next().unwrap_or(""));
    match error {
        Error::Closed => vec!["closed".into()],
        Error::Driver(failure) => vec![kebab(&format!("{:?}", failure.kind)), "driver".into()],
        Error::Lost(cause) => vec!["lost".into(), format!("lost-{}", cause.code)],
        Error::Misuse(misuse) => vec![first_word(format!("{misuse:?}")), "misuse".into()],
        Error::Pin(pin) => vec![first_word(format!("{pin:?}")), "pin".into()],
        Error::StreamBroken(_) => vec!["stream-broken".into()],
        Error::StreamLimit { .. } => vec!["stream-limit".into()],
        _ => vec!["unknown".into()],
    }
}

/// `HostView` as `host-view`.
fn kebab(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// What exists only inside a block.
#[derive(Default)]
pub(crate) struct Frame<'f> {
    outer: Option<&'f Frame<'f>>,
    root: Option<(&'f str, &'f Capture<'f, Sim>)>,
    forks: BTreeMap<String, Capture<'f, Sim>>,
    scope: Option<&'f Scope<'f, 'static, Sim>>,
    scoped: BTreeMap<String, ScopedPinned<'f, Element, Sim>>,
}

impl<'f> Frame<'f> {
    fn capture(&self, name: &str) -> Option<&Capture<'f, Sim>> {
        let root = self.root.filter(|(known, _)| *known == name).map(|(_, root)| root);
        root.or_else(|| self.forks.get(name)).or_else(|| self.outer.and_then(|outer| outer.capture(name)))
    }

    fn scoped(&self, name: &str) -> Option<&ScopedPinned<'f, Element, Sim>> {
        self.scoped.get(name).or_else(|| self.outer.and_then(|outer| outer.scoped(name)))
    }

    fn is_capture(&self) -> bool {
        self.root.is_some() || self.outer.is_some_and(Frame::is_capture)
    }
}

type Region<'r> = CoreRegion<'r, Sim>;

/// Memory that a step uses, kept alive for the step.
enum Held<'h> {
    Buffer(Arc<Buffer<Element, Sim>>),
    Wrap(Arc<Pinned<Element, Sim>>),
    Scoped(&'h ScopedPinned<'h, Element, Sim>),
}

impl Held<'_> {
    fn region(&self) -> Region<'_> {
        match self {
            Self::Buffer(buffer) => buffer.region(),
            Self::Wrap(wrap) => wrap.region(),
            Self::Scoped(wrap) => wrap.region(),
        }
    }
}

/// A part of it, as the typed API takes it.
struct Part<'p>(Region<'p>);

// SAFETY: O6. A part of the range of what is held, for as long as it is borrowed, in whole elements.
unsafe impl Readable<Element, Sim> for Part<'_> {
    fn region(&self) -> Region<'_> {
        self.0
    }
}

// SAFETY: O6. Buffers, wraps of memory that is owned alone, and exclusive borrows: a shared wrap is never held.
unsafe impl Writable<Element, Sim> for Part<'_> {}

/// Where work goes.
enum Target<'t> {
    Stream(Stream<Sim>),
    Capture(&'t Capture<'t, Sim>),
}

/// Does the same on either kind of queue.
macro_rules! on {
    ($target:expr, $queue:ident => $body:expr) => {
        match $target {
            Target::Stream($queue) => $body,
            Target::Capture($queue) => $body,
        }
    };
}

/// A host thread of a scenario.
pub(crate) struct Player<'p> {
    stage: &'p Arc<Stage>,
    /// The line that it plays.
    line: Cell<u32>,
}

impl<'p> Player<'p> {
    pub(crate) fn new(stage: &'p Arc<Stage>) -> Self {
        Self { stage, line: Cell::new(0) }
    }
}

impl Player<'_> {
    /// Plays steps outside of any block.
    pub(crate) fn play(&self, steps: &[Step]) {
        // What fails here has ended the run already.
        let _ended = self.steps(steps, &mut Frame::default());
    }

    /// Plays steps until one ends the block.
    fn steps<'f>(&self, steps: &'f [Step], frame: &mut Frame<'f>) -> Done {
        for step in steps {
            if self.stage.has_failed() {
                resume_unwind(Box::new(Ended));
            }
            self.stage.begun.store(step.line, Ordering::Relaxed);
            self.line.set(step.line);
            {
                let mut world = self.stage.sim.shared().world.lock();
                world.changed();
                if !is_told(&step.action) {
                    world.touch_all();
                }
            }
            let done = self.paid(step).and_then(|()| self.action(&step.action, frame));
            self.judge(step, done, frame)?;
        }
        Ok(())
    }

    /// A file whose steps have no end is no scenario.
    fn paid(&self, step: &Step) -> Done {
        let elements = match &step.action {
            Action::Buffer { len, .. } | Action::Host { len, .. } | Action::Pinned { len, .. } => *len,
            _ => 0,
        };
        self.pay(elements)
    }

    fn pay(&self, elements: usize) -> Done {
        match self.stage.spend(elements) {
            true => Ok(()),
            false => Err(Trouble::File(format!("the steps of one run come to more than {BUDGET}"))),
        }
    }

    /// Holds what came of a step against what the file says.
    fn judge(&self, step: &Step, done: Done, frame: &Frame<'_>) -> Done {
        let trouble = match (&step.outcome, done) {
            (Outcome::Works | Outcome::MayFail(_), Ok(())) => return Ok(()),
            (Outcome::Fails(names), Ok(())) => {
                let what = if names.is_empty() { "an error".into() } else { names.join(" or ") };
                Trouble::Unexpected(format!("it worked, where {what} was expected"))
            }
            (_, Err(trouble @ (Trouble::Unexpected(_) | Trouble::File(_)))) => trouble,
            (Outcome::Works, Err(trouble @ (Trouble::Aborted | Trouble::Panicked)))
                if frame.is_capture() || frame.scope.is_some() =>
            {
                return Err(trouble);
            }
            (Outcome::Fails(names) | Outcome::MayFail(names), Err(trouble))
                if names.is_empty() || trouble.names().iter().any(|name| names.contains(name)) =>
            {
                return Ok(());
            }
            (_, Err(trouble)) => trouble,
        };
        let message = format!("line {}: {}", step.line, trouble.text());
        self.stage.fail(Failed { is_error: matches!(trouble, Trouble::File(_)), line: None, message });
        resume_unwind(Box::new(Ended))
    }

    fn action<'f>(&self, action: &'f Action, frame: &mut Frame<'f>) -> Done {
        match action {
            Action::Launch { .. }
            | Action::Copy { .. }
            | Action::Fill { .. }
            | Action::Upload { .. }
            | Action::Fetch { .. }
            | Action::FetchLater { .. }
            | Action::Completion { .. }
            | Action::Await { .. }
            | Action::PollOnce { .. } => self.device_work(action, frame),
            Action::Stream { .. }
            | Action::Clone { .. }
            | Action::Buffer { .. }
            | Action::Host { .. }
            | Action::Remap { .. }
            | Action::Wrap { .. }
            | Action::Pinned { .. }
            | Action::Record { .. } => self.make(action, frame),
            Action::Capture { .. }
            | Action::Fork { .. }
            | Action::Join { .. }
            | Action::Instantiate { .. }
            | Action::Replay { .. }
            | Action::Update { .. } => self.graph(action, frame),
            Action::View { .. }
            | Action::Scope { .. }
            | Action::Quiet { .. }
            | Action::Repeat { .. }
            | Action::If { .. }
            | Action::Lock { .. }
            | Action::Function { .. } => self.block(action, frame),
            Action::Free { .. } | Action::Unwrap { .. } | Action::Drop { .. } | Action::Forget { .. } => {
                self.let_go(action, frame)
            }
            Action::Look { at, value } => self.look(at, *value, frame),
            Action::Poke { at, value } => self.poke(at, *value, frame),
            Action::Foreign(foreign) => self.foreign(foreign),
            Action::Mishap(mishap) => {
                self.mishap(*mishap);
                Ok(())
            }
            _ => self.order(action),
        }
    }

    // --- names

    fn runtime(&self) -> Result<Runtime<Sim>, Trouble> {
        self.stage.runtime.lock().clone().ok_or(Trouble::Core(Error::Closed))
    }

    fn with<T>(&self, name: &str, wanted: &str, look: impl FnOnce(&Thing) -> Option<T>) -> Result<T, Trouble> {
        let named = self.stage.named.lock();
        let Some(thing) = named.get(name) else { return Err(Trouble::File(self.stage.missing(name))) };
        look(thing).ok_or_else(|| Trouble::File(format!("`{name}` is {}, where {wanted} is needed", thing.kind())))
    }

    fn put(&self, name: &str, thing: Thing) {
        let before = self.stage.named.lock().insert(name.to_owned(), thing);
        if matches!(before, Some(Thing::Foreign(_))) {
            let message = format!("`{name}` is a capture of other code that goes on: end it first");
            self.stage.fail(Failed { is_error: true, line: None, message });
        }
        drop(before);
    }

    fn take(&self, name: &str) -> Result<Thing, Trouble> {
        let taken = self.stage.named.lock().remove(name);
        if taken.is_some() {
            self.stage.ended(name, self.line.get());
        }
        taken.ok_or_else(|| Trouble::File(self.stage.missing(name)))
    }

    /// What a handle stands for, to be let go: captures of other code have none.
    fn take_but_captures(&self, name: &str) -> Result<Thing, Trouble> {
        match self.take(name)? {
            Thing::Foreign(capture) => {
                self.put(name, Thing::Foreign(capture));
                Err(Trouble::File(format!("`{name}` is a capture of other code: end it")))
            }
            thing => Ok(thing),
        }
    }

    fn stream(&self, name: &str) -> Result<Stream<Sim>, Trouble> {
        self.with(name, "a stream", |thing| match thing {
            Thing::Stream(stream) => Some(stream.clone()),
            _ => None,
        })
    }

    fn host(&self, name: &str) -> Option<Arc<HostBlock>> {
        match self.stage.named.lock().get(name) {
            Some(Thing::Host(block)) => Some(block.clone()),
            _ => None,
        }
    }

    fn target<'t>(&self, name: &str, frame: &'t Frame<'_>) -> Result<Target<'t>, Trouble> {
        match frame.capture(name) {
            Some(capture) => Ok(Target::Capture(capture)),
            None => self.stream(name).map(Target::Stream),
        }
    }

    fn held<'t>(&self, name: &str, frame: &'t Frame<'_>) -> Result<Held<'t>, Trouble> {
        if let Some(wrap) = frame.scoped(name) {
            return Ok(Held::Scoped(wrap));
        }
        self.with(name, "a buffer or a wrap", |thing| match thing {
            Thing::Buffer(buffer) => Some(Held::Buffer(buffer.clone())),
            Thing::Wrap(wrap) => Some(Held::Wrap(wrap.clone())),
            _ => None,
        })
    }

    // --- device work

    fn device_work(&self, action: &Action, frame: &Frame<'_>) -> Done {
        match action {
            Action::Launch { queue, reads, writes, value, library } => {
                self.launch(queue, reads, writes, *value, *library, frame)
            }
            Action::Copy { from, to, queue } => {
                let (source, sink) = (self.held(&from.name, frame)?, self.held(&to.name, frame)?);
                let (source, mut sink) = (part(&source, from)?, part(&sink, to)?);
                on!(self.target(queue, frame)?, queue => queue.copy(&source, &mut sink))?;
                Ok(())
            }
            Action::Fill { to, byte, queue } => {
                let sink = self.held(&to.name, frame)?;
                let mut sink = part(&sink, to)?;
                on!(self.target(queue, frame)?, queue => queue.fill(&mut sink, *byte))?;
                Ok(())
            }
            Action::Upload { from, to, queue } => {
                let values = self.host_values(from)?;
                let sink = self.held(&to.name, frame)?;
                let mut sink = part(&sink, to)?;
                let written = on!(self.target(queue, frame)?, queue => queue.write(&values, &mut sink));
                self.reuse(values)?;
                Ok(written?)
            }
            Action::Fetch { from, queue, value } => {
                let source = self.held(&from.name, frame)?;
                let values = self.executing(queue, frame)?.read(&part(&source, from)?)?;
                compare(&from.name, &values, *value)
            }
            Action::FetchLater { from, queue, name } => {
                let source = self.held(&from.name, frame)?;
                let download = self.executing(queue, frame)?.download(&part(&source, from)?)?;
                self.put(name, Thing::Download(download));
                Ok(())
            }
            Action::Completion { queue, name } => {
                let completion = self.executing(queue, frame)?.completion();
                self.put(name, Thing::Completion(completion));
                Ok(())
            }
            Action::Await { name, value } => match self.take(name)? {
                Thing::Download(download) => compare(name, &self.wait_for(download)?, *value),
                Thing::Completion(completion) => Ok(self.wait_for(completion)?),
                other => Err(self.no_future(name, other)),
            },
            Action::PollOnce { name, ready } => self.poll_once(name, *ready),
            _ => Ok(()),
        }
    }

    /// A stream that executes; in a capture, any attempt is refused there as it would be by the types (C9).
    fn executing(&self, name: &str, frame: &Frame<'_>) -> Result<Stream<Sim>, Trouble> {
        if frame.capture(name).is_some() {
            return Err(Error::Misuse(Misuse::InsideCapture).into());
        }
        self.stream(name)
    }

    fn launch(
        &self,
        queue: &str,
        reads: &[Place],
        writes: &[Place],
        value: Option<Element>,
        library: bool,
        frame: &Frame<'_>,
    ) -> Done {
        let places = || reads.iter().chain(writes);
        let held = places().map(|place| self.held(&place.name, frame)).collect::<Result<Vec<_>, _>>()?;
        let parts = held.iter().zip(places()).map(|(held, place)| part(held, place));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let access = |index| if index < reads.len() { Access::Read } else { Access::Write };
        let scalar = |value: u32| Argument::Scalar { words: [u64::from(value), 0], bytes: 4 };
        let mut arguments = vec![scalar(u32::from(value.is_some())), scalar(value.unwrap_or(0))];
        arguments.extend(parts.iter().map(|part| part.0.argument()));
        let Some(kernel) = self.stage.kernel(reads.len(), writes.len()) else {
            return Err(Trouble::File("no kernel has so many places".into()));
        };
        let config = LaunchConfig::linear(1);
        if library {
            let uses: Vec<_> = parts.iter().enumerate().map(|(index, part)| (part.0, access(index))).collect();
            let sim = self.stage.sim.clone();
            // SAFETY: O6. The regions are in `uses`, which hold them until the kernel has run; the kernel takes these
            // arguments.
            let body = |raw: &crate::driver::SimStream| unsafe { sim.launch(raw, kernel, &config, &arguments) };
            // SAFETY: O6. The body launches one kernel on the given stream, with exactly these uses.
            let answer = unsafe { self.stream(queue)?.use_on(&uses, body) };
            return Ok(answer??);
        }
        let uses: Vec<Memory<'_, Sim>> =
            parts.iter().enumerate().map(|(index, part)| Memory::new(part.0.backing, access(index))).collect();
        let enqueue = |sim: &Sim, raw: &crate::driver::SimStream| {
            // SAFETY: O6, C4. As in the core's own launch: the records or the graph hold the memory until the kernel
            // has run.
            unsafe { sim.launch(raw, kernel, &config, &arguments) }
        };
        on!(self.target(queue, frame)?, queue => {
            // SAFETY: O1. One kernel, which touches what `uses` names; its code is the simulator's own.
            unsafe { queue.submit_raw(&uses[..], Call::Launch, enqueue) }
        })?;
        Ok(())
    }

    /// Waits for a future as an executor under the schedule would: between polls others run, and the runtime gets its
    /// turns.
    fn wait_for<T>(&self, future: impl Future<Output = tenure::Result<T>> + Unpin) -> Result<T, Trouble> {
        let turn = || {
            if let Ok(runtime) = self.runtime() {
                runtime.poll();
            }
        };
        Ok(self.stage.sim.block_on(future, turn)?)
    }

    /// Polls a future once: one that is ready has ended with that.
    fn poll_once(&self, name: &str, expected: Option<bool>) -> Done {
        let mut context = Context::from_waker(Waker::noop());
        let (ready, back) = match self.take(name)? {
            Thing::Download(mut future) => match Pin::new(&mut future).poll(&mut context) {
                Poll::Ready(outcome) => (Some(outcome.map(drop)), None),
                Poll::Pending => (None, Some(Thing::Download(future))),
            },
            Thing::Completion(mut future) => match Pin::new(&mut future).poll(&mut context) {
                Poll::Ready(outcome) => (Some(outcome), None),
                Poll::Pending => (None, Some(Thing::Completion(future))),
            },
            other => return Err(self.no_future(name, other)),
        };
        if let Some(back) = back {
            self.put(name, back);
        }
        let is_ready = ready.is_some();
        ready.transpose()?;
        match expected.is_none_or(|expected| expected == is_ready) {
            true => Ok(()),
            false => Err(Trouble::Unexpected(format!("`{name}` is {}", if is_ready { "ready" } else { "pending" }))),
        }
    }

    /// What was taken for a future goes back.
    fn no_future(&self, name: &str, thing: Thing) -> Trouble {
        let trouble = Trouble::File(format!("`{name}` is {}, where a future is needed", thing.kind()));
        self.put(name, thing);
        trouble
    }

    // --- making

    fn make(&self, action: &Action, frame: &mut Frame<'_>) -> Done {
        match action {
            Action::Stream { names, kind } => names.iter().try_for_each(|name| self.make_stream(name, *kind)),
            Action::Clone { name, of } => {
                let second = self.with(of, "a stream, a buffer or a wrap", |thing| match thing {
                    Thing::Stream(stream) => Some(Thing::Stream(stream.clone())),
                    Thing::Buffer(buffer) => Some(Thing::Buffer(buffer.clone())),
                    Thing::Wrap(wrap) => Some(Thing::Wrap(wrap.clone())),
                    _ => None,
                })?;
                let id = self.stage.ids.lock().get(of).copied();
                self.stage.ids.lock().extend(id.map(|id| (name.clone(), id)));
                self.put(name, second);
                Ok(())
            }
            Action::Buffer { name, len, queue } => {
                let buffer = on!(self.target(queue, frame)?, queue => queue.alloc::<Element>(*len))?;
                self.put(name, Thing::Buffer(Arc::new(buffer)));
                Ok(())
            }
            Action::Host { name, len, value } => {
                let block = HostBlock::new(&self.stage.sim, *len, *value);
                let block = block.ok_or_else(|| Trouble::File("the system has no memory".into()))?;
                self.stage.note_host(name, block.pointer, block.len);
                self.put(name, Thing::Host(Arc::new(block)));
                Ok(())
            }
            Action::Remap { name } => self.remap(name),
            Action::Wrap { name, kind, of } => self.wrap(name, *kind, of, frame),
            Action::Pinned { name, len } => {
                let pinned = self.runtime()?.alloc_host::<Element>(*len)?;
                if let Some(start) = std::ptr::NonNull::new(pinned.as_ptr().cast_mut()) {
                    self.stage.note_host(name, HostPointer(start.cast()), *len);
                }
                self.put(name, Thing::Wrap(Arc::new(pinned)));
                Ok(())
            }
            Action::Record { name, queue } => {
                let event = self.executing(queue, frame)?.record()?;
                self.put(name, Thing::Event(Arc::new(event)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn make_stream(&self, name: &str, kind: StreamKind) -> Done {
        let runtime = self.runtime()?;
        let (stream, id) = match kind {
            StreamKind::Pooled(priority) => {
                let stream = runtime.stream_with(priority)?;
                let id = self.stage.stream_id(&stream);
                (stream, id)
            }
            StreamKind::Adopted => {
                let raw = self.stage.raw_stream()?;
                self.stage.adopted.lock().push(raw.handle());
                self.stage.raws.lock().insert(name.to_owned(), raw.handle());
                let id = self.stage.sim.stream_id(&raw);
                // SAFETY: S6. The stream is of this device, and destroyed only after the runtime was shut down.
                (unsafe { runtime.adopt(raw) }?, id)
            }
        };
        if let Some(id) = id {
            self.stage.ids.lock().insert(name.to_owned(), id);
        }
        self.put(name, Thing::Stream(stream));
        Ok(())
    }

    /// Memory goes back to the system and comes again: at the same address where nobody else kept a share of it.
    fn remap(&self, name: &str) -> Done {
        let Thing::Host(block) = self.take(name)? else {
            return Err(Trouble::File(format!("`{name}` is no host memory")));
        };
        let len = block.len;
        let mapped = match Arc::try_unwrap(block) {
            Ok(block) => block.remap(),
            Err(_kept) => HostBlock::new(&self.stage.sim, len, 0),
        };
        let mapped = mapped.ok_or_else(|| Trouble::File("the system has no memory".into()))?;
        self.stage.note_host(name, mapped.pointer, mapped.len);
        self.put(name, Thing::Host(Arc::new(mapped)));
        Ok(())
    }

    fn wrap(&self, name: &str, kind: WrapKind, of: &Place, frame: &mut Frame<'_>) -> Done {
        let block = self.host(&of.name).ok_or_else(|| Trouble::File(format!("`{}` is no host memory", of.name)))?;
        let (start, end) = of.range.unwrap_or((0, block.len));
        if start > end || end > block.len {
            return Err(Trouble::File(format!("`{}` has {} elements", of.name, block.len)));
        }
        let (at, len) = (block.at(start).0.cast::<Element>(), end - start);
        if let Some(scope) = frame.scope.filter(|_| kind == WrapKind::Owned) {
            // SAFETY: P4. The block outlives the scope, whose steps cannot remap it while this thread is in them. No
            // host access goes through this reference while the device may access the memory: views and copies serve
            // the host.
            let memory = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) };
            let wrap = scope.wrap(memory)?;
            frame.scoped.insert(name.to_owned(), wrap);
            return Ok(());
        }
        let runtime = self.runtime()?;
        let wrap = match kind {
            WrapKind::Owned => runtime.wrap(Share { block, start, len }).map_err(Error::from)?,
            // SAFETY: P4. That the memory lives long enough is what the scenario is about; the simulator reaches it by
            // copies that its own map of the host's memory allows.
            WrapKind::Raw => unsafe { runtime.wrap_raw(at, len) }?,
        };
        self.put(name, Thing::Wrap(Arc::new(wrap)));
        Ok(())
    }

    // --- the host's side

    fn told(&self, at: HostPointer, len: usize, access: event::Access) {
        self.stage.sim.host_accessed(at, len * size_of::<Element>(), access);
    }

    fn values_at(&self, at: HostPointer, len: usize) -> Vec<Element> {
        self.told(at, len, event::Access::Read);
        let mut bytes = vec![0; len * size_of::<Element>()];
        // SAFETY: P4. Memory of the scenario, which it keeps to the end; its threads take turns.
        unsafe { crate::host_memory::read(at, &mut bytes) };
        bytes.chunks_exact(size_of::<Element>()).map(bytemuck::pod_read_unaligned).collect()
    }

    fn set_at(&self, at: HostPointer, len: usize, value: Element) {
        self.told(at, len, event::Access::Write);
        for index in 0..len {
            // SAFETY: P4. The same as for `values_at`.
            unsafe { crate::host_memory::write(at.offset(index * size_of::<Element>()), &value.to_ne_bytes()) };
        }
    }

    /// A caller uses its memory for something else once a call is over: a core that still reads it gets that (C10). It
    /// stays until the run has ended, so that such a core does no other harm.
    fn reuse(&self, mut values: Vec<Element>) -> Done {
        self.pay(values.len())?;
        values.fill(Element::MAX);
        self.stage.reused.lock().push(values);
        Ok(())
    }

    /// Plain host memory, as the program sees it.
    fn host_values(&self, place: &Place) -> Result<Vec<Element>, Trouble> {
        let block = self.host(&place.name);
        let block = block.ok_or_else(|| Trouble::File(format!("`{}` is no host memory", place.name)))?;
        let (start, end) = within(place, block.len)?;
        Ok(self.values_at(block.at(start), end - start))
    }

    fn look(&self, at: &Place, value: Option<Element>, frame: &Frame<'_>) -> Done {
        if self.host(&at.name).is_some() {
            return compare(&at.name, &self.host_values(at)?, value);
        }
        let held = self.held(&at.name, frame)?;
        let len = usize::try_from(held.region().bytes).unwrap_or(usize::MAX) / size_of::<Element>();
        let (start, end) = within(at, len)?;
        let read = |view: &[Element]| {
            let first = std::ptr::NonNull::from(view).cast();
            self.values_at(HostPointer(first).offset(start * size_of::<Element>()), end - start)
        };
        let values = match &held {
            Held::Wrap(wrap) => read(&wrap.read()?),
            Held::Scoped(wrap) => read(&wrap.read()?),
            Held::Buffer(_) => return Err(Trouble::File(format!("`{}` is device memory: fetch it", at.name))),
        };
        compare(&at.name, &values, value)
    }

    fn poke(&self, at: &Place, value: Element, frame: &mut Frame<'_>) -> Done {
        if let Some(block) = self.host(&at.name) {
            let (start, end) = within(at, block.len)?;
            self.set_at(block.at(start), end - start, value);
            return Ok(());
        }
        if let Some(wrap) = frame.scoped.get_mut(&at.name) {
            let mut view = wrap.write()?;
            return self.set_view(&mut view, at, value);
        }
        let mut second = self.second_wrap(&at.name)?;
        let mut view = second.write()?;
        self.set_view(&mut view, at, value)
    }

    fn set_view(&self, view: &mut [Element], at: &Place, value: Element) -> Done {
        let (start, end) = within(at, view.len())?;
        let first = HostPointer(std::ptr::NonNull::from(view).cast());
        self.set_at(first.offset(start * size_of::<Element>()), end - start, value);
        Ok(())
    }

    /// Another wrap of the same memory: a writing view borrows its wrap for itself, and threads share theirs here.
    fn second_wrap(&self, name: &str) -> Result<Pinned<Element, Sim>, Trouble> {
        let wrap = self.with(name, "a wrap", |thing| match thing {
            Thing::Wrap(wrap) => Some(wrap.clone()),
            _ => None,
        })?;
        let Some(start) = std::ptr::NonNull::new(wrap.as_ptr().cast_mut()) else {
            return Err(Trouble::File(format!("`{name}` has no memory")));
        };
        // SAFETY: P4. The first wrap holds the memory for as long as this one, which shares its registration.
        Ok(unsafe { self.runtime()?.wrap_raw(start, wrap.len()) }?)
    }

    // --- captures and graphs

    fn graph<'f>(&self, action: &'f Action, frame: &mut Frame<'f>) -> Done {
        match action {
            Action::Capture { graph, queue, steps } => self.capture(graph, queue, steps, frame),
            Action::Fork { name, from } => {
                let fork = self.captured(from, frame)?.fork()?;
                frame.forks.insert(name.clone(), fork);
                Ok(())
            }
            Action::Join { name, into } => {
                let Some(fork) = frame.forks.remove(name) else {
                    return Err(Trouble::File(format!("`{name}` is no fork of this capture")));
                };
                Ok(fork.join(self.captured(into, frame)?)?)
            }
            Action::Instantiate { name, graph } => {
                let executable = self.recorded(graph)?.instantiate()?;
                self.put(name, Thing::Executable(Arc::new(tenure::sync::Mutex::new(executable))));
                Ok(())
            }
            Action::Replay { name, queue } => {
                let stream = self.stream(queue)?;
                let executable = self.with(name, "an executable", |thing| match thing {
                    Thing::Executable(executable) => Some(executable.clone()),
                    _ => None,
                });
                Ok(executable?.lock().launch(&stream)?)
            }
            Action::Update { name, graph } => {
                let executable = self.with(name, "an executable", |thing| match thing {
                    Thing::Executable(executable) => Some(executable.clone()),
                    _ => None,
                });
                Ok(executable?.lock().update(&*self.recorded(graph)?)?)
            }
            _ => Ok(()),
        }
    }

    fn captured<'t, 'f>(&self, name: &str, frame: &'t Frame<'f>) -> Result<&'t Capture<'f, Sim>, Trouble> {
        frame.capture(name).ok_or_else(|| Trouble::File(format!("`{name}` is no queue of this capture")))
    }

    fn recorded(&self, name: &str) -> Result<Arc<tenure::Graph<Sim>>, Trouble> {
        self.with(name, "a graph", |thing| match thing {
            Thing::Graph(graph) => Some(graph.clone()),
            _ => None,
        })
    }

    fn capture(&self, graph: &str, queue: &str, steps: &[Step], frame: &Frame<'_>) -> Done {
        let runtime = self.runtime()?;
        let mut trouble = None;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            runtime.capture(|capture| {
                let mut inner = Frame { outer: Some(frame), root: Some((queue, capture)), ..Frame::default() };
                let done = self.steps(steps, &mut inner);
                done.map_err(|why| fail_with(why, &mut trouble))
            })
        }));
        match (outcome, trouble) {
            (Ok(Ok(recorded)), _) => {
                self.put(graph, Thing::Graph(Arc::new(recorded)));
                Ok(())
            }
            (Ok(Err(_)), Some(trouble)) => Err(trouble),
            (Ok(Err(error)), None) => Err(error.into()),
            (Err(payload), _) if payload.is::<Planned>() => Err(Trouble::Panicked),
            (Err(payload), _) => resume_unwind(payload),
        }
    }

    // --- blocks

    fn block<'f>(&self, action: &'f Action, frame: &mut Frame<'f>) -> Done {
        match action {
            Action::View { at, write, steps } => self.view(at, *write, steps, frame),
            Action::Scope { steps } => self.scope(steps, frame),
            Action::Quiet { steps } => self.quiet(steps, frame),
            Action::Repeat { times, steps } => {
                let times = if steps.is_empty() { 0 } else { *times };
                (0..times).try_for_each(|_| self.steps(steps, frame))
            }
            Action::If { name, steps } => {
                let stands = self.stage.named.lock().contains_key(name)
                    || frame.scoped(name).is_some()
                    || frame.capture(name).is_some();
                if stands { self.steps(steps, frame) } else { Ok(()) }
            }
            Action::Lock { name, steps } => {
                // Others may be faster.
                self.stage.sim.yield_now();
                let _held = self.stage.locks[name].lock();
                self.steps(steps, frame)
            }
            Action::Function { queue, steps } => self.function(queue, steps),
            _ => Ok(()),
        }
    }

    fn view(&self, at: &str, write: bool, steps: &[Step], frame: &Frame<'_>) -> Done {
        let mut inner = Frame { outer: Some(frame), ..Frame::default() };
        let mut second = self.second_wrap(at)?;
        let len = second.len();
        if write {
            let view = second.write()?;
            self.told(HostPointer(std::ptr::NonNull::from(&*view).cast()), len, event::Access::Write);
            self.steps(steps, &mut inner)
        } else {
            let view = second.read()?;
            self.told(HostPointer(std::ptr::NonNull::from(&*view).cast()), len, event::Access::Read);
            self.steps(steps, &mut inner)
        }
    }

    fn scope(&self, steps: &[Step], frame: &Frame<'_>) -> Done {
        let runtime = self.runtime()?;
        let mut trouble = None;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            runtime.scope(|scope: &Scope<'_, 'static, Sim>| {
                let mut inner = Frame { outer: Some(frame), scope: Some(scope), ..Frame::default() };
                let done = self.steps(steps, &mut inner);
                done.map_err(|why| fail_with(why, &mut trouble))
            })
        }));
        match (outcome, trouble) {
            (Ok(Ok(())), _) => Ok(()),
            (Ok(Err(_)), Some(trouble)) => Err(trouble),
            (Ok(Err(error)), None) => Err(error.into()),
            (Err(payload), _) if payload.is::<Planned>() => Err(Trouble::Panicked),
            (Err(payload), _) => resume_unwind(payload),
        }
    }

    /// A place that must not wait: a finalizer, a signal handler. No driver call may come of the steps (R1).
    fn quiet(&self, steps: &[Step], frame: &Frame<'_>) -> Done {
        let sim = &self.stage.sim;
        let calls = || sim.counts().total_of_thread(sim.thread());
        let before = calls();
        let mut inner = Frame { outer: Some(frame), ..Frame::default() };
        self.steps(steps, &mut inner)?;
        let made = calls() - before;
        if made > 0 {
            let message = format!("{made} driver call(s) were made where none may be");
            sim.shared().world.lock().found(Line::R1, message);
        }
        Ok(())
    }

    fn function(&self, queue: &str, steps: &[Step]) -> Done {
        let (stage, steps) = (self.stage.clone(), steps.to_vec());
        let function: tenure::driver::HostFunction = Arc::new(move || {
            let player = Player::new(&stage);
            for step in &steps {
                let done = player.paid(step).and_then(|()| player.action(&step.action, &mut Frame::default()));
                if let Err(trouble) = done {
                    let message = format!("line {}: in a host function: {}", step.line, trouble.text());
                    stage.fail(Failed { is_error: matches!(trouble, Trouble::File(_)), line: Some(Line::R2), message });
                    return;
                }
            }
        });
        let sim = self.stage.sim.clone();
        // SAFETY: O6. The body enqueues one host function on the given stream; it uses no memory.
        let answer = unsafe { self.stream(queue)?.use_on(&[], |raw| sim.launch_host_function(raw, function)) };
        Ok(answer??)
    }

    // --- letting go

    fn let_go(&self, action: &Action, frame: &mut Frame<'_>) -> Done {
        match action {
            Action::Free { name, freed } => self.free(name, *freed),
            Action::Unwrap { name } => {
                let Thing::Wrap(wrap) = self.take(name)? else {
                    return Err(Trouble::File(format!("`{name}` is no wrap")));
                };
                let wrap = Arc::try_unwrap(wrap).map_err(|_shared| Error::Pin(PinError::Shared))?;
                wrap.into_owner::<Share>().map(drop).map_err(|(error, back)| {
                    if let Some(back) = back {
                        self.put(name, Thing::Wrap(Arc::new(back)));
                    }
                    error.into()
                })
            }
            Action::Drop { names } => names.iter().try_for_each(|name| {
                if frame.scoped.remove(name).is_none() && frame.forks.remove(name).is_none() {
                    drop(self.take_but_captures(name)?);
                }
                Ok(())
            }),
            Action::Forget { names } => names.iter().try_for_each(|name| {
                match frame.scoped.remove(name) {
                    Some(wrap) => std::mem::forget(wrap),
                    None => std::mem::forget(self.take_but_captures(name)?),
                }
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    fn free(&self, name: &str, expected: Option<FreedAs>) -> Done {
        let freed = match self.take(name)? {
            Thing::Buffer(buffer) => match Arc::try_unwrap(buffer) {
                Ok(buffer) => buffer.free()?,
                Err(_in_use) => Freed::Deferred,
            },
            Thing::Wrap(wrap) => match Arc::try_unwrap(wrap) {
                Ok(wrap) => wrap.free()?,
                Err(_in_use) => Freed::Deferred,
            },
            _ => return Err(Trouble::File(format!("`{name}` cannot be freed: drop it"))),
        };
        let freed = if freed == Freed::Now { FreedAs::Now } else { FreedAs::Deferred };
        match expected.is_none_or(|expected| expected == freed) {
            true => Ok(()),
            false => Err(Trouble::Unexpected(format!("`{name}` was freed {freed:?}, not {expected:?}"))),
        }
    }

    // --- order, waits, figures

    fn order(&self, action: &Action) -> Done {
        match action {
            Action::Sync { name } => self.sync(name),
            Action::Ask { name, busy } => self.ask(name, *busy),
            Action::Order { queue, after } => Ok(self.stream(queue)?.wait_event(&*self.event(after)?)?),
            Action::Signal { name } => {
                self.stage.signals[name].set();
                Ok(())
            }
            Action::Wait { name } => {
                self.stage.signals[name].wait();
                Ok(())
            }
            Action::Hold { queue } | Action::Release { queue } => {
                self.hold(queue, matches!(action, Action::Hold { .. }))
            }
            Action::Abort => Err(Trouble::Aborted),
            Action::Panic => resume_unwind(Box::new(Planned)),
            Action::Poll => {
                self.runtime()?.poll();
                Ok(())
            }
            Action::Trim => {
                self.runtime()?.trim();
                Ok(())
            }
            Action::Shutdown { clean } => self.shutdown(*clean),
            Action::Expect { figure, relation, bound } => self.expect(figure, *relation, *bound),
            _ => Err(Trouble::File("the step is not for this place".into())),
        }
    }

    fn event(&self, name: &str) -> Result<Arc<tenure::Event<Sim>>, Trouble> {
        self.with(name, "an event", |thing| match thing {
            Thing::Event(event) => Some(event.clone()),
            _ => None,
        })
    }

    fn sync(&self, name: &str) -> Done {
        let wait = self.with(name, "a stream, a buffer, a wrap or an event", |thing| match thing {
            Thing::Stream(stream) => Some(Waitable::Stream(stream.clone())),
            Thing::Buffer(buffer) => Some(Waitable::Buffer(buffer.clone())),
            Thing::Wrap(wrap) => Some(Waitable::Wrap(wrap.clone())),
            Thing::Event(event) => Some(Waitable::Event(event.clone())),
            _ => None,
        });
        Ok(match wait? {
            Waitable::Stream(stream) => stream.synchronize(),
            Waitable::Buffer(buffer) => buffer.synchronize(),
            Waitable::Wrap(wrap) => wrap.synchronize(),
            Waitable::Event(event) => event.synchronize(),
        }?)
    }

    fn ask(&self, name: &str, expected: Option<bool>) -> Done {
        let wait = self.with(name, "a stream, a buffer, a wrap or an event", |thing| match thing {
            Thing::Stream(stream) => Some(Waitable::Stream(stream.clone())),
            Thing::Buffer(buffer) => Some(Waitable::Buffer(buffer.clone())),
            Thing::Wrap(wrap) => Some(Waitable::Wrap(wrap.clone())),
            Thing::Event(event) => Some(Waitable::Event(event.clone())),
            _ => None,
        });
        let busy = match wait? {
            Waitable::Stream(stream) => !stream.is_idle()?,
            Waitable::Buffer(buffer) => buffer.is_busy(),
            Waitable::Wrap(wrap) => wrap.is_busy(),
            Waitable::Event(event) => !event.is_complete()?,
        };
        match expected.is_none_or(|expected| expected == busy) {
            true => Ok(()),
            false => Err(Trouble::Unexpected(format!("`{name}` is {}", if busy { "busy" } else { "idle" }))),
        }
    }

    fn hold(&self, queue: &str, hold: bool) -> Done {
        let id = self.stage.ids.lock().get(queue).copied();
        let id = id.ok_or_else(|| Trouble::File(format!("`{queue}` was never a stream here")))?;
        let mut world = self.stage.sim.shared().world.lock();
        if hold {
            world.stalled.push(id);
        } else {
            world.stalled.retain(|stalled| *stalled != id);
            world.turns.moved();
        }
        Ok(())
    }

    fn shutdown(&self, clean: bool) -> Done {
        let Some(runtime) = self.stage.runtime.lock().take() else { return Err(Error::Closed.into()) };
        // What can end within the deadline ends; virtual devices need none of the real time.
        self.stage.sim.run_to_idle();
        let watch = runtime.clone();
        let report = runtime.shutdown(Duration::ZERO);
        *self.stage.last_stats.lock() = Some(watch.stats());
        drop(watch);
        match clean && !report.is_clean() {
            true => Err(Trouble::Unexpected(format!("the shutdown left something: {report:?}"))),
            false => Ok(()),
        }
    }

    fn expect(&self, figure: &Figure, relation: Relation, bound: u64) -> Done {
        let (name, value) = match figure {
            Figure::Calls(call) => (format!("calls {call}"), self.stage.sim.counts().of(*call)),
            Figure::Runtime(name) => (name.clone(), self.figure(name)?),
        };
        match relation.holds(value, bound) {
            true => Ok(()),
            false => Err(Trouble::Unexpected(format!("{name} is {value}, not {} {bound}", relation.sign()))),
        }
    }

    fn figure(&self, name: &str) -> Result<u64, Trouble> {
        let seen = self.stage.sim.report();
        match name {
            "edges.needless" => return Ok(seen.order.edges - seen.order.edges_needed),
            "warnings" => return Ok((seen.findings.len() - seen.violations().count()) as u64),
            _ => {}
        }
        let runtime = self.runtime();
        let stats = match &runtime {
            Ok(runtime) => runtime.stats(),
            // What the runtime had at the end of its shutdown.
            Err(_) => (*self.stage.last_stats.lock()).ok_or(Trouble::Core(Error::Closed))?,
        };
        Ok(match name {
            "streams.made" => stats.streams.made,
            "streams.alive" => stats.streams.alive as u64,
            "streams.leased" => stats.streams.leased as u64,
            "streams.quarantined" => stats.streams.quarantined as u64,
            "edges.inserted" => stats.streams.edges_inserted,
            "pins.made" => stats.pins_made,
            "pins.shared" => stats.pins_shared,
            "pins.released" => stats.pins_released,
            "pins.live" => stats.pins_live as u64,
            "pins.pending" => stats.pins_pending as u64,
            "pins.quarantined" => stats.pins_quarantined as u64,
            "retired" => stats.retired,
            "released" => stats.released,
            "leaked" => stats.leaked,
            "pending" => stats.retired_pending as u64,
            "captures" => stats.captures as u64,
            "errors" => runtime?.take_release_errors().len() as u64,
            _ => return Err(Trouble::File(format!("there is no figure `{name}`"))),
        })
    }

    // --- other code, and what goes wrong

    fn foreign(&self, foreign: &Foreign) -> Done {
        let sim = &self.stage.sim;
        match foreign {
            Foreign::Begin { name, mode, announced } => {
                let guard = if *announced { Some(self.runtime()?.capture_guard()) } else { None };
                let stream = self.stage.raw_stream()?;
                sim.foreign(|| sim.capture_begin(&stream, *mode))?;
                self.put(name, Thing::Foreign(ForeignCapture { stream, guard }));
                Ok(())
            }
            Foreign::End { name } => {
                let Thing::Foreign(capture) = self.take(name)? else {
                    return Err(Trouble::File(format!("`{name}` is no capture of other code")));
                };
                let ended = sim.foreign(|| sim.capture_end(&capture.stream));
                if let Err(error) = ended
                    && error.kind() == ErrorKind::CaptureWrongThread
                {
                    // It goes on, for the thread that began it.
                    self.put(name, Thing::Foreign(capture));
                    return Err(error.into());
                }
                let handle = capture.stream.handle();
                drop(capture);
                self.stage.adopted.lock().push(handle);
                Ok(sim.foreign(|| sim.graph_destroy(ended?))?)
            }
            Foreign::Pin(place) | Foreign::Unpin(place) => {
                let block = self.host(&place.name);
                let block = block.ok_or_else(|| Trouble::File(format!("`{}` is no host memory", place.name)))?;
                let (start, end) = within(place, block.len)?;
                let (at, bytes) = (block.at(start), (end - start) * size_of::<Element>());
                sim.foreign(|| match foreign {
                    // SAFETY: P4. The block is mapped; that it stays so is what the scenario is about.
                    Foreign::Pin(_) => unsafe { sim.host_register(at, bytes, HostAccess::ReadWrite) },
                    // SAFETY: P3. Other code's own registration; whether work still uses it is what the scenario is
                    // about.
                    _ => unsafe { sim.host_unregister(at) },
                })?;
                Ok(())
            }
            Foreign::Call(call, queue) => self.raw_call(call, queue.as_deref()),
            Foreign::Destroy(name) => self.destroy(name),
        }
    }

    /// Other code destroys its stream; its handle in the runtime stays where it is.
    fn destroy(&self, name: &str) -> Done {
        let handle = self.stage.raws.lock().remove(name);
        let handle = handle.ok_or_else(|| {
            Trouble::File(format!("`{name}` is no adopted stream, or other code has destroyed it already"))
        })?;
        self.stage.adopted.lock().retain(|adopted| *adopted != handle);
        let sim = &self.stage.sim;
        let raw = crate::driver::SimStream::from_raw(handle);
        // SAFETY: S6. Whether the runtime still needs the stream is what the scenario is about.
        Ok(sim.foreign(|| unsafe { sim.stream_destroy(&raw) })?)
    }

    fn raw_call(&self, call: &str, queue: Option<&str>) -> Done {
        let sim = &self.stage.sim;
        match (call, queue) {
            ("malloc", _) => sim.foreign(|| {
                let memory = sim.malloc(16)?;
                // SAFETY: O6. Just allocated, and used by nothing.
                Ok(unsafe { sim.free(memory) }?)
            }),
            ("device_synchronize", _) => {
                let thread = sim.thread();
                let mut world = sim.shared().world.lock();
                drop(world.engine.device_synchronize(thread));
                world.settle();
                Ok(())
            }
            (_, None) => Err(Trouble::File(format!("`foreign call {call}` needs a stream"))),
            (_, Some(queue)) => {
                let foreign =
                    self.stage.named.lock().get(queue).is_some_and(|thing| matches!(thing, Thing::Foreign(_)));
                let ask = |raw: &crate::driver::SimStream| {
                    sim.foreign(|| match call {
                        "stream_query" => sim.stream_query(raw).map(|_progress| ()),
                        _ => sim.stream_synchronize(raw),
                    })
                };
                if foreign {
                    let Thing::Foreign(capture) = self.take(queue)? else { return Ok(()) };
                    let answer = ask(&capture.stream);
                    self.put(queue, Thing::Foreign(capture));
                    return Ok(answer?);
                }
                // SAFETY: O6. The body enqueues nothing.
                let answer = unsafe { self.stream(queue)?.use_on(&[], ask) };
                Ok(answer??)
            }
        }
    }

    fn mishap(&self, mishap: Mishap) {
        let sim = &self.stage.sim;
        sim.add_fault(match mishap {
            Mishap::Call { call, nth, always, late: false, code } => {
                Fault::Fail { call: call.into(), nth, code, always }
            }
            Mishap::Call { call, nth, always, late: true, code } => {
                Fault::FailAfter { call: call.into(), nth, code, always }
            }
            Mishap::SkipFunction(nth) => Fault::SkipFunction { nth, always: false },
            Mishap::HangFunction(nth) => Fault::HangFunction { nth },
            Mishap::HangOperation(nth) => Fault::HangOperation { nth },
            Mishap::LoseAt(nth, code) => Fault::LoseDevice { nth, code },
            Mishap::Lose(code) => return sim.lose_device(code),
            Mishap::Reset => {
                // One that is lost stays so.
                let _refused = sim.reset_device();
                return;
            }
        });
    }
}

/// Whether all that the step does to the simulation are driver calls and accesses that the simulation is told of. Blocks
/// are looked into.
fn is_told(action: &Action) -> bool {
    matches!(
        action,
        Action::Stream { .. }
            | Action::Clone { .. }
            | Action::Buffer { .. }
            | Action::Host { .. }
            | Action::Launch { .. }
            | Action::Copy { .. }
            | Action::Fill { .. }
            | Action::Upload { .. }
            | Action::Fetch { .. }
            | Action::FetchLater { .. }
            | Action::Completion { .. }
            | Action::Await { .. }
            | Action::Record { .. }
            | Action::Order { .. }
            | Action::Sync { .. }
            | Action::Ask { .. }
            | Action::Signal { .. }
            | Action::Wait { .. }
            | Action::Drop { .. }
            | Action::Free { .. }
            | Action::Forget { .. }
            | Action::Poll
            | Action::PollOnce { .. }
            | Action::Repeat { .. }
    )
}

enum Waitable {
    Stream(Stream<Sim>),
    Buffer(Arc<Buffer<Element, Sim>>),
    Wrap(Arc<Pinned<Element, Sim>>),
    Event(Arc<tenure::Event<Sim>>),
}

/// What a failing body tells the core; what it was in truth is kept beside it.
fn fail_with(why: Trouble, keep: &mut Option<Trouble>) -> Error {
    let error = match &why {
        Trouble::Core(error) => error.clone(),
        _ => Error::Closed,
    };
    *keep = Some(why);
    error
}

fn within(place: &Place, len: usize) -> Result<(usize, usize), Trouble> {
    let (start, end) = place.range.unwrap_or((0, len));
    match start <= end && end <= len {
        true => Ok((start, end)),
        false => Err(Error::Misuse(Misuse::LengthMismatch { expected: end, actual: len }).into()),
    }
}

fn part<'p>(held: &'p Held<'_>, place: &Place) -> Result<Part<'p>, Trouble> {
    let whole = held.region();
    let size = size_of::<Element>() as u64;
    let (start, end) = within(place, usize::try_from(whole.bytes / size).unwrap_or(usize::MAX))?;
    Ok(Part(whole.part(start as u64 * size, (end - start) as u64 * size)?))
}

fn compare(name: &str, values: &[Element], expected: Option<Element>) -> Done {
    let Some(expected) = expected else { return Ok(()) };
    match values.iter().enumerate().find(|(_, value)| **value != expected) {
        None => Ok(()),
        Some((index, value)) => {
            Err(Trouble::Unexpected(format!("`{name}` is {value} at element {index}, not {expected}")))
        }
    }
}
