//! The time for a change that would be a gain: hysteresis, and what the change costs.

use super::{Aim, Expectation, Policy, Seen};
use core::time::Duration;
use uts_functions::{Function, Profile, Time};

impl Policy {
    /// True if the time for the change has come.
    pub(super) fn is_due(
        &mut self,
        now: Time,
        seen: &Seen,
        target: &Profile,
        expected: &Expectation,
    ) -> bool {
        let rtt = seen.facts.rtt_min;
        while self.recent.front().is_some_and(|at| now.since(*at) >= MINUTE) {
            self.recent.pop_front();
        }
        let is_undone = self.has_disappointed(&seen.profile);
        let stayed = self.last_exchange.is_none_or(|at| now.since(at) >= DWELL_MIN.max(5 * rtt));
        if *target == self.home {
            self.better_since = None;
            let since = *self.home_good_since.get_or_insert(now);
            let quiet = (QUIET_MIN.max(20 * rtt) * self.quiet_factor).max(self.bars_way_back(now));
            // What has not brought what was expected is undone at once.
            let quiet = if is_undone { Duration::ZERO } else { quiet };
            return stayed && now.since(since) >= quiet && self.recent.len() < EXCHANGES_PER_MINUTE;
        }
        // A place in the budget is kept for the way home.
        if self.recent.len() + 1 >= EXCHANGES_PER_MINUTE {
            return false;
        }
        let since = *self.better_since.get_or_insert(now);
        let persists = PERSISTS_MIN.max(rtt);
        let better_for = now.since(since);
        // An estimate that never settles is acted on all the same after a while.
        // What is no load need not be measured out.
        let is_sized = !expected.to.is_light;
        let steady =
            !is_sized || self.path.steady_for(now) >= persists || better_for >= UNSTEADY_MAX.max(2 * rtt);
        if now < self.stays_until && !is_undone {
            return false;
        }
        if stayed && self.is_plain(seen, expected) && self.pays(now, seen, target, expected) {
            return true;
        }
        stayed && (is_undone || (steady && better_for >= persists && self.pays(now, seen, target, expected)))
    }

    /// True if so much is to be gained, and so many losses say so, that a second look says no more:
    /// a round trip of waiting is a large part of the start on a long path.
    fn is_plain(&self, seen: &Seen, expected: &Expectation) -> bool {
        self.aim == Aim::Throughput
            && seen.facts.losses >= PLAIN_LOSSES
            && seen.facts.loss_congestive < PLAIN_CONGESTIVE
            && expected.to.worth > PLAIN_GAIN * expected.from.worth
    }

    /// Time for which home could not be left again, if it returned now: the minute's exchanges are
    /// spent. A policy that waits for as long as that first loses at most twice what it
    /// would have lost knowing what comes.
    fn bars_way_back(&self, now: Time) -> Duration {
        let too_many = (self.recent.len() + 3).saturating_sub(EXCHANGES_PER_MINUTE);
        let last_to_go = too_many.checked_sub(1).and_then(|place| self.recent.get(place));
        last_to_go.map_or(Duration::ZERO, |at| (*at + MINUTE).since(now))
    }

    /// True if the gain, over the time that the path is expected to stay so, exceeds the loss until
    /// the new mechanism has found its place.
    fn pays(&self, now: Time, seen: &Seen, target: &Profile, expected: &Expectation) -> bool {
        let rtt_s = seen.facts.rtt_smoothed.max(seen.facts.rtt_min).as_secs_f64();
        let gain = expected.to.worth - expected.from.worth;
        let stay_s = self.path.stay(now).as_secs_f64() - rtt_s;
        let changes_congestion = seen.profile.get(Function::Congestion) != target.get(Function::Congestion);
        let catch_up_rtts = if changes_congestion { CATCH_UP_CONGESTION_RTTS } else { CATCH_UP_OTHER_RTTS };
        let cost = match self.aim {
            Aim::Throughput => catch_up_rtts * rtt_s * expected.from.worth,
            // The old profile goes on until the new one is agreed: what comes late is at most what
            // is late already.
            Aim::InTime(_) => catch_up_rtts * rtt_s * (1.0 - expected.from.worth),
        };
        gain * stay_s > cost
    }
}

/// For how long a profile stays at least (or five round trips).
const DWELL_MIN: Duration = Duration::from_secs(1);
/// For how long another profile must have been better (or a round trip).
const PERSISTS_MIN: Duration = Duration::from_millis(100);
/// For how long an estimate of loss that still moves holds up a decision (or two round trips).
const UNSTEADY_MAX: Duration = Duration::from_secs(1);
/// From so many losses on, of which congestion has caused no more than this share (0..=1), a gain
/// of so many times needs no second look.
const PLAIN_LOSSES: u64 = 10;
pub(super) const PLAIN_CONGESTIVE: f64 = 0.5;
const PLAIN_GAIN: f64 = 2.0;
/// For how long home must have been good enough again (or twenty round trips); longer after each
/// return that did not last.
const QUIET_MIN: Duration = Duration::from_secs(2);
/// Never more exchanges in a minute.
pub(super) const EXCHANGES_PER_MINUTE: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// Round trips until a mechanism has caught up: an exchanged congestion control probes anew, a code
/// begins a block.
const CATCH_UP_CONGESTION_RTTS: f64 = 3.0;
const CATCH_UP_OTHER_RTTS: f64 = 1.0;
