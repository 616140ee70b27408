//! Daily use of copies by people.

use crate::common::{Place, pattern};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::Stdio;
use std::time::Duration;

/// Slow enough to be interrupted.
const SLOW: &str = "maxSendRate=16Mbit/s";
const BIG_BYTES: usize = 8 << 20;

/// However the server ended, the copy goes on when it is there again, by itself.
#[test]
fn a_copy_goes_on_by_itself_when_its_server_is_back() {
    for with in [Signal::KILL, Signal::TERM] {
        for is_put in [true, false] {
            let place = Place::new();
            let content = pattern(BIG_BYTES);
            place.write(if is_put { "big" } else { "srv/big" }, &content);
            let slow = ["--property", SLOW];
            let server = place.serve(&slow);
            let (address, url) = (server.address.clone(), server.url("big"));
            let paths = if is_put { ["big", &url] } else { [&url, "big"] };
            let mut client = place.start_cp(&server, &[&["--json"], &slow[..], &paths[..]].concat());
            place.await_part(if is_put { "srv/.big.uts-part" } else { ".big.uts-part" });
            server.running.signal(with);
            server.running.wait();
            let again = place.serve_at(&address, &[]);
            client.event_where("notice", |notice| notice["step"] == "lost");
            client.event_where("notice", |notice| notice["step"] == "connected");
            let ended = client.wait().ok();
            assert!(place.read(if is_put { "srv/big" } else { "big" }) == content);
            let done = ended.events("done").remove(0);
            assert_eq!((&done["files"], &done["bytes"]), (&1.into(), &BIG_BYTES.into()), "{with:?}");
            // Not from the start: what was under way and not yet written is all that comes twice.
            assert!(done["bytes_carried"].as_u64().expect("a number") < 2 * BIG_BYTES as u64);
            drop(again);
        }
    }
}

#[test]
fn a_copy_gives_up_when_it_was_told_to() {
    let place = Place::new();
    place.write("big", &pattern(BIG_BYTES));
    let server = place.serve(&[]);
    let url = server.url("big");
    let client = place.start_cp(&server, &["--retry", "2s", "--property", SLOW, "big", &url]);
    place.await_part("srv/.big.uts-part");
    server.running.signal(Signal::TERM);
    server.running.wait();
    client.wait().failed(1, &["given up after 2 s", "run the same command again to continue"]);
}

fn piped(place: &Place, args: &[&str], input: &[u8]) -> (Vec<u8>, crate::common::Ended) {
    let mut command = place.command("home", args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // What it does not want to read is not written either.
    let feeding = std::thread::spawn(move || stdin.write_all(&input).is_ok());
    let ended = child.wait_with_output().expect("ended");
    feeding.join().expect("joined");
    let err = String::from_utf8_lossy(&ended.stderr).into_owned();
    let status = ended.status.code().unwrap_or(-1);
    (ended.stdout, crate::common::Ended { status, out: Vec::new(), err })
}

#[test]
fn standard_input_and_output_are_copied_from_and_to() {
    let place = Place::new();
    let server = place.serve(&[]);
    let content = pattern(3_000_001);
    let pin = &server.fingerprint;
    let (out, ended) = piped(&place, &["cp", "--pin", pin, "-", &server.url("f")], &content);
    ended.ok();
    assert!(String::from_utf8_lossy(&out).contains("the same at both ends"));
    assert!(place.read("srv/f") == content);
    let (out, ended) = piped(&place, &["cp", "--pin", pin, &server.url("f"), "-"], b"");
    assert!(out == content, "{} bytes", out.len());
    assert!(ended.ok().err.contains("the same at both ends"), "the summary goes to standard error");
    // As cp does: written into, not replaced.
    place.cp(&server, &["-q", &server.url("f"), "/dev/null"]).ok();
    assert!(fs::metadata("/dev/null").expect("there").file_type().is_char_device());
    piped(&place, &["cp", "--pin", pin, "/dev/stdin", &server.url("g")], b"through a device").1.ok();
    assert_eq!(place.read("srv/g"), b"through a device");
    let (_, ended) = piped(&place, &["cp", "--pin", pin, "-", &server.url("")], b"x");
    ended.failed(1, &["uts: ", "name the file"]);
    let (_, ended) = piped(&place, &["cp", "--json", "--pin", pin, &server.url("f"), "-"], b"");
    ended.failed(2, &["uts: --json: standard output is for the file"]);
}

/// A name that the program uses for itself, and other files of the user's, survive any copy.
#[test]
fn what_the_user_has_is_neither_destroyed_nor_left_out_in_silence() {
    let place = Place::new();
    let server = place.serve(&[]);
    place.write("w", b"new");
    place.write(".w.uts-part", b"mine");
    place.write("srv/.w.uts-part", b"mine too");
    place.cp(&server, &["w", &server.url("w")]).failed(1, &["uts: ", ".w.uts-part", "in the way"]);
    assert_eq!(place.read("srv/.w.uts-part"), b"mine too");
    fs::remove_file(place.path("srv/.w.uts-part")).expect("removed");
    place.cp(&server, &["w", &server.url("w")]).ok();
    fs::remove_file(place.path("w")).expect("removed");
    place.cp(&server, &[&server.url("w"), "w"]).failed(1, &[".w.uts-part", "in the way"]);
    assert_eq!(place.read(".w.uts-part"), b"mine");

    place.write("d/.x.uts-id", b"mine as well");
    place.write("d/plain", b"x");
    let ended = place.cp(&server, &["-q", "-r", "d", &server.url("d")]);
    ended.failed(1, &["d/.x.uts-id", "left out"]);
    assert_eq!(place.finished("srv/d"), ["plain"]);
}

#[test]
fn what_is_left_out_shows_in_the_status() {
    let place = Place::new();
    let server = place.serve(&[]);
    place.write("d/plain", b"x");
    symlink("plain", place.path("d/link")).expect("made");
    rustix::fs::mknodat(rustix::fs::CWD, place.path("d/pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .expect("made");
    let ended = place.cp(&server, &["-q", "-r", "d", &server.url("a")]);
    let ended = ended.failed(1, &["uts: warning: d/link", "uts: warning: d/pipe", "left out"]);
    assert_eq!(ended.err.lines().count(), 2, "{}", ended.err);
    let ended = place.cp(&server, &["-q", "-r", "--skip-special", "d", &server.url("b")]).ok();
    assert_eq!(ended.err, "");
    // A refused link is named. The rest is copied, and the next run continues in the same place.
    symlink("/etc/passwd", place.path("d/out")).expect("made");
    for _ in 0..2 {
        let ended = place.cp(&server, &["-q", "-r", "--links", "--skip-special", "d", &server.url("c")]);
        let ended = ended.failed(1, &["c/out", "absolute path"]);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        assert!(place.path("srv/c/link").is_symlink() && place.path("srv/c/plain").is_file());
        assert!(!place.path("srv/c/d").exists());
    }
}

#[test]
fn names_that_collide_are_refused_before_anything_is_sent() {
    let place = Place::new();
    let server = place.serve(&[]);
    place.write("q1/s", b"1");
    place.write("q2/s", b"2");
    fs::create_dir(place.path("srv/dir")).expect("made");
    let ended = place.cp(&server, &["q1/s", "q2/s", &server.url("dir")]);
    ended.failed(1, &["dir/s", "q1/s", "q2/s", "nothing was copied"]);
    assert!(place.finished("srv/dir").is_empty());
    place.cp(&server, &["q1/s", &server.url("new/")]).failed(1, &["new", "no such directory"]);
    assert_eq!(place.finished("srv"), ["dir"]);
}

#[test]
fn a_dry_run_tells_and_changes_nothing() {
    let place = Place::new();
    let server = place.serve(&[]);
    for name in ["d/a.c", "d/a.o", "d/sub/b.c"] {
        place.write(name, name.as_bytes());
    }
    let args = ["-n", "-r", "--exclude", "*.o", "d", &server.url("copy")];
    let ended = place.cp(&server, &args).ok();
    let named = |name: &str| ended.out.iter().any(|line| line.starts_with(name));
    assert!(named("d/a.c would be copied") && named("d/sub/b.c would be copied"), "{:?}", ended.out);
    assert!(!named("d/a.o") && named("nothing was changed"), "{:?}", ended.out);
    assert!(place.finished("srv").is_empty());
    let ended = place.cp(&server, &[&["--json"], &args[..]].concat()).ok();
    assert_eq!(ended.events("done")[0]["files_wanted"], 2);
    assert_eq!(ended.events("file")[0]["outcome"], "would be copied");
    place.cp(&server, &args[1..]).ok();
    assert!(!place.path("srv/copy/a.o").exists() && place.path("srv/copy/sub/b.c").is_file());
    place.cp(&server, &["--exclude", "[", "d", &server.url("")]).failed(2, &["uts: --exclude: `[`"]);
}

/// A copy that was interrupted or killed is begun again at once, without waiting.
#[test]
fn a_copy_can_be_begun_again_at_once() {
    let place = Place::new();
    let content = pattern(BIG_BYTES);
    place.write("big", &content);
    place.write("srv/huge", &content);
    let server = place.serve(&["--property", SLOW]);
    for with in [Signal::INT, Signal::KILL, Signal::INT, Signal::KILL] {
        let client = place.start_cp(&server, &["--property", SLOW, "big", &server.url("big")]);
        place.await_part("srv/.big.uts-part");
        client.signal(with);
        let client = place.start_cp(&server, &["-q", "big", &server.url("big")]);
        client.wait().ok();
        assert!(place.read("srv/big") == content, "{with:?}");
        fs::remove_file(place.path("srv/big")).expect("removed");

        let client = place.start_cp(&server, &[&server.url("huge"), "huge"]);
        place.await_part(".huge.uts-part");
        client.signal(with);
        place.start_cp(&server, &["-q", &server.url("huge"), "huge"]).wait().ok();
        assert!(place.read("huge") == content, "{with:?}");
        fs::remove_file(place.path("huge")).expect("removed");
    }
}

#[test]
fn what_was_left_behind_is_listed_and_removed() {
    let place = Place::new();
    place.write("big", &pattern(BIG_BYTES));
    let server = place.serve(&[]);
    let client = place.start_cp(&server, &["--property", SLOW, "big", &server.url("d")]);
    place.await_part("srv/.d.uts-part");
    let ended = place.run(&["parts", "srv"]).ok();
    assert!(ended.out[0].contains("d") && ended.out[0].contains("under way"), "{:?}", ended.out);
    client.kill();
    drop(server);
    place.write("srv/.mine.uts-part", b"mine");
    let ended = place.run(&["parts", "--json", "srv"]).ok();
    let found = &ended.events("part")[..];
    assert_eq!((found.len(), &found[0]["path"], &found[0]["size"]), (1, &"srv/d".into(), &BIG_BYTES.into()));
    assert!(place.run(&["parts", "--remove", "--older-than", "1d", "srv"]).ok().out.is_empty());
    assert!(place.path("srv/.d.uts-part").exists());
    let ended = place.run(&["parts", "--remove", "srv"]).ok();
    assert!(ended.out[0].contains("removed"), "{:?}", ended.out);
    assert!(!place.path("srv/.d.uts-part").exists() && !place.path("srv/.d.uts-id").exists());
    assert_eq!(place.read("srv/.mine.uts-part"), b"mine");
    place.run(&["parts", "nowhere"]).failed(1, &["uts: nowhere: no such file or directory"]);
}

/// Whichever end stands still for longer than the connection lives, as a laptop that sleeps does.
#[test]
fn a_copy_survives_the_sleep_of_either_end() {
    for client_sleeps in [true, false] {
        let place = Place::new();
        let content = pattern(BIG_BYTES);
        place.write("big", &content);
        let short = ["--property", "connTimeout=3s"];
        let server = place.serve(&short);
        let url = server.url("big");
        let args = [&["--json", "--property", SLOW], &short[..], &["big", &url]].concat();
        let mut client = place.start_cp(&server, &args);
        place.await_part("srv/.big.uts-part");
        let sleeper = if client_sleeps { &client } else { &server.running };
        sleeper.signal(Signal::STOP);
        std::thread::sleep(Duration::from_secs(7));
        sleeper.signal(Signal::CONT);
        let lost = client.event_where("notice", |notice| notice["step"] == "lost");
        let why = lost["line"].as_str().expect("a text");
        let is_true = if client_sleeps {
            why.contains("nothing heard") || why.contains("given it up")
        } else {
            why.contains("nothing heard")
        };
        assert!(is_true, "{why}");
        client.wait().ok();
        assert!(place.read("srv/big") == content);
    }
}

#[test]
fn what_is_at_a_server_is_listed() {
    let place = Place::new();
    place.write("srv/d/a.txt", b"12345");
    place.write("srv/d/e/b", b"1");
    let server = place.serve(&[]);
    let list = |args: &[&str]| place.run(&[&["ls", "--pin", &server.fingerprint], args].concat());
    let ended = list(&[&server.url("d")]).ok();
    assert_eq!(ended.out.len(), 2, "{:?}", ended.out);
    assert!(ended.out[0].ends_with("Z a.txt") && ended.out[0].contains(" 5 B "), "{:?}", ended.out);
    assert!(ended.out[1].starts_with('d') && ended.out[1].ends_with(" e/"), "{:?}", ended.out);
    let ended = list(&["-r", "--json", &server.url("")]).ok();
    let all = ended.events("entry");
    assert_eq!(
        all.iter().map(|e| e["path"].as_str().unwrap()).collect::<Vec<_>>(),
        ["d", "d/a.txt", "d/e", "d/e/b"]
    );
    assert_eq!((&all[1]["size"], &all[1]["kind"]), (&5.into(), &"file".into()));
    list(&[&server.url("none")]).failed(1, &["uts: ", "none", "no such file"]);
    list(&["d"]).failed(2, &["uts: d: write what is at a server as uts://host/path"]);
}
