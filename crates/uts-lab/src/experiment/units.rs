//! Numbers with their units, as sweeps and times are written: `20ms`, `48kB`, `5mbit`, `63p`.

use std::time::Duration;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
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
    /// As `measures.csv` and `plan.json` name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::One => "1",
            Unit::Seconds => "s",
            Unit::Bytes => "bytes",
            Unit::BitsPerSecond => "bit/s",
            Unit::Packets => "packets",
        }
    }
}

/// Reads a number with its unit, in the unit's base; `None` for anything else.
pub(crate) fn quantity(text: &str) -> Option<(f64, Unit)> {
    let text = text.trim();
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let split = text.find(|c| !digits(c)).unwrap_or(text.len());
    // `1e-3` has no unit.
    if let Ok(number) = text.parse::<f64>()
        && text.starts_with(|c: char| digits(c) || c == '-')
    {
        return Some((number, Unit::One));
    }
    let number: f64 = text[..split].parse().ok()?;
    let unit = text[split..].to_lowercase();
    let (factor, unit) = match unit.trim_end_matches("/s") {
        "s" => (1.0, Unit::Seconds),
        "ms" => (1e-3, Unit::Seconds),
        "us" | "µs" => (1e-6, Unit::Seconds),
        "ns" => (1e-9, Unit::Seconds),
        "min" => (60.0, Unit::Seconds),
        "b" => (1.0, Unit::Bytes),
        "kb" => (1e3, Unit::Bytes),
        "mb" => (1e6, Unit::Bytes),
        "gb" => (1e9, Unit::Bytes),
        "kib" => (1024.0, Unit::Bytes),
        "mib" => (1_048_576.0, Unit::Bytes),
        "gib" => (1_073_741_824.0, Unit::Bytes),
        "bit" => (1.0, Unit::BitsPerSecond),
        "kbit" => (1e3, Unit::BitsPerSecond),
        "mbit" => (1e6, Unit::BitsPerSecond),
        "gbit" => (1e9, Unit::BitsPerSecond),
        "p" => (1.0, Unit::Packets),
        _ => return None,
    };
    Some((number * factor, unit))
}

/// Reads a span of time; `0` needs no unit.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    match quantity(text)? {
        (seconds, Unit::Seconds) => Duration::try_from_secs_f64(seconds).ok(),
        (0.0, Unit::One) => Some(Duration::ZERO),
        _ => None,
    }
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
            ("150ms", 0.15, Unit::Seconds),
            ("0.01", 0.01, Unit::One),
            ("1e-3", 0.001, Unit::One),
        ] {
            assert_eq!(quantity(text), Some((number, unit)), "{text}");
        }
        for text in ["ge:0.05,4", "inf", "nan", "", "p", "5 apples", "trace:x"] {
            assert_eq!(quantity(text), None, "{text}");
        }
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
        assert_eq!(duration("5"), None);
    }
}
