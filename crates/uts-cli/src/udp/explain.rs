//! Explanation of what the selector makes of requirements.

use crate::given::PathGiven;
use serde_json::{Value, json};
use uts::{PathFacts, Rate, Requirements};
use uts_engine::selector::{self, Explanation, Library, explain as select};

/// Facts that are given count as well founded.
const SAMPLES: u64 = 10_000;

pub(super) fn explain(requirements: &Requirements, path: &PathGiven, json: bool) -> Result<String, String> {
    let explanation =
        select(requirements, &facts(path), &Library::local(), None).map_err(|e| e.to_string())?;
    Ok(if json { object(&explanation).to_string() } else { explanation.to_string() })
}

/// Why a mechanism is not chosen.
pub(super) fn why_not(requirements: &Requirements, path: &PathGiven, name: &str) -> Result<String, String> {
    let compared = selector::why_not(requirements, &facts(path), &Library::local(), name);
    Ok(compared.map_err(|error| format!("--why-not: {error}"))?.to_string())
}

fn facts(path: &PathGiven) -> PathFacts {
    let mut facts = PathFacts::default();
    if *path == PathGiven::default() {
        return facts;
    }
    facts.samples = SAMPLES;
    if let Some(rtt) = path.rtt {
        (facts.rtt_min, facts.rtt_smoothed) = (rtt, rtt);
    }
    facts.capacity = path.rate_bps.map_or(facts.capacity, |bps| Rate::from_bits_per_sec(bps as u64));
    facts.loss = path.loss.unwrap_or(facts.loss);
    facts.loss_burst = path.burst.unwrap_or(facts.loss_burst);
    facts.mtu_bytes = path.mtu_bytes.unwrap_or(facts.mtu_bytes);
    facts
}

fn object(explanation: &Explanation) -> Value {
    let functions: Vec<Value> = explanation
        .lines
        .iter()
        .map(|line| {
            json!({
                "function": line.function.name(), "mechanism": line.mechanism, "parameters": line.parameters,
                "because": line.source.to_string(), "why": line.why, "alternatives": line.alternatives,
                "header_bytes": line.header_bytes, "cpu_ns": line.cpu_ns, "delay_ms": line.delay_s * 1e3,
            })
        })
        .collect();
    json!({
        "requirements": explanation.requirements,
        "profile": explanation.selection.profile.to_string(),
        "functions": functions,
        "in_time": explanation.timeliness.map(|timely| timely.in_time),
        "missed": explanation.timeliness.filter(|timely| timely.is_missed()).map(|timely| timely.to_string()),
        "delay_ms": explanation.delay().map(|delay| delay.as_secs_f64() * 1e3),
    })
}
