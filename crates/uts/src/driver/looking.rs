//! Whether to look for more before sleeping.
//!
//! Who sleeps has to be woken, which costs the sender of what arrives as much as the receiver: some microseconds each, more than
//! taking in a packet. Where data streams in, the next batch is there sooner than that. So the task looks for it for about as
//! long as being woken would cost, and, where that was in vain, more rarely: a stream that is slower costs a look for each 64
//! sleeps. Where so much streams in that the task naps (`napping.rs`) nobody has to wake it, and it does not look.
//!
//! Whoever waits for an answer waits for his peer to be woken, too, which takes a processor that sleeps 20 to 30 us. Where
//! applications talk, one after the other, the task looks for as long as that: it will find an answer given at once, and a peer
//! that does the same need not be woken any more.

/// Sleeps without a look, at most, after one that was in vain.
const UNLOOKED_MAX: u32 = 63;

/// The same of looks for answers. These last longer than a round trip where both ends share a processor, which each of them holds up:
/// that is to be one round trip in thousands.
const UNLOOKED_MAX_OF_TALK: u32 = 4095;

/// Rounds of a look for the answer to what was just said: some 50 us in all.
const ROUNDS_OF_TALK: u32 = 5;

/// How looks went, and what is going on.
#[derive(Debug, Default)]
pub(super) struct Looking {
    stream: Habit,
    talk: Habit,
    /// Something has arrived since the last look.
    has_arrived: bool,
    /// Rounds that are left of the look that was begun, and whether it is for an answer.
    rounds: u32,
    is_for_answer: bool,
}

/// What became of the last looks of a kind.
#[derive(Debug, Default)]
struct Habit {
    /// Sleeps without a look after the next that is in vain: half of what they will be then.
    unlooked: u32,
    /// Those that are left.
    left: u32,
}

impl Looking {
    /// Something has arrived, by sleeping or otherwise.
    pub fn on_arrival(&mut self) {
        self.has_arrived = true;
    }

    /// Whether to look for another round, now that there is nothing else to do but to sleep. `is_talk` = applications have heard
    /// something and said something since this was last so: an answer is to come. `naps` = nobody would have to wake who sleeps now.
    pub fn is_worth_it(&mut self, is_talk: bool, naps: bool) -> bool {
        // Whoever was woken by a timer expects nothing.
        if core::mem::take(&mut self.has_arrived) || is_talk {
            self.is_for_answer = is_talk;
            self.rounds = match (self.habit().is_due(), is_talk) {
                (true, true) => ROUNDS_OF_TALK,
                (true, false) if !naps => 1,
                _ => 0,
            };
        }
        self.rounds > 0
    }

    /// This round has found something; `at_once` = its first look has.
    pub fn on_found(&mut self, at_once: bool) {
        self.has_arrived = true;
        // An answer that was there before the look proves nothing: where both ends share a processor, it is there then, or not
        // before the look ends.
        let was_there = self.is_for_answer && self.rounds == ROUNDS_OF_TALK && at_once;
        if !was_there {
            self.habit().on_found();
        }
        self.rounds = 0;
    }

    /// There was nothing in this round.
    pub fn on_missed(&mut self) {
        self.rounds = self.rounds.saturating_sub(1);
        if self.rounds == 0 {
            let most = if self.is_for_answer { UNLOOKED_MAX_OF_TALK } else { UNLOOKED_MAX };
            self.habit().on_missed(most);
        }
    }

    /// All have been in vain.
    #[cfg(all(test, target_os = "linux"))]
    pub fn in_vain() -> Self {
        let habit = || Habit { unlooked: UNLOOKED_MAX, left: u32::MAX };
        Looking { stream: habit(), talk: habit(), ..Looking::default() }
    }

    /// Whether the round is for an answer.
    #[cfg(test)]
    pub fn is_for_answer(&self) -> bool {
        self.is_for_answer
    }

    fn habit(&mut self) -> &mut Habit {
        if self.is_for_answer { &mut self.talk } else { &mut self.stream }
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
    use crate::driver::Counts;
    use crate::driver::testing::Strayed;
    use crate::{Chunk, ConnectOptions, FlowOptions, Identity, Listener, ServerOptions, connect};
    use bytes::Bytes;
    use core::task::Poll;
    use core::time::Duration;
    use std::future::poll_fn;

    /// Looks for so many arrivals, each of which the look before it finds or does not.
    fn looks(looking: &mut Looking, arrivals: u32, mut finds: impl FnMut(u32) -> bool) -> u32 {
        let mut looks = 0;
        for n in 0..arrivals {
            looking.on_arrival();
            while looking.is_worth_it(false, false) {
                looks += 1;
                if finds(n) {
                    looking.on_found(false);
                    break;
                }
                looking.on_missed();
            }
        }
        looks
    }

    #[test]
    fn a_stream_is_looked_for_and_what_comes_now_and_then_hardly_ever() {
        let mut looking = Looking::default();
        assert!(!looking.is_worth_it(false, false), "nothing has arrived");
        assert_eq!(looks(&mut looking, 1000, |_| true), 1000);
        let in_vain = looks(&mut looking, 6400, |_| false);
        assert!((100..=110).contains(&in_vain), "{in_vain} looks for 6400 arrivals");
        // When it streams again, that is found out by the next few looks.
        let again = looks(&mut looking, 1000, |_| true);
        assert!(again > 850, "{again} looks for 1000 arrivals");
    }

    /// Where both ends share a processor a look holds the answer up: that may happen to no more than one in a thousand.
    #[test]
    fn answers_that_no_look_finds_are_hardly_ever_looked_for() {
        let mut looking = Looking::default();
        let mut looks = |answers: u32, finds: bool| {
            let mut looks = 0;
            for _ in 0..answers {
                looks += u32::from(looking.is_worth_it(true, false));
                while looking.rounds > 0 {
                    if finds { looking.on_found(false) } else { looking.on_missed() }
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

    /// The task asks before it sleeps, looks if that is worth it, and says what came of it. Every datagram is sent while it sleeps,
    /// so that each look is in vain.
    #[tokio::test]
    async fn the_task_looks_before_it_sleeps() {
        let mut strayed = Strayed::new(Duration::ZERO, Looking::default());
        let (mut sent, mut arrived, mut looked) = (0, 0, Vec::new());
        let sequence = poll_fn(|cx| {
            let sleeps = strayed.sleeps(cx);
            if core::mem::replace(&mut arrived, strayed.arrived()) < strayed.arrived() {
                looked.push(!sleeps);
            }
            if sleeps && arrived == sent {
                if sent == 7 {
                    return Poll::Ready(());
                }
                sent += 1;
                strayed.send(cx);
            }
            Poll::Pending
        });
        tokio::time::timeout(Duration::from_secs(60), sequence).await.expect("it is woken by what arrives");
        assert_eq!(looked, [true, false, true, false, false, false, true]);
    }

    /// Where one application has heard and another, or the same, has said something, the task looks for an answer.
    #[tokio::test]
    async fn the_task_looks_longer_for_an_answer() {
        let mut strayed = Strayed::new(Duration::ZERO, Looking::default());
        let mut rounds = Vec::new();
        for (has_heard, has_said) in [(false, false), (false, true), (true, false), (true, true)] {
            strayed.shared.lock().has_heard |= has_heard;
            strayed.shared.lock().has_said |= has_said;
            let mut looks = 0;
            let sequence = poll_fn(|cx| {
                if strayed.sleeps(cx) {
                    return Poll::Ready(looks);
                }
                looks += 1;
                Poll::Pending
            });
            let limit = Duration::from_secs(60);
            rounds.push(tokio::time::timeout(limit, sequence).await.expect("it sleeps after some looks"));
        }
        // What was said is remembered until something is heard, so that the third is an answer, too.
        assert_eq!(rounds, [0, 0, ROUNDS_OF_TALK, 0]);
    }

    /// What the tasks of two ends do while these ask and answer so often.
    async fn counts_of_talk(spin: Duration, rounds: u32) -> [Counts; 2] {
        let mut options = ServerOptions::new(Identity::generate().expect("a key"));
        options.spin = spin;
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), options).expect("bound");
        let (to, mut options) =
            (listener.local_addr().to_string(), ConnectOptions::pinned(listener.fingerprint()));
        options.spin = spin;
        let talk = async {
            let (client, server) = tokio::join!(connect(&to, options), listener.accept());
            let (client, server) = (client.expect("connected"), server.expect("accepted"));
            let mut asking = client.open_flow(FlowOptions::default()).await.expect("opened");
            asking.send_half().write_bytes(Bytes::from_static(b"?")).await.expect("written");
            let mut answering = server.accept_flow().await.expect("a flow");
            for _ in 0..rounds {
                let question = answering.recv_half().recv_chunk(1).await.expect("read");
                assert!(matches!(question, Some(Chunk::Bytes(..))));
                answering.send_half().write_bytes(Bytes::from_static(b"!")).await.expect("written");
                assert!(asking.recv_half().recv_chunk(1).await.expect("read").is_some());
                asking.send_half().write_bytes(Bytes::from_static(b"?")).await.expect("written");
            }
            [client, server].map(|end| end.shared().lock().counts)
        };
        tokio::time::timeout(Duration::from_secs(60), talk).await.expect("an answer to each")
    }

    /// Reading and writing flows is what makes a talk.
    #[tokio::test]
    async fn who_writes_after_reading_has_the_task_look_for_an_answer() {
        let counts = counts_of_talk(Duration::ZERO, 10).await;
        assert!(counts.iter().all(|counts| counts.rounds_for_answers > 0), "{counts:?}");
    }

    /// Where looking was asked for, the task stays awake while those answer whom it has woken, and what they say leaves before the
    /// next look.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn answers_leave_before_the_next_look_and_without_sleep() {
        const ROUNDS: u32 = 200;
        for counts in counts_of_talk(Duration::from_secs(60), ROUNDS).await {
            // But for the beginning, while the socket is still watched.
            assert!(counts.sleeps < ROUNDS / 10, "{counts:?}");
            assert!(counts.looks_before_answers < ROUNDS / 10, "{counts:?}");
        }
    }

    /// A look that has found all there was is not followed by another before what is to be sent has left.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn nobody_looks_twice_for_the_same() {
        let mut strayed = Strayed::new(Duration::from_secs(60), Looking::default());
        let cx = &mut core::task::Context::from_waker(core::task::Waker::noop());
        strayed.send(cx);
        while strayed.task.socket.is_watched() {
            assert!(!strayed.sleeps(cx));
        }
        let looks = |strayed: &Strayed| strayed.shared.lock().counts.looks;
        strayed.send(cx);
        let has_found = (0..1_000_000).any(|_| strayed.task.spin(1).expect("a look"));
        assert!(has_found);
        let before = looks(&strayed);
        assert!(!strayed.sleeps(cx));
        assert_eq!(looks(&strayed), before);
        assert!(!strayed.sleeps(cx));
        assert_eq!(looks(&strayed), before + 1);
        assert_eq!(strayed.arrived(), 2);
    }

    #[test]
    fn a_look_in_vain_now_and_then_ends_nothing() {
        let mut looking = Looking::default();
        let looks = looks(&mut looking, 1000, |n| n % 4 != 0);
        assert!(looks > 600, "{looks} looks for 1000 arrivals");
    }

    /// An end of a talk.
    #[derive(Default)]
    struct End {
        looking: Looking,
        sleeps: u32,
    }

    impl End {
        /// Hears something, answers, and waits for the answer to that, which is there after so many rounds, to be found by their
        /// first look or a later one. Says whether it was found without sleeping.
        fn converse(&mut self, rounds: u32, at_once: bool) -> bool {
            self.looking.on_arrival();
            let mut round = 0;
            while self.looking.is_worth_it(round == 0, false) {
                if round == rounds {
                    self.looking.on_found(at_once);
                    return true;
                }
                self.looking.on_missed();
                round += 1;
            }
            self.sleeps += 1;
            false
        }
    }

    /// With a processor each, both soon stop sleeping, although at first each waits for the other to be woken.
    #[test]
    fn who_talks_finds_the_other_awake() {
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
        let most = UNLOOKED_MAX_OF_TALK + 1;
        assert!(here.sleeps <= most && there.sleeps <= most, "{} and {} sleeps", here.sleeps, there.sleeps);
    }

    /// On one processor nothing is gained by keeping the other from answering.
    #[test]
    fn who_shares_a_processor_sleeps() {
        let mut end = End::default();
        for n in 0..25_600 {
            let was_there = n % 4 != 0;
            end.converse(if was_there { 0 } else { u32::MAX }, true);
        }
        assert!(end.sleeps > 25_000, "{} sleeps for 25600 answers", end.sleeps);
    }

    /// Requests that are answered late, and data that streams in, do not learn from each other.
    #[test]
    fn late_answers_end_no_look_for_a_stream() {
        let mut end = End::default();
        (0..1000).for_each(|_| assert!(!end.converse(u32::MAX, false)));
        assert_eq!(looks(&mut end.looking, 1000, |_| true), 1000);
    }
}
