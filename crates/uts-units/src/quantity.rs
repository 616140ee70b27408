//! Reading an amount whose kind its unit says.

use crate::read;
use crate::unit::{Counts, Data, time_ns};

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing: a share, a count.
    One,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bits per second.
    BitsPerSecond,
    /// Packets.
    Packets,
}

impl Unit {
    /// Its name in tables: `1`, `s`, `bytes`, `bit/s`, `packets`.
    pub fn name(self) -> &'static str {
        match self {
            Unit::One => "1",
            Unit::Seconds => "s",
            Unit::Bytes => "bytes",
            Unit::BitsPerSecond => "bit/s",
            Unit::Packets => "packets",
        }
    }
}

/// Reads a number with its unit, in the unit's base: `20ms` is 0.02 [`Unit::Seconds`], `5%` is 0.05
/// [`Unit::One`]. `None` for anything else, and for what can be read in two ways.
pub fn quantity(text: &str) -> Option<(f64, Unit)> {
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    // `1e-3` has no unit.
    if text.starts_with(|c| is_number(c) || c == '-')
        && let Ok(share) = read::share(text)
    {
        return Some((share, Unit::One));
    }
    let (digits, unit) = text.split_at(text.find(|c| !is_number(c))?);
    let number: f64 = digits.parse().ok()?;
    let unit = unit.trim_start();
    if unit == "p" {
        return Some((number, Unit::Packets));
    }
    if let Some(ns) = time_ns(unit) {
        return Some((seconds(number, ns), Unit::Seconds));
    }
    let data = Data::parse(unit)?;
    match data.counts {
        Counts::Bits => Some((number * data.factor as f64, Unit::BitsPerSecond)),
        Counts::Bytes if data.per_second => Some((number * data.factor as f64 * 8.0, Unit::BitsPerSecond)),
        Counts::Bytes => Some((number * data.factor as f64, Unit::Bytes)),
        Counts::Either | Counts::Unsaid => None,
    }
}

/// `number` times this many nanoseconds, in seconds.
fn seconds(number: f64, ns: u64) -> f64 {
    // A product with the nearest number to 10^-n: recorded results were made with it.
    let unit_s = match ns {
        1 => 1e-9,
        1_000 => 1e-6,
        1_000_000 => 1e-3,
        longer => (longer / 1_000_000_000) as f64,
    };
    number * unit_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_the_base_of_their_unit() {
        for (text, number, unit) in [
            ("63p", 63.0, Unit::Packets),
            ("48kB", 48_000.0, Unit::Bytes),
            ("64KiB", 65_536.0, Unit::Bytes),
            ("5mbit", 5e6, Unit::BitsPerSecond),
            ("9600bit/s", 9600.0, Unit::BitsPerSecond),
            ("10MB/s", 80e6, Unit::BitsPerSecond),
            ("10Mb/s", 10e6, Unit::BitsPerSecond),
            ("150ms", 0.15, Unit::Seconds),
            ("2min", 120.0, Unit::Seconds),
            ("0.01", 0.01, Unit::One),
            ("1e-3", 0.001, Unit::One),
            ("5%", 0.05, Unit::One),
            ("-1", -1.0, Unit::One),
        ] {
            assert_eq!(quantity(text), Some((number, unit)), "{text}");
        }
        for text in ["ge:0.05,4", "inf", "nan", "", "p", "5 apples", "trace:x", "10mb/s", "10M", "48kib"] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }
}
