//! The one table of units.

/// Nanoseconds in units of time.
const TIMES: [(&str, u64); 10] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Prefixes of data and their powers of 1000 (with `i`, of 1024).
const PREFIXES: [(char, u32); 6] = [('k', 1), ('M', 2), ('G', 3), ('T', 4), ('P', 5), ('E', 6)];

/// Nanoseconds in a unit of time. Case does not matter, but for `M`, which is no minute.
pub(crate) fn time_ns(unit: &str) -> Option<u64> {
    let plain = unit.to_lowercase();
    TIMES.iter().find(|(name, _)| *name == plain && unit != "M").map(|(_, ns)| *ns)
}

/// Base unit of data: bits or bytes, if it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Bits: `bit`, or `b` in a unit that respects case.
    Bits,
    /// Bytes: `B`.
    Bytes,
    /// Bits or bytes: `mb`, whose case says nothing.
    Either,
    /// A prefix alone: `M`.
    Unsaid,
}

/// A unit of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub counts: Counts,
    /// Bits are written out, as `bit`.
    pub is_spelled: bool,
    /// Bits or bytes in the unit.
    pub factor: u64,
    /// The unit names a second, as `/s` or `ps`.
    pub per_second: bool,
    /// The prefix as it should be written: `M`, `Ki`, or nothing.
    prefix: Option<(char, bool)>,
}

impl Data {
    /// Reads `Mbit/s`, `kB`, `MiB/s`, `Gbps`.
    pub fn parse(unit: &str) -> Option<Data> {
        let stem = unit.strip_suffix("/s").or(unit.strip_suffix("ps"));
        let per_second = stem.is_some();
        let stem = stem.unwrap_or(unit);
        let lower = stem.to_ascii_lowercase();
        let spelled = lower.strip_suffix("bit").or(lower.strip_suffix("bits")).map(str::len);
        let (counts, length) = match spelled {
            Some(length) => (Counts::Bits, length),
            None if stem.ends_with('B') => (Counts::Bytes, stem.len().checked_sub(1)?),
            None if stem.ends_with('b') => (Counts::Bits, stem.len().checked_sub(1)?),
            None => (Counts::Unsaid, stem.len()),
        };
        let written = stem.get(..length)?;
        let mut chars = written.chars();
        let prefix = match (chars.next(), chars.next(), chars.next()) {
            (None, ..) => None,
            (Some(letter), None, _) => Some((letter, false)),
            (Some(letter), Some('i' | 'I'), None) => Some((letter, true)),
            _ => return None,
        };
        if counts == Counts::Unsaid && prefix.is_none_or(|(_, is_binary)| is_binary) {
            return None;
        }
        let mut data = Data { counts, is_spelled: spelled.is_some(), factor: 1, per_second, prefix: None };
        if let Some((letter, is_binary)) = prefix {
            let (name, power) =
                PREFIXES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&letter)).copied()?;
            let base: u64 = if is_binary { 1024 } else { 1000 };
            data.factor = base.checked_pow(power)?;
            data.prefix = Some((name, is_binary));
            // `k` is small also where case is respected; `Ki` is not.
            let ignores_case = letter.is_ascii_lowercase() && (name != 'k' || is_binary);
            if counts == Counts::Bits && spelled.is_none() && ignores_case {
                data.counts = Counts::Either;
            }
        }
        Some(data)
    }

    /// The unit as it should be written, of bits or bytes.
    pub fn named(&self, bits_or_bytes: &str) -> String {
        match self.prefix {
            None => bits_or_bytes.to_owned(),
            Some(('k', true)) => format!("Ki{bits_or_bytes}"),
            Some((letter, is_binary)) => {
                format!("{letter}{}{bits_or_bytes}", if is_binary { "i" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_data_are_told_apart_by_case() {
        for (text, counts, factor, per_second) in [
            ("bit", Counts::Bits, 1, false),
            ("Mbit/s", Counts::Bits, 1_000_000, true),
            ("MBIT/s", Counts::Bits, 1_000_000, true),
            ("mbit", Counts::Bits, 1_000_000, false),
            ("Mbits/s", Counts::Bits, 1_000_000, true),
            ("Mb/s", Counts::Bits, 1_000_000, true),
            ("kbps", Counts::Bits, 1_000, true),
            ("Kb/s", Counts::Bits, 1_000, true),
            ("bps", Counts::Bits, 1, true),
            ("Gibit/s", Counts::Bits, 1 << 30, true),
            ("MB/s", Counts::Bytes, 1_000_000, true),
            ("MBps", Counts::Bytes, 1_000_000, true),
            ("mB", Counts::Bytes, 1_000_000, false),
            ("B", Counts::Bytes, 1, false),
            ("KB", Counts::Bytes, 1_000, false),
            ("KiB", Counts::Bytes, 1_024, false),
            ("MIB", Counts::Bytes, 1 << 20, false),
            ("EB", Counts::Bytes, 1_000_000_000_000_000_000, false),
            ("mb/s", Counts::Either, 1_000_000, true),
            ("gbps", Counts::Either, 1_000_000_000, true),
            ("kib", Counts::Either, 1_024, false),
            ("M", Counts::Unsaid, 1_000_000, false),
        ] {
            let data = Data::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((data.counts, data.factor, data.per_second), (counts, factor, per_second), "{text}");
        }
        for text in ["", "/s", "ps", "s", "apples", "XB", "kkB", "Mi", "MiiB", "Mbit/h", "by", "µB"] {
            assert_eq!(Data::parse(text), None, "{text}");
        }
    }

    #[test]
    fn units_of_time_have_any_case_but_for_the_minute() {
        assert_eq!(time_ns("MS"), Some(1_000_000));
        assert_eq!(time_ns("m"), Some(60_000_000_000));
        assert_eq!(time_ns("M"), None);
        assert_eq!(time_ns("µs"), time_ns("μs"));
        assert_eq!(time_ns(""), None);
    }
}
