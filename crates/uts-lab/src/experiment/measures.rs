//! The figures of all runs of a plan as lines of `measures.csv`.

use super::case::Case;
use super::outcome::RunFile;
use super::plan::Plan;
use super::sweep::Sweep;
use std::collections::HashMap;
use uts_record::measures::{About, Writer};
use uts_record::run::RunStatus;

/// `measures.csv`: the figures of all runs of a plan that have some.
pub fn measures(plan: &Plan, sweeps: &[Sweep], runs: &HashMap<String, RunFile>) -> Vec<u8> {
    let is_mixed = plan.cases.iter().any(|case| case.mixture.is_some());
    let mut writer = Writer::new(is_mixed, sweeps.iter().map(|sweep| sweep.name.as_str()));
    let finished = plan.ids.iter().zip(&plan.cases).filter_map(|(id, case)| Some((id, case, runs.get(id)?)));
    for (id, case, run) in
        finished.filter(|(.., run)| matches!(run.status, RunStatus::Ok | RunStatus::Invalid))
    {
        let columns: Vec<String> = sweeps.iter().map(|sweep| column(sweep, case)).collect();
        for figure in &run.measures {
            let flow = case.flows.iter().find(|flow| flow.name == figure.flow);
            let transport = flow.map_or_else(|| case.transport_name(), |flow| flow.transport_name.clone());
            let workload = flow.map_or_else(|| case.workload_name(), |flow| flow.workload_name.clone());
            let about = About {
                run: id,
                world: case.world.name(),
                transport: &transport,
                workload: &workload,
                path: &case.path_name(),
                mixture: case.mixture.as_deref().unwrap_or_default(),
                sweeps: &columns,
                repetition: case.repetition,
                seed: case.seed,
                is_valid: run.status == RunStatus::Ok,
            };
            writer.line(&about, figure);
        }
    }
    writer.into_bytes()
}

fn column(sweep: &Sweep, case: &Case) -> String {
    let Some((_, text)) = case.sweep.iter().find(|(name, _)| *name == sweep.name) else {
        return String::new();
    };
    sweep
        .values
        .iter()
        .find(|value| value.text == *text)
        .map_or_else(String::new, |value| sweep.column(value))
}
