//! Does what is missing of an experiment.
//!
//! A run that has ended stands whole in the directory and is never done again, unless it was skipped or the caller asks.
//! A run is begun beside, and renamed when it has ended: whatever kills this process, what is left is a directory that the
//! same command continues.

use super::case::Case;
use super::derived;
use super::directory::{self, Directory};
use super::file::{Experiment, WorldKind};
use super::machine;
use super::outcome::{Outcome, RunError, RunFile, RunStatus};
use super::plan::Plan;
use super::progress::Progress;
use crate::control::Controls;
use crate::worlds::{self, Room, World, ends::Programs};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How often a run is tried that its world finds invalid.
pub const ATTEMPTS_MAX: u32 = 3;

/// How often measures.csv is brought up to date while runs go on.
const REFRESH: Duration = Duration::from_secs(5);

/// How to run an experiment.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Where everything is kept.
    pub out: PathBuf,
    /// In these worlds rather than the file's; empty for the file's.
    pub worlds: Vec<WorldKind>,
    /// Only runs that fit all of these.
    pub only: Vec<Only>,
    /// Whether runs that failed or were invalid are done again.
    pub retry: bool,
    /// At most so many runs at a time; `None` for as many as the world and the processors allow.
    pub jobs: Option<usize>,
    /// Shows nothing but what went wrong.
    pub quiet: bool,
    /// The programs that are ends.
    pub programs: Programs,
    /// Whether a running path may be changed through a socket.
    pub control: bool,
}

/// Which runs to do: those whose name contains a text, or in which a name has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Only {
    /// Part of the ID.
    Id(String),
    /// `transport`, `workload`, `path`, `mixture`, `world`, `repetition` or a sweep, and its value.
    Value(String, String),
}

impl std::str::FromStr for Only {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(match text.split_once('=') {
            Some((name, value)) => Only::Value(name.trim().into(), value.trim().into()),
            None => Only::Id(text.into()),
        })
    }
}

impl Only {
    /// Whether a run fits.
    pub fn takes(&self, id: &str, case: &Case) -> bool {
        match self {
            Only::Id(part) => id.contains(part.as_str()),
            Only::Value(name, value) => match name.as_str() {
                "world" => case.world.name() == value,
                "path" => case.path_name() == *value || case.hops.iter().any(|hop| hop.name == *value),
                "transport" => case.flows.iter().any(|flow| flow.transport_name == *value),
                "workload" => case.flows.iter().any(|flow| flow.workload_name == *value),
                "mixture" => case.mixture.as_deref().unwrap_or_default() == value,
                "repetition" => case.repetition.to_string() == *value,
                sweep => case.sweep.iter().any(|(name, text)| name == sweep && text == value),
            },
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many runs of the plan have each state; what has none has not been run.
    pub counts: BTreeMap<&'static str, usize>,
    /// How many were done now.
    pub done_now: usize,
    /// How many are still to be done.
    pub missing: usize,
    /// Runs in the directory that the file does not name any more.
    pub others: usize,
    /// Why runs were skipped, and how many for each reason.
    pub skipped: BTreeMap<String, usize>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// Does what is missing. `stop` ends it early; what has ended is kept.
///
/// # Errors
/// The experiment makes no sense, or the directory cannot be written.
pub fn run(experiment: &Experiment, config: &RunConfig, stop: &AtomicBool) -> Result<Summary> {
    let plan = Plan::new(experiment, &config.worlds)?;
    check_only(&plan, &config.only)?;
    let directory = Directory::open(&config.out)?;
    let known = directory::read_runs(directory.path())?;
    directory.replace("experiment.toml", experiment.text.as_bytes())?;
    directory.replace("plan.json", &serde_json::to_vec_pretty(&plan.to_json(experiment))?)?;
    directory.replace("machine.json", &serde_json::to_vec_pretty(&machine::describe())?)?;

    let is_done = |id: &String| {
        known.get(id).is_some_and(|run| match run.status {
            RunStatus::Ok => true,
            RunStatus::Failed | RunStatus::Invalid => !config.retry,
            // What it lacked may be here by now.
            RunStatus::Skipped => false,
        })
    };
    let wanted = |i: &usize| config.only.iter().all(|only| only.takes(&plan.ids[*i], &plan.cases[*i]));
    let wanted: Vec<usize> = (0..plan.ids.len()).filter(wanted).collect();
    let pending: Vec<usize> = wanted.iter().copied().filter(|i| !is_done(&plan.ids[*i])).collect();
    let progress = Progress::new(wanted.len(), wanted.len() - pending.len(), config.quiet);
    let others = known.keys().filter(|id| !plan.ids.contains(id)).count();
    let work = Work {
        experiment,
        plan: &plan,
        directory: &directory,
        runs: Mutex::new(known),
        progress: &progress,
        stop,
        refreshed: Mutex::new(Instant::now()),
        done: AtomicUsize::new(0),
    };
    let result = run_worlds(&work, config, &pending);
    work.refresh()?;
    result?;
    Ok(work.summary(others))
}

/// A filter that no run fits is a mistake.
fn check_only(plan: &Plan, only: &[Only]) -> Result<()> {
    for one in only {
        if !plan.ids.iter().zip(&plan.cases).any(|(id, case)| one.takes(id, case)) {
            let shown = match one {
                Only::Id(part) => part.clone(),
                Only::Value(name, value) => format!("{name}={value}"),
            };
            anyhow::bail!(
                "--only {shown}: no run of the experiment is so; `uts lab list FILE.toml` shows them"
            );
        }
    }
    Ok(())
}

fn run_worlds(work: &Work<'_>, config: &RunConfig, pending: &[usize]) -> Result<()> {
    let is_real_time = pending.iter().any(|i| work.plan.cases[*i].world != WorldKind::Sim);
    let controls = match config.control && is_real_time {
        true => Controls::listen(format!("`{}`", work.experiment.title)).unwrap_or_else(|e| {
            work.progress.tell(&format!("`uts lab set` will not find this: {e:#}"));
            Controls::default()
        }),
        false => Controls::default(),
    };
    for kind in WorldKind::ALL {
        let here: Vec<usize> =
            pending.iter().copied().filter(|i| work.plan.cases[*i].world == kind).collect();
        if here.is_empty() || work.stop.load(Ordering::Relaxed) {
            continue;
        }
        let world = match worlds::open(kind, &config.programs) {
            Ok(world) => world,
            Err(why) => {
                here.iter().try_for_each(|i| work.skip(*i, &why))?;
                continue;
            }
        };
        let jobs = world.parallel().min(config.jobs.unwrap_or(usize::MAX)).clamp(1, here.len());
        let next = AtomicUsize::new(0);
        let worker = || -> Result<()> {
            while !work.stop.load(Ordering::Relaxed) {
                let Some(i) = here.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                if let Err(e) = work.one(&*world, *i, &controls) {
                    // A directory that cannot be written ends it for all.
                    work.stop.store(true, Ordering::Relaxed);
                    return Err(e);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|result| result.unwrap_or_else(|_| anyhow::bail!("a worker panicked")))
                .collect::<Result<()>>()
        })?;
    }
    Ok(())
}

struct Work<'w> {
    experiment: &'w Experiment,
    plan: &'w Plan,
    directory: &'w Directory,
    /// All runs of the directory, by name.
    runs: Mutex<HashMap<String, RunFile>>,
    progress: &'w Progress,
    stop: &'w AtomicBool,
    refreshed: Mutex<Instant>,
    done: AtomicUsize,
}

impl Work<'_> {
    /// Does one run, as often as it takes.
    fn one(&self, world: &dyn World, i: usize, controls: &Controls) -> Result<()> {
        let (id, case) = (&self.plan.ids[i], &self.plan.cases[i]);
        if let Some(why) = world.refuses(case) {
            return self.skip(i, &why);
        }
        let mut attempts = Vec::new();
        loop {
            let running = self.progress.begin(case, attempts.len() as u32 + 1);
            let dir = self.directory.begin(id)?;
            let room = Room { dir: &dir, stop: self.stop, controls };
            let (began, started) = (Instant::now(), SystemTime::now());
            let result = catch_unwind(AssertUnwindSafe(|| world.run(case, &room)));
            let result =
                result.unwrap_or_else(|panic| Err(RunError::Failed(format!("panicked: {}", words(&*panic)))));
            let mut run = match result {
                Err(RunError::Interrupted) => {
                    self.directory.abandon(id);
                    return Ok(());
                }
                // What fails while everything is told to stop fails for that reason.
                Err(_) if self.stop.load(Ordering::Relaxed) => {
                    self.directory.abandon(id);
                    return Ok(());
                }
                Err(RunError::Failed(why)) => RunFile::bare(id, case, RunStatus::Failed, why),
                Ok(outcome) => finished(id, case, outcome),
            };
            run.started_unix_s =
                started.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
            run.elapsed_s = began.elapsed().as_secs_f64();
            let by_hand = !run.interventions.is_empty();
            if run.status == RunStatus::Invalid && !by_hand && attempts.len() + 1 < ATTEMPTS_MAX as usize {
                let why = run.why.unwrap_or_default();
                self.progress.line(&format!("again    {id}: {why}"));
                attempts.push(why);
                continue;
            }
            run.attempts = attempts;
            self.directory.finish(&run)?;
            self.progress.end(running, &run);
            return self.keep(run);
        }
    }

    fn skip(&self, i: usize, why: &str) -> Result<()> {
        let run = RunFile::bare(&self.plan.ids[i], &self.plan.cases[i], RunStatus::Skipped, why);
        let running = self.progress.begin(&run.case, 1);
        self.directory.begin(&run.id)?;
        self.directory.finish(&run)?;
        self.progress.end(running, &run);
        self.keep(run)
    }

    fn keep(&self, run: RunFile) -> Result<()> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run.id.clone(), run);
        self.done.fetch_add(1, Ordering::Relaxed);
        let is_due = {
            let mut refreshed = self.refreshed.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = refreshed.elapsed() > REFRESH;
            if is_due {
                *refreshed = Instant::now();
            }
            is_due
        };
        if is_due { self.refresh() } else { Ok(()) }
    }

    fn refresh(&self) -> Result<()> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let text = directory::measures(self.plan, &self.experiment.sweeps, &runs);
        self.directory.replace("measures.csv", &text).context("the figures")
    }

    fn summary(self, others: usize) -> Summary {
        let runs = self.runs.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut summary = Summary {
            done_now: self.done.into_inner(),
            others,
            interrupted: self.stop.load(Ordering::Relaxed),
            ..Summary::default()
        };
        for id in &self.plan.ids {
            let Some(run) = runs.get(id) else {
                summary.missing += 1;
                continue;
            };
            *summary.counts.entry(run.status.name()).or_default() += 1;
            if run.status == RunStatus::Skipped {
                *summary.skipped.entry(run.why.clone().unwrap_or_default()).or_default() += 1;
            }
        }
        summary
    }
}

fn finished(id: &str, case: &Case, mut outcome: Outcome) -> RunFile {
    derived::add(case, &mut outcome);
    if let Some(first) = outcome.interventions.first() {
        let why = format!("the path was changed by hand at {:.1} s: {}", first.t_s, first.change);
        outcome.invalid.get_or_insert(why);
    }
    RunFile::of(id, case, outcome)
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}
