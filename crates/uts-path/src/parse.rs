//! The text form of settings: `rate=50mbit delay=20ms buffer=64p loss=ge:0.05,4`.

use crate::change::{Change, Setting};
use crate::config::{Buffer, Corruption, Jitter, JitterShape, LinkConfig, Loss, Reordering};
use crate::error::SpecError;
use crate::receive::Receive;
use crate::trace::Opportunities;
use std::str::FromStr;
use std::time::Duration;
use uts_units::show;

const KEYS: &str = "rate, receive, buffer, queue, delay, jitter, loss, duplicate, reorder, corrupt, overhead, \
                    framing, compress, mtu, ecn, up or down";

const RATE_FORM: &str =
    "must be a rate as in 9600bit, 64kbit, 50mbit, 1gbit, inf, trace:FILE or cellular:12mbit,7";
const TIME_FORM: &str = "must be a time with its unit, as in 300us, 20ms, 1.5s or 2min";

impl FromStr for Change {
    type Err = SpecError;

    /// Reads settings separated by white space.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let settings = text.split_whitespace().map(parse_setting).collect::<Result<Vec<_>, _>>()?;
        if settings.is_empty() {
            return Err(SpecError::new("change", format!("names no setting; there are {KEYS}")));
        }
        Change::new(settings)
    }
}

impl FromStr for LinkConfig {
    type Err = SpecError;

    /// Reads settings that differ from the perfect link; the empty text is the perfect link.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.trim().is_empty() {
            return Ok(LinkConfig::default());
        }
        LinkConfig::default().with(&text.parse()?)
    }
}

/// Reads one `key=value` and checks its range; the error quotes it.
fn parse_setting(token: &str) -> Result<Setting, SpecError> {
    let wrong = |reason: String| SpecError::new(token, reason);
    let setting = match token.split_once('=') {
        None if token == "up" => Setting::Up(true),
        None if token == "down" => Setting::Up(false),
        None => return Err(wrong(format!("unknown setting; there are {KEYS}"))),
        Some((key, value)) => parse_value(key, value).map_err(wrong)?,
    };
    Change::new(vec![setting.clone()]).map_err(|e| wrong(e.reason))?;
    Ok(setting)
}

fn parse_value(key: &str, value: &str) -> Result<Setting, String> {
    Ok(match key {
        "rate" => match Opportunities::parse(value) {
            Some(opportunities) => Setting::Opportunities(opportunities?),
            None => Setting::Rate(unless(value, "inf", parse_rate)?),
        },
        "receive" => Setting::Receive(unless(value, "off", Receive::parse)?),
        "buffer" => Setting::Buffer(parse_buffer(value, "inf")?),
        "queue" => Setting::Queue(value.parse().map_err(|e: SpecError| e.reason)?),
        "delay" => Setting::Delay(parse_duration_ns(value)?),
        "jitter" => Setting::Jitter(parse_jitter(value)?),
        "loss" => Setting::Loss(parse_loss(value)?),
        "duplicate" => Setting::Duplicate(parse_share(value, "probability")?),
        "reorder" => {
            let (p, extra) = value.split_once(',').ok_or("must be PROBABILITY,DELAY as in 0.01,3ms")?;
            let p = parse_share(p, "probability")?;
            Setting::Reorder(Reordering { p, extra_ns: parse_duration_ns(extra)? })
        }
        "corrupt" => Setting::Corrupt(parse_corruption(value)?),
        "overhead" => Setting::Overhead(parse_whole(value, "overhead in bytes")?),
        "framing" => Setting::Framing(value.parse().map_err(|e: SpecError| e.reason)?),
        "compress" => Setting::Compression(value.parse().map_err(|e: SpecError| e.reason)?),
        "mtu" => Setting::Mtu(unless(value, "inf", |v| parse_whole(v, "MTU in bytes"))?),
        "ecn" => Setting::EcnThreshold(parse_buffer(value, "off")?),
        "up" | "down" => return Err("takes no value".into()),
        _ => return Err(format!("unknown setting; there are {KEYS}")),
    })
}

fn unless<T>(
    value: &str,
    none: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if value == none { Ok(None) } else { parse(value).map(Some) }
}

pub(crate) fn parse_buffer(value: &str, unlimited: &str) -> Result<Buffer, String> {
    if value == unlimited {
        return Ok(Buffer::Unlimited);
    }
    if let Some(packets) = value.strip_suffix('p') {
        return Ok(Buffer::Packets(parse_whole(packets, "number of packets")?));
    }
    uts_units::size(value)
        .map(Buffer::Bytes)
        .map_err(|error| error.or(&format!("must be packets as in 64p, bytes as in 256kB, or {unlimited}")))
}

fn parse_jitter(value: &str) -> Result<Jitter, String> {
    let mut parts = value.split(',');
    let max_ns = parse_duration_ns(parts.next().unwrap_or_default())?;
    let mut jitter = Jitter { max_ns, ..Jitter::default() };
    for part in parts {
        match part {
            "uniform" => jitter.shape = JitterShape::Uniform,
            "bell" => jitter.shape = JitterShape::Bell,
            "reorder" => jitter.reorder = true,
            _ => return Err(format!("`{part}` is none of uniform, bell, reorder")),
        }
    }
    Ok(jitter)
}

fn parse_loss(value: &str) -> Result<Loss, String> {
    if let Some(places) = value.strip_prefix("places:") {
        let bits = places.split(',').try_fold(0, |bits, place| {
            let place = place.parse::<u32>().ok().filter(|place| (1..=u64::BITS).contains(place));
            Ok::<u64, String>(
                bits | 1 << (place.ok_or("must be places:N,N,... with each N from 1 to 64")? - 1),
            )
        })?;
        return Ok(Loss::Places { bits });
    }
    let Some(bursty) = value.strip_prefix("ge:") else {
        let p = parse_share(value, "probability")?;
        return Ok(if p == 0.0 { Loss::None } else { Loss::Random { p } });
    };
    let (loss, burst) = bursty.split_once(',').ok_or("must be ge:MEAN_LOSS,MEAN_BURST as in ge:0.05,4")?;
    Ok(Loss::GilbertElliott {
        loss: parse_share(loss, "mean loss")?,
        burst: parse_number(burst, "mean burst")?,
    })
}

fn parse_corruption(value: &str) -> Result<Corruption, String> {
    let (p, bits) = value.split_once(',').unwrap_or((value, "1"));
    Ok(Corruption { p: parse_share(p, "probability")?, max_bits: parse_whole(bits, "number of bits")? })
}

/// `50mbit`, `50Mbit/s`, `9600`; in bits per second.
pub(crate) fn parse_rate(value: &str) -> Result<u64, String> {
    uts_units::rate(value).map_err(|error| error.or(RATE_FORM))
}

/// `20ms`, `1.5s`, `70us`.
pub(crate) fn parse_duration_ns(value: &str) -> Result<u64, String> {
    let span = uts_units::time(value).map_err(|error| error.or(TIME_FORM))?;
    u64::try_from(span.as_nanos()).map_err(|_| "is too large".to_owned())
}

/// `0.05` or `5%`.
fn parse_share(value: &str, what: &str) -> Result<f64, String> {
    uts_units::share(value).map_err(|error| error.or(&format!("{what} must be a number, not `{value}`")))
}

pub(crate) fn parse_number(value: &str, what: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!("{what} must be a number, not `{value}`")),
    }
}

pub(crate) fn parse_whole<T: FromStr>(value: &str, what: &str) -> Result<T, String> {
    value.parse::<T>().map_err(|_| format!("{what} must be a whole number, not `{value}`"))
}

/// The shortest exact form of this many nanoseconds.
pub(crate) fn format_duration(ns: u64) -> String {
    show::time(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::Compression;
    use crate::framing::Framing;
    use crate::queue::Discipline;

    fn error(text: &str) -> String {
        text.parse::<LinkConfig>().map_or_else(|e| e.to_string(), |c| format!("accepted: {c:?}"))
    }

    #[test]
    fn every_setting_is_read() {
        let text = "rate=50mbit delay=20ms receive=8p,100us buffer=64p queue=random loss=ge:0.05,4 jitter=2ms,bell,reorder \
                    reorder=0.01,3ms duplicate=0.001 corrupt=0.002,8 mtu=1400 overhead=28 \
                    framing=slip compress=rx ecn=30kB down";
        let config: LinkConfig = text.parse().unwrap();
        let wanted = LinkConfig {
            rate_bps: Some(50_000_000),
            opportunities: None,
            receive: Some(Receive { buffers: 8, time_ns: 100_000 }),
            buffer: Buffer::Packets(64),
            queue: Discipline::RandomDrop,
            delay_ns: 20_000_000,
            jitter: Jitter { max_ns: 2_000_000, shape: JitterShape::Bell, reorder: true },
            loss: Loss::GilbertElliott { loss: 0.05, burst: 4.0 },
            duplicate: 0.001,
            reorder: Reordering { p: 0.01, extra_ns: 3_000_000 },
            corrupt: Corruption { p: 0.002, max_bits: 8 },
            overhead_bytes: 28,
            framing: Framing::Slip,
            compression: Compression::Rx { slots: 16, typed: false },
            mtu_bytes: Some(1400),
            ecn_threshold: Buffer::Bytes(30_000),
            up: false,
        };
        assert_eq!(config, wanted);
    }

    #[test]
    fn a_change_prints_as_it_is_read() {
        for text in [
            "rate=50mbit delay=20ms buffer=64p queue=random loss=ge:0.05,4 jitter=2ms,bell,reorder \
             reorder=0.01,3ms duplicate=0.001 corrupt=0.002,8 mtu=1400 overhead=28 \
             framing=ppp:0xa0000 compress=rx:64,typed ecn=30kB down",
            "compress=off",
            "compress=vj",
            "compress=vj:256",
            "compress=rx,typed",
            "rate=inf buffer=inf mtu=inf ecn=off loss=0 up",
            "rate=1001bit delay=1500us loss=0.01 corrupt=0.5 jitter=7ns buffer=1024B",
            "delay=0ns",
            "rate=trace:some/file.up buffer=1p",
            "rate=cellular:12mbit,7",
        ] {
            let change: Change = text.parse().unwrap();
            assert_eq!(change.to_string(), text);
            assert_eq!(change.to_string().parse::<Change>(), Ok(change));
        }
    }

    #[test]
    fn bits_and_bytes_differ_by_case() {
        let link = |text: &str| text.parse::<LinkConfig>().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(link("rate=5MB/s").rate_bps, Some(40_000_000));
        assert_eq!(link("rate=5Mb/s").rate_bps, Some(5_000_000));
        assert_eq!(link("buffer=64KiB").buffer, Buffer::Bytes(65_536));
        assert_eq!(link("loss=5%").loss, Loss::Random { p: 0.05 });
        assert_eq!(link("loss=places:1,4").loss, Loss::Places { bits: 0b1001 });
        assert_eq!(link("loss=ge:5%,4").loss, Loss::GilbertElliott { loss: 0.05, burst: 4.0 });
    }

    #[test]
    fn errors_quote_what_is_wrong() {
        let keys = format!("unknown setting; there are {KEYS}");
        let buffer = "must be packets as in 64p, bytes as in 256kB, or inf";
        let time = "must be a time with its unit, as in 300us, 20ms, 1.5s or 2min";
        let rate =
            "must be a rate as in 9600bit, 64kbit, 50mbit, 1gbit, inf, trace:FILE or cellular:12mbit,7";
        let queue = "must be droptail, row:N, random, red:MIN,MAX,MAX_P as in red:5p,15p,0.1, codel, \
                 fq_codel, pie, or police:RATE,BURST as in police:10mbit,64kB";
        let compress = "must be off, vj[:SLOTS] or rx[:SLOTS][,typed], as in vj, rx or rx:64,typed";
        let red = "must be red:MIN,MAX,MAX_P[,WEIGHT][,gentle][,noecn] as in red:5p,15p,0.1";
        for (text, wanted) in [
            ("loss=ge:1.5,4", "mean loss must be between 0 and 1"),
            ("loss=ge:0.05,0.5", "mean burst must be at least 1 packet"),
            ("loss=places:0", "must be places:N,N,... with each N from 1 to 64"),
            ("loss=places:65", "must be places:N,N,... with each N from 1 to 64"),
            ("loss=places:", "must be places:N,N,... with each N from 1 to 64"),
            ("loss=ge:0.05", "must be ge:MEAN_LOSS,MEAN_BURST as in ge:0.05,4"),
            ("loss=ge:x,4", "mean loss must be a number, not `x`"),
            ("loss=ge:0.05,y", "mean burst must be a number, not `y`"),
            ("loss=ge:0.9,2", "a mean loss of 0.9 needs a mean burst of at least 9.00"),
            ("loss=2", "probability must be between 0 and 1"),
            ("loss=-0.1", "probability must be between 0 and 1"),
            ("loss=5%%", "probability must be a number, not `5%%`"),
            ("loss=nan", "probability must be a number, not `nan`"),
            ("rate=0", "rate in bit/s must be between 1 and 10000000000000, not 0"),
            ("rate=fast", rate),
            ("rate=50MB", rate),
            ("rate=-5mbit", rate),
            ("rate=50mb/s", "`50mb/s` can be read as 50 Mbit/s and as 50 MB/s; write which"),
            ("buffer=64kb", "`64kb` can be read as 64 kbit and as 64 kB; write which"),
            ("rate=1..5mbit", rate),
            ("rate=99999999999gbit", "is too large"),
            ("rate=", rate),
            ("rate=trace:", "a trace's name must not be empty or hold white space or `;`"),
            ("rate=cellular:12mbit", "must be cellular:MAX_RATE,SEED as in cellular:12mbit,7"),
            ("rate=cellular:fast,7", rate),
            ("rate=cellular:12mbit,x", "SEED must be a whole number, not `x`"),
            (
                "rate=cellular:1kbit,7",
                "highest rate in bit/s must be between 100000 and 1000000000, not 1000",
            ),
            ("delay=20", time),
            ("delay=2h", "must be at most an hour"),
            ("delay=2y", time),
            ("delay=61min", "must be at most an hour"),
            ("buffer=64", buffer),
            ("buffer=0p", "must hold at least one packet or byte"),
            ("buffer=xp", "number of packets must be a whole number, not `x`"),
            ("jitter=2ms,square", "`square` is none of uniform, bell, reorder"),
            ("jitter=fast", time),
            ("duplicate=7", "probability must be between 0 and 1"),
            ("duplicate=a", "probability must be a number, not `a`"),
            ("reorder=0.1", "must be PROBABILITY,DELAY as in 0.01,3ms"),
            ("reorder=0.1,3", time),
            ("reorder=3,3ms", "probability must be between 0 and 1"),
            ("corrupt=1.1", "probability must be between 0 and 1"),
            ("corrupt=0.1,0", "number of bits must be between 1 and 64, not 0"),
            ("corrupt=0.1,many", "number of bits must be a whole number, not `many`"),
            ("overhead=-1", "overhead in bytes must be a whole number, not `-1`"),
            ("overhead=70000", "overhead in bytes must be between 0 and 65535, not 70000"),
            ("mtu=0", "MTU in bytes must be between 1 and 4294967295, not 0"),
            ("mtu=big", "MTU in bytes must be a whole number, not `big`"),
            ("framing=atm", "must be none, ethernet, slip, aal5, ppp or ppp:ACCM as in ppp:0xffffffff"),
            ("compress=lz4", compress),
            ("compress=vj,typed", compress),
            ("compress=rx:many", compress),
            ("compress=off:3", compress),
            ("compress=rx:0,typed", "number of slots must be between 1 and 256, not 0"),
            ("compress=vj:257", "number of slots must be between 1 and 256, not 257"),
            ("queue=fifo", queue),
            ("queue=red", queue),
            ("queue=droptail:5", queue),
            ("queue=row", queue),
            ("queue=row:few", "row must be a number of packets, as in row:4"),
            ("queue=row:0", "row must be of 1 to 1000 packets"),
            ("queue=red:5p", red),
            ("queue=red:5p,15p", red),
            ("queue=red:5,15p,0.1", "MIN must be packets as in 5p or bytes as in 7500B, not `5`"),
            ("queue=red:5p,,0.1", "MAX must be packets as in 5p or bytes as in 7500B, not ``"),
            ("queue=red:5p,15p,x", "MAX_P must be a number, not `x`"),
            ("queue=red:5p,15p,0.1,0.1x", "WEIGHT must be a number, not `0.1x`"),
            ("queue=red:5p,15p,0.1,meek", "`meek` is none of gentle, noecn"),
            ("queue=red:5p,15kB,0.1", "MIN and MAX of red must be in the same unit, as 5p,15p or 7500B,22kB"),
            ("queue=red:15p,15p,0.1", "MIN of red must be at least 1, and below MAX"),
            ("queue=red:0p,15p,0.1", "MIN of red must be at least 1, and below MAX"),
            ("queue=red:5p,15p,0", "MAX_P of red must be above 0 and at most 1"),
            ("queue=red:5p,15p,0.1,1.5", "WEIGHT of red must be above 0 and at most 1"),
            ("queue=codel:5ms", "must be codel[:TARGET,INTERVAL][,noecn] as in codel:5ms,100ms"),
            ("queue=codel:5,100ms", time),
            ("queue=codel:0,100ms", "TARGET of codel must be above 0 and at most INTERVAL"),
            ("queue=codel:5ms,1ms", "TARGET of codel must be above 0 and at most INTERVAL"),
            ("queue=codel:5ms,61min", "must be at most an hour"),
            ("ecn=5", "must be packets as in 64p, bytes as in 256kB, or off"),
            ("up=1", "takes no value"),
            ("speed=5", &keys),
            ("sideways", &keys),
        ] {
            assert_eq!(error(&format!("delay=1ms {text}")), format!("{text}: {wanted}"));
        }
        assert!("".parse::<Change>().is_err());
        assert_eq!("  ".parse::<LinkConfig>(), Ok(LinkConfig::default()));
    }
}
