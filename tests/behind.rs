//! How long calls take behind work that stands still: copies between the device and pageable memory must not wait.
//!
//! ```text
//! behind [--on sim|hip] [--profile NAME|all] [--json]
//! ```
//! A stream is held still; on it, memory of 4 bytes to 64 MiB is downloaded, read by a future that is polled once, and
//! written. The times are of the calls alone; on the simulated device they say that a call returned, not how fast one is.
//! A call that waits for the device does not return before a second has passed, when the device goes on; then the exit
//! code is 1. What a copy has no staging memory for may wait, and is told as such.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tenure::{Config, Queue, Runtime, Stream};
use tenure_hip::Hip;
use tenure_sim::drive::Drive;
use tenure_sim::profile::Profile;
use tenure_tests::bench::{Bench, SimBench};
use tenure_tests::hip_bench::HipBench;
use tenure_tests::rig::{Brake, Tapped};
use tenure_tests::tap::Tap;

/// Bytes of one copy.
const SIZES: [usize; 7] = [4, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// When the device goes on, whatever calls wait.
const HELD: Duration = Duration::from_secs(1);

/// How often each call is made; the longest counts but for the first, which may page-lock memory.
const TIMES: usize = 3;

/// One call.
struct Row {
    call: &'static str,
    bytes: usize,
    first: Duration,
    longest: Duration,
}

impl Row {
    fn waited(&self) -> bool {
        self.longest >= HELD / 2
    }
}

fn main() -> ExitCode {
    let (mut on, mut profile, mut json) = ("sim".to_owned(), "all".to_owned(), false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = true,
            "--on" => on = words.next().unwrap_or_default(),
            "--profile" => profile = words.next().unwrap_or_default(),
            _ => {
                eprintln!("behind: unknown option {word}");
                return ExitCode::from(2);
            }
        }
    }
    let mut waited = 0;
    if on == "hip" {
        let bench = Hip::open(0)
            .map_err(|error| error.to_string())
            .and_then(|hip| HipBench::new(hip).map_err(|error| error.to_string()));
        match bench {
            Ok(bench) => waited += tell("hip", &run(&bench), json),
            Err(error) => {
                eprintln!("behind: no HIP device: {error}");
                return ExitCode::from(2);
            }
        }
    } else {
        for name in Profile::NAMES.iter().filter(|name| profile == "all" || profile == **name) {
            let device = Profile::named(name).expect("a listed profile");
            waited += tell(name, &run(&SimBench::new(device, Drive::Threaded, 0)), json);
        }
    }
    if waited == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(device: &str, rows: &[Row], json: bool) -> usize {
    for Row { call, bytes, first, longest } in rows {
        let (first, longest) = (first.as_secs_f64() * 1e3, longest.as_secs_f64() * 1e3);
        if json {
            let times = format!("\"first_ms\":{first:.4},\"longest_ms\":{longest:.4}");
            println!("{{\"device\":\"{device}\",\"call\":\"{call}\",\"bytes\":{bytes},{times}}}");
        } else {
            println!("{device}: {call} of {bytes} bytes: {longest:.4} ms, the first {first:.4} ms");
        }
    }
    let waited = rows.iter().filter(|row| row.waited()).count();
    println!("{device}: {} rows, {waited} waited for the device", rows.len());
    waited
}

fn run<B: Bench>(bench: &B) -> Vec<Row> {
    let runtime = Runtime::with(Tap::new(bench.driver()), Config::default()).expect("a runtime starts");
    let mut rows = Vec::new();
    for bytes in SIZES {
        let stream = runtime.stream().expect("a stream");
        rows.push(row(bench, &stream, "download", bytes, |stream, memory, _| {
            drop(stream.download(memory).expect("a download"));
        }));
        rows.push(row(bench, &stream, "read by a future", bytes, |stream, memory, _| {
            let mut download = stream.download(memory).expect("a download");
            let polled = Pin::new(&mut download).poll(&mut Context::from_waker(Waker::noop()));
            drop(polled);
        }));
        rows.push(row(bench, &stream, "write", bytes, |stream, memory, source| {
            stream.write(source, memory).expect("a write");
        }));
    }
    drop(runtime.shutdown(Duration::from_secs(5)));
    rows
}

/// The times of one call of so many bytes behind a stream that stands still.
fn row<B: Bench>(
    bench: &B,
    stream: &Stream<Tapped<B>>,
    call: &'static str,
    bytes: usize,
    make: impl Fn(&Stream<Tapped<B>>, &mut tenure::Buffer<u8, Tapped<B>>, &[u8]),
) -> Row {
    let source = vec![1_u8; bytes];
    let mut memory = stream.upload(&source).expect("an upload");
    let (mut first, mut longest) = (Duration::ZERO, Duration::ZERO);
    for turn in 0..=TIMES {
        stream.synchronize().expect("a wait");
        let brake = Brake::new(bench);
        brake.hold(stream);
        let (done, is_done) = channel::<()>();
        let took = std::thread::scope(|scope| {
            scope.spawn(move || {
                let _ = is_done.recv_timeout(HELD);
                brake.release();
            });
            let begun = Instant::now();
            make(stream, &mut memory, &source);
            let took = begun.elapsed();
            drop(done);
            took
        });
        if turn == 0 { first = took } else { longest = longest.max(took) }
    }
    Row { call, bytes, first, longest }
}
