//! `uts-lab merge`.

use super::{PROGRAM, print_line, tell_line};
use crate::experiment::measures::measures;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use uts_record::merge::merge;
use uts_record::run::RunStatus;

/// Number of missing runs that are named.
const NAMED_MAX: usize = 10;

/// Put the results of shards together
///
/// The directories are those of `run --shard`, or any others of one experiment in virtual time. The
/// result equals that of a run without shards. Directories of different experiments or versions of
/// this program, and runs that contradict each other, are refused before anything is written. The
/// exit status is 1 if a run is missing, failed or is invalid.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Directory of the whole; new, or with runs of the experiment, which are kept
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Directories of the parts; they are only read
    #[arg(value_name = "DIR", required = true)]
    from: Vec<PathBuf>,
}

/// Merges; gives the exit status.
///
/// # Errors
/// The directories do not go together, or the whole cannot be written.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let merged = merge(&arguments.out, &arguments.from, measures)?;
    for (run, why) in &merged.damaged {
        tell_line(format_args!("damaged  {}: {why}", run.display()));
    }
    for id in merged.missing.iter().take(NAMED_MAX) {
        tell_line(format_args!("missing  {id}"));
    }
    let out = arguments.out.display();
    if merged.missing.len() > NAMED_MAX {
        let more = merged.missing.len() - NAMED_MAX;
        tell_line(format_args!("missing  {more} more; {} list {out} shows them", PROGRAM));
    }
    if merged.others > 0 {
        print_line(&format!("left out {} runs that the experiment does not name", merged.others))?;
    }
    let count = |status: RunStatus| merged.runs.values().filter(|run| run.status == status).count();
    let states = [RunStatus::Ok, RunStatus::Failed, RunStatus::Invalid, RunStatus::Skipped];
    let counts = states.map(|status| (count(status), status.name()));
    let counts =
        counts.into_iter().chain([(merged.missing.len(), "not run")]).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    print_line(&format!("{out}: {}", counts.join(", ")))?;
    print_line(&format!("report: {} report {out}", PROGRAM))?;
    let went_wrong = count(RunStatus::Failed) + count(RunStatus::Invalid) + merged.missing.len();
    Ok(u8::from(went_wrong > 0))
}
