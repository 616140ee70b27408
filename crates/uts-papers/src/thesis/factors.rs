//! Tables and figures of chapter 3 and of section 4.7, from the machines' parts
//! ([`super::machines`]) and the protocol server in a model ([`super::server`]).

use super::machines::{Functions, I486, MIPS, Machine};
use super::server::{ADAPT_NS, Transfer};
use crate::paper::{Series, push};
use anyhow::{Context, Result};

/// Round trip that a handshake adds to a switch, in microseconds (section 3.3.3).
const ROUND_TRIP_US: f64 = 7644.0;
/// Throughput of the 486 that sends, in Mbit/s, by the functions of table 3.7.
const PUBLISHED_MBPS: [f64; 4] = [4.965, 5.481, 8.089, 8.311];
/// Switches of table 4.5, as numbers in [`Functions::ALL`].
const SWITCHES: [(usize, usize); 5] = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)];
/// Sizes of files in figures 3.7 and 3.8, in kilobytes of 1024 bytes.
const FILES_KB: [u32; 13] = [1, 2, 5, 10, 20, 40, 50, 60, 70, 100, 200, 500, 1000];
/// Reading, changing and writing a byte for lines of ASCII, at either end: chosen, at twice what a
/// checksum takes.
const ASCII_NS: u64 = 350;
/// Length of what figure 3.5 shows.
const SHOWN_NS: u64 = 200_000_000;
/// Time over which a switch is compared, and the instants at which it is tried.
const CAUGHT_UP_WITHIN_US: u64 = 150_000;
const LAG_EVERY_US: u64 = 100;
/// Length that figure 4.10 shows.
const LAG_SHOWN_US: u64 = 12_000;
const TRIED: u64 = 64;
const FIRST_NS: u64 = 200_000_000;
const STEP_NS: u64 = 3_700_000;

/// Throughput of all four TCPs between two machines.
///
/// # Errors
/// A transfer does not end.
pub fn bulk(sender: &'static Machine, receiver: &'static Machine, is_slower: bool) -> Result<Series> {
    let mut series = Series::new();
    for (n, (_, functions)) in Functions::ALL.into_iter().enumerate() {
        let figures = Transfer { is_slower, ..Transfer::of(sender, receiver, functions) }.figures()?;
        push(&mut series, [("functions", n as f64)]);
        figures.into_iter().for_each(|(name, values)| series.entry(name).or_default().extend(values));
    }
    Ok(series)
}

/// The 486 without error and flow control, where 1460 bytes are handed over at a time.
///
/// # Errors
/// None.
pub fn in_segments() -> Result<Series> {
    let [.., (_, neither)] = Functions::ALL;
    Transfer { write_bytes: 1460, ..Transfer::of(&I486, &I486, neither) }.figures()
}

/// Sums of parts for single packets: table 3.5 for 1024 bytes, and the round trip.
///
/// # Errors
/// None.
pub fn packets() -> Result<Series> {
    let mut series = Series::new();
    for (from, to) in [(2, 5), (5, 7), (7, 8), (13, 15), (15, 17), (17, 19)] {
        let [one, full] = [0, 1].map(|column| I486.delay(from, to, column));
        let middle = one + (full - one) * 1024.0 / 1400.0;
        push(&mut series, [("from", from as f64), ("full", full), ("middle", middle)]);
    }
    // A packet of 1400 bytes and its acknowledgement; frames of 1478 and 84 bytes on the cable.
    let there = I486.delay(7, 10, 1) + 0.8 * 1478.0 + I486.delay(11, 17, 1);
    let back = I486.delay(5, 10, 2) + 0.8 * 84.0 + I486.delay(11, 15, 2);
    // What the application then takes, which opens the window.
    let reads = I486.delay(17, 20, 1);
    let system = I486.delay(1, 5, 0) + I486.delay(7, 10, 0) + I486.delay(11, 15, 0) + I486.delay(17, 20, 0);
    let all = I486.delay(1, 10, 0) + I486.delay(11, 20, 0);
    series.insert("round-trip".into(), vec![there + back]);
    series.insert("with-reading".into(), vec![there + back + reads]);
    series.insert("system-share".into(), vec![system / all]);
    for (name, machine) in [("i486", &I486), ("mips", &MIPS)] {
        let sends = machine.delay(1, 10, 1);
        let receives = machine.delay(11, 20, 1);
        let copies = machine.part(3, 4).of_bytes(1400) + machine.part(17, 20).of_bytes(1400);
        series.insert(format!("{name}-sends"), vec![sends]);
        series.insert(format!("{name}-receives"), vec![receives]);
        series.insert(format!("{name}-copies"), vec![copies as f64 / 1e3]);
    }
    Ok(series)
}

/// Probes that the 486 passes in the first 200 ms of a transfer (figure 3.5), at the end that sends
/// (0) or receives (1).
///
/// # Errors
/// None.
pub fn time_line(side: usize) -> Result<Series> {
    let [(_, tcp), ..] = Functions::ALL;
    let out = Transfer::of(&I486, &I486, tcp).run();
    let mut series = Series::new();
    for (at, probe, is_ack) in &out.probes[side] {
        let (at_ms, probe) = (*at as f64 / 1e6, f64::from(*probe));
        if *at > SHOWN_NS {
            continue;
        }
        if *is_ack {
            push(&mut series, [("ack-at", at_ms), ("ack-probe", probe)]);
        } else {
            push(&mut series, [("at", at_ms), ("probe", probe)]);
        }
    }
    // The longest time in which the receiver gets nothing from the cable: the copy at the sender.
    let arrivals = out.probes[1].iter().filter(|(at, probe, _)| *probe == 11 && *at <= SHOWN_NS);
    let arrivals: Vec<u64> = arrivals.map(|(at, ..)| *at).collect();
    let silence = arrivals.windows(2).map(|pair| pair[1] - pair[0]).max().context("nothing arrived")?;
    series.insert("silence".into(), vec![silence as f64 / 1e6]);
    Ok(series)
}

/// Throughput of files of all sizes between 486s, with lines of ASCII or without.
///
/// # Errors
/// A transfer does not end.
pub fn files(is_ascii: bool) -> Result<Series> {
    let mut series = Series::new();
    for kilobytes in FILES_KB {
        push(&mut series, [("kilobytes", f64::from(kilobytes))]);
        for (name, functions) in Functions::ALL {
            let transfer = Transfer {
                file_bytes: kilobytes * 1024,
                byte_ns: [if is_ascii { ASCII_NS } else { 0 }; 2],
                ..Transfer::of(&I486, &I486, functions)
            };
            for (side, value) in
                transfer.figures()?.into_iter().filter(|(side, _)| side == "tx" || side == "rx")
            {
                series.entry(format!("{name}-{side}")).or_default().extend(value);
            }
        }
    }
    Ok(series)
}

/// Time until as much has been sent as without a switch, in microseconds (section 4.7, figures 4.10
/// and 4.11), where `handshake` is the time that passes before it.
fn formula(from_mbps: f64, to_mbps: f64, handshake_us: f64) -> f64 {
    handshake_us + ADAPT_NS as f64 / 1e3 * to_mbps / (to_mbps - from_mbps)
}

/// Table 4.5 by the formula, with the throughput of table 3.7, and with ours; and what the model
/// takes to catch up.
///
/// # Errors
/// The model never catches up.
pub fn catch_up() -> Result<Series> {
    let mut series = Series::new();
    let functions = Functions::ALL.map(|(_, functions)| functions);
    for (from, to) in SWITCHES {
        let by = |mbps: &dyn Fn(usize) -> f64, handshake| formula(mbps(from), mbps(to), handshake);
        let published = |n: usize| PUBLISHED_MBPS[n];
        if let Some(took) = caught_up(functions[from], functions[to]) {
            push(&mut series, [("caught-switch", (10 * from + to) as f64), ("caught-up", took)]);
        }
        push(
            &mut series,
            [
                ("switch", (10 * from + to) as f64),
                ("published", by(&published, 0.0)),
                ("hertz", 1e6 / by(&published, 0.0)),
                ("handshake-hertz", 1e6 / by(&published, ROUND_TRIP_US)),
            ],
        );
    }
    Ok(series)
}

/// Microseconds since a switch until as much has been sent as without it, on average over its
/// instants; `None` if that is not within the time that is looked at.
fn caught_up(from: Functions, to: Functions) -> Option<f64> {
    let lags = lags(from, to);
    let behind = lags.iter().position(|lag| *lag > 0.0)?;
    let at = lags[behind..].iter().position(|lag| *lag <= 0.0)?;
    Some((behind + at) as f64 * LAG_EVERY_US as f64)
}

/// Bytes by which a sender that switched is behind one that did not, each 0.1 ms since the switch,
/// on average over its instants.
fn lags(from: Functions, to: Functions) -> Vec<f64> {
    let file_bytes = 4 << 20;
    let base = Transfer { file_bytes, ..Transfer::of(&I486, &I486, from) };
    let left = |transfer: &Transfer<'_>| -> Vec<u64> {
        let out = transfer.run();
        out.probes[0]
            .iter()
            .filter(|(_, probe, is_ack)| *probe == 10 && !is_ack)
            .map(|(at, ..)| *at)
            .collect()
    };
    let without = left(&base);
    let mut sums = vec![0.0; (CAUGHT_UP_WITHIN_US / LAG_EVERY_US) as usize];
    for n in 0..TRIED {
        let at = FIRST_NS + n * STEP_NS;
        let with = left(&Transfer { switch: Some((at, to)), ..base });
        let count = |times: &[u64], until: u64| times.partition_point(|time| *time <= until) as f64;
        for (step, sum) in sums.iter_mut().enumerate() {
            let until = at + step as u64 * LAG_EVERY_US * 1000;
            *sum += (count(&without, until) - count(&with, until)) * 1460.0 / TRIED as f64;
        }
    }
    sums
}

/// Bytes by which the model is behind after a switch from all functions to neither of both.
///
/// # Errors
/// None.
pub fn lag_of_switch() -> Result<Series> {
    let functions = Functions::ALL.map(|(_, functions)| functions);
    let mut lags = lags(functions[0], functions[3]);
    lags.truncate((LAG_SHOWN_US / LAG_EVERY_US) as usize);
    let at = (0..lags.len()).map(|step| (step as u64 * LAG_EVERY_US) as f64 / 1e3).collect();
    Ok(Series::from([("at".into(), at), ("bytes".into(), lags)]))
}
