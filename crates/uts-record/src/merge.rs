//! The results of several directories of one experiment, as those of shards, in one.
//!
//! All is checked before anything is written. The directory of the whole is then written as a run
//! writes it. An interrupted merge leaves an unfinished experiment, which the same merge completes.

use crate::compressed;
use crate::directory::{self, Directory, EXPERIMENT_FILE, MACHINE_FILE, Runs};
use crate::measures::MEASURES_FILE;
use crate::plan::{PLAN_FILE, Plan};
use crate::run::{RUN_FILE, RunFile, RunStatus};
use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The one world whose figures are the same on any machine.
const VIRTUAL: &str = "sim";

/// Keys of `run.json` that differ between two times that a run is done in virtual time.
const OF_THE_OCCASION: [&str; 2] = ["started_unix_s", "elapsed_s"];

/// Extension of recordings of packets. Keys are drawn afresh each time: the same packets leave, in
/// other ciphers.
const CIPHERED: &str = "pcap";

/// Key of `machine.json` that differs between two looks at a machine.
const OF_THE_MOMENT: &str = "load_1_min";

/// Experiment after a merge.
#[derive(Debug)]
pub struct Merged<C> {
    /// All that is to be run.
    pub plan: Plan,
    /// Records of the runs that were done.
    pub runs: HashMap<String, RunFile<C>>,
    /// The names of runs that no directory has, in the order of the plan.
    pub missing: Vec<String>,
    /// Runs that cannot be read: where they are, and why not.
    pub damaged: Vec<(PathBuf, String)>,
    /// Number of runs that were left out, as the plan does not name them.
    pub others: usize,
}

/// Puts the runs of `from` together in the directory `out`, which may have runs of the experiment
/// already; `measures` makes `measures.csv`.
///
/// A run that was skipped in one place gives way to the same run of another.
///
/// # Errors
/// A directory is none of results, or is being written. The directories have different experiments,
/// runs outside virtual time, runs of different versions of the program, or different results of
/// one run. `out` cannot be written, or holds something else.
pub fn merge<C: DeserializeOwned>(
    out: &Path,
    from: &[PathBuf],
    measures: impl Fn(&Plan, &HashMap<String, RunFile<C>>) -> Vec<u8>,
) -> Result<Merged<C>> {
    // Nobody may write in between what has been compared.
    let mut opened = out.join("runs").is_dir().then(|| Directory::open(out)).transpose()?;
    let mut sources = Vec::new();
    if out.join(PLAN_FILE).is_file() {
        sources.push(Source::read(out)?);
    }
    for path in distinct(out, from) {
        let lock = directory::hold(path)?;
        sources.push(Source { _lock: lock, ..Source::read(path)? });
    }
    let Some(first) = sources.first() else {
        bail!("there is nothing to merge: name directories of results besides {}", out.display());
    };
    sources.iter().try_for_each(|source| source.is_of(first))?;
    let plan = Plan::read(&first.path)?;
    ensure!(
        plan.worlds.iter().all(|world| world == VIRTUAL),
        "{} has runs in the world {}; only runs in virtual time ({VIRTUAL}) can be merged",
        first.path.display(),
        plan.worlds.join("+")
    );
    let chosen = choose(&plan, &sources)?;
    let (text, plan_text, machine) = (first.experiment.clone(), first.plan.clone(), machine(&sources)?);

    let whole = match opened.take() {
        Some(whole) => whole,
        None => Directory::open(out)?,
    };
    whole.replace(EXPERIMENT_FILE, &text)?;
    whole.replace(PLAN_FILE, &plan_text)?;
    whole.replace(MACHINE_FILE, &machine)?;
    for (id, source) in &chosen {
        if sources[*source].path != out {
            whole.adopt(id, &sources[*source].path)?;
        }
    }
    let missing =
        plan.runs.iter().map(|run| &run.id).filter(|id| !chosen.contains_key(*id)).cloned().collect();
    let others = sources.iter().flat_map(|source| source.runs.whole.keys()).collect::<HashSet<_>>();
    let mut merged = Merged {
        missing,
        others: others.iter().filter(|id| !chosen.contains_key(**id)).count(),
        damaged: Vec::new(),
        runs: HashMap::new(),
        plan,
    };
    for (id, source) in chosen {
        merged.runs.extend(sources[source].runs.whole.remove_entry(&id));
    }
    for source in sources {
        let damaged = source.runs.damaged.into_iter();
        merged.damaged.extend(damaged.map(|(id, why)| (directory::run_path(&source.path, &id), why)));
    }
    whole.replace(MEASURES_FILE, &measures(&merged.plan, &merged.runs)).context("the figures")?;
    Ok(merged)
}

/// Each directory once, without that of the whole.
fn distinct<'p>(out: &Path, from: &'p [PathBuf]) -> Vec<&'p PathBuf> {
    let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut seen = HashSet::from([place(out)]);
    from.iter().filter(|path| seen.insert(place(path))).collect()
}

/// A directory whose runs are wanted.
struct Source<C> {
    path: PathBuf,
    experiment: Vec<u8>,
    plan: Vec<u8>,
    machine: Value,
    runs: Runs<C>,
    _lock: Option<File>,
}

impl<C: DeserializeOwned> Source<C> {
    fn read(path: &Path) -> Result<Self> {
        let file = |name: &str| {
            let file = path.join(name);
            fs::read(&file).with_context(|| {
                format!("cannot read {}, which each directory of an experiment has", file.display())
            })
        };
        // First what names a directory of something else best.
        let plan = file(PLAN_FILE)?;
        let machine = serde_json::from_slice(&file(MACHINE_FILE)?)
            .with_context(|| format!("{} is not JSON", path.join(MACHINE_FILE).display()))?;
        let mut runs: Runs<C> = directory::read_runs(path)?;
        let is_misnamed = |(name, run): &(&String, &RunFile<C>)| **name != run.id;
        let misnamed = runs.whole.iter().filter(is_misnamed);
        let misnamed: Vec<String> = misnamed.map(|(name, _)| name.clone()).collect();
        for name in misnamed {
            if let Some(run) = runs.whole.remove(&name) {
                runs.damaged.insert(name, format!("{RUN_FILE} is that of the run {}", run.id));
            }
        }
        Ok(Source {
            path: path.to_owned(),
            experiment: file(EXPERIMENT_FILE)?,
            plan,
            machine,
            runs,
            _lock: None,
        })
    }

    /// Checks that it is of the experiment that another is of.
    fn is_of(&self, other: &Self) -> Result<()> {
        let files =
            [(EXPERIMENT_FILE, &self.experiment, &other.experiment), (PLAN_FILE, &self.plan, &other.plan)];
        for (name, mine, others) in files {
            ensure!(
                mine == others,
                "{} and {} are of different experiments: their {name} differs",
                other.path.display(),
                self.path.display()
            );
        }
        Ok(())
    }
}

/// From which source each run of the plan is taken.
fn choose<C: DeserializeOwned>(plan: &Plan, sources: &[Source<C>]) -> Result<HashMap<String, usize>> {
    let mut chosen = HashMap::new();
    // The first run of all, and what made it.
    let mut maker: Option<(PathBuf, &Option<String>)> = None;
    for id in plan.runs.iter().map(|run| &run.id) {
        let having = |source: &usize| sources[*source].runs.whole.get(id).map(|run| run.status);
        let have: Vec<usize> = (0..sources.len()).filter(|source| having(source).is_some()).collect();
        let is_done = |source: &usize| having(source) != Some(RunStatus::Skipped);
        let mut done = have.iter().copied().filter(is_done);
        let Some(first) = done.next().or(have.first().copied()) else { continue };
        for other in done {
            agree(id, &sources[first].path, &sources[other].path)?;
        }
        for source in &have {
            let version = &sources[*source].runs.whole[id].version;
            let run = directory::run_path(&sources[*source].path, id);
            let (of, before) = maker.get_or_insert_with(|| (run.clone(), version));
            let shown = |version: &Option<String>| version.clone().unwrap_or("no version".into());
            ensure!(
                *before == version,
                "{} is of {}, and {} is of {}; one version has to make all",
                of.display(),
                shown(before),
                run.display(),
                shown(version)
            );
        }
        chosen.insert(id.clone(), first);
    }
    Ok(chosen)
}

/// Checks that a run left the same in two directories.
fn agree(id: &str, one: &Path, other: &Path) -> Result<()> {
    let runs = [one, other].map(|path| directory::run_path(path, id));
    let differ = |what: &str| {
        format!("{} and {} contradict each other: their {what} differs", runs[0].display(), runs[1].display())
    };
    let files = directory::run_files(&runs[0])?;
    ensure!(files == directory::run_files(&runs[1])?, "{}", differ("list of files"));
    let told = |run: &Path| -> Result<Value> {
        let mut told: Value = serde_json::from_slice(&fs::read(run.join(RUN_FILE))?)?;
        for name in OF_THE_OCCASION {
            told.as_object_mut().map(|told| told.remove(name));
        }
        Ok(told)
    };
    ensure!(told(&runs[0])? == told(&runs[1])?, "{}", differ(RUN_FILE));
    for name in files.iter().filter(|name| *name != Path::new(RUN_FILE)) {
        let same = are_same(&runs[0].join(name), &runs[1].join(name));
        let same = same.with_context(|| format!("cannot compare {}", runs[0].join(name).display()))?;
        ensure!(same, "{}", differ(&name.display().to_string()));
    }
    Ok(())
}

/// True if two files have the same bytes, or recordings of packets contents of the same length.
/// They may be larger than memory.
fn are_same(one: &Path, other: &Path) -> std::io::Result<bool> {
    if compressed::contents_name(one).extension() == Some(OsStr::new(CIPHERED)) {
        return Ok(compressed::contents_bytes(one)? == compressed::contents_bytes(other)?);
    }
    let (one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let mut others = BufReader::new(other).bytes();
    for byte in BufReader::new(one).bytes() {
        if others.next().transpose()? != Some(byte?) {
            return Ok(false);
        }
    }
    Ok(others.next().is_none())
}

/// `machine.json` of the whole: the file of the only machine, or `machines`, each once.
fn machine<C>(sources: &[Source<C>]) -> Result<Vec<u8>> {
    let mut machines: Vec<&Value> = Vec::new();
    let lasting = |machine: &Value| {
        let mut lasting = machine.clone();
        lasting.as_object_mut().map(|lasting| lasting.remove(OF_THE_MOMENT));
        lasting
    };
    for source in sources {
        let several = source.machine.get("machines").and_then(Value::as_array);
        for machine in several.map_or(std::slice::from_ref(&source.machine), Vec::as_slice) {
            if !machines.iter().any(|known| lasting(known) == lasting(machine)) {
                machines.push(machine);
            }
        }
    }
    let whole = match machines.as_slice() {
        [one] => (*one).clone(),
        several => json!({ "machines": several }),
    };
    Ok(serde_json::to_vec_pretty(&whole)?)
}
