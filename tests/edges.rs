//! The matrices: every public call in every place and state, every callback, object, driver call and value at its
//! edges, on every profile.
//!
//! ```text
//! edges [--json] [--matrix NAME] [--profile NAME|all] [--threads N] [--sample N] [--write]
//! ```
//! Cells that hang or answer something else than `tests/matrix/*.tsv` say are told; the exit code is then 1. `--sample N`
//! takes one cell of N, by a hash. `--write` writes the tables anew from what was seen, to be reviewed as any change.

use std::process::ExitCode;

use tenure_sim::profile::Profile;
use tenure_tests::faulty::OnPurpose;
use tenure_tests::matrix::answer::Answers;
use tenure_tests::matrix::{self, Cell, world::GUARDED};

struct Options {
    json: bool,
    matrix: String,
    profile: String,
    threads: usize,
    sample: usize,
    write: bool,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(mistake) => {
            eprintln!("edges: {mistake}");
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|panic| {
        if !panic.payload().is::<OnPurpose>() {
            eprintln!("{}: {panic}", std::thread::current().name().unwrap_or("a thread"));
        }
    }));
    let named = Profile::NAMES.iter().copied().chain([GUARDED]);
    let profiles: Vec<&'static str> =
        named.filter(|name| options.profile == "all" || options.profile == *name).collect();
    let cells = matrix::cells(&options.matrix, &profiles);
    let cells = sample(cells, options.sample as u64);
    if cells.is_empty() {
        eprintln!("edges: no cells: nothing would be shown");
        return ExitCode::from(2);
    }
    let summary = matrix::run(cells, options.threads);
    if options.write
        && let Err(error) = Answers::write(&summary.answers)
    {
        eprintln!("edges: {error}");
        return ExitCode::from(2);
    }
    summary.complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
    if options.json {
        println!("{}", summary.json());
    } else {
        for (name, tally) in &summary.by_matrix {
            println!("{name}: {tally:?}");
        }
        println!("all: {:?}", summary.total);
    }
    // Threads that hang are left behind.
    let is_right = summary.total.hung == 0 && summary.total.wrong == 0;
    std::process::exit(i32::from(!is_right));
}

/// One cell of `of`, whatever the lengths of rows and columns have in common with that number.
fn sample(cells: Vec<Cell>, of: u64) -> Vec<Cell> {
    let is_taken = |index: usize| (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    cells.into_iter().enumerate().filter(|(index, _)| is_taken(*index) % of == 0).map(|(_, cell)| cell).collect()
}

fn options() -> Result<Options, String> {
    let (matrix, profile) = (String::new(), "all".to_owned());
    let mut options = Options { json: false, matrix, profile, threads: 4, sample: 1, write: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<usize>().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--json" => options.json = true,
            "--write" => options.write = true,
            "--matrix" => options.matrix = value()?,
            "--profile" => options.profile = value()?,
            "--threads" => options.threads = number(value()?)?,
            "--sample" => options.sample = number(value()?)?.max(1),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    let is_known = ["all", GUARDED].contains(&&*options.profile) || Profile::NAMES.contains(&options.profile.as_str());
    if is_known { Ok(options) } else { Err(format!("no profile {}: {:?}", options.profile, Profile::NAMES)) }
}
