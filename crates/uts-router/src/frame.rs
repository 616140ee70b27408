//! Frames as packet sockets hand them over, and as a path carries them.

use super::sys::VNET_HEADER_BYTES;
use std::borrow::Cow;
use uts_path::Payload;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;
/// Where the network layer's packet begins in a [`Packet`]'s bytes.
pub(super) const IP_AT: usize = VNET_HEADER_BYTES + ETHERNET_BYTES;

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum holds the sum of the pseudo header only.
const NEEDS_CHECKSUM: u8 = 1;

/// `struct virtio_net_hdr`, in the machine's byte order (virtio 1.2, section 5.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct VnetHeader {
    pub flags: u8,
    pub gso_type: u8,
    /// Bytes of all headers, Ethernet's included.
    pub header_bytes: u16,
    /// Bytes of payload in each segment.
    pub gso_bytes: u16,
    /// Where checksumming begins, from the start of the frame.
    pub checksum_start: u16,
    /// Where the checksum stands, from there.
    pub checksum_offset: u16,
}

impl VnetHeader {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let pair = |at: usize| Some(u16::from_ne_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        Some(VnetHeader {
            flags: *bytes.first()?,
            gso_type: *bytes.get(1)?,
            header_bytes: pair(2)?,
            gso_bytes: pair(4)?,
            checksum_start: pair(6)?,
            checksum_offset: pair(8)?,
        })
    }

    pub(super) fn emit(self) -> [u8; VNET_HEADER_BYTES] {
        let [h0, h1] = self.header_bytes.to_ne_bytes();
        let [g0, g1] = self.gso_bytes.to_ne_bytes();
        let [s0, s1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    pub(super) fn needs_checksum(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }
}

/// A packet on the path: one frame, with the header that a packet socket wants before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packet {
    /// `virtio_net_hdr`, Ethernet header, network layer.
    pub bytes: Vec<u8>,
    /// The host it is from.
    pub from: usize,
}

impl Packet {
    /// The network layer's packet: what a link carries and what its length counts.
    pub(super) fn ip(&self) -> &[u8] {
        self.bytes.get(IP_AT..).unwrap_or_default()
    }

    /// The Ethernet frame.
    pub(super) fn frame(&self) -> &[u8] {
        self.bytes.get(VNET_HEADER_BYTES..).unwrap_or_default()
    }

    /// The Ethernet address that it is for.
    pub(super) fn destination(&self) -> Option<[u8; 6]> {
        self.frame().first_chunk().copied()
    }
}

impl Payload for Packet {
    /// Completes the checksum first: a partial one would be completed over the damage.
    fn flip_bit(&mut self, bit: usize) {
        complete_checksum(&mut self.bytes);
        if let Some(byte) = self.bytes.get_mut(IP_AT + bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Sets CE where the packet says ECT (RFC 3168, section 5).
    fn mark_ce(&mut self) -> bool {
        match ethertype(&self.bytes) {
            Some(ETHERTYPE_IPV4) => mark_ipv4(&mut self.bytes),
            Some(ETHERTYPE_IPV6) => mark_ipv6(&mut self.bytes),
            _ => false,
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self.ip())
    }

    fn ip(&self) -> Option<Cow<'_, [u8]>> {
        matches!(ethertype(&self.bytes), Some(ETHERTYPE_IPV4 | ETHERTYPE_IPV6))
            .then(|| Cow::Borrowed(Packet::ip(self)))
    }

    /// Its checksums are those that were on the line.
    fn set_ip(&mut self, packet: &[u8]) -> bool {
        complete_checksum(&mut self.bytes);
        self.bytes.truncate(IP_AT);
        self.bytes.extend_from_slice(packet);
        true
    }

    /// By protocol, addresses and ports (RFC 8290, section 4.1.1).
    fn flow(&self) -> u64 {
        flow_of(self.ip())
    }
}

/// A hash (FNV-1a) of what tells flows apart in an IP packet. Fragments behind the first have no
/// ports.
fn flow_of(ip: &[u8]) -> u64 {
    let (protocol, addresses, ports) = match ip.first().map(|first| first >> 4) {
        Some(4) => {
            let header = 4 * usize::from(ip[0] & 15);
            let is_first = ip.get(6..8).is_some_and(|at| u16::from_be_bytes([at[0] & 0x1f, at[1]]) == 0);
            (ip.get(9), ip.get(12..20), if is_first { ip.get(header..header + 4) } else { None })
        }
        Some(6) => (ip.get(6), ip.get(8..40), ip.get(40..44)),
        _ => (None, None, None),
    };
    let has_ports = matches!(protocol, Some(6 | 17));
    let ports = ports.filter(|_| has_ports).unwrap_or_default();
    let all = protocol.into_iter().chain(addresses.unwrap_or_default()).chain(ports);
    all.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Protocol that the frame carries.
pub(super) fn ethertype(bytes: &[u8]) -> Option<u16> {
    bytes.get(IP_AT - 2..IP_AT)?.try_into().ok().map(u16::from_be_bytes)
}

fn mark_ipv4(bytes: &mut [u8]) -> bool {
    let Some(header) = bytes.get_mut(IP_AT..IP_AT + 20) else { return false };
    let ecn = header[1] & 3;
    if ecn == 0 {
        return false;
    }
    if ecn != 3 {
        let before = u16::from_be_bytes([header[0], header[1]]);
        header[1] |= 3;
        let after = u16::from_be_bytes([header[0], header[1]]);
        // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
        let check = u16::from_be_bytes([header[10], header[11]]);
        let sum = u32::from(!check) + u32::from(!before) + u32::from(after);
        header[10..12].copy_from_slice(&(!fold(sum)).to_be_bytes());
    }
    true
}

fn mark_ipv6(bytes: &mut [u8]) -> bool {
    // Version, 8 bits of traffic class, flow label: ECN is bits 4 and 5 of the second byte.
    let Some(byte) = bytes.get_mut(IP_AT + 1) else { return false };
    if *byte & 0x30 == 0 {
        return false;
    }
    *byte |= 0x30;
    true
}

/// Completes a partial checksum, and says so in the header. What needs none stays as it is.
pub(super) fn complete_checksum(bytes: &mut [u8]) {
    let Some(header) = VnetHeader::parse(bytes).filter(|h| h.needs_checksum()) else { return };
    let start = VNET_HEADER_BYTES + usize::from(header.checksum_start);
    let at = start + usize::from(header.checksum_offset);
    if at + 2 > bytes.len() {
        return;
    }
    let sum = match !fold(sum_of(&bytes[start..])) {
        // RFC 768: a sum of zero is sent as all ones; in TCP's arithmetic it is the same.
        0 => 0xffff,
        sum => sum,
    };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes[..VNET_HEADER_BYTES].fill(0);
}

/// The one's complement sum of RFC 1071, not folded; of at most 64 kB.
pub(super) fn sum_of(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(2);
    let sum: u32 = words.by_ref().map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    sum + words.remainder().first().map_or(0, |&odd| u32::from(odd) << 8)
}

/// Folds a sum to 16 bits.
pub(super) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_told_apart_by_addresses_and_ports() {
        let v4 = |protocol: u8, to: u8, port: u8, more: u8| {
            let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, more, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, to];
            ip.extend([0, 1, 0, port, 0, 8, 0, 0]);
            flow_of(&ip)
        };
        assert_eq!(v4(17, 2, 80, 0), v4(17, 2, 80, 0));
        let all = [v4(17, 2, 80, 0), v4(17, 3, 80, 0), v4(17, 2, 81, 0), v4(6, 2, 80, 0)];
        assert!(all.iter().enumerate().all(|(n, flow)| !all[..n].contains(flow)), "{all:?}");
        // A fragment, and what has no ports.
        assert_eq!(v4(17, 2, 80, 9), v4(17, 2, 81, 9));
        assert_eq!(v4(1, 2, 80, 0), v4(1, 2, 81, 0));
        let v6 = |port: u8| {
            let mut ip = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
            ip.extend([1; 32]);
            ip.extend([0, 1, 0, port, 0, 8, 0, 0]);
            flow_of(&ip)
        };
        assert_ne!(v6(80), v6(81));
        for length in 0..44 {
            flow_of(&vec![0x45; length]);
            flow_of(&vec![0x60; length]);
        }
    }

    fn ipv4(tos: u8) -> Packet {
        let mut ip = vec![0x45, tos, 0, 28, 1, 2, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2];
        let sum = !fold(sum_of(&ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        // UDP with the sum of the pseudo header in the place of the checksum.
        let partial = fold(sum_of(&ip[12..20]) + 17 + 8).to_be_bytes();
        ip.extend_from_slice(&[0, 7, 0, 9, 0, 8, partial[0], partial[1]]);
        let header = VnetHeader { flags: 1, checksum_start: 34, checksum_offset: 6, ..VnetHeader::default() };
        let bytes = [header.emit().as_slice(), &[0; 12], &[8, 0], &ip].concat();
        Packet { bytes, from: 0 }
    }

    fn udp_sum(packet: &Packet) -> u16 {
        let ip = packet.ip();
        fold(sum_of(&ip[12..20]) + 17 + 8 + sum_of(&ip[20..28]))
    }

    #[test]
    fn marking_keeps_the_checksum_and_leaves_those_that_do_not_ask() {
        for ecn in 0..4 {
            let mut packet = ipv4(0xb8 | ecn);
            assert_eq!(packet.mark_ce(), ecn != 0);
            assert_eq!(packet.ip()[1], if ecn == 0 { 0xb8 } else { 0xbb });
            assert_eq!(fold(sum_of(&packet.ip()[..20])), 0xffff);
        }
        for ecn in 0..4u8 {
            let mut bytes = vec![0; IP_AT + 40];
            bytes[IP_AT - 2..=IP_AT + 1].copy_from_slice(&[0x86, 0xdd, 0x60, ecn << 4 | 0xf]);
            let mut packet = Packet { bytes, from: 0 };
            assert_eq!(packet.mark_ce(), ecn != 0);
            assert_eq!(packet.ip()[1], if ecn == 0 { 0x0f } else { 0x3f });
        }
    }

    #[test]
    fn compression_sees_ip_and_puts_another_packet_in_its_place() {
        let mut packet = ipv4(0);
        complete_checksum(&mut packet.bytes);
        let mut other = Payload::ip(&packet).expect("IPv4").into_owned();
        other.push(7);
        assert!(packet.set_ip(&other));
        assert_eq!(Payload::ip(&packet).as_deref(), Some(&other[..]));
        assert_eq!(VnetHeader::parse(&packet.bytes), Some(VnetHeader::default()));
        let arp = [VnetHeader::default().emit().as_slice(), &[0; 12], &[8, 6], &[0; 28]].concat();
        assert_eq!(Payload::ip(&Packet { bytes: arp, from: 0 }), None);
    }

    #[test]
    fn damage_comes_after_the_checksum() {
        let mut whole = ipv4(0);
        assert_ne!(udp_sum(&whole), 0xffff, "partial");
        complete_checksum(&mut whole.bytes);
        assert_eq!(udp_sum(&whole), 0xffff);
        assert_eq!(VnetHeader::parse(&whole.bytes), Some(VnetHeader::default()));
        let mut damaged = ipv4(0);
        damaged.flip_bit(8 * 21 + 3);
        assert_ne!(udp_sum(&damaged), 0xffff);
        damaged.flip_bit(8 * 21 + 3);
        assert_eq!(damaged, whole);
    }
}
