//! Kernels with typed arguments.
//!
//! A [`Kernel`] carries its signature as a tuple of parameters: [`Read<T>`](Read) and [`Write<T>`](Write) for memory, a
//! plain type for a scalar. A launch takes a tuple of matching arguments: `&` for `Read`, `&mut` for `Write`, a value
//! for a scalar. What does not match does not compile. A launch packs on the stack: up to 16 arguments, no allocation.

use std::marker::PhantomData;

use crate::call_scope::MayWait;
use crate::driver::{Argument, Call, Driver, Image};
use crate::error::Result;
use crate::memory::{Element, Memory, Readable, UseSet, Writable};
use crate::ownership::{Access, Point, Points, Record};
use crate::reclaim::{Resource, Retired};
use crate::runtime::Runtime;
use crate::sealed::{self, Sealed};
use crate::shared::Anchor;
use crate::stream_state::StreamState;
use crate::sync::{Arc, leak};

/// A parameter through which a kernel only reads elements of `T`.
#[derive(Debug)]
pub struct Read<T>(PhantomData<T>);

/// A parameter through which a kernel writes, and may read, elements of `T`.
#[derive(Debug)]
pub struct Write<T>(PhantomData<T>);

/// A value that is passed to a kernel as it is: plain data of at most 16 bytes.
pub trait Scalar: Element {}

macro_rules! scalars {
    ($($scalar:ty)*) => { $(impl Scalar for $scalar {})* };
}
scalars!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);
scalars!([f32; 2] [f32; 4] [f64; 2] [u32; 2] [u32; 4] [i32; 2] [i32; 4]);

/// An argument that fits a parameter of type `P`: `&` memory for [`Read`], `&mut` memory for [`Write`], a scalar for itself.
/// This crate alone says what does.
pub trait KernelArgument<'a, P, D: Driver>: sealed::KernelArgument<'a, P, D> {
    /// What it uses: one piece of memory, or `()`.
    type Uses: UseSet<Memory<'a, D>, D>;

    /// What it uses, and what the driver gets.
    fn pack(self) -> (Self::Uses, Argument);
}

impl<'a, T: Element, R: Readable<T, D>, D: Driver> sealed::KernelArgument<'a, Read<T>, D> for &'a R {}
impl<'a, T: Element, W: Writable<T, D>, D: Driver> sealed::KernelArgument<'a, Write<T>, D> for &'a mut W {}
impl<T: Scalar, D: Driver> sealed::KernelArgument<'_, T, D> for T {}

impl<'a, T: Element, R: Readable<T, D>, D: Driver> KernelArgument<'a, Read<T>, D> for &'a R {
    type Uses = Memory<'a, D>;

    #[inline]
    fn pack(self) -> (Memory<'a, D>, Argument) {
        let region = self.region();
        (Memory::read(region.backing), region.argument())
    }
}

impl<'a, T: Element, W: Writable<T, D>, D: Driver> KernelArgument<'a, Write<T>, D> for &'a mut W {
    type Uses = Memory<'a, D>;

    #[inline]
    fn pack(self) -> (Memory<'a, D>, Argument) {
        let written: &'a W = self;
        let region = written.region();
        (Memory::write(region.backing), region.argument())
    }
}

impl<'a, T: Scalar, D: Driver> KernelArgument<'a, T, D> for T {
    type Uses = ();

    #[inline]
    fn pack(self) -> ((), Argument) {
        const { assert!(size_of::<T>() <= 16, "a scalar argument has at most 16 bytes") };
        let bytes = bytemuck::bytes_of(&self);
        // Put together in registers: written to memory by halves, it would stall whoever reads it as a whole.
        let word = |at: usize| {
            let mut word = [0_u8; 8];
            let part = &bytes[bytes.len().min(at)..bytes.len().min(at + 8)];
            word[..part.len()].copy_from_slice(part);
            u64::from_ne_bytes(word)
        };
        ((), Argument::Scalar { words: [word(0), word(8)], bytes: bytes.len() as u64 })
    }
}

/// Arguments that fit the signature `S`: a tuple of up to 16, or a type of a program's own, for arguments that are known
/// only at run time.
///
/// # Safety
/// - The values are what a kernel of signature `S` takes.
/// - Each pointer among them comes from the [`Region`](crate::buffer::Region) of a memory that is among the uses, with the
///   access that the kernel has to it.
///
/// # Examples
/// ```
/// use tenure::buffer::Region;
/// use tenure::driver::{Argument, Driver};
/// use tenure::kernel::KernelArguments;
/// use tenure::queue::Memory;
/// # use tenure::{LaunchConfig, Queue, Readable, Runtime};
///
/// /// Any number of buffers, all of them written.
/// struct Written<'a, D: Driver> {
///     uses: &'a [Memory<'a, D>],
///     values: Vec<Argument>,
/// }
///
/// /// The signature of the kernels that take them.
/// struct AnyNumber;
///
/// // SAFETY: kernels of this signature write all that they are given, and `values` are the regions behind `uses`.
/// unsafe impl<'a, D: Driver> KernelArguments<'a, AnyNumber, D> for Written<'a, D> {
///     type Uses = &'a [Memory<'a, D>];
///     type Values = Vec<Argument>;
///
///     fn pack(self) -> (Self::Uses, Vec<Argument>) {
///         (self.uses, self.values)
///     }
/// }
/// # let sim = tenure_sim::Sim::new(tenure_sim::profile::Profile::cuda_13());
/// # sim.kernel("one", |mut x: tenure_sim::kernel::Write<'_, u32>| x[0] = 7);
/// # let runtime = Runtime::new(sim)?;
/// # let module = runtime.module(tenure::driver::Image::Source(""))?;
/// # let stream = runtime.stream()?;
/// # let mut buffers = [stream.upload(&[0_u32])?];
/// # // SAFETY: it writes what it is given.
/// # let kernel = unsafe { module.kernel::<AnyNumber>("one")? };
///
/// let regions: Vec<Region<_>> = buffers.iter_mut().map(|buffer| buffer.region()).collect();
/// let uses: Vec<_> = regions.iter().map(|region| Memory::write(region.backing)).collect();
/// let values = regions.iter().map(Region::argument).collect();
/// stream.launch(&kernel, LaunchConfig::linear(1), Written { uses: &uses, values })?;
/// # assert_eq!(stream.read(&buffers[0])?, [7]);
/// # Ok::<(), tenure::Error>(())
/// ```
pub unsafe trait KernelArguments<'a, S, D: Driver> {
    /// A tuple with what each argument uses.
    type Uses: UseSet<Memory<'a, D>, D>;
    /// An array with what the driver gets.
    type Values: AsRef<[Argument]>;

    /// Packs all of them.
    fn pack(self) -> (Self::Uses, Self::Values);
}

macro_rules! arguments {
    ($($parameter:ident $argument:ident $index:tt),*) => {
        // SAFETY: O1, O6. Each argument fits its parameter, and is packed with what it uses.
        unsafe impl<'a, D: Driver, $($parameter, $argument: KernelArgument<'a, $parameter, D>),*> KernelArguments<'a, ($($parameter,)*), D>
            for ($($argument,)*)
        {
            type Uses = ($($argument::Uses,)*);
            type Values = [Argument; 0 $(+ { let _: &str = stringify!($parameter); 1 })*];

            #[inline]
            #[allow(non_snake_case, reason = "each value is named as its argument's type")]
            #[allow(clippy::unused_unit, reason = "the empty tuple uses nothing")]
            fn pack(self) -> (Self::Uses, Self::Values) {
                $(let $argument = self.$index.pack();)*
                (($($argument.0,)*), [$($argument.1),*])
            }
        }

        impl<$($argument: Sealed),*> Sealed for ($($argument,)*) {}

        impl<'a, D: Driver, $($argument: UseSet<Memory<'a, D>, D>),*> UseSet<Memory<'a, D>, D> for ($($argument,)*) {
            #[inline]
            #[allow(unused_variables, reason = "the empty tuple has nothing to look at")]
            fn all_outright(&self, stream: u64) -> bool {
                true $(&& self.$index.all_outright(stream))*
            }

            #[inline]
            #[allow(unused_variables, reason = "the empty tuple has nothing to note")]
            fn stamp_outright(&self, number: u64) {
                $(self.$index.stamp_outright(number);)*
            }

            #[inline]
            #[allow(unused_variables, reason = "the empty tuple has nothing to test")]
            fn all(&self, test: impl Fn(&Record<D>, Access) -> bool + Copy) -> bool {
                true $(&& self.$index.all(test))*
            }

            #[inline]
            #[allow(unused_variables, reason = "the empty tuple has nothing to act on")]
            fn each(&self, act: impl Fn(&Record<D>, Access) + Copy) {
                $(self.$index.each(act);)*
            }

            #[inline]
            #[allow(unused_variables, reason = "the empty tuple has nothing to visit")]
            fn visit(&self, act: &mut impl FnMut(Memory<'a, D>)) {
                $(self.$index.visit(act);)*
            }
        }
    };
}
arguments!();
arguments!(P0 A0 0);
arguments!(P0 A0 0, P1 A1 1);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9, P10 A10 10);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9, P10 A10 10, P11 A11 11);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9, P10 A10 10, P11 A11 11, P12 A12 12);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9, P10 A10 10, P11 A11 11, P12 A12 12, P13 A13 13);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9, P10 A10 10, P11 A11 11, P12 A12 12, P13 A13 13, P14 A14 14);
arguments!(P0 A0 0, P1 A1 1, P2 A2 2, P3 A3 3, P4 A4 4, P5 A5 5, P6 A6 6, P7 A7 7, P8 A8 8, P9 A9 9, P10 A10 10, P11 A11 11, P12 A12 12, P13 A13 13, P14 A14 14, P15 A15 15);

/// Loaded code. Shared by its kernels and by the graphs that run them; unloaded when the last is gone and all work of that
/// time has completed, on pooled streams and adopted ones (C4).
#[derive(Debug)]
pub struct Module<D: Driver> {
    loaded: Arc<Loaded<D>>,
}

#[derive(Debug)]
pub(crate) struct Loaded<D: Driver> {
    raw: Option<D::Module>,
    pub(crate) anchor: Arc<Anchor<D>>,
}

impl<D: Driver> Drop for Loaded<D> {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        if self.anchor.reclaim.is_forked() {
            return leak(raw);
        }
        // C4. Its kernels may be pending on any stream, adopted ones too: it waits for what each has accepted by now. What
        // graphs run of it is over: they held it.
        let streams = self.anchor.pool.streams().into_iter().chain(self.anchor.context.adoptions.streams());
        let point = |stream: Arc<StreamState<D>>| Point { number: stream.timeline.horizon().number(), stream };
        let points: Points<D> = streams.map(point).collect();
        self.anchor.reclaim.retire(Retired { resource: Resource::Module(raw), points });
    }
}

impl<D: Driver> Clone for Module<D> {
    fn clone(&self) -> Self {
        Self { loaded: self.loaded.clone() }
    }
}

impl<D: Driver> Runtime<D> {
    /// Loads code.
    ///
    /// # Errors
    /// The driver's: a compiler's complaints are in its message.
    pub fn module(&self, image: Image<'_>) -> Result<Module<D>> {
        self.anchor.check_open()?;
        let context = &self.anchor.context;
        let raw = context.guarded(&mut MayWait::here()?, Call::ModuleLoad, |driver| driver.module_load(image))?;
        Ok(Module::new(self.anchor.clone(), raw))
    }
}

impl<D: Driver> Module<D> {
    fn new(anchor: Arc<Anchor<D>>, raw: D::Module) -> Self {
        Self { loaded: Arc::new(Loaded { raw: Some(raw), anchor }) }
    }

    /// The kernel `name`, with the signature `S`: a tuple of [`Read`], [`Write`] and scalars.
    ///
    /// # Safety
    /// - The kernel takes exactly these parameters, in this order.
    /// - It writes through `Write` parameters only, stays within its arguments at every launch configuration that is
    ///   used with it, and touches no other memory.
    ///
    /// # Errors
    /// The driver's, when the module has no such kernel.
    pub unsafe fn kernel<S>(&self, name: &str) -> Result<Kernel<S, D>> {
        let context = &self.loaded.anchor.context;
        context.check_open()?;
        let Some(raw) = &self.loaded.raw else { unreachable!("a module is unloaded when its last holder drops") };
        let function = context.check(Call::Function, context.driver.function(raw, name))?;
        let loaded = self.loaded.clone();
        let runtime = std::ptr::from_ref(&loaded.anchor.context).addr();
        Ok(Kernel { function, runtime, loaded, signature: PhantomData })
    }
}

/// A kernel that takes arguments of signature `S`.
#[derive(Debug)]
pub struct Kernel<S, D: Driver> {
    pub(crate) function: D::Function,
    // Where its runtime's context lies: `loaded` keeps that there, so nothing else does (O7). Said here too, so that a launch,
    // which needs that of its stream anyway, has both at hand.
    runtime: usize,
    // Keeps the code loaded.
    pub(crate) loaded: Arc<Loaded<D>>,
    signature: PhantomData<fn(S)>,
}

impl<S, D: Driver> Kernel<S, D> {
    /// Whether it belongs to this runtime.
    #[inline]
    pub(crate) fn is_of(&self, anchor: &Arc<Anchor<D>>) -> bool {
        self.runtime == std::ptr::from_ref(&anchor.context).addr()
    }
}
