//! Events between a loss and the end of the recovery from it, or the time-out: the open
//! question of section 4.2.1, packet by packet.

use super::host::{SEGMENT_BYTES, Testbed};
use super::packet;
use crate::paper::Series;
use crate::tcp::world::Outcome;
use anyhow::{Context, Result};
use uts_functions::Time;

const BYTES: u32 = 3_000_000;
/// The episode that is shown: slow start has ended before it.
const EPISODE: usize = 3;
/// Milliseconds that are shown before its fast retransmit, and behind.
const BEFORE_MS: f64 = 45.0;
const BEHIND_MS: f64 = 330.0;

/// The columns of an episode with so many buffers: times in ms from its fast retransmit on, packets
/// from the one that was repeated first.
pub(super) fn of(testbed: &Testbed, buffers: u32) -> Result<Series> {
    let mut setup = testbed.setup(buffers, BYTES);
    setup.records = true;
    let outcome = setup.run()?;
    let (zero, hole) = *outcome.sender.fast.get(EPISODE).context("there are fast retransmits")?;
    let hole = f64::from(hole) / f64::from(SEGMENT_BYTES);
    let ms = |at: Time| (at.as_nanos() as f64 - zero.as_nanos() as f64) / 1e6;
    let is_shown = |at: Time| (-BEFORE_MS..BEHIND_MS).contains(&ms(at));
    let points = |all: &mut dyn Iterator<Item = (Time, f64)>| -> [Vec<f64>; 2] {
        let shown = all.filter(|(at, _)| is_shown(*at));
        let (at, packet) = shown.map(|(at, packet)| (ms(at), packet - hole)).unzip();
        [at, packet]
    };
    let segments = |position: u32| f64::from(position) / f64::from(SEGMENT_BYTES);
    let sent = |repeats: bool| outcome.sender.sent.iter().filter(move |row| row.is_repeat == repeats);
    let mut series = Series::new();
    for (name, [at, packets]) in [
        ("new", points(&mut sent(false).map(|row| (row.at, packet(row))))),
        ("repeat", points(&mut sent(true).map(|row| (row.at, packet(row))))),
        ("ack", points(&mut outcome.sender.acks.iter().map(|(at, to, _)| (*at, segments(*to))))),
        ("pruned", points(&mut outcome.receiver.pruned.iter().map(|(at, from)| (*at, segments(*from))))),
        ("timeout", points(&mut outcome.sender.timeouts.iter().map(|(at, from)| (*at, segments(*from))))),
    ] {
        series.insert(format!("{name}-at"), at);
        series.insert(format!("{name}-packet"), packets);
    }
    for (name, value) in figures(&outcome, zero) {
        series.insert(name.into(), vec![value]);
    }
    Ok(series)
}

/// Counts of the episode that begins then.
fn figures(outcome: &Outcome, zero: Time) -> Vec<(&'static str, f64)> {
    let sender = &outcome.sender;
    let next_fast = sender.fast.iter().map(|(at, _)| *at).find(|at| *at > zero).unwrap_or(Time::NEVER);
    let timeout = sender.timeouts.iter().map(|(at, _)| *at).find(|at| *at > zero && *at < next_fast);
    let end = timeout.unwrap_or(next_fast);
    let within = |at: Time| at >= zero && at < end;
    let new = sender.sent.iter().filter(|row| !row.is_repeat && row.at > zero && row.at < end).count();
    let repeats = sender.sent.iter().filter(|row| row.is_repeat && within(row.at)).count();
    let pruned: Vec<_> = outcome.receiver.pruned.iter().filter(|(at, _)| within(*at)).collect();
    let first = pruned.first().map_or(end, |(at, _)| *at);
    let at_once = pruned.iter().filter(|(at, _)| *at == first).count();
    let before = sender.sent.iter().filter(|row| !row.is_repeat && row.at > zero && row.at < first).count();
    let known_to = sender.sent.iter().filter(|row| row.at <= zero).map(|row| row.from).max().unwrap_or(0);
    let beyond = pruned.iter().filter(|(_, from)| *from > known_to).count();
    let acks: Vec<_> = sender.acks.iter().filter(|(at, ..)| *at < end).collect();
    let last_to = acks.last().map_or(0, |(_, to, _)| *to);
    let progress_at = acks.iter().find(|(_, to, _)| *to == last_to).map_or(zero, |(at, ..)| *at);
    let duplicates = acks.iter().filter(|(_, to, _)| *to == last_to).count().saturating_sub(1);
    let highest = sender.sent.iter().filter(|row| row.at < end).map(|row| row.from).max().unwrap_or(0);
    let flight = (highest + u32::from(SEGMENT_BYTES)).saturating_sub(last_to) / u32::from(SEGMENT_BYTES);
    let after = sender.sent.iter().find(|row| row.at >= end);
    let threshold =
        sender.sent.iter().rev().find(|row| row.at < end).map_or(f64::NAN, |row| row.threshold.into());
    vec![
        ("new", new as f64),
        ("repeats", repeats as f64),
        ("pruned", pruned.len() as f64),
        ("pruned-first", at_once as f64),
        ("pruned-beyond", beyond as f64),
        ("new-before", before as f64),
        ("duplicates", duplicates as f64),
        ("flight", flight.into()),
        ("threshold", threshold),
        ("waits", timeout.map_or(0.0, |at| at.since(progress_at).as_secs_f64() * 1e3)),
        ("timed-out", f64::from(u8::from(timeout.is_some()))),
        ("timeouts", sender.timeouts.len() as f64),
        ("episodes", sender.fast.len() as f64),
        ("window-after", after.map_or(f64::NAN, |row| row.window.into())),
    ]
}
