//! Testbeds for tests: hosts, probes on them, and what a run has left.
//!
//! Where there can be no testbed, a line says what would permit it, and the tests pass.

use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use uts_path::PathConfig;
use uts_router::probe::{Datagrams, Transfer};
use uts_router::{Ending, Io, RecordConfig, RemoteChild, Testbed, TestbedConfig, doctor_with};

pub const PATIENCE: Duration = Duration::from_secs(120);
pub const PORT: &str = "7777";

pub fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_uts-lab").into()
}

pub fn config(both: &str) -> TestbedConfig {
    let path = PathConfig::both(both.parse().unwrap());
    TestbedConfig { program: Some(program()), ..TestbedConfig::point_to_point(path) }
}

/// Tells if there can be testbeds here; says why not.
pub fn possible() -> bool {
    static LACKING: OnceLock<Vec<String>> = OnceLock::new();
    let lacking = LACKING.get_or_init(|| {
        let checks = doctor_with(&config("delay=0ms"));
        let missing = checks.into_iter().filter(|check| check.required && !check.ok);
        missing.map(|c| format!("{}: {}; what would help: {}", c.name, c.why, c.remedy)).collect()
    });
    if let Some(why) = lacking.first() {
        crate::skip::say(why);
    }
    lacking.is_empty()
}

pub fn start(config: TestbedConfig) -> Option<Testbed> {
    possible().then(|| Testbed::start(config).unwrap())
}

/// A probe that prints `ready` before others may come.
pub struct Waiting {
    pub child: RemoteChild,
    lines: BufReader<std::io::PipeReader>,
}

pub fn serve(bed: &Testbed, host: usize, args: &[&str]) -> Waiting {
    let probe =
        bed.command(host, program().to_str().unwrap()).args(["router", "probe"]).args(args.iter().copied());
    let mut child = probe.stdout(Io::Pipe).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{args:?}");
    Waiting { child, lines }
}

impl Waiting {
    pub fn result<T: DeserializeOwned>(mut self) -> T {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        let exit = self.child.wait_timeout(PATIENCE).unwrap().expect("ends with its output");
        assert!(exit.status.success(), "{exit:?}");
        serde_json::from_str(&text).unwrap()
    }
}

pub fn probe<T: DeserializeOwned>(bed: &Testbed, host: usize, args: &[&str]) -> T {
    let probe =
        bed.command(host, program().to_str().unwrap()).args(["router", "probe"]).args(args.iter().copied());
    let output = probe.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.exit.status.success(), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn at(bed: &Testbed, host: usize) -> String {
    format!("{}:{PORT}", bed.address(host))
}

/// Ends it when nothing is under way any more.
pub fn ended(bed: Testbed) -> Ending {
    let begun = Instant::now();
    let under_way = |s: &uts_path::Stats| s.packets_in + s.duplicated != s.delivered + s.dropped();
    while bed.stats().unwrap().iter().any(|path| under_way(&path.forward) || under_way(&path.backward)) {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
    bed.finish().unwrap()
}

/// Sends this many datagrams from host 0 to the last host, and sees what comes.
pub fn datagrams(bed: &Testbed, count: u64, bytes: usize) -> Datagrams {
    let last = bed.hosts() - 1;
    let receiver = serve(bed, last, &["udp-receive", &at(bed, last)]);
    let (count, bytes) = (count.to_string(), bytes.to_string());
    let sent: Datagrams =
        probe(bed, 0, &["udp-send", &at(bed, last), "--count", &count, "--bytes", &bytes, "--gap-us", "50"]);
    assert_eq!(sent.different.to_string(), count);
    receiver.result()
}

pub fn transfer(bed: &Testbed, bytes: u64) -> Transfer {
    let last = bed.hosts() - 1;
    let server = serve(bed, last, &["tcp-serve", &at(bed, last)]);
    let sent: Transfer = probe(bed, 0, &["tcp-send", &at(bed, last), "--bytes", &bytes.to_string()]);
    let got: Transfer = server.result();
    assert_eq!((got.bytes, got.sum), (sent.bytes, sent.sum));
    got
}

/// Frames of a pcap: the time and the bytes of each.
pub fn frames(file: &std::path::Path) -> Vec<(Duration, Vec<u8>)> {
    let mut reader = pcap_file::pcap::PcapReader::new(std::fs::File::open(file).unwrap()).unwrap();
    assert_eq!(reader.header().ts_resolution, pcap_file::TsResolution::NanoSecond);
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        assert_eq!(packet.orig_len as usize, packet.data.len(), "kept whole");
        frames.push((packet.timestamp, packet.data.into_owned()));
    }
    frames
}

pub fn recorded(dir: &tempfile::TempDir) -> Option<RecordConfig> {
    let (dir, snap_bytes) = (dir.path().to_owned(), 65_535);
    Some(RecordConfig { dir, pcap: true, snap_bytes, tcp_info_ms: Some(5), ..RecordConfig::default() })
}

/// Rows of a CSV file, by the names of its first line.
pub fn rows(file: &std::path::Path) -> Vec<std::collections::BTreeMap<String, String>> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| {
            let values: Vec<&str> = line.split(',').collect();
            assert_eq!(values.len(), names.len(), "{line}");
            names.iter().zip(values).map(|(n, v)| ((*n).to_owned(), v.to_owned())).collect()
        })
        .collect()
}

/// When packets have left the forward queue, in seconds since the beginning, by the model's time.
pub fn departures(dir: &std::path::Path) -> Vec<f64> {
    let rows = rows(&dir.join("queue.csv"));
    let forward = rows.iter().filter(|r| r["dir"] == "fwd" && r["dropped"].is_empty());
    forward.map(|r| r["t_s"].parse::<f64>().unwrap() + r["sojourn_s"].parse::<f64>().unwrap()).collect()
}
