//! The timer of what is in flight: what it is set for, and how packets leave as far as time-outs
//! are concerned (timing.md R-10, finding.md).

use super::outbound::IN_FLIGHT_MAX_BYTES;
use crate::connection::Outbound;
use core::time::Duration;
use uts_functions::finding::{self, Alarm, Finding as _, Flight};
use uts_functions::retransmission::ledger::Departure;
use uts_functions::timing::Timing as _;
use uts_functions::{Rate, Time};

/// Back-off of the probe timer ends here: 2^10 times the time-out.
const BACKOFF_MAX: u32 = 10;

/// Backing off ends here while probes carry data.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// The first probes of an outage are so far apart, so that a path that has come back is noticed
/// soon. It is safe: a probe of an outage is one small packet, one packet in a round trip is less
/// than the smallest window (RFC 8085 section 3.1.1), and they back off.
const OUTAGE_WAIT: Duration = Duration::from_millis(100);

/// After each so many probes of an outage the wait doubles, up to [`PROBE_WAIT_MAX`]: it is a
/// thirtieth to a fifteenth of the outage so far.
const PROBES_PER_DOUBLING: u32 = 32;

/// Fewer doublings than that would overflow.
const DOUBLINGS_MAX: u32 = 16;

/// Round trip that counts at the least for the wait between packets that go on unheard.
const UNHEARD_WAIT_MIN: Duration = Duration::from_millis(10);

/// The longest wait (RFC 6298 section 2.5 allows 60 s and more).
const PROBE_WAIT_MAX: Duration = Duration::from_secs(60);

/// Probes sent per time-out (RFC 9002 section 6.2.4).
const PROBES_PER_TIMEOUT: u8 = 2;

/// After so many time-outs in a row the path is out: a probe carries no data, and goes alone
/// (timing.md R-11).
const TIMEOUTS_OF_OUTAGE: u32 = 3;

/// Time-outs that are each packet's own.
#[derive(Default)]
pub(super) struct Each {
    /// Departure of the next packet.
    departure: Departure,
    /// The last time-out answers for packets below this number.
    timed_out_below: u64,
}

/// State for a finding mechanism that has a time-out for each packet.
pub(super) fn each_of(finding: &finding::Slot) -> Option<Box<Each>> {
    (finding.alarm() == Alarm::Each).then(Box::default)
}

impl Outbound {
    /// State of the packets in flight, as the finding mechanism sees it.
    pub fn flight(&self) -> Flight {
        Flight {
            largest_acked: self.ledger.largest_acked(),
            reordering: self.ledger.reordering(),
            loss_delay: self.timing.loss_delay(&self.rtt),
            patience: self.rtt.smoothed * 2,
            timeout: Duration::from_micros(self.departure().timeout_us.into()),
        }
    }

    /// Departure of the next packet, as far as time-outs are concerned.
    pub fn departure(&self) -> Departure {
        self.each.as_ref().map_or_else(Departure::default, |each| each.departure)
    }

    /// Works out how packets leave from now on, where each has a time-out of its own.
    pub fn set_departure(&mut self) {
        if self.each.is_none() {
            return;
        }
        let timeouts = u8::try_from(self.doublings()).unwrap_or(u8::MAX);
        let timeout_us = u32::try_from(self.probe_timeout().as_micros()).unwrap_or(u32::MAX);
        if let Some(each) = &mut self.each {
            each.departure = Departure { timeouts, timeout_us, ..Departure::default() };
        }
    }

    /// Packets were entered that ask for an acknowledgement. Where the receiver asks for repeats,
    /// these put off no time-out, and nothing does that goes with them: it may ask for ever for
    /// what does not get through. (timing.md R-10)
    pub fn on_entered(&mut self, now: Time, is_news: bool) {
        if is_news || self.ledger.eliciting() == 1 {
            self.timed_from = now;
        }
        if let Some(each) = &self.each {
            // finding.md R-11: the timer is set for the first that expires.
            let at = self.finding.rule(&self.flight()).age.due(now, &each.departure);
            self.loss_at = Some(self.loss_at.map_or(at, |known| known.min(at)));
        }
    }

    /// True if packets up to this number, which are too old, are news: packets that left before the
    /// last time-out are part of it (finding.md R-3).
    pub fn is_new_timeout(&self, number: u64) -> bool {
        self.each.as_ref().is_none_or(|each| number >= each.timed_out_below)
    }

    /// When to look for losses, or to probe; `None` while nothing is in flight (finding.md R-2).
    pub fn loss_timeout(&self) -> Option<Time> {
        if let Some(at) = self.loss_at {
            return Some(at);
        }
        if self.ledger.eliciting() == 0 {
            return None;
        }
        match self.finding.alarm() {
            Alarm::Probe | Alarm::Each => {
                let once = finding::wait(self.probe_timeout(), self.kept_doublings.into());
                Some(self.timed_from + probe_wait(once, self.timeouts))
            }
            Alarm::LoseAll { since } => {
                let (_, oldest_at) = self.ledger.oldest()?;
                Some(oldest_at.max(since) + finding::wait(self.probe_timeout(), self.doublings()))
            }
        }
    }

    /// Number of times that the time-out has doubled.
    fn doublings(&self) -> u32 {
        u32::from(self.kept_doublings).saturating_add(self.timeouts)
    }

    /// Something is acknowledged, which measures the round trip or does not. It ends the row of
    /// time-outs. Under Karn's rule what they have doubled is kept until a round trip is measured
    /// (timing.md R-19).
    pub fn on_heard(&mut self, now: Time, measures: bool) {
        self.time_anew(now);
        let is_kept = !measures && !self.timing.measures_repeats();
        self.kept_doublings = if is_kept { self.doublings().min(BACKOFF_MAX) as u8 } else { 0 };
        (self.timeouts, self.unheard) = (0, 0);
        self.set_departure();
    }

    /// Counts the next time-out from now, if the packet that left last put none off.
    fn time_anew(&mut self, now: Time) {
        if self.timed_from < self.ledger.last_eliciting_at() {
            self.timed_from = now;
        }
    }

    /// Notes a time-out.
    pub fn on_timeout(&mut self, now: Time) {
        self.time_anew(now);
        self.timeouts = self.timeouts.saturating_add(1);
        if let Some(each) = &mut self.each {
            each.timed_out_below = self.ledger.next_number();
        }
        self.set_departure();
    }

    /// True if data that is not repeated may go on, though nothing is acknowledged any more and the
    /// window is full: one packet in a round trip (RFC 8085 section 3.1.1), less as time goes by,
    /// but not less than what the application asks for at the least. Otherwise notes when it may.
    /// (timing.md R-20)
    pub fn admits_unheard(&mut self, now: Time, packet_bytes: u64, rate_min: Option<Rate>) -> bool {
        if self.timeouts == 0 || self.delivery.in_flight >= IN_FLIGHT_MAX_BYTES {
            return false;
        }
        let doublings = (u32::from(self.unheard) / PROBES_PER_DOUBLING).min(DOUBLINGS_MAX);
        let rtt = self.rtt.smoothed.max(UNHEARD_WAIT_MIN);
        let mut wait = rtt.saturating_mul(1 << doublings).min(rtt.max(PROBE_WAIT));
        if let Some(rate) = rate_min.filter(|rate| *rate > Rate::default()) {
            wait = wait.min(rate.time_for(packet_bytes));
        }
        if let Some(rate) = self.rate_max() {
            wait = wait.max(rate.time_for(packet_bytes));
        }
        let at = self.ledger.last_eliciting_at() + wait;
        if at > now {
            self.paced_until = Some(self.paced_until.map_or(at, |known| known.min(at)));
            return false;
        }
        self.unheard = self.unheard.saturating_add(1);
        true
    }

    /// Notes a time-out after which probes go out.
    pub fn on_probe_timeout(&mut self, now: Time) {
        self.on_timeout(now);
        self.probes_due = if self.is_out() { 1 } else { PROBES_PER_TIMEOUT };
    }

    /// True if nothing has come through for so long that the path counts as out.
    pub fn is_out(&self) -> bool {
        self.timeouts > TIMEOUTS_OF_OUTAGE
    }
}

/// Time to wait for an acknowledgement after so many time-outs in a row, where `once` is the first
/// wait (timing.md R-10).
fn probe_wait(once: Duration, timeouts: u32) -> Duration {
    let doubled = once.saturating_mul(1 << timeouts.min(BACKOFF_MAX));
    let Some(probes) = timeouts.checked_sub(TIMEOUTS_OF_OUTAGE + 1) else {
        return doubled.min(once.max(PROBE_WAIT));
    };
    let doublings = (probes / PROBES_PER_DOUBLING).min(DOUBLINGS_MAX);
    let most = OUTAGE_WAIT.saturating_mul(1 << doublings).min(PROBE_WAIT_MAX);
    doubled.min(once.max(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes of an outage come soon, and ever farther apart: a minute in the end.
    #[test]
    fn probes_of_an_outage_are_soon_and_back_off_to_a_minute() {
        let ms = Duration::from_millis;
        let waits: Vec<_> = (0..6).map(|timeouts| probe_wait(ms(50), timeouts)).collect();
        assert_eq!(waits, [50, 100, 200, 400, 100, 100].map(ms));
        assert_eq!(probe_wait(ms(500), 3), ms(1000), "with data");
        let at = |probes: u32| probe_wait(ms(100), TIMEOUTS_OF_OUTAGE + 1 + probes);
        assert_eq!([31, 32, 64, 96].map(at), [100, 200, 400, 800].map(ms));
        assert_eq!([200, 10_000, u32::MAX / 2].map(at), [6_400, 60_000, 60_000].map(ms));
        // A path that takes longer is given its time.
        assert_eq!([0, 5, 100].map(|n| probe_wait(ms(3000), n)), [ms(3000); 3]);
        // What waits is a small part of what has passed.
        let mut passed = Duration::ZERO;
        for probes in 0..250 {
            assert!(at(probes) <= ms(100).max(passed / 15), "{probes}: {:?} after {passed:?}", at(probes));
            passed += at(probes);
        }
    }
}
