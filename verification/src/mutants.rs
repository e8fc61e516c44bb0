//! The planted defects: each with the model that must kill it, and the words of the right reason.

use crate::Checker;
use crate::jobs::Job;

/// One planted defect.
#[derive(Debug)]
pub struct Mutant {
    /// Its name in the core's source, or in a litmus model.
    pub name: &'static str,
    /// What is done wrong.
    pub what: &'static str,
    /// The contract lines that it breaks.
    pub lines: &'static [&'static str],
    /// Who kills it.
    pub model: &'static str,
    /// Under which checker.
    pub checker: Checker,
    /// A part of the message; a failure with other words does not count.
    pub message: &'static str,
}

/// A defect that has no code anywhere: it must survive.
pub struct Control {
    /// Its name.
    pub name: &'static str,
    /// The model that must not kill it.
    pub model: &'static str,
}

/// The control.
pub const CONTROL: Control = Control { name: "control_without_code", model: "o1_two_writers_are_ordered" };

impl Mutant {
    /// The run that must fail.
    pub fn job(&self) -> Job {
        Job { checker: self.checker, model: self.model.to_owned(), mutant: Some(self.name), bound: None }
    }

    /// Whether it lies in a model, not in the core.
    pub fn is_of_a_model(&self) -> bool {
        self.name.starts_with("litmus.")
    }
}

/// All that a model must kill.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "E1.w",
        what: "the acceptance of a submission is not published",
        lines: &["O2"],
        model: "o2_clean_beside_launch_on_one_stream",
        checker: Checker::Loom,
        message: "O2: a buffer was called clean while work submitted before",
    },
    Mutant {
        name: "E1.r",
        what: "a horizon is read without what it counts",
        lines: &["O2"],
        model: "o2_clean_beside_launch_on_one_stream",
        checker: Checker::Loom,
        message: "O2: a buffer was called clean while work submitted before",
    },
    Mutant {
        name: "E2.w",
        what: "a proof of completion is not published",
        lines: &["O3"],
        model: "o3_query_completes_for_the_host",
        checker: Checker::Loom,
        message: "E2: the bytes of a completed write are not visible",
    },
    Mutant {
        name: "E2.r",
        what: "completion is read without what it proves",
        lines: &["O3"],
        model: "o3_query_completes_for_the_host",
        checker: Checker::Loom,
        message: "E2: the bytes of a completed write are not visible",
    },
    Mutant {
        name: "E3.enter",
        what: "a guest does not see what a claim published",
        lines: &["S3"],
        model: "s3_stale_buffer_beside_claim",
        checker: Checker::Loom,
        message: "S3: event_record was put on a stream that has a new holder",
    },
    Mutant {
        name: "E3.leave",
        what: "a guest's call is not published when he leaves",
        lines: &["S2"],
        model: "s3_stale_buffer_beside_claim",
        checker: Checker::Loom,
        message: "S2: a stream was handed out with work on it",
    },
    Mutant {
        name: "E3.look",
        what: "a claim does not see what the last guest did",
        lines: &["S2"],
        model: "s3_stale_buffer_beside_claim",
        checker: Checker::Loom,
        message: "S2: a stream was handed out with work on it",
    },
    Mutant {
        name: "E3.claim",
        what: "a claim does not publish the watermark",
        lines: &["S3"],
        model: "s3_stale_buffer_beside_claim",
        checker: Checker::Loom,
        message: "S3: event_record was put on a stream that has a new holder",
    },
    Mutant {
        name: "E4.w",
        what: "the end of a host view is not published",
        lines: &["O3"],
        model: "o3_host_view_excludes_device_writes",
        checker: Checker::Loom,
        message: "O3: a device write is not ordered after the host's last look",
    },
    Mutant {
        name: "E4.r",
        what: "a taker does not see what the host did in its view",
        lines: &["O3"],
        model: "o3_host_view_excludes_device_writes",
        checker: Checker::Loom,
        message: "O3: a device write is not ordered after the host's last look",
    },
    Mutant {
        name: "E5.w",
        what: "what a signal announces is not published",
        lines: &["R2"],
        model: "r2_no_signal_is_lost",
        checker: Checker::Loom,
        message: "deadlock",
    },
    Mutant {
        name: "E5.r",
        what: "the worker clears a signal without what it announces",
        lines: &["R2"],
        model: "r2_no_signal_is_lost",
        checker: Checker::Loom,
        message: "deadlock",
    },
    Mutant {
        name: "o1_close_ungated",
        what: "a cover is closed outside its stream's gate",
        lines: &["O1"],
        model: "o4_no_window_between_take_and_enqueue",
        checker: Checker::Loom,
        message: "O1: two conflicting submissions are not ordered",
    },
    Mutant {
        name: "o1_slot_ungated",
        what: "a reader's slot is closed outside its stream's gate",
        lines: &["O1"],
        model: "o1_slot_beside_writer",
        checker: Checker::Loom,
        message: "O1: two conflicting submissions are not ordered",
    },
    Mutant {
        name: "o1_follow_late",
        what: "the reach of an edge is read after the record",
        lines: &["O1"],
        model: "o1_follow_map_skips_only_known_edges",
        checker: Checker::Loom,
        message: "O1: two conflicting submissions are not ordered",
    },
    Mutant {
        name: "o1_no_edge",
        what: "no edge is inserted",
        lines: &["O1"],
        model: "o1_two_writers_are_ordered",
        checker: Checker::Loom,
        message: "O1: two conflicting submissions are not ordered",
    },
    Mutant {
        name: "o1_no_stamp",
        what: "a launch leaves no number",
        lines: &["O1"],
        model: "o1_two_writers_are_ordered",
        checker: Checker::Loom,
        message: "O1: two conflicting submissions are not ordered",
    },
    Mutant {
        name: "o2_horizon_late",
        what: "a wait reads the horizon after it returned",
        lines: &["O2", "O3"],
        model: "o2_clean_beside_launch_on_one_stream",
        checker: Checker::Loom,
        message: "O3: the host wrote while work on the memory may still run",
    },
    Mutant {
        name: "o2_number_early",
        what: "a number is taken before the driver accepted",
        lines: &["O2"],
        model: "o2_clean_beside_launch_on_one_stream",
        checker: Checker::Loom,
        message: "O2: a buffer was called clean while work submitted before",
    },
    Mutant {
        name: "o2_query_horizon_late",
        what: "a query reads the horizon after it answered",
        lines: &["O2", "P3"],
        model: "p2_larger_wrap_waits_for_pending_release",
        checker: Checker::Loom,
        message: "P3: a range was unregistered while work",
    },
    Mutant {
        name: "o3_ignore_views",
        what: "a device write is taken though the host holds a view",
        lines: &["O3"],
        model: "o3_host_view_excludes_device_writes",
        checker: Checker::Loom,
        message: "O3: a device write is not ordered after the host's last look",
    },
    Mutant {
        name: "o3_wait_nothing",
        what: "a host access does not wait",
        lines: &["O3"],
        model: "o3_host_read_sees_the_bytes",
        checker: Checker::Loom,
        message: "O3: the host read before a write submitted earlier",
    },
    Mutant {
        name: "o4_no_gate",
        what: "the gate is let go between the check and the enqueue",
        lines: &["O4"],
        model: "o4_no_window_between_take_and_enqueue",
        checker: Checker::Loom,
        message: "O1: two conflicting submissions are not ordered",
    },
    Mutant {
        name: "o5_no_sort",
        what: "buffers are locked in the order of the arguments",
        lines: &["O5"],
        model: "o5_crossed_buffers_do_not_deadlock",
        checker: Checker::Loom,
        message: "deadlock",
    },
    Mutant {
        name: "o5_no_touch",
        what: "a move stores no number of its waits",
        lines: &["O5"],
        model: "o5_failed_launch_leaves_the_truth",
        checker: Checker::Loom,
        message: "O1: two conflicting submissions are not ordered",
    },
    Mutant {
        name: "o9_forget_slot",
        what: "a reader's last use is forgotten when its slot is closed",
        lines: &["O9"],
        model: "o1_two_readers_share",
        checker: Checker::Loom,
        message: "O1: two conflicting submissions are not ordered",
    },
    Mutant {
        name: "s2_claim_no_query",
        what: "a claim does not ask",
        lines: &["S2"],
        model: "s3_stale_buffer_beside_claim",
        checker: Checker::Loom,
        message: "S2: a stream was handed out with work on it",
    },
    Mutant {
        name: "s2_claim_no_raise",
        what: "a claim does not raise the watermark",
        lines: &["S3"],
        model: "s3_stale_buffer_beside_claim",
        checker: Checker::Loom,
        message: "S3: event_record was put on a stream that has a new holder",
    },
    Mutant {
        name: "s3_claim_unconfirmed",
        what: "a claim does not look again for guests",
        lines: &["S2", "S3"],
        model: "s3_stale_buffer_beside_claim",
        checker: Checker::Loom,
        message: "S2: a stream was handed out with work on it",
    },
    Mutant {
        name: "s3_no_guest",
        what: "a call on another's stream is made without entering",
        lines: &["S2", "S6"],
        model: "s6_trim_beside_guest",
        checker: Checker::Loom,
        message: "S6: a stream was destroyed with work on it",
    },
    Mutant {
        name: "s3_no_recheck",
        what: "a guest does not look again at the watermark",
        lines: &["S3"],
        model: "s3_stale_buffer_beside_claim",
        checker: Checker::Loom,
        message: "S3: event_record was put on a stream that has a new holder",
    },
    Mutant {
        name: "s3_visits_aba",
        what: "entries are not counted, only guests",
        lines: &["S2", "S6"],
        model: "s6_trim_beside_guest",
        checker: Checker::Loom,
        message: "S6: a stream was destroyed with work on it",
    },
    Mutant {
        name: "p12_epoch_by_range",
        what: "a release is known by the range, not by the registration",
        lines: &["P12", "P3"],
        model: "p2_larger_wrap_waits_for_pending_release",
        checker: Checker::Loom,
        message: "P3: a range was unregistered while work",
    },
    Mutant {
        name: "p1_release_ignores_revival",
        what: "a release goes on though the range was wrapped again",
        lines: &["P1", "P3"],
        model: "p2_larger_wrap_waits_for_pending_release",
        checker: Checker::Loom,
        message: "P3: a range was unregistered while work",
    },
    Mutant {
        name: "p2_reuse_short",
        what: "a longer wrap uses a shorter registration",
        lines: &["P2"],
        model: "p2_larger_wrap_waits_for_pending_release",
        checker: Checker::Loom,
        message: "P2: the shorter registration was used",
    },
    Mutant {
        name: "p3_release_at_once",
        what: "a release does not wait for the work",
        lines: &["P3", "O6"],
        model: "p3_release_waits_for_both_wraps",
        checker: Checker::Loom,
        message: "P3: a range was unregistered while work",
    },
    Mutant {
        name: "p5_share_uncounted",
        what: "a wrap that shares takes no count",
        lines: &["P5"],
        model: "p1_two_threads_wrap_and_free_one_range",
        checker: Checker::Loom,
        message: "P5: each wrap gives back one count",
    },
    Mutant {
        name: "p9_failed_register_stays",
        what: "a failed register stays in the table: who wraps next waits for ever",
        lines: &["P9"],
        model: "p9_failed_register_leaves_nothing",
        checker: Checker::Loom,
        message: "exceeded maximum number of branches",
    },
    Mutant {
        name: "p6_register_unlocked",
        what: "a register is made outside the pin driver lock",
        lines: &["P6"],
        model: "p6_driver_calls_are_serialized",
        checker: Checker::Loom,
        message: "P6: register and unregister calls are not ordered",
    },
    Mutant {
        name: "p6_release_unlocked",
        what: "an unregister is made outside the pin driver lock",
        lines: &["P6"],
        model: "p6_driver_calls_are_serialized",
        checker: Checker::Loom,
        message: "P6: register and unregister calls are not ordered",
    },
    Mutant {
        name: "o9_forget_own_reads",
        what: "an owner's reads are forgotten when its cover is closed",
        lines: &["O9"],
        model: "o9_owner_reads_are_waited_for",
        checker: Checker::Loom,
        message: "O1: two conflicting submissions are not ordered",
    },
    Mutant {
        name: "c6_begin_beside_calls",
        what: "a capture begins beside guarded calls in flight",
        lines: &["C6", "C1"],
        model: "c6_releases_stay_out_of_captures",
        checker: Checker::Loom,
        message: "C1: free broke a capture",
    },
    Mutant {
        name: "c6_end_early",
        what: "a capture is uncounted before the driver ended it",
        lines: &["C6", "C1"],
        model: "c6_releases_stay_out_of_captures",
        checker: Checker::Loom,
        message: "C1: free broke a capture",
    },
    Mutant {
        name: "c1_enter_in_capture",
        what: "guarded calls are made though somebody captures",
        lines: &["C1", "C6"],
        model: "c6_releases_stay_out_of_captures",
        checker: Checker::Loom,
        message: "C1: free broke a capture",
    },
    Mutant {
        name: "p11_tick_only_arms",
        what: "the slow tick asks nobody",
        lines: &["P11"],
        model: "p11_tick_finds_what_no_function_tells",
        checker: Checker::Loom,
        message: "P11: what no host function tells is never released",
    },
    Mutant {
        name: "r2_raise_without_wake",
        what: "a signal does not wake the worker",
        lines: &["R2"],
        model: "r2_no_signal_is_lost",
        checker: Checker::Loom,
        message: "deadlock",
    },
    Mutant {
        name: "s1_candidate_stays",
        what: "a candidate stays in the queue while it is asked",
        lines: &["S1"],
        model: "s1_two_claims_never_share",
        checker: Checker::Loom,
        message: "S1: two live leases hold one stream",
    },
    Mutant {
        name: "s7_claim_broken",
        what: "a claim takes a stream that was given up",
        lines: &["S7"],
        model: "s7_stream_that_a_guest_broke_is_not_claimed",
        checker: Checker::Loom,
        message: "S7: a stream was handed out that had been given up",
    },
    Mutant {
        name: "litmus.w",
        what: "a flag is stored relaxed",
        lines: &[],
        model: "litmus_publication_is_seen",
        checker: Checker::Loom,
        message: "a published write is not visible",
    },
    Mutant {
        name: "litmus.r",
        what: "a flag is loaded relaxed",
        lines: &[],
        model: "litmus_publication_is_seen",
        checker: Checker::Loom,
        message: "a published write is not visible",
    },
    Mutant {
        name: "litmus.fresh_load",
        what: "a relaxed flag is taken to promise a fresh load",
        lines: &[],
        model: "litmus_cell_publishes",
        checker: Checker::Loom,
        message: "a published write is not visible",
    },
];

/// Those that no model here kills, with the argument. Defects that a scenario of `tests/corpus` catches are not listed: the gate
/// finds them there.
pub const EQUIVALENT: &[(&str, &str)] = &[(
    "c3_nobody_drains",
    "not equivalent, and not covered: it is the end of a capture that wakes the worker's own loop, which model builds do not have; whoever polls drains all the same.",
)];
