//! Figures 15 to 17: compressed headers, bit by bit, and how long they are in a mix of calls. The
//! paper's traces are not there. The mix is made up: a client that reads status, fetches and stores
//! at three file servers.

use super::design::Design;
use super::protocol::Headers;
use super::world::{Line, Session, over_line};
use super::{END, SMALL, seconds};
use crate::paper::Series;
use anyhow::{Context, Result};
use etherparse::{Ipv4HeaderSlice, PacketBuilder};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use uts_path::compression::rx::{Compressed, Compressor, Sequence};
use uts_path::compression::{Form, Frame};
use uts_rx::{Ack, Body, Flags, Header, Packet, Reason, Type};

/// Rows of figure 17.
const ROWS: usize = 13;
/// Bytes of all headers.
const WHOLE_BYTES: usize = 56;
/// Packets of the mix: nearly as many as those of both traces.
const PACKETS: usize = 21_500;
/// Slots of the mix's compressor.
const SLOTS: u16 = 16;
const SERVERS: usize = 3;
/// Packets of a chunk of 64 kB, the most that AFS fetches or stores in a call.
const CHUNK_PACKETS: u32 = 48;
/// Every so many packets of data one asks (section 1.2).
const ASKS_EVERY: u32 = 4;
/// The frame that is lost in a transfer, and how it is named.
const LOST: &str = "places:60";

const FIRST: Header = Header {
    epoch: 0x2cb4_1c40,
    connection: 4,
    call: 1,
    sequence: 1,
    serial: 1,
    kind: Type::Data,
    flags: Flags(0),
    status: 0,
    security: 0,
    verifier: 0,
    service: 1,
};

/// An IP packet from one host to another.
fn packet((from, to): (u8, u8), identification: u16, header: Header, body: &Body<'_>) -> Result<Vec<u8>> {
    let payload = Packet::new(header, *body).to_bytes();
    let mut packet = Vec::new();
    PacketBuilder::ipv4([10, 0, 0, from], [10, 0, 0, to], 30)
        .udp(7000, 7001)
        .write(&mut packet, &payload)
        .context("a packet")?;
    let mut ip = Ipv4HeaderSlice::from_slice(&packet)?.to_header();
    (ip.identification, ip.dont_fragment) = (identification, false);
    ip.header_checksum = ip.calc_header_checksum();
    packet[..20].copy_from_slice(&ip.to_bytes());
    Ok(packet)
}

// ---- figures 15 and 16, and the sizes of section 7.1 ----

/// The frame of a packet behind the first of its connection.
fn after_first(identification: u16, header: Header) -> Result<Frame> {
    let mut near = Compressor::new(SLOTS);
    let body = if header.kind == Type::Response { Body::Response(&[]) } else { Body::Data(&[]) };
    near.compress(&packet((1, 2), 1, FIRST, &Body::Data(&[]))?).context("of Rx")?;
    near.compress(&packet((1, 2), identification, header, &body)?).context("of Rx")
}

/// The rules one behind the other: how many set the bits that figure 15 has for them.
pub(super) fn rules() -> Result<Series> {
    let next = Header { sequence: 2, serial: 2, ..FIRST };
    let (a, b, d, e, f, g) = (1 << 11, 1 << 10, 1 << 8, 1 << 7, 1 << 6, 1 << 5);
    let ahead = a | f;
    // The bits that a rule sets, from A, the highest of twelve, to L.
    let cases = [
        (2, next, ahead),
        (2, Header { call: 2, ..next }, ahead | e | b),
        (9, next, ahead | d),
        (2, Header { call: 7, ..next }, ahead | e),
        (2, Header { sequence: 9, ..next }, f),
        (2, Header { serial: 9, ..next }, ahead | g),
        (2, Header { kind: Type::Response, ..next }, ahead | 1 << 4),
        (2, Header { flags: Flags(2), ..next }, ahead | 1 << 3),
        (2, Header { status: 1, ..next }, ahead | 1 << 2),
        (2, Header { verifier: 1, ..next }, ahead | 1 << 1),
        (2, Header { kind: Type::Response, sequence: 0, ..next }, f | 1 << 4 | 1),
    ];
    let mut right = 0;
    for (identification, header, bits) in cases {
        let frame = after_first(identification, header)?;
        right += i32::from(frame.bytes[..2] == (0x6000u16 | bits).to_be_bytes());
    }
    // C: another connection was sent between.
    let mut near = Compressor::new(SLOTS);
    let other = Header { connection: 8, ..FIRST };
    for header in [FIRST, other] {
        near.compress(&packet((1, 2), 1, header, &Body::Data(&[]))?).context("of Rx")?;
    }
    let all = Header {
        call: FIRST.call + 3,
        sequence: FIRST.sequence + 4,
        serial: FIRST.serial + 5,
        kind: Type::Response,
        flags: Flags(6),
        status: 7,
        verifier: 0x0809,
        ..FIRST
    };
    let sent = packet((1, 2), 1 + 2, all, &Body::Response(&[]))?;
    let frame = near.compress(&sent).context("of Rx")?.bytes;
    right += i32::from(frame[..2] == [0x63, 0xfe]);
    // Slot, checksum, differences of identification, call, sequence and serial number, type, flags,
    // status, verifier.
    let fields: [&[u8]; 10] = [&[0], &sent[26..28], &[2], &[3], &[4], &[5], &[7], &[6], &[7], &[8, 9]];
    let mut at = 2;
    let in_order = fields.iter().filter(|field| {
        let from = at;
        at += field.len();
        frame.get(from..at) == Some(**field)
    });
    let in_order = in_order.count();
    let usual = |header: Header| Ok::<f64, anyhow::Error>(after_first(2, header)?.bytes.len() as f64);
    Ok(Series::from([
        ("bits".into(), vec![f64::from(right)]),
        ("fields".into(), vec![in_order as f64]),
        ("plain".into(), vec![usual(next)?]),
        ("authenticated".into(), vec![usual(Header { verifier: 0xbeef, ..next })?]),
    ]))
}

// ---- figure 17 ----

/// A packet of a call that is to come.
struct Planned {
    from_client: bool,
    kind: Type,
    /// Its sequence number; of an acknowledgement, the first packet that is missing.
    number: u32,
    flags: Flags,
}

/// One connection to a server.
struct Connection {
    /// Last headers from the client, and from the server.
    headers: [Header; 2],
    is_authenticated: bool,
    planned: VecDeque<Planned>,
}

struct Mix {
    rng: ChaCha8Rng,
    connections: Vec<Connection>,
    /// Identifications of the client, and of each server.
    identifications: [u16; 1 + SERVERS],
    near: Compressor,
}

impl Mix {
    fn new() -> Self {
        let connection = |n: usize| {
            let header = Header { connection: 4 * n as u32, call: 0, sequence: 0, serial: 0, ..FIRST };
            let is_authenticated = n == 0;
            Connection { headers: [header; 2], is_authenticated, planned: VecDeque::new() }
        };
        Mix {
            rng: ChaCha8Rng::seed_from_u64(17),
            connections: (0..SERVERS).map(connection).collect(),
            identifications: [0; 1 + SERVERS],
            near: Compressor::new(SLOTS),
        }
    }

    /// Plans a call: of ten, eight read status, one fetches and one stores.
    fn plan(&mut self) -> VecDeque<Planned> {
        let of = self.rng.random_range(0..10);
        let long = self.rng.random_range(1..=CHUNK_PACKETS);
        let (request, answer) = match of {
            0..8 => (1, 1),
            8 => (1, long),
            _ => (long, 1),
        };
        let mut planned = VecDeque::new();
        for (from_client, packets) in [(true, request), (false, answer)] {
            for number in 1..=packets {
                let asks = number % ASKS_EVERY == 0 && number < packets;
                let flags = [
                    (from_client, Flags::FROM_CLIENT),
                    (asks, Flags::REQUEST_ACK),
                    (number == packets, Flags::LAST),
                ];
                let set = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag);
                let flags = set.fold(Flags::default(), Flags::with);
                planned.push_back(Planned { from_client, kind: Type::Data, number, flags });
                // A call of a packet each way is acknowledged by the next.
                if asks || (number == packets && packets > 1) {
                    let flags = if from_client { Flags::default() } else { Flags::FROM_CLIENT };
                    let from_client = !from_client;
                    planned.push_back(Planned { from_client, kind: Type::Ack, number: number + 1, flags });
                }
            }
        }
        planned
    }

    /// The next packet, of some connection.
    fn next(&mut self) -> Result<Frame> {
        let server = self.rng.random_range(0..SERVERS);
        if self.connections[server].planned.is_empty() {
            let planned = self.plan();
            let connection = &mut self.connections[server];
            connection.headers.iter_mut().for_each(|header| header.call += 1);
            connection.planned = planned;
        }
        let connection = &mut self.connections[server];
        let planned = connection.planned.pop_front().context("a packet was planned")?;
        let header = &mut connection.headers[usize::from(!planned.from_client)];
        let is_data = planned.kind == Type::Data;
        header.kind = planned.kind;
        header.sequence = if is_data { planned.number } else { 0 };
        header.flags = planned.flags;
        header.verifier =
            if is_data && connection.is_authenticated { self.rng.random_range(1..=u16::MAX) } else { 0 };
        // The other channels of the connection count on, too.
        header.serial += if self.rng.random_bool(0.01) { 2 } else { 1 };
        let header = *header;
        // A server has other clients, and now and then the line rests.
        let host = if planned.from_client { 0 } else { 1 + server };
        let others = match (planned.from_client, self.rng.random_range(0..20)) {
            (_, 0) => self.rng.random_range(256..4000),
            (false, 1..6) => self.rng.random_range(1..100),
            _ => 0,
        };
        let identification = &mut self.identifications[host];
        *identification = identification.wrapping_add(1 + others);
        let ends = if planned.from_client { (1, 10 + server as u8) } else { (10 + server as u8, 1) };
        let ack = Ack {
            buffer_packets: 15,
            skew: 0,
            first: planned.number,
            previous: planned.number - 1,
            serial: 1,
            reason: Reason::Requested,
            beyond: &[],
            trailer: &[],
        };
        let body = if is_data { Body::Data(&[]) } else { Body::Ack(ack) };
        let packet = packet(ends, *identification, header, &body)?;
        self.near.compress(&packet).context("of Rx")
    }
}

/// Bits by the rows of figure 17 in compressed headers, in the mean; the share of headers that
/// are compressed, and the mean length of all.
pub(super) fn mix() -> Result<Series> {
    let mut mix = Mix::new();
    let mut bits = [0.0; ROWS];
    let (mut compressed, mut bytes) = (0usize, 0usize);
    for _ in 0..PACKETS {
        let frame = mix.next()?;
        if frame.form != Form::Compressed {
            bytes += WHOLE_BYTES;
            continue;
        }
        let mut content = &frame.bytes[..];
        let headers = Compressed::parse(&mut content)?;
        compressed += 1;
        bytes += frame.bytes.len() - content.len();
        bits_of(&headers).iter().zip(&mut bits).for_each(|(of_one, sum)| *sum += of_one);
    }
    let mean = bits.map(|bits| bits / compressed as f64);
    Ok(Series::from([
        ("row".into(), (1..=ROWS).map(|row| row as f64).collect()),
        ("bits".into(), mean.to_vec()),
        ("share".into(), vec![compressed as f64 / PACKETS as f64 * 100.0]),
        ("bytes".into(), vec![bytes as f64 / PACKETS as f64]),
    ]))
}

/// Bits by the rows of figure 17, whose last has what differences take beyond a byte.
fn bits_of(headers: &Compressed) -> [f64; ROWS] {
    let ahead = match headers.sequence {
        Sequence::Ahead(delta) if delta != 1 => Some(delta),
        _ => None,
    };
    let deltas = [headers.identification, headers.call.filter(|delta| *delta != 1), ahead, headers.serial];
    let given = |is_given: bool, bits: u32| if is_given { f64::from(bits) } else { 0.0 };
    let long = deltas.iter().flatten().filter(|delta| !(1..256).contains(*delta)).count();
    let [identification, call, sequence, serial] = deltas.map(|delta| given(delta.is_some(), 8));
    [
        4.0,
        12.0,
        given(headers.slot.is_some(), 8),
        16.0,
        identification,
        call,
        sequence,
        serial,
        given(headers.kind.is_some(), 8),
        given(headers.flags.is_some(), 8),
        given(headers.status.is_some(), 8),
        given(headers.verifier.is_some(), 16),
        16.0 * long as f64,
    ]
}

// ---- section 7.2 ----

/// Repeats of a transfer of which one frame is lost, with compression and without.
pub(super) fn cascade() -> Result<Series> {
    let mut series = Series::new();
    for (name, compression) in [("compressed", "rx"), ("plain", "off")] {
        let line = Line { compression, loss: LOST, ..Line::SLIP };
        let headers = Headers::Written { verifier: 0xbeef };
        let session = Session { headers, ..Session::new(Design::fixed(seconds(12))?, SMALL) };
        let (outcomes, stats) = over_line(&line, &[session], END)?;
        let outcome = outcomes.first().context("one session was begun")?;
        anyhow::ensure!(outcome.done_at().is_some(), "a transfer is done");
        series.insert(name.into(), vec![outcome.repeats() as f64]);
        series.insert(format!("{name}-wrong"), vec![stats.restored_wrong as f64]);
    }
    Ok(series)
}
