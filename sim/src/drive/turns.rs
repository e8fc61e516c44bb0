//! Whose turn it is: the states of the host threads of a run, without the means of switching.
//!
//! While a host thread runs, nothing else does. It hands its turn on at every driver call (before the call takes
//! effect), where it waits, and where a lock of the code under test is taken.
//!
//! | state | can move | becomes that by |
//! |---|---|---|
//! | ready | yes | starting; a driver call |
//! | waiting | once its condition holds | a call that blocks; a join; a signal |
//! | spinning | once another has moved since | a contended lock, or a condition variable, of the code under test |
//! | outside | never, until it comes back by itself | a wait for what the schedule does not know (see `watch`) |
//! | ended | never | returning or unwinding |
//!
//! A spinning thread cannot say what it waits for. It is let try again after every move of another; when only spinning
//! threads are left, each is tried in turn, since one may have given a lock back before it came to spin itself. After
//! [`SPINS_MAX`] such rounds in which nobody made a driver call they are held to be stuck for good.

use super::lock::{Lock, Notice};
use super::schedule::Actor;
use super::watch::Task;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use tenure::driver::Call;

/// What a host thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The device: the engine says when.
    Device(u64),
    /// The end of another host thread.
    Thread(u32),
    /// A signal of the test.
    Signal(u64),
    /// Something that other threads can bring about.
    Condition(Condition),
    /// A lock of the program, alone or with other readers.
    Lock { lock: Arc<Lock>, alone: bool },
    /// A condition variable of the program.
    Notice(Notice),
}

/// A condition on the program. It is asked at every choice, with the simulation locked: it must not call the driver,
/// and take no lock that is held across such a call.
#[derive(Clone)]
pub(crate) struct Condition(pub(crate) Arc<dyn Fn() -> bool + Send + Sync>);

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Condition {}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condition")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Waiting(Waiting, &'static str),
    Spinning { since: u64 },
    Outside,
    Ended,
}

#[derive(Debug)]
struct Thread {
    name: String,
    /// Nobody waits for its end: the run is over without it.
    daemon: bool,
    /// It runs one host function after the other.
    function: bool,
    state: State,
    /// The driver call that it made last.
    last_call: Option<Call>,
    /// What the system knows it by.
    task: Task,
}

/// The host threads of a run.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    threads: Vec<Thread>,
    /// Counts moves by which another thread's lock could have become free.
    moves: u64,
    spins: u32,
    next_spinner: usize,
}

impl Turns {
    /// A new thread, ready; its number is its place.
    pub(crate) fn add(&mut self, name: &str, daemon: bool) -> u32 {
        self.push(name, daemon, false, State::Ready)
    }

    /// The thread that runs a host function now, ready; its number is its place. Not that of `running`, which may be on
    /// its way out of the function before.
    pub(crate) fn add_function(&mut self, running: Option<u32>) -> u32 {
        let is_free = |(number, thread): &(u32, &Thread)| {
            thread.function && thread.state == State::Ended && Some(*number) != running
        };
        match (0..).zip(&self.threads).find(is_free) {
            Some((number, _)) => {
                self.set(number, State::Ready);
                number
            }
            None => self.push("a host function", false, true, State::Ready),
        }
    }

    fn push(&mut self, name: &str, daemon: bool, function: bool, state: State) -> u32 {
        self.threads.push(Thread {
            name: name.to_owned(),
            daemon,
            function,
            state,
            last_call: None,
            task: Task::default(),
        });
        (self.threads.len() - 1) as u32
    }

    /// A thread that calls the driver and is not scheduled here; its number is its place.
    pub(crate) fn add_outside(&mut self, name: &str) -> u32 {
        self.push(name, true, false, State::Ended)
    }

    /// Calls a thread by another name from now on.
    pub(crate) fn rename(&mut self, number: u32, name: &str) {
        if let Some(thread) = self.threads.get_mut(number as usize) {
            name.clone_into(&mut thread.name);
        }
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        self.threads.get(number as usize).map_or("?", |thread| &thread.name)
    }

    pub(crate) fn ready(&mut self, number: u32) {
        self.moved();
        self.set(number, State::Ready);
    }

    pub(crate) fn wait(&mut self, number: u32, waiting: Waiting, call: &'static str) {
        self.moved();
        self.set(number, State::Waiting(waiting, call));
    }

    /// The thread waits for a lock. Its first time since it last did something else counts as a move: it may have given
    /// locks back on its way here.
    pub(crate) fn spin(&mut self, number: u32) {
        if !matches!(self.threads[number as usize].state, State::Spinning { .. }) {
            self.moves += 1;
        }
        let since = self.moves;
        self.set(number, State::Spinning { since });
    }

    pub(crate) fn end(&mut self, number: u32) {
        self.moved();
        self.set(number, State::Ended);
    }

    /// The device, or a thread, did something that others can see.
    pub(crate) fn moved(&mut self) {
        self.moves += 1;
        self.spins = 0;
    }

    /// The thread makes a driver call.
    pub(crate) fn calls(&mut self, number: u32, call: Call) {
        if let Some(thread) = self.threads.get_mut(number as usize) {
            thread.last_call = Some(call);
        }
    }

    /// What the system knows the thread by.
    pub(crate) fn set_task(&mut self, number: u32, task: Task) {
        if let Some(thread) = self.threads.get_mut(number as usize) {
            thread.task = task;
        }
    }

    pub(crate) fn task(&self, number: u32) -> Option<&Task> {
        self.threads.get(number as usize).map(|thread| &thread.task)
    }

    /// The thread waits for what the schedule does not know: others go on without it.
    pub(crate) fn leave(&mut self, number: u32) {
        self.moved();
        self.set(number, State::Outside);
    }

    pub(crate) fn is_outside(&self, number: u32) -> bool {
        self.threads.get(number as usize).is_some_and(|thread| thread.state == State::Outside)
    }

    /// Whether a thread is outside, and may yet come back.
    pub(crate) fn has_outside(&self) -> bool {
        self.threads.iter().any(|thread| thread.state == State::Outside)
    }

    /// Whether one that is outside does not sleep.
    pub(crate) fn computes_outside(&self) -> bool {
        self.threads.iter().any(|thread| thread.state == State::Outside && !thread.task.is_asleep())
    }

    /// How many moves there were.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    pub(crate) fn has_ended(&self, number: u32) -> bool {
        self.threads.get(number as usize).is_none_or(|thread| thread.state == State::Ended)
    }

    /// Whether every thread that somebody waits for has ended.
    pub(crate) fn are_over(&self) -> bool {
        self.threads.iter().all(|thread| thread.daemon || thread.state == State::Ended)
    }

    /// How many threads have not ended.
    pub(crate) fn alive(&self) -> usize {
        self.threads.iter().filter(|thread| thread.state != State::Ended).count()
    }

    /// Adds the threads that can move. `holds` says whether a condition on the device or a signal holds.
    pub(crate) fn movable(&self, actors: &mut Vec<Actor>, holds: impl Fn(&Waiting) -> bool) {
        for (number, thread) in self.threads.iter().enumerate() {
            let can_move = match &thread.state {
                State::Ready => true,
                State::Waiting(Waiting::Thread(other), _) => self.has_ended(*other),
                State::Waiting(waiting, _) => holds(waiting),
                State::Spinning { since } => *since < self.moves,
                State::Outside | State::Ended => false,
            };
            if can_move {
                actors.push(Actor::Host(number as u32));
            }
        }
    }

    /// The spinning thread to try when nobody else can move, or nothing when all were tried often enough.
    pub(crate) fn try_spinner(&mut self) -> Option<u32> {
        if self.spins >= SPINS_MAX {
            return None;
        }
        let count = self.threads.len();
        for offset in 0..count {
            let index = (self.next_spinner + offset) % count;
            if matches!(self.threads[index].state, State::Spinning { .. }) {
                self.next_spinner = index + 1;
                self.spins += 1;
                return Some(index as u32);
            }
        }
        None
    }

    /// Any thread that has not ended, for a run that is being torn down: one after the other, round and round, until
    /// they are held to be stuck.
    pub(crate) fn next_alive(&mut self) -> Option<u32> {
        if self.spins >= SPINS_MAX {
            return None;
        }
        let count = self.threads.len();
        let alive = |index: &usize| !matches!(self.threads[*index].state, State::Ended | State::Outside);
        let found = (0..count).map(|offset| (self.next_spinner + offset) % count).find(alive)?;
        self.next_spinner = found + 1;
        self.spins += 1;
        Some(found as u32)
    }

    /// How many threads that count wait for anything.
    pub(crate) fn waiters(&self) -> usize {
        let waits = |thread: &&Thread| !thread.daemon && !matches!(thread.state, State::Ended | State::Ready);
        self.threads.iter().filter(waits).count()
    }

    /// How many threads that count wait for locks.
    pub(crate) fn lock_waiters(&self) -> usize {
        let spinning = |thread: &&Thread| !thread.daemon && matches!(thread.state, State::Spinning { .. });
        self.threads.iter().filter(spinning).count()
    }

    /// Who waits for what, a clause a thread.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for thread in self.threads.iter().filter(|thread| thread.state != State::Ended) {
            let separator = if text.is_empty() { "" } else { "; " };
            let clause = match thread.state {
                // Its loop looks for work where others wait for a lock.
                State::Spinning { .. } if thread.daemon => "has nothing to do, or waits for a lock".into(),
                State::Outside => outside(thread.last_call),
                _ => self.clause(&thread.state),
            };
            let _ = write!(text, "{separator}{} {clause}", thread.name);
        }
        text
    }

    fn clause(&self, state: &State) -> String {
        match state {
            State::Ready => "can run".into(),
            State::Waiting(Waiting::Device(_), call) => format!("waits for the device in {call}"),
            State::Waiting(Waiting::Thread(other), _) => format!("waits for the end of {}", self.name(*other)),
            State::Waiting(Waiting::Signal(_), name) => format!("waits for the signal {name}"),
            State::Waiting(Waiting::Condition(_), what) => format!("waits for {what}"),
            State::Waiting(Waiting::Lock { lock, .. }, _) => self.lock_clause(lock),
            State::Waiting(Waiting::Notice(notice), _) => format!("waits for the condition variable {}", notice.name),
            State::Spinning { .. } => "waits for a lock".into(),
            State::Outside => outside(None),
            State::Ended => "has ended".into(),
        }
    }

    fn lock_clause(&self, lock: &Lock) -> String {
        let holders = lock.holders();
        let names = holders.iter().map(|holder| holder.map_or("a thread of no schedule", |number| self.name(number)));
        let names: Vec<_> = names.collect();
        let verb = if names.len() > 1 { "hold" } else { "holds" };
        format!("waits for the lock {}, which {} {verb}", lock.name(), names.join(" and "))
    }

    /// Whether the program's own locks are all that keeps anybody from going on.
    pub(crate) fn waits_for_own_locks(&self) -> bool {
        let is_own = |waiting: &Waiting| matches!(waiting, Waiting::Lock { .. } | Waiting::Notice(_));
        let mut waiting =
            self.threads.iter().filter(|thread| !thread.daemon).filter_map(|thread| match &thread.state {
                State::Waiting(Waiting::Thread(_), _) | State::Ended => None,
                State::Waiting(waiting, _) => Some(is_own(waiting)),
                _ => Some(false),
            });
        let first = waiting.next();
        first == Some(true) && waiting.all(|own| own)
    }

    fn set(&mut self, number: u32, state: State) {
        if let Some(thread) = self.threads.get_mut(number as usize) {
            thread.state = state;
        }
    }
}

/// What is said of a thread that is outside.
fn outside(last_call: Option<Call>) -> String {
    let since = last_call.map_or_else(String::new, |call| format!(", since its {call}"));
    format!("waits for what no schedule knows (a lock or channel of std, a parked thread, a join){since}")
}

/// How many tries of spinning threads in a row, with no driver call and no step of the device between, mean that they
/// are stuck. Code that takes that many contended locks one after the other without a driver call would be misjudged.
pub(crate) const SPINS_MAX: u32 = 1_000;
