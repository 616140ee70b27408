//! D. Bachmann, P. Honeyman and L. B. Huston, "The Rx Hex", CITI TR 93-8, 1993.
//!
//! * [`sender`]: Rx's sender, of mechanisms of the library; [`design`]: which;
//! * [`protocol`]: its packets and its receiver;
//! * [`world`]: the gateway, its line, and a server whose work takes time;
//! * [`engine`]: the engine on the same line;
//! * `headers`: compressed headers, bit by bit and in a mix of calls;
//! * `modem`: transfers over modems;
//! * `session`: a transfer as columns of figures.
//!
//! Conclusions from the units are in `reference/rx-hex.toml`.

pub mod design;
pub mod engine;
mod headers;
mod modem;
pub mod protocol;
pub mod sender;
mod session;
pub mod world;

use crate::average::{mean, median};
use crate::paper::{Paper, Series, Unit, push};
use anyhow::{Context, Result};
use core::time::Duration;
use design::{Design, Samples, Timers};
use engine::Charge;
use uts_sim::cost::{Cost, Costs, Load};
use world::{Line, Outcome, Session, over_ethernet, over_line};

/// Packets that the gateway holds, the one on the line included. The paper does not say. Of the
/// sizes of [`QUEUES`] that stop figure 2 where the paper's does, it is the nearest to figures 3
/// and 4.
pub const QUEUE_PACKETS: u32 = 41;
/// Sizes that are tried for it. A window of 1500-byte packets is 45 fragments, and overflows it
/// (section 1.3).
pub const QUEUES: core::ops::RangeInclusive<u32> = 24..=48;
/// A transfer is given up after so long without an acknowledgement. The paper does not say. In its
/// figure 2 more than 1400 packets have been sent by then.
pub const PATIENCE: Duration = Duration::from_secs(160);

/// IP packets of the paper, in bytes: as AFS has them, and on the line.
const LARGE: u16 = 1500;
const SMALL: u16 = 576;
/// No transfer takes longer.
const END: Duration = Duration::from_secs(4000);
/// When the second session begins in figures 6 and 13.
const SECOND_S: [u64; 2] = [66, 73];
/// Within the second that the paper names, figure 13 is begun at each tenth.
const TENTHS: u64 = 10;
/// Below a time-out of 9 s what comes of a session depends on where bursts meet the end of a
/// packet on the line. These delays of the line shift that; the middle one of what comes counts.
const DELAYS_MS: [u64; 7] = [0, 3, 6, 9, 12, 15, 18];
/// Rates of the search for the knee (section 3), in kbit/s.
const KNEE_KBPS: core::ops::RangeInclusive<u64> = 60..=120;

/// The server of figures 7 to 11 works so long for four packets and their acknowledgement, and from
/// some instant on so many times as long. The paper does not say. With these the round trip rises
/// from below 0.2 s to about 1 s.
const ACKNOWLEDGING: Duration = Duration::from_millis(40);
const LOADED: f64 = 6.0;
/// No time-out is shorter there: that of figure 11 before the rise.
const ETHERNET_FLOOR: Duration = Duration::from_millis(500);
/// Bytes of the transfers there, and when those end that do not come to an end.
const ETHERNET_BYTES: u32 = 600_000;
const ETHERNET_END: Duration = Duration::from_secs(40);

/// The paper with all its units.
pub fn paper() -> Paper {
    let mut units = vec![
        Unit::new("figure-2", || alone(Design::fixed(seconds(2))?, LARGE)),
        Unit::new("figure-3", || alone(Design::fixed(seconds(2))?, SMALL)),
        Unit::new("figure-4", || alone(Design::fixed(seconds(6))?, SMALL)),
        Unit::new("figure-5", || alone(Design::fixed(seconds(12))?, SMALL)),
        Unit::new("window-1500", window_1500),
        Unit::new("figure-6", || two(&Design::fixed(seconds(12))?, SECOND_S[0])),
        Unit::new("delays-2", || delayed(QUEUE_PACKETS, 2)),
        Unit::new("delays-6", || delayed(QUEUE_PACKETS, 6)),
        Unit::new("figure-12", || alone(Design::hex(Timers::Restarted)?, SMALL)),
        Unit::new("figure-13", || two(&Design::hex(Timers::Restarted)?, SECOND_S[1])),
        Unit::new("figure-12-recomputed", || alone(Design::hex(Timers::Recomputed)?, SMALL)),
        Unit::new("engine-3", || as_rx(2, None)),
        Unit::new("engine-4", || as_rx(6, None)),
        Unit::new("engine-5", || as_rx(12, None)),
        Unit::new("engine-6", || as_rx(12, Some(seconds(SECOND_S[0])))),
        Unit::new("knee", knee),
        Unit::new("history", history),
        Unit::new("slow-start", || two(&Design::hex(Timers::Restarted)?.restrained("tahoe")?, SECOND_S[1])),
        Unit::new("interactive", by_engine),
        Unit::new("rules", headers::rules),
        Unit::new("mix", headers::mix),
        Unit::new("cascade", headers::cascade),
        Unit::new("compressions", modem::compressions),
    ];
    for (name, bytes, percent) in modem::FILES {
        units.push(Unit::new(format!("modem-{name}"), move || modem::file(bytes, percent)));
    }
    for (name, deviations, rises_s, timers, samples) in ETHERNET {
        units.push(Unit::new(name, move || {
            let design = Design::adaptive(deviations, ETHERNET_FLOOR, timers, samples)?;
            ethernet(design, rises_s)
        }));
    }
    for queue in QUEUES {
        units.push(Unit::new(format!("queue-{queue}"), move || at_queue(queue)));
    }
    Paper::new("rx-hex", include_str!("../../reference/rx-hex.toml"), units)
}

/// Figures 7 to 11: deviations in the time-out, when the server becomes slow, and what is asked of
/// the sender. Time-outs are frozen in figures 7 and 8, which stand before section 4 updates them.
/// Each later figure is run in both readings of the update, and so is figure 12.
const ETHERNET: [(&str, u64, u64, Timers, Samples); 8] = [
    ("figure-7", 1, 2, Timers::Frozen, Samples::Serial),
    ("figure-8", 2, 2, Timers::Frozen, Samples::Serial),
    ("figure-9", 2, 1, Timers::Restarted, Samples::Serial),
    ("figure-9-recomputed", 2, 1, Timers::Recomputed, Samples::Serial),
    ("figure-10", 2, 2, Timers::Restarted, Samples::Single),
    ("figure-10-recomputed", 2, 2, Timers::Recomputed, Samples::Single),
    ("figure-11", 2, 3, Timers::Restarted, Samples::Serial),
    ("figure-11-recomputed", 2, 3, Timers::Recomputed, Samples::Serial),
];

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A session that has the line to itself.
fn alone(design: Design, ip_bytes: u16) -> Result<Series> {
    let mut series = Series::new();
    session::insert(&mut series, "first", &one(&Line::SLIP, design, ip_bytes)?);
    Ok(series)
}

/// A window of packets of 1500 bytes, each 1.6 s on the line, with a time-out above what it takes.
fn window_1500() -> Result<Series> {
    let mut series = Series::new();
    let line = Line { queue_packets: 1000, ..Line::SLIP };
    session::insert(&mut series, "first", &one(&line, Design::fixed(seconds(40))?, LARGE)?);
    Ok(series)
}

/// Two sessions from two hosts, the second from `second_s` on.
fn two(design: &Design, second_s: u64) -> Result<Series> {
    let mut series = Series::new();
    let outcomes = both(&Line::SLIP, design, seconds(second_s))?;
    for (name, outcome) in ["first", "second"].into_iter().zip(&outcomes) {
        session::insert(&mut series, name, outcome);
        series.insert(format!("{name}-burst"), session::bursts(outcome, 2.0));
    }
    Ok(series)
}

fn both(line: &Line, design: &Design, second: Duration) -> Result<Vec<Outcome>> {
    let sessions = [Session::new(design.clone(), SMALL), Session::new(design.clone(), SMALL).at(second)];
    Ok(over_line(line, &sessions, END)?.0)
}

/// Figure 13 where each session knows what one before has measured on the line.
fn history() -> Result<Series> {
    let design = Design::hex(Timers::Restarted)?;
    let (before, _) = over_line(&Line::SLIP, &[Session::new(design.clone(), SMALL)], END)?;
    let measured = before.iter().flat_map(|outcome| &outcome.log.samples).map(|(_, rtt)| *rtt);
    two(&design.knowing(measured.collect()), SECOND_S[1])
}

/// Figure 13 by the engine under a profile of today.
fn by_engine() -> Result<Series> {
    // A full gateway holds the first packet back for 25 s.
    let properties = ["uts.profile=interactive", "uts.profile.establishment=three-way(patience=60000)"];
    engine_series(Charge::Length, &properties, Some(seconds(SECOND_S[1])))
}

/// Figures 3 to 6 by the engine as Rx of AFS 3.1.
fn as_rx(timeout_s: u64, second: Option<Duration>) -> Result<Series> {
    let timing = format!("uts.profile.timing=fixed(timeout={})", timeout_s * 1000);
    engine_series(Charge::Carried, &["uts.profile=rx-3.1", &timing, "uts.consent=all"], second)
}

fn engine_series(charge: Charge, properties: &[&str], second: Option<Duration>) -> Result<Series> {
    let mut series = Series::new();
    let outcomes = engine::over_line(&Line::SLIP, charge, properties, second, END)?;
    for (name, outcome) in ["first", "second"].into_iter().zip(&outcomes) {
        session::insert_of_engine(&mut series, name, outcome);
    }
    Ok(series)
}

/// A session on an Ethernet, whose server becomes slow.
fn ethernet(design: Design, rises_s: u64) -> Result<Series> {
    let load = vec![Load { at: seconds(rises_s), factor: LOADED }];
    let costs = Costs { copy_in: Cost::fixed(ACKNOWLEDGING), load, ..Costs::default() };
    let session = Session { bytes: ETHERNET_BYTES, ..Session::new(design, LARGE) };
    let mut series = Series::new();
    session::insert(&mut series, "first", &over_ethernet(costs, &session, ETHERNET_END)?);
    Ok(series)
}

/// A session with a fixed time-out, at each of [`DELAYS_MS`].
fn delayed(queue_packets: u32, timeout_s: u64) -> Result<Series> {
    let mut series = Series::new();
    for delay_ms in DELAYS_MS {
        let line = Line { queue_packets, delay: Duration::from_millis(delay_ms), ..Line::SLIP };
        let outcome = one(&line, Design::fixed(seconds(timeout_s))?, SMALL)?;
        let repeats = outcome.repeats_by_packet();
        let worst = repeats.iter().copied().max().unwrap_or(0);
        let worst_packet = repeats.iter().position(|repeats| *repeats == worst).unwrap_or(0) + 1;
        push(
            &mut series,
            [
                ("transmissions", outcome.log.sent.len() as f64),
                ("repeats", outcome.repeats() as f64),
                ("worst", f64::from(worst)),
                ("worst-packet", worst_packet as f64),
                ("bps", outcome.ip_bps().unwrap_or(0.0)),
            ],
        );
    }
    Ok(series)
}

fn one(line: &Line, design: Design, ip_bytes: u16) -> Result<Outcome> {
    let (outcomes, _) = over_line(line, &[Session::new(design, ip_bytes)], END)?;
    outcomes.into_iter().next().context("one session was begun")
}

/// Published values of figures 2, 3 and 4, by the columns of a queue's unit.
const PUBLISHED: [(&str, f64); 4] =
    [("highest", 28.0), ("transmissions-2", 4798.0), ("bps-2", 873.0), ("bps-6", 1900.0)];

/// Values of figures 2, 3, 4 and 13 with this queue; those of the first three as shares of what is
/// published, too, and how far figures 3 and 4 are off, as a root mean square in per cent.
fn at_queue(queue_packets: u32) -> Result<Series> {
    let line = Line { queue_packets, ..Line::SLIP };
    let highest = one(&line, Design::fixed(seconds(2))?, LARGE)?.highest();
    let mut series = Series::new();
    let beside = f64::from(queue_packets) - f64::from(QUEUE_PACKETS);
    push(&mut series, [("queue", queue_packets.into()), ("beside", beside), ("highest", highest.into())]);
    for (timeout_s, columns) in [(2, &["transmissions", "bps"][..]), (6, &["bps"])] {
        let found = delayed(queue_packets, timeout_s)?;
        for column in columns {
            let middle = median(found.get(*column).into_iter().flatten().copied());
            series.insert(format!("{column}-{timeout_s}"), vec![middle]);
        }
    }
    let shares = PUBLISHED.map(|(column, published)| series[column][0] / published);
    for ((column, _), share) in PUBLISHED.iter().zip(shares) {
        series.insert(format!("{column}-share"), vec![share]);
    }
    let squares: Vec<f64> = shares[1..].iter().map(|share| (share - 1.0) * (share - 1.0)).collect();
    series.insert("off".into(), vec![libm::sqrt(mean(&squares)) * 100.0]);
    for tenth in 0..TENTHS {
        let second = seconds(SECOND_S[1]) + Duration::from_millis(1000 / TENTHS * tenth);
        let outcomes = both(&line, &Design::hex(Timers::Restarted)?, second)?;
        let begins = outcomes[1].begins;
        let repeats = outcomes[0].log.sent.iter().filter(|(at, _, repeats)| *repeats && *at >= begins);
        push(&mut series, [("first-repeats", repeats.count() as f64)]);
    }
    Ok(series)
}

/// Repeats of Rx as it was shipped over lines of many rates, without a gateway in between that
/// fragments or drops.
fn knee() -> Result<Series> {
    let mut series = Series::new();
    for kbps in KNEE_KBPS {
        let line = Line {
            rate_bps: kbps * 1000,
            framing: "none",
            mtu_bytes: LARGE.into(),
            queue_packets: 1000,
            ..Line::SLIP
        };
        let repeats = one(&line, Design::fixed(seconds(2))?, LARGE)?.repeats();
        push(&mut series, [("kbps", kbps as f64), ("repeats", repeats as f64)]);
    }
    Ok(series)
}
