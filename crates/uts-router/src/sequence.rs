//! TCP as RouterPC reads it: positions that count from 0 and do not wrap, windows in bytes.

use super::frame::{ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use super::topology::host_of;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const PROTOCOL_TCP: u8 = 6;
const OPTION_WINDOW_SCALE: u8 = 3;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const ECE: u8 = 64;
const CWR: u8 = 128;

/// Sequence numbers and window scale of one end of a flow.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    /// Its first number, and the latest with its position.
    sequence: Option<(u32, i64)>,
    scale: Option<u8>,
}

impl Side {
    /// The position of a number: the one next to the latest.
    fn position(&mut self, number: u32) -> i64 {
        let (latest, position) = *self.sequence.get_or_insert((number, 0));
        let position = position + i64::from(number.wrapping_sub(latest).cast_signed());
        self.sequence = Some((number, position));
        position
    }
}

/// The flows seen so far.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// By the address and port of the host of the lower number, then of the other.
    flows: BTreeMap<(SocketAddr, SocketAddr), [Side; 2]>,
}

/// A row of `sequence.csv`, less its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub flow: (SocketAddr, SocketAddr),
    pub forward: bool,
    pub seq: i64,
    pub ack: Option<i64>,
    pub window: u64,
    pub len: usize,
    pub flags: u8,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = self.flow;
        let dir = if self.forward { "fwd" } else { "bwd" };
        write!(f, "{a}-{b},{dir},{},", self.seq)?;
        if let Some(ack) = self.ack {
            write!(f, "{ack}")?;
        }
        write!(f, ",{},{},", self.window, self.len)?;
        let letters = [(SYN, 'S'), (FIN, 'F'), (RST, 'R'), (PSH, 'P'), (ACK, 'A'), (ECE, 'E'), (CWR, 'C')];
        letters
            .iter()
            .filter(|(bit, _)| self.flags & bit != 0)
            .try_for_each(|(_, letter)| write!(f, "{letter}"))
    }
}

impl Sequences {
    /// Reads an Ethernet frame. `None` if it carries no TCP segment, or only a later fragment of
    /// one. Only headers are needed.
    pub(super) fn row(&mut self, frame: &[u8]) -> Option<Row> {
        let from_host = frame.get(6..12).and_then(|a| host_of(a.try_into().ok()?))?;
        let to_host = frame.first_chunk::<6>().and_then(|&a| host_of(a))?;
        let forward = from_host < to_host;
        let (from, to, tcp, tcp_bytes) = addresses(frame)?;
        let header_bytes = usize::from(tcp.get(12)? >> 4) * 4;
        let number = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
        let (seq, ack, flags) = (number(4)?, number(8)?, *tcp.get(13)?);
        let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let (from, to) = (SocketAddr::new(from, port(0)?), SocketAddr::new(to, port(2)?));
        let window = port(14)?;
        let flow = if forward { (from, to) } else { (to, from) };
        let fresh = flags & (SYN | ACK) == SYN;
        let sides = self.flows.entry(flow).or_default();
        if fresh {
            // Ports are used again.
            let known = sides[usize::from(!forward)].sequence.is_some_and(|(latest, position)| {
                position == 0 && latest == seq // the SYN once more
            });
            if !known {
                *sides = Default::default();
            }
        }
        let (own, other) = if forward { (0, 1) } else { (1, 0) };
        if flags & SYN != 0 {
            sides[own].scale = Some(window_scale(tcp.get(20..header_bytes)?).unwrap_or(0));
        }
        // It takes both ends to scale (RFC 7323), and a SYN's own window never is.
        let scale = match (sides[own].scale, sides[other].scale) {
            (Some(scale), Some(_)) if flags & SYN == 0 => scale.min(14),
            _ => 0,
        };
        Some(Row {
            flow,
            forward,
            seq: sides[own].position(seq),
            ack: (flags & ACK != 0).then(|| sides[other].position_of_ack(ack)),
            window: u64::from(window) << scale,
            len: tcp_bytes.checked_sub(header_bytes)?,
            flags,
        })
    }
}

impl Side {
    /// As [`position`](Self::position), without taking it for something that this side has sent.
    fn position_of_ack(&mut self, number: u32) -> i64 {
        let (latest, position) = *self.sequence.get_or_insert((number, 0));
        position + i64::from(number.wrapping_sub(latest).cast_signed())
    }
}

/// Addresses, what there is of the TCP segment, and its whole length.
fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr, &[u8], usize)> {
    let ip = frame.get(ETHERNET_BYTES..)?;
    match u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]) {
        ETHERTYPE_IPV4 => {
            let header_bytes = usize::from(ip.first()? & 15) * 4;
            let later_fragment = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x1fff != 0;
            if *ip.get(9)? != PROTOCOL_TCP || later_fragment {
                return None;
            }
            let address = |at: usize| -> Option<IpAddr> {
                let octets: [u8; 4] = ip.get(at..at + 4)?.try_into().ok()?;
                Some(Ipv4Addr::from(octets).into())
            };
            let whole = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
            Some((address(12)?, address(16)?, ip.get(header_bytes..)?, whole.checked_sub(header_bytes)?))
        }
        ETHERTYPE_IPV6 => {
            if *ip.get(6)? != PROTOCOL_TCP {
                return None;
            }
            let address = |at: usize| -> Option<IpAddr> {
                let octets: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
                Some(Ipv6Addr::from(octets).into())
            };
            let whole = usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]));
            Some((address(8)?, address(24)?, ip.get(40..)?, whole))
        }
        _ => None,
    }
}

fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        match options {
            [] | [0, ..] => return None,
            [1, rest @ ..] => options = rest,
            [OPTION_WINDOW_SCALE, 3, scale, ..] => return Some(*scale),
            [_, len, ..] => options = options.get(usize::from(*len).max(2)..)?,
            [_] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::topology::{ethernet_of, ipv4_of};
    use super::*;

    struct Segment {
        from: usize,
        seq: u32,
        ack: Option<u32>,
        flags: u8,
        window: u16,
        options: &'static [u8],
        len: usize,
    }

    const PLAIN: Segment =
        Segment { from: 0, seq: 0, ack: None, flags: 0, window: 100, options: &[], len: 0 };

    fn frame(segment: &Segment) -> Vec<u8> {
        let (from, to) = (segment.from, 1 - segment.from);
        let mut bytes = [ethernet_of(to), ethernet_of(from)].concat();
        bytes.extend_from_slice(&[8, 0]);
        let tcp_bytes = 20 + segment.options.len();
        let total = u16::try_from(20 + tcp_bytes + segment.len).unwrap().to_be_bytes();
        bytes.extend_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, PROTOCOL_TCP, 0, 0]);
        bytes.extend_from_slice(&ipv4_of(from).octets());
        bytes.extend_from_slice(&ipv4_of(to).octets());
        let ports = [[3u8, 232], [0, 80]];
        bytes.extend_from_slice(&ports[from]);
        bytes.extend_from_slice(&ports[to]);
        bytes.extend_from_slice(&segment.seq.to_be_bytes());
        bytes.extend_from_slice(&segment.ack.unwrap_or(0).to_be_bytes());
        let flags = segment.flags | if segment.ack.is_some() { ACK } else { 0 };
        bytes.extend_from_slice(&[u8::try_from(tcp_bytes * 4).unwrap(), flags]);
        bytes.extend_from_slice(&segment.window.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(segment.options);
        bytes
    }

    #[test]
    fn a_connection_is_read_from_its_syn_across_the_wrap() {
        let mut sequences = Sequences::default();
        let mut row = |segment: Segment| sequences.row(&frame(&segment)).unwrap().to_string();
        let start = u32::MAX - 10;
        let scale: &[u8] = &[2, 4, 5, 180, 1, OPTION_WINDOW_SCALE, 3, 7];
        let syn = Segment { seq: start, flags: SYN, options: scale, ..PLAIN };
        let flow = "10.77.0.1:1000-10.77.0.2:80";
        assert_eq!(row(syn), format!("{flow},fwd,0,,100,0,S"));
        let answer = Segment { from: 1, seq: 7, ack: Some(start + 1), flags: SYN, options: scale, ..PLAIN };
        assert_eq!(row(answer), format!("{flow},bwd,0,1,100,0,SA"));
        let data = Segment { seq: start + 1, ack: Some(8), flags: PSH, len: 100, ..PLAIN };
        assert_eq!(row(data), format!("{flow},fwd,1,1,12800,100,PA"));
        let beyond = start.wrapping_add(101);
        let more = Segment { seq: beyond, ack: Some(8), len: 1400, ..PLAIN };
        assert_eq!(row(more), format!("{flow},fwd,101,1,12800,1400,A"));
        let ack = Segment { from: 1, seq: 8, ack: Some(beyond.wrapping_add(1400)), ..PLAIN };
        assert_eq!(row(ack), format!("{flow},bwd,1,1501,12800,0,A"));
        let again = Segment { seq: start + 1, ack: Some(8), len: 100, ..PLAIN };
        assert_eq!(row(again), format!("{flow},fwd,1,1,12800,100,A"), "a repetition");
        let new = Segment { seq: 99, flags: SYN, ..PLAIN };
        assert_eq!(row(new), format!("{flow},fwd,0,,100,0,S"), "the same ports again");
    }

    #[test]
    fn what_is_not_tcp_has_no_row() {
        let mut bytes = frame(&PLAIN);
        bytes[14 + 9] = 17;
        assert_eq!(Sequences::default().row(&bytes), None);
        let whole = frame(&PLAIN);
        for len in 0..whole.len() {
            let _ = Sequences::default().row(&whole[..len]);
        }
    }
}
