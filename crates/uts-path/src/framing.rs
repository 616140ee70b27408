//! Cost of a packet on the wire: the framing that a kind of link puts round it.

use crate::error::SpecError;
use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The framing of a link. The bits given are for `len` bytes of IP, that is the packet with
/// [`overhead_bytes`](crate::LinkConfig::overhead_bytes).
///
/// Text form, in TOML too: `none`, `ethernet`, `slip`, `aal5`, `ppp`, `ppp:0xffffffff`.
///
/// Framings that escape look at the packet ([`Payload::bytes`](crate::Payload::bytes)). Bytes that
/// are not shown, such as those of the overhead, count as needing no escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Framing {
    /// `8 len` bits: nothing is added.
    #[default]
    None,
    /// Ethernet (IEEE 802.3): `8 max(84, len + 38)` bits: preamble 8, header 14, at least 46 of
    /// payload, frame check sequence 4 and the gap between frames 12 bytes.
    Ethernet,
    /// SLIP (RFC 1055) on an asynchronous line with a start and a stop bit:
    /// `10 (len + 2 + escapes)` bits. An END stands before and after each packet, and each 0xC0 and
    /// 0xDB in it takes two bytes.
    Slip,
    /// Classical IP over ATM (RFC 2225, before RFC 1577): LLC/SNAP header of 8 bytes (RFC 2684) and
    /// AAL5 trailer of 8, padded to cells of 48 bytes, which take 53:
    /// `8 * 53 * ceil((len + 16) / 48)` bits.
    Aal5,
    /// PPP in asynchronous HDLC-like framing (RFC 1662) with a start and a stop bit:
    /// `10 (len + 7 + escapes)` bits. There is one flag between frames, address and control of 2
    /// bytes, protocol of 2 and FCS-16 of 2. Neither of the header compressions of RFC 1661 is in
    /// use. 0x7D, 0x7E and what `accm` names are escaped, in header and FCS too. The FCS is that of
    /// the bytes shown.
    Ppp {
        /// Async-Control-Character-Map: byte `b` below 32 is escaped if bit `b` is set. 0, on which
        /// nearly all peers agree, escapes none. RFC 1662 begins with `0xffffffff`.
        accm: u32,
    },
}

const WANTED: &str = "must be none, ethernet, slip, aal5, ppp or ppp:ACCM as in ppp:0xffffffff";

impl Framing {
    /// Bits that `ip_len` bytes of IP take on the wire, of which `shown` can be seen.
    pub(crate) fn wire_bits(self, ip_len: u64, shown: Option<&[u8]>) -> u64 {
        let shown = shown.unwrap_or_default();
        match self {
            Framing::None => ip_len.saturating_mul(8),
            Framing::Ethernet => ip_len.saturating_add(38).max(84).saturating_mul(8),
            Framing::Slip => {
                let escapes = shown.iter().filter(|&&b| b == 0xc0 || b == 0xdb).count() as u64;
                ip_len.saturating_add(2 + escapes).saturating_mul(10)
            }
            Framing::Aal5 => ip_len.saturating_add(16).div_ceil(48).saturating_mul(8 * 53),
            Framing::Ppp { accm } => ip_len.saturating_add(7 + ppp_escapes(accm, shown)).saturating_mul(10),
        }
    }
}

/// Bytes of a PPP frame that need an escape.
fn ppp_escapes(accm: u32, shown: &[u8]) -> u64 {
    let protocol = if shown.first().is_some_and(|b| b >> 4 == 6) { 0x57 } else { 0x21 };
    let header = [0xff, 0x03, 0x00, protocol];
    let mut fcs = Digest::new(CrcAlgorithm::Crc16IbmSdlc);
    fcs.update(&header);
    fcs.update(shown);
    let [low, high, ..] = fcs.finalize().to_le_bytes();
    let escaped = |b: u8| b == 0x7d || b == 0x7e || (b < 32 && accm >> b & 1 == 1);
    header.iter().chain(shown).chain(&[low, high]).filter(|&&b| escaped(b)).count() as u64
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Framing::None => f.write_str("none"),
            Framing::Ethernet => f.write_str("ethernet"),
            Framing::Slip => f.write_str("slip"),
            Framing::Aal5 => f.write_str("aal5"),
            Framing::Ppp { accm: 0 } => f.write_str("ppp"),
            Framing::Ppp { accm } => write!(f, "ppp:{accm:#x}"),
        }
    }
}

impl FromStr for Framing {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || SpecError::new("framing", WANTED);
        Ok(match text {
            "none" => Framing::None,
            "ethernet" => Framing::Ethernet,
            "slip" => Framing::Slip,
            "aal5" => Framing::Aal5,
            "ppp" => Framing::Ppp { accm: 0 },
            _ => {
                let digits = text.strip_prefix("ppp:0x").filter(|d| !d.starts_with('+')).ok_or_else(wrong)?;
                Framing::Ppp { accm: u32::from_str_radix(digits, 16).map_err(|_| wrong())? }
            }
        })
    }
}

impl From<Framing> for String {
    fn from(framing: Framing) -> String {
        framing.to_string()
    }
}

impl TryFrom<String> for Framing {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_pads_to_its_shortest_frame() {
        for (len, bytes) in [(0, 84), (46, 84), (47, 85), (1500, 1538)] {
            assert_eq!(Framing::Ethernet.wire_bits(len, None), 8 * bytes, "{len}");
        }
    }

    #[test]
    fn aal5_takes_whole_cells() {
        // 40 bytes of TCP acknowledgement: two cells (56 of 96 bytes); 32 just fit in one.
        // 9180 is the MTU of classical IP: 9196 bytes in 192 cells.
        for (len, cells) in [(32, 1), (33, 2), (40, 2), (80, 2), (81, 3), (1500, 32), (9180, 192)] {
            assert_eq!(Framing::Aal5.wire_bits(len, None), 8 * 53 * cells, "{len}");
        }
    }

    /// SLIP as RFC 1055 describes it.
    fn slip(packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xc0];
        for &byte in packet {
            match byte {
                0xc0 => frame.extend([0xdb, 0xdc]),
                0xdb => frame.extend([0xdb, 0xdd]),
                _ => frame.push(byte),
            }
        }
        frame.push(0xc0);
        frame
    }

    /// PPP as RFC 1662 describes it, the FCS bit by bit, with the closing flag only.
    fn ppp(packet: &[u8], protocol: u8, accm: u32) -> Vec<u8> {
        let mut plain = vec![0xff, 0x03, 0x00, protocol];
        plain.extend(packet);
        let mut fcs = 0xffff_u16;
        for &byte in &plain {
            fcs ^= u16::from(byte);
            for _ in 0..8 {
                fcs = if fcs & 1 == 1 { fcs >> 1 ^ 0x8408 } else { fcs >> 1 };
            }
        }
        plain.extend((!fcs).to_le_bytes());
        let mut frame = Vec::new();
        for byte in plain {
            if byte == 0x7d || byte == 0x7e || (byte < 0x20 && accm & (1 << byte) != 0) {
                frame.extend([0x7d, byte ^ 0x20]);
            } else {
                frame.push(byte);
            }
        }
        frame.push(0x7e);
        frame
    }

    #[test]
    fn serial_framings_cost_what_their_encoders_emit() {
        let mut packets = vec![Vec::new(), vec![0xc0; 9], vec![0xdb; 9], vec![0x7e; 9], vec![0x7d; 9]];
        packets.push((0..=255).collect());
        // Enough of them that some FCS needs an escape.
        packets.extend((0..=255).map(|n| vec![0x45, 0x00, n, 0x11]));
        packets.extend((0..=255).map(|n| vec![0x60, 0x00, n, 0x11]));
        for packet in packets {
            let (len, shown) = (packet.len() as u64, Some(packet.as_slice()));
            assert_eq!(Framing::Slip.wire_bits(len, shown), 10 * slip(&packet).len() as u64, "{packet:x?}");
            for accm in [0, 0xffff_ffff, 0x000a_0000] {
                let protocol = if packet.first().is_some_and(|b| b >> 4 == 6) { 0x57 } else { 0x21 };
                let wanted = 10 * ppp(&packet, protocol, accm).len() as u64;
                assert_eq!(Framing::Ppp { accm }.wire_bits(len, shown), wanted, "{accm:x} {packet:x?}");
            }
        }
    }

    #[test]
    fn bytes_that_are_not_shown_need_no_escape() {
        assert_eq!(Framing::Slip.wire_bits(576, None), 5780);
        assert_eq!(Framing::Slip.wire_bits(28 + 2, Some(&[0xc0, 1])), 10 * (30 + 2 + 1));
    }

    #[test]
    fn framings_print_as_they_are_read() {
        for text in ["none", "ethernet", "slip", "aal5", "ppp", "ppp:0xa0000", "ppp:0xffffffff"] {
            assert_eq!(text.parse::<Framing>().unwrap().to_string(), text);
        }
        for text in ["", "SLIP", "ppp:", "ppp:0x", "ppp:0x1ffffffff", "ppp:0x+1", "ppp:7", "atm"] {
            assert_eq!(text.parse::<Framing>().unwrap_err().to_string(), format!("framing: {WANTED}"));
        }
    }
}
