//! Results of an experiment of the laboratory, for the figures of a paper: what transports of today
//! do is drawn beside what the paper's did.
//!
//! Each transport is a unit `beside.NAME`. It has a column for each sweep of numbers and for each
//! measure, and a row for each run, in the order of the first sweep. Rates are in kbit/s, as papers
//! have them.

use crate::paper::{Results, Series};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use uts_record::measures::{Columns, MEASURES_FILE};
use uts_record::plan::Plan;
use uts_record::table::Table;

/// The results in a directory of the laboratory, of runs that are valid; what was not measured in
/// a run is not a number.
///
/// # Errors
/// There are none; a file is not one of the laboratory's.
pub fn read(dir: &Path) -> Result<Results> {
    let plan = Plan::read(dir)?;
    let sweeps: Vec<&str> =
        plan.sweeps.iter().filter(|sweep| sweep.numeric).map(|sweep| sweep.name.as_str()).collect();
    let table = Table::open(&dir.join(MEASURES_FILE), MEASURES_FILE)?;
    let columns = Columns::of(&table, sweeps.iter().copied())?;
    // By transport and run: the figures by their names.
    let mut runs: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>> = BTreeMap::new();
    table.each(|row| {
        if !row.truth(columns.valid)? || row.text(columns.value).is_empty() {
            return Ok(());
        }
        let transport = runs.entry(row.text(columns.transport).to_owned()).or_default();
        let run = transport.entry(row.text(columns.run).to_owned()).or_default();
        for (name, at) in sweeps.iter().zip(&columns.sweeps).filter(|(_, at)| !row.text(**at).is_empty()) {
            run.insert((*name).to_owned(), row.number(*at)?);
        }
        let scale = if row.text(columns.unit) == "bit/s" { 1e-3 } else { 1.0 };
        run.insert(row.text(columns.measure).to_owned(), row.number(columns.value)? * scale);
        Ok(())
    })?;
    ensure!(!runs.is_empty(), "{}: there are no results of valid runs", dir.display());
    let mut results = Results::default();
    for (transport, runs) in runs {
        let mut runs: Vec<_> = runs.into_values().collect();
        if let Some(first) = sweeps.first() {
            let value = |run: &BTreeMap<String, f64>| run.get(*first).copied().unwrap_or(f64::NAN);
            runs.sort_by(|a, b| value(a).total_cmp(&value(b)));
        }
        let mut names: Vec<&String> = runs.iter().flat_map(BTreeMap::keys).collect();
        names.sort_unstable();
        names.dedup();
        let column =
            |name: &String| runs.iter().map(|run| run.get(name).copied().unwrap_or(f64::NAN)).collect();
        let series: Series = names.into_iter().map(|name| (name.clone(), column(name))).collect();
        results.0.insert(format!("beside.{transport}"), series);
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const HEADER: &str =
        "run,world,transport,workload,path,buffer,queue,repetition,seed,flow,measure,value,unit,valid";

    /// A directory with these lines behind the header.
    fn directory(lines: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        let sweep =
            |name: &str, numeric| serde_json::json!({ "name": name, "numeric": numeric, "values": [] });
        let plan = serde_json::json!({
            "format": uts_record::FORMAT, "title": "t", "world": "router", "topology": {}, "transports": [],
            "workloads": [], "paths": [], "mixtures": [], "plots": [], "runs": [],
            "sweeps": [sweep("buffer", true), sweep("queue", false)],
        });
        fs::write(dir.path().join("plan.json"), plan.to_string()).expect("written");
        let text = format!("{HEADER}\n{}\n", lines.join("\n"));
        fs::write(dir.path().join(MEASURES_FILE), text).expect("written");
        dir
    }

    #[test]
    fn each_transport_is_a_unit_with_its_runs_in_the_order_of_the_sweep() {
        let dir = directory(&[
            "a,router,bbr,file,atm,8,codel,1,1,bbr,goodput,4e6,bit/s,true",
            "a,router,bbr,file,atm,8,codel,1,1,bbr,completion,6,s,true",
            "b,router,bbr,file,atm,2,codel,1,1,bbr,goodput,1.5e6,bit/s,true",
            "b,router,bbr,file,atm,2,codel,1,1,bbr,completion,,s,true",
            "c,router,bbr,file,atm,3,codel,1,1,bbr,goodput,9e6,bit/s,false",
            "d,router,reno,file,atm,1,codel,1,1,reno,goodput,2e6,bit/s,true",
        ]);
        let results = read(dir.path()).expect("results");
        assert_eq!(results.column("beside.bbr", "buffer").expect("there"), [2.0, 8.0]);
        assert_eq!(results.column("beside.bbr", "goodput").expect("there"), [1500.0, 4000.0]);
        let completion = results.column("beside.bbr", "completion").expect("there");
        assert!(completion[0].is_nan() && completion[1] == 6.0, "{completion:?}");
        assert_eq!(results.column("beside.reno", "goodput").expect("there"), [2000.0]);
        assert!(results.column("beside.bbr", "queue").is_err(), "it is no number");
    }

    #[test]
    fn a_directory_without_results_is_refused() {
        let empty = tempfile::tempdir().expect("a directory");
        for (dir, expected) in [
            (empty.path(), "plan.json"),
            (directory(&[]).path(), "there are no results of valid runs"),
            (
                directory(&["a,router,bbr,file,atm,eight,,1,1,bbr,goodput,4e6,bit/s,true"]).path(),
                "measures.csv:2: buffer: `eight` is not a number",
            ),
        ] {
            let error = format!("{:#}", read(dir).expect_err("refused"));
            assert!(error.contains(expected), "{error}");
        }
    }
}
