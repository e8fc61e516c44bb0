//! Searches the machines, a line each; exits with 1 when one fails.

use std::process::ExitCode;

use clap::Args;

use super::{Line, MACHINES};

/// What to search, and what to print.
#[derive(Args)]
pub struct Order {
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

/// Searches the machines that the order names.
pub fn run(order: &Order) -> ExitCode {
    let chosen: Vec<_> = MACHINES.into_iter().filter(|(name, _)| name.contains(&order.only)).collect();
    // A run that searched nothing has shown nothing.
    let mut sound = !chosen.is_empty();
    for (_, run) in chosen {
        let line = run(order.audit);
        sound &= line.failure.is_none();
        print(&line, order);
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(line: &Line, order: &Order) {
    if order.json {
        println!("{}", serde_json::to_string(line).expect("a line is plain data"));
        return;
    }
    let Line { name, sizes, lines, states, transitions, depth, seconds, planted, caught, .. } = line;
    let head = format!("{name:<14} {sizes:<38} {states:>8} states {transitions:>8} transitions, depth {depth:>2}");
    println!("{head}  {caught:>2}/{planted:<2} planted caught  {seconds:>5.1} s  {lines}");
    if let Some(failure) = &line.failure {
        println!("  FAILED: {failure}");
    }
    if order.planted || line.caught < line.planted {
        line.told.iter().for_each(|told| println!("{told}"));
    }
}
