//! Kernels from source: hiprtc, the options that real use needs, and a cache of what was compiled.
//!
//! Compiling takes 180 to 400 ms a kernel (measured, HIP 5.2 to 7.2) and needs no device, only an architecture. A hit
//! in the cache takes a file read.
//!
//! # The cache
//! `TENURE_CACHE_DIR`, or `tenure/kernels` below `XDG_CACHE_HOME` or `~/.cache`; an empty `TENURE_CACHE_DIR` turns it
//! off. An entry is found by everything that its code depends on: source, options, headers, the compiler's version and
//! file. Folders of headers are not, so whoever names one ([`CompileOptions::include`]) is not served from the cache.
//! An entry that cannot be read, is cut short or was changed is compiled anew; a folder that cannot be written is only
//! a slower start. Entries appear whole, by rename. At most 1,024 are kept: the oldest go first.

mod architecture;
mod cache;
pub(crate) mod image;

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::error::{Error, SUCCESS, text_of};
use crate::load::{self, CompilerLibrary, LoadError};
use crate::sys;

/// How source is compiled.
///
/// # Examples
/// ```
/// use tenure_hip::CompileOptions;
/// let options = CompileOptions::default().architecture("gfx90a").define("TILE", "16").fast_math();
/// assert_eq!(options.arguments(), ["--offload-arch=gfx90a", "-DTILE=16", "-ffast-math"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    pub(crate) architecture: Option<String>,
    arguments: Vec<String>,
    headers: Vec<(String, String)>,
    expressions: Vec<String>,
    reads_files: bool,
    uncached: bool,
}

impl CompileOptions {
    /// Compiles for this architecture, such as `gfx942` or `sm_90`, in place of the device's own.
    #[must_use]
    pub fn architecture(mut self, name: impl Into<String>) -> Self {
        self.architecture = Some(name.into());
        self
    }

    /// Defines a macro.
    #[must_use]
    pub fn define(self, name: &str, value: &str) -> Self {
        self.push(format!("-D{name}={value}"))
    }

    /// Lets floating-point arithmetic trade exactness for speed.
    #[must_use]
    pub fn fast_math(self) -> Self {
        self.push("-ffast-math".into())
    }

    /// Gives the text of a header that the source includes by `name`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    /// Looks for headers in a folder. Turns the cache off, since what is read there is not known beforehand.
    #[must_use]
    pub fn include(self, folder: impl AsRef<Path>) -> Self {
        self.option(format!("-I{}", folder.as_ref().display()))
    }

    /// Optimizes at `level`, 0 to 3. The compiler's own choice otherwise.
    #[must_use]
    pub fn optimization(self, level: u8) -> Self {
        self.push(format!("-O{level}"))
    }

    /// Passes any other option as it is, such as `-munsafe-fp-atomics`.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        let option = option.into();
        self.reads_files |= ["-I", "-i", "--include", "@"].iter().any(|prefix| option.starts_with(prefix));
        self.push(option)
    }

    /// Chooses the language, such as `c++20`.
    #[must_use]
    pub fn standard(self, name: &str) -> Self {
        self.push(format!("-std={name}"))
    }

    /// Asks for an instance of a template, such as `scale<float>`; [`Code::lowered`] then gives its name in the code.
    #[must_use]
    pub fn expression(mut self, expression: impl Into<String>) -> Self {
        self.expressions.push(expression.into());
        self
    }

    /// Neither reads nor writes the cache.
    #[must_use]
    pub fn uncached(mut self) -> Self {
        self.uncached = true;
        self
    }

    /// The options as the compiler gets them.
    pub fn arguments(&self) -> Vec<String> {
        let architecture = self.architecture.as_ref().map(|name| format!("--offload-arch={name}"));
        architecture.into_iter().chain(self.arguments.iter().cloned()).collect()
    }

    fn push(mut self, argument: String) -> Self {
        self.arguments.push(argument);
        self
    }

    fn uses_cache(&self) -> bool {
        !self.uncached && !self.reads_files
    }
}

/// Compiled code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    bytes: Vec<u8>,
    log: String,
    lowered: Vec<(String, String)>,
    is_cached: bool,
}

impl Code {
    /// The code object, for [`Image::Code`](tenure::driver::Image::Code).
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The compiler's warnings.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// The name in the code of what [`CompileOptions::expression`] asked for.
    pub fn lowered(&self, expression: &str) -> Option<&str> {
        self.lowered.iter().find(|(asked, _)| asked == expression).map(|(_, name)| name.as_str())
    }

    /// Whether it came from the cache.
    pub fn is_cached(&self) -> bool {
        self.is_cached
    }
}

/// The compiler. Needs no device.
#[derive(Clone, Copy, Debug)]
pub struct Hiprtc {
    library: &'static CompilerLibrary,
}

impl Hiprtc {
    /// Opens the compiler's library.
    ///
    /// # Errors
    /// [`LoadError::NoCompiler`] where there is none.
    pub fn open() -> Result<Self, LoadError> {
        load::compiler_library().map(|library| Self { library }).map_err(Clone::clone)
    }

    /// Its version, major and minor.
    pub fn version(&self) -> (i32, i32) {
        self.library.version
    }

    /// Compiles `source`. Blocks for as long as the compiler runs; may be called from any thread.
    ///
    /// # Errors
    /// The compiler's, with its messages in [`Error::log`].
    ///
    /// # Examples
    /// ```
    /// use tenure_hip::{CompileOptions, Hiprtc};
    /// let source = r#"extern "C" __global__ void one(float *x) { x[threadIdx.x] = 1.0f; }"#;
    /// if let Ok(compiler) = Hiprtc::open() {
    ///     match compiler.compile(source, &CompileOptions::default().architecture("gfx90a")) {
    ///         Ok(code) => println!("{} bytes", code.bytes().len()),
    ///         Err(error) => println!("{}", error.log()),
    ///     }
    /// }
    /// ```
    pub fn compile(&self, source: &str, options: &CompileOptions) -> Result<Code, Error> {
        self.check_architecture(options)?;
        let folder = if options.uses_cache() { cache::folder() } else { None };
        let key = folder.is_some().then(|| self.key(source, options));
        let entry = folder.zip(key);
        if let Some(code) = entry.as_ref().and_then(|(folder, key)| cache::read(folder, key)) {
            return Ok(code);
        }
        let code = Program::create(self.library, source, options)?.compile(options)?;
        if let Some((folder, key)) = &entry {
            cache::write(folder, key, &code);
        }
        Ok(code)
    }

    /// Some versions abort the process over an architecture that they do not know.
    fn check_architecture(&self, options: &CompileOptions) -> Result<(), Error> {
        let name = options.architecture.as_deref().unwrap_or_default();
        match name.is_empty() || architecture::is_known(name, &self.library.path) {
            true => Ok(()),
            false => {
                let text = format!("the compiler does not know the architecture {name}");
                Err(Error::refused("hiprtcCompileProgram", text))
            }
        }
    }

    /// Everything that the code depends on, each part with its length.
    fn key(&self, source: &str, options: &CompileOptions) -> Vec<u8> {
        let (major, minor) = self.library.version;
        let file = std::fs::metadata(&self.library.path).map(|file| (file.len(), file.modified().ok()));
        let compiler = format!("{} {major}.{minor} {file:?}", self.library.path.display());
        let mut key = Vec::new();
        let mut part = |text: &str| cache::push_part(&mut key, text.as_bytes());
        part(&compiler);
        part(source);
        options.arguments().iter().for_each(|argument| part(argument));
        part("headers");
        options.headers.iter().for_each(|(name, text)| [name, text].into_iter().for_each(|text| part(text)));
        part("expressions");
        options.expressions.iter().for_each(|expression| part(expression));
        key
    }
}

/// One compilation; destroyed when it goes.
struct Program {
    library: &'static CompilerLibrary,
    raw: sys::hiprtcProgram,
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: H2. Created by `create`, and owned by this value alone.
        let _ = unsafe { self.library.compiler.hiprtcDestroyProgram(&mut self.raw) };
    }
}

impl Program {
    fn create(library: &'static CompilerLibrary, source: &str, options: &CompileOptions) -> Result<Self, Error> {
        let source = c_string("hiprtcCreateProgram", source)?;
        let names = c_strings("hiprtcCreateProgram", options.headers.iter().map(|(name, _)| name))?;
        let texts = c_strings("hiprtcCreateProgram", options.headers.iter().map(|(_, text)| text))?;
        let (names_raw, texts_raw) = (pointers(&names), pointers(&texts));
        let count = c_int::try_from(names.len()).unwrap_or(c_int::MAX);
        let mut raw = std::ptr::null_mut();
        let (texts, names) = (texts_raw.as_ptr(), names_raw.as_ptr());
        // SAFETY: H3. Strings that end in zero, arrays as long as their number says, and a local pointer.
        let code = unsafe {
            library.compiler.hiprtcCreateProgram(&mut raw, source.as_ptr(), c"kernel".as_ptr(), count, texts, names)
        };
        let program = Self { library, raw };
        match code {
            SUCCESS => Ok(program),
            code => {
                std::mem::forget(program);
                Err(Error::hiprtc(&library.compiler, "hiprtcCreateProgram", code, String::new()))
            }
        }
    }

    fn compile(&self, options: &CompileOptions) -> Result<Code, Error> {
        for expression in &options.expressions {
            let expression = c_string("hiprtcAddNameExpression", expression)?;
            // SAFETY: H2, H3. A live program and a string that ends in zero.
            let code = unsafe { self.library.compiler.hiprtcAddNameExpression(self.raw, expression.as_ptr()) };
            self.check("hiprtcAddNameExpression", code)?;
        }
        let arguments = c_strings("hiprtcCompileProgram", options.arguments().iter())?;
        let raw = pointers(&arguments);
        let count = c_int::try_from(raw.len()).unwrap_or(c_int::MAX);
        // SAFETY: H2, H3. A live program and an array as long as its number says.
        let code = unsafe { self.library.compiler.hiprtcCompileProgram(self.raw, count, raw.as_ptr()) };
        let log = self.log();
        if code != SUCCESS {
            return Err(Error::hiprtc(&self.library.compiler, "hiprtcCompileProgram", code, log));
        }
        let lowered = options.expressions.iter().map(|asked| Ok((asked.clone(), self.lowered(asked)?)));
        let lowered = lowered.collect::<Result<_, Error>>()?;
        Ok(Code { bytes: self.code()?, log, lowered, is_cached: false })
    }

    fn code(&self) -> Result<Vec<u8>, Error> {
        let mut length = 0;
        // SAFETY: H2, H3. A live program and a local integer.
        let code = unsafe { self.library.compiler.hiprtcGetCodeSize(self.raw, &mut length) };
        self.check("hiprtcGetCodeSize", code)?;
        let mut bytes = vec![0_u8; length];
        // SAFETY: H2, H3. The buffer has the length that the library asked for.
        let code = unsafe { self.library.compiler.hiprtcGetCode(self.raw, bytes.as_mut_ptr().cast()) };
        self.check("hiprtcGetCode", code)?;
        Ok(bytes)
    }

    /// The messages; empty where the library gives none.
    fn log(&self) -> String {
        let mut length = 0;
        // SAFETY: H2, H3. A live program and a local integer.
        let code = unsafe { self.library.compiler.hiprtcGetProgramLogSize(self.raw, &mut length) };
        if code != SUCCESS || length == 0 {
            return String::new();
        }
        // One byte more, so that the text always ends.
        let mut bytes = vec![0_u8; length + 1];
        // SAFETY: H2, H3. The buffer is longer than the library asked for.
        let code = unsafe { self.library.compiler.hiprtcGetProgramLog(self.raw, bytes.as_mut_ptr().cast()) };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        if code == SUCCESS { String::from_utf8_lossy(&bytes[..end]).into_owned() } else { String::new() }
    }

    fn lowered(&self, expression: &str) -> Result<String, Error> {
        let expression = c_string("hiprtcGetLoweredName", expression)?;
        let mut name = std::ptr::null();
        // SAFETY: H2, H3. A live program, a string that ends in zero, and a local pointer.
        let code = unsafe { self.library.compiler.hiprtcGetLoweredName(self.raw, expression.as_ptr(), &mut name) };
        self.check("hiprtcGetLoweredName", code)?;
        Ok(NonNull::new(name.cast_mut()).map_or_else(String::new, |name| text_of(name.as_ptr())))
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<(), Error> {
        match code {
            SUCCESS => Ok(()),
            code => Err(Error::hiprtc(&self.library.compiler, function, code, String::new())),
        }
    }
}

fn c_string(function: &'static str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::refused(function, "a text with a zero byte"))
}

fn c_strings<'a>(function: &'static str, texts: impl Iterator<Item = &'a String>) -> Result<Vec<CString>, Error> {
    texts.map(|text| c_string(function, text)).collect()
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

/// Where compiled kernels are kept; `None` where they are not.
pub fn cache_folder() -> Option<PathBuf> {
    cache::folder()
}
