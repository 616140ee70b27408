//! Lack of room in `uts tunnel` and `uts pipe`: nobody waits for nothing, people are told in a
//! line, and others go on.

use crate::common::tunnel::{ask, connect, echo, free_port, key_of, serve, try_connect};
use crate::common::{PATIENCE, Place, Running, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{ConnectOptions, FlowOptions, Identity};

/// A tunnel that may have so many files open, and says where its control socket is.
fn start_with_files(place: &Place, server: &Server, files: usize, options: &[&str]) -> Running {
    let mut command = Command::new("/bin/sh");
    command.args([
        "-c",
        &format!("ulimit -n {files}; exec \"$@\""),
        "sh",
        env!("CARGO_BIN_EXE_uts"),
        "tunnel",
    ]);
    command.args(["--pin", &server.fingerprint, &server.address]).args(options);
    Place::begin(place.here(command, "home"))
}

/// A connection that a tunnel carries: it echoes. `None` if it is reset.
fn carried(at: SocketAddr) -> Option<TcpStream> {
    let asked = try_connect(at).and_then(|mut stream| {
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])?;
        Ok(stream)
    });
    match asked {
        Ok(stream) => Some(stream),
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it hangs"),
        Err(_) => None,
    }
}

/// Waits until a port is listened at.
fn wait_for(port: u16) -> SocketAddr {
    let begun = std::time::Instant::now();
    while TcpListener::bind(("127.0.0.1", port)).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "nobody listens at {port}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ([127, 0, 0, 1], port).into()
}

#[test]
fn one_forward_cannot_take_the_room_of_another_and_its_end_is_told() {
    let place = Place::new();
    let service = echo();
    let server = serve(&place, &["--forward", &service.to_string()]);
    let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let forwards: Vec<String> = ports.iter().map(|port| format!("{port}:{service}")).collect();
    let options: Vec<&str> = forwards.iter().take(2).flat_map(|forward| ["-L", forward.as_str()]).collect();
    let socks = ports[2].to_string();
    let running = start_with_files(&place, &server, 100, &[&options[..], &["-D", &socks]].concat());
    let [first, second, third] = [ports[0], ports[1], ports[2]].map(wait_for);
    // Idle ones, many more than there is room for. Those beyond hear it at once.
    let idle: Vec<Option<TcpStream>> = (0..120).map(|_| carried(first)).collect();
    let held = idle.iter().flatten().count();
    assert!((20..100).contains(&held), "{held} are held");
    for _ in 0..3 {
        assert_eq!(ask(connect(second), b"another").expect("carried"), b"another");
    }
    // By SOCKS too, whoever has connected there and says nothing.
    let silent: Vec<TcpStream> = (0..40).filter_map(|_| try_connect(third).ok()).collect();
    assert_eq!(ask(connect(second), b"another").expect("carried"), b"another");
    drop(silent);
    // Room that is free again is given again.
    drop(idle);
    let again = (0..200).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        carried(first)
    });
    assert!(again.is_some(), "there is no room any more");
    running.signal(rustix::process::Signal::TERM);
    let said = running.wait().err;
    let lines = said.lines().filter(|line| line.contains(&first.to_string()) && line.contains("refused"));
    assert_eq!(lines.count(), 1, "it is told once: {said}");
    assert!(said.contains("(ulimit -n)"), "{said}");
}

#[test]
fn a_tunnel_with_few_files_refuses_in_words_and_goes_on() {
    let place = Place::new();
    let service = echo();
    let server = serve(&place, &["--forward", &service.to_string()]);
    let port = free_port();
    let running = start_with_files(&place, &server, 64, &["-L", &format!("{port}:{service}")]);
    let at = wait_for(port);
    let all: Vec<Option<TcpStream>> = (0..100).map(|_| carried(at)).collect();
    let held = all.iter().flatten().count();
    assert!((10..64).contains(&held), "{held} are held");
    drop(all);
    let again = (0..200).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        carried(at)
    });
    assert!(again.is_some(), "accepting does not go on");
    running.signal(rustix::process::Signal::TERM);
    let said = running.wait().err;
    assert!(said.contains("ulimit -n") || said.contains("too many open files"), "{said}");
}

/// As many as `ansible -f 100` opens through one host.
const AT_ONCE: usize = 100;

#[test]
fn a_hundred_pipes_of_one_key_are_there_at_once_and_a_limit_says_its_reason() {
    let place = Place::new();
    let (keys, _) = key_of(&place, "home");
    let service = format!("echo={}", echo());
    let start = |options: &[&str]| {
        let args =
            ["serve", "--json", "--listen", "127.0.0.1:0", "--authorized-keys", &keys, "--pipe", &service];
        Place::served(place.start_as("server-home", &[&args[..], options].concat()))
    };
    let server = start(&[]);
    let key = Identity::load(&place.path("home/config/uts/id_ed25519.pem")).expect("a key");
    let pinned = ConnectOptions::pinned(server.fingerprint.parse().expect("a fingerprint"));
    let mut options = pinned.identity(key);
    options.connection.service = "pipe".into();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut held = Vec::new();
        for n in 0..AT_ONCE {
            let connection = uts::connect(&server.address, options.clone()).await;
            let connection = connection.unwrap_or_else(|error| panic!("{n}: {error}"));
            let (mut send, mut recv) =
                connection.open_flow(FlowOptions::default()).await.expect("opened").split();
            send.write_all(&[&[1, 4][..], b"echo", b"x"].concat()).await.expect("written");
            let mut answer = [9; 3];
            recv.read_exact(&mut answer).await.expect("answered");
            assert_eq!(answer, [0, 0, b'x'], "{n}");
            held.push((connection, send, recv));
        }
        drop(held);
    });
    let few = start(&["--max-per-key", "1"]);
    let (first, second) = ("first", "second");
    let mut running = Vec::new();
    for name in [first, second] {
        let pipe = ["pipe", "--pin", &few.fingerprint, &few.address, "echo"];
        let mut command = place.command("home", &pipe);
        let child = command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        running.push((name, child));
        if name == first {
            let child = &mut running[0].1;
            child.stdin.as_mut().expect("piped").write_all(b"x").expect("written");
            child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("echoed");
        }
    }
    let (_, refused) = running.pop().expect("two");
    let ended = refused.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("1 connections to it, which is the most"), "{said}");
    let (_, mut child) = running.pop().expect("one");
    drop(child.stdin.take());
    assert!(child.wait().expect("ended").success());
}
