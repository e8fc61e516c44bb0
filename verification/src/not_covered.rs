//! What stands behind no model, said line by line.

/// What is not covered of a contract line.
pub fn of(line: &str) -> &'static str {
    GAPS.iter().find(|(name, _)| *name == line).map_or("", |(_, gap)| gap)
}

const GAPS: &[(&str, &str)] = &[
    (
        "O1",
        "more than three threads and streams: argued in `ownership.rs`, sampled by the simulator; library code that uses memory it did not name; a slot that is filled outside of its gate: the checkers show no store late enough",
    ),
    ("O2", "more than three threads: argued in `point.rs`"),
    ("O3", "host access through raw pointers that no view announces; a host that writes while another process does"),
    (
        "O4",
        "more than three threads: argued in `ownership.rs` and `biased.rs`; that Linux's `membarrier` orders as C++ proposal P1202 says of asymmetric fences, and posts handed on when their thread ends: taken on trust",
    ),
    ("O5", "more than two buffers and two threads at once: argued by the one order of locks, sampled by the simulator"),
    ("O6", "buffers whose handles are forgotten: they leak, which is sound; a free that the driver fails: by tests"),
    ("O7", "no interleaving: by construction (`id.rs`); the simulator hands out handles and addresses again"),
    (
        "O8",
        "no interleaving: by tests; the models' device refuses calls of zero size, and no model makes one on purpose",
    ),
    ("O9", "more than three reading streams at once: argued in `ownership.rs`"),
    (
        "S1",
        "more than two claims at once: argued in `pool.rs`, every state of three tasks searched; clones of a lease: by tests",
    ),
    ("S2", "adopted streams, which are never pooled; a driver that answers idle too early"),
    ("S3", "events of the user's on a stream that was destroyed since: by tests"),
    ("S4", "how long a real driver's query takes"),
    ("S5", "three or more claims beside failing creations: searched as pure transitions"),
    ("S6", "a driver whose destroy waits; two trims at once"),
    ("S7", "sticky errors: R6"),
    (
        "S8",
        "the owner's own work on an adopted stream, between ours: by tests; a mark that fails after it had its effect",
    ),
    ("S9", "an owner that destroys its stream under a call on the handle, or captures on it then: `adopt` forbids it"),
    (
        "C1",
        "real AMD drivers: profiles are from reading; other code that captures by raw calls on a lenient driver without `capture_guard`",
    ),
    ("C2", "adopted streams that capture: refused, by tests"),
    ("C3", "more than two captures at once: searched as pure transitions"),
    (
        "C4",
        "host memory that only a graph holds (C10): its end is invisible to the models' device, the simulator sees it",
    ),
    (
        "C5",
        "graphs with inner branches replayed: one launch is one operation in the models; the simulator runs the nodes",
    ),
    ("C6", "real AMD drivers: profiles are from reading"),
    ("C7", "a driver that fails at begin: by tests; one that hangs"),
    ("C8", "more than one capture beside the taker"),
    ("C9", "each refused call of its own: by tests and by types, no interleaving; waits of a body are modelled"),
    ("C10", "no interleaving: the snapshot is made before the call returns; by tests and the simulator"),
    ("P1", "registrations of other processes; drivers that overlap in silence: by the simulator"),
    ("P2", "three or more lengths over one base: searched as pure transitions"),
    ("P3", "work through raw device addresses that no handle named"),
    (
        "P4",
        "owners whose memory moves in spite of their promise; scopes: by tests, their end is the borrower's own wait",
    ),
    ("P5", "more than two wraps at once: searched as pure transitions"),
    ("P6", "calls that other code makes about the same range"),
    ("P7", "the time a drop takes: benches; a thread that exits while it drops: by tests"),
    ("P8", "no interleaving beyond one longer wrap: overlaps are searched as pure transitions, and by tests"),
    ("P9", "an unregister that fails after a loss: R6"),
    ("P10", "code that ends its registration under us"),
    ("P11", "a device that never answers a wait: nothing returns, and nothing is freed"),
    ("P15", "what a driver does with a write to what is registered to be read: by the simulator"),
    ("P12", "addresses handed out again by the system's allocator: by the simulator"),
    ("R1", "all handles: models drop buffers, pins, streams, graphs and executables; the rest by counting drivers"),
    ("R2", "a host function that the driver runs twice; priorities of the driver's thread"),
    (
        "R3",
        "locks of the driver itself; claims and launches beside a blocked enqueue, which wait as argued in `stream_state.rs`",
    ),
    ("R4", "futures on real executors: by tests; unwinding inside a driver call"),
    ("R5", "deadlines in real time: by tests; a worker stuck in a driver call: by tests"),
    ("R6", "a loss seen by one thread and not yet by another, which goes on until the driver refuses"),
    ("R7", "no interleaving: an error is returned where its call was made; those of releases by tests"),
    ("T1", "more than two threads, and large copies that go in parts: by explore and the simulator"),
    ("T2", "limits in bytes beside several threads: explore, and a case of the suite"),
    ("T3", "how long a real driver's `host_alloc` takes; who waits for room beside two streams that both stand still"),
];
