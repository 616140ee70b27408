//! W. Zwaenepoel, "Protocols for Large Data Transfers over Local Networks", 1985.
//!
//! * [`formulas`]: the paper's, and those that they must be;
//! * [`protocol`]: stop-and-wait, sliding window and four blasts between simulated hosts;
//! * [`kernel`]: many blasts with losses, without the hosts;
//! * [`engine`]: the same moves by the engine.
//!
//! Conclusions from the units are in `reference/blast.toml`.

pub mod engine;
pub mod formulas;
pub mod kernel;
pub mod protocol;

use crate::paper::{Paper, Series, Unit, push};
use anyhow::Result;
use core::time::Duration;
use formulas::Times;
use kernel::{Setting, Strategy};
use protocol::{Mode, Transfer};
use uts_sim::cost::{Cost, Costs, Waiting, WorkKind};

/// The stand-alone programs of section 2.1, and the kernel of section 2.2, in milliseconds.
pub const STANDALONE: Times = Times { c: 1.35, ca: 0.17, t: T, ta: TA };
/// See [`STANDALONE`].
pub const V_KERNEL: Times = Times { c: 1.83, ca: 0.67, t: T, ta: TA };
/// 1024 and 64 bytes at 10 Mbit/s; the paper rounds to 0.82 and 0.05.
const T: f64 = 0.8192;
const TA: f64 = 0.0512;

/// Packets of the transfers of tables 1 and 3.
const SIZES: [u32; 4] = [1, 8, 64, 512];
/// From the arrival of a packet until the processor knows of it: half of what one exchange takes
/// longer than its parts do (table 2).
const LATENCY: Duration = Duration::from_micros(85);
/// Packets of a blast, and times in milliseconds, of figures 5 and 6 (section 3.1.3).
const D: u32 = 64;
const T1_MS: f64 = 5.9;
const TD_MS: f64 = 173.0;
/// The paper does not say which it drew: a tenth of a blast, a blast, ten blasts.
const REPEATS_MS: [f64; 3] = [17.3, 173.0, 1730.0];
/// Repeat time of the strategies with an answer.
const TR_MS: f64 = 173.0;
/// Repeat times that the deviation is drawn over, from a tenth of a blast to a hundred blasts:
/// section 3.2.2 has Tr "much larger" than what a negative acknowledgement makes of it.
const TRS_MS: [f64; 7] = [17.3, 54.7, 173.0, 547.0, 1730.0, 5470.0, 17300.0];
/// Probability of a loss there: flat in figure 5.
const TRS_PN: f64 = 1e-4;
/// Failures there: with Tr of a hundred blasts two in 65 make up nearly all of the deviation.
const TRS_FAILURES: f64 = 200_000.0;
/// Failures that each estimate has among its blasts.
const FAILURES: f64 = 40_000.0;
/// Transfers through simulated hosts that the kernel is held to.
const TRANSFERS: u64 = 600;
const TRANSFERS_PN: f64 = 0.01;
/// Packets of a very large transfer, and of the blasts that it is broken into (section 3.1.3).
const LARGE: u32 = 1024;
const PIECES: [u32; 7] = [1, 4, 16, 64, 256, 512, 1024];
const PIECES_PN: [f64; 3] = [1e-5, 1e-4, 1e-3];

/// Moves by the engine: bytes, how often a packet is lost, and how many moves.
const TODAY: [(u64, f64, u64); 2] = [(64 << 10, 0.01, 100), (1 << 20, 0.001, 10)];

/// 1e-6 to 1e-1, four in each decade.
fn error_rates() -> Vec<f64> {
    (0..=20).map(|n| libm::pow(10.0, -6.0 + f64::from(n) / 4.0)).collect()
}

/// Costs of hosts whose copies take these times, with this many buffers each way.
pub fn costs(times: &Times, send_buffers: u32, latency: Duration) -> Costs {
    // A straight line through the copies of 1024 and of 64 bytes.
    let kilobyte_ms = (times.c - times.ca) / (1024.0 - 64.0) * 1000.0;
    let ns = |ms: f64| Duration::from_nanos((ms * 1e6).round() as u64);
    let copy = Cost { packet: ns(times.ca - 0.064 * kilobyte_ms), kilobyte: ns(kilobyte_ms) };
    Costs {
        copy_in: copy,
        copy_out: copy,
        rate_bps: Some(10_000_000),
        send_buffers: Some(send_buffers),
        // A packet may arrive while the one before is copied out.
        receive_buffers: Some(2),
        latency,
        waiting: Waiting::Busy,
        ..Costs::default()
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The paper with all its units.
pub fn paper() -> Paper {
    let mut units = vec![
        Unit::new("tables", tables),
        Unit::new("lines", time_lines),
        Unit::new("formulas", against_formulas),
        Unit::new("expected", expected),
        Unit::new("pieces", pieces),
        Unit::new("saw", stop_and_wait),
    ];
    for (n, tr) in REPEATS_MS.into_iter().enumerate() {
        units.push(Unit::new(format!("full-{n}"), move || estimates(Strategy::Full, tr, 10 + n as u64)));
    }
    for (n, strategy) in Strategy::ALL.into_iter().enumerate() {
        if strategy != Strategy::Full {
            let work = move || estimates(strategy, TR_MS, 20 + n as u64);
            units.push(Unit::new(format!("strategy-{n}"), work));
        }
        units.push(Unit::new(format!("tr-{n}"), move || over_tr(strategy, 40 + n as u64)));
        units.push(Unit::new(format!("hosts-{n}"), move || through_hosts(strategy)));
    }
    for strategy in 1..=4 {
        units.push(Unit::new(format!("today-{strategy}"), move || today(strategy)));
    }
    Paper::new("blast", include_str!("../../reference/blast.toml"), units)
}

fn tables() -> Result<Series> {
    let mut series = Series::from([("packets".into(), SIZES.map(f64::from).to_vec())]);
    let modes = [Mode::StopAndWait, Mode::SlidingWindow, Mode::Blast(Strategy::Full)];
    for (machine, times) in [("standalone", STANDALONE), ("v", V_KERNEL)] {
        let latency = if machine == "v" { Duration::ZERO } else { LATENCY };
        for (mode, name) in modes.into_iter().zip(["saw", "sw", "blast"]) {
            let costs = costs(&times, 1, latency);
            let took = SIZES.map(|n| Ok(ms(Transfer::new(mode, n, costs.clone()).run(1)?.elapsed)));
            series.insert(format!("{machine}-{name}"), took.into_iter().collect::<Result<_>>()?);
        }
    }
    // Without copies, and 10 us from one to the other.
    let free = Costs { rate_bps: Some(10_000_000), ..Costs::default() };
    for (mode, name) in modes.into_iter().zip(["saw", "sw", "blast"]) {
        let transfer = Transfer { delay: Duration::from_micros(10), ..Transfer::new(mode, D, free.clone()) };
        series.insert(format!("naive-{name}"), vec![ms(transfer.run(1)?.elapsed) * 1e3]);
    }
    // The parts of one exchange, in the order in which they end.
    let done = Transfer::new(Mode::StopAndWait, 1, costs(&STANDALONE, 1, LATENCY)).run(1)?;
    let mut parts: Vec<_> = done.work.into_iter().flatten().filter(|w| w.kind != WorkKind::Receive).collect();
    parts.sort_by_key(|work| work.end);
    let names = ["copy-in", "transmit", "copy-out", "ack-copy-in", "ack-transmit", "ack-copy-out"];
    push(&mut series, names.into_iter().zip(parts.iter().map(|work| ms(work.end.since(work.begin)))));
    push(&mut series, [("exchange", ms(done.elapsed))]);
    Ok(series)
}

/// The four pictures of figure 3, as columns of stretches; and how long both processors copy at
/// once.
fn time_lines() -> Result<Series> {
    let blast = Mode::Blast(Strategy::Full);
    let mut series = Series::new();
    for (name, mode, buffers) in
        [("a", Mode::StopAndWait, 1), ("b", blast, 1), ("c", Mode::SlidingWindow, 1), ("d", blast, 2)]
    {
        let done = Transfer::new(mode, 3, costs(&STANDALONE, buffers, Duration::ZERO)).run(1)?;
        let mut copies = [const { Vec::new() }; 2];
        for (host, work) in done.work.iter().enumerate() {
            for piece in work.iter().filter(|piece| piece.kind != WorkKind::Receive) {
                let is_data = piece.bytes == usize::from(protocol::DATA_BYTES);
                let kind = if is_data { "data" } else { "ack" };
                let [begin, end] = [piece.begin, piece.end].map(|at| ms(at.since(uts_functions::Time::ZERO)));
                let lane = match piece.kind {
                    WorkKind::Transmit => 1,
                    _ => 2 * host,
                };
                if lane != 1 {
                    copies[host].push((begin, end));
                }
                for (what, value) in [("lane", lane as f64), ("begin", begin), ("end", end)] {
                    push(&mut series, [(&*format!("{name}-{kind}-{what}"), value)]);
                }
            }
        }
        let [sender, receiver] = &copies;
        let pairs = sender.iter().flat_map(|a| receiver.iter().map(move |b| (a, b)));
        let both: f64 =
            pairs.map(|(a, b): (&(f64, f64), &(f64, f64))| (a.1.min(b.1) - a.0.max(b.0)).max(0.0)).sum();
        series.insert(format!("{name}-both"), vec![both]);
        series.insert(format!("{name}-elapsed"), vec![ms(done.elapsed)]);
    }
    Ok(series)
}

/// Each N from 1 to 512 through the hosts, beside the formulas.
fn against_formulas() -> Result<Series> {
    let blast = Mode::Blast(Strategy::Full);
    let mut series = Series::new();
    for n in (1..=protocol::PACKETS_MAX).map(f64::from) {
        push(
            &mut series,
            [
                ("n", n),
                ("transmitting", n * STANDALONE.t + STANDALONE.ta),
                ("sw-published", STANDALONE.sliding_window(n)),
                ("sw-fits", STANDALONE.sliding_window_fits(n)),
            ],
        );
    }
    // Copies that are longer than a transmission, and shorter.
    let short = Times { c: 0.4, ca: 0.05, ..STANDALONE };
    for (name, mode, buffers, times) in [
        ("saw", Mode::StopAndWait, 1, STANDALONE),
        ("sw", Mode::SlidingWindow, 1, STANDALONE),
        ("blast", blast, 1, STANDALONE),
        ("double", blast, 2, STANDALONE),
        ("double-short", blast, 2, short),
        ("triple", blast, 3, STANDALONE),
    ] {
        let took = (1..=protocol::PACKETS_MAX)
            .map(|n| Ok(ms(Transfer::new(mode, n, costs(&times, buffers, Duration::ZERO)).run(1)?.elapsed)));
        let took: Vec<f64> = took.collect::<Result<_>>()?;
        let formula = |n: f64| match name {
            "saw" => times.stop_and_wait(n),
            "sw" => times.sliding_window_fits(n),
            "blast" => times.blast(n),
            _ => times.double_buffered(n),
        };
        let off = took.iter().enumerate().map(|(n, took)| (took / formula(n as f64 + 1.0) - 1.0).abs());
        series.insert(format!("{name}-off"), vec![off.fold(0.0, f64::max)]);
        series.insert(name.into(), took);
    }
    Ok(series)
}

/// The formulas of sections 3.1 and 3.2 over many error rates: with each Tr, by its number.
fn expected() -> Result<Series> {
    let mut series = Series::new();
    let d = f64::from(D);
    for pn in (0..=100).map(|n| libm::pow(10.0, -6.0 + f64::from(n) / 20.0)) {
        push(&mut series, [("pn", pn), ("sigma-published", formulas::sigma_published(d, TD_MS, TR_MS, pn))]);
        for (n, tr) in REPEATS_MS.into_iter().enumerate() {
            for (name, value) in [
                ("mean", formulas::expected_blast(d, TD_MS, tr, pn)),
                ("saw", formulas::expected_stop_and_wait(d, T1_MS, tr, pn)),
                ("sigma", formulas::sigma_exact(d, TD_MS, tr, pn)),
            ] {
                push(&mut series, [(&*format!("{name}-{n}"), value)]);
            }
        }
    }
    Ok(series)
}

/// The estimate of a strategy at each error rate, with its standard errors, and what it must be
/// where a formula says it.
fn estimates(strategy: Strategy, tr: f64, seed: u64) -> Result<Series> {
    let mut series = Series::new();
    let d = f64::from(D);
    for (n, pn) in error_rates().into_iter().enumerate() {
        let setting = Setting { strategy, d: D, t1: T1_MS, td: TD_MS, tr, pn };
        let found = kernel::estimate(&setting, FAILURES, seed << 32 | n as u64);
        push(
            &mut series,
            [
                ("pn", pn),
                ("mean", found.mean),
                ("mean-error", found.mean_error),
                ("sigma", found.sigma),
                ("sigma-error", found.sigma_error),
            ],
        );
        let exact = match strategy {
            Strategy::Full => {
                (formulas::expected_blast(d, TD_MS, tr, pn), formulas::sigma_exact(d, TD_MS, tr, pn))
            }
            Strategy::FullNak => formulas::exact_nak(d, TD_MS, tr, pn),
            Strategy::FromFirst | Strategy::Selective => continue,
        };
        push(&mut series, [("mean-exact", exact.0), ("sigma-exact", exact.1)]);
    }
    Ok(series)
}

/// A packet alone and its acknowledgement, as often as a transfer has packets: stop-and-wait.
fn stop_and_wait() -> Result<Series> {
    let mut series = Series::new();
    for (n, pn) in error_rates().into_iter().enumerate() {
        let setting = Setting { strategy: Strategy::Full, d: 1, t1: T1_MS, td: T1_MS, tr: TR_MS, pn };
        let found = kernel::estimate(&setting, FAILURES, 60 << 32 | n as u64);
        push(&mut series, [("pn", pn), ("mean", f64::from(D) * found.mean)]);
    }
    Ok(series)
}

/// The deviation of a strategy at [`TRS_PN`], over Tr.
fn over_tr(strategy: Strategy, seed: u64) -> Result<Series> {
    let mut series = Series::new();
    for (n, tr) in TRS_MS.into_iter().enumerate() {
        let setting = Setting { strategy, d: D, t1: T1_MS, td: TD_MS, tr, pn: TRS_PN };
        let found = kernel::estimate(&setting, TRS_FAILURES, seed << 32 | n as u64);
        push(&mut series, [("tr", tr), ("sigma", found.sigma), ("sigma-error", found.sigma_error)]);
    }
    Ok(series)
}

/// The same transfers through simulated hosts and by the kernel: mean times, and the standard error
/// of their difference.
fn through_hosts(strategy: Strategy) -> Result<Series> {
    let costs = costs(&V_KERNEL, 1, Duration::ZERO);
    let error_free = |packets| {
        Ok::<_, anyhow::Error>(Transfer::new(Mode::Blast(strategy), packets, costs.clone()).run(1)?.elapsed)
    };
    let error_free = [error_free(1)?, error_free(D)?];
    let transfer = Transfer {
        loss: TRANSFERS_PN,
        error_free,
        repeat_after: Duration::from_secs_f64(TR_MS / 1e3),
        ..Transfer::new(Mode::Blast(strategy), D, costs.clone())
    };
    let (mut sum, mut squares) = (0.0, 0.0);
    for seed in 0..TRANSFERS {
        let took = ms(transfer.run(seed)?.elapsed);
        sum += took;
        squares += took * took;
    }
    let n = TRANSFERS as f64;
    let (mean, sigma) = (sum / n, libm::sqrt(squares / n - sum / n * (sum / n)));
    let [t1, td] = error_free.map(ms);
    let setting = Setting { strategy, d: D, t1, td, tr: TR_MS, pn: TRANSFERS_PN };
    let kernel = kernel::estimate(&setting, FAILURES, 30);
    Ok(Series::from([
        ("mean".into(), vec![mean]),
        ("kernel".into(), vec![kernel.mean]),
        ("error".into(), vec![libm::hypot(sigma / libm::sqrt(n), kernel.mean_error)]),
    ]))
}

/// Moves by the engine, without losses and with: a row for each of [`TODAY`].
fn today(strategy: usize) -> Result<Series> {
    let mut series = Series::new();
    for (bytes, loss, moves) in TODAY {
        let free = engine::run(strategy, bytes, 0.0, 1)?;
        let lossy: Vec<engine::Moved> =
            (0..moves).map(|seed| engine::run(strategy, bytes, loss, seed)).collect::<Result<_>>()?;
        let mean = |of: fn(&engine::Moved) -> f64| lossy.iter().map(of).sum::<f64>() / moves as f64;
        push(
            &mut series,
            [
                ("kb", (bytes >> 10) as f64),
                ("rate", bytes as f64 * 8.0 / 1e6 / ms(free.took)),
                ("free", ms(free.took)),
                ("packets", free.packets as f64),
                ("lossy", mean(|moved| ms(moved.took))),
                ("repeats", mean(|moved| moved.repeats as f64)),
                ("failed", mean(|moved| f64::from(u8::from(moved.repeats > 0)))),
                ("timed-out", mean(|moved| f64::from(u8::from(moved.took > engine::TIMEOUT)))),
            ],
        );
    }
    Ok(series)
}

/// The expected time of a very large transfer, broken into blasts (by the formula, which is exact):
/// at each error rate, by its number.
fn pieces() -> Result<Series> {
    let mut series = Series::new();
    for piece in PIECES {
        let (packets, td) = (f64::from(piece), V_KERNEL.blast(f64::from(piece)));
        push(&mut series, [("piece", packets)]);
        for (n, pn) in PIECES_PN.into_iter().enumerate() {
            let took = f64::from(LARGE / piece) * formulas::expected_blast(packets, td, TR_MS, pn);
            push(&mut series, [(&*format!("pn-{n}"), took)]);
        }
    }
    Ok(series)
}
