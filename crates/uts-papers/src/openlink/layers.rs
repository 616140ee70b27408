//! Throughput at the layers of a host (section 2.0, figures 1 to 4): packets of a size are sent as
//! fast as the layer takes them, where NIM, IP and TCP are three processes, and where they are one.
//!
//! The host has one processor. What each layer works for a packet the paper does not give, nor the
//! cost of a hand-over between two processes: [`WORK`] was chosen, and [`grid`] has others.

use super::BUFFER_BYTES;
use crate::paper::{Series, push};
use anyhow::{Context, Result};
use core::time::Duration;
use std::net::{SocketAddr, SocketAddrV4};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::cost::{Cost, Costs};
use uts_sim::network::{AppId, Application, Network};
use uts_sim::packet::{Body, Datagram, Packet};
use uts_sim::topology::{PointToPoint, Topology};

const PORT: u16 = 21;
/// Frames of Ethernet, from the shortest to the longest, in the steps of section 2.0.
const SHORTEST: u16 = 64;
const LONGEST: u16 = 1512;
const STEP: usize = 10;
/// Preamble, and the gap between two frames.
const GAP_BYTES: u16 = 20;
const ETHERNET_BPS: u64 = 10_000_000;
/// Packets that are counted, behind as many that are not.
const PACKETS: u64 = 100;
/// Send buffers of the interface: it transmits while the processor works.
const SEND_BUFFERS: u32 = 2;
/// Packets of the receiver's for one acknowledgement (figure 8).
const PACKETS_PER_ACK: u64 = 2;

/// A layer at which packets are handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    /// The interface module and the system below it.
    Ethernet,
    /// Connectionless, above it.
    Ip,
    /// With a window, above both.
    Tcp,
}

const LAYERS: [(&str, Layer); 3] = [("ethernet", Layer::Ethernet), ("ip", Layer::Ip), ("tcp", Layer::Tcp)];

/// Work for a packet, in microseconds, and what a hand-over takes.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Of the interface module, and of its copy of 1000 bytes.
    nim_us: u64,
    copy_us: u64,
    /// Of IP.
    ip_us: u64,
    /// Of TCP, for a packet or an acknowledgement, and of its checksum of 1000 bytes.
    tcp_us: u64,
    sum_us: u64,
    /// From one process to another.
    ipc_us: u64,
}

/// Chosen so that the smallest packets gain by about the 600 % of the introduction.
const WORK: Work = Work { nim_us: 300, copy_us: 600, ip_us: 30, tcp_us: 1500, sum_us: 150, ipc_us: 2500 };

impl Work {
    /// Costs of a host whose packets enter at a layer, in so many processes for all three layers.
    fn costs(&self, layer: Layer, is_one_process: bool) -> Costs {
        let us = Duration::from_micros;
        let (own_us, sum_us, processes) = match layer {
            Layer::Ethernet => (0, 0, 1),
            Layer::Ip => (self.ip_us, 0, 2),
            Layer::Tcp => (self.ip_us + self.tcp_us, self.sum_us, 3),
        };
        Costs {
            copy_in: Cost { packet: us(self.nim_us + own_us), kilobyte: us(self.copy_us + sum_us) },
            copy_out: Cost { packet: us(self.nim_us), kilobyte: us(self.copy_us) },
            receive: Cost { packet: us(own_us), kilobyte: us(sum_us) },
            processes: if is_one_process { 1 } else { processes },
            ipc: Cost::fixed(us(self.ipc_us)),
            rate_bps: Some(ETHERNET_BPS),
            send_buffers: Some(SEND_BUFFERS),
            send_queue: Some(SEND_BUFFERS),
            ..Costs::default()
        }
    }

    /// Packets of so many bytes a second that leave.
    fn rate(&self, layer: Layer, is_one_process: bool, bytes: u16) -> Result<f64> {
        let PointToPoint { topology, hosts, .. } = PointToPoint::new(PathConfig::default());
        let mut network = Network::new(&topology, 1)?;
        network.set_costs(hosts[0], self.costs(layer, is_one_process))?;
        let [from, to] = hosts.map(|host| SocketAddrV4::new(Topology::address(host), PORT));
        let acks_to = (layer == Layer::Tcp).then_some(SocketAddr::from(from));
        let window = acks_to.map_or(u64::MAX, |_| u64::from(BUFFER_BYTES) / u64::from(bytes));
        let source = End::Source { to: to.into(), bytes, window, sent: 0, acknowledged: 0 };
        network.attach(hosts[0], PORT, source)?;
        let sink =
            network.attach(hosts[1], PORT, End::Sink { acks_to, arrived: 0, due: 0, between: [None; 2] })?;
        let ended = |network: &Network<End>, sink: AppId| match network.app(sink) {
            End::Sink { between: [Some(from), Some(to)], .. } => Some(to.since(*from)),
            _ => None,
        };
        let took = loop {
            network.run_until(network.now() + Duration::from_secs(1));
            if let Some(took) = ended(&network, sink) {
                break took;
            }
            let is_late = network.now() > Time::ZERO + Duration::from_secs(600);
            (!is_late).then_some(()).context("packets do not get through")?;
        };
        Ok(PACKETS as f64 / took.as_secs_f64())
    }
}

/// One end of a test.
enum End {
    /// Sends as fast as its host and its window let it.
    Source { to: SocketAddr, bytes: u16, window: u64, sent: u64, acknowledged: u64 },
    /// Counts, and says when the first packet that counts arrived, and the last.
    Sink { acks_to: Option<SocketAddr>, arrived: u64, due: u64, between: [Option<Time>; 2] },
}

impl Application for End {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        match self {
            End::Source { acknowledged, .. } => {
                if let Body::Blank { number, .. } = packet.body {
                    *acknowledged = number;
                }
            }
            End::Sink { acks_to, arrived, due, between } => {
                *arrived += 1;
                *due += u64::from(acks_to.is_some() && arrived.is_multiple_of(PACKETS_PER_ACK));
                for (at, count) in between.iter_mut().zip([PACKETS, 2 * PACKETS]) {
                    if *arrived == count {
                        *at = Some(now);
                    }
                }
            }
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time) -> Option<Datagram> {
        let blank = |to: SocketAddr, bytes: u16, number| Datagram {
            to,
            ecn: None,
            body: Body::Blank { len: bytes + GAP_BYTES, number },
        };
        match self {
            End::Source { to, bytes, window, sent, acknowledged } => {
                // A few more than are counted, so that the last of these is acknowledged as any.
                if *sent - *acknowledged >= *window || *sent >= 3 * PACKETS {
                    return None;
                }
                *sent += 1;
                Some(blank(*to, *bytes, *sent))
            }
            End::Sink { acks_to, arrived, due, .. } => {
                *due = due.checked_sub(1)?;
                Some(blank((*acks_to)?, SHORTEST, *arrived))
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}

/// Packets and kilobytes a second at each layer, for all sizes.
pub(super) fn sweep(is_one_process: bool) -> Result<Series> {
    let sizes = || (SHORTEST..LONGEST).step_by(STEP).chain([LONGEST]);
    let mut series = Series::from([("bytes".into(), sizes().map(f64::from).collect())]);
    for (name, layer) in LAYERS {
        let rates = sizes().map(|bytes| WORK.rate(layer, is_one_process, bytes));
        let rates = rates.collect::<Result<Vec<_>>>()?;
        let kilobytes = sizes().zip(&rates).map(|(bytes, rate)| f64::from(bytes) * rate / 1000.0).collect();
        series.insert(format!("{name}-kilobytes"), kilobytes);
        series.insert(name.into(), rates);
    }
    Ok(series)
}

/// Other amounts of work, with IP's own a tenth of the interface module's, or (`own` is 1) as much
/// as a hand-over takes elsewhere, and no cost of hand-overs: with which of them figure 1 comes
/// out, and figure 3 besides.
pub(super) fn grid() -> Result<Series> {
    let mut series = Series::new();
    for (is_own, [nim_us, copy_us, tcp_us, ipc_us]) in all_work() {
        let (ip_us, ipc_us) = if is_own { (ipc_us, 0) } else { (nim_us / 10, ipc_us) };
        let work = Work { nim_us, copy_us, ip_us, tcp_us, ipc_us, ..WORK };
        let rates = |is_one| -> Result<Vec<[f64; 2]>> {
            let both = |layer| -> Result<[f64; 2]> {
                Ok([work.rate(layer, is_one, SHORTEST)?, work.rate(layer, is_one, LONGEST)?])
            };
            LAYERS.iter().map(|(_, layer)| both(*layer)).collect()
        };
        let (three, one) = (rates(false)?, rates(true)?);
        let kept = |rates: &[f64; 2]| rates[1] / rates[0];
        let is_1 = kept(&three[0]) < 0.5 && three[1..].iter().all(|rates| kept(rates) > 0.7);
        let is_joined = one[1].iter().zip(&one[0]).all(|(ip, ethernet)| ip / ethernet > 0.9);
        let is_better = one[2].iter().zip(&three[2]).all(|(after, before)| after / before > 1.2);
        let is_3 = is_joined && is_better && kept(&one[2]) > kept(&one[1]);
        // What a copy of the longest packet takes beside the shortest.
        let copy_us = work.copy_us as f64 * f64::from(LONGEST - SHORTEST) / 1000.0;
        push(
            &mut series,
            [
                ("own", f64::from(u8::from(is_own))),
                ("is-1", f64::from(u8::from(is_1))),
                ("is-both", f64::from(u8::from(is_1 && is_3))),
                ("copies", if is_1 { work.ipc_us as f64 / copy_us } else { f64::MAX }),
            ],
        );
    }
    Ok(series)
}

/// Work of the interface module, of its copy, of TCP, and the cost of a hand-over, which IP's own
/// work may stand for.
fn all_work() -> impl Iterator<Item = (bool, [u64; 4])> {
    let all = |values: &'static [u64]| values.iter().copied();
    [false, true].into_iter().flat_map(move |is_own| {
        all(&[100, 300, 1000]).flat_map(move |nim| {
            all(&[300, 600, 1200]).flat_map(move |copy| {
                all(&[500, 1500, 4500]).flat_map(move |tcp| {
                    all(&[600, 1200, 2500, 5000, 10_000]).map(move |ipc| (is_own, [nim, copy, tcp, ipc]))
                })
            })
        })
    })
}
