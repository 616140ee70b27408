//! Expectation that an endpoint has of a profile on a path.

use crate::facts::PathFacts;

/// Expectation that an endpoint has of a profile on a path. Built by passing it through the
/// profile's mechanisms in the order of [`Function::ALL`](crate::Function::ALL)'s prediction order;
/// each changes what it has influence on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Share of the path's capacity (0..=1) that the sender puts to use, headers and repeats
    /// included.
    pub utilisation: f64,
    /// Share that is exceeded in all but a twentieth of the time: what is sent in time waits for
    /// the rest.
    pub utilisation_low: f64,
    /// Packets on the wire per packet that carries new data (1 = no overhead).
    pub expansion: f64,
    /// Header and trailer bytes per packet beyond UDP.
    pub header_bytes: f64,
    /// Share of the packets (0..=1) that the path loses and nothing has repaired so far in the
    /// chain.
    pub loss: f64,
    /// Share of the packets whose loss congestion control sees (repaired ones included unless it is
    /// told otherwise).
    pub loss_seen: f64,
    /// Mean one-way delay that a message meets beyond propagation until it has arrived, in seconds.
    pub delay_s: f64,
    /// Delay of the slowest percent, likewise.
    pub delay_p99_s: f64,
    /// Data that redundancy brings later. Its delay is part of the delays above.
    pub repaired: Later,
    /// Data that a repeat brings later. Its delay is part of the delays above.
    pub repeated: Later,
    /// Time that the receiver holds what has arrived, to hand it over in its pace. It is no part of
    /// the delays above. `None` = it is handed over as it comes.
    pub held: Option<Held>,
    /// Processing at both ends per packet, in nanoseconds.
    pub cpu_ns: f64,
}

/// Instants, in seconds beyond propagation, that matter to what a receiver holds on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// When a message is handed over, usually.
    pub until_s: f64,
    /// Instant after which a message that arrives is dropped; `None` = it is handed over all the
    /// same.
    pub late_s: Option<f64>,
}

/// A share of the data that comes later than the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Later {
    /// The share (0..=1).
    pub share: f64,
    /// By how much at most, in seconds.
    pub by_s: f64,
    /// By how much on average, in seconds.
    pub by_mean_s: f64,
}

impl Later {
    /// Addition to the mean delay of all data, in seconds.
    fn mean_s(self) -> f64 {
        self.share * self.by_mean_s
    }

    /// Addition to the delay of the slowest percent, in seconds.
    fn p99_s(self) -> f64 {
        if self.share > PERCENT { self.by_s } else { 0.0 }
    }
}

/// From this share of the packets on (0..=1), what happens to them is the slowest percent's lot.
const PERCENT: f64 = 0.01;

impl Prediction {
    /// Before any mechanism: what the path itself does.
    pub fn of_path(facts: &PathFacts) -> Self {
        let queueing_s = facts.queueing().as_secs_f64();
        Prediction {
            utilisation: 1.0,
            utilisation_low: 1.0,
            expansion: 1.0,
            header_bytes: 0.0,
            loss: facts.loss,
            loss_seen: facts.loss,
            delay_s: queueing_s,
            delay_p99_s: queueing_s,
            repaired: Later::default(),
            repeated: Later::default(),
            held: None,
            cpu_ns: 0.0,
        }
    }

    /// Time beyond propagation after which the application has a message, in seconds: on average,
    /// and of the slowest percent. What is held for its pace comes no earlier.
    pub fn handed_over_s(&self) -> (f64, f64) {
        let earliest_s = self.held.map_or(0.0, |held| held.until_s);
        (self.delay_s.max(earliest_s), self.delay_p99_s.max(earliest_s))
    }

    /// A share of the data comes later: says so of the delays of all.
    pub(crate) fn delay(&mut self, later: Later) {
        self.delay_s += later.mean_s();
        self.delay_p99_s += later.p99_s();
    }

    /// Mean delay, and that of the slowest percent, in seconds, of what neither redundancy nor a
    /// repeat brings.
    pub fn delays_at_once(&self) -> (f64, f64) {
        let (repaired, repeated) = (self.repaired, self.repeated);
        let mean_s = (self.delay_s - repaired.mean_s() - repeated.mean_s()).max(0.0);
        (mean_s, (self.delay_p99_s - repaired.p99_s() - repeated.p99_s()).max(mean_s))
    }

    /// Sets these, whatever redundancy and repeats add to them.
    pub fn set_delays_at_once(&mut self, (mean_s, p99_s): (f64, f64)) {
        (self.delay_s, self.delay_p99_s) = (mean_s, p99_s.max(mean_s));
        self.delay(self.repaired);
        self.delay(self.repeated);
    }

    /// Application bytes per second that would arrive on a path with these facts.
    pub fn goodput(&self, facts: &PathFacts) -> f64 {
        self.goodput_of(self.utilisation, facts)
    }

    /// Goodput that is exceeded in all but a twentieth of the time.
    pub fn goodput_low(&self, facts: &PathFacts) -> f64 {
        self.goodput_of(self.utilisation_low, facts)
    }

    fn goodput_of(&self, utilisation: f64, facts: &PathFacts) -> f64 {
        let full = (facts.mtu_bytes as f64 - self.header_bytes).max(0.0);
        let bytes = if facts.payload_bytes > 0.0 { facts.payload_bytes.min(full) } else { full };
        let payload = bytes / (bytes + self.header_bytes).max(1.0);
        facts.capacity.bytes_per_sec() as f64 * utilisation * payload * (1.0 - self.loss)
            / self.expansion.max(1.0)
    }
}
