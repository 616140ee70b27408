//! The policy in a closed loop with a model of a path: what it sees depends on what it chose.

mod undone;
mod walk;

use super::*;
use crate::appraisal::forecast;
use crate::requirements::CapacityProfile;
use crate::selector::{Source, select};

const STEP_MS: u64 = 10;
/// Over how much the modelled facts look back.
const LOSS_MEMORY_MS: f64 = 400.0;
const CAPACITY_MEMORY_MS: u64 = 1_500;

/// The path as it truly is.
#[derive(Clone, Copy, Debug)]
struct Weather {
    mbit: f64,
    rtt_ms: u64,
    loss: f64,
    burst: f64,
}

const CLEAN: Weather = Weather { mbit: 50.0, rtt_ms: 40, loss: 0.0, burst: 1.0 };
const BURSTY: Weather = Weather { loss: 0.05, burst: 4.0, ..CLEAN };

/// A connection on a modelled path.
struct World {
    policy: Policy,
    profile: Profile,
    now_ms: u64,
    facts: PathFacts,
    congested: f64,
    delivered: f64,
    peaks: std::collections::VecDeque<(u64, f64)>,
    offered: Option<Rate>,
    is_late: bool,
    /// No other profile does more than home does.
    is_useless: bool,
    /// Another profile does at most so many times what home does.
    away_most: f64,
    /// Home does less than it says, for whatever reason.
    home_fails: bool,
    exchange_at: Option<(u64, Profile)>,
    decisions: Vec<(u64, Decision)>,
    outcomes: Vec<Outcome>,
}

impl World {
    fn new(requirements: Requirements, usable: Library) -> Self {
        let home = select(&requirements, &PathFacts::default(), &usable, None)
            .unwrap_or_else(|e| panic!("{e}"))
            .profile;
        World {
            policy: Policy::new(requirements, usable, home),
            profile: home,
            now_ms: 0,
            facts: PathFacts { samples: 0, mtu_bytes: 1400, ..PathFacts::default() },
            congested: 0.0,
            delivered: 0.0,
            peaks: Default::default(),
            offered: None,
            is_late: false,
            is_useless: false,
            away_most: f64::INFINITY,
            home_fails: false,
            exchange_at: None,
            decisions: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    fn of(requirements: Requirements) -> Self {
        World::new(requirements, Library::local())
    }

    /// Performance of the mechanism in use in this weather: share of the capacity used, queue in
    /// seconds, congestive loss.
    fn sender(&self, w: &Weather) -> (f64, f64, f64) {
        let true_facts = PathFacts {
            rtt_min: Duration::from_millis(w.rtt_ms),
            rtt_smoothed: Duration::from_millis(w.rtt_ms),
            capacity: Rate::from_bits_per_sec((w.mbit * 1e6) as u64),
            loss: w.loss,
            loss_burst: w.burst,
            mtu_bytes: 1400,
            ..PathFacts::default()
        };
        let profile = if self.is_useless { self.policy.home() } else { &self.profile };
        let fails = self.home_fails && self.profile == *self.policy.home();
        let most = self.away_most * forecast(self.policy.home(), &true_facts).utilisation;
        let used = forecast(profile, &true_facts).utilisation.min(most) * if fails { 0.3 } else { 1.0 };
        let greedy = self.offered.is_none() && used > 0.9;
        match (greedy, self.profile.name(Function::Congestion)) {
            (true, "cubic" | "new-reno") => (used, 0.015, 0.001),
            (true, _) => (used, 0.004, 0.0),
            _ => (used, 0.0, 0.0),
        }
    }

    fn step(&mut self, w: &Weather) {
        self.now_ms += STEP_MS;
        let (used, queue_s, congestive) = self.sender(w);
        let mut rate = w.mbit * 1e6 / 8.0 * used;
        if let Some(offered) = self.offered {
            rate = rate.min(offered.bytes_per_sec() as f64);
        }
        self.delivered += rate * STEP_MS as f64 / 1e3 * (1.0 - w.loss);
        self.peaks.push_back((self.now_ms, rate));
        while self.peaks.front().is_some_and(|(at, _)| at + CAPACITY_MEMORY_MS < self.now_ms) {
            self.peaks.pop_front();
        }
        let share = STEP_MS as f64 / LOSS_MEMORY_MS;
        let random = self.facts.loss * (1.0 - self.congested) * (1.0 - share) + w.loss * share;
        let queue_loss = self.facts.loss * self.congested * (1.0 - share) + congestive * share;
        self.facts.loss = random + queue_loss;
        self.congested = if self.facts.loss > 0.0 { queue_loss / self.facts.loss } else { 0.0 };
        // Their cause is told but for some.
        self.facts.loss_congestive = (self.congested + 0.05).min(1.0);
        if self.facts.loss < 1e-5 {
            self.facts.loss = 0.0;
            self.facts.loss_congestive = 0.0;
        }
        self.facts.loss_burst += (w.burst - self.facts.loss_burst) * share;
        self.facts.rtt_min = Duration::from_millis(w.rtt_ms);
        self.facts.rtt_smoothed = self.facts.rtt_min + Duration::from_secs_f64(queue_s);
        let peak = self.peaks.iter().map(|(_, r)| *r).fold(0.0, f64::max);
        self.facts.capacity = if queue_s > 0.01 {
            Rate::from_bytes_per_sec(rate as u64)
        } else {
            Rate::from_bytes_per_sec(peak as u64)
        };
        self.facts.samples = (self.facts.samples + 40).min(4_000);
        self.drive();
    }

    fn drive(&mut self) {
        let now = Time::from_millis(self.now_ms);
        if let Some((_, profile)) = self.exchange_at.filter(|(at, _)| *at <= self.now_ms) {
            self.exchange_at = None;
            self.profile = profile;
            self.policy.on_exchanged(now, &profile);
        }
        self.policy.observe(
            now,
            &Observation {
                facts: &self.facts,
                profile: &self.profile,
                delivered_bytes: self.delivered as u64,
                offered: self.offered,
                is_late: self.is_late,
                is_searching: false,
            },
        );
        if let Some(decision) = self.policy.decide(now) {
            let rtt_ms = self.facts.rtt_smoothed.as_millis() as u64;
            self.exchange_at = Some((self.now_ms + rtt_ms, decision.to));
            self.decisions.push((self.now_ms, decision));
        }
        self.outcomes.extend(self.policy.outcome(now));
    }

    fn run(&mut self, w: &Weather, ms: u64) -> &mut Self {
        for _ in 0..ms / STEP_MS {
            self.step(w);
        }
        self
    }

    fn told(&self) -> Vec<String> {
        self.decisions.iter().map(|(at, d)| format!("{at} ms: {d}")).collect()
    }

    fn congestion(&self) -> String {
        self.profile.describe(Function::Congestion)
    }

    fn fec(&self) -> &'static str {
        self.profile.name(Function::Fec)
    }
}

#[test]
fn a_file_across_loss_and_a_slower_path() {
    let mut world = World::of(Requirements::bulk());
    world.run(&CLEAN, 3_600);
    assert!(world.decisions.is_empty(), "{:#?}", world.told());
    world.run(&BURSTY, 5_000);
    assert_eq!(world.decisions.len(), 1, "{:#?}", world.told());
    assert!(world.congestion().starts_with("bbr(loss-threshold="), "{:#?}", world.told());
    assert_eq!(world.fec(), "none", "repeats are cheaper than parity: {:#?}", world.told());
    let (at, first) = &world.decisions[0];
    assert!(*at < 5_600, "{at} ms");
    assert!(first.seen.starts_with("loss "), "{}", first.seen);
    assert!(first.changes.starts_with("congestion cubic -> bbr(loss-threshold="), "{}", first.changes);
    assert!(first.expects.to.goodput > first.expects.from.goodput);
    world.run(&Weather { mbit: 20.0, ..CLEAN }, 9_000);
    assert_eq!(world.decisions.len(), 2, "{:#?}", world.told());
    assert_eq!(world.congestion(), "cubic");
    assert_eq!(world.outcomes.len(), 2);
    let brought = &world.outcomes[0];
    assert!(brought.goodput_before.is_some_and(|b| brought.goodput_after > b), "{brought}");
    assert!(brought.to_string().contains("expected"), "{brought}");
    assert_eq!(world.outcomes[1].decision.to, *world.policy.home());
}

#[test]
fn decisions_follow_the_table() {
    let bulk = Requirements::bulk;
    let fast = Weather { mbit: 100.0, rtt_ms: 20, ..CLEAN };
    for (name, requirements, weather, expected) in [
        ("a clean path", bulk(), CLEAN, "cubic"),
        ("half a percent", bulk(), Weather { loss: 0.005, ..CLEAN }, "bbr"),
        ("one percent", bulk(), Weather { loss: 0.01, ..fast }, "bbr"),
        ("a tenth of a percent", bulk(), Weather { loss: 0.001, ..fast }, "bbr"),
        ("bursts", bulk(), BURSTY, "bbr("),
        ("bursts on a faster path", bulk(), Weather { loss: 0.05, burst: 4.0, ..fast }, "bbr("),
        ("a slow path loses little of its use", bulk(), Weather { mbit: 0.5, loss: 0.005, ..CLEAN }, "cubic"),
        ("adaptation off", Requirements { adapt: false, ..bulk() }, BURSTY, "cubic"),
        (
            "a scavenger",
            Requirements { conn_capacity_profile: CapacityProfile::Scavenger, ..bulk() },
            BURSTY,
            "ledbat-plus-plus",
        ),
    ] {
        let mut world = World::of(requirements);
        world.run(&Weather { loss: 0.0, ..weather }, 3_000).run(&weather, 10_000);
        let told = world.told();
        assert!(world.congestion().starts_with(expected), "{name}: {} {told:#?}", world.congestion());
        assert!(world.decisions.len() <= 1, "{name}: {told:#?}");
        let after_clean = world.run(&Weather { loss: 0.0, burst: 1.0, ..weather }, 8_000);
        assert_eq!(after_clean.profile, *after_clean.policy.home(), "{name}: {:#?}", after_clean.told());
    }
}

/// On a long path a second look costs a round trip. Many losses that cost most of the rate need
/// none; one or two do.
#[test]
fn a_gain_of_many_times_needs_no_second_look() {
    let decided_at = |losses: u64| {
        let mut world = World::of(Requirements::bulk());
        let long = Weather { rtt_ms: 600, ..CLEAN };
        world.run(&long, 6_000);
        world.facts.losses = losses;
        world.run(&Weather { loss: 0.02, ..long }, 6_000);
        world.decisions.first().map_or(0, |(at, _)| *at)
    };
    let (many, few) = (decided_at(20), decided_at(2));
    assert!(many > 6_000 && few >= many + 500, "{many} ms, {few} ms");
}

#[test]
fn congestive_losses_are_no_reason_to_stop_yielding() {
    let mut world = World::of(Requirements::bulk());
    world.run(&CLEAN, 1_000);
    for loss in [0.002, 0.01, 0.03, 0.08] {
        for _ in 0..500 {
            world.now_ms += STEP_MS;
            world.delivered += 50_000.0;
            world.facts = PathFacts {
                loss,
                loss_burst: 2.0,
                loss_congestive: 0.95,
                rtt_smoothed: world.facts.rtt_min + Duration::from_millis(15),
                capacity: Rate::from_bits_per_sec(40_000_000),
                samples: 2_000,
                ..world.facts
            };
            world.drive();
        }
    }
    assert!(world.decisions.is_empty(), "{:#?}", world.told());
}

#[test]
fn too_little_evidence_decides_nothing() {
    let mut world = World::of(Requirements::bulk());
    world.run(&CLEAN, 1_000);
    for _ in 0..300 {
        world.now_ms += STEP_MS;
        world.facts = PathFacts { loss: 0.05, loss_congestive: 0.0, samples: 50, ..world.facts };
        world.drive();
    }
    assert!(world.decisions.is_empty(), "{:#?}", world.told());
}

#[test]
fn messages_with_a_deadline_get_parity_while_packets_are_lost() {
    let mut world = World::of(Requirements::media(Duration::from_millis(150)));
    world.offered = Some(Rate::from_bits_per_sec(4_000_000));
    world.run(&CLEAN, 3_000);
    assert!(world.decisions.is_empty(), "{:#?}", world.told());
    world.run(&BURSTY, 8_000);
    assert_ne!(world.fec(), "none", "{:#?}", world.told());
    let (_, first) = &world.decisions[0];
    assert!(first.expects.to.in_time > first.expects.from.in_time + 0.02, "{first}");
    assert!(first.expects.to_string().starts_with("within 150 ms 9"), "{first}");
    world.run(&CLEAN, 8_000);
    assert_eq!(world.profile, *world.policy.home(), "{:#?}", world.told());
    assert!(world.decisions.len() <= 4, "{:#?}", world.told());
}

#[test]
fn parity_follows_the_loss() {
    let overhead = |loss: f64, burst: f64| {
        let mut world = World::of(Requirements::media(Duration::from_millis(150)));
        world.offered = Some(Rate::from_bits_per_sec(4_000_000));
        world.run(&CLEAN, 1_000).run(&Weather { loss, burst, ..CLEAN }, 8_000);
        forecast(&world.profile, &world.facts).expansion
    };
    let (none, little, much) = (overhead(0.0005, 1.0), overhead(0.02, 1.0), overhead(0.10, 2.0));
    assert_eq!(none, 1.0);
    assert!(1.0 < little && little < much, "{little} {much}");
}

#[test]
fn a_standing_queue_drives_interactive_traffic_off_cubic() {
    let requirements =
        Requirements { max_delay: Some(Duration::from_millis(60)), ..Requirements::interactive() };
    let usable = Library::local();
    let home = select(&requirements, &PathFacts::default(), &usable, None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(home.profile.name(Function::Congestion), "bbr");
    // It runs on CUBIC because it was a bulk transfer before.
    let mut world = World::of(Requirements::bulk());
    world.run(&CLEAN, 2_000);
    world.policy.set_requirements(requirements, home.profile);
    world.run(&CLEAN, 2_000);
    assert_eq!(world.profile, home.profile, "{:#?}", world.told());
    assert_eq!(world.decisions[0].1.seen, "other requirements");
    assert_eq!(world.decisions.len(), 1, "{:#?}", world.told());
}

#[test]
fn a_long_queue_is_seen_by_the_selector_too() {
    let mut facts = crate::appraisal::testing::path(20, 40, 0.0, 1.0, 0.0);
    facts.rtt_smoothed = Duration::from_millis(240);
    let requirements = Requirements { max_delay: Some(Duration::from_millis(100)), ..Requirements::bulk() };
    let mut without_bbr = Library::local();
    without_bbr.remove(Function::Congestion, 3);
    let s = select(&requirements, &facts, &Library::local(), None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(s.profile.name(Function::Congestion), "bbr");
    let worse = select(&requirements, &facts, &without_bbr, None).unwrap_or_else(|e| panic!("{e}"));
    assert!(worse.prediction.delay_s > s.prediction.delay_s);
    assert!(worse.reasons.iter().any(|r| r.source == Source::Library));
}

#[test]
fn a_refused_mechanism_is_not_asked_for_again() {
    let mut world = World::of(Requirements::bulk());
    world.run(&CLEAN, 2_000);
    let mut refused = 0;
    for _ in 0..1_000 {
        world.step(&BURSTY);
        if let Some((_, profile)) = world.exchange_at.take() {
            assert_eq!(profile.name(Function::Congestion), "bbr");
            refused += 1;
            world.policy.on_refused(Time::from_millis(world.now_ms), Some((Function::Congestion, 3)));
        }
    }
    assert_eq!(refused, 1);
    assert_eq!(world.congestion(), "cubic");
}

#[test]
fn a_flapping_path_does_not_make_the_policy_flap() {
    let mut world = World::of(Requirements::bulk());
    world.run(&CLEAN, 2_000);
    for _ in 0..40 {
        world.run(&BURSTY, 1_500).run(&CLEAN, 1_500);
    }
    let per_minute = world.decisions.len() as f64 / 2.0;
    assert!(per_minute <= 5.0, "{:#?}", world.told());
}
