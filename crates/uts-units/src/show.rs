//! Writing amounts: exactly, so that they are read as they were, or rounded for people.

use core::time::Duration;

/// The shortest exact form of a span of time: `1500ms`. Spans above 2^64 - 1 ns are shown as that.
pub fn time(span: Duration) -> String {
    let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    exact(ns, [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)])
}

/// The shortest exact form of a size in bytes: `16MB`.
pub fn size(bytes: u64) -> String {
    exact(bytes, [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("B", 1)])
}

/// The shortest exact form of a rate in bits per second: `5Mbit/s`.
pub fn rate(bps: u64) -> String {
    exact(bps, [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)])
}

/// As [`rate`], as paths have it: `5mbit`.
pub fn path_rate(bps: u64) -> String {
    exact(bps, [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)])
}

/// In the largest unit that divides it.
fn exact(value: u64, units: [(&str, u64); 4]) -> String {
    let fits = |(_, size): &&(&str, u64)| value > 0 && value.is_multiple_of(*size);
    let (unit, size) = units.iter().find(fits).or(units.last()).copied().unwrap_or(("", 1));
    format!("{}{unit}", value / size)
}

/// A span of time as properties have it, exact: `1.5 ms`, and from ten seconds on `12.5 s`.
pub fn property_time(span: Duration) -> String {
    let ns = span.as_nanos();
    match ns {
        10_000_000_000.. => format!("{} s", decimal(ns, 9)),
        _ => format!("{} ms", decimal(ns, 6)),
    }
}

/// A rate as properties have it, exact: `9.6 kbit/s`, and from a million on `1.5 Mbit/s`.
pub fn property_rate(bps: u64) -> String {
    match bps {
        1_000_000.. => format!("{} Mbit/s", decimal(bps.into(), 6)),
        _ => format!("{} kbit/s", decimal(bps.into(), 3)),
    }
}

/// `value` / 10^`places`, without trailing zeros.
fn decimal(value: u128, places: u32) -> String {
    let one = 10_u128.pow(places);
    let text = format!("{}.{:0width$}", value / one, value % one, width = places as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes for people, rounded: `64.0 MB`.
pub fn bytes(n: u64) -> String {
    rounded(n as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Bits per second for people, rounded: `48.1 Mbit/s`.
pub fn bits_per_second(n: f64) -> String {
    rounded(n, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

fn rounded(mut n: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while n >= 999.95 && unit + 1 < units.len() {
        n /= 1000.0;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{n:.0} {name}") } else { format!("{n:.1} {name}") }
}

/// Seconds for people: `12.30 s` or `1:02:03`.
pub fn seconds(s: f64) -> String {
    if s < 100.0 {
        return format!("{s:.2} s");
    }
    let whole = s as u64;
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

/// A long time in the largest unit that tells enough of it: `45 s`, `10 min`, `3 h`, `12 days`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds / 60),
        6000..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exact_forms_are_short() {
        assert_eq!(time(Duration::from_millis(1500)), "1500ms");
        assert_eq!(time(Duration::ZERO), "0ns");
        assert_eq!(size(16_000_000), "16MB");
        assert_eq!(size(1024), "1024B");
        assert_eq!(rate(9600), "9600bit/s");
        assert_eq!(path_rate(50_000_000), "50mbit");
        assert_eq!(property_time(Duration::from_millis(100)), "100 ms");
        assert_eq!(property_time(Duration::from_nanos(100)), "0.0001 ms");
        assert_eq!(property_time(Duration::from_millis(12_500)), "12.5 s");
        assert_eq!(property_rate(1_500_000), "1.5 Mbit/s");
        assert_eq!(property_rate(64_000), "64 kbit/s");
        assert_eq!(property_rate(8), "0.008 kbit/s");
    }

    #[test]
    fn people_get_rounded_amounts() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(64_000_000), "64.0 MB");
        assert_eq!(bytes(999_960), "1.0 MB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!(bits_per_second(48_120_000.0), "48.1 Mbit/s");
        assert_eq!(seconds(3723.0), "1:02:03");
        for (s, shown) in [(0, "0 s"), (90, "90 s"), (600, "10 min"), (108_000, "30 h"), (604_800, "7 days")]
        {
            assert_eq!(span(Duration::from_secs(s)), shown);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_exactly_is_read_as_it_was(n: u64, shift in 0..64_u32) {
            let n = n >> shift;
            let span = Duration::from_nanos(n);
            prop_assert_eq!(crate::time(&time(span)), Ok(span));
            prop_assert_eq!(crate::time(&property_time(span)), Ok(span));
            prop_assert_eq!(crate::size(&size(n)), Ok(n));
            prop_assert_eq!(crate::rate(&rate(n)), Ok(n));
            prop_assert_eq!(crate::rate(&path_rate(n)), Ok(n));
            prop_assert_eq!(crate::rate(&property_rate(n)), Ok(n));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*", number in "[0-9.]{0,40}", unit in "\\PC{0,6}") {
            for text in [text, format!("{number}{unit}")] {
                let _ = (crate::time(&text), crate::rate(&text), crate::size(&text), crate::share(&text));
                let _ = crate::quantity(&text);
            }
        }
    }
}
