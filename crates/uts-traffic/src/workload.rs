//! Workload of an application: which bytes, requests or messages leave when, and what of it counts.

use crate::transport::Capabilities;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use uts_units::text;

/// Most requests, files, messages or keystrokes of one run. What the ends remember of each stays
/// within memory.
pub const COUNT_MAX: u64 = 10_000_000;

/// The smallest message, in bytes: it says which message it is and when it was due (see
/// [`crate::run`]).
pub const MESSAGE_BYTES_MIN: u64 = 16;

/// Most sizes that messages of a run are drawn from.
const SIZES_MAX: usize = 64;

/// Most bytes that a slow reader takes at once. Its buffer is as large.
pub const READ_BYTES_MAX: u64 = 16 << 20;

/// The size of a keystroke in bytes: that of an SSH packet with one character (RFC 4253 section 6,
/// with a MAC of 16).
pub const KEYSTROKE_BYTES: usize = 36;

/// A workload, the same for every transport that can carry it.
///
/// In text (TOML, JSON) times, sizes and rates are written as in [`uts_units`]:
/// `{ kind = "messages", every = "20ms", bytes = 160, duration = "60s", deadline = "150ms" }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Workload {
    /// One file on one stream: until this many bytes have arrived, or until the time is over.
    Bulk {
        /// Length of the file in bytes; `None` is as many as fit into `duration`.
        #[serde(default, with = "text::bytes_option", skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
        /// For how long at most.
        #[serde(default, with = "text::duration_option", skip_serializing_if = "Option::is_none")]
        duration: Option<Duration>,
    },
    /// One file on one stream, to an application that reads slowly: at most so much at once, and
    /// then nothing for a time.
    SlowReader {
        /// Length of the file in bytes.
        #[serde(with = "text::bytes")]
        bytes: u64,
        /// Most that it reads at once, in bytes.
        #[serde(with = "text::bytes")]
        read_bytes: u64,
        /// Time for which it is busy with what it has read.
        #[serde(with = "text::duration")]
        every: Duration,
    },
    /// Many files one after another, each on a stream of its own, this many at a time.
    Files {
        /// Number of files.
        count: u32,
        /// Length of each file in bytes.
        #[serde(with = "text::bytes")]
        bytes: u64,
        /// Number of files at a time.
        #[serde(default = "one")]
        concurrency: u32,
    },
    /// Requests and their answers, on as many streams as may be under way at a time.
    Requests {
        /// Number of requests altogether.
        count: u32,
        /// Size of a request in bytes.
        #[serde(with = "text::bytes")]
        request_bytes: u64,
        /// Size of an answer in bytes.
        #[serde(with = "text::bytes")]
        answer_bytes: u64,
        /// Number of requests under way at a time.
        #[serde(default = "one")]
        concurrency: u32,
    },
    /// Paced messages, each of use only until its deadline: voice, control loops.
    Messages {
        /// One every so often.
        #[serde(with = "text::duration")]
        every: Duration,
        /// Size of each in bytes.
        #[serde(with = "text::bytes")]
        bytes: u64,
        /// For how long.
        #[serde(with = "text::duration")]
        duration: Duration,
        /// Within which time of its leaving a message is of use.
        #[serde(with = "text::duration")]
        deadline: Duration,
    },
    /// Messages of a source that sends at random, each of use only until its deadline. The first is
    /// sent at once, all follow from the seed.
    RandomMessages {
        /// Pattern in time.
        arrivals: Arrivals,
        /// Mean time between two, while the source sends.
        #[serde(with = "text::duration")]
        every: Duration,
        /// Size of each in bytes that has none of `sizes`.
        #[serde(with = "text::bytes")]
        bytes: u64,
        /// Other sizes. Each message draws its own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sizes: Vec<Size>,
        /// Length of the run.
        #[serde(with = "text::duration")]
        duration: Duration,
        /// Time from its leaving within which a message is of use.
        #[serde(with = "text::duration")]
        deadline: Duration,
    },
    /// Video: frames at a rate, every n-th a key frame that is larger. A frame is of use if it is
    /// whole and in time.
    Video {
        /// Frames in a second.
        frames_per_s: u32,
        /// Mean rate in bits per second.
        #[serde(alias = "rate", with = "text::rate")]
        rate_bps: u64,
        /// Every so many frames is a key frame.
        key_every: u32,
        /// A key frame is so many times as large as another.
        key_factor: f64,
        /// For how long.
        #[serde(with = "text::duration")]
        duration: Duration,
        /// Within which time of its leaving a frame is of use.
        #[serde(with = "text::duration")]
        deadline: Duration,
    },
    /// Keystrokes at a person's pace, each echoed by the server.
    Keystrokes {
        /// Number of keystrokes.
        count: u32,
        /// The mean time between two; the times are exponentially distributed, from the seed.
        #[serde(with = "text::duration")]
        every: Duration,
    },
}

/// A size that a share of the messages have, in text: `{ bytes = "8kB", share = 0.09 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// The size in bytes.
    #[serde(with = "text::bytes")]
    pub bytes: u64,
    /// Share of the messages, above 0; 1 at the most with those of the other sizes.
    pub share: f64,
}

impl Size {
    fn validate_all(sizes: &[Size]) -> Result<(), String> {
        if sizes.len() > SIZES_MAX {
            return Err(format!("sizes: {} are more than {SIZES_MAX}", sizes.len()));
        }
        for Size { bytes, share } in sizes {
            at_least("sizes: bytes", *bytes, MESSAGE_BYTES_MIN)?;
            at_most("sizes: bytes", *bytes, u64::from(u32::MAX))?;
            if !(share.is_finite() && *share > 0.0) {
                return Err(format!("sizes: share: {share} is not above 0"));
            }
        }
        let sum: f64 = sizes.iter().map(|size| size.share).sum();
        // Shares in decimals do not add up to the last bit.
        if sum > 1.0 + 1e-9 {
            return Err(format!("sizes: the shares add up to {sum}, which is more than 1"));
        }
        Ok(())
    }
}

/// A pattern of random arrivals.
///
/// In text: `{ kind = "poisson" }`, or
/// `{ kind = "spells", on = "50ms", off = "150ms", shape = 1.4 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Arrivals {
    /// A Poisson process: the times between messages are exponentially distributed.
    Poisson,
    /// Evenly in spells, with silence between. Many such sources with a `shape` below 2 are
    /// together self-similar, with a Hurst parameter of (3 - shape) / 2 (Willinger, Taqqu, Sherman
    /// and Wilson 1997).
    Spells {
        /// Mean length of a spell, whose first message leaves as it begins.
        #[serde(with = "text::duration")]
        on: Duration,
        /// Mean length of a silence.
        #[serde(with = "text::duration")]
        off: Duration,
        /// Shape of Pareto's distribution of both, above 1 and 100 at the most; without it both are
        /// exponentially distributed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<f64>,
    },
}

impl Arrivals {
    fn validate(&self) -> Result<(), String> {
        let Arrivals::Spells { on, off, shape } = self else { return Ok(()) };
        lasting("on", *on)?;
        lasting("off", *off)?;
        match shape {
            Some(shape) if !(*shape > 1.0 && *shape <= 100.0) => {
                Err(format!("shape: {shape} is not above 1 and at most 100"))
            }
            _ => Ok(()),
        }
    }
}

fn one() -> u32 {
    1
}

impl Workload {
    /// Its name in text.
    pub fn kind(&self) -> &'static str {
        match self {
            Workload::Bulk { .. } => "bulk",
            Workload::SlowReader { .. } => "slow-reader",
            Workload::Files { .. } => "files",
            Workload::Requests { .. } => "requests",
            Workload::Messages { .. } => "messages",
            Workload::RandomMessages { .. } => "random-messages",
            Workload::Video { .. } => "video",
            Workload::Keystrokes { .. } => "keystrokes",
        }
    }

    /// Checks that it can be done at all.
    ///
    /// # Errors
    /// What is wrong, beginning with the key that is.
    pub fn validate(&self) -> Result<(), String> {
        match self {
            Workload::Bulk { bytes, duration } => {
                if bytes.is_none() && duration.is_none() {
                    return Err("bytes: say how many, or give a duration".into());
                }
                at_least("bytes", bytes.unwrap_or(1), 1)?;
                lasting("duration", duration.unwrap_or(Duration::from_secs(1)))
            }
            Workload::SlowReader { bytes, read_bytes, every } => {
                at_least("bytes", *bytes, 1)?;
                at_least("read_bytes", *read_bytes, 1)?;
                at_most("read_bytes", *read_bytes, READ_BYTES_MAX)?;
                lasting("every", *every)
            }
            Workload::Files { count, bytes, concurrency } => {
                counted("count", u64::from(*count))?;
                at_least("bytes", *bytes, 1)?;
                concurrent(*concurrency)
            }
            Workload::Requests { count, request_bytes, answer_bytes, concurrency } => {
                counted("count", u64::from(*count))?;
                at_least("request_bytes", *request_bytes, 1)?;
                at_least("answer_bytes", *answer_bytes, 1)?;
                concurrent(*concurrency)
            }
            Workload::RandomMessages { arrivals, every, bytes, sizes, duration, deadline } => {
                arrivals.validate().map_err(|why| format!("arrivals: {why}"))?;
                Size::validate_all(sizes)?;
                let even = Workload::Messages {
                    every: *every,
                    bytes: *bytes,
                    duration: *duration,
                    deadline: *deadline,
                };
                even.validate()
            }
            Workload::Messages { every, bytes, duration, deadline } => {
                lasting("every", *every)?;
                at_least("bytes", *bytes, MESSAGE_BYTES_MIN)?;
                at_most("bytes", *bytes, u64::from(u32::MAX))?;
                lasting("duration", *duration)?;
                counted("duration", div_ceil(*duration, *every))?;
                lasting("deadline", *deadline)
            }
            Workload::Video { frames_per_s, rate_bps, key_every, key_factor, duration, deadline } => {
                at_least("frames_per_s", u64::from(*frames_per_s), 1)?;
                at_most("frames_per_s", u64::from(*frames_per_s), 100_000)?;
                at_least("key_every", u64::from(*key_every), 1)?;
                if !(key_factor.is_finite() && (1.0..=1e6).contains(key_factor)) {
                    return Err(format!("key_factor: {key_factor} is not between 1 and 1000000"));
                }
                let (key, other) = frame_bytes(*frames_per_s, *rate_bps, *key_every, *key_factor);
                if other < MESSAGE_BYTES_MIN || key > u64::from(u32::MAX) {
                    return Err(format!(
                        "rate_bps: gives frames of {other} bytes and key frames of {key}; \
                         frames have {MESSAGE_BYTES_MIN} bytes to 4 GiB"
                    ));
                }
                lasting("duration", *duration)?;
                counted("duration", div_ceil(*duration, Duration::from_secs(1) / *frames_per_s))?;
                lasting("deadline", *deadline)
            }
            Workload::Keystrokes { count, every } => {
                counted("count", u64::from(*count))?;
                lasting("every", *every)
            }
        }
    }

    /// For how long it lasts at least, whatever the transport; `None` if the transport decides.
    pub fn lasts(&self) -> Option<Duration> {
        match self {
            Workload::Bulk { bytes: None, duration } => *duration,
            Workload::Bulk { .. } | Workload::Files { .. } | Workload::Requests { .. } => None,
            // A reading takes at most so much, and all but the last are waited for.
            Workload::SlowReader { bytes, read_bytes, every } => {
                let waits = bytes.div_ceil((*read_bytes).max(1)).saturating_sub(1);
                Some(every.saturating_mul(u32::try_from(waits).unwrap_or(u32::MAX)))
            }
            Workload::Messages { duration, .. }
            | Workload::RandomMessages { duration, .. }
            | Workload::Video { duration, .. } => Some(*duration),
            Workload::Keystrokes { count, every } => Some(every.saturating_mul(*count)),
        }
    }
}

/// Checks that a transport can carry a workload.
///
/// # Errors
/// What it lacks.
pub fn can_carry(workload: &Workload, capabilities: &Capabilities) -> Result<(), String> {
    let (streams, messages) = (capabilities.streams, capabilities.messages);
    let lacks = |what: &str| Err(format!("{} needs {what}, and the transport has none", workload.kind()));
    match workload {
        Workload::Bulk { .. }
        | Workload::SlowReader { .. }
        | Workload::Files { .. }
        | Workload::Requests { .. }
            if !streams =>
        {
            lacks("reliable streams")
        }
        Workload::Messages { .. } | Workload::RandomMessages { .. } | Workload::Video { .. } if !messages => {
            lacks("messages")
        }
        Workload::Keystrokes { .. } if !streams && !messages => lacks("streams or messages"),
        Workload::Keystrokes { .. } if !streams => fits(capabilities, KEYSTROKE_BYTES as u64),
        Workload::Messages { .. } | Workload::RandomMessages { .. } | Workload::Video { .. } => {
            fits(capabilities, 2 * MESSAGE_BYTES_MIN)
        }
        _ => Ok(()),
    }
}

fn fits(capabilities: &Capabilities, bytes: u64) -> Result<(), String> {
    let max = capabilities.message_bytes_max;
    if (max as u64) < bytes {
        return Err(format!(
            "the transport's messages of at most {max} bytes are smaller than {bytes} bytes"
        ));
    }
    Ok(())
}

/// The sizes of a key frame and of another, in bytes, so that a group of frames has the mean rate.
pub(crate) fn frame_bytes(frames_per_s: u32, rate_bps: u64, key_every: u32, key_factor: f64) -> (u64, u64) {
    let group = rate_bps as f64 / 8.0 / f64::from(frames_per_s.max(1)) * f64::from(key_every);
    let other = group / (f64::from(key_every) - 1.0 + key_factor);
    ((other * key_factor).round() as u64, other.round() as u64)
}

/// Number of spans of `part` in `whole`, the last one perhaps in part.
pub(crate) fn div_ceil(whole: Duration, part: Duration) -> u64 {
    u64::try_from(whole.as_nanos().div_ceil(part.as_nanos().max(1))).unwrap_or(u64::MAX)
}

fn at_least(key: &str, value: u64, min: u64) -> Result<(), String> {
    if value < min { Err(format!("{key}: {value} is less than {min}")) } else { Ok(()) }
}

fn at_most(key: &str, value: u64, max: u64) -> Result<(), String> {
    if value > max { Err(format!("{key}: {value} is more than {max}")) } else { Ok(()) }
}

fn counted(key: &str, value: u64) -> Result<(), String> {
    at_least(key, value, 1)?;
    match value {
        value if value > COUNT_MAX && key == "duration" => {
            Err(format!("duration: makes {value} messages, which is more than {COUNT_MAX}"))
        }
        value => at_most(key, value, COUNT_MAX),
    }
}

fn concurrent(value: u32) -> Result<(), String> {
    at_least("concurrency", u64::from(value), 1)?;
    at_most("concurrency", u64::from(value), 10_000)
}

fn lasting(key: &str, value: Duration) -> Result<(), String> {
    if value.is_zero() {
        return Err(format!("{key}: is 0"));
    }
    if value > Duration::from_secs(30 * 24 * 3600) {
        return Err(format!("{key}: {} is more than 30 days", uts_units::show::time(value)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str) -> Result<Workload, String> {
        toml::from_str(toml).map_err(|e| e.to_string())
    }

    #[test]
    fn workloads_are_written_for_people() {
        let bulk = read("kind = 'bulk'\nbytes = '16MB'").expect("read");
        assert_eq!(bulk, Workload::Bulk { bytes: Some(16_000_000), duration: None });
        let voice = "kind = 'messages'\nevery = '20ms'\nbytes = 160\nduration = '60s'\ndeadline = '150ms'";
        let messages = read(voice).expect("read");
        let ms = Duration::from_millis;
        let expected =
            Workload::Messages { every: ms(20), bytes: 160, duration: ms(60_000), deadline: ms(150) };
        assert_eq!(messages, expected);
        for workload in [bulk, messages] {
            let json = serde_json::to_string(&workload).expect("written");
            assert_eq!(serde_json::from_str::<Workload>(&json).expect(&json), workload);
            assert_eq!(read(&toml::to_string(&workload).expect("written")).expect("read"), workload);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("kind = 'bulk'\nbytes = '16 apples'", "`16 apples` is not a size"),
            ("kind = 'bulk'\nduration = 20", "expected a time with its unit"),
            ("kind = 'bulk'\nsize = 3", "unknown field `size`"),
            ("kind = 'bluk'", "unknown variant `bluk`"),
            ("kind = 'files'\ncount = 3", "missing field `bytes`"),
            ("kind = 'files'\ncount = 3\nbytes = -1", "invalid value: integer `-1`"),
        ];
        for (text, expected) in cases {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_done_names_its_key() {
        let cases = [
            ("kind = 'bulk'", "bytes: say how many, or give a duration"),
            ("kind = 'bulk'\nbytes = 0", "bytes: 0 is less than 1"),
            ("kind = 'files'\ncount = 0\nbytes = 1", "count: 0 is less than 1"),
            ("kind = 'files'\ncount = 1\nbytes = 1\nconcurrency = 0", "concurrency: 0 is less than 1"),
            ("kind = 'requests'\ncount = 1\nrequest_bytes = 0\nanswer_bytes = 1", "request_bytes: 0 is"),
            ("kind = 'keystrokes'\ncount = 1\nevery = '0s'", "every: is 0"),
            ("kind = 'slow-reader'\nbytes = 9\nread_bytes = 0\nevery = '1s'", "read_bytes: 0 is less than 1"),
            (
                "kind = 'slow-reader'\nbytes = 9\nread_bytes = '1GB'\nevery = '1s'",
                "read_bytes: 1000000000 is more",
            ),
            ("kind = 'slow-reader'\nbytes = 9\nread_bytes = 9\nevery = '0s'", "every: is 0"),
            (
                "kind = 'random-messages'\narrivals = { kind = 'spells', on = '1s', off = '1s', shape = 1.0 }\n\
                 every = '1ms'\nbytes = 16\nduration = '1s'\ndeadline = '1s'",
                "arrivals: shape: 1 is not above 1",
            ),
            (
                "kind = 'random-messages'\narrivals = { kind = 'poisson' }\nevery = '1ms'\nbytes = 16\n\
                 sizes = [{ bytes = 8192, share = 0.6 }, { bytes = 200, share = 0.5 }]\n\
                 duration = '1s'\ndeadline = '1s'",
                "sizes: the shares add up to 1.1",
            ),
            (
                "kind = 'random-messages'\narrivals = { kind = 'poisson' }\nevery = '1ms'\nbytes = 16\n\
                 sizes = [{ bytes = 15, share = 0.6 }]\nduration = '1s'\ndeadline = '1s'",
                "sizes: bytes: 15 is less than 16",
            ),
            (
                "kind = 'random-messages'\narrivals = { kind = 'poisson' }\nevery = '1ms'\nbytes = 16\n\
                 sizes = [{ bytes = 20, share = 0 }]\nduration = '1s'\ndeadline = '1s'",
                "sizes: share: 0 is not above 0",
            ),
            (
                "kind = 'random-messages'\narrivals = { kind = 'poisson' }\n\
                 every = '1us'\nbytes = 16\nduration = '1000s'\ndeadline = '1s'",
                "duration: makes 1000000000 messages",
            ),
            (
                "kind = 'messages'\nevery = '1us'\nbytes = 16\nduration = '1000s'\ndeadline = '1s'",
                "duration: makes 1000000000 messages",
            ),
            (
                "kind = 'messages'\nevery = '1ms'\nbytes = 8\nduration = '1s'\ndeadline = '1s'",
                "bytes: 8 is less than 16",
            ),
            (
                "kind = 'video'\nframes_per_s = 30\nrate = 300\nkey_every = 30\nkey_factor = 5.0\n\
                 duration = '1s'\ndeadline = '1s'",
                "rate_bps: gives frames of 1 bytes",
            ),
            (
                "kind = 'video'\nframes_per_s = 30\nrate = '1Mbit/s'\nkey_every = 30\nkey_factor = 0.5\n\
                 duration = '1s'\ndeadline = '1s'",
                "key_factor: 0.5 is not",
            ),
        ];
        for (text, expected) in cases {
            let error = read(text).expect(text).validate().expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_group_of_frames_has_the_mean_rate() {
        let (key, other) = frame_bytes(30, 2_000_000, 60, 8.0);
        let mean_bps = (key + 59 * other) as f64 * 8.0 * 30.0 / 60.0;
        assert!((mean_bps / 2e6 - 1.0).abs() < 0.001, "{mean_bps}");
        assert!((key as f64 / other as f64 - 8.0).abs() < 0.01);
        assert_eq!(frame_bytes(25, 1_000_000, 1, 4.0).0, 5000, "all are key frames");
    }

    #[test]
    fn what_a_transport_lacks_is_said() {
        let datagrams =
            Capabilities { streams: false, messages: true, message_bytes_max: 1200, protected: false };
        let bulk = Workload::Bulk { bytes: Some(1), duration: None };
        assert_eq!(
            can_carry(&bulk, &datagrams),
            Err("bulk needs reliable streams, and the transport has none".into())
        );
        let keys = Workload::Keystrokes { count: 1, every: Duration::from_millis(1) };
        assert_eq!(can_carry(&keys, &datagrams), Ok(()));
        assert!(can_carry(&keys, &Capabilities { message_bytes_max: 20, ..datagrams }).is_err());
        assert!(can_carry(&keys, &Capabilities { messages: false, ..datagrams }).is_err());
    }
}
