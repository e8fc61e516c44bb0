//! A witness for each happens-before edge of the core: plain memory that only the edge keeps from being a data race.
//!
//! The models have a device of their own, whose lock orders its callers; Miri and ThreadSanitizer would see that order
//! and no mistake. So these programs are about the core's primitives alone, over std's atomics, parking_lot and
//! arc-swap as production has them. Miri also watches every unsafe line that they pass. The core is the one with the
//! planted defects in it: with an ordering weakened, the witness must be reported as a race.
//!
//! `tenure-racing WITNESS ROUNDS [DEFECT]` runs one; without arguments it lists them, with the defects that each must
//! show. `verification/weak-memory.sh` does the rest.

extern crate tenure_broken as tenure;

#[path = "../../../benches/src/null.rs"]
#[allow(dead_code, reason = "only what a driver must have is used here")]
mod null;
mod witness;

use std::process::ExitCode;

use self::witness::WITNESSES;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => list(),
        [name, rounds] => run(name, rounds, None),
        [name, rounds, defect] => run(name, rounds, Some(defect)),
        _ => usage(),
    }
}

fn list() -> ExitCode {
    for witness in WITNESSES {
        println!("{} {}", witness.name, witness.defects.join(" "));
    }
    ExitCode::SUCCESS
}

fn run(name: &str, rounds: &str, defect: Option<&str>) -> ExitCode {
    let witness = WITNESSES.iter().find(|witness| witness.name == name);
    let (Some(witness), Ok(rounds)) = (witness, rounds.parse::<u32>()) else { return usage() };
    tenure::planted::arm(defect);
    let reached = (0..rounds).filter(|round| (witness.body)(*round)).count();
    println!("{name}: {reached} of {rounds} rounds met");
    // A witness that was never touched from both sides has shown nothing.
    if reached == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn usage() -> ExitCode {
    eprintln!("usage: tenure-racing [WITNESS ROUNDS [DEFECT]]");
    ExitCode::from(2)
}
