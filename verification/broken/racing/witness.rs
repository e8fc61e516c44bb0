//! The witnesses. Each runs two threads from a common start and says whether they met: whether the second one
//! touched the memory that the first one had.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use tenure::Access;
use tenure::call_scope::MayWait;
use tenure::context::Context;
use tenure::driver::{Call, Driver as _, Priority, Progress};
use tenure::ownership::{Record, Use, submit};
use tenure::pool::Pool;
use tenure::reclaim::Reclaim;
use tenure::stream_state::{Kind, StreamState};
use tenure::sync::{ArcCell, Biased};

use crate::null::Null;

/// One program.
pub struct Witness {
    /// The edge, or what else keeps the order.
    pub name: &'static str,
    /// The orderings and steps whose loss it must show.
    pub defects: &'static [&'static str],
    /// The round of this number; `true` if both threads came to the memory.
    pub body: fn(u32) -> bool,
}

/// All of them.
pub const WITNESSES: &[Witness] = &[
    Witness { name: "e1_acceptance", defects: &["E1.w", "E1.r"], body: acceptance },
    Witness { name: "e2_completion", defects: &["E2.w", "E2.r"], body: completion },
    Witness { name: "e3_guest_then_claim", defects: &["E3.leave", "E3.look"], body: guest_then_question },
    Witness { name: "e3_claim_then_guest", defects: &["E3.claim", "E3.enter"], body: claim_then_guest },
    Witness { name: "e4_view_then_launch", defects: &["E4.w", "E4.r"], body: view_then_launch },
    Witness { name: "e4_view_then_view", defects: &["E4.w", "E4.r"], body: view_then_view },
    Witness { name: "e5_signal", defects: &["E5.w", "E5.r"], body: signal },
    Witness { name: "e6_biased_then_revoker", defects: &["E6.leave", "E6.look"], body: biased_then_revoker },
    Witness { name: "e6_biased_elsewhere", defects: &["E6.enter", "E6.look"], body: biased_elsewhere },
    Witness { name: "gate_of_one_stream", defects: &[], body: gate },
    Witness { name: "arc_cell", defects: &[], body: arc_cell },
];

/// Plain memory, and how often it was written.
#[derive(Debug)]
struct Plain(UnsafeCell<u64>);

// SAFETY: E1 to E6. The order of the accesses is what is being checked: without it this is the race that the checkers report.
unsafe impl Sync for Plain {}

impl Plain {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }

    /// Writes; returns how often it had been written before.
    fn touch(&self) -> u64 {
        let cell = self.0.get();
        // SAFETY: E1 to E6. No other thread is there, or the race is found.
        let before = unsafe { cell.read() };
        // SAFETY: E1 to E6. As above.
        unsafe { cell.write(before + 1) };
        before
    }
}

/// Runs both from a common start; `second` says how often the memory had been written when it came, if it did.
fn race(first: impl FnOnce() + Send, second: impl FnOnce() -> Option<u64> + Send) -> bool {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            first();
        });
        start.wait();
        second().is_some_and(|before| before > 0)
    })
}

/// E1: who reads a number may rely on what its submission did.
fn acceptance(_: u32) -> bool {
    let (context, _pool, stream) = leased(Null::default());
    let plain = Plain::new();
    let submits = || {
        plain.touch();
        submitted(&context, &stream);
    };
    race(submits, || (0..TRIES).find_map(|_| (stream.timeline.horizon().number() == 1).then(|| plain.touch())))
}

/// E2: who hears of a completion second-hand sees the bytes.
fn completion(_: u32) -> bool {
    let (context, _pool, stream) = leased(Null::default());
    let plain = Plain::new();
    let number = submitted(&context, &stream);
    let timeline = &stream.timeline;
    let is_told = || {
        plain.touch();
        timeline.reach(timeline.mark());
    };
    race(is_told, || (0..TRIES).find_map(|_| timeline.is_complete(number).then(|| plain.touch())))
}

/// A context, its pool of one, and that returned stream with a submission of which nobody knows that it is complete.
fn returned(null: Null) -> (Context<Null>, Pool<Null>, Arc<StreamState<Null>>, u64) {
    let (context, pool, stream) = leased(null);
    let number = submitted(&context, &stream);
    pool.give(stream.clone());
    (context, pool, stream, number)
}

/// A context, its pool of one, and that stream.
fn leased(null: Null) -> (Context<Null>, Pool<Null>, Arc<StreamState<Null>>) {
    let (context, pool) = (Context::new(null), Pool::new(1));
    let stream = pool.claim(&context, Priority::Normal).expect("a stream");
    (context, pool, stream)
}

/// Numbers a submission of nothing.
fn submitted(context: &Context<Null>, stream: &StreamState<Null>) -> u64 {
    let accepted = stream.accept(context, &stream.gate(), Call::Launch, |_, _| Ok(()));
    accepted.expect("the driver takes it").1.get()
}

/// Claims the only stream there is, as soon as it is idle and unvisited.
fn claims(context: &Context<Null>, pool: &Pool<Null>) -> bool {
    (0..TRIES).any(|_| pool.claim(context, Priority::Normal).is_ok())
}

/// E3: the question of a claim is put to a driver that has what the last guest enqueued.
fn guest_then_question(_: u32) -> bool {
    let (inside, plain) = (Arc::new(AtomicBool::new(false)), Plain::new());
    let met = Arc::new(AtomicBool::new(false));
    let asked = {
        let (inside, plain, met) = (inside.clone(), plain.clone(), met.clone());
        move || {
            // Acquire: only a question after the entry counts, and it is put only when the guest has left.
            if inside.load(Ordering::Acquire) {
                met.store(plain.touch() > 0, Ordering::Relaxed);
            }
        }
    };
    let (context, pool, stream, number) = returned(Null::asking(asked));
    let visits = || {
        if let Some(_guest) = stream.visit(number) {
            inside.store(true, Ordering::Release);
            plain.touch();
        }
    };
    let claims = || {
        while !inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        claims(&context, &pool);
        None
    };
    race(visits, claims);
    met.load(Ordering::Relaxed)
}

/// E3: a guest that comes after a claim finds its work finished, and touches nothing.
fn claim_then_guest(round: u32) -> bool {
    let (context, pool, stream, number) = returned(Null::default());
    let plain = Plain::new();
    let holds = || {
        if claims(&context, &pool) {
            plain.touch();
        }
    };
    // Once only, and late: a visit during the claim makes it fail, and whoever asked has raised the watermark by then.
    let visits = || {
        (0..LATE * (round % 16)).for_each(|_| std::thread::yield_now());
        match stream.visit(number) {
            Some(_guest) => {
                plain.touch();
                None
            }
            None => Some(1),
        }
    };
    race(holds, visits)
}

/// A launch that writes the buffer of `record`, and touches `plain` where the driver would enqueue.
fn launches(
    context: &Context<Null>,
    stream: &Arc<StreamState<Null>>,
    record: &Record<Null>,
    plain: &Plain,
) -> Option<u64> {
    let uses = [Use::new(record, Access::Write)];
    submit(context, stream, &uses, Call::Launch, |_, _| Ok(plain.touch())).ok().map(|(before, _)| before)
}

/// E4: a launch that is not refused comes after what the host did in its view.
fn view_then_launch(_: u32) -> bool {
    let (context, record, plain) = (Context::new(Null::default()), Record::new(), Plain::new());
    let stream = made(&context);
    record.begin_view(&context, Access::Write, &mut MayWait::here().expect("no hold")).expect("nothing else uses it");
    let looks = || {
        plain.touch();
        record.end_view(Access::Write);
    };
    race(looks, || (0..TRIES).find_map(|_| launches(&context, &stream, &record, &plain)))
}

/// E4: so does the next view.
fn view_then_view(_: u32) -> bool {
    let (context, record, plain) = (Context::new(Null::default()), Record::<Null>::new(), Plain::new());
    record.begin_view(&context, Access::Write, &mut MayWait::here().expect("no hold")).expect("nothing else uses it");
    let looks = || {
        plain.touch();
        record.end_view(Access::Write);
    };
    let looks_later = || {
        record.begin_view(&context, Access::Write, &mut MayWait::here().expect("no hold")).ok().map(|()| plain.touch())
    };
    race(looks, || (0..TRIES).find_map(|_| looks_later()))
}

/// E5: who clears a signal sees what it announces.
fn signal(_: u32) -> bool {
    let (reclaim, plain) = (Reclaim::<Null>::new(), Plain::new());
    let raises = || {
        plain.touch();
        reclaim.signal.raise();
    };
    race(raises, || (0..TRIES).find_map(|_| reclaim.signal.take().then(|| plain.touch())))
}

/// Takes the gate and touches; how often the memory had been touched before.
fn turn(gate: &Biased<()>, plain: &Plain) -> u64 {
    let _guard = gate.lock();
    plain.touch()
}

/// E6: who revokes a bias and finds nobody inside comes after what the bias owner did there.
fn biased_then_revoker(_: u32) -> bool {
    let (gate, plain) = (Biased::new(()), Plain::new());
    let owner = || {
        for _ in 0..3 {
            turn(&gate, &plain);
        }
    };
    race(owner, || Some(turn(&gate, &plain)))
}

/// E6: also where the owner is found inside of another gate.
fn biased_elsewhere(_: u32) -> bool {
    let (gate, elsewhere, plain) = (Biased::new(()), Biased::new(()), Plain::new());
    let owner = || {
        // The owner of both.
        drop(gate.lock());
        drop(elsewhere.lock());
        turn(&gate, &plain);
        let _inside = elsewhere.lock();
        std::thread::yield_now();
    };
    race(owner, || {
        (0..TRIES).for_each(|_| std::thread::yield_now());
        Some(turn(&gate, &plain))
    })
}

/// The gate: one thread at a time makes driver calls for launches on a stream.
fn gate(_: u32) -> bool {
    let (context, plain) = (Context::new(Null::default()), Plain::new());
    let stream = made(&context);
    let (one, other) = (Record::new(), Record::new());
    let launch_of = |record: &Record<Null>| (0..3).map(|_| launches(&context, &stream, record, &plain)).max().flatten();
    let first = || {
        launch_of(&one);
    };
    race(first, || launch_of(&other))
}

/// The arc cell: who loads a value sees what was done before it was stored.
fn arc_cell(_: u32) -> bool {
    let (cell, plain) = (ArcCell::new(Arc::new(false)), Plain::new());
    let stores = || {
        plain.touch();
        cell.store(Arc::new(true));
    };
    race(stores, || (0..TRIES).find_map(|_| (**cell.load()).then(|| plain.touch())))
}

/// A stream outside any pool.
fn made(context: &Context<Null>) -> Arc<StreamState<Null>> {
    let raw = context.driver.stream_create(Priority::Normal).expect("a stream");
    assert_eq!(context.driver.stream_query(&raw), Ok(Progress::Complete), "nothing runs on it");
    StreamState::new(raw, Kind::Pooled(Priority::Normal))
}

/// How often one looks for what the other does.
const TRIES: usize = 50;

/// By how many turns of the other one comes late, times 0 to 15.
const LATE: u32 = 16;
