//! Does one case so often: `instructions CASE TIMES`, or lists the cases. Run under callgrind by
//! `benches/instructions.sh`, which takes the difference of two counts, so that start and end of the process do not
//! count.

use std::process::ExitCode;

use tenure_benches::cases::ALL;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let cases = ALL.iter().flat_map(|(bench, cases)| cases.iter().map(move |case| (bench, case)));
    let [wanted, times] = &arguments[..] else {
        cases.for_each(|(bench, (name, _))| println!("{bench}/{name}"));
        return ExitCode::SUCCESS;
    };
    let mut found = cases.filter(|(bench, (name, _))| format!("{bench}/{name}") == *wanted);
    match (found.next(), times.parse()) {
        (Some((_, (_, make))), Ok(times)) => {
            make()(times);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: instructions [CASE TIMES]");
            ExitCode::FAILURE
        }
    }
}
