//! Arrivals: which packets there were, and what of them is still unreported or held back from
//! reports.

use crate::range::RangeSet;
use crate::time::Time;
use core::time::Duration;

/// Ranges of packet numbers that are remembered for reporting; older ones have been reported many
/// times.
pub const RANGES_MAX: usize = 64;

/// Packets that are held back from reports at the most: others are reported as they come.
pub const HELD_MAX: usize = 4096;

/// A report is said so many times in a packet at the most: as many packets come together.
const REPORTS_MAX: u8 = 64;

/// Share of a new time between packets in the smoothed one.
const GAP_SHARE: u32 = 8;

/// A packet that is held back from reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its number.
    pub number: u64,
    /// A flow of which it has data.
    pub flow: u32,
    /// Where that data ends.
    pub end: u64,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its number.
    pub number: u64,
    /// When.
    pub now: Time,
    /// The packet asks for an acknowledgement (carries more than acknowledgements, padding or a
    /// close).
    pub eliciting: bool,
    /// The packet carries the sender's poll.
    pub polled: bool,
    /// The network marked the packet (ECN CE).
    pub marked: bool,
}

/// The state of the function: what arrived, and what of it is still unreported.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// Packet numbers that arrived.
    pub received: RangeSet,
    /// Packet numbers that never arrived but were repaired by FEC.
    pub repaired: RangeSet,
    /// The largest number that arrived, and when.
    pub largest: Option<(u64, Time)>,
    /// Eliciting packets that arrived since the last report.
    pub unreported: u32,
    /// When the first of them arrived.
    pub unreported_since: Option<Time>,
    /// When the next report is due, if one is.
    pub due: Option<Time>,
    /// When the last report was sent.
    pub reported_at: Time,
    /// Time between reports, for mechanisms that go by it, in microseconds; zero = nothing speaks
    /// for that.
    pub apart_us: u32,
    /// The shortest round trip, as this end's own packets tell it, in microseconds; zero = not
    /// known.
    pub round_trip_us: u32,
    /// Packets received with ECT(0), ECT(1), CE.
    pub ecn: [u64; 3],
    /// Packets that are held back from reports, if any were of late.
    #[allow(clippy::box_collection, reason = "16 bytes less for each connection at rest")]
    pub(super) held: Option<Box<Vec<Held>>>,
    /// Packets that are held back and have come since the last report.
    pub(super) held_unreported: u8,
    /// The smoothed time between packets, in nanoseconds.
    pub(super) gap_ns: u32,
    /// Below this, everything was reported and the report acknowledged: duplicates of it are not
    /// new.
    pub(super) floor: u64,
}

impl Arrivals {
    /// True if a packet of this number was here before (or is so old that it must be taken for a
    /// repeat).
    pub fn is_duplicate(&self, number: u64) -> bool {
        number < self.floor || self.received.contains(number)
    }

    /// True if the packet leaves a gap, fills one, or comes behind a larger one: news that the
    /// sender wants at once.
    pub fn is_out_of_order(&self, number: u64) -> bool {
        match self.largest {
            None => false,
            Some((largest, _)) => number != largest.saturating_add(1),
        }
    }

    /// True if packets before this one are missing that were not before.
    pub fn leaves_gap(&self, number: u64) -> bool {
        self.largest.is_some_and(|(largest, _)| number > largest.saturating_add(1))
    }

    /// The smoothed time from one packet to the next.
    pub fn gap(&self) -> Duration {
        Duration::from_nanos(self.gap_ns.into())
    }

    /// The shortest round trip; zero = not known.
    pub fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip_us.into())
    }

    /// Holds a packet back from reports; says whether there was room.
    pub fn hold(&mut self, held: Held) -> bool {
        let list = self.held.get_or_insert_default();
        let has_room = list.len() < HELD_MAX;
        if has_room {
            let is_another = list.last().is_none_or(|last| last.number != held.number);
            self.held_unreported = self.held_unreported.saturating_add(u8::from(is_another));
            list.push(held);
        }
        has_room
    }

    /// Number of times that the next report is to be said: once for each packet that is held back
    /// and has come since the last one (acknowledgement.md R-17).
    pub fn reports_due(&self) -> u8 {
        self.held_unreported.clamp(1, REPORTS_MAX)
    }

    /// Number of packets that are held back from reports.
    pub fn held_packets(&self) -> usize {
        let Some(held) = &self.held else { return 0 };
        held.chunk_by(|a, b| a.number == b.number).count()
    }

    /// Gives up the packets that are held back: they count as never arrived. Says what they had.
    pub fn give_up_held(&mut self) -> Vec<Held> {
        let held = self.held.take().map_or_else(Vec::new, |held| *held);
        for held in &held {
            self.received.remove(held.number..held.number.saturating_add(1));
        }
        held
    }

    /// True if packets are held back from reports.
    pub fn holds_back(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.is_empty())
    }

    /// Lets the packets go of which that can be said.
    pub fn let_go(&mut self, goes: impl Fn(&Held) -> bool) {
        if let Some(held) = &mut self.held {
            held.retain(|held| !goes(held));
        }
        if self.held.take_if(|held| held.is_empty()).is_some() {
            self.held_unreported = 0;
        }
    }

    /// Packets that may be reported where others are held back (acknowledgement.md R-1).
    pub fn unheld(&self) -> Option<RangeSet> {
        let held = self.held.as_ref()?;
        let mut ranges = self.received.clone();
        held.iter().for_each(|held| {
            ranges.remove(held.number..held.number.saturating_add(1));
        });
        Some(ranges)
    }

    /// Notes an arrival; call [`on_arrival`](super::Acknowledgement::on_arrival) first, it compares
    /// with the state before.
    pub fn insert(&mut self, arrival: &Arrival) {
        self.received.insert_one(arrival.number);
        if !self.repaired.is_empty() {
            self.repaired.remove(arrival.number..arrival.number.saturating_add(1));
        }
        if self.largest.is_none_or(|(largest, _)| arrival.number > largest) {
            if let Some((_, at)) = self.largest {
                let gap_ns = u32::try_from(arrival.now.since(at).as_nanos()).unwrap_or(u32::MAX);
                self.gap_ns = self.gap_ns - self.gap_ns / GAP_SHARE + gap_ns / GAP_SHARE;
            }
            self.largest = Some((arrival.number, arrival.now));
        }
        if arrival.eliciting {
            self.unreported = self.unreported.saturating_add(1);
            self.unreported_since.get_or_insert(arrival.now);
        }
        // acknowledgement.md R-3.
        if self.received.len() > RANGES_MAX {
            self.received.trim_front(RANGES_MAX);
            self.floor = self.floor.max(self.received.first().map_or(0, |r| r.start));
        }
        if self.repaired.len() > RANGES_MAX {
            // What was repaired and is forgotten must not be taken in again when it arrives late.
            self.repaired.trim_front(RANGES_MAX);
            self.floor = self.floor.max(self.repaired.first().map_or(0, |r| r.start));
        }
    }

    /// Makes a report due at `at` at the latest.
    pub fn report_by(&mut self, at: Time) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// A report was sent: nothing is due (acknowledgement.md R-5).
    pub fn on_reported(&mut self, now: Time) {
        self.reported_at = now;
        self.unreported = 0;
        self.unreported_since = None;
        self.held_unreported = 0;
        self.due = None;
    }

    /// The sender has seen a report of everything up to `largest`: it need not be said again
    /// (acknowledgement.md R-4; RFC 9000 section 13.2.4).
    pub fn forget_through(&mut self, largest: u64) {
        let keep = self.largest.map_or(0, |(l, _)| l);
        let held = self.held.iter().flat_map(|held| held.iter()).map(|held| held.number).min();
        let bound = largest.saturating_add(1).min(keep).min(held.unwrap_or(u64::MAX));
        self.received.remove_below(bound);
        self.repaired.remove_below(bound);
        self.floor = self.floor.max(bound);
    }
}
