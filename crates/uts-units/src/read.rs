//! Reading amounts of a kind that is known.

use crate::AmountError;
use crate::unit::{Counts, Data, time_ns};
use core::time::Duration;

/// Digits behind the point that count; more are below any unit's smallest part.
const FRACTION_DIGITS: usize = 18;

/// Reads a rate, in bits per second: `9600`, `64kbit`, `5Mbit/s`, `5Mb/s`, `5MB/s` (40,000,000). A
/// bare number counts bits per second.
///
/// # Errors
/// If it has another form or unit, is above 2^64 - 1, or can be read in two ways: `5mb/s`, `5M`.
pub fn rate(text: &str) -> Result<u64, AmountError> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return number.times(1);
    }
    let data = Data::parse(unit).ok_or_else(|| AmountError::Unit(unit.to_owned()))?;
    match data.counts {
        Counts::Bits => number.times(data.factor),
        Counts::Bytes if data.per_second => {
            number.times(data.factor.checked_mul(8).ok_or(AmountError::TooLarge)?)
        }
        Counts::Bytes => Err(AmountError::Unit(unit.to_owned())),
        Counts::Either | Counts::Unsaid => Err(ambiguous(
            text,
            [
                format!("{} {}", number.text, data.named("bit/s")),
                format!("{} {}", number.text, data.named("B/s")),
            ],
        )),
    }
}

/// Reads a size, in bytes: `1500B`, `64kB` (64,000), `64KiB` (65,536). A bare number is refused.
///
/// # Errors
/// If it has another form or unit, is above 2^64 - 1, or can be read in two ways: `64kb`, `64M`.
pub fn size(text: &str) -> Result<u64, AmountError> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Err(AmountError::Form);
    }
    let wrong = || AmountError::Unit(unit.to_owned());
    let data = Data::parse(unit).filter(|data| !data.per_second && !data.is_spelled).ok_or_else(wrong)?;
    let read = |base: &str| format!("{} {}", number.text, data.named(base));
    match data.counts {
        Counts::Bytes => number.times(data.factor),
        Counts::Bits | Counts::Either => Err(ambiguous(text, [read("bit"), read("B")])),
        Counts::Unsaid => Err(ambiguous(text, [read("B"), read("iB").replace('k', "K")])),
    }
}

/// Reads a span of time: `300us`, `20ms`, `1.5s`, `2min`, `7d`. `0` needs no unit.
///
/// # Errors
/// If it has another form or unit, or is above 2^64 - 1 ns.
pub fn time(text: &str) -> Result<Duration, AmountError> {
    match split(text)? {
        (number, "") if number.is_zero() => Ok(Duration::ZERO),
        (_, "") => Err(AmountError::Form),
        (number, unit) => in_unit(&number, unit),
    }
}

/// Reads a span of time of which a bare number counts `bare`, a unit as [`time`] reads them.
///
/// # Errors
/// As [`time`].
pub fn time_in(bare: &str, text: &str) -> Result<Duration, AmountError> {
    let (number, unit) = split(text)?;
    in_unit(&number, if unit.is_empty() { bare } else { unit })
}

fn in_unit(number: &Number<'_>, unit: &str) -> Result<Duration, AmountError> {
    let ns = time_ns(unit).ok_or_else(|| AmountError::Unit(unit.to_owned()))?;
    number.times(ns).map(Duration::from_nanos)
}

/// Reads a share: `0.05`, `5%`. Its range is not looked at.
///
/// # Errors
/// If it is no finite number, or has another unit.
pub fn share(text: &str) -> Result<f64, AmountError> {
    let text = text.trim();
    let (number, percent) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number / percent),
        _ => Err(AmountError::Form),
    }
}

fn ambiguous(text: &str, readings: [String; 2]) -> AmountError {
    AmountError::Ambiguous { text: text.trim().to_owned(), readings }
}

/// A number from zero, as written: digits, and perhaps a point.
struct Number<'t> {
    text: &'t str,
    whole: u64,
    /// Behind the point, in 10^-[`FRACTION_DIGITS`].
    fraction: u64,
}

impl Number<'_> {
    fn is_zero(&self) -> bool {
        self.whole == 0 && self.fraction == 0
    }

    /// This many of a unit of `factor`, rounded to the nearest.
    fn times(&self, factor: u64) -> Result<u64, AmountError> {
        const ONE: u128 = 10_u128.pow(FRACTION_DIGITS as u32);
        // Both products are below 2^64 * 2^64, and their sum below 2^128.
        let whole = u128::from(self.whole) * u128::from(factor);
        let part = (u128::from(self.fraction) * u128::from(factor) + ONE / 2) / ONE;
        whole.checked_add(part).and_then(|sum| u64::try_from(sum).ok()).ok_or(AmountError::TooLarge)
    }
}

/// The number that a text begins with, and its unit.
fn split(text: &str) -> Result<(Number<'_>, &str), AmountError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return Err(AmountError::Form);
    }
    let parse = |digits: &str| match digits {
        "" => Ok(0),
        digits => digits.parse::<u64>().map_err(|_| AmountError::TooLarge),
    };
    let kept = fraction.get(..FRACTION_DIGITS).unwrap_or(fraction);
    let number = Number {
        text: digits,
        whole: parse(whole)?,
        fraction: parse(&format!("{kept:0<FRACTION_DIGITS$}"))?,
    };
    Ok((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ambiguous(text: &str, one: &str, other: &str) -> AmountError {
        AmountError::Ambiguous { text: text.to_owned(), readings: [one.to_owned(), other.to_owned()] }
    }

    #[test]
    fn rates_are_in_bits_per_second() {
        for (text, bps) in [
            ("9600", 9600),
            ("9600bit/s", 9600),
            ("5mbit", 5_000_000),
            ("5Mbit", 5_000_000),
            ("5 Mbit/s", 5_000_000),
            ("5Mb/s", 5_000_000),
            ("5Mbps", 5_000_000),
            ("5MB/s", 40_000_000),
            ("10MBps", 80_000_000),
            ("1MiB/s", 8_388_608),
            ("64kb/s", 64_000),
            ("64KB/s", 512_000),
            ("0.5gbit", 500_000_000),
            ("1.5kB/s", 12_000),
            ("18446744073709551615bit", u64::MAX),
            ("0.4bit", 0),
            (".5bit", 1),
        ] {
            assert_eq!(rate(text), Ok(bps), "{text}");
        }
        assert_eq!(rate("5mb/s"), Err(ambiguous("5mb/s", "5 Mbit/s", "5 MB/s")));
        assert_eq!(rate("1.5 gbps"), Err(ambiguous("1.5 gbps", "1.5 Gbit/s", "1.5 GB/s")));
        assert_eq!(rate("5M"), Err(ambiguous("5M", "5 Mbit/s", "5 MB/s")));
        assert_eq!(rate("5k/s"), Err(ambiguous("5k/s", "5 kbit/s", "5 kB/s")));
        assert_eq!(rate("50MB"), Err(AmountError::Unit("MB".into())));
        assert_eq!(rate("5s"), Err(AmountError::Unit("s".into())));
        assert_eq!(rate("18446744073709551616bit"), Err(AmountError::TooLarge));
        assert_eq!(rate("99999999999gbit"), Err(AmountError::TooLarge));
        assert_eq!(rate("4EB/s"), Err(AmountError::TooLarge));
        for bad in ["", "fast", "-5mbit", "1..5mbit", ".", ".mbit", "mbit"] {
            assert_eq!(rate(bad), Err(AmountError::Form), "{bad}");
        }
    }

    #[test]
    fn sizes_are_in_bytes() {
        for (text, bytes) in [
            ("1500B", 1500),
            ("256kB", 256_000),
            ("64KiB", 65_536),
            ("21MB", 21_000_000),
            ("1.5GiB", 1_610_612_736),
            ("18EB", 18_000_000_000_000_000_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!(size("256kb"), Err(ambiguous("256kb", "256 kbit", "256 kB")));
        assert_eq!(size("16Mb"), Err(ambiguous("16Mb", "16 Mbit", "16 MB")));
        assert_eq!(size("64kib"), Err(ambiguous("64kib", "64 Kibit", "64 KiB")));
        assert_eq!(size("64M"), Err(ambiguous("64M", "64 MB", "64 MiB")));
        assert_eq!(size("64k"), Err(ambiguous("64k", "64 kB", "64 KiB")));
        for bad in ["64kbit", "64kB/s", "64ms", "64 apples"] {
            assert!(matches!(size(bad), Err(AmountError::Unit(_))), "{bad}");
        }
        for bad in ["64", "", "-1B", "1e3B"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, ns) in [
            ("0", 0),
            ("0.3us", 300),
            ("1.5ms", 1_500_000),
            ("20 ms", 20_000_000),
            ("1.5s", 1_500_000_000),
            ("2min", 120_000_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("7d", 604_800_000_000_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for bad in ["", "5", "-1s", "1 year", "5M", "999999d999", "9999999999999999999s"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert_eq!(time_in("ms", "5"), Ok(Duration::from_millis(5)));
        assert_eq!(time_in("s", "1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time_in("s", "5ms"), Ok(Duration::from_millis(5)));
    }

    #[test]
    fn shares_may_be_percentages() {
        for (text, wanted) in [("0.05", 0.05), ("5%", 0.05), ("5 %", 0.05), ("1", 1.0), ("-0.1", -0.1)] {
            assert_eq!(share(text), Ok(wanted), "{text}");
        }
        for bad in ["", "%", "nan", "inf", "5%%", "five", "5p"] {
            assert_eq!(share(bad), Err(AmountError::Form), "{bad}");
        }
    }

    #[test]
    fn errors_give_both_readings() {
        let error = rate("5mb/s").unwrap_err();
        assert_eq!(error.to_string(), "`5mb/s` can be read as 5 Mbit/s and as 5 MB/s; write which");
        assert_eq!(error.clone().or("must be a rate"), error.to_string());
        assert_eq!(rate("fast").unwrap_err().or("must be a rate"), "must be a rate");
        assert_eq!(rate("5s").unwrap_err().about("5s", "a rate"), "`5s` is not a rate");
    }
}
