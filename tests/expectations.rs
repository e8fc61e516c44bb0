//! Which raw cases a profile fails, as data. A failure that is not listed fails the suite; so does a listed one that passes.

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

/// All of them.
pub const DEPARTURES: &[Departure] = &[];

/// The reason for which `profile` fails `case`, if it does.
pub fn departure(profile: &str, case: &str) -> Option<&'static str> {
    DEPARTURES.iter().find(|known| known.profile == profile && known.case == case).map(|known| known.why)
}
