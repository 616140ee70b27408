//! Compressed records of runs are read as if they were not compressed, by this program and by
//! others. The workspace `readers` has tests of other readers.

use crate::skip;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use uts_record::compressed;

/// A path that goes bad, so that packets are lost and mechanisms exchanged; two runs.
const EXPERIMENT: &str = "title = 'Small'\nrepetitions = 2\ntimeout = '60s'\n\
                          [path.wan]\nforward = 'rate=20mbit delay=10ms buffer=64p'\n\
                          schedule = 'at=500ms fwd loss=ge:0.05,4'\n\
                          [workload.file]\nkind = 'bulk'\nbytes = '5MB'\n[transport.uts]\nkind = 'uts'\n\
                          [record]\nsequence = true\nqlog = true\npcap = true\n";

struct Bench(TempDir);

impl Bench {
    /// Both directories: `plain` and `small`.
    fn new() -> Self {
        let bench = Bench(tempfile::tempdir().unwrap());
        for (name, more) in [("plain", ""), ("small", "compress = true\n")] {
            fs::write(bench.path(&format!("{name}.toml")), format!("{EXPERIMENT}{more}")).unwrap();
            bench.lab(&format!("run {name}.toml --out {name}"));
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Output of the laboratory, which has to end well.
    fn lab(&self, arguments: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
        let output = command.args(arguments.split(' ')).current_dir(self.0.path()).output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert_eq!(output.status.code(), Some(0), "{arguments}: {said:?}");
        said.concat()
    }

    /// The files of samples of a directory, by run and name.
    fn samples(&self, name: &str) -> BTreeMap<(String, String), PathBuf> {
        let named = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let all = |dir: PathBuf| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        all(self.path(name).join("runs"))
            .flat_map(|run| all(run.join("samples")).map(move |file| ((named(&run), named(&file)), file)))
            .collect()
    }
}

fn contents(path: &Path) -> Vec<u8> {
    let mut contents = Vec::new();
    compressed::open(path).unwrap().read_to_end(&mut contents).unwrap();
    contents
}

#[test]
fn compressed_runs_are_the_same_runs() {
    let bench = Bench::new();
    let (plain, small) = (bench.samples("plain"), bench.samples("small"));
    let with_suffix = |(run, name): &(String, String)| (run.clone(), format!("{name}.gz"));
    assert_eq!(plain.keys().map(with_suffix).collect::<Vec<_>>(), small.keys().cloned().collect::<Vec<_>>());
    for (key, file) in &plain {
        let (before, after) = (fs::read(file).unwrap(), contents(&small[&with_suffix(key)]));
        match key.1.ends_with(".pcap") {
            // Other ciphers.
            true => assert_eq!(before.len(), after.len(), "{key:?}"),
            false => assert!(before == after, "{key:?}"),
        }
    }
    let measures = |name: &str| fs::read(bench.path(name).join("measures.csv")).unwrap();
    assert!(measures("plain") == measures("small"));
    let bytes = |all: &BTreeMap<_, PathBuf>| -> u64 {
        all.iter()
            .filter(|((_, name), _): &(&(String, String), _)| !name.contains(".pcap"))
            .map(|(_, file)| fs::metadata(file).unwrap().len())
            .sum()
    };
    assert!(bytes(&small) * 3 < bytes(&plain), "{} of {}", bytes(&small), bytes(&plain));
    // All that reads runs reads these.
    for name in ["plain", "small"] {
        bench.lab(&format!("report {name}"));
        let page = fs::read_to_string(bench.path(name).join("report.html")).unwrap();
        assert!(!page.contains("left out"), "{name}");
    }
    for shard in 1..=2 {
        bench.lab(&format!("run small.toml --shard {shard}/2 --out part-{shard}"));
    }
    bench.lab("merge whole part-1 part-2 small");
    assert_eq!(bench.samples("whole").len(), small.len());
}

/// With the feature the program writes them; without it says how to get it.
#[test]
fn parquet_is_a_feature() {
    let bench = Bench::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    let output = command.args(["parquet", "small"]).current_dir(bench.path("")).output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    match cfg!(feature = "parquet") {
        true => assert!(said[0].starts_with("small/parquet/measures.parquet: "), "{said:?}"),
        false => assert!(said[1].contains("--features parquet"), "{said:?}"),
    }
    assert_eq!(output.status.code(), Some(i32::from(!cfg!(feature = "parquet"))));
}

/// Wireshark reads a compressed capture as it is.
#[test]
fn captures_are_read_by_wireshark() {
    let bench = Bench::new();
    let rows = |file: &Path| {
        let output = Command::new("tshark").arg("-r").arg(file).env("HOME", bench.path("")).output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).lines().count())
    };
    let plain = bench.samples("plain");
    for ((run, name), file) in plain.iter().filter(|((_, name), _)| name.ends_with(".pcap")) {
        let small = bench.samples("small").remove(&(run.clone(), format!("{name}.gz"))).unwrap();
        match (rows(file), rows(&small)) {
            (Some(before), Some(after)) => assert!(before == after && before > 1000, "{before} {after}"),
            _ => return skip::say("there is no tshark, which reads captures"),
        }
    }
}
