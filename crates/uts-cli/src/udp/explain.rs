//! Explanation of what the selector makes of requirements.

use crate::given::PathGiven;
use serde_json::{Value, json};
use uts::{PathFacts, Rate, Requirements, host};
use uts_engine::selector::{self, Explanation, Library, explain_on};

/// Facts that are given count as well founded.
const SAMPLES: u64 = 10_000;

pub(super) fn explain(requirements: &Requirements, path: &PathGiven, json: bool) -> Result<String, String> {
    let on = (&facts(path), &host::facts());
    let explanation = explain_on(requirements, on, &Library::local(), None).map_err(|e| e.to_string())?;
    Ok(if json { object(&explanation).to_string() } else { explanation.to_string() })
}

/// Why a mechanism is not chosen.
pub(super) fn why_not(requirements: &Requirements, path: &PathGiven, name: &str) -> Result<String, String> {
    let compared = selector::why_not(requirements, (&facts(path), &host::facts()), &Library::local(), name);
    Ok(compared.map_err(|error| format!("--why-not: {error}"))?.to_string())
}

fn facts(path: &PathGiven) -> PathFacts {
    let mut facts = PathFacts::default();
    if *path == PathGiven::default() {
        return facts;
    }
    facts.samples = path.samples.unwrap_or(SAMPLES);
    facts.rtt_min = path.rtt.unwrap_or(facts.rtt_min);
    facts.rtt_smoothed = facts.rtt_min + path.queue.unwrap_or_default();
    facts.capacity = path.rate_bps.map_or(facts.capacity, |bps| Rate::from_bits_per_sec(bps as u64));
    facts.loss = path.loss.unwrap_or(facts.loss);
    facts.loss_burst = path.burst.unwrap_or(facts.loss_burst);
    facts.loss_congestive = path.congestive.unwrap_or(facts.loss_congestive);
    facts.packets_per_s = path.packets_per_s.unwrap_or(facts.packets_per_s);
    facts.packets_at_once = path.together.unwrap_or(facts.packets_at_once);
    facts.payload_bytes = path.payload_bytes.unwrap_or(facts.payload_bytes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Facts that an exchange was decided on can be given to `--path`.
    #[test]
    fn facts_are_read_as_they_are_written() {
        let seen = PathFacts {
            rtt_min: Duration::from_millis(40),
            rtt_smoothed: Duration::from_micros(52_500),
            capacity: Rate::from_bits_per_sec(48_000_000),
            loss: 0.048,
            loss_burst: 3.9,
            loss_congestive: 0.03,
            samples: 2000,
            packets_per_s: 50.0,
            packets_at_once: 2.0,
            payload_bytes: 160.0,
            mtu_bytes: 1472,
            ..PathFacts::default()
        };
        for seen in [seen, PathFacts { loss: 0.0, loss_burst: 1.0, loss_congestive: 0.0, ..seen }] {
            let read = facts(&PathGiven::parse(&seen.to_string()).expect("it is read"));
            assert_eq!(read, seen, "{seen}");
        }
        let unknown = facts(&PathGiven::parse(&PathFacts::default().to_string()).expect("it is read"));
        assert_eq!(unknown, PathFacts::default());
    }
}
