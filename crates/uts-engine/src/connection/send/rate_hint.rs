//! The rate that an application may send at, told to those who want to know: an encoder makes no
//! more than the path carries, and no less than it could.
//!
//! It is told when it differs from the one that was told last by more than a tenth, and at most
//! once in a round trip or 100 ms, whichever is longer: what is told is worth acting upon.

use super::outbound::Outbound;
use crate::connection::Ways;
use crate::event::Event;
use core::time::Duration;
use uts_functions::congestion::Congestion as _;
use uts_functions::{PathFacts, Rate, Time};

/// Rates that differ by no more than this share are the same. Chosen.
const SAME: f64 = 0.1;

/// Time between two hints, at least. Chosen: a picture of an encoder lasts 20 to 40 ms.
const EVERY: Duration = Duration::from_millis(100);

/// Packets queue that wait for longer than this part of the smallest round trip, and than this time
/// (selection.md A-1).
const QUEUE_PART: u32 = 10;
const QUEUE_MIN: Duration = Duration::from_millis(3);

/// A sender that sends less than it could, while nothing queues, may send so many times as much
/// (selection.md A-1).
const UNUSED: f64 = 2.0;

/// Share of packets that congestion loses, from which a path has nothing unused. Chosen: above what
/// a queue loses that is just filled now and then.
const LOSS: f64 = 0.02;

/// The hint that was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::connection) struct RateHint {
    told: Option<(Time, Rate)>,
}

impl RateHint {
    /// A rate that is to be told now, where the round trip is so long.
    fn on_rate(&mut self, now: Time, rate: Rate, rtt: Duration) -> Option<Rate> {
        if let Some((at, told)) = self.told {
            let (before, after) = (told.bits_per_sec() as f64, rate.bits_per_sec() as f64);
            if now.since(at) < EVERY.max(rtt) || (after - before).abs() <= SAME * before {
                return None;
            }
        }
        self.told = Some((now, rate));
        Some(rate)
    }
}

impl Outbound {
    /// The rate that may be sent at, of UDP payload; `None` until a round trip is known.
    pub fn may_send(&self, packet_bytes: u64) -> Option<Rate> {
        if self.rtt.samples == 0 || self.rtt.min.is_zero() {
            return None;
        }
        let summary = self.congestion.summary();
        // One that keeps a rate has its window for a path without a queue, and its rate swings.
        let keeps_rate = self.congestion.pacing_rate().is_some();
        let rtt = if keeps_rate { self.rtt.min } else { self.rtt.smoothed };
        let window = summary.window_bytes.min(self.window_bytes());
        let window = (window != u64::MAX).then(|| Rate::from_delivery(window, rtt));
        let bandwidth = summary.bandwidth.filter(|_| keeps_rate);
        let limit = window.into_iter().chain(bandwidth).min()?;
        let facts = self.facts(packet_bytes);
        let rate = if has_unused(&facts) { limit.max(facts.capacity.mul_f64(UNUSED)) } else { limit };
        Some(self.rate_max.map_or(rate, |most| rate.min(most)))
    }
}

/// True of a path on which nothing shows that it carries no more than is sent.
fn has_unused(facts: &PathFacts) -> bool {
    let queue_max = QUEUE_MIN.max(facts.rtt_min / QUEUE_PART);
    let has_own_rate = facts.packets_per_s > 0.0;
    has_own_rate && facts.queueing() <= queue_max && facts.loss * facts.loss_congestive < LOSS
}

impl Ways {
    /// Tells the application at which rate it may send, if it wants to know and that is news.
    pub(in crate::connection) fn hint_rate(&mut self, now: Time, packet_bytes: u64) {
        let Some(hint) = self.wishes.as_mut().and_then(|wishes| wishes.rate_hint.as_mut()) else { return };
        let outbound = &self.outbound;
        let rate = outbound.may_send(packet_bytes);
        if let Some(rate) = rate.and_then(|rate| hint.on_rate(now, rate, outbound.rtt.smoothed)) {
            self.events.push_back(Event::MaySend(rate));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_told_that_differs_and_not_too_often() {
        let mut hint = RateHint::default();
        let rtt = Duration::from_millis(40);
        let mut at = |ms, mbit: f64| {
            let rate = Rate::from_bits_per_sec((mbit * 1e6) as u64);
            hint.on_rate(Time::from_millis(ms), rate, rtt).is_some()
        };
        assert!(at(0, 10.0), "the first");
        assert!(!at(50, 5.0), "it is too soon");
        assert!(!at(200, 11.0) && !at(200, 9.0), "it is the same");
        assert!(at(200, 8.9));
        assert!(at(301, 11.0));
        let mut hint = RateHint::default();
        let slow = Duration::from_millis(600);
        assert!(hint.on_rate(Time::ZERO, Rate::from_bits_per_sec(1000), slow).is_some());
        assert!(hint.on_rate(Time::from_millis(599), Rate::from_bits_per_sec(10), slow).is_none());
        assert!(hint.on_rate(Time::from_millis(601), Rate::from_bits_per_sec(10), slow).is_some());
    }

    #[test]
    fn a_path_has_something_unused_while_nothing_shows_its_limit() {
        let ms = Duration::from_millis;
        let own =
            PathFacts { rtt_min: ms(40), rtt_smoothed: ms(43), packets_per_s: 100.0, ..PathFacts::default() };
        assert!(has_unused(&own));
        assert!(!has_unused(&PathFacts { packets_per_s: 0.0, ..own }), "it sends what the path carries");
        assert!(!has_unused(&PathFacts { rtt_smoothed: ms(50), ..own }), "packets queue");
        assert!(!has_unused(&PathFacts { loss: 0.03, loss_congestive: 1.0, ..own }), "congestion loses");
        assert!(has_unused(&PathFacts { loss: 0.03, loss_congestive: 0.0, ..own }), "the medium loses");
    }
}
