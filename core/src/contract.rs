//! The contract, as data: what holds on every interleaving of host threads and device progress.
//!
//! Code, models, checkers and tests cite a line by its code, such as `O1` or `C5`. DESIGN.md has the same lines, and argues for them.

/// A line of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// What it is cited by.
    pub code: &'static str,
    /// What holds.
    pub sentence: &'static str,
    /// The module of this crate that keeps it, or that says how it is kept.
    pub item: &'static str,
}

/// The line of this code.
pub fn line(code: &str) -> Option<&'static Line> {
    LINES.iter().find(|line| line.code == code)
}

macro_rules! contract {
    ($($code:ident $item:literal $sentence:literal)*) => {
        $(
            #[doc = $sentence]
            pub const $code: Line = Line { code: stringify!($code), sentence: $sentence, item: $item };
        )*

        /// All lines, in the order of DESIGN.md.
        pub const LINES: &[Line] = &[$($code),*];
    };
}

contract! {
    // Ownership: which work on a buffer comes after which.
    O1 "ownership"
        "Two conflicting submissions on one buffer, at least one a write, are joined by a chain of edges. Two reads \
         need no edge and get none."
    O2 "ownership"
        "A buffer is called clean only when all work whose submission happened before the question has completed. \
         \"Busy\" may be pessimistic."
    O3 "ownership"
        "A host read returns only after every write that happened before it has completed; a host write waits for \
         reads as well."
    O4 "sync::biased"
        "Between the check that a stream covers a buffer and the submission that relies on it, nobody else can take \
         the cover away."
    O5 "ownership"
        "Taking several buffers cannot deadlock, collapses duplicates, and a failure leaves the others as they were \
         or pessimistic."
    O6 "memory"
        "A free comes after all submissions, and exactly once, whoever drops first."
    O7 "id"
        "The identity of a stream or a buffer is never its raw handle or address."
    O8 "memory"
        "A buffer of zero size never touches the driver."
    O9 "ownership"
        "Last uses are kept per stream, never as one event: two readers on two streams are both waited for."

    // Stream pool.
    S1 "pool"
        "At most one live lease holds a pooled stream."
    S2 "pool"
        "A stream is handed out only when every point ever made on it has completed."
    S3 "stream_state"
        "Nothing is enqueued on a stream on behalf of a lease that has ended; a buffer last used under such a lease \
         is released at once."
    S4 "pool"
        "Claiming never waits for the device and never disturbs a capture."
    S5 "pool"
        "Streams made never exceed the most leases that lived at once plus those still busy or visited. A failed \
         creation changes nothing."
    S6 "pool"
        "Trimming never destroys a leased, busy or visited stream; who names a destroyed one finds a tombstone: \
         finished."
    S7 "stream_state"
        "A stream that failed, or that a failed capture used, is never used again."
    S8 "adopted"
        "A number on an adopted stream is taken only when what marks the stream's end was moved past that work, a \
         wait as well as a launch, or the stream given up before. What is given up is not asked."
    S9 "adopted"
        "The last clone of the handle is the last that touches an adopted stream. What marks it is given back once \
         all its work is complete and nobody asks, whoever still names the stream."

    // Capture.
    C1 "capture_gate"
        "Nothing that the core does on any thread invalidates a capture, its own or one of other code in any mode."
    C2 "capture"
        "No release is recorded into a graph."
    C3 "reclaim"
        "Every release that a capture put off runs exactly once after it, however it ended."
    C4 "capture"
        "While a graph or an executable lives, what it uses lives, code included; frees come after the last replay. \
         Code is unloaded after all that runs it, on whatever stream, and runs on no stream of another runtime."
    C5 "capture"
        "After a graph launch, ownership is as if one kernel had used all that the graph uses."
    C6 "capture_gate"
        "Deciding to put off is atomic with the begin and end of a capture: the count covers the driver's whole \
         window."
    C7 "capture"
        "A failed capture leaves its streams destroyed, not half broken; the error comes once, with its cause; \
         never a partial graph."
    C8 "capture"
        "Who takes a buffer outside a capture waits only for real work."
    C9 "capture"
        "What a capture cannot hold is refused with a typed error before the driver sees it; the capture goes on."
    C10 "capture"
        "Host data copied in a capture is snapshotted and held by the graph."

    // Pins: registered host memory.
    P1 "process::table"
        "Whenever the table is unlocked: the driver has a range registered if and only if its count is above zero, \
         or its status says otherwise."
    P2 "process::table"
        "The registered length covers every live wrap. A larger wrap over a live one is an error; over one that is \
         pending release it waits."
    P3 "registration"
        "Unregister comes after all submissions through any wrap of the range."
    P4 "registration"
        "The memory lives at least as long as it is registered; so what keeps it goes to nobody while the driver \
         may have it."
    P5 "registration"
        "Each wrap gives back exactly one count, on every path."
    P6 "registration"
        "No driver call about a range runs beside its unregister."
    P7 "pinned"
        "Dropping never blocks and never loses a release. An explicit free waits, or says `Deferred` where it would \
         wait for a capture."
    P8 "process::table"
        "Overlap without containment is a typed error. A sub-range of a live registration shares it."
    P9 "registration"
        "A failed register leaves no count; a failed unregister keeps range and owner, and reports."
    P10 "registration"
        "Memory that somebody else registered is used if one registration of theirs holds all of it, and never \
         unregistered by us."
    P11 "reclaim"
        "If the device never gets there, the memory stays registered and alive: leaked and counted."
    P12 "registration"
        "A registration's key carries an identity, not only an address."
    P13 "process"
        "Registrations are the process's. A runtime's is a claim: the first on a range registers it, and the last \
         that is given up, whoever has it, unregisters it."
    P14 "process"
        "A claim is given up after the work of its own runtime, and so the driver's unregister comes after the work \
         of all. What a stranger registered is asked for again before it is revived."
    P15 "process::table"
        "What is registered to be read is never given to work that writes."

    // Release.
    R1 "reclaim"
        "Dropping any handle, anywhere, makes no call that syncs, queries or destroys, and takes no lock that is \
         held across a driver call."
    R2 "reclaim"
        "A host function only signals: no driver call, no lock of the core."
    R3 "call_scope"
        "No lock is held across a driver call that may block on the device, but for two that are argued where they \
         stand: the pin driver lock around register and unregister, and a stream's gate, with the locks of the \
         buffers being moved, around an enqueue."
    R4 "reclaim"
        "Safety rests on what submitted work holds, not on guards: forgetting, cancelling and panicking are sound."
    R5 "life"
        "Shutdown drains what can finish within a deadline, leaks and reports the rest, and makes no call once the \
         driver is gone."
    R6 "context"
        "A lost device is a state: waits return an error in bounded time, drops make no driver call."
    R7 "context"
        "An error names the call that failed and surfaces on the operation that owns it."
    R8 "future"
        "The end wakes everybody who waits for the runtime: a task whose future is pending, whoever polls it and \
         whenever it is polled first, and a call that waits for a capture. A future gives its true result where \
         that is known, otherwise `Closed`."
    R9 "life"
        "From the beginning of a shutdown, what takes work or makes a thing is refused with `Closed`. What asks, \
         waits or lets go still works."
    R10 "reclaim"
        "Code of others that a release runs (an owner's drop, a waker) runs with no lock held and its panic caught. \
         It may block, park, and call the runtime; only what comes after it on its own thread waits for it."
    R11 "context::reset"
        "A reset of the device by other code is a loss, from the first refusal that it explains: no call is made \
         with an old handle or address after that, nothing is released, and new calls are refused. One handle that \
         is refused alone is that call's own matter."
    R12 "shared"
        "What is let go while the device stands still is bounded: what makes a thing first helps to release, and is \
         refused with `Backlog` where too much still waits. What lets go, works on what is there, asks or waits is \
         never refused for that. A dropped future leaves nothing."

    // Staging: copies between the device and pageable host memory.
    T1 "staging"
        "A byte of staging memory has one copy at a time: until that has completed and, coming down, was copied \
         out."
    T2 "staging"
        "Staging memory is page-locked and bounded in bytes; what is not in use goes back at a trim and at the end."
    T3 "staging"
        "While it has room, `write`, `upload` and `download` return without waiting for the device. Without, they \
         wait for earlier copies, with no lock and no staging memory in hand, or are refused where nothing may be \
         waited for."
}
