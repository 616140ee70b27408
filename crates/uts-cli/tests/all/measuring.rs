//! `uts perf` between two processes, and what a server bears of clients that measure.

use crate::common::{Ended, Place, Server};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{ConnectOptions, FlowOptions};

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
fn bytes_are_counted_alike_by_both_ends_in_each_direction() {
    let place = Place::new();
    let server = serve(&place, &["--perf", "--anyone"]);
    for (options, directions) in
        [(&[][..], &["out"][..]), (&["--reverse"], &["in"]), (&["--bidir"], &["out", "in"])]
    {
        let base = ["-n", "8MB", "-P", "4", "-i", "20ms", "--json"];
        let ended = perf(&place, &server, &[&base, options].concat()).ok();
        let start = &ended.events("start")[0];
        assert_eq!(start["address"], server.address.as_str());
        assert!(start["profile_out"].as_str().is_some_and(|p| p.contains("congestion=")), "{start}");
        let results = ended.events("result");
        let told: Vec<&str> = results.iter().filter_map(|result| result["direction"].as_str()).collect();
        assert_eq!(told, directions);
        for result in &results {
            assert_eq!(sum(result, "sender", "sent"), 8e6);
            assert_eq!(sum(result, "receiver", "delivered"), 8e6);
            assert_eq!(result["receiver"].as_array().map(Vec::len), Some(4));
            assert!(result["seconds"].as_f64().is_some_and(|s| s > 0.0), "{result}");
        }
        let intervals = ended.events("interval");
        let of = |direction: &str| {
            let bytes = intervals.iter().filter(|i| i["direction"] == direction).map(|i| &i["bytes"]);
            bytes.filter_map(Value::as_u64).sum::<u64>()
        };
        for direction in directions {
            // The last piece of an interval may be too short to be told.
            assert!((1..8_100_000).contains(&of(direction)), "{direction}: {intervals:?}");
        }
        assert_eq!(ended.events("done").len(), 1);
    }
}

/// Data that waits in a buffer when the time is over was not sent in that time.
#[test]
fn the_sender_counts_what_has_left_and_not_what_it_holds() {
    let place = Place::new();
    let server = serve(&place, &["--perf", "--anyone"]);
    for options in [&[][..], &["--reverse"], &["-P", "3"]] {
        // In reverse the server's own properties hold: the buffer is small beside what goes.
        let ended = perf(&place, &server, &[&["-t", "1", "-b", "2M", "--json"], options].concat()).ok();
        let result = &ended.events("result")[0];
        let (sent, delivered) = (sum(result, "sender", "sent"), sum(result, "receiver", "delivered"));
        assert!(delivered > 0.0 && sent < 2.0 * delivered, "{options:?}: {sent} of {delivered}");
    }
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
    for way in [&[][..], &["--reverse"]] {
        let asked = ["--requests", "40", "--answer", "3kB", "-P", "4", "--json"];
        let ended = perf(&place, &server, &[&asked, way].concat()).ok();
        let results = ended.events("result");
        let result = &results[0];
        assert_eq!(sum(result, "sender", "answered"), 40.0, "{result}");
        assert_eq!(sum(result, "receiver", "served"), 40.0, "{result}");
        assert!(sum(result, "sender", "request_p50") <= sum(result, "sender", "request_max"), "{result}");
    }
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
    // The server hears of that within a round trip.
    let again = (0..200).map(|_| perf(&place, &server, &["-n", "1kB", "-q"])).find(|e| e.status == 0);
    again.expect("the place of an interrupted measurement is free again").ok();
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

#[test]
fn what_is_no_measurement_is_refused_and_others_are_still_served() {
    let place = Place::new();
    let server = serve(&place, &["--perf", "--anyone"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let costly = r#"{"request":{"version":1,"workload":{"kind":"messages","every":"1ns","bytes":16,
        "duration":"1s","deadline":"1s"},"flows":1,"way":"both","seed":1}}"#;
    let behind_length = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let hostile = [vec![0xff; 5], behind_length("start"), behind_length("\"start\""), behind_length(costly)];
    for sent in hostile {
        runtime.block_on(async {
            let mut options = ConnectOptions::pinned(server.fingerprint.parse().expect("a fingerprint"));
            options.connection.service = "perf".to_owned();
            let connection = uts::connect(&server.address, options).await.expect("connected");
            let (mut send, mut recv) =
                connection.open_flow(FlowOptions::default()).await.expect("open").split();
            send.write_all(&sent).await.expect("written");
            send.flush().await.expect("written");
            // It says why not, or closes.
            let mut said = vec![0; 200];
            let read = recv.read(&mut said).await;
            let text = String::from_utf8_lossy(&said);
            assert!(read.is_err() || text.contains("refused"), "{sent:?}: {text}");
            connection.close(0, "done").await;
        });
    }
    perf(&place, &server, &["-n", "1kB"]).ok();
}
