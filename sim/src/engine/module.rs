//! Modules and kernels: every module has all kernels of the engine's library.

use std::sync::Arc;

use tenure::driver::{Argument, Call, Image, LaunchConfig};

use super::stream::Work;
use super::{Answer, Engine, FUNCTIONS, MODULES};
use crate::code::Code;
use crate::event::{CallName, FunctionHandle, HostThread, KernelId, ModuleHandle, StreamHandle, Violation};

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
            let key = engine.modules.insert(());
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
            engine.modules.remove(key);
            Ok(())
        })
    }

    /// Finds a kernel by name.
    ///
    /// # Errors
    /// A stale handle; 500 for a name that no kernel has.
    pub fn function(&mut self, thread: HostThread, module: ModuleHandle, name: &str) -> Result<FunctionHandle, Code> {
        self.plain(thread, Call::Function, |engine| {
            engine.resolve_module(module)?;
            let kernel = engine.kernels.find(name).ok_or(Code::NOT_FOUND)?;
            Ok(FunctionHandle(engine.handle(FUNCTIONS, kernel.0 as usize)))
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
            let kernel = engine.check_launch(function, config, arguments)?;
            let mut held = engine.spare_arguments.pop().unwrap_or_default();
            held.extend_from_slice(arguments);
            engine.submit(stream, Work::Kernel { kernel, config: *config, arguments: held })
        })
    }

    fn check_launch(
        &mut self,
        function: FunctionHandle,
        config: &LaunchConfig,
        arguments: &[Argument],
    ) -> Result<KernelId, Code> {
        let id = self.handle_key(FUNCTIONS, function.0).map(|key| KernelId(key as u32));
        let Some((id, kernel)) = id.and_then(|id| Some((id, self.kernels.kernel(id)?))) else {
            return Err(self.stale(function.0));
        };
        if config.grid.contains(&0) || config.block.contains(&0) {
            return Err(Code::INVALID_VALUE);
        }
        match kernel.misfit(arguments) {
            None => Ok(id),
            Some(argument) => {
                self.violate(Violation::KernelArguments { kernel: id, argument });
                Err(Code::INVALID_VALUE)
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
        self.plain(thread, CallName::DeviceAttribute, |_| Ok(1024))
    }

    /// How many arguments a kernel takes.
    ///
    /// # Errors
    /// A stale handle.
    pub fn function_attributes(&mut self, thread: HostThread, function: FunctionHandle) -> Result<usize, Code> {
        self.plain(thread, CallName::FunctionAttributes, |engine| {
            let id = engine.handle_key(FUNCTIONS, function.0).map(|key| KernelId(key as u32));
            match id.and_then(|id| engine.kernels.kernel(id).map(Arc::clone)) {
                Some(kernel) => Ok(kernel.parameters().len()),
                None => Err(engine.stale(function.0)),
            }
        })
    }
}
