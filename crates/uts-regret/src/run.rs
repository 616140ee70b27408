//! Carrying scenarios: every contender, every seed, on so many threads.

use crate::contender::Contender;
use crate::scenario::Scenario;
use crate::utility;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use uts_end::Role;
use uts_sim_world::{self as sim, Recorder, SimCase, SimFlow, SimLink, SimRecord};
use uts_traffic::measure::Sample;

/// Time that a flow may take to connect, and as long again for its workload.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Outcome of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub name: String,
    /// The service's.
    pub service: &'static str,
    /// Way there, way back, changes.
    pub path: [String; 3],
    /// It was drawn.
    pub is_drawn: bool,
    /// The mean utility of each contender that takes part, by its name.
    pub utilities: Vec<(&'static str, f64)>,
    /// Exchanges of the adaptive connection in a minute of its way there.
    pub exchanges_per_minute: f64,
}

impl Outcome {
    fn of(&self, contender: Contender) -> f64 {
        let name = contender.name();
        self.utilities.iter().find(|(of, _)| *of == name).map_or(0.0, |(_, utility)| *utility)
    }

    /// The utility of what adapts.
    pub fn adaptive(&self) -> f64 {
        self.of(Contender::Adaptive)
    }

    /// Utility of the profile that it begins with.
    pub fn first(&self) -> f64 {
        self.of(Contender::First)
    }

    /// The best of the fixed profiles, its own first one among them, and its name.
    pub fn best(&self) -> (&'static str, f64) {
        let fixed = self.utilities.iter().filter(|(name, _)| *name != Contender::Adaptive.name());
        fixed.copied().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap_or(("none", 0.0))
    }

    /// Utility of the adaptive profile, as a multiple of the best fixed profile's. Where that is
    /// worth nothing there is nothing to lose.
    pub fn score(&self) -> f64 {
        ratio(self.adaptive(), self.best().1)
    }

    /// Of what the best fixed profile brings more than the first one, the share that what adapts
    /// brings: 1 is all, below 0 is harm. `None` where there is next to nothing to gain.
    pub fn gained(&self) -> Option<f64> {
        let (first, best) = (self.first(), self.best().1);
        let is_much = best > first * (1.0 + WORTH_GAINING);
        is_much.then(|| ((self.adaptive() - first) / (best - first)).clamp(-1.0, 1.0))
    }

    /// Utility of the adaptive profile, as a multiple of the first profile's.
    pub fn against_first(&self) -> f64 {
        ratio(self.adaptive(), self.first())
    }
}

fn ratio(ours: f64, theirs: f64) -> f64 {
    if theirs <= 0.0 { 1.0 } else { ours / theirs }
}

/// Counts what the client's end says of exchanges.
#[derive(Default)]
struct Exchanges(u32);

impl Recorder for Exchanges {
    fn sample(&mut self, _: usize, role: Role, sample: &Sample) {
        if let (Role::Client, Sample::Exchange { line, .. }) = (role, sample) {
            self.0 += u32::from(line.contains(" in force after "));
        }
    }
}

/// Carries a scenario once; utility, and exchanges in a minute. `None` if the contender does not
/// take part.
fn carry(scenario: &Scenario, contender: Contender, seed: u64) -> Result<Option<(f64, f64)>, String> {
    let transport = contender.transport();
    let refused = sim::refuses(&transport, &scenario.workload);
    if let (Some(_), Contender::Fixed(_)) = (&refused, contender) {
        return Ok(None);
    }
    let [from, to] = ["client", "server"].map(String::from);
    let flow = SimFlow {
        name: "flow".into(),
        transport,
        workload: scenario.workload.clone(),
        from,
        to,
        start: Duration::ZERO,
    };
    let case = SimCase {
        sources: Vec::new(),
        costs: BTreeMap::new(),
        links: SimLink::point_to_point("path", scenario.path.clone()),
        flows: vec![flow],
        timeout: TIMEOUT,
        sample_every: Duration::from_secs(1),
        seed,
        record: SimRecord::default(),
    };
    let mut exchanges = Exchanges::default();
    let result = sim::run(&case, &mut exchanges)
        .map_err(|error| format!("{}, {}, seed {seed}: {error}", scenario.name, contender.name()))?;
    let measures =
        result.flows.iter().flat_map(|flow| flow.client.measures.iter().chain(&flow.server.measures));
    let measures: Vec<_> = measures.cloned().collect();
    let minutes = result.elapsed.as_secs_f64() / 60.0;
    Ok(Some((utility::of(scenario.service, &measures), f64::from(exchanges.0) / minutes.max(1e-3))))
}

/// Carries scenarios by these contenders, each with these seeds, on so many threads; `tell` hears
/// of each that is done, with how many are. They come back in their order.
///
/// # Errors
/// A case that cannot be run, which is a fault of the scenario.
pub fn all(
    scenarios: &[Scenario],
    contenders: &[Contender],
    seeds: &[u64],
    threads: usize,
    tell: &(dyn Fn(&Outcome, usize) + Sync),
) -> Result<Vec<Outcome>, String> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes = Mutex::new(Vec::new());
    let work = || -> Result<(), String> {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(scenario) = scenarios.get(place) else { return Ok(()) };
            let outcome = one(scenario, contenders, seeds).inspect_err(|_| {
                // Nobody begins another.
                next.store(scenarios.len(), Ordering::Relaxed);
            })?;
            tell(&outcome, done.fetch_add(1, Ordering::Relaxed) + 1);
            outcomes.lock().map_err(|_| "a thread has failed")?.push((place, outcome));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread has failed")?)
    })?;
    let mut outcomes = outcomes.into_inner().map_err(|_| "a thread has failed")?;
    outcomes.sort_by_key(|(place, _)| *place);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

fn one(scenario: &Scenario, contenders: &[Contender], seeds: &[u64]) -> Result<Outcome, String> {
    let (mut utilities, mut exchanges_per_minute) = (Vec::new(), 0.0);
    for &contender in contenders {
        let runs: Result<Vec<_>, String> =
            seeds.iter().map(|seed| carry(scenario, contender, *seed)).collect();
        let runs: Vec<(f64, f64)> = runs?.into_iter().flatten().collect();
        if runs.is_empty() {
            continue;
        }
        let mean = |of: fn(&(f64, f64)) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        utilities.push((contender.name(), mean(|run| run.0)));
        if contender == Contender::Adaptive {
            exchanges_per_minute = mean(|run| run.1);
        }
    }
    Ok(Outcome {
        name: scenario.name.clone(),
        service: scenario.service.name(),
        path: scenario.path_text.clone(),
        is_drawn: scenario.is_drawn,
        utilities,
        exchanges_per_minute,
    })
}

/// Summary of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of scenarios.
    pub scenarios: usize,
    /// Number of outcomes that are at least 5 % worse than the first profile's.
    pub harmed: usize,
    /// The worst of them all against what it began with.
    pub worst_against_first: f64,
    /// In how many there was something to gain.
    pub to_gain: usize,
    /// The mean share of it that was gained; 1 where there was nothing.
    pub gained: f64,
    /// Number of outcomes that score 0.95 or more.
    pub good: usize,
    /// The worst score.
    pub worst: f64,
    /// The score that half of them reach.
    pub median: f64,
    /// The mean of exchanges in a minute.
    pub exchanges_per_minute: f64,
}

/// From this score on an outcome counts as good, and below it as harm against the first profile.
pub const GOOD: f64 = 0.95;

/// Less than this more than what the first profile brings is not worth gaining.
const WORTH_GAINING: f64 = 0.05;

/// Sums outcomes up; `None` if there are none.
pub fn summary(outcomes: &[&Outcome]) -> Option<Summary> {
    let mut scores: Vec<f64> = outcomes.iter().map(|outcome| outcome.score()).collect();
    scores.sort_by(f64::total_cmp);
    let count = scores.len();
    let gained: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.gained()).collect();
    let share = gained.iter().sum::<f64>() / gained.len().max(1) as f64;
    Some(Summary {
        scenarios: count,
        harmed: outcomes.iter().filter(|outcome| outcome.against_first() < GOOD).count(),
        worst_against_first: outcomes.iter().map(|o| o.against_first()).fold(f64::INFINITY, f64::min),
        to_gain: gained.len(),
        gained: if gained.is_empty() { 1.0 } else { share },
        good: scores.iter().filter(|score| **score >= GOOD).count(),
        worst: *scores.first()?,
        median: scores[count / 2],
        exchanges_per_minute: outcomes.iter().map(|o| o.exchanges_per_minute).sum::<f64>() / count as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(adaptive: f64, first: f64, fixed: f64) -> Outcome {
        Outcome {
            name: "a".into(),
            service: "file",
            path: Default::default(),
            is_drawn: false,
            utilities: vec![("adaptive", adaptive), ("first", first), ("bbr", fixed)],
            exchanges_per_minute: 2.0,
        }
    }

    #[test]
    fn a_score_is_against_the_best_that_is_fixed_and_harm_against_the_first() {
        let worse = outcome(8.0, 10.0, 16.0);
        assert_eq!((worse.score(), worse.against_first(), worse.best()), (0.5, 0.8, ("bbr", 16.0)));
        let better = outcome(20.0, 10.0, 16.0);
        assert!(better.score() > 1.0);
        assert_eq!(outcome(0.0, 0.0, 0.0).score(), 1.0, "nobody can do anything");
        let summary = summary(&[&worse, &better]).expect("two");
        assert_eq!((summary.good, summary.harmed, summary.worst), (1, 1, 0.5));
        assert_eq!(summary.worst_against_first, 0.8);
        // A third of the six was lost, and all gained.
        assert_eq!(summary.to_gain, 2);
        assert!((summary.gained - (1.0 - 1.0 / 3.0) / 2.0).abs() < 1e-9, "{}", summary.gained);
        assert_eq!(outcome(10.0, 10.0, 10.4).gained(), None, "there is next to nothing to gain");
        assert_eq!(super::summary(&[]), None);
    }
}
