//! Ends that are no ends in order: what was said before them arrives, and half is not taken for the
//! whole.

use crate::common::tunnel::{Tunnel, by_socks, connect, free_port, serve};
use crate::common::{PATIENCE, Place};
use rustix::net::sockopt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

/// A service that reads a little, answers, and closes with unread data, so that its system resets
/// the connection.
fn curt(answer_bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let _ = stream.read_exact(&mut [0; 100]);
                let _ = stream.write_all(&vec![b'a'; answer_bytes]);
            });
        }
    });
    address
}

/// Sends so many bytes as far as that is possible, and reads all that comes; how it has ended.
fn tell(mut stream: TcpStream, bytes: usize) -> (usize, std::io::Result<usize>) {
    let _ = stream.write_all(&vec![b'x'; bytes]);
    let mut got = Vec::new();
    let ended = stream.read_to_end(&mut got);
    (got.len(), ended)
}

fn to(address: impl std::fmt::Display) -> String {
    format!("0:{address}")
}

#[test]
fn what_a_service_says_before_it_resets_arrives_by_every_way() {
    let place = Place::new();
    // What it has written is not more than its peer's system takes at once.
    for (answer_bytes, sent_bytes) in [(68, 2000), (68, 1 << 20), (40_000, 2000)] {
        let (service, back) = (curt(answer_bytes), free_port());
        let permits = ["--forward", &service.to_string(), "--listen-forward", &back.to_string()];
        let server = serve(&place, &permits);
        let options = ["-L", &to(service), "-D", "0", "-R", &format!("{back}:{service}")];
        let tunnel = Tunnel::start(&place, "home", &server, &options);
        let (local, socks) = (tunnel.address(0), tunnel.address(1));
        for way in ["-L", "-D", "-R"] {
            for n in 0..20 {
                let stream = match way {
                    "-L" => connect(local),
                    "-D" => by_socks(socks, service),
                    _ => connect(SocketAddr::from(([127, 0, 0, 1], back))),
                };
                let (got, ended) = tell(stream, sent_bytes);
                let case = format!("{way}, {answer_bytes} bytes for {sent_bytes}, {n}");
                assert_eq!(got, answer_bytes, "{case}: {ended:?}");
                assert_eq!(ended.expect_err("a reset").kind(), ErrorKind::ConnectionReset, "{case}");
            }
        }
        tunnel.end();
    }
}

/// The other direction: a client that resets its connection behind its request.
#[test]
fn what_a_client_says_before_it_resets_arrives() {
    const REQUEST_BYTES: usize = 300_000;
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let service = listener.local_addr().expect("an address");
    let server = serve(&place, &["--forward", &service.to_string()]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(service)]);
    for n in 0..20 {
        let mut client = tunnel.connect(0);
        client.write_all(&vec![n; REQUEST_BYTES]).expect("written");
        while uts_tunnel::sockets::unacknowledged_bytes(&client).expect("asked") > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        sockopt::set_socket_linger(&client, Some(Duration::ZERO)).expect("set");
        // Its own end takes the data before the reset, as it is asked to.
        std::thread::sleep(Duration::from_millis(100));
        drop(client);
        let (mut stream, _) = listener.accept().expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut got = Vec::new();
        let error = stream.read_to_end(&mut got).expect_err("a reset");
        assert_eq!((got.len(), error.kind()), (REQUEST_BYTES, ErrorKind::ConnectionReset));
    }
}

/// A client that reads slowly has all of it, and then learns that it is not the whole.
#[test]
fn a_slow_reader_has_all_that_was_said_before_a_reset() {
    const ANSWER_BYTES: usize = 20 << 20;
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let service = listener.local_addr().expect("an address");
    let server = serve(&place, &["--forward", &service.to_string()]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &to(service)]);
    let mut client = tunnel.connect(0);
    client.write_all(&[1; 200]).expect("written");
    let (mut stream, _) = listener.accept().expect("connected");
    let serving = std::thread::spawn(move || {
        stream.read_exact(&mut [0; 100]).expect("read");
        stream.write_all(&vec![7; ANSWER_BYTES]).expect("written");
        while uts_tunnel::sockets::unacknowledged_bytes(&stream).expect("asked") > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (mut got, mut chunk) = (0, vec![0; 1 << 20]);
    let error = loop {
        std::thread::sleep(Duration::from_millis(20));
        match client.read(&mut chunk) {
            Ok(0) => panic!("half of it is no whole"),
            Ok(bytes) => got += bytes,
            Err(error) => break error,
        }
    };
    assert_eq!((got, error.kind()), (ANSWER_BYTES, ErrorKind::ConnectionReset));
    serving.join().expect("served");
}

#[test]
fn what_a_service_says_before_it_resets_comes_out_of_a_pipe() {
    let place = Place::new();
    let service = format!("curt={}", curt(68));
    let args = ["serve", "--json", "--listen", "127.0.0.1:0", "--pipe", &service, "--anyone"];
    let server = Place::served(place.start_as("server-home", &args));
    for _ in 0..20 {
        let args = ["pipe", "--quiet", "--pin", &server.fingerprint, &server.address, "curt"];
        let mut command = place.command("home", &args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(&[b'x'; 2000]).expect("written");
        let ended = child.wait_with_output().expect("ended");
        assert_eq!((ended.stdout.len(), ended.status.code()), (68, Some(1)));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("the service has reset the stream"), "{said}");
    }
}
