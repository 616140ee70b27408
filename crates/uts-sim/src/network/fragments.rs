//! Fragmentation and reassembly of IPv4 (RFC 791 section 3.2).
//!
//! A node fragments what is longer than the MTU of the next path, if the application permits it and
//! paths carry headers. Each fragment passes queues and is lost by itself. The destination takes a
//! packet once all of it has arrived, and gives up what is not whole 30 s after the first of it
//! (the BSDs do; RFC 1122 section 3.3.2 has a fixed time too). Captures show packets whole.

use super::{Application, Network};
use crate::packet::{Body, Damage, Fragment, IP_HEADER_BYTES, Packet};
use crate::topology::{Node, PathId};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;
use uts_functions::Time;
use uts_path::Direction;

/// Time that parts of a packet wait for the others.
const REASSEMBLY_MAX: Duration = Duration::from_secs(30);
/// Packets of which parts wait, at each node; the oldest gives way.
const WAITING_MAX: usize = 256;

/// Sender, receiver, and the identification of the packet.
type Key = (SocketAddrV4, SocketAddrV4, u16);

/// Parts of packets that wait at a node.
#[derive(Default)]
pub(super) struct Reassembly {
    parts: BTreeMap<Key, Parts>,
    /// The order in which they are given up.
    order: VecDeque<(Time, Key)>,
}

struct Parts {
    /// Until when they wait.
    until: Time,
    /// The packet, of which each part knows all but its body.
    packet: Packet,
    /// Ranges that have arrived: from and to, in the packet's bytes behind its IP header.
    ranges: Vec<(u16, u16)>,
    /// The end, once the last fragment is there.
    end: Option<u16>,
}

impl Parts {
    /// True if all of the packet has arrived.
    fn is_whole(&mut self) -> bool {
        self.ranges.sort_unstable();
        let reached = self
            .ranges
            .iter()
            .fold(0, |reached, range| if range.0 <= reached { reached.max(range.1) } else { reached });
        self.end.is_some_and(|end| reached >= end)
    }
}

impl Reassembly {
    /// Takes a fragment. Gives the packet if it is whole now, and how many others were given up.
    fn take(&mut self, now: Time, packet: Packet, fragment: Fragment) -> (Option<Packet>, u64) {
        let mut given_up = 0;
        while let Some((until, key)) = self.order.front().copied()
            && (until <= now || self.parts.len() > WAITING_MAX)
        {
            self.order.pop_front();
            // One of the same name may have begun since, with a later end.
            if self.parts.get(&key).is_some_and(|parts| parts.until == until) {
                self.parts.remove(&key);
                given_up += 1;
            }
        }
        let key = (packet.from, packet.to, packet.identification);
        let end = fragment.offset + fragment.bytes;
        let until = now + REASSEMBLY_MAX;
        let parts = self.parts.entry(key).or_insert_with(|| {
            self.order.push_back((until, key));
            Parts { until, packet, ranges: Vec::new(), end: None }
        });
        if fragment.offset == 0 {
            parts.packet.body = fragment.body;
        }
        // RFC 3168 section 5.3: a whole packet is marked if any of its fragments is.
        if packet_is_marked(&parts.packet, fragment.is_marked) {
            parts.packet.ecn = Some(uts_engine::Ecn::Ce);
        }
        parts.ranges.push((fragment.offset, end));
        if fragment.is_last {
            parts.end = Some(end);
        }
        let whole = parts.is_whole().then(|| self.parts.remove(&key)).flatten();
        (whole.map(|parts| parts.packet), given_up)
    }
}

fn packet_is_marked(packet: &Packet, is_marked: bool) -> bool {
    is_marked && packet.ecn.is_some()
}

impl<A: Application> Network<A> {
    /// Sends a packet on a path, in fragments if the path wants that and the packet permits it.
    pub(super) fn send_on(&mut self, path: PathId, direction: Direction, packet: Packet) {
        if packet.may_fragment
            && let Some(room) = self.room_for_fragments(path, direction, &packet)
        {
            for fragment in split(packet, room) {
                self.offer(path, direction, fragment);
            }
            return;
        }
        self.offer(path, direction, packet);
    }

    /// Bytes that a fragment has behind its IP header, if a packet must be fragmented and can be: a
    /// multiple of 8.
    fn room_for_fragments(&self, path: PathId, direction: Direction, packet: &Packet) -> Option<u16> {
        let config = self.paths[path.index()].0.config(direction);
        let mtu = config.mtu_bytes?.saturating_sub(config.overhead_bytes) as usize;
        if packet.header_bytes == 0 || packet.path_bytes() <= mtu {
            return None;
        }
        let room = mtu.checked_sub(IP_HEADER_BYTES)? / 8 * 8;
        u16::try_from(room).ok().filter(|room| *room > 0)
    }

    /// A fragment is at the node that it is for. Gives the packet if that is whole now.
    pub(super) fn reassemble(&mut self, mut packet: Packet) -> Option<Packet> {
        if !matches!(packet.body, Body::Fragment(_)) {
            return Some(packet);
        }
        // A fragment has no checksum of its own. That of the packet would find the damage.
        if packet.damage != Damage::None {
            self.counters.bad_checksum += 1;
            return None;
        }
        let Body::Fragment(fragment) = core::mem::replace(&mut packet.body, Body::EMPTY) else { return None };
        let (now, node) = (self.now, Node(packet.destination.into()));
        let (whole, given_up) = self.reassemblies.entry(node).or_default().take(now, packet, *fragment);
        self.counters.not_reassembled += given_up;
        whole
    }
}

/// The fragments of a packet, or of a fragment, with at most `room` bytes behind their IP headers.
fn split(mut packet: Packet, room: u16) -> Vec<Packet> {
    let bytes = (packet.path_bytes() - IP_HEADER_BYTES) as u16;
    let mut whole = match core::mem::replace(&mut packet.body, Body::EMPTY) {
        Body::Fragment(fragment) => *fragment,
        body => Fragment { offset: 0, bytes, is_last: true, is_marked: false, body },
    };
    let mut fragments = Vec::new();
    let mut done = 0;
    while done < whole.bytes {
        let bytes = room.min(whole.bytes - done);
        let fragment = Fragment {
            offset: whole.offset + done,
            bytes,
            is_last: whole.is_last && done + bytes == whole.bytes,
            is_marked: whole.is_marked,
            // The first carries the body, wherever the rest of the bytes are.
            body: core::mem::replace(&mut whole.body, Body::EMPTY),
        };
        fragments.push(Packet { body: Body::Fragment(Box::new(fragment)), ..packet.clone() });
        done += bytes;
    }
    fragments
}
