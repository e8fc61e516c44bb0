//! How a driver behaves where drivers differ: a [`Profile`] is a set of named [`Quirk`]s and a few numbers.
//!
//! A quirk is one habit of a driver that has a name, so that a test can add it or leave it out, with the source that
//! says so beside it. There are two sorts. *Habits* are what CUDA 13 does, read off a GPU (`tests/facts/`), and what
//! makes a driver harder to use than the plain rules of the engine; a profile has those that hold for its driver.
//! *Departures* are where a driver differs from CUDA. What no source tells is left as CUDA has it.
//!
//! | profile | what it stands for |
//! |---|---|
//! | `cuda-13` | CUDA 13.0, driver 580, on an H200: agrees with every row of the facts |
//! | `hip-5.7` | ROCm 5.7 |
//! | `hip-6.4` | ROCm 6.4 |
//! | `hip-7.0` | ROCm 7.0: a query of any event kills captures, relaxed or not |
//! | `hip-7.2` | ROCm 7.2: as 7.0, and seen: a stream stays broken after a broken capture was ended |
//! | `lenient` | a driver that accepts everything in silence, to find code that relies on refusals |

use crate::event::{CallName, WorkKind};
use tenure::driver::Call;

macro_rules! quirks {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $source:literal;)*) => {
        /// One habit of a driver, or one departure from CUDA's rules.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Quirk { $($(#[$doc])* $variant,)* }

        impl Quirk {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name that files and commands use.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Where it is known from.
            pub fn source(self) -> &'static str {
                match self { $(Self::$variant => $source),* }
            }
        }
    };
}

quirks! {
    /// Nothing is refused and nothing invalidated because of a capture; dependencies on the outside are dropped.
    AcceptsInSilence, "accepts-in-silence", "our own: the worst a driver could do to code that relies on refusals";
    /// Stream-ordered allocation and free on a stream that does not capture are never refused.
    AsyncMemoryUnguarded, "async-memory-unguarded", "ROCm clr hip_mempool.cpp: no check; absent from the lists of unsafe calls";
    /// A callback on a capturing stream runs at once in stream order, neither recorded nor refused.
    CallbackIgnoresCapture, "callback-ignores-capture", "HIP documentation, changes in 7.0: hipStreamAddCallback before";
    /// Copies that begin in a registration and reach past its end are refused with 1, whatever lies behind it.
    BorderCopiesRefused, "border-copies-refused", "tests/facts/cuda-13.semantics.tsv; ROCm clr hip_memory.cpp, ihipMemcpy_validate: more bytes than the object has";
    /// Ending a capture on a forked stream leaves the capture as it was.
    EndOnForkKeepsCapture, "end-on-fork-keeps-capture", "ROCm clr hip_graph.cpp, hipStreamEndCapture: returns 903 before it changes anything";
    /// Copies from device to device that return when they are submitted, though they are called synchronous.
    DeviceCopiesDoNotWait, "device-copies-do-not-wait", "tests/facts/cuda-13.semantics.tsv; hip-tests hipPointerSetAttribute_Positive_SyncMemops";
    /// Ending a capture from a wrong thread leaves the capture as it was.
    EndOnWrongThreadKeepsCapture, "end-on-wrong-thread-keeps-capture", "ROCm clr hip_graph.cpp, hipStreamEndCapture: returns 908 before it changes anything";
    /// An event recorded before a capture, on a stream that captures now, counts as captured.
    EventFollowsItsStream, "event-follows-its-stream", "ROCm clr of 6.3, hip_event.cpp: asks the stream's status, not the event's";
    /// Events must not outlive the stream they were recorded on.
    EventNeedsItsStream, "event-needs-its-stream", "ROCm clr hip_event.cpp: query and synchronize use a raw pointer to the stream";
    /// A query of an event from outside a capture is never refused.
    EventQueryUnguarded, "event-query-unguarded", "ROCm clr of 6.3, hip_event.cpp: query has no check";
    /// A relaxed thread's event queries are refused as those of a global thread.
    EventQueryIgnoresMode, "event-query-ignores-mode", "ROCm/hip issue 3876 (7.0); fixed by rocm-systems 3176, February 2026";
    /// Fills of device memory return when they are submitted, though they are called synchronous.
    FillsDoNotWait, "fills-do-not-wait", "tests/facts/cuda-13.semantics.tsv; hip-tests hipMemsetSync";
    /// Memory of a plain allocation freed in stream order waits for the device, as a plain free.
    FreeAsyncOfPlainWaits, "free-async-of-plain-waits", "ROCm clr hip_mempool.cpp, hipFreeAsync: falls back to hipFree";
    /// Plain frees of stream-ordered memory do not wait.
    FreeOfPoolMemoryDoesNotWait, "free-of-pool-memory-does-not-wait", "HIP documentation, changes in 7.0: hipFree";
    /// A guarded call may not be made beside a begin or an end of a capture, whatever the thread's mode: users keep them
    /// apart in time.
    GuardedCallsRaceWithCaptures, "guarded-calls-race-with-captures", "ROCm clr of 6.3, hip_graph.cpp: the lists of captures are walked without their lock";
    /// Recording a host function is refused, and breaks the capture.
    HostFunctionRefusedInCapture, "host-function-refused-in-capture", "ROCm/TheRock issue 7877: one 7.x release; in no profile";
    /// Giving an address inside a registration to unregister ends the process.
    InteriorUnregisterAborts, "interior-unregister-aborts", "ROCm clr hip_memory.cpp: found by range, then a hard guarantee on the erase";
    /// A broken capture forbids guarded calls until somebody ends it.
    InvalidatedStillForbids, "invalidated-still-forbids", "rocm-systems issues 6097 and 6429: stays on the lists until the end";
    /// A stream stays broken after its broken capture was ended; another begin and end repair it.
    InvalidatedStaysBroken, "invalidated-stays-broken", "seen on ROCm 7.2.4; fixed by rocm-systems 6509, May 2026";
    /// A thread's last error is the result of its last call, success and "not ready" included.
    LastErrorIsLastResult, "last-error-is-last-result", "HIP documentation, changes in 7.0: hipGetLastError before";
    /// Asking the legacy stream is not checked against captures.
    LegacyUnchecked, "legacy-unchecked", "ROCm clr hip_stream.cpp: the check is skipped for the NULL stream";
    /// A query of the legacy stream answers for all blocking streams as well, and a wait for it waits for them.
    NullStreamSpeaksForAll, "null-stream-speaks-for-all", "tests/facts/cuda-13.semantics.tsv; hip-tests hipStreamQuery_SubmitWorkOnStreamAndQueryNullStream and hipStreamSynchronize_NullStreamSynchronization";
    /// Overlapping registrations are accepted; of two with one base only the first is kept.
    OverlapAccepted, "overlap-accepted", "ROCm clr hip_memory.cpp up to 7.2: the insert is dropped; 712 since rocm-systems 7498, June 2026";
    /// A copy from the device to host memory that is not page-locked returns when it has run; a copy from such memory does
    /// from [`Profile::pageable_upload_waits_from`] bytes on.
    PageableCopiesWait, "pageable-copies-wait", "measured on an H200 (CUDA 13, driver 580) behind a kernel of 35 ms: down 34 ms from 4 bytes on, up 36 ms at 16 MiB and below 0.2 ms up to 1 MiB; AMD's tests demand that a copy down is done at the return";
    /// Asking about memory that is not registered is an error.
    PlainMemoryHasNoAttributes, "plain-memory-has-no-attributes", "ROCm/hip issue 3057: 5.x";
    /// A query of a stream from a thread-local thread is refused during a global capture of another thread.
    QueryMindsGlobalCaptures, "query-minds-global-captures", "ROCm clr of 6.3, hip_stream.cpp; from 7 only for global threads";
    /// Memory that the process may only read is refused with 1, unless the device shall only read it as well.
    ReadOnlyMemoryRefused, "read-only-memory-refused", "tests/facts/cuda-13.semantics.tsv; Linux amdgpu_ttm.c: pages are asked for to write, unless the mapping is for reading";
    /// Using a handle after its end crashes the process; otherwise 709.
    StaleHandleCrashes, "stale-handle-crashes", "HIP documentation, changes in 7.0: invalid stream arguments";
    /// Using a handle after its end gives 709, not 400; for a stream in a wait for an event and in allocations and frees
    /// of its order it is 400 all the same.
    StaleHandleIsLostContext, "stale-handle-is-lost-context", "HIP documentation, changes in 7.0: before, hipErrorContextIsDestroyed; hip-tests hipStreamWaitEvent_UninitializedStream_Negative, hipMallocAsync_Negative_Parameters, hipFreeAsync_Negative_Parameters: 400";
    /// Destroying a stream waits for what it holds.
    StreamDestroyWaits, "stream-destroy-waits", "ROCm clr HostQueue::terminate: waits for the last command";
    /// Copies and fills that wait are refused and break every capture of the process.
    SynchronousCopyBreaksAll, "synchronous-copy-breaks-all", "ROCm clr hip_memory.cpp: 906, relaxed captures too";
    /// A callback registered on a stream is refused while a capture is going on.
    CallbackGuarded, "callback-guarded", "HIP documentation, changes in 7.0: hipStreamAddCallback";
    /// After the end of a capture with an unjoined fork the streams stay capturing; only their destroy helps.
    UnjoinedStaysActive, "unjoined-stays-active", "ROCm clr hip_graph.cpp: the lists are cleared, the status is not";
}

/// How one driver behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    name: &'static str,
    quirks: u64,
    /// How many operations a stream holds before a submission blocks; at least 1.
    pub queue_depth: usize,
    /// How much device memory there is, in bytes.
    pub device_bytes: u64,
    /// The numbers of the lowest and the highest stream priority.
    pub priorities: (i32, i32),
    /// From how many bytes on a copy from host memory that is not page-locked waits until it has run, under
    /// [`Quirk::PageableCopiesWait`].
    pub pageable_upload_waits_from: u64,
    /// What host calls and device work cost, in nanoseconds of the virtual clock.
    pub costs: Costs,
}

/// Costs on the virtual clock, in nanoseconds: medians of `tests/facts/cuda-13.times.tsv`, device work guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Submitting a kernel.
    pub launch_ns: u64,
    /// Recording an event, or making a stream wait for one.
    pub mark_ns: u64,
    /// Asking a stream or an event.
    pub query_ns: u64,
    /// Submitting a host function.
    pub host_function_ns: u64,
    /// Making a stream.
    pub stream_create_ns: u64,
    /// Making or giving back an event.
    pub event_ns: u64,
    /// A plain allocation or free, without its wait.
    pub malloc_ns: u64,
    /// A stream-ordered allocation or free.
    pub malloc_async_ns: u64,
    /// Registering or unregistering, for any length.
    pub register_ns: u64,
    /// Submitting a graph.
    pub graph_launch_ns: u64,
    /// Any other call.
    pub other_ns: u64,
    /// A kernel on the device, besides its bytes.
    pub kernel_ns: u64,
    /// Bytes that the device moves in a nanosecond; at least 1.
    pub bytes_per_ns: u64,
}

impl Costs {
    const H200: Self = Self {
        launch_ns: 3_289,
        mark_ns: 175,
        query_ns: 1_333,
        host_function_ns: 2_089,
        stream_create_ns: 2_469,
        event_ns: 132,
        malloc_ns: 917,
        malloc_async_ns: 488,
        register_ns: 34_474,
        graph_launch_ns: 1_251,
        other_ns: 100,
        kernel_ns: 2_000,
        bytes_per_ns: 1_000,
    };
}

/// What every driver that was measured or read does.
const HABITS: &[Quirk] = &[
    Quirk::BorderCopiesRefused,
    Quirk::DeviceCopiesDoNotWait,
    Quirk::FillsDoNotWait,
    Quirk::NullStreamSpeaksForAll,
    Quirk::ReadOnlyMemoryRefused,
    Quirk::PageableCopiesWait,
];

/// Those of them that refuse nothing.
const LENIENT: &[Quirk] = &[
    Quirk::AcceptsInSilence,
    Quirk::DeviceCopiesDoNotWait,
    Quirk::FillsDoNotWait,
    Quirk::NullStreamSpeaksForAll,
    Quirk::PageableCopiesWait,
];

const HIP: &[Quirk] = &[
    Quirk::AsyncMemoryUnguarded,
    Quirk::EndOnForkKeepsCapture,
    Quirk::EndOnWrongThreadKeepsCapture,
    Quirk::EventNeedsItsStream,
    Quirk::FreeAsyncOfPlainWaits,
    Quirk::InteriorUnregisterAborts,
    Quirk::InvalidatedStillForbids,
    Quirk::InvalidatedStaysBroken,
    Quirk::LegacyUnchecked,
    Quirk::OverlapAccepted,
    Quirk::StreamDestroyWaits,
    Quirk::SynchronousCopyBreaksAll,
    Quirk::UnjoinedStaysActive,
];

const HIP_BEFORE_7: &[Quirk] = &[
    Quirk::CallbackIgnoresCapture,
    Quirk::EventFollowsItsStream,
    Quirk::EventQueryUnguarded,
    Quirk::GuardedCallsRaceWithCaptures,
    Quirk::LastErrorIsLastResult,
    Quirk::QueryMindsGlobalCaptures,
    Quirk::StaleHandleIsLostContext,
];

const HIP_FROM_7: &[Quirk] = &[
    Quirk::CallbackGuarded,
    Quirk::EventQueryIgnoresMode,
    Quirk::FreeOfPoolMemoryDoesNotWait,
    Quirk::StaleHandleCrashes,
];

impl Profile {
    /// The names of all profiles.
    pub const NAMES: &'static [&'static str] = &["cuda-13", "hip-5.7", "hip-6.4", "hip-7.0", "hip-7.2", "lenient"];

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "cuda-13" => Some(Self::cuda_13()),
            "hip-5.7" => Some(Self::hip_5_7()),
            "hip-6.4" => Some(Self::hip_6_4()),
            "hip-7.0" => Some(Self::hip_7_0()),
            "hip-7.2" => Some(Self::hip_7_2()),
            "lenient" => Some(Self::lenient()),
            _ => None,
        }
    }

    /// CUDA 13.0 with driver 580 on an H200.
    pub fn cuda_13() -> Self {
        Self::of("cuda-13", &[HABITS])
    }

    /// ROCm 5.7.
    pub fn hip_5_7() -> Self {
        Self::of("hip-5.7", &[HABITS, HIP, HIP_BEFORE_7, &[Quirk::PlainMemoryHasNoAttributes]])
    }

    /// ROCm 6.4.
    pub fn hip_6_4() -> Self {
        Self::of("hip-6.4", &[HABITS, HIP, HIP_BEFORE_7])
    }

    /// ROCm 7.0.
    pub fn hip_7_0() -> Self {
        Self::of("hip-7.0", &[HABITS, HIP, HIP_FROM_7])
    }

    /// ROCm 7.2.
    pub fn hip_7_2() -> Self {
        Self::of("hip-7.2", &[HABITS, HIP, HIP_FROM_7])
    }

    /// A driver that accepts everything in silence.
    pub fn lenient() -> Self {
        Self::of("lenient", &[LENIENT])
    }

    fn of(name: &'static str, sets: &[&[Quirk]]) -> Self {
        let quirks = sets.iter().flat_map(|set| set.iter()).fold(0, |bits, quirk| bits | bit(*quirk));
        let priorities = if name.starts_with("hip") { (1, -1) } else { (0, -5) };
        // CUDA: the least size that was seen to wait. HIP stages or pins such memory inside the call, whatever its size.
        let pageable_upload_waits_from = if name.starts_with("hip") { 1 } else { 16 << 20 };
        Self {
            name,
            quirks,
            queue_depth: 1021,
            device_bytes: 141 << 30,
            priorities,
            pageable_upload_waits_from,
            costs: Costs::H200,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it has the quirk.
    #[inline]
    pub fn has(&self, quirk: Quirk) -> bool {
        self.quirks & bit(quirk) != 0
    }

    /// The same profile with one more quirk.
    #[must_use]
    pub fn with(mut self, quirk: Quirk) -> Self {
        self.quirks |= bit(quirk);
        self
    }

    /// The same profile without a quirk.
    #[must_use]
    pub fn without(mut self, quirk: Quirk) -> Self {
        self.quirks &= !bit(quirk);
        self
    }

    /// Its quirks.
    pub fn quirks(&self) -> impl Iterator<Item = Quirk> + '_ {
        Quirk::ALL.iter().copied().filter(|quirk| self.has(*quirk))
    }

    /// What a call costs its thread, in nanoseconds, besides any wait.
    pub fn call_cost_ns(&self, call: CallName) -> u64 {
        let costs = &self.costs;
        let CallName::Core(call) = call else { return costs.other_ns };
        match call {
            Call::Launch | Call::Copy | Call::Fill => costs.launch_ns,
            Call::EventRecord | Call::StreamWaitEvent => costs.mark_ns,
            Call::EventQuery | Call::StreamQuery => costs.query_ns,
            Call::LaunchHostFunction => costs.host_function_ns,
            Call::StreamCreate | Call::StreamDestroy => costs.stream_create_ns,
            Call::EventCreate | Call::EventDestroy => costs.event_ns,
            Call::Malloc | Call::Free | Call::HostAlloc | Call::HostFree => costs.malloc_ns,
            Call::MallocAsync | Call::FreeAsync => costs.malloc_async_ns,
            Call::HostRegister | Call::HostUnregister => costs.register_ns,
            Call::GraphLaunch => costs.graph_launch_ns,
            _ => costs.other_ns,
        }
    }

    /// How long work of this kind, which moves `bytes` bytes, runs on the device, in nanoseconds.
    pub fn work_cost_ns(&self, work: WorkKind, bytes: u64) -> u64 {
        match work {
            WorkKind::Kernel(_) => self.costs.kernel_ns + bytes / self.costs.bytes_per_ns,
            WorkKind::Copy(bytes) | WorkKind::Fill(bytes) => 500 + bytes / self.costs.bytes_per_ns,
            WorkKind::HostFunction => 1_000,
            WorkKind::Graph(_) => 0,
            _ => 50,
        }
    }
}

fn bit(quirk: Quirk) -> u64 {
    1 << (quirk as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_makes_a_profile_of_that_name() {
        for name in Profile::NAMES {
            let profile = Profile::named(name).expect("a listed name makes a profile");
            assert_eq!(profile.name(), *name);
        }
        assert_eq!(Profile::named("cuda-12"), None);
    }

    #[test]
    fn quirks_have_their_own_bits_names_and_sources() {
        let mut names: Vec<_> = Quirk::ALL.iter().map(|quirk| quirk.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Quirk::ALL.len(), "two quirks share a name");
        assert!(Quirk::ALL.len() <= 64, "the set of quirks is one word");
        assert!(Quirk::ALL.iter().all(|quirk| quirk.source().len() > 10), "a quirk without a source is a guess");
        let cuda: Vec<Quirk> = Profile::cuda_13().quirks().collect();
        assert!(cuda.iter().all(|quirk| HABITS.contains(quirk)), "CUDA departs from nothing: {cuda:?}");
    }

    #[test]
    fn with_and_without_undo_each_other() {
        let profile = Profile::cuda_13();
        assert_eq!(profile.clone().with(Quirk::OverlapAccepted).without(Quirk::OverlapAccepted), profile);
    }
}
