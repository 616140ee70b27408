//! Means and their confidence, quantiles, and whether two means differ.

use statrs::distribution::{ContinuousCDF, StudentsT};
use uts_plot::svg::Quartiles;

/// The confidence of intervals.
pub(super) const CONFIDENCE: f64 = 0.95;

/// Several repetitions of one measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    /// Number of repetitions.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// The standard deviation that they suggest; 0 for one.
    pub deviation: f64,
}

impl Mean {
    /// Of values; `None` if there are none.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let deviation = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        Some(Mean { n, mean, deviation })
    }

    /// Half the width of the 95 % confidence interval by Student's t; `None` for a single value.
    pub(super) fn half_width(&self) -> Option<f64> {
        let freedom = self.n.checked_sub(1).filter(|f| *f > 0)? as f64;
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.5 + CONFIDENCE / 2.0);
        Some(t * self.deviation / (self.n as f64).sqrt())
    }
}

/// The probability that means differ by at least this much if the same is measured: Welch's test,
/// two-sided. `None` if one of them has a single value.
pub(super) fn welch(a: &Mean, b: &Mean) -> Option<f64> {
    if a.n < 2 || b.n < 2 {
        return None;
    }
    let part = |m: &Mean| m.deviation.powi(2) / m.n as f64;
    let (pa, pb) = (part(a), part(b));
    let spread = pa + pb;
    if spread == 0.0 {
        return Some(if a.mean == b.mean { 1.0 } else { 0.0 });
    }
    let t = (a.mean - b.mean).abs() / spread.sqrt();
    let weight = |p: f64, n: usize| p.powi(2) / (n - 1) as f64;
    let freedom = spread.powi(2) / (weight(pa, a.n) + weight(pb, b.n));
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(2.0 * (1.0 - student.cdf(t)))
}

/// A quantile of values in ascending order, between neighbours (type 7 of Hyndman and Fan 1996).
pub(super) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let (low, high) = (sorted.get(below)?, sorted.get((below + 1).min(last))?);
    Some(low + (high - low) * (place - below as f64))
}

/// Quartiles with Tukey's whiskers: the farthest values within one and a half quartile distances of
/// the box.
pub(super) fn quartiles(values: &[f64]) -> Option<Quartiles> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let [q1, median, q3] = [0.25, 0.5, 0.75].map(|share| quantile(&sorted, share));
    let (q1, median, q3) = (q1?, median?, q3?);
    let reach = 1.5 * (q3 - q1);
    let is_within = |v: &&f64| (q1 - reach..=q3 + reach).contains(*v);
    let low = sorted.iter().find(is_within).copied().unwrap_or(q1);
    let high = sorted.iter().rev().find(is_within).copied().unwrap_or(q3);
    let beyond = sorted.iter().filter(|v| !is_within(v)).copied().collect();
    Some(Quartiles { five: [low, q1, median, q3, high], beyond })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Student's t for 95 %, two-sided, as printed in tables (Fisher and Yates 1963, table III).
    #[test]
    fn intervals_agree_with_printed_tables() {
        for (freedom, t) in [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)] {
            // A deviation of the square root of n leaves t itself.
            let n = freedom + 1;
            let mean = Mean { n, mean: 0.0, deviation: (n as f64).sqrt() };
            assert!((mean.half_width().unwrap() - t).abs() < 6e-4, "{freedom}: {:?}", mean.half_width());
        }
        assert_eq!(Mean::of(&[3.0]).unwrap().half_width(), None);
        assert_eq!(Mean::of(&[]), None);
    }

    #[test]
    fn mean_and_deviation() {
        let mean = Mean::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!(mean.mean, 5.0);
        assert!((mean.deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Mean::of(&[1.0, 1.0, 1.0]).unwrap().half_width(), Some(0.0));
    }

    /// The example of R's `t.test(extra ~ group, data = sleep)`: t = 1.8608, df = 17.776, p =
    /// 0.07939.
    #[test]
    fn welch_agrees_with_r() {
        let a = Mean::of(&[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]).unwrap();
        let b = Mean::of(&[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]).unwrap();
        assert!((welch(&a, &b).unwrap() - 0.07939).abs() < 1e-5);
        let c = Mean { n: 3, mean: 1.0, deviation: 0.0 };
        assert_eq!(welch(&c, &c), Some(1.0));
        assert_eq!(welch(&c, &Mean { mean: 2.0, ..c }), Some(0.0));
        assert_eq!(welch(&c, &Mean { n: 1, ..c }), None);
    }

    #[test]
    fn boxes_are_tukeys() {
        let values: Vec<f64> = (1..=9).map(f64::from).chain([30.0]).collect();
        let found = quartiles(&values).unwrap();
        assert_eq!(found.five, [1.0, 3.25, 5.5, 7.75, 9.0]);
        assert_eq!(found.beyond, [30.0]);
        assert!(quartiles(&[]).is_none());
        assert_eq!(quartiles(&[4.0]).unwrap().five, [4.0; 5]);
    }
}
