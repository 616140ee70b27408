//! Lateness of a world in real time, against its model.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Lateness of packets that were sent on, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Lateness {
    /// Half of them less than this.
    pub p50_us: f64,
    /// 90 % of them less than this.
    pub p90_us: f64,
    /// 99 % of them less than this.
    pub p99_us: f64,
    /// The worst.
    pub max_us: f64,
}

impl Lateness {
    /// Values of a meter; all 0 if it has measured nothing.
    pub fn of(meter: &LatenessMeter) -> Self {
        Lateness {
            p50_us: meter.quantile_us(0.5),
            p90_us: meter.quantile_us(0.9),
            p99_us: meter.quantile_us(0.99),
            max_us: meter.max_us(),
        }
    }
}

/// Measures lateness.
#[derive(Debug)]
pub struct LatenessMeter(Option<Histogram<u64>>);

impl Default for LatenessMeter {
    fn default() -> Self {
        Self::new()
    }
}

impl LatenessMeter {
    /// Keeps 3 digits up to a minute.
    pub fn new() -> Self {
        LatenessMeter(Histogram::new_with_bounds(1, 60_000_000_000, 3).ok())
    }

    /// Takes a packet that was so late, in nanoseconds.
    pub fn record(&mut self, late_ns: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(late_ns.max(1));
        }
    }

    /// Number of packets that it has taken.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// Lateness that a share of the packets (0 to 1) did not exceed, in microseconds; 0 of none.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.as_ref().map_or(0.0, |histogram| histogram.value_at_quantile(quantile) as f64 / 1e3)
    }

    /// The worst, in microseconds; 0 of none.
    pub fn max_us(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |histogram| histogram.max() as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_in_microseconds() {
        let mut meter = LatenessMeter::new();
        assert_eq!((Lateness::of(&meter), meter.count()), (Lateness::default(), 0));
        (1..=100).for_each(|us| meter.record(us * 1000));
        assert_eq!(meter.count(), 100);
        let late = Lateness::of(&meter);
        for (got, wanted) in
            [(late.p50_us, 50.0), (late.p90_us, 90.0), (late.p99_us, 99.0), (late.max_us, 100.0)]
        {
            assert!((got - wanted).abs() < 0.2, "{late:?}");
        }
    }

    #[test]
    fn what_is_beyond_a_minute_still_counts() {
        let mut meter = LatenessMeter::new();
        meter.record(3_600_000_000_000);
        assert!(meter.count() == 1 && meter.max_us() >= 60e6 * 0.999, "{}", meter.max_us());
    }
}
