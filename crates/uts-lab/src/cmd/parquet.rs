//! `uts-lab parquet`.

use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// Write the tables of an experiment as Parquet
///
/// `measures.parquet` has the figures of all runs. For each table of samples there is one file, as
/// `latency.parquet`, with those of all runs and their names in the column `run`. The CSV files
/// stay as they are. The exit status is 1 if a run could not be read, whose samples are then
/// missing. The program has to be built with the feature `parquet`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Directory of the experiment
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Directory for the files [default: DIR/parquet]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Writes the files, and gives the exit status.
///
/// # Errors
/// There is no experiment, or a file cannot be read or written.
#[cfg(feature = "parquet")]
pub fn run(arguments: &Arguments) -> Result<u8> {
    use super::{print_line, tell_line};
    let out = arguments.out.clone().unwrap_or_else(|| arguments.dir.join("parquet"));
    let written = uts_record::parquet::write(&arguments.dir, &out)?;
    for (run, why) in &written.damaged {
        tell_line(format_args!("damaged  {run}: {why}"));
    }
    for (file, rows) in &written.files {
        print_line(&format!("{}: {rows} rows", file.display()))?;
    }
    if written.files.is_empty() {
        print_line(&format!("{}: no run has ended yet", arguments.dir.display()))?;
    }
    Ok(u8::from(!written.damaged.is_empty()))
}

/// Says how to get a program that writes Parquet.
///
/// # Errors
/// Always.
#[cfg(not(feature = "parquet"))]
pub fn run(_arguments: &Arguments) -> Result<u8> {
    anyhow::bail!(
        "this program was built without Parquet; with it: \
         cargo install --locked --path crates/uts-lab --features parquet"
    )
}
