//! From values to places, and where ticks stand.

use super::text::plain;

/// Scale by which an axis spreads its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Evenly.
    Linear {
        /// The lower end.
        min: f64,
        /// The upper end.
        max: f64,
    },
    /// By their logarithms; both ends are above 0.
    Log {
        /// The lower end.
        min: f64,
        /// The upper end.
        max: f64,
    },
    /// Names, at equal distances; their values are 0, 1, 2 …
    Ordinal(Vec<String>),
}

/// A tick of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub value: f64,
    /// Empty for one between two decades.
    pub label: String,
}

impl Scale {
    /// An even scale over values whose ends are round numbers. With `from_zero` it begins at 0 if
    /// no value is below.
    pub fn linear(values: impl IntoIterator<Item = f64>, from_zero: bool) -> Self {
        let Some((mut min, mut max)) = ends(values) else { return Scale::Linear { min: 0.0, max: 1.0 } };
        if from_zero {
            (min, max) = (min.min(0.0), max.max(0.0));
        }
        if max - min <= 1e-12 * max.abs().max(min.abs()) {
            let half = if max == 0.0 { 0.5 } else { max.abs() * 0.05 };
            (min, max) = (if from_zero && min == 0.0 { 0.0 } else { min - half }, max + half);
        }
        let step = step(max - min, 6);
        // Room for marks: a value on the upper edge would be cut.
        let margin = (max - min) * 0.02;
        let low = if min == 0.0 { 0.0 } else { ((min - margin) / step).floor() * step };
        let high = if max == 0.0 { 0.0 } else { ((max + margin) / step).ceil() * step };
        Scale::Linear { min: low, max: high }
    }

    /// The same over values of which none above `most` is drawn: it ends there if there are any,
    /// since what leaves the picture ends at its edge.
    pub fn linear_up_to(values: impl IntoIterator<Item = f64>, from_zero: bool, most: f64) -> Self {
        let (within, beyond): (Vec<f64>, Vec<f64>) = values.into_iter().partition(|v| *v <= most);
        let is_cut = beyond.iter().any(|v| v.is_finite());
        match Scale::linear(within.into_iter().chain(is_cut.then_some(most)), from_zero) {
            Scale::Linear { min, .. } if is_cut && most > min => Scale::Linear { min, max: most },
            scale => scale,
        }
    }

    /// A logarithmic scale over values; `None` unless all are above 0.
    pub fn log(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let (min, max) = ends(values)?;
        if min <= 0.0 {
            return None;
        }
        let (low, high) = (min.log10(), max.log10());
        let margin = ((high - low) * 0.04).max(0.02);
        // Within a decade and a half the ends need not be powers of ten.
        let (low, high) = (low - margin, high + margin);
        Some(Scale::Log { min: 10f64.powf(low), max: 10f64.powf(high) })
    }

    /// Between ends as given.
    pub fn between(min: f64, max: f64) -> Self {
        Scale::Linear { min, max: if max > min { max } else { min + 1.0 } }
    }

    /// The place of a value: 0 at the beginning of the axis, 1 at its end. Values beyond the axis
    /// lie beyond these.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self {
            Scale::Linear { min, max } => (value - min) / (max - min),
            Scale::Log { min, max } => {
                if value <= 0.0 {
                    return f64::NEG_INFINITY;
                }
                (value.ln() - min.ln()) / (max.ln() - min.ln())
            }
            Scale::Ordinal(names) => (value + 0.5) / names.len().max(1) as f64,
        }
    }

    /// Where bars begin.
    pub(super) fn foot(&self) -> f64 {
        match self {
            Scale::Linear { min, max } => 0f64.clamp(*min, *max),
            Scale::Log { min, .. } => *min,
            Scale::Ordinal(_) => -0.5,
        }
    }

    /// About this many ticks.
    pub(super) fn ticks(&self, about: usize) -> Vec<Tick> {
        match self {
            Scale::Linear { min, max } => linear_ticks(*min, *max, about),
            Scale::Log { min, max } => log_ticks(*min, *max, about),
            Scale::Ordinal(names) => {
                let tick = |(i, name): (usize, &String)| Tick { value: i as f64, label: name.clone() };
                names.iter().enumerate().map(tick).collect()
            }
        }
    }
}

fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|v| v.is_finite());
    finite.fold(None, |ends, v| {
        let (min, max) = ends.unwrap_or((v, v));
        Some((f64::min(min, v), f64::max(max, v)))
    })
}

/// A step of 1, 2 or 5 times a power of ten that divides a span into about this many parts.
fn step(span: f64, parts: usize) -> f64 {
    let rough = span / parts.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let factor = match rough / power {
        f if f < 1.5 => 1.0,
        f if f < 3.5 => 2.0,
        f if f < 7.5 => 5.0,
        _ => 10.0,
    };
    factor * power
}

fn linear_ticks(min: f64, max: f64, about: usize) -> Vec<Tick> {
    let step = step(max - min, about);
    let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let first = (min / step - 1e-9).ceil() as i64;
    let last = (max / step + 1e-9).floor() as i64;
    let tick = |i: i64| {
        let value = i as f64 * step;
        Tick { value, label: plain(value, decimals) }
    };
    (first..=last).map(tick).collect()
}

/// Powers of ten, 2 and 5 times them where there is room, unnamed ticks at the rest.
fn log_ticks(min: f64, max: f64, about: usize) -> Vec<Tick> {
    let decades = (max / min).log10();
    let named: &[f64] = match decades {
        d if d * 3.0 <= about as f64 + 2.0 => &[1.0, 2.0, 5.0],
        d if d * 2.0 <= about as f64 + 2.0 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let every = (decades / about.max(1) as f64).ceil().max(1.0) as i32;
    let mut ticks = Vec::new();
    for exponent in min.log10().floor() as i32..=max.log10().ceil() as i32 {
        for factor in 1..=9 {
            let factor = f64::from(factor);
            let value = factor * 10f64.powi(exponent);
            if value < min * (1.0 - 1e-9) || value > max * (1.0 + 1e-9) {
                continue;
            }
            let is_named = named.contains(&factor) && exponent.rem_euclid(every) == 0;
            let label = if is_named { log_label(value, exponent) } else { String::new() };
            if is_named || every == 1 {
                ticks.push(Tick { value, label });
            }
        }
    }
    // A span so narrow that no round number lies in it: even ticks say more.
    if ticks.iter().filter(|tick| !tick.label.is_empty()).count() < 2 {
        return linear_ticks(min, max, about).into_iter().filter(|tick| tick.value > 0.0).collect();
    }
    ticks
}

fn log_label(value: f64, exponent: i32) -> String {
    match exponent {
        -4..0 => plain(value, exponent.unsigned_abs() as usize),
        0..5 => plain(value, 0),
        _ => {
            let digits: String = exponent.to_string().chars().map(superscript).collect();
            let factor = (value / 10f64.powi(exponent)).round();
            if factor == 1.0 { format!("10{digits}") } else { format!("{factor}·10{digits}") }
        }
    }
}

fn superscript(digit: char) -> char {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    digit.to_digit(10).and_then(|d| DIGITS.get(d as usize)).copied().unwrap_or('⁻')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks(6).into_iter().map(|t| t.label).filter(|l| !l.is_empty()).collect()
    }

    #[test]
    fn even_ticks_are_round_and_cover_the_values() {
        let scale = Scale::linear([0.3, 4.71], true);
        assert_eq!(scale, Scale::Linear { min: 0.0, max: 5.0 });
        assert_eq!(labels(&scale), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(
            labels(&Scale::linear([0.0, 0.1], true)),
            ["0.00", "0.02", "0.04", "0.06", "0.08", "0.10", "0.12"]
        );
        assert_eq!(labels(&Scale::linear([-30.0, 55.0], true)), ["−40", "−20", "0", "20", "40", "60"]);
        assert_eq!(labels(&Scale::linear([], true)).first().map(String::as_str), Some("0.0"));
        let same = Scale::linear([5.0, 5.0], false);
        assert!(same.place(5.0) > 0.2 && same.place(5.0) < 0.8, "{same:?}");
    }

    /// A value that is cut at 60 is not drawn on an axis to 70.
    #[test]
    fn an_axis_that_is_cut_ends_where_it_is_cut() {
        let axis = |values: &[f64], most| Scale::linear_up_to(values.iter().copied(), true, most);
        assert_eq!(axis(&[3.0, 59.0, 400.0], 60.0), Scale::Linear { min: 0.0, max: 60.0 });
        assert_eq!(axis(&[3.0, 59.0], 60.0), Scale::linear([3.0, 59.0], true), "nothing is cut");
        assert_eq!(axis(&[3.0, f64::INFINITY], 60.0), Scale::linear([3.0], true));
        assert_eq!(axis(&[300.0, 400.0], 60.0), Scale::Linear { min: 0.0, max: 60.0 }, "all is cut");
        assert_eq!(axis(&[1.0], f64::INFINITY), Scale::linear([1.0], true));
    }

    #[test]
    fn decades_are_named() {
        let scale = Scale::log([1.0, 1000.0]).unwrap();
        assert_eq!(labels(&scale), ["1", "3", "10", "30", "100", "300", "1000"]);
        assert_eq!(labels(&Scale::log([1.0, 63.0]).unwrap()), ["1", "2", "5", "10", "20", "50"]);
        let small = ["0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1"];
        assert_eq!(labels(&Scale::log([0.001, 0.1]).unwrap()), small);
        assert_eq!(labels(&Scale::log([1e5, 1e9]).unwrap()).first().map(String::as_str), Some("10⁵"));
        assert!(Scale::log([0.0, 1.0]).is_none() && Scale::log([]).is_none());
        assert!(labels(&Scale::log([40.0, 42.0]).unwrap()).len() >= 2);
    }

    #[test]
    fn places_run_from_0_to_1() {
        let scale = Scale::Log { min: 1.0, max: 100.0 };
        assert!((scale.place(10.0) - 0.5).abs() < 1e-12);
        assert!(scale.place(0.0).is_infinite());
        let names = Scale::Ordinal(vec!["a".into(), "b".into()]);
        assert_eq!((names.place(0.0), names.place(1.0)), (0.25, 0.75));
    }
}
