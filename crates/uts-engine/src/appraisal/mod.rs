//! Appraisal: what a profile would bring on a path, and which profiles there are to choose from.
//! The selector and the policy stand on it, and not on each other.
//!
//! * [`Library`]: the mechanisms that both ends have.
//! * [`rules`]: what the requirements and the path rule out.
//! * [`forecast()`]: what a profile's mechanisms predict, one after another.
//! * [`path`]: what is believed of a path, from what was measured.
//! * [`utility`]: what a prediction is worth to the application.
//! * [`candidates`](mod@candidates): the profiles that are worth comparing with one.

pub(crate) mod candidates;
mod forecast;
mod libraries;
pub(crate) mod path;
pub(crate) mod rules;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod utility;

use crate::host::HostFacts;
use crate::requirements::Requirements;
use candidates::candidates;
use path::Path;
use utility::{Aim, Judge, Score};
use uts_functions::{PathFacts, Profile, Rate, Time};

pub(crate) use forecast::forecast_on;
pub use forecast::{forecast, steps};
pub use libraries::Library;
pub use rules::Contradiction;

/// Profile around `home` that does best on a known path; `home` where the path is not known well
/// enough.
pub(crate) fn fit(
    requirements: &Requirements,
    (facts, host): (&PathFacts, &HostFacts),
    usable: &Library,
    home: &Profile,
) -> Profile {
    let aim = Aim::of(requirements);
    if !is_evident(aim, facts) {
        return *home;
    }
    let facts = Path::default().observe(Time::ZERO, facts, true, (None, false));
    let judge = Judge::new(requirements, aim, (&facts, host), presumed(aim, &facts));
    let scores: Vec<(Profile, Score)> = candidates(requirements, &facts, usable, home, home)
        .into_iter()
        .map(|p| (p, judge.score(&p)))
        .collect();
    let Some((target, score)) = best(aim, &scores, home) else { return *home };
    if is_gain(aim, &judge.score(home), &score) { target } else { *home }
}

/// Home, if it is about as good as any; else the first of those about as good as the best.
pub(crate) fn best(aim: Aim, scores: &[(Profile, Score)], home: &Profile) -> Option<(Profile, Score)> {
    let top = scores.iter().map(|(_, s)| s.worth).fold(f64::NEG_INFINITY, f64::max);
    let about = |worth: f64, share: f64, absolute: f64| match aim {
        Aim::Throughput => worth >= top * (1.0 - share),
        Aim::InTime(_) => worth >= top - absolute,
    };
    scores
        .iter()
        .find(|(p, s)| p == home && about(s.worth, HOME_SHARE, GAIN_IN_TIME))
        .or_else(|| scores.iter().find(|(_, s)| about(s.worth, TIE_SHARE, TIE_IN_TIME)))
        .copied()
}

/// True if the facts rest on enough evidence to act on.
pub(crate) fn is_evident(aim: Aim, facts: &PathFacts) -> bool {
    let samples_min = if aim == Aim::Throughput { SAMPLES_MIN } else { SAMPLES_MIN / 2 };
    facts.samples >= samples_min && !facts.rtt_min.is_zero() && facts.capacity > Rate::default()
}

/// Rate at which an application is taken to send before it has sent anything: half of what the path
/// carries if its data is to be in time, else as much as the path carries (`None`). An application
/// that wants to be in time does not fill the path.
pub(crate) fn presumed(aim: Aim, facts: &PathFacts) -> Option<Rate> {
    (aim != Aim::Throughput).then(|| facts.capacity.mul_f64(0.5))
}

/// True if the gain exceeds the hysteresis.
pub(crate) fn is_gain(aim: Aim, from: &Score, to: &Score) -> bool {
    match aim {
        Aim::Throughput => to.worth > from.worth * (1.0 + GAIN_THROUGHPUT),
        Aim::InTime(_) => {
            let gain = to.worth - from.worth;
            let error = if from.slow > 0.0 { RATE_ERROR } else { 0.0 };
            gain > GAIN_IN_TIME + error && gain > GAIN_IN_TIME_SHARE * (1.0 - from.worth).max(0.0)
        }
    }
}

/// Packets that facts must rest on; half as many where packets are few because they are timely.
const SAMPLES_MIN: u64 = 60;
/// A gain in throughput must be larger than this.
const GAIN_THROUGHPUT: f64 = 0.10;
/// A gain in worth where arrival in time counts must be larger than this, and than this share of
/// what falls short.
const GAIN_IN_TIME: f64 = 0.003;
const GAIN_IN_TIME_SHARE: f64 = 0.25;
/// … and, where the rate falls short, than what predictions of a rate are off by.
const RATE_ERROR: f64 = 0.05;
/// Home is as good as the best if it falls short by no more than this.
const HOME_SHARE: f64 = 0.05;
/// Profiles that differ by less are taken for equal, and the first, simplest one is taken.
const TIE_SHARE: f64 = 0.01;
const TIE_IN_TIME: f64 = 0.0005;
