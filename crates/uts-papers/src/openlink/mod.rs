//! D. L. Guerrero and O. Frieder, "On Systems Integration: Tuning the Performance of a Commercial
//! TCP Implementation", 1992.
//!
//! * [`sender`]: OPEN-Link's sender, before and after; [`receiver`]: the workstation that receives.
//! * `layers`: what the layers of its host carry, as three processes and as one.
//!
//! Conclusions from the units are in `reference/openlink.toml`.

mod layers;
pub mod receiver;
pub mod sender;

use crate::paper::{Paper, Series, Unit, push};
use anyhow::{Result, bail};
use core::time::Duration;
use receiver::Receiver;
use sender::{Basis, DATAGRAM_BYTES, INNER_BYTES, Sender};
use std::net::SocketAddrV4;
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::network::{Application, Network};
use uts_sim::packet::{Body, Datagram, Packet};
use uts_sim::topology::Topology;

const PORT: u16 = 20;
/// 10 Mbit/s.
const ETHERNET: &str = "rate=10mbit framing=ethernet mtu=1512";
/// Bytes of the file (section 5.0), of its beginning, and of the receiver's buffer.
const FILE_BYTES: u32 = 2_500_000;
const GRID_BYTES: u32 = 30_000;
const BUFFER_BYTES: u32 = 4096;
/// Per cent of the window test (section 5.1).
const TEST: u32 = 23;
/// No transfer takes longer.
const END: Duration = Duration::from_secs(600);
/// Times that the paper does not give, of the receiver until it begins, for a byte and until its
/// application has read, and of the sender until it acts. Two full segments take 15 ms, and the
/// sender acts 3 ms after the first acknowledgement: about the 16 ms behind a burst of section 4.0.
/// They were chosen by the order of packets in figures 9 and 11; [`grid`] has others.
const TIMES: Times = Times { begins_us: 2000, per_byte_us: 5, reads_us: 500, works_us: 3000 };
/// The time after which a small window is told, of BSD.
const DELAY: Duration = Duration::from_millis(200);

/// Times of both ends, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    begins_us: u64,
    per_byte_us: u64,
    reads_us: u64,
    works_us: u64,
}

/// A sender and a receiver.
#[derive(Clone, Copy, Debug)]
struct Design {
    sender: sender::Rules,
    receiver: receiver::Rules,
}

impl Design {
    /// As they were before.
    fn before(times: Times) -> Self {
        let sender = sender::Rules { test: None, fills: false, works: Duration::from_micros(times.works_us) };
        let receiver = receiver::Rules {
            buffer_bytes: BUFFER_BYTES,
            begins: Duration::from_micros(times.begins_us),
            per_byte: Duration::from_micros(times.per_byte_us),
            reads: Duration::from_micros(times.reads_us),
            acks_first: true,
            update_percent: 0,
            delay: DELAY,
        };
        Design { sender, receiver }
    }

    /// The window test of the sender.
    fn testing(mut self, basis: Basis) -> Self {
        self.sender.test = Some((TEST, basis));
        self
    }

    /// Packets filled across datagrams.
    fn filling(mut self) -> Self {
        self.sender.fills = true;
        self
    }

    /// An acknowledgement that waits for the window that it tells.
    fn together(mut self) -> Self {
        self.receiver.acks_first = false;
        self
    }

    /// The test of the sender at the receiver: small windows are not told.
    fn waiting(mut self) -> Self {
        self.receiver.update_percent = TEST;
        self
    }
}

/// The paper with all its units.
pub fn paper() -> Paper {
    let before = Design::before(TIMES);
    let designs = [
        ("before", before),
        ("test", before.testing(Basis::Now)),
        ("fill", before.filling()),
        ("together", before.together()),
        ("update", before.waiting()),
        ("sender", before.testing(Basis::Now).filling()),
        ("receiver", before.together().waiting()),
        ("all", before.testing(Basis::Now).filling().together().waiting()),
    ];
    let units = designs
        .into_iter()
        .map(|(name, design)| Unit::new(name, move || transfer(&design)))
        .chain([Unit::new("smooth", smoothed), Unit::new("grid", grid)])
        .chain([
            Unit::new("three", || layers::sweep(false)),
            Unit::new("one", || layers::sweep(true)),
            Unit::new("work", layers::grid),
        ])
        .collect();
    Paper::new("openlink", include_str!("../../reference/openlink.toml"), units)
}

/// The smoothed round trip, where 40 samples of 16 ms follow one of 100.
fn smoothed() -> Result<Series> {
    let mut all = vec![100.0];
    let mut smoothed_ms = 100;
    for _ in 0..40 {
        smoothed_ms = sender::smooth(smoothed_ms, 16);
        all.push(smoothed_ms.into());
    }
    let samples = (0..all.len()).map(|n| n as f64).collect();
    Ok(Series::from([("sample".into(), samples), ("ms".into(), all)]))
}

/// The lengths of figures 9 and 11.
const FIGURE_9: [u32; 12] = [1452, 1452, 1192, 260, 1452, 1192, 260, 932, 520, 1452, 932, 520];
const FIGURE_11: [u32; 11] = [1452, 1452, 1192, 260, 1452, 1192, 260, 1452, 1452, 1192, 260];

/// Other times of both ends: with which of them figure 9 comes out, and figure 11 besides.
fn grid() -> Result<Series> {
    let mut series = Series::new();
    for (per_byte_us, reads_us, works_us) in [2, 3, 4, 5, 6, 8].into_iter().flat_map(|byte| {
        let reads = [250, 500, 1000, 2000].into_iter();
        reads.flat_map(move |reads| (1..=6).map(move |works| (byte, reads, works * 1000)))
    }) {
        let before = Design::before(Times { per_byte_us, reads_us, works_us, ..TIMES });
        let is = |design: &Design, expected: &[u32]| -> Result<f64> {
            let (sender, _) = run(design, GRID_BYTES)?;
            let lengths = sender.log.iter().filter(|row| row.bytes > 0).map(|row| row.bytes);
            Ok(f64::from(u8::from(lengths.take(expected.len()).eq(expected.iter().copied()))))
        };
        let is_9 = is(&before, &FIGURE_9)?;
        push(
            &mut series,
            [
                ("per-byte", per_byte_us as f64),
                ("reads", reads_us as f64),
                ("works", works_us as f64),
                ("is-9", is_9),
                ("is-both", is_9 * is(&before.testing(Basis::Now), &FIGURE_11)?),
                ("is-both-largest", is_9 * is(&before.testing(Basis::Largest), &FIGURE_11)?),
            ],
        );
    }
    Ok(series)
}

/// Columns of a transfer: its first packets in the order in which they left, and what all of them
/// come to.
fn transfer(design: &Design) -> Result<Series> {
    let (sender, receiver) = run(design, FILE_BYTES)?;
    let data: Vec<_> = sender.log.iter().filter(|row| row.bytes > 0).collect();
    let first = || data.iter().take(24);
    let ms = |at: Time| at.as_nanos() as f64 / 1e6;
    let datagrams = f64::from(FILE_BYTES.div_ceil(DATAGRAM_BYTES));
    let begins = |from: u32| from.is_multiple_of(DATAGRAM_BYTES);
    // Whole ones begin and end with a packet.
    let whole = data.iter().filter(|row| begins(row.from) && row.bytes == DATAGRAM_BYTES).count() as f64;
    let short = data.iter().filter(|row| row.bytes < DATAGRAM_BYTES).count() as f64;
    let columns = [
        ("number", (1..=24).map(f64::from).collect()),
        ("at", first().map(|row| ms(row.at)).collect()),
        ("from", first().map(|row| f64::from(row.from) + 100.0).collect()),
        ("bytes", first().map(|row| row.bytes.into()).collect()),
        ("window", first().map(|row| row.window.into()).collect()),
        ("ack-number", (1..=16).map(f64::from).collect()),
        ("ack-at", receiver.log.iter().take(16).map(|row| ms(row.at)).collect()),
        ("ack-to", receiver.log.iter().take(16).map(|row| f64::from(row.to) + 100.0).collect()),
        ("ack-window", receiver.log.iter().take(16).map(|row| row.window.into()).collect()),
        ("packets", vec![data.len() as f64]),
        ("probes", vec![(sender.log.len() - data.len()) as f64]),
        ("short", vec![short]),
        ("fragmented", vec![(datagrams - whole) / datagrams]),
        ("acks", vec![receiver.log.len() as f64]),
        ("all", vec![(sender.log.len() + receiver.log.len()) as f64]),
        ("done", vec![f64::from(u8::from(receiver.done_at.is_some()))]),
    ];
    Ok(columns.into_iter().map(|(name, column)| (name.to_owned(), column)).collect())
}

#[allow(clippy::large_enum_variant, reason = "there are two of them")]
enum End {
    Sender(Sender),
    Receiver(Receiver, SocketAddrV4),
}

impl Application for End {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        match (self, packet.body) {
            (End::Sender(sender), Body::Blank { number, .. }) => {
                sender.on_ack(now, (number >> 32) as u32, number as u32);
            }
            (End::Receiver(receiver, _), Body::Blank { number, len }) => {
                receiver.on_data(now, number as u32, u32::from(len.saturating_sub(INNER_BYTES)));
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            End::Sender(sender) => sender.handle_timeout(now),
            End::Receiver(receiver, _) => receiver.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, _: Time) -> Option<Datagram> {
        match self {
            End::Sender(sender) => sender.poll(),
            End::Receiver(receiver, to) => {
                let (end, window) = receiver.poll()?;
                let number = u64::from(end) << 32 | u64::from(window);
                Some(Datagram { to: (*to).into(), ecn: None, body: Body::Blank { len: INNER_BYTES, number } })
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        match self {
            End::Sender(sender) => sender.poll_timeout(),
            End::Receiver(receiver, _) => receiver.poll_timeout(),
        }
    }
}

/// Carries a transfer of so many bytes out.
fn run(design: &Design, bytes: u32) -> Result<(Sender, Receiver)> {
    let mut topology = Topology::new();
    let [client, server] = [(); 2].map(|()| topology.node());
    topology.join(client, server, PathConfig::both(ETHERNET.parse()?));
    let mut network = Network::new(&topology, 1)?;
    network.set_headers(true);
    let at = |node| SocketAddrV4::new(Topology::address(node), PORT);
    let sender = Sender::new(design.sender, at(server).into(), bytes, BUFFER_BYTES);
    let receiver = Receiver::new(design.receiver, bytes);
    let from = network.attach(client, PORT, End::Sender(sender))?;
    let to = network.attach(server, PORT, End::Receiver(receiver, at(client)))?;
    let end = Time::ZERO + END;
    let is_open =
        |network: &Network<End>| matches!(network.app(from), End::Sender(sender) if sender.done_at.is_none());
    while network.now() < end && is_open(&network) {
        network.run_until(end.min(network.now() + Duration::from_secs(1)));
    }
    let (End::Sender(sender), End::Receiver(receiver, _)) = (network.app(from), network.app(to)) else {
        bail!("a sender and a receiver were attached");
    };
    Ok((sender.clone(), receiver.clone()))
}
