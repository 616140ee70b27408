//! The form of datagrams of media: MPEG transport streams and RTP.

use std::fmt;

/// Bytes of a packet of a transport stream (ISO 13818-1 section
/// 2.4.3).
pub const PACKET_BYTES: usize = 188;
/// The byte that each packet begins with.
pub const SYNC: u8 = 0x47;

/// Packets of a transport stream in a datagram: as many as fit into an Ethernet frame.
pub const PACKETS_MAX: usize = 7;

/// The form of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Whole packets of an MPEG transport stream.
    Ts,
    /// RTP, version 2 (RFC 3550 section 5.1).
    Rtp,
    /// Anything else.
    Other,
}

impl Format {
    /// Looks at a datagram.
    pub fn of(datagram: &[u8]) -> Format {
        let is_ts = !datagram.is_empty()
            && datagram.len().is_multiple_of(PACKET_BYTES)
            && datagram.chunks(PACKET_BYTES).all(|packet| packet.first() == Some(&SYNC));
        if is_ts {
            return Format::Ts;
        }
        match datagram.first() {
            Some(first) if first >> 6 == 2 && datagram.len() >= 12 => Format::Rtp,
            _ => Format::Other,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Ts => "MPEG-TS",
            Format::Rtp => "RTP",
            Format::Other => "neither MPEG-TS nor RTP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_known_by_their_form() {
        let mut ts = vec![0; 7 * PACKET_BYTES];
        ts.iter_mut().step_by(PACKET_BYTES).for_each(|byte| *byte = SYNC);
        assert_eq!(Format::of(&ts), Format::Ts);
        assert_eq!(Format::of(&ts[..PACKET_BYTES]), Format::Ts);
        assert_eq!(Format::of(&ts[..PACKET_BYTES + 1]), Format::Other);
        ts[3 * PACKET_BYTES] = 0;
        assert_eq!(Format::of(&ts), Format::Other);
        assert_eq!(Format::of(&[0x80, 33, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 1]), Format::Rtp);
        assert_eq!(Format::of(&[0x80, 33, 0, 1]), Format::Other);
        assert_eq!(Format::of(&[]), Format::Other);
    }
}
