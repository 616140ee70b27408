//! IPv4 headers that can be restored from what they were before.

use etherparse::checksum::Sum16BitWords;

/// Bytes of a header without options.
pub(super) const IP_BYTES: usize = 20;
/// Fragment offset and the flag that more follow, in the bytes 6 and 7.
const FRAGMENT: u16 = 0x3fff;

/// An IPv4 header without options.
pub(super) type Header = [u8; IP_BYTES];

/// The header of a packet, and what follows, if it can be restored from its other fields: it has
/// no options, its length and its checksum are right, and the packet is whole.
pub(super) fn split(packet: &[u8]) -> Option<(&Header, &[u8])> {
    let (header, rest) = packet.split_first_chunk::<IP_BYTES>()?;
    let is_whole = number(header, 6) & FRAGMENT == 0;
    let is_regular = header[0] == 0x45 && usize::from(number(header, 2)) == packet.len();
    (is_regular && is_whole && number(header, 10) == checksum(header)).then_some((header, rest))
}

/// Sets the length of a packet with so many bytes behind the header, and its checksum; `None` if
/// there is no such packet.
pub(super) fn complete(header: &mut Header, rest_bytes: usize) -> Option<()> {
    put(header, 2, u16::try_from(IP_BYTES + rest_bytes).ok()?);
    put(header, 10, checksum(header));
    Some(())
}

/// The number in two bytes of a header.
pub(super) fn number(header: &Header, at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Sets the number in two bytes.
pub(super) fn put(header: &mut Header, at: usize, value: u16) {
    header[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// True if two headers differ in nothing that a packet of the same connection cannot say: only in
/// length, identification and checksum.
pub(super) fn is_alike(one: &Header, other: &Header) -> bool {
    let fixed = |header: &Header| [&header[..2], &header[6..10], &header[12..]].concat();
    fixed(one) == fixed(other)
}

/// The checksum of a header (RFC 791), whatever stands in its place.
fn checksum(header: &Header) -> u16 {
    let sum = Sum16BitWords::new().add_slice(&header[..10]).add_slice(&header[12..]);
    u16::from_be(sum.ones_complement())
}
