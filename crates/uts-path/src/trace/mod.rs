//! Delivery opportunities: a link whose rate varies, as a list of instants at which it carries a
//! packet's worth of bytes.

mod cellular;

pub use cellular::Cellular;

use crate::error::SpecError;
use crate::parse::{parse_rate, parse_whole};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes that an opportunity carries: one MTU.
pub(crate) const OPPORTUNITY_BYTES: u64 = 1500;
const NS_PER_MS: u64 = 1_000_000;

/// A trace of delivery opportunities in Mahimahi's format (R. Netravali et al., "Mahimahi: Accurate
/// Record-and-Replay for HTTP", USENIX ATC 2015): a line for each, its time in whole milliseconds
/// since the start, never less than the one before.
///
/// Each opportunity carries 1500 bytes, of one packet or of several. What is left over serves the
/// next packet that waits. If none waits, it is lost. A packet that arrives at the very instant of
/// an opportunity has missed it. The trace repeats, shifted by its last time.
///
/// It is printed in the same format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Not empty, in order, and the last is not 0.
    times_ms: Vec<u32>,
}

impl Trace {
    /// Makes a trace of these times in milliseconds.
    ///
    /// # Errors
    /// There are none, one is less than the one before, or the last is 0.
    pub fn new(times_ms: Vec<u32>) -> Result<Self, SpecError> {
        for (position, pair) in times_ms.windows(2).enumerate() {
            if let &[before, time] = pair
                && time < before
            {
                return Err(SpecError::new(
                    format!("line {}", position + 2),
                    format!("{time} ms is before {before} ms; times must not decrease"),
                ));
            }
        }
        match times_ms.last() {
            None => Err(SpecError::new("line 1", "must be a time in whole milliseconds, not the end")),
            Some(0) => {
                Err(SpecError::new(format!("line {}", times_ms.len()), "the last time must be above 0 ms"))
            }
            Some(_) => Ok(Trace { times_ms }),
        }
    }

    /// The times, in milliseconds.
    pub fn times_ms(&self) -> &[u32] {
        &self.times_ms
    }

    /// Time after which it repeats, in milliseconds.
    pub fn duration_ms(&self) -> u32 {
        self.times_ms.last().copied().unwrap_or(1)
    }

    /// The rate in the mean, in bits per second, rounded down.
    pub fn mean_rate_bps(&self) -> u64 {
        self.times_ms.len() as u64 * OPPORTUNITY_BYTES * 8 * 1000 / u64::from(self.duration_ms())
    }

    fn duration_ns(&self) -> u64 {
        u64::from(self.duration_ms()) * NS_PER_MS
    }

    /// When opportunity `number` is, counted through all repetitions.
    fn time_ns(&self, number: u64) -> u64 {
        let len = self.times_ms.len() as u64;
        let time_ms = self.times_ms.get((number % len) as usize).copied().unwrap_or(0);
        (number / len).saturating_mul(self.duration_ns()).saturating_add(u64::from(time_ms) * NS_PER_MS)
    }

    /// The first opportunity after `now_ns`.
    fn after(&self, now_ns: u64) -> u64 {
        let within_ns = now_ns % self.duration_ns();
        let passed = self.times_ms.partition_point(|&ms| u64::from(ms) * NS_PER_MS <= within_ns) as u64;
        now_ns / self.duration_ns() * self.times_ms.len() as u64 + passed
    }
}

impl FromStr for Trace {
    type Err = SpecError;

    /// Reads Mahimahi's format; errors name the line.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let times = text.lines().enumerate().map(|(position, line)| {
            line.trim().parse::<u32>().map_err(|_| {
                let reason = format!(
                    "must be a time in whole milliseconds, 0 to {}, not `{}`",
                    u32::MAX,
                    line.chars().take(40).collect::<String>()
                );
                SpecError::new(format!("line {}", position + 1), reason)
            })
        });
        Trace::new(times.collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.times_ms.iter().try_for_each(|time_ms| writeln!(f, "{time_ms}"))
    }
}

/// Where a link's delivery opportunities come from.
///
/// Text form, in TOML too: `trace:FILE` or `cellular:12mbit,7`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Opportunities {
    /// From a trace, which a file holds: this crate reads none, its caller does, by
    /// [`resolve`](crate::PathConfig::resolve).
    File {
        /// The file's name, without white space and `;`.
        name: String,
        /// Trace in the file, once it has been read.
        trace: Option<Arc<Trace>>,
    },
    /// From a generator.
    Cellular(Cellular),
}

impl Opportunities {
    /// Has the file read, if it is one that has not been; an error names it.
    pub(crate) fn resolve<E: fmt::Display>(
        &mut self,
        mut read: impl FnMut(&str) -> Result<Arc<Trace>, E>,
    ) -> Result<(), SpecError> {
        if let Opportunities::File { name, trace: trace @ None } = self {
            let found =
                read(name).map_err(|e| SpecError::new(format!("rate=trace:{name}"), e.to_string()))?;
            *trace = Some(found);
        }
        Ok(())
    }

    /// The name of its file and the trace in it, once that has been read.
    pub(crate) fn file(&self) -> Option<(&str, &Arc<Trace>)> {
        match self {
            Opportunities::File { name, trace: Some(trace) } => Some((name, trace)),
            _ => None,
        }
    }

    /// The trace.
    ///
    /// # Errors
    /// It stands in a file that has not been read.
    pub fn trace(&self) -> Result<Arc<Trace>, SpecError> {
        match self {
            Opportunities::File { trace: Some(trace), .. } => Ok(Arc::clone(trace)),
            Opportunities::File { name, trace: None } => {
                Err(SpecError::new(format!("rate=trace:{name}"), "the trace has not been read"))
            }
            Opportunities::Cellular(cellular) => Ok(Arc::new(cellular.trace())),
        }
    }

    /// Checks that a file has been read.
    pub(crate) fn check_resolved(&self) -> Result<(), SpecError> {
        match self {
            Opportunities::File { .. } => self.trace().map(drop),
            Opportunities::Cellular(_) => Ok(()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        match self {
            Opportunities::File { name, .. } => {
                if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == ';') {
                    return Err(SpecError::new(
                        "rate",
                        "a trace's name must not be empty or hold white space or `;`",
                    ));
                }
                Ok(())
            }
            Opportunities::Cellular(cellular) => cellular.check(),
        }
    }

    /// `None` if it is neither form.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, String>> {
        if let Some(name) = text.strip_prefix("trace:") {
            return Some(Ok(Opportunities::File { name: name.into(), trace: None }));
        }
        let arguments = text.strip_prefix("cellular:")?;
        let Some((max, seed)) = arguments.split_once(',') else {
            return Some(Err("must be cellular:MAX_RATE,SEED as in cellular:12mbit,7".into()));
        };
        let read = || {
            let (max_bps, seed) = (parse_rate(max)?, parse_whole(seed, "SEED")?);
            Ok(Opportunities::Cellular(Cellular { max_bps, seed }))
        };
        Some(read())
    }
}

impl fmt::Display for Opportunities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Opportunities::File { name, .. } => write!(f, "trace:{name}"),
            Opportunities::Cellular(Cellular { max_bps, seed }) => {
                write!(f, "cellular:{},{seed}", uts_units::show::path_rate(*max_bps))
            }
        }
    }
}

impl From<Opportunities> for String {
    fn from(opportunities: Opportunities) -> String {
        opportunities.to_string()
    }
}

impl TryFrom<String> for Opportunities {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        let form = || Err("must be trace:FILE or cellular:MAX_RATE,SEED as in cellular:12mbit,7".into());
        Opportunities::parse(&text)
            .unwrap_or_else(form)
            .map_err(|reason| SpecError::new("opportunities", reason))
    }
}

/// A trace under way.
#[derive(Debug, Clone)]
pub(crate) struct Playback {
    trace: Arc<Trace>,
    /// When the trace began.
    origin_ns: u64,
    /// The next opportunity, counted through all repetitions.
    next: u64,
}

impl Playback {
    pub(crate) fn new(trace: Arc<Trace>, origin_ns: u64) -> Self {
        Playback { trace, origin_ns, next: 0 }
    }

    /// When the next opportunity but `skip` is.
    pub(crate) fn time_ns(&self, skip: u64) -> u64 {
        self.origin_ns.saturating_add(self.trace.time_ns(self.next.saturating_add(skip)))
    }

    /// Takes all up to `now_ns`; how many they were.
    pub(crate) fn take(&mut self, now_ns: u64) -> u64 {
        let before = self.next;
        while self.time_ns(0) <= now_ns {
            self.next += 1;
        }
        self.next - before
    }

    /// Goes on to the first one after `now_ns`.
    pub(crate) fn seek(&mut self, now_ns: u64) {
        if let Some(passed_ns) = now_ns.checked_sub(self.origin_ns) {
            self.next = self.next.max(self.trace.after(passed_ns));
        }
    }

    pub(crate) fn mean_rate_bps(&self) -> u64 {
        self.trace.mean_rate_bps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_prints_as_it_is_read() {
        let trace: Trace = "0\n0\n3\n17\n".parse().unwrap();
        assert_eq!(trace.times_ms(), [0, 0, 3, 17]);
        assert_eq!(trace.to_string(), "0\n0\n3\n17\n");
        assert_eq!(trace.mean_rate_bps(), 4 * 12_000 * 1000 / 17);
        // Line ends of other systems, and none at the end.
        assert_eq!("0\r\n0\r\n3\r\n17".parse(), Ok(trace));
    }

    #[test]
    fn errors_name_the_line() {
        let whole = "must be a time in whole milliseconds, 0 to 4294967295, not";
        for (text, wanted) in [
            ("", "line 1: must be a time in whole milliseconds, not the end".to_string()),
            ("5\n\n6\n", format!("line 2: {whole} ``")),
            ("5\n7 8\n", format!("line 2: {whole} `7 8`")),
            ("# ms\n5\n", format!("line 1: {whole} `# ms`")),
            ("5\n6.5\n", format!("line 2: {whole} `6.5`")),
            ("-1\n", format!("line 1: {whole} `-1`")),
            ("4294967296\n", format!("line 1: {whole} `4294967296`")),
            ("5\n6\n4\n", "line 3: 4 ms is before 6 ms; times must not decrease".to_string()),
            ("0\n0\n", "line 2: the last time must be above 0 ms".to_string()),
        ] {
            assert_eq!(text.parse::<Trace>().unwrap_err().to_string(), wanted, "{text:?}");
        }
    }

    #[test]
    fn it_repeats_shifted_by_its_last_time() {
        let trace = Arc::new("0\n2\n2\n5\n".parse::<Trace>().unwrap());
        let times_ms: Vec<u64> = (0..9).map(|n| trace.time_ns(n) / NS_PER_MS).collect();
        assert_eq!(times_ms, [0, 2, 2, 5, 5, 7, 7, 10, 10]);
        for now_ns in (0..25 * NS_PER_MS).step_by(250_000) {
            let wanted = (0..).find(|&n| trace.time_ns(n) > now_ns).unwrap();
            assert_eq!(trace.after(now_ns), wanted, "{now_ns}");
            let mut playback = Playback::new(Arc::clone(&trace), 7);
            assert_eq!(playback.take(now_ns + 7), wanted);
            let mut sought = Playback::new(Arc::clone(&trace), 7);
            sought.seek(now_ns + 7);
            assert_eq!((sought.next, sought.time_ns(0)), (playback.next, trace.time_ns(wanted) + 7));
        }
        let mut early = Playback::new(trace, 7);
        early.seek(3);
        assert_eq!(early.time_ns(0), 7);
    }

    #[test]
    fn sources_print_as_they_are_read() {
        for text in ["trace:traces/verizon.down", "cellular:12mbit,7", "trace:a:b,c"] {
            let read = Opportunities::parse(text).unwrap().unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(Opportunities::try_from(text.to_string()), Ok(read));
        }
        assert!(Opportunities::parse("12mbit").is_none());
        assert!(Opportunities::try_from("12mbit".to_string()).is_err());
    }
}
