//! Amounts as people write and read them.

use std::time::Duration;

/// What the user says of a path; `None` = unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathGiven {
    /// Round trip.
    pub rtt: Option<Duration>,
    /// Rate, in bits per second.
    pub rate_bps: Option<f64>,
    /// Share of packets lost, 0 to 1.
    pub loss: Option<f64>,
    /// Mean number of packets lost in a row.
    pub burst: Option<f64>,
    /// Largest UDP payload, in bytes.
    pub mtu_bytes: Option<u64>,
}

impl PathGiven {
    /// Reads `rtt=40ms,rate=50Mbit/s,loss=5%,burst=4,mtu=1472`, each optional.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn parse(text: &str) -> Result<PathGiven, String> {
        let mut path = PathGiven::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| format!("--path: `{part}` is not NAME=VALUE"))?;
            let bad = |what: &str| format!("--path {name}: `{value}` is not {what}");
            match name.trim() {
                "rtt" => path.rtt = Some(time(value).ok_or_else(|| bad("a time, as 40ms"))?),
                "rate" => path.rate_bps = Some(rate(value).ok_or_else(|| bad("a rate, as 50Mbit/s"))?),
                "loss" => path.loss = Some(share(value).ok_or_else(|| bad("a share, as 5% or 0.05"))?),
                "burst" => {
                    let burst = value.trim().parse::<f64>().ok().filter(|b| b.is_finite() && *b >= 1.0);
                    path.burst = Some(burst.ok_or_else(|| bad("a number of packets, at least 1"))?);
                }
                "mtu" => {
                    let mtu = value.trim().parse::<u64>().ok().filter(|b| (548..=65_527).contains(b));
                    path.mtu_bytes = Some(mtu.ok_or_else(|| bad("a UDP payload in bytes (548 to 65527)"))?);
                }
                other => {
                    return Err(format!(
                        "--path: there is no `{other}`; rtt, rate, loss, burst and mtu are known"
                    ));
                }
            }
        }
        Ok(path)
    }
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text.get(..end)?.parse::<f64>().ok().filter(|n| n.is_finite())?;
    Some((number, text.get(end..)?.trim()))
}

fn time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "us" | "µs" => number / 1e6,
        "s" => number,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

fn rate(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("/s").or(unit.strip_suffix("ps")).unwrap_or(&unit);
    let factor = match unit {
        "bit" | "b" => 1.0,
        "kbit" | "kb" | "k" => 1e3,
        "mbit" | "mb" | "m" => 1e6,
        "gbit" | "gb" | "g" => 1e9,
        _ => return None,
    };
    Some(number * factor).filter(|r| *r >= 8.0)
}

fn share(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let share = match unit {
        "" => number,
        "%" => number / 100.0,
        _ => return None,
    };
    Some(share).filter(|s| (0.0..1.0).contains(s))
}

/// Bytes, as `64.0 MB`.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Bits per second, as `48.1 Mbit/s`.
pub fn bits_per_second(n: f64) -> String {
    scaled(n, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

fn scaled(mut n: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while n >= 999.95 && unit + 1 < units.len() {
        n /= 1000.0;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{n:.0} {name}") } else { format!("{n:.1} {name}") }
}

/// Seconds, as `12.3 s` or `1:02:03`.
pub fn seconds(s: f64) -> String {
    if s < 100.0 {
        return format!("{s:.2} s");
    }
    let whole = s as u64;
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

/// Reads how long something may take: `30s`, `10min`, `7d`, or `0`.
///
/// # Errors
/// What is wrong, in one line.
pub fn lasting(text: &str) -> Result<Duration, String> {
    let read = || {
        let (number, unit) = split(text)?;
        let seconds = match unit {
            "ms" => number / 1e3,
            "s" => number,
            "m" | "min" => number * 60.0,
            "h" => number * 3600.0,
            "d" => number * 86_400.0,
            "" if number == 0.0 => 0.0,
            _ => return None,
        };
        Duration::try_from_secs_f64(seconds).ok()
    };
    read().ok_or_else(|| "write a time, as 30s, 10min, 2h, 7d or 0".to_owned())
}

/// A long time in the largest unit that tells enough of it: `45 s`, `10 min`, `3 h`, `12 days`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds / 60),
        6000..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read() {
        let path = PathGiven::parse("rtt=40ms, rate=50Mbit/s,loss=5%,burst=4,mtu=1472").unwrap();
        let expected = PathGiven {
            rtt: Some(Duration::from_millis(40)),
            rate_bps: Some(50e6),
            loss: Some(0.05),
            burst: Some(4.0),
            mtu_bytes: Some(1472),
        };
        assert_eq!(path, expected);
        assert_eq!(PathGiven::parse("").unwrap(), PathGiven::default());
        assert_eq!(PathGiven::parse("loss=0.1").unwrap().loss, Some(0.1));
        for bad in [
            "rtt=40",
            "rtt=-1ms",
            "rate=fast",
            "rate=0bit/s",
            "loss=101%",
            "loss=1",
            "burst=0",
            "mtu=9",
            "x=1",
            "rtt",
        ] {
            assert!(PathGiven::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_read_and_shown() {
        for (text, shown) in [
            ("0", "0 s"),
            ("90s", "90 s"),
            ("10min", "10 min"),
            ("1.5h", "90 min"),
            ("30h", "30 h"),
            ("7d", "7 days"),
        ] {
            assert_eq!(span(lasting(text).unwrap()), shown);
        }
        for bad in ["", "10", "-1s", "1 year", "1e99d"] {
            assert!(lasting(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_are_shown() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(64_000_000), "64.0 MB");
        assert_eq!(bytes(999_960), "1.0 MB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!(bits_per_second(48_120_000.0), "48.1 Mbit/s");
        assert_eq!(seconds(3723.0), "1:02:03");
    }
}
