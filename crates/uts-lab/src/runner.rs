//! Does what is missing of an experiment.
//!
//! A run that has ended stands whole in the directory. It is never done again, unless it was
//! skipped or the caller asks. A run is written beside its final place, and renamed when it has
//! ended. Whatever kills this process, it leaves a directory that the same command continues.

use crate::control::Controls;
use crate::disk::Disk;
use crate::experiment::case::Case;
use crate::experiment::derived;
use crate::experiment::file::{Experiment, WorldKind};
use crate::experiment::machine;
use crate::experiment::measures::measures;
use crate::experiment::outcome::{self, Outcome, RunError, RunFile};
use crate::experiment::plan::Plan;
use crate::progress::Progress;
use crate::shard::Shard;
use crate::worlds::{self, Room, World, ends::Programs};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use uts_record::directory::{self, Directory, EXPERIMENT_FILE, MACHINE_FILE};
use uts_record::measures::MEASURES_FILE;
use uts_record::plan::PLAN_FILE;
use uts_record::run::RunStatus;

/// Number of attempts at a run that its world finds invalid.
pub const ATTEMPTS_MAX: u32 = 3;

/// Interval at which measures.csv is brought up to date while runs go on.
const REFRESH: Duration = Duration::from_secs(5);

/// Settings of the runs of an experiment.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Where everything is kept.
    pub out: PathBuf,
    /// In these worlds rather than the file's; empty for the file's.
    pub worlds: Vec<WorldKind>,
    /// Only runs that fit all of these.
    pub only: Vec<Only>,
    /// Only the runs of this shard; `None` for all.
    pub shard: Option<Shard>,
    /// Runs that failed or were invalid are done again.
    pub retry: bool,
    /// At most this many runs at a time; `None` for as many as the world and the processors allow.
    pub jobs: Option<usize>,
    /// Shows nothing but what went wrong.
    pub quiet: bool,
    /// The programs that are ends.
    pub programs: Programs,
    /// A running path may be changed through a socket.
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
    /// True if a run fits.
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

/// Summary of the runs of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of runs of the plan in each state. A run without a state has not been done.
    pub counts: BTreeMap<&'static str, usize>,
    /// Number of runs that were asked for: all, or a part.
    pub asked: usize,
    /// Number of runs that were done now.
    pub done_now: usize,
    /// Number of runs that are still to be done.
    pub missing: usize,
    /// Runs in the directory that the file does not name any more.
    pub others: usize,
    /// Why runs were skipped, and how many for each reason.
    pub skipped: BTreeMap<String, usize>,
    /// The experiment was interrupted.
    pub interrupted: bool,
}

/// Does what is missing. `stop` ends it early; what has ended is kept.
///
/// # Errors
/// The experiment makes no sense, or the directory cannot be written.
pub fn run(experiment: &Experiment, config: &RunConfig, stop: &AtomicBool) -> Result<Summary> {
    run_in(experiment, config, stop, &|kind| worlds::open(kind, &config.programs))
}

/// Opens a world, or says why this machine has not got it.
type Open<'o> = dyn Fn(WorldKind) -> std::result::Result<Box<dyn World>, String> + 'o;

fn run_in(
    experiment: &Experiment,
    config: &RunConfig,
    stop: &AtomicBool,
    open: &Open<'_>,
) -> Result<Summary> {
    let plan = Plan::new(experiment, &config.worlds)?;
    check_only(&plan, &config.only)?;
    config.shard.map_or(Ok(()), |shard| shard.check(&plan))?;
    let directory = Directory::open(&config.out)?;
    let directory::Runs { whole: known, damaged } = directory::read_runs(directory.path())?;
    directory.replace(EXPERIMENT_FILE, experiment.text.as_bytes())?;
    let record = plan.record(experiment)?;
    directory.replace(PLAN_FILE, &record.to_json()?)?;
    directory.replace(MACHINE_FILE, &serde_json::to_vec_pretty(&machine::describe())?)?;

    let is_done = |id: &String| {
        known.get(id).is_some_and(|run| match run.status {
            RunStatus::Ok => true,
            RunStatus::Failed | RunStatus::Invalid => !config.retry,
            // What it lacked may be here by now.
            RunStatus::Skipped => false,
        })
    };
    let wanted = |i: &usize| {
        config.shard.is_none_or(|shard| shard.takes(*i))
            && config.only.iter().all(|only| only.takes(&plan.ids[*i], &plan.cases[*i]))
    };
    let wanted: Vec<usize> = (0..plan.ids.len()).filter(wanted).collect();
    let pending: Vec<usize> = wanted.iter().copied().filter(|i| !is_done(&plan.ids[*i])).collect();
    let progress = Progress::new(wanted.len(), wanted.len() - pending.len(), config.quiet);
    for (id, why) in &damaged {
        let is_redone = pending.iter().any(|i| plan.ids[*i] == *id);
        let then = if is_redone { "it is run again" } else { "it counts as missing" };
        progress.tell(&format!("damaged  {id}: {why}; {then}"));
    }
    let others = known.keys().filter(|id| !plan.ids.contains(id)).count();
    let work = Work {
        experiment,
        plan: &plan,
        record: &record,
        directory: &directory,
        runs: Mutex::new(known),
        progress: &progress,
        pending: AtomicUsize::new(pending.len()),
        at_once: AtomicUsize::new(1),
        disk: Disk::default(),
        stop,
        refreshed: Mutex::new(Instant::now()),
        done: AtomicUsize::new(0),
    };
    let result = run_worlds(&work, config, &pending, open);
    work.refresh()?;
    result?;
    Ok(Summary { asked: wanted.len(), ..work.summary(others) })
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

fn run_worlds(work: &Work<'_>, config: &RunConfig, pending: &[usize], open: &Open<'_>) -> Result<()> {
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
        let world = match open(kind) {
            Ok(world) => world,
            Err(why) => {
                here.iter().try_for_each(|i| work.skip(*i, &why))?;
                continue;
            }
        };
        let jobs = world.parallel().min(config.jobs.unwrap_or(usize::MAX)).clamp(1, here.len());
        work.at_once.store(jobs, Ordering::Relaxed);
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
            let mut joined = threads.into_iter().map(|thread| thread.join());
            joined.try_for_each(|result| result.unwrap_or_else(|_| anyhow::bail!("a worker panicked")))
        })?;
    }
    Ok(())
}

struct Work<'w> {
    experiment: &'w Experiment,
    plan: &'w Plan,
    /// The same, as it is written down.
    record: &'w uts_record::plan::Plan,
    directory: &'w Directory,
    /// All runs of the directory, by name.
    runs: Mutex<HashMap<String, RunFile>>,
    progress: &'w Progress,
    /// Runs that are still to be done, and how many are at a time.
    pending: AtomicUsize,
    at_once: AtomicUsize,
    disk: Disk,
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
                Err(RunError::Failed(why)) => outcome::bare(id, case, RunStatus::Failed, why),
                Ok(outcome) => finished(id, case, outcome),
            };
            run.started_unix_s =
                started.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
            run.elapsed_s = Some(began.elapsed().as_secs_f64());
            let by_hand = !run.interventions.is_empty();
            if run.status == RunStatus::Invalid && !by_hand && attempts.len() + 1 < ATTEMPTS_MAX as usize {
                let why = run.why.unwrap_or_default();
                self.progress.line(&format!("again    {id}: {why}"));
                attempts.push(why);
                continue;
            }
            run.attempts = attempts;
            let most_bytes = if case.record.compress { self.directory.compress(id)? } else { 0 };
            self.directory.finish(&run)?;
            self.progress.end(running, &run);
            return self.keep(run, most_bytes);
        }
    }

    fn skip(&self, i: usize, why: &str) -> Result<()> {
        let run = outcome::bare(&self.plan.ids[i], &self.plan.cases[i], RunStatus::Skipped, why);
        let running = self.progress.begin(&run.case, 1);
        self.directory.begin(&run.id)?;
        self.directory.finish(&run)?;
        self.progress.end(running, &run);
        self.keep(run, 0)
    }

    /// Keeps a run that is written, and took so many bytes at most before it was compressed.
    fn keep(&self, run: RunFile, most_bytes: u64) -> Result<()> {
        let (is_skipped, dir) = (run.status == RunStatus::Skipped, self.directory.run(&run.id));
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run.id.clone(), run);
        self.done.fetch_add(1, Ordering::Relaxed);
        let to_come = self.pending.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
        if !is_skipped {
            let at_once = self.at_once.load(Ordering::Relaxed);
            let outlook = self.disk.on_run(&dir, most_bytes, to_come, at_once)?;
            match outlook {
                Some(outlook) if outlook.is_warning => self.progress.tell(&outlook.line),
                Some(outlook) => self.progress.line(&outlook.line),
                None => {}
            }
        }
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
        let text = measures(self.record, &runs);
        self.directory.replace(MEASURES_FILE, &text).context("the figures")
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
        // What somebody did comes before what the machine did.
        let by_hand = format!("the path was changed by hand at {:.1} s: {}", first.t_s, first.change);
        outcome.invalid = Some(match outcome.invalid.take() {
            Some(other) => format!("{by_hand}; {other}"),
            None => by_hand,
        });
    }
    outcome::file_of(id, case, outcome)
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use uts_record::run::{Figure, Intervention};

    /// Does what its script says for each transport, and counts.
    #[derive(Default)]
    struct Scripted(Mutex<HashMap<String, u32>>);

    impl World for &'static Scripted {
        fn kind(&self) -> WorldKind {
            WorldKind::Sim
        }

        fn parallel(&self) -> usize {
            4
        }

        fn refuses(&self, case: &Case) -> Option<String> {
            (case.transport_name() == "refused").then(|| "not here".into())
        }

        fn run(&self, case: &Case, room: &Room<'_>) -> std::result::Result<Outcome, RunError> {
            let name = case.transport_name();
            let nth = *self.0.lock().unwrap().entry(case.id()).and_modify(|n| *n += 1).or_insert(1);
            std::fs::write(room.dir.join("samples/x.csv"), nth.to_string()).unwrap();
            let mut outcome =
                Outcome { measures: vec![Figure::new(&name, "goodput", 1e6, "bit/s")], ..Outcome::default() };
            match name.as_str() {
                "late-once" if nth == 1 => outcome.invalid = Some("late".into()),
                "late" => outcome.invalid = Some(format!("late, the {nth}. time")),
                "touched" => {
                    outcome.interventions = vec![Intervention { t_s: 1.0, change: "wan both down".into() }];
                    outcome.invalid = (case.repetition == 2).then(|| "late".into());
                }
                "fails" => return Err(RunError::Failed("no answer".into())),
                "panics" => panic!("at {nth}"),
                _ => {}
            }
            Ok(outcome)
        }
    }

    const NAMES: [&str; 7] = ["good", "late-once", "late", "touched", "fails", "panics", "refused"];

    fn experiment() -> Experiment {
        let mut text = "title = 'x'\nrepetitions = 2\n[path.wan]\nforward = 'rate=2mbit'\n\
                        [workload.file]\nkind = 'bulk'\nbytes = '1kB'\n"
            .to_owned();
        for name in NAMES {
            text.push_str(&format!("[transport.{name}]\nkind = 'uts'\n"));
        }
        Experiment::parse(Path::new("x.toml"), &text).unwrap()
    }

    fn config(out: &Path) -> RunConfig {
        RunConfig {
            out: out.to_owned(),
            worlds: Vec::new(),
            only: Vec::new(),
            shard: None,
            retry: false,
            jobs: None,
            quiet: true,
            programs: Programs::new("/nonexistent".into(), &[]),
            control: false,
        }
    }

    fn go(config: &RunConfig, world: &'static Scripted) -> Summary {
        run_in(&experiment(), config, &AtomicBool::new(false), &|_| Ok(Box::new(world))).unwrap()
    }

    #[test]
    fn each_end_of_a_run_is_kept_as_what_it_is_and_done_once() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let world: &'static Scripted = Box::leak(Box::default());
        let summary = go(&config(&out), world);
        let expected = [("failed", 4), ("invalid", 4), ("ok", 4), ("skipped", 2)];
        assert_eq!(summary.counts, BTreeMap::from(expected));
        assert_eq!((summary.done_now, summary.missing, summary.others), (14, 0, 0));
        assert_eq!(summary.skipped, BTreeMap::from([("not here".into(), 2)]));

        let runs = directory::read_runs::<Case>(&out).unwrap().whole;
        let of = |name: &str| runs.values().find(|run| run.case.transport_name() == name).unwrap();
        assert_eq!(of("late-once").attempts, ["late"]);
        assert_eq!(of("late").attempts, ["late, the 1. time", "late, the 2. time"]);
        assert_eq!(of("late").why.as_deref(), Some("late, the 3. time"));
        let touched = runs.values().filter(|run| run.case.transport_name() == "touched");
        let mut why: Vec<_> = touched.map(|run| run.why.as_deref().unwrap()).collect();
        why.sort_unstable();
        let by_hand = "the path was changed by hand at 1.0 s: wan both down";
        assert_eq!(why, [by_hand.to_owned(), format!("{by_hand}; late")]);
        assert_eq!(of("touched").attempts, [""; 0], "what was changed by hand is not repeated");
        assert_eq!(of("fails").why.as_deref(), Some("no answer"));
        assert_eq!(of("panics").why.as_deref(), Some("panicked: at 1"));
        let samples =
            std::fs::read_to_string(out.join("runs").join(&of("late").id).join("samples/x.csv")).unwrap();
        assert_eq!(samples, "3", "samples are those of the last attempt");

        let measures = std::fs::read_to_string(out.join(MEASURES_FILE)).unwrap();
        let lines = |name: &str| measures.lines().filter(|line| line.contains(&format!(",{name},"))).count();
        assert_eq!(
            NAMES.map(lines),
            [4, 4, 4, 4, 0, 0, 0],
            "two figures of each of two repetitions: {measures}"
        );
        assert!(
            measures.lines().filter(|l| l.contains(",late,")).all(|l| l.ends_with(",false")),
            "{measures}"
        );

        let again = go(&config(&out), world);
        assert_eq!(
            (again.done_now, &again.counts),
            (2, &summary.counts),
            "only what was skipped is looked at again"
        );
        let retried = go(&RunConfig { retry: true, ..config(&out) }, world);
        assert_eq!(retried.done_now, 10);
        let counts = world.0.lock().unwrap();
        let count =
            |name: &str| counts.iter().find(|(id, _)| id.contains(&format!(".{name}."))).map(|(_, n)| *n);
        assert_eq!(["good", "late-once", "late", "touched"].map(count), [Some(1), Some(2), Some(6), Some(2)]);
    }

    #[test]
    fn a_part_may_be_run_and_what_nobody_runs_is_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let world: &'static Scripted = Box::leak(Box::default());
        let only = |text: &str| RunConfig { only: vec![text.parse().unwrap()], ..config(dir.path()) };
        let summary = go(&only("transport=good"), world);
        assert_eq!((summary.done_now, summary.missing), (2, 12));
        assert_eq!(go(&only("repetition=2"), world).done_now, 6);
        let nothing =
            run_in(&experiment(), &only("loss=3"), &AtomicBool::new(false), &|_| Ok(Box::new(world)));
        assert!(
            nothing.unwrap_err().to_string().starts_with("--only loss=3: no run of the experiment is so")
        );
    }

    #[test]
    fn a_world_that_is_not_here_skips_its_runs_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let open = |_| Err("no namespaces".to_owned());
        let summary = run_in(&experiment(), &config(dir.path()), &AtomicBool::new(false), &open).unwrap();
        assert_eq!(summary.skipped, BTreeMap::from([("no namespaces".into(), 14)]));
    }

    #[test]
    fn a_directory_of_other_things_is_left_alone_and_two_do_not_write_at_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        let refused = |path: &Path| format!("{:#}", Directory::open(path).unwrap_err());
        assert!(refused(dir.path()).contains("holds other files"));
        let out = dir.path().join("out");
        let held = Directory::open(&out).unwrap();
        assert!(refused(&out).contains("another process runs the experiment"));
        std::fs::create_dir_all(out.join("runs/.half.part/samples")).unwrap();
        drop(held);
        Directory::open(&out).unwrap();
        assert!(!out.join("runs/.half.part").exists(), "what a killed process left is removed");
    }
}
