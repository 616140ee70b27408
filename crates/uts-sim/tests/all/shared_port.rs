//! A port that several workers share, and that goes from process to process: whichever worker a
//! datagram reaches, it ends with the one whose connection it is for, and with no other. (P-65)
//!
//! The kernel is blind here: each datagram reaches any worker of the process that reads the port.

use core::cmp::Reverse;
use core::time::Duration;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustls::pki_types::ServerName;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use uts_engine::{
    CLIENT_CID_BYTES, ConnectionConfig, ConnectionHandle, Endpoint, EndpointConfig, Event, FlowId,
    FlowOptions, Read, Worker, worker_of,
};
use uts_functions::Time;
use uts_sim::identity::{Identities, SERVER_NAME};

const SECRET: [u8; 32] = [7; 32];
const CLIENTS: usize = 6;
/// Pieces that each client sends, and has sent back.
const PIECES: u8 = 20;
const PIECE_BYTES: usize = 300;
const INTERVAL: Duration = Duration::from_millis(100);
/// Within which all clients have come, and all processes too.
const BUSY: Duration = Duration::from_secs(2);
/// A run that has not ended by then hangs.
const LIMIT: Time = Time::from_millis(60_000);

fn port() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4433))
}

fn hostile() -> SocketAddr {
    SocketAddr::from(([10, 66, 0, 1], 666))
}

fn is_short(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0x80 == 0)
}

/// Whose a connection is: which process, which of its workers.
type Place = (usize, usize);

struct Client {
    at: SocketAddr,
    end: Endpoint,
    connection: ConnectionHandle,
    flow: Option<FlowId>,
    /// Pieces that it has written, and when it writes the next.
    written: u8,
    next: Time,
    back: Vec<u8>,
    has_moved: bool,
    owner: Option<(Place, ConnectionHandle)>,
}

impl Client {
    fn is_done(&self) -> bool {
        self.back.len() == usize::from(PIECES) * PIECE_BYTES
    }
}

/// A datagram under way.
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Packets of clients that were for a connection.
    owned: u64,
    /// Times that a worker gave a datagram to its sibling, and a process to the one before.
    strays: u64,
    handed_on: u64,
    /// Datagrams of nobody's connection.
    hostile: u64,
}

struct Harbour {
    seed: u64,
    now: Time,
    rng: ChaCha8Rng,
    identities: Identities,
    workers: usize,
    has_retries: bool,
    /// Oldest first. The last reads the port.
    processes: Vec<Vec<Endpoint>>,
    clients: Vec<Client>,
    wire: BinaryHeap<Reverse<(Time, u64)>>,
    under_way: BTreeMap<u64, Datagram>,
    sent: u64,
    /// Datagrams that have arrived, for who repeats and forges.
    seen: Vec<Vec<u8>>,
    /// Bytes that the hostile address has sent, and was sent.
    said: usize,
    answered: usize,
    counts: Counts,
}

impl Harbour {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut harbour = Harbour {
            seed,
            now: Time::from_millis(1),
            identities: Identities::new().expect("keys"),
            workers: rng.random_range(1..=5),
            has_retries: rng.random_bool(0.5),
            rng,
            processes: Vec::new(),
            clients: Vec::new(),
            wire: BinaryHeap::new(),
            under_way: BTreeMap::new(),
            sent: 0,
            seen: Vec::new(),
            said: 0,
            answered: 0,
            counts: Counts::default(),
        };
        harbour.take_over();
        harbour
    }

    /// A process takes the port over.
    fn take_over(&mut self) {
        let process = Worker::crew(self.workers).into_iter().map(|worker| {
            let config = EndpointConfig {
                server: Some(self.identities.server.clone()),
                secret: SECRET,
                worker: Some(worker),
                handshakes_before_retry: if self.has_retries { 0 } else { 1000 },
                ..EndpointConfig::default()
            };
            let mut seed = [0; 32];
            self.rng.fill_bytes(&mut seed);
            Endpoint::new(config, seed)
        });
        let process = process.collect();
        self.processes.push(process);
    }

    fn client_comes(&mut self) {
        let number = self.clients.len() as u8;
        let config = EndpointConfig { cid_bytes: CLIENT_CID_BYTES, ..EndpointConfig::default() };
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let mut end = Endpoint::new(config, seed);
        let name = ServerName::try_from(SERVER_NAME).expect("a name");
        let tls = self.identities.client.clone();
        let connection =
            end.connect(self.now, port(), name, tls, ConnectionConfig::default(), None).expect("it begins");
        self.clients.push(Client {
            at: SocketAddr::from(([10, 1, 0, number], 1000)),
            end,
            connection,
            flow: None,
            written: 0,
            next: self.now,
            back: Vec::new(),
            has_moved: false,
            owner: None,
        });
    }

    /// A packet sets out: it is lost, or arrives once or twice, after a time of its own.
    fn carry(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if to == hostile() {
            self.answered += bytes.len();
        }
        if self.rng.random_bool(0.02) {
            return;
        }
        for _ in 0..if self.rng.random_bool(0.05) { 2 } else { 1 } {
            let takes = Duration::from_micros(self.rng.random_range(5_000..20_000));
            self.wire.push(Reverse((self.now + takes, self.sent)));
            self.under_way.insert(self.sent, Datagram { from, to, bytes: bytes.to_vec() });
            self.sent += 1;
        }
    }

    /// A datagram has come to any worker of the process that reads. Says where it ended.
    fn arrive(&mut self, from: SocketAddr, mut datagram: Vec<u8>) -> Place {
        let newest = self.processes.len() - 1;
        let (reached, worker) = (self.rng.random_range(0..self.workers), worker_of(&datagram, self.workers));
        self.counts.strays += u64::from(reached != worker);
        let mut process = newest;
        while process > 0 && self.processes[process][worker].is_for_another(self.now, from, &datagram) {
            process -= 1;
            self.counts.handed_on += 1;
        }
        self.processes[process][worker].handle_datagram(self.now, from, None, &mut datagram);
        (process, worker)
    }

    /// Places of the connections that an adaptive packet is for.
    fn owners_of(&self, from: SocketAddr, datagram: &[u8]) -> Vec<Place> {
        let all = self.processes.iter().enumerate();
        let all = all.flat_map(|(process, workers)| (0..workers.len()).map(move |worker| (process, worker)));
        all.filter(|(process, worker)| self.processes[*process][*worker].recipient(from, datagram).is_some())
            .collect()
    }

    /// A datagram of a client's, or one that claims to be.
    fn client_is_heard(&mut self, from: SocketAddr, datagram: Vec<u8>) {
        let seed = self.seed;
        let owners = self.owners_of(from, &datagram);
        assert!(owners.len() <= 1, "seed {seed}: a datagram of several: {owners:?}");
        let client = self.clients.iter().find(|client| client.at == from && !client.has_moved);
        let known = client.and_then(|client| client.owner).filter(|((process, worker), handle)| {
            let open = self.processes[*process][*worker].peek(*handle);
            open.is_some_and(|connection| connection.is_open())
        });
        if let (Some((place, _)), true) = (known, is_short(&datagram)) {
            assert_eq!(owners, [place], "seed {seed}: a packet of a client that has not moved");
        }
        let before: Vec<u64> = self.processes.iter().flatten().map(|end| end.strangers).collect();
        let ended = self.arrive(from, datagram);
        let Some(owner) = owners.first() else { return };
        assert_eq!(ended, *owner, "seed {seed}: it ends with its owner");
        let after: Vec<u64> = self.processes.iter().flatten().map(|end| end.strangers).collect();
        let (process, worker) = ended;
        let others = |all: &[u64]| {
            let mut all = all.to_vec();
            all.remove(process * self.workers + worker);
            all
        };
        assert_eq!(others(&before), others(&after), "seed {seed}: no other has taken it in");
        self.counts.owned += 1;
    }

    /// Somebody sends what is none, or was sent before, or nearly.
    fn hostile_sends(&mut self) {
        let mut datagram = match self.seen.len() {
            0 => Vec::new(),
            count => self.seen[self.rng.random_range(0..count)].clone(),
        };
        match self.rng.random_range(0..4) {
            // As it was.
            0 => {}
            1 => {
                datagram = vec![0; self.rng.random_range(0..100)];
                self.rng.fill_bytes(&mut datagram);
            }
            // To another id, which a worker may or may not have.
            2 => {
                if let Some(id) = datagram.get_mut(1..9) {
                    self.rng.fill_bytes(id);
                }
            }
            _ => {
                let bit = self.rng.random_range(0..(datagram.len() * 8).max(1));
                if let Some(byte) = datagram.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
        if datagram.is_empty() {
            return;
        }
        self.counts.hostile += 1;
        self.said += datagram.len();
        let handed_on = self.counts.handed_on;
        let owners = self.owners_of(hostile(), &datagram);
        let ended = self.arrive(hostile(), datagram);
        assert!(owners.iter().all(|owner| *owner == ended), "seed {}", self.seed);
        let most = self.processes.len() as u64 - 1;
        assert!(self.counts.handed_on - handed_on <= most, "seed {}", self.seed);
    }

    fn server_acts(&mut self) {
        let mut out = Vec::new();
        for process in 0..self.processes.len() {
            for worker in 0..self.workers {
                let end = &mut self.processes[process][worker];
                end.handle_timeout(self.now);
                while let Some((handle, event)) = end.poll_event() {
                    match event {
                        Event::Connected => {
                            let remote = end.peek(handle).expect("it is there").remote();
                            let client = self.clients.iter_mut().find(|client| client.at == remote);
                            let owner = &mut client.expect("a client").owner;
                            assert_eq!(*owner, None, "seed {}: a client of two", self.seed);
                            *owner = Some(((process, worker), handle));
                        }
                        Event::FlowOpened(flow) | Event::Readable(flow) => {
                            let Some(connection) = end.connection(handle) else { continue };
                            while let Ok(Read::Bytes(_, bytes)) = connection.read(self.now, flow, 1 << 16) {
                                let count = bytes.len();
                                assert_eq!(connection.write(self.now, flow, bytes), Ok(count), "room");
                            }
                        }
                        _ => {}
                    }
                }
                while let Some(transmit) = self.processes[process][worker].poll_transmit(self.now, &mut out) {
                    for datagram in out.chunks(transmit.segment_bytes) {
                        self.carry(port(), transmit.remote, datagram);
                    }
                }
            }
        }
    }

    fn clients_act(&mut self) {
        let mut out = Vec::new();
        for number in 0..self.clients.len() {
            let now = self.now;
            let client = &mut self.clients[number];
            client.end.handle_timeout(now);
            while let Some((handle, event)) = client.end.poll_event() {
                match event {
                    Event::Connected => {
                        let connection = client.end.connection(handle).expect("it is there");
                        client.flow = Some(connection.open_flow(FlowOptions::default()).expect("a flow"));
                        client.next = now;
                    }
                    Event::Readable(flow) => {
                        let connection = client.end.connection(handle).expect("it is there");
                        while let Ok(Read::Bytes(_, bytes)) = connection.read(now, flow, 1 << 16) {
                            client.back.extend_from_slice(&bytes);
                        }
                    }
                    Event::Closed(reason) => panic!("seed {}: client {number}: {reason}", self.seed),
                    _ => {}
                }
            }
            if let Some(flow) = client.flow.filter(|_| client.written < PIECES && client.next <= now) {
                let connection = client.end.connection(client.connection).expect("it is there");
                let piece = vec![client.written; PIECE_BYTES];
                assert_eq!(connection.write(now, flow, piece.into()), Ok(PIECE_BYTES), "room");
                client.written += 1;
                client.next = now + INTERVAL;
                // A translator gives it another port.
                if client.written == PIECES / 2 && number % 3 == 0 {
                    client.at.set_port(2000);
                    client.has_moved = true;
                }
            }
            while let Some(transmit) = self.clients[number].end.poll_transmit(now, &mut out) {
                for datagram in out.chunks(transmit.segment_bytes) {
                    self.carry(self.clients[number].at, transmit.remote, datagram);
                }
            }
        }
    }

    /// The next instant at which anything happens.
    fn next(&mut self, planned: Option<Time>) -> Time {
        let arrives = self.wire.peek().map(|Reverse((at, _))| *at);
        let ends = self.processes.iter_mut().flatten();
        let ends = ends.chain(self.clients.iter_mut().map(|client| &mut client.end));
        let timers: Vec<Time> = ends.filter_map(Endpoint::poll_timeout).collect();
        let writes = self.clients.iter().filter(|client| client.flow.is_some() && client.written < PIECES);
        let all = timers.into_iter().chain(writes.map(|client| client.next)).chain(arrives).chain(planned);
        all.min().expect("something goes on").max(self.now)
    }

    fn run(mut self, processes: usize) -> Counts {
        let mut plan: Vec<(Time, bool)> = Vec::new();
        for n in 0..CLIENTS + processes - 1 {
            let at = self.now + BUSY.mul_f64(self.rng.random_range(0.0..1.0));
            plan.push((at, n < CLIENTS));
        }
        plan.sort();
        plan.reverse();
        while self.clients.len() < CLIENTS || !self.clients.iter().all(Client::is_done) {
            assert!(self.now < LIMIT, "seed {}: it hangs: {:?}", self.seed, self.counts);
            self.now = self.next(plan.last().map(|(at, _)| *at));
            while let Some((_, is_client)) = plan.pop_if(|(at, _)| *at <= self.now) {
                if is_client { self.client_comes() } else { self.take_over() }
            }
            while let Some(Reverse((at, number))) = self.wire.peek().copied()
                && at <= self.now
            {
                self.wire.pop();
                let Datagram { from, to, mut bytes } = self.under_way.remove(&number).expect("it is there");
                if to != port() {
                    if let Some(client) = self.clients.iter_mut().find(|client| client.at == to) {
                        client.end.handle_datagram(self.now, from, None, &mut bytes);
                    }
                    continue;
                }
                self.seen.push(bytes.clone());
                self.client_is_heard(from, bytes);
                if self.rng.random_bool(0.3) {
                    self.hostile_sends();
                }
            }
            self.server_acts();
            self.clients_act();
        }
        for client in &self.clients {
            let sent: Vec<u8> = (0..PIECES).flat_map(|n| [n; PIECE_BYTES]).collect();
            assert!(client.back == sent, "seed {}: what comes back is what was sent", self.seed);
        }
        assert!(self.answered <= 3 * self.said, "seed {}: {} of {}", self.seed, self.answered, self.said);
        self.counts
    }
}

#[test]
fn a_datagram_ends_with_its_owner_whichever_worker_it_reaches() {
    let mut all = Counts::default();
    for seed in 0..60 {
        let counts = Harbour::new(seed).run(1 + seed as usize % 4);
        if seed % 4 == 0 {
            assert_eq!(counts.handed_on, 0, "seed {seed}: there is only one process");
        }
        all.owned += counts.owned;
        all.strays += counts.strays;
        all.handed_on += counts.handed_on;
        all.hostile += counts.hostile;
    }
    // Each kind of way was taken, and often.
    println!("{all:?}");
    assert!(all.owned > 10_000 && all.hostile > 3_000, "{all:?}");
    assert!(all.strays > 5_000 && all.handed_on > 3_000, "{all:?}");
}
