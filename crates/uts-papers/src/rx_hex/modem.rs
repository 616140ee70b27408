//! Figure 18: transfers over modems. A host's interface of 19,200 bit/s and the modems' line behind
//! it are two lines, which both take ten bit times for a byte and both carry frames of SLIP with
//! compressed headers. The modems' own compression (V.42bis) is a faster line: by how much a file
//! can be compressed.

use super::design::{Design, Timers};
use super::protocol::Headers;
use super::world::{Line, Session, over_line};
use super::{END, SMALL};
use crate::paper::{Series, push};
use crate::tcp::receiver::{self, Prune, Receiver};
use crate::tcp::segment::{Ack, Data};
use crate::tcp::sender::{self, Partial, Sender};
use anyhow::{Context, Result, ensure};
use core::time::Duration;
use etherparse::{Ipv4HeaderSlice, PacketBuilder};
use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use uts_functions::Time;
use uts_path::{Link, Payload};

/// Bits per second of the interface.
const INTERFACE_BPS: u64 = 19_200;
/// Bits per second of the modems' line, with ten for a byte: 1724 bytes a second (section 8).
const LINE_BPS: u64 = 17_240;
/// Files: their bytes, and by how many per cent a modem compresses them. The paper does not say the
/// latter. From 11 % on the interface is slower than the line, and all figures are the same.
pub(super) const FILES: [(&str, u32, u64); 4] = [
    ("vmunix-z", 697_180, 0),
    ("vmunix", 1_036_474, 30),
    ("troffsrc", 266_949, 50),
    ("tenrisks", 241_202, 50),
];
/// Compressions, in per cent, that are tried for the one from which on the line is fast enough, and
/// bytes of these transfers.
const COMPRESSIONS: core::ops::RangeInclusive<u64> = 0..=20;
const TRIED_BYTES: u32 = 100_000;
/// Packets that fit in front of either line: more than a window.
const QUEUE_PACKETS: u32 = 1000;

/// Bytes of data in a segment of FTP: an MTU of 576.
const SEGMENT_BYTES: u16 = 536;
/// TCP of 4.3BSD: slow start, fast recovery, an acknowledgement for each second segment.
const SENDER: sender::Rules = sender::Rules {
    segment_bytes: SEGMENT_BYTES,
    initial: 1,
    partial: Partial::Ends,
    repeats_grow: true,
    selective: false,
};
const RECEIVER: receiver::Rules = receiver::Rules {
    buffer_bytes: 8192,
    packet_bytes: SEGMENT_BYTES as u32,
    segment_bytes: SEGMENT_BYTES,
    prune: Prune::Off,
    delay_ticks: 20,
    selective: false,
};

/// A transfer of each column of the figure, in bytes per second: Rx without and with compressed
/// headers, and FTP.
pub(super) fn file(bytes: u32, compressed_percent: u64) -> Result<Series> {
    let line_bps = LINE_BPS * 100 / (100 - compressed_percent);
    let mut series = Series::new();
    push(
        &mut series,
        [
            ("rtt", rx("off", line_bps, bytes)?),
            ("hdr", rx("rx", line_bps, bytes)?),
            ("ftp", ftp(line_bps, bytes)?),
        ],
    );
    Ok(series)
}

/// Throughput by how many per cent the modems compress, and what one per cent more gains.
pub(super) fn compressions() -> Result<Series> {
    let mut series = Series::new();
    let speed = |percent: u64| rx("rx", LINE_BPS * 100 / (100 - percent), TRIED_BYTES);
    let mut next = speed(*COMPRESSIONS.start())?;
    for percent in COMPRESSIONS {
        let here = core::mem::replace(&mut next, speed(percent + 1)?);
        push(&mut series, [("percent", percent as f64), ("speed", here), ("gain", next - here)]);
    }
    Ok(series)
}

/// Bytes per second of a fetch by Rx as the paper leaves it.
fn rx(compression: &'static str, line_bps: u64, bytes: u32) -> Result<f64> {
    let line = Line {
        rate_bps: INTERFACE_BPS,
        behind_bps: Some(line_bps),
        queue_packets: QUEUE_PACKETS,
        compression,
        ..Line::SLIP
    };
    let headers = Headers::Written { verifier: 0xbeef };
    let session = Session { bytes, headers, ..Session::new(Design::hex(Timers::Restarted)?, SMALL) };
    let (outcomes, stats) = over_line(&line, &[session], END)?;
    ensure!(stats.restored_wrong == 0 && stats.dropped() == 0, "nothing is lost here: {stats:?}");
    let took_s = outcomes.first().and_then(|outcome| outcome.took_s()).context("the transfer is not done")?;
    Ok(f64::from(bytes) / took_s)
}

// ---- FTP ----

/// A segment as it is on the line, and beside it what the model of TCP says in it.
#[derive(Clone, Debug)]
struct Segment<T> {
    bytes: Vec<u8>,
    said: T,
}

impl<T: Clone> Payload for Segment<T> {
    fn flip_bit(&mut self, bit: usize) {
        self.bytes.flip_bit(bit);
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }

    fn ip(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(&self.bytes))
    }
}

/// Two lines in a row, as one way of a connection.
struct Way<T> {
    links: [Link<Segment<T>>; 2],
    identification: u16,
    is_from_server: bool,
}

impl<T: Clone> Way<T> {
    fn new(rates_bps: [u64; 2], is_from_server: bool) -> Result<Self> {
        let link = |rate_bps: u64| {
            let text = format!("rate={rate_bps}bit framing=slip compress=vj buffer={QUEUE_PACKETS}p");
            Ok::<_, anyhow::Error>(Link::new(text.parse()?, 1)?)
        };
        let [near, far] = rates_bps;
        Ok(Way { links: [link(near)?, link(far)?], identification: 0, is_from_server })
    }

    /// Sends a segment with these numbers, without options.
    fn send(
        &mut self,
        now: Time,
        (sequence, ack, window): (u32, u32, u16),
        data: u16,
        said: T,
    ) -> Result<()> {
        let (server, client) = (([10, 0, 0, 1], 20), ([10, 0, 0, 2], 1025));
        let (from, to) = if self.is_from_server { (server, client) } else { (client, server) };
        let mut bytes = Vec::new();
        PacketBuilder::ipv4(from.0, to.0, 30)
            .tcp(from.1, to.1, sequence, window)
            .ack(ack)
            .write(&mut bytes, &vec![0; data.into()])?;
        let mut ip = Ipv4HeaderSlice::from_slice(&bytes)?.to_header();
        (ip.identification, ip.dont_fragment) = (self.identification, false);
        ip.header_checksum = ip.calc_header_checksum();
        bytes[..20].copy_from_slice(&ip.to_bytes());
        self.identification = self.identification.wrapping_add(1);
        let len = bytes.len();
        self.links[0].send(now.as_nanos(), Segment { bytes, said }, len);
        Ok(())
    }

    /// The next segment that has arrived by now.
    fn poll(&mut self, now: Time) -> Option<T> {
        let [near, far] = &mut self.links;
        while let Some(delivery) = near.poll_delivery(now.as_nanos()) {
            far.send(delivery.due_ns, delivery.payload, delivery.len);
        }
        far.poll(now.as_nanos()).map(|segment| segment.said)
    }

    fn next(&self) -> Option<Time> {
        self.links.iter().filter_map(|link| link.next_ns()).min().map(Time::from_nanos)
    }
}

/// Bytes per second of a transfer by FTP over TCP with compressed headers.
fn ftp(line_bps: u64, bytes: u32) -> Result<f64> {
    let mut down: Way<Data> = Way::new([INTERFACE_BPS, line_bps], true)?;
    let mut up: Way<Ack> = Way::new([line_bps, INTERFACE_BPS], false)?;
    let mut receiver = Receiver::new(RECEIVER, bytes);
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 1025));
    let mut sender = Sender::new(SENDER, to, bytes, receiver.window());
    let (mut now, end) = (Time::ZERO, Time::ZERO + END);
    sender.handle_timeout(now);
    while receiver.done_at.is_none() {
        while let Some(data) = down.poll(now) {
            receiver.on_data(now, data);
        }
        while let Some(ack) = up.poll(now) {
            sender.on_ack(now, &ack);
        }
        while let Some(ack) = receiver.poll() {
            let window = u16::try_from(ack.window).unwrap_or(u16::MAX);
            up.send(now, (1, 1 + ack.to, window), 0, ack)?;
        }
        while let Some(data) = sender.poll(now).and_then(|datagram| Data::of(&datagram.body)) {
            down.send(now, (1 + data.from, 1, 4096), data.bytes, data)?;
        }
        let due = [down.next(), up.next(), sender.poll_timeout(), receiver.poll_timeout()];
        let next = due.into_iter().flatten().min().context("nothing is due, and nothing is done")?;
        ensure!(next <= end, "the transfer is not done after {} s", END.as_secs());
        now = now.max(next);
        if sender.poll_timeout().is_some_and(|at| at <= now) {
            sender.handle_timeout(now);
        }
        if receiver.poll_timeout().is_some_and(|at| at <= now) {
            receiver.handle_timeout(now);
        }
    }
    let took = receiver.done_at.context("it is done")?.since(Time::ZERO);
    ensure!(took > Duration::ZERO, "a transfer takes time");
    let compressed: u64 = down.links.iter().map(|link| link.stats().compressed_headers).sum();
    ensure!(compressed > 0, "headers were compressed");
    Ok(f64::from(bytes) / took.as_secs_f64())
}
