//! Sessions that go on, whatever becomes of the network below them and of their ends.

use super::{Talk, World, processes};
use crate::common::far::{Far, THERE};
use crate::common::tunnel::{by_socks, free_port};
use crate::common::{in_own_namespace, pattern};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Both ends are stopped for longer than a silent one is kept; then one of them is, for less, and
/// for longer, so that the other gives the connection up and comes to the session by another.
#[test]
fn a_session_goes_on_where_its_ends_were_stopped() {
    let Some(world) = World::new(true, &[]) else { return };
    let mut talk = Talk::new(&world, &["--silence", "4s"]);
    for (stops_client, stopped) in [(true, 10), (false, 2), (true, 10), (false, 7)] {
        talk.ask();
        let client = processes("ssh-keep", &world.place.path("home"));
        assert!(!client.is_empty() && !world.servers().is_empty(), "{client:?}");
        let all = [if stops_client { client } else { Vec::new() }, world.servers()].concat();
        for signal in ["-STOP", "-CONT"] {
            for process in &all {
                assert!(Command::new("kill").args([signal, process]).status().expect("run").success());
            }
            if signal == "-STOP" {
                std::thread::sleep(Duration::from_secs(stopped));
            }
        }
        talk.ask();
    }
    assert_eq!(talk.end(), "");
    world.await_no_servers();
}

/// Neither way is there for a while, and then it is another. Later logins ask nobody.
#[test]
fn a_session_goes_on_by_whatever_way_there_is() {
    if !in_own_namespace("-mn", module_path!(), "a_session_goes_on_by_whatever_way_there_is") {
        return;
    }
    let far = Far::new();
    let Some(world) = World::behind(&far) else { return };
    let mut talk = Talk::new(&world, &[]);
    talk.ask();
    // The login that has begun it waits beside.
    far.swallows("udp");
    talk.ask();
    far.lets_through("udp");
    far.swallows("tcp");
    talk.ask();
    // It has gone with its connection: there is another.
    far.swallows("udp");
    far.lets_through("tcp");
    talk.ask();
    far.swallows("tcp");
    std::thread::sleep(Duration::from_secs(5));
    far.lets_through("udp");
    talk.ask();
    far.falls_silent();
    far.lets_through("tcp");
    talk.ask();
    far.changes_address();
    talk.ask();
    assert_eq!(talk.end(), "");
    world.await_no_servers();
    world.assert_nothing_left();
}

#[test]
fn a_session_begins_over_tcp_and_goes_on_over_udp_without_a_byte_lost() {
    if !in_own_namespace(
        "-mn",
        module_path!(),
        "a_session_begins_over_tcp_and_goes_on_over_udp_without_a_byte_lost",
    ) {
        return;
    }
    let far = Far::new();
    let Some(world) = World::behind(&far) else { return };
    far.swallows("udp");
    let mut command = world.ssh(&["--udp-wait", "300ms"], &["-T", "there", "cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let (mut to, mut from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let data = pattern(12 << 20);
    let reading = std::thread::spawn(move || {
        let mut back = Vec::new();
        from.read_to_end(&mut back).map(|_| back)
    });
    let changes: [&dyn Fn(); 6] = [
        &|| {},
        &|| far.lets_through("udp"),
        &|| far.swallows("tcp"),
        &|| far.changes_address(),
        &|| far.lets_through("tcp"),
        &|| far.swallows("udp"),
    ];
    for (piece, change) in data.chunks(data.len() / changes.len()).zip(changes) {
        let (first, second) = piece.split_at(piece.len() / 2);
        to.write_all(first).expect("it goes on");
        change();
        to.write_all(second).expect("it goes on");
    }
    drop(to);
    let back = reading.join().expect("read").expect("read");
    assert!(back == data, "{} bytes", back.len());
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("over ssh's TCP connection"), "{said}");
    world.await_no_servers();
}

/// All of it in one session: what is typed, a stream of megabytes through -L, and what begins anew
/// through -D, while the network changes.
#[test]
fn what_a_session_carries_goes_on_through_changes_of_network() {
    if !in_own_namespace("-mn", module_path!(), "what_a_session_carries_goes_on_through_changes_of_network") {
        return;
    }
    let far = Far::new();
    let Some(world) = World::behind(&far) else { return };
    let [local, socks] = [free_port(), free_port()];
    let forward = format!("127.0.0.1:{local}:{THERE}:{}", world.port);
    let dynamic = format!("127.0.0.1:{socks}");
    let mut talk = Talk::beside(&world, &[], &["-L", &forward, "-D", &dynamic]);
    talk.ask();
    // Another ssh has a port of this host for the other's: its bytes are checked by it, and here.
    let other = ["-F", &world.config, "-o", "HostName=127.0.0.1", "-p", &local.to_string(), "there", "cat"];
    let mut other = world.here("ssh", &other);
    other.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut other = other.spawn().expect("started");
    let (mut to, mut from) = (other.stdin.take().expect("piped"), other.stdout.take().expect("piped"));
    let data = pattern(8 << 20);
    let reading = std::thread::spawn(move || {
        let mut back = Vec::new();
        from.read_to_end(&mut back).map(|_| back)
    });
    let changes: [&dyn Fn(); 4] =
        [&|| far.falls_silent(), &|| far.changes_address(), &|| far.swallows("udp"), &|| {
            far.lets_through("udp")
        }];
    let there = format!("{THERE}:{}", world.port).parse().expect("an address");
    for (piece, change) in data.chunks(data.len() / changes.len()).zip(changes) {
        let (first, second) = piece.split_at(piece.len() / 2);
        to.write_all(first).expect("it goes on");
        change();
        to.write_all(second).expect("it goes on");
        talk.ask();
        let mut banner = [0; 8];
        let mut begun = by_socks(([127, 0, 0, 1], socks).into(), there);
        begun.read_exact(&mut banner).expect("carried");
        assert_eq!(&banner, b"SSH-2.0-");
    }
    drop(to);
    let back = reading.join().expect("read").expect("read");
    assert!(back == data, "{} bytes", back.len());
    assert!(other.wait().expect("ended").success());
    assert_eq!(talk.end(), "");
    world.await_no_servers();
    world.assert_nothing_left();
}
