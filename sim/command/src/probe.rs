//! `tenure probe`: what a driver does, asked call by call, as tables of facts.
//!
//! Every row is a short scene of calls through the driver trait, so that one probe serves every driver; calls that the
//! trait does not have go to the bare library ([`raw`]). The last scene resets the device. Rows of the known tables that
//! it does not ask are named: most break what the trait asks of callers. Graphs that allocate, one executable on two streams and capturing streams destroyed are missing.

mod bed;
mod capture;
mod habits;
mod raw;
mod semantics;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use tenure_hip::Hip;
use tenure_sim::facts::{Form, Table, table_of};
use tenure_sim::profile::Profile;

use self::bed::Bed;
use self::raw::Raw;

/// What `tenure probe` takes.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to ask.
    #[arg(long, value_enum, default_value_t)]
    on: Device,
    /// Which driver the simulated device behaves as.
    #[arg(long, default_value = "cuda-13")]
    profile: String,
    /// The folder for `capture.tsv` and `semantics.tsv`. By default both are printed.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Device {
    /// The simulated device.
    #[default]
    Sim,
    /// The first HIP device.
    Hip,
}

/// Asks, and writes the tables; the exit code.
///
/// # Errors
/// A line on what cannot be found, started or written.
pub fn run(arguments: &Arguments) -> Result<u8, String> {
    match arguments.on {
        Device::Sim => {
            let profile = crate::facts::profile(&arguments.profile)?;
            write(arguments, &|| Bed::on_sim(profile.clone()).map(Arc::new))
        }
        Device::Hip => {
            let hip = Hip::open(0).map_err(|error| format!("no HIP device: {error}; see `tenure doctor`"))?;
            eprintln!("hip {} ({})", hip.version(), hip.info());
            let bed = Arc::new(Bed::on_hip(hip)?);
            write(arguments, &|| Ok(bed.clone()))
        }
    }
}

/// Gives each scene its device.
type Fresh<'a, D> = &'a dyn Fn() -> Result<Arc<Bed<D>>, String>;

fn write<D: Raw>(arguments: &Arguments, fresh: Fresh<'_, D>) -> Result<u8, String> {
    let tables = [
        (Form::Capture, "capture.tsv", capture::lines(fresh)?),
        (Form::Semantics, "semantics.tsv", semantics::lines(fresh)?),
    ];
    if let Some(out) = &arguments.out {
        std::fs::create_dir_all(out).map_err(|error| format!("cannot make {}: {error}", out.display()))?;
    }
    for (form, name, lines) in tables {
        let text = format!("{}\n{}\n", form.heading(), lines.join("\n"));
        let table = Table::parse(&text).map_err(|error| format!("{name}: {error}"))?;
        match &arguments.out {
            Some(out) => keep(&out.join(name), &text)?,
            None => print!("{text}"),
        }
        tell(form, name, &table);
    }
    Ok(crate::FINE)
}

fn keep(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// How many of the known rows there are, and which not.
fn tell(form: Form, name: &str, table: &Table) {
    let known = table_of(&Profile::cuda_13(), form);
    let left_out: Vec<&str> =
        known.rows.iter().map(|row| row.id.as_str()).filter(|id| table.row(id).is_none()).collect();
    eprintln!("{name}: {} rows; {} of the known ones are not asked", table.rows.len(), left_out.len());
    let mut last = Vec::new();
    for id in left_out {
        let what = id.rsplit(" / ").next().unwrap_or(id);
        if !last.contains(&what) {
            eprintln!("  {what}");
            last.push(what);
        }
    }
}
