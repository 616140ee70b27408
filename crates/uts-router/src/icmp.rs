//! A router's answer to a packet that is bigger than the next link takes: RFC 792 with RFC 1191
//! ("fragmentation needed"), and RFC 4443 ("packet too big").

use super::frame::{ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IP_AT, Packet, ethertype, fold, sum_of};
use super::sys::VNET_HEADER_BYTES;
use uts_path::LinkConfig;

/// IPv4: as RFC 1812 asks, as much of the packet as fits into 576 bytes.
const IPV4_QUOTE_BYTES_MAX: usize = 576 - 28;
/// IPv6: as much as fits into its least MTU.
const IPV6_QUOTE_BYTES_MAX: usize = 1280 - 48;
/// Whom such a message is from: no host has this number.
const ROUTER_NUMBER: u8 = 254;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;

/// The message to a packet's sender, if the packet exceeds the link's MTU and may be answered.
pub(super) fn too_big(packet: &Packet, link: &LinkConfig) -> Option<Packet> {
    let mtu = link.mtu_bytes?.checked_sub(link.overhead_bytes)?;
    let ip = packet.ip();
    if ip.len() <= usize::try_from(mtu).ok()? {
        return None;
    }
    let message = match ethertype(&packet.bytes)? {
        ETHERTYPE_IPV4 => ipv4(ip, u16::try_from(mtu).ok()?)?,
        ETHERTYPE_IPV6 => ipv6(ip, mtu)?,
        _ => return None,
    };
    let mut bytes = Vec::with_capacity(IP_AT + message.len());
    bytes.resize(VNET_HEADER_BYTES, 0);
    let frame = packet.frame();
    // Back to where it came from.
    bytes.extend_from_slice(frame.get(6..12)?);
    bytes.extend_from_slice(&[2, 0, 0, 0, 0, ROUTER_NUMBER + 1]);
    bytes.extend_from_slice(frame.get(12..ETHERNET_BYTES)?);
    bytes.extend_from_slice(&message);
    Some(Packet { bytes, from: packet.from })
}

fn ipv4(ip: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let header = ip.get(..20)?;
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    let is_error = header[9] == PROTOCOL_ICMP && !matches!(ip.get(20), Some(0 | 8));
    // RFC 1122, 3.2.2: none about errors, later fragments and multicast.
    if fragment != 0 || is_error || header[16] >= 224 {
        return None;
    }
    let quote = &ip[..ip.len().min(IPV4_QUOTE_BYTES_MAX)];
    let [mtu_high, mtu_low] = mtu.to_be_bytes();
    let mut icmp = vec![3, 4, 0, 0, 0, 0, mtu_high, mtu_low];
    icmp.extend_from_slice(quote);
    let sum = !fold(sum_of(&icmp));
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let [len_high, len_low] = u16::try_from(20 + icmp.len()).ok()?.to_be_bytes();
    let mut message = vec![0x45, 0xc0, len_high, len_low, 0, 0, 0, 0, 64, PROTOCOL_ICMP, 0, 0];
    message.extend_from_slice(&[10, 77, 0, ROUTER_NUMBER]);
    message.extend_from_slice(&header[12..16]);
    let sum = !fold(sum_of(&message));
    message[10..12].copy_from_slice(&sum.to_be_bytes());
    message.extend_from_slice(&icmp);
    Some(message)
}

fn ipv6(ip: &[u8], mtu: u32) -> Option<Vec<u8>> {
    let header = ip.get(..40)?;
    let is_error = header[6] == PROTOCOL_ICMPV6 && ip.get(40).is_some_and(|kind| kind & 0x80 == 0);
    if is_error {
        return None;
    }
    let quote = &ip[..ip.len().min(IPV6_QUOTE_BYTES_MAX)];
    let mut icmp = vec![2, 0, 0, 0];
    icmp.extend_from_slice(&mtu.to_be_bytes());
    icmp.extend_from_slice(quote);
    let mut addresses = vec![0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ROUTER_NUMBER];
    addresses.extend_from_slice(&header[8..24]);
    let len = u16::try_from(icmp.len()).ok()?;
    let sum = sum_of(&addresses) + sum_of(&icmp) + u32::from(len) + u32::from(PROTOCOL_ICMPV6);
    icmp[2..4].copy_from_slice(&(!fold(sum)).to_be_bytes());
    let mut message = vec![0x60, 0, 0, 0];
    message.extend_from_slice(&len.to_be_bytes());
    message.extend_from_slice(&[PROTOCOL_ICMPV6, 64]);
    message.extend_from_slice(&addresses);
    message.extend_from_slice(&icmp);
    Some(message)
}
