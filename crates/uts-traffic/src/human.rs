//! Spans of time, sizes and rates as people write them: `20ms`, `64kB`, `5Mbit/s`.
//!
//! The units are those of the path's settings. As serde modules (`#[serde(with = "human::duration")]`) they take text
//! and give it back; sizes and rates may also be plain numbers of bytes and of bits per second.

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

const TIME_UNITS: &[(&str, f64)] =
    &[("s", 1e9), ("min", 60e9), ("ms", 1e6), ("us", 1e3), ("µs", 1e3), ("ns", 1.0)];
const SIZE_UNITS: &[(&str, f64)] = &[
    ("GB", 1e9),
    ("MB", 1e6),
    ("kB", 1e3),
    ("GiB", 1_073_741_824.0),
    ("MiB", 1_048_576.0),
    ("KiB", 1024.0),
    ("B", 1.0),
];
const RATE_UNITS: &[(&str, f64)] = &[("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)];

/// Reads a span of time: `300us`, `20ms`, `1.5s`, `2min`.
///
/// # Errors
/// What was expected, in one line.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    scaled(text, TIME_UNITS, "a time with its unit, as 300us, 20ms, 1.5s or 2min").map(Duration::from_nanos)
}

/// Reads a size in bytes: `1500B`, `64kB` (64,000), `64KiB` (65,536), `16MB`.
///
/// # Errors
/// What was expected, in one line.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    scaled(text, SIZE_UNITS, "a size with its unit, as 1500B, 64kB, 64KiB or 16MB")
}

/// Reads a rate in bits per second: `9600bit/s`, `64kbit`, `5Mbit/s`.
///
/// # Errors
/// What was expected, in one line.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let with_time = if trimmed.ends_with("/s") { trimmed.to_owned() } else { format!("{trimmed}/s") };
    scaled(&with_time, RATE_UNITS, "a rate with its unit, as 9600bit/s, 64kbit or 5Mbit/s")
        .map_err(|why| why.replace(&with_time, trimmed))
}

/// The shortest exact form that [`parse_duration`] reads.
pub fn show_duration(value: Duration) -> String {
    let ns = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
    exact(ns, &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)])
}

/// The shortest exact form that [`parse_bytes`] reads.
pub fn show_bytes(value: u64) -> String {
    exact(value, &[("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000), ("B", 1)])
}

/// The shortest exact form that [`parse_rate`] reads.
pub fn show_rate(bps: u64) -> String {
    exact(bps, &[("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1000), ("bit/s", 1)])
}

/// A number with one of `units`, in the smallest one, rounded.
fn scaled(text: &str, units: &[(&str, f64)], wanted: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim())).map(|(_, f)| *f);
    match (digits.parse::<f64>(), factor) {
        (Ok(number), Some(factor)) if number * factor < 9e18 => Ok((number * factor).round() as u64),
        (Ok(_), Some(_)) => Err(format!("`{text}` is too large")),
        _ => Err(format!("`{text}` is not {wanted}")),
    }
}

/// In the largest unit that divides it.
fn exact(value: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, size): &&(&str, u64)| value > 0 && value.is_multiple_of(*size);
    let (unit, size) = units.iter().find(fits).or(units.last()).copied().unwrap_or(("", 1));
    format!("{}{unit}", value / size)
}

/// A value that is written as text.
trait Form {
    type Value: Copy;
    const EXPECTED: &'static str;
    fn parse(text: &str) -> Result<Self::Value, String>;
    fn show(value: Self::Value) -> String;
    /// What a plain number means, if that is plain.
    fn plain(number: u64) -> Option<Self::Value>;
}

struct Span;
struct Size;
struct BitRate;

impl Form for Span {
    type Value = Duration;
    const EXPECTED: &'static str = "a time with its unit, as \"20ms\"";
    fn parse(text: &str) -> Result<Duration, String> {
        parse_duration(text)
    }
    fn show(value: Duration) -> String {
        show_duration(value)
    }
    fn plain(number: u64) -> Option<Duration> {
        (number == 0).then_some(Duration::ZERO)
    }
}

impl Form for Size {
    type Value = u64;
    const EXPECTED: &'static str = "a size, as \"64kB\" or a number of bytes";
    fn parse(text: &str) -> Result<u64, String> {
        parse_bytes(text)
    }
    fn show(value: u64) -> String {
        show_bytes(value)
    }
    fn plain(number: u64) -> Option<u64> {
        Some(number)
    }
}

impl Form for BitRate {
    type Value = u64;
    const EXPECTED: &'static str = "a rate, as \"5Mbit/s\" or a number of bits per second";
    fn parse(text: &str) -> Result<u64, String> {
        parse_rate(text)
    }
    fn show(value: u64) -> String {
        show_rate(value)
    }
    fn plain(number: u64) -> Option<u64> {
        Some(number)
    }
}

struct Text<F>(PhantomData<F>);
struct OptionalText<F>(PhantomData<F>);

impl<F: Form> Visitor<'_> for Text<F> {
    type Value = F::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(F::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<F::Value, E> {
        F::parse(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<F::Value, E> {
        F::plain(number).ok_or_else(|| E::invalid_type(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<F::Value, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

impl<'de, F: Form> Visitor<'de> for OptionalText<F> {
    type Value = Option<F::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(F::EXPECTED)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(Text::<F>(PhantomData)).map(Some)
    }
}

/// A pair of serde modules for a form: for a value, and for one that may be absent.
macro_rules! serde_form {
    ($value:ident, $option:ident, $form:ident, $ty:ty, $doc:literal) => {
        #[doc = concat!("Serde form of ", $doc, ".")]
        pub mod $value {
            use super::*;

            /// Writes it as text.
            ///
            /// # Errors
            /// The serializer's.
            pub fn serialize<S: Serializer>(value: &$ty, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&$form::show(*value))
            }

            /// Reads it.
            ///
            /// # Errors
            /// If it has another form.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$ty, D::Error> {
                deserializer.deserialize_any(Text::<$form>(PhantomData))
            }
        }

        #[doc = concat!("Serde form of ", $doc, " that may be absent; its field needs `default`.")]
        pub mod $option {
            use super::*;

            /// Writes it as text, if it is there.
            ///
            /// # Errors
            /// The serializer's.
            pub fn serialize<S: Serializer>(value: &Option<$ty>, serializer: S) -> Result<S::Ok, S::Error> {
                value.map($form::show).serialize(serializer)
            }

            /// Reads it.
            ///
            /// # Errors
            /// If it has another form.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<$ty>, D::Error> {
                deserializer.deserialize_option(OptionalText::<$form>(PhantomData))
            }
        }
    };
}

serde_form!(duration, duration_option, Span, Duration, "a span of time");
serde_form!(bytes, bytes_option, Size, u64, "a size in bytes");
serde_form!(rate, rate_option, BitRate, u64, "a rate in bits per second");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_shown() {
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration(" 20 ms "), Ok(Duration::from_millis(20)));
        assert_eq!(parse_bytes("64KiB"), Ok(65_536));
        assert_eq!(parse_bytes("64kB"), Ok(64_000));
        assert_eq!(parse_rate("5Mbit/s"), Ok(5_000_000));
        assert_eq!(parse_rate("5mbit"), Ok(5_000_000));
        assert_eq!(show_duration(Duration::from_millis(1500)), "1500ms");
        assert_eq!(show_bytes(16_000_000), "16MB");
        assert_eq!(show_rate(9600), "9600bit/s");
        for n in [0, 1, 999, 1000, 65_536, 123_456_789] {
            assert_eq!(parse_bytes(&show_bytes(n)), Ok(n));
            assert_eq!(parse_rate(&show_rate(n)), Ok(n));
            assert_eq!(parse_duration(&show_duration(Duration::from_nanos(n))), Ok(Duration::from_nanos(n)));
        }
    }

    #[test]
    fn what_is_no_amount_is_quoted() {
        assert_eq!(
            parse_duration("20"),
            Err("`20` is not a time with its unit, as 300us, 20ms, 1.5s or 2min".into())
        );
        assert_eq!(
            parse_rate("fast"),
            Err("`fast` is not a rate with its unit, as 9600bit/s, 64kbit or 5Mbit/s".into())
        );
        for bad in ["", "kB", "-1kB", "1XB", "1e3B", "1..2kB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_bytes("99999999999GB"), Err("`99999999999GB` is too large".into()));
    }
}
