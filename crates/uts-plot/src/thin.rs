//! Fewer points that look the same.

/// Thins a series to about `max` points: in each stretch of time the first, the least, the greatest
/// and the last value stay, so that no peak is lost.
pub fn envelope(points: &[(f64, f64)], max: usize) -> Vec<(f64, f64)> {
    if points.len() <= max.max(4) {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil((max / 4).max(1));
    let mut kept = Vec::with_capacity(max + 4);
    for chunk in points.chunks(stretch) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let mut ends: Vec<(f64, f64)> =
            [chunk.first(), chunk.iter().min_by(by_value), chunk.iter().max_by(by_value), chunk.last()]
                .into_iter()
                .flatten()
                .copied()
                .collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends.dedup();
        kept.extend(ends);
    }
    kept
}

/// Thins unconnected points to at most `max`, evenly. Returns also how many each stands for.
pub fn every_nth(points: &[(f64, f64)], max: usize) -> (Vec<(f64, f64)>, usize) {
    let step = points.len().div_ceil(max.max(1)).max(1);
    (points.iter().step_by(step).copied().collect(), step)
}

/// The rate of growth of a total, in bins of `width_s` from 0 to `end_s`:
/// `(middle of the bin, growth per second)`. Between samples the total is assumed to grow evenly.
/// The last bin may be narrower.
pub fn growth(totals: &[(f64, f64)], width_s: f64, end_s: f64) -> Vec<(f64, f64)> {
    let mut rates = Vec::new();
    if width_s.is_nan() || width_s <= 0.0 || totals.is_empty() || !end_s.is_finite() {
        return rates;
    }
    let mut from_s = 0.0;
    // A remainder of less than a third of a bin would show noise as a peak.
    while from_s + width_s / 3.0 <= end_s {
        let to_s = (from_s + width_s).min(end_s);
        let grown = total_at(totals, to_s) - total_at(totals, from_s);
        rates.push(((from_s + to_s) / 2.0, grown / (to_s - from_s)));
        from_s += width_s;
    }
    rates
}

/// The total at a time, between its neighbours; nothing before the first sample.
fn total_at(totals: &[(f64, f64)], t_s: f64) -> f64 {
    let after = totals.partition_point(|(t, _)| *t <= t_s);
    match (after.checked_sub(1).and_then(|i| totals.get(i)), totals.get(after)) {
        (None, Some((t1, v1))) if *t1 > 0.0 && t_s >= 0.0 => v1 * t_s / t1,
        (None, _) => 0.0,
        (Some((_, v0)), None) => *v0,
        (Some((t0, v0)), Some((t1, v1))) => v0 + (v1 - v0) * (t_s - t0) / (t1 - t0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_keeps_peaks_and_order() {
        let points: Vec<(f64, f64)> =
            (0..10_000).map(|i| (f64::from(i), if i == 4321 { 99.0 } else { f64::from(i % 7) })).collect();
        let thin = envelope(&points, 400);
        assert!(thin.len() <= 408, "{}", thin.len());
        assert!(thin.contains(&(4321.0, 99.0)));
        assert!(thin.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!((thin.first(), thin.last()), (points.first(), points.last()));
        assert_eq!(envelope(&points[..9], 400), points[..9]);
    }

    #[test]
    fn growth_is_the_slope_in_each_bin() {
        let totals = [(0.0, 0.0), (1.0, 100.0), (2.0, 100.0), (3.0, 400.0)];
        assert_eq!(growth(&totals, 1.0, 3.0), [(0.5, 100.0), (1.5, 0.0), (2.5, 300.0)]);
        assert_eq!(growth(&totals, 2.0, 3.0), [(1.0, 50.0), (2.5, 300.0)]);
        assert_eq!(growth(&[(0.5, 50.0), (1.0, 60.0)], 1.0, 1.0), [(0.5, 60.0)]);
        assert!(growth(&[], 1.0, 3.0).is_empty() && growth(&totals, 0.0, 3.0).is_empty());
    }

    #[test]
    fn every_nth_says_what_a_point_stands_for() {
        let points: Vec<(f64, f64)> = (0..10).map(|i| (f64::from(i), 0.0)).collect();
        assert_eq!(every_nth(&points, 4).0.len(), 4);
        assert_eq!(every_nth(&points, 4).1, 3);
        assert_eq!(every_nth(&points, 10), (points.clone(), 1));
        assert_eq!(every_nth(&[], 10), (vec![], 1));
    }
}
