//! Packets: the headers that stand before what protection covers.

pub mod adaptive;
pub mod chain;
pub mod establishment;
pub mod number;

pub use adaptive::{AdaptiveHeader, AdaptiveMark, StatelessReset, peek_epoch, unmask};
pub use chain::{EstablishmentBody, FunctionHeader, HeaderChain, parse_body};
pub use establishment::{
    EstablishmentHeader, EstablishmentMark, EstablishmentPacket, Level, LongPacket, OtherVersion, Retry,
    VersionRefusal, parse_header,
};
pub use number::TruncatedNumber;

use crate::error::{Problem, WireError};

/// Bytes of protected packet that header protection samples. [P-6]
pub const SAMPLE_BYTES: usize = 16;

/// Where the sample starts, counted from the packet number, however long that is. [P-6]
pub const SAMPLE_OFFSET_BYTES: usize = 4;

/// True if a packet with this first byte is long (establishment) rather than short (adaptive).
/// [P-4]
pub const fn is_long(first: u8) -> bool {
    first & 0x80 != 0
}

/// The sample that header protection masks a packet with. [P-6]
///
/// # Errors
/// `Truncated` if the packet is too short to have one.
pub fn sample(packet: &[u8], pn_offset: usize) -> Result<&[u8; SAMPLE_BYTES], WireError> {
    let at = pn_offset.saturating_add(SAMPLE_OFFSET_BYTES);
    let tail = packet.get(at..).unwrap_or(&[]);
    tail.first_chunk().ok_or(WireError::new(
        "header protection sample",
        at,
        Problem::Truncated { needed: SAMPLE_BYTES as u64, left: tail.len() },
    ))
}

/// Zeros that a payload needs so that the packet has a sample. [P-6]
pub const fn sample_padding(pn_len: usize, payload_bytes: usize, tag_bytes: usize) -> usize {
    (SAMPLE_OFFSET_BYTES + SAMPLE_BYTES)
        .saturating_sub(pn_len.saturating_add(payload_bytes).saturating_add(tag_bytes))
}

/// Masks or unmasks the bytes of a packet number. The mask's first byte is for the packet's first
/// byte. [P-6]
pub fn mask_number(number: &mut [u8], mask: &[u8; 5]) {
    number.iter_mut().zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
}
