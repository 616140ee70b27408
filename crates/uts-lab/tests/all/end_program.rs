//! `uts-lab end`: two processes carry a workload, and each says what it saw.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use uts_end::line::{End, Line, Ready, Status, read};
use uts_traffic::measure::Sample;

const BULK: &str = r#"{"kind":"bulk","bytes":"2MB"}"#;

fn end(role: &str, transport: &str, workload: &str, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    command.args(["end", "--role", role, "--transport", transport, "--workload", workload]);
    command.args(["--seed", "5", "--give-up", "60s", "--sample-every", "5ms", "--out"]).arg(out);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server, and what it printed. It ends by itself.
fn serve(transport: &str, workload: &str, out: &Path) -> (Child, Ready) {
    let mut server = end("server", transport, workload, out);
    let mut server = server.args(["--listen", "127.0.0.1:0"]).spawn().expect("started");
    let mut line = String::new();
    let stdout = server.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
    (server, ready)
}

fn last(lines: &[Line]) -> &End {
    match lines.last() {
        Some(Line::End(end)) => end,
        other => panic!("{other:?}"),
    }
}

fn value(lines: &[Line], name: &str) -> Option<f64> {
    lines.iter().find_map(|line| match line {
        Line::Measure(measure) if measure.name == name => Some(measure.value),
        _ => None,
    })
}

fn carries(transport: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let (at_server, at_client) = (dir.path().join("server.ndjson"), dir.path().join("client.ndjson"));
    let (server, ready) = serve(transport, BULK, &at_server);
    let mut client = end("client", transport, BULK, &at_client);
    client.arg("--to").arg(ready.address.to_string());
    if let Some(identity) = &ready.identity {
        client.args(["--peer", identity]);
    }
    for ended in [client.output().expect("ended"), server.wait_with_output().expect("ended")] {
        assert!(ended.status.success(), "{ended:?}");
    }
    let (server, client) = (read(&at_server).expect("whole"), read(&at_client).expect("whole"));
    assert_eq!((last(&server).status, last(&client).status), (Status::Ok, Status::Ok));
    assert_eq!((last(&server).role.as_str(), last(&client).role.as_str()), ("server", "client"));
    assert_eq!(value(&server, "delivered"), Some(2e6));
    assert_eq!(value(&client, "sent"), Some(2e6));
    assert!(value(&server, "goodput").is_some_and(|rate| rate > 0.0));
    assert!(last(&client).connect_s.is_some() && last(&client).sent_packets.is_some_and(|n| n > 0));
    assert!(last(&client).cpu_s > 0.0 && last(&client).wall_s > 0.0);
    let is_status = |line: &Line| matches!(line, Line::Sample(Sample::Status { window_bytes: Some(_), .. }));
    assert!(client.iter().any(is_status), "{client:?}");
    assert!(server.iter().any(|line| matches!(line, Line::Sample(Sample::Delivered { .. }))));
}

#[test]
fn two_processes_carry_a_file_by_tcp() {
    carries(r#"{"kind":"tcp","congestion":"reno"}"#);
}

#[test]
fn two_processes_carry_a_file_by_uts() {
    carries(r#"{"kind":"uts"}"#);
}

#[test]
fn a_client_without_a_server_says_so_in_its_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("client.ndjson");
    // Bound and not listening: nobody else gets the port meanwhile.
    let taken = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("an address");
    taken.bind(&any.into()).expect("bound");
    let address = taken.local_addr().expect("bound").as_socket().expect("an address");
    let transport = r#"{"kind":"tcp","congestion":"reno"}"#;
    let ended = end("client", transport, BULK, &out).args(["--to", &address.to_string()]).output();
    assert!(ended.expect("ended").status.success());
    let lines = read(&out).expect("whole");
    assert_eq!(last(&lines).status, Status::Failed);
    assert!(last(&lines).why.as_ref().is_some_and(|why| why.contains("Connection refused")), "{lines:?}");
}

#[test]
fn a_killed_end_is_known_by_its_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("server.ndjson");
    let (mut server, _) = serve(r#"{"kind":"tcp","congestion":"reno"}"#, BULK, &out);
    server.kill().expect("killed");
    server.wait().expect("ended");
    let error = read(&out).expect_err("it is not whole").to_string();
    assert!(error.contains("was killed, or still runs"), "{error}");
}

#[test]
fn bad_arguments_are_explained() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out.ndjson");
    let explains = |transport: &str, workload: &str, expected: &str| {
        let ended = end("server", transport, workload, &out).args(["--listen", "127.0.0.1:0"]).output();
        let ended = ended.expect("ended");
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && stderr.contains(expected), "{stderr}");
    };
    let tcp = r#"{"kind":"tcp"}"#;
    explains(r#"{"kind":"sctp"}"#, BULK, "there is no transport `sctp`; there are tcp, mptcp, udp, uts");
    explains(r#"{"kind":"udp"}"#, BULK, "udp: bulk needs reliable streams, and the transport has none");
    explains(tcp, r#"{"kind":"bulk","bytes":"16 apples"}"#, "`16 apples` is not a size with its unit");
    explains(tcp, r#"{"kind":"bulk"}"#, "bytes: say how many, or give a duration");
    explains("tcp", BULK, "invalid value 'tcp' for '--transport <JSON>'");
}
