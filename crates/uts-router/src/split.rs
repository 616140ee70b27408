//! Segmentation in user space: a super-packet (GSO) from the kernel becomes the packets that the
//! kernel would have put on a wire.
//!
//! It does what `tcp_gso_segment`, `__udp_gso_segment`, `inet_gso_segment` and `ipv6_gso_segment`
//! of Linux do. Tests compare with them bit by bit. Checksums of TCP and UDP stay partial.

use super::frame::{ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, VnetHeader, ethertype, fold, sum_of};
use super::sys::VNET_HEADER_BYTES;

/// `VIRTIO_NET_HDR_GSO_ECN`: CWR is on the first segment only. This holds of all anyway.
const GSO_ECN: u8 = 0x80;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;

const TCP_FLAGS_AT: usize = 13;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;
const TCP_CHECKSUM_AT: usize = 16;
const TCP_BYTES_MIN: usize = 20;
const UDP_BYTES: usize = 8;
const UDP_CHECKSUM_AT: usize = 6;

/// Why a frame was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SplitError {
    /// Shorter than its headers, or headers that contradict each other.
    #[error("the frame is cut short, or its headers contradict each other")]
    Malformed,
    /// A kind of super-packet that this does not split.
    #[error("super-packets of type {0} are not known")]
    UnknownType(u8),
}

/// Hands over each packet of `bytes` (header and frame), in order; a packet that is none but itself
/// unchanged.
pub(super) fn split(bytes: &[u8], mut emit: impl FnMut(Vec<u8>)) -> Result<(), SplitError> {
    let header = VnetHeader::parse(bytes).ok_or(SplitError::Malformed)?;
    if bytes.len() < VNET_HEADER_BYTES + ETHERNET_BYTES {
        return Err(SplitError::Malformed);
    }
    let tcp = match header.gso_type & !GSO_ECN {
        GSO_NONE => {
            emit(bytes.to_vec());
            return Ok(());
        }
        GSO_TCPV4 | GSO_TCPV6 => true,
        GSO_UDP_L4 => false,
        other => return Err(SplitError::UnknownType(other)),
    };
    let plan = Plan::of(bytes, header, tcp).ok_or(SplitError::Malformed)?;
    let (headers, payload) = bytes.split_at(plan.payload_at);
    let count = payload.len().div_ceil(plan.segment_bytes).max(1);
    // One that fits into a segment is one: the kernel calls it GSO all the same.
    let mut chunks = payload.chunks(plan.segment_bytes);
    for index in 0..count {
        let chunk = chunks.next().unwrap_or_default();
        let mut segment = Vec::with_capacity(headers.len() + chunk.len());
        segment.extend_from_slice(headers);
        segment.extend_from_slice(chunk);
        plan.fix(&mut segment, index, index + 1 == count, chunk.len());
        emit(segment);
    }
    Ok(())
}

/// Where things stand in a super-packet, checked against its length.
#[derive(Debug)]
struct Plan {
    tcp: bool,
    ipv4: bool,
    ip_at: usize,
    transport_at: usize,
    payload_at: usize,
    segment_bytes: usize,
    /// The length in the pseudo header of the whole.
    whole_transport_bytes: usize,
    header: VnetHeader,
}

impl Plan {
    fn of(bytes: &[u8], header: VnetHeader, tcp: bool) -> Option<Plan> {
        let ip_at = VNET_HEADER_BYTES + ETHERNET_BYTES;
        let ipv4 = match ethertype(bytes)? {
            ETHERTYPE_IPV4 => true,
            ETHERTYPE_IPV6 => false,
            _ => return None,
        };
        // The kernel leaves the transport's checksum to us in every super-packet, and therefore
        // says where it is.
        let offset = if tcp { TCP_CHECKSUM_AT } else { UDP_CHECKSUM_AT };
        if !header.needs_checksum() || usize::from(header.checksum_offset) != offset {
            return None;
        }
        let transport_at = VNET_HEADER_BYTES + usize::from(header.checksum_start);
        let ip_bytes = transport_at.checked_sub(ip_at)?;
        let ip_bytes_wanted = if ipv4 { usize::from(bytes.get(ip_at)? & 15) * 4 } else { 40 };
        if ip_bytes < ip_bytes_wanted.max(20) || (ipv4 && ip_bytes != ip_bytes_wanted) {
            return None;
        }
        let transport_bytes =
            if tcp { usize::from(bytes.get(transport_at + 12)? >> 4) * 4 } else { UDP_BYTES };
        if tcp && transport_bytes < TCP_BYTES_MIN {
            return None;
        }
        let payload_at = transport_at + transport_bytes;
        let segment_bytes = usize::from(header.gso_bytes);
        if payload_at > bytes.len() || segment_bytes == 0 {
            return None;
        }
        let whole_transport_bytes = bytes.len() - transport_at;
        Some(Plan {
            tcp,
            ipv4,
            ip_at,
            transport_at,
            payload_at,
            segment_bytes,
            whole_transport_bytes,
            header,
        })
    }

    /// Makes the copied headers of a segment true.
    fn fix(&self, segment: &mut [u8], index: usize, last: bool, payload_bytes: usize) {
        let header = VnetHeader { gso_type: GSO_NONE, gso_bytes: 0, header_bytes: 0, ..self.header };
        segment[..VNET_HEADER_BYTES].copy_from_slice(&header.emit());
        self.fix_ip(segment, index);
        let transport_bytes = segment.len() - self.transport_at;
        let transport = &mut segment[self.transport_at..];
        let checksum_at = if self.tcp {
            fix_tcp(transport, index * self.segment_bytes, index == 0, last);
            TCP_CHECKSUM_AT
        } else {
            let len = (UDP_BYTES + payload_bytes) as u16;
            transport[4..6].copy_from_slice(&len.to_be_bytes());
            UDP_CHECKSUM_AT
        };
        // The pseudo header's sum with the segment's length instead of the whole's.
        let before = u16::from_be_bytes([transport[checksum_at], transport[checksum_at + 1]]);
        let sum =
            u32::from(before) + u32::from(!(self.whole_transport_bytes as u16)) + transport_bytes as u32;
        transport[checksum_at..checksum_at + 2].copy_from_slice(&fold(sum).to_be_bytes());
    }

    fn fix_ip(&self, segment: &mut [u8], index: usize) {
        let ip_packet_bytes = segment.len() - self.ip_at;
        let ip = &mut segment[self.ip_at..self.transport_at];
        if self.ipv4 {
            ip[2..4].copy_from_slice(&(ip_packet_bytes as u16).to_be_bytes());
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[10..12].fill(0);
            let sum = !fold(sum_of(ip));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            ip[4..6].copy_from_slice(&((ip_packet_bytes - 40) as u16).to_be_bytes());
        }
    }
}

/// RFC 9293 and RFC 3168: positions count up; FIN and PSH are the last segment's, CWR the first's.
fn fix_tcp(tcp: &mut [u8], offset: usize, first: bool, last: bool) {
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(offset as u32);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !last {
        tcp[TCP_FLAGS_AT] &= !TCP_FIN_PSH;
    }
    if !first {
        tcp[TCP_FLAGS_AT] &= !TCP_CWR;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    // That segments are the kernel's is tested against the kernel: tests/router/router.rs.

    fn frame(header: VnetHeader, ethertype: u16, len: usize) -> Vec<u8> {
        let mut bytes = header.emit().to_vec();
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&ethertype.to_be_bytes());
        bytes.resize(bytes.len() + len, 0x45);
        bytes
    }

    #[test]
    fn a_plain_frame_passes_as_it_is() {
        let bytes = frame(VnetHeader { flags: 1, ..VnetHeader::default() }, 0x0806, 28);
        let mut got = Vec::new();
        assert_eq!(split(&bytes, |b| got.push(b)), Ok(()));
        assert_eq!(got, [bytes]);
    }

    #[test]
    fn headers_that_lie_are_refused_and_never_harm() {
        let whole = VnetHeader {
            flags: 1,
            gso_type: GSO_TCPV4,
            header_bytes: 54,
            gso_bytes: 1000,
            checksum_start: 34,
            checksum_offset: 16,
        };
        let refused = |header: VnetHeader, ethertype: u16, len: usize| {
            split(&frame(header, ethertype, len), |_| {}).unwrap_err()
        };
        assert_eq!(split(&[0; 12], |_| {}), Err(SplitError::Malformed));
        assert_eq!(refused(VnetHeader { gso_type: 3, ..whole }, 0x0800, 3000), SplitError::UnknownType(3));
        for lie in [
            VnetHeader { flags: 0, ..whole },
            VnetHeader { gso_bytes: 0, ..whole },
            VnetHeader { checksum_start: 60_000, ..whole },
            VnetHeader { checksum_start: 3, ..whole },
            VnetHeader { checksum_offset: 6, ..whole },
        ] {
            assert_eq!(refused(lie, 0x0800, 3000), SplitError::Malformed, "{lie:?}");
        }
        assert_eq!(refused(whole, 0x0806, 3000), SplitError::Malformed);
        assert_eq!(refused(whole, 0x0800, 30), SplitError::Malformed);

        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for _ in 0..20_000 {
            let mut bytes = vec![0; (rng.next_u32() % 200) as usize];
            rng.fill_bytes(&mut bytes);
            if let Some(gso_type) = bytes.get_mut(1) {
                *gso_type %= 6;
            }
            let _ = split(&bytes, |_| {});
        }
    }
}
