//! Reach of the far end of a tunnel, as programs of other people meet it: names with silent
//! addresses, names that nobody answers, addresses that are asked, and reasons that are told.

use crate::common::tunnel::{Tunnel, ask, connect, echo, free_port, sees_a_reset, serve, udp_echo};
use crate::common::{PATIENCE, Place, in_own_namespace};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The host itself, which has to be named by its addresses.
const HERE: [&str; 8] = [
    "--forward",
    "127.0.0.1:*",
    "--forward",
    "[::1]:*",
    "--forward",
    "udp/127.0.0.1:*",
    "--forward",
    "udp/[::1]:*",
];

/// A network in which nobody answers for two addresses, and whose hosts and name server are given.
/// It is that of the whole process, which must have a namespace of its own.
fn silent_network(place: &Place, hosts: &str) {
    let hosts = place.write("hosts", hosts.as_bytes());
    let servers = place.write("resolv.conf", b"nameserver 10.99.0.2\noptions timeout:10 attempts:3\n");
    let names = place.write("nsswitch.conf", b"hosts: files dns\n");
    let script = format!(
        "set -e
        ip link set lo up
        ip link add d0 type veth peer name d1
        ip link set d0 up; ip link set d1 up
        ip addr add 10.99.0.1/24 dev d0
        ip addr add 2001:db8::1/64 dev d0 nodad
        ip neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev d0
        ip -6 neigh add 2001:db8::2 lladdr 02:00:00:00:00:02 dev d0
        mount --bind {hosts} /etc/hosts
        mount --bind {servers} \"$(readlink -f /etc/resolv.conf)\"
        mount --bind {names} /etc/nsswitch.conf"
    );
    let made = Command::new("sh").args(["-c", &script]).output().expect("it runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Takes the files away again: the place is removed.
struct Mounted;

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("sh")
            .args(["-c", "umount /etc/hosts \"$(readlink -f /etc/resolv.conf)\" /etc/nsswitch.conf"])
            .status();
    }
}

const DUAL: &str = "2001:db8::2 dual.test\n127.0.0.1 dual.test localhost\n";

#[test]
fn a_silent_address_makes_no_name_unreachable() {
    if !in_own_namespace("-Urmn", module_path!(), "a_silent_address_makes_no_name_unreachable") {
        return;
    }
    let place = Place::new();
    let (service, udp, back) = (echo(), udp_echo(), free_port());
    silent_network(&place, DUAL);
    let _mounted = Mounted;
    let named = format!("dual.test:{}", service.port());
    let pipe = format!("echo={named}");
    let back_at = back.to_string();
    let permits = ["--forward", "*:*", "--forward", "udp/*:*", "--listen-forward", &back_at, "--pipe", &pipe];
    let server = serve(&place, &[&permits[..], &HERE].concat());
    let remote = format!("{back}:{named}");
    let (local, datagrams) = (format!("0:{named}"), format!("udp/0:dual.test:{}", udp.port()));
    let options = ["-L", &local, "-L", &datagrams, "-R", &remote];
    let tunnel = Tunnel::start(&place, "home", &server, &options);
    // The server connects, and the client.
    assert_eq!(ask(tunnel.connect(0), b"there").expect("carried"), b"there");
    let there = SocketAddr::from(([127, 0, 0, 1], back));
    assert_eq!(ask(connect(there), b"and back").expect("carried"), b"and back");
    // Datagrams get there as soon as the program asks again.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.connect(tunnel.address(1)).expect("connected");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
    let mut answers = (0..10).filter(|_| {
        socket.send(b"x").expect("sent");
        socket.recv(&mut [0; 9]).is_ok()
    });
    assert!(answers.next().is_some() && answers.next().is_some(), "silence");
    // So does the server of a pipe.
    let asked = place.write("asked", b"by a pipe");
    let mut command = place.command("home", &["pipe", "--pin", &server.fingerprint, &server.address, "echo"]);
    let ended = command.stdin(std::fs::File::open(asked).expect("opened")).output().expect("it runs");
    assert_eq!(ended.stdout, b"by a pipe", "{}", String::from_utf8_lossy(&ended.stderr));
}

/// A request for a name (RFC 1928 section 4), behind the greeting.
fn socks_request(name: &str, port: u16) -> Vec<u8> {
    [&[5, 1, 0, 5, 1, 0, 3, name.len() as u8][..], name.as_bytes(), &port.to_be_bytes()].concat()
}

#[test]
fn names_that_nobody_answers_hold_up_no_addresses() {
    if !in_own_namespace("-Urmn", module_path!(), "names_that_nobody_answers_hold_up_no_addresses") {
        return;
    }
    let place = Place::new();
    let service = echo();
    silent_network(&place, DUAL);
    let _mounted = Mounted;
    let server = serve(&place, &[&["--forward", "*:*"][..], &HERE].concat());
    let options =
        ["-L", &format!("0:{service}"), "-L", &format!("0:dual.test:{}", service.port()), "-D", "0"];
    let tunnel = Tunnel::start(&place, "home", &server, &options);
    // Of the threads of a server, one connection may have half.
    let waiting: Vec<TcpStream> = (0..12)
        .map(|n| {
            let mut program = tunnel.connect(2);
            program.write_all(&socks_request(&format!("slow{n}.example.com"), 80)).expect("written");
            program.read_exact(&mut [0; 2]).expect("greeted");
            program
        })
        .collect();
    assert_eq!(ask(tunnel.connect(0), b"an address").expect("carried"), b"an address");
    // Nor other names, as long as there are not too many of them.
    assert_eq!(ask(tunnel.connect(1), b"a name").expect("carried"), b"a name");
    for program in &waiting {
        program.set_nonblocking(true).expect("set");
        let waits = (&*program).read(&mut [0]).expect_err("no answer yet").kind() == ErrorKind::WouldBlock;
        assert!(waits, "the names were given up before");
    }
}

#[test]
fn datagrams_are_answered_from_the_address_that_they_were_sent_to() {
    let place = Place::new();
    let (service, back) = (udp_echo(), free_port());
    let permits = ["--forward", &format!("udp/{service}"), "--listen-forward", &format!("udp/*:{back}")];
    let server = serve(&place, &permits);
    let (all, all_v4) = (format!("udp/*:0:{service}"), format!("udp/0.0.0.0:0:{service}"));
    let remote = format!("udp/*:{back}:{service}");
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &all, "-L", &all_v4, "-R", &remote]);
    let ports = [tunnel.address(0).port(), tunnel.address(1).port(), back];
    for port in ports {
        for host in ["127.0.0.1", "127.0.0.3"] {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
            socket.connect((host, port)).expect("connected");
            socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
            let heard = (0..10).any(|_| {
                socket.send(b"x").expect("sent");
                socket.recv(&mut [0; 9]).is_ok()
            });
            assert!(heard, "{host}:{port} is not heard");
        }
    }
    tunnel.end();
}

/// A name leads to two families, and its service is there for one.
#[test]
fn datagrams_reach_a_name_whose_first_address_has_no_such_service() {
    if !in_own_namespace(
        "-Urmn",
        module_path!(),
        "datagrams_reach_a_name_whose_first_address_has_no_such_service",
    ) {
        return;
    }
    let place = Place::new();
    let service = udp_echo();
    silent_network(&place, "::1 both.test\n127.0.0.1 both.test localhost\n");
    let _mounted = Mounted;
    let server = serve(&place, &[&["--forward", "udp/*:*"][..], &HERE].concat());
    let forward = format!("udp/0:both.test:{}", service.port());
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &forward]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.connect(tunnel.address(0)).expect("connected");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
    let heard = (0..10).any(|_| {
        socket.send(b"x").expect("sent");
        socket.recv(&mut [0; 9]).is_ok()
    });
    assert!(heard, "silence");
}

/// The reply to a SOCKS request, behind the greeting.
fn reply(proxy: SocketAddr, request: &[u8]) -> u8 {
    let mut program = connect(proxy);
    program.write_all(request).expect("written");
    let mut answer = [0; 4];
    program.read_exact(&mut answer).expect("answered");
    assert_eq!(answer[..3], [5, 0, 5]);
    answer[3]
}

#[test]
fn socks_says_of_which_kind_a_failure_is() {
    if !in_own_namespace("-Urmn", module_path!(), "socks_says_of_which_kind_a_failure_is") {
        return;
    }
    let place = Place::new();
    silent_network(&place, "127.0.0.1 here.test\n");
    let _mounted = Mounted;
    std::fs::write(place.path("nsswitch.conf"), "hosts: files\n").expect("written");
    let (service, closed) = (echo(), free_port());
    let permits = ["here.test:*", "127.0.0.1:*", "gone.test:*", "203.0.113.1:*"];
    let permits: Vec<&str> = permits.iter().flat_map(|permit| ["--forward", *permit]).collect();
    let server = serve(&place, &permits);
    let tunnel = Tunnel::start(&place, "home", &server, &["-D", "0"]);
    let proxy = tunnel.address(0);
    let by_address = |command: u8, address: [u8; 4], port: u16| {
        [&[5, 1, 0, 5, command, 0, 1][..], &address, &port.to_be_bytes()].concat()
    };
    for (request, code, what) in [
        (by_address(1, [127, 0, 0, 1], service.port()), 0, "there"),
        (socks_request("here.test", service.port()), 0, "there by name"),
        (by_address(1, [127, 0, 0, 1], closed), 5, "a closed port"),
        (socks_request("here.test", closed), 5, "a closed port by name"),
        (by_address(1, [127, 0, 0, 9], 80), 2, "not permitted"),
        (socks_request("gone.test", 80), 4, "no such host"),
        (by_address(1, [203, 0, 113, 1], 80), 3, "no way there"),
        (by_address(2, [127, 0, 0, 1], 80), 7, "BIND"),
        (by_address(9, [127, 0, 0, 1], 80), 7, "no command"),
        (vec![5, 1, 0, 5, 1, 0, 9, 1, 2, 3, 4, 0, 80], 8, "no kind of address"),
    ] {
        assert_eq!(reply(proxy, &request), code, "{what}");
    }
    // curl says 7 and 97 for what it cannot connect, and tells the reply.
    let closed = format!("http://127.0.0.1:{closed}/");
    let curl = Command::new("curl")
        .args(["-sS", "--max-time", "60", "--socks5", &proxy.to_string(), &closed])
        .stdin(Stdio::null())
        .output();
    match curl {
        Ok(said) => {
            let said = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(said.contains("(5)") || said.contains("refused"), "{said}");
        }
        Err(_) => println!("skipped: curl is not installed (Debian: apt install curl); see make doctor"),
    }
}

/// Many programs name in UDP ASSOCIATE the place that they will send to.
#[test]
fn a_program_that_names_its_goal_in_an_association_is_served() {
    let place = Place::new();
    let service = udp_echo();
    let server = serve(&place, &["--forward", &format!("udp/{service}")]);
    let tunnel = Tunnel::start(&place, "home", &server, &["-D", "*:0"]);
    let proxy = SocketAddr::from(([127, 0, 0, 1], tunnel.address(0).port()));
    let port = service.port().to_be_bytes();
    let goal = [&[127, 0, 0, 1][..], &port].concat();
    let own = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let own_port = own.local_addr().expect("an address").port().to_be_bytes();
    // By address, by name, of another family; nothing; what is so.
    for named in [
        [&[1][..], &goal].concat(),
        [&[3, 9][..], b"localhost", &port].concat(),
        [&[4][..], &[0; 15], &[1], &port].concat(),
        [&[1, 192, 0, 2, 1][..], &port].concat(),
        vec![1, 0, 0, 0, 0, 0, 0],
        [&[1, 127, 0, 0, 1][..], &own_port].concat(),
    ] {
        let mut held = connect(proxy);
        held.write_all(&[&[5, 1, 0, 5, 3, 0][..], &named].concat()).expect("written");
        let mut answer = [0; 12];
        held.read_exact(&mut answer).expect("answered");
        // Of the family by which the program has come, though the socket is of both.
        assert_eq!(answer[..10], [5, 0, 5, 0, 0, 1, 127, 0, 0, 1], "{named:?}");
        let relay = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([answer[10], answer[11]])));
        own.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
        let datagram = [&[0, 0, 0, 1][..], &goal, b"question"].concat();
        let mut back = [0; 100];
        let answered = (0..10).find_map(|_| {
            own.send_to(&datagram, relay).expect("sent");
            own.recv_from(&mut back).ok().filter(|(_, from)| *from == relay)
        });
        let (bytes, _) = answered.unwrap_or_else(|| panic!("{named:?}: silence"));
        assert_eq!(back[..bytes], datagram);
    }
    tunnel.end();
}

/// A service that is not there at first.
#[test]
fn a_refusal_of_the_far_end_resets_and_is_told_in_the_words_of_the_system() {
    let place = Place::new();
    let down = free_port();
    let server = serve(&place, &HERE);
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &format!("0:127.0.0.1:{down}")]);
    sees_a_reset(tunnel.address(0));
    let listener = TcpListener::bind(("127.0.0.1", down)).expect("bound");
    let mut stream = tunnel.connect(0);
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let (mut far, _) = listener.accept().expect("connected");
    far.write_all(b"up").expect("written");
    stream.read_exact(&mut [0; 2]).expect("read");
    let said = tunnel.end();
    assert!(said.contains(&format!("127.0.0.1:{down} does not answer: connection refused")), "{said}");
}
