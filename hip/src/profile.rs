//! How versions of HIP differ, under the names that the simulator's profiles have.
//!
//! A profile is chosen by the version that the library reports, once, when it is loaded. Each switch names where it
//! comes from: the sources of the runtime were read, vendor pages and reports are cited as such. No AMD GPU was at
//! hand.
//!
//! | | hip-5.7 | hip-6.4 | hip-7.0 | hip-7.2 | cuda-13 |
//! |---|---|---|---|---|---|
//! | versions | before 6.0 | 6.x | 7.0, 7.1 | 7.2 on | CUDA 12.8 on, through `hip/cuda` |
//! | a relaxed thread leaves captures intact | no | no | yes | yes | yes |
//! | the same, for queries and waits on events | no | no | no | no | yes |
//! | a broken capture ends with its stream usable | no | no | no | no | yes |
//! | memory that is registered cannot be registered again | no | no | no | no | yes |
//! | look-ups may race with an unregister | no | no | no | no | yes |
//! | Host is number 1 in pointer attributes | no | yes | yes | yes | yes |

use std::fmt;

/// The behaviour of a range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Profile {
    /// HIP before 6.0.
    Hip57,
    /// HIP 6.
    Hip64,
    /// HIP 7.0 and 7.1.
    Hip70,
    /// HIP 7.2 and later.
    Hip72,
    /// The CUDA runtime, behind HIP's interface.
    Cuda13,
}

impl Profile {
    /// The profile of an AMD library that reports `version` (major times 10,000,000, minor times 100,000, patch).
    ///
    /// # Examples
    /// ```
    /// assert_eq!(tenure_hip::Profile::of_hip(70_253_211).name(), "hip-7.2");
    /// ```
    pub fn of_hip(version: i32) -> Self {
        match version {
            ..60_000_000 => Self::Hip57,
            60_000_000..70_000_000 => Self::Hip64,
            70_000_000..70_200_000 => Self::Hip70,
            _ => Self::Hip72,
        }
    }

    /// The name, as the simulator has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hip57 => "hip-5.7",
            Self::Hip64 => "hip-6.4",
            Self::Hip70 => "hip-7.0",
            Self::Hip72 => "hip-7.2",
            Self::Cuda13 => "cuda-13",
        }
    }

    /// Whether guarded calls of a relaxed thread leave the captures of others intact.
    ///
    /// Up to 6.x the lists of captures are walked without their lock (source, clr 6.3), so a guarded call beside a
    /// begin or an end is a data race inside the library, in every mode.
    pub(crate) fn relaxed_protects(self) -> bool {
        matches!(self, Self::Hip70 | Self::Hip72 | Self::Cuda13)
    }

    /// The same, for queries and waits on events.
    ///
    /// 7.0 refuses an event query beside a global capture (vendor's list of changes) whatever the thread's own mode;
    /// the repair of February 2026 (report, rocm-systems 3176) is not told apart by its version.
    pub(crate) fn relaxed_protects_events(self) -> bool {
        matches!(self, Self::Cuda13)
    }

    /// Whether an event may be asked after its stream was destroyed. AMD's events keep a raw pointer to the stream (source,
    /// hip_event.cpp).
    pub(crate) fn events_outlive_streams(self) -> bool {
        matches!(self, Self::Cuda13)
    }

    /// Whether a stream is usable again once its broken capture was ended (report, rocm-systems 6509: not on AMD
    /// before May 2026).
    pub(crate) fn end_resets_capture(self) -> bool {
        matches!(self, Self::Cuda13)
    }

    /// Whether memory that is registered already cannot be registered again. AMD accepts it up to 7.2 (source; report,
    /// rocm-systems 7498), and one unregister then ends both.
    pub(crate) fn refuses_overlap(self) -> bool {
        matches!(self, Self::Cuda13)
    }

    /// Whether a pointer may be looked up while another range is being unregistered. AMD's look-ups let go of the map's
    /// lock before they use what they found (source, clr 6.3 and 7).
    pub(crate) fn lookups_are_safe(self) -> bool {
        matches!(self, Self::Cuda13)
    }

    /// Whether "not ready" stays as the thread's last error (source, clr before 7.0).
    pub(crate) fn keeps_not_ready(self) -> bool {
        matches!(self, Self::Hip57 | Self::Hip64)
    }

    /// The number of page-locked host memory in pointer attributes.
    pub(crate) fn host_memory_kind(self) -> i32 {
        if self == Self::Hip57 { 0 } else { 1 }
    }

    /// The word for a node of a graph that has the number `kind`, in a library of `version`.
    pub(crate) fn node_word(self, version: i32, kind: i32) -> &'static str {
        // 5.2's header counts from 1 and has copies at 9 to 11; 5.4's counts from 0 and has copies at 10 and 11.
        let early = self == Self::Hip57 && version < 50_300_000;
        let kind = if early { kind - 1 } else { kind };
        match kind {
            0 => "kernel",
            1 => "copy",
            2 => "fill",
            3 => "host",
            4 => "graph",
            5 => "empty",
            6 => "event_wait",
            7 => "event_record",
            8..=10 if early => "copy",
            10 | 11 if self == Self::Hip57 && version < 50_500_000 => "copy",
            10 => "malloc",
            11 => "free",
            _ => "other",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Profile;

    #[test]
    fn versions_that_were_seen_choose_their_profile() {
        let seen = [
            (50_221_153, "hip-5.7"),
            (50_731_921, "hip-5.7"),
            (60_443_484, "hip-6.4"),
            (70_051_831, "hip-7.0"),
            (70_253_211, "hip-7.2"),
            (71_460_850, "hip-7.2"),
        ];
        for (version, name) in seen {
            assert_eq!(Profile::of_hip(version).name(), name, "version {version}");
        }
    }

    #[test]
    fn node_kinds_follow_the_header_of_their_version() {
        let word = |version, kind| Profile::of_hip(version).node_word(version, kind);
        assert_eq!((word(50_221_153, 1), word(50_221_153, 4), word(50_221_153, 9)), ("kernel", "host", "copy"));
        assert_eq!((word(50_422_804, 0), word(50_422_804, 10)), ("kernel", "copy"));
        assert_eq!((word(70_253_211, 3), word(70_253_211, 10), word(70_253_211, 99)), ("host", "malloc", "other"));
    }
}
