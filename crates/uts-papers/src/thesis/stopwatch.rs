//! Time that work takes on this machine. Only units that say so read it
//! ([`Unit::timed`](crate::paper::Unit::timed)): what they leave differs from run to run.

use crate::average::quantile;
use crate::paper::{Series, push};
use std::time::Instant;

/// Nanoseconds of a piece of work, many times over: the median, and the quartiles around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// A quarter of all took no longer.
    pub low: f64,
    /// The median.
    pub middle: f64,
    /// A quarter of all took no less.
    pub high: f64,
}

impl Spread {
    /// Of these values; of none it is no number.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(&values, share));
        Spread { low, middle, high }
    }

    /// The same, less this much.
    pub fn less(self, by: f64) -> Self {
        Spread { low: self.low - by, middle: self.middle - by, high: self.high - by }
    }

    /// Adds a row: the median under this name, and the quartiles under the same with `-low` and
    /// `-high`.
    pub fn push(self, series: &mut Series, name: &str) {
        let names = [name.to_owned(), format!("{name}-low"), format!("{name}-high")];
        let values = [self.middle, self.low, self.high];
        push(series, names.iter().map(String::as_str).zip(values));
    }
}

/// Does a piece of work; says the nanoseconds that it took.
#[expect(clippy::disallowed_methods, reason = "tables 4.2 and 4.3 are times of a real machine")]
pub fn time<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let since = Instant::now();
    let out = work();
    (out, since.elapsed().as_nanos() as f64)
}

/// Nanoseconds that reading the clock adds to what is timed.
pub fn overhead_ns() -> f64 {
    Spread::of((0..1000).map(|_| time(|| ()).1).collect()).middle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_with_its_quartiles() {
        let spread = Spread::of(vec![5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(spread, Spread { low: 2.0, middle: 3.0, high: 4.0 });
        assert!(Spread::of(Vec::new()).middle.is_nan());
        let mut series = Series::new();
        spread.less(0.5).push(&mut series, "x");
        assert_eq!((series["x"][0], series["x-low"][0], series["x-high"][0]), (2.5, 1.5, 3.5));
    }
}
