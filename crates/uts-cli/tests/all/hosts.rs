//! Known servers, and properties that can be set: what is listed, kept and forgotten.

use crate::common::Place;
use serde_json::Value;
use std::collections::BTreeSet;

const KNOWN: &str = "home/config/uts/known_hosts";

fn known(place: &Place) -> String {
    String::from_utf8(place.read(KNOWN)).expect("text")
}

#[test]
fn a_new_host_is_accepted_where_that_was_asked_for_and_a_changed_key_never() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let server = place.serve(&[]);
    let url = server.url("a");
    place.run(&["cp", &file, &url]).failed(1, &["not a known host", "--accept-new", "--pin"]);
    place.run(&["cp", "--json", "--accept-new", &file, &url]).ok();
    assert_eq!(known(&place), format!("{} {}\n", server.address, server.fingerprint));
    // From now on it is known.
    place.run(&["cp", "--quiet", &file, &url]).ok();
    let other = place.run(&["keygen", "other"]).ok().out.remove(0);
    place.write(KNOWN, format!("{} {other}\n", server.address).as_bytes());
    let changed = place.run(&["cp", "--accept-new", &file, &url]);
    changed.failed(1, &["has changed", &server.fingerprint, &other]);
    place.run(&["cp", "--accept-new", "--pin", &other, &file, &url]).failed(2, &["--accept-new", "--pin"]);
}

#[test]
fn a_pin_is_kept_where_that_was_asked_for_once_the_server_has_shown_it() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let server = place.serve(&[]);
    let (pin, url) = (&server.fingerprint, server.url("a"));
    place.run(&["cp", "--quiet", "--pin", pin, &file, &url]).ok();
    assert!(!place.path(KNOWN).exists(), "a pin is for one copy");
    let other = place.run(&["keygen", "other"]).ok().out.remove(0);
    place.run(&["cp", "--quiet", "--pin", &other, "--remember", &file, &url]).failed(1, &["pinned"]);
    assert!(!place.path(KNOWN).exists(), "nobody has shown that key");
    let before = format!("# mine\n{} {other}\nelsewhere:1 {other}\n", server.address);
    place.write(KNOWN, before.as_bytes());
    let kept = place.run(&["cp", "--quiet", "--pin", pin, "--remember", &file, &url]).ok();
    assert!(kept.err.contains(&other) && kept.err.contains(pin.as_str()), "{}", kept.err);
    assert_eq!(known(&place), format!("# mine\nelsewhere:1 {other}\n{} {pin}\n", server.address));
    place.run(&["cp", "--quiet", &file, &url]).ok();
    let own = ["cp", "--quiet", "--pin", pin, "--remember", "--known-hosts", "mine", &file, &url];
    place.run(&own).ok();
    assert_eq!(place.read("mine"), format!("{} {pin}\n", server.address).as_bytes());
    place.run(&["cp", "--remember", &file, &url]).failed(2, &["--pin"]);
    place.run(&["cp", "--pin", pin, "--known-hosts", "mine", &file, &url]).failed(2, &["--remember"]);
}

#[test]
fn known_hosts_are_listed_added_and_removed() {
    let place = Place::new();
    let [a, b] = ["one", "two"].map(|name| place.run(&["keygen", name]).ok().out.remove(0));
    assert_eq!(place.run(&["hosts", "list"]).ok().out, [""; 0]);
    place.run(&["hosts", "add", "Example.org", &a]).ok();
    place.run(&["hosts", "add", "uts://[::1]:7/", &b]).ok();
    place.run(&["hosts", "add", "example.org:4433", &a]).ok();
    let listed = [format!("example.org:4433 {a}"), format!("[::1]:7 {b}")];
    assert_eq!(place.run(&["hosts", "list"]).ok().out, listed);
    assert_eq!(place.run(&["hosts", "list", "[::1]:7"]).ok().out, listed[1..]);
    place.run(&["hosts", "list", "nobody"]).failed(1, &["nobody:4433", "known_hosts"]);
    // One of the two keys would be wrong.
    place.run(&["hosts", "add", "example.org", &b]).failed(1, &[&a, "line 1", "uts hosts remove"]);
    place.run(&["hosts", "add", "example.org", "SHA256:x"]).failed(2, &["SHA256:x"]);
    place.run(&["hosts", "add", "a b", &a]).failed(2, &["a b"]);

    let damaged = format!("# mine\nexample.org:4433 {a} # home\nbroken line\n[::1]:7 {b}\n");
    place.write(KNOWN, damaged.as_bytes());
    let ended = place.run(&["hosts", "list", "--json"]);
    assert_eq!(ended.out.len(), 2);
    let first: Value = serde_json::from_str(&ended.out[0]).expect("JSON");
    assert_eq!((&first["host"], &first["line"]), (&"example.org:4433".into(), &2.into()));
    assert_eq!(first["fingerprint"], a);
    ended.failed(1, &["known_hosts, line 3: "]);
    place.run(&["hosts", "remove", "example.org", "nobody"]).failed(1, &["nobody:4433 is not among"]);
    assert_eq!(known(&place), format!("# mine\nbroken line\n[::1]:7 {b}\n"));
    place.run(&["hosts", "remove", "::1"]).failed(2, &["in brackets"]);
    place.run(&["hosts", "remove", "[::1]:7"]).ok();
    assert_eq!(known(&place), "# mine\nbroken line\n");
    place.run(&["hosts", "add", "h", &a, "--known-hosts", "mine"]).ok();
    assert_eq!(place.run(&["hosts", "list", "--known-hosts", "mine"]).ok().out, [format!("h:4433 {a}")]);
}

#[test]
fn properties_are_listed_with_values_default_and_meaning() {
    let place = Place::new();
    let text = place.run(&["properties"]).ok().out;
    assert!(text.iter().any(|line| line == "connCapacityProfile [default: capacity-seeking]"), "{text:?}");
    let all = place.run(&["properties", "--json"]).ok().out;
    let all: Vec<Value> = all.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut names = BTreeSet::new();
    for property in &all {
        let text = |field: &str| property[field].as_str().expect("a text");
        assert!(names.insert(text("name").to_owned()), "{property} is listed twice");
        assert!(!text("meaning").is_empty() && !text("values").is_empty(), "{property}");
        // What is listed can be asked for.
        let value = match (text("name"), text("default")) {
            (name, "chosen") => {
                let (_, mechanisms) = text("values").split_once('(').expect("mechanisms");
                let first = mechanisms.split([',', ')']).next().expect("one");
                format!("{name}={first}")
            }
            (name, default) => format!("{name}={default}"),
        };
        let ended = place.run(&["explain", "--property", &value]);
        assert_ne!(ended.status, 2, "{value}: {}", ended.err);
    }
    let some = place.run(&["properties", "maxsend", "--json"]).ok().out;
    assert_eq!(some.len(), 1);
    place.run(&["properties", "nothing-like-it"]).failed(1, &["`nothing-like-it`"]);
}

/// The same number means the same in every event: files in place, files in all, what failed.
#[test]
fn counts_of_events_agree() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.write(&format!("tree/{name}"), name.as_bytes());
    }
    let mut server = place.serve(&[]);
    let (url, top) = (server.url("copy"), server.url(""));
    place.cp(&server, &["--quiet", "tree/a", &top]).ok();
    let first = place.cp(&server, &["--json", "tree/a", "tree/b", "missing", &top]);
    let tree = place.cp(&server, &["--json", "-r", "tree", &url]).ok();
    let back = place.cp(&server, &["--json", "-r", &url, "back"]).ok();
    for (ended, files, failures, already) in [(first, 2, 1, 1), (tree, 3, 0, 0), (back, 3, 0, 0)] {
        let (progress, done) = (ended.events("progress"), ended.events("done").remove(0));
        let last = progress.last().expect("progress");
        assert_eq!(done["files"], files, "{done}");
        assert_eq!((&done["failures"], &done["files_already_there"]), (&failures.into(), &already.into()));
        for field in ["files", "files_total", "failures"] {
            assert_eq!(last[field], done[field], "{field}: {last} {done}");
        }
        let told = |outcome: &str| {
            let files = ended.events("file");
            files.iter().filter(|file| file["outcome"] == outcome).count() as u64
        };
        assert_eq!(done["files"], told("copied") + told("already there"), "{done}");
        for event in &progress {
            let count = |field: &str| event[field].as_u64().expect("a number");
            assert!(count("files") <= count("files_total"), "{event}");
        }
    }
    let gone = server.running.event_where("connection", |event| event["step"] == "gone");
    assert!(gone["peer"].is_string());
}
