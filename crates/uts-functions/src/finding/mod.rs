//! Finding losses: which packets in flight count as lost, and when.
//!
//! The state is the ledger's (`retransmission/ledger`): what is in flight, and how far the path has
//! been seen to reorder ([`Reordering`]). A mechanism reads reports and says by a [`Rule`] what is
//! lost; the ledger takes that out. What then becomes of the data is the retransmission function's
//! affair. A connection has one timer for all of it, whatever the mechanism ([`Alarm`]).
//!
//! Packets of a run leave at one instant, so that a rule treats them alike.

use crate::congestion::Cause;
use crate::mechanism::Described;
use crate::registry;
use crate::retransmission::ledger::Departure;
use crate::time::Time;
use auto_impl::auto_impl;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

pub mod duplicates;
pub mod expiry;
pub mod overtaken;
pub mod status;

/// Packets that must be acknowledged beyond a gap before the gap is a loss (RFC 9002 section
/// 6.1.1).
const REORDER_PACKETS: u32 = 3;

/// The widest that the packet threshold becomes; beyond, the time threshold decides alone.
const REORDER_PACKETS_MAX: u32 = 256;

/// A time-out doubles so many times at the most (RFC 6298 section 2.5 allows an end).
const DOUBLINGS_MAX: u32 = 10;

/// The longest that a packet waits, whatever the back-off (finding.md R-3; RFC 6298 section 2.5: 60
/// s at least).
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Reordering that the path has been seen to do. It outlives every mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reordering {
    /// By so many packets a packet must be overtaken to be lost.
    pub packets: u32,
    /// So much later than usual packets have come, in microseconds.
    pub extra_us: u32,
}

impl Default for Reordering {
    fn default() -> Self {
        Reordering { packets: REORDER_PACKETS, extra_us: 0 }
    }
}

impl Reordering {
    /// A packet that was taken for lost has arrived: so many packets late, and so long after it was
    /// sent.
    pub(crate) fn widen(&mut self, packets: u64, took: Duration) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        self.packets = self.packets.max(packets.min(REORDER_PACKETS_MAX));
        // How much later than a round trip it took, next time waits that long.
        let extra_us = (took / 4).as_micros();
        self.extra_us = self.extra_us.max(u32::try_from(extra_us).unwrap_or(u32::MAX));
    }
}

/// Packets in flight, as a mechanism sees them.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// The largest acknowledged packet number.
    pub largest_acked: Option<u64>,
    /// Reordering of the path.
    pub reordering: Reordering,
    /// After how long the timing mechanism takes an overtaken packet for lost.
    pub loss_delay: Duration,
    /// Waiting for reordering never exceeds this.
    pub patience: Duration,
    /// The time-out at present, without back-off; zero where no packet has one of its own.
    pub timeout: Duration,
}

/// A report that has come, its acknowledgements taken in.
#[derive(Clone, Copy, Debug)]
pub struct Reported {
    /// When.
    pub now: Time,
    /// The largest number that it acknowledges for the first time, if there is any.
    pub newest: Option<u64>,
    /// It answers a poll. Where nobody polls, each report does.
    pub answers: bool,
    /// Packets that it acknowledges for the first time.
    pub acknowledged: u64,
    /// The oldest packet in flight behind it.
    pub oldest: Option<u64>,
    /// Packets in flight behind it.
    pub in_flight: u64,
    /// The next packet number to be sent.
    pub next_packet: u64,
}

/// Which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Those below this number, however young.
    pub below: u64,
    /// Evidence by which these were found.
    pub cause: Cause,
    /// Of those below this number, the ones that have been in flight for too long.
    pub within: u64,
    /// Longest time that these may be in flight.
    pub age: Age,
}

/// Longest time that a packet may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// For ever.
    Any,
    /// So long.
    Of(Duration),
    /// Its own time-out.
    TimeOut {
        /// The time-out at present.
        now: Duration,
        /// The time-out of when the packet left counts instead, where it is known.
        frozen: bool,
        /// It doubles with each time-out in a row before the packet left.
        backs_off: bool,
    },
}

impl Rule {
    /// Nothing is lost.
    pub const NOTHING: Rule = Rule { below: 0, cause: Cause::Expired, within: 0, age: Age::Any };

    /// Everything below a number is lost, because time is over.
    pub const fn all_below(below: u64) -> Rule {
        Rule { below, ..Rule::NOTHING }
    }

    /// True if its ages are time-outs: congestion control hears of them as such.
    pub const fn times_out(&self) -> bool {
        matches!(self.age, Age::TimeOut { .. })
    }
}

impl Age {
    /// When a packet that was sent at `sent_at` is too old; [`Time::NEVER`] = it never is.
    #[inline]
    pub fn due(self, sent_at: Time, departure: &Departure) -> Time {
        match self {
            Age::Any => Time::NEVER,
            Age::Of(age) => sent_at + age,
            Age::TimeOut { now, frozen, backs_off } => {
                let known = frozen && departure.timeout_us > 0;
                let once = if known { Duration::from_micros(departure.timeout_us.into()) } else { now };
                sent_at + wait(once, if backs_off { departure.timeouts.into() } else { 0 })
            }
        }
    }
}

/// A time-out after so many in a row (RFC 6298 section 5.5).
pub fn wait(once: Duration, timeouts: u32) -> Duration {
    once.saturating_mul(1 << timeouts.min(DOUBLINGS_MAX)).min(WAIT_MAX.max(once))
}

/// Event that the timer is set for while a rule says no instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A time-out after the last packet left: the oldest is probed, and none counts as lost.
    Probe,
    /// A time-out after this instant, or after the oldest in flight left if that is later: all
    /// count as lost.
    LoseAll {
        /// The instant.
        since: Time,
    },
    /// Each packet has a time-out of its own, which the rule says.
    Each,
}

/// A policy over the packets in flight.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Finding: Described + DynClone {
    /// A report has come, whether it has brought anything new or not. Says how many of the packets
    /// in flight have arrived all the same, as reports show that name none of them: fewer than are
    /// in flight.
    fn on_report(&mut self, _report: &Reported) -> u64 {
        0
    }

    /// Everything below this number counts as lost, because time is over.
    fn on_all_lost(&mut self, _next_packet: u64) {}

    /// Which packets are lost now.
    fn rule(&self, flight: &Flight) -> Rule;

    /// True if each time-out in a row is longer than the one before it.
    fn backs_off(&self) -> bool {
        true
    }

    /// True if a packet leaves for each loss that was found, whatever the window says.
    fn repeats_at_once(&self) -> bool {
        false
    }

    /// Event that the timer is set for.
    fn alarm(&self) -> Alarm;
}

dyn_clone::clone_trait_object!(Finding);

registry! {
    /// The finding mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Finding, context: ();
    Overtaken => overtaken::Overtaken,
    Duplicates => duplicates::Duplicates,
    Expiry => expiry::Expiry,
    Status => status::Status,
}

#[cfg(test)]
mod harness;
