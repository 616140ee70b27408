//! The coarse clock of the thesis (appendix A): intervals that it reads as whole steps, and the
//! error of their mean.

use crate::paper::{Series, push};
use anyhow::Result;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// A step of the clock, in microseconds, and readings of which a mean is taken.
const STEP_US: f64 = 156.0;
const READINGS: u32 = 400;
/// Means for the deviation of one interval.
const MEANS: u32 = 4000;
/// Intervals, in microseconds: within a step, and beyond it.
const FROM_US: u32 = 0;
const TO_US: u32 = 468;
const EVERY_US: usize = 13;

/// Deviation of the mean by the closed form: that of a binomial distribution, of what an interval
/// exceeds whole steps by (appendix A, step 2).
pub fn deviation(interval_us: f64) -> f64 {
    let beyond = interval_us % STEP_US;
    (beyond * (STEP_US - beyond) / f64::from(READINGS)).sqrt()
}

/// Steps of the clock between the begin and the end of an interval that begins anywhere in a step.
fn reading(rng: &mut ChaCha8Rng, interval_us: f64) -> f64 {
    let begin = rng.random::<f64>() * STEP_US;
    ((begin + interval_us) / STEP_US).floor() * STEP_US
}

/// Intervals read again and again: the deviation of their means, the error of all, and the
/// deviation by the closed form, in microseconds.
///
/// # Errors
/// None.
pub fn readings() -> Result<Series> {
    let mut rng = ChaCha8Rng::seed_from_u64(156);
    let mut series = Series::new();
    for interval in (FROM_US..=TO_US).step_by(EVERY_US) {
        let interval_us = f64::from(interval);
        let means: Vec<f64> = (0..MEANS)
            .map(|_| (0..READINGS).map(|_| reading(&mut rng, interval_us)).sum::<f64>() / f64::from(READINGS))
            .collect();
        let count = f64::from(MEANS);
        let mean = means.iter().sum::<f64>() / count;
        let deviation_us =
            (means.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / (count - 1.0)).sqrt();
        let closed_us = deviation(interval_us);
        push(
            &mut series,
            [
                ("interval", interval_us),
                ("deviation", deviation_us),
                ("closed", closed_us),
                ("apart", (deviation_us - closed_us).abs()),
                ("error", (mean - interval_us).abs()),
            ],
        );
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appendix A: a variance of 15.21 at half a step.
    #[test]
    fn the_closed_form_is_largest_at_half_a_step() {
        assert!((deviation(78.0) - 3.9).abs() < 1e-12 && (deviation(78.0 + 156.0) - 3.9).abs() < 1e-12);
        assert!(deviation(0.0) < 1e-12 && deviation(156.0) < 1e-12 && deviation(60.0) < 3.9);
    }
}
