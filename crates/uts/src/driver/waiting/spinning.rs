//! Decision to look for more before sleeping.
//!
//! A sleeper has to be woken. That costs the sender of what arrives as much as the receiver: some
//! microseconds each, more than to take in a packet. Where data streams in, the next batch is there
//! sooner than that. So the endpoint looks for it for about as long as waking would cost. Where the
//! look was in vain the next comes later: a stream that is slower costs a look for each 64 sleeps.
//! Where so much streams in that the endpoint naps (`moderation.rs`), nobody has to wake it, and it
//! does not look.
//!
//! A response takes longer: the peer has to be woken too, which takes a processor that sleeps 20 to
//! 30 us. Where applications ask and answer in turns, the endpoint looks for as long as that. It
//! finds a response that is given at once, and a peer that does the same need not be woken any
//! more.

use super::Why;

/// Sleeps without a look, at most, after a look for a stream that was in vain.
const UNLOOKED_MAX: u32 = 63;

/// The same for responses. Where both ends share a processor a look holds up the peer, for longer
/// than a round trip takes: that may happen to one round trip in thousands.
const UNLOOKED_MAX_FOR_RESPONSES: u32 = 4095;

/// Rounds of looks for a response: some 50 us in all.
const ROUNDS_FOR_RESPONSE: u32 = 5;

/// Record of looks: how they went, and the present one.
#[derive(Debug, Default)]
pub(super) struct Spinning {
    for_streams: Habit,
    for_responses: Habit,
    /// Something has arrived since the last look.
    has_arrived: bool,
    /// Rounds that are left of the look that was begun, and whether it is for a response.
    rounds: u32,
    is_for_response: bool,
}

/// Success of the last looks of a kind.
#[derive(Debug, Default)]
struct Habit {
    /// Sleeps without a look after the next that is in vain: half of what they will be then.
    unlooked: u32,
    /// Those that are left.
    left: u32,
}

impl Spinning {
    /// Something has arrived.
    pub fn on_arrival(&mut self) {
        self.has_arrived = true;
    }

    /// True if another round of looks is worth it, now that there is nothing to do but to sleep.
    /// `is_response_due` = applications have heard something and said something since this was last
    /// so. `would_nap` = nobody would have to wake a sleeper now.
    pub fn is_worth_it(&mut self, is_response_due: bool, would_nap: bool) -> bool {
        // An endpoint that a timer has woken expects nothing.
        if core::mem::take(&mut self.has_arrived) || is_response_due {
            self.is_for_response = is_response_due;
            self.rounds = match (self.habit().is_due(), is_response_due) {
                (true, true) => ROUNDS_FOR_RESPONSE,
                (true, false) if !would_nap => 1,
                _ => 0,
            };
        }
        self.rounds > 0
    }

    /// Purpose of the present look.
    pub fn why(&self) -> Why {
        if self.is_for_response { Why::Response } else { Why::Stream }
    }

    /// This round has found something; `at_once` = its first look has.
    pub fn on_found(&mut self, at_once: bool) {
        self.has_arrived = true;
        // A response that was there before the look proves nothing: where both ends share a
        // processor it is there then, or not before the look ends.
        let was_there = self.is_for_response && self.rounds == ROUNDS_FOR_RESPONSE && at_once;
        if !was_there {
            self.habit().on_found();
        }
        self.rounds = 0;
    }

    /// There was nothing in this round.
    pub fn on_missed(&mut self) {
        self.rounds = self.rounds.saturating_sub(1);
        if self.rounds == 0 {
            let most = if self.is_for_response { UNLOOKED_MAX_FOR_RESPONSES } else { UNLOOKED_MAX };
            self.habit().on_missed(most);
        }
    }

    /// All looks have been in vain.
    #[cfg(test)]
    pub fn in_vain() -> Self {
        let habit = || Habit { unlooked: UNLOOKED_MAX, left: u32::MAX };
        Spinning { for_streams: habit(), for_responses: habit(), ..Spinning::default() }
    }

    fn habit(&mut self) -> &mut Habit {
        if self.is_for_response { &mut self.for_responses } else { &mut self.for_streams }
    }
}

impl Habit {
    fn is_due(&mut self) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due
    }

    fn on_found(&mut self) {
        self.unlooked /= 2;
    }

    fn on_missed(&mut self, most: u32) {
        self.unlooked = (2 * self.unlooked + 1).min(most);
        self.left = self.unlooked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks for so many arrivals, each of which the look before it finds or does not.
    fn looks(spinning: &mut Spinning, arrivals: u32, mut finds: impl FnMut(u32) -> bool) -> u32 {
        let mut looks = 0;
        for n in 0..arrivals {
            spinning.on_arrival();
            while spinning.is_worth_it(false, false) {
                looks += 1;
                if finds(n) {
                    spinning.on_found(false);
                    break;
                }
                spinning.on_missed();
            }
        }
        looks
    }

    #[test]
    fn a_stream_is_looked_for_and_what_comes_now_and_then_hardly_ever() {
        let mut spinning = Spinning::default();
        assert!(!spinning.is_worth_it(false, false), "nothing has arrived");
        assert_eq!(looks(&mut spinning, 1000, |_| true), 1000);
        let in_vain = looks(&mut spinning, 6400, |_| false);
        assert!((100..=110).contains(&in_vain), "{in_vain} looks for 6400 arrivals");
        // When it streams again, that is found out by the next few looks.
        let again = looks(&mut spinning, 1000, |_| true);
        assert!(again > 850, "{again} looks for 1000 arrivals");
    }

    /// Where both ends share a processor a look holds the response up: that may happen to no more
    /// than one in a thousand.
    #[test]
    fn responses_that_no_look_finds_are_hardly_ever_looked_for() {
        let mut spinning = Spinning::default();
        let mut looks = |responses: u32, finds: bool| {
            let mut looks = 0;
            for _ in 0..responses {
                looks += u32::from(spinning.is_worth_it(true, false));
                while spinning.rounds > 0 {
                    if finds { spinning.on_found(false) } else { spinning.on_missed() }
                }
            }
            looks
        };
        // The first few, that it is so.
        assert_eq!(looks(4095, false), 12);
        assert_eq!(looks(40 * 4096, false), 40);
        // Once they pay they are taken up again.
        let again = looks(10_000, true);
        assert!(again > 5_900, "{again} of 10,000");
    }

    #[test]
    fn a_look_in_vain_now_and_then_ends_nothing() {
        let mut spinning = Spinning::default();
        let looks = looks(&mut spinning, 1000, |n| n % 4 != 0);
        assert!(looks > 600, "{looks} looks for 1000 arrivals");
    }

    /// An end at which applications ask and answer.
    #[derive(Default)]
    struct End {
        spinning: Spinning,
        sleeps: u32,
    }

    impl End {
        /// Hears something, answers, and waits for the response to that. It is there after so many
        /// rounds, to be found by the first look of one (`at_once`) or a later one. Says whether it
        /// was found without sleeping.
        fn converse(&mut self, rounds: u32, at_once: bool) -> bool {
            self.spinning.on_arrival();
            let mut round = 0;
            while self.spinning.is_worth_it(round == 0, false) {
                if round == rounds {
                    self.spinning.on_found(at_once);
                    return true;
                }
                self.spinning.on_missed();
                round += 1;
            }
            self.sleeps += 1;
            false
        }
    }

    /// With a processor each, both soon stop sleeping, although at first each waits for the other
    /// to be woken.
    #[test]
    fn two_ends_that_answer_at_once_find_each_other_awake() {
        let (mut here, mut there) = (End::default(), End::default());
        // Both have found that others did not answer soon.
        for end in [&mut here, &mut there] {
            (0..1000).for_each(|_| assert!(!end.converse(u32::MAX, false)));
            end.sleeps = 0;
        }
        let mut is_awake = [false; 2];
        for _ in 0..2000 {
            // To wake a processor takes three rounds.
            is_awake[0] = here.converse(if is_awake[1] { 0 } else { 3 }, false);
            is_awake[1] = there.converse(if is_awake[0] { 0 } else { 3 }, false);
        }
        assert_eq!(is_awake, [true; 2]);
        let most = UNLOOKED_MAX_FOR_RESPONSES + 1;
        assert!(here.sleeps <= most && there.sleeps <= most, "{} and {} sleeps", here.sleeps, there.sleeps);
    }

    /// On one processor nothing is gained by keeping the other from answering.
    #[test]
    fn ends_that_share_a_processor_sleep() {
        let mut end = End::default();
        for n in 0..25_600 {
            let was_there = n % 4 != 0;
            end.converse(if was_there { 0 } else { u32::MAX }, true);
        }
        assert!(end.sleeps > 25_000, "{} sleeps for 25600 responses", end.sleeps);
    }

    /// Requests that are answered late, and data that streams in, do not learn from each other.
    #[test]
    fn late_responses_end_no_look_for_a_stream() {
        let mut end = End::default();
        (0..1000).for_each(|_| assert!(!end.converse(u32::MAX, false)));
        assert_eq!(looks(&mut end.spinning, 1000, |_| true), 1000);
    }
}
