//! A transfer as columns of figures: what units of work leave, and what is asked of that.

use super::world::Outcome;
use crate::engine;
use crate::paper::{Results, Series};
use anyhow::Result;
use core::time::Duration;
use uts_functions::Time;

fn seconds(at: Time) -> f64 {
    at.since(Time::ZERO).as_secs_f64()
}

/// Enters a transfer, each column behind `name`.
pub(super) fn insert(series: &mut Series, name: &str, outcome: &Outcome) {
    let spans = |pairs: &[(Time, Duration)]| -> [Vec<f64>; 2] {
        let (at, span): (Vec<f64>, Vec<f64>) =
            pairs.iter().map(|(at, span)| (seconds(*at), span.as_secs_f64())).unzip();
        [at, span]
    };
    let [sample_at, sample] = spans(&outcome.log.samples);
    let [timeout_at, timeout] = spans(&outcome.log.timeouts);
    let sent = || outcome.log.sent.iter();
    for (what, column) in [
        ("at", sent().map(|(at, ..)| seconds(*at)).collect()),
        ("packet", sent().map(|(_, packet, _)| f64::from(*packet)).collect()),
        ("repeats", sent().map(|(.., repeats)| f64::from(u8::from(*repeats))).collect()),
        ("sample-at", sample_at),
        ("sample", sample),
        ("timeout-at", timeout_at),
        ("timeout", timeout),
        ("duplicate-at", outcome.duplicates.iter().map(|at| seconds(*at)).collect()),
        ("facts", vec![f64::from(outcome.packets), f64::from(outcome.ip_bytes), seconds(outcome.begins)]),
        ("done", outcome.done_at().into_iter().map(seconds).collect()),
    ] {
        series.insert(format!("{name}-{what}"), column);
    }
}

/// Enters a transfer of the engine; packets are counted by the bytes that Rx has in one.
pub(super) fn insert_of_engine(series: &mut Series, name: &str, outcome: &engine::Outcome) {
    let per_packet = f64::from(super::SMALL - super::protocol::HEADER_BYTES);
    let packets = (f64::from(super::world::TRANSFER_BYTES) / per_packet).ceil();
    let sent = || outcome.sent.iter();
    for (what, column) in [
        ("at", sent().map(|(at, ..)| seconds(*at)).collect()),
        ("packet", sent().map(|(_, position, _)| 1.0 + *position as f64 / per_packet).collect()),
        ("repeats", sent().map(|(.., repeats)| f64::from(u8::from(*repeats))).collect()),
        ("facts", vec![packets, f64::from(super::SMALL), seconds(outcome.begins)]),
        ("done", outcome.done_at.into_iter().map(seconds).collect()),
    ] {
        series.insert(format!("{name}-{what}"), column);
    }
    for what in ["sample-at", "sample", "timeout-at", "timeout", "duplicate-at"] {
        series.insert(format!("{name}-{what}"), Vec::new());
    }
}

/// A transfer as its unit has left it.
pub(super) struct Session<'a> {
    /// Transmissions: when, in seconds.
    pub at: &'a [f64],
    /// Of which packet, from 1.
    pub packet: &'a [f64],
    repeats: &'a [f64],
    /// Samples of the round trip: when, and how long.
    pub sample_at: &'a [f64],
    /// See there.
    pub sample: &'a [f64],
    /// The time-out: when it changed, and to what.
    pub timeout_at: &'a [f64],
    /// See there.
    pub timeout: &'a [f64],
    duplicate_at: &'a [f64],
    /// Packets of the transfer.
    pub packets: f64,
    ip_bytes: f64,
    /// When it began.
    pub begins: f64,
    /// When it was done.
    pub done: Option<f64>,
}

impl<'a> Session<'a> {
    /// The transfer that a unit has entered behind `name`.
    pub fn of(results: &'a Results, unit: &str, name: &str) -> Result<Self> {
        let column = |what: &str| results.column(unit, &format!("{name}-{what}"));
        let facts = column("facts")?;
        let fact = |n: usize| facts.get(n).copied().unwrap_or(f64::NAN);
        Ok(Session {
            at: column("at")?,
            packet: column("packet")?,
            repeats: column("repeats")?,
            sample_at: column("sample-at")?,
            sample: column("sample")?,
            timeout_at: column("timeout-at")?,
            timeout: column("timeout")?,
            duplicate_at: column("duplicate-at")?,
            packets: fact(0),
            ip_bytes: fact(1),
            begins: fact(2),
            done: column("done")?.first().copied(),
        })
    }

    /// Transmissions as points, those that repeat or those that do not.
    pub fn points(&self, repeats: bool) -> Vec<(f64, f64)> {
        let all = self.at.iter().zip(self.packet).zip(self.repeats);
        all.filter(|(_, r)| (**r > 0.0) == repeats).map(|((at, packet), _)| (*at, *packet)).collect()
    }

    /// When packets were sent again, within these seconds.
    pub fn repeats_within(&self, from: f64, to: f64) -> Vec<f64> {
        self.points(true).into_iter().map(|(at, _)| at).filter(|at| (from..to).contains(at)).collect()
    }

    /// Number of packets that were sent again.
    pub fn repeated(&self) -> f64 {
        self.points(true).len() as f64
    }

    /// Arrivals from then on of what was there.
    pub fn duplicates_from(&self, from: f64) -> usize {
        self.duplicate_at.iter().filter(|at| **at >= from).count()
    }

    /// Seconds from its first packet until it was done.
    pub fn took(&self) -> f64 {
        let first = self.at.first().copied().unwrap_or(f64::NAN);
        self.done.map_or(f64::NAN, |done| done - first)
    }

    /// Bits per second of IP packets that were needed.
    pub fn ip_bps(&self) -> f64 {
        self.packets * self.ip_bytes * 8.0 / self.took()
    }

    /// Number of transmissions of each packet that was first sent within these seconds.
    pub fn counts_of(&self, from: f64, to: f64) -> Vec<f64> {
        let mut counts = std::collections::BTreeMap::new();
        for (_, packet) in self.points(false).into_iter().filter(|(at, _)| (from..to).contains(at)) {
            counts.insert(packet as u64, 1.0);
        }
        for (_, packet) in self.points(true) {
            if let Some(count) = counts.get_mut(&(packet as u64)) {
                *count += 1.0;
            }
        }
        counts.into_values().collect()
    }

    /// Seconds between one transmission of a packet and the next.
    pub fn gaps(&self) -> Vec<f64> {
        let mut last = std::collections::BTreeMap::new();
        let mut gaps = Vec::new();
        for (at, packet) in self.at.iter().zip(self.packet) {
            if let Some(before) = last.insert(*packet as u64, *at) {
                gaps.push(at - before);
            }
        }
        gaps
    }

    /// Round trips that were measured within these seconds.
    pub fn samples_within(&self, from: f64, to: f64) -> impl Iterator<Item = f64> {
        let all = self.sample_at.iter().zip(self.sample);
        all.filter(move |(at, _)| (from..to).contains(*at)).map(|(_, sample)| *sample)
    }

    /// Time-outs, as they changed within these seconds.
    pub fn timeouts_within(&self, from: f64, to: f64) -> impl Iterator<Item = f64> {
        let all = self.timeout_at.iter().zip(self.timeout);
        all.filter(move |(at, _)| (from..to).contains(*at)).map(|(_, timeout)| *timeout)
    }

    /// When the last packet was sent again; no number if none was.
    pub fn last_repeat(&self) -> f64 {
        self.points(true).last().map_or(f64::NAN, |(at, _)| *at)
    }

    /// When the first acknowledgement came.
    pub fn first_acknowledgement(&self) -> f64 {
        self.timeout_at.first().copied().unwrap_or(f64::NAN)
    }
}
