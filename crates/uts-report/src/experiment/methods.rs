//! Origin of the figures: set-up, seeds, machine, versions, and which runs do not count and why.

use super::directory::{Directory, Kind, Run, RunStatus, some, tally};
use super::quantity::three_digits;
use super::select::table_in_words;
use super::sweep::runs as counted;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use uts_plot::html::{capitalised, escape};

/// The section.
pub(super) fn methods(directory: &Directory) -> String {
    let mut html = setting(directory);
    html.push_str("<h3>Validity of runs</h3>");
    html.push_str(&validity(directory));
    html.push_str("<h3>Statistics</h3>");
    html.push_str(STATISTICS);
    html.push_str("<h3>Machine and versions</h3>");
    html.push_str(&machine(directory));
    html.push_str(&all_runs(directory));
    if let Some(text) = &directory.text {
        let _ = write!(
            html,
            "<details><summary>The experiment file</summary><pre>{}</pre></details>",
            escape(text)
        );
    }
    html
}

const STATISTICS: &str = "<p>A repetition has a seed of its own. Means are over valid repetitions; intervals are 95 % \
    confidence intervals of the mean by Student’s t, which take repetitions to be independent and nearly normal. Boxes are \
    Tukey’s, their quartiles of type 7 (Hyndman and Fan 1996). Differences of means are judged by Welch’s test, without a \
    correction for the number of comparisons. Pictures over time are thinned so that each peak stays; all samples are in the \
    directory.</p>";

/// In one line: how many runs ended in which way.
pub(super) fn progress(directory: &Directory) -> String {
    let tally = tally(&directory.runs);
    let count = |status| tally.get(&status).copied().unwrap_or(0);
    let (all, pending) = (directory.runs.len(), count(None));
    let mut parts = vec![format!("{} ok", count(Some(RunStatus::Ok)))];
    for (status, word) in
        [(RunStatus::Invalid, "invalid"), (RunStatus::Failed, "failed"), (RunStatus::Skipped, "skipped")]
    {
        if count(Some(status)) > 0 {
            parts.push(format!("{} {word}", count(Some(status))));
        }
    }
    if pending > 0 {
        parts.push(format!("{pending} not run yet"));
    }
    format!("{}: {}", counted(all, "run", "runs"), parts.join(", "))
}

fn setting(directory: &Directory) -> String {
    let plan = &directory.plan;
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            rows.push((name.to_owned(), value));
        }
    };
    for name in directory.values(directory.dimension(&Kind::World)) {
        add("World", world(name));
    }
    add("Topology", json_in_words(&plan.topology));
    for (what, table, names) in [
        ("Path", "path", &plan.paths),
        ("Workload", "workload", &plan.workloads),
        ("Transport", "transport", &plan.transports),
        ("Mixture", "mixture", &plan.mixtures),
    ] {
        for name in names {
            let about = directory.entry(table, name).map(table_in_words).unwrap_or_default();
            add(&format!("{what} {name}"), if about.is_empty() { "as named".into() } else { about });
        }
    }
    for sweep in &plan.sweeps {
        let values: Vec<&str> = sweep.values.iter().map(|v| v.text.as_str()).collect();
        let key = sweep.key.as_ref().map(|key| format!(" (sets {key})")).unwrap_or_default();
        add(&format!("Sweep {}", sweep.name), format!("{}{key}", values.join(", ")));
    }
    add("Repetitions", plan.repetitions.map(|n| n.to_string()).unwrap_or_default());
    let seeds: BTreeSet<u64> = directory.runs.iter().filter_map(|run| run.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let of_runs =
        if seeds.is_empty() { String::new() } else { format!("; of the repetitions: {}", some(&seeds)) };
    add("Seed", plan.seed.map(|seed| format!("{seed}{of_runs}")).unwrap_or_default());
    facts(&rows)
}

fn world(name: &str) -> String {
    match name {
        "" => String::new(),
        "sim" => "sim: virtual time; the same seed gives the same figures on any machine".into(),
        "relay" => {
            "relay: processes on loopback, between them a UDP relay that emulates the path in real time"
                .into()
        }
        "router" => {
            "router: network namespaces, between them RouterPC, which emulates the path in real time".into()
        }
        other => other.into(),
    }
}

fn facts(rows: &[(String, String)]) -> String {
    let mut html = String::from("<div class=\"scroll\"><table class=\"facts\"><tbody>");
    for (name, value) in rows {
        let _ = write!(html, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    html + "</tbody></table></div>"
}

/// Runs that do not count, by the reason, and how true the emulation was to its model in the
/// others.
fn validity(directory: &Directory) -> String {
    let mut html = format!("<p>{}.</p>", escape(&progress(directory)));
    let mut reasons: BTreeMap<(RunStatus, &str), Vec<String>> = BTreeMap::new();
    for run in &directory.runs {
        if let Some(record) = run.record.as_ref().filter(|r| r.status != RunStatus::Ok) {
            let why = record.why.as_deref().unwrap_or("no reason was given");
            reasons.entry((record.status, why)).or_default().push(run.id.clone());
        }
    }
    if !reasons.is_empty() {
        html.push_str(
            "<div class=\"scroll\"><table><thead><tr><th>Ended</th><th class=\"number\">Runs</th><th>Why</th><th>Which</th></tr>\
             </thead><tbody>",
        );
        for ((status, why), ids) in reasons {
            let _ = write!(
                html,
                "<tr><td>{}</td><td class=\"number\">{}</td><td>{}</td><td><code>{}</code></td></tr>",
                word(Some(status)),
                ids.len(),
                escape(why),
                escape(&some(&ids))
            );
        }
        html.push_str("</tbody></table></div>");
    }
    html + &fidelity(directory)
}

fn fidelity(directory: &Directory) -> String {
    let is_ok = |run: &&Run| run.record.as_ref().is_some_and(|r| r.status == RunStatus::Ok);
    let records: Vec<_> = directory.runs.iter().filter(is_ok).filter_map(|run| run.record.as_ref()).collect();
    let of: Vec<_> = records.iter().filter_map(|r| r.fidelity).collect();
    let repeated = records.iter().filter(|r| !r.attempts.is_empty()).count();
    let mut html = String::new();
    if repeated > 0 {
        let _ = write!(
            html,
            "<p>{} beyond the bounds of fidelity at first and repeated; what counts is the attempt within them.</p>",
            counted(repeated, "run was", "runs were")
        );
    }
    let worst =
        |value: fn(&uts_record::run::Fidelity) -> Option<f64>| of.iter().filter_map(value).reduce(f64::max);
    let mut parts = Vec::new();
    if let Some(us) = worst(|f| f.lateness_p99_us) {
        parts.push(format!("departures late by {} µs at the 99th percentile", three_digits(us)));
    }
    if let Some(us) = worst(|f| f.lateness_max_us) {
        parts.push(format!("by {} µs at most", three_digits(us)));
    }
    if let Some(lost) = worst(|f| f.lost_outside.map(|packets| packets as f64)) {
        parts.push(format!("{} packets lost outside the model", three_digits(lost)));
    }
    if let Some(share) = worst(|f| f.cpu_share) {
        parts.push(format!("{} % of a core used", three_digits(share * 100.0)));
    }
    if !parts.is_empty() {
        let _ = write!(
            html,
            "<p>At worst among the {}: {}.</p>",
            counted(of.len(), "valid run", "valid runs"),
            parts.join(", ")
        );
    }
    html
}

fn machine(directory: &Directory) -> String {
    let mut rows = Vec::new();
    if let Some(machine) = &directory.machine {
        flatten("", machine, &mut rows);
    }
    let versions: BTreeSet<&str> =
        directory.runs.iter().filter_map(|run| run.record.as_ref()?.version.as_deref()).collect();
    if !versions.is_empty() {
        rows.push(("Runs were made by".into(), versions.into_iter().collect::<Vec<_>>().join(", ")));
    }
    rows.push(("This page was made by".into(), concat!("uts-lab ", env!("CARGO_PKG_VERSION")).into()));
    facts(&rows)
}

/// JSON as rows; the names of what is within what are joined.
fn flatten(name: &str, value: &serde_json::Value, rows: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('_', " ");
                flatten(
                    &if name.is_empty() { capitalised(&key) } else { format!("{name}, {key}") },
                    value,
                    rows,
                );
            }
        }
        serde_json::Value::Null => {}
        serde_json::Value::Number(bytes) if name.ends_with("emory bytes") => {
            let gib = bytes.as_f64().unwrap_or_default() / f64::from(1 << 30);
            rows.push((name.trim_end_matches(" bytes").to_owned(), format!("{gib:.1} GiB")));
        }
        other => rows.push((name.to_owned(), json_in_words(other))),
    }
}

fn json_in_words(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(list) => list.iter().map(json_in_words).collect::<Vec<_>>().join(", "),
        serde_json::Value::Object(map) => map
            .iter()
            .map(|(key, v)| format!("{} {}", key.replace('_', " "), json_in_words(v)))
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    }
}

fn all_runs(directory: &Directory) -> String {
    let mut html = format!(
        "<details><summary>All {}</summary><div class=\"scroll\"><table class=\"cells sortable\"><thead><tr><th>Run</th>\
         <th>Ended</th><th class=\"number\">Seed</th><th class=\"number\">Took (s)</th><th class=\"number\">Late p99 (µs)</th>\
         <th>Why; earlier attempts</th></tr></thead><tbody>",
        counted(directory.runs.len(), "run", "runs")
    );
    for run in &directory.runs {
        let record = run.record.as_ref();
        let number = |value: Option<f64>| value.map_or("–".into(), three_digits);
        let why = record.map(|r| r.why.iter().chain(&r.attempts).cloned().collect::<Vec<_>>().join("; "));
        let _ = write!(
            html,
            "<tr><td><code>{}</code></td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td>{}</td></tr>",
            escape(&run.id),
            word(record.map(|r| r.status)),
            run.seed.map_or("–".into(), |seed| seed.to_string()),
            number(record.and_then(|r| r.elapsed_s)),
            number(record.and_then(|r| r.fidelity?.lateness_p99_us)),
            escape(&why.unwrap_or_default()),
        );
    }
    html + "</tbody></table></div></details>"
}

fn word(status: Option<RunStatus>) -> &'static str {
    match status {
        None => "not run yet",
        Some(RunStatus::Ok) => "ok",
        Some(RunStatus::Invalid) => "invalid",
        Some(RunStatus::Failed) => "failed",
        Some(RunStatus::Skipped) => "skipped",
    }
}
