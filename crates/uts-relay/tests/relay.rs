//! The relay with real sockets on loopback. Limits are generous: the machine may be busy.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the laboratory faces the world: real sockets, real time"
)]

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use uts_path::{PathConfig, Target};
use uts_relay::{Relay, RelayConfig, RelayError, RelayEvent, RelayHandle, default_link};

/// Longest wait for a datagram, or for counters to rise.
const PATIENCE: Duration = Duration::from_secs(20);

/// An address that sends back all it gets, until this is dropped.
struct Echo {
    addr: SocketAddr,
}

impl Echo {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                if &buffer[..len] == b"end" {
                    break;
                }
                socket.send_to(&buffer[..len], from).unwrap();
            }
        });
        Echo { addr }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"end", self.addr).unwrap();
    }
}

fn config(to: SocketAddr, settings: &str) -> RelayConfig {
    let mut config = RelayConfig::new(to);
    if !settings.is_empty() {
        config.path = PathConfig::both(default_link().with(&settings.parse().unwrap()).unwrap());
    }
    config
}

fn client(relay: &RelayHandle) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(relay.local_addr()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 65_536];
    let len = socket.recv(&mut buffer).unwrap();
    buffer[..len].to_vec()
}

/// Waits until the relay's counters satisfy `done`.
fn until(relay: &RelayHandle, done: impl Fn(&uts_relay::RelayStats) -> bool) -> uts_relay::RelayStats {
    let start = Instant::now();
    loop {
        let stats = relay.stats().unwrap();
        if done(&stats) {
            return stats;
        }
        assert!(start.elapsed() < PATIENCE, "{stats:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn datagrams_go_there_and_back() {
    let echo = Echo::start();
    let relay = Relay::start(config(echo.addr, "")).unwrap();
    let socket = client(&relay);
    for len in [0, 1, 1200, 1472, 9000, 65_000] {
        let datagram: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        socket.send(&datagram).unwrap();
        assert_eq!(receive(&socket), datagram);
    }
    let stats = relay.stop().unwrap();
    assert_eq!((stats.forward.delivered, stats.backward.delivered), (6, 6));
    assert_eq!((stats.clients, stats.refused, stats.send_failures), (1, 0, 0));
}

#[test]
fn the_delay_is_at_least_the_paths() {
    let echo = Echo::start();
    // 1222 + 28 bytes at 1 Mbit/s: 10 ms each way, and 2 x 30 ms.
    let relay = Relay::start(config(echo.addr, "rate=1mbit delay=30ms")).unwrap();
    let socket = client(&relay);
    let start = Instant::now();
    socket.send(&[7; 1222]).unwrap();
    receive(&socket);
    assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
}

#[test]
fn loss_is_about_what_was_asked() {
    let echo = Echo::start();
    let mut settings = config(echo.addr, "");
    settings.path.forward.loss = uts_path::Loss::GilbertElliott { loss: 0.2, burst: 2.0 };
    let relay = Relay::start(settings).unwrap();
    let socket = client(&relay);
    for sent in 1..=2000u64 {
        socket.send(&[1; 100]).unwrap();
        if sent.is_multiple_of(100) {
            // The echo's socket holds only so much: let it answer.
            until(&relay, |s| s.forward.dropped_loss + s.backward.delivered == sent);
        }
    }
    let stats = relay.stop().unwrap();
    // Six deviations of the mean of 2000 with bursts of 2.
    assert!((280..520).contains(&stats.forward.dropped_loss), "{stats:?}");
    assert_eq!(stats.forward.delivered + stats.forward.dropped_loss, 2000);
}

#[test]
fn clients_share_the_path_and_get_their_own_answers() {
    let echo = Echo::start();
    let relay = Relay::start(config(echo.addr, "rate=10mbit delay=5ms")).unwrap();
    let (first, second) = (client(&relay), client(&relay));
    for round in 0..20u8 {
        first.send(&[1, round]).unwrap();
        second.send(&[2, round]).unwrap();
        assert_eq!(receive(&first), [1, round]);
        assert_eq!(receive(&second), [2, round]);
    }
    let mut joined: Vec<SocketAddr> = relay
        .events()
        .try_iter()
        .map(|e| if let RelayEvent::Joined { client, .. } = e { client } else { panic!("{e:?}") })
        .collect();
    let mut wanted = vec![first.local_addr().unwrap(), second.local_addr().unwrap()];
    joined.sort();
    wanted.sort();
    assert_eq!(joined, wanted);
    assert_eq!(relay.stop().unwrap().forward.delivered, 40);
}

#[test]
fn the_number_of_clients_is_bounded_and_the_idle_make_room() {
    let echo = Echo::start();
    let mut settings = config(echo.addr, "");
    settings.max_clients = 1;
    settings.idle_timeout = Duration::from_millis(500);
    let relay = Relay::start(settings).unwrap();
    let (first, second) = (client(&relay), client(&relay));
    first.send(b"in").unwrap();
    assert_eq!(receive(&first), b"in");
    until(&relay, |s| {
        // The first is kept from idling while the second tries.
        first.send(b"still in").unwrap();
        second.send(b"out").unwrap();
        s.refused > 0 && s.clients == 1
    });
    until(&relay, |s| s.clients == 0);
    second.send(b"now").unwrap();
    while receive(&second) != b"now" {}
}

#[test]
fn strangers_cannot_answer_for_the_server() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let relay = Relay::start(config(server.local_addr().unwrap(), "")).unwrap();
    let socket = client(&relay);
    socket.send(b"question").unwrap();
    let (_, upstream) = server.recv_from(&mut [0; 16]).unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"forged", upstream).unwrap();
    server.send_to(b"answer", upstream).unwrap();
    assert_eq!(receive(&socket), b"answer");
    assert_eq!(relay.stop().unwrap().backward.packets_in, 1);
}

#[test]
fn the_path_can_be_changed_in_flight_and_by_schedule() {
    let echo = Echo::start();
    let mut settings = config(echo.addr, "");
    settings.path.schedule = "at=1kB fwd down; at=3kB both mtu=100".parse().unwrap();
    let relay = Relay::start(settings).unwrap();
    let socket = client(&relay);
    socket.send(&[0; 1000]).unwrap(); // passes, and brings about the first change
    receive(&socket);
    socket.send(&[1; 1]).unwrap();
    until(&relay, |s| s.forward.dropped_outage == 1);
    relay.set(Target::Both, "up delay=1ms".parse().unwrap()).unwrap();
    socket.send(&[2; 1999]).unwrap();
    until(&relay, |s| s.forward.bytes_entered == 3000);
    socket.send(&[3; 101]).unwrap();
    until(&relay, |s| s.forward.dropped_mtu == 1);
    let told: Vec<String> = relay
        .events()
        .try_iter()
        .filter_map(|e| match e {
            RelayEvent::Changed { target, change, .. } => Some(format!("{} {change}", target.keyword())),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["fwd down", "both up delay=1ms", "both mtu=100"]);
}

#[test]
fn the_record_has_samples_and_changes() {
    let echo = Echo::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.csv");
    let mut settings = config(echo.addr, "rate=10mbit");
    settings.record = Some(file.clone());
    settings.path.schedule = "at=20ms fwd loss=ge:0.05,4 rate=inf".parse().unwrap();
    let relay = Relay::start(settings).unwrap();
    let socket = client(&relay);
    while relay.stats().unwrap().elapsed_s < 0.1 {
        socket.send(&[0; 500]).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    relay.stop().unwrap();
    let samples = std::fs::read_to_string(&file).unwrap();
    let rows: Vec<Vec<&str>> = samples.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows[0].len(), 10);
    assert_eq!(rows[0][..3], ["t_s", "dir", "queue_packets"]);
    assert!(rows.len() >= 5 && rows.iter().all(|r| r.len() == 10), "{samples}");
    assert_eq!((rows[1][1], rows[1][9]), ("fwd", "10000000"));
    assert_eq!((rows[2][1], rows[2][9]), ("bwd", "10000000"));
    let last_forward = rows.iter().rfind(|r| r[1] == "fwd").unwrap();
    assert_eq!(last_forward[9], "");
    assert!(last_forward[4].parse::<u64>().unwrap() > 0);
    let changes = std::fs::read_to_string(dir.path().join("run.csv.changes.csv")).unwrap();
    assert_eq!(changes, "t_s,dir,change\n0.0200,fwd,\"loss=ge:0.05,4 rate=inf\"\n");
}

#[test]
fn what_cannot_start_says_why() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let mut settings = config(addr, "");
    settings.listen = addr;
    let error = Relay::start(settings).unwrap_err();
    assert!(matches!(error, RelayError::Listen { .. }));
    assert!(error.to_string().starts_with(&format!("cannot listen on {addr}: ")), "{error}");

    let mut settings = config(addr, "");
    settings.path.forward.duplicate = 2.0;
    let error = Relay::start(settings).unwrap_err().to_string();
    assert_eq!(error, "forward duplicate: probability must be between 0 and 1");

    let mut settings = config(addr, "");
    settings.record = Some("/nowhere/at/all.csv".into());
    let error = Relay::start(settings).unwrap_err().to_string();
    assert!(error.starts_with("cannot write /nowhere/at/all.csv: "), "{error}");
}

#[test]
fn a_dropped_relay_frees_its_port() {
    let relay = Relay::start(config("127.0.0.1:9".parse().unwrap(), "")).unwrap();
    let addr = relay.local_addr();
    assert!(UdpSocket::bind(addr).is_err());
    drop(relay);
    UdpSocket::bind(addr).unwrap();
}

#[test]
fn a_trace_is_read_from_its_file() {
    let echo = Echo::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let settings = format!("rate=trace:{}", file.display());
    let unread = Relay::start(config(echo.addr, &settings)).map(|_| ()).unwrap_err().to_string();
    assert!(unread.starts_with(&format!("{settings}: cannot read it: ")), "{unread}");
    std::fs::write(&file, "10\n").unwrap();
    let relay = Relay::start(config(echo.addr, &settings)).unwrap();
    let client = client(&relay);
    client.send(b"by trace").unwrap();
    assert_eq!(receive(&client), b"by trace");
    std::fs::write(&file, "x\n").unwrap();
    let wrong = relay.set(Target::Both, settings.parse().unwrap()).unwrap_err().to_string();
    assert!(wrong.starts_with(&format!("{settings}: line 1: ")), "{wrong}");
    std::fs::write(&file, "20\n").unwrap();
    relay.set(Target::Both, settings.parse().unwrap()).unwrap();
    client.send(b"by another").unwrap();
    assert_eq!(receive(&client), b"by another");
    relay.stop().unwrap();
}
