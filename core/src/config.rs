//! How a runtime is made.

use std::time::Duration;

/// Who releases what is let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimMode {
    /// A thread of the runtime's own.
    #[default]
    Worker,
    /// Whoever calls [`Runtime::poll`](crate::Runtime::poll); without such calls nothing is released before [`Runtime::shutdown`](crate::Runtime::shutdown).
    Manual,
}

/// How a runtime is made. `Config::default()` suits most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Who releases what is let go. Default: [`ReclaimMode::Worker`].
    pub reclaim: ReclaimMode,
    /// The most streams that the pool makes; at least 1. Default: 64.
    pub streams_max: usize,
    /// Things that may lie retired before a call that makes new ones first helps to release; a drop never does.
    /// Default: 65,536.
    pub retired_max: usize,
    /// Things that may lie retired after that. A call that makes new ones, and finds as many although it has helped, is
    /// refused with [`Error::Backlog`](crate::Error::Backlog): so what was let go while the device stands still is bounded. Default: 262,144.
    pub backlog_max: usize,
    /// Adopted streams that there may be. Those count whose handles live, those whose work has not ended, and those
    /// that were given up. One more is refused with [`Error::Backlog`](crate::Error::Backlog). Default: 4,096.
    pub adopted_max: usize,
    /// The most page-locked memory that copies from and to other host memory are staged in, in bytes; at
    /// least 64 KiB. A copy that finds no room waits for earlier ones. What such memory there is, is in
    /// [`Stats::staging`](crate::Stats::staging); it grows as it is needed. Default: 64 MiB.
    pub staging_max: usize,
    /// How long the end of the last handle lets the worker drain, where nobody called [`Runtime::shutdown`](crate::Runtime::shutdown).
    /// Default: 10 seconds.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reclaim: ReclaimMode::Worker,
            streams_max: 64,
            retired_max: 1 << 16,
            backlog_max: 1 << 18,
            adopted_max: 1 << 12,
            staging_max: 64 << 20,
            drain: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// The same with this way of reclaiming.
    #[must_use]
    pub fn reclaim(mut self, mode: ReclaimMode) -> Self {
        self.reclaim = mode;
        self
    }

    /// The same with at most `streams` pooled streams.
    #[must_use]
    pub fn streams_max(mut self, streams: usize) -> Self {
        self.streams_max = streams.max(1);
        self
    }

    /// The same with at most `things` things that lie retired, and a quarter of them before makers help to release.
    #[must_use]
    pub fn backlog_max(mut self, things: usize) -> Self {
        self.backlog_max = things;
        self.retired_max = self.retired_max.min(things / 4);
        self
    }

    /// The same with at most `streams` adopted streams.
    #[must_use]
    pub fn adopted_max(mut self, streams: usize) -> Self {
        self.adopted_max = streams;
        self
    }

    /// The same with at most `bytes` bytes of staging memory.
    #[must_use]
    pub fn staging_max(mut self, bytes: usize) -> Self {
        self.staging_max = bytes;
        self
    }
}
