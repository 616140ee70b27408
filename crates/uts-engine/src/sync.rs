//! Flows that belong together are shown together: sound and picture, a pointer and the voice that
//! explains.
//!
//! Flows of one connection have one clock, so that their messages' delays can be compared
//! (playout.md R-2). Each is handed over with the delay that its own path and mechanism need; a
//! [`Group`] says how much longer each message is held, so that no flow is further ahead of the
//! reference or behind it than its [`Bounds`] allow, and measures how far it is. It holds no
//! messages and knows no clock: who shows them does.
//!
//! ```
//! use core::time::Duration;
//! use uts_engine::sync::{Bounds, Group};
//! use uts_engine::{MediaTime, Timing};
//!
//! let mut group = Group::new();
//! let (sound, picture) = (group.reference(), group.add(Bounds::PICTURE));
//! let timing = |n: i64, delay| {
//!     let (media, delay) = (MediaTime::from_micros(20_000 * n), Duration::from_millis(delay));
//!     Timing { media, delay, age: delay, is_late: false }
//! };
//! assert_eq!(group.hold(sound, &timing(0, 40)), Duration::ZERO);
//! let mut hold = Duration::ZERO;
//! for n in 1..1000 {
//!     assert_eq!(group.hold(picture, &timing(n, 300)), Duration::ZERO);
//!     hold = group.hold(sound, &timing(n, 40));
//! }
//! // The picture is 260 ms behind. Of that 60 ms are left. The sound is held by the rest.
//! assert_eq!(hold, Duration::from_millis(200));
//! ```

use core::time::Duration;
use uts_functions::playout::{MediaTime, Timing};

/// The distance that a flow may have from the reference of its group.
///
/// The figures are those of R. Steinmetz, "Human perception of jitter and media synchronization",
/// 1996, as Richards (1995), section 1.4, has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most that it may be ahead.
    pub ahead: Duration,
    /// The most that it may be behind.
    pub behind: Duration,
    /// Beyond this, ahead or behind, it is out of synchronisation; between, it is tolerated.
    pub out: Duration,
}

impl Bounds {
    /// A picture beside the sound of lips: 80 ms behind it, or 160 ms ahead, which is borne better.
    pub const PICTURE: Bounds = Bounds::of(160, 80, 160);

    /// A pointer beside the voice that explains: 500 ms ahead of it, or 750 ms behind.
    pub const POINTER: Bounds = Bounds::of(500, 750, 1500);

    /// The same where it has to be noticed by nobody: 250 ms to either side.
    pub const POINTER_CLOSE: Bounds = Bounds::of(250, 250, 1500);

    /// Two channels of one sound, played apart: 5 ms to either side.
    pub const TIGHT: Bounds = Bounds::of(5, 5, 11);

    const fn of(ahead_ms: u64, behind_ms: u64, out_ms: u64) -> Bounds {
        Bounds {
            ahead: Duration::from_millis(ahead_ms),
            behind: Duration::from_millis(behind_ms),
            out: Duration::from_millis(out_ms),
        }
    }

    /// Judges a skew: microseconds ahead of the reference, or behind it if negative.
    pub fn judge(&self, skew_us: i64) -> Verdict {
        let (most, out) = if skew_us < 0 { (self.behind, self.out) } else { (self.ahead, self.out) };
        let skew = Duration::from_micros(skew_us.unsigned_abs());
        match () {
            () if skew <= most => Verdict::Within,
            () if skew <= out.max(most) => Verdict::Tolerated,
            () => Verdict::Out,
        }
    }
}

/// The distance from the reference, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within its bounds.
    Within,
    /// Beyond them, and hardly noticed.
    Tolerated,
    /// It is noticed.
    Out,
}

/// A flow of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member(usize);

/// The distance of a flow from the reference, by what was shown of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// The last, in microseconds: ahead of the reference, or behind it if negative.
    pub last_us: i64,
    /// The distance that 99 of 100 of the last messages kept to.
    pub p99: Duration,
    /// Messages that were shown within the bounds.
    pub within: u64,
    /// Messages that were shown beyond them, and tolerated.
    pub tolerated: u64,
    /// Messages that were shown out of synchronisation.
    pub out: u64,
}

/// Of a bound such a part is made use of: the rest is for what changes meanwhile.
const AIM: (u32, u32) = (3, 4);

/// Skews that are remembered of a flow.
const SKEWS: usize = 256;

/// The time that messages are held grows by no more than such a part of the media that passes, and
/// shrinks by no more than such a part, as a playout delay does (playout.md R-5).
const GROWS_BY: u32 = 4;
const SHRINKS_BY: u32 = 16;

fn aim(bound: Duration) -> Duration {
    bound * AIM.0 / AIM.1
}

#[derive(Clone, Debug)]
struct Flow {
    bounds: Bounds,
    /// The delay with which its messages are handed over; `None` = none was yet.
    delay: Option<Duration>,
    /// Time that they are held longer, and the media time of the last of them.
    held: Duration,
    media: Option<MediaTime>,
    /// Time from the making of the last message until it was shown, in microseconds, by two clocks.
    shown: Option<i64>,
    skews: Vec<i64>,
    next: usize,
    figures: Skew,
}

impl Flow {
    fn new(bounds: Bounds) -> Self {
        Flow {
            bounds,
            delay: None,
            held: Duration::ZERO,
            media: None,
            shown: None,
            skews: Vec::new(),
            next: 0,
            figures: Skew::default(),
        }
    }

    /// Holds messages so much longer, as far as the pace allows.
    fn hold(&mut self, media: MediaTime, wished: Duration) -> Duration {
        let passed = self.media.replace(media).map(|last| media.since(last));
        self.held = match passed {
            None => wished,
            Some(passed) => {
                let least = self.held.saturating_sub(passed / SHRINKS_BY);
                wished.clamp(least, self.held + passed / GROWS_BY)
            }
        };
        self.held
    }
}

/// Flows of a connection that are shown together.
#[derive(Clone, Debug)]
pub struct Group {
    /// The reference is the first.
    flows: Vec<Flow>,
}

impl Default for Group {
    fn default() -> Self {
        Group::new()
    }
}

impl Group {
    /// A group of the reference alone.
    pub fn new() -> Self {
        let zero = Duration::ZERO;
        Group { flows: vec![Flow::new(Bounds { ahead: zero, behind: zero, out: zero })] }
    }

    /// The flow that others are compared with: sound, mostly, whose gaps are heard.
    pub fn reference(&self) -> Member {
        Member(0)
    }

    /// Adds a flow, which is to keep these bounds.
    pub fn add(&mut self, bounds: Bounds) -> Member {
        self.flows.push(Flow::new(bounds));
        Member(self.flows.len() - 1)
    }

    /// Time that a message is held longer, that was just handed over with this timing. Messages of
    /// a flow come here in the order in which they are read.
    pub fn hold(&mut self, member: Member, timing: &Timing) -> Duration {
        let Some(flow) = self.flows.get_mut(member.0) else { return Duration::ZERO };
        flow.delay = Some(timing.delay);
        if timing.is_late {
            return Duration::ZERO;
        }
        let reference = self.delay_of_reference();
        let Some(flow) = self.flows.get_mut(member.0) else { return Duration::ZERO };
        let least = if member.0 == 0 { reference } else { reference.saturating_sub(aim(flow.bounds.ahead)) };
        flow.hold(timing.media, least.saturating_sub(timing.delay))
    }

    /// The least delay of the reference at which nothing is too far behind it.
    fn delay_of_reference(&self) -> Duration {
        let lag = |flow: &Flow| flow.delay.unwrap_or(Duration::ZERO).saturating_sub(aim(flow.bounds.behind));
        self.flows.iter().map(lag).max().unwrap_or(Duration::ZERO)
    }

    /// A message was shown at an instant, which is given as the time since some other.
    pub fn shown(&mut self, member: Member, at: Duration, media: MediaTime) {
        let at_us = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
        let shown = at_us.saturating_sub(media.as_micros());
        let reference = self.flows.first().and_then(|flow| flow.shown);
        let Some(flow) = self.flows.get_mut(member.0) else { return };
        flow.shown = Some(shown);
        let Some(reference) = reference.filter(|_| member.0 > 0) else { return };
        let skew = reference.saturating_sub(shown);
        flow.figures.last_us = skew;
        match flow.bounds.judge(skew) {
            Verdict::Within => flow.figures.within += 1,
            Verdict::Tolerated => flow.figures.tolerated += 1,
            Verdict::Out => flow.figures.out += 1,
        }
        match flow.skews.get_mut(flow.next) {
            Some(place) => *place = skew,
            None => flow.skews.push(skew),
        }
        flow.next = (flow.next + 1) % SKEWS;
    }

    /// The distance of a flow from the reference.
    pub fn skew(&self, member: Member) -> Skew {
        let Some(flow) = self.flows.get(member.0) else { return Skew::default() };
        let mut distances: Vec<u64> = flow.skews.iter().map(|skew| skew.unsigned_abs()).collect();
        let place = (distances.len() * 99).div_ceil(100).saturating_sub(1);
        let p99 = match distances.len() {
            0 => 0,
            _ => *distances.select_nth_unstable(place).1,
        };
        Skew { p99: Duration::from_micros(p99), ..flow.figures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn timing(media_ms: i64, delay: u64) -> Timing {
        let (media, delay) = (MediaTime::from_micros(media_ms * 1000), ms(delay));
        Timing { media, delay, age: delay, is_late: false }
    }

    /// Whatever delays flows have, in the end each is within its bounds, and nothing is held that
    /// need not be.
    #[test]
    fn in_the_end_each_flow_is_within_its_bounds() {
        let all = [Bounds::PICTURE, Bounds::POINTER, Bounds::POINTER_CLOSE, Bounds::TIGHT];
        for bounds in all {
            for (reference, other) in [(20, 20), (20, 900), (900, 20), (300, 380), (0, 2000), (2000, 0)] {
                let mut group = Group::new();
                let (first, second) = (group.reference(), group.add(bounds));
                let mut lags = [0i64; 2];
                for n in 0..2000 {
                    for (place, (member, delay)) in [(first, reference), (second, other)].iter().enumerate() {
                        let hold = group.hold(*member, &timing(20 * n, *delay));
                        let at = ms(20 * n as u64 + delay) + hold;
                        group.shown(*member, at, timing(20 * n, *delay).media);
                        lags[place] = (at.as_micros() as i64) - 20_000 * n;
                    }
                }
                let skew = group.skew(second);
                assert_eq!(bounds.judge(skew.last_us), Verdict::Within, "{bounds:?} {reference} {other}");
                assert_eq!(skew.last_us, lags[0] - lags[1]);
                let is_held = [lags[0] > reference as i64 * 1000, lags[1] > other as i64 * 1000];
                assert!(!(is_held[0] && is_held[1]), "one of two is enough: {bounds:?} {reference} {other}");
            }
        }
    }

    /// A flow that needs more from one message on holds the others bit by bit.
    #[test]
    fn what_is_held_grows_with_the_media() {
        let mut group = Group::new();
        let (sound, picture) = (group.reference(), group.add(Bounds::PICTURE));
        group.hold(picture, &timing(0, 40));
        assert_eq!(group.hold(sound, &timing(0, 40)), Duration::ZERO);
        group.hold(picture, &timing(20, 500));
        let mut last = Duration::ZERO;
        for n in 1..200 {
            let hold = group.hold(sound, &timing(20 * n, 40));
            assert!(hold >= last && hold - last <= ms(5), "{hold:?} behind {last:?}");
            last = hold;
        }
        assert_eq!(last, ms(400));
    }

    #[test]
    fn a_skew_is_judged_on_its_side() {
        let of = |skew_ms: i64| Bounds::PICTURE.judge(skew_ms * 1000);
        assert_eq!([of(-80), of(160), of(0)], [Verdict::Within; 3]);
        assert_eq!([of(-81), of(-160)], [Verdict::Tolerated; 2]);
        assert_eq!([of(-161), of(161)], [Verdict::Out; 2]);
        let of = |skew_ms: i64| Bounds::POINTER.judge(skew_ms * 1000);
        assert_eq!([of(500), of(-750)], [Verdict::Within; 2]);
        assert_eq!([of(501), of(-751), of(1500)], [Verdict::Tolerated; 3]);
        assert_eq!([of(1501), of(-1501)], [Verdict::Out; 2]);
    }
}
