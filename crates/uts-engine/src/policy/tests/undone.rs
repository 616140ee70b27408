//! Exchanges that are undone, and what is left alone because of them.

use super::super::due::EXCHANGES_PER_MINUTE;
use super::*;

/// Redundancy for which the path has no room makes messages late: it is taken off again, and not
/// tried again for a while.
#[test]
fn what_makes_messages_late_is_undone_and_remembered() {
    let mut world = World::of(Requirements::media(Duration::from_millis(150)));
    world.offered = Some(Rate::from_bits_per_sec(4_000_000));
    world.run(&CLEAN, 2_000);
    let (mut late_ms, mut had_redundancy) = (0, false);
    for _ in 0..3_000 {
        world.is_late = world.fec() != "none";
        had_redundancy |= world.is_late;
        late_ms += if world.is_late { STEP_MS } else { 0 };
        world.step(&BURSTY);
    }
    assert!(had_redundancy, "{:#?}", world.told());
    assert!(late_ms < 10_000, "late for {late_ms} of 30000 ms: {:#?}", world.told());
    assert_eq!(world.fec(), "none", "{:#?}", world.told());
}

/// A profile that was expected to bring much, and brings nothing, is left at once, and with it
/// profiles that differ in parameters only. What else might do is tried less and less often.
#[test]
fn what_brings_nothing_is_undone_and_remembered() {
    let mut world = World::of(Requirements::bulk());
    world.run(&CLEAN, 2_000);
    world.is_useless = true;
    world.run(&BURSTY, 40_000);
    assert!((2..=6).contains(&world.decisions.len()), "{:#?}", world.told());
    assert_eq!(world.congestion(), "cubic", "{:#?}", world.told());
    for pair in world.decisions.chunks(2) {
        assert!(pair[1].0 - pair[0].0 < 1_500, "{:#?}", world.told());
    }
}

/// A profile that brings twice as much as there was is kept, though ten times as much was expected:
/// windows need time to grow where packets are lost.
#[test]
fn what_brings_twice_as_much_is_kept_however_much_was_expected() {
    let mut world = World::of(Requirements::bulk());
    world.run(&CLEAN, 2_000);
    world.away_most = 2.0;
    world.run(&BURSTY, 40_000);
    let decision = &world.decisions.first().expect("one").1;
    assert!(decision.expects.to.goodput > decision.expects.from.goodput.mul_f64(9.0), "{decision}");
    assert_eq!(world.decisions.len(), 1, "{:#?}", world.told());
    assert!(world.congestion().starts_with("bbr"), "{:#?}", world.told());
}

/// Goodput that home lacks against the profile that was left may be what others on the path have
/// got back: a return is not undone for its goodput.
#[test]
fn a_return_is_not_undone_for_what_others_get() {
    let mut world = World::of(Requirements::bulk());
    world.run(&CLEAN, 2_000).run(&BURSTY, 6_000);
    world.home_fails = true;
    world.run(&CLEAN, 10_000);
    assert_eq!(world.decisions.len(), 2, "{:#?}", world.told());
    assert_eq!(world.profile, *world.policy.home(), "{:#?}", world.told());
}

/// A policy that is shown a path directly, whatever it decides, with some losses of which
/// congestion has caused a share (0..=1).
struct Shown {
    policy: Policy,
    now: Time,
}

impl Shown {
    /// Shows losses while `profile` is in use, until the policy decides or the time is over.
    fn until_decided(&mut self, profile: &Profile, loss: f64, congestive: f64, ms: u64) -> Option<Profile> {
        for _ in 0..ms / 20 {
            self.now += Duration::from_millis(20);
            let facts = crate::appraisal::testing::path(20, 40, loss, 1.0, congestive);
            let facts = PathFacts { losses: 100, ..facts };
            let delivered_bytes = self.now.since(Time::ZERO).as_millis() as u64 * 1000;
            let (offered, is_late, is_searching) = (None, false, false);
            let seen =
                Observation { facts: &facts, profile, delivered_bytes, offered, is_late, is_searching };
            self.policy.observe(self.now, &seen);
            let _ = self.policy.outcome(self.now);
            if let Some(decision) = self.policy.decide(self.now) {
                return Some(decision.to);
            }
        }
        None
    }

    fn exchange(&mut self, profile: &Profile) {
        self.policy.on_exchanged(self.now, profile);
    }
}

/// Under another congestion control most losses are congestion's: others are on the path, and home
/// is not left for it again soon.
#[test]
fn what_has_met_others_is_not_tried_again_soon() {
    let world = World::of(Requirements::bulk());
    let home = world.profile;
    let bbr = home.with_named(Function::Congestion, "bbr").expect("in the library");
    let mut shown = Shown { policy: world.policy.clone(), now: Time::ZERO };
    let away = shown.until_decided(&home, 0.02, 0.0, 20_000).expect("decided");
    assert_eq!(away.name(Function::Congestion), bbr.name(Function::Congestion));
    shown.exchange(&away);
    assert_eq!(shown.until_decided(&away, 0.02, 1.0, 60_000), Some(home));
    shown.exchange(&home);
    let again = shown.until_decided(&home, 0.02, 0.0, 40_000);
    let alike = again.is_some_and(|to| to.get(Function::Congestion) == away.get(Function::Congestion));
    assert!(!alike, "it has just met others there");
}

/// A return after which much less is lost has shown that what it left caused the losses: nothing
/// with that congestion control is tried, until a minute is over.
#[test]
fn a_return_that_ends_losses_bars_what_caused_them() {
    let world = World::of(Requirements::bulk());
    let home = world.profile;
    let is_barred = |loss_after: f64| {
        let mut shown = Shown { policy: world.policy.clone(), now: Time::ZERO };
        let away = shown.until_decided(&home, 0.08, 0.0, 20_000).expect("decided");
        shown.exchange(&away);
        assert_eq!(shown.until_decided(&away, 0.08, 1.0, 60_000), Some(home));
        shown.exchange(&home);
        assert_eq!(shown.until_decided(&home, loss_after, 1.0, 3_000), None, "the outcome is awaited");
        let next = shown.until_decided(&home, 0.02, 0.0, 40_000);
        next.is_none_or(|to| to.get(Function::Congestion).number != away.get(Function::Congestion).number)
    };
    assert!(is_barred(0.02));
    assert!(!is_barred(0.08), "as much is lost as before: it was not its doing");
}

/// A connection shows what it sees before it tells of the exchange: the path is then seen under the
/// new profile already.
#[test]
fn each_return_that_does_not_last_makes_home_wait_longer() {
    let mut world = World::of(Requirements::bulk());
    let home = world.profile;
    let away = home.with_named(Function::Congestion, "bbr").expect("in the library");
    let mut factors = Vec::new();
    for second in 0..5 {
        for (profile, ms) in [(away, 0), (home, 500)] {
            let now = Time::from_millis(1000 * second + ms);
            let (facts, delivered_bytes) = (&world.facts, 0);
            let seen = Observation {
                facts,
                profile: &profile,
                delivered_bytes,
                offered: None,
                is_late: false,
                is_searching: false,
            };
            world.policy.observe(now, &seen);
            world.policy.on_exchanged(now, &profile);
        }
        factors.push(world.policy.quiet_factor);
    }
    assert_eq!(factors, [1, 2, 4, 8, 16]);
}

/// Nine exchanges have been spent on following the loss. A short time without any is no reason to
/// spend the last one on the way home, from where there is no way back for most of a minute.
#[test]
fn the_last_exchange_of_a_minute_strands_nobody_at_home() {
    let mut world = World::of(Requirements::media(Duration::from_millis(150)));
    world.offered = Some(Rate::from_bits_per_sec(4_000_000));
    world.run(&CLEAN, 1_000);
    let lossy = |loss| Weather { loss, burst: 2.0, ..CLEAN };
    let home = world.profile;
    for _ in 1..EXCHANGES_PER_MINUTE {
        world.profile = home.with_named(Function::Fec, "reed-solomon").expect("in the library");
        world.policy.on_exchanged(Time::from_millis(world.now_ms), &world.profile);
    }
    world.run(&CLEAN, 4_000).run(&lossy(0.12), 6_000);
    assert_ne!(world.fec(), "none", "{:#?}", world.told());
    // Where it lasts, home returns well before the minute is over.
    world.run(&CLEAN, 30_000);
    assert_eq!(world.profile, *world.policy.home(), "{:#?}", world.told());
}
