//! Knowledge of the way to hosts. The next connection to a host begins with it, and so does a
//! connection that comes back to that way. It is aged and bounded (RFC 9040; migration.md M-6).

use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use uts_functions::congestion::Summary;
use uts_functions::{Rate, Time};

/// Hosts that are remembered, at the most: some tens of kilobytes.
const HOSTS_MAX: usize = 256;

/// For how long: a path that has not been used for longer may be another (RFC 9040 section 6).
const AGE_MAX: Duration = Duration::from_secs(600);

/// A guess at the round trip is no shorter and no longer: a repeat must neither flood nor wait.
const RTT_BOUNDS: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(2)];

/// Knowledge that a connection has gained of the way to its peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Known {
    /// Smoothed round trip.
    pub smoothed: Duration,
    /// Its mean deviation.
    pub deviation: Duration,
    /// Time that the longest flight of its handshake and the answer took; zero = not known.
    pub flight: Duration,
    /// Summary that congestion control gave of itself.
    pub summary: Summary,
    /// When it was last true.
    pub at: Time,
}

impl Known {
    /// Part of it that is believed now; `None` if it is too old. The older it is, the wider the
    /// round trip and the smaller the rate.
    fn aged(&self, now: Time) -> Option<Known> {
        let age = now.since(self.at);
        let left = 1.0 - age.as_secs_f64() / AGE_MAX.as_secs_f64();
        let [least, most] = RTT_BOUNDS;
        (left > 0.0).then(|| Known {
            smoothed: self.smoothed.clamp(least, most),
            deviation: (self.deviation + self.smoothed.mul_f64(1.0 - left)).min(most),
            flight: self.flight.min(most),
            summary: Summary {
                window_bytes: (self.summary.window_bytes as f64 * left) as u64,
                bandwidth: self.summary.bandwidth.map(|rate: Rate| rate.mul_f64(left)),
                ..self.summary
            },
            at: self.at,
        })
    }

    /// The round trip to reckon with before any was measured.
    pub fn round_trip(&self) -> Duration {
        self.smoothed + self.deviation
    }

    /// Time to reckon with until a flight of a handshake is answered: its packets are long.
    pub fn flight_time(&self) -> Duration {
        self.flight.max(self.round_trip())
    }
}

/// Where this endpoint is: its ways to the same host differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Here {
    /// It has this address.
    Address(IpAddr),
    /// It has not said where. After so many moves that may be anywhere else.
    Unsaid { moves: u64 },
}

/// Knowledge of the ways to hosts.
#[derive(Debug)]
pub(super) struct History {
    here: Here,
    moves: u64,
    known: HashMap<(Here, IpAddr), Known>,
    /// In the order in which they were entered first.
    order: VecDeque<(Here, IpAddr)>,
}

impl Default for History {
    fn default() -> Self {
        let here = Here::Unsaid { moves: 0 };
        History { here, moves: 0, known: HashMap::new(), order: VecDeque::new() }
    }
}

impl History {
    /// The endpoint is at this address, if it says so.
    pub fn is_at(&mut self, local: Option<IpAddr>) {
        self.here = local.map_or(Here::Unsaid { moves: self.moves }, Here::Address);
    }

    /// The endpoint has moved there.
    pub fn on_moved(&mut self, local: Option<IpAddr>) {
        self.moves += 1;
        self.is_at(local);
    }

    /// Notes what a connection has learnt that was on the way from here to a host.
    pub fn note(&mut self, host: IpAddr, learnt: Known) {
        let way = (self.here, host);
        if self.known.insert(way, learnt).is_some() {
            return;
        }
        self.order.push_back(way);
        if self.order.len() > HOSTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Knowledge of the way from here to a host, as far as it is believed now.
    pub fn of(&self, host: IpAddr, now: Time) -> Option<Known> {
        self.known.get(&(self.here, host))?.aged(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn known(at: Time) -> Known {
        let summary = Summary { bandwidth: Some(Rate::from_bits_per_sec(1000)), ..Summary::initial(1200) };
        let [smoothed, deviation, flight] = [40, 4, 50].map(Duration::from_millis);
        Known { smoothed, deviation, flight, summary, at }
    }

    fn host(n: u32) -> IpAddr {
        Ipv4Addr::from(n).into()
    }

    #[test]
    fn what_is_old_is_believed_less_and_what_is_too_old_not_at_all() {
        let mut history = History::default();
        let start = Time::from_millis(1000);
        history.note(host(1), known(start));
        assert_eq!(history.of(host(1), start), Some(known(start)));
        let half = history.of(host(1), start + AGE_MAX / 2).expect("known");
        assert_eq!(half.round_trip(), Duration::from_millis(40 + 4 + 20));
        assert_eq!(half.summary.bandwidth, Some(Rate::from_bits_per_sec(500)));
        assert_eq!(half.summary.window_bytes, known(start).summary.window_bytes / 2);
        assert_eq!(history.of(host(1), start + AGE_MAX), None);
        assert_eq!(history.of(host(2), start), None);
    }

    #[test]
    fn guesses_are_bounded_and_so_are_hosts() {
        let mut history = History::default();
        let long = Known { smoothed: Duration::from_secs(90), ..known(Time::ZERO) };
        history.note(host(0), long);
        assert!(history.of(host(0), Time::from_millis(1)).expect("known").smoothed <= RTT_BOUNDS[1]);
        (0..1000).for_each(|n| history.note(host(n), known(Time::ZERO)));
        assert_eq!((history.known.len(), history.order.len()), (HOSTS_MAX, HOSTS_MAX));
        assert!(history.of(host(999), Time::ZERO).is_some() && history.of(host(0), Time::ZERO).is_none());
    }

    #[test]
    fn each_place_of_this_end_has_ways_of_its_own() {
        let (mut history, now) = (History::default(), Time::from_millis(1));
        let [home, away] = [host(70), host(71)];
        history.note(host(1), known(now));
        history.on_moved(Some(home));
        assert_eq!(history.of(host(1), now), None);
        history.note(host(1), known(now));
        history.on_moved(Some(away));
        assert_eq!(history.of(host(1), now), None);
        history.on_moved(Some(home));
        assert_eq!(history.of(host(1), now), Some(known(now)));
        // Where it was before it said so, nobody knows.
        history.on_moved(None);
        assert_eq!(history.of(host(1), now), None);
        history.note(host(1), known(now));
        history.on_moved(None);
        assert_eq!(history.of(host(1), now), None);
    }
}
