//! `uts-lab probes` as a program: budgets as text and as JSON, and what it refuses.

use serde_json::Value;
use std::process::{Command, Output};

fn probes(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    command.arg("probes").args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn budgets_are_whole_as_json() {
    let output = probes(&["--packets", "30", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let measured: Value = serde_json::from_slice(&output.stdout).expect("an object");
    let budgets = measured["budgets"].as_array().expect("a list");
    let kinds: Vec<_> =
        budgets.iter().map(|b| (b["kind"].as_str().expect("text"), number(&b["bytes"]))).collect();
    assert_eq!(kinds, [("data", 1.0), ("data", 1400.0), ("acknowledgement", 0.0)]);
    for (budget, rows) in budgets.iter().zip([18, 18, 11]) {
        let (packets, left_out) = (number(&budget["packets"]), number(&budget["left_out"]));
        let rounds = if budget["kind"] == "data" { 30.0 } else { 60.0 };
        assert_eq!(packets + left_out, rounds, "{budget}");
        let of = budget["rows"].as_array().expect("a list");
        assert_eq!(of.len(), rows);
        let mut shares = [0.0; 3];
        for row in of {
            let us = &row["us"];
            let (low, median, high) = (number(&us["low"]), number(&us["median"]), number(&us["high"]));
            assert!(0.0 <= low && low <= median && median <= high, "{row}");
            assert_eq!(number(&row["to"]), number(&row["from"]) + 1.0);
            shares[0] += number(&row["share"]);
            for (sum, published) in shares[1..].iter_mut().zip(row["thesis"].as_array().expect("a list")) {
                *sum += number(&published["share"]);
            }
        }
        assert!(shares.iter().all(|sum| (sum - 1.0).abs() < 1e-6), "{shares:?}");
        assert!(number(&budget["stages_us"]) > 0.0);
    }
    let costs = measured["probes"].as_array().expect("a list");
    assert_eq!(costs.iter().map(|cost| number(&cost["bytes"])).collect::<Vec<_>>(), [1.0, 1400.0]);
    assert!(costs.iter().all(|cost| number(&cost["without_us"]["median"]) > 0.0));
}

#[test]
fn budgets_stand_beside_the_thesis_as_text() {
    let output = probes(&["--packets", "10"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for expected in ["packets of 1 byte", "packets of 1400 bytes", "acknowledgements", "i486", "DEC 5000"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let rows =
        said.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()) && line.contains(" - "));
    assert_eq!(rows.count(), 18 + 18 + 11, "{said}");
    // Table 3.3, between the points 18 and 19.
    let reading = said.lines().filter(|line| line.starts_with("18 - 19"));
    assert!(reading.zip(["774.93", "1116.96"]).all(|(line, value)| line.contains(value)), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 130), "{said}");
}

#[test]
fn a_number_of_packets_out_of_range_is_refused() {
    for wrong in ["0", "many"] {
        let output = probes(&["--packets", wrong]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--packets"), "{}", text(&output.stderr));
    }
}
