//! Packets of a group as values: what the sender says to all, and what a member asks of it. They
//! travel sealed (`seal.rs`). See `spec/groups.md`.

use crate::code::{PARITIES, SOURCES_MAX};
use bytes::Bytes;
use uts_functions::fec::SYMBOL_PREFIX_BYTES;
use uts_wire::{Problem, WireError};

/// The longest message, in bytes: a packet of it fits into 1500 bytes with the headers of UDP and
/// IPv6. (G-5)
pub const MESSAGE_BYTES_MAX: usize = 1328;

/// Bytes before the message in a source: its time.
pub const TIME_BYTES: usize = 4;

/// The longest source.
pub const SOURCE_BYTES_MAX: usize = TIME_BYTES + MESSAGE_BYTES_MAX;

/// The longest symbol of a parity: a source with its length before it.
const SYMBOL_BYTES_MAX: usize = SYMBOL_PREFIX_BYTES + SOURCE_BYTES_MAX;

/// Blocks that one request, or one advertisement, names at the most.
pub const ENTRIES_MAX: usize = 16;

/// Facts that each packet of the sender has. (G-6)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// The sender's clock as it sent this, in microseconds modulo 2^32.
    pub sent: u32,
    /// Round trip of the group, in a byte (RFC 5401 section 3.7.4).
    pub grtt: u8,
    /// The longest wait before a request, in round trips of the group.
    pub backoff: u8,
    /// Members of the group; 65,535 stands for more.
    pub members: u16,
    /// The first block that the sender still has.
    pub oldest: u32,
}

/// A packet of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromSender {
    /// Facts of each packet.
    pub advertised: Advertised,
    /// The rest.
    pub body: Body,
}

/// Contents of a packet of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A source of a block, for the first time or again. (G-7)
    Source {
        /// Its block.
        block: u32,
        /// Its place in the block.
        index: u8,
        /// Sources of the block before, which is closed; 0 if there is none.
        before: u8,
        /// Time and message.
        source: Bytes,
    },
    /// A parity of a block. (G-8)
    Parity {
        /// Its block, which is closed.
        block: u32,
        /// Sources of the block.
        count: u8,
        /// Number of the parity.
        parity: u8,
        /// Repairs of the block that follow this one without another request.
        more: u8,
        /// The sum.
        symbol: Bytes,
    },
    /// Progress of the sender, while it sends nothing else. (G-10)
    Status {
        /// The last closed block, and its sources; 0 sources if there is none.
        last: (u32, u8),
        /// Nothing follows.
        is_end: bool,
        /// Blocks of which repairs are on their way, and how many.
        repairs: Vec<(u32, u8)>,
    },
}

/// A request of a member. (G-14)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The sender's clock, from the last packet that came, with the time that has passed since.
    pub echo: u32,
    /// The highest number of a packet that came.
    pub seen: u64,
    /// Blocks of which something lacks.
    pub lacks: Vec<Lack>,
}

/// Lacks of a member in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The block.
    pub block: u32,
    /// Symbols, of any kind, that the member needs.
    pub needs: u8,
    /// Sources that it has not: bit `i` stands for source `i`.
    pub missing: u64,
}

/// Bytes before a body: its kind, and what is advertised.
const ADVERTISED_BYTES: usize = 1 + 12;

const SOURCE: u8 = 1;
const PARITY: u8 = 2;
const STATUS: u8 = 3;

impl Body {
    /// Length of a packet with this body, as [`FromSender::emit`] writes it.
    pub fn packet_bytes(&self) -> usize {
        ADVERTISED_BYTES
            + match self {
                Body::Source { source, .. } => 6 + source.len(),
                Body::Parity { symbol, .. } => 7 + symbol.len(),
                Body::Status { repairs, .. } => 6 + 5 * repairs.len().min(ENTRIES_MAX),
            }
    }
}

impl FromSender {
    /// Appends its bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let kind = match &self.body {
            Body::Source { .. } => SOURCE,
            Body::Parity { .. } => PARITY,
            Body::Status { .. } => STATUS,
        };
        let Advertised { sent, grtt, backoff, members, oldest } = self.advertised;
        out.push(kind);
        out.extend(sent.to_be_bytes());
        out.extend([grtt, backoff]);
        out.extend(members.to_be_bytes());
        out.extend(oldest.to_be_bytes());
        match &self.body {
            Body::Source { block, index, before, source } => {
                out.extend(block.to_be_bytes());
                out.extend([*index, *before]);
                out.extend_from_slice(source);
            }
            Body::Parity { block, count, parity, more, symbol } => {
                out.extend(block.to_be_bytes());
                out.extend([*count, *parity, *more]);
                out.extend_from_slice(symbol);
            }
            Body::Status { last: (block, count), is_end, repairs } => {
                out.extend(block.to_be_bytes());
                out.extend([*count, u8::from(*is_end)]);
                for (block, count) in repairs.iter().take(ENTRIES_MAX) {
                    out.extend(block.to_be_bytes());
                    out.push(*count);
                }
            }
        }
    }

    /// Reads what [`FromSender::emit`] has written.
    ///
    /// # Errors
    /// The field that breaks a rule.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Fields { bytes, at: 0 };
        let kind = r.byte("kind", SOURCE..=STATUS, "1 to 3")?;
        let advertised = Advertised {
            sent: r.u32("clock")?,
            grtt: r.byte("round trip", 0..=255, "")?,
            backoff: r.byte("backoff", 1..=BACKOFF_MAX, "1 to 32")?,
            members: r.u16("members")?,
            oldest: r.u32("oldest block")?,
        };
        let block = r.u32("block")?;
        let body = match kind {
            SOURCE => {
                let index = r.byte("index", 0..=SOURCES_MAX as u8 - 1, "0 to 63")?;
                let before = r.byte("sources before", 0..=SOURCES_MAX as u8, "0 to 64")?;
                Body::Source { block, index, before, source: r.rest("source", TIME_BYTES, SOURCE_BYTES_MAX)? }
            }
            PARITY => {
                let count = r.byte("sources", 1..=SOURCES_MAX as u8, "1 to 64")?;
                let parity = r.byte("parity", 0..=PARITIES as u8 - 1, "0 to 31")?;
                let more = r.byte("repairs that follow", 0..=255, "")?;
                let symbol = r.rest("parity", 2 + TIME_BYTES, SYMBOL_BYTES_MAX)?;
                Body::Parity { block, count, parity, more, symbol }
            }
            _ => {
                let count = r.byte("sources", 0..=SOURCES_MAX as u8, "0 to 64")?;
                let is_end = r.byte("end", 0..=1, "0 or 1")? == 1;
                let repairs =
                    r.entries(|r| Ok((r.u32("block")?, r.byte("repairs", 1..=255, "1 to 255")?)))?;
                Body::Status { last: (block, count), is_end, repairs }
            }
        };
        Ok(FromSender { advertised, body })
    }
}

/// The longest wait before a request that a sender may ask for, in round trips of the group.
pub const BACKOFF_MAX: u8 = 32;

impl Request {
    /// Appends its bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.echo.to_be_bytes());
        out.extend(self.seen.to_be_bytes());
        for lack in self.lacks.iter().take(ENTRIES_MAX) {
            out.extend(lack.block.to_be_bytes());
            out.push(lack.needs);
            out.extend(lack.missing.to_be_bytes());
        }
    }

    /// Reads what [`Request::emit`] has written.
    ///
    /// # Errors
    /// The field that breaks a rule.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Fields { bytes, at: 0 };
        let (echo, seen) = (r.u32("echo")?, r.u64("number seen")?);
        let lacks = r.entries(|r| {
            let (block, needs) = (r.u32("block")?, r.byte("needs", 1..=SOURCES_MAX as u8, "1 to 64")?);
            Ok(Lack { block, needs, missing: r.u64("missing sources")? })
        })?;
        Ok(Request { echo, seen, lacks })
    }
}

/// Fields of a packet, in turn.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let left = &self.bytes[self.at..];
        let Some(field) = left.first_chunk::<N>() else {
            let problem = Problem::Truncated { needed: N as u64, left: left.len() };
            return Err(WireError { what, at: self.at, problem });
        };
        self.at += N;
        Ok(*field)
    }

    fn byte(
        &mut self,
        what: &'static str,
        allowed: core::ops::RangeInclusive<u8>,
        expected: &'static str,
    ) -> Result<u8, WireError> {
        let [found] = self.take(what)?;
        if allowed.contains(&found) {
            return Ok(found);
        }
        Err(WireError { what, at: self.at - 1, problem: Problem::Value { found: found.into(), expected } })
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, WireError> {
        self.take(what).map(u16::from_be_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        self.take(what).map(u32::from_be_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, WireError> {
        self.take(what).map(u64::from_be_bytes)
    }

    /// All that is left, of a length within bounds.
    fn rest(&mut self, what: &'static str, min: usize, max: usize) -> Result<Bytes, WireError> {
        let left = &self.bytes[self.at..];
        let problem = match left.len() {
            length if length < min => Problem::Truncated { needed: min as u64, left: length },
            length if length > max => Problem::TooLong { found: length as u64, max: max as u64 },
            _ => return Ok(Bytes::copy_from_slice(left)),
        };
        Err(WireError { what, at: self.at, problem })
    }

    /// Entries up to the end.
    fn entries<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, WireError>) -> Result<Vec<T>, WireError> {
        let mut entries = Vec::new();
        while self.at < self.bytes.len() {
            if entries.len() == ENTRIES_MAX {
                let problem = Problem::TooLong { found: ENTRIES_MAX as u64 + 1, max: ENTRIES_MAX as u64 };
                return Err(WireError { what: "entries", at: self.at, problem });
            }
            entries.push(read(self)?);
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn advertised() -> Advertised {
        Advertised { sent: 7, grtt: 150, backoff: 6, members: 1000, oldest: 3 }
    }

    fn examples() -> Vec<Body> {
        vec![
            Body::Source { block: 9, index: 63, before: 16, source: vec![5; SOURCE_BYTES_MAX].into() },
            Body::Parity { block: 8, count: 64, parity: 31, more: 2, symbol: vec![1; 6].into() },
            Body::Status { last: (8, 0), is_end: true, repairs: vec![(1, 255); ENTRIES_MAX] },
        ]
    }

    #[test]
    fn packets_are_read_as_they_were_written_and_parts_of_them_are_not() {
        for body in examples() {
            let packet = FromSender { advertised: advertised(), body };
            let mut bytes = Vec::new();
            packet.emit(&mut bytes);
            assert_eq!(FromSender::parse(&bytes), Ok(packet.clone()));
            assert_eq!(packet.body.packet_bytes(), bytes.len());
            for end in 0..bytes.len() {
                assert_ne!(FromSender::parse(&bytes[..end]), Ok(packet.clone()));
            }
            bytes.extend([0; 4 + SOURCE_BYTES_MAX]);
            assert!(FromSender::parse(&bytes).is_err(), "{packet:?}");
        }
    }

    #[test]
    fn a_field_out_of_bounds_is_named() {
        let packet = FromSender { advertised: advertised(), body: examples().remove(1) };
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        for (at, value, says) in [
            (0, 4, "kind at byte 0: is 0x4, expected 1 to 3"),
            (6, 0, "backoff at byte 6: is 0x0, expected 1 to 32"),
            (17, 65, "sources at byte 17: is 0x41, expected 1 to 64"),
            (18, 32, "parity at byte 18: is 0x20, expected 0 to 31"),
        ] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(FromSender::parse(&wrong).expect_err("wrong").to_string(), says);
        }
    }

    proptest! {
        /// Whatever is read is what would have been written.
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 1u8..4) {
            if let Ok(request) = Request::parse(&bytes) {
                let mut again = Vec::new();
                request.emit(&mut again);
                prop_assert_eq!(&again, &bytes);
            }
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(packet) = FromSender::parse(&bytes) {
                let mut again = Vec::new();
                packet.emit(&mut again);
                prop_assert_eq!(&again, &bytes);
            }
        }
    }
}
