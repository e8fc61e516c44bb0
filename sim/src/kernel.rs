//! Kernels of the simulated device: Rust closures over typed slices of simulated memory.
//!
//! A kernel runs once a launch, as a whole: it loops over its elements itself, and the launch's grid is only told to
//! those that ask for it with a [`LaunchConfig`] parameter. Parameters say what a kernel does with its memory:
//!
//! | parameter | argument | access |
//! |---|---|---|
//! | [`Read<'_, T>`](Read) | a pointer | reads |
//! | [`Write<'_, T>`](Write) | a pointer | writes, and may read |
//! | `u8` … `u128`, `i8` … `i128`, `usize`, `isize`, `f32`, `f64`, `bool` | a scalar | |
//! | [`Value<T>`](Value) | a scalar: a structure, or an array, of up to 16 bytes | |
//! | [`LaunchConfig`] | none | |
//!
//! It makes no driver call: one that does is told as one that panicked, and the call is refused.
//!
//! ```
//! use tenure_sim::kernel::{Library, Read, Write};
//!
//! let mut kernels = Library::new();
//! kernels.add("scale", |factor: f32, x: Read<'_, f32>, mut y: Write<'_, f32>| {
//!     for (y, x) in y.iter_mut().zip(x.iter()) {
//!         *y = factor * x;
//!     }
//! });
//! assert!(kernels.find("scale").is_some());
//! ```

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;
use tenure::driver::{Argument, Call, LaunchConfig};

use crate::event::{Access, KernelId};
use crate::memory::Block;

/// Memory that a kernel only reads.
#[derive(Debug)]
pub struct Read<'a, T>(&'a [T]);

impl<T> Deref for Read<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0
    }
}

/// Memory that a kernel writes, and may read.
#[derive(Debug)]
pub struct Write<'a, T>(&'a mut [T]);

impl<T> Deref for Write<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0
    }
}

impl<T> DerefMut for Write<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0
    }
}

/// What a kernel's parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A pointer to elements of this size and alignment, in bytes.
    Pointer {
        /// What the kernel does there.
        access: Access,
        /// Bytes of one element.
        size: usize,
        /// Its alignment in bytes.
        align: usize,
    },
    /// A value of so many bytes.
    Scalar(usize),
    /// No argument: the launch's configuration.
    Launch,
}

impl ParameterKind {
    /// Whether `argument` fits.
    pub fn takes(self, argument: &Argument) -> bool {
        match (self, argument) {
            (Self::Pointer { size, .. }, Argument::Pointer { bytes, .. }) => bytes.is_multiple_of(size.max(1) as u64),
            (Self::Scalar(size), Argument::Scalar { bytes, .. }) => *bytes == size as u64,
            _ => false,
        }
    }
}

/// What a parameter is bound to while the kernel runs.
#[derive(Debug)]
pub enum Bound {
    /// Bytes `start..start + bytes` of a block.
    Memory {
        /// The block, lent to the kernel.
        block: Block,
        /// Where the range begins.
        start: usize,
        /// How long it is.
        bytes: usize,
    },
    /// A value in memory order.
    Scalar([u64; 2]),
    /// The launch's configuration.
    Launch(LaunchConfig),
}

impl Bound {
    /// The same, with memory of its own.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::Memory { block, start, bytes } => Self::Memory { block: block.clone(), start: *start, bytes: *bytes },
            Self::Scalar(words) => Self::Scalar(*words),
            Self::Launch(config) => Self::Launch(*config),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Memory { block, start, bytes } => &block.bytes()[*start..*start + *bytes],
            _ => &[],
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Memory { block, start, bytes } => &mut block.bytes_mut()[*start..*start + *bytes],
            _ => &mut [],
        }
    }
}

/// A type that a kernel's closure may take.
pub trait Parameter {
    /// The same type with the lifetime of one launch.
    type Item<'a>;
    /// What it takes.
    const KIND: ParameterKind;
    /// Its value for one launch. The engine has checked kind, length and alignment.
    fn bind(bound: &mut Bound) -> Self::Item<'_>;
}

impl<T: Pod> Parameter for Read<'_, T> {
    type Item<'a> = Read<'a, T>;
    const KIND: ParameterKind =
        ParameterKind::Pointer { access: Access::Read, size: size_of::<T>(), align: align_of::<T>() };

    fn bind(bound: &mut Bound) -> Read<'_, T> {
        Read(bytemuck::cast_slice(bound.bytes()))
    }
}

impl<T: Pod> Parameter for Write<'_, T> {
    type Item<'a> = Write<'a, T>;
    const KIND: ParameterKind =
        ParameterKind::Pointer { access: Access::Write, size: size_of::<T>(), align: align_of::<T>() };

    fn bind(bound: &mut Bound) -> Write<'_, T> {
        Write(bytemuck::cast_slice_mut(bound.bytes_mut()))
    }
}

impl Parameter for LaunchConfig {
    type Item<'a> = LaunchConfig;
    const KIND: ParameterKind = ParameterKind::Launch;

    fn bind(bound: &mut Bound) -> LaunchConfig {
        match bound {
            Bound::Launch(config) => *config,
            _ => LaunchConfig::linear(0),
        }
    }
}

macro_rules! scalars {
    ($($scalar:ty)*) => {$(
        impl Parameter for $scalar {
            type Item<'a> = $scalar;
            const KIND: ParameterKind = ParameterKind::Scalar(size_of::<$scalar>());

            fn bind(bound: &mut Bound) -> $scalar {
                match bound {
                    Bound::Scalar(words) => {
                        let bytes: &[u8] = bytemuck::bytes_of(words);
                        bytemuck::pod_read_unaligned(&bytes[..size_of::<$scalar>()])
                    }
                    _ => Default::default(),
                }
            }
        }
    )*};
}

scalars!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

impl Parameter for bool {
    type Item<'a> = bool;
    const KIND: ParameterKind = ParameterKind::Scalar(1);

    fn bind(bound: &mut Bound) -> bool {
        u8::bind(bound) != 0
    }
}

/// A structure that a kernel takes by value, of up to 16 bytes. A larger one fits no argument: its launches are refused.
///
/// ```
/// use tenure_sim::kernel::{Library, Value, Write};
///
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(C)]
/// struct Line {
///     slope: f32,
///     start: f32,
/// }
///
/// let mut kernels = Library::new();
/// kernels.add("line", |line: Value<Line>, mut y: Write<'_, f32>| {
///     (0..).zip(y.iter_mut()).for_each(|(x, y)| *y = line.start + line.slope * x as f32);
/// });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value<T>(pub T);

impl<T> Deref for Value<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Pod> Parameter for Value<T> {
    type Item<'a> = Value<T>;
    const KIND: ParameterKind = ParameterKind::Scalar(size_of::<T>());

    fn bind(bound: &mut Bound) -> Value<T> {
        match bound {
            Bound::Scalar(words) if size_of::<T>() <= size_of_val(words) => {
                let bytes: &[u8] = bytemuck::bytes_of(words);
                Value(bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()]))
            }
            _ => Value(T::zeroed()),
        }
    }
}

/// A closure that can be a kernel: up to 16 [`Parameter`]s, no result. `Signature` is there for type inference alone.
pub trait KernelFunction<Signature>: Send + Sync + 'static {
    /// What it takes.
    fn parameters() -> Vec<ParameterKind>;
    /// Runs it.
    fn run(&self, bounds: &mut [Bound]);
}

macro_rules! kernel_functions {
    ($($parameter:ident)*) => {
        #[allow(non_snake_case, reason = "one identifier serves as type and as variable")]
        #[allow(clippy::too_many_arguments, reason = "as many as a kernel has")]
        impl<F, $($parameter: Parameter),*> KernelFunction<fn($($parameter),*)> for F
        where
            F: Send + Sync + 'static,
            for<'x> &'x F: Fn($($parameter),*) + Fn($($parameter::Item<'_>),*),
        {
            fn parameters() -> Vec<ParameterKind> {
                vec![$($parameter::KIND),*]
            }

            fn run(&self, bounds: &mut [Bound]) {
                // Calls through the second bound: which closure is meant is plain only inside a generic function.
                fn call<$($parameter),*>(function: impl Fn($($parameter),*), $($parameter: $parameter),*) {
                    function($($parameter),*);
                }
                let [$($parameter),*] = bounds else { return };
                call(self, $($parameter::bind($parameter)),*);
            }
        }
    };
}

macro_rules! kernel_functions_up_to {
    ($first:ident $($rest:ident)*) => {
        kernel_functions!($first $($rest)*);
        kernel_functions_up_to!($($rest)*);
    };
    () => {
        kernel_functions!();
    };
}

kernel_functions_up_to!(P1 P2 P3 P4 P5 P6 P7 P8 P9 P10 P11 P12 P13 P14 P15 P16);

type Body = Box<dyn Fn(&mut [Bound]) + Send + Sync>;

/// One kernel.
pub struct Kernel {
    name: String,
    parameters: Vec<ParameterKind>,
    body: Body,
}

impl Kernel {
    fn new<S, F: KernelFunction<S>>(name: &str, function: F) -> Self {
        // The signature is only a type: without this the closure's type would name it.
        let _: PhantomData<fn() -> S> = PhantomData;
        Self { name: name.to_owned(), parameters: F::parameters(), body: Box::new(move |bounds| function.run(bounds)) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it takes, in order.
    pub fn parameters(&self) -> &[ParameterKind] {
        &self.parameters
    }

    /// The first of `arguments` that does not fit, or their number where that is wrong.
    pub fn misfit(&self, arguments: &[Argument]) -> Option<u32> {
        let mut given = arguments.iter();
        for (at, parameter) in self.parameters.iter().filter(|kind| **kind != ParameterKind::Launch).enumerate() {
            match given.next() {
                Some(argument) if parameter.takes(argument) => {}
                _ => return Some(u32::try_from(at).unwrap_or(u32::MAX)),
            }
        }
        given.next().map(|_| u32::try_from(arguments.len()).unwrap_or(u32::MAX))
    }

    /// Runs it on bound parameters that fit.
    pub fn run(&self, bounds: &mut [Bound]) {
        (self.body)(bounds);
    }
}

thread_local! {
    /// Where this thread runs a kernel: the first driver call that it made there.
    static CALLED: Cell<Option<Option<Call>>> = const { Cell::new(None) };
}

/// Runs the closure of a kernel; with the first driver call that it made, where it made one.
pub(crate) fn enclosed<R>(body: impl FnOnce() -> R) -> (R, Option<Call>) {
    let outside = CALLED.replace(Some(None));
    let result = body();
    (result, CALLED.replace(outside).flatten())
}

/// Whether the calling thread runs a kernel, where `call` cannot be made.
pub(crate) fn refuses(call: Call) -> bool {
    match CALLED.get() {
        Some(first) => {
            CALLED.set(Some(first.or(Some(call))));
            true
        }
        None => false,
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).field("parameters", &self.parameters).finish()
    }
}

/// The kernels of an engine, by name. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Library {
    kernels: Vec<Arc<Kernel>>,
    by_name: BTreeMap<String, KernelId>,
}

impl Library {
    /// A library without kernels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kernel; one of the same name gives way to it for later look-ups.
    pub fn add<S, F: KernelFunction<S>>(&mut self, name: &str, function: F) -> KernelId {
        let id = KernelId(u32::try_from(self.kernels.len()).unwrap_or(u32::MAX));
        self.kernels.push(Arc::new(Kernel::new(name, function)));
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// Adds all kernels of another library, in their order.
    pub fn extend(&mut self, other: &Self) {
        for kernel in &other.kernels {
            let id = KernelId(u32::try_from(self.kernels.len()).unwrap_or(u32::MAX));
            self.kernels.push(kernel.clone());
            self.by_name.insert(kernel.name.clone(), id);
        }
    }

    /// The kernel of this name.
    pub fn find(&self, name: &str) -> Option<KernelId> {
        self.by_name.get(name).copied()
    }

    /// A kernel by its number.
    pub fn kernel(&self, id: KernelId) -> Option<&Arc<Kernel>> {
        self.kernels.get(id.0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::driver::DeviceAddress;

    fn pointer(bytes: u64) -> Argument {
        Argument::Pointer { address: DeviceAddress(64), bytes }
    }

    fn scalar(bytes: u64) -> Argument {
        Argument::Scalar { words: [0; 2], bytes }
    }

    #[test]
    fn arguments_must_fit_in_kind_length_and_number() {
        let mut library = Library::new();
        let id = library.add("k", |_: u32, _: Read<'_, f64>, _: LaunchConfig, _: Write<'_, u8>| {});
        let kernel = library.kernel(id).expect("it was just added");
        assert_eq!(kernel.misfit(&[scalar(4), pointer(16), pointer(3)]), None);
        assert_eq!(kernel.misfit(&[scalar(8), pointer(16), pointer(3)]), Some(0));
        assert_eq!(kernel.misfit(&[scalar(4), pointer(15), pointer(3)]), Some(1));
        assert_eq!(kernel.misfit(&[scalar(4), pointer(16)]), Some(2));
        assert_eq!(kernel.misfit(&[scalar(4), pointer(16), pointer(3), pointer(3)]), Some(4));
    }

    #[test]
    fn a_kernel_sees_its_slices_and_scalars() {
        let mut library = Library::new();
        let id = library.add("add", |by: u32, x: Read<'_, u32>, mut y: Write<'_, u32>| {
            for (y, x) in y.iter_mut().zip(x.iter()) {
                *y += x + by;
            }
        });
        let block = |words: &[u32]| {
            let mut block = Block::new(words.len() * 4, 0);
            block.bytes_mut().copy_from_slice(bytemuck::cast_slice(words));
            block
        };
        let mut bounds = [
            Bound::Scalar([7, 0]),
            Bound::Memory { block: block(&[1, 2, 3]), start: 4, bytes: 8 },
            Bound::Memory { block: block(&[10, 20]), start: 0, bytes: 8 },
        ];
        library.kernel(id).expect("it was just added").run(&mut bounds);
        assert_eq!(bytemuck::cast_slice::<u8, u32>(bounds[2].bytes()), &[19, 30]);
    }
}
