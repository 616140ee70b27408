//! `uts group`: what one program sends by multicast arrives at all members, in a network of their
//! own.

use crate::common::far::sh;
use crate::common::tunnel::free_port;
use crate::common::{PATIENCE, Place, in_own_namespace};
use rustix::process::Signal;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Members.
const MEMBERS: usize = 3;

/// Datagrams that each takes.
const COUNT: usize = 300;

/// A player: it takes datagrams until it has enough. Returns their numbers.
fn player(socket: &UdpSocket, has: &AtomicUsize) -> Vec<u32> {
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let (mut numbers, mut datagram) = (Vec::new(), [0; 2000]);
    while numbers.len() < COUNT {
        let bytes = socket.recv(&mut datagram).expect("a datagram in time");
        assert_eq!(bytes, 1316);
        numbers.push(u32::from_be_bytes([datagram[4], datagram[5], datagram[6], datagram[7]]));
        has.fetch_add(1, Relaxed);
    }
    numbers
}

#[test]
fn what_is_sent_to_a_group_arrives_at_all_members() {
    if !in_own_namespace("-Urmn", module_path!(), "what_is_sent_to_a_group_arrives_at_all_members") {
        return;
    }
    sh("ip link set lo up multicast on; ip route add 239.0.0.0/8 dev lo");
    let place = Place::new();
    let key = place.path("key").display().to_string();
    let made = place.run(&["keygen", &key]);
    let pin = made.out.iter().find_map(|line| line.find("SHA256:").map(|at| line[at..].trim().to_owned()));
    let pin = pin.unwrap_or_else(|| panic!("no fingerprint: {:?} {}", made.out, made.err));
    let (from, host) = (free_port(), format!("127.0.0.1:{}", free_port()));
    let place_of_camera = format!("udp://127.0.0.1:{from}");
    let send =
        ["group", "send", &place_of_camera, "239.1.2.3:5004", "--anyone", "--key", &key, "--listen", &host];
    let sender = place.start(&send);
    let (mut members, mut players) = (Vec::new(), Vec::new());
    for number in 0..MEMBERS {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let to = format!("udp://{}", socket.local_addr().expect("an address"));
        let has = Arc::new(AtomicUsize::new(0));
        let counted = has.clone();
        players.push((has, spawn(move || player(&socket, &counted))));
        members
            .push(place.start_as(&format!("member-{number}"), &["group", "recv", "--pin", &pin, &host, &to]));
    }
    let camera = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let begun = Instant::now();
    for number in 0u32.. {
        let mut datagram = vec![0x47; 1316];
        datagram[4..8].copy_from_slice(&number.to_be_bytes());
        // Before the sender is there, nobody takes it.
        let _ = camera.send_to(&datagram, ("127.0.0.1", from));
        sleep(Duration::from_millis(3));
        if players.iter().all(|(has, _)| has.load(Relaxed) >= COUNT) {
            break;
        }
        let has: Vec<usize> = players.iter().map(|(has, _)| has.load(Relaxed)).collect();
        assert!(begun.elapsed() < PATIENCE, "{has:?}");
    }
    for (_, player) in players {
        let numbers = player.join().expect("no panic");
        let first = numbers[0];
        assert_eq!(numbers, (first..first + COUNT as u32).collect::<Vec<_>>());
    }
    for (running, says) in
        members.into_iter().map(|member| (member, " 0 missing")).chain([(sender, " 0 dropped")])
    {
        running.signal(Signal::TERM);
        let ended = running.wait();
        assert_eq!(ended.status, 130, "{}", ended.err);
        assert!(ended.err.contains(says), "{}", ended.err);
    }
}
