//! `uts-lab demo` with the real `uts`: a file over a path that changes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the laboratory faces the world: real sockets, real time"
)]

mod skip;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program beside the laboratory's. Tests of the whole workspace build it, as it has tests of its own.
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

#[test]
fn a_real_copy_is_demonstrated() {
    let Some(uts) = program() else {
        return skip::say("there is no `uts` beside `uts-lab`; `cargo test --workspace` builds it");
    };
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    // Long enough for the change at two thirds to be seen and answered.
    demo.args(["demo", "--quick", "--size", "16MB", "--no-comparison", "--patience", "60"]);
    let ended = demo.arg("--uts").arg(uts).arg("--out").arg(&out).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("the same at both ends"), "{stdout}");
    let report = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(report.contains("</html>") && report.contains("demo.bin"), "it is whole");
}
