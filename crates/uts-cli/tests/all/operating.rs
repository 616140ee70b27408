//! A server that runs, looked at by its operator.

use crate::common::tunnel::{echo, key_of};
use crate::common::{PATIENCE, Place};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A client of the server's pipe `echo`, that stays.
fn client(place: &Place, server: &crate::common::Server) -> Child {
    let args = ["pipe", "-q", "--pin", &server.fingerprint, &server.address, "echo"];
    let mut command = place.command("home", &args);
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
    ctl(&["set", "connPriority=1"]).failed(1, &["when it starts"]);
    options.extend(["--listen", "127.0.0.1:0"]);
    place
        .run(&[&["serve", "--dir", "srv"][..], &options].concat())
        .failed(1, &[&control, "another program uses it"]);
    server.running.signal(Signal::TERM);
    eventually(|| !place.path("control").exists());
}
