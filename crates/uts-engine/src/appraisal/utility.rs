//! Worth of a profile to the application: a figure from 0 to 1, made from its prediction by the
//! requirements.

use super::forecast::forecast_on;
use super::path::INITIAL_PACKETS;
use crate::host::HostFacts;
use crate::requirements::{CapacityProfile, Quality, Requirements};
use core::fmt;
use core::time::Duration;
use uts_functions::mechanism::Later;
use uts_functions::{PathFacts, Prediction, Profile, Rate};

/// One way, what a person in a conversation does not notice (ITU-T G.114).
const INTERACTIVE_DELAY: Duration = Duration::from_millis(150);
/// One way, what ITU-T G.114 calls the upper limit for planning.
const OTHER_DELAY: Duration = Duration::from_millis(400);
/// Cost of doubling the packets where arrival in time is what counts: as much as this share of the
/// data lost.
const OVERHEAD_WEIGHT: f64 = 0.02;
/// Part of [`OVERHEAD_WEIGHT`] that doubling the packets costs a sender that is no load for the
/// path: in a round trip it sends no more packets, redundancy included, than anybody may send at
/// once on a path of which nothing is known ([`INITIAL_PACKETS`]).
const LIGHT_PART: f64 = 0.02;
/// Below this share of what a profile could carry, the application's own rate is what flows, and
/// the queue is not ours.
const LIGHT_LOAD: f64 = 0.7;

/// The slowest percent comes so many mean deviations after the mean.
const DEVIATIONS_OF_P99: f64 = 3.0;

/// Nobody notices that an answer comes so much later, and no redundancy is sent for less.
const PROMPT_MIN: Duration = Duration::from_millis(10);

/// Room that data sent in time needs for its bursts, as a multiple of its mean rate.
const BURSTS: f64 = 1.25;

/// Aim of the application: throughput, or arrival in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// As much as possible.
    Throughput,
    /// As much as possible of what is sent, within this time from `send` to `receive`.
    InTime(Duration),
}

impl Aim {
    /// Aim that follows from the requirements.
    pub fn of(requirements: &Requirements) -> Aim {
        if let Some(deadline) = requirements.deadline() {
            return Aim::InTime(deadline);
        }
        if let Some(delay) = requirements.playout_delay {
            return Aim::InTime(delay);
        }
        match requirements.conn_capacity_profile {
            CapacityProfile::LowLatencyInteractive => Aim::InTime(INTERACTIVE_DELAY),
            CapacityProfile::LowLatencyNonInteractive | CapacityProfile::ConstantRate => {
                Aim::InTime(OTHER_DELAY)
            }
            _ => Aim::Throughput,
        }
    }

    /// Aim on a path. What is handed over in its pace is in time if it has arrived by then. Each
    /// answer of a dialogue is waited for, so that it goes on late by as much as any packet is: it
    /// is to arrive before a repeat could.
    pub fn on(self, requirements: &Requirements, facts: &PathFacts) -> Aim {
        let one_way = facts.rtt_min / 2;
        match self {
            Aim::InTime(most) if requirements.is_dialogue() => {
                Aim::InTime(one_way + one_way.clamp(PROMPT_MIN, most))
            }
            Aim::InTime(most) => Aim::InTime(requirements.deadline_on(one_way).unwrap_or(most)),
            Aim::Throughput => Aim::Throughput,
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
    /// So little is sent that it is no load for the path.
    pub is_light: bool,
    /// Mean time one way until it has arrived.
    pub delay: Duration,
    /// The prediction.
    pub prediction: Prediction,
}

/// Judgement of profiles: everything that is the same for all that are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge<'a> {
    pub requirements: &'a Requirements,
    pub aim: Aim,
    pub facts: &'a PathFacts,
    /// Rate at which the application sends, where it sends less than the path carries.
    pub offered: Option<Rate>,
    /// Facts of the host.
    pub host: HostFacts,
}

impl<'a> Judge<'a> {
    /// A judge of profiles on this path and host.
    pub fn new(
        requirements: &'a Requirements,
        aim: Aim,
        (facts, host): (&'a PathFacts, &HostFacts),
        offered: Option<Rate>,
    ) -> Self {
        Judge { requirements, aim, facts, offered, host: *host }
    }

    pub fn score(&self, profile: &Profile) -> Score {
        let mut prediction = forecast_on(profile, (self.facts, &self.host));
        let possible = prediction.goodput(self.facts);
        let offered = self.offered.map(|r| r.bytes_per_sec() as f64);
        let bound = self.requirements.max_send_rate.map(|r| r.bytes_per_sec() as f64);
        let wanted = match (offered, bound) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let is_light = self.is_light(&prediction);
        if is_light || wanted.is_some_and(|w| w < LIGHT_LOAD * possible) {
            self.queue_of_others(&mut prediction);
        }
        let goodput = wanted.map_or(possible, |w| w.min(possible));
        let propagation_s = self.facts.rtt_min.as_secs_f64() / 2.0;
        let in_time = match self.aim_here() {
            Aim::Throughput => 1.0 - prediction.loss,
            Aim::InTime(deadline) => share_in_time(&prediction, self.facts, deadline),
        };
        let (worth, slow) = match self.aim {
            Aim::Throughput => {
                let capacity = self.facts.capacity.bytes_per_sec() as f64;
                let used =
                    if capacity > 0.0 { (possible / capacity).min(1.0) } else { prediction.utilisation };
                (used * (1.0 - self.host.price(&prediction)), 0.0)
            }
            Aim::InTime(_) => {
                // A dialogue has no rate of its own, unless it is one that fills the path.
                let has_rate = !(is_light && self.requirements.is_dialogue());
                let slow = if has_rate { self.slow(&prediction, wanted) } else { 0.0 };
                (self.worth_in_time(&prediction, in_time, slow), slow)
            }
        };
        Score {
            worth,
            goodput: Rate::from_bytes_per_sec(goodput as u64),
            in_time,
            slow,
            is_light,
            delay: Duration::try_from_secs_f64(propagation_s + prediction.delay_s).unwrap_or(Duration::MAX),
            prediction,
        }
    }

    /// Score of a profile that would take the place of one in use. More work needs room on the
    /// processor, so that a share at the limit brings no exchange to and fro.
    pub fn score_beside(&self, profile: &Profile, in_use: &Score) -> Score {
        let score = self.score(profile);
        if self.host.work_ns(&score.prediction) <= self.host.work_ns(&in_use.prediction) {
            return score;
        }
        Judge { host: self.host.with_room(), ..*self }.score(profile)
    }

    /// The aim on this path.
    pub fn aim_here(&self) -> Aim {
        self.aim.on(self.requirements, self.facts)
    }

    /// True if so little is sent that it is no load for the path.
    fn is_light(&self, p: &Prediction) -> bool {
        self.facts.packets_per_round() * p.expansion <= INITIAL_PACKETS
    }

    /// Congestion control does not fill a queue with data that the application does not send: what
    /// is in the queue was there before. Only what leaves together waits for itself.
    fn queue_of_others(&self, prediction: &mut Prediction) {
        let queue_s = self.facts.queueing().as_secs_f64();
        let jitter_s = DEVIATIONS_OF_P99 * self.facts.rtt_deviation.as_secs_f64();
        let behind = (self.facts.packets_at_once - 1.0).max(0.0);
        let burst_s = behind * self.facts.packet_time().as_secs_f64();
        let (mean_s, p99_s) = prediction.delays_at_once();
        let own = (queue_s + burst_s / 2.0, queue_s + burst_s + jitter_s);
        prediction.set_delays_at_once((mean_s.min(own.0), p99_s.min(own.1)));
    }

    /// Shortfall of the rate, as a share of what is needed (0..=1). The rate at its low counts,
    /// whatever its mean: data waits for it.
    fn slow(&self, p: &Prediction, wanted: Option<f64>) -> f64 {
        let needed =
            self.requirements.min_send_rate.map(|r| r.bytes_per_sec() as f64).or(wanted.map(|w| w * BURSTS));
        needed.filter(|n| *n > 0.0).map_or(0.0, |n| (1.0 - p.goodput_low(self.facts) / n).max(0.0))
    }

    /// One, less what falls short, each quality by its weight.
    fn worth_in_time(&self, p: &Prediction, in_time: f64, slow: f64) -> f64 {
        let arrives = 1.0 - p.loss;
        let mut late = if arrives > 0.0 { 1.0 - in_time / arrives } else { 1.0 };
        if self.requirements.is_dialogue() {
            // A request or an answer is as late as the last of its packets.
            late = 1.0 - libm::pow(1.0 - late, self.facts.packets_at_once.clamp(1.0, INITIAL_PACKETS));
        }
        let overhead = if self.is_light(p) { LIGHT_PART * OVERHEAD_WEIGHT } else { OVERHEAD_WEIGHT };
        let jitter = self.requirements.max_jitter.map_or(0.0, |max| {
            let max_s = max.as_secs_f64().max(1e-6);
            let (mean_s, p99_s) = p.handed_over_s();
            (((p99_s - mean_s) - max_s) / max_s).clamp(0.0, 1.0)
        });
        let short = self.weight(Quality::Reliability) * p.loss
            + self.weight(Quality::Delay) * late
            + self.weight(Quality::Rate) * slow
            + self.weight(Quality::Jitter) * 0.1 * jitter
            + overhead * (p.expansion - 1.0)
            + self.host.price(p);
        (1.0 - short).clamp(0.0, 1.0)
    }

    /// Weight of a quality (0..=1): the first to be given up counts least, and a quality that may
    /// not be given up counts whole.
    fn weight(&self, quality: Quality) -> f64 {
        let list = &self.requirements.degradation;
        match list.iter().position(|q| *q == quality) {
            Some(place) => (place + 1) as f64 / (list.len() + 1) as f64,
            None => 1.0,
        }
    }
}

/// Share of the data (0 to 1) that arrives within a deadline from `send` to `receive`, and before
/// its receiver has no more use for it.
pub(crate) fn share_in_time(p: &Prediction, facts: &PathFacts, deadline: Duration) -> f64 {
    let left_s = deadline.as_secs_f64() - facts.rtt_min.as_secs_f64() / 2.0;
    let late_s = p.held.and_then(|held| held.late_s).unwrap_or(f64::INFINITY);
    (1.0 - p.loss) * on_time(p, left_s.min(late_s))
}

/// Share of what arrives that takes no longer than `left_s` beyond propagation: of what comes at
/// once, and of what redundancy or a repeat brings.
fn on_time(p: &Prediction, left_s: f64) -> f64 {
    let delays_s = p.delays_at_once();
    let share = |later: Later| later.share * within(delays_s, left_s - later.by_s);
    let at_once = (1.0 - p.repaired.share - p.repeated.share).max(0.0);
    at_once * within(delays_s, left_s) + share(p.repaired) + share(p.repeated)
}

/// Share of what takes no longer than `left_s`. Delays are taken to have an exponential tail
/// through two points: half is beyond the mean, a hundredth beyond the slowest percent.
fn within((mean_s, p99_s): (f64, f64), left_s: f64) -> f64 {
    if left_s < 0.0 {
        return 0.0;
    }
    let spread = p99_s - mean_s;
    if spread <= 0.0 {
        return if mean_s <= left_s { 1.0 } else { 0.0 };
    }
    let late = 0.5 * libm::exp(-libm::log(50.0) * (left_s - mean_s) / spread);
    1.0 - late.clamp(0.0, 1.0)
}

/// Expected effect of a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// Aim of the application, by which the change is judged.
    pub aim: Aim,
    /// Score without the change: measured where it was measured, else predicted.
    pub from: Score,
    /// Score with the change.
    pub to: Score,
}

/// In the terms of the aim; empty where nothing would be seen of the gain.
impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.aim {
            Aim::Throughput => {
                let ([from, to], unit) = rates([self.from.goodput, self.to.goodput]);
                let used = [&self.from, &self.to].map(|s| format!("{:.0}", s.prediction.utilisation * 100.0));
                match used {
                    _ if from != to => write!(f, "goodput {from} -> {to} {unit}"),
                    // The application sends less than the path carries: as much of it as before.
                    [from, to] if from != to => write!(f, "up to {from} -> {to} % of the path used"),
                    _ => Ok(()),
                }
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

/// Rates as text in the unit that suits the largest of them, and that unit.
pub(crate) fn rates<const N: usize>(rates: [Rate; N]) -> ([String; N], &'static str) {
    let most = rates.iter().map(|rate| rate.bits_per_sec()).max().unwrap_or(0);
    let (unit, bits) = match most {
        100_000.. => ("Mbit/s", 1e6),
        100.. => ("kbit/s", 1e3),
        _ => ("bit/s", 1.0),
    };
    (rates.map(|rate| format!("{:.1}", rate.bits_per_sec() as f64 / bits)), unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_functions::Function;

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
    fn what_is_expected_is_said_in_the_terms_of_the_aim_or_not_at_all() {
        let score = |bps: u64, utilisation: f64| {
            let prediction = Prediction { utilisation, ..Prediction::of_path(&PathFacts::default()) };
            Score {
                worth: utilisation,
                goodput: Rate::from_bits_per_sec(bps),
                in_time: 1.0,
                slow: 0.0,
                is_light: false,
                delay: Duration::ZERO,
                prediction,
            }
        };
        let said = |from: Score, to: Score| Expectation { aim: Aim::Throughput, from, to }.to_string();
        for (from, to, words) in [
            (score(5_300_000, 0.1), score(45_600_000, 0.9), "goodput 5.3 -> 45.6 Mbit/s"),
            (score(9_600, 0.1), score(19_200, 0.9), "goodput 9.6 -> 19.2 kbit/s"),
            (score(0, 0.1), score(19_200, 0.9), "goodput 0.0 -> 19.2 kbit/s"),
            (score(16, 0.1), score(96, 0.9), "goodput 16.0 -> 96.0 bit/s"),
            (score(0, 0.12), score(0, 0.9), "up to 12 -> 90 % of the path used"),
            (score(8_000, 0.9), score(8_000, 0.9), ""),
        ] {
            assert_eq!(said(from, to), words);
        }
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

    /// A message that a receiver holds on purpose is not delayed by the path. It is in time if it
    /// is there when it is due.
    #[test]
    fn what_is_held_for_its_pace_is_judged_by_when_it_arrives() {
        let ms = Duration::from_millis;
        let r = Requirements { playout_delay: Some(ms(120)), ..Requirements::media(ms(200)) };
        let offered = Some(Rate::from_bits_per_sec(4_000_000));
        let score = |rtt_ms, delay: Option<u64>, late| {
            let facts = crate::appraisal::testing::path(20, rtt_ms, 0.01, 1.0, 0.0);
            let judge = Judge::new(&r, Aim::of(&r), (&facts, &HostFacts::default()), offered);
            let profile = Profile::bare().with_named(Function::Congestion, "bbr").expect("it exists");
            let fixed = uts_functions::library::by_name(Function::Playout, "fixed").expect("it exists");
            let held = |delay| fixed.choice_with(&[("delay", delay), ("late", late)]).expect("in range");
            let profile = delay.map_or(profile, |delay| profile.with(Function::Playout, held(delay)));
            (judge.aim_here(), judge.score(&profile))
        };
        let ((aim, held), (_, plain)) = (score(40, Some(120), 0), score(40, None, 0));
        assert_eq!(aim, Aim::InTime(ms(140)), "propagation, and the delay");
        assert_eq!((held.in_time, held.delay), (plain.in_time, plain.delay));
        assert!(held.in_time > 0.98 && held.prediction.handed_over_s().0 >= 0.12, "{held:?}");
        assert_eq!(score(200, Some(120), 0).0, Aim::InTime(ms(200)), "the deadline comes first");
        // What comes after a short delay is dropped, or handed over all the same.
        let (dropped, kept) = (score(40, Some(1), 0).1, score(40, Some(1), 1).1);
        assert!(dropped.in_time < kept.in_time && kept.in_time > 0.98, "{dropped:?}, {kept:?}");
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
                    let judge = Judge::new(&r, Aim::of(&r), (&facts, &HostFacts::default()), offered);
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

    fn worth_of(r: &Requirements, facts: &PathFacts, offered_bps: u64, fec: (&str, &[(&str, u64)])) -> Score {
        let offered = Some(Rate::from_bits_per_sec(offered_bps));
        let judge = Judge::new(r, Aim::of(r), (facts, &HostFacts::default()), offered);
        let named = [(Function::Retransmission, "selective"), (Function::Congestion, "bbr")];
        let profile = named.iter().try_fold(Profile::bare(), |p, (f, name)| p.with_named(*f, name));
        let mechanism = uts_functions::library::by_name(Function::Fec, fec.0).expect("it exists");
        let fec = mechanism.choice_with(fec.1).expect("in range");
        judge.score(&profile.expect("they exist").with(Function::Fec, fec))
    }

    /// An answer that comes by a repeat is late, be losses ever so rare; redundancy in time costs a
    /// dialogue next to nothing.
    #[test]
    fn a_dialogue_is_worth_more_where_it_waits_for_no_repeats() {
        let r = Requirements::interactive();
        for (rtt_ms, loss) in [(40, 0.02), (40, 0.005), (300, 0.02), (100, 0.01)] {
            let mut facts = crate::appraisal::testing::path(20, rtt_ms, loss, 1.0, 0.0);
            (facts.packets_per_s, facts.packets_at_once) = (20.0, 2.0);
            let worth = |fec| worth_of(&r, &facts, 200_000, fec).worth;
            let doubled =
                ("reed-solomon", &[("data", 2), ("parity", 2), ("flush", 5), ("interleave", 1)][..]);
            let gain = worth(doubled) - worth(("none", &[]));
            assert!(gain > 0.9 * loss, "{rtt_ms} ms, {loss}: {gain}");
        }
        // Repeats come soon enough here, and a code of 10 ms does not.
        let mut near = crate::appraisal::testing::path(1000, 1, 0.02, 1.0, 0.0);
        near.packets_per_s = 20.0;
        let worth = |fec| worth_of(&r, &near, 200_000, fec).worth;
        assert!(worth(("reed-solomon", &[])) <= worth(("none", &[])));
    }

    /// Messages of 160 bytes every 20 ms are 90 kbit/s with their headers: a line of 174 kbit/s
    /// does not carry them twice.
    #[test]
    fn redundancy_for_small_messages_is_measured_by_what_it_weighs() {
        let media = Requirements::media(Duration::from_millis(250));
        let r = Requirements { reliability: crate::requirements::Preference::NoPreference, ..media };
        let mut facts = crate::appraisal::testing::path(1, 200, 0.02, 1.0, 0.0);
        facts.capacity = Rate::from_bits_per_sec(174_000);
        (facts.packets_per_s, facts.packets_at_once, facts.payload_bytes) = (50.0, 1.0, 160.0);
        let worth = |fec| worth_of(&r, &facts, 64_000, fec);
        let (with, without) = (worth(("reed-solomon", &[])), worth(("none", &[])));
        assert!(with.prediction.expansion > 1.9 && with.slow > 0.0, "{with:?}");
        assert!(with.worth < without.worth, "{with:?}, {without:?}");
    }

    #[test]
    fn what_is_given_up_first_weighs_least() {
        let facts = PathFacts::default();
        let r = Requirements {
            degradation: vec![Quality::Reliability, Quality::Delay],
            ..Requirements::interactive()
        };
        let judge = Judge::new(&r, Aim::of(&r), (&facts, &HostFacts::default()), None);
        assert!(judge.weight(Quality::Reliability) < judge.weight(Quality::Delay));
        assert!(judge.weight(Quality::Delay) < judge.weight(Quality::Rate));
    }
}
