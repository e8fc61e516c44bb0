//! Modules and kernels: every module has all kernels of the engine's library. A kernel's handle lives as long as its
//! module: unloading that under work which runs it, or a launch afterwards, is told.

use tenure::driver::{Argument, Call, Image, LaunchConfig};

use super::stream::Work;
use super::{Answer, Engine, FUNCTIONS, MODULES};
use crate::code::Code;
use crate::event::{CallName, FunctionHandle, HostThread, KernelId, ModuleHandle, OpId, StreamHandle, Violation};

/// Loaded code.
#[derive(Debug)]
pub(super) struct Module {
    number: u64,
    /// Its kernels that were asked for, with their handles' keys.
    functions: Vec<(KernelId, usize)>,
}

/// A kernel of a module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    kernel: KernelId,
    module: ModuleRef,
}

/// A module by its key, and by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModuleRef {
    key: u32,
    number: u64,
}

impl Engine {
    /// Loads code, which the simulator does not look at. Not guarded: drivers load it when it is first used.
    ///
    /// # Errors
    /// None.
    pub fn module_load(&mut self, thread: HostThread, _image: Image<'_>) -> Result<ModuleHandle, Code> {
        self.plain(thread, Call::ModuleLoad, |engine| {
            if engine.gives_null() {
                return Ok(ModuleHandle(0));
            }
            let number = engine.next.module;
            engine.next.module += 1;
            let key = engine.modules.insert(Module { number, functions: Vec::new() });
            Ok(ModuleHandle(engine.handle(MODULES, key)))
        })
    }

    /// Unloads code. Guarded.
    ///
    /// # Errors
    /// A stale handle; 900 where a capture forbids it.
    pub fn module_unload(&mut self, thread: HostThread, module: ModuleHandle) -> Result<(), Code> {
        self.plain(thread, Call::ModuleUnload, |engine| {
            engine.guard()?;
            let key = engine.resolve_module(module)?;
            let module = ModuleRef { key: key as u32, number: engine.modules[key].number };
            if let Some(op) = engine.pending_of(module) {
                engine.violate(Violation::CodeInUse { thread, op });
            }
            let functions = engine.modules.remove(key).functions;
            for (_, key) in functions {
                engine.functions.remove(key);
            }
            Ok(())
        })
    }

    /// Finds a kernel by name.
    ///
    /// # Errors
    /// A stale handle; 500 for a name that no kernel has.
    pub fn function(&mut self, thread: HostThread, module: ModuleHandle, name: &str) -> Result<FunctionHandle, Code> {
        self.plain(thread, Call::Function, |engine| {
            let module = engine.resolve_module(module)?;
            let kernel = engine.kernels.find(name).ok_or(Code::NOT_FOUND)?;
            let held = &engine.modules[module];
            let known = held.functions.iter().find(|(known, _)| *known == kernel).map(|(_, key)| *key);
            let key = known.unwrap_or_else(|| {
                let module = ModuleRef { key: module as u32, number: held.number };
                engine.functions.insert(Function { kernel, module })
            });
            if known.is_none() {
                engine.modules[module].functions.push((kernel, key));
            }
            Ok(FunctionHandle(engine.handle(FUNCTIONS, key)))
        })
    }

    /// Starts a kernel in the order of the stream.
    ///
    /// # Errors
    /// Stale handles; 1 for arguments that the kernel does not take or an empty grid; what a submission may return.
    pub fn launch(
        &mut self,
        thread: HostThread,
        stream: StreamHandle,
        function: FunctionHandle,
        config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::Launch, |engine| {
            let stream = engine.resolve(stream)?;
            let Function { kernel, module } = engine.check_launch(function, config, arguments)?;
            let mut held = engine.spare_arguments.pop().unwrap_or_default();
            held.extend_from_slice(arguments);
            engine.submit(stream, Work::Kernel { kernel, module, config: *config, arguments: held })
        })
    }

    fn check_launch(
        &mut self,
        function: FunctionHandle,
        config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Result<Function, Code> {
        let held = self.resolve_function(function)?;
        let id = held.kernel;
        let Some(kernel) = self.kernels.kernel(id) else { return Err(Code::NOT_FOUND) };
        if !fits(config) {
            return Err(self.refuse(Code::INVALID_VALUE));
        }
        match kernel.misfit(arguments) {
            None => Ok(held),
            Some(argument) => {
                self.violate(Violation::KernelArguments { kernel: id, argument });
                Err(Code::INVALID_VALUE)
            }
        }
    }

    fn resolve_function(&mut self, function: FunctionHandle) -> Result<Function, Code> {
        let held = self.handle_key(FUNCTIONS, function.0).and_then(|key| self.functions.get(key).copied());
        held.ok_or_else(|| self.stale(function.0))
    }

    /// Work that was submitted, has not completed, and runs code of the module.
    fn pending_of(&self, module: ModuleRef) -> Option<OpId> {
        let pending = self.busy.iter().flat_map(|stream| &self.streams[*stream as usize].queue);
        pending.filter(|queued| runs(&queued.work, module)).map(|queued| queued.op).next()
    }

    /// A launch of a graph needs the code of all its kernels.
    pub(super) fn check_code_of_graph(&mut self, nodes: &[super::graph::Node]) {
        let thread = self.current.thread;
        for node in nodes {
            let Work::Kernel { kernel, module: ModuleRef { key, number }, .. } = node.work else { continue };
            if self.modules.get(key as usize).is_none_or(|held| held.number != number) {
                self.violate(Violation::CodeGone { thread, kernel });
            }
        }
    }

    fn resolve_module(&mut self, module: ModuleHandle) -> Result<usize, Code> {
        match self.handle_key(MODULES, module.0) {
            Some(key) if self.modules.contains(key) => Ok(key),
            _ => Err(self.stale(module.0)),
        }
    }

    // --- calls that ask, and are never refused

    /// Chooses the thread's device: there is one.
    ///
    /// # Errors
    /// As [`stream_create`](Self::stream_create).
    pub fn select_device(&mut self, thread: HostThread) -> Result<(), Code> {
        self.plain(thread, CallName::SelectDevice, |_| Ok(()))
    }

    /// Bytes of device memory that are free, and all.
    ///
    /// # Errors
    /// As [`stream_create`](Self::stream_create).
    pub fn memory_info(&mut self, thread: HostThread) -> Result<(u64, u64), Code> {
        self.plain(thread, CallName::MemoryInfo, |engine| {
            let (used, all) = engine.memory.usage();
            Ok((all.saturating_sub(used), all))
        })
    }

    /// A number that describes the device: threads of a block.
    ///
    /// # Errors
    /// As [`stream_create`](Self::stream_create).
    pub fn device_attribute(&mut self, thread: HostThread) -> Result<i32, Code> {
        self.plain(thread, CallName::DeviceAttribute, |_| Ok(THREADS_MAX as i32))
    }

    /// How many arguments a kernel takes.
    ///
    /// # Errors
    /// A stale handle.
    pub fn function_attributes(&mut self, thread: HostThread, function: FunctionHandle) -> Result<usize, Code> {
        self.plain(thread, CallName::FunctionAttributes, |engine| {
            let kernel = engine.resolve_function(function)?.kernel;
            engine.kernels.kernel(kernel).map(|kernel| kernel.parameters().len()).ok_or(Code::NOT_FOUND)
        })
    }
}

/// Whether the work runs code of the module.
fn runs(work: &Work, wanted: ModuleRef) -> bool {
    match work {
        Work::Kernel { module, .. } => *module == wanted,
        Work::Graph(launch) => launch.data.nodes.iter().any(|node| runs(&node.work, wanted)),
        _ => false,
    }
}

/// Whether a device takes a launch of this size. The limits are those that every device since 2012 has at least, but for
/// shared memory, where the largest counts.
fn fits(config: &LaunchConfig) -> bool {
    let within =
        |sizes: [u32; 3], limits: [u32; 3]| sizes.iter().zip(limits).all(|(size, most)| (1..=most).contains(size));
    let threads = config.block.iter().map(|size| u64::from(*size)).product::<u64>();
    within(config.grid, [0x7fff_ffff, 0xffff, 0xffff])
        && within(config.block, [THREADS_MAX, THREADS_MAX, THREADS_MAX])
        && threads <= u64::from(THREADS_MAX)
        && config.shared_bytes <= SHARED_BYTES_MAX
}

/// Threads of a block.
const THREADS_MAX: u32 = 1024;
/// Shared memory of a block, in bytes.
const SHARED_BYTES_MAX: u32 = 227 * 1024;
