//! Adaptive packets: short headers. [P-16] to [P-18]

use super::{mask_number, number::TruncatedNumber};
use crate::cid::ConnectionId;
use crate::error::{Problem, WireError};
use crate::packet::is_long;
use crate::varint::{Reader, Sink};

/// Bytes of a stateless reset token. [P-18]
pub const RESET_TOKEN_BYTES: usize = 16;

/// The shortest datagram that can be a stateless reset. [P-18]
pub const MIN_RESET_BYTES: usize = 21;

const EPOCH_SHIFT: u32 = 2;
const EPOCH_MASK: u8 = 0x1f;
const LEN_MASK: u8 = 0x03;

/// The fields before the packet number. [P-16]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveHeader {
    /// The epoch modulo 32.
    pub epoch_low5: u8,
    /// The receiver's connection id; its length is known to the receiver alone.
    pub dcid: ConnectionId,
}

/// Where the parts of a header stand that was just emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveMark {
    /// The packet's first byte.
    pub start: usize,
    /// The packet number, in the clear.
    pub pn_offset: usize,
    /// Bytes of the packet number, 1 to 4.
    pub pn_len: usize,
}

/// The epoch modulo 32 in the first byte of an adaptive packet: enough to tell open epochs apart.
/// [P-17]
#[inline]
pub const fn peek_epoch(first: u8) -> u8 {
    first >> EPOCH_SHIFT & EPOCH_MASK
}

impl AdaptiveHeader {
    /// Reads the header that `datagram` starts with, given the length of the ids that this endpoint
    /// hands out. Returns it and where the (masked) packet number stands.
    ///
    /// # Errors
    /// `Value` for a long packet, `TooLong` for an id length over 20, `Truncated` if no byte is
    /// left for the number.
    pub fn parse(datagram: &[u8], cid_len: usize) -> Result<(Self, usize), WireError> {
        let mut r = Reader::new(datagram);
        let first = r.u8("first byte")?;
        if is_long(first) {
            return Err(WireError::value(
                "first byte",
                0,
                u64::from(first),
                "no high bit, of a short packet",
            ));
        }
        let dcid = ConnectionId::read(&mut r, cid_len, "destination connection id")?;
        let pn_offset = r.offset();
        r.u8("packet number")?;
        Ok((AdaptiveHeader { epoch_low5: peek_epoch(first), dcid }, pn_offset))
    }

    /// Where the packet number of a datagram for the owner of `dcid` stands. `None` if it is too
    /// short for one or is a long packet. Its id is not checked: the datagram came here by it.
    #[inline]
    pub fn pn_offset(datagram: &[u8], dcid: &ConnectionId) -> Option<usize> {
        let pn_offset = 1 + dcid.len();
        let is_short = datagram.first().is_some_and(|first| !is_long(*first));
        (is_short && datagram.len() > pn_offset).then_some(pn_offset)
    }

    /// Appends the header and the number, in the clear.
    #[inline]
    pub fn emit(&self, number: TruncatedNumber, out: &mut Vec<u8>) -> AdaptiveMark {
        let start = out.len();
        out.put_u8((self.epoch_low5 & EPOCH_MASK) << EPOCH_SHIFT | (number.len() as u8 - 1) & LEN_MASK); // P-16
        self.dcid.write(out);
        let pn_offset = out.len();
        number.write(out);
        AdaptiveMark { start, pn_offset, pn_len: number.len() }
    }

    /// Bytes that [`emit`](Self::emit) appends for a number of `pn_len` bytes.
    pub const fn encoded_len(&self, pn_len: usize) -> usize {
        1 + self.dcid.len() + pn_len
    }
}

impl AdaptiveMark {
    /// Part of the packet's number that its header leaves out.
    pub const fn left_out_of(&self, number: u64) -> u64 {
        TruncatedNumber::with_len(number, self.pn_len as u8).left_out_of(number)
    }

    /// The first byte of the payload, which protection encrypts.
    pub const fn payload_offset(&self) -> usize {
        self.pn_offset.saturating_add(self.pn_len)
    }

    /// Masks the number and its length, after the payload was protected. [P-6]
    pub fn mask(&self, out: &mut [u8], mask: &[u8; 5]) {
        if let Some(first) = out.get_mut(self.start) {
            *first ^= mask[0] & LEN_MASK;
        }
        if let Some(number) = out.get_mut(self.pn_offset..self.payload_offset()) {
            mask_number(number, mask);
        }
    }
}

/// Unmasks the number and its length in place, and reads it. The payload follows the number. [P-6]
///
/// Only the two low bits of the first byte are masked. The epoch can then be read before. The mask
/// is that of RFC 9001 section 5.4.1. A mask of zeros reads a packet that was never masked.
///
/// # Errors
/// `Truncated` if the packet ends within the number.
#[inline]
pub fn unmask(packet: &mut [u8], pn_offset: usize, mask: &[u8; 5]) -> Result<TruncatedNumber, WireError> {
    let short = |at, needed, left| WireError::new("packet number", at, Problem::Truncated { needed, left });
    let left = packet.len();
    let first = packet.first_mut().ok_or(short(0, 1, left))?;
    *first ^= mask[0] & LEN_MASK;
    let len = usize::from(*first & LEN_MASK) + 1;
    let end = pn_offset.saturating_add(len);
    let error = short(pn_offset, len as u64, left.saturating_sub(pn_offset));
    let number = packet.get_mut(pn_offset..end).ok_or(error)?;
    // Put together while reading: a processor waits if bytes that were just written one by one are
    // read as a word.
    let value = number.iter_mut().zip(&mask[1..]).fold(0, |value, (byte, mask)| {
        *byte ^= mask;
        value << 8 | u64::from(*byte)
    });
    Ok(TruncatedNumber::with_len(value, len as u8))
}

/// A datagram that ends a connection whose keys the sender has lost. To anyone but the receiver it
/// looks like an adaptive packet. Only for an id that its sender gave to that receiver. [P-18,
/// P-53, P-54]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatelessReset<'a> {
    /// Random bytes, at least 5; the highest bit is cleared on the way out.
    pub prefix: &'a [u8],
    /// The token that the sender handed out when it still knew.
    pub token: [u8; RESET_TOKEN_BYTES],
}

impl<'a> StatelessReset<'a> {
    /// Reads any datagram that could be a reset. The token decides whether it is one. Compare it in
    /// constant time.
    ///
    /// # Errors
    /// `Truncated` under [`MIN_RESET_BYTES`], `Value` for a long packet.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let short = Problem::Truncated { needed: MIN_RESET_BYTES as u64, left: datagram.len() };
        let short = WireError::new("stateless reset", 0, short);
        if datagram.len() < MIN_RESET_BYTES {
            return Err(short);
        }
        let (prefix, token) = datagram.split_last_chunk().ok_or(short)?;
        match prefix.first() {
            Some(first) if is_long(*first) => {
                Err(WireError::value("first byte", 0, u64::from(*first), "no high bit, of a short packet"))
            }
            _ => Ok(StatelessReset { prefix, token: *token }),
        }
    }

    /// Appends the datagram.
    ///
    /// # Errors
    /// `Truncated` if the prefix has fewer than 5 bytes; nothing is appended then.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let needed = (MIN_RESET_BYTES - RESET_TOKEN_BYTES) as u64;
        let left = self.prefix.len();
        let (first, rest) = self
            .prefix
            .split_first()
            .filter(|_| left as u64 >= needed)
            .ok_or(WireError::new("stateless reset prefix", 0, Problem::Truncated { needed, left }))?;
        out.put_u8(first & 0x7f);
        out.put(rest);
        out.put(&self.token);
        Ok(())
    }

    /// Bytes that [`emit`](Self::emit) appends.
    pub const fn encoded_len(&self) -> usize {
        self.prefix.len().saturating_add(RESET_TOKEN_BYTES)
    }
}
