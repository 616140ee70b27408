//! Plan of an experiment: all runs of its file, in the order in which they are best done.

use super::case::{Case, Flow};
use super::file::{Experiment, Mixture, Topology, WorldKind};
use super::path::PathSpec;
use super::sweep::{Sweep, SweepValue};
use super::template::Template;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use uts_record::FORMAT;
use uts_record::plan::PlannedRun;
use uts_sim_world::SimSource;

/// Most runs of an experiment.
pub const RUNS_MAX: usize = 1_000_000;

/// All runs of an experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs. All first repetitions come first: an interrupted experiment has a bit of
    /// everything.
    pub cases: Vec<Case>,
    /// Their names, in the same order.
    pub ids: Vec<String>,
}

impl Plan {
    /// Expands an experiment, in its own worlds or in these.
    ///
    /// # Errors
    /// It has too many runs, or no run at all; a combination of sweeps makes no sense.
    pub fn new(experiment: &Experiment, worlds: &[WorldKind]) -> Result<Self> {
        let worlds = if worlds.is_empty() { &experiment.worlds } else { worlds };
        let mut cases = Vec::new();
        for &world in worlds {
            for what in contents(experiment) {
                for hops in routes(experiment) {
                    expand(experiment, world, &what, &hops, &mut cases)?;
                }
            }
        }
        let per_repetition = cases.len();
        if per_repetition == 0 {
            bail!("the experiment has no run: it has mixtures without flows, or nothing to run alone");
        }
        if per_repetition.saturating_mul(experiment.repetitions as usize) > RUNS_MAX {
            bail!("the experiment has more than {RUNS_MAX} runs");
        }
        let repeated = (1..=experiment.repetitions).flat_map(|repetition| {
            cases.iter().map(move |case: &Case| {
                let seed = experiment.seed.saturating_add(u64::from(repetition) - 1);
                Case { repetition, seed, ..case.clone() }
            })
        });
        let cases: Vec<Case> = repeated.collect();
        let ids: Vec<String> = cases.iter().map(Case::id).collect();
        let mut seen = HashSet::new();
        if let Some(twice) = ids.iter().find(|id| !seen.insert(id.as_str())) {
            return Err(anyhow!("the experiment has the run {twice} twice"));
        }
        Ok(Plan { cases, ids })
    }

    /// `plan.json`.
    ///
    /// # Errors
    /// A part of it cannot be JSON.
    pub fn record(&self, experiment: &Experiment) -> Result<uts_record::plan::Plan> {
        let names = |templates: &[Template]| templates.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
        let mut worlds: Vec<WorldKind> = self.cases.iter().map(|case| case.world).collect();
        worlds.sort_unstable();
        worlds.dedup();
        let worlds: Vec<String> = worlds.iter().map(|world| world.name().to_owned()).collect();
        Ok(uts_record::plan::Plan {
            format: FORMAT,
            title: experiment.title.clone(),
            question: experiment.question.clone(),
            world: Some(worlds.join("+")),
            worlds,
            repetitions: Some(experiment.repetitions.into()),
            seed: Some(experiment.seed),
            topology: serde_json::to_value(&experiment.topology)?,
            transports: names(&experiment.transports),
            workloads: names(&experiment.workloads),
            paths: experiment.paths.iter().map(|path| path.name.clone()).collect(),
            mixtures: experiment.mixtures.iter().map(|mixture| mixture.name.clone()).collect(),
            sweeps: experiment.sweeps.iter().map(sweep_record).collect(),
            plots: experiment.plots.iter().cloned().map(Value::Object).collect(),
            runs: self.ids.iter().zip(&self.cases).map(run_record).collect(),
        })
    }
}

fn sweep_record(sweep: &Sweep) -> uts_record::plan::Sweep {
    let value = |v: &SweepValue| uts_record::plan::SweepValue { text: v.text.clone(), number: v.number };
    uts_record::plan::Sweep {
        name: sweep.name.clone(),
        key: Some(sweep.key.clone()),
        unit: sweep.unit.map(|unit| unit.name().to_owned()),
        numeric: sweep.unit.is_some(),
        values: sweep.values.iter().map(value).collect(),
    }
}

fn run_record((id, case): (&String, &Case)) -> PlannedRun {
    PlannedRun {
        id: id.clone(),
        world: Some(case.world.name().to_owned()),
        mixture: case.mixture.clone(),
        transport: Some(case.transport_name()),
        workload: Some(case.workload_name()),
        path: Some(case.path_name()),
        sweep: case.sweep.iter().cloned().collect(),
        repetition: Some(case.repetition.into()),
        seed: Some(case.seed),
    }
}

/// Flows of a run: one transport with one workload, or a mixture.
enum Content<'e> {
    Alone(&'e Template, &'e Template),
    Mixed(&'e Mixture),
}

fn contents(experiment: &Experiment) -> Vec<Content<'_>> {
    let mut contents = Vec::new();
    if experiment.alone {
        for workload in &experiment.workloads {
            contents
                .extend(experiment.transports.iter().map(|transport| Content::Alone(transport, workload)));
        }
    }
    contents.extend(experiment.mixtures.iter().filter(|m| !m.flows.is_empty()).map(Content::Mixed));
    contents
}

/// The ways that a flow may take: each path by itself, or the chain.
fn routes(experiment: &Experiment) -> Vec<Vec<&PathSpec>> {
    match &experiment.topology {
        Topology::PointToPoint | Topology::Dumbbell { .. } => {
            experiment.paths.iter().map(|path| vec![path]).collect()
        }
        Topology::Chain { paths } => {
            let find = |name: &String| experiment.paths.iter().find(|path| path.name == *name);
            vec![paths.iter().filter_map(find).collect()]
        }
    }
}

/// One content over one way, for all combinations of the sweeps that concern them.
fn expand(
    experiment: &Experiment,
    world: WorldKind,
    content: &Content<'_>,
    hops: &[&PathSpec],
    cases: &mut Vec<Case>,
) -> Result<()> {
    let template = |templates: &'_ [Template], name: &str| templates.iter().position(|t| t.name == name);
    let (transports, workloads) = (&experiment.transports, &experiment.workloads);
    let used: Vec<(&Template, &Template)> = match content {
        Content::Alone(transport, workload) => vec![(transport, workload)],
        Content::Mixed(mixture) => {
            let of = |flow: &super::file::MixtureFlow| {
                Some((
                    &transports[template(transports, &flow.transport)?],
                    &workloads[template(workloads, &flow.workload)?],
                ))
            };
            mixture.flows.iter().filter_map(of).collect()
        }
    };
    let concerns = |sweep: &&Sweep| {
        hops.iter().any(|hop| sweep.changes_path(&hop.name))
            || used.iter().any(|(t, w)| sweep.changes(t) || sweep.changes(w))
            || experiment.sources.iter().any(|source| sweep.changes(source))
    };
    let sweeps: Vec<&Sweep> = experiment.sweeps.iter().filter(concerns).collect();
    for combination in combinations(&sweeps) {
        if cases.len() >= RUNS_MAX {
            bail!("the experiment has more than {RUNS_MAX} runs");
        }
        let case = one(experiment, world, content, hops, &used, &combination);
        cases.push(case.with_context(|| {
            let values = combination.iter().map(|(sweep, value)| format!("{} = {}", sweep.key, value.text));
            format!("with {}", values.collect::<Vec<_>>().join(" and "))
        })?);
    }
    Ok(())
}

type Chosen<'e> = Vec<(&'e Sweep, &'e SweepValue)>;

fn combinations<'e>(sweeps: &[&'e Sweep]) -> Vec<Chosen<'e>> {
    sweeps.iter().fold(vec![Vec::new()], |combinations, sweep| {
        let with = |combination: &Chosen<'e>, value: &'e SweepValue| {
            let mut longer = combination.clone();
            longer.push((*sweep, value));
            longer
        };
        combinations.iter().flat_map(|c| sweep.values.iter().map(move |value| with(c, value))).collect()
    })
}

fn one(
    experiment: &Experiment,
    world: WorldKind,
    content: &Content<'_>,
    hops: &[&PathSpec],
    used: &[(&Template, &Template)],
    chosen: &Chosen<'_>,
) -> Result<Case> {
    let mut changed_hops: Vec<PathSpec> = hops.iter().map(|hop| (*hop).clone()).collect();
    for (sweep, value) in chosen {
        for hop in changed_hops.iter_mut().filter(|hop| sweep.changes_path(&hop.name)) {
            sweep.apply_to_path(hop, value);
        }
    }
    for hop in &changed_hops {
        hop.config(&uts_path::LinkConfig::default()).with_context(|| format!("path {}", hop.name))?;
    }
    let hosts = experiment.topology.hosts();
    let mixed = match content {
        Content::Alone(..) => None,
        Content::Mixed(mixture) => Some(mixture),
    };
    let mut flows = Vec::new();
    let mut count: HashMap<&str, u32> = HashMap::new();
    for (i, (transport, workload)) in used.iter().enumerate() {
        let (mut changed_transport, mut changed_workload) = ((*transport).clone(), (*workload).clone());
        for (sweep, value) in chosen {
            if sweep.changes(transport) {
                changed_transport = sweep.apply_to(&changed_transport, value);
            }
            if sweep.changes(workload) {
                changed_workload = sweep.apply_to(&changed_workload, value);
            }
        }
        let nth = count.entry(&transport.name).and_modify(|n| *n += 1).or_insert(1);
        let name = if *nth == 1 { transport.name.clone() } else { format!("{}-{nth}", transport.name) };
        let placed = mixed.and_then(|mixture| mixture.flows.get(i));
        let (from, to) = match placed {
            Some(flow) => (flow.from.clone(), flow.to.clone()),
            None => (hosts[0].clone(), hosts[hosts.len() / 2].clone()),
        };
        flows.push(Flow {
            name,
            transport_name: transport.name.clone(),
            transport: changed_transport.transport().map_err(|e| wrong(transport, e))?,
            workload_name: workload.name.clone(),
            workload: changed_workload.workload().map_err(|e| wrong(workload, e))?,
            from,
            to,
            start: placed.map_or(Duration::ZERO, |flow| flow.start),
        });
    }
    let sources = experiment.sources.iter().map(|source| background(experiment, source, chosen));
    let sources = sources.collect::<Result<_>>()?;
    Ok(Case {
        world,
        topology: experiment.topology.clone(),
        hops: changed_hops,
        flows,
        mixture: mixed.map(|mixture| mixture.name.clone()),
        sweep: chosen.iter().map(|(sweep, value)| (sweep.name.clone(), value.text.clone())).collect(),
        repetition: 1,
        seed: experiment.seed,
        timeout: experiment.timeout,
        sample_every: experiment.sample_every,
        hosts: experiment.hosts.clone(),
        sources,
        record: experiment.record,
    })
}

/// Background traffic with the values of sweeps.
fn background(experiment: &Experiment, source: &Template, chosen: &Chosen<'_>) -> Result<SimSource> {
    let concerning = chosen.iter().filter(|(sweep, _)| sweep.changes(source));
    let changed = concerning.fold(source.clone(), |changed, (sweep, value)| sweep.apply_to(&changed, value));
    let placed = changed.placed_source(&experiment.topology).map_err(|e| wrong(source, e))?;
    let (bytes, mtu) = (placed.spec.packet_bytes, experiment.hosts.mtu);
    if bytes > u64::from(mtu) && !placed.spec.fragments {
        let why = format!(
            "{bytes} bytes are more than the {mtu} of hosts.mtu; expected fewer, or fragments = true"
        );
        return Err(wrong(source, (Some("packet".to_owned()), why)));
    }
    Ok(placed)
}

fn wrong(template: &Template, (key, why): super::template::Wrong) -> anyhow::Error {
    let key = key.map_or(String::new(), |key| format!(".{key}"));
    anyhow!("{}.{}{key}: {why}", template.group, template.name)
}
