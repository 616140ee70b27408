//! The types of property values, and how they are written.

use core::fmt;
use core::time::Duration;
use uts_functions::Rate;

/// How much the application wants a property (RFC 9622 section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preference {
    /// Without it there is no connection.
    Require,
    /// Rather with it.
    Prefer,
    /// Either way.
    #[default]
    NoPreference,
    /// Rather without it.
    Avoid,
    /// With it there is no connection.
    Prohibit,
}

impl Preference {
    /// Required or preferred.
    pub fn is_wanted(self) -> bool {
        matches!(self, Preference::Require | Preference::Prefer)
    }

    /// Avoided or prohibited.
    pub fn is_unwanted(self) -> bool {
        matches!(self, Preference::Avoid | Preference::Prohibit)
    }
}

/// What the application expects of capacity (RFC 9622 section 8.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CapacityProfile {
    /// Best effort, no expectation.
    #[default]
    Default,
    /// Gives way to everything else.
    Scavenger,
    /// Short messages whose answer somebody waits for.
    LowLatencyInteractive,
    /// Delay matters, nobody waits for an answer.
    LowLatencyNonInteractive,
    /// A steady rate, with little variation of delay.
    ConstantRate,
    /// As fast as the path goes, for long.
    CapacitySeeking,
}

impl CapacityProfile {
    /// Whether delay counts more than throughput.
    pub fn is_latency_bound(self) -> bool {
        matches!(
            self,
            CapacityProfile::LowLatencyInteractive
                | CapacityProfile::LowLatencyNonInteractive
                | CapacityProfile::ConstantRate
        )
    }
}

/// Which way data flows (RFC 9622 section 6.2.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direction {
    /// Both ways.
    #[default]
    Bidirectional,
    /// From here to the peer only.
    UnidirectionalSend,
    /// From the peer to here only.
    UnidirectionalReceive,
}

/// How connections of a group share (RFC 9622 section 8.1.5 leaves the list open).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scheduler {
    /// By weight, which is what `connPriority` means here.
    #[default]
    WeightedFairQueueing,
}

/// Whether packets are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Security {
    /// Authenticated encryption, always.
    #[default]
    Required,
    /// None, if the peer asks for none as well.
    Unprotected,
}

/// A quality that the application may be ready to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// All data arrives.
    Reliability,
    /// Data arrives in the order of sending.
    Order,
    /// Data arrives within `uts.maxDelay` or its lifetime.
    Delay,
    /// Delay varies by less than `uts.maxJitter`.
    Jitter,
    /// Data arrives at `minSendRate` or as fast as the path goes.
    Rate,
}

/// A type whose values are words.
pub(super) trait Words: Copy + PartialEq + 'static {
    /// Values and how they are written.
    const WORDS: &'static [(&'static str, Self)];

    /// The value so written; case, blanks, `-`, `_` and `/` do not matter.
    fn parse(text: &str) -> Result<Self, String> {
        let plain = |s: &str| -> String {
            s.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
        };
        let wanted = plain(text);
        Self::WORDS.iter().find(|(word, _)| plain(word) == wanted).map(|(_, value)| *value).ok_or_else(|| {
            match super::nearest(text, Self::WORDS.iter().map(|(word, _)| *word)) {
                Some(word) => format!("did you mean `{word}`?"),
                None => String::new(),
            }
        })
    }

    /// How the value is written.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("?", |(word, _)| word)
    }
}

macro_rules! words {
    ($($ty:ident { $($word:literal => $variant:ident),+ $(,)? })+) => {
        $(
            impl Words for $ty {
                const WORDS: &'static [(&'static str, Self)] = &[$(($word, $ty::$variant)),+];
            }

            impl fmt::Display for $ty {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(self.word())
                }
            }
        )+
    };
}

words! {
    Preference {
        "require" => Require, "prefer" => Prefer, "no-preference" => NoPreference,
        "avoid" => Avoid, "prohibit" => Prohibit,
    }
    CapacityProfile {
        "default" => Default, "scavenger" => Scavenger,
        "low-latency-interactive" => LowLatencyInteractive,
        "low-latency-non-interactive" => LowLatencyNonInteractive,
        "constant-rate" => ConstantRate, "capacity-seeking" => CapacitySeeking,
    }
    Direction {
        "bidirectional" => Bidirectional, "unidirectional-send" => UnidirectionalSend,
        "unidirectional-receive" => UnidirectionalReceive,
    }
    Scheduler { "weighted-fair-queueing" => WeightedFairQueueing }
    Security { "required" => Required, "unprotected" => Unprotected }
    Quality {
        "reliability" => Reliability, "order" => Order, "delay" => Delay, "jitter" => Jitter,
        "rate" => Rate,
    }
}

/// `on` or `off` (`true`, `false`).
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(String::new()),
    }
}

/// A whole number from zero.
pub(super) fn number(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| String::new())
}

/// Qualities, separated by commas, each at most once.
pub(super) fn qualities(text: &str) -> Result<Vec<Quality>, String> {
    let mut list = Vec::new();
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        let quality = Quality::parse(word).map_err(|hint| format!("`{word}` is no quality; {hint}"))?;
        if list.contains(&quality) {
            return Err(format!("`{word}` is named twice"));
        }
        list.push(quality);
    }
    Ok(list)
}

/// How a list of qualities is written.
pub(super) fn show_qualities(list: &[Quality]) -> String {
    if list.is_empty() {
        return "none".to_owned();
    }
    list.iter().map(|q| q.word()).collect::<Vec<_>>().join(",")
}

/// A positive time; a bare number counts `bare_s` seconds. The words in `never` mean no limit.
pub(super) fn duration(text: &str, bare_s: f64, never: &str) -> Result<Option<Duration>, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case(never) {
        return Ok(None);
    }
    let (value, unit) = split_unit(text)?;
    let scale = match unit {
        "" => bare_s,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(format!("`{unit}` is no unit of time (us, ms, s, min)")),
    };
    let seconds = value * scale;
    if seconds <= 0.0 {
        return Err("must be above zero".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| "too long".to_owned())
}

/// How a time is written.
pub(super) fn show_duration(value: Option<Duration>, never: &str) -> String {
    match value {
        None => never.to_owned(),
        Some(d) if d.as_millis() >= 10_000 => format!("{} s", trim(d.as_secs_f64())),
        Some(d) => format!("{} ms", trim(d.as_secs_f64() * 1e3)),
    }
}

/// A positive rate; a bare number counts bits per second.
pub(super) fn rate(text: &str) -> Result<Option<Rate>, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("unlimited") {
        return Ok(None);
    }
    let (value, unit) = split_unit(text)?;
    let scale = match unit.trim_end_matches("/s").trim_end_matches("bit") {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(format!("`{unit}` is no unit of rate (bit/s, kbit/s, Mbit/s, Gbit/s)")),
    };
    let bits = value * scale;
    if bits < 8.0 {
        return Err("must be at least 8 bit/s".to_owned());
    }
    if bits > 1e15 {
        return Err("too large".to_owned());
    }
    Ok(Some(Rate::from_bits_per_sec(bits as u64)))
}

/// How a rate is written.
pub(super) fn show_rate(value: Option<Rate>) -> String {
    match value {
        None => "unlimited".to_owned(),
        Some(r) if r.bits_per_sec() >= 1_000_000 => format!("{} Mbit/s", trim(r.bits_per_sec() as f64 / 1e6)),
        Some(r) => format!("{} kbit/s", trim(r.bits_per_sec() as f64 / 1e3)),
    }
}

/// A number and the unit that follows it.
fn split_unit(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let value: f64 = digits.parse().map_err(|_| String::new())?;
    if value.is_finite() { Ok((value, unit.trim())) } else { Err("too large".to_owned()) }
}

/// Up to three decimals, without trailing zeros.
fn trim(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
