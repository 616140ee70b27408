//! Acknowledgement: when the receiver reports which transmissions arrived.
//!
//! The function keeps which packets arrived ([`Arrivals`]); a mechanism decides when to say so. What is said is always
//! the same: ranges of packet numbers, that is of transmissions, not of data.

use crate::range::RangeSet;
use crate::registry;
use crate::time::Time;
use core::time::Duration;
use enum_dispatch::enum_dispatch;

pub mod delayed;
pub mod per_packet;
pub mod poll_status;

/// Ranges of packet numbers that are remembered for reporting; older ones have been reported many times.
pub const RANGES_MAX: usize = 64;

/// Building, sending, receiving and reading one report, in nanoseconds: an estimate for predictions.
const REPORT_NS: f64 = 1000.0;

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its number.
    pub number: u64,
    /// When.
    pub now: Time,
    /// Whether it asks for an acknowledgement (carries more than acknowledgements, padding or a close).
    pub eliciting: bool,
    /// Whether it carries the sender's poll.
    pub polled: bool,
    /// Whether the network marked it (ECN CE).
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
    /// Packets received with ECT(0), ECT(1), CE.
    pub ecn: [u64; 3],
    /// Below this, everything was reported and the report acknowledged: duplicates of it are not new.
    floor: u64,
}

impl Arrivals {
    /// Whether a packet of this number was here before (or is so old that it must be taken for a repeat).
    pub fn is_duplicate(&self, number: u64) -> bool {
        number < self.floor || self.received.contains(number)
    }

    /// Whether the packet leaves a gap, fills one, or comes behind a larger one: news that the sender wants at once.
    pub fn is_out_of_order(&self, number: u64) -> bool {
        match self.largest {
            None => false,
            Some((largest, _)) => number != largest + 1,
        }
    }

    /// Notes an arrival; call [`Acknowledgement::on_arrival`] first, it compares with the state before.
    pub fn insert(&mut self, arrival: &Arrival) {
        self.received.insert_one(arrival.number);
        self.repaired.remove(arrival.number..arrival.number + 1);
        if self.largest.is_none_or(|(largest, _)| arrival.number > largest) {
            self.largest = Some((arrival.number, arrival.now));
        }
        if arrival.eliciting {
            self.unreported += 1;
            self.unreported_since.get_or_insert(arrival.now);
        }
        if self.received.len() > RANGES_MAX {
            self.received.trim_front(RANGES_MAX);
            self.floor = self.floor.max(self.received.first().map_or(0, |r| r.start));
        }
        self.repaired.trim_front(RANGES_MAX);
    }

    /// Makes a report due at `at` at the latest.
    pub fn report_by(&mut self, at: Time) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// A report was sent: nothing is due.
    pub fn on_reported(&mut self) {
        self.unreported = 0;
        self.unreported_since = None;
        self.due = None;
    }

    /// The sender has seen a report of everything up to `largest`: it need not be said again (RFC 9000 section 13.2.4).
    pub fn forget_through(&mut self, largest: u64) {
        let keep = self.largest.map_or(0, |(l, _)| l);
        let bound = (largest + 1).min(keep);
        self.received.remove_below(bound);
        self.repaired.remove_below(bound);
        self.floor = self.floor.max(bound);
    }
}

/// A policy over [`Arrivals`].
#[enum_dispatch]
pub trait Acknowledgement {
    /// A packet arrives that is not in `state` yet: sets `state.due` (with [`Arrivals::report_by`]) if it must be reported.
    fn on_arrival(&mut self, state: &mut Arrivals, arrival: &Arrival);
    /// The longest that a report is held back on purpose; the sender adds it to its time-outs.
    fn delay_max(&self) -> Duration;
    /// Sender's side: whether the packet about to be sent should poll. `unpolled` eliciting packets were sent since the
    /// last poll; `last` says that nothing more can be sent for now.
    fn poll(&self, unpolled: u32, last: bool) -> bool;
}

registry! {
    /// The acknowledgement mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Acknowledgement, context: ();
    PerPacket => per_packet::PerPacket,
    Delayed => delayed::Delayed,
    PollStatus => poll_status::PollStatus,
}
