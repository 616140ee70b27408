//! The body of an establishment packet: a chain of function headers, data, padding, and trailers
//! back to front. [P-11] to [P-15]

use crate::error::{Problem, WireError};
use crate::varint::{Reader, Sink, clip, emitters};
use core::ops::Range;
use smallvec::SmallVec;

/// The most function headers in a chain. [P-12]
pub const MAX_HEADERS: usize = 16;

/// The most ranges in an acknowledgement header. [P-14]
pub const MAX_RANGES: usize = 16;

/// The longest reason in a close header, in bytes: a trailer's length is one byte. [P-15]
pub const MAX_REASON_BYTES: usize = 255;

const WORD_BYTES: u64 = 4;
const ESTABLISHMENT: u8 = 0;
const ACKNOWLEDGEMENT: u8 = 6;
const PING: u8 = 0x20;
const CLOSE: u8 = 0x21;

/// Content of an establishment packet, once its protection is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EstablishmentBody<'a> {
    /// Its function headers, with the data and trailers that belong to them.
    pub chain: HeaderChain<'a>,
    /// Zeros between the data and the trailers.
    pub padding: usize,
}

/// Function headers, each known one at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChain<'a> {
    headers: SmallVec<[FunctionHeader<'a>; 4]>,
}

/// A function header with what belongs to it. [P-13]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionHeader<'a> {
    /// Handshake bytes of the packet's level.
    Establishment {
        /// Position of the first byte in the level's stream; the end stays within 32 bits.
        crypto_offset: u32,
        /// The packet's data: up to 65,535 bytes.
        crypto: &'a [u8],
    },
    /// Establishment packets of the same level that arrived.
    Acknowledgement {
        /// Microseconds between the arrival of the largest and this packet.
        delay_us: u32,
        /// Packet numbers below 2^32, from the largest down; none empty and no two touching. 1 to
        /// [`MAX_RANGES`] ranges are sent. From the first that breaks these rules, or is longer or
        /// farther than 16 bits can say, none are.
        ranges: SmallVec<[Range<u64>; 2]>,
    },
    /// Asks for nothing but an acknowledgement.
    Ping,
    /// Ends the attempt to connect.
    Close {
        /// Why, for programs.
        code: u16,
        /// Why, for people; what is over [`MAX_REASON_BYTES`] is not sent.
        reason: &'a str,
    },
    /// A function or mechanism that this version does not know; it is skipped.
    Unknown {
        /// The function's number.
        function: u8,
        /// The mechanism's number.
        mechanism: u8,
        /// Its fields: up to 1,016 bytes, a multiple of 4.
        fields: &'a [u8],
        /// Its trailer: up to 255 bytes.
        trailer: &'a [u8],
    },
}

impl<'a> FunctionHeader<'a> {
    /// The numbers of function and mechanism.
    pub const fn number(&self) -> (u8, u8) {
        match self {
            FunctionHeader::Establishment { .. } => (ESTABLISHMENT, 0),
            FunctionHeader::Acknowledgement { .. } => (ACKNOWLEDGEMENT, 0),
            FunctionHeader::Ping => (PING, 0),
            FunctionHeader::Close { .. } => (CLOSE, 0),
            FunctionHeader::Unknown { function, mechanism, .. } => (*function, *mechanism),
        }
    }

    /// True if the receiver has to acknowledge a packet with this header. [P-22]
    pub const fn elicits_ack(&self) -> bool {
        matches!(self, FunctionHeader::Establishment { .. } | FunctionHeader::Ping)
    }

    fn trailer(&self) -> &'a [u8] {
        match self {
            FunctionHeader::Close { reason, .. } => clip(reason, MAX_REASON_BYTES).as_bytes(),
            FunctionHeader::Unknown { trailer, .. } => trailer,
            _ => &[],
        }
    }

    fn data(&self) -> &'a [u8] {
        match self {
            FunctionHeader::Establishment { crypto, .. } => crypto,
            _ => &[],
        }
    }

    fn write<S: Sink>(&self, out: &mut S) {
        let (function, mechanism) = self.number();
        let trailer_len = self.trailer().len() as u8;
        match self {
            FunctionHeader::Establishment { crypto_offset, crypto } => {
                out.put(&[3, function, mechanism, trailer_len]);
                out.put_u32(*crypto_offset);
                out.put_u16(0);
                out.put_u16(crypto.len() as u16);
            }
            FunctionHeader::Acknowledgement { delay_us, ranges } => {
                let pairs = range_pairs(ranges);
                let Some(largest) = ranges.first().filter(|_| !pairs.is_empty()) else { return };
                out.put(&[pairs.len() as u8 + 3, function, mechanism, trailer_len]);
                out.put_u32(largest.end.saturating_sub(1) as u32);
                out.put_u32(*delay_us);
                for (gap, len) in pairs {
                    out.put_u16(gap);
                    out.put_u16(len);
                }
            }
            FunctionHeader::Ping => out.put(&[1, function, mechanism, trailer_len]),
            FunctionHeader::Close { code, .. } => {
                out.put(&[2, function, mechanism, trailer_len]);
                out.put_u16(*code);
                out.put_u16(0);
            }
            FunctionHeader::Unknown { fields, .. } => {
                out.put(&[(fields.len() / 4) as u8 + 1, function, mechanism, trailer_len]);
                out.put(fields);
            }
        }
    }
}

/// Gap and length of each range that can travel. [P-14]
fn range_pairs(ranges: &[Range<u64>]) -> SmallVec<[(u16, u16); MAX_RANGES]> {
    let mut pairs = SmallVec::new();
    let mut smallest = None;
    for range in ranges.iter().take(MAX_RANGES) {
        let gap = match smallest {
            None if range.end <= 1 << 32 => Some(0),
            None => None,
            Some(above) => u64::checked_sub(above, range.end).and_then(|unseen| unseen.checked_sub(1)),
        };
        let len = range.end.checked_sub(range.start).and_then(|count| count.checked_sub(1));
        let pair = gap.zip(len).map(|(gap, len)| (u16::try_from(gap), u16::try_from(len)));
        let Some((Ok(gap), Ok(len))) = pair else { break };
        pairs.push((gap, len));
        smallest = Some(range.start);
    }
    pairs
}

impl<'a> HeaderChain<'a> {
    /// A chain without headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The headers, in the order in which they travel.
    pub fn headers(&self) -> &[FunctionHeader<'a>] {
        &self.headers
    }

    /// Adds a header.
    ///
    /// # Errors
    /// `Duplicate` for a second of the same number. `TooLong` over [`MAX_HEADERS`] or for parts
    /// over their bounds. `Value` for an unknown header whose fields are no multiple of 4 or whose
    /// number is a known one's. The error's place is the number of headers before it.
    pub fn push(&mut self, header: FunctionHeader<'a>) -> Result<(), WireError> {
        let at = self.headers.len();
        match &header {
            FunctionHeader::Establishment { crypto, crypto_offset } => {
                check_len("crypto length", at, crypto.len(), 65_535)?;
                check_crypto_end(at, *crypto_offset, crypto.len() as u64)?;
            }
            FunctionHeader::Unknown { function, mechanism, fields, trailer } => {
                check_len("function header fields", at, fields.len(), 254 * 4)?;
                check_len("function header trailer", at, trailer.len(), 255)?;
                if !fields.len().is_multiple_of(4) {
                    let found = fields.len() as u64;
                    return Err(WireError::value(
                        "function header fields",
                        at,
                        found,
                        "a multiple of 4 bytes",
                    ));
                }
                if is_known(*function, *mechanism) {
                    let found = u64::from(*function);
                    return Err(WireError::value("function", at, found, "a number without meaning"));
                }
            }
            _ => {}
        }
        self.add(header, at)
    }

    fn add(&mut self, header: FunctionHeader<'a>, at: usize) -> Result<(), WireError> {
        if self.headers.len() >= MAX_HEADERS {
            let found = self.headers.len() as u64 + 1;
            return Err(WireError::too_long("function headers", at, found, MAX_HEADERS as u64)); // P-12
        }
        if self.headers.iter().any(|other| other.number() == header.number()) {
            return Err(WireError::new("function header", at, Problem::Duplicate)); // P-12
        }
        self.headers.push(header);
        Ok(())
    }
}

const fn is_known(function: u8, mechanism: u8) -> bool {
    mechanism == 0 && matches!(function, ESTABLISHMENT | ACKNOWLEDGEMENT | PING | CLOSE)
}

fn check_len(what: &'static str, at: usize, len: usize, max: usize) -> Result<(), WireError> {
    if len > max { Err(WireError::too_long(what, at, len as u64, max as u64)) } else { Ok(()) }
}

fn check_crypto_end(at: usize, offset: u32, len: u64) -> Result<(), WireError> {
    if u64::from(offset).saturating_add(len) > u64::from(u32::MAX) {
        return Err(WireError::value("crypto offset", at, u64::from(offset), "an end below 2^32"));
    }
    Ok(())
}

/// Reads the body of an establishment packet whose protection is off; the tag is not part of it.
pub fn parse_body(body: &[u8]) -> Result<EstablishmentBody<'_>, WireError> {
    let mut r = Reader::new(body);
    let mut chain = HeaderChain::new();
    let mut crypto_len = 0;
    loop {
        let at = r.offset();
        let words = r.u8("function header length")?;
        if words == 0 {
            break; // P-11
        }
        let (function, mechanism, trailer_len) =
            (r.u8("function")?, r.u8("mechanism")?, r.u8("trailer length")?);
        let fields_at = r.offset();
        let fields = r.bytes((u64::from(words) - 1) * WORD_BYTES, "function header fields")?;
        // Trailers are taken from the end, in the order of their headers. None overlaps anything
        // else. P-15
        let trailer_at = r.offset().saturating_add(r.remaining()).saturating_sub(usize::from(trailer_len));
        let trailer = r.bytes_back(u64::from(trailer_len), "function header trailer")?;
        let mut f = Reader::at(fields, fields_at);
        let header = if is_known(function, mechanism) {
            if trailer_len != 0 && function != CLOSE {
                return Err(WireError::value(
                    "trailer length",
                    at.saturating_add(3),
                    trailer_len.into(),
                    "0",
                ));
            }
            let header = parse_known(function, &mut f, trailer, trailer_at, &mut crypto_len)?;
            f.finish("function header fields")?;
            header
        } else {
            FunctionHeader::Unknown { function, mechanism, fields, trailer } // P-13
        };
        chain.add(header, at)?;
    }
    let data = r.bytes(crypto_len, "crypto")?;
    for header in &mut chain.headers {
        if let FunctionHeader::Establishment { crypto, .. } = header {
            *crypto = data;
        }
    }
    let at = r.offset();
    let padding = r.rest();
    if let Some((i, byte)) = padding.iter().enumerate().find(|(_, byte)| **byte != 0) {
        return Err(WireError::value("padding", at.saturating_add(i), u64::from(*byte), "0")); // P-11
    }
    Ok(EstablishmentBody { chain, padding: padding.len() })
}

fn parse_known<'a>(
    function: u8,
    f: &mut Reader<'a>,
    trailer: &'a [u8],
    trailer_at: usize,
    crypto_len: &mut u64,
) -> Result<FunctionHeader<'a>, WireError> {
    let zero = |f: &mut Reader<'a>| match (f.offset(), f.u16("reserved field")?) {
        (_, 0) => Ok(()),
        (at, found) => Err(WireError::value("reserved field", at, u64::from(found), "0")),
    };
    Ok(match function {
        ESTABLISHMENT => {
            let at = f.offset();
            let crypto_offset = f.u32("crypto offset")?;
            zero(f)?;
            *crypto_len = u64::from(f.u16("crypto length")?);
            check_crypto_end(at, crypto_offset, *crypto_len)?;
            FunctionHeader::Establishment { crypto_offset, crypto: &[] }
        }
        ACKNOWLEDGEMENT => parse_acknowledgement(f)?,
        CLOSE => {
            let code = f.u16("close code")?;
            zero(f)?;
            let reason = core::str::from_utf8(trailer)
                .map_err(|_| WireError::new("close reason", trailer_at, Problem::NotText))?;
            FunctionHeader::Close { code, reason }
        }
        _ => FunctionHeader::Ping,
    })
}

fn parse_acknowledgement<'a>(f: &mut Reader<'_>) -> Result<FunctionHeader<'a>, WireError> {
    let largest = f.u32("largest acknowledged")?;
    let delay_us = f.u32("ack delay")?;
    let mut ranges = SmallVec::new();
    let mut smallest = None;
    while ranges.is_empty() || !f.is_empty() {
        let at = f.offset();
        if ranges.len() >= MAX_RANGES {
            return Err(WireError::too_long("ack ranges", at, MAX_RANGES as u64 + 1, MAX_RANGES as u64)); // P-14
        }
        let (gap, len) = (f.u16("ack gap")?, f.u16("ack range")?);
        let below = "packet numbers not below zero";
        let top = match smallest {
            None if gap != 0 => {
                return Err(WireError::value("ack gap", at, u64::from(gap), "0 in the first"));
            }
            None => u64::from(largest),
            Some(above) => u64::checked_sub(above, u64::from(gap) + 2).ok_or(WireError::value(
                "ack gap",
                at,
                u64::from(gap),
                below,
            ))?,
        };
        let error = WireError::value("ack range", at.saturating_add(2), u64::from(len), below);
        let bottom = top.checked_sub(u64::from(len)).ok_or(error)?;
        ranges.push(bottom..top.saturating_add(1));
        smallest = Some(bottom);
    }
    Ok(FunctionHeader::Acknowledgement { delay_us, ranges })
}

impl<'a> EstablishmentBody<'a> {
    /// A body of these headers, without padding.
    ///
    /// # Errors
    /// As [`HeaderChain::push`].
    pub fn from_headers(headers: impl IntoIterator<Item = FunctionHeader<'a>>) -> Result<Self, WireError> {
        let mut chain = HeaderChain::new();
        headers.into_iter().try_for_each(|header| chain.push(header))?;
        Ok(EstablishmentBody { chain, padding: 0 })
    }

    /// True if the receiver has to acknowledge the packet. [P-22]
    pub fn elicits_ack(&self) -> bool {
        self.chain.headers.iter().any(FunctionHeader::elicits_ack)
    }

    fn write<S: Sink>(&self, out: &mut S) {
        let headers = &self.chain.headers;
        headers.iter().for_each(|header| header.write(out));
        out.put_u8(0);
        headers.iter().for_each(|header| out.put(header.data()));
        out.put_zeros(self.padding);
        headers.iter().rev().for_each(|header| out.put(header.trailer())); // P-15
    }
}

emitters!(EstablishmentBody<'_>);
