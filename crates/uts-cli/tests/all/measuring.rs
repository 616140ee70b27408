//! `uts perf` between two processes: options, words and statuses. What is measured, and what a
//! server bears of clients that measure, `crates/uts-perf/tests/paths` says in virtual time.

use crate::common::{Ended, Place, Server};
use rustix::process::Signal;
use serde_json::Value;

fn serve(place: &Place, options: &[&str]) -> Server {
    let mut args = vec!["serve", "--json", "--listen", "127.0.0.1:0"];
    args.extend(options);
    Place::served(place.start_as("server-home", &args))
}

fn args<'a>(server: &'a Server, options: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["perf", &server.address, "--pin", &server.fingerprint];
    args.extend(options);
    args
}

fn perf(place: &Place, server: &Server, options: &[&str]) -> Ended {
    place.run(&args(server, options))
}

/// The sum of a figure over the flows of one side of a result.
fn sum(result: &Value, side: &str, name: &str) -> f64 {
    let flows = result[side].as_array().unwrap_or_else(|| panic!("no {side}: {result}"));
    flows.iter().map(|flow| flow[name].as_f64().unwrap_or_else(|| panic!("no {name}: {result}"))).sum()
}

#[test]
fn programs_are_told_what_both_ends_have_seen_in_each_direction() {
    let place = Place::new();
    let server = serve(&place, &["--perf", "--anyone"]);
    let ended = perf(&place, &server, &["-n", "8MB", "-P", "4", "-i", "20ms", "--bidir", "--json"]).ok();
    let start = &ended.events("start")[0];
    assert_eq!(start["address"], server.address.as_str());
    assert!(start["profile_out"].as_str().is_some_and(|p| p.contains("congestion=")), "{start}");
    let results = ended.events("result");
    let told: Vec<&str> = results.iter().filter_map(|result| result["direction"].as_str()).collect();
    assert_eq!(told, ["out", "in"]);
    for result in &results {
        assert_eq!(sum(result, "sender", "sent"), 8e6);
        assert_eq!(sum(result, "receiver", "delivered"), 8e6);
        assert_eq!(result["receiver"].as_array().map(Vec::len), Some(4));
        assert!(result["seconds"].as_f64().is_some_and(|s| s > 0.0), "{result}");
    }
    for direction in told {
        let intervals = ended.events("interval");
        let bytes = intervals.iter().filter(|i| i["direction"] == direction).map(|i| &i["bytes"]);
        let bytes: u64 = bytes.filter_map(Value::as_u64).sum();
        // The last piece of an interval may be too short to be told.
        assert!((1..8_100_000).contains(&bytes), "{direction}: {intervals:?}");
    }
    assert_eq!(ended.events("done").len(), 1);
}

#[test]
fn a_time_is_kept_and_shown_in_columns() {
    let place = Place::new();
    let server = serve(&place, &["--perf", "--anyone"]);
    let ended = perf(&place, &server, &["-t", "1", "-i", "200ms", "-b", "20Mbit/s"]).ok();
    let out = ended.out.join("\n");
    for column in ["Interval", "Transfer", "Bitrate", "Retr", "Cwnd", "RTT"] {
        assert!(out.contains(column), "no {column}:\n{out}");
    }
    assert!(out.contains("[out] profile establishment="), "{out}");
    let rows: Vec<&str> = out.lines().filter(|line| line.starts_with("[out] 0.00-1.00 s")).collect();
    assert!(rows.len() == 2 && rows[0].ends_with("sender") && rows[1].ends_with("receiver"), "{out}");
    let quiet = perf(&place, &server, &["-n", "1MB", "--quiet"]).ok();
    assert_eq!(quiet.out.len(), 2, "results only");
}

#[test]
fn messages_and_requests_have_percentiles_in_both_directions() {
    let place = Place::new();
    let server = serve(&place, &["--perf", "--anyone"]);
    let messages = ["--messages", "--every", "5ms", "-l", "200B", "--deadline", "20s", "-t", "500ms"];
    let ended = perf(&place, &server, &[&messages[..], &["--bidir", "--json"]].concat()).ok();
    let results = ended.events("result");
    assert_eq!(results.len(), 2);
    for result in &results {
        assert_eq!(sum(result, "receiver", "due"), 100.0, "{result}");
        assert_eq!(sum(result, "receiver", "in_time"), 1.0, "{result}");
        let [p50, p99] = ["latency_p50", "latency_p99"].map(|name| sum(result, "receiver", name));
        assert!(p50 <= p99, "{result}");
    }
    let asked = ["--requests", "40", "--answer", "3kB", "-P", "4", "--reverse", "--json"];
    let ended = perf(&place, &server, &asked).ok();
    let result = &ended.events("result")[0];
    assert_eq!(sum(result, "sender", "answered"), 40.0, "{result}");
    assert_eq!(sum(result, "receiver", "served"), 40.0, "{result}");
    assert!(sum(result, "sender", "request_p50") <= sum(result, "sender", "request_max"), "{result}");
}

#[test]
fn a_server_measures_only_if_it_is_told_to_and_for_one_client_at_a_time() {
    let place = Place::new();
    let files = place.serve(&[]);
    let none = ["uts: ", "it has no service `perf`"];
    perf(&place, &files, &["-n", "1kB"]).failed(1, &none);
    let unsaid = place.run(&["serve", "--perf", "--listen", "127.0.0.1:0"]);
    unsaid.failed(2, &["--perf: say who may use it"]);
    let server = serve(&place, &["--perf", "--anyone"]);
    let mut first = place.start(&args(&server, &["-t", "60", "-i", "100ms", "--json"]));
    first.event("interval");
    perf(&place, &server, &["-n", "1kB"]).failed(1, &["busy with another measurement"]);
    first.signal(Signal::INT);
    first.wait().failed(130, &["interrupted"]);
}

#[test]
fn logs_and_secrets_are_written_if_they_are_asked_for() {
    let place = Place::new();
    let logs = place.path("logs").display().to_string();
    let server = serve(&place, &["--perf", "--anyone", "--qlog", &logs]);
    let mut command = place.command("home", &args(&server, &["-n", "100kB", "-q"]));
    command.env("QLOGDIR", &logs).env("SSLKEYLOGFILE", place.path("secrets"));
    let ended = Place::begin(command).wait().ok();
    assert!(ended.err.contains("warning: the secrets of TLS are written to"), "{}", ended.err);
    server.running.signal(Signal::TERM);
    server.running.wait().ok();
    let files = std::fs::read_dir(&logs).expect("a directory");
    let names = files.map(|file| file.expect("an entry").file_name().into_string().expect("a name"));
    let mut roles: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".sqlog")?.rsplit_once('.').map(|(_, r)| r.to_owned()))
        .collect();
    roles.sort();
    assert_eq!(roles, ["client", "server"]);
    // The lines of NSS's key log: a label, the client's random, a secret; in hexadecimal.
    let secrets = String::from_utf8(place.read("secrets")).expect("text");
    let labels = secrets.lines().map(|line| {
        let [label, random, secret] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!((random.len(), secret.len()), (64, 64), "{line}");
        label
    });
    let labels: Vec<&str> = labels.collect();
    for label in ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET", "EXPORTER_SECRET"] {
        assert!(labels.contains(&label), "{label}: {labels:?}");
    }
    // Without being asked, nobody writes any.
    let server = serve(&place, &["--perf", "--anyone"]);
    let ended = perf(&place, &server, &["-n", "1kB"]).ok();
    assert!(!ended.err.contains("secrets"), "{}", ended.err);
    let mut command = place.command("home", &args(&server, &["-n", "1kB"]));
    command.env("SSLKEYLOGFILE", place.path("none/secrets"));
    Place::begin(command).wait().failed(1, &["SSLKEYLOGFILE", "none/secrets"]);
}

#[test]
fn the_end_of_a_server_ends_a_measurement_with_an_error() {
    let place = Place::new();
    let server = serve(&place, &["--perf", "--anyone"]);
    let mut client = place.start(&args(&server, &["-t", "60", "-i", "100ms", "--json"]));
    client.event("interval");
    server.running.signal(Signal::TERM);
    client.wait().failed(1, &["the server is stopping"]);
    server.running.wait().ok();
}
