//! Asking a stream whether its work has completed, and waiting for it.

use crate::call_scope::MayWait;
use crate::context::Context;
use crate::driver::{Call, Driver, Progress};
use crate::error::{Error, Result};
use crate::stream_state::adoption::End;
use crate::stream_state::{Point, Role, StreamState};

impl<D: Driver> Point<D> {
    /// Waits until it has completed.
    pub fn wait(&self, context: &Context<D>, may: &mut MayWait) -> Result<()> {
        self.stream.wait(context, self.number, may)
    }
}

impl<D: Driver> StreamState<D> {
    /// Waits until submission `number` has completed, and learns of all that completed with it.
    ///
    /// # Errors
    /// `Lost` when the device is gone; `StreamBroken` when the stream was given up; the driver's own.
    pub fn wait(&self, context: &Context<D>, number: u64, may: &mut MayWait) -> Result<()> {
        if self.timeline.is_complete(number) {
            return Ok(());
        }
        context.life.check_process()?;
        context.check_alive()?;
        let Some(_guest) = self.visit(number) else { return Ok(()) };
        let answer = self.timeline.ask(|| {
            self.check_not_broken()?;
            match self.end() {
                End::Over => Ok(()),
                End::Event(mark) => {
                    context.guarded(may, Call::EventSynchronize, |driver| driver.event_synchronize(&mark))
                }
                End::Stream(end) => {
                    context.guarded(may, Call::StreamSynchronize, |driver| driver.stream_synchronize(end))
                }
            }
            .map(|()| Progress::Complete)
        });
        answer.map(drop).map_err(|error| self.note(error))
    }

    /// As [`wait`](Self::wait), also where the stream was given up: by who has nothing else to do but to ask again. A stream of
    /// ours answers for all its work whatever failed before. An adopted one does not: its mark may stand at an older place (S8).
    ///
    /// # Errors
    /// As there; `StreamBroken` only of an adopted stream.
    pub fn wait_out(&self, context: &Context<D>, number: u64, may: &mut MayWait) -> Result<()> {
        match self.wait(context, number, may) {
            Err(Error::StreamBroken(_)) if matches!(self.role, Role::Pooled(_)) => {}
            answer => return answer,
        }
        let Some(_guest) = self.visit(number) else { return Ok(()) };
        let wait = |driver: &D| driver.stream_synchronize(&self.raw);
        let ask = || context.guarded(may, Call::StreamSynchronize, wait).map(|()| Progress::Complete);
        let waited = self.timeline.ask(ask).map(drop);
        if waited.is_err() {
            // A wait that fails each time is no end of it: the stream may still answer a question.
            let query = |driver: &D| driver.stream_query(&self.raw);
            let now = || context.guarded_now(Call::StreamQuery, query).unwrap_or(Ok(Progress::Pending));
            if self.timeline.ask(now)? == Progress::Complete {
                return Ok(());
            }
        }
        waited
    }

    /// Asks whether all accepted work has completed, and learns of it. `None`: not now, a capture would break.
    pub fn query(&self, context: &Context<D>) -> Option<Result<Progress>> {
        let answer = self.timeline.ask(|| {
            self.check_not_broken().map_err(Some)?;
            let answer = match self.end() {
                End::Over => Some(Ok(Progress::Complete)),
                End::Event(mark) => context.guarded_now(Call::EventQuery, |driver| driver.event_query(&mark)),
                End::Stream(end) => context.guarded_now(Call::StreamQuery, |driver| driver.stream_query(end)),
            };
            answer.map_or(Err(None), |answer| answer.map_err(Some))
        });
        match answer {
            Ok(progress) => Some(Ok(progress)),
            Err(error) => error.map(|error| Err(self.note(error))),
        }
    }

    /// S8. Looked at after a horizon was read: a stream is given up before the number is taken that its mark is not past, so
    /// one that is not given up by then has marked all up to there.
    fn check_not_broken(&self) -> Result<()> {
        match self.broken() {
            Some(cause) => Err(Error::StreamBroken(cause)),
            None => Ok(()),
        }
    }

    /// Gives the stream up after a question that failed by itself.
    fn note(&self, error: Error) -> Error {
        if let Error::Driver(failure) = &error {
            self.break_with(failure.clone());
        }
        error
    }
}
