//! Establishment packets: long, self-describing headers, before protection is taken off. [P-2],
//! [P-7]

use crate::VERSION;
use crate::cid::ConnectionId;
use crate::error::{Problem, WireError};
use crate::frame::MAX_TOKEN_BYTES;
use crate::packet::{SAMPLE_BYTES, is_long, mask_number};
use crate::varint::{Reader, Sink};
use core::ops::Range;
use smallvec::SmallVec;

/// Bytes of a packet number in an establishment packet. [P-7]
pub const NUMBER_BYTES: usize = 4;

/// Bytes of a retry's integrity field. [P-9]
pub const INTEGRITY_BYTES: usize = 16;

/// The most versions in a refusal. [P-10]
pub const MAX_VERSIONS: usize = 16;

/// The largest value of the length field, which is always written in 2 bytes. [P-8]
pub const MAX_LENGTH: usize = 0x3fff;

const LONG: u8 = 0x80;
const RETRY: u8 = 2;

/// Which keys protect an establishment packet. It is also the TLS level of the handshake bytes in
/// it. [P-7]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Keys that follow from the connection id: proof against damage, not against people.
    Initial = 0,
    /// Keys of the TLS handshake.
    Handshake = 1,
    /// Keys that follow from a ticket of an earlier connection. It carries a request and its answer
    /// in the place of handshake bytes. [P-66]
    Early = 3,
}

impl Level {
    /// All levels, in the order in which their packets stand in a datagram.
    pub const ALL: [Level; 3] = [Level::Initial, Level::Handshake, Level::Early];

    /// Place of the level among [`Level::ALL`].
    pub const fn index(self) -> usize {
        match self {
            Level::Initial => 0,
            Level::Handshake => 1,
            Level::Early => 2,
        }
    }

    /// True if packets of the level have a token in clear.
    const fn has_token(self) -> bool {
        matches!(self, Level::Initial | Level::Early)
    }
}

/// The fields before the packet number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstablishmentHeader<'a> {
    /// Which keys.
    pub level: Level,
    /// The receiver's connection id.
    pub dcid: ConnectionId,
    /// The sender's connection id.
    pub scid: ConnectionId,
    /// At `Initial` the proof of the client's address, empty if there is none. At `Early` the
    /// ticket, empty from a server. At most [`MAX_TOKEN_BYTES`]. Empty at `Handshake`.
    pub token: &'a [u8],
}

/// An establishment packet whose protection is still on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstablishmentPacket<'a> {
    /// Its header.
    pub header: EstablishmentHeader<'a>,
    /// Where the packet stands in the bytes that were parsed. It starts at 0. What follows
    /// `range.end` is the next packet of the datagram.
    pub range: Range<usize>,
    /// Where the (masked) packet number stands; the protected body follows it.
    pub pn_offset: usize,
}

/// A server's request to come back with a token. [P-9]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry<'a> {
    /// The client's connection id.
    pub dcid: ConnectionId,
    /// The connection id that the client is to use from now on.
    pub scid: ConnectionId,
    /// 1 to [`MAX_TOKEN_BYTES`] bytes.
    pub token: &'a [u8],
    /// Ties the packet to the client's first. It covers all bytes before it. A sender therefore
    /// emits the packet with any value here and then overwrites the last 16 bytes.
    pub integrity: [u8; INTEGRITY_BYTES],
}

/// The answer to an unknown version. Its layout, and that of [`OtherVersion`], never changes.
/// [P-10]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRefusal<'a> {
    /// The receiver's connection id, as the refused packet gave it.
    pub dcid: &'a [u8],
    /// The connection id that the refused packet was sent to.
    pub scid: &'a [u8],
    /// Versions that the sender speaks, 1 to [`MAX_VERSIONS`] of them.
    pub versions: SmallVec<[u32; 4]>,
}

/// Part of a packet of another version that can be read. [P-10]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersion<'a> {
    /// Its version; neither 0 nor [`VERSION`].
    pub version: u32,
    /// The receiver's connection id, up to 255 bytes.
    pub dcid: &'a [u8],
    /// The sender's connection id, up to 255 bytes.
    pub scid: &'a [u8],
}

/// A long packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LongPacket<'a> {
    /// One of our version that carries the handshake.
    Establishment(EstablishmentPacket<'a>),
    /// A server wants to see a token first.
    Retry(Retry<'a>),
    /// The peer does not speak our version.
    VersionRefusal(VersionRefusal<'a>),
    /// We do not speak the peer's version.
    OtherVersion(OtherVersion<'a>),
}

/// Where the parts of a header stand that was just emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstablishmentMark {
    /// The packet's first byte.
    pub start: usize,
    /// The length field.
    pub length_at: usize,
    /// The packet number, in the clear.
    pub pn_offset: usize,
}

/// Reads the long packet that `datagram` starts with, as far as it can be read before protection is
/// taken off.
///
/// The rest of a datagram of several packets starts at the packet's `range.end`. Bytes and offsets
/// are counted from the start of `datagram`. [P-19]
pub fn parse_header(datagram: &[u8]) -> Result<LongPacket<'_>, WireError> {
    let mut r = Reader::new(datagram);
    let first = r.u8("first byte")?;
    if !is_long(first) {
        return Err(WireError::value("first byte", 0, u64::from(first), "the high bit, of a long packet")); // P-4
    }
    let version = r.u32("version")?;
    if version != VERSION {
        return parse_other(version, &mut r);
    }
    if first & 0x7c != 0 {
        return Err(WireError::value("first byte", 0, u64::from(first), "bits 2 to 6 zero")); // P-7
    }
    let level = match first & 0x03 {
        0 => Level::Initial,
        1 => Level::Handshake,
        RETRY => return parse_retry(&mut r).map(LongPacket::Retry),
        _ => Level::Early,
    };
    let dcid = ConnectionId::read_prefixed(&mut r, "destination connection id")?;
    let scid = ConnectionId::read_prefixed(&mut r, "source connection id")?;
    let token = if level.has_token() { r.prefixed(MAX_TOKEN_BYTES, "token")? } else { &[] };
    let at = r.offset();
    let length = r.varint("length")?;
    if length < (NUMBER_BYTES + SAMPLE_BYTES) as u64 {
        return Err(WireError::value("length", at, length, "at least 20")); // P-8
    }
    let pn_offset = r.offset();
    r.bytes(length, "packet")?;
    let header = EstablishmentHeader { level, dcid, scid, token };
    Ok(LongPacket::Establishment(EstablishmentPacket { header, range: 0..r.offset(), pn_offset }))
}

fn parse_other<'a>(version: u32, r: &mut Reader<'a>) -> Result<LongPacket<'a>, WireError> {
    let dcid_len = r.u8("destination connection id")?;
    let dcid = r.bytes(u64::from(dcid_len), "destination connection id")?;
    let scid_len = r.u8("source connection id")?;
    let scid = r.bytes(u64::from(scid_len), "source connection id")?;
    if version != 0 {
        return Ok(LongPacket::OtherVersion(OtherVersion { version, dcid, scid })); // P-10
    }
    let mut versions = SmallVec::new();
    while versions.is_empty() || !r.is_empty() {
        if versions.len() >= MAX_VERSIONS {
            let found = versions.len() as u64 + 1;
            return Err(WireError::too_long("version list", r.offset(), found, MAX_VERSIONS as u64));
        }
        versions.push(r.u32("version list")?);
    }
    Ok(LongPacket::VersionRefusal(VersionRefusal { dcid, scid, versions }))
}

fn parse_retry<'a>(r: &mut Reader<'a>) -> Result<Retry<'a>, WireError> {
    let dcid = ConnectionId::read_prefixed(r, "destination connection id")?;
    let scid = ConnectionId::read_prefixed(r, "source connection id")?;
    let at = r.offset();
    let token_len = r.remaining().saturating_sub(INTEGRITY_BYTES);
    if token_len == 0 {
        return Err(WireError::new("token", at, Problem::Missing)); // P-9
    }
    if token_len > MAX_TOKEN_BYTES {
        return Err(WireError::too_long("token", at, token_len as u64, MAX_TOKEN_BYTES as u64)); // P-28
    }
    let token = r.bytes(token_len as u64, "token")?;
    Ok(Retry { dcid, scid, token, integrity: r.array("integrity field")? })
}

impl EstablishmentHeader<'_> {
    /// Appends the header and the packet number, in the clear. The length field waits for
    /// [`EstablishmentMark::set_length`].
    pub fn emit(&self, number: u32, out: &mut Vec<u8>) -> EstablishmentMark {
        debug_assert!(self.token.len() <= MAX_TOKEN_BYTES);
        let start = out.len();
        out.put_u8(LONG | self.level as u8);
        out.put_u32(VERSION);
        self.dcid.write_prefixed(out);
        self.scid.write_prefixed(out);
        if self.level.has_token() {
            out.put_prefixed(self.token);
        }
        let length_at = out.len();
        out.put_u16(0x4000);
        let pn_offset = out.len();
        out.put_u32(number);
        EstablishmentMark { start, length_at, pn_offset }
    }

    /// Bytes that [`emit`](Self::emit) appends.
    pub fn encoded_len(&self) -> usize {
        let mut token = crate::varint::Counter::default();
        if self.level.has_token() {
            token.put_prefixed(self.token);
        }
        let ids = self.dcid.len().saturating_add(self.scid.len());
        (1 + 4 + 2 + 2 + NUMBER_BYTES).saturating_add(ids).saturating_add(token.0)
    }
}

impl EstablishmentMark {
    /// The first byte of the body, which protection encrypts. Protection authenticates what stands
    /// between `start` and here.
    pub const fn body_offset(&self) -> usize {
        self.pn_offset.saturating_add(NUMBER_BYTES)
    }

    /// Fills the length field in, once the body is in `out` and before it is protected by a tag of
    /// `tag_bytes`.
    ///
    /// # Errors
    /// `TooLong` if the packet is longer than [`MAX_LENGTH`].
    pub fn set_length(&self, out: &mut [u8], tag_bytes: usize) -> Result<(), WireError> {
        let length = out.len().saturating_sub(self.pn_offset).saturating_add(tag_bytes);
        let fits = u16::try_from(length).ok().filter(|length| usize::from(*length) <= MAX_LENGTH);
        let error = WireError::too_long("length", self.length_at, length as u64, MAX_LENGTH as u64); // P-8
        let value = fits.ok_or(error)? | 0x4000;
        let end = self.length_at.saturating_add(2);
        let field = out.get_mut(self.length_at..end).ok_or(error)?;
        field.copy_from_slice(&value.to_be_bytes());
        Ok(())
    }
}

impl EstablishmentPacket<'_> {
    /// Where the protected body stands, its tag included.
    pub const fn body(&self) -> Range<usize> {
        self.pn_offset.saturating_add(NUMBER_BYTES)..self.range.end
    }
}

/// Unmasks the packet number in `packet`, and reads it. [P-6]
///
/// # Errors
/// `Truncated` if it is not all there.
pub fn unmask_number(packet: &mut [u8], pn_offset: usize, mask: &[u8; 5]) -> Result<u32, WireError> {
    let tail = packet.get_mut(pn_offset..).unwrap_or_default();
    let left = tail.len();
    let needed = NUMBER_BYTES as u64;
    let number = tail.first_chunk_mut::<NUMBER_BYTES>().ok_or(WireError::new(
        "packet number",
        pn_offset,
        Problem::Truncated { needed, left },
    ))?;
    mask_number(number, mask);
    Ok(u32::from_be_bytes(*number))
}

impl Retry<'_> {
    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        debug_assert!(!self.token.is_empty() && self.token.len() <= MAX_TOKEN_BYTES);
        out.put_u8(LONG | RETRY);
        out.put_u32(VERSION);
        self.dcid.write_prefixed(out);
        self.scid.write_prefixed(out);
        out.put(self.token);
        out.put(&self.integrity);
    }
}

impl VersionRefusal<'_> {
    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        debug_assert!((1..=MAX_VERSIONS).contains(&self.versions.len()));
        out.put_u8(LONG);
        out.put_u32(0);
        for id in [self.dcid, self.scid] {
            // Ids longer than a length byte can say cannot have come from a packet.
            let id = id.get(..255).unwrap_or(id);
            out.put_u8(id.len() as u8);
            out.put(id);
        }
        self.versions.iter().take(MAX_VERSIONS).for_each(|version| out.put_u32(*version));
    }
}

crate::varint::emitters!(Retry<'_>, VersionRefusal<'_>);
