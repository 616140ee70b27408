//! The policy: when to exchange mechanisms, and for which.
//!
//! Each candidate profile is predicted on the path as it is believed to be, and judged by a utility
//! that follows from the requirements. A change is decided only if its gain over the time that the
//! path is expected to stay so exceeds what the change costs, and only with hysteresis: evidence,
//! persistence, a minimum stay, and a quiet period before the home profile returns. Numbers are
//! those of `spec/selection.md`.
//!
//! Drive it so: [`Policy::observe`] whenever facts are new (once a round trip is enough), then
//! [`Policy::decide`]; when the exchange that it decided has happened, [`Policy::on_exchanged`], or
//! [`Policy::on_refused`]; and [`Policy::outcome`] for what it brought.

mod due;
mod lateness;
mod meter;
mod report;
mod trial;
mod turns;

use crate::appraisal::candidates::candidates;
use crate::appraisal::path::Path;
use crate::appraisal::utility::Judge;
use crate::appraisal::{Library, best, is_evident, is_gain};
use crate::host::HostFacts;
use crate::requirements::Requirements;
use core::time::Duration;
use lateness::Lateness;
use meter::Meter;
use std::collections::VecDeque;
use trial::{DISAPPOINTED_FOR, Trial};
use uts_functions::{Function, PathFacts, Profile, Rate, Time};

pub use crate::appraisal::utility::{Aim, Expectation, Score};
pub use report::{Decision, Outcome};
pub(crate) use turns::{Turn, Turns};

/// Observation of a connection's direction (or of a flow), as the policy is told of it.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// Facts of the path, as far as they are known.
    pub facts: &'a PathFacts,
    /// The profile in use.
    pub profile: &'a Profile,
    /// Application bytes that were delivered so far.
    pub delivered_bytes: u64,
    /// Rate at which the application sends, if it has a rate of its own: it sends less than it
    /// could, or sends in time.
    pub offered: Option<Rate>,
    /// Where arrival in time is the aim: what waits here to be sent would arrive too late.
    pub is_late: bool,
    /// Congestion control still looks for the path's limit.
    pub is_searching: bool,
}

/// When to exchange, and for what.
#[derive(Clone, Debug)]
pub struct Policy {
    requirements: Requirements,
    aim: Aim,
    usable: Library,
    home: Profile,
    host: HostFacts,
    path: Path,
    meter: Meter,
    seen: Option<Box<Seen>>,
    /// The facts at the last exchange, or the first ones.
    baseline: Option<PathFacts>,
    next_at: Time,
    pending: Option<Box<Decision>>,
    trial: Option<Box<Trial>>,
    late: Lateness,
    requirements_changed: bool,
    last_exchange: Option<Time>,
    /// Another profile than home was put to use last.
    is_away: bool,
    home_good_since: Option<Time>,
    better_since: Option<Time>,
    returned_at: Option<Time>,
    quiet_factor: u32,
    recent: VecDeque<Time>,
    disappointing: Vec<(Profile, Time)>,
    /// A congestion control that was shown to cause losses, and until when it is left alone.
    caused_losses: Option<(u8, Time)>,
    /// Profile that was undone, and the rate that it brought, until home has run again.
    undone: Option<Box<(Profile, Rate)>>,
    /// Exchanges in a row that have not brought what was expected, and until when no other is tried
    /// because of them.
    failures: u32,
    stays_until: Time,
}

/// The last observation, as believed.
#[derive(Clone, Debug)]
struct Seen {
    measured: PathFacts,
    facts: PathFacts,
    profile: Profile,
    delivered_bytes: u64,
    offered: Option<Rate>,
}

impl Policy {
    /// A policy that leaves `home`, the selector's profile, when the path calls for it. `usable` is
    /// what both ends have.
    pub fn new(requirements: Requirements, usable: Library, home: Profile) -> Self {
        Policy {
            aim: Aim::of(&requirements),
            path: Path::of_dialogue(requirements.is_dialogue()),
            requirements,
            usable,
            home,
            host: HostFacts::default(),
            meter: Meter::default(),
            seen: None,
            baseline: None,
            next_at: Time::ZERO,
            pending: None,
            trial: None,
            late: Lateness::default(),
            requirements_changed: false,
            last_exchange: None,
            is_away: false,
            home_good_since: None,
            better_since: None,
            returned_at: None,
            quiet_factor: 1,
            recent: VecDeque::new(),
            disappointing: Vec::new(),
            caused_losses: None,
            undone: None,
            failures: 0,
            stays_until: Time::ZERO,
        }
    }

    /// The requirements have changed in mid-connection, and `home` is what the selector makes of
    /// them now. The next decision is for it, whatever the path.
    pub fn set_requirements(&mut self, requirements: Requirements, home: Profile) {
        self.aim = Aim::of(&requirements);
        self.requirements = requirements;
        self.requirements_changed = true;
        self.home = home;
        self.home_good_since = None;
        self.better_since = None;
    }

    /// Takes in facts of the host, which hold from now on.
    pub fn set_host(&mut self, host: HostFacts) {
        self.host = host;
    }

    /// True if nothing has been exchanged or asked for so far: all that it holds are beliefs about
    /// the path.
    pub fn is_untried(&self) -> bool {
        self.last_exchange.is_none()
            && self.pending.is_none()
            && self.disappointing.is_empty()
            && !self.requirements_changed
    }

    /// Bytes of heap memory, texts of decisions left out.
    pub fn heap_bytes(&self) -> usize {
        let of = |is_there: bool, bytes: usize| usize::from(is_there) * bytes;
        of(self.seen.is_some(), size_of::<Seen>())
            + of(self.pending.is_some(), size_of::<Decision>())
            + of(self.trial.is_some(), size_of::<Trial>())
            + self.meter.heap_bytes()
            + self.recent.capacity() * size_of::<Time>()
            + self.disappointing.capacity() * size_of::<(Profile, Time)>()
            + of(self.undone.is_some(), size_of::<(Profile, Rate)>())
    }

    /// After a quiet while what was seen last says nothing any more.
    pub fn forget_recent(&mut self) {
        self.seen = None;
        self.meter = Meter::default();
        self.recent.shrink_to_fit();
        self.disappointing.shrink_to_fit();
    }

    /// Aim by which it judges.
    pub fn aim(&self) -> Aim {
        self.aim
    }

    /// The profile to which the policy returns.
    pub fn home(&self) -> &Profile {
        &self.home
    }

    /// Takes in what is known now.
    pub fn observe(&mut self, now: Time, observation: &Observation<'_>) {
        let congestion = observation.profile.get(Function::Congestion);
        let at_home = congestion == self.home.get(Function::Congestion);
        // Who still looks for the path's limit has not met it, whatever waits.
        let is_limit = observation.is_late && !observation.is_searching;
        let facts = self.path.observe(now, observation.facts, at_home, (observation.offered, is_limit));
        self.late.observe(now, observation.is_late);
        self.meter.observe(now, observation.delivered_bytes, window(&facts));
        if self.baseline.is_none() && is_evident(self.aim, &facts) {
            self.baseline = Some(facts);
        }
        let seen = Seen {
            measured: *observation.facts,
            facts,
            profile: *observation.profile,
            delivered_bytes: observation.delivered_bytes,
            offered: observation.offered,
        };
        match &mut self.seen {
            Some(last) => **last = seen,
            none => *none = Some(Box::new(seen)),
        }
        self.follow_trial(now);
    }

    /// True if profiles are compared at all.
    pub(crate) fn adapts(&self) -> bool {
        self.requirements.adapt
    }

    /// True if [`Policy::decide`] would compare profiles, which takes its time.
    pub(crate) fn will_compare(&self, now: Time) -> bool {
        let is_known = || self.seen.as_ref().is_some_and(|seen| is_evident(self.aim, &seen.facts));
        self.pending.is_none()
            && now >= self.next_at
            && !self.requirements_changed
            && self.requirements.adapt
            && is_known()
    }

    /// Decision to exchange now, if there is one. After a decision there is none until it is
    /// carried out or refused.
    pub fn decide(&mut self, now: Time) -> Option<Decision> {
        if self.pending.is_some() || now < self.next_at {
            return None;
        }
        let seen = *self.seen.clone()?;
        if self.requirements_changed {
            self.requirements_changed = false;
            return self.decide_for_requirements(&seen);
        }
        if !self.requirements.adapt || !is_evident(self.aim, &seen.facts) {
            return None;
        }
        self.next_at = now + seen.facts.rtt_min.max(DECIDE_EVERY_MIN);
        let (target, expectation) = self.choose(now, &seen)?;
        if !self.is_due(now, &seen, &target, &expectation) {
            return None;
        }
        let baseline = self.baseline.unwrap_or(seen.facts);
        let mut decision =
            Decision::new(seen.profile, target, expectation, &baseline, &seen.facts, &seen.measured);
        if self.host != HostFacts::default() {
            decision.seen += &format!(", {}", self.host);
        }
        self.pending = Some(Box::new(decision.clone()));
        Some(decision)
    }

    /// The decided exchange has happened: `profile` is in use from now on. Also for exchanges that
    /// were not decided here.
    pub fn on_exchanged(&mut self, now: Time, profile: &Profile) {
        self.last_exchange = Some(now);
        self.recent.push_back(now);
        // What was seen last may be under the new profile already.
        let was_home = !core::mem::replace(&mut self.is_away, *profile != self.home);
        if *profile == self.home {
            // To undo an exchange says nothing of when the path is good for home.
            let undoes = self.pending.as_ref().is_some_and(|decision| self.has_disappointed(&decision.from));
            self.returned_at = (!undoes).then_some(now);
            self.leave_to_others(now);
        } else if was_home {
            let soon = self.returned_at.is_some_and(|at| now.since(at) < RETURNED_SOON);
            self.quiet_factor = if soon { (self.quiet_factor * 2).min(QUIET_FACTOR_MAX) } else { 1 };
        }
        self.home_good_since = None;
        self.better_since = None;
        let Some(seen) = &mut self.seen else { return };
        self.baseline = Some(seen.facts);
        seen.profile = *profile;
        if let Some(decision) = self.pending.take().map(|d| *d).filter(|d| d.to == *profile) {
            let before = self.meter.rate(window(&seen.facts));
            let (loss_before, late_before) = (seen.measured.loss, self.late.share());
            self.trial =
                Some(Box::new(Trial { decision, at: now, before, loss_before, late_before, from: None }));
        }
        self.meter.clear();
    }

    /// The decided exchange was refused because the peer lacks that mechanism, or was given up for
    /// another reason (`None`). Until this or [`Policy::on_exchanged`] is called, there is no
    /// further decision.
    pub fn on_refused(&mut self, now: Time, lacking: Option<(Function, u8)>) {
        if let Some((function, number)) = lacking {
            self.usable.remove(function, number);
        }
        if let Some(decision) = self.pending.take() {
            self.disappointing.push((decision.to, now + DISAPPOINTED_FOR));
        }
        self.last_exchange = Some(now);
    }

    /// The profile whose home is `home` that does best, and what it is expected to bring; `None` if
    /// that is the present one, or not by enough.
    fn choose(&mut self, now: Time, seen: &Seen) -> Option<(Profile, Expectation)> {
        self.disappointing.retain(|(_, until)| *until > now);
        let judge = self.judge(seen);
        let list = candidates(&self.requirements, &seen.facts, &self.usable, &self.home, &seen.profile);
        let in_use = judge.score(&seen.profile);
        let score = |p: Profile| (p, judge.score_beside(&p, &in_use));
        let scores: Vec<(Profile, Score)> =
            list.into_iter().filter(|p| !self.is_left_alone(now, p)).map(score).collect();
        let present = self.present_score(seen, in_use);
        let home = scores.iter().find(|(p, _)| *p == self.home).copied();
        // What has disappointed is undone; what else might do is not tried from there.
        let target = match home.filter(|_| self.has_disappointed(&seen.profile)) {
            Some(home) => home,
            None => best(self.aim, &scores, &self.home)?,
        };
        let home_is_target = target.0 == self.home;
        if !home_is_target || seen.profile == self.home {
            self.home_good_since = None;
        }
        let enough = home_is_target || is_gain(self.aim, &present, &target.1);
        if target.0 == seen.profile || !enough {
            self.better_since = None;
            return None;
        }
        let aim = self.judge(seen).aim_here();
        Some((target.0, Expectation { aim, from: present, to: target.1 }))
    }

    /// Score of the present profile: its measured worth, if that is better than predicted.
    fn present_score(&self, seen: &Seen, predicted: Score) -> Score {
        let measured = self.meter.rate(window(&seen.facts)).filter(|_| seen.offered.is_none());
        let capacity = seen.facts.capacity.bytes_per_sec() as f64;
        if let Aim::InTime(_) = self.aim {
            // Lateness that came with an exchange is the new profile's; any other may be the
            // path's, which all share.
            let share = if self.has_disappointed(&seen.profile) { self.late.share() } else { 0.0 };
            return Score { worth: predicted.worth.min(1.0 - share), ..predicted };
        }
        let Some(rate) = measured.filter(|_| self.aim == Aim::Throughput && capacity > 0.0) else {
            return predicted;
        };
        let measured = (rate.bytes_per_sec() as f64 / capacity).min(1.0);
        // What is predicted of a profile that has disappointed counts no more.
        let worth =
            if self.has_disappointed(&seen.profile) { measured } else { measured.max(predicted.worth) };
        Score { worth, goodput: rate, ..predicted }
    }

    fn judge<'a>(&'a self, seen: &'a Seen) -> Judge<'a> {
        Judge::new(&self.requirements, self.aim, (&seen.facts, &self.host), seen.offered)
    }

    fn decide_for_requirements(&mut self, seen: &Seen) -> Option<Decision> {
        if seen.profile == self.home {
            return None;
        }
        let judge = self.judge(seen);
        let (from, to) = (judge.score(&seen.profile), judge.score(&self.home));
        let expectation = Expectation { aim: judge.aim_here(), from, to };
        let mut decision =
            Decision::new(seen.profile, self.home, expectation, &seen.facts, &seen.facts, &seen.measured);
        decision.seen = "other requirements".to_owned();
        self.pending = Some(Box::new(decision.clone()));
        Some(decision)
    }
}

/// Over how long delivery is measured.
fn window(facts: &PathFacts) -> Duration {
    (10 * facts.rtt_min).max(METER_MIN)
}

/// No more than one comparison in this time.
const DECIDE_EVERY_MIN: Duration = Duration::from_millis(10);
/// Home must have been good enough for at most so many times longer, after returns that did not
/// last.
const QUIET_FACTOR_MAX: u32 = 16;
/// A return to home that lasted no longer was too early.
const RETURNED_SOON: Duration = Duration::from_secs(20);
const METER_MIN: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests;
