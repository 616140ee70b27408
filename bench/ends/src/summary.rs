//! Medians with their spread.

use serde::Serialize;

/// What repetitions of one measurement gave.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Summary {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are.
    pub repetitions: usize,
}

impl Summary {
    /// Of these values; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Some(Summary { median, min, max, repetitions: values.len() })
    }

    /// Of what repetitions gave, those left out that failed; `None` if all did.
    pub fn of_repetitions(values: &[Option<f64>]) -> Option<Self> {
        Self::of(values.iter().flatten().copied())
    }
}

/// The value below which `share` (0..=1) of the values lie. `values` must be in ascending order.
/// `None` if there are none.
pub fn percentile<T: Copy>(values: &[T], share: f64) -> Option<T> {
    let index = (share * values.len() as f64) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied()
}
