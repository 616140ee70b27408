//! First packets as anybody can make them that has seen the client's first connection id: good
//! keys, any content.

use rustls::quic::{self, Keys};
use uts_wire::ConnectionId;
use uts_wire::packet::establishment::{EstablishmentHeader, Level, LongPacket, parse_header, unmask_number};
use uts_wire::packet::{FunctionHeader, mask_number, parse_body, sample, sample_padding};

/// So that a header key masks four bytes of number.
const FOUR_BYTE_NUMBER: u8 = 0x83;

/// Bytes of a tag.
const TAG_BYTES: usize = 16;

/// The keys of first packets of a client that began with this id (RFC 9001 section 5.2), as this
/// side uses them.
pub fn keys(first_dcid: &ConnectionId, side: rustls::Side) -> Keys {
    let suite = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = suite.tls13().and_then(|suite| suite.quic_suite()).expect("ring has it");
    suite.keys(first_dcid.as_slice(), side, quic::Version::V1)
}

/// An Initial packet with this body; `None` if it would be too long.
pub fn initial(
    keys: &Keys,
    ids: (ConnectionId, ConnectionId),
    token: &[u8],
    number: u32,
    body: &[u8],
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let header = EstablishmentHeader { level: Level::Initial, dcid: ids.0, scid: ids.1, token };
    let mark = header.emit(number, &mut out);
    out.extend_from_slice(body);
    out.resize(out.len() + sample_padding(4, body.len(), TAG_BYTES), 0);
    mark.set_length(&mut out, TAG_BYTES).ok()?;
    let (head, payload) = out.split_at_mut(mark.body_offset());
    let tag = keys.local.packet.encrypt_in_place(u64::from(number), head, payload).ok()?;
    out.extend_from_slice(tag.as_ref());
    let (mut first, mut mask) = (FOUR_BYTE_NUMBER, [0; 5]);
    let key = keys.local.header.as_ref();
    key.encrypt_in_place(sample(&out, mark.pn_offset).ok()?, &mut first, &mut mask[1..]).ok()?;
    mask_number(out.get_mut(mark.pn_offset..mark.body_offset())?, &mask);
    Some(out)
}

/// The content of the Initial packet that a datagram begins with, and the ids and token in its
/// header.
pub fn open(keys: &Keys, datagram: &[u8]) -> Option<Opened> {
    let LongPacket::Establishment(packet) = parse_header(datagram).ok()? else { return None };
    let header = packet.header;
    let mut copy = datagram.get(..packet.range.end)?.to_vec();
    let (mut first, mut mask) = (FOUR_BYTE_NUMBER, [0; 5]);
    let key = keys.remote.header.as_ref();
    key.encrypt_in_place(sample(&copy, packet.pn_offset).ok()?, &mut first, &mut mask[1..]).ok()?;
    let number = unmask_number(&mut copy, packet.pn_offset, &mask).ok()?;
    let (head, body) = copy.split_at_mut(packet.body().start);
    let plain = keys.remote.packet.decrypt_in_place(u64::from(number), head, body).ok()?;
    let crypto = parse_body(plain).ok()?.chain.headers().iter().find_map(|header| match header {
        FunctionHeader::Establishment { crypto, .. } => Some(crypto.to_vec()),
        _ => None,
    });
    Some(Opened { dcid: header.dcid, scid: header.scid, crypto: crypto.unwrap_or_default() })
}

/// Contents of an Initial packet.
pub struct Opened {
    /// Whom it is for.
    pub dcid: ConnectionId,
    /// Whom it is from.
    pub scid: ConnectionId,
    /// Its bytes of the TLS handshake.
    pub crypto: Vec<u8>,
}
