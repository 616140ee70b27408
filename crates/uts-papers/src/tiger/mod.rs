//! S. Viswanath, "TCP Performance Evaluation Using TIGER Network Testbed", Clemson, 1999.
//!
//! * [`host`]: its sender and its receiver, as rules of [`crate::tcp`];
//! * `trace`: a transfer packet by packet; `episode`: what happens between a loss and a time-out;
//! * [`padhye`]: the formula that section 5.2 wants to be validated.
//!
//! Conclusions from the units are in `reference/tiger.toml`.

mod episode;
pub mod host;
pub mod padhye;
mod trace;

use crate::engine;
use crate::paper::{Paper, Series, Unit, push};
use crate::tcp::receiver::Prune;
use crate::tcp::sender::{Partial, Row};
use crate::tcp::world::{Outcome, Setup};
use anyhow::Result;
use core::time::Duration;
use host::{LARGE, Machine, SMALL, Testbed};
use uts_path::PathConfig;

/// Transmit buffers of the router; from 29 on nothing is dropped.
const BUFFERS: [u32; 33] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 36, 48, 63,
];
/// Bytes of a transfer where all buffer counts are tried, and where the paper's own are.
const SHORT_BYTES: u32 = 10_000_000;
const LONG_BYTES: u32 = 50_000_000;
/// Buffers with which the engine of today is run, and the window that its receiver offers.
const TODAY: [u32; 14] = [1, 2, 3, 4, 6, 8, 10, 14, 18, 22, 27, 29, 36, 63];
const OFFERED: &str = "uts.profile.flow=sliding-window(window=49000)";
/// Rates of figure 4.1, in kbit/s.
const RATES: [u32; 11] = [107, 250, 500, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000];
/// Receive buffers of figure 4.3, in bytes.
const WINDOWS: [u32; 8] = [8192, 12_288, 16_384, 24_576, 32_768, 40_960, 45_056, 49_000];
/// Delays of the line that are tried, in microseconds.
const DELAYS_US: [u32; 9] = [0, 250, 500, 750, 1000, 1250, 1500, 1750, 2000];
/// Ticks that are tried for an acknowledgement that waits.
const WAITS: [u64; 6] = [1, 2, 3, 5, 10, 20];
/// Intervals at which acknowledgements reach the sender together, in microseconds.
const BUNCHES_US: [u64; 6] = [1000, 2000, 3000, 5000, 10_000, 20_000];
/// A jump up: more throughput with one buffer fewer, by this factor.
const JUMP: f64 = 1.2;

/// The paper with all its units.
pub fn paper() -> Paper {
    let once = Testbed::of(LARGE).sending(Machine { partial: Partial::Once, ..Machine::LINUX });
    let sweeps: [(&str, Testbed); 10] = [
        ("sweep-48", Testbed::of(LARGE)),
        ("sweep-32", Testbed::of(SMALL)),
        ("unpruned", Testbed::of(LARGE).pruning(Prune::Off)),
        ("four", Testbed { queue: "row:4", ..Testbed::of(LARGE).pruning(Prune::Off) }),
        ("arriving", Testbed::of(LARGE).pruning(Prune::Arriving)),
        ("once", once.clone()),
        ("four-once", Testbed { queue: "row:4", prune: Prune::Off, ..once }),
        ("solaris", Testbed::of(LARGE).sending(Machine::SOLARIS)),
        ("sack-48", Testbed::of(LARGE).selective()),
        ("sack-unpruned", Testbed::of(LARGE).selective().pruning(Prune::Off)),
    ];
    let mut units: Vec<Unit> = sweeps
        .into_iter()
        .map(|(name, testbed)| Unit::new(name, move || sweep(&testbed, &BUFFERS, SHORT_BYTES)))
        .collect();
    units.extend([
        Unit::new("window", trace::after_a_time_out),
        Unit::new("rates", rates),
        Unit::new("named", named),
        Unit::new("queue", queue),
        Unit::new("trace-8", || trace::of(&Testbed::of(LARGE), 8)),
        Unit::new("trace-7", || trace::of(&Testbed::of(LARGE), 7)),
        Unit::new("trace-6", || trace::of(&Testbed::of(LARGE), 6)),
        Unit::new("episode", || episode::of(&Testbed::of(LARGE), 8)),
        Unit::new("episode-32", || episode::of(&Testbed::of(SMALL), 6)),
        Unit::new("episode-four", || {
            episode::of(&Testbed { queue: "row:4", ..Testbed::of(LARGE).pruning(Prune::Off) }, 8)
        }),
        Unit::new("delays", delays),
        Unit::new("bunches", bunches),
        Unit::new("waits", waits),
        Unit::new("engine", || {
            by_engine(&[6, 7, 8, 9, 10, 27, 63], 3_000_000, &["uts.profile=tcp-reno-2.1", "uts.consent=all"])
        }),
        Unit::new("today-cubic", || by_engine(&TODAY, 2_000_000, &["uts.profile.congestion=cubic", OFFERED])),
        Unit::new("today-bbr", || by_engine(&TODAY, 2_000_000, &["uts.profile.congestion=bbr", OFFERED])),
        Unit::new("padhye", padhye::against_simulation),
    ]);
    Paper::new("tiger", include_str!("../../reference/tiger.toml"), units)
}

/// A transfer with each of these buffer counts.
fn sweep(testbed: &Testbed, buffers: &[u32], bytes: u32) -> Result<Series> {
    let mut series = Series::new();
    for buffers in buffers {
        let outcome = testbed.setup(*buffers, bytes).run()?;
        push_outcome(&mut series, f64::from(*buffers), "buffers", &outcome);
    }
    series.insert("jump".into(), vec![jump(&series)]);
    Ok(series)
}

fn push_outcome(series: &mut Series, key: f64, name: &str, outcome: &Outcome) {
    push(
        series,
        [
            (name, key),
            ("kbps", outcome.kbps()),
            ("drops", outcome.drops_per_s()),
            ("dropped", outcome.router.dropped() as f64),
            ("timeouts", outcome.sender.timeouts.len() as f64),
            ("fast", outcome.sender.fast.len() as f64),
            ("prunes", outcome.receiver.prunes as f64),
            ("longest", outcome.router.max_queue_packets as f64),
        ],
    );
}

/// The most buffers with which a transfer is much faster than with one more; 0 if there are none.
fn jump(series: &Series) -> f64 {
    let column = |name: &str| series.get(name).map(Vec::as_slice).unwrap_or_default();
    let (buffers, kbps) = (column("buffers"), column("kbps"));
    // With fewer than three a packet that is lost leaves no three behind it.
    let pairs = buffers.windows(2).zip(kbps.windows(2)).filter(|(buffers, _)| buffers[0] > 2.0);
    pairs.filter(|(_, kbps)| kbps[0] > JUMP * kbps[1]).map(|(buffers, _)| buffers[0]).fold(0.0, f64::max)
}

/// Figure 4.1: rates of the line, and 5000 kbit/s as the library of the testbed sets them.
fn rates() -> Result<Series> {
    let mut series = Series::new();
    for rate in RATES {
        // A minute or so, whatever the rate.
        let outcome = Testbed { rate_kbps: rate, ..Testbed::of(LARGE) }.setup(63, rate * 5000).run()?;
        push_outcome(&mut series, rate.into(), "rate", &outcome);
        push(&mut series, [("theory", host::theory_kbps(rate))]);
    }
    for (name, rate) in [("at-5000", 5000), ("at-5120", 5120)] {
        let outcome = Testbed { rate_kbps: rate, ..Testbed::of(LARGE) }.setup(63, LONG_BYTES).run()?;
        series.insert(name.into(), vec![outcome.kbps()]);
    }
    let (kbps, theory) = (series["kbps"].clone(), &series["theory"]);
    let share = kbps.iter().zip(theory).map(|(kbps, theory)| kbps / theory).collect();
    series.insert("share".into(), share);
    Ok(series)
}

/// The buffer counts that the paper gives figures for, with transfers as long as its own.
fn named() -> Result<Series> {
    let mut series = sweep(&Testbed::of(LARGE), &[6, 7, 8, 9, 10, 27, 28, 29], LONG_BYTES)?;
    for (name, column) in sweep(&Testbed::of(SMALL), &[17, 18, 19], LONG_BYTES)? {
        series.insert(format!("small-{name}"), column);
    }
    Ok(series)
}

/// Figure 4.3: the longest queue for each receive buffer, in bytes of data.
fn queue() -> Result<Series> {
    let mut series = Series::new();
    for bytes in WINDOWS {
        let outcome = Testbed::of(bytes).setup(63, 2_000_000).run()?;
        let longest = outcome.router.max_queue_packets as f64 * f64::from(host::SEGMENT_BYTES);
        push(&mut series, [("buffer", f64::from(bytes)), ("longest", longest)]);
    }
    Ok(series)
}

/// Place of the jump, for other delays of the line.
fn delays() -> Result<Series> {
    let mut series = Series::new();
    for delay_us in DELAYS_US {
        let jump = sweep(&Testbed { delay_us, ..Testbed::of(LARGE) }, &[4, 5, 6, 7, 8, 9, 10], SHORT_BYTES)?
            ["jump"][0];
        push(&mut series, [("jump", jump), ("delay", f64::from(delay_us) / 1000.0)]);
    }
    Ok(series)
}

/// Results where acknowledgements reach the sender in bunches.
fn bunches() -> Result<Series> {
    let mut series = Series::new();
    for bunch_us in BUNCHES_US {
        for buffers in [7, 8, 9, 10, 27] {
            let bunch = Duration::from_micros(bunch_us);
            let outcome = Setup { bunch, ..Testbed::of(LARGE).setup(buffers, SHORT_BYTES) }.run()?;
            push_outcome(&mut series, f64::from(buffers), "buffers", &outcome);
            push(&mut series, [("bunch", bunch_us as f64 / 1000.0)]);
        }
    }
    Ok(series)
}

/// The engine on the line alone.
fn by_engine(buffers: &[u32], bytes: u64, properties: &[&str]) -> Result<Series> {
    let mut series = Series::new();
    for buffers in buffers {
        // Its packets are UDP's: 28 bytes of headers.
        let line =
            format!("rate=5mbit framing=aal5 overhead=28 delay={}us buffer={buffers}p", host::DELAY_US);
        let setup = engine::Setup {
            path: PathConfig::both(line.parse()?),
            packet_bytes: 1472,
            properties,
            bytes,
            awaits_exchange: true,
            second: None,
            seed: 1,
        };
        let outcome = setup.run(Duration::from_secs(600))?;
        let took =
            outcome.first().and_then(engine::Outcome::took).map_or(f64::NAN, |took| took.as_secs_f64());
        push(&mut series, [("buffers", f64::from(*buffers)), ("kbps", bytes as f64 * 8e-3 / took)]);
    }
    Ok(series)
}

/// Results with other waits of an acknowledgement.
fn waits() -> Result<Series> {
    let mut series = Series::new();
    for delay_ticks in WAITS {
        let found = sweep(&Testbed { delay_ticks, ..Testbed::of(LARGE) }, &[5, 6, 7, 8, 9, 10], SHORT_BYTES)?;
        let at = |buffers: f64| {
            found["buffers"].iter().position(|b| *b == buffers).map_or(f64::NAN, |n| found["kbps"][n])
        };
        let row = [
            ("wait", delay_ticks as f64 * 10.0),
            ("jump", found["jump"][0]),
            ("kbps-7", at(7.0)),
            ("kbps-8", at(8.0)),
            ("kbps-10", at(10.0)),
        ];
        push(&mut series, row);
    }
    Ok(series)
}

/// The packet of the transfer that a row is of, from 0.
fn packet(row: &Row) -> f64 {
    f64::from(row.from) / f64::from(host::SEGMENT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_where_one_buffer_fewer_is_faster() {
        let series = |kbps: &[f64]| {
            let buffers = (1..=kbps.len()).map(|n| n as f64).collect();
            Series::from([("buffers".into(), buffers), ("kbps".into(), kbps.to_vec())])
        };
        assert_eq!(jump(&series(&[20.0, 400.0, 4000.0, 4000.0, 2000.0, 2100.0])), 4.0);
        assert_eq!(jump(&series(&[4000.0, 400.0, 3000.0, 4000.0])), 0.0, "the first two do not count");
        assert_eq!(jump(&series(&[])), 0.0);
    }
}
