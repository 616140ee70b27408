//! Words of the program where something is wrong: one line that names what, where, and what was
//! expected, in the words of the system and of people.

use crate::common::tunnel::{free_port, key_of};
use crate::common::{Ended, Place, pattern};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;

/// Texts that no message may have in it: numbers and classes of errors, a line break in words,
/// names of types.
const NEVER: [&str; 8] = [
    "(os error",
    "uncategorized",
    "invalid input parameter",
    "other error",
    "\\n",
    "ErrorKind",
    "SUN_LEN",
    "at path \"",
];

#[track_caller]
fn told(ended: Ended, status: i32, parts: &[&str]) {
    let ended = ended.failed(status, parts);
    let said: Vec<&str> = ended.err.lines().filter(|line| line.starts_with("uts: ")).collect();
    assert_eq!(said.len(), 1, "one line: {}", ended.err);
    for never in NEVER {
        assert!(!ended.err.contains(never), "`{never}` in {}", ended.err);
    }
}

#[test]
fn what_is_wrong_is_told_in_one_line() {
    let place = Place::new();
    place.write("file", b"content");
    place.write("bad.toml", b"[host.a]\nkey = 3\n[host");
    place.write("profile.toml", b"what = \"x\"\n[profile]\ncongestion = [\n");
    let long = "x".repeat(300);
    let deep = place.path(&"y".repeat(120)).display().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken_udp = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let tcp = format!("{}:127.0.0.1:80", taken.local_addr().expect("an address").port());
    let udp = taken_udp.local_addr().expect("an address").to_string();
    let forward = format!("{}:127.0.0.1:80", free_port());
    let nowhere = "uts://127.0.0.1:1/";
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["serve", "--dir", "srv", "--listen", &udp], 1, &[&udp, "in use"]),
        (&["serve", "--dir", "nowhere"], 1, &["--dir nowhere", "no such file"]),
        (&["serve", "--dir", "file"], 1, &["--dir file", "not a directory"]),
        (&["serve", "--dir", "srv", "--key", "/proc/key"], 1, &["/proc/key", "o such file"]),
        (&["serve", "--perf", "--authorized-keys", "none"], 1, &["authorized keys in none", "o such file"]),
        (&["tunnel", "-L", &tcp, "127.0.0.1:1"], 1, &["cannot listen at", "address already in use"]),
        (
            &["tunnel", "-L", &forward, "--control", &deep, "127.0.0.1:1"],
            1,
            &["--control", "at most 107 bytes"],
        ),
        (
            &["tunnel", "-L", &forward, "--control", "file", "127.0.0.1:1"],
            1,
            &["--control file", "no socket"],
        ),
        (&["tunnel", "-L", &forward, "me@host"], 2, &["write `host` alone", "keys"]),
        (&["tunnel", "-N", "host"], 2, &["'-N'", "leave it out"]),
        (&["ctl", &deep, "list"], 1, &["at most 107 bytes"]),
        (&["pipe", ""], 2, &["the host is empty"]),
        (&["pipe", "-p", "22", "host"], 2, &["'-p'", "host:PORT"]),
        (&["cp", "--config", "bad.toml", "file", nowhere], 2, &["bad.toml:"]),
        (&["cp", "--config", "srv", "file", nowhere], 2, &["srv: ", "s a directory"]),
        (&["cp", "--profile", "profile.toml", "file", nowhere], 2, &["profile.toml:"]),
        (&["cp", "--key", &long, "file", nowhere], 1, &["ile name too long"]),
        (&["cp", "--bwlimit", "5M", "file", nowhere], 2, &["`5M` can be read as 5 Mbit/s and as 5 MB/s"]),
        (&["cp", "--bwlimit", "5000", "file", nowhere], 2, &["--bwlimit", "with its unit, as 5Mbit/s"]),
        (&["cp", "--patience", "1h", "file", nowhere], 2, &["--patience", "from 1s to 2min"]),
        (&["cp", "-P", "22", "file", nowhere], 2, &["'-P'", "uts://host:PORT/path"]),
        (&["cp", "-i", "key", "file", nowhere], 2, &["'-i'", "--key FILE"]),
        (&["cp", "file", "uts://nowhere.invalid/"], 1, &["no such host: nowhere.invalid: "]),
        (&["perf", "-c", "host"], 2, &["'-c'", "uts perf HOST"]),
        (&["perf", "-s"], 2, &["'-s'", "uts serve --perf"]),
        (&["perf", "host", "-t", "0"], 2, &["--time", "above 0 and up to 1h"]),
        (&["perf", "host", "-n", "10M"], 2, &["10 MB and as 10 MiB"]),
        (&["manual", "/dev/null/x"], 1, &["/dev/null/x", "ot a directory"]),
    ];
    for (args, status, parts) in cases {
        eprintln!("uts {}", args.join(" "));
        told(place.run(args), *status, parts);
    }
}

/// Plain amounts of iperf3 are taken: only the server is missing.
#[test]
fn amounts_that_are_plain_are_taken() {
    let place = Place::new();
    for options in [["-b", "10M"], ["-b", "500K"], ["-b", "0"], ["-n", "1000"]] {
        told(
            place.run(&[&["perf", "--accept-new", "127.0.0.1:1"], &options[..]].concat()),
            1,
            &["nobody answers"],
        );
    }
    let messages = ["perf", "--accept-new", "127.0.0.1:1", "--messages", "-l", "100"];
    told(place.run(&messages), 1, &["nobody answers"]);
}

/// A tunnel with few files, and more connections than it can take: it names the limit.
#[test]
fn a_tunnel_with_few_files_names_the_limit() {
    let place = Place::new();
    key_of(&place, "home");
    let server = crate::common::tunnel::serve(&place, &["--forward", "127.0.0.1:*"]);
    let port = free_port();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -n 32; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_uts")]);
    command.args([
        "tunnel",
        "--pin",
        &server.fingerprint,
        "-L",
        &format!("{port}:127.0.0.1:1"),
        &server.address,
    ]);
    let mut tunnel = Place::begin(place.here(command, "home"));
    let deadline = std::time::Instant::now() + crate::common::PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(std::time::Instant::now() < deadline, "it does not listen: {}", tunnel.end().err);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The far port is closed: what is refused goes away again, so that many are opened at once.
    let held: Vec<_> = (0..200).filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok()).collect();
    std::thread::sleep(std::time::Duration::from_secs(1));
    drop(held);
    let said = tunnel.end().err;
    for never in NEVER {
        assert!(!said.contains(never), "`{never}` in {said}");
    }
    assert!(said.contains("ulimit -n"), "{said}");
}

/// Where nothing comes back, UDP is named, and what waits longer.
#[test]
fn a_server_that_is_not_heard_is_told_with_what_may_be_the_cause() {
    let place = Place::new();
    let silent = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let url = format!("uts://{}/", silent.local_addr().expect("an address"));
    let ended = place.run(&["ls", "--patience", "1s", &url]);
    assert!(!ended.err.contains("uts.profile"), "{}", ended.err);
    told(ended, 1, &["no answer from", "UDP may be blocked on the way", "--patience 60s waits longer"]);
}

/// A server that listens for both families shows an IPv4 client as such.
#[test]
fn an_ipv4_client_of_a_socket_of_ipv6_has_its_own_address() {
    let place = Place::new();
    place.write("srv/file", b"content");
    let mut server = place.serve_at("[::]:0", &[]);
    let port = server.address.rsplit(':').next().expect("a port").to_owned();
    place.cp(&server, &[&format!("uts://127.0.0.1:{port}/file"), "got"]).ok();
    let event = server.running.event("connection");
    let peer = event["peer"].as_str().expect("an address").to_owned();
    assert!(peer.starts_with("127.0.0.1:"), "{event}");
    let ended = server.running.end();
    assert!(!ended.out.join("\n").contains("::ffff:"), "{:?}", ended.out);
}

/// Lines that a terminal of some columns shows of a copy, without what steers it.
fn shown(place: &Place, columns: u16, args: &[&str]) -> Vec<String> {
    let (status, screen) = place.run_at_terminal_of(Some(columns), args, "never asked", "");
    assert_eq!(status, 0, "{screen}");
    let mut plain = String::new();
    let mut chars = screen.chars();
    while let Some(c) = chars.next() {
        match c {
            // CSI … letter: moves and clears.
            '\u{1b}' => while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {},
            '\r' => plain.push('\n'),
            c => plain.push(c),
        }
    }
    // Lines above the last are filled up to the last column, where the terminal goes on by itself.
    let rows = plain.lines().flat_map(|line| {
        let chars: Vec<char> = line.chars().collect();
        chars.chunks(columns.into()).map(|row| row.iter().collect::<String>()).collect::<Vec<_>>()
    });
    rows.map(|row| row.trim_end().to_owned()).filter(|row| row.contains(" %")).collect()
}

#[test]
fn progress_fits_terminals_of_forty_columns_and_more_and_names_the_file() {
    let place = Place::new();
    let name = "a-rather-long-name-of-a-file-that-is-copied-2026.tar.gz";
    place.write(name, &pattern(3 << 20));
    let server = place.serve(&[]);
    for columns in [40, 60, 80, 101, 120, 200] {
        let url = server.url(&format!("{columns}"));
        let lines = shown(
            &place,
            columns,
            &["cp", "--pin", &server.fingerprint, "--property", "maxSendRate=20Mbit/s", name, &url],
        );
        assert!(!lines.is_empty(), "{columns}: nothing is shown");
        for line in &lines {
            assert!(line.chars().count() < columns.into(), "{columns}: {line}");
        }
        let last = lines.last().expect("a line");
        let named = last.starts_with("a-r") && last.contains(".gz");
        assert!(named && last.contains("bit/s"), "{columns}: {last}");
    }
}

/// Files that could not be planned are among all files.
#[test]
fn files_that_failed_are_among_all_files() {
    let place = Place::new();
    place.write("dir/a", b"a");
    let server = place.serve(&[]);
    let url = server.url("into/");
    std::fs::create_dir(place.path("srv/into")).expect("made");
    let ended = place.cp(&server, &["-r", "dir", "missing-1", "missing-2", &url]);
    let out = ended.failed(1, &["missing-1: no such file", "missing-2"]).out;
    let files = out.iter().find(|line| line.starts_with("files ")).expect("a row").clone();
    assert_eq!(files.split_whitespace().collect::<Vec<_>>().join(" "), "files 1 of 3 (2 failed)");
}
