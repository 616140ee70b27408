//! Decision to have the kernel poll the network interface while a thread waits for what arrives
//! (busy polling).
//!
//! Some processor takes packets from the interface, joins them and puts them into the socket's
//! queue. It is the one that the interface interrupts; between two network namespaces it is the
//! sender's own, which then sends less. A thread that blocks in the call that receives can have the
//! kernel do that work there and then (`SO_BUSY_POLL` of Linux, with interfaces that join packets).
//! That keeps its processor busy. So while data streams in, both ways are tried in turns now and
//! then, and polling goes on only where it brings more.

use core::time::Duration;
use uts_functions::Time;

/// Duration of a trial: some dozens of batches at 2.6 Gbit/s, below which nothing streams.
const TRIAL: Duration = Duration::from_millis(4);

/// Which trials of a comparison poll. Neither way gains by a rate that grows steadily meanwhile, as
/// that of a new connection does.
const TRIALS: [bool; 8] = [false, true, true, false, false, true, true, false];

/// Trials of either way.
const OF_EACH: usize = TRIALS.len() / 2;

/// Gain that polling has to bring: a sixteenth more.
const GAIN: (u64, u64) = (17, 16);

/// Time for which polling goes on before it is compared again.
const POLLS: Duration = Duration::from_secs(1);

/// Time for which polling is not tried after it has lost a comparison: the least after the first,
/// and twice as long after each other, up to the most.
const RESTS_MIN: Duration = Duration::from_millis(32);
const RESTS_MAX: Duration = Duration::from_secs(16);

/// Stage of the comparison of both ways, and what it has shown of late.
#[derive(Debug)]
pub(super) struct BusyPolling {
    stage: Stage,
    /// Time to rest after the next comparison that is lost.
    rests: Duration,
    /// Bytes that have arrived since the trial began.
    bytes: u64,
}

#[derive(Debug)]
enum Stage {
    /// The system does not let this process poll.
    Never,
    /// The finding holds until then.
    Settled { polls: bool, until: Time },
    /// The trial, since when, and what each so far has brought, in bytes a second: without polling,
    /// and with it.
    Comparing { trial: usize, since: Time, rates: [Vec<u64>; 2] },
}

impl BusyPolling {
    /// Nothing is known yet.
    pub fn new(now: Time) -> Self {
        BusyPolling { stage: Stage::Settled { polls: false, until: now }, rests: RESTS_MIN, bytes: 0 }
    }

    /// The finding holds for ever.
    #[cfg(test)]
    pub fn set(polls: bool) -> Self {
        let stage = Stage::Settled { polls, until: Time::NEVER };
        BusyPolling { stage, rests: RESTS_MIN, bytes: 0 }
    }

    /// Something has arrived.
    pub fn on_arrival(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// The system does not let this process poll.
    pub fn give_up(&mut self) {
        self.stage = Stage::Never;
    }

    /// True if the kernel is to poll during the wait that comes now; `streams` = data streams in.
    /// To be asked before each wait.
    pub fn polls(&mut self, now: Time, streams: bool) -> bool {
        match &mut self.stage {
            Stage::Never => false,
            // The rest of a comparison would be of something else.
            Stage::Comparing { .. } if !streams => {
                self.settle(now, false, RESTS_MIN);
                false
            }
            Stage::Settled { polls, until } => {
                let polls = *polls;
                if streams && now >= *until {
                    self.stage = Stage::Comparing { trial: 0, since: now, rates: Default::default() };
                    self.bytes = 0;
                    return TRIALS[0];
                }
                polls && streams
            }
            Stage::Comparing { trial, since, rates } => {
                let elapsed = now.since(*since);
                if elapsed < TRIAL {
                    return TRIALS[*trial];
                }
                let rate = u128::from(core::mem::take(&mut self.bytes)) * 1_000_000_000 / elapsed.as_nanos();
                rates[usize::from(TRIALS[*trial])].push(u64::try_from(rate).unwrap_or(u64::MAX / 64));
                (*trial, *since) = (*trial + 1, now);
                if let Some(polls) = TRIALS.get(*trial) {
                    return *polls;
                }
                let [without, with] = rates.each_mut().map(|rates| usual(rates));
                let is_faster = with * GAIN.1 > without * GAIN.0;
                tracing::debug!(with, without, is_faster, "whether to poll for what streams in");
                let rests = self.rests;
                self.rests = if is_faster { RESTS_MIN } else { (2 * rests).min(RESTS_MAX) };
                self.settle(now, is_faster, if is_faster { POLLS } else { rests });
                is_faster
            }
        }
    }

    fn settle(&mut self, now: Time, polls: bool, lasts: Duration) {
        self.stage = Stage::Settled { polls, until: now + lasts };
    }
}

/// Sum of the rates of trials, but for the best and the worst: a processor that is taken away for a
/// millisecond is to decide nothing, nor is what comes at once when it is back.
fn usual(rates: &mut [u64]) -> u64 {
    rates.sort_unstable();
    rates.iter().skip(1).take(OF_EACH - 2).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of the time that is spent polling, in thousandths, where a stream brings so many bytes
    /// a millisecond by either way.
    fn share(lasts: Duration, rate: impl Fn(Time, bool) -> u64) -> u64 {
        let (mut now, mut polling) = (Time::ZERO, BusyPolling::new(Time::ZERO));
        let (step, mut polled, mut steps) = (Duration::from_micros(200), 0, 0);
        while now < Time::ZERO + lasts {
            let polls = polling.polls(now, true);
            (polled, steps) = (polled + u64::from(polls), steps + 1);
            now += step;
            polling.on_arrival((rate(now, polls) / 5) as usize);
        }
        1000 * polled / steps
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn it_goes_on_only_where_that_brings_more() {
        let brings = |with: u64, without: u64| share(MINUTE, |_, polls| if polls { with } else { without });
        assert!(brings(1_500_000, 1_300_000) > 970);
        assert!(brings(1_400_000, 1_300_000) > 970);
        for (with, without) in [(1_350_000, 1_300_000), (1_300_000, 1_300_000), (900_000, 1_300_000)] {
            assert!(brings(with, without) < 5, "{with} {without}");
        }
    }

    /// Trials are worth their price in the first second, too.
    #[test]
    fn trying_takes_little_from_the_start() {
        assert!(share(Duration::from_secs(1), |_, _| 1_000_000) < 90);
        assert!(share(Duration::from_secs(1), |_, polls| if polls { 1_200_000 } else { 1_000_000 }) > 950);
    }

    /// A processor that is taken away now and then takes as much from either way, but not in each
    /// comparison.
    #[test]
    fn a_stall_decides_nothing() {
        let stalls = |now: Time, polls: bool| {
            let is_away = now.since(Time::ZERO).as_millis() % 29 < 2;
            if is_away {
                0
            } else if polls {
                1_400_000
            } else {
                1_300_000
            }
        };
        let share = share(MINUTE, stalls);
        assert!(share > 900, "{share}");
    }

    /// A connection that gets faster by itself does not do so because of polling.
    #[test]
    fn a_rate_that_grows_proves_nothing() {
        let grows = |now: Time, _| 300_000 + 20 * now.since(Time::ZERO).as_micros() as u64;
        assert!(share(Duration::from_millis(100), grows) < 340);
    }

    /// A change is found within a second: of the path, or of its other users.
    #[test]
    fn it_ends_when_it_brings_nothing_any_more() {
        let half = Time::ZERO + MINUTE / 2;
        let until_then = |now, polls| if polls && now < half { 1_300_000 } else { 1_000_000 };
        let share = share(MINUTE, until_then);
        assert!((480..=520).contains(&share), "{share}");
    }

    /// No processor is kept busy while nothing streams, or where the system does not allow it.
    #[test]
    fn a_thread_that_waits_for_little_does_not_poll() {
        let mut polling = BusyPolling::set(true);
        assert_eq!(
            [true, false, true].map(|streams| polling.polls(Time::ZERO, streams)),
            [true, false, true]
        );
        polling.give_up();
        assert!(!polling.polls(Time::ZERO, true));
        let (mut now, mut polling) = (Time::ZERO, BusyPolling::new(Time::ZERO));
        // A stream that ends while it is tried, again and again.
        for _ in 0..1000 {
            now += TRIAL;
            assert!(!polling.polls(now, true));
            now += TRIAL;
            polling.polls(now, true);
            assert!(!polling.polls(now, false));
        }
    }
}
