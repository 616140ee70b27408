//! Protection of establishment packets: the mask of their numbers, and the cipher.

use rustls::quic::{HeaderProtectionKey, Keys};
use uts_wire::packet::establishment::{EstablishmentMark, EstablishmentPacket, Level, unmask_number};
use uts_wire::packet::{mask_number, sample};

/// A first byte that makes `rustls` mask all four bytes of a packet number.
const FOUR_BYTE_NUMBER: u8 = 0x83;

/// Where the parts of an establishment packet stand, without the borrow of the packet.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub level: Level,
    pub end: usize,
    pn_offset: usize,
}

impl Place {
    pub fn of(packet: &EstablishmentPacket<'_>) -> Self {
        Place { level: packet.header.level, end: packet.range.end, pn_offset: packet.pn_offset }
    }
}

/// Takes mask and cipher off. `None` if the packet is not authentic.
pub(super) fn open<'a>(keys: &Keys, packet: &'a mut [u8], place: &Place) -> Option<(u32, &'a [u8])> {
    let packet = packet.get_mut(..place.end)?;
    let mask = mask(keys.remote.header.as_ref(), packet, place.pn_offset)?;
    let number = unmask_number(packet, place.pn_offset, &mask).ok()?;
    let (head, body) = packet.split_at_mut(place.pn_offset + 4);
    let plain = keys.remote.packet.decrypt_in_place(u64::from(number), head, body).ok()?;
    Some((number, plain))
}

/// True if the packet was made by a sender that knows the client's first connection id: a cheap
/// check before any state.
pub(crate) fn is_authentic(keys: &Keys, packet: &[u8], place: &Place) -> bool {
    let mut copy = packet.to_vec();
    open(keys, &mut copy, place).is_some()
}

/// Protects a packet. (K-15)
pub(super) fn seal(keys: &Keys, number: u32, mark: EstablishmentMark, out: &mut Vec<u8>) -> Option<()> {
    let body = mark.body_offset();
    let (head, payload) = out[mark.start..].split_at_mut(body - mark.start);
    let tag = keys.local.packet.encrypt_in_place(u64::from(number), head, payload).ok()?;
    out.extend_from_slice(tag.as_ref());
    let mask = mask(keys.local.header.as_ref(), &out[mark.start..], mark.pn_offset - mark.start)?;
    mask_number(out.get_mut(mark.pn_offset..body)?, &mask);
    Some(())
}

/// The mask of a packet number, out of a key that only knows how to apply it: applied to zeros, it
/// shows itself.
fn mask(key: &dyn HeaderProtectionKey, packet: &[u8], pn_offset: usize) -> Option<[u8; 5]> {
    let sample = sample(packet, pn_offset).ok()?;
    let mut first = FOUR_BYTE_NUMBER;
    let mut mask = [0; 5];
    key.encrypt_in_place(sample, &mut first, &mut mask[1..]).ok()?;
    Some(mask)
}
