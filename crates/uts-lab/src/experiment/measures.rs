//! The figures of all runs of a plan as lines of `measures.csv`.

use super::case::Case;
use super::outcome::RunFile;
use std::collections::HashMap;
use uts_record::measures::{About, Writer};
use uts_record::plan::{Plan, Sweep};
use uts_record::run::RunStatus;

/// `measures.csv`: the figures of all runs of a plan that have some.
pub fn measures(plan: &Plan, runs: &HashMap<String, RunFile>) -> Vec<u8> {
    let is_mixed = plan.runs.iter().any(|run| run.mixture.is_some());
    let mut writer = Writer::new(is_mixed, plan.sweeps.iter().map(|sweep| sweep.name.as_str()));
    let finished = plan.runs.iter().filter_map(|planned| runs.get_key_value(&planned.id));
    for (id, run) in finished.filter(|(_, run)| matches!(run.status, RunStatus::Ok | RunStatus::Invalid)) {
        let case = &run.case;
        let columns: Vec<String> = plan.sweeps.iter().map(|sweep| column(sweep, case)).collect();
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
    let value = case.sweep.iter().find(|(name, _)| *name == sweep.name);
    value.map_or_else(String::new, |(_, text)| sweep.column(text))
}
