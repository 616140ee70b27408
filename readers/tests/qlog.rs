//! Logs of connections, read by the reader of quiche, which is of the same drafts.

use qlog::reader::{Event, QlogSeqReader};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use uts_lab::experiment::file::Experiment;
use uts_lab::runner::{self, RunConfig};
use uts_lab::worlds::ends::Programs;
use uts_record::compressed;

/// A path that goes bad, so that packets are lost and mechanisms exchanged.
const EXPERIMENT: &str = "title = 'Small'\ntimeout = '60s'\n\
                          [path.wan]\nforward = 'rate=20mbit delay=10ms buffer=64p'\n\
                          schedule = 'at=500ms fwd loss=ge:0.05,4'\n\
                          [workload.file]\nkind = 'bulk'\nbytes = '5MB'\n[transport.uts]\nkind = 'uts'\n\
                          [record]\nqlog = true\n";

/// The logs of a run, by their names.
fn logs(dir: &Path, more: &str) -> Vec<(String, PathBuf)> {
    let file = dir.join("e.toml");
    fs::write(&file, format!("{EXPERIMENT}{more}")).unwrap();
    let config = RunConfig {
        out: dir.join("out"),
        worlds: Vec::new(),
        only: Vec::new(),
        shard: None,
        retry: false,
        jobs: None,
        quiet: true,
        programs: Programs::new(PathBuf::new(), &[]),
        control: false,
    };
    let done = runner::run(&Experiment::load(&file).unwrap(), &config, &AtomicBool::new(false)).unwrap();
    assert_eq!(done.counts.get("ok"), Some(&1), "{done:?}");
    let run = fs::read_dir(dir.join("out/runs")).unwrap().next().unwrap().unwrap().path();
    let samples = fs::read_dir(run.join("samples")).unwrap().map(|entry| entry.unwrap().path());
    let named = samples.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path));
    named.filter(|(name, _)| name.contains(".sqlog")).collect()
}

/// Each record of a log as it stands there.
fn records(file: &Path) -> Vec<Value> {
    let mut text = Vec::new();
    compressed::open(file).unwrap().read_to_end(&mut text).unwrap();
    let records = text.split(|byte| *byte == 0x1e).filter(|record| !record.is_empty());
    records.map(|record| serde_json::from_slice(record).unwrap()).collect()
}

fn name(event: &Value) -> &str {
    event["name"].as_str().unwrap()
}

#[test]
fn all_is_read_and_events_of_quic_are_known() {
    for more in ["", "compress = true\n"] {
        let dir = tempfile::tempdir().unwrap();
        let logs = logs(dir.path(), more);
        assert_eq!(logs.len(), 2, "{logs:?}");
        for (log, file) in logs {
            assert_eq!(log.ends_with(".gz"), !more.is_empty());
            let reader = QlogSeqReader::with_file(&file).unwrap();
            let header = serde_json::to_value(&reader.qlog).unwrap();
            let is_client = log.contains("client");
            let whose = if is_client { "client" } else { "server" };
            assert_eq!(header.pointer("/trace/vantage_point/type"), Some(&whose.into()), "{header}");
            let read: Vec<(bool, Value)> = reader
                .map(|event| match event {
                    Event::Qlog(event) => (true, serde_json::to_value(event).unwrap()),
                    Event::Json(event) => (false, serde_json::to_value(event).unwrap()),
                })
                .collect();
            // What it cannot read it passes over.
            let ours = records(&file).split_off(1);
            assert_eq!(
                read.iter().map(|(_, e)| name(e)).collect::<Vec<_>>(),
                ours.iter().map(name).collect::<Vec<_>>()
            );
            for ((is_known, read), ours) in read.iter().zip(&ours) {
                assert_eq!(*is_known, name(ours).starts_with("quic:"), "{ours}");
                let times = [read, ours].map(|event| event["time"].as_f64().unwrap());
                // It keeps single precision.
                assert!((times[0] - times[1]).abs() <= times[1] * 1e-6, "{read} {ours}");
                for pointer in
                    ["/header/packet_number", "/header/packet_type", "/raw/length", "/packet_numbers", "/new"]
                {
                    let of = |event: &Value| event["data"].pointer(pointer).cloned();
                    assert_eq!(of(read), of(ours), "{read} {ours}");
                }
                if !is_known {
                    assert_eq!(read["data"], ours["data"]);
                }
            }
            let mut wanted = vec!["uts:connected", "quic:packet_sent", "quic:packet_received"];
            if is_client {
                wanted.extend(["quic:packet_lost", "quic:packets_acked", "quic:recovery_metrics_updated"]);
                wanted.push("uts:exchange_completed");
            }
            for wanted in wanted {
                assert!(ours.iter().any(|event| name(event) == wanted), "{log}: no {wanted}");
            }
        }
    }
}
