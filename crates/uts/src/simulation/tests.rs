//! Tests of the network, by endpoints as programs use them.

use super::testing::{FAIR, begin};
use super::{Direction, Network, SimulationError, Target};
use crate::{
    ConnectOptions, Connection, ConnectionConfig, FlowOptions, Identity, Listener, RecvFlow, SendFlow,
    ServerOptions, connect,
};
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

const PLACE: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A server that gives back what each flow brings, and the means to connect to it.
fn echo() -> ConnectOptions {
    echo_with(|_| {})
}

/// The same, with settings of the connections at both ends.
fn echo_with(change: impl Fn(&mut ConnectionConfig)) -> ConnectOptions {
    let identity = Identity::generate().expect("a key");
    let mut options = ConnectOptions::pinned(identity.fingerprint());
    let mut of_server = ServerOptions::new(identity);
    change(&mut options.connection);
    change(&mut of_server.connection);
    let listener = Listener::bind(SocketAddr::from(PLACE), of_server).expect("bound");
    tokio::spawn(async move {
        while let Some(connection) = listener.accept().await {
            tokio::spawn(async move {
                while let Some(flow) = connection.accept_flow().await {
                    let (mut send, mut recv) = flow.split();
                    tokio::spawn(async move {
                        let _ = tokio::io::copy(&mut recv, &mut send).await;
                        let _ = send.finished().await;
                    });
                }
            });
        }
    });
    options
}

async fn connected(options: ConnectOptions) -> Connection {
    connect(&SocketAddr::from(PLACE).to_string(), options).await.expect("connected")
}

async fn flow(connection: &Connection) -> (SendFlow, RecvFlow) {
    connection.open_flow(FlowOptions::default()).await.expect("a flow").split()
}

/// The time that an echo of so many bytes takes.
async fn echo_of(bytes: usize, connection: &Connection) -> Duration {
    let begun = Instant::now();
    let (mut send, mut recv) = flow(connection).await;
    let sent: Vec<u8> = (0..bytes).map(|n| (n * 31 % 251) as u8).collect();
    let writing = async {
        send.write_all(&sent).await.expect("written");
        send.shutdown().await.expect("ended");
    };
    let mut read = Vec::new();
    let (_, got) = tokio::join!(writing, recv.read_to_end(&mut read));
    got.expect("read");
    assert!(read == sent, "{} bytes of {bytes}", read.len());
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn rate_and_delay_are_those_of_the_path() {
    let network = begin("rate=8mbit delay=100ms", 1);
    let connection = connected(echo()).await;
    let small = echo_of(100, &connection).await;
    assert!((200..230).contains(&small.as_millis()), "{small:?}");
    // A megabyte takes a second on each way, one behind the other by a round trip or so.
    let large = echo_of(1_000_000, &connection).await;
    assert!((1.2..3.0).contains(&large.as_secs_f64()), "{large:?}");
    let carried = network.stats(ip("127.0.0.1"), ip("10.0.0.2"));
    assert!(network.sent(connection.local_addr()) > 700, "{carried:?}");
}

#[tokio::test(start_paused = true)]
async fn days_of_silence_are_outlived() {
    let _network = begin(FAIR, 2);
    let connection = connected(echo_with(|config| config.idle_timeout = Duration::ZERO)).await;
    let begun = Instant::now();
    let (mut send, mut recv) = flow(&connection).await;
    for day in 0..3 {
        send.write_all(&[day]).await.expect("written");
        assert_eq!(recv.read_u8().await.expect("an echo"), day);
        sleep(Duration::from_secs(24 * 3600)).await;
    }
    assert!(begun.elapsed() >= Duration::from_secs(3 * 24 * 3600));
}

#[tokio::test(start_paused = true)]
async fn paths_are_changed_all_or_one_and_either_way() {
    let network = begin(FAIR, 3);
    let connection = connected(echo()).await;
    let (client, server) = (ip("127.0.0.1"), ip("10.0.0.2"));
    let before = echo_of(10, &connection).await;
    // The order of the hosts says the direction, whoever was first.
    network.change_between([server, client], Target::One(Direction::Forward), "delay=110ms").expect("set");
    let slow = echo_of(10, &connection).await;
    assert!(
        (before + Duration::from_millis(95)..before + Duration::from_millis(120)).contains(&slow),
        "{slow:?}"
    );
    network.change(Target::Both, "delay=200ms").expect("set");
    let slower = echo_of(10, &connection).await;
    assert!((400..430).contains(&slower.as_millis()), "{slower:?}");
    for wrong in ["loss=2", "colour=red", "rate=trace:nowhere", ""] {
        assert!(network.change(Target::Both, wrong).is_err() || wrong.is_empty(), "{wrong}");
    }
    assert!((400..430).contains(&echo_of(10, &connection).await.as_millis()), "an error changes nothing");
    // An outage of one way is outlived.
    network.change(Target::One(Direction::Backward), "down").expect("set");
    let mending = async {
        sleep(Duration::from_secs(5)).await;
        network.change(Target::One(Direction::Backward), "up").expect("set");
    };
    let (took, ()) = tokio::join!(echo_of(10, &connection), mending);
    assert!(took > Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn hosts_have_names_and_no_system_is_asked() {
    let network = begin(FAIR, 4);
    let options = echo();
    network.name("server.example", ip("10.0.0.2"));
    network.set_host(ip("10.0.0.7"));
    let connection = connect("server.example:4433", options.clone()).await.expect("connected");
    assert_eq!(connection.local_addr().ip(), ip("10.0.0.7"));
    let Err(unknown) = connect("localhost:4433", options).await else { panic!("it is no host of it") };
    assert!(unknown.to_string().contains("localhost"), "{unknown}");
}

/// A NAT forgets the client: the server follows, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn a_client_behind_another_address_is_followed() {
    let network = begin("rate=8mbit delay=20ms", 5);
    let connection = connected(echo()).await;
    let at = connection.local_addr();
    let moving = async {
        for n in 0..5_u16 {
            sleep(Duration::from_millis(300)).await;
            let to = SocketAddr::new(ip("10.9.9.9"), 1000 + n);
            network.rebind(at, to).expect("there");
        }
    };
    tokio::join!(echo_of(2_000_000, &connection), moving);
    assert!(network.rebind(at, SocketAddr::from(PLACE)).is_err(), "the server is there");
    assert!(network.rebind(SocketAddr::from(([10, 1, 1, 1], 1)), at).is_err(), "nobody is there");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_moves_is_followed_and_told_so() {
    let network = begin(FAIR, 5);
    let client = connected(echo()).await;
    assert!(echo_of(1000, &client).await < Duration::from_millis(100));
    let before = client.local_addr();
    // The machine has no such address: nobody asks it.
    let to = SocketAddr::new(ip("10.7.7.7"), 0);
    client.migrate(to).expect("moved");
    assert_eq!(client.local_addr().ip(), to.ip());
    assert!(echo_of(100_000, &client).await < Duration::from_secs(2));
    assert!(!network.kill(before), "nobody is left at {before}");
    client.migrate(SocketAddr::from(PLACE)).expect_err("the server is there");
    assert!(echo_of(1000, &client).await < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_was_killed_is_missed() {
    let network = begin(FAIR, 6);
    let connection = connected(echo()).await;
    assert!(network.kill(SocketAddr::from(PLACE)) && !network.kill(SocketAddr::from(PLACE)));
    let begun = Instant::now();
    let (mut send, _recv) = flow(&connection).await;
    send.write_all(b"?").await.expect("written");
    connection.closed().await;
    assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    // The place is free for another.
    echo();
}

#[tokio::test(start_paused = true)]
async fn an_address_has_one_endpoint() {
    let _network = begin(FAIR, 7);
    let _options = echo();
    let options = ServerOptions::new(Identity::generate().expect("a key"));
    let Err(taken) = Listener::bind(SocketAddr::from(PLACE), options) else { panic!("it is taken") };
    assert!(taken.to_string().contains("10.0.0.2:4433"), "{taken}");
}

#[test]
fn a_network_is_of_one_thread_and_of_paths_that_are_said_rightly() {
    assert!(matches!(Network::begin(FAIR, 1), Err(SimulationError::Runtime)));
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    assert!(matches!(
        many.block_on(async { Network::begin(FAIR, 1).map(drop) }),
        Err(SimulationError::Runtime)
    ));
    let one = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    one.block_on(async {
        for wrong in ["delay", "loss=110%", "rate=trace:nowhere"] {
            assert!(matches!(Network::begin(wrong, 1), Err(SimulationError::Path(_))), "{wrong}");
        }
        let network = Network::begin(FAIR, 1).expect("begun");
        assert!(matches!(Network::begin(FAIR, 1), Err(SimulationError::Begun)));
        drop(network);
        assert!(Network::current().is_none());
        drop(Network::begin(FAIR, 1).expect("begun anew"));
    });
}

/// Time that two ends took, and their counts.
async fn run(seed: u64) -> (Duration, [uts_path::Stats; 2], crate::Stats) {
    let begun = Instant::now();
    let network = begin("rate=20mbit delay=30ms jitter=8ms loss=3%", seed);
    let connection = connected(echo()).await;
    for bytes in [10, 300_000, 5000] {
        echo_of(bytes, &connection).await;
    }
    let hosts = [ip("127.0.0.1"), ip("10.0.0.2")];
    let stats = [network.stats(hosts[0], hosts[1]), network.stats(hosts[1], hosts[0])];
    (begun.elapsed(), stats, connection.stats())
}

#[tokio::test(start_paused = true)]
async fn two_runs_of_a_seed_are_alike() {
    for seed in 0..8 {
        let (first, second) = (run(seed).await, run(seed).await);
        assert_eq!(format!("{first:?}"), format!("{second:?}"), "seed {seed}");
    }
    assert_ne!(run(1).await.0, run(2).await.0, "another seed is another run");
}
