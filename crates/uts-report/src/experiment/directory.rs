//! Reads what an experiment left, as far as it has got.
//!
//! Without `plan.json` nothing can be said, and a wrong line of `measures.csv` could say anything:
//! these are errors. Whatever else is missing or wrong is left out, and the page says so.

use anyhow::{Context, Result, ensure};
use serde::de::{DeserializeOwned, IgnoredAny};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use uts_record::compressed;
use uts_record::measures::{Columns, MEASURES_FILE};
use uts_record::plan::{Plan, PlannedRun};
pub(super) use uts_record::run::RunStatus;
use uts_record::run::{self, RUN_FILE, RunFile};
use uts_record::samples::SampleRow;
use uts_record::table::{Row, Table};

/// One of the things in which runs differ besides their transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    World,
    Mixture,
    Workload,
    Path,
    /// A sweep, by its place in the plan.
    Sweep(usize),
}

/// A dimension of the experiment, with all its values in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct Dimension {
    pub kind: Kind,
    /// As the plan and `measures.csv` name it.
    pub name: String,
    pub values: Vec<String>,
}

/// The places of a run on all dimensions.
pub(super) type Place = Vec<usize>;

/// A line of `measures.csv`.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    pub run: String,
    pub place: Place,
    /// The transport; in a mixture the flow.
    pub who: usize,
    pub measure: String,
    pub value: f64,
    pub unit: String,
    pub valid: bool,
}

/// A run of the plan.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub id: String,
    pub place: Place,
    pub who: usize,
    pub repetition: u64,
    pub seed: Option<u64>,
    /// `None` if it has not ended.
    pub record: Option<Record>,
}

/// `run.json`: what was run is not looked at.
pub(super) type Record = RunFile<Option<IgnoredAny>>;

/// An experiment's directory.
pub(super) struct Directory {
    root: PathBuf,
    pub plan: Plan,
    /// `experiment.toml`, and the same read.
    pub text: Option<String>,
    pub toml: toml::Table,
    pub machine: Option<serde_json::Value>,
    pub dimensions: Vec<Dimension>,
    /// Transports in the order of the file, then flows and mixtures as they come.
    pub names: Vec<String>,
    pub observations: Vec<Observation>,
    pub runs: Vec<Run>,
    problems: RefCell<Vec<String>>,
}

impl Directory {
    /// Reads a directory.
    ///
    /// # Errors
    /// Its plan or its measures are missing or wrong.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let plan = Plan::read(root)?;
        let dimensions = dimensions(&plan);
        let names = plan.transports.clone();
        let mut directory = Directory {
            root: root.to_owned(),
            plan,
            text: None,
            toml: toml::Table::new(),
            machine: None,
            dimensions,
            names,
            observations: Vec::new(),
            runs: Vec::new(),
            problems: RefCell::default(),
        };
        directory.read_setting();
        directory.read_runs();
        directory.read_measures()?;
        Ok(directory)
    }

    /// Problems that were found, a sentence each.
    pub(super) fn problems(&self) -> Vec<String> {
        self.problems.borrow().clone()
    }

    /// Tells of something that is missing or wrong, once.
    pub(super) fn tell(&self, problem: impl Into<String>) {
        let (problem, mut all) = (problem.into(), self.problems.borrow_mut());
        if !all.contains(&problem) {
            all.push(problem);
        }
    }

    /// The path of a file as a message names it.
    fn name(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// The place of a dimension.
    pub(super) fn dimension(&self, kind: &Kind) -> usize {
        self.dimensions.iter().position(|d| d.kind == *kind).unwrap_or_default()
    }

    /// The dimension of transports, which comes after all others where a place has it.
    pub(super) fn transports(&self) -> usize {
        self.dimensions.len()
    }

    /// All values of a dimension, transports included.
    pub(super) fn values(&self, dimension: usize) -> &[String] {
        self.dimensions.get(dimension).map_or(&self.names, |d| &d.values)
    }

    /// Name of a dimension.
    pub(super) fn title(&self, dimension: usize) -> &str {
        self.dimensions.get(dimension).map_or("transport", |d| &d.name)
    }

    /// True if a dimension belongs to a sweep.
    pub(super) fn is_sweep(&self, dimension: usize) -> bool {
        self.dimensions.get(dimension).is_some_and(|d| matches!(d.kind, Kind::Sweep(_)))
    }

    /// The value of a place on a dimension.
    pub(super) fn value(&self, place: &Place, dimension: usize) -> &str {
        let index = place.get(dimension).copied().unwrap_or_default();
        self.values(dimension).get(index).map_or("", String::as_str)
    }

    /// The number of a sweep's value, in its unit, if it has one.
    pub(super) fn number(&self, place: &Place, dimension: usize) -> Option<f64> {
        let Kind::Sweep(sweep) = self.dimensions.get(dimension)?.kind else { return None };
        self.plan.sweeps.get(sweep)?.values.get(*place.get(dimension)?)?.number
    }

    /// A table of a file, as `[path]`, of the experiment file.
    pub(super) fn entry(&self, table: &str, name: &str) -> Option<&toml::Table> {
        self.toml.get(table)?.as_table()?.get(name)?.as_table()
    }

    /// The `kind` of a workload; its name if the file does not say.
    pub(super) fn workload_kind<'a>(&'a self, name: &'a str) -> &'a str {
        self.entry("workload", name).and_then(|w| w.get("kind")).and_then(toml::Value::as_str).unwrap_or(name)
    }

    /// Reads samples of a run; nothing if it has none. The page names what is wrong with them.
    pub(super) fn samples<T: SampleRow>(&self, run: &Run) -> Vec<T> {
        let path = self.samples_path(run, T::FILE);
        if !path.is_file() {
            return Vec::new();
        }
        Table::open(&path, &self.name(&path)).and_then(|table| table.rows(T::COLUMNS)).unwrap_or_else(|e| {
            self.tell(format!("{e:#}; the file is left out"));
            Vec::new()
        })
    }

    /// True if a run left samples of a kind.
    pub(super) fn has_samples(&self, run: &Run, file: &str) -> bool {
        self.samples_path(run, file).is_file()
    }

    /// The records of a qlog of a run, if it left one.
    pub(super) fn log(&self, run: &Run, file: &str) -> Option<Vec<serde_json::Value>> {
        let path = self.samples_path(run, file);
        if !path.is_file() {
            return None;
        }
        let read = || -> Result<Vec<_>> {
            let mut text = Vec::new();
            compressed::open(&path)?.read_to_end(&mut text)?;
            let records = text.split(|byte| *byte == 0x1e).filter(|record| !record.is_empty());
            Ok(records.map(serde_json::from_slice).collect::<Result<_, _>>()?)
        };
        read().inspect_err(|e| self.tell(format!("{}: {e}; the file is left out", self.name(&path)))).ok()
    }

    fn samples_path(&self, run: &Run, file: &str) -> PathBuf {
        compressed::place(&self.root.join("runs").join(&run.id).join("samples").join(file))
    }

    fn read_setting(&mut self) {
        let (file, machine) = (self.root.join("experiment.toml"), self.root.join("machine.json"));
        match fs::read_to_string(&file) {
            Ok(text) => {
                match text.parse() {
                    Ok(table) => self.toml = table,
                    Err(e) => self.tell(format!("experiment.toml is not TOML: {}", e.to_string().trim())),
                }
                self.text = Some(text);
            }
            Err(e) => self.tell(format!("experiment.toml cannot be read: {e}")),
        }
        match json(&machine) {
            Ok(value) => self.machine = Some(value),
            Err(e) => self.tell(format!("machine.json cannot be read: {}", e.root_cause())),
        }
    }

    fn read_runs(&mut self) {
        let planned = std::mem::take(&mut self.plan.runs);
        for run in &planned {
            match self.run(run) {
                Ok(run) => self.runs.push(run),
                Err(e) => self.tell(format!("plan.json: run {}: {e:#}", run.id)),
            }
        }
        let known: std::collections::HashSet<&str> = planned.iter().map(|run| run.id.as_str()).collect();
        let Ok(entries) = fs::read_dir(self.root.join("runs")) else { return };
        let mut strangers: Vec<String> =
            entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        strangers.retain(|name| !name.starts_with('.') && !known.contains(name.as_str()));
        if !strangers.is_empty() {
            strangers.sort();
            self.tell(format!("runs that are not in plan.json are left out: {}", some(&strangers)));
        }
    }

    fn run(&mut self, planned: &PlannedRun) -> Result<Run> {
        let fields = Fields {
            world: planned.world.as_deref().or(self.plan.world.as_deref()).unwrap_or_default().to_owned(),
            mixture: planned.mixture.clone().unwrap_or_default(),
            workload: planned.workload.clone().unwrap_or_default(),
            path: planned.path.clone().unwrap_or_default(),
            sweep: self
                .plan
                .sweeps
                .iter()
                .map(|s| planned.sweep.get(&s.name).cloned().unwrap_or_default())
                .collect(),
        };
        let place = self.place(fields)?;
        let who = self.who(planned.transport.as_deref().or(planned.mixture.as_deref()).unwrap_or_default());
        let record = self.record(&planned.id);
        Ok(Run {
            id: planned.id.clone(),
            place,
            who,
            repetition: planned.repetition.unwrap_or(1),
            seed: planned.seed,
            record,
        })
    }

    fn record(&self, id: &str) -> Option<Record> {
        let folder = self.root.join("runs").join(id);
        if !folder.is_dir() {
            return None;
        }
        let path = folder.join(RUN_FILE);
        let record: Result<Record> = run::read(&path);
        record
            .map_err(|e| {
                self.tell(format!("runs/{id}/run.json: {}; the run counts as missing", e.root_cause()))
            })
            .ok()
    }

    fn read_measures(&mut self) -> Result<()> {
        let path = self.root.join(MEASURES_FILE);
        let has_ended = |run: &Run| {
            run.record.as_ref().is_some_and(|r| matches!(r.status, RunStatus::Ok | RunStatus::Invalid))
        };
        if !path.exists() {
            let ended = self.runs.iter().filter(|run| has_ended(run)).count();
            ensure!(
                ended == 0,
                "{} is missing, although {ended} runs have ended; running the experiment again writes it anew",
                path.display()
            );
            return Ok(());
        }
        let table = Table::open(&path, &path.display().to_string())?;
        let lines = Columns::of(&table, self.plan.sweeps.iter().map(|sweep| sweep.name.as_str()))?;
        let mut strangers = 0;
        table.each(|row| {
            let fields = fields(&lines, row, self.plan.world.as_deref());
            let Ok(place) = self.place(fields) else {
                strangers += 1;
                return Ok(());
            };
            // A figure that is not known is none.
            if row.text(lines.value).is_empty() {
                return Ok(());
            }
            let (flow, transport) = (row.text(lines.flow), row.text(lines.transport));
            let who = self.who(if flow.is_empty() { transport } else { flow });
            self.observations.push(Observation {
                run: row.text(lines.run).to_owned(),
                place,
                who,
                measure: row.text(lines.measure).to_owned(),
                value: row.number(lines.value)?,
                unit: row.text(lines.unit).to_owned(),
                valid: row.truth(lines.valid)?,
            });
            Ok(())
        })?;
        if strangers > 0 {
            self.tell(format!("{strangers} lines of measures.csv have values of sweeps that plan.json does not know; they are left out"));
        }
        Ok(())
    }

    fn who(&mut self, name: &str) -> usize {
        self.names.iter().position(|n| n == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }

    /// Finds the place of a run; names that the plan does not list (a chain's path) are added.
    fn place(&mut self, fields: Fields) -> Result<Place> {
        let mut place = Vec::with_capacity(self.dimensions.len());
        for dimension in &mut self.dimensions {
            let value =
                match &dimension.kind {
                    Kind::World => &fields.world,
                    Kind::Mixture => &fields.mixture,
                    Kind::Workload => &fields.workload,
                    Kind::Path => &fields.path,
                    Kind::Sweep(i) => {
                        let wanted = fields.sweep.get(*i).map_or("", String::as_str);
                        let sweep = self.plan.sweeps.get(*i).context("the sweep is not in the plan")?;
                        let number: Option<f64> = wanted.parse().ok();
                        let is_it = |v: &uts_record::plan::SweepValue| {
                            v.text == wanted || (number.is_some() && v.number == number)
                        };
                        let found = sweep.values.iter().position(is_it);
                        place.push(found.with_context(|| {
                            format!("`{wanted}` is not a value of the sweep {}", sweep.name)
                        })?);
                        continue;
                    }
                };
            let found = dimension.values.iter().position(|v| v == value);
            place.push(found.unwrap_or_else(|| {
                dimension.values.push(value.clone());
                dimension.values.len() - 1
            }));
        }
        Ok(place)
    }
}

/// The names that make up a place.
struct Fields {
    world: String,
    mixture: String,
    workload: String,
    path: String,
    sweep: Vec<String>,
}

/// The place of a line of `measures.csv`, in names.
fn fields(columns: &Columns, row: &Row<'_>, world: Option<&str>) -> Fields {
    let optional = |at: Option<usize>| at.map(|at| row.text(at).to_owned());
    Fields {
        world: optional(columns.world).or(world.map(str::to_owned)).unwrap_or_default(),
        mixture: optional(columns.mixture).unwrap_or_default(),
        workload: row.text(columns.workload).to_owned(),
        path: row.text(columns.path).to_owned(),
        sweep: columns.sweeps_of(row),
    }
}

fn dimensions(plan: &Plan) -> Vec<Dimension> {
    let fixed =
        |kind, name: &str, values: &[String]| Dimension { kind, name: name.into(), values: values.to_vec() };
    let worlds =
        if plan.worlds.is_empty() { plan.world.iter().cloned().collect() } else { plan.worlds.clone() };
    // Runs of one flow have no mixture.
    let mixtures: Vec<String> = std::iter::once(String::new()).chain(plan.mixtures.iter().cloned()).collect();
    let mut all = vec![
        fixed(Kind::World, "world", &worlds),
        fixed(Kind::Mixture, "mixture", &mixtures),
        fixed(Kind::Workload, "workload", &plan.workloads),
        fixed(Kind::Path, "path", &plan.paths),
    ];
    all.extend(plan.sweeps.iter().enumerate().map(|(i, sweep)| Dimension {
        kind: Kind::Sweep(i),
        name: sweep.name.clone(),
        values: sweep.values.iter().map(|v| v.text.clone()).collect(),
    }));
    all
}

/// Reads a file of JSON.
fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{} is not what it should be", path.display()))
}

/// A few names, and how many more there are.
pub(super) fn some(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Number of runs in each state; `None` is the state of runs that have not ended.
pub(super) fn tally(runs: &[Run]) -> BTreeMap<Option<RunStatus>, usize> {
    let mut counts = BTreeMap::new();
    for run in runs {
        *counts.entry(run.record.as_ref().map(|r| r.status)).or_default() += 1;
    }
    counts
}
