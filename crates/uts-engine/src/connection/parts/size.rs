//! Packet size: probing for the largest UDP payload that the path carries (RFC 8899). Nothing is
//! ever fragmented.

use super::super::Ways;
use super::super::packet::{Packet, Reason};
use super::{LostPacket, Part, Token};
use crate::config::{PACKET_BYTES_BASE, PACKET_BYTES_MIN};
use crate::event::Event;
use core::time::Duration;
use uts_functions::congestion::Congestion;
use uts_functions::{Rate, Time};
use uts_wire::frame::Frame;

/// Probes of one size that must be lost before it counts as too large (RFC 8899 section 5.1.2).
const PROBES_MAX: u8 = 3;

/// Sizes closer than this are not worth another probe.
const STEP_BYTES: usize = 16;

/// After this long, a larger size is tried again (RFC 8899 section 5.1.1: PMTU_RAISE_TIMER).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// Times in a row that packets are lost, and none as large arrives, after which these may no longer
/// pass. Of packets of all sizes, of which one in seven is lost, the lost ones are the largest four
/// times in a row once in 7,000 losses, and eight times once in 500 million.
const LOSSES_OF_BLACK_HOLE: u8 = 8;

/// Times in a row that packets of the base size vanish, after which the path counts as one that
/// carries smaller ones only. Once is an outage; twice, since something small must have passed in
/// between, is none.
const HOLES_OF_SMALL_PATH: u8 = 2;

/// Number of packets longer than half the size that must have arrived before anything is probed. A
/// sender that fills packets has use for larger ones, and a probe takes little more than what is
/// sent anyway. To small messages on a slow line a probe would be a long wait.
const LONG_PACKETS_MIN: u8 = 4;

/// A probe takes no more than this part of the time that messages have, where that is known.
const PART_OF_DEADLINE: u32 = 8;

/// The search for the packet size.
#[derive(Clone, Debug)]
pub(crate) struct PacketSize {
    current: usize,
    /// The smallest that is fallen back to.
    least: u16,
    /// Size that is fallen back to first.
    base: usize,
    /// Black holes in a row: nothing larger than the smallest size has arrived in between.
    holes: u8,
    /// Smallest size known not to pass, plus what the limits exclude.
    ceiling: usize,
    max: usize,
    in_flight: bool,
    lost: u8,
    next_at: Time,
    /// The value of `next_at` that has come and was noticed; `NEVER` = none has.
    due_since: Time,
    first: bool,
    /// The peer is known to have finished the handshake: nothing is probed before.
    pub is_begun: bool,
    /// Packets of more than half the size that have arrived.
    long_packets: u8,
    /// Times in a row that packets larger than must pass were lost, and none as large has arrived:
    /// small ones may still pass, and be acknowledged, where these do not. In parts, which take
    /// less memory so.
    hole_times: u8,
    /// The smallest of them.
    hole_bytes: u16,
    /// The first of them.
    hole_since: u64,
}

impl PacketSize {
    /// From `initial` bytes, up to `max` and down to `least`.
    pub fn new(now: Time, least: usize, initial: usize, max: usize) -> Self {
        let max = max.max(initial);
        PacketSize {
            least: u16::try_from(least).unwrap_or(u16::MAX),
            current: initial,
            base: initial.min(PACKET_BYTES_BASE),
            holes: 0,
            ceiling: max + 1,
            max,
            in_flight: false,
            lost: 0,
            next_at: now,
            due_since: Time::NEVER,
            first: true,
            is_begun: false,
            long_packets: 0,
            hole_times: 0,
            hole_bytes: 0,
            hole_since: 0,
        }
    }

    /// The path is another one: the search begins anew, with what most paths carry.
    pub fn restart(&mut self, now: Time) {
        let (least, current, is_begun) = (self.least.into(), self.base.min(self.current), self.is_begun);
        *self = PacketSize { is_begun, ..PacketSize::new(now, least, current, self.max) };
    }

    /// Bytes of UDP payload of a full packet.
    pub fn current(&self) -> usize {
        self.current
    }

    /// The size to probe now, if one is due.
    pub fn probe(&self, now: Time) -> Option<usize> {
        if self.in_flight || now < self.next_at || self.ceiling <= self.current + 1 || !self.is_of_use() {
            return None;
        }
        // Most paths carry the largest size at once; only if not, the search halves.
        if self.first {
            return Some(self.ceiling - 1);
        }
        let size = ((self.current + self.ceiling) / 2).max(self.current + STEP_BYTES);
        (size < self.ceiling).then_some(size)
    }

    /// True if larger packets would be of use.
    fn is_of_use(&self) -> bool {
        self.long_packets >= LONG_PACKETS_MIN
    }

    /// True if a probe of so many bytes makes nobody wait: messages are to arrive within `deadline`
    /// over a path of this capacity, as far as either is known.
    pub fn is_harmless(bytes: usize, deadline: Option<Duration>, capacity: Rate) -> bool {
        let takes =
            if capacity == Rate::default() { Duration::ZERO } else { capacity.time_for(bytes as u64) };
        deadline.is_none_or(|deadline| takes <= deadline / PART_OF_DEADLINE)
    }

    /// When a probe is due. Once it is, it leaves when window and rate let it: there is nothing
    /// more to wait for.
    fn probe_at(&self) -> Option<Time> {
        let open = !self.in_flight && self.ceiling > self.current + STEP_BYTES && self.is_of_use();
        (open && self.next_at != Time::NEVER && self.due_since != self.next_at).then_some(self.next_at)
    }

    pub fn on_probe_sent(&mut self) {
        self.in_flight = true;
    }

    /// A probe arrived. Says whether the packet size has changed.
    pub fn on_probe_acknowledged(&mut self, now: Time, bytes: usize) -> bool {
        self.in_flight = false;
        self.lost = 0;
        self.first = false;
        self.next_at = if bytes >= self.max { Time::NEVER } else { now };
        let larger = bytes > self.current && bytes < self.ceiling;
        if larger {
            self.current = bytes;
            self.base = self.base.max(bytes.min(PACKET_BYTES_BASE));
        }
        larger
    }

    pub fn on_probe_lost(&mut self, now: Time, bytes: usize) {
        self.in_flight = false;
        self.lost += 1;
        self.next_at = now;
        if self.lost >= PROBES_MAX {
            self.lost = 0;
            self.first = false;
            self.ceiling = self.ceiling.min(bytes);
            if self.ceiling <= self.current + STEP_BYTES {
                self.next_at = now + RAISE_AFTER;
            }
        }
    }

    /// So many packets, of which this is the last, have arrived, of so many bytes each.
    #[inline]
    pub fn on_acknowledged(&mut self, number: u64, packets: u64, bytes: usize) {
        if self.long_packets < LONG_PACKETS_MIN && bytes > self.current / 2 {
            let packets = u8::try_from(packets).unwrap_or(u8::MAX);
            self.long_packets = self.long_packets.saturating_add(packets);
        }
        if self.holes > 0 && bytes >= self.base && self.base > self.least.into() {
            self.holes = 0;
        }
        if self.hole_times > 0 && bytes >= self.hole_bytes.into() && number > self.hole_since {
            self.hole_times = 0;
        }
    }

    /// Packets, each with its bytes, were found to be lost, none of them a probe of a size. Says
    /// whether the packet size has changed: where that happens again and again, and none as large
    /// arrives, they no longer pass (RFC 8899 section 4.3).
    pub fn on_lost(&mut self, now: Time, lost: impl Iterator<Item = (u64, usize)>) -> bool {
        // What still has the size of before says nothing of this one.
        let large = lost.filter(|(_, bytes)| (usize::from(self.least) + 1..=self.current).contains(bytes));
        let first_and_smallest = large.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)));
        let Some((since, bytes)) = first_and_smallest else { return false };
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        if self.hole_times == 0 {
            (self.hole_since, self.hole_bytes) = (since, bytes);
        }
        self.hole_bytes = self.hole_bytes.min(bytes);
        self.hole_times += 1;
        if self.hole_times < LOSSES_OF_BLACK_HOLE {
            return false;
        }
        // Others were acknowledged, or these would not count as lost: it is no outage.
        self.holes = self.holes.max(HOLES_OF_SMALL_PATH - 1);
        self.on_black_hole(now)
    }

    /// Perhaps full packets no longer pass: several time-outs in a row show that, too (RFC 8899
    /// section 4.3). Says whether the size has changed: to the base, when that does not pass either
    /// to what every host takes, and then to the smallest that there is.
    pub fn on_black_hole(&mut self, now: Time) -> bool {
        self.hole_times = 0;
        self.holes = self.holes.saturating_add(1);
        let least = usize::from(self.least);
        let smaller = if self.current > self.base {
            self.base
        } else if self.holes >= HOLES_OF_SMALL_PATH {
            self.base = if self.current > PACKET_BYTES_MIN { PACKET_BYTES_MIN.max(least) } else { least };
            self.base
        } else {
            self.current
        };
        let shrinks = smaller < self.current;
        if shrinks {
            self.ceiling = self.current;
            self.current = smaller;
            self.first = false;
            self.next_at = now + Duration::from_secs(1);
        }
        shrinks
    }

    /// When the search rests, it begins anew after a while.
    fn on_due(&mut self, now: Time) {
        if now >= self.next_at {
            self.due_since = self.next_at;
        }
        if !self.in_flight && now >= self.next_at && self.ceiling <= self.current + STEP_BYTES {
            self.ceiling = self.max + 1;
            self.first = true;
        }
    }

    /// Tells congestion control and the application of another size.
    pub fn tell(&self, ways: &mut Ways) {
        ways.outbound.congestion.set_packet_bytes(self.current as u64);
        ways.events.push_back(Event::PacketSize(self.current));
    }
}

impl Part for PacketSize {
    /// A probe is a ping in a packet of the size that is tried.
    fn write(&mut self, packet: &mut Packet<'_>, _ways: &mut Ways) {
        if let Reason::SizeProbe(bytes) = packet.reason {
            packet.put(&Frame::Ping);
            packet.tokens.push(Token::Size(bytes));
            self.on_probe_sent();
        }
    }

    fn acked(&mut self, now: Time, token: &Token, ways: &mut Ways) {
        if let Token::Size(bytes) = token
            && self.on_probe_acknowledged(now, *bytes)
        {
            self.tell(ways);
        }
    }

    fn lost(&mut self, loss: &LostPacket, token: &Token, _ways: &mut Ways) {
        if let Token::Size(bytes) = token {
            self.on_probe_lost(loss.now, *bytes);
        }
    }

    fn timeout(&self, ways: &Ways) -> Option<Time> {
        let is_idle = ways.outbound.delivery.in_flight == 0;
        self.probe_at().filter(|_| self.is_begun && is_idle)
    }

    fn on_timeout(&mut self, now: Time, _ways: &mut Ways) {
        self.on_due(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search of whose packets some have arrived, which were full.
    fn begun(initial: usize, max: usize) -> PacketSize {
        PacketSize {
            long_packets: LONG_PACKETS_MIN,
            ..PacketSize::new(Time::ZERO, PACKET_BYTES_MIN, initial, max)
        }
    }

    /// Runs the search on a path that carries `limit` bytes; gives the size found and the probes it
    /// took.
    fn search(initial: usize, max: usize, limit: usize) -> (usize, u32) {
        let mut size = begun(initial, max);
        let mut probes = 0;
        while let Some(bytes) = size.probe(Time::ZERO) {
            probes += 1;
            assert!(probes < 100, "the search must end");
            size.on_probe_sent();
            if bytes <= limit {
                size.on_probe_acknowledged(Time::ZERO, bytes);
            } else {
                size.on_probe_lost(Time::ZERO, bytes);
            }
        }
        (size.current(), probes)
    }

    #[test]
    fn a_larger_size_is_looked_for_where_packets_are_filled_and_nobody_waits_for_it() {
        let mut size = PacketSize::new(Time::ZERO, PACKET_BYTES_MIN, 1200, 1472);
        (0..100).for_each(|number| size.on_acknowledged(number, 1, 220));
        assert_eq!(
            (size.probe(Time::ZERO), size.probe_at()),
            (None, None),
            "small messages have no use for it"
        );
        (100..104).for_each(|number| size.on_acknowledged(number, 1, 1100));
        assert_eq!(size.probe(Time::ZERO), Some(1472));
        let (deadline, slow) = (Some(Duration::from_millis(150)), Rate::from_bits_per_sec(92_000));
        assert!(!PacketSize::is_harmless(1472, deadline, slow), "128 ms");
        assert!(PacketSize::is_harmless(1472, deadline, Rate::from_bits_per_sec(1_000_000)));
        assert!(PacketSize::is_harmless(1472, None, slow));
        assert!(PacketSize::is_harmless(1472, deadline, Rate::default()), "nothing is known");
    }

    #[test]
    fn the_largest_size_is_tried_first() {
        assert_eq!(search(1200, 1472, 1472), (1472, 1));
        assert_eq!(search(1200, 1472, 9000), (1472, 1));
    }

    #[test]
    fn smaller_paths_are_found_within_a_step() {
        for limit in [1200, 1280, 1400, 1450, 1471] {
            let (found, probes) = search(1200, 1472, limit);
            assert!(found <= limit && found + STEP_BYTES > limit.min(1472) - 1, "{limit}: {found}");
            assert!(probes <= 30, "{limit}: {probes}");
        }
    }

    #[test]
    fn a_probe_that_is_due_is_announced_once() {
        for ceiling in 1210..1240 {
            let mut size = PacketSize { ceiling, first: false, ..begun(1200, 1472) };
            assert_eq!(size.probe_at().is_some(), size.probe(Time::ZERO).is_some(), "{ceiling}");
            size.on_due(Time::ZERO);
            assert_eq!(size.probe_at(), None, "{ceiling}");
        }
    }

    #[test]
    fn a_black_hole_falls_back_and_searches_again() {
        let mut size = begun(1200, 1472);
        size.on_probe_sent();
        size.on_probe_acknowledged(Time::ZERO, 1472);
        assert!(size.on_black_hole(Time::from_millis(5)));
        assert_eq!(size.current(), 1200);
        assert!(size.probe(Time::from_millis(5)).is_none());
        assert_eq!(size.probe(Time::from_millis(1005)), Some(1336));
        assert!(size.on_black_hole(Time::from_millis(2000)), "the base does not pass either");
        assert_eq!(size.current(), PACKET_BYTES_MIN);
        assert!(!size.on_black_hole(Time::from_millis(3000)));
    }

    /// Nothing passes for a while, again and again: that says nothing of sizes.
    #[test]
    fn outages_leave_the_base() {
        let mut size = begun(1200, 1472);
        for outage in 0..10 {
            assert!(!size.on_black_hole(Time::from_millis(1000 * outage)));
            assert_eq!(size.current(), 1200);
            size.on_acknowledged(outage, 1, 1200);
        }
    }

    #[test]
    fn a_path_that_was_small_and_grows_is_searched_again() {
        let mut size = begun(1200, 1472);
        assert!(!size.on_black_hole(Time::ZERO) && size.on_black_hole(Time::ZERO));
        let mut now = Time::from_millis(1000);
        let mut sizes = Vec::new();
        while let Some(bytes) = size.probe(now) {
            size.on_probe_sent();
            size.on_probe_acknowledged(now, bytes);
            sizes.push(bytes);
        }
        assert!(size.current() > 1200 - 2 * STEP_BYTES, "{sizes:?}");
        now += RAISE_AFTER;
        size.on_due(now);
        assert_eq!(size.probe(now), Some(1472));
    }

    /// A search that has found 1472, and a path that then loses packets, each time one of these
    /// bytes. Between two losses something may arrive: packet and bytes. Says after how many losses
    /// the size has changed.
    fn losses_until_smaller(lost: &[usize], arrives: impl Fn(u64) -> Option<(u64, usize)>) -> Option<u64> {
        let mut size = begun(1200, 1472);
        size.on_probe_sent();
        size.on_probe_acknowledged(Time::ZERO, 1472);
        (1..=20).find(|time| {
            let number = 10 * time;
            let packets = lost.iter().map(|bytes| (number, *bytes));
            let is_smaller = size.on_lost(Time::ZERO, packets);
            assert_eq!(size.current(), if is_smaller { 1200 } else { 1472 });
            if let Some((packet, bytes)) = arrives(number) {
                size.on_acknowledged(packet, 1, bytes);
            }
            is_smaller
        })
    }

    #[test]
    fn losses_of_what_is_large_while_only_smaller_arrives_are_a_black_hole() {
        let then = |bytes| move |lost: u64| Some((lost + 1, bytes));
        assert_eq!(losses_until_smaller(&[1472], |_| None), Some(8));
        assert_eq!(losses_until_smaller(&[1472], then(1200)), Some(8), "small ones pass");
        assert_eq!(losses_until_smaller(&[1472, 60], then(1471)), Some(8), "so do all but the largest");
        assert_eq!(losses_until_smaller(&[1472], then(1472)), None, "they pass");
        assert_eq!(losses_until_smaller(&[1300], then(1472)), None, "larger ones pass");
        assert_eq!(
            losses_until_smaller(&[1472], |_| Some((9, 1472))),
            Some(8),
            "they did, before the first was lost"
        );
        assert_eq!(losses_until_smaller(&[548], |_| None), None, "the smallest must pass");
        assert_eq!(losses_until_smaller(&[1500], |_| None), None, "larger than now says nothing");
    }
}
