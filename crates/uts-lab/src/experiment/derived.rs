//! Figures that follow from what a world recorded.

use super::case::{Case, Flow};
use super::outcome::Outcome;
use uts_path::{LinkConfig, PathConfig, Setting};
use uts_record::run::Figure;
use uts_traffic::workload::Workload;

/// Adds what follows: shares of the link's rate, fairness, processor time.
pub fn add(case: &Case, outcome: &mut Outcome) {
    let goodput = |flow: &Flow| {
        let of_flow = |figure: &&Figure| figure.flow == flow.name && figure.name == "goodput";
        outcome.measures.iter().find(of_flow).map(|figure| figure.value)
    };
    let mut derived = Vec::new();
    let mut all = Vec::new();
    for flow in &case.flows {
        let Some(bps) = goodput(flow) else { continue };
        all.push(bps);
        // What a workload offers by the clock is no share of what the link could carry.
        let seeks_capacity = matches!(flow.workload, Workload::Bulk { .. } | Workload::Files { .. });
        if let Some(rate_bps) = slowest_rate(case, flow).filter(|_| seeks_capacity) {
            derived.push(Figure::new(&flow.name, "goodput_share", bps / rate_bps, "1"));
        }
    }
    if all.len() > 1 && all.len() == case.flows.len() {
        derived.extend(jain(&all).map(|index| Figure::new("", "fairness", index, "1")));
    }
    let processes: Vec<f64> =
        outcome.cpu.iter().map(|cpu| cpu.user_s + cpu.system_s.unwrap_or(0.0)).collect();
    if !processes.is_empty() {
        derived.push(Figure::new("", "cpu", processes.iter().sum(), "s"));
    }
    outcome.measures.extend(derived);
}

/// Jain's index of fairness: 1 if all are alike, 1/n if one has all (Jain, Chiu and Hawe 1984).
/// `None` if none has anything.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The rate of the slowest link that a flow's data pass, in bits per second; of a trace, its mean.
/// `None` if no link has a rate, or a schedule changes one.
fn slowest_rate(case: &Case, flow: &Flow) -> Option<f64> {
    bottleneck(case, flow).map(|(_, bps)| bps as f64)
}

/// The slowest hop on a flow's way, and its rate.
pub(crate) fn bottleneck(case: &Case, flow: &Flow) -> Option<(usize, u64)> {
    let is_forward = !flow.from.starts_with("server");
    let mut slowest: Option<(usize, u64)> = None;
    for (i, hop) in case.hops.iter().enumerate() {
        let config = hop.config(&LinkConfig::default()).ok()?;
        if changes_rate(&config) {
            return None;
        }
        let link = if is_forward { &config.forward } else { &config.backward };
        let Some(bps) = link.mean_rate_bps().ok()? else { continue };
        if slowest.is_none_or(|(_, least)| bps < least) {
            slowest = Some((i, bps));
        }
    }
    slowest
}

fn changes_rate(config: &PathConfig) -> bool {
    let is_rate = |setting: &Setting| matches!(setting, Setting::Rate(_) | Setting::Opportunities(_));
    config.schedule.entries.iter().any(|entry| entry.change.settings().iter().any(is_rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_a_share_for_one_alone() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[7.0, 0.0]), Some(0.5));
        assert!((jain(&[2.0, 1.0]).unwrap() - 0.9).abs() < 1e-12);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
