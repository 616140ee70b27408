//! What a profile is worth to the application: a figure from 0 to 1, made from its prediction by
//! the requirements.

use super::forecast;
use crate::requirements::{CapacityProfile, Quality, Requirements};
use core::fmt;
use core::time::Duration;
use uts_functions::{Function, PathFacts, Prediction, Profile, Rate};

/// One way, what a person in a conversation does not notice (ITU-T G.114).
const INTERACTIVE_DELAY: Duration = Duration::from_millis(150);
/// One way, what ITU-T G.114 calls the upper limit for planning.
const OTHER_DELAY: Duration = Duration::from_millis(400);
/// What doubling the packets costs where arrival in time is what counts: as much as this share of
/// the data lost.
const OVERHEAD_WEIGHT: f64 = 0.02;
/// Below this share of what a profile could carry, the application's own rate is what flows, and
/// the queue is not ours.
const LIGHT_LOAD: f64 = 0.7;

/// What is sent in time comes in bursts: for so many times its mean rate there must be room.
const BURSTS: f64 = 1.25;

/// What the application is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// As much as possible.
    Throughput,
    /// As much as possible of what is sent, within this time from `send` to `receive`.
    InTime(Duration),
}

impl Aim {
    /// What follows from the requirements.
    pub fn of(requirements: &Requirements) -> Aim {
        if let Some(deadline) = requirements.deadline() {
            return Aim::InTime(deadline);
        }
        match requirements.conn_capacity_profile {
            CapacityProfile::LowLatencyInteractive => Aim::InTime(INTERACTIVE_DELAY),
            CapacityProfile::LowLatencyNonInteractive | CapacityProfile::ConstantRate => {
                Aim::InTime(OTHER_DELAY)
            }
            _ => Aim::Throughput,
        }
    }
}

/// The worth of a profile on a path, and the figures behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// From 0 to 1; compared between profiles on the same path only.
    pub worth: f64,
    /// Application bytes that would arrive.
    pub goodput: Rate,
    /// Share of the data (0..=1) that would arrive in time.
    pub in_time: f64,
    /// Share of the rate that is needed (0..=1) which falls short, where arrival in time is the
    /// aim.
    pub slow: f64,
    /// Mean time one way.
    pub delay: Duration,
    /// The prediction.
    pub prediction: Prediction,
}

/// What is the same for all profiles that are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge<'a> {
    pub requirements: &'a Requirements,
    pub aim: Aim,
    pub facts: &'a PathFacts,
    /// What the application sends, where it sends less than the path carries.
    pub offered: Option<Rate>,
}

impl Judge<'_> {
    pub fn score(&self, profile: &Profile) -> Score {
        let mut prediction = forecast(profile, self.facts);
        let possible = prediction.goodput(self.facts);
        let offered = self.offered.map(|r| r.bytes_per_sec() as f64);
        let bound = self.requirements.max_send_rate.map(|r| r.bytes_per_sec() as f64);
        let wanted = match (offered, bound) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if wanted.is_some_and(|w| w < LIGHT_LOAD * possible) {
            self.queue_of_others(profile, &mut prediction);
        }
        let goodput = wanted.map_or(possible, |w| w.min(possible));
        let propagation_s = self.facts.rtt_min.as_secs_f64() / 2.0;
        let in_time = match self.aim {
            Aim::Throughput => 1.0 - prediction.loss,
            Aim::InTime(deadline) => {
                (1.0 - prediction.loss) * on_time(&prediction, deadline.as_secs_f64() - propagation_s)
            }
        };
        let (worth, slow) = match self.aim {
            Aim::Throughput => {
                let capacity = self.facts.capacity.bytes_per_sec() as f64;
                (if capacity > 0.0 { (possible / capacity).min(1.0) } else { prediction.utilisation }, 0.0)
            }
            Aim::InTime(_) => {
                let slow = self.slow(&prediction, wanted);
                (self.worth_in_time(&prediction, in_time, slow), slow)
            }
        };
        Score {
            worth,
            goodput: Rate::from_bytes_per_sec(goodput as u64),
            in_time,
            slow,
            delay: Duration::try_from_secs_f64(propagation_s + prediction.delay_s).unwrap_or(Duration::MAX),
            prediction,
        }
    }

    /// Congestion control does not fill a queue with data that the application does not send: what
    /// is in the queue was there before.
    fn queue_of_others(&self, profile: &Profile, prediction: &mut Prediction) {
        let own = profile.with(Function::Congestion, Default::default());
        let without = forecast(&own, self.facts);
        prediction.delay_s = prediction.delay_s.min(without.delay_s);
        prediction.delay_p99_s = prediction.delay_p99_s.min(without.delay_p99_s);
    }

    /// What the rate falls short of what is needed: what it does at times is waited for, whatever
    /// its mean.
    fn slow(&self, p: &Prediction, wanted: Option<f64>) -> f64 {
        let needed =
            self.requirements.min_send_rate.map(|r| r.bytes_per_sec() as f64).or(wanted.map(|w| w * BURSTS));
        needed.filter(|n| *n > 0.0).map_or(0.0, |n| (1.0 - p.goodput_low(self.facts) / n).max(0.0))
    }

    /// One, less what falls short, each quality by its weight.
    fn worth_in_time(&self, p: &Prediction, in_time: f64, slow: f64) -> f64 {
        let arrives = 1.0 - p.loss;
        let late = if arrives > 0.0 { 1.0 - in_time / arrives } else { 1.0 };
        let jitter = self.requirements.max_jitter.map_or(0.0, |max| {
            let max_s = max.as_secs_f64().max(1e-6);
            (((p.delay_p99_s - p.delay_s) - max_s) / max_s).clamp(0.0, 1.0)
        });
        let short = self.weight(Quality::Reliability) * p.loss
            + self.weight(Quality::Delay) * late
            + self.weight(Quality::Rate) * slow
            + self.weight(Quality::Jitter) * 0.1 * jitter
            + OVERHEAD_WEIGHT * (p.expansion - 1.0);
        (1.0 - short).clamp(0.0, 1.0)
    }

    /// What is given up first counts least; what may not be given up counts whole.
    fn weight(&self, quality: Quality) -> f64 {
        let list = &self.requirements.degradation;
        match list.iter().position(|q| *q == quality) {
            Some(place) => (place + 1) as f64 / (list.len() + 1) as f64,
            None => 1.0,
        }
    }
}

/// Share of what arrives that takes no longer than `left_s` beyond propagation. Delays are taken to
/// have an exponential tail through the two points that a prediction gives: half beyond the mean, a
/// hundredth beyond the slowest percent.
fn on_time(p: &Prediction, left_s: f64) -> f64 {
    if left_s < 0.0 {
        return 0.0;
    }
    let spread = p.delay_p99_s - p.delay_s;
    if spread <= 0.0 {
        return if p.delay_s <= left_s { 1.0 } else { 0.0 };
    }
    let late = 0.5 * libm::exp(-libm::log(50.0) * (left_s - p.delay_s) / spread);
    1.0 - late.clamp(0.0, 1.0)
}

/// What a change is expected to bring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// What the application is after.
    pub aim: Aim,
    /// Without the change: measured where it was measured, else predicted.
    pub from: Score,
    /// With it.
    pub to: Score,
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.aim {
            Aim::Throughput => {
                write!(f, "goodput {} -> {} Mbit/s", mbit(self.from.goodput), mbit(self.to.goodput))
            }
            Aim::InTime(deadline) => write!(
                f,
                "within {:.0} ms {:.2} -> {:.2} %, delay {:.1} -> {:.1} ms",
                deadline.as_secs_f64() * 1e3,
                self.from.in_time * 100.0,
                self.to.in_time * 100.0,
                self.from.delay.as_secs_f64() * 1e3,
                self.to.delay.as_secs_f64() * 1e3,
            ),
        }
    }
}

/// A rate in Mbit/s as text.
pub(crate) fn mbit(rate: Rate) -> String {
    format!("{:.1}", rate.bits_per_sec() as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_passes_through_its_two_points() {
        let facts = PathFacts::default();
        let p = Prediction { delay_s: 0.010, delay_p99_s: 0.050, ..Prediction::of_path(&facts) };
        assert!((on_time(&p, 0.010) - 0.5).abs() < 1e-9);
        assert!((on_time(&p, 0.050) - 0.99).abs() < 1e-9);
        assert!(on_time(&p, 0.2) > 0.9999);
        assert_eq!(on_time(&p, -0.001), 0.0);
        assert_eq!(on_time(&p, 0.0), 1.0 - (0.5 * libm::exp(libm::log(50.0) / 4.0)).min(1.0));
    }

    #[test]
    fn aims_follow_from_requirements() {
        assert_eq!(Aim::of(&Requirements::bulk()), Aim::Throughput);
        assert_eq!(Aim::of(&Requirements::interactive()), Aim::InTime(INTERACTIVE_DELAY));
        let media = Requirements::media(Duration::from_millis(200));
        assert_eq!(Aim::of(&media), Aim::InTime(Duration::from_millis(200)));
        let strict = Requirements { max_delay: Some(Duration::from_millis(80)), ..media };
        assert_eq!(Aim::of(&strict), Aim::InTime(Duration::from_millis(80)));
    }

    /// A window that random losses hold down is at times below what is sent in time, though its
    /// mean is not, and no queue of its own speaks against it: where that is a good part of the
    /// path, it is not worth more than what keeps its rate.
    #[test]
    fn a_rate_that_swings_about_what_is_sent_is_worth_less_than_one_that_keeps_it() {
        let r = Requirements::media(Duration::from_millis(200));
        let mut told = Vec::new();
        for (mbit, offered_mbit) in [(20, 4.0), (10, 4.0), (6, 4.0), (50, 20.0)] {
            for rtt_ms in [20, 80, 150] {
                for (loss, burst) in [(0.002, 1.0), (0.01, 1.0), (0.03, 1.0), (0.05, 4.0)] {
                    let facts = crate::appraisal::testing::path(mbit, rtt_ms, loss, burst, 0.0);
                    let offered = Some(Rate::from_bits_per_sec((offered_mbit * 1e6) as u64));
                    let judge = Judge { requirements: &r, aim: Aim::of(&r), facts: &facts, offered };
                    let profile = Profile::bare();
                    let worth = |name| {
                        let profile = profile.with_named(Function::Congestion, name).expect("it exists");
                        judge.score(&profile).worth
                    };
                    if worth("cubic") > worth("bbr") + 0.003 {
                        told.push(format!("{offered_mbit} of {mbit} Mbit/s, {rtt_ms} ms, {loss}"));
                    }
                }
            }
        }
        assert!(told.is_empty(), "{told:#?}");
    }

    #[test]
    fn what_is_given_up_first_weighs_least() {
        let facts = PathFacts::default();
        let r = Requirements {
            degradation: vec![Quality::Reliability, Quality::Delay],
            ..Requirements::interactive()
        };
        let judge = Judge { requirements: &r, aim: Aim::of(&r), facts: &facts, offered: None };
        assert!(judge.weight(Quality::Reliability) < judge.weight(Quality::Delay));
        assert!(judge.weight(Quality::Delay) < judge.weight(Quality::Rate));
    }
}
