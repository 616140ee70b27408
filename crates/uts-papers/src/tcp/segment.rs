//! Segments as datagrams of the simulated network. They have the lengths of TCP's, with time
//! stamps, and a layout of their own: the network adds the 28 bytes of IPv4 and UDP headers.

use std::net::SocketAddr;
use uts_sim::packet::{Body, Datagram};

/// Headers of IP and TCP, time stamps (12 bytes) included.
pub const HEADER_BYTES: u16 = 52;
/// Of these, what is part of the UDP payload.
const INNER_BYTES: usize = 24;
/// A block of what has arrived behind a gap (RFC 2018), and the two bytes before the first, padded.
const BLOCK_BYTES: usize = 8;
const BLOCKS_HEADER_BYTES: usize = 4;
/// Blocks that fit beside time stamps (RFC 2018).
pub const BLOCKS_MAX: usize = 3;

/// A segment of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Position of its first byte.
    pub from: u32,
    /// Bytes of data.
    pub bytes: u16,
    /// The sender's clock, in its ticks.
    pub stamp: u32,
}

impl Data {
    /// The datagram that carries it.
    pub fn datagram(self, to: SocketAddr) -> Datagram {
        let number = u64::from(self.from) << 32 | u64::from(self.stamp);
        Datagram { to, ecn: None, body: Body::Blank { len: INNER_BYTES as u16 + self.bytes, number } }
    }

    /// The data that a datagram carries, if it is one of data.
    pub fn of(body: &Body) -> Option<Self> {
        let Body::Blank { len, number } = body else { return None };
        let bytes = len.checked_sub(INNER_BYTES as u16)?;
        Some(Data { from: (number >> 32) as u32, bytes, stamp: *number as u32 })
    }
}

/// A segment that acknowledges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// All before this position has arrived.
    pub to: u32,
    /// Bytes that may be sent beyond it.
    pub window: u32,
    /// The stamp that it answers.
    pub echo: u32,
    /// Blocks that have arrived beyond, the latest first.
    pub blocks: Vec<(u32, u32)>,
}

impl Ack {
    /// The datagram that carries it.
    pub fn datagram(&self, to: SocketAddr) -> Datagram {
        let mut bytes = Vec::with_capacity(INNER_BYTES);
        for word in [self.to, self.window, self.echo] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.resize(INNER_BYTES, 0);
        if !self.blocks.is_empty() {
            bytes.resize(INNER_BYTES + BLOCKS_HEADER_BYTES, 0);
        }
        for (from, end) in self.blocks.iter().take(BLOCKS_MAX) {
            bytes.extend(from.to_be_bytes());
            bytes.extend(end.to_be_bytes());
        }
        Datagram { to, ecn: None, body: Body::Bytes(bytes) }
    }

    /// The acknowledgement that a datagram carries, if it is one.
    pub fn of(body: &Body) -> Option<Self> {
        let Body::Bytes(bytes) = body else { return None };
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let blocks = bytes.get(INNER_BYTES + BLOCKS_HEADER_BYTES..).unwrap_or_default();
        let blocks = (0..blocks.len() / BLOCK_BYTES).filter_map(|n| {
            let at = INNER_BYTES + BLOCKS_HEADER_BYTES + n * BLOCK_BYTES;
            Some((word(at)?, word(at + 4)?))
        });
        Some(Ack { to: word(0)?, window: word(4)?, echo: word(8)?, blocks: blocks.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_as_long_as_one_of_tcp_and_comes_back() {
        let to = SocketAddr::from(([10, 0, 0, 1], 5001));
        let data = Data { from: 50_000_000, bytes: 1448, stamp: 77 };
        let datagram = data.datagram(to);
        // The network adds the headers of IP and UDP.
        assert_eq!(datagram.body.len() + 28, 1500);
        assert_eq!((Data::of(&datagram.body), Ack::of(&datagram.body)), (Some(data), None));
        let plain = Ack { to: 1448, window: 43_440, echo: 7, blocks: vec![] };
        let selective = Ack { blocks: vec![(5, 9), (20, 30), (40, 50)], ..plain.clone() };
        for (ack, bytes) in [(plain, 52), (selective, 80)] {
            let datagram = ack.datagram(to);
            assert_eq!(datagram.body.len() + 28, bytes);
            assert_eq!((Ack::of(&datagram.body), Data::of(&datagram.body)), (Some(ack), None));
        }
    }
}
