//! The program behind `mutants.sh`: `statements` lists what can be left out, `weave` makes a source with all mutants in it, `sweep`
//! tries each on a command.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tenure_schemata::Mutant;
use tenure_schemata::statements::statements;
use tenure_schemata::sweep::{Stage, Verdict, attempt, open, sweep};
use tenure_schemata::weave::weave_tree;

#[derive(Parser)]
#[command(about = "Weaves the mutants that cargo-mutants lists into one source, and tries each on a command")]
enum Arguments {
    /// Lists the statements of these files, each as a mutant without it, as cargo-mutants would.
    Statements {
        /// The files, from the root of the workspace, where this must be run.
        #[arg(required = true)]
        files: Vec<String>,
    },
    /// Weaves the mutants into a copy of the workspace, and prints what came of each: its number, fate and name.
    Weave {
        /// What `cargo mutants --list --json` printed.
        list: PathBuf,
        /// The copy.
        tree: PathBuf,
        /// The packages that must compile.
        #[arg(required = true)]
        packages: Vec<String>,
    },
    /// Tries the woven mutants that nothing has noticed yet on a command. Fails when the command does without any.
    Sweep(Sweep),
}

#[derive(clap::Args)]
struct Sweep {
    /// What `weave` printed.
    #[arg(long)]
    woven: PathBuf,
    /// Where the results are, and are added.
    #[arg(long)]
    results: PathBuf,
    /// The name of the stage.
    #[arg(long)]
    stage: String,
    /// Seconds after which a trial has hung.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// How many at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// A line that holds this is a failure.
    #[arg(long)]
    fails: Vec<String>,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    match Arguments::parse() {
        Arguments::Statements { files } => {
            let read = |file: &String| std::fs::read_to_string(file).expect("a file can be read");
            let mutants: Vec<_> = files.iter().flat_map(|file| statements(file, &read(file))).collect();
            println!("{}", serde_json::to_string(&mutants).expect("a mutant is plain data"));
            ExitCode::SUCCESS
        }
        Arguments::Weave { list, tree, packages } => {
            let text = std::fs::read_to_string(list).expect("the list can be read");
            let mutants: Vec<Mutant> = serde_json::from_str(&text).expect("a list as cargo-mutants prints it");
            let fates = weave_tree(&tree, &mutants, &packages);
            for (number, (mutant, fate)) in (1..).zip(mutants.iter().zip(fates)) {
                println!("{number}\t{}\t{}", fate.name(), mutant.name);
            }
            ExitCode::SUCCESS
        }
        Arguments::Sweep(given) => run_sweep(given),
    }
}

fn run_sweep(given: Sweep) -> ExitCode {
    let woven = std::fs::read_to_string(&given.woven).expect("the list of woven mutants can be read");
    let number = |line: &str| {
        let (number, rest) = line.split_once('\t')?;
        rest.starts_with("woven\t").then(|| number.parse::<usize>().ok())?
    };
    let numbers: Vec<_> = woven.lines().filter_map(number).collect();
    // No file is no result.
    let results = std::fs::read_to_string(&given.results).unwrap_or_default();
    let Sweep { stage: name, limit, fails, command, .. } = given;
    let stage = Stage { name, limit: Duration::from_secs(limit), fails, command };
    let open = open(&results, &stage.name, &numbers);
    let unarmed = attempt(&stage, 0);
    println!("{}: without a mutant: {unarmed:?}; {} of {} to try", stage.name, open.len(), numbers.len());
    if unarmed != Verdict::Passed {
        return ExitCode::FAILURE;
    }
    sweep(&stage, &open, given.jobs, &given.results);
    ExitCode::SUCCESS
}
