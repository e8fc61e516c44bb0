//! Reclaim: what is let go waits here until the device is done with it (R1 to R6, P3, P7, P11, C3, C4).
//!
//! | state of a thing | meaning | changes by | keeps |
//! |---|---|---|---|
//! | retired | dropped; in the queue | `retire`, anywhere: a push and perhaps an unpark | R1 P7 |
//! | waiting | filed under a point that is not known to be complete | a turn | P3 C4 O6 |
//! | deferred | due, but a capture stands in the way | a turn | C1 C3 |
//! | released | given back to the driver, once | a turn | P5 O6 |
//! | leaked | its work will never be known to end | a turn, after a loss or on a broken stream | P11 R6 |
//!
//! A *turn* is made by the worker thread, or by `poll()`; never by two at once. The worker learns of completion from
//! host functions, which only raise a watermark and wake it (R2); a slow tick asks the streams too, since after a fault
//! a host function may never run. `poll()` asks the streams.
//!
//! # Costs
//! Dropping: one short lock and one atomic swap, and a wake of the system only when the worker sleeps. Device memory
//! whose last use is on one stream is freed in that stream's order at once, without waiting for the device.
//!
//! # Why each retired thing is released exactly once
//! At most once: [`Retired`] is made by the one drop that takes the raw handle out of its owner, and it is not `Clone`. It moves from the
//! queue (taken whole, under its lock) to a turn (one at a time, by `backlog`), to [`state::Waiting`] or to what is
//! deferred, and back to a turn. The driver call consumes it; where a capture refuses the call (`None`), none was made, and it is deferred. A
//! pin, which can be revived, carries an epoch besides: a void one ends here without a call.
//!
//! At least once, while the device goes on and captures end: who retires pushes first and raises the signal after, and the worker
//! clears the signal before it takes the queue, so a push is in this turn or its signal leads to another. What waits has an armed host
//! function, which raises the watermark first and the signal after, or is asked about at each tick. What a capture deferred
//! is taken up by the signal of its end. What will never be complete (a broken stream, a lost device, the deadline of a
//! shutdown) is leaked, once, by the same move.
//!
//! # Code that is not ours (R10)
//! Owners' drops and wakers may do anything: panic, block, park and so eat the token of a wakeup, call back. A turn only
//! lists them (as errands); they run after it, with no lock held, each with its panic caught. So whoever they call finds
//! no turn in progress on their account. The worker leaves owners to a thread that it starts for them, since they may
//! block: releases and futures go on without them. It wakes tasks itself.
//!
//! # The end
//! [`Reclaim::close`] first closes the queue, under its lock, and then leaks what is left. It leaks what it finds in the backlog if that
//! is free, and destroys the stream of our own before it lets the backlog go. Otherwise the thread that has the backlog looks at the
//! queue after the turn, finds it closed, and does the same: the call that failed to get the backlog had closed the queue before. A
//! shutdown that has time tries again until one of the two is done ([`Reclaim::close_after_turns`]), since no call is made after it. Tasks are told without the backlog, which a turn may hold across a driver
//! call that does not return. What is retired from then on is leaked where it is retired, and its task told there.
//!
//! # Locks
//! `incoming` is never held across anything. `backlog` is only ever tried, so nobody waits for it without limit: it may be held across
//! an unregister. No code of others runs under either.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::task::Waker;

use crate::call_scope::{CallScope, MayWait, count_within, within};
use crate::context::Context;
use crate::driver::{Call, DeviceAddress, Driver, HostPointer, Priority, Progress};
use crate::error::{DriverFailure, Error, Misuse, Result};
use crate::id::StreamId;
use crate::life::Phase;
use crate::ownership::{Access, Point, Points};
use crate::point::Mark;
use crate::registration::{Deferral, Pin, Pins, Released};
use crate::stream_state::{Kind, StreamState};
use crate::sync::atomic::AtomicBool;
use crate::sync::ordering;
use crate::sync::thread::{self, Thread};
use crate::sync::{Arc, Mutex, fork, leak};

pub mod state;

use self::state::Waiting;

/// What can be retired.
#[derive(Debug)]
pub enum Resource<D: Driver> {
    /// Device memory.
    Memory(DeviceAddress),
    /// A registration whose count fell to zero in this epoch: its one ticket.
    Pin(Arc<Pin<D>>, u64),
    /// The owner of a wrap that has ended, of a registration that others use on.
    Owner(Arc<Pin<D>>, Box<dyn Any + Send>),
    /// An event of the user's.
    Event(D::Event),
    /// An executable graph, with what keeps alive all that it uses (C4).
    Executable(D::Executable, Box<dyn Any + Send>),
    /// A recorded graph.
    Graph(D::Graph),
    /// A module.
    Module(D::Module),
    /// An adopted stream's state, whose event is the runtime's.
    Adopted(Arc<StreamState<D>>),
    /// Page-locked memory that no copy is staged in any more.
    Slab(HostPointer),
    /// Memory of ours that a copy reads or writes. Its drop runs no code of others.
    Kept(Box<dyn Any + Send>),
    /// What holds things that may have owners of the user's.
    Holdings(Box<dyn Any + Send>),
    /// Nothing: somebody wants to know.
    Notice(std::sync::Arc<Notice>),
}

/// A thing with the points that it waits for.
#[derive(Debug)]
pub struct Retired<D: Driver> {
    /// The thing.
    pub resource: Resource<D>,
    /// What must complete first.
    pub points: Points<D>,
}

/// Tells one task that something has completed. Outlives a task that stopped caring (R4).
#[derive(Debug, Default)]
pub struct Notice {
    // A leaf: nothing is locked under it, and no waker is cloned, dropped or woken.
    state: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    outcome: Option<Result<()>>,
    waker: Option<Waker>,
    /// Where a turn filed it last.
    place: Option<(StreamId, u64, u64)>,
    /// Its task is gone: nobody wants to know.
    is_withdrawn: bool,
    /// It was taken out of the queue for that.
    is_out: bool,
}

impl Notice {
    /// The outcome, if there is one; otherwise `waker` is woken when there is, and no other.
    pub fn poll(&self, waker: &Waker) -> Option<Result<()>> {
        let mut waker = Some(waker.clone());
        let outcome = {
            let mut told = self.state.lock();
            if told.outcome.is_none() {
                std::mem::swap(&mut told.waker, &mut waker);
            }
            told.outcome.clone()
        };
        // The one before, or the one that is not needed.
        drop(waker);
        outcome
    }

    /// Whether there is an outcome.
    pub fn is_set(&self) -> bool {
        self.state.lock().outcome.is_some()
    }

    /// Whether nobody wants to know.
    fn is_withdrawn(&self) -> bool {
        self.state.lock().is_withdrawn
    }

    /// Whether nobody wants to know; it is then noted to be out.
    fn take_out(&self) -> bool {
        let mut told = self.state.lock();
        told.is_out = told.is_withdrawn;
        told.is_out
    }

    /// Whether nobody is to be told any more: there is an outcome, or nobody wants to know.
    fn is_over(&self) -> bool {
        let told = self.state.lock();
        told.is_withdrawn || told.outcome.is_some()
    }

    /// Nobody wants to know any more. `false`: the outcome is here, so that nothing lies with the runtime.
    fn withdraw(&self) -> bool {
        let (is_first, waker) = {
            let mut told = self.state.lock();
            told.is_withdrawn = true;
            (told.outcome.is_none(), told.waker.take())
        };
        drop(waker);
        is_first
    }

    /// Sets the outcome, if there is none, and wakes the task.
    fn set(&self, outcome: Result<()>) {
        let waker = {
            let mut told = self.state.lock();
            told.outcome.get_or_insert(outcome);
            told.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Code that is not ours, and that a turn came upon.
#[derive(Debug)]
struct Errand {
    what: Code,
    /// Whether the thing that it ends is counted as released after it.
    counts: bool,
}

#[derive(Debug)]
enum Code {
    /// The drop of what may have an owner of the user's.
    Drop(Box<dyn Any + Send>),
    /// The drop of memory of ours.
    Forget(Box<dyn Any + Send>),
    /// The waker of a task.
    Tell(std::sync::Arc<Notice>, Result<()>),
}

/// Wakes the worker: from drops and from host functions, so without any lock (R2).
#[derive(Debug)]
pub struct Signal {
    raised: AtomicBool,
    worker: OnceLock<Thread>,
}

impl Signal {
    fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { raised: AtomicBool::new(false), worker: OnceLock::new() })
    }

    /// Makes the worker take a turn. While it is up and has not looked, this is one swap.
    pub fn raise(&self) {
        // E5.w: Release; pairs with E5.r in `take`: who clears the signal sees what it announces.
        if !self.raised.swap(true, ordering!("E5.w", Release))
            && let Some(worker) = self.worker.get()
        {
            worker.unpark();
        }
    }

    /// Sleeps until something is announced, for `longest` at most where that is given. The word is looked at before: code of
    /// the user's that this thread ran may have parked, and so have eaten the wakeup, which is a hint and no more.
    pub fn wait(&self, longest: Option<std::time::Duration>) {
        // Relaxed: `take` acquires. A raise that this look misses wakes later than the look, and then no code of others
        // runs before the park.
        if self.raised.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        match longest {
            None => thread::park(),
            Some(longest) => thread::park_timeout(longest),
        }
    }

    /// Whether there is something to look at; clears the signal before the look, so that none is lost.
    pub fn take(&self) -> bool {
        // E5.r: Acquire; pairs with E5.w in `raise`.
        self.raised.swap(false, ordering!("E5.r", Acquire))
    }

    /// Names the thread to wake.
    pub fn attend(&self, worker: Thread) {
        let _ = self.worker.set(worker);
    }
}

/// How a turn learns of completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Host functions tell; they are armed where none is.
    Arm,
    /// The streams are asked.
    Query,
    /// Both: the slow tick.
    Both,
}

/// What a turn could not release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Things whose work has not completed, or that were retired meanwhile.
    pub waiting: usize,
    /// Things that something else than the device holds up: a capture, whose end gives the signal.
    pub deferred: usize,
}

impl Remaining {
    /// All of them.
    pub fn total(self) -> usize {
        self.waiting + self.deferred
    }
}

/// The queue of the retired, and what works it off.
#[derive(Debug)]
pub struct Reclaim<D: Driver> {
    /// How often the process had been forked off when this was made.
    forks: u32,
    incoming: Mutex<Incoming<D>>,
    backlog: Mutex<Backlog<D>>,
    owners: Mutex<Owners>,
    /// Wakes the worker.
    pub signal: std::sync::Arc<Signal>,
    /// Figures.
    pub figures: Figures,
}

/// What was let go and no turn has seen.
#[derive(Debug)]
struct Incoming<D: Driver> {
    queue: VecDeque<Retired<D>>,
    /// Tasks that wait, told or not: for the end, which tells them without the backlog.
    notices: Vec<std::sync::Arc<Notice>>,
    /// How many notices may lie here before those that are told are sorted out.
    notices_kept: usize,
    /// Notices whose tasks are gone, for the next turn to take out.
    withdrawn: Vec<std::sync::Arc<Notice>>,
    /// How many of them may lie here before those that are in the queue are sorted out.
    withdrawn_kept: usize,
    /// Set once, at the end: nothing comes in any more.
    is_closed: bool,
}

impl<D: Driver> Incoming<D> {
    fn note(&mut self, notice: &std::sync::Arc<Notice>) {
        if self.notices.len() >= self.notices_kept {
            self.notices.retain(|notice| !notice.is_over());
            self.notices_kept = self.notices.len().max(Self::NOTICES_KEPT / 2) * 2;
        }
        self.notices.push(notice.clone());
    }

    /// Takes a notice out whose task is gone, where that is cheap; otherwise leaves it to a turn. Gives what is out, to be
    /// dropped without the lock.
    fn withdraw(&mut self, notice: std::sync::Arc<Notice>) -> Vec<Retired<D>> {
        let is_it = |retired: &Retired<D>| matches!(&retired.resource, Resource::Notice(last) if std::sync::Arc::ptr_eq(last, &notice));
        if self.queue.back().is_some_and(is_it) {
            return self.queue.pop_back().into_iter().collect();
        }
        self.withdrawn.push(notice);
        match self.withdrawn.len() < self.withdrawn_kept.max(self.queue.len() / 2) {
            true => Vec::new(),
            false => self.sort_out(),
        }
    }

    /// Nobody has taken a turn for long. What an earlier one has taken stays listed for the next.
    fn sort_out(&mut self) -> Vec<Retired<D>> {
        let mut gone = Vec::new();
        for retired in std::mem::take(&mut self.queue) {
            match &retired.resource {
                Resource::Notice(notice) if notice.take_out() => gone.push(retired),
                _ => self.queue.push_back(retired),
            }
        }
        self.withdrawn.retain(|notice| !notice.state.lock().is_out);
        self.withdrawn_kept = self.withdrawn.len().max(Self::NOTICES_KEPT / 2) * 2;
        gone
    }

    const NOTICES_KEPT: usize = 64;
}

/// Owners that are to be dropped by a thread of their own.
#[derive(Debug, Default)]
struct Owners {
    queue: VecDeque<Errand>,
    /// Whether there is such a thread.
    is_attended: bool,
}

/// Figures of the reclaim. std atomics outside the facade: they order and decide nothing.
#[derive(Debug, Default)]
pub struct Figures {
    /// Things ever retired.
    pub retired: std::sync::atomic::AtomicU64,
    /// Things released.
    pub released: std::sync::atomic::AtomicU64,
    /// Things leaked.
    pub leaked: std::sync::atomic::AtomicU64,
    /// Turns in progress, and things that code of others is ending just now.
    pub ending: std::sync::atomic::AtomicU64,
    /// Streams of our own that could not be destroyed at the end.
    pub streams_left: std::sync::atomic::AtomicU64,
}

impl Figures {
    /// Somebody has things in hand until this is dropped.
    fn begin(&self) -> impl Drop + '_ {
        struct Ends<'a>(&'a Figures);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                // Relaxed: a figure.
                self.0.ending.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        add(&self.ending, 1);
        Ends(self)
    }
}

fn add(figure: &std::sync::atomic::AtomicU64, amount: u64) {
    // Relaxed: a figure.
    figure.fetch_add(amount, std::sync::atomic::Ordering::Relaxed);
}

/// What only a turn touches.
#[derive(Debug)]
struct Backlog<D: Driver> {
    /// In hand: to be looked at in this turn. Here and not with the turn, so that nothing is dropped should a driver panic.
    hand: VecDeque<Retired<D>>,
    waiting: Waiting<StreamId, Retired<D>>,
    lanes: std::collections::BTreeMap<StreamId, Lane<D>>,
    deferred: Vec<Retired<D>>,
    /// Code of others that this turn came upon.
    errands: Vec<Errand>,
    /// How many of those that are deferred wait for what nobody signals: a record's lock, or a stream that the driver would not make.
    passed_over: usize,
    /// A stream of our own, for frees that no other stream must order.
    home: Option<Arc<StreamState<D>>>,
}

/// A stream that something waits for.
#[derive(Debug)]
struct Lane<D: Driver> {
    stream: Arc<StreamState<D>>,
    /// How far the host function in flight will tell; zero: none is.
    armed: u64,
}

impl<D: Driver> Default for Reclaim<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D: Driver> Reclaim<D> {
    /// An empty queue.
    pub fn new() -> Self {
        let kept = Incoming::<D>::NOTICES_KEPT;
        let incoming = Incoming {
            queue: VecDeque::new(),
            notices: Vec::new(),
            notices_kept: kept,
            withdrawn: Vec::new(),
            withdrawn_kept: kept,
            is_closed: false,
        };
        Self {
            forks: fork::count(),
            incoming: Mutex::new(incoming),
            backlog: Mutex::new(Backlog {
                hand: VecDeque::new(),
                waiting: Waiting::new(),
                lanes: std::collections::BTreeMap::new(),
                deferred: Vec::new(),
                errands: Vec::new(),
                passed_over: 0,
                home: None,
            }),
            owners: Mutex::default(),
            signal: Signal::new(),
            figures: Figures::default(),
        }
    }

    /// Whether this process was forked off since: its other threads are not here, and what they locked stays locked.
    pub fn is_forked(&self) -> bool {
        self.forks != fork::count()
    }

    /// Lets go of a thing. Makes no driver call and takes no lock that is held across one (R1, P7). After the end it is
    /// leaked, but for memory of ours that the device is known to be done with; and a task is told.
    pub fn retire(&self, retired: Retired<D>) {
        if self.is_forked() {
            // Nobody is here who would release it, and the lock may be held by a thread that is not here either.
            return leak(retired);
        }
        add(&self.figures.retired, 1);
        let mut incoming = self.incoming.lock();
        if incoming.is_closed {
            drop(incoming);
            return self.end_at_once(retired);
        }
        if let Resource::Notice(notice) = &retired.resource {
            incoming.note(notice);
        }
        incoming.queue.push_back(retired);
        drop(incoming);
        self.signal.raise();
    }

    /// Lets go of what tells a task that is gone: nothing of it stays (R12). As [`retire`](Self::retire), it makes no call
    /// and waits for nobody; a turn takes out what an earlier one filed.
    pub fn withdraw(&self, notice: std::sync::Arc<Notice>) {
        if self.is_forked() || !notice.withdraw() {
            return;
        }
        let gone = {
            let mut incoming = self.incoming.lock();
            // The end tells all that there are.
            if incoming.is_closed { Vec::new() } else { incoming.withdraw(notice) }
        };
        add(&self.figures.released, gone.len() as u64);
    }

    /// Releases what can be released; says what is left. Whoever comes while another is on turn leaves it to him, and so
    /// does a `use_on` closure, where nothing may be waited for. Code of others that it comes upon runs before it returns.
    pub fn turn(&self, context: &Context<D>, pins: &Pins<D>, ask: Ask) -> Remaining {
        let Some((deferred, errands)) = self.work(context, pins, ask) else {
            return Remaining { waiting: self.pending(), deferred: 0 };
        };
        errands.into_iter().for_each(|errand| self.run(context, errand));
        self.remaining(deferred)
    }

    /// As [`turn`](Self::turn), by the worker: `attend` starts a thread that calls [`drop_owners`](Self::drop_owners), or
    /// says that there is none to be had.
    pub fn turn_of_worker(
        &self,
        context: &Context<D>,
        pins: &Pins<D>,
        ask: Ask,
        attend: impl FnOnce() -> bool,
    ) -> Remaining {
        let Some((deferred, errands)) = self.work(context, pins, ask) else {
            return Remaining { waiting: self.pending(), deferred: 0 };
        };
        let is_owner = |errand: &Errand| matches!(errand.what, Code::Drop(_));
        let (owners, tasks): (Vec<_>, Vec<_>) = errands.into_iter().partition(is_owner);
        tasks.into_iter().for_each(|errand| self.run(context, errand));
        if !owners.is_empty() {
            let is_attended = {
                let mut waiting = self.owners.lock();
                waiting.queue.extend(owners);
                std::mem::replace(&mut waiting.is_attended, true)
            };
            if !is_attended && !attend() {
                self.drop_owners(context);
            }
        }
        self.remaining(deferred)
    }

    /// Frees device memory whose work has completed, as an explicit free does: waits for whoever is on turn, who waits for the
    /// device at most. `None`: a capture stands in the way, or the stream that it needs was refused (R7).
    ///
    /// # Errors
    /// The driver's; the memory is then leaked.
    pub fn free_now(
        &self,
        context: &Context<D>,
        pins: &Pins<D>,
        address: DeviceAddress,
        may: &MayWait,
    ) -> Option<Result<()>> {
        let mut tries = 0;
        let answer = loop {
            match self.backlog.try_lock() {
                Some(mut backlog) => {
                    let turn = Turn { context, pins, reclaim: self, may };
                    break turn.free(&mut backlog, address, &Points::new());
                }
                None if context.life.is_past(Phase::Shut) => return None,
                None => thread::pause_brief(&mut tries),
            }
        };
        self.end_late(context, pins).into_iter().for_each(|errand| self.run(context, errand));
        let answer = answer?;
        add(&self.figures.retired, 1);
        add(if answer.is_ok() { &self.figures.released } else { &self.figures.leaked }, 1);
        Some(answer)
    }

    /// Drops owners until there is none.
    pub fn drop_owners(&self, context: &Context<D>) {
        loop {
            let errand = {
                let mut owners = self.owners.lock();
                let errand = owners.queue.pop_front();
                owners.is_attended = errand.is_some();
                errand
            };
            let Some(errand) = errand else { return };
            self.run(context, errand);
            // The worker may wait for this one to end.
            self.signal.raise();
        }
    }

    /// The part of a turn under its lock, which runs no code of others: how many things are deferred to a signal, and what is
    /// to be run. `None`: another is on turn, or nothing may be waited for here.
    fn work(&self, context: &Context<D>, pins: &Pins<D>, ask: Ask) -> Option<(usize, Vec<Errand>)> {
        let may = MayWait::here().ok().filter(|_| !context.life.is_inherited())?;
        let mut backlog = self.backlog.try_lock()?;
        let _on_turn = self.figures.begin();
        let turn = Turn { context, pins, reclaim: self, may: &may };
        backlog.passed_over = 0;
        let deferred = std::mem::take(&mut backlog.deferred);
        backlog.hand.extend(deferred);
        let withdrawn = {
            let mut incoming = self.incoming.lock();
            backlog.hand.append(&mut incoming.queue);
            std::mem::take(&mut incoming.withdrawn)
        };
        self.take_out(&mut backlog, &withdrawn);
        turn.admit_all(&mut backlog);
        turn.learn(&mut backlog, ask);
        let deferred = backlog.deferred.len() - backlog.passed_over;
        let mut errands = std::mem::take(&mut backlog.errands);
        drop(backlog);
        errands.extend(self.end_late(context, pins));
        Some((deferred, errands))
    }

    /// Takes out what was filed for tasks that are gone. What is in hand is found by the turn itself.
    fn take_out(&self, backlog: &mut Backlog<D>, withdrawn: &[std::sync::Arc<Notice>]) {
        for notice in withdrawn {
            // Read first: nothing else is locked under a notice.
            let place = notice.state.lock().place;
            if let Some(_retired) = place.and_then(|place| backlog.waiting.remove(place)) {
                add(&self.figures.released, 1);
            }
        }
    }

    /// By the figures, and not by what is filed: an executable that was released has just retired what it held.
    fn remaining(&self, deferred: usize) -> Remaining {
        Remaining { waiting: self.pending().saturating_sub(deferred), deferred }
    }

    /// Runs code that is not ours. A panic of it ends here, so the next is run all the same (R4, R10).
    fn run(&self, context: &Context<D>, errand: Errand) {
        let code = || match errand.what {
            Code::Drop(owner) => drop(owner),
            Code::Forget(memory) => drop(memory),
            Code::Tell(notice, outcome) => notice.set(outcome),
        };
        let _ending = self.figures.begin();
        let caught = within(CallScope::Release, || std::panic::catch_unwind(std::panic::AssertUnwindSafe(code)));
        if let Err(payload) = caught {
            // Not dropped: that could panic too.
            std::mem::forget(payload);
            context.keep_untold(Misuse::PanickedInRelease.into());
        }
        if errand.counts {
            add(&self.figures.released, 1);
        }
    }

    /// Whether somebody is on turn now, with things in hand that are neither in the queue nor released.
    pub fn is_on_turn(&self) -> bool {
        // Relaxed: a figure. Not by the backlog itself: who takes that looks after it whether the end has come.
        self.figures.ending.load(std::sync::atomic::Ordering::Relaxed) > 0
    }

    /// Things retired and neither released nor leaked.
    pub fn pending(&self) -> usize {
        // Relaxed: figures; a turn that reads them has written those that it relies on.
        let load = |figure: &std::sync::atomic::AtomicU64| figure.load(std::sync::atomic::Ordering::Relaxed);
        let gone = load(&self.figures.released) + load(&self.figures.leaked);
        usize::try_from(load(&self.figures.retired).saturating_sub(gone)).unwrap_or(usize::MAX)
    }

    /// Counts things that were leaked without having been retired.
    pub fn count_leaked(&self, things: usize) {
        add(&self.figures.retired, things as u64);
        add(&self.figures.leaked, things as u64);
    }

    /// Things leaked so far, with what still waits.
    pub fn leaked(&self) -> usize {
        // Relaxed: a figure.
        let leaked = self.figures.leaked.load(std::sync::atomic::Ordering::Relaxed);
        self.pending().saturating_add(usize::try_from(leaked).unwrap_or(usize::MAX))
    }

    /// Leaks what is left, tells every task that waits, and destroys the stream of our own, after its work: at the end. That
    /// stream stays where somebody is on turn, or when [the end is over](Phase::Gone).
    pub fn close(&self, context: &Context<D>, pins: &Pins<D>) {
        self.close_after_turns(context, pins, || false);
    }

    /// As [`close`](Self::close), but waits for a turn of another thread while the caller `goes_on`.
    pub fn close_after_turns(&self, context: &Context<D>, pins: &Pins<D>, goes_on: impl Fn() -> bool) {
        let notices = {
            let mut incoming = self.incoming.lock();
            incoming.is_closed = true;
            std::mem::take(&mut incoming.notices)
        };
        let mut tries = 0;
        let errands = loop {
            match self.leak_rest(context, pins) {
                Some(errands) => break errands,
                None if goes_on() => thread::pause_brief(&mut tries),
                None => break Vec::new(),
            }
        };
        errands.into_iter().for_each(|errand| self.run(context, errand));
        // Those whose turn is still in progress, and those that were told before.
        for notice in notices {
            self.run(context, Errand { what: Code::Tell(notice, Err(end_of(context))), counts: false });
        }
    }

    /// What whoever had the backlog does after it: the end may have come meanwhile, and not got it.
    fn end_late(&self, context: &Context<D>, pins: &Pins<D>) -> Vec<Errand> {
        // Let go before the other look at it.
        let is_closed = self.incoming.lock().is_closed;
        if is_closed { self.leak_rest(context, pins).unwrap_or_default() } else { Vec::new() }
    }

    fn destroy_home(&self, context: &Context<D>, home: &StreamState<D>) {
        if context.lost().is_none() && (context.life.is_past(Phase::Gone) || !home.destroy_after_its_work(context)) {
            add(&self.figures.streams_left, 1);
        }
    }

    /// Leaks all that waits in the backlog, and destroys the stream of our own, unless somebody is on turn; gives the tasks to
    /// tell.
    fn leak_rest(&self, context: &Context<D>, pins: &Pins<D>) -> Option<Vec<Errand>> {
        let mut guard = self.backlog.try_lock()?;
        let backlog = &mut *guard;
        let fresh = std::mem::take(&mut self.incoming.lock().queue);
        let left = backlog.hand.drain(..).chain(backlog.deferred.drain(..)).chain(fresh).chain(backlog.waiting.drain());
        for retired in left {
            self.leak(context, pins, &mut backlog.errands, retired, None);
        }
        // Under the lock: whoever finds nothing here goes on to the end, after which no call is made (R5).
        if let Some(home) = backlog.home.take() {
            self.destroy_home(context, &home);
        }
        Some(std::mem::take(&mut backlog.errands))
    }

    /// Keeps forever what may still be in use (P11). A task is told.
    #[cold]
    fn leak(
        &self,
        context: &Context<D>,
        pins: &Pins<D>,
        errands: &mut Vec<Errand>,
        retired: Retired<D>,
        cause: Option<std::sync::Arc<DriverFailure>>,
    ) {
        let Resource::Notice(notice) = retired.resource else {
            if let Resource::Pin(pin, _) = &retired.resource {
                pins.unfile(pin);
            }
            add(&self.figures.leaked, 1);
            return leak(retired);
        };
        let outcome = match cause {
            _ if retired.points.iter().all(Point::is_complete) => Ok(()),
            Some(cause) if context.lost().is_none() => Err(Error::StreamBroken(cause)),
            _ => Err(end_of(context)),
        };
        errands.push(Errand { what: Code::Tell(notice, outcome), counts: true });
    }

    /// What becomes of a thing that is let go after the end.
    #[cold]
    fn end_at_once(&self, retired: Retired<D>) {
        let is_done = retired.points.iter().all(Point::is_complete);
        let released = match retired.resource {
            // Its task has not been asked to wait yet, so this wakes nobody.
            Resource::Notice(notice) => {
                notice.set(if is_done { Ok(()) } else { Err(Error::Closed) });
                true
            }
            Resource::Kept(memory) if is_done => {
                drop(memory);
                true
            }
            resource => {
                leak(Retired { resource, points: retired.points });
                false
            }
        };
        add(if released { &self.figures.released } else { &self.figures.leaked }, 1);
    }
}

/// Why what waits will not be told more.
fn end_of<D: Driver>(context: &Context<D>) -> Error {
    context.lost().map_or(Error::Closed, Error::Lost)
}

/// How many things the running thread is releasing: they end after the code of others that it is inside of.
pub fn in_hand() -> usize {
    count_within(CallScope::Release)
}

impl<D: Driver> Drop for Reclaim<D> {
    fn drop(&mut self) {
        // P11, R4. Nobody took the last turns: what is left may be in use, memory of copies too, so it is leaked.
        let backlog = self.backlog.get_mut();
        let left = std::mem::take(&mut self.incoming.get_mut().queue).into_iter();
        let left = left.chain(backlog.hand.drain(..)).chain(backlog.deferred.drain(..)).chain(backlog.waiting.drain());
        left.for_each(leak);
        backlog.errands.drain(..).chain(self.owners.get_mut().queue.drain(..)).for_each(leak);
    }
}

/// One turn.
struct Turn<'a, D: Driver> {
    context: &'a Context<D>,
    pins: &'a Pins<D>,
    reclaim: &'a Reclaim<D>,
    // Shared: a turn never waits for a capture (C3), since that takes it mutably.
    may: &'a MayWait,
}

impl<D: Driver> Turn<'_, D> {
    /// Goes through what is in hand.
    fn admit_all(&self, backlog: &mut Backlog<D>) {
        while let Some(retired) = backlog.hand.pop_front() {
            match self.context.life.is_past(Phase::Shut) {
                // Time was up meanwhile, and the report is made, or is about to be.
                true => self.leak(backlog, retired, None),
                false => self.admit(backlog, retired),
            }
        }
    }

    fn leak(&self, backlog: &mut Backlog<D>, retired: Retired<D>, cause: Option<std::sync::Arc<DriverFailure>>) {
        self.reclaim.leak(self.context, self.pins, &mut backlog.errands, retired, cause);
    }

    /// Releases a thing, or files it under the first of its points that is not complete.
    fn admit(&self, backlog: &mut Backlog<D>, mut retired: Retired<D>) {
        if let Resource::Notice(notice) = &retired.resource
            && notice.is_withdrawn()
        {
            return add(&self.reclaim.figures.released, 1);
        }
        if let Resource::Pin(pin, _) | Resource::Owner(pin, _) = &retired.resource
            && retired.points.is_empty()
        {
            let pin = pin.clone();
            if let Resource::Pin(_, epoch) = &mut retired.resource {
                match self.pins.due(&pin) {
                    // The decision that stands now, before the look at the work.
                    Some(now) => *epoch = now,
                    // Revived: its new wraps will retire it again.
                    None => return add(&self.reclaim.figures.released, 1),
                }
            }
            match pin.record.points_now(Access::Write) {
                Some(points) => retired.points = points,
                // Somebody looks at it or moves it. He does not signal, so the tick looks again.
                None => {
                    backlog.passed_over += 1;
                    return backlog.deferred.push(retired);
                }
            }
        }
        retired.points.retain(|point| !point.is_complete());
        if let Some(cause) = self.context.lost() {
            return self.leak(backlog, retired, Some(cause));
        }
        if let Some(cause) = retired.points.iter().find_map(|point| point.stream.broken()) {
            // What marks a stream that was given up is asked no more.
            return match retired.resource {
                Resource::Adopted(_) => self.release(backlog, retired),
                _ => self.leak(backlog, retired, Some(cause)),
            };
        }
        if retired.points.is_empty() || self.is_ordered_free(&retired) {
            return self.release(backlog, retired);
        }
        let first = retired.points.remove(0);
        let key = first.stream.id();
        backlog.lanes.entry(key).or_insert_with(|| Lane { stream: first.stream.clone(), armed: 0 });
        // The point stays the thing's own, so that a look at a broken stream finds it.
        retired.points.push(first.clone());
        let notice = if let Resource::Notice(notice) = &retired.resource { Some(notice.clone()) } else { None };
        let place = backlog.waiting.file(key, first.number, retired);
        if let Some(notice) = notice {
            notice.state.lock().place = Some(place);
        }
    }

    /// Whether the thing is device memory whose free can be left to the order of the one stream that may still use it.
    fn is_ordered_free(&self, retired: &Retired<D>) -> bool {
        self.context.capabilities.stream_ordered_memory
            && matches!(retired.resource, Resource::Memory(..))
            && retired.points.len() == 1
            && retired.points.iter().all(|point| point.stream.guest_stream().is_some())
    }

    fn release(&self, backlog: &mut Backlog<D>, retired: Retired<D>) {
        let context = self.context;
        let outcome = match retired.resource {
            Resource::Memory(address) => {
                let Some(outcome) = self.free(backlog, address, &retired.points) else {
                    return backlog.deferred.push(retired);
                };
                outcome
            }
            Resource::Pin(ref pin, epoch) => match self.pins.try_release(context, pin, epoch, self.may) {
                Ok(Ok(Released::Undone(owners) | Released::Ceded(owners))) if owners.is_empty() => Ok(()),
                Ok(Ok(Released::Undone(owners) | Released::Ceded(owners))) => return backlog.end_with(owners),
                // Revived, and perhaps let go again meanwhile: then this is the ticket of that.
                Ok(Ok(Released::Void)) => {
                    return self.admit(backlog, Retired { points: Points::new(), ..retired });
                }
                Ok(Err(error)) => Err(error),
                Err(why) => {
                    backlog.passed_over += usize::from(why == Deferral::Busy);
                    return backlog.deferred.push(retired);
                }
            },
            Resource::Owner(_pin, owner) => return backlog.run_later(Code::Drop(owner)),
            Resource::Event(event) => context.check(Call::EventDestroy, context.driver.event_destroy(event)),
            Resource::Executable(executable, uses) => {
                return self.end_executable(backlog, executable, uses, retired.points);
            }
            Resource::Graph(graph) => context.check(Call::GraphDestroy, context.driver.graph_destroy(graph)),
            Resource::Module(module) => {
                // SAFETY: C4. No kernel of the module is left to launch it (the last one retired it), and all that
                // any stream had accepted by then has completed.
                let unload = |driver: &D, module| unsafe { driver.module_unload(module) };
                match self.give_back(Call::ModuleUnload, module, unload) {
                    Ok(outcome) => outcome,
                    Err(module) => {
                        let resource = Resource::Module(module);
                        return backlog.deferred.push(Retired { resource, points: retired.points });
                    }
                }
            }
            Resource::Adopted(state) => self.end_adopted(backlog, state),
            Resource::Slab(base) => {
                let Some(outcome) = free_slab(context, base) else { return backlog.deferred.push(retired) };
                outcome
            }
            Resource::Kept(memory) => return backlog.run_later(Code::Forget(memory)),
            Resource::Holdings(holdings) => return backlog.run_later(Code::Drop(holdings)),
            Resource::Notice(notice) => return backlog.run_later(Code::Tell(notice, Ok(()))),
        };
        self.note(outcome);
    }

    /// Counts what became of a thing; an error is kept (R7).
    fn note(&self, outcome: Result<()>) {
        match outcome {
            Ok(()) => add(&self.reclaim.figures.released, 1),
            Err(error) => {
                add(&self.reclaim.figures.leaked, 1);
                self.context.keep_untold(error);
            }
        }
    }

    /// Destroys an executable; what it held goes after the turn, since it may have owners (R10).
    fn end_executable(
        &self,
        backlog: &mut Backlog<D>,
        executable: D::Executable,
        uses: Box<dyn Any + Send>,
        points: Points<D>,
    ) {
        // Kept whatever the driver does, a panic too.
        let uses = std::mem::ManuallyDrop::new(uses);
        let destroy = |driver: &D, executable| driver.executable_destroy(executable);
        let answer = self.give_back(Call::ExecutableDestroy, executable, destroy);
        let uses = std::mem::ManuallyDrop::into_inner(uses);
        match answer {
            Ok(Ok(())) => backlog.run_later(Code::Drop(uses)),
            Ok(Err(error)) => {
                // All that used them has completed: it is the executable alone that is leaked.
                backlog.errands.push(Errand { what: Code::Drop(uses), counts: false });
                self.note(Err(error));
            }
            Err(executable) => {
                backlog.deferred.push(Retired { resource: Resource::Executable(executable, uses), points });
            }
        }
    }

    /// Makes a guarded call that takes a handle by value; gives that back where a capture stands in the way.
    fn give_back<H>(
        &self,
        call: Call,
        handle: H,
        destroy: impl FnOnce(&D, H) -> std::result::Result<(), D::Error>,
    ) -> std::result::Result<Result<()>, H> {
        let mut held = Some(handle);
        let answer = self.context.guarded_now(call, |driver| match held.take() {
            Some(handle) => destroy(driver, handle),
            None => Ok(()),
        });
        match held {
            Some(handle) => Err(handle),
            None => Ok(answer.unwrap_or(Ok(()))),
        }
    }

    /// Frees device memory: in the order of the one stream that still uses it, or, when all is complete, of our own.
    /// `None`: a capture stands in the way, or there is no stream of our own to be had now, and the tick tries again.
    fn free(&self, backlog: &mut Backlog<D>, address: DeviceAddress, points: &Points<D>) -> Option<Result<()>> {
        let context = self.context;
        if !context.capabilities.stream_ordered_memory {
            // SAFETY: O6. From `malloc`, freed once (the retired value is consumed), and all its work has completed.
            return context.guarded_now(Call::Free, |driver| unsafe { driver.free(address) });
        }
        let user = points.first();
        let guest = user.and_then(|point| point.stream.visit(point.number));
        let home;
        let theirs = user.and_then(|point| point.stream.guest_stream());
        let stream = match (theirs, &guest) {
            (Some(stream), Some(_guest)) => stream,
            _ => {
                home = match self.home(backlog) {
                    Ok(home) => home,
                    Err(error) => {
                        // P7. The free itself was not refused: it was never asked for.
                        self.context.keep_untold(error);
                        backlog.passed_over += 1;
                        return None;
                    }
                };
                &home.raw
            }
        };
        // SAFETY: O6. From `malloc_async`, freed once (the retired value is consumed); what may still use it is on this
        // very stream, at or before the point, which the driver accepted before.
        context.guarded_now(Call::FreeAsync, |driver| unsafe { driver.free_async(stream, address) })
    }

    fn home(&self, backlog: &mut Backlog<D>) -> Result<Arc<StreamState<D>>> {
        if let Some(home) = &backlog.home {
            return Ok(home.clone());
        }
        let raw = self.context.check(Call::StreamCreate, self.context.driver.stream_create(Priority::Low))?;
        let home = StreamState::new(raw, Kind::Pooled(Priority::Low));
        self.context.add_witness(&home);
        backlog.home = Some(home.clone());
        Ok(home)
    }

    /// Gives back what marks an adopted stream whose lease has ended (S9).
    fn end_adopted(&self, backlog: &mut Backlog<D>, state: Arc<StreamState<D>>) -> Result<()> {
        if state.end_adoption(self.context)? {
            return Ok(());
        }
        // Somebody asks it right now, and does not signal; or a capture forbids the question. It comes round again.
        backlog.passed_over += 1;
        backlog.deferred.push(Retired { resource: Resource::Adopted(state), points: Points::new() });
        add(&self.reclaim.figures.retired, 1);
        Ok(())
    }

    /// Finds out what has completed, files on or releases what is due, and sees to it that the rest will be told.
    fn learn(&self, backlog: &mut Backlog<D>, ask: Ask) {
        if self.context.lost().is_some() {
            return self.leak_waiting(backlog);
        }
        let streams: Vec<_> = backlog.waiting.streams().collect();
        for (key, number) in streams {
            let Some(lane) = backlog.lanes.get_mut(&key) else { continue };
            let stream = lane.stream.clone();
            if !stream.timeline.is_complete(number) {
                lane.tell(self.context, &self.reclaim.signal, ask, number);
            }
            self.settle(backlog, key, &stream);
        }
        let waiting = &backlog.waiting;
        let busy: std::collections::BTreeSet<_> = waiting.streams().map(|(key, _)| key).collect();
        backlog.lanes.retain(|key, lane| busy.contains(key) || lane.is_armed());
    }

    /// Moves on what `stream` has completed; when it was given up, what waits for it is leaked.
    fn settle(&self, backlog: &mut Backlog<D>, key: StreamId, stream: &StreamState<D>) {
        let completed = stream.timeline.completed().number();
        backlog.hand.extend(backlog.waiting.due(key, completed));
        self.admit_all(backlog);
        if let Some(cause) = stream.broken() {
            let stuck: Vec<_> = backlog.waiting.due(key, u64::MAX - 1).collect();
            for retired in stuck {
                match retired.resource {
                    Resource::Adopted(_) => self.release(backlog, retired),
                    _ => self.leak(backlog, retired, Some(cause.clone())),
                }
            }
        }
    }

    #[cold]
    fn leak_waiting(&self, backlog: &mut Backlog<D>) {
        let cause = self.context.lost();
        let waiting: Vec<_> = backlog.waiting.drain().collect();
        for retired in waiting {
            self.leak(backlog, retired, cause.clone());
        }
        backlog.lanes.clear();
    }
}

impl<D: Driver> Backlog<D> {
    /// Lists code of others that ends a thing.
    fn run_later(&mut self, what: Code) {
        self.errands.push(Errand { what, counts: true });
    }

    /// Lists the drops that end a thing, of which there is one at least.
    fn end_with(&mut self, owners: Vec<Box<dyn Any + Send>>) {
        let last = owners.len() - 1;
        let errands = owners.into_iter().enumerate();
        self.errands.extend(errands.map(|(at, owner)| Errand { what: Code::Drop(owner), counts: at == last }));
    }
}

impl<D: Driver> Lane<D> {
    fn is_armed(&self) -> bool {
        self.armed > 0 && !self.stream.timeline.is_complete(self.armed)
    }

    /// Asks the stream, or leaves a host function there that will tell.
    fn tell(&mut self, context: &Context<D>, signal: &std::sync::Arc<Signal>, ask: Ask, number: u64) {
        let can_arm = context.capabilities.host_functions && self.stream.guest_stream().is_some();
        if ask != Ask::Arm || !can_arm {
            // An answer of "pending" or "not now" leaves things as they are; a failure is kept with the stream.
            match self.stream.visit(number).map(|_guest| self.stream.query(context)) {
                None | Some(Some(Ok(Progress::Complete))) => return,
                Some(Some(Ok(Progress::Pending)) | Some(Err(_)) | None) => {}
            }
        }
        if ask != Ask::Query && can_arm && !self.is_armed() {
            self.arm(context, signal, number);
        }
    }

    fn arm(&mut self, context: &Context<D>, signal: &std::sync::Arc<Signal>, number: u64) {
        let Some(_guest) = self.stream.visit(number) else { return };
        let Some(stream) = self.stream.guest_stream() else { return };
        let mark = self.stream.timeline.mark();
        // S8. Looked at after that: a shadow that was not moved past some of it tells of less.
        if self.stream.is_broken() {
            return;
        }
        let function = completion(self.stream.clone(), mark, signal.clone());
        match context.driver.launch_host_function(stream, function) {
            Ok(()) => self.armed = mark.number(),
            // Refused: the slow tick will ask. A sticky error is noted by `fail`.
            Err(error) => drop(context.fail(Call::LaunchHostFunction, &error)),
        }
    }
}

/// The host function that tells how far a stream has come. It only raises a watermark and wakes the worker (R2).
fn completion<D: Driver>(
    stream: Arc<StreamState<D>>,
    mark: Mark,
    signal: std::sync::Arc<Signal>,
) -> crate::driver::HostFunction {
    std::sync::Arc::new(move || {
        stream.timeline.reach(mark);
        signal.raise();
    })
}

/// Gives back a slab that is off the shelf. `None`: a capture stands in the way.
pub(crate) fn free_slab<D: Driver>(context: &Context<D>, base: HostPointer) -> Option<Result<()>> {
    // SAFETY: T1, C4. From `host_alloc`; who takes it off the shelf, or held it for a graph, frees it once, when all
    // copies through it have completed.
    context.guarded_now(Call::HostFree, |driver| unsafe { driver.host_free(base) })
}
