//! The first try to connect and later ones: the same patience, and the same end of it.

use crate::common::tunnel::{Tunnel, ask, connect, echo, free_port, key_of, serve, serve_at, try_connect};
use crate::common::{PATIENCE, Place, Running, in_own_namespace};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

/// Waits until a port is listened at.
fn wait_for(port: u16) -> SocketAddr {
    let begun = Instant::now();
    while TcpListener::bind(("127.0.0.1", port)).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "nobody listens at {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
    ([127, 0, 0, 1], port).into()
}

/// Ends a tunnel; what it has told.
fn end(running: Running) -> String {
    running.signal(rustix::process::Signal::TERM);
    let ended = running.wait();
    assert_eq!(ended.status, 130, "{}", ended.err);
    ended.err
}

#[test]
fn a_tunnel_that_is_there_before_its_server_waits_for_it() {
    let place = Place::new();
    let service = echo();
    let permits = ["--forward", &service.to_string()];
    let server = serve(&place, &permits);
    let (address, pin) = (server.address.clone(), server.fingerprint.clone());
    server.running.kill();
    let port = free_port();
    let forward = format!("{port}:{service}");
    let running = place.start(&["tunnel", "--pin", &pin, "-L", &forward, &address]);
    let at = wait_for(port);
    let waiting = std::thread::spawn(move || ask(connect(at), b"patience"));
    // Longer than until a closed port is believed: it has been tried once at least.
    std::thread::sleep(Duration::from_secs(2));
    let _server = serve_at(&place, &address, &permits);
    assert_eq!(waiting.join().expect("asked").expect("carried"), b"patience");
    let said = end(running);
    assert_eq!(said.matches("not connected: nobody answers").count(), 1, "{said}");
    assert!(said.contains(&format!("{address}: connected")), "{said}");
}

#[test]
fn patience_ends_the_first_try_too() {
    let place = Place::new();
    key_of(&place, "home");
    // It takes what is sent to it, and is silent.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = silent.local_addr().expect("an address").to_string();
    let pin = place.run(&["keygen", "other"]).ok().out.remove(0);
    let forward = format!("{}:127.0.0.1:1", free_port());
    let file = place.write("file", b"x");
    let (closed, url) = (format!("127.0.0.1:{}", free_port()), format!("uts://{address}/file"));
    let tunnel =
        |to: &str, retry: &str| place.run(&["tunnel", "--pin", &pin, "-L", &forward, "--retry", retry, to]);
    tunnel(&address, "1s").failed(1, &["given up after 1 s: no answer"]);
    tunnel(&closed, "4s").failed(1, &["given up after 4 s: nobody answers"]);
    tunnel("nowhere.invalid", "1s").failed(1, &["given up after 1 s: no such host"]);
    place.run(&["cp", "--pin", &pin, "--retry", "1s", &file, &url]).failed(1, &["given up after 1 s"]);
    // What no other try mends.
    let server = serve(&place, &["--forward", "127.0.0.1:1"]);
    tunnel(&server.address, "1min").failed(1, &["pinned"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address");
    let _held = TcpListener::bind(taken).expect("bound");
    let forward = format!("{}:127.0.0.1:1", taken.port());
    place.run(&["tunnel", "--pin", &pin, "-L", &forward, &closed]).failed(1, &["cannot listen at"]);
    let forbidden = format!("{}:127.0.0.1:1", free_port());
    let args = ["tunnel", "--pin", &server.fingerprint, "-R", &forbidden, &server.address];
    place.run(&args).failed(1, &["not permitted"]);
    // A copy to a name that was mistyped ends at once, unless it is asked to wait.
    place.run(&["cp", "--pin", &pin, &file, "uts://nowhere.invalid/"]).failed(1, &["no such host"]);
}

#[test]
fn a_name_that_is_made_known_or_changed_later_is_found() {
    if !in_own_namespace("-Urmn", module_path!(), "a_name_that_is_made_known_or_changed_later_is_found") {
        return;
    }
    let place = Place::new();
    let hosts = place.write("hosts", b"127.0.0.1 localhost\n");
    let names = place.write("nsswitch.conf", b"hosts: files\n");
    let script = format!(
        "ip link set lo up; mount --bind {hosts} /etc/hosts; mount --bind {names} /etc/nsswitch.conf"
    );
    assert!(Command::new("sh").args(["-c", &script]).status().expect("it runs").success());
    let service = echo();
    let permits = ["--forward", &service.to_string()];
    let first = serve(&place, &permits);
    let address = |host: &str| format!("{host}:{}", first.address.rsplit_once(':').expect("a port").1);
    let port = free_port();
    let forward = format!("{port}:{service}");
    let to = address("my.srv");
    let running = place.start(&["tunnel", "--pin", &first.fingerprint, "-L", &forward, &to]);
    let at = wait_for(port);
    std::thread::sleep(Duration::from_secs(1));
    std::fs::write(&hosts, "127.0.0.1 localhost my.srv\n").expect("written");
    assert_eq!(ask(connect(at), b"there").expect("carried"), b"there");
    // It moves to another place.
    let moved = address("127.0.0.2");
    std::fs::write(&hosts, "127.0.0.1 localhost\n127.0.0.2 my.srv\n").expect("written");
    first.running.signal(rustix::process::Signal::TERM);
    first.running.wait();
    let _second = serve_at(&place, &moved, &permits);
    let again = (0..20).any(|_| {
        let back = try_connect(at).and_then(|stream| ask(stream, b"again"));
        back.is_ok_and(|back| back == b"again")
    });
    assert!(again, "it is not found again");
    let said = end(running);
    assert!(said.contains("not connected: no such host: my.srv"), "{said}");
    let _ = Command::new("umount").args(["/etc/hosts", "/etc/nsswitch.conf"]).status();
}

/// `Tunnel::start` of other tests waits for the first connection.
#[test]
fn a_tunnel_without_patience_has_one_try() {
    let place = Place::new();
    let service = echo();
    let server = serve(&place, &["--forward", &service.to_string()]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &format!("0:{service}"), "--retry", "0"]);
    assert_eq!(ask(tunnel.connect(0), b"hello").expect("carried"), b"hello");
    server.running.kill();
    let args =
        ["tunnel", "--pin", &server.fingerprint, "-L", "0:127.0.0.1:1", "--retry", "0", &server.address];
    place.run(&args).failed(1, &["nobody answers"]);
}
