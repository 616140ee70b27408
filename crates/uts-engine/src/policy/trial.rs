//! Trials: what an exchange has brought, and what is left alone because of that.

use super::due::PLAIN_CONGESTIVE;
use super::{Aim, Decision, Expectation, Outcome, Policy};
use core::time::Duration;
use uts_functions::{Function, PathFacts, Profile, Rate, Time};

/// An exchange whose outcome is awaited.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub decision: Decision,
    pub at: Time,
    pub before: Option<Rate>,
    pub loss_before: f64,
    pub late_before: f64,
    pub from: Option<(Time, u64)>,
}

impl Policy {
    /// Home returns. Where most losses are congestion's, there are others on the path: what was
    /// left is not tried again soon.
    pub(super) fn leave_to_others(&mut self, now: Time) {
        let (Some(seen), Some(decision)) = (&self.seen, &self.pending) else { return };
        let are_congestive = seen.facts.losses > 0 && seen.facts.loss_congestive > PLAIN_CONGESTIVE;
        let changes = |f: Function| decision.from.get(f) != decision.to.get(f);
        if are_congestive && changes(Function::Congestion) && self.aim == Aim::Throughput {
            self.disappointing.push((decision.from, now + DISAPPOINTED_FOR));
        }
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
    pub(super) fn has_disappointed(&self, profile: &Profile) -> bool {
        self.disappointing.iter().any(|(other, _)| are_alike(other, profile))
    }

    /// True if this profile is not tried: it has brought too little, or its congestion control was
    /// shown to cause losses, whatever is beside it.
    pub(super) fn is_left_alone(&self, now: Time, profile: &Profile) -> bool {
        let number = profile.get(Function::Congestion).number;
        let causes_losses = self.caused_losses.is_some_and(|(left, until)| left == number && now < until);
        (causes_losses && *profile != self.home) || self.has_disappointed(profile)
    }

    pub(super) fn follow_trial(&mut self, now: Time) {
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

/// Time that a new mechanism gets before it is measured; to measure it takes twice as long.
fn settle(facts: &PathFacts) -> Duration {
    (4 * facts.rtt_smoothed).max(SETTLE_MIN)
}

/// A return after which less than this part is lost has shown that what it left caused the rest.
const LOSS_LEFT: f64 = 0.5;
/// For how long a profile that brought nothing, or was refused, is left alone.
pub(super) const DISAPPOINTED_FOR: Duration = Duration::from_secs(60);
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
const SETTLE_MIN: Duration = Duration::from_millis(300);
