//! `uts-lab run --shard` and `uts-lab merge` as programs, and `scripts/dask-lab`, which calls them.

use crate::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Figures that have many digits, samples of every kind, a sweep of numbers; nine runs.
const EXPERIMENT: &str = "title = 'Small'\nrepetitions = 3\n[path.wan]\nforward = 'rate=3mbit delay=7ms buffer=20p'\n\
                          [workload.file]\nkind = 'bulk'\nbytes = '70kB'\n[transport.uts]\nkind = 'uts'\n\
                          [[sweep]]\nkey = 'path.wan.loss'\nvalues = [0, 0.013, 'ge:0.05,4']\n\
                          [record]\nsequence = true\nqlog = true\npcap = true\n";

struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("e.toml"), EXPERIMENT).unwrap();
        Bench(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Calls the laboratory, which has to end with a status; what it said.
    fn lab(&self, status: i32, arguments: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
        command.args(arguments.split(' ')).current_dir(self.0.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {said}");
        said
    }

    /// Three shards, as a, b and c.
    fn shards(&self) {
        for (i, name) in [(1, "a"), (2, "b"), (3, "c")] {
            self.lab(0, &format!("run e.toml --shard {i}/3 --out {name}"));
        }
    }

    fn only_run(&self, directory: &str) -> PathBuf {
        let runs = fs::read_dir(self.path(directory).join("runs")).unwrap();
        runs.map(|entry| entry.unwrap().path()).min().unwrap()
    }

    fn change(&self, file: &Path, from: &str, to: &str) {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(file, text.replacen(from, to, 1)).unwrap();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// All files of a directory by their names, without what differs from one occasion to the next.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            if file.is_dir() {
                folders.push(file);
                continue;
            }
            let mut bytes = fs::read(&file).unwrap();
            if file.extension().is_some_and(|extension| extension == "json") {
                let mut value: Value = serde_json::from_slice(&bytes).unwrap();
                for name in ["started_unix_s", "elapsed_s", "load_1_min"] {
                    value.as_object_mut().unwrap().remove(name);
                }
                bytes = serde_json::to_vec(&value).unwrap();
            }
            if file.extension().is_some_and(|extension| extension == "pcap") {
                // Keys are drawn afresh each time.
                bytes = bytes.len().to_le_bytes().to_vec();
            }
            found.insert(file.strip_prefix(path).unwrap().to_owned(), bytes);
        }
    }
    found
}

fn assert_equal(one: &Path, other: &Path) {
    let (one, other) = (contents(one), contents(other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(bytes == &other[name], "{} differs", name.display());
    }
}

#[test]
fn shards_make_the_same_whole_as_one_run_of_all() {
    let bench = Bench::new();
    assert!(bench.lab(0, "run e.toml --out whole").contains("whole: 9 ok\n"));
    bench.shards();
    let listed = bench.lab(0, "run e.toml --dry-run --shard 3/3");
    assert_eq!(listed.lines().skip(1).count(), 3, "{listed}");
    for line in listed.lines().skip(1) {
        assert!(bench.path("c/runs").join(line.trim()).is_dir(), "{line}");
    }
    // A shard by itself is an unfinished experiment.
    assert!(bench.lab(0, "list a").starts_with("3 ok, 6 not run of 9: Small\n"));
    bench.lab(0, "report a");

    // What is missing is named, and may come later.
    let missing = bench.lab(1, "merge out a c");
    assert_eq!(missing.matches("missing  sim.uts.file.wan").count(), 3, "{missing}");
    assert!(missing.contains("out: 6 ok, 3 not run\n"), "{missing}");
    let whole = bench.lab(0, "merge out b c");
    assert!(whole.contains("out: 9 ok\n") && !whole.contains("missing"), "{whole}");
    assert_equal(&bench.path("whole"), &bench.path("out"));
    assert!(contents(&bench.path("out")).keys().any(|name| name.extension().is_some_and(|e| e == "sqlog")));
    bench.lab(0, "report out");
    // A merged experiment continues as any other, and has nothing left to do.
    let again = bench.lab(0, "run e.toml --out out");
    assert!(again.contains("out: 9 ok\n") && !again.contains("ok       sim"), "{again}");
}

#[test]
fn a_shard_of_nothing_says_so_and_one_that_is_none_is_refused() {
    let bench = Bench::new();
    let empty = bench.lab(0, "run e.toml --shard 10/10");
    assert!(empty.contains("shard 10/10 is empty: it has none of the 9 runs"), "{empty}");
    let out = bench.path("lab-out/e-shard-10-of-10");
    assert!(out.join("plan.json").is_file() && fs::read_dir(out.join("runs")).unwrap().next().is_none());
    for wrong in ["0/4", "5/4", "x/4", "3"] {
        let refused = bench.lab(2, &format!("run e.toml --out no --shard {wrong}"));
        assert!(refused.contains("expected I/N, two whole numbers with I from 1 to N"), "{refused}");
    }
    for (world, more) in [("relay", ""), ("router", ""), ("relay", " --dry-run")] {
        let refused =
            bench.lab(1, &format!("run e.toml --out no --shard 1/2 --world sim --world {world}{more}"));
        assert!(
            refused.contains(&format!("--shard 1/2: the experiment has runs in the world {world}")),
            "{refused}"
        );
    }
    assert!(!bench.path("no").exists());
}

#[test]
fn what_does_not_go_together_is_refused_before_anything_is_written() {
    let bench = Bench::new();
    bench.shards();
    let refused = |arguments: &str, why: &str| {
        let said = bench.lab(1, &format!("merge {arguments}"));
        assert!(said.contains(why), "{said}");
        assert!(!bench.path("out").exists());
    };
    refused("out a nowhere", "cannot read nowhere/plan.json, which each directory of an experiment has");

    fs::write(bench.path("other.toml"), EXPERIMENT.replace("70kB", "71kB")).unwrap();
    bench.lab(0, "run other.toml --shard 2/3 --out other");
    refused("out a other", "a and other are of different experiments: their experiment.toml differs");

    // The same run, other figures; then the same figures, another recording; then another version.
    bench.lab(0, "run e.toml --shard 1/9 --out d");
    let run = bench.only_run("d");
    let (file, sample) = (run.join("run.json"), run.join("samples/goodput.csv"));
    let whole = fs::read_to_string(&file).unwrap();
    bench.change(&file, "\"goodput\",\n      \"value\": ", "\"goodput\",\n      \"value\": 1");
    refused("out a d", "contradict each other: their run.json differs");
    fs::write(&file, &whole).unwrap();
    bench.lab(1, "merge agreed a d");
    let goodput = fs::read(&sample).unwrap();
    fs::write(&sample, "t_s,flow,delivered_bytes\n").unwrap();
    refused("out a d", "contradict each other: their samples/goodput.csv differs");
    fs::write(&sample, goodput).unwrap();
    bench.change(&file, "\"uts-lab ", "\"uts-lab 9");
    refused("out d b", "one version has to make all");
    fs::write(&file, &whole).unwrap();

    // A run that cannot be read is missing, one under a wrong name too.
    fs::write(&file, "{").unwrap();
    let said = bench.lab(1, "merge partly b d");
    assert!(
        said.contains("is not the record of a run") && said.contains("partly: 3 ok, 6 not run"),
        "{said}"
    );
    fs::write(&file, fs::read(bench.only_run("b").join("run.json")).unwrap()).unwrap();
    assert!(bench.lab(1, "merge partly d").contains("run.json is that of the run sim.uts.file.wan"));
    // A link is a way out of the directory.
    fs::write(&file, &whole).unwrap();
    fs::remove_file(&sample).unwrap();
    std::os::unix::fs::symlink(bench.path("e.toml"), &sample).unwrap();
    assert!(bench.lab(1, "merge linked d").contains("goodput.csv is not a file"));
    assert!(bench.path("linked/runs").read_dir().unwrap().next().is_none());

    fs::create_dir(bench.path("theirs")).unwrap();
    fs::write(bench.path("theirs/thesis.tex"), "x").unwrap();
    assert!(bench.lab(1, "merge theirs a").contains("theirs holds other files"));
    assert_eq!(bench.path("theirs").read_dir().unwrap().count(), 1);
}

#[test]
fn machines_are_each_named_once() {
    let bench = Bench::new();
    bench.shards();
    bench.change(&bench.path("b/machine.json"), "\"kernel\": \"", "\"kernel\": \"other-");
    bench.lab(1, "merge out a b");
    bench.lab(0, "merge out c");
    let machine: Value = serde_json::from_slice(&fs::read(bench.path("out/machine.json")).unwrap()).unwrap();
    let machines = machine["machines"].as_array().unwrap();
    assert_eq!(machines.len(), 2, "{machine}");
    assert!(machines[1]["kernel"].as_str().unwrap().starts_with("other-"));
    bench.lab(0, "report out");
}

#[test]
fn dask_does_the_shards_on_two_workers() {
    let has_dask = Command::new("python3").args(["-c", "import distributed"]).output();
    if !has_dask.is_ok_and(|output| output.status.success()) {
        return skip::say("no python3 with dask.distributed");
    }
    let bench = Bench::new();
    bench.lab(0, "run e.toml --out whole");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dask-lab");
    let call = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.arg(&script).args(["--lab", env!("CARGO_BIN_EXE_uts-lab")]).args(arguments);
        let output = command.current_dir(bench.0.path()).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), said(&output))
    };
    let (status, told) = call(&["e.toml", "--shards", "4", "--out", "out"]);
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("4 of 4 shards") && told.contains("out: 9 ok"), "{told}");
    assert_equal(&bench.path("whole"), &bench.path("out"));
    let (status, told) = call(&["e.toml", "--world", "relay"]);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("only runs in virtual time can be shared out"), "{told}");
}
