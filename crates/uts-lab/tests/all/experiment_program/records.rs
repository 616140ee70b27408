//! Records of what happened in a run, beside its figures.

use super::*;

/// Records of a log in qlog's streamed form: JSON text sequences.
fn qlog(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.split('\u{1e}').skip(1).map(|record| serde_json::from_str(record).unwrap()).collect()
}

#[test]
fn what_uts_does_is_recorded_in_every_world() {
    let bench = Bench::new(
        r#"title = "Records"
world = ["sim", "relay", "router"]
timeout = "30s"
[path.wan]
forward = "rate=8mbit delay=5ms buffer=20p"
[workload.file]
kind = "bulk"
bytes = "600kB"
[transport.uts]
kind = "uts"
[record]
sequence = true
qlog = true
"#,
    );
    let (_, said) = bench.run(&[]);
    let runs = bench.runs();
    assert!(runs.len() >= 2, "{said}");
    for (name, run) in runs.iter().filter(|(_, run)| run["status"] != "skipped") {
        assert!(run["status"] == "ok" || run["status"] == "invalid", "{name}: {run}");
        let samples = bench.path(&format!("out/runs/{name}/samples"));
        let mut reader = csv::Reader::from_path(samples.join("sequence.csv")).unwrap();
        let rows: Vec<(f64, String, String, u64)> = reader.deserialize().map(Result::unwrap).collect();
        assert!(rows.iter().all(|(_, flow, ..)| flow == "uts"), "{name}");
        let reached = |kind: &str| rows.iter().filter(|row| row.2 == kind).map(|row| row.3).max();
        // The last packet begins less than a packet's length before the end.
        for kind in ["sent", "acked"] {
            assert!(
                reached(kind).is_some_and(|at| (590_000..600_000).contains(&at)),
                "{name}: {:?}",
                reached(kind)
            );
        }
        let sent = |role: &str| {
            let log = qlog(&samples.join(format!("uts.{role}.sqlog")));
            assert_eq!(log[0]["trace"]["vantage_point"]["type"], role, "{name}");
            let of = |event: &str| log.iter().filter(|record| record["name"] == event).count();
            assert!(of("quic:recovery_metrics_updated") > 0, "{name} {role}");
            of("quic:packet_sent")
        };
        assert!(sent("client") >= 400, "{name}: {} packets", sent("client"));
        assert!(sent("server") > 0, "{name}");
        let mut reader = csv::Reader::from_path(samples.join("queue.csv")).unwrap();
        let rows: Vec<(f64, String, u64, u64, Option<f64>)> =
            reader.deserialize().map(Result::unwrap).collect();
        let of_data = rows.iter().filter(|row| row.1 == "wan forward" && row.4.is_some()).count();
        assert!(of_data >= 400, "{name}: {of_data} packets have passed the queue");
        let mut measures = run["measures"].as_array().unwrap().iter();
        assert!(measures.any(|measure| measure["name"] == "queue_sojourn_p99"), "{name}");
    }
}

#[test]
fn the_kernel_tells_of_its_tcp_or_it_is_said_why_not() {
    if !has_router() {
        return;
    }
    let bench = Bench::new(
        r#"title = "Probe"
world = "router"
timeout = "30s"
[path.wan]
forward = "rate=8mbit delay=5ms buffer=20p"
[workload.file]
kind = "bulk"
bytes = "600kB"
[transport.cubic]
kind = "tcp"
congestion = "cubic"
[record]
tcp_probe = true
"#,
    );
    let (_, said) = bench.run(&[]);
    let (name, run) = bench.runs().into_iter().next().unwrap();
    assert!(run["status"] == "ok" || run["status"] == "invalid", "{said}");
    let doctor = bench.output(&["router", "doctor", "--json"]).1;
    let check = doctor.lines().find(|line| line.contains("tcp_probe")).unwrap();
    let check: Value = serde_json::from_str(check).unwrap();
    if check["ok"] == false {
        assert!(!check["remedy"].as_str().unwrap().is_empty(), "{check}");
        let notes = run["notes"].to_string();
        assert!(notes.contains("tcp_probe is not recorded: "), "{notes}");
        return skip::say(check["why"].as_str().unwrap());
    }
    let file = bench.path(&format!("out/runs/{name}/samples/tcp_probe.csv"));
    let mut reader = csv::Reader::from_path(file).unwrap();
    let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    let of =
        |end: &str| rows.iter().filter(|row| row["end"] == end && row["flow"] == "cubic").collect::<Vec<_>>();
    // Of the sender, each acknowledgement that arrived, with a growing window. Of the receiver, the
    // data.
    let (client, server) = (of("client"), of("server"));
    let windows: Vec<u64> = client.iter().map(|row| row["window_segments"].parse().unwrap()).collect();
    assert!(windows.iter().max() > windows.first(), "{windows:?}");
    assert!(client.iter().any(|row| row["rtt_ms"].parse::<f64>().unwrap() >= 10.0));
    let arrived: u64 = server.iter().map(|row| row["data_bytes"].parse::<u64>().unwrap()).sum();
    assert!(arrived >= 550_000, "{arrived} bytes");
    wait_for("the trace instances of processes that have ended to be removed", || {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let places =
            mounts.lines().filter(|line| line.contains(" tracefs ")).map(|l| l.split(' ').nth(1).unwrap());
        let all = places.flat_map(|place| fs::read_dir(Path::new(place).join("instances")).unwrap());
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let owners =
            names.filter_map(|name| Some(name.strip_prefix("uts-lab-")?.split('-').next()?.to_owned()));
        owners.into_iter().all(|id| Path::new("/proc").join(id).exists())
    });
}
