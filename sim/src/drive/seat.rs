//! Host threads under the schedule: one runs at a time, and hands its turn on where the schedule may decide.
//!
//! | seats | a host thread is | a switch costs | for |
//! |---|---|---|---|
//! | [`Seats::Threads`] | a thread of the system, parked unless it has its turn | some µs | code with thread-locals of its own |
//! | [`Seats::Fibers`] | a coroutine on the caller's thread | some ten ns | many schedules |
//!
//! A run that must end early is *torn down*: each thread unwinds where it waits, by a panic that no hook reports
//! ([`Stopped`]), one after the other; driver calls made by destructors meanwhile say that the driver is gone. A thread
//! that still does not end (it waits for a lock whose holder is stuck) is left where it is, forever, with what it
//! holds.

use super::fiber;
use super::shelf::Shelf;
use super::turns::Waiting;
use super::watch::{self, Task, Verdict, Watch};
use super::world::{self, Stop, World};
use crate::checker::Line;
use crate::engine::FunctionCall;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use tenure::driver::Process;
use tenure::sync::coop;

/// What host threads of a run are made of. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seats {
    /// Threads of the system.
    Threads,
    /// Coroutines.
    Fibers,
}

/// What all clones of one simulation share.
pub(crate) struct Shared {
    pub(crate) world: Mutex<World>,
    /// Something happened that a waiting thread outside of the schedule may wait for, or a run is over.
    pub(crate) progress: Condvar,
    /// The device may have something to do: for the device's own thread.
    pub(crate) work: Condvar,
    /// One for each scheduled thread of the system, by its number.
    wakes: Mutex<Vec<Option<Arc<Condvar>>>>,
    /// Whose registrations its are: those of all its clones, and of nobody else.
    pub(crate) process: Process,
    /// What host functions hold, to be dropped without the lock.
    pub(crate) shelf: Arc<Shelf>,
}

impl Shared {
    pub(crate) fn new(world: World) -> Self {
        let (progress, work, wakes) = (Condvar::new(), Condvar::new(), Mutex::new(Vec::new()));
        let shelf = world.shelf.clone();
        Self { world: Mutex::new(world), progress, work, wakes, process: Process::new(), shelf }
    }
}

/// The payload of the panic that unwinds a thread of a run that is torn down.
pub(crate) struct Stopped;

/// The calling thread's place in a run.
pub(crate) struct Seat {
    shared: Arc<Shared>,
    seats: Seats,
    /// Who has the turn, as far as this thread of the system knows: itself, or the running fiber.
    running: Cell<u32>,
    /// That is a host function.
    is_function: Cell<bool>,
    wake: Arc<Condvar>,
}

thread_local! {
    static SEAT: RefCell<Option<Rc<Seat>>> = const { RefCell::new(None) };
    /// The simulation one of whose host functions this thread is running.
    static FUNCTION_OF: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// The calling thread's seat in a run of `shared`.
pub(crate) fn of(shared: &Arc<Shared>) -> Option<Rc<Seat>> {
    let seat = SEAT.try_with(|seat| seat.borrow().clone()).ok().flatten()?;
    Arc::ptr_eq(&seat.shared, shared).then_some(seat)
}

/// The calling thread's seat, whatever run it belongs to.
pub(crate) fn current() -> Option<Rc<Seat>> {
    SEAT.try_with(|seat| seat.borrow().clone()).ok().flatten()
}

/// Whether the calling thread is inside a host function of `shared`.
pub(crate) fn in_function(shared: &Arc<Shared>) -> bool {
    FUNCTION_OF.with(|of| std::ptr::eq(of.get(), Arc::as_ptr(shared))) || is_seated_function(shared)
}

/// Whether the calling thread is a host function of a scheduled run of `shared`.
fn is_seated_function(shared: &Arc<Shared>) -> bool {
    let is = |seat: &Rc<Seat>| seat.is_function.get() && Arc::ptr_eq(&seat.shared, shared);
    SEAT.try_with(|seat| seat.borrow().as_ref().is_some_and(is)).unwrap_or(false)
}

/// A point where others may run before a host function goes on; nothing anywhere else.
pub(crate) fn pause_function(shared: &Arc<Shared>) {
    if let Some(seat) = of(shared).filter(|seat| seat.is_function.get()) {
        drop(seat.pause());
    }
}

/// Marks the calling thread as inside a host function of `shared`, or as outside again.
pub(crate) fn enter_function(shared: &Arc<Shared>, inside: bool) {
    FUNCTION_OF.with(|of| of.set(if inside { Arc::as_ptr(shared) } else { std::ptr::null() }));
}

impl Seat {
    /// The running thread's number.
    pub(crate) fn number(&self) -> u32 {
        self.running.get()
    }

    /// A point where the schedule may let others run: returns, with the lock, once it is this thread's turn again.
    pub(crate) fn pause(&self) -> MutexGuard<'_, World> {
        let mut world = self.lock();
        if std::thread::panicking() {
            return world;
        }
        world.turns.ready(self.number());
        if self.is_function.get() {
            world.checkers.function_pauses();
        }
        self.hand_on(world)
    }

    /// Waits, with others running, until the condition holds.
    pub(crate) fn wait(&self, waiting: Waiting, call: &'static str) -> MutexGuard<'_, World> {
        if self.is_function.get() {
            blocks_in_function(&self.shared, call);
        }
        let mut world = self.lock();
        world.turns.wait(self.number(), waiting, call);
        let mut world = self.hand_on(world);
        world.turns.ready(self.number());
        world
    }

    /// Lets others run since this thread cannot go on before one has.
    fn spin(&self) {
        if in_function(&self.shared) {
            blocks_in_function(&self.shared, "a lock");
        }
        let mut world = self.lock();
        world.turns.spin(self.number());
        drop(self.hand_on(world));
    }

    /// Whether the run is being torn down.
    pub(crate) fn is_stopping(world: &World) -> bool {
        world.stop.is_some()
    }

    fn hand_on<'a>(&'a self, mut world: MutexGuard<'a, World>) -> MutexGuard<'a, World> {
        let me = self.number();
        let next = self.decide(&mut world);
        world.running = next;
        if next != Some(me) {
            world = self.switch(world, me);
        }
        if Self::is_stopping(&world) && !std::thread::panicking() {
            drop(world);
            resume_unwind(Box::new(Stopped));
        }
        world
    }

    fn decide(&self, world: &mut MutexGuard<'_, World>) -> Option<u32> {
        world::decide(world, |number, call| start_function(&self.shared, self.seats, number, call))
    }

    /// Locks the simulation, in this thread's turn: one that was outside comes back, and waits for that.
    fn lock(&self) -> MutexGuard<'_, World> {
        let mut world = self.shared.world.lock();
        let me = self.number();
        if self.seats == Seats::Threads && world.turns.is_outside(me) {
            world.turns.ready(me);
            if world.running.is_none() {
                world.running = self.decide(&mut world);
                self.wake_running(&world);
            }
            while world.running != Some(me) {
                self.wake.wait(&mut world);
            }
        }
        world
    }

    /// Gives the turn to whoever `running` names and returns when it is `me`'s again.
    fn switch<'a>(&'a self, mut world: MutexGuard<'a, World>, me: u32) -> MutexGuard<'a, World> {
        match self.seats {
            Seats::Fibers => {
                let is_function = self.is_function.get();
                drop(world);
                fiber::suspend(me);
                self.running.set(me);
                self.is_function.set(is_function);
                self.shared.world.lock()
            }
            Seats::Threads => {
                self.wake_running(&world);
                while world.running != Some(me) {
                    self.wake.wait(&mut world);
                }
                world
            }
        }
    }

    fn wake_running(&self, world: &World) {
        wake_running(&self.shared, world);
    }

    /// The thread has returned or unwound: the turn goes on without it.
    fn end(&self, outcome: Result<(), Box<dyn Any + Send>>) {
        let me = self.number();
        let mut world = self.lock();
        if let Err(payload) = outcome
            && !payload.is::<Stopped>()
        {
            world.panics.push((me, text(&*payload)));
            world.stop_for(Stop::Panic);
        }
        world.changed();
        self.leave(world);
    }

    /// Runs a host function, as a thread that nothing waits for but its stream. Others may run before it has returned.
    fn run_function(&self, call: FunctionCall) {
        self.is_function.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| begin(self, Box::new(|| (call.function)()))));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self.pause())));
        let mut world = self.lock();
        world::function_ends(&mut world, call, outcome, |_| {});
        self.is_function.set(false);
        self.leave(world);
    }

    /// The turn goes on without this thread.
    fn leave(&self, mut world: MutexGuard<'_, World>) {
        world.turns.end(self.number());
        world.running = self.decide(&mut world);
        if self.seats == Seats::Threads {
            self.wake_running(&world);
        }
    }
}

impl coop::Scheduler for Seat {
    fn yield_blocked(&self) {
        self.spin();
    }

    fn thread_id(&self) -> u64 {
        u64::from(self.number())
    }
}

/// Runs `body` as the first scheduled thread, with all that it spawns, until everybody has ended or the run was torn
/// down. Returns how many threads had to be left where they were.
pub(crate) fn run(shared: &Arc<Shared>, seats: Seats, body: Box<dyn FnOnce() + Send>) -> usize {
    match seats {
        Seats::Fibers => run_fibers(shared, body),
        Seats::Threads => run_threads(shared, body),
    }
}

fn run_fibers(shared: &Arc<Shared>, body: Box<dyn FnOnce() + Send>) -> usize {
    let seat = Rc::new(Seat {
        shared: shared.clone(),
        seats: Seats::Fibers,
        running: Cell::new(0),
        is_function: Cell::new(false),
        wake: Arc::new(Condvar::new()),
    });
    let seat_before = SEAT.with(|current| current.replace(Some(seat.clone())));
    let coop_before = coop::install(Some(seat.clone()));
    let first = spawn(&seat, "main", false, body);
    shared.world.lock().running = Some(first);
    loop {
        let next = shared.world.lock().running;
        let Some(next) = next else { break };
        seat.running.set(next);
        if fiber::resume(next) == fiber::Resumed::Ended && shared.world.lock().running == Some(next) {
            // It could not be started: nobody would ever hand the turn on for it.
            let mut world = shared.world.lock();
            world.turns.end(next);
            world.running = seat.decide(&mut world);
        }
    }
    let left = fiber::clear();
    coop::install(coop_before);
    SEAT.with(|current| current.replace(seat_before));
    left
}

fn run_threads(shared: &Arc<Shared>, body: Box<dyn FnOnce() + Send>) -> usize {
    let mut world = shared.world.lock();
    let first = world.turns.add("main", false);
    world.running = Some(first);
    drop(world);
    start_thread(shared, first, "main", guarded(body));
    let mut world = shared.world.lock();
    let mut watch = Watch::new();
    while world.running.is_some() || world.stop.is_none() && world.turns.has_outside() {
        if shared.progress.wait_for(&mut world, watch::LOOK).timed_out() {
            look(shared, &mut world, &mut watch);
        }
    }
    world.turns.alive()
}

/// Looks whether the turn stands still with a thread that waits for what the schedule does not know.
fn look(shared: &Arc<Shared>, world: &mut MutexGuard<'_, World>, watch: &mut Watch) {
    let verdict = watch.look(world.seen(), world.running.and_then(|number| world.turns.task(number)));
    match (verdict, world.running) {
        (Verdict::Asleep, Some(number)) => world.turns.leave(number),
        (Verdict::Still(time), None) => world.hang_after(time),
        (Verdict::Still(time), Some(number)) if time > watch::SPELL => world.turns.leave(number),
        _ => return,
    }
    world.running = world::decide(world, |number, call| start_function(shared, Seats::Threads, number, call));
    wake_running(shared, world);
}

/// Wakes the thread whose turn it is, or whoever waits for the run's end.
fn wake_running(shared: &Shared, world: &World) {
    match world.running {
        Some(next) => {
            let wakes = shared.wakes.lock();
            if let Some(Some(wake)) = wakes.get(next as usize) {
                wake.notify_one();
            }
        }
        None => {
            shared.progress.notify_all();
        }
    }
}

/// Adds a host thread to the run of `seat`; its number.
pub(crate) fn spawn(seat: &Seat, name: &str, daemon: bool, body: Box<dyn FnOnce() + Send>) -> u32 {
    let number = seat.shared.world.lock().turns.add(name, daemon);
    match seat.seats {
        Seats::Threads => start_thread(&seat.shared, number, name, guarded(body)),
        Seats::Fibers => start_fiber(number, guarded(body)),
    }
    number
}

/// What a thread of a run does, from its first turn to its last.
type Life = Box<dyn FnOnce(&Seat) + Send>;

fn guarded(body: Box<dyn FnOnce() + Send>) -> Life {
    Box::new(move |seat| {
        let outcome = catch_unwind(AssertUnwindSafe(|| begin(seat, body)));
        seat.end(outcome);
    })
}

/// Starts a host function that the device has come to, as the host thread `number`.
fn start_function(shared: &Arc<Shared>, seats: Seats, number: u32, call: FunctionCall) {
    let life: Life = Box::new(move |seat| seat.run_function(call));
    match seats {
        Seats::Threads => start_thread(shared, number, "a host function", life),
        Seats::Fibers => start_fiber(number, life),
    }
}

fn start_fiber(number: u32, life: Life) {
    let wrapped = Box::new(move || {
        let seat = current().expect("a fiber runs only inside a run");
        seat.running.set(number);
        seat.is_function.set(false);
        life(&seat);
    });
    if let Err(error) = fiber::create(number, wrapped) {
        panic_any(format!("no memory for the stack of a simulated thread: {error}"));
    }
}

fn start_thread(shared: &Arc<Shared>, number: u32, name: &str, life: Life) {
    let wake = Arc::new(Condvar::new());
    {
        let mut wakes = shared.wakes.lock();
        let index = number as usize;
        if wakes.len() <= index {
            wakes.resize(index + 1, None);
        }
        wakes[index] = Some(wake.clone());
    }
    let shared = shared.clone();
    let wrapped = move || {
        let seat = Rc::new(Seat {
            shared,
            seats: Seats::Threads,
            running: Cell::new(number),
            is_function: Cell::new(false),
            wake,
        });
        SEAT.with(|current| current.replace(Some(seat.clone())));
        coop::install(Some(seat.clone()));
        let task = Task::current();
        let mut world = seat.shared.world.lock();
        world.turns.set_task(number, task);
        // Where it took so long to begin that it was held to be outside, it comes back.
        drop(world);
        let mut world = seat.lock();
        while world.running != Some(number) {
            seat.wake.wait(&mut world);
        }
        drop(world);
        life(&seat);
        coop::install(None);
        SEAT.with(|current| current.replace(None));
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(wrapped) {
        panic_any(format!("no thread for a simulated host thread: {error}"));
    }
}

fn begin<'a>(seat: &Seat, body: Box<dyn FnOnce() + 'a>) {
    if Seat::is_stopping(&seat.shared.world.lock()) {
        return;
    }
    body();
}

/// The calling host function waits, which it must not: that is found, and the function ends here.
pub(crate) fn blocks_in_function(shared: &Arc<Shared>, what: &str) -> ! {
    shared.world.lock().found(Line::R2, format!("a host function waits for {what}"));
    resume_unwind(Box::new(Stopped));
}

/// What a panic said.
pub(crate) fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".into())
}
