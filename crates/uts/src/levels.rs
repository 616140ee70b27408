//! Levels at which an application can send: pictures of three sizes, a voice alone. The path and
//! the application's own wish say which of them is right.
//!
//! [`Levels`] looks at a connection every 100 ms or so. A level that the path does not carry, or
//! that loses more than it bears, is left at once. The next higher one is tried when the path has
//! had room for it for a while. If it fails, it is tried again after twice that while. So a path
//! that is just too narrow is not tried again and again.
//!
//! [`follow`] does the looking for a connection. [`Levels`] itself knows no clock.
//!
//! ```no_run
//! use uts::Rate;
//! use uts::levels::{Level, Levels, follow};
//!
//! # async fn example(connection: uts::Connection) -> Result<(), Box<dyn std::error::Error>> {
//! let kbit = |kbit: u64| Rate::from_bits_per_sec(kbit * 1000);
//! let levels = Levels::new(vec![
//!     Level { name: "voice".into(), rate: kbit(40), loss: 0.05 },
//!     Level { name: "small".into(), rate: kbit(400), loss: 0.02 },
//!     Level { name: "large".into(), rate: kbit(2500), loss: 0.01 },
//! ])?;
//! let mut follower = follow(&connection, levels);
//! while let Some(change) = follower.next().await {
//!     println!("now {}: {}", follower.levels().level().name, change.why);
//! }
//! # Ok(())
//! # }
//! ```

use crate::connection::Connection;
use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use uts_functions::{Rate, Time};

/// The most levels that an application can have.
pub const LEVELS_MAX: usize = 16;

/// A level of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its name, for people.
    pub name: String,
    /// Rate of what the application sends at it.
    pub rate: Rate,
    /// Share of that which may be lost (0 to 1) before a lower level is better.
    pub loss: f64,
}

/// Reason for which levels are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LevelsError {
    /// There are none, or too many.
    #[error("{0} levels; there must be 1 to {LEVELS_MAX}")]
    Number(usize),
    /// A level has no more than the one before it.
    #[error("level `{name}` must have a rate above {above:?}, that of the level before it")]
    Order {
        /// Name of the level.
        name: String,
        /// The rate that it must have more than.
        above: Rate,
    },
    /// A share is none.
    #[error("level `{name}` bears a loss of {loss}; it must be 0 to 1")]
    Loss {
        /// Name of the level.
        name: String,
        /// The loss.
        loss: f64,
    },
}

/// Reason of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The application wishes no more.
    Wish,
    /// The path carries less.
    Rate,
    /// More is lost than the level bears.
    Loss,
    /// The path has had room for it.
    Room,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Wish => "no more is wished for",
            Why::Rate => "the path carries less",
            Why::Loss => "more is lost than it bears",
            Why::Room => "there is room for it",
        })
    }
}

/// Another level holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The level before, by its place.
    pub from: usize,
    /// The level from now on.
    pub to: usize,
    /// Reason.
    pub why: Why,
}

/// A connection as it is seen at an instant. Counts are those since its begin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// Rate that this end may send at, in UDP payload; `None` before that is known.
    pub may_send: Option<Rate>,
    /// Bytes of UDP payload that were sent.
    pub sent_bytes: u64,
    /// Bytes of the application that were sent, each once.
    pub data_bytes: u64,
    /// Bytes of the application that were lost for good.
    pub lost_bytes: u64,
    /// Messages that were too old to be sent, or to be sent again.
    pub expired: u64,
    /// Bytes of the application in a packet, about.
    pub packet_bytes: u64,
    /// Bytes that were handed over and are not acknowledged.
    pub waiting_bytes: u64,
    /// Something shows that the path carries no more than is sent.
    pub is_held_back: bool,
}

impl Look {
    /// A look at the engine's side of a connection: see [`Connection::inspect`].
    pub fn of(connection: &uts_engine::Connection) -> Look {
        let (stats, facts) = (connection.stats(), connection.facts());
        Look {
            may_send: connection.may_send(),
            sent_bytes: stats.bytes_sent,
            data_bytes: stats.data_bytes_sent.saturating_sub(stats.bytes_repeated),
            lost_bytes: stats.bytes_given_up,
            expired: stats.messages_expired,
            waiting_bytes: connection.undelivered_bytes(),
            is_held_back: connection.is_held_back(),
            packet_bytes: if facts.payload_bytes > 0.0 {
                facts.payload_bytes as u64
            } else {
                facts.mtu_bytes
            },
        }
    }
}

/// Levels of an application, and which of them holds.
#[derive(Clone, Debug)]
pub struct Levels {
    all: Vec<Level>,
    now: usize,
    /// The highest that is wished for.
    most: usize,
    /// Looks of the last while, since the level changed.
    looks: VecDeque<(Time, Look)>,
    /// Bytes that leave for each of the application's.
    cost: f64,
    /// The path has been carrying less than the level since then.
    short_since: Option<Time>,
    /// It has had room for the next since then.
    room_since: Option<Time>,
    /// Time that there has to be room for the next.
    patience: Duration,
    climbed_at: Option<Time>,
    /// Instant from which is judged: before it the path carries what the level before has left.
    settled_at: Time,
}

impl Levels {
    /// Levels, from the least. The first holds.
    ///
    /// # Errors
    /// [`LevelsError`]
    pub fn new(all: Vec<Level>) -> Result<Self, LevelsError> {
        if !(1..=LEVELS_MAX).contains(&all.len()) {
            return Err(LevelsError::Number(all.len()));
        }
        let mut above = Rate::default();
        for Level { name, rate, loss } in &all {
            if *rate <= above {
                return Err(LevelsError::Order { name: name.clone(), above });
            }
            if !(0.0..=1.0).contains(loss) {
                return Err(LevelsError::Loss { name: name.clone(), loss: *loss });
            }
            above = *rate;
        }
        let most = all.len() - 1;
        Ok(Levels {
            all,
            now: 0,
            most,
            looks: VecDeque::new(),
            cost: 1.0,
            short_since: None,
            room_since: None,
            patience: PATIENCE,
            climbed_at: None,
            settled_at: Time::ZERO,
        })
    }

    /// The place of the level that holds, from 0.
    pub fn now(&self) -> usize {
        self.now
    }

    /// The level that holds.
    pub fn level(&self) -> &Level {
        &self.all[self.now]
    }

    /// All, from the least.
    pub fn all(&self) -> &[Level] {
        &self.all
    }

    /// Wishes for no higher level than this, by its place: to save what the path costs. The next
    /// look brings it about. With the highest, or a higher one, the path alone decides again.
    pub fn wish(&mut self, most: usize) {
        self.most = most.min(self.all.len() - 1);
    }

    /// Looks at the connection: every 50 to 200 ms. Returns the change, if another level holds.
    pub fn on_look(&mut self, now: Time, look: Look) -> Option<Change> {
        if now < self.settled_at && self.now <= self.most {
            return None;
        }
        self.looks.push_back((now, look));
        while self.looks.len() > LOOKS_MAX
            || self.looks.front().is_some_and(|(at, _)| now.since(*at) > WINDOW)
        {
            self.looks.pop_front();
        }
        let seen = self.seen();
        if let Some(cost) = seen.as_ref().and_then(|seen| seen.cost) {
            self.cost = cost;
        }
        let (to, why) = self.verdict(now, &look, seen.as_ref())?;
        let from = core::mem::replace(&mut self.now, to);
        match why {
            Why::Room => self.climbed_at = Some(now),
            Why::Wish => {}
            Why::Rate | Why::Loss => {
                let has_failed = self.climbed_at.is_some_and(|at| now.since(at) < self.patience * LASTS);
                self.patience = if has_failed { (self.patience * 2).min(PATIENCE_MAX) } else { PATIENCE };
                self.settled_at = now + SETTLES;
            }
        }
        self.looks.clear();
        (self.short_since, self.room_since) = (None, None);
        Some(Change { from, to, why })
    }

    fn verdict(&mut self, now: Time, look: &Look, seen: Option<&Seen>) -> Option<(usize, Why)> {
        if self.now > self.most {
            return Some((self.most, Why::Wish));
        }
        let (may_send, seen) = (look.may_send?, seen?);
        if self.lasts_short(now, may_send, seen) && self.now > 0 {
            let fits = (0..self.now).rev().find(|place| may_send >= self.all[*place].rate.mul_f64(self.cost));
            return Some((fits.unwrap_or(0), Why::Rate));
        }
        if seen.loss > self.level().loss && self.now > 0 {
            return Some((self.now - 1, Why::Loss));
        }
        let has_room = self.short_since.is_none() && self.has_room(may_send, seen);
        let since = *self.room_since.get_or_insert(now);
        if !has_room {
            self.room_since = None;
        }
        (has_room && now.since(since) >= self.patience).then_some((self.now + 1, Why::Room))
    }

    /// True if the path has carried less than is offered for a while: a single loss halves the rate
    /// for less. An application that offers less than its level has is no reason.
    fn lasts_short(&mut self, now: Time, may_send: Rate, seen: &Seen) -> bool {
        let offered = self.level().rate.min(seen.offered);
        if may_send >= offered.mul_f64(self.cost * SHARE) {
            self.short_since = None;
            return false;
        }
        now.since(*self.short_since.get_or_insert(now)) >= SHORT
    }

    /// True if the next level can be tried: the path is known to carry it, or it has not been tried
    /// how much it carries. What is allowed is hardly more than what is sent, too, where a sender
    /// never asked for more.
    fn has_room(&self, may_send: Rate, seen: &Seen) -> bool {
        let Some(next) = self.all.get(self.now + 1).filter(|_| self.now < self.most) else { return false };
        let is_known = may_send >= next.rate.mul_f64(self.cost * MARGIN);
        let is_used = seen.offered >= self.level().rate.mul_f64(USED);
        let is_untried = !seen.is_held_back || may_send <= seen.sent.mul_f64(UNTRIED);
        is_used && (is_known || is_untried) && seen.loss <= next.loss
    }

    /// Figures of the last while; `None` while its looks are of too short a time.
    fn seen(&self) -> Option<Seen> {
        let ((begin, first), (end, last)) = (self.looks.front()?, self.looks.back()?);
        let passed = end.since(*begin);
        if passed < WINDOW / 2 {
            return None;
        }
        let data = last.data_bytes.saturating_sub(first.data_bytes);
        let expired = last.expired.saturating_sub(first.expired).saturating_mul(last.packet_bytes);
        let lost = last.lost_bytes.saturating_sub(first.lost_bytes).saturating_add(expired);
        // What expires has not been sent, mostly, nor has what waits.
        let waiting = last.waiting_bytes.saturating_sub(first.waiting_bytes);
        let offered = data.saturating_add(expired).saturating_add(waiting);
        let sent = last.sent_bytes.saturating_sub(first.sent_bytes);
        // A picture waits for its pace now and then.
        let held_back = self.looks.iter().filter(|(_, look)| look.is_held_back).count();
        let is_held_back = held_back * 2 > self.looks.len();
        let cost = (data >= COST_BYTES_MIN).then(|| (sent as f64 / data as f64).clamp(1.0, COST_MAX));
        let loss = lost as f64 / data.saturating_add(expired).max(1) as f64;
        let [offered, sent] = [offered, sent].map(|bytes| Rate::from_delivery(bytes, passed));
        Some(Seen { offered, sent, is_held_back, loss, cost })
    }
}

/// Figures of some looks together.
struct Seen {
    /// Rate of what the application hands over.
    offered: Rate,
    /// Rate of UDP payload that was sent.
    sent: Rate,
    /// Most of the time something has shown that the path carries no more.
    is_held_back: bool,
    /// Share of the application's data that was lost.
    loss: f64,
    /// Bytes that left for each of its bytes, where enough did.
    cost: Option<f64>,
}

/// Levels of a connection's application, which are looked after by the clock.
#[derive(Debug)]
pub struct Follower {
    connection: Connection,
    levels: Levels,
    begun: Instant,
    ticks: Interval,
}

/// Looks after levels of what this end sends in a connection.
pub fn follow(connection: &Connection, levels: Levels) -> Follower {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Follower { connection: connection.clone(), levels, begun: Instant::now(), ticks }
}

impl Follower {
    /// The levels.
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// [`Levels::wish`]
    pub fn wish(&mut self, most: usize) {
        self.levels.wish(most);
    }

    /// Waits until another level holds. `None` after the connection's end. Nothing is lost if the
    /// wait is given up.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            self.ticks.tick().await;
            let look = self.connection.inspect(Look::of)?;
            let now = Time::ZERO + self.begun.elapsed();
            if let Some(change) = self.levels.on_look(now, look) {
                return Some(change);
            }
        }
    }
}

/// Time between two looks. Chosen: as often as a rate is told.
const EVERY: Duration = Duration::from_millis(100);

/// Looks that are kept, and the time that they are of. Chosen: a loss of 1 % is seen in it at 100
/// packets a second.
const LOOKS_MAX: usize = 64;
const WINDOW: Duration = Duration::from_secs(2);

/// Time that the path has to carry less than a level before that is left. Chosen: longer than one
/// loss takes to be made good, shorter than a caller takes to notice.
const SHORT: Duration = Duration::from_millis(300);

/// Time that the path needs to be rid of what was too much. Chosen: longer than most queues are.
const SETTLES: Duration = Duration::from_secs(1);

/// Time that there has to be room for a level, at first and at the most.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// A level that is left within so many times the patience has failed.
const LASTS: u32 = 8;

/// A level needs so much more than its rate where the path's rate is known. A path that carries no
/// more than such a share of what is offered is too narrow.
const MARGIN: f64 = 1.1;
const SHARE: f64 = 0.9;

/// A rate that is allowed is at most so many times what is sent where nobody asked for more: twice,
/// as the rate was seen at its most.
const UNTRIED: f64 = 2.4;

/// Share of its level's rate that an application sends from which the path is known to carry it.
const USED: f64 = 0.5;

/// Bytes from which the cost is told, and the most that it is believed to be.
const COST_BYTES_MIN: u64 = 10_000;
const COST_MAX: f64 = 4.0;

#[cfg(test)]
mod tests {
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
        let in_last_half =
            path.changes.iter().filter(|(at, change)| *at > 1_800_000 && change.to == 2).count();
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
                    expired: any(),
                    packet_bytes: any(),
                    is_held_back: any() % 2 == 0,
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
}
