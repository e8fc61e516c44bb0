//! The concurrency core of a GPU runtime: who may touch a buffer, when a stream may be reused, what must wait for a
//! graph capture, and when pinned host memory may be let go.
//!
//! | module | what it answers |
//! |---|---|
//! | [`runtime`] | what a program makes first: [`Runtime`] |
//! | [`stream`], [`queue`] | what takes work: [`Stream`], and the trait [`Queue`] that a capture shares |
//! | [`buffer`], [`pinned`] | device memory, and host memory that the device reaches |
//! | [`kernel`] | kernels with typed arguments |
//! | [`event`], [`future`] | marks in a stream, and waiting without blocking |
//! | [`capture`] | captures, graphs, executables |
//! | [`driver`] | what a backend owes: [`Driver`] |
//! | [`error`] | what can go wrong |
//! | [`contract`] | what holds on every interleaving, line by line |
//!
//! Below them, hidden from the documentation but public for models: `point`, `ownership`, `stream_state`, `registration`,
//! `reclaim`, `staging`, the state machines; `context`, what surrounds a driver call; `sync`, the only source of atomics and
//! locks. They are no interface: nothing checks what is put together from them, and nothing of a runtime's leads to its
//! own. `docs/seams.md` lists what safe code can reach, and each `unsafe` seam. DESIGN.md tells how they fit, and names the
//! [contract]'s lines (O1, S3, C5, P2, R1 ...) that the code cites.

mod accept;
mod address;
mod adopted;
mod ask;
mod base;
pub mod buffer;
#[doc(hidden)]
pub mod call_scope;
pub mod capture;
#[doc(hidden)]
pub mod capture_gate;
mod config;
#[doc(hidden)]
pub mod context;
pub mod contract;
pub mod driver;
pub mod error;
pub mod event;
pub mod future;
pub mod id;
pub mod kernel;
#[doc(hidden)]
pub mod life;
mod memory;
#[doc(hidden)]
pub mod ownership;
pub mod pinned;
#[doc(hidden)]
pub mod point;
#[doc(hidden)]
pub mod pool;
mod process;
pub mod queue;
#[doc(hidden)]
pub mod reclaim;
#[doc(hidden)]
pub mod registration;
pub mod runtime;
mod sealed;
mod sessions;
mod shared;
#[doc(hidden)]
pub mod staging;
pub mod stream;
#[doc(hidden)]
pub mod stream_state;
#[doc(hidden)]
pub mod sync;
mod worker;

pub use buffer::{Buffer, Freed, Readable, View, ViewMut, Writable};
pub use capture::{Capture, Executable, Graph};
pub use driver::{Driver, LaunchConfig, Priority};
pub use error::{Error, ErrorKind, Misuse, PinError, Result};
pub use event::Event;
pub use future::{Completion, Download};
pub use kernel::{Kernel, Module, Read, Write};
pub use ownership::Access;
pub use pinned::{HostMemory, HostRead, HostWrite, Pinned, SharedPinned};
pub use queue::Queue;
pub use runtime::{Config, Element, ReclaimMode, Runtime, ShutdownReport, Stats};
pub use stream::Stream;
pub use stream_state::adoption::EndedAdoption;
