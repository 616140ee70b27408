//! One damaged run in a directory keeps nobody from the others: `uts-lab list`, `run` and `report`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const EXPERIMENT: &str = "title = 'Small'\nrepetitions = 3\n[path.wan]\nforward = 'rate=20mbit delay=1ms'\n\
                          [workload.file]\nkind = 'bulk'\nbytes = '10kB'\n[transport.uts]\nkind = 'uts'\n";

fn lab(dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    let command = command.args(arguments).current_dir(dir).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

fn runs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("out/runs")).expect("runs");
    let mut runs: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    runs.sort();
    runs
}

#[test]
fn a_damaged_run_is_named_and_done_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    fs::write(dir.join("e.toml"), EXPERIMENT).expect("written");
    let run = ["run", "e.toml", "--out", "out"];
    assert_eq!(lab(dir, &run).0, Some(0));
    let all = runs(dir);
    assert_eq!(all.len(), 3);
    let whole = fs::read_to_string(all[1].join("run.json")).expect("read");
    let other_format = whole.replacen("\"format\": 1", "\"format\": 2", 1);
    assert_ne!(other_format, whole);
    for (damage, why) in [
        (Some("{\"format\": 1, \"id\""), "is not the record of a run"),
        (Some(&*other_format), "has format 2, and this program reads format 1"),
        (Some(""), "is not the record of a run"),
        (None, "cannot read"),
    ] {
        let (damaged, file) = (&all[1], all[1].join("run.json"));
        let id = damaged.file_name().expect("a name").to_str().expect("text");
        match damage {
            Some(text) => fs::write(&file, text).expect("written"),
            None => fs::remove_file(&file).expect("removed"),
        }
        let (status, out, err) = lab(dir, &["list", "out"]);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
        assert!(out.starts_with("2 ok, 1 damaged of 3: Small\n"), "{out}");
        let line = out.lines().find(|line| line.starts_with("damaged ")).expect("a line");
        assert!(line.contains(id) && line.contains(why), "{line}");
        let (status, out, _) = lab(dir, &["list", "."]);
        assert!(status == Some(0) && out.contains("2 ok, 1 damaged of 3: Small"), "{out}");
        let (status, _, err) = lab(dir, &["report", "out"]);
        assert_eq!(status, Some(0), "{err}");

        // A part of the experiment without it says so, and leaves it.
        let (status, _, err) = lab(dir, &[&run[..], &["--only", "repetition=1"]].concat());
        let told = |then: &str| err.lines().any(|l| l.contains(id) && l.contains(why) && l.ends_with(then));
        assert!(status == Some(0) && told("; it counts as missing"), "{err}");
        let (status, out, err) = lab(dir, &run);
        let told = |then: &str| err.lines().any(|l| l.contains(id) && l.contains(why) && l.ends_with(then));
        assert!(status == Some(0) && told("; it is run again"), "{err}");
        assert!(out.contains("out: 3 ok\n"), "{out}");
        assert_eq!(runs(dir), all);
    }
    // A directory that is none of results keeps nobody from the list, either.
    fs::write(dir.join("out/plan.json"), "{").expect("written");
    let (status, out, _) = lab(dir, &["list", "."]);
    assert!(status == Some(0) && out.contains("damaged: ./out/plan.json is not what it should be"), "{out}");
    assert!(out.contains("./e.toml"), "{out}");
}
