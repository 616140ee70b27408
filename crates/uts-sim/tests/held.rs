//! Memory that an established peer can make an endpoint hold, by the counting allocator: within the
//! memory that its settings name, whatever the peer says (flow.md ).

mod counting;
#[allow(dead_code, reason = "other attacks have one peer, which is its own")]
mod victim;

use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uts_engine::{ConnectionConfig, ConnectionHandle, Endpoint, EndpointConfig, FlowId};
use uts_sim::identity::Identities;
use uts_wire::frame::{self, Data, DataFlags, Frame};
use victim::{Victim, address, turn};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Memory of the endpoint.
const MEMORY: usize = 4 * MIB;
/// Bytes that a connection may have beyond [`MEMORY`], and bytes that it takes outside flows:
/// packets that wait for a report, ranges of numbers, events.
const LEAST: usize = 48 * KIB;
const AROUND: usize = 256 * KIB;

fn config(asked: &[&str]) -> ConnectionConfig {
    let mut config = ConnectionConfig {
        credit_bytes_initial: 256 * KIB as u64,
        credit_bytes_max: MIB as u64,
        send_buffer_bytes: 256 * KIB,
        send_buffer_bytes_max: MIB,
        ..ConnectionConfig::default()
    };
    asked.iter().for_each(|property| config.requirements.assign(property).expect("a property"));
    config
}

fn emitted(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

fn data(flow: u64, offset: u64, bytes: &[u8], flags: DataFlags) -> Vec<u8> {
    let (flow, offset) = (flow as u32, Some(offset));
    emitted(&Frame::Data(Data { flow, offset, flags, has_len: true, bytes }))
}

fn skip(flow: u64, start: u64, len: u64) -> Vec<u8> {
    emitted(&Frame::Skip(frame::Skip { flow: flow as u32, start, len }))
}

fn reset(flow: u64, final_position: u64, sent: u64) -> Vec<u8> {
    let reset = frame::ResetFlow { flow: flow as u32, code: 1, final_position, sent: Some(sent) };
    emitted(&Frame::ResetFlow(reset))
}

const MESSAGE: DataFlags = DataFlags { message: true, begin: true, end: true, fin: false, presented: false };
const BEGIN: DataFlags = DataFlags { end: false, ..MESSAGE };
const MIDDLE: DataFlags = DataFlags { begin: false, end: false, ..MESSAGE };
const BYTES: DataFlags = DataFlags { message: false, ..MIDDLE };
const FIN: DataFlags = DataFlags { fin: true, ..BYTES };

/// A server, and peers that have the keys of their connections to it, and say anything.
struct Siege {
    victim: Victim,
    peers: Vec<(Endpoint, ConnectionHandle, u16)>,
    /// The server's application reads all that it can.
    reads: bool,
    before: isize,
}

impl Siege {
    fn new(peers: usize, asked: &[&str], reads: bool) -> Self {
        let identities = Identities::new().expect("keys");
        let accept = config(asked);
        let server = EndpointConfig { accept, memory_bytes_max: MEMORY, ..EndpointConfig::default() };
        let victim = Victim::new(&identities, server);
        let mut siege = Siege { victim, peers: Vec::new(), reads, before: 0 };
        for n in 0..peers {
            let mut client = Endpoint::new(EndpointConfig::default(), [n as u8; 32]);
            let now = siege.victim.now;
            let handle =
                identities.connect(&mut client, now, address(1, 4433), config(asked)).expect("it begins");
            siege.peers.push((client, handle, 5000 + n as u16));
            // What leaves as time passes is lost, and repeated after a second.
            for _ in 0..3000 {
                siege.converse(n);
                if siege.peers[n].0.peek(handle).is_some_and(uts_engine::Connection::is_open) {
                    break;
                }
            }
            for _ in 0..20 {
                siege.converse(n);
            }
            assert!(siege.peers[n].0.peek(handle).is_some_and(uts_engine::Connection::is_open));
        }
        siege.victim.pass(Duration::from_millis(50));
        siege.before = siege.victim.held;
        siege.victim.peak = siege.before;
        siege
    }

    /// A peer says what its endpoint has to say, and hears what the server answers.
    fn converse(&mut self, n: usize) {
        let (client, _, port) = &mut self.peers[n];
        let mut out = Vec::new();
        client.handle_timeout(self.victim.now);
        while let Some(sent) = client.poll_transmit(self.victim.now, &mut out) {
            out.chunks(sent.segment_bytes).for_each(|d| self.victim.hear(address(0, *port), d));
        }
        self.victim.pass(Duration::from_millis(1));
        for (to, mut datagram) in self.victim.speak() {
            let peer = self.peers.iter_mut().find(|(_, _, port)| to.port() == *port);
            if let Some((client, ..)) = peer {
                client.handle_datagram(self.victim.now, address(1, 4433), None, &mut datagram);
            }
        }
    }

    fn say(&mut self, n: usize, frames: &[u8]) {
        let (client, handle, port) = &mut self.peers[n];
        let connection = client.connection(*handle).expect("it is there");
        if let Some(packet) = connection.packet_of(self.victim.now, frames) {
            self.victim.hear(address(0, *port), &packet);
        }
        if self.reads {
            self.victim.read_all();
        }
        self.check();
    }

    /// Checks that no more is held than may be, by the allocator and by the endpoint's own count.
    fn check(&self) {
        let peers = self.peers.len();
        let most = MEMORY + peers * (LEAST + AROUND);
        let held = usize::try_from(self.victim.held - self.before).unwrap_or(0);
        assert!(held <= most, "{held} bytes of {most}: {:?}", self.parts());
        let endpoint = &self.victim.endpoint;
        let counted: usize =
            endpoint.handles().filter_map(|h| endpoint.peek(h)).map(uts_engine::Connection::held_bytes).sum();
        let bound = MEMORY + peers * (LEAST + 80 * KIB);
        assert!(counted <= bound && endpoint.memory_drawn() <= MEMORY + 80 * KIB, "{counted} of {bound}");
    }

    fn parts(&self) -> Vec<[(&'static str, usize); 10]> {
        let endpoint = &self.victim.endpoint;
        endpoint
            .handles()
            .filter_map(|h| endpoint.peek(h))
            .map(uts_engine::Connection::memory_parts)
            .collect()
    }

    fn grown(&self) -> usize {
        usize::try_from(self.victim.peak - self.before).unwrap_or(0)
    }

    fn reasons(&self) -> Vec<String> {
        let endpoint = &self.victim.endpoint;
        let connections = endpoint.handles().filter_map(|h| endpoint.peek(h));
        connections.filter_map(|c| c.close_reason().map(ToString::to_string)).collect()
    }

    fn open(&self) -> usize {
        let endpoint = &self.victim.endpoint;
        endpoint.handles().filter_map(|h| endpoint.peek(h)).filter(|c| c.is_open()).count()
    }
}

/// Lets each of some peers say this many packets.
fn besiege(
    name: &str,
    (peers, asked, reads): (usize, &[&str], bool),
    packets: u64,
    frames: impl Fn(u64) -> Vec<u8>,
) -> Siege {
    let mut siege = Siege::new(peers, asked, reads);
    for round in 0..packets {
        for n in 0..peers {
            siege.say(n, &frames(round));
        }
        if round % 64 == 0 {
            (0..peers).for_each(|n| siege.converse(n));
        }
    }
    println!("{name}: {} bytes of {peers} peers, {} open", siege.grown(), siege.open());
    siege
}

const MESSAGES: &[&str] = &["preserveMsgBoundaries=require"];

#[test]
fn what_is_skipped_and_what_never_ends_enlarges_nothing() {
    let _turn = turn();
    for reads in [false, true] {
        besiege("skips", (2, MESSAGES, reads), 4000, |n| skip(2 * (n % 100), n / 100 * 5000, 4999));
        // A message on each flow, without end, within what may be sent.
        let part = [7; 1000];
        besiege("messages without end", (3, MESSAGES, reads), 800, |n| {
            let (flow, at) = (2 * (n % 100), n / 100 * 1000);
            data(flow, at, &part, if at == 0 { BEGIN } else { MIDDLE })
        });
    }
}

#[test]
fn what_it_takes_to_keep_track_counts() {
    let _turn = turn();
    for reads in [false, true] {
        besiege("gaps", (2, &[], reads), 3000, |n| {
            (0..40).flat_map(|i| data(2 * (n % 50), 2 * (n / 50 * 40 + i) + 1, &[1], BYTES)).collect()
        });
        besiege("skipped gaps", (2, &[], reads), 3000, |n| {
            (0..40).flat_map(|i| skip(2 * (n % 50), 2 * (n / 50 * 40 + i) + 1, 1)).collect()
        });
        besiege("tiny messages", (2, MESSAGES, reads), 3000, |n| {
            (0..40).flat_map(|i| data(2 * (n % 50), 2 * (n / 50 * 40 + i), &[1], MESSAGE)).collect()
        });
        besiege("padded messages", (2, MESSAGES, reads), 3000, |n| {
            let mut frames = data(2 * (n % 50), n / 50 * 2, &[1], MESSAGE);
            frames.resize(1100, 0);
            frames
        });
    }
}

/// Packets that are kept for redundancy, and sums for which packets are missing.
#[test]
fn what_redundancy_keeps_counts() {
    let _turn = turn();
    for scheme in ["reed-solomon", "sliding-window"] {
        let asked = [format!("uts.profile.fec={scheme}")];
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        let siege = besiege(scheme, (12, &asked, false), 1500, |n| {
            let repair = |id| {
                let symbol = &[1; 1000];
                emitted(&Frame::Repair(frame::Repair { first: 4 * n, mask: &[0xff, 0xff], id, symbol }))
            };
            match (n % 2, scheme) {
                (0, _) => data(0, n / 2 % 100 * 1000, &[7; 1000], BYTES),
                (_, "reed-solomon") => repair(frame::RepairId::Block { index: 0, parities: 1 }),
                _ => repair(frame::RepairId::Window { key: n as u16 }),
            }
        });
        assert_eq!(siege.open(), 12, "{:?}", siege.reasons());
        // It was kept, and then was too much.
        assert!(siege.grown() > MIB, "{scheme}: {} bytes", siege.grown());
    }
}

#[test]
fn flows_that_hold_nothing_count() {
    let _turn = turn();
    let siege = besiege("empty flows", (10, &[], false), 100, |n| skip(2 * n, 0, 1));
    assert_eq!(siege.open(), 10);
    besiege("first credit", (10, &[], false), 600, |n| {
        data(2 * (n % 100), n / 100 * 1000, &[7; 1000], BYTES)
    });
    let siege = besiege("resets", (4, &[], false), 4000, |n| {
        let flow = 2 * (n / 4 % 100);
        [data(flow, 0, &[1; 200], BYTES), reset(flow, n % 100, 200)].concat()
    });
    assert_eq!(siege.open(), 4, "resets within what may be sent");
}

/// A flow of which the end was said.
const ENDED: u64 = u64::MAX;

/// Frames of all kinds, in an order and with numbers from a seed, by several peers at once.
#[test]
fn whatever_peers_say_what_is_held_is_within_memory() {
    let _turn = turn();
    for seed in 0..12 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let asked: &[&str] = if rng.random() { MESSAGES } else { &[] };
        let (peers, reads) = (rng.random_range(1..6), rng.random());
        let mut siege = Siege::new(peers, asked, reads);
        let mut next = vec![[0u64; 100]; peers];
        for round in 0..1500 {
            let n = rng.random_range(0..peers);
            let mut frames = Vec::new();
            for _ in 0..rng.random_range(1..12) {
                let flows = if rng.random() { 3 } else { 100 };
                let index = rng.random_range(0..flows);
                let (flow, at) = (2 * index as u64, &mut next[n][index]);
                if *at == ENDED {
                    continue;
                }
                let gap = [0, 0, 1, 3, 200][rng.random_range(0..5)];
                let len = [1, 1, 10, 90][rng.random_range(0..4)];
                let bytes = vec![7; len];
                // Within what may be sent, or it would be over soon.
                let start = if *at + gap < 500 { *at + gap } else { rng.random_range(0..500) };
                let flags =
                    if asked.is_empty() { BYTES } else { [MESSAGE, BEGIN, MIDDLE][rng.random_range(0..3)] };
                match rng.random_range(0..20) {
                    0 => {
                        let from = rng.random_range(0..start + 100);
                        frames.extend(skip(flow, from, len as u64));
                        *at = (*at).max(from + len as u64);
                    }
                    1 => frames.extend(reset(flow, rng.random_range(0..=start), start)),
                    2 if asked.is_empty() && start >= *at => {
                        frames.extend(data(flow, start, &bytes, FIN));
                        *at = ENDED;
                    }
                    _ => {
                        frames.extend(data(flow, start, &bytes, flags));
                        *at = (*at).max(start + len as u64 + u64::from(flags.end));
                    }
                }
            }
            siege.say(n, &frames);
            if round % 20 == 0 {
                siege.converse(n);
            }
        }
        println!("seed {seed}: {} bytes of {peers} peers, {} open", siege.grown(), siege.open());
        assert!(siege.open() > 0, "seed {seed}: {:?}", siege.reasons());
    }
}

/// An honest peer is served while others hold all that they can; what they held goes back with
/// them.
#[test]
fn an_honest_peer_is_served_while_others_hold_all_they_can() {
    let _turn = turn();
    let mut siege = Siege::new(20, &[], false);
    for round in 0..400u64 {
        for n in 1..20 {
            siege.say(n, &data(2 * (round % 100), round / 100 * 1000, &[7; 1000], BYTES));
        }
        if round % 32 == 0 {
            (1..20).for_each(|n| siege.converse(n));
        }
    }
    println!("{} bytes of 20 peers", siege.grown());
    let now = siege.victim.now;
    let (client, handle, _) = &mut siege.peers[0];
    let connection = client.connection(*handle).expect("it is there");
    let flow = connection.open_flow(Default::default()).expect("allowed");
    assert_eq!(connection.write(now, flow, bytes::Bytes::from_static(b"honest")), Ok(6));
    siege.reads = true;
    let handle = siege
        .victim
        .endpoint
        .handles()
        .find(|h| siege.victim.endpoint.peek(*h).is_some_and(|c| c.remote().port() == 5000));
    for _ in 0..20 {
        siege.converse(0);
    }
    let read = siege.victim.endpoint.connection(handle.expect("open")).map(|c| c.read(now, FlowId(0), 100));
    assert!(matches!(read, Some(Ok(_))), "{read:?}");
}
