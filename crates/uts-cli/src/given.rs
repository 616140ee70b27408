//! Values that a user gives in words beside names: a path, and how long something may take.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use uts_units::AmountError;

/// Facts of a path that the user gives; `None` = unknown.
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
    /// Mean time in queues.
    pub queue: Option<Duration>,
    /// Share of the losses that congestion has caused, 0 to 1.
    pub congestive: Option<f64>,
    /// Packets with data that the application makes in a second, where it has a rate of its own.
    pub packets_per_s: Option<f64>,
    /// Number of these that leave together.
    pub together: Option<f64>,
    /// Bytes of the application in each of them.
    pub payload_bytes: Option<f64>,
    /// Number of packets that all of this rests on.
    pub samples: Option<u64>,
    /// Largest UDP payload, in bytes.
    pub mtu_bytes: Option<u64>,
}

impl PathGiven {
    /// Reads `rtt=40ms,rate=50Mbit/s,loss=5%,burst=4,mtu=1472`, each optional, and the other facts
    /// of [`PathFacts`](uts::PathFacts) as these are written.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn parse(text: &str) -> Result<PathGiven, String> {
        let mut path = PathGiven::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| format!("--path: `{part}` is not NAME=VALUE"))?;
            let bad = |what: &str| format!("--path {name}: `{value}` is not {what}");
            let wrong =
                |error: AmountError, what: &str| format!("--path {name}: {}", error.about(value, what));
            match name.trim() {
                "rtt" => {
                    path.rtt = Some(uts_units::time(value).map_err(|e| wrong(e, "a time, as 40ms"))?);
                }
                "rate" => {
                    const WANTED: &str = "a rate, as 50Mbit/s";
                    let bps = uts_units::rate(value).map_err(|e| wrong(e, WANTED))?;
                    let bps = Some(bps).filter(|bps| *bps >= RATE_MIN_BPS).ok_or_else(|| bad(WANTED))?;
                    path.rate_bps = Some(bps as f64);
                }
                "queue" => {
                    path.queue = Some(uts_units::time(value).map_err(|e| wrong(e, "a time, as 12ms"))?);
                }
                "loss" => {
                    let share = uts_units::share(value).ok().filter(|share| (0.0..1.0).contains(share));
                    path.loss = Some(share.ok_or_else(|| bad("a share below 1, as 5% or 0.05"))?);
                }
                "congestive" => {
                    let share = uts_units::share(value).ok().filter(|share| (0.0..=1.0).contains(share));
                    path.congestive = Some(share.ok_or_else(|| bad("a share of the losses, as 30% or 0.3"))?);
                }
                "burst" => {
                    path.burst = Some(
                        number(value, 1.0, f64::MAX).ok_or_else(|| bad("a number of packets, at least 1"))?,
                    );
                }
                "packets" => {
                    let packets = number(value, 0.001, 1e9);
                    path.packets_per_s = Some(packets.ok_or_else(|| bad("a number of packets a second"))?);
                }
                "together" => {
                    let together = number(value, 1.0, 1e6);
                    path.together = Some(together.ok_or_else(|| bad("a number of packets, at least 1"))?);
                }
                "payload" => {
                    let bytes = number(value, 1.0, 65_527.0);
                    path.payload_bytes = Some(bytes.ok_or_else(|| bad("bytes in a packet (1 to 65527)"))?);
                }
                "samples" => {
                    path.samples = Some(value.trim().parse().map_err(|_| bad("a number of packets"))?);
                }
                "mtu" => {
                    let mtu = value.trim().parse::<u64>().ok().filter(|b| (268..=65_527).contains(b));
                    path.mtu_bytes = Some(mtu.ok_or_else(|| bad("a UDP payload in bytes (268 to 65527)"))?);
                }
                other => {
                    return Err(format!(
                        "--path: there is no `{other}`; rtt, queue, rate, loss, burst, congestive, packets, \
                         together, payload, mtu and samples are known"
                    ));
                }
            }
        }
        Ok(path)
    }
}

/// A number within bounds.
fn number(text: &str, least: f64, most: f64) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|number| (least..=most).contains(number))
}

/// Lowest rate of a path, in bits per second: a byte a second.
const RATE_MIN_BPS: u64 = 8;

/// Reads how long something may take: `30s`, `10min`, `7d`, or `0`.
///
/// # Errors
/// What is wrong, in one line.
pub fn lasting(text: &str) -> Result<Duration, String> {
    uts_units::time(text).map_err(|error| error.or("write a time, as 30s, 10min, 2h, 7d or 0"))
}

/// Streams of other programs are kept for so long while nothing is heard of the other end, unless
/// something else is said: a lid that is closed, a weekend, a train in a tunnel.
pub const SILENCE: &str = "7d";

/// Reads for how long a silent peer is kept: any time but none.
///
/// # Errors
/// What is wrong, in one line.
pub fn silence(text: &str) -> Result<Duration, String> {
    let wrong = "write how long a silent peer is kept, as 10min, 12h or 7d";
    match uts_units::time(text) {
        Ok(time) if time.is_zero() => Err(wrong.to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.or(wrong)),
    }
}

/// Time that clients have to end by themselves once another server has taken over, unless something
/// else is said.
pub const DRAIN: &str = "1h";

/// Reads the time that clients have once another server has taken over: none, too.
///
/// # Errors
/// What is wrong, in one line.
pub fn drain(text: &str) -> Result<Duration, String> {
    uts_units::time(text).map_err(|error| error.or("write a time, as 10min, 1h or 2d"))
}

/// Contents of a file that an option names. One that is too long is not read to its end.
///
/// # Errors
/// A line with the option, the file, and why it cannot be read. `kind` says what it was to be.
pub fn read_file(option: &str, file: &Path, bytes_max: usize, kind: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let most = bytes_max as u64 + 1;
    let read = File::open(file).and_then(|opened| opened.take(most).read_to_end(&mut bytes));
    let shown = file.display();
    read.map_err(|error| format!("{option} {shown}: {error}"))?;
    if bytes.len() > bytes_max {
        return Err(format!("{option} {shown}: longer than {bytes_max} bytes, no {kind} is"));
    }
    Ok(bytes)
}

/// Reads the age at which a datagram of media is handed over.
///
/// # Errors
/// What is wrong, in one line.
pub fn latency(text: &str) -> Result<Duration, String> {
    let wrong = "write a time of 1ms to 10s, as 120ms";
    let time = uts_units::time_in("ms", text).map_err(|error| error.or(wrong))?;
    let is_good = (Duration::from_millis(1)..=Duration::from_secs(10)).contains(&time);
    is_good.then_some(time).ok_or_else(|| wrong.to_owned())
}

/// Reads how many workers share a port: a number, or `all` for as many as this process has
/// processors.
///
/// # Errors
/// What is wrong, in one line.
pub fn workers(text: &str) -> Result<usize, String> {
    let count = match text {
        "all" => std::thread::available_parallelism().map_or(1, usize::from).min(uts::WORKERS_MAX),
        number => number.parse().unwrap_or(0),
    };
    let is_good = (1..=uts::WORKERS_MAX).contains(&count);
    is_good.then_some(count).ok_or_else(|| format!("write 1 to {}, or all", uts::WORKERS_MAX))
}

/// Reads a span of time of which a number alone counts seconds, as those of iperf3 do.
///
/// # Errors
/// What is wrong, in one line.
pub fn seconds(text: &str) -> Result<Duration, String> {
    uts_units::time_in("s", text).map_err(|error| error.or("write a time, as 10, 500ms or 2min"))
}

/// Reads a rate as iperf3 does: a number alone, or with `k`, `M` or `G`, counts bits per second,
/// and `0` is no limit. All other forms are those of all rates.
///
/// # Errors
/// What is wrong, in one line.
pub fn bitrate(text: &str) -> Result<String, String> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let bits = match text.get(number.len()..).unwrap_or_default() {
        "" if number.parse() == Ok(0.0) => return Ok("unlimited".to_owned()),
        "" => format!("{number}bit/s"),
        prefix @ ("k" | "M" | "G" | "T") => format!("{number}{prefix}bit/s"),
        "K" => format!("{number}kbit/s"),
        _ => text.to_owned(),
    };
    uts_units::rate(&bits).map_err(|error| error.about(text, "a rate, as 5Mbit/s, 10M or 0 for no limit"))?;
    Ok(bits)
}

/// Reads a limit of a rate, which others count in other units: it has one.
///
/// # Errors
/// What is wrong, in one line.
pub fn limit(text: &str) -> Result<String, String> {
    const WANTED: &str = "a rate with its unit, as 5Mbit/s or 600kB/s, or 0 for no limit";
    let text = text.trim();
    if text == "0" {
        return Ok("unlimited".to_owned());
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!("`{text}` is not {WANTED}"));
    }
    uts_units::rate(text).map_err(|error| error.about(text, WANTED))?;
    Ok(text.to_owned())
}

/// Reads a size of which a number alone counts bytes, as those of iperf3 do.
///
/// # Errors
/// What is wrong, in one line.
pub fn bytes(text: &str) -> Result<u64, String> {
    match text.trim().parse() {
        Ok(bytes) => Ok(bytes),
        Err(_) => uts_units::text::parse_bytes(text),
    }
}

/// Reads how often something is looked at: from ten times a second to once in an hour.
///
/// # Errors
/// What is wrong, in one line.
pub fn rhythm(text: &str) -> Result<Duration, String> {
    let time = uts_units::time(text).map_err(|error| error.about(text, "a time, as 1s or 500ms"))?;
    let is_possible = (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&time);
    is_possible.then_some(time).ok_or_else(|| "write a time from 100ms to 1h, as 1s".to_owned())
}

/// Reads how long is measured: more than nothing, and at most an hour.
///
/// # Errors
/// What is wrong, in one line.
pub fn measured(text: &str) -> Result<Duration, String> {
    let time = seconds(text)?;
    let is_possible = !time.is_zero() && time <= uts_perf::LASTS_MAX;
    is_possible
        .then_some(time)
        .ok_or_else(|| "write a time above 0 and up to 1h, as 10, 500ms or 2min".into())
}

/// The shortest and the longest wait for a server's first answer.
const PATIENCE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(120);

/// Reads how long a server's first answer is waited for: `30s`, `2min`, or `30`.
///
/// # Errors
/// What is wrong, in one line.
pub fn patience(text: &str) -> Result<Duration, String> {
    let patience = seconds(text)?;
    let is_possible = PATIENCE.contains(&patience);
    is_possible.then_some(patience).ok_or_else(|| "write a time from 1s to 2min, as 30s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_are_those_of_iperf3_where_they_are_plain() {
        for (text, rate) in [
            ("10M", "10Mbit/s"),
            ("500K", "500kbit/s"),
            ("1.5G", "1.5Gbit/s"),
            ("9600", "9600bit/s"),
            ("0", "unlimited"),
            ("5Mbit/s", "5Mbit/s"),
            ("2MB/s", "2MB/s"),
        ] {
            assert_eq!(bitrate(text).as_deref(), Ok(rate), "{text}");
        }
        for text in ["", "M", "10X", "-1", "5mb/s"] {
            let why = bitrate(text).expect_err(text);
            assert!(why.contains(text) && why.contains("bit/s"), "{why}");
        }
        assert_eq!(limit("5M").unwrap_err(), "`5M` can be read as 5 Mbit/s and as 5 MB/s; write which");
        assert_eq!(
            limit("5000").unwrap_err(),
            "`5000` is not a rate with its unit, as 5Mbit/s or 600kB/s, or 0 for no limit"
        );
        assert_eq!((bytes("100"), bytes("1kB")), (Ok(100), Ok(1000)));
        assert!(bytes("10M").unwrap_err().contains("10 MB"));
        assert!(measured("0").is_err() && measured("2h").is_err() && measured("3600").is_ok());
    }

    #[test]
    fn paths_are_read() {
        let path = PathGiven::parse("rtt=40ms, rate=50Mbit/s,loss=5%,burst=4,mtu=1472").unwrap();
        let expected = PathGiven {
            rtt: Some(Duration::from_millis(40)),
            rate_bps: Some(50e6),
            loss: Some(0.05),
            burst: Some(4.0),
            mtu_bytes: Some(1472),
            ..PathGiven::default()
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
            "queue=12",
            "congestive=2",
            "packets=0",
            "packets=NaN",
            "together=0.5",
            "payload=0",
            "samples=-1",
            "x=1",
            "rtt",
        ] {
            assert!(PathGiven::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_read() {
        for (text, seconds) in [("0", 0), ("90s", 90), ("10min", 600), ("1.5h", 5400), ("7d", 604_800)] {
            assert_eq!(lasting(text), Ok(Duration::from_secs(seconds)));
        }
        for bad in ["", "10", "-1s", "1 year", "1e99d"] {
            assert!(lasting(bad).is_err(), "{bad}");
        }
    }

    /// Amounts as each place of use reads them: the rate in bit/s, the size in bytes, the time in
    /// ns, the share in millionths.
    mod places {
        use super::*;
        use uts_lab::experiment::file::Experiment;
        use uts_path::{Buffer, LinkConfig, Loss};
        use uts_traffic::workload::Workload;

        type Place = (&'static str, fn(&str) -> Result<u64, String>);

        fn link(settings: &str) -> Result<LinkConfig, String> {
            settings.parse().map_err(|e: uts_path::SpecError| e.to_string())
        }

        fn property(name: &str, text: &str) -> Result<uts::Requirements, String> {
            let mut requirements = uts::Requirements::default();
            requirements.set(name, text).map_err(|e| e.to_string())?;
            Ok(requirements)
        }

        fn workload(settings: &str) -> Result<Workload, String> {
            serde_json::from_str(settings).map_err(|e| e.to_string())
        }

        fn ns(span: Duration) -> u64 {
            u64::try_from(span.as_nanos()).unwrap()
        }

        /// The number that a sweep of a path's setting has in its column.
        fn swept(key: &str, text: &str) -> Result<f64, String> {
            let file = format!(
                "title = 'x'\n[path.p]\nforward = 'rate=1mbit'\n[workload.w]\nkind = 'bulk'\nbytes = '1kB'\n\
                 [transport.t]\nkind = 'uts'\n[[sweep]]\nkey = 'path.p.{key}'\nvalues = ['{text}']\n"
            );
            let experiment = Experiment::parse("x.toml".as_ref(), &file).map_err(|e| e.to_string())?;
            experiment.sweeps[0].values[0].number.ok_or_else(|| "is no number".to_owned())
        }

        const RATES: [Place; 5] = [
            ("program", |text| PathGiven::parse(&format!("rate={text}")).map(|p| p.rate_bps.unwrap() as u64)),
            ("property", |text| Ok(property("maxSendRate", text)?.max_send_rate.unwrap().bits_per_sec())),
            ("path", |text| Ok(link(&format!("rate={text}"))?.rate_bps.unwrap())),
            ("sweep", |text| swept("rate", text).map(|bps| bps as u64)),
            ("workload", |text| {
                let video = format!(
                    r#"{{"kind":"video","frames_per_s":30,"rate":"{text}","key_every":30,"key_factor":2.0,
                        "duration":"1s","deadline":"1s"}}"#
                );
                match workload(&video)? {
                    Workload::Video { rate_bps, .. } => Ok(rate_bps),
                    other => panic!("{other:?}"),
                }
            }),
        ];

        const SIZES: [Place; 3] = [
            ("path", |text| match link(&format!("buffer={text}"))?.buffer {
                Buffer::Bytes(bytes) => Ok(bytes),
                other => Err(format!("{other:?}")),
            }),
            ("sweep", |text| swept("buffer", text).map(|bytes| bytes as u64)),
            ("workload", |text| match workload(&format!(r#"{{"kind":"bulk","bytes":"{text}"}}"#))? {
                Workload::Bulk { bytes, .. } => Ok(bytes.unwrap()),
                other => panic!("{other:?}"),
            }),
        ];

        const TIMES: [Place; 6] = [
            ("program", |text| PathGiven::parse(&format!("rtt={text}")).map(|p| ns(p.rtt.unwrap()))),
            ("argument", |text| lasting(text).map(ns)),
            ("property", |text| Ok(ns(property("uts.maxDelay", text)?.max_delay.unwrap()))),
            ("path", |text| Ok(link(&format!("delay={text}"))?.delay_ns)),
            ("sweep", |text| swept("delay", text).map(|s| (s * 1e9).round() as u64)),
            ("workload", |text| match workload(&format!(r#"{{"kind":"bulk","duration":"{text}"}}"#))? {
                Workload::Bulk { duration, .. } => Ok(ns(duration.unwrap())),
                other => panic!("{other:?}"),
            }),
        ];

        const SHARES: [Place; 3] = [
            ("program", |text| {
                PathGiven::parse(&format!("loss={text}")).map(|p| (p.loss.unwrap() * 1e6).round() as u64)
            }),
            ("path", |text| match link(&format!("loss={text}"))?.loss {
                Loss::Random { p } => Ok((p * 1e6).round() as u64),
                other => Err(format!("{other:?}")),
            }),
            ("sweep", |text| swept("loss", text).map(|share| (share * 1e6).round() as u64)),
        ];

        fn agree(places: &[Place], amounts: &[(&str, u64)]) {
            for (place, read) in places {
                for (text, amount) in amounts {
                    assert_eq!(read(text).as_ref(), Ok(amount), "{place}: {text}");
                }
            }
        }

        /// Every place refuses the text, and gives both readings.
        fn refuse(places: &[Place], texts: &[(&str, &str)]) {
            for (place, read) in places {
                for (text, readings) in texts {
                    let error = read(text).expect_err(text);
                    assert!(error.contains(readings), "{place}: {text}: {error}");
                }
            }
        }

        #[test]
        fn the_same_words_are_the_same_amount_everywhere() {
            agree(
                &RATES,
                &[
                    ("9600", 9600),
                    ("9600bit/s", 9600),
                    ("5mbit", 5_000_000),
                    ("5Mbit/s", 5_000_000),
                    ("5Mb/s", 5_000_000),
                    ("5Mbps", 5_000_000),
                    ("5MB/s", 40_000_000),
                    ("1MiB/s", 8_388_608),
                    ("64kB/s", 512_000),
                    ("0.1gbit", 100_000_000),
                ],
            );
            refuse(
                &RATES,
                &[
                    ("5mb/s", "5 Mbit/s and as 5 MB/s"),
                    ("5M", "5 Mbit/s and as 5 MB/s"),
                    ("1gbps", "1 Gbit/s and as 1 GB/s"),
                ],
            );
            agree(
                &SIZES,
                &[
                    ("1500B", 1500),
                    ("64kB", 64_000),
                    ("64KB", 64_000),
                    ("64KiB", 65_536),
                    ("1.5MB", 1_500_000),
                ],
            );
            refuse(&SIZES, &[("64kb", "64 kbit and as 64 kB"), ("1M", "1 MB and as 1 MiB")]);
            agree(
                &TIMES,
                &[
                    ("300us", 300_000),
                    ("20ms", 20_000_000),
                    ("1.5s", 1_500_000_000),
                    ("2min", 120_000_000_000),
                    ("2m", 120_000_000_000),
                    ("1h", 3_600_000_000_000),
                ],
            );
            agree(&SHARES, &[("5%", 50_000), ("0.05", 50_000), ("0.1%", 1_000)]);
        }
    }
}
