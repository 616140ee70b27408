//! `uts-lab run`.

use super::{PROGRAM, print_line, tell_line};
use crate::experiment::file::{Experiment, WorldKind};
use crate::runner::{self, Only, RunConfig, Summary};
use crate::shard::Shard;
use crate::worlds::ends::Programs;
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use uts_end::signals::{self, INTERRUPTED};

/// Run an experiment, or what is missing of it
///
/// Runs that have ended are kept in the directory and not done again. The same command continues an
/// interrupted experiment, and extends an experiment whose file has grown. If a world or a
/// transport cannot carry a run, it is skipped with the reason. docs/lab.md describes the file and
/// the results.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The experiment
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Directory of the results [default: lab-out/ and the file's name, with world and shard]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// World to run in, instead of the file's; may be repeated
    #[arg(long, value_name = "WORLD")]
    world: Vec<WorldKind>,
    /// Only runs that match: NAME=VALUE, as transport=cubic or buffer=5p, or part of a run's name;
    /// if repeated, all must match
    #[arg(long, value_name = "WHICH")]
    only: Vec<Only>,
    /// Only each N-th run of the plan, beginning with the I-th: the part of one machine of N; in
    /// virtual time only. `merge` puts the parts together
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Repeat runs that failed or were invalid
    #[arg(long)]
    retry: bool,
    /// Runs at a time [default: the number of cores in sim, otherwise one]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print only what went wrong
    #[arg(long, short)]
    quiet: bool,
    /// Read the file and list its runs, but run nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs the experiment; gives the exit status.
///
/// # Errors
/// The file is wrong, or the directory cannot be written.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let experiment = Experiment::load(&arguments.file)?;
    if arguments.dry_run {
        super::list::print_plan(&experiment, &arguments.world, &arguments.only, arguments.shard)?;
        return Ok(0);
    }
    let out = arguments.out.clone().unwrap_or_else(|| default_out(arguments));
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let config = RunConfig {
        worlds: arguments.world.clone(),
        only: arguments.only.clone(),
        shard: arguments.shard,
        retry: arguments.retry,
        jobs: arguments.jobs.map(usize::from),
        quiet: arguments.quiet,
        programs: Programs::new(program, &["end"]),
        control: true,
        out,
    };
    // What runs ends in order.
    let stop = signals::end_flag().context("cannot catch signals")?;
    let summary = runner::run(&experiment, &config, &stop)?;
    tell(&summary, arguments, &config);
    Ok(status(&summary))
}

fn default_out(arguments: &Arguments) -> PathBuf {
    let mut name = arguments.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for world in &arguments.world {
        name.push_str(&format!("-{world}"));
    }
    if let Some(shard) = arguments.shard {
        name.push_str(&format!("-shard-{}", shard.to_string().replace('/', "-of-")));
    }
    PathBuf::from("lab-out").join(name)
}

fn tell(summary: &Summary, arguments: &Arguments, config: &RunConfig) {
    let say = |line: String| {
        if !arguments.quiet {
            // Where it is lost the directory has it, and the exit status says so.
            let _ = print_line(&line);
        }
    };
    for (why, count) in &summary.skipped {
        say(format!("skipped {count}: {why}"));
    }
    if summary.others > 0 {
        say(format!(
            "{} has {} other runs, of an earlier state of the file or another world: left as they are",
            config.out.display(),
            summary.others
        ));
    }
    if let Some(shard) = arguments.shard {
        let planned = summary.counts.values().sum::<usize>() + summary.missing;
        say(match summary.asked {
            0 => format!("shard {shard} is empty: it has none of the {planned} runs"),
            asked => format!("shard {shard} has {asked} of the {planned} runs"),
        });
    }
    let counts: Vec<String> = ["ok", "failed", "invalid", "skipped"]
        .into_iter()
        .filter_map(|state| Some(format!("{} {state}", summary.counts.get(state)?)))
        .chain((summary.missing > 0).then(|| format!("{} not run", summary.missing)))
        .collect();
    say(format!("{}: {}", config.out.display(), counts.join(", ")));
    if summary.interrupted && arguments.quiet {
        // Whoever has ended it knows.
    } else if summary.interrupted {
        tell_line(format_args!("{}: interrupted; the same command continues", PROGRAM));
    } else {
        say(format!("report: {} report {}", PROGRAM, config.out.display()));
    }
}

fn status(summary: &Summary) -> u8 {
    if summary.interrupted {
        return INTERRUPTED;
    }
    let went_wrong = ["failed", "invalid"].iter().any(|state| summary.counts.contains_key(state));
    u8::from(went_wrong)
}
