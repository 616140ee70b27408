//! Levels at which an application can send: pictures of three sizes, a voice alone. The path and
//! the application's own wish say which of them is right.
//!
//! [`Levels`] looks at a connection every 100 ms or so. A level that the path does not carry, or
//! that loses more than it bears, is left at once. The next higher one is tried when the path has
//! had room for it for a while. If it fails, it is tried again after twice that while. So a path
//! that is just too narrow is not tried again and again. Nothing that was learnt of a path holds
//! for another.
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
    /// Bytes of the application that were given up, sent or not, since they were too late or had
    /// been repeated often enough.
    pub lost_bytes: u64,
    /// Bytes that were handed over and are not acknowledged.
    pub waiting_bytes: u64,
    /// Something shows that the path carries no more than is sent.
    pub is_held_back: bool,
    /// Number of the first packet that took the path which packets take now.
    pub first_of_path: u64,
}

impl Look {
    /// A look at the engine's side of a connection: see [`Connection::inspect`].
    pub fn of(connection: &uts_engine::Connection) -> Look {
        let stats = connection.stats();
        Look {
            may_send: connection.may_send(),
            sent_bytes: stats.bytes_sent,
            data_bytes: stats.data_bytes_sent.saturating_sub(stats.bytes_repeated),
            lost_bytes: stats.bytes_given_up,
            waiting_bytes: connection.undelivered_bytes(),
            is_held_back: connection.is_held_back(),
            first_of_path: connection.first_of_path(),
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
    /// The path that all this was learnt of.
    first_of_path: u64,
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
            first_of_path: 0,
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
        if self.first_of_path != look.first_of_path {
            self.forget_path();
            self.first_of_path = look.first_of_path;
        }
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

    /// Begins anew with a path of which nothing is known.
    fn forget_path(&mut self) {
        self.looks.clear();
        (self.short_since, self.room_since, self.climbed_at) = (None, None, None);
        (self.patience, self.settled_at) = (PATIENCE, Time::ZERO);
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
        let lost = last.lost_bytes.saturating_sub(first.lost_bytes);
        // Most of what is lost was too late to be sent at all, and what waits has not been sent.
        let waiting = last.waiting_bytes.saturating_sub(first.waiting_bytes);
        let offered = data.saturating_add(lost).saturating_add(waiting);
        let sent = last.sent_bytes.saturating_sub(first.sent_bytes);
        // A picture waits for its pace now and then.
        let held_back = self.looks.iter().filter(|(_, look)| look.is_held_back).count();
        let is_held_back = held_back * 2 > self.looks.len();
        let cost = (data >= COST_BYTES_MIN).then(|| (sent as f64 / data as f64).clamp(1.0, COST_MAX));
        // What two pictures lose at an instant does not last.
        let middle = &self.looks.get(self.looks.len() / 2)?.1;
        let loss = share_lost(first, middle).min(share_lost(middle, last));
        let [offered, sent] = [offered, sent].map(|bytes| Rate::from_delivery(bytes, passed));
        Some(Seen { offered, sent, is_held_back, loss, cost })
    }
}

/// Share of the application's data that was lost between two looks, from 0 to 1.
fn share_lost(from: &Look, to: &Look) -> f64 {
    let data = to.data_bytes.saturating_sub(from.data_bytes);
    let lost = to.lost_bytes.saturating_sub(from.lost_bytes);
    lost as f64 / data.saturating_add(lost).max(1) as f64
}

/// Figures of some looks together.
struct Seen {
    /// Rate of what the application hands over.
    offered: Rate,
    /// Rate of UDP payload that was sent.
    sent: Rate,
    /// Most of the time something has shown that the path carries no more.
    is_held_back: bool,
    /// Share of the application's data that was lost in each half of the while, at least.
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
mod tests;
