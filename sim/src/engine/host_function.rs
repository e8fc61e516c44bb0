//! Host functions: taken off a stream by the engine, called by the drive, outside of `&mut Engine`.
//!
//! [`Engine::step`] hands out a [`FunctionCall`]; the drive calls it, on whatever thread it has for them, and says so
//! with [`Engine::function_returned`]. As measured, a driver has one thread for all of them: while one runs no other
//! starts, and a blocked one stalls all. Driver calls made meanwhile as [`HostThread::FUNCTIONS`] are refused with 800
//! (R2).

use tenure::driver::{Call, HostFunction};

use super::stream::{Head, Work};
use super::{Answer, Engine};
use crate::code::Code;
use crate::event::{CallName, Event, HostThread, OpId, StreamHandle, Violation};
use crate::profile::Quirk;

/// A host function to call now.
#[derive(Clone)]
#[must_use]
pub struct FunctionCall {
    /// Its operation: for [`Engine::function_returned`].
    pub op: OpId,
    /// What to call, once.
    pub function: HostFunction,
}

impl std::fmt::Debug for FunctionCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionCall").field("op", &self.op).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) op: OpId,
    pub(super) stream: u32,
    pub(super) node: Option<u32>,
}

impl Engine {
    /// Puts a host function on the stream, or as a node into its capture.
    ///
    /// # Errors
    /// A stale handle; what a submission may return.
    pub fn launch_host_function(
        &mut self,
        thread: HostThread,
        stream: StreamHandle,
        function: HostFunction,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::LaunchHostFunction, |engine| {
            let stream = engine.resolve(stream)?;
            if engine.profile.has(Quirk::HostFunctionRefusedInCapture) {
                engine.refuse_if_capturing(stream)?;
            }
            engine.submit(stream, Work::HostFunction(function))
        })
    }

    /// Registers a callback, the older form of a host function: it cannot be captured.
    ///
    /// # Errors
    /// As [`launch_host_function`](Self::launch_host_function); 900 on a capturing stream, whose capture breaks.
    pub fn add_callback(
        &mut self,
        thread: HostThread,
        stream: StreamHandle,
        function: HostFunction,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, CallName::AddCallback, |engine| {
            let stream = engine.resolve(stream)?;
            if engine.profile.has(Quirk::CallbackGuarded) {
                engine.guard()?;
            }
            if engine.profile.has(Quirk::CallbackIgnoresCapture) {
                engine.enqueue(stream, Work::HostFunction(function));
                return Ok(Answer::Done(()));
            }
            engine.refuse_if_capturing(stream)?;
            engine.submit(stream, Work::HostFunction(function))
        })
    }

    pub(super) fn begin_function(
        &mut self,
        op: OpId,
        stream: u32,
        node: Option<u32>,
        function: HostFunction,
    ) -> FunctionCall {
        self.functions_running.push(Running { op, stream, node });
        self.last_function = op;
        let id = self.streams[stream as usize].id;
        self.push(Event::FunctionStarted { op, stream: id });
        FunctionCall { op, function }
    }

    /// Says that a host function that [`step`](Self::step) handed out has returned. One that it did not is ignored.
    pub fn function_returned(&mut self, op: OpId) {
        let Some(at) = self.functions_running.iter().position(|running| running.op == op) else { return };
        let Running { op, stream, node } = self.functions_running.swap_remove(at);
        let id = self.streams[stream as usize].id;
        self.push(Event::FunctionReturned { op, stream: id });
        if self.lost.is_some() {
            return;
        }
        match node {
            Some(node) => self.complete_node(stream, node),
            None => {
                self.streams[stream as usize].head = Head::Running;
                self.complete_head(stream);
            }
        }
    }

    /// Which host function runs now, if one does.
    pub fn function_running(&self) -> Option<OpId> {
        self.functions_running.first().map(|running| running.op)
    }

    /// Whether a stream holds a host function that has not been called: somebody waits to be told.
    pub fn has_function_to_call(&self) -> bool {
        let waits = |queued: &super::stream::Queued| matches!(queued.work, Work::HostFunction(_));
        self.lost.is_none()
            && self.busy.iter().any(|stream| {
                let held = &self.streams[*stream as usize];
                let is_stuck = matches!(held.head, Head::Hung | Head::InFunction);
                !is_stuck && held.queue.iter().any(waits)
            })
    }

    /// One thread runs them all.
    pub(super) fn may_begin_function(&self) -> bool {
        self.functions_running.is_empty()
    }

    #[cold]
    pub(super) fn refuse_in_function(&mut self) -> Code {
        let op = self.functions_running.first().map_or(self.last_function, |running| running.op);
        let call = self.current.call;
        self.violate(Violation::CallInHostFunction { op, call });
        Code::NOT_PERMITTED
    }
}
