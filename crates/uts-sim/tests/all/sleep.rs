//! Ends that are suspended, and paths that are gone, for days: who waits that long loses nothing,
//! holds little, and says little meanwhile (timing.md, retransmission.md R-25).

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};
use uts_engine::{ConnectionConfig, ConnectionHandle, EndpointConfig, Event, FlowId, FlowOptions, Read};
use uts_path::{PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::world::SERVER;
use uts_sim::{NodeId, World, WorldConfig};

const CLIENT: NodeId = 1;
const DAY: Duration = Duration::from_secs(24 * 3600);
const NIGHT: Duration = Duration::from_secs(3 * 24 * 3600);
/// Both ends keep a connection for so long.
const SILENCE: Duration = Duration::from_secs(7 * 24 * 3600);
/// A client asks so often.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// An end that wakes is heard, and hears, within this: time for a Ping and its answer, and for a
/// probe and its, where each may be lost.
const SOON: Duration = Duration::from_secs(3);

/// Sleeping ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleeper {
    Client,
    Server,
    Both,
    /// Nobody, but nothing passes.
    Path,
}

impl Sleeper {
    fn has(self, node: NodeId) -> bool {
        match self {
            Sleeper::Client => node == CLIENT,
            Sleeper::Server => node == SERVER,
            Sleeper::Both => true,
            Sleeper::Path => false,
        }
    }
}

/// Progress of the application at an end.
#[derive(Default)]
struct App {
    flow: Option<FlowId>,
    connection: Option<ConnectionHandle>,
    writes: bool,
    written: u64,
    read: u64,
    closed: Option<String>,
}

/// A world with one connection, of which each end may write for ever and reads all that comes.
struct Night {
    world: World,
    apps: [App; 2],
    asleep: Option<Sleeper>,
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 11) as u8
}

impl Night {
    fn new(seed: u64, writes: [bool; 2], silence: Duration) -> Night {
        let own = ConnectionConfig {
            idle_timeout: silence,
            credit_bytes_initial: 256 << 10,
            credit_bytes_max: 1 << 20,
            send_buffer_bytes: 256 << 10,
            send_buffer_bytes_max: 1 << 20,
            ..ConnectionConfig::default()
        };
        let path = PathConfig::both("rate=5mbit delay=20ms buffer=64p loss=1%".parse().expect("a path"));
        let server = EndpointConfig { accept: own.clone(), ..EndpointConfig::default() };
        let config = WorldConfig { path, server, seed, ..WorldConfig::default() };
        let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
        world.connect(CLIENT, ConnectionConfig { keep_alive: KEEP_ALIVE, ..own }).expect("begun");
        let app = |writes| App { writes, ..App::default() };
        Night { world, apps: writes.map(app), asleep: None }
    }

    fn run(&mut self, for_long: Duration) {
        let until = self.world.now() + for_long;
        while let Some(happening) = self.world.next(until) {
            let node = happening.node;
            self.apps[node].connection = Some(happening.connection);
            match happening.event {
                Event::Connected if node == CLIENT => {
                    let now = self.world.now();
                    let connection = self.world.connection(node, happening.connection).expect("open");
                    let flow = connection.open_flow(FlowOptions::default()).expect("opened");
                    connection.write(now, flow, vec![byte(0)].into()).expect("written");
                    (self.apps[node].flow, self.apps[node].written) = (Some(flow), 1);
                }
                Event::Closed(reason) => self.apps[node].closed = Some(reason.to_string()),
                Event::Readable(flow) => self.apps[node].flow = Some(flow),
                _ => {}
            }
            self.act(node);
        }
    }

    /// The application at an end reads what there is, and writes what it may.
    fn act(&mut self, node: NodeId) {
        if self.asleep.is_some_and(|asleep| asleep.has(node)) {
            return;
        }
        let (now, app) = (self.world.now(), &mut self.apps[node]);
        let Some(handle) = app.connection else { return };
        let Some(connection) = self.world.connection(node, handle) else { return };
        let Some(flow) = app.flow else { return };
        while let Ok(Read::Bytes(_, bytes)) = connection.read(now, flow, 1 << 16) {
            for (n, got) in bytes.iter().enumerate() {
                assert_eq!(*got, byte(app.read + n as u64), "node {node}, byte {}", app.read + n as u64);
            }
            app.read += bytes.len() as u64;
        }
        while app.writes {
            let next: Vec<u8> = (app.written..app.written + 4000).map(byte).collect();
            match connection.write(now, flow, next.into()) {
                Ok(taken) => app.written += taken as u64,
                Err(_) => return,
            }
        }
    }

    fn sleep(&mut self, sleeper: Sleeper) {
        self.asleep = Some(sleeper);
        for node in [SERVER, CLIENT] {
            self.world.suspend(node, sleeper.has(node));
        }
        if sleeper == Sleeper::Path {
            self.world.set_path(Target::Both, "down").expect("a change");
        }
    }

    fn wake(&mut self) {
        for node in [SERVER, CLIENT] {
            self.world.suspend(node, false);
        }
        self.world.set_path(Target::Both, "up").expect("a change");
        self.asleep = None;
        self.act(SERVER);
        self.act(CLIENT);
    }

    /// Packets that an end has sent, and memory that it holds.
    fn cost(&mut self, node: NodeId) -> (u64, usize) {
        let handle = self.apps[node].connection.expect("connected");
        let connection = self.world.connection(node, handle).expect("open");
        let of_memory = connection.memory_bytes();
        (connection.stats().packets_sent, connection.held_bytes() + of_memory)
    }

    /// Applications write no more: all that they wrote arrives.
    fn finish(&mut self, what: &str) {
        self.apps.iter_mut().for_each(|app| app.writes = false);
        self.run(Duration::from_secs(120));
        for (from, to) in [(SERVER, CLIENT), (CLIENT, SERVER)] {
            assert_eq!(self.apps[from].closed, None, "{what}");
            assert_eq!(self.apps[to].read, self.apps[from].written, "{what}: from {from}");
        }
    }
}

/// All that may sleep, with all that may be under way; a translator forgets the client meanwhile,
/// or the client wakes in another network.
#[test]
fn three_days_of_sleep_lose_nothing_hold_little_and_say_little() {
    for (n, sleeper) in
        [Sleeper::Client, Sleeper::Server, Sleeper::Both, Sleeper::Path].into_iter().enumerate()
    {
        for writes in [[false, false], [true, false], [false, true], [true, true]] {
            for elsewhere in [false, true] {
                let what = format!("{sleeper:?} sleeps, write: {writes:?}, wakes elsewhere: {elsewhere}");
                let mut night = Night::new(n as u64, writes, SILENCE);
                night.run(Duration::from_secs(4));
                night.sleep(sleeper);
                night.run(Duration::from_secs(1));
                let before = [SERVER, CLIENT].map(|node| night.cost(node));
                night.run(NIGHT);
                let after = [SERVER, CLIENT].map(|node| night.cost(node));
                for node in [SERVER, CLIENT] {
                    let said = after[node].0 - before[node].0;
                    println!(
                        "{what}: {node} said {said} packets, holds {} of {}",
                        after[node].1, before[node].1
                    );
                    // A minute between two probes of an outage; the client asks every ten seconds.
                    let every = if node == CLIENT { 10 } else { 60 };
                    assert!(said <= NIGHT.as_secs() / every + 500, "{what}: {node} said {said} packets");
                    let most = before[node].1 + before[node].1 / 4 + 100_000;
                    assert!(after[node].1 <= most, "{what}: {node} holds {} of {most}", after[node].1);
                }
                if elsewhere {
                    let place = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 999);
                    night.world.readdress(CLIENT, place).expect("it is free");
                }
                night.wake();
                let read = [SERVER, CLIENT].map(|node| night.apps[node].read);
                // Who was awake, and sits behind a translator, asks every ten seconds.
                let asks = matches!(sleeper, Sleeper::Server | Sleeper::Path);
                let soon = if asks { SOON + KEEP_ALIVE } else { SOON };
                night.run(soon);
                for (from, to) in [(SERVER, CLIENT), (CLIENT, SERVER)] {
                    let moved = night.apps[to].read - read[to];
                    assert!(!writes[from] || moved > 0, "{what}: nothing from {from} within {soon:?}");
                }
                night.finish(&what);
            }
        }
    }
}

/// An end that was stopped was told nothing meanwhile, which is no silence of its peer: both go on
/// where both were stopped, for however long.
#[test]
fn who_was_stopped_asks_before_it_gives_up() {
    for (sleeper, silence, stopped) in [
        (Sleeper::Both, Duration::from_secs(30), DAY),
        (Sleeper::Both, SILENCE, 30 * DAY),
        // The other end has heard nothing for half of what it waits.
        (Sleeper::Client, Duration::from_secs(600), Duration::from_secs(300)),
        (Sleeper::Client, SILENCE, 6 * DAY),
    ] {
        for writes in [[false, false], [true, true]] {
            let what = format!("{sleeper:?} stopped for {stopped:?} of {silence:?}, write: {writes:?}");
            let mut night = Night::new(5, writes, silence);
            night.run(Duration::from_secs(4));
            night.sleep(sleeper);
            night.run(stopped);
            night.wake();
            night.run(SOON);
            night.finish(&what);
        }
    }
}

/// A peer that does not come back is given up after the silence that was agreed, and no sooner.
#[test]
fn who_never_wakes_is_given_up_when_it_was_agreed() {
    for silence in [Duration::from_secs(600), SILENCE, 60 * DAY] {
        let mut night = Night::new(6, [true, false], silence);
        night.run(Duration::from_secs(4));
        night.sleep(Sleeper::Client);
        night.run(silence - Duration::from_secs(10));
        assert_eq!(night.apps[SERVER].closed, None, "{silence:?}");
        night.run(Duration::from_secs(200));
        assert!(night.apps[SERVER].closed.is_some(), "{silence:?}");
    }
}
