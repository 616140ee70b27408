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

mod lateness;
mod meter;
mod report;
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

/// An exchange whose outcome is awaited.
#[derive(Clone, Debug)]
struct Trial {
    decision: Decision,
    at: Time,
    before: Option<Rate>,
    loss_before: f64,
    late_before: f64,
    from: Option<(Time, u64)>,
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

    /// Home returns. Where most losses are congestion's, there are others on the path: what was
    /// left is not tried again soon.
    fn leave_to_others(&mut self, now: Time) {
        let (Some(seen), Some(decision)) = (&self.seen, &self.pending) else { return };
        let are_congestive = seen.facts.losses > 0 && seen.facts.loss_congestive > PLAIN_CONGESTIVE;
        let changes = |f: Function| decision.from.get(f) != decision.to.get(f);
        if are_congestive && changes(Function::Congestion) && self.aim == Aim::Throughput {
            self.disappointing.push((decision.from, now + DISAPPOINTED_FOR));
        }
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

    /// Outcome of the last exchange, once it can be told; told once.
    pub fn outcome(&mut self, now: Time) -> Option<Outcome> {
        let seen = self.seen.as_ref()?;
        let trial = self.trial.as_ref()?;
        let (from, bytes) = trial.from?;
        if now.since(trial.at) < settle(&seen.facts) * 3 {
            return None;
        }
        let after = Rate::from_delivery(seen.delivered_bytes.saturating_sub(bytes), now.since(from));
        let outcome = Outcome {
            decision: trial.decision.clone(),
            goodput_before: trial.before,
            goodput_after: after,
            loss_before: trial.loss_before,
            loss_after: seen.measured.loss,
            delay_after: seen.measured.rtt_min / 2 + seen.measured.queueing(),
        };
        // What the requirements chose is tried again sooner: it is the best on most paths.
        let is_home = seen.profile == self.home;
        let left_alone_for = if is_home { AFTER_FAILURE * self.quiet_factor } else { DISAPPOINTED_FOR };
        let until = now + left_alone_for;
        let worth = priced(after, seen.measured.loss - trial.loss_before);
        let (from, to) = (&trial.decision.from, &trial.decision.to);
        let number = from.get(Function::Congestion).number;
        let is_return = is_home && number != to.get(Function::Congestion).number;
        if is_return && self.aim == Aim::Throughput && seen.measured.loss < LOSS_LEFT * trial.loss_before {
            // The return was an experiment: what is lost followed what was sent. It is others' that
            // was taken, whatever else was beside that congestion control.
            self.caused_losses = Some((number, now + DISAPPOINTED_FOR));
        }
        if self.disappoints(trial, worth, seen.offered.is_some()) {
            self.undone = (!is_home).then(|| Box::new((seen.profile, worth)));
            self.disappointing.push((seen.profile, until));
            self.failures = (self.failures + 1).min(FAILURES_MAX);
            self.stays_until = now + AFTER_FAILURE * (1 << self.failures);
        } else if is_home {
            self.compare_with_home_again(now, worth);
        } else {
            self.failures = 0;
        }
        self.trial = None;
        Some(outcome)
    }

    /// Home has run again, after a profile was undone: if it brings less still, it was the path
    /// that had become worse, and that profile may be tried again.
    fn compare_with_home_again(&mut self, now: Time, home: Rate) {
        let Some(undone) = self.undone.take() else { return };
        if self.aim == Aim::Throughput && home.mul_f64(1.0 + GAIN_PART) < undone.1 {
            self.disappointing.retain(|(profile, _)| !are_alike(profile, &undone.0));
            (self.failures, self.stays_until) = (0, now);
        }
    }

    /// True if an exchange has not brought what was expected of it. If `has_enough` is true, all
    /// that there is to send is sent, so that no more can be brought.
    fn disappoints(&self, trial: &Trial, after: Rate, has_enough: bool) -> bool {
        let Expectation { from, to, .. } = &trial.decision.expects;
        match self.aim {
            // Who was in time and is late now has seen what it must not do, whatever the path does.
            Aim::InTime(_) => self.late.share() > trial.late_before + LATE_MORE,
            Aim::Throughput => {
                let bytes = |rate: Rate| rate.bytes_per_sec() as f64;
                let expected = (bytes(to.goodput) - bytes(from.goodput)).max(0.0);
                // It may take long to bring what was expected. A part of what there was is a gain.
                let falls_short = trial.before.is_some_and(|before| {
                    bytes(after) - bytes(before) < GAIN_PART * expected.min(bytes(before))
                });
                // What home brings less may be what others have got back.
                let is_return = trial.decision.to == self.home;
                !is_return && !has_enough && falls_short
            }
        }
    }

    /// True if this profile, or one that differs from it in parameters that are not the defaults,
    /// has brought too little.
    fn has_disappointed(&self, profile: &Profile) -> bool {
        self.disappointing.iter().any(|(other, _)| are_alike(other, profile))
    }

    /// True if this profile is not tried: it has brought too little, or its congestion control was
    /// shown to cause losses, whatever is beside it.
    fn is_left_alone(&self, now: Time, profile: &Profile) -> bool {
        let number = profile.get(Function::Congestion).number;
        let causes_losses = self.caused_losses.is_some_and(|(left, until)| left == number && now < until);
        (causes_losses && *profile != self.home) || self.has_disappointed(profile)
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

    /// True if the time for the change has come.
    fn is_due(&mut self, now: Time, seen: &Seen, target: &Profile, expected: &Expectation) -> bool {
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

    fn follow_trial(&mut self, now: Time) {
        let (Some(seen), Some(trial)) = (&self.seen, &mut self.trial) else { return };
        if trial.from.is_none() && now.since(trial.at) >= settle(&seen.facts) {
            trial.from = Some((now, seen.delivered_bytes));
        }
    }
}

/// True if two profiles have the same mechanisms, each with its defaults in both or in neither.
fn are_alike(a: &Profile, b: &Profile) -> bool {
    let has_defaults = |profile: &Profile, f| {
        profile.mechanism(f).is_none_or(|m| profile.get(f).params == m.choice().params)
    };
    Function::ALL
        .iter()
        .all(|f| a.get(*f).number == b.get(*f).number && has_defaults(a, *f) == has_defaults(b, *f))
}

/// Worth of a rate that has come with so much more loss (0..=1): what an exchange makes others lose
/// is no gain (the price is that of PCC Vivace, Dong et al. 2018).
fn priced(rate: Rate, loss_more: f64) -> Rate {
    rate.mul_f64((1.0 - LOSS_PRICE * loss_more.max(0.0)).max(0.0))
}

/// Over how long delivery is measured.
fn window(facts: &PathFacts) -> Duration {
    (10 * facts.rtt_min).max(METER_MIN)
}

/// Time that a new mechanism gets before it is measured; to measure it takes twice as long.
fn settle(facts: &PathFacts) -> Duration {
    (4 * facts.rtt_smoothed).max(SETTLE_MIN)
}

/// No more than one comparison in this time.
const DECIDE_EVERY_MIN: Duration = Duration::from_millis(10);
/// For how long a profile stays at least (or five round trips).
const DWELL_MIN: Duration = Duration::from_secs(1);
/// For how long another profile must have been better (or a round trip).
const PERSISTS_MIN: Duration = Duration::from_millis(100);
/// For how long an estimate of loss that still moves holds up a decision (or two round trips).
const UNSTEADY_MAX: Duration = Duration::from_secs(1);
/// From so many losses on, of which congestion has caused no more than this share (0..=1), a gain
/// of so many times needs no second look.
const PLAIN_LOSSES: u64 = 10;
const PLAIN_CONGESTIVE: f64 = 0.5;
const PLAIN_GAIN: f64 = 2.0;
/// For how long home must have been good enough again (or twenty round trips); longer after each
/// return that did not last.
const QUIET_MIN: Duration = Duration::from_secs(2);
const QUIET_FACTOR_MAX: u32 = 16;
/// A return to home that lasted no longer was too early.
const RETURNED_SOON: Duration = Duration::from_secs(20);
/// Never more exchanges in a minute.
const EXCHANGES_PER_MINUTE: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// Round trips until a mechanism has caught up: an exchanged congestion control probes anew, a code
/// begins a block.
const CATCH_UP_CONGESTION_RTTS: f64 = 3.0;
const CATCH_UP_OTHER_RTTS: f64 = 1.0;
/// A return after which less than this part is lost has shown that what it left caused the rest.
const LOSS_LEFT: f64 = 0.5;
/// For how long a profile that brought nothing, or was refused, is left alone.
const DISAPPOINTED_FOR: Duration = Duration::from_secs(60);
/// An exchange away from home must bring this part of the gain that was expected, or as much more
/// than there was.
const GAIN_PART: f64 = 0.25;
/// A rate is worth so many times less, as a share of itself, as more is lost.
const LOSS_PRICE: f64 = 11.35;
/// For how long at least nothing is tried after an exchange that has disappointed; twice as long
/// after each further one in a row.
const AFTER_FAILURE: Duration = Duration::from_secs(4);
const FAILURES_MAX: u32 = 4;
/// So much more of the time (0..=1) in which what waits is late is a harm.
const LATE_MORE: f64 = 0.05;
const METER_MIN: Duration = Duration::from_millis(400);
const SETTLE_MIN: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests;
