//! Decision of an endpoint on how to wait for what arrives.
//!
//! An endpoint that has nothing to do may look at its socket again and again (spinning), sleep
//! until something arrives, sleep by the clock through what arrives (interrupt moderation), or have
//! the kernel poll the network interface (busy polling). Each is the cheapest in some situation.
//! [`Waiting`] is told what happens and says which it is now. It knows no socket, no clock and no
//! runtime: times are handed in.
//!
//! * [`spinning`]: whether to look before sleeping;
//! * [`moderation`]: whether to sleep through arrivals;
//! * [`busy_polling`]: whether the kernel is to poll the network interface meanwhile;
//! * [`receive_timeout`]: for how long a call that receives may block;
//! * [`dialogue`]: whether the applications are in the middle of requests and responses.

mod busy_polling;
mod dialogue;
mod moderation;
mod receive_timeout;
mod spinning;

use busy_polling::BusyPolling;
use core::time::Duration;
pub(crate) use dialogue::Dialogue;
use moderation::Moderation;
use receive_timeout::ReceiveTimeout;
use spinning::Spinning;
use uts_functions::Time;

/// Looks of a spin that the application has asked for, before other tasks have their turn: some 25
/// us.
const LOOKS_ASKED_FOR: usize = 48;

/// Looks of a spin that has paid of late: some 10 us. To have a sleeper woken costs both ends about
/// as much.
const LOOKS_THAT_PAY: usize = 24;

/// Time within which a blocking call ends if its datagrams arrived before it. More may have arrived
/// then.
const AT_ONCE: Duration = Duration::from_micros(2);

/// Way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Not at all: something is due.
    Not,
    /// Look so often for what arrives.
    Spin {
        /// Number of looks.
        looks: usize,
        /// Purpose of the spin.
        why: Why,
    },
    /// Sleep until then, whatever arrives.
    Nap(Time),
    /// Sleep until something arrives, until then at most.
    Sleep(Time),
    /// The same, in a call that has the kernel poll the network interface. Only for
    /// [`Sleeper::Thread`].
    BusyPoll(Time),
}

/// Why an endpoint spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The application has asked for it.
    Asked,
    /// The peer's response is to come.
    Response,
    /// Data streams in.
    Stream,
}

/// Kind of task or thread that sleeps while nothing is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleeper {
    /// A task. The runtime's reactor and a timer wake it.
    Task,
    /// A thread that carries no other endpoint. It may block in the call that receives.
    Thread,
    /// A thread that carries several endpoints. It waits for all their sockets at once.
    SharedThread,
}

/// Situation that decides on the way to wait, beside what has happened before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    /// The time.
    pub now: Time,
    /// When something is due.
    pub until: Time,
    pub sleeper: Sleeper,
    /// Tasks of the application were just woken: they have their turn before any look.
    pub has_woken: bool,
}

/// Record of an endpoint's past, as far as it matters for the way to wait.
#[derive(Debug)]
pub(super) struct Waiting {
    /// For how long after anything happens the application has asked for spinning.
    spin: Duration,
    /// When something last arrived or left.
    active_at: Time,
    spinning: Spinning,
    moderation: Moderation,
    busy_polling: BusyPolling,
    receive_timeout: ReceiveTimeout,
}

impl Waiting {
    /// `spin` = for how long to spin after anything happens; zero = only while that pays.
    /// `buffer_bytes` = what the socket holds while nobody receives; 0 = never to nap. `tick` = by
    /// which the kernel measures how long a call that receives blocks.
    pub fn new(now: Time, spin: Duration, buffer_bytes: usize, tick: Duration) -> Self {
        Waiting {
            spin,
            active_at: now,
            spinning: Spinning::default(),
            moderation: Moderation::new(now, buffer_bytes),
            busy_polling: BusyPolling::new(now),
            receive_timeout: ReceiveTimeout::new(tick),
        }
    }

    /// So many bytes have arrived.
    pub fn on_arrival(&mut self, at: Time, bytes: usize) {
        self.active_at = at;
        self.spinning.on_arrival();
        self.moderation.on_arrival(bytes);
        self.busy_polling.on_arrival(bytes);
    }

    /// Something has left.
    pub fn on_sent(&mut self, at: Time) {
        self.active_at = at;
    }

    /// A spin has found something; `at_once` = by its first look.
    pub fn on_spin_found(&mut self, at_once: bool) {
        self.spinning.on_found(at_once);
    }

    /// A spin has found nothing.
    pub fn on_spin_missed(&mut self) {
        self.spinning.on_missed();
    }

    /// The system does not let this process busy-poll.
    pub fn on_busy_polling_refused(&mut self) {
        self.busy_polling.give_up();
    }

    /// Way to wait, where there is nothing to do before `until`. To be asked before each wait.
    pub fn next(&mut self, situation: Situation, dialogue: &mut Dialogue) -> Wait {
        let Situation { now, until, sleeper, has_woken } = situation;
        if until <= now {
            return Wait::Not;
        }
        if now.since(self.active_at) < self.spin {
            return Wait::Spin { looks: LOOKS_ASKED_FOR, why: Why::Asked };
        }
        if !has_woken {
            let is_response_due = dialogue.take_exchange();
            let would_nap =
                self.moderation.streams() && !dialogue.awaits_response() && sleeper != Sleeper::SharedThread;
            if self.spinning.is_worth_it(is_response_due, would_nap) {
                return Wait::Spin { looks: LOOKS_THAT_PAY, why: self.spinning.why() };
            }
        }
        self.sleep(situation, dialogue)
    }

    /// For how long a call that receives may block, so that it ends within `most`. `None` = the
    /// kernel cannot measure so short a time: it has to be waited for otherwise.
    pub fn receive_timeout(&mut self, most: Duration) -> Option<Duration> {
        self.receive_timeout.within(most)
    }

    /// True if more may have arrived than was brought by a blocking call that began and ended then.
    /// A response comes alone.
    pub fn may_be_more(began: Time, ended: Time, is_response: bool) -> bool {
        !is_response && ended.since(began) < AT_ONCE
    }

    /// Way to sleep.
    fn sleep(&mut self, situation: Situation, dialogue: &Dialogue) -> Wait {
        let Situation { now, until, sleeper, .. } = situation;
        if sleeper == Sleeper::SharedThread {
            return Wait::Sleep(until);
        }
        // A response is to wake who waits for it.
        let nap = if dialogue.awaits_response() { None } else { self.moderation.until(now) };
        let busy_polls =
            sleeper == Sleeper::Thread && self.busy_polling.polls(now, self.moderation.streams());
        match nap {
            None => Wait::Sleep(until),
            Some(_) if busy_polls && self.receive_timeout.is_possible(until.since(now)) => {
                Wait::BusyPoll(until)
            }
            Some(nap) => Wait::Nap(nap.min(until)),
        }
    }
}

#[cfg(test)]
impl Waiting {
    /// Has data stream in, or not, for ever.
    pub fn set_streams(&mut self, streams: bool) {
        self.moderation = Moderation::set(streams);
    }

    /// Has busy polling pay, or not, for ever.
    pub fn set_busy_polls(&mut self, polls: bool) {
        self.busy_polling = BusyPolling::set(polls);
    }

    /// All spins so far were in vain, or there were none; something has arrived, or nothing has.
    pub fn set_spins(&mut self, in_vain: bool, has_arrived: bool) {
        self.spinning = if in_vain { Spinning::in_vain() } else { Spinning::default() };
        if has_arrived {
            self.spinning.on_arrival();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Event or question, at a time.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// So many bytes arrive.
        Arrives(usize),
        /// A spin finds nothing.
        Misses,
        /// A spin finds something, by a later look than its first.
        Finds,
        /// An application is told of data.
        Told,
        /// An application writes.
        Writes,
        /// The endpoint waits for as long as it may. This is how.
        Waits(Wait),
        /// The same, where applications were just woken.
        WaitsBehindWoken(Wait),
    }
    use Step::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1000 * micros)
    }

    fn spin(why: Why) -> Wait {
        Wait::Spin { looks: if why == Why::Asked { LOOKS_ASKED_FOR } else { LOOKS_THAT_PAY }, why }
    }

    fn sleep() -> Wait {
        Wait::Sleep(Time::NEVER)
    }

    fn waiting(spin: Duration) -> Waiting {
        Waiting::new(Time::ZERO, spin, 8 << 20, 4 * MS)
    }

    /// Goes through a table of times, in microseconds, and of steps.
    fn run(mut waiting: Waiting, sleeper: Sleeper, steps: &[(u64, Step)]) {
        let mut dialogue = Dialogue::default();
        for &(micros, step) in steps {
            let now = at(micros);
            let situation = Situation { now, until: Time::NEVER, sleeper, has_woken: false };
            match step {
                Arrives(bytes) => waiting.on_arrival(now, bytes),
                Misses => waiting.on_spin_missed(),
                Finds => waiting.on_spin_found(false),
                Told => dialogue.on_told(),
                Writes => dialogue.on_written(),
                Waits(wait) => assert_eq!(waiting.next(situation, &mut dialogue), wait, "at {micros} us"),
                WaitsBehindWoken(wait) => {
                    let situation = Situation { has_woken: true, ..situation };
                    assert_eq!(waiting.next(situation, &mut dialogue), wait, "at {micros} us");
                }
            }
        }
    }

    #[test]
    fn an_endpoint_sleeps_until_something_is_due() {
        let (mut waiting, mut dialogue) = (waiting(Duration::ZERO), Dialogue::default());
        for (now, until, wait) in [(0, 5, Wait::Sleep(at(5))), (5, 5, Wait::Not), (9, 5, Wait::Not)] {
            let situation =
                Situation { now: at(now), until: at(until), sleeper: Sleeper::Task, has_woken: false };
            assert_eq!(waiting.next(situation, &mut dialogue), wait, "{now} {until}");
        }
    }

    #[test]
    fn it_looks_once_for_a_stream_and_more_rarely_after_looks_in_vain() {
        let looks = Waits(spin(Why::Stream));
        run(
            waiting(Duration::ZERO),
            Sleeper::Task,
            &[
                (0, Waits(sleep())),
                (10, Arrives(1000)),
                (10, looks),
                (20, Misses),
                (20, Waits(sleep())),
                (90, Arrives(1000)),
                (90, Waits(sleep())),
                (170, Arrives(1000)),
                (170, looks),
                (175, Arrives(1000)),
                (175, Finds),
                (175, looks),
            ],
        );
    }

    /// Its first look is left to those applications that were just woken; the arrival is not
    /// forgotten.
    #[test]
    fn it_does_not_look_before_those_whom_it_has_woken() {
        run(
            waiting(Duration::ZERO),
            Sleeper::Task,
            &[(10, Arrives(1000)), (10, WaitsBehindWoken(sleep())), (30, Waits(spin(Why::Stream)))],
        );
    }

    #[test]
    fn it_looks_five_times_as_long_for_a_response() {
        let looks = Waits(spin(Why::Response));
        let five = [(30, looks), (40, Misses)].repeat(5);
        let exchange = [(10, Arrives(100)), (10, Told), (20, Writes)];
        run(
            waiting(Duration::ZERO),
            Sleeper::Task,
            &[&exchange[..], &five, &[(80, Waits(sleep()))]].concat(),
        );
    }

    #[test]
    fn it_spins_for_as_long_as_was_asked_whomever_it_has_woken() {
        let asked = spin(Why::Asked);
        run(
            waiting(MS),
            Sleeper::Task,
            &[
                (10, Arrives(100)),
                (900, Waits(asked)),
                (1000, WaitsBehindWoken(asked)),
                (1009, Waits(asked)),
                (1010, WaitsBehindWoken(sleep())),
            ],
        );
    }

    /// At 5 Gbit/s. All looks before were in vain, and without naps this would sleep until
    /// something arrives.
    #[test]
    fn it_naps_through_a_stream_but_not_while_a_response_is_to_come() {
        for (sleeper, naps) in
            [(Sleeper::Task, true), (Sleeper::Thread, true), (Sleeper::SharedThread, false)]
        {
            let mut waiting = waiting(Duration::ZERO);
            waiting.set_spins(true, false);
            waiting.set_busy_polls(false);
            let nap = |micros: u64| if naps { Wait::Nap(at(micros + 200)) } else { sleep() };
            run(
                waiting,
                sleeper,
                &[
                    (100, Arrives(62_500)),
                    (100, Waits(nap(100))),
                    (300, Arrives(125_000)),
                    (300, Waits(nap(300))),
                    (310, Writes),
                    (310, Waits(sleep())),
                    (500, Arrives(125_000)),
                    (500, Told),
                    // The exchange makes a look for a response, of which none is due either.
                    (500, Waits(nap(500))),
                    (700, Waits(sleep())),
                ],
            );
        }
    }

    /// A nap and a call that polls end before what is due, and the call's time is measured in
    /// ticks.
    #[test]
    fn a_thread_polls_through_a_stream_where_that_pays_and_the_kernel_can_measure_it() {
        for (sleeper, polls, until, wait) in [
            (Sleeper::Thread, true, 12_000, Wait::BusyPoll(at(12_000))),
            (Sleeper::Thread, true, 11_900, Wait::Nap(at(200))),
            (Sleeper::Thread, true, 150, Wait::Nap(at(150))),
            (Sleeper::Thread, false, 12_000, Wait::Nap(at(200))),
            (Sleeper::Task, true, 12_000, Wait::Nap(at(200))),
            (Sleeper::SharedThread, true, 12_000, Wait::Sleep(at(12_000))),
        ] {
            let mut waiting = waiting(Duration::ZERO);
            waiting.set_streams(true);
            waiting.set_busy_polls(polls);
            let situation = Situation { now: Time::ZERO, until: at(until), sleeper, has_woken: false };
            let next = waiting.next(situation, &mut Dialogue::default());
            assert_eq!(next, wait, "{sleeper:?} {polls} {until}");
            waiting.on_busy_polling_refused();
            let next = waiting.next(situation, &mut Dialogue::default());
            assert!(!matches!(next, Wait::BusyPoll(_)), "{sleeper:?} {polls} {until}");
        }
    }

    #[test]
    fn what_a_call_brings_at_once_is_followed_by_more_unless_it_is_a_response() {
        for (micros, is_response, may_be_more) in [(1, false, true), (1, true, false), (2, false, false)] {
            assert_eq!(Waiting::may_be_more(Time::ZERO, at(micros), is_response), may_be_more);
        }
    }

    #[test]
    fn an_exchange_is_something_heard_and_something_said() {
        let mut dialogue = Dialogue::default();
        for (step, is_exchange, has_response, awaits_response) in [
            (None, false, false, false),
            (Some(Told), false, false, false),
            (Some(Writes), true, true, false),
            (None, false, false, false),
            (Some(Writes), false, false, true),
            (Some(Told), true, false, false),
        ] {
            match step {
                Some(Told) => dialogue.on_told(),
                Some(_) => dialogue.on_written(),
                None => {}
            }
            let found = (dialogue.take_exchange(), dialogue.take_response(), dialogue.awaits_response());
            assert_eq!(found, (is_exchange, has_response, awaits_response), "{step:?}");
        }
    }
}
