//! A reset of the device by other code.
//!
//! All that was made before is gone at once: streams with what they held, events, memory, registrations, modules,
//! captures and graphs. The device itself works on: what is made afterwards is as good as ever. Nobody is told. Who
//! still has a handle from before learns so from the refusal of each call with it, one by one, with the code of a stale
//! handle; addresses from before name nothing. A call that waits ends with that code as well.

use super::Engine;
use crate::code::Code;
use crate::event::{CallName, Event, HostThread};

impl Engine {
    /// Resets the device.
    ///
    /// # Errors
    /// The device is lost: it stays so.
    pub fn reset_device(&mut self, thread: HostThread) -> Result<(), Code> {
        self.plain(thread, CallName::ResetDevice, |engine| {
            engine.end_context();
            Ok(())
        })
    }

    fn end_context(&mut self) {
        self.resets += 1;
        self.streams.clear();
        self.stream_handles.clear();
        self.busy.clear();
        self.blocking_streams = 0;
        self.per_thread.clear();
        self.marks.clear();
        self.timed.clear();
        self.memory.end_all();
        self.end_pins();
        self.modules.clear();
        self.functions.clear();
        self.captures.clear();
        self.graphs.clear();
        self.executables.clear();
        self.functions_running.clear();
        self.orphans = super::Live::default();
        self.add_legacy_stream();
        let thread = self.current.thread;
        self.push(Event::DeviceReset { thread });
    }
}
