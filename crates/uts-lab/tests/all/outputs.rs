//! `uts-lab` where nobody reads what it writes, or nothing takes it; and what ends it.

use crate::running::Running;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The status that a shell shows of a program that SIGPIPE has ended.
const READER_GONE: i32 = 141;
const EXPERIMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A pipe that nobody reads.
fn nobody() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    Stdio::from(writer)
}

/// A device that is always full (full(4)).
fn full() -> Stdio {
    Stdio::from(File::options().write(true).open("/dev/full").expect("full(4)"))
}

/// The status, and what was told.
fn told(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("ended");
    let text = String::from_utf8(stderr).expect("text");
    assert!(!text.contains("panicked"), "{text}");
    (status.code(), text)
}

#[test]
fn what_only_prints_ends_quietly_with_its_reader_and_says_when_its_output_is_full() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("end.ndjson");
    let bulk = r#"{"kind":"bulk","bytes":"1kB"}"#;
    let end = ["end", "--role", "server", "--transport", r#"{"kind":"tcp"}"#, "--workload", bulk];
    let end = [&end[..], &["--listen", "127.0.0.1:0", "--out", out.to_str().expect("text")]].concat();
    let commands: &[&[&str]] =
        &[&["--help"], &["--version"], &["run", "-h"], &["list", EXPERIMENTS], &["doctor"], &end];
    for arguments in commands {
        let (status, text) = told(lab(arguments).stdout(nobody()));
        assert_eq!((status, text.as_str()), (Some(READER_GONE), ""), "{arguments:?}");
        let (status, text) = told(lab(arguments).stdout(full()));
        let why = "uts-lab: cannot write to standard output: no space left on device\n";
        assert_eq!((status, text.as_str()), (Some(1), why), "{arguments:?}");
        assert_eq!(told(lab(arguments).stdout(full()).stderr(full())).0, Some(1), "{arguments:?}");
    }
}

#[test]
fn what_is_wrong_with_a_command_line_is_told_in_one_line() {
    for (arguments, wanted) in [
        (&["runn"][..], "uts-lab: unrecognized subcommand 'runn'; tip: "),
        (
            &["run"],
            "uts-lab: the following required arguments were not provided: <FILE.toml> (see uts-lab run --help)",
        ),
        (
            &["relay", "--to", "127.0.0.1:9", "--idle", "0"],
            "uts-lab: invalid value '0' for '--idle <SECONDS>': ",
        ),
        (
            &["end", "--role", "x"],
            "uts-lab: invalid value 'x' for '--role <ROLE>' [possible values: server, client]",
        ),
    ] {
        let (status, text) = told(&mut lab(arguments));
        assert_eq!((status, text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.starts_with(wanted), "{text}");
        assert_eq!(told(lab(arguments).stderr(full())).0, Some(2));
    }
}

/// A relay carries what is others': it goes on where nobody reads of it, until a signal.
#[test]
fn a_relay_goes_on_without_its_reader_until_a_signal() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("bound");
    server.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let to = server.local_addr().expect("an address").to_string();
    for (signal, keeps_reading) in
        [(Signal::HUP, true), (Signal::INT, true), (Signal::TERM, true), (Signal::TERM, false)]
    {
        let mut command = lab(&["relay", "--to", &to]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut running = Running(child);
        let mut lines = BufReader::new(running.0.stdout.take().expect("piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        let addr = line.trim().strip_prefix("relay listening on ").expect("an address").to_owned();
        let mut lines = keeps_reading.then_some(lines);
        // The second client joins when nobody reads of it.
        for _ in 0..2 {
            let client = UdpSocket::bind("127.0.0.1:0").expect("bound");
            client.send_to(b"ping", &addr).expect("sent");
            server.recv_from(&mut [0; 16]).expect("relayed");
        }
        kill_process(Pid::from_child(&running.0), signal).expect("a process");
        let mut rest = String::new();
        if let Some(lines) = &mut lines {
            lines.read_to_string(&mut rest).expect("text");
            assert!(rest.contains("lateness p50"), "{rest}");
        }
        let status = running.0.wait().expect("ended").code();
        assert_eq!(status, Some(if keeps_reading { 0 } else { READER_GONE }), "{signal:?}");
        let mut text = String::new();
        running.0.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
        assert_eq!(text, "");
    }
}
