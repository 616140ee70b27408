//! Datagrams, as applications hand them over and as the network carries them.

use crate::pcap;
use std::borrow::Cow;
use std::net::{SocketAddr, SocketAddrV4};
use uts_engine::Ecn;
use uts_functions::Time;
use uts_path::Payload;

/// Number of routers that a packet passes at most (the default of Linux hosts).
pub(crate) const HOPS_MAX: u8 = 64;

/// Content of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Its UDP payload.
    Bytes(Vec<u8>),
    /// A payload of a traffic source, of which only length and number matter: the number in eight
    /// bytes, as far as they fit in, then zeros. It is never laid out in memory.
    Blank {
        /// Length of the UDP payload in bytes.
        len: u16,
        /// The number that its source gave it, from 0.
        number: u64,
    },
    /// A part of a datagram, on its way. Applications never see one.
    Fragment(Box<Fragment>),
}

impl Body {
    /// Nothing.
    pub(crate) const EMPTY: Body = Body::Blank { len: 0, number: 0 };

    /// Length of the UDP payload in bytes.
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Blank { len, .. } => usize::from(*len),
            Body::Fragment(fragment) => usize::from(fragment.bytes),
        }
    }

    /// True if the UDP payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A datagram that an application sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where to; IPv4.
    pub to: SocketAddr,
    /// Codepoint to mark it with.
    pub ecn: Option<Ecn>,
    /// Content of the datagram.
    pub body: Body,
}

/// A datagram on its way, or arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Address and port of the application that sent it.
    pub from: SocketAddrV4,
    /// Address and port of the application that it is for.
    pub to: SocketAddrV4,
    /// Codepoint of its mark.
    pub ecn: Option<Ecn>,
    /// Number of further routers that it may pass.
    pub hops_left: u8,
    /// When its application handed it over.
    pub sent_at: Time,
    /// Content of the datagram.
    pub body: Body,
    /// IPv4 identification: counts the packets of an application.
    pub(crate) identification: u16,
    /// The UDP checksum that its host computed; 0 if nobody looks at it.
    pub(crate) checksum: u16,
    /// Bytes of headers that paths are offered before the payload.
    pub(crate) header_bytes: u8,
    /// Part of it in which paths have flipped bits.
    pub(crate) damage: Damage,
    /// The node that has its destination address; a topology has fewer than 2^16.
    pub(crate) destination: u16,
    /// Nodes may fragment it.
    pub(crate) may_fragment: bool,
}

/// Which part of a datagram a fragment is. The first has the whole body with it, but counts no more
/// than its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Where it begins, in the bytes behind the packet's IP header.
    pub(crate) offset: u16,
    /// Its own bytes behind its IP header.
    pub(crate) bytes: u16,
    /// The packet ends with it.
    pub(crate) is_last: bool,
    /// It has met congestion.
    pub(crate) is_marked: bool,
    /// Body of the datagram, in its first fragment; empty in others.
    pub(crate) body: Body,
}

/// An IPv4 header without options.
pub(crate) const IP_HEADER_BYTES: usize = 20;

/// Where bits of a packet were flipped; the worse counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    None,
    /// In what the UDP checksum covers.
    Payload,
    /// In the headers, so that it cannot arrive.
    Headers,
}

impl Packet {
    /// The length that paths are offered, in bytes.
    pub(crate) fn path_bytes(&self) -> usize {
        match &self.body {
            Body::Fragment(fragment) => IP_HEADER_BYTES + usize::from(fragment.bytes),
            body => usize::from(self.header_bytes) + body.len(),
        }
    }
}

impl Payload for Packet {
    fn flip_bit(&mut self, bit: usize) {
        let Some(bit) = bit.checked_sub(8 * usize::from(self.header_bytes)) else {
            self.damage = Damage::Headers;
            return;
        };
        self.damage = self.damage.max(Damage::Payload);
        if let Body::Bytes(bytes) = &mut self.body {
            bytes.flip_bit(bit);
        }
    }

    fn mark_ce(&mut self) -> bool {
        let is_capable = self.ecn.is_some();
        if let Body::Fragment(fragment) = &mut self.body {
            fragment.is_marked |= is_capable;
        } else if is_capable {
            self.ecn = Some(Ecn::Ce);
        }
        is_capable
    }

    /// By addresses and ports; what a network translates on the way is another flow behind it.
    fn flow(&self) -> u64 {
        let number = |end: SocketAddrV4| u64::from(u32::from(*end.ip())) << 16 | u64::from(end.port());
        // The golden ratio's bits spread what differs in a few.
        number(self.from).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number(self.to)
    }

    /// Where paths carry headers, and the packet is no fragment. A checksum that nobody has asked
    /// for is computed.
    fn ip(&self) -> Option<Cow<'_, [u8]>> {
        let shows = self.header_bytes > 0 && !matches!(self.body, Body::Fragment(_));
        shows.then(|| Cow::Owned(pcap::laid_out(self)))
    }

    /// Whatever is at another address, or has another checksum of its headers, cannot arrive.
    fn set_ip(&mut self, packet: &[u8]) -> bool {
        let Some(restored) = pcap::read(packet) else { return false };
        if (restored.from, restored.to) != (self.from, self.to) {
            self.damage = Damage::Headers;
            return true;
        }
        self.damage = self.damage.max(Damage::Payload);
        self.hops_left = restored.hops_left;
        self.identification = restored.identification;
        self.checksum = restored.checksum;
        self.body = Body::Bytes(restored.payload.to_vec());
        true
    }

    fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Bytes(bytes) => Some(bytes),
            // A fragment has not all that its body shows.
            Body::Blank { .. } | Body::Fragment(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_sees_ip_and_puts_another_packet_in_its_place() {
        let end = |last: u8| SocketAddrV4::new([10, 0, 0, last].into(), 7001);
        let blank = Body::Blank { len: 40, number: 7 };
        let packet = |header_bytes: u8, body: Body| Packet {
            from: end(1),
            to: end(2),
            ecn: None,
            hops_left: 60,
            sent_at: Time::ZERO,
            body,
            identification: 9,
            checksum: 0,
            header_bytes,
            damage: Damage::None,
            destination: 1,
            may_fragment: true,
        };
        let mut damaged = packet(28, blank.clone());
        let ip = damaged.ip().expect("with headers").into_owned();
        assert_eq!((ip.len(), &ip[4..6], &ip[28..36]), (68, &[0, 9][..], &[0, 0, 0, 0, 0, 0, 0, 7][..]));
        assert_eq!(packet(0, blank.clone()).ip(), None, "without headers");
        let fragment = Fragment { offset: 0, bytes: 20, is_last: false, is_marked: false, body: blank };
        assert_eq!(packet(28, Body::Fragment(Box::new(fragment))).ip(), None);
        // Another payload under the same checksum, a byte shorter.
        let mut shorter = ip[..67].to_vec();
        (shorter[3], shorter[25]) = (67, 47);
        assert!(damaged.set_ip(&shorter));
        assert_eq!((damaged.damage, damaged.body.len()), (Damage::Payload, 39));
        assert!(!pcap::is_checksum_right(&damaged), "the length is in it");
        // For somebody else, and for nobody.
        let mut elsewhere = ip.clone();
        elsewhere[19] = 3;
        assert!(damaged.set_ip(&elsewhere) && damaged.damage == Damage::Headers);
        assert!(!damaged.set_ip(&ip[..27]));
    }

    /// Queues move packets: the simulator is slower with larger ones.
    #[test]
    fn a_packet_is_small() {
        assert!(size_of::<Packet>() <= 56, "{} bytes", size_of::<Packet>());
    }
}
