//! Prints what HIP is like on this machine. Exits with 1 where no device can be used.

use std::process::ExitCode;

fn main() -> ExitCode {
    let doctor = tenure_hip::doctor();
    println!("{doctor}");
    if doctor.verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
