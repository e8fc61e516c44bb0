//! The device: what may happen next, and doing it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tenure::driver::{Argument, DeviceAddress, HostPointer, LaunchConfig, Location};

use super::Engine;
use super::host_function::FunctionCall;
use super::stream::{Head, Queued, Work};
use crate::code::Code;
use crate::event::{Access, BadAccess, Event, KernelId, Memory, MemoryOrder, OpId, StreamId, Violation, WorkKind};
use crate::fault::Fate;
use crate::host_memory;
use crate::kernel::{self, Bound, Kernel, ParameterKind};
use crate::memory::{Block, Place, place};

/// A stream as choices name it. Valid until the next step or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamIndex(pub(super) u32);

/// One thing that the device may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Choice {
    /// Start what is at the head of a stream.
    Start(StreamIndex),
    /// Finish what runs there.
    Finish(StreamIndex),
    /// Start a node of the graph that runs there.
    StartNode(StreamIndex, u32),
    /// Finish a node that runs.
    FinishNode(StreamIndex, u32),
}

/// A choice with what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The choice.
    pub choice: Choice,
    /// The operation or node.
    pub op: OpId,
    /// Its stream.
    pub stream: StreamId,
    /// What it does.
    pub work: WorkKind,
}

/// What a step did.
#[derive(Clone, Debug)]
pub enum Step {
    /// It happened.
    Done,
    /// A host function is to be called now; [`Engine::function_returned`] ends the operation.
    Function(FunctionCall),
    /// Nothing: the choice was not ready.
    NotReady,
}

/// A block that a kernel has, and where it goes afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lent {
    Nothing,
    Slot(u32),
    CopyOfSlot { slot: u32, offset: u64 },
    CopyOfHost(HostPointer),
}

enum Touched {
    Nothing,
    Device { slot: u32, offset: u64 },
    Host(HostPointer),
}

impl Touched {
    /// Whether ranges of `bytes` bytes from here and from there share any.
    fn overlaps(&self, other: &Self, bytes: u64) -> bool {
        match (self, other) {
            (Self::Device { slot: a, offset: from }, Self::Device { slot: b, offset: to }) => {
                a == b && from.abs_diff(*to) < bytes
            }
            (Self::Host(from), Self::Host(to)) => (from.address().abs_diff(to.address()) as u64) < bytes,
            _ => false,
        }
    }
}

impl Engine {
    /// All that may happen next, added to `ready` in a fixed order: streams by age of their slot, nodes by number.
    pub fn ready(&self, ready: &mut Vec<Ready>) {
        if self.lost.is_none() {
            for stream in &self.busy {
                self.ready_on(*stream, &mut |found| {
                    ready.push(found);
                    true
                });
            }
        }
    }

    /// The first of what [`ready`](Self::ready) lists.
    pub fn first_ready(&self) -> Option<Choice> {
        let mut first = None;
        if self.lost.is_none() {
            for stream in &self.busy {
                self.ready_on(*stream, &mut |found: Ready| {
                    first = Some(found.choice);
                    false
                });
                if first.is_some() {
                    break;
                }
            }
        }
        first
    }

    fn ready_on(&self, stream: u32, found: &mut impl FnMut(Ready) -> bool) {
        let held = &self.streams[stream as usize];
        let Some(front) = held.queue.front() else { return };
        let index = StreamIndex(stream);
        let ready = |choice| Ready { choice, op: front.op, stream: held.id, work: front.work.kind() };
        match &held.head {
            Head::Waiting if self.may_start(front) => {
                found(ready(Choice::Start(index)));
            }
            Head::Running => {
                found(ready(Choice::Finish(index)));
            }
            Head::Graph(run) => run.ready(self.may_begin_function(), &mut |node, is_running, op, work| {
                let choice = if is_running { Choice::FinishNode(index, node) } else { Choice::StartNode(index, node) };
                found(Ready { choice, op, stream: held.id, work })
            }),
            _ => {}
        }
    }

    fn may_start(&self, front: &Queued) -> bool {
        if !front.after.iter().all(|earlier| self.is_complete(earlier)) {
            return false;
        }
        match &front.work {
            Work::Wait { on: Some(position), .. } => self.is_complete(position),
            Work::HostFunction(_) => self.may_begin_function(),
            _ => true,
        }
    }

    /// What a choice costs the device, in nanoseconds of the virtual clock: for drives with one.
    pub fn cost_ns(&self, ready: &Ready) -> u64 {
        match ready.choice {
            Choice::Start(StreamIndex(stream)) | Choice::Finish(StreamIndex(stream)) => {
                let front = self.streams.get(stream as usize).and_then(|held| held.queue.front());
                self.profile.work_cost_ns(ready.work, front.map_or(0, |queued| moved_bytes(&queued.work)))
            }
            _ => self.profile.work_cost_ns(ready.work, 0),
        }
    }

    /// Does one thing.
    pub fn step(&mut self, choice: Choice) -> Step {
        if self.lost.is_some() {
            return Step::NotReady;
        }
        match choice {
            Choice::Start(StreamIndex(stream)) => self.start_head(stream),
            Choice::Finish(StreamIndex(stream)) => {
                let running = self.streams.get(stream as usize).is_some_and(|held| matches!(held.head, Head::Running));
                if !running {
                    return Step::NotReady;
                }
                self.finish_head(stream);
                Step::Done
            }
            Choice::StartNode(StreamIndex(stream), node) => self.start_node(stream, node),
            Choice::FinishNode(StreamIndex(stream), node) => self.finish_node(stream, node),
        }
    }

    fn start_head(&mut self, stream: u32) -> Step {
        let Some(held) = self.streams.get(stream as usize) else { return Step::NotReady };
        let Some(front) = held.queue.front() else { return Step::NotReady };
        if !matches!(held.head, Head::Waiting) || !self.may_start(front) {
            return Step::NotReady;
        }
        let (op, id) = (front.op, held.id);
        let function = match &front.work {
            Work::HostFunction(function) => Some(Arc::clone(function)),
            _ => None,
        };
        let is_graph = matches!(front.work, Work::Graph(_));
        let is_mark = front.work.kind().is_mark();
        self.push(Event::Started { op, stream: id });
        match self.fate(function.is_some()) {
            Fate::Runs => {}
            Fate::Skipped => {
                self.complete_head(stream);
                return Step::Done;
            }
            Fate::Hangs => {
                self.streams[stream as usize].head = Head::Hung;
                return Step::Done;
            }
            Fate::LosesDevice(code) => {
                self.lose_device(code);
                return Step::Done;
            }
        }
        if let Some(function) = function {
            self.streams[stream as usize].head = Head::InFunction;
            return Step::Function(self.begin_function(op, stream, None, function));
        }
        self.streams[stream as usize].head = Head::Running;
        if is_graph {
            self.start_graph(stream);
        } else if is_mark || self.settings.whole_steps {
            self.finish_head(stream);
        }
        Step::Done
    }

    pub(super) fn fate(&mut self, is_function: bool) -> Fate {
        self.faults.start(is_function)
    }

    fn finish_head(&mut self, stream: u32) {
        let Some(queued) = self.streams[stream as usize].queue.front_mut() else { return };
        // The operation stays in its queue until it has completed; only its work is taken out.
        let op = queued.op;
        let work = std::mem::replace(&mut queued.work, Work::Wait { event: crate::event::EventId(u64::MAX), on: None });
        if self.execute(op, stream, &work).is_ok() {
            if let Work::Kernel { mut arguments, .. } = work {
                arguments.clear();
                self.spare_arguments.push(arguments);
            }
            self.complete_head(stream);
        }
    }

    /// The operation at the head has run.
    pub(super) fn complete_head(&mut self, stream: u32) {
        let held = &mut self.streams[stream as usize];
        let Some(done) = held.queue.pop_front() else { return };
        held.completed += 1;
        held.head = Head::Waiting;
        let id = held.id;
        self.completions += 1;
        if held.queue.is_empty()
            && let Ok(at) = self.busy.binary_search(&stream)
        {
            self.busy.remove(at);
            if self.busy.is_empty() {
                self.forget_gone();
            }
        }
        self.push(Event::Completed { op: done.op, stream: id });
        if let Work::Graph(launch) = done.work {
            self.release_graph_data(launch.data);
        }
        self.remove_if_gone(stream);
    }

    // --- effects

    /// Does what an operation or a node does.
    ///
    /// # Errors
    /// The device was lost by it.
    pub(super) fn execute(&mut self, op: OpId, stream: u32, work: &Work) -> Result<(), Code> {
        match work {
            Work::Kernel { kernel, config, arguments, .. } => self.run_kernel(op, *kernel, config, arguments),
            Work::Copy { to, from, bytes } => self.run_copy(op, *to, *from, *bytes),
            Work::Fill { at, value, bytes } => self.run_fill(op, *at, *value, *bytes),
            Work::Allocate { slot, allocation, bytes } => {
                self.bring_up(*slot, *allocation, *bytes, MemoryOrder::Operation(op));
                Ok(())
            }
            Work::Free { slot, allocation } => {
                self.take_down(*slot, MemoryOrder::Operation(op));
                self.release_slot_after_free(stream, *slot, *allocation);
                Ok(())
            }
            Work::Record { key, event, .. } => {
                // A node stands for its launch: that is where the event lies.
                let at = self.streams[stream as usize].queue.front().map_or(op, |queued| queued.op);
                self.complete_mark(*key, *event, at);
                Ok(())
            }
            Work::Wait { .. } | Work::HostFunction(_) | Work::Graph(_) => Ok(()),
        }
    }

    /// Checks one access and tells of it.
    fn touch(&mut self, op: OpId, at: Location, bytes: u64, access: Access) -> Result<Touched, Code> {
        if bytes == 0 {
            return Ok(Touched::Nothing);
        }
        let found = match at {
            Location::Device(address) => self.touch_device(op, address, bytes, access),
            Location::Host(pointer) => {
                let pin = self.covering(op, pointer, bytes, access == Access::Write);
                pin.map(|pin| (Touched::Host(pointer), Memory::Host(pin), pointer.address() as u64))
            }
        };
        match found {
            Ok((touched, memory, start)) => {
                self.push(Event::Accessed { op, memory, start, bytes, access });
                Ok(touched)
            }
            Err(why) => {
                let address = match at {
                    Location::Device(address) => address.0,
                    Location::Host(pointer) => pointer.address() as u64,
                };
                Err(self.bad_access(op, why, address, bytes, access))
            }
        }
    }

    fn touch_device(
        &mut self,
        op: OpId,
        address: DeviceAddress,
        bytes: u64,
        access: Access,
    ) -> Result<(Touched, Memory, u64), BadAccess> {
        match place(address) {
            Place::Device { slot, offset } => {
                let allocation = self.memory.check(slot, offset, bytes)?;
                self.memory.prepare(slot, offset, bytes);
                if access == Access::Write {
                    self.memory.note_written(slot, offset, bytes);
                } else if !self.memory.is_written(slot, offset, bytes) {
                    self.push(Event::UnwrittenRead { op, allocation, start: offset, bytes });
                }
                Ok((Touched::Device { slot, offset }, Memory::Device(allocation), offset))
            }
            Place::Alias { slot, offset } => {
                let (pointer, pin) = self.behind_alias(slot, offset, bytes, access == Access::Write)?;
                Ok((Touched::Host(pointer), Memory::Host(Some(pin)), pointer.address() as u64))
            }
            Place::Wild => Err(BadAccess::Wild),
        }
    }

    #[cold]
    fn bad_access(&mut self, op: OpId, why: BadAccess, address: u64, bytes: u64, access: Access) -> Code {
        self.violate(Violation::Access { op, why, address, bytes, access });
        self.lose_device(Code::ILLEGAL_ADDRESS);
        Code::ILLEGAL_ADDRESS
    }

    fn run_fill(&mut self, op: OpId, at: DeviceAddress, value: u8, bytes: u64) -> Result<(), Code> {
        match self.touch(op, Location::Device(at), bytes, Access::Write)? {
            Touched::Nothing => {}
            Touched::Device { slot, offset } => {
                self.memory.bytes_mut(slot)[offset as usize..(offset + bytes) as usize].fill(value);
            }
            // SAFETY: P4. The caller that registered the range vouched for it until its unregister, and `touch` found it registered.
            Touched::Host(pointer) => unsafe { host_memory::fill(pointer, value, bytes as usize) },
        }
        Ok(())
    }

    fn run_copy(&mut self, op: OpId, to: Location, from: Location, bytes: u64) -> Result<(), Code> {
        let source = self.touch(op, from, bytes, Access::Read)?;
        let target = self.touch(op, to, bytes, Access::Write)?;
        if source.overlaps(&target, bytes) {
            self.violate(Violation::OverlappingCopy { op, bytes });
        }
        let range = |offset: u64| offset as usize..(offset + bytes) as usize;
        match (source, target) {
            (Touched::Device { slot: a, offset: from }, Touched::Device { slot: b, offset: to }) if a == b => {
                self.memory.bytes_mut(a).copy_within(range(from), to as usize);
            }
            (Touched::Device { slot: a, offset: from }, Touched::Device { slot: b, offset: to }) => {
                let block = self.memory.lend(a);
                self.memory.bytes_mut(b)[range(to)].copy_from_slice(&block.bytes()[range(from)]);
                self.memory.take_back(a, block);
            }
            (Touched::Device { slot, offset }, Touched::Host(pointer)) => {
                let bytes = &self.memory.bytes(slot)[range(offset)];
                // SAFETY: P4. The caller that submitted the copy, or registered the range, vouched for it until now.
                unsafe { host_memory::write(pointer, bytes) };
            }
            (Touched::Host(pointer), Touched::Device { slot, offset }) => {
                let bytes = &mut self.memory.bytes_mut(slot)[range(offset)];
                // SAFETY: P4. The caller that submitted the copy, or registered the range, vouched for it until now.
                unsafe { host_memory::read(pointer, bytes) };
            }
            // SAFETY: P4. The caller that submitted the copy, or registered the ranges, vouched for them until now.
            (Touched::Host(from), Touched::Host(to)) => unsafe { host_memory::copy(from, to, bytes as usize) },
            _ => {}
        }
        Ok(())
    }

    // --- kernels

    fn run_kernel(
        &mut self,
        op: OpId,
        id: KernelId,
        config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Result<(), Code> {
        // The launch found the kernel, and kernels are only ever added.
        let Some(kernel) = self.kernels.kernel(id).map(Arc::clone) else { return Ok(()) };
        let (mut bounds, mut lent) = (std::mem::take(&mut self.bounds), std::mem::take(&mut self.lent));
        let bound = self.bind(op, &kernel, config, arguments, &mut bounds, &mut lent);
        let twin = bound.is_ok().then(|| self.run_twin(&kernel, &bounds)).flatten();
        let ran = bound.and_then(|()| {
            let body = AssertUnwindSafe(|| kernel.run(&mut bounds));
            let message = match kernel::enclosed(|| catch_unwind(body)) {
                (Err(payload), _) => crate::drive::seat::text(&*payload).into(),
                (Ok(()), Some(call)) => format!("it made a driver call, {call}, which no kernel can").into(),
                (Ok(()), None) => return Ok(()),
            };
            self.push_always(Event::KernelPanicked { op, kernel: id, message });
            self.lost_by_panic |= self.lost.is_none();
            self.lose_device(Code::LAUNCH_FAILURE);
            Err(Code::LAUNCH_FAILURE)
        });
        self.compare_twin(op, twin.filter(|_| ran.is_ok()), &bounds);
        self.unbind(&mut bounds, &mut lent, ran.is_ok());
        (self.bounds, self.lent) = (bounds, lent);
        ran
    }

    fn bind(
        &mut self,
        op: OpId,
        kernel: &Kernel,
        config: &LaunchConfig,
        arguments: &[Argument],
        bounds: &mut Vec<Bound>,
        lent: &mut Vec<Lent>,
    ) -> Result<(), Code> {
        let mut given = arguments.iter();
        for parameter in kernel.parameters() {
            let (bound, how) = match *parameter {
                ParameterKind::Launch => (Bound::Launch(*config), Lent::Nothing),
                ParameterKind::Scalar(_) => (Bound::Scalar(scalar(given.next())), Lent::Nothing),
                ParameterKind::Pointer { access, align, .. } => {
                    let (address, bytes) = pointer(given.next());
                    self.note_gaps(bounds.len(), address, bytes, access);
                    self.bind_pointer(op, address, bytes, access, align, arguments)?
                }
            };
            bounds.push(bound);
            lent.push(how);
        }
        Ok(())
    }

    /// Lends the memory itself where no other argument lies in the same allocation, else a copy.
    fn bind_pointer(
        &mut self,
        op: OpId,
        address: DeviceAddress,
        bytes: u64,
        access: Access,
        align: usize,
        arguments: &[Argument],
    ) -> Result<(Bound, Lent), Code> {
        if bytes > 0 && !address.0.is_multiple_of(align as u64) {
            return Err(self.bad_access(op, BadAccess::Misaligned, address.0, bytes, access));
        }
        let length = bytes as usize;
        let writes = access == Access::Write;
        Ok(match self.touch(op, Location::Device(address), bytes, access)? {
            Touched::Nothing => (memory(Block::default(), 0, 0), Lent::Nothing),
            Touched::Device { slot, offset } if is_alone(slot, arguments) => {
                (memory(self.memory.lend(slot), offset as usize, length), Lent::Slot(slot))
            }
            Touched::Device { slot, offset } => {
                let start = offset as usize;
                let mut block = Block::new(length + start % 16, 0);
                let from = &self.memory.bytes(slot)[start..start + length];
                block.bytes_mut()[start % 16..].copy_from_slice(from);
                let how = if writes { Lent::CopyOfSlot { slot, offset } } else { Lent::Nothing };
                (memory(block, start % 16, length), how)
            }
            Touched::Host(pointer) => {
                let start = pointer.address() % 16;
                let mut block = Block::new(length + start, 0);
                let bytes = &mut block.bytes_mut()[start..];
                // SAFETY: P4. The caller that registered the range vouched for it until its unregister, and it is registered.
                unsafe { host_memory::read(pointer, bytes) };
                (memory(block, start, length), if writes { Lent::CopyOfHost(pointer) } else { Lent::Nothing })
            }
        })
    }

    fn unbind(&mut self, bounds: &mut Vec<Bound>, lent: &mut Vec<Lent>, ran: bool) {
        for (bound, how) in bounds.drain(..).zip(lent.drain(..)) {
            let Bound::Memory { block, start, bytes } = bound else { continue };
            match how {
                Lent::Slot(slot) => self.memory.take_back(slot, block),
                Lent::CopyOfSlot { slot, offset } if ran => {
                    let to = &mut self.memory.bytes_mut(slot)[offset as usize..offset as usize + bytes];
                    to.copy_from_slice(&block.bytes()[start..start + bytes]);
                }
                Lent::CopyOfHost(pointer) if ran => {
                    let bytes = &block.bytes()[start..start + bytes];
                    // SAFETY: P4. As when it was bound.
                    unsafe { host_memory::write(pointer, bytes) };
                }
                _ => {}
            }
        }
    }
}

fn memory(block: Block, start: usize, bytes: usize) -> Bound {
    Bound::Memory { block, start, bytes }
}

fn scalar(argument: Option<&Argument>) -> [u64; 2] {
    match argument {
        Some(Argument::Scalar { words, .. }) => *words,
        _ => [0; 2],
    }
}

fn pointer(argument: Option<&Argument>) -> (DeviceAddress, u64) {
    match argument {
        Some(Argument::Pointer { address, bytes }) => (*address, *bytes),
        _ => (DeviceAddress(0), 0),
    }
}

fn is_alone(slot: u32, arguments: &[Argument]) -> bool {
    let in_slot = |argument: &&Argument| {
        matches!(argument, Argument::Pointer { address, bytes } if *bytes > 0
            && matches!(place(*address), Place::Device { slot: other, .. } if other == slot))
    };
    arguments.iter().filter(in_slot).count() == 1
}

fn moved_bytes(work: &Work) -> u64 {
    match work {
        Work::Kernel { arguments, .. } => arguments.iter().map(|argument| pointer(Some(argument)).1).sum(),
        _ => 0,
    }
}
