//! Controlled delay.
//!
//! CoDel as RFC 8289 specifies it (section 5), its deque routine taken apart: the caller asks about
//! one packet after the other until one passes. Packets that can be marked are marked instead of
//! dropped, and then pass, as Linux
//! does it.

use super::{Arrival, QueueDiscipline, Verdict};
use crate::config::check_delay;
use crate::error::SpecError;
use crate::parse::{format_duration, parse_duration_ns};
use crate::passage::DropReason;
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// Settings of CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoDel {
    /// Sojourn that is acceptable as a minimum over an interval, in nanoseconds; above 0.
    pub target_ns: u64,
    /// A worst-case round trip, in nanoseconds; at least the target and at most an hour.
    pub interval_ns: u64,
    /// Packets that allow it are marked instead of dropped.
    pub ecn: bool,
}

impl Default for CoDel {
    /// 5 ms and 100 ms, as RFC 8289 section 4 recommends for the Internet.
    fn default() -> Self {
        CoDel { target_ns: 5_000_000, interval_ns: 100_000_000, ecn: true }
    }
}

impl CoDel {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if self.target_ns == 0 || self.target_ns > self.interval_ns {
            return Err(SpecError::new("queue", "TARGET of codel must be above 0 and at most INTERVAL"));
        }
        check_delay("queue", self.interval_ns)
    }

    pub(super) fn parse(arguments: Option<&str>) -> Result<Self, String> {
        let mut codel = CoDel::default();
        let Some(mut rest) = arguments else { return Ok(codel) };
        if let Some(times) = rest.strip_suffix("noecn") {
            codel.ecn = false;
            if times.is_empty() {
                return Ok(codel);
            }
            rest = times.strip_suffix(',').unwrap_or(rest);
        }
        let form = "must be codel[:TARGET,INTERVAL][,noecn] as in codel:5ms,100ms";
        let (target, interval) = rest.split_once(',').ok_or(form)?;
        codel.target_ns = parse_duration_ns(target)?;
        codel.interval_ns = parse_duration_ns(interval)?;
        Ok(codel)
    }
}

impl fmt::Display for CoDel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("codel")?;
        self.write_arguments(f)
    }
}

impl CoDel {
    /// Writes what stands behind the name.
    pub(super) fn write_arguments(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CoDel { target_ns, interval_ns, ecn } = *self;
        let times = CoDel { ecn, ..CoDel::default() } != *self;
        if times {
            write!(f, ":{},{}", format_duration(target_ns), format_duration(interval_ns))?;
        }
        f.write_str(match (ecn, times) {
            (true, _) => "",
            (false, true) => ",noecn",
            (false, false) => ":noecn",
        })
    }
}

/// Fate of the packet before this one, if the same departure has brought both here.
#[derive(Debug, Default, PartialEq, Eq)]
enum Before {
    #[default]
    Passed,
    /// It was dropped and began the dropping state: this one passes.
    FirstDropped,
    /// It was dropped in the dropping state.
    Dropped,
}

/// The names are RFC 8289's.
#[derive(Debug)]
pub(super) struct CoDelQueue {
    settings: CoDel,
    /// When the sojourn will have been above the target for an interval; `None` while it is below.
    first_above_time_ns: Option<u64>,
    drop_next_ns: u64,
    count: u64,
    lastcount: u64,
    dropping: bool,
    before: Before,
    /// The biggest packet seen, which stands for the MTU.
    maxpacket_bytes: u64,
}

impl CoDelQueue {
    pub(super) fn new(settings: CoDel) -> Self {
        CoDelQueue {
            settings,
            first_above_time_ns: None,
            drop_next_ns: 0,
            count: 0,
            lastcount: 0,
            dropping: false,
            before: Before::Passed,
            maxpacket_bytes: 0,
        }
    }

    /// A packet of this length is among those that come.
    pub(super) fn note_packet(&mut self, bytes: u64) {
        self.maxpacket_bytes = self.maxpacket_bytes.max(bytes);
    }

    /// The sojourn has been above the target for an interval.
    fn ok_to_drop(&mut self, now_ns: u64, sojourn_ns: u64, bytes: u64) -> bool {
        if sojourn_ns < self.settings.target_ns || bytes <= self.maxpacket_bytes {
            self.first_above_time_ns = None;
            return false;
        }
        let first_above_ns =
            *self.first_above_time_ns.get_or_insert(now_ns.saturating_add(self.settings.interval_ns));
        now_ns >= first_above_ns
    }

    fn control_law(&self, at_ns: u64) -> u64 {
        at_ns.saturating_add((self.settings.interval_ns as f64 / (self.count.max(1) as f64).sqrt()) as u64)
    }

    /// Begins the dropping state. If the last one is not long ago, it begins at the rate that
    /// controlled the queue then.
    fn begin_dropping(&mut self, now_ns: u64) {
        self.dropping = true;
        let delta = self.count - self.lastcount;
        let recent = now_ns.saturating_sub(self.drop_next_ns) < 16 * self.settings.interval_ns;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next_ns = self.control_law(now_ns);
        self.lastcount = self.count;
    }
}

impl QueueDiscipline for CoDelQueue {
    fn on_arrival(&mut self, arrival: &Arrival, _: &mut dyn FnMut() -> bool, _: &mut ChaCha8Rng) -> Verdict {
        self.note_packet(arrival.bytes);
        Verdict::PASS
    }

    fn on_start(
        &mut self,
        now_ns: u64,
        sojourn_ns: u64,
        _: u64,
        bytes: u64,
        mark: &mut dyn FnMut() -> bool,
    ) -> Verdict {
        let ok_to_drop = self.ok_to_drop(now_ns, sojourn_ns, bytes);
        let before = std::mem::take(&mut self.before);
        if before == Before::FirstDropped {
            return Verdict::PASS;
        }
        if !ok_to_drop {
            self.dropping = false;
            return Verdict::PASS;
        }
        if before == Before::Dropped {
            self.drop_next_ns = self.control_law(self.drop_next_ns);
        }
        let first = !self.dropping;
        if first {
            self.begin_dropping(now_ns);
        } else if now_ns >= self.drop_next_ns {
            self.count += 1;
        } else {
            return Verdict::PASS;
        }
        if self.settings.ecn && mark() {
            if !first {
                self.drop_next_ns = self.control_law(self.drop_next_ns);
            }
            return Verdict::Pass { marked: true };
        }
        self.before = if first { Before::FirstDropped } else { Before::Dropped };
        Verdict::Drop(DropReason::CoDel)
    }

    /// The RFC's deque finds no packet, which is not to be dropped.
    fn on_empty(&mut self, _: u64) {
        self.first_above_time_ns = None;
        self.dropping = false;
        self.before = Before::Passed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Asks about a packet every 0.1 ms that has waited 20 ms, from 0 on: when drops happen, in ms.
    fn drops(queue: &mut CoDelQueue, from_ms: u64, until_ms: u64, capable: bool) -> Vec<f64> {
        let mut drops = Vec::new();
        for step in from_ms * 10..until_ms * 10 {
            let now_ns = step * 100_000;
            let signal = |v: Verdict| v != Verdict::PASS;
            let mut verdict = queue.on_start(now_ns, 20 * MS, 1000, 30_000, &mut || capable);
            while signal(verdict) {
                drops.push(now_ns as f64 / MS as f64);
                if verdict == (Verdict::Pass { marked: true }) {
                    break;
                }
                verdict = queue.on_start(now_ns, 20 * MS, 1000, 30_000, &mut || capable);
            }
        }
        drops
    }

    #[test]
    fn drops_follow_the_control_law() {
        for capable in [false, true] {
            let mut queue = CoDelQueue::new(CoDel::default());
            let got = drops(&mut queue, 0, 2000, capable);
            // The first after an interval, then after 100 ms / sqrt(1), sqrt(2), ..
            let mut wanted_ms = 100.0;
            for (number, at_ms) in got.iter().enumerate() {
                assert!((0.0..=0.1001).contains(&(at_ms - wanted_ms)), "drop {number}: {at_ms} {wanted_ms}");
                wanted_ms += 100.0 / ((number + 1) as f64).sqrt();
            }
            // The sum of 1/sqrt(n) to n = 100 is 18.6: 1.96 s.
            assert!((100..=105).contains(&got.len()), "{}", got.len());
        }
    }

    #[test]
    fn a_good_packet_ends_dropping_and_the_rate_is_remembered() {
        let mut queue = CoDelQueue::new(CoDel::default());
        let first = drops(&mut queue, 0, 1000, false).len() as u64;
        assert_eq!(queue.count, first);
        assert_eq!(queue.on_start(1000 * MS, 4 * MS, 1000, 30_000, &mut || false), Verdict::PASS);
        assert!(!queue.dropping);
        // Above again at once: an interval passes, then drops go on at nearly the rate they had.
        let again = drops(&mut queue, 1001, 1300, false);
        assert_eq!(again[0], 1101.0);
        let gap_ms = again[1] - again[0];
        assert!((gap_ms - 100.0 / ((first - 1) as f64).sqrt()).abs() < 0.11, "{gap_ms}");
        // Long after, they begin anew.
        queue.on_start(1300 * MS, 0, 1000, 0, &mut || false);
        let anew = drops(&mut queue, 5000, 5300, false);
        assert_eq!((anew[0], anew[1]), (5100.0, 5200.0));
    }

    #[test]
    fn less_than_a_packet_behind_is_never_dropped() {
        let mut queue = CoDelQueue::new(CoDel::default());
        queue.maxpacket_bytes = 1500;
        for step in 0..1000 {
            assert_eq!(queue.on_start(step * MS, 50 * MS, 1000, 1500, &mut || false), Verdict::PASS);
        }
    }

    #[test]
    fn a_burst_that_drains_within_the_interval_passes() {
        let mut queue = CoDelQueue::new(CoDel::default());
        for step in 0..1000 {
            let sojourn_ns = if step % 99 == 98 { 4 } else { 90 } * MS;
            assert_eq!(queue.on_start(step * MS, sojourn_ns, 1000, 30_000, &mut || false), Verdict::PASS);
        }
        queue.on_start(1000 * MS, 90 * MS, 1000, 30_000, &mut || false);
        queue.on_empty(1050 * MS);
        assert_eq!(queue.on_start(1150 * MS, 90 * MS, 1000, 30_000, &mut || false), Verdict::PASS);
    }
}
