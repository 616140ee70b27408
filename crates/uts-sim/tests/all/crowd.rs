//! A server whose places are short: who hosts many connections makes room for who hosts few, and
//! who asks for nothing for everybody.

use core::time::Duration;
use rustls::pki_types::ServerName;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use uts_engine::{
    CloseReason, ConnectionConfig, ConnectionHandle, Endpoint, EndpointConfig, Event, FlowId, FlowOptions,
    Read,
};
use uts_functions::Time;
use uts_sim::identity::{Identities, SERVER_NAME};

/// One way from a client to the server.
const DELAY: Duration = Duration::from_millis(10);

/// Within which an honest client is served.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

fn v4(a: u8, b: u8) -> IpAddr {
    Ipv4Addr::new(203, a, b, 1).into()
}

fn v6(network: u128, host: u128) -> IpAddr {
    Ipv6Addr::from(0x2001_0db8 << 96 | network << 64 | host).into()
}

/// A client, and what it is doing.
struct Client {
    at: SocketAddr,
    end: Endpoint,
    connection: ConnectionHandle,
    /// Datagrams of the client leave, and reach the server.
    is_heard: bool,
    /// It is gone after so many datagrams; nothing comes from it or to it any more.
    dies_after: u32,
    sent: u32,
    flow: Option<FlowId>,
    closed: Option<CloseReason>,
    answered_at: Option<Time>,
}

impl Client {
    fn is_dead(&self) -> bool {
        self.sent >= self.dies_after
    }

    fn open(&mut self) -> Option<&mut uts_engine::Connection> {
        self.end.connection(self.connection).filter(|connection| connection.is_open())
    }
}

struct Town {
    now: Time,
    server: Endpoint,
    clients: BTreeMap<SocketAddr, Client>,
    /// When it arrives, where it goes (`None` = to the server) and from whom.
    wire: VecDeque<(Time, bool, SocketAddr, Vec<u8>)>,
    identities: Identities,
    served: BTreeMap<ConnectionHandle, u64>,
    port: u16,
    most: usize,
}

impl Town {
    fn new(config: EndpointConfig) -> Self {
        Self::of(Identities::new().expect("keys"), config)
    }

    fn of(identities: Identities, config: EndpointConfig) -> Self {
        let server = Some(identities.server.clone());
        Town {
            now: Time::from_millis(1),
            server: Endpoint::new(EndpointConfig { server, ..config }, [1; 32]),
            clients: BTreeMap::new(),
            wire: VecDeque::new(),
            identities,
            served: BTreeMap::new(),
            port: 20_000,
            most: 0,
        }
    }

    fn arrive(&mut self, from: IpAddr) -> SocketAddr {
        self.arrive_with(from, u32::MAX, self.identities.client.clone())
    }

    fn arrive_with(&mut self, from: IpAddr, dies_after: u32, tls: Arc<rustls::ClientConfig>) -> SocketAddr {
        self.port += 1;
        let at = SocketAddr::new(from, self.port);
        let seed = core::array::from_fn(|n| (self.port >> (n % 2 * 8)) as u8);
        let mut end = Endpoint::new(EndpointConfig::default(), seed);
        let to = SocketAddr::from(([192, 0, 2, 1], 4433));
        let name = ServerName::try_from(SERVER_NAME).expect("a name");
        let config = ConnectionConfig { keep_alive: Duration::from_secs(5), ..ConnectionConfig::default() };
        let connection = end.connect(self.now, to, name, tls, config, None).expect("it begins");
        let client = Client {
            at,
            end,
            connection,
            is_heard: true,
            dies_after,
            sent: 0,
            flow: None,
            closed: None,
            answered_at: None,
        };
        self.clients.insert(at, client);
        at
    }

    fn client(&mut self, at: SocketAddr) -> &mut Client {
        self.clients.get_mut(&at).expect("it has come")
    }

    fn is_open(&mut self, at: SocketAddr) -> bool {
        self.client(at).open().is_some()
    }

    fn open_of(&mut self, of: &[SocketAddr]) -> usize {
        of.iter().filter(|at| self.is_open(**at)).count()
    }

    /// The client asks for something; the answer stays open until it asks for the next.
    fn ask(&mut self, at: SocketAddr) {
        let now = self.now;
        let client = self.client(at);
        let Some(open) = client.open() else { return };
        let flow = open.open_flow(FlowOptions::default()).expect("a flow");
        open.write(now, flow, bytes::Bytes::from_static(b"6 bytes")).expect("room");
        client.flow = Some(flow);
    }

    /// A byte more of what the client has begun to ask.
    fn trickle(&mut self, at: SocketAddr) {
        let now = self.now;
        let client = self.client(at);
        let Some(flow) = client.flow else { return };
        if let Some(open) = client.open() {
            open.write(now, flow, bytes::Bytes::from_static(b"x")).expect("room");
        }
    }

    fn carry(&mut self) -> bool {
        let (mut any, mut buffer) = (false, Vec::new());
        while let Some((_, to_server, at, mut datagram)) =
            self.wire.pop_front_if(|(arrives, ..)| *arrives <= self.now)
        {
            any = true;
            if to_server {
                self.server.handle_datagram(self.now, at, None, &mut datagram);
            } else if let Some(client) = self.clients.get_mut(&at).filter(|client| !client.is_dead()) {
                let from = SocketAddr::from(([192, 0, 2, 1], 4433));
                client.end.handle_datagram(self.now, from, None, &mut datagram);
            }
        }
        self.server.handle_timeout(self.now);
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut buffer) {
            any = true;
            for datagram in buffer.chunks(transmit.segment_bytes) {
                self.wire.push_back((self.now + DELAY, false, transmit.remote, datagram.to_vec()));
            }
        }
        while self.server.accept().is_some() {}
        while let Some((handle, event)) = self.server.poll_event() {
            if let (Event::Readable(flow), Some(open)) = (event, self.server.connection(handle)) {
                while open.accept_flow().is_some() {}
                while let Ok(Read::Bytes(_, bytes)) = open.read(self.now, flow, 1000) {
                    *self.served.entry(handle).or_default() += bytes.len() as u64;
                    let _ = open.write(self.now, flow, bytes);
                }
            }
        }
        self.most = self.most.max(self.server.len());
        for client in self.clients.values_mut().filter(|client| !client.is_dead()) {
            client.end.handle_timeout(self.now);
            while let Some(transmit) = client.end.poll_transmit(self.now, &mut buffer) {
                any = true;
                for datagram in buffer.chunks(transmit.segment_bytes) {
                    client.sent += 1;
                    if client.is_heard {
                        self.wire.push_back((self.now + DELAY, true, client.at, datagram.to_vec()));
                    }
                }
            }
            while let Some((_, event)) = client.end.poll_event() {
                match event {
                    Event::Closed(why) => client.closed = Some(why),
                    Event::Readable(flow) => {
                        let now = self.now;
                        client.answered_at.get_or_insert(now);
                        let open = client.end.connection(client.connection).expect("open");
                        while let Ok(Read::Bytes(..)) = open.read(now, flow, 1000) {}
                    }
                    _ => {}
                }
            }
        }
        any
    }

    fn pass(&mut self, long: Duration) {
        let end = self.now + long;
        while self.now < end {
            while self.carry() {}
            let due = |end: &mut Endpoint| end.poll_timeout().unwrap_or(Time::NEVER);
            let mut next = due(&mut self.server).min(end);
            next = self.wire.front().map_or(next, |(arrives, ..)| next.min(*arrives));
            for client in self.clients.values_mut().filter(|client| !client.is_dead()) {
                next = next.min(due(&mut client.end));
            }
            self.now = next.max(self.now + Duration::from_micros(1));
        }
    }

    /// An honest client comes, asks, and has its answer in time.
    fn serves(&mut self, from: IpAddr) -> SocketAddr {
        let tls = self.identities.client.clone();
        self.serves_with(from, tls)
    }

    fn serves_with(&mut self, from: IpAddr, tls: Arc<rustls::ClientConfig>) -> SocketAddr {
        let (begun, at) = (self.now, self.arrive_with(from, u32::MAX, tls));
        while self.client(at).answered_at.is_none() && self.now < begun + SERVED_WITHIN {
            self.pass(Duration::from_millis(20));
            if self.client(at).flow.is_none() {
                self.ask(at);
            }
        }
        let client = self.client(at);
        assert!(client.answered_at.is_some(), "{from} is not served: {:?}", client.closed);
        at
    }
}

fn config(connections_max: usize, of_address: usize) -> EndpointConfig {
    EndpointConfig { connections_max, connections_per_address_max: of_address, ..EndpointConfig::default() }
}

/// Eight addresses that take all that they may, ask for something or not, and keep sending.
fn eight_addresses(asks: bool) {
    let mut town = Town::new(config(64, 16));
    let honest: Vec<_> = (0..4).map(|n| town.serves(v4(0, n))).collect();
    // They come again and again, for as long as they are not told to go.
    let mut hostile = Vec::new();
    for round in 0..6 {
        for host in 0..8 {
            (0..8).for_each(|_| hostile.push(town.arrive(v4(1 + host, 0))));
        }
        town.pass(Duration::from_millis(500));
        if asks {
            let new = hostile[round * 64..].to_vec();
            new.into_iter().for_each(|at| town.ask(at));
        }
        hostile.clone().into_iter().for_each(|at| town.trickle(at));
        town.pass(Duration::from_millis(500));
    }
    let before = town.open_of(&hostile);
    assert!((56..=60).contains(&before), "{before} have taken what there is");
    for n in 0..30 {
        let late = town.serves(v4(100 + n, 0));
        hostile.clone().into_iter().for_each(|at| town.trickle(at));
        town.pass(Duration::from_millis(100));
        assert!(town.is_open(late), "{:?}", town.client(late).closed);
    }
    for at in &honest {
        assert!(town.is_open(*at), "{:?}", town.client(*at).closed);
        let asked_at = town.now;
        town.client(*at).answered_at = None;
        town.ask(*at);
        town.pass(Duration::from_millis(100));
        assert!(town.client(*at).answered_at.is_some_and(|then| then >= asked_at), "it is still served");
    }
    assert!(town.most <= 64 + 64 + 8, "{} at once", town.most);
}

#[test]
fn eight_addresses_that_ask_for_nothing_keep_nobody_out() {
    eight_addresses(false);
}

#[test]
fn eight_addresses_that_have_something_under_way_keep_nobody_out() {
    eight_addresses(true);
}

/// Each has shown that it is at its address, and says no more.
#[test]
fn thousands_that_answer_a_retry_and_vanish_keep_nobody_out() {
    let mut town = Town::new(EndpointConfig { handshakes_before_retry: 4, ..config(256, 32) });
    let honest = town.serves(v4(0, 0));
    for n in 0..3000_u32 {
        let tls = town.identities.client.clone();
        town.arrive_with(v4(1 + (n % 24) as u8, 0), 2, tls);
        if n % 50 == 49 {
            town.pass(Duration::from_millis(50));
        }
    }
    assert!(town.server.len() > 200, "{} half-open", town.server.len());
    let dead: Vec<_> = town.clients.values().filter(|c| c.is_dead()).map(|c| c.at).collect();
    assert!(dead.len() >= 3000, "{}", dead.len());
    for at in dead {
        town.clients.remove(&at);
    }
    for n in 0..10 {
        town.serves(v4(100 + n, 0));
    }
    assert!(town.is_open(honest));
    assert!(town.most <= 256 + 256 + 8, "{} at once", town.most);
}

/// A /48 has 65,536 networks of 64 bits, and is one customer.
#[test]
fn a_network_of_many_networks_is_one() {
    let mut town = Town::new(config(64, 8));
    let honest = town.serves(v6(0x1_0000, 1));
    let mut hostile = Vec::new();
    for n in 0..400_u128 {
        hostile.push(town.arrive(v6(n * 163 % 0x1_0000, 1)));
        if n % 20 == 19 {
            town.pass(Duration::from_millis(100));
            hostile[hostile.len() - 20..].iter().for_each(|at| town.ask(*at));
            town.pass(Duration::from_millis(100));
        }
    }
    let held = town.open_of(&hostile);
    assert!(held <= 32, "{held} of one /48");
    for n in 0..30 {
        town.serves(v6(0x2_0000 + n * 0x1_0000, 1));
    }
    assert!(town.is_open(honest));
}

/// A client with a key that is known comes in when others, each from a network of its own, have
/// all.
#[test]
fn a_client_with_a_key_has_a_place_when_those_without_fill_all() {
    let (identities, keyed_client) = Identities::with_client_key().expect("keys");
    let mut town = Town::of(identities, EndpointConfig { connections_of_keys: 8, ..config(64, 8) });
    let others: Vec<_> = (0..80).map(|n| town.arrive(v4(1 + n, 0))).collect();
    town.pass(Duration::from_millis(300));
    others.iter().for_each(|at| town.ask(*at));
    town.pass(Duration::from_secs(4));
    let open = town.open_of(&others);
    assert_eq!(open, 56, "all but the places of those with keys");
    let keyed: Vec<_> = (0..8).map(|n| town.serves_with(v4(200 + n, 0), keyed_client.clone())).collect();
    assert_eq!((town.open_of(&keyed), town.open_of(&others)), (8, 56), "each has what is its own");
    // Another of them is one among the others.
    let late = town.arrive_with(v4(220, 0), u32::MAX, keyed_client);
    town.pass(Duration::from_secs(1));
    assert!(!town.is_open(late) && town.open_of(&keyed) == 8);
}

/// A client that was killed leaves connections behind; its next ones take their places.
#[test]
fn connections_of_a_client_that_has_died_make_room_for_its_next() {
    let mut town = Town::new(config(64, 4));
    let old: Vec<_> = (0..4).map(|_| town.arrive(v4(1, 0))).collect();
    town.pass(Duration::from_millis(300));
    old.iter().for_each(|at| town.ask(*at));
    town.pass(Duration::from_millis(1500));
    assert_eq!(town.open_of(&old), 4);
    for at in &old {
        town.client(*at).dies_after = 0;
    }
    town.pass(Duration::from_secs(2));
    for _ in 0..4 {
        let at = town.arrive(v4(1, 0));
        town.pass(Duration::from_secs(4));
        assert!(town.is_open(at), "{:?}", town.client(at).closed);
        town.ask(at);
    }
    // These are alive, and stay.
    let late = town.arrive(v4(1, 0));
    town.pass(Duration::from_secs(12));
    let why = town.client(late).closed.clone().expect("refused");
    assert!(why.to_string().contains("this address has as many connections to it as it may"), "{why}");
    assert_eq!(town.clients.values_mut().filter_map(Client::open).count(), 8, "four of them are dead");
}

/// Silence before the first request is short, whatever the idle time-out, and is said to be why.
#[test]
fn who_asks_for_nothing_and_is_silent_has_to_go() {
    let mut accept =
        ConnectionConfig { idle_timeout: Duration::from_secs(600), ..ConnectionConfig::default() };
    accept.first_request_timeout = Duration::from_secs(15);
    let mut town = Town::new(EndpointConfig { accept, ..config(64, 8) });
    let [silent, pinging, asking] = [1, 2, 3].map(|n| town.arrive(v4(n, 0)));
    town.pass(Duration::from_millis(300));
    town.ask(asking);
    town.pass(Duration::from_millis(300));
    town.client(silent).is_heard = false;
    town.client(asking).is_heard = false;
    town.pass(Duration::from_secs(17));
    let why = town.client(silent).closed.clone().expect("told").to_string();
    assert!(why.contains("asked for nothing"), "{why}");
    assert!(town.is_open(pinging), "{:?}", town.client(pinging).closed);
    assert_eq!(town.server.len(), 2);
    assert!(town.client(asking).closed.is_none());
}
