//! The program as people run it: a scenario, its page, and mistakes.

use std::process::{Command, Output};

fn regret(arguments: &[&str], directory: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-regret"));
    command.args(arguments).arg("--out").arg(directory).output().expect("it starts")
}

#[test]
fn a_scenario_is_run_by_every_contender_and_the_page_says_how_it_went() {
    let directory = tempfile::tempdir().expect("a directory");
    // Over PPP, how long a packet takes depends on its bytes, and so on keys that are drawn anew.
    let arguments = ["--only", "asymmetric/telemetry", "--seeds", "1", "--drawn", "0"];
    let first = regret(&arguments, &directory.path().join("a"));
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let said = String::from_utf8_lossy(&first.stdout);
    assert!(said.starts_with("may be looked at: 1 scenarios,"), "{said}");
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect(name);
    let figures = read("a/regret.json");
    for contender in ["adaptive", "first", "bbr-once+rs"] {
        assert!(figures.contains(&format!("\"{contender}\"")), "no {contender}: {figures}");
    }
    assert!(read("a/index.html").contains("asymmetric/telemetry"));
    // The same again, to the byte.
    let again = regret(&arguments, &directory.path().join("b"));
    assert!(again.status.success());
    assert_eq!(read("b/regret.json"), figures);
}

#[test]
fn what_matches_nothing_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = regret(&["--only", "nothing-like-that"], directory.path());
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error.trim(), "uts-regret: no scenario has `nothing-like-that` in its name");
}
