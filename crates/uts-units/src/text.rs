//! Serde forms of amounts (`#[serde(with = "uts_units::text::duration")]`): text is read and
//! written.
//!
//! Sizes may also be plain numbers of bytes, rates of bits per second.

use crate::{rate as read_rate, show, size as read_size, time as read_time};
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

/// Reads a span of time, for a command's argument or a form: `300us`, `20ms`, `1.5s`, `2min`.
///
/// # Errors
/// What is wrong, in one line.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    read_time(text).map_err(|e| e.about(text.trim(), "a time with its unit, as 300us, 20ms, 1.5s or 2min"))
}

/// Reads a size in bytes: `1500B`, `64kB` (64,000), `64KiB` (65,536), `16MB`.
///
/// # Errors
/// What is wrong, in one line.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    read_size(text).map_err(|e| e.about(text.trim(), "a size with its unit, as 1500B, 64kB, 64KiB or 16MB"))
}

/// Reads a rate in bits per second: `9600bit/s`, `64kbit`, `5Mbit/s`.
///
/// # Errors
/// What is wrong, in one line.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    read_rate(text).map_err(|e| e.about(text.trim(), "a rate with its unit, as 9600bit/s, 64kbit or 5Mbit/s"))
}

/// A value that is written as text.
trait Form {
    type Value: Copy;
    const EXPECTED: &'static str;
    fn parse(text: &str) -> Result<Self::Value, String>;
    fn show(value: Self::Value) -> String;
    /// Value of a number without a unit, if that needs none.
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
        show::time(value)
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
        show::size(value)
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
        show::rate(value)
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
    fn what_is_no_amount_is_quoted() {
        assert_eq!(
            parse_duration("20"),
            Err("`20` is not a time with its unit, as 300us, 20ms, 1.5s or 2min".into())
        );
        assert_eq!(
            parse_rate("fast"),
            Err("`fast` is not a rate with its unit, as 9600bit/s, 64kbit or 5Mbit/s".into())
        );
        assert_eq!(
            parse_bytes("64kb"),
            Err("`64kb` can be read as 64 kbit and as 64 kB; write which".into())
        );
        assert_eq!(parse_bytes("99999999999GB"), Err("`99999999999GB` is too large".into()));
    }
}
