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

/// Packets queue that wait for longer than this part of the smallest round trip, than this time,
/// and than so many mean deviations of the round trip, which jitter explains. Chosen: as long as a
/// picture lasts, whose packets wait for each other wherever the line is just wide enough.
const QUEUE_PART: u32 = 10;
const QUEUE_MIN: Duration = Duration::from_millis(20);
const QUEUE_DEVIATIONS: u32 = 4;

/// A sender that sends less than it could, while nothing shows the path's limit, may send so many
/// times as much as has been delivered: as a window that is in use doubles in slow start
/// (RFC 5681; RFC 7661 section 4.3).
const UNUSED: f64 = 2.0;

/// Part of what congestion control allows that is told while packets queue, so that they leave
/// (draft-ietf-rmcat-gcc-02, section 5.5).
const DRAINS: f64 = 0.85;

/// So many times the limit that the path has shown is tried after a while, and as many times that
/// after each second in which nothing shows it again: as BBR probes (draft-ietf-ccwg-bbr,
/// ProbeBW_UP).
const PROBE: f64 = 1.25;
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// A path that has delivered so many times the limit that it has shown has another.
const BEYOND: f64 = 1.1;

/// Time after the path has shown its limit in which no more than that is told; twice as long each
/// time that it is met again at once. Chosen: a picture that is too large now and then is seen, so
/// that it is to be rare.
const HOLDS: Duration = Duration::from_secs(5);
const HOLDS_MAX: Duration = Duration::from_secs(60);

/// Share of packets that congestion loses, from which a path has nothing unused. Chosen: above what
/// a queue loses that is just filled now and then.
const LOSS: f64 = 0.02;

/// The hint that was told last, and the limit that the path has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::connection) struct RateHint {
    told: Option<(Time, Rate)>,
    limit: Option<Limit>,
}

/// A limit that the path has shown.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// Rate that congestion control allowed then.
    shown: Rate,
    /// Rate that is told until then.
    rate: Rate,
    until: Time,
    holds: Duration,
}

impl Limit {
    /// Rate that is worth trying, where so much has been delivered: what is not in use does not
    /// grow.
    fn probed(&self, now: Time, delivered: Rate) -> Rate {
        let first = self.rate.mul_f64(PROBE);
        let passed = now.since(self.until).as_secs_f64() / PROBE_EVERY.as_secs_f64();
        let steps = libm::floor(passed).min(PROBES_MAX);
        first.mul_f64(libm::pow(PROBE, steps)).min(first.max(delivered.mul_f64(UNUSED)))
    }
}

/// Steps of a probe, at the most: a hundred times the limit.
const PROBES_MAX: f64 = 20.0;

/// Rates of a sender at an instant, in UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Rate that congestion control allows.
    pub limit: Rate,
    /// Rate that has been delivered.
    pub delivered: Rate,
    /// Nothing shows that the path carries no more than is sent.
    pub has_unused: bool,
    /// Packets queue on the path, or congestion loses some.
    pub queues: bool,
}

impl Sending {
    /// Rate that may be sent at, as far as this instant tells.
    pub fn rate(&self) -> Rate {
        if self.has_unused { self.limit.max(self.delivered.mul_f64(UNUSED)) } else { self.limit }
    }
}

impl RateHint {
    /// Rate that is worth trying, by this and what the path has shown before.
    fn rate(&mut self, now: Time, sending: &Sending) -> Rate {
        if !sending.has_unused {
            let holds = match self.limit {
                // It was tried, and is met again.
                Some(limit) if now >= limit.until && now.since(limit.until) < limit.holds => {
                    (limit.holds * 2).min(HOLDS_MAX)
                }
                Some(limit) if now < limit.until => limit.holds,
                _ => HOLDS,
            };
            let shown = sending.limit;
            let rate = if sending.queues { shown.mul_f64(DRAINS) } else { shown };
            self.limit = Some(Limit { shown, rate, until: now + holds, holds });
            return rate;
        }
        match self.limit {
            Some(limit) if now < limit.until => limit.rate,
            Some(limit) if sending.delivered <= limit.shown.mul_f64(BEYOND) => {
                limit.probed(now, sending.delivered)
            }
            _ => {
                self.limit = None;
                sending.rate()
            }
        }
    }

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
    /// Rates of what is sent; `None` until a round trip is known.
    pub fn sending(&self, packet_bytes: u64) -> Option<Sending> {
        if self.rtt.samples == 0 || self.rtt.min.is_zero() {
            return None;
        }
        let summary = self.congestion.summary();
        // One that keeps a rate has its window for a path without a queue, and its rate swings.
        let keeps_rate = self.congestion.pacing_rate().is_some();
        let rtt = if keeps_rate { self.rtt.min } else { self.rtt.smoothed };
        // What it leaves in flight to measure the round trip says nothing of the path.
        let window = if keeps_rate { summary.window_bytes } else { self.window_bytes() };
        let window = (window != u64::MAX).then(|| Rate::from_delivery(window, rtt));
        let bandwidth = summary.bandwidth.filter(|_| keeps_rate);
        let limit = window.into_iter().chain(bandwidth).min()?;
        let facts = self.facts(packet_bytes);
        // Who still looks for the limit has not met it, whatever waits.
        let is_held_back = !self.delivery.is_app_limited() && !self.is_searching();
        let queues = !is_free(&facts);
        let has_unused = !is_held_back && !queues;
        // The capacity is that of a path which was asked for all that it has.
        let delivered = summary.bandwidth.unwrap_or_default().max(facts.capacity);
        Some(Sending { limit, delivered, has_unused, queues })
    }

    /// The rate that may be sent at, of UDP payload; `None` until a round trip is known.
    pub fn may_send(&self, packet_bytes: u64) -> Option<Rate> {
        let rate = self.sending(packet_bytes)?.rate();
        Some(self.rate_max.map_or(rate, |most| rate.min(most)))
    }
}

/// True of a path on which nothing queues, and congestion loses next to nothing.
fn is_free(facts: &PathFacts) -> bool {
    let jitter = facts.rtt_deviation * QUEUE_DEVIATIONS;
    let queue_max = QUEUE_MIN.max(facts.rtt_min / QUEUE_PART).max(jitter);
    facts.queueing() <= queue_max && facts.loss * facts.loss_congestive < LOSS
}

impl Ways {
    /// Tells the application at which rate it may send, if it wants to know and that is news.
    pub(in crate::connection) fn hint_rate(&mut self, now: Time, packet_bytes: u64) {
        let Some(hint) = self.rare.as_mut().and_then(|rare| rare.rate_hint.as_mut()) else { return };
        let outbound = &self.outbound;
        let Some(sending) = outbound.sending(packet_bytes) else { return };
        let rate = hint.rate(now, &sending);
        let rate = outbound.rate_max.map_or(rate, |most| rate.min(most));
        if let Some(rate) = hint.on_rate(now, rate, outbound.rtt.smoothed) {
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
    fn a_path_is_free_while_nothing_shows_its_limit() {
        let ms = Duration::from_millis;
        let own = PathFacts { rtt_min: ms(40), rtt_smoothed: ms(43), ..PathFacts::default() };
        assert!(is_free(&own));
        assert!(!is_free(&PathFacts { rtt_smoothed: ms(65), ..own }), "packets queue");
        let jitter = PathFacts { rtt_smoothed: ms(65), rtt_deviation: ms(7), ..own };
        assert!(is_free(&jitter), "the round trip swings by as much");
        assert!(!is_free(&PathFacts { loss: 0.03, loss_congestive: 1.0, ..own }), "congestion loses");
        assert!(is_free(&PathFacts { loss: 0.03, loss_congestive: 0.0, ..own }), "the medium loses");
    }

    /// A limit that was seen is told until it is worth trying more, ever more seldom.
    #[test]
    fn a_limit_that_was_met_is_kept_to_and_tried_seldom() {
        let mbit = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        let mut hint = RateHint::default();
        let mut told = |ms: u64, has_unused, limit, delivered| {
            let (limit, delivered, queues) = (mbit(limit), mbit(delivered), false);
            let sending = Sending { limit, delivered, has_unused, queues };
            hint.rate(Time::from_millis(ms), &sending).bits_per_sec() as f64 / 1e6
        };
        assert_eq!(told(0, true, 1, 1), 2.0, "nothing is known");
        assert_eq!(told(200, true, 4, 4), 8.0);
        assert_eq!(told(400, false, 10, 10), 10.0, "the limit");
        assert_eq!(told(600, true, 9, 9), 10.0, "no more, and no less, for a while");
        assert_eq!(told(5_600, true, 9, 9), 12.5, "it is tried");
        assert_eq!(told(5_800, false, 10, 10), 10.0, "it is met");
        assert_eq!(told(11_000, true, 9, 9), 10.0, "the next try comes later");
        assert_eq!(told(15_900, true, 9, 9), 12.5);
        assert_eq!(told(17_000, true, 10, 10), 15.625, "it goes on while it is in use");
        assert_eq!(told(25_000, true, 10, 10), 20.0);
        assert_eq!(told(25_100, true, 13, 13), 26.0, "there is more");
    }
}
