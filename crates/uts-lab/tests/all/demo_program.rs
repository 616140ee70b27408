//! `uts-lab demo` with the real `uts`: a file over a path that changes.

use crate::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program beside the laboratory's. It has tests of its own, so tests of the whole workspace
/// build it.
fn program() -> Option<PathBuf> {
    let uts = Path::new(env!("CARGO_BIN_EXE_uts-lab")).with_file_name("uts");
    let deps = uts.with_file_name("deps");
    let entries = std::fs::read_dir(&deps).map(|entries| entries.flatten().collect::<Vec<_>>());
    let is_of_uts = |name: &str| name.starts_with("uts-") && !name.starts_with("uts-lab");
    let was_built = entries.unwrap_or_default().iter().any(|e| e.file_name().to_str().is_some_and(is_of_uts));
    match uts.is_file() {
        true => Some(uts),
        false if was_built => panic!(
            "{} is missing though crate uts-cli was built; run `cargo build -p uts-cli`",
            uts.display()
        ),
        false => None,
    }
}

/// Number of attempts on a machine that does not keep up with the relay. To a path, such a machine
/// looks like losses. A test in virtual time (`uts-demo/src/plan.rs`) shows that the demonstration
/// answers the path's changes.
const TRIES: u64 = 3;

#[test]
fn a_real_copy_is_demonstrated() {
    let Some(uts) = program() else {
        return skip::say("there is no `uts` beside `uts-lab`; `cargo test --workspace` builds it");
    };
    let dir = tempfile::tempdir().expect("a folder");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for seed in 1..=TRIES {
        let out = dir.path().join(seed.to_string());
        let mut demo = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
        // Long enough for the change at two thirds to be seen and answered.
        demo.args(["demo", "--quick", "--size", "16MB", "--no-comparison", "--patience", "60", "--seed"]);
        demo.arg(seed.to_string()).arg("--uts").arg(&uts).arg("--out").arg(&out);
        let ended = demo.output().expect("it starts");
        let (stdout, stderr) = (text(&ended.stdout), text(&ended.stderr));
        // Whatever else holds, the file arrives, and the report is written.
        assert!(stdout.contains("the same at both ends"), "seed {seed}: {stdout}{stderr}");
        let report = std::fs::read_to_string(out.join("report.html")).expect("a report");
        assert!(report.contains("</html>") && report.contains("demo.bin"), "it is whole");
        if ended.status.success() {
            return;
        }
        let may_try_again = stderr.contains("no exchange answered the change") && seed < TRIES;
        assert!(may_try_again, "seed {seed}: {stdout}{stderr}");
        println!("seed {seed}: {stderr}");
    }
}

/// The laboratory is a part of `uts` as well: then the ends of TCP are commands of that program.
#[test]
fn uts_lab_finds_the_ends_of_tcp() {
    let Some(uts) = program() else {
        return skip::say("there is no `uts` beside `uts-lab`; `cargo test --workspace` builds it");
    };
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let mut demo = Command::new(uts);
    demo.args(["lab", "demo", "--quick", "--size", "300kB", "--against", "tcp", "--out"]).arg(&out);
    let output = demo.output().expect("started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("TCP cannot be compared with here") {
        return skip::say(&said);
    }
    // So short a file may end before an exchange answers the path, which is another matter.
    let record = uts_record::demo::load(&out).unwrap_or_else(|error| panic!("{error:#}: {said}"));
    assert!(record.runs.iter().any(|run| run.name == "tcp"), "{said}");
}
