//! HyStart++ (RFC 9406): leaving slow start when round trips grow, before the buffer overflows.

use super::Ack;
use super::classic::{SlowStart, Window};
use core::time::Duration;

/// Advice to slow start about an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advice {
    /// Grow by what was acknowledged.
    Grow,
    /// Grow by a part of it: conservative slow start.
    GrowSlowly,
    /// The path's limit is met: congestion avoidance begins.
    Leave,
}

/// The state of RFC 9406 section 4.2.
#[derive(Clone, Debug)]
pub struct HyStart {
    round_end: u64,
    last_rtt_min: Duration,
    round_rtt_min: Duration,
    samples: u32,
    /// Samples in a row that tell of a queue, and of one that is much longer than the path.
    queued: [u8; 2],
    last_rtt: Duration,
    conservative: Option<Conservative>,
}

/// Conservative slow start under way.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    baseline: Duration,
    rounds: u32,
}

impl HyStart {
    /// At the start of slow start.
    pub fn new() -> Self {
        HyStart {
            round_end: 0,
            last_rtt_min: Duration::MAX,
            round_rtt_min: Duration::MAX,
            samples: 0,
            queued: [0; 2],
            last_rtt: Duration::ZERO,
            conservative: None,
        }
    }

    /// Takes an acknowledgement into account.
    fn on_ack(&mut self, ack: &Ack) -> Advice {
        if ack.largest >= self.round_end {
            self.round_end = ack.next_packet;
            self.last_rtt_min = self.round_rtt_min;
            self.round_rtt_min = Duration::MAX;
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds > CSS_ROUNDS {
                    return Advice::Leave;
                }
            }
        }
        if let Some(rtt) = ack.rtt {
            self.round_rtt_min = self.round_rtt_min.min(rtt);
            self.samples += 1;
        }
        if self.samples >= RTT_SAMPLES {
            self.judge();
        }
        if self.is_long_queue(ack) {
            return Advice::Leave;
        }
        if self.conservative.is_some() { Advice::GrowSlowly } else { Advice::Grow }
    }

    /// Where a packet takes a tenth of a second, the buffer overflows before a second round has
    /// eight samples. A few that are plain enough do as well (C-25). Says whether the queue is so
    /// long that slow start ends.
    fn is_long_queue(&mut self, ack: &Ack) -> bool {
        let Some(rtt) = ack.rtt.filter(|_| ack.prior_in_flight <= FEW_BYTES) else { return false };
        // What has waited for a path that stood still comes with ever shorter round trips.
        let grows = rtt >= core::mem::replace(&mut self.last_rtt, rtt);
        for (count, (times, more)) in self.queued.iter_mut().zip(QUEUES) {
            let is_longer = grows && rtt >= (ack.rtt_min * times).max(ack.rtt_min + more);
            *count = if is_longer { count.saturating_add(1) } else { 0 };
        }
        let [long, longest] = self.queued.map(|count| count >= QUEUE_SAMPLES);
        if long && self.conservative.is_none() {
            self.conservative = Some(Conservative { baseline: rtt, rounds: 0 });
        }
        longest
    }

    fn judge(&mut self) {
        match self.conservative {
            // The rise was passing: back to slow start.
            Some(c) if self.round_rtt_min < c.baseline => self.conservative = None,
            Some(_) => {}
            None if self.last_rtt_min != Duration::MAX => {
                let rise = (self.last_rtt_min / RTT_DIVISOR).clamp(RISE_MIN, RISE_MAX);
                if self.round_rtt_min >= self.last_rtt_min + rise {
                    self.conservative = Some(Conservative { baseline: self.round_rtt_min, rounds: 0 });
                }
            }
            None => {}
        }
    }
}

impl Default for HyStart {
    fn default() -> Self {
        Self::new()
    }
}

impl SlowStart for HyStart {
    /// C-23.
    fn grow(&mut self, window: &Window, ack: &Ack) -> Option<f64> {
        let growth = match self.on_ack(ack) {
            Advice::Grow => ack.bytes,
            Advice::GrowSlowly => ack.bytes / CSS_GROWTH_DIVISOR,
            Advice::Leave => return None,
        };
        // Growth beyond a known threshold belongs to congestion avoidance.
        Some((window.exact + growth as f64).min((window.threshold as f64).max(window.exact)))
    }
}

/// RFC 9406 section 4.3: `MIN_RTT_THRESH`, `MAX_RTT_THRESH`, `MIN_RTT_DIVISOR`, `N_RTT_SAMPLE`,
/// `CSS_ROUNDS`.
const RISE_MIN: Duration = Duration::from_millis(4);
const RISE_MAX: Duration = Duration::from_millis(16);
const RTT_DIVISOR: u32 = 8;
const RTT_SAMPLES: u32 = 8;
const CSS_ROUNDS: u32 = 5;
/// So much longer than the shortest is a round trip with a queue, for conservative slow start and
/// for the end of slow start: so many times, and by this much at least.
const QUEUES: [(u32, Duration); 2] = [(2, Duration::from_millis(100)), (4, Duration::from_millis(400))];
/// With so little in flight, nothing but a slow line makes such a queue. With more, it may be one
/// of reports on the way back.
const FEW_BYTES: u64 = 24_000;
/// In so many samples in a row.
const QUEUE_SAMPLES: u8 = 3;
/// Part of the acknowledged bytes by which conservative slow start grows (`CSS_GROWTH_DIVISOR`).
const CSS_GROWTH_DIVISOR: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::RateSample;
    use crate::time::Time;

    fn ack(largest: u64, rtt_ms: u64, rtt_min_ms: u64) -> Ack {
        let [rtt, rtt_min] = [rtt_ms, rtt_min_ms].map(Duration::from_millis);
        Ack {
            now: Time::ZERO,
            bytes: 1200,
            largest,
            sent_at: Time::ZERO,
            rtt: Some(rtt),
            rtt_smoothed: rtt,
            rtt_min,
            prior_in_flight: 12_000,
            sample: RateSample::default(),
            ecn_marked: 0,
            next_packet: largest + 10,
        }
    }

    /// Feeds `rounds` round trips of ten samples each; the advice after the last.
    fn feed(hystart: &mut HyStart, next: &mut u64, rounds: u64, rtt_ms: u64) -> Advice {
        let mut advice = Advice::Grow;
        for _ in 0..rounds * 10 {
            advice = hystart.on_ack(&ack(*next, rtt_ms, rtt_ms));
            *next += 1;
            if advice == Advice::Leave {
                break;
            }
        }
        advice
    }

    #[test]
    fn steady_round_trips_never_end_slow_start() {
        assert_eq!(feed(&mut HyStart::new(), &mut 0, 50, 40), Advice::Grow);
    }

    #[test]
    fn a_lasting_rise_ends_slow_start_after_five_slow_rounds() {
        let (mut hystart, mut next) = (HyStart::new(), 0);
        feed(&mut hystart, &mut next, 3, 40);
        assert_eq!(feed(&mut hystart, &mut next, 1, 44), Advice::Grow);
        // 40 ms / 8 = 5 ms is the rise that counts.
        assert_eq!(feed(&mut hystart, &mut next, 1, 50), Advice::GrowSlowly);
        assert_eq!(feed(&mut hystart, &mut next, 5, 50), Advice::GrowSlowly);
        assert_eq!(feed(&mut hystart, &mut next, 1, 50), Advice::Leave);
    }

    /// A packet takes 100 ms of the line.
    #[test]
    fn a_queue_that_is_plain_ends_slow_start_in_the_first_round() {
        let (mut hystart, mut advice) = (HyStart::new(), Vec::new());
        for n in 0..9 {
            advice.push(hystart.on_ack(&ack(n, 100 + 100 * n, 100)));
        }
        assert_eq!(advice[2], Advice::Grow);
        assert_eq!(advice[3], Advice::GrowSlowly, "200, 300, 400 ms");
        assert_eq!(advice[5], Advice::GrowSlowly);
        assert_eq!(advice[6], Advice::Leave, "500, 600, 700 ms");
    }

    /// A path that stood still for a second is not full.
    #[test]
    fn round_trips_that_shrink_are_no_queue() {
        let mut hystart = HyStart::new();
        for n in 0..9 {
            assert_eq!(hystart.on_ack(&ack(n, 1500 - 100 * n, 50)), Advice::Grow, "{n}");
        }
    }

    #[test]
    fn a_passing_rise_does_not() {
        let (mut hystart, mut next) = (HyStart::new(), 0);
        feed(&mut hystart, &mut next, 3, 40);
        assert_eq!(feed(&mut hystart, &mut next, 2, 50), Advice::GrowSlowly);
        assert_eq!(feed(&mut hystart, &mut next, 1, 40), Advice::Grow);
    }
}
