//! Each rival under each workload that it can carry, both ends as the programs that the lab starts.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use uts_end::line::{End, Line, Ready, Status, read};

/// The rivals of this build, each with settings other than its own choice too.
fn transports() -> Vec<Value> {
    let all = [
        json!({"kind": "quinn"}),
        json!({"kind": "quinn", "congestion": "newreno", "window": "16MB"}),
        json!({"kind": "quinn", "congestion": "bbr", "socket_buffer": "1MiB"}),
        json!({"kind": "s2n-quic"}),
        json!({"kind": "s2n-quic", "congestion": "bbr", "window": "16MB", "socket_buffer": "1MiB"}),
        json!({"kind": "srt"}),
        json!({"kind": "srt", "aes": "128", "latency": "40ms", "window": "4MB", "rate_max": "100Mbit/s"}),
        json!({"kind": "enet"}),
        json!({"kind": "enet", "messages": "unsequenced"}),
        json!({"kind": "enet", "messages": "reliable"}),
    ];
    let here: Vec<_> = uts_rival::list().into_iter().filter(|rival| rival.available).collect();
    all.into_iter().filter(|spec| here.iter().any(|rival| spec["kind"] == rival.name)).collect()
}

struct Ends {
    server: (Vec<Line>, End),
    client: (Vec<Line>, End),
}

impl Ends {
    /// A figure of whichever end tells it.
    fn figure(&self, name: &str) -> f64 {
        let lines = self.server.0.iter().chain(&self.client.0);
        let mut found = lines.filter_map(|line| match line {
            Line::Measure(measure) if measure.name == name => Some(measure.value),
            _ => None,
        });
        found.next().unwrap_or_else(|| panic!("no {name} in {:?} {:?}", self.server, self.client))
    }
}

fn start(role: &str, transport: &Value, workload: &Value, out: &Path, more: &[&str]) -> Child {
    let (transport, workload) = (transport.to_string(), workload.to_string());
    Command::new(env!("CARGO_BIN_EXE_uts-rival"))
        .args(["end", "--role", role, "--transport", &transport, "--workload", &workload, "--seed", "7"])
        .args(["--give-up", "60s", "--out"])
        .arg(out)
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .expect("an end")
}

fn run(transport: &Value, workload: &Value) -> Ends {
    let folder = tempfile::tempdir().expect("folder");
    let (server_out, client_out) = (folder.path().join("server"), folder.path().join("client"));
    let mut server = start("server", transport, workload, &server_out, &["--listen", "127.0.0.1:0"]);
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
    let ready: Ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{transport}: {e}: `{line}`"));
    let to = ready.address.to_string();
    let mut more = vec!["--to", to.as_str()];
    if let Some(identity) = &ready.identity {
        more.extend(["--peer", identity]);
    }
    let mut client = start("client", transport, workload, &client_out, &more);
    let what = format!("{transport} {workload}");
    assert!(client.wait().expect("client").success(), "{what}");
    assert!(server.wait().expect("server").success(), "{what}");
    let lines = |path: &Path| {
        let lines = read(path).unwrap_or_else(|e| panic!("{what}: {e:#}"));
        let Some(Line::End(end)) = lines.last().cloned() else { panic!("{what}: no end") };
        assert_eq!(end.status, Status::Ok, "{what}: {end:?}");
        (lines, end)
    };
    Ends { server: lines(&server_out), client: lines(&client_out) }
}

/// Runs a workload over all that can carry it, and how many that were.
fn over_all(workload: &Value, check: impl Fn(&Value, &Ends)) {
    for transport in transports() {
        let ends = run(&transport, workload);
        check(&transport, &ends);
        let sent = ends.client.1.sent_packets.unwrap_or(0);
        assert!(sent > 0, "{transport} {workload}: sent {sent} packets");
    }
}

#[test]
fn bulk() {
    over_all(&json!({"kind": "bulk", "bytes": "8MB"}), |transport, ends| {
        assert_eq!(ends.figure("delivered"), 8e6, "{transport}");
        assert!(ends.figure("goodput") > 0.0, "{transport}");
        let has_status = |line: &Line| matches!(line, Line::Sample(uts_traffic::measure::Sample::Status { rtt: Some(_), window_bytes: Some(n), .. }) if *n > 0);
        assert!(ends.client.0.iter().any(has_status), "{transport} tells nothing of itself");
    });
}

#[test]
fn bulk_for_a_time() {
    over_all(&json!({"kind": "bulk", "duration": "500ms"}), |transport, ends| {
        assert!(ends.figure("delivered") > 0.0, "{transport}");
    });
}

#[test]
fn files() {
    over_all(
        &json!({"kind": "files", "count": 300, "bytes": "20kB", "concurrency": 4}),
        |transport, ends| assert_eq!(ends.figure("files"), 300.0, "{transport}"),
    );
}

#[test]
fn requests() {
    let workload = json!({"kind": "requests", "count": 200, "request_bytes": "200B", "answer_bytes": "20kB", "concurrency": 8});
    over_all(&workload, |transport, ends| assert_eq!(ends.figure("answered"), 200.0, "{transport}"));
}

#[test]
fn keystrokes() {
    over_all(&json!({"kind": "keystrokes", "count": 40, "every": "20ms"}), |transport, ends| {
        assert_eq!(ends.figure("echoed"), 40.0, "{transport}");
        assert_eq!(ends.figure("missing"), 0.0, "{transport}");
    });
}

// Loopback does not lose packets, but a busy machine may lose some in full buffers, or be late.

#[test]
fn messages() {
    let workload =
        json!({"kind": "messages", "every": "10ms", "bytes": "160B", "duration": "1s", "deadline": "2s"});
    over_all(&workload, |transport, ends| {
        assert_eq!(ends.figure("due"), 100.0, "{transport}");
        let in_time = ends.figure("in_time");
        assert!(in_time > 0.9, "{transport}: {in_time} in time");
    });
}

#[test]
fn video() {
    let workload = json!({
        "kind": "video", "frames_per_s": 30, "rate": "4Mbit/s", "key_every": 15, "key_factor": 4.0,
        "duration": "1s", "deadline": "2s"
    });
    over_all(&workload, |transport, ends| {
        let in_time = ends.figure("in_time");
        assert!(in_time > 0.8, "{transport}: {in_time} in time");
    });
}

#[test]
fn the_list_is_lines_of_json() {
    let output = Command::new(env!("CARGO_BIN_EXE_uts-rival")).arg("list").output().expect("list");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<_> = lines.iter().map(|line| line["name"].as_str().unwrap_or("")).collect();
    assert_eq!(names, ["quinn", "s2n-quic", "srt", "enet"]);
    for line in lines {
        match line["available"].as_bool() {
            Some(true) => {
                assert!(line["version"].is_string(), "{line}");
                // All four have both, SRT in two modes.
                let can = &line["capabilities"];
                assert!(can["streams"] == true && can["messages"] == true, "{line}");
                assert!(can["message_bytes_max"].as_u64() >= Some(1000), "{line}");
            }
            _ => assert!(line["why"].is_string() && line["get"].is_string(), "{line}"),
        }
    }
}

#[test]
fn what_a_rival_cannot_carry_is_said_before_it_runs() {
    let check = |transport: &Value, workload: &Value| {
        let output = Command::new(env!("CARGO_BIN_EXE_uts-rival"))
            .args(["check", "--transport", &transport.to_string(), "--workload", &workload.to_string()])
            .output()
            .expect("check");
        assert!(output.status.success(), "{transport}: {}", String::from_utf8_lossy(&output.stderr));
        let line: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        line["why"].as_str().map(str::to_owned)
    };
    let bulk = json!({"kind": "bulk", "bytes": "1MB"});
    let voice =
        json!({"kind": "messages", "every": "20ms", "bytes": "160B", "duration": "1s", "deadline": "1s"});
    for transport in transports() {
        assert_eq!(check(&transport, &bulk), None, "{transport}");
        assert_eq!(check(&transport, &voice), None, "{transport}");
    }
    if transports().iter().any(|t| t["kind"] == "srt") {
        let (live, file) = (json!({"kind": "srt", "mode": "live"}), json!({"kind": "srt", "mode": "file"}));
        assert_eq!(check(&live, &voice), None);
        assert_eq!(check(&file, &bulk), None);
        assert!(check(&live, &bulk).is_some_and(|why| why.contains("reliable streams")));
        assert!(check(&file, &voice).is_some_and(|why| why.contains("messages")));
    }
    assert!(
        check(&json!({"kind": "quinn", "congestion": "vegas"}), &bulk).is_some_and(|w| w.contains("vegas"))
    );
}

#[test]
fn a_wrong_setting_is_named() {
    for (transport, named) in [
        (json!({"kind": "quinn", "congestion": "vegas"}), "vegas"),
        (json!({"kind": "quinn", "windows": "1MB"}), "windows"),
        (json!({"kind": "s2n-quic", "window": "5GB"}), "window"),
        (json!({"kind": "tcp"}), "`tcp` is no rival"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_uts-rival"))
            .args(["end", "--role", "server", "--listen", "127.0.0.1:0", "--out", "/dev/null"])
            .args(["--transport", &transport.to_string(), "--workload", r#"{"kind":"bulk","bytes":"1MB"}"#])
            .output()
            .expect("an end");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && why.contains(named), "{transport}: {why}");
    }
}
