//! Levels by looks that are made up.

use super::*;

fn kbit(kbit: u64) -> Rate {
    Rate::from_bits_per_sec(kbit * 1000)
}

fn levels() -> Levels {
    let level = |name: &str, rate, loss| Level { name: name.into(), rate: kbit(rate), loss };
    Levels::new(vec![level("voice", 100, 0.1), level("small", 1000, 0.05), level("large", 2500, 0.02)])
        .expect("levels")
}

/// A path that carries so much, which the application uses as its level has it.
struct Path {
    levels: Levels,
    at: Time,
    look: Look,
    changes: Vec<(u64, Change)>,
}

impl Path {
    fn new() -> Path {
        Path { levels: levels(), at: Time::ZERO, look: Look::default(), changes: Vec::new() }
    }

    /// Goes on for so many seconds. A hint is twice what is sent where nothing shows the limit.
    fn pass(&mut self, seconds: u64, carries: Rate, loss: f64) {
        for _ in 0..seconds * 10 {
            self.at += EVERY;
            let rate = self.levels.level().rate;
            let bytes = rate.bytes_in(EVERY);
            self.look.sent_bytes += bytes * 11 / 10;
            self.look.data_bytes += bytes;
            self.look.lost_bytes += (bytes as f64 * loss) as u64;
            self.look.may_send = Some(carries.min(rate.mul_f64(2.2)));
            self.look.is_held_back = carries < rate.mul_f64(1.1);
            if let Some(change) = self.levels.on_look(self.at, self.look) {
                self.changes.push((self.at.as_nanos() / 1_000_000, change));
            }
        }
    }
}

#[test]
fn levels_that_make_no_sense_are_refused() {
    let level = |name: &str, rate, loss| Level { name: name.into(), rate: kbit(rate), loss };
    let why = |all| Levels::new(all).expect_err("refused").to_string();
    assert!(why(vec![]).starts_with("0 levels"));
    assert!(why((1..=17).map(|n| level("x", n, 0.0)).collect()).starts_with("17 levels"));
    assert!(why(vec![level("a", 10, 0.0), level("b", 10, 0.0)]).contains("`b` must have a rate above"));
    assert!(why(vec![level("a", 0, 0.0)]).contains("`a` must have a rate above"));
    assert!(why(vec![level("a", 10, 1.5)]).contains("bears a loss of 1.5"));
    assert!(why(vec![level("a", 10, f64::NAN)]).contains("must be 0 to 1"));
}

#[test]
fn a_wide_path_brings_the_highest_level_and_nothing_else() {
    let mut path = Path::new();
    path.pass(600, kbit(20_000), 0.0);
    let to: Vec<usize> = path.changes.iter().map(|(_, change)| change.to).collect();
    assert_eq!(to, [1, 2]);
    assert!(path.changes[1].0 < 8000, "{:?}", path.changes);
}

#[test]
fn a_wish_holds_at_once_and_until_another_is_made() {
    let mut path = Path::new();
    path.pass(20, kbit(20_000), 0.0);
    path.levels.wish(0);
    path.pass(1, kbit(20_000), 0.0);
    let (_, last) = path.changes[2];
    assert_eq!(last, Change { from: 2, to: 0, why: Why::Wish });
    path.pass(100, kbit(20_000), 0.0);
    assert_eq!((path.changes.len(), path.levels.now()), (3, 0));
    path.levels.wish(usize::MAX);
    path.pass(20, kbit(20_000), 0.0);
    assert_eq!(path.levels.now(), 2);
}

#[test]
fn a_path_that_narrows_is_followed_within_half_a_second_and_back() {
    let mut path = Path::new();
    path.pass(20, kbit(20_000), 0.0);
    path.pass(1, kbit(1500), 0.0);
    assert_eq!((path.levels.now(), path.changes[2].1.why), (1, Why::Rate));
    assert!(path.changes[2].0 <= 20_500, "{:?}", path.changes);
    path.pass(10, kbit(1500), 0.0);
    assert_eq!(path.levels.now(), 1);
    path.pass(20, kbit(20_000), 0.0);
    assert_eq!(path.levels.now(), 2);
}

/// A gap of one or two looks is no reason.
#[test]
fn a_single_loss_changes_nothing() {
    let mut path = Path::new();
    path.pass(20, kbit(20_000), 0.0);
    for _ in 0..100 {
        path.pass(1, kbit(20_000), 0.0);
        let narrow = Look { may_send: Some(kbit(1200)), ..path.look };
        for _ in 0..2 {
            path.at += EVERY;
            assert_eq!(path.levels.on_look(path.at, narrow), None);
        }
    }
}

/// The level above is tried ever more seldom where the path never carries it.
#[test]
fn a_path_that_is_just_too_narrow_is_not_tried_again_and_again() {
    let mut path = Path::new();
    // A hint of no more than 1.9 times what is sent promises room that is not there.
    for _ in 0..36_000 {
        path.at += EVERY;
        let rate = path.levels.level().rate;
        let bytes = rate.bytes_in(EVERY);
        path.look.sent_bytes += bytes;
        path.look.data_bytes += bytes;
        path.look.may_send = Some(if path.levels.now() == 2 { kbit(2000) } else { rate.mul_f64(1.9) });
        if let Some(change) = path.levels.on_look(path.at, path.look) {
            path.changes.push((path.at.as_nanos() / 1_000_000, change));
        }
    }
    let tries = path.changes.iter().filter(|(_, change)| change.to == 2).count();
    assert!((5..70).contains(&tries), "{tries} tries in an hour");
    let in_last_half = path.changes.iter().filter(|(at, change)| *at > 1_800_000 && change.to == 2).count();
    assert!(in_last_half <= 31, "{in_last_half} tries in half an hour");
}

#[test]
fn a_level_is_left_that_loses_more_than_it_bears() {
    let mut path = Path::new();
    path.pass(20, kbit(20_000), 0.0);
    path.pass(5, kbit(20_000), 0.03);
    assert_eq!((path.levels.now(), path.changes[2].1.why), (1, Why::Loss));
    path.pass(60, kbit(20_000), 0.03);
    assert_eq!((path.levels.now(), path.changes.len()), (1, 3), "what it does not bear is not tried");
    path.pass(60, kbit(20_000), 0.0);
    assert_eq!(path.levels.now(), 2);
}

/// A share is one of a while: two pictures of fifty are more than the level bears, once.
#[test]
fn what_is_lost_at_an_instant_changes_nothing() {
    let mut path = Path::new();
    path.pass(20, kbit(20_000), 0.0);
    for _ in 0..100 {
        path.look.lost_bytes += 25_000;
        path.pass(3, kbit(20_000), 0.0);
    }
    assert_eq!((path.levels.now(), path.changes.len()), (2, 2), "{:?}", path.changes);
}

/// A path that has shown that it is too narrow says nothing of the one after it.
#[test]
fn another_path_is_tried_as_if_nothing_had_been_learnt() {
    let mut path = Path::new();
    for _ in 0..20 {
        path.pass(10, kbit(20_000), 0.0);
        path.pass(2, kbit(50), 0.0);
    }
    assert!(path.levels.now() == 0 && path.levels.patience >= PATIENCE * 8, "{:?}", path.changes);
    path.look.first_of_path = 1000;
    path.pass(10, kbit(20_000), 0.0);
    assert_eq!(path.levels.now(), 2, "{:?}", path.changes);
}

/// Whatever a look says, the level is one of them, and no look brings two steps up.
#[test]
fn whatever_is_seen_a_level_holds() {
    use rand::{RngExt, SeedableRng};
    for seed in 0..200 {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let (mut levels, mut at) = (levels(), Time::ZERO);
        for _ in 0..300 {
            at += Duration::from_millis(random.random_range(0..400));
            let mut any = || {
                let most = 1u64 << random.random_range(0..64);
                random.random_range(0..=most)
            };
            let look = Look {
                waiting_bytes: any(),
                may_send: (any() % 5 > 0).then(|| Rate::from_bytes_per_sec(any())),
                sent_bytes: any(),
                data_bytes: any(),
                lost_bytes: any(),
                is_held_back: any() % 2 == 0,
                first_of_path: any() % 2,
            };
            if any() % 50 == 0 {
                levels.wish(any() as usize);
            }
            let before = levels.now();
            if let Some(change) = levels.on_look(at, look) {
                assert!(change.from == before && change.to == levels.now(), "seed {seed}: {change:?}");
                assert!(change.to < 3 && change.to <= before + 1, "seed {seed}: {change:?}");
            }
        }
    }
}
