//! Decisions and outcomes, in words.

use crate::appraisal::utility::{Expectation, rates};
use core::fmt;
use core::time::Duration;
use uts_functions::{PathFacts, Prediction, Profile, Rate};

/// An exchange that the policy wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The profile in use.
    pub from: Profile,
    /// The profile to exchange it for.
    pub to: Profile,
    /// Facts that were seen: `loss 4.8 % in bursts of 3.9, 3 % of it congestion's`.
    pub seen: String,
    /// All facts of the path: `rtt=40ms,queue=12ms,rate=50Mbit/s,loss=4.8%,burst=3.9`…
    pub path: String,
    /// Changes of the profile: `congestion cubic -> bbr(loss-threshold=150)`.
    pub changes: String,
    /// Effect that is expected of it, in figures.
    pub expects: Expectation,
    /// The prediction for the new profile.
    pub prediction: Prediction,
}

impl Decision {
    pub(super) fn new(
        from: Profile,
        to: Profile,
        expects: Expectation,
        baseline: &PathFacts,
        facts: &PathFacts,
        measured: &PathFacts,
    ) -> Self {
        Decision {
            from,
            to,
            seen: describe_path(baseline, facts, measured),
            path: facts.to_string(),
            changes: from.changes_to(&to),
            expects,
            prediction: expects.to.prediction,
        }
    }
}

/// `loss 4.8 % …: congestion cubic -> bbr(loss-threshold=150); expects goodput 5.3 -> 45.6 Mbit/s`.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.seen, self.changes)?;
        match self.expects.to_string() {
            expects if expects.is_empty() => Ok(()),
            expects => write!(f, "; expects {expects}"),
        }
    }
}

/// A loss (0..=1) below this is not worth a word.
const LOSS_SHOWN_MIN: f64 = 0.00005;

/// A loss (0..=1) in percent, rare ones with two digits behind the point.
fn percent(loss: f64) -> String {
    if loss < 0.0005 { format!("{:.2}", loss * 100.0) } else { format!("{:.1}", loss * 100.0) }
}

/// Facts of a path that are worth a word, against the facts before.
fn describe_path(before: &PathFacts, now: &PathFacts, measured: &PathFacts) -> String {
    let mut parts = Vec::new();
    if measured.loss >= LOSS_SHOWN_MIN {
        let mut text = format!("loss {} %", percent(measured.loss));
        if measured.loss_burst >= 1.5 {
            text += &format!(" in bursts of {:.1}", measured.loss_burst);
        }
        text += &format!(", {:.0} % of it congestion's", measured.loss_congestive * 100.0);
        parts.push(text);
    } else if before.loss >= LOSS_SHOWN_MIN {
        parts.push(format!("loss {} -> 0 %", percent(before.loss)));
    } else {
        parts.push("no loss".to_owned());
    }
    let (old, new) = (before.capacity.bytes_per_sec() as f64, now.capacity.bytes_per_sec() as f64);
    if old > 0.0 && !(0.9..=1.11).contains(&(new / old)) {
        let ([before, now], unit) = rates([before.capacity, now.capacity]);
        parts.push(format!("capacity {before} -> {now} {unit}"));
    }
    let (old, new) = (before.rtt_min.as_secs_f64() * 1e3, now.rtt_min.as_secs_f64() * 1e3);
    if old > 0.0 && !(0.67..=1.5).contains(&(new / old)) {
        parts.push(format!("round trip {old:.0} -> {new:.0} ms"));
    }
    let queue = measured.queueing();
    if queue > (measured.rtt_min / 2).max(Duration::from_millis(5)) {
        let rtt_ms = measured.rtt_min.as_secs_f64() * 1e3;
        parts.push(format!("queue {:.0} ms over a round trip of {rtt_ms:.0} ms", queue.as_secs_f64() * 1e3));
    }
    parts.join(", ")
}

/// Measured effect of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The decision.
    pub decision: Decision,
    /// Application bytes delivered per second before; `None` if there was no time to measure.
    pub goodput_before: Option<Rate>,
    /// The same after.
    pub goodput_after: Rate,
    /// Share of packets lost before (0..=1).
    pub loss_before: f64,
    /// The same after.
    pub loss_after: f64,
    /// Time one way after, queue included.
    pub delay_after: Duration,
}

/// `goodput 5.3 -> 44.1 Mbit/s, expected 45.6`, and loss and delay where they are what counts.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.decision.expects.to.goodput;
        let all = [self.goodput_before.unwrap_or_default(), self.goodput_after, expected];
        let ([before, after, expected], unit) = rates(all);
        let before = if self.goodput_before.is_some() { before } else { "?".to_owned() };
        write!(f, "goodput {before} -> {after} {unit}, expected {expected}")?;
        if let super::Aim::InTime(_) = self.decision.expects.aim {
            let (old, new) = (self.loss_before * 100.0, self.loss_after * 100.0);
            let delay_ms = self.delay_after.as_secs_f64() * 1e3;
            let expected_ms = self.decision.expects.to.delay.as_secs_f64() * 1e3;
            write!(
                f,
                "; path loss {old:.1} -> {new:.1} %, delay {delay_ms:.0} ms, expected {expected_ms:.0}"
            )?;
        }
        Ok(())
    }
}
