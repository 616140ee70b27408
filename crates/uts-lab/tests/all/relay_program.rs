//! `uts-lab relay` as a program: what it prints, and how it ends.

use crate::running::Running;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn relay(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    command.arg("relay").args(arguments);
    command
}

fn refused(arguments: &[&str], status: i32) -> String {
    let Output { status: got, stderr, .. } = relay(arguments).output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(got.code(), Some(status), "{arguments:?}: {stderr}");
    stderr
}

#[test]
fn bad_arguments_are_named_with_status_2() {
    for (arguments, wanted) in [
        (
            &["--to", "127.0.0.1:9", "--fwd", "loss=ge:1.5,4"][..],
            "loss=ge:1.5,4: mean loss must be between 0 and 1",
        ),
        (&["--to", "127.0.0.1:9", "--both", "rate=fast"], "rate=fast: must be a rate as in 9600bit"),
        (&["--to", "127.0.0.1:9", "--bwd", "speed=9"], "speed=9: unknown setting; there are rate, receive"),
        (&["--to", "127.0.0.1:9", "--at", "at=soon fwd up"], "at=soon: must be a time as in 10s"),
        (&["--to", "127.0.0.1"], "'127.0.0.1' for '--to <HOST:PORT>'"),
        (&["--to", "127.0.0.1:9", "--listen", "here"], "'here' for '--listen <ADDRESS:PORT>'"),
        (&["--to", "127.0.0.1:9", "--seed", "x"], "'x' for '--seed <N>'"),
        (&[], "--to <HOST:PORT>"),
    ] {
        let stderr = refused(arguments, 2);
        assert!(stderr.contains(wanted), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_port_in_use_ends_with_status_1() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let stderr = refused(&["--to", "127.0.0.1:9", "--listen", &addr], 1);
    assert!(stderr.starts_with(&format!("uts-lab: cannot listen on {addr}: ")), "{stderr}");
    assert_eq!(stderr.matches("in use").count(), 1, "{stderr}");
}

#[test]
fn it_relays_tells_of_changes_and_sums_up_when_the_input_ends() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let to = server.local_addr().unwrap().to_string();
    // More than a pipe holds: the input ends while they are still being reported.
    let changes = 5000;
    let mut arguments = vec!["--to", &to, "--both", "delay=1ms", "--until-stdin-closes"];
    arguments.extend(["--at", "at=4B fwd loss=ge:0.05,4"].repeat(changes));
    let child = relay(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut lines = BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let addr = line.trim().strip_prefix("relay listening on ").unwrap().to_owned();

    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(b"ping", &addr).unwrap();
    let mut buffer = [0; 16];
    let (len, _) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"ping");

    drop(running.0.stdin.take());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(running.0.wait().unwrap().success());
    assert!(rest.contains(&format!("client {} joined", client.local_addr().unwrap())), "{rest}");
    assert_eq!(rest.matches(" s  forward: loss=ge:0.05,4\n").count(), changes, "{rest}");
    assert!(rest.contains("packets in                     1             0"), "{rest}");
    assert!(rest.contains("lateness p50"), "{rest}");
}

#[test]
fn json_is_one_object_per_line_and_sigterm_ends_it() {
    let arguments = ["--to", "127.0.0.1:9", "--json", "--at", "at=10ms both rate=20mbit"];
    let child = relay(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    let listening = next();
    assert_eq!(listening["event"], "listening");
    assert!(listening["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    let change = next();
    assert_eq!(
        (&change["event"], &change["dir"], &change["change"]),
        (&"change".into(), &"both".into(), &"rate=20mbit".into())
    );
    assert_eq!(change["t_s"], 0.01);
    let pid = rustix::process::Pid::from_raw(i32::try_from(running.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let statistics = next();
    assert_eq!(statistics["event"], "statistics");
    assert_eq!(statistics["forward"]["packets_in"], 0);
    assert!(statistics["lateness"]["p99_us"].is_number());
    assert!(running.0.wait().unwrap().success());
}
