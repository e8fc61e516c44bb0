//! Searches the machines, a line each; exits with 1 when one fails.

use std::process::ExitCode;

use clap::Parser;
use tenure_explore::{Line, MACHINES};

#[derive(Parser)]
#[command(about = "Searches every state that the core's machines can reach, within stated sizes")]
struct Arguments {
    /// Print one line of JSON a machine.
    #[arg(long)]
    json: bool,
    /// Only machines whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Also check, for every n-th state that is met again, that its key tells enough; 0 for none.
    #[arg(long, default_value_t = 101)]
    audit: usize,
    /// Show how each planted mistake is found.
    #[arg(long)]
    planted: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let chosen: Vec<_> = MACHINES.into_iter().filter(|(name, _)| name.contains(&arguments.only)).collect();
    // A run that searched nothing has shown nothing.
    let mut sound = !chosen.is_empty();
    for (_, run) in chosen {
        let line = run(arguments.audit);
        sound &= line.failure.is_none();
        print(&line, &arguments);
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(line: &Line, arguments: &Arguments) {
    if arguments.json {
        println!("{}", serde_json::to_string(line).expect("a line is plain data"));
        return;
    }
    let Line { name, sizes, lines, states, transitions, depth, seconds, planted, caught, .. } = line;
    let head = format!("{name:<14} {sizes:<38} {states:>8} states {transitions:>8} transitions, depth {depth:>2}");
    println!("{head}  {caught:>2}/{planted:<2} planted caught  {seconds:>5.1} s  {lines}");
    if let Some(failure) = &line.failure {
        println!("  FAILED: {failure}");
    }
    if arguments.planted || line.caught < line.planted {
        line.told.iter().for_each(|told| println!("{told}"));
    }
}
