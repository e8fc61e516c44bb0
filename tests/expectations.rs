//! Which raw cases a profile fails, as data. A failure that is not listed fails the suite; so does a listed one that
//! passes.

/// One departure of a profile from what a case says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The profile.
    pub profile: &'static str,
    /// The case.
    pub case: &'static str,
    /// Which quirk of the driver it is.
    pub why: &'static str,
}

const fn fails(profile: &'static str, case: &'static str, why: &'static str) -> Departure {
    Departure { profile, case, why }
}

/// All of them.
pub const DEPARTURES: &[Departure] = &[
    fails("hip-5.7", "capture::a_broken_capture_leaves_the_stream_usable", "invalidated-stays-broken"),
    fails("hip-6.4", "capture::a_broken_capture_leaves_the_stream_usable", "invalidated-stays-broken"),
    fails("hip-7.0", "capture::a_broken_capture_leaves_the_stream_usable", "invalidated-stays-broken"),
    fails("hip-7.2", "capture::a_broken_capture_leaves_the_stream_usable", "invalidated-stays-broken"),
    fails("hip-7.0", "capture::a_relaxed_thread_asks_events", "event-query-ignores-mode"),
    fails("hip-7.2", "capture::a_relaxed_thread_asks_events", "event-query-ignores-mode"),
    fails("lenient", "capture::a_broken_capture_leaves_the_stream_usable", "accepts-in-silence"),
    fails("lenient", "capture::allocating_is_refused_unless_relaxed", "accepts-in-silence"),
    fails("lenient", "capture::an_outside_event_is_refused", "accepts-in-silence"),
    fails("lenient", "capture::asking_a_captured_event_breaks_the_capture", "accepts-in-silence"),
    fails("lenient", "capture::asking_another_stream_on_another_thread", "accepts-in-silence"),
    fails("lenient", "capture::asking_another_stream_on_the_same_thread", "accepts-in-silence"),
    fails("lenient", "capture::asking_the_captured_stream_breaks_the_capture", "accepts-in-silence"),
    fails("lenient", "capture::registering_is_refused_unless_relaxed", "accepts-in-silence"),
    fails("lenient", "capture::two_captures_do_not_merge", "accepts-in-silence"),
    fails("hip-5.7", "registration::registering_twice_is_refused", "overlap-accepted"),
    fails("hip-5.7", "registration::registering_an_overlap_is_refused", "overlap-accepted"),
    fails("hip-6.4", "registration::registering_twice_is_refused", "overlap-accepted"),
    fails("hip-6.4", "registration::registering_an_overlap_is_refused", "overlap-accepted"),
    fails("hip-7.0", "registration::registering_twice_is_refused", "overlap-accepted"),
    fails("hip-7.0", "registration::registering_an_overlap_is_refused", "overlap-accepted"),
    fails("hip-7.2", "registration::registering_twice_is_refused", "overlap-accepted"),
    fails("hip-7.2", "registration::registering_an_overlap_is_refused", "overlap-accepted"),
];

/// The reason for which `profile` fails `case`, if it does.
pub fn departure(profile: &str, case: &str) -> Option<&'static str> {
    DEPARTURES.iter().find(|known| known.profile == profile && known.case == case).map(|known| known.why)
}
