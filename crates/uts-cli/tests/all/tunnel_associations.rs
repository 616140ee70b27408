//! UDP ASSOCIATE through `uts tunnel -D` (RFC 1928 section 7), as programs of other people use it.

use crate::common::tunnel::{Tunnel, connect, serve, udp_echo};
use crate::common::{PATIENCE, Place};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// A program's association: what holds it, and where its datagrams go.
struct Association {
    held: TcpStream,
    relay: SocketAddr,
}

impl Association {
    /// Asks a proxy for one, for datagrams from `port`, or any (0).
    fn ask(proxy: SocketAddr, port: u16) -> Self {
        let mut held = connect(proxy);
        held.write_all(&[5, 1, 0]).expect("written");
        let [high, low] = port.to_be_bytes();
        held.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, high, low]).expect("written");
        let mut answer = [0; 12];
        held.read_exact(&mut answer).expect("answered");
        assert_eq!(answer[..10], [5, 0, 5, 0, 0, 1, 127, 0, 0, 1], "granted, at the address of the proxy");
        let relay = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([answer[10], answer[11]])));
        Association { held, relay }
    }
}

/// The header of a datagram to an address, and of one that came from there.
fn head(to: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(to) = to else { panic!("{to} is of IPv6") };
    [&[0, 0, 0, 1][..], &to.ip().octets(), &to.port().to_be_bytes()].concat()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
    socket
}

/// Sends a datagram, and again if nothing comes back, as programs that use UDP do.
fn exchange(socket: &UdpSocket, relay: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
    let mut back = vec![0; 1 << 16];
    (0..10).find_map(|_| {
        socket.send_to(datagram, relay).expect("sent");
        let (bytes, from) = socket.recv_from(&mut back).ok()?;
        assert_eq!(from, relay);
        Some(back[..bytes].to_vec())
    })
}

/// A name server that answers anything by `192.0.2.1`.
fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = socket.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((bytes, from)) = socket.recv_from(&mut query) {
            let answer =
                [&query[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], &query[12..bytes], &[192, 0, 2, 1]];
            let _ = socket.send_to(&answer.concat(), from);
        }
    });
    address
}

#[test]
fn datagrams_of_a_program_go_where_each_says_and_answers_say_from_where() {
    let place = Place::new();
    let (echo, names) = (udp_echo(), name_server());
    let server = serve(&place, &["--forward", &format!("udp/{echo}"), "--forward", &format!("udp/{names}")]);
    let mut tunnel = Tunnel::start(&place, "home", &server, &["-D", "0"]);
    let association = Association::ask(tunnel.address(0), 0);
    let program = socket();
    // Boundaries are kept, of datagrams that are empty too.
    for bytes in [100, 1, 0, 1472, 9000, 60_000] {
        let datagram = [head(echo), vec![bytes as u8; bytes]].concat();
        // What is still under way of one that was sent again is not the answer to the next.
        let deadline = Instant::now() + PATIENCE;
        while exchange(&program, association.relay, &datagram).as_ref() != Some(&datagram) {
            assert!(Instant::now() < deadline, "{bytes} bytes");
        }
    }
    // A resolver's query (RFC 1035 section 4.1), to a place that is named.
    let query = [&[7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 6][..], b"tunnel", &[7], b"example", &[0, 0, 1, 0, 1]];
    let by_name = [&[0, 0, 0, 3, 9][..], b"localhost", &names.port().to_be_bytes()].concat();
    let second = Association::ask(tunnel.address(0), 0);
    let resolver = socket();
    let answer =
        exchange(&resolver, second.relay, &[&by_name[..], &query.concat()].concat()).expect("answered");
    assert!(answer.starts_with(&by_name) && answer.ends_with(&[192, 0, 2, 1]), "{answer:?}");
    let list = tunnel.list();
    let leads: Vec<&str> = list["carried"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|c| c["to"].as_str().expect("a place"))
        .collect();
    assert_eq!(leads, [format!("udp/{echo}"), format!("udp/localhost:{}", names.port())]);
    // An association ends with the connection that holds it, and no other does.
    drop(association.held);
    tunnel
        .list_where("without the first", |list| list["carried"].as_array().is_some_and(|all| all.len() == 1));
    exchange(&resolver, second.relay, &[&by_name[..], &query.concat()].concat()).expect("answered");
    program.connect(association.relay).expect("connected");
    let gone = (0..100)
        .any(|_| program.send(&head(echo)).is_err() || program.recv(&mut [0; 99]).is_err_and(refused));
    assert!(gone, "the port is open still");
    drop(second.held);
    tunnel.list_where("empty", |list| list["carried"].as_array().is_some_and(Vec::is_empty));
    tunnel.end();
}

fn refused(error: std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ConnectionRefused
}

#[test]
fn what_is_not_for_the_server_or_not_from_the_program_is_dropped_and_told() {
    let place = Place::new();
    let echo = udp_echo();
    let server = serve(&place, &["--forward", &format!("udp/{echo}")]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-D", "0"]);
    let program = socket();
    let own_port = program.local_addr().expect("an address").port();
    let association = Association::ask(tunnel.address(0), own_port);
    // Once the program has sent from the port that it has named, no other port is heard.
    let datagram = [&head(echo)[..], b"mine"].concat();
    assert_eq!(exchange(&program, association.relay, &datagram).expect("carried"), datagram);
    let stranger = socket();
    stranger.send_to(&datagram, association.relay).expect("sent");
    let forbidden: SocketAddr = "127.0.0.1:9".parse().expect("an address");
    let fragment = [&[0, 0, 1][..], &head(echo)[3..], b"half"].concat();
    for datagram in [
        &b""[..],
        &[0],
        &[0, 0, 0, 1, 127, 0, 0],
        &[1, 1, 0, 1, 127, 0, 0, 1, 0, 80],
        &[0, 0, 0, 9, 1, 2, 3, 4],
        &[0, 0, 0, 3, 255, b'a'],
        &[0, 0, 0, 1, 127, 0, 0, 1, 0, 0],
        &[0xff; 3000],
        &fragment,
        &[&head(forbidden)[..], b"x"].concat(),
    ] {
        program.send_to(datagram, association.relay).expect("sent");
    }
    let datagram = [&head(echo)[..], b"still here"].concat();
    assert_eq!(exchange(&program, association.relay, &datagram).expect("carried"), datagram);
    stranger.set_read_timeout(Some(Duration::from_millis(1))).expect("set");
    assert!(stranger.recv(&mut [0; 99]).is_err(), "another program has an answer");
    // More places than are remembered: the quietest makes room, and the latest are there.
    for port in 20_000..20_200_u16 {
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        program.send_to(&[&head(to)[..], b"x"].concat(), association.relay).expect("sent");
    }
    assert_eq!(exchange(&program, association.relay, &datagram).expect("carried"), datagram);
    assert!(tunnel.list()["carried"].as_array().expect("a list").len() <= 128, "they are bounded");
    let said = tunnel.end();
    for part in [
        "without a header of SOCKS5",
        "fragments",
        "no place",
        "udp/127.0.0.1:9 is not permitted by the server",
    ] {
        assert!(said.contains(part), "`{part}`: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}
