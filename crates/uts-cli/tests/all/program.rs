//! The program itself, end to end, over UDP on this machine.

use crate::common::{Place, in_own_namespace, is_dir, pattern};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// Slow enough to be interrupted.
const SLOW: &str = "maxSendRate=16Mbit/s";
const BIG_BYTES: usize = 8 << 20;

#[test]
fn a_file_goes_to_a_server_and_back() {
    let place = Place::new();
    let content = pattern(3_000_001);
    let file = place.write("a.bin", &content);
    let server = place.serve(&[]);
    let sent = place.cp(&server, &["--json", &file, &server.url("b.bin")]).ok();
    assert!(place.read("srv/b.bin") == content);
    let got = place.cp(&server, &["--json", &server.url("b.bin"), "c.bin"]).ok();
    assert!(place.read("c.bin") == content);
    let hash = |ended: &crate::common::Ended| ended.events("done").first().map(|done| done["hash"].clone());
    assert!(hash(&sent).is_some_and(|hash| hash.is_string()));
    assert_eq!(hash(&sent), hash(&got));
    let again = place.cp(&server, &["--json", &server.url("b.bin"), "c.bin"]).ok();
    assert_eq!(again.events("done")[0]["files_already_there"], 1);
    let empty = place.write("empty", b"");
    place.cp(&server, &["-q", &empty, &server.url("")]).ok();
    assert!(place.read("srv/empty").is_empty());
}

#[test]
fn a_directory_keeps_modes_and_times() {
    let place = Place::new();
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for (name, mode) in [("tree/a", 0o600), ("tree/deep/b", 0o755), ("tree/deep/er/c", 0o444)] {
        let path = place.write(name, name.as_bytes());
        let file = fs::File::options().write(true).open(&path).expect("opened");
        file.set_modified(old).expect("set");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
    }
    fs::create_dir(place.path("tree/empty")).expect("made");
    fs::set_permissions(place.path("tree/deep"), fs::Permissions::from_mode(0o750)).expect("set");
    let server = place.serve(&[]);
    let refused = place.cp(&server, &["tree", &server.url("copy")]);
    refused.failed(1, &["tree"]);
    assert!(place.finished("srv").is_empty());
    place.cp(&server, &["-r", "tree", &server.url("copy")]).ok();
    place.cp(&server, &["-r", &server.url("copy"), "back"]).ok();
    for copy in ["srv/copy", "back"] {
        for (name, mode) in [("a", 0o600), ("deep/b", 0o755), ("deep/er/c", 0o444)] {
            let path = place.path(copy).join(name);
            assert_eq!(fs::read(&path).expect("read"), format!("tree/{name}").as_bytes());
            let metadata = fs::metadata(&path).expect("there");
            assert_eq!(metadata.mode() & 0o777, mode, "{}", path.display());
            assert_eq!(metadata.modified().expect("a time"), old, "{}", path.display());
        }
        let deep = fs::metadata(place.path(copy).join("deep")).expect("there");
        assert_eq!(deep.mode() & 0o777, 0o750);
        assert!(is_dir(&place.path(copy).join("empty")));
    }
}

/// State that an interrupted copy is continued from: nothing under the final name, and less to send
/// than the whole.
#[track_caller]
fn continued(place: &Place, server: &crate::common::Server, content: &[u8]) {
    assert!(place.finished("srv").is_empty(), "nothing half-written under its name");
    let done = place.cp(server, &["--json", "big", &server.url("big")]).ok().events("done").remove(0);
    assert!(place.read("srv/big") == content);
    assert_eq!(done["bytes"], BIG_BYTES);
    let carried = done["bytes_carried"].as_u64().expect("a number");
    assert!(carried < BIG_BYTES as u64, "it began anew: {carried}");
    let left = fs::read_dir(place.path("srv")).expect("a folder").count();
    assert_eq!(left, 1, "nothing is left of the part");
}

#[test]
fn a_copy_goes_on_after_its_client_was_killed() {
    let place = Place::new();
    let content = pattern(BIG_BYTES);
    place.write("big", &content);
    let server = place.serve(&[]);
    let client = place.start_cp(&server, &["--json", "--property", SLOW, "big", &server.url("big")]);
    place.await_part("srv/.big.uts-part");
    client.kill();
    continued(&place, &server, &content);
}

#[test]
fn a_copy_goes_on_after_its_server_was_killed() {
    let place = Place::new();
    let content = pattern(BIG_BYTES);
    place.write("big", &content);
    let server = place.serve(&[]);
    let (address, url) = (server.address.clone(), server.url("big"));
    let client = place.start_cp(&server, &["--json", "--retry", "0", "--property", SLOW, "big", &url]);
    place.await_part("srv/.big.uts-part");
    server.running.kill();
    assert!(place.finished("srv").is_empty(), "nothing half-written under its name");
    let server = place.serve_at(&address, &[]);
    client.wait().failed(1, &["run the same command again"]);
    continued(&place, &server, &content);
}

#[test]
fn an_interrupted_copy_says_so_and_goes_on() {
    let place = Place::new();
    let content = pattern(BIG_BYTES);
    place.write("big", &content);
    let server = place.serve(&[]);
    let client = place.start_cp(&server, &["--json", "--property", SLOW, "big", &server.url("big")]);
    place.await_part("srv/.big.uts-part");
    client.signal(Signal::INT);
    client.wait().failed(130, &["uts: interrupted; run the same command again to continue"]);
    continued(&place, &server, &content);
    server.running.signal(Signal::INT);
    let ended = server.running.wait();
    assert_eq!(ended.status, 0, "{}", ended.err);
}

#[test]
fn a_fetched_file_has_its_name_only_when_it_is_whole() {
    let place = Place::new();
    let content = pattern(BIG_BYTES);
    place.write("srv/big", &content);
    fs::create_dir(place.path("in")).expect("made");
    let server = place.serve(&["--property", SLOW]);
    let client = place.start_cp(&server, &["--json", &server.url("big"), "in/"]);
    place.await_part("in/.big.uts-part");
    client.kill();
    assert!(place.finished("in").is_empty());
    let done = place.cp(&server, &["--json", &server.url("big"), "in/"]).ok().events("done").remove(0);
    assert!(place.read("in/big") == content);
    assert!(done["bytes_carried"].as_u64().is_some_and(|bytes| bytes < BIG_BYTES as u64), "{done}");
}

#[test]
fn a_server_with_another_key_than_was_pinned_is_refused_every_time() {
    let place = Place::new();
    let file = place.write("a", b"secret");
    let server = place.serve(&[]);
    let wrong = place.run(&["keygen", "other"]).ok().out.remove(0);
    for _ in 0..20 {
        let ended = place.run(&["cp", "--pin", &wrong, &file, &server.url("a")]);
        ended.failed(1, &[&server.fingerprint, &wrong, "pinned"]);
    }
    place.run(&["cp", "--pin", "nonsense", &file, &server.url("a")]).failed(2, &["--pin", "nonsense"]);
    assert!(place.finished("srv").is_empty());
}

#[test]
fn hosts_are_known_by_their_keys() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let server = place.serve(&[]);
    // Nobody can be asked.
    let ended = place.run(&["cp", &file, &server.url("a")]);
    ended.failed(1, &["not a known host", &format!("--pin {}", server.fingerprint)]);
    place.write("known", format!("{} {}\n", server.address, server.fingerprint).as_bytes());
    place.run(&["cp", "--known-hosts", "known", &file, &server.url("a")]).ok();
    let other = place.run(&["keygen", "other"]).ok().out.remove(0);
    place.write("known", format!("{} {other}\n", server.address).as_bytes());
    let ended = place.run(&["cp", "--known-hosts", "known", &file, &server.url("b")]);
    ended.failed(1, &["has changed", &server.fingerprint, &other, "known", "line 1"]);
    assert_eq!(place.finished("srv"), ["a"]);
}

#[test]
fn a_server_lets_in_only_the_keys_that_it_lists() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let [mine, other] = ["mine", "other"].map(|name| place.run(&["keygen", name]).ok().out.remove(0));
    let of_ssh = place.run(&["fingerprint", "--as-ssh", "mine"]);
    assert!(of_ssh.status == 0 && of_ssh.out != [mine.clone()], "{:?} {}", of_ssh.out, of_ssh.err);
    assert_eq!(place.run(&["fingerprint", "mine"]).ok().out, std::slice::from_ref(&mine));
    place.write("keys", format!("# let in\n{mine} me\n").as_bytes());
    let mut server = place.serve(&["--authorized-keys", "keys"]);
    place.cp(&server, &["--key", "mine", &file, &server.url("a")]).ok();
    place.cp(&server, &["--key", "other", &file, &server.url("b")]).failed(1, &["refused", &other]);
    let refused = server.running.event_where("connection", |event| event["step"] == "refused");
    assert!(refused["line"].as_str().is_some_and(|line| line.contains(&other)), "{refused}");
    place.cp(&server, &[&file, &server.url("c")]).failed(1, &["refused"]);
    let refused = server.running.event_where("connection", |event| event["step"] == "refused");
    assert!(refused["key"].is_null() && refused["line"].to_string().contains("no certificates"), "{refused}");
    assert!(refused["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{refused}");
    assert_eq!(place.finished("srv"), ["a"]);
}

#[test]
fn where_nobody_is_the_error_says_so_in_time() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let pin = place.run(&["keygen", "key"]).ok().out.remove(0);
    let free = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = free.local_addr().expect("an address").to_string();
    let begun = Instant::now();
    // A port that is open, but says nothing.
    let url = format!("uts://{address}/a");
    place.run(&["cp", "--pin", &pin, &file, &url]).failed(1, &["no answer", &address]);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(free);
    place.run(&["cp", "--pin", &pin, &file, &url]).failed(1, &["nobody answers", &address]);
    let ended = place.run(&["cp", "--pin", &pin, &file, "uts://no-such-host.invalid/a"]);
    ended.failed(1, &["no such host", "no-such-host.invalid"]);
}

#[test]
fn what_cannot_be_copied_is_named() {
    let place = Place::new();
    let file = place.write("a", b"content");
    place.write("srv/there", b"old");
    let server = place.serve(&[]);
    place.cp(&server, &["missing", &server.url("x")]).failed(1, &["missing", "no such file"]);
    place.cp(&server, &[&server.url("missing"), "x"]).failed(1, &["missing", "no such file"]);
    place.cp(&server, &[&file, &server.url("there/x")]).failed(1, &["there", "not a directory"]);
    place.cp(&server, &[&file, &server.url("no/x")]).failed(1, &["no", "no such"]);
    let climbing = place.cp(&server, &[&server.url("../../etc/passwd"), "x"]);
    climbing.failed(2, &["`..`"]);
    // A link that leads out of what is served.
    std::os::unix::fs::symlink("/etc/passwd", place.path("srv/link")).expect("linked");
    place.cp(&server, &[&server.url("link"), "x"]).failed(1, &["link"]);
    assert!(!place.path("x").exists());
    assert_eq!(place.read("srv/there"), b"old");
}

#[test]
fn without_permission_it_is_an_error() {
    let place = Place::new();
    let secret = place.write("srv/secret", b"secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("set");
    if fs::read(&secret).is_ok() {
        return eprintln!("skipped: this user may read everything");
    }
    let server = place.serve(&[]);
    place.cp(&server, &[&server.url("secret"), "x"]).failed(1, &["secret", "permission denied"]);
}

#[test]
fn a_read_only_server_takes_nothing() {
    let place = Place::new();
    let file = place.write("a", b"content");
    place.write("srv/b", b"served");
    let server = place.serve(&["--read-only"]);
    place.cp(&server, &[&file, &server.url("a")]).failed(1, &["read-only"]);
    place.cp(&server, &[&server.url("b"), "b"]).ok();
    assert_eq!(place.read("b"), b"served");
    assert_eq!(place.finished("srv"), ["b"]);
}

#[test]
fn certificates_are_checked_against_roots_and_name() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let key = || rcgen::KeyPair::generate().expect("a key");
    let mut root = rcgen::CertificateParams::new(Vec::new()).expect("names");
    root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root_key = key();
    let root_certificate = root.self_signed(&root_key).expect("signed");
    let issuer = rcgen::Issuer::from_params(&root, &root_key);
    let server_key = key();
    let leaf = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
    let leaf = leaf.signed_by(&server_key, &issuer).expect("signed");
    place.write("chain.pem", leaf.pem().as_bytes());
    let key_file = place.write("key.pem", server_key.serialize_pem().as_bytes());
    fs::set_permissions(key_file, fs::Permissions::from_mode(0o600)).expect("set");
    place.write("root.pem", root_certificate.pem().as_bytes());
    let other_key = key();
    place.write("other.pem", root.self_signed(&other_key).expect("signed").pem().as_bytes());
    let server = place.serve(&["--cert", "chain.pem", "--cert-key", "key.pem"]);
    place.run(&["cp", "--ca", "root.pem", &file, &server.url("a")]).ok();
    assert_eq!(place.read("srv/a"), b"content");
    place.run(&["cp", "--ca", "other.pem", &file, &server.url("b")]).failed(1, &["certificate"]);
    let named =
        place.run(&["cp", "--ca", "root.pem", "--server-name", "example.org", &file, &server.url("c")]);
    named.failed(1, &["certificate", "example.org"]);
    assert_eq!(place.finished("srv"), ["a"]);
}

#[test]
fn explain_says_what_forces_what() {
    let place = Place::new();
    let ended = place.run(&["explain"]).ok();
    assert!(ended.out.iter().any(|line| line.starts_with("congestion")), "{:?}", ended.out);
    let ended = place.run(&["explain", "--json", "--property", "reliability=prefer"]).ok();
    let object: Value = serde_json::from_str(&ended.out.concat()).expect("JSON");
    assert!(
        object["functions"].as_array().is_some_and(|functions| functions.len() == uts::Function::COUNT),
        "{object}"
    );
    let impossible = ["--property", "reliability=require", "--profile", "retransmission=none"];
    let ended = place.run(&[&["explain"], &impossible[..]].concat());
    ended.failed(1, &["reliability=require", "uts.profile.retransmission=none", "contradict"]);
    // A copy that asks the same fails in the same words, before anything is sent.
    let server = place.serve(&[]);
    let file = place.write("a", b"content");
    let ended = place.cp(&server, &[&impossible[..], &[&file, &server.url("a")]].concat());
    ended.failed(1, &["reliability=require", "uts.profile.retransmission=none", "contradict"]);
}

#[test]
fn the_examples_of_explain_work() {
    let place = Place::new();
    for args in [&["--help"][..], &["explain", "--help"]] {
        let help = place.run(args).ok().out;
        let examples = help.iter().filter_map(|line| line.trim().strip_prefix("uts explain"));
        let mut count = 0;
        for example in examples {
            let words = example.split("   ").next().unwrap_or_default().split_whitespace();
            place.run(&core::iter::once("explain").chain(words).collect::<Vec<_>>()).ok();
            count += 1;
        }
        assert!(count > 0, "{help:?}");
    }
}

#[test]
fn a_wrong_command_line_is_status_2() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let url = "uts://127.0.0.1:1/a";
    let wrong: &[&[&str]] = &[
        &[],
        &["copy"],
        &["cp", &file],
        &["cp", &file, "b"],
        &["cp", url, url],
        &["cp", "--property", "x", &file, url],
        &["cp", "--property", "x=y", &file, url],
        &["cp", "--property", "reliability=maybe", &file, url],
        &["cp", "--profile", "fec=magic", &file, url],
        &["cp", "--pin", "x", "--ca", "y", &file, url],
        &["serve"],
        &["serve", "--dir", ".", "--property", "x=y"],
        &["explain", "--property", "x=y"],
        &["explain", "--path", "rtt=fast"],
    ];
    for args in wrong {
        let ended = place.run(args);
        assert_eq!(ended.status, 2, "{args:?}: {:?} {}", ended.out, ended.err);
        assert!(!ended.err.is_empty(), "{args:?}");
    }
    place.run(&["serve", "--dir", "missing"]).failed(1, &["--dir", "missing"]);
    place.run(&["serve", "--dir", "a"]).failed(1, &["not a directory"]);
    place.run(&["--version"]).ok();
}

#[test]
fn every_line_of_json_is_an_event() {
    let place = Place::new();
    place.write("big", &pattern(2 << 20));
    let mut server = place.serve(&[]);
    let slow = ["--json", "--property", SLOW];
    let ended = place.cp(&server, &[&slow[..], &["big", "missing", &server.url("")]].concat());
    let client = ended.failed(1, &[]);
    server.running.event_where("connection", |event| event["step"] == "gone");
    server.running.signal(Signal::TERM);
    let served = server.running.wait().ok();
    for line in client.out.iter().chain(&served.out) {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let fields: &[&str] = match event["event"].as_str().expect("a kind") {
            "start" => &["command", "address", "fingerprint", "subject"],
            "connection" => &["peer", "service", "step", "line"],
            "request" => &["peer", "service", "step", "line"],
            "progress" => {
                &["bytes", "total", "files", "files_total", "rate_bps", "rtt_ms", "loss", "profile"]
            }
            "exchange" => &["step", "direction", "epoch", "line"],
            "file" => &["name", "bytes", "outcome", "packets_sent"],
            "warning" | "error" => &["message"],
            "done" => &["bytes", "bytes_carried", "seconds", "goodput_bps", "files", "failures", "hash"],
            other => panic!("{other} is not documented"),
        };
        assert!(event["t"].is_number() && event["time"].is_string(), "{line}");
        fields.iter().for_each(|field| assert!(!event[field].is_null(), "{line} lacks {field}"));
    }
    for kind in ["start", "progress", "file", "error"] {
        assert!(!client.events(kind).is_empty(), "no {kind}: {:?}", client.out);
    }
    for kind in ["start", "connection", "file"] {
        assert!(!served.events(kind).is_empty(), "no {kind}: {:?}", served.out);
    }
}

/// A file system at a folder, unmounted when it is dropped. A folder cannot be removed while
/// something is mounted there.
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A file system of 16 MiB at a folder of the place. `ballast` in it takes all but `free` bytes.
/// Drop it before the place, and after its users.
#[must_use]
fn small_disk(place: &Place, dir: &str, free: u64) -> Disk {
    const DISK: u64 = 16 << 20;
    let path = place.path(dir);
    fs::create_dir_all(&path).expect("made");
    let size = format!("size={DISK}");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&path).status();
    assert!(mounted.expect("mount runs").success());
    let disk = Disk(path);
    let ballast = vec![0; (DISK - free) as usize];
    fs::write(disk.0.join(".ballast"), ballast).expect("there is room");
    disk
}

#[test]
fn a_full_disk_at_the_server_is_an_error_and_the_copy_goes_on_when_there_is_room() {
    if !in_own_namespace(
        "-Urm",
        module_path!(),
        "a_full_disk_at_the_server_is_an_error_and_the_copy_goes_on_when_there_is_room",
    ) {
        return;
    }
    let place = Place::new();
    let content = pattern(BIG_BYTES);
    place.write("big", &content);
    let _disk = small_disk(&place, "srv", 5 << 20);
    let server = place.serve(&[]);
    for _ in 0..2 {
        place
            .cp(&server, &["big", &server.url("big")])
            .failed(1, &["uts: ", "big", "no space left on the disk"]);
        assert!(place.finished("srv").is_empty(), "nothing half-written under its name");
    }
    // The server has not suffered.
    place.write("small", b"a few bytes");
    fs::remove_file(place.path("srv/.ballast")).expect("removed");
    place.cp(&server, &["small", &server.url("small")]).ok();
    fs::remove_file(place.path("srv/small")).expect("removed");
    continued(&place, &server, &content);
}

#[test]
fn a_full_disk_at_the_client_is_an_error_and_the_copy_goes_on_when_there_is_room() {
    if !in_own_namespace(
        "-Urm",
        module_path!(),
        "a_full_disk_at_the_client_is_an_error_and_the_copy_goes_on_when_there_is_room",
    ) {
        return;
    }
    let place = Place::new();
    let content = pattern(BIG_BYTES);
    place.write("srv/big", &content);

    let _disk = small_disk(&place, "in", 5 << 20);
    let server = place.serve(&[]);
    place.cp(&server, &[&server.url("big"), "in/"]).failed(1, &["uts: ", "big", "no space left on the disk"]);
    assert!(place.finished("in").is_empty(), "nothing half-written under its name");
    fs::remove_file(place.path("in/.ballast")).expect("removed");
    let done = place.cp(&server, &["--json", &server.url("big"), "in/"]).ok().events("done").remove(0);
    assert!(place.read("in/big") == content);
    assert!(done["bytes_carried"].as_u64().is_some_and(|bytes| bytes < BIG_BYTES as u64), "{done}");
}

/// Content that is shown as done has arrived; content in this end's memory has not.
#[test]
fn progress_counts_what_was_delivered() {
    let place = Place::new();
    let content = pattern(BIG_BYTES);
    place.write("big", &content);
    let server = place.serve(&[]);
    let mut client = place.start_cp(&server, &["--json", "--property", SLOW, "big", &server.url("big")]);
    place.await_part("srv/.big.uts-part");
    server.running.signal(Signal::STOP);
    let mut bytes = 0;
    // As long as it takes to fill the flow.
    for _ in 0..5 {
        bytes = client.event("progress")["bytes"].as_u64().expect("a number");
    }
    let arrived = fs::metadata(place.path("srv/.big.uts-part")).expect("it is there").len();
    server.running.signal(Signal::CONT);
    // Some blocks wait between the server's flow and its disk.
    assert!(bytes > 0 && bytes <= arrived + (2 << 20), "{bytes} shown, {arrived} arrived");
    client.wait().ok();
    assert!(place.read("srv/big") == content);
}

#[test]
fn at_a_terminal_the_user_is_asked_about_an_unknown_server_once() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let server = place.serve(&[]);
    let url = server.url("a");
    let ask = |answer| place.run_at_terminal(&["cp", &file, &url], "(yes/no) ", answer);
    for (answer, why) in
        [("no\n", "was not accepted"), ("\u{4}", "was not accepted"), ("perhaps\n", "was not accepted")]
    {
        let (status, screen) = ask(answer);
        assert_eq!(status, 1, "{screen}");
        assert!(screen.contains("was never met before") && screen.contains(&server.fingerprint), "{screen}");
        assert!(screen.contains(why), "{screen}");
        assert!(place.finished("srv").is_empty());
    }
    let (status, screen) = ask("yes\n");
    assert_eq!(status, 0, "{screen}");
    assert_eq!(place.read("srv/a"), b"content");
    let known = String::from_utf8(place.read("home/config/uts/known_hosts")).expect("text");
    assert!(known.contains(&server.address) && known.contains(&server.fingerprint), "{known}");
    // From now on it is known, and nobody is asked.
    let (status, screen) = place.run_at_terminal(&["cp", &file, &server.url("b")], "(yes/no)", "no\n");
    assert!(status == 0 && !screen.contains("yes/no"), "{screen}");
    // Questions would be in the way of programs.
    place.run_at_terminal(&["cp", "--json", &file, &server.url("c")], "(yes/no)", "no\n");
    assert_eq!(place.finished("srv").len(), 3);
}
