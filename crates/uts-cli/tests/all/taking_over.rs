//! A server whose port another process takes over, and what a service manager is told.
#![allow(clippy::disallowed_types, reason = "a relay of the test's own")]

use crate::common::tunnel::echo;
use crate::common::{PATIENCE, Place, Running, Server};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A translator of addresses between a client and a server. It changes the port by which the server
/// knows the client each time that it is told to.
struct Translator {
    address: SocketAddr,
    changes: Arc<AtomicBool>,
}

impl Translator {
    fn to(server: &str) -> Self {
        let server: SocketAddr = server.parse().expect("an address");
        let inside = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let (address, changes) = (inside.local_addr().expect("bound"), Arc::new(AtomicBool::new(false)));
        let change = changes.clone();
        std::thread::spawn(move || {
            let new = || {
                let outside = UdpSocket::bind("127.0.0.1:0").expect("bound");
                outside.connect(server).expect("connected");
                outside.set_nonblocking(true).expect("set");
                outside
            };
            inside.set_read_timeout(Some(Duration::from_millis(1))).expect("set");
            let (mut outside, mut client, mut bytes) = (new(), None, [0; 65_536]);
            loop {
                if change.swap(false, Relaxed) {
                    outside = new();
                }
                if let Ok((count, from)) = inside.recv_from(&mut bytes) {
                    client = Some(from);
                    let _ = outside.send(&bytes[..count]);
                }
                while let (Ok(count), Some(client)) = (outside.recv(&mut bytes), client) {
                    let _ = inside.send_to(&bytes[..count], client);
                }
            }
        });
        Translator { address, changes }
    }
}

/// A client of the server's pipe `echo`, that stays.
fn client(place: &Place, server: &Server, at: &str) -> Child {
    let args = ["pipe", "-q", "--pin", &server.fingerprint, at, "echo"];
    let mut command = place.command("home", &args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    asks(&mut child);
    child
}

/// It says something, and hears it.
fn asks(child: &mut Child) {
    child.stdin.as_mut().expect("piped").write_all(b"x").expect("written");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("read");
}

fn leaves(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait_with_output().expect("ended").status.success());
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Options of a server of `echo`, and its control socket.
fn options(place: &Place) -> (Vec<String>, String) {
    let control = place.path("control").display().to_string();
    let options = ["--anyone", "--pipe", &format!("echo={}", echo()), "--control", &control, "--take-over"];
    (options.map(str::to_owned).to_vec(), control)
}

fn serve(place: &Place, at: &str, options: &[String], more: &[&str]) -> Server {
    let mut all: Vec<&str> = options.iter().map(String::as_str).collect();
    all.extend(more);
    place.serve_at(at, &all)
}

fn clients_at(place: &Place, control: &str) -> usize {
    let list = place.run(&["ctl", control, "--json"]).ok().out.remove(0);
    let list: serde_json::Value = serde_json::from_str(&list).expect("an object");
    list["clients"].as_array().expect("clients").len()
}

fn ends_well(mut running: Running) -> Vec<String> {
    eventually("it ends", || running.has_ended());
    running.wait().ok().out
}

/// Connections stay with their process, also when the client's address changes. Its end is that of
/// the last of them.
#[test]
fn another_process_takes_over_and_clients_stay() {
    let place = Place::new();
    let (options, control) = options(&place);
    let old = serve(&place, "127.0.0.1:0", &options, &[]);
    let translator = Translator::to(&old.address);
    let (mut first, mut moving) =
        (client(&place, &old, &old.address), client(&place, &old, &translator.address.to_string()));
    let new = serve(&place, &old.address, &options, &[]);
    assert_eq!((&new.address, &new.fingerprint), (&old.address, &old.fingerprint));
    assert_eq!(clients_at(&place, &control), 0, "the control socket is the new one's");
    let mut second = client(&place, &new, &new.address);
    assert_eq!(clients_at(&place, &control), 1);
    for _ in 0..3 {
        asks(&mut first);
        asks(&mut second);
        translator.changes.store(true, Relaxed);
        asks(&mut moving);
    }
    let Server { mut running, .. } = old;
    leaves(first);
    asks(&mut moving);
    assert!(!running.has_ended(), "a client is there");
    leaves(moving);
    let told = ends_well(running);
    assert!(told.iter().any(|line| line.contains("another process has taken over")), "{told:?}");
    asks(&mut second);
    let third = client(&place, &new, &new.address);
    leaves(third);
    leaves(second);
    new.running.signal(Signal::TERM);
    ends_well(new.running);
}

/// A process that has taken over and fails gives the port back.
#[test]
fn the_port_comes_back_if_the_new_process_fails() {
    let place = Place::new();
    let (options, control) = options(&place);
    let old = serve(&place, "127.0.0.1:0", &options, &[]);
    let mut first = client(&place, &old, &old.address);
    let new = serve(&place, &old.address, &options, &[]);
    let mut second = client(&place, &new, &new.address);
    asks(&mut first);
    second.kill().expect("killed");
    second.wait().expect("ended");
    new.running.kill();
    eventually("the control socket is back", || {
        place.run(&["ctl", &control]).status == 0 && clients_at(&place, &control) == 1
    });
    asks(&mut first);
    let mut third = client(&place, &old, &old.address);
    assert_eq!(clients_at(&place, &control), 2);
    // And it can be taken over again.
    let new = serve(&place, &old.address, &options, &[]);
    asks(&mut first);
    asks(&mut third);
    // Whoever ends the new one ends the old one as well.
    new.running.signal(Signal::TERM);
    ends_well(new.running);
    ends_well(old.running);
    for mut child in [first, third] {
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}

/// After the time that was given, those who are left are told to go. They come to the new process.
#[test]
fn the_time_of_clients_after_a_takeover_is_limited() {
    let place = Place::new();
    let (options, _) = options(&place);
    let old = serve(&place, "127.0.0.1:0", &options, &["--drain", "1s"]);
    let mut first = client(&place, &old, &old.address);
    let new = serve(&place, &old.address, &options, &[]);
    let told = ends_well(old.running);
    assert!(told.iter().any(|line| line.contains("--drain")), "{told:?}");
    first.kill().expect("killed");
    first.wait().expect("ended");
    let mut second = client(&place, &new, &new.address);
    asks(&mut second);
    leaves(second);
}

/// Options that do not fit are refused before anything has changed.
#[test]
fn a_port_that_is_not_meant_is_not_taken_over() {
    let place = Place::new();
    let (options, control) = options(&place);
    let old = serve(&place, "127.0.0.1:0", &options, &[]);
    let mut first = client(&place, &old, &old.address);
    let refused = |more: &[&str], says: &[&str]| {
        let mut all = vec!["serve", "--dir", "srv"];
        all.extend(options.iter().map(String::as_str));
        place.run_as("server-home", &[&all[..], more].concat()).failed(1, says);
    };
    refused(&["--listen", &old.address, "--workers", "2"], &["--workers 1, and this one 2"]);
    refused(&["--listen", "127.0.0.1:1"], &[&old.address, "--listen says 127.0.0.1:1"]);
    place.run(&["serve", "--dir", "srv", "--take-over"]).failed(2, &["--control"]);
    asks(&mut first);
    assert_eq!(clients_at(&place, &control), 1);
    leaves(first);
    assert!(place.run(&["ctl", &control]).status == 0, "it serves as before");
}

/// Text that the service manager is told until it has heard this.
fn hear(manager: &UnixDatagram, wanted: &[&str]) -> String {
    loop {
        let mut text = [0; 400];
        let bytes = manager.recv(&mut text).unwrap_or_else(|why| panic!("never {wanted:?}: {why}"));
        let text = String::from_utf8_lossy(&text[..bytes]).into_owned();
        if wanted.iter().all(|wanted| text.contains(wanted)) {
            return text;
        }
    }
}

/// The manager hears that the server is ready, lives, reads its settings again, is another process,
/// and ends.
#[test]
fn a_service_manager_hears_how_the_server_is() {
    let place = Place::new();
    let (options, _) = options(&place);
    let file = place.write("serve.toml", b"dir = 'srv'\n");
    place.write("srv/file", b"content");
    let told = place.path("notify");
    let manager = UnixDatagram::bind(&told).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    let start = |at: &str, watchdog: Option<&str>| {
        let mut args = vec!["serve", "--json", "--listen", at, "--config", &file];
        args.extend(options.iter().map(String::as_str));
        let mut command = place.command("server-home", &args);
        command.env("NOTIFY_SOCKET", &told);
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog);
        }
        Place::served(Place::begin(command))
    };
    let old = start("127.0.0.1:0", Some("300000"));
    hear(&manager, &["READY=1"]);
    hear(&manager, &["WATCHDOG=1"]);
    hear(&manager, &["WATCHDOG=1"]);
    old.running.signal(Signal::HUP);
    hear(&manager, &["RELOADING=1", "MONOTONIC_USEC="]);
    hear(&manager, &["READY=1"]);
    hear(&manager, &["WATCHDOG=1"]);
    // It wants to hear of another process from now on, which was not told how often.
    let new = start(&old.address, None);
    hear(&manager, &[&format!("MAINPID={}", new.running.id()), "READY=1"]);
    ends_well(old.running);
    hear(&manager, &["WATCHDOG=1"]);
    hear(&manager, &["WATCHDOG=1"]);
    new.running.signal(Signal::TERM);
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last: &String| !last.contains("STOPPING=1")) {
        heard.push(hear(&manager, &[]));
    }
    assert_eq!(heard.iter().filter(|text| text.contains("STOPPING=1")).count(), 1, "{heard:?}");
    ends_well(new.running);
}
