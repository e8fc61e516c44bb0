//! What stands behind no model, said line by line.

/// What is not covered of a contract line.
pub fn of(line: &str) -> &'static str {
    match line {
        "O1" | "O4" | "O5" => "more than three threads: argued in `ownership.rs`, sampled by the simulator",
        "O2" => "more than three threads: argued in `point.rs`",
        "O3" => "host access through raw pointers that no view announces",
        "O6" | "O8" => "by tests and the simulator, no model of its own",
        "O7" => "by construction (`id.rs`); the simulator hands out handles again",
        "O9" => "more than three reading streams at once",
        "S1" | "S2" | "S3" | "S5" | "S6" | "S7" => {
            "in models only where the table above counts some; else by tests and the simulator"
        }
        "S4" => "what real drivers do in a query",
        "C1" | "C2" | "C6" | "C7" => "real AMD drivers: profiles are from reading",
        "C3" | "C4" | "C5" | "C8" | "C9" | "C10" => {
            "in models only where the table above counts some; else by tests and the simulator"
        }
        "P1" | "P2" | "P3" | "P5" | "P6" | "P8" | "P9" | "P12" => {
            "registrations of other processes; drivers that overlap in silence are only modelled"
        }
        "P4" => "owners whose memory moves in spite of their promise",
        "P7" => "the time a drop takes: benches, not models",
        "P10" | "P11" => "by tests; a device that never answers is only modelled",
        "R1" | "R2" | "R3" => "by counting drivers and the simulator's checkers",
        "R4" | "R5" | "R6" | "R7" => "by tests and the simulator, no model of its own",
        _ => "",
    }
}
