//! The types of property values, and how they are written.

use core::fmt;
use core::time::Duration;
use uts_functions::Rate;
use uts_units::AmountError;

/// Strength of the application's wish for a property (RFC 9622 section 6.2).
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

/// Expectation of the application for capacity (RFC 9622 section 8.1.6).
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
    /// True if delay counts more than throughput.
    pub fn is_latency_bound(self) -> bool {
        matches!(
            self,
            CapacityProfile::LowLatencyInteractive
                | CapacityProfile::LowLatencyNonInteractive
                | CapacityProfile::ConstantRate
        )
    }
}

/// Direction in which data flows (RFC 9622 section 6.2.15).
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

/// Way in which the flows of a connection share it (RFC 9622 section 8.1.5, RFC 8260 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scheduler {
    /// Each has a share of the bytes as 1 / (`connPriority` + 1).
    #[default]
    WeightedFairQueueing,
    /// All have the same share of the bytes.
    FairCapacity,
    /// Flows of the smallest `connPriority` go first, and share the bytes equally.
    Priority,
    /// The flow goes first whose message will be given up first. Flows without a lifetime follow,
    /// and share by weight.
    EarliestDeadline,
}

/// Protection of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Security {
    /// Authenticated encryption, always.
    #[default]
    Required,
    /// None, if the peer asks for none as well.
    Unprotected,
}

/// The way in which mechanisms of what this end sends are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ExchangeMode {
    /// Other mechanisms are used once the peer has agreed to them: after a round trip.
    #[default]
    Explicit,
    /// They are used at once; what the peer does not agree to is sent again under those before.
    Implicit,
    /// They are used at once where the peer cannot but agree.
    Automatic,
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

    /// Word for the value.
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
    Scheduler {
        "weighted-fair-queueing" => WeightedFairQueueing, "fair-capacity" => FairCapacity,
        "priority" => Priority, "earliest-deadline" => EarliestDeadline,
    }
    Security { "required" => Required, "unprotected" => Unprotected }
    ExchangeMode { "explicit" => Explicit, "implicit" => Implicit, "automatic" => Automatic }
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

/// The value of a length that means all of a message.
const FULL: &str = "full-coverage";

/// A number of bytes; `None` = all that there are.
pub(super) fn coverage(text: &str) -> Result<Option<u32>, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case(FULL) || text.eq_ignore_ascii_case("full") {
        return Ok(None);
    }
    number(text).map(Some)
}

/// Text of a length that may be all.
pub(super) fn show_coverage(value: Option<u32>) -> String {
    value.map_or_else(|| FULL.to_owned(), |bytes| bytes.to_string())
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

/// Text of a list of qualities.
pub(super) fn show_qualities(list: &[Quality]) -> String {
    if list.is_empty() {
        return "none".to_owned();
    }
    list.iter().map(|q| q.word()).collect::<Vec<_>>().join(",")
}

/// A positive time. A bare number counts `bare`, a unit of time (selection.md S-2). The words in
/// `never` mean no limit.
pub(super) fn duration(text: &str, bare: &str, never: &str) -> Result<Option<Duration>, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case(never) {
        return Ok(None);
    }
    match uts_units::time_in(bare, text).map_err(|error| why(error, TIME_UNITS))? {
        Duration::ZERO => Err("must be above zero".to_owned()),
        span => Ok(Some(span)),
    }
}

/// A playout delay (selection.md S-44).
pub(super) fn playout_delay(text: &str) -> Result<Option<Duration>, String> {
    const RANGE: core::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
    match duration(text, "ms", "none")? {
        Some(delay) if !RANGE.contains(&delay) => Err("must be 1 ms to 10 s".to_owned()),
        delay => Ok(delay),
    }
}

/// Text of a time.
pub(super) fn show_duration(value: Option<Duration>, never: &str) -> String {
    value.map_or_else(|| never.to_owned(), uts_units::show::property_time)
}

/// Lowest rate, in bits per second: a byte a second.
const RATE_MIN_BPS: u64 = 8;
/// Highest rate, in bits per second: far above any interface, and far below an overflow of what is
/// computed with it.
const RATE_MAX_BPS: u64 = 1_000_000_000_000_000;

/// A positive rate; a bare number counts bits per second (selection.md S-2).
pub(super) fn rate(text: &str) -> Result<Option<Rate>, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("unlimited") {
        return Ok(None);
    }
    match uts_units::rate(text).map_err(|error| why(error, RATE_UNITS))? {
        ..RATE_MIN_BPS => Err(format!("must be at least {RATE_MIN_BPS} bit/s")),
        bps if bps > RATE_MAX_BPS => Err("is too large".to_owned()),
        bps => Ok(Some(Rate::from_bits_per_sec(bps))),
    }
}

/// Text of a rate.
pub(super) fn show_rate(value: Option<Rate>) -> String {
    value.map_or_else(|| "unlimited".to_owned(), |rate| uts_units::show::property_rate(rate.bits_per_sec()))
}

const TIME_UNITS: &str = "time (ns, us, ms, s, min, h, d)";
const RATE_UNITS: &str = "rate (bit/s, kbit/s, Mbit/s, Gbit/s, kB/s, MB/s)";

/// Cause of an error, if there is more to say than that the text is not what was expected; `units`
/// are the property's.
fn why(error: AmountError, units: &str) -> String {
    match error {
        AmountError::Form => String::new(),
        AmountError::Unit(unit) => format!("`{unit}` is no unit of {units}"),
        other => other.to_string(),
    }
}
