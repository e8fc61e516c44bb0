//! A runtime over the null driver, with buffers and kernels of the shapes that are measured.

use std::hint::black_box;

use tenure::driver::{Argument, DeviceAddress, Driver, Image};
use tenure::kernel::{Read, Write};
use tenure::{Buffer, Config, Kernel, LaunchConfig, Module, Queue, ReclaimMode, Runtime, Stream};

use crate::null::{Handle, Null};

/// Two arrays read, one written, four scalars: the shape whose cost is quoted.
pub type ThreeAndFour = (Read<f32>, Read<f32>, Write<f32>, u32, u32, f32, f32);
/// Sixteen arrays read.
pub type Sixteen = (
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
    Read<f32>,
);

/// A buffer over the null driver.
pub type Floats = Buffer<f32, Null>;

/// The launch configuration of all benchmarks.
pub const CONFIG: LaunchConfig = LaunchConfig { grid: [4, 1, 1], block: [256, 1, 1], shared_bytes: 0 };

/// Elements of a buffer.
pub const ELEMENTS: usize = 1000;

/// A runtime, its kernels, and a raw stream and function for what goes past it.
pub struct Bed {
    /// The driver, for its switches.
    pub driver: Null,
    /// The runtime; it releases when told to.
    pub runtime: Runtime<Null>,
    /// No arguments.
    pub empty: Kernel<(), Null>,
    /// One array, read.
    pub one: Kernel<(Read<f32>,), Null>,
    /// One array, written.
    pub write: Kernel<(Write<f32>,), Null>,
    /// See [`ThreeAndFour`].
    pub three: Kernel<ThreeAndFour, Null>,
    /// See [`Sixteen`].
    pub sixteen: Kernel<Sixteen, Null>,
    /// A stream that the runtime does not know.
    pub raw_stream: Handle,
    /// A function that it does not know.
    pub raw_function: Handle,
    module: Module<Null>,
}

impl std::fmt::Debug for Bed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bed").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

impl Bed {
    /// Over `driver`, reclaimed by hand.
    pub fn new(driver: Null) -> Self {
        Self::with(driver, Config::default().reclaim(ReclaimMode::Manual))
    }

    /// Over `driver`, as `config` says.
    pub fn with(driver: Null, config: Config) -> Self {
        let runtime = expect(Runtime::with(driver.clone(), config));
        let module = expect(runtime.module(Image::Source("")));
        let raw_stream = infallible(driver.stream_create(Default::default()));
        let raw_module = infallible(driver.module_load(Image::Source("")));
        let raw_function = infallible(driver.function(&raw_module, "raw"));
        Self {
            empty: kernel(&module),
            one: kernel(&module),
            write: kernel(&module),
            three: kernel(&module),
            sixteen: kernel(&module),
            driver,
            runtime,
            raw_stream,
            raw_function,
            module,
        }
    }

    /// A stream.
    pub fn stream(&self) -> Stream<Null> {
        expect(self.runtime.stream())
    }

    /// Buffers that `stream` covers.
    pub fn buffers<const N: usize>(&self, stream: &Stream<Null>) -> [Floats; N] {
        std::array::from_fn(|_| expect(stream.alloc(ELEMENTS)))
    }

    /// One more kernel, of any signature.
    pub fn kernel<S>(&self) -> Kernel<S, Null> {
        kernel(&self.module)
    }

    /// What a launch costs without any bookkeeping: arguments packed by hand, and the call.
    #[inline]
    pub fn raw_launch(&self, arguments: &[Argument]) {
        // SAFETY: the null driver reads nothing through its arguments.
        infallible(unsafe { self.driver.launch(&self.raw_stream, &self.raw_function, &CONFIG, arguments) });
    }
}

fn kernel<S>(module: &Module<Null>) -> Kernel<S, Null> {
    // SAFETY: the null driver runs nothing, whatever the signature.
    expect(unsafe { module.kernel("null") })
}

/// A pointer argument.
#[inline]
pub fn pointer(address: u64) -> Argument {
    Argument::Pointer { address: DeviceAddress(address), bytes: (ELEMENTS * 4) as u64 }
}

/// A scalar argument of four bytes.
#[inline]
pub fn scalar(value: u32) -> Argument {
    Argument::Scalar { words: [value.into(), 0], bytes: 4 }
}

/// The scalars of the quoted shape. Both sides read them from memory, as a program's own are read: of constants a
/// compiler packs those of a call written out by hand ahead of time, and the others not.
#[derive(Clone, Copy, Debug)]
pub struct Scalars(pub u32, pub u32, pub f32, pub f32);

impl Scalars {
    /// Some values.
    pub const SOME: Self = Self(1, 2, 3.0, 4.0);
}

/// Launches the quoted shape through the runtime.
#[inline]
pub fn launch_three(bed: &Bed, stream: &Stream<Null>, [x, y, z]: &mut [Floats; 3]) {
    let Scalars(a, b, c, d) = *black_box(&Scalars::SOME);
    expect(stream.launch(&bed.three, CONFIG, (&*x, &*y, z, a, b, c, d)));
}

/// The quoted shape without bookkeeping.
#[inline]
pub fn raw_three(bed: &Bed, addresses: &[u64; 3]) {
    let [x, y, z] = addresses;
    let Scalars(a, b, c, d) = *black_box(&Scalars::SOME);
    let values =
        [pointer(*x), pointer(*y), pointer(*z), scalar(a), scalar(b), scalar(c.to_bits()), scalar(d.to_bits())];
    bed.raw_launch(&values);
}

/// Launches sixteen buffers, read, through the runtime.
#[inline]
pub fn launch_sixteen(bed: &Bed, stream: &Stream<Null>, b: &[Floats; 16]) {
    let arguments = (
        &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7], &b[8], &b[9], &b[10], &b[11], &b[12], &b[13], &b[14],
        &b[15],
    );
    expect(stream.launch(&bed.sixteen, CONFIG, arguments));
}

/// Sixteen buffers without bookkeeping.
#[inline]
pub fn raw_sixteen(bed: &Bed, addresses: &[u64; 16]) {
    bed.raw_launch(&addresses.map(pointer));
}

/// The value of a call that cannot fail over the null driver.
///
/// # Panics
/// When it did all the same.
#[inline]
#[track_caller]
pub fn expect<T, E: std::fmt::Debug>(answer: Result<T, E>) -> T {
    answer.expect("the null driver refuses nothing")
}

/// The value of the null driver's answer.
#[inline]
pub fn infallible<T>(answer: Result<T, crate::null::Never>) -> T {
    match answer {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
