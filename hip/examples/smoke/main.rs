//! Goes through the whole driver on whatever library is configured and checks every result: one line a step.
//!
//! `TENURE_HIP_LIBRARY` chooses the library; the first argument chooses the device, 0 where there is none. Exits with 1
//! and names the step where something is wrong.

mod steps;

use std::process::ExitCode;

/// How many numbers a buffer holds: 4 MiB of them.
const ELEMENTS: usize = 1 << 20;

fn main() -> ExitCode {
    println!("{}\n", tenure_hip::doctor());
    let index = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let results = steps::run(index);
    for (name, outcome) in &results {
        match outcome {
            Ok(note) => println!("ok   {name}: {note}"),
            Err(error) => println!("FAIL {name}: {error}"),
        }
    }
    let failed = results.iter().filter(|(_, outcome)| outcome.is_err()).count();
    println!("{}", if failed == 0 { "all steps passed".into() } else { format!("{failed} steps FAILED") });
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
