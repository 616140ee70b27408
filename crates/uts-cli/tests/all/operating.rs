//! A server that runs, looked at by its operator.

use crate::common::tunnel::{Tunnel, ask, by_socks, echo, free_port, key_of};
use crate::common::{PATIENCE, Place};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A client of the server's pipe `echo`, that stays.
fn client(place: &Place, server: &crate::common::Server) -> Child {
    client_with(place, server, &[])
}

fn client_with(place: &Place, server: &crate::common::Server, options: &[&str]) -> Child {
    let args = ["pipe", "-q", "--pin", &server.fingerprint, &server.address, "echo"];
    let mut command = place.command("home", &[&args[..], options].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    child.stdin.as_mut().expect("piped").write_all(b"x").expect("written");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("read");
    child
}

fn eventually(holds: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "it never holds");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn clients_of_a_server_are_listed_with_what_is_held_for_them_and_ended() {
    let place = Place::new();
    let (keys, key) = key_of(&place, "home");
    let control = place.path("control").display().to_string();
    let pipe = format!("echo={}", echo());
    let mut options = vec!["--pipe", &pipe, "--authorized-keys", &keys, "--control", &control];
    let server = place.serve(&options);
    let ctl = |args: &[&str]| place.run(&[&["ctl", &control][..], args].concat());
    assert!(ctl(&[]).ok().out[0].ends_with(": 0 clients"));
    let (mut first, mut second) = (client(&place, &server), client(&place, &server));
    let json =
        || -> serde_json::Value { serde_json::from_str(&ctl(&["--json"]).ok().out[0]).expect("an object") };
    let list = json();
    let clients = list["clients"].as_array().expect("clients");
    assert_eq!(clients.len(), 2, "{list}");
    assert!(clients.iter().all(|client| client["key"] == *key && client["service"] == "pipe"), "{list}");
    let sockets = list["resources"].as_array().expect("resources");
    let sockets = sockets.iter().find(|row| row["resource"] == "sockets").expect("sockets");
    assert!(sockets["held"] == 2 && sockets["payers"][0]["name"] == *key, "{sockets}");
    let shown = ctl(&["list"]).ok().out;
    assert!(shown[0].ends_with(": 2 clients") && shown[1].contains(&format!(" pipe, {key}, ")), "{shown:?}");
    assert!(
        shown[2].contains(" in, ") && shown[2].contains("RTT ") && shown[2].contains("loss "),
        "{shown:?}"
    );
    assert!(shown[3].contains(&pipe.replace('=', " (")) && shown[3].contains("1 B in, 1 B out"), "{shown:?}");
    // A property of one of them is changed, and no other's.
    let second_id = clients[1]["id"].to_string();
    ctl(&["set", "--id", &second_id, "maxSendRate=5Mbit/s"]).ok();
    let properties = |list: &serde_json::Value, n: usize| list["clients"][n]["properties"].to_string();
    let list = json();
    assert!(
        properties(&list, 1).contains("maxSendRate") && !properties(&list, 0).contains("maxSendRate"),
        "{list}"
    );
    ctl(&["set", "--id", "99", "connPriority=1"]).failed(1, &["no client 99"]);
    ctl(&["set", "--id", &second_id, "nonsense=1"]).failed(2, &["nonsense"]);
    // What they were led to is accounted for.
    let audit: serde_json::Value =
        serde_json::from_str(&ctl(&["--json", "audit"]).ok().out[0]).expect("an object");
    let row = &audit["audit"][0];
    assert!(row["client"] == *key && row["reached"] == 2 && row["refused"] == 0, "{audit}");
    let line = &ctl(&["audit"]).ok().out[0];
    assert!(line.starts_with(&key) && line.contains(": 2 times, "), "{line}");
    ctl(&["audit", "extra"]).failed(2, &[]);
    assert!(shown.iter().any(|line| line.starts_with("sockets 2 of ")), "{shown:?}");
    // One is ended, and told why. The other goes on.
    ctl(&["end", &clients[0]["id"].to_string()]).ok();
    drop(first.stdin.take());
    let ended = first.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("ended by the operator"), "{said}");
    eventually(|| json()["clients"].as_array().map(Vec::len) == Some(1));
    second.stdin.as_mut().expect("piped").write_all(b"y").expect("written");
    second.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("read");
    second.kill().expect("killed");
    second.wait().expect("ended");
    // Faults are told in a line.
    ctl(&["end", "99"]).failed(1, &["no client 99"]);
    ctl(&["set", "connPriority=1"]).failed(1, &["--id NUMBER"]);
    options.extend(["--listen", "127.0.0.1:0"]);
    place
        .run(&[&["serve", "--dir", "srv"][..], &options].concat())
        .failed(1, &[&control, "another program uses it"]);
    server.running.signal(Signal::TERM);
    eventually(|| !place.path("control").exists());
}

/// Two ends that have different numbers for a mechanism understand each other, and say so.
#[test]
fn numbers_that_differ_between_the_ends_are_listed() {
    let place = Place::new();
    let (keys, _) = key_of(&place, "home");
    let control = place.path("control").display().to_string();
    let numbers = ["200", "201"].map(|number| {
        place.write(number, format!("[functions]\nfec = {number}\n").as_bytes());
        place.path(number).display().to_string()
    });
    let pipe = format!("echo={}", echo());
    let server = place.serve(&[
        "--pipe",
        &pipe,
        "--authorized-keys",
        &keys,
        "--control",
        &control,
        "--mapping",
        &numbers[0],
    ]);
    let mut client = client_with(&place, &server, &["--mapping", &numbers[1]]);
    let told = place.run(&["ctl", &control]).ok().out;
    assert!(told.iter().any(|line| line == "    numbers: fec is 200 here and 201 there"), "{told:?}");
    let list = place.run(&["ctl", &control, "--json"]).ok().out.remove(0);
    let list: serde_json::Value = serde_json::from_str(&list).expect("an object");
    let difference = &list["clients"][0]["numbers_difference"];
    assert_eq!(difference.as_str(), Some("fec is 200 here and 201 there"), "{list}");
    client.kill().expect("killed");
    client.wait().expect("ended");
}

/// Each line of a server, and of a tunnel that says all, has the time of the clock, who it is about
/// and why; ends have how much and how long as well.
#[test]
fn lines_say_when_who_what_how_much_how_long_and_why() {
    let place = Place::new();
    let (keys, key) = key_of(&place, "home");
    place.write("srv/file", b"content");
    place.write("new", b"new");
    let (service, other) = (echo(), format!("127.0.0.1:{}", free_port()));
    let (pipe, forward) = (format!("echo={service}"), service.to_string());
    let args = ["serve", "--dir", "srv", "--listen", "127.0.0.1:0", "--authorized-keys", &keys];
    let pin = place.run_as("server-home", &["keygen"]).ok().out.remove(0);
    let served =
        place.start_as("server-home", &[&args[..], &["--pipe", &pipe, "--forward", &forward]].concat());
    let address = format!("127.0.0.1:{}", place.listening_port(&served));
    let server = crate::common::Server { address, fingerprint: pin, running: served };
    // A stranger, an upload, a file that is not there, a stream, and a tunnel with a place that is
    // permitted and one that is not.
    let strange = place.run(&["keygen", "strange"]).ok().out.remove(0);
    place.cp(&server, &["--key", "strange", &server.url("file"), "got"]).failed(1, &["refused"]);
    place.cp(&server, &["new", &server.url("new")]).failed(1, &["read-only"]);
    place.cp(&server, &[&server.url("file"), "got"]).ok();
    let mut stream = client(&place, &server);
    drop(stream.stdin.take());
    stream.wait().expect("ended");
    place.run(&["pipe", "--pin", &server.fingerprint, &server.address, "none"]).failed(1, &["no service"]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-D", "0", "-v"]);
    let proxy = tunnel.address(0);
    assert_eq!(ask(by_socks(proxy, service), b"hello").expect("carried"), b"hello");
    let refused = std::panic::catch_unwind(|| by_socks(proxy, other.parse().expect("an address")));
    assert!(refused.is_err(), "it is permitted");
    let tunnel_said = tunnel.end();
    server.running.signal(Signal::TERM);
    let said = server.running.wait().ok().err;
    let is_stamped = |line: &str| {
        let form =
            line.chars().take(25).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect::<String>();
        form == "0000-00-00T00:00:00.000Z "
    };
    for line in said.lines().chain(tunnel_said.lines().filter(|line| !line.contains("interrupted"))) {
        assert!(is_stamped(line), "{line}");
    }
    let has = |said: &str, parts: &[&str]| {
        let is_there = said.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(is_there, "no line has {parts:?}:\n{said}");
    };
    let from = " 127.0.0.1:";
    has(&said, &[from, &strange, " refused: ", "is not in"]);
    has(&said, &[from, &key, " files connected"]);
    has(&said, &[from, &key, " files new refused: ", "read-only"]);
    has(&said, &[from, &key, " files file copied: 7 B"]);
    has(&said, &[from, &key, " files gone: closed by the peer", " in, ", " out, "]);
    has(
        &said,
        &[from, &key, &format!(" pipe echo ({service}) closed: both ends are done; 1 B in, 1 B out, ")],
    );
    has(&said, &[from, &key, " pipe none refused: no service `none` here"]);
    has(&said, &[from, &key, &format!(" tunnel {service} closed: both ends are done; 5 B in, 5 B out, ")]);
    has(&said, &[from, &key, &format!(" tunnel {other} refused: "), "not permitted"]);
    has(&said, &[from, &key, " tunnel gone: ", " in, ", " out, "]);
    has(&tunnel_said, &[&server.address, &format!(" {service} closed: both ends are done; 5 B in, 5 B out")]);
}

/// SIGHUP has the file of settings read again: what can change does, at once and for those who are
/// connected as well; what cannot is named; a bad file changes nothing.
#[test]
fn settings_are_read_again_while_the_server_runs() {
    let place = Place::new();
    let (keys, key) = key_of(&place, "home");
    place.run_as("other", &["keygen"]).ok();
    let (first, second) = (echo(), echo());
    let file = place.path("serve.toml").display().to_string();
    let settings = |places: &str, more: &str| {
        let text =
            format!("forward = [{places}]\nauthorized_keys = '{keys}'\nlisten = '127.0.0.1:0'\n{more}");
        place.write("serve.toml", text.as_bytes());
    };
    settings(&format!("'{first}'"), "");
    let mut server = Place::served(place.start_as("server-home", &["serve", "--json", "--config", &file]));
    let tunnel = Tunnel::start(&place, "home", &server, &["-D", "0"]);
    let proxy = tunnel.address(0);
    let reaches = |to| std::panic::catch_unwind(|| ask(by_socks(proxy, to), b"x").expect("carried")).is_ok();
    assert!(reaches(first) && !reaches(second));
    settings(&format!("'{second}'"), "max_connections = 5\nquiet = false\nclassical = true\n");
    server.running.signal(Signal::HUP);
    let told = server.running.event_where("notice", |notice| notice["step"] == "reloaded");
    let line = told["line"].as_str().expect("a line");
    assert!(line.contains("new from now on: forward, max-connections; "), "{line}");
    assert!(line.ends_with("stay as they were: classical (it is read at the start)"), "{line}");
    assert!(!reaches(first) && reaches(second), "the tunnel that was there follows");
    // A bad file is refused whole, and each fault of it is told.
    settings(&format!("'{first}', 'nonsense'"), "max_conections = 7\n");
    server.running.signal(Signal::HUP);
    let mut told = Vec::new();
    while !told.iter().any(|line: &String| line.contains("those before stay")) {
        told.push(server.running.event("error")["message"].as_str().expect("a text").to_owned());
    }
    let told = told.join("\n");
    assert!(told.contains("serve.toml:1: ") && told.contains("nonsense"), "{told}");
    assert!(
        told.contains("serve.toml:4: there is no key `max_conections`; did you mean `max_connections`?"),
        "{told}"
    );
    assert!(!reaches(first) && reaches(second));
    // Another file of keys: who is in it no more is gone.
    let others = place.write("others", b"# nobody\n");
    let text = format!("forward = ['{second}']\nauthorized_keys = '{others}'\nlisten = '127.0.0.1:0'\n");
    place.write("serve.toml", text.as_bytes());
    server.running.signal(Signal::HUP);
    server.running.event_where("notice", |notice| notice["step"] == "reloaded");
    let gone = server.running.event_where("connection", |event| event["step"] == "gone");
    assert!(
        gone["key"] == *key && gone["line"].as_str().is_some_and(|line| line.contains("may not connect")),
        "{gone}"
    );
    server.running.signal(Signal::TERM);
    server.running.wait().ok();
}

/// The name of a figure, its labels, and its value.
type Sample = (String, Vec<(String, String)>, f64);

/// The sample of a line in the text format of Prometheus.
fn sample(line: &str) -> Option<Sample> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        number => number.parse().ok()?,
    };
    let is_name = |name: &str| {
        let is_sound = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        !name.is_empty() && name.chars().all(is_sound) && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    let (name, labels) = match head.split_once('{') {
        None => (head, ""),
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
    };
    let label = |label: &str| {
        let (name, value) = label.split_once('=')?;
        let value = value.strip_prefix('"')?.strip_suffix('"')?;
        is_name(name).then(|| (name.to_owned(), value.to_owned()))
    };
    let labels: Option<Vec<_>> = labels.split(',').filter(|label| !label.is_empty()).map(label).collect();
    is_name(name).then(|| (name.to_owned(), labels.unwrap_or_default(), value))
}

/// Figures in the text format of Prometheus, each beneath its type, as a strict reader takes them.
fn figures(text: &str) -> std::collections::BTreeMap<String, f64> {
    let mut types = std::collections::BTreeMap::new();
    let mut all = std::collections::BTreeMap::new();
    assert!(text.ends_with('\n'), "{text}");
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<&str> = comment.splitn(3, ' ').collect();
            assert!(["HELP", "TYPE"].contains(&words[0]) && words.len() == 3, "{line}");
            if words[0] == "TYPE" {
                assert!(["counter", "gauge", "histogram", "summary"].contains(&words[2]), "{line}");
                assert!(types.insert(words[1].to_owned(), words[2].to_owned()).is_none(), "twice: {line}");
            }
            continue;
        }
        let (name, labels, value) = sample(line).unwrap_or_else(|| panic!("no sample: {line}"));
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let family = family.filter(|family| types.contains_key(*family)).unwrap_or(&name);
        assert!(types.contains_key(family), "without a type: {line}");
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let key = format!("{name} {}", labels.join(" ")).trim().to_owned();
        assert!(all.insert(key, value).is_none(), "twice: {line}");
    }
    all
}

#[test]
fn figures_are_told_in_the_format_of_prometheus() {
    let place = Place::new();
    let (keys, _) = key_of(&place, "home");
    place.write("srv/file", &vec![7; 100_000]);
    let pipe = format!("echo={}", echo());
    let mut server = place.serve(&["--pipe", &pipe, "--authorized-keys", &keys, "--metrics", "0"]);
    let line = server.running.event_where("notice", |notice| notice["step"] == "metrics");
    let line = line["line"].as_str().expect("a line").to_owned();
    let at = line.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/metrics")).expect("an address");
    assert!(at.starts_with("127.0.0.1:"), "{line}");
    let get = |path: &str, host: &str| {
        let stream = crate::common::tunnel::connect(at.parse().expect("an address"));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = String::from_utf8(ask(stream, request.as_bytes()).expect("an answer")).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.lines().next().expect("a status").to_owned(), body.to_owned())
    };
    place.cp(&server, &[&server.url("file"), "got"]).ok();
    place.run(&["keygen", "strange"]).ok();
    place.cp(&server, &["--key", "strange", &server.url("file"), "x"]).failed(1, &["refused"]);
    let mut stream = client(&place, &server);
    let (mut told, mut text) = Default::default();
    let has =
        |told: &std::collections::BTreeMap<String, f64>, name: &str| told.get(name).copied().unwrap_or(-1.0);
    let until = Instant::now() + PATIENCE;
    // Round trips are looked at every five seconds.
    while has(&told, "uts_round_trip_seconds_count") < 1.0 {
        assert!(Instant::now() < until, "{text}");
        std::thread::sleep(Duration::from_millis(200));
        let (status, body) = get("/metrics", at);
        assert_eq!(status, "HTTP/1.1 200 OK");
        (told, text) = (figures(&body), body);
    }
    for (name, value) in [
        ("uts_connections_open service=pipe", 1.0),
        ("uts_connections_open service=files", 0.0),
        ("uts_connections_total", 2.0),
        ("uts_streams_open", 1.0),
        ("uts_streams_total outcome=opened", 1.0),
        ("uts_refused_total cause=key", 1.0),
        ("uts_refused_total cause=place", 0.0),
        ("uts_held resource=sockets", 1.0),
        ("uts_faults_total", 0.0),
    ] {
        assert_eq!(has(&told, name), value, "{name} in\n{text}");
    }
    assert!(has(&told, "uts_bytes_total direction=out") > 100_000.0, "{text}");
    assert!(has(&told, "uts_packets_total kind=sent") > 70.0, "{text}");
    assert!(has(&told, "uts_round_trip_seconds_bucket le=+Inf") >= 1.0, "{text}");
    // The dashboard asks for nothing that is not told.
    let dashboard = include_str!("../../../../packaging/grafana/uts.json");
    serde_json::from_str::<serde_json::Value>(dashboard).expect("JSON");
    let names = dashboard
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|name| name.starts_with("uts_"));
    let names: std::collections::BTreeSet<&str> = names.collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        // That of an exchange is told once there was one.
        let is_told =
            told.keys().any(|told| told.split(' ').next() == Some(name)) || name == "uts_exchanges_total";
        assert!(is_told, "{name} is not told:\n{text}");
    }
    assert_eq!(get("/", at).0, "HTTP/1.1 404 Not Found");
    assert_eq!(get("/metrics", "evil.example").0, "HTTP/1.1 403 Forbidden");
    drop(stream.stdin.take());
    stream.wait().expect("ended");
    // What is counted never goes back.
    let before = has(&told, "uts_packets_total kind=sent");
    eventually(|| has(&figures(&get("/metrics", at).1), "uts_connections_open service=pipe") == 0.0);
    assert!(has(&figures(&get("/metrics", at).1), "uts_packets_total kind=sent") >= before);
    server.running.signal(Signal::TERM);
    server.running.wait().ok();
}

/// A terminal follows a server; what is no terminal, or no socket, is told.
#[test]
fn a_server_is_followed_on_a_terminal() {
    let place = Place::new();
    let (keys, _) = key_of(&place, "home");
    let control = place.path("control").display().to_string();
    let pipe = format!("echo={}", echo());
    let server = place.serve(&["--pipe", &pipe, "--authorized-keys", &keys, "--control", &control]);
    let mut stream = client(&place, &server);
    let (status, screen) =
        place.run_at_terminal_out_of(80, &["top", "--every", "100ms", &control], "127.0.0.1", "q");
    assert_eq!(status, 0, "{screen}");
    for part in ["1 client", "pipe", "RTT", "arrows"] {
        assert!(screen.contains(part), "{part} is not in {screen:?}");
    }
    // The terminal is as it was: the other screen is left, and the cursor is there.
    assert!(screen.contains("\u{1b}[?1049l") && screen.contains("\u{1b}[?25h"), "{screen:?}");
    place.run(&["top", &control]).failed(2, &["is no terminal"]);
    place.run(&["top", "--every", "2h", &control]).failed(2, &["100ms to 1h"]);
    drop(stream.stdin.take());
    stream.wait().expect("ended");
    let (status, screen) = place.run_at_terminal_out_of(80, &["top", "/nowhere/x"], "never asked", "");
    assert!(status == 1 && screen.contains("no such socket"), "{screen}");
}
