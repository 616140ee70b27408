//! `uts-lab list`.

use super::print_line;
use crate::experiment::case::Case;
use crate::experiment::file::{Experiment, WorldKind};
use crate::experiment::plan::Plan;
use crate::runner::Only;
use crate::shard::Shard;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use uts_record::directory::{Runs, read_runs};
use uts_record::plan::{self as record, PLAN_FILE};

/// State of a run whose record cannot be read; `uts lab run` does it again.
const DAMAGED: &str = "damaged";

/// Where experiments and their results are, unless said.
const FOLDERS: [&str; 2] = ["experiments", "lab-out"];

/// List experiments, or the runs of one
///
/// A folder: its experiment files, and its directories of results with their progress. A directory
/// of results: its runs with their state. An experiment file: the runs that it describes.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A folder, a directory of results or an experiment file [default: experiments and lab-out]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

/// Prints the list.
///
/// # Errors
/// The path cannot be read, or there is nothing to list.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Some(path) = &arguments.path else {
        let folders: Vec<&Path> = FOLDERS.iter().map(Path::new).filter(|folder| folder.is_dir()).collect();
        if folders.is_empty() {
            bail!("there is neither a folder experiments nor lab-out here; name one");
        }
        return folders.into_iter().try_for_each(|folder| folder_of(folder).map(|_| ()));
    };
    if path.is_file() {
        return print_plan(&Experiment::load(path)?, &[], &[], None);
    }
    if path.join(PLAN_FILE).is_file() {
        return results(path);
    }
    if !folder_of(path)? {
        bail!("{} has neither an experiment file nor results", path.display());
    }
    Ok(())
}

/// Prints the runs that an experiment means.
pub(super) fn print_plan(
    experiment: &Experiment,
    worlds: &[WorldKind],
    only: &[Only],
    shard: Option<Shard>,
) -> Result<()> {
    let plan = Plan::new(experiment, worlds)?;
    shard.map_or(Ok(()), |shard| shard.check(&plan))?;
    let runs: Vec<&String> = plan
        .ids
        .iter()
        .zip(&plan.cases)
        .enumerate()
        .filter(|(place, _)| shard.is_none_or(|shard| shard.takes(*place)))
        .filter(|(_, (id, case))| only.iter().all(|only| only.takes(id, case)))
        .map(|(_, (id, _))| id)
        .collect();
    print_line(&format!("{}: {} runs", experiment.title, runs.len()))?;
    for id in runs {
        print_line(&format!("  {id}"))?;
    }
    Ok(())
}

/// The experiments and results of a folder; whether there are any.
fn folder_of(folder: &Path) -> Result<bool> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = false;
    for path in paths {
        if path.extension().is_some_and(|e| e == "toml") {
            found = true;
            match Experiment::load(&path) {
                Ok(experiment) => {
                    let runs = Plan::new(&experiment, &[]).map_or(0, |plan| plan.cases.len());
                    let worlds: Vec<&str> = experiment.worlds.iter().map(|world| world.name()).collect();
                    let shown = path.display().to_string();
                    print_line(&format!(
                        "{shown:<40} {:>6} runs in {:<7} {}",
                        runs,
                        worlds.join("+"),
                        experiment.title
                    ))?;
                }
                Err(e) => print_line(format!("{e:#}").lines().next().unwrap_or_default())?,
            }
        } else if path.join(PLAN_FILE).is_file() {
            found = true;
            let state = state(&path).unwrap_or_else(|e| format!("{DAMAGED}: {e:#}"));
            print_line(&format!("{:<40} {state}", path.display().to_string()))?;
        }
    }
    Ok(found)
}

/// `12 ok, 3 skipped, 5 not run of 20: Title`.
fn state(dir: &Path) -> Result<String> {
    Ok(counted(&record::Plan::read(dir)?, &read_runs(dir)?))
}

fn counted(plan: &record::Plan, runs: &Runs<Case>) -> String {
    let planned = planned(plan);
    let state = |id: &str| match runs.whole.get(id) {
        Some(run) => run.status.name(),
        None if runs.damaged.contains_key(id) => DAMAGED,
        None => "not run",
    };
    let names = ["ok", "failed", "invalid", "skipped", DAMAGED, "not run"];
    let counts = names.into_iter().filter_map(|name| {
        let count = planned.iter().filter(|id| state(id) == name).count();
        (count > 0).then(|| format!("{count} {name}"))
    });
    let counts: Vec<String> = counts.collect();
    format!("{} of {}: {}", counts.join(", "), planned.len(), plan.title)
}

fn planned(plan: &record::Plan) -> Vec<&str> {
    plan.runs.iter().map(|run| run.id.as_str()).collect()
}

fn results(dir: &Path) -> Result<()> {
    let plan = record::Plan::read(dir)?;
    let runs = read_runs(dir)?;
    print_line(&counted(&plan, &runs))?;
    for id in planned(&plan) {
        match (runs.whole.get(id), runs.damaged.get(id)) {
            (Some(run), _) => {
                let why = run.why.as_deref().unwrap_or_default();
                print_line(&format!(
                    "{:<8} {:>7.1} s  {id}  {why}",
                    run.status.name(),
                    run.elapsed_s.unwrap_or_default()
                ))?;
            }
            (None, Some(why)) => print_line(&format!("{DAMAGED:<8} {:>9}  {id}  {why}", ""))?,
            (None, None) => print_line(&format!("{:<8} {:>9}  {id}", "not run", ""))?,
        }
    }
    Ok(())
}
